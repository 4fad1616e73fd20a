//! `pinfold-run` by itself, as `docs/launcher.md` describes it: what it hides, closes and drops, and the caller's terminal.

use pinfold_conformance::start::uids;
use pinfold_conformance::world::{
    LANDLOCK, LIMIT, NAMESPACE, WALLS, World, assert_prints, assert_refused, ended, identity,
};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

fn plan<'a>(words: &[&[&'a str]]) -> Vec<&'a str> {
    words.concat()
}

/// Tries to read, write, list, rename and remove what is covered; prints what worked.
const TRY_COVERED: &str = "
cat secret/key && echo READ; cat .env && echo READ; ls secret && echo LISTED; cat /proc/self/root$PWD/.env && echo READ
cat link && echo READ; (echo x > .env) && echo WROTE; mv secret moved && echo MOVED; rm -rf secret && echo REMOVED
mv .env e && echo MOVED; touch kept && echo end";

#[test]
fn covered_paths_can_be_neither_read_nor_moved_away() {
    for uid in uids() {
        let world = World::new(uid);
        let prepare = || {
            let make = "rm -rf secret moved .env e link kept; mkdir secret; echo k > secret/key; echo e > .env; ln -s .env link";
            assert_prints("", &ended(&mut world.plain(&["/bin/sh", "-c", make])));
        };
        prepare();
        let (_, control, _) = ended(&mut world.plain(&["/bin/sh", "-c", TRY_COVERED]));
        for word in ["READ", "LISTED", "WROTE", "MOVED"] {
            assert!(control.contains(word), "unconfined, everything works: {control}");
        }
        prepare();
        let (ws, secret, env) = (world.path("ws"), world.path("ws/secret"), world.path("ws/.env"));
        let (id, missing) = (identity(&ws), world.path("ws/missing"));
        let words = ["--write", &id, &ws, "--cover", &secret, "--cover", &env, "--cover", &missing];
        let (code, stdout, _) =
            ended(&mut world.confined(&plan(&[NAMESPACE, &words]), &["/bin/sh", "-c", TRY_COVERED]));
        assert_eq!((code, stdout.as_str()), (Some(0), "end\n"));
        assert_eq!(std::fs::read_to_string(world.path("ws/.env")).expect("untouched"), "e\n");
        assert_eq!(std::fs::read_to_string(world.path("ws/secret/key")).expect("untouched"), "k\n");
    }
}

#[test]
fn what_the_host_adds_to_a_covered_directory_stays_hidden() {
    let world = World::own();
    std::fs::create_dir(world.path("closed")).expect("a directory");
    let (path, file) = (world.path("closed"), world.path("closed/later"));
    let script = format!("echo ready; read go; cat {file}; echo $?");
    let run = |words: &[&str]| {
        let mut child = world
            .confined(&plan(&[NAMESPACE, words]), &["/bin/sh", "-c", &script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut stdout = child.stdout.take().expect("a pipe");
        let mut ready = [0; 6];
        stdout.read_exact(&mut ready).expect("ready");
        std::fs::write(&file, "new").expect("written");
        child.stdin.take().expect("a pipe").write_all(b"go\n").expect("told");
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).expect("its words");
        child.wait().expect("it ends");
        std::fs::remove_file(&file).expect("removed");
        rest
    };
    assert_eq!(run(&[]), "new0\n", "without a cover it is seen");
    assert_eq!(run(&["--cover", &path]), "1\n");
}

#[test]
fn a_hollow_directory_shows_only_what_is_kept() {
    let world = World::own();
    std::fs::create_dir_all(world.path("run/kept/deep")).expect("directories");
    std::fs::write(world.path("run/kept/deep/file"), "kept").expect("a file");
    std::fs::write(world.path("run/single"), "single").expect("a file");
    std::fs::write(world.path("run/other"), "other").expect("a file");
    let (run, kept, single) = (world.path("run"), world.path("run/kept"), world.path("run/single"));
    let script = format!("cd {run}; ls; cat kept/deep/file single; touch kept/x new 2>/dev/null || echo refused");
    let words = ["--hollow", &run, "--keep", &kept, "--keep", &single];
    let inside = ended(&mut world.confined(&plan(&[NAMESPACE, &words]), &["/bin/sh", "-c", &script]));
    assert_prints("kept\nsingle\nkeptsinglerefused\n", &inside);
}

#[test]
fn landlock_alone_refuses_what_only_mounts_can_hide() {
    let world = World::own();
    for words in [&["--cover", "/x"][..], &["--hollow", "/x"], &["--keep", "/x"], &["--own-copy", "/x"]] {
        assert_refused("usage", &ended(&mut world.confined(&plan(&[LANDLOCK, words]), &["/bin/echo", "ran"])));
    }
}

#[test]
fn a_file_whose_owner_is_checked_can_be_shown_as_the_users_own() {
    for uid in uids() {
        let world = World::new(uid);
        let path = world.path("config");
        std::fs::write(&path, "text").expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("a mode");
        let argv =
            ["/bin/sh", "-c", &format!("stat -c %u {path}; cat {path}; (echo x > {path}) 2>/dev/null || echo refused")];
        let inside = ended(&mut world.confined(&plan(&[NAMESPACE, &["--own-copy", &path]]), &argv));
        assert_prints(&format!("{uid}\ntextrefused\n"), &inside);
        assert_eq!(std::fs::read_to_string(&path).expect("untouched"), "text");
    }
}

/// Connects to a port outside, to one of its own, and tries a unix pair.
const TRY_NETWORK: &str = "
import socket, sys
def tried(what, act):
    try: act(); print(what, 'ok')
    except OSError as e: print(what, 'refused')
def own():
    server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()
    socket.create_connection(server.getsockname(), 2)
tried('outside', lambda: socket.create_connection(('127.0.0.1', int(sys.argv[1])), 2))
tried('own', own)
tried('udp', lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', int(sys.argv[1]))))
tried('pair', socket.socketpair)";

#[test]
fn the_network_is_open_private_or_off() {
    for uid in uids() {
        let world = World::new(uid);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port().to_string();
        let argv = ["python3", "-c", TRY_NETWORK, &port];
        let open = "outside ok\nown ok\nudp ok\npair ok\n";
        assert_prints(open, &ended(&mut world.plain(&argv)));
        for wall in WALLS {
            assert_prints(open, &ended(&mut world.confined(wall, &argv)));
            let off = plan(&[wall, &["--network", "off"]]);
            assert_prints(
                "outside refused\nown refused\nudp refused\npair ok\n",
                &ended(&mut world.confined(&off, &argv)),
            );
        }
        let private = plan(&[NAMESPACE, &["--network", "private"]]);
        // A datagram to a port that nobody has goes nowhere, without an error.
        assert_prints("outside refused\nown ok\nudp ok\npair ok\n", &ended(&mut world.confined(&private, &argv)));
    }
}

#[test]
fn variables_are_dropped_by_pattern_and_what_is_set_stays() {
    let world = World::own();
    for wall in WALLS {
        let words = plan(&[wall, &["--unset", "*token*", "--unset", "AWS_*", "--set", "NPM_TOKEN=mine"]]);
        let mut command = world.confined(&words, &["/usr/bin/env"]);
        command.env("GH_TOKEN", "1").env("my_tokens", "2").env("AWS_X", "3").env("NPM_TOKEN", "4").env("STAYS", "5");
        let (_, stdout, _) = ended(&mut command);
        let mut names: Vec<&str> =
            stdout.lines().filter(|line| !line.starts_with("PATH=") && !line.starts_with("LC_")).collect();
        names.sort_unstable();
        assert_eq!(names, ["NPM_TOKEN=mine", "STAYS=5"]);
    }
}

/// Opens a terminal, gives it to the command as all three streams, and prints what the command said and its mode then.
const ON_A_TERMINAL: &str = "
import os, subprocess, sys
master, slave = os.openpty()
name = os.ttyname(slave)
before = os.stat(name).st_mode
child = subprocess.Popen(sys.argv[1:], stdin=slave, stdout=slave, stderr=slave)
code = child.wait()
os.set_blocking(master, False)
print(os.read(master, 65536).decode().replace('\\r', ''), end='')
print(code, 'changed' if os.stat(name).st_mode != before else 'same')";

#[test]
fn the_callers_terminal_keeps_its_mode_and_works() {
    let act = "
import os
for change in (lambda: os.fchmod(0, 0o666), lambda: os.fchown(1, os.getuid(), os.getgid()), lambda: os.utime(2, (1, 1))):
    try: change(); print('changed')
    except OSError: print('refused')
print(os.isatty(0), os.isatty(1), os.isatty(2))
open('/dev/stdout', 'w').write('by path\\n')";
    for uid in uids() {
        let world = World::new(uid);
        let script = ["python3", "-c", ON_A_TERMINAL];
        let control = ended(&mut world.plain(&plan(&[&script, &["python3", "-c", act]])));
        assert!(control.1.contains("changed\n") && control.1.ends_with("0 changed\n"), "{control:?}");
        let launcher = world.path("bin/pinfold-run");
        let confined = plan(&[&script, &[&launcher, "--spec", "1"], NAMESPACE, &["--", "python3", "-c", act]]);
        let expected = "refused\nrefused\nrefused\nTrue True True\nby path\n0 same\n";
        assert_prints(expected, &ended(&mut world.plain(&confined)));
    }
}

#[test]
fn a_status_file_that_nobody_reads_is_refused_without_waiting() {
    let world = World::own();
    let path = world.path("fifo");
    assert_prints("", &ended(&mut world.plain(&["mkfifo", &path])));
    let begun = std::time::Instant::now();
    assert_refused(
        "status",
        &ended(&mut world.confined(&plan(&[NAMESPACE, &["--status-file", &path]]), &["/bin/echo", "ran"])),
    );
    assert!(begun.elapsed() < LIMIT);
}
