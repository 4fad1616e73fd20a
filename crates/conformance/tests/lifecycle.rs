//! Life cycle: a confined command lives, ends and leaves as it should, and finds the ordinary world that programs need.
//!
//! Tests are called `BACKEND/MODE/UID/CLAIM`. Unconfined, each claim about what must not happen is turned round: there the
//! control has to show that it does happen.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::fixture::Fixture;
use pinfold_conformance::judge::{Finished, output_within, wait_within};
use pinfold_conformance::sleeper::Sleeper;
use pinfold_conformance::snapshot::Snapshot;
use pinfold_conformance::start::{Backend, Mode, Run, confined_command, needed, uids};
use pinfold_conformance::sys;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// How long after a call its descendants may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// In which modes a claim is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    /// Both.
    EveryMode,
    /// Where there is a place to write.
    Writable,
}

type Claim = (&'static str, In, fn(&World) -> Result<(), Failed>);

const CLAIMS: &[Claim] = &[
    ("death-of-the-caller-ends-all-descendants", In::EveryMode, death_of_the_caller_ends_all_descendants),
    ("death-of-the-launcher-ends-all-descendants", In::EveryMode, death_of_the_launcher_ends_all_descendants),
    ("daemon-ends-with-the-call", In::EveryMode, daemon_ends_with_the_call),
    ("call-leaves-nothing-behind", In::EveryMode, call_leaves_nothing_behind),
    ("command-cannot-end-its-supervisor", In::EveryMode, command_cannot_end_its_supervisor),
    ("exit-codes-pass", In::EveryMode, exit_codes_pass),
    ("signals-that-end-the-command-pass", In::EveryMode, signals_that_end_the_command_pass),
    ("sigterm-reaches-the-command", In::EveryMode, sigterm_reaches_the_command),
    ("missing-command-is-127", In::EveryMode, missing_command_is_127),
    ("command-that-cannot-execute-is-126", In::EveryMode, command_that_cannot_execute_is_126),
    ("signals-are-default-and-unblocked", In::EveryMode, signals_are_default_and_unblocked),
    ("broken-pipe-ends-a-writer", In::EveryMode, broken_pipe_ends_a_writer),
    ("umask-and-limits-are-inherited", In::EveryMode, umask_and_limits_are_inherited),
    ("file-size-limit-ends-a-writer", In::Writable, file_size_limit_ends_a_writer),
    ("descriptors-are-three", In::EveryMode, descriptors_are_three),
    ("closed-streams-are-dev-null", In::Writable, closed_streams_are_dev_null),
    ("devices-behave", In::EveryMode, devices_behave),
    ("terminal-can-be-allocated", In::EveryMode, terminal_can_be_allocated),
    ("semaphores-and-worker-processes-work", In::Writable, semaphores_and_worker_processes_work),
    ("temporary-files-work", In::Writable, temporary_files_work),
    ("long-here-document-works", In::Writable, long_here_document_works),
    ("unix-sockets-work-where-writing-does", In::Writable, unix_sockets_work_where_writing_does),
    ("working-directory-is-the-callers", In::EveryMode, working_directory_is_the_callers),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for backend in Backend::ALL {
        for mode in Mode::ALL {
            // Nothing tells the modes apart where nothing is confined.
            if backend == Backend::Unconfined && mode == Mode::ReadOnly {
                continue;
            }
            for uid in uids() {
                for (name, modes, claim) in CLAIMS {
                    if *modes == In::Writable && mode == Mode::ReadOnly {
                        continue;
                    }
                    let name = format!("{}/{}/{uid}/{name}", backend.name(), mode.name());
                    trials.push(Trial::test(name, move || claim(&World::new(backend, mode, uid)?)));
                }
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A fixture and the walls around it.
struct World {
    backend: Backend,
    mode: Mode,
    fixture: Fixture,
}

impl World {
    fn new(backend: Backend, mode: Mode, uid: u32) -> Result<World, Failed> {
        Ok(World { backend, mode, fixture: Fixture::new(uid, needed(backend))? })
    }

    fn is_confined(&self) -> bool {
        self.backend != Backend::Unconfined
    }

    /// The confined command: in the workspace, without input, and with an environment of its own.
    fn command(&self, argv: &[&str]) -> Command {
        let (ws, temp, bin) = (self.fixture.ws(), self.fixture.temp(), self.fixture.bin());
        let run = Run {
            backend: self.backend,
            mode: self.mode,
            uid: self.fixture.uid,
            ws: &ws,
            temp: &temp,
            mask: &[],
            bin: &bin,
        };
        let argv: Vec<&OsStr> = argv.iter().map(OsStr::new).collect();
        let mut command = confined_command(&run, &argv);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C");
        // Nothing may touch the developer's home or runtime directory.
        command.env("HOME", temp.join("tmp")).env("XDG_RUNTIME_DIR", temp.join("tmp"));
        command.current_dir(ws).stdin(Stdio::null());
        command
    }

    fn run(&self, argv: &[&str]) -> Result<Finished, Failed> {
        Ok(output_within(&mut self.command(argv), LIMIT).map_err(|e| e.to_string())?)
    }

    /// What a shell script prints; it must succeed.
    fn script(&self, script: &str) -> Result<String, Failed> {
        printed(&self.run(&["/bin/bash", "-c", script])?)
    }

    /// What a Python program prints; it must succeed.
    fn python(&self, program: &str) -> Result<String, Failed> {
        printed(&self.run(&["/usr/bin/python3", "-c", program])?)
    }

    /// A shell that does `preparation` and becomes the confined command.
    fn prepared(&self, preparation: &str, argv: &[&str]) -> Result<Finished, Failed> {
        Ok(output_within(&mut self.through_shell(&format!("{preparation}; exec \"$@\""), argv), LIMIT)
            .map_err(|e| e.to_string())?)
    }

    /// The confined command as the arguments of a shell script, run by the same user.
    fn through_shell(&self, script: &str, argv: &[&str]) -> Command {
        let inner = self.command(argv);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
        command.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.fixture.ws()).stdin(Stdio::null());
        if self.fixture.uid != pinfold_conformance::start::own_uid() {
            command.uid(self.fixture.uid).gid(self.fixture.uid);
        }
        command
    }
}

fn printed(finished: &Finished) -> Result<String, Failed> {
    let stdout = String::from_utf8_lossy(&finished.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&finished.stderr);
    if finished.status.success() { Ok(stdout) } else { Err(format!("{}: {stdout} {stderr}", finished.status).into()) }
}

fn expect(condition: bool, otherwise: impl Into<String>) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(otherwise.into().into()) }
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(got: T, expected: T) -> Result<(), Failed> {
    expect(got == expected, format!("expected {expected:?}, got {got:?}"))
}

/// Confined, they are gone soon; unconfined, they are still there, which shows that somebody has to end them.
fn expect_gone(sleeper: &Sleeper, world: &World) -> Result<(), Failed> {
    if world.is_confined() {
        let gone = sleeper.wait_until(|n| n == 0, GONE_WITHIN);
        return expect(gone, format!("{} descendants are left", sleeper.processes().len()));
    }
    std::thread::sleep(Duration::from_millis(100));
    expect(!sleeper.processes().is_empty(), "the control ended by itself")
}

/// One sleeper as child, one that left its session and parent.
fn sleepers(sleeper: &Sleeper) -> String {
    let number = sleeper.seconds();
    format!("setsid sh -c 'setsid sleep {number} & exit' <&- >&- 2>&-; sleep {number} & echo started; wait")
}

/// Starts a command with two sleepers, kills its direct child and expects the sleepers to go. With `caller`, that child is
/// a shell that started the confined run; without, it is the run itself.
fn kill_and_expect_gone(world: &World, caller: bool) -> Result<(), Failed> {
    let sleeper = Sleeper::new();
    let script = sleepers(&sleeper);
    let argv = ["/bin/sh", "-c", &script];
    // `; :` keeps the shell from becoming the command.
    let mut command = if caller { world.through_shell("\"$@\"; :", &argv) } else { world.command(&argv) };
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let started = sleeper.wait_until(|n| n == 2, LIMIT);
    child.kill()?;
    child.wait()?;
    expect(started && line == "started\n", "the sleepers did not start")?;
    expect_gone(&sleeper, world)
}

fn death_of_the_caller_ends_all_descendants(world: &World) -> Result<(), Failed> {
    kill_and_expect_gone(world, true)
}

fn death_of_the_launcher_ends_all_descendants(world: &World) -> Result<(), Failed> {
    if world.backend != Backend::Landlock {
        return kill_and_expect_gone(world, false);
    }
    // Without a PID namespace nobody is left who could find a daemon; what the kernel ends is the command itself.
    let sleeper = Sleeper::new();
    let mut child = world.command(&["/bin/sh", "-c", &format!("exec sleep {}", sleeper.seconds())]).spawn()?;
    let started = sleeper.wait_until(|n| n == 1, LIMIT);
    child.kill()?;
    child.wait()?;
    expect(started, "the sleeper did not start")?;
    expect_gone(&sleeper, world)
}

fn daemon_ends_with_the_call(world: &World) -> Result<(), Failed> {
    let sleeper = Sleeper::new();
    let number = sleeper.seconds();
    // Twice away from its parent, in a session of its own, and without our streams.
    let script = format!("setsid sh -c 'trap \"\" HUP TERM; setsid sleep {number} & exit' <&- >&- 2>&-; exit 3");
    let finished = world.run(&["/bin/sh", "-c", &script])?;
    expect_equal(finished.status.code(), Some(3))?;
    expect_gone(&sleeper, world)
}

fn command_cannot_end_its_supervisor(world: &World) -> Result<(), Failed> {
    // Unconfined, the parent is a shell of the same user.
    let inside = "for s in TERM INT HUP USR1 STOP KILL; do kill -$s $PPID 2>/dev/null; done; sleep 0.1; exit 4";
    let outside = "\"$@\"; exit $?";
    let finished = output_within(&mut world.through_shell(outside, &["/bin/sh", "-c", inside]), LIMIT);
    let status = finished.map_err(|e| e.to_string())?.status;
    let expected = if world.is_confined() { Some(4) } else { None };
    expect_equal(status.code(), expected)
}

/// Names in the places where a launcher might leave something.
fn traces(world: &World) -> Result<BTreeSet<OsString>, Failed> {
    let mut names = BTreeSet::new();
    for dir in ["/tmp", "/var/tmp", "/dev/shm", "/run", "/run/user"] {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            // Other programs on this host also make files there.
            if entry.file_name().to_string_lossy().contains("pinfold") {
                names.insert(entry.path().into_os_string());
            }
        }
    }
    for entry in std::fs::read_dir(world.fixture.temp().join("tmp"))? {
        names.insert(entry?.path().into_os_string());
    }
    Ok(names)
}

fn call_leaves_nothing_behind(world: &World) -> Result<(), Failed> {
    let look = || -> Result<_, Failed> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let base = Snapshot::take(&world.fixture.ws()).map_err(|e| e.to_string())?;
        Ok((mounts, base, traces(world)?))
    };
    // Directories of ours that stay are made by then.
    world.run(&["/bin/true"])?;
    let before = look()?;
    for command in [&["/bin/true"][..], &["/bin/false"], &["/no/such/program"], &["/bin/sh", "-c", "kill -9 $$"]] {
        let finished = world.command(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if let Ok(mut child) = finished {
            wait_within(&mut child, LIMIT).map_err(|e| e.to_string())?;
        }
    }
    let after = look()?;
    expect_equal(&after.0, &before.0)?;
    expect_equal(before.1.changes(&after.1, Path::new("no access time counts")), Vec::new())?;
    expect_equal(&after.2, &before.2)
}

// Case W21.
fn exit_codes_pass(world: &World) -> Result<(), Failed> {
    for code in [0, 1, 2, 125, 126, 127, 128, 137, 255] {
        let finished = world.run(&["/bin/sh", "-c", &format!("exit {code}")])?;
        expect_equal(finished.status.code(), Some(code))?;
        expect(finished.stderr.is_empty(), String::from_utf8_lossy(&finished.stderr))?;
    }
    Ok(())
}

/// What a shell would report: 128 and the signal's number, for a runner that cannot end by the signal itself.
fn shell_code(finished: &Finished) -> Option<i32> {
    finished.status.code().or_else(|| finished.status.signal().map(|s| 128 + s))
}

fn signals_that_end_the_command_pass(world: &World) -> Result<(), Failed> {
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGABRT, libc::SIGUSR1] {
        let finished = world.run(&["/bin/sh", "-c", &format!("kill -{signal} $$")])?;
        expect_equal(shell_code(&finished), Some(128 + signal))?;
    }
    Ok(())
}

// Case B074.
fn sigterm_reaches_the_command(world: &World) -> Result<(), Failed> {
    for (script, expected) in
        [("trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done", 7), ("echo ready; exec sleep 600", 143)]
    {
        let mut child = world.command(&["/bin/sh", "-c", script]).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        sys!(libc::SYS_kill, child.id(), libc::SIGTERM).map_err(|e| e.to_string())?;
        let status = wait_within(&mut child, LIMIT).map_err(|e| e.to_string())?;
        let finished = Finished { status, stdout: Vec::new(), stderr: Vec::new() };
        // Bubblewrap forwards nothing: it ends by the signal, and the command with it.
        let expected = if world.backend == Backend::Bwrap { 143 } else { expected };
        expect_equal((line.trim(), shell_code(&finished)), ("ready", Some(expected)))?;
    }
    Ok(())
}

/// Unconfined, starting a program that does not exist is the harness's own error.
fn expect_exec_failure(world: &World, program: &str, code: i32) -> Result<(), Failed> {
    if !world.is_confined() {
        return expect(world.command(&[program]).spawn().is_err(), "the control could execute it");
    }
    let finished = world.run(&[program])?;
    let stderr = String::from_utf8_lossy(&finished.stderr).into_owned();
    expect_equal(finished.status.code(), Some(code))?;
    expect(stderr.starts_with("pinfold") && stderr.lines().count() == 1, stderr)
}

fn missing_command_is_127(world: &World) -> Result<(), Failed> {
    expect_exec_failure(world, "/no/such/program", 127)?;
    expect_exec_failure(world, "no-such-program-in-path", 127)
}

fn command_that_cannot_execute_is_126(world: &World) -> Result<(), Failed> {
    expect_exec_failure(world, "/etc/passwd", 126)?;
    expect_exec_failure(world, "/etc", 126)
}

// Case B086.
fn signals_are_default_and_unblocked(world: &World) -> Result<(), Failed> {
    let mut command = world.command(&["/bin/grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"]);
    let body = || {
        let io = |e: pinfold_conformance::errno::Errno| std::io::Error::from_raw_os_error(e.0);
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGPIPE, libc::SIGUSR2, libc::SIGHUP] {
            // struct kernel_sigaction: handler SIG_IGN, flags, restorer, mask
            sys!(libc::SYS_rt_sigaction, signal, sys::read(&[1u64, 0, 0, 0]), 0, 8usize).map_err(io)?;
        }
        sys!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, sys::read(&(1u64 << 9 | 1 << 13)), 0, 8usize).map_err(io)?;
        Ok(())
    };
    // SAFETY: between fork and exec the body makes system calls only: no allocation, no lock.
    unsafe { command.pre_exec(body) };
    let finished = output_within(&mut command, LIMIT).map_err(|e| e.to_string())?;
    let text = printed(&finished)?;
    let clean = text == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n";
    expect(clean == world.is_confined(), text)
}

fn broken_pipe_ends_a_writer(world: &World) -> Result<(), Failed> {
    expect_equal(world.script("yes | head -1; echo ${PIPESTATUS[@]}")?.as_str(), "y\n141 0\n")
}

fn umask_and_limits_are_inherited(world: &World) -> Result<(), Failed> {
    let preparation = "umask 027; ulimit -n 200; ulimit -f 4000; ulimit -c 0";
    let inside = "umask; ulimit -n; ulimit -f; ulimit -c";
    let finished = world.prepared(preparation, &["/bin/sh", "-c", inside])?;
    expect_equal(printed(&finished)?.as_str(), "0027\n200\n4000\n0\n")
}

fn file_size_limit_ends_a_writer(world: &World) -> Result<(), Failed> {
    let inside = "head -c 100000 /dev/zero > big; echo $?";
    let finished = world.prepared("ulimit -f 8", &["/bin/bash", "-c", inside])?;
    expect_equal(printed(&finished)?.as_str(), "153\n")
}

fn descriptors_are_three(world: &World) -> Result<(), Failed> {
    // The fourth is what lists them.
    let finished = world.prepared("exec 7</etc/passwd 8<>/dev/null 9</", &["/bin/ls", "/proc/self/fd"])?;
    let text = printed(&finished)?;
    if world.is_confined() {
        return expect_equal(text.as_str(), "0\n1\n2\n3\n");
    }
    expect(["7", "8", "9"].iter().all(|n| text.lines().any(|l| l == *n)), text)
}

fn closed_streams_are_dev_null(world: &World) -> Result<(), Failed> {
    let inside = "readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 > found; echo $? >> found";
    let finished = world.prepared("exec <&- >&- 2>&-", &["/bin/sh", "-c", inside])?;
    expect(finished.status.success(), finished.status.to_string())?;
    let found = std::fs::read_to_string(world.fixture.ws().join("found"))?;
    let lines: Vec<&str> = found.lines().collect();
    // The second is the redirection to `found` itself.
    let null = lines.iter().filter(|l| **l == "/dev/null").count();
    expect(if world.is_confined() { null == 2 } else { null < 2 }, found)
}

fn devices_behave(world: &World) -> Result<(), Failed> {
    let script = "
        echo gone > /dev/null && echo null
        head -c 4 /dev/zero | wc -c
        head -c 4 /dev/urandom | wc -c
        head -c 4 /dev/random | wc -c
        echo x 2>/dev/null > /dev/full || echo full
        (echo out > /dev/stdout) | cat
        (echo error > /dev/stderr) 2>&1 | cat
        cat <(echo substituted)
        : > /dev/null < /dev/stdin && echo stdin";
    let text = world.script(script)?;
    expect_equal(text.as_str(), "null\n4\n4\n4\nfull\nout\nerror\nsubstituted\nstdin\n")
}

// Cases W44, B009, B011.
fn terminal_can_be_allocated(world: &World) -> Result<(), Failed> {
    let program = "
import os, pty
master, slave = pty.openpty()
os.write(slave, b'x')
assert os.read(master, 1) == b'x'
assert os.isatty(slave)
pid, fd = pty.fork()
if pid == 0:
    os.execv('/bin/sh', ['sh', '-c', 'test -t 0 && : > /dev/tty && echo fine'])
text = b''
while True:
    try: part = os.read(fd, 100)
    except OSError: break
    if not part: break
    text += part
print(text.decode().strip())";
    expect_equal(world.python(program)?.as_str(), "fine\n")
}

fn semaphores_and_worker_processes_work(world: &World) -> Result<(), Failed> {
    let program = "
import multiprocessing as m
if __name__ == '__main__':
    m.Semaphore()
    print(m.Pool(2).map(abs, [-1, 2]))";
    if world.backend == Backend::Landlock {
        // `sem_open` wants /dev/shm by name. Without namespaces there is no private one, and the host's is shared with
        // every process: it stays closed, and the program hears so.
        let finished = world.run(&["/usr/bin/python3", "-c", program])?;
        let stderr = String::from_utf8_lossy(&finished.stderr).into_owned();
        return expect(stderr.contains("PermissionError: [Errno 13]"), stderr);
    }
    expect_equal(world.python(program)?.as_str(), "[1, 2]\n")
}

fn temporary_files_work(world: &World) -> Result<(), Failed> {
    let script = "
        file=$(mktemp) && echo x > $file && rm $file && dir=$(mktemp -d) && rmdir $dir && echo fine
        test -z \"$TMPDIR\" || test -d \"$TMPDIR\" && test -w \"${TMPDIR:-/tmp}\" && echo writable";
    expect_equal(world.script(script)?.as_str(), "fine\nwritable\n")?;
    expect_equal(world.python("import tempfile, os; os.rmdir(tempfile.mkdtemp()); print('fine')")?.as_str(), "fine\n")
}

/// Longer than a pipe holds, so that the shell needs a temporary file.
fn long_here_document_works(world: &World) -> Result<(), Failed> {
    let script = format!("wc -c <<END\n{}\nEND\n", "x".repeat(70_000));
    expect_equal(world.script(&script)?.trim(), "70001")
}

fn unix_sockets_work_where_writing_does(world: &World) -> Result<(), Failed> {
    let program = "
import os, socket, tempfile
for place in [os.getcwd(), os.environ.get('TMPDIR', tempfile.gettempdir())]:
    name = os.path.join(place, 'conformance.sock')
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(name)
    peer, _ = server.accept()
    client.send(b'x')
    assert peer.recv(1) == b'x'
    os.unlink(name)
a, b = socket.socketpair()
a.send(b'y')
assert b.recv(1) == b'y'
print('fine')";
    expect_equal(world.python(program)?.as_str(), "fine\n")
}

fn working_directory_is_the_callers(world: &World) -> Result<(), Failed> {
    let expected = world.fixture.ws().display().to_string();
    expect_equal(world.script("pwd -P")?.trim(), expected.as_str())?;
    let finished =
        output_within(world.command(&["/bin/pwd", "-P"]).current_dir("/etc"), LIMIT).map_err(|e| e.to_string())?;
    expect_equal(printed(&finished)?.trim(), "/etc")
}
