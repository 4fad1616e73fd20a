//! What is known of a mechanism on this host: probed, remembered, and told.

use super::*;

impl LocalProvider {
    /// Probes every mechanism anew, also those behind one that works, and reports what each promises for a call in a
    /// directory of ours. Of the options, what is closed and used up counts.
    pub fn examine(&self, mode: ConfinedMode, options: &CallOptions) -> Vec<Finding> {
        let mut backends = chain::built_in().to_vec();
        if self.host.custom.is_some() {
            backends.push(Backend::Custom);
        }
        // What calls of processes that died have left beside us.
        Places::look().sweep();
        backends.into_iter().map(|backend| self.finding(backend, mode, options)).collect()
    }

    pub(super) fn verdict(&self, backend: Backend, mode: ConfinedMode) -> Result<Usable, Refusal> {
        self.verdicts.get((backend, mode), || {
            let Some(files) = self.verdict_files() else { return self.probe(backend, mode) };
            let programs = self.host.programs(backend);
            if let Some(usable) = files.load(backend, mode, &programs) {
                return Ok(usable);
            }
            let usable = self.probe(backend, mode)?;
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
    pub(super) fn forget(&self, backend: Backend) {
        self.verdicts.forget(backend);
        self.verdict_files().iter().for_each(|files| files.forget(backend));
    }

    fn probe(&self, backend: Backend, mode: ConfinedMode) -> Result<Usable, Refusal> {
        let deadline = Instant::now() + self.host.probe_timeout;
        let runtime = self.runtime().map_err(|error| chain::refusal_of(&error))?;
        let failed = |error: std::io::Error| Refusal::new(format!("cannot prepare a probe: {error}"), "");
        // Where our own files lie below a shared temp directory, a private one would cover the canary: what is out of sight
        // is not shown to be out of reach. The trial goes without that cover; everything else is as in a call.
        let shared_temps =
            self.host.shared_temps.iter().filter(|temp| !runtime.root().starts_with(temp)).cloned().collect();
        let uncovered = !runtime.root().starts_with("/dev/shm");
        let directory = runtime.call_directory().map_err(failed)?;
        let canary = Canary::lay_out(directory).map_err(failed)?;
        let writes = mode == ConfinedMode::WorkspaceWrite;
        let temp_directory = runtime.call_directory().map_err(failed)?;
        let temp = match backend {
            Backend::Landlock if writes => Some(temp::pin(temp_directory.path()).map_err(failed)?),
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
                bounds: Bounds::default(),
                own_copies: Vec::new(),
                devices: Vec::new(),
                landlock_abi: 0,
                shared_temps,
                temp,
                session_temps: Vec::new(),
                other_temps: None,
                cwd: None,
                status: StatusTo::Nowhere,
                asks: None,
                supervise: true,
                terminal: false,
                observed: false,
            },
            deadline,
        })
    }

    pub(super) fn finding(&self, backend: Backend, mode: ConfinedMode, options: &CallOptions) -> Finding {
        self.forget(backend);
        let mut facts = match backend {
            Backend::Namespace => linux_namespace::probe::facts(),
            Backend::Bwrap => linux_bwrap::probe::facts(&self.host),
            Backend::Landlock => linux_landlock::probe::facts(),
            Backend::Custom | Backend::Unconfined => BTreeMap::new(),
        };
        facts.extend(limits::facts(backend));
        if let Ok(launcher) = &self.host.launcher {
            facts.insert("launcher".to_owned(), pinfold_policy::quote::readable(launcher));
        }
        let (usable, refusal) = match self.verdict(backend, mode) {
            Ok(usable) => (Some(usable), None),
            Err(refusal) => (None, Some(refusal)),
        };
        if let Some(usable) = &usable {
            facts.insert("landlock_abi".to_owned(), usable.landlock_abi.to_string());
        }
        let report = usable.as_ref().and_then(|usable| self.canary_report(backend, mode, usable, options));
        let (reason, remedy) = match refusal {
            Some(refusal) => (Some(refusal.reason), Some(refusal.remedy).filter(|remedy| !remedy.is_empty())),
            None => (None, None),
        };
        Finding { backend, usable: usable.is_some(), reason, remedy, report, facts }
    }
}

/// What was tried before the mechanism that was chosen.
#[derive(Default)]
pub(super) struct PassedOver {
    pub(super) causes: Vec<BackendRefusal>,
    /// The first mechanism that works but cannot do what the call asks.
    pub(super) first_limit: Option<SandboxError>,
}
