//! The last looks before something is started.

use super::*;
use std::io::IsTerminal as _;

/// Says how a call ends that must not start any more: its time is up, or whoever is asked says so. A program that is no
/// longer the one that was shown is an error.
pub(super) fn too_late(
    attempt: &Attempt<'_>,
    call: &CallOptions,
    run: &RunOptions,
    deadline: Option<Instant>,
    cancel: &Cancel,
) -> Result<Option<Ending>, SandboxError> {
    if cancel.is_cancelled() {
        return Err(SandboxError::Cancelled);
    }
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        let after_ms = u64::try_from(run.timeout.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
        return Ok(Some(Ending::TimedOut { after_ms, then: None }));
    }
    match &run.before_start {
        Some(ask) if !ask(attempt) => return Err(SandboxError::Cancelled),
        _ => {}
    }
    // SECURITY: last, because somebody may have waited before.
    call.program.as_ref().map_or(Ok(()), |program| program.verify())?;
    Ok(None)
}

/// Whether a terminal is among the command's standard streams.
pub(super) fn passes_terminal(run: &RunOptions) -> bool {
    let own = [std::io::stdin().is_terminal(), std::io::stdout().is_terminal(), std::io::stderr().is_terminal()];
    let streams = [run.stdin, run.stdout, run.stderr];
    own.into_iter().zip(streams).zip(run.given()).any(|((own, stream), given)| match given {
        Some(given) => given.is_terminal(),
        None => own && stream == Stream::Inherit,
    })
}

/// The result of a call that came too late.
pub(super) fn never_started(ending: Ending, report: EnforcementReport, begun: Instant) -> RunResult {
    let outcome = Outcome::new(ending, Vec::new(), StatusEvidence::Channel, Some(report), elapsed(begun));
    RunResult { outcome, stdout: Captured::default(), stderr: Captured::default() }
}

/// Looks whether a working directory can be one, so that its fault is not blamed on the program.
///
/// RACE: it may be another a moment later; then the launcher refuses, or the start fails, and nothing runs elsewhere.
pub(super) fn check_working_directory(cwd: &Path) -> Result<(), SandboxError> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    if !cwd.is_absolute() {
        let detail = format!("working directory {} is not an absolute path", quote(cwd));
        return Err(SandboxError::InvalidPolicy { detail });
    }
    let problem = match std::fs::metadata(cwd) {
        Ok(metadata) if !metadata.is_dir() => " is not a directory".to_owned(),
        Ok(_) => match accessat(CWD, cwd, Access::EXEC_OK, AtFlags::EACCESS) {
            // A kernel without faccessat2(2) cannot say.
            Ok(()) | Err(rustix::io::Errno::NOSYS | rustix::io::Errno::INVAL) => return Ok(()),
            Err(error) => format!(": {}", std::io::Error::from(error)),
        },
        Err(error) => format!(": {error}"),
    };
    let detail = format!("working directory {}{problem}", quote(cwd));
    Err(SandboxError::PreparationFailed { backend: "local".to_owned(), detail })
}
