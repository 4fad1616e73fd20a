//! Calls that make, move and remove names.
//!
//! Every directory is moved, and every link made, while nobody else changes anything: what was looked at stays where it was.

use crate::caller::{Caller, Outcome, Refusal};
use crate::protect::{Other, is_read_only};
use crate::resolve::{Name, Object};
use crate::serve::{Answer, Worker};
use pinfold_policy::{Effect, Moved};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxAttributes, StatxFlags, linkat, mkdirat,
    mknodat, openat, openat2, renameat_with, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

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
        if self.at(&name)?.is_none() {
            let other = Other { path: Some(Path::new(OsStr::from_bytes(&target))), object: None };
            self.permit_beside("symlink", &name, Effect::CreateLink, other)?;
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
        let operation = if removes_directory { "rmdir" } else { "unlink" };
        if let Some(object) = self.at(&name)? {
            self.permit(operation, &name, Effect::Alter)?;
            self.may_go(&name, &object)?;
        } else {
            self.about_to_name(operation, &name)?;
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
        if flags.contains(RenameFlags::NOREPLACE) && self.at(&to)?.is_some() {
            // The kernel would say so before it asks for any right.
            self.at(&from)?.ok_or(Errno::NOENT)?;
            return Err(Errno::EXIST.into());
        }
        if let (Some(object), Some(from_path), Some(to_path)) =
            (self.at(&from)?, self.path_of_name(&from)?, self.path_of_name(&to)?)
        {
            self.in_reach("rename", &from_path, &from.parent)?;
            self.in_reach("rename", &to_path, &to.parent)?;
            self.permit_move("rename", &object, (&from, &from_path), (&to, &to_path))?;
            self.may_go(&from, &object)?;
            if let Some(other) = self.at(&to)? {
                if flags.contains(RenameFlags::EXCHANGE) {
                    self.permit_move("rename", &other, (&to, &to_path), (&from, &from_path))?;
                }
                // What is replaced goes as well.
                self.may_go(&to, &other)?;
            }
        } else {
            self.about_to_name("rename", &from)?;
            self.about_to_name("rename", &to)?;
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
        let to_path = self.path_of_name(&to)?;
        // SECURITY: a second name for a protected file would be a way to change it.
        match &source {
            Some(name) => {
                let other = Other { path: to_path.as_deref(), object: None };
                self.permit_beside("link", name, Effect::Alter, other)?;
            }
            // An answer could not be bound to a name.
            None => self.permit_content("link", &object).map_err(Refusal::for_good)?,
        }
        if self.at(&to)?.is_none() {
            let path = self.path_of(&object.handle)?;
            let other = Other { path: Some(&path), object: Some(&object) };
            self.permit_beside("link", &to, Effect::Create, other)?;
        }
        match source {
            Some(name) => linkat(&name.parent, &*name.name, &to.parent, to.spelled(), AtFlags::empty())?,
            None => {
                let number = object.handle.as_raw_fd();
                linkat(CWD, format!("/proc/self/fd/{number}"), &to.parent, to.spelled(), AtFlags::SYMLINK_FOLLOW)?;
            }
        }
        Ok(Answer::Value(0))
    }

    pub(crate) fn truncate(&self, worker: &mut Worker, path: usize, length: u64) -> Outcome<Answer> {
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
        self.permit_content("truncate", &object)?;
        if length > object.stat.st_size.cast_unsigned() {
            self.may_grow_to(length)?;
        }
        // Somebody may hold a lease on it (fcntl(2)), and is asked to give it up.
        worker.pass_turn_on(self.server);
        // ftruncate(2) asks for the same rights that truncate(2) does: writing, and Landlock's right to truncate.
        let file = self.open_again(&object, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK)?;
        rustix::fs::ftruncate(&file, length)?;
        Ok(Answer::Value(0))
    }

    /// What is there already is the kernel's to complain about.
    fn permit_new(&self, operation: &'static str, name: &Name) -> Outcome<()> {
        if self.at(name)?.is_some() { Ok(()) } else { self.permit(operation, name, Effect::Create) }
    }

    /// SECURITY: only what is certainly not there is none. A look that fails for any other reason is no answer.
    fn at(&self, name: &Name) -> Outcome<Option<Object>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&name.parent, &*name.name, flags, Mode::empty()) {
            Ok(handle) => Object::of(handle).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Keeps in place what is mounted in the command's tree, and what leads to a root. The kernel asks about mounts in the
    /// tree of whoever calls, and that is ours.
    fn may_go(&self, name: &Name, object: &Object) -> Outcome<()> {
        let Some(path) = self.path_of_name(name)? else { return Ok(()) };
        if !self.server.protected.leads_to_top(&path) && !is_mounted(&object.handle, b"")? {
            return Ok(());
        }
        Err(if is_read_only(&name.parent)? { Errno::ROFS } else { Errno::BUSY }.into())
    }

    /// Permits something to go from one name to another, with everything below it.
    fn permit_move(
        &self,
        operation: &'static str,
        object: &Object,
        (from, from_path): (&Name, &Path),
        (to, to_path): (&Name, &Path),
    ) -> Outcome<()> {
        let arrives = if object.kind() == FileType::Symlink { Effect::CreateLink } else { Effect::Create };
        let other = |path| Other { path: Some(path), object: Some(object) };
        self.permit_path(operation, from, from_path, Effect::Alter, other(to_path))?;
        self.permit_path(operation, to, to_path, arrives, other(from_path))?;
        let protected = &self.server.protected;
        if object.kind() != FileType::Directory || !(protected.concerns(from_path) || protected.concerns(to_path)) {
            return Ok(());
        }
        self.permit_tree(operation, &object.handle, from_path, to_path)
    }

    fn permit_tree(&self, operation: &'static str, top: &OwnedFd, from: &Path, to: &Path) -> Outcome<()> {
        let protected = &self.server.protected;
        let now = |path: &Path| self.exists(path);
        let then = Moved { now: &now, from, to };
        // Names, not descriptors: a tree may have more directories than we may have open.
        let mut pending = vec![PathBuf::new()];
        let mut seen = 0;
        while let Some(below) = pending.pop() {
            let directory = match open_below(top, &below) {
                Ok(directory) => directory,
                // Its type was not known.
                Err(Errno::NOTDIR | Errno::LOOP) if below != Path::new("") => continue,
                // What cannot be looked at cannot be moved.
                Err(errno) => return Err(errno.into()),
            };
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
                // A cover would go along, and the next call would not find what it is to close.
                if is_mounted(&directory, name)? {
                    return Err(Errno::BUSY.into());
                }
                if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                    pending.push(path);
                }
            }
        }
        Ok(())
    }
}

/// Whether something is mounted at a name, or, without one, at what a handle holds.
fn is_mounted(at: &OwnedFd, name: &[u8]) -> Outcome<bool> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let known = rustix::fs::statx(at, name, flags, StatxFlags::empty())?;
    let told = known.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    // A kernel that does not tell is older than the listener that we serve.
    if told { Ok(known.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)) } else { Err(Errno::NOSYS.into()) }
}

/// Opens a directory below another, however long its path is.
fn open_below(top: &OwnedFd, below: &Path) -> Result<OwnedFd, Errno> {
    const MOST: usize = 2048;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let step = |at: &OwnedFd, path: &Path, last: OFlags| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        openat2(at, path, last | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), within)
    };
    let mut at = None;
    let mut piece = PathBuf::new();
    for name in below {
        if piece.as_os_str().len() > MOST {
            at = Some(step(at.as_ref().unwrap_or(top), &piece, OFlags::PATH)?);
            piece.clear();
        }
        piece.push(name);
    }
    step(at.as_ref().unwrap_or(top), &piece, OFlags::RDONLY)
}
