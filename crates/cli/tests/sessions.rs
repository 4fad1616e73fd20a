//! Sessions and configuration as a user meets them: what decides, what is asked, and what no command reaches.

mod scene;

use scene::{Answer, Scene};
use std::process::Command;

fn session(scene: &Scene, options: &[&str]) -> String {
    let answer = scene.run([&["session", "new"], options].concat());
    assert_eq!((answer.status, answer.err.as_str()), (Some(0), ""), "{answer:?}");
    answer.out.trim().to_owned()
}

#[test]
fn a_session_begins_read_only_and_its_mode_can_be_set() {
    let scene = Scene::new();
    let id = session(&scene, &[]);
    let run = |options: &[&str]| scene.script(&[&["--session", id.as_str()], options].concat(), "echo x > f");
    assert!(run(&[]).status != Some(0) && !scene.path("workspace/f").exists());
    scene.run(["session", "mode", &id, "workspace-write"]).assert_silent_success("");
    run(&[]).assert_silent_success("");
    assert!(scene.path("workspace/f").exists());
    // A word may narrow, and never widen.
    assert!(run(&["--mode", "read-only"]).status != Some(0));
    let wider = run(&["--mode", "danger-full-access"]);
    assert_eq!((wider.status, wider.out.as_str()), (Some(125), ""), "{wider:?}");
    assert!(wider.err.contains("ESCALATION_REFUSED"), "{wider:?}");
}

// U567, W64: what ran, under what, and how it ended.
#[test]
fn every_call_is_in_the_log_with_its_digests() {
    let scene = Scene::new();
    let id = session(&scene, &["--mode", "workspace-write"]);
    scene.script(&["--session", &id], "exit 3");
    let log = scene.run(["session", "log", &id, "--json"]).out;
    let events: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["session/created", "sandbox/mode", "call/began", "call/ended"]);
    assert_eq!(events[2]["data"]["argv"].as_str().unwrap().len(), 64);
    assert_eq!(events[2]["data"]["mode"], "workspace-write");
    assert_eq!(events[3]["data"]["outcome"]["ending"]["code"], 3, "{log}");
    scene.run(["session", "end", &id]).assert_silent_success("");
    let after = scene.script(&["--session", &id], "true");
    assert!(after.status == Some(125) && after.err.contains("SESSION_ENDED"), "{after:?}");
}

// B065, W37: without anybody who allows it nothing runs, and nothing waits where the policy says so.
#[test]
fn without_a_yes_nothing_wider_runs() {
    let scene = Scene::new();
    let id = session(&scene, &["--approval", "never"]);
    let more = ["--session", &id, "--escalate", "workspace-write", "--justification", "x"];
    let answer = scene.script(&more, "echo x > f");
    assert_eq!((answer.status, answer.out.as_str()), (Some(125), ""), "{answer:?}");
    assert!(answer.err.contains("approval policy \"never\" refuses") && !scene.path("workspace/f").exists());
    let unpaired = scene.script(&["--session", &id, "--escalate", "workspace-write"], "true");
    unpaired.assert_refused(2, "SANDBOX_INVALID_POLICY", "--justification TEXT");
    scene.script(&["--session", &id, "--justification", "x"], "true").assert_refused(
        2,
        "SANDBOX_INVALID_POLICY",
        "--justification has no use here",
    );
    let alone = scene.script(&["--escalate", "workspace-write", "--justification", "x"], "true");
    assert_eq!(alone.status, Some(2), "{alone:?}");
}

#[test]
fn a_rule_of_the_configuration_allows_one_call() {
    let scene = Scene::new();
    let config = scene.folder("home/.config/pinfold").join("config.toml");
    std::fs::write(
        &config,
        "[approval]\npolicy = 'allow-listed'\n[[approval.allow]]\ncommand = ['touch', 'f']\nmode = 'workspace-write'\n",
    )
    .unwrap();
    let id = session(&scene, &[]);
    let of = |argv: &[&str]| {
        let more = ["run", "--session", &id, "--escalate", "workspace-write", "--justification", "x", "--"];
        scene.run([&more, argv].concat())
    };
    of(&["touch", "f"]).assert_silent_success("");
    assert!(scene.path("workspace/f").exists());
    assert_eq!(of(&["touch", "g"]).status, Some(125));
    assert!(!scene.path("workspace/g").exists());
}

// W09: the state of sessions cannot be read or changed from inside. The control reads and changes it.
#[test]
fn no_command_reaches_the_sessions() {
    let scene = Scene::new();
    let id = session(&scene, &["--mode", "workspace-write"]);
    let state = scene.path("home/.local/state/pinfold");
    let log = state.join("sessions").join(&id).join("log.jsonl");
    let acts = [
        format!("cat {}", log.display()),
        format!("ls {}", state.display()),
        format!("echo x >> {}", log.display()),
        format!("mv {} {}.old", state.display(), state.display()),
        format!("rm -rf {}", state.display()),
        format!("flock -n {} true", log.display()),
        format!("cat < {}", log.with_file_name("lock").display()),
    ];
    let before = std::fs::read(&log).unwrap();
    for act in &acts {
        let answer = scene.script(&["--session", &id], act);
        assert!(answer.status != Some(0), "{act}: {answer:?}");
        assert!(std::fs::read(&log).unwrap().starts_with(&before), "{act}");
    }
    // Without a session, too, unless secrets are left readable.
    assert!(scene.script(&[], &acts[0]).status != Some(0));
    assert_eq!(scene.script(&["--allow-secrets"], &acts[0]).status, Some(0));
    // Where reading cannot be denied, writing can.
    let landlock = scene.script(&["--session", &id, "--backend", "landlock"], &acts[2]);
    if !landlock.err.contains("SANDBOX_UNAVAILABLE") {
        assert!(landlock.status != Some(0) && !std::fs::read(&log).unwrap().ends_with(b"x\n"), "{landlock:?}");
    }
    for act in [&acts[0], &acts[1], &acts[5], &acts[2]] {
        assert!(Command::new("sh").args(["-c", act]).output().unwrap().status.success(), "{act}");
    }
}

#[test]
fn a_workspace_that_holds_the_sessions_is_refused() {
    let scene = Scene::new();
    let home = scene.path("home");
    let answer = Answer::of(scene.pinfold().current_dir(&home).args(["session", "new", "--mode", "workspace-write"]));
    let refused = scene.script(&["--session", answer.out.trim()], "true");
    refused.assert_refused(2, "SANDBOX_INVALID_ROOT", "which decides what is allowed");
}

// B126: which layer decided, and a project that only closes.
#[test]
fn explain_names_the_layer_and_a_project_cannot_open() {
    let scene = Scene::new();
    let user = scene.folder("home/.config/pinfold").join("config.toml");
    std::fs::write(&user, "network = 'private'\nwritable = []\n").unwrap();
    let project = scene.workspace().join("pinfold.toml");
    std::fs::write(&project, "# ours\nmode = 'read-only'\nnetwork = 'off'\n").unwrap();
    let out = scene.run(["explain", "--env", "scrub"]).out;
    let (_, decided) = out.split_once("decided by:").unwrap();
    let by = |key: &str| {
        let line =
            decided.lines().find(|line| line.trim_start().starts_with(key)).unwrap_or_else(|| panic!("{key}: {out}"));
        line.rsplit_once('(').unwrap().1.trim_end_matches(')').to_owned()
    };
    assert_eq!(by("mode  "), format!("{}:2", project.display()));
    assert_eq!(by("network  "), format!("{}:3", project.display()));
    assert_eq!(by("env  "), "command line");
    assert!(scene.script(&[], "echo x > f").status != Some(0) && !scene.path("workspace/f").exists());
    // A word opens it again, and the report says so.
    let answer = scene.script(&["--mode", "workspace-write", "--json"], "echo x > f");
    assert_eq!(answer.status, Some(0), "{answer:?}");
    assert!(answer.err.contains("opens what"), "{answer:?}");
    for opened in ["network = 'open'", "mode = 'danger-full-access'", "writable = ['/srv']"] {
        std::fs::write(&project, opened).unwrap();
        let answer = scene.script(&[], "true");
        answer.assert_refused(2, "CONFIG_WIDENS", "pinfold.toml:1");
    }
    std::fs::write(&project, "mode = ").unwrap();
    scene.script(&[], "true").assert_refused(2, "CONFIG_INVALID", "pinfold.toml:1");
}

#[test]
fn a_question_without_a_terminal_is_answered_by_nobody_and_ends() {
    let scene = Scene::new();
    let user = scene.folder("home/.config/pinfold").join("config.toml");
    std::fs::write(&user, "[approval]\ntimeout = 0.2\n").unwrap();
    let id = session(&scene, &[]);
    let mut command = Command::new("setsid");
    command.args(["-w"]).arg(scene::program());
    command.args([
        "run",
        "--session",
        &id,
        "--escalate",
        "workspace-write",
        "--justification",
        "x",
        "--",
        "touch",
        "f",
    ]);
    let answer = Answer::of(command.current_dir(scene.workspace()).env("HOME", scene.path("home")));
    assert_eq!(answer.status, Some(125), "{answer:?}");
    assert!(answer.err.contains("no approval channel is available"), "{answer:?}");
    assert!(!scene.path("workspace/f").exists());
    let approve = Answer::of(
        Command::new("setsid").arg("-w").arg(scene::program()).arg("approve").env("HOME", scene.path("home")),
    );
    assert!(approve.status == Some(2) && approve.err.contains("no terminal"), "{approve:?}");
    assert!(approve.err.contains("answer from a terminal") && !approve.err.contains(" ID"), "{approve:?}");
}
