//! What ends a call whose beginning another program's walls leave to chance.
//!
//! QUIRK: bubblewrap becomes two processes, and the second, the init of everything inside, asks to be told of the first one's
//! death (`--die-with-parent`) some milliseconds later. If the first is killed in between, the second goes on, and so does the
//! command. So a guard, a child of the first process, watches it and its caller until the launcher inside says that it does.
//! What the guard finds left behind it ends.

use core::ffi::CStr;

use linux_raw_sys::general as g;

use crate::descriptors;
use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::status::Line;
use crate::sys::{self, Signals, Text};
use crate::words::number;

/// The process that becomes bubblewrap, as a descriptor. It passes through bubblewrap under this number, below those of a
/// caller of ours and above those that shells use.
const PROCESS: i32 = 98;
/// Where the launcher inside says that it watches.
const WATCHED: i32 = 99;
/// The guard, as a descriptor.
const GUARD: i32 = 97;

/// Words of bubblewrap's that mean nothing but tell the processes of one call from all others.
pub(crate) type Mark = [Text; 2];

/// Starts the guard of this process; returns what is to stand behind the name of the program that it becomes.
pub(crate) fn start() -> Result<Mark, Failure> {
    let us = sys::getpid();
    let parent = sys::getppid();
    // A caller outside of our PID namespace cannot be watched; there the program has its own ways.
    let caller = if parent == 0 { None } else { Some(sys::pidfd_open(parent)) };
    let open = || {
        let process = sys::pidfd_open(us)?;
        let (told, tell) = sys::pipe()?;
        Ok((process, told, tell, sys::fstat(told)?.inode))
    };
    let (process, told, tell, inode) =
        open().or_fail("supervisor", "cannot prepare a guard (pidfd_open, Linux 5.3)")?;
    // RACE: the caller may have ended before we looked; then somebody else is our parent by now.
    if sys::getppid() != parent {
        return Err(Failure::new("supervisor", "the caller has ended"));
    }
    // Neither number is that of another living call.
    let mut line = Line::new();
    line.text("PINFOLD_GUARD_").number(us.into()).text("_").number(inode as i64);
    let mark = sys::keep(line.as_cstr()).or_fail("supervisor", "no memory")?;
    let guard = sys::fork(0).or_fail("fork", "cannot start a guard")?;
    if guard == 0 {
        watch(process, told, caller.and_then(Result::ok), mark);
    }
    let guard = sys::pidfd_open(guard).or_fail("supervisor", "cannot watch the guard")?;
    for (from, to) in [(process, PROCESS), (tell, WATCHED), (guard, GUARD)] {
        sys::duplicate_onto(from, to).or_fail("supervisor", "cannot hand on what the guard needs")?;
    }
    Ok([c"--unsetenv".into(), mark.into()])
}

/// Inside: returns what tells of the end of the process outside, and lets the guard go.
pub(crate) fn relieve() -> Result<i32, Failure> {
    let process = sys::fcntl(PROCESS, g::F_DUPFD_CLOEXEC, 3).or_fail("supervisor", "there is no guard")? as i32;
    if sys::events_now(process, g::POLLIN) != 0 {
        return Err(Failure::new("supervisor", "the process outside has ended"));
    }
    // It may have been killed with its group; whoever it watched over then ended as well.
    let _ = sys::write(WATCHED, b"+");
    // QUIRK: bubblewrap reaps strangers only as long as it waits, so one that ended later would be left to our caller.
    let _ = sys::poll(&mut [g::pollfd { fd: GUARD, events: g::POLLIN as i16, revents: 0 }]);
    // SINCE(Linux 6.9): the descriptor tells that it was reaped; before, that much time is given.
    sys::wait_for_hangup(GUARD, 20);
    Ok(process)
}

/// The guard.
fn watch(process: i32, told: i32, caller: Option<i32>, mark: &CStr) -> ! {
    let keep = [process, told, caller.unwrap_or(process)];
    // What a terminal sends to the whole group is not for it, nor may it hold what the caller waits to see closed.
    let _ = sys::block(Signals::ALL);
    if descriptors::close_all_but(keep).is_err() {
        sys::exit(125);
    }
    loop {
        let entry = |fd| g::pollfd { fd, events: g::POLLIN as i16, revents: 0 };
        let mut wanted = [entry(process), entry(caller.unwrap_or(-1)), entry(told)];
        if sys::poll(&mut wanted).is_err() {
            continue;
        }
        let [ended, abandoned, told] = wanted.map(|entry| entry.revents != 0);
        if ended {
            end_left_behind(mark);
            sys::exit(0);
        }
        if abandoned {
            // It may have ended by itself; the next look says so.
            let _ = sys::pidfd_send_signal(process, g::SIGKILL);
            let mut last = [entry(process)];
            let _ = sys::poll(&mut last);
        } else if told {
            sys::exit(0);
        }
    }
}

/// Ends the init of a call whose first process has ended, and with it everything inside.
fn end_left_behind(mark: &CStr) {
    // Nothing makes new ones, so that one more look finds nothing.
    for _ in 0..8 {
        let mut found = false;
        let Ok(directory) = sys::open(sys::CWD, c"/proc", g::O_RDONLY | g::O_DIRECTORY, 0) else { return };
        let listed = descriptors::each_name(directory, |name| {
            let Some(pid) = number(name).and_then(|pid| i32::try_from(pid).ok()) else { return };
            // RACE: the number may have become another's before it was opened; what is open stays the same.
            if bears(pid, mark)
                && let Ok(process) = sys::pidfd_open(pid)
            {
                found |= bears(pid, mark) && sys::pidfd_send_signal(process, g::SIGKILL).is_ok();
                sys::close(process);
            }
        });
        sys::close(directory);
        if !found || listed.is_err() {
            return;
        }
    }
}

/// Whether the mark stands among the first words of a process. A command inside that puts it among its own is ended with the
/// call that it belongs to.
fn bears(pid: i32, mark: &CStr) -> bool {
    let mut path = Line::new();
    path.text("/proc/").number(pid.into()).text("/cmdline");
    let mut words = [0_u8; 4096];
    let read = |fd| -> Result<usize, Errno> { sys::read(fd, &mut words).inspect(|_| sys::close(fd)) };
    let length = sys::open(sys::CWD, path.as_cstr(), g::O_RDONLY, 0).and_then(read).unwrap_or(0);
    words.get(..length).unwrap_or_default().split(|byte| *byte == 0).take(6).any(|word| word == mark.to_bytes())
}
