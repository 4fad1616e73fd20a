//! Changing the content of one file: create or replace, whole and at once.

use crate::edit::{self, Replacement};
use crate::error::FsError;
use crate::fence::{Durability, Fence};
use crate::locks::Turn;
use crate::metadata::{self, Lost};
use crate::observation::ContentHash;
use crate::read;
use crate::resolve::{Last, Place};
use crate::rules::Act;
use crate::staging::{self, Parents, Staged};
use crate::target::{Target, Version};
use pinfold_policy::FileErrorCode as Code;
use pinfold_policy::quote::quote;
use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::Serialize;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says on which condition a file is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// Whatever is there.
    Any,
    /// Only if nothing is there.
    CreateIfAbsent,
    /// Only if the file is in this state; or, if a hash is given, has this content in another state.
    ReplaceIf {
        /// The state.
        version: Version,
        /// The content that was seen.
        content: Option<ContentHash>,
    },
}

/// Withdraws an operation from another thread; once it has happened, withdrawing changes nothing.
#[derive(Debug, Clone, Default)]
pub struct Abort(Arc<AtomicBool>);

impl Abort {
    /// Withdraws.
    pub fn abort(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Says whether it was withdrawn.
    pub fn is_aborted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self, verb: &str, path: &Path) -> Result<(), FsError> {
        if !self.is_aborted() {
            return Ok(());
        }
        let text = format!("cannot {verb} {}: the call was aborted before anything changed", quote(path));
        Err(FsError::new(Code::Aborted, text))
    }
}

/// Names what a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The file was not there.
    Create,
    /// It was.
    Update,
}

/// Tells what a write did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The file.
    pub target: Target,
    /// Whether it was there.
    pub change: Change,
    /// Its state now: what [`Fence::stat`] would say.
    pub version: Version,
    /// The text before, with LF line ends; `None` if there was none, it was no text, or it was too large.
    pub before: Option<String>,
    /// The text now, with LF line ends; `None` if it is no text or too large.
    pub after: Option<String>,
    /// What the file had before and has no more.
    pub lost: Vec<Lost>,
    /// Whether content and name were synchronised to the disk.
    pub durable: bool,
    /// How many places an edit replaced; 0 for a write.
    pub replaced: usize,
    /// The content now.
    pub(crate) content: Vec<u8>,
}

impl Written {
    /// Returns what recognises the content later.
    pub fn hash(&self) -> ContentHash {
        ContentHash::of(&self.content)
    }
}

/// A file that is there, opened.
pub(crate) struct Existing {
    pub(crate) stat: Stat,
    /// `None` if it cannot be read.
    pub(crate) file: Option<OwnedFd>,
}

/// How often a write starts over when what it goes through changes under it.
const MOST_TRIES: u32 = 50;

enum Failure {
    Final(FsError),
    /// What was decided about is not there any more; another look decides anew.
    Changed(FsError),
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::Final(error)
    }
}

impl Fence {
    /// Writes a file whole, making missing directories above it.
    ///
    /// A link at the end is followed and stays. Content is on the disk before the file has it, and a reader sees the old
    /// or the new. Owner, mode, access list and attributes stay as far as possible. New files get the mode that the
    /// umask (and a default access list of the directory) leaves of 0666.
    ///
    /// # Errors
    ///
    /// `FS_SANDBOX_DENIED` by policy; `FS_NOT_REGULAR_FILE`; `FS_NOT_OBSERVED` and `FS_STALE_VERSION` by intent;
    /// `FS_PERMISSION_DENIED` also for a file that may not be written, although it could be replaced; `FS_ABORTED`;
    /// `FS_IO_ERROR`. The target is untouched in every case.
    pub fn write(&self, path: &Path, content: &[u8], intent: &Intent, abort: &Abort) -> Result<Written, FsError> {
        self.change(Verb { word: "write", wants_text: true }, path, intent, abort, |_, _| Ok((content.to_vec(), 0)))
    }

    /// Replaces literal text in a file; every byte outside of what really differs stays.
    ///
    /// CRLF and LF are one in search and file; a replacement takes the line ends of what it replaces, or of the lines
    /// around.
    ///
    /// # Errors
    ///
    /// As for [`Fence::write`]; `FS_NOT_FOUND` for a missing file; `FS_NOT_TEXT`, `FS_TOO_LARGE`, `FS_EDIT_NOT_FOUND`, `FS_AMBIGUOUS_EDIT`.
    pub fn edit(
        &self,
        path: &Path,
        replacement: &Replacement<'_>,
        intent: &Intent,
        abort: &Abort,
    ) -> Result<Written, FsError> {
        let limit = self.options.limits.whole;
        self.change(Verb { word: "edit", wants_text: true }, path, intent, abort, |absolute, existing| {
            let Some(existing) = existing else { return Err(FsError::host("edit", absolute, Errno::NOENT)) };
            let file = existing.file.as_ref().ok_or_else(|| FsError::host("edit", absolute, Errno::ACCESS))?;
            let bytes = read::all(file, "edit", absolute, limit)?;
            edit::apply(&bytes, replacement, absolute)
        })
    }

    fn change(
        &self,
        verb: Verb,
        path: &Path,
        intent: &Intent,
        abort: &Abort,
        mut content: impl FnMut(&Path, Option<&Existing>) -> Result<(Vec<u8>, usize), FsError>,
    ) -> Result<Written, FsError> {
        let absolute = self.absolute(path)?;
        abort.check(verb.word, &absolute)?;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.attempt(verb, &absolute, intent, abort, &mut content) {
                Ok(written) => return Ok(written),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Changed(error)) if tries >= MOST_TRIES => return Err(error),
                Err(Failure::Changed(_)) => {}
            }
        }
    }

    fn attempt(
        &self,
        verb: Verb,
        path: &Path,
        intent: &Intent,
        abort: &Abort,
        content: &mut impl FnMut(&Path, Option<&Existing>) -> Result<(Vec<u8>, usize), FsError>,
    ) -> Result<Written, Failure> {
        let word = verb.word;
        let host = |errno: Errno| Failure::Final(FsError::host(word, path, errno));
        let moved = |errno: Errno| match errno {
            // RACE: a directory on the way became something else, or is gone.
            Errno::LOOP | Errno::NOTDIR | Errno::NOENT => Failure::Changed(FsError::host(word, path, errno)),
            errno => Failure::Final(FsError::host(word, path, errno)),
        };
        let (place, _turn) = self.claim(word, path)?;
        let existing = match (&place.stat, place.kind()) {
            (Some(stat), Some(FileType::RegularFile)) => {
                Some(Existing { stat: *stat, file: open_existing(&place, stat).map_err(moved)? })
            }
            (None, _) => None,
            _ => return Err(not_regular(word, path).into()),
        };
        self.check_intent(word, path, intent, &place, existing.as_ref())?;
        let (bytes, replaced) = content(path, existing.as_ref())?;
        if existing.is_some() {
            may_write(&place).map_err(host)?;
        }
        let before = match &existing {
            Some(existing) if verb.wants_text => self.text_before(existing, bytes.len() as u64),
            _ => None,
        };
        abort.check(word, path)?;
        let durability = self.options.durability;
        let (dir, mut parents) = Parents::make(&place, durability).map_err(moved)?;
        if place.missing.is_empty() {
            self.swept.sweep(&dir, place.directory_identity().map_err(host)?);
        }
        let mode = if existing.is_some() { 0o600 } else { 0o666 };
        let mut staged = Staged::new(&dir, mode, bytes.len() as u64).map_err(moved)?;
        let old = existing.as_ref().and_then(|existing| existing.file.as_ref());
        // Before there is content: of some flags it is too late then.
        let mut lost = old.map_or_else(Vec::new, |old| metadata::carry_flags(old, &staged.file));
        staged.fill(&bytes).map_err(host)?;
        if let Some(existing) = &existing {
            lost.extend(metadata::carry(old, &existing.stat, &staged.file).map_err(host)?);
        }
        if durability == Durability::Synced {
            rustix::fs::fsync(&staged.file).map_err(host)?;
        }
        abort.check(word, path)?;
        match intent {
            Intent::CreateIfAbsent => staged.publish(&place.name, false).map_err(|errno| match errno {
                Errno::NOENT => moved(errno),
                errno => staging::occupied(word, path, &dir, &place.name, errno).into(),
            })?,
            Intent::ReplaceIf { .. } => {
                self.still(word, path, &dir, &place, existing.as_ref())?;
                staged.publish(&place.name, true).map_err(moved)?;
            }
            Intent::Any => staged.publish(&place.name, true).map_err(moved)?,
        }
        parents.keep = true;
        let durable = staging::synchronise(&dir, durability);
        let stat = rustix::fs::fstat(&staged.file).map_err(host)?;
        let small = (bytes.len() as u64) < self.options.limits.diff;
        let text = if verb.wants_text && small { std::str::from_utf8(&bytes).ok() } else { None };
        let after = text.map(|text| lf(text.to_owned()));
        let change = if existing.is_some() { Change::Update } else { Change::Create };
        let (target, version) = (Target::new(&place.path, path), Version::of(&stat));
        Ok(Written { target, change, version, before, after, lost, durable, replaced, content: bytes })
    }

    /// Decides, waits for the turn, and looks again at what is there.
    fn claim(&self, word: &'static str, path: &Path) -> Result<(Place, Turn<'_>), Failure> {
        let before = self.locks.ended();
        let mut place = self.place(Act::Write, word, path, Last::Followed)?;
        let turn = self.locks.wait(&place.path);
        // What was seen a moment ago counts, unless one of us has changed something since.
        if self.locks.ended() != before {
            place.stat = place.look_again().map_err(|errno| FsError::host(word, path, errno))?;
        }
        if place.kind() == Some(FileType::Symlink) && !place.dangling {
            // RACE: it was no link when it was decided about.
            return Err(Failure::Changed(FsError::host(word, path, Errno::LOOP)));
        }
        Ok((place, turn))
    }

    fn check_intent(
        &self,
        word: &str,
        path: &Path,
        intent: &Intent,
        place: &Place,
        existing: Option<&Existing>,
    ) -> Result<(), FsError> {
        match (intent, existing) {
            (Intent::CreateIfAbsent, None) if place.dangling => {
                let text = format!("cannot {word} {}: a link that leads to nothing is there", quote(path));
                Err(FsError::new(Code::NotRegularFile, text))
            }
            (Intent::Any, _) | (Intent::CreateIfAbsent, None) => Ok(()),
            (Intent::CreateIfAbsent, Some(_)) => {
                let text = format!("cannot {word} {}: it exists and has not been read", quote(path));
                Err(FsError::new(Code::NotObserved, text))
            }
            // W51: nothing was there to be stale.
            (Intent::ReplaceIf { .. }, None) if word == "edit" => Err(FsError::host(word, path, Errno::NOENT)),
            (Intent::ReplaceIf { .. }, None) => {
                let text = format!("cannot {word} {}: it was removed since it was read", quote(path));
                Err(FsError::new(Code::StaleVersion, text))
            }
            (Intent::ReplaceIf { version, content }, Some(existing)) => {
                let same = |hash: &ContentHash| self.has_content(existing, hash);
                if *version == Version::of(&existing.stat) || content.as_ref().is_some_and(same) {
                    return Ok(());
                }
                Err(stale(word, path))
            }
        }
    }

    fn has_content(&self, existing: &Existing, hash: &ContentHash) -> bool {
        let Some(file) = &existing.file else { return false };
        let bytes = read::all(file, "read", Path::new(""), self.options.limits.whole);
        bytes.is_ok_and(|bytes| ContentHash::of(&bytes) == *hash)
    }

    /// RACE: between this look and the rename another process may still change the file; none of ours can.
    fn still(
        &self,
        word: &str,
        path: &Path,
        dir: &OwnedFd,
        place: &Place,
        existing: Option<&Existing>,
    ) -> Result<(), FsError> {
        let now = rustix::fs::statat(dir, &place.name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Version::of(&stat));
        match (now, existing) {
            (Ok(now), Some(existing)) if now == Version::of(&existing.stat) => Ok(()),
            _ => Err(stale(word, path)),
        }
    }

    fn text_before(&self, existing: &Existing, new: u64) -> Option<String> {
        let limit = self.options.limits.diff;
        let size = u64::try_from(existing.stat.st_size).unwrap_or(u64::MAX);
        if size >= limit || new >= limit {
            return None;
        }
        let bytes = read::all(existing.file.as_ref()?, "read", Path::new(""), limit).ok()?;
        if bytes.contains(&0) { None } else { String::from_utf8(bytes).ok().map(lf) }
    }
}

#[derive(Clone, Copy)]
struct Verb {
    word: &'static str,
    wants_text: bool,
}

fn lf(text: String) -> String {
    if text.contains("\r\n") { text.replace("\r\n", "\n") } else { text }
}

fn stale(word: &str, path: &Path) -> FsError {
    FsError::new(Code::StaleVersion, format!("cannot {word} {}: it changed since it was read", quote(path)))
}

pub(crate) fn not_regular(word: &str, path: &Path) -> FsError {
    FsError::new(Code::NotRegularFile, format!("cannot {word} {}: it is not a regular file", quote(path)))
}

/// Opens a regular file for reading, without waiting for anybody; `None` if it cannot be read.
///
/// # Errors
///
/// `ELOOP` if it is another file by now.
fn open_existing(place: &Place, stat: &Stat) -> rustix::io::Result<Option<OwnedFd>> {
    match read::open(&place.dir, &place.name) {
        Ok(file) => {
            let now = rustix::fs::fstat(&file)?;
            if (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino) { Ok(Some(file)) } else { Err(Errno::LOOP) }
        }
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A file that may not be written is not replaced either, although its directory would allow it: as a shell does.
pub(crate) fn may_write(place: &Place) -> rustix::io::Result<()> {
    let flags = AtFlags::EACCESS | AtFlags::SYMLINK_NOFOLLOW;
    match rustix::fs::accessat(&*place.dir, &place.name, Access::WRITE_OK, flags) {
        // SINCE(5.8): faccessat2(2).
        Err(Errno::NOSYS) => {
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::openat(&*place.dir, &place.name, flags, Mode::empty()).map(drop)
        }
        other => other,
    }
}
