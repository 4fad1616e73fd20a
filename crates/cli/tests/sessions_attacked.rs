//! Sessions against somebody who writes in the workspace: what an attacker's session tried (docs/attack-log.md).

mod scene;

use scene::Scene;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

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

// Whoever can replace a link on the way to the configuration, or to the sessions, decides about the next call.
#[test]
fn what_decides_is_reached_through_no_link_that_a_command_can_replace() {
    let scene = Scene::new();
    let (config, state, home) = (scene.folder("safe/config"), scene.folder("safe/state"), scene.folder("safe/home"));
    std::fs::create_dir(config.join("pinfold")).unwrap();
    std::fs::write(config.join("pinfold/config.toml"), "").unwrap();
    for (variable, target) in [
        ("PINFOLD_CONFIG", config.join("pinfold/config.toml")),
        ("XDG_CONFIG_HOME", config.clone()),
        ("XDG_STATE_HOME", state.clone()),
        ("HOME", home.clone()),
    ] {
        let run = |link: &std::path::Path, options: &[&str]| {
            let mut command = scene.pinfold();
            command.env(variable, link).arg("run").args(options).args(["--", "true"]);
            scene::Answer::of(&mut command)
        };
        let (inside, outside) = (scene.path("workspace/link"), scene.path("outside/link"));
        symlink(&target, &inside).unwrap();
        symlink(&target, &outside).unwrap();
        run(&inside, &[]).assert_refused(2, "SANDBOX_INVALID_ROOT", "which decides what is allowed");
        // The controls: a link elsewhere, and a mode that cannot replace it.
        assert_eq!(run(&outside, &[]).status, Some(0), "{variable}");
        assert_eq!(run(&inside, &["--mode", "read-only"]).status, Some(0), "{variable}");
        // A directory above it counts as much.
        let above = scene.path("workspace/above");
        symlink(target.parent().unwrap(), &above).unwrap();
        let through = above.join(target.file_name().unwrap());
        run(&through, &[]).assert_refused(2, "SANDBOX_INVALID_ROOT", "which decides what is allowed");
        [inside, outside, above].iter().for_each(|link| std::fs::remove_file(link).unwrap());
    }
}

// W02: while a directory and a link are exchanged all the time, no call of the session writes where the link leads.
#[test]
fn race_a_link_put_between_look_and_start_leads_nowhere() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};
    let scene = Scene::new();
    let (out, victim) = (scene.folder("workspace/out"), scene.folder("victim"));
    let other = scene.path("workspace/other");
    symlink(&victim, &other).unwrap();
    let id = session(&scene, &[]);
    assert_eq!(scene.run(["session", "grant", &id, out.to_str().unwrap()]).status, Some(0));
    let stop = AtomicBool::new(false);
    let (mut ran, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &out, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let script = format!("echo x > {}/f", victim.display());
        for _ in 0..30 {
            let answer = scene.script(&["--session", &id], &script);
            assert!(answer.status != Some(0), "{answer:?}");
            match answer.status {
                Some(2) => refused += 1,
                _ => ran += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(!victim.join("f").exists(), "{ran} {refused}");
    assert_eq!(ran + refused, 30);
    // The control: what was kept out can be done.
    std::fs::write(victim.join("f"), "x").unwrap();
}

// The lock of a session is nothing that a command can take, also where it can read the log.
#[test]
fn no_command_holds_the_lock_of_a_session() {
    let scene = Scene::new();
    let id = session(&scene, &["--mode", "workspace-write"]);
    let place = scene.path("home/.local/state/pinfold/sessions").join(&id);
    let (log, lock) = (place.join("log.jsonl"), place.join("lock"));
    for backend in ["namespace", "bwrap", "landlock"] {
        // Without the session: it closes its state, and then nothing could be opened anyhow.
        let script = format!(
            "cat {0} && exit 9; echo x >> {0} && exit 9; flock -n {1} -c true; exec 9< {1}; flock 9; \
             : > held; sleep 600",
            lock.display(),
            log.display()
        );
        let mut command = scene.pinfold();
        let _ = std::fs::remove_file(scene.path("workspace/held"));
        command.args(["run", "--allow-secrets", "--backend", backend, "--timeout", "120", "--", "sh", "-c", &script]);
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        while !scene.path("workspace/held").exists() {
            if let Some(status) = child.try_wait().unwrap() {
                let mut said = String::new();
                std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
                assert!(said.contains("SANDBOX_UNAVAILABLE"), "{backend}: {status}: {said}");
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // With the log locked from inside, an event is written.
        scene.run(["session", "mode", &id, "read-only"]).assert_silent_success("");
        let pid = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        child.wait().unwrap();
    }
    // The control: unconfined, the lock can be taken by whoever can write it, and then nobody else gets in.
    let holder = std::fs::File::options().append(true).open(&lock).unwrap();
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let busy = scene.run(["session", "mode", &id, "workspace-write"]);
    assert!(busy.status == Some(125) && busy.err.contains("SESSION_BUSY"), "{busy:?}");
}

// A grant that is taken back while a call is prepared: whoever begins later has it no more.
#[test]
fn race_no_call_after_a_revocation_writes_there() {
    let scene = Scene::new();
    let out = scene.folder("outside/out");
    let id = session(&scene, &[]);
    for round in 0..15 {
        let grant = scene.run(["session", "grant", &id, out.to_str().unwrap()]).out.trim().to_owned();
        let answer = std::thread::scope(|scope| {
            let call =
                scope.spawn(|| scene.script(&["--session", &id], &format!("echo x > {}/{round}", out.display())));
            std::thread::sleep(std::time::Duration::from_millis(3 * round));
            scene.run(["session", "revoke", &id, &grant]).assert_silent_success("");
            call.join().unwrap()
        });
        let log = scene.run(["session", "log", &id]).out;
        let at = |kind: &str| log.lines().enumerate().filter(|(_, line)| line.contains(kind)).map(|(at, _)| at).last();
        let wrote = out.join(round.to_string()).exists();
        if wrote {
            assert!(at("call/began") < at("grant/revoked"), "{round}: {log}");
        } else {
            assert!(answer.status != Some(0), "{round}: {answer:?}");
        }
    }
}

// A project's file that is large, deep or long is refused at once.
#[test]
fn a_huge_project_file_is_refused_and_not_read() {
    let scene = Scene::new();
    let project = scene.path("workspace/pinfold.toml");
    let file = std::fs::File::create(&project).unwrap();
    file.set_len(1 << 40).unwrap();
    scene.script(&[], "true").assert_refused(2, "CONFIG_INVALID", "is longer than");
    for text in [format!("deny-read = [{}]", "'/a',".repeat(50_000)), format!("writable = {}", "[".repeat(200_000))] {
        std::fs::write(&project, text).unwrap();
        scene.script(&[], "true").assert_refused(2, "CONFIG_INVALID", "pinfold.toml");
    }
    std::fs::write(&project, "deny-read = ['/a']").unwrap();
    assert_eq!(scene.script(&[], "true").status, Some(0));
}

/// Runs pinfold on a terminal of its own, does something when a question stands there, and says yes. Returns what was shown.
fn yes_after(scene: &Scene, words: &str, meanwhile: impl FnOnce()) -> String {
    yes_after_in_shell(scene, "", words, meanwhile)
}

/// The same, behind words for the shell that starts it.
fn yes_after_in_shell(scene: &Scene, before: &str, words: &str, meanwhile: impl FnOnce()) -> String {
    let inner = format!("{before} {} {words}", scene::program().display());
    let mut command = Command::new("script");
    command.args(["-qec", &inner, "/dev/null"]).current_dir(scene.workspace()).env("HOME", scene.path("home"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut buffer, mut meanwhile) = (String::new(), [0; 4096], Some(meanwhile));
    while let count @ 1.. = output.read(&mut buffer).unwrap() {
        shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        if shown.contains("or n for no")
            && let Some(meanwhile) = meanwhile.take()
        {
            meanwhile();
            input.write_all(b"1\n").unwrap();
        }
    }
    child.wait().unwrap();
    assert!(meanwhile.is_none(), "nobody was asked: {shown}");
    shown
}

// What runs unconfined runs in the directory that was shown, whatever has taken its name by the time of the yes.
#[test]
fn a_yes_is_for_the_directory_that_was_shown() {
    for (command, option, act) in [("run", "--cwd", "touch mark"), ("exec", "--workdir", "'touch mark'")] {
        for by in ["nothing", "a link", "another directory"] {
            let scene = Scene::new();
            let (shown, victim) = (scene.folder("workspace/a"), scene.folder("victim"));
            let id = session(&scene, &[]);
            let words =
                format!("{command} --session {id} --escalate danger-full-access --justification j {option} a -- {act}");
            let said = yes_after(&scene, &words, || {
                if by != "nothing" {
                    std::fs::rename(&shown, scene.path("workspace/was")).unwrap();
                }
                match by {
                    "a link" => symlink(&victim, &shown).unwrap(),
                    "another directory" => std::fs::rename(&victim, &shown).unwrap(),
                    _ => {}
                }
            });
            let marked = shown.join("mark").exists() || victim.join("mark").exists();
            // The control: with the directory that was shown it is done.
            assert_eq!(marked, by == "nothing", "{command}, {by}: {said}");
            assert_eq!(said.contains("the question was about the one before"), by != "nothing", "{said}");
        }
    }
}

// What starts is the program that was shown: no file that a confined command has put into PATH, and none that has taken the
// shown one's place.
#[test]
fn a_yes_is_for_the_program_that_was_shown() {
    let more = "--escalate danger-full-access --justification j";
    for act in ["run, name", "exec, name", "run, path", "run, replaced", "run, written"] {
        let scene = Scene::new();
        let (planted, real) = (scene.folder("workspace/bin").join("tool"), scene.folder("real").join("tool"));
        let program = |path: &std::path::Path, text: &str| {
            std::fs::write(path, format!("#!/bin/sh\necho {text} > mark\n")).unwrap();
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        };
        program(&real, "real");
        program(&planted, "planted");
        let id = session(&scene, &[]);
        let (command, way) = act.split_once(", ").unwrap();
        let word = if way == "name" { "tool" } else { "./bin/tool" };
        let path = format!("{}:{}:$PATH", planted.parent().unwrap().display(), real.parent().unwrap().display());
        let before = format!("export PATH={path};");
        let said =
            yes_after_in_shell(&scene, &before, &format!("{command} --session {id} {more} -- {word}"), || match way {
                "replaced" => {
                    program(&scene.path("workspace/new"), "replaced");
                    std::fs::rename(scene.path("workspace/new"), &planted).unwrap();
                }
                "written" => program(&planted, "written"),
                _ => {}
            });
        let mark = std::fs::read_to_string(scene.path("workspace/mark")).ok();
        let expected = match way {
            "name" => Some("real\n"),
            // The control: a file that confined commands can write starts if it is meant, and shown as such.
            "path" => Some("planted\n"),
            _ => None,
        };
        assert_eq!(mark.as_deref(), expected, "{act}: {said}");
        assert_eq!(said.contains("a file that confined commands can write"), way != "name", "{act}: {said}");
        assert!(said.contains("leaving out of PATH"), "{act}: {said}");
        assert_eq!(said.contains("is another file now, or was written to"), expected.is_none(), "{act}: {said}");
        if way == "name" {
            std::fs::remove_file(&real).unwrap();
            let refused = scene
                .pinfold()
                .env("PATH", planted.parent().unwrap())
                .args(["run", "--session", &id])
                .args(["--escalate", "danger-full-access", "--justification", "j", "--", "tool"])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(
                refused.status.code() == Some(2) && said.contains("only where confined commands can write"),
                "{said}"
            );
        }
    }
}
