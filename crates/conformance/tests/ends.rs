//! How a call of `pinfold` ends: nothing outlives it, nothing is left behind, and the status says what happened (field cases
//! B066, B069, B070, B117, B134).
//!
//! Tests are called `BACKEND/UID/CLAIM`. Without walls each claim about what ends is turned round: the control has to show
//! that somebody must end it.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::judge::wait_within;
use pinfold_conformance::sleeper::Sleeper;
use pinfold_conformance::snapshot::Snapshot;
use pinfold_conformance::start::{Backend, Mode, uids};
use pinfold_conformance::sys;
use pinfold_conformance::walls::{LIMIT, Walls, expect, expect_equal, outcome, printed, text, written};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long after a call its descendants may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);

type Claim = (&'static str, fn(&World) -> Result<(), String>);

const CLAIMS: &[Claim] = &[
    ("killing-pinfold-ends-all-descendants", killing_pinfold_ends_all_descendants),
    ("daemon-ends-with-the-call", daemon_ends_with_the_call),
    ("signals-end-the-tree-and-are-the-status", signals_end_the_tree_and_are_the_status),
    ("signals-end-a-tree-that-ignores-them", signals_end_a_tree_that_ignores_them),
    ("workspace-stays-as-it-is", workspace_stays_as_it_is),
    ("what-a-killed-call-left-is-swept", what_a_killed_call_left_is_swept),
    ("statuses-pass", statuses_pass),
    ("failures-before-the-command-have-their-status", failures_before_the_command_have_their_status),
    ("signals-that-end-the-command-are-the-status", signals_that_end_the_command_are_the_status),
    ("output-held-by-a-descendant-does-not-hang-the-call", output_held_by_a_descendant_does_not_hang_the_call),
    ("confined-argv-confines-for-any-program", confined_argv_confines_for_any_program),
    ("death-of-a-confined-argv-ends-the-tree", death_of_a_confined_argv_ends_the_tree),
    ("death-of-its-caller-ends-the-tree", death_of_its_caller_ends_the_tree),
    ("death-of-a-confined-argv-while-it-begins-leaves-nothing", death_while_it_begins_leaves_nothing),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for backend in Backend::ALL {
        for uid in uids() {
            for (name, claim) in CLAIMS {
                let test = move || Ok::<(), Failed>(claim(&World::new(backend, uid)?)?);
                trials.push(Trial::test(format!("{}/{uid}/{name}", backend.name()), test));
            }
        }
        // A thousand in all.
        let test = move || Ok::<(), Failed>(many_calls_leave_nothing(&World::new(backend, uids()[0])?)?);
        trials.push(Trial::test(format!("{}/many-calls-leave-no-process-and-no-descriptor", backend.name()), test));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

struct World {
    backend: Backend,
    walls: Walls,
}

impl World {
    fn new(backend: Backend, uid: u32) -> Result<World, String> {
        Ok(World { backend, walls: Walls::new(uid)? })
    }

    fn is_confined(&self) -> bool {
        self.backend != Backend::Unconfined
    }

    fn command(&self, mode: Mode, argv: &[&str]) -> Command {
        self.walls.confined(self.backend, mode, argv)
    }

    fn script(&self, script: &str) -> Command {
        self.command(Mode::WorkspaceWrite, &["/bin/sh", "-c", script])
    }

    /// The argv that `pinfold confine --json` gives for a shell script; without walls, the shell's own.
    fn confined_argv(&self, script: &str) -> Result<Vec<String>, String> {
        let argv = ["/bin/sh", "-c", script];
        if !self.is_confined() {
            return Ok(argv.map(str::to_owned).to_vec());
        }
        let mut words = self.walls.run_words(Some(self.backend), Mode::WorkspaceWrite);
        words[1] = "confine".to_owned();
        words.insert(2, "--json".to_owned());
        words.extend(argv.map(str::to_owned));
        let said = printed(&Walls::finish(&mut self.walls.plain(&words))?)?;
        let said: serde_json::Value = serde_json::from_str(&said).map_err(|e| format!("{said}: {e}"))?;
        serde_json::from_value(said["argv"].clone()).map_err(|e| format!("{said}: {e}"))
    }

    /// Confined, the sleepers are gone soon; without walls they are still there.
    fn expect_gone(&self, sleeper: &Sleeper) -> Result<(), String> {
        if self.is_confined() {
            let gone = sleeper.wait_until(|n| n == 0, GONE_WITHIN);
            return expect(gone, format!("{} descendants are left", sleeper.processes().len()));
        }
        std::thread::sleep(Duration::from_millis(100));
        expect(!sleeper.processes().is_empty(), "the control ended by itself")
    }
}

/// One sleeper as child, one that left its session, its parent and its streams.
fn sleepers(sleeper: &Sleeper, before: &str) -> String {
    let number = sleeper.seconds();
    format!(
        "{before} setsid sh -c 'setsid sleep {number} & exit' <&- >&- 2>&-; sleep {number} & echo started; wait; wait"
    )
}

/// Starts a command that prints a line when both its sleepers are about to run, and waits for them.
fn start(command: &mut Command, sleeper: &Sleeper) -> Result<Child, String> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(|e| e.to_string())?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(|e| e.to_string())?;
    }
    if line == "started\n" && sleeper.wait_until(|n| n == 2, LIMIT) {
        return Ok(child);
    }
    let _ = child.kill();
    Err(format!("the sleepers did not start: {line:?}, {:?}", child.wait()))
}

fn end(child: &mut Child, signal: i32) -> Result<ExitStatus, String> {
    sys!(libc::SYS_kill, child.id(), signal).map_err(|e| e.to_string())?;
    wait_within(child, LIMIT).map_err(|e| e.to_string())
}

fn killing_pinfold_ends_all_descendants(world: &World) -> Result<(), String> {
    let sleeper = Sleeper::new();
    let mut child = start(&mut world.script(&sleepers(&sleeper, "")), &sleeper)?;
    end(&mut child, libc::SIGKILL)?;
    world.expect_gone(&sleeper)
}

// Cases W59, B072.
fn daemon_ends_with_the_call(world: &World) -> Result<(), String> {
    let sleeper = Sleeper::new();
    let number = sleeper.seconds();
    let script = format!("setsid sh -c 'trap \"\" HUP TERM INT; setsid sleep {number} & exit' <&- >&- 2>&-; exit 3");
    let finished = Walls::finish(&mut world.script(&script))?;
    expect_equal(finished.status.code(), Some(3))?;
    world.expect_gone(&sleeper)
}

fn by_signal(world: &World, before: &str) -> Result<(), String> {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let sleeper = Sleeper::new();
        let mut child = start(&mut world.script(&sleepers(&sleeper, before)), &sleeper)?;
        if !world.is_confined() {
            // A shell that ignores them would wait for its sleepers.
            end(&mut child, if before.is_empty() { signal } else { libc::SIGKILL })?;
            world.expect_gone(&sleeper)?;
            continue;
        }
        let begun = Instant::now();
        let status = end(&mut child, signal)?;
        let took = begun.elapsed();
        expect_equal((status.code(), status.signal()), (Some(128 + signal), None))?;
        world.expect_gone(&sleeper)?;
        // Two seconds until it is told to terminate and two more until it is killed, on a machine that is busy.
        expect(took < Duration::from_secs(7), format!("signal {signal} took {took:?}"))?;
        expect_equal(world.walls.litter(), Vec::new())?;
    }
    Ok(())
}

fn signals_end_the_tree_and_are_the_status(world: &World) -> Result<(), String> {
    by_signal(world, "")
}

// Case B079.
fn signals_end_a_tree_that_ignores_them(world: &World) -> Result<(), String> {
    by_signal(world, "trap '' TERM INT HUP;")
}

fn workspace_stays_as_it_is(world: &World) -> Result<(), String> {
    let ws = world.walls.fixture.ws();
    let made = "mkdir -p .git/refs d; echo x > d/f; ln -s d/f l; ln d/f h; mkfifo p; touch -d 2001-02-03 d/f d";
    printed(&Walls::finish(&mut world.walls.plain(&["/bin/sh", "-euc", made]))?)?;
    let look = || Snapshot::take(&ws).map_err(|e| e.to_string());
    let before = look()?;
    for (mode, script) in [
        (Mode::WorkspaceWrite, "cat d/f > /dev/null"),
        (Mode::WorkspaceWrite, "exit 1"),
        (Mode::WorkspaceWrite, "kill -9 $$"),
        (Mode::ReadOnly, "touch d/f new .git/HEAD; chmod 600 d/f; rm -r d; true"),
    ] {
        // Without walls, what would be refused does change something.
        Walls::finish(&mut world.command(mode, &["/bin/sh", "-c", script]))?;
        let changes = before.changes(&look()?, Path::new("no access time counts"));
        let may_change = mode == Mode::ReadOnly && !world.is_confined();
        expect(changes.is_empty() != may_change, format!("{script}: {changes:?}"))?;
        expect_equal(world.walls.litter(), Vec::new())?;
    }
    Ok(())
}

fn what_a_killed_call_left_is_swept(world: &World) -> Result<(), String> {
    let sleeper = Sleeper::new();
    let mut child = start(&mut world.script(&sleepers(&sleeper, "")), &sleeper)?;
    end(&mut child, libc::SIGKILL)?;
    world.expect_gone(&sleeper)?;
    if world.is_confined() {
        expect(!world.walls.litter().is_empty(), "a killed call left nothing: this proves nothing")?;
    }
    printed(&Walls::finish(&mut world.script("true"))?)?;
    // A file of the killed one may be a plan that another process could still want for a day.
    let left: Vec<_> = world.walls.litter().into_iter().filter(|p| !text(p).contains("/plans/plan-")).collect();
    expect_equal(left, Vec::new())
}

fn statuses_pass(world: &World) -> Result<(), String> {
    for code in [0, 1, 2, 124, 125, 126, 127, 128, 137, 255] {
        let script = format!("exit {code}");
        expect_equal(Walls::finish(&mut world.script(&script))?.status.code(), Some(code))?;
        if !world.is_confined() {
            continue;
        }
        // The outcome tells a command that says 125 from a call that failed.
        let mut words = world.walls.run_words(Some(world.backend), Mode::ReadOnly);
        words.insert(2, "--json".to_owned());
        words.extend(["/bin/sh", "-c", &script].map(str::to_owned));
        let finished = Walls::finish(&mut world.walls.plain(&words))?;
        expect_equal(finished.status.code(), Some(code))?;
        let outcome = outcome(&finished)?;
        let ending = (outcome.ran, &outcome.ending["kind"], &outcome.ending["code"]);
        expect_equal(ending, (true, &"exited".into(), &code.into()))?;
    }
    Ok(())
}

fn failures_before_the_command_have_their_status(world: &World) -> Result<(), String> {
    let fixture = &world.walls.fixture;
    let plain_file = text(&fixture.out().join("plain"));
    std::fs::write(&plain_file, "no program").map_err(|e| e.to_string())?;
    for (program, status) in [("/no/such/program", 127), ("no-such-program", 127), (&*plain_file, 126), ("/etc", 126)] {
        if !world.is_confined() {
            expect(world.command(Mode::ReadOnly, &[program]).spawn().is_err(), "the control could execute it")?;
            continue;
        }
        for mode in Mode::ALL {
            let finished = Walls::finish(&mut world.command(mode, &[program]))?;
            let stderr = written(&finished.stderr);
            expect(finished.status.code() == Some(status), format!("{program}: {}: {stderr}", finished.status))?;
            expect(stderr.contains("pinfold: error[") && finished.stdout.is_empty(), stderr)?;
        }
    }
    if world.is_confined() {
        // Ours: a launcher that cannot be started.
        let launcher = fixture.bin().join("pinfold-run");
        std::fs::remove_file(&launcher).map_err(|e| e.to_string())?;
        let finished = Walls::finish(&mut world.script("echo ran"))?;
        expect_equal((finished.status.code(), written(&finished.stdout).as_str()), (Some(125), ""))?;
        expect(written(&finished.stderr).contains("SANDBOX_UNAVAILABLE"), written(&finished.stderr))?;
    }
    Ok(())
}

fn signals_that_end_the_command_are_the_status(world: &World) -> Result<(), String> {
    for signal in
        [libc::SIGKILL, libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGABRT, libc::SIGUSR1, libc::SIGPIPE]
    {
        let status = Walls::finish(&mut world.script(&format!("kill -{signal} $$")))?.status;
        let expected = if world.is_confined() { (Some(128 + signal), None) } else { (None, Some(signal)) };
        expect_equal((status.code(), status.signal()), expected)?;
    }
    Ok(())
}

/// The reader must not wait for an end that a survivor keeps open.
fn output_held_by_a_descendant_does_not_hang_the_call(world: &World) -> Result<(), String> {
    let sleeper = Sleeper::new();
    let script = format!("setsid sleep {} & echo said; exit 5", sleeper.seconds());
    let mut child =
        world.script(&script).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|e| e.to_string())?;
    let status = wait_within(&mut child, Duration::from_secs(10)).map_err(|e| e.to_string())?;
    expect_equal(status.code(), Some(5))?;
    world.expect_gone(&sleeper)
}

/// What somebody else's program, in another language, makes of `pinfold confine --json`.
const CALLER: &str = "
import os, subprocess, sys
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
if sys.argv[1] == 'kill':
    sys.stdin.readline()
    child.kill()
sys.exit(child.wait() % 256)";

fn called(world: &World, how: &str, script: &str) -> Result<Command, String> {
    let mut words = ["/usr/bin/python3", "-c", CALLER, how].map(str::to_owned).to_vec();
    words.extend(world.confined_argv(script)?);
    Ok(world.walls.plain(&words))
}

// Case B051.
fn confined_argv_confines_for_any_program(world: &World) -> Result<(), String> {
    let (ws, out) = (world.walls.fixture.ws(), world.walls.fixture.out());
    let script = format!("echo x > {}/in; echo x > {}/escaped; exit 6", ws.display(), out.display());
    let finished = Walls::finish(&mut called(world, "wait", &script)?)?;
    let told = format!("{}: {}", finished.status, written(&finished.stderr));
    expect(finished.status.code() == Some(6) && ws.join("in").exists(), &told)?;
    expect(out.join("escaped").exists() != world.is_confined(), told)
}

fn death_of_a_confined_argv_ends_the_tree(world: &World) -> Result<(), String> {
    let sleeper = Sleeper::new();
    let mut command = called(world, "kill", &sleepers(&sleeper, ""))?;
    let mut child = start(command.stdin(Stdio::piped()), &sleeper)?;
    // The caller kills the process that it started.
    drop(child.stdin.take());
    wait_within(&mut child, LIMIT).map_err(|e| e.to_string())?;
    if world.backend == Backend::Landlock {
        // There the launcher becomes the command, and nobody is left who could find a daemon: `descendants` is `none`.
        std::thread::sleep(Duration::from_millis(100));
        return expect(!sleeper.processes().is_empty(), "it ends more than it says");
    }
    world.expect_gone(&sleeper)
}

fn death_of_its_caller_ends_the_tree(world: &World) -> Result<(), String> {
    let sleeper = Sleeper::new();
    let script = if world.backend == Backend::Landlock {
        format!("echo started; sleep {0} & exec sleep {0}", sleeper.seconds())
    } else {
        sleepers(&sleeper, "")
    };
    let mut child = start(&mut called(world, "wait", &script)?, &sleeper)?;
    end(&mut child, libc::SIGKILL)?;
    if world.backend == Backend::Landlock {
        // The command itself ends with its caller; what it started does not.
        let gone = sleeper.wait_until(|n| n <= 1, GONE_WITHIN);
        return expect(gone, "the command outlived its caller");
    }
    world.expect_gone(&sleeper)
}

/// Starts the argv again and again and kills what it started at moments from 0 to 30 milliseconds later. (Who starts it and is
/// killed before the launcher looks who that was, nobody can know.)
const HASTY: &str = "
import random, subprocess, sys, time
for turn in range(40):
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(random.random() * 0.03)
    child.kill()
    child.wait()
# Whatever lives on gets the time to do so.
time.sleep(0.3)";

/// F16: bubblewrap's init is told of the death of its first process only when it has begun.
fn death_while_it_begins_leaves_nothing(world: &World) -> Result<(), String> {
    let sleeper = Sleeper::new();
    // Under Landlock it is the command itself that ends with the launcher.
    let mut words = ["/usr/bin/python3", "-c", HASTY].map(str::to_owned).to_vec();
    let before = if world.is_confined() { "exec" } else { "sleep 0 &" };
    let after = if world.is_confined() { "" } else { "& wait" };
    words.extend(world.confined_argv(&format!("{before} sleep {} {after}", sleeper.seconds()))?);
    Walls::finish(&mut world.walls.plain(&words))?;
    world.expect_gone(&sleeper)
}

/// Calls in a row by one process that inherits every orphan.
fn many_calls_leave_nothing(world: &World) -> Result<(), String> {
    let caller = "
import ctypes, os, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
def look():
    me = str(os.getpid())
    return sorted(os.listdir('/proc/self/fd')), open(f'/proc/{me}/task/{me}/children').read().split()
before = look()
for _ in range(int(sys.argv[1])):
    subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL, check=True)
for _ in range(20):
    after = look()
    if after == before: break
    time.sleep(0.1)
print(before == after, after)";
    let calls = if world.is_confined() { 340 } else { 1 };
    // Without walls, a daemon is left for the caller to inherit, which shows that it would be seen.
    let sleeper = Sleeper::new();
    let script = format!("setsid sleep {} <&- >&- 2>&- & exit 0", sleeper.seconds());
    let mut words = ["/usr/bin/python3", "-c", caller].map(str::to_owned).to_vec();
    words.push(calls.to_string());
    if world.is_confined() {
        words.extend(world.walls.run_words(Some(world.backend), Mode::WorkspaceWrite));
    }
    words.extend(["/bin/sh", "-c", &script].map(str::to_owned));
    let limit = Duration::from_secs(200);
    let mut command = world.walls.plain(&words);
    let finished = pinfold_conformance::judge::output_within(&mut command, limit).map_err(|e| e.to_string())?;
    let said = printed(&finished)?;
    expect(said.starts_with("True") == world.is_confined(), said)?;
    world.expect_gone(&sleeper)?;
    expect_equal(world.walls.litter(), Vec::new())
}
