//! Sessions against somebody who writes in the workspace: what an attacker's session tried (docs/attack-log.md).

mod scene;

use scene::Scene;
use std::os::unix::fs::symlink;

fn session(scene: &Scene, options: &[&str]) -> String {
    let answer = scene.run([&["session", "new"], options].concat());
    assert_eq!((answer.status, answer.err.as_str()), (Some(0), ""), "{answer:?}");
    answer.out.trim().to_owned()
}

/// A configuration that says yes to whatever is written here.
fn allow(scene: &Scene, rule: &str) {
    let config = scene.folder("home/.config/pinfold").join("config.toml");
    std::fs::write(config, format!("[approval]\npolicy = 'allow-listed'\n[[approval.allow]]\n{rule}\n")).unwrap();
}

// W31: the person or rule that allows `build` does not mean what a link of that name leads to.
#[test]
fn a_link_is_neither_asked_about_nor_followed_by_a_grant() {
    let scene = Scene::new();
    let (build, victim) = (scene.folder("workspace/build"), scene.folder("victim"));
    allow(&scene, &format!("command = ['touch', 'build/f']\nwrite = '{}'", build.display()));
    let id = session(&scene, &[]);
    let touch = || {
        let dir = build.display().to_string();
        let words = ["run", "--session", &id, "--ask-write", &dir, "--justification", "x", "--", "touch", "build/f"];
        scene.run(words.map(str::to_owned))
    };
    // The control: the directory itself.
    touch().assert_silent_success("");
    std::fs::remove_dir_all(&build).unwrap();
    symlink(&victim, &build).unwrap();
    let answer = touch();
    assert_eq!(answer.status, Some(2), "{answer:?}");
    assert!(answer.err.contains("is a symbolic link") && !victim.join("f").exists(), "{answer:?}");
}

// W02: a session's directory is the one that it was made for.
#[test]
fn a_link_in_place_of_a_session_s_directory_or_grant_is_refused() {
    let scene = Scene::new();
    let (victim, extra) = (scene.folder("victim"), scene.folder("extra"));
    let id = session(&scene, &["--mode", "workspace-write"]);
    assert_eq!(scene.run(["session", "grant", &id, extra.to_str().unwrap()]).status, Some(0));
    let write = |file: &std::path::Path| scene.script(&["--session", &id], &format!("echo x > {}", file.display()));
    write(&extra.join("f")).assert_silent_success("");
    std::fs::rename(&extra, scene.path("moved")).unwrap();
    symlink(&victim, &extra).unwrap();
    let answer = write(&victim.join("f"));
    assert!(answer.status == Some(2) && !victim.join("f").exists(), "{answer:?}");
    std::fs::remove_file(&extra).unwrap();
    std::fs::rename(scene.path("moved"), &extra).unwrap();
    std::fs::rename(scene.path("workspace"), scene.path("moved")).unwrap();
    symlink(&victim, scene.path("workspace")).unwrap();
    let file = victim.join("f");
    let elsewhere = ["run", "--session", &id, "--cwd", "/", "--", "touch", file.to_str().unwrap()];
    let answer = scene.run(elsewhere);
    assert!(answer.status == Some(2) && !file.exists(), "{answer:?}");
    assert!(answer.err.contains("SANDBOX_INVALID_ROOT"), "{answer:?}");
}

#[test]
fn a_narrower_mode_and_a_question_for_more_do_not_go_together() {
    let scene = Scene::new();
    let id = session(&scene, &["--mode", "workspace-write"]);
    let more = ["--session", &id, "--mode", "read-only", "--escalate", "read-only", "--justification", "x"];
    let answer = scene.script(&more, "echo x > f");
    assert!(answer.status != Some(0) && !scene.path("workspace/f").exists(), "{answer:?}");
    assert!(answer.err.contains("--mode makes one call narrower"), "{answer:?}");
    // The control: without it the file is made, because the mode is in force already.
    scene.script(&["--session", &id, "--escalate", "workspace-write", "--justification", "x"], "echo x > f");
    assert!(scene.path("workspace/f").exists());
}

// An event that could not be read again would end the session with it.
#[test]
fn arguments_that_are_too_long_for_the_log_do_not_damage_it() {
    let scene = Scene::new();
    let id = session(&scene, &["--approval", "never"]);
    let long = "\u{1}".repeat(120_000);
    let mut words =
        vec!["run", "--session", &id, "--escalate", "workspace-write", "--justification", "x", "--", "true"];
    words.extend([long.as_str(); 15]);
    assert!(scene.run(words).status != Some(0));
    scene.script(&["--session", &id], "true").assert_silent_success("");
}

#[test]
fn a_project_file_s_text_cannot_steer_the_terminal() {
    let scene = Scene::new();
    std::fs::write(scene.path("workspace/pinfold.toml"), "\"\\u001b]0;x\\u0007\\r\\u202eabc\"=1\n").unwrap();
    let answer = scene.script(&[], "true");
    assert_eq!(answer.status, Some(2), "{answer:?}");
    let harmful = |letter: char| letter != '\n' && letter.is_control() || letter == '\u{202e}';
    assert!(answer.err.contains("CONFIG_INVALID") && !answer.err.contains(harmful), "{answer:?}");
}
