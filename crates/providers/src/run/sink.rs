//! Our end of one pipe: what comes out of it is kept, told and copied on.

use crate::call::{Captured, Observer, Output, Stream};
use crate::refusals::RefusalFeed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, TryLockError};

/// Locked while a question stands: what the command writes is held back until it has its answer.
///
/// SECURITY: on the terminal where the question is put, the command would paint another one over it.
pub(crate) type Hold = Arc<Mutex<()>>;

/// What comes out of one pipe.
pub(super) struct Sink {
    pub(super) fd: Option<OwnedFd>,
    stream: Stream,
    pub(super) captured: Captured,
    /// Where it is copied to, as long as somebody takes it.
    copy_to: Option<OwnedFd>,
    /// What is still to be copied. Nothing more is read before that is done.
    pub(super) pending: Vec<u8>,
    /// Is told what comes, as it comes.
    observer: Option<(Observer, Output)>,
    /// The same for a status channel.
    feed: Option<Arc<RefusalFeed>>,
    /// Keeps us from copying.
    hold: Option<Hold>,
}

impl Sink {
    pub(super) fn new(fd: Option<OwnedFd>, stream: Stream) -> io::Result<Self> {
        if let Some(fd) = &fd {
            // Only our end: the two ends of a pipe are separate open files.
            rustix::fs::fcntl_setfl(fd, rustix::fs::fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        }
        Ok(Self {
            fd,
            stream,
            captured: Captured::default(),
            copy_to: None,
            pending: Vec::new(),
            observer: None,
            feed: None,
            hold: None,
        })
    }

    /// The same, copied on to a stream of ours.
    pub(super) fn copied(fd: Option<OwnedFd>, stream: Stream, to: &impl std::os::fd::AsFd) -> io::Result<Self> {
        let mut sink = Self::new(fd, stream)?;
        if matches!(stream, Stream::Tee { .. }) {
            sink.copy_to = writable(to).ok();
        }
        Ok(sink)
    }

    /// The same, with somebody who is told.
    pub(super) fn observed(mut self, observer: Option<&Observer>, output: Output) -> Self {
        self.observer = observer.map(|observer| (Arc::clone(observer), output));
        self
    }

    /// The same, with somebody who can have it held back.
    pub(super) fn held_by(mut self, hold: &Hold) -> Self {
        self.hold = Some(Arc::clone(hold));
        self
    }

    /// Whether it is held back now.
    pub(super) fn is_held(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| matches!(hold.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// The same, with somebody who is told of refusals.
    pub(super) fn fed(mut self, feed: Option<&Arc<RefusalFeed>>) -> io::Result<Self> {
        feed.map_or(Ok(()), |feed| feed.begin(self.fd.as_ref()))?;
        self.feed = feed.map(Arc::clone);
        Ok(self)
    }

    /// Reads what is there; the pipe is closed at its end. With `hurry`, what nobody takes now is not copied.
    pub(super) fn advance(&mut self, hurry: bool) {
        let mut buffer = [0; 16 << 10];
        // Bounded, so that one busy stream does not keep us from the clock.
        for _ in 0..16 {
            self.copy(hurry);
            let Some(fd) = self.fd.as_ref().filter(|_| self.pending.is_empty()) else { return };
            // Held while it is read, so that nobody finds it neither here nor there.
            let mut fed = self.feed.as_ref().map(|feed| feed.lock());
            match rustix::io::read(fd, &mut buffer) {
                Ok(count @ 1..) => {
                    if let Some(fed) = &mut fed {
                        fed.push(&buffer[..count]);
                    }
                    if self.copy_to.is_some() {
                        self.pending.extend_from_slice(&buffer[..count]);
                    }
                    if let Some((observer, output)) = &self.observer {
                        observer(*output, &buffer[..count]);
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
        let hold = self.hold.clone();
        // Our turn lasts until all of it is written, so that none of it comes after the question.
        let turn = hold.as_ref().map(|hold| hold.try_lock());
        let may_write = !matches!(turn, Some(Err(TryLockError::WouldBlock)));
        while may_write && done < self.pending.len() {
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

    /// What was collected.
    pub(super) fn into_captured(self) -> Captured {
        self.feed.iter().for_each(|feed| feed.end());
        let mut captured = self.captured;
        if let Stream::Capture { limit } | Stream::Tee { keep: limit } = self.stream {
            let excess = captured.bytes.len().saturating_sub(limit);
            captured.bytes.drain(..excess);
        }
        captured
    }

    /// What has to happen before there is more to do.
    pub(super) fn wanted(&self) -> Option<PollFd<'_>> {
        match &self.copy_to {
            Some(_) if !self.pending.is_empty() && self.is_held() => None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::time::{Duration, Instant};

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
    fn what_is_held_back_comes_later_and_whole() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (ours, mut theirs) = io::pipe().unwrap();
        let hold = Hold::default();
        let mut sink = Sink::copied(Some(ours.into()), Stream::Tee { keep: 4 }, &writer).unwrap().held_by(&hold);
        let question = hold.lock().unwrap();
        theirs.write_all(b"paint").unwrap();
        sink.advance(false);
        assert!(sink.is_held() && sink.wanted().is_none());
        let nothing = poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&Timespec::default())).unwrap();
        assert_eq!((nothing, sink.pending.as_slice()), (0, b"paint".as_slice()));
        drop(question);
        theirs.write_all(b"ed").unwrap();
        sink.advance(false);
        let mut got = [0; 16];
        let count = io::Read::read(&mut reader, &mut got).unwrap();
        assert_eq!(&got[..count], b"painted");
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
}
