//! Replacing literal text in text, byte for byte outside of what differs. Pure: bytes in, bytes out.
//!
//! Search, replacement and file are compared with CRLF as LF, so that a caller who was shown LF finds what it saw. What is
//! the same at the beginning and the end of search and replacement is not touched at all; line ends of the rest are those
//! of what it replaces, or of the lines around.

use crate::error::FsError;
use crate::read::as_text;
use pinfold_policy::FileErrorCode as Code;
use pinfold_policy::quote::quote;
use std::path::Path;

/// What is replaced by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replacement<'a> {
    /// The text to look for, literally.
    pub old: &'a str,
    /// The text to put there, literally.
    pub new: &'a str,
    /// Whether every place is meant; otherwise there must be exactly one.
    pub all: bool,
}

/// Text with LF line ends, and where it had CRLF.
struct Plain<'a> {
    text: String,
    /// Offsets in `text` of the line feeds that had a carriage return.
    returns: Vec<usize>,
    original: &'a str,
}

impl<'a> Plain<'a> {
    fn new(original: &'a str) -> Self {
        let mut text = String::with_capacity(original.len());
        let mut returns = Vec::new();
        for (index, piece) in original.split("\r\n").enumerate() {
            if index > 0 {
                returns.push(text.len());
                text.push('\n');
            }
            text.push_str(piece);
        }
        Self { text, returns, original }
    }

    /// Where an offset of the text lies in the original; before the carriage return, for a line feed that has one.
    fn back(&self, offset: usize) -> usize {
        offset + self.returns.partition_point(|at| *at < offset)
    }

    /// The line end at a line feed.
    fn end_at(&self, offset: usize) -> &'static str {
        if self.returns.binary_search(&offset).is_ok() { "\r\n" } else { "\n" }
    }

    /// The line end for new lines at a stretch: that of its own lines if they agree, else of the line before, else of the
    /// line behind, else LF.
    fn end_for(&self, from: usize, to: usize) -> &'static str {
        let own: Vec<_> = self.text[from..to].match_indices('\n').map(|(at, _)| self.end_at(from + at)).collect();
        if let Some(first) = own.first()
            && own.iter().all(|end| end == first)
        {
            return first;
        }
        if let Some(before) = self.text[..from].rfind('\n') {
            return self.end_at(before);
        }
        self.text[to..].find('\n').map_or("\n", |behind| self.end_at(to + behind))
    }
}

/// Applies a replacement to the content of a file; returns the new content and how many places were replaced.
pub(crate) fn apply(bytes: &[u8], replacement: &Replacement<'_>, path: &Path) -> Result<(Vec<u8>, usize), FsError> {
    let file = Plain::new(as_text(bytes, "edit", path)?);
    let (old, new) = (replacement.old.replace("\r\n", "\n"), replacement.new.replace("\r\n", "\n"));
    if old.is_empty() {
        return Err(not_found(path, "the text to replace is empty"));
    }
    let places: Vec<usize> = file.text.match_indices(&old).map(|(at, _)| at).collect();
    if places.is_empty() {
        return Err(not_found(path, &clue(&file.text, &old)));
    }
    if places.len() > 1 && !replacement.all {
        let lines =
            places.iter().take(10).map(|at| line_of(&file.text, *at).to_string()).collect::<Vec<_>>().join(", ");
        let more = if places.len() > 10 { ", …" } else { "" };
        let text = format!(
            "cannot edit {}: the text to replace stands there {} times (at lines {lines}{more}); add lines around it \
             until it is unique, or replace all",
            quote(path),
            places.len()
        );
        return Err(FsError::new(Code::AmbiguousEdit, text));
    }
    let (before, behind) = common(&old, &new);
    let middle = &new[before..new.len() - behind];
    let mut out = String::with_capacity(file.original.len() + places.len() * middle.len());
    let mut copied = 0;
    for at in &places {
        let (from, to) = (at + before, at + old.len() - behind);
        let (start, end) = (file.back(from), file.back(to));
        out.push_str(&file.original[copied..start]);
        out.push_str(&middle.replace('\n', file.end_for(from, to)));
        copied = end;
    }
    out.push_str(&file.original[copied..]);
    Ok((out.into_bytes(), places.len()))
}

/// How many bytes two texts share at the beginning, and how many of the rest at the end; whole characters.
fn common(old: &str, new: &str) -> (usize, usize) {
    let same = |one: char, other: char| if one == other { Some(one.len_utf8()) } else { None };
    let before: usize = old.chars().zip(new.chars()).map_while(|(one, other)| same(one, other)).sum();
    let (old, new) = (&old[before..], &new[before..]);
    let behind = old.chars().rev().zip(new.chars().rev()).map_while(|(one, other)| same(one, other)).sum();
    (before, behind)
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

fn not_found(path: &Path, why: &str) -> FsError {
    FsError::new(Code::EditNotFound, format!("cannot edit {}: {why}", quote(path)))
}

/// Says what is nearest to a text that does not stand in a file.
fn clue(text: &str, old: &str) -> String {
    const NONE: &str = "the text to replace does not stand there";
    if old.len() > 64 << 10 || text.len() > 16 << 20 {
        return NONE.to_owned();
    }
    let numbered = |line: &str| {
        let digits = line.trim_start().find(|it: char| !it.is_ascii_digit()).unwrap_or(0);
        digits > 0 && line.trim_start()[digits..].starts_with(": ")
    };
    if old.lines().all(numbered) {
        return format!("{NONE}; it seems to hold the line numbers that reading shows, which are not part of the file");
    }
    let wanted: Vec<String> = old.lines().map(squeezed).filter(|line| !line.is_empty()).collect();
    let Some(first) = wanted.first() else { return NONE.to_owned() };
    let lines: Vec<(usize, String)> = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, squeezed(line)))
        .filter(|(_, line)| !line.is_empty())
        .collect();
    let fits = |at: usize, same: fn(&str, &str) -> bool| {
        let found = lines.get(at..at + wanted.len());
        found.is_some_and(|found| found.iter().zip(&wanted).all(|((_, line), want)| same(line, want)))
    };
    let at = |same: fn(&str, &str) -> bool| (0..lines.len()).find(|at| fits(*at, same)).map(|at| lines[at].0);
    if let Some(line) = at(|line, want| line == want) {
        return format!("{NONE} exactly; at line {line} it differs in spaces, tabs or empty lines only");
    }
    if let Some(line) = at(str::eq_ignore_ascii_case) {
        return format!("{NONE} exactly; at line {line} it differs in upper and lower case only");
    }
    match lines.iter().find(|(_, line)| line.contains(first.as_str())) {
        Some((line, _)) if wanted.len() > 1 => {
            format!("{NONE}; its first line stands at line {line}, but what follows differs")
        }
        _ => format!("{NONE}; read the file again for what it holds now"),
    }
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edit(text: &str, old: &str, new: &str, all: bool) -> Result<String, FsError> {
        let replacement = Replacement { old, new, all };
        apply(text.as_bytes(), &replacement, Path::new("/f")).map(|(bytes, _)| String::from_utf8(bytes).unwrap())
    }

    /// U463, U464, W49: what is outside of the change stays byte for byte.
    #[test]
    fn bytes_outside_of_the_change_stay() {
        let mixed = "\u{feff}a\r\nb\nc\r\nd\re\n";
        assert_eq!(edit(mixed, "c", "x\ny", false).unwrap(), "\u{feff}a\r\nb\nx\ny\r\nd\re\n");
        assert_eq!(edit(mixed, "a\nb\nc", "a\nB\nc", false).unwrap(), "\u{feff}a\r\nB\nc\r\nd\re\n");
        assert_eq!(edit(mixed, "a\r\nb", "a\r\nb2", false).unwrap(), "\u{feff}a\r\nb2\nc\r\nd\re\n");
        assert_eq!(edit("a\r\nb\r\n", "b", "b\nc", false).unwrap(), "a\r\nb\r\nc\r\n");
        assert_eq!(edit("a\r\nb", "\nb", "", false).unwrap(), "a");
        assert_eq!(edit("a\nb", "a", "1\r\n2", false).unwrap(), "1\n2\nb");
    }

    #[test]
    fn replacement_text_is_literal_and_places_do_not_overlap() {
        assert_eq!(edit("aaa", "aa", "$0\\1", true).unwrap(), "$0\\1a");
        assert_eq!(edit("a.a.", ".", "", true).unwrap(), "aa");
        let count = |all| apply(b"x x x", &Replacement { old: "x", new: "y", all }, Path::new("/f")).map(|it| it.1);
        assert_eq!(count(true), Ok(3));
        let error = count(false).unwrap_err();
        assert_eq!(error.code(), Code::AmbiguousEdit);
        assert!(error.to_string().contains("3 times (at lines 1, 1, 1)"), "{error}");
    }

    #[test]
    fn what_is_not_found_is_told_with_a_clue() {
        for (text, old, clue) in [
            ("  foo(a,  b)\n", "foo(a, b)", "line 1 it differs in spaces"),
            ("x\nFoo\n", "foo", "line 2 it differs in upper and lower case"),
            ("a\nb\nc\n", "b\nx", "first line stands at line 2"),
            ("a\n", "1: a", "line numbers"),
            ("a\n", "zzz", "read the file again"),
            ("a\n", "", "is empty"),
        ] {
            let error = edit(text, old, "n", false).unwrap_err();
            assert_eq!(error.code(), Code::EditNotFound);
            assert!(error.to_string().contains(clue), "{error}");
        }
    }

    /// U466.
    #[test]
    fn what_is_no_text_is_not_edited() {
        for bytes in [&b"a\0b"[..], b"a\xff", b"\xc3"] {
            let replacement = Replacement { old: "a", new: "b", all: false };
            assert_eq!(apply(bytes, &replacement, Path::new("/f")).unwrap_err().code(), Code::NotText);
        }
        let late = [vec![b'a'; 9000], vec![0]].concat();
        let replacement = Replacement { old: "b", new: "c", all: true };
        assert_eq!(apply(&late, &replacement, Path::new("/f")).unwrap_err().code(), Code::NotText);
    }

    proptest! {
        /// With LF only, an edit is what `replace` does; with CRLF, the same after normalising.
        #[test]
        fn an_edit_is_a_replacement_of_text(
            pieces in prop::collection::vec(prop::sample::select(vec!["a", "b", "\n", "\r\n"]), 0..24),
            old in "[ab\n]{1,3}",
            new in "[abc\n]{0,4}",
        ) {
            let text = pieces.concat();
            let expected = text.replace("\r\n", "\n").replace(&old, &new);
            match edit(&text, &old, &new, true) {
                Ok(out) => prop_assert_eq!(out.replace("\r\n", "\n"), expected),
                Err(error) => prop_assert_eq!(error.code(), Code::EditNotFound),
            }
        }
    }
}
