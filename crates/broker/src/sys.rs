//! System calls that no crate of ours wraps: the listener of a seccomp filter, and a few that take raw structures.
//!
//! UNSAFETY: the kernel reads and writes through the pointers that it is given. What is written here decides nothing: one
//! function, one call.
//!
//! In every `SAFETY` comment below, *plain* means: the call reads or writes no memory of this process; *borrowed* means: each
//! pointer comes from a reference or slice that outlives the call, and the length passed is its length.

#![allow(unsafe_code)]

use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

pub(crate) type Result<T> = std::result::Result<T, Errno>;

fn check(value: impl Into<i64>) -> Result<i64> {
    let value = value.into();
    if value < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(Errno::from_raw_os_error(errno));
    }
    Ok(value)
}

/// One call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) id: u64,
    /// The thread that waits, by its number here.
    pub(crate) thread: u32,
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
}

/// Waits for the next call. ENOENT: its thread died in between.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> Result<Call> {
    // SAFETY: integers, for which zero bytes are a value; the kernel wants them zero.
    let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: borrowed; the request writes one `seccomp_notif`.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notification) })?;
    Ok(Call {
        id: notification.id,
        thread: notification.pid,
        number: notification.data.nr.into(),
        arguments: notification.data.args,
    })
}

fn respond(listener: BorrowedFd<'_>, response: &libc::seccomp_notif_resp) -> Result<()> {
    let response = std::ptr::from_ref(response);
    // SAFETY: borrowed; the request reads one `seccomp_notif_resp`.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, response) }).map(drop)
}

/// Answers a call. ENOENT: nobody waits for it any more.
pub(crate) fn answer(listener: BorrowedFd<'_>, id: u64, outcome: Result<i64>) -> Result<()> {
    let (val, error) = match outcome {
        Ok(value) => (value, 0),
        Err(errno) => (0, -errno.raw_os_error()),
    };
    respond(listener, &libc::seccomp_notif_resp { id, val, error, flags: 0 })
}

/// Lets the kernel perform a call as it stands. Never for one whose arguments lie in memory.
pub(crate) fn let_go_on(listener: BorrowedFd<'_>, id: u64) -> Result<()> {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    respond(listener, &libc::seccomp_notif_resp { id, val: 0, error: 0, flags })
}

/// Gives whoever waits a descriptor of this open file, and returns its number there; the call still waits.
///
/// SINCE(Linux 5.14) SECCOMP_ADDFD_FLAG_SEND would answer as well, but then our own descriptor could outlive the call.
pub(crate) fn give(listener: BorrowedFd<'_>, id: u64, file: BorrowedFd<'_>, close_on_exec: bool) -> Result<i64> {
    let request = libc::seccomp_notif_addfd {
        id,
        flags: 0,
        srcfd: file.as_raw_fd().unsigned_abs(),
        newfd: 0,
        newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    // SAFETY: borrowed; the request reads one `seccomp_notif_addfd`.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const request) })
}

/// Whether a call still waits for its answer: then its thread number still means the same thread.
pub(crate) fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: borrowed; the request reads one u64.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) }).is_ok()
}

/// Connects a socket to an address that was written down by somebody else.
pub(crate) fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> Result<()> {
    let length = address.len() as libc::socklen_t;
    // SAFETY: borrowed; the kernel reads as many bytes as it is told, and takes no alignment for granted.
    check(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) }).map(drop)
}

/// Asks for cheaper switching between a waiting thread and us. SINCE(Linux 6.6): nothing to ask.
pub(crate) fn switch_directly(listener: BorrowedFd<'_>) {
    const SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: u64 = 1;
    // SAFETY: plain: the flags are passed by value.
    let _ = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
    };
}

/// Reads memory of another process; returns how many bytes could be read.
pub(crate) fn read_memory(thread: u32, address: u64, into: &mut [u8]) -> Result<usize> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: `local` is borrowed; `remote` is an address of the other process, which the kernel checks.
    check(unsafe { libc::process_vm_readv(thread.cast_signed(), &raw const local, 1, &raw const remote, 1, 0) } as i64)
        .map(|count| count as usize)
}

/// The size beyond which a thread may make no file larger.
pub(crate) fn file_size_limit(thread: u32) -> Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: borrowed; nothing is set.
    let told = unsafe { libc::prlimit(thread.cast_signed(), libc::RLIMIT_FSIZE, std::ptr::null(), &raw mut limit) };
    check(told).map(|_| limit.rlim_cur)
}

/// Gives the calling thread a umask of its own (and a working directory that nobody uses).
pub(crate) fn unshare_umask() -> Result<()> {
    // SAFETY: plain; nothing here relies on the working directory being shared between threads.
    check(unsafe { libc::unshare(libc::CLONE_FS) }).map(drop)
}

/// Makes a copy of a descriptor that was inherited under this number.
pub(crate) fn duplicate(number: RawFd) -> Result<OwnedFd> {
    // SAFETY: plain.
    let copy = check(unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) })?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(copy as RawFd) })
}

/// Takes over a descriptor that was inherited under this number; under it there is none any more.
pub(crate) fn take(number: RawFd) -> Result<OwnedFd> {
    let copy = duplicate(number)?;
    // SAFETY: plain; the number is the caller's word for this descriptor, and nothing of ours is open under it.
    check(unsafe { libc::close(number) })?;
    Ok(copy)
}

/// Closes every descriptor above 2 but these.
///
/// # Panics
///
/// Never; but whoever holds one of the others must not use it again. Called once, before anything else is open.
pub(crate) fn close_all_but(keep: &[RawFd]) -> Result<()> {
    let mut keep: Vec<u32> = keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd > 2).collect();
    keep.sort_unstable();
    let mut first = 3;
    for fd in keep {
        if fd > first {
            // SAFETY: plain; only inherited descriptors that nobody here knows are in the range.
            check(unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) })?;
        }
        first = fd + 1;
    }
    // SAFETY: as above.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) }).map(drop)
}

/// Blocks every signal in this thread and those it starts; returns a descriptor to read them from, without waiting.
pub(crate) fn take_signals() -> Result<OwnedFd> {
    // SAFETY: borrowed: a set of signals is plain data, which the first call fills.
    let fd = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::signalfd(-1, &raw const all, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    check(fd)?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Ends this process by a signal, without a core; returns if the signal does not end processes.
pub(crate) fn end_by(signal: i32) {
    // With 0 the kernel still starts the program that `core_pattern` names (core(5)).
    let none = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: borrowed; the default disposition runs no code of ours.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
}

/// An ioctl(2) that reads one structure of this size.
pub(crate) fn request(file: BorrowedFd<'_>, number: u32, argument: &[u8]) -> Result<()> {
    // SAFETY: borrowed; callers pass a request that reads as many bytes as the slice holds, and writes none.
    check(unsafe { libc::ioctl(file.as_raw_fd(), number.into(), argument.as_ptr()) }).map(drop)
}

/// Sets the attributes of the file behind a descriptor (file_setattr(2), Linux 6.17).
pub(crate) fn set_attributes(file: BorrowedFd<'_>, attributes: &[u8]) -> Result<()> {
    const FILE_SETATTR: libc::c_long = 469;
    let empty = c"".as_ptr();
    // SAFETY: borrowed; the size goes with the slice.
    let outcome = unsafe {
        libc::syscall(FILE_SETATTR, file.as_raw_fd(), empty, attributes.as_ptr(), attributes.len(), libc::AT_EMPTY_PATH)
    };
    check(outcome).map(drop)
}
