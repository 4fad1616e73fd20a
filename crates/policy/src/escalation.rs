//! The ladder to a wider mode: which steps exist, which checks come in which order, and what is said when a step
//! is not granted. Asking a person is done elsewhere; here the approver is only a fact and an answer.

use crate::UnknownWord;
use crate::mode::SandboxMode;

/// The modes that a request may name, whatever mode is in force; the advertised enum of a tool.
pub const ESCALATION_TARGETS: [SandboxMode; 2] = [SandboxMode::WorkspaceWrite, SandboxMode::DangerFullAccess];

/// Returns the modes that are strictly wider, from narrow to wide.
pub const fn wider_modes(mode: SandboxMode) -> &'static [SandboxMode] {
    match mode {
        SandboxMode::ReadOnly => &ESCALATION_TARGETS,
        SandboxMode::WorkspaceWrite => &[SandboxMode::DangerFullAccess],
        SandboxMode::DangerFullAccess => &[],
    }
}

closed_words! {
    /// Names what is retried: a shell's command or a file operation.
    pub enum Subject("escalation subject") {
        /// A command of a shell.
        Command => "command",
        /// An operation of a file tool.
        Operation => "operation",
    }
}

closed_words! {
    /// Names an approver's answer.
    pub enum ApprovalOutcome("approval outcome") {
        /// Granted for this one call.
        AllowedOnce => "allowed-once",
        /// Refused by the user.
        Rejected => "rejected",
        /// Withdrawn before an answer.
        Cancelled => "cancelled",
        /// Nobody could be asked.
        Unavailable => "unavailable",
    }
}

closed_words! {
    /// Names what becomes of a request before anybody is asked.
    ///
    /// A session without a person in front of it declares `never` or `allow-listed`: then it neither waits nor widens.
    pub enum ApprovalPolicy("approval policy") {
        /// Every request is refused.
        Never => "never",
        /// What a rule of the configuration names is granted, everything else is refused; nobody is asked.
        AllowListed => "allow-listed",
        /// Somebody is asked.
        Ask => "ask",
    }
}

/// Says why a wider mode was not granted; nothing has run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EscalationError {
    /// A mode without a reason.
    #[error("invalid escalation: sandbox_permissions requires a justification")]
    JustificationMissing,
    /// A reason without a mode.
    #[error("invalid escalation: justification is only valid together with sandbox_permissions")]
    JustificationUnpaired,
    /// A reason that says nothing.
    #[error("invalid justification: expected a non-empty sentence")]
    JustificationBlank,
    /// A mode that cannot be asked for.
    #[error("invalid sandbox_permissions: {0}")]
    TargetUnknown(UnknownWord),
    /// A mode that is not wider than the one in force.
    #[error(
        "sandbox escalation to \"{requested}\" is not strictly wider than this call's current \"{effective}\" mode"
    )]
    NotWider {
        /// The mode asked for.
        requested: SandboxMode,
        /// The mode in force.
        effective: SandboxMode,
    },
    /// There is no approver.
    #[error("sandbox escalation to \"{requested}\" requires approval, but no approval service is composed")]
    NoApprover {
        /// The mode asked for.
        requested: SandboxMode,
    },
    /// The call belongs to no agent.
    #[error("sandbox escalation to \"{requested}\" requires approval, but the call has no agent to route it through")]
    NoAgent {
        /// The mode asked for.
        requested: SandboxMode,
    },
    /// The user said no.
    #[error(
        "the user rejected escalating this {subject} to \"{requested}\"; it stays denied, so stop and explain \
         instead of working around it"
    )]
    Rejected {
        /// What was to be retried.
        subject: Subject,
        /// The mode asked for.
        requested: SandboxMode,
    },
    /// The question was withdrawn.
    #[error("approval for escalating to \"{requested}\" was cancelled")]
    Cancelled {
        /// The mode asked for.
        requested: SandboxMode,
    },
    /// Nobody could be asked.
    #[error("sandbox escalation to \"{requested}\" requires approval, but no approval channel is available")]
    Unavailable {
        /// The mode asked for.
        requested: SandboxMode,
    },
}

/// Holds a request whose arguments fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EscalationRequest<'a> {
    /// The mode asked for.
    pub mode: SandboxMode,
    /// The reason as it was given; empty only if the mode is already in force.
    pub justification: &'a str,
}

impl EscalationRequest<'_> {
    /// Returns the sentence that the log and the approver receive.
    pub fn audit_reason(&self) -> String {
        format!("escalate sandbox to {}: {}", self.mode, self.justification)
    }
}

/// Checks a tool's two escalation arguments against each other; nothing is asked without the first.
///
/// # Errors
///
/// [`EscalationError`] for a mode without a reason, a reason without a mode, a blank reason, or a mode that is
/// not in [`ESCALATION_TARGETS`], checked in this order.
pub fn validate_arguments<'a>(
    sandbox_permissions: Option<&str>,
    justification: Option<&'a str>,
) -> Result<Option<EscalationRequest<'a>>, EscalationError> {
    let (permissions, justification) = match (sandbox_permissions, justification) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(EscalationError::JustificationMissing),
        (None, Some(_)) => return Err(EscalationError::JustificationUnpaired),
        (Some(permissions), Some(justification)) => (permissions, justification),
    };
    if justification.trim().is_empty() {
        return Err(EscalationError::JustificationBlank);
    }
    Ok(Some(EscalationRequest { mode: target(permissions)?, justification }))
}

/// Checks as [`validate_arguments`] does, when the mode in force is known already.
///
/// A reason may then be missing or blank beside the mode in force, which asks for nothing, and blank without a
/// mode.
///
/// # Errors
///
/// As [`validate_arguments`], but for these cases.
pub fn validate_arguments_under<'a>(
    effective: SandboxMode,
    sandbox_permissions: Option<&str>,
    justification: Option<&'a str>,
) -> Result<Option<EscalationRequest<'a>>, EscalationError> {
    let stated = justification.filter(|text| !text.trim().is_empty());
    match sandbox_permissions {
        None if stated.is_none() => Ok(None),
        Some(permissions) if permissions == effective.as_str() => {
            Ok(Some(EscalationRequest { mode: effective, justification: stated.unwrap_or_default() }))
        }
        _ => validate_arguments(sandbox_permissions, justification),
    }
}

fn target(text: &str) -> Result<SandboxMode, EscalationError> {
    const WORDS: &[&str] = &[ESCALATION_TARGETS[0].as_str(), ESCALATION_TARGETS[1].as_str()];
    let found = ESCALATION_TARGETS.into_iter().find(|mode| mode.as_str() == text);
    found.ok_or_else(|| EscalationError::TargetUnknown(UnknownWord::new("mode", text, WORDS)))
}

/// Says what a requested mode is beside the one in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Widening {
    /// It is the one in force: nobody is asked and nothing changes.
    AlreadyInForce,
    /// It is strictly wider: somebody must be asked.
    Wider,
}

/// Compares a requested mode with the one in force for the call.
///
/// # Errors
///
/// [`EscalationError::NotWider`] for a narrower mode.
pub fn check_wider(requested: SandboxMode, effective: SandboxMode) -> Result<Widening, EscalationError> {
    if requested == effective {
        Ok(Widening::AlreadyInForce)
    } else if wider_modes(effective).contains(&requested) {
        Ok(Widening::Wider)
    } else {
        Err(EscalationError::NotWider { requested, effective })
    }
}

/// Holds what is known about a request so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EscalationFacts {
    /// The mode in force for the call.
    pub effective: SandboxMode,
    /// The mode asked for.
    pub requested: SandboxMode,
    /// What is to be retried.
    pub subject: Subject,
    /// Whether an approver exists.
    pub approver_present: bool,
    /// Whether the call belongs to an agent.
    pub agent_present: bool,
    /// The approver's answer, once there is one.
    pub answer: Option<ApprovalOutcome>,
}

/// Says what to do next with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EscalationStep {
    /// Run this one call under this mode.
    Proceed(SandboxMode),
    /// Ask the approver, then decide again with the answer.
    Ask,
}

/// Decides the next step of a request.
///
/// The order is: strictly wider, approver, agent, answer. A request for the mode in force proceeds at once and
/// asks nobody; an answer given out of turn cannot replace an earlier check.
///
/// # Errors
///
/// The first check that fails; nothing has run and nothing may run.
pub fn escalation_step(facts: &EscalationFacts) -> Result<EscalationStep, EscalationError> {
    let requested = facts.requested;
    if check_wider(requested, facts.effective)? == Widening::AlreadyInForce {
        return Ok(EscalationStep::Proceed(requested));
    }
    if !facts.approver_present {
        return Err(EscalationError::NoApprover { requested });
    }
    if !facts.agent_present {
        return Err(EscalationError::NoAgent { requested });
    }
    match facts.answer {
        None => Ok(EscalationStep::Ask),
        Some(answer) => settle(answer, requested, facts.subject).map(EscalationStep::Proceed),
    }
}

/// Turns an approver's answer into the mode of this one call.
///
/// # Errors
///
/// The text of the refusal for every answer but `allowed-once`.
pub fn settle(
    answer: ApprovalOutcome,
    requested: SandboxMode,
    subject: Subject,
) -> Result<SandboxMode, EscalationError> {
    match answer {
        ApprovalOutcome::AllowedOnce => Ok(requested),
        ApprovalOutcome::Rejected => Err(EscalationError::Rejected { subject, requested }),
        ApprovalOutcome::Cancelled => Err(EscalationError::Cancelled { requested }),
        ApprovalOutcome::Unavailable => Err(EscalationError::Unavailable { requested }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SandboxMode::{DangerFullAccess, ReadOnly, WorkspaceWrite};

    fn facts(effective: SandboxMode, requested: SandboxMode) -> EscalationFacts {
        EscalationFacts {
            effective,
            requested,
            subject: Subject::Command,
            approver_present: true,
            agent_present: true,
            answer: None,
        }
    }

    // U272
    #[test]
    fn the_ladder_only_leads_upwards() {
        assert_eq!(wider_modes(ReadOnly), [WorkspaceWrite, DangerFullAccess]);
        assert_eq!(wider_modes(WorkspaceWrite), [DangerFullAccess]);
        assert!(wider_modes(DangerFullAccess).is_empty());
        for mode in SandboxMode::ALL {
            assert!(wider_modes(*mode).iter().all(|wider| wider > mode));
        }
    }

    #[test]
    fn arguments_must_come_in_pairs() {
        let text = |permissions, justification| validate_arguments(permissions, justification).unwrap_err().to_string();
        assert_eq!(
            text(Some("workspace-write"), None),
            "invalid escalation: sandbox_permissions requires a justification"
        );
        assert_eq!(
            text(None, Some("")),
            "invalid escalation: justification is only valid together with sandbox_permissions"
        );
        assert_eq!(text(Some("nonsense"), Some(" \n")), "invalid justification: expected a non-empty sentence");
        assert_eq!(
            text(Some("read-only"), Some("x")),
            "invalid sandbox_permissions: unknown mode \"read-only\"; expected one of: workspace-write, danger-full-access"
        );
        assert_eq!(validate_arguments(None, None), Ok(None));
        let request = validate_arguments(Some("workspace-write"), Some("because ")).unwrap().unwrap();
        assert_eq!(request.audit_reason(), "escalate sandbox to workspace-write: because ");
    }

    #[test]
    fn the_mode_in_force_needs_no_reason() {
        for reason in [None, Some(""), Some("x")] {
            let request = validate_arguments_under(WorkspaceWrite, Some("workspace-write"), reason).unwrap().unwrap();
            assert_eq!((request.mode, request.justification), (WorkspaceWrite, reason.unwrap_or_default()));
        }
        assert_eq!(validate_arguments_under(ReadOnly, None, Some(" ")), Ok(None));
        assert_eq!(validate_arguments_under(ReadOnly, None, Some("x")), Err(EscalationError::JustificationUnpaired));
        assert_eq!(
            validate_arguments_under(ReadOnly, Some("workspace-write"), None),
            Err(EscalationError::JustificationMissing)
        );
    }

    #[test]
    fn only_a_strictly_wider_mode_asks() {
        for effective in SandboxMode::ALL {
            for requested in SandboxMode::ALL {
                let step = escalation_step(&facts(*effective, *requested));
                match requested.cmp(effective) {
                    std::cmp::Ordering::Equal => {
                        assert_eq!(step, Ok(EscalationStep::Proceed(*requested)))
                    }
                    std::cmp::Ordering::Greater => assert_eq!(step, Ok(EscalationStep::Ask)),
                    std::cmp::Ordering::Less => assert_eq!(
                        step.unwrap_err().to_string(),
                        format!(
                            "sandbox escalation to \"{requested}\" is not strictly wider than this call's current \"{effective}\" mode"
                        )
                    ),
                }
            }
        }
    }

    #[test]
    fn checks_come_in_order_and_an_early_answer_replaces_none() {
        let granted = EscalationFacts { answer: Some(ApprovalOutcome::AllowedOnce), ..facts(ReadOnly, WorkspaceWrite) };
        assert_eq!(escalation_step(&granted), Ok(EscalationStep::Proceed(WorkspaceWrite)));
        let alone = EscalationFacts { approver_present: false, agent_present: false, ..granted };
        assert_eq!(
            escalation_step(&alone).unwrap_err().to_string(),
            "sandbox escalation to \"workspace-write\" requires approval, but no approval service is composed"
        );
        let agentless = EscalationFacts { agent_present: false, ..granted };
        assert_eq!(
            escalation_step(&agentless).unwrap_err().to_string(),
            "sandbox escalation to \"workspace-write\" requires approval, but the call has no agent to route it through"
        );
        let narrower = EscalationFacts { effective: DangerFullAccess, ..alone };
        assert!(matches!(escalation_step(&narrower), Err(EscalationError::NotWider { .. })));
    }

    #[test]
    fn every_answer_but_one_refuses_with_its_own_text() {
        let text = |answer| settle(answer, DangerFullAccess, Subject::Operation).unwrap_err().to_string();
        assert_eq!(
            text(ApprovalOutcome::Rejected),
            "the user rejected escalating this operation to \"danger-full-access\"; it stays denied, so stop and explain instead of working around it"
        );
        assert_eq!(text(ApprovalOutcome::Cancelled), "approval for escalating to \"danger-full-access\" was cancelled");
        assert_eq!(
            text(ApprovalOutcome::Unavailable),
            "sandbox escalation to \"danger-full-access\" requires approval, but no approval channel is available"
        );
    }

    #[test]
    fn an_answer_outside_the_list_is_no_answer() {
        assert!("allowed".parse::<ApprovalOutcome>().is_err());
        assert!("allowed-always".parse::<ApprovalOutcome>().is_err());
        assert_eq!("allowed-once".parse(), Ok(ApprovalOutcome::AllowedOnce));
    }
}
