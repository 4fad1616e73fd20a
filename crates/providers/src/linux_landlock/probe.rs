//! Whether Landlock and seccomp hold on this host, shown by the canary.

use crate::chain::{Refusal, Trial, Usable, blank};
use std::collections::BTreeMap;

pub(crate) fn probe(trial: &Trial<'_>) -> Result<Usable, Refusal> {
    trial.with_launcher(blank(trial.host.launcher()?), false)
}

/// Facts about the host that bear on Landlock.
pub(crate) fn facts() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    // Absent where securityfs is not mounted.
    if let Ok(list) = std::fs::read_to_string("/sys/kernel/security/lsm") {
        facts.insert("lsm".to_owned(), list.trim().to_owned());
    }
    facts
}
