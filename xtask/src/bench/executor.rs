//! The executor's rows of `cargo xtask bench spawn`: calls in one process that lives on, beside bare spawns of that same process
//! (`crates/executor/examples/spawn.rs`).

use crate::workspace::{Workspace, output};
use std::path::Path;
use std::process::Command;

/// How many calls there are at once.
const AT_ONCE: usize = 500;

pub(super) fn run(release: &Path, root: &Path, rounds: usize) -> Result<(), String> {
    let workspace = Workspace::find()?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "-p", "pinfold-executor", "--example", "spawn"]);
    output(cargo.current_dir(&workspace.root))?;
    let measured = |what: &str, number: usize| {
        let mut program = Command::new(release.join("examples/spawn"));
        program.arg(release.join("pinfold-run")).arg(root).args([what, &number.to_string()]);
        output(&mut program)
    };
    println!("\n| what runs `/bin/true` | ratio to bare | added | ratio of the fastest tenths |\n|---|---|---|---|");
    for line in measured("each", rounds)?.lines() {
        let [name, ratio, added, least] = fields(line)?;
        println!("| {name} | {ratio} | {added} µs | {least} |");
    }
    println!("\n| {AT_ONCE} at once of | until all are there | memory each |\n|---|---|---|");
    for line in measured("at-once", AT_ONCE)?.lines() {
        let [name, took, memory] = fields(line)?;
        println!("| {name} | {took} ms | {memory} KiB |");
    }
    Ok(())
}

fn fields<const COUNT: usize>(line: &str) -> Result<[&str; COUNT], String> {
    let fields: Vec<&str> = line.split('\t').collect();
    fields.try_into().map_err(|_| format!("the example printed {line:?}"))
}
