//! Within a session every way to act has the session's policy: `run`, `exec` and `fs`; and what is said there fits.

mod scene;

use scene::{Answer, Scene};

fn session(scene: &Scene, options: &[&str]) -> String {
    let answer = scene.run([&["session", "new"], options].concat());
    assert_eq!((answer.status, answer.err.as_str()), (Some(0), ""), "{answer:?}");
    answer.out.trim().to_owned()
}

fn fs(scene: &Scene, id: &str, words: &[&str]) -> Answer {
    scene.run([&["fs"], words, &["--session", id]].concat())
}

fn exec(scene: &Scene, id: &str, options: &[&str], command: &str) -> Answer {
    scene.run([&["exec", "--session", id], options, &["--", command]].concat())
}

fn kinds(scene: &Scene, id: &str) -> Vec<String> {
    let log = scene.run(["session", "log", id, "--json"]).out;
    let kind =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].as_str().unwrap().to_owned();
    log.lines().map(kind).collect()
}

fn configure(scene: &Scene, text: &str) {
    std::fs::write(scene.folder("home/.config/pinfold").join("config.toml"), text).unwrap();
}

#[test]
fn file_tools_have_the_session_s_mode_directory_and_grants() {
    let scene = Scene::new();
    let id = session(&scene, &[]);
    let out = scene.folder("outside/out");
    let file = out.join("f").display().to_string();
    fs(&scene, &id, &["write", "--content", "x", "f"]).assert_refused(3, "FS_SANDBOX_DENIED", "read-only");
    fs(&scene, &id, &["write", "--content", "x", &file]).assert_refused(3, "FS_SANDBOX_DENIED", "read-only");
    let grant = scene.run(["session", "grant", &id, out.to_str().unwrap()]).out.trim().to_owned();
    assert_eq!(fs(&scene, &id, &["write", "--content", "x", &file]).status, Some(0));
    assert_eq!(fs(&scene, &id, &["write", "--content", "x", "f"]).status, Some(3));
    scene.run(["session", "revoke", &id, &grant]).assert_silent_success("");
    assert_eq!(fs(&scene, &id, &["write", "--content", "x", &file]).status, Some(3));
    scene.run(["session", "mode", &id, "workspace-write"]).assert_silent_success("");
    let elsewhere = scene.folder("elsewhere");
    let at = |words: &[&str]| {
        Answer::of(scene.pinfold().current_dir(&elsewhere).arg("fs").args(words).args(["--session", &id]))
    };
    assert_eq!(at(&["write", "--content", "x", "f"]).status, Some(0));
    assert!(scene.path("workspace/f").exists() && !elsewhere.join("f").exists());
    // A word may narrow, and never widen.
    assert_eq!(fs(&scene, &id, &["write", "--mode", "read-only", "--content", "x", "g"]).status, Some(3));
    let wide = fs(&scene, &id, &["write", "--mode", "danger-full-access", "--content", "x", "g"]);
    assert!(wide.status == Some(125) && wide.err.contains("ESCALATION_REFUSED"), "{wide:?}");
    fs(&scene, &id, &["ls", "--writable", "/srv"]).assert_refused(
        2,
        "SANDBOX_INVALID_POLICY",
        "--writable has no place",
    );
    // The log is out of reach here, too.
    let log = scene.path("home/.local/state/pinfold/sessions").join(&id).join("log.jsonl");
    fs(&scene, &id, &["read", log.to_str().unwrap()]).assert_refused(3, "FS_SANDBOX_DENIED", "denied");
    scene.run(["session", "end", &id]).assert_silent_success("");
    let ended = fs(&scene, &id, &["ls"]);
    assert!(ended.status == Some(125) && ended.err.contains("SESSION_ENDED"), "{ended:?}");
}

#[test]
fn an_unknown_session_is_an_error_and_leaves_nothing() {
    let scene = Scene::new();
    let runtime = scene.folder("runtime");
    std::fs::set_permissions(&runtime, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    for id in ["none", "..", "../../x", "", "a/b", "\u{1b}[2J", "-", "AAAAAAAAAA"] {
        for words in [&["fs", "ls"][..], &["run"], &["exec"]] {
            let mut command = scene.pinfold();
            command.env("XDG_RUNTIME_DIR", &runtime).args(words).arg(format!("--session={id}"));
            if words.len() == 1 {
                command.args(["--", "true"]);
            }
            let answer = Answer::of(&mut command);
            answer.assert_refused(2, "SESSION_UNKNOWN", "there is no session");
            assert!(!answer.err.contains('\u{1b}'));
        }
    }
    let left: Vec<_> = std::fs::read_dir(&runtime).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn exec_runs_under_the_session_s_policy_and_is_in_its_log() {
    let scene = Scene::new();
    let id = session(&scene, &[]);
    let denied = exec(&scene, &id, &[], "echo x > f");
    assert!(denied.status != Some(0) && !scene.path("workspace/f").exists(), "{denied:?}");
    assert_eq!(kinds(&scene, &id), ["session/created", "call/began", "call/ended"]);
    scene.run(["session", "mode", &id, "workspace-write"]).assert_silent_success("");
    assert_eq!(exec(&scene, &id, &[], "echo x > f; pwd").out, format!("{}\n", scene.workspace().display()));
    assert!(scene.path("workspace/f").exists());
    assert_eq!(exec(&scene, &id, &["--mode", "read-only"], "echo x > g").status, Some(1));
    let wide = exec(&scene, &id, &["--mode", "danger-full-access"], "true");
    assert!(wide.err.contains("ESCALATION_REFUSED"), "{wide:?}");
    scene.folder("workspace/sub");
    assert_eq!(
        exec(&scene, &id, &["--workdir", "sub"], "pwd").out,
        format!("{}\n", scene.path("workspace/sub").display())
    );
    scene.run(["session", "end", &id]).assert_silent_success("");
    assert!(exec(&scene, &id, &[], "true").err.contains("SESSION_ENDED"));
}

#[test]
fn exec_asks_as_run_does() {
    let scene = Scene::new();
    configure(
        &scene,
        "[approval]\npolicy = 'allow-listed'\n[[approval.allow]]\ncommand = ['bash', '-c', 'echo x > f']\n\
         mode = 'workspace-write'\n",
    );
    let id = session(&scene, &[]);
    let more = ["--escalate", "workspace-write", "--justification", "x"];
    assert_eq!(exec(&scene, &id, &more, "echo x > f").status, Some(0));
    assert!(scene.path("workspace/f").exists());
    let refused = exec(&scene, &id, &more, "echo x > g");
    assert!(refused.status == Some(125) && refused.err.contains("no rule allows escalating"), "{refused:?}");
    assert!(!scene.path("workspace/g").exists());
    let expected = ["session/created", "approval/asked", "approval/decided", "grant/given", "grant/used", "call/began"];
    assert_eq!(kinds(&scene, &id)[..6], expected);
}

// After a grant in a read-only session the mode is what it was: in the log, in messages, and for what can be asked.
#[test]
fn a_granted_directory_does_not_call_itself_a_mode() {
    let scene = Scene::new();
    configure(
        &scene,
        "[approval]\npolicy = 'allow-listed'\n[[approval.allow]]\ncommand = ['touch', 'f']\nmode = 'workspace-write'\n",
    );
    let id = session(&scene, &[]);
    let out = scene.folder("outside/out");
    scene.run(["session", "grant", &id, out.to_str().unwrap()]);
    let denied = scene.run(["run", "--session", &id, "--", "touch", "f"]);
    assert!(denied.err.contains("refused under read-only") && denied.err.contains("--escalate"), "{denied:?}");
    assert!(scene.run(["session", "log", &id]).out.contains("\"mode\":\"read-only\""));
    let more = ["run", "--session", &id, "--escalate", "workspace-write", "--justification", "x", "--", "touch", "f"];
    scene.run(more).assert_silent_success("");
    assert!(scene.path("workspace/f").exists());
    let told = scene.run(["session", "tell", &id]).out;
    assert!(
        told.starts_with("Commands run under sandbox mode read-only.\nBeside it, directories were granted."),
        "{told}"
    );
}

#[test]
fn what_cannot_be_granted_is_neither_granted_nor_asked() {
    let scene = Scene::new();
    let id = session(&scene, &[]);
    let missing = scene.path("outside/none").display().to_string();
    let config = scene.folder("home/.config/pinfold").display().to_string();
    std::os::unix::fs::symlink("/", scene.path("outside/link")).unwrap();
    let link = scene.path("outside/link").display().to_string();
    for (path, words) in [
        (missing.as_str(), "does not exist"),
        ("/etc", "system directory"),
        (&link, "symbolic link"),
        (&config, "which decides what is allowed"),
    ] {
        let grant = scene.run(["session", "grant", &id, path]);
        grant.assert_refused(2, "SANDBOX_INVALID_ROOT", words);
        let ask = scene.run(["run", "--session", &id, "--ask-write", path, "--justification", "x", "--", "true"]);
        ask.assert_refused(2, "SANDBOX_INVALID_ROOT", words);
        // No option that a session refuses is named.
        assert!(!ask.err.contains("--writable") && !ask.err.contains("--workspace"), "{ask:?}");
    }
    assert_eq!(kinds(&scene, &id), ["session/created"]);
}

// What could not run if it were allowed is not asked for.
#[test]
fn nobody_is_asked_for_what_the_configuration_forbids() {
    let scene = Scene::new();
    configure(&scene, "network = 'off'\n[approval]\ntimeout = 0.5\n");
    let id = session(&scene, &[]);
    let wide = ["run", "--session", &id, "--escalate", "danger-full-access", "--justification", "x", "--", "true"];
    scene.run(wide).assert_refused(2, "SANDBOX_INVALID_POLICY", "--network cannot close anything");
    assert_eq!(kinds(&scene, &id), ["session/created"]);
    // Nor for what no backend could do: the working directory would lie in the private temp area.
    let below = tempfile::tempdir_in("/tmp").unwrap();
    let below = below.path().to_str().unwrap();
    let hidden = ["run", "--session", &id, "--cwd", below, "--escalate", "workspace-write", "--justification", "x"];
    let refused = scene.run([&hidden[..], &["--", "true"]].concat());
    refused.assert_refused(2, "SANDBOX_INVALID_POLICY", "lies in a temp directory");
    assert_eq!(kinds(&scene, &id), ["session/created"]);
    // Nothing is asked either where it is in force already, and nothing says so.
    scene.run(["session", "mode", &id, "workspace-write"]).assert_silent_success("");
    let same = ["run", "--session", &id, "--escalate", "workspace-write", "--justification", "x", "--", "true"];
    assert_eq!(Answer::of(scene.pinfold().args(same)).err, "");
}

#[test]
fn a_broken_configuration_hides_no_session() {
    let scene = Scene::new();
    let id = session(&scene, &[]);
    std::fs::write(scene.path("workspace/pinfold.toml"), "mode = ").unwrap();
    let shown = scene.run(["session", "show", &id]);
    assert_eq!(shown.status, Some(0), "{shown:?}");
    assert!(shown.out.contains("mode      unknown") && shown.out.contains("no call can be made"), "{shown:?}");
    let json: serde_json::Value = serde_json::from_str(&scene.run(["session", "show", &id, "--json"]).out).unwrap();
    assert!(json["mode"].is_null() && json["error"].as_str().unwrap().contains("pinfold.toml"));
    let told = scene.run(["session", "tell", &id]);
    assert!(told.status == Some(0) && told.out.starts_with("No command can be run: "), "{told:?}");
    scene.script(&["--session", &id], "true").assert_refused(2, "CONFIG_INVALID", "pinfold.toml");
}

// A refused read is told apart from a refused write.
#[test]
fn a_refused_read_suggests_nothing_to_write() {
    let scene = Scene::new();
    let id = session(&scene, &[]);
    let key = scene.folder("home/.ssh").join("id_ed25519");
    std::fs::write(&key, "key").unwrap();
    let answer = scene.run(["run", "--session", &id, "--", "cat", key.to_str().unwrap()]);
    assert!(answer.status != Some(0), "{answer:?}");
    assert!(!answer.err.contains("--escalate") && !answer.err.contains("--ask-write"), "{answer:?}");
}

// U556: what is chosen when a session is made stands in its log; a configuration that chooses nothing stays in charge.
#[test]
fn a_new_session_is_pinned_to_what_was_chosen_for_it() {
    let scene = Scene::new();
    assert_eq!(kinds(&scene, &session(&scene, &[])), ["session/created"]);
    let pinned = ["session/created", "permission/preset", "sandbox/mode", "approval/policy"];
    assert_eq!(kinds(&scene, &session(&scene, &["--preset", "workspace-write"])), pinned);
    configure(&scene, "default-preset = 'workspace-write'\n");
    assert_eq!(kinds(&scene, &session(&scene, &[])), pinned);
    // U557
    configure(&scene, "default-preset = 'gone'\n");
    scene.run(["session", "new"]).assert_refused(2, "PRESET_UNKNOWN", "config.toml:1: permission: unknown preset");
}

// U255, U554, U572: a word that means nothing changes nothing.
#[test]
fn unknown_words_are_refused_before_the_log_changes() {
    let scene = Scene::new();
    let id = session(&scene, &[]);
    for (task, word) in [("mode", "full"), ("approval", "always"), ("preset", "auto"), ("revoke", "g9")] {
        let answer = scene.run(["session", task, &id, word]);
        assert!(answer.status == Some(2) && answer.err.contains("hint: "), "{answer:?}");
    }
    assert_eq!(kinds(&scene, &id), ["session/created"]);
}
