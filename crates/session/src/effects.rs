//! Single effects of a command that runs and waits: from the broker's question to yes or no.
//!
//! A yes is a grant like any other: it stands in the log with the question that it answers, it is bound to that question
//! alone, and it is used up before the effect happens. Without a session there is no log, and only this process can answer.

use crate::approval::Approvals;
use crate::asker::Asker;
use crate::digest::Framed;
use crate::error::SessionError;
use crate::grant::{Life, LiveEffect, Scope};
use crate::log::event::{Asked, Decision, Offer};
use crate::session::{Session, Verdict};
use pinfold_policy::escalation::{ApprovalPolicy, Subject};
use pinfold_policy::quote::readable;
use pinfold_policy::{SandboxMode, SessionId};
use pinfold_providers::EffectQuestion;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The name under which questions outside of every session are shown.
const NO_SESSION: &str = "none";

/// The command that runs.
#[derive(Debug, Clone)]
pub struct Running {
    /// The exact command.
    pub argv: Vec<OsString>,
    /// Where it was started.
    pub cwd: PathBuf,
    /// The mode that it runs under.
    pub mode: SandboxMode,
    /// Which tool started it; not empty.
    pub tool_name: String,
    /// Its name in the session's log.
    pub call_id: Option<String>,
}

impl Approvals {
    /// Asks about one effect, and says whether it may happen now, once.
    ///
    /// The approval policy of the session, or of the configuration, decides first: `never` and `allow-listed` are a no.
    ///
    /// # Errors
    ///
    /// Those of the log. Then it may not happen.
    pub fn effect(
        &self,
        session: Option<&Session>,
        running: &Running,
        question: &EffectQuestion<'_>,
    ) -> Result<bool, SessionError> {
        let approvals = self.clone().with_patience(question.patience);
        let asked = asked(session, running, question);
        let cancel = question.withdrawn;
        let Some(session) = session else {
            let allowed = approvals.policy() == ApprovalPolicy::Ask
                && approvals.ask_here(None, &SessionId::new(NO_SESSION), &asked, cancel) == Some(Verdict::Allowed(0));
            return Ok(allowed && !cancel.is_cancelled());
        };
        let policy = session.state()?.approval().unwrap_or(approvals.policy());
        let asked = session.ask(asked)?;
        if approvals.decide(policy, session, &running.argv, &asked, cancel)?.0 != Decision::AllowedOnce {
            return Ok(false);
        }
        let state = session.state()?;
        let Some(given) = state.grant_of(&asked.id) else { return Ok(false) };
        let id = given.id.clone();
        // SECURITY: of two that hold the same yes, one can use it.
        session.use_grant(&id, asked.digest, &running.argv).map(|_| !cancel.is_cancelled())
    }
}

fn asked(session: Option<&Session>, running: &Running, question: &EffectQuestion<'_>) -> Asked {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let effect = question.effect;
    let text = |text: &std::ffi::OsStr| readable(text);
    let live = LiveEffect {
        operation: effect.operation.clone(),
        path: text(effect.path.as_os_str()),
        other: effect.other.as_ref().map(|other| text(other.as_os_str())),
        detail: effect.detail.as_deref().map(text),
        rule: effect.rule.clone(),
        process: effect.process.pid,
        name: effect.process.name.clone(),
        argv: effect.argv.iter().map(|word| text(word)).collect(),
        argv_is_whole: effect.argv_is_whole,
    };
    let now = crate::log::now();
    // An earlier yes to the same effect must not answer this question: nothing of one question is like another's.
    let digest = Framed::new("pinfold effect 1")
        .part(session.map_or(NO_SESSION, |session| session.id().as_str()).as_bytes())
        .list(running.argv.iter().map(|word| word.as_encoded_bytes()))
        .path(&running.cwd)
        .part(live.operation.as_bytes())
        .path(&effect.path)
        .part(&now.to_le_bytes())
        .part(&std::process::id().to_le_bytes())
        .part(&NUMBER.fetch_add(1, Ordering::Relaxed).to_le_bytes())
        .finish();
    let reason = match &live.rule {
        Some(rule) => format!("the command waits: {} of a protected name ({rule})", live.operation),
        None => format!("the command waits: {} outside of the writable places", live.operation),
    };
    Asked {
        id: "live".to_owned(), // the log gives another, where there is one
        tool_name: running.tool_name.clone(),
        call_id: running.call_id.clone(),
        reason,
        subject: Subject::Command,
        argv: running.argv.iter().map(|word| text(word)).collect(),
        unseen_bytes: 0,
        cwd: text(running.cwd.as_os_str()),
        program: None,
        mode: running.mode,
        denied: Vec::new(),
        offers: vec![Offer { scope: Scope::Effect { effect: live }, life: Life::Call }],
        digest,
        asker: Asker::this(),
        until: now.saturating_add(milliseconds(question.patience)),
    }
}

fn milliseconds(patience: Duration) -> u64 {
    u64::try_from(patience.as_millis()).unwrap_or(u64::MAX)
}
