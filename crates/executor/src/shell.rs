//! One shell that keeps its directory and its variables between commands.
//!
//! The shell reads commands from its standard input, which is one end of a socket of ours, and reports each status on the same
//! socket: so status and output never share a channel, and output that looks like a report is output. Commands themselves
//! read from `/dev/null`, and the socket is closed in every program that they start. A report counts only with the random
//! word of its command, which the shell reads no earlier than the command has ended. A command that tampers with its own
//! shell can still lie about its own status, as every command can.
//!
//! What bash does in which order is described in bash(1), "COMMAND EXECUTION ENVIRONMENT" and "eval".

use crate::executor::{Chosen, Executor};
use crate::output::Collector;
use crate::process::{Process, Started};
use crate::render::render_finished;
use crate::request::{ExecutorError, OnExpiry, Spec, validate};
use crate::result::{Finished, SandboxFacts, whole_milliseconds};
use pinfold_policy::escalation::Subject;
use pinfold_policy::markers::runner_failed_marker;
use pinfold_policy::{
    Classification, Denial, DenialEvidence, Ending, ExecutionPolicy, Outcome, Restrictions, SandboxError, SandboxMode,
    SessionId, StatusEvidence, Stop,
};
use pinfold_providers::{CallOptions, Cancel, HostFileLook, HostFilePlaces, HostFileScan, Output, RefusalFeed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a shell may take until it says that it is ready; preparing its walls included.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// As much as a pipe can hold for a user (pipe(7)): what comes after a status in addition is another command's.
const MOST_LEFT: usize = 1 << 20;
/// How often a shell is looked at that closed its socket.
const TICK: Duration = Duration::from_millis(20);

/// Said when the next command meets a fresh shell.
pub const RESET_NOTICE: &str =
    "[shell reset: its directory, variables and background jobs are gone; the next command starts in a fresh shell]";

/// Asks for one command in a persistent shell.
#[derive(Debug, Clone, Default)]
pub struct ShellRequest {
    /// The text.
    pub command: OsString,
    /// How long it may take, in milliseconds; the settings' default and cap apply.
    pub timeout_ms: Option<f64>,
    /// The policy, which names the session; without it, that of the settings.
    pub policy: Option<ExecutionPolicy>,
    /// What the call asks beside its policy, in place of what the settings say.
    pub call: Option<CallOptions>,
    /// Where a fresh shell begins, absolute; without it, in the workspace.
    pub directory: Option<PathBuf>,
}

/// Holds how a command in a persistent shell ended.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShellFinished {
    /// Every fact, as for a command of its own. The status is the one that the shell reports. Refusals that the broker told
    /// are those of the time in which the command ran: what it was refused, and what a job was that an earlier command left
    /// in the background. One that had happened more than 16 times before, and again within 100 ms before the command, may be
    /// missing; then the lines of error output stand for it.
    #[serde(flatten)]
    pub finished: Finished,
    /// What is to be said before the output: that the shell was started anew, and why.
    pub notices: Vec<String>,
    /// How the shell ended, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shell_ended: Option<String>,
}

impl ShellFinished {
    /// Renders it as [`render_finished`] does, with the notices around it.
    pub fn render(&self, hint: Option<Subject>) -> String {
        let mut text = String::new();
        for notice in &self.notices {
            crate::render::push_line(&mut text, notice);
        }
        crate::render::push_line(&mut text, &render_finished(&self.finished, hint));
        for line in self.shell_ended.iter().map(String::as_str).chain(self.shell_ended.as_ref().map(|_| RESET_NOTICE)) {
            crate::render::push_line(&mut text, line);
        }
        text
    }
}

/// A persistent shell of a session. Its commands run one after another; those of other sessions are not waited for.
#[derive(Debug)]
pub struct Shell {
    live: Mutex<Option<Live>>,
    /// Also reachable while a command runs.
    process: Mutex<Option<Process>>,
}

/// A shell that runs.
#[derive(Debug)]
struct Live {
    process: Process,
    policy: ExecutionPolicy,
    restrictions: Restrictions,
    control: UnixStream,
    stdout: File,
    stderr: File,
    chosen: Chosen,
    /// Where commands may leave what tools outside obey.
    places: HostFilePlaces,
    /// What is refused to whatever runs in it.
    refusals: Arc<RefusalFeed>,
    /// The status of the last command, which `$?` is in the next.
    last: i32,
}

/// Why waiting for a report ended.
enum Waited {
    Reported(i32),
    /// The shell has ended.
    Over,
    TimedOut,
    Cancelled,
}

impl Executor {
    /// Runs a command in the persistent shell of its session, which is started if there is none.
    ///
    /// A shell keeps the policy that it was started with. A command with another one (another mode, another root) has the
    /// shell started anew, and the result says so. After a time limit, a withdrawal or its own end the shell is gone, and the
    /// next command starts a fresh one.
    ///
    /// # Errors
    ///
    /// [`ExecutorError::InvalidCommand`]; [`ExecutorError::NoSession`]; the provider's refusal to start the shell, unchanged;
    /// `SANDBOX_CANCELLED` if the switch was thrown.
    pub fn run_in_shell(&self, request: &ShellRequest, cancel: &Cancel) -> Result<ShellFinished, ExecutorError> {
        validate(&request.command)?;
        let policy = request.policy.clone().unwrap_or_else(|| self.config.policy.clone());
        let session = policy.session_id.clone().ok_or(ExecutorError::NoSession)?;
        let timeout = self.limits.clamp(request.timeout_ms, self.limits.shell_timeout)?;
        let shell = Arc::clone(
            self.shells
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(session)
                .or_insert_with(|| Arc::new(Shell { live: Mutex::default(), process: Mutex::default() })),
        );
        shell.run(self, request, &policy, timeout, cancel)
    }

    /// Ends the persistent shell of a session; its next command starts a fresh one.
    pub fn end_shell(&self, session: &SessionId) {
        let shell = self.shells.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
        if let Some(shell) = shell {
            shell.close();
        }
    }
}

impl Shell {
    /// Ends the shell, also in the middle of a command.
    pub(crate) fn close(&self) {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(process) = process {
            process.kill();
            process.done();
        }
    }

    fn run(
        &self,
        executor: &Executor,
        request: &ShellRequest,
        policy: &ExecutionPolicy,
        timeout: Duration,
        cancel: &Cancel,
    ) -> Result<ShellFinished, ExecutorError> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        // The time of a command that waits for its turn begins with its turn.
        let begun = Instant::now();
        if cancel.is_cancelled() {
            return Err(SandboxError::Cancelled.into());
        }
        let mut notices = Vec::new();
        let call = request.call.clone().unwrap_or_else(|| executor.config.call.clone());
        let unfit = |live: &mut Live| {
            live.policy != *policy || live.restrictions != call.restrictions || live.process.finished().is_some()
        };
        if let Some(old) = live.take_if(unfit) {
            notices.push(restart_notice(&old, policy));
            old.process.kill();
            old.process.done();
        }
        let deadline = begun + timeout;
        let mut running = match live.take() {
            Some(running) => running,
            None => {
                let started = Live::start(executor, policy, &call, request.directory.as_deref())?;
                *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(started.process.clone());
                started
            }
        };
        let mut streams = [(); 2].map(|()| Collector::new(executor.limits.output_bytes));
        let places = executor.places(policy, &call, &running.chosen);
        let mut collect = |output: Output, bytes: &[u8]| {
            let index = usize::from(output == Output::Stderr);
            streams[index].push(bytes, &places[index]);
        };
        let nonce = nonce().map_err(|error| ExecutorError::host("a random word", &error))?;
        let before = running.places.look(call.host_files);
        // What came since the last command belongs to jobs that it left in the background.
        drop(running.refusals.take());
        let waited = match running.send(&framed(&request.command, running.last, &nonce), deadline, cancel, &mut collect)
        {
            Ok(()) => running.wait(&nonce, deadline, cancel, &mut collect),
            Err(why) => why,
        };
        let started = running.process.0.started();
        let report = started.as_ref().map(|started| started.report.clone());
        let took = |begun: Instant| whole_milliseconds(begun.elapsed());
        let (outcome, ended) = match waited {
            Waited::Reported(code) => {
                running.last = code;
                let mut denials = denials(code, started.as_ref(), &streams[1]);
                told_while_it_ran(&mut denials, running.refusals.take());
                let ending = Ending::Exited { code };
                *live = Some(running);
                (Outcome::new(ending, denials, StatusEvidence::Inferred, report, took(begun)), None)
            }
            other => {
                if !matches!(other, Waited::Over) {
                    running.process.kill();
                }
                let end = running.process.done();
                running.drain(&mut |output, bytes| {
                    let index = usize::from(output == Output::Stderr);
                    streams[index].push(bytes, &places[index]);
                });
                if matches!(other, Waited::Cancelled) {
                    return Err(SandboxError::Cancelled.into());
                }
                if let Some(error) = &end.error {
                    return Err(error.clone().into());
                }
                let then = end.outcome.ending().stop();
                let (ending, said) = match other {
                    Waited::TimedOut => (Ending::TimedOut { after_ms: whole_milliseconds(timeout), then }, None),
                    _ => (end.outcome.ending().clone(), Some(ended_text(then))),
                };
                let evidence = end.outcome.status_evidence();
                let text = said.unwrap_or_else(|| "[shell ended: its command did not end in time]".to_owned());
                let mut denials: Vec<_> = end.outcome.denials().to_vec();
                denials.retain(|denial| denial.evidence != DenialEvidence::Broker);
                told_while_it_ran(&mut denials, running.refusals.take());
                (Outcome::new(ending, denials, evidence, report, took(begun)), Some(text))
            }
        };
        let outcome = outcome.with_host_files(before.map(HostFileLook::compare));
        let mut finish = |index: usize| {
            let output = streams[index].finish();
            executor.keep(policy.session_id.clone(), streams[index].take_spill());
            output
        };
        let (stdout, stderr) = (finish(0), finish(1));
        let sandbox = SandboxFacts::of(policy.mode, &outcome);
        let finished = Finished { outcome, error: None, stdout, stderr, timeout, sandbox };
        Ok(ShellFinished { finished, notices, shell_ended: ended })
    }
}

/// Why the shell that a command meets is a fresh one.
fn restart_notice(old: &Live, policy: &ExecutionPolicy) -> String {
    let why = if old.process.finished().is_some() {
        "it had ended".to_owned()
    } else if old.policy.mode != policy.mode {
        format!("the mode is now {}", policy.mode)
    } else if old.policy != *policy {
        "what may be written has changed".to_owned()
    } else {
        "what is closed has changed".to_owned()
    };
    format!("[shell restarted: {why}; its directory, variables and background jobs are gone]")
}

fn ended_text(stop: Option<Stop>) -> String {
    match stop {
        Some(Stop::Exited { code }) => format!("[shell exited: code {code}]"),
        Some(Stop::Signaled { signal }) => format!("[shell killed by signal: {signal}]"),
        None => "[shell exited]".to_owned(),
    }
}

fn denials(code: i32, started: Option<&Started>, stderr: &Collector) -> Vec<Denial> {
    let Some(started) = started else { return Vec::new() };
    // The shell runs, so nothing that its commands print is a failure of the runner.
    let dialect = pinfold_policy::Dialect { runner_failure_rules: Vec::new(), ..started.dialect.clone() };
    match dialect.classify(Some(code), stderr.tail()) {
        Classification::Denied(lines) => lines.into_iter().map(Denial::inferred).collect(),
        Classification::RunnerFailure(_) | Classification::Ordinary => Vec::new(),
    }
}

/// Adds what was told on the status channel while a command ran: what it was refused, and what a job in the background was.
fn told_while_it_ran(denials: &mut Vec<Denial>, told: Vec<Denial>) {
    if !told.is_empty() {
        // They say which path and which rule; lines of error output say the same with less.
        *denials = told;
    }
}

/// What the shell reads: `$?` as it was, the command, and then the report. Each is a line of its own, and bash reads a line
/// only when the one before is done.
fn framed(command: &OsString, last: i32, nonce: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(command.len() + 128);
    if last != 0 {
        text.extend_from_slice(format!("(\\builtin exit {last})\n").as_bytes());
    }
    text.extend_from_slice(b"\\builtin eval '");
    for byte in command.as_encoded_bytes() {
        match byte {
            b'\'' => text.extend_from_slice(b"'\\''"),
            other => text.push(*other),
        }
    }
    // QUIRK: after a text that ends within quotes, bash (5.2) takes the next word for no reserved one. An empty line mends it.
    text.extend_from_slice(b"' </dev/null\n\n");
    text.extend_from_slice(&report(nonce));
    text
}

/// The line that reports. `set -x` of a command does not show it.
fn report(nonce: &str) -> Vec<u8> {
    format!("{{ \\builtin printf '{nonce} %d\\0' \"$?\" >&0; }} 2>/dev/null\n").into_bytes()
}

/// A word that nobody can guess.
fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What is taken from the shell's streams.
type Take<'a> = &'a mut dyn FnMut(Output, &[u8]);

impl Live {
    /// Starts a shell and waits until it says that it is ready.
    fn start(
        executor: &Executor,
        policy: &ExecutionPolicy,
        call: &CallOptions,
        directory: Option<&Path>,
    ) -> Result<Self, ExecutorError> {
        let host = |error: io::Error| ExecutorError::host("the pipes of a shell", &error);
        let (control, theirs) = UnixStream::pair().map_err(host)?;
        let (stdout, their_stdout) = io::pipe().map_err(host)?;
        let (stderr, their_stderr) = io::pipe().map_err(host)?;
        control.set_nonblocking(true).map_err(host)?;
        let (stdout, stderr) = (File::from(OwnedFd::from(stdout)), File::from(OwnedFd::from(stderr)));
        for pipe in [&stdout, &stderr] {
            let flags = rustix::fs::fcntl_getfl(pipe).map_err(|error| host(error.into()))?;
            rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK).map_err(|error| host(error.into()))?;
        }
        let (environment, notes) = executor.environment(policy, call, &[])?;
        let spec = Spec {
            argv: ["bash", "--noprofile", "--norc"].map(OsString::from).into(),
            workdir: directory.unwrap_or(&policy.workspace_root).to_owned(),
            timeout: executor.limits.shell_timeout,
            on_expiry: OnExpiry::Nothing,
            max_bytes: (executor.limits.output_bytes, executor.limits.output_bytes),
            stdin: None,
            environment,
            notes,
            policy: policy.clone(),
            // Each of its commands is looked at by itself.
            call: CallOptions { host_files: HostFileScan::Skip, ..call.clone() },
        };
        let places = HostFilePlaces::of(policy);
        let given: [OwnedFd; 3] = [theirs.into(), their_stdout.into(), their_stderr.into()];
        let refusals = Arc::new(RefusalFeed::default());
        let given = given.map(|fd| Some(Arc::new(fd)));
        let (process, chosen) = executor.launch_told(&spec, given, Some(Arc::clone(&refusals)))?;
        let restrictions = call.restrictions.clone();
        let mut live = Self {
            process,
            policy: policy.clone(),
            restrictions,
            control,
            stdout,
            stderr,
            chosen,
            places,
            refusals,
            last: 0,
        };
        let nonce = nonce().map_err(|error| ExecutorError::host("a random word", &error))?;
        let deadline = Instant::now() + READY_WITHIN;
        let mut said = Vec::new();
        let mut take = |_: Output, bytes: &[u8]| said.extend_from_slice(&bytes[..bytes.len().min(4096)]);
        let waited = match live.send(&report(&nonce), deadline, &Cancel::new(), &mut take) {
            Ok(()) => live.wait(&nonce, deadline, &Cancel::new(), &mut take),
            Err(why) => why,
        };
        if matches!(waited, Waited::Reported(_)) {
            return Ok(live);
        }
        live.process.kill();
        let end = live.process.done();
        if let Some(error) = &end.error {
            return Err(error.clone().into());
        }
        // The sandbox's own failure keeps its code; everything else is a shell that did not begin.
        let detail = match end.outcome.ending() {
            Ending::NotStarted { detail, .. } => {
                let marker = match policy.mode {
                    SandboxMode::ReadOnly => Some(pinfold_policy::ConfinedMode::ReadOnly),
                    SandboxMode::WorkspaceWrite => Some(pinfold_policy::ConfinedMode::WorkspaceWrite),
                    SandboxMode::DangerFullAccess => None,
                };
                let failed = SandboxFacts::of(policy.mode, &end.outcome).runner_failed;
                let marker = marker.filter(|_| failed).map(runner_failed_marker).unwrap_or_default();
                format!(": {detail} {marker}")
            }
            _ => format!(": {}", String::from_utf8_lossy(&said).trim()),
        };
        Err(ExecutorError::NotInitialized(detail.trim_end_matches([' ', ':']).to_owned()))
    }

    /// Writes to the shell, and meanwhile reads what it writes.
    fn send(&mut self, text: &[u8], deadline: Instant, cancel: &Cancel, take: Take<'_>) -> Result<(), Waited> {
        let mut rest = text;
        while !rest.is_empty() {
            match (&self.control).write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.look(PollFlags::OUT, deadline, cancel)?;
                    self.read(take);
                }
                // It has closed its end: it will be found to have ended.
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Waits for the report of the command with this word.
    fn wait(&mut self, nonce: &str, deadline: Instant, cancel: &Cancel, take: Take<'_>) -> Waited {
        let mut heard = Vec::new();
        let mut closed = false;
        loop {
            let wanted = if closed { PollFlags::empty() } else { PollFlags::IN };
            if let Err(why) = self.look(wanted, deadline, cancel) {
                return why;
            }
            self.read(take);
            let mut buffer = [0; 512];
            match self.control.read(&mut buffer) {
                Ok(0) => closed = true,
                Ok(count) => heard.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => closed = true,
            }
            if let Some(code) = reported(&mut heard, nonce) {
                // What the command wrote is in the pipes.
                self.read(take);
                return Waited::Reported(code);
            }
            if self.process.finished().is_some() {
                self.drain(take);
                return Waited::Over;
            }
        }
    }

    /// Waits until there is something to do.
    fn look(&self, control: PollFlags, deadline: Instant, cancel: &Cancel) -> Result<(), Waited> {
        if cancel.is_cancelled() {
            return Err(Waited::Cancelled);
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(Waited::TimedOut);
        }
        // The end of the shell is no event of these, because our own copies of its streams are open until it is over; the
        // socket's is, as soon as the shell closes it.
        let woken = cancel.descriptor();
        let mut wanted = vec![PollFd::new(&self.stdout, PollFlags::IN), PollFd::new(&self.stderr, PollFlags::IN)];
        if !control.is_empty() {
            wanted.push(PollFd::new(&self.control, control));
        }
        if let Ok(woken) = &woken {
            wanted.push(PollFd::from_borrowed_fd(woken.as_fd(), PollFlags::IN));
        }
        let most = deadline - now;
        let most = most.min(TICK);
        let timeout = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
        // Whatever it says, the streams are looked at next.
        let _ = poll(&mut wanted, Some(&timeout));
        Ok(())
    }

    /// Reads what is there, but no more than a pipe can hold at once.
    fn read(&self, take: Take<'_>) {
        for (output, mut pipe) in [(Output::Stdout, &self.stdout), (Output::Stderr, &self.stderr)] {
            let mut buffer = [0; 16 << 10];
            let mut most = MOST_LEFT;
            while most > 0 {
                match pipe.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => {
                        take(output, &buffer[..count]);
                        most = most.saturating_sub(count);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
    }

    /// Reads what a shell left that has ended.
    fn drain(&self, take: Take<'_>) {
        self.read(take);
    }
}

/// Finds the report with this word; anything else that was heard is not ours.
fn reported(heard: &mut Vec<u8>, nonce: &str) -> Option<i32> {
    while let Some(end) = heard.iter().position(|byte| *byte == 0) {
        let report: Vec<u8> = heard.drain(..=end).collect();
        let text = std::str::from_utf8(&report[..end]).unwrap_or_default();
        let code = text.strip_prefix(nonce).and_then(|rest| rest.strip_prefix(' ')).and_then(|code| code.parse().ok());
        if code.is_some() {
            return code;
        }
    }
    // A report is short; a flood is none.
    if heard.len() > 4096 {
        heard.clear();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U424, U435: only the right word with digits and its end counts.
    #[test]
    fn a_report_counts_only_with_its_word() {
        let read = |text: &[u8]| reported(&mut text.to_vec(), "ab12");
        assert_eq!(read(b"ab12 7\0"), Some(7));
        assert_eq!(read(b"cd34 7\0ab12 0\0"), Some(0));
        for text in [&b"ab12 7"[..], b"ab12 \0", b"ab12\0", b"xab12 7\0", b"ab12 x\0", b"\xff\0", b""] {
            assert_eq!(read(text), None, "{text:?}");
        }
        let mut flood = vec![b'x'; 5000];
        assert_eq!((reported(&mut flood, "ab12"), flood.len()), (None, 0));
    }

    #[test]
    fn a_command_is_quoted_whole() {
        let text = framed(&"echo 'a b'\n'".into(), 3, "n");
        let expected = "(\\builtin exit 3)\n\\builtin eval 'echo '\\''a b'\\''\n'\\''' </dev/null\n\n\
                        { \\builtin printf 'n %d\\0' \"$?\" >&0; } 2>/dev/null\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        assert_ne!(nonce().unwrap(), nonce().unwrap());
        assert_eq!(nonce().unwrap().len(), 32);
    }

    /// U428.
    #[test]
    fn a_shell_s_end_is_said() {
        let signal = pinfold_policy::Signal::from_number(9).unwrap();
        assert_eq!(ended_text(Some(Stop::Exited { code: 3 })), "[shell exited: code 3]");
        assert_eq!(ended_text(Some(Stop::Signaled { signal })), "[shell killed by signal: SIGKILL]");
        assert_eq!(ended_text(None), "[shell exited]");
    }
}
