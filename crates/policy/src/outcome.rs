//! One object for how a call ended: whether the command ran, how it stopped, what was refused and on what
//! evidence. The verdict is derived from these facts by one function and cannot be set, also not through JSON.

use crate::error::ErrorCode;
use crate::host_files::HostFiles;
use crate::limits::BoundMet;
use crate::outcome_size::{bound_denials, bound_host_files};
use crate::report::EnforcementReport;
use crate::signal::Signal;
use crate::wire::escaped;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Says how a command that ran came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Stop {
    /// It exited by itself.
    Exited {
        /// Its status, as the operating system gives it.
        code: i32,
    },
    /// A signal ended it.
    Signaled {
        /// The signal.
        #[serde(flatten)]
        signal: Signal,
    },
}

/// Says how a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Ending {
    /// The command did not run.
    NotStarted {
        /// Why.
        code: ErrorCode,
        /// The error's text.
        detail: String,
    },
    /// The command exited by itself.
    Exited {
        /// Its status, as the operating system gives it.
        code: i32,
    },
    /// A signal that we did not send for a timeout or a cancellation ended the command.
    Signaled {
        /// The signal.
        #[serde(flatten)]
        signal: Signal,
    },
    /// The time limit passed first, whatever the command did afterwards.
    TimedOut {
        /// The limit in milliseconds.
        after_ms: u64,
        /// How the command then stopped; absent when the limit passed before it ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Stop>,
    },
    /// The caller withdrew the call first.
    Cancelled {
        /// How the command then stopped; absent when it had not run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        then: Option<Stop>,
    },
}

impl From<Stop> for Ending {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Exited { code } => Self::Exited { code },
            Stop::Signaled { signal } => Self::Signaled { signal },
        }
    }
}

impl Ending {
    /// Returns how the command stopped, or nothing when it did not run.
    pub fn stop(&self) -> Option<Stop> {
        match self {
            Self::NotStarted { .. } => None,
            Self::Exited { code } => Some(Stop::Exited { code: *code }),
            Self::Signaled { signal } => Some(Stop::Signaled { signal: *signal }),
            Self::TimedOut { then, .. } | Self::Cancelled { then } => *then,
        }
    }

    /// Says whether the command ran, be it only for a moment.
    pub fn ran(&self) -> bool {
        self.stop().is_some()
    }
}

closed_words! {
    /// Grades how we know of a refusal.
    pub enum DenialEvidence("denial evidence") {
        /// The kernel reported it out of the command's reach.
        Kernel => "kernel",
        /// Our broker refused it itself.
        Broker => "broker",
        /// Read from the command's own error text; may be wrong or forged, and never becomes a grant.
        Inferred => "inferred",
    }
}

closed_words! {
    /// Grades how we know the way a call ended.
    pub enum StatusEvidence("status evidence") {
        /// From the launcher's status channel, which the command cannot reach.
        Channel => "channel",
        /// From exit status and error text, which the command can imitate.
        Inferred => "inferred",
    }
}

/// Describes one refused act. Bytes of the path that are not UTF-8 appear as `\xHH` in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Denial {
    /// The path it was about, if known.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "escaped::optional_path")]
    pub path: Option<PathBuf>,
    /// What was tried, such as `open` or `rename`, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The error the command received, by name, such as `EROFS`, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// How we know.
    pub evidence: DenialEvidence,
    /// The rule that forbids it, if a policy has one, such as `git-control`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The process that was refused first, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<DeniedProcess>,
    /// How often it happened.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub count: u64,
    /// The line of error text it was read from, for inferred ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Describes one effect that would have been refused and that somebody permitted while the command waited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovedEffect {
    /// The path it was about, if it is not too long to be told.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "escaped::optional_path")]
    pub path: Option<PathBuf>,
    /// The call, such as `open` or `rename`.
    pub operation: String,
    /// The error with which it failed all the same, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// The rule that forbids it otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The process that waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<DeniedProcess>,
}

/// Names a process outside of its namespaces. It may have ended since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeniedProcess {
    /// Its number, as the host counts.
    pub pid: u32,
    /// Its name, as it gave it itself; bytes that are not printable ASCII are escaped.
    pub name: String,
}

fn once() -> u64 {
    1
}

fn is_once(count: &u64) -> bool {
    *count == 1
}

impl Denial {
    /// Makes a refusal of which nothing is known but how we know.
    pub fn known(evidence: DenialEvidence) -> Self {
        Self { path: None, operation: None, errno: None, evidence, rule: None, process: None, count: 1, text: None }
    }

    /// Makes a refusal that was read from a line of the command's error text.
    pub fn inferred(line: impl Into<String>) -> Self {
        Self { text: Some(line.into()), ..Self::known(DenialEvidence::Inferred) }
    }
}

closed_words! {
    /// Sums a call up in one word.
    pub enum Verdict("verdict") {
        /// The command exited with 0.
        Completed => "completed",
        /// The command exited with another status and nothing was refused.
        Failed => "failed",
        /// The command exited with another status and something was refused.
        Denied => "denied",
        /// The command did not run.
        NotStarted => "not-started",
        /// The time limit passed.
        TimedOut => "timed-out",
        /// The caller withdrew the call.
        Cancelled => "cancelled",
        /// A signal ended the command.
        Signaled => "signaled",
    }
}

impl Verdict {
    /// Derives the verdict from the facts.
    ///
    /// A refusal outranks an ordinary failure. It changes nothing for a command that exited with 0 (it coped)
    /// or that a signal ended (the status does not speak of the refusal); the refusals are listed all the same.
    pub fn of(ending: &Ending, denials: &[Denial]) -> Self {
        match ending {
            Ending::NotStarted { .. } => Self::NotStarted,
            Ending::Exited { code: 0 } => Self::Completed,
            Ending::Exited { .. } if denials.is_empty() => Self::Failed,
            Ending::Exited { .. } => Self::Denied,
            Ending::Signaled { .. } => Self::Signaled,
            Ending::TimedOut { .. } => Self::TimedOut,
            Ending::Cancelled { .. } => Self::Cancelled,
        }
    }
}

/// Holds everything there is to say about how one call ended.
///
/// Its JSON form is `{verdict, ending, ran, denials, approved?, boundsMet?, hostFiles?, statusEvidence, report?, durationMs}`. A verdict or `ran` that
/// does not follow from the rest is refused when read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WireOutcome", into = "WireOutcome")]
pub struct Outcome {
    ending: Ending,
    denials: Vec<Denial>,
    approved: Vec<ApprovedEffect>,
    bounds_met: Vec<BoundMet>,
    // Most outcomes have none.
    host_files: Option<Box<HostFiles>>,
    status_evidence: StatusEvidence,
    report: Option<EnforcementReport>,
    duration_ms: u64,
}

impl Outcome {
    /// Draws up an outcome; the duration is in milliseconds from the request to the end.
    ///
    /// Denials read from text count only beside an exit status other than 0 and are dropped otherwise. Of a list that takes more
    /// than about 128 KiB the rest is only counted, in an entry of its own; so are files of the host-execution report.
    pub fn new(
        ending: Ending,
        mut denials: Vec<Denial>,
        status_evidence: StatusEvidence,
        report: Option<EnforcementReport>,
        duration_ms: u64,
    ) -> Self {
        let text_counts = matches!(ending, Ending::Exited { code } if code != 0);
        denials.retain(|denial| text_counts || denial.evidence != DenialEvidence::Inferred);
        let denials = bound_denials(denials);
        Self {
            ending,
            denials,
            approved: Vec::new(),
            bounds_met: Vec::new(),
            host_files: None,
            status_evidence,
            report,
            duration_ms,
        }
    }

    /// Returns the same with effects that somebody permitted while the command waited.
    pub fn with_approved(self, approved: Vec<ApprovedEffect>) -> Self {
        Self { approved, ..self }
    }

    /// Returns what would have been refused and was permitted while the command waited, in that order.
    pub fn approved(&self) -> &[ApprovedEffect] {
        &self.approved
    }

    /// Returns the same with the bounds that are known to have been met.
    pub fn with_bounds_met(self, bounds_met: Vec<BoundMet>) -> Self {
        Self { bounds_met, ..self }
    }

    /// Returns the bounds that are known to have been met. That none is listed does not say that none was: most of them
    /// show only in an error that the command receives.
    pub fn bounds_met(&self) -> &[BoundMet] {
        &self.bounds_met
    }

    /// Returns the same with what the call did to files that tools outside obey.
    pub fn with_host_files(self, host_files: Option<HostFiles>) -> Self {
        Self { host_files: host_files.map(bound_host_files).map(Box::new), ..self }
    }

    /// Returns what the call did to files that tools outside execute or obey; absent if nobody asked, or it did not run.
    pub fn host_files(&self) -> Option<&HostFiles> {
        self.host_files.as_deref()
    }

    /// Returns the one-word sum.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.ending, &self.denials)
    }

    /// Returns how the call ended.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Says whether the command ran.
    pub fn ran(&self) -> bool {
        self.ending.ran()
    }

    /// Returns what was refused, in the order it became known.
    pub fn denials(&self) -> &[Denial] {
        &self.denials
    }

    /// Returns how we know the ending.
    pub fn status_evidence(&self) -> StatusEvidence {
        self.status_evidence
    }

    /// Returns what was enforced; absent when the call ended before a backend was chosen.
    pub fn report(&self) -> Option<&EnforcementReport> {
        self.report.as_ref()
    }

    /// Returns the time from the request to the end, in milliseconds.
    pub fn duration_ms(&self) -> u64 {
        self.duration_ms
    }

    /// Returns the exit status of `pinfold run` for this outcome.
    ///
    /// The command's own status; 128+n when signal n ended it; 124 when the time limit passed (as `timeout`
    /// does); 130 when the call was withdrawn (as an interrupted command); 127 when the command was not found,
    /// 126 when it was found but not executable, 125 when it did not run for any other reason. A command may
    /// exit with any of these itself; only the outcome tells them apart.
    pub fn exit_status(&self) -> i32 {
        match &self.ending {
            Ending::NotStarted { code: ErrorCode::CommandNotFound, .. } => 127,
            Ending::NotStarted { code: ErrorCode::CommandNotExecutable, .. } => 126,
            Ending::NotStarted { .. } => 125,
            Ending::Exited { code } => *code,
            Ending::Signaled { signal } => 128 + signal.number(),
            Ending::TimedOut { .. } => 124,
            Ending::Cancelled { .. } => 130,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireOutcome {
    verdict: Verdict,
    ending: Ending,
    ran: bool,
    denials: Vec<Denial>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    approved: Vec<ApprovedEffect>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bounds_met: Vec<BoundMet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host_files: Option<HostFiles>,
    status_evidence: StatusEvidence,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    report: Option<EnforcementReport>,
    duration_ms: u64,
}

impl From<Outcome> for WireOutcome {
    fn from(outcome: Outcome) -> Self {
        Self {
            verdict: outcome.verdict(),
            ran: outcome.ran(),
            ending: outcome.ending,
            denials: outcome.denials,
            approved: outcome.approved,
            bounds_met: outcome.bounds_met,
            host_files: outcome.host_files.map(|found| *found),
            status_evidence: outcome.status_evidence,
            report: outcome.report,
            duration_ms: outcome.duration_ms,
        }
    }
}

impl TryFrom<WireOutcome> for Outcome {
    type Error = String;

    fn try_from(wire: WireOutcome) -> Result<Self, Self::Error> {
        let outcome = Self::new(wire.ending, wire.denials, wire.status_evidence, wire.report, wire.duration_ms)
            .with_approved(wire.approved)
            .with_bounds_met(wire.bounds_met)
            .with_host_files(wire.host_files);
        if outcome.verdict() != wire.verdict {
            return Err(format!("verdict is {} but follows from the ending as {}", wire.verdict, outcome.verdict()));
        }
        if outcome.ran() != wire.ran {
            return Err(format!("ran is {} but follows from the ending as {}", wire.ran, outcome.ran()));
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{BoundEvidence, Resource};

    fn signal(number: i32) -> Signal {
        Signal::from_number(number).unwrap()
    }

    fn kernel_denial() -> Denial {
        Denial {
            path: Some("/etc/x".into()),
            operation: Some("open".into()),
            errno: Some("EROFS".into()),
            ..Denial::known(DenialEvidence::Kernel)
        }
    }

    fn outcome(ending: Ending, denials: Vec<Denial>) -> Outcome {
        Outcome::new(ending, denials, StatusEvidence::Channel, None, 7)
    }

    fn every_ending() -> Vec<(Ending, Verdict, bool, i32)> {
        let not_started = |code| Ending::NotStarted { code, detail: "d".into() };
        let exited = Some(Stop::Exited { code: 0 });
        vec![
            (Ending::Exited { code: 0 }, Verdict::Completed, true, 0),
            (Ending::Exited { code: 3 }, Verdict::Failed, true, 3),
            (Ending::Exited { code: 125 }, Verdict::Failed, true, 125),
            (Ending::Signaled { signal: signal(15) }, Verdict::Signaled, true, 143),
            (not_started(ErrorCode::Unavailable), Verdict::NotStarted, false, 125),
            (not_started(ErrorCode::CommandNotFound), Verdict::NotStarted, false, 127),
            (not_started(ErrorCode::CommandNotExecutable), Verdict::NotStarted, false, 126),
            (Ending::TimedOut { after_ms: 5, then: exited }, Verdict::TimedOut, true, 124),
            (Ending::TimedOut { after_ms: 5, then: None }, Verdict::TimedOut, false, 124),
            (Ending::Cancelled { then: Some(Stop::Signaled { signal: signal(9) }) }, Verdict::Cancelled, true, 130),
            (Ending::Cancelled { then: None }, Verdict::Cancelled, false, 130),
        ]
    }

    #[test]
    fn every_ending_has_its_verdict_and_exit_status() {
        for (ending, verdict, ran, status) in every_ending() {
            let outcome = outcome(ending, vec![]);
            assert_eq!((outcome.verdict(), outcome.ran(), outcome.exit_status()), (verdict, ran, status));
        }
    }

    #[test]
    fn a_denial_outranks_a_failure_only() {
        for (ending, verdict, ..) in every_ending() {
            let expected = if verdict == Verdict::Failed { Verdict::Denied } else { verdict };
            assert_eq!(outcome(ending, vec![kernel_denial()]).verdict(), expected);
        }
    }

    #[test]
    fn a_denial_read_from_text_needs_an_exit_status_other_than_zero() {
        for (ending, verdict, ..) in every_ending() {
            let outcome = outcome(ending, vec![Denial::inferred("x: Permission denied"), kernel_denial()]);
            let expected = if verdict == Verdict::Failed { 2 } else { 1 };
            assert_eq!(outcome.denials().len(), expected, "{:?}", outcome.ending());
        }
    }

    #[test]
    fn outcomes_survive_json() {
        for (ending, ..) in every_ending() {
            let met = BoundMet { resource: Resource::CpuTime, evidence: BoundEvidence::Signal };
            let outcome = outcome(ending, vec![kernel_denial()]).with_bounds_met(vec![met]);
            let json = serde_json::to_string(&outcome).unwrap();
            assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome, "{json}");
        }
    }

    #[test]
    fn the_wire_form_of_every_ending_is_exact() {
        let forms = [
            r#"{"kind":"exited","code":0}"#,
            r#"{"kind":"exited","code":3}"#,
            r#"{"kind":"exited","code":125}"#,
            r#"{"kind":"signaled","signal":15,"name":"SIGTERM"}"#,
            r#"{"kind":"not-started","code":"SANDBOX_UNAVAILABLE","detail":"d"}"#,
            r#"{"kind":"not-started","code":"SANDBOX_COMMAND_NOT_FOUND","detail":"d"}"#,
            r#"{"kind":"not-started","code":"SANDBOX_COMMAND_NOT_EXECUTABLE","detail":"d"}"#,
            r#"{"kind":"timed-out","afterMs":5,"then":{"kind":"exited","code":0}}"#,
            r#"{"kind":"timed-out","afterMs":5}"#,
            r#"{"kind":"cancelled","then":{"kind":"signaled","signal":9,"name":"SIGKILL"}}"#,
            r#"{"kind":"cancelled"}"#,
        ];
        for ((ending, ..), form) in every_ending().into_iter().zip(forms) {
            assert_eq!(serde_json::to_string(&ending).unwrap(), form);
        }
    }

    #[test]
    fn the_wire_form_of_an_outcome_is_exact() {
        assert_eq!(
            serde_json::to_string(&outcome(Ending::Exited { code: 1 }, vec![kernel_denial()])).unwrap(),
            concat!(
                r#"{"verdict":"denied","ending":{"kind":"exited","code":1},"ran":true,"denials":[{"path":"/etc/x","#,
                r#""operation":"open","errno":"EROFS","evidence":"kernel"}],"statusEvidence":"channel","durationMs":7}"#
            )
        );
    }

    #[test]
    fn forged_verdicts_are_refused() {
        let json = serde_json::to_string(&outcome(Ending::Exited { code: 1 }, vec![])).unwrap();
        for (from, to) in [(r#""failed""#, r#""completed""#), (r#""ran":true"#, r#""ran":false"#)] {
            let forged = json.replace(from, to);
            assert_ne!(json, forged);
            assert!(serde_json::from_str::<Outcome>(&forged).is_err());
        }
    }
}
