//! `pinfold fs`: standard output is data, errors are typed, and the policy is that of commands.

mod scene;

use scene::{Answer, Scene};
use std::io::Write as _;
use std::process::Stdio;

fn fs(scene: &Scene, words: &[&str]) -> Answer {
    scene.run(["fs"].iter().chain(words))
}

/// Writes from standard input.
fn feed(scene: &Scene, words: &[&str], input: &[u8]) -> Answer {
    let mut command = scene.pinfold();
    command.arg("fs").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Who refuses does not read.
    let _ = child.stdin.take().unwrap().write_all(input);
    Answer::from(child.wait_with_output().unwrap())
}

#[test]
fn what_is_written_is_read_back_byte_for_byte() {
    let scene = Scene::new();
    let bytes = b"a\r\n\xff\0b";
    let answer = feed(&scene, &["write", "d/f"], bytes);
    assert_eq!((answer.status, answer.err.as_str()), (Some(0), ""));
    assert_eq!(std::fs::read(scene.workspace().join("d/f")).unwrap(), bytes);
    let out = scene.pinfold().args(["fs", "read", "d/f"]).output().unwrap();
    assert_eq!(out.stdout, bytes);
    let version = answer.out.trim().to_owned();
    assert!(fs(&scene, &["stat", "d/f"]).out.contains(&version));
    feed(&scene, &["write", "--if-version", "x", "d/f"], b"").assert_refused(4, "FS_STALE_VERSION", "it changed");
    assert_eq!(feed(&scene, &["write", "--if-version", &version, "d/f"], b"1\n2\n3\n").status, Some(0));
    feed(&scene, &["write", "--if-absent", "d/f"], b"").assert_refused(4, "FS_NOT_OBSERVED", "it already exists");
    fs(&scene, &["read", "--offset", "2", "--limit", "1", "d/f"]).assert_silent_success("2: 2\n");
    let json: serde_json::Value = serde_json::from_str(&fs(&scene, &["read", "--json", "d/f"]).out).unwrap();
    assert_eq!((json["text"].as_str(), json["size"].as_u64()), (Some("1\n2\n3\n"), Some(6)));
}

#[test]
fn an_edit_prints_its_diff_or_says_why_not() {
    let scene = Scene::new();
    std::fs::write(scene.workspace().join("f"), "one\none\ntwo\n").unwrap();
    let answer = fs(&scene, &["edit", "--old", "two", "--new", "2", "f"]);
    assert!(answer.status == Some(0) && answer.out.ends_with("-two\n+2\n"), "{answer:?}");
    fs(&scene, &["edit", "--old", "one", "--new", "1", "f"]).assert_refused(4, "FS_AMBIGUOUS_EDIT", "2 times");
    fs(&scene, &["edit", "--old", "One", "--new", "1", "f"]).assert_refused(4, "FS_EDIT_NOT_FOUND", "upper and lower");
    fs(&scene, &["edit", "--old", "", "--new", "1", "f"]).assert_refused(2, "SANDBOX_INVALID_POLICY", "--old");
    assert_eq!(fs(&scene, &["edit", "--all", "--old", "one", "--new", "1", "f"]).status, Some(0));
    assert_eq!(std::fs::read_to_string(scene.workspace().join("f")).unwrap(), "1\n1\n2\n");
}

/// B036: the refusal names where the path leads; nothing waits for input first.
#[test]
fn what_the_policy_refuses_exits_with_three_and_names_the_place() {
    let scene = Scene::new();
    std::os::unix::fs::symlink(scene.path("outside"), scene.workspace().join("out")).unwrap();
    let leads = format!("it leads to {:?}", scene.path("outside/f"));
    fs(&scene, &["write", "out/f"]).assert_refused(3, "FS_SANDBOX_DENIED", &leads);
    fs(&scene, &["write", "--mode", "read-only", "f"]).assert_refused(3, "FS_SANDBOX_DENIED", "read-only");
    let answer = fs(&scene, &["write", "--json", "--content", "x", "out/f"]);
    assert_eq!(answer.status, Some(3));
    let error = answer.last_json();
    assert_eq!(error["code"], "FS_SANDBOX_DENIED");
    assert_eq!(error["resolved"].as_str(), scene.path("outside/f").to_str());
    let outside = scene.path("outside");
    let open = ["write", "--writable", outside.to_str().unwrap(), "--content", "x", "out/f"];
    assert_eq!(fs(&scene, &open).status, Some(0), "control");
    let wide = ["write", "--mode", "danger-full-access", "--content", "y", "out/g"];
    assert_eq!(fs(&scene, &wide).status, Some(0));
    fs(&scene, &["read", "--deny-read", "**/g", "out/g"]).assert_silent_success("y");
    let denied = ["read", "--deny-read", outside.to_str().unwrap(), "out/g"];
    fs(&scene, &denied).assert_refused(3, "FS_SANDBOX_DENIED", "the denied path");
}

/// As for commands: secrets of the home directory are closed unless somebody says otherwise.
#[test]
fn secrets_of_the_home_directory_are_closed_as_for_commands() {
    let scene = Scene::new();
    let key = scene.folder("home/.ssh").join("id_ed25519");
    std::fs::write(&key, "key").unwrap();
    let key = key.to_str().unwrap();
    fs(&scene, &["read", key]).assert_refused(3, "FS_SANDBOX_DENIED", "the denied path");
    fs(&scene, &["read", "--allow-secrets", key]).assert_silent_success("key");
}

/// A session's tools and the rules of its commands: its temp area is at `/tmp`, and protected names are protected.
#[test]
fn a_session_has_a_temp_area_and_protected_names_hold() {
    let scene = Scene::new();
    let runtime = scene.folder("runtime");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&runtime, mode).unwrap();
    let fs = |words: &[&str]| {
        let mut command = scene.pinfold();
        Answer::of(command.env("XDG_RUNTIME_DIR", &runtime).arg("fs").args(words))
    };
    let name = format!("/tmp/pinfold-fs-{}", std::process::id());
    let session = scene.run(["session", "new", "--mode", "workspace-write"]).out;
    let at = ["--session", session.trim(), "--backend", "namespace"];
    assert_eq!(fs(&[&["write", "--content", "x", &name], &at[..]].concat()).status, Some(0));
    assert!(!std::path::Path::new(&name).exists());
    fs(&[&["read", &name], &at[..]].concat()).assert_silent_success("x");
    fs(&["write", "--content", "x", &name]).assert_refused(3, "FS_SANDBOX_DENIED", "no writable root");
    let hook = ["write", "--content", "x", ".git/hooks/pre-commit"];
    fs(&[&hook[..], &["--protect", "default"]].concat()).assert_refused(3, "FS_SANDBOX_DENIED", "protected name");
    assert_eq!(fs(&hook).status, Some(0), "control");
}

#[test]
fn the_other_verbs_do_what_their_names_say() {
    let scene = Scene::new();
    let ok = |words: &[&str]| fs(&scene, words).assert_silent_success("");
    ok(&["mkdir", "--parents", "a/b"]);
    std::fs::write(scene.workspace().join("a/f"), "needle\n").unwrap();
    ok(&["cp", "a/f", "a/b/g"]);
    ok(&["mv", "a/b/g", "h"]);
    fs(&scene, &["mv", "h", "a/f"]).assert_refused(4, "FS_NOT_OBSERVED", "it already exists");
    ok(&["mv", "--force", "h", "a/f"]);
    fs(&scene, &["ls", "a"]).assert_silent_success("b/\nf\n");
    fs(&scene, &["grep", "need.e"]).assert_silent_success("a/f:1:needle\n");
    fs(&scene, &["glob", "**/f"]).assert_silent_success("a/f\n");
    // What is found can be named to the other verbs as it stands.
    fs(&scene, &["grep", "need.e", "a"]).assert_silent_success("a/f:1:needle\n");
    fs(&scene, &["grep", "need.e", "a/f"]).assert_silent_success("a/f:1:needle\n");
    fs(&scene, &["glob", "f", "./a"]).assert_silent_success("./a/f\n");
    // A hint has the path in it.
    for (words, hint) in [
        (&["read", "a/no ne"][..], "pinfold fs ls a"),
        (&["read", "a"], "pinfold fs stat a"),
        (&["write", "--content", "x", "/etc/no"], "pinfold explain /etc/no; open its directory: --writable /etc"),
        (&["mv", "none", "b"], "pinfold fs ls ."),
        (&["mkdir", "x/'y'/z"], "--parents"),
    ] {
        let said = fs(&scene, words);
        assert!(said.err.contains(hint), "{words:?}: {said:?}");
    }
    assert_eq!(fs(&scene, &["glob", "*.none"]).status, Some(1));
    fs(&scene, &["rm", "a"]).assert_refused(1, "FS_IO_ERROR", "not empty");
    ok(&["rm", "--recursive", "a"]);
    fs(&scene, &["stat", "a"]).assert_refused(1, "FS_NOT_FOUND", "nothing is there");
    fs(&scene, &["ls", "none"]).assert_refused(1, "FS_NOT_FOUND", "nothing is there");
    fs(&scene, &["ls", "--workspace", "/"]).assert_refused(2, "SANDBOX_INVALID_ROOT", "is refused");
    assert_eq!(fs(&scene, &["frobnicate"]).status, Some(2));
}

/// W53: trees, permission bits, times, and what is at a place in one line.
#[test]
fn trees_are_copied_and_bits_and_times_are_set() {
    let scene = Scene::new();
    let ws = scene.workspace();
    let ok = |words: &[&str]| fs(&scene, words).assert_silent_success("");
    ok(&["touch", "d/run.sh"]);
    ok(&["chmod", "640", "d/run.sh"]);
    ok(&["chmod", "+x", "d/run.sh"]);
    std::os::unix::fs::symlink("run.sh", ws.join("d/link")).unwrap();
    let long = fs(&scene, &["ls", "--long", "d"]);
    let lines: Vec<Vec<&str>> = long.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 2, "{long:?}");
    assert_eq!((lines[0][4], lines[0][5], lines[0][6]), ("link@", "->", ws.join("d/run.sh").to_str().unwrap()));
    assert_eq!((lines[1][0], lines[1][1], lines[1][2], lines[1][4]), ("0750", "1", "0", "run.sh"));
    assert!(lines[1][3].len() == 20 && lines[1][3].ends_with('Z'), "{long:?}");
    let json: serde_json::Value = serde_json::from_str(&fs(&scene, &["ls", "--json", "d"]).out).unwrap();
    assert_eq!((json["entries"][1]["mode"].as_str(), json["entries"][1]["size"].as_u64()), (Some("0750"), Some(0)));
    ok(&["cp", "--recursive", "d", "e/f"]);
    assert_eq!(std::fs::read_link(ws.join("e/f/link")).unwrap().to_str(), Some("run.sh"));
    fs(&scene, &["cp", "-r", "d", "e/f"]).assert_refused(1, "FS_IO_ERROR", "exists");
    ok(&["cp", "-rf", "d", "e/f"]);
    fs(&scene, &["cp", "d", "g"]).assert_refused(1, "FS_NOT_REGULAR_FILE", "regular file");
    ok(&["rm", "-r", "e"]);
    fs(&scene, &["chmod", "4755", "d/run.sh"]).assert_refused(2, "SANDBOX_INVALID_POLICY", "octal");
    ok(&["chmod", "-x", "d/run.sh"]);
    fs(&scene, &["chmod", "+x", "/etc/hostname"]).assert_refused(3, "FS_SANDBOX_DENIED", "no writable root");
    let answer = fs(&scene, &["cp", "-r", "--deny-read", "**/run.sh", "d", "h"]);
    assert_eq!((answer.status, answer.err.as_str()), (Some(1), "pinfold: note: not copied: run.sh\n"));
    assert!(ws.join("h/link").is_symlink() && !ws.join("h/run.sh").exists());
}

/// Parts of a file that is larger than anything that is held.
#[test]
fn a_part_of_a_large_file_is_printed_without_the_rest() {
    let scene = Scene::new();
    let file = std::fs::File::create(scene.workspace().join("large")).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"needle", 4 << 30).unwrap();
    let at = (4_u64 << 30).to_string();
    fs(&scene, &["read", "--byte-offset", &at, "--byte-limit", "6", "large"]).assert_silent_success("needle");
    fs(&scene, &["read", "--byte-offset", &at, "large"]).assert_silent_success("needle");
    let json = fs(&scene, &["read", "--json", "--byte-offset", &at, "--byte-limit", "2", "large"]).out;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["text"], "ne");
    fs(&scene, &["read", "--max-bytes", "9", "large"]).assert_refused(1, "FS_TOO_LARGE", "limit of 9 bytes");
    assert_eq!(fs(&scene, &["read", "--json", "large"]).last_json()["code"], "FS_TOO_LARGE");
    fs(&scene, &["edit", "--old", "a", "--new", "b", "large"]).assert_refused(1, "FS_TOO_LARGE", "67108864 bytes");
    assert_eq!(fs(&scene, &["read", "--byte-limit", "1", "--limit", "1", "large"]).status, Some(2));
}

/// U488: without a mode of its own a call has the configured one.
#[test]
fn without_a_mode_the_configured_one_counts() {
    let scene = Scene::new();
    let config = scene.path("home/pinfold.toml");
    std::fs::write(&config, "mode = \"read-only\"\n").unwrap();
    let fs = |words: &[&str]| Answer::of(scene.pinfold().env("PINFOLD_CONFIG", &config).arg("fs").args(words));
    fs(&["write", "--content", "x", "f"]).assert_refused(3, "FS_SANDBOX_DENIED", "read-only");
    let wide = ["write", "--mode", "workspace-write", "--content", "x", "f"];
    assert_eq!(fs(&wide).status, Some(0), "one call");
    fs(&["write", "--content", "y", "f"]).assert_refused(3, "FS_SANDBOX_DENIED", "read-only");
}
