//! Every refusal that a caller can meet: a stable code, a text, and facts for programs. Texts of the reference
//! system are kept byte for byte; what we add stands after them.

use crate::guarantee::Guarantee;
use crate::mode::ConfinedMode;
use crate::quote::quote;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

closed_words! {
    /// Names a kind of refusal; a code is never reused for another kind.
    pub enum ErrorCode("error code") {
        /// No backend can enforce the mode here, or the runner failed before the command ran.
        Unavailable => "SANDBOX_UNAVAILABLE",
        /// A usable backend could not prepare the host.
        PreparationFailed => "SANDBOX_PREPARATION_FAILED",
        /// The temp root equals, contains or lies inside the workspace.
        InvalidTempRoot => "SANDBOX_INVALID_TEMP_ROOT",
        /// A root is not usable as one.
        InvalidRoot => "SANDBOX_INVALID_ROOT",
        /// The file fence refused a change by policy.
        FileDenied => "FS_SANDBOX_DENIED",
        /// A required guarantee cannot be given here.
        GuaranteeUnmet => "SANDBOX_GUARANTEE_UNMET",
        /// The argv cannot be executed at all.
        InvalidCommand => "SANDBOX_INVALID_COMMAND",
        /// The policy is malformed.
        InvalidPolicy => "SANDBOX_INVALID_POLICY",
        /// The policy is well formed but this backend cannot express it.
        UnsupportedPolicy => "SANDBOX_UNSUPPORTED_POLICY",
        /// There is no such program.
        CommandNotFound => "SANDBOX_COMMAND_NOT_FOUND",
        /// The program was found but cannot be executed.
        CommandNotExecutable => "SANDBOX_COMMAND_NOT_EXECUTABLE",
        /// The caller withdrew the call.
        Cancelled => "SANDBOX_CANCELLED",
        /// No backend has the requested name.
        BackendUnknown => "SANDBOX_BACKEND_UNKNOWN",
    }
}

/// States why one backend cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackendRefusal {
    /// The backend's name.
    pub backend: String,
    /// What it met, a fragment without final stop.
    pub reason: String,
    /// What to run or change, a fragment without final stop; empty if nothing helps.
    pub remedy: String,
}

/// Says which root a refusal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootRole {
    /// The workspace root or a session's working directory.
    Workspace,
    /// One of the additional writable roots.
    Additional,
}

impl std::fmt::Display for RootRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Workspace => "workspace root",
            Self::Additional => "additional writable root",
        })
    }
}

/// Says what is wrong with a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootProblem {
    /// It is not absolute.
    Relative,
    /// It holds a NUL byte.
    NulByte,
    /// Nothing is there.
    Missing,
    /// Something else than a directory is there.
    NotDirectory,
    /// It is a symbolic link.
    Symlink,
    /// It became another directory while the call was prepared.
    Changed,
    /// It could not be opened; the text names the failed call.
    Unreadable(String),
    /// It is there, but must not become writable; the text says why, as a fragment.
    Refused(String),
}

impl std::fmt::Display for RootProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Relative => f.write_str("is not an absolute path"),
            Self::NulByte => f.write_str("holds a NUL byte"),
            Self::Missing => f.write_str("does not exist"),
            Self::NotDirectory => f.write_str("is not a directory"),
            Self::Symlink => f.write_str("is a symbolic link"),
            Self::Changed => f.write_str("was replaced while the call was prepared"),
            Self::Unreadable(detail) => write!(f, "cannot be opened: {detail}"),
            Self::Refused(why) => write!(f, "is refused: {why}"),
        }
    }
}

/// Says why an argv cannot be executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandProblem {
    /// It has no element.
    Empty,
    /// Its first element is empty.
    EmptyProgram,
    /// An element holds a NUL byte.
    NulByte {
        /// Which one, counted from 0 (the program).
        index: usize,
    },
}

impl std::fmt::Display for CommandProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Empty => f.write_str("the command is empty"),
            Self::EmptyProgram => f.write_str("the program name is empty"),
            Self::NulByte { index } => {
                write!(f, "argument {index} of the command holds a NUL byte")
            }
        }
    }
}

/// Holds one refusal with what is needed to explain it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// `SANDBOX_UNAVAILABLE`; see [`unavailable_text`] for the parts of its text.
    #[error("{}", unavailable_text(*mode, causes, runner_failure.as_deref()))]
    Unavailable {
        /// The mode that was asked for.
        mode: ConfinedMode,
        /// Each backend that was considered, in order, and why it cannot be used.
        causes: Vec<BackendRefusal>,
        /// What the runner said, if one was started and failed before the command ran.
        runner_failure: Option<String>,
    },
    /// `SANDBOX_PREPARATION_FAILED`.
    #[error("backend {backend} could not prepare this host: {detail}")]
    PreparationFailed {
        /// The backend's name.
        backend: String,
        /// The failed act with its arguments.
        detail: String,
    },
    /// `SANDBOX_INVALID_TEMP_ROOT`.
    #[error("temp root {} must lie outside the workspace {} and must not contain it", quote(temp), quote(workspace))]
    InvalidTempRoot {
        /// The temp root.
        temp: PathBuf,
        /// The workspace root.
        workspace: PathBuf,
    },
    /// `SANDBOX_INVALID_ROOT`.
    #[error("{role} {} {problem}", quote(path))]
    InvalidRoot {
        /// Which root it is.
        role: RootRole,
        /// The root as it was given.
        path: PathBuf,
        /// What is wrong with it.
        problem: RootProblem,
    },
    /// `FS_SANDBOX_DENIED`; never used for a refusal by the host itself.
    #[error("{operation} of {} is refused under {mode} mode", quote(path))]
    FileDenied {
        /// What was tried, such as `write`.
        operation: String,
        /// The path it was about.
        path: PathBuf,
        /// The mode in force.
        mode: ConfinedMode,
    },
    /// `SANDBOX_GUARANTEE_UNMET`.
    #[error("backend {backend} cannot give the required guarantees on this host: {}", words(guarantees))]
    GuaranteeUnmet {
        /// The backend's name.
        backend: String,
        /// Those of the required promises that are not kept without exception.
        guarantees: Vec<Guarantee>,
    },
    /// `SANDBOX_INVALID_COMMAND`.
    #[error("{problem}")]
    InvalidCommand {
        /// What is wrong with the argv.
        problem: CommandProblem,
    },
    /// `SANDBOX_INVALID_POLICY`.
    #[error("invalid policy: {detail}")]
    InvalidPolicy {
        /// What is wrong with it.
        detail: String,
    },
    /// `SANDBOX_UNSUPPORTED_POLICY`.
    #[error("backend {backend} cannot express this policy: {detail}")]
    UnsupportedPolicy {
        /// The backend's name.
        backend: String,
        /// The part that it cannot express.
        detail: String,
    },
    /// `SANDBOX_COMMAND_NOT_FOUND`.
    #[error("command {} was not found", quote(program))]
    CommandNotFound {
        /// The program as it was given.
        program: OsString,
    },
    /// `SANDBOX_COMMAND_NOT_EXECUTABLE`.
    #[error("command {} cannot be executed: {reason}", quote(program))]
    CommandNotExecutable {
        /// The program as it was given.
        program: OsString,
        /// What the operating system said.
        reason: String,
    },
    /// `SANDBOX_CANCELLED`.
    #[error("the call was cancelled before the command ran")]
    Cancelled,
    /// `SANDBOX_BACKEND_UNKNOWN`.
    #[error("no backend is named {}; known here: {}", quote(name), known.join(", "))]
    BackendUnknown {
        /// The requested name.
        name: String,
        /// The names that exist on this operating system.
        known: Vec<String>,
    },
}

impl SandboxError {
    /// Returns the stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unavailable { .. } => ErrorCode::Unavailable,
            Self::PreparationFailed { .. } => ErrorCode::PreparationFailed,
            Self::InvalidTempRoot { .. } => ErrorCode::InvalidTempRoot,
            Self::InvalidRoot { .. } => ErrorCode::InvalidRoot,
            Self::FileDenied { .. } => ErrorCode::FileDenied,
            Self::GuaranteeUnmet { .. } => ErrorCode::GuaranteeUnmet,
            Self::InvalidCommand { .. } => ErrorCode::InvalidCommand,
            Self::InvalidPolicy { .. } => ErrorCode::InvalidPolicy,
            Self::UnsupportedPolicy { .. } => ErrorCode::UnsupportedPolicy,
            Self::CommandNotFound { .. } => ErrorCode::CommandNotFound,
            Self::CommandNotExecutable { .. } => ErrorCode::CommandNotExecutable,
            Self::Cancelled => ErrorCode::Cancelled,
            Self::BackendUnknown { .. } => ErrorCode::BackendUnknown,
        }
    }

    /// Returns the error as it is sent to a program in another language.
    pub fn body(&self) -> ErrorBody {
        let (mut causes, mut guarantees) = (Vec::new(), Vec::new());
        match self {
            Self::Unavailable { causes: refusals, .. } => causes.clone_from(refusals),
            Self::GuaranteeUnmet { guarantees: unmet, .. } => guarantees.clone_from(unmet),
            _ => {}
        }
        ErrorBody { code: self.code(), message: self.to_string(), causes, guarantees }
    }
}

/// Holds an error's wire form: `{code, message, causes?, guarantees?}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// The stable code.
    pub code: ErrorCode,
    /// The text.
    pub message: String,
    /// Each backend that was considered, for `SANDBOX_UNAVAILABLE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<BackendRefusal>,
    /// The promises that cannot be kept, for `SANDBOX_GUARANTEE_UNMET`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarantees: Vec<Guarantee>,
}

/// Makes the text of `SANDBOX_UNAVAILABLE`.
///
/// First the reference's sentence with the mode filled in, byte for byte; then, for each cause, one sentence
/// ` Backend <name>: <reason> (<remedy>).` (the bracket is left out without a remedy); last, if a runner was
/// started, ` Runner failure: <detail>`, which ends the text in the runner's own spelling.
pub fn unavailable_text(mode: ConfinedMode, causes: &[BackendRefusal], runner_failure: Option<&str>) -> String {
    let mut text = format!(
        "sandbox mode \"{mode}\" is requested but no sandbox backend is usable on this host; refusing to run the \
         command unconfined. Install bubblewrap or run a Landlock-enforcing kernel (Linux), ensure sandbox-exec is \
         usable (macOS), or ensure the ACL restricted-token runner can start (Windows) — otherwise switch the \
         consumer to danger-full-access."
    );
    for cause in causes {
        let _ = write!(text, " Backend {}: {}", cause.backend, cause.reason); // writing to a String cannot fail
        if !cause.remedy.is_empty() {
            let _ = write!(text, " ({})", cause.remedy); // as above
        }
        text.push('.');
    }
    if let Some(detail) = runner_failure {
        text.push_str(" Runner failure: ");
        text.push_str(detail);
    }
    text
}

fn words(guarantees: &[Guarantee]) -> String {
    guarantees.iter().map(|guarantee| guarantee.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = "sandbox mode \"workspace-write\" is requested but no sandbox backend is usable on this host; refusing to run the command unconfined. Install bubblewrap or run a Landlock-enforcing kernel (Linux), ensure sandbox-exec is usable (macOS), or ensure the ACL restricted-token runner can start (Windows) — otherwise switch the consumer to danger-full-access.";

    fn unavailable(causes: Vec<BackendRefusal>, runner_failure: Option<&str>) -> SandboxError {
        SandboxError::Unavailable {
            mode: ConfinedMode::WorkspaceWrite,
            causes,
            runner_failure: runner_failure.map(str::to_owned),
        }
    }

    #[test]
    fn the_unavailable_text_is_the_references_byte_for_byte() {
        assert_eq!(unavailable(vec![], None).to_string(), SEED);
    }

    #[test]
    fn our_remedies_follow_and_the_runner_failure_ends_the_text() {
        let causes = vec![
            BackendRefusal { backend: "a".into(), reason: "no userns".into(), remedy: "set x=1".into() },
            BackendRefusal { backend: "b".into(), reason: "gone".into(), remedy: String::new() },
        ];
        assert_eq!(
            unavailable(causes, Some("bwrap: No")).to_string(),
            format!("{SEED} Backend a: no userns (set x=1). Backend b: gone. Runner failure: bwrap: No")
        );
        assert_eq!(unavailable(vec![], Some("x ")).to_string(), format!("{SEED} Runner failure: x "));
    }

    #[test]
    fn every_error_has_its_code_and_a_text_of_one_line() {
        let errors = [
            unavailable(vec![], None),
            SandboxError::PreparationFailed { backend: "b".into(), detail: "mkdir \"/x\": EACCES".into() },
            SandboxError::InvalidTempRoot { temp: "/t\n".into(), workspace: "/t".into() },
            SandboxError::InvalidRoot {
                role: RootRole::Additional,
                path: "/x\n".into(),
                problem: RootProblem::Symlink,
            },
            SandboxError::FileDenied { operation: "write".into(), path: "/x\n".into(), mode: ConfinedMode::ReadOnly },
            SandboxError::GuaranteeUnmet {
                backend: "b".into(),
                guarantees: vec![Guarantee::Network, Guarantee::WriteMetadata],
            },
            SandboxError::InvalidCommand { problem: CommandProblem::Empty },
            SandboxError::InvalidPolicy { detail: "d".into() },
            SandboxError::UnsupportedPolicy { backend: "b".into(), detail: "d".into() },
            SandboxError::CommandNotFound { program: "p\n".into() },
            SandboxError::CommandNotExecutable { program: "p\n".into(), reason: "r".into() },
            SandboxError::Cancelled,
            SandboxError::BackendUnknown { name: "n\n".into(), known: vec!["a".into(), "b".into()] },
        ];
        let codes: Vec<_> = errors.iter().map(SandboxError::code).collect();
        assert_eq!(codes, ErrorCode::ALL);
        for error in &errors {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        assert_eq!(
            errors[5].to_string(),
            "backend b cannot give the required guarantees on this host: network, write-metadata"
        );
        assert_eq!(errors[3].to_string(), r#"additional writable root "/x\n" is a symbolic link"#);
        assert_eq!(errors[12].to_string(), r#"no backend is named "n\n"; known here: a, b"#);
    }

    #[test]
    fn the_wire_form_carries_causes_and_guarantees() {
        let cause = BackendRefusal { backend: "a".into(), reason: "r".into(), remedy: "m".into() };
        let value = serde_json::to_value(unavailable(vec![cause], None).body()).unwrap();
        assert_eq!(value["code"], "SANDBOX_UNAVAILABLE");
        assert_eq!(value["causes"], serde_json::json!([{"backend": "a", "reason": "r", "remedy": "m"}]));
        assert!(value.get("guarantees").is_none());
        let unmet = SandboxError::GuaranteeUnmet { backend: "b".into(), guarantees: vec![Guarantee::Network] };
        assert_eq!(serde_json::to_value(unmet.body()).unwrap()["guarantees"], serde_json::json!(["network"]));
    }

    #[test]
    fn codes_keep_the_references_spelling() {
        let words: Vec<_> = ErrorCode::ALL.iter().take(5).map(|code| code.as_str()).collect();
        assert_eq!(
            words,
            [
                "SANDBOX_UNAVAILABLE",
                "SANDBOX_PREPARATION_FAILED",
                "SANDBOX_INVALID_TEMP_ROOT",
                "SANDBOX_INVALID_ROOT",
                "FS_SANDBOX_DENIED"
            ]
        );
    }
}
