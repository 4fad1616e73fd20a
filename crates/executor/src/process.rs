//! The handle of one running command: what it wrote so far, how it stands, how it ended.
//!
//! A thread per command waits for it (in `providers`) and feeds what it writes into bounded memory. Facts are complete before
//! anybody can see that the command is done.

use crate::executor::Registry;
use crate::output::{Collector, StreamOutput, after_cut, before_cut, decode};
use crate::render::spawn_failure;
use crate::result::{Finished, SandboxFacts, refused, whole_milliseconds};
use crate::spill::SpillPlace;
use pinfold_policy::{Dialect, Ending, EnforcementReport, Outcome, SandboxError, SandboxMode, SessionId, Signal};
use pinfold_policy::{StatusEvidence, Stop};
use pinfold_providers::{Attempt, Backend, Cancel, Output, RunResult};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Says how a command in the background stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum ProcessStatus {
    /// It runs, or is about to.
    Running,
    /// It exited by itself.
    Completed {
        /// Its status.
        exit_code: i32,
    },
    /// A signal ended it, or it was withdrawn.
    Killed {
        /// The signal, if it ran and one ended it.
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<Signal>,
    },
    /// It could not be started; that is neither an exit nor a kill.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Holds what a consuming read gives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessRead {
    /// What is new of standard output.
    pub stdout: String,
    /// What is new of standard error.
    pub stderr: String,
    /// Whether something between this read and the one before was dropped.
    pub lossy: bool,
    /// The files that hold all of a dropped output.
    pub spill_paths: Vec<PathBuf>,
    /// Why the command could not be started; given once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the sandbox did, once the command is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<SandboxFacts>,
}

impl ProcessRead {
    /// Returns the output: what is new of standard output, then a section for standard error if there is any.
    pub fn text(&self) -> String {
        crate::render::render_read(&Self { lossy: false, note: None, settled: None, ..self.clone() }, None)
    }
}

/// Holds what an observer sees from an offset on. Others see the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// The text.
    pub text: String,
    /// The offset of its first byte in the stream; later than asked for if what was before has been dropped.
    pub from: u64,
    /// The offset to go on from.
    pub next: u64,
    /// Whether something before the text was dropped.
    pub lossy: bool,
    /// Whether nothing will follow.
    pub ended: bool,
    /// Why the command could not be started, on standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Controls one command. Clones are the same handle; dropping them leaves the command running, until its executor goes.
#[derive(Debug, Clone)]
pub struct Process(pub(crate) Arc<Shared>);

/// What is known of a started attempt.
#[derive(Debug, Clone)]
pub(crate) struct Started {
    pub(crate) backend: Backend,
    pub(crate) report: EnforcementReport,
    pub(crate) dialect: Dialect,
}

impl Started {
    pub(crate) fn of(attempt: &Attempt<'_>) -> Self {
        let Attempt { backend, report, dialect } = *attempt;
        Self { backend, report: report.clone(), dialect: dialect.clone() }
    }
}

pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) session: Option<SessionId>,
    pub(crate) cancel: Cancel,
    mode: SandboxMode,
    timeout: Duration,
    begun: Instant,
    streams: [Mutex<Collector>; 2],
    places: [SpillPlace; 2],
    registry: Arc<Registry>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    started: Option<Started>,
    pid: Option<u32>,
    killed: bool,
    cursors: [u64; 2],
    note_given: bool,
    finished: Option<Arc<Finished>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("id", &self.id).field("session", &self.session).finish_non_exhaustive()
    }
}

/// What a process is made of before it has begun.
pub(crate) struct Birth {
    pub(crate) id: u64,
    pub(crate) session: Option<SessionId>,
    pub(crate) cancel: Cancel,
    pub(crate) mode: SandboxMode,
    pub(crate) timeout: Duration,
    pub(crate) max_bytes: [usize; 2],
    pub(crate) places: [SpillPlace; 2],
    pub(crate) registry: Arc<Registry>,
}

impl Shared {
    pub(crate) fn new(birth: Birth) -> Self {
        let Birth { id, session, cancel, mode, timeout, max_bytes, places, registry } = birth;
        Self {
            id,
            session,
            cancel,
            mode,
            timeout,
            begun: Instant::now(),
            streams: max_bytes.map(|cap| Mutex::new(Collector::new(cap))),
            places,
            registry,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stream(&self, output: Output) -> MutexGuard<'_, Collector> {
        self.streams[index(output)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides whether an attempt may start; what an attempt before it wrote is forgotten.
    pub(crate) fn may_start(&self, attempt: &Attempt<'_>) -> bool {
        for output in [Output::Stdout, Output::Stderr] {
            self.stream(output).reset();
        }
        let mut state = self.state();
        if state.finished.is_some() || state.killed {
            return false;
        }
        state.started = Some(Started::of(attempt));
        true
    }

    pub(crate) fn started(&self) -> Option<Started> {
        self.state().started.clone()
    }

    pub(crate) fn spawned(&self, pid: u32) {
        self.state().pid = Some(pid);
        self.changed.notify_all();
    }

    pub(crate) fn take(&self, output: Output, bytes: &[u8]) {
        self.stream(output).push(bytes, &self.places[index(output)]);
        self.changed.notify_all();
    }

    /// Draws up the result. Only the first one counts.
    pub(crate) fn settle(&self, result: Result<RunResult, SandboxError>) {
        let (outcome, error) = match result {
            Ok(result) => (result.outcome, None),
            Err(error) => (refused(&error, self.begun.elapsed()), Some(error)),
        };
        let error = error.filter(|error| *error != SandboxError::Cancelled);
        self.settle_as(outcome, error);
    }

    fn settle_as(&self, outcome: Outcome, error: Option<SandboxError>) {
        let finish = |output| -> StreamOutput {
            let mut stream = self.stream(output);
            let finished = stream.finish();
            self.registry.keep(self.session.clone(), stream.take_spill());
            finished
        };
        let mut state = self.state();
        if state.finished.is_some() {
            return;
        }
        let (stdout, stderr) = (finish(Output::Stdout), finish(Output::Stderr));
        let sandbox = SandboxFacts::of(self.mode, &outcome);
        let timeout = self.timeout;
        state.finished = Some(Arc::new(Finished { outcome, error, stdout, stderr, timeout, sandbox }));
        drop(state);
        self.registry.forget(self.id);
        self.changed.notify_all();
    }

    /// Waits for the end; a preparation that outlasts the deadline ends the call, and nothing starts any more.
    pub(crate) fn wait(&self, preparation: Option<Instant>, at_most: Option<Instant>) -> Option<Arc<Finished>> {
        let mut state = self.state();
        loop {
            if let Some(finished) = &state.finished {
                return Some(Arc::clone(finished));
            }
            let now = Instant::now();
            let preparing = preparation.filter(|_| state.started.is_none());
            if preparing.is_some_and(|deadline| now >= deadline) {
                drop(state);
                let ending = Ending::TimedOut { after_ms: whole_milliseconds(self.timeout), then: None };
                let took = whole_milliseconds(self.begun.elapsed());
                self.settle_as(Outcome::new(ending, Vec::new(), StatusEvidence::Channel, None, took), None);
                self.cancel.cancel();
                state = self.state();
                continue;
            }
            if at_most.is_some_and(|deadline| now >= deadline) {
                return None;
            }
            state = match [preparing, at_most].into_iter().flatten().min() {
                Some(until) => self.changed.wait_timeout(state, until - now).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

fn index(output: Output) -> usize {
    match output {
        Output::Stdout => 0,
        Output::Stderr => 1,
    }
}

impl Process {
    /// Returns how the command stands. A withdrawn one counts as killed at once.
    pub fn status(&self) -> ProcessStatus {
        let state = self.0.state();
        let Some(finished) = &state.finished else {
            return if state.killed { ProcessStatus::Killed { signal: None } } else { ProcessStatus::Running };
        };
        match finished.outcome.ending() {
            Ending::NotStarted { detail, .. } => ProcessStatus::Failed { reason: detail.clone() },
            Ending::Cancelled { then } | Ending::TimedOut { then, .. } => ProcessStatus::Killed {
                signal: then.and_then(|stop| match stop {
                    Stop::Signaled { signal } => Some(signal),
                    Stop::Exited { .. } => None,
                }),
            },
            other => match other.stop() {
                Some(Stop::Exited { code }) => ProcessStatus::Completed { exit_code: code },
                Some(Stop::Signaled { signal }) => ProcessStatus::Killed { signal: Some(signal) },
                None => ProcessStatus::Killed { signal: None },
            },
        }
    }

    /// Returns how the command ended in a few words, once it has: `exit code: 1`, `signal: SIGTERM`, `killed before exit`.
    pub fn detail(&self) -> Option<String> {
        match self.status() {
            ProcessStatus::Running => None,
            ProcessStatus::Completed { exit_code } => Some(format!("exit code: {exit_code}")),
            ProcessStatus::Killed { signal: Some(signal) } => Some(format!("signal: {signal}")),
            ProcessStatus::Killed { signal: None } => Some("killed before exit".to_owned()),
            ProcessStatus::Failed { reason } => Some(spawn_failure(&reason)),
        }
    }

    /// Returns the process to which signals for the command can be sent, while it runs.
    pub fn pid(&self) -> Option<u32> {
        let state = self.0.state();
        state.pid.filter(|_| state.finished.is_none())
    }

    /// Returns the mechanism that confines the command, once it is about to start.
    pub fn backend(&self) -> Option<Backend> {
        self.0.state().started.as_ref().map(|started| started.backend)
    }

    /// Returns what is enforced around the command, once it is about to start.
    pub fn report(&self) -> Option<EnforcementReport> {
        self.0.state().started.as_ref().map(|started| started.report.clone())
    }

    /// Withdraws the command: SIGTERM, and SIGKILL after the grace. Returns whether there was anything to end; once it is
    /// over this does nothing. A command that is still prepared does not start.
    pub fn kill(&self) -> bool {
        let mut state = self.0.state();
        if state.finished.is_some() {
            return false;
        }
        state.killed = true;
        drop(state);
        self.0.cancel.cancel();
        true
    }

    /// Waits for the end. Never fails: a command that could not be started has ended too.
    pub fn done(&self) -> Arc<Finished> {
        loop {
            if let Some(finished) = self.0.wait(None, None) {
                return finished;
            }
        }
    }

    /// Waits for the end, at most so long.
    pub fn done_within(&self, at_most: Duration) -> Option<Arc<Finished>> {
        self.0.wait(None, Some(Instant::now() + at_most))
    }

    /// Returns the result if the command is done.
    pub fn finished(&self) -> Option<Arc<Finished>> {
        self.0.state().finished.clone()
    }

    /// Reads what is new since the last read, also after the end.
    ///
    /// A character of which only the beginning has come is left for the next read. What was dropped before it could be read
    /// makes the read lossy; it then begins with the oldest text that is left.
    pub fn read_output(&self) -> ProcessRead {
        let mut state = self.0.state();
        let settled = state.finished.clone();
        let mut read = ProcessRead::default();
        for output in [Output::Stdout, Output::Stderr] {
            let stream = self.0.stream(output);
            let cursor = &mut state.cursors[index(output)];
            let (from, mut bytes) = stream.since(*cursor);
            let lossy = from > *cursor;
            if settled.is_none() {
                bytes = before_cut(bytes);
            }
            *cursor = from + bytes.len() as u64;
            let text = decode(if lossy { after_cut(bytes) } else { bytes }).0;
            if lossy {
                read.lossy = true;
                let path = match &settled {
                    Some(finished) if output == Output::Stdout => finished.stdout.spill_path.clone(),
                    Some(finished) => finished.stderr.spill_path.clone(),
                    None => stream.spill_path().map(Into::into),
                };
                read.spill_paths.extend(path);
            }
            match output {
                Output::Stdout => read.stdout = text,
                Output::Stderr => read.stderr = text,
            }
        }
        if let Some(finished) = settled {
            if !finished.sandbox.runner_failed && !std::mem::replace(&mut state.note_given, true) {
                read.note = finished.failure().map(spawn_failure);
            }
            read.settled = Some(finished.sandbox.clone());
        }
        read
    }

    /// Looks at a stream from an offset on; nothing is taken away from anybody.
    pub fn observe(&self, output: Output, offset: u64) -> Observed {
        let finished = self.0.state().finished.clone();
        let stream = self.0.stream(output);
        let (from, mut bytes) = stream.since(offset);
        let lossy = from > offset;
        if finished.is_none() {
            bytes = before_cut(bytes);
        }
        let next = from + bytes.len() as u64;
        let shown = if lossy { after_cut(bytes) } else { bytes };
        let note =
            finished.as_ref().filter(|_| output == Output::Stderr).and_then(|it| crate::render::failure_note(it));
        Observed {
            text: decode(shown).0,
            from: from + (bytes.len() - shown.len()) as u64,
            next,
            lossy,
            ended: finished.is_some() && next == stream.total(),
            note,
        }
    }
}
