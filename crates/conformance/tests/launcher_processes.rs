//! `pinfold-run` by itself, as `docs/launcher.md` describes it: streams, signals, ends.

use pinfold_conformance::fixture::owned;
use pinfold_conformance::judge::wait_within;
use pinfold_conformance::sleeper::Sleeper;
use pinfold_conformance::start::{own_uid, uids};
use pinfold_conformance::sys;
use pinfold_conformance::sys::{c, open};
use pinfold_conformance::world::{
    LANDLOCK, LIMIT, MOUNTS_ALONE, NAMESPACE, WALLS, World, assert_prints, assert_refused, ended,
};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

// Streams

#[test]
fn what_the_command_does_not_read_stays_for_the_next_reader() {
    let world = World::own();
    std::fs::write(world.path("input"), "one\ntwo\nthree\n").expect("a file");
    let script = format!("{{ \"$@\"; cat; }} < {}", world.path("input"));
    let argv = ["/bin/sh", "-c", "read -r line; echo got $line"];
    let run = |words: &[&str]| ended(&mut world.plain(&[&["/bin/sh", "-c", &script, "sh"], words].concat()));
    assert_prints("got one\ntwo\nthree\n", &run(&argv));
    let launcher = world.path("bin/pinfold-run");
    for wall in WALLS {
        assert_prints(
            "got one\ntwo\nthree\n",
            &run(&[&[launcher.as_str(), "--spec", "1"], wall, &["--"], &argv].concat()),
        );
    }
}

#[test]
fn a_device_on_a_stream_keeps_its_access_and_must_be_harmless() {
    let world = World::own();
    let argv = ["/bin/sh", "-c", "echo x 2>&- >&0 && echo written || echo refused"];
    let node = |name: &str, minor: u32| {
        let path = world.path(name);
        let made = sys!(libc::SYS_mknodat, libc::AT_FDCWD, &c(&path), libc::S_IFCHR | 0o666, libc::makedev(1, minor));
        made.ok().and_then(|_| std::fs::File::open(&path).ok())
    };
    let with = |stdin: std::fs::File, command: &mut Command| ended(command.stdin(stdin));
    let null = || std::fs::File::open("/dev/null").expect("/dev/null");
    let both = || std::fs::File::options().read(true).write(true).open("/dev/null").expect("/dev/null");
    for wall in WALLS {
        assert_prints("refused\n", &with(null(), &mut world.confined(wall, &argv)));
        assert_prints("written\n", &with(both(), &mut world.confined(wall, &argv)));
    }
    assert_prints("refused\n", &with(null(), &mut world.plain(&argv)));
    assert_prints("written\n", &with(both(), &mut world.plain(&argv)));
    // /dev/kmsg and /dev/null, by nodes that only root can make.
    if own_uid() == 0 {
        let (log, null) = (node("log", 11).expect("the kernel's log"), node("null", 3).expect("a node"));
        assert_prints("ran\n", &with(null, &mut world.confined(NAMESPACE, &["/bin/echo", "ran"])));
        assert_prints("ran\n", &with(log.try_clone().expect("a copy"), &mut world.plain(&["/bin/echo", "ran"])));
        assert_refused("stdio", &with(log, &mut world.confined(NAMESPACE, &["/bin/echo", "ran"])));
    }
}

#[test]
fn a_block_device_on_a_stream_is_copied() {
    // Only root has block devices; whoever is not has nothing to redirect.
    let Ok(disk) = open(c"/dev/loop0", libc::O_RDONLY) else { return };
    let disk = owned(disk);
    let world = World::own();
    let argv = ["/usr/bin/python3", "-c", "import os, stat; print(stat.S_ISBLK(os.fstat(0).st_mode))"];
    let run = |mut command: Command| ended(command.stdin(disk.try_clone().expect("a copy")));
    assert_prints("True\n", &run(world.plain(&argv)));
    for wall in WALLS {
        assert_prints("False\n", &run(world.confined(wall, &argv)));
    }
}

#[test]
fn a_named_fifo_is_out_of_reach_and_an_anonymous_pipe_passes() {
    for uid in uids() {
        let world = World::new(uid);
        let path = world.path("fifo");
        sys!(libc::SYS_mknodat, libc::AT_FDCWD, &c(&path), libc::S_IFIFO | 0o600, 0).expect("a FIFO");
        std::os::unix::fs::chown(&path, Some(uid), Some(uid)).expect("given away");
        let mode = || std::fs::metadata(&path).expect("it exists").mode() & 0o777;
        let fifo = || owned(open(&c(&path), libc::O_RDONLY | libc::O_NONBLOCK).expect("the FIFO"));
        let change = ["/usr/bin/python3", "-c", "import os; os.fchmod(0, 0o640); print('done')"];
        for wall in WALLS {
            assert_prints("done\n", &ended(world.confined(wall, &change).stdin(fifo())));
            assert_eq!(mode(), 0o600, "{wall:?}");
        }
        assert_prints("done\n", &ended(world.plain(&change).stdin(fifo())));
        assert_eq!(mode(), 0o640);
        // A pipe without a name has nothing behind it, so nobody copies.
        let look = ["/bin/readlink", "/proc/self/fd/0"];
        let (from, _to) = std::io::pipe().expect("a pipe");
        let end = || from.try_clone().expect("a copy");
        let control = ended(world.plain(&look).stdin(end()));
        assert!(control.1.starts_with("pipe:["), "{control:?}");
        for wall in WALLS {
            assert_prints(&control.1, &ended(world.confined(wall, &look).stdin(end())));
        }
    }
}

#[test]
fn two_openings_of_one_file_stay_two() {
    let world = World::own();
    let path = world.path("file");
    let argv = ["/bin/sh", "-c", "echo out; echo err >&2"];
    let run = |mut command: Command| {
        std::fs::write(&path, "0123456789\n").expect("a file");
        let options = |append: bool| std::fs::File::options().write(true).append(append).open(&path).expect("the file");
        let mut child = command.stdout(options(false)).stderr(options(true)).spawn().expect("it starts");
        assert!(wait_within(&mut child, LIMIT).expect("it ends in time").success());
        std::fs::read_to_string(&path).expect("readable")
    };
    assert_eq!(run(world.plain(&argv)), "out\n456789\nerr\n");
    for wall in WALLS {
        assert_eq!(run(world.confined(wall, &argv)), "out\n456789\nerr\n");
    }
}

#[test]
fn a_slow_reader_of_a_fifo_gets_every_byte() {
    const BYTES: usize = 1_000_000;
    let world = World::own();
    let fifo = c(world.path("fifo"));
    sys!(libc::SYS_mknodat, libc::AT_FDCWD, &fifo, libc::S_IFIFO | 0o600, 0).expect("a FIFO");
    for wall in WALLS {
        let end = |flags: i32| owned(open(&fifo, flags | libc::O_NONBLOCK).expect("an end of the FIFO"));
        let (from, to) = (end(libc::O_RDONLY), end(libc::O_WRONLY));
        sys!(libc::SYS_fcntl, from.as_raw_fd(), libc::F_SETFL, 0).expect("a reader that waits");
        let mut command = world.confined(wall, &["/usr/bin/head", "-c", &BYTES.to_string(), "/dev/zero"]);
        let mut child = command.stdout(to).spawn().expect("it starts");
        // What is still open in `command` would keep the end from being seen.
        drop(command);
        std::thread::sleep(Duration::from_millis(300));
        let mut bytes = Vec::new();
        std::fs::File::from(from).read_to_end(&mut bytes).expect("readable");
        assert!(wait_within(&mut child, LIMIT).expect("it ends in time").success());
        assert_eq!(bytes.len(), BYTES, "{wall:?}");
    }
}

/// A terminal of another instance of devpts than the one at /dev/pts, as a container may hand it in, on standard error.
const ON_A_FOREIGN_TERMINAL: &str = "
import fcntl, os, struct, sys
place = sys.argv[1]
master = os.open(place + '/ptmx', os.O_RDWR | os.O_NOCTTY)
fcntl.ioctl(master, 0x40045431, struct.pack('i', 0))
number = struct.unpack('i', fcntl.ioctl(master, 0x80045430, b'1234'))[0]
slave = os.open(f'{place}/{number}', os.O_RDWR | os.O_NOCTTY)
pid = os.fork()
if pid == 0:
    os.dup2(slave, 2)
    os.execv(sys.argv[2], sys.argv[2:])
os.waitpid(pid, 0)
print(os.read(master, 100).decode().strip())";

#[test]
fn a_terminal_on_a_stream_can_be_opened_by_its_path() {
    let world = World::own();
    let place = world.path("pts");
    std::fs::create_dir(&place).expect("a directory");
    let setup = format!("mount -t devpts -o newinstance,ptmxmode=0666 x {place} && exec \"$@\"");
    let launcher = world.path("bin/pinfold-run");
    let argv = ["/bin/sh", "-c", "echo shown > /dev/stderr"];
    let through = ["/usr/bin/python3", "-c", ON_A_FOREIGN_TERMINAL, &place];
    let control = world.in_own_mounts(&setup, None, &[&through[..], &argv].concat());
    assert_prints("shown\n", &control);
    let confined = [&through[..], &[&launcher, "--spec", "1"], LANDLOCK, &["--"], &argv].concat();
    assert_prints("shown\n", &world.in_own_mounts(&setup, None, &confined));
}

#[test]
fn landlock_refuses_requests_to_devices() {
    // TUNGETFEATURES on a descriptor that is open for reading.
    let argv = [
        "/usr/bin/python3",
        "-c",
        "import fcntl; fcntl.ioctl(open('/dev/net/tun'), 0x800454cf, b'1234'); print('asked')",
    ];
    let world = World::own();
    let control = ended(&mut world.plain(&argv));
    if control.0 != Some(0) {
        // Whoever cannot open the device outside cannot inside.
        assert!(own_uid() != 0 || !Path::new("/dev/net/tun").exists(), "{control:?}");
        return;
    }
    let (code, _, stderr) = ended(&mut world.confined(LANDLOCK, &argv));
    assert!(code == Some(1) && stderr.contains("PermissionError: [Errno 13]"), "{stderr}");
}

// Ends and signals

/// A shell starts the command and is killed; true if the command goes with it.
fn ends_with_its_caller(world: &World, words: &[&str], sleeper: &Sleeper) -> bool {
    let script = "\"$@\" & wait";
    let mut caller = world.plain(&[&["/bin/sh", "-c", script, "sh"], words].concat()).spawn().expect("a shell");
    assert!(sleeper.wait_until(|n| n == 1, LIMIT), "it starts");
    caller.kill().and_then(|()| caller.wait()).expect("the caller is killed");
    sleeper.wait_until(|n| n == 0, Duration::from_secs(2))
}

#[test]
fn a_command_without_supervisor_dies_with_its_parent_if_asked() {
    for uid in uids() {
        let world = World::new(uid);
        let launcher = world.path("bin/pinfold-run");
        for (more, dies) in [(&["--die-with-parent"][..], true), (&[], false)] {
            let sleeper = Sleeper::new();
            let words =
                [&[launcher.as_str(), "--spec", "1"], LANDLOCK, more, &["--", "sleep", sleeper.seconds()]].concat();
            assert_eq!(ends_with_its_caller(&world, &words, &sleeper), dies, "{more:?}");
        }
    }
}

#[test]
fn the_callers_death_is_seen_where_pidfds_are_missing_or_forbidden() {
    for uid in uids() {
        let world = World::new(uid);
        let (launcher, mask) = (world.path("bin/pinfold-run"), world.path("bin/pinfold-mask"));
        let supervised = [LANDLOCK, &["--supervise"]].concat();
        for errno in ["ENOSYS", "EPERM"] {
            for wall in [NAMESPACE, &supervised] {
                let sleeper = Sleeper::new();
                let hidden = [mask.as_str(), "--errno", errno, "pidfd_open", "--"];
                let command = ["--", "sleep", sleeper.seconds()];
                let words = [&hidden[..], &[launcher.as_str(), "--spec", "1"], wall, &command].concat();
                assert!(ends_with_its_caller(&world, &words, &sleeper), "{errno} {wall:?}");
            }
        }
        let sleeper = Sleeper::new();
        assert!(!ends_with_its_caller(&world, &["sleep", sleeper.seconds()], &sleeper), "the control ends by itself");
    }
}

#[test]
fn the_death_of_a_caller_outside_the_pid_namespace_is_seen() {
    let world = World::own();
    let launcher = world.path("bin/pinfold-run");
    let outside = ["unshare", "-Urp", "/bin/sh", "-c", "\"$@\" & wait", "sh"];
    let ends = |words: &[&str], sleeper: &Sleeper| {
        let mut caller = world.plain(&[&outside, words].concat()).spawn().expect("a shell");
        assert!(sleeper.wait_until(|n| n == 1, LIMIT), "it starts");
        caller.kill().and_then(|()| caller.wait()).expect("the caller is killed");
        sleeper.wait_until(|n| n == 0, Duration::from_secs(2))
    };
    let sleeper = Sleeper::new();
    let supervised = [LANDLOCK, &["--supervise"]].concat();
    let words = [&[launcher.as_str(), "--spec", "1"], &supervised[..], &["--", "sleep", sleeper.seconds()]].concat();
    assert!(ends(&words, &sleeper));
    let sleeper = Sleeper::new();
    assert!(!ends(&["sleep", sleeper.seconds()], &sleeper), "the control ends by itself");
}

#[test]
fn an_interrupt_reaches_the_whole_group_and_a_request_to_end_only_the_command() {
    let world = World::own();
    let script = "trap 'echo command' TERM; trap '' INT
        python3 -c 'import os, signal, time
signal.alarm(15)
signal.signal(signal.SIGTERM, lambda *a: os.write(1, b\"child-term\\n\"))
signal.signal(signal.SIGINT, lambda *a: os._exit(os.write(1, b\"child-int\\n\")))
os.write(1, b\"ready\\n\")
while True: time.sleep(1)' &
        while ! wait $!; do test -d /proc/$! || break; done; wait";
    let supervised = [LANDLOCK, &["--supervise"]].concat();
    for wall in [NAMESPACE, &supervised] {
        let mut child =
            world.confined(wall, &["/bin/sh", "-c", script]).stdout(Stdio::piped()).spawn().expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("ready"));
        let send = |signal: i32| sys!(libc::SYS_kill, child.id(), signal).expect("it can be signalled");
        send(libc::SIGTERM);
        assert_eq!(lines.next().as_deref(), Some("command"), "{wall:?}");
        send(libc::SIGINT);
        assert_eq!(lines.next().as_deref(), Some("child-int"), "{wall:?}");
        wait_within(&mut child, LIMIT).expect("it ends in time");
    }
}

#[test]
fn a_request_to_stop_stops_the_launcher_too() {
    let world = World::own();
    let stops = |mut command: Command| {
        let sleeper = Sleeper::new();
        let mut child = command.args(["sleep", sleeper.seconds()]).spawn().expect("it starts");
        assert!(sleeper.wait_until(|n| n == 1, LIMIT), "it starts");
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
            stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
        };
        let reached = |stopped: bool| {
            (0..200).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                (state() == Some('T')) == stopped
            })
        };
        let send = |signal: i32| sys!(libc::SYS_kill, child.id(), signal).expect("it can be signalled");
        send(libc::SIGTSTP);
        let stopped = reached(true);
        send(libc::SIGCONT);
        let goes_on = reached(false);
        child.kill().and_then(|()| child.wait()).expect("it is ended");
        (stopped, goes_on)
    };
    assert_eq!(stops(world.plain(&["/usr/bin/env"])), (true, true), "the control");
    let supervised = [LANDLOCK, &["--supervise"]].concat();
    for wall in [NAMESPACE, &supervised] {
        assert_eq!(stops(world.confined(wall, &[])), (true, true), "{wall:?}");
    }
}

#[test]
fn the_launcher_leaves_no_core_of_its_own() {
    let world = World::own();
    let run = |words: &[&str]| {
        let script = "ulimit -c unlimited && exec \"$@\"";
        let mut command = world.plain(&[&["/bin/sh", "-c", script, "sh"], words].concat());
        let status = wait_within(&mut command.stderr(Stdio::null()).spawn().expect("it starts"), LIMIT);
        let status = status.expect("it ends in time");
        (status.signal(), status.core_dumped())
    };
    assert_eq!(run(&["/bin/sh", "-c", "kill -ABRT $$"]), (Some(libc::SIGABRT), true), "the control");
    let launcher = world.path("bin/pinfold-run");
    for wall in [NAMESPACE, &[LANDLOCK, &["--supervise"]].concat()] {
        let argv = ["--", "/bin/sh", "-c", "ulimit -c 0; kill -ABRT $$"];
        let words = [&[launcher.as_str(), "--spec", "1"], wall, &argv].concat();
        assert_eq!(run(&words), (Some(libc::SIGABRT), false), "{wall:?}");
    }
}

/// Nobody outside has sent it: it may not come back as if somebody had.
#[test]
fn what_the_command_sends_to_its_supervisor_goes_nowhere() {
    let world = World::own();
    let script = "trap 'echo back' TERM; kill -TERM $PPID; sleep 0.2; echo over";
    // Landlock's scope would refuse to send it.
    assert_prints("over\n", &ended(&mut world.confined(MOUNTS_ALONE, &["/bin/sh", "-c", script])));
    let control = "trap 'echo back' TERM; kill -TERM $$; sleep 0.2; echo over";
    assert_prints("back\nover\n", &ended(&mut world.confined(MOUNTS_ALONE, &["/bin/sh", "-c", control])));
}

#[test]
fn the_end_of_a_stream_is_seen_when_the_command_closes_it() {
    let world = World::own();
    let argv = ["/bin/sh", "-c", "echo said; exec >&- 2>&-; exec sleep 15"];
    let supervised = [LANDLOCK, &["--supervise"]].concat();
    for wall in [NAMESPACE, &supervised] {
        let mut child = world.confined(wall, &argv).stdout(Stdio::piped()).spawn().expect("starts");
        let begun = std::time::Instant::now();
        let text = std::io::read_to_string(child.stdout.take().expect("a pipe")).expect("readable");
        assert_eq!(text, "said\n");
        assert!(begun.elapsed() < Duration::from_secs(10), "{wall:?}: the end came with the command's");
        child.kill().and_then(|()| child.wait()).expect("it is ended");
    }
}
