//! `pinfold run`: start the command, pass its streams and its status through, and say what happened when that
//! is worth a line.

use crate::arguments::Run;
use crate::asking::Terminals;
use crate::configuration::Configured;
use crate::report_file::ReportFile;
use crate::request::Request;
use crate::session_run::{Held, Wanted};
use crate::signals::Watch;
use crate::surroundings::Surroundings;
use crate::voice::{
    Form, complain, complain_session, exit_status, hint, hurry, note_unfinished, one_line, say, say_json,
    session_status,
};
use pinfold_policy::{
    BoundEvidence, Denial, DenialEvidence, Ending, ErrorCode, Outcome, SandboxError, SandboxMode, StatusEvidence,
    quote::quote, validate_command,
};
use pinfold_providers::{HostFileScan, LocalProvider, RunOptions, Stream};
use pinfold_session::SessionError;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;

/// How much of the end of standard error is kept for reading.
const KEPT_BYTES: usize = 64 * 1024;

/// Runs a command and returns the exit status.
pub(crate) fn run(arguments: &Run, provider: &LocalProvider, around: &Surroundings) -> u8 {
    let form = Form::of(arguments.json);
    let begun = Instant::now();
    let refuse = |error: SessionError| {
        complain_session(&error, form);
        session_status(&error)
    };
    let prepared = match Prepared::new(arguments, around) {
        Ok(prepared) => prepared,
        Err(error) => return refuse(error),
    };
    let Prepared { request, configured, mut held, run, host_files } = prepared;
    let watch = match Watch::begin() {
        Ok(watch) => watch,
        Err(error) => {
            say(&format!("error: signals cannot be watched: {error}"));
            return 125;
        }
    };
    let asked = match &mut held {
        Some(held) => held.ask(wanted(arguments), &configured, request, around, &watch.cancel),
        None => Ok(request),
    };
    let ready = asked.and_then(|request| {
        crate::asking::check(arguments, &request)?;
        Ok((report_of(arguments, &request)?, request))
    });
    let (report, request) = match ready {
        Ok(ready) => ready,
        Err(error) => return refuse(error),
    };
    let recorded = match held.as_mut().map(|held| held.begin(&arguments.argv, &request)).transpose() {
        Ok(recorded) => recorded,
        Err(error) => return refuse(error),
    };
    let asks = match crate::asking::asks(arguments, &configured, &request, held.as_ref(), recorded.as_deref()) {
        Ok(asks) => asks,
        Err(error) => return refuse(error),
    };
    let (policy, mut call) = request.split();
    call.notes.extend(configured.notes().iter().cloned());
    call.host_files = host_files;
    call.observe_denials = arguments.observe;
    let mode = held.as_ref().map_or(policy.mode, Held::mode);
    if policy.mode == SandboxMode::DangerFullAccess {
        say(&format!("warning: nothing is confined under {}", policy.mode));
    }
    let closed = call.restrictions.denied_reads.clone();
    let terminals = Terminals::of(arguments);
    let observed = match terminals {
        Terminals::OfTheQuestion => Observation::Copied,
        _ => Observation::of(arguments.json || report.is_some()),
    };
    call.notes.extend(observed.note().into_iter().chain(terminals.note()).map(str::to_owned));
    let [stdin, stdout] = terminals.streams();
    let run = RunOptions { stdin, stdout, stderr: observed.stream(), on_spawn: Some(watch.on_spawn()), asks, ..run };
    let result = provider.run(&arguments.argv, &policy, &call, &run, &watch.cancel);
    watch.ended();
    if let (Some(held), Some(recorded)) = (&held, &recorded) {
        held.end(recorded, result.as_ref().map(|result| &result.outcome));
    }
    let (outcome, status) = match result {
        Ok(result) => {
            let for_a_program = form == Form::Json || report.as_ref().is_some_and(ReportFile::is_standard_error);
            if observed.may_be_unfinished(&result.stderr.bytes, for_a_program) {
                note_unfinished();
            }
            let status = u8::try_from(result.outcome.exit_status()).unwrap_or(125);
            (Ok(result.outcome), status)
        }
        Err(error) => {
            let status = exit_status(&error);
            (Err(error), status)
        }
    };
    let stopped = outcome
        .as_ref()
        .is_ok_and(|outcome| matches!(outcome.ending(), Ending::TimedOut { .. } | Ending::Cancelled { .. }));
    if stopped || watch.exit_status().is_some() {
        hurry();
    }
    let status = watch.exit_status().unwrap_or(status);
    let meant = Meant { mode, in_session: held.is_some(), observed: arguments.observe, closed: &closed };
    speak(&outcome, arguments, &meant, form);
    let written = report.is_none_or(|report| {
        let line = match &outcome {
            Ok(outcome) => one_line(outcome),
            Err(error) => one_line(&not_started(error, begun)),
        };
        // `--json` has said the same line at the same place already.
        let said = report.is_standard_error() && form == Form::Json && outcome.is_ok();
        said || report.write(&line).map_err(|error| say(&format!("error: {error}"))).is_ok()
    });
    // A status that says "done" must not stand for a report that is missing.
    if written || status != 0 { status } else { 125 }
}

/// The call as a session sees it.
fn wanted(arguments: &Run) -> Wanted<'_> {
    Wanted { argv: &arguments.argv, tool: "pinfold run", session: &arguments.session }
}

/// Everything that can be checked before anything is started or anybody is asked.
struct Prepared {
    request: Request,
    configured: Configured,
    held: Option<Held>,
    run: RunOptions,
    host_files: HostFileScan,
}

impl Prepared {
    fn new(arguments: &Run, around: &Surroundings) -> Result<Self, SessionError> {
        // A command that cannot be run, and words that mean nothing, are refused before a file is read.
        validate_command(&arguments.argv)?;
        crate::request::execution_mode(arguments.policy.mode.as_deref())?;
        let host_files = crate::host_files::scan(&arguments.host)?;
        let (held, configured) = match &arguments.session.session {
            Some(id) => {
                let (held, configured) = Held::open(id, &arguments.policy, arguments.session.asks(), around)?;
                (Some(held), configured)
            }
            None => (None, Configured::load(&arguments.policy, SandboxMode::WorkspaceWrite, None, None, around)?),
        };
        let mut request = Request::new(&configured.options, &arguments.argv, around)?;
        configured.refuse_open(&request.policy)?;
        if let Some(held) = &held {
            held.complete(&mut request);
        }
        let timeout = arguments.timeout.as_deref().map(crate::request::timeout).transpose()?.or(configured.timeout);
        if arguments.session.session.is_none() {
            crate::asking::check(arguments, &request)?;
        }
        // Nobody is asked for a call whose report has no place.
        report_of(arguments, &request)?;
        let run = RunOptions { timeout, ..RunOptions::default() };
        Ok(Self { request, configured, held, run, host_files })
    }
}

/// The file of the report, which must not lie where the command can write.
fn report_of(arguments: &Run, request: &Request) -> Result<Option<ReportFile>, SessionError> {
    let writable = request.policy.writable_roots();
    let policy = &request.policy;
    let roots: Vec<&Path> = std::iter::once(&policy.workspace_root)
        .chain(&policy.additional_writable_roots)
        .map(std::path::PathBuf::as_path)
        .collect();
    let report = arguments.report.as_ref().map(|file| ReportFile::prepare(Path::new(file), &writable, &roots));
    Ok(report.transpose()?)
}

/// Says whether the command's standard error is read on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Observation {
    /// It is copied through and its end is kept.
    Copied,
    /// It is a terminal, which programs treat otherwise than a pipe.
    Terminal,
    /// It leads where standard output leads, and a copy would change the order of the two.
    Shared,
}

impl Observation {
    /// Decides; `asked` says that somebody wants the outcome, which outranks the order of two shared streams.
    fn of(asked: bool) -> Self {
        let (out, err) = (std::io::stdout(), std::io::stderr());
        if err.is_terminal() {
            Self::Terminal
        } else if !asked && lead_to_the_same_place(&out, &err) {
            Self::Shared
        } else {
            Self::Copied
        }
    }

    fn stream(self) -> Stream {
        match self {
            Self::Copied => Stream::Tee { keep: KEPT_BYTES },
            Self::Terminal | Self::Shared => Stream::Inherit,
        }
    }

    /// Whether standard error may end in the middle of a line. Where that is not known, only a program's line is worth an
    /// empty one before it.
    fn may_be_unfinished(self, kept: &[u8], for_a_program: bool) -> bool {
        match self {
            Self::Copied => kept.last().is_some_and(|last| *last != b'\n'),
            Self::Terminal | Self::Shared => for_a_program,
        }
    }

    fn note(self) -> Option<&'static str> {
        match self {
            Self::Copied => None,
            Self::Terminal => Some(
                "Standard error is a terminal and was not observed: a refusal that only shows in its text is not listed.",
            ),
            Self::Shared => Some(
                "Standard error leads where standard output leads and was not observed: a refusal that only shows in \
                 its text is not listed.",
            ),
        }
    }
}

fn lead_to_the_same_place(one: &impl AsFd, other: &impl AsFd) -> bool {
    let identity = |fd: &dyn Fn() -> std::io::Result<std::os::fd::OwnedFd>| {
        let found = std::fs::File::from(fd()?).metadata()?;
        Ok::<_, std::io::Error>((found.dev(), found.ino()))
    };
    let one = identity(&|| one.as_fd().try_clone_to_owned());
    let other = identity(&|| other.as_fd().try_clone_to_owned());
    matches!((one, other), (Ok(one), Ok(other)) if one == other)
}

/// What a refusal is to be understood by.
struct Meant<'a> {
    /// The mode in force.
    mode: SandboxMode,
    /// Whether more can be asked for.
    in_session: bool,
    /// Whether every refused change is to be told.
    observed: bool,
    /// What was closed for reading.
    closed: &'a [std::path::PathBuf],
}

/// Says what is worth saying, and with `--json` the object.
fn speak(outcome: &Result<Outcome, SandboxError>, arguments: &Run, meant: &Meant<'_>, form: Form) {
    match outcome {
        Err(error) => complain(error, form),
        Ok(outcome) if form == Form::Json => say_json(outcome),
        Ok(outcome) => {
            // A program that reads the report need not be told a second time.
            let reported = arguments.report.is_some() && !std::io::stderr().is_terminal();
            for line in remarks(outcome, &arguments.argv, meant, reported) {
                say(&line);
            }
        }
    }
}

/// Returns what a person needs to know of a call that did not go well: a hint about a refusal is one line, and
/// none if it is `reported` to a program.
fn remarks(outcome: &Outcome, argv: &[OsString], meant: &Meant<'_>, reported: bool) -> Vec<String> {
    let met = outcome.bounds_met().iter().map(|met| {
        format!(
            "the command met its bound on {} ({})",
            met.resource,
            match met.evidence {
                BoundEvidence::Kernel => "the kernel counted it",
                BoundEvidence::Signal => "by the signal that ended it",
            }
        )
    });
    let mut lines: Vec<String> = met.collect();
    lines.extend(match outcome.ending() {
        Ending::NotStarted { code, detail } => {
            vec![format!("error[{code}]: {detail}"), format!("hint: {}", next_step(*code, argv))]
        }
        Ending::TimedOut { after_ms, .. } => {
            vec![format!("the time limit of {after_ms} ms passed; the command was ended")]
        }
        _ if meant.observed && !reported && outcome.ran() => observed(outcome.denials()),
        Ending::Exited { code } if *code != 0 && !reported => {
            denial_hint(outcome.denials(), meant).into_iter().collect()
        }
        _ => Vec::new(),
    });
    if !reported {
        lines.extend(crate::host_files::remarks(outcome));
    }
    lines
}

fn next_step(code: ErrorCode, argv: &[OsString]) -> String {
    let program = argv.first().cloned().unwrap_or_default();
    match code {
        ErrorCode::CommandNotFound => hint(&SandboxError::CommandNotFound { program }),
        ErrorCode::CommandNotExecutable => hint(&SandboxError::CommandNotExecutable { program, reason: String::new() }),
        _ => "see what works on this host: pinfold doctor".to_owned(),
    }
}

/// How many refusals are named.
const MOST_NAMED: usize = 20;

/// Returns a line for each refusal that was observed.
fn observed(denials: &[Denial]) -> Vec<String> {
    let mut lines: Vec<String> =
        denials.iter().take(MOST_NAMED).map(|denial| format!("refused: {}", effect(denial))).collect();
    if denials.len() > MOST_NAMED {
        lines.push(format!("and {} further refusals: see the outcome (--json, --report)", denials.len() - MOST_NAMED));
    }
    lines
}

/// Describes what was refused: `open /etc/x (EROFS), touch[123], 4 times`.
pub(crate) fn effect(denial: &Denial) -> String {
    let mut text = match (&denial.operation, &denial.path, &denial.text) {
        (Some(operation), Some(path), _) => format!("{operation} {}", quote(path)),
        (Some(operation), None, _) => format!("{operation} of a path that is too long to be told"),
        (None, _, Some(text)) => quote(text.trim()),
        (None, ..) => "something".to_owned(),
    };
    let why: Vec<&str> = denial.rule.iter().chain(&denial.errno).map(String::as_str).collect();
    if !why.is_empty() {
        text.push_str(&format!(" ({})", why.join(", ")));
    }
    if let Some(process) = &denial.process {
        text.push_str(&format!(", {}[{}]", process.name, process.pid));
    }
    if denial.count > 1 {
        text.push_str(&format!(", {} times", denial.count));
    }
    text
}

/// Returns the line that tells of a refusal and of the option that would allow it.
///
/// SECURITY: the line may come from the command, which would like to have something allowed. So it is quoted,
/// and no path of it becomes part of a suggestion.
fn denial_hint(denials: &[Denial], meant: &Meant<'_>) -> Option<String> {
    let denial = denials.first()?;
    let mode = meant.mode;
    let closed = match (&denial.path, &denial.text) {
        (Some(path), _) => meant.closed.iter().any(|closed| path.starts_with(closed)),
        (None, Some(text)) => meant.closed.iter().filter_map(|path| path.to_str()).any(|path| text.contains(path)),
        (None, None) => false,
    };
    // A refusal to write is told apart from others by its text only where the tree is read-only.
    let unclear = denial.text.as_ref().is_some_and(|text| text.to_lowercase().contains("permission denied"));
    let what = match &denial.operation {
        _ if closed => "reading",
        Some(operation) => operation.as_str(),
        None if unclear => "access",
        None => "write",
    };
    let evidence = match denial.evidence {
        DenialEvidence::Inferred => " (inferred from its message)",
        DenialEvidence::Kernel | DenialEvidence::Broker => "",
    };
    let told = match (&denial.text, &denial.path) {
        (Some(text), _) => format!(": {}", quote(text.trim())),
        (None, Some(path)) => format!(": {}", quote(path)),
        (None, None) => String::new(),
    };
    let allow = match mode {
        _ if denial.rule.is_some() => "to leave names as writable as their directory: --protect none",
        _ if closed => "to see what is closed for reading: pinfold explain",
        _ if denial.operation.as_deref() == Some("connect") => "to leave a socket within reach: --allow-socket PATH",
        SandboxMode::ReadOnly if meant.in_session => {
            "to ask for more: --escalate workspace-write or --ask-write DIR, with --justification TEXT"
        }
        _ if meant.in_session => "to ask for a directory: --ask-write DIR --justification TEXT",
        SandboxMode::ReadOnly => "to allow the workspace: --mode workspace-write",
        _ => "to allow a directory: --writable DIR",
    };
    Some(format!("{what} refused under {mode}{evidence}{told}; {allow}"))
}

/// Draws up the outcome of a call that ended before a backend was started.
fn not_started(error: &SandboxError, begun: Instant) -> Outcome {
    let ending = match error {
        SandboxError::Cancelled => Ending::Cancelled { then: None },
        error => Ending::NotStarted { code: error.code(), detail: error.to_string() },
    };
    let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Outcome::new(ending, Vec::new(), StatusEvidence::Channel, None, took)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(denials: Vec<Denial>) -> Outcome {
        Outcome::new(Ending::Exited { code: 1 }, denials, StatusEvidence::Channel, None, 1)
    }

    fn meant(mode: SandboxMode) -> Meant<'static> {
        Meant { mode, in_session: false, observed: false, closed: &[] }
    }

    #[test]
    fn a_refused_read_is_not_answered_by_more_to_write() {
        let closed = ["/home/ann/.ssh".into()];
        let outcome = failed(vec![Denial::inferred("cat: /home/ann/.ssh/id: Permission denied")]);
        let told =
            remarks(&outcome, &[], &Meant { closed: &closed, in_session: true, ..meant(SandboxMode::ReadOnly) }, false);
        assert!(told[0].starts_with("reading refused") && !told[0].contains("--escalate"), "{told:?}");
        let connection = Denial {
            operation: Some("connect".to_owned()),
            path: Some("/run/docker.sock".into()),
            ..Denial::known(DenialEvidence::Broker)
        };
        let told = remarks(&failed(vec![connection]), &[], &meant(SandboxMode::WorkspaceWrite), false);
        assert!(told[0].starts_with("connect refused") && told[0].ends_with("--allow-socket PATH"), "{told:?}");
        let outcome = failed(vec![Denial::inferred("touch: /x: Read-only file system")]);
        let told =
            remarks(&outcome, &[], &Meant { closed: &closed, in_session: true, ..meant(SandboxMode::ReadOnly) }, false);
        assert!(told[0].starts_with("write refused") && told[0].contains("--escalate"), "{told:?}");
    }

    #[test]
    fn a_denial_has_one_line_and_quotes_the_command_s_words() {
        let outcome = failed(vec![Denial::inferred("touch: '/etc/x': Read-only file system\u{1b}[2J")]);
        assert_eq!(
            remarks(&outcome, &[], &meant(SandboxMode::WorkspaceWrite), false),
            ["write refused under workspace-write (inferred from its message): \
              \"touch: '/etc/x': Read-only file system\\x1b[2J\"; to allow a directory: --writable DIR"]
        );
    }

    #[test]
    fn success_and_ordinary_failure_are_silent() {
        let done = Outcome::new(Ending::Exited { code: 0 }, vec![], StatusEvidence::Channel, None, 1);
        assert!(remarks(&done, &[], &meant(SandboxMode::ReadOnly), false).is_empty());
        assert!(remarks(&failed(vec![]), &[], &meant(SandboxMode::ReadOnly), false).is_empty());
    }

    #[test]
    fn a_program_that_reads_the_report_is_not_told_twice() {
        let outcome = failed(vec![Denial::inferred("x: Permission denied")]);
        assert!(remarks(&outcome, &[], &meant(SandboxMode::ReadOnly), true).is_empty());
    }
}
