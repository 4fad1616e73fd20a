//! A session's log: one file to which lines are only added, by several processes at once, and the truth about the session.
//!
//! ```text
//! log.jsonl   one event per line; each line's sum covers the line and, through the sum above it, everything before
//! head        how long the log was, and its sum, when the last event was promised: so that an end that is missing is seen
//! lock        empty; whoever reads or adds holds it (flock(2)). Mode 200
//! ```
//!
//! SECURITY: what can be opened for reading can be locked, and a confined command can read what no mount tree hides. So the
//! lock is a file that its owner can open for writing only, and writing is what a command cannot.
//!
//! Order of an append: exclusive lock; read what others added; check; write; fdatasync(2) for what is promised; head;
//! unlock. What stands behind the head and is not whole was never promised to anybody: the next writer cuts it off.
//! Anything else that is not as it was written is damage, and of a damaged log nothing is believed.

pub mod event;
pub mod state;

use crate::digest::Digest;
use crate::error::SessionError;
use event::{Answered, Event, Line, Record, read_line, write_line};
use rustix::fs::{FlockOperation, Mode, OFlags};
use state::State;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The names of the files.
const LOG: &str = "log.jsonl";
const HEAD: &str = "head";
const LOCK: &str = "lock";

/// A head is a length, a blank, a sum and the end of the line.
const HEAD_BYTES: usize = 20 + 1 + 64 + 1;

/// How long another process may hold the log: each holds it for one event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How much is read at once.
const CHUNK: usize = 256 << 10;

/// Longer lines are no events.
const LONGEST_LINE: usize = 8 << 20;

/// What a process may do with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Read it and add to it.
    Append,
}

/// An open log, with the state that it leads to.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    head: File,
    /// None on a file system that nobody can write: then nobody adds anything either.
    lock: Option<File>,
    /// Up to here the file was read, and is what was written.
    length: u64,
    sum: Digest,
    seq: u64,
    state: State,
    /// Why nothing more is believed.
    failed: Option<SessionError>,
}

/// Returns the time as events hold it: milliseconds of Unix time.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Log {
    /// Makes a log in a directory that has none, with its first event.
    ///
    /// # Errors
    ///
    /// `SESSION_LOG_UNWRITABLE`, `SESSION_EVENT_REFUSED`.
    pub fn create(directory: &Path, first: Event) -> Result<Self, SessionError> {
        let path = directory.join(LOG);
        let make = |path: &Path| {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let extra = if path.ends_with(LOG) { OFlags::APPEND } else { OFlags::empty() };
            rustix::fs::open(path, flags | extra, Mode::RUSR | Mode::WUSR).map(File::from).map_err(io::Error::from)
        };
        let head_path = directory.join(HEAD);
        let head = make(&head_path).map_err(|error| unwritable("make", &head_path, &error))?;
        let file = make(&path).map_err(|error| unwritable("make", &path, &error))?;
        let lock = open_lock(directory)?;
        let mut log = Self::of(path, file, head, lock);
        log.write_head().map_err(|error| unwritable("write", &head_path, &error))?;
        log.transact(|_, _| Ok((vec![first], ())))?;
        // The names are promised too.
        sync_directory(directory).map_err(|error| unwritable("sync", directory, &error))?;
        Ok(log)
    }

    /// Opens a log and replays it.
    ///
    /// # Errors
    ///
    /// `SESSION_LOG_DAMAGED`, `SESSION_LOG_NEWER`, `SESSION_BUSY`, `SESSION_STATE_UNAVAILABLE` for files that are not
    /// ours alone, `SESSION_LOG_UNWRITABLE` where appending is not possible.
    pub fn open(directory: &Path, access: Access) -> Result<Self, SessionError> {
        let path = directory.join(LOG);
        let file = open_private(&path, access, OFlags::APPEND)?;
        let head = open_private(&directory.join(HEAD), access, OFlags::empty())?;
        let mut log = Self::of(path, file, head, open_lock(directory)?);
        log.refresh()?;
        Ok(log)
    }

    fn of(path: PathBuf, file: File, head: File, lock: Option<File>) -> Self {
        let (sum, state) = (Digest::ZERO, State::default());
        Self { path, file, head, lock, length: 0, sum, seq: 0, state, failed: None }
    }

    /// Returns what the log says holds, as of the last look.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Reads what was added since the last look.
    ///
    /// # Errors
    ///
    /// `SESSION_LOG_DAMAGED`, `SESSION_LOG_NEWER`, `SESSION_BUSY`.
    pub fn refresh(&mut self) -> Result<&State, SessionError> {
        let _lock = self.take(FlockOperation::NonBlockingLockShared)?;
        self.catch_up(&mut |_| ())?;
        Ok(&self.state)
    }

    /// Reads every event from the first, in order.
    ///
    /// # Errors
    ///
    /// As [`Log::refresh`].
    pub fn read_all(directory: &Path, mut each: impl FnMut(&Record)) -> Result<State, SessionError> {
        let path = directory.join(LOG);
        let file = open_private(&path, Access::Read, OFlags::empty())?;
        let head = open_private(&directory.join(HEAD), Access::Read, OFlags::empty())?;
        let mut log = Self::of(path, file, head, open_lock(directory)?);
        let _lock = log.take(FlockOperation::NonBlockingLockShared)?;
        log.catch_up(&mut each)?;
        Ok(std::mem::take(&mut log.state))
    }

    /// Reads every event from the first, in order.
    pub(crate) fn read_again(&mut self, each: impl FnMut(&Record)) -> Result<State, SessionError> {
        Self::read_all(self.directory(), each)
    }

    /// Returns where the log lies.
    pub(crate) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Returns the answer that was given to a question: what the log says, whoever wrote it.
    pub(crate) fn answer_of(&mut self, ask: &str) -> Result<Answered, SessionError> {
        let mut found = None;
        self.read_again(|record| match &record.event {
            Event::Answered(answered) if answered.id == ask => found = Some(answered.clone()),
            _ => {}
        })?;
        found.ok_or_else(|| SessionError::refused(format!("{ask} has no answer")))
    }

    /// Returns how long the file is now: longer than before exactly if somebody has added something.
    pub fn file_length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Returns how much of the file was read.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Adds events that follow from what holds. Nobody else adds anything between the look and the writing; either all of
    /// the events are added or none.
    ///
    /// `decide` receives the state and the time of the events, and returns them with a result for the caller.
    ///
    /// # Errors
    ///
    /// Those of `decide` and of [`Log::refresh`]; `SESSION_EVENT_REFUSED` for an event that contradicts what holds;
    /// `SESSION_LOG_UNWRITABLE` if the disk does not take it, and then nothing has happened.
    pub fn transact<T>(
        &mut self,
        decide: impl FnOnce(&State, u64) -> Result<(Vec<Event>, T), SessionError>,
    ) -> Result<T, SessionError> {
        let _lock = self.take(FlockOperation::NonBlockingLockExclusive)?;
        self.catch_up(&mut |_| ())?;
        // Time never runs backwards in a log.
        let at = now().max(self.state.latest());
        let (events, result) = decide(&self.state, at)?;
        if events.is_empty() {
            return Ok(result);
        }
        let written = self.write(at, events);
        if written.is_err() {
            self.start_over();
        }
        written.map(|()| result)
    }

    fn take(&self, how: FlockOperation) -> Result<Option<Lock>, SessionError> {
        let path = self.path.with_file_name(LOCK);
        self.lock.as_ref().map(|lock| Lock::take(lock, &path, how)).transpose()
    }

    fn write(&mut self, at: u64, events: Vec<Event>) -> Result<(), SessionError> {
        let (mut bytes, mut sum, mut seq) = (Vec::new(), self.sum, self.seq);
        let promised = events.iter().any(Event::is_promised);
        for event in events {
            let record = Record { seq, at, event };
            self.state.apply(&record).map_err(SessionError::refused)?;
            sum = write_line(&record, sum, &mut bytes).map_err(|error| SessionError::refused(error.to_string()))?;
            seq += 1;
        }
        self.append(&bytes, promised).map_err(|error| unwritable("write", &self.path, &error))?;
        let before = self.length;
        (self.length, self.sum, self.seq) = (self.length + bytes.len() as u64, sum, seq);
        if promised && let Err(error) = self.write_head() {
            // What was not promised did not happen. If this fails too, the head tells of it.
            let _ = self.file.set_len(before);
            return Err(unwritable("write", &self.path.with_file_name(HEAD), &error));
        }
        Ok(())
    }

    fn append(&self, bytes: &[u8], promised: bool) -> io::Result<()> {
        use io::Write as _;
        // What a dead process left unfinished.
        if self.file.metadata()?.len() != self.length {
            self.file.set_len(self.length)?;
        }
        // What would not be read again must not be written: the session would be lost with it.
        if let Some(long) = bytes.split(|byte| *byte == b'\n').map(<[u8]>::len).find(|length| *length > LONGEST_LINE) {
            let detail = format!("an event of {long} bytes is too long; {LONGEST_LINE} is the most");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, detail));
        }
        let written =
            (&self.file).write_all(bytes).and_then(|()| if promised { self.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            // A part of a line would be cut off by the next writer anyhow; if this fails too, it will be.
            let _ = self.file.set_len(self.length);
            return Err(error);
        }
        Ok(())
    }

    fn write_head(&self) -> io::Result<()> {
        self.head.write_all_at(format!("{:020} {}\n", self.length, self.sum).as_bytes(), 0)
    }

    fn read_head(&self) -> Result<(u64, Digest), String> {
        let mut bytes = [0; HEAD_BYTES + 1];
        let length = read_at(&self.head, &mut bytes, 0).map_err(|error| error.to_string())?;
        let text = std::str::from_utf8(&bytes[..length]).map_err(|error| error.to_string())?;
        let parts = text.strip_suffix('\n').filter(|_| length == HEAD_BYTES).and_then(|text| text.split_once(' '));
        let parsed = parts.and_then(|(length, sum)| Some((length.parse().ok()?, sum.parse().ok()?)));
        parsed.ok_or_else(|| "the head beside it cannot be read".to_owned())
    }

    /// Reads whole lines from where we were, under a lock.
    ///
    /// SECURITY: after a failure nothing of the log is believed by this process any more: the part that could not be read
    /// may be the one that narrows.
    fn catch_up(&mut self, each: &mut dyn FnMut(&Record)) -> Result<(), SessionError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        self.read_on(each).inspect_err(|error| {
            self.failed = Some(error.clone());
            self.state = State::default();
        })
    }

    /// Forgets everything and reads the log from its beginning, after an event that was not written.
    fn start_over(&mut self) {
        (self.length, self.sum, self.seq, self.state) = (0, Digest::ZERO, 0, State::default());
        // A failure is kept, and met by whoever looks next.
        let _ = self.catch_up(&mut |_| ());
    }

    fn read_on(&mut self, each: &mut dyn FnMut(&Record)) -> Result<(), SessionError> {
        let path = self.path.clone();
        let damaged = |offset, detail: String| SessionError::Damaged { path: path.clone(), offset, detail };
        let (promised, promised_sum) = self.read_head().map_err(|detail| damaged(0, detail))?;
        let length = self.file_length().map_err(|error| damaged(self.length, error.to_string()))?;
        if length < self.length || length < promised {
            return Err(damaged(length, format!("{} bytes were written", promised.max(self.length))));
        }
        let mut met = self.length == promised && self.sum == promised_sum || promised < self.length;
        let mut buffer = Vec::new();
        let mut end = self.length;
        let mut chunk = vec![0; CHUNK];
        'reading: loop {
            let count = read_at(&self.file, &mut chunk, end)
                .map_err(|error| damaged(end, format!("cannot be read: {error}")))?;
            if count == 0 {
                break;
            }
            end += count as u64;
            buffer.extend_from_slice(&chunk[..count]);
            let mut begin = 0;
            while let Some(size) = buffer[begin..].iter().position(|byte| *byte == b'\n') {
                match read_line(&buffer[begin..begin + size], self.sum, self.seq) {
                    Line::Record(record, sum) => {
                        self.state.apply(&record).map_err(|detail| damaged(self.length, detail))?;
                        each(&record);
                        (self.sum, self.seq) = (sum, self.seq + 1);
                    }
                    Line::Newer(version) => {
                        return Err(SessionError::Newer { path: self.path.clone(), offset: self.length, version });
                    }
                    // Behind the head it was promised to nobody.
                    Line::Bad(_) if self.length >= promised => break 'reading,
                    Line::Bad(detail) => return Err(damaged(self.length, detail)),
                }
                begin += size + 1;
                self.length += size as u64 + 1;
                met |= self.length == promised && self.sum == promised_sum;
            }
            buffer.drain(..begin);
            if buffer.len() > LONGEST_LINE {
                break;
            }
        }
        if !met {
            return Err(damaged(self.length, "its end is not the one that was written".to_owned()));
        }
        Ok(())
    }
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn unwritable(act: &'static str, path: &Path, error: &io::Error) -> SessionError {
    SessionError::Unwritable { act, path: path.to_owned(), detail: error.to_string() }
}

/// Opens a file that must be ours alone.
fn open_private(path: &Path, access: Access, flags: OFlags) -> Result<File, SessionError> {
    let refuse = |detail: String| SessionError::StateUnavailable { path: path.to_owned(), detail };
    let how = match access {
        Access::Read => OFlags::RDONLY,
        Access::Append => OFlags::RDWR | flags,
    };
    let opened = rustix::fs::open(path, how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    let file = File::from(opened.map_err(|error| match access {
        Access::Append if error == rustix::io::Errno::ROFS => unwritable("write", path, &error.into()),
        _ => refuse(error.to_string()),
    })?);
    let found = file.metadata().map_err(|error| refuse(error.to_string()))?;
    // SECURITY: what somebody else may write is no log of ours.
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(refuse("is not a file of this user alone (mode 600)".to_owned()));
    }
    Ok(file)
}

/// Opens the file that is locked; it is made if there is none.
fn open_lock(directory: &Path) -> Result<Option<File>, SessionError> {
    let path = directory.join(LOCK);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let refuse = |detail: String| SessionError::StateUnavailable { path: path.clone(), detail };
    let file = match rustix::fs::open(&path, flags, Mode::WUSR) {
        Err(rustix::io::Errno::ROFS) => return Ok(None),
        opened => File::from(opened.map_err(|error| refuse(error.to_string()))?),
    };
    let found = file.metadata().map_err(|error| refuse(error.to_string()))?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o577 != 0 {
        return Err(refuse("is not a file that this user alone can open, for writing only (mode 200)".to_owned()));
    }
    Ok(Some(file))
}

/// A lock on the log, given back when it is dropped or the process ends.
struct Lock(File);

impl Lock {
    fn take(file: &File, path: &Path, how: FlockOperation) -> Result<Self, SessionError> {
        let file = file.try_clone().map_err(|error| unwritable("lock", path, &error))?;
        let begun = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            match rustix::fs::flock(&file, how) {
                Ok(()) => return Ok(Self(file)),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if begun.elapsed() < PATIENCE => {}
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {
                    return Err(SessionError::Busy { path: path.to_owned() });
                }
                Err(error) => return Err(unwritable("lock", path, &error.into())),
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The descriptor is a duplicate, whose closing unlocks nothing as long as the other is open.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}
