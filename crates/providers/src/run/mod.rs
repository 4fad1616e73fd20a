//! Starting one process, carrying its streams, and ending it: on time, on request, and always entirely.
//!
//! One thread waits for everything with poll(2). What is passed to the child beside its standard streams keeps its
//! number and is close-on-exec everywhere but in that child.

use crate::call::{Captured, Observer, OnSpawn, Output, Stream};
use crate::cancel::Cancel;
use crate::refusals::RefusalFeed;
use crate::status::Status;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open, waitid,
};
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

mod ahead;
mod child;
mod resident;
mod sink;
mod standing;
mod terminals;

pub(crate) use ahead::{Ahead, Lasting, LastingPlan};
use child::Child;
pub(crate) use resident::Resident;
pub(crate) use sink::Hold;
use sink::Sink;
use terminals::Terminals;

/// Descriptors that are passed on are moved up here, away from whatever the standard library has open in a child that
/// is about to execute.
const FIRST_PASSED: i32 = 100;
/// How much of a report is read; the launcher writes a few lines, the broker a few hundred.
const MAX_STATUS_BYTES: usize = 1 << 20;
/// How long output is still read when the process has ended but somebody holds its streams open.
const DRAIN: Duration = Duration::from_millis(500);
/// As much as a pipe can hold for a user (pipe(7)): more than that after the end comes from somebody else.
const MOST_LEFT: u64 = 1 << 20;
/// How long a launcher may take to clean up after its command was killed.
const CLEAN_UP: Duration = Duration::from_secs(2);
/// How often we look whether the process has ended on kernels without pidfd_open(2).
///
/// SINCE(Linux 5.3): wait for the descriptor alone.
const TICK: Duration = Duration::from_millis(5);
/// How often we look whether a question that holds output back has its answer.
const HELD_TICK: Duration = Duration::from_millis(20);
/// How often we look whether a group whose leader has ended is empty.
const GROUP_TICK: Duration = Duration::from_millis(20);

/// Who has to be killed so that nothing is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// What we start has one child that takes its descendants along, or watches over them.
    Supervised,
    /// The same, but what we start passes no signal on: the supervisor that does is its grandchild.
    Nested,
    /// What we start passes signals on to its child, which has one child that takes its descendants along.
    Brokered,
    /// What we start is to lead a process group of its own.
    Group,
    /// Only the process itself.
    Alone,
}

/// What to start.
pub(crate) struct Start<'a> {
    pub(crate) argv: &'a [OsString],
    pub(crate) environment: &'a [(OsString, OsString)],
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) streams: [Stream; 3],
    /// Descriptors that are standard streams, in place of what `streams` says.
    pub(crate) given: [Option<&'a OwnedFd>; 3],
    /// Is told what comes out of collected streams, as it comes.
    pub(crate) observe: Option<&'a Observer>,
    /// Descriptors that the child keeps, under the numbers they have here.
    pub(crate) passed: Vec<OwnedFd>,
    /// The end of the status channel that we read.
    pub(crate) status: Option<OwnedFd>,
    pub(crate) family: Family,
    pub(crate) deadline: Option<Instant>,
    pub(crate) grace: Duration,
    pub(crate) cancel: &'a Cancel,
    pub(crate) on_spawn: Option<&'a OnSpawn>,
    /// Holds back what is copied on.
    pub(crate) hold: Option<&'a Hold>,
    /// Is told what is refused, as it is told.
    pub(crate) refusals: Option<&'a std::sync::Arc<RefusalFeed>>,
    /// Makes the process, if it can, in place of executing the launcher.
    pub(crate) resident: Option<&'a Resident>,
    /// What it may have prepared for this call already.
    pub(crate) ahead: Option<&'a Ahead>,
}

/// Why we ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    TimedOut,
    Cancelled,
}

/// How a process ended and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: ExitStatus,
    pub(crate) status: Vec<u8>,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    pub(crate) stopped: Option<Stopped>,
}

/// Makes a descriptor ready to be passed on.
pub(crate) fn passable(fd: &impl std::os::fd::AsFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, FIRST_PASSED)?)
}

/// Makes a status channel: our end, and the one to pass on.
pub(crate) fn status_channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((ours, passable(&theirs)?))
}

/// Makes a file without a name that holds these bytes, at its beginning, ready to be passed on: a plan, or the input of a
/// command.
///
/// # Errors
///
/// The host's, when neither memory nor a temp directory takes it.
pub fn plan_descriptor(block: &[u8]) -> io::Result<OwnedFd> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = match rustix::fs::memfd_create("pinfold-plan", flags) {
        Ok(fd) => std::fs::File::from(fd),
        // A filter may refuse it; a file that never had a name serves as well.
        Err(_) => tempfile::tempfile()?,
    };
    file.write_all(block)?;
    io::Seek::rewind(&mut file)?;
    passable(&file)
}

/// Starts a process and waits for its end.
pub(crate) fn run(mut start: Start<'_>) -> io::Result<Ended> {
    let woken = start.cancel.descriptor()?;
    let confined = !matches!(start.family, Family::Group | Family::Alone);
    let _terminals = if confined { Terminals::remember(start.streams) } else { Terminals::none() };
    let made = start.resident.map_or(Ok(None), |resident| resident.begin(&start))?;
    // The descriptors are closed here as soon as the child has them, so that its end is the end of the channel.
    let passed = std::mem::take(&mut start.passed);
    let begun = match made {
        Some(begun) => {
            drop(passed);
            begun
        }
        None => child::execute(&start, passed)?,
    };
    let pid = begun.child.pid();
    if let (Some(tell), Some(pid)) = (start.on_spawn, pid) {
        tell(pid.as_raw_nonzero().get().unsigned_abs());
    }
    let [_, output, error] = start.streams;
    if matches!(output, Stream::Tee { .. }) {
        // What the program itself has said comes first.
        let _ = io::stdout().flush();
    }
    let held = |sink: Sink| match start.hold {
        Some(hold) => sink.held_by(hold),
        None => sink,
    };
    let running = Running {
        tells: begun.status.is_some(),
        told: false,
        pidfd: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
        stdout: held(Sink::copied(begun.stdout, output, &io::stdout())?.observed(start.observe, Output::Stdout)),
        stderr: held(Sink::copied(begun.stderr, error, &io::stderr())?.observed(start.observe, Output::Stderr)),
        status: Sink::new(begun.status.or(start.status), Stream::Capture { limit: MAX_STATUS_BYTES })?
            .fed(start.refusals)?,
        child: begun.child,
        family: start.family,
        leaderless: false,
        stopped: None,
        hurry: false,
        next_blow: None,
        grace: start.grace,
    };
    let (ended, leaving) = running.wait(start.deadline, start.cancel, &woken)?;
    // What was prepared ahead was so by the resident launcher.
    if let (Some(resident), Some(child)) = (start.resident, leaving) {
        resident.leave(child);
    }
    Ok(ended)
}

/// The next step towards a process's end.
#[derive(Clone, Copy)]
enum Blow {
    /// Kill what it watches over; it then ends by itself.
    Family,
    /// Kill it.
    Itself,
}

struct Running {
    child: Child,
    /// It says how its command ended once nothing inside is left, and it copies no stream.
    tells: bool,
    /// It has said so.
    told: bool,
    pidfd: Option<OwnedFd>,
    stdout: Sink,
    stderr: Sink,
    status: Sink,
    family: Family,
    /// The process has ended, and others of its group that were told to end have not.
    leaderless: bool,
    stopped: Option<Stopped>,
    /// Time is up: what nobody reads from us is not waited for.
    hurry: bool,
    next_blow: Option<(Instant, Blow)>,
    grace: Duration,
}

impl Running {
    fn wait(
        mut self,
        mut deadline: Option<Instant>,
        cancel: &Cancel,
        woken: &OwnedFd,
    ) -> io::Result<(Ended, Option<Child>)> {
        let mut exit: Option<(ExitStatus, Instant)> = None;
        let mut said_at_exit = 0;
        loop {
            let now = Instant::now();
            if exit.is_none() {
                let ended = self.exited()?.or_else(|| self.told_end());
                exit = ended.map(|status| (status, now + DRAIN));
                said_at_exit = self.said();
            } else if cancel.is_cancelled() || deadline.is_some_and(|deadline| now >= deadline) {
                self.hurry = true;
            }
            let hurry = self.hurry;
            [&mut self.stdout, &mut self.stderr, &mut self.status].into_iter().for_each(|sink| sink.advance(hurry));
            let waiting = self.is_waited_for();
            if let Some((status, until)) = &mut exit {
                let channel = Some(&self.status).filter(|_| !self.told);
                let open = [&self.stdout, &self.stderr].into_iter().chain(channel).any(|sink| sink.fd.is_some());
                if waiting && self.said() - said_at_exit <= MOST_LEFT {
                    // What is left in the pipe can only be read when what came before it has been taken.
                    *until = now + DRAIN;
                } else if !waiting && (!open || now >= *until) {
                    return Ok(self.finish(*status));
                } else if now >= *until {
                    // Somebody else goes on writing.
                    (self.stdout.fd, self.stderr.fd) = (None, None);
                }
            } else {
                if deadline.is_some_and(|deadline| now >= deadline) {
                    deadline = None;
                    self.stop(Stopped::TimedOut, now);
                }
                if cancel.is_cancelled() {
                    self.stop(Stopped::Cancelled, now);
                }
                self.strike(now);
            }
            let wake = [
                exit.map(|(_, until)| until).filter(|_| !waiting),
                deadline.filter(|_| exit.is_none() || (waiting && !self.hurry)),
                self.next_blow.map(|(when, _)| when).filter(|_| exit.is_none()),
                self.pidfd.is_none().then(|| now + TICK).filter(|_| exit.is_none()),
                self.leaderless.then(|| now + GROUP_TICK).filter(|_| exit.is_none()),
                (self.stdout.is_held() || self.stderr.is_held()).then(|| now + HELD_TICK),
            ];
            self.sleep(wake.into_iter().flatten().min(), exit.is_some(), woken)?;
        }
    }

    /// Takes the process's status if it has ended, and with it what was told to end.
    ///
    /// A group outlives its leader. As long as nobody has taken the leader's status, its number is the group's and no
    /// other's: so others of the group have what is left of the grace, and a blow cannot hit anybody else.
    fn exited(&mut self) -> io::Result<Option<ExitStatus>> {
        let leader = self.child.pid().filter(|_| self.family == Family::Group && self.stopped.is_some());
        if let (Some(leader), Some(_)) = (leader, self.next_blow) {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let ended = matches!(waitid(WaitId::Pid(leader), look), Ok(Some(_)));
            self.leaderless = ended && group_lives(leader);
            if self.leaderless {
                return Ok(None);
            }
        }
        self.leaderless = false;
        self.child.try_wait()
    }

    /// How the command ended, by the word of a launcher that will end a moment later: its namespaces have to be taken down.
    fn told_end(&mut self) -> Option<ExitStatus> {
        if !self.tells {
            return None;
        }
        let status = Status::parse(&self.status.captured.bytes);
        // As wait(2) has it.
        let status = status.exited.map(|code| code << 8).or(status.signaled)?;
        self.told = true;
        Some(ExitStatus::from_raw(status))
    }

    /// How much has been read of both streams.
    fn said(&self) -> u64 {
        self.stdout.captured.total + self.stderr.captured.total
    }

    /// Whether somebody has to read from us before we can go on.
    fn is_waited_for(&self) -> bool {
        [&self.stdout, &self.stderr].iter().any(|sink| !sink.pending.is_empty())
    }

    fn sleep(&self, until: Option<Instant>, ended: bool, woken: &OwnedFd) -> io::Result<()> {
        let mut wanted: Vec<PollFd<'_>> = Vec::with_capacity(5);
        for sink in [&self.stdout, &self.stderr, &self.status] {
            wanted.extend(sink.wanted());
        }
        wanted.extend(
            self.pidfd.as_ref().filter(|_| !ended && !self.leaderless).map(|fd| PollFd::new(fd, PollFlags::IN)),
        );
        // RACE: the switch may be thrown right now, after we looked at it: so what we have done decides, not the switch.
        if self.stopped.is_none() && (!ended || (self.is_waited_for() && !self.hurry)) {
            wanted.push(PollFd::from_borrowed_fd(woken.as_fd(), PollFlags::IN));
        }
        // Rounded up: waking a moment too early would make us spin.
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()) + Duration::from_micros(50));
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match poll(&mut wanted, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks the process to end, once.
    fn stop(&mut self, why: Stopped, now: Instant) {
        if self.stopped.is_some() {
            return;
        }
        (self.stopped, self.hurry) = (Some(why), true);
        self.send(Signal::TERM);
        self.next_blow = Some((now + self.grace, Blow::Family));
    }

    fn strike(&mut self, now: Instant) {
        let Some((when, blow)) = self.next_blow else { return };
        if now < when {
            return;
        }
        // A supervised command is killed by way of its supervisor's child: the supervisor then ends what is left, and
        // when it has ended, nothing is. Killing the supervisor first would leave that to chance.
        let supervised = matches!(self.family, Family::Supervised | Family::Nested | Family::Brokered);
        let watched = supervised && matches!(blow, Blow::Family) && self.kill_children();
        if watched {
            self.next_blow = Some((now + CLEAN_UP, Blow::Itself));
        } else {
            self.send(Signal::KILL);
            self.next_blow = None;
        }
    }

    /// Sends a signal; the process has not been waited for, so its number is still its own.
    fn send(&self, signal: Signal) {
        let Some(pid) = self.child.pid() else { return };
        let pid = match self.family {
            Family::Nested if signal != Signal::KILL => {
                // The launcher's guard, which may be a child as well, has none.
                let grandchild = children_of(pid).into_iter().find_map(|child| children_of(child).first().copied());
                grandchild.unwrap_or(pid)
            }
            _ => pid,
        };
        // It may have ended by itself.
        let _ = match self.family {
            Family::Group => kill_process_group(pid, signal),
            _ => kill_process(pid, signal),
        };
    }

    /// Kills the children of our child; false if there is none to be seen.
    fn kill_children(&self) -> bool {
        let mut children = self.child.pid().map(children_of).unwrap_or_default();
        if self.family == Family::Brokered {
            children = children.into_iter().flat_map(children_of).collect();
        }
        for child in &children {
            // RACE: only our child can wait for its children, and it may do so now; then this number is free, and the
            // kernel gives numbers out again only after it has gone through all others.
            let _ = kill_process(*child, Signal::KILL);
        }
        !children.is_empty()
    }

    /// What is known of the end; and the launcher, if it has said how its command ended and has nothing left to do but to end
    /// itself.
    fn finish(self, exit: ExitStatus) -> (Ended, Option<Child>) {
        let ended = Ended {
            exit,
            status: self.status.into_captured().bytes,
            stdout: self.stdout.into_captured(),
            stderr: self.stderr.into_captured(),
            stopped: self.stopped,
        };
        (ended, Some(self.child).filter(|_| self.told))
    }
}

/// The children of all threads of a process; none where the kernel does not list them.
fn children_of(process: Pid) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children = lists.flat_map(|list| {
        let numbers = list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw));
        numbers.collect::<Vec<_>>()
    });
    children.collect()
}

/// Whether a process group has a member that is more than a status to be taken (proc_pid_stat(5)).
fn group_lives(group: Pid) -> bool {
    let of_group = |entry: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name may hold anything; after its closing bracket come state, parent and group.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let alive = fields.next().is_some_and(|state| !matches!(state, "Z" | "X"));
        alive && fields.nth(1).and_then(|field| field.parse().ok()) == Some(group.as_raw_nonzero().get())
    };
    std::fs::read_dir("/proc").into_iter().flatten().flatten().any(of_group)
}

/// The number of a descriptor that is passed on.
pub(crate) fn number(fd: &OwnedFd) -> i32 {
    fd.as_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell<'a>(argv: &'a [OsString], cancel: &'a Cancel) -> Start<'a> {
        Start {
            argv,
            environment: &[],
            cwd: None,
            streams: [Stream::Null, Stream::Capture { limit: 8 }, Stream::Capture { limit: 100 }],
            given: [None; 3],
            observe: None,
            passed: Vec::new(),
            status: None,
            family: Family::Group,
            deadline: None,
            grace: Duration::from_millis(100),
            cancel,
            on_spawn: None,
            hold: None,
            refusals: None,
            resident: None,
            ahead: None,
        }
    }

    fn script(text: &str) -> Vec<OsString> {
        ["/bin/sh", "-c", text].map(OsString::from).into()
    }

    #[test]
    fn the_last_bytes_are_kept_and_all_are_counted() {
        let (argv, cancel) = (script("printf 0123456789abc; echo no >&2; exit 3"), Cancel::new());
        let ended = run(shell(&argv, &cancel)).unwrap();
        assert_eq!(ended.exit.code(), Some(3));
        assert_eq!((ended.stdout.bytes.as_slice(), ended.stdout.total), (&b"56789abc"[..], 13));
        assert!(ended.stdout.is_truncated() && !ended.stderr.is_truncated());
        assert_eq!(ended.stopped, None);
    }

    #[test]
    fn a_passed_descriptor_keeps_its_number_and_its_end_is_seen() {
        let (ours, theirs) = status_channel().unwrap();
        let argv = script(&format!("echo hello >&{}", number(&theirs)));
        let cancel = Cancel::new();
        let mut start = shell(&argv, &cancel);
        (start.status, start.passed) = (Some(ours), vec![theirs]);
        // dash takes only single digits for redirections.
        let argv = ["/bin/bash".into(), "-c".into(), argv[2].clone()];
        start.argv = &argv;
        assert_eq!(run(start).unwrap().status, b"hello\n");
    }

    #[test]
    fn what_ignores_a_polite_request_is_killed() {
        let (argv, cancel) = (script("trap '' TERM; sleep 60 & sleep 60; sleep 60"), Cancel::new());
        let mut start = shell(&argv, &cancel);
        start.deadline = Some(Instant::now() + Duration::from_millis(100));
        let begun = Instant::now();
        let ended = run(start).unwrap();
        assert_eq!(ended.stopped, Some(Stopped::TimedOut));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.exit), Some(9));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_group_is_killed_after_the_grace_although_its_leader_ended_at_once() {
        // U318: the second blow does not depend on the leader.
        let (argv, cancel) =
            (script("(trap '' TERM; while :; do sleep 0.1; done) & echo $!; exec sleep 60"), Cancel::new());
        let mut start = shell(&argv, &cancel);
        start.deadline = Some(Instant::now() + Duration::from_millis(200));
        let ended = run(start).unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.exit), Some(15));
        let survivor: i32 = String::from_utf8(ended.stdout.bytes).unwrap().trim().parse().unwrap();
        let begun = Instant::now();
        while rustix::process::test_kill_process(Pid::from_raw(survivor).unwrap()).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(5), "{survivor} lives");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn given_descriptors_are_the_streams_and_what_comes_is_told() {
        let input = plan_descriptor(b"given\n").unwrap();
        let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let ours = std::sync::Arc::clone(&told);
        let observer: Observer = std::sync::Arc::new(move |output, bytes: &[u8]| {
            ours.lock().unwrap().extend(bytes.iter().map(|byte| (output, *byte)));
        });
        let (argv, cancel) = (script("cat; echo e >&2"), Cancel::new());
        let mut start = shell(&argv, &cancel);
        (start.given, start.observe) = ([Some(&input), None, None], Some(&observer));
        assert_eq!(run(start).unwrap().stdout.bytes, b"given\n");
        let of = |wanted| told.lock().unwrap().iter().filter(|(output, _)| *output == wanted).count();
        assert_eq!((of(Output::Stdout), of(Output::Stderr)), (6, 2));
    }

    #[test]
    fn a_cancelled_run_ends_at_once() {
        let (argv, cancel) = (script("exec sleep 60"), Cancel::new());
        let other = cancel.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            other.cancel();
        });
        let ended = run(shell(&argv, &cancel)).unwrap();
        thread.join().unwrap();
        assert_eq!(ended.stopped, Some(Stopped::Cancelled));
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.exit), Some(15));
    }
}
