//! The policy of one call. An approved mode outranks the session's last `sandbox/mode`, which outranks the
//! configuration's. A session's working directory is its workspace; calls without a session have the configured one.
//!
//! Everything is looked at once, when a call is resolved: a call that runs keeps what it began with.

use crate::config::Deployment;
use crate::digest::{self, Digest};
use crate::error::SessionError;
use crate::grant::{Approved, Scope, problem_of};
use crate::log::state::State;
use crate::preset;
use crate::session::Session;
use pinfold_policy::{
    ExecutionPolicy, Network, Restrictions, RootProblem, RootRole, SandboxError, SandboxMode, SessionId, Variables,
};
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
    pub(crate) approved: Option<Approved>,
}

impl Resolved {
    /// Returns the digest of the policy with what is closed beside it.
    pub fn digest(&self) -> Digest {
        digest::of_policy(&self.policy, &self.restrictions)
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
        if session.is_some() {
            stands(RootRole::Workspace, root)?;
        }
        let directories = self.directories(session, state, now);
        let wanted = approved.as_ref().map(|approved| &approved.scope);
        open(&mut policy, &directories, wanted)?;
        policy.validate()?;
        let mut restrictions = self.deployment.restrictions(self.home.as_deref())?;
        if let Some(row) = row {
            restrictions.network = restrictions.network.max(row.network.unwrap_or(Network::Open));
            restrictions.denied_reads.extend(row.denied_reads.iter().cloned());
            crate::config::protect(&mut restrictions, row.protect.iter().map(String::as_str));
            restrictions.variables = restrictions.variables.max(row.variables.unwrap_or(Variables::Inherit));
        }
        Ok(Resolved { policy, restrictions, approved })
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
fn open(policy: &mut ExecutionPolicy, directories: &[PathBuf], approved: Option<&Scope>) -> Result<(), SandboxError> {
    let once = match approved {
        Some(Scope::Mode { mode }) => {
            policy.mode = *mode;
            None
        }
        Some(Scope::Write { path }) => Some(path),
        None => None,
    };
    if let Some(path) = once.filter(|path| problem_of(path).is_some()) {
        let problem = RootProblem::Refused("it cannot be granted".to_owned());
        return Err(SandboxError::InvalidRoot { role: RootRole::Additional, path: path.clone(), problem });
    }
    if policy.mode != SandboxMode::DangerFullAccess {
        once.into_iter().chain(directories).try_for_each(|path| stands(RootRole::Additional, path))?;
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

/// Refuses a directory that is not at its own path any more.
///
/// SECURITY: somebody allowed the directory that the path named, and a command that may write above it can put a link in its
/// place. What this does not see is a link that is put there between this look and the start.
fn stands(role: RootRole, path: &Path) -> Result<(), SandboxError> {
    let problem = match path.canonicalize() {
        Ok(real) if real == path.components().collect::<PathBuf>() => return Ok(()),
        Ok(_) => RootProblem::Symlink,
        // Whoever enforces the policy refuses it, and a policy of which nothing is enforced can be told all the same.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => RootProblem::Unreadable(error.to_string()),
    };
    Err(SandboxError::InvalidRoot { role, path: path.to_owned(), problem })
}
