//! `cargo xtask bench mcp`: what the Model Context Protocol adds to a command, and whether the server's memory stays.
//!
//! One thousand calls over one connection, thirty-two at once, and a hundred one after the other. Each result says how long
//! the executor took, from its request to the end; what the client waited beyond is the protocol's, with the session's policy
//! and log.

use super::{Folder, build};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const CALLS: usize = 1000;
const AT_ONCE: usize = 32;
const ALONE: usize = 100;

struct Server {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Server {
    /// Home and workspace lie side by side: a session is never kept where its commands write.
    fn start(pinfold: &Path, folder: &Path) -> Result<Self, String> {
        let [home, workspace] = ["home", "workspace"].map(|name| folder.join(name));
        for place in [&home, &workspace] {
            std::fs::create_dir(place).map_err(|error| format!("{}: {error}", place.display()))?;
        }
        let mut command = Command::new(pinfold);
        command.args(["mcp", "--mode", "workspace-write", "--workspace"]).arg(workspace).env("HOME", home);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let out = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut server = Self { child, out };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
        server.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))?;
        server.hear()?;
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(server)
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        let input = self.child.stdin.as_mut().ok_or("no input")?;
        input.write_all(format!("{message}\n").as_bytes()).map_err(|error| error.to_string())
    }

    /// The number of the next answer, and how long the executor took by its own account, in milliseconds.
    fn hear(&mut self) -> Result<(u64, f64), String> {
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).map_err(|error| error.to_string())? == 0 {
                return Err("the server has gone".to_owned());
            }
            let message: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            if message.get("result").is_none() {
                continue;
            }
            let ok = message["result"]["isError"] != true;
            let took = message["result"]["structuredContent"]["outcome"]["durationMs"].as_f64().unwrap_or(f64::NAN);
            return message["id"].as_u64().filter(|_| ok).map(|id| (id, took)).ok_or(line);
        }
    }

    fn ask(&mut self, id: u64) -> Result<(), String> {
        let arguments = json!({"command": ":", "description": "nothing"});
        let params = json!({"name": "bash", "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
    }

    /// So many calls, so many at once: the time of each, and what the executor took of it, in milliseconds.
    fn calls(&mut self, count: usize, at_once: usize, first: u64) -> Result<[Vec<f64>; 2], String> {
        let (mut begun, mut next) = (HashMap::new(), first);
        let (mut times, mut inside) = (Vec::new(), Vec::new());
        let last = first + count as u64;
        while times.len() < count {
            while begun.len() < at_once && next < last {
                begun.insert(next, Instant::now());
                self.ask(next)?;
                next += 1;
            }
            let (id, took) = self.hear()?;
            inside.push(took);
            let begun = begun.remove(&id).ok_or("an answer to nothing")?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok([times, inside])
    }

    fn resident_kib(&self) -> Result<u64, String> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.map_err(|error| error.to_string())?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        line.trim().trim_end_matches(" kB").parse().map_err(|_| line.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.stdin = None;
        // How it ends is not measured.
        let _ = self.child.wait();
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn run() -> Result<(), String> {
    let pinfold = build()?.join("pinfold");
    measure(&pinfold, ALONE, CALLS)
}

/// Measures so many calls one after the other, and so many at once, and prints it.
fn measure(pinfold: &Path, few: usize, count: usize) -> Result<(), String> {
    let folder = Folder::new()?;
    let mut server = Server::start(pinfold, &folder.0)?;
    server.calls(few, 1, 1)?;
    let before = server.resident_kib()?;
    let alone = server.calls(few, 1, 10_000)?;
    let many = server.calls(count, AT_ONCE, 20_000)?;
    let after_first = server.resident_kib()?;
    server.calls(count, AT_ONCE, 30_000)?;
    let after_second = server.resident_kib()?;
    println!("| calls | at once | executor, p50 | client, p50 | ratio |\n|---|---|---|---|---|");
    for (calls, at_once, [mut seen, mut inside]) in [(few, 1, alone), (count, AT_ONCE, many)] {
        let (seen, inside) = (median(&mut seen), median(&mut inside));
        println!("| {calls} | {at_once} | {inside:.1} ms | {seen:.1} ms | {:.2} |", seen / inside);
    }
    println!(
        "\nResident: {before} KiB after {few} calls, {after_first} KiB after {} more, {after_second} KiB after {count} more.",
        few + count
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    #[test]
    fn what_is_measured_is_answered() {
        let pinfold = Workspace::find().unwrap().debug().join("pinfold");
        measure(&pinfold, 3, 40).unwrap();
    }
}
