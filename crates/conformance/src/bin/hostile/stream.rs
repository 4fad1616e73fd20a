//! Effects through the standard streams, when the caller redirected them to files outside. Each is run alone.

use crate::{Attempt, attempt, write_file};
use libc::{O_RDWR, O_WRONLY};
use pinfold_conformance::errno::Errno;
use pinfold_conformance::sys;
use pinfold_conformance::sys::{open, read};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("stream-stdin-reopen-write", "standard input is a file open for reading: reopen it for writing", |_| {
        write_file(c"/proc/self/fd/0", O_WRONLY)
    }),
    attempt("stream-stdin-fchmod", "standard input is a file: fchmod", |_| sys!(libc::SYS_fchmod, 0, 0o600).map(drop)),
    attempt("stream-stdin-futimens", "standard input is a file: futimens", |_| {
        sys!(libc::SYS_utimensat, 0, 0, read(&[[1_000_000_000i64, 0]; 2]), 0).map(drop)
    }),
    attempt("stream-stdin-fsetxattr", "standard input is a file: fsetxattr", |_| {
        sys!(libc::SYS_fsetxattr, 0, c"user.new", &b"1"[..], 1usize, 0).map(drop)
    }),
    attempt("stream-stderr-ftruncate", "standard error appends to a file: ftruncate", |_| {
        sys!(libc::SYS_ftruncate, 2, 0).map(drop)
    }),
    attempt("stream-stderr-clear-append", "standard error appends to a file: clear the flag and write at 0", |_| {
        let flags = sys!(libc::SYS_fcntl, 2, libc::F_GETFL)?;
        sys!(libc::SYS_fcntl, 2, libc::F_SETFL, flags & !i64::from(libc::O_APPEND))?;
        sys!(libc::SYS_pwrite64, 2, &b"changed"[..], 7usize, 0).map(drop)
    }),
    attempt("stream-stderr-reopen", "standard error appends to a file: reopen for reading and writing at 0", |_| {
        let fd = open(c"/proc/self/fd/2", O_RDWR)?;
        let n = sys!(libc::SYS_pwrite64, fd, &b"changed"[..], 7usize, 0)?;
        if n == 7 { Ok(()) } else { Err(Errno(libc::EIO)) }
    }),
    attempt("stream-stdin-read", "standard input is a file: read all of it", |_| {
        let mut bytes = [0u8; 64];
        let n = sys!(libc::SYS_read, 0, &mut bytes[..], 64usize)?;
        if &bytes[..n as usize] == b"outside\n" { Ok(()) } else { Err(Errno(libc::EIO)) }
    }),
    attempt("stream-stderr-append", "standard error appends to a file: write a line", |t| {
        let line = [t.text(), b"\n"].concat();
        sys::write_all(2, &line)
    }),
];
