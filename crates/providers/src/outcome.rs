//! From what a process and its launcher said to how a call ended. Pure but for the environment it starts from.

use crate::call::{Captured, EnvChange};
use crate::canary::said;
use crate::chain::Refusal;
use crate::linux_namespace::probe::explain_failure;
use crate::run::{Ended, Stopped};
use crate::status::Status;
use pinfold_policy::quote::quote;
use pinfold_policy::{
    Classification, Denial, Dialect, Ending, ErrorCode, SandboxError, SessionId, Signal, StatusEvidence, Stop,
};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

/// How an attempt under one mechanism ended.
pub(crate) enum Attempted {
    /// The call is over, whether the command ran or not.
    Over { ending: Ending, denials: Vec<Denial>, evidence: StatusEvidence, stdout: Captured, stderr: Captured },
    /// The walls do not stand and nothing ran; another mechanism may do better.
    NotConfined { refusal: Refusal, runner_failure: String, stdout: Captured, stderr: Captured },
}

/// Reads how an attempt ended.
pub(crate) fn interpret(
    ended: io::Result<Ended>,
    runner: &OsStr,
    program: &OsStr,
    has_channel: bool,
    dialect: &Dialect,
    timeout: Option<Duration>,
) -> Attempted {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => return not_spawned(&error, runner, program),
    };
    if has_channel { by_channel(ended, program, dialect, timeout) } else { by_text(ended, dialect, timeout) }
}

fn not_spawned(error: &io::Error, runner: &OsStr, program: &OsStr) -> Attempted {
    if rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::TOOBIG) {
        // The command's own arguments are too long for any process.
        return over(not_executed(rustix::io::Errno::TOOBIG.raw_os_error(), program));
    }
    let reason = format!("cannot start {}: {error}", quote(runner));
    Attempted::NotConfined {
        refusal: Refusal::new(&reason, ""),
        runner_failure: reason,
        stdout: Captured::default(),
        stderr: Captured::default(),
    }
}

fn over(ending: Ending) -> Attempted {
    Attempted::Over {
        ending,
        denials: Vec::new(),
        evidence: StatusEvidence::Channel,
        stdout: Captured::default(),
        stderr: Captured::default(),
    }
}

fn by_channel(ended: Ended, program: &OsStr, dialect: &Dialect, timeout: Option<Duration>) -> Attempted {
    let status = Status::parse(&ended.status);
    let Ended { exit, stdout, stderr, stopped, .. } = &ended;
    let (stdout, stderr) = (stdout.clone(), stderr.clone());
    if let Some(why) = stopped {
        let then = status.command_ran().then(|| stop(&status, *exit));
        let evidence = StatusEvidence::Channel;
        return Attempted::Over {
            ending: ended_by_us(*why, then, timeout),
            denials: status.denials,
            evidence,
            stdout,
            stderr,
        };
    }
    if let Some(errno) = status.exec_failed {
        let ending = not_executed(errno, program);
        return Attempted::Over { ending, denials: Vec::new(), evidence: StatusEvidence::Channel, stdout, stderr };
    }
    if let Some(failure) = &status.setup_failed {
        let described = failure.describe();
        let code = failure.known_stage().map_or(ErrorCode::Unavailable, |stage| stage.error_code());
        if code == ErrorCode::Unavailable {
            let refusal = explain_failure(failure);
            return Attempted::NotConfined { refusal, runner_failure: described, stdout, stderr };
        }
        let meaning = failure.known_stage().map_or("", |stage| stage.meaning());
        let ending = Ending::NotStarted { code, detail: format!("{described} ({})", meaning.trim_end_matches('.')) };
        return Attempted::Over { ending, denials: Vec::new(), evidence: StatusEvidence::Channel, stdout, stderr };
    }
    if !status.command_ran() {
        let reason = format!("the launcher did not report that the walls stand ({exit}){}", said(&ended));
        let refusal = Refusal::new(&reason, "");
        return Attempted::NotConfined { refusal, runner_failure: reason, stdout, stderr };
    }
    let told = status.exited.is_some() || status.signaled.is_some();
    let stop = stop(&status, *exit);
    // A supervised command that ended without a word lost its launcher; what the wait says is about the launcher.
    let evidence = if told { StatusEvidence::Channel } else { StatusEvidence::Inferred };
    // What the broker told outranks what the command's text looks like.
    let denials = if status.denials.is_empty() { denials(stop, dialect, &stderr) } else { status.denials };
    Attempted::Over { ending: stop.into(), denials, evidence, stdout, stderr }
}

fn by_text(ended: Ended, dialect: &Dialect, timeout: Option<Duration>) -> Attempted {
    let stop = stop_of(ended.exit);
    let Ended { stdout, stderr, stopped, .. } = ended;
    let evidence = StatusEvidence::Inferred;
    if let Some(why) = stopped {
        let ending = ended_by_us(why, Some(stop), timeout);
        return Attempted::Over { ending, denials: Vec::new(), evidence, stdout, stderr };
    }
    let code = if let Stop::Exited { code } = stop { Some(code) } else { None };
    if let Classification::RunnerFailure(line) = dialect.classify(code, &stderr.bytes) {
        let refusal = Refusal::new(format!("the runner failed: {}", quote(&line)), "");
        return Attempted::NotConfined { refusal, runner_failure: line, stdout, stderr };
    }
    let denials = denials(stop, dialect, &stderr);
    Attempted::Over { ending: stop.into(), denials, evidence, stdout, stderr }
}

/// How a process that nothing confined ended.
pub(crate) fn unconfined(
    ended: io::Result<Ended>,
    program: &OsStr,
    timeout: Option<Duration>,
) -> (Ending, Captured, Captured) {
    match ended {
        Ok(Ended { exit, stdout, stderr, stopped, .. }) => {
            let stop = stop_of(exit);
            let ending = stopped.map_or(stop.into(), |why| ended_by_us(why, Some(stop), timeout));
            (ending, stdout, stderr)
        }
        Err(error) => {
            let ending = not_executed(error.raw_os_error().unwrap_or(0), program);
            (ending, Captured::default(), Captured::default())
        }
    }
}

fn ended_by_us(why: Stopped, then: Option<Stop>, timeout: Option<Duration>) -> Ending {
    match why {
        Stopped::TimedOut => {
            let after = timeout.unwrap_or_default().as_millis();
            Ending::TimedOut { after_ms: u64::try_from(after).unwrap_or(u64::MAX), then }
        }
        Stopped::Cancelled => Ending::Cancelled { then },
    }
}

fn not_executed(errno: i32, program: &OsStr) -> Ending {
    use rustix::io::Errno;
    let program = program.to_owned();
    // The number comes from a report and may be none; so it is compared as one.
    let error = match errno {
        _ if [Errno::NOENT, Errno::NOTDIR].map(Errno::raw_os_error).contains(&errno) => {
            SandboxError::CommandNotFound { program }
        }
        _ => SandboxError::CommandNotExecutable { program, reason: io::Error::from_raw_os_error(errno).to_string() },
    };
    Ending::NotStarted { code: error.code(), detail: error.to_string() }
}

/// How the command stopped: what the launcher reported, else how the launcher itself ended, which is the same way.
fn stop(status: &Status, exit: ExitStatus) -> Stop {
    if let Some(code) = status.exited {
        return Stop::Exited { code };
    }
    match status.signaled.and_then(Signal::from_number) {
        Some(signal) => Stop::Signaled { signal },
        // Bubblewrap, when everything inside was killed, has only an exit status to say so.
        None => match exit.code().and_then(|code| Signal::from_number(code - 128)) {
            Some(signal) => Stop::Signaled { signal },
            None => stop_of(exit),
        },
    }
}

fn stop_of(exit: ExitStatus) -> Stop {
    match exit.signal().and_then(Signal::from_number) {
        Some(signal) => Stop::Signaled { signal },
        None => Stop::Exited { code: exit.code().unwrap_or(-1) },
    }
}

fn denials(stop: Stop, dialect: &Dialect, stderr: &Captured) -> Vec<Denial> {
    let Stop::Exited { code } = stop else { return Vec::new() };
    match dialect.classify(Some(code), &stderr.bytes) {
        Classification::Denied(lines) => lines.into_iter().map(Denial::inferred).collect(),
        // The launcher's own words would have come with a status that says so.
        Classification::RunnerFailure(_) | Classification::Ordinary => {
            let without_rules = Dialect { runner_failure_rules: Vec::new(), ..dialect.clone() };
            match without_rules.classify(Some(code), &stderr.bytes) {
                Classification::Denied(lines) => lines.into_iter().map(Denial::inferred).collect(),
                _ => Vec::new(),
            }
        }
    }
}

/// Our environment with changes.
pub(crate) fn environment(changes: &[EnvChange]) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    for change in changes {
        match change {
            EnvChange::Clear => variables.clear(),
            EnvChange::Remove(name) => variables.retain(|(known, _)| known != name),
            EnvChange::Set(name, value) => {
                variables.retain(|(known, _)| known != name);
                variables.push((name.clone(), value.clone()));
            }
        }
    }
    variables
}

/// The name of a session's files: readable where it can be, and never the same for two sessions.
pub(crate) fn owner_of_session(session: &SessionId) -> String {
    let mut name = "session-".to_owned();
    for byte in session.as_str().bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => name.push(char::from(byte)),
            _ => name.push_str(&format!("_{byte:02x}")),
        }
    }
    if name.len() <= 200 {
        return name;
    }
    // Too long for a file name. The suffix is not secret: a session that could choose its identity could as well
    // choose another's.
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hashers = [DefaultHasher::new(), DefaultHasher::new()];
    1_u8.hash(&mut hashers[1]);
    let [one, other] = hashers.map(|mut hasher| {
        session.hash(&mut hasher);
        hasher.finish()
    });
    format!("{}_.{one:016x}{other:016x}", &name[..150])
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinfold_policy::dialect::launcher_namespace;

    fn ended(status: &str, exit: i32, stderr: &str) -> Ended {
        Ended {
            exit: ExitStatus::from_raw(exit),
            status: status.as_bytes().to_vec(),
            stdout: Captured::default(),
            stderr: Captured { bytes: stderr.as_bytes().to_vec(), total: stderr.len() as u64 },
            stopped: None,
        }
    }

    fn read(ended: Ended) -> Attempted {
        interpret(Ok(ended), "/r".as_ref(), "cmd".as_ref(), true, &launcher_namespace(), None)
    }

    const CONFINED: &str = "confined landlock=7 namespaces=none seccomp=1\nstarted\n";

    #[test]
    // Case W25.
    fn the_channel_outranks_what_the_command_prints() {
        let forged = ended(&format!("{CONFINED}exited 125\n"), 125 << 8, "pinfold-run: nothing was executed\n");
        let Attempted::Over { ending, evidence, .. } = read(forged) else { panic!("the command ran") };
        assert_eq!((ending, evidence), (Ending::Exited { code: 125 }, StatusEvidence::Channel));
    }

    #[test]
    fn silence_is_a_command_that_did_not_run() {
        for status in ["", "confined landlock=7"] {
            assert!(matches!(read(ended(status, 0, "")), Attempted::NotConfined { .. }));
        }
    }

    #[test]
    fn a_changed_root_is_final_and_a_missing_wall_is_not() {
        let changed = read(ended("setup-failed root-changed 0 other directory\n", 125 << 8, ""));
        let Attempted::Over { ending: Ending::NotStarted { code, detail }, .. } = changed else { panic!("final") };
        assert_eq!(code, ErrorCode::InvalidRoot);
        assert!(detail.starts_with("launcher/root-changed: other directory"), "{detail}");
        assert!(matches!(read(ended("setup-failed mount-proc 1 x\n", 125 << 8, "")), Attempted::NotConfined { .. }));
    }

    #[test]
    fn a_command_that_cannot_be_executed_says_why() {
        for (errno, code) in [
            (2, ErrorCode::CommandNotFound),
            (20, ErrorCode::CommandNotFound),
            (13, ErrorCode::CommandNotExecutable),
            (0, ErrorCode::CommandNotExecutable),
        ] {
            let status = format!("confined landlock=7 namespaces=none seccomp=1\nexec-failed {errno}\n");
            let Attempted::Over { ending: Ending::NotStarted { code: got, .. }, .. } =
                read(ended(&status, 127 << 8, ""))
            else {
                panic!("final")
            };
            assert_eq!(got, code);
        }
    }

    #[test]
    fn refusals_are_read_from_text_only_beside_a_failure() {
        let text = "touch: cannot touch 'x': Read-only file system\n";
        let Attempted::Over { denials, .. } = read(ended(&format!("{CONFINED}exited 1\n"), 1 << 8, text)) else {
            panic!("the command ran")
        };
        assert_eq!(denials, [Denial::inferred("touch: cannot touch 'x': Read-only file system")]);
        let Attempted::Over { denials, .. } = read(ended(&format!("{CONFINED}exited 0\n"), 0, text)) else {
            panic!("the command ran")
        };
        assert!(denials.is_empty());
    }

    #[test]
    fn sessions_do_not_share_names() {
        let owner = |text: &str| owner_of_session(&SessionId::new(text));
        assert_eq!(owner("a-1"), "session-a-1");
        assert_eq!(owner("../x"), "session-_2e_2e_2fx");
        assert_ne!(owner("A"), owner("a"));
        let long = "x".repeat(300);
        assert!(owner(&long).len() < 200 && owner(&long) != owner(&format!("{long}y")));
        assert!(!owner(&long).contains('/'));
    }
}
