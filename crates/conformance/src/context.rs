//! What the hostile program is told about the world outside, and what it answers: JSON on both ways.

use crate::errno::{Act, Errno};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Names of everything that a run may reach for. Each attempt has a private directory in `ws` and in `out`, named after
/// its id, so that no attempt spoils another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Context {
    /// The workspace.
    pub ws: PathBuf,
    /// A directory outside every writable root.
    pub out: PathBuf,
    /// The attempts to make; empty: all of the program's list except the standard-stream ones.
    #[serde(default)]
    pub only: Vec<String>,
    /// Descriptors that were open when the run began, by attempt.
    #[serde(default)]
    pub inherited: BTreeMap<String, i32>,
    /// A set-uid program outside, and the uid that it shows when its bit counts.
    #[serde(default)]
    pub setuid: Option<(PathBuf, u32)>,
    /// A terminal outside that the run's user may use.
    #[serde(default)]
    pub terminal: PathBuf,
    /// Distinguishes names that live in a place shared by the whole host, such as `/tmp`.
    pub tag: String,
    /// The process outside.
    pub victim: crate::victim::Hello,
}

/// What one attempt came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The attempt.
    pub id: String,
    /// `ok`, `errno`, `signal` or `timeout`.
    pub result: String,
    /// The name of the error number, when the result is `errno`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// The name of the signal, when the result is `signal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

impl Report {
    /// The report of an attempt that came back.
    #[must_use]
    pub fn of(id: &str, act: Act) -> Report {
        let errno = act.err().map(|e| e.to_string());
        Report {
            id: id.to_owned(),
            result: if errno.is_some() { "errno" } else { "ok" }.to_owned(),
            errno,
            signal: None,
        }
    }

    /// The report of an attempt whose process ended by a signal.
    #[must_use]
    pub fn killed(id: &str, signal: i32) -> Report {
        let timeout = signal == libc::SIGALRM;
        let result = if timeout { "timeout" } else { "signal" }.to_owned();
        Report { id: id.to_owned(), result, errno: None, signal: Some(crate::errno::signal_name(signal)) }
    }

    /// `ok`, the error's name, or the signal's name.
    #[must_use]
    pub fn word(&self) -> &str {
        self.errno.as_deref().or(self.signal.as_deref()).unwrap_or(&self.result)
    }

    /// Reads one line.
    ///
    /// # Errors
    ///
    /// EBADMSG, if the line is no report.
    pub fn parse(line: &str) -> Result<Report, Errno> {
        serde_json::from_str(line).map_err(|_| Errno(libc::EBADMSG))
    }
}

/// One line of `--list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The attempt.
    pub id: String,
    /// The room it belongs to: `path`, `meta`, `inherit`, `stream`, `admin`, `proc`, `ipc`, `net` or `ws`.
    pub group: String,
    /// What it does.
    pub description: String,
}
