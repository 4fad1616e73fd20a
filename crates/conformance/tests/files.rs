//! File tools beside a confined job: while the job swaps directories, links, files, pipes and what is being written, nothing
//! lands outside, nothing outside is read, and nothing is left behind (W03, W10, B038).
//!
//! Tests are called `BACKEND/UID/CLAIM`. The program is the job and the tools as well: it starts itself with a word in front,
//! the job by `pinfold run`, both as that user. The control: plain writes beside the same job are led out.
//! `PINFOLD_RACE_OPERATIONS=100000` and `PINFOLD_RACE_SECONDS=60` make long races.

#[path = "../../fence/tests/litter/mod.rs"]
mod litter;
#[path = "../../fence/tests/swapper/mod.rs"]
mod swapper;

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::fixture::copy_program;
use pinfold_conformance::judge::output_within;
use pinfold_conformance::start::{Backend, Mode, uids};
use pinfold_conformance::sys;
use pinfold_conformance::walls::{CONFINED, Walls, expect, expect_equal, printed, text};
use pinfold_fence::Resolver;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "lay-out", ws, out] => swapper::lay_out(Path::new(ws), Path::new(out)),
        [_, "swap", ws, out] => swapper::swap(Path::new(ws), Path::new(out)),
        [_, "tools", ws, out, resolver, operations, seconds] => {
            let resolver = if *resolver == "openat2" { Resolver::Openat2 } else { Resolver::Walk };
            let fence = swapper::fence(Path::new(ws), Path::new(out), resolver);
            let seen = swapper::race(&fence, (operations.parse().unwrap(), seconds.parse().unwrap()));
            // The race took place: both answers came.
            let both = seen.contains_key("done") && seen.contains_key("FS_SANDBOX_DENIED");
            return if both { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
        [_, "plain", ws, out] => return plain(Path::new(ws), Path::new(out)),
        _ => {
            let mut trials = Vec::new();
            for backend in CONFINED {
                for uid in uids() {
                    let mut trial = |claim: &str, test: fn(Backend, u32) -> Result<(), String>| {
                        let name = format!("{}/{uid}/{claim}", backend.name());
                        trials.push(Trial::test(name, move || Ok::<(), Failed>(test(backend, uid)?)));
                    };
                    trial("race_nothing-lands-outside-by-openat2", |backend, uid| race(backend, uid, "openat2"));
                    trial("race_nothing-lands-outside-by-walking", |backend, uid| race(backend, uid, "walk"));
                    trial("race_plain-writes-are-led-out", plain_writes_are_led_out);
                }
            }
            return libtest_mimic::run(&Arguments::from_args(), trials).exit_code();
        }
    }
    ExitCode::SUCCESS
}

/// What careless code does, until it was led out or a minute has passed.
fn plain(ws: &Path, out: &Path) -> ExitCode {
    let begun = Instant::now();
    let before = swapper::outside(out);
    // It would wait for ever for a reader of the pipe.
    let mut open = std::fs::File::options();
    open.write(true).create(true).truncate(true).custom_flags(libc::O_NONBLOCK);
    while begun.elapsed() < Duration::from_secs(60) {
        for _ in 0..500 {
            // Nothing may be there at the moment.
            let _ = open.open(ws.join("d/f")).and_then(|mut file| file.write_all(b"inside"));
            let _ = open.open(ws.join("deep/x/new")).and_then(|mut file| file.write_all(b"inside"));
        }
        if swapper::outside(out) != before {
            return ExitCode::SUCCESS;
        }
    }
    ExitCode::FAILURE
}

/// A workspace with a confined job in it that swaps.
struct Scene {
    walls: Walls,
    program: PathBuf,
    job: Option<Child>,
}

impl Scene {
    fn new(backend: Backend, uid: u32) -> Result<Self, String> {
        let walls = Walls::new(uid)?;
        let program = walls.fixture.bin().join("files");
        let myself = std::env::current_exe().map_err(|e| e.to_string())?;
        copy_program(&myself, &program).map_err(|e| format!("{}: {e}", program.display()))?;
        let mut scene = Scene { walls, program, job: None };
        let laid = Walls::finish(&mut scene.walls.plain(&scene.words("lay-out")))?;
        printed(&laid)?;
        let words = scene.words("swap");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = scene.walls.confined(backend, Mode::WorkspaceWrite, &words);
        command.env("PINFOLD_RACER_IS_CONFINED", "1").stdout(Stdio::piped());
        let mut job = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let stdout = job.stdout.take();
        scene.job = Some(job);
        let mut line = String::new();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        expect(matches!(read, Some(Ok(1..))), "the job said nothing")?;
        expect_equal(line.trim(), "racing")?;
        Ok(scene)
    }

    fn words(&self, word: &str) -> Vec<String> {
        let (ws, out) = (self.walls.fixture.ws(), self.walls.fixture.out());
        vec![text(&self.program), word.to_owned(), text(&ws), text(&out)]
    }

    /// The job must have gone on up to here.
    fn end(&mut self) -> Result<(), String> {
        let Some(mut job) = self.job.take() else { return Ok(()) };
        let ended = job.try_wait().map_err(|e| e.to_string())?;
        if ended.is_none() {
            // Not SIGKILL: `pinfold` ends the command before it ends, so that nothing swaps any more when we look.
            sys!(libc::SYS_kill, job.id(), libc::SIGTERM).map_err(|e| e.to_string())?;
        }
        job.wait().map_err(|e| e.to_string())?;
        expect(ended.is_none(), format!("the job ended by itself: {ended:?}"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A failed test ends its job, too; how that went is of no use.
        let _ = self.end();
    }
}

fn race(backend: Backend, uid: u32, resolver: &str) -> Result<(), String> {
    let (operations, seconds) = swapper::length(3000);
    let mut scene = Scene::new(backend, uid)?;
    let out = scene.walls.fixture.out();
    let before = swapper::outside(&out);
    let mut words = scene.words("tools");
    words.extend([resolver.to_owned(), operations.to_string(), seconds.to_string()]);
    let limit = Duration::from_secs(120 + 4 * seconds) + Duration::from_millis(10 * operations);
    let finished = output_within(&mut scene.walls.plain(&words), limit).map_err(|e| e.to_string())?;
    let said = printed(&finished)?;
    println!("{}/{uid} by {resolver}: {}", backend.name(), said.trim());
    scene.end()?;
    expect_equal(swapper::outside(&out), before)?;
    expect_equal(litter::litter(&scene.walls.fixture.ws()), Vec::new())
}

/// The control: the job is one that leads writes out.
fn plain_writes_are_led_out(backend: Backend, uid: u32) -> Result<(), String> {
    let mut scene = Scene::new(backend, uid)?;
    let finished = output_within(&mut scene.walls.plain(&scene.words("plain")), Duration::from_secs(120));
    printed(&finished.map_err(|e| e.to_string())?).map_err(|why| format!("no write was led out: {why}"))?;
    scene.end()
}
