//! open(2) in its forms, where it could change something.

use crate::caller::{Caller, Outcome};
use crate::protect::is_read_only;
use crate::resolve::{Found, Name, Object, on_proc};
use crate::serve::{Answer, Waiting, Worker};
use pinfold_policy::Effect;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// O_TMPFILE without the bit of O_DIRECTORY that is part of it.
const UNNAMED: u32 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;
const ACCESS: u32 = libc::O_ACCMODE as u32;
/// What openat2(2) takes; open(2) drops the rest.
const KNOWN: u32 = (libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_CLOEXEC
    | libc::O_PATH
    | libc::O_TMPFILE) as u32;

const TERMINAL: (u32, u32) = (5, 0);

impl Caller<'_> {
    pub(crate) fn open(
        &self,
        worker: &mut Worker,
        directory: i32,
        path: usize,
        flags: u32,
        mode: u32,
    ) -> Outcome<Answer> {
        let path = self.path(path)?;
        let mut flags = flags & KNOWN;
        if flags & libc::O_PATH as u32 != 0 {
            flags &= (libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u32;
        }
        let has = |flag: i32| flags & flag.cast_unsigned() != 0;
        let close_on_exec = has(libc::O_CLOEXEC);
        // SECURITY: a terminal that this process opened must not become its own controlling one.
        let ours = OFlags::from_bits_retain(flags) | OFlags::CLOEXEC;
        let ours = if has(libc::O_PATH) { ours } else { ours | OFlags::NOCTTY };
        let mode = Mode::from_bits_retain(mode & 0o7777);
        let file = |file: OwnedFd| Ok(Answer::File { file, close_on_exec });
        if flags & UNNAMED != 0 {
            if !has(libc::O_DIRECTORY) || flags & ACCESS == 0 {
                return Err(Errno::INVAL.into());
            }
            let place = self.object(directory, &path, !has(libc::O_NOFOLLOW))?;
            let _reading = self.server.names.read();
            self.about_to_object("open", &place)?;
            worker.use_umask(self)?;
            return file(openat2(&place.handle, ".", ours, mode, ResolveFlags::NO_SYMLINKS)?);
        }
        let exclusive = has(libc::O_CREAT) && has(libc::O_EXCL);
        let follow = !has(libc::O_NOFOLLOW) && !exclusive;
        // Directories keep their places while we look and act.
        let (_reading, _writing);
        if has(libc::O_CREAT) {
            _writing = self.server.names.write();
        } else {
            _reading = self.server.names.read();
        }
        if has(libc::O_CREAT) && path.last() == Some(&b'/') {
            // What is behind it is not looked at any more.
            self.name(directory, &path)?;
            return Err(Errno::ISDIR.into());
        }
        match self.find(directory, &path, follow)? {
            Found { object: None, .. } if !has(libc::O_CREAT) => Err(Errno::NOENT.into()),
            Found { name: Some(name), object: None } => {
                self.permit("open", &name, Effect::Create)?;
                worker.use_umask(self)?;
                file(at(&name, ours, mode)?)
            }
            Found { name, object: Some(object) } => {
                if exclusive {
                    return Err(Errno::EXIST.into());
                }
                if object.kind() == FileType::Symlink && !has(libc::O_PATH) {
                    return Err(Errno::LOOP.into());
                }
                let writes = flags & ACCESS != 0 || has(libc::O_TRUNC);
                if writes {
                    match &name {
                        // The walls know devices by themselves.
                        Some(name) if object.is_device() => self.permit_place("open", name, Effect::Alter)?,
                        Some(name) => self.permit("open", name, Effect::Alter)?,
                        None => self.permit_content("open", &object)?,
                    }
                }
                // SECURITY: we may look at more processes than the command may, ourselves among them, and it leaves to us
                // whatever it asks for with O_CREAT. Its own entries are resolved without a name, and not opened either.
                if on_proc(&object.handle)? {
                    let read_only = writes && is_read_only(&object.handle)?;
                    return Err(if read_only { Errno::ROFS } else { Errno::ACCESS }.into());
                }
                // SECURITY: what goes into a FIFO does not change its file system, so a read-only mount lets it pass. The
                // command's Landlock domain would not, but behind a mount tree we cannot wear one.
                if writes && object.kind() == FileType::Fifo && is_read_only(&object.handle)? {
                    return Err(Errno::ACCESS.into());
                }
                if object.kind() == FileType::CharacterDevice && device(&object) == TERMINAL {
                    return file(self.open_terminal(ours)?);
                }
                if object.kind() == FileType::Fifo && !has(libc::O_NONBLOCK) && flags & ACCESS != libc::O_RDWR as u32 {
                    return self.wait_for_reader(object, flags, ours, close_on_exec);
                }
                // Somebody may hold a lease on it (fcntl(2)), and is asked to give it up.
                worker.pass_turn_on(self.server);
                match &name {
                    Some(name) => file(at(name, ours, mode)?),
                    None => file(self.open_again(&object, ours)?),
                }
            }
            // `find` gives a name where nothing is.
            Found { name: None, object: None } => Err(Errno::NOENT.into()),
        }
    }

    /// Opens what a handle holds.
    pub(crate) fn open_again(&self, object: &Object, flags: OFlags) -> Outcome<OwnedFd> {
        let number = object.handle.as_raw_fd().to_string();
        let dropped = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        Ok(openat(&self.server.own_descriptors, number, flags.difference(dropped), Mode::empty())?)
    }

    /// `/dev/tty` means the caller's terminal, not ours.
    fn open_terminal(&self, flags: OFlags) -> Outcome<OwnedFd> {
        let device = self.terminal()?;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        if !(136..144).contains(&major) {
            return Err(Errno::NXIO.into());
        }
        let path = format!("/dev/pts/{}", (major - 136) * 256 + minor);
        let terminal = self.object(libc::AT_FDCWD, path.as_bytes(), false)?;
        if terminal.stat.st_rdev != device {
            return Err(Errno::NXIO.into());
        }
        self.open_again(&terminal, flags)
    }

    /// A FIFO without a reader makes its writer wait, and nobody else.
    fn wait_for_reader(&self, fifo: Object, flags: u32, ours: OFlags, close_on_exec: bool) -> Outcome<Answer> {
        if flags & ACCESS == libc::O_RDONLY as u32 {
            // Whether a writer has come cannot be seen without reading. Nobody creates what he waits to read.
            return Err(Errno::OPNOTSUPP.into());
        }
        let waiting = Waiting { call: self.call.id, fifo, flags: ours | OFlags::NONBLOCK, close_on_exec };
        self.server.wait_for_reader(waiting).map(|()| Answer::Later)
    }
}

/// Opens a name as it is: never through a link that has come to be there since.
fn at(name: &Name, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    // Without a file to create, openat2(2) wants no mode.
    let mode = if flags.contains(OFlags::CREATE) { mode } else { Mode::empty() };
    openat2(&name.parent, name.spelled(), flags, mode, ResolveFlags::NO_SYMLINKS)
}

fn device(object: &Object) -> (u32, u32) {
    (rustix::fs::major(object.stat.st_rdev), rustix::fs::minor(object.stat.st_rdev))
}
