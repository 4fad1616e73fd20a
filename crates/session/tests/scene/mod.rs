//! A state directory and a workspace that belong to one test.

#![allow(dead_code, unreachable_pub)] // each test program uses a part

use pinfold_policy::escalation::Subject;
use pinfold_policy::{ExecutionPolicy, Restrictions, SandboxMode};
use pinfold_session::log::event::By;
use pinfold_session::{Access, Call, NewSession, PolicyRequest, PolicyService, Session, Store};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub struct Scene {
    base: TempDir,
    pub store: Store,
}

impl Scene {
    pub fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let physical = base.path().canonicalize().unwrap();
        std::fs::create_dir(physical.join("workspace")).unwrap();
        let store = Store::open(&physical.join("state")).unwrap();
        Self { base, store }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base.path().canonicalize().unwrap().join(name)
    }

    pub fn workspace(&self) -> PathBuf {
        self.path("workspace")
    }

    /// A session in the workspace, without a mode of its own.
    pub fn session(&self) -> Session {
        self.store.create(&NewSession { cwd: self.workspace(), ..NewSession::default() }).unwrap()
    }

    /// A session in the workspace with a mode of its own.
    pub fn session_in(&self, mode: SandboxMode) -> Session {
        let mode = Some((mode, By::User));
        self.store.create(&NewSession { cwd: self.workspace(), mode, ..NewSession::default() }).unwrap()
    }

    /// The same session as another process holds it.
    pub fn again(&self, session: &Session) -> Session {
        self.store.session(session.id().as_str(), Access::Append).unwrap()
    }

    /// Every type of event in the session's log, in order.
    pub fn kinds(&self, session: &Session) -> Vec<String> {
        let mut kinds = Vec::new();
        let directory = self.store.directory(session.id().as_str()).unwrap();
        pinfold_session::Log::read_all(&directory, |record| kinds.push(record.event.kind().to_owned())).unwrap();
        kinds
    }
}

pub fn words(argv: &[&str]) -> Vec<OsString> {
    argv.iter().map(OsString::from).collect()
}

/// A service with what is built in.
pub fn service(mode: SandboxMode) -> PolicyService {
    PolicyService::new(pinfold_session::Deployment::built_in(mode), Path::new("/"), None).unwrap()
}

pub fn policy_of(service: &PolicyService, session: &Session) -> ExecutionPolicy {
    service.resolve(PolicyRequest { session: Some(session), approved: None }).unwrap().policy
}

/// A call of a shell under a policy.
pub fn call<'a>(
    argv: &'a [OsString],
    cwd: &'a Path,
    policy: &'a ExecutionPolicy,
    closed: &'a Restrictions,
) -> Call<'a> {
    Call {
        argv,
        unseen_bytes: 0,
        cwd,
        shown: None,
        subject: Subject::Command,
        tool_name: "bash",
        call_id: None,
        mode: policy.mode,
        policy,
        restrictions: closed,
        denied: &[],
    }
}
