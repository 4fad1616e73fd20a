//! What a call closes beyond its mode: network, denied reads, sockets, variables, and roots that stay where they are.
//! Each refusal has its control without the restriction.
//!
//! Needs what `linux.rs` needs, and Python for sockets.

#![cfg(target_os = "linux")]

use pinfold_policy::{
    ErrorCode, ExecutionPolicy, Guarantee, Network, Restrictions, SandboxError, SandboxMode, Sockets, Strength,
    Variables, Verdict,
};
use pinfold_providers::{
    Backend, CallOptions, Cancel, EnvChange, Insistence, LocalProvider, Operation, ProviderConfig, Question, Ruling,
    RunOptions, RunResult, Stream,
};
use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[path = "../ground/mod.rs"]
mod ground;
mod planted;
mod reads;

const WITH_MOUNTS: [Backend; 2] = [Backend::Namespace, Backend::Bwrap];

struct World {
    base: tempfile::TempDir,
    provider: LocalProvider,
    root: PathBuf,
}

impl World {
    fn new() -> Self {
        Self::with_chain(None)
    }

    fn with_chain(chain: Option<Vec<Backend>>) -> Self {
        let base = ground::directory();
        for name in ["ws", "out", "runtime"] {
            std::fs::create_dir(base.path().join(name)).unwrap();
        }
        std::fs::set_permissions(base.path().join("runtime"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let config = ProviderConfig {
            launcher: Some(ground::launcher()),
            runtime_dir: Some(base.path().join("runtime")),
            chain,
            ..ProviderConfig::default()
        };
        let root = base.path().canonicalize().unwrap();
        Self { provider: LocalProvider::new(config).unwrap(), base, root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn policy(&self, mode: SandboxMode) -> ExecutionPolicy {
        ExecutionPolicy::new(mode, self.base.path().join("ws"))
    }

    fn options(&self, backend: Backend, restrictions: &Restrictions) -> CallOptions {
        CallOptions {
            backend: Some(backend),
            cwd: Some(self.path("ws")),
            restrictions: restrictions.clone(),
            ..CallOptions::default()
        }
    }

    fn try_run(&self, backend: Backend, restrictions: &Restrictions, script: &str) -> Result<RunResult, SandboxError> {
        let policy = self.policy(SandboxMode::WorkspaceWrite);
        let options = self.options(backend, restrictions);
        self.provider.run(&shell(script), &policy, &options, &capture(), &Cancel::new())
    }

    /// Standard output of a script.
    fn say(&self, backend: Backend, restrictions: &Restrictions, script: &str) -> String {
        let result = self.try_run(backend, restrictions, script).unwrap();
        assert!(result.outcome.ran(), "{backend}: {result:?}");
        text(&result.stdout.bytes)
    }

    /// The same without any confinement.
    fn control(&self, script: &str) -> String {
        let output = std::process::Command::new("/bin/sh").args(["-c", script]).current_dir(self.path("ws")).output();
        text(&output.unwrap().stdout)
    }
}

fn shell(script: &str) -> Vec<OsString> {
    ["/bin/sh", "-c", script].map(OsString::from).into()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn capture() -> RunOptions {
    let capture = Stream::Capture { limit: 1 << 20 };
    let timeout = Some(Duration::from_secs(30));
    RunOptions { stdin: Stream::Null, stdout: capture, stderr: capture, timeout, ..RunOptions::default() }
}

fn network(network: Network) -> Restrictions {
    Restrictions { network, ..Restrictions::default() }
}

fn denying(paths: &[PathBuf]) -> Restrictions {
    Restrictions { denied_reads: paths.to_vec(), ..Restrictions::default() }
}

fn closed(allowed: &[&Path]) -> Restrictions {
    Restrictions {
        sockets: Sockets::Closed,
        allowed_sockets: allowed.iter().map(PathBuf::from).collect(),
        ..Restrictions::default()
    }
}

/// A script that connects to a unix socket and prints `reached` or the name of the error.
fn connect(path: &Path) -> String {
    format!(
        "python3 -c \"\nimport socket, sys\ns = socket.socket(socket.AF_UNIX)\ntry:\n  s.connect('{}')\n  print('reached')\n\
         except OSError as error:\n  print(type(error).__name__)\n\"",
        path.display()
    )
}

#[test]
fn a_server_outside_is_out_of_reach_and_one_inside_works() {
    let world = World::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let script = format!(
        "python3 -c \"\nimport socket\ntry:\n  socket.create_connection(('127.0.0.1', {}), 3)\n  print('reached')\n\
         except OSError as error:\n  print('refused')\n\"",
        server.local_addr().unwrap().port()
    );
    let own = "python3 -c \"\nimport socket\ns = socket.create_server(('127.0.0.1', 0))\n\
               c = socket.create_connection(s.getsockname(), 3)\ns.accept()\nprint('reached')\n\"";
    assert_eq!(world.control(&script), "reached");
    for (backend, closed, layer) in [
        (Backend::Namespace, Network::Private, "namespace"),
        (Backend::Namespace, Network::Off, "seccomp"),
        (Backend::Bwrap, Network::Private, "bubblewrap"),
        (Backend::Bwrap, Network::Off, "seccomp"),
        (Backend::Landlock, Network::Off, "seccomp"),
    ] {
        assert_eq!(world.say(backend, &network(Network::Open), &script), "reached", "{backend}");
        let result = world.try_run(backend, &network(closed), &script).unwrap();
        let said = text(&result.stdout.bytes);
        assert!(said == "refused" || said.is_empty(), "{backend} {closed}: {result:?}");
        let report = result.outcome.report().unwrap();
        let line = report.lookup(Guarantee::Network).unwrap();
        assert_eq!((line.strength, line.verified), (Strength::Enforced, true), "{backend}");
        assert!(line.layers.iter().any(|found| found.as_str() == layer), "{backend}: {line:?}");
        let expected = if closed == Network::Private { "reached" } else { "" };
        assert_eq!(world.say(backend, &network(closed), own), expected, "{backend} {closed}");
        // What is closed can be required as well.
        let mut options = world.options(backend, &network(closed));
        options.require = vec![Guarantee::Network];
        let policy = world.policy(SandboxMode::ReadOnly);
        assert!(world.provider.run(&shell("true"), &policy, &options, &capture(), &Cancel::new()).is_ok());
    }
}

#[test]
fn what_a_mechanism_cannot_close_it_is_not_used_for() {
    let world = World::new();
    std::fs::write(world.path("out/key"), "secret").unwrap();
    let several = [network(Network::Private), denying(&[world.path("out/key")]), closed(&[])];
    for restrictions in &several {
        let error = world.try_run(Backend::Landlock, restrictions, "echo ran").unwrap_err();
        assert_eq!(error.code(), ErrorCode::UnsupportedPolicy, "{error}");
        let error = world.provider.explain(
            &Question {
                path: "/x".into(),
                operation: Operation::Read,
                policy: world.policy(SandboxMode::ReadOnly).confined().unwrap(),
            },
            &world.options(Backend::Landlock, restrictions),
        );
        assert_eq!(error.unwrap_err().code(), ErrorCode::UnsupportedPolicy);
    }
    let full = world.policy(SandboxMode::DangerFullAccess);
    for restrictions in several {
        let options = CallOptions { restrictions, ..CallOptions::default() };
        let error = world.provider.run(&shell("true"), &full, &options, &capture(), &Cancel::new()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::UnsupportedPolicy, "{error}");
    }
    // The chain goes on to one that can.
    let world = World::with_chain(Some(vec![Backend::Landlock, Backend::Namespace]));
    let options =
        CallOptions { cwd: Some(world.path("ws")), restrictions: network(Network::Private), ..CallOptions::default() };
    let policy = world.policy(SandboxMode::ReadOnly);
    let result = world.provider.run(&shell("true"), &policy, &options, &capture(), &Cancel::new()).unwrap();
    let report = result.outcome.report().unwrap();
    assert_eq!(report.backend(), "linux_namespace");
    assert!(report.facts().notes.iter().any(|note| note.contains("linux_landlock was passed over")), "{report:?}");
}

#[test]
// Case B118.
fn a_denied_path_cannot_be_read_by_any_name() {
    let world = World::new();
    std::fs::create_dir_all(world.path("out/dir/below")).unwrap();
    std::fs::create_dir_all(world.path("ws/sub")).unwrap();
    for name in ["out/key", "out/dir/below/key", "ws/sub/key"] {
        std::fs::write(world.path(name), "secret").unwrap();
    }
    symlink(world.path("out/key"), world.path("out/link")).unwrap();
    symlink(world.path("out/dir"), world.path("ws/link")).unwrap();
    // The file by way of a link to it.
    let denied = denying(&[world.path("out/link"), world.path("out/dir"), world.path("ws/sub/key")]);
    let base = world.root.display().to_string();
    for backend in WITH_MOUNTS {
        for name in [
            format!("{base}/out/key"),
            format!("{base}/out/link"),
            format!("{base}/out/dir/below/key"),
            format!("{base}/ws/link/below/key"),
            format!("/proc/self/root{base}/out/key"),
            format!("/proc/self/root{base}/out/dir/below/key"),
            format!("{base}/ws/sub/key"),
        ] {
            let script = format!("cat '{name}' 2>/dev/null || echo refused");
            assert_eq!(world.control(&script), "secret", "{name}");
            assert_eq!(world.say(backend, &Restrictions::default(), &script), "secret", "{backend} {name}");
            assert_eq!(world.say(backend, &denied, &script), "refused", "{backend} {name}");
        }
        // It is no more writable than readable, and stays where it is; so does what leads to it.
        for act in [
            "mv sub/key moved",
            "mv sub moved",
            "rm -f sub/key",
            "ln sub/key moved",
            "echo x > sub/key",
            "chmod 644 sub/key",
        ] {
            let script = format!("{act} 2>/dev/null && echo done || echo refused");
            assert_eq!(world.say(backend, &denied, &script), "refused", "{backend} {act}");
        }
        assert_eq!(std::fs::read_to_string(world.path("ws/sub/key")).unwrap(), "secret", "{backend}");
        let busy = "mv sub/key sub/moved 2>&1; mv sub moved 2>&1";
        assert_eq!(world.say(backend, &denied, busy).matches("busy").count(), 2, "{backend}");
        assert_eq!(
            world.say(backend, &denied, "ls -A ../out/dir 2>/dev/null; echo x > ../ws/sub/other && cat sub/other"),
            "x"
        );

        let report = world.try_run(backend, &denied, "true").unwrap().outcome.report().unwrap().clone();
        assert_eq!(report.strength(Guarantee::ReadDeny), Strength::Partial, "single files: {report:?}");
        let denied = denying(&[world.path("out/dir")]);
        let report = world.try_run(backend, &denied, "true").unwrap().outcome.report().unwrap().clone();
        assert_eq!(report.strength(Guarantee::ReadDeny), Strength::Enforced, "{report:?}");
    }
    assert_eq!(world.control("mv sub/key moved && mv moved sub/key && echo done"), "done");
}

#[test]
fn a_file_that_appears_later_in_a_denied_directory_cannot_be_read() {
    for (target, expected) in [("out/dir/later", "refused"), ("out/later", "secret")] {
        for backend in WITH_MOUNTS {
            let world = World::new();
            std::fs::create_dir(world.path("out/dir")).unwrap();
            let denied = denying(&[world.path("out/dir"), world.path("out/later")]);
            let path = world.path(target);
            let script = format!(
                "touch ready; i=0; while [ ! -e go ] && [ $i -lt 500 ]; do sleep 0.01; i=$((i+1)); done; \
                 cat '{}' 2>/dev/null || echo refused",
                path.display()
            );
            let result = std::thread::scope(|scope| {
                let running = scope.spawn(|| world.try_run(backend, &denied, &script).unwrap());
                while !world.path("ws/ready").exists() && !running.is_finished() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                std::fs::write(&path, "secret").unwrap();
                std::fs::write(world.path("ws/go"), "").unwrap();
                running.join().unwrap()
            });
            assert_eq!(text(&result.stdout.bytes), expected, "{backend} {target}");
            // What was not there to be covered is named.
            let report = result.outcome.report().unwrap();
            let line = report.lookup(Guarantee::ReadDeny).unwrap();
            assert_eq!(line.strength, Strength::Partial);
            let place = world.path("out/later").display().to_string();
            assert!(line.notes.iter().any(|note| note.contains("once it exists") && note.contains(&place)), "{line:?}");
        }
    }
}

#[test]
fn a_denied_path_that_a_command_needs_is_refused_by_name() {
    let world = World::new();
    for (path, words) in [
        (world.path("ws"), "the workspace"),
        (world.root.clone(), "the workspace"),
        ("/usr".into(), "every command needs"),
        ("/tmp".into(), "a temp directory"),
        ("/proc/1".into(), "lies in /proc"),
        ("relative".into(), "not an absolute path"),
    ] {
        let error = world.try_run(Backend::Namespace, &denying(std::slice::from_ref(&path)), "true").unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidPolicy, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn sockets_outside_are_closed_and_own_and_allowed_ones_work() {
    let world = World::new();
    let outside = world.path("out/so cket");
    let other = world.path("out/other");
    let _held = [UnixListener::bind(&outside).unwrap(), UnixListener::bind(&other).unwrap()];
    assert_eq!(world.control(&connect(&outside)), "reached");
    let own = |place: &str| {
        format!(
            "python3 -c \"\nimport os, socket\nplace = os.path.join('{place}' or os.environ['TMPDIR'], 's')\n\
             s = socket.socket(socket.AF_UNIX)\ns.bind(place)\ns.listen()\nc = socket.socket(socket.AF_UNIX)\n\
             c.connect(place)\ns.accept()\nos.unlink(place)\na, b = socket.socketpair()\nprint('reached')\n\""
        )
    };
    let in_workspace = world.path("ws/held");
    let _inside = UnixListener::bind(&in_workspace).unwrap();
    for backend in WITH_MOUNTS {
        assert_eq!(world.say(backend, &Restrictions::default(), &connect(&outside)), "reached", "{backend}");
        let said = world.say(backend, &closed(&[]), &connect(&outside));
        assert!(["PermissionError", "ConnectionRefusedError"].contains(&said.as_str()), "{backend}: {said}");
        assert_eq!(world.say(backend, &closed(&[&outside]), &connect(&outside)), "reached", "{backend}");
        let said = world.say(backend, &closed(&[&outside]), &connect(&other));
        assert_ne!(said, "reached", "{backend}");
        for place in ["", "."] {
            assert_eq!(world.say(backend, &closed(&[]), &own(place)), "reached", "{backend} {place:?}");
        }
        assert_eq!(world.say(backend, &closed(&[]), &connect(&in_workspace)), "reached", "{backend}");
        let result = world.try_run(backend, &closed(&[]), "true").unwrap();
        assert_eq!(result.outcome.report().unwrap().strength(Guarantee::SocketsUnix), Strength::Partial);
        // Nothing is writable, and /tmp is the host's.
        let in_temp = tempfile::tempdir_in("/tmp").unwrap();
        let socket = in_temp.path().join("s");
        let _held = UnixListener::bind(&socket).unwrap();
        let read_only = world.policy(SandboxMode::ReadOnly);
        for (restrictions, expected) in [(Restrictions::default(), true), (closed(&[]), false)] {
            let options = world.options(backend, &restrictions);
            let argv = shell(&connect(&socket));
            let result = world.provider.run(&argv, &read_only, &options, &capture(), &Cancel::new()).unwrap();
            assert_eq!(text(&result.stdout.bytes) == "reached", expected, "{backend}: {result:?}");
        }
        // One that a private temp directory would hide is shown if it is allowed.
        assert_ne!(world.say(backend, &closed(&[]), &connect(&socket)), "reached", "{backend}");
        assert_eq!(world.say(backend, &closed(&[&socket]), &connect(&socket)), "reached", "{backend}");
    }
    // Where it is a wish, it is left out and said so.
    let mut options = world.options(Backend::Landlock, &closed(&[]));
    options.sockets = Insistence::WherePossible;
    let policy = world.policy(SandboxMode::WorkspaceWrite);
    let argv = shell(&connect(&outside));
    let result = world.provider.run(&argv, &policy, &options, &capture(), &Cancel::new()).unwrap();
    assert_eq!(text(&result.stdout.bytes), "reached");
    let notes = &result.outcome.report().unwrap().facts().notes;
    assert!(notes.iter().any(|note| note.contains("they are open")), "{notes:?}");
}

#[test]
// Case B057.
fn variables_of_credentials_are_gone_and_kept_ones_stay() {
    let world = World::new();
    let token = format!("ghp_{}", "a1".repeat(18));
    let scrub = |kept: &[&str]| Restrictions {
        variables: Variables::Scrub,
        kept_variables: kept.iter().map(|name| (*name).to_owned()).collect(),
        ..Restrictions::default()
    };
    let mut run = capture();
    for (name, value) in [("GH_TOKEN", "x"), ("NPM_TOKEN", "x"), ("REMOTE", token.as_str()), ("PLAIN", "x")] {
        run.env.push(EnvChange::Set(name.into(), value.into()));
    }
    let script = shell("env | grep -E '^(GH_TOKEN|NPM_TOKEN|REMOTE|PLAIN)=' | cut -d= -f1 | sort | tr '\\n' ' '");
    for backend in [Backend::Namespace, Backend::Bwrap, Backend::Landlock, Backend::Unconfined] {
        let mode =
            if backend == Backend::Unconfined { SandboxMode::DangerFullAccess } else { SandboxMode::WorkspaceWrite };
        let of = |restrictions: &Restrictions| {
            let options = world.options(backend, restrictions);
            world.provider.run(&script, &world.policy(mode), &options, &run, &Cancel::new()).unwrap()
        };
        let names = |result: &RunResult| text(&result.stdout.bytes);
        assert_eq!(names(&of(&Restrictions::default())), "GH_TOKEN NPM_TOKEN PLAIN REMOTE", "{backend}");
        let result = of(&scrub(&["NPM_TOKEN"]));
        assert_eq!(names(&result), "NPM_TOKEN PLAIN", "{backend}");
        let report = whole_report(&result);
        assert!(report.contains("GH_TOKEN") && report.contains("REMOTE") && !report.contains(&token), "{report}");
    }
    // Where somebody else starts the command, the launcher removes by name.
    let policy = world.policy(SandboxMode::WorkspaceWrite).confined().unwrap();
    for backend in [Backend::Namespace, Backend::Bwrap, Backend::Landlock] {
        let options = world.options(backend, &scrub(&[]));
        let confinement = world.provider.confine(&script, &policy, &options, &Cancel::new()).unwrap();
        let argv = &confinement.confined.argv;
        let mut command = std::process::Command::new(&argv[0]);
        command.args(&argv[1..]).env("GH_TOKEN", "x").env("PLAIN", "x");
        assert_eq!(text(&command.output().unwrap().stdout), "PLAIN", "{backend}");
        let options = world.options(backend, &scrub(&["GH_TOKEN"]));
        let error = world.provider.confine(&script, &policy, &options, &Cancel::new()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::UnsupportedPolicy, "{error}");
    }
}

/// Everything that a report says.
fn whole_report(result: &RunResult) -> String {
    format!("{:?}", result.outcome.report().unwrap())
}

#[test]
fn a_root_inside_a_root_and_what_leads_to_it_stay_where_they_are() {
    let world = World::new();
    std::fs::create_dir_all(world.path("ws/a/b/root")).unwrap();
    let mut policy = world.policy(SandboxMode::WorkspaceWrite);
    policy.additional_writable_roots = vec![world.path("ws/a/b/root")];
    let say = |backend, script: &str| {
        let options = world.options(backend, &Restrictions::default());
        world.provider.run(&shell(script), &policy, &options, &capture(), &Cancel::new()).unwrap()
    };
    let there_and_back = |path: &str| format!("mv {path} moved && mv moved {path} && echo done");
    for path in ["a", "a/b", "a/b/root"] {
        assert_eq!(world.control(&there_and_back(path)), "done");
        for backend in WITH_MOUNTS {
            let result = say(backend, &there_and_back(path));
            assert_eq!(result.outcome.verdict(), Verdict::Failed, "{backend} {path}: {result:?}");
            assert!(text(&result.stderr.bytes).contains("busy"), "{backend} {path}: {result:?}");
            let result = say(backend, &format!("rm -rf {path}; test -d a/b/root && echo there"));
            assert_eq!(text(&result.stdout.bytes), "there", "{backend} {path}");
        }
    }
    for backend in WITH_MOUNTS {
        let result =
            say(backend, "echo x > a/new && echo x > a/b/root/new && mkdir a/b/c && rm -r a/new a/b/root/new a/b/c");
        assert_eq!(result.outcome.verdict(), Verdict::Completed, "{backend}: {result:?}");
    }
    let result = say(Backend::Landlock, "true");
    let notes = &result.outcome.report().unwrap().facts().notes;
    assert!(notes.iter().any(|note| note.contains("can be renamed")), "{notes:?}");
}

#[test]
fn an_explanation_follows_the_same_walls() {
    let world = World::new();
    std::fs::create_dir(world.path("out/dir")).unwrap();
    let _held = UnixListener::bind(world.path("out/socket")).unwrap();
    let restrictions = Restrictions { denied_reads: vec![world.path("out/dir")], ..closed(&[]) };
    for backend in WITH_MOUNTS {
        for (name, operation, expected) in [
            ("out/dir/x", Operation::Read, Ruling::Denied),
            ("out/x", Operation::Read, Ruling::NotGoverned),
            ("out/socket", Operation::Connect, Ruling::Denied),
            ("ws/socket", Operation::Connect, Ruling::Allowed),
        ] {
            let policy = world.policy(SandboxMode::WorkspaceWrite).confined().unwrap();
            let question = Question { path: world.path(name), operation, policy };
            let answer = world.provider.explain(&question, &world.options(backend, &restrictions)).unwrap();
            assert_eq!(answer.ruling, expected, "{backend} {name}: {}", answer.rule);
        }
    }
}
