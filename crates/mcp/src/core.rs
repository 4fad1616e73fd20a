//! One session's calls: the policy of each, permission for more, and the record in the log. Everything here blocks and runs
//! in threads.

use crate::ask::Asker;
use crate::roots::Roots;
use crate::server::Connection;
use crate::setup::{Ground, Settings, Setup};
use crate::tools::hint::Hint;
use crate::tools::jobs::Jobs;
use crate::tools::reply::Refusal;
use pinfold_executor::{Executor, ManagedVariables};
use pinfold_fence::Turns;
use pinfold_fence::observation::ObservationFile;
use pinfold_policy::escalation::{ApprovalPolicy, EscalationError, Subject};
use pinfold_policy::{Outcome, SandboxMode};
use pinfold_providers::{CallOptions, Cancel, LocalProvider};
use pinfold_session::files::SEEN;
use pinfold_session::log::event::Asked;
use pinfold_session::{
    Approvals, Approved, Call, PolicyRequest, PolicyService, Resolved, Session, SessionError, Shown, Step, Wish, text,
};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// So many questions of clients that answer by asking again are remembered.
const MOST_PENDING: usize = 256;

/// How long commands have to end at last, their grace included.
const LAST_WAIT: std::time::Duration = std::time::Duration::from_secs(8);

/// What all connections to one session share.
pub(crate) struct Core {
    pub(crate) session: Session,
    pub(crate) directory: PathBuf,
    pub(crate) service: PolicyService,
    pub(crate) provider: Arc<LocalProvider>,
    pub(crate) executor: Executor,
    pub(crate) ground: Box<dyn Ground>,
    pub(crate) settings: Settings,
    pub(crate) jobs: Jobs,
    pub(crate) roots: Roots,
    /// Thrown when the server ends; every call follows it.
    pub(crate) closing: Cancel,
    /// What the session has seen of which file, and whose turn it is to add to that.
    pub(crate) seen: Mutex<ObservationFile>,
    /// One change of a file after the other, whatever fence makes it.
    pub(crate) turns: Turns,
    /// The latest outcome that has a report.
    pub(crate) latest: Mutex<Option<Arc<Outcome>>>,
    pub(crate) connections: Mutex<Vec<Weak<Connection>>>,
    /// What the model was told last.
    told: Mutex<String>,
    /// Words that clients hand back, and the questions that they stand for.
    pending: Mutex<HashMap<String, String>>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("session", self.session.id()).finish_non_exhaustive()
    }
}

/// The policy of one call, ready to be used.
pub(crate) struct Ready {
    pub(crate) resolved: Resolved,
    pub(crate) options: CallOptions,
}

/// The call for which more may be wanted.
pub(crate) struct Act<'a> {
    pub(crate) argv: &'a [OsString],
    /// How much of it stands in the words by its digest alone.
    pub(crate) unseen_bytes: u64,
    pub(crate) cwd: &'a Path,
    pub(crate) shown: Option<&'a Shown>,
    pub(crate) subject: Subject,
    pub(crate) tool: &'static str,
    pub(crate) denied: &'a [PathBuf],
}

/// What a request for more came to.
pub(crate) enum Widened {
    /// The call may be made under this.
    Ready(Box<Ready>),
    /// The client has to ask its person, and call again.
    Ask(Box<Asked>),
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    pub(crate) fn new(setup: Setup) -> Result<Self, pinfold_executor::ExecutorError> {
        let Setup { session, directory, service, provider, executor, ground, settings } = setup;
        let executor = Executor::new(Arc::clone(&provider), executor, ManagedVariables::default())?;
        let seen = ObservationFile(directory.join(SEEN));
        Ok(Self {
            session,
            directory,
            service,
            provider,
            executor,
            ground,
            settings,
            jobs: Jobs::default(),
            roots: Roots::default(),
            closing: Cancel::new(),
            seen: Mutex::new(seen),
            turns: Turns::default(),
            latest: Mutex::default(),
            connections: Mutex::default(),
            told: Mutex::default(),
            pending: Mutex::default(),
        })
    }

    /// The mode that holds for the session, without any directory that was granted; and what becomes of requests for more.
    fn settled(&self) -> Result<(SandboxMode, ApprovalPolicy), SessionError> {
        let (state, deployment) = (self.session.state()?, self.service.deployment());
        let mode = state.mode().unwrap_or(deployment.mode.value);
        Ok((mode, state.approval().unwrap_or(deployment.approval.value)))
    }

    pub(crate) fn mode(&self) -> Result<SandboxMode, SessionError> {
        Ok(self.settled()?.0)
    }

    /// Whether tools speak of more: exactly while the session confines.
    pub(crate) fn confines(&self) -> Result<bool, SessionError> {
        Ok(self.mode()? != SandboxMode::DangerFullAccess)
    }

    fn approval(&self) -> Result<ApprovalPolicy, SessionError> {
        Ok(self.settled()?.1)
    }

    /// What is said behind a refusal: exactly what a request for more would meet.
    pub(crate) fn hint(&self, asker: &Asker) -> Result<Hint, SessionError> {
        let (mode, approval) = self.settled()?;
        Ok(if mode == SandboxMode::DangerFullAccess || approval == ApprovalPolicy::Never {
            Hint::Silent
        } else if approval == ApprovalPolicy::Ask && !asker.can_ask() && !self.settings.wait_elsewhere {
            Hint::Unavailable
        } else {
            Hint::Available
        })
    }

    /// The policy of a call for which nothing was asked.
    pub(crate) fn standing(&self) -> Result<Ready, SessionError> {
        self.ready(None)
    }

    fn ready(&self, approved: Option<Approved>) -> Result<Ready, SessionError> {
        let unasked = approved.is_none();
        let mut resolved = self.service.resolve(PolicyRequest { session: Some(&self.session), approved })?;
        // SECURITY: a client's roots belong to workspace-write. Elsewhere, and in a call that somebody allowed for itself, they
        // would open what nobody was asked about.
        if unasked && self.mode()? == SandboxMode::WorkspaceWrite {
            for root in self.roots.standing(&*self.ground) {
                if !resolved.policy.writable_roots().contains(&root.as_path()) {
                    resolved.policy.additional_writable_roots.push(root);
                }
            }
        }
        let options = self.ground.prepare(&mut resolved)?;
        Ok(Ready { resolved, options })
    }

    /// Asks for more for one call, if more is wanted, and returns what it may be made under.
    pub(crate) fn widen(
        &self,
        standing: Ready,
        act: &Act<'_>,
        wish: &Wish<'_>,
        asker: &Asker,
        cancel: &Cancel,
    ) -> Result<Widened, Refusal> {
        let call = Call {
            argv: act.argv,
            unseen_bytes: act.unseen_bytes,
            cwd: act.cwd,
            shown: act.shown,
            subject: act.subject,
            tool_name: act.tool,
            call_id: asker.call_id(),
            mode: standing.resolved.mode,
            policy: &standing.resolved.policy,
            restrictions: &standing.resolved.restrictions,
            denied: act.denied,
        };
        let deployment = self.service.deployment();
        let policy = self.approval()?;
        let approved = if policy == ApprovalPolicy::Ask && asker.asks_again() {
            let patience = u64::try_from(deployment.approval_timeout.value.as_millis()).unwrap_or(u64::MAX);
            let step = Approvals::answered_or_question(&self.session, &call, wish, patience, asker.answer());
            match step.map_err(|error| unanswered(error, asker))? {
                Step::InForce => None,
                Step::Granted(approved) => Some(*approved),
                Step::Asked(asked) => return Ok(Widened::Ask(asked)),
            }
        } else {
            let approvals = asker.approvals(Approvals::new(deployment), self.settings.wait_elsewhere);
            Approvals::request(Some(&approvals), Some(&self.session), &call, wish, cancel)
                .map_err(|error| unanswered(error, asker))?
        };
        if cancel.is_cancelled() {
            return Err(Refusal::aborted());
        }
        // A grant for the whole session is in what is resolved anew.
        Ok(Widened::Ready(Box::new(self.ready(approved)?)))
    }

    /// Keeps a question for a client that calls again, and returns the word that it has to hand back.
    pub(crate) fn keep_question(&self, ask: &str) -> std::io::Result<String> {
        let word = nonce()?;
        let mut pending = locked(&self.pending);
        if pending.len() >= MOST_PENDING {
            pending.clear();
        }
        pending.insert(word.clone(), ask.to_owned());
        Ok(word)
    }

    /// Finds the question that a client's word stands for, once.
    pub(crate) fn question_of(&self, word: &str) -> Option<String> {
        locked(&self.pending).remove(word)
    }

    /// Records a call's end. The call has been made: if this fails, nothing else changes.
    pub(crate) fn end_call(&self, id: &str, result: Result<&Outcome, &pinfold_policy::SandboxError>) {
        if let Ok(outcome) = result
            && outcome.report().is_some()
        {
            *locked(&self.latest) = Some(Arc::new(outcome.clone()));
        }
        if let Err(error) = self.session.end_call(id, result) {
            self.complain(id, &error);
        }
    }

    /// Says that the end of a call is not in the log: to whoever reads standard error, for want of a better place.
    pub(crate) fn complain(&self, id: &str, error: &SessionError) {
        eprintln!("pinfold: error[{}]: the end of call {id} is not in the log: {error}", error.code());
    }

    /// What a model is told of a standing policy.
    pub(crate) fn text_of(&self, standing: &Resolved) -> Result<String, SessionError> {
        Ok(text::render_policy(Some(standing)) + &text::render_approval(self.approval()?, standing.policy.mode))
    }

    /// The text about the policy that holds now.
    pub(crate) fn policy_text(&self) -> Result<String, SessionError> {
        let standing = self.standing()?;
        self.text_of(&standing.resolved)
    }

    /// Returns the text if the model has not been told the same one last.
    pub(crate) fn announce(&self, text: String) -> Option<String> {
        let mut told = locked(&self.told);
        if *told == text {
            return None;
        }
        let first = told.is_empty();
        told.clone_from(&text);
        drop(told);
        // What stands in the log is for other processes of the session; that it cannot be written stops no call.
        match self.session.announce(text) {
            Ok(new) => new.filter(|_| !first),
            Err(_) => None,
        }
    }

    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        let mut connections = locked(&self.connections);
        connections.retain(|connection| connection.strong_count() > 0);
        connections.iter().filter_map(Weak::upgrade).collect()
    }

    /// Withdraws every call, and ends every command and waits for its end. Nothing begins any more.
    pub(crate) fn end_commands(&self) -> Option<String> {
        self.closing.cancel();
        let id = self.session.id();
        let wrong = if self.settings.ends_session {
            self.executor.end_session(id).err().map(|error| error.to_string())
        } else {
            // What is kept for a session that goes on is not ours to remove.
            self.executor.end_shell(id);
            let running = self.executor.running(id);
            for process in &running {
                process.kill();
            }
            let until = std::time::Instant::now() + LAST_WAIT;
            let left = || until.saturating_duration_since(std::time::Instant::now());
            let ended = running.iter().all(|process| process.done_within(left()).is_some());
            (!ended).then(|| "a command does not end".to_owned())
        };
        // Their ends are in the log before the session's.
        self.jobs.settled();
        wrong
    }

    /// Ends everything that runs, and the session if it is the server's own. Returns what went wrong.
    pub(crate) fn shut_down(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.end_commands().into_iter().collect();
        if self.settings.ends_session
            && let Err(error) = self.session.end()
        {
            wrong.push(error.to_string());
        }
        wrong
    }
}

/// Says of a question that was answered with nonsense that it was; the log has it as one that nobody answered.
fn unanswered(error: SessionError, asker: &Asker) -> Refusal {
    match error {
        SessionError::Escalation(EscalationError::Unavailable { requested }) if asker.heard_nonsense() => {
            let text = format!(
                "the client's answer about escalating to \"{requested}\" is none of those that were offered, so it counts as no; \
                 nothing has run"
            );
            Refusal::new("ESCALATION_REFUSED", text)
        }
        error => error.into(),
    }
}

/// A word that nobody can guess.
pub(crate) fn nonce() -> std::io::Result<String> {
    use std::io::Read as _;
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
