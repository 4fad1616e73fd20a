//! Effects on processes outside.

use crate::{Attempt, attempt, write_file};
use libc::{O_APPEND, O_RDONLY, O_RDWR, O_WRONLY};
use pinfold_conformance::errno::{Act, Errno};
use pinfold_conformance::sys;
use pinfold_conformance::sys::{c, open, read, write, write_all};
use pinfold_conformance::victim::SIGNALS;
use std::ffi::CStr;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("proc-kill-zero", "ask whether the process outside exists", |t| {
        sys!(libc::SYS_kill, t.pid()?, 0).map(drop)
    }),
    attempt("proc-kill-signal", "send SIGUSR1", |t| sys!(libc::SYS_kill, t.pid()?, SIGNALS[0].0).map(drop)),
    attempt("proc-pidfd-signal", "send SIGUSR2 by pidfd", |t| {
        let fd = sys!(libc::SYS_pidfd_open, t.pid()?, 0)?;
        sys!(libc::SYS_pidfd_send_signal, fd, SIGNALS[1].0, 0, 0).map(drop)
    }),
    attempt("proc-setown", "let the kernel send a signal (F_SETOWN, O_ASYNC)", |t| {
        let mut pair = [0i32; 2];
        sys!(libc::SYS_socketpair, libc::AF_UNIX, libc::SOCK_STREAM, 0, write(&mut pair))?;
        sys!(libc::SYS_fcntl, pair[0], libc::F_SETOWN, t.pid()?)?;
        sys!(libc::SYS_fcntl, pair[0], F_SETSIG, SIGNALS[2].0)?;
        sys!(libc::SYS_fcntl, pair[0], libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK)?;
        write_all(pair[1], b"x")
    }),
    attempt("proc-kill-all-zero", "kill(-1, 0)", |_| sys!(libc::SYS_kill, -1, 0).map(drop)),
    attempt("proc-ptrace", "ptrace the process outside", |t| {
        const PTRACE_SEIZE: i32 = 0x4206;
        sys!(libc::SYS_ptrace, PTRACE_SEIZE, t.pid()?, 0, 0).map(drop)
    }),
    attempt("proc-mem", "open its memory for writing", |t| open(&t.victim("mem"), O_RDWR).map(drop)),
    attempt("proc-vm-writev", "write its memory", |t| {
        let text = [t.text(), b"\n"].concat();
        let local = [text.as_ptr() as u64, text.len() as u64];
        let remote = [t.context.victim.memory, text.len() as u64];
        sys!(libc::SYS_process_vm_writev, t.pid()?, read(&local), 1, read(&remote), 1, 0).map(drop)
    }),
    attempt("proc-pidfd-getfd", "take its descriptor and write", |t| {
        let pidfd = sys!(libc::SYS_pidfd_open, t.pid()?, 0)?;
        let fd = sys!(libc::SYS_pidfd_getfd, pidfd, t.context.victim.fd, 0)? as i32;
        write_all(fd, &[t.text(), b"\n"].concat())
    }),
    attempt("proc-root-write", "write below its root", |t| {
        write_file(&t.victim(&format!("root{}/{}/f", t.context.out.display(), t.id)), O_WRONLY)
    }),
    attempt("proc-root-read", "read below its root", |t| {
        open(&t.victim(&format!("root{}/{}/f", t.context.out.display(), t.id)), O_RDONLY).map(drop)
    }),
    attempt("proc-cwd-write", "write below its working directory", |t| {
        write_file(&t.victim(&format!("cwd/{}/f", t.id)), O_WRONLY)
    }),
    attempt("proc-fd-write", "write through its descriptor in /proc", |t| {
        let fd = open(&t.victim(&format!("fd/{}", t.context.victim.fd)), O_WRONLY | O_APPEND)?;
        write_all(fd, &[t.text(), b"\n"].concat())
    }),
    attempt("proc-environ", "read its environment", |t| read_some(&t.victim("environ"))),
    attempt("proc-cmdline", "read its command line", |t| read_some(&t.victim("cmdline"))),
    attempt("proc-prlimit", "change its limits", |t| {
        let pid = t.pid()?;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        sys!(libc::SYS_prlimit64, pid, libc::RLIMIT_MSGQUEUE, 0, write(&mut limit))?;
        limit.rlim_cur /= 2;
        sys!(libc::SYS_prlimit64, pid, libc::RLIMIT_MSGQUEUE, read(&limit), 0).map(drop)
    }),
    attempt("proc-setpriority", "change its nice value", |t| {
        // The highest: an ordinary user may only raise it, and the harness may itself run under nice(1).
        sys!(libc::SYS_setpriority, libc::PRIO_PROCESS, t.pid()?, 19).map(drop)
    }),
    attempt("proc-setaffinity", "change its processor set", |t| {
        let mut set = [0u64; 16];
        sys!(libc::SYS_sched_getaffinity, 0, 128usize, write(&mut set))?;
        // Take the lowest processor away; if it is the only one, there is nothing to try.
        let mut fewer = set;
        fewer[0] &= fewer[0].wrapping_sub(1);
        sys!(libc::SYS_sched_setaffinity, t.pid()?, 128usize, read(&fewer)).map(drop)
    }),
    attempt("proc-ioprio", "change its I/O priority", |t| {
        sys!(libc::SYS_ioprio_set, 1, t.pid()?, (2 << 13) | 7).map(drop)
    }),
    attempt("proc-sched-policy", "give it a lower scheduling policy", |t| {
        let parameter = 0i32;
        sys!(libc::SYS_sched_setscheduler, t.pid()?, libc::SCHED_BATCH, read(&parameter)).map(drop)
    }),
    attempt("proc-oom-score", "raise its oom_score_adj", |t| {
        let fd = open(&t.victim("oom_score_adj"), O_WRONLY)?;
        write_all(fd, b"500")
    }),
    attempt("proc-kcmp", "compare its descriptors with ours", |t| {
        let me = sys!(libc::SYS_getpid)?;
        sys!(libc::SYS_kcmp, me, t.pid()?, 0, 0, 0).map(drop)
    }),
    attempt("proc-launcher-signal", "signal the process that started the run", |_| {
        // Harmless where it works: it only continues what is stopped.
        sys!(libc::SYS_kill, starter()?, libc::SIGCONT).map(drop)
    }),
    // For reading: a /proc that is mounted read-only would hide whether the process is protected.
    attempt("proc-launcher-mem", "open the memory of the process that started the run", |_| {
        open(&c(format!("/proc/{}/mem", starter()?)), O_RDONLY).map(drop)
    }),
    attempt("proc-launcher-fd", "reach any descriptor of the process that started the run", |_| {
        let launcher = starter()?;
        let reach = |n: i32| open(&c(format!("/proc/{launcher}/fd/{n}")), libc::O_PATH).map(drop);
        // The first that is there decides.
        (0..64).map(reach).find(|r| *r != Err(Errno(libc::ENOENT))).unwrap_or(Err(Errno(libc::ENOENT)))
    }),
];

/// The parent of the process that makes the attempts: a launcher, or the harness where nothing is confined.
fn starter() -> Result<i32, Errno> {
    let run_all = sys!(libc::SYS_getppid)?;
    let stat = std::fs::read_to_string(format!("/proc/{run_all}/stat"))?;
    // Field 4, counted after the name in parentheses.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let parent = after_name.split_whitespace().nth(1).and_then(|f| f.parse().ok());
    parent.filter(|pid| *pid > 0).ok_or(Errno(libc::ENODATA))
}

const F_SETSIG: i32 = 10;

fn read_some(path: &CStr) -> Act {
    let fd = open(path, O_RDONLY)?;
    let mut bytes = [0u8; 16];
    let n = sys!(libc::SYS_read, fd, &mut bytes[..], 16usize)?;
    if n > 0 { Ok(()) } else { Err(Errno(libc::ENODATA)) }
}
