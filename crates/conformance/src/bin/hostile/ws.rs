//! What must keep working in the workspace, and what a command finds in `/dev` and `/proc`.

use crate::{Attempt, attempt, ipc, meta, net, path, write_file};
use libc::{AT_FDCWD, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TMPFILE, O_TRUNC, O_WRONLY};
use pinfold_conformance::errno::Errno;
use pinfold_conformance::sys;
use pinfold_conformance::sys::{Ended, c, close, fork, open, wait, write, write_all};

pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("ws-create", "create a file", |t| write_file(&t.ws("new"), O_WRONLY | O_CREAT | O_EXCL)),
    attempt("ws-truncate", "truncate a file", |t| open(&t.ws("f"), O_WRONLY | O_TRUNC).map(drop)),
    attempt("ws-mkdir", "make directories", |t| {
        sys!(libc::SYS_mkdirat, AT_FDCWD, &t.ws("new"), 0o755)?;
        sys!(libc::SYS_mkdirat, AT_FDCWD, &t.ws("new/deep"), 0o755).map(drop)
    }),
    attempt("ws-rename-across-dirs", "rename a file into another directory", |t| {
        path::rename(&t.ws("f"), &t.ws("d/new"), 0)
    }),
    attempt("ws-rename-dir", "rename a directory into another", |t| path::rename(&t.ws("empty"), &t.ws("d/new"), 0)),
    attempt("ws-link-across-dirs", "hard link into another directory", |t| path::link(&t.ws("f"), &t.ws("d/new"))),
    attempt("ws-tmpfile-linkat", "name an unnamed file", |t| {
        let fd = open(&t.ws(""), O_TMPFILE | O_RDWR)?;
        path::link_fd(fd, &t.ws("new"))
    }),
    attempt("ws-chmod", "chmod a file", |t| meta::chmod(&t.ws("f"), 0o755)),
    attempt("ws-setxattr", "set an extended attribute", |t| meta::setxattr(&t.ws("f"), c"user.new", b"1")),
    attempt("ws-mkfifo", "make a FIFO", |t| {
        sys!(libc::SYS_mknodat, AT_FDCWD, &t.ws("new"), libc::S_IFIFO | 0o644, 0).map(drop)
    }),
    attempt("ws-unix-socket", "serve and connect a unix socket by path", |t| ipc::talk_to_self(&t.ws("s"))),
    attempt("ws-exec", "execute a file of the workspace", |t| meta::succeeds(&t.ws("prog"))),
    attempt("ws-exec-true", "execute /bin/true", |_| meta::succeeds(c"/bin/true")),
    attempt("ws-kill-child", "end an own child", |_| {
        let pid = sleeper()?;
        sys!(libc::SYS_kill, pid, libc::SIGKILL)?;
        match wait(pid)? {
            Ended::Signal { signal: libc::SIGKILL, .. } => Ok(()),
            _ => Err(Errno(libc::ECHILD)),
        }
    }),
    attempt("ws-ptrace-child", "trace an own child", |_| {
        const PTRACE_SEIZE: i32 = 0x4206;
        let pid = sleeper()?;
        let traced = sys!(libc::SYS_ptrace, PTRACE_SEIZE, pid, 0, 0).map(drop);
        sys!(libc::SYS_kill, pid, libc::SIGKILL)?;
        wait(pid)?;
        traced
    }),
    attempt("ws-own-priority", "lower the own priority, by number 0", |_| {
        sys!(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, 19)?;
        sys!(libc::SYS_ioprio_set, 1, 0, (2 << 13) | 7)?;
        let parameter = 0i32;
        sys!(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, sys::read(&parameter)).map(drop)
    }),
    attempt("ws-thread-scheduling", "set processors and policy of an own thread, by its number", |_| {
        // What pthread_setaffinity_np(3) and pthread_setschedparam(3) do.
        let thread = sys!(libc::SYS_gettid)?;
        let mut set = [0u64; 16];
        sys!(libc::SYS_sched_getaffinity, thread, 128usize, write(&mut set))?;
        sys!(libc::SYS_sched_setaffinity, thread, 128usize, sys::read(&set))?;
        let parameter = 0i32;
        sys!(libc::SYS_sched_setscheduler, thread, libc::SCHED_OTHER, sys::read(&parameter)).map(drop)
    }),
    attempt("ws-core-limit", "set the limit on cores", |_| {
        let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        sys!(libc::SYS_setrlimit, libc::RLIMIT_CORE, sys::read(&limit))?;
        sys!(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, sys::read(&limit), 0).map(drop)
    }),
    attempt("ws-abstract-socket", "serve and connect an abstract socket inside", |t| {
        ipc::talk_to_self(&c(format!("@{}.inside.{}", t.context.tag, std::process::id())))
    }),
    attempt("ws-tcp-loopback", "serve and connect TCP on loopback inside", |_| net::talk_to_self()),
    attempt("ws-dev-null", "write /dev/null", |_| write_file(c"/dev/null", O_WRONLY)),
    attempt("ws-dev-urandom", "read /dev/urandom", |_| {
        let fd = open(c"/dev/urandom", O_RDONLY)?;
        let mut bytes = [0u8; 16];
        sys!(libc::SYS_read, fd, &mut bytes[..], 16usize).map(drop)
    }),
    attempt("ws-dev-stdin", "find /dev/stdin", |_| {
        let mut bytes = [0u8; 64];
        sys!(libc::SYS_readlinkat, AT_FDCWD, c"/dev/stdin", &mut bytes[..], 64usize).map(drop)
    }),
    attempt("ws-pty", "open a pseudo-terminal and its slave", |_| {
        let master = open(c"/dev/ptmx", O_RDWR | libc::O_NOCTTY)?;
        let (mut number, unlock) = (0u32, 0u32);
        meta::ioctl(master, 0x4004_5431, sys::read(&unlock))?;
        meta::ioctl(master, 0x8004_5430, write(&mut number))?;
        let slave = open(&c(format!("/dev/pts/{number}")), O_RDWR | libc::O_NOCTTY)?;
        write_all(slave, b"x")?;
        let mut byte = [0u8; 1];
        sys!(libc::SYS_read, master, &mut byte[..], 1usize)?;
        close(slave);
        Ok(())
    }),
    attempt("ws-proc-comm", "write /proc/self/comm", |_| write_file(c"/proc/self/comm", O_WRONLY)),
    attempt("ws-oom-score", "raise the own oom_score_adj", |_| {
        let fd = open(c"/proc/self/oom_score_adj", O_WRONLY)?;
        write_all(fd, b"900")
    }),
    attempt("ws-proc-self", "find the own process in /proc", |_| {
        open(&c(format!("/proc/{}/status", std::process::id())), O_RDONLY).map(drop)
    }),
    attempt("ws-dev-fuse", "open /dev/fuse", |_| open(c"/dev/fuse", O_RDWR).map(drop)),
    attempt("ws-dev-kvm", "open /dev/kvm", |_| open(c"/dev/kvm", O_RDWR).map(drop)),
    attempt("ws-private-shm", "make System V shared memory", |_| ipc::private_shm()),
    attempt("ws-nested-landlock", "confine itself further with Landlock", |_| crate::admin::landlock_layers(1)),
    attempt("ws-nested-bwrap", "start bubblewrap", |_| {
        let bwrap = c"/usr/bin/bwrap";
        open(bwrap, O_RDONLY)?;
        let args = [bwrap, c"--ro-bind", c"/", c"/", c"--proc", c"/proc", c"/bin/true"];
        // It says nothing by its status but that it failed; its complaint goes to our standard error.
        let quiet = open(c"/dev/null", O_WRONLY)?;
        sys!(libc::SYS_dup3, quiet, 2, 0)?;
        match sys::run(bwrap, &args)? {
            Ended::Code(0) => Ok(()),
            _ => Err(Errno(libc::EPERM)),
        }
    }),
];

/// A child that does nothing for a while.
fn sleeper() -> Result<i32, Errno> {
    fork(|| {
        std::thread::sleep(std::time::Duration::from_secs(10));
        0
    })
}
