//! Which mechanisms there are, what each one's probe found, and how a plan becomes an argv.

use crate::backend::Backend;
use crate::broker;
use crate::call::CustomRunner;
use crate::canary::{Act, Canary, attempt, said};
use crate::launcher;
use crate::linux_bwrap::plan::{Features, LADDER, MAX_ARGUMENTS};
use crate::plan::{Proof, Request, Statement, StatusTo};
use crate::protected::Protected;
use crate::run::{Ended, LastingPlan, Stopped};
use crate::runtime_dir::RuntimeDir;
use crate::status::Status;
use crate::{custom_runner, linux_bwrap, linux_landlock, linux_namespace};
use pinfold_policy::quote::quote;
use pinfold_policy::{BackendRefusal, ConfinedMode, Dialect, SandboxError, dialect};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a refusal is believed; what is usable stays so until it fails.
const REFUSAL_LIFE: Duration = Duration::from_secs(30);

/// The mechanisms of this operating system, in the order in which they are tried.
pub(crate) fn built_in() -> &'static [Backend] {
    if cfg!(target_os = "linux") { &[Backend::Namespace, Backend::Bwrap, Backend::Landlock] } else { &[] }
}

/// Why a mechanism cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) reason: String,
    pub(crate) remedy: String,
}

impl Refusal {
    pub(crate) fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: remedy.into() }
    }

    pub(crate) fn of(self, backend: Backend) -> BackendRefusal {
        BackendRefusal { backend: backend.provider_name().to_owned(), reason: self.reason, remedy: self.remedy }
    }
}

/// What a probe found of a mechanism that works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Usable {
    pub(crate) landlock_abi: u32,
    pub(crate) proof: Proof,
    pub(crate) features: Features,
    /// The program that is started: the launcher, bubblewrap, or an operator's runner.
    pub(crate) program: PathBuf,
}

/// The settings that probes and plans need.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) launcher: Result<PathBuf, String>,
    pub(crate) broker: Result<PathBuf, String>,
    pub(crate) bwrap_candidates: Vec<PathBuf>,
    pub(crate) custom: Option<(CustomRunner, Dialect)>,
    pub(crate) probe_timeout: Duration,
    pub(crate) shared_temps: Vec<PathBuf>,
}

impl Host {
    /// The launcher, checked now: it may have been replaced since the last call.
    pub(crate) fn launcher(&self) -> Result<&Path, Refusal> {
        let path = self.launcher.as_ref().map_err(|reason| Refusal::new(reason, launcher::INSTALL))?;
        launcher::verify(path).map_err(|reason| Refusal::new(reason, launcher::remedy(path, launcher::INSTALL)))?;
        Ok(path)
    }

    /// The broker, checked now.
    pub(crate) fn broker_path(&self) -> Result<&Path, String> {
        let path = self.broker.as_ref().map_err(Clone::clone)?;
        launcher::verify(path).map_err(|reason| format!("{reason}; {}", launcher::remedy(path, broker::REMEDY)))?;
        Ok(path)
    }

    /// Whether the broker can be used for a call.
    pub(crate) fn broker(&self, usable: &Usable) -> Result<(), String> {
        self.broker_path()?;
        if usable.proof.protected {
            Ok(())
        } else {
            Err("a probe did not show that the broker keeps what it is to keep under it".to_owned())
        }
    }

    /// The programs that a mechanism's verdict depends on.
    pub(crate) fn programs(&self, backend: Backend) -> Vec<&Path> {
        let mut programs: Vec<&Path> = self.launcher.iter().map(PathBuf::as_path).collect();
        match backend {
            Backend::Bwrap => {
                programs.extend(self.bwrap_candidates.iter().filter(|path| path.exists()).map(PathBuf::as_path))
            }
            Backend::Custom => {
                programs.extend(self.custom.iter().flat_map(|(runner, _)| runner.argv.first()).map(Path::new))
            }
            Backend::Namespace | Backend::Landlock => {
                programs.extend(self.broker.iter().filter(|path| path.exists()).map(PathBuf::as_path));
            }
            Backend::Unconfined => {}
        }
        programs
    }

    pub(crate) fn dialect(&self, backend: Backend) -> Dialect {
        match (backend, &self.custom) {
            (Backend::Bwrap, _) => dialect::bwrap_with_launcher(),
            (Backend::Landlock, _) => dialect::launcher_landlock(),
            (Backend::Custom, Some((_, dialect))) => dialect.clone(),
            _ => dialect::launcher_namespace(),
        }
    }
}

/// The host's shared temp directories as they really are.
pub(crate) fn shared_temps() -> Vec<PathBuf> {
    let mut temps: Vec<PathBuf> = Vec::new();
    for path in ["/tmp", "/var/tmp"] {
        if let Ok(path) = std::fs::canonicalize(path)
            && path.is_dir()
            && !temps.iter().any(|known| path.starts_with(known))
        {
            temps.push(path);
        }
    }
    temps
}

/// How a plan that is too long for an argv reaches the launcher.
pub(crate) enum Delivery<'a> {
    File(&'a RuntimeDir),
    Descriptor,
}

/// An argv without its command, and what it needs.
#[derive(Debug)]
pub(crate) struct Wrapped {
    /// Ends in `--`.
    pub(crate) argv: Vec<OsString>,
    pub(crate) passed: Vec<OwnedFd>,
    pub(crate) plan_file: Option<tempfile::TempPath>,
    /// What of the plan a later call can have in common with this one.
    pub(crate) lasting: Option<LastingPlan>,
}

/// Turns a plan into an argv.
pub(crate) fn wrap(
    host: &Host,
    backend: Backend,
    usable: &Usable,
    request: &Request,
    delivery: &Delivery<'_>,
    command_words: usize,
) -> Result<Wrapped, SandboxError> {
    let prepare = |detail: String| SandboxError::PreparationFailed { backend: backend.provider_name().into(), detail };
    let unavailable = |refusal: Refusal| SandboxError::Unavailable {
        mode: request.mode,
        causes: vec![refusal.of(backend)],
        runner_failure: None,
    };
    let unsupported =
        |detail: String| SandboxError::UnsupportedPolicy { backend: backend.provider_name().into(), detail };
    if backend == Backend::Custom {
        let Some((runner, _)) = &host.custom else {
            return Err(unavailable(custom_runner::probe::not_configured()));
        };
        if request.status != StatusTo::Nowhere {
            return Err(unsupported("an operator's own runner has no status channel".to_owned()));
        }
        let mut argv = runner.argv.clone();
        argv.extend(custom_runner::plan::plan(request, host.launcher.clone().ok().as_slice()));
        return Ok(Wrapped { argv, passed: Vec::new(), plan_file: None, lasting: None });
    }
    let launcher = host.launcher().map_err(unavailable)?;
    let asked = request;
    let brokered;
    let request = if asked.is_brokered() {
        brokered = broker::passed_on(asked);
        &brokered
    } else {
        asked
    };
    let mut words = match backend {
        Backend::Bwrap => linux_bwrap::plan::inner(request),
        Backend::Landlock => linux_landlock::plan::plan(request),
        _ => linux_namespace::plan::plan(request),
    };
    if request.is_brokered() {
        // The broker is outside of the walls: variables that steer the loader of its program are not for it.
        launcher::push(&mut words, &["--broker-fd", broker::SOCKET, "--restore"]);
    }
    if request.connects_by_broker() {
        launcher::push(&mut words, &["--broker-connections"]);
    }
    let lasting = (backend == Backend::Namespace && !asked.is_brokered()).then(|| {
        let lasting = words.len() - request.own_words().len();
        let copied = request.own_copies.iter().map(PathBuf::as_path);
        LastingPlan {
            words: words[..lasting].to_vec(),
            shown: copied.chain(request.keeps()).map(Path::to_owned).collect(),
        }
    });
    let (mut passed, mut plan_file) = (Vec::new(), None);
    let inner = if launcher::fits_inline(&words) {
        launcher::prefix(launcher, words)
    } else {
        let block = launcher::block(&words);
        let (option, place): (OsString, OsString) = match delivery {
            Delivery::Descriptor => {
                let fd = crate::run::plan_descriptor(&block).map_err(|error| prepare(format!("no plan: {error}")))?;
                let number = crate::run::number(&fd).to_string();
                passed.push(fd);
                ("--from-fd".into(), number.into())
            }
            Delivery::File(runtime) => {
                let path = runtime.plan_file(&block).map_err(|error| {
                    prepare(format!("cannot write a plan below {}: {error}", quote(runtime.root())))
                })?;
                let place = path.as_os_str().to_owned();
                plan_file = Some(path);
                ("--from-file".into(), place)
            }
        };
        launcher::prefix(launcher, [option, place])
    };
    if asked.is_brokered() {
        let program = host.broker.as_ref().map_err(|reason| unavailable(Refusal::new(reason, "")))?;
        launcher::verify(program).map_err(|reason| unavailable(Refusal::new(reason, broker::REMEDY)))?;
        let mut argv = broker::prefix(program, backend, asked);
        argv.extend(inner);
        let argv = launcher::outside(launcher, [], argv);
        return Ok(Wrapped { argv, passed, plan_file, lasting: None });
    }
    if backend != Backend::Bwrap {
        return Ok(Wrapped { argv: inner, passed, plan_file, lasting });
    }
    linux_bwrap::probe::trusted(&usable.program).map_err(unavailable)?;
    let mut visible = vec![launcher.to_owned()];
    visible.extend(plan_file.as_ref().map(|path| path.to_path_buf()));
    let reporting = match &request.status {
        StatusTo::File(path) => Some(path.as_path()),
        _ => None,
    };
    let mut ours = visible.iter().map(PathBuf::as_path).chain(reporting);
    if let Some(path) = ours.find(|path| request.covers(path)) {
        return Err(unsupported(format!("the launcher inside needs {}, which lies at a denied path", quote(path))));
    }
    let mut argv: Vec<OsString> = vec![usable.program.clone().into()];
    argv.extend(linux_bwrap::plan::outer(request, usable.features, &visible, reporting));
    argv.push("--".into());
    argv.extend(inner);
    let all = argv.len() + command_words + linux_bwrap::start::MARK_WORDS;
    if all > MAX_ARGUMENTS {
        let detail = format!("{all} arguments in all; bubblewrap takes {MAX_ARGUMENTS} at most");
        // SECURITY: what is hidden may be too much because an earlier command made it so. The next mechanism would hide nothing.
        let hides = !(request.walls().is_empty() && request.hollows().is_empty());
        return Err(if hides { prepare(detail) } else { unsupported(detail) });
    }
    // SECURITY: bubblewrap is linked dynamically and runs before there is a wall; what variables name, such as a library in
    // the workspace, must not be loaded into it.
    let argv = launcher::guarded(launcher, argv);
    Ok(Wrapped { argv, passed, plan_file, lasting: None })
}

/// What a mechanism states about a call.
pub(crate) fn state(backend: Backend, usable: &Usable, request: &Request) -> Statement {
    match backend {
        Backend::Bwrap => linux_bwrap::plan::state(request, usable.features, usable.proof),
        Backend::Landlock => linux_landlock::plan::state(request, usable.proof),
        Backend::Custom => custom_runner::plan::state(request, usable.proof),
        Backend::Namespace | Backend::Unconfined => linux_namespace::plan::state(request, usable.proof),
    }
}

type Slot = Arc<Mutex<Option<(Instant, Result<Usable, Refusal>)>>>;

/// What probes have found so far.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(Mutex<HashMap<(Backend, ConfinedMode), Slot>>);

impl Verdicts {
    /// Returns what is known, or probes; others that ask for the same wait for the one probe.
    pub(crate) fn get(
        &self,
        key: (Backend, ConfinedMode),
        probe: impl FnOnce() -> Result<Usable, Refusal>,
    ) -> Result<Usable, Refusal> {
        let slot = {
            let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(slots.entry(key).or_default())
        };
        let mut known = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, verdict)) = &*known
            && (verdict.is_ok() || when.elapsed() < REFUSAL_LIFE)
        {
            return verdict.clone();
        }
        let verdict = probe();
        *known = Some((Instant::now(), verdict.clone()));
        verdict
    }

    /// Forgets what is known of a mechanism, because it failed a call.
    pub(crate) fn forget(&self, backend: Backend) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(known, _), _| *known != backend);
    }
}

/// A probe of one mechanism in one mode, with all it needs.
pub(crate) struct Trial<'a> {
    pub(crate) host: &'a Host,
    pub(crate) backend: Backend,
    pub(crate) canary: &'a Canary,
    /// Whether the canary lies where no private temp directory covers it.
    pub(crate) uncovered: bool,
    pub(crate) request: Request,
    pub(crate) deadline: Instant,
}

/// How one attempt ended.
pub(crate) enum Attempt {
    Done(Ended, Box<Status>),
    /// It took too long or could not be started.
    Lost(String),
}

impl Trial<'_> {
    /// Runs one act of the canary under the plan of this trial.
    pub(crate) fn attempt(&self, usable: &Usable, act: Act) -> Result<Attempt, Refusal> {
        let mut request = self.request.clone();
        request.landlock_abi = usable.landlock_abi;
        let lost = |error: std::io::Error| Refusal::new(format!("cannot prepare a probe: {error}"), "");
        let (mut status, mut passed) = (None, act.passed);
        if self.backend != Backend::Custom {
            let (ours, theirs) = crate::run::status_channel().map_err(lost)?;
            request.status = StatusTo::Descriptor(crate::run::number(&theirs));
            status = Some(ours);
            passed.push(theirs);
        }
        let wrapped = wrap(self.host, self.backend, usable, &request, &Delivery::Descriptor, 4)
            .map_err(|error| refusal_of(&error))?;
        passed.extend(wrapped.passed);
        let mut argv = wrapped.argv;
        // The launcher executes itself, also where a private temp directory hides its path.
        let program = match (self.backend, &self.host.launcher) {
            (Backend::Custom, Ok(launcher)) => launcher.clone().into(),
            _ => OsString::from("/proc/self/exe"),
        };
        argv.extend([program, "--canary".into()]);
        argv.extend(act.arguments);
        match attempt(&argv, &[], passed, status, self.deadline) {
            Ok((ended, _)) if ended.stopped == Some(Stopped::TimedOut) => {
                Ok(Attempt::Lost(format!("the probe did not end within {:?}", self.host.probe_timeout)))
            }
            Ok((ended, status)) => Ok(Attempt::Done(ended, Box::new(status))),
            Err(error) => Ok(Attempt::Lost(format!("cannot start {}: {error}", quote(&argv[0])))),
        }
    }

    /// The attempts after the first, and the verdict of the disk.
    pub(crate) fn conclude(&self, mut usable: Usable) -> Result<Usable, Refusal> {
        let lost = |error: std::io::Error| Refusal::new(format!("cannot prepare a probe: {error}"), "");
        for act in self.canary.around().map_err(lost)? {
            if let Attempt::Lost(reason) = self.attempt(&usable, act)? {
                return Err(Refusal::new(reason, ""));
            }
        }
        usable.proof = self.canary.proof().map_err(|reason| Refusal::new(reason, ""))?;
        Ok(usable)
    }

    /// Whether the broker protects names, and metadata outside, under this mechanism; where nothing is writable, whether all stays
    /// as it is with it in between. That it does not is no reason to do
    /// without the mechanism: calls that need the broker then do.
    fn with_broker(&self, usable: &Usable) -> Result<(bool, bool), Refusal> {
        if !matches!(self.backend, Backend::Namespace | Backend::Landlock) || self.host.broker_path().is_err() {
            return Ok((false, false));
        }
        let lost = |error: std::io::Error| Refusal::new(format!("cannot prepare a probe: {error}"), "");
        let found = |reason: String| Refusal::new(reason, "");
        let kept = self.canary.lay_out_kept().map_err(lost)?;
        let mut trial = Self { request: self.request.clone(), ..*self };
        if !self.request.writes() {
            // Nothing to protect: the broker stands there to tell what is refused, and must open nothing.
            trial.request.observed = true;
            let Attempt::Done(ended, status) = trial.attempt(usable, self.canary.by_name())? else {
                return Ok((false, false));
            };
            let refused = status.denials.iter().any(|denial| denial.operation.as_deref() == Some("open"));
            let held = status.command_ran() && refused && self.canary.judge_by_name(self.request.mode, &ended).is_ok();
            let governed = held && self.canary.outside_is_untouched().map_err(found)?;
            return Ok((governed, governed));
        }
        trial.request.closed.protected = Some(Protected::path(kept));
        let held = |act: Act| -> Result<bool, Refusal> {
            self.canary.clear_granted().map_err(lost)?;
            let Attempt::Done(ended, status) = trial.attempt(usable, act)? else { return Ok(false) };
            Ok(status.command_ran() && self.canary.judge_granted(&ended))
        };
        let protected = held(self.canary.by_protected_name())? && self.canary.kept_is_untouched().map_err(found)?;
        let governed = held(self.canary.by_name())? && self.canary.outside_is_untouched().map_err(found)?;
        Ok((protected, governed))
    }

    /// A whole probe of a mechanism that runs our launcher. Landlock is required unless `without_landlock`.
    pub(crate) fn with_launcher(&self, mut usable: Usable, without_landlock: bool) -> Result<Usable, Refusal> {
        usable.landlock_abi = 1;
        let (ended, status) = loop {
            match self.attempt(&usable, self.canary.by_name())? {
                Attempt::Lost(reason) => return Err(Refusal::new(reason, "")),
                Attempt::Done(ended, status) => {
                    let stage = status.setup_failed.as_ref().and_then(|failure| failure.known_stage());
                    let no_landlock = stage == Some(pinfold_policy::LauncherStage::LandlockUnsupported);
                    if no_landlock && without_landlock && usable.landlock_abi > 0 {
                        usable.landlock_abi = 0;
                        continue;
                    }
                    break (ended, status);
                }
            }
        };
        let Some(abi) = status.confined.filter(|_| status.command_ran()) else {
            return Err(not_started(self.backend, &ended, &status));
        };
        usable.landlock_abi = abi;
        self.canary
            .judge_by_name(self.request.mode, &ended)
            .map_err(|reason| Refusal::new(reason, "report this: the walls stand but do not hold"))?;
        let mut usable = self.conclude(usable)?;
        (usable.proof.protected, usable.proof.governed) = self.with_broker(&usable)?;
        let proof = usable.proof;
        let metadata = proof.metadata || (self.backend == Backend::Landlock && self.request.writes());
        if !(proof.content && metadata && proof.links && proof.inherited && proof.process_root) {
            let reason = format!("a way out was found that the plan closes: {proof:?}");
            return Err(Refusal::new(reason, "report this: the walls stand but do not hold"));
        }
        if !self.uncovered && self.request.writes() {
            // What was out of sight was not shown to be out of reach.
            let Proof { protected, governed, .. } = usable.proof;
            usable.proof = Proof { inherited: proof.inherited, protected, governed, ..Proof::default() };
        }
        Ok(usable)
    }
}

fn not_started(backend: Backend, ended: &Ended, status: &Status) -> Refusal {
    match &status.setup_failed {
        Some(failure) => linux_namespace::probe::explain_failure(failure),
        None if backend == Backend::Bwrap => linux_bwrap::probe::explain_failure(ended),
        None => Refusal::new(format!("the launcher said nothing ({}){}", ended.exit, said(ended)), ""),
    }
}

/// An error as the reason of a refusal.
pub(crate) fn refusal_of(error: &SandboxError) -> Refusal {
    match error {
        SandboxError::Unavailable { causes, .. } if causes.len() == 1 => {
            Refusal::new(&causes[0].reason, &causes[0].remedy)
        }
        SandboxError::PreparationFailed { detail, .. } | SandboxError::UnsupportedPolicy { detail, .. } => {
            Refusal::new(detail, "")
        }
        other => Refusal::new(other.to_string(), ""),
    }
}

/// Probes a mechanism.
pub(crate) fn probe(trial: &Trial<'_>) -> Result<Usable, Refusal> {
    match trial.backend {
        Backend::Namespace => linux_namespace::probe::probe(trial),
        Backend::Bwrap => linux_bwrap::probe::probe(trial),
        Backend::Landlock => linux_landlock::probe::probe(trial),
        Backend::Custom => custom_runner::probe::probe(trial),
        Backend::Unconfined => Err(Refusal::new("it enforces nothing", "choose danger-full-access to run unconfined")),
    }
}

/// What is known of a mechanism before anything was tried.
pub(crate) fn blank(program: &Path) -> Usable {
    Usable { landlock_abi: 0, proof: Proof::default(), features: LADDER[0], program: program.to_owned() }
}
