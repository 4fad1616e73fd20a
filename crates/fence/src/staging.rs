//! How new content takes the place of old: written to a file beside it, then renamed over it. Whoever reads sees the
//! old or the new content whole, at every moment and after every crash.
//!
//! The file beside has a name of fixed length, so that a target may have the longest name there is; it is made with
//! `O_EXCL`, so that nothing is ever overwritten by it; a large one is locked while its writer lives, so that one whose writer
//! was killed is told from one in use, and is removed by the next writer that comes to the directory.
//!
//! References: rename(2) (`RENAME_NOREPLACE`), open(2) (`O_EXCL`), fsync(2), flock(2).

use crate::error::{FsError, on};
use crate::fence::Durability;
use crate::resolve::{Identity, Place};
use crate::roots::DIRECTORY;
use pinfold_policy::FileErrorCode as Code;
use pinfold_policy::quote::quote;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const BEFORE: &str = ".pinfold-";
const BEHIND: &str = ".new";

/// A file without a locked writer is left behind by a dead one if it is older than this; a living writer locks it at once.
const ABANDONED_AFTER_SECONDS: i64 = 60;

/// A file of at most so many bytes is written in no time, and not locked: should its writer be stopped for a minute and the
/// file be taken for abandoned, the writer starts over.
const UNLOCKED: u64 = 64 << 10;

/// So many names of a directory are looked through for such files, and so many of them are looked at.
const MOST_NAMES: usize = 20_000;
const MOST_ABANDONED: usize = 256;

/// A name for the file beside: as long as any other such name, and not taken.
fn name() -> String {
    format!("{BEFORE}{:016x}{BEHIND}", RandomState::new().build_hasher().finish())
}

pub(crate) fn is_staging_name(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let middle = bytes.strip_prefix(BEFORE.as_bytes()).and_then(|rest| rest.strip_suffix(BEHIND.as_bytes()));
    middle.is_some_and(|middle| middle.len() == 16 && middle.iter().all(u8::is_ascii_hexdigit))
}

/// A file beside its target. Removed when dropped, unless it was published.
pub(crate) struct Staged<'a> {
    dir: &'a OwnedFd,
    name: String,
    pub(crate) file: OwnedFd,
    published: bool,
}

impl<'a> Staged<'a> {
    /// Makes the file, for so many bytes. The umask applies, as to any file.
    pub(crate) fn new(dir: &'a OwnedFd, mode: u32, size: u64) -> rustix::io::Result<Self> {
        Self::named(dir, mode, size, name)
    }

    fn named(dir: &'a OwnedFd, mode: u32, size: u64, mut name: impl FnMut() -> String) -> rustix::io::Result<Self> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        loop {
            let name = name();
            match rustix::fs::openat(dir, &name, flags, Mode::from_raw_mode(mode)) {
                Ok(file) => {
                    if size > UNLOCKED {
                        // A file system without locks leaves it to the age of a file whether its writer lives.
                        let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
                    }
                    return Ok(Self { dir, name, file, published: false });
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Writes all of it.
    pub(crate) fn fill(&self, mut content: &[u8]) -> rustix::io::Result<()> {
        while !content.is_empty() {
            match rustix::io::write(&self.file, content) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => content = &content[count..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Puts the file at its place. `over` says whether something may be there.
    pub(crate) fn publish(&mut self, target: &OsStr, over: bool) -> rustix::io::Result<()> {
        if over {
            rustix::fs::renameat(self.dir, &self.name, self.dir, target)?;
            self.published = true;
            return Ok(());
        }
        match rustix::fs::renameat_with(self.dir, &self.name, self.dir, target, RenameFlags::NOREPLACE) {
            // Some file systems do not know the flag (rename(2)); a link never replaces either.
            Err(Errno::INVAL | Errno::NOSYS) => {
                match rustix::fs::linkat(self.dir, &self.name, self.dir, target, AtFlags::empty()) {
                    // Neither does every one know links; the refusal is not one of permissions then.
                    Err(Errno::PERM | Errno::NOSYS | Errno::MLINK) => Err(Errno::OPNOTSUPP),
                    other => other,
                }
            }
            Ok(()) => {
                self.published = true;
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.published {
            // The next writer removes it if this cannot.
            let _ = rustix::fs::unlinkat(self.dir, &self.name, AtFlags::empty());
        }
    }
}

/// Synchronises a directory; `false` if that could not be done, such as in one that cannot be read.
pub(crate) fn synchronise(dir: &OwnedFd, durability: Durability) -> bool {
    if durability == Durability::Unsynced {
        return false;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::empty()).and_then(rustix::fs::fsync).is_ok()
}

/// Directories that were made on the way; removed again if what was to lie in them did not come.
pub(crate) struct Parents {
    made: Vec<(Arc<OwnedFd>, OsString)>,
    pub(crate) keep: bool,
}

impl Parents {
    /// Makes the missing directories of a place, each in the one before, and returns the last one.
    ///
    /// # Errors
    ///
    /// `ELOOP` or `ENOTDIR` if something else than a directory came to be there meanwhile.
    pub(crate) fn make(place: &Place, durability: Durability) -> rustix::io::Result<(Arc<OwnedFd>, Self)> {
        let mut parents = Self { made: Vec::new(), keep: false };
        let mut dir = Arc::clone(&place.dir);
        for name in &place.missing {
            match rustix::fs::mkdirat(&*dir, name, Mode::from_raw_mode(0o777)) {
                Ok(()) => {
                    parents.made.push((Arc::clone(&dir), name.clone()));
                    synchronise(&dir, durability);
                }
                // RACE: somebody made it; whether it is a directory shows now.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            dir = Arc::new(rustix::fs::openat(&*dir, name, DIRECTORY, Mode::empty())?);
        }
        Ok((dir, parents))
    }
}

impl Drop for Parents {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        for (dir, name) in self.made.iter().rev() {
            // One that is in use by now is not empty, and stays.
            let _ = rustix::fs::unlinkat(&**dir, name, AtFlags::REMOVEDIR);
        }
    }
}

/// Directories that were looked through for what dead writers left.
#[derive(Debug, Default)]
pub(crate) struct Swept(Mutex<HashSet<Identity>>);

impl Swept {
    /// Removes what dead writers of this user left in a directory; looks once per directory.
    pub(crate) fn sweep(&self, dir: &OwnedFd, is: Identity) {
        const MOST: usize = 10_000;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        if !known.insert(is) {
            return;
        }
        drop(known);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(listed) = rustix::fs::openat(dir, ".", flags, Mode::empty()).and_then(rustix::fs::Dir::new) else {
            return;
        };
        // A job may fill the directory with such names; what is not looked at now is looked at by the next process.
        let mut left = MOST_ABANDONED;
        for entry in listed.flatten().take(MOST_NAMES) {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if is_staging_name(name) {
                left -= 1;
                if left == 0 {
                    break;
                }
                // Left to the next one if it cannot be done now.
                let _ = remove_abandoned(dir, name);
            }
        }
    }
}

fn remove_abandoned(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let stat: Stat = rustix::fs::fstat(&file)?;
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let age = i64::try_from(now).unwrap_or(0).saturating_sub(stat.st_mtime);
    let ours = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_nlink == 1
        && stat.st_uid == rustix::process::geteuid().as_raw();
    if ours && age > ABANDONED_AFTER_SECONDS {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
    }
    Ok(())
}

/// What a failure to publish means where nothing was to be replaced.
pub(crate) fn occupied(verb: &str, path: &Path, dir: &OwnedFd, name: &OsStr, errno: Errno) -> FsError {
    if errno != Errno::EXIST {
        return on(verb, path)(errno);
    }
    let kind =
        rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode));
    match kind {
        Ok(FileType::RegularFile) => {
            FsError::new(Code::NotObserved, format!("cannot {verb} {}: it exists and has not been read", quote(path)))
        }
        _ => FsError::new(
            Code::NotRegularFile,
            format!("cannot {verb} {}: something else than a regular file is there", quote(path)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U457, U479: what is there is never replaced by a file beside, nor by one that is to be the first.
    #[test]
    fn what_is_there_is_never_clobbered() {
        let folder = tempfile::tempdir().unwrap();
        let dir = rustix::fs::open(folder.path(), DIRECTORY, Mode::empty()).unwrap();
        std::fs::write(folder.path().join("taken"), "theirs").unwrap();
        let mut names = ["taken", "taken", "free"].into_iter();
        let mut staged = Staged::named(&dir, 0o600, 0, || names.next().unwrap().to_owned()).unwrap();
        assert_eq!(staged.name, "free");
        staged.fill(b"ours").unwrap();
        assert_eq!(staged.publish("taken".as_ref(), false), Err(Errno::EXIST));
        let code = |name: &str| occupied("write", Path::new("/x"), &dir, name.as_ref(), Errno::EXIST).code();
        assert_eq!(code("taken"), Code::NotObserved);
        std::fs::create_dir(folder.path().join("directory")).unwrap();
        assert_eq!(code("directory"), Code::NotRegularFile);
        drop(staged);
        assert_eq!(std::fs::read_to_string(folder.path().join("taken")).unwrap(), "theirs");
        assert!(!folder.path().join("free").exists());
    }

    /// U456, W50: the name does not grow with the target's.
    #[test]
    fn staging_names_are_of_one_length_and_recognised() {
        for _ in 0..100 {
            let name = name();
            assert_eq!(name.len(), 29);
            assert!(is_staging_name(name.as_ref()));
        }
        for other in [".pinfold-", ".pinfold-0123456789abcdef", ".pinfold-0123456789abcdeg.new", "x"] {
            assert!(!is_staging_name(other.as_ref()), "{other}");
        }
    }
}
