//! `pinfold-run` by itself, as `docs/launcher.md` describes it: standard streams that the command turns against its
//! caller. Each is a hole that an attack has found (`docs/past-escapes.md`).

use pinfold_conformance::fixture::owned;
use pinfold_conformance::judge::wait_within;
use pinfold_conformance::sleeper::Sleeper;
use pinfold_conformance::start::uids;
use pinfold_conformance::sys;
use pinfold_conformance::sys::{c, open};
use pinfold_conformance::world::{
    LANDLOCK, LIMIT, MOUNTS_ALONE, NAMESPACE, WALLS, World, assert_prints, assert_refused, ended,
};
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Walls under which a launcher stays beside the command.
fn supervised() -> [Vec<&'static str>; 2] {
    [NAMESPACE.to_vec(), [LANDLOCK, &["--supervise"]].concat()]
}

/// A FIFO of the fixture's user, and an end that reads nothing.
fn fifo(world: &World) -> (String, OwnedFd) {
    let path = world.path("fifo");
    let _ = std::fs::remove_file(&path);
    sys!(libc::SYS_mknodat, libc::AT_FDCWD, &c(&path), libc::S_IFIFO | 0o600, 0).expect("a FIFO");
    std::os::unix::fs::chown(&path, Some(world.0.uid), Some(world.0.uid)).expect("given away");
    let end = owned(open(&c(&path), libc::O_RDONLY | libc::O_NONBLOCK).expect("an end of the FIFO"));
    (path, end)
}

fn wait_until_full(end: &OwnedFd) {
    let begun = Instant::now();
    let held = || {
        let mut count = [0_u8; 4];
        sys!(libc::SYS_ioctl, end.as_raw_fd(), libc::FIONREAD, &mut count[..]).expect("a pipe");
        i32::from_ne_bytes(count)
    };
    while held() < 65536 {
        assert!(begun.elapsed() < LIMIT, "the FIFO holds {}", held());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// F1: a reader that does not read must not keep the launcher from seeing its caller end.
#[test]
fn output_that_nobody_takes_does_not_outlive_the_caller() {
    for uid in uids() {
        let world = World::new(uid);
        let launcher = world.path("bin/pinfold-run");
        let ends = |words: &[&str]| {
            let (path, end) = fifo(&world);
            let sleeper = Sleeper::new();
            let command = ["/bin/sh", "-c", "sleep $0 2>&- >&- & exec yes", sleeper.seconds()];
            let script = format!("\"$@\" > {path} & wait");
            let argv = [&["/bin/sh", "-c", &script, "sh"], words, &command].concat();
            let mut caller = world.plain(&argv).stderr(Stdio::null()).spawn().expect("a shell");
            assert!(sleeper.wait_until(|n| n == 1, LIMIT), "it starts");
            wait_until_full(&end);
            caller.kill().and_then(|()| caller.wait()).expect("the caller is killed");
            sleeper.wait_until(|n| n == 0, Duration::from_secs(3))
        };
        for wall in supervised() {
            assert!(ends(&[&[&*launcher, "--spec", "1"], &*wall, &["--"]].concat()), "{wall:?}");
        }
        assert!(!ends(&[]), "the control ends by itself");
    }
}

/// F1: after the command, what is left waits for its reader, but not against the caller's will.
#[test]
fn a_launcher_that_waits_for_a_reader_ends_when_it_is_asked() {
    // More than a pipe holds, less than two.
    const BYTES: &str = "120000";
    for uid in uids() {
        let world = World::new(uid);
        for wall in supervised() {
            for asked in [true, false] {
                let (path, end) = fifo(&world);
                let to = owned(open(&c(&path), libc::O_WRONLY).expect("the other end"));
                let mut command = world.confined(&wall, &["/usr/bin/head", "-c", BYTES, "/dev/zero"]);
                let mut child = command.stdout(to).spawn().expect("it starts");
                drop(command);
                wait_until_full(&end);
                if asked {
                    std::thread::sleep(Duration::from_millis(200));
                    assert!(child.try_wait().expect("a child").is_none(), "it waits");
                    sys!(libc::SYS_kill, child.id(), libc::SIGTERM).expect("it can be signalled");
                } else {
                    sys!(libc::SYS_fcntl, end.as_raw_fd(), libc::F_SETFL, 0).expect("it may wait");
                    let all = std::io::copy(&mut File::from(end), &mut std::io::sink()).expect("readable");
                    assert_eq!(all.to_string(), BYTES);
                }
                wait_within(&mut child, Duration::from_secs(5)).expect("it ends in time");
            }
        }
    }
}

/// Takes all of its input, gives a byte out, takes that back, and sees whether its input is filled again.
const TAKE_BACK: &str = "
import os, select, time
came = os.open('/proc/self/fd/0', os.O_RDONLY | os.O_NONBLOCK)
back = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)
def take(fd):
    try:
        while os.read(fd, 1 << 17): pass
    except BlockingIOError: pass
taken = 0
for turn in range(1500):
    take(came)
    os.write(1, b'x')
    until = time.perf_counter_ns() + turn % 40 * 500
    while time.perf_counter_ns() < until: pass
    try: taken += len(os.read(back, 1))
    except BlockingIOError: continue
    take(came)
    if not select.select([came], [], [], 3)[0]:
        os.write(2, b'stuck'); break
else: os.write(2, b'moving')
assert taken";

/// F1: `poll` saw a byte, and the command took it back before it was read.
#[test]
fn output_that_is_taken_back_stops_nobody() {
    for uid in uids() {
        let world = World::new(uid);
        let (input, output) = (world.path("input"), world.path("output"));
        File::create(&input).and_then(|file| file.set_len(1 << 33)).expect("a file without end");
        for wall in supervised() {
            let mut command = world.confined(&wall, &["/usr/bin/python3", "-c", TAKE_BACK]);
            command.stdin(File::open(&input).expect("the file")).stdout(File::create(&output).expect("a file"));
            let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
            let said = std::io::read_to_string(child.stderr.take().expect("a pipe")).expect("readable");
            wait_within(&mut child, LIMIT).expect("it ends in time");
            assert_eq!(said, "moving", "{wall:?}");
        }
    }
}

/// F2: what the command writes into the pipe that is its standard input is not what it left unread.
#[test]
fn what_the_command_puts_back_does_not_move_the_callers_place() {
    for uid in uids() {
        let world = World::new(uid);
        std::fs::write(world.path("input"), "one\ntwo\nthree\n").expect("a file");
        let script = format!("{{ read -r line; \"$@\"; cat; }} < {}", world.path("input"));
        let act = |back: usize| {
            format!("import os; os.read(0, 99); os.write(os.open('/proc/self/fd/0', os.O_WRONLY), b'Z' * {back})")
        };
        let run = |words: &[&str]| ended(&mut world.plain(&[&["/bin/sh", "-c", &script, "sh"], words].concat()));
        // A control that writes would write to the file; it only leaves unread.
        assert_prints("two\nthree\n", &run(&["/bin/true"]));
        assert_prints("three\n", &run(&["/usr/bin/python3", "-c", "import os; os.read(0, 4)"]));
        let launcher = world.path("bin/pinfold-run");
        for wall in WALLS {
            let confined = |back| {
                let act = act(back);
                run(&[&[&*launcher, "--spec", "1"], wall, &["--", "/usr/bin/python3", "-c", &act]].concat())
            };
            assert_prints("", &confined(0));
            assert_prints("three\n", &confined(6));
            // Never what lies before the place at the start.
            assert_prints("two\nthree\n", &confined(13));
        }
    }
}

/// Makes its own descriptors send signals, stops and closes its own terminal.
const ASYNC: &str = "
import errno, fcntl, os, socket, struct, termios
a, b = socket.socketpair()
master, slave = os.openpty()
yes = struct.pack('i', 1)
flags = fcntl.fcntl(a, fcntl.F_GETFL)
for act in (
    lambda: fcntl.fcntl(a, fcntl.F_SETFL, flags | os.O_NONBLOCK),
    lambda: fcntl.fcntl(a, fcntl.F_SETFL, flags | os.O_ASYNC),
    lambda: fcntl.fcntl(a, 10, 10),
    lambda: fcntl.ioctl(a, 0x5452, yes),
    lambda: termios.tcflow(slave, termios.TCOON),
    lambda: fcntl.ioctl(slave, termios.TIOCEXCL),
):
    try: act(); print('done')
    except OSError as e: print(errno.errorcode[e.errno])
    except termios.error as e: print(errno.errorcode[e.args[0]])";

/// F8, F17, F23: `F_SETFL` with `O_ASYNC`, `F_SETSIG`, `FIOASYNC`, `TCXONC`, `TIOCEXCL`; other flags can be set.
#[test]
fn streams_send_no_signals_and_terminals_do_not_stop() {
    for uid in uids() {
        let world = World::new(uid);
        let argv = ["/usr/bin/python3", "-c", ASYNC];
        assert_prints(&"done\n".repeat(6), &ended(&mut world.plain(&argv)));
        for wall in WALLS {
            for more in [&[][..], &["--deny-metadata"]] {
                let expected = format!("done\n{}", "EPERM\n".repeat(5));
                assert_prints(&expected, &ended(&mut world.confined(&[wall, more].concat(), &argv)));
            }
        }
    }
}

/// F13: keys of an encrypted file system, through a directory that is open for reading. A file system without encryption does
/// not know the request; one with it finds no key in these bytes.
#[test]
fn keys_of_a_file_system_are_out_of_reach() {
    are_refused(&[0xc050_6617, 0xc040_6618, 0xc040_6619]);
}

/// Trees of btrfs: a copy shows what a cover hides, a removal by number finds what lies outside. The numbers alone decide, so
/// that no btrfs is needed to see it: another file system does not know the requests; btrfs finds no name in these bytes.
#[test]
fn trees_of_a_file_system_are_not_made_copied_or_removed_by_request() {
    are_refused(&[
        0x5000_940e,
        0x5000_9418,
        0x4008_941a,
        0x5000_9401,
        0x5000_9417,
        0x5000_940f,
        0x5000_943f,
        0xc0c8_9425,
    ]);
}

/// What nobody has listed: requests that make a file immutable, move what it consists of, stop the balancing of a btrfs; one
/// that no file system has yet.
#[test]
fn requests_that_are_not_known_to_be_harmless_are_refused() {
    are_refused(&[0x4080_6685, 0xc028_660f, 0x5000_940c, 0x4004_cafe]);
}

/// Requests of every day, on what they are for.
#[test]
fn requests_of_every_day_are_open() {
    let act = "
import array, fcntl, os, socket, termios
a, b = socket.socketpair()
master, slave = os.openpty()
for fd, request in (
    (a, termios.FIONREAD), (a, termios.FIONBIO), (a, termios.FIOCLEX), (a, termios.FIONCLEX), (slave, termios.TCGETS),
    (slave, termios.TIOCGWINSZ), (master, termios.TIOCSWINSZ), (socket.socket(), 0x8912),
    (os.open('.', os.O_RDONLY), 2), (os.open('.', os.O_RDONLY), 0x80086601),
):
    fcntl.ioctl(fd, request, array.array('b', bytes(64)))
print('done')";
    for uid in uids() {
        let world = World::new(uid);
        let argv = ["/usr/bin/python3", "-c", act];
        assert_prints("done\n", &ended(&mut world.plain(&argv)));
        for wall in WALLS {
            assert_prints("done\n", &ended(&mut world.confined(wall, &argv)));
        }
    }
}

/// F_SET_RW_HINT and F_SET_FILE_RW_HINT, which an owner can give through a descriptor that is open for reading.
#[test]
fn hints_about_a_file_s_lifetime_are_refused() {
    let act = "
import errno, fcntl, os, struct
fd = os.open(os.environ['FILE'], os.O_RDONLY)
for operation in 1036, 1038:
    try: fcntl.fcntl(fd, operation, struct.pack('Q', 2)); print('done')
    except OSError as e: print(errno.errorcode[e.errno])";
    for uid in uids() {
        let world = World::new(uid);
        let argv = ["/usr/bin/python3", "-c", act];
        let file = world.0.ws().join("hinted");
        std::fs::write(&file, "x").expect("a file");
        std::os::unix::fs::chown(&file, Some(uid), Some(uid)).expect("an owner");
        let with = |mut command: Command| ended(command.env("FILE", &file));
        // The second is no operation of newer kernels.
        let control = with(world.plain(&argv));
        assert!(control.1.starts_with("done\n") && !control.1.contains("EPERM"), "{control:?}");
        for wall in WALLS {
            assert_prints("EPERM\nEPERM\n", &with(world.confined(wall, &argv)));
        }
    }
}

/// Every wall refuses these requests of ioctl(2) on a directory that is open for reading; without a wall none gets EPERM.
fn are_refused(requests: &[u32]) {
    let act = format!(
        "
import errno, fcntl, os
fd = os.open('/', os.O_RDONLY)
for request in {requests:?}:
    try: fcntl.ioctl(fd, request, bytearray(4096))
    except OSError as e: print(errno.errorcode[e.errno])"
    );
    for uid in uids() {
        let world = World::new(uid);
        let argv = ["/usr/bin/python3", "-c", &act];
        let control = ended(&mut world.plain(&argv));
        assert!(control.0 == Some(0) && !control.1.contains("EPERM"), "{control:?}");
        for wall in WALLS {
            assert_prints(&"EPERM\n".repeat(requests.len()), &ended(&mut world.confined(wall, &argv)));
        }
    }
}

/// F12: a network socket stays one that can be connected to somebody else.
#[test]
fn a_network_socket_on_a_stream_is_refused_where_the_network_is_closed() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a server");
    let client = std::net::TcpStream::connect(server.local_addr().expect("an address")).expect("a connection");
    let (one, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let with = |end: &OwnedFd, mut command: Command| ended(command.stdin(end.try_clone().expect("a copy")));
    let (client, one) = (OwnedFd::from(client), OwnedFd::from(one));
    for uid in uids() {
        let world = World::new(uid);
        let argv = ["/bin/echo", "ran"];
        assert_prints("ran\n", &with(&client, world.plain(&argv)));
        for wall in WALLS {
            assert_prints("ran\n", &with(&client, world.confined(wall, &argv)));
            for network in ["off", "private"] {
                let closed = [wall, &["--network", network]].concat();
                assert_refused("stdio", &with(&client, world.confined(&closed, &argv)));
                assert_prints("ran\n", &with(&one, world.confined(&closed, &argv)));
            }
        }
    }
}

/// F10: the master of a pseudo-terminal feeds it; of other devices nobody knows what they do.
#[test]
fn a_device_that_is_no_terminal_is_refused() {
    let mut devices = vec![c"/dev/ptmx", c"/dev/fuse", c"/dev/net/tun"];
    devices.retain(|path| std::path::Path::new(path.to_str().expect("UTF-8")).exists());
    for uid in uids() {
        let world = World::new(uid);
        for device in &devices {
            let Ok(device) = open(device, libc::O_RDWR | libc::O_NOCTTY).map(owned) else { continue };
            let run = |mut command: Command| ended(command.stdin(device.try_clone().expect("a copy")));
            assert_prints("ran\n", &run(world.plain(&["/bin/echo", "ran"])));
            for wall in WALLS {
                assert_refused("stdio", &run(world.confined(wall, &["/bin/echo", "ran"])));
            }
        }
    }
}

/// Starts its arguments with a terminal of their own, which they have by the name `/dev/tty`.
const BY_TTY: &str = "
import fcntl, os, sys, termios
master, slave = os.openpty()
if os.fork() == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    os.dup2(os.open('/dev/tty', os.O_RDWR), 0)
    os.execvp(sys.argv[1], sys.argv[1:])
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))";

/// F10: the node `/dev/tty` itself, whose mode root could change.
#[test]
fn the_node_of_the_controlling_terminal_is_read_only() {
    let look = "import os; print(os.isatty(0), bool(os.fstatvfs(0).f_flag & os.ST_RDONLY), os.write(0, b'x'))";
    for uid in uids() {
        let world = World::new(uid);
        let through = ["/usr/bin/python3", "-c", BY_TTY];
        let look = ["/usr/bin/python3", "-c", look];
        assert_prints("True False 1\n", &ended(&mut world.plain(&[through, look].concat())));
        let launcher = world.path("bin/pinfold-run");
        let confined = [&through[..], &[&*launcher, "--spec", "1"], NAMESPACE, &["--"], &look].concat();
        assert_prints("True True 1\n", &ended(&mut world.plain(&confined)));
    }
}

/// Opens a terminal, hides where it has its name if it is told so, and starts its arguments on it.
const WITHOUT_A_NAME: &str = "
import os, subprocess, sys
master, slave = os.openpty()
if sys.argv[1] == 'hide':
    subprocess.run(['mount', '-t', 'devpts', '-o', 'newinstance,ptmxmode=0666', 'x', '/dev/pts'], check=True)
sys.exit(subprocess.run(sys.argv[2:], stdin=slave).returncode)";

/// F11: a terminal that cannot be opened anew keeps a node that its owner can change.
#[test]
fn a_terminal_without_a_name_is_refused() {
    for uid in uids() {
        let world = World::new(uid);
        let launcher = world.path("bin/pinfold-run");
        let change = ["/usr/bin/python3", "-c", "import os; os.fchmod(0, 0o666); print('changed')"];
        let run = |name: &str, words: &[&str]| {
            let script = ["/usr/bin/python3", "-c", WITHOUT_A_NAME, name];
            world.in_own_mounts("exec \"$@\"", None, &[&script, words, &change].concat())
        };
        let confined = [&[&*launcher, "--spec", "1"], MOUNTS_ALONE, &["--"]].concat();
        assert_prints("changed\n", &run("hide", &[]));
        assert_refused("stdio", &run("hide", &confined));
        let (code, _, stderr) = run("leave", &confined);
        assert!(code == Some(1) && stderr.contains("[Errno 30]"), "{stderr}");
    }
}
