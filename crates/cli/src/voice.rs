//! What pinfold itself says: one prefix, one line per sentence, hints that end in something to run. Nothing is
//! decided here.

use pinfold_policy::escalation::EscalationError;
use pinfold_policy::quote::quote;
use pinfold_policy::{ErrorCode, Guarantee, RootProblem, RootRole, SandboxError};
use pinfold_session::SessionError;
use pinfold_session::config::Origin;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::ffi::OsStr;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a person or a program reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Sentences.
    Text,
    /// One object on one line.
    Json,
}

impl Form {
    /// Returns the form that a `--json` flag stands for.
    pub(crate) fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// How long somebody who does not read is waited for once time is up.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

static TIME_IS_UP: AtomicBool = AtomicBool::new(false);

static UNFINISHED: AtomicBool = AtomicBool::new(false);

static SESSION: OnceLock<String> = OnceLock::new();

/// Notes that this process works in a session: hints then speak of it, and name no option that has no place there.
pub(crate) fn speak_of_session(id: &str) {
    // Of two the first is meant.
    let _ = SESSION.set(id.to_owned());
}

fn session_name() -> &'static str {
    SESSION.get().map_or("ID", String::as_str)
}

/// Notes that what the command wrote to standard error may end in the middle of a line. The next line of ours then begins on
/// one of its own, so that the command's words are not taken for its beginning.
pub(crate) fn note_unfinished() {
    UNFINISHED.store(true, Ordering::Relaxed);
}

/// Returns what begins a line.
pub(crate) fn line_start() -> &'static str {
    if UNFINISHED.swap(false, Ordering::Relaxed) { "\n" } else { "" }
}

/// Notes that a time limit or a signal has ended the command: from now on nobody is waited for who does not read.
pub(crate) fn hurry() {
    TIME_IS_UP.store(true, Ordering::Relaxed);
}

fn speak(text: &str) {
    let mut err = std::io::stderr().lock();
    if !TIME_IS_UP.load(Ordering::Relaxed) {
        let _ = err.write_all(text.as_bytes());
        return;
    }
    // A pipe that can be written takes this much at once (pipe(7)).
    for chunk in text.as_bytes().chunks(4096) {
        let ready = poll(&mut [PollFd::new(&std::io::stderr(), PollFlags::OUT)], Some(&PATIENCE));
        if !matches!(ready, Ok(1..)) || err.write_all(chunk).is_err() {
            return;
        }
    }
}

/// Says one line on standard error. Nobody is left to be told when that fails.
pub(crate) fn say(line: &str) {
    speak(&format!("{}pinfold: {line}\n", line_start()));
}

/// Prints one object as a line on standard error, without the prefix.
pub(crate) fn say_json(value: &impl Serialize) {
    speak(&format!("{}{}\n", line_start(), one_line(value)));
}

/// Renders an object as one line; every type that is printed has a JSON form.
pub(crate) fn one_line(value: &impl Serialize) -> String {
    let line = serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"message\":{:?}}}", error.to_string()));
    plain(line)
}

/// Escapes what a terminal obeys or a reader cannot see; in JSON such characters stand only in strings.
///
/// SECURITY: part of the line may be the command's own words.
fn plain(line: String) -> String {
    let unsafe_to_show = |character: char| {
        matches!(character, '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
    };
    if !line.contains(unsafe_to_show) {
        return line;
    }
    let mut escaped = String::with_capacity(line.len() + 16);
    for character in line.chars() {
        if unsafe_to_show(character) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Prints on standard output.
///
/// # Errors
///
/// The host's, unless the reader has gone: then there is nobody who misses anything.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Says an error and, for a person, what to do about it.
pub(crate) fn complain(error: &SandboxError, form: Form) {
    if form == Form::Json {
        return say_json(&error.body());
    }
    say(&format!("error[{}]: {error}", error.code()));
    say(&format!("hint: {}", hint(error)));
}

/// An error's wire form that is no sandbox's: `{code, message}`.
#[derive(Serialize)]
pub(crate) struct Body {
    /// The code.
    pub(crate) code: &'static str,
    /// The text.
    pub(crate) message: String,
}

/// Says an error of a session, and what to do about it.
pub(crate) fn complain_session(error: &SessionError, form: Form) {
    if let SessionError::Sandbox(error) = error {
        return complain(error, form);
    }
    if form == Form::Json {
        return say_json(&Body { code: error.code(), message: error.to_string() });
    }
    say(&format!("error[{}]: {error}", error.code()));
    say(&format!("hint: {}", session_hint(error)));
}

/// Returns the exit status of an error of a session, before anything was started.
pub(crate) fn session_status(error: &SessionError) -> u8 {
    match error {
        SessionError::Sandbox(error) => exit_status(error),
        SessionError::ConfigInvalid { .. }
        | SessionError::ConfigWidens { .. }
        | SessionError::Unknown { .. }
        | SessionError::Refused { .. }
        | SessionError::PresetUnknown { .. }
        | SessionError::GrantUnusable { .. } => 2,
        _ => 125,
    }
}

/// Whether a source is the file that the variable names.
fn named_by_variable(origin: &Origin) -> bool {
    matches!(origin, Origin::User(path) if std::env::var_os("PINFOLD_CONFIG").is_some_and(|named| path.as_os_str() == named))
}

fn session_hint(error: &SessionError) -> String {
    match error {
        SessionError::ConfigInvalid { at, .. } if named_by_variable(&at.origin) => {
            "name a file that only you can write, or none: env -u PINFOLD_CONFIG pinfold explain".to_owned()
        }
        SessionError::ConfigInvalid { at, .. } | SessionError::ConfigWidens { at, .. } => {
            format!(
                "mend the file, or take it out of the way; what holds without it: {}",
                match at.origin.only_tightens() {
                    true => "pinfold explain --workspace DIR",
                    false => "PINFOLD_CONFIG=FILE pinfold explain",
                }
            )
        }
        // On the command line only a mode that would widen has nobody to ask.
        SessionError::Escalation(EscalationError::NoApprover { requested }) => match crate::usage::command().as_str() {
            "run" | "exec" => format!("--mode only narrows; ask for more: --escalate {requested} --justification TEXT"),
            _ => format!("--mode only narrows; for future calls: pinfold session mode {} {requested}", session_name()),
        },
        SessionError::Escalation(_) | SessionError::Declined { .. } => {
            format!("nothing ran; what holds now: pinfold session show {}", session_name())
        }
        SessionError::Changed { .. } => {
            format!("try again; what holds now: pinfold session show {}", session_name())
        }
        SessionError::Unknown { .. } => "see the sessions: pinfold session list".to_owned(),
        SessionError::PresetUnknown { at: Some(_), .. } => {
            "mend the file, or name one of those: pinfold session new --preset read-only".to_owned()
        }
        SessionError::PresetUnknown { .. } => format!("see the presets: pinfold session preset {}", session_name()),
        SessionError::Damaged { .. } | SessionError::Newer { .. } | SessionError::Ended { .. } => {
            "nothing ran; begin another session: pinfold session new".to_owned()
        }
        SessionError::StateUnavailable { .. } => {
            "name another place that is yours alone: XDG_STATE_HOME=DIR pinfold session list".to_owned()
        }
        SessionError::Unwritable { .. } => "nothing has changed; look at the disk: df -h".to_owned(),
        SessionError::Busy { .. } => "nothing has changed; see who holds it: lslocks".to_owned(),
        SessionError::Refused { .. } if crate::usage::command() == "approve" => {
            "answer from a terminal, or see what is asked: pinfold session list".to_owned()
        }
        SessionError::Refused { .. } | SessionError::GrantUnusable { .. } => {
            format!("nothing has changed; what holds now: pinfold session show {}", session_name())
        }
        SessionError::Sandbox(error) => hint(error),
    }
}

/// Returns the exit status of an error that came before anything was started.
///
/// 2 for what the caller can mend by other arguments, the launcher's numbers for the rest.
pub(crate) fn exit_status(error: &SandboxError) -> u8 {
    match error.code() {
        ErrorCode::InvalidCommand
        | ErrorCode::InvalidPolicy
        | ErrorCode::InvalidRoot
        | ErrorCode::InvalidTempRoot
        | ErrorCode::UnsupportedPolicy
        | ErrorCode::BackendUnknown => 2,
        ErrorCode::CommandNotExecutable => 126,
        ErrorCode::CommandNotFound => 127,
        ErrorCode::Cancelled => 130,
        _ => 125,
    }
}

/// Returns one sentence that ends in something to run.
pub(crate) fn hint(error: &SandboxError) -> String {
    hint_of(error, &crate::usage::command())
}

/// The same for an error that this command met.
fn hint_of(error: &SandboxError, command: &str) -> String {
    match error {
        SandboxError::Unavailable { mode, .. } => {
            format!("see what this host lacks and what to do: pinfold doctor --mode {mode}")
        }
        SandboxError::GuaranteeUnmet { guarantees, .. } if guarantees.contains(&Guarantee::Network) => {
            "close the network, or leave the guarantee out: --network off".to_owned()
        }
        SandboxError::GuaranteeUnmet { guarantees, .. } if guarantees.contains(&Guarantee::ProtectedPaths) => {
            "protect names, or leave the guarantee out: --protect default".to_owned()
        }
        SandboxError::GuaranteeUnmet { guarantees, .. } if guarantees.contains(&Guarantee::Terminal) => {
            format!(
                "a terminal that is passed on can be set otherwise; keep it out: pinfold {command} ... </dev/null 2>&1 | cat"
            )
        }
        SandboxError::GuaranteeUnmet { guarantees, .. } if guarantees.contains(&Guarantee::ReadDeny) => {
            "see what is denied and what keeps it from being whole, with the same options: pinfold explain".to_owned()
        }
        SandboxError::GuaranteeUnmet { .. } => {
            "see what is promised for such a call and why, with the same options: pinfold explain".to_owned()
        }
        SandboxError::PreparationFailed { .. } | SandboxError::UnsupportedPolicy { .. } => {
            "see what works on this host: pinfold doctor".to_owned()
        }
        SandboxError::BackendUnknown { .. } => "see the backends of this host: pinfold doctor".to_owned(),
        SandboxError::InvalidTempRoot { .. } => {
            format!("choose a workspace apart from the temp directory: pinfold {command} --workspace DIR")
        }
        SandboxError::InvalidRoot { path, problem, .. } if SESSION.get().is_some() => {
            session_root_hint(path.as_os_str(), problem, session_name())
        }
        SandboxError::InvalidRoot { role, path, problem } => root_hint(*role, path.as_os_str(), problem, command),
        SandboxError::InvalidCommand { .. } => {
            format!("put the command after two dashes: pinfold {command} -- COMMAND ARGUMENT...")
        }
        SandboxError::InvalidPolicy { .. } => format!("see the options and their words: pinfold {command} --help"),
        SandboxError::FileDenied { .. } => "see what may be written: pinfold explain".to_owned(),
        SandboxError::CommandNotFound { program } => {
            format!("check the spelling and PATH: command -v -- {}", shell_word(program))
        }
        SandboxError::CommandNotExecutable { program, .. } => {
            format!("look at the file and its first line: ls -l -- {}", shell_word(program))
        }
        SandboxError::Cancelled => "nothing ran; to try again, repeat the command".to_owned(),
    }
}

fn root_hint(role: RootRole, path: &OsStr, problem: &RootProblem, command: &str) -> String {
    let option = match role {
        RootRole::Workspace => "--workspace",
        RootRole::Additional => "--writable",
    };
    let word = shell_word(path);
    match problem {
        RootProblem::Missing => format!("create it first: mkdir -p -- {word}"),
        RootProblem::NotDirectory => format!("name the directory that holds it: {option}=\"$(dirname -- {word})\""),
        RootProblem::Symlink => format!("name the directory it leads to: {option}=\"$(readlink -f -- {word})\""),
        RootProblem::Changed | RootProblem::Unreadable(_) => {
            format!("choose another directory, or look at this one: ls -ld -- {word}")
        }
        RootProblem::Relative | RootProblem::NulByte | RootProblem::Refused(_) => {
            format!("name another directory: pinfold {command} {option} DIR")
        }
    }
}

/// The same where roots are not named on the command line.
fn session_root_hint(path: &OsStr, problem: &RootProblem, session: &str) -> String {
    let word = shell_word(path);
    match problem {
        RootProblem::Missing => format!("create it, or take the grant back: mkdir -p -- {word}"),
        RootProblem::Symlink => format!("name the directory it leads to: readlink -f -- {word}"),
        RootProblem::NotDirectory | RootProblem::Changed | RootProblem::Unreadable(_) => {
            format!("look at it: ls -ld -- {word}")
        }
        RootProblem::Relative | RootProblem::NulByte | RootProblem::Refused(_) => {
            format!("see the session's directory and what is granted: pinfold session show {session}")
        }
    }
}

/// Writes a word so that a POSIX shell (with `$'…'` for what cannot be printed) reads it back.
pub(crate) fn shell_word(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./,:+@%=".contains(&byte);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.bytes().all(plain) => text.to_owned(),
        Some(text) if quote(text).len() == text.len() + 2 => format!("'{}'", text.replace('\'', r"'\''")),
        _ => dollar_quoted(word.as_encoded_bytes()),
    }
}

/// Writes what cannot be printed as bash reads it back.
///
/// SECURITY: what a terminal obeys does not reach it; and no quotation mark stands inside, because a shell that does not know
/// `$'…'` would take it for the end.
pub(crate) fn dollar_quoted(bytes: &[u8]) -> String {
    let mut out = String::from("$'");
    for byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'\'' => out.push_str("\\x27"),
            b' '..=b'~' => out.push(char::from(*byte)),
            other => out.push_str(&format!("\\x{other:02x}")),
        }
    }
    out.push('\'');
    out
}

/// Prints an answer, or says why there is none; returns the exit status.
pub(crate) fn print_or_complain<E: Into<SessionError>>(answer: Result<String, E>, form: Form) -> u8 {
    match answer.map(|text| print(&text)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            say(&format!("error: standard output: {error}"));
            125
        }
        Err(error) => {
            let error = error.into();
            complain_session(&error, form);
            session_status(&error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped_in_json() {
        let text = "a\u{1b}[2J \u{9b}2J \u{7f} \u{202e}x\u{2066} \u{2028} ä \u{1f600} \\u202e";
        let line = one_line(&[text]);
        let shown = line.chars().all(|character| !character.is_control());
        assert!(shown && !line.contains(['\u{202e}', '\u{2066}', '\u{2028}']), "{line:?}");
        assert!(line.contains("\\u009b2J \\u007f \\u202ex\\u2066") && line.contains('ä'), "{line}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&line).unwrap(), [text]);
    }
    use std::process::Command;

    #[test]
    fn a_shell_reads_every_word_back() {
        use std::os::unix::ffi::OsStrExt as _;
        let words: [&[u8]; 9] = [
            b"",
            b"plain",
            b"/a b",
            b"it's",
            b"$(id)",
            b"two\nlines",
            b"back\\slash'",
            b"\xff\xfe",
            "gr\u{fc}n".as_bytes(),
        ];
        for word in words {
            let script = format!("printf %s {}", shell_word(OsStr::from_bytes(word)));
            let output = Command::new("bash").arg("-c").arg(&script).output().unwrap();
            assert_eq!(output.stdout, word, "{script}");
        }
    }

    #[test]
    fn what_arguments_can_mend_exits_with_two() {
        let invalid = SandboxError::InvalidPolicy { detail: String::new() };
        assert_eq!(exit_status(&invalid), 2);
        assert_eq!(exit_status(&SandboxError::CommandNotFound { program: "x".into() }), 127);
        let mode = pinfold_policy::ConfinedMode::ReadOnly;
        assert_eq!(exit_status(&SandboxError::Unavailable { mode, causes: vec![], runner_failure: None }), 125);
    }

    #[test]
    fn a_hint_names_the_option_and_the_command_that_it_is_about() {
        let refused = |role| SandboxError::InvalidRoot {
            role,
            path: "/etc".into(),
            problem: RootProblem::Refused("it is a system directory".to_owned()),
        };
        let hint = |error, command| hint_of(&error, command);
        assert_eq!(hint(refused(RootRole::Additional), "run"), "name another directory: pinfold run --writable DIR");
        assert_eq!(
            hint(refused(RootRole::Workspace), "explain"),
            "name another directory: pinfold explain --workspace DIR"
        );
        let invalid = SandboxError::InvalidPolicy { detail: String::new() };
        assert!(hint(invalid, "doctor").ends_with("pinfold doctor --help"));
        let unmet = |guarantee| SandboxError::GuaranteeUnmet { backend: "x".to_owned(), guarantees: vec![guarantee] };
        assert!(hint(unmet(Guarantee::Network), "run").ends_with("--network off"));
    }

    #[test]
    fn a_root_s_hint_names_the_root() {
        let error = SandboxError::InvalidRoot {
            role: RootRole::Additional,
            path: "/a b".into(),
            problem: RootProblem::Symlink,
        };
        assert_eq!(hint(&error), "name the directory it leads to: --writable=\"$(readlink -f -- '/a b')\"");
    }
}
