//! Signals that end a call: the first one withdraws it, and the number decides the exit status.

use pinfold_providers::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Watches for interrupt, terminate and hang-up.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    /// The switch that the first signal throws.
    pub(crate) cancel: Cancel,
    received: Arc<AtomicI32>,
}

impl Watch {
    /// Begins to watch, for the rest of the process. Signals that whoever started us had ignored (`nohup`, a
    /// background job of a plain shell) stay ignored.
    ///
    /// # Errors
    ///
    /// The host's, when a handler or a thread cannot be made.
    pub(crate) fn begin() -> std::io::Result<Self> {
        let watch = Self { cancel: Cancel::new(), received: Arc::default() };
        let ignored = ignored_signals(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let wanted = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let mut signals = Signals::new(wanted)?;
        let thread = watch.clone();
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            if let Some(signal) = signals.forever().next() {
                thread.received.store(signal, Ordering::SeqCst);
                thread.cancel.cancel();
            }
        })?;
        Ok(watch)
    }

    /// Returns the exit status that a received signal stands for.
    pub(crate) fn exit_status(&self) -> Option<u8> {
        let signal = self.received.load(Ordering::SeqCst);
        u8::try_from(signal).ok().filter(|signal| *signal > 0).map(|signal| 128 + signal)
    }
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
