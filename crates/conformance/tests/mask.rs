//! The mask program hides what it is told to hide, and nothing else.

use pinfold_conformance::start::find_binary;
use std::process::{Command, Output};

fn masked(mask: &[&str], command: &[&str]) -> Output {
    let program = find_binary("pinfold-mask", "pinfold-conformance").expect("the mask program");
    Command::new(program).args(mask).arg("--").args(command).output().expect("start the mask program")
}

/// A Python expression's value under a mask.
fn python(mask: &[&str], expression: &str) -> String {
    let code = format!(
        "import ctypes, errno\nl = ctypes.CDLL(None, use_errno=True)\n\
         def call(*a): return 'ok' if l.syscall(*a) >= 0 else errno.errorcode[ctypes.get_errno()]\n\
         print({expression})"
    );
    let output = masked(mask, &["python3", "-c", &code]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// `landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)`.
const LANDLOCK_VERSION: &str = "call(444, None, 0, 1)";

/// `unshare(CLONE_NEWUSER)`.
const NEW_USER_NAMESPACE: &str = "call(272, 0x10000000)";

#[test]
fn hidden_call_fails_with_the_chosen_error() {
    assert_eq!(python(&[], LANDLOCK_VERSION), "ok");
    assert_eq!(python(&["landlock_create_ruleset"], LANDLOCK_VERSION), "ENOSYS");
    // Python's other name for EOPNOTSUPP.
    assert_eq!(python(&["--errno", "EOPNOTSUPP", "444"], LANDLOCK_VERSION), "ENOTSUP");
    assert_eq!(python(&["openat2", "close_range"], LANDLOCK_VERSION), "ok");
}

#[test]
fn userns_option_forbids_new_user_namespaces_only() {
    assert_eq!(python(&[], NEW_USER_NAMESPACE), "ok");
    assert_eq!(python(&["--userns"], NEW_USER_NAMESPACE), "EPERM");
    assert_eq!(python(&["--userns"], "call(272, 0x400)"), "ok");
    assert_eq!(python(&["--userns"], "call(435, None, 0)"), "ENOSYS");
    assert_eq!(python(&["--userns"], "__import__('subprocess').call(['true'])"), "0");
}

#[test]
fn mask_holds_for_descendants_and_status_passes() {
    let script = "python3 -c \"import ctypes; l = ctypes.CDLL(None, use_errno=True); exit(l.syscall(434, 1, 0) == -1 and ctypes.get_errno())\"";
    assert_eq!(masked(&["pidfd_open"], &["sh", "-c", script]).status.code(), Some(libc::ENOSYS));
    assert_eq!(masked(&["pidfd_open"], &["sh", "-c", "exit 7"]).status.code(), Some(7));
}

#[test]
fn wrong_words_are_refused() {
    assert_eq!(masked(&["no_such_call"], &["true"]).status.code(), Some(125));
    assert_eq!(masked(&["--errno", "ENONSENSE"], &["true"]).status.code(), Some(125));
    assert_eq!(masked(&[], &[]).status.code(), Some(125));
    assert_eq!(masked(&[], &["/no/such/program"]).status.code(), Some(127));
}
