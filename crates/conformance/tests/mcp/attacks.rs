//! What neither a message nor a command can do: end the server, widen anything, or reach transport, token and log.

use crate::Claim;
use crate::wire::{Wire, bash, text};
use pinfold_conformance::walls::{Walls, expect, expect_equal, printed};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::PathBuf;

use std::time::Duration;

pub(crate) const CLAIMS: &[Claim] = &[
    ("malformed-lines-do-not-end-the-server", malformed),
    ("fuzzed-messages-neither-end-the-server-nor-widen-anything", fuzzed),
    ("stray-messages-before-the-first-are-nothing", stray),
    ("commands-do-not-reach-transport-log-and-approver", control_plane),
    ("a-workspace-that-nobody-named-is-no-root-and-no-home", no_default_workspace),
    ("standard-output-carries-only-messages", only_messages),
];

/// The server still answers, and nothing is wider than before.
fn alive(wire: &mut Wire) -> Result<(), String> {
    expect_equal(wire.bash("echo alive; touch f 2>/dev/null || echo closed")?.as_str(), "alive\nclosed\n")
}

fn malformed(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "read-only"], &json!({}))?;
    let deep = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let deep_arguments = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":901,\"method\":\"tools/call\",\"params\":{{\"name\":\"bash\",\"arguments\":{{\"command\":{}1{}}}}}}}",
        "{\"a\":".repeat(100),
        "}".repeat(100)
    );
    let long = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}", "x".repeat(20 << 20));
    let lines: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"\r".to_vec(),
        b"not json".to_vec(),
        b"\xff\xfe\x00\x01".to_vec(),
        b"{".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]".to_vec(),
        b"{}".to_vec(),
        b"{\"jsonrpc\":\"1.0\",\"id\":900,\"method\":\"ping\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1e400,\"method\":\"ping\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":999999999999999999999999999999,\"method\":\"ping\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":-1,\"method\":\"tools/call\",\"params\":null}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":{}}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":77777,\"result\":{}}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":4242}}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/unheard-of\",\"params\":7}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":902,\"method\":\"unheard/of\"}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":903,\"method\":\"resources/read\",\"params\":{\"uri\":\"pinfold://../../etc/passwd\"}}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":904,\"method\":\"logging/setLevel\",\"params\":{\"level\":\"x\"}}".to_vec(),
        deep.into_bytes(),
        deep_arguments.into_bytes(),
        long.into_bytes(),
    ];
    for line in lines {
        wire.send_bytes(&line)?;
        wire.send_bytes(b"\n")?;
        alive(&mut wire)
            .map_err(|why| format!("{why} after {}", String::from_utf8_lossy(&line[..line.len().min(100)])))?;
    }
    long_lines(&mut wire)?;
    // One number for two requests is the client's own confusion.
    let id = format!("{:0>4000}", "x");
    for _ in 0..2 {
        wire.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "bash", "arguments": bash("sleep 0.2")}}))?;
    }
    alive(&mut wire)?;
    // A second handshake changes nothing about what is allowed.
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "x", "version": "1"}});
    wire.request("initialize", params)?;
    alive(&mut wire)
}

/// Whoever sends too much is told, by the number of the request wherever it stands, and goes on.
fn long_lines(wire: &mut Wire) -> Result<(), String> {
    let text = "x".repeat(17 << 20);
    let call = json!({"name": "bash", "arguments": {"command": text, "description": "\"id\":1"}});
    let first = format!("{{\"jsonrpc\":\"2.0\",\"id\":905,\"method\":\"tools/call\",\"params\":{call}}}\n");
    let last = format!("{{\"method\":\"tools/call\",\"params\":{call},\"jsonrpc\":\"2.0\",\"id\":906}}\n");
    for (id, line) in [(905, first), (906, last)] {
        wire.send_bytes(line.as_bytes())?;
        let error = wire.answer(id)?["error"].clone();
        expect_equal(&error["code"], &json!(-32600))?;
        let said = format!("a message may have 16777216 bytes, and this one has {}: it was not read", line.len());
        expect_equal(&error["message"], &json!(said))?;
        alive(wire)?;
    }
    // The control: what just fits is read.
    let fits = "x".repeat((16 << 20) - 300);
    let read = wire.call("read", json!({"file_path": fits}))?;
    expect(read["isError"] == json!(true), "a name of 16 MiB was read")
}

/// Messages that are almost right.
fn messages() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        Just(json!("danger-full-access")),
        Just(json!("touch f")),
        Just(json!("/etc/pinfold-fuzz")),
    ];
    let value = leaf.prop_recursive(4, 32, 6, |inner| {
        let key = prop_oneof![
            Just("command".to_owned()),
            Just("description".to_owned()),
            Just("sandbox_permissions".to_owned()),
            Just("justification".to_owned()),
            Just("file_path".to_owned()),
            Just("content".to_owned()),
            Just("name".to_owned()),
            Just("arguments".to_owned()),
            Just("inputResponses".to_owned()),
            Just("requestState".to_owned()),
            Just("_meta".to_owned()),
            Just("uri".to_owned()),
            ".{0,10}",
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::hash_map(key, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    let method = prop_oneof![
        Just("tools/call".to_owned()),
        Just("tools/list".to_owned()),
        Just("resources/read".to_owned()),
        Just("resources/subscribe".to_owned()),
        Just("logging/setLevel".to_owned()),
        Just("completion/complete".to_owned()),
        Just("prompts/get".to_owned()),
        Just("notifications/cancelled".to_owned()),
        Just("notifications/roots/list_changed".to_owned()),
        Just("server/discover".to_owned()),
        Just("elicitation/create".to_owned()),
        ".{0,20}",
    ];
    let tool = prop_oneof![
        Just("bash"),
        Just("write"),
        Just("edit"),
        Just("read"),
        Just("list"),
        Just("search"),
        Just("job_output"),
        Just("job_kill")
    ];
    let call = (tool, value.clone()).prop_map(|(name, arguments)| json!({"jsonrpc": "2.0", "id": "fuzz", "method": "tools/call", "params": {"name": name, "arguments": arguments}}));
    let any_message = (proptest::option::of(value.clone()), method, value.clone()).prop_map(|(id, method, params)| {
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if let Some(id) = id {
            message["id"] = id;
        }
        message
    });
    prop_oneof![2 => call, 2 => any_message, 1 => value]
}

fn fuzzed(walls: &Walls) -> Result<(), String> {
    let wire = Wire::open(walls, &["--mode", "read-only"], &json!({"elicitation": {}}))?;
    let wire = RefCell::new(wire);
    let cases = std::env::var("PINFOLD_FUZZ_MESSAGES").ok().and_then(|it| it.parse().ok()).unwrap_or(300);
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, max_shrink_iters: 0, ..Config::default() });
    let count = std::cell::Cell::new(0_u32);
    let outcome = runner.run(&messages(), |message| {
        let mut wire = wire.borrow_mut();
        let fail = |why: String| TestCaseError::fail(why);
        wire.send(&message).map_err(fail)?;
        count.set(count.get() + 1);
        if count.get().is_multiple_of(50) {
            alive(&mut wire).map_err(fail)?;
        }
        Ok(())
    });
    outcome.map_err(|e| e.to_string())?;
    let mut wire = wire.into_inner();
    alive(&mut wire)?;
    // Nobody said yes to anything, and no mode was set.
    let log = wire.request("resources/read", json!({"uri": "pinfold://log"}))?;
    let log = log["result"]["contents"][0]["text"].as_str().unwrap_or_default().to_owned();
    expect(!log.contains("grant/given") && log.matches("sandbox/mode").count() == 1, log)?;
    let left = std::fs::read_dir(walls.fixture.ws()).map_err(|e| e.to_string())?.count();
    expect_equal((left, std::path::Path::new("/etc/pinfold-fuzz").exists()), (0, false))
}

fn stray(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::start(walls, &["--mode", "read-only"])?;
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        json!({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "bash", "arguments": bash("true")}}),
    ] {
        wire.send(&message)?;
    }
    let refused = wire.answer(6)?;
    expect(refused["error"].is_object(), format!("{refused}"))?;
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    wire.request("initialize", params)?;
    alive(&mut wire)
}

/// The directory of the only session.
fn session_directory(walls: &Walls) -> Result<PathBuf, String> {
    let sessions = walls.home().join(".local/state/pinfold/sessions");
    let mut found = std::fs::read_dir(&sessions).map_err(|e| format!("{}: {e}", sessions.display()))?;
    Ok(found.next().ok_or("no session")?.map_err(|e| e.to_string())?.path())
}

fn control_plane(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let directory = session_directory(walls)?;
    let id = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let log = directory.join("log.jsonl");
    let server = wire.child.id();
    let pinfold = walls.pinfold().display().to_string();
    let attempts = [
        format!("cat {}", log.display()),
        format!("echo x >> {}", log.display()),
        format!("cat /proc/{server}/environ"),
        format!("echo '{{}}' > /proc/{server}/fd/1"),
        format!("ls -l /proc/{server}/fd/ | grep -q ."),
        format!("HOME={} {pinfold} session mode {id} danger-full-access", walls.home().display()),
        format!("HOME={} {pinfold} session grant {id} /", walls.home().display()),
        format!("HOME={} script -qec '{pinfold} approve --session {id}' /dev/null", walls.home().display()),
        format!("kill -TERM {server}"),
    ];
    // Controls: outside, what can be tried without an effect on the server succeeds.
    for attempt in [&attempts[0], &attempts[2], &attempts[4], &attempts[7]] {
        printed(&Walls::finish(&mut walls.plain(&["bash", "-c", attempt]))?)
            .map_err(|why| format!("control {attempt}: {why}"))?;
    }
    let before = std::fs::read(&log).map_err(|e| e.to_string())?.len();
    for attempt in &attempts {
        let result = wire.call("bash", bash(attempt))?;
        let code = result["structuredContent"]["exitCode"].clone();
        expect(code != json!(0), format!("{attempt}: {}", text(&result)))?;
    }
    let after = std::fs::read_to_string(&log).map_err(|e| e.to_string())?;
    expect(after.len() > before && !after.contains("danger-full-access") && !after.contains("grant/given"), after)?;
    // Nothing but its three streams is open to a command, and no word of ours is in its environment but its session's.
    let open = wire.bash("ls /proc/self/fd | tr '\\n' ' '; env | grep -c -i token")?;
    expect(open.starts_with("0 1 2 3 0\n"), open)
}

// B048
fn no_default_workspace(walls: &Walls) -> Result<(), String> {
    let pinfold = walls.pinfold();
    for place in [PathBuf::from("/"), walls.home(), PathBuf::from("/etc")] {
        let mut command = walls.plain(&[pinfold.as_os_str(), "mcp".as_ref()]);
        let finished = Walls::finish(command.current_dir(&place))?;
        let said = String::from_utf8_lossy(&finished.stderr).into_owned();
        expect(finished.status.code() == Some(2) || finished.status.code() == Some(125), format!("{place:?}: {said}"))?;
        expect(said.contains("SANDBOX_INVALID_ROOT") && finished.stdout.is_empty(), format!("{place:?}: {said}"))?;
    }
    for word in ["", "none", "~"] {
        let mut command = walls.plain(&[pinfold.as_os_str(), "mcp".as_ref(), "--workspace".as_ref(), word.as_ref()]);
        let finished = Walls::finish(&mut command)?;
        expect(!finished.status.success() && finished.stdout.is_empty(), format!("{word:?}: {:?}", finished.status))?;
    }
    // The control: in a fit place it serves until its input ends.
    let mut command = walls.plain(&[pinfold.as_os_str(), "mcp".as_ref()]);
    let finished = Walls::finish(&mut command)?;
    expect(finished.status.success(), String::from_utf8_lossy(&finished.stderr).into_owned())
}

// B088: from before the first message to after the last.
fn only_messages(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let chatter = "echo out; echo err >&2; echo tty > /dev/tty; printf '\\033[2J'; bash -c 'echo child'; (echo late; sleep 0.3; echo later) &";
    for _ in 0..3 {
        wire.bash(chatter)?;
    }
    wire.call("bash", json!({"command": chatter, "description": "d", "run_in_background": true}))?;
    alive_writable(&mut wire)?;
    // Every line was checked as it was heard; what the closing says has to be messages too.
    wire.close()?;
    while let Ok(Some(_)) = wire.hear_within(Duration::from_millis(200)) {}
    Ok(())
}

fn alive_writable(wire: &mut Wire) -> Result<(), String> {
    expect_equal(wire.bash("touch f && echo ok")?.as_str(), "ok\n")
}
