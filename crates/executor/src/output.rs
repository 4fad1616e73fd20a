//! What is kept of a stream in bounded memory: its end, its beginning, how much there was, and a file with all of it.

use crate::spill::{Spill, SpillPlace};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How much of the beginning is kept of a stream that is too long, in bytes.
pub const HEAD_BYTES: usize = 4096;

/// Holds one finished stream as text.
///
/// Its JSON form is `{text, truncated, totalBytes, head?, invalidUtf8?, spillPath?}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamOutput {
    /// All of it, or its end. Bytes that are not UTF-8 appear as U+FFFD; no character is cut in two.
    pub text: String,
    /// Whether something is missing before the text.
    pub truncated: bool,
    /// How many bytes there were.
    pub total_bytes: u64,
    /// The beginning of a truncated stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Whether some bytes of the text were no UTF-8.
    #[serde(skip_serializing_if = "is_false")]
    pub invalid_utf8: bool,
    /// The file that holds all of a truncated stream, if there is one. A confined command can read it under this path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spill_path: Option<PathBuf>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Collects one stream.
#[derive(Debug)]
pub(crate) struct Collector {
    cap: usize,
    head: Vec<u8>,
    /// The end of the stream, and at most as much again before it.
    tail: Vec<u8>,
    total: u64,
    spill: Spill,
}

impl Collector {
    pub(crate) fn new(cap: usize) -> Self {
        Self { cap, head: Vec::new(), tail: Vec::new(), total: 0, spill: Spill::None }
    }

    /// Takes what came next. `place` is where a file may be made on the first overflow.
    pub(crate) fn push(&mut self, bytes: &[u8], place: &SpillPlace) {
        let before = self.total;
        self.total += bytes.len() as u64;
        if self.total > self.cap as u64 {
            if before <= self.cap as u64 {
                // Everything so far is still here.
                self.head.extend_from_slice(&self.tail[..self.tail.len().min(HEAD_BYTES)]);
                self.spill = place.create(&self.tail);
            }
            let missing = HEAD_BYTES - self.head.len();
            self.head.extend_from_slice(&bytes[..bytes.len().min(missing)]);
            self.spill.append(bytes, place);
        }
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(self.cap)..]);
        // Moving the rest to the front now and then costs less than doing it each time.
        if self.tail.len() > self.cap.saturating_mul(2) {
            self.tail.drain(..self.tail.len() - self.cap);
        }
    }

    /// Forgets everything, and the file.
    pub(crate) fn reset(&mut self) {
        self.spill.discard();
        *self = Self::new(self.cap);
    }

    /// Leaves the file to somebody who keeps it for longer.
    pub(crate) fn take_spill(&mut self) -> Spill {
        std::mem::replace(&mut self.spill, Spill::Unavailable)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The retained end: exactly as many bytes as may be kept, if there are so many.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail[self.tail.len().saturating_sub(self.cap)..]
    }

    pub(crate) fn spill_path(&self) -> Option<&Path> {
        self.spill.path()
    }

    /// The bytes from an offset on that are still here, and where they begin.
    pub(crate) fn since(&self, offset: u64) -> (u64, &[u8]) {
        let tail = self.tail();
        let start = self.total - tail.len() as u64;
        let from = offset.clamp(start, self.total);
        (from, &tail[usize::try_from(from - start).unwrap_or(tail.len())..])
    }

    pub(crate) fn finish(&self) -> StreamOutput {
        let tail = self.tail();
        let truncated = self.total > tail.len() as u64;
        let shown = if truncated { after_cut(tail) } else { tail };
        let (text, invalid_utf8) = decode(shown);
        let head = truncated.then(|| decode(before_cut(&self.head)).0);
        let spill_path = self.spill.path().filter(|_| truncated).map(Path::to_owned);
        StreamOutput { text, truncated, total_bytes: self.total, head, invalid_utf8, spill_path }
    }
}

/// Text, and whether some bytes were replaced.
pub(crate) fn decode(bytes: &[u8]) -> (String, bool) {
    match String::from_utf8_lossy(bytes) {
        std::borrow::Cow::Borrowed(text) => (text.to_owned(), false),
        std::borrow::Cow::Owned(text) => (text, true),
    }
}

/// Leaves out what a cut has left of a character at the beginning.
pub(crate) fn after_cut(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    &bytes[rest..]
}

/// Leaves out a character at the end that may not be complete yet.
pub(crate) fn before_cut(bytes: &[u8]) -> &[u8] {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            0x80..=0xbf => continue,
            _ => return bytes,
        };
        return if length > back { &bytes[..bytes.len() - back] } else { bytes };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn collected(cap: usize, chunks: &[&[u8]]) -> Collector {
        let mut collector = Collector::new(cap);
        chunks.iter().for_each(|chunk| collector.push(chunk, &SpillPlace::nowhere()));
        collector
    }

    /// U350: exactly as much as may be kept is not truncated.
    #[test]
    fn exactly_the_cap_is_whole() {
        let output = collected(4, &[b"ab", b"cd"]).finish();
        assert_eq!((output.text.as_str(), output.truncated, output.total_bytes), ("abcd", false, 4));
        let output = collected(4, &[b"abcde"]).finish();
        assert_eq!((output.text.as_str(), output.truncated), ("bcde", true));
        assert_eq!(output.head.as_deref(), Some("abcde"));
    }

    /// U311 as we have it: a cut through a character shows no half of it.
    #[test]
    fn no_character_is_cut_in_two() {
        let text = "aäöü€😀";
        for cap in 1..text.len() {
            let output = collected(cap, &[text.as_bytes()]).finish();
            assert!(!output.invalid_utf8 && text.ends_with(&output.text), "{cap}: {output:?}");
            assert!(output.text.len() + 3 >= cap, "{cap}: {output:?}");
        }
        for length in 0..=text.len() {
            let whole = before_cut(&text.as_bytes()[..length]);
            assert!(text.starts_with(std::str::from_utf8(whole).unwrap()));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_marked_and_not_fatal() {
        let output = collected(100, &[b"a\xff\xfeb\xc3"]).finish();
        assert_eq!((output.text.as_str(), output.invalid_utf8), ("a\u{fffd}\u{fffd}b\u{fffd}", true));
        assert_eq!(output.total_bytes, 5);
        // What can begin no character is not held back.
        assert_eq!(before_cut(b"a\xff"), b"a\xff");
        assert_eq!(before_cut(b"\x80\x80\x80\x80"), b"\x80\x80\x80\x80");
    }

    proptest! {
        /// U310, U351: the end is exact, however the stream is cut into pieces; the beginning too.
        #[test]
        fn the_end_is_exact_however_it_comes(
            cap in 1_usize..50,
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 0..12),
        ) {
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let collector = collected(cap, &chunks);
            let all = chunks.concat();
            prop_assert_eq!(collector.total(), all.len() as u64);
            prop_assert_eq!(collector.tail(), &all[all.len().saturating_sub(cap)..]);
            if all.len() > cap {
                prop_assert_eq!(&collector.head, &all[..all.len().min(HEAD_BYTES)]);
            }
            for offset in [0, all.len() / 2, all.len()] {
                let (from, bytes) = collector.since(offset as u64);
                prop_assert_eq!(bytes, &all[usize::try_from(from).unwrap()..]);
                prop_assert!(from >= offset as u64);
            }
        }
    }
}
