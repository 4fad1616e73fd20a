//! `pinfold exec --tty`: a command on a terminal of its own, shown on the caller's.

use crate::signals::Watch;
use pinfold_executor::{Executor, ExecutorError, Finished, RawMode, Size, Spec, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often we look at what is no event of a descriptor: a new size, a withdrawal, the end of the command.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Runs it to its end. The caller's terminal is raw meanwhile, and then as it was.
pub(crate) fn run(executor: &Executor, spec: &Spec, watch: &Watch) -> Result<Finished, ExecutorError> {
    let host = |error: io::Error| ExecutorError::Host { what: "a terminal", reason: error.to_string() };
    let (input, output) = (io::stdin(), io::stdout());
    if !input.is_terminal() || !output.is_terminal() {
        let reason = "standard input and standard output have to be one with --tty".to_owned();
        return Err(ExecutorError::Host { what: "a terminal", reason });
    }
    let size = Size::of(&output).map_err(host)?;
    let resized = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGWINCH, Arc::clone(&resized)).map_err(host)?;
    let raw = RawMode::begin(&input).map_err(host)?;
    let terminal = executor.start_on_terminal(spec, size)?;
    let shown = show(&terminal, &resized, watch);
    if shown.is_err() {
        terminal.kill();
    }
    let finished = terminal.done();
    drop(raw);
    shown.map_err(host)?;
    match &finished.error {
        Some(error) => Err(error.clone().into()),
        None => Ok(Arc::unwrap_or_clone(finished)),
    }
}

/// Passes keys, output and sizes until the command is done.
fn show(terminal: &Terminal, resized: &AtomicBool, watch: &Watch) -> io::Result<()> {
    let (input, mut output) = (io::stdin(), io::stdout());
    let (mut typed, mut listens, mut withdrawn) = (Vec::new(), true, false);
    loop {
        if watch.cancel.is_cancelled() && !withdrawn {
            withdrawn = true;
            terminal.kill();
        }
        if resized.swap(false, Ordering::Relaxed)
            && let Ok(size) = Size::of(&output)
        {
            terminal.resize(size)?;
        }
        let listening = listens && typed.is_empty();
        let keys = if typed.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        let mut wanted = vec![PollFd::new(terminal, PollFlags::IN | keys)];
        if listening {
            wanted.push(PollFd::new(&input, PollFlags::IN));
        }
        match poll(&mut wanted, Some(&TICK)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if wanted.get(1).is_some_and(|entry| !entry.revents().is_empty()) {
            let mut bytes = [0; 1024];
            match rustix::io::read(&input, &mut bytes) {
                Ok(0) | Err(rustix::io::Errno::IO) => listens = false,
                Ok(count) => typed.extend_from_slice(&bytes[..count]),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !typed.is_empty() {
            let taken = terminal.type_in(&typed)?;
            typed.drain(..taken);
        }
        match terminal.read(Duration::ZERO)? {
            Some(bytes) => {
                output.write_all(&bytes)?;
                output.flush()?;
            }
            None => return Ok(()),
        }
    }
}
