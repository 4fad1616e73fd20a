//! Reading a finished program: did the runner fail, was the command refused something, or did it fail by
//! itself? This is the in-band fallback. All of its evidence can be imitated by the command; wherever a status
//! channel exists, the channel outranks it. Error text is read and quoted here, never rewritten.

use crate::argv::RunnerFailureRule;
use std::ffi::OsStr;

/// Says what a finished program's exit status and error text amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Classification {
    /// The runner failed and the command did not run; holds the line that says so, in its own spelling.
    RunnerFailure(String),
    /// The command was refused something; holds the lines that say so, in their own spelling.
    ///
    /// It holds the whole text if a signature that spans lines matched but no single line did.
    Denied(Vec<String>),
    /// Neither.
    Ordinary,
}

/// Classifies a finished program: failure of the runner first, then refusal, then neither.
///
/// `exit` is the exit status, absent for a death by signal; `stderr` may be only the end of the error text.
pub fn classify(
    exit: Option<i32>,
    stderr: &[u8],
    denial_signatures: &[String],
    runner_failure_rules: &[RunnerFailureRule],
) -> Classification {
    if let Some(detail) = classify_runner_failure(exit, stderr, runner_failure_rules) {
        return Classification::RunnerFailure(detail);
    }
    if !matches_denial(exit, stderr, denial_signatures) {
        return Classification::Ordinary;
    }
    let signatures = folded(denial_signatures);
    let text = String::from_utf8_lossy(stderr);
    let matching = lines(&text).filter(|line| contains_any(&line.to_lowercase(), &signatures));
    let mut found: Vec<String> = matching.map(str::to_owned).collect();
    if found.is_empty() {
        found.push(text.into_owned());
    }
    Classification::Denied(found)
}

/// Says whether error text shows a refusal.
///
/// True only for an exit status other than 0 and a signature anywhere in the text, without regard to case. Death
/// by signal never counts. Blank signatures are ignored. Bytes that are not UTF-8 match nothing.
pub fn matches_denial(exit: Option<i32>, stderr: &[u8], signatures: &[String]) -> bool {
    if !failed(exit) {
        return false;
    }
    contains_any(&String::from_utf8_lossy(stderr).to_lowercase(), &folded(signatures))
}

/// Returns the line by which error text shows that the runner failed, in its own spelling.
///
/// Rules are tried in order. A rule needs an exit status other than 0 that its gate allows and one of its
/// signatures within a line, without regard to case. Lines end at LF or CRLF; lines equal to an informational
/// one (as a whole, without regard to case) are set aside first. Blank signatures are ignored. Bytes that are
/// not UTF-8 match nothing and come back as replacement characters.
pub fn classify_runner_failure(exit: Option<i32>, stderr: &[u8], rules: &[RunnerFailureRule]) -> Option<String> {
    let code = exit.filter(|code| *code != 0)?;
    let text = String::from_utf8_lossy(stderr);
    rules.iter().find_map(|rule| {
        if rule.allowed_exit_codes.as_ref().is_some_and(|allowed| !allowed.contains(&code)) {
            return None;
        }
        let signatures = folded(&rule.fatal_signatures);
        let harmless = folded(rule.informational_lines.as_deref().unwrap_or_default());
        let fatal = |line: &&str| {
            let line = line.to_lowercase();
            !harmless.contains(&line) && contains_any(&line, &signatures)
        };
        lines(&text).find(fatal).map(str::to_owned)
    })
}

/// Holds what is known when a program could not be started, as the host's process library reports it.
#[derive(Debug, Clone, Copy)]
pub struct SpawnFailure<'a> {
    /// Whether the working directory is a directory that may be entered.
    pub cwd_is_enterable_directory: bool,
    /// The error's name, such as `ENOENT`, if it has one.
    pub code: Option<&'a str>,
    /// The path that the error names, if it names one.
    pub path: Option<&'a OsStr>,
    /// The failed call as the error names it, `spawn` or `spawn <program>`.
    pub syscall: Option<&'a OsStr>,
}

/// Says whether a failed start is to be blamed on the runner, the first element of the confined argv.
///
/// True only if the working directory is fit, the error is `ENOENT` or `EACCES`, and the error names the runner:
/// its path is the runner and its call is `spawn` or `spawn <runner>`, or it has no path and its call is exactly
/// `spawn <runner>`. Everything else keeps its ordinary meaning.
pub fn is_runner_spawn_failure(failure: &SpawnFailure<'_>, runner: &OsStr) -> bool {
    if !failure.cwd_is_enterable_directory || !matches!(failure.code, Some("ENOENT" | "EACCES")) || runner.is_empty() {
        return false;
    }
    let call = failure.syscall.map(OsStr::as_encoded_bytes);
    let names_runner = call.and_then(|call| call.strip_prefix(b"spawn ")) == Some(runner.as_encoded_bytes());
    match failure.path {
        Some(path) => path == runner && (names_runner || call == Some(b"spawn".as_slice())),
        None => names_runner,
    }
}

fn failed(exit: Option<i32>) -> bool {
    exit.is_some_and(|code| code != 0)
}

fn folded(texts: &[String]) -> Vec<String> {
    texts.iter().filter(|text| !text.trim().is_empty()).map(|text| text.to_lowercase()).collect()
}

fn contains_any(folded_text: &str, folded_signatures: &[String]) -> bool {
    folded_signatures.iter().any(|signature| folded_text.contains(signature.as_str()))
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{bwrap, landlock};
    use proptest::prelude::*;

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn denied(lines: &[&str]) -> Classification {
        Classification::Denied(strings(lines))
    }

    fn runner_failure(line: &str) -> Classification {
        Classification::RunnerFailure(line.to_owned())
    }

    fn rule(allowed_exit_codes: Option<Vec<i32>>, signature: &str) -> RunnerFailureRule {
        RunnerFailureRule { allowed_exit_codes, fatal_signatures: strings(&[signature]), informational_lines: None }
    }

    #[test]
    fn a_denial_needs_a_failing_exit_and_a_signature() {
        let text = b"sh: cannot create x: Read-Only File System\n";
        let signatures = strings(&["READ-only file system"]);
        assert!(matches_denial(Some(1), text, &signatures));
        assert!(matches_denial(Some(-1), text, &signatures));
        for exit in [Some(0), None] {
            assert!(!matches_denial(exit, text, &signatures));
        }
        assert!(!matches_denial(Some(1), text, &strings(&["permission denied"])));
        assert!(!matches_denial(Some(1), text, &[]));
    }

    #[test]
    fn a_blank_signature_matches_nothing() {
        assert!(!matches_denial(Some(1), b"a b\n", &strings(&["", " "])));
        let rules = [RunnerFailureRule {
            allowed_exit_codes: None,
            fatal_signatures: strings(&["", "  ", "fatal: "]),
            informational_lines: None,
        }];
        assert_eq!(classify_runner_failure(Some(1), b"a  b\n", &rules), None);
        assert_eq!(classify_runner_failure(Some(1), b"a  b\nFatal: c\n", &rules), Some("Fatal: c".into()));
    }

    #[test]
    fn text_that_is_not_utf8_is_still_read() {
        let text = b"\xff\xfe: Permission denied\r\n\xff";
        assert_eq!(landlock().classify(Some(1), text), denied(&["\u{fffd}\u{fffd}: Permission denied"]));
    }

    #[test]
    fn the_denied_lines_come_back_in_their_own_spelling() {
        let text = b"a: Read-only file system\r\nfine\nb: READ-ONLY file system";
        assert_eq!(bwrap().classify(Some(2), text), denied(&["a: Read-only file system", "b: READ-ONLY file system"]));
    }

    #[test]
    fn a_signature_across_lines_yields_the_whole_text() {
        let signatures = strings(&["one\ntwo"]);
        assert_eq!(classify(Some(1), b"ONE\nTwo", &signatures, &[]), denied(&["ONE\nTwo"]));
    }

    #[test]
    fn a_runner_failure_outranks_a_denial() {
        let text = b"x: Read-only file system\nbwrap: Can't mount: Read-only file system\n";
        assert_eq!(bwrap().classify(Some(1), text), runner_failure("bwrap: Can't mount: Read-only file system"));
    }

    #[test]
    fn success_and_death_by_signal_are_ordinary() {
        for exit in [Some(0), None] {
            assert_eq!(bwrap().classify(exit, b"bwrap: no\nread-only file system"), Classification::Ordinary);
        }
    }

    #[test]
    fn rules_are_tried_in_order() {
        let rules = [rule(None, "second"), rule(None, "first")];
        assert_eq!(classify_runner_failure(Some(1), b"first\nsecond\nsecond again", &rules), Some("second".into()));
    }

    #[test]
    fn a_failed_start_is_blamed_on_the_runner_only_when_it_is_named() {
        let runner = OsStr::new("/bin/r x");
        let fact = |path: Option<&'static str>, syscall: Option<&'static str>| SpawnFailure {
            cwd_is_enterable_directory: true,
            code: Some("ENOENT"),
            path: path.map(OsStr::new),
            syscall: syscall.map(OsStr::new),
        };
        for (path, syscall, blamed) in [
            (Some("/bin/r x"), Some("spawn"), true),
            (Some("/bin/r x"), Some("spawn /bin/r x"), true),
            (None, Some("spawn /bin/r x"), true),
            (None, Some("spawn"), false),
            (None, None, false),
            (Some("/bin/r x"), None, false),
            (Some("/bin/r x"), Some("spawn /bin/other"), false),
            (Some(""), Some("spawn /bin/r x"), false),
            (Some("/bin/other"), Some("spawn /bin/r x"), false),
            (Some("/bin/r x"), Some("open"), false),
        ] {
            assert_eq!(is_runner_spawn_failure(&fact(path, syscall), runner), blamed, "{path:?} {syscall:?}");
        }
        let named = fact(Some("/bin/r x"), Some("spawn"));
        assert!(is_runner_spawn_failure(&SpawnFailure { code: Some("EACCES"), ..named }, runner));
        for code in [None, Some("ENOEXEC"), Some("ENOTDIR"), Some("enoent")] {
            assert!(!is_runner_spawn_failure(&SpawnFailure { code, ..named }, runner));
        }
        assert!(!is_runner_spawn_failure(&SpawnFailure { cwd_is_enterable_directory: false, ..named }, runner));
        assert!(!is_runner_spawn_failure(&fact(Some(""), Some("spawn")), OsStr::new("")));
    }

    prop_compose! {
        fn any_rule()(
            allowed_exit_codes in prop::option::of(prop::collection::vec(-2..3_i32, 0..3)),
            fatal_signatures in prop::collection::vec("[a-cA-C \n]{0,3}", 0..3),
            informational_lines in prop::option::of(prop::collection::vec("[a-cA-C ]{0,4}", 0..3)),
        ) -> RunnerFailureRule {
            RunnerFailureRule { allowed_exit_codes, fatal_signatures, informational_lines }
        }
    }

    proptest! {
        #[test]
        fn classification_never_panics(
            exit in any::<Option<i32>>(),
            stderr in prop::collection::vec(any::<u8>(), 0..200),
            denials in prop::collection::vec(any::<String>(), 0..4),
            rules in prop::collection::vec(any_rule(), 0..4),
        ) {
            let result = classify(exit, &stderr, &denials, &rules);
            if exit == Some(0) || exit.is_none() {
                prop_assert_eq!(result, Classification::Ordinary);
            }
        }

        #[test]
        fn a_reported_failure_is_a_line_of_the_text(
            exit in -2..3_i32,
            stderr in "[a-cA-C \r\n]{0,30}",
            rules in prop::collection::vec(any_rule(), 0..4),
        ) {
            if let Some(line) = classify_runner_failure(Some(exit), stderr.as_bytes(), &rules) {
                prop_assert!(lines(&stderr).any(|candidate| candidate == line));
                prop_assert_ne!(exit, 0);
            }
        }

        #[test]
        fn informational_lines_alone_never_match(
            exit in any::<i32>(),
            notes in prop::collection::vec("[^\r\n]{0,12}", 1..4),
            picks in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..6),
            fatal in prop::collection::vec(".{0,4}", 0..4),
        ) {
            let text: String = picks
                .iter()
                .map(|(index, crlf)| format!("{}{}", index.get(&notes), if *crlf { "\r\n" } else { "\n" }))
                .collect();
            let rules = [RunnerFailureRule {
                allowed_exit_codes: None,
                fatal_signatures: fatal,
                informational_lines: Some(notes),
            }];
            prop_assert_eq!(classify_runner_failure(Some(exit), text.as_bytes(), &rules), None);
        }
    }

    #[test]
    fn an_empty_gate_lets_nothing_through() {
        let closed = [rule(Some(vec![]), "bwrap: ")];
        assert_eq!(classify_runner_failure(Some(1), b"bwrap: x", &closed), None);
    }
}
