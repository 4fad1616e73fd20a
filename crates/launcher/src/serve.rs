//! `pinfold-run --serve FD`: the launcher as a process that stays, so that a call costs a fork and no exec (`docs/launcher.md`,
//! "The resident launcher").
//!
//! It waits for calls on a socket without a name and makes one process for each. That process is no child of this one but
//! its sibling: a child of the caller, as if the caller had executed a launcher, and from here on it does what an executed
//! launcher does. What a call says, its words and its environment, is read there; here nobody ever has it in memory.

use core::ffi::CStr;

use linux_raw_sys::{general as g, prctl as p};

use crate::descriptors;
use crate::entry::Start;
use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::spec;
use crate::status::Status;
use crate::sys::{self, MOST_DESCRIPTORS, Signals, Text, Vector};
use crate::words::{Words, number};

/// The version of what the caller sends.
const VERSION: i32 = 1;

/// More words than a block can hold.
const MOST_WORDS: usize = 16 << 20;

/// Numbers in a message: version, the caller, and one for each descriptor beyond the first three.
const NUMBERS: usize = 2 + MOST_DESCRIPTORS - 3;

/// One call as it was received.
struct Call {
    numbers: [i32; NUMBERS],
    descriptors: [i32; MOST_DESCRIPTORS],
    /// How many descriptors came.
    count: usize,
}

impl Call {
    /// The words of the call, the directory that it starts in, and where to say which process it became.
    fn parts(&self) -> [i32; 3] {
        [self.descriptors[0], self.descriptors[1], self.descriptors[2]]
    }

    /// What is passed on, and under which number.
    fn passed(&self) -> impl Iterator<Item = (i32, i32)> {
        self.descriptors[..self.count].iter().copied().skip(3).zip(self.numbers.iter().copied().skip(2))
    }
}

/// Serves until nobody can send any more. Returns in each new process, with what a launcher would have been executed with.
pub(crate) fn wait_for_call(socket: &CStr) -> Start {
    match prepare(socket) {
        Ok(socket) => serve(socket),
        Err(failure) => fail(&failure, None),
    }
}

fn fail(failure: &Failure, status: Option<i32>) -> ! {
    Status(status).setup_failed(failure);
    sys::exit(125)
}

/// Keeps nothing of the caller's, and is nobody's to steer.
fn prepare(socket: &CStr) -> Result<i32, Failure> {
    let socket = number(socket.to_bytes())
        .and_then(|fd| i32::try_from(fd).ok())
        .filter(|fd| *fd > 2 && sys::is_unix_socket(*fd))
        .ok_or(Failure::new("usage", "--serve takes a unix socket above 2"))?;
    descriptors::occupy_standard_streams()?;
    descriptors::close_all(3, [Some(socket), None])?;
    sys::fcntl(socket, g::F_SETFD, g::FD_CLOEXEC as usize).or_fail("descriptors", "cannot keep the socket")?;
    // Only SIGKILL ends it, and the end of the caller; only SIGSTOP stops it.
    descriptors::reset_signals();
    // No terminal. It fails for who leads a group; nobody starts a resident launcher as one.
    sys::setsid().or_fail("supervisor", "cannot leave the controlling terminal")?;
    sys::change_directory(c"/").or_fail("cwd", "cannot leave the working directory")?;
    // The thread that starts a resident launcher waits for its end.
    sys::prctl(p::PR_SET_PDEATHSIG, g::SIGKILL as usize).or_fail("supervisor", "cannot follow the caller")?;
    sys::prctl(p::PR_SET_NO_NEW_PRIVS, 1).or_fail("no-new-privs", "cannot set no_new_privs")?;
    // SECURITY: a command of the same user without namespaces may not trace or read this process, whose every power over the
    // next call would be its own.
    sys::prctl(p::PR_SET_DUMPABLE, 0).or_fail("supervisor", "cannot hide from debuggers")?;
    Ok(socket)
}

fn serve(socket: i32) -> Start {
    loop {
        let call = match receive(socket) {
            Ok(Some(call)) => call,
            Ok(None) => sys::exit(0),
            Err(Errno::INTR) => continue,
            // Whoever sent it sees the end of its pipe.
            Err(_) => sys::exit(125),
        };
        // The child of our parent: who waits for it, signals it and is watched by it is the caller.
        let made = sys::fork(g::CLONE_PARENT);
        if made == Ok(0) {
            return begin(&call);
        }
        let [_, _, reply] = call.parts();
        // The new process says the same, in case that we end before this line. Nobody may be there to read it.
        let _ = made.map(|pid| sys::write(reply, &pid.to_ne_bytes()));
        call.descriptors[..call.count].iter().for_each(|fd| sys::close(*fd));
    }
}

/// Takes the next call; `None` if there will be none.
fn receive(socket: i32) -> Result<Option<Call>, Errno> {
    let mut call = Call { numbers: [0; NUMBERS], descriptors: [-1; MOST_DESCRIPTORS], count: 0 };
    let mut bytes = [0_u8; NUMBERS * size_of::<i32>()];
    let (length, count) = sys::receive(socket, &mut bytes, &mut call.descriptors)?;
    if length == 0 {
        return Ok(None);
    }
    call.count = count;
    for (number, bytes) in call.numbers.iter_mut().zip(bytes.as_chunks().0) {
        *number = i32::from_ne_bytes(*bytes);
    }
    let fits = count >= 3 && length == (count - 1) * size_of::<i32>() && call.numbers[0] == VERSION;
    if fits { Ok(Some(call)) } else { Err(Errno::INVAL) }
}

/// In the new process: says who it is before anything else, and takes its place.
fn begin(call: &Call) -> Start {
    let [_, _, reply] = call.parts();
    // The caller may know it already, and not read any more.
    let _ = sys::write(reply, &sys::getpid().to_ne_bytes());
    sys::close(reply);
    match take_place(call) {
        Ok(start) => start,
        Err(failure) => fail(&failure, None),
    }
}

/// What an exec would have done: the caller's descriptors under their numbers, its directory, words and environment.
fn take_place(call: &Call) -> Result<Start, Failure> {
    let [block, directory, _] = call.parts();
    // An executed launcher can write its own id maps; the files of who is not dumpable are root's.
    sys::prctl(p::PR_SET_DUMPABLE, 1).or_fail("supervisor", "cannot take the caller's place")?;
    // If the caller does not read any more, the write above has left a signal that waits; to ignore it is to forget it.
    sys::ignore(g::SIGPIPE).or_fail("supervisor", "cannot take the caller's place")?;
    sys::default_disposition(g::SIGPIPE).or_fail("supervisor", "cannot take the caller's place")?;
    sys::block(Signals::NONE).or_fail("supervisor", "cannot take the caller's place")?;
    sys::enter_directory(directory).or_fail("cwd", "cannot enter the caller's working directory")?;
    for (fd, number) in call.passed() {
        sys::duplicate_onto(fd, number).or_fail("descriptors", "cannot take over a descriptor")?;
    }
    let (arguments, rest) = counted(Words::Block(spec::load(block)?))?;
    let environment = all(rest)?;
    Ok(Start { arguments, environment, caller: Some(call.numbers[1]).filter(|caller| *caller > 0) })
}

/// Takes a number and as many words; returns them and what follows.
pub(crate) fn counted(mut words: Words) -> Result<(&'static [Text], Words), Failure> {
    let count = words.next().and_then(|count| number(count.to_bytes())).and_then(|count| usize::try_from(count).ok());
    let count = count
        .filter(|count| *count <= MOST_WORDS)
        .ok_or(Failure::new("spec", "a call begins with the number of its arguments"))?;
    let taken = Vector::texts(words.map(Text::from), count).or_fail("spec", "no memory")?;
    words.by_ref().take(count).for_each(drop);
    Ok((taken, words))
}

/// Takes all words that are left.
pub(crate) fn all(words: Words) -> Result<&'static [Text], Failure> {
    Vector::texts(words.map(Text::from), words.count()).or_fail("spec", "no memory")
}
