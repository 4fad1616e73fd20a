//! A refusal names the option that was meant, and a hint can be followed as it stands.

mod scene;

use scene::{Answer, Scene};
use std::os::unix::fs::PermissionsExt as _;

#[track_caller]
fn names(answer: &Answer, status: i32, words: &str) {
    assert_eq!((answer.status, answer.out.as_str()), (Some(status), ""), "{answer:?}");
    assert!(answer.err.contains(words), "{words}: {answer:?}");
}

#[test]
fn the_help_of_exec_names_its_own_options() {
    let help = Scene::new().run(["exec", "--help"]).out;
    for foreign in ["--cwd", "--report", "--timeout passed", "only for `run`;", "Ctrl-\\\\"] {
        assert!(!help.contains(foreign), "{foreign}: {help}");
    }
    for own in ["--workdir", "--timeout-ms, or", "Ctrl-\\ signal", "not for `confine`"] {
        assert!(help.contains(own), "{own}: {help}");
    }
}

#[test]
fn a_misspelled_option_is_no_word_of_the_command() {
    let scene = Scene::new();
    for command in ["run", "exec", "mcp"] {
        let answer = scene.run([command, "--mod", "x"]);
        answer.assert_refused(2, "USAGE", "a similar argument exists: '--mode'");
        assert!(
            !answer.err.contains("as a value") && answer.err.contains(&format!("pinfold {command} ")),
            "{answer:?}"
        );
    }
}

#[test]
fn a_misspelled_preset_protects_nothing_and_is_refused() {
    let scene = Scene::new();
    for word in ["defualt", "Default", "nome"] {
        let answer = scene.script(&["--protect", word], "echo ran > ran");
        answer.assert_refused(2, "SANDBOX_INVALID_POLICY", &format!("--protect \"{word}\" is neither"));
    }
    assert!(!scene.path("workspace/ran").exists());
    // Controls: a name that is there, one that is spelled as a path, and one that looks like no preset.
    std::fs::write(scene.path("workspace/nome"), "").unwrap();
    for word in ["nome", "./defualt", "Makefile"] {
        scene.script(&["--protect", word], "true").assert_silent_success("");
    }
}

#[test]
fn words_without_use_under_read_only_are_refused() {
    let scene = Scene::new();
    for words in [["--writable", "."], ["--max-temp-size", "1MiB"]] {
        let sentence = format!("{} has no use here", words[0]);
        let answer = scene.script(&[&["--mode", "read-only"][..], &words].concat(), "true");
        answer.assert_refused(2, "SANDBOX_INVALID_POLICY", &sentence);
        assert!(answer.err.contains("--mode workspace-write"), "{answer:?}");
        let explained = scene.run([&["explain", "--mode", "read-only"][..], &words].concat());
        explained.assert_refused(2, "SANDBOX_INVALID_POLICY", &sentence);
    }
    // A file speaks for calls under every mode.
    let file = scene.folder("home/.config/pinfold").join("config.toml");
    std::fs::write(file, format!("writable = ['{}']\n", scene.path("outside").display())).unwrap();
    scene.script(&["--mode", "read-only"], "true").assert_silent_success("");
}

#[test]
fn a_missing_working_directory_of_exec_is_an_error_of_the_caller() {
    let scene = Scene::new();
    let words = "workspace/none\" cannot be entered";
    scene.run(["exec", "--workdir", "none", "--", "true"]).assert_refused(2, "SANDBOX_INVALID_POLICY", words);
    scene.folder("workspace/below");
    let below = scene.run(["exec", "--workdir", "below", "--", "pwd"]);
    assert!(below.status == Some(0) && below.out.contains("workspace/below"), "{below:?}");
}

#[test]
fn bounds_and_guarantees_are_explained_as_they_would_be_run() {
    let scene = Scene::new();
    let file = scene.folder("home/.config/pinfold").join("config.toml");
    std::fs::write(file, "[limits]\nmax-processes = 100\nmax-open-files = 64\n").unwrap();
    let line = |out: &str, key: &str| {
        out.lines().find(|line| line.trim_start().starts_with(key)).unwrap_or_default().to_owned()
    };
    let out = scene.run(["explain"]).out;
    let bound = line(&out, "limits.max-processes");
    assert!(bound.contains(" 100 ") && bound.contains("config.toml"), "{out}");
    let out = scene.run(["explain", "--max-processes", "90"]).out;
    let bound = line(&out, "limits.max-processes");
    assert!(bound.contains(" 90 ") && !bound.contains("config.toml"), "{out}");
    assert!(line(&out, "limits.max-open-files").contains(" 64 "), "{out}");

    let unmet = ["--require", "protected-paths"];
    let run = scene.script(&unmet, "true");
    assert!(run.status == Some(125) && run.err.trim_end().ends_with("--protect default"), "{run:?}");
    let explained = scene.run([&["explain"][..], &unmet].concat());
    assert!(explained.status == Some(0) && explained.out.contains("`run` would refuse this: "), "{explained:?}");
    let kept = scene.run(["explain", "--require", "write-content", "--cwd", "."]);
    assert!(kept.status == Some(0) && !kept.out.contains("would refuse"), "{kept:?}");
    let unknown = scene.run(["explain", "--require", "net"]);
    unknown.assert_refused(2, "SANDBOX_INVALID_POLICY", "unknown guarantee");
}

#[test]
fn programs_that_everybody_can_replace_are_named_with_their_directory() {
    let scene = Scene::new();
    let open = scene.folder("open");
    for name in ["pinfold", "pinfold-run"] {
        std::fs::copy(scene::program().with_file_name(name), open.join(name)).unwrap();
    }
    let run = || {
        let mut command = std::process::Command::new(open.join("pinfold"));
        let place = scene.pinfold();
        command.envs(place.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Answer::of(command.current_dir(scene.workspace()).args(["run", "--", "true"]))
    };
    assert_eq!(run().status, Some(0), "control");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = run();
    let remedy = format!("chmod go-w {}", open.display());
    assert!(refused.status == Some(125) && refused.err.contains(&remedy), "{refused:?}");
    assert!(!refused.err.contains("install pinfold-run"), "{refused:?}");
}

#[test]
fn a_named_configuration_that_cannot_be_used_is_named_by_its_variable() {
    let scene = Scene::new();
    for file in ["x", "/nowhere/x"] {
        let answer = Answer::of(scene.pinfold().env("PINFOLD_CONFIG", file).arg("explain"));
        answer.assert_refused(2, "CONFIG_INVALID", file);
        assert!(answer.err.ends_with("env -u PINFOLD_CONFIG pinfold explain\n"), "{answer:?}");
    }
}

#[test]
fn file_operations_name_the_option_that_would_do_it() {
    let scene = Scene::new();
    scene.folder("workspace/full");
    for name in ["full/f", "one", "two"] {
        std::fs::write(scene.workspace().join(name), name).unwrap();
    }
    std::fs::write(scene.folder("home/.ssh").join("id"), "secret").unwrap();
    let fs = |words: &str| scene.run(["fs"].into_iter().chain(words.split(' ')));
    let id = scene.path("home/.ssh/id").display().to_string();
    let (secret, allow) = (format!("read {id}"), format!("--allow-read {id}\n"));
    for (words, status, option) in [
        ("rm full", 1, "--recursive\n"),
        ("cp full copy", 1, "--recursive\n"),
        ("mkdir a/b/c", 1, "--parents\n"),
        ("mkdir full", 1, "--parents\n"),
        ("cp one two", 4, "--force\n"),
        ("mv one two", 4, "--force\n"),
        ("write --if-absent one", 4, "it already exists\n"),
        ("write --mode read-only one", 3, "--mode workspace-write\n"),
        (&secret, 3, &allow),
    ] {
        names(&fs(words), status, option);
    }
    // Controls: what is advised does it.
    let allowed = format!("{secret} --allow-read {}", scene.path("home/.ssh/id").display());
    for words in
        ["cp --recursive full copy", "mkdir --parents a/b/c", "cp --force one two", "rm --recursive full", &allowed]
    {
        assert_eq!(fs(words).status, Some(0), "{words}");
    }
}

#[test]
fn a_session_is_widened_by_its_own_words() {
    let scene = Scene::new();
    let id = scene.run(["session", "new"]).out.trim().to_owned();
    let wider = scene.script(&["--session", &id, "--mode", "workspace-write"], "true");
    names(&wider, 125, "--mode only narrows; ask for more: --escalate workspace-write --justification TEXT");
    names(&scene.run(["fs", "write", "--session", &id, "f"]), 3, &format!("pinfold session grant {id} DIR"));
    let beside = scene.path("beside/f");
    std::fs::create_dir(scene.path("beside")).unwrap();
    let grant = format!("pinfold session grant {id} {}\n", scene.path("beside").display());
    names(&scene.run(["fs", "write", "--session", &id, &beside.display().to_string()]), 3, &grant);
}
