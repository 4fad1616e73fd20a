//! Whether this host lets us build the namespaces, shown by building them; and, where it does not, which setting of
//! the host is in the way.

use crate::chain::{Refusal, Trial, Usable, blank};
use crate::status::SetupFailure;
use pinfold_policy::LauncherStage;
use rustix::io::Errno;
use std::collections::BTreeMap;

pub(crate) fn probe(trial: &Trial<'_>) -> Result<Usable, Refusal> {
    trial.with_launcher(blank(trial.host.launcher()?), true)
}

/// Settings that decide whether user namespaces can be made, by name; those that this kernel has.
const SETTINGS: [(&str, &str); 3] = [
    ("user.max_user_namespaces", "/proc/sys/user/max_user_namespaces"),
    ("kernel.unprivileged_userns_clone", "/proc/sys/kernel/unprivileged_userns_clone"),
    ("kernel.apparmor_restrict_unprivileged_userns", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
];

/// Facts about the host that bear on namespaces.
pub(crate) fn facts() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    for (name, path) in SETTINGS {
        if let Some(value) = read(path) {
            facts.insert(name.to_owned(), value);
        }
    }
    if let Some(profile) = read("/proc/self/attr/current").filter(|profile| !profile.is_empty()) {
        facts.insert("apparmor_profile".to_owned(), profile);
    }
    if filtered() {
        facts.insert("seccomp".to_owned(), "this process runs under a system call filter already".to_owned());
    }
    facts
}

fn read(path: &str) -> Option<String> {
    let text = std::fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&text).trim_matches(['\n', '\0', ' ']).to_owned())
}

fn setting_is(name: &str, value: &str) -> bool {
    SETTINGS.iter().any(|(known, path)| *known == name && read(path).as_deref() == Some(value))
}

fn filtered() -> bool {
    read("/proc/self/status").is_some_and(|status| status.lines().any(|line| line == "Seccomp:\t2"))
}

/// Puts a failure of the launcher into words, with the setting that is in the way if one is.
pub(crate) fn explain_failure(failure: &SetupFailure) -> Refusal {
    // The launcher says 0 where no call failed, which is no error's number.
    let errno = (1..4096).contains(&failure.errno).then(|| Errno::from_raw_os_error(failure.errno));
    let cause = failure.known_stage().and_then(|stage| cause(stage, errno));
    match (cause, failure.known_stage()) {
        (Some((cause, remedy)), _) => Refusal::new(format!("{cause} ({})", failure.describe()), remedy),
        (None, Some(stage)) => Refusal::new(failure.describe(), fragment(stage.remedy())),
        (None, None) => Refusal::new(failure.describe(), "install the launcher and the library from the same release"),
    }
}

fn cause(stage: LauncherStage, errno: Option<Errno>) -> Option<(&'static str, &'static str)> {
    use LauncherStage as S;
    let root = rustix::process::geteuid().is_root();
    match stage {
        S::Namespaces | S::IdMap | S::MountReadOnly | S::MountPrivate
            if setting_is("user.max_user_namespaces", "0") =>
        {
            Some(("user namespaces are switched off", "sysctl -w user.max_user_namespaces=15000"))
        }
        S::Namespaces if setting_is("kernel.unprivileged_userns_clone", "0") && !root => {
            Some(("user namespaces are reserved for root", "sysctl -w kernel.unprivileged_userns_clone=1"))
        }
        S::Namespaces | S::IdMap | S::MountReadOnly | S::MountPrivate | S::MountDev | S::MountProc
            if setting_is("kernel.apparmor_restrict_unprivileged_userns", "1") && !root =>
        {
            Some((
                "AppArmor restricts user namespaces of ordinary users",
                "load an AppArmor profile for pinfold-run that has the line `userns,`, or sysctl -w \
                 kernel.apparmor_restrict_unprivileged_userns=0",
            ))
        }
        S::Namespaces if errno == Some(Errno::PERM) && filtered() => Some((
            "a system call filter, such as a container's, refuses new namespaces",
            "start the container with a seccomp profile that allows clone and unshare with CLONE_NEWUSER",
        )),
        S::Namespaces if errno == Some(Errno::NOSPC) => Some((
            "the limit of user namespaces is reached, or nested ones are disabled",
            "raise user.max_user_namespaces, or do not run this inside another sandbox",
        )),
        S::MountProc if errno == Some(Errno::PERM) => Some((
            "the host's /proc is partly hidden, as in many containers, so no new one can be mounted",
            "start the container with an unmasked /proc (docker: --security-opt systempaths=unconfined)",
        )),
        S::MountReadOnly | S::MountRoot | S::RootOpen | S::MountDev if errno == Some(Errno::NOSYS) => Some((
            "this kernel, or a filter, does not offer mount_setattr and open_tree",
            "run Linux 5.12 or newer, or allow these calls in the container's seccomp profile",
        )),
        _ => None,
    }
}

/// A sentence as a fragment: without its capital and its final stop.
fn fragment(sentence: &str) -> String {
    let mut characters = sentence.trim_end_matches('.').chars();
    characters.next().map(|first| first.to_lowercase().chain(characters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_an_error_is_explained_too() {
        let failure =
            SetupFailure { stage: "supervisor".to_owned(), errno: 0, detail: "the caller has ended".to_owned() };
        assert!(explain_failure(&failure).reason.starts_with("launcher/supervisor: the caller has ended"));
        let failure = SetupFailure { stage: "namespaces".to_owned(), errno: 70_000, ..failure };
        assert!(explain_failure(&failure).reason.contains("launcher/namespaces"));
    }

    fn refusal(stage: &str, errno: i32) -> Refusal {
        explain_failure(&SetupFailure { stage: stage.to_owned(), errno, detail: "cannot".to_owned() })
    }

    #[test]
    fn a_masked_proc_is_named() {
        let refusal = refusal("mount-proc", 1);
        assert!(refusal.reason.contains("/proc is partly hidden"), "{}", refusal.reason);
        assert!(refusal.reason.contains("launcher/mount-proc: cannot"));
    }

    #[test]
    fn an_old_kernel_is_named() {
        assert!(refusal("mount-read-only", 38).remedy.contains("Linux 5.12"));
    }

    #[test]
    fn another_failure_keeps_the_remedy_of_its_stage() {
        let refusal = refusal("landlock-unsupported", 95);
        assert!(refusal.remedy.starts_with("add landlock to the lsm= list"), "{}", refusal.remedy);
        assert!(!refusal.remedy.ends_with('.'));
    }
}
