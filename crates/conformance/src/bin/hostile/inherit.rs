//! Effects through descriptors that were open when the run began, and through the working directory.
//!
//! The harness opens one descriptor per attempt, of the kind that its description names.

use crate::{Attempt, attempt, meta, path, write_file};
use libc::{O_CREAT, O_WRONLY};
use pinfold_conformance::errno::Errno;
use pinfold_conformance::sys;
use pinfold_conformance::sys::{c, open_at, read, write, write_all};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("inherit-pwrite", "pwrite on a descriptor open for writing", |t| {
        sys!(libc::SYS_pwrite64, t.inherited()?, &b"changed"[..], 7usize, 0).map(drop)
    }),
    attempt("inherit-ftruncate", "ftruncate on a descriptor open for writing", |t| {
        sys!(libc::SYS_ftruncate, t.inherited()?, 1).map(drop)
    }),
    attempt("inherit-punch-hole", "fallocate a hole in a descriptor open for writing", |t| {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        sys!(libc::SYS_fallocate, t.inherited()?, mode, 0, 4).map(drop)
    }),
    attempt("inherit-mmap-shared", "store through a mapping of a descriptor open for writing", |t| {
        path::store(t.inherited()?)
    }),
    attempt("inherit-reopen-rdonly", "reopen a descriptor open for reading, for writing", |t| {
        write_file(&c(format!("/proc/self/fd/{}", valid(t.inherited()?)?)), O_WRONLY)
    }),
    attempt("inherit-reopen-opath", "open an O_PATH descriptor for writing", |t| {
        write_file(&c(format!("/proc/self/fd/{}", valid(t.inherited()?)?)), O_WRONLY)
    }),
    attempt("inherit-dir-create", "create a file in an open directory", |t| {
        open_at(t.inherited()?, c"new", O_WRONLY | O_CREAT).map(drop)
    }),
    attempt("inherit-dir-write", "write a file in an open directory", |t| {
        let fd = open_at(t.inherited()?, c"f", O_WRONLY)?;
        write_all(fd, b"changed\n")
    }),
    attempt("inherit-dir-unlink", "unlink a file in an open directory", |t| {
        sys!(libc::SYS_unlinkat, t.inherited()?, c"f", 0).map(drop)
    }),
    attempt("inherit-fchdir", "enter an open directory and write", |t| {
        sys!(libc::SYS_fchdir, t.inherited()?)?;
        write_file(c"f", O_WRONLY)
    }),
    attempt("inherit-cwd", "write in the working directory, which is outside", |_| write_file(c"f", O_WRONLY)),
    attempt("inherit-fchmod", "fchmod on a descriptor open for reading", |t| {
        sys!(libc::SYS_fchmod, t.inherited()?, 0o600).map(drop)
    }),
    attempt("inherit-futimens", "futimens on a descriptor open for reading", |t| {
        sys!(libc::SYS_utimensat, t.inherited()?, 0, read(&[[1_000_000_000i64, 0]; 2]), 0).map(drop)
    }),
    attempt("inherit-fsetxattr", "fsetxattr on a descriptor open for reading", |t| {
        sys!(libc::SYS_fsetxattr, t.inherited()?, c"user.new", &b"1"[..], 1usize, 0).map(drop)
    }),
    attempt("inherit-chmod-procfd", "chmod /proc/self/fd/N of an O_PATH descriptor", |t| {
        meta::chmod(&c(format!("/proc/self/fd/{}", valid(t.inherited()?)?)), 0o600)
    }),
    attempt("inherit-scm-rights", "receive a descriptor over an inherited socket and write", |t| {
        let mut byte = [0u8; 1];
        let mut control = [0u64; 8];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: msghdr is made of numbers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = 64;
        sys!(libc::SYS_recvmsg, t.inherited()?, write(&mut message), libc::MSG_DONTWAIT)?;
        // struct cmsghdr is 16 bytes; the descriptor follows.
        let fd = control[2] as i32;
        write_all(fd, b"changed\n")
    }),
    attempt("inherit-tcp-send", "send on a connected TCP socket", |t| {
        sys!(libc::SYS_sendto, t.inherited()?, t.text(), t.text().len(), libc::MSG_NOSIGNAL, 0, 0).map(drop)
    }),
];

/// A closed descriptor has no entry in `/proc/self/fd`: say EBADF, as for the others, rather than ENOENT.
fn valid(fd: i32) -> Result<i32, Errno> {
    sys!(libc::SYS_fcntl, fd, libc::F_GETFD)?;
    Ok(fd)
}
