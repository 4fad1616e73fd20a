//! Effects through the kernel's message paths: unix sockets, System V and POSIX IPC, keyrings, memory files.

use crate::{Attempt, Target, attempt};
use libc::{O_RDONLY, O_WRONLY};
use pinfold_conformance::errno::{Act, Errno};
use pinfold_conformance::sys;
use pinfold_conformance::sys::{Ended, c, fork, open, read, unix_address, wait, write, write_all};
use std::ffi::CStr;

const USER_KEYRING: i32 = -4;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("ipc-unix-stream", "connect to a pathname stream socket outside", |t| {
        connect(t, &c(&t.context.victim.stream))
    }),
    attempt("ipc-unix-dgram", "send to a pathname datagram socket outside", |t| send(t, &c(&t.context.victim.dgram))),
    attempt("ipc-unix-via-proc-cwd", "connect to a socket below the working directory of the process outside", |t| {
        let name = t.context.victim.stream.file_name().unwrap_or_default().to_string_lossy().into_owned();
        connect(t, &t.victim(&format!("cwd/{name}")))
    }),
    attempt("ipc-abstract-stream", "connect to an abstract stream socket outside", |t| {
        connect(t, &c(&t.context.victim.abstract_stream))
    }),
    attempt("ipc-abstract-dgram", "send to an abstract datagram socket outside", |t| {
        send(t, &c(&t.context.victim.abstract_dgram))
    }),
    attempt("ipc-shm-write", "attach System V shared memory outside and write", |t| {
        let at = sys!(libc::SYS_shmat, t.context.victim.shm, 0, 0)? as usize as *mut u8;
        for (i, byte) in t.text().iter().enumerate() {
            // SAFETY: the segment that shmat mapped has 4096 bytes, more than an id; the victim reads it volatile.
            unsafe { at.add(i).write_volatile(*byte) };
        }
        Ok(())
    }),
    attempt("ipc-msgsnd", "send to a System V queue outside", |t| {
        let message = [&1i64.to_ne_bytes()[..], t.text()].concat();
        sys!(libc::SYS_msgsnd, t.context.victim.msg, message.as_slice(), t.text().len(), libc::IPC_NOWAIT).map(drop)
    }),
    attempt("ipc-semop", "raise a System V semaphore outside", |t| {
        let operation = [0i16, 1, 0];
        sys!(libc::SYS_semop, t.context.victim.sem, read(&operation), 1).map(drop)
    }),
    attempt("ipc-mq-send", "send to a POSIX message queue outside", |t| {
        let fd = sys!(libc::SYS_mq_open, &c(&t.context.victim.mq), O_WRONLY, 0, 0)?;
        sys!(libc::SYS_mq_timedsend, fd, t.text(), t.text().len(), 0, 0).map(drop)
    }),
    attempt("ipc-add-key", "add a key to the user keyring", |t| {
        let name = c(format!("{}.new", t.context.tag));
        let key = sys!(libc::SYS_add_key, c"user", &name, &b"x"[..], 1usize, USER_KEYRING)?;
        // KEYCTL_UNLINK: leave nothing behind where it worked.
        sys!(libc::SYS_keyctl, 9, key, USER_KEYRING).map(drop)
    }),
    attempt("ipc-read-key", "read a key of the process outside", |t| {
        // KEYCTL_SEARCH, KEYCTL_READ
        let key = sys!(libc::SYS_keyctl, 10, USER_KEYRING, c"user", &c(&t.context.victim.key), 0)?;
        let mut bytes = [0u8; 128];
        let n = sys!(libc::SYS_keyctl, 11, key, &mut bytes[..], 128usize)?;
        if &bytes[..n as usize] == t.context.victim.key.as_bytes() { Ok(()) } else { Err(Errno(libc::EBADMSG)) }
    }),
    attempt("ipc-request-key", "find a key of the process outside with request_key", |t| {
        sys!(libc::SYS_request_key, c"user", &c(&t.context.victim.key), 0, USER_KEYRING).map(drop)
    }),
    attempt("ipc-memfd-write", "write a memory file", |_| write_all(memfd()?, b"x")),
    attempt("ipc-memfd-exec", "execute a memory file", |_| {
        let program = std::fs::read("/bin/true")?;
        let fd = memfd()?;
        write_all(fd, &program)?;
        // A descriptor open for writing is ETXTBSY: execute one open for reading.
        let again = open(&c(format!("/proc/self/fd/{fd}")), O_RDONLY)?;
        sys::close(fd);
        let pid = fork(|| sys::exec_at(again, c"", &[c"true"], libc::AT_EMPTY_PATH).err().map_or(0, |e| e.0))?;
        match wait(pid)? {
            Ended::Code(0) => Ok(()),
            Ended::Code(n) => Err(Errno(n)),
            Ended::Signal { .. } => Err(Errno(libc::EINTR)),
        }
    }),
];

fn memfd() -> Result<i32, Errno> {
    sys!(libc::SYS_memfd_create, c"hostile", libc::MFD_CLOEXEC).map(|fd| fd as i32)
}

/// Connects a stream socket to this name and sends the attempt's id.
fn connect(t: &Target, name: &CStr) -> Act {
    let socket = sys!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)? as i32;
    let (address, length) = unix_address(name);
    sys!(libc::SYS_connect, socket, read(&address), length)?;
    write_all(socket, t.text())
}

/// Sends the attempt's id in a datagram to this name.
fn send(t: &Target, name: &CStr) -> Act {
    let socket = sys!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
    let (address, length) = unix_address(name);
    sys!(libc::SYS_sendto, socket, t.text(), t.text().len(), 0, read(&address), length).map(drop)
}

/// A stream server and its client, both here; the name may be abstract.
pub(crate) fn talk_to_self(name: &CStr) -> Act {
    let server = sys!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0)?;
    let (address, length) = unix_address(name);
    sys!(libc::SYS_bind, server, read(&address), length)?;
    sys!(libc::SYS_listen, server, 4)?;
    let client = sys!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0)? as i32;
    sys!(libc::SYS_connect, client, read(&address), length)?;
    let peer = sys!(libc::SYS_accept4, server, 0, 0, 0)?;
    write_all(client, b"x")?;
    let mut byte = [0u8; 1];
    sys!(libc::SYS_read, peer, &mut byte[..], 1usize).map(drop)
}

/// Makes and removes private System V shared memory.
pub(crate) fn private_shm() -> Act {
    let id = sys!(libc::SYS_shmget, libc::IPC_PRIVATE, 4096usize, 0o600)?;
    sys!(libc::SYS_shmat, id, 0, 0)?;
    let mut information = [0u64; 32];
    sys!(libc::SYS_shmctl, id, libc::IPC_RMID, write(&mut information)).map(drop)
}
