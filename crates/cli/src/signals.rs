//! Signals that end a call, and the exit status that they decide.
//!
//! Terminate withdraws the call at once. Interrupt and hang-up reach the command first, which may have something to
//! put in order, and withdraw the call a moment later or at the next signal.

use pinfold_providers::{Cancel, OnSpawn};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a command has to end by itself after an interrupt or a hang-up.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watches for interrupt, terminate and hang-up.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    /// The switch that withdraws the call.
    pub(crate) cancel: Cancel,
    received: Arc<AtomicI32>,
    runner: Arc<Mutex<Option<Pid>>>,
}

impl Watch {
    /// Begins to watch, for the rest of the process. Signals that whoever started us had ignored (`nohup`, a
    /// background job of a plain shell) stay ignored.
    ///
    /// # Errors
    ///
    /// The host's, when a handler or a thread cannot be made.
    pub(crate) fn begin() -> std::io::Result<Self> {
        let watch = Self { cancel: Cancel::new(), received: Arc::default(), runner: Arc::default() };
        let ignored = ignored_signals(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let wanted = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let mut signals = Signals::new(wanted)?;
        let thread = watch.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                thread.receive(signal);
            }
        })?;
        Ok(watch)
    }

    /// Returns what learns of the process to which signals for the command are sent.
    pub(crate) fn on_spawn(&self) -> OnSpawn {
        let runner = Arc::clone(&self.runner);
        Arc::new(move |pid| {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            *runner.lock().unwrap_or_else(PoisonError::into_inner) = pid;
        })
    }

    /// Forgets the process, which has ended, and with it its number.
    pub(crate) fn ended(&self) {
        *self.runner.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the exit status that a received signal stands for.
    pub(crate) fn exit_status(&self) -> Option<u8> {
        let signal = self.received.load(Ordering::SeqCst);
        u8::try_from(signal).ok().filter(|signal| *signal > 0).map(|signal| 128 + signal)
    }

    fn receive(&self, signal: i32) {
        let first = self.received.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if first && signal != SIGTERM && self.pass_on(signal) {
            let cancel = self.cancel.clone();
            let patient = move || {
                std::thread::sleep(PATIENCE);
                cancel.cancel();
            };
            if std::thread::Builder::new().name("patience".to_owned()).spawn(patient).is_ok() {
                return;
            }
        }
        self.cancel.cancel();
    }

    /// Sees to it that the command's side has the signal too; says whether it has.
    fn pass_on(&self, signal: i32) -> bool {
        let runner = self.runner.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(pid), Some(number)) = (*runner, Signal::from_named_raw(signal)) else { return false };
        // RACE: the process may have ended and be reaped already; its number is then free for the moment until
        // `ended`, in which the system would have to use every other number first.
        is_foreground() || kill_process(pid, number).is_ok()
    }
}

/// Says whether a key of the terminal signals us: then it signals the launcher as well, which is in our group.
fn is_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == getpgrp()))
}

/// Reads the set of ignored signals (proc(5), `SigIgn`); where it cannot be had, nothing counts as ignored.
fn ignored_signals(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_the_process() {
        let ignored = ignored_signals("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\tff\n");
        assert_eq!((ignored & 1, ignored >> 12 & 1, ignored >> 1 & 1), (1, 1, 0));
        assert_eq!(ignored_signals(""), 0);
    }
}
