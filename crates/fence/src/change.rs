//! Removing, moving and making directories, by the same rules as writing.

use crate::error::{FsError, on};
use crate::fence::Fence;
use crate::resolve::{Identity, Last, Place, identity, on_kernel_file_system};
use crate::roots::DIRECTORY;
use crate::rules::Act;
use crate::staging::{self, Parents};
use crate::target::Target;
use pinfold_policy::FileErrorCode as Code;
use pinfold_policy::protect::Effect;
use pinfold_policy::quote::quote;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Says whether something at the destination may be replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Replace {
    /// Nothing is replaced.
    #[default]
    Never,
    /// A file is.
    Files,
}

/// Tells what a move did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// Where it was.
    pub from: Target,
    /// Where it is.
    pub to: Target,
}

/// So deep a tree is removed or moved; a deeper one is left to a shell.
const DEEPEST: usize = 512;

/// No call on the way of removing gives this one.
const TOO_DEEP: Errno = Errno::OVERFLOW;

impl Fence {
    /// Removes a file, a link (not what it leads to), or an empty directory; with `recursive`, a directory with
    /// everything below it.
    ///
    /// # Errors
    ///
    /// `FS_SANDBOX_DENIED` by policy, also for a directory that holds another root or a denied path; `FS_NOT_FOUND`;
    /// `FS_IO_ERROR` for a directory that is not empty, or deeper than 512 levels; host errors. Removing a tree may stop
    /// half way.
    pub fn remove(&self, path: &Path, recursive: bool) -> Result<Target, FsError> {
        let absolute = self.absolute(path)?;
        let host = on("remove", &absolute);
        let place = self.place(Act::Remove, "remove", &absolute, Last::Kept)?;
        let _turn = self.locks.wait(&place.path);
        match place.kind() {
            None => return Err(host(Errno::NOENT)),
            Some(FileType::Directory) if recursive => {
                self.check_below("remove", &absolute, &place, None)?;
                remove_tree(&place.dir, &place.name, DEEPEST).map_err(|errno| match errno {
                    TOO_DEEP => {
                        let why = format!("it is deeper than {DEEPEST} directories; what lies deeper is still there");
                        FsError::new(Code::IoError, format!("cannot remove {}: {why}", quote(&absolute)))
                    }
                    errno => host(errno),
                })?;
            }
            Some(FileType::Directory) => {
                rustix::fs::unlinkat(&*place.dir, &place.name, AtFlags::REMOVEDIR).map_err(&host)?;
            }
            Some(_) => rustix::fs::unlinkat(&*place.dir, &place.name, AtFlags::empty()).map_err(&host)?,
        }
        staging::synchronise(&place.dir, self.options.durability);
        Ok(Target::new(&place.path, &absolute))
    }

    /// Moves a file, link or directory within one file system, at once. Missing directories above the destination are
    /// made.
    ///
    /// # Errors
    ///
    /// `FS_SANDBOX_DENIED` by policy on either side; `FS_NOT_FOUND`; `FS_NOT_OBSERVED` or `FS_NOT_REGULAR_FILE` for
    /// something at the destination that is not to be replaced; `FS_IO_ERROR` between file systems; host errors.
    pub fn rename(&self, from: &Path, to: &Path, replace: Replace) -> Result<Moved, FsError> {
        let (source, destination) = (self.absolute(from)?, self.absolute(to)?);
        let old = self.place(Act::Rename, "move", &source, Last::Kept)?;
        let new = self.place(Act::Rename, "move to", &destination, Last::Kept)?;
        let Some(kind) = old.kind() else { return Err(on("move", &source)(Errno::NOENT)) };
        // Always in the same order, so that two moves cannot wait for each other.
        let (first, second) = if old.path <= new.path { (&old.path, &new.path) } else { (&new.path, &old.path) };
        let _first = self.locks.wait(first);
        let _second = (first != second).then(|| self.locks.wait(second));
        if new.path.starts_with(&old.path) && new.path != old.path {
            let text = format!("cannot move {} into itself", quote(&source));
            return Err(FsError::new(Code::IoError, text));
        }
        if kind == FileType::Symlink {
            self.check_name("move to", &destination, &new.path, Effect::CreateLink)?;
        }
        if kind == FileType::Directory {
            self.check_below("move", &source, &old, Some(&new.path))?;
        }
        let durability = self.options.durability;
        let (dir, mut parents) = Parents::make(&new, durability).map_err(on("move to", &destination))?;
        let taken = |errno| staging::occupied("move to", &destination, &dir, &new.name, errno);
        match replace {
            Replace::Never => {
                let flags = RenameFlags::NOREPLACE;
                match rustix::fs::renameat_with(&*old.dir, &old.name, &*dir, &new.name, flags) {
                    Err(Errno::INVAL | Errno::NOSYS) if kind != FileType::Directory => {
                        rustix::fs::linkat(&*old.dir, &old.name, &*dir, &new.name, AtFlags::empty()).map_err(taken)?;
                        rustix::fs::unlinkat(&*old.dir, &old.name, AtFlags::empty()).map_err(on("move", &source))?;
                    }
                    other => other.map_err(taken)?,
                }
            }
            Replace::Files => {
                rustix::fs::renameat(&*old.dir, &old.name, &*dir, &new.name).map_err(on("move to", &destination))?;
            }
        }
        parents.keep = true;
        staging::synchronise(&dir, durability);
        staging::synchronise(&old.dir, durability);
        Ok(Moved { from: Target::new(&old.path, &source), to: Target::new(&new.path, &destination) })
    }

    /// Makes a directory, and with `parents` those above it that are missing; with `parents`, one that exists is fine.
    ///
    /// # Errors
    ///
    /// `FS_SANDBOX_DENIED` by policy; `FS_NOT_FOUND` for a missing directory above; `FS_NOT_DIRECTORY` for something
    /// else there; `FS_IO_ERROR` if it exists; host errors.
    pub fn create_directory(&self, path: &Path, parents: bool) -> Result<Target, FsError> {
        let absolute = self.absolute(path)?;
        let place = self.place(Act::Create, "make", &absolute, Last::Followed)?;
        let _turn = self.locks.wait(&place.path);
        let host = on("make", &absolute);
        match place.kind() {
            Some(FileType::Directory) if parents => return Ok(Target::new(&place.path, &absolute)),
            Some(FileType::Directory) => return Err(host(Errno::EXIST)),
            Some(_) => {
                let text = format!("cannot make {}: something else than a directory is there", quote(&absolute));
                return Err(FsError::new(Code::NotDirectory, text));
            }
            None if !parents && !place.missing.is_empty() => return Err(host(Errno::NOENT)),
            None => {}
        }
        let (dir, mut made) = Parents::make(&place, self.options.durability).map_err(&host)?;
        match rustix::fs::mkdirat(&*dir, &place.name, Mode::from_raw_mode(0o777)) {
            // RACE: somebody else made it; it must be a directory.
            Err(Errno::EXIST) if parents => {
                rustix::fs::openat(&*dir, &place.name, DIRECTORY, Mode::empty()).map_err(&host)?;
            }
            other => other.map_err(&host)?,
        }
        made.keep = true;
        staging::synchronise(&dir, self.options.durability);
        Ok(Target::new(&place.path, &absolute))
    }

    fn check_name(&self, verb: &'static str, path: &Path, name: &Path, effect: Effect) -> Result<(), FsError> {
        match self.rules().and_then(|rules| Some((rules, rules.protects(name, effect, None)?))) {
            Some((rules, rule)) => Err(rules.refuse_protected(verb, path, name, rule)),
            None => Ok(()),
        }
    }

    /// Decides about everything below a directory that is removed, moved or copied: each protected name and each denied
    /// path would go with it, and where it comes to lie, others may become protected.
    ///
    /// RACE: what a confined job adds meanwhile is its own doing, and the job could not have made a protected name, nor
    /// moved a denied path.
    pub(crate) fn check_below(
        &self,
        verb: &'static str,
        path: &Path,
        place: &Place,
        to: Option<&Path>,
    ) -> Result<(), FsError> {
        let Some(rules) = self.rules().filter(|rules| rules.concern_contents()) else { return Ok(()) };
        let mut refused = None;
        let whole = tree(&place.dir, &place.name, Path::new(""), DEEPEST, &mut |below, is| {
            let from = place.path.join(below);
            if let Some(closed) = rules.closes_identity(&from, Some(is)) {
                refused = Some(rules.refuse_closed(verb, path, &from, &closed));
                return false;
            }
            let mut found = rules.protects(&from, Effect::Alter, None).map(|rule| (from, rule));
            if let (None, Some(to)) = (&found, to) {
                let there = to.join(below);
                let rule = rules.protects(&there, Effect::Create, Some((&place.path, to)));
                found = rule.map(|rule| (there, rule));
            }
            refused = found.map(|(name, rule)| rules.refuse_protected(verb, path, &name, rule));
            refused.is_none()
        });
        if let Some(refused) = refused {
            return Err(refused);
        }
        match whole {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = format!("cannot {verb} {}: it is deeper than {DEEPEST} directories", quote(path));
                Err(FsError::new(Code::IoError, text))
            }
            Err(errno) => Err(FsError::host(verb, path, errno)),
        }
    }

    /// Decides about a name below a directory, as if its path had been given.
    pub(crate) fn may_read(&self, place: &Place) -> bool {
        self.decide_place(Act::Read, "read", place).is_ok()
    }
}

/// Tells every name below a directory and what it stands for, until one is answered with no; says whether all were told.
pub(crate) fn tree(
    dir: &OwnedFd,
    name: &OsStr,
    below: &Path,
    depth: usize,
    tell: &mut dyn FnMut(&Path, Identity) -> bool,
) -> rustix::io::Result<bool> {
    if depth == 0 {
        return Ok(false);
    }
    let here = enter(dir, name)?;
    let device = rustix::fs::fstat(&here)?.st_dev;
    let mut directories = Vec::new();
    for entry in rustix::fs::Dir::read_from(&here)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let path = below.join(name);
        let listed = (device, entry.ino());
        if !tell(&path, listed) {
            return Ok(false);
        }
        if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            directories.push((name.to_owned(), path, listed));
        }
    }
    for (name, path, listed) in directories {
        let inner = match enter(&here, &name) {
            Ok(inner) => rustix::fs::fstat(&inner)?,
            // No directory, or gone.
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        };
        // What is mounted on a directory shows only once that is entered.
        if identity(&inner) != listed && !tell(&path, identity(&inner)) {
            return Ok(false);
        }
        match tree(&here, &name, &path, depth - 1, tell) {
            Ok(true) | Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {}
            other => return other,
        }
    }
    Ok(true)
}

/// Opens a directory for reading its names, never through a link.
pub(crate) fn enter(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// The names in an open directory, and what they are as far as the file system says so.
pub(crate) fn names_in(here: &OwnedFd) -> rustix::io::Result<Vec<(OsString, FileType)>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(here)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push((name.to_owned(), entry.file_type()));
        }
    }
    Ok(names)
}

/// Removes a directory with everything in it, never through a link: each level is reached by a name in the one before.
fn remove_tree(dir: &OwnedFd, name: &OsStr, depth: usize) -> rustix::io::Result<()> {
    if depth == 0 {
        return Err(TOO_DEEP);
    }
    let here = enter(dir, name)?;
    // What shows the kernel is mounted there and no part of the tree: its names are switches.
    if on_kernel_file_system(&here) {
        return Err(Errno::BUSY);
    }
    for (name, kind) in names_in(&here)? {
        let result = match kind {
            FileType::Directory => remove_tree(&here, &name, depth - 1),
            _ => match rustix::fs::unlinkat(&here, &name, AtFlags::empty()) {
                // Some file systems do not say what a name is before it is looked at.
                Err(Errno::ISDIR | Errno::PERM) if kind == FileType::Unknown => remove_tree(&here, &name, depth - 1),
                other => other,
            },
        };
        match result {
            // RACE: gone already.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}
