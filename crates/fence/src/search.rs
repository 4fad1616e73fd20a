//! Names and lines that match, below a directory. The walk goes by descriptors and never through a link; what is denied is
//! passed over, and what `.gitignore` and `.ignore` leave out is left out unless asked for.

use crate::error::{FsError, on};
use crate::fence::Fence;
use crate::list::Directory;
use crate::read;
use crate::resolve::{Place, on_kernel_file_system};
use crate::roots::DIRECTORY;
use crate::write::Abort;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use pinfold_policy::FileErrorCode as Code;
use pinfold_policy::pattern::PathPattern;
use pinfold_policy::quote::quote;
use regex::bytes::{Regex, RegexBuilder};
use rustix::fs::{FileType, Mode, Stat};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a search passes over, and where it stops.
#[derive(Debug, Clone)]
pub struct SearchOptions {
    /// Whether names with a leading dot are looked at.
    pub hidden: bool,
    /// Whether what `.gitignore` and `.ignore` leave out is looked at.
    pub ignored: bool,
    /// The most results.
    pub results: usize,
    /// Withdraws the search.
    pub abort: Abort,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { hidden: false, ignored: false, results: 1000, abort: Abort::default() }
    }
}

/// What lines are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePattern<'a> {
    /// A regular expression (syntax of the `regex` crate), or literal text.
    pub text: &'a str,
    /// Whether the text is literal.
    pub literal: bool,
    /// Whether upper and lower case are one.
    pub any_case: bool,
    /// Only files whose paths match, a pattern relative to the directory.
    pub files: Option<&'a str>,
}

/// One line that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The file, relative to the directory; empty where one file was searched.
    pub path: PathBuf,
    /// The number of the line, from 1.
    pub line: u64,
    /// The line without its end, cut at 2000 characters; bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<T> {
    /// The results, in the order of the paths.
    pub results: Vec<T>,
    /// Whether there are more.
    pub truncated: bool,
    /// Files that were not looked into: binary, too large, or not readable.
    pub skipped: u64,
}

/// So deep is looked.
const DEEPEST: usize = 256;

/// A file that a walk came to.
struct Candidate<'a> {
    dir: &'a OwnedFd,
    name: &'a OsStr,
    physical: &'a Path,
    relative: &'a Path,
    stat: &'a Stat,
}

/// Says whether a walk goes on.
#[derive(PartialEq, Eq)]
enum Step {
    On,
    Stop,
}

/// A result as a path that means the same where the searched one was named: below it as it was named, or itself if it was one
/// file. The current directory is not repeated.
pub fn spelled(searched: &Path, found: &Path) -> PathBuf {
    match searched.as_os_str().as_bytes() {
        b"" | b"." => found.to_owned(),
        _ if found.as_os_str().is_empty() => searched.to_owned(),
        _ => searched.join(found),
    }
}

impl Fence {
    /// Finds files (and links) below a directory whose paths match a pattern relative to it.
    ///
    /// # Errors
    ///
    /// As for [`Fence::list`]; `FS_IO_ERROR` for a text that is no pattern.
    pub fn glob(&self, path: &Path, pattern: &str, options: &SearchOptions) -> Result<Found<PathBuf>, FsError> {
        let (absolute, directory) = self.start(path)?;
        let pattern = paths(pattern, &directory.place.path)?;
        let mut found = Found { results: Vec::new(), truncated: false, skipped: 0 };
        self.walk(&absolute, &directory, options, Some(&pattern), &mut |candidate| {
            if pattern.matches(candidate.physical) {
                if found.results.len() >= options.results {
                    found.truncated = true;
                    return Step::Stop;
                }
                found.results.push(candidate.relative.to_owned());
            }
            Step::On
        })?;
        Ok(found)
    }

    /// Finds lines that match, in the text files below a directory or in one file.
    ///
    /// # Errors
    ///
    /// As for [`Fence::list`] and [`Fence::read_bytes`]; `FS_IO_ERROR` for a text that is no pattern.
    pub fn grep(
        &self,
        path: &Path,
        pattern: &LinePattern<'_>,
        options: &SearchOptions,
    ) -> Result<Found<Match>, FsError> {
        let regex = lines(pattern)?;
        let limit = self.options.limits.whole;
        let mut found = Found { results: Vec::new(), truncated: false, skipped: 0 };
        if self.stat(path)?.is_some_and(|look| look.kind == crate::Kind::File) {
            let file = self.read_bytes(path, limit)?;
            look_into(&file.bytes, Path::new(""), &regex, options.results, &mut found);
            return Ok(found);
        }
        let (absolute, directory) = self.start(path)?;
        let files = pattern.files.map(|files| paths(files, &directory.place.path)).transpose()?;
        self.walk(&absolute, &directory, options, files.as_ref(), &mut |candidate| {
            let regular = FileType::from_raw_mode(candidate.stat.st_mode) == FileType::RegularFile;
            if !regular || files.as_ref().is_some_and(|files| !files.matches(candidate.physical)) {
                return Step::On;
            }
            let Some(bytes) = self.content(candidate, limit) else {
                found.skipped += 1;
                return Step::On;
            };
            look_into(&bytes, candidate.relative, &regex, options.results, &mut found);
            if found.truncated { Step::Stop } else { Step::On }
        })?;
        Ok(found)
    }

    fn start(&self, path: &Path) -> Result<(PathBuf, Directory), FsError> {
        let absolute = self.absolute(path)?;
        let directory = self.open_directory("search", &absolute)?;
        // Some of its files never end, and others are emptied by reading.
        if self.confined_mode().is_some() && on_kernel_file_system(&*directory.handle) {
            let text = format!("cannot search {}: it shows the kernel; name one file", quote(&absolute));
            return Err(FsError::new(Code::IoError, text));
        }
        Ok((absolute, directory))
    }

    fn content(&self, candidate: &Candidate<'_>, limit: u64) -> Option<Vec<u8>> {
        let file = read::open(candidate.dir, candidate.name).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        // SECURITY: what was opened is what was decided about, or is decided about anew.
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !regular || self.closes(candidate.physical, Some(&stat)) {
            return None;
        }
        read::all(&file, "search", candidate.physical, limit).ok()
    }

    fn walk(
        &self,
        absolute: &Path,
        start: &Directory,
        options: &SearchOptions,
        only: Option<&PathPattern>,
        visit: &mut dyn FnMut(&Candidate<'_>) -> Step,
    ) -> Result<(), FsError> {
        let mut ignored = Vec::new();
        if !options.ignored {
            // Rules of the directories above count as well, up to the workspace.
            let physical = start.place.path.as_path();
            let above = physical.ancestors().skip(1).take_while(|above| above.starts_with(self.base()));
            for above in above.collect::<Vec<_>>().into_iter().rev() {
                if let Ok(directory) = self.open_directory("search", above) {
                    ignored.extend(rules_of(self, &directory.handle, above));
                }
            }
        }
        let walk = Walk { fence: self, options, only, top: start.place.path.clone() };
        walk.directory(start, &mut ignored, DEEPEST, visit).map(drop).map_err(on("search", absolute))?;
        options.abort.check("search", absolute)
    }
}

struct Walk<'a> {
    fence: &'a Fence,
    options: &'a SearchOptions,
    only: Option<&'a PathPattern>,
    top: PathBuf,
}

impl Walk<'_> {
    fn directory(
        &self,
        directory: &Directory,
        ignored: &mut Vec<Gitignore>,
        depth: usize,
        visit: &mut dyn FnMut(&Candidate<'_>) -> Step,
    ) -> rustix::io::Result<Step> {
        let (names, _) = directory.names(usize::MAX)?;
        let before = ignored.len();
        if !self.options.ignored {
            ignored.extend(rules_of(self.fence, &directory.handle, &directory.place.path));
        }
        let mut step = Step::On;
        for name in names {
            if self.options.abort.is_aborted() {
                return Ok(Step::Stop);
            }
            if !self.options.hidden && name.as_bytes().first() == Some(&b'.') {
                continue;
            }
            // RACE: gone already.
            let Ok(stat) = directory.stat(&name) else { continue };
            let physical = directory.place.path.join(&name);
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let left_out = ignored
                .iter()
                .rev()
                .map(|rules| rules.matched(&physical, is_directory))
                .find(|verdict| !verdict.is_none())
                .is_some_and(|verdict| verdict.is_ignore());
            if left_out || self.fence.closes(&physical, Some(&stat)) {
                continue;
            }
            step = if is_directory {
                self.below(directory, &name, physical, ignored, depth, visit)
            } else {
                let relative = physical.strip_prefix(&self.top).unwrap_or(&physical);
                let dir = &directory.handle;
                visit(&Candidate { dir, name: &name, physical: &physical, relative, stat: &stat })
            };
            if step == Step::Stop {
                break;
            }
        }
        ignored.truncate(before);
        Ok(step)
    }

    /// A directory that cannot be entered has nothing to be found in.
    fn below(
        &self,
        above: &Directory,
        name: &OsStr,
        physical: PathBuf,
        ignored: &mut Vec<Gitignore>,
        depth: usize,
        visit: &mut dyn FnMut(&Candidate<'_>) -> Step,
    ) -> Step {
        if depth == 0 || self.only.is_some_and(|only| !only.may_match_below(&physical)) {
            return Step::On;
        }
        let Ok(handle) = rustix::fs::openat(&*above.handle, name, DIRECTORY, Mode::empty()) else { return Step::On };
        let Ok(stat) = rustix::fs::fstat(&handle) else { return Step::On };
        let place = Place::in_directory(&above.handle, name, physical, stat);
        if !self.fence.may_read(&place) || on_kernel_file_system(&handle) {
            return Step::On;
        }
        let directory = Directory { place, handle: Arc::new(handle) };
        self.directory(&directory, ignored, depth - 1, visit).unwrap_or(Step::On)
    }
}

/// The rules that a directory has for what lies in it.
fn rules_of(fence: &Fence, dir: &OwnedFd, path: &Path) -> Option<Gitignore> {
    let closes = |path: &Path, stat: &Stat| fence.closes(path, Some(stat));
    const LONGEST: u64 = 1 << 20;
    let mut builder = GitignoreBuilder::new(path);
    let mut any = false;
    for name in [".gitignore", ".ignore"] {
        let Ok(file) = read::open(dir, name.as_ref()) else { continue };
        let Ok(stat) = rustix::fs::fstat(&file) else { continue };
        if closes(&path.join(name), &stat) {
            continue;
        }
        let Ok(bytes) = read::all(&file, "search", path, LONGEST) else { continue };
        for line in String::from_utf8_lossy(&bytes).lines() {
            // A line that is no pattern leaves nothing out, as with git.
            any |= builder.add_line(None, line).is_ok();
        }
    }
    if any { builder.build().ok() } else { None }
}

fn look_into(bytes: &[u8], path: &Path, regex: &Regex, most: usize, found: &mut Found<Match>) {
    const LONGEST: usize = 2000;
    if bytes.iter().take(8192).any(|byte| *byte == 0) {
        found.skipped += 1;
        return;
    }
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_end = line.is_empty() && index > 0 && bytes.ends_with(b"\n") && index == count(bytes);
        if is_end || !regex.is_match(line) {
            continue;
        }
        if found.results.len() >= most {
            found.truncated = true;
            return;
        }
        let text = String::from_utf8_lossy(line).chars().take(LONGEST).collect();
        found.results.push(Match { path: path.to_owned(), line: index as u64 + 1, text });
    }
}

fn count(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

fn paths(pattern: &str, root: &Path) -> Result<PathPattern, FsError> {
    PathPattern::parse(pattern.as_ref(), root, None).map_err(|error| FsError::new(Code::IoError, error.to_string()))
}

fn lines(pattern: &LinePattern<'_>) -> Result<Regex, FsError> {
    let text = if pattern.literal { regex::escape(pattern.text) } else { pattern.text.to_owned() };
    RegexBuilder::new(&text).case_insensitive(pattern.any_case).build().map_err(|error| {
        FsError::new(Code::IoError, format!("{} is no regular expression: {error}", quote(pattern.text)))
    })
}
