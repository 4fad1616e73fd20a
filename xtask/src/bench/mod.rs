//! `cargo xtask bench spawn`: what it costs to start a confined program that does nothing. `roots` and `steady` are beside.
//!
//! Everything is started from this one process, one after the other in each round and in another order in the next, and
//! compared with the bare spawn of the same round: a noisy machine moves both.

pub(crate) mod broker;
mod executor;
pub(crate) mod fence;
pub(crate) mod mcp;
pub(crate) mod roots;
pub(crate) mod session;
pub(crate) mod steady;

use crate::workspace::{Workspace, output};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const TRUE: &str = "/bin/true";

/// What is started.
struct Row {
    name: String,
    argv: Vec<String>,
    /// Microseconds, one per round.
    times: Vec<f64>,
}

pub(crate) fn spawn(rounds: usize) -> Result<(), String> {
    let release = build()?;
    let folder = Folder::new()?;
    let (mut rows, missing) = rows(&release, &folder.0);
    for _ in 0..rounds.div_ceil(10).min(20) {
        rows.iter().try_for_each(|row| time(row).map(drop))?;
    }
    for round in 0..rounds {
        let count = rows.len();
        for index in 0..count {
            let row = &mut rows[(index + round) % count];
            let took = time(row)?;
            row.times.push(took);
        }
    }
    print(&rows, rounds);
    missing.iter().for_each(|why| println!("\nNot measured: {why}"));
    executor::run(&release, &folder.0, rounds)
}

/// Builds what ships, as it ships; returns where it is.
pub(crate) fn build() -> Result<PathBuf, String> {
    let workspace = Workspace::find()?;
    let mut cargo = Command::new(env!("CARGO"));
    output(cargo.args(["build", "--release"]).current_dir(&workspace.root))?;
    Ok(workspace.target.join("release"))
}

/// A workspace for the confined runs, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        Ok(Self(PathBuf::from(output(Command::new("mktemp").args(["-d", "/var/tmp/pinfold-bench.XXXXXX"]))?.trim())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left lies in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Everything that can be started here, the bare program first; and what cannot, with the reason.
fn rows(release: &Path, root: &Path) -> (Vec<Row>, Vec<String>) {
    let root = root.display().to_string();
    let mut rows = vec![row("bare", &[])];
    let mut missing = Vec::new();
    for backend in ["namespace", "bwrap", "landlock"] {
        for mode in ["workspace-write", "read-only"] {
            let name = format!("pinfold {backend}, {mode}");
            match confined(&release.join("pinfold"), backend, mode, &["--workspace".to_owned(), root.clone()]) {
                Ok(argv) => rows.push(Row { name, argv, times: Vec::new() }),
                Err(why) => missing.push(format!("{name}: {why}")),
            }
        }
    }
    let drop_in = release.join("landlock-run").display().to_string();
    let grants = ["--ro", "/", "--rw", "/dev/null", "--rw", "/tmp", "--rw", &root, "--"];
    rows.push(row("landlock-run, the reference's profile", &[&[drop_in.as_str()], &grants[..]].concat()));
    let read_only =
        ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--proc", "/proc", "--die-with-parent"];
    let writable = ["--tmpfs", "/tmp", "--bind", &root, &root];
    rows.push(row("bubblewrap, the reference's read-only profile", &[&read_only[..], &["--"]].concat()));
    rows.push(row(
        "bubblewrap, the reference's workspace-write profile",
        &[&read_only[..], &writable, &["--"]].concat(),
    ));
    let all = ["--unshare-all", "--"];
    rows.push(row("bubblewrap, workspace-write and --unshare-all", &[&read_only[..], &writable, &all].concat()));
    let works = |row: &Row| match time(row) {
        Ok(_) => true,
        Err(why) => {
            missing.push(why);
            false
        }
    };
    rows.retain(works);
    (rows, missing)
}

fn row(name: &str, before: &[&str]) -> Row {
    let argv = before.iter().chain([&TRUE]).map(|word| (*word).to_owned()).collect();
    Row { name: name.to_owned(), argv, times: Vec::new() }
}

/// The argv that a caller of ours would spawn, with these words for the roots.
fn confined(pinfold: &Path, backend: &str, mode: &str, roots: &[String]) -> Result<Vec<String>, String> {
    let mut command = Command::new(pinfold);
    command.args(["confine", "--json", "--backend", backend, "--mode", mode]).args(roots).args(["--", TRUE]);
    let printed = output(&mut command)?;
    let json: Value = serde_json::from_str(&printed).map_err(|error| format!("pinfold confine: {error}"))?;
    // The confined argv stands by itself or beside the report.
    let argv = [&json["argv"], &json["confined"]["argv"]].into_iter().find_map(Value::as_array);
    let argv = argv.ok_or("pinfold confine printed no argv")?;
    argv.iter().map(|word| word.as_str().map(str::to_owned).ok_or("a word that is not text".to_owned())).collect()
}

/// Starts it once and waits for it; returns microseconds.
fn time(row: &Row) -> Result<f64, String> {
    let (program, arguments) = row.argv.split_first().ok_or("nothing to start")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status().map_err(|error| format!("{}: cannot start {program}: {error}", row.name))?;
    let took = begun.elapsed().as_secs_f64() * 1e6;
    if status.success() { Ok(took) } else { Err(format!("{}: {status}", row.name)) }
}

fn print(rows: &[Row], rounds: usize) {
    let Some(bare) = rows.first() else { return };
    println!("| what is started | ratio to bare | added |\n|---|---|---|");
    for row in rows {
        let pairs = || row.times.iter().zip(&bare.times);
        let ratio = median(pairs().map(|(time, bare)| time / bare).collect());
        let added = median(pairs().map(|(time, bare)| time - bare).collect());
        println!("| {} | {ratio:.2} | {added:.0} µs |", row.name);
    }
    println!("\nMedians of {rounds} pairs; bare is `{TRUE}`, {:.0} µs.", median(bare.times.clone()));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 100.0]), 3.0);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_program_that_fails_is_no_measurement() {
        assert!(time(&Row { name: "x".to_owned(), argv: vec!["false".to_owned()], times: Vec::new() }).is_err());
        assert!(time(&row("bare", &[])).is_ok_and(|took| took > 0.0));
    }
}
