//! Standard streams: what the caller's redirection means, and nothing beyond it.
//!
//! A descriptor of a regular file carries more than its redirection says: through `/proc/self/fd` the file can be
//! opened again for writing, `fchmod` and `futimens` change it, `ftruncate` empties a log that was opened for
//! appending. So the command gets a pipe in its place, and this process, outside, copies. Sockets, anonymous pipes and
//! terminals are passed on as they are. The device nodes that the command has of its own are opened anew inside.

use core::ffi::CStr;

use linux_raw_sys::general as g;

use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::spec::Network;
use crate::status::Line;
use crate::sys;

const PIPE_FILE_SYSTEM: u64 = 0x5049_5045;

/// The standard streams, as they can be opened again.
const STREAMS: [&CStr; 3] = [c"/proc/self/fd/0", c"/proc/self/fd/1", c"/proc/self/fd/2"];

/// Devices that may be on a standard stream, by major and minor number (`Documentation/admin-guide/devices.txt`).
const DEVICES: [(u64, &CStr); 6] = [
    (0x103, c"/dev/null"),
    (0x105, c"/dev/zero"),
    (0x107, c"/dev/full"),
    (0x108, c"/dev/random"),
    (0x109, c"/dev/urandom"),
    (0x500, c"/dev/tty"),
];

/// What stands behind a standard stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Passed on unchanged.
    Passed,
    /// A file with a path: copied through a pipe.
    Copied,
    /// Opened anew inside.
    Device(&'static CStr),
    /// Opened anew inside, where it was put.
    Terminal,
}

fn kind(number: i32) -> Result<(Kind, sys::Stat, usize), Failure> {
    let flags = sys::fcntl(number, g::F_GETFL, 0).or_fail("stdio", "cannot examine a standard stream")?;
    let stat = sys::fstat(number).or_fail("stdio", "cannot examine a standard stream")?;
    if flags & g::O_PATH as usize != 0 || stat.is(g::S_IFDIR) || stat.is(g::S_IFLNK) {
        // SECURITY: such a descriptor reaches other files, by names relative to it.
        return Err(Failure::new("stdio", "a standard stream is a directory or was opened with O_PATH"));
    }
    let kind = if stat.is(g::S_IFREG) || stat.is(g::S_IFBLK) {
        Kind::Copied
    } else if stat.is(g::S_IFIFO) {
        let anonymous = sys::file_system(number) == Ok(PIPE_FILE_SYSTEM);
        if anonymous { Kind::Passed } else { Kind::Copied }
    } else if !stat.is(g::S_IFCHR) {
        Kind::Passed
    } else if let Some((_, path)) = DEVICES.iter().find(|(special, _)| *special == stat.special) {
        Kind::Device(path)
    } else if stat.special != 0x502 && stat.special >> 8 != 2 && sys::is_terminal(number) {
        Kind::Terminal
    } else {
        // SECURITY: what is written to the master of a pseudo-terminal (major 2, or 5:2) is input of the terminal. Others
        // reach memory (major 1), or do what no wall knows of; and whoever owns the node could change it.
        return Err(Failure::new("stdio", "a standard stream is a device, and neither a terminal nor like /dev/null"));
    };
    Ok((kind, stat, flags))
}

/// Puts a stream in place that came after the others were looked at: an anonymous pipe, and nothing else.
pub(crate) fn take(stream: i32, number: i32) -> Result<(), Failure> {
    if !(0..3).contains(&number) || sys::file_system(stream) != Ok(PIPE_FILE_SYSTEM) {
        return Err(Failure::new("stdio", "what comes with a command must be a pipe for a standard stream"));
    }
    sys::duplicate_onto(stream, number).or_fail("stdio", "cannot install a standard stream")
}

/// Copies in one direction, between a file outside and a pipe inside.
///
/// SECURITY: it never waits in a call. Who waits does not see the caller end, and the command, which can open its pipe the
/// other way round and take away what `poll` saw, would decide for how long.
struct Pump {
    /// What is waited for.
    source: i32,
    /// What is read from: of a FIFO another opening, because the end of writing shows at the first one only.
    reader: i32,
    writer: i32,
    buffer: &'static mut [u8],
    /// The part of the buffer that is read but not yet written.
    pending: core::ops::Range<usize>,
    /// How many bytes were written.
    written: usize,
    ended: bool,
    /// Standard input: what nobody has read goes back, so the source stays open.
    gives_back: bool,
}

/// What came of copying once.
#[derive(PartialEq, Eq)]
enum Step {
    Moved,
    MustWait,
    Ended,
}

impl Pump {
    fn step(&mut self, failed: &mut Option<Errno>) -> Step {
        if self.ended {
            return Step::Ended;
        }
        if self.pending.is_empty() {
            match sys::read(self.reader, self.buffer) {
                Ok(count @ 1..) => self.pending = 0..count,
                Err(Errno::INTR) => return Step::Moved,
                Err(Errno::AGAIN) => return Step::MustWait,
                Ok(0) | Err(_) => return self.end(),
            }
        }
        match sys::write(self.writer, self.buffer.get(self.pending.clone()).unwrap_or_default()) {
            Ok(count) => {
                self.pending.start += count;
                self.written += count;
                Step::Moved
            }
            Err(Errno::INTR) => Step::Moved,
            Err(Errno::AGAIN) => Step::MustWait,
            Err(errno) => {
                *failed = Some(errno);
                self.end()
            }
        }
    }

    /// Lets the command see the end: of its input, or as SIGPIPE.
    fn end(&mut self) -> Step {
        self.ended = true;
        sys::close(self.writer);
        if !self.gives_back {
            sys::close(self.source);
        }
        Step::Ended
    }
}

/// What copies the streams that are not passed on, and the ends of pipes that the command gets in their place.
pub(crate) struct Pumps {
    pumps: [Option<Pump>; 3],
    inside: [Option<i32>; 3],
    /// Why an output could not be written.
    failed: Option<Errno>,
}

const BUFFER_BYTES: usize = 64 << 10;

/// How many buffers are copied at most before somebody looks whether that is still wanted.
const TURN: usize = 64;

impl Pumps {
    /// Looks at descriptors 0, 1 and 2 and prepares a pipe for each that must not be passed on.
    pub(crate) fn prepare(network: Network) -> Result<Self, Failure> {
        let mut pumps = Self { pumps: [None, None, None], inside: [None; 3], failed: None };
        let mut output: Option<(sys::Stat, usize)> = None;
        for number in 0..3_i32 {
            let (kind, stat, flags) = kind(number)?;
            // SECURITY: a connected socket can be connected to somebody else; only the way to make one is closed.
            if network != Network::Open && stat.is(g::S_IFSOCK) && !sys::is_unix_socket(number) {
                return Err(Failure::new("stdio", "a standard stream is a network socket, and the network is closed"));
            }
            if kind != Kind::Copied {
                continue;
            }
            // Standard output and error on one file share a pipe, so that their order is kept.
            if number == 2
                && let Some((other, other_flags)) = output
                && other.same_file(&stat)
                && other_flags == flags
            {
                pumps.inside[2] = pumps.inside[1];
                continue;
            }
            let (read_end, write_end) = sys::pipe().or_fail("stdio", "cannot make a pipe for a standard stream")?;
            let file =
                sys::fcntl(number, g::F_DUPFD_CLOEXEC, 3).or_fail("stdio", "cannot keep a standard stream")? as i32;
            let mut never_waits = file;
            if stat.is(g::S_IFIFO) {
                // O_NONBLOCK belongs to an opening, and the one that we have is the caller's too.
                let access = if number == 0 { g::O_RDONLY } else { g::O_WRONLY };
                never_waits = sys::open(sys::CWD, STREAMS[number as usize], access | g::O_NONBLOCK, 0)
                    .or_fail("stdio", "cannot open the FIFO on a standard stream again (does nobody read it?)")?;
                if number > 0 {
                    sys::close(file);
                }
            }
            let (ours, theirs) = if number == 0 { (write_end, read_end) } else { (read_end, write_end) };
            sys::fcntl(ours, g::F_SETFL, g::O_NONBLOCK as usize)
                .or_fail("stdio", "cannot prepare a standard stream")?;
            let (source, reader, writer) =
                if number == 0 { (file, never_waits, ours) } else { (ours, ours, never_waits) };
            let buffer = sys::allocate(BUFFER_BYTES).or_fail("stdio", "no memory")?;
            let gives_back = number == 0;
            pumps.pumps[number as usize] =
                Some(Pump { source, reader, writer, buffer, pending: 0..0, written: 0, ended: false, gives_back });
            pumps.inside[number as usize] = Some(theirs);
            if number == 1 {
                output = Some((stat, flags));
            }
        }
        Ok(pumps)
    }

    /// Nothing needs copying.
    pub(crate) fn is_idle(&self) -> bool {
        self.inside.iter().all(Option::is_none)
    }

    /// In the process that will be the command: puts the pipes in place.
    pub(crate) fn install(&self) -> Result<(), Failure> {
        for (number, inside) in self.inside.iter().enumerate() {
            if let Some(fd) = inside {
                sys::duplicate_onto(*fd, number as i32).or_fail("stdio", "cannot install a standard stream")?;
            }
        }
        Ok(())
    }

    /// In the process that copies: gives up the command's ends of the output pipes, so that their end can be seen.
    pub(crate) fn keep_outside_only(&mut self) {
        let [_, output, error] = self.inside;
        output.iter().for_each(|fd| sys::close(*fd));
        error.iter().filter(|fd| output != Some(**fd)).for_each(|fd| sys::close(*fd));
    }

    /// Says what to wait for.
    pub(crate) fn interests(&self) -> [g::pollfd; 3] {
        [0, 1, 2].map(|number: usize| {
            let (fd, events) = match &self.pumps[number] {
                // A FIFO may have nothing yet; a file always has.
                Some(pump) if !pump.ended && pump.pending.is_empty() => (pump.source, g::POLLIN),
                Some(pump) if !pump.ended => (pump.writer, g::POLLOUT),
                _ => (-1, 0),
            };
            g::pollfd { fd, events: events as i16, revents: 0 }
        })
    }

    /// Moves what can be moved without waiting, where `poll` found something.
    pub(crate) fn advance(&mut self, ready: [bool; 3]) {
        for (pump, _) in self.pumps.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            pump.iter_mut().for_each(|pump| _ = pump.step(&mut self.failed));
        }
    }

    /// After the command and all that could write have ended: copies what is left and is taken now. False if there is more.
    pub(crate) fn drain(&mut self) -> bool {
        let [input, outputs @ ..] = &mut self.pumps;
        input.iter_mut().filter(|input| !input.ended).for_each(|input| _ = input.end());
        outputs.iter_mut().flatten().all(|output| {
            let last = (0..TURN).map(|_| output.step(&mut self.failed)).find(|step| *step != Step::Moved);
            // If somebody could not be ended, waiting for the end of the pipe would wait for them.
            output.ended || (last == Some(Step::MustWait) && output.pending.is_empty())
        })
    }

    /// Gives back what was taken from standard input but never read, so that the next reader of the caller's descriptor goes
    /// on where the command stopped.
    ///
    /// SECURITY: the pipe may hold what the command wrote into it. No more counts than was copied, so the offset does not
    /// go below where it was; any place beyond that the command can choose as well by reading less.
    pub(crate) fn give_back(&self) {
        if let (Some(input), Some(read_end)) = (&self.pumps[0], self.inside[0]) {
            let unread = sys::bytes_in_pipe(read_end).unwrap_or(0).min(input.written) + input.pending.len();
            // A FIFO cannot seek; then these bytes are lost, as they are in any reader's buffer.
            let _ = sys::seek_back(input.source, unread);
        }
    }

    /// Says why output was lost: the command has got SIGPIPE, and its caller should know. Not if standard error would make us
    /// wait.
    pub(crate) fn say_what_failed(&self) {
        if let Some(errno) = self.failed
            && sys::events_now(2, g::POLLOUT) == g::POLLOUT
        {
            let mut line = Line::new();
            line.text("pinfold-run: cannot write standard output or error: ").text(errno.text());
            let _ = line.send(2);
        }
    }
}

/// Where the terminals of the standard streams are put inside: the first at the place that containers use.
pub(crate) const TERMINAL_PLACES: [&CStr; 3] = [c"/dev/console", c"/dev/tty1", c"/dev/tty2"];

/// Returns the terminals on the standard streams, each once, as detached mounts of their nodes. -1 where there is none, or
/// its node cannot be found by its name.
pub(crate) fn find_terminals() -> Result<[i32; 3], Failure> {
    let mut trees = [-1; 3];
    let mut seen: [Option<sys::Stat>; 3] = [None; 3];
    for number in 0..3 {
        let (kind, stat, _) = kind(number as i32)?;
        if kind != Kind::Terminal || seen.iter().flatten().any(|other| other.same_file(&stat)) {
            continue;
        }
        seen[number] = Some(stat);
        let mut buffer = [0_u8; g::PATH_MAX as usize];
        // A container may have it at the second place only.
        for name in [sys::read_link(STREAMS[number], &mut buffer), Ok(TERMINAL_PLACES[0])] {
            // RACE: the node is compared after it was opened, and what was opened is what is mounted.
            if let Ok(tree) = name.and_then(|name| sys::clone_tree(sys::CWD, name, false))
                && sys::fstat(tree).is_ok_and(|found| found.same_file(&stat))
            {
                trees[number] = tree;
                break;
            }
        }
    }
    Ok(trees)
}

/// Inside the new mount tree: opens the devices on standard streams anew, so that the host's nodes,
/// which the caller may own, cannot be changed: on a read-only mount a device takes writes, but not another mode or owner.
pub(crate) fn reopen_devices() -> Result<(), Failure> {
    let (user, _) = sys::effective_ids();
    for number in 0..3 {
        let (kind, stat, flags) = kind(number)?;
        let access = (flags as u32 & (g::O_ACCMODE | g::O_APPEND | g::O_NONBLOCK)) | g::O_NOCTTY;
        let fd = match kind {
            Kind::Device(path) => sys::open(sys::CWD, path, access, 0)
                .or_fail("stdio", "cannot open the device again:")
                .map_err(|failure| failure.of(path))?,
            Kind::Terminal => match reopen_terminal(&stat, access) {
                Some(fd) => fd,
                // Another user's, passed on by a program such as su: nobody inside can change its node.
                None if stat.owner != user => continue,
                None => return Err(Failure::new("stdio", "a terminal on a standard stream has no name here")),
            },
            _ => continue,
        };
        sys::duplicate_onto(fd, number).or_fail("stdio", "cannot install a standard stream")?;
        sys::close(fd);
    }
    Ok(())
}

/// Opens a terminal anew where it was put.
fn reopen_terminal(stat: &sys::Stat, access: u32) -> Option<i32> {
    TERMINAL_PLACES.into_iter().find_map(|path| {
        let fd = sys::open(sys::CWD, path, access, 0).ok()?;
        if sys::fstat(fd).is_ok_and(|found| found.same_file(stat)) {
            return Some(fd);
        }
        sys::close(fd);
        None
    })
}
