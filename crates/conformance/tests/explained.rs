//! What `pinfold explain` answers is what happens: random policies over random trees, one operation at a time.
//!
//! Tests are called `WALLS/UID/answers-are-what-happens`. Each case lays a tree out, asks what would happen to one path, lets a program try it under
//! `pinfold run` with the same options, and tries the same without walls in the same tree: that control must succeed, or the
//! question says nothing. A failing case prints its seed; `PINFOLD_EXPLAIN_SEED=N` plays it alone, and
//! `PINFOLD_EXPLAIN_SECONDS=3600` plays new ones for an hour for each set of walls.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::start::{Backend, Mode, find_binary, uids};
use pinfold_conformance::walls::{Walls, expect, written};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Policies and trees in an ordinary run, and questions about each.
const CASES: u64 = 5;
const QUESTIONS: usize = 14;

/// A backend, and whether names are protected: then the broker stands beside it.
const WALLS: [(Backend, bool); 5] = [
    (Backend::Namespace, false),
    (Backend::Namespace, true),
    (Backend::Bwrap, false),
    (Backend::Landlock, false),
    (Backend::Landlock, true),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (backend, brokered) in WALLS {
        for uid in uids() {
            let name =
                format!("{}{}/{uid}/answers-are-what-happens", backend.name(), if brokered { "-broker" } else { "" });
            trials.push(Trial::test(name, move || play(backend, brokered, uid).map_err(Failed::from)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn play(backend: Backend, brokered: bool, uid: u32) -> Result<(), String> {
    let world = World::new(uid)?;
    let until =
        from_environment("PINFOLD_EXPLAIN_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let alone = from_environment("PINFOLD_EXPLAIN_SEED");
    let first = alone.unwrap_or_else(|| if until.is_some() { u64::from(std::process::id()) << 20 } else { 1 });
    let mut tally = Tally::default();
    for seed in first.. {
        world
            .case(backend, brokered, seed, &mut tally)
            .map_err(|error| format!("PINFOLD_EXPLAIN_SEED={seed}: {error}"))?;
        let last = until.map_or(seed + 1 >= first + CASES, |until| Instant::now() >= until);
        if alone.is_some() || last {
            break;
        }
    }
    // A test in which nothing was refused, or nothing was let through, would prove little.
    expect(alone.is_some() || (tally.done > 5 && tally.refused > 5), format!("{tally:?}"))
}

#[derive(Debug, Default)]
struct Tally {
    done: u64,
    refused: u64,
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

const DIRECTORIES: [&str; 16] = [
    "a",
    "a/b",
    "a/b/c",
    "sp ace",
    "new\nline",
    "gl[o]b*",
    "ünï",
    ".git",
    ".git/hooks",
    ".git/info",
    ".git/refs",
    "a/.git",
    "a/.git/hooks",
    ".vscode",
    "bare",
    "a/b/.vscode",
];
const FILES: [&str; 16] = [
    "f",
    "key.pem",
    ".envrc",
    "Makefile",
    "config",
    "HEAD",
    "x",
    "-dash",
    "a.pem",
    "tasks.json",
    "pre-commit",
    "secret",
    "gitdir",
    "attributes",
    "commondir",
    "\u{1b}[2J",
];
const PATTERNS: [&str; 7] = ["**/*.pem", "a/**", "*/f", "a/b", "**/secret", "sp ace/x", "gl\\[o\\]b\\*"];

struct World {
    walls: Walls,
    act: PathBuf,
}

/// One policy, as words of the command line.
#[derive(Debug, Default)]
struct Options(Vec<OsString>);

impl Options {
    fn add(&mut self, option: &str, value: impl AsRef<OsStr>) {
        let mut word = OsString::from(option);
        word.push("=");
        word.push(value);
        self.0.push(word);
    }
}

impl World {
    fn new(uid: u32) -> Result<Self, String> {
        let walls = Walls::new(uid)?;
        let act = walls.fixture.bin().join("pinfold-act");
        let binary = find_binary("pinfold-act", "pinfold-conformance")?;
        // Not by this process: whatever another thread starts meanwhile would hold the file open for writing (ETXTBSY).
        let copied = Command::new("cp").arg(&binary).arg(&act).status().map_err(|error| format!("cp: {error}"))?;
        expect(copied.success(), format!("cp {}: {copied}", binary.display()))?;
        fs::set_permissions(&act, fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
        Ok(Self { walls, act })
    }

    fn trees(&self) -> [PathBuf; 2] {
        [self.walls.fixture.ws(), self.walls.fixture.out()]
    }

    /// Lays both trees out; the same seed gives the same trees.
    fn lay_out(&self, seed: u64) -> std::io::Result<()> {
        let mut random = Random(seed);
        let uid = self.walls.fixture.uid;
        let owned = |path: &Path| lchown(path, Some(uid), Some(uid));
        for tree in self.trees() {
            // Without walls a tree itself may have been moved or removed.
            let mut moved = tree.clone().into_os_string();
            moved.push(".moved");
            if tree.symlink_metadata().is_err() && fs::rename(moved, &tree).is_err() {
                fs::create_dir(&tree)?;
                owned(&tree)?;
            }
            fs::set_permissions(&tree, fs::Permissions::from_mode(0o755))?;
            for entry in fs::read_dir(&tree)? {
                let path = entry?.path();
                if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(&path)? } else { fs::remove_file(&path)? }
            }
            let mut directories = vec![tree.clone()];
            for name in DIRECTORIES {
                let path = tree.join(name);
                if random.chance(55) && path.parent().is_some_and(Path::is_dir) {
                    fs::create_dir(&path)?;
                    owned(&path)?;
                    directories.push(path);
                }
            }
            for _ in 0..12 {
                let path = random.pick(&directories).join(random.pick(&FILES));
                if path.symlink_metadata().is_err() {
                    fs::write(&path, format!("of {path:?}"))?;
                    owned(&path)?;
                }
            }
            for _ in 0..5 {
                let at = random.pick(&directories).join(format!("link{}", random.below(9)));
                let [ws, out] = self.trees();
                let target = match random.below(6) {
                    0 => out.join(random.pick(&DIRECTORIES)),
                    1 => ws.join(random.pick(&DIRECTORIES)),
                    2 => random.pick(&directories).join(random.pick(&FILES)),
                    3 => PathBuf::from("..").join(random.pick(&FILES)),
                    4 => PathBuf::from(random.pick(&FILES)),
                    _ => PathBuf::from("."),
                };
                if at.symlink_metadata().is_err() {
                    symlink(target, &at)?;
                    owned(&at)?;
                }
            }
        }
        Ok(())
    }

    /// Every path of both trees.
    fn paths(&self) -> std::io::Result<Vec<PathBuf>> {
        let mut all = self.trees().to_vec();
        let mut next = 0;
        while next < all.len() {
            if all[next].symlink_metadata()?.is_dir() {
                let mut entries: Vec<PathBuf> =
                    fs::read_dir(&all[next])?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
                entries.sort();
                all.extend(entries);
            }
            next += 1;
        }
        Ok(all)
    }

    fn options(&self, backend: Backend, brokered: bool, random: &mut Random, paths: &[PathBuf]) -> Options {
        let mut options = Options::default();
        options.add("--backend", backend.name());
        let mode = if random.chance(80) { Mode::WorkspaceWrite } else { Mode::ReadOnly };
        options.add("--mode", mode.name());
        options.add("--workspace", self.walls.fixture.ws());
        let directories: Vec<&PathBuf> =
            paths.iter().skip(2).filter(|path| path.symlink_metadata().is_ok_and(|it| it.is_dir())).collect();
        // Under read-only the word is refused.
        let further = if mode == Mode::WorkspaceWrite { random.below(3) } else { 0 };
        for _ in 0..further {
            options.add("--writable", random.pick(&directories));
        }
        if backend != Backend::Landlock {
            for _ in 0..random.below(3) {
                if random.chance(50) {
                    options.add("--deny-read", random.pick(&paths[2..]));
                } else {
                    options.add("--deny-read", self.walls.fixture.ws().join(random.pick(&PATTERNS)));
                }
            }
        }
        if brokered {
            options.add("--protect", "default");
            for _ in 0..random.below(3) {
                options.add("--protect", self.walls.fixture.ws().join(random.pick(&PATTERNS)));
            }
        }
        options
    }

    /// An operation, as `explain` and as the program calls it, and a path.
    fn question(random: &mut Random, paths: &[PathBuf]) -> (&'static str, &'static str, PathBuf) {
        let path = random.pick(paths).clone();
        match random.below(8) {
            0 | 1 => ("create", "create", path.join(random.pick(&FILES))),
            2 => ("create", "make-directory", path.join(random.pick(&[".git", "new", ".vscode", "objects", "x.pem"]))),
            3 => ("remove", "remove", path),
            4 => ("rename", "rename", path),
            5 => ("change-metadata", "change-metadata", path),
            6 => ("read", "read", path),
            _ => ("write", "write", path),
        }
    }

    fn pinfold(&self, task: &str, options: &Options) -> Command {
        let mut command = self.walls.plain(&[self.walls.pinfold().as_os_str(), task.as_ref()]);
        command.args(&options.0);
        command
    }

    fn case(&self, backend: Backend, brokered: bool, seed: u64, tally: &mut Tally) -> Result<(), String> {
        let io = |error: std::io::Error| format!("laying out: {error}");
        let mut random = Random(seed ^ 0x5eed);
        self.lay_out(seed).map_err(io)?;
        let paths = self.paths().map_err(io)?;
        let options = self.options(backend, brokered, &mut random, &paths);
        for _ in 0..QUESTIONS {
            let (operation, act, path) = Self::question(&mut random, &paths);
            let without =
                Walls::finish(&mut self.walls.plain(&[self.act.as_os_str(), act.as_ref(), path.as_os_str()]))?;
            let without = written(&without.stdout);
            self.lay_out(seed).map_err(io)?;
            if !without.starts_with("ok") {
                continue;
            }
            let told = self.ask(&options, operation, &path)?;
            let mut run = self.pinfold("run", &options);
            run.args(["--json", "--host-files", "skip", "--"]).args([
                self.act.as_os_str(),
                act.as_ref(),
                path.as_os_str(),
            ]);
            let ran = Walls::finish(&mut run)?;
            let (said, stderr) = (written(&ran.stdout), written(&ran.stderr));
            let context = format!("{act} {path:?} with {:?}: explained {told:?}, met {said:?} {stderr}", options.0);
            self.lay_out(seed).map_err(io)?;
            let Some((ruling, _)) = &told else {
                expect(said.is_empty() && !ran.status.success(), context)?;
                continue;
            };
            // What is read through a cover is not what is there.
            let done = said == without;
            match ruling.as_str() {
                "denied" => {
                    tally.refused += 1;
                    let errors = ["EROFS", "EACCES", "EPERM", "EBUSY", "EXDEV", "ENOENT"];
                    let refused = errors.contains(&said.trim()) || (act == "read" && said.starts_with("ok"));
                    expect(!done && refused, context)?;
                }
                "allowed" | "not-governed" => {
                    tally.done += 1;
                    expect(done, context)?;
                }
                _ => return Err(context),
            }
        }
        Ok(())
    }

    /// The ruling and the rule; none if such a call is refused as a whole.
    fn ask(&self, options: &Options, operation: &str, path: &Path) -> Result<Option<(String, String)>, String> {
        let mut command = self.pinfold("explain", options);
        command.args(["--json", "--operation", operation, "--"]).arg(path);
        let answered = Walls::finish(&mut command)?;
        if !answered.status.success() {
            return Ok(None);
        }
        let answer: Value = serde_json::from_slice(&answered.stdout)
            .map_err(|error| format!("explain: {error}: {}", written(&answered.stdout)))?;
        let word = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        Ok(Some((word("ruling"), word("rule"))))
    }
}
