//! `cargo xtask bench steady`: what work costs inside the walls once it has begun, beside the same work without walls.
//!
//! Each piece of work tells itself how long it took, so that the start is not counted. All backends do it in every round, in
//! another order each time, and are compared with the unconfined run of the same round.

use super::{Folder, build, median};
use crate::workspace::output;
use std::path::Path;
use std::process::{Command, Stdio};

/// A name, what is done before the clock starts, and the work. Both are shell scripts in the workspace.
type Work = (&'static str, &'static str, &'static str);

// A few directories of /usr are for a capability that root does not have inside.
const WORK: [Work; 5] = [
    ("find over /usr", "", "find /usr -xdev > /dev/null 2>&1 || :"),
    ("20,000 creates", "rm -rf d; mkdir d", "i=0; while [ $i -lt 20000 ]; do : > d/$i; i=$((i + 1)); done"),
    (
        "git commit of 2,000 files",
        "rm -rf g; mkdir g; cd g; git init -q .; i=0; while [ $i -lt 2000 ]; do echo $i > $i; i=$((i + 1)); done",
        "git add -A; git -c user.name=A -c user.email=a@b commit -qm x",
    ),
    (
        "cargo build",
        "rm -rf c; mkdir -p c/src; cd c; printf '[package]\\nname = \"c\"\\nedition = \"2021\"\\n' > Cargo.toml; \
         echo 'fn main() { println!(\"{:?}\", std::env::args().collect::<Vec<_>>()); }' > src/main.rs",
        "\"$CARGO\" build -q --offline",
    ),
    (
        "20,000 opens at depth 60",
        "p=.; i=0; while [ $i -lt 60 ]; do p=$p/d; i=$((i + 1)); done; mkdir -p $p; echo x > $p/f",
        "i=0; while [ $i -lt 20000 ]; do read x < $p/f; i=$((i + 1)); done",
    ),
];

const BACKENDS: [&str; 4] = ["unconfined", "namespace", "bwrap", "landlock"];

pub(crate) fn run(rounds: usize) -> Result<(), String> {
    let release = build()?;
    let folder = Folder::new()?;
    println!("| work | unconfined | {} |\n|---|---|---|---|---|", BACKENDS[1..].join(" | "));
    for work in WORK {
        // Once each for what is read for the first time.
        for backend in BACKENDS {
            time(&release, &folder.0, backend, work)?;
        }
        let mut times: [Vec<f64>; BACKENDS.len()] = Default::default();
        for round in 0..rounds {
            for turn in 0..BACKENDS.len() {
                let index = (round + turn) % BACKENDS.len();
                times[index].push(time(&release, &folder.0, BACKENDS[index], work)?);
            }
        }
        let [bare, confined @ ..] = &times;
        let ratios = confined.iter().map(|times| {
            let ratio = median(times.iter().zip(bare).map(|(time, bare)| time / bare).collect());
            format!("{ratio:.3}")
        });
        println!("| {} | {:.0} ms | {} |", work.0, median(bare.clone()), ratios.collect::<Vec<_>>().join(" | "));
    }
    println!("\nMedians of {rounds} rounds; ratios are those of pairs.");
    Ok(())
}

/// Does the work once; returns milliseconds.
fn time(release: &Path, root: &Path, backend: &str, (name, before, work): Work) -> Result<f64, String> {
    let script = format!("set -e; {before}\na=$(date +%s%N)\n{work}\nb=$(date +%s%N)\necho $((b - a))");
    let mut command = if backend == "unconfined" {
        Command::new("/bin/sh")
    } else {
        let mut command = Command::new(release.join("pinfold"));
        command.args(["run", "--backend", backend, "--mode", "workspace-write", "--workspace"]).arg(root);
        command.args(["--", "/bin/sh"]);
        command
    };
    command.args(["-c", &script]).current_dir(root).stdin(Stdio::null());
    command.env("CARGO", env!("CARGO")).env("CARGO_HOME", root.join("home")).env_remove("CARGO_TARGET_DIR");
    // Cargo starts the compiler beside it, not whatever stands first in PATH.
    if let Some(folder) = Path::new(env!("CARGO")).parent() {
        command.env("RUSTC", folder.join("rustc"));
    }
    let said = output(&mut command).map_err(|why| format!("{name}, {backend}: {why}"))?;
    let nanoseconds: f64 = said.trim().parse().map_err(|_| format!("{name}, {backend}: it printed {said:?}"))?;
    Ok(nanoseconds / 1e6)
}
