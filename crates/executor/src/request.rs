//! Settings, requests, and what they resolve to. Pure but for the environment, which [`crate::Executor::resolve`] adds.

use pinfold_policy::quote::quote;
use pinfold_policy::{ErrorBody, ErrorCode, ExecutionPolicy, SandboxError, SandboxMode, Variables};
use pinfold_providers::CallOptions;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest time that timers of every platform take, in milliseconds.
const LONGEST_MS: f64 = 2_147_483_647.0;

/// Reports what is wrong with settings or a request. What a provider refused passes through unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorError {
    /// A number that has to be positive and finite is not.
    #[error("bash-local: {0} must be a positive finite number")]
    NotPositive(&'static str),
    /// A time that no timer takes.
    #[error("bash-local: {0} must be at most 2147483647")]
    TooLong(&'static str),
    /// A command without a character, or with a NUL byte.
    #[error("invalid command: expected a non-empty string{0}")]
    InvalidCommand(&'static str),
    /// A persistent shell belongs to a session.
    #[error("bash requires an owning agent session")]
    NoSession,
    /// As many commands as may are running already.
    #[error("{0} commands are running already, which is the limit: wait for one or kill one")]
    TooMany(usize),
    /// A contributor of variables broke its word.
    #[error(transparent)]
    Managed(#[from] crate::managed::ManagedError),
    /// A shell did not say that it is ready.
    #[error("persistent bash shell did not accept initialization{0}")]
    NotInitialized(String),
    /// A thread, a pipe or a terminal could not be had.
    #[error("cannot make {what}: {reason}")]
    Host {
        /// What was to be made.
        what: &'static str,
        /// The host's words.
        reason: String,
    },
    /// The provider refused the call.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl ExecutorError {
    pub(crate) fn host(what: &'static str, error: &impl ToString) -> Self {
        Self::Host { what, reason: error.to_string() }
    }

    /// Returns the code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Sandbox(error) => error.code(),
            Self::InvalidCommand(_) => ErrorCode::InvalidCommand,
            Self::NotPositive(_) | Self::TooLong(_) | Self::NoSession | Self::Managed(_) => ErrorCode::InvalidPolicy,
            Self::TooMany(_) | Self::NotInitialized(_) | Self::Host { .. } => ErrorCode::PreparationFailed,
        }
    }

    /// Returns the error as it is printed and sent.
    pub fn body(&self) -> ErrorBody {
        match self {
            Self::Sandbox(error) => error.body(),
            other => {
                ErrorBody { code: other.code(), message: other.to_string(), causes: Vec::new(), guarantees: Vec::new() }
            }
        }
    }
}

/// Names what executes a command's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Program {
    /// `bash -c TEXT`, found through the command's PATH; no login shell and no start-up files of an interactive one.
    #[default]
    Bash,
    /// A PowerShell, by the path that [`crate::powershell::resolve`] found.
    PowerShell(OsString),
}

/// Holds the settings of an executor. Numbers have to be positive and finite.
#[derive(Debug, Clone)]
pub struct ExecutorConfig {
    /// What executes a command's text.
    pub program: Program,
    /// The policy of requests that bring none.
    pub policy: ExecutionPolicy,
    /// What each call asks beside its policy; the working directory and the notes are set per call. Variables with
    /// credentials are removed from what is inherited unless this says `inherit`; what a request sets stays.
    pub call: CallOptions,
    /// How long a command may take unless it says so, in milliseconds: 120000.
    pub timeout_ms: f64,
    /// How long it may take at most, in milliseconds: 600000.
    pub max_timeout_ms: f64,
    /// How long it has between SIGTERM and SIGKILL, in milliseconds: 3000.
    pub grace_ms: f64,
    /// How much of the end of a stream is kept, in bytes: 64000.
    pub max_output_bytes: f64,
    /// How much a file may hold that holds all of a longer stream, in bytes: 64 MiB.
    pub max_spill_bytes: f64,
    /// How much all these files may hold, in bytes: 1 GiB.
    pub max_spill_bytes_in_all: f64,
    /// Where such files are made: directories of ours, in order; a place that a command could not read, or could write, is
    /// passed over. Their parents are made if need be.
    pub spill_places: Vec<PathBuf>,
    /// How long a command in a persistent shell may take unless it says so, in milliseconds: 300000.
    pub shell_timeout_ms: f64,
    /// How many commands may run at once: 256.
    pub max_processes: usize,
    /// Whether a launcher that stays makes the processes (see [`pinfold_providers::RunOptions::resident`]): true. For one
    /// command alone it is one process more.
    pub resident: bool,
}

impl ExecutorConfig {
    /// Returns the defaults around a policy.
    pub fn new(policy: ExecutionPolicy) -> Self {
        let mut call = CallOptions::default();
        call.restrictions.variables = Variables::Scrub;
        Self {
            program: Program::Bash,
            policy,
            call,
            timeout_ms: 120_000.0,
            max_timeout_ms: 600_000.0,
            grace_ms: 3000.0,
            max_output_bytes: 64_000.0,
            max_spill_bytes: f64::from(64 << 20),
            max_spill_bytes_in_all: f64::from(1 << 30),
            spill_places: crate::spill::default_places(),
            shell_timeout_ms: 300_000.0,
            max_processes: 256,
            resident: true,
        }
    }
}

/// Settings that were checked.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) timeout: Duration,
    pub(crate) max_timeout: Duration,
    pub(crate) grace: Duration,
    pub(crate) output_bytes: usize,
    pub(crate) spill_bytes: u64,
    pub(crate) spill_bytes_in_all: u64,
    pub(crate) shell_timeout: Duration,
}

impl Limits {
    pub(crate) fn of(config: &ExecutorConfig) -> Result<Self, ExecutorError> {
        Ok(Self {
            timeout: milliseconds("timeoutMs", config.timeout_ms)?,
            max_timeout: milliseconds("maxTimeoutMs", config.max_timeout_ms)?,
            grace: milliseconds("graceMs", config.grace_ms)?,
            output_bytes: bytes("maxOutputBytes", config.max_output_bytes)?,
            spill_bytes: bytes("maxSpillBytes", config.max_spill_bytes)? as u64,
            spill_bytes_in_all: bytes("maxSpillBytesInAll", config.max_spill_bytes_in_all)? as u64,
            shell_timeout: milliseconds("shellTimeoutMs", config.shell_timeout_ms)?,
        })
    }

    /// The time for a request: what it asks for or the default, and no more than the cap.
    pub(crate) fn clamp(&self, asked_ms: Option<f64>, default: Duration) -> Result<Duration, ExecutorError> {
        let asked = match asked_ms {
            None => default,
            Some(asked) if asked > LONGEST_MS && asked.is_finite() => self.max_timeout,
            Some(asked) => milliseconds("request.timeoutMs", asked)?,
        };
        Ok(asked.min(self.max_timeout))
    }
}

fn milliseconds(name: &'static str, value: f64) -> Result<Duration, ExecutorError> {
    if !(value.is_finite() && value > 0.0) {
        return Err(ExecutorError::NotPositive(name));
    }
    if value > LONGEST_MS {
        return Err(ExecutorError::TooLong(name));
    }
    // A part of a millisecond counts as one: nothing may round to no time at all.
    Ok(Duration::from_millis(value.ceil() as u64))
}

fn bytes(name: &'static str, value: f64) -> Result<usize, ExecutorError> {
    if !(value.is_finite() && value > 0.0) {
        return Err(ExecutorError::NotPositive(name));
    }
    // More than memory can hold is no limit; the conversion ends at the largest number.
    Ok(value.ceil() as usize)
}

/// Says what happens when a command's time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnExpiry {
    /// It is ended.
    #[default]
    Kill,
    /// Nothing: the time is only part of the result.
    Nothing,
}

/// Asks for one command.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The text for the shell.
    pub command: OsString,
    /// Where it runs; a relative path counts from the workspace root, which is also the default. `link/..` is what the file
    /// system says it is.
    pub workdir: Option<PathBuf>,
    /// How long it may take, in milliseconds; the settings' default and cap apply.
    pub timeout_ms: Option<f64>,
    /// What happens then.
    pub on_expiry: OnExpiry,
    /// How much of the end of standard output is kept, in bytes, in place of the settings' cap; in the foreground only.
    pub stdout_max_bytes: Option<f64>,
    /// What it reads; without it, nothing.
    pub stdin: Option<Vec<u8>>,
    /// Variables to set, or with `None` to remove, in order. They are kept also if they are named like credentials.
    pub env: Vec<(OsString, Option<OsString>)>,
    /// The policy; without it, that of the settings.
    pub policy: Option<ExecutionPolicy>,
    /// What the call asks beside its policy, in place of what the settings say; directory and notes are added to it.
    pub call: Option<CallOptions>,
}

impl Request {
    /// Asks for a command and nothing else.
    pub fn new(command: impl Into<OsString>) -> Self {
        Self { command: command.into(), ..Self::default() }
    }
}

/// Holds a request with everything decided.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The exact argv.
    pub argv: Vec<OsString>,
    /// Where it runs, absolute.
    pub workdir: PathBuf,
    /// How long it may take.
    pub timeout: Duration,
    /// What happens then.
    pub on_expiry: OnExpiry,
    /// How much of each stream is kept, in bytes: standard output in the foreground, and everything else.
    pub max_bytes: (usize, usize),
    /// What it reads.
    pub stdin: Option<Vec<u8>>,
    /// Its whole environment, but for what a sandbox sets itself (the temp directory).
    pub environment: Vec<(OsString, OsString)>,
    /// What was removed from the environment, in sentences for the report.
    pub notes: Vec<String>,
    /// The policy.
    pub policy: ExecutionPolicy,
    /// What the call asks beside its policy.
    pub call: CallOptions,
}

/// Decides everything but the environment.
pub(crate) fn resolve(request: &Request, config: &ExecutorConfig, limits: &Limits) -> Result<Spec, ExecutorError> {
    validate(&request.command)?;
    let policy = request.policy.clone().unwrap_or_else(|| config.policy.clone());
    let timeout = limits.clamp(request.timeout_ms, limits.timeout)?;
    let stdout = match request.stdout_max_bytes {
        Some(asked) => bytes("request.stdoutMaxBytes", asked)?,
        None => limits.output_bytes,
    };
    Ok(Spec {
        argv: argv(&config.program, &request.command),
        workdir: working_directory(request.workdir.as_deref(), &policy.workspace_root)?,
        timeout,
        on_expiry: request.on_expiry,
        max_bytes: (stdout, limits.output_bytes),
        stdin: request.stdin.clone(),
        environment: Vec::new(),
        notes: Vec::new(),
        policy,
        call: request.call.clone().unwrap_or_else(|| config.call.clone()),
    })
}

pub(crate) fn validate(command: &OsString) -> Result<(), ExecutorError> {
    match command.as_encoded_bytes() {
        [] => Err(ExecutorError::InvalidCommand("")),
        bytes if bytes.contains(&0) => Err(ExecutorError::InvalidCommand(" without a NUL byte")),
        _ => Ok(()),
    }
}

fn argv(program: &Program, command: &OsString) -> Vec<OsString> {
    match program {
        Program::Bash => vec!["bash".into(), "-c".into(), command.clone()],
        Program::PowerShell(path) => crate::powershell::argv(path, command),
    }
}

/// Joins without tidying up: `link/..` is for the file system to resolve.
pub(crate) fn working_directory(asked: Option<&Path>, root: &Path) -> Result<PathBuf, ExecutorError> {
    let path = match asked {
        None => root.to_owned(),
        Some(path) if path.as_os_str().is_empty() => root.to_owned(),
        Some(path) => root.join(path),
    };
    if path.is_absolute() {
        return Ok(path);
    }
    let detail = format!("working directory {} is not an absolute path", quote(&path));
    Err(SandboxError::InvalidPolicy { detail }.into())
}

/// Whether a policy confines.
pub(crate) fn confines(policy: &ExecutionPolicy) -> bool {
    policy.mode != SandboxMode::DangerFullAccess
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ExecutorConfig {
        ExecutorConfig::new(ExecutionPolicy::new(SandboxMode::ReadOnly, "/ws"))
    }

    fn resolved(request: &Request) -> Result<Spec, String> {
        let config = config();
        resolve(request, &config, &Limits::of(&config).unwrap()).map_err(|error| error.to_string())
    }

    /// U294, U295, U299: the defaults.
    #[test]
    fn defaults_are_those_of_the_settings() {
        let spec = resolved(&Request::new("echo a")).unwrap();
        assert_eq!(spec.argv, ["bash", "-c", "echo a"].map(OsString::from));
        assert_eq!((spec.timeout, spec.max_bytes), (Duration::from_secs(120), (64_000, 64_000)));
        assert_eq!((spec.workdir, spec.stdin), (PathBuf::from("/ws"), None));
        assert_eq!(Limits::of(&config()).unwrap().grace, Duration::from_secs(3));
    }

    /// U296, U297.
    #[test]
    fn a_timeout_has_a_default_a_cap_and_must_be_positive() {
        let timeout = |timeout_ms| resolved(&Request { timeout_ms, ..Request::new("x") }).map(|spec| spec.timeout);
        assert_eq!(timeout(Some(1500.2)), Ok(Duration::from_millis(1501)));
        assert_eq!(timeout(Some(700_000.0)), Ok(Duration::from_secs(600)));
        assert_eq!(timeout(Some(1e300)), Ok(Duration::from_secs(600)));
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let text = "bash-local: request.timeoutMs must be a positive finite number";
            assert_eq!(timeout(Some(wrong)), Err(text.to_owned()));
        }
    }

    /// U298.
    #[test]
    fn a_request_may_keep_more_of_its_output() {
        let kept =
            |asked| resolved(&Request { stdout_max_bytes: asked, ..Request::new("x") }).map(|spec| spec.max_bytes);
        assert_eq!(kept(Some(1e6)), Ok((1_000_000, 64_000)));
        assert_eq!(kept(Some(0.0)).unwrap_err(), "bash-local: request.stdoutMaxBytes must be a positive finite number");
    }

    /// U300, U301 (W73): settings that cannot be served are refused when they are made.
    #[test]
    fn settings_are_checked_when_they_are_made() {
        let refused = |change: fn(&mut ExecutorConfig)| {
            let mut config = config();
            change(&mut config);
            Limits::of(&config).unwrap_err().to_string()
        };
        assert_eq!(refused(|it| it.timeout_ms = 0.0), "bash-local: timeoutMs must be a positive finite number");
        assert_eq!(
            refused(|it| it.max_spill_bytes = f64::NAN),
            "bash-local: maxSpillBytes must be a positive finite number"
        );
        assert_eq!(refused(|it| it.grace_ms = 2_147_483_648.0), "bash-local: graceMs must be at most 2147483647");
        assert_eq!(refused(|it| it.max_timeout_ms = 3e9), "bash-local: maxTimeoutMs must be at most 2147483647");
    }

    /// U369, U370.
    #[test]
    fn a_relative_directory_counts_from_the_root_and_is_not_tidied() {
        let directory = |asked: &str, root: &str| working_directory(Some(Path::new(asked)), Path::new(root));
        assert_eq!(directory("link/../x", "/ws").unwrap().as_os_str(), "/ws/link/../x");
        assert_eq!(directory("/else/..", "/ws").unwrap().as_os_str(), "/else/..");
        assert_eq!(directory("", "/ws").unwrap().as_os_str(), "/ws");
        assert!(directory("x", "ws").unwrap_err().to_string().contains("is not an absolute path"));
    }

    /// U364.
    #[test]
    fn an_empty_command_is_refused() {
        assert_eq!(resolved(&Request::new("")).unwrap_err(), "invalid command: expected a non-empty string");
        assert!(resolved(&Request::new("a\0b")).unwrap_err().contains("NUL"));
    }

    /// U348: a request's policy outranks the default, and its root is the working directory.
    #[test]
    fn a_request_s_policy_outranks_the_default() {
        let policy = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, "/other");
        let spec = resolved(&Request { policy: Some(policy.clone()), ..Request::new("x") }).unwrap();
        assert_eq!((spec.policy, spec.workdir), (policy, PathBuf::from("/other")));
    }
}
