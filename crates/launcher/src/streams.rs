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
use crate::status::Line;
use crate::sys;

const PIPE_FILE_SYSTEM: u64 = 0x5049_5045;

/// What stands behind a standard stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Passed on unchanged.
    Passed,
    /// A file with a path: copied through a pipe.
    Copied,
    /// A memory device such as `/dev/null`, by minor number: opened anew inside.
    Device(u64),
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
    } else if stat.is(g::S_IFCHR) && stat.special >> 8 == 1 {
        Kind::Device(stat.special & 0xff)
    } else {
        Kind::Passed
    };
    Ok((kind, stat, flags))
}

/// Standard input from a file: file to pipe.
struct Input {
    /// What is waited for.
    file: i32,
    /// What is read from. Of a FIFO it is another opening that never waits, because the command can take away what `poll`
    /// saw, by opening the FIFO itself; and the end of writing shows at the first opening only.
    reader: i32,
    /// The end that we write to; -1 once the file has ended.
    write_end: i32,
    /// Kept to see, at the end, what nobody has read.
    read_end: i32,
    /// The part of the buffer that is read but not yet written.
    pending: core::ops::Range<usize>,
}

/// Standard output or error to a file: pipe to file.
struct Output {
    read_end: i32,
    file: i32,
}

/// What copies the streams that are not passed on, and the ends of pipes that the command gets in their place.
pub(crate) struct Pumps {
    input: Option<Input>,
    outputs: [Option<Output>; 2],
    inside: [Option<i32>; 3],
    buffer: &'static mut [u8],
}

const BUFFER_BYTES: usize = 64 << 10;

impl Pumps {
    /// Looks at descriptors 0, 1 and 2 and prepares a pipe for each that must not be passed on.
    pub(crate) fn prepare() -> Result<Self, Failure> {
        let mut pumps = Self { input: None, outputs: [None, None], inside: [None; 3], buffer: &mut [] };
        let mut output: Option<(sys::Stat, usize)> = None;
        for number in 0..3_i32 {
            let (kind, stat, flags) = kind(number)?;
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
            if number == 0 {
                // The pipe may be full; waiting for room is poll's work.
                sys::fcntl(write_end, g::F_SETFL, g::O_NONBLOCK as usize)
                    .or_fail("stdio", "cannot prepare a standard stream")?;
                let mut reader = file;
                if stat.is(g::S_IFIFO) {
                    reader = sys::open(sys::CWD, c"/proc/self/fd/0", g::O_RDONLY | g::O_NONBLOCK, 0)
                        .or_fail("stdio", "cannot open the FIFO on standard input again")?;
                }
                pumps.input = Some(Input { file, reader, write_end, read_end, pending: 0..0 });
                pumps.inside[0] = Some(read_end);
            } else {
                output = Some((stat, flags));
                pumps.outputs[number as usize - 1] = Some(Output { read_end, file });
                pumps.inside[number as usize] = Some(write_end);
            }
        }
        if !pumps.is_idle() {
            pumps.buffer = sys::allocate(2 * BUFFER_BYTES).or_fail("stdio", "no memory")?;
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
        let entry = |fd, events| g::pollfd { fd, events: events as i16, revents: 0 };
        let output = |output: &Option<Output>| entry(output.as_ref().map_or(-1, |it| it.read_end), g::POLLIN);
        let input = match &self.input {
            Some(input) if input.write_end < 0 => entry(-1, 0),
            // A FIFO may have nothing yet; a file always has.
            Some(input) if input.pending.is_empty() => entry(input.file, g::POLLIN),
            Some(input) => entry(input.write_end, g::POLLOUT),
            None => entry(-1, 0),
        };
        [input, output(&self.outputs[0]), output(&self.outputs[1])]
    }

    /// Moves what can be moved without waiting, where `poll` found something.
    pub(crate) fn advance(&mut self, ready: [bool; 3]) {
        let (waiting, scratch) = self.buffer.split_at_mut_checked(BUFFER_BYTES).unwrap_or_default();
        if ready[0]
            && let Some(input) = &mut self.input
            && input.step(waiting).is_err()
        {
            sys::close(input.write_end);
            input.write_end = -1;
        }
        for (output, ready) in self.outputs.iter_mut().zip(&ready[1..]) {
            if *ready && output.as_ref().is_some_and(|it| it.step(scratch).is_err()) {
                output.iter().for_each(Output::close);
                *output = None;
            }
        }
    }

    /// After the command and all that could write have ended: copies what is left in the pipes, and gives back what
    /// was taken from standard input but never read, so that the next reader of the caller's descriptor goes on
    /// where the command stopped.
    pub(crate) fn drain(&mut self) {
        let (_, scratch) = self.buffer.split_at_mut_checked(BUFFER_BYTES).unwrap_or_default();
        for output in self.outputs.iter().flatten() {
            // If somebody could not be ended, waiting for the end of the pipe would wait for them.
            let _ = sys::fcntl(output.read_end, g::F_SETFL, g::O_NONBLOCK as usize);
            while output.step(scratch).is_ok() {}
        }
        if let Some(input) = self.input.take() {
            let unread = sys::bytes_in_pipe(input.read_end).unwrap_or(0) + input.pending.len();
            if unread > 0 {
                // A FIFO cannot seek; then these bytes are lost, as they are in any reader's buffer.
                let _ = sys::seek_back(input.file, unread);
            }
        }
    }
}

/// Copying in one direction has ended.
struct Ended;

impl Input {
    fn step(&mut self, buffer: &mut [u8]) -> Result<(), Ended> {
        if self.pending.is_empty() {
            match sys::read(self.reader, buffer) {
                Ok(0) => return Err(Ended),
                Ok(count) => self.pending = 0..count,
                Err(Errno::INTR | Errno::AGAIN) => return Ok(()),
                Err(_) => return Err(Ended),
            }
        }
        match sys::write(self.write_end, buffer.get(self.pending.clone()).unwrap_or_default()) {
            Ok(count) => self.pending.start += count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return Err(Ended),
        }
        Ok(())
    }
}

impl Output {
    fn step(&self, buffer: &mut [u8]) -> Result<(), Ended> {
        let count = match sys::read(self.read_end, buffer) {
            Ok(0) => return Err(Ended),
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(()),
            Err(_) => return Err(Ended),
        };
        let mut rest = buffer.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            match sys::write(self.file, rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut room = [g::pollfd { fd: self.file, events: g::POLLOUT as i16, revents: 0 }];
                    sys::poll(&mut room).map_err(|_| Ended)?;
                }
                Err(errno) => {
                    // The command will get SIGPIPE; its caller should know why.
                    let mut line = Line::new();
                    line.text("pinfold-run: cannot write standard output or error: ").text(errno.text());
                    let _ = line.send(2);
                    return Err(Ended);
                }
            }
        }
        Ok(())
    }

    fn close(&self) {
        sys::close(self.read_end);
        sys::close(self.file);
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
        let stat = sys::fstat(number as i32).or_fail("stdio", "cannot examine a standard stream")?;
        if !stat.is_terminal() || seen.iter().flatten().any(|other| other.same_file(&stat)) {
            continue;
        }
        seen[number] = Some(stat);
        let mut link = *b"/proc/self/fd/0\0";
        link[14] += number as u8;
        let mut buffer = [0_u8; g::PATH_MAX as usize];
        let name = CStr::from_bytes_with_nul(&link)
            .map_err(|_| Errno::INVAL)
            .and_then(|link| sys::read_link(link, &mut buffer));
        // RACE: the node is compared after it was opened, and what was opened is what is mounted.
        let tree = name.and_then(|name| sys::clone_tree(sys::CWD, name, false));
        if let Ok(tree) = tree
            && sys::fstat(tree).is_ok_and(|found| found.same_file(&stat))
        {
            trees[number] = tree;
        }
    }
    Ok(trees)
}

/// Without a mount tree of ours nothing can be opened anew; what gives access to memory is refused all the same.
pub(crate) fn refuse_memory() -> Result<(), Failure> {
    for number in 0..3 {
        if let (Kind::Device(minor), ..) = kind(number)?
            && !HARMLESS_DEVICES.contains(&minor)
        {
            return Err(MEMORY);
        }
    }
    Ok(())
}

/// Minor numbers of null, zero, full, random and urandom (`Documentation/admin-guide/devices.txt`).
const HARMLESS_DEVICES: [u64; 5] = [3, 5, 7, 8, 9];

const MEMORY: Failure = Failure::new("stdio", "a standard stream is a device that gives access to memory");

/// Inside the new mount tree: opens the devices on standard streams anew, so that the host's nodes,
/// which the caller may own, cannot be changed: on a read-only mount a device takes writes, but not another mode or owner.
pub(crate) fn reopen_devices() -> Result<(), Failure> {
    for number in 0..3 {
        let (kind, stat, flags) = kind(number)?;
        let access = (flags as u32 & (g::O_ACCMODE | g::O_APPEND | g::O_NONBLOCK)) | g::O_NOCTTY;
        let path = match kind {
            Kind::Device(3) => c"/dev/null",
            Kind::Device(5) => c"/dev/zero",
            Kind::Device(7) => c"/dev/full",
            Kind::Device(8) => c"/dev/random",
            Kind::Device(9) => c"/dev/urandom",
            Kind::Device(_) => return Err(MEMORY),
            _ if stat.is_terminal() => {
                reopen_terminal(number, &stat, access)?;
                continue;
            }
            _ => continue,
        };
        let fd = sys::open(sys::CWD, path, access, 0)
            .or_fail("stdio", "cannot open the device again:")
            .map_err(|failure| failure.of(path))?;
        sys::duplicate_onto(fd, number).or_fail("stdio", "cannot install a standard stream")?;
        sys::close(fd);
    }
    Ok(())
}

/// Opens a terminal anew where it was put. If it was not put anywhere, or is another user's, passed on by a program such as
/// su, the descriptor stays as it is; in the second case nobody inside can change the node either.
fn reopen_terminal(number: i32, stat: &sys::Stat, access: u32) -> Result<(), Failure> {
    for path in TERMINAL_PLACES {
        let Ok(fd) = sys::open(sys::CWD, path, access, 0) else { continue };
        let is_it = sys::fstat(fd).is_ok_and(|found| found.same_file(stat));
        if is_it {
            sys::duplicate_onto(fd, number).or_fail("stdio", "cannot install a standard stream")?;
        }
        sys::close(fd);
        if is_it {
            break;
        }
    }
    Ok(())
}
