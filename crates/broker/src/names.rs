//! Calls that make, move and remove names.
//!
//! Every directory is moved, and every link made, while nobody else changes anything: what was looked at stays where it was.

use crate::caller::{Caller, Outcome};
use crate::resolve::{Name, Object};
use crate::serve::{Answer, Worker};
use pinfold_policy::{Effect, Moved};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, linkat, mkdirat, mknodat, openat, renameat_with, symlinkat,
    unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A directory with more below it than this cannot be moved; every name has to be looked at.
const MOST_MOVED: usize = 1 << 20;

impl Caller<'_> {
    pub(crate) fn mkdir(&self, worker: &mut Worker, directory: i32, path: usize, mode: u32) -> Outcome<Answer> {
        let path = self.path(path)?;
        let _writing = self.server.names.write();
        let name = self.name(directory, &path)?;
        self.permit_new("mkdir", &name)?;
        worker.use_umask(self)?;
        mkdirat(&name.parent, name.spelled(), Mode::from_bits_retain(mode & 0o7777))?;
        Ok(Answer::Value(0))
    }

    pub(crate) fn mknod(
        &self,
        worker: &mut Worker,
        directory: i32,
        path: usize,
        mode: u32,
        device: u32,
    ) -> Outcome<Answer> {
        let path = self.path(path)?;
        let _writing = self.server.names.write();
        let name = self.name(directory, &path)?;
        self.permit_new("mknod", &name)?;
        worker.use_umask(self)?;
        // No type means a regular file.
        let kind = if mode & libc::S_IFMT == 0 { libc::S_IFREG } else { mode };
        let device = rustix::fs::makedev((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00));
        let mode = Mode::from_bits_retain(mode & 0o7777);
        mknodat(&name.parent, name.spelled(), FileType::from_raw_mode(kind), mode, device)?;
        Ok(Answer::Value(0))
    }

    pub(crate) fn symlink(&self, target: usize, directory: i32, path: usize) -> Outcome<Answer> {
        let (target, path) = (self.path(target)?, self.path(path)?);
        let _writing = self.server.names.write();
        let name = self.name(directory, &path)?;
        if !self.is_there(&name) {
            self.permit("symlink", &name, Effect::CreateLink)?;
        }
        symlinkat(target, &name.parent, name.spelled())?;
        Ok(Answer::Value(0))
    }

    pub(crate) fn unlink(&self, directory: i32, path: usize, flags: u32) -> Outcome<Answer> {
        let path = self.path(path)?;
        let removes_directory = flags == libc::AT_REMOVEDIR as u32;
        if flags != 0 && !removes_directory {
            return Err(Errno::INVAL.into());
        }
        let _writing = self.server.names.write();
        let name = self.name(directory, &path)?;
        if self.is_there(&name) {
            self.permit(if removes_directory { "rmdir" } else { "unlink" }, &name, Effect::Alter)?;
        }
        let flags = if removes_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&name.parent, name.spelled(), flags)?;
        Ok(Answer::Value(0))
    }

    pub(crate) fn rename(&self, from: (i32, usize), to: (i32, usize), flags: u32) -> Outcome<Answer> {
        let (from_path, to_path) = (self.path(from.1)?, self.path(to.1)?);
        let flags = RenameFlags::from_bits_retain(flags);
        let _writing = self.server.names.write();
        let from = self.name(from.0, &from_path)?;
        let to = self.name(to.0, &to_path)?;
        if let (Some(object), Some(from_path), Some(to_path)) =
            (self.at(&from), self.path_of_name(&from)?, self.path_of_name(&to)?)
        {
            self.permit_move("rename", &object, &from_path, &to_path)?;
            match self.at(&to) {
                Some(other) if flags.contains(RenameFlags::EXCHANGE) => {
                    self.permit_move("rename", &other, &to_path, &from_path)?;
                }
                _ => {}
            }
        }
        renameat_with(&from.parent, from.spelled(), &to.parent, to.spelled(), flags)?;
        Ok(Answer::Value(0))
    }

    pub(crate) fn link(&self, from: (i32, usize), to: (i32, usize), flags: u32) -> Outcome<Answer> {
        let known = (libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) as u32;
        if flags & !known != 0 {
            return Err(Errno::INVAL.into());
        }
        let (from_path, to_path) = (self.path(from.1)?, self.path(to.1)?);
        let _writing = self.server.names.write();
        let follow = flags & libc::AT_SYMLINK_FOLLOW as u32 != 0;
        let (source, object) = if from_path.is_empty() && flags & libc::AT_EMPTY_PATH as u32 != 0 {
            (None, Object::of(self.descriptor(from.0)?)?)
        } else {
            let found = self.find(from.0, &from_path, follow)?;
            (found.name, found.object.ok_or(Errno::NOENT)?)
        };
        let to = self.name(to.0, &to_path)?;
        // SECURITY: a second name for a protected file would be a way to change it.
        match &source {
            Some(name) => self.permit("link", name, Effect::Alter)?,
            None => self.permit_object("link", &object, false)?,
        }
        self.permit_new("link", &to)?;
        match source {
            Some(name) => linkat(&name.parent, &*name.name, &to.parent, to.spelled(), AtFlags::empty())?,
            None => {
                let number = object.handle.as_raw_fd();
                linkat(CWD, format!("/proc/self/fd/{number}"), &to.parent, to.spelled(), AtFlags::SYMLINK_FOLLOW)?;
            }
        }
        Ok(Answer::Value(0))
    }

    pub(crate) fn truncate(&self, path: usize, length: u64) -> Outcome<Answer> {
        let path = self.path(path)?;
        let _reading = self.server.names.read();
        let object = self.object(libc::AT_FDCWD, &path, true)?;
        if length.cast_signed() < 0 {
            return Err(Errno::INVAL.into());
        }
        match object.kind() {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        self.permit_object("truncate", &object, false)?;
        // ftruncate(2) asks for the same rights that truncate(2) does: writing, and Landlock's right to truncate.
        let file = self.open_again(&object, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK)?;
        rustix::fs::ftruncate(&file, length)?;
        Ok(Answer::Value(0))
    }

    /// What is there already is the kernel's to complain about.
    fn permit_new(&self, operation: &'static str, name: &Name) -> Outcome<()> {
        if self.is_there(name) { Ok(()) } else { self.permit(operation, name, Effect::Create) }
    }

    fn is_there(&self, name: &Name) -> bool {
        self.at(name).is_some()
    }

    fn at(&self, name: &Name) -> Option<Object> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Object::of(openat(&name.parent, &*name.name, flags, Mode::empty()).ok()?).ok()
    }

    /// Permits something to go from one name to another, with everything below it.
    fn permit_move(&self, operation: &'static str, object: &Object, from: &Path, to: &Path) -> Outcome<()> {
        let arrives = if object.kind() == FileType::Symlink { Effect::CreateLink } else { Effect::Create };
        self.permit_path(operation, from, Effect::Alter)?;
        self.permit_path(operation, to, arrives)?;
        let protected = &self.server.protected;
        if object.kind() != FileType::Directory || !(protected.concerns(from) || protected.concerns(to)) {
            return Ok(());
        }
        let directory =
            openat(&object.handle, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        self.permit_tree(operation, directory, from, to)
    }

    fn permit_tree(&self, operation: &'static str, top: OwnedFd, from: &Path, to: &Path) -> Outcome<()> {
        let protected = &self.server.protected;
        let now = |path: &Path| self.exists(path);
        let then = Moved { now: &now, from, to };
        let mut pending = vec![(top, std::path::PathBuf::new())];
        let mut seen = 0;
        while let Some((directory, below)) = pending.pop() {
            for entry in Dir::read_from(&directory)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                seen += 1;
                if seen > MOST_MOVED {
                    return Err(self.deny(operation, from, None));
                }
                let path = below.join(OsStr::from_bytes(name));
                let (left, reached) = (from.join(&path), to.join(&path));
                if let Some(rule) = protected.rule_on(&left, Effect::Alter, &now) {
                    return Err(self.deny(operation, &left, Some(rule)));
                }
                let arrives = if entry.file_type() == FileType::Symlink { Effect::CreateLink } else { Effect::Create };
                if let Some(rule) = protected.rule_on(&reached, arrives, &then) {
                    return Err(self.deny(operation, &reached, Some(rule)));
                }
                if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    match openat(&directory, name, flags, Mode::empty()) {
                        Ok(inner) => pending.push((inner, path)),
                        Err(Errno::NOTDIR | Errno::LOOP) => {}
                        // What cannot be looked at cannot be moved.
                        Err(errno) => return Err(errno.into()),
                    }
                }
            }
        }
        Ok(())
    }
}
