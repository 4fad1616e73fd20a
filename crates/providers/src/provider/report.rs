//! What a mechanism promises for one call.

use super::*;

impl LocalProvider {
    pub(super) fn report(
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
                statement.guarantees.extend(call.mounts.beyond_bubblewrap());
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
        if restrictions.denies_reads() && !matches!(backend, Backend::Namespace | Backend::Bwrap) {
            let note = "Paths were to be closed for reading where possible; this backend cannot, so they are open.";
            statement.notes.push(note.to_owned());
            let line = GuaranteeReport::new(Guarantee::ReadDeny, Strength::None, &[], false).with_note(note);
            statement.guarantees.retain(|line| line.guarantee != Guarantee::ReadDeny);
            statement.guarantees.push(line);
        }
        if restrictions.variables == Variables::Scrub && !call.ours {
            let note = "Variables are removed by their names when the command starts; nobody looks at their values.";
            statement.notes.push(note.to_owned());
        }
        statement.notes.extend(request.bounds.given_up.clone());
        statement.notes.extend(crate::crashes::note(backend).map(str::to_owned));
        let theirs = call.environment.iter().find(|(name, _)| name == "HOME").map(|(_, home)| home.clone());
        let home = if call.ours { theirs } else { std::env::var_os("HOME") };
        if let Some(home) = home.map(PathBuf::from).filter(|home| home.is_absolute() && request.out_of_sight(home)) {
            let note = format!("The home directory {} is not there inside: something private covers it.", quote(&home));
            statement.notes.push(note);
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
            bounds: request.bounds.stated.clone(),
            notes: statement.notes,
        })
    }

    /// What a mechanism states about a call whose workspace is a directory of ours.
    pub(super) fn canary_report(
        &self,
        backend: Backend,
        mode: ConfinedMode,
        usable: &Usable,
        options: &CallOptions,
    ) -> Option<EnforcementReport> {
        let runtime = self.runtime().ok()?;
        let directory = runtime.call_directory().ok()?;
        let workspace = pin_physical(&directory.path().canonicalize().ok()?).ok()?;
        let policy = SandboxPolicy::new(mode, &workspace.path);
        // The caller's place is no part of the question.
        let options = CallOptions { cwd: Some(workspace.path.clone()), ..options.clone() };
        let writable = if mode == ConfinedMode::WorkspaceWrite { vec![workspace.clone()] } else { Vec::new() };
        let mounts = Mounts::look(&writable, &workspace.path).ok()?;
        let call = Call {
            policy: &policy,
            mounts,
            places: Places::default(),
            options: &options,
            findings: HardLinkFindings { scanned: true, complete: true, ..HardLinkFindings::default() },
            denied: self
                .denied(
                    &options,
                    &Roots { workspace: workspace.clone(), writable: writable.clone(), between: Vec::new() },
                    true,
                )
                .ok()?,
            roots: Roots { workspace, writable, between: Vec::new() },
            ours: true,
            terminal: false,
            asks: None,
            environment: Vec::new(),
            notes: Vec::new(),
            command_words: 1,
        };
        let mut request = self.request(&call, backend, usable).ok()?;
        // Kept until the report is drawn up.
        let _temp = self.give_temp(&call, backend, &mut request, &runtime).ok()?;
        Some(self.report(&call, backend, usable, &request, &[]))
    }
}
