//! What a server is made of. Whoever makes it knows the host and the configuration; here they are words.

use pinfold_executor::ExecutorConfig;
use pinfold_providers::{CallOptions, LocalProvider};
use pinfold_session::{PolicyService, Resolved, Session, SessionError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Knows what a session's policy means on this host.
pub trait Ground: Send + Sync {
    /// Completes a policy that the session resolved: what is closed beside it, and what the call asks of the provider.
    ///
    /// # Errors
    ///
    /// Those of configuration and session: then nothing may run.
    fn prepare(&self, resolved: &mut Resolved) -> Result<CallOptions, SessionError>;

    /// Says why a directory, given in physical spelling, must never be a root that a client names; as the end of a
    /// sentence.
    fn unfit_root(&self, directory: &Path) -> Option<String>;
}

/// What an operator chooses.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether commands run in one shell that stays, instead of a fresh one each.
    pub persistent_shell: bool,
    /// Whether a command whose time is up becomes a background job instead of being ended.
    pub promote_on_timeout: bool,
    /// Whether commands may be started in the background.
    pub background: bool,
    /// Directories in and below which a client's roots are accepted, in physical spelling; none accepts no root.
    pub roots_below: Vec<PathBuf>,
    /// Whether a question that the client cannot ask waits for an answer from another terminal.
    pub wait_elsewhere: bool,
    /// Whether the session ends with the server.
    pub ends_session: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            persistent_shell: false,
            promote_on_timeout: true,
            background: true,
            roots_below: Vec::new(),
            wait_elsewhere: false,
            ends_session: true,
        }
    }
}

/// What a server is made of.
pub struct Setup {
    /// The session.
    pub session: Session,
    /// Its directory, which holds the log.
    pub directory: PathBuf,
    /// Resolves its policy.
    pub service: PolicyService,
    /// Confines.
    pub provider: Arc<LocalProvider>,
    /// Settings of commands; policy and options are each call's own.
    pub executor: ExecutorConfig,
    /// Knows the host.
    pub ground: Box<dyn Ground>,
    /// What the operator chose.
    pub settings: Settings,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup")
            .field("session", self.session.id())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
