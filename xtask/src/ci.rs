//! `cargo xtask ci`: every check, in an order in which the cheap and the telling come first.
//!
//! Every step runs, also after one has failed, except that nothing is tested that could not be built. A step of tests
//! that ran none, or left one out that this host must be able to run, has failed.

use crate::step::{self, Tally};
use crate::workspace::{Workspace, output};
use crate::{generated, lint, mcp_clients, old_kernel};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// The ordinary user under whom the security suites run once more when we are root.
const ORDINARY_USER: &str = "1000";

/// That user's own directory, in the folder of copies. Short: names of sockets below it have 107 bytes (unix(7)).
const HOME: &str = "h";

/// What a step of tests may leave out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ignored {
    /// Tests with a reason.
    Some,
    /// None: each is a proof about a required backend.
    None,
}

struct Run {
    workspace: Workspace,
    tally: Tally,
    /// Steps that failed, with the reason.
    broken: Vec<String>,
}

pub(crate) fn run() -> Result<(), String> {
    let mut run = Run { workspace: Workspace::find()?, tally: Tally::default(), broken: Vec::new() };
    let begun = Instant::now();
    run.steps();
    println!("\nci: {}", seconds(begun.elapsed()));
    for broken in &run.broken {
        println!("ci: failed: {broken}");
    }
    // A step that failed without naming a test counts as one.
    let failed = run.tally.failed.max(run.broken.len() as u64);
    match run.tally.ignored {
        0 => println!("{} passed, {failed} failed", run.tally.passed),
        skipped => println!("{} passed, {failed} failed, {skipped} skipped", run.tally.passed),
    }
    // The closing line stays the last one.
    if failed == 0 { Ok(()) } else { Err(String::new()) }
}

impl Run {
    fn steps(&mut self) {
        self.check("host", host);
        self.cargo("format", &["fmt", "--all", "--", "--check", "-l"]);
        self.cargo(
            "clippy",
            &["clippy", "--workspace", "--exclude", "pinfold-launcher", "--all-targets", "--", "-D", "warnings"],
        );
        // The launcher's programs have no start-up code and cannot be built as tests.
        self.cargo(
            "clippy of the launcher",
            &["clippy", "-p", "pinfold-launcher", "--lib", "--bins", "--", "-D", "warnings"],
        );
        let tests = ["clippy", "-p", "pinfold-launcher", "--lib", "--profile", "test", "--", "-D", "warnings"];
        self.cargo("clippy of the launcher's tests", &tests);
        self.check("lint", lint::run);
        let built = self.cargo("build", &["build", "--workspace", "--bins"]);
        if !built {
            return;
        }
        self.check("generated documents", || generated::run(generated::Act::Compare));
        self.document();
        self.tests(
            "unit, golden and integration tests",
            &["--workspace", "--exclude", "pinfold-conformance"],
            Ignored::Some,
        );
        self.mcp_clients();
        match test_programs(&self.workspace, "pinfold-conformance") {
            Err(why) => self.broken.push(format!("conformance: {why}")),
            Ok(programs) => {
                self.conformance(&programs);
                self.old_kernel(&programs);
            }
        }
        if is_root() {
            self.as_ordinary_user();
        }
    }

    fn conformance(&mut self, programs: &[TestProgram]) {
        let (masked, open): (Vec<_>, Vec<_>) = programs.iter().partition(|program| program.name.contains("mask"));
        self.programs("conformance", &open, None);
        self.programs("conformance on older kernels, by masking", &masked, None);
        self.by_resident(&open);
    }

    /// What the launcher's own suites say of it holds for a resident one.
    fn by_resident(&mut self, programs: &[&TestProgram]) {
        let name = "by a resident launcher, and prepared ahead";
        println!("\n== {name}");
        let begun = Instant::now();
        let (mut tally, mut outcome) = (Tally::default(), Ok(()));
        // Under namespaces the calls of these suites are prepared ahead, but for those with files or terminals for streams.
        let suites: [(&[&str], &[&str]); 2] = [
            (&["lifecycle", "streams"], &["namespace/", "landlock/"]),
            (&["ends", "roots", "report", "doors"], &["namespace"]),
        ];
        let chosen = suites.iter().flat_map(|(names, filters)| {
            let chosen = programs.iter().filter(|it| names.contains(&it.name.as_str()));
            chosen.map(move |program| (program, *filters))
        });
        for (program, filters) in chosen {
            for backend in filters {
                let mut command = self.command(&program.path);
                let command = command.arg(backend).env("PINFOLD_TEST_DRIVER", "resident");
                let (counted, result) = step::execute(command, 30 * MINUTE);
                tally.add(counted);
                outcome = outcome.and(result);
            }
        }
        let outcome = outcome.and(if tally == Tally::default() { Err("no test".to_owned()) } else { Ok(()) });
        self.count(name, begun, (tally, outcome), Ignored::None);
    }

    /// The official clients of the Model Context Protocol drive the server. A client that cannot be had is a failure.
    fn mcp_clients(&mut self) {
        let name = "official clients of the Model Context Protocol";
        println!("\n== {name}");
        let begun = Instant::now();
        let result = mcp_clients::drive(&self.workspace);
        self.count(name, begun, result, Ignored::None);
    }

    fn old_kernel(&mut self, programs: &[TestProgram]) {
        let name = "a smoke part on an older kernel";
        println!("\n== {name}");
        let begun = Instant::now();
        let programs: Vec<_> = programs.iter().map(|it| (it.name.clone(), it.path.clone())).collect();
        let result = old_kernel::check(&self.workspace, &programs);
        self.count(name, begun, result, Ignored::None);
    }

    /// As root the suites above also start confined runs as the ordinary user; here all of it is that user's, from the
    /// fixture to the judge. The command line's tests are bound to where they were built, and so to root.
    fn as_ordinary_user(&mut self) {
        let name = format!("security suites, all as uid {ORDINARY_USER}");
        let built = ["pinfold-conformance", "pinfold-providers", "pinfold-executor", "pinfold-fence"]
            .map(|package| test_programs(&self.workspace, package));
        let built = built.into_iter().collect::<Result<Vec<_>, _>>().map(|lists| lists.into_iter().flatten().collect());
        // Everyday tools need a toolchain that this user cannot read; root's run gives them a copy, and covers this user too.
        let built =
            built.map(|programs: Vec<TestProgram>| programs.into_iter().filter(|it| it.name != "tools").collect());
        match built.and_then(|programs: Vec<_>| readable_copy(&self.workspace.debug(), &programs)) {
            Ok((folder, copies)) => {
                let copies: Vec<&TestProgram> = copies.iter().collect();
                self.programs(&name, &copies, Some(&folder));
                if let Err(error) = std::fs::remove_dir_all(&folder) {
                    self.broken.push(format!("cannot remove {}: {error}", folder.display()));
                }
            }
            Err(why) => self.broken.push(format!("{name}: {why}")),
        }
    }

    fn check(&mut self, name: &str, act: impl FnOnce() -> Result<(), String>) {
        println!("\n== {name}");
        let begun = Instant::now();
        let outcome = act();
        self.close(name, begun, outcome);
    }

    fn close(&mut self, name: &str, begun: Instant, outcome: Result<(), String>) {
        let time = seconds(begun.elapsed());
        match outcome {
            Ok(()) => println!("-- {name}: {time}"),
            Err(why) => {
                println!("-- {name}: FAILED after {time}: {why}");
                self.broken.push(format!("{name}: {why}"));
            }
        }
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.workspace.root);
        command.env("PINFOLD_BIN_DIR", self.workspace.debug()).env("RUST_BACKTRACE", "0");
        command
    }

    /// Runs Cargo; true if it succeeded.
    fn cargo(&mut self, name: &str, arguments: &[&str]) -> bool {
        let mut command = self.command(env!("CARGO"));
        command.args(arguments);
        let before = self.broken.len();
        self.check(name, || step::execute(&mut command, 20 * MINUTE).1);
        self.broken.len() == before
    }

    fn document(&mut self) {
        let mut command = self.command(env!("CARGO"));
        command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
        self.check("documentation", || step::execute(&mut command, 20 * MINUTE).1);
    }

    /// Runs tests by Cargo.
    fn tests(&mut self, name: &str, packages: &[&str], ignored: Ignored) {
        let mut command = self.command(env!("CARGO"));
        command.arg("test").arg("--no-fail-fast").args(packages);
        println!("\n== {name}");
        let begun = Instant::now();
        let result = step::execute(&mut command, 30 * MINUTE);
        self.count(name, begun, result, ignored);
    }

    /// Runs built test programs, all of them, as we are or as the ordinary user from a folder of copies.
    fn programs(&mut self, name: &str, programs: &[&TestProgram], folder: Option<&Path>) {
        println!("\n== {name}");
        let begun = Instant::now();
        let (mut tally, mut outcome) = (Tally::default(), Ok(()));
        for program in programs {
            let mut command = match folder {
                None => self.command(&program.path),
                Some(folder) => self.ordinary_users(program, folder),
            };
            println!("{}:", program.name);
            let (counted, result) = step::execute(&mut command, 30 * MINUTE);
            let result = result.and(if counted == Tally::default() { Err("no test".to_owned()) } else { Ok(()) });
            tally.add(counted);
            if let Err(why) = result {
                outcome = Err(format!("{}: {why}", program.name));
            }
        }
        self.count(name, begun, (tally, outcome), Ignored::None);
    }

    /// The command of a test program that is the ordinary user's in everything that it inherits.
    fn ordinary_users(&self, program: &TestProgram, folder: &Path) -> Command {
        let home = folder.join(HOME);
        let mut command = self.command("setpriv");
        command.args(["--reuid", ORDINARY_USER, "--regid", ORDINARY_USER, "--clear-groups", "--"]);
        command.arg(&program.path).current_dir(&home);
        command
            .env("PINFOLD_BIN_DIR", folder)
            .env("PINFOLD_TEST_BASE", &home)
            .env("PINFOLD_TEST_DIR", &home)
            .env("HOME", &home);
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        for name in ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TMPDIR"] {
            command.env_remove(name);
        }
        command
    }

    fn count(&mut self, name: &str, begun: Instant, (tally, outcome): (Tally, Result<(), String>), ignored: Ignored) {
        self.tally.add(tally);
        let outcome = outcome.and(if tally.passed + tally.failed == 0 {
            Err("no test ran".to_owned())
        } else if ignored == Ignored::None && tally.ignored > 0 {
            Err(format!("{} tests were left out; this host must run all", tally.ignored))
        } else {
            Ok(())
        });
        println!("{} passed, {} failed, {} ignored in this step", tally.passed, tally.failed, tally.ignored);
        self.close(name, begun, outcome);
    }
}

/// What this host must have: a missing backend is a failure here, never a skip later.
fn host() -> Result<(), String> {
    let lacking = |what: &str| Err(format!("{what} (see .ci/run for what to install)"));
    if !Path::new("/usr/bin/bwrap").is_file() {
        return lacking("/usr/bin/bwrap is missing");
    }
    if let Err(why) = output(Command::new("unshare").args(["--user", "--mount", "true"])) {
        return lacking(&format!("no user namespaces: {why}"));
    }
    let security = std::fs::read_to_string("/sys/kernel/security/lsm");
    if security.is_ok_and(|list| !list.contains("landlock")) {
        return lacking("the kernel's Landlock is not enabled");
    }
    if is_root() && output(Command::new("setpriv").args(["--reuid", ORDINARY_USER, "true"])).is_err() {
        return lacking("setpriv does not work");
    }
    println!("as uid {}", output(Command::new("id").arg("-u"))?.trim());
    Ok(())
}

fn is_root() -> bool {
    output(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0")
}

/// A test program that Cargo has built.
pub(crate) struct TestProgram {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Builds the integration tests of a package and asks Cargo what they are called.
pub(crate) fn test_programs(workspace: &Workspace, package: &str) -> Result<Vec<TestProgram>, String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "-p", package, "--tests", "--no-run", "--message-format", "json"]);
    let messages = output(cargo.current_dir(&workspace.root))?;
    let mut programs = Vec::new();
    for message in messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let is_test = message["target"]["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"));
        if let (true, Some(path)) = (is_test, message["executable"].as_str()) {
            programs.push(TestProgram {
                name: message["target"]["name"].as_str().unwrap_or("?").to_owned(),
                path: path.into(),
            });
        }
    }
    // What is quick to fail comes first.
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(programs)
}

/// Our programs among what Cargo has built.
pub(crate) fn our_programs(binaries: &Path) -> Result<Vec<PathBuf>, String> {
    let fail = |error: std::io::Error| format!("{}: {error}", binaries.display());
    let mut programs = Vec::new();
    for entry in std::fs::read_dir(binaries).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let is_program = entry.file_type().map_err(fail)?.is_file() && entry.path().extension().is_none();
        let name = entry.file_name();
        let is_ours = [&b"pinfold"[..], b"landlock-run"].iter().any(|ours| name.as_encoded_bytes().starts_with(ours));
        if is_program && is_ours {
            programs.push(entry.path());
        }
    }
    Ok(programs)
}

/// Copies our programs and the tests to where the ordinary user can execute them, with a directory to be at home in. Not
/// below a temporary directory: those are private inside the walls.
fn readable_copy(binaries: &Path, programs: &[TestProgram]) -> Result<(PathBuf, Vec<TestProgram>), String> {
    let made = output(Command::new("mktemp").args(["-d", "/opt/pf.XXXXXX"]))?;
    let folder = PathBuf::from(made.trim());
    let fail = |error: std::io::Error| format!("cannot copy to {}: {error}", folder.display());
    output(Command::new("chmod").arg("755").arg(&folder))?;
    for program in our_programs(binaries)? {
        std::fs::copy(&program, folder.join(program.file_name().unwrap_or_default())).map_err(fail)?;
    }
    let home = folder.join(HOME);
    std::fs::create_dir(&home).map_err(fail)?;
    output(Command::new("chown").arg(format!("{ORDINARY_USER}:{ORDINARY_USER}")).arg(&home))?;
    let mut copies = Vec::new();
    for program in programs {
        let path = folder.join(format!("test-{}", program.name));
        std::fs::copy(&program.path, &path).map_err(fail)?;
        copies.push(TestProgram { name: program.name.clone(), path });
    }
    Ok((folder, copies))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
