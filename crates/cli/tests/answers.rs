//! `doctor`, `explain`, `version` and help.

mod scene;

use scene::{Answer, Scene};
use serde_json::Value;
use std::process::{Command, Stdio};

#[test]
fn the_doctor_finds_a_backend_for_every_mode_and_says_which() {
    let scene = Scene::new();
    let answer = scene.run(["doctor", "--json"]);
    assert_eq!((answer.status, answer.err.as_str()), (Some(0), ""), "{answer:?}");
    let diagnosis: Value = serde_json::from_str(&answer.out).unwrap();
    let modes = diagnosis["modes"].as_array().unwrap();
    assert_eq!(modes.iter().map(|mode| &mode["mode"]).collect::<Vec<_>>(), ["read-only", "workspace-write"]);
    assert!(!diagnosis["host"]["kernel"].as_str().unwrap().is_empty());
    for mode in modes {
        let chosen = mode["chosen"].as_str().unwrap();
        let used = scene.script(&["--json", "--mode", mode["mode"].as_str().unwrap()], "true").last_json();
        assert_eq!(used["report"]["backend"], chosen, "the doctor names what run uses");
        for backend in mode["backends"].as_array().unwrap() {
            assert!(backend["usable"] == true || backend["reason"].is_string(), "{backend}");
        }
    }
}

#[test]
fn the_doctor_s_text_has_every_guarantee_with_strength_and_layer() {
    let scene = Scene::new();
    let answer = scene.run(["doctor", "--mode", "workspace-write"]);
    assert_eq!(answer.status, Some(0), "{answer:?}");
    for words in ["kernel: ", "mode workspace-write: `pinfold run` uses ", "write-content", "control-plane", "enforced"]
    {
        assert!(answer.out.contains(words), "{words}: {}", answer.out);
    }
}

fn ruling(scene: &Scene, words: &[&str]) -> String {
    let answer = scene.run([&["explain", "--json"], words].concat());
    let answer: Value = serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    answer["ruling"].as_str().unwrap().to_owned()
}

#[test]
fn an_explanation_is_what_then_happens() {
    let scene = Scene::new();
    std::fs::write(scene.path("workspace/in"), "").unwrap();
    std::fs::write(scene.path("outside/out"), "").unwrap();
    let outside = scene.path("outside/out");
    for (path, mode, operation, script) in [
        ("in", "workspace-write", "write", "echo x > \"$1\""),
        ("in", "read-only", "write", "echo x > \"$1\""),
        ("new", "workspace-write", "create", "echo x > \"$1\""),
        (outside.to_str().unwrap(), "workspace-write", "write", "echo x > \"$1\""),
        (outside.to_str().unwrap(), "workspace-write", "remove", "rm \"$1\""),
        (outside.to_str().unwrap(), "workspace-write", "change-metadata", "chmod 600 \"$1\""),
        (outside.to_str().unwrap(), "read-only", "read", "cat \"$1\""),
    ] {
        let told = ruling(&scene, &[path, "--mode", mode, "--operation", operation]);
        let run = scene.run(["run", "--mode", mode, "--", "sh", "-c", script, "sh", path]);
        assert_eq!(told != "denied", run.status == Some(0), "{operation} {path} under {mode}: {told}, {run:?}");
    }
}

#[test]
// Case W24.
fn a_mode_is_explained_by_what_it_opens_here() {
    let scene = Scene::new();
    let answer = scene.run(["explain", "--mode", "workspace-write"]);
    assert_eq!(answer.status, Some(0), "{answer:?}");
    assert!(answer.out.contains(&format!("  {} and everything below it\n", scene.workspace().display())), "{answer:?}");
    let answer = scene.run(["explain", "--mode", "read-only"]);
    assert!(answer.status == Some(0) && !answer.out.contains("everything below it"), "{answer:?}");
    let answer = scene.run(["explain", "--mode", "danger-full-access"]);
    assert!(answer.out.contains("nothing is confined"), "{answer:?}");
}

#[test]
fn the_version_is_the_package_s() {
    let scene = Scene::new();
    scene.run(["version"]).assert_silent_success(concat!("pinfold ", env!("CARGO_PKG_VERSION"), "\n"));
    let json: Value = serde_json::from_str(&scene.run(["version", "--json"]).out).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn every_example_of_the_help_works_as_pasted() {
    let scene = Scene::new();
    let search = scene::program().parent().unwrap().to_owned();
    let path = format!("{}:{}", search.display(), std::env::var("PATH").unwrap());
    for command in ["", "run", "confine", "doctor", "explain", "version"] {
        let help = scene.run(command.split_whitespace().chain(["--help"]));
        assert_eq!(help.status, Some(0), "{help:?}");
        let example = help.out.split_once("Example:\n").unwrap().1.trim();
        assert!(example.starts_with("pinfold ") && !example.contains('\n'), "{example}");
        let mut shell = Command::new("sh");
        shell.args(["-c", example]).current_dir(scene.path("home")).env("HOME", scene.path("home")).env("PATH", &path);
        let answer = Answer::of(shell.stdin(Stdio::null()));
        assert_eq!((answer.status, answer.err.as_str()), (Some(0), ""), "{example}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let scene = Scene::new();
    let mut command = Command::new("sh");
    command.args(["-c", "{ \"$0\" manual; echo $? >&2; } | true"]).arg(scene::program());
    let answer = Answer::of(command.current_dir(scene.workspace()).stdin(Stdio::null()));
    assert_eq!(answer.err, "0\n");
}
