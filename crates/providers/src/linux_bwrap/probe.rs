//! Which bubblewrap is trusted, which of its arguments this host takes, and whether its walls hold.

use super::plan::LADDER;
use crate::canary::said;
use crate::chain::{Attempt, Host, Refusal, Trial, Usable, blank};
use crate::launcher;
use crate::run::Ended;
use pinfold_policy::quote::quote;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

const REMEDY: &str = "install bubblewrap from the distribution (apt install bubblewrap, dnf install bubblewrap)";

/// Finds bubblewrap in the fixed places; never in `PATH`.
pub(crate) fn find(candidates: &[PathBuf]) -> Result<PathBuf, Refusal> {
    for candidate in candidates.iter().filter(|candidate| candidate.is_absolute()) {
        let Ok(path) = candidate.canonicalize() else { continue };
        trusted(&path)?;
        return Ok(path);
    }
    let places: Vec<_> = candidates.iter().map(quote).collect();
    Err(Refusal::new(format!("bubblewrap is not at any of {}", places.join(", ")), REMEDY))
}

/// Checks that only root could have written a bubblewrap; done anew before every use.
pub(crate) fn trusted(path: &Path) -> Result<(), Refusal> {
    let refuse = |reason| Err(Refusal::new(reason, REMEDY));
    match launcher::trusted(path, "bubblewrap") {
        // SECURITY: one that belongs to the user may have been put there by the user's own confined commands.
        Ok(metadata) if metadata.uid() != 0 => refuse(format!("bubblewrap {} does not belong to root", quote(path))),
        Ok(_) => Ok(()),
        Err(reason) => refuse(reason),
    }
}

pub(crate) fn probe(trial: &Trial<'_>) -> Result<Usable, Refusal> {
    trial.host.launcher()?;
    let mut usable = blank(&find(&trial.host.bwrap_candidates)?);
    usable.landlock_abi = 1;
    for features in LADDER {
        usable.features = features;
        // Bubblewrap takes these arguments if the launcher inside gets to speak at all.
        match trial.attempt(&usable, trial.canary.by_name())? {
            Attempt::Lost(reason) => return Err(Refusal::new(reason, "")),
            Attempt::Done(_, status) if status.confined.is_none() && status.setup_failed.is_none() => {}
            Attempt::Done(..) => break,
        }
    }
    trial.canary.clear_granted().map_err(|error| Refusal::new(format!("cannot prepare a probe: {error}"), ""))?;
    trial.with_launcher(usable, false)
}

/// Puts a failure of bubblewrap into words.
pub(crate) fn explain_failure(ended: &Ended) -> Refusal {
    let text = String::from_utf8_lossy(&ended.stderr.bytes);
    let reason = format!("bubblewrap did not start the launcher ({}){}", ended.exit, said(ended));
    let remedy = if text.contains("No permissions to create new namespace") || text.contains("uid map") {
        "allow user namespaces for bubblewrap (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
         kernel.apparmor_restrict_unprivileged_userns), or install it set-user-id root"
    } else if text.contains("mount proc") {
        "start the container with an unmasked /proc (docker: --security-opt systempaths=unconfined)"
    } else if text.contains("Unknown option") {
        "install bubblewrap 0.8 or newer"
    } else {
        ""
    };
    Refusal::new(reason, remedy)
}

/// Facts about the host's bubblewrap.
pub(crate) fn facts(host: &Host) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let Ok(path) = find(&host.bwrap_candidates) else { return facts };
    if let Ok(metadata) = std::fs::metadata(&path) {
        let setuid = if metadata.mode() & 0o4000 != 0 { "yes" } else { "no" };
        facts.insert("bwrap_setuid".to_owned(), setuid.to_owned());
    }
    let argv = [path.clone().into(), "--version".into()];
    let deadline = Instant::now() + host.probe_timeout;
    let streams = [crate::Stream::Null, crate::Stream::Capture { limit: 200 }, crate::Stream::Null];
    if let Ok(ended) = crate::run::run(crate::run::Start {
        argv: &argv,
        environment: &[],
        cwd: Some("/".into()),
        streams,
        given: [None; 3],
        observe: None,
        passed: Vec::new(),
        status: None,
        family: crate::run::Family::Alone,
        deadline: Some(deadline),
        grace: std::time::Duration::ZERO,
        cancel: &crate::Cancel::new(),
        on_spawn: None,
        hold: None,
        refusals: None,
        resident: None,
        ahead: None,
    }) {
        let text = String::from_utf8_lossy(&ended.stdout.bytes).trim().to_owned();
        facts.insert("bwrap_version".to_owned(), text);
    }
    facts.insert("bwrap_path".to_owned(), pinfold_policy::quote::readable(&path));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bubblewrap_that_is_missing_or_not_roots_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("bwrap");
        let missing = find(&[path.clone(), "bwrap".into()]).unwrap_err();
        assert!(missing.reason.starts_with("bubblewrap is not at any of"), "{}", missing.reason);
        std::fs::copy("/proc/self/exe", &path).unwrap();
        // Root can give it away; another user owns it to begin with.
        let _ = std::os::unix::fs::chown(&path, Some(1), Some(1));
        let reason = find(&[path]).unwrap_err().reason;
        assert!(reason.contains("belongs to user") || reason.contains("does not belong to root"), "{reason}");
    }
}
