//! `pinfold run --ask`: who is asked about single effects while the command waits.

use crate::configuration::Configured;
use crate::request::Request;
use crate::session_run::Held;
use crate::voice::{complain_session, say};
use crate::{arguments::Run, voice::Form};
use pinfold_policy::escalation::ApprovalPolicy;
use pinfold_policy::{SandboxError, SandboxMode};
use pinfold_providers::{Asks, EffectQuestion, Stream};
use pinfold_session::terminal::Terminal;
use pinfold_session::{Approvals, Running, SessionError};
use std::io::IsTerminal as _;
use std::sync::Arc;

/// Refuses `--ask` where nothing could be asked.
///
/// # Errors
///
/// `SANDBOX_INVALID_POLICY`.
pub(crate) fn check(arguments: &Run, request: &Request) -> Result<(), SandboxError> {
    let invalid = |detail: &str| Err(SandboxError::InvalidPolicy { detail: detail.to_owned() });
    if !arguments.ask {
        return Ok(());
    }
    if request.policy.mode != SandboxMode::WorkspaceWrite {
        return invalid("--ask is about protected names in writable directories, and this mode has none");
    }
    if request.closing.restrictions.protect.is_empty() {
        return invalid("--ask has no use here: no name is protected (--protect default)");
    }
    Ok(())
}

/// Who has the terminal: nobody asks on one that the command could write to.
///
/// SECURITY: a command goes on while it waits, in other threads, and would paint another question over ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terminals {
    /// Nobody is asked about single effects.
    Untouched,
    /// The command, which has one among its streams; questions are answered through the session's log.
    OfTheCommand,
    /// The question. What the command writes comes by way of us and is held back meanwhile; its input is none of ours.
    OfTheQuestion,
}

impl Terminals {
    pub(crate) fn of(arguments: &Run) -> Self {
        let has_one = std::io::stdin().is_terminal() || std::io::stdout().is_terminal();
        match (arguments.ask, arguments.session.session.is_some()) {
            (false, _) => Self::Untouched,
            (true, true) if has_one || std::io::stderr().is_terminal() => Self::OfTheCommand,
            (true, _) => Self::OfTheQuestion,
        }
    }

    /// The command's input and output.
    pub(crate) fn streams(self) -> [Stream; 2] {
        match self {
            Self::OfTheQuestion if std::io::stdin().is_terminal() => [Stream::Null, Stream::Tee { keep: 0 }],
            Self::OfTheQuestion => [Stream::Inherit, Stream::Tee { keep: 0 }],
            Self::Untouched | Self::OfTheCommand => [Stream::Inherit; 2],
        }
    }

    /// What is to be said of it.
    pub(crate) fn note(self) -> Option<&'static str> {
        (self == Self::OfTheQuestion && std::io::stdin().is_terminal()).then_some(
            "Questions are put on the terminal, so the command has none: its input is empty. In a session it has one, and \
             questions are answered elsewhere (pinfold approve).",
        )
    }
}

/// Who is asked while this command runs.
///
/// # Errors
///
/// Those of opening the session once more: answers are written down by a thread of their own.
pub(crate) fn asks(
    arguments: &Run,
    configured: &Configured,
    request: &Request,
    held: Option<&Held>,
    call: Option<&str>,
) -> Result<Option<Asks>, SessionError> {
    if !arguments.ask {
        return Ok(None);
    }
    let deployment = &configured.deployment;
    let session = held.map(Held::again).transpose()?;
    let terminal = Terminal::default();
    let has_terminal = Terminals::of(arguments) == Terminals::OfTheQuestion && terminal.is_present();
    let asking = match &session {
        Some(session) => session.state()?.approval().unwrap_or(deployment.approval.value),
        None => deployment.approval.value,
    };
    if asking != ApprovalPolicy::Ask {
        say(&format!("nobody is asked: the approval policy is {asking}; what is refused stays refused"));
    } else if !has_terminal && session.is_none() {
        say("nobody can be asked: there is no terminal and no --session; what is refused stays refused");
    }
    let mut approvals = Approvals::new(deployment);
    if has_terminal {
        approvals = approvals.with(terminal);
    }
    if session.is_some() {
        approvals = approvals.answered_elsewhere();
    }
    let running = Running {
        argv: arguments.argv.clone(),
        cwd: match &request.cwd {
            Some(cwd) => cwd.clone(),
            None => std::env::current_dir().unwrap_or_default(),
        },
        mode: request.policy.mode,
        tool_name: "pinfold run".to_owned(),
        call_id: call.map(str::to_owned),
    };
    let answer = move |question: &EffectQuestion<'_>| {
        if asking == ApprovalPolicy::Ask
            && !has_terminal
            && let Some(session) = &session
        {
            let seconds = question.patience.as_secs();
            say(&format!(
                "the command waits for an answer, at most {seconds} s: pinfold approve --session {}",
                session.id()
            ));
        }
        approvals.effect(session.as_ref(), &running, question).unwrap_or_else(|error| {
            complain_session(&error, Form::Text);
            false
        })
    };
    let patience = deployment.approval_timeout.value;
    Ok(Some(Asks { patience, never: configured.own().to_vec(), answer: Arc::new(answer) }))
}
