//! Reading one file: whole, a range, or lines of text. Never waits: what is no regular file is not opened for reading.

use crate::error::{FsError, errno, on};
use crate::fence::Fence;
use crate::observation::ContentHash;
use crate::resolve::Last;
use crate::rules::Act;
use crate::target::{Target, Version};
use crate::write::not_regular;
use pinfold_policy::FileErrorCode as Code;
use pinfold_policy::quote::quote;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// How much of a file's beginning must be free of NUL bytes for a file to be read as text.
const TEXT_PROBE: usize = 8192;

/// Opens a file for reading: never through a link, never waiting for a writer, never taking a terminal.
pub(crate) fn open(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Reads all of an open file, from its beginning, wherever its offset stands.
pub(crate) fn all(file: &OwnedFd, verb: &str, path: &Path, limit: u64) -> Result<Vec<u8>, FsError> {
    let size = rustix::fs::fstat(file).map_err(on(verb, path))?.st_size;
    expected(file, u64::try_from(size).unwrap_or(0), verb, path, limit)
}

/// The same for a file of which the size is known.
fn expected(file: &OwnedFd, size: u64, verb: &str, path: &Path, limit: u64) -> Result<Vec<u8>, FsError> {
    if size > limit {
        return Err(too_large(verb, path, limit));
    }
    // One byte more than expected tells at once that there is no more.
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0) + 1];
    let mut filled = 0;
    loop {
        match rustix::io::pread(file, &mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(FsError::host(verb, path, errno)),
        }
        // RACE: it may grow while it is read.
        if filled as u64 > limit {
            return Err(too_large(verb, path, limit));
        }
        if filled == bytes.len() {
            bytes.resize(filled * 2 + 4096, 0);
        } else if filled as u64 == size && size > 0 {
            break;
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn too_large(verb: &str, path: &Path, limit: u64) -> FsError {
    let text = format!("cannot {verb} {}: it is larger than the limit of {limit} bytes", quote(path));
    FsError::new(Code::TooLarge, text)
}

fn not_text(verb: &str, path: &Path, why: &str) -> FsError {
    FsError::new(Code::NotText, format!("cannot {verb} {} as text: {why}", quote(path)))
}

/// Checks that bytes are text as an edit needs it: UTF-8 without any NUL byte.
pub(crate) fn as_text<'a>(bytes: &'a [u8], verb: &str, path: &Path) -> Result<&'a str, FsError> {
    if bytes.contains(&0) {
        return Err(not_text(verb, path, "it holds a NUL byte"));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        not_text(verb, path, &format!("it is not UTF-8 (first wrong byte at offset {})", error.valid_up_to()))
    })
}

/// Holds a file that was read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// The file.
    pub target: Target,
    /// Its state when it was opened.
    pub version: Version,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Whole {
    /// Returns what recognises the content later.
    pub fn hash(&self) -> ContentHash {
        ContentHash::of(&self.bytes)
    }
}

/// Holds an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its media type by its first bytes.
    pub media_type: &'static str,
    /// The file.
    pub file: Whole,
}

/// Which lines are read, and how much of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinesRequest {
    /// The first line, counted from 1.
    pub offset: u64,
    /// The most lines.
    pub limit: usize,
    /// The most characters of one line.
    pub line_characters: usize,
    /// The most bytes of all lines.
    pub bytes: usize,
}

impl Default for LinesRequest {
    fn default() -> Self {
        Self { offset: 1, limit: 2000, line_characters: 2000, bytes: 50 << 10 }
    }
}

/// Holds lines of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    /// The file.
    pub target: Target,
    /// Its state when it was opened.
    pub version: Version,
    /// Its whole content, recognised later.
    pub hash: ContentHash,
    /// The lines, without line ends (a carriage return before one is dropped) and without a byte order mark.
    pub lines: Vec<String>,
    /// The number of the first of them.
    pub first: u64,
    /// How many lines the file has.
    pub total: u64,
    /// Whether lines were left out because of the limit of bytes.
    pub capped: bool,
    /// Whether some line is not shown to its end.
    pub cut: bool,
}

impl Lines {
    /// Returns the number of the first line that was not reached, if there is one.
    pub fn next(&self) -> Option<u64> {
        let next = self.first + self.lines.len() as u64;
        (next <= self.total).then_some(next)
    }

    /// Returns whether these are all lines, each to its end.
    pub fn is_whole(&self) -> bool {
        self.first <= 1 && self.next().is_none() && !self.cut
    }
}

impl Fence {
    /// Reads a file whole, as bytes.
    ///
    /// # Errors
    ///
    /// `FS_NOT_FOUND`, `FS_NOT_REGULAR_FILE`, `FS_TOO_LARGE` for more than `limit` bytes, also if it grows meanwhile,
    /// `FS_SANDBOX_DENIED` for a denied path, host errors.
    pub fn read_bytes(&self, path: &Path, limit: u64) -> Result<Whole, FsError> {
        let opened = self.open_file(path)?;
        let size = u64::try_from(opened.stat.st_size).unwrap_or(0);
        let bytes = expected(&opened.file, size, "read", &opened.path, limit)?;
        Ok(Whole { target: opened.target, version: Version::of(&opened.stat), bytes })
    }

    /// Reads a file whole, as text. Nothing is changed in it: line ends and a byte order mark are part of the text.
    ///
    /// # Errors
    ///
    /// As for [`Fence::read_bytes`]; `FS_NOT_TEXT` for a NUL byte in the first 8192 bytes and for what is not UTF-8.
    pub fn read_text(&self, path: &Path) -> Result<(String, Version), FsError> {
        let opened = self.open_file(path)?;
        let bytes = all(&opened.file, "read", &opened.path, self.options.limits.whole)?;
        if bytes.iter().take(TEXT_PROBE).any(|byte| *byte == 0) {
            return Err(not_text("read", &opened.path, "it holds a NUL byte"));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let why = format!("it is not UTF-8 (first wrong byte at offset {})", error.utf8_error().valid_up_to());
            not_text("read", &opened.path, &why)
        })?;
        Ok((text, Version::of(&opened.stat)))
    }

    /// Reads at most `length` bytes from `offset` on; fewer at the end of the file.
    ///
    /// # Errors
    ///
    /// As for [`Fence::read_bytes`]; `FS_TOO_LARGE` for a length above the limit for whole files.
    pub fn read_range(&self, path: &Path, offset: u64, length: usize) -> Result<Vec<u8>, FsError> {
        let opened = self.open_file(path)?;
        if length as u64 > self.options.limits.whole {
            return Err(too_large("read", &opened.path, self.options.limits.whole));
        }
        let file = File::from(opened.file);
        let mut bytes = Vec::new();
        let mut chunk = [0; 64 << 10];
        while bytes.len() < length {
            let want = chunk.len().min(length - bytes.len());
            let at = offset.saturating_add(bytes.len() as u64);
            match file.read_at(&mut chunk[..want], at) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FsError::host("read", &opened.path, errno(&error))),
            }
        }
        Ok(bytes)
    }

    /// Hands on a file, or a part of it, piece by piece, as bytes; a piece is answered with whether the next one is wanted.
    /// Returns the state of the file and how many bytes were handed on. What is appended meanwhile is not.
    ///
    /// # Errors
    ///
    /// As for [`Fence::read_bytes`], without its limit.
    pub fn stream(
        &self,
        path: &Path,
        (offset, length): (u64, u64),
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(Version, u64), FsError> {
        let opened = self.open_file(path)?;
        let size = u64::try_from(opened.stat.st_size).unwrap_or(0);
        // A file that does not know its size (procfs) has an end all the same.
        let end = if size == 0 { self.options.limits.whole } else { size };
        let end = end.min(offset.saturating_add(length));
        let mut buffer = vec![0; 128 << 10];
        let mut at = offset;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(buffer.len()).min(buffer.len());
            match rustix::io::pread(&opened.file, &mut buffer[..want], at) {
                Ok(0) => break,
                Ok(count) => {
                    at += count as u64;
                    if take(&buffer[..count]).is_break() {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(FsError::host("read", &opened.path, errno)),
            }
        }
        Ok((Version::of(&opened.stat), at - offset))
    }

    /// Hands on a text of any size piece by piece, each of whole characters; a piece is answered with whether the next one is
    /// wanted. Nothing is changed in it.
    ///
    /// # Errors
    ///
    /// As for [`Fence::read_text`]; pieces before a wrong byte have been handed on by then. `FS_TOO_LARGE` beyond the limit
    /// of what one read looks through.
    pub fn stream_text(&self, path: &Path, take: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Result<Version, FsError> {
        let opened = self.open_file(path)?;
        let version = Version::of(&opened.stat);
        self.text_of(opened.file, &opened.path, &mut |_| {}, take)?;
        Ok(version)
    }

    /// Reads lines of a text of any size, without holding more than what is returned.
    ///
    /// # Errors
    ///
    /// As for [`Fence::read_text`]; `FS_NOT_FOUND` for an offset behind the last line, and `FS_TOO_LARGE` beyond the
    /// limit of what one read looks through.
    pub fn read_lines(&self, path: &Path, request: &LinesRequest) -> Result<Lines, FsError> {
        let opened = self.open_file(path)?;
        let path = &opened.path;
        let mut window = Window::new(request);
        let mut hasher = ContentHash::begin();
        self.text_of(opened.file, path, &mut |bytes| hasher.update(bytes), &mut |text| {
            window.push(text);
            ControlFlow::Continue(())
        })?;
        let (lines, total, capped, cut) = window.end();
        if request.offset > total.max(1) {
            let text = format!("cannot read {} from line {}: it has {total} lines", quote(path), request.offset);
            return Err(FsError::new(Code::NotFound, text));
        }
        let (version, hash) = (Version::of(&opened.stat), hasher.end());
        Ok(Lines { target: opened.target, version, hash, lines, first: request.offset, total, capped, cut })
    }

    /// Reads an open file as text, piece by piece.
    fn text_of(
        &self,
        file: OwnedFd,
        path: &Path,
        see: &mut dyn FnMut(&[u8]),
        take: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let mut file = File::from(file);
        let mut buffer = vec![0; 64 << 10];
        let (mut kept, mut seen) = (0, 0_u64);
        loop {
            let count = match file.read(&mut buffer[kept..]) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(FsError::host("read", path, errno(&error))),
            };
            let fresh = &buffer[kept..kept + count];
            let probe = usize::try_from((TEXT_PROBE as u64).saturating_sub(seen)).unwrap_or(0).min(count);
            if fresh[..probe].contains(&0) {
                return Err(not_text("read", path, "it holds a NUL byte"));
            }
            see(fresh);
            seen += count as u64;
            if seen > self.options.limits.scan {
                return Err(too_large("read", path, self.options.limits.scan));
            }
            let available = kept + count;
            let valid = match std::str::from_utf8(&buffer[..available]) {
                Ok(text) => text.len(),
                // A character may go on in the next piece.
                Err(error) if error.error_len().is_none() && count > 0 => error.valid_up_to(),
                Err(error) => {
                    let at = seen - (available - error.valid_up_to()) as u64;
                    return Err(not_text("read", path, &format!("it is not UTF-8 (first wrong byte at offset {at})")));
                }
            };
            if take(std::str::from_utf8(&buffer[..valid]).unwrap_or_default()).is_break() {
                return Ok(());
            }
            buffer.copy_within(valid..available, 0);
            kept = available - valid;
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// Reads an image of a known kind, told by its first bytes and not by its name.
    ///
    /// # Errors
    ///
    /// As for [`Fence::read_bytes`]; `FS_NOT_REGULAR_FILE` if it is none of PNG, JPEG, GIF and WebP.
    pub fn read_image(&self, path: &Path, limit: u64) -> Result<Image, FsError> {
        let file = self.read_bytes(path, limit)?;
        let media_type = match file.bytes.as_slice() {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => "image/png",
            [0xff, 0xd8, 0xff, ..] => "image/jpeg",
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => "image/gif",
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
            _ => {
                let text = format!("cannot read {} as an image: it is no PNG, JPEG, GIF or WebP", quote(path));
                return Err(FsError::new(Code::NotRegularFile, text));
            }
        };
        Ok(Image { media_type, file })
    }

    pub(crate) fn open_file(&self, path: &Path) -> Result<Opened, FsError> {
        const MOST_TRIES: u32 = 50;
        let absolute = self.absolute(path)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let place = self.place(Act::Read, "read", &absolute, Last::Followed)?;
            let Some(seen) = &place.stat else { return Err(FsError::host("read", &absolute, Errno::NOENT)) };
            // Before it is opened: opening a device may already do something.
            if FileType::from_raw_mode(seen.st_mode) != FileType::RegularFile {
                return Err(not_regular("read", &absolute));
            }
            let file = match open(&place.dir, &place.name) {
                Ok(file) => file,
                // RACE: it became a link, or is gone; another look follows it as the policy allows.
                Err(Errno::LOOP | Errno::NOENT) if tries < MOST_TRIES => continue,
                Err(errno) => return Err(FsError::host("read", &absolute, errno)),
            };
            let stat = rustix::fs::fstat(&file).map_err(on("read", &absolute))?;
            let same = (stat.st_dev, stat.st_ino) == (seen.st_dev, seen.st_ino);
            // SECURITY: what was decided about is what is read, or the decision is made again.
            if same || tries >= MOST_TRIES {
                let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
                if !regular || self.closes(&place.path, Some(&stat)) {
                    return Err(not_regular("read", &absolute));
                }
                let target = Target::new(&place.path, &absolute);
                return Ok(Opened { path: absolute, target, stat, file });
            }
        }
    }
}

/// A regular file, open for reading.
pub(crate) struct Opened {
    pub(crate) path: PathBuf,
    pub(crate) target: Target,
    pub(crate) stat: Stat,
    pub(crate) file: OwnedFd,
}

/// Collects the lines of a window from pieces of text.
struct Window<'a> {
    request: &'a LinesRequest,
    lines: Vec<String>,
    /// The number of the line that is being read.
    number: u64,
    line: String,
    characters: usize,
    begun: bool,
    bytes: usize,
    capped: bool,
    cut: bool,
}

impl<'a> Window<'a> {
    fn new(request: &'a LinesRequest) -> Self {
        Self {
            request,
            lines: Vec::new(),
            number: 1,
            line: String::new(),
            characters: 0,
            begun: false,
            bytes: 0,
            capped: false,
            cut: false,
        }
    }

    fn wanted(&self) -> bool {
        self.number >= self.request.offset && self.lines.len() < self.request.limit && !self.capped
    }

    fn push(&mut self, text: &str) {
        for piece in text.split_inclusive('\n') {
            let (body, ends) = match piece.strip_suffix('\n') {
                Some(body) => (body, true),
                None => (piece, false),
            };
            let body =
                if self.number == 1 && !self.begun { body.strip_prefix('\u{feff}').unwrap_or(body) } else { body };
            self.begun = true;
            if self.wanted() {
                // One more than the limit, so that a carriage return at the end does not count.
                let room = (self.request.line_characters + 1).saturating_sub(self.characters);
                let mut taken = body.chars();
                self.line.extend(taken.by_ref().take(room));
                self.characters += body.chars().count();
            }
            if ends {
                self.finish();
            }
        }
    }

    fn finish(&mut self) {
        if self.wanted() {
            let limit = self.request.line_characters;
            let carriage = self.characters <= limit + 1 && self.line.ends_with('\r');
            if carriage {
                self.line.pop();
                self.characters -= 1;
            }
            if self.characters > limit {
                let end = self.line.char_indices().nth(limit).map_or(self.line.len(), |(at, _)| at);
                self.line.truncate(end);
                self.line.push_str(&format!("... (line truncated to {limit} chars)"));
                self.cut = true;
            }
            self.bytes += self.line.len() + 1;
            if self.bytes > self.request.bytes && !self.lines.is_empty() {
                self.capped = true;
            } else {
                self.lines.push(std::mem::take(&mut self.line));
            }
        }
        self.line.clear();
        self.characters = 0;
        self.begun = false;
        self.number += 1;
    }

    fn end(mut self) -> (Vec<String>, u64, bool, bool) {
        if self.begun {
            self.finish();
        }
        (self.lines, self.number - 1, self.capped, self.cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U446: a file that is larger than it was, or than it says, is noticed.
    #[test]
    fn a_file_that_grows_meanwhile_is_too_large() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("f");
        std::fs::write(&name, [b'x'; 10]).unwrap();
        let file = OwnedFd::from(File::open(&name).unwrap());
        let read = |size, limit| expected(&file, size, "read", &name, limit).map(|bytes| bytes.len());
        assert_eq!((read(10, 10), read(1, 10), read(0, 10)), (Ok(10), Ok(10), Ok(10)));
        assert_eq!(read(0, 9).unwrap_err().code(), Code::TooLarge);
        assert_eq!(read(1, 5).unwrap_err().code(), Code::TooLarge);
        assert_eq!(read(10, 9).unwrap_err().code(), Code::TooLarge);
    }

    fn window(text: &str, request: &LinesRequest) -> (Vec<String>, u64, bool, bool) {
        let whole = {
            let mut window = Window::new(request);
            window.push(text);
            window.end()
        };
        // The same, one character at a time.
        let mut window = Window::new(request);
        text.split_inclusive(|_| true).for_each(|piece| window.push(piece));
        assert_eq!(window.end(), whole, "{text:?}");
        whole
    }

    /// U509, U513.
    #[test]
    fn lines_are_counted_and_chosen() {
        let all = LinesRequest::default();
        for (text, total) in [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("a\n\n", 2), ("\n", 1)] {
            assert_eq!(window(text, &all).1, total, "{text:?}");
        }
        let some = LinesRequest { offset: 2, limit: 1, ..all.clone() };
        assert_eq!(window("a\r\nb\r\nc", &some), (vec!["b".into()], 3, false, false));
        assert_eq!(window("\u{feff}a\r", &all).0, ["a"]);
    }

    #[test]
    fn long_lines_are_cut_and_the_whole_is_capped() {
        let narrow = LinesRequest { line_characters: 2, ..LinesRequest::default() };
        let (lines, total, _, cut) = window("\u{e4}\u{e4}\n\u{e4}\u{e4}\r\nxyz\r\nw", &narrow);
        assert_eq!(lines, ["\u{e4}\u{e4}", "\u{e4}\u{e4}", "xy... (line truncated to 2 chars)", "w"]);
        assert!(total == 4 && cut);
        let small = LinesRequest { bytes: 4, ..LinesRequest::default() };
        assert_eq!(window("a\nb\nc\nd", &small), (vec!["a".into(), "b".into()], 4, true, false));
    }
}
