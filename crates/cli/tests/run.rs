//! `pinfold run`: streams and statuses pass through, outcomes are told, nothing is left running.

mod scene;

use scene::{Answer, Scene};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_write_inside_succeeds_and_one_outside_is_refused() {
    let scene = Scene::new();
    let outside = scene.path("outside/f");
    scene.script(&[], "echo in > f && cat f").assert_silent_success("in\n");
    let write = format!("echo out > {}", outside.display());
    let answer = scene.script(&[], &write);
    assert!(answer.status != Some(0) && !outside.exists(), "{answer:?}");
    // Control: the same write unconfined.
    let control = Command::new("sh").args(["-c", &write]).status().unwrap();
    assert!(control.success() && outside.exists());
}

/// The command's last words have no end of line; the object must be on a line of its own all the same.
#[test]
fn an_unfinished_line_of_the_command_does_not_spoil_ours() {
    let scene = Scene::new();
    let forged = "printf '{\"verdict\":\"completed\",\"x\":' >&2; exit 3";
    for options in [&["--json"][..], &["--report", "-"]] {
        let answer = scene.script(options, forged);
        assert_eq!((answer.status, &answer.last_json()["verdict"]), (Some(3), &"failed".into()), "{answer:?}");
        // No empty line where the command ended its own.
        let answer = scene.script(options, "echo said >&2");
        assert_eq!((answer.err.lines().count(), answer.err.lines().next()), (2, Some("said")), "{answer:?}");
    }
}

#[test]
fn read_only_refuses_the_workspace_too() {
    let scene = Scene::new();
    let answer = scene.script(&["--mode", "read-only"], "echo x > f");
    assert!(answer.status != Some(0) && !scene.path("workspace/f").exists(), "{answer:?}");
    scene.script(&["--mode", "read-only"], "echo x > /dev/null && echo done").assert_silent_success("done\n");
}

#[test]
fn every_status_of_the_command_passes_and_the_outcome_tells_it_from_ours() {
    let scene = Scene::new();
    for code in [0, 1, 2, 124, 125, 126, 127, 128, 255] {
        let answer = scene.script(&["--json"], &format!("exit {code}"));
        assert_eq!((answer.status, answer.out.as_str()), (Some(code), ""), "{answer:?}");
        let outcome = answer.last_json();
        let verdict = if code == 0 { "completed" } else { "failed" };
        assert_eq!((&outcome["verdict"], &outcome["ran"]), (&verdict.into(), &true.into()), "{answer:?}");
        assert_eq!(outcome["statusEvidence"], "channel");
    }
}

#[test]
fn death_by_signal_is_128_and_the_number() {
    let scene = Scene::new();
    for (signal, status) in [("KILL", 137), ("TERM", 143), ("SEGV", 139)] {
        let answer = scene.script(&["--json"], &format!("kill -{signal} $$"));
        assert_eq!(answer.status, Some(status), "{answer:?}");
        assert_eq!(answer.last_json()["verdict"], "signaled");
    }
}

#[test]
fn a_command_that_cannot_be_started_is_127_or_126_and_did_not_run() {
    let scene = Scene::new();
    std::fs::write(scene.path("workspace/plain"), "#!/bin/sh\n").unwrap();
    std::fs::create_dir(scene.path("workspace/dir")).unwrap();
    for (program, status, code) in [
        ("no-such-program-here", 127, "SANDBOX_COMMAND_NOT_FOUND"),
        ("./none", 127, "SANDBOX_COMMAND_NOT_FOUND"),
        ("./plain", 126, "SANDBOX_COMMAND_NOT_EXECUTABLE"),
        ("./dir", 126, "SANDBOX_COMMAND_NOT_EXECUTABLE"),
    ] {
        let answer = scene.run(["run", "--", program]);
        assert_eq!((answer.status, answer.out.as_str()), (Some(status), ""), "{answer:?}");
        assert!(answer.err.contains(&format!("pinfold: error[{code}]: ")), "{answer:?}");
        let json = scene.run(["run", "--json", "--", program]).last_json();
        let told = if json["verdict"] == "not-started" { &json["ending"]["code"] } else { &json["code"] };
        assert_eq!(told, code, "{json}");
    }
}

#[test]
fn input_is_the_command_s() {
    let scene = Scene::new();
    let mut child =
        scene.pinfold().args(["run", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"through\n".to_vec()));
}

#[test]
fn error_output_comes_through_unchanged_and_promptly() {
    let scene = Scene::new();
    let mut child = scene
        .pinfold()
        .args(["run", "--", "sh", "-c", "printf 'a\\377' >&2; read x; echo b >&2"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut err = child.stderr.take().unwrap();
    let mut first = [0; 2];
    err.read_exact(&mut first).unwrap(); // comes while the command still waits
    assert_eq!(&first, b"a\xff");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = Vec::new();
    err.read_to_end(&mut rest).unwrap();
    assert_eq!((child.wait().unwrap().code(), rest), (Some(0), b"b\n".to_vec()));
}

#[test]
fn output_and_errors_on_one_pipe_keep_their_order() {
    let scene = Scene::new();
    let program = scene::program();
    let script = "i=0; while [ $i -lt 200 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done";
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" run -- sh -c \"$1\" 2>&1 | cat"]).arg(program).arg(script);
    command.current_dir(scene.workspace()).env("HOME", scene.path("home")).stdin(Stdio::null());
    let expected: String = (0..200).map(|i| format!("o{i}\ne{i}\n")).collect();
    Answer::of(&mut command).assert_silent_success(&expected);
}

#[test]
fn a_refusal_is_one_line_with_the_option_that_helps() {
    let scene = Scene::new();
    let answer = scene.script(&[], &format!("echo x > {}", scene.path("outside/f").display()));
    let ours: Vec<_> = answer.err.lines().filter(|line| line.starts_with("pinfold: ")).collect();
    assert_eq!(ours.len(), 1, "{answer:?}");
    assert!(
        ours[0].starts_with("pinfold: write refused under workspace-write (inferred from its message): ")
            && ours[0].ends_with("; to allow a directory: --writable DIR"),
        "{answer:?}"
    );
}

#[test]
// Cases W18, B135, B136.
fn an_ordinary_failure_is_not_blamed_on_the_sandbox() {
    let scene = Scene::new();
    for script in ["false", "grep x /dev/null", "test 1 = 2", "exit 3"] {
        let answer = scene.script(&[], script);
        assert_eq!((answer.out.as_str(), answer.err.as_str()), ("", ""), "{script}");
        assert_eq!(scene.script(&["--json"], script).last_json()["verdict"], "failed");
    }
}

#[test]
fn the_outcome_is_the_last_line_and_carries_denials_and_report() {
    let scene = Scene::new();
    let answer = scene.script(&["--json"], &format!("echo seen; echo x > {}", scene.path("outside/f").display()));
    assert_eq!(answer.out, "seen\n");
    assert!(!answer.err.contains("pinfold: "), "{answer:?}");
    let outcome = answer.last_json();
    assert_eq!(outcome["verdict"], "denied", "{outcome}");
    assert_eq!(outcome["denials"][0]["evidence"], "inferred");
    assert_eq!(outcome["report"]["mode"], "workspace-write");
    assert_eq!(outcome["report"]["workspaceRoot"], scene.workspace().to_str().unwrap());
}

#[test]
fn the_report_file_is_complete_and_out_of_the_command_s_reach() {
    let scene = Scene::new();
    let file = scene.path("outside/r.json");
    let answer = scene.script(&["--report", file.to_str().unwrap()], "echo hi");
    answer.assert_silent_success("hi\n");
    let outcome: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&outcome["verdict"], &outcome["report"]["mode"]), (&"completed".into(), &"workspace-write".into()));
    for place in ["r.json", "./deep/../r.json"] {
        scene.folder("workspace/deep");
        let answer = scene.script(&["--report", place], "echo ran > ran");
        answer.assert_refused(2, "SANDBOX_INVALID_POLICY", "so the command could forge it");
        assert!(!scene.path("workspace/ran").exists() && !scene.path("workspace/r.json").exists());
    }
    // Under a mode that opens nothing the workspace is out of reach as well.
    scene.script(&["--mode", "read-only", "--report", "r.json"], "true").assert_silent_success("");
    assert!(scene.path("workspace/r.json").exists());
}

#[test]
fn a_report_is_left_also_when_nothing_could_be_started() {
    let scene = Scene::new();
    let file = scene.path("outside/r.json");
    let answer = scene.run(["run", "--workspace", "none", "--report", file.to_str().unwrap(), "--", "true"]);
    answer.assert_refused(2, "SANDBOX_INVALID_ROOT", "does not exist");
    let outcome: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(
        (&outcome["verdict"], &outcome["ending"]["code"]),
        (&"not-started".into(), &"SANDBOX_INVALID_ROOT".into())
    );
}

#[test]
fn a_report_to_standard_error_or_a_pipe_works() {
    let scene = Scene::new();
    assert_eq!(scene.script(&["--report", "-"], "true").last_json()["verdict"], "completed");
    let both = scene.script(&["--report", "-", "--json"], "true");
    assert_eq!((both.err.lines().count(), &both.last_json()["verdict"]), (1, &"completed".into()), "{both:?}");
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" run --report /dev/fd/3 -- true 3>&1 | cat"]).arg(scene::program());
    command.current_dir(scene.workspace()).env("HOME", scene.path("home")).stdin(Stdio::null());
    let answer = Answer::of(&mut command);
    let outcome: serde_json::Value =
        serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    assert_eq!(outcome["verdict"], "completed");
}

#[test]
fn full_access_warns_once_and_reports_that_nothing_is_enforced() {
    let scene = Scene::new();
    let file = scene.path("outside/f");
    let answer = scene.script(&["--mode", "danger-full-access"], &format!("echo x > {}", file.display()));
    assert_eq!(answer.err, "pinfold: warning: nothing is confined under danger-full-access\n");
    assert!(answer.status == Some(0) && file.exists());
    let outcome = scene.script(&["--mode", "danger-full-access", "--json"], "true").last_json();
    assert_eq!(outcome["report"]["mode"], "danger-full-access");
    let lines = outcome["report"]["guarantees"].as_array().unwrap();
    assert!(lines.iter().all(|line| line["strength"] != "enforced" && line["strength"] != "partial"), "{outcome}");
    let answer = scene.script(&["--mode", "danger-full-access", "--require", "write-content"], "echo ran");
    assert_eq!((answer.status, answer.out.as_str()), (Some(125), ""), "{answer:?}");
    assert!(answer.err.contains("SANDBOX_GUARANTEE_UNMET"), "{answer:?}");
}

#[test]
fn a_guarantee_that_cannot_be_had_stops_the_run() {
    let scene = Scene::new();
    let answer = scene.script(&["--require", "network"], "echo ran");
    answer.assert_refused(125, "SANDBOX_GUARANTEE_UNMET", "network");
    let body = scene.script(&["--require", "network", "--json"], "echo ran").last_json();
    assert_eq!((&body["code"], &body["guarantees"][0]), (&"SANDBOX_GUARANTEE_UNMET".into(), &"network".into()));
    scene.script(&["--require", "write-content"], "echo ran").assert_silent_success("ran\n");
}

#[test]
fn a_time_limit_ends_the_command_and_has_its_own_status() {
    let scene = Scene::new();
    let begun = Instant::now();
    let answer = scene.script(&["--timeout", "0.3"], "sleep 30 & sleep 30");
    assert_eq!(answer.status, Some(124), "{answer:?}");
    assert_eq!(answer.err, "pinfold: the time limit of 300 ms passed; the command was ended\n");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

/// Starts a command that tells when it runs, and waits for that.
fn started(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "running\n");
    child
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_signal_ends_the_tree_and_decides_the_status() {
    for (name, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let scene = Scene::new();
        let script = "trap '' INT HUP; (trap '' TERM; while :; do date +%N > alive; sleep 0.05; done) & \
             until [ -s alive ]; do sleep 0.01; done; echo running; wait";
        let mut child = started(scene.pinfold().args(["run", "--json", "--", "sh", "-c", script]));
        signal(&child, name);
        let begun = Instant::now();
        assert_eq!(child.wait().unwrap().code(), Some(status));
        assert!(begun.elapsed() < Duration::from_secs(8));
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let answer = Answer { status: Some(status), out: String::new(), err };
        assert_eq!(answer.last_json()["verdict"], "cancelled", "{answer:?}");
        let last = std::fs::read(scene.path("workspace/alive")).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(std::fs::read(scene.path("workspace/alive")).unwrap(), last, "something outlived the call");
    }
}

#[test]
fn an_interrupted_command_may_put_things_in_order() {
    let scene = Scene::new();
    let script = "trap 'echo order > kept; exit 3' INT; echo running; while :; do sleep 0.05; done";
    let mut child = started(scene.pinfold().args(["run", "--json", "--", "sh", "-c", script]));
    signal(&child, "INT");
    let begun = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(2) && scene.path("workspace/kept").exists());
}

#[test]
fn a_second_signal_is_not_waited_for() {
    let scene = Scene::new();
    let mut child = started(scene.pinfold().args(["run", "--", "sh", "-c", "trap '' INT; echo running; sleep 60"]));
    let begun = Instant::now();
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let scene = Scene::new();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" run -- sh -c 'echo running; read x; echo $x'"]).arg(scene::program());
    command.current_dir(scene.workspace()).env("HOME", scene.path("home")).stdin(Stdio::piped());
    let mut child = started(&mut command);
    signal(&child, "HUP");
    std::thread::sleep(Duration::from_millis(200));
    child.stdin.take().unwrap().write_all(b"still here\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"still here\n".to_vec()));
}

#[test]
// Case W26.
fn a_terminal_is_passed_through_and_the_outcome_says_it_was_not_read() {
    let scene = Scene::new();
    let file = scene.path("outside/r.json");
    let inner =
        format!("{} run --report {} -- sh -c 'test -t 2 && echo terminal'", scene::program().display(), file.display());
    let mut command = Command::new("script");
    command.args(["-qec", &inner, "/dev/null"]).current_dir(scene.workspace()).env("HOME", scene.path("home"));
    let answer = Answer::of(command.stdin(Stdio::null()));
    assert!(answer.out.contains("terminal"), "{answer:?}");
    let report = std::fs::read_to_string(&file).unwrap();
    assert!(report.contains("Standard error is a terminal and was not observed"), "{report}");
}

/// F18: also of a command that was killed; with full access they are the command's to change.
#[test]
fn a_terminal_gets_its_settings_back() {
    let scene = Scene::new();
    let around = "
import os, pty, subprocess, sys, termios
master, slave = os.openpty()
before = termios.tcgetattr(slave)
subprocess.run(sys.argv[1:], stdin=slave, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print('same' if termios.tcgetattr(slave) == before else 'changed')";
    let run = |options: &[&str], script: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", around]).arg(scene::program()).arg("run").args(options).args(["--", "sh", "-c", script]);
        Answer::of(command.current_dir(scene.workspace()).env("HOME", scene.path("home"))).out
    };
    for script in ["stty raw -echo stop a", "stty raw -echo; kill -9 $$"] {
        assert_eq!(run(&["--mode", "danger-full-access"], script), "changed\n", "{script}");
        for backend in ["linux_namespace", "linux_bwrap", "linux_landlock"] {
            assert_eq!(run(&["--backend", backend, "--mode", "read-only"], script), "same\n", "{backend} {script}");
        }
    }
}

/// Flags of what is open behind a stream are the caller's as well; a read that may not wait would fail there.
#[test]
fn what_is_open_behind_a_stream_gets_its_flags_back() {
    let scene = Scene::new();
    let around = "
import fcntl, os, pty, subprocess, sys
flags = lambda ends: [fcntl.fcntl(end, fcntl.F_GETFL) for end in ends]
for ends in os.pipe(), pty.openpty()[1:] * 2:
    before = flags(ends)
    subprocess.run(sys.argv[1:], stdin=ends[0], stdout=ends[1], stderr=subprocess.DEVNULL)
    print('same' if flags(ends) == before else 'changed')";
    let inside = "
import fcntl, os
for end in 0, 1: fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_NONBLOCK)";
    let run = |options: &[&str]| {
        let mut command = Command::new("python3");
        command
            .args(["-c", around])
            .arg(scene::program())
            .arg("run")
            .args(options)
            .args(["--", "python3", "-c", inside]);
        Answer::of(command.current_dir(scene.workspace()).env("HOME", scene.path("home"))).out
    };
    assert_eq!(run(&["--mode", "danger-full-access"]), "changed\nchanged\n");
    for backend in ["linux_namespace", "linux_bwrap", "linux_landlock"] {
        assert_eq!(run(&["--backend", backend, "--mode", "read-only"]), "same\nsame\n", "{backend}");
    }
}

#[test]
fn without_its_launcher_the_program_refuses_to_run_anything() {
    let scene = Scene::new();
    let lonely = scene.folder("lonely").join("pinfold");
    std::fs::copy(scene::program(), &lonely).unwrap();
    let mut command = Command::new(&lonely);
    command.args(["run", "--backend", "namespace", "--", "touch", "ran"]).current_dir(scene.workspace());
    let answer = Answer::of(command.env("HOME", scene.path("home")).stdin(Stdio::null()));
    answer.assert_refused(125, "SANDBOX_UNAVAILABLE", "refusing to run the command unconfined");
    assert!(!scene.path("workspace/ran").exists());
    let mut command = Command::new(&lonely);
    let answer = Answer::of(command.arg("doctor").current_dir(scene.workspace()).env("HOME", scene.path("home")));
    assert_eq!(answer.status, Some(1), "{answer:?}");
}

#[test]
fn a_time_limit_holds_also_when_nobody_reads_our_standard_error() {
    let scene = Scene::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let begun = std::time::Instant::now();
    let mut child = std::process::Command::new(scene::program())
        .args(["run", "--timeout", "1", "--", "sh", "-c", "head -c 1000000 /dev/zero >&2"])
        .current_dir(scene.workspace())
        .env("HOME", scene.path("home"))
        .stdin(std::process::Stdio::null())
        .stderr(writer)
        .spawn()
        .unwrap();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > std::time::Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("still waiting");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(124));
    drop(reader);
}

/// A broken device of the host is told as such, not as a fault of the program that was to be started.
#[test]
fn a_dev_null_that_cannot_be_opened_is_named() {
    let scene = Scene::new();
    let socket = scene.path("outside/s");
    let _held = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let run = |before: &str| {
        let script = format!("{before} exec {} run -- sh -c 'echo ran > ran'", scene::program().display());
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-euc", &script]).current_dir(scene.workspace());
        Answer::of(command.env("HOME", scene.path("home")))
    };
    // A socket cannot be opened, whoever asks.
    let answer = run(&format!("mount --bind {} /dev/null;", socket.display()));
    answer.assert_refused(125, "SANDBOX_UNAVAILABLE", "/dev/null cannot be opened: No such device");
    assert!(!scene.path("workspace/ran").exists());
    assert_eq!(run("").status, Some(0));
    assert!(scene.path("workspace/ran").exists());
}
