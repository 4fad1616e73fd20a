//! The one entry: a provider with its settings, its cached probes and its runtime directory.
//!
//! Two calls with different policies may run at once; nothing of a policy is remembered.

use crate::backend::Backend;
use crate::call::{CallOptions, Confinement, Finding, Insistence, ProviderConfig, RunOptions, RunResult, Stream};
use crate::canary::Canary;
use crate::cancel::Cancel;
use crate::chain::{self, Delivery, Host, Refusal, Trial, Usable, Verdicts, Wrapped};
use crate::closed::{self, Closed, Denied};
use crate::explain::{self, Answer, Question};
use crate::hard_links::HardLinkCache;
use crate::mounts::Mounts;
use crate::outcome::{Attempted, interpret};
use crate::plan::{Request, StatusTo};
use crate::roots::{self, ControlPlane, PinnedRoot, Roots, pin_physical};
use crate::run::{Family, Start, status_channel};
use crate::runtime_dir::{self, RuntimeDir};
use crate::verdict_file::VerdictFiles;
use crate::{environment, launcher, linux_bwrap, linux_landlock, linux_namespace, outcome, sockets, unconfined};
use pinfold_policy::quote::quote;
use pinfold_policy::{
    BackendRefusal, ConfinedArgv, ConfinedMode, Ending, Enforcement, EnforcementReport, ExecutionPolicy, Guarantee,
    GuaranteeReport, HardLinkFindings, Network, Outcome, ReportFacts, RootProblem, RootRole, SandboxError,
    SandboxPolicy, Sockets, StatusEvidence, Strength, TempView, Variables, dialect, validate_command,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How often one mechanism is tried in one call that hides sockets.
const MOST_LOOKS: u32 = 4;

/// Confines commands on this host.
#[derive(Debug)]
pub struct LocalProvider {
    chain: Vec<Backend>,
    host: Host,
    configured_runtime: Option<PathBuf>,
    runtime: Mutex<Option<Arc<RuntimeDir>>>,
    verdicts: Verdicts,
    keep_verdicts: bool,
    hard_links: HardLinkCache,
}

/// Everything of one call that does not depend on the mechanism.
struct Call<'a> {
    policy: &'a SandboxPolicy,
    options: &'a CallOptions,
    roots: Roots,
    denied: Denied,
    findings: HardLinkFindings,
    mounts: Mounts,
    /// Whether the command is started here, and not by the caller.
    ours: bool,
    terminal: bool,
    environment: Vec<(OsString, OsString)>,
    /// What was found on the way and belongs in the report.
    notes: Vec<String>,
    command_words: usize,
}

/// A mechanism that was chosen for a call, ready to be started.
struct Prepared {
    backend: Backend,
    wrapped: Wrapped,
    report: EnforcementReport,
    environment: Vec<(OsString, OsString)>,
    /// Our end of the status channel.
    status: Option<std::os::fd::OwnedFd>,
    /// A temp directory of this call alone.
    _temp: Option<tempfile::TempDir>,
}

impl LocalProvider {
    /// Makes a provider; starts nothing and probes nothing.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for settings that cannot be used: a probe timeout of zero, a custom runner without
    /// failure signatures (or with malformed ones, or signatures without a runner), or a chain that holds
    /// [`Backend::Unconfined`].
    pub fn new(config: ProviderConfig) -> Result<Self, SandboxError> {
        let invalid = |detail: String| SandboxError::InvalidPolicy { detail };
        if config.probe_timeout.is_zero() {
            return Err(invalid("sandbox-local: probeTimeoutMs must be a positive finite number".to_owned()));
        }
        let custom = match config.custom_runner {
            Some(runner) => dialect::custom_runner(&runner.argv, &runner.failure_signatures)
                .map_err(|error| invalid(error.to_string()))?
                .map(|dialect| (runner, dialect)),
            None => None,
        };
        if config.chain.as_ref().is_some_and(|chain| chain.contains(&Backend::Unconfined)) {
            return Err(invalid("a chain of backends cannot hold one that enforces nothing".to_owned()));
        }
        let chain = config.chain.unwrap_or_else(|| match &custom {
            Some(_) => vec![Backend::Custom],
            None => chain::built_in().to_vec(),
        });
        Ok(Self {
            chain,
            host: Host {
                launcher: launcher::expected_path(config.launcher.as_deref()),
                bwrap_candidates: config.bwrap_candidates,
                custom,
                probe_timeout: config.probe_timeout,
                shared_temps: chain::shared_temps(),
            },
            configured_runtime: config.runtime_dir,
            runtime: Mutex::default(),
            verdicts: Verdicts::default(),
            keep_verdicts: config.keep_verdicts,
            hard_links: HardLinkCache::default(),
        })
    }

    /// Wraps a command for a caller that starts it itself.
    ///
    /// The first call for a mode probes; later ones use what was found. The result never is the caller's own argv: a
    /// confined mode gives a confinement or an error.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_COMMAND`, `SANDBOX_CANCELLED` (before anything was resolved, probed or made),
    /// `SANDBOX_INVALID_ROOT`, `SANDBOX_INVALID_POLICY` (a relative working directory, a status file that the command
    /// could write, a restriction that contradicts the rest), `SANDBOX_PREPARATION_FAILED` (no runtime directory, no
    /// working directory, an unfit status file), `SANDBOX_UNSUPPORTED_POLICY` (the requested backend cannot express this,
    /// or none can), `SANDBOX_GUARANTEE_UNMET`, `SANDBOX_UNAVAILABLE`.
    pub fn confine(
        &self,
        argv: &[OsString],
        policy: &SandboxPolicy,
        options: &CallOptions,
        cancel: &Cancel,
    ) -> Result<Confinement, SandboxError> {
        validate_command(argv)?;
        if cancel.is_cancelled() {
            return Err(SandboxError::Cancelled);
        }
        let call = self.resolve(policy, options, argv.len(), false)?;
        let mut passed_over = PassedOver::default();
        let chain = self.candidates(options)?;
        let (prepared, _) = self.choose(&chain, &call, &mut passed_over, cancel)?;
        let dialect = self.host.dialect(prepared.backend);
        let mut wrapped = prepared.wrapped.argv;
        wrapped.extend_from_slice(argv);
        Ok(Confinement {
            confined: ConfinedArgv {
                argv: wrapped,
                enforcement: prepared.report.enforcement().unwrap_or(Enforcement::Partial),
                denial_signatures: dialect.denial_signatures.clone(),
                runner_failure_rules: dialect.runner_failure_rules.clone(),
            },
            report: prepared.report,
            backend: prepared.backend,
            dialect,
            plan_file: prepared.wrapped.plan_file,
        })
    }

    /// Runs a command to its end.
    ///
    /// If the walls of the chosen mechanism do not stand when it comes to it, nothing has run; the next mechanism of the
    /// chain is tried then, unless one was requested, and the report says so. A command that did not run for another
    /// reason gives an outcome that says which.
    ///
    /// Under `danger-full-access` the command runs unconfined, and the report says that nothing is enforced.
    ///
    /// # Errors
    ///
    /// Those of [`LocalProvider::confine`]. `SANDBOX_UNSUPPORTED_POLICY` also if a mechanism is requested that is not for
    /// the policy's mode, and for `danger-full-access` with required promises `SANDBOX_GUARANTEE_UNMET`.
    pub fn run(
        &self,
        argv: &[OsString],
        policy: &ExecutionPolicy,
        call: &CallOptions,
        run: &RunOptions,
        cancel: &Cancel,
    ) -> Result<RunResult, SandboxError> {
        let begun = Instant::now();
        validate_command(argv)?;
        if cancel.is_cancelled() {
            return Err(SandboxError::Cancelled);
        }
        let deadline = run.timeout.and_then(|timeout| begun.checked_add(timeout));
        let streams = [run.stdin, run.stdout, run.stderr];
        call.restrictions.validate()?;
        let (environment, scrubbed) = environment::scrub(outcome::environment(&run.env), &call.restrictions);
        let Some(confined) = policy.confined() else {
            let start = Unconfined { argv, environment, scrubbed, begun, deadline };
            return self.run_unconfined(start, policy, call, run, cancel);
        };
        let terminal =
            [std::io::stdin().is_terminal(), std::io::stdout().is_terminal(), std::io::stderr().is_terminal()]
                .into_iter()
                .zip(streams)
                .any(|(terminal, stream)| terminal && stream == Stream::Inherit);
        let mut ours = self.resolve(&confined, call, argv.len(), true)?;
        (ours.terminal, ours.environment, ours.notes) = (terminal, environment, scrubbed);
        let mut passed_over = PassedOver::default();
        let mut chain = self.candidates(call)?;
        let mut looks = 1;
        loop {
            let (prepared, position) = self.choose(&chain, &ours, &mut passed_over, cancel)?;
            let backend = prepared.backend;
            let mut whole = prepared.wrapped.argv;
            whole.extend_from_slice(argv);
            let family = match backend {
                Backend::Bwrap => Family::Nested,
                Backend::Custom if run.stdin != Stream::Inherit => Family::Group,
                _ => Family::Supervised,
            };
            let has_channel = prepared.status.is_some();
            let ended = crate::run::run(Start {
                argv: &whole,
                environment: &prepared.environment,
                cwd: None,
                streams,
                passed: prepared.wrapped.passed,
                status: prepared.status,
                family,
                deadline,
                grace: run.grace,
                cancel,
                on_spawn: run.on_spawn.as_ref(),
            });
            let dialect = self.host.dialect(backend);
            let attempted = interpret(ended, &whole[0], &argv[0], has_channel, &dialect, run.timeout);
            let (refusal, runner_failure, stdout, stderr) = match attempted {
                Attempted::Over { ending, denials, evidence, stdout, stderr } => {
                    let outcome = Outcome::new(ending, denials, evidence, Some(prepared.report), elapsed(begun));
                    return Ok(RunResult { outcome, stdout, stderr });
                }
                Attempted::NotConfined { refusal, runner_failure, stdout, stderr } => {
                    (refusal, runner_failure, stdout, stderr)
                }
            };
            let between = || roots::first_changed(&ours.roots.between);
            if let Some(root) = roots::first_changed(&ours.roots.writable).or_else(between) {
                // Not the mechanism's fault: it met another directory, or none.
                let path = root.path.clone();
                let problem = RootProblem::Changed;
                return Err(SandboxError::InvalidRoot { role: RootRole::Workspace, path, problem });
            }
            // RACE: a socket that was to be hidden may have gone since it was found, or what leads to it may have been
            // closed to us, and bubblewrap needs what it covers. Another look finds what is there now.
            if call.restrictions.sockets == Sockets::Closed && looks < MOST_LOOKS {
                looks += 1;
                continue;
            }
            looks = 1;
            // What worked when it was probed does not any more.
            self.forget(backend);
            passed_over.causes.push(refusal.of(backend));
            chain.drain(..=position);
            if chain.is_empty() {
                let error = SandboxError::Unavailable {
                    mode: confined.mode,
                    causes: passed_over.causes,
                    runner_failure: Some(runner_failure),
                };
                let ending = Ending::NotStarted { code: error.code(), detail: error.to_string() };
                let evidence = if has_channel { StatusEvidence::Channel } else { StatusEvidence::Inferred };
                let outcome = Outcome::new(ending, Vec::new(), evidence, Some(prepared.report), elapsed(begun));
                return Ok(RunResult { outcome, stdout, stderr });
            }
        }
    }

    /// Probes every mechanism anew, also those behind one that works.
    pub fn examine(&self, mode: ConfinedMode) -> Vec<Finding> {
        let mut backends = chain::built_in().to_vec();
        if self.host.custom.is_some() {
            backends.push(Backend::Custom);
        }
        backends.into_iter().map(|backend| self.finding(backend, mode)).collect()
    }

    /// Says what would happen to a path under a policy, for a mechanism or for the one that would be chosen. Of the
    /// options, the mechanism, the working directory and the restrictions count.
    ///
    /// # Errors
    ///
    /// Those of [`LocalProvider::confine`]; `SANDBOX_INVALID_POLICY` for a relative path.
    pub fn explain(&self, question: &Question, options: &CallOptions) -> Result<Answer, SandboxError> {
        if !question.path.is_absolute() {
            let detail = format!("path {} is not absolute", quote(&question.path));
            return Err(SandboxError::InvalidPolicy { detail });
        }
        let options = CallOptions { hard_links: crate::HardLinkScan::Skip, status_file: None, ..options.clone() };
        let call = self.resolve(&question.policy, &options, 1, false)?;
        let (mut causes, mut limit) = (Vec::new(), None);
        for backend in self.candidates(&options)? {
            match self.verdict(backend, question.policy.mode, &call.roots.writable) {
                Ok(usable) => match self.request(&call, backend, &usable) {
                    Ok(request) => return Ok(explain::answer(question, backend, &request)),
                    Err(error) => drop(limit.get_or_insert(error)),
                },
                Err(refusal) => causes.push(refusal.of(backend)),
            }
        }
        let mode = question.policy.mode;
        Err(limit.unwrap_or(SandboxError::Unavailable { mode, causes, runner_failure: None }))
    }

    /// Removes what is kept for a session between its calls: its private temp directory.
    ///
    /// # Errors
    ///
    /// `SANDBOX_PREPARATION_FAILED` if it cannot be removed.
    pub fn end_session(&self, session: &pinfold_policy::SessionId) -> Result<(), SandboxError> {
        self.runtime()?.remove_kept_temp(&outcome::owner_of_session(session)).map_err(|error| {
            SandboxError::PreparationFailed {
                backend: "local".to_owned(),
                detail: format!("cannot remove the temp directory of a session: {error}"),
            }
        })
    }

    /// Checks and resolves what does not depend on the mechanism.
    fn resolve<'a>(
        &self,
        policy: &'a SandboxPolicy,
        options: &'a CallOptions,
        command_words: usize,
        ours: bool,
    ) -> Result<Call<'a>, SandboxError> {
        options.restrictions.validate()?;
        let failed = |detail: String| SandboxError::PreparationFailed { backend: "local".to_owned(), detail };
        let mut control = ControlPlane {
            launcher: self.host.launcher.as_ref().ok().cloned(),
            runtime_dir: runtime_dir::intended(self.configured_runtime.as_deref()),
        };
        // Before the directory is made: it must not appear in somebody's workspace.
        roots::resolve(policy, &control)?;
        control.runtime_dir = Some(self.runtime()?.root().to_owned());
        let mut roots = roots::resolve(policy, &control)?;
        let mounts = Mounts::look(&roots.writable, &roots.workspace.path)?;
        if let Some(cwd) = &options.cwd {
            if !cwd.is_absolute() {
                let detail = format!("working directory {} is not an absolute path", quote(cwd));
                return Err(SandboxError::InvalidPolicy { detail });
            }
            match std::fs::metadata(cwd) {
                Ok(metadata) if metadata.is_dir() => {}
                Ok(_) => return Err(failed(format!("working directory {} is not a directory", quote(cwd)))),
                Err(error) => return Err(failed(format!("working directory {}: {error}", quote(cwd)))),
            }
        }
        if let Some(path) = options.status_file.as_ref().filter(|_| !ours) {
            prepare_status_file(path, &roots.writable)?;
        }
        let denied = self.denied(options, &roots, ours)?;
        let hidden: Vec<_> = denied.covers.iter().map(|cover| cover.path.as_path()).collect();
        roots.pin_between(&hidden)?;
        let findings = self.hard_links.search(&roots.writable, options.hard_links);
        Ok(Call {
            policy,
            options,
            roots,
            denied,
            findings,
            mounts,
            ours,
            terminal: true,
            environment: Vec::new(),
            notes: Vec::new(),
            command_words,
        })
    }

    /// Resolves denied reads, and refuses those without which no command could run.
    fn denied(&self, options: &CallOptions, roots: &Roots, ours: bool) -> Result<Denied, SandboxError> {
        if options.restrictions.denied_reads.is_empty() {
            return Ok(Denied::default());
        }
        let cwd = options.cwd.clone().or_else(|| std::env::current_dir().ok().filter(|_| ours));
        let cwd = cwd.map(|cwd| closed::physical(&cwd));
        let mut needed = vec![("the workspace", roots.workspace.path.as_path())];
        needed.extend(cwd.as_deref().map(|cwd| ("the working directory", cwd)));
        needed.extend(roots.writable.iter().map(|root| ("a writable root", root.path.as_path())));
        if !roots.writable.is_empty() {
            let temps = self.host.shared_temps.iter();
            needed.extend(temps.map(|temp| ("a temp directory, which is private inside", temp.as_path())));
        }
        closed::resolve(&options.restrictions.denied_reads, &needed)
    }

    fn candidates(&self, options: &CallOptions) -> Result<Vec<Backend>, SandboxError> {
        match options.backend {
            Some(Backend::Unconfined) => Err(SandboxError::UnsupportedPolicy {
                backend: Backend::Unconfined.provider_name().to_owned(),
                detail: "it enforces nothing and is not for a confined mode".to_owned(),
            }),
            Some(backend) => Ok(vec![backend]),
            None => Ok(self.chain.clone()),
        }
    }

    /// Takes the first mechanism that works, can express the call and keeps what is required.
    fn choose(
        &self,
        chain: &[Backend],
        call: &Call<'_>,
        passed_over: &mut PassedOver,
        cancel: &Cancel,
    ) -> Result<(Prepared, usize), SandboxError> {
        for (position, backend) in chain.iter().copied().enumerate() {
            if cancel.is_cancelled() {
                return Err(SandboxError::Cancelled);
            }
            let usable = match self.verdict(backend, call.policy.mode, &call.roots.writable) {
                Ok(usable) => usable,
                Err(refusal) => {
                    passed_over.causes.push(refusal.of(backend));
                    continue;
                }
            };
            match self.prepare(call, backend, &usable, passed_over) {
                Ok(prepared) => return Ok((prepared, position)),
                Err(error @ (SandboxError::GuaranteeUnmet { .. } | SandboxError::UnsupportedPolicy { .. })) => {
                    passed_over.causes.push(chain::refusal_of(&error).of(backend));
                    passed_over.first_limit.get_or_insert(error);
                }
                Err(SandboxError::Unavailable { causes, .. }) => passed_over.causes.extend(causes),
                Err(other) => return Err(other),
            }
        }
        // A mechanism that works but gives too little says more than "none works".
        Err(passed_over.first_limit.take().unwrap_or_else(|| SandboxError::Unavailable {
            mode: call.policy.mode,
            causes: passed_over.causes.clone(),
            runner_failure: None,
        }))
    }

    fn prepare(
        &self,
        call: &Call<'_>,
        backend: Backend,
        usable: &Usable,
        passed_over: &PassedOver,
    ) -> Result<Prepared, SandboxError> {
        let failed =
            |detail: String| SandboxError::PreparationFailed { backend: backend.provider_name().to_owned(), detail };
        let runtime = self.runtime()?;
        let mut request = self.request(call, backend, usable)?;
        let needs_temp = backend == Backend::Landlock && request.writes();
        let mut call_temp = None;
        if needs_temp {
            let (temp, directory) =
                self.temp(call, &runtime).map_err(|error| failed(format!("no temp directory: {error}")))?;
            (request.temp, call_temp) = (Some(temp), directory);
        }
        let report = self.report(call, backend, usable, &request, &passed_over.causes);
        let missing = report.missing(&call.options.require);
        if !missing.is_empty() {
            let backend = backend.provider_name().to_owned();
            return Err(SandboxError::GuaranteeUnmet { backend, guarantees: missing });
        }
        let mut status = None;
        let mut theirs = None;
        if call.ours && backend != Backend::Custom {
            let (end, other) = status_channel().map_err(|error| failed(format!("no status channel: {error}")))?;
            request.status = StatusTo::Descriptor(crate::run::number(&other));
            (status, theirs) = (Some(end), Some(other));
        }
        let mut environment = call.environment.clone();
        if call.ours && backend == Backend::Bwrap {
            (environment, request.set) = linux_bwrap::start::split(environment);
        }
        let delivery = if call.ours { Delivery::Descriptor } else { Delivery::File(&runtime) };
        let mut wrapped = chain::wrap(&self.host, backend, usable, &request, &delivery, call.command_words)?;
        wrapped.passed.extend(theirs);
        Ok(Prepared { backend, wrapped, report, environment, status, _temp: call_temp })
    }

    /// Draws up what a plan is made from, or says what the mechanism cannot do of what is asked.
    fn request(&self, call: &Call<'_>, backend: Backend, usable: &Usable) -> Result<Request, SandboxError> {
        let mut cwd = call.options.cwd.clone();
        if cwd.is_none() && call.ours && matches!(backend, Backend::Bwrap | Backend::Custom) {
            // Left alone, bubblewrap goes elsewhere when the directory does not exist inside.
            let failed = |error: std::io::Error| SandboxError::PreparationFailed {
                backend: backend.provider_name().to_owned(),
                detail: format!("the working directory cannot be named: {error}"),
            };
            cwd = Some(std::env::current_dir().map_err(failed)?);
        }
        let has_mounts = matches!(backend, Backend::Namespace | Backend::Bwrap);
        let mut request = Request {
            mode: call.policy.mode,
            roots: call.roots.writable.clone(),
            between: if has_mounts { call.roots.between.clone() } else { Vec::new() },
            closed: Closed::default(),
            landlock_abi: usable.landlock_abi,
            shared_temps: self.host.shared_temps.clone(),
            temp: None,
            cwd,
            status: match &call.options.status_file {
                Some(path) if !call.ours => StatusTo::File(path.clone()),
                _ => StatusTo::Nowhere,
            },
            supervise: call.ours || !call.options.unsupervised,
            terminal: call.terminal,
            set: Vec::new(),
        };
        request.closed = closed_by(call, backend, &request)?;
        Ok(request)
    }

    /// Makes the private temp directory of a call, or finds that of its session or workspace.
    fn temp(&self, call: &Call<'_>, runtime: &RuntimeDir) -> std::io::Result<(PinnedRoot, Option<tempfile::TempDir>)> {
        let workspace = &call.roots.workspace;
        let (base, directory) = match &call.policy.session_id {
            Some(session) => (runtime.kept_temp(&outcome::owner_of_session(session))?, None),
            None if call.ours => {
                let directory = runtime.call_directory()?;
                (directory.path().to_owned(), Some(directory))
            }
            None => {
                let owner = format!("workspace-{:x}-{:x}", workspace.device, workspace.inode);
                (runtime.kept_temp(&owner)?, None)
            }
        };
        Ok((pin_temp(&base)?, directory))
    }

    fn report(
        &self,
        call: &Call<'_>,
        backend: Backend,
        usable: &Usable,
        request: &Request,
        passed_over: &[BackendRefusal],
    ) -> EnforcementReport {
        let mut statement = chain::state(backend, usable, request);
        if request.writes() {
            statement.guarantees.extend(call.mounts.state(backend == Backend::Bwrap));
            if backend == Backend::Bwrap {
                statement.guarantees.extend(linux_bwrap::start::own_devices(call.terminal));
            }
        }
        if request.writes() && !(call.findings.scanned && call.findings.complete) {
            let note = if call.findings.scanned {
                "The search for hard links to files outside did not reach its end."
            } else {
                "Nobody looked for hard links to files outside."
            };
            let line = GuaranteeReport::new(Guarantee::WriteViaLinks, Strength::Partial, &[], false).with_note(note);
            statement.guarantees.push(line);
        }
        for cause in passed_over {
            statement.notes.push(format!("Backend {} was passed over: {}.", cause.backend, cause.reason));
        }
        let restrictions = &call.options.restrictions;
        if restrictions.sockets == Sockets::Closed && request.closed.sockets.is_none() {
            let note = "Sockets by path were to be closed where possible; this backend cannot, so they are open.";
            statement.notes.push(note.to_owned());
        }
        if restrictions.variables == Variables::Scrub && !call.ours {
            let note = "Variables are removed by their names when the command starts; nobody looks at their values.";
            statement.notes.push(note.to_owned());
        }
        statement.notes.extend(call.notes.iter().cloned());
        statement.notes.extend(call.options.notes.iter().cloned());
        EnforcementReport::new(ReportFacts {
            backend: backend.provider_name().to_owned(),
            mode: call.policy.mode.into(),
            workspace_root: call.roots.workspace.path.clone(),
            writable_roots: request.roots.iter().map(|root| root.path.clone()).collect(),
            temp: statement.temp,
            landlock_abi: Some(usable.landlock_abi).filter(|abi| *abi > 0),
            guarantees: statement.guarantees,
            hard_links: call.findings.clone(),
            notes: statement.notes,
        })
    }

    fn runtime(&self) -> Result<Arc<RuntimeDir>, SandboxError> {
        let mut known = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*known {
            return Ok(Arc::clone(runtime));
        }
        let opened =
            RuntimeDir::open(self.configured_runtime.as_deref()).map_err(|detail| SandboxError::PreparationFailed {
                backend: "local".to_owned(),
                detail: format!("no runtime directory: {detail}"),
            })?;
        Ok(Arc::clone(known.insert(Arc::new(opened))))
    }

    fn verdict(&self, backend: Backend, mode: ConfinedMode, writable: &[PinnedRoot]) -> Result<Usable, Refusal> {
        self.verdicts.get((backend, mode), || {
            let Some(files) = self.verdict_files() else { return self.probe(backend, mode, writable) };
            let programs = self.host.programs(backend);
            if let Some(usable) = files.load(backend, mode, &programs) {
                return Ok(usable);
            }
            let usable = self.probe(backend, mode, writable)?;
            files.store(backend, mode, &programs, &usable);
            Ok(usable)
        })
    }

    /// Where verdicts outlive this provider, if that was asked for.
    fn verdict_files(&self) -> Option<VerdictFiles> {
        if !self.keep_verdicts {
            return None;
        }
        VerdictFiles::below(self.runtime().ok()?.root()).ok()
    }

    /// Forgets what is known of a mechanism, here and on disk.
    fn forget(&self, backend: Backend) {
        self.verdicts.forget(backend);
        self.verdict_files().iter().for_each(|files| files.forget(backend));
    }

    fn probe(&self, backend: Backend, mode: ConfinedMode, writable: &[PinnedRoot]) -> Result<Usable, Refusal> {
        let deadline = Instant::now() + self.host.probe_timeout;
        let runtime = self.runtime().map_err(|error| chain::refusal_of(&error))?;
        let failed = |error: std::io::Error| Refusal::new(format!("cannot prepare a probe: {error}"), "");
        let covered = |path: &Path| {
            self.host.shared_temps.iter().any(|temp| path.starts_with(temp)) || path.starts_with("/dev/shm")
        };
        let (directory, uncovered) = if covered(runtime.root()) {
            match canary_place(writable).filter(|place| !covered(place)) {
                Some(place) => (tempfile::Builder::new().prefix("canary-").tempdir_in(place).map_err(failed)?, true),
                None => (runtime.call_directory().map_err(failed)?, false),
            }
        } else {
            (runtime.call_directory().map_err(failed)?, true)
        };
        let canary = Canary::lay_out(directory).map_err(failed)?;
        let writes = mode == ConfinedMode::WorkspaceWrite;
        let temp_directory = runtime.call_directory().map_err(failed)?;
        let temp = match backend {
            Backend::Landlock if writes => Some(pin_temp(temp_directory.path()).map_err(failed)?),
            _ => None,
        };
        let roots: Vec<PinnedRoot> = if writes { vec![canary.granted.clone()] } else { Vec::new() };
        chain::probe(&Trial {
            host: &self.host,
            backend,
            canary: &canary,
            uncovered,
            request: Request {
                mode,
                roots,
                between: Vec::new(),
                closed: Closed::default(),
                landlock_abi: 0,
                shared_temps: self.host.shared_temps.clone(),
                temp,
                cwd: None,
                status: StatusTo::Nowhere,
                supervise: true,
                terminal: false,
                set: Vec::new(),
            },
            deadline,
        })
    }

    fn finding(&self, backend: Backend, mode: ConfinedMode) -> Finding {
        self.forget(backend);
        let mut facts = match backend {
            Backend::Namespace => linux_namespace::probe::facts(),
            Backend::Bwrap => linux_bwrap::probe::facts(&self.host),
            Backend::Landlock => linux_landlock::probe::facts(),
            Backend::Custom | Backend::Unconfined => BTreeMap::new(),
        };
        if let Ok(launcher) = &self.host.launcher {
            facts.insert("launcher".to_owned(), pinfold_policy::quote::readable(launcher));
        }
        let (usable, refusal) = match self.verdict(backend, mode, &[]) {
            Ok(usable) => (Some(usable), None),
            Err(refusal) => (None, Some(refusal)),
        };
        if let Some(usable) = &usable {
            facts.insert("landlock_abi".to_owned(), usable.landlock_abi.to_string());
        }
        let report = usable.as_ref().and_then(|usable| self.canary_report(backend, mode, usable));
        let (reason, remedy) = match refusal {
            Some(refusal) => (Some(refusal.reason), Some(refusal.remedy).filter(|remedy| !remedy.is_empty())),
            None => (None, None),
        };
        Finding { backend, usable: usable.is_some(), reason, remedy, report, facts }
    }

    /// What a mechanism states about a call whose workspace is a directory of ours.
    fn canary_report(&self, backend: Backend, mode: ConfinedMode, usable: &Usable) -> Option<EnforcementReport> {
        let runtime = self.runtime().ok()?;
        let directory = runtime.call_directory().ok()?;
        let workspace = pin_physical(&directory.path().canonicalize().ok()?).ok()?;
        let policy = SandboxPolicy::new(mode, &workspace.path);
        let options = CallOptions::default();
        let writable = if mode == ConfinedMode::WorkspaceWrite { vec![workspace.clone()] } else { Vec::new() };
        let mounts = Mounts::look(&writable, &workspace.path).ok()?;
        let call = Call {
            policy: &policy,
            mounts,
            options: &options,
            findings: HardLinkFindings { scanned: true, complete: true, ..HardLinkFindings::default() },
            roots: Roots { workspace, writable, between: Vec::new() },
            denied: Denied::default(),
            ours: true,
            terminal: false,
            environment: Vec::new(),
            notes: Vec::new(),
            command_words: 1,
        };
        let mut request = self.request(&call, backend, usable).ok()?;
        if request.writes() && backend == Backend::Landlock {
            request.temp = Some(self.temp(&call, &runtime).ok()?.0);
        }
        Some(self.report(&call, backend, usable, &request, &[]))
    }

    fn run_unconfined(
        &self,
        start: Unconfined<'_>,
        policy: &ExecutionPolicy,
        call: &CallOptions,
        run: &RunOptions,
        cancel: &Cancel,
    ) -> Result<RunResult, SandboxError> {
        let Unconfined { argv, environment, scrubbed, begun, deadline } = start;
        let name = Backend::Unconfined.provider_name().to_owned();
        if let Some(backend) = call.backend.filter(|backend| *backend != Backend::Unconfined) {
            let detail = "danger-full-access asks for no confinement".to_owned();
            return Err(SandboxError::UnsupportedPolicy { backend: backend.provider_name().to_owned(), detail });
        }
        policy.validate()?;
        let restrictions = &call.restrictions;
        let sockets = restrictions.sockets == Sockets::Closed && call.sockets == Insistence::Required;
        if restrictions.network != Network::Open || !restrictions.denied_reads.is_empty() || sockets {
            let detail = "under danger-full-access no network, socket or path is closed".to_owned();
            return Err(SandboxError::UnsupportedPolicy { backend: name, detail });
        }
        let mut notes = vec!["Nothing is confined: the policy says danger-full-access.".to_owned()];
        notes.extend(scrubbed);
        notes.extend(call.notes.iter().cloned());
        let report = EnforcementReport::new(ReportFacts {
            backend: name.clone(),
            mode: policy.mode,
            workspace_root: policy.workspace_root.clone(),
            writable_roots: Vec::new(),
            temp: TempView::None,
            landlock_abi: None,
            guarantees: unconfined::state(),
            hard_links: HardLinkFindings::default(),
            notes,
        });
        let missing = report.missing(&call.require);
        if !missing.is_empty() {
            return Err(SandboxError::GuaranteeUnmet { backend: name, guarantees: missing });
        }
        let ended = crate::run::run(Start {
            argv,
            environment: &environment,
            cwd: call.cwd.clone(),
            streams: [run.stdin, run.stdout, run.stderr],
            passed: Vec::new(),
            status: None,
            family: if run.stdin == Stream::Inherit { Family::Alone } else { Family::Group },
            deadline,
            grace: run.grace,
            cancel,
            on_spawn: run.on_spawn.as_ref(),
        });
        let (ending, stdout, stderr) = outcome::unconfined(ended, &argv[0], run.timeout);
        let outcome = Outcome::new(ending, Vec::new(), StatusEvidence::Inferred, Some(report), elapsed(begun));
        Ok(RunResult { outcome, stdout, stderr })
    }
}

/// A command that nothing confines.
struct Unconfined<'a> {
    argv: &'a [OsString],
    environment: Vec<(OsString, OsString)>,
    /// What is to be said of variables that were removed.
    scrubbed: Vec<String>,
    begun: Instant,
    deadline: Option<Instant>,
}

/// What a mechanism closes of what a call wants closed; an error names what it cannot close.
fn closed_by(call: &Call<'_>, backend: Backend, request: &Request) -> Result<Closed, SandboxError> {
    let restrictions = &call.options.restrictions;
    let refusal =
        |detail: String| SandboxError::UnsupportedPolicy { backend: backend.provider_name().to_owned(), detail };
    let unsupported = |detail: &str| Err(refusal(detail.to_owned()));
    let has_mounts = matches!(backend, Backend::Namespace | Backend::Bwrap);
    match restrictions.network {
        Network::Private if !has_mounts => return unsupported("it cannot give a network of its own"),
        Network::Off if !has_mounts && backend != Backend::Landlock => {
            return unsupported("it cannot close the network");
        }
        _ => {}
    }
    if !restrictions.denied_reads.is_empty() && !has_mounts {
        return unsupported("it cannot close paths for reading");
    }
    let mut closed = Closed { network: restrictions.network, denied: call.denied.clone(), ..Closed::default() };
    if restrictions.sockets == Sockets::Closed {
        if has_mounts {
            let cwd = request.cwd.clone().or_else(|| std::env::current_dir().ok());
            let mut inside = vec![call.roots.workspace.path.clone()];
            inside.extend(cwd.map(|cwd| closed::physical(&cwd)));
            closed.sockets = Some(sockets::walls(request, &inside, &restrictions.allowed_sockets));
        } else if call.options.sockets == Insistence::Required {
            return unsupported("it cannot close sockets by path");
        }
    }
    if !call.ours && restrictions.variables == Variables::Scrub {
        if backend == Backend::Custom {
            return unsupported("it removes no variables");
        }
        closed.unset = environment::patterns(restrictions).map_err(refusal)?;
    }
    Ok(closed)
}

/// What was tried before the mechanism that was chosen.
#[derive(Default)]
struct PassedOver {
    causes: Vec<BackendRefusal>,
    /// The first mechanism that works but cannot do what the call asks.
    first_limit: Option<SandboxError>,
}

fn elapsed(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Where a canary is laid out when the runtime directory is below a shared temp directory.
fn canary_place(roots: &[PinnedRoot]) -> Option<PathBuf> {
    canary_place_in(Path::new(&std::env::var_os("HOME")?), roots)
}

/// SECURITY: a command that can write here, or that could when an earlier call was its own, decides what a probe sees,
/// and where it makes its directories.
fn canary_place_in(home: &Path, roots: &[PinnedRoot]) -> Option<PathBuf> {
    let place = home.join(".local/state/pinfold");
    // Not where a link leads, and not `/nonexistent`.
    if home.canonicalize().ok()? != home
        || roots.iter().any(|root| place.starts_with(&root.path) || root.path.starts_with(&place))
    {
        return None;
    }
    // Level by level, so that nothing is made behind a link.
    let user = rustix::process::geteuid().as_raw();
    let mut directory = home.to_owned();
    for name in ["", ".local", "state", "pinfold"] {
        if !name.is_empty() {
            directory.push(name);
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return None,
                _ => {}
            }
        }
        let metadata = std::fs::symlink_metadata(&directory).ok()?;
        if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o022 != 0 {
            return None;
        }
    }
    (place.canonicalize().ok()? == place).then_some(place)
}

fn pin_temp(path: &Path) -> std::io::Result<PinnedRoot> {
    pin_physical(&path.canonicalize()?).map_err(|problem| std::io::Error::other(problem.to_string()))
}

/// Makes the file in which the launcher reports, if it does not exist, and checks where it lies.
fn prepare_status_file(path: &Path, writable: &[PinnedRoot]) -> Result<(), SandboxError> {
    let place = quote(path);
    let invalid = |detail: String| SandboxError::InvalidPolicy { detail };
    let failed = |detail: String| SandboxError::PreparationFailed { backend: "local".to_owned(), detail };
    if !path.is_absolute() {
        return Err(invalid(format!("status file {place} is not an absolute path")));
    }
    let physical = path
        .parent()
        .and_then(|parent| parent.canonicalize().ok())
        .ok_or_else(|| failed(format!("the directory of status file {place} does not exist")))?;
    // SECURITY: a report that the command can write is worth nothing.
    if writable.iter().any(|root| physical.starts_with(&root.path)) {
        return Err(invalid(format!("status file {place} lies below a writable root")));
    }
    let file = std::fs::File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32 | rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path)
        .map_err(|error| failed(format!("cannot open status file {place}: {error}")))?;
    match file.metadata() {
        Ok(metadata) if metadata.is_file() && metadata.nlink() > 1 => {
            Err(failed(format!("status file {place} has another name")))
        }
        Ok(metadata) if metadata.is_file() => Ok(()),
        _ => Err(failed(format!("status file {place} is not a regular file"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_canary_is_laid_out_only_where_no_command_had_a_hand() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (home, out) = (base.join("home"), base.join("out"));
        let make = |path: &Path| std::fs::DirBuilder::new().mode(0o700).create(path).unwrap();
        make(&home);
        make(&out);
        let place = home.join(".local/state/pinfold");
        let outside = [pin_physical(&out).unwrap()];
        let inside = [pin_physical(&home).unwrap()];
        assert_eq!(canary_place_in(&home, &inside), None);
        assert!(!home.join(".local").exists());
        assert_eq!(canary_place_in(&home, &outside), Some(place.clone()));
        make(&place.join("deep"));
        assert_eq!(canary_place_in(&home, &[pin_physical(&place.join("deep")).unwrap()]), None);
        for mode in [0o720, 0o702] {
            std::fs::set_permissions(home.join(".local"), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(canary_place_in(&home, &outside), None);
        }
        std::fs::remove_dir_all(home.join(".local")).unwrap();
        make(&home.join(".local"));
        symlink(&out, home.join(".local/state")).unwrap();
        assert_eq!(canary_place_in(&home, &outside), None);
        assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0);
        symlink(&home, base.join("link")).unwrap();
        assert_eq!(canary_place_in(&base.join("link"), &[]), None);
        assert_eq!(canary_place_in(Path::new("relative"), &[]), None);
    }

    #[test]
    fn a_status_file_has_one_name() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("status");
        assert_eq!(prepare_status_file(&path, &[]), Ok(()));
        std::fs::hard_link(&path, base.path().join("other")).unwrap();
        assert!(prepare_status_file(&path, &[]).unwrap_err().to_string().contains("another name"));
    }
}
