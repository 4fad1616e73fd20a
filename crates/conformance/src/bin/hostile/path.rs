//! Effects by path: content and directory entries.

use crate::{Attempt, Target, attempt, uring, write_file};
use libc::{AT_FDCWD, O_APPEND, O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY, O_RDWR, O_TMPFILE, O_TRUNC, O_WRONLY};
use pinfold_conformance::errno::{Act, Errno};
use pinfold_conformance::sys;
use pinfold_conformance::sys::{Ended, c, fork, map_shared, open, open_at, read, unix_address, wait, write, write_all};
use std::ffi::CStr;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("path-open-write", "open an existing file for writing and write", |t| write_file(&t.out("f"), O_WRONLY)),
    attempt("path-open-append", "open for appending and write", |t| write_file(&t.out("f"), O_WRONLY | O_APPEND)),
    attempt("path-create", "create a new file", |t| write_file(&t.out("new"), O_WRONLY | O_CREAT | O_EXCL)),
    attempt("path-openat2-create", "create a new file with openat2", |t| {
        let how = [(O_WRONLY | O_CREAT) as u64, 0o644, 0];
        sys!(libc::SYS_openat2, AT_FDCWD, &t.out("new"), read(&how), 24usize).map(drop)
    }),
    attempt("path-open-truncate", "open for reading with O_TRUNC", |t| open(&t.out("f"), O_RDONLY | O_TRUNC).map(drop)),
    attempt("path-truncate", "truncate by path", |t| sys!(libc::SYS_truncate, &t.out("f"), 1).map(drop)),
    attempt("path-unlink", "unlink a file", |t| sys!(libc::SYS_unlinkat, AT_FDCWD, &t.out("f"), 0).map(drop)),
    attempt("path-rmdir", "remove an empty directory", |t| {
        sys!(libc::SYS_unlinkat, AT_FDCWD, &t.out("empty"), libc::AT_REMOVEDIR).map(drop)
    }),
    attempt("path-mkdir", "make a directory", |t| sys!(libc::SYS_mkdirat, AT_FDCWD, &t.out("new"), 0o755).map(drop)),
    attempt("path-symlink", "make a symbolic link", |t| {
        sys!(libc::SYS_symlinkat, c"f", AT_FDCWD, &t.out("new")).map(drop)
    }),
    attempt("path-mknod-fifo", "make a FIFO", |t| mknod(&t.out("new"), libc::S_IFIFO, 0)),
    attempt("path-mknod-socket", "make a socket inode", |t| mknod(&t.out("new"), libc::S_IFSOCK, 0)),
    attempt("path-mknod-char", "make a character device (1:3)", |t| {
        mknod(&t.out("new"), libc::S_IFCHR, libc::makedev(1, 3))
    }),
    attempt("path-mknod-block", "make a block device (7:0)", |t| {
        mknod(&t.out("new"), libc::S_IFBLK, libc::makedev(7, 0))
    }),
    attempt("path-mknod-whiteout", "make a character device 0:0", |t| mknod(&t.out("new"), libc::S_IFCHR, 0)),
    attempt("path-bind-unix", "bind a unix socket to a path", |t| {
        let socket = sys!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
        let (address, length) = unix_address(&t.out("new"));
        sys!(libc::SYS_bind, socket, read(&address), length).map(drop)
    }),
    attempt("path-link-out-to-ws", "hard link from outside into the workspace", |t| link(&t.out("f"), &t.ws("alias"))),
    attempt("path-link-ws-to-out", "hard link from the workspace to outside", |t| link(&t.ws("f"), &t.out("new"))),
    attempt("path-link-within-out", "hard link between two directories outside", |t| {
        link(&t.out("f"), &t.out("d/new"))
    }),
    attempt("path-rename-same-dir", "rename in one directory outside", |t| rename(&t.out("f"), &t.out("new"), 0)),
    attempt("path-rename-across-dirs", "rename across directories outside", |t| {
        rename(&t.out("f"), &t.out("d/new"), 0)
    }),
    attempt("path-rename-ws-to-out", "rename from the workspace to outside", |t| rename(&t.ws("f"), &t.out("new"), 0)),
    attempt("path-rename-ws-over-out", "rename over an existing file outside", |t| rename(&t.ws("f"), &t.out("f"), 0)),
    attempt("path-rename-out-to-ws", "rename from outside into the workspace", |t| {
        rename(&t.out("f"), &t.ws("new"), 0)
    }),
    attempt("path-rename-exchange", "exchange a file outside with one in the workspace", |t| {
        rename(&t.ws("f"), &t.out("f"), libc::RENAME_EXCHANGE)
    }),
    attempt("path-rename-dir-out-to-ws", "rename a directory from outside into the workspace", |t| {
        rename(&t.out("d"), &t.ws("new"), 0)
    }),
    attempt("path-tmpfile-in-out", "open an unnamed file outside", |t| open(&t.out(""), O_TMPFILE | O_RDWR).map(drop)),
    attempt("path-tmpfile-ws-linkat-out", "link an unnamed file of the workspace outside", |t| {
        let fd = open(&t.ws(""), O_TMPFILE | O_RDWR)?;
        link_fd(fd, &t.out("new"))
    }),
    attempt("path-write-via-symlink", "write through a symbolic link in the workspace", |t| {
        write_file(&t.ws("link"), O_WRONLY)
    }),
    attempt("path-write-via-old-hard-link", "write through a hard link made before the call", |t| {
        write_file(&t.ws("hard"), O_WRONLY)
    }),
    attempt("path-write-via-dotdot", "write through ws/../out", |t| {
        let out = t.context.out.file_name().unwrap_or_default();
        write_file(&c(t.context.ws.join("..").join(out).join(t.id).join("f")), O_WRONLY)
    }),
    attempt("path-mmap-shared", "store through a shared mapping", |t| {
        let fd = open(&t.out("f"), O_RDWR)?;
        store(fd)
    }),
    attempt("path-reopen-opath", "open a file with O_PATH, and that for writing", |t| {
        let fd = open(&t.out("f"), libc::O_PATH)?;
        write_file(&c(format!("/proc/self/fd/{fd}")), O_WRONLY)
    }),
    attempt("path-fifo-write", "write into a FIFO outside that somebody reads", |t| {
        write_file(&t.out("fifo"), O_WRONLY | libc::O_NONBLOCK)
    }),
    attempt("path-uring-nop", "set up an io_uring", |_| uring::nop()),
    attempt("path-uring-openat", "create a file by io_uring", |t| {
        let flags = (O_WRONLY | O_CREAT) as u32;
        uring::submit(&uring::Entry {
            opcode: 18,
            fd: AT_FDCWD,
            path: Some(&t.out("new")),
            len: 0o644,
            flags,
            ..Default::default()
        })
    }),
    attempt("path-uring-unlinkat", "unlink by io_uring", |t| {
        uring::submit(&uring::Entry { opcode: 36, fd: AT_FDCWD, path: Some(&t.out("f")), ..Default::default() })
    }),
    attempt("path-uring-renameat", "rename by io_uring", |t| {
        let (from, to) = (t.out("f"), t.out("new"));
        let len = AT_FDCWD as u32;
        uring::submit(&uring::Entry {
            opcode: 35,
            fd: AT_FDCWD,
            path: Some(&from),
            second: Some(&to),
            len,
            ..Default::default()
        })
    }),
    attempt("path-handle-write", "open by file handle for writing", |t| {
        let fd = by_handle(t, &t.out(""), O_WRONLY)?;
        write_all(fd, b"changed\n")
    }),
    attempt("path-handle-read", "open by file handle for reading, with the workspace as mount", |t| {
        by_handle(t, &t.ws(""), O_RDONLY).map(drop)
    }),
    attempt("path-core-dump", "let the kernel write a core file outside", |t| {
        let pid = fork(|| dump_core(&t.out("")).err().map_or(0, |e| e.0))?;
        match wait(pid)? {
            Ended::Signal { core: true, .. } => Ok(()),
            Ended::Code(n @ 1..) => Err(Errno(n)),
            _ => Err(Errno(libc::EPERM)),
        }
    }),
    attempt("path-acct", "let the kernel write process accounting outside", |t| {
        sys!(libc::SYS_acct, &t.out("f2"))?;
        sys::in_child(|| Ok(()))?;
        sys!(libc::SYS_acct, 0).map(drop)
    }),
];

fn mknod(path: &CStr, kind: u32, device: u64) -> Act {
    sys!(libc::SYS_mknodat, AT_FDCWD, path, kind | 0o644, device).map(drop)
}

pub(crate) fn link(from: &CStr, to: &CStr) -> Act {
    sys!(libc::SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0).map(drop)
}

/// Gives an unnamed file a name, as `open(2)` says: through `/proc/self/fd`, which needs no capability.
pub(crate) fn link_fd(fd: i32, to: &CStr) -> Act {
    let from = c(format!("/proc/self/fd/{fd}"));
    sys!(libc::SYS_linkat, AT_FDCWD, &from, AT_FDCWD, to, libc::AT_SYMLINK_FOLLOW).map(drop)
}

pub(crate) fn rename(from: &CStr, to: &CStr, flags: u32) -> Act {
    sys!(libc::SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags).map(drop)
}

/// Changes the first byte of a file through a shared mapping.
pub(crate) fn store(fd: i32) -> Act {
    let at = map_shared(fd, 4096, 0)?;
    // SAFETY: `at` is the first byte of a writable mapping of a file that is not empty.
    unsafe { at.write_volatile(b'X') };
    Ok(())
}

/// `struct file_handle` with room for every file system's handle.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

fn by_handle(t: &Target, mount: &CStr, flags: i32) -> Result<i32, Errno> {
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount_id = 0i32;
    let file = t.out("f");
    sys!(libc::SYS_name_to_handle_at, AT_FDCWD, &file, write(&mut handle), write(&mut mount_id), 0)?;
    let mount = open_at(AT_FDCWD, mount, O_RDONLY | O_DIRECTORY)?;
    sys!(libc::SYS_open_by_handle_at, mount, write(&mut handle), flags).map(|fd| fd as i32)
}

fn dump_core(dir: &CStr) -> Act {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // Raising the limit may be forbidden; then the inherited one decides.
    let _ = sys!(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, read(&limit), 0);
    sys!(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 1, 0, 0, 0)?;
    sys!(libc::SYS_chdir, dir)?;
    let me = sys!(libc::SYS_getpid)?;
    // Not SIGSEGV, which Rust handles.
    sys!(libc::SYS_kill, me, libc::SIGQUIT).map(drop)
}
