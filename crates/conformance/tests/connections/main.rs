//! Unix sockets outside while the broker stands before a call (`--protect`): closed by every way to them, and sockets of the
//! command's own work as without walls (field case B045; weaknesses W07, W11).
//!
//! Tests are called `BACKEND/UID/CLAIM`. `outside.py` listens outside and writes down who was reached; `attack.py` tries every
//! way, and without walls each succeeds; `race.py` changes names, memory, directories and descriptors under the look; `own.py` is
//! what programs do with sockets of their own.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::start::{Backend, Mode, uids};
use pinfold_conformance::walls::{Walls, expect, expect_equal, text, written, written_outcome};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BACKENDS: [Backend; 2] = [Backend::Namespace, Backend::Landlock];

type Claim = fn(&Scene) -> Result<(), String>;

const CLAIMS: &[(&str, Claim)] = &[
    ("every-way-to-a-socket-outside-is-refused-and-told", every_way),
    ("what-is-allowed-by-name-is-reached-and-nothing-else", allowed),
    ("own-sockets-and-the-network-work-as-without", own),
    ("programs-talk-to-themselves", programs),
    ("explain-and-connection-answer-alike", explained),
    ("a-datagram-socket-is-no-standard-stream", datagram_stream),
    ("race_names-memory-directories-and-descriptors-lead-nowhere", races),
    ("a-stopped-or-killed-broker-connects-nothing", broker_gone),
    ("a-flood-of-connections-is-counted", flood),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for backend in BACKENDS {
        for uid in uids() {
            for (name, claim) in CLAIMS {
                let run = move || {
                    let scene = Scene::new(backend, uid)?;
                    claim(&scene).map_err(Failed::from)
                };
                trials.push(Trial::test(format!("{}/{uid}/{name}", backend.name()), run));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A fixture, and what listens outside.
struct Scene {
    walls: Walls,
    backend: Backend,
    listener: Child,
}

impl Drop for Scene {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.listener.kill();
        let _ = self.listener.wait();
    }
}

impl Scene {
    fn new(backend: Backend, uid: u32) -> Result<Self, String> {
        let walls = Walls::new(uid)?;
        let words = [text(&walls.home()), text(&walls.fixture.ws()), text(&walls.home().join("reached"))];
        let mut argv = vec!["/usr/bin/python3", "-c", include_str!("outside.py")];
        argv.extend(words.iter().map(String::as_str));
        let listener = walls.plain(&argv).stdout(Stdio::null()).spawn().map_err(|error| error.to_string())?;
        let scene = Self { walls, backend, listener };
        wait_for(|| scene.walls.home().join("ready").exists())?;
        Ok(scene)
    }

    fn ws(&self) -> PathBuf {
        self.walls.fixture.ws()
    }

    /// Runs a script of Python without walls.
    fn outside(&self, script: &str, arguments: &[&str]) -> Result<String, String> {
        let argv = [&["/usr/bin/python3", "-c", script], arguments].concat();
        let finished = Walls::finish(&mut self.walls.plain(&argv))?;
        expect(finished.status.success(), written(&finished.stderr))?;
        Ok(written(&finished.stdout))
    }

    fn command(&self, options: &[&str], argv: &[&str]) -> Command {
        let options = [&["--protect", "default"], options].concat();
        let mut command = self.walls.with_options(self.backend, Mode::WorkspaceWrite, &options, argv);
        command.env("TERM", "xterm");
        command
    }

    /// Runs a command inside: what it printed, and its outcome.
    fn inside(&self, options: &[&str], argv: &[&str]) -> Result<(String, Value), String> {
        let finished = Walls::finish(&mut self.command(&[options, &["--json"]].concat(), argv))?;
        Ok((written(&finished.stdout), written_outcome(&finished)?))
    }

    /// The same with a script of Python.
    fn script(&self, options: &[&str], script: &str, arguments: &[&str]) -> Result<(String, Value), String> {
        self.inside(options, &[&["/usr/bin/python3", "-c", script], arguments].concat())
    }

    /// Who was reached outside since this was asked last.
    fn reached(&self) -> Vec<String> {
        // What connects is written down a moment later.
        std::thread::sleep(Duration::from_millis(100));
        let log = self.walls.home().join("reached");
        let lines = std::fs::read_to_string(&log).unwrap_or_default();
        let _ = std::fs::remove_file(log);
        lines.lines().map(str::to_owned).collect()
    }

    /// Takes away what attempts have made.
    fn tidy(&self) -> Result<(), String> {
        for name in ["go", "made-soft", "made-hard", "up", "x", "y", "mine"] {
            let path = self.ws().join(name);
            if path.symlink_metadata().is_ok() {
                std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        Ok(())
    }

    fn home(&self) -> String {
        text(&self.walls.home())
    }
}

fn wait_for(what: impl Fn() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !what() {
        expect(begun.elapsed() < Duration::from_secs(30), "it takes too long")?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn answers(said: &str) -> BTreeMap<&str, &str> {
    said.lines().filter_map(|line| line.rsplit_once(' ')).collect()
}

fn denials(outcome: &Value) -> Vec<&Value> {
    outcome["denials"].as_array().map(|all| all.iter().collect()).unwrap_or_default()
}

fn every_way(scene: &Scene) -> Result<(), String> {
    let (home, ws) = (scene.home(), text(&scene.ws()));
    let attack = include_str!("attack.py");
    let said = scene.outside(attack, &[&home, &ws])?;
    let without = answers(&said);
    let closed: Vec<_> = without.iter().filter(|(_, answer)| **answer != "open").collect();
    expect(without.len() > 30 && closed.is_empty(), format!("without walls: {closed:?}"))?;
    // Every way is felt but those that only move a name, or send nothing.
    expect_equal(scene.reached().len(), without.len() - 2)?;
    scene.tidy()?;
    let (said, outcome) = scene.script(&[], attack, &[&home, &ws])?;
    let within = answers(&said);
    expect_equal(within.keys().collect::<Vec<_>>(), without.keys().collect())?;
    for (name, answer) in &within {
        let expected: &[&str] = match (*name, scene.backend) {
            ("own-hard-link" | "moved-here", _) => &["EXDEV", "EACCES", "EROFS"],
            // What is found is covered, and what covers it is no socket.
            (_, Backend::Namespace) => &["EPERM", "ECONNREFUSED", "EACCES"],
            _ => &["EPERM"],
        };
        expect(expected.contains(answer), format!("{name}: {answer}"))?;
    }
    expect_equal(scene.reached(), Vec::new())?;
    let told = denials(&outcome);
    for (name, covered) in [
        ("docker.sock", true),
        ("relative", true),
        ("new\nline", true),
        ("renamed", false),
        ("renamed-service/s", false),
        ("second-name", false),
        ("appeared", false),
    ] {
        let path = format!("{home}/{name}");
        let denial = told.iter().find(|denial| denial["operation"] == "connect" && denial["path"] == *path);
        expect(denial.is_some() || covered && scene.backend == Backend::Namespace, format!("{name}: {told:?}"))?;
        let Some(denial) = denial else { continue };
        expect_equal(&denial["evidence"], &Value::from("broker"))?;
        expect_equal(&denial["errno"], &Value::from("EPERM"))?;
        expect(denial["process"]["pid"].is_u64(), denial.to_string())?;
    }
    let lines = outcome["report"]["guarantees"].as_array().cloned().unwrap_or_default();
    let line = lines.iter().find(|line| line["guarantee"] == "sockets-unix").ok_or("no line")?;
    expect_equal(&line["strength"], &Value::from("enforced"))?;
    // Who leaves them open finds them open.
    scene.tidy()?;
    let (said, _) =
        scene.script(&["--sockets", "open"], "import socket; socket.socket(socket.AF_UNIX).connect('old')", &[])?;
    expect_equal((said, scene.reached().len()), (String::new(), 1))
}

fn allowed(scene: &Scene) -> Result<(), String> {
    let script = "
import socket, sys
for path in sys.argv[1:]:
    try: socket.socket(socket.AF_UNIX).connect(path); print('open')
    except OSError as error: print(error.errno)
";
    let at = |name: &str| format!("{}/{name}", scene.home());
    let old = text(&scene.ws().join("old"));
    let options = ["--sockets", "closed", "--allow-socket", &at("relative"), "--allow-socket", &old];
    let (said, _) = scene.script(&options, script, &[&at("relative"), &old, &at("second-name"), &at("renamed")])?;
    expect_equal(said.as_str(), "open\nopen\n1\n1\n")?;
    expect_equal(scene.reached().len(), 2)
}

fn own(scene: &Scene) -> Result<(), String> {
    let script = include_str!("own.py");
    let without = scene.outside(script, &[])?;
    expect(without.lines().count() > 10 && !without.contains("failed"), &*without)?;
    for entry in std::fs::read_dir(scene.ws()).map_err(|error| error.to_string())?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"s-") {
            let path = entry.path();
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(|error| error.to_string())?;
        }
    }
    let (said, outcome) = scene.script(&[], script, &[])?;
    expect_equal(said, without)?;
    expect(denials(&outcome).is_empty(), outcome.to_string())
}

/// A multiplexer, the channel between node and its child, a server of node, and a message bus.
fn programs(scene: &Scene) -> Result<(), String> {
    let tmux =
        "tmux -L x -f /dev/null new-session -d 'sleep 60' && tmux -L x list-sessions | wc -l && tmux -L x kill-server";
    let fork = "node -e \"if (process.argv[1] === 'c') { process.on('message', m => { process.send(m + 1); \
                process.disconnect(); }); } else { const c = require('child_process').fork('./f.js', ['c']); \
                c.on('message', m => console.log(m)); c.send(41); }\"";
    let server = "node -e \"const n = require('net'); const s = n.createServer(c => { c.end('well\\n'); s.close(); }); \
                  s.listen('n.sock', () => n.connect('n.sock').on('data', d => process.stdout.write(d)));\"";
    let child = "process.on('message', m => { process.send(m + 1); process.disconnect(); });";
    std::fs::write(scene.ws().join("f.js"), child).map_err(|error| error.to_string())?;
    let bus = "cat > bus.conf <<'end'
<busconfig><type>session</type><listen>unix:path=bus.sock</listen><auth>EXTERNAL</auth>
<policy context='default'><allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/><allow own='*'/></policy></busconfig>
end
        dbus-daemon --config-file=bus.conf --nofork --print-address=1 > address & until test -s address; do sleep 0.05; done
        DBUS_SESSION_BUS_ADDRESS=unix:path=bus.sock dbus-send --session --print-reply=literal --dest=org.freedesktop.DBus \
        / org.freedesktop.DBus.GetId | wc -w; kill $!";
    for (script, expected) in [(tmux, "1\n"), (fork, "42\n"), (server, "well\n"), (bus, "1\n")] {
        let (said, outcome) = scene.inside(&[], &["/bin/sh", "-c", script])?;
        expect(said == expected, format!("{script}: {said} {}", outcome["denials"]))?;
    }
    Ok(())
}

/// `pinfold explain` says beforehand what a connection comes to.
fn explained(scene: &Scene) -> Result<(), String> {
    let script = "
import socket, sys
new = socket.socket(socket.AF_UNIX); new.bind('new'); new.listen()
for path in sys.argv[1:]:
    try: socket.socket(socket.AF_UNIX).connect(path); print('allowed')
    except OSError as error: print('denied' if error.errno in (1, 13, 111) else error)
";
    let at = |name: &str| format!("{}/{name}", scene.home());
    let inside = |name: &str| text(&scene.ws().join(name));
    let paths = [at("relative"), at("renamed"), at("docker.sock"), inside("old"), inside("soft"), inside("new")];
    let mut expected = String::new();
    for path in &paths {
        let mut words = vec![text(&scene.walls.pinfold()), "explain".to_owned()];
        let options =
            ["--json", "--backend", scene.backend.name(), "--mode", "workspace-write", "--protect", "default"];
        words.extend(options.map(str::to_owned));
        words.extend(["--workspace".to_owned(), text(&scene.ws()), "--operation".to_owned(), "connect".to_owned()]);
        words.push(path.clone());
        let finished = Walls::finish(&mut scene.walls.plain(&words))?;
        let answer: Value = serde_json::from_slice(&finished.stdout)
            .map_err(|error| format!("{error}: {}{}", written(&finished.stdout), written(&finished.stderr)))?;
        expected.push_str(answer["ruling"].as_str().unwrap_or("?"));
        expected.push('\n');
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let (said, _) = scene.script(&[], script, &paths)?;
    expect_equal(said.lines().collect::<Vec<_>>(), expected.lines().collect())?;
    expect_equal(said.as_str(), "denied\ndenied\ndenied\ndenied\ndenied\nallowed\n")
}

fn datagram_stream(scene: &Scene) -> Result<(), String> {
    let run = |options: &[&str]| {
        let (ours, _theirs) = std::os::unix::net::UnixDatagram::pair().map_err(|error| error.to_string())?;
        let stdin = Stdio::from(std::os::fd::OwnedFd::from(ours));
        Walls::finish(scene.command(options, &["/bin/echo", "well"]).stdin(stdin))
    };
    let finished = run(&[])?;
    expect(written(&finished.stdout).is_empty(), written(&finished.stdout))?;
    expect(written(&finished.stderr).contains("datagram socket"), written(&finished.stderr))?;
    expect_equal(written(&run(&["--sockets", "open"])?.stdout).as_str(), "well\n")
}

fn races(scene: &Scene) -> Result<(), String> {
    let rounds = from_environment("PINFOLD_SWAPS", 2000).to_string();
    let race = include_str!("race.py");
    for kind in ["names", "memory", "directories", "descriptors"] {
        // The race can be won where nobody looks; on a busy machine whoever changes things may come too late at first.
        let mut said = String::new();
        let won = (0..20).any(|_| {
            let played = scene.outside(race, &[&scene.home(), kind, "2000"]).and_then(|it| scene.tidy().map(|()| it));
            said = played.unwrap_or_else(|problem| problem);
            !scene.reached().is_empty()
        });
        expect(won, format!("{kind}: without walls: {said}"))?;
        let (said, outcome) = scene.script(&[], race, &[&scene.home(), kind, &rounds])?;
        expect(outcome["ending"]["code"] == 0 && said.contains("done"), format!("{kind}: {said} {outcome}"))?;
        expect_equal(scene.reached(), Vec::new()).map_err(|reached| format!("{kind}: {reached}"))?;
        scene.tidy()?;
    }
    Ok(())
}

/// Starts a command that connects to sockets outside and its own for ever; returns it and its broker's number.
fn start_connecting(scene: &Scene) -> Result<(Child, i32), String> {
    let script = "
import socket, sys
own = socket.socket(socket.AF_UNIX); own.bind('own'); own.listen(1)
while True:
    try: socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    except OSError: pass
    try: socket.socket(socket.AF_UNIX).connect('own'); own.accept(); open('count', 'a').write('x')
    except OSError: pass
";
    let renamed = format!("{}/renamed", scene.home());
    let mut command = scene.command(&[], &["/usr/bin/python3", "-c", script, &renamed]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    wait_for(|| count(scene) > 0)?;
    let children = |of: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        lists.collect::<String>()
    };
    let broker = children(child.id()).split_whitespace().next().and_then(|pid| pid.parse().ok());
    let broker: i32 = broker.ok_or("no broker is seen")?;
    expect_equal(std::fs::read_to_string(format!("/proc/{broker}/comm")).unwrap_or_default().trim(), "pinfold-broker")?;
    Ok((child, broker))
}

fn count(scene: &Scene) -> u64 {
    scene.ws().join("count").metadata().map_or(0, |metadata| metadata.len())
}

fn broker_gone(scene: &Scene) -> Result<(), String> {
    let (mut child, broker) = start_connecting(scene)?;
    // SAFETY: plain.
    unsafe { libc::kill(broker, libc::SIGSTOP) };
    wait_for(|| std::fs::read_to_string(format!("/proc/{broker}/stat")).is_ok_and(|stat| stat.contains(") T ")))?;
    // One thread of it may still have been at work on the other processor.
    std::thread::sleep(Duration::from_millis(300));
    let then = count(scene);
    std::thread::sleep(Duration::from_millis(300));
    expect_equal(count(scene), then)?;
    // SAFETY: plain.
    unsafe { libc::kill(broker, libc::SIGCONT) };
    wait_for(|| count(scene) > then)?;
    // SAFETY: plain.
    unsafe { libc::kill(broker, libc::SIGKILL) };
    let status = child.wait().map_err(|error| error.to_string())?;
    expect(!status.success(), "the call failed")?;
    let begun = Instant::now();
    let mut last = count(scene);
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = count(scene);
        if now == last {
            break;
        }
        last = now;
        expect(begun.elapsed() < Duration::from_secs(20), "the command goes on")?;
    }
    expect_equal(scene.reached(), Vec::new())
}

fn flood(scene: &Scene) -> Result<(), String> {
    let each = from_environment("PINFOLD_FLOOD", 64 * 50) / 64;
    let script = "
import socket, sys, threading
def run():
    for _ in range(int(sys.argv[2])):
        with socket.socket(socket.AF_UNIX) as sock:
            try: sock.connect(sys.argv[1]); print('open')
            except PermissionError: pass
threads = [threading.Thread(target=run) for _ in range(64)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print('done')
";
    let renamed = format!("{}/renamed", scene.home());
    let (said, outcome) = scene.script(&[], script, &[&renamed, &each.to_string()])?;
    let told = denials(&outcome);
    expect(said == "done\n" && told.len() == 1, format!("{said} {outcome}"))?;
    expect_equal(told[0]["count"].as_u64(), Some(64 * each))?;
    expect_equal(scene.reached(), Vec::new())
}
