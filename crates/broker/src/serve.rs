//! Takes calls from the listener, has them performed, and answers.
//!
//! A fixed number of threads; each handles one call at a time, so what a command can make us hold is bounded. A call that
//! would block (a FIFO without a reader) is put aside, and one further thread looks after all of these.
//!
//! The kernel wakes every thread that waits for a call, for each call; so only one does, whose turn it is. It keeps its turn while
//! it performs what cannot wait for the command, and passes it on before what can.

use crate::asks::Asks;
use crate::caller::{Caller, KnownUmask, Outcome, Refusal};
use crate::connect::Connections;
use crate::denials::Denials;
use crate::resolve::Object;
use crate::sys::{self, Call};
use pinfold_policy::ProtectedNames;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// How many calls are handled at once.
pub(crate) const WORKERS: usize = 4;
/// How many writers may wait for readers.
const MOST_WAITING: usize = 256;
/// How often we look whether a reader has come.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

const AT_FDCWD: i32 = libc::AT_FDCWD;

/// Whose turn it is to wait for calls: a thread takes it, and passes it on.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    taken: Mutex<bool>,
    passed_on: Condvar,
}

impl Turn {
    fn take(&self) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = self.passed_on.wait_while(taken, |taken| *taken).unwrap_or_else(PoisonError::into_inner);
        *taken = true;
    }

    fn pass_on(&self) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.passed_on.notify_one();
    }
}

/// What all threads share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) listener: OwnedFd,
    pub(crate) turn: Turn,
    /// The root directory that the command sees.
    pub(crate) root: OwnedFd,
    /// Our own `/proc`, and the directory of our descriptors in it.
    pub(crate) proc: OwnedFd,
    pub(crate) own_descriptors: OwnedFd,
    pub(crate) protected: ProtectedNames,
    /// Where metadata may be changed, if that is governed here.
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) governs_metadata: bool,
    /// Whether refusals of the walls are told as well.
    pub(crate) observes: bool,
    /// Whether the command is of root, whom but for the walls no permission of a file stops.
    pub(crate) of_root: bool,
    pub(crate) denials: Denials,
    /// Where somebody can be asked about a refusal.
    pub(crate) asks: Option<Asks>,
    /// Where the command may connect to, if that is decided here.
    pub(crate) connections: Option<Connections>,
    /// Held for writing while names change, so that what was looked at stays as it was.
    pub(crate) names: RwLock<()>,
    pub(crate) umask_changes: AtomicU64,
    pub(crate) waiting: Mutex<Vec<Waiting>>,
    pub(crate) one_waits: Condvar,
}

/// A writer that waits for the first reader of a FIFO.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) call: u64,
    pub(crate) fifo: Object,
    /// With O_NONBLOCK, which is taken away again.
    pub(crate) flags: OFlags,
    pub(crate) close_on_exec: bool,
}

/// What a call is answered with.
#[derive(Debug)]
pub(crate) enum Answer {
    Value(i64),
    File {
        file: OwnedFd,
        close_on_exec: bool,
    },
    /// Somebody else will answer.
    Later,
    /// The kernel performs it: only for calls whose arguments are not in memory.
    GoOn,
}

/// What one thread keeps from call to call.
#[derive(Debug)]
pub(crate) struct Worker {
    umask: Mode,
    known: Option<KnownUmask>,
    /// Whether it is this thread's turn to wait for calls.
    has_turn: bool,
}

impl Worker {
    /// Makes the calling thread one; none if it cannot have a umask of its own.
    pub(crate) fn new() -> Option<Self> {
        sys::unshare_umask().ok()?;
        let umask = Mode::from_bits_retain(0o077);
        rustix::process::umask(umask);
        Some(Self { umask, known: None, has_turn: false })
    }

    /// Lets another thread wait for calls. To be done before whatever may wait for something that the command does: another
    /// call of it could be what is waited for.
    pub(crate) fn pass_turn_on(&mut self, server: &Server) {
        if std::mem::take(&mut self.has_turn) {
            server.turn.pass_on();
        }
    }

    /// Takes on the caller's umask.
    pub(crate) fn use_umask(&mut self, caller: &Caller<'_>) -> Outcome<()> {
        let wanted = caller.umask(&mut self.known)?;
        if wanted != self.umask {
            rustix::process::umask(wanted);
            self.umask = wanted;
        }
        Ok(())
    }
}

impl Server {
    /// Handles calls until nobody is left who could make one.
    pub(crate) fn work(&self) {
        let Some(mut worker) = Worker::new() else { return };
        loop {
            if !worker.has_turn {
                self.turn.take();
                worker.has_turn = true;
            }
            let call = match sys::receive(self.listener.as_fd()) {
                Ok(call) => call,
                // Its thread died, or a signal came.
                Err(Errno::NOENT | Errno::INTR) => continue,
                Err(_) => {
                    // Nobody is left; the others see it as well.
                    self.turn.pass_on();
                    return;
                }
            };
            let caller = Caller::first(self, call);
            match perform(&caller, &mut worker) {
                Err(Refusal::Denied(refused)) => self.refuse_or_ask(caller, refused),
                outcome => {
                    self.observe(&caller, &outcome);
                    self.answer(&call, outcome);
                }
            }
        }
    }

    pub(crate) fn answer(&self, call: &Call, outcome: Outcome<Answer>) {
        let listener = self.listener.as_fd();
        // Whoever does not wait any more gets no answer.
        let _ = match outcome {
            Ok(Answer::Value(value)) => sys::answer(listener, call.id, Ok(value)),
            Ok(Answer::GoOn) => sys::let_go_on(listener, call.id),
            Ok(Answer::Later) => Ok(()),
            Ok(Answer::File { file, close_on_exec }) => self.give(call.id, file, close_on_exec),
            Err(Refusal::Errno(errno)) => sys::answer(listener, call.id, Err(errno)),
            Err(Refusal::Denied(_) | Refusal::Gone) => sys::answer(listener, call.id, Err(Errno::PERM)),
        };
    }

    /// When the call returns, nobody but the caller has the file: it may be executed at once (ETXTBSY), leased, or unlocked by
    /// closing it.
    fn give(&self, call: u64, file: OwnedFd, close_on_exec: bool) -> sys::Result<()> {
        let listener = self.listener.as_fd();
        // The caller may have no room for another descriptor (EMFILE), or be gone.
        let number = sys::give(listener, call, file.as_fd(), close_on_exec);
        drop(file);
        sys::answer(listener, call, number)
    }

    pub(crate) fn wait_for_reader(&self, waiting: Waiting) -> Outcome<()> {
        let mut list = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() >= MOST_WAITING {
            return Err(Errno::NFILE.into());
        }
        list.push(waiting);
        self.one_waits.notify_one();
        Ok(())
    }

    /// Looks after writers that wait for readers.
    pub(crate) fn be_patient(&self) {
        loop {
            let list = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let mut list =
                self.one_waits.wait_while(list, |list| list.is_empty()).unwrap_or_else(PoisonError::into_inner);
            list.retain(|waiting| !self.has_been_answered(waiting));
            drop(list);
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn has_been_answered(&self, waiting: &Waiting) -> bool {
        let listener = self.listener.as_fd();
        if !sys::still_waits(listener, waiting.call) {
            return true;
        }
        let number = waiting.fifo.handle.as_raw_fd().to_string();
        let dropped = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let opened = openat(&self.own_descriptors, number, waiting.flags.difference(dropped), Mode::empty());
        let _ = match opened {
            Err(Errno::NXIO) => return false,
            Err(errno) => sys::answer(listener, waiting.call, Err(errno)),
            Ok(file) => {
                let flags = rustix::fs::fcntl_getfl(&file).map(|flags| flags.difference(OFlags::NONBLOCK));
                match flags.and_then(|flags| rustix::fs::fcntl_setfl(&file, flags)) {
                    Ok(()) => self.give(waiting.call, file, waiting.close_on_exec),
                    Err(errno) => sys::answer(listener, waiting.call, Err(errno)),
                }
            }
        };
        true
    }
}

/// Performs one call.
pub(crate) fn perform(caller: &Caller<'_>, worker: &mut Worker) -> Outcome<Answer> {
    let number = |index| caller.number(index);
    let at = |index| caller.directory(index);
    let nofollow = libc::AT_SYMLINK_NOFOLLOW as u32;
    match caller.call.number {
        libc::SYS_open => caller.open(worker, AT_FDCWD, 0, number(1), number(2)),
        libc::SYS_openat => caller.open(worker, at(0), 1, number(2), number(3)),
        libc::SYS_creat => {
            let flags = (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC) as u32;
            caller.open(worker, AT_FDCWD, 0, flags, number(1))
        }
        libc::SYS_truncate => caller.truncate(worker, 0, caller.address(1)),
        libc::SYS_rename => caller.rename((AT_FDCWD, 0), (AT_FDCWD, 1), 0),
        libc::SYS_renameat => caller.rename((at(0), 1), (at(2), 3), 0),
        libc::SYS_renameat2 => caller.rename((at(0), 1), (at(2), 3), number(4)),
        libc::SYS_link => caller.link((AT_FDCWD, 0), (AT_FDCWD, 1), 0),
        libc::SYS_linkat => caller.link((at(0), 1), (at(2), 3), number(4)),
        libc::SYS_symlink => caller.symlink(0, AT_FDCWD, 1),
        libc::SYS_symlinkat => caller.symlink(0, at(1), 2),
        libc::SYS_unlink => caller.unlink(AT_FDCWD, 0, 0),
        libc::SYS_unlinkat => caller.unlink(at(0), 1, number(2)),
        libc::SYS_rmdir => caller.unlink(AT_FDCWD, 0, libc::AT_REMOVEDIR as u32),
        libc::SYS_mkdir => caller.mkdir(worker, AT_FDCWD, 0, number(1)),
        libc::SYS_mkdirat => caller.mkdir(worker, at(0), 1, number(2)),
        libc::SYS_mknod => caller.mknod(worker, AT_FDCWD, 0, number(1), number(2)),
        libc::SYS_mknodat => caller.mknod(worker, at(0), 1, number(2), number(3)),
        libc::SYS_chmod => caller.chmod_at(AT_FDCWD, 0, number(1), 0),
        libc::SYS_fchmod => caller.chmod_descriptor(0, number(1)),
        libc::SYS_fchmodat => caller.chmod_at(at(0), 1, number(2), 0),
        libc::SYS_fchmodat2 => caller.chmod_at(at(0), 1, number(2), number(3)),
        libc::SYS_chown => caller.chown_at(AT_FDCWD, 0, [number(1), number(2)], 0),
        libc::SYS_lchown => caller.chown_at(AT_FDCWD, 0, [number(1), number(2)], nofollow),
        libc::SYS_fchown => caller.chown_descriptor(0, [number(1), number(2)]),
        libc::SYS_fchownat => caller.chown_at(at(0), 1, [number(2), number(3)], number(4)),
        libc::SYS_utime => caller.utime(0, 1),
        libc::SYS_utimes => caller.utimes(AT_FDCWD, 0, 1),
        libc::SYS_futimesat => caller.utimes(at(0), 1, 2),
        libc::SYS_utimensat => caller.utimensat(at(0), 1, 2, number(3)),
        libc::SYS_setxattr => caller.set_xattr_at(0, 1, true),
        libc::SYS_lsetxattr => caller.set_xattr_at(0, 1, false),
        libc::SYS_fsetxattr => caller.set_xattr_descriptor(0, 1),
        libc::SYS_removexattr => caller.remove_xattr_at(AT_FDCWD, 0, 1, 0),
        libc::SYS_lremovexattr => caller.remove_xattr_at(AT_FDCWD, 0, 1, nofollow),
        libc::SYS_fremovexattr => caller.remove_xattr_descriptor(0, 1),
        SETXATTRAT => caller.setxattrat(),
        REMOVEXATTRAT => caller.remove_xattr_at(at(0), 1, 3, number(2)),
        FILE_SETATTR => caller.file_setattr(),
        libc::SYS_ioctl => caller.ioctl(),
        libc::SYS_connect => caller.connect(worker),
        libc::SYS_umask => {
            // It has one argument, in a register. What we believe of umasks is stale from now on.
            caller.server.umask_changes.fetch_add(1, Ordering::AcqRel);
            Ok(Answer::GoOn)
        }
        // The filter and this list are one; what it leaves to us without our knowing is refused.
        _ => Err(Errno::PERM.into()),
    }
}

// Newer than the libraries' lists (asm/unistd_64.h).
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;
