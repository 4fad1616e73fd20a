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

#[test]
fn denied_paths_and_secrets_of_the_home_directory_cannot_be_read() {
    let scene = Scene::new();
    for (folder, file) in [("home/.ssh", "home/.ssh/id"), ("home", "home/.netrc"), ("outside", "outside/key")] {
        scene.folder(folder);
        std::fs::write(scene.path(file), "secret").unwrap();
    }
    let read = |options: &[&str], file: &str| {
        scene.script(options, &format!("cat '{}' 2>/dev/null || echo refused", scene.path(file).display())).out
    };
    for (file, option) in [
        ("home/.ssh/id", &["--deny-secrets"][..]),
        ("home/.netrc", &["--deny-secrets"]),
        ("outside/key", &["--deny-read", "../outside"]),
    ] {
        assert_eq!(read(&[], file), "secret", "{file}");
        assert_eq!(read(option, file), "refused\n", "{file}");
    }
    let explain = scene.run(["explain", "--deny-secrets", "--operation", "read", "../home/.ssh/id"]);
    assert!(explain.out.starts_with("refused: read") && explain.out.contains("denied path"), "{explain:?}");
    let explain = scene.run(["explain", "--deny-secrets"]);
    assert!(explain.out.contains("/home/.ssh") && explain.out.contains("/home/.netrc"), "{explain:?}");
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
