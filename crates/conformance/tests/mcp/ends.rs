//! Withdrawal, and the end of the server: whatever ran is gone, and what was to be said was said.

use crate::Claim;
use crate::wire::{PATIENCE, Wire, bash, text};
use pinfold_conformance::sleeper::Sleeper;
use pinfold_conformance::walls::{Walls, expect, expect_equal};
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

pub(crate) const CLAIMS: &[Claim] = &[
    ("cancellation-kills-and-settles", cancelled),
    ("of-ten-calls-at-once-five-are-cancelled", ten_calls),
    ("at-the-end-of-input-every-child-is-gone", end_of_input),
    ("at-sigterm-every-child-is-gone", sigterm),
    ("a-killed-server-leaves-nobody", killed),
    ("a-client-that-does-not-read-is-no-reason-to-stay", unread),
];

fn sleep(sleeper: &Sleeper) -> String {
    format!("sleep {}", sleeper.seconds())
}

fn kill(walls: &Walls, wire: &Wire, signal: &str) -> Result<(), String> {
    let status = walls.plain(&["kill", signal, &wire.child.id().to_string()]).status();
    expect(status.is_ok_and(|status| status.success()), "kill does not work")
}

/// Waits until no process of this marker is left.
fn gone(sleeper: &Sleeper) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    while !sleeper.processes().is_empty() {
        expect(Instant::now() < until, "a child is left")?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn here(sleeper: &Sleeper, count: usize) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    while sleeper.processes().len() < count {
        expect(Instant::now() < until, "a child does not begin")?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn cancelled(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let sleeper = Sleeper::new();
    let id = wire.begin_call("bash", bash(&format!("trap '' TERM; setsid {0} & {0}", sleep(&sleeper))))?;
    here(&sleeper, 2)?;
    wire.cancel(id)?;
    gone(&sleeper)?;
    expect_equal(wire.bash("echo next")?.as_str(), "next\n")?;
    // What is withdrawn is not answered, and is settled in the log.
    expect(wire.met.iter().all(|it| it["id"] != id), "a withdrawn call was answered")?;
    let log = wire.request("resources/read", json!({"uri": "pinfold://log"}))?;
    let log = log["result"]["contents"][0]["text"].as_str().unwrap_or_default().to_owned();
    expect(log.contains("\"cancelled\""), log)
}

// B088: and what they print is nothing but text.
fn ten_calls(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let sleeper = Sleeper::new();
    let noise = "head -c 5000000 /dev/zero | tr '\\0' 'x'; printf 'a\\nb\\r\\n\\377\\376{\"jsonrpc\":\"2.0\",\"id\":1}\\n'; echo not-json >&2; \
                 echo x > /proc/self/fd/1; echo y > /dev/stdout; cat";
    let mut ids = Vec::new();
    for number in 0..10 {
        let command = if number % 2 == 0 { noise.to_owned() } else { format!("{noise}; {}", sleep(&sleeper)) };
        ids.push(wire.begin_call("bash", bash(&command))?);
    }
    here(&sleeper, 5)?;
    for id in ids.iter().skip(1).step_by(2) {
        wire.cancel(*id)?;
    }
    let mut left: Vec<u64> = ids.iter().step_by(2).copied().collect();
    let mut answers: Vec<Value> = Vec::new();
    // Every line of it is checked as it is heard.
    let until = Instant::now() + PATIENCE;
    while !left.is_empty() {
        expect(Instant::now() < until, format!("no answer to {left:?}"))?;
        if let Some(message) = wire.hear_within(Duration::from_secs(5))? {
            left.retain(|id| message["id"] != *id);
            answers.push(message);
        }
    }
    for answer in &answers {
        let result = &answer["result"];
        let out = result["structuredContent"]["stdout"].clone();
        expect_equal(
            (out["totalBytes"].as_u64() > Some(5_000_000), &out["truncated"], &out["invalidUtf8"]),
            (true, &json!(true), &json!(true)),
        )?;
        expect(text(result).contains("{\"jsonrpc\":\"2.0\",\"id\":1}\nx\ny\n"), "the end of the output is not there")?;
    }
    gone(&sleeper)?;
    expect_equal(wire.bash("echo next")?.as_str(), "next\n")
}

/// A server with commands in every shape, and something that tells of them.
fn busy(walls: &Walls) -> Result<(Wire, Sleeper), String> {
    let mut wire = Wire::open(walls, &["--mode", "workspace-write"], &json!({}))?;
    let sleeper = Sleeper::new();
    let command = format!("trap '' TERM HUP; setsid {0} & {0}", sleep(&sleeper));
    wire.begin_call("bash", bash(&command))?;
    wire.call("bash", json!({"command": command, "description": "d", "run_in_background": true}))?;
    here(&sleeper, 4)?;
    Ok((wire, sleeper))
}

fn end_of_input(walls: &Walls) -> Result<(), String> {
    let (mut wire, sleeper) = busy(walls)?;
    let status = wire.close()?;
    expect(sleeper.processes().is_empty(), "a child outlived the server")?;
    expect_equal(status.code(), Some(0))
}

fn sigterm(walls: &Walls) -> Result<(), String> {
    let (mut wire, sleeper) = busy(walls)?;
    kill(walls, &wire, "-TERM")?;
    let status = wire.end()?;
    expect(sleeper.processes().is_empty(), "a child outlived the server")?;
    expect_equal(status.code(), Some(143))
}

fn killed(walls: &Walls) -> Result<(), String> {
    let (mut wire, sleeper) = busy(walls)?;
    kill(walls, &wire, "-KILL")?;
    expect_equal(wire.end()?.signal(), Some(9))?;
    gone(&sleeper)
}

// A client that never reads and then goes: the server neither waits for it nor keeps what it would say for ever.
fn unread(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::start(walls, &["--mode", "workspace-write"])?;
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "w", "version": "1"}}});
    wire.send(&initialize)?;
    wire.answer(0)?;
    wire.stop_reading();
    let big = json!({"name": "bash", "arguments": bash("head -c 60000 /dev/zero | tr '\\0' '\\1'")});
    let mut sent = 0;
    for _ in 0..300 {
        if wire.ask("tools/call", big.clone()).is_err() {
            break;
        }
        sent += 1;
    }
    expect(sent > 0, "nothing could be sent")?;
    wire.close().map(drop)
}
