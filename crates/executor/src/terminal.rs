//! A command on a terminal of ours: a pair that we make, of which the command has one end as its three standard streams.
//!
//! The terminal is nobody's controlling terminal, inside or outside (decision 0007): so no key of it is a signal, and nobody
//! is told of a new size by the kernel. What a terminal's owner would cause, its holder asks for: [`Terminal::resize`] and
//! [`Terminal::signal`]. See pty(7), ioctl_tty(2).

use crate::executor::Executor;
use crate::process::Process;
use crate::request::{ExecutorError, Spec};
use crate::result::Finished;
use pinfold_providers::Backend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Holds the size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// How many lines.
    pub rows: u16,
    /// How many characters in a line.
    pub columns: u16,
}

impl Size {
    /// Reads the size of a terminal.
    ///
    /// # Errors
    ///
    /// The host's, if it is no terminal.
    pub fn of(terminal: &impl AsFd) -> io::Result<Self> {
        let size = tcgetwinsize(terminal)?;
        Ok(Self { rows: size.ws_row, columns: size.ws_col })
    }

    fn apply(self, terminal: &impl AsFd) -> io::Result<()> {
        let size = Winsize { ws_row: self.rows, ws_col: self.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(terminal, size)?)
    }
}

/// A command on a terminal.
#[derive(Debug)]
pub struct Terminal {
    process: Process,
    ours: OwnedFd,
}

impl Executor {
    /// Starts a command on a terminal of this size. No time limit applies; what it writes is read from the terminal.
    ///
    /// # Errors
    ///
    /// [`ExecutorError::Host`] if no terminal can be had; [`ExecutorError::TooMany`].
    pub fn start_on_terminal(&self, spec: &Spec, size: Size) -> Result<Terminal, ExecutorError> {
        let host = |error: io::Error| ExecutorError::host("a terminal", &error);
        let (ours, theirs) = pair().map_err(host)?;
        size.apply(&ours).map_err(host)?;
        let theirs = Arc::new(theirs);
        let given = [(); 3].map(|()| Some(Arc::clone(&theirs)));
        let mut spec = spec.clone();
        // A command on a terminal is meant to know it; one that was told otherwise by its request stays as it is.
        for (name, value) in &mut spec.environment {
            if name == "TERM" && value == "dumb" {
                *value = "xterm".into();
            }
        }
        let (process, _) = self.launch_given(&spec, given)?;
        Ok(Terminal { process, ours })
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fcntl_setfl(&ours, rustix::fs::fcntl_getfl(&ours)? | OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

impl Terminal {
    /// Returns the command's handle.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Reads what the command wrote; nothing if there is nothing within this time. `None` once the command is done and
    /// everything was read.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn read(&self, within: Duration) -> io::Result<Option<Vec<u8>>> {
        let until = std::time::Instant::now() + within;
        loop {
            let over = self.process.finished().is_some();
            let mut buffer = vec![0; 16 << 10];
            match rustix::io::read(&self.ours, &mut buffer) {
                Ok(count @ 1..) => {
                    buffer.truncate(count);
                    return Ok(Some(buffer));
                }
                // EIO says that nobody has the other end open (pty(7)).
                Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::IO) if over => return Ok(None),
                Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::IO | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(Some(Vec::new()));
            }
            // The command's end is no event of the terminal, because it is held open until then.
            let tick = left.min(Duration::from_millis(20));
            let timeout = Timespec { tv_sec: 0, tv_nsec: tick.subsec_nanos().into() };
            let _ = poll(&mut [PollFd::new(&self.ours, PollFlags::IN)], Some(&timeout));
        }
    }

    /// Writes as if it were typed, as much as the terminal takes now; returns how many bytes that was.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match rustix::io::write(&self.ours, bytes) {
            Ok(count) => Ok(count),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes as a keyboard would: keys that mean a signal to this terminal (Ctrl-C and Ctrl-\, while the command has not
    /// turned that off) are sent as one, because the terminal is nobody's controlling one. Returns how many bytes were taken.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn type_in(&self, bytes: &[u8]) -> io::Result<usize> {
        let settings = tcgetattr(&self.ours)?;
        let key = |index| settings.special_codes[index];
        let signal = |byte: u8| {
            let signals = [(SpecialCodeIndex::VINTR, Signal::INT), (SpecialCodeIndex::VQUIT, Signal::QUIT)];
            signals.into_iter().find(|(index, _)| byte != 0 && byte == key(*index)).map(|(_, signal)| signal)
        };
        let means_signals = settings.local_modes.contains(LocalModes::ISIG);
        match bytes.iter().position(|byte| means_signals && signal(*byte).is_some()) {
            Some(0) => {
                bytes.first().and_then(|byte| signal(*byte)).into_iter().for_each(|signal| self.signal(signal));
                Ok(1)
            }
            Some(before) => self.write(&bytes[..before]),
            None => self.write(bytes),
        }
    }

    /// Changes the size, and tells the command.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn resize(&self, size: Size) -> io::Result<()> {
        size.apply(&self.ours)?;
        self.signal(Signal::WINCH);
        Ok(())
    }

    /// Sends the command what Ctrl-C would.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Sends a signal on its way to the command, if it runs.
    pub fn signal(&self, signal: Signal) {
        let pid = self.process.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { return };
        // RACE: it may end now; its number is its own until the thread that waits has taken its status, and is not given to
        // another process so soon.
        let target = match self.process.backend() {
            // Bubblewrap passes nothing on; the launcher inside does.
            Some(Backend::Bwrap) => child_of(pid).and_then(child_of).unwrap_or(pid),
            _ => pid,
        };
        let _ = kill_process(target, signal);
    }

    /// Withdraws the command; see [`Process::kill`].
    pub fn kill(&self) -> bool {
        self.process.kill()
    }

    /// Waits for the end.
    pub fn done(&self) -> Arc<Finished> {
        self.process.done()
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }
}

fn child_of(process: Pid) -> Option<Pid> {
    let id = process.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok().and_then(Pid::from_raw)
}

/// Puts a terminal of our caller's into raw mode, so that every key passes, and back when dropped.
#[derive(Debug)]
pub struct RawMode {
    terminal: OwnedFd,
    before: Termios,
}

impl RawMode {
    /// Begins.
    ///
    /// # Errors
    ///
    /// The host's, if it is no terminal.
    pub fn begin(terminal: &impl AsFd) -> io::Result<Self> {
        let terminal = terminal.as_fd().try_clone_to_owned()?;
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Drain, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that has gone needs no restoring.
        let _ = tcsetattr(&self.terminal, OptionalActions::Drain, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_mode_ends_as_it_began() {
        let (_ours, theirs) = pair().unwrap();
        let modes = |terminal: &OwnedFd| tcgetattr(terminal).unwrap().local_modes;
        let before = modes(&theirs);
        assert!(before.contains(LocalModes::ICANON | LocalModes::ECHO));
        let raw = RawMode::begin(&theirs).unwrap();
        assert!(!modes(&theirs).intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        drop(raw);
        assert_eq!(modes(&theirs), before);
    }

    #[test]
    fn a_size_is_applied_to_both_ends() {
        let (ours, theirs) = pair().unwrap();
        let size = Size { rows: 7, columns: 33 };
        size.apply(&ours).unwrap();
        assert_eq!(Size::of(&theirs).unwrap(), size);
    }
}
