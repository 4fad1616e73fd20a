//! How a command ended, as facts. The text is one field among others: nothing in it can change one of them.

use crate::output::StreamOutput;
use pinfold_policy::{
    Ending, Enforcement, ErrorBody, ErrorCode, Outcome, SandboxError, SandboxMode, Signal, StatusEvidence, Stop,
    Verdict,
};
use serde::{Serialize, Serializer};
use std::time::Duration;

/// Holds what the sandbox did about one command, stamped before anybody learns that it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxFacts {
    /// The mode it ran under.
    pub mode: SandboxMode,
    /// Whether it failed and something was refused.
    pub denied: bool,
    /// How much is enforced; absent where nothing is confined, or nothing was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
    /// Whether the sandbox failed, so that the command did not run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub runner_failed: bool,
    /// The provider's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
}

impl SandboxFacts {
    /// Draws up the facts from an outcome. Failure of the runner outranks a refusal.
    pub fn of(mode: SandboxMode, outcome: &Outcome) -> Self {
        let runner_failed = matches!(outcome.ending(), Ending::NotStarted { code: ErrorCode::Unavailable, .. });
        Self {
            mode,
            denied: !runner_failed && outcome.verdict() == Verdict::Denied,
            enforcement: outcome.report().and_then(|report| report.enforcement()),
            runner_failed,
            backend: outcome.report().map(|report| report.backend().to_owned()),
        }
    }
}

/// Holds how a command ended, what it wrote, and what the sandbox did.
///
/// Its JSON form is `{exitCode, signal, timedOut, aborted, timeoutMs, stdout, stderr, sandbox, outcome, error?}`; `exitCode`
/// and `signal` are null where they do not apply.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Every fact about the end.
    pub outcome: Outcome,
    /// The provider's refusal, unchanged, if the call did not come to a start.
    pub error: Option<SandboxError>,
    /// Standard output.
    pub stdout: StreamOutput,
    /// Standard error.
    pub stderr: StreamOutput,
    /// How long it might have taken.
    pub timeout: Duration,
    /// What the sandbox did.
    pub sandbox: SandboxFacts,
}

impl Finished {
    /// Returns the exit status, if the command exited by itself.
    pub fn exit_code(&self) -> Option<i32> {
        match self.outcome.ending().stop() {
            Some(Stop::Exited { code }) => Some(code),
            _ => None,
        }
    }

    /// Returns the signal that ended the command, if one did.
    pub fn signal(&self) -> Option<Signal> {
        match self.outcome.ending().stop() {
            Some(Stop::Signaled { signal }) => Some(signal),
            _ => None,
        }
    }

    /// Says whether the time limit passed before anything else ended the command.
    pub fn timed_out(&self) -> bool {
        matches!(self.outcome.ending(), Ending::TimedOut { .. })
    }

    /// Says whether the call was withdrawn before anything else ended the command.
    pub fn aborted(&self) -> bool {
        matches!(self.outcome.ending(), Ending::Cancelled { .. })
    }

    /// Returns why the command did not run, if it did not for another reason than time or withdrawal.
    pub fn failure(&self) -> Option<&str> {
        match self.outcome.ending() {
            Ending::NotStarted { detail, .. } => Some(detail),
            _ => None,
        }
    }
}

/// Draws up the outcome of a call that a provider refused.
pub(crate) fn refused(error: &SandboxError, duration: Duration) -> Outcome {
    let ending = match error {
        SandboxError::Cancelled => Ending::Cancelled { then: None },
        error => Ending::NotStarted { code: error.code(), detail: error.to_string() },
    };
    Outcome::new(ending, Vec::new(), StatusEvidence::Channel, None, whole_milliseconds(duration))
}

pub(crate) fn whole_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireFinished<'a> {
    exit_code: Option<i32>,
    signal: Option<String>,
    timed_out: bool,
    aborted: bool,
    timeout_ms: u64,
    stdout: &'a StreamOutput,
    stderr: &'a StreamOutput,
    sandbox: &'a SandboxFacts,
    outcome: &'a Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorBody>,
}

impl Serialize for Finished {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WireFinished {
            exit_code: self.exit_code(),
            signal: self.signal().map(|signal| signal.name().into_owned()),
            timed_out: self.timed_out(),
            aborted: self.aborted(),
            timeout_ms: whole_milliseconds(self.timeout),
            stdout: &self.stdout,
            stderr: &self.stderr,
            sandbox: &self.sandbox,
            outcome: &self.outcome,
            error: self.error.as_ref().map(SandboxError::body),
        }
        .serialize(serializer)
    }
}
