//! A call prepared ahead: a launcher whose walls stand and which waits for a command (`docs/launcher.md`, "A call prepared
//! ahead").
//!
//! It is made while the command before it runs, for the plan that this one had. A call takes it only if its own plan is the
//! same to the byte, if what the plan copies is as it was, and if the table of mounts has not changed since; the launcher
//! looks again whether every wall is where it was put. Otherwise the call begins as if there were none.

use super::child::{Begun, Child};
use super::passable;
use super::resident::Live;
use super::{Start, plan_descriptor};
use crate::call::Stream;
use crate::launcher;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, fstatfs, makedev, openat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The file system of pipes without a name (statfs(2)).
const PIPE_FILE_SYSTEM: i64 = 0x5049_5045;
/// The version of what is sent.
const VERSION: i32 = 1;
/// How long a launcher waits for a command. While it does, no file system that it sees can be detached.
const LIFE: Duration = Duration::from_secs(60);
/// How often we look whether it is there at all.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long it may take to say that it has one.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one call needs of a launcher that waits.
#[derive(Debug)]
pub(crate) struct Ahead {
    pub(crate) lasting: Lasting,
    pub(crate) cwd: PathBuf,
    /// Where the command begins in the argv.
    pub(crate) command: usize,
}

/// The plan of a call, less what belongs to this call alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastingPlan {
    pub(crate) words: Vec<OsString>,
    /// What the plan shows as it is when the walls are raised.
    pub(crate) shown: Vec<PathBuf>,
}

/// What walls that stand must have been raised for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lasting {
    plan: LastingPlan,
    /// The identities of what it shows.
    shown: Vec<Option<[i64; 5]>>,
}

impl Lasting {
    pub(crate) fn look(plan: LastingPlan) -> Self {
        let identity = |path: &PathBuf| {
            let it = std::fs::symlink_metadata(path).ok()?;
            Some([it.dev().cast_signed(), it.ino().cast_signed(), it.mtime(), it.ctime(), it.ctime_nsec()])
        };
        let shown = plan.shown.iter().map(identity).collect();
        Self { plan, shown }
    }
}

/// A launcher that waits. It is ended with this.
#[derive(Debug)]
pub(super) struct Waiting {
    lasting: Lasting,
    socket: OwnedFd,
    /// What it reports, until somebody reads it.
    status: Option<OwnedFd>,
    /// Becomes readable when something is mounted or unmounted (proc_pid_mounts(5)).
    mounts: File,
    child: Option<Child>,
}

impl Waiting {
    /// Has one made; `None` if it cannot be had.
    pub(super) fn make(program: &Path, live: &Live, lasting: Lasting) -> io::Result<Option<Self>> {
        let mounts = File::open("/proc/thread-self/mountinfo")?;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&theirs, Timeout::Recv, Some(LIFE))?;
        let theirs = passable(&theirs)?;
        let (status, told) = super::status_channel()?;
        let mut words = lasting.plan.words.clone();
        launcher::push(&mut words, &["--status-fd", &told.as_raw_fd().to_string()]);
        launcher::push(&mut words, &["--await-fd", &theirs.as_raw_fd().to_string()]);
        let argv = launcher::prefix(program, words);
        let streams = [super::child::null()?, super::child::null()?, super::child::null()?];
        let root = openat(CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let child = live.make(&counted(&argv), root, &streams, &[told, theirs])?;
        Ok(child.map(|child| Self { lasting, socket, status: Some(status), mounts, child: Some(child) }))
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::pid).map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Whether it was made for such calls.
    pub(super) fn is_for(&self, lasting: &Lasting) -> bool {
        self.lasting == *lasting
    }

    /// Gives it a command; `None` if the call has not begun and will not, also because of what has changed.
    pub(super) fn begin(mut self, start: &Start<'_>, ahead: &Ahead, live: &Live) -> io::Result<Option<Begun>> {
        if self.has_ended() {
            return Ok(None);
        }
        // It tells of each change once.
        let mut mounts = [PollFd::new(&self.mounts, PollFlags::PRI)];
        if poll(&mut mounts, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0) {
            return Ok(None);
        }
        let mut block = counted(&start.argv[ahead.command..]);
        block.extend_from_slice(ahead.cwd.as_os_str().as_bytes());
        block.push(0);
        push_variables(&mut block, start.environment);
        let block = plan_descriptor(&block)?;
        // Whatever is wrong with it, a launcher that begins anew can say it better.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = openat(CWD, &ahead.cwd, flags, Mode::empty()) else { return Ok(None) };
        let Some(streams) = streams(start) else { return Ok(None) };
        let (mut numbers, mut given, mut ours) = (vec![VERSION], Vec::new(), [None, None, None]);
        for (number, stream) in (0..).zip(streams) {
            let (theirs, read) = match stream {
                Theirs::Nothing => continue,
                Theirs::Pipe(pipe) => (pipe.try_clone()?, None),
                Theirs::Collected => {
                    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
                    (write, Some(read))
                }
            };
            numbers.push(number);
            given.push(theirs);
            ours[usize::try_from(number).unwrap_or_default()] = read;
        }
        let mut descriptors = vec![block.as_fd(), directory.as_fd()];
        descriptors.extend(given.iter().map(|fd| fd.as_fd()));
        if !super::resident::send(&self.socket, &numbers, &descriptors) {
            return Ok(None);
        }
        drop(given);
        if !self.has_taken(live)? {
            return Ok(None);
        }
        let Some(child) = self.child.take() else { return Ok(None) };
        let [_, stdout, stderr] = ours;
        Ok(Some(Begun { child, stdout, stderr, status: self.status.take() }))
    }

    /// Whether the process that we know has ended. The one inside, which we talk to, may live for another moment.
    fn has_ended(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let pid = self.child.as_ref().and_then(Child::pid);
        !pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), look), Ok(None)))
    }

    /// Waits until it says that it has the command, or ends without having said so.
    ///
    /// The end of the socket says so, and nothing else: the process inside may live a moment longer than the one that we know.
    /// A resident launcher that somebody stopped while it made this one holds a copy of it.
    fn has_taken(&self, live: &Live) -> io::Result<bool> {
        let begun = Instant::now();
        loop {
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&LOOK)) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(0) if self.has_ended() || begun.elapsed() >= PATIENCE => {
                    self.kill();
                    live.kill();
                }
                Ok(0) => {}
                Ok(_) => return Ok(rustix::io::read(&self.socket, &mut [0; 1]) == Ok(1)),
            }
        }
    }

    /// Kills the process that we know; the one inside ends with it (PR_SET_PDEATHSIG), and all that is in there.
    fn kill(&self) {
        if let Some(pid) = self.child.as_ref().and_then(Child::pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.kill();
        self.child.iter_mut().for_each(Child::wait);
    }
}

/// What a launcher that waits is given as a stream.
pub(super) enum Theirs<'a> {
    /// It has `/dev/null`.
    Nothing,
    Pipe(&'a OwnedFd),
    Collected,
}

/// The streams of a call, if they are of the kinds that a launcher which waits can be given: for all others it would have to
/// make something before its walls stand.
pub(super) fn streams<'a>(start: &Start<'a>) -> Option<[Theirs<'a>; 3]> {
    let stream = |number: usize| match (start.given[number], start.streams[number]) {
        (Some(fd), _) => {
            let stat = fstat(fd).ok()?;
            // The null device (`Documentation/admin-guide/devices.txt`).
            let null =
                FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == makedev(1, 3);
            let pipe = || fstatfs(fd).is_ok_and(|it| it.f_type == PIPE_FILE_SYSTEM);
            if null { Some(Theirs::Nothing) } else { pipe().then_some(Theirs::Pipe(fd)) }
        }
        (None, Stream::Null) => Some(Theirs::Nothing),
        (None, Stream::Capture { .. } | Stream::Tee { .. }) if number > 0 => Some(Theirs::Collected),
        (None, _) => None,
    };
    Some([stream(0)?, stream(1)?, stream(2)?])
}

/// A number, and as many words.
pub(super) fn counted(words: &[OsString]) -> Vec<u8> {
    let mut block = words.len().to_string().into_bytes();
    block.push(0);
    for word in words {
        block.extend_from_slice(word.as_bytes());
        block.push(0);
    }
    block
}

pub(super) fn push_variables(block: &mut Vec<u8>, variables: &[(OsString, OsString)]) {
    for (name, value) in variables {
        block.extend_from_slice(name.as_bytes());
        block.push(b'=');
        block.extend_from_slice(value.as_bytes());
        block.push(0);
    }
}
