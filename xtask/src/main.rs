//! Developer tasks: `cargo xtask ci | lint | gen | old-kernel | bench`.
//!
//! Here belongs what checks or measures the workspace from outside, with Cargo, Git and the programs that it builds.
//! No crate of ours may be linked here, so that a broken one cannot keep its own check from building.

#![forbid(unsafe_code)]

mod bench;
mod ci;
mod generated;
mod lint;
mod mcp_clients;
mod old_kernel;
mod source;
mod step;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
Run a developer task of Pinfold

Usage: cargo xtask TASK

  ci                     everything that CI runs, in its order; the last line counts the tests
  lint                   our own lints: crate edges, unsafe, conditions, names, sizes, documents
  gen [--check]          write (or compare) the documents that are made from the code
  old-kernel             a smoke part of the suite on Linux 6.1 in a virtual machine (part of ci)
  bench broker [ROUNDS]  what work costs with protected names, beside the same without and outside (default 11 rounds)
  bench fence [ROUNDS]   what files cost by the fence, beside std (default 11 rounds; writes a temporary directory only)
  bench mcp              what the Model Context Protocol adds to a command, and whether memory stays (1,000 calls, 32 at once)
  bench spawn [ROUNDS]   what a confined spawn costs, beside others (default 300 rounds; writes nothing)
  bench roots [ROUNDS]   what a start costs with 1,000 writable roots, beside one with one (default 30 rounds)
  bench session          what it costs to replay a session's log, by its length
  bench steady [ROUNDS]  what work costs inside the walls, beside the same outside (default 11 rounds)
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["ci"] => ci::run(),
        ["lint"] => lint::run(),
        ["gen"] => generated::run(generated::Act::Write),
        ["gen", "--check"] => generated::run(generated::Act::Compare),
        ["old-kernel"] => old_kernel::run(),
        ["bench", what] => bench(what, None),
        ["bench", what, rounds] => match rounds.parse() {
            Ok(rounds) => bench(what, Some(rounds)),
            Err(_) => Err(format!("not a number of rounds: {rounds}")),
        },
        ["-h" | "--help" | "help"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            if !why.is_empty() {
                eprintln!("{why}");
            }
            ExitCode::FAILURE
        }
    }
}

fn bench(what: &str, rounds: Option<usize>) -> Result<(), String> {
    match what {
        "broker" => bench::broker::run(rounds.unwrap_or(11)),
        "fence" => bench::fence::run(rounds.unwrap_or(11)),
        "mcp" => bench::mcp::run(),
        "spawn" => bench::spawn(rounds.unwrap_or(300)),
        "roots" => bench::roots::run(rounds.unwrap_or(30)),
        "session" => bench::session::run(),
        "steady" => bench::steady::run(rounds.unwrap_or(11)),
        _ => Err(USAGE.to_owned()),
    }
}
