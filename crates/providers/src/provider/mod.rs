//! The one entry: a provider with its settings, its cached probes and its runtime directory.
//!
//! Two calls with different policies may run at once; nothing of a policy is remembered.

use crate::asks::Asks;
use crate::backend::Backend;
use crate::call::{
    Attempt, CallOptions, Captured, Confinement, Finding, Insistence, ProviderConfig, RunOptions, RunResult, Stream,
};
use crate::canary::Canary;
use crate::cancel::Cancel;
use crate::chain::{self, Delivery, Host, Refusal, Trial, Usable, Verdicts, Wrapped};
use crate::closed::{self, Closed, Denied};
use crate::control_groups::{CallGroup, Places};
use crate::devices;
use crate::explain::{self, Answer, Question};
use crate::hard_links::HardLinkCache;
use crate::host_files::Before;
use crate::limits::{self, Bounds, Kernel, Means};
use crate::mounts::Mounts;
use crate::outcome::{Attempted, interpret};
use crate::own_copies;
use crate::plan::{Request, StatusTo};
use crate::roots::{self, ControlPlane, PinnedRoot, Roots, pin_physical};
use crate::run::{Family, Hold, Resident, Start, status_channel};
use crate::runtime_dir::{self, RuntimeDir};
use crate::verdict_file::VerdictFiles;
use crate::{
    broker, environment, launcher, linux_bwrap, linux_landlock, linux_namespace, outcome, sockets, unconfined,
};
use pinfold_policy::quote::quote;
use pinfold_policy::{
    BackendRefusal, ConfinedArgv, ConfinedMode, Ending, Enforcement, EnforcementReport, ExecutionPolicy, Guarantee,
    GuaranteeReport, HardLinkFindings, Network, Outcome, ReportFacts, RootProblem, RootRole, SandboxError,
    SandboxPolicy, Sockets, StatusEvidence, Strength, TempView, Variables, dialect, validate_command,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

mod asking;
mod before_start;
mod bounded;
mod files;
mod full_access;
mod report;
mod resident;
mod restricted;
mod status_file;
mod temp;
mod verdict;

use asking::{approved, begin_asking};
use before_start::{check_working_directory, never_started, passes_terminal, too_late};
use bounded::{bounded_by, places_for};
pub use files::FileRules;
use full_access::Unconfined;
use resident::may_be_ahead;
use restricted::{closed_by, may_follow, not_too_many, visible_place};
use status_file::prepare_status_file;
use verdict::PassedOver;

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
    resident: Resident,
}

/// Everything of one call that does not depend on the mechanism.
struct Call<'a> {
    policy: &'a SandboxPolicy,
    options: &'a CallOptions,
    roots: Roots,
    denied: Denied,
    findings: HardLinkFindings,
    mounts: Mounts,
    /// Where control groups can be made, if the call may need one.
    places: Places,
    /// Whether the command is started here, and not by the caller.
    ours: bool,
    terminal: bool,
    asks: Option<&'a Asks>,
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
    /// Our end of the status channel.
    status: Option<std::os::fd::OwnedFd>,
    /// Control groups of this call alone.
    group: Option<CallGroup>,
    /// Whether the broker stands between us and the launcher.
    brokered: bool,
    /// Our end of the channel on which the broker asks.
    asks: Option<std::os::fd::OwnedFd>,
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
        let launcher = launcher::expected_path(config.launcher.as_deref());
        Ok(Self {
            resident: Resident::new(launcher.as_deref().ok()),
            chain,
            host: Host {
                broker: broker::expected_path(&launcher),
                launcher,
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
        let result = self.run_once(argv, policy, call, run, cancel);
        self.resident.see_off();
        result
    }

    fn run_once(
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
        call.limits.validate()?;
        let (mut environment, mut scrubbed) = environment::scrub(outcome::environment(&run.env), &call.restrictions);
        let named = call.program.as_ref().map(|program| program.named(argv, &mut environment, &mut scrubbed));
        let argv = named.as_deref().unwrap_or(argv);
        let Some(confined) = policy.confined() else {
            let start = Unconfined { argv, environment, scrubbed, begun, deadline };
            return self.run_unconfined(start, policy, call, run, cancel);
        };
        let mut ours = self.resolve(&confined, call, argv.len(), true)?;
        if cancel.is_cancelled() {
            return Err(SandboxError::Cancelled);
        }
        (ours.terminal, ours.asks) = (passes_terminal(run), run.asks.as_ref());
        (ours.environment, ours.notes) = (environment, scrubbed);
        let mut passed_over = PassedOver::default();
        let mut before = Before::look(&ours.roots.writable, call.host_files);
        let (mut chain, mut looks, hold) = (self.candidates(call)?, 1, Hold::default());
        let resident = run.resident.then_some(&self.resident);
        loop {
            let (prepared, position) = self.choose(&chain, &ours, &mut passed_over, cancel)?;
            let backend = prepared.backend;
            let mut whole = prepared.wrapped.argv;
            let words = whole.len();
            whole.extend_from_slice(argv);
            let mark = (backend == Backend::Bwrap).then(linux_bwrap::start::Mark::new);
            mark.iter().for_each(|mark| mark.put(&mut whole));
            let family = match backend {
                _ if prepared.brokered => Family::Brokered,
                Backend::Bwrap => Family::Nested,
                Backend::Custom if run.stdin != Stream::Inherit => Family::Group,
                _ => Family::Supervised,
            };
            let has_channel = prepared.status.is_some();
            let dialect = self.host.dialect(backend);
            let attempt = Attempt { backend, report: &prepared.report, dialect: &dialect };
            if let Some(ending) = too_late(&attempt, call, run, deadline, cancel)? {
                return Ok(never_started(ending, prepared.report, begun));
            }
            // Who enters a control group does so before there is a wall.
            let plan = prepared.wrapped.lasting.filter(|_| run.resident && prepared.group.is_none());
            let ahead = plan.and_then(|plan| may_be_ahead(plan, call.cwd.as_deref(), words));
            let asking = begin_asking(backend, prepared.asks, run.asks.as_ref(), &hold)?;
            let ended = crate::run::run(Start {
                argv: &whole,
                environment: &ours.environment,
                cwd: None,
                streams,
                given: run.given(),
                observe: run.observe.as_ref(),
                passed: prepared.wrapped.passed,
                status: prepared.status,
                family,
                deadline,
                grace: run.grace,
                cancel,
                on_spawn: run.on_spawn.as_ref(),
                hold: asking.is_some().then_some(&hold),
                refusals: run.refusals.as_ref(),
                resident: resident.filter(|_| family != Family::Nested),
                ahead: ahead.as_ref(),
            });
            let approved = approved(asking, &ended);
            mark.zip(ended.as_ref().ok()).inspect(|(mark, ended)| mark.end_left_behind_by(ended));
            let met = prepared.group.as_ref().map(CallGroup::met).unwrap_or_default();
            let attempted = interpret(ended, &whole[0], &argv[0], has_channel, &dialect, run.timeout);
            let (refusal, runner_failure, stdout, stderr) = match attempted {
                Attempted::Over { ending, denials, evidence, stdout, stderr } => {
                    let outcome = Outcome::new(ending, denials, evidence, Some(prepared.report), elapsed(begun));
                    let changed = before.take().filter(|_| outcome.ran()).map(Before::compare);
                    let outcome = limits::note_met(outcome, &met).with_host_files(changed).with_approved(approved);
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
            chain.retain(|next| may_follow(&ours, backend, *next));
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
            match self.verdict(backend, question.policy.mode) {
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
        options.limits.validate()?;
        let mut control = ControlPlane {
            launcher: self.host.launcher.as_ref().ok().cloned(),
            broker: self.host.broker.as_ref().ok().cloned(),
            runtime_dirs: runtime_dir::intended(self.configured_runtime.as_deref()),
        };
        if !self.has_runtime() {
            // Before the directory is made: it must not appear in somebody's workspace.
            roots::resolve(policy, &control, &options.held)?;
        }
        control.runtime_dirs.push(self.runtime()?.root().to_owned());
        let mut roots = roots::resolve(policy, &control, &options.held)?;
        let mounts = Mounts::look(&roots.writable, &roots.workspace.path)?;
        if let Some(cwd) = &options.cwd {
            check_working_directory(cwd)?;
        }
        if let Some(path) = options.status_file.as_ref().filter(|_| !ours) {
            prepare_status_file(path, &roots.writable)?;
        }
        let denied = self.denied(options, &roots, ours)?;
        // Hollow directories lie in no writable root.
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
            places: places_for(options, ours),
            ours,
            terminal: true,
            asks: None,
            environment: Vec::new(),
            notes: Vec::new(),
            command_words,
        })
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
            let usable = match self.verdict(backend, call.policy.mode) {
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
        let call_temp = self
            .give_temp(call, backend, &mut request, &runtime)
            .map_err(|error| failed(format!("no temp directory: {error}")))?;
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
        let (asks, asked) = self.channel_for_asking(call, backend, &mut request, runtime.root())?;
        let bounds = &request.bounds.groups;
        let group = if bounds.is_empty() { None } else { Some(CallGroup::make(&call.places, bounds).map_err(failed)?) };
        let delivery = if call.ours { Delivery::Descriptor } else { Delivery::File(&runtime) };
        let mut wrapped = chain::wrap(&self.host, backend, usable, &request, &delivery, call.command_words)?;
        wrapped.passed.extend(theirs.into_iter().chain(asked));
        if let Some(group) = &group {
            wrapped.argv = launcher::outside(
                self.host.launcher().map_err(|refusal| failed(refusal.reason))?,
                group.paths(),
                wrapped.argv,
            );
        }
        let brokered = request.is_brokered();
        Ok(Prepared { backend, wrapped, report, status, group, brokered, asks, _temp: call_temp })
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
            bounds: Bounds::default(),
            own_copies: Vec::new(),
            devices: if backend == Backend::Landlock { devices::openable() } else { Vec::new() },
            landlock_abi: usable.landlock_abi,
            shared_temps: self.host.shared_temps.clone(),
            temp: None,
            session_temps: Vec::new(),
            other_temps: None,
            cwd,
            status: match &call.options.status_file {
                Some(path) if !call.ours => StatusTo::File(path.clone()),
                _ => StatusTo::Nowhere,
            },
            asks: None,
            supervise: call.ours || !call.options.unsupervised,
            terminal: call.terminal,
            observed: call.options.observe_denials,
        };
        if backend == Backend::Namespace && !rustix::process::geteuid().is_root() {
            request.own_copies = own_copies::of_ssh(std::env::home_dir().as_deref());
        }
        if has_mounts {
            visible_place(call, &request)?;
        }
        if request.bounds.temp.is_some() && request.writes() && call.policy.session_id.is_some() {
            let detail = "a session's temp area is a directory on the host's file system, which has no size of its own";
            let backend = backend.provider_name().to_owned();
            return Err(SandboxError::UnsupportedPolicy { backend, detail: detail.to_owned() });
        }
        request.closed = closed_by(call, backend, &request, || self.host.broker(usable))?;
        not_too_many(backend, &request)?;
        let mut copies = std::mem::take(&mut request.own_copies);
        copies.retain(|path| !request.out_of_sight(path) && !request.covers(path));
        request.own_copies = copies;
        request.bounds = bounded_by(call, backend, request.writes())?;
        Ok(request)
    }
}

fn elapsed(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}
