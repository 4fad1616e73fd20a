//! A thousand calls over one connection, thirty-two at once: each is answered, and the server keeps nothing of them.

use crate::Claim;
use crate::wire::{Wire, bash};
use pinfold_conformance::walls::{Walls, expect, expect_equal};
use serde_json::{Value, json};
use std::collections::HashSet;

pub(crate) const CLAIMS: &[Claim] = &[("a-thousand-calls-leave-nothing", thousand)];

const CALLS: u64 = 1000;
const AT_ONCE: usize = 32;
/// Until threads and buffers are there that stay.
const WARM: u64 = 300;
/// What a thousand calls may add, in KiB: 4 for each. The outcome of one command alone has more.
const MORE_KIB: u64 = 4 * CALLS;

fn call(number: u64) -> (&'static str, Value) {
    match number % 8 {
        0 => ("write", json!({"file_path": format!("f{}", number % 64), "content": "one\n"})),
        1 => ("read", json!({"file_path": "seen"})),
        2 => ("search", json!({"pattern": "one"})),
        3 => ("list", json!({})),
        _ => ("bash", bash("echo out; echo err >&2")),
    }
}

fn calls(wire: &mut Wire, count: u64) -> Result<(), String> {
    let (mut open, mut begun) = (HashSet::new(), 0);
    while begun < count || !open.is_empty() {
        while begun < count && open.len() < AT_ONCE {
            let (tool, arguments) = call(begun);
            open.insert(wire.begin_call(tool, arguments)?);
            begun += 1;
        }
        let answer = wire.hear()?;
        if answer.get("method").is_none() {
            let id = answer["id"].as_u64().unwrap_or_default();
            expect(open.remove(&id) && answer["result"]["isError"] == json!(false), format!("{answer}"))?;
        }
    }
    Ok(())
}

/// What the server holds: memory in KiB, threads, and descriptors.
fn held(wire: &Wire) -> Result<(u64, u64, usize), String> {
    let place = format!("/proc/{}", wire.child.id());
    let status = std::fs::read_to_string(format!("{place}/status")).map_err(|e| e.to_string())?;
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
        line.trim().trim_end_matches(" kB").parse::<u64>().map_err(|_| "no number")
    };
    let open = std::fs::read_dir(format!("{place}/fd")).map_err(|e| e.to_string())?.count();
    Ok((number("VmRSS:")?, number("Threads:")?, open))
}

fn thousand(walls: &Walls) -> Result<(), String> {
    let mut wire = Wire::open_measured(walls, &["--mode", "workspace-write"])?;
    wire.call("write", json!({"file_path": "seen", "content": "one\n"}))?;
    for number in 0..64 {
        // What is overwritten has to be read before, or written by the same tools.
        wire.call("write", json!({"file_path": format!("f{number}"), "content": "one\n"}))?;
    }
    calls(&mut wire, WARM)?;
    let before = held(&wire)?;
    calls(&mut wire, CALLS)?;
    let after = held(&wire)?;
    let said = format!("{before:?} before, {after:?} after");
    expect(after.0 < before.0 + MORE_KIB, &said)?;
    // A call that ends may not have closed all of its own yet.
    expect(after.1 <= before.1 + AT_ONCE as u64 && after.2 <= before.2 + AT_ONCE, &said)?;
    expect_equal(wire.bash("echo next")?.as_str(), "next\n")
}
