//! What a waiting process is asked for: its memory, directories, descriptors and umask.
//!
//! RACE: a thread number is only this thread's as long as the call waits; so after each use of it we ask whether it does.

use crate::observe::Attempt;
use crate::protect::Refused;
use crate::serve::Server;
use crate::sys::{self, Call};
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Why a call is not performed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// With the error that the kernel would give, or gave us.
    Errno(Errno),
    /// It is forbidden.
    Denied(Box<Refused>),
    /// Nobody waits any more.
    Gone,
}

impl Refusal {
    /// The same, without a question to anybody.
    pub(crate) fn for_good(self) -> Self {
        match self {
            Self::Denied(refused) => Self::Denied(Box::new(Refused { pins: None, ..*refused })),
            other => other,
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

pub(crate) type Outcome<T> = Result<T, Refusal>;

/// The longest path, with its NUL (PATH_MAX).
const PATH_BYTES: usize = 4096;
const PAGE: u64 = 4096;
/// How much of a file about a process is read.
const MOST_READ: usize = 8192;
/// How long a umask is believed: threads could change each other's at any time.
const UMASK_IS_GOOD_FOR: Duration = Duration::from_millis(20);

/// A thread that waits for the answer to a call.
pub(crate) struct Caller<'a> {
    pub(crate) server: &'a Server,
    pub(crate) call: Call,
    /// What somebody has permitted, for this call alone.
    pub(crate) permitted: Vec<Refused>,
    /// Which of these were met, as bits.
    met: Cell<u32>,
    seen: RefCell<Seen>,
    again: bool,
    /// What the call was about to do, where that is observed.
    pub(crate) attempts: RefCell<Vec<Attempt>>,
}

/// What was read of a caller when its call was looked at first.
///
/// SECURITY: between the question to a person and the act its memory, directory and descriptors may have changed. A second
/// look uses these, and reads nothing anew.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    memory: Vec<((u64, usize), Vec<u8>)>,
    handles: Vec<(String, OwnedFd)>,
}

/// A umask that was read lately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownUmask {
    thread: u32,
    mask: Mode,
    read: Instant,
    /// How many umask(2) calls had been seen before.
    changes: u64,
}

impl<'a> Caller<'a> {
    /// A call that is looked at first.
    pub(crate) fn first(server: &'a Server, call: Call) -> Self {
        let (permitted, seen) = (Vec::new(), RefCell::default());
        Self { server, call, permitted, met: Cell::new(0), seen, again: false, attempts: RefCell::default() }
    }

    /// The same call again, as it was seen before, with what was permitted since.
    pub(crate) fn again(server: &'a Server, call: Call, seen: Seen, permitted: Vec<Refused>) -> Self {
        let seen = RefCell::new(seen);
        Self { server, call, permitted, met: Cell::new(0), seen, again: true, attempts: RefCell::default() }
    }

    /// Whether exactly this was permitted.
    pub(crate) fn is_permitted(&self, refused: &Refused) -> bool {
        let found = self.permitted.iter().position(|permitted| permitted == refused);
        self.met.set(self.met.get() | found.map_or(0, |index| 1 << index));
        found.is_some()
    }

    /// Whether everything that was permitted was met where it had been. If not, the call leads elsewhere by now.
    pub(crate) fn met_all(&self) -> bool {
        self.met.get().count_ones() as usize == self.permitted.len()
    }

    /// What is kept of a call that waits for a person.
    pub(crate) fn into_seen(self) -> (Seen, Vec<Refused>) {
        (self.seen.into_inner(), self.permitted)
    }
}

impl Caller<'_> {
    /// An argument as the kernel takes it for `int` and `unsigned int`: the low half.
    pub(crate) fn number(&self, index: usize) -> u32 {
        self.call.arguments[index] as u32
    }

    /// A descriptor argument, or AT_FDCWD.
    pub(crate) fn directory(&self, index: usize) -> i32 {
        self.number(index).cast_signed()
    }

    pub(crate) fn address(&self, index: usize) -> u64 {
        self.call.arguments[index]
    }

    fn check(&self) -> Outcome<()> {
        if sys::still_waits(self.server.listener.as_fd(), self.call.id) { Ok(()) } else { Err(Refusal::Gone) }
    }

    /// A process whose memory we may not read is refused, and that is told: nobody knows at which path. One whose pointer is
    /// wrong is told so.
    fn memory_error(&self, errno: Errno) -> Refusal {
        if errno == Errno::FAULT { errno.into() } else { self.deny(self.operation(), Path::new(""), None) }
    }

    /// The call's name in a report, as far as its number tells.
    fn operation(&self) -> &'static str {
        match self.call.number {
            libc::SYS_open | libc::SYS_openat | libc::SYS_creat => "open",
            libc::SYS_rename | libc::SYS_renameat | libc::SYS_renameat2 => "rename",
            libc::SYS_unlink | libc::SYS_unlinkat => "unlink",
            libc::SYS_rmdir => "rmdir",
            libc::SYS_mkdir | libc::SYS_mkdirat => "mkdir",
            libc::SYS_mknod | libc::SYS_mknodat => "mknod",
            libc::SYS_link | libc::SYS_linkat => "link",
            libc::SYS_symlink | libc::SYS_symlinkat => "symlink",
            libc::SYS_truncate => "truncate",
            libc::SYS_ioctl => "ioctl",
            libc::SYS_connect => "connect",
            _ => "metadata",
        }
    }

    /// Reads a string of at most `most` bytes with its NUL, which is left out; `too_long` if there is none.
    pub(crate) fn text(&self, address: u64, most: usize, too_long: Errno) -> Outcome<Vec<u8>> {
        self.memory(address, most, || self.read_text(address, most, too_long))
    }

    fn memory(&self, address: u64, length: usize, read: impl FnOnce() -> Outcome<Vec<u8>>) -> Outcome<Vec<u8>> {
        if self.server.asks.is_none() {
            return read();
        }
        let known = |seen: &Seen| {
            let found = seen.memory.iter().find(|(place, _)| *place == (address, length));
            found.map(|(_, bytes)| bytes.clone())
        };
        if let Some(bytes) = known(&self.seen.borrow()) {
            return Ok(bytes);
        }
        if self.again {
            return Err(Errno::PERM.into());
        }
        let bytes = read()?;
        self.seen.borrow_mut().memory.push(((address, length), bytes.clone()));
        Ok(bytes)
    }

    fn read_text(&self, address: u64, most: usize, too_long: Errno) -> Outcome<Vec<u8>> {
        let mut text = Vec::with_capacity(256);
        while text.len() < most {
            let at = address.wrapping_add(text.len() as u64);
            // What lies behind the end of a page may not be there, and need not be.
            let here = (PAGE - at % PAGE) as usize;
            let mut piece = [0; PATH_BYTES];
            let piece = &mut piece[..here.min(most - text.len())];
            let count = sys::read_memory(self.call.thread, at, piece);
            self.check()?;
            let piece = &piece[..count.map_err(|errno| self.memory_error(errno))?];
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(&piece[..end]);
                return Ok(text);
            }
            if piece.is_empty() {
                return Err(Errno::FAULT.into());
            }
            text.extend_from_slice(piece);
        }
        Err(too_long.into())
    }

    /// Reads the path to which an argument points.
    pub(crate) fn path(&self, index: usize) -> Outcome<Vec<u8>> {
        self.text(self.address(index), PATH_BYTES, Errno::NAMETOOLONG)
    }

    /// Reads exactly so many bytes.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Outcome<Vec<u8>> {
        self.memory(address, length, || self.read_bytes(address, length))
    }

    fn read_bytes(&self, address: u64, length: usize) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; length];
        if length > 0 {
            let count = sys::read_memory(self.call.thread, address, &mut bytes);
            self.check()?;
            if count.map_err(|errno| self.memory_error(errno))? < length {
                return Err(Errno::FAULT.into());
            }
        }
        Ok(bytes)
    }

    /// Opens something below the thread's directory in /proc, as a handle.
    fn handle(&self, name: &str, missing: Errno) -> Outcome<OwnedFd> {
        if self.server.asks.is_none() {
            return self.open_handle(name, missing);
        }
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(|_| Refusal::Errno(Errno::NFILE));
        if let Some((_, known)) = self.seen.borrow().handles.iter().find(|(known, _)| known == name) {
            return copy(known);
        }
        if self.again {
            return Err(Errno::PERM.into());
        }
        let handle = self.open_handle(name, missing)?;
        self.seen.borrow_mut().handles.push((name.to_owned(), copy(&handle)?));
        Ok(handle)
    }

    fn open_handle(&self, name: &str, missing: Errno) -> Outcome<OwnedFd> {
        let path = format!("{}/{name}", self.call.thread);
        let opened = openat(&self.server.proc, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        self.check()?;
        opened.map_err(|errno| if errno == Errno::NOENT { missing.into() } else { errno.into() })
    }

    pub(crate) fn working_directory(&self) -> Outcome<OwnedFd> {
        self.handle("cwd", Errno::NOENT)
    }

    pub(crate) fn executable(&self) -> Outcome<OwnedFd> {
        self.handle("exe", Errno::NOENT)
    }

    /// A handle of what a descriptor of the caller's has open.
    pub(crate) fn descriptor(&self, number: i32) -> Outcome<OwnedFd> {
        if number < 0 {
            return Err(Errno::BADF.into());
        }
        self.handle(&format!("fd/{number}"), Errno::BADF)
    }

    /// Takes a copy of a descriptor, with which what is open behind it can be used.
    pub(crate) fn take_descriptor(&self, number: i32) -> Outcome<OwnedFd> {
        if number < 0 {
            return Err(Errno::BADF.into());
        }
        // PIDFD_THREAD: a thread may have descriptors of its own.
        // SINCE(Linux 6.9): without it those of the process are taken, if they are the same.
        let of_thread = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());
        let (pidfd, is_certain) = match pidfd_open(pid(self.call.thread)?, of_thread) {
            Err(Errno::INVAL) => (pidfd_open(pid(self.who().0)?, PidfdFlags::empty()), false),
            opened => (opened, true),
        };
        self.check()?;
        let taken = pidfd_getfd(pidfd?, number, PidfdGetfdFlags::empty())?;
        if !is_certain {
            let (one, other) = (fstat(&taken)?, fstat(self.descriptor(number)?)?);
            if (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino) {
                return Err(Errno::BADF.into());
            }
        }
        Ok(taken)
    }

    /// Whether a signal waits for whose handler the kernel would have interrupted the call.
    pub(crate) fn has_signal_to_handle(&self) -> Outcome<bool> {
        let status = self.read("status")?;
        let set = |name| Self::fact(&status, name).and_then(|text| u64::from_str_radix(&text, 16).ok()).unwrap_or(0);
        Ok((set("SigPnd") | set("ShdPnd")) & set("SigCgt") & !set("SigBlk") != 0)
    }

    fn read(&self, name: &str) -> Outcome<Vec<u8>> {
        let path = format!("{}/{name}", self.call.thread);
        let file = openat(&self.server.proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        self.check()?;
        let mut text = vec![0; MOST_READ];
        let count = rustix::io::read(file?, text.as_mut_slice())?;
        self.check()?;
        text.truncate(count);
        Ok(text)
    }

    /// The value of a line of `/proc/PID/status`.
    fn fact(status: &[u8], name: &str) -> Option<String> {
        let text = String::from_utf8_lossy(status);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }

    pub(crate) fn umask(&self, known: &mut Option<KnownUmask>) -> Outcome<Mode> {
        let now = Instant::now();
        let changes = self.server.umask_changes.load(Ordering::Acquire);
        let is_good = |known: &KnownUmask| {
            known.thread == self.call.thread && known.changes == changes && now - known.read < UMASK_IS_GOOD_FOR
        };
        if let Some(known) = known.filter(is_good) {
            return Ok(known.mask);
        }
        let status = self.read("status")?;
        let mask = Self::fact(&status, "Umask").and_then(|text| u32::from_str_radix(&text, 8).ok());
        let mask = Mode::from_bits_retain(mask.ok_or(Errno::PERM)?);
        *known = Some(KnownUmask { thread: self.call.thread, mask, read: now, changes });
        Ok(mask)
    }

    /// Number and name of the process, for a report; of a process that ended meanwhile, what is left.
    pub(crate) fn who(&self) -> (u32, Vec<u8>) {
        let status = self.read("status").unwrap_or_default();
        let process = Self::fact(&status, "Tgid").and_then(|text| text.parse().ok()).unwrap_or(self.call.thread);
        (process, self.read("comm").map(|name| name.trim_ascii_end().to_vec()).unwrap_or_default())
    }

    /// The words of the process's command line as it shows them itself, and whether these are all of them.
    pub(crate) fn command_line(&self) -> (Vec<Vec<u8>>, bool) {
        let text = self.read("cmdline").unwrap_or_default();
        // A read that was filled may have been cut.
        let whole = text.len() < MOST_READ;
        let words = text.strip_suffix(&[0]).unwrap_or(&text);
        let words =
            if words.is_empty() { Vec::new() } else { words.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect() };
        (words, whole)
    }

    /// Number of the process where it lives itself: what `/proc/self` leads to.
    pub(crate) fn own_number(&self) -> Outcome<String> {
        let status = self.read("status")?;
        let numbers = Self::fact(&status, "NStgid").or_else(|| Self::fact(&status, "Tgid"));
        let last = numbers.as_deref().and_then(|text| text.split_whitespace().last().map(str::to_owned));
        Ok(last.ok_or(Errno::ACCESS)?)
    }

    /// Refuses to make a file larger than its maker may (RLIMIT_FSIZE, setrlimit(2)).
    pub(crate) fn may_grow_to(&self, length: u64) -> Outcome<()> {
        let most = sys::file_size_limit(self.call.thread);
        self.check()?;
        if length <= most? {
            return Ok(());
        }
        if let Some(thread) = i32::try_from(self.call.thread).ok().and_then(Pid::from_raw) {
            // It may have ended, and then needs no signal.
            let _ = kill_process(thread, Signal::XFSZ);
        }
        Err(Errno::FBIG.into())
    }

    /// Device number of the controlling terminal; ENXIO if there is none (tty(4)).
    pub(crate) fn terminal(&self) -> Outcome<u64> {
        let stat = self.read("stat")?;
        // Behind the name, which is in parentheses and may hold anything: state, parent, group, session, terminal.
        let end = stat.iter().rposition(|byte| *byte == b')').ok_or(Errno::NXIO)?;
        let rest = String::from_utf8_lossy(&stat[end + 1..]).into_owned();
        let device: i32 = rest.split_whitespace().nth(4).and_then(|text| text.parse().ok()).ok_or(Errno::NXIO)?;
        match device.cast_unsigned() {
            0 => Err(Errno::NXIO.into()),
            // Encoded as by old_encode_dev/new_encode_dev: minor in bits 0-7 and 20-31, major in 8-19.
            device => Ok(rustix::fs::makedev((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00))),
        }
    }
}

fn pid(number: u32) -> Outcome<Pid> {
    Ok(i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?)
}
