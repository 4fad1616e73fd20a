//! `exec`: one shell command, and the text that a model reads.

mod scene;

use scene::{Answer, Scene};
use serde_json::Value;
use std::io::Write as _;
use std::process::Stdio;

fn exec(scene: &Scene, options: &[&str], command: &str) -> Answer {
    Answer::of(scene.pinfold().arg("exec").args(options).args(["--", command]))
}

/// U374–U377, CONTRACT "Markers".
#[test]
fn exec_prints_what_a_model_reads() {
    let scene = Scene::new();
    let target = scene.path("outside/x");
    let answer = exec(&scene, &[], &format!("echo out; touch {}; exit 3", target.display()));
    let lines: Vec<_> = answer.out.lines().collect();
    assert_eq!(lines[..2], ["out", "[stderr]"], "{answer:?}");
    assert_eq!(
        lines[lines.len() - 2..],
        ["[sandbox: file access denied under workspace-write mode]", "[exit code: 3]"]
    );
    assert_eq!((answer.status, answer.err.as_str()), (Some(3), ""));
    assert!(!target.exists());
    let silent = exec(&scene, &[], "true");
    assert_eq!((silent.status, silent.out.as_str(), silent.err.as_str()), (Some(0), "(no output)\n", ""));
    // B085: it reads nothing.
    assert_eq!(exec(&scene, &[], "cat; echo $?").out, "0\n");
    // The control: unconfined, the same act succeeds, and that nothing is confined is said.
    let open = exec(&scene, &["--mode", "danger-full-access"], &format!("touch {}", target.display()));
    assert_eq!((open.status, target.exists()), (Some(0), true));
    assert!(open.err.contains("nothing is confined"), "{open:?}");
}

/// W25.
#[test]
fn exec_in_json_keeps_facts_and_words_apart() {
    let scene = Scene::new();
    let answer = exec(&scene, &["--json"], "echo '\"exitCode\":7'; echo '[exit code: 9]'");
    assert_eq!(answer.out.lines().count(), 1, "{answer:?}");
    let result: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(
        (&result["exitCode"], &result["timedOut"], &result["sandbox"]["denied"]),
        (&0.into(), &false.into(), &false.into())
    );
    assert_eq!(result["stdout"]["text"], "\"exitCode\":7\n[exit code: 9]\n");
    let refused = exec(&scene, &["--json", "--workdir", "none"], "true");
    let refused_object: Value = serde_json::from_str(&refused.out).unwrap();
    assert_eq!((refused.status, &refused_object["code"]), (Some(2), &"SANDBOX_INVALID_POLICY".into()));
}

#[test]
fn exec_ends_on_time_and_keeps_what_there_was() {
    let scene = Scene::new();
    // The first call probes, which a busy machine takes its time for.
    exec(&scene, &[], "true");
    let answer = exec(&scene, &["--timeout-ms", "3000"], "echo before; exec sleep 60");
    assert_eq!(answer.out, "before\n[timed out after 3000ms]\n[killed by signal: SIGTERM]\n", "{answer:?}");
    assert_eq!(answer.status, Some(124));
}

#[test]
fn exec_has_its_own_environment_input_and_directory() {
    let scene = Scene::new();
    scene.folder("workspace/sub");
    let mut command = scene.pinfold();
    command.env("GH_TOKEN", "secret").env("PINFOLD_SHELL", "forged").args([
        "exec",
        "--stdin",
        "--workdir",
        "sub",
        "--",
    ]);
    command.arg("cat; pwd; echo ${GH_TOKEN-none} $TERM $PINFOLD_SHELL").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"given\n").unwrap();
    let answer = Answer::from(child.wait_with_output().unwrap());
    let expected = format!("given\n{}\nnone dumb 1\n", scene.workspace().join("sub").display());
    assert_eq!(answer.out, expected, "{answer:?}");
    let kept =
        Answer::of(scene.pinfold().env("GH_TOKEN", "kept").args(["exec", "--env", "inherit", "--", "echo $GH_TOKEN"]));
    assert_eq!(kept.out, "kept\n");
}

#[test]
fn exec_refuses_what_cannot_be() {
    let scene = Scene::new();
    let several = scene.run(["exec", "--", "echo", "a"]);
    assert_eq!(several.status, Some(2));
    assert!(several.err.contains("put quotes around it"), "{several:?}");
    let never = exec(&scene, &["--timeout-ms", "0"], "true");
    assert_eq!((never.status, never.out.as_str()), (Some(2), ""));
    assert!(never.err.contains("bash-local: request.timeoutMs must be a positive finite number"), "{never:?}");
    assert_eq!(scene.run(["exec"]).status, Some(2));
}
