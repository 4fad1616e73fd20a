//! The resident launcher: one process that makes the processes of calls, so that a call executes no launcher
//! (`docs/launcher.md`, "The resident launcher").
//!
//! It is asked for one process at a time. Whatever becomes of it, a call is begun once or not at all: the process that was made
//! says its number on a pipe before anything else, and the end of that pipe says that there is none. Then, and only then, the
//! launcher is executed instead, as if there were no resident one.

use super::ahead::{self, Ahead, Lasting, Waiting};
use super::child::{Begun, Child, null};
use super::standing::Standing;
use super::{Start, passable, plan_descriptor};
use crate::call::Stream;
use command_fds::CommandFdExt as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg, socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The version of what is sent.
const VERSION: i32 = 1;
/// How many descriptors one message takes (`sys.rs` of the launcher).
const MOST_DESCRIPTORS: usize = 16;
/// The largest block that a launcher reads.
const MAX_BLOCK_BYTES: usize = 16 << 20;
/// How often we look whether somebody has stopped a resident launcher that does not answer.
const LOOK: Duration = Duration::from_millis(100);
/// How long it may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long no other is started after one that did not serve a single call.
const PAUSE: Duration = Duration::from_secs(10);

/// Keeps the thread that a resident launcher and all that it makes have for their parent (prctl(2), PR_SET_PDEATHSIG).
#[derive(Debug, Clone)]
pub(super) struct Hold(#[expect(dead_code, reason = "its end is what counts")] Arc<Sender<()>>);

/// A resident launcher, or none yet.
#[derive(Debug)]
pub(crate) struct Resident {
    /// The program, which is the first word of every call that it may serve.
    program: Option<PathBuf>,
    state: Mutex<State>,
    /// Launchers whose calls are over.
    leaving: Mutex<Vec<Child>>,
}

#[derive(Debug, Default)]
struct State {
    /// Before `live`: what it has made is ended before what holds its parent is given up.
    waiting: Option<Waiting>,
    live: Option<Live>,
    not_before: Option<Instant>,
    served: u64,
    /// How many of those had walls that stood already.
    ahead: u64,
    /// What the call before was planned for: only who comes twice is expected a third time.
    last: Option<Lasting>,
}

#[derive(Debug)]
pub(super) struct Live {
    socket: OwnedFd,
    process: OwnedFd,
    pid: u32,
    standing: Standing,
    /// It has served a call.
    proven: bool,
    hold: Hold,
}

impl Resident {
    pub(crate) fn new(program: Option<&Path>) -> Self {
        Self { program: program.map(Path::to_owned), state: Mutex::default(), leaving: Mutex::default() }
    }

    /// The process, if there is one, and how many calls were begun by it and those before it.
    pub(crate) fn facts(&self) -> (Option<u32>, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.live.as_ref().map(|live| live.pid), state.served)
    }

    /// Takes a launcher that has nothing left to do.
    pub(super) fn leave(&self, child: Child) {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).push(child);
    }

    /// Waits until those have ended.
    pub(crate) fn see_off(&self) {
        let leaving = std::mem::take(&mut *self.leaving.lock().unwrap_or_else(PoisonError::into_inner));
        leaving.into_iter().for_each(|mut child| child.wait());
    }

    /// The launcher that waits for the next call, if there is one, and how many calls others before it have taken.
    pub(crate) fn ahead(&self) -> (Option<u32>, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.waiting.as_ref().and_then(Waiting::pid), state.ahead)
    }

    /// Begins a call; `None` if the launcher has to be executed for it.
    ///
    /// # Errors
    ///
    /// The host's; and if nobody can tell whether the call was begun.
    pub(super) fn begin(&self, start: &Start<'_>) -> io::Result<Option<Begun>> {
        let Some(program) = self.program.as_deref().filter(|program| start.argv[0] == program.as_os_str()) else {
            return Ok(None);
        };
        let wanted = start.ahead.filter(|_| ahead::streams(start).is_some());
        if let Some(wanted) = wanted {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(begun) = state.begin_ahead(program, start, wanted)? {
                state.prepare(program, &wanted.lasting);
                return Ok(Some(begun));
            }
        }
        let inherits =
            start.streams.iter().zip(start.given).any(|(it, given)| *it == Stream::Inherit && given.is_none());
        let block = block(start);
        if inherits || block.len() > MAX_BLOCK_BYTES || start.passed.len() + 6 > MOST_DESCRIPTORS {
            return Ok(None);
        }
        let (stdin, _) = stream(start, 0)?;
        let (their_stdout, stdout) = stream(start, 1)?;
        let (their_stderr, stderr) = stream(start, 2)?;
        // Where this may not be opened, an executed launcher can still be.
        let Ok(directory) = openat(CWD, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) else {
            return Ok(None);
        };
        let theirs = [stdin, their_stdout, their_stderr];

        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(live) = state.live(program) else { return Ok(None) };
        let made = live.make(&block, directory, &theirs, &start.passed);
        drop(theirs);
        let proven = live.proven;
        match made {
            Ok(Some(child)) => {
                live.proven = true;
                state.served += 1;
                if let Some(wanted) = wanted {
                    state.prepare(program, &wanted.lasting);
                }
                Ok(Some(Begun { child, stdout, stderr, status: None }))
            }
            other => {
                state.waiting = None;
                state.live = None;
                state.not_before = (!proven).then(|| Instant::now() + PAUSE);
                other.map(|_| None)
            }
        }
    }
}

impl State {
    /// One that stands where we stand now; started if need be.
    fn live(&mut self, program: &Path) -> Option<&mut Live> {
        let standing = Standing::look(program)?;
        if self.live.as_ref().is_none_or(|live| live.standing != standing) {
            self.waiting = None;
            self.live = None;
            if self.not_before.is_some_and(|when| Instant::now() < when) {
                return None;
            }
            match Live::start(program, standing) {
                Ok(live) => self.live = Some(live),
                Err(_) => self.not_before = Some(Instant::now() + PAUSE),
            }
        }
        self.live.as_mut()
    }

    /// Begins a call behind walls that stand already, if they are its own.
    fn begin_ahead(&mut self, program: &Path, start: &Start<'_>, wanted: &Ahead) -> io::Result<Option<Begun>> {
        if self.waiting.is_none() || self.live(program).is_none() {
            return Ok(None);
        }
        let Some(waiting) = self.waiting.take_if(|waiting| waiting.is_for(&wanted.lasting)) else { return Ok(None) };
        let Some(live) = &self.live else { return Ok(None) };
        let begun = waiting.begin(start, wanted, live)?;
        if begun.is_some() {
            self.served += 1;
            self.ahead += 1;
        }
        Ok(begun)
    }

    /// Has walls raised for the next call, if it is likely to be like this one. What goes wrong shows when they are missing.
    fn prepare(&mut self, program: &Path, lasting: &Lasting) {
        if self.last.as_ref() != Some(lasting) {
            self.last = Some(lasting.clone());
            self.waiting = None;
        } else if self.waiting.as_ref().is_none_or(|waiting| !waiting.is_for(lasting)) {
            self.waiting = None;
            let Some(live) = &self.live else { return };
            self.waiting = Waiting::make(program, live, lasting.clone()).unwrap_or_default();
        }
    }
}

impl Live {
    fn start(program: &Path, standing: Standing) -> io::Result<Self> {
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let theirs = passable(&theirs)?;
        let mut command = Command::new(program);
        command.arg("--serve").arg(theirs.as_raw_fd().to_string()).env_clear();
        command.stdin(null()?).stdout(null()?).stderr(null()?);
        command.preserved_fds(vec![theirs]);
        let (tell, told) = channel();
        let (hold, released) = channel::<()>();
        std::thread::Builder::new().name("pinfold-resident".to_owned()).spawn(move || {
            let spawned = command.spawn();
            drop(command);
            let opened = spawned.and_then(|child| {
                let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
                Ok((child, pidfd_open(pid, PidfdFlags::empty())?))
            });
            let (mut child, process) = match opened {
                Ok(opened) => opened,
                // Without anybody at the other end of the socket it ends by itself.
                Err(error) => return drop(tell.send(Err(error))),
            };
            let _ = tell.send(Ok((child.id(), process)));
            // If somebody else takes its status, it has ended too.
            let _ = child.wait();
            // Nothing is sent: this is the end of the last call that it made.
            let _ = released.recv();
        })?;
        let (pid, process) = told.recv().map_err(|_| Errno::SRCH)??;
        Ok(Self { socket, process, pid, standing, proven: false, hold: Hold(Arc::new(hold)) })
    }

    /// Has a process made that is to be a launcher with these words, these streams and these descriptors passed on; `None` if
    /// there is none and will be none.
    pub(super) fn make(
        &self,
        words: &[u8],
        directory: OwnedFd,
        streams: &[OwnedFd; 3],
        passed: &[OwnedFd],
    ) -> io::Result<Option<Child>> {
        let block = plan_descriptor(words)?;
        let (reply, their_reply) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut descriptors = vec![block.as_fd(), directory.as_fd(), their_reply.as_fd()];
        descriptors.extend(streams.iter().chain(passed).map(|fd| fd.as_fd()));
        let mut numbers = vec![VERSION, getpid().as_raw_nonzero().get(), 0, 1, 2];
        numbers.extend(passed.iter().map(AsRawFd::as_raw_fd));
        let sent = send(&self.socket, &numbers, &descriptors);
        drop(descriptors);
        drop((their_reply, block, directory));
        let made = if sent { self.answer(&reply)? } else { None };
        Ok(made.map(|pid| Child::made(pid, self.hold.clone())))
    }

    /// Waits until the process that was made says its number; `None` if there is none and will be none.
    fn answer(&self, reply: &OwnedFd) -> io::Result<Option<Pid>> {
        let begun = Instant::now();
        let mut given_up = false;
        loop {
            let mut wanted = [PollFd::new(reply, PollFlags::IN)];
            let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
            match poll(&mut wanted, Some(&timeout)) {
                Ok(0) => {}
                Ok(_) => {
                    let mut bytes = [0; 4];
                    return match rustix::io::read(reply, &mut bytes) {
                        Ok(4) => Ok(Pid::from_raw(i32::from_ne_bytes(bytes))),
                        Ok(_) => Ok(None),
                        Err(error) => Err(error.into()),
                    };
                }
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !given_up && (self.is_stopped() || begun.elapsed() >= PATIENCE) {
                // Its end closes what it holds, also of calls that it has not taken. The process is asked by its descriptor:
                // the thread that waits for it may have taken its status.
                self.kill();
                given_up = true;
            }
            if begun.elapsed() >= PATIENCE * 2 {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody says whether the command was started"));
            }
        }
    }

    pub(super) fn kill(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The name may hold anything; after its closing bracket comes the state (proc_pid_stat(5)).
        stat.rsplit(')').next().is_some_and(|rest| matches!(rest.trim_start().as_bytes().first(), Some(b'T' | b't')))
    }
}

/// Whether one message went to a launcher.
pub(super) fn send(socket: &OwnedFd, numbers: &[i32], descriptors: &[BorrowedFd<'_>]) -> bool {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    rights.push(SendAncillaryMessage::ScmRights(descriptors))
        && sendmsg(socket, &[IoSlice::new(&bytes)], &mut rights, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            == Ok(bytes.len())
}

/// Words and environment, as the launcher reads them.
fn block(start: &Start<'_>) -> Vec<u8> {
    let mut block = ahead::counted(start.argv);
    ahead::push_variables(&mut block, start.environment);
    block
}

/// The command's end of a stream, and ours.
fn stream(start: &Start<'_>, number: usize) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    if let Some(given) = start.given[number] {
        return Ok((given.try_clone()?, None));
    }
    match start.streams[number] {
        Stream::Capture { .. } | Stream::Tee { .. } if number > 0 => {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            Ok((theirs, Some(ours)))
        }
        _ => Ok((null()?, None)),
    }
}
