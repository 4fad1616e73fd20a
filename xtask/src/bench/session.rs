//! `cargo xtask bench session`: what it costs to replay a session's log, by its length.

use crate::workspace::{Workspace, output};
use std::process::Command;

pub(crate) fn run() -> Result<(), String> {
    let workspace = Workspace::find()?;
    let folder = output(Command::new("mktemp").args(["-d", "/var/tmp/pinfold-bench.XXXXXX"]))?;
    let folder = folder.trim();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--release", "-p", "pinfold-session", "--example", "replay", "--", folder]);
    let measured = output(cargo.current_dir(&workspace.root));
    // What is left lies in the system's temporary directory.
    let _ = std::fs::remove_dir_all(folder);
    println!("| events | replay | per event | bytes |\n|---|---|---|---|");
    for line in measured?.lines() {
        let fields: Vec<f64> = line.split(' ').filter_map(|field| field.parse().ok()).collect();
        if let [events, milliseconds, bytes] = fields[..] {
            println!("| {events} | {milliseconds:.2} ms | {:.2} µs | {bytes} |", milliseconds * 1e3 / events);
        }
    }
    println!("\nThe best of 5 replays each, from the page cache.");
    Ok(())
}
