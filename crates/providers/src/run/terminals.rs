//! The caller's streams: what a confined command sets on them is not left to the caller.

use crate::call::Stream;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Streams that a command inherits, with what they get back in the end.
///
/// The size of a terminal is not among it: it belongs to whoever shows the terminal, and may change for a reason.
pub(super) struct Terminals {
    settings: Vec<(OwnedFd, Termios)>,
    /// Flags of what is opened, which the command shares with us (fcntl(2), F_SETFL): O_NONBLOCK, O_APPEND, O_DIRECT.
    flags: Vec<(OwnedFd, OFlags)>,
}

impl Terminals {
    pub(super) fn none() -> Self {
        Self { settings: Vec::new(), flags: Vec::new() }
    }

    pub(super) fn remember(streams: [Stream; 3]) -> Self {
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        let own = [input.as_fd(), output.as_fd(), error.as_fd()].into_iter().zip(streams);
        let inherited = own.filter(|(_, stream)| *stream == Stream::Inherit).map(|(fd, _)| fd);
        let inherited: Vec<_> = inherited.collect();
        let settings = |fd: &BorrowedFd<'_>| Some((fd.try_clone_to_owned().ok()?, tcgetattr(fd).ok()?));
        let flags = |fd: &BorrowedFd<'_>| Some((fd.try_clone_to_owned().ok()?, fcntl_getfl(fd).ok()?));
        Self {
            settings: inherited.iter().filter(|fd| isatty(fd) && is_ours(fd)).filter_map(settings).collect(),
            flags: inherited.iter().filter_map(flags).collect(),
        }
    }
}

impl Drop for Terminals {
    fn drop(&mut self) {
        for (stream, flags) in &self.flags {
            if fcntl_getfl(stream).is_ok_and(|now| now != *flags) {
                // These flags of an open descriptor can always be set.
                let _ = fcntl_setfl(stream, *flags);
            }
        }
        for (terminal, settings) in &self.settings {
            if is_ours(terminal) {
                // It may have been hung up; then nobody uses it any more.
                let _ = tcsetattr(terminal, OptionalActions::Now, settings);
            }
        }
    }
}

/// False in the background, where the settings are those of another job.
fn is_ours(terminal: &impl AsFd) -> bool {
    match tcgetpgrp(terminal) {
        Ok(group) => group == getpgrp(),
        // Nobody's job control is on a terminal that is not our controlling one.
        Err(error) => error == rustix::io::Errno::NOTTY,
    }
}
