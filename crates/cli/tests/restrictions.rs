//! What `--network`, `--deny-read`, `--sockets` and `--env` close, and what is closed without them.

mod scene;

use scene::{Answer, Scene};
use std::os::unix::net::UnixListener;
use std::path::Path;

fn connect(path: &Path) -> String {
    format!(
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{}'); print('reached')\" 2>/dev/null",
        path.display()
    )
}

#[test]
fn sockets_are_closed_by_default_and_opened_by_name() {
    let scene = Scene::new();
    let socket = scene.path("outside/s");
    let _held = UnixListener::bind(&socket).unwrap();
    let script = connect(&socket);
    let out = |options: &[&str]| scene.script(options, &script).out;
    assert_eq!(out(&[]), "");
    assert_eq!(out(&["--sockets", "closed"]), "");
    assert_eq!(out(&["--sockets", "open"]), "reached\n");
    assert_eq!(out(&["--allow-socket", socket.to_str().unwrap()]), "reached\n");
    assert_eq!(out(&["--sockets", "closed", "--allow-socket", "../outside/s"]), "reached\n");
    assert_eq!(out(&["--mode", "danger-full-access"]), "reached\n");
    // A backend that cannot close them leaves them open only if nobody insisted, and the report says so.
    let answer = scene.script(&["--backend", "landlock", "--json"], &script);
    assert_eq!(answer.out, "reached\n", "{answer:?}");
    let notes = answer.last_json()["report"]["notes"].to_string();
    assert!(notes.contains("were to be closed where possible"), "{notes}");
    let answer = scene.run(["confine", "--backend", "landlock", "--", "true"]);
    assert!(answer.status == Some(0) && answer.err.starts_with("pinfold: note: "), "{answer:?}");
}

/// Binds sockets by names that do not stay, or are no absolute ones, and waits.
const BINDS: &str = "
import os, socket, sys
os.chdir(sys.argv[1])
held = [socket.socket(socket.AF_UNIX) for _ in range(4)]
for one, name in zip(held, ['relative', sys.argv[1] + '/line\\nbreak', sys.argv[1] + '/before', sys.argv[1] + '/twice']):
    one.bind(name); one.listen()
os.rename('before', 'moved')
os.link('twice', 'second')
print('bound', flush=True)
sys.stdin.read()";

#[test]
fn sockets_by_names_that_do_not_stay_are_closed_where_they_are_found_and_counted_where_not() {
    use std::io::{BufRead as _, BufReader};
    let scene = Scene::new();
    let outside = scene.folder("outside");
    let mut server = std::process::Command::new("python3");
    server.args(["-c", BINDS]).arg(&outside).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "bound\n");
    let script = format!(
        "python3 -c \"
import os, socket
os.chdir('{}')
for name in ('relative', 'line\\nbreak', 'moved', 'twice', 'second'):
    try: socket.socket(socket.AF_UNIX).connect(name); print('reached', end=' ')
    except OSError: print('closed', end=' ')\"",
        outside.display()
    );
    for backend in ["namespace", "bwrap"] {
        let open = scene.script(&["--backend", backend, "--sockets", "open"], &script);
        assert_eq!(open.out, "reached reached reached reached reached ", "{open:?}");
        let answer = scene.script(&["--backend", backend, "--json"], &script);
        assert_eq!(answer.out, "closed closed reached closed reached ", "{answer:?}");
        let json = answer.last_json();
        let lines = json["report"]["guarantees"].as_array().unwrap();
        let line = lines.iter().find(|line| line["guarantee"] == "sockets-unix").unwrap();
        let notes = line["notes"].to_string();
        assert!(line["strength"] == "partial" && notes.contains("/outside/twice"), "{notes}");
        let counted = notes.split("not hidden: ").nth(1).and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        assert!(counted.is_some_and(|count| count >= 1), "{notes}");
    }
    drop(server.stdin.take());
    server.wait().unwrap();
}

/// Sockets of the command's own: a multiplexer, the channel between node and its child, and one in the workspace.
#[test]
fn programs_talk_to_themselves_over_sockets() {
    let scene = Scene::new();
    let child = "process.on('message', m => { process.send(m + 1); process.disconnect(); });";
    std::fs::write(scene.path("workspace/child.js"), child).unwrap();
    let parent =
        "const c = require('child_process').fork('./child.js'); c.on('message', m => console.log(m)); c.send(41);";
    std::fs::write(scene.path("workspace/parent.js"), parent).unwrap();
    let own = "python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.bind('s'); s.listen(); \
               c = socket.socket(socket.AF_UNIX); c.connect('s'); print('reached'); import os; os.unlink('s')\"";
    let tmux =
        "tmux -L x -f /dev/null new-session -d 'sleep 60' && tmux -L x list-sessions | wc -l && tmux -L x kill-server";
    for (script, expected) in [(tmux, "1\n"), ("node parent.js", "42\n"), (own, "reached\n")] {
        for options in [
            &["--mode", "danger-full-access"][..],
            &["--backend", "namespace"],
            &["--backend", "bwrap"],
            &["--backend", "landlock"],
        ] {
            let mut command = scene.pinfold();
            command.arg("run").args(options).args(["--", "sh", "-c", script]).env("TERM", "xterm").env_remove("TMUX");
            // Without walls the server's socket must not lie among those of the developer.
            if options[1] == "danger-full-access" {
                command.env("TMUX_TMPDIR", scene.path("outside"));
            }
            let answer = Answer::of(&mut command);
            assert_eq!(answer.out, expected, "{options:?} {script}: {answer:?}");
        }
    }
}

#[test]
fn the_network_is_open_unless_it_is_closed() {
    let scene = Scene::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let script = format!(
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', {}), 3); print('reached')\" 2>/dev/null",
        server.local_addr().unwrap().port()
    );
    assert_eq!(scene.script(&[], &script).out, "reached\n");
    for network in ["private", "off"] {
        assert_eq!(scene.script(&["--network", network, "--require", "network"], &script).out, "", "{network}");
    }
    let answer = scene.script(&["--network", "private", "--backend", "landlock"], "echo ran");
    answer.assert_refused(2, "SANDBOX_UNSUPPORTED_POLICY", "cannot give a network of its own");
}

impl Scene {
    /// A file below the scene with the word `secret` in it.
    fn secret(&self, name: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "secret").unwrap();
    }

    /// What a command reads of a file.
    fn read(&self, options: &[&str], name: &str) -> String {
        self.script(options, &format!("cat '{}' 2>/dev/null || echo refused", self.path(name).display())).out
    }
}

#[test]
fn secrets_of_the_home_directory_are_closed_by_default_and_opened_by_name() {
    let scene = Scene::new();
    let closed = [".ssh/id", ".netrc", ".gnupg/private-keys-v1.d/x", ".aws/credentials", ".mozilla/p/logins.json"];
    let open =
        [".ssh/config", ".ssh/known_hosts", ".ssh/id.pub", ".gnupg/pubring.kbx", ".gitconfig", ".npmrc", ".bashrc"];
    for name in closed.iter().chain(&open) {
        scene.secret(&format!("home/{name}"));
    }
    for backend in [&[][..], &["--backend", "namespace"], &["--backend", "bwrap"]] {
        for name in closed {
            let name = format!("home/{name}");
            assert_eq!(scene.read(&[backend, &["--allow-secrets"]].concat(), &name), "secret", "{name}");
            assert_eq!(scene.read(backend, &name), "refused\n", "{name} {backend:?}");
            assert_eq!(scene.read(&[backend, &["--mode", "read-only"]].concat(), &name), "refused\n", "{name}");
        }
        for name in open {
            assert_eq!(scene.read(backend, &format!("home/{name}")), "secret", "{name} {backend:?}");
        }
    }
    for (options, name, expected) in [
        (&["--allow-read", "../home/.netrc"][..], ".netrc", "secret"),
        (&["--allow-read", "../home/.netrc"], ".aws/credentials", "refused\n"),
        (&["--allow-read", "~/.aws"], ".aws/credentials", "secret"),
        (&["--allow-read", "~/.ssh/id"], ".ssh/id", "secret"),
        (&["--allow-read", "~/.ssh/id"], ".ssh/config", "secret"),
        (&["--allow-read", "~/.ssh/none"], ".ssh/id", "refused\n"),
        (&["--allow-read", "~/.bashrc"], ".bashrc", "secret"),
        (&["--mode", "danger-full-access"], ".netrc", "secret"),
        (&["--deny-secrets"], ".netrc", "refused\n"),
    ] {
        assert_eq!(scene.read(options, &format!("home/{name}")), expected, "{options:?} {name}");
    }
    // With a token in it, a file of settings is a secret.
    std::fs::write(scene.path("home/.npmrc"), "//registry/:_authToken=secret").unwrap();
    assert_eq!(scene.read(&[], "home/.npmrc"), "refused\n");
    let explain = scene.run(["explain", "--operation", "read", "../home/.ssh/id"]);
    assert!(explain.out.starts_with("refused: read") && explain.out.contains("denied path"), "{explain:?}");
    let explain = scene.run(["explain", "--operation", "read", "../home/.ssh/config"]);
    assert!(explain.out.starts_with("not governed: read"), "{explain:?}");
    let explain = scene.run(["explain"]);
    assert!(explain.out.contains("/home/.ssh") && explain.out.contains("/home/.netrc"), "{explain:?}");
}

/// The workspace lies in the home directory, and a command closes the directory in which a secret lies.
#[test]
fn a_secret_behind_a_directory_that_a_command_closed_stays_closed() {
    let scene = Scene::new();
    scene.secret("home/.cache/huggingface/token");
    let open = "chmod 700 huggingface 2>/dev/null; cat huggingface/token 2>/dev/null || echo refused";
    let run = |options: &[&str], script: &str| {
        let mut command = scene.pinfold();
        command.current_dir(scene.path("home/.cache")).arg("run").args(options);
        Answer::of(command.args(["--workspace", ".", "--", "sh", "-c", script])).out
    };
    for backend in ["namespace", "bwrap"] {
        assert_eq!(run(&["--backend", backend], "chmod 0 huggingface && echo done"), "done\n");
        assert_eq!(run(&["--backend", backend], open), "refused\n", "{backend}");
        assert_eq!(run(&["--backend", backend, "--allow-secrets"], open), "secret", "{backend}");
    }
}

#[test]
fn cargo_builds_where_its_credentials_are_closed() {
    let scene = Scene::new();
    scene.secret("home/.cargo/credentials.toml");
    std::fs::write(scene.path("home/.cargo/credentials.toml"), "[registry]\ntoken = \"x\"\n").unwrap();
    scene.folder("workspace/src");
    std::fs::write(scene.path("workspace/src/main.rs"), "fn main() { println!(\"ran\") }").unwrap();
    let manifest = "[package]\nname = \"one\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    std::fs::write(scene.path("workspace/Cargo.toml"), manifest).unwrap();
    let cargo = Path::new(env!("CARGO"));
    let script = format!(
        "cat ../home/.cargo/credentials.toml > /dev/null 2>&1 || echo refused; {} run -q --offline --target-dir target",
        cargo.display()
    );
    let run = |options: &[&str]| {
        let mut command = scene.pinfold();
        command.arg("run").args(options).args(["--", "sh", "-c", &script]);
        Answer::of(command.env("RUSTC", cargo.with_file_name("rustc")).env("CARGO_HOME", scene.path("home/.cargo")))
    };
    assert_eq!(run(&["--allow-secrets"]).out, "ran\n");
    for backend in ["namespace", "bwrap"] {
        let answer = run(&["--backend", backend]);
        assert_eq!(answer.out, "refused\nran\n", "{answer:?}");
    }
}

#[test]
fn landlock_leaves_secrets_open_with_a_note_unless_somebody_insists() {
    let scene = Scene::new();
    scene.secret("home/.netrc");
    let landlock = ["--backend", "landlock"];
    assert_eq!(scene.read(&landlock, "home/.netrc"), "secret");
    scene.script(&landlock, "echo ran").assert_silent_success("ran\n");
    let report = scene.script(&[&landlock[..], &["--json"]].concat(), "true").last_json()["report"].to_string();
    assert!(report.contains("were to be closed for reading where possible"), "{report}");
    for insists in [&["--deny-secrets"][..], &["--deny-read", "../home/.netrc"]] {
        let answer = scene.script(&[&landlock[..], insists].concat(), "echo ran");
        answer.assert_refused(2, "SANDBOX_UNSUPPORTED_POLICY", "cannot close paths for reading");
    }
    let confined = scene.run(["confine", "--backend", "landlock", "--", "true"]);
    assert!(confined.status == Some(0) && confined.err.contains("note: backend linux_landlock cannot close secrets"));
}

#[test]
fn a_place_in_which_the_command_works_is_not_closed_by_default() {
    let scene = Scene::new();
    scene.secret("home/.password-store/x/key");
    let store = scene.path("home/.password-store");
    let store = store.to_str().unwrap();
    let answer = scene.script(&["--workspace", store, "--cwd", store, "--json"], "cat x/key");
    assert_eq!(answer.out, "secret", "{answer:?}");
    let notes = answer.last_json()["report"]["notes"].to_string();
    assert!(notes.contains("The command works in"), "{notes}");
    let answer = scene.script(&["--workspace", store, "--cwd", store, "--deny-secrets"], "cat x/key");
    answer.assert_refused(2, "SANDBOX_INVALID_POLICY", "would hide the workspace");
}

#[test]
// Case B061.
fn denied_paths_and_patterns_cannot_be_read() {
    let scene = Scene::new();
    for name in ["outside/key", "outside/a.pem", "workspace/d/.env", "workspace/[id].ts", "home/notes/x"] {
        scene.secret(name);
    }
    for (name, option) in [
        ("outside/key", "../outside"),
        ("outside/a.pem", "../outside/*.pem"),
        ("workspace/d/.env", "**/.env"),
        ("workspace/d/.env", "./{d,e}/.en?"),
        ("home/notes/x", "~/notes/**"),
        // A file of exactly this name is meant as well.
        ("workspace/[id].ts", "[id].ts"),
    ] {
        assert_eq!(scene.read(&[], name), "secret", "{name}");
        assert_eq!(scene.read(&["--deny-read", option], name), "refused\n", "{option}");
    }
    for (option, words) in [
        ("../*", "would hide the workspace"),
        ("a[b", "has a `[` without a `]`"),
        ("a/../b", "holds `..`"),
        ("~root/x", "begins with `~` and a name"),
        ("", "--deny-read is empty"),
    ] {
        let answer = scene.script(&["--deny-read", option], "echo ran");
        answer.assert_refused(2, "SANDBOX_INVALID_POLICY", words);
    }
    let answer = scene.script(&["--deny-read", "../outside", "--allow-read", "../outside"], "echo ran");
    answer.assert_refused(2, "SANDBOX_INVALID_POLICY", "both denied and allowed");
    let answer = scene.script(&["--deny-secrets", "--allow-secrets"], "echo ran");
    answer.assert_refused(2, "SANDBOX_INVALID_POLICY", "contradict each other");
}

/// A file system that is mounted elsewhere as well gives a denied path another name.
#[test]
fn a_denied_path_is_closed_by_the_names_that_mounts_give_it() {
    let scene = Scene::new();
    scene.secret("home/notes/deep/x");
    scene.secret("home/key");
    for folder in ["outside/all", "outside/part"] {
        scene.folder(folder);
    }
    let base = scene.path("").display().to_string();
    let run = |options: &str, name: &str| {
        let script = format!(
            "mount --bind {base}/home {base}/outside/all; mount --bind {base}/home/notes/deep {base}/outside/part; \
             exec {} run --backend namespace {options} -- sh -c 'cat {base}/{name} 2>/dev/null || echo refused'",
            scene::program().display()
        );
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-euc", &script]).current_dir(scene.workspace());
        let answer = Answer::of(command.env("HOME", scene.path("home")));
        assert_eq!(answer.status, Some(0), "{answer:?}");
        answer.out
    };
    for name in ["outside/all/notes/deep/x", "outside/part/x", "outside/all/key", "home/notes/deep/x"] {
        assert_eq!(run("", name), "secret", "{name}");
        assert_eq!(run("--deny-read ~/notes --deny-read ~/key", name), "refused\n", "{name}");
    }
    // What is denied by its other name is denied by its first.
    assert_eq!(run(&format!("--deny-read {base}/outside/part"), "home/notes/deep/x"), "refused\n");
}

/// A directory of another user that an access list opens to root: what is denied in it is covered. Root looks past
/// permissions out here and does not inside, so it has to be known what the list does.
#[test]
fn what_is_denied_behind_an_access_list_stays_closed() {
    let scene = Scene::new();
    let theirs = scene.folder("outside/theirs");
    let key = theirs.join("key");
    std::fs::write(&key, "secret\n").unwrap();
    if std::os::unix::fs::chown(&theirs, Some(4321), None).is_err() {
        // An ordinary user looks as the command does.
        return;
    }
    std::fs::set_permissions(&theirs, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    // u::rwx, u:0:r-x, g::---, m::r-x, o::--- (linux/posix_acl_xattr.h).
    let open = "import os, struct, sys
entries = [(1, 7, 2**32 - 1), (2, 5, 0), (4, 0, 2**32 - 1), (0x10, 5, 2**32 - 1), (0x20, 0, 2**32 - 1)]
list = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *entry) for entry in entries)
os.setxattr(sys.argv[1], 'system.posix_acl_access', list)";
    let read = format!("cat {} 2>/dev/null || echo refused", key.display());
    let denied = ["--deny-read", key.to_str().unwrap()];
    for backend in ["namespace", "bwrap"] {
        let run = |options: &[&str]| scene.script(&[&["--backend", backend], options].concat(), &read).out;
        assert_eq!(run(&[]), "refused\n", "{backend}");
        let set = std::process::Command::new("python3").args(["-c", open]).arg(&theirs).status().unwrap();
        assert!(set.success(), "this file system has no access lists");
        assert_eq!((run(&[]), run(&denied)), ("secret\n".to_owned(), "refused\n".to_owned()), "{backend}");
        std::fs::set_permissions(&theirs, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }
}

#[test]
fn sockets_have_names() {
    let scene = Scene::new();
    scene.folder("home/.ssh/agent");
    let socket = scene.path("home/.ssh/agent/s.1");
    let _held = UnixListener::bind(&socket).unwrap();
    let script = connect(&socket);
    let run = |options: &[&str]| {
        let mut command = scene.pinfold();
        command.arg("run").args(options).args(["--", "sh", "-c", &script]);
        Answer::of(command.env("SSH_AUTH_SOCK", &socket))
    };
    assert_eq!(run(&[]).out, "");
    for backend in ["namespace", "bwrap"] {
        let answer = run(&["--allow-socket", "ssh-agent", "--backend", backend]);
        assert_eq!(answer.out, "reached\n", "{answer:?}");
    }
    run(&["--allow-socket", "agent"]).assert_refused(
        2,
        "SANDBOX_INVALID_POLICY",
        "neither a path nor one of: ssh-agent",
    );
    let answer = scene.run(["run", "--allow-socket", "tmux", "--", "true"]);
    answer.assert_refused(2, "SANDBOX_INVALID_POLICY", "none is found; looked at $TMUX");
}

#[test]
fn variables_are_inherited_unless_they_are_scrubbed() {
    let scene = Scene::new();
    let of = |options: &[&str]| {
        let mut command = scene.pinfold();
        command.arg("run").args(options).args(["--", "sh", "-c", "echo $GH_TOKEN $PLAIN"]);
        Answer::of(command.env("GH_TOKEN", "token").env("PLAIN", "plain"))
    };
    of(&[]).assert_silent_success("token plain\n");
    of(&["--env", "scrub"]).assert_silent_success("plain\n");
    of(&["--env", "scrub", "--keep-env", "GH_TOKEN"]).assert_silent_success("token plain\n");
    let answer = of(&["--env", "scrub", "--json"]);
    let notes = answer.last_json()["report"]["notes"].to_string();
    assert!(notes.contains("GH_TOKEN") && !answer.err.contains("token plain"), "{notes}");
}
