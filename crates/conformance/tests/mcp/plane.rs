//! The server's streams, log, token and approver, from inside, under every backend that confines and in both modes.

use crate::http::serve;
use crate::wire::{Wire, bash, text};
use pinfold_conformance::start::{Backend, Mode};
use pinfold_conformance::walls::{Walls, expect, expect_equal, printed};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// A claim about a backend.
type Claim = (&'static str, fn(&Walls, Backend) -> Result<(), String>);

pub(crate) const CLAIMS: &[Claim] = &[
    ("commands-do-not-reach-transport-log-and-approver", log_and_approver),
    ("the-token-is-out-of-reach-or-nothing-is-served", token),
    ("standard-output-carries-only-messages", only_messages),
];

fn open(walls: &Walls, backend: Backend, mode: Mode) -> Result<Wire, String> {
    Wire::open(walls, &["--backend", backend.name(), "--mode", mode.name()], &json!({}))
}

/// The directory of the only session.
fn session_directory(walls: &Walls) -> Result<PathBuf, String> {
    let sessions = walls.home().join(".local/state/pinfold/sessions");
    let mut found = std::fs::read_dir(&sessions).map_err(|e| format!("{}: {e}", sessions.display()))?;
    Ok(found.next().ok_or("no session")?.map_err(|e| e.to_string())?.path())
}

fn log_and_approver(walls: &Walls, backend: Backend) -> Result<(), String> {
    for mode in Mode::ALL {
        from_inside(walls, backend, mode).map_err(|why| format!("{}: {why}", mode.name()))?;
        std::fs::remove_dir_all(session_directory(walls)?).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn from_inside(walls: &Walls, backend: Backend, mode: Mode) -> Result<(), String> {
    let mut wire = open(walls, backend, mode)?;
    let directory = session_directory(walls)?;
    let id = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let log = directory.join("log.jsonl");
    let server = wire.child.id();
    let pinfold = walls.pinfold().display().to_string();
    let home = walls.home().display().to_string();
    let read_log = format!("cat {}", log.display());
    let attempts = [
        read_log.clone(),
        format!("echo x >> {}", log.display()),
        format!("mv {0} {0}.away", directory.display()),
        format!("cat /proc/{server}/environ"),
        format!("echo '{{}}' > /proc/{server}/fd/1"),
        format!("readlink /proc/{server}/fd/1"),
        format!("HOME={home} {pinfold} session mode {id} danger-full-access"),
        format!("HOME={home} {pinfold} session grant {id} /"),
        format!("HOME={home} script -qec '{pinfold} approve --session {id}' /dev/null"),
        format!("kill -TERM {server}"),
    ];
    // Controls: outside, what can be tried without an effect on the server succeeds.
    for attempt in [&attempts[0], &attempts[3], &attempts[5], &attempts[8]] {
        printed(&Walls::finish(&mut walls.plain(&["bash", "-c", attempt]))?)
            .map_err(|why| format!("control {attempt}: {why}"))?;
    }
    let before = std::fs::read(&log).map_err(|e| e.to_string())?.len();
    for attempt in &attempts {
        let result = wire.call("bash", bash(attempt))?;
        let done = result["structuredContent"]["exitCode"] == json!(0);
        // Landlock alone closes no path for reading, and the report says so.
        let expected = backend == Backend::Landlock && *attempt == read_log;
        expect_equal((attempt, done), (attempt, expected)).map_err(|why| format!("{why}: {}", text(&result)))?;
    }
    let after = std::fs::read_to_string(&log).map_err(|e| e.to_string())?;
    let widened = after.contains("grant/given") || after.matches("sandbox/mode").count() != 1;
    expect(after.len() > before && !widened, after)?;
    // Nothing but its three streams is open to a command, and no word of ours is in its environment but its session's.
    let open = wire.bash("ls /proc/self/fd | tr '\\n' ' '; env | grep -c -i token")?;
    expect(open.starts_with("0 1 2 3 0\n"), open)
}

fn token(walls: &Walls, backend: Backend) -> Result<(), String> {
    for mode in Mode::ALL {
        let words = ["--backend", backend.name(), "--mode", mode.name(), "--http", "0"];
        if backend == Backend::Landlock {
            let pinfold = walls.pinfold();
            let mut command = walls.plain(&[pinfold.as_os_str(), "mcp".as_ref()]);
            let refused = Walls::finish(command.args(words))?;
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            expect_equal(refused.status.code(), Some(125))?;
            expect(said.contains("the token would not be safe") && !said.contains("serving"), said)?;
            continue;
        }
        let http = serve(walls, &words)?;
        let token = std::fs::read_to_string(&http.token).map_err(|e| e.to_string())?;
        let look = format!("cat {}", http.token.display());
        let said = open(walls, backend, mode)?.bash(&look)?;
        expect(!said.contains(&token), "a command read the token")?;
        // The control.
        let read = printed(&Walls::finish(&mut walls.plain(&["bash", "-c", &look]))?)?;
        expect_equal(read, token)?;
    }
    Ok(())
}

// B088: from before the first message to after the last.
fn only_messages(walls: &Walls, backend: Backend) -> Result<(), String> {
    let mut wire = open(walls, backend, Mode::WorkspaceWrite)?;
    let chatter = "echo out; echo err >&2; echo tty > /dev/tty; printf '\\033[2J'; bash -c 'echo child'; (echo late; sleep 0.3; echo later) &";
    for _ in 0..3 {
        wire.bash(chatter)?;
    }
    wire.call("bash", json!({"command": chatter, "description": "d", "run_in_background": true}))?;
    expect_equal(wire.bash("touch f && echo ok")?.as_str(), "ok\n")?;
    // Every line was checked as it was heard; what the closing says has to be messages too.
    wire.close()?;
    while let Ok(Some(_)) = wire.hear_within(Duration::from_millis(200)) {}
    Ok(())
}
