//! What is refused to a command that goes on running: for whoever has to tell one part of its work from another.

use crate::status::denials_in;
use pinfold_policy::Denial;
use rustix::io::ioctl_fionread;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long somebody waits for what is on its way.
const PATIENCE: Duration = Duration::from_secs(10);

/// Collects refusals of a running call, as the status channel tells them, until they are taken.
#[derive(Debug, Default)]
pub struct RefusalFeed(Mutex<Inner>);

/// What tells one refusal from another: operation, path, rule and error.
type Refused = (Option<String>, Option<OsString>, Option<String>, Option<String>);

#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// The channel, for looking only.
    channel: Option<OwnedFd>,
    /// The beginning of a line.
    rest: Vec<u8>,
    told: Vec<Denial>,
    /// How often each was told to have happened.
    known: HashMap<Refused, u64>,
}

impl RefusalFeed {
    /// Takes what was refused since the last time, each with how often it was in between; also what has been told and is on its
    /// way through the channel. Empty where nobody tells, which only the broker does.
    pub fn take(&self) -> Vec<Denial> {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut inner = self.lock();
            let waiting = inner.channel.as_ref().is_some_and(|fd| ioctl_fionread(fd).is_ok_and(|bytes| bytes > 0));
            if !waiting || Instant::now() >= until {
                return std::mem::take(&mut inner.told);
            }
            drop(inner);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with the channel of an attempt.
    pub(crate) fn begin(&self, channel: Option<&OwnedFd>) -> io::Result<()> {
        *self.lock() = Inner { channel: channel.map(OwnedFd::try_clone).transpose()?, ..Inner::default() };
        Ok(())
    }

    /// There is nothing more to come.
    pub(crate) fn end(&self) {
        self.lock().channel = None;
    }
}

impl Inner {
    /// Takes what was read; the lock is held since before it was.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return };
        let lines: Vec<u8> = self.rest.drain(..=end).collect();
        for mut denial in denials_in(&lines) {
            let path = denial.path.clone().map(Into::into);
            let key = (denial.operation.clone(), path, denial.rule.clone(), denial.errno.clone());
            let before = self.known.insert(key, denial.count).unwrap_or(0);
            denial.count = denial.count.saturating_sub(before);
            let same = |known: &&mut Denial| {
                (&known.operation, &known.path, &known.rule, &known.errno)
                    == (&denial.operation, &denial.path, &denial.rule, &denial.errno)
            };
            match self.told.iter_mut().find(same) {
                _ if denial.count == 0 => {}
                Some(known) => known.count += denial.count,
                None => self.told.push(denial),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_taken_once_each_with_its_number_in_between() {
        let feed = RefusalFeed::default();
        feed.lock()
            .push(b"confined landlock=7\ndenied open EPERM git-control 7 1 sh /w/a\ndenied rename EPERM - 9 1 mv ");
        let taken = feed.take();
        assert_eq!((taken.len(), taken[0].count), (1, 1));
        feed.lock()
            .push(b"/w/b\ndenied open EPERM git-control 7 3 sh /w/a\ndenied open EPERM git-control 7 4 sh /w/a\n");
        let counts: Vec<_> = feed.take().iter().map(|it| (it.operation.clone().unwrap(), it.count)).collect();
        assert_eq!(counts, [("rename".to_owned(), 1), ("open".to_owned(), 3)]);
        assert!(feed.take().is_empty());
    }

    #[test]
    fn what_is_on_its_way_is_waited_for() {
        let (ours, theirs) = rustix::pipe::pipe().unwrap();
        let feed = std::sync::Arc::new(RefusalFeed::default());
        feed.begin(Some(&ours)).unwrap();
        rustix::io::write(&theirs, b"denied open EPERM - 7 1 sh /w/a\n").unwrap();
        let reader = std::sync::Arc::clone(&feed);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            let mut inner = reader.lock();
            let mut bytes = [0; 100];
            let count = rustix::io::read(&ours, &mut bytes).unwrap();
            inner.push(&bytes[..count]);
        });
        assert_eq!(feed.take().len(), 1);
        thread.join().unwrap();
    }
}
