//! connect(2), where unix sockets of processes outside are closed.
//!
//! The socket is taken from the command and connected here: the kernel would read the address, and look up the descriptor,
//! once more. A path is resolved as the command would, and the socket that it leads to is connected to by the handle that was
//! decided on. Every other address is passed on as it was read; abstract names are kept inside by the domain that we wear.
//!
//! Nothing here waits: a connection that the command wants to wait for is begun without waiting, and one further thread looks
//! after all of these.

use crate::caller::{Caller, Outcome, Refusal};
use crate::resolve::Object;
use crate::serve::{Answer, Server, Worker};
use crate::sys::{self, Call};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, fstat, statx};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, socket_domain, socket_timeout, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many connections are waited for.
const MOST_WAITING: usize = 1024;
/// How often a full queue of a server is tried again, and new connections are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// How often we look whether a caller was interrupted.
const LOOK_AT_CALLER: Duration = Duration::from_millis(50);
/// The longest address, and the longest of a unix socket (unix(7)); where its path begins.
const ADDRESS_BYTES: i32 = 128;
const UNIX_BYTES: usize = 110;
const PATH_AT: usize = 2;

/// What may be connected to, as the command line says it.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Every socket at or below these.
    pub(crate) allowed: Vec<PathBuf>,
    /// Below these, those that were bound since we began.
    pub(crate) roots: Vec<PathBuf>,
    /// Everything below these that lies in no root.
    pub(crate) temps: Vec<PathBuf>,
}

/// What concerns connections.
#[derive(Debug)]
pub(crate) struct Connections {
    reach: Reach,
    begun: (i64, i64),
    queue: Mutex<Queue>,
    one_waits: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    new: Vec<Attempt>,
    /// Those that are new and those that are looked after.
    open: usize,
}

/// A connection that the command waits for.
#[derive(Debug)]
struct Attempt {
    call: Call,
    socket: OwnedFd,
    to: Target,
    /// It is to be tried again, because the server's queue is full: nothing tells when it no longer is.
    queue_is_full: bool,
    deadline: Option<Instant>,
    looked: Instant,
}

#[derive(Debug)]
enum Target {
    /// As the command wrote it.
    Address(Vec<u8>),
    /// The file of a unix socket.
    File(Object),
}

impl Connections {
    pub(crate) fn new(reach: Reach) -> Self {
        // The clock by which file systems tell when a file was made.
        let begun = clock_gettime(ClockId::RealtimeCoarse);
        let begun = (begun.tv_sec, begun.tv_nsec);
        Self { reach, begun, queue: Mutex::default(), one_waits: Condvar::new() }
    }

    /// Whether a socket may be connected to by its file.
    fn allows(&self, path: &Path, object: &Object) -> bool {
        let below = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
        if below(&self.reach.allowed) {
            return true;
        }
        if below(&self.reach.roots) {
            // SECURITY: what was there before the command, or has another name, may be a socket of somebody outside.
            return object.stat.st_nlink == 1 && self.is_new(object);
        }
        below(&self.reach.temps)
    }

    /// A file whose birth nobody tells is an old one.
    fn is_new(&self, object: &Object) -> bool {
        let Ok(known) = statx(&object.handle, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME) else { return false };
        let told = StatxFlags::from_bits_retain(known.stx_mask).contains(StatxFlags::BTIME);
        told && (known.stx_btime.tv_sec, i64::from(known.stx_btime.tv_nsec)) >= self.begun
    }

    fn wait_for(&self, attempt: Attempt) -> Outcome<Answer> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.open >= MOST_WAITING {
            return Err(Errno::AGAIN.into());
        }
        queue.open += 1;
        queue.new.push(attempt);
        self.one_waits.notify_one();
        Ok(Answer::Later)
    }

    /// What has come to be waited for; waits for it if there is nothing else to do.
    fn new_ones(&self, idle: bool) -> Vec<Attempt> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue = self
            .one_waits
            .wait_while(queue, |queue| idle && queue.new.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut queue.new)
    }

    fn done(&self, count: usize) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).open -= count;
    }
}

impl Caller<'_> {
    pub(crate) fn connect(&self, worker: &mut Worker) -> Outcome<Answer> {
        // The filter leaves connections to us only if we were told where they may go.
        let Some(connections) = &self.server.connections else { return Err(Errno::PERM.into()) };
        let socket = self.take_descriptor(self.directory(0))?;
        if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
            return Err(Errno::NOTSOCK.into());
        }
        let length = self.number(2).cast_signed();
        if !(0..=ADDRESS_BYTES).contains(&length) {
            return Err(Errno::INVAL.into());
        }
        let address = self.bytes(self.address(1), length.unsigned_abs() as usize)?;
        // Names keep their places while we look and act.
        let _reading = self.server.names.read();
        let domain = socket_domain(&socket)?;
        let to = match path_in(&address).filter(|_| domain == AddressFamily::UNIX) {
            Some(path) => Target::File(self.permitted_socket(connections, path)?),
            None => Target::Address(address),
        };
        // The command may close its own descriptor meanwhile, and closing the last one can take time (SO_LINGER).
        worker.pass_turn_on(self.server);
        let waits = !fcntl_getfl(&socket)?.contains(OFlags::NONBLOCK)
            && matches!(socket_type(&socket)?, SocketType::STREAM | SocketType::SEQPACKET);
        if !waits {
            return to.connect(&socket).map(|()| Answer::Value(0)).map_err(Refusal::from);
        }
        let mut attempt = Attempt {
            call: self.call,
            to,
            queue_is_full: domain == AddressFamily::UNIX,
            deadline: socket_timeout(&socket, Timeout::Send)?.map(|patience| Instant::now() + patience),
            looked: Instant::now(),
            socket,
        };
        let outcome = match attempt.go_on() {
            // On one's own machine it has come about by now.
            Err(Errno::INPROGRESS) => settled(attempt.go_on()),
            outcome => outcome.map(|()| 0),
        };
        match outcome {
            Err(errno) if attempt.is_pending(errno) => connections.wait_for(attempt),
            outcome => outcome.map(Answer::Value).map_err(Refusal::from),
        }
    }

    /// The file of a socket that the command may connect to.
    fn permitted_socket(&self, connections: &Connections, path: &[u8]) -> Outcome<Object> {
        let object = self.object(libc::AT_FDCWD, path, true)?;
        if object.kind() != FileType::Socket {
            return Err(Errno::CONNREFUSED.into());
        }
        let path = self.path_of(&object.handle)?;
        if connections.allows(&path, &object) { Ok(object) } else { Err(self.deny("connect", &path, None)) }
    }
}

impl Target {
    fn connect(&self, socket: &OwnedFd) -> Result<(), Errno> {
        match self {
            Self::Address(address) => sys::connect(socket.as_fd(), address),
            Self::File(object) => {
                let path = format!("/proc/self/fd/{}", object.handle.as_raw_fd());
                let family = (libc::AF_UNIX as libc::sa_family_t).to_ne_bytes();
                sys::connect(socket.as_fd(), &[&family, path.as_bytes()].concat())
            }
        }
    }
}

impl Attempt {
    /// Connects, or goes on connecting, without waiting for it.
    ///
    /// RACE: O_NONBLOCK is one for all descriptors of the socket, so for an instant the command's is set as well; nobody waits
    /// for anything else of a socket that is not connected.
    fn go_on(&mut self) -> Result<(), Errno> {
        let flags = fcntl_getfl(&self.socket)?;
        fcntl_setfl(&self.socket, flags | OFlags::NONBLOCK)?;
        let outcome = self.to.connect(&self.socket);
        fcntl_setfl(&self.socket, flags)?;
        outcome
    }

    fn is_pending(&self, errno: Errno) -> bool {
        match errno {
            Errno::AGAIN => self.queue_is_full,
            Errno::INPROGRESS | Errno::ALREADY => !self.queue_is_full,
            _ => false,
        }
    }

    /// What becomes of it: nothing yet, or an answer; none for a caller that is gone.
    fn look(&mut self, server: &Server) -> Option<Option<Result<i64, Errno>>> {
        if !sys::still_waits(server.listener.as_fd(), self.call.id) {
            return Some(None);
        }
        let wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_ready =
            self.queue_is_full || poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&wait)) != Ok(0);
        if is_ready {
            match self.go_on() {
                Err(errno) if self.is_pending(errno) => {}
                outcome => return Some(Some(settled(outcome))),
            }
        }
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(Some(Err(if self.queue_is_full { Errno::AGAIN } else { Errno::INPROGRESS })));
        }
        if now - self.looked >= LOOK_AT_CALLER {
            self.looked = now;
            match Caller::first(server, self.call).has_signal_to_handle() {
                Ok(false) => {}
                Ok(true) => return Some(Some(Err(Errno::INTR))),
                Err(_) => return Some(None),
            }
        }
        None
    }
}

/// What a connection that had begun has come to; another thread of the command may have been told first that it is there.
fn settled(outcome: Result<(), Errno>) -> Result<i64, Errno> {
    match outcome {
        Ok(()) | Err(Errno::ISCONN) => Ok(0),
        Err(errno) => Err(errno),
    }
}

/// The path of a unix socket's address; none for every other address, also a wrong one, which the kernel refuses.
fn path_in(address: &[u8]) -> Option<&[u8]> {
    let family = (libc::AF_UNIX as libc::sa_family_t).to_ne_bytes();
    let path = address.strip_prefix(&family).filter(|_| (PATH_AT + 1..=UNIX_BYTES).contains(&address.len()))?;
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    path.get(..end).filter(|path| !path.is_empty())
}

impl Server {
    /// Looks after connections that the command waits for, for ever.
    pub(crate) fn watch_connections(&self) {
        let Some(connections) = &self.connections else { return };
        let mut attempts: Vec<Attempt> = Vec::new();
        loop {
            attempts.append(&mut connections.new_ones(attempts.is_empty()));
            let waiting = attempts.iter().filter(|attempt| !attempt.queue_is_full);
            let mut wanted: Vec<_> = waiting.map(|attempt| PollFd::new(&attempt.socket, PollFlags::OUT)).collect();
            let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_AGAIN.subsec_nanos()) };
            // If it fails, we look all the same.
            let _ = poll(&mut wanted, Some(&tick));
            let before = attempts.len();
            attempts.retain_mut(|attempt| match attempt.look(self) {
                None => true,
                Some(answer) => {
                    if let Some(answer) = answer {
                        let _ = sys::answer(self.listener.as_fd(), attempt.call.id, answer);
                    }
                    false
                }
            });
            connections.done(before - attempts.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_is_a_path() {
        let of = |text: &[u8]| path_in(&[&(libc::AF_UNIX as u16).to_ne_bytes(), text].concat()).map(<[u8]>::to_vec);
        assert_eq!(of(b"/a\0b"), Some(b"/a".to_vec()));
        assert_eq!(of(b"a"), Some(b"a".to_vec()));
        assert_eq!(of(&[b'x'; 108]), Some(vec![b'x'; 108]));
        // No name, an abstract one, and one that is too long for the kernel.
        assert_eq!((of(b""), of(b"\0a"), of(&[b'x'; 109])), (None, None, None));
        assert_eq!(path_in(&[&(libc::AF_INET as u16).to_ne_bytes(), &b"/a"[..]].concat()), None);
    }

    #[test]
    fn what_may_be_reached_is_allowed_or_bound_since() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir(base.path().join("root")).unwrap();
        let at = |name: &str| base.path().join("root").join(name);
        let old = std::os::unix::net::UnixListener::bind(at("old")).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let connections = Connections::new(Reach {
            allowed: vec![at("open")],
            roots: vec![base.path().join("root")],
            temps: vec![base.path().to_owned()],
        });
        let new = std::os::unix::net::UnixListener::bind(at("new")).unwrap();
        let object = |name: &str| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW;
            Object::of(rustix::fs::open(at(name), flags, rustix::fs::Mode::empty()).unwrap()).unwrap()
        };
        assert!(connections.allows(&at("new"), &object("new")));
        assert!(!connections.allows(Path::new("/elsewhere"), &object("new")));
        assert!(!connections.allows(&at("old"), &object("old")));
        assert!(connections.allows(&base.path().join("old"), &object("old")));
        assert!(connections.allows(&at("open"), &object("old")));
        std::fs::hard_link(at("new"), at("other")).unwrap();
        assert!(!connections.allows(&at("other"), &object("other")));
        drop((old, new));
    }
}
