//! From the first instruction to the last: start the launcher, take its listener, serve, and end as the launcher ended.
//!
//! The launcher is our child, so the command is our descendant: where only a parent may look into a process (Yama), we are
//! one. The process that the caller started is this one; signals that are sent to it go on to the launcher.

use crate::asks::Asks;
use crate::connect::Connections;
use crate::denials::Denials;
use crate::domain;
use crate::serve::{Server, WORKERS};
use crate::sys;
use crate::words::{self, Plan, SOCKET, STATUS, Status, Wall};
use command_fds::{CommandFdExt as _, FdMapping};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Resource, Rlimit, Signal};
use rustix::process::{kill_process, pidfd_open, set_dumpable_behavior};
use rustix::stdio::{stderr, stdin, stdout};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use std::io::IoSliceMut;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, OnceLock, RwLock, mpsc};

/// Runs the program: `pinfold-broker --spec 1 OPTION... -- LAUNCHER ARGUMENT...`.
///
/// Ends as the launcher ended; with 125 if it could not be started.
pub fn run() -> ! {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments.len() == 1 && arguments[0] == "--version" {
        println!("pinfold-broker {} (spec 1)", env!("CARGO_PKG_VERSION"));
        std::process::exit(0);
    }
    let problem = match words::read(arguments) {
        Ok(plan) => match start(plan) {
            Ok(running) => running.wait(),
            Err(problem) => problem,
        },
        Err(problem) => problem,
    };
    eprintln!("pinfold-broker: {problem}");
    std::process::exit(125)
}

struct Running {
    launcher: Child,
    signals: OwnedFd,
    caller: Option<OwnedFd>,
    server: Arc<OnceLock<Arc<Server>>>,
}

fn start(plan: Plan) -> Result<Running, String> {
    let failed = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
    // SECURITY: a command without a PID namespace is of the same user; it may not look into this process.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(failed("cannot hide from debuggers"))?;
    let signals = sys::take_signals().map_err(failed("cannot watch signals"))?;
    let caller = watch_caller()?;
    let (kept, passed) = status(&plan.status)?;
    if plan.reach.is_some() {
        no_stream_sends_to_paths()?;
    }
    let ask = plan.asking.as_ref().map(|(number, _)| take(*number)).transpose()?;
    let socket = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = socket.map_err(failed("cannot make a socket"))?;
    let keep = [&signals, &ours].into_iter().chain(&caller).chain(&kept).chain(&ask);
    let keep: Vec<_> = keep.map(|fd| fd.as_raw_fd()).collect();
    let server = Arc::new(OnceLock::new());
    let (tell, started) = mpsc::channel();
    let slot = Arc::clone(&server);
    let guard = std::thread::Builder::new().spawn(move || {
        let outcome = launch(&plan, theirs, passed);
        // From here on we are nobody in particular.
        let ready = outcome.and_then(|child| give_up().map(|()| child)).and_then(|child| {
            sys::close_all_but(&keep).map_err(|error| format!("cannot close descriptors: {error}"))?;
            Ok(child)
        });
        if tell.send(ready).is_ok() {
            serve(plan, ours, kept, ask, &slot);
        }
        // The launcher may have asked to end with the thread that started it.
        loop {
            std::thread::park();
        }
    });
    guard.map_err(|error| format!("cannot start a thread: {error}"))?;
    let launcher = started.recv().map_err(|_| "the first thread ended".to_owned())??;
    give_up()?;
    silence()?;
    Ok(Running { launcher, signals, caller, server })
}

/// Refuses a datagram socket as a standard stream: by one, every path can be sent to. The command makes none (the filter).
fn no_stream_sends_to_paths() -> Result<(), String> {
    for (stream, name) in [(stdin(), "input"), (stdout(), "output"), (stderr(), "error")] {
        let is_unix = socket_domain(stream).is_ok_and(|domain| domain == AddressFamily::UNIX);
        if is_unix && !socket_type(stream).is_ok_and(|kind| matches!(kind, SocketType::STREAM | SocketType::SEQPACKET))
        {
            return Err(format!(
                "standard {name} is a unix datagram socket, by which the command could send to every socket; pass a pipe, \
                 or leave sockets open (--sockets open)"
            ));
        }
    }
    Ok(())
}

/// Takes a descriptor for ourselves alone: nothing that we start has it.
fn take(number: i32) -> Result<OwnedFd, String> {
    sys::take(number).map_err(|error| format!("cannot use --ask-fd {number}: {error}"))
}

/// A descriptor that becomes readable when whoever started us ends; without it nobody wants the command any more.
fn watch_caller() -> Result<Option<OwnedFd>, String> {
    let ended = || "the caller has ended".to_owned();
    let Some(caller) = rustix::process::getppid() else {
        // It lives outside our PID namespace.
        return follow_parent().map(|()| None);
    };
    let fd = match pidfd_open(caller, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Err(ended()),
        // Some container profiles refuse it.
        Err(_) => return follow_parent().map(|()| None),
        Ok(fd) => fd,
    };
    // RACE: it may have ended before we looked; then somebody else is our parent by now.
    if rustix::process::getppid() == Some(caller) { Ok(Some(fd)) } else { Err(ended()) }
}

fn follow_parent() -> Result<(), String> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot follow the caller: {error}"))
}

/// The status channel for ourselves, and the one that the launcher is to get if it is a file.
fn status(status: &Status) -> Result<(Option<OwnedFd>, Option<OwnedFd>), String> {
    match status {
        Status::Nowhere => Ok((None, None)),
        Status::Descriptor(number) => {
            let copy = sys::duplicate(*number);
            copy.map(|fd| (Some(fd), None)).map_err(|error| format!("cannot use --status-fd {number}: {error}"))
        }
        Status::File(path) => {
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let open = || openat(CWD, path, flags, Mode::empty());
            let failed = |error| format!("cannot open the status file {}: {error}", path.display());
            Ok((Some(open().map_err(failed)?), Some(open().map_err(failed)?)))
        }
    }
}

/// Starts the launcher. Where there is no mount tree, this thread and it wear a domain from here on.
fn launch(plan: &Plan, socket: OwnedFd, status: Option<OwnedFd>) -> Result<Child, String> {
    if plan.wall == Wall::Landlock {
        domain::wear(&plan.writable, plan.asking.is_some())?;
    } else if plan.reach.is_some() {
        domain::wear_scope()?;
    }
    let mut command = Command::new(&plan.launcher[0]);
    command.args(&plan.launcher[1..]);
    let mut mappings = vec![FdMapping { parent_fd: socket, child_fd: SOCKET }];
    mappings.extend(status.map(|parent_fd| FdMapping { parent_fd, child_fd: STATUS }));
    command.fd_mappings(mappings).map_err(|error| format!("cannot pass descriptors: {error}"))?;
    command.spawn().map_err(|error| format!("cannot start {}: {error}", plan.launcher[0].display()))
}

/// Drops every privilege of the calling thread.
fn give_up() -> Result<(), String> {
    let failed = |error: rustix::io::Errno| format!("cannot drop privileges: {error}");
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).map_err(failed)?;
    set_no_new_privs(true).map_err(failed)
}

/// The launcher has the standard streams now; who reads or writes their other ends should see it end.
fn silence() -> Result<(), String> {
    let failed = |error: rustix::io::Errno| format!("cannot open /dev/null: {error}");
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    rustix::stdio::dup2_stdin(&null).map_err(failed)?;
    rustix::stdio::dup2_stdout(&null).map_err(failed)?;
    rustix::stdio::dup2_stderr(&null).map_err(failed)
}

/// Waits for the listener and serves. If anything fails, the socket is closed without an answer, and nothing runs.
fn serve(plan: Plan, socket: OwnedFd, status: Option<OwnedFd>, ask: Option<OwnedFd>, slot: &OnceLock<Arc<Server>>) {
    let Some([listener, root]) = receive(&socket) else { return };
    sys::switch_directly(listener.as_fd());
    // Writers that wait for readers hold one descriptor each. The launcher runs already, and has what the caller gave it.
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let handle = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(proc) = openat(CWD, "/proc", handle, Mode::empty()) else { return };
    let Ok(own_descriptors) = openat(CWD, "/proc/self/fd", handle, Mode::empty()) else { return };
    let server = Arc::new(Server {
        listener,
        turn: Default::default(),
        root,
        proc,
        own_descriptors,
        protected: plan.protected,
        writable: plan.writable.into_iter().map(|writable| writable.path).collect(),
        governs_metadata: plan.wall == Wall::Landlock,
        observes: plan.observes,
        of_root: rustix::process::geteuid().is_root(),
        denials: Denials::new(status),
        asks: ask.zip(plan.asking).map(|(channel, (_, asking))| Asks::new(channel, asking)),
        connections: plan.reach.map(Connections::new),
        names: RwLock::new(()),
        umask_changes: Default::default(),
        waiting: Default::default(),
        one_waits: Default::default(),
    });
    // Threads inherit what this one wears and lacks.
    let mut tasks: Vec<fn(&Server)> = vec![Server::work; WORKERS];
    tasks.push(Server::be_patient);
    tasks.extend(server.asks.as_ref().map(|_| Server::be_asked as fn(&Server)));
    tasks.extend(server.connections.as_ref().map(|_| Server::watch_connections as fn(&Server)));
    for task in tasks {
        let server = Arc::clone(&server);
        let task = move || task(&server);
        if std::thread::Builder::new().stack_size(256 << 10).spawn(task).is_err() {
            // Those that were started end with the process.
            std::process::exit(125);
        }
    }
    let _ = slot.set(server);
    let _ = rustix::io::write(&socket, &[0]);
}

/// Receives the listener and the root directory, sent with one byte.
fn receive(socket: &OwnedFd) -> Option<[OwnedFd; 2]> {
    let mut byte = [0];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
    if message.bytes != 1 {
        return None;
    }
    let mut received: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            received.extend(rights);
        }
    }
    received.try_into().ok()
}

impl Running {
    fn wait(mut self) -> ! {
        let failed = loop {
            let mut wanted = vec![PollFd::new(&self.signals, PollFlags::IN)];
            wanted.extend(self.caller.as_ref().map(|caller| PollFd::new(caller, PollFlags::IN)));
            match poll(&mut wanted, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => break error,
            }
            if wanted.get(1).is_some_and(|caller| !caller.revents().is_empty()) {
                // The launcher watches us as we watch our caller, and ends everything.
                std::process::exit(125);
            }
            if let Some(status) = self.take_signals() {
                if let Some(server) = self.server.get() {
                    server.denials.finish();
                }
                end_as(status);
            }
        };
        eprintln!("pinfold-broker: cannot wait: {failed}");
        std::process::exit(125)
    }

    /// Passes on what was received; returns how the launcher ended once it has.
    fn take_signals(&mut self) -> Option<ExitStatus> {
        // struct signalfd_siginfo: 128 bytes; number, errno and origin first.
        let mut info = [0_u8; 128];
        while rustix::io::read(&self.signals, &mut info) == Ok(info.len()) {
            let word = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
            let (number, origin) = (word(0), word(8));
            if number == libc::SIGCHLD {
                if let Ok(Some(status)) = self.launcher.try_wait() {
                    return Some(status);
                }
                continue;
            }
            // What the kernel sends, a terminal for instance, it sends to the launcher as well: it is in our group.
            if origin <= 0
                && let (Some(signal), Some(pid)) = (Signal::from_named_raw(number), launcher_pid(&self.launcher))
            {
                // It may have ended a moment ago.
                let _ = kill_process(pid, signal);
            }
            if number == libc::SIGTSTP {
                let _ = kill_process(rustix::process::getpid(), Signal::STOP);
            }
        }
        None
    }
}

fn launcher_pid(launcher: &Child) -> Option<Pid> {
    i32::try_from(launcher.id()).ok().and_then(Pid::from_raw)
}

/// Ends this process as the launcher ended.
fn end_as(status: ExitStatus) -> ! {
    if let Some(signal) = status.signal() {
        sys::end_by(signal);
        std::process::exit(128 + signal);
    }
    std::process::exit(status.code().unwrap_or(125))
}
