//! The texts by which each backend's refusals and failures are recognised. What is done with them stands in
//! [`crate::classification`].

use crate::argv::RunnerFailureRule;
use crate::classification::{Classification, classify};
use std::ffi::OsString;

/// Holds the texts by which one backend's refusals and failures are recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// Texts of refusals, matched without regard to case.
    pub denial_signatures: Vec<String>,
    /// Evidence of a failed runner, in the order it is tried.
    pub runner_failure_rules: Vec<RunnerFailureRule>,
}

/// What the kernel says of a write to a read-only mount (EROFS).
const EROFS: &str = "read-only file system";
/// What it says of a missing right (EACCES).
const EACCES: &str = "permission denied";
/// What it says of a forbidden operation (EPERM).
const EPERM: &str = "operation not permitted";

/// Returns the texts of bubblewrap.
pub fn bwrap() -> Dialect {
    Dialect::of(&[EROFS], [bwrap_rule()])
}

/// Returns the texts of the reference's Landlock launcher.
pub fn landlock() -> Dialect {
    let rule = RunnerFailureRule {
        informational_lines: Some(vec!["landlock-run: partial enforcement (older Landlock ABI)".to_owned()]),
        ..rule(Some(125), "landlock-run: ")
    };
    Dialect::of(&[EACCES], [rule])
}

/// Returns the texts of macOS's sandbox-exec.
pub fn seatbelt() -> Dialect {
    Dialect::of(&[EPERM], [rule(None, "sandbox-exec: ")])
}

/// Returns the texts of the Windows restricted-token runner.
pub fn windows_acl() -> Dialect {
    Dialect::of(&["access is denied", "access to the path", EACCES, EPERM], [rule(Some(127), "windows-acl-run: ")])
}

/// Returns the texts of our launcher with a mount tree of its own.
pub fn launcher_namespace() -> Dialect {
    Dialect::of(&[EROFS, EACCES], [launcher_rule()])
}

/// Returns the texts of our launcher with Landlock alone, where seccomp refuses changes of metadata.
pub fn launcher_landlock() -> Dialect {
    Dialect::of(&[EACCES, EPERM], [launcher_rule()])
}

/// Returns the texts of bubblewrap with our launcher stacked inside.
pub fn bwrap_with_launcher() -> Dialect {
    Dialect::of(&[EROFS, EACCES], [bwrap_rule(), launcher_rule()])
}

/// Returns the texts of an operator's own runner, or nothing when none is configured.
///
/// An empty command means that none is configured, and so do empty signatures beside it.
///
/// # Errors
///
/// [`CustomRunnerError`] when a runner has no signatures, signatures have no runner, or a signature is blank or
/// has a line break.
pub fn custom_runner(
    command: &[OsString],
    failure_signatures: &[String],
) -> Result<Option<Dialect>, CustomRunnerError> {
    match (command.is_empty(), failure_signatures.is_empty()) {
        (true, true) => return Ok(None),
        (false, true) => return Err(CustomRunnerError::SignaturesMissing),
        (true, false) => return Err(CustomRunnerError::RunnerMissing),
        (false, false) => {}
    }
    if failure_signatures.iter().any(|text| text.trim().is_empty() || text.contains(['\n', '\r'])) {
        return Err(CustomRunnerError::SignatureMalformed);
    }
    let rule = RunnerFailureRule {
        allowed_exit_codes: None,
        fatal_signatures: failure_signatures.to_vec(),
        informational_lines: None,
    };
    Ok(Some(Dialect::of(&[EROFS, EACCES], [rule])))
}

/// Says what is wrong with the settings of an operator's own runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CustomRunnerError {
    /// A runner without signatures could fail unnoticed.
    #[error("sandbox-local: runnerCommand requires at least one runnerFailureSignatures entry")]
    SignaturesMissing,
    /// Signatures without a runner have no meaning.
    #[error("sandbox-local: runnerFailureSignatures requires runnerCommand")]
    RunnerMissing,
    /// A blank signature would match everything, one with a line break nothing.
    #[error("sandbox-local: runnerFailureSignatures entries must be non-empty single-line strings")]
    SignatureMalformed,
}

impl Dialect {
    fn of<const N: usize>(denials: &[&str], rules: [RunnerFailureRule; N]) -> Self {
        Self {
            denial_signatures: denials.iter().map(|text| (*text).to_owned()).collect(),
            runner_failure_rules: rules.into(),
        }
    }

    /// Classifies a finished program by this dialect; see [`classify`].
    pub fn classify(&self, exit: Option<i32>, stderr: &[u8]) -> Classification {
        classify(exit, stderr, &self.denial_signatures, &self.runner_failure_rules)
    }
}

fn rule(exit: Option<i32>, signature: &str) -> RunnerFailureRule {
    RunnerFailureRule {
        allowed_exit_codes: exit.map(|code| vec![code]),
        fatal_signatures: vec![signature.to_owned()],
        informational_lines: None,
    }
}

fn bwrap_rule() -> RunnerFailureRule {
    rule(None, "bwrap: ")
}

fn launcher_rule() -> RunnerFailureRule {
    rule(Some(125), "pinfold-run: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTICE: &str = "landlock-run: partial enforcement (older Landlock ABI)";

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn denied(lines: &[&str]) -> Classification {
        Classification::Denied(strings(lines))
    }

    fn runner_failure(line: &str) -> Classification {
        Classification::RunnerFailure(line.to_owned())
    }

    #[test]
    fn the_exit_gate_holds() {
        let text = b"landlock-run: exec failed: No such file or directory\n";
        assert_eq!(
            landlock().classify(Some(125), text),
            runner_failure("landlock-run: exec failed: No such file or directory")
        );
        for exit in [1, 2, 126, 127] {
            assert_eq!(landlock().classify(Some(exit), text), Classification::Ordinary);
        }
        assert_eq!(windows_acl().classify(Some(1), b"windows-acl-run: x"), Classification::Ordinary);
        assert_eq!(windows_acl().classify(Some(127), b"windows-acl-run: x"), runner_failure("windows-acl-run: x"));
    }

    #[test]
    fn the_notice_of_an_older_kernel_is_no_failure() {
        for exit in [1, 2, 125] {
            for end in ["", "\n", "\r\n", "\r"] {
                for notice in [NOTICE.to_owned(), NOTICE.to_uppercase()] {
                    assert_eq!(
                        landlock().classify(Some(exit), format!("{notice}{end}").as_bytes()),
                        Classification::Ordinary
                    );
                }
            }
        }
        let both = format!("{NOTICE}\nlandlock-run: out of memory\n");
        assert_eq!(landlock().classify(Some(125), both.as_bytes()), runner_failure("landlock-run: out of memory"));
        let refused = format!("{NOTICE}\nsh: x: Permission denied\n");
        assert_eq!(landlock().classify(Some(1), refused.as_bytes()), denied(&["sh: x: Permission denied"]));
    }

    #[test]
    fn a_line_that_only_contains_the_notice_is_not_set_aside() {
        let text = format!("{NOTICE} and more");
        assert_eq!(landlock().classify(Some(125), text.as_bytes()), runner_failure(&text));
    }

    #[test]
    fn our_own_dialects_recognise_our_launcher() {
        for dialect in [launcher_namespace(), launcher_landlock(), bwrap_with_launcher()] {
            let line = "pinfold-run: setup failed";
            assert_eq!(dialect.classify(Some(125), line.as_bytes()), runner_failure(line));
            assert_eq!(dialect.classify(Some(1), line.as_bytes()), Classification::Ordinary);
            assert!(matches!(dialect.classify(Some(1), b"Permission denied"), Classification::Denied(_)));
        }
        assert!(matches!(launcher_landlock().classify(Some(1), b"Operation not permitted"), Classification::Denied(_)));
        assert!(matches!(bwrap_with_launcher().classify(Some(1), b"bwrap: x"), Classification::RunnerFailure(_)));
    }

    #[test]
    fn reference_dialects_have_their_texts() {
        assert_eq!(bwrap().denial_signatures, ["read-only file system"]);
        assert_eq!(landlock().denial_signatures, ["permission denied"]);
        assert_eq!(seatbelt().denial_signatures, ["operation not permitted"]);
        assert_eq!(
            windows_acl().denial_signatures,
            ["access is denied", "access to the path", "permission denied", "operation not permitted"]
        );
    }

    #[test]
    fn a_custom_runner_needs_usable_signatures() {
        let command = [OsString::from("run")];
        assert_eq!(custom_runner(&[], &[]), Ok(None));
        let text = |command: &[OsString], signatures: &[&str]| {
            custom_runner(command, &strings(signatures)).unwrap_err().to_string()
        };
        assert_eq!(
            text(&command, &[]),
            "sandbox-local: runnerCommand requires at least one runnerFailureSignatures entry"
        );
        assert_eq!(text(&[], &["x"]), "sandbox-local: runnerFailureSignatures requires runnerCommand");
        for bad in ["", " \t", "a\nb", "a\r", "\n"] {
            assert_eq!(
                text(&command, &["ok", bad]),
                "sandbox-local: runnerFailureSignatures entries must be non-empty single-line strings"
            );
        }
        let dialect = custom_runner(&command, &strings(&["run: "])).unwrap().unwrap();
        assert_eq!(dialect.denial_signatures, ["read-only file system", "permission denied"]);
        assert_eq!(dialect.classify(Some(9), b"RUN: no"), runner_failure("RUN: no"));
    }
}
