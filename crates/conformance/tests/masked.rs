//! Old and strict kernels, by hiding system calls: a wall that cannot be raised is a refusal, and what runs is as confined as
//! ever. Never a weaker run.
//!
//! Tests are called `BACKEND/UID/without-WHAT`.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::expect::rows;
use pinfold_conformance::judge::run_masked;
use pinfold_conformance::start::{Backend, Mode, uids};

/// What a missing call must lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Exit 125, one line, and nothing ran.
    Refused,
    /// Everything holds all the same.
    Enforced,
}
use Outcome::{Enforced, Refused};

struct Mask {
    name: &'static str,
    words: &'static [&'static str],
    namespace: Outcome,
    landlock: Outcome,
}

const fn mask(name: &'static str, words: &'static [&'static str], namespace: Outcome, landlock: Outcome) -> Mask {
    Mask { name, words, namespace, landlock }
}

const LANDLOCK: &[&str] = &["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"];
const LANDLOCK_OFF: &[&str] =
    &["--errno", "EOPNOTSUPP", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"];
const MOUNT_CALLS: &[&str] = &["open_tree", "move_mount", "fsopen", "fsmount", "fsconfig", "mount_setattr"];

const MASKS: &[Mask] = &[
    mask("landlock", LANDLOCK, Refused, Refused),
    mask("landlock-because-it-is-off", LANDLOCK_OFF, Refused, Refused),
    mask("landlock-rules", &["landlock_add_rule"], Refused, Refused),
    mask("landlock-restriction", &["landlock_restrict_self"], Refused, Refused),
    mask("seccomp", &["seccomp"], Refused, Refused),
    mask("prctl", &["prctl"], Refused, Refused),
    mask("user-namespaces", &["--userns"], Refused, Enforced),
    mask("mount", &["--errno", "EPERM", "mount"], Refused, Enforced),
    mask("recursive-mount-attributes", &["mount_setattr"], Refused, Enforced),
    mask("the-mount-calls-of-5.2", MOUNT_CALLS, Refused, Enforced),
    mask("openat2", &["openat2"], Enforced, Enforced),
    mask("close-range", &["close_range"], Enforced, Enforced),
    mask("close-range-because-it-is-forbidden", &["--errno", "EPERM", "close_range"], Enforced, Enforced),
    mask("pidfds", &["pidfd_open", "pidfd_send_signal", "pidfd_getfd"], Enforced, Enforced),
    mask("pidfds-because-they-are-forbidden", &["--errno", "EPERM", "pidfd_open"], Enforced, Enforced),
    mask("clone3", &["clone3"], Enforced, Enforced),
];

/// Attempts that need none of the hidden calls themselves.
const ATTEMPTS: &[&str] = &[
    "path-open-write",
    "path-create",
    "path-rename-out-to-ws",
    "meta-chmod",
    "inherit-pwrite",
    "inherit-dir-create",
    "inherit-fchmod",
    "admin-power",
    "admin-tiocsti",
    "admin-tty-open",
    "admin-i386-abi",
    "admin-unshare-newuser",
    "proc-kill-signal",
    "proc-ptrace",
    "proc-root-write",
    "ipc-abstract-stream",
    "ws-create",
    "ws-exec-true",
    "ws-pty",
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for backend in [Backend::Namespace, Backend::Landlock] {
        for uid in uids() {
            for mask in MASKS {
                let name = format!("{}/{uid}/without-{}", backend.name(), mask.name);
                trials.push(Trial::test(name, move || check(mask, backend, uid)));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn check(mask: &Mask, backend: Backend, uid: u32) -> Result<(), Failed> {
    let mode = Mode::WorkspaceWrite;
    let results = run_masked(mask.words, backend, mode, uid, ATTEMPTS)?;
    let mut faults = results.stray.clone();
    let expected = if backend == Backend::Namespace { mask.namespace } else { mask.landlock };
    if expected == Refused {
        // "exit status: 125, pinfold-run: …", one line, and no attempt was made.
        let refused = results.end.starts_with("exit status: 125, pinfold") && results.end.lines().count() == 1;
        if !refused || !results.reports.is_empty() || !results.changes.is_empty() {
            faults.push(format!("not refused: {}; {:?}", results.end, results.reports.keys()));
        }
    } else {
        for row in rows().iter().filter(|r| ATTEMPTS.contains(&r.id)) {
            let Some(report) = results.reports.get(row.id) else {
                faults.push(format!("{}: the run did not get there: {}", row.id, results.end));
                continue;
            };
            let changes = results.changes.get(row.id).map_or(&[][..], Vec::as_slice);
            if let Err(fault) = row.expectation(backend, mode, uid)?.verdict(report, changes) {
                faults.push(format!("{}: {fault}", row.id));
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ").into()) }
}
