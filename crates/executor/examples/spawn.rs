//! What a call of the executor costs beside a bare spawn: for `cargo xtask bench spawn`.
//!
//! `spawn LAUNCHER WORKSPACE each ROUNDS` prints, for each way to run `/bin/true`, its name, the median of its ratios to the bare
//! spawn of the same round, the median of what it adds in microseconds, and the ratio of what their fastest tenths take at most
//! (a busy machine moves that less), separated by tabs. `spawn LAUNCHER WORKSPACE at-once COUNT` prints how long so many take to
//! be there at once, in milliseconds, and how much memory they hold then, in KiB each.

use pinfold_executor::{Executor, ExecutorConfig, ManagedVariables, Process, Request, Spec};
use pinfold_policy::{ExecutionPolicy, SandboxMode};
use pinfold_providers::{Backend, Cancel, LocalProvider, Output, ProviderConfig};
use std::error::Error;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Failure = Box<dyn Error>;

const TRUE: &str = "/bin/true";

/// Says a word when it is there, and waits.
const WAITS: [&str; 3] = ["/bin/sh", "-c", "echo x; exec sleep 1000"];

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [launcher, workspace, what, number] = words.as_slice() else {
        return Err("spawn LAUNCHER WORKSPACE each|at-once NUMBER".into());
    };
    let world = World { launcher: Path::new(launcher), workspace: Path::new(workspace) };
    match what.as_str() {
        "each" => world.each(number.parse()?),
        _ => world.at_once(number.parse()?),
    }
}

struct World<'a> {
    launcher: &'a Path,
    workspace: &'a Path,
}

/// One way to run a program.
type Way = (String, Box<dyn Fn() -> Result<(), Failure>>);

impl World<'_> {
    fn executor(&self, backend: Backend, resident: bool) -> Result<Arc<Executor>, Failure> {
        let provider = LocalProvider::new(ProviderConfig {
            launcher: Some(self.launcher.canonicalize()?),
            keep_verdicts: true,
            ..ProviderConfig::default()
        })?;
        let policy = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, self.workspace.to_owned());
        let mut config = ExecutorConfig { resident, max_processes: 2000, ..ExecutorConfig::new(policy) };
        config.call.backend = Some(backend);
        Ok(Arc::new(Executor::new(Arc::new(provider), config, ManagedVariables::default())?))
    }

    fn spec(&self, executor: &Executor, mode: SandboxMode, argv: &[&str]) -> Result<Spec, Failure> {
        let policy = ExecutionPolicy::new(mode, self.workspace.to_owned());
        let mut spec = executor.resolve(&Request { policy: Some(policy), ..Request::new("true") })?;
        spec.argv = argv.iter().map(Into::into).collect();
        Ok(spec)
    }

    fn way(&self, backend: Backend, mode: SandboxMode, resident: bool) -> Result<Way, Failure> {
        let executor = self.executor(backend, resident)?;
        let spec = self.spec(&executor, mode, &[TRUE])?;
        // From the third call of a kind on.
        let by = match (resident, backend) {
            (true, Backend::Namespace) => "prepared ahead,",
            (true, _) => "resident",
            _ => "executed",
        };
        let name = format!("executor, {by} {backend}, {}", mode.as_str());
        let run = move || {
            let finished = executor.run(&spec, &Cancel::new())?;
            if finished.exit_code() == Some(0) { Ok(()) } else { Err(format!("{finished:?}").into()) }
        };
        Ok((name, Box::new(run)))
    }

    fn each(&self, rounds: usize) -> Result<(), Failure> {
        let mut ways: Vec<Way> = vec![("bare".to_owned(), Box::new(|| bare(&[TRUE])?.wait_for_success()))];
        for resident in [true, false] {
            for backend in [Backend::Namespace, Backend::Landlock] {
                for mode in [SandboxMode::WorkspaceWrite, SandboxMode::ReadOnly] {
                    ways.push(self.way(backend, mode, resident)?);
                }
            }
        }
        let mut times = vec![Vec::with_capacity(rounds); ways.len()];
        for round in 0..rounds + 10 {
            for turn in 0..ways.len() {
                let index = (turn + round) % ways.len();
                let begun = Instant::now();
                (ways[index].1)()?;
                let took = begun.elapsed().as_secs_f64() * 1e6;
                if round >= 10 {
                    times[index].push(took);
                }
            }
        }
        let bare = times[0].clone();
        for ((name, _), times) in ways.iter().zip(times) {
            let pairs = || times.iter().zip(&bare);
            let ratio = median(pairs().map(|(time, bare)| time / bare).collect());
            let added = median(pairs().map(|(time, bare)| time - bare).collect());
            let least = tenth(times.clone()) / tenth(bare.clone());
            println!("{name}\t{ratio:.2}\t{added:.0}\t{least:.2}");
        }
        Ok(())
    }

    fn at_once(&self, count: usize) -> Result<(), Failure> {
        let root = self.workspace.to_string_lossy();
        let bubblewrap = [
            &["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--proc", "/proc", "--die-with-parent"]
                [..],
            &["--tmpfs", "/tmp", "--bind", &root, &root, "--"],
            &WAITS,
        ]
        .concat();
        children_at_once("bare", count, &WAITS)?;
        children_at_once("bubblewrap, the reference's workspace-write profile", count, &bubblewrap)?;
        for backend in [Backend::Namespace, Backend::Landlock] {
            let executor = self.executor(backend, true)?;
            let spec = self.spec(&executor, SandboxMode::WorkspaceWrite, &WAITS)?;
            // What is made once.
            executor.run(&self.spec(&executor, SandboxMode::WorkspaceWrite, &[TRUE])?, &Cancel::new())?;
            let (before, begun) = (available()?, Instant::now());
            let started: Vec<Process> = (0..count).map(|_| executor.start(&spec)).collect::<Result<_, _>>()?;
            for process in &started {
                while process.observe(Output::Stdout, 0).next == 0 {
                    if let Some(finished) = process.finished() {
                        return Err(format!("{finished:?}").into());
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let took = begun.elapsed();
            settle();
            print_at_once(&format!("executor, resident {backend}"), took, before - available()?, count);
            for process in &started {
                process.kill();
            }
            started.iter().for_each(|process| drop(process.done()));
            settle();
        }
        Ok(())
    }
}

fn bare(argv: &[&str]) -> Result<Bare, Failure> {
    let mut command = Command::new(argv[0]);
    Ok(Bare(command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
}

struct Bare(Child);

impl Bare {
    fn wait_for_success(mut self) -> Result<(), Failure> {
        let status = self.0.wait()?;
        if status.success() { Ok(()) } else { Err(status.to_string().into()) }
    }
}

fn children_at_once(name: &str, count: usize, argv: &[&str]) -> Result<(), Failure> {
    let (before, begun) = (available()?, Instant::now());
    let mut children = Vec::with_capacity(count);
    for _ in 0..count {
        let mut command = Command::new(argv[0]);
        let started =
            command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        match started {
            Ok(child) => children.push(child),
            Err(error) => {
                println!("{name}, not measured: {error}\t-\t-");
                return Ok(());
            }
        }
    }
    for child in &mut children {
        let mut byte = [0];
        child.stdout.as_mut().ok_or("a pipe")?.read_exact(&mut byte)?;
    }
    let took = begun.elapsed();
    settle();
    print_at_once(name, took, before - available()?, count);
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    settle();
    Ok(())
}

fn print_at_once(name: &str, took: Duration, kib: i64, count: usize) {
    println!("{name}\t{:.0}\t{:.0}", took.as_secs_f64() * 1e3, kib as f64 / count as f64);
}

/// The kernel frees what ended a moment later.
fn settle() {
    std::thread::sleep(Duration::from_secs(2));
}

/// Memory that is left, in KiB.
fn available() -> Result<i64, Failure> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).ok_or("no MemAvailable")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// What the fastest tenth takes at most.
fn tenth(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 10).copied().unwrap_or(f64::NAN)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
