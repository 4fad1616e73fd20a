//! The lines that a model reads around a command's output, and their order. Every byte here is part of an
//! interface.
//!
//! Text of a command may imitate any marker; markers inform a reader and decide nothing. Decisions are made on
//! [`crate::Outcome`].

use crate::escalation::Subject;
use crate::mode::ConfinedMode;
use crate::outcome::Stop;
use crate::quote::quote_if_needed;
use std::path::Path;

/// Returns the line that says that a file access was refused.
pub fn denial_marker(mode: ConfinedMode) -> String {
    format!("[sandbox: file access denied under {mode} mode]")
}

/// Returns the line that tells how to ask for a wider mode.
pub fn hint_marker(subject: Subject) -> String {
    format!(
        "[sandbox: escalation available — retry this exact {subject} once with sandbox_permissions (the narrowest \
         wider mode that suffices) + justification; the approval prompt asks the user]"
    )
}

/// Returns the line that says that the runner failed and the command did not run.
pub fn runner_failed_marker(mode: ConfinedMode) -> String {
    format!(
        "[sandbox: the sandbox runner itself failed under {mode} mode — the command did not run; this is a sandbox \
         problem, not a command failure]"
    )
}

/// Returns the line that says that the time limit of so many milliseconds passed.
pub fn timed_out_marker(after_ms: u64) -> String {
    format!("[timed out after {after_ms}ms]")
}

/// Returns the line that says how a command stopped; nothing for exit status 0.
pub fn stop_marker(stop: Stop) -> Option<String> {
    match stop {
        Stop::Exited { code: 0 } => None,
        Stop::Exited { code } => Some(format!("[exit code: {code}]")),
        Stop::Signaled { signal } => Some(format!("[killed by signal: {signal}]")),
    }
}

/// Returns the line that ends a shortened stream and names the file with the whole of it, if there is one.
///
/// A path with characters that cannot stand in a line is written as [`crate::quote::quote`] does.
pub fn truncated_marker(full_output: Option<&Path>) -> String {
    match full_output {
        Some(path) => format!("[output truncated; full output: {}]", quote_if_needed(path)),
        None => "[output truncated; full output: (unavailable)]".to_owned(),
    }
}

/// Returns the line that says that part of a background command's output was dropped before it was read, and names the
/// files that hold all of it, if there are any.
pub fn lossy_marker(full_output: &[&Path]) -> String {
    let paths: Vec<_> = full_output.iter().map(quote_if_needed).collect();
    let paths = if paths.is_empty() { "(unavailable)".to_owned() } else { paths.join(", ") };
    format!("[some output was dropped from memory; full output: {paths}]")
}

/// Returns the line that says that somebody other than the time limit ended a command.
pub fn stopped_marker(reason: &str) -> String {
    format!("[stopped: {reason}]")
}

/// Reads how a command stopped back from its rendered text, for logs that hold nothing else; also returns the text before
/// the marker.
///
/// Only a marker that is the last line and follows a line break counts; otherwise the command counts as one that exited
/// with 0. Output can imitate it: where there is an [`crate::Outcome`], it decides.
pub fn parse_exit_status(text: &str) -> (&str, Stop) {
    let ordinary = (text, Stop::Exited { code: 0 });
    let Some((body, line)) = text.rsplit_once('\n') else { return ordinary };
    let Some(inner) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) else { return ordinary };
    let code =
        inner.strip_prefix("exit code: ").filter(|code| !code.starts_with('+')).and_then(|code| code.parse().ok());
    let signal = inner.strip_prefix("killed by signal: ").and_then(crate::signal::Signal::from_name);
    match (code, signal) {
        (Some(code), _) => (body, Stop::Exited { code }),
        (_, Some(signal)) => (body, Stop::Signaled { signal }),
        _ => ordinary,
    }
}

/// Says whether a stream's text is all there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Completeness<'a> {
    /// The text is the whole stream.
    #[default]
    Whole,
    /// The text is the end of the stream.
    Truncated {
        /// The file that holds all of it, if there is one.
        full_output: Option<&'a Path>,
    },
}

/// Holds one stream of a command as it is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamText<'a> {
    /// The retained text.
    pub text: &'a str,
    /// Whether it is all there is.
    pub completeness: Completeness<'a>,
}

impl<'a> StreamText<'a> {
    /// Makes a stream that is all there.
    pub const fn whole(text: &'a str) -> Self {
        Self { text, completeness: Completeness::Whole }
    }

    fn render_into(&self, out: &mut String) {
        out.push_str(self.text);
        if let Completeness::Truncated { full_output } = self.completeness {
            push_line(out, &truncated_marker(full_output));
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.completeness == Completeness::Whole
    }
}

/// Holds what is shown of one finished command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResultText<'a> {
    /// Standard output.
    pub stdout: StreamText<'a>,
    /// Standard error.
    pub stderr: StreamText<'a>,
    /// The mode that refused something, if one did.
    pub denied_under: Option<ConfinedMode>,
    /// What may be retried, if asking is possible; shown only beside a refusal.
    pub hint: Option<Subject>,
    /// The time limit that passed, in milliseconds, if it did.
    pub timed_out_after_ms: Option<u64>,
    /// How the command stopped, if it ran.
    pub stop: Option<Stop>,
}

/// Renders a finished command for a model.
///
/// Standard output; then a `[stderr]` section if there is any, or `(no output)` if there is neither; then, each on
/// a line of its own: refusal, hint, time limit, and one of signal or exit status (none for exit status 0). A
/// line break is put in only where one is missing, and none is added at the end.
pub fn render_result(result: &ResultText<'_>) -> String {
    let mut out = String::with_capacity(result.stdout.text.len() + result.stderr.text.len() + 256);
    result.stdout.render_into(&mut out);
    if !result.stderr.is_empty() {
        push_line(&mut out, "[stderr]\n");
        result.stderr.render_into(&mut out);
    } else if result.stdout.is_empty() {
        out.push_str("(no output)");
    }
    if let Some(mode) = result.denied_under {
        push_line(&mut out, &denial_marker(mode));
        if let Some(subject) = result.hint {
            push_line(&mut out, &hint_marker(subject));
        }
    }
    if let Some(after_ms) = result.timed_out_after_ms {
        push_line(&mut out, &timed_out_marker(after_ms));
    }
    if let Some(marker) = result.stop.and_then(stop_marker) {
        push_line(&mut out, &marker);
    }
    out
}

fn push_line(out: &mut String, line: &str) {
    if !out.is_empty() && !out.ends_with('\n') {
        out.push('\n');
    }
    out.push_str(line);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Signal;

    const DENIAL: &str = "[sandbox: file access denied under read-only mode]";
    const HINT: &str = "[sandbox: escalation available — retry this exact command once with sandbox_permissions (the narrowest wider mode that suffices) + justification; the approval prompt asks the user]";

    fn exited(code: i32) -> Option<Stop> {
        Some(Stop::Exited { code })
    }

    fn killed(number: i32) -> Option<Stop> {
        Some(Stop::Signaled { signal: Signal::from_number(number).unwrap() })
    }

    // U278, U279
    #[test]
    fn markers_are_byte_exact() {
        assert_eq!(denial_marker(ConfinedMode::ReadOnly), DENIAL);
        assert_eq!(hint_marker(Subject::Command), HINT);
        assert_eq!(hint_marker(Subject::Operation), HINT.replace("exact command", "exact operation"));
        assert_eq!(
            runner_failed_marker(ConfinedMode::WorkspaceWrite),
            "[sandbox: the sandbox runner itself failed under workspace-write mode — the command did not run; this is a sandbox problem, not a command failure]"
        );
        assert_eq!(timed_out_marker(120_000), "[timed out after 120000ms]");
        assert_eq!(truncated_marker(Some(Path::new("/t/o 1"))), "[output truncated; full output: /t/o 1]");
        assert_eq!(truncated_marker(Some(Path::new("/t/\n"))), "[output truncated; full output: \"/t/\\n\"]");
        assert_eq!(truncated_marker(None), "[output truncated; full output: (unavailable)]");
        assert_eq!(killed(9).and_then(stop_marker).as_deref(), Some("[killed by signal: SIGKILL]"));
        assert_eq!(exited(7).and_then(stop_marker).as_deref(), Some("[exit code: 7]"));
        assert_eq!(exited(0).and_then(stop_marker), None);
    }

    /// U380, U392.
    #[test]
    fn markers_of_background_commands_are_byte_exact() {
        assert_eq!(
            lossy_marker(&[Path::new("/a"), Path::new("/b")]),
            "[some output was dropped from memory; full output: /a, /b]"
        );
        assert_eq!(lossy_marker(&[]), "[some output was dropped from memory; full output: (unavailable)]");
        assert_eq!(stopped_marker("killed"), "[stopped: killed]");
    }

    /// U388, U404.
    #[test]
    fn an_exit_status_is_read_back_from_a_last_line_only() {
        for stop in [exited(7), exited(-1), exited(0), killed(9), killed(15)].into_iter().flatten() {
            let rendered = render_result(&ResultText {
                stdout: StreamText::whole("a"),
                stop: Some(stop),
                ..ResultText::default()
            });
            assert_eq!(parse_exit_status(&rendered), ("a", stop));
        }
        for text in
            ["[exit code: 1]", "a[exit code: 1]", "a\n[exit code: 1]\n", "a\n[exit code: x]", "a\n[exit code: +1]"]
        {
            assert_eq!(parse_exit_status(text), (text, Stop::Exited { code: 0 }));
        }
        assert_eq!(parse_exit_status("a\n[killed by signal: NOPE]").1, Stop::Exited { code: 0 });
    }

    #[test]
    fn silence_is_said() {
        let silent = ResultText { stop: exited(0), ..ResultText::default() };
        assert_eq!(render_result(&silent), "(no output)");
        let failed = ResultText { stop: exited(1), ..ResultText::default() };
        assert_eq!(render_result(&failed), "(no output)\n[exit code: 1]");
    }

    #[test]
    fn a_line_break_is_put_in_only_where_one_is_missing() {
        for (stdout, stderr, expected) in [
            ("a", "", "a"),
            ("a\n", "", "a\n"),
            ("a", "b", "a\n[stderr]\nb"),
            ("a\n", "b\n", "a\n[stderr]\nb\n"),
            ("", "b", "[stderr]\nb"),
        ] {
            let result = ResultText {
                stdout: StreamText::whole(stdout),
                stderr: StreamText::whole(stderr),
                stop: exited(0),
                ..ResultText::default()
            };
            assert_eq!(render_result(&result), expected);
        }
    }

    #[test]
    fn everything_stands_in_its_order() {
        let result = ResultText {
            stdout: StreamText {
                text: "out\n",
                completeness: Completeness::Truncated { full_output: Some(Path::new("/s")) },
            },
            stderr: StreamText { text: "err", completeness: Completeness::Truncated { full_output: None } },
            denied_under: Some(ConfinedMode::ReadOnly),
            hint: Some(Subject::Command),
            timed_out_after_ms: Some(50),
            stop: killed(15),
        };
        assert_eq!(
            render_result(&result),
            format!(
                "out\n[output truncated; full output: /s]\n[stderr]\nerr\n[output truncated; full output: (unavailable)]\n{DENIAL}\n{HINT}\n[timed out after 50ms]\n[killed by signal: SIGTERM]"
            )
        );
    }

    #[test]
    fn a_hint_without_a_refusal_is_not_shown() {
        let result = ResultText { hint: Some(Subject::Command), stop: exited(1), ..ResultText::default() };
        assert_eq!(render_result(&result), "(no output)\n[exit code: 1]");
    }
}
