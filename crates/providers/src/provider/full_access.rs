//! Commands under `danger-full-access`, which nothing confines.

use super::*;
use crate::host_files::{HostFileLook, HostFilePlaces};
use pinfold_policy::Dialect;

impl LocalProvider {
    pub(super) fn run_unconfined(
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
        let reads = restrictions.denies_reads() && call.reads == Insistence::Required;
        if restrictions.network != Network::Open || reads || sockets {
            let detail = "under danger-full-access no network, socket or path is closed".to_owned();
            return Err(SandboxError::UnsupportedPolicy { backend: name, detail });
        }
        if call.observe_denials {
            let detail = "under danger-full-access nothing is refused, and nothing observed".to_owned();
            return Err(SandboxError::UnsupportedPolicy { backend: name, detail });
        }
        let means = Means { kernel: Kernel::look(), places: Places::default(), ours: true };
        let bounds = limits::bounds(&call.limits, call.processes, Backend::Unconfined, false, &means);
        if bounds.is_err() {
            let detail = "under danger-full-access nothing is bounded".to_owned();
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
            bounds: Vec::new(),
            notes,
        });
        let missing = report.missing(&call.require);
        if !missing.is_empty() {
            return Err(SandboxError::GuaranteeUnmet { backend: name, guarantees: missing });
        }
        if let Some(cwd) = &call.cwd {
            check_working_directory(cwd)?;
        }
        let dialect = Dialect { denial_signatures: Vec::new(), runner_failure_rules: Vec::new() };
        let attempt = Attempt { backend: Backend::Unconfined, report: &report, dialect: &dialect };
        if let Some(ending) = too_late(&attempt, call, run, deadline, cancel)? {
            return Ok(never_started(ending, report, begun));
        }
        // The command may go anywhere; these are the places that are looked at.
        let before = HostFilePlaces::of(policy).look(call.host_files);
        let ended = crate::run::run(Start {
            argv,
            environment: &environment,
            cwd: call.cwd.as_deref().map(|cwd| entered(cwd, call)).transpose()?,
            streams: [run.stdin, run.stdout, run.stderr],
            given: run.given(),
            observe: run.observe.as_ref(),
            passed: Vec::new(),
            status: None,
            family: if run.stdin == Stream::Inherit { Family::Alone } else { Family::Group },
            deadline,
            grace: run.grace,
            cancel,
            on_spawn: run.on_spawn.as_ref(),
            hold: None,
            refusals: None,
            resident: None,
            ahead: None,
        });
        let (ending, stdout, stderr) = outcome::unconfined(ended, &argv[0], run.timeout);
        let outcome = Outcome::new(ending, Vec::new(), StatusEvidence::Inferred, Some(report), elapsed(begun));
        let changed = before.filter(|_| outcome.ran()).map(HostFileLook::compare);
        Ok(RunResult { outcome: outcome.with_host_files(changed), stdout, stderr })
    }
}

/// The working directory by a name that cannot become another's: the descriptor of whoever looked at it before, if somebody
/// did. The process that is to execute the command goes there while it still has what we have open.
fn entered(cwd: &Path, call: &CallOptions) -> Result<PathBuf, SandboxError> {
    let Some(held) = call.held.iter().find(|held| held.path() == cwd) else { return Ok(cwd.to_owned()) };
    held.verify().map_err(|problem| {
        let detail = format!("the working directory {} {problem}; the question was about the one before", quote(cwd));
        SandboxError::InvalidPolicy { detail }
    })?;
    Ok(held.by_descriptor().unwrap_or_else(|| cwd.to_owned()))
}

/// A command that nothing confines.
pub(super) struct Unconfined<'a> {
    pub(super) argv: &'a [OsString],
    pub(super) environment: Vec<(OsString, OsString)>,
    /// What is to be said of variables that were removed.
    pub(super) scrubbed: Vec<String>,
    pub(super) begun: Instant,
    pub(super) deadline: Option<Instant>,
}
