//! Bad words are refused with a code and a hint before anything runs; odd but good ones work.

mod scene;

use scene::{Answer, Scene};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

#[test]
fn an_empty_command_is_refused() {
    let scene = Scene::new();
    for words in [&["run"][..], &["run", "--"], &["confine", "--json", "--mode", "read-only", "--"]] {
        let answer = scene.run(words);
        if words.contains(&"--json") {
            assert_eq!(answer.last_json()["code"], "SANDBOX_INVALID_COMMAND");
        } else {
            answer.assert_refused(2, "SANDBOX_INVALID_COMMAND", "the command is empty");
        }
    }
    scene.run(["run", "--", "", "x"]).assert_refused(2, "SANDBOX_INVALID_COMMAND", "the program name is empty");
}

#[test]
fn an_unknown_word_is_refused_with_the_list_of_known_ones() {
    let scene = Scene::new();
    let modes = "unknown sandbox mode \"rw\"; expected one of: read-only, workspace-write, danger-full-access";
    scene.run(["run", "--mode", "rw", "--", "true"]).assert_refused(2, "SANDBOX_INVALID_POLICY", modes);
    let guarantees = "unknown guarantee \"net\"; expected one of: write-content, ";
    scene.run(["run", "--require", "net", "--", "true"]).assert_refused(2, "SANDBOX_INVALID_POLICY", guarantees);
    let backends =
        "no backend is named \"docker\"; known here: linux_namespace, linux_bwrap, linux_landlock, custom_runner";
    scene.run(["run", "--backend", "docker", "--", "true"]).assert_refused(2, "SANDBOX_BACKEND_UNKNOWN", backends);
    let confined = "expected one of: read-only, workspace-write";
    scene.run(["doctor", "--mode", "danger-full-access"]).assert_refused(2, "SANDBOX_INVALID_POLICY", confined);
    let operations = "unknown operation \"chmod\"; expected one of: write, create";
    scene.run(["explain", "/x", "--operation", "chmod"]).assert_refused(2, "SANDBOX_INVALID_POLICY", operations);
}

#[test]
fn a_command_line_that_fits_no_grammar_is_a_usage_error() {
    let scene = Scene::new();
    let answer = scene.run(["run", "cargo", "test"]);
    answer.assert_refused(2, "USAGE", "unexpected argument 'cargo' found");
    assert!(answer.err.ends_with("pinfold run -- COMMAND ARGUMENT...\n"), "{answer:?}");
    scene.run(["run", "--mod", "x", "--", "true"]).assert_refused(2, "USAGE", "'--mod'");
    scene.run(["walk"]).assert_refused(2, "USAGE", "'walk'");
    scene.run(["run", "--mode"]).assert_refused(2, "USAGE", "--mode");
    scene.run([] as [&str; 0]).assert_refused(2, "USAGE", "a command is missing");
    let answer = scene.run(["run", "--json", "--bogus", "--", "true"]);
    assert_eq!((answer.status, &answer.last_json()["code"]), (Some(2), &"USAGE".into()));
}

#[test]
fn a_bad_time_limit_is_refused() {
    let scene = Scene::new();
    for limit in ["0", "-1", "x", "", "nan", "inf", "1e30", "1s", "1e-12"] {
        let answer = scene.run(["run", &format!("--timeout={limit}"), "--", "true"]);
        assert_eq!(answer.status, Some(2), "{limit}: {answer:?}");
        assert!(answer.err.contains("pinfold: error["), "{limit}: {answer:?}");
    }
}

#[test]
// Case W20.
fn a_workspace_that_is_no_directory_is_refused_by_name() {
    let scene = Scene::new();
    std::fs::write(scene.path("workspace/file"), "").unwrap();
    let refuse = |workspace: &str, words: &str| {
        scene.run(["run", "--workspace", workspace, "--", "true"]).assert_refused(2, "SANDBOX_INVALID_ROOT", words);
    };
    refuse("none", "workspace/none\" does not exist");
    refuse("file", "workspace/file\" is not a directory");
    refuse("/nowhere at all", "workspace root \"/nowhere at all\" does not exist");
    let empty = scene.run(["run", "--workspace=", "--", "true"]);
    assert_eq!(empty.status, Some(2), "{empty:?}");
}

#[test]
fn a_further_root_that_is_no_plain_directory_is_refused_by_name() {
    let scene = Scene::new();
    std::fs::write(scene.path("workspace/file"), "").unwrap();
    symlink(scene.path("outside"), scene.path("workspace/link")).unwrap();
    let refuse = |root: &str, words: &str| {
        scene.run(["run", "--writable", root, "--", "true"]).assert_refused(2, "SANDBOX_INVALID_ROOT", words);
    };
    refuse("file", "additional writable root");
    refuse("link", "is a symbolic link");
    refuse("none", "does not exist");
}

#[test]
fn a_working_directory_that_is_missing_is_refused() {
    let scene = Scene::new();
    std::fs::write(scene.path("workspace/file"), "").unwrap();
    for (cwd, words) in
        [("none", "workspace/none\" cannot be entered"), ("file", "workspace/file\" is not a directory")]
    {
        scene.run(["run", "--cwd", cwd, "--", "true"]).assert_refused(2, "SANDBOX_INVALID_POLICY", words);
    }
}

#[test]
fn a_current_directory_that_was_removed_is_an_error_and_named_ones_still_work() {
    let scene = Scene::new();
    scene.folder("gone");
    let script = format!(
        "cd '{0}/gone' && rmdir '{0}/gone' && \"$@\" run -- true; echo $?; \
         \"$@\" run --workspace '{0}/workspace' --cwd '{0}/workspace' -- pwd",
        scene.path("").display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(scene::program()).stdin(Stdio::null());
    let answer = Answer::of(&mut command);
    assert_eq!(answer.out, format!("2\n{}\n", scene.workspace().display()), "{answer:?}");
    assert!(answer.err.contains("error[SANDBOX_INVALID_POLICY]: invalid policy: the current directory"), "{answer:?}");
}

#[test]
fn names_with_any_bytes_work() {
    let scene = Scene::new();
    let names: [&[u8]; 6] = [b"with space", b"qu\"ot'e", b"new\nline", b"not-utf8-\xff\xfe", b"-dash", b"$(id)"];
    for name in names {
        let name = OsString::from_vec(name.to_vec());
        let folder = scene.folder(std::path::Path::new("workspace").join(&name));
        // Absolute, relative, and as a further root.
        let mut spellings = vec![[OsString::from("--workspace="), folder.clone().into()]];
        spellings.push(["--workspace=".into(), name.clone()]);
        spellings.push(["--writable=".into(), name.clone()]);
        for [option, value] in spellings {
            let mut joined = option;
            joined.push(&value);
            let mut command = scene.pinfold();
            if joined.as_bytes().starts_with(b"--writable") {
                command.args(["run", "--workspace"]).arg(scene.folder("other"));
            } else {
                command.arg("run");
            }
            command.arg(&joined).args(["--", "sh", "-c", "echo x > \"$1/f\"", "sh"]).arg(&folder);
            Answer::of(&mut command).assert_silent_success("");
            std::fs::remove_file(folder.join("f")).unwrap_or_else(|error| panic!("{joined:?}: {error}"));
        }
    }
}

#[test]
fn arguments_reach_the_command_byte_for_byte() {
    let scene = Scene::new();
    let words: [&[u8]; 7] = [b"", b" ", b"--", b"--mode", b"new\nline", b"\xff\xfe", b"-x"];
    let mut command = scene.pinfold();
    command.args(["run", "--", "printf", "%s|"]).args(words.map(|word| OsString::from_vec(word.to_vec())));
    let output = command.output().unwrap();
    assert_eq!(output.stdout, b"| |--|--mode|new\nline|\xff\xfe|-x|");
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
}

#[test]
fn a_workspace_behind_a_link_is_one_workspace_in_both_spellings() {
    let scene = Scene::new();
    let link = scene.path("link");
    symlink(scene.workspace(), &link).unwrap();
    let script = "echo 1 > \"$1/a\" && echo 2 > \"$2/b\" && cat a b";
    let mut command = scene.pinfold();
    command.args(["run", "--workspace"]).arg(&link).arg("--cwd").arg(&link);
    command.args(["--", "sh", "-c", script, "sh"]).arg(&link).arg(scene.workspace());
    Answer::of(&mut command).assert_silent_success("1\n2\n");
}

#[test]
fn a_default_workspace_is_refused_where_it_would_surprise() {
    let scene = Scene::new();
    let home = scene.path("home");
    let programs = scene::program().parent().unwrap().to_owned();
    let places = [
        (std::path::PathBuf::from("/"), "is the root of the file tree"),
        ("/etc".into(), "is a directory of the system"),
        (home.clone(), "is your home directory"),
        (home.parent().unwrap().to_owned(), "holds your home directory"),
        (programs, "holds pinfold's own files"),
    ];
    for (place, words) in &places {
        for command in ["run", "confine"] {
            let answer = Answer::of(scene.pinfold().current_dir(place).args([command, "--", "true"]));
            answer.assert_refused(2, "SANDBOX_INVALID_ROOT", words);
        }
        // A mode that opens nothing needs no fit workspace.
        let answer = Answer::of(scene.pinfold().current_dir(place).args(["run", "--mode", "read-only", "--", "true"]));
        answer.assert_silent_success("");
    }
}

#[test]
fn home_is_a_workspace_when_it_is_named_and_decides_nothing_but_the_system_is_not() {
    let scene = Scene::new();
    let home = scene.path("home");
    let script = ["run", "--workspace", ".", "--", "sh", "-c", "echo x > f && cat f"];
    let run = |changes: &[(&str, &str)]| {
        let mut command = scene.pinfold();
        command.current_dir(&home).args(script);
        command.envs(changes.iter().map(|(name, place)| (name, scene.folder(place))));
        Answer::of(&mut command)
    };
    // W09: a command that can write the configuration, or the sessions, decides what the next one may do.
    for changes in [&[][..], &[("XDG_CONFIG_HOME", "conf")], &[("XDG_STATE_HOME", "state")]] {
        let answer = run(changes);
        assert_eq!(answer.status, Some(2), "{answer:?}");
        assert!(answer.err.contains("which decides what is allowed") && !home.join("f").exists(), "{answer:?}");
    }
    run(&[("XDG_CONFIG_HOME", "conf"), ("XDG_STATE_HOME", "state")]).assert_silent_success("x\n");
    for place in ["/", "/etc", scene::program().parent().unwrap().to_str().unwrap()] {
        let answer = scene.run(["run", "--workspace", place, "--", "true"]);
        assert_eq!((answer.status, answer.out.as_str()), (Some(2), ""), "{place}: {answer:?}");
        assert!(answer.err.starts_with("pinfold: error[SANDBOX_INVALID_"), "{place}: {answer:?}");
    }
}

#[test]
// Case B059.
fn a_working_directory_opens_nothing() {
    let scene = Scene::new();
    let outside = scene.path("outside");
    let answer = scene.script(&["--cwd", outside.to_str().unwrap()], "pwd; echo x > f");
    assert_eq!(answer.out, format!("{}\n", outside.display()), "{answer:?}");
    assert!(answer.status != Some(0) && !outside.join("f").exists(), "{answer:?}");
    // Control: the same place as a root is writable.
    let answer = scene.script(&["--writable", outside.to_str().unwrap()], &format!("echo x > {}/f", outside.display()));
    answer.assert_silent_success("");
    assert!(outside.join("f").exists());
}

#[test]
fn words_of_restrictions_are_checked_before_anything_runs() {
    let scene = Scene::new();
    for (words, sentence) in [
        (&["--network", "none"][..], "unknown network \"none\"; expected one of: open, private, off"),
        (&["--sockets", "none"], "expected one of: open, closed"),
        (&["--env", "none"], "expected one of: inherit, scrub"),
        (&["--keep-env", "A"], "--keep-env has no use here: no variable is removed (--env scrub)"),
        (
            &["--sockets", "open", "--allow-socket", "/x"],
            "--allow-socket has no use here: no socket is closed (--sockets closed)",
        ),
        (&["--deny-read", "/"], "is the whole file tree"),
        (&["--deny-read", "."], "would hide the workspace"),
        (&["--deny-read", "/usr"], "would hide \"/usr\", which every command needs"),
    ] {
        let answer = scene.script(words, "echo ran > ran");
        answer.assert_refused(2, "SANDBOX_INVALID_POLICY", sentence);
        assert!(!scene.path("workspace/ran").exists());
    }
    let answer = scene.script(&["--backend", "landlock", "--sockets", "closed"], "echo ran");
    answer.assert_refused(2, "SANDBOX_UNSUPPORTED_POLICY", "closes sockets by path only where it protects names");
    let answer = scene.script(&["--mode", "danger-full-access", "--network", "off"], "echo ran");
    answer.assert_refused(2, "SANDBOX_INVALID_POLICY", "--network cannot close anything under danger-full-access");
    let answer = scene.script(&["--cwd", "/tmp"], "echo ran");
    answer.assert_refused(2, "SANDBOX_INVALID_POLICY", "lies in a temp directory");
    // A hint names the option and the command that it is about.
    for (words, hint) in [
        (&["run", "--writable", "/etc", "--", "true"][..], "pinfold run --writable DIR"),
        (&["doctor", "--mode", "x"], "pinfold doctor --help"),
        (&["confine", "--network", "x", "--", "true"], "pinfold confine --help"),
        (&["run", "--require", "network", "--", "true"], "leave the guarantee out: --network off"),
        (&["fs", "read", "/no such/file"], "pinfold fs ls '/no such'"),
    ] {
        let answer = scene.run(words);
        assert!(answer.err.contains(hint), "{words:?}: {answer:?}");
    }
}
