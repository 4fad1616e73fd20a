//! `cargo xtask bench fence`: what writing and reading small files costs by the fence, beside the standard library.
//!
//! Both run in turn, in directories of their own, and each round is compared with itself.

use super::{Folder, median};
use crate::workspace::{Workspace, output};
use std::path::Path;
use std::process::Command;

/// Writing and reading, in microseconds per file.
type Times = (f64, f64);

/// Files per round; synchronised ones are fewer, because a disk is slow. Short rounds meet the same disk.
const FILES: usize = 2_000;

pub(crate) fn run(rounds: usize) -> Result<(), String> {
    let workspace = Workspace::find()?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "-p", "pinfold-fence", "--example", "small_files"]);
    output(cargo.current_dir(&workspace.root))?;
    let program = workspace.target.join("release/examples/small_files");
    println!("| what is done | write and read, ratio to std | write | read |\n|---|---|---|---|");
    let mut bare = Vec::new();
    for (durability, files) in [("unsynced", FILES), ("synced", FILES / 20)] {
        let mut all: [Vec<Times>; 3] = Default::default();
        for _ in 0..rounds {
            for (times, how) in all.iter_mut().zip(["std", "fence", "plain"]) {
                times.push(once(&program, how, files, durability)?);
            }
        }
        let [std, fence, plain] = all;
        print_row(&format!("fence, {durability}, {files} files"), &fence, &std);
        if durability == "unsynced" {
            print_row("std, truncate and write in place", &plain, &std);
        }
        bare.push((
            durability,
            median(std.iter().map(|it| it.0).collect()),
            median(std.iter().map(|it| it.1).collect()),
        ));
    }
    println!();
    for (durability, write, read) in bare {
        println!("std, {durability}: {write:.1} µs per write (a file beside, a rename over), {read:.1} µs per read.");
    }
    match [calls(&program, "std")?, calls(&program, "fence")?] {
        [Some(std), Some(fence)] => println!("Calls of fsync for 100 synchronised writes: std {std}, fence {fence}."),
        _ => println!("Calls of fsync were not counted: there is no strace."),
    }
    Ok(())
}

fn once(program: &Path, how: &str, files: usize, durability: &str) -> Result<Times, String> {
    let folder = Folder::new()?;
    let text = output(Command::new(program).args([how, &files.to_string(), durability]).arg(&folder.0))?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(write)), Some(Ok(read))) => Ok((write, read)),
        _ => Err(format!("{} printed {text:?}", program.display())),
    }
}

fn print_row(name: &str, times: &[Times], std: &[Times]) {
    let ratio = |of: fn(&Times) -> f64| median(times.iter().zip(std).map(|(one, other)| of(one) / of(other)).collect());
    let (both, write, read) = (ratio(|it| it.0 + it.1), ratio(|it| it.0), ratio(|it| it.1));
    println!("| {name} | {both:.2} | {write:.2} | {read:.2} |");
}

/// How often files and directories are synchronised; `None` without strace.
fn calls(program: &Path, how: &str) -> Result<Option<usize>, String> {
    let folder = Folder::new()?;
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=fsync,fdatasync"]).arg(program).args([how, "100", "synced"]).arg(&folder.0);
    let Ok(run) = command.output() else { return Ok(None) };
    if !run.status.success() {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&run.stderr);
    Ok(Some(text.lines().filter(|line| line.contains("sync(")).count()))
}
