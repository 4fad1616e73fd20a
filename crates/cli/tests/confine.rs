//! `pinfold confine`: programs in other languages, which know nothing of us, start what it prints.

mod scene;

use scene::{Answer, Scene};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::process::Command;

/// Ten lines that know an object with an `argv`, and nothing else.
const PYTHON: &str = r#"
import json, subprocess, sys
pinfold, outside = sys.argv[1:]
def confined(*argv):
    out = subprocess.run([pinfold, "confine", "--json", "--", *argv], capture_output=True, check=True, text=True).stdout
    return json.loads(out)["argv"]
inside = subprocess.run(confined("sh", "-c", "echo in > made && cat made"), capture_output=True, text=True)
denied = subprocess.run(confined("sh", "-c", 'echo out > "$1"', "sh", outside), capture_output=True, text=True)
print(inside.returncode, inside.stdout.strip(), denied.returncode != 0, "ead-only file system" in denied.stderr)
"#;

const NODE: &str = r#"
const { execFileSync, spawnSync } = require("node:child_process");
const [pinfold, outside] = process.argv.slice(1);
const confined = (...argv) => JSON.parse(execFileSync(pinfold, ["confine", "--json", "--", ...argv])).argv;
const run = ([program, ...args]) => spawnSync(program, args, { encoding: "utf8" });
const inside = run(confined("sh", "-c", "echo in > made && cat made"));
const denied = run(confined("sh", "-c", 'echo out > "$1"', "sh", outside));
console.log(inside.status, inside.stdout.trim(), denied.status !== 0, denied.stderr.includes("ead-only file system"));
"#;

fn confines_from(scene: &Scene, command: &mut Command, yes: &str) {
    let outside = scene.path("outside/f");
    command.arg(scene::program()).arg(&outside).current_dir(scene.workspace()).env("HOME", scene.path("home"));
    let answer = Answer::of(command);
    assert_eq!((answer.out, answer.status), (format!("0 in {yes} {yes}\n"), Some(0)), "{}", answer.err);
    assert!(scene.path("workspace/made").exists() && !outside.exists());
}

#[test]
fn a_python_program_confines_with_what_is_printed() {
    let scene = Scene::new();
    confines_from(&scene, Command::new(python()).args(["-c", PYTHON]), "True");
}

#[test]
fn a_node_program_confines_with_what_is_printed() {
    let scene = Scene::new();
    confines_from(&scene, Command::new("node").args(["-e", NODE, "--"]), "true");
}

/// The interpreter itself, where `python3` is a shim that looks for it below a home directory.
fn python() -> OsString {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable, end='')"]).output().unwrap();
    OsString::from_vec(output.stdout)
}

#[test]
fn exactly_one_object_is_printed_with_exactly_its_fields() {
    let scene = Scene::new();
    let answer = scene.run(["confine", "--json", "--", "echo", "a b"]);
    assert_eq!((answer.status, answer.err.as_str(), answer.out.matches('\n').count()), (Some(0), "", 1), "{answer:?}");
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&answer.out).unwrap();
    let keys: Vec<_> = object.keys().map(String::as_str).collect();
    let mut expected = ["argv", "enforcement", "denialSignatures", "runnerFailureRules"];
    expected.sort_unstable();
    assert_eq!(keys, expected);
    let argv: Vec<_> = object["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(argv[argv.len() - 3..], ["--", "echo", "a b"]);
}

#[test]
fn an_argument_that_is_not_utf8_is_an_error_that_says_why() {
    let scene = Scene::new();
    let mut command = scene.pinfold();
    command.args(["confine", "--json", "--", "echo"]).arg(OsString::from_vec(b"a\xff".to_vec()));
    let answer = Answer::of(&mut command);
    assert_eq!((answer.status, answer.out.as_str()), (Some(2), ""), "{answer:?}");
    let body = answer.last_json();
    assert_eq!(body["code"], "SANDBOX_INVALID_POLICY");
    let message = body["message"].as_str().unwrap();
    assert!(message.contains(r#""a\xff" is not valid UTF-8"#), "{message}");
}

#[test]
fn full_access_is_never_printed() {
    let scene = Scene::new();
    let answer = scene.run(["confine", "--mode", "danger-full-access", "--", "true"]);
    answer.assert_refused(2, "SANDBOX_INVALID_POLICY", "confines nothing");
}

#[test]
fn the_status_file_tells_what_really_happened() {
    let scene = Scene::new();
    let file = scene.path("outside/status");
    let answer = scene.run(["confine", "--status-file", file.to_str().unwrap(), "--", "sh", "-c", "exit 7"]);
    let object: serde_json::Value =
        serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    let argv: Vec<_> = object["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let status = Command::new(argv[0]).args(&argv[1..]).current_dir(scene.workspace()).status().unwrap();
    assert_eq!(status.code(), Some(7));
    let told = std::fs::read_to_string(&file).unwrap();
    assert!(told.contains("confined ") && told.contains("exited 7"), "{told}");
    let inside = scene.run(["confine", "--status-file", "status", "--", "true"]);
    inside.assert_refused(2, "SANDBOX_INVALID_POLICY", "lies below a writable root");
    assert!(!scene.path("workspace/status").exists());
}
