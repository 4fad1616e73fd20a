//! From a request for more to a grant, or to a refusal with its text. Nothing runs before it is decided.
//!
//! The order: arguments that fit together, strictly wider, an approver, an agent, the question, the answer. A request for
//! what is in force asks nobody.

use crate::approver::{Approver, Question, by_rule};
use crate::asker::Asker;
use crate::config::{AllowRule, Decided, Deployment};
use crate::digest::{self, Digest, Framed};
use crate::error::SessionError;
use crate::grant::{Approved, Life, Scope, problem_of};
use crate::log::event::{Asked, By, Decision, Given, Offer};
use crate::place::Shown;
use crate::session::{Session, Verdict};
use pinfold_policy::escalation::{
    ApprovalPolicy, EscalationError, EscalationRequest, Subject, Widening, check_wider, settle,
    validate_arguments_under,
};
use pinfold_policy::quote::{quote, readable};
use pinfold_policy::root_rules::is_system_directory;
use pinfold_policy::{ExecutionPolicy, Restrictions, RootProblem, RootRole, SandboxError, SandboxMode, SessionId};
use pinfold_providers::Cancel;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How often a waiting asker looks into the log, and whether it was cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// How many refused paths a question shows, and how many of their directories it offers: a command chooses what it is
/// refused.
const MOST_DENIED: usize = 16;
const MOST_OFFERED: usize = 4;

/// The call for which more is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The exact command.
    pub argv: &'a [OsString],
    /// How many bytes of what would be done stand in `argv` by their digest alone.
    pub unseen_bytes: u64,
    /// Where it would run.
    pub cwd: &'a Path,
    /// Which directory that is and which program would start; none for what is no command.
    pub shown: Option<&'a Shown>,
    /// What is retried.
    pub subject: Subject,
    /// Which tool asks; not empty.
    pub tool_name: &'a str,
    /// That tool's own name of its call.
    pub call_id: Option<&'a str>,
    /// The mode in force for it ([`crate::Resolved::mode`]).
    pub mode: SandboxMode,
    /// The policy in force for it; its mode is wider than that where directories are granted in a read-only session.
    pub policy: &'a ExecutionPolicy,
    /// What is closed beside the policy.
    pub restrictions: &'a Restrictions,
    /// Paths that were refused before, on evidence that the command cannot forge. Each is offered by itself.
    pub denied: &'a [PathBuf],
}

/// What is wanted: a mode or a directory, and why.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'a> {
    /// A wider mode.
    pub sandbox_permissions: Option<&'a str>,
    /// A directory below which is to be written.
    pub write: Option<&'a Path>,
    /// The reason.
    pub justification: Option<&'a str>,
}

/// What a request for more comes to when nobody waits for an answer.
#[derive(Debug)]
pub enum Step {
    /// Nothing was wanted, or it is in force already.
    InForce,
    /// Somebody had said yes to exactly this call.
    Granted(Box<Approved>),
    /// The question stands in the log.
    Asked(Box<Asked>),
}

/// Decides requests for more.
#[derive(Clone)]
pub struct Approvals {
    policy: ApprovalPolicy,
    rules: Vec<Decided<AllowRule>>,
    patience: Duration,
    chain: Vec<(Option<SessionId>, Arc<dyn Approver>)>,
    elsewhere: bool,
}

impl std::fmt::Debug for Approvals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Approvals")
            .field("policy", &self.policy)
            .field("chain", &self.chain.len())
            .finish_non_exhaustive()
    }
}

impl Approvals {
    /// Makes a service that nobody answers for yet, with the policy, the rules and the patience of a configuration.
    pub fn new(deployment: &Deployment) -> Self {
        Self {
            policy: deployment.approval.value,
            rules: deployment.rules.clone(),
            patience: deployment.approval_timeout.value,
            chain: Vec::new(),
            elsewhere: false,
        }
    }

    /// Adds an approver behind the others.
    pub fn with(mut self, approver: impl Approver + 'static) -> Self {
        self.chain.push((None, Arc::new(approver)));
        self
    }

    /// Adds an approver that hears only the questions of one session (U571).
    pub fn with_for(mut self, session: &SessionId, approver: impl Approver + 'static) -> Self {
        self.chain.push((Some(session.clone()), Arc::new(approver)));
        self
    }

    /// Lets another process answer through the log what no approver here has claimed.
    pub fn answered_elsewhere(mut self) -> Self {
        self.elsewhere = true;
        self
    }

    pub(crate) fn policy(&self) -> ApprovalPolicy {
        self.policy
    }

    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Asks for more than is in force for a call.
    ///
    /// Nothing is returned if nothing was wanted or it is in force already. `approvals` or `session` may be missing; then
    /// the request is refused in its turn.
    ///
    /// # Errors
    ///
    /// [`EscalationError`] for every refusal, `SANDBOX_INVALID_ROOT` for a directory that cannot be granted, and those of
    /// the log.
    pub fn request(
        approvals: Option<&Self>,
        session: Option<&Session>,
        call: &Call<'_>,
        wish: &Wish<'_>,
        cancel: &Cancel,
    ) -> Result<Option<Approved>, SessionError> {
        let Some(wanted) = Wanted::of(call, wish)? else { return Ok(None) };
        let requested = wanted.scope.mode();
        let approvals = approvals.ok_or(EscalationError::NoApprover { requested })?;
        let session = session.ok_or(EscalationError::NoAgent { requested })?;
        let digest = wanted.digest(call, session.id());
        let state = session.state()?;
        // Somebody said yes to exactly this call when it was left as a question.
        if let Some(given) = state.waiting_for(digest, crate::log::now()) {
            let id = given.id.clone();
            return session.use_grant(&id, digest, call.argv).map(Some);
        }
        let policy = state.approval().unwrap_or(approvals.policy);
        let patience = u64::try_from(approvals.patience.as_millis()).unwrap_or(u64::MAX);
        let question = Asked { asker: Asker::this(), ..wanted.question(call, digest, patience) };
        let asked = session.ask(question)?;
        let (decision, by) = approvals.decide(policy, session, call.argv, &asked, cancel)?;
        match decision {
            Decision::AllowedOnce => {
                let lost = || SessionError::GrantUnusable {
                    id: asked.id.clone(),
                    detail: "what was granted was used or revoked before this call".to_owned(),
                };
                let id = session.state()?.grant_of(&asked.id).map(|given| given.id.clone()).ok_or_else(lost)?;
                session.use_grant(&id, digest, call.argv).map(Some)
            }
            // What is in force now is wider, and the call needs no permission of its own.
            Decision::AllowedForSession => Ok(None),
            Decision::Rejected | Decision::Cancelled | Decision::Unavailable => {
                Err(wanted.refusal(decision, by, call.subject))
            }
        }
    }

    /// Writes a question down without waiting: another process answers it, and the same request later finds the grant.
    ///
    /// Nothing is asked if nothing was wanted or it is in force already. `patience` is how long an answer counts, in
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// As [`Approvals::request`], up to the question.
    pub fn question(
        session: &Session,
        call: &Call<'_>,
        wish: &Wish<'_>,
        patience: u64,
    ) -> Result<Option<Asked>, SessionError> {
        let Some(wanted) = Wanted::of(call, wish)? else { return Ok(None) };
        let digest = wanted.digest(call, session.id());
        session.ask(wanted.question(call, digest, patience)).map(Some)
    }

    /// The same for an asker that does not wait and is asked again with an answer, such as a protocol in which only the other
    /// side calls: takes the answer to an earlier question, uses up a grant that this process was given for exactly this
    /// call, and without one writes the question down.
    ///
    /// Of two answers to a question the first counts. `patience` is how long an answer counts, in milliseconds.
    ///
    /// # Errors
    ///
    /// As [`Approvals::request`].
    pub fn answered_or_question(
        session: &Session,
        call: &Call<'_>,
        wish: &Wish<'_>,
        patience: u64,
        answer: Option<(&str, Verdict)>,
    ) -> Result<Step, SessionError> {
        let Some(wanted) = Wanted::of(call, wish)? else { return Ok(Step::InForce) };
        let digest = wanted.digest(call, session.id());
        if let Some((ask, verdict)) = answer {
            let taken = session.answer(ask, verdict, By::User);
            if session.state()?.open_ask(ask).is_some() {
                // The answer was none, or came too late.
                session.answer(ask, Verdict::Unavailable, By::Nobody)?;
            } else if let Err(error) = taken
                && !matches!(error, SessionError::Refused { .. })
            {
                return Err(error);
            }
            let answered = session.log().answer_of(ask)?;
            match answered.outcome {
                Decision::AllowedOnce => {}
                // What is in force now is wider, and the call needs no permission of its own.
                Decision::AllowedForSession => return Ok(Step::InForce),
                no @ (Decision::Rejected | Decision::Cancelled | Decision::Unavailable) => {
                    return Err(wanted.refusal(no, answered.by, call.subject));
                }
            }
        }
        let state = session.state()?;
        let (now, this) = (crate::log::now(), Asker::this());
        let ours = |given: &&Given| {
            (given.asker.is_none() || given.asker == this) && state.usable(&given.id, digest, now).is_ok()
        };
        if let Some(id) = state.grants().find(ours).map(|given| given.id.clone()) {
            return session.use_grant(&id, digest, call.argv).map(|approved| Step::Granted(Box::new(approved)));
        }
        let question = Asked { asker: this, ..wanted.question(call, digest, patience) };
        session.ask(question).map(|asked| Step::Asked(Box::new(asked)))
    }

    /// Decides one question and writes the answer down; of all answers exactly one counts.
    pub(crate) fn decide(
        &self,
        policy: ApprovalPolicy,
        session: &Session,
        argv: &[OsString],
        asked: &Asked,
        cancel: &Cancel,
    ) -> Result<(Decision, By), SessionError> {
        let (verdict, by) = match policy {
            // U565: before any approver, whatever their order.
            ApprovalPolicy::Never => (Verdict::Rejected, By::Policy),
            ApprovalPolicy::AllowListed => (by_rule(&self.rules, argv, asked), By::Rule),
            ApprovalPolicy::Ask if cancel.is_cancelled() => (Verdict::Cancelled, By::User),
            ApprovalPolicy::Ask => match self.ask_here(Some(session), session.id(), asked, cancel) {
                Some(verdict @ Verdict::Unavailable) => (verdict, By::Nobody),
                Some(verdict) => (verdict, By::User),
                None => match self.wait_for_log(session, asked, cancel)? {
                    // Another process has written the answer.
                    None => return answered(session, asked),
                    Some(verdict) => (verdict, By::Nobody),
                },
            },
        };
        // An answer that names no offer is no answer.
        let verdict = match verdict {
            Verdict::Allowed(offer) if offer >= asked.offers.len() => Verdict::Unavailable,
            verdict => verdict,
        };
        let decision = match verdict {
            Verdict::Allowed(offer) => {
                asked.offers.get(offer).map_or(Decision::Unavailable, |it| Decision::allowed(it.life))
            }
            Verdict::Rejected => Decision::Rejected,
            Verdict::Cancelled => Decision::Cancelled,
            Verdict::Unavailable => Decision::Unavailable,
        };
        match session.answer(&asked.id, verdict, by) {
            Ok(()) => Ok((decision, by)),
            // Somebody else was faster, or the yes came too late.
            Err(SessionError::Refused { .. }) if session.state()?.open_ask(&asked.id).is_none() => {
                answered(session, asked)
            }
            Err(SessionError::Refused { .. }) => {
                session.answer(&asked.id, Verdict::Unavailable, By::Nobody)?;
                Ok((Decision::Unavailable, By::Nobody))
            }
            Err(error) => Err(error),
        }
    }

    /// Asks the approvers of this process in their order. They run in a thread of their own: an answer that comes after
    /// the cancellation or the deadline reaches nobody.
    pub(crate) fn ask_here(
        &self,
        session: Option<&Session>,
        id: &SessionId,
        asked: &Asked,
        cancel: &Cancel,
    ) -> Option<Verdict> {
        let heard = |owner: &Option<SessionId>| owner.as_ref().is_none_or(|owner| owner == id);
        let chain: Vec<_> = self.chain.iter().filter(|(owner, _)| heard(owner)).map(|(_, it)| Arc::clone(it)).collect();
        if chain.is_empty() {
            return if self.elsewhere { None } else { Some(Verdict::Unavailable) };
        }
        let deadline = Instant::now().checked_add(self.patience).unwrap_or_else(far);
        let (tell, told) = mpsc::channel();
        let over = Cancel::new();
        let (question, id, withdrawn) = (asked.clone(), id.clone(), over.clone());
        let thread = std::thread::Builder::new().name("approval".to_owned()).spawn(move || {
            let question = Question { session: &id, asked: &question, deadline, cancel: &withdrawn };
            // A failing approver is none; with it the question ends, so that nobody behind it is asked for what one
            // before might have refused.
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                chain.iter().find_map(|approver| approver.answer(&question))
            }));
            // Nobody listens any more if it is late.
            let _ = tell.send(answer.unwrap_or(Some(Verdict::Unavailable)));
        });
        if thread.is_err() {
            return Some(Verdict::Unavailable);
        }
        let answer = loop {
            match told.recv_timeout(LOOK) {
                Ok(answer) => break answer,
                Err(RecvTimeoutError::Disconnected) => break Some(Verdict::Unavailable),
                Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => break Some(Verdict::Cancelled),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => break Some(Verdict::Unavailable),
                // Another process may be faster; then there is nothing left to ask.
                Err(RecvTimeoutError::Timeout) if self.elsewhere && session.is_some_and(|it| !is_open(it, asked)) => {
                    break None;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        over.cancel();
        match answer {
            None if !self.elsewhere => Some(Verdict::Unavailable),
            answer => answer,
        }
    }

    /// Waits until another process answers; a verdict is returned if none does.
    fn wait_for_log(&self, session: &Session, asked: &Asked, cancel: &Cancel) -> Result<Option<Verdict>, SessionError> {
        let deadline = Instant::now().checked_add(self.patience).unwrap_or_else(far);
        loop {
            if session.state()?.open_ask(&asked.id).is_none() {
                return Ok(None);
            }
            if cancel.wait(LOOK) {
                return Ok(Some(Verdict::Cancelled));
            }
            if Instant::now() >= deadline {
                return Ok(Some(Verdict::Unavailable));
            }
        }
    }
}

/// A moment beyond every patience.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(60 * 60 * 24 * 365)
}

fn is_open(session: &Session, asked: &Asked) -> bool {
    session.state().is_ok_and(|state| state.open_ask(&asked.id).is_some())
}

/// The answer that another process has written.
fn answered(session: &Session, asked: &Asked) -> Result<(Decision, By), SessionError> {
    let answered = session.log().answer_of(&asked.id)?;
    Ok((answered.outcome, answered.by))
}

/// A request whose arguments fit together and that asks for more than is in force.
struct Wanted<'a> {
    scope: Scope,
    justification: &'a str,
}

impl<'a> Wanted<'a> {
    fn of(call: &Call<'_>, wish: &Wish<'a>) -> Result<Option<Self>, SessionError> {
        // A call that was made narrower is asked about as it is.
        let effective = call.mode.min(call.policy.mode);
        if let Some(path) = wish.write {
            if wish.sandbox_permissions.is_some() {
                return Err(SessionError::refused("ask for a mode or for a directory, not for both at once"));
            }
            let justification = wish.justification.ok_or(EscalationError::JustificationMissing)?;
            if justification.trim().is_empty() {
                return Err(EscalationError::JustificationBlank.into());
            }
            if let Some(problem) = problem_of(path) {
                let problem = RootProblem::Refused(format!("it {problem}"));
                return Err(
                    SandboxError::InvalidRoot { role: RootRole::Additional, path: path.to_owned(), problem }.into()
                );
            }
            let open = call.policy.writable_roots().iter().any(|root| path.starts_with(root));
            let scope = Scope::Write { path: path.to_owned() };
            let wanted = !open && effective != SandboxMode::DangerFullAccess;
            return Ok(wanted.then_some(Self { scope, justification }));
        }
        let request = validate_arguments_under(effective, wish.sandbox_permissions, wish.justification)?;
        let Some(EscalationRequest { mode, justification }) = request else { return Ok(None) };
        if check_wider(mode, effective)? == Widening::AlreadyInForce {
            return Ok(None);
        }
        Ok(Some(Self { scope: Scope::Mode { mode }, justification }))
    }

    fn audit_reason(&self) -> String {
        match &self.scope {
            Scope::Mode { mode } => EscalationRequest { mode: *mode, justification: self.justification }.audit_reason(),
            Scope::Write { path } => format!("write below {}: {}", quote(path), self.justification),
            // Nobody can wish for it: a command that runs does.
            Scope::Effect { .. } => self.scope.describe(),
        }
    }

    /// The text of an answer that is no yes: what was wanted, and whose answer it is.
    fn refusal(&self, decision: Decision, by: By, subject: Subject) -> SessionError {
        let (requested, stop) =
            (self.scope.mode(), "it stays denied, so stop and explain instead of working around it");
        let what = match &self.scope {
            Scope::Mode { mode } => format!("escalating this {subject} to \"{mode}\""),
            Scope::Write { path } => format!("writing below {}", quote(path)),
            Scope::Effect { .. } => self.scope.describe(),
        };
        let detail = match (&self.scope, decision, by) {
            // U285: who said no is said, and nobody else is blamed.
            (_, Decision::Rejected, By::Rule) => format!("no rule allows {what}, and nobody was asked; {stop}"),
            (_, Decision::Rejected, By::Policy) => format!("approval policy \"never\" refuses {what}; {stop}"),
            (Scope::Mode { .. }, ..) => match settle(decision.outcome(), requested, subject) {
                Err(error) => return error.into(),
                Ok(_) => format!("{what} was not allowed"),
            },
            (_, Decision::Rejected, _) => format!("the user rejected {what}; {stop}"),
            (_, Decision::Cancelled, _) => format!("approval for {what} was cancelled"),
            _ => format!("{what} requires approval, but no approval channel is available"),
        };
        SessionError::Declined { detail }
    }

    /// Everything that whoever answers has seen, and the policy that it is wider than.
    fn digest(&self, call: &Call<'_>, session: &SessionId) -> Digest {
        let scope = match &self.scope {
            Scope::Mode { mode } => ("mode", mode.as_str().as_bytes()),
            Scope::Write { path } => ("write", path.as_os_str().as_encoded_bytes()),
            Scope::Effect { effect } => ("effect", effect.path.as_bytes()),
        };
        Framed::new("pinfold call 2")
            .part(session.as_str().as_bytes())
            .list(call.argv.iter().map(|word| word.as_encoded_bytes()))
            .path(call.cwd)
            .part(&call.shown.map(Shown::identity).unwrap_or_default())
            .part(call.subject.as_str().as_bytes())
            .part(digest::of_policy(call.policy, call.restrictions).to_string().as_bytes())
            .part(scope.0.as_bytes())
            .part(scope.1)
            .part(self.justification.as_bytes())
            .finish()
    }

    fn question(&self, call: &Call<'_>, digest: Digest, patience: u64) -> Asked {
        Asked {
            id: String::new(), // the log gives it
            tool_name: call.tool_name.to_owned(),
            call_id: call.call_id.map(str::to_owned),
            reason: self.audit_reason(),
            subject: call.subject,
            argv: call.argv.iter().map(readable).collect(),
            unseen_bytes: call.unseen_bytes,
            cwd: readable(call.cwd),
            program: call.shown.map(Shown::told),
            mode: call.mode.min(call.policy.mode),
            denied: call.denied.iter().take(MOST_DENIED).map(readable).collect(),
            offers: self.offers(call),
            digest,
            until: crate::log::now().saturating_add(patience),
            asker: None,
        }
    }

    /// What can be answered, the narrowest first.
    fn offers(&self, call: &Call<'_>) -> Vec<Offer> {
        let mut paths: Vec<PathBuf> = Vec::new();
        match &self.scope {
            Scope::Write { path } => paths.push(path.clone()),
            Scope::Effect { .. } => {}
            Scope::Mode { .. } => {
                for path in call.denied.iter().filter_map(|path| nearest_directory(path)) {
                    if !paths.contains(&path) && paths.len() < MOST_OFFERED {
                        paths.push(path);
                    }
                }
            }
        }
        let both = [Life::Call, Life::Session];
        let mut offers: Vec<Offer> = paths
            .into_iter()
            .flat_map(|path| both.map(|life| Offer { scope: Scope::Write { path: path.clone() }, life }))
            .collect();
        if let Scope::Mode { .. } = self.scope {
            offers.push(Offer { scope: self.scope.clone(), life: Life::Call });
        }
        offers
    }
}

/// The directory that has to be opened so that a path can be written; none for what must never be.
fn nearest_directory(path: &Path) -> Option<PathBuf> {
    let real = path.ancestors().skip(1).find_map(|above| above.canonicalize().ok().filter(|real| real.is_dir()))?;
    (!is_system_directory(&real) && problem_of(&real).is_none()).then_some(real)
}
