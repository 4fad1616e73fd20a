//! The caller's terminals: the settings that a confined command leaves behind are not the caller's.

use crate::call::Stream;
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Terminals among the streams that a command inherits, with the settings that they get back in the end.
///
/// Their size is not among them: it belongs to whoever shows the terminal, and may change for a reason.
pub(super) struct Terminals(Vec<(OwnedFd, Termios)>);

impl Terminals {
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    pub(super) fn remember(streams: [Stream; 3]) -> Self {
        let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
        let own = [input.as_fd(), output.as_fd(), error.as_fd()].into_iter().zip(streams);
        let inherited = own.filter(|(_, stream)| *stream == Stream::Inherit).map(|(fd, _)| fd);
        let settings = |fd: BorrowedFd<'_>| Some((fd.try_clone_to_owned().ok()?, tcgetattr(fd).ok()?));
        Self(inherited.filter(|fd| isatty(fd) && is_ours(fd)).filter_map(settings).collect())
    }
}

impl Drop for Terminals {
    fn drop(&mut self) {
        for (terminal, settings) in &self.0 {
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
