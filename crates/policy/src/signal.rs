//! Signal numbers and names as Linux has them on the machines we build for (x86-64, arm64).
//!
//! References: signal(7), "Signal numbering for standard signals" and "Real-time signals".

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Names the signal that ended a process.
///
/// Numbers are 1 to 64. Its JSON form is `{signal, name}`; a name that is not the number's own is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "WireSignal", into = "WireSignal")]
pub struct Signal(u8);

const STANDARD: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// Other spellings that programs use for the same numbers.
const ALIASES: [(&str, u8); 4] = [("SIGIOT", 6), ("SIGCLD", 17), ("SIGPOLL", 29), ("SIGUNUSED", 31)];

/// The first real-time signal that programs can use; the C library keeps 32 and 33 to itself.
const REAL_TIME_MIN: u8 = 34;
const MAX: u8 = 64;

impl Signal {
    /// Returns the signal of a number, or nothing outside 1 to 64.
    pub fn from_number(number: i32) -> Option<Self> {
        match u8::try_from(number) {
            Ok(small @ 1..=MAX) => Some(Self(small)),
            _ => None,
        }
    }

    /// Returns the signal of a name such as `SIGKILL` or `SIGRTMIN+2`, spelled in capitals with `SIG`.
    pub fn from_name(name: &str) -> Option<Self> {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, number)| Self(*number));
        alias.or_else(|| (1..=MAX).map(Self).find(|signal| signal.name() == name))
    }

    /// Returns the number, 1 to 64.
    pub const fn number(self) -> i32 {
        self.0 as i32
    }

    /// Returns the name; real-time signals are `SIGRTMIN` and `SIGRTMIN+1` to `SIGRTMIN+30`, counted as
    /// programs do from 34, and the two below them are `SIG32` and `SIG33`.
    pub fn name(self) -> Cow<'static, str> {
        if let Some(name) = STANDARD.get(usize::from(self.0).wrapping_sub(1)) {
            return Cow::Borrowed(name);
        }
        match self.0.checked_sub(REAL_TIME_MIN) {
            Some(0) => Cow::Borrowed("SIGRTMIN"),
            Some(above) => Cow::Owned(format!("SIGRTMIN+{above}")),
            None => Cow::Owned(format!("SIG{}", self.0)),
        }
    }
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.name())
    }
}

#[derive(Serialize, Deserialize)]
struct WireSignal {
    signal: i32,
    name: String,
}

impl From<Signal> for WireSignal {
    fn from(signal: Signal) -> Self {
        Self { signal: signal.number(), name: signal.name().into_owned() }
    }
}

impl TryFrom<WireSignal> for Signal {
    type Error = String;

    fn try_from(wire: WireSignal) -> Result<Self, Self::Error> {
        match Self::from_number(wire.signal) {
            Some(signal) if signal.name() == wire.name => Ok(signal),
            Some(signal) => {
                Err(format!("signal {} is named {signal}, not {}", wire.signal, crate::quote::quote(&wire.name)))
            }
            None => Err(format!("signal {} is not within 1 to 64", wire.signal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_name_that_leads_back() {
        for number in 1..=64 {
            let signal = Signal::from_number(number).unwrap();
            assert_eq!(Signal::from_name(&signal.name()), Some(signal));
            assert_eq!(signal.number(), number);
        }
    }

    #[test]
    fn well_known_numbers_have_their_names() {
        for (number, name) in [
            (1, "SIGHUP"),
            (2, "SIGINT"),
            (6, "SIGABRT"),
            (7, "SIGBUS"),
            (9, "SIGKILL"),
            (11, "SIGSEGV"),
            (13, "SIGPIPE"),
            (15, "SIGTERM"),
            (17, "SIGCHLD"),
            (19, "SIGSTOP"),
            (24, "SIGXCPU"),
            (29, "SIGIO"),
            (31, "SIGSYS"),
            (32, "SIG32"),
            (34, "SIGRTMIN"),
            (36, "SIGRTMIN+2"),
            (64, "SIGRTMIN+30"),
        ] {
            assert_eq!(Signal::from_number(number).unwrap().to_string(), name);
        }
        assert_eq!(Signal::from_name("SIGPOLL"), Signal::from_number(29));
    }

    #[test]
    fn numbers_outside_the_range_are_no_signals() {
        for number in [i32::MIN, -1, 0, 65, 256, 257, i32::MAX] {
            assert_eq!(Signal::from_number(number), None);
        }
        assert_eq!(Signal::from_name("KILL"), None);
    }

    #[test]
    fn json_holds_number_and_name_that_agree() {
        let kill = Signal::from_number(9).unwrap();
        assert_eq!(serde_json::to_string(&kill).unwrap(), r#"{"signal":9,"name":"SIGKILL"}"#);
        assert_eq!(serde_json::from_str::<Signal>(r#"{"signal":9,"name":"SIGKILL"}"#).unwrap(), kill);
        assert!(serde_json::from_str::<Signal>(r#"{"signal":9,"name":"SIGTERM"}"#).is_err());
        assert!(serde_json::from_str::<Signal>(r#"{"signal":0,"name":"SIG0"}"#).is_err());
    }
}
