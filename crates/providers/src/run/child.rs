//! The process that was started: executed by us, or made by the resident launcher. Our child either way.

use super::resident::Hold;
use super::{Family, Start};
use crate::call::Stream;
use command_fds::CommandFdExt as _;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus, Stdio};

#[derive(Debug)]
pub(super) enum Child {
    Executed(std::process::Child),
    Made {
        pid: Pid,
        exit: Option<ExitStatus>,
        /// The thread that it takes for its parent must not end before it.
        _hold: Hold,
    },
}

impl Child {
    pub(super) fn made(pid: Pid, hold: Hold) -> Self {
        Self::Made { pid, exit: None, _hold: hold }
    }

    /// Its number; its own until its status is taken.
    pub(super) fn pid(&self) -> Option<Pid> {
        match self {
            Self::Executed(child) => i32::try_from(child.id()).ok().and_then(Pid::from_raw),
            Self::Made { pid, .. } => Some(*pid),
        }
    }

    /// Takes its status if it has ended.
    pub(super) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        match self {
            Self::Executed(child) => child.try_wait(),
            Self::Made { pid, exit, .. } => {
                if exit.is_none() {
                    let taken = waitpid(Some(*pid), WaitOptions::NOHANG)?;
                    *exit = taken.map(|(_, status)| ExitStatus::from_raw(status.as_raw()));
                }
                Ok(*exit)
            }
        }
    }
}

impl Child {
    /// Waits for its end.
    pub(super) fn wait(&mut self) {
        // Whoever has taken its status knows that it has ended.
        let _ = match self {
            Self::Executed(child) => child.wait().map(drop),
            Self::Made { exit: Some(_), .. } => Ok(()),
            Self::Made { pid, .. } => waitpid(Some(*pid), WaitOptions::empty()).map(drop).map_err(Into::into),
        };
    }
}

/// What has been started, and our ends of the streams that are collected.
pub(super) struct Begun {
    pub(super) child: Child,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
    /// The status channel, where it was made before the call.
    pub(super) status: Option<OwnedFd>,
}

/// Executes the argv.
pub(super) fn execute(start: &Start<'_>, passed: Vec<OwnedFd>) -> io::Result<Begun> {
    let mut command = Command::new(start.argv.first().ok_or(io::ErrorKind::InvalidInput)?);
    command.args(&start.argv[1..]).env_clear().envs(start.environment.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &start.cwd {
        command.current_dir(cwd);
    }
    if start.family == Family::Group {
        command.process_group(0);
    }
    let [input, output, error] = start.streams;
    let [given_input, given_output, given_error] = start.given;
    let input = if input == Stream::Inherit { input } else { Stream::Null };
    command.stdin(given(given_input)?.map_or_else(|| stdio(input), Ok)?);
    command.stdout(given(given_output)?.map_or_else(|| stdio(output), Ok)?);
    command.stderr(given(given_error)?.map_or_else(|| stdio(error), Ok)?);
    command.preserved_fds(passed);
    let mut child = command.spawn()?;
    let (stdout, stderr) = (child.stdout.take().map(Into::into), child.stderr.take().map(Into::into));
    Ok(Begun { child: Child::Executed(child), stdout, stderr, status: None })
}

fn stdio(stream: Stream) -> io::Result<Stdio> {
    Ok(match stream {
        Stream::Inherit => Stdio::inherit(),
        Stream::Null => null()?.into(),
        Stream::Capture { .. } | Stream::Tee { .. } => Stdio::piped(),
    })
}

/// Not `Stdio::null()`, which is opened when the process starts: its error would seem to be the program's.
pub(super) fn null() -> io::Result<OwnedFd> {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    let told = |error: io::Error| io::Error::new(error.kind(), format!("/dev/null cannot be opened: {error}"));
    opened.map(OwnedFd::from).map_err(told)
}

/// A descriptor of the caller's for the child.
fn given(fd: Option<&OwnedFd>) -> io::Result<Option<Stdio>> {
    fd.map(|fd| fd.try_clone().map(Stdio::from)).transpose()
}
