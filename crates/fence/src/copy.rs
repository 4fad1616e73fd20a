//! Copying a file, or a directory with what lies in it. Each file appears whole or not at all; links are copied as links.

use crate::change::{Replace, enter, names_in};
use crate::error::{FsError, on};
use crate::fence::{Durability, Fence};
use crate::metadata::Lost;
use crate::read;
use crate::resolve::{Last, identity, on_kernel_file_system};
use crate::rules::Act;
use crate::staging::{self, Parents, Staged};
use crate::target::{Target, Version};
use crate::write::{may_write, not_regular};
use pinfold_policy::FileErrorCode as Code;
use pinfold_policy::protect::Effect;
use pinfold_policy::quote::quote;
use rustix::fs::{AtFlags, FileType, Mode, SeekFrom, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Tells what a copy did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The new file.
    pub target: Target,
    /// Its state.
    pub version: Version,
    /// How many bytes it has.
    pub bytes: u64,
    /// What the replaced file had and the new one has not.
    pub lost: Vec<Lost>,
}

/// Tells what the copy of a tree did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedTree {
    /// The new directory, or the new file.
    pub target: Target,
    /// How many files it has, and links.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// What was left out, relative to the source: denied paths, and what is neither file, directory nor link.
    pub left_out: Vec<PathBuf>,
}

/// So deep a tree is copied: each level holds two descriptors.
const DEEPEST: usize = 256;

impl Fence {
    /// Copies a regular file, with its permission bits. The destination appears whole or not at all. Holes stay holes;
    /// what is appended to the source meanwhile is not copied.
    ///
    /// # Errors
    ///
    /// As for reading the one and writing the other; `FS_NOT_OBSERVED` for a file at the destination that is not to be
    /// replaced.
    pub fn copy(&self, from: &Path, to: &Path, replace: Replace) -> Result<Copied, FsError> {
        let destination = self.absolute(to)?;
        // The refusal of a change comes first: it needs no look at the source.
        let place = self.place(Act::Write, "copy to", &destination, Last::Followed)?;
        let source = self.open_file(from)?;
        let _turn = self.locks.wait(&place.path);
        let host = on("copy to", &destination);
        let was = match place.look_again().map_err(&host)? {
            None => None,
            Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => Some(stat),
            Some(_) => return Err(not_regular("copy to", &destination)),
        };
        if was.is_some_and(|was| identity(&was) == identity(&source.stat)) {
            let text = format!("cannot copy {} onto itself", quote(&source.path));
            return Err(FsError::new(Code::IoError, text));
        }
        if was.is_some() && replace == Replace::Files {
            may_write(&place).map_err(&host)?;
        }
        let (dir, mut parents) = Parents::make(&place, self.options.durability).map_err(&host)?;
        let mut staged = Staged::new(&dir, source.stat.st_mode & 0o777, u64::MAX).map_err(&host)?;
        let bytes = pour(&source.file, &source.stat, &staged.file, self.options.limits.scan).map_err(&host)?;
        let lost = match was.filter(|_| replace == Replace::Files) {
            Some(was) => crate::metadata::carry(None, &was, &staged.file).map_err(&host)?,
            None => Vec::new(),
        };
        if self.options.durability == Durability::Synced {
            rustix::fs::fsync(&staged.file).map_err(&host)?;
        }
        let over = replace == Replace::Files;
        let taken = |errno| staging::occupied("copy to", &destination, &dir, &place.name, errno);
        staged.publish(&place.name, over).map_err(taken)?;
        parents.keep = true;
        staging::synchronise(&dir, self.options.durability);
        let version = Version::of(&rustix::fs::fstat(&staged.file).map_err(&host)?);
        Ok(Copied { target: Target::new(&place.path, &destination), version, bytes, lost })
    }

    /// Copies a directory with everything in it; anything else as [`Fence::copy`] does.
    ///
    /// Links are copied as links, denied paths and special files are left out and told. Directories and files get the
    /// permission bits of the source that the umask leaves; directories stay open to their owner. With
    /// [`Replace::Files`], a directory that exists takes the copies, and files in it are replaced. A copy may stop half way.
    ///
    /// # Errors
    ///
    /// As for [`Fence::copy`]; `FS_SANDBOX_DENIED` before anything is copied for a name that is protected where it would
    /// come to lie; `FS_IO_ERROR` for a directory that is copied into itself, or deeper than 256 levels.
    pub fn copy_tree(&self, from: &Path, to: &Path, replace: Replace) -> Result<CopiedTree, FsError> {
        let (source, destination) = (self.absolute(from)?, self.absolute(to)?);
        if self.stat(from)?.is_none_or(|look| look.kind != crate::Kind::Directory) {
            let Copied { target, bytes, .. } = self.copy(from, to, replace)?;
            return Ok(CopiedTree { target, files: 1, bytes, left_out: Vec::new() });
        }
        let new = self.place(Act::Write, "copy to", &destination, Last::Followed)?;
        let old = self.open_directory("copy", &source)?;
        let error = |why: &str| FsError::new(Code::IoError, format!("cannot copy {}: {why}", quote(&source)));
        if new.path.starts_with(&old.place.path) {
            return Err(error("it would be copied into itself"));
        }
        if self.confined_mode().is_some() && on_kernel_file_system(&*old.handle) {
            return Err(error("it lies on a file system that shows the kernel"));
        }
        match new.kind() {
            None => {}
            Some(FileType::Directory) if replace == Replace::Files => {}
            Some(FileType::Directory) => return Err(on("copy to", &destination)(Errno::EXIST)),
            Some(_) => return Err(no_directory("copy to", &destination)),
        }
        self.check_copies(&source, &old.handle, &old.place.path, &new.path)?;
        let host = on("copy to", &destination);
        let _turn = self.locks.wait(&new.path);
        let (dir, mut parents) = Parents::make(&new, self.options.durability).map_err(&host)?;
        let was = rustix::fs::fstat(&*old.handle).map_err(on("copy", &source))?;
        let into = open_or_make(&dir, &new.name, was.st_mode, replace).map_err(&host)?;
        parents.keep = true;
        let mut copying = Copying {
            fence: self,
            replace,
            from: (&source, &old.place.path),
            to: (&destination, &new.path),
            done: CopiedTree { target: Target::new(&new.path, &destination), files: 0, bytes: 0, left_out: Vec::new() },
        };
        copying.level(&old.handle, &into, Path::new(""), DEEPEST)?;
        staging::synchronise(&dir, self.options.durability);
        Ok(copying.done)
    }

    /// Decides about every name that would be made.
    fn check_copies(&self, source: &Path, from: &OwnedFd, old: &Path, new: &Path) -> Result<(), FsError> {
        let Some(rules) = self.rules().filter(|rules| rules.concern_contents()) else { return Ok(()) };
        let mut refused = None;
        crate::change::tree(from, ".".as_ref(), Path::new(""), DEEPEST, &mut |below, _| {
            let there = new.join(below);
            let rule = rules.protects(&there, Effect::Create, Some((old, new)));
            refused = rule.map(|rule| rules.refuse_protected("copy to", &there, &there, rule));
            refused.is_none()
        })
        .map_err(on("copy", source))?;
        refused.map_or(Ok(()), Err)
    }
}

/// A tree that is being copied, with its two ends: as they were spelled, and where they are.
struct Copying<'a> {
    fence: &'a Fence,
    replace: Replace,
    from: (&'a Path, &'a Path),
    to: (&'a Path, &'a Path),
    done: CopiedTree,
}

impl Copying<'_> {
    fn level(&mut self, from: &OwnedFd, to: &OwnedFd, below: &Path, depth: usize) -> Result<(), FsError> {
        let (source, destination) = (self.from.0.join(below), self.to.0.join(below));
        if depth == 0 {
            let why = format!("it is deeper than {DEEPEST} directories");
            return Err(FsError::new(Code::IoError, format!("cannot copy {}: {why}", quote(&source))));
        }
        let here = enter(from, ".".as_ref()).map_err(on("copy", &source))?;
        for (name, _) in names_in(&here).map_err(on("copy", &source))? {
            let below = below.join(&name);
            // RACE: gone already.
            let Ok(stat) = rustix::fs::statat(&here, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if self.closes(&self.from.1.join(&below), Some(&stat)) {
                self.done.left_out.push(below);
                continue;
            }
            let there = rustix::fs::statat(to, &name, AtFlags::SYMLINK_NOFOLLOW).ok();
            if self.closes(&self.to.1.join(&below), there.as_ref()) {
                let resolved = self.to.1.join(&below);
                self.fence.decide(Act::Write, &resolved)?;
            }
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => self.directory(&here, to, &name, below, depth)?,
                FileType::RegularFile => self.file(&here, to, &name, below)?,
                FileType::Symlink => {
                    link(&here, to, &name, self.replace).map_err(on("copy to", &destination.join(&name)))?;
                    self.done.files += 1;
                }
                _ => self.done.left_out.push(below),
            }
        }
        staging::synchronise(to, self.fence.options.durability);
        Ok(())
    }

    fn directory(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &OsStr,
        below: PathBuf,
        depth: usize,
    ) -> Result<(), FsError> {
        let (source, destination) = (self.from.0.join(&below), self.to.0.join(&below));
        let old = enter(from, name).map_err(on("copy", &source))?;
        let stat = rustix::fs::fstat(&old).map_err(on("copy", &source))?;
        // SECURITY: what was entered is what is decided about.
        if self.closes(&self.from.1.join(&below), Some(&stat)) || on_kernel_file_system(&old) {
            self.done.left_out.push(below);
            return Ok(());
        }
        let new = open_or_make(to, name, stat.st_mode, self.replace).map_err(on("copy to", &destination))?;
        self.level(&old, &new, &below, depth - 1)
    }

    fn file(&mut self, from: &OwnedFd, to: &OwnedFd, name: &OsStr, below: PathBuf) -> Result<(), FsError> {
        let (source, destination) = (self.from.0.join(&below), self.to.0.join(&below));
        let file = match read::open(from, name) {
            Ok(file) => file,
            // RACE: it is another thing by now, or gone.
            Err(Errno::LOOP | Errno::NOENT | Errno::NXIO) => {
                self.done.left_out.push(below);
                return Ok(());
            }
            Err(errno) => return Err(FsError::host("copy", &source, errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(on("copy", &source))?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !regular || self.closes(&self.from.1.join(&below), Some(&stat)) {
            self.done.left_out.push(below);
            return Ok(());
        }
        let host = on("copy to", &destination);
        let options = &self.fence.options;
        let _turn = self.fence.locks.wait(&self.to.1.join(&below));
        let mut staged = Staged::new(to, stat.st_mode & 0o777, u64::MAX).map_err(&host)?;
        let bytes = pour(&file, &stat, &staged.file, options.limits.scan).map_err(&host)?;
        if options.durability == Durability::Synced {
            rustix::fs::fsync(&staged.file).map_err(&host)?;
        }
        let taken = |errno| staging::occupied("copy to", &destination, to, name, errno);
        staged.publish(name, self.replace == Replace::Files).map_err(taken)?;
        self.done.files += 1;
        self.done.bytes += bytes;
        Ok(())
    }

    fn closes(&self, path: &Path, stat: Option<&Stat>) -> bool {
        self.fence.closes(path, stat)
    }
}

fn no_directory(verb: &str, path: &Path) -> FsError {
    FsError::new(Code::NotDirectory, format!("cannot {verb} {}: something else than a directory is there", quote(path)))
}

/// Makes a directory in another and opens it; one that is there counts only if files may be replaced in it.
fn open_or_make(dir: &OwnedFd, name: &OsStr, mode: u32, replace: Replace) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode & 0o777 | 0o700)) {
        Err(Errno::EXIST) if replace == Replace::Files => {}
        other => other?,
    }
    enter(dir, name)
}

fn link(from: &OwnedFd, to: &OwnedFd, name: &OsStr, replace: Replace) -> rustix::io::Result<()> {
    let target = match rustix::fs::readlinkat(from, name, Vec::new()) {
        // RACE: it is another thing by now, or gone.
        Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
        other => other?,
    };
    match rustix::fs::symlinkat(&*target, to, name) {
        Err(Errno::EXIST) if replace == Replace::Files => {
            rustix::fs::unlinkat(to, name, AtFlags::empty())?;
            rustix::fs::symlinkat(&*target, to, name)
        }
        other => other,
    }
}

/// Copies the content that a file had when it was looked at, by the kernel where it can; holes stay holes.
///
/// A file that does not know its size is read to its end, up to `most` bytes.
fn pour(from: &OwnedFd, stat: &Stat, to: &OwnedFd, most: u64) -> rustix::io::Result<u64> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size == 0 {
        return stretch(from, to, 0, most);
    }
    let mut at = 0;
    while at < size {
        let data = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => break,
            // A file system that knows no holes.
            Err(_) => at,
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(data)).map_or(size, |end| end.min(size));
        if data >= end {
            break;
        }
        let copied = stretch(from, to, data, end - data)?;
        at = data + copied;
        if at < end {
            // RACE: the file is shorter by now.
            rustix::fs::ftruncate(to, at)?;
            return Ok(at);
        }
    }
    rustix::fs::ftruncate(to, size)?;
    Ok(size)
}

/// Copies at most so many bytes at one place; fewer at the end of the file.
fn stretch(from: &OwnedFd, to: &OwnedFd, at: u64, length: u64) -> rustix::io::Result<u64> {
    const PIECE: u64 = 64 << 20;
    let mut copied = 0;
    while copied < length {
        let (mut here, mut there) = (at + copied, at + copied);
        let want = usize::try_from((length - copied).min(PIECE)).unwrap_or(1);
        match rustix::fs::copy_file_range(from, Some(&mut here), to, Some(&mut there), want) {
            // Some files say that they are at their end, although they can be read (procfs).
            Ok(0) => return by_hand(from, to, at, copied, length),
            Ok(count) => copied += count as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::TXTBSY) => {
                return by_hand(from, to, at, copied, length);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(copied)
}

fn by_hand(from: &OwnedFd, to: &OwnedFd, at: u64, mut copied: u64, length: u64) -> rustix::io::Result<u64> {
    let mut buffer = vec![0; 128 << 10];
    while copied < length {
        let want = usize::try_from(length - copied).unwrap_or(buffer.len()).min(buffer.len());
        let count = match rustix::io::pread(from, &mut buffer[..want], at + copied) {
            Ok(0) => break,
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno),
        };
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            match rustix::io::pwrite(to, rest, at + copied) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => {
                    rest = &rest[written..];
                    copied += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(copied)
}
