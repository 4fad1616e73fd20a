//! The command to start in place of the caller's own. This object is validated strictly by consumers in
//! other languages, so it has exactly these fields; whatever else we know travels beside it.

use crate::error::{CommandProblem, SandboxError};
use crate::wire::strict;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};

closed_words! {
    /// Says how completely the file effects that a mode promises are enforced for one call.
    ///
    /// It is computed from a report's guarantees (see [`crate::EnforcementReport`]); no table holds it.
    pub enum Enforcement("enforcement") {
        /// Every promised file effect is enforced and was verified on this host.
        Full => "full",
        /// Something promised is not governed or was not verified; the report names it.
        Partial => "partial",
    }
}

/// Describes evidence, in a program's exit status and error text, that the runner failed before the command ran.
///
/// See [`crate::classification::classify_runner_failure`] for how it is applied.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunnerFailureRule {
    /// Exit statuses with which the rule may match; absent allows every status but 0, empty allows none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    pub allowed_exit_codes: Option<Vec<i32>>,
    /// Texts of which one must stand within a line; blank ones are ignored.
    pub fatal_signatures: Vec<String>,
    /// Whole lines that are harmless and are set aside before the search.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    pub informational_lines: Option<Vec<String>>,
}

/// Holds what a consumer starts instead of the caller's argv, and how to read its failure.
///
/// Its JSON form is `{argv, enforcement, denialSignatures, runnerFailureRules}`, unknown fields refused. An argument
/// that is not UTF-8 has no JSON form and makes serialisation fail with an error that names its index.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfinedArgv {
    /// Runner, its arguments, `--`, then the caller's argv byte for byte.
    #[serde(with = "strict::argv")]
    pub argv: Vec<OsString>,
    /// How completely this call is enforced.
    pub enforcement: Enforcement,
    /// Texts with which this backend's refusals show up in a command's error output.
    pub denial_signatures: Vec<String>,
    /// Evidence that the runner failed, to be checked before the denials.
    pub runner_failure_rules: Vec<RunnerFailureRule>,
}

/// Checks that an argv can be executed at all, before anything is prepared for it.
///
/// # Errors
///
/// `SANDBOX_INVALID_COMMAND` for an empty vector, an empty program name, or an argument with a NUL byte (its
/// index is counted from 0, the program).
pub fn validate_command<A: AsRef<OsStr>>(argv: &[A]) -> Result<(), SandboxError> {
    let Some(program) = argv.first() else {
        return Err(SandboxError::InvalidCommand { problem: CommandProblem::Empty });
    };
    if program.as_ref().is_empty() {
        return Err(SandboxError::InvalidCommand { problem: CommandProblem::EmptyProgram });
    }
    match argv.iter().position(|argument| argument.as_ref().as_encoded_bytes().contains(&0)) {
        Some(index) => Err(SandboxError::InvalidCommand { problem: CommandProblem::NulByte { index } }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;
    use proptest::prelude::*;

    fn sample() -> ConfinedArgv {
        ConfinedArgv {
            argv: vec!["runner".into(), "--".into(), "echo".into()],
            enforcement: Enforcement::Partial,
            denial_signatures: vec!["permission denied".into()],
            runner_failure_rules: vec![
                RunnerFailureRule {
                    allowed_exit_codes: Some(vec![125]),
                    fatal_signatures: vec!["x: ".into()],
                    informational_lines: Some(vec!["x: note".into()]),
                },
                RunnerFailureRule {
                    allowed_exit_codes: None,
                    fatal_signatures: vec!["y: ".into()],
                    informational_lines: None,
                },
            ],
        }
    }

    #[test]
    fn the_wire_form_has_exactly_its_fields() {
        assert_eq!(
            serde_json::to_string(&sample()).unwrap(),
            concat!(
                r#"{"argv":["runner","--","echo"],"enforcement":"partial","denialSignatures":["permission denied"],"#,
                r#""runnerFailureRules":[{"allowedExitCodes":[125],"fatalSignatures":["x: "],"#,
                r#""informationalLines":["x: note"]},{"fatalSignatures":["y: "]}]}"#
            )
        );
    }

    #[test]
    fn unknown_and_missing_fields_are_refused() {
        for json in [
            r#"{"argv":["a"],"enforcement":"full","denialSignatures":[],"runnerFailureRules":[],"report":{}}"#,
            r#"{"argv":["a"],"enforcement":"best","denialSignatures":[],"runnerFailureRules":[]}"#,
            r#"{"argv":["a"],"enforcement":"full","denialSignatures":[]}"#,
            r#"{"argv":["a"],"enforcement":"full","denialSignatures":[],"runnerFailureRules":[{}]}"#,
            r#"{"argv":["a"],"enforcement":"full","denialSignatures":[],
                "runnerFailureRules":[{"fatalSignatures":[],"allowedExitCodes":null}]}"#,
        ] {
            assert!(serde_json::from_str::<ConfinedArgv>(json).is_err(), "{json}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_argument_that_is_not_utf8_is_named_by_its_index() {
        use std::os::unix::ffi::OsStringExt as _;
        let mut confined = sample();
        confined.argv.push(OsString::from_vec(b"a\xfe".to_vec()));
        assert_eq!(
            serde_json::to_string(&confined).unwrap_err().to_string(),
            r#"argv[3] "a\xfe" is not valid UTF-8 and has no JSON form"#
        );
    }

    #[test]
    fn commands_that_cannot_be_executed_are_refused() {
        let cases: [(&[&str], &str); 4] = [
            (&[], "the command is empty"),
            (&["", "x"], "the program name is empty"),
            (&["a\0"], "argument 0 of the command holds a NUL byte"),
            (&["a", "", "\0"], "argument 2 of the command holds a NUL byte"),
        ];
        for (argv, text) in cases {
            let error = validate_command(argv).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidCommand);
            assert_eq!(error.to_string(), text);
        }
        assert_eq!(validate_command(&["a", ""]), Ok(()));
    }

    prop_compose! {
        fn any_rule()(
            allowed_exit_codes in prop::option::of(prop::collection::vec(any::<i32>(), 0..3)),
            fatal_signatures in prop::collection::vec(any::<String>(), 0..3),
            informational_lines in prop::option::of(prop::collection::vec(any::<String>(), 0..3)),
        ) -> RunnerFailureRule {
            RunnerFailureRule { allowed_exit_codes, fatal_signatures, informational_lines }
        }
    }

    proptest! {
        #[test]
        fn confined_argv_survives_json(
            argv in prop::collection::vec(any::<String>(), 0..6),
            enforcement in prop::sample::select(Enforcement::ALL),
            denials in prop::collection::vec(any::<String>(), 0..3),
            rules in prop::collection::vec(any_rule(), 0..3),
        ) {
            let confined = ConfinedArgv {
                argv: argv.into_iter().map(OsString::from).collect(),
                enforcement,
                denial_signatures: denials,
                runner_failure_rules: rules,
            };
            let json = serde_json::to_string(&confined).unwrap();
            prop_assert_eq!(serde_json::from_str::<ConfinedArgv>(&json).unwrap(), confined);
        }
    }
}
