//! What a command does to the launcher itself, and by way of it: `docs/attack-log.md` tells where each came from.

use pinfold_conformance::fixture::Fixture;
use pinfold_conformance::sleeper::Sleeper;
use pinfold_conformance::start::{landlock_abi, uids};
use pinfold_conformance::world::{LANDLOCK, NAMESPACE, WALLS, World, assert_prints, assert_refused, ended, identity};
use std::process::Command;
use std::time::{Duration, Instant};

const PYTHON: &str = "/usr/bin/python3";

/// Joins the group that its parent is in, leaves a stopped process there, and ends another one whose parent is in no group of
/// theirs: the group is an orphan then, and the kernel sends SIGHUP to all of it (`kill_orphaned_pgrp`).
const ORPHAN_A_GROUP: &str = "
import os, signal
group = os.getpgid(os.getppid())
os.setpgid(0, 0)
first = os.fork()
if first == 0:
    try: os.setpgid(0, group)
    except OSError: pass
    stopped = os.fork()
    if stopped == 0:
        signal.alarm(10)
        signal.pause()
    os.kill(stopped, signal.SIGSTOP)
    os.waitpid(stopped, os.WUNTRACED)
    os._exit(0)
os.waitpid(first, 0)";

#[test]
fn the_callers_process_group_is_out_of_reach() {
    for uid in uids() {
        let world = World::new(uid);
        let launcher = world.path("bin/pinfold-run");
        // A session without a terminal, as of a service; what is in the script's group is in the caller's.
        let script = "\"$@\"; echo lives";
        let run = |words: &[&str]| {
            ended(&mut world.plain(&[&["/usr/bin/setsid", "-w", "/bin/sh", "-c", script, "sh"], words].concat())).1
        };
        let argv = [PYTHON, "-c", ORPHAN_A_GROUP];
        assert_eq!(run(&argv), "");
        let supervised = [LANDLOCK, &["--supervise"]].concat();
        for wall in [NAMESPACE, LANDLOCK, &supervised] {
            let words = [&[launcher.as_str(), "--spec", "1"], wall, &["--"], &argv].concat();
            assert_eq!(run(&words), "lives\n", "user {uid}, {wall:?}");
        }
    }
}

/// Without a PID namespace, also a launcher that leads a group, and so cannot leave its session, starts the command in another.
#[test]
fn the_session_is_another_where_processes_outside_can_be_named() {
    let world = World::own();
    let launcher = world.path("bin/pinfold-run");
    let argv = [PYTHON, "-c", "import os, sys; print(os.getsid(0) == int(sys.argv[1]))"];
    for leads in ["", "set -m; "] {
        let run = |words: &[&str]| {
            let script = format!("{leads}\"$@\" $(ps -o sid= -p $$); :");
            ended(&mut world.plain(&[&["/bin/sh", "-c", &script, "sh"], words].concat()))
        };
        assert_prints("True\n", &run(&argv));
        assert_prints("False\n", &run(&[&[launcher.as_str(), "--spec", "1"], LANDLOCK, &["--"], &argv].concat()));
    }
}

#[test]
fn a_command_that_is_traced_by_the_launcher_ends_as_it_ends() {
    let world = World::own();
    let script =
        |then: &str| format!("import ctypes, os, signal\nassert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0\n{then}");
    let by_signal = script("os.kill(os.getpid(), signal.SIGUSR1)");
    let by_exec = script("os.execv('/bin/sh', ['sh', '-c', 'echo ran; exit 7'])");
    for wall in WALLS {
        let plan = [wall, &["--supervise"]].concat();
        let run = |script: &str| {
            let mut command = world.confined(&plan, &[PYTHON, "-c", script]);
            use std::os::unix::process::ExitStatusExt as _;
            let finished = command.output().expect("it runs");
            (finished.status.code(), finished.status.signal(), String::from_utf8_lossy(&finished.stdout).into_owned())
        };
        assert_eq!(run(&by_signal), (None, Some(libc::SIGUSR1), String::new()));
        assert_eq!(run(&by_exec), (Some(7), None, "ran\n".to_owned()));
    }
}

/// The processes that have a word among their arguments.
fn with_word(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.split(|byte| *byte == 0).any(|part| part == word.as_bytes())).count()
}

/// From Landlock's scope for signals on (ABI 6); before it they are ended one after the other.
#[test]
fn chains_of_forks_end_with_the_command() {
    assert!(landlock_abi() >= Some(6), "this kernel has no scope for signals");
    for uid in uids() {
        let programs = [("pinfold-run", "pinfold-launcher"), ("pinfold-hostile", "pinfold-conformance")];
        let world = World(Fixture::new(uid, &programs).expect("a fixture"));
        let (hostile, name) = (world.path("bin/pinfold-hostile"), Sleeper::new());
        let argv = |chains, seconds| [hostile.as_str(), "fork-chains", chains, "30", seconds, name.seconds()];
        assert_prints("", &ended(&mut world.plain(&argv("1", "2"))));
        assert!(with_word(name.seconds()) > 10, "the control ends by itself");
        let gone_by = Instant::now() + Duration::from_secs(20);
        while with_word(name.seconds()) > 0 {
            assert!(Instant::now() < gone_by, "the control does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
        let plan = [LANDLOCK, &["--supervise"]].concat();
        // They would live on for longer than anybody here waits.
        assert_prints("", &ended(&mut world.confined(&plan, &argv("32", "60"))));
        assert_eq!(with_word(name.seconds()), 0, "user {uid}");
    }
}

/// An outer wall that mounts by path may have met a link that another command put there for a moment.
#[test]
fn a_root_that_the_outer_wall_did_not_mount_is_refused() {
    for uid in uids() {
        let world = World::new(uid);
        let (launcher, ws) = (world.path("bin/pinfold-run"), world.path("ws"));
        let identity = identity(&ws);
        let run = |bind: &[&str], more: &[&str]| {
            let outer = ["/usr/bin/bwrap", "--unshare-user", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"];
            let inner = [launcher.as_str(), "--spec", "1", "--wall", "landlock", "--landlock", "1"];
            let rest = ["--write", &identity, &ws, "--", "/bin/echo", "ran"];
            let mut command: Command = world.plain(&[&outer, bind, &["--"], &inner, more, &rest].concat());
            ended(&mut command)
        };
        assert_prints("ran\n", &run(&["--bind", &ws, &ws], &["--mounted"]));
        assert_prints("ran\n", &run(&[], &[]));
        assert_refused("root-changed", &run(&[], &["--mounted"]));
        let out = world.path("out");
        assert_refused("root-changed", &run(&["--bind", &out, &out], &["--mounted"]));
    }
}
