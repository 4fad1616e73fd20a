//! One executor: a provider with settings, the commands that run, and the files of their outputs.

use crate::managed::{Context, ManagedVariables};
use crate::process::{Birth, Process, Shared};
use crate::request::{ExecutorConfig, ExecutorError, Limits, OnExpiry, Request, Spec, confines, resolve};
use crate::result::Finished;
use crate::spill::{Fitness, Spill, SpillPlace, SpillStore};
use crate::{environment, shell};
use pinfold_policy::{ExecutionPolicy, SandboxError, SandboxMode, SessionId, Variables};
use pinfold_providers::{
    Attempt, Backend, CallOptions, Cancel, LocalProvider, Operation, Question, RefusalFeed, Ruling, RunOptions, Stream,
    unnamed_file,
};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long an executor that goes waits for its commands beyond their grace.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Runs shell commands for one or more sessions.
///
/// Dropping it ends every command that still runs, and waits for their ends; it removes the files of all outputs.
#[derive(Debug)]
pub struct Executor {
    pub(crate) provider: Arc<LocalProvider>,
    pub(crate) config: ExecutorConfig,
    pub(crate) limits: Limits,
    managed: ManagedVariables,
    store: Arc<SpillStore>,
    registry: Arc<Registry>,
    next_id: AtomicU64,
    pub(crate) shells: Mutex<HashMap<SessionId, Arc<shell::Shell>>>,
}

/// The mechanism of a call, once it is chosen.
pub(crate) type Chosen = Arc<Mutex<Option<Backend>>>;

/// The commands that run, and the files that outlive theirs.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    running: Mutex<HashMap<u64, Weak<Shared>>>,
    kept: Mutex<Vec<(Option<SessionId>, Spill)>>,
}

impl Registry {
    pub(crate) fn forget(&self, id: u64) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Keeps a file until its session ends.
    pub(crate) fn keep(&self, session: Option<SessionId>, spill: Spill) {
        if spill.path().is_some() {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push((session, spill));
        }
    }

    fn running(&self, of: impl Fn(&Shared) -> bool) -> Vec<Process> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.values().filter_map(Weak::upgrade).filter(|shared| of(shared)).map(Process).collect()
    }
}

impl Executor {
    /// Makes an executor; starts nothing.
    ///
    /// # Errors
    ///
    /// [`ExecutorError::NotPositive`] or [`ExecutorError::TooLong`] for settings that cannot be served.
    pub fn new(
        provider: Arc<LocalProvider>,
        config: ExecutorConfig,
        managed: ManagedVariables,
    ) -> Result<Self, ExecutorError> {
        let limits = Limits::of(&config)?;
        Ok(Self {
            store: Arc::new(SpillStore::new(limits.spill_bytes_in_all)),
            provider,
            config,
            limits,
            managed,
            registry: Arc::default(),
            next_id: AtomicU64::new(1),
            shells: Mutex::default(),
        })
    }

    /// Returns the mode of requests that bring no policy.
    pub fn sandbox_mode(&self) -> SandboxMode {
        self.config.policy.mode
    }

    /// Returns the variables of our own, with who contributes to them.
    pub fn managed(&self) -> &ManagedVariables {
        &self.managed
    }

    /// Decides everything about a request, except what only a start can show. No path is looked at.
    ///
    /// # Errors
    ///
    /// [`ExecutorError`] for a command, a number or a working directory that cannot be, or a contributor's fault.
    pub fn resolve(&self, request: &Request) -> Result<Spec, ExecutorError> {
        let mut spec = resolve(request, &self.config, &self.limits)?;
        (spec.environment, spec.notes) = self.environment(&spec.policy, &spec.call, &request.env)?;
        Ok(spec)
    }

    pub(crate) fn environment(
        &self,
        policy: &ExecutionPolicy,
        call: &CallOptions,
        changes: &[(std::ffi::OsString, Option<std::ffi::OsString>)],
    ) -> Result<(environment::Variables, Vec<String>), ExecutorError> {
        let collected = self.managed.collect(&Context { session: policy.session_id.clone() })?;
        Ok(environment::layer(
            std::env::vars_os().collect(),
            &call.restrictions,
            &self.config.program,
            changes,
            &collected.variables,
            &collected.path,
        ))
    }

    /// Runs a command to its end.
    ///
    /// The time limit counts from here, so that a preparation which outlasts it ends the call, and then nothing has run. An
    /// exit status, a signal, a passed limit and a withdrawal all are results.
    ///
    /// # Errors
    ///
    /// What the provider refused, unchanged; `SANDBOX_CANCELLED` only if the switch was thrown before anything was begun.
    pub fn run(&self, spec: &Spec, cancel: &Cancel) -> Result<Finished, ExecutorError> {
        if cancel.is_cancelled() {
            return Err(SandboxError::Cancelled.into());
        }
        let deadline = Instant::now().checked_add(spec.timeout).filter(|_| spec.on_expiry == OnExpiry::Kill);
        let process = self.spawn(spec, cancel.follower(), deadline.map(|_| spec.timeout), spec.max_bytes.0)?;
        let finished = loop {
            if let Some(finished) = process.0.wait(deadline, None) {
                break finished;
            }
        };
        match &finished.error {
            Some(error) => Err(error.clone().into()),
            None => Ok(Arc::unwrap_or_clone(finished)),
        }
    }

    /// Starts a command in the background and returns at once. No time limit applies to it.
    ///
    /// # Errors
    ///
    /// [`ExecutorError::TooMany`] if as many run as may. Whatever else goes wrong is the result of the process.
    pub fn start(&self, spec: &Spec) -> Result<Process, ExecutorError> {
        self.spawn(spec, Cancel::new(), None, spec.max_bytes.1)
    }

    fn spawn(
        &self,
        spec: &Spec,
        cancel: Cancel,
        timeout: Option<Duration>,
        stdout_bytes: usize,
    ) -> Result<Process, ExecutorError> {
        let input = spec.stdin.as_ref().map(|bytes| unnamed_file(bytes)).transpose();
        let input = input.map_err(|error| ExecutorError::host("a file for the input", &error))?;
        let given = [input.map(Arc::new), None, None];
        let run = RunOptions { given, timeout, ..self.collecting() };
        self.launch(spec, cancel, stdout_bytes, run).map(|(process, _)| process)
    }

    /// Streams that are collected, and nothing to read.
    fn collecting(&self) -> RunOptions {
        RunOptions {
            stdin: Stream::Null,
            // Standard output is collected by the observer.
            stdout: Stream::Capture { limit: 0 },
            // The provider looks for refusals at the end of it.
            stderr: Stream::Capture { limit: self.limits.output_bytes },
            grace: self.limits.grace,
            resident: self.config.resident,
            ..RunOptions::default()
        }
    }

    /// Starts a command whose streams are given: a terminal, or the pipes of a shell.
    pub(crate) fn launch_given(
        &self,
        spec: &Spec,
        given: [Option<Arc<OwnedFd>>; 3],
    ) -> Result<(Process, Chosen), ExecutorError> {
        self.launch_told(spec, given, None)
    }

    /// The same, with somebody who is told of refusals as they happen.
    pub(crate) fn launch_told(
        &self,
        spec: &Spec,
        given: [Option<Arc<OwnedFd>>; 3],
        refusals: Option<Arc<RefusalFeed>>,
    ) -> Result<(Process, Chosen), ExecutorError> {
        let run = RunOptions { given, refusals, ..self.collecting() };
        self.launch(spec, Cancel::new(), self.limits.output_bytes, run)
    }

    fn launch(
        &self,
        spec: &Spec,
        cancel: Cancel,
        stdout_bytes: usize,
        run: RunOptions,
    ) -> Result<(Process, Chosen), ExecutorError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let chosen = Chosen::default();
        let choose = Arc::clone(&chosen);
        let shared = Arc::new(Shared::new(Birth {
            id,
            session: spec.policy.session_id.clone(),
            cancel: cancel.clone(),
            mode: spec.policy.mode,
            timeout: spec.timeout,
            max_bytes: [stdout_bytes, self.limits.output_bytes],
            places: self.places(&spec.policy, &spec.call, &chosen),
            registry: Arc::clone(&self.registry),
        }));
        {
            let mut running = self.registry.running.lock().unwrap_or_else(PoisonError::into_inner);
            if running.len() >= self.config.max_processes {
                return Err(ExecutorError::TooMany(running.len()));
            }
            running.insert(id, Arc::downgrade(&shared));
        }
        let call = call_of(spec);
        let [watch, observe, spawned] = [(); 3].map(|()| Arc::clone(&shared));
        let run = RunOptions {
            env: clean(&spec.environment),
            before_start: Some(Arc::new(move |attempt: &Attempt<'_>| {
                *choose.lock().unwrap_or_else(PoisonError::into_inner) = Some(attempt.backend);
                watch.may_start(attempt)
            })),
            observe: Some(Arc::new(move |output, bytes| observe.take(output, bytes))),
            on_spawn: Some(Arc::new(move |pid| spawned.spawned(pid))),
            ..run
        };
        let (provider, argv, policy) = (Arc::clone(&self.provider), spec.argv.clone(), spec.policy.clone());
        let ours = Unsettled(Arc::clone(&shared));
        // The thread that starts a command has to live as long as it: bubblewrap ends with its thread.
        let thread = std::thread::Builder::new().name(format!("command-{id}")).spawn(move || {
            provider.run_then(&argv, &policy, &call, run, &cancel, |result| ours.0.settle(result));
        });
        if let Err(error) = thread {
            self.registry.forget(id);
            return Err(ExecutorError::host("a thread", &error));
        }
        Ok((Process(shared), chosen))
    }

    /// Where the files of long outputs go: where a confined command can read them and not write.
    pub(crate) fn places(&self, policy: &ExecutionPolicy, call: &CallOptions, chosen: &Chosen) -> [SpillPlace; 2] {
        let (provider, options) = (Arc::clone(&self.provider), call.clone());
        let (policy, chosen) = (policy.clone(), Arc::clone(chosen));
        let fits: Fitness = Arc::new(move |path: &Path| {
            let Some(policy) = policy.confined().filter(|_| confines(&policy)) else { return true };
            let backend = *chosen.lock().unwrap_or_else(PoisonError::into_inner);
            let options = CallOptions { backend, ..options.clone() };
            let ruling = |operation| {
                let question = Question { path: path.join("output"), operation, policy: policy.clone() };
                provider.explain(&question, &options).map(|answer| answer.ruling)
            };
            let readable = matches!(ruling(Operation::Read), Ok(Ruling::Allowed | Ruling::NotGoverned));
            readable && ruling(Operation::Write) == Ok(Ruling::Denied)
        });
        ["stdout", "stderr"].map(|stream| SpillPlace {
            store: Arc::clone(&self.store),
            candidates: self.config.spill_places.clone(),
            fits: Arc::clone(&fits),
            max_stream_bytes: self.limits.spill_bytes,
            stream,
        })
    }

    pub(crate) fn keep(&self, session: Option<SessionId>, spill: Spill) {
        self.registry.keep(session, spill);
    }

    /// Returns the commands that run for a session.
    pub fn running(&self, session: &SessionId) -> Vec<Process> {
        self.registry.running(|shared| shared.session.as_ref() == Some(session))
    }

    /// Ends a session: its commands and its shell are ended, the files of its outputs and its private temp directory are
    /// removed.
    ///
    /// # Errors
    ///
    /// The provider's, if the temp directory cannot be removed.
    pub fn end_session(&self, session: &SessionId) -> Result<(), ExecutorError> {
        let shell = self.shells.lock().unwrap_or_else(PoisonError::into_inner).remove(session);
        if let Some(shell) = shell {
            shell.close();
        }
        self.end(&self.running(session));
        let mut kept = self.registry.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(owner, _)| owner.as_ref() != Some(session));
        drop(kept);
        self.provider.end_session(session)?;
        Ok(())
    }

    fn end(&self, processes: &[Process]) {
        for process in processes {
            process.kill();
        }
        let until = Instant::now() + self.limits.grace + LAST_WAIT;
        for process in processes {
            let _ = process.done_within(until.saturating_duration_since(Instant::now()));
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let shells = std::mem::take(&mut *self.shells.lock().unwrap_or_else(PoisonError::into_inner));
        shells.into_values().for_each(|shell| shell.close());
        self.end(&self.registry.running(|_| true));
        self.registry.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Sees to it that a command has an end also if the thread that waits for it panics: nobody may wait for ever. Only the first
/// end counts.
struct Unsettled(Arc<Shared>);

impl Drop for Unsettled {
    fn drop(&mut self) {
        let detail = "the thread that waits for the command has failed".to_owned();
        self.0.settle(Err(SandboxError::PreparationFailed { backend: "local".to_owned(), detail }));
    }
}

fn call_of(spec: &Spec) -> CallOptions {
    let mut call = CallOptions { cwd: Some(spec.workdir.clone()), ..spec.call.clone() };
    // It is done already, and what a request sets is not looked at.
    call.restrictions.variables = Variables::Inherit;
    call.restrictions.kept_variables.clear();
    call.notes.extend(spec.notes.iter().cloned());
    call
}

fn clean(environment: &[(std::ffi::OsString, std::ffi::OsString)]) -> Vec<pinfold_providers::EnvChange> {
    use pinfold_providers::EnvChange::{Clear, Set};
    let set = environment.iter().map(|(name, value)| Set(name.clone(), value.clone()));
    std::iter::once(Clear).chain(set).collect()
}
