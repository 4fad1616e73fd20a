//! What a call may use up: the bounds as a user asks for them, under each backend, each with its control. (W58, B069, B101.)

mod scene;

use scene::{Answer, Scene};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt as _;

/// A bounded fork bomb: tries to have 300 processes that wait, prints how many there were and why no more, and ends them.
const FORKS: &str = "python3 -c '
import errno, os, signal
children, why = [], 0
for _ in range(300):
    try:
        child = os.fork()
    except OSError as error:
        why = errno.errorcode[error.errno]
        break
    if child == 0:
        signal.pause()
    children.append(child)
print(len(children), why, flush=True)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
'";

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap(), parts.next().unwrap())
}

/// Whether a backend can bound the processes of a call, here and for this user.
fn counts_processes(backend: &str) -> bool {
    match backend {
        "namespace" if is_root() => kernel() >= (6, 14),
        "namespace" => kernel() >= (5, 14),
        "bwrap" => !is_root() && kernel() >= (5, 14),
        _ => false,
    }
}

fn bounds(answer: &Answer) -> Value {
    answer.last_json()["report"]["bounds"].clone()
}

#[test]
// Case B082.
fn a_fork_bomb_ends_at_the_bound_or_nothing_runs() {
    let scene = Scene::new();
    for backend in ["namespace", "bwrap", "landlock"] {
        let run = |bound: &str| scene.script(&["--backend", backend, "--max-processes", bound, "--json"], FORKS);
        assert_eq!(run("none").out, "300 0\n", "{backend}");
        let bounded = run("60");
        if bounded.status == Some(2) {
            // Not even a control group can be made.
            assert!(!counts_processes(backend) && bounded.out.is_empty(), "{bounded:?}");
            assert_eq!(bounded.last_json()["code"], "SANDBOX_UNSUPPORTED_POLICY");
            continue;
        }
        // The shell and Python are the first two.
        assert_eq!(bounded.out, "58 EAGAIN\n", "{bounded:?}");
        let means = match counts_processes(backend) {
            true if is_root() => "pid-namespace",
            true => "rlimit",
            false => "cgroup",
        };
        let stated = json!([{"resource": "processes", "most": 60, "scope": "call", "means": means}]);
        assert_eq!(bounds(&bounded), stated);
    }
    assert_eq!(scene.script(&["--mode", "danger-full-access"], FORKS).out, "300 0\n");
}

#[test]
fn root_of_the_host_under_another_number_is_not_taken_for_an_ordinary_user() {
    if !is_root() {
        // Only root can be root under another number.
        return;
    }
    let scene = Scene::new();
    let pinfold = scene::program();
    let within = |options: &[&str]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-user=1000", "--map-group=1000"]).arg(&pinfold).args(["run", "--json"]);
        command.args(options).args(["--", "sh", "-c", FORKS]).current_dir(scene.workspace());
        command.env("HOME", scene.path("home")).env("XDG_RUNTIME_DIR", scene.folder("runtime"));
        std::fs::set_permissions(scene.path("runtime"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        Answer::of(command.stdin(std::process::Stdio::null()))
    };
    // Bubblewrap belongs to nobody there, and is not used.
    for backend in ["namespace", "landlock"] {
        assert_eq!(within(&["--backend", backend, "--max-processes", "none"]).out, "300 0\n", "{backend}");
        let bounded = within(&["--backend", backend, "--max-processes", "60"]);
        assert!(bounded.out == "58 EAGAIN\n" || bounded.status == Some(2) && bounded.out.is_empty(), "{bounded:?}");
    }
}

#[test]
fn processes_are_bounded_by_default_where_that_can_be_and_the_report_says_where_not() {
    let scene = Scene::new();
    for backend in ["namespace", "bwrap", "landlock"] {
        let answer = scene.script(&["--backend", backend, "--json"], "true");
        assert_eq!(answer.status, Some(0), "{answer:?}");
        let notes = answer.last_json()["report"]["notes"].to_string();
        assert_eq!(notes.contains("Processes were to be bounded"), !counts_processes(backend), "{backend}: {notes}");
        let most = bounds(&answer)[0]["most"].as_u64();
        assert_eq!(most.is_some_and(|most| (64..=16384).contains(&most)), counts_processes(backend), "{backend}");
    }
}

#[test]
fn what_one_process_uses_up_is_bounded_under_every_backend() {
    let scene = Scene::new();
    let spin = "exec python3 -c 'import time\nwhile time.process_time() < 20: pass'";
    for backend in ["namespace", "bwrap", "landlock"] {
        let run = |options: &[&str], script: &str| {
            scene.script(&[&["--backend", backend, "--json"], options].concat(), script)
        };
        let signal = |answer: &Answer| {
            let outcome = answer.last_json();
            (outcome["ending"]["name"].clone(), outcome["boundsMet"].clone())
        };
        let met = |resource: &str| json!([{"resource": resource, "evidence": "signal"}]);
        let spun = run(&["--max-cpu-seconds", "1"], spin);
        assert_eq!(signal(&spun), (json!("SIGXCPU"), met("cpu-time")), "{spun:?}");
        let write = "exec head -c 3000000 /dev/zero > big";
        assert_eq!(run(&[], write).status, Some(0));
        let written = run(&["--max-file-size", "1MiB"], write);
        assert_eq!(signal(&written), (json!("SIGXFSZ"), met("file-size")), "{written:?}");
        assert_eq!(std::fs::metadata(scene.path("workspace/big")).unwrap().len(), 1 << 20);
        // The same signal without such a bound is the command's own.
        assert_eq!(signal(&run(&[], "kill -XFSZ $$")), (json!("SIGXFSZ"), Value::Null));
        let allocate = "python3 -c 'b = bytearray(300 << 20)' 2>/dev/null && echo had";
        assert_eq!(run(&[], allocate).out, "had\n");
        assert_eq!(run(&["--max-process-memory", "200MiB"], allocate).out, "");
        assert_eq!(run(&["--max-open-files", "16"], "ulimit -Hn").out, "16\n");
    }
}

#[test]
fn the_private_temp_area_has_a_size_where_it_is_a_file_system() {
    let scene = Scene::new();
    let fill = "head -c 3000000 /dev/zero 2>/dev/null > $TMPDIR/x; stat -c %s $TMPDIR/x";
    for backend in ["namespace", "bwrap"] {
        assert_eq!(scene.script(&["--backend", backend], fill).out, "3000000\n");
        let answer = scene.script(&["--backend", backend, "--max-temp-size", "1MiB", "--json"], fill);
        assert_eq!(answer.out, "1048576\n", "{answer:?}");
        let stated = json!({"resource": "temp-size", "most": 1 << 20, "scope": "file-system", "means": "tmpfs"});
        assert!(bounds(&answer).as_array().unwrap().contains(&stated), "{answer:?}");
    }
    let answer = scene.script(&["--backend", "landlock", "--max-temp-size", "1MiB"], fill);
    answer.assert_refused(2, "SANDBOX_UNSUPPORTED_POLICY", "no size of its own");
}

#[test]
fn bounds_that_make_no_sense_are_errors_of_the_caller() {
    let scene = Scene::new();
    for options in [
        ["--max-processes", "0"],
        ["--max-processes", "-5"],
        ["--max-processes", "many"],
        ["--max-processes", "4194005"],
        ["--max-memory", "2G"],
        ["--max-temp-size", "1.5GiB"],
        ["--max-cpu-seconds", "1s"],
        ["--max-open-files", "3"],
    ] {
        let answer = scene.script(&[&format!("{}={}", options[0], options[1])], "echo ran");
        assert_eq!((answer.status, answer.out.as_str()), (Some(2), ""), "{options:?} {answer:?}");
        assert!(answer.err.starts_with("pinfold: error[SANDBOX_INVALID_POLICY]: "), "{answer:?}");
    }
    let answer = scene.script(&["--mode", "danger-full-access", "--max-processes", "9"], "echo ran");
    assert!(answer.err.contains("nothing is bounded") && answer.out.is_empty(), "{answer:?}");
}
