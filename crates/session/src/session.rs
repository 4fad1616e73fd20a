//! One session: its log, and the acts that change it. Every act is one transaction of the log, so that two processes that
//! hold the same session see one order.

use crate::digest::Digest;
use crate::error::SessionError;
use crate::grant::{Approved, GrantId, Life, Scope};
use crate::log::Log;
use crate::log::event::{
    Answered, ApprovalSet, Asked, Began, By, Decision, Event, Finished, Given, GrantNamed, ModeSet, Nothing, PresetSet,
    Told,
};
use crate::log::state::State;
use crate::service::Resolved;
use pinfold_policy::escalation::{ApprovalOutcome, ApprovalPolicy};
use pinfold_policy::{DenialEvidence, Outcome, SandboxError, SandboxMode, SessionId};
use pinfold_providers::LocalProvider;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a yes waits for its call, in milliseconds: the asker may have been killed meanwhile.
const YES_LASTS: u64 = 10 * 60 * 1000;

/// A session that is open in this process.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    cwd: PathBuf,
    project: Option<String>,
    log: Mutex<Log>,
}

impl Session {
    pub(crate) fn from_log(id: SessionId, log: Log) -> Result<Self, SessionError> {
        let created = log.state().created().ok_or_else(|| SessionError::Unknown { id: id.to_string() })?;
        if created.id != id.as_str() {
            let detail = format!("the log of session {} is that of session {}", id, created.id);
            return Err(SessionError::Refused { detail });
        }
        let (cwd, project) = (PathBuf::from(&created.cwd), created.project.clone());
        Ok(Self { id, cwd, project, log: Mutex::new(log) })
    }

    /// Returns the name.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Returns the working directory, which never changes.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Returns the project's configuration file as the session began, if there was one.
    pub fn project_at_start(&self) -> Option<&str> {
        self.project.as_deref()
    }

    /// Returns the directory of the log.
    pub(crate) fn place(&self) -> PathBuf {
        self.log().directory().to_owned()
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what holds now, with what other processes have added.
    ///
    /// # Errors
    ///
    /// Those of [`Log::refresh`].
    pub fn state(&self) -> Result<State, SessionError> {
        self.log().refresh().cloned()
    }

    /// Sets the mode of future calls. One event, also if the mode is the same (U254).
    ///
    /// # Errors
    ///
    /// Those of [`Log::transact`].
    pub fn set_mode(&self, mode: SandboxMode, by: By) -> Result<(), SessionError> {
        let source = Some(by).filter(|by| *by != By::User);
        self.log().transact(|_, _| Ok((vec![Event::Mode(ModeSet { mode, source })], ())))
    }

    /// Sets the approval policy; nothing is written if it is the same (U573).
    ///
    /// # Errors
    ///
    /// Those of [`Log::transact`].
    pub fn set_approval(&self, policy: ApprovalPolicy) -> Result<(), SessionError> {
        self.log().transact(|state, _| {
            let same = state.approval() == Some(policy);
            Ok((if same { Vec::new() } else { vec![Event::Approval(ApprovalSet { policy })] }, ()))
        })
    }

    /// Selects a preset: its name first, then only what changes; nothing if all of it holds already (U553, U561).
    ///
    /// # Errors
    ///
    /// `PRESET_UNKNOWN`, and those of [`Log::transact`].
    pub fn select_preset(&self, deployment: &crate::config::Deployment, name: &str) -> Result<(), SessionError> {
        let row = crate::preset::find(deployment, name)?;
        self.log().transact(|state, _| {
            let mode = state.mode().unwrap_or(deployment.mode.value);
            let approval = state.approval().unwrap_or(deployment.approval.value);
            let selected = state.preset() == Some(name);
            if selected && mode == row.mode && approval == row.approval {
                return Ok((Vec::new(), ()));
            }
            let mut events = vec![Event::Preset(PresetSet { preset: name.to_owned() })];
            if mode != row.mode {
                events.push(Event::Mode(ModeSet { mode: row.mode, source: Some(By::Preset) }));
            }
            if approval != row.approval {
                events.push(Event::Approval(ApprovalSet { policy: row.approval }));
            }
            Ok((events, ()))
        })
    }

    /// Grants writing below a directory for the rest of the session, or until a moment in milliseconds of Unix time.
    ///
    /// What the directory is, is looked at on every call, not here.
    ///
    /// # Errors
    ///
    /// `SESSION_EVENT_REFUSED` for a path that is relative, holds `..` or a NUL byte, or is not UTF-8.
    pub fn grant_directory(&self, path: &Path, until: Option<u64>) -> Result<GrantId, SessionError> {
        self.log().transact(|state, _| {
            let id = GrantId(format!("g{}", state.events()));
            let scope = Scope::Write { path: path.to_owned() };
            let given = Given {
                id: id.clone(),
                scope,
                life: Life::Session,
                digest: None,
                until,
                ask: None,
                asker: None,
                by: By::User,
            };
            Ok((vec![Event::Given(given)], id))
        })
    }

    /// Takes a grant back. Calls that run keep what they began with.
    ///
    /// # Errors
    ///
    /// `GRANT_UNUSABLE` for one that does not exist, or was used or revoked.
    pub fn revoke(&self, id: &GrantId) -> Result<(), SessionError> {
        self.log().transact(|state, _| {
            if !state.grants().any(|given| given.id == *id) {
                let detail = "it does not exist, or was used or revoked".to_owned();
                return Err(SessionError::GrantUnusable { id: id.to_string(), detail });
            }
            Ok((vec![Event::Revoked(GrantNamed { id: id.clone() })], ()))
        })
    }

    /// Uses up a grant for the call with this digest: once, whoever tries, in whatever process.
    ///
    /// # Errors
    ///
    /// `GRANT_UNUSABLE` for a grant that was used or revoked, is out of date, or is for another call.
    pub fn use_grant(&self, id: &GrantId, digest: Digest, argv: &[OsString]) -> Result<Approved, SessionError> {
        self.log().transact(|state, at| {
            let given = state
                .usable(id, digest, at)
                .map_err(|why| SessionError::GrantUnusable { id: id.to_string(), detail: why.to_owned() })?;
            let approved = Approved {
                session: self.id.as_str().to_owned(),
                grant: id.clone(),
                scope: given.scope.clone(),
                digest,
                argv: crate::digest::of_argv(argv),
            };
            Ok((vec![Event::Used(GrantNamed { id: id.clone() })], approved))
        })
    }

    /// Writes a question down, so that another process can answer it.
    pub(crate) fn ask(&self, asked: Asked) -> Result<Asked, SessionError> {
        self.log().transact(|state, _| {
            // U567: what a killed asker has left gets its answer, too.
            let left = state.open_asks().filter(|asked| asked.is_orphaned()).map(|asked| asked.id.clone());
            let (outcome, by) = (Decision::Cancelled, By::Nobody);
            let mut events: Vec<_> = left.map(|id| Event::Answered(Answered { id, outcome, by })).collect();
            let asked = Asked { id: format!("a{}", state.events() + events.len() as u64), ..asked };
            events.push(Event::Asked(asked.clone()));
            Ok((events, asked))
        })
    }

    /// Answers a question; a yes gives the grant in the same step. Of two answers the first counts.
    ///
    /// A yes to somebody who has ended meanwhile is none: the question is closed as cancelled, and nothing is granted.
    ///
    /// # Errors
    ///
    /// `SESSION_EVENT_REFUSED` for a question that does not exist, is answered, whose time has passed, or whose asker has
    /// ended.
    pub fn answer(&self, ask: &str, answer: Verdict, by: By) -> Result<(), SessionError> {
        self.log().transact(|state, at| {
            let asked = state.open_ask(ask);
            let asked = asked.ok_or_else(|| SessionError::refused(format!("{ask} is no open question")))?;
            let decided = |outcome, by| Event::Answered(Answered { id: ask.to_owned(), outcome, by });
            let offer = match answer {
                Verdict::Allowed(offer) => offer,
                Verdict::Rejected => return Ok((vec![decided(Decision::Rejected, by)], Ok(()))),
                Verdict::Cancelled => return Ok((vec![decided(Decision::Cancelled, by)], Ok(()))),
                Verdict::Unavailable => return Ok((vec![decided(Decision::Unavailable, by)], Ok(()))),
            };
            if at >= asked.until {
                return Err(SessionError::refused(format!("the time for an answer to {ask} has passed")));
            }
            if asked.is_orphaned() {
                let gone = SessionError::refused(format!("whoever asked {ask} has ended; nothing is granted"));
                return Ok((vec![decided(Decision::Cancelled, By::Nobody)], Err(gone)));
            }
            let offer =
                asked.offers.get(offer).ok_or_else(|| SessionError::refused(format!("{ask} has no such offer")))?;
            let once = offer.life == Life::Call;
            let given = Given {
                id: GrantId(format!("g{}", state.events() + 1)),
                scope: offer.scope.clone(),
                life: offer.life,
                digest: once.then_some(asked.digest),
                until: once.then_some(at + YES_LASTS),
                ask: Some(ask.to_owned()),
                asker: asked.asker.filter(|_| once),
                by,
            };
            Ok((vec![decided(Decision::allowed(offer.life), by), Event::Given(given)], Ok(())))
        })?
    }

    /// Records that a command is about to be started.
    ///
    /// # Errors
    ///
    /// `SESSION_ENDED`; `SESSION_CHANGED` if what the policy rests on was taken back since it was resolved: the mode, the
    /// preset, or a grant; `GRANT_UNUSABLE` if the policy was approved for another argv; those of [`Log::transact`]. The
    /// command must not be started then.
    pub fn begin_call(&self, argv: &[OsString], resolved: &Resolved) -> Result<String, SessionError> {
        let words = crate::digest::of_argv(argv);
        if let Some(approved) = resolved.approved.as_ref().filter(|approved| approved.argv != words) {
            let detail = "it was used for another command".to_owned();
            return Err(SessionError::GrantUnusable { id: approved.grant.to_string(), detail });
        }
        self.log().transact(|state, at| {
            if state.has_ended() {
                return Err(SessionError::Ended { id: self.id.to_string() });
            }
            // RACE: another process may have revoked a grant between the look and now; from now on it comes too late.
            if !resolved.basis.holds_in(state, at) {
                return Err(SessionError::Changed { id: self.id.to_string() });
            }
            let id = format!("c{}", state.events());
            let began = Began {
                id: id.clone(),
                argv: words,
                policy: resolved.digest(),
                mode: resolved.mode,
                grants: match resolved.policy.mode {
                    SandboxMode::WorkspaceWrite => resolved.basis.grants().to_vec(),
                    SandboxMode::ReadOnly | SandboxMode::DangerFullAccess => Vec::new(),
                },
                grant: resolved.approved.as_ref().map(|approved| approved.grant.clone()),
            };
            Ok((vec![Event::Began(began)], id))
        })
    }

    /// Records how a command ended.
    ///
    /// # Errors
    ///
    /// Those of [`Log::transact`].
    pub fn end_call(&self, id: &str, result: Result<&Outcome, &SandboxError>) -> Result<(), SessionError> {
        let (outcome, error) = match result {
            Ok(outcome) => (Some(outcome), None),
            Err(error) => (None, Some(error.code().as_str().to_owned())),
        };
        let finished = Finished {
            id: id.to_owned(),
            enforcement: outcome.and_then(Outcome::report).and_then(|report| report.enforcement()),
            outcome: outcome.map(|outcome| {
                let denials = outcome.denials().to_vec();
                let evidence = outcome.status_evidence();
                Outcome::new(outcome.ending().clone(), denials, evidence, None, outcome.duration_ms())
            }),
            error,
        };
        self.log().transact(|_, _| Ok((vec![Event::Finished(finished)], ())))
    }

    /// Records how an operation on files ended, by the code of its error if it did not happen.
    ///
    /// # Errors
    ///
    /// Those of [`Log::transact`].
    pub fn end_operation(&self, id: &str, error: Option<&str>) -> Result<(), SessionError> {
        let error = error.map(str::to_owned);
        let finished = Finished { id: id.to_owned(), enforcement: None, outcome: None, error };
        self.log().transact(|_, _| Ok((vec![Event::Finished(finished)], ())))
    }

    /// Lists the paths that were refused to the last call with this argv, as far as the kernel or our broker told of them.
    /// What was read from a command's own text is not among them: nobody shall be asked for what a command made up.
    ///
    /// # Errors
    ///
    /// Those of reading the log.
    pub fn denied_before(&self, argv: &[OsString]) -> Result<Vec<PathBuf>, SessionError> {
        let words = crate::digest::of_argv(argv);
        let (mut calls, mut denied) = (std::collections::BTreeSet::new(), Vec::new());
        self.log().read_again(|record| match &record.event {
            Event::Began(began) if began.argv == words => drop(calls.insert(began.id.clone())),
            Event::Finished(finished) if calls.contains(&finished.id) => {
                let denials = finished.outcome.iter().flat_map(|outcome| outcome.denials());
                let hard = denials.filter(|denial| denial.evidence != DenialEvidence::Inferred);
                denied = hard.filter_map(|denial| denial.path.clone()).filter(|path| path.is_absolute()).collect();
            }
            _ => {}
        })?;
        Ok(denied)
    }

    /// Ends the session: no call begins after it.
    ///
    /// # Errors
    ///
    /// Those of [`Log::transact`].
    pub fn end(&self) -> Result<(), SessionError> {
        self.log().transact(|state, _| {
            let event = Event::Ended(Nothing {});
            Ok((if state.has_ended() { Vec::new() } else { vec![event] }, ()))
        })
    }

    /// Ends the session, and removes what was kept for its calls: its temp area.
    ///
    /// # Errors
    ///
    /// Those of [`Session::end`], and of [`LocalProvider::end_session`]: then the session has ended, and its temp area is
    /// still there.
    pub fn end_with(&self, provider: &LocalProvider) -> Result<(), SessionError> {
        self.end()?;
        Ok(provider.end_session(&self.id)?)
    }

    /// Returns the text if the model has not been told the same one last, and records that it is told now: a change is
    /// announced once, whichever process announces it.
    ///
    /// # Errors
    ///
    /// Those of [`Log::transact`].
    pub fn announce(&self, text: String) -> Result<Option<String>, SessionError> {
        let digest = crate::digest::Framed::new("pinfold text 1").part(text.as_bytes()).finish();
        self.log().transact(|state, _| {
            if state.told() == Some(digest) {
                return Ok((Vec::new(), None));
            }
            Ok((vec![Event::Told(Told { digest })], Some(text)))
        })
    }
}

/// An answer as an approver gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The offer with this number, from 0, is granted.
    Allowed(usize),
    /// No.
    Rejected,
    /// The question was withdrawn.
    Cancelled,
    /// Nobody could be asked.
    Unavailable,
}

impl Verdict {
    /// Returns the outcome that the log and the asker receive.
    pub fn outcome(self) -> ApprovalOutcome {
        match self {
            Self::Allowed(_) => ApprovalOutcome::AllowedOnce,
            Self::Rejected => ApprovalOutcome::Rejected,
            Self::Cancelled => ApprovalOutcome::Cancelled,
            Self::Unavailable => ApprovalOutcome::Unavailable,
        }
    }
}
