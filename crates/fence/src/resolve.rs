//! From a path to a directory's descriptor and one name in it.
//!
//! The walk opens one directory after the other, each by one name in the one before, never through a link; it reads
//! links itself and goes on from where they point, and `..` goes back to a directory it came through. So whatever
//! changes meanwhile, a descriptor stands for a directory that was reached step by step, and whether a pinned root was
//! among the steps is known by identity. Where nothing on the way is a link, `openat2` does all steps in one call; its
//! answer is taken only if it is the one that the walk would give, and anything else falls back to the walk.
//!
//! References: openat2(2) (`RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS`, `RESOLVE_NO_MAGICLINKS`), path_resolution(7),
//! symlink(7), proc_pid_fd(5) for links that are no paths.

use crate::error::{Denied, FsError, on};
use crate::roots::{DIRECTORY, Pinned};
use pinfold_policy::quote::quote;
use pinfold_policy::{ConfinedMode, FileErrorCode as Code};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// How directories are reached; both ways give the same answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolver {
    /// In one call where nothing on the way is a link, step by step elsewhere.
    Openat2,
    /// Step by step.
    Walk,
}

impl Resolver {
    /// Returns what this kernel offers: `openat2` is there since Linux 5.6, and a filter of a container may refuse it.
    pub fn detect() -> Self {
        let flags = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(rustix::fs::CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), flags) {
            Ok(_) => Self::Openat2,
            Err(_) => Self::Walk,
        }
    }
}

/// Whether a link at the end of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Followed,
    Kept,
}

/// A name in a directory.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The directory that holds the name, or the first of the missing directories.
    pub(crate) dir: Arc<OwnedFd>,
    /// Directories that would have to be made first.
    pub(crate) missing: Vec<OsString>,
    pub(crate) name: OsString,
    /// The physical path.
    pub(crate) path: PathBuf,
    /// The innermost pinned directory on the way, or the place itself.
    pub(crate) root: Option<usize>,
    /// What is there, links not followed.
    pub(crate) stat: Option<Stat>,
    /// The directory itself, if the walk went into it or it is pinned.
    pub(crate) object: Option<Arc<OwnedFd>>,
    /// Whether the place is where a link leads that leads nowhere.
    pub(crate) dangling: bool,
    /// The identity of `dir`, where it is known without another look.
    pub(crate) dir_is: Option<Identity>,
    /// The outermost watched directory on the way.
    pub(crate) watched: Option<Identity>,
}

/// Device and inode.
pub(crate) type Identity = (u64, u64);

pub(crate) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

impl Place {
    /// A place that is known to be a name in a directory, with nothing missing.
    pub(crate) fn in_directory(dir: &Arc<OwnedFd>, name: &OsStr, path: PathBuf, stat: Stat) -> Self {
        Self {
            dir: Arc::clone(dir),
            missing: Vec::new(),
            name: name.to_owned(),
            path,
            root: None,
            stat: Some(stat),
            object: None,
            dangling: false,
            dir_is: None,
            watched: None,
        }
    }

    /// The identity of the directory.
    pub(crate) fn directory_identity(&self) -> rustix::io::Result<Identity> {
        match self.dir_is {
            Some(is) => Ok(is),
            None => rustix::fs::fstat(&*self.dir).map(|stat| identity(&stat)),
        }
    }

    /// Looks again at what is there, links not followed.
    pub(crate) fn look_again(&self) -> rustix::io::Result<Option<Stat>> {
        if !self.missing.is_empty() {
            return Ok(None);
        }
        match rustix::fs::statat(&*self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    pub(crate) fn kind(&self) -> Option<FileType> {
        self.stat.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode))
    }

    /// Opens the directory at the place.
    pub(crate) fn open_directory(&self) -> rustix::io::Result<Arc<OwnedFd>> {
        match &self.object {
            Some(object) => Ok(Arc::clone(object)),
            None => rustix::fs::openat(&*self.dir, &self.name, DIRECTORY, Mode::empty()).map(Arc::new),
        }
    }
}

/// Links that are followed on one path, as the kernel counts them (path_resolution(7)).
const MOST_LINKS: u32 = 40;

/// So many directories are walked through: each holds a descriptor, of which a process has some thousand.
const MOST_LEVELS: usize = 512;

/// How often a directory that changes under the walk is looked at again.
const MOST_CHANGES: u32 = 200;

/// Everything that paths are resolved against.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub(crate) mode: ConfinedMode,
    pub(crate) resolver: Resolver,
    pub(crate) top: Arc<OwnedFd>,
    /// Roots, and places where another directory is seen than the host's; parents first.
    pub(crate) pinned: Vec<Mount>,
    /// Denied directories: by whatever name a walk comes through one, it is said.
    pub(crate) watched: Vec<Identity>,
}

/// A pinned directory and the path at which it is seen.
#[derive(Debug, Clone)]
pub(crate) struct Mount {
    pub(crate) at: PathBuf,
    pub(crate) directory: Pinned,
    /// Whether it covers what the host has at that path.
    pub(crate) covers: bool,
    /// Whether what lies in it may be changed.
    pub(crate) writable: bool,
}

/// One directory of the walk.
#[derive(Clone)]
struct Level {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    root: Option<usize>,
    is: Option<Identity>,
    watched: Option<Identity>,
}

impl Tree {
    /// Finds the place of an absolute path.
    ///
    /// `any_root` says that a place outside of every pinned directory is looked for as well in one call: right for
    /// reading, where only the path counts, and not for changing, where a pinned directory may be met under another name.
    pub(crate) fn find(&self, verb: &'static str, path: &Path, last: Last, any_root: bool) -> Result<Place, FsError> {
        if self.resolver == Resolver::Openat2
            && let Some(place) = self.at_once(path, last, any_root)
        {
            return Ok(place);
        }
        self.walk(verb, path, last)
    }

    /// The longest pinned path that a path lies below.
    fn base(&self, path: &Path) -> Option<(usize, &Mount)> {
        self.pinned.iter().enumerate().rev().find(|(_, mount)| path.starts_with(&mount.at))
    }

    fn is_covered(&self, path: &Path) -> bool {
        self.pinned.iter().any(|mount| mount.covers && path.starts_with(&mount.at))
    }

    fn at_once(&self, path: &Path, last: Last, any_root: bool) -> Option<Place> {
        let is_normal = is_normal(path);
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::RootDir);
        if !is_normal && !path.components().all(plain) {
            return None;
        }
        let (root, base, above) = match self.base(path) {
            // SECURITY: a root that was moved away is no longer what its name stands for; the walk finds out what is.
            Some((_, mount)) if !mount.covers && !mount.directory.is_in_place() => return None,
            Some((index, mount)) => (Some(index), &mount.directory.handle, mount.at.as_path()),
            None if any_root => (None, &self.top, Path::new("/")),
            None => return None,
        };
        let below = path.strip_prefix(above).ok()?;
        let (name, parent) = (below.file_name()?, below.parent()?);
        let (dir, is) = if parent.as_os_str().is_empty() {
            (Arc::clone(base), root.map(|index| self.pinned[index].directory.identity()))
        } else {
            let flags = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
            let dir = rustix::fs::openat2(base, parent, DIRECTORY, Mode::empty(), flags).ok()?;
            let is = identity(&rustix::fs::fstat(&dir).ok()?);
            // SECURITY: only the walk sees each directory: a denied one may have another name, by a mount or on a file
            // system that folds case.
            if self.watched.iter().any(|watched| watched.0 == is.0) {
                return None;
            }
            (Arc::new(dir), Some(is))
        };
        let stat = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(_) => return None,
        };
        let kind = stat.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode));
        if kind == Some(FileType::Symlink) && last == Last::Followed {
            return None;
        }
        Some(Place {
            dir,
            missing: Vec::new(),
            name: name.to_owned(),
            path: if is_normal { path.to_owned() } else { path.components().collect() },
            root,
            stat,
            object: None,
            dangling: false,
            dir_is: is,
            watched: None,
        })
    }

    fn walk(&self, verb: &'static str, path: &Path, last: Last) -> Result<Place, FsError> {
        let mut levels = vec![self.top_level()];
        let mut todo: VecDeque<OsString> = parts(path);
        let (mut links, mut changes, mut final_link) = (0, 0, false);
        while let Some(part) = todo.pop_front() {
            let Some(here) = levels.last().cloned() else { break };
            if part == ".." {
                if levels.len() > 1 {
                    levels.pop();
                }
                continue;
            }
            let is_last = todo.is_empty();
            if levels.len() > MOST_LEVELS {
                let why = format!("it goes through more than {MOST_LEVELS} directories");
                return Err(FsError::new(Code::IoError, format!("cannot {verb} {}: {why}", quote(path))));
            }
            let stat = match rustix::fs::statat(&*here.fd, &part, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => {
                    todo.push_front(part);
                    return absent(verb, path, here, todo, final_link);
                }
                Err(errno) => return Err(FsError::host(verb, path, errno)),
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink if !is_last || last == Last::Followed => {
                    if on_procfs(&here.fd) {
                        return Err(self.kernel_link(verb, path, here.path.join(&part)));
                    }
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(FsError::host(verb, path, Errno::LOOP));
                    }
                    match rustix::fs::readlinkat(&*here.fd, &part, Vec::new()) {
                        Ok(target) => {
                            final_link |= is_last;
                            let target = Path::new(OsStr::from_bytes(target.as_bytes())).to_owned();
                            if target.is_absolute() {
                                levels.truncate(1);
                            }
                            parts(&target).into_iter().rev().for_each(|part| todo.push_front(part));
                        }
                        // RACE: it was a link a moment ago; what is there now is looked at anew.
                        Err(Errno::INVAL | Errno::NOENT) => again(&mut changes, &mut todo, part, verb, path)?,
                        Err(errno) => return Err(FsError::host(verb, path, errno)),
                    }
                }
                FileType::Directory => match self.enter(&here, &part) {
                    Ok(level) if !is_last => levels.push(level),
                    Ok(level) => {
                        levels.push(level);
                        break;
                    }
                    // RACE: it was a directory a moment ago.
                    Err(Errno::LOOP | Errno::NOTDIR | Errno::NOENT) => {
                        again(&mut changes, &mut todo, part, verb, path)?;
                    }
                    Err(errno) => return Err(FsError::host(verb, path, errno)),
                },
                _ if !is_last => {
                    let why = format!("the parent segment {} is not a directory", quote(here.path.join(&part)));
                    return Err(FsError::new(Code::NotFound, format!("cannot {verb} {}: {why}", quote(path))));
                }
                _ => {
                    let physical = here.path.join(&part);
                    let mut place = Place::in_directory(&here.fd, &part, physical, stat);
                    (place.root, place.dir_is, place.watched) = (here.root, here.is, here.watched);
                    return Ok(place);
                }
            }
        }
        Self::directory(levels).map_err(on(verb, path))
    }

    /// SECURITY: such a link stands for an object of a process (a descriptor, a root directory) and not for a path;
    /// followed, it would lead anywhere. Which of them are harmless is the kernel's secret, so none is followed.
    fn kernel_link(&self, verb: &'static str, path: &Path, resolved: PathBuf) -> FsError {
        let rule = "a link of the kernel in it stands for something of this process, not for a path".to_owned();
        FsError::denied(path, Denied { mode: self.mode, verb, resolved, rule })
    }

    /// The place of the directory that the walk ended in.
    fn directory(mut levels: Vec<Level>) -> rustix::io::Result<Place> {
        let end = levels.pop().ok_or(Errno::NOENT)?;
        let stat = Some(rustix::fs::fstat(&*end.fd)?);
        let name = end.path.file_name().map_or_else(|| ".".into(), OsStr::to_owned);
        let (dir, dir_is) = levels.pop().map_or_else(|| (Arc::clone(&end.fd), None), |above| (above.fd, above.is));
        Ok(Place {
            dir,
            missing: Vec::new(),
            name,
            path: end.path,
            root: end.root,
            stat,
            object: Some(end.fd),
            dangling: false,
            dir_is,
            watched: end.watched,
        })
    }

    fn top_level(&self) -> Level {
        Level { fd: Arc::clone(&self.top), path: "/".into(), root: None, is: None, watched: None }
    }

    /// Opens a directory by its name in another, or what is seen there instead.
    fn enter(&self, here: &Level, part: &OsStr) -> rustix::io::Result<Level> {
        let path = here.path.join(part);
        let instead = self
            .pinned
            .iter()
            .enumerate()
            .find(|(_, mount)| mount.at == path && (mount.covers || self.is_covered(&path)));
        if let Some((index, mount)) = instead {
            let is = Some(mount.directory.identity());
            return Ok(Level { fd: Arc::clone(&mount.directory.handle), path, root: Some(index), is, watched: None });
        }
        let fd = rustix::fs::openat(&*here.fd, part, DIRECTORY, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        // By identity: the same directory may have another name (a mount of it).
        let known = self.pinned.iter().position(|mount| !mount.covers && mount.directory.is(&stat));
        let is = identity(&stat);
        let watched = here.watched.or_else(|| self.watched.contains(&is).then_some(is));
        Ok(Level { fd: Arc::new(fd), path, root: known.or(here.root), is: Some(is), watched })
    }
}

/// Counts a change and puts a name back to be looked at again.
fn again(
    changes: &mut u32,
    todo: &mut VecDeque<OsString>,
    part: OsString,
    verb: &str,
    path: &Path,
) -> Result<(), FsError> {
    *changes += 1;
    if *changes > MOST_CHANGES {
        let why = "a directory on the way keeps changing";
        return Err(FsError::new(Code::IoError, format!("cannot {verb} {}: {why}", quote(path))));
    }
    todo.push_front(part);
    Ok(())
}

/// The place of something that does not exist: every name from here on.
fn absent(verb: &str, path: &Path, here: Level, todo: VecDeque<OsString>, dangling: bool) -> Result<Place, FsError> {
    if todo.iter().any(|part| part == "..") {
        return Err(FsError::host(verb, path, Errno::NOENT));
    }
    let mut missing: Vec<OsString> = todo.into();
    let physical = missing.iter().fold(here.path, |path, part| path.join(part));
    let name = missing.pop().unwrap_or_else(|| ".".into());
    Ok(Place {
        dir: here.fd,
        missing,
        name,
        path: physical,
        root: here.root,
        stat: None,
        object: None,
        dangling,
        dir_is: here.is,
        watched: here.watched,
    })
}

/// Whether an absolute path is spelled in the one way: no part is empty, `.` or `..`.
fn is_normal(path: &Path) -> bool {
    let mut parts = path.as_os_str().as_bytes().split(|byte| *byte == b'/');
    !path.as_os_str().is_empty()
        && parts.next().is_some_and(<[u8]>::is_empty)
        && parts.all(|part| !matches!(part, b"" | b"." | b".."))
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// The number of procfs, whose links may stand for objects instead of paths (statfs(2)).
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// File systems that show the kernel and are no place for files (statfs(2), linux/magic.h).
const OF_THE_KERNEL: [u64; 16] = [
    PROC_SUPER_MAGIC,
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
    0xf97c_ff8c, // selinuxfs
    0x6265_6570, // configfs
    0xde5e_81e4, // efivarfs
    0x6573_5543, // fusectl
    0x6165_676c, // pstore
    0x4249_4e4d, // binfmt_misc
    0x1980_0202, // mqueue
    0x6e73_6673, // nsfs
];

fn file_system(fd: impl AsFd) -> u64 {
    #[allow(clippy::unnecessary_cast)] // the type of the field depends on the architecture
    rustix::fs::fstatfs(fd).map_or(PROC_SUPER_MAGIC, |found| found.f_type as u64 & 0xffff_ffff)
}

pub(crate) fn on_procfs(fd: impl AsFd) -> bool {
    file_system(fd) == PROC_SUPER_MAGIC
}

pub(crate) fn on_kernel_file_system(fd: impl AsFd) -> bool {
    OF_THE_KERNEL.contains(&file_system(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_normal_spelling() {
        assert!(is_normal(Path::new("/a/b.c/..d")));
        for other in ["", "/", "a", "/a/", "//a", "/a//b", "/./a", "/a/.", "/a/../b", "/.."] {
            assert!(!is_normal(Path::new(other)), "{other}");
        }
    }
}
