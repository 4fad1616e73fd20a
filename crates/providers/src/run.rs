//! Starting one process, carrying its streams, and ending it: on time, on request, and always entirely.
//!
//! One thread waits for everything with poll(2). What is passed to the child beside its standard streams keeps its
//! number and is close-on-exec everywhere but in that child.

use crate::call::{Captured, OnSpawn, Stream};
use crate::cancel::Cancel;
use command_fds::CommandFdExt as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Descriptors that are passed on are moved up here, away from whatever the standard library has open in a child that
/// is about to execute.
const FIRST_PASSED: i32 = 100;
/// How much of a report is read; the launcher writes a few lines.
const MAX_STATUS_BYTES: usize = 64 << 10;
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

/// Who has to be killed so that nothing is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// What we start has one child that takes its descendants along, or watches over them.
    Supervised,
    /// The same, but what we start passes no signal on: the supervisor that does is its grandchild.
    Nested,
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
    /// Descriptors that the child keeps, under the numbers they have here.
    pub(crate) passed: Vec<OwnedFd>,
    /// The end of the status channel that we read.
    pub(crate) status: Option<OwnedFd>,
    pub(crate) family: Family,
    pub(crate) deadline: Option<Instant>,
    pub(crate) grace: Duration,
    pub(crate) cancel: &'a Cancel,
    pub(crate) on_spawn: Option<&'a OnSpawn>,
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

/// Makes a file without a name that holds a plan, ready to be passed on.
pub(crate) fn plan_descriptor(block: &[u8]) -> io::Result<OwnedFd> {
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
pub(crate) fn run(start: Start<'_>) -> io::Result<Ended> {
    let woken = start.cancel.descriptor()?;
    let mut command = Command::new(start.argv.first().ok_or(io::ErrorKind::InvalidInput)?);
    command.args(&start.argv[1..]).env_clear().envs(start.environment.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &start.cwd {
        command.current_dir(cwd);
    }
    if start.family == Family::Group {
        command.process_group(0);
    }
    let [input, output, error] = start.streams;
    command.stdin(if input == Stream::Inherit { Stdio::inherit() } else { Stdio::null() });
    command.stdout(stdio(output)).stderr(stdio(error));
    // The descriptors are closed here as soon as the child has them, so that its end is the end of the channel.
    command.preserved_fds(start.passed);
    let mut child = command.spawn()?;
    drop(command);
    if let Some(tell) = start.on_spawn {
        tell(child.id());
    }
    if matches!(output, Stream::Tee { .. }) {
        // What the program itself has said comes first.
        let _ = io::stdout().flush();
    }
    let running = Running {
        pidfd: child_pid(&child).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
        stdout: Sink::copied(child.stdout.take().map(Into::into), output, &io::stdout())?,
        stderr: Sink::copied(child.stderr.take().map(Into::into), error, &io::stderr())?,
        status: Sink::new(start.status, Stream::Capture { limit: MAX_STATUS_BYTES })?,
        child,
        family: start.family,
        stopped: None,
        hurry: false,
        next_blow: None,
        grace: start.grace,
    };
    running.wait(start.deadline, start.cancel, &woken)
}

fn stdio(stream: Stream) -> Stdio {
    match stream {
        Stream::Inherit => Stdio::inherit(),
        Stream::Null => Stdio::null(),
        Stream::Capture { .. } | Stream::Tee { .. } => Stdio::piped(),
    }
}

fn child_pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// What comes out of one pipe.
struct Sink {
    fd: Option<OwnedFd>,
    stream: Stream,
    captured: Captured,
    /// Where it is copied to, as long as somebody takes it.
    copy_to: Option<OwnedFd>,
    /// What is still to be copied. Nothing more is read before that is done.
    pending: Vec<u8>,
}

impl Sink {
    fn new(fd: Option<OwnedFd>, stream: Stream) -> io::Result<Self> {
        if let Some(fd) = &fd {
            // Only our end: the two ends of a pipe are separate open files.
            rustix::fs::fcntl_setfl(fd, rustix::fs::fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        Ok(Self { fd, stream, captured: Captured::default(), copy_to: None, pending: Vec::new() })
    }

    /// The same, copied on to a stream of ours.
    fn copied(fd: Option<OwnedFd>, stream: Stream, to: &impl std::os::fd::AsFd) -> io::Result<Self> {
        let mut sink = Self::new(fd, stream)?;
        if matches!(stream, Stream::Tee { .. }) {
            sink.copy_to = writable(to).ok();
        }
        Ok(sink)
    }

    /// Reads what is there; the pipe is closed at its end. With `hurry`, what nobody takes now is not copied.
    fn advance(&mut self, hurry: bool) {
        let mut buffer = [0; 16 << 10];
        // Bounded, so that one busy stream does not keep us from the clock.
        for _ in 0..16 {
            self.copy(hurry);
            let Some(fd) = self.fd.as_ref().filter(|_| self.pending.is_empty()) else { return };
            match rustix::io::read(fd, &mut buffer) {
                Ok(count @ 1..) => {
                    if self.copy_to.is_some() {
                        self.pending.extend_from_slice(&buffer[..count]);
                    }
                    keep(&mut self.captured, &buffer[..count], self.stream);
                }
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) => self.fd = None,
            }
        }
        self.copy(hurry);
    }

    /// Copies as much as can be written without waiting.
    fn copy(&mut self, hurry: bool) {
        let mut done = 0;
        while done < self.pending.len() {
            let Some(to) = &self.copy_to else { break };
            let mut ready = [PollFd::new(to, PollFlags::OUT)];
            match poll(&mut ready, Some(&Timespec::default())) {
                Ok(0) | Err(rustix::io::Errno::INTR) => break,
                _ => {}
            }
            // A pipe that can be written takes this much at once (pipe(7)).
            let chunk = &self.pending[done..self.pending.len().min(done + 4096)];
            match rustix::io::write(to, chunk) {
                Ok(count) => done += count,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                // Nobody is there to read it; the command must not notice.
                Err(_) => self.copy_to = None,
            }
        }
        self.pending.drain(..done);
        if hurry || self.copy_to.is_none() {
            self.pending.clear();
        }
    }

    /// What has to happen before there is more to do.
    fn wanted(&self) -> Option<PollFd<'_>> {
        match &self.copy_to {
            Some(to) if !self.pending.is_empty() => Some(PollFd::new(to, PollFlags::OUT)),
            _ => self.fd.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)),
        }
    }
}

/// A stream of ours for writing without waiting where that is possible.
///
/// RACE: between asking whether a pipe takes more and writing, others may fill it, the command among them if it has the
/// same pipe. Opened anew, a pipe has a flag of its own that says not to wait; a file must keep the offset it shares.
fn writable(stream: &impl std::os::fd::AsFd) -> io::Result<OwnedFd> {
    let fd = stream.as_fd();
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    if kind == rustix::fs::FileType::Fifo {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if let Ok(anew) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
            return Ok(anew);
        }
    }
    fd.try_clone_to_owned()
}

fn keep(captured: &mut Captured, bytes: &[u8], stream: Stream) {
    captured.total += bytes.len() as u64;
    let (Stream::Capture { limit } | Stream::Tee { keep: limit }) = stream else { return };
    let kept = &mut captured.bytes;
    kept.extend_from_slice(&bytes[bytes.len().saturating_sub(limit)..]);
    // Moving the rest to the front now and then costs less than doing it each time.
    if kept.len() > limit.saturating_mul(2) {
        kept.drain(..kept.len() - limit);
    }
}

fn trim(mut captured: Captured, stream: Stream) -> Captured {
    if let Stream::Capture { limit } | Stream::Tee { keep: limit } = stream {
        let excess = captured.bytes.len().saturating_sub(limit);
        captured.bytes.drain(..excess);
    }
    captured
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
    pidfd: Option<OwnedFd>,
    stdout: Sink,
    stderr: Sink,
    status: Sink,
    family: Family,
    stopped: Option<Stopped>,
    /// Time is up: what nobody reads from us is not waited for.
    hurry: bool,
    next_blow: Option<(Instant, Blow)>,
    grace: Duration,
}

impl Running {
    fn wait(mut self, mut deadline: Option<Instant>, cancel: &Cancel, woken: &OwnedFd) -> io::Result<Ended> {
        let mut exit: Option<(ExitStatus, Instant)> = None;
        let mut said_at_exit = 0;
        loop {
            let now = Instant::now();
            if exit.is_none() {
                exit = self.child.try_wait()?.map(|status| (status, now + DRAIN));
                said_at_exit = self.said();
            } else if cancel.is_cancelled() || deadline.is_some_and(|deadline| now >= deadline) {
                self.hurry = true;
            }
            let hurry = self.hurry;
            [&mut self.stdout, &mut self.stderr, &mut self.status].into_iter().for_each(|sink| sink.advance(hurry));
            let waiting = self.is_waited_for();
            if let Some((status, until)) = &mut exit {
                let open = [&self.stdout, &self.stderr, &self.status].iter().any(|sink| sink.fd.is_some());
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
            ];
            self.sleep(wake.into_iter().flatten().min(), exit.is_some(), woken)?;
        }
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
        wanted.extend(self.pidfd.as_ref().filter(|_| !ended).map(|fd| PollFd::new(fd, PollFlags::IN)));
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
        let supervised = matches!(self.family, Family::Supervised | Family::Nested);
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
        let Some(pid) = child_pid(&self.child) else { return };
        let pid = match self.family {
            Family::Nested if signal != Signal::KILL => {
                let grandchild = children_of(pid).first().and_then(|child| children_of(*child).first().copied());
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
        let children = child_pid(&self.child).map(children_of).unwrap_or_default();
        for child in &children {
            // RACE: only our child can wait for its children, and it may do so now; then this number is free, and the
            // kernel gives numbers out again only after it has gone through all others.
            let _ = kill_process(*child, Signal::KILL);
        }
        !children.is_empty()
    }

    fn finish(self, exit: ExitStatus) -> Ended {
        Ended {
            exit,
            status: trim(self.status.captured, self.status.stream).bytes,
            stdout: trim(self.stdout.captured, self.stdout.stream),
            stderr: trim(self.stderr.captured, self.stderr.stream),
            stopped: self.stopped,
        }
    }
}

/// The children of a process's first thread; none where the kernel does not list them.
fn children_of(process: Pid) -> Vec<Pid> {
    let id = process.as_raw_nonzero();
    let list = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)).collect()
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
            passed: Vec::new(),
            status: None,
            family: Family::Group,
            deadline: None,
            grace: Duration::from_millis(100),
            cancel,
            on_spawn: None,
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
    fn what_nobody_reads_waits_until_there_is_no_time_left() {
        let (reader, writer) = io::pipe().unwrap();
        let (ours, mut theirs) = io::pipe().unwrap();
        let mut sink = Sink::copied(Some(ours.into()), Stream::Tee { keep: 4 }, &writer).unwrap();
        // The pipe of the test takes 64 KiB in all; the sink then stops to read.
        let thread = std::thread::spawn(move || theirs.write_all(&[b'x'; 200_000]).map(|()| theirs));
        let begun = Instant::now();
        while sink.pending.is_empty() && begun.elapsed() < Duration::from_secs(10) {
            sink.advance(false);
        }
        let before = sink.captured.total;
        sink.advance(false);
        assert!(!sink.pending.is_empty() && sink.captured.total == before && before < 200_000);
        while sink.captured.total < 200_000 && begun.elapsed() < Duration::from_secs(10) {
            sink.advance(true);
        }
        drop(thread.join().unwrap().unwrap());
        sink.advance(true);
        assert!(sink.fd.is_none() && sink.pending.is_empty());
        assert_eq!(sink.captured.total, 200_000);
        drop(reader);
        sink.pending.push(b'x');
        sink.copy(false);
        assert!(sink.copy_to.is_none() && sink.pending.is_empty());
    }

    #[test]
    fn a_slow_reader_gets_everything_in_order() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (ours, mut theirs) = io::pipe().unwrap();
        let mut sink = Sink::copied(Some(ours.into()), Stream::Tee { keep: 4 }, &writer).unwrap();
        drop(writer);
        let text: Vec<u8> = (0..300_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let expected = text.clone();
        let thread = std::thread::spawn(move || theirs.write_all(&text));
        let slow = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            let mut got = Vec::new();
            io::Read::read_to_end(&mut reader, &mut got).map(|_| got)
        });
        while sink.fd.is_some() || !sink.pending.is_empty() {
            sink.advance(false);
            poll(&mut sink.wanted().into_iter().collect::<Vec<_>>(), Some(&Timespec { tv_sec: 1, tv_nsec: 0 }))
                .unwrap();
        }
        drop(sink);
        thread.join().unwrap().unwrap();
        assert!(slow.join().unwrap().unwrap() == expected);
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
