//! The two processes that stay while the command runs: one outside that the caller knows, and, with namespaces, one
//! inside that is PID 1 there.
//!
//! The outer one copies streams, forwards signals, watches the caller, and ends as the command ended. The inner one reaps
//! orphans; when it exits, the kernel kills everything in its PID namespace, so nothing outlives the call.

use linux_raw_sys::{general as g, prctl as p};

use crate::command::Command;
use crate::descriptors;
use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::landlock;
use crate::mounts;
use crate::spec::{Network, Wall};
use crate::status::Line;
use crate::streams::{self, Pumps};
use crate::sys::{self, Signals};

/// Room for the functions between vfork and exec.
const STACK_BYTES: usize = 256 << 10;

/// Signals that a terminal sends to a whole group; the rest is meant for one process.
const GROUP_SIGNALS: [u32; 7] = [g::SIGHUP, g::SIGINT, g::SIGQUIT, g::SIGTSTP, g::SIGCONT, g::SIGWINCH, g::SIGPIPE];

/// Signals that ask to end: after the command, they end what is left to do.
const END_SIGNALS: [u32; 4] = [g::SIGHUP, g::SIGINT, g::SIGQUIT, g::SIGTERM];

/// How the launcher must end: a wait status.
type WaitStatus = i32;

/// Runs the command under supervision and ends as it ended.
pub(crate) fn run(mut command: Command) -> ! {
    let status = command.status;
    match start(&mut command) {
        Ok(outer) => outer.watch(command),
        Err(failure) => {
            status.setup_failed(&failure);
            sys::exit(125)
        }
    }
}

/// The process that the caller knows.
struct Outer {
    /// The direct child: PID 1 of the namespace, or the command.
    child: i32,
    /// Where the inner process says how the command ended (without namespaces: nothing).
    ending: Option<i32>,
    signals: i32,
    /// Becomes readable when the caller has ended.
    caller: Option<i32>,
    /// How the child ended, once it has.
    ended: Option<WaitStatus>,
    /// Nobody wants any more what is left to do.
    abandoned: bool,
    /// Our signals reach what we have started, and nobody else.
    enclosed: bool,
}

impl Outer {
    fn new(child: i32, ending: Option<i32>, signals: i32, caller: Option<i32>) -> Self {
        Self { child, ending, signals, caller, ended: None, abandoned: false, enclosed: false }
    }
}

fn start(command: &mut Command) -> Result<Outer, Failure> {
    // Whoever starts us and reads what we report may have ended before we could look who that is.
    if command.status.0.is_some_and(|fd| sys::events_now(fd, 0) & g::POLLERR != 0) {
        return Err(Failure::new("supervisor", "nobody reads the status channel any more"));
    }
    // Inside another program's walls our parent is its init; who must not be outlived is the process outside.
    let caller = if command.outer.is_some() { command.outer } else { watch_caller(command.caller)? };
    let signals = sys::signal_descriptor(Signals::ALL).or_fail("supervisor", "cannot watch signals")?;
    if command.plan.wall == Wall::Landlock {
        sys::prctl(p::PR_SET_CHILD_SUBREAPER, 1).or_fail("supervisor", "cannot adopt orphans")?;
        // SECURITY: the command runs as the same user; it may not trace or read this process.
        sys::prctl(p::PR_SET_DUMPABLE, 0).or_fail("supervisor", "cannot hide from debuggers")?;
        command.follow = Some(sys::getpid());
        let enclosed = landlock::keep_signals_inside(&command.plan)?;
        let child = execute_beside(command)?;
        return Ok(Outer { enclosed, ..Outer::new(child, None, signals, caller) });
    }
    let (user, group) = sys::effective_ids();
    let (ending, report) = sys::pipe().or_fail("supervisor", "cannot make a pipe")?;
    let mut namespaces = g::CLONE_NEWUSER | g::CLONE_NEWNS | g::CLONE_NEWPID | g::CLONE_NEWIPC | g::CLONE_NEWUTS;
    if command.plan.network != Network::Open {
        namespaces |= g::CLONE_NEWNET;
    }
    let child = sys::fork(namespaces).or_fail("namespaces", "cannot create namespaces")?;
    if child == 0 {
        sys::close(ending);
        sys::close(signals);
        caller.iter().for_each(|fd| sys::close(*fd));
        be_init(command, report, user, group)
    }
    sys::close(report);
    Ok(Outer::new(child, Some(ending), signals, caller))
}

/// Returns a descriptor that becomes readable when the caller ends.
///
/// PR_SET_PDEATHSIG would do so when the *thread* that started us ends, which a harness with worker threads does not mean.
fn watch_caller(expected: Option<i32>) -> Result<Option<i32>, Failure> {
    let caller = sys::getppid();
    if caller != 0 && expected.is_some_and(|expected| expected != caller) {
        return Err(Failure::new("supervisor", "the caller has ended"));
    }
    if caller == 0 {
        // The caller lives outside our PID namespace, as with `docker exec`.
        sys::prctl(p::PR_SET_PDEATHSIG, g::SIGKILL as usize).or_fail("supervisor", "cannot follow the caller")?;
        return Ok(None);
    }
    let fd = match sys::pidfd_open(caller) {
        // SINCE(Linux 5.3): pidfd_open(2); some container profiles refuse it.
        Err(Errno::NOSYS | Errno::PERM) => {
            sys::prctl(p::PR_SET_PDEATHSIG, g::SIGKILL as usize).or_fail("supervisor", "cannot follow the caller")?;
            None
        }
        Ok(fd) => Some(fd),
        Err(_) => return Err(Failure::new("supervisor", "the caller has ended")),
    };
    // RACE: the caller may have ended before we looked; then somebody else is our parent by now.
    if sys::getppid() == caller { Ok(fd) } else { Err(Failure::new("supervisor", "the caller has ended")) }
}

/// Starts the command as a child, on a stack of its own, and waits until it has executed or given up.
fn execute_beside(command: &Command) -> Result<i32, Failure> {
    extern "C" fn child(command: &Command) -> ! {
        command.become_it()
    }
    let stack = sys::allocate(STACK_BYTES).or_fail("fork", "no memory")?;
    let child = sys::vfork(stack, child, command).or_fail("fork", "cannot start a process")?;
    if command.progress.was_executed() {
        command.status.send(Line::new().text("started"));
    }
    Ok(child)
}

impl Outer {
    fn watch(mut self, mut command: Command) -> ! {
        command.pumps.keep_outside_only();
        command.plan.broker.into_iter().chain(command.plan.awaits).for_each(sys::close);
        // The caller should see the end of a stream when the command closes it. Standard error stays, for our own words.
        sys::close(0);
        sys::close(1);
        let ended = loop {
            self.serve(&mut command.pumps);
            if let Some(ended) = self.ended {
                break ended;
            }
        };
        if command.plan.wall == Wall::Landlock {
            end_descendants(self.child, self.enclosed);
        }
        // Whoever reads may be slow; without a caller nobody is waited for.
        while !command.pumps.drain() && !self.abandoned {
            self.serve(&mut command.pumps);
        }
        command.pumps.give_back();
        command.pumps.say_what_failed();
        let wait_status = self.ending.and_then(read_ending).unwrap_or(ended);
        if command.plan.wall == Wall::Landlock && command.progress.was_executed() {
            report_ending(&command, wait_status);
        }
        end_as(wait_status)
    }

    /// Waits once for streams, signals and the caller, and does what is to be done.
    fn serve(&mut self, pumps: &mut Pumps) {
        let entry = |fd: Option<i32>| g::pollfd { fd: fd.unwrap_or(-1), events: g::POLLIN as i16, revents: 0 };
        let [input, output, error] = pumps.interests();
        let mut wanted = [input, output, error, entry(Some(self.signals)), entry(self.caller)];
        if sys::poll(&mut wanted).is_err() {
            return;
        }
        let [input, output, error, signals, caller] = wanted.map(|entry| entry.revents != 0);
        pumps.advance([input, output, error]);
        if caller {
            // Without its caller nobody wants the command any more.
            self.abandoned = true;
            self.caller = None;
            self.forward(g::SIGKILL);
        }
        if signals {
            self.take_signals();
        }
    }

    /// Forwards what was received, and sees the child end.
    fn take_signals(&mut self) {
        // struct signalfd_siginfo: 128 bytes, the signal's number first.
        let mut info = [0_u8; 128];
        while sys::read(self.signals, &mut info) == Ok(info.len()) {
            let signal = u32::from_ne_bytes([info[0], info[1], info[2], info[3]]);
            if signal != g::SIGCHLD {
                self.forward(signal);
                continue;
            }
            while let Ok((pid, status)) = sys::wait(-1, false)
                && pid > 0
            {
                if has_ended(pid, status) && pid == self.child {
                    self.ended = self.ended.or(Some(status));
                }
            }
        }
    }

    fn forward(&mut self, signal: u32) {
        if self.ended.is_some() {
            self.abandoned |= END_SIGNALS.contains(&signal);
            return;
        }
        // The child may have ended a moment ago.
        let _ = match self.ending {
            Some(_) => sys::kill(self.child, signal as i32),
            None => deliver(self.child, signal),
        };
        if signal == g::SIGTSTP {
            // A shell that waits for us should get its prompt back.
            let _ = sys::kill(sys::getpid(), g::SIGSTOP as i32);
        }
    }
}

/// Gives a signal to the command, or to its whole group if a terminal would.
fn deliver(command: i32, signal: u32) -> Result<(), Errno> {
    let whom = if GROUP_SIGNALS.contains(&signal) { -command } else { command };
    sys::kill(whom, signal as i32)
}

/// PID 1 of the namespaces: builds the tree, starts the command, reaps, forwards, and takes everything along when the
/// command ends.
fn be_init(command: &mut Command, report: i32, user: u32, group: u32) -> ! {
    let outcome = prepare_inside(command, report, user, group).and_then(|()| execute_beside(command));
    let pid = match outcome {
        Ok(pid) => pid,
        Err(failure) => {
            command.status.setup_failed(&failure);
            sys::exit(125)
        }
    };
    // Whoever reads what the command writes, or writes what it reads, should see the end when the command closes it.
    if let Err(failure) = descriptors::close_all(0, [Some(report), command.status.0]) {
        command.status.setup_failed(&failure);
        sys::exit(125)
    }
    let wait_status = loop {
        match sys::wait_signal(Signals::ALL) {
            Ok((g::SIGCHLD, _)) => {
                if let Some(status) = reap_until(pid) {
                    break status;
                }
            }
            // Only the outer process has no number in here; what the command sends to PID 1 goes nowhere.
            Ok((signal, 0)) => _ = deliver(pid, signal),
            _ => {}
        }
    };
    // With PID 1 all others would end as well, but somebody would have to wait until its namespaces are taken down before the
    // end could be told. A process that forks escapes neither: none is made while the kernel goes through all.
    let _ = sys::kill(-1, g::SIGKILL as i32);
    while sys::wait(-1, true).is_ok() {}
    if command.progress.was_executed() {
        report_ending(command, wait_status);
    }
    // If this write fails, the outer process is gone and so is everybody who could want to know.
    let _ = sys::write(report, &wait_status.to_ne_bytes());
    sys::exit(0)
}

fn prepare_inside(command: &mut Command, report: i32, user: u32, group: u32) -> Result<(), Failure> {
    sys::prctl(p::PR_SET_PDEATHSIG, g::SIGKILL as usize).or_fail("supervisor", "cannot follow the outer process")?;
    // RACE: the outer process may have ended before the line above; then nobody reads this pipe.
    if sys::events_now(report, 0) & g::POLLERR != 0 {
        return Err(Failure::new("supervisor", "the outer process has ended"));
    }
    mounts::map_ids(user, group)?;
    // SECURITY: the command may be the same user; it may not trace PID 1 or look through its /proc entries. (Not before
    // the line above: the files of a process that is not dumpable belong to root.)
    sys::prctl(p::PR_SET_DUMPABLE, 0).or_fail("supervisor", "cannot hide from debuggers")?;
    if command.plan.network == Network::Private {
        sys::raise_loopback().or_fail("network", "cannot raise the loopback device")?;
    }
    let terminals = streams::find_terminals()?;
    command.trees = mounts::build(&command.plan, terminals)?;
    streams::reopen_devices()
}

/// Takes the status of children that have ended; returns that of `pid` if it is among them.
fn reap_until(pid: i32) -> Option<WaitStatus> {
    while let Ok((ended, status)) = sys::wait(-1, false)
        && ended > 0
    {
        if has_ended(ended, status) && ended == pid {
            return Some(status);
        }
    }
    None
}

/// False if a child has only stopped, because it has made us its tracer (PTRACE_TRACEME). We let it go: then it receives what
/// it has stopped for, as it would without a tracer.
fn has_ended(pid: i32, status: WaitStatus) -> bool {
    if status & 0xff != 0x7f {
        return true;
    }
    let signal = (status >> 8) & 0xff;
    // After execve(2) it stops by a signal that only a tracer wants.
    let _ = sys::detach(pid, if signal == g::SIGTRAP as i32 { 0 } else { signal });
    false
}

/// Without a PID namespace: ends what the command left behind. Orphans become our children, because we are a subreaper.
fn end_descendants(command: i32, enclosed: bool) {
    let _ = sys::kill(-command, g::SIGKILL as i32);
    if sys::wait(-1, false).is_err() {
        // Nobody is left.
        return;
    }
    if enclosed && spares_others() {
        // RACE: a process that forks faster than others are found cannot escape: no process is made while the kernel goes
        // through all, and one that has been killed makes no other.
        let _ = sys::kill(-1, g::SIGKILL as i32);
        while sys::wait(-1, true).is_ok() {}
        return;
    }
    let mut buffer = [0_u8; 4096];
    loop {
        let Ok(fd) = sys::open(sys::CWD, c"/proc/thread-self/children", g::O_RDONLY, 0) else { return };
        let length = sys::read(fd, &mut buffer).unwrap_or(0);
        sys::close(fd);
        for word in buffer.get(..length).unwrap_or_default().split(|byte| *byte == b' ') {
            if let Some(pid) = crate::words::number(word).and_then(|pid| i32::try_from(pid).ok())
                && pid > 1
            {
                let _ = sys::kill(pid, g::SIGKILL as i32);
            }
        }
        // One more has ended, or none is left (ECHILD).
        if sys::wait(-1, true).is_err() {
            return;
        }
    }
}

/// Makes sure that a signal of ours does not reach whoever started us, before one goes to everybody.
fn spares_others() -> bool {
    let parent = sys::getppid();
    sys::kill(if parent > 0 { parent } else { 1 }, 0) == Err(Errno::PERM)
}

fn read_ending(fd: i32) -> Option<WaitStatus> {
    let mut bytes = [0_u8; 4];
    (sys::read(fd, &mut bytes) == Ok(4)).then(|| i32::from_ne_bytes(bytes))
}

fn report_ending(command: &Command, wait_status: WaitStatus) {
    let mut line = Line::new();
    match wait_status & 0x7f {
        0 => line.text("exited ").number(((wait_status >> 8) & 0xff).into()),
        signal => line.text("signaled ").number(signal.into()),
    };
    command.status.send(&mut line);
}

/// Ends this process as the command ended.
fn end_as(wait_status: WaitStatus) -> ! {
    let signal = wait_status & 0x7f;
    if signal == 0 {
        sys::exit((wait_status >> 8) & 0xff);
    }
    let _ = sys::kill(sys::getpid(), signal);
    let _ = sys::block(Signals::NONE);
    // Some signals do not end a process by default.
    sys::exit(128 + signal)
}
