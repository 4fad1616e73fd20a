//! What a session has seen of which file, so that nothing is overwritten that nobody looked at. A value that can be kept
//! and taken up again; where it is kept is a trait.

use crate::error::FsError;
use crate::read::{Lines, Whole};
use crate::target::{Target, Version};
use crate::write::{Intent, Written};
use pinfold_policy::FileErrorCode as Code;
use pinfold_policy::quote::quote;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Recognises content: its SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentHash(String);

impl ContentHash {
    /// Returns the hash of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Self::begin();
        hasher.update(bytes);
        hasher.end()
    }

    pub(crate) fn begin() -> Hasher {
        Hasher(Sha256::new())
    }

    /// Returns the hash as 64 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn end(self) -> ContentHash {
        let mut text = String::with_capacity(64);
        for byte in self.0.finalize() {
            text.push_str(&format!("{byte:02x}"));
        }
        ContentHash(text)
    }
}

/// What was seen of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state", deny_unknown_fields)]
enum Observation {
    /// Nothing was there.
    Absent { seen: u64 },
    /// A file was there.
    #[serde(rename_all = "camelCase")]
    Present {
        version: Version,
        hash: ContentHash,
        /// Whether all of it was seen.
        whole: bool,
        /// Lines that were seen: first and last, in order, apart from each other.
        ranges: Vec<(u64, u64)>,
        seen: u64,
    },
}

impl Observation {
    fn seen(&self) -> u64 {
        match self {
            Self::Absent { seen } | Self::Present { seen, .. } => *seen,
        }
    }
}

/// Holds what one session has seen. Sessions do not share it: what one has read, another has not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observations {
    /// By the address of the file.
    files: BTreeMap<String, Observation>,
    clock: u64,
}

/// So many files are remembered; the one that was looked at longest ago goes first.
const MOST_FILES: usize = 10_000;

impl Observations {
    /// Notes that lines were read.
    pub fn saw_lines(&mut self, lines: &Lines) {
        let last = lines.first + lines.lines.len() as u64;
        let seen = if lines.lines.is_empty() { Vec::new() } else { vec![(lines.first, last - 1)] };
        let (mut ranges, mut whole) = (seen, lines.is_whole());
        if let Some(Observation::Present { hash, whole: before, ranges: known, .. }) =
            self.files.get(&lines.target.file_url())
            && *hash == lines.hash
        {
            ranges.extend(known);
            whole |= *before;
        }
        let ranges = merged(ranges);
        // A line that is not shown to its end is not seen.
        whole |= !lines.cut && ranges == [(1, lines.total)];
        self.note(&lines.target, |seen| Observation::Present {
            version: lines.version.clone(),
            hash: lines.hash.clone(),
            whole,
            ranges,
            seen,
        });
    }

    /// Notes that a file was read whole.
    pub fn saw_whole(&mut self, file: &Whole) {
        self.present(&file.target, &file.version, &file.hash());
    }

    /// Notes that nothing is at a path.
    pub fn saw_absent(&mut self, target: &Target) {
        self.note(target, |seen| Observation::Absent { seen });
    }

    /// Notes a change that the session made: it knows the whole of what it wrote, and of what it edited what it knew.
    pub fn changed(&mut self, written: &Written) {
        let whole = match self.files.get(&written.target.file_url()) {
            Some(Observation::Present { whole, .. }) if written.replaced > 0 => *whole,
            _ => true,
        };
        if whole {
            return self.present(&written.target, &written.version, &written.hash());
        }
        // Line numbers may have moved; what was seen in parts counts as seen in none.
        self.note(&written.target, |seen| Observation::Present {
            version: written.version.clone(),
            hash: written.hash(),
            whole: false,
            ranges: Vec::new(),
            seen,
        });
    }

    /// Says on which condition the session may write a file whole.
    ///
    /// # Errors
    ///
    /// `FS_NOT_OBSERVED` for a file of which only parts were read.
    pub fn write_intent(&self, target: &Target) -> Result<Intent, FsError> {
        match self.files.get(&target.file_url()) {
            None | Some(Observation::Absent { .. }) => Ok(Intent::CreateIfAbsent),
            Some(Observation::Present { version, hash, whole: true, .. }) => {
                Ok(Intent::ReplaceIf { version: version.clone(), content: Some(hash.clone()) })
            }
            Some(Observation::Present { ranges, .. }) => {
                let shown = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect::<Vec<_>>().join(", ");
                let shown = if shown.is_empty() { "parts of it".to_owned() } else { format!("lines {shown}") };
                let text = format!(
                    "cannot write {}: only {shown} were read, and writing replaces all of it",
                    quote(target.display())
                );
                Err(FsError::new(Code::NotObserved, text))
            }
        }
    }

    /// Says on which condition the session may edit a file.
    ///
    /// # Errors
    ///
    /// `FS_NOT_OBSERVED` for a file that was not read, `FS_NOT_FOUND` for one that was seen not to exist.
    pub fn edit_intent(&self, target: &Target) -> Result<Intent, FsError> {
        match self.files.get(&target.file_url()) {
            None => Err(unread(target)),
            Some(Observation::Absent { .. }) => {
                let text = format!("cannot edit {}: nothing is there", quote(target.display()));
                Err(FsError::new(Code::NotFound, text))
            }
            Some(Observation::Present { version, hash, .. }) => {
                Ok(Intent::ReplaceIf { version: version.clone(), content: Some(hash.clone()) })
            }
        }
    }

    /// Returns everything as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() // strings and numbers always have a JSON form
    }

    /// Takes up what was kept.
    ///
    /// # Errors
    ///
    /// The parser's, for text that [`Observations::to_json`] did not make.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        let kept: Self = serde_json::from_str(text)?;
        let says_enough = |(address, seen): (&String, &Observation)| {
            let known = match seen {
                Observation::Absent { .. } => true,
                Observation::Present { version, hash, .. } => !version.is_empty() && hash.as_str().len() == 64,
            };
            known && address.starts_with("file:///")
        };
        if kept.files.iter().all(says_enough) {
            return Ok(kept);
        }
        Err(serde::de::Error::custom("an observation without an address, a version or a hash"))
    }

    fn present(&mut self, target: &Target, version: &Version, hash: &ContentHash) {
        self.note(target, |seen| Observation::Present {
            version: version.clone(),
            hash: hash.clone(),
            whole: true,
            ranges: Vec::new(),
            seen,
        });
    }

    fn note(&mut self, target: &Target, observation: impl FnOnce(u64) -> Observation) {
        self.clock += 1;
        self.files.insert(target.file_url(), observation(self.clock));
        if self.files.len() > MOST_FILES {
            let oldest = self.files.iter().min_by_key(|(_, it)| it.seen()).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.files.remove(&oldest);
            }
        }
    }
}

pub(crate) fn unread(target: &Target) -> FsError {
    FsError::new(Code::NotObserved, format!("edit requires reading {} first", quote(target.display())))
}

fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut apart: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match apart.last_mut() {
            Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => apart.push((first, last)),
        }
    }
    apart
}

/// Keeps observations between runs of a session.
pub trait ObservationStore {
    /// Returns what was kept, if anything was.
    ///
    /// # Errors
    ///
    /// The host's.
    fn load(&self) -> io::Result<Option<String>>;

    /// Keeps it, whole or not at all.
    ///
    /// # Errors
    ///
    /// The host's.
    fn save(&self, json: &str) -> io::Result<()>;
}

/// Keeps observations in a file that commands cannot write, such as one in a session's own directory.
#[derive(Debug, Clone)]
pub struct ObservationFile(
    /// Where it lies; its directory must exist.
    pub PathBuf,
);

impl ObservationStore for ObservationFile {
    fn load(&self) -> io::Result<Option<String>> {
        match std::fs::read_to_string(&self.0) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn save(&self, json: &str) -> io::Result<()> {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let beside = self.0.with_extension(format!("{}.new", std::process::id()));
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(json.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn lines(first: u64, count: usize, total: u64) -> Lines {
        Lines {
            target: Target::new(Path::new("/f"), Path::new("/f")),
            version: Version::from_text("v"),
            hash: ContentHash::of(b"c"),
            lines: vec![String::new(); count],
            first,
            total,
            capped: false,
            cut: false,
        }
    }

    /// W55: a window is not the whole; windows together are.
    #[test]
    fn a_file_seen_in_parts_is_not_overwritten_until_the_parts_are_all() {
        let mut seen = Observations::default();
        let target = lines(1, 0, 0).target;
        assert_eq!(seen.write_intent(&target), Ok(Intent::CreateIfAbsent));
        assert_eq!(seen.edit_intent(&target).unwrap_err().code(), Code::NotObserved);
        seen.saw_lines(&lines(1, 2, 6));
        seen.saw_lines(&lines(5, 2, 6));
        let error = seen.write_intent(&target).unwrap_err();
        assert_eq!(error.code(), Code::NotObserved);
        assert!(error.to_string().contains("lines 1-2, 5-6 were read"), "{error}");
        assert!(matches!(seen.edit_intent(&target), Ok(Intent::ReplaceIf { .. })));
        seen = Observations::from_json(&seen.to_json()).unwrap();
        seen.saw_lines(&lines(2, 3, 6));
        assert!(matches!(seen.write_intent(&target), Ok(Intent::ReplaceIf { .. })));
        seen.saw_absent(&target);
        assert_eq!(seen.edit_intent(&target).unwrap_err().code(), Code::NotFound);
        assert_eq!(seen.write_intent(&target), Ok(Intent::CreateIfAbsent));
    }

    /// U472.
    #[test]
    fn what_was_kept_and_says_too_little_is_refused() {
        let mut seen = Observations::default();
        seen.saw_lines(&lines(1, 1, 1));
        let json = seen.to_json();
        assert_eq!(Observations::from_json(&json).unwrap(), seen);
        let hash = ContentHash::of(b"c");
        for (part, instead) in [("\"v\"", "\"\""), (hash.as_str(), ""), ("file:///f", "f"), ("file:///f", "")] {
            assert!(json.contains(part));
            assert!(Observations::from_json(&json.replace(part, instead)).is_err(), "{part}");
        }
    }

    #[test]
    fn the_oldest_observation_goes_first() {
        let mut seen = Observations::default();
        let target = |number: usize| {
            let path = PathBuf::from(format!("/{number}"));
            Target::new(&path, &path)
        };
        (0..=MOST_FILES).for_each(|number| seen.saw_absent(&target(number)));
        assert_eq!(seen.files.len(), MOST_FILES);
        assert_eq!(seen.edit_intent(&target(0)).unwrap_err().code(), Code::NotObserved);
        assert_eq!(seen.edit_intent(&target(1)).unwrap_err().code(), Code::NotFound);
    }
}
