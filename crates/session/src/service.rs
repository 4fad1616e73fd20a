//! The policy of one call. An approved mode outranks the session's last `sandbox/mode`, which outranks the
//! configuration's. A session's working directory is its workspace; calls without a session have the configured one.
//!
//! Everything is looked at once, when a call is resolved: a call that runs keeps what it began with. What it rests on is
//! looked at once more under the log's lock when the call begins ([`Session::begin_call`]), so that nothing that was taken
//! back meanwhile counts; and directories are held from the look on ([`HeldDirectory`]).

use crate::config::Deployment;
use crate::digest::{self, Digest};
use crate::error::SessionError;
use crate::grant::{Approved, GrantId, Scope, problem_of};
use crate::log::state::State;
use crate::preset;
use crate::session::Session;
use pinfold_policy::{
    ExecutionPolicy, Network, Restrictions, RootProblem, RootRole, SandboxError, SandboxMode, SessionId, Variables,
};
use pinfold_providers::HeldDirectory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Resolves the policies of a deployment.
#[derive(Debug, Clone)]
pub struct PolicyService {
    deployment: Deployment,
    fallback: PathBuf,
    home: Option<PathBuf>,
    registered: Arc<Registered>,
}

/// Directories that were registered while this process runs, each under a number of its own.
#[derive(Debug, Default)]
struct Registered(Mutex<Numbered>);

#[derive(Debug, Default)]
struct Numbered {
    next: u64,
    directories: BTreeMap<u64, (SessionId, PathBuf)>,
}

/// What selects the policy of one call.
#[derive(Debug, Default)]
pub struct PolicyRequest<'a> {
    /// The calling session.
    pub session: Option<&'a Session>,
    /// A wider policy for this one call. It is used up.
    pub approved: Option<Approved>,
}

/// The policy of one call, and what is closed beside it.
#[derive(Debug)]
pub struct Resolved {
    /// The policy.
    pub policy: ExecutionPolicy,
    /// What is closed beyond the mode.
    pub restrictions: Restrictions,
    /// The mode in force: the approved one, or the session's. The policy's own is `workspace-write` also where nothing but
    /// granted directories is open.
    pub mode: SandboxMode,
    /// The directories that were decided about, as they were when they were looked at; they belong into
    /// [`pinfold_providers::CallOptions::held`] of the call.
    pub held: Vec<Arc<HeldDirectory>>,
    pub(crate) approved: Option<Approved>,
    pub(crate) basis: Basis,
}

/// What of a session's log a policy rests on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Basis {
    mode: Option<SandboxMode>,
    preset: Option<String>,
    grants: Vec<GrantId>,
}

impl Basis {
    fn of(state: &State, now: u64) -> Self {
        Self {
            mode: state.mode(),
            preset: state.preset().map(str::to_owned),
            grants: state.granted(now).map(|given| given.id.clone()).collect(),
        }
    }

    /// Says whether all of it still holds: a directory that was granted since changes nothing, one that was taken back does.
    pub(crate) fn holds_in(&self, state: &State, now: u64) -> bool {
        let new = Self::of(state, now);
        new.mode == self.mode && new.preset == self.preset && self.grants.iter().all(|id| new.grants.contains(id))
    }

    /// The grants that opened a directory.
    pub(crate) fn grants(&self) -> &[GrantId] {
        &self.grants
    }
}

impl Resolved {
    /// Returns the digest of the policy with what is closed beside it.
    pub fn digest(&self) -> Digest {
        digest::of_policy(&self.policy, &self.restrictions)
    }

    /// Looks whether the directories that were decided about are still what they were, for whoever has opened them by name.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_ROOT`.
    pub fn verify(&self) -> Result<(), SandboxError> {
        let changed = self.held.iter().find_map(|held| held.verify().err().map(|problem| (held, problem)));
        let Some((held, problem)) = changed else { return Ok(()) };
        let path = held.path().to_owned();
        let role = if path == self.policy.workspace_root { RootRole::Workspace } else { RootRole::Additional };
        Err(SandboxError::InvalidRoot { role, path, problem })
    }

    /// Returns the permission that this call uses up, if it needs one.
    pub fn approved(&self) -> Option<&Approved> {
        self.approved.as_ref()
    }
}

/// A directory that is writable for a session as long as this lives. Dropping it takes back this registration and no
/// other.
#[derive(Debug)]
#[must_use = "the registration ends when this is dropped"]
pub struct WritableRoot {
    registered: Arc<Registered>,
    number: u64,
}

impl Drop for WritableRoot {
    fn drop(&mut self) {
        self.registered.0.lock().unwrap_or_else(PoisonError::into_inner).directories.remove(&self.number);
    }
}

impl PolicyService {
    /// Makes a service.
    ///
    /// `fallback` is the workspace of calls without a session, unless one is configured; `home` is where `deny-secrets`
    /// looks.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_ROOT` for a fallback that is not absolute (U245).
    pub fn new(deployment: Deployment, fallback: &Path, home: Option<&Path>) -> Result<Self, SessionError> {
        let fallback = deployment.workspace.as_ref().map_or(fallback, |configured| &configured.value).to_owned();
        ExecutionPolicy::new(SandboxMode::ReadOnly, &fallback).validate()?;
        Ok(Self { deployment, fallback, home: home.map(Path::to_owned), registered: Arc::default() })
    }

    /// Returns the configuration.
    pub fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Returns the last mode that was set for a session, without any default.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Log::refresh`].
    pub fn override_of(&self, session: &Session) -> Result<Option<SandboxMode>, SessionError> {
        Ok(session.state()?.mode())
    }

    /// Grants one more directory to a session's future calls, in this process, until the result is dropped.
    ///
    /// What the directory is, is looked at on every call. Other sessions, and calls without one, are unaffected.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_ROOT` for a directory that is relative or holds a NUL byte.
    pub fn register_writable_root(&self, session: &Session, directory: &Path) -> Result<WritableRoot, SandboxError> {
        let mut checked = ExecutionPolicy::new(SandboxMode::ReadOnly, session.cwd());
        checked.additional_writable_roots.push(directory.to_owned());
        checked.validate()?;
        let mut registered = self.registered.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = registered.next;
        registered.next += 1;
        registered.directories.insert(number, (session.id().clone(), directory.to_owned()));
        Ok(WritableRoot { registered: Arc::clone(&self.registered), number })
    }

    /// Resolves the policy of one call.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_ROOT` for a session whose recorded working directory is relative or holds a NUL byte;
    /// `GRANT_UNUSABLE` for a permission of another session; `SANDBOX_INVALID_POLICY`; `SESSION_ENDED`; and those of
    /// reading the log.
    pub fn resolve(&self, request: PolicyRequest<'_>) -> Result<Resolved, SessionError> {
        let state = request.session.map(Session::state).transpose()?;
        self.resolve_in(request, state.as_ref(), crate::log::now())
    }

    /// The same from a state that is known, at a moment that is given.
    pub(crate) fn resolve_in(
        &self,
        request: PolicyRequest<'_>,
        state: Option<&State>,
        now: u64,
    ) -> Result<Resolved, SessionError> {
        let PolicyRequest { session, approved } = request;
        if let Some(session) = session.filter(|_| state.is_some_and(State::has_ended)) {
            return Err(SessionError::Ended { id: session.id().to_string() });
        }
        if let Some(approved) = &approved
            && session.is_none_or(|session| session.id().as_str() != approved.session)
        {
            let detail = "it belongs to another session".to_owned();
            return Err(SessionError::GrantUnusable { id: approved.grant.to_string(), detail });
        }
        let row = state.and_then(State::preset).and_then(|name| preset::find(&self.deployment, name).ok());
        let mode = state.and_then(State::mode).unwrap_or(self.deployment.mode.value);
        let root = session.map_or(self.fallback.as_path(), Session::cwd);
        let mut policy = ExecutionPolicy::new(mode, root);
        policy.session_id = session.map(|session| session.id().clone());
        policy.additional_writable_roots = self.deployment.writable.iter().map(|it| it.value.clone()).collect();
        // A preset opens more only while its mode is the one in force.
        if let Some(row) = row.filter(|row| row.mode == mode) {
            policy.additional_writable_roots.extend(row.writable.iter().cloned());
        }
        policy.validate()?;
        let mut held = Vec::new();
        if session.is_some() {
            held.push(look(RootRole::Workspace, root)?);
        }
        let directories = self.directories(session, state, now);
        let wanted = approved.as_ref().map(|approved| &approved.scope);
        let mode = match wanted {
            Some(Scope::Mode { mode }) => *mode,
            _ => mode,
        };
        open(&mut policy, &directories, wanted, &mut held)?;
        policy.validate()?;
        if let Some(session) = session {
            let place = session.place();
            crate::Store::refuse_open(&policy, &[&place])?;
        }
        let basis = state.map(|state| Basis::of(state, now)).unwrap_or_default();
        let mut restrictions = self.deployment.restrictions(self.home.as_deref())?;
        if let Some(row) = row {
            restrictions.network = restrictions.network.max(row.network.unwrap_or(Network::Open));
            restrictions.denied_reads.extend(row.denied_reads.iter().cloned());
            crate::config::protect(&mut restrictions, row.protect.iter().map(String::as_str));
            restrictions.variables = restrictions.variables.max(row.variables.unwrap_or(Variables::Inherit));
        }
        Ok(Resolved { policy, restrictions, mode, held, approved, basis })
    }

    /// Directories that are granted to a session: registered in this process, then granted in its log.
    fn directories(&self, session: Option<&Session>, state: Option<&State>, now: u64) -> Vec<PathBuf> {
        let Some(session) = session else { return Vec::new() };
        let registered = self.registered.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut directories: Vec<PathBuf> = registered
            .directories
            .values()
            .filter(|(owner, _)| owner == session.id())
            .map(|(_, directory)| directory.clone())
            .filter(|_| state.is_none_or(|state| !state.has_ended()))
            .collect();
        directories.extend(state.into_iter().flat_map(|state| state.granted_directories(now)).map(Path::to_owned));
        directories
    }
}

/// Opens what was granted, and nothing beside it.
///
/// Registered and granted directories count in `workspace-write`. Under `read-only` a directory that was granted through
/// the log is opened alone: the workspace stays closed.
fn open(
    policy: &mut ExecutionPolicy,
    directories: &[PathBuf],
    approved: Option<&Scope>,
    held: &mut Vec<Arc<HeldDirectory>>,
) -> Result<(), SandboxError> {
    let once = match approved {
        Some(Scope::Mode { mode }) => {
            policy.mode = *mode;
            None
        }
        Some(Scope::Write { path }) => Some(path),
        // SECURITY: it was permitted to a command that ran, and is no policy of another.
        Some(Scope::Effect { .. }) => {
            let detail = "a single effect is no policy for a call".to_owned();
            return Err(SandboxError::InvalidPolicy { detail });
        }
        None => None,
    };
    if let Some(path) = once.filter(|path| problem_of(path).is_some()) {
        let problem = RootProblem::Refused("it cannot be granted".to_owned());
        return Err(SandboxError::InvalidRoot { role: RootRole::Additional, path: path.clone(), problem });
    }
    if policy.mode != SandboxMode::DangerFullAccess {
        for path in once.into_iter().chain(directories) {
            held.push(look(RootRole::Additional, path)?);
        }
    }
    let mut granted = once.into_iter().chain(directories).cloned();
    match policy.mode {
        SandboxMode::DangerFullAccess => {}
        SandboxMode::WorkspaceWrite => {
            for directory in granted {
                if !policy.additional_writable_roots.contains(&directory) {
                    policy.additional_writable_roots.push(directory);
                }
            }
        }
        SandboxMode::ReadOnly => {
            if let Some(first) = granted.next() {
                // SECURITY: the workspace and the configured directories belong to a mode that is not in force.
                policy.mode = SandboxMode::WorkspaceWrite;
                policy.workspace_root = first;
                policy.additional_writable_roots = granted.collect();
            }
        }
    }
    Ok(())
}

/// Looks which directory a path is. Where nothing is, whoever enforces the policy refuses it: a policy of which nothing is
/// enforced can be told all the same.
///
/// SECURITY: somebody allowed the directory that the path named, and a command that may write above it can put a link in its
/// place, also between this look and the start.
fn look(role: RootRole, path: &Path) -> Result<Arc<HeldDirectory>, SandboxError> {
    let refuse = |problem| SandboxError::InvalidRoot { role, path: path.to_owned(), problem };
    HeldDirectory::look(path).map(Arc::new).map_err(refuse)
}
