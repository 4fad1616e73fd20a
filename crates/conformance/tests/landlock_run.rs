//! `landlock-run` is a drop-in: grammar, exit status, lines, and what it grants (the reference's statements D, U084 to U120).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The launcher and a directory of this test, outside the system's temporary directories.
struct Setup {
    launcher: PathBuf,
    base: PathBuf,
}

impl Setup {
    fn new(name: &str) -> Self {
        let bin = std::env::var_os("PINFOLD_BIN_DIR").map_or_else(beside_test, PathBuf::from);
        let launcher = bin.join("landlock-run");
        assert!(launcher.is_file(), "{} is missing: run `cargo build -p pinfold-launcher`", launcher.display());
        let place = std::env::var_os("PINFOLD_TEST_BASE").map_or(env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
        let base = place.join(format!("landlock-run-{name}-{}", std::process::id()));
        fs::create_dir_all(base.join("in")).expect("a directory of our own");
        fs::create_dir_all(base.join("out")).expect("a directory of our own");
        Self { launcher, base }
    }

    fn path(&self, name: &str) -> String {
        self.base.join(name).to_str().expect("UTF-8").to_owned()
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output =
            Command::new(&self.launcher).args(arguments).stdin(Stdio::null()).output().expect("the launcher starts");
        triple(&output)
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // What is left behind shows in the next run of the same process number; it never decides a test.
        let _ = fs::remove_dir_all(&self.base);
    }
}

fn triple(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn beside_test() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.parent().and_then(Path::parent).expect("target/debug/deps/test").to_owned()
}

fn refused(text: &str) -> (i32, String, String) {
    (125, String::new(), format!("landlock-run: {text}\n"))
}

#[test]
fn usage_errors_have_their_texts_and_run_nothing() {
    let setup = Setup::new("usage");
    let missing = refused("usage error: missing `-- <argv>...` command");
    assert_eq!(setup.run(&[]), missing);
    assert_eq!(setup.run(&["--"]), missing);
    assert_eq!(setup.run(&["--ro", "/"]), missing);
    assert_eq!(setup.run(&["--ro", "/", "--"]), missing);
    assert_eq!(setup.run(&["--ro"]), refused("usage error: --ro requires a path"));
    assert_eq!(setup.run(&["--ro", "/", "--rw"]), refused("usage error: --rw requires a path"));
    assert_eq!(setup.run(&["--net", "--", "true"]), refused("usage error: unknown argument: --net"));
    assert_eq!(setup.run(&["true"]), refused("usage error: unknown argument: true"));
    let exclusive = refused("usage error: --probe takes no other arguments");
    for arguments in
        [&["--probe", "--probe"][..], &["--probe", "--"], &["--probe", "--ro", "/"], &["--ro", "/", "--probe"]]
    {
        assert_eq!(setup.run(arguments), exclusive, "{arguments:?}");
    }
}

#[test]
fn the_probe_restricts_itself_and_says_how_far() {
    let (code, stdout, stderr) = Setup::new("probe").run(&["--probe"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(
        ["landlock: fully enforced\n", "landlock: partially enforced (older ABI)\n"].contains(&stdout.as_str()),
        "{stdout:?}"
    );
}

#[test]
fn a_path_that_cannot_be_opened_refuses_the_run() {
    let setup = Setup::new("path");
    let missing = setup.path("missing");
    let marker = setup.path("in/marker");
    let expected = refused(&format!("cannot open rule path: {missing}: No such file or directory"));
    assert_eq!(setup.run(&["--ro", "/", "--rw", &missing, "--", "touch", &marker]), expected);
    assert!(!Path::new(&marker).exists());
}

#[test]
fn a_path_value_may_look_like_a_flag() {
    let setup = Setup::new("flag");
    assert_eq!(
        setup.run(&["--ro", "--rw", "--", "true"]),
        refused("cannot open rule path: --rw: No such file or directory")
    );
    assert_eq!(
        setup.run(&["--ro", "--", "--", "true"]),
        refused("cannot open rule path: --: No such file or directory")
    );
}

#[test]
fn only_granted_paths_can_be_written_also_by_descendants() {
    let setup = Setup::new("write");
    let script = format!(
        "echo 1 > {0}/in/a; (echo 2 > {0}/in/b); echo 3 > {0}/out/c; (echo 4 > {0}/out/d); mkdir {0}/out/e; \
         rm {0}/in/a; mv {0}/in/b {0}/in/f; echo n > /dev/null && echo sink",
        setup.base.display()
    );
    let control = Command::new("sh").args(["-c", &script]).output().expect("sh");
    assert!(control.status.success() && setup.base.join("out/d").exists(), "unconfined, everything works");
    fs::remove_dir_all(setup.base.join("out")).and_then(|()| fs::create_dir(setup.base.join("out"))).expect("emptied");

    let (code, stdout, stderr) =
        setup.run(&["--ro", "/", "--rw", "/dev/null", "--rw", &setup.path("in"), "--", "sh", "-c", &script]);
    assert_eq!((code, stdout.as_str()), (0, "sink\n"), "{stderr}");
    assert_eq!(stderr.matches("Permission denied").count(), 3, "{stderr}");
    assert_eq!(fs::read_dir(setup.base.join("out")).expect("out").count(), 0);
    assert!(setup.base.join("in/f").exists() && !setup.base.join("in/a").exists());
}

#[test]
fn what_is_not_granted_cannot_be_read() {
    let setup = Setup::new("read");
    fs::write(setup.base.join("in/secret"), "x").expect("written");
    let secret = setup.path("in/secret");
    let (code, _, stderr) =
        setup.run(&["--ro", "/usr", "--ro", "/lib", "--ro", "/lib64", "--ro", "/etc", "--", "/usr/bin/cat", &secret]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.ends_with("Permission denied\n"), "{stderr}");
    let (code, stdout, _) = setup.run(&["--ro", "/", "--", "/usr/bin/cat", &secret]);
    assert_eq!((code, stdout.as_str()), (0, "x"), "with a grant it can");
}

#[test]
fn the_commands_own_status_passes_unchanged() {
    let setup = Setup::new("status");
    for status in [0, 1, 2, 125, 126, 127, 255] {
        let script = format!("exit {status}");
        assert_eq!(setup.run(&["--ro", "/", "--", "sh", "-c", &script]), (status, String::new(), String::new()));
    }
    let killed =
        Command::new(&setup.launcher).args(["--ro", "/", "--", "sh", "-c", "kill -9 $$"]).status().expect("starts");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed), Some(9));
}

#[test]
fn a_command_that_cannot_be_executed_is_a_failure_of_the_launcher() {
    let setup = Setup::new("exec");
    assert_eq!(setup.run(&["--ro", "/", "--", "no-such-program"]), refused("exec failed: No such file or directory"));
    assert_eq!(setup.run(&["--ro", "/", "--", "/etc/passwd"]), refused("exec failed: Permission denied"));
}

#[test]
fn bare_names_are_looked_up_and_arguments_and_environment_pass_byte_for_byte() {
    let setup = Setup::new("argv");
    let odd = OsStr::from_bytes(b"a b\n'\"\xff--");
    let output = Command::new(&setup.launcher)
        .args(["--ro", "/", "--", "printf", "%s|%s"])
        .arg(odd)
        .arg("")
        .output()
        .expect("starts");
    assert_eq!(output.stdout, b"a b\n'\"\xff--|");
    let output = Command::new(&setup.launcher)
        .args(["--ro", "/", "--", "/usr/bin/env"])
        .env_clear()
        .env("ONLY", "this")
        .output();
    assert_eq!(output.expect("starts").stdout, b"ONLY=this\n");
}

#[test]
fn setuid_programs_gain_nothing() {
    let setup = Setup::new("nnp");
    let (_, stdout, _) = setup.run(&["--ro", "/", "--", "grep", "NoNewPrivs", "/proc/self/status"]);
    assert_eq!(stdout, "NoNewPrivs:\t1\n");
}
