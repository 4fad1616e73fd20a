//! The shell: in the foreground, in the background, and from the one into the other when time is up.

use crate::ask::Asker;
use crate::core::{Act, Core, Ready, Widened, locked};
use crate::tools::Hold;
use crate::tools::arguments::{Arguments, Escalation};
use crate::tools::hint::{Hint, with_proved};
use crate::tools::reply::{Refusal, Reply, done};
use pinfold_executor::render::{render_finished, render_read};
use pinfold_executor::{ExecutorError, Finished, OnExpiry, Process, Request, ShellRequest, Spec};
use pinfold_policy::escalation::Subject;
use pinfold_policy::{Ending, Outcome, SandboxError, StatusEvidence};
use pinfold_session::Shown;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a waiting call looks whether it was withdrawn.
const LOOK: Duration = Duration::from_millis(20);

/// How long a command that was never started may take to say so.
const LAST_WAIT: Duration = Duration::from_secs(10);

/// What a call asks of the shell.
struct Wanted {
    command: String,
    workdir: Option<String>,
    timeout_ms: Option<f64>,
    background: bool,
    escalation: Escalation,
}

impl Wanted {
    fn read(mut arguments: Arguments, core: &Core, confines: bool) -> Result<Self, Refusal> {
        let command = arguments.required_text("command")?;
        // It is for whoever looks on.
        arguments.required_text("description")?;
        let timeout_ms = arguments.positive("timeoutMs")?;
        let workdir = if core.settings.persistent_shell { None } else { arguments.text("workdir")? };
        let background = arguments.flag("run_in_background")?;
        if background && !core.settings.background {
            let text = "run_in_background is disabled for this deployment (--no-background)";
            return Err(Refusal::arguments(text));
        }
        let escalation = arguments.escalation(confines, "executor")?;
        arguments.finish()?;
        Ok(Self { command, workdir, timeout_ms, background, escalation })
    }
}

/// Runs a command.
pub(crate) fn bash(
    core: &Arc<Core>,
    standing: Ready,
    arguments: Arguments,
    asker: &Asker,
    hold: &Hold,
) -> Result<Reply, Refusal> {
    let confines = core.confines()?;
    let wanted = Wanted::read(arguments, core, confines)?;
    let argv: Vec<OsString> = vec!["bash".into(), "-c".into(), wanted.command.clone().into()];
    let mut directory = directory(core, wanted.workdir.as_deref());
    let standing_mode = standing.resolved.policy.mode;
    let ready = if wanted.escalation.is_empty() {
        standing
    } else {
        // RACE: a question is about the directory and the program that are there now, and so is the command.
        directory = directory.canonicalize().unwrap_or(directory);
        let shown = Shown::look(&argv, &directory, &standing.resolved.policy, core.session.cwd())?;
        let denied = core.session.denied_before(&argv)?;
        let act = Act {
            argv: &argv,
            unseen_bytes: 0,
            cwd: &directory,
            shown: Some(&shown),
            subject: Subject::Command,
            tool: "bash",
            denied: &denied,
        };
        match core.widen(standing, &act, &wanted.escalation.wish(), asker, &hold.cancel)? {
            Widened::Ready(mut ready) => {
                shown.still()?;
                shown.hold(&mut ready.options);
                *ready
            }
            Widened::Ask(asked) => return Ok(Reply::Ask(asked)),
        }
    };
    let of_its_own = ready.resolved.approved().is_some() || ready.resolved.policy.mode != standing_mode;
    let run = Run { core, ready, argv, hint: core.hint(asker)?, hold };
    if core.settings.persistent_shell && !wanted.background && !of_its_own {
        return run.in_shell(&wanted);
    }
    let spec = run.spec(&wanted, directory)?;
    if wanted.background {
        return run.in_background(&wanted, &spec);
    }
    if core.settings.promote_on_timeout { run.or_promote(&wanted, &spec) } else { run.to_its_end(&spec) }
}

/// Where a command runs; `link/..` is what the file system says it is.
fn directory(core: &Core, asked: Option<&str>) -> PathBuf {
    match asked.filter(|asked| !asked.is_empty()) {
        Some(asked) => core.session.cwd().join(asked),
        None => core.session.cwd().to_owned(),
    }
}

/// One command, allowed and not yet begun.
struct Run<'a> {
    core: &'a Arc<Core>,
    ready: Ready,
    argv: Vec<OsString>,
    hint: Hint,
    hold: &'a Hold,
}

impl Run<'_> {
    fn spec(&self, wanted: &Wanted, workdir: PathBuf) -> Result<Spec, Refusal> {
        let request = Request {
            workdir: Some(workdir),
            timeout_ms: wanted.timeout_ms,
            on_expiry: OnExpiry::Kill,
            policy: Some(self.ready.resolved.policy.clone()),
            call: Some(self.ready.options.clone()),
            ..Request::new(wanted.command.clone())
        };
        Ok(self.core.executor.resolve(&request)?)
    }

    /// Writes down that the command begins. Withdrawn before, nothing begins (U384).
    fn begin(&self) -> Result<String, Refusal> {
        if self.hold.cancel.is_cancelled() {
            return Err(Refusal::aborted());
        }
        Ok(self.core.session.begin_call(&self.argv, &self.ready.resolved)?)
    }

    fn to_its_end(&self, spec: &Spec) -> Result<Reply, Refusal> {
        let call = self.begin()?;
        let result = self.core.executor.run(spec, &self.hold.cancel);
        self.record(&call, result.as_ref());
        let finished = result?;
        self.answer(&finished)
    }

    fn in_shell(&self, wanted: &Wanted) -> Result<Reply, Refusal> {
        let call = self.begin()?;
        let request = ShellRequest {
            command: wanted.command.clone().into(),
            timeout_ms: wanted.timeout_ms,
            policy: Some(self.ready.resolved.policy.clone()),
            call: Some(self.ready.options.clone()),
            directory: Some(self.core.session.cwd().to_owned()),
        };
        let result = self.core.executor.run_in_shell(&request, &self.hold.cancel);
        self.record(&call, result.as_ref().map(|shell| &shell.finished));
        let shell = result?;
        let structured = with_kind(&shell, "foreground");
        let text = shell.render(self.hint.subject(Subject::Command));
        Ok(done(self.told(text, &shell.finished), structured))
    }

    fn in_background(self, wanted: &Wanted, spec: &Spec) -> Result<Reply, Refusal> {
        let (process, call) = self.start(spec)?;
        let id = self.core.jobs.adopt(self.core, process, call, &wanted.command);
        Ok(done(format!("started background job {id}"), json!({"kind": "background", "jobId": id})))
    }

    fn start(&self, spec: &Spec) -> Result<(Process, String), Refusal> {
        let call = self.begin()?;
        match self.core.executor.start(spec) {
            Ok(process) => Ok((process, call)),
            Err(error) => {
                self.record(&call, Err(&error));
                Err(error.into())
            }
        }
    }

    /// Waits for the end; when time is up, the command goes on as a job (U390).
    fn or_promote(self, wanted: &Wanted, spec: &Spec) -> Result<Reply, Refusal> {
        let begun = Instant::now();
        let (process, call) = self.start(spec)?;
        *locked(&self.hold.process) = Some(process.clone());
        let finished = loop {
            let left = spec.timeout.saturating_sub(begun.elapsed());
            if let Some(finished) = process.done_within(left.min(LOOK)) {
                break finished;
            }
            if self.hold.cancel.is_cancelled() {
                process.kill();
                let finished = process.done();
                self.record(&call, Ok(&finished));
                return Err(Refusal::aborted());
            }
            if left.is_zero() {
                if process.backend().is_some() {
                    let id = self.core.jobs.adopt(self.core, process.clone(), call, &wanted.command);
                    return Ok(promoted(&process, &id, spec.timeout));
                }
                return self.never_began(&process, &call, spec, begun);
            }
        };
        self.record(&call, Ok(&finished));
        match &finished.error {
            Some(error) => Err(error.clone().into()),
            None => self.answer(&finished),
        }
    }

    /// Time was up before anything ran: nothing runs any more (U343, U393).
    fn never_began(&self, process: &Process, call: &str, spec: &Spec, begun: Instant) -> Result<Reply, Refusal> {
        process.kill();
        let Some(ended) = process.done_within(LAST_WAIT) else {
            let detail = "its preparation does not end".to_owned();
            let error = SandboxError::PreparationFailed { backend: "local".to_owned(), detail };
            self.core.end_call(call, Err(&error));
            return Err(error.into());
        };
        if ended.outcome.ran() {
            // It began at the last moment, and was ended.
            self.record(call, Ok(&ended));
            return self.answer(&ended);
        }
        let after_ms = milliseconds(spec.timeout);
        let ending = Ending::TimedOut { after_ms, then: None };
        let took = milliseconds(begun.elapsed());
        let outcome = Outcome::new(ending, Vec::new(), StatusEvidence::Channel, None, took);
        let finished = Finished { outcome, error: None, ..Arc::unwrap_or_clone(ended) };
        self.record(call, Ok(&finished));
        self.answer(&finished)
    }

    fn record(&self, call: &str, result: Result<&Finished, &ExecutorError>) {
        match result {
            Ok(Finished { error: Some(error), .. }) => self.core.end_call(call, Err(error)),
            Ok(finished) => self.core.end_call(call, Ok(&finished.outcome)),
            Err(ExecutorError::Sandbox(error)) => self.core.end_call(call, Err(error)),
            Err(error) => {
                let error = SandboxError::PreparationFailed { backend: "local".to_owned(), detail: error.to_string() };
                self.core.end_call(call, Err(&error));
            }
        }
    }

    fn answer(&self, finished: &Finished) -> Result<Reply, Refusal> {
        if finished.aborted() {
            return Err(Refusal::aborted());
        }
        let text = render_finished(finished, self.hint.subject(Subject::Command));
        Ok(done(self.told(text, finished), with_kind(finished, "foreground")))
    }

    /// Adds what the text of any command lacks.
    fn told(&self, text: String, finished: &Finished) -> String {
        let text = self.hint.behind_denial(text, finished.sandbox.denied, finished.sandbox.mode);
        with_proved(text, finished)
    }
}

fn promoted(process: &Process, id: &str, timeout: Duration) -> Reply {
    let read = process.read_output();
    let after = milliseconds(timeout);
    let mut text = render_read(&read, None);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!(
        "[still running after {after}ms; moved to background job {id}]\nIt goes on. Read what it writes with job_output, and \
         end it with job_kill; do not start it again."
    ));
    let stream = |text: &str| json!({"text": text});
    let structured = json!({
        "kind": "promoted",
        "jobId": id,
        "timeoutMs": after,
        "timedOut": true,
        "stdout": stream(&read.stdout),
        "stderr": stream(&read.stderr),
    });
    done(text, structured)
}

fn with_kind(value: &impl serde::Serialize, kind: &str) -> Value {
    // What cannot be written as JSON has a text all the same.
    let mut value = serde_json::to_value(value).unwrap_or_else(|_| json!({}));
    value["kind"] = kind.into();
    value
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
