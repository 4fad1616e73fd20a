//! From words to a request: every word of the command line is checked here, before anything is prepared or started.

use crate::arguments::PolicyOptions;
use crate::bounds::limits;
use crate::closing::Closing;
use crate::surroundings::Surroundings;
use pinfold_policy::quote::quote;
use pinfold_policy::{
    ConfinedMode, ExecutionPolicy, Guarantee, Limits, SandboxError, SandboxMode, UnknownWord, validate_command,
};
use pinfold_providers::{Backend, CallOptions, HeldDirectory, Insistence};
use pinfold_session::Shown;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Holds one checked call.
#[derive(Debug)]
pub(crate) struct Request {
    /// The mode and its roots, absolute but not resolved.
    pub(crate) policy: ExecutionPolicy,
    /// The only backend to use, if one was named.
    pub(crate) backend: Option<Backend>,
    /// What must be enforced.
    pub(crate) require: Vec<Guarantee>,
    /// The command's working directory, absolute, if one was named.
    pub(crate) cwd: Option<PathBuf>,
    /// What is closed beyond the mode.
    pub(crate) closing: Closing,
    /// What it may use up, and whether processes must be bounded.
    pub(crate) limits: (Limits, Insistence),
    /// Directories of a session, as they were when they were looked at.
    pub(crate) held: Vec<Arc<HeldDirectory>>,
    /// What was shown to whoever allowed it.
    pub(crate) shown: Option<Shown>,
}

impl Request {
    /// Checks options and command.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_COMMAND`, `SANDBOX_INVALID_POLICY`, `SANDBOX_INVALID_ROOT` (a NUL byte) or
    /// `SANDBOX_BACKEND_UNKNOWN`.
    pub(crate) fn new(options: &PolicyOptions, argv: &[OsString], around: &Surroundings) -> Result<Self, SandboxError> {
        validate_command(argv)?;
        let mode = execution_mode(options.mode.as_deref())?;
        let backend = options.backend.as_deref().map(backend).transpose()?;
        let require = options.require.iter().map(|word| word.parse().map_err(invalid)).collect::<Result<_, _>>()?;
        if mode == SandboxMode::DangerFullAccess && backend.is_some() {
            return Err(SandboxError::InvalidPolicy {
                detail: format!("--backend has no meaning under {mode}: no backend is used"),
            });
        }
        let policy = policy(mode, options.workspace.as_ref(), &options.writable, around)?;
        let cwd = options.cwd.as_ref().map(|cwd| working_directory("--cwd", Path::new(cwd), around)).transpose()?;
        let closing = Closing::new(&options.restrictions, &policy, cwd.as_deref(), around)?;
        let limits = limits(&options.limits, mode)?;
        Ok(Self { policy, backend, require, cwd, closing, limits, held: Vec::new(), shown: None })
    }
}

impl Request {
    /// Returns the policy, and the call's options for the provider.
    pub(crate) fn split(self) -> (ExecutionPolicy, CallOptions) {
        let mut call = CallOptions {
            require: self.require,
            backend: self.backend,
            cwd: self.cwd,
            limits: self.limits.0,
            processes: self.limits.1,
            held: self.held,
            ..self.closing.options()
        };
        if let Some(shown) = &self.shown {
            shown.hold(&mut call);
        }
        (self.policy, call)
    }
}

/// Makes a working directory absolute, and looks whether it is one: a word that cannot be right is an error of the
/// caller. The launcher decides in the end.
pub(crate) fn working_directory(option: &str, path: &Path, around: &Surroundings) -> Result<PathBuf, SandboxError> {
    let path = around.absolute(option, path)?;
    let problem = match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => return Ok(path),
        Ok(_) => "is not a directory".to_owned(),
        Err(error) => format!("cannot be entered: {error}"),
    };
    Err(SandboxError::InvalidPolicy { detail: format!("the working directory {} {problem}", quote(&path)) })
}

/// Puts a policy together; without a named workspace the current directory serves.
pub(crate) fn policy(
    mode: SandboxMode,
    workspace: Option<&OsString>,
    writable: &[OsString],
    around: &Surroundings,
) -> Result<ExecutionPolicy, SandboxError> {
    let root = match workspace {
        Some(workspace) => around.absolute("--workspace", Path::new(workspace))?,
        // SECURITY: only a mode that opens its workspace needs a fit one; the others grant nothing by it.
        None if mode == SandboxMode::WorkspaceWrite => around.default_workspace()?,
        None => around.current_directory()?.to_owned(),
    };
    let mut policy = ExecutionPolicy::new(mode, root);
    policy.additional_writable_roots =
        writable.iter().map(|path| around.absolute("--writable", Path::new(path))).collect::<Result<_, _>>()?;
    policy.validate()?;
    Ok(policy)
}

/// Reads a mode; without one, `workspace-write`.
pub(crate) fn execution_mode(word: Option<&str>) -> Result<SandboxMode, SandboxError> {
    word.map_or(Ok(SandboxMode::WorkspaceWrite), |word| word.parse().map_err(invalid))
}

/// Reads a mode that is confined.
pub(crate) fn confined_mode(word: &str) -> Result<ConfinedMode, SandboxError> {
    word.parse().map_err(invalid)
}

/// Reads a backend's name.
pub(crate) fn backend(word: &str) -> Result<Backend, SandboxError> {
    word.parse().map_err(Into::into)
}

/// Reads a time limit in seconds: a decimal number above zero, at most some thirty years.
pub(crate) fn timeout(text: &str) -> Result<Duration, SandboxError> {
    const LONGEST: f64 = 1e9;
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST);
    seconds.map(Duration::from_secs_f64).filter(|limit| !limit.is_zero()).ok_or_else(|| SandboxError::InvalidPolicy {
        detail: format!("--timeout {} is not a number of seconds above 0, such as 90 or 0.5", quote(text)),
    })
}

fn invalid(unknown: UnknownWord) -> SandboxError {
    SandboxError::InvalidPolicy { detail: unknown.to_string() }
}
