//! What neither a message nor a command can do: end the server, widen anything, or reach transport, token and log.

use crate::Claim;
use crate::wire::{Wire, bash};
use pinfold_conformance::walls::{Walls, expect, expect_equal};
use serde_json::json;
use std::path::PathBuf;

pub(crate) const CLAIMS: &[Claim] = &[
    ("malformed-lines-do-not-end-the-server", malformed),
    ("stray-messages-before-the-first-are-nothing", stray),
    ("a-workspace-that-nobody-named-is-no-root-and-no-home", no_default_workspace),
];

/// The server still answers, and nothing is wider than before.
pub(crate) fn alive(wire: &mut Wire) -> Result<(), String> {
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
