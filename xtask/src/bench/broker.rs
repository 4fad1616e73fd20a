//! `cargo xtask bench broker`: what the broker costs, for work that makes many files and for work that makes none.
//!
//! Each piece of work is prepared without walls (git makes no repository inside) and tells itself how long it took, so that
//! starts are not counted. All walls do it in every round, in another order each time, and are compared with the unconfined run
//! of the same round.

use super::{Folder, build, median};
use crate::workspace::output;
use std::path::Path;
use std::process::{Command, Stdio};

/// What is measured.
struct Work {
    name: &'static str,
    /// Done once.
    first: &'static str,
    /// Done before each time.
    before: &'static str,
    work: &'static str,
    /// The most that it should cost without and with the broker, as ratios.
    aims: (f64, f64),
}

const FILES: &str = "
    mkdir -p all; i=0; while [ $i -lt 200 ]; do mkdir all/$i; j=0; while [ $j -lt 100 ]; do echo $i.$j > all/$i/$j; j=$((j + 1)); done
    i=$((i + 1)); done; tar cf all.tar all";

const PACKAGES: &str = "
    i=0; while [ $i -lt 30 ]; do rm -rf package; mkdir -p package/lib; j=0
    while [ $j -lt 50 ]; do echo \"module.exports = $j\" > package/lib/$j.js; j=$((j + 1)); done
    printf '{\"name\":\"p%s\",\"version\":\"1.0.0\",\"main\":\"lib/0.js\"}' $i > package/package.json
    tar czf p$i.tgz package; i=$((i + 1)); done; rm -r package";

const WORK: [Work; 5] = [
    Work {
        name: "git commit of 1,000 files",
        first: "",
        before: "rm -rf g; mkdir g; cd g; git init -q .; i=0; while [ $i -lt 1000 ]; do echo $i > $i; i=$((i + 1)); done",
        work: "git add -A; git -c user.name=A -c user.email=a@b commit -qm x",
        aims: (1.05, 1.25),
    },
    Work {
        name: "extraction of 20,000 files",
        first: FILES,
        before: "rm -rf out; mkdir out; cd out",
        work: "tar xf ../all.tar",
        aims: (1.05, 1.6),
    },
    Work {
        name: "cargo build",
        first: "",
        before: "rm -rf c; mkdir -p c/src; cd c; printf '[package]\\nname = \"c\"\\nedition = \"2021\"\\n' > Cargo.toml; \
                 echo 'fn main() { println!(\"{:?}\", std::env::args().collect::<Vec<_>>()); }' > src/main.rs",
        work: "\"$CARGO\" build -q --offline",
        aims: (1.05, 1.25),
    },
    Work {
        name: "npm install of 30 packages",
        first: PACKAGES,
        before: "rm -rf n; mkdir n; cd n; echo '{\"name\":\"n\",\"version\":\"1.0.0\"}' > package.json",
        work: "npm install --offline --no-audit --no-fund --cache ../npm-cache ../p*.tgz > /dev/null",
        aims: (1.05, 1.25),
    },
    Work {
        name: "reading 20,000 files",
        first: "",
        before: "",
        work: "find all -type f -exec cat {} + > /dev/null",
        aims: (1.05, 1.05),
    },
];

/// What stands around the work: a name, and the options of `pinfold run` that make it.
const WALLS: [(&str, &[&str]); 5] = [
    ("unconfined", &[]),
    ("namespace", &["--backend", "namespace"]),
    ("namespace, protect", &["--backend", "namespace", "--protect", "default"]),
    ("landlock", &["--backend", "landlock"]),
    ("landlock, protect", &["--backend", "landlock", "--protect", "default"]),
];

pub(crate) fn run(rounds: usize) -> Result<(), String> {
    let release = build()?;
    let folder = Folder::new()?;
    let names: Vec<&str> = WALLS.iter().map(|(name, _)| *name).collect();
    println!("| work | {} | aims |\n|---|{}---|", names.join(" | "), "---|".repeat(names.len()));
    for work in &WORK {
        script(&release, &folder.0, &[], work.first)?;
        // Once each for what is read for the first time.
        for (_, options) in WALLS {
            time(&release, &folder.0, options, work)?;
        }
        let mut times: [Vec<f64>; WALLS.len()] = Default::default();
        for round in 0..rounds {
            for turn in 0..WALLS.len() {
                let index = (round + turn) % WALLS.len();
                times[index].push(time(&release, &folder.0, WALLS[index].1, work)?);
            }
        }
        let [bare, confined @ ..] = &times;
        let ratios = confined.iter().map(|times| {
            let ratio = median(times.iter().zip(bare).map(|(time, bare)| time / bare).collect());
            format!("{ratio:.2}")
        });
        let ratios: Vec<String> = ratios.collect();
        let (without, with) = work.aims;
        println!("| {} | {:.0} ms | {} | {without}, {with} |", work.name, median(bare.clone()), ratios.join(" | "));
    }
    println!("\nMedians of {rounds} rounds; ratios are those of pairs.");
    Ok(())
}

/// Prepares the work without walls, and does it inside; returns milliseconds.
fn time(release: &Path, root: &Path, options: &[&str], work: &Work) -> Result<f64, String> {
    script(release, root, &[], work.before)?;
    // Where the preparation ended.
    let place = work.before.rsplit("cd ").next().filter(|_| work.before.contains("cd "));
    let place = place.and_then(|rest| rest.split(';').next()).unwrap_or(".").trim();
    let text = format!("cd {place}; a=$(date +%s%N)\n{}\nb=$(date +%s%N)\necho $((b - a))", work.work);
    let said = script(release, root, options, &text).map_err(|why| format!("{}, {options:?}: {why}", work.name))?;
    let nanoseconds: f64 = said.trim().parse().map_err(|_| format!("{}: it printed {said:?}", work.name))?;
    Ok(nanoseconds / 1e6)
}

/// Runs a script in the workspace, without walls if there are no options.
fn script(release: &Path, root: &Path, options: &[&str], text: &str) -> Result<String, String> {
    let mut command = if options.is_empty() {
        Command::new("/bin/sh")
    } else {
        let mut command = Command::new(release.join("pinfold"));
        command.arg("run").args(options).args(["--mode", "workspace-write", "--workspace"]).arg(root);
        command.args(["--", "/bin/sh"]);
        command
    };
    command.args(["-ec", text]).current_dir(root).stdin(Stdio::null());
    command.env("CARGO", env!("CARGO")).env("CARGO_HOME", root.join("home")).env_remove("CARGO_TARGET_DIR");
    // Cargo starts the compiler beside it, not whatever stands first in PATH.
    if let Some(folder) = Path::new(env!("CARGO")).parent() {
        command.env("RUSTC", folder.join("rustc"));
    }
    output(&mut command)
}
