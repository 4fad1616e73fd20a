//! `pinfold-run` by itself, as `docs/launcher.md` describes it: roots, mounts, privileges, namespaces, filter.
//!
//! The matrix asks what a command can do; here each wall is looked at where a second one would hide that it is missing.
//! Each denial has its control: the same thing without the launcher, or with the right plan.

use pinfold_conformance::start::{own_uid, uids};
use pinfold_conformance::world::{
    LANDLOCK, MOUNTS_ALONE, NAMESPACE, WALLS, World, assert_prints, assert_refused, ended, identity,
};
use std::path::Path;
use std::process::Command;

// Writable roots

#[test]
fn a_root_is_the_directory_that_was_meant_or_nothing_runs() {
    for uid in uids() {
        let world = World::new(uid);
        let (ws, out, link) = (world.path("ws"), world.path("out"), world.path("link"));
        std::os::unix::fs::symlink(&ws, &link).expect("a link");
        let file = world.path("file");
        std::fs::write(&file, "").expect("a file");
        let script = "echo ran";
        for wall in [NAMESPACE, MOUNTS_ALONE, LANDLOCK] {
            let run = |identity: &str, path: &str| {
                ended(&mut world.confined(&[wall, &["--write", identity, path]].concat(), &["/bin/sh", "-c", script]))
            };
            assert_prints("ran\n", &run(&identity(&ws), &ws));
            assert_refused("root-changed", &run(&identity(&out), &ws));
            let (device, inode) =
                identity(&ws).split_once(':').map(|(d, i)| (d.to_owned(), i.to_owned())).expect("two");
            assert_refused("root-changed", &run(&format!("1{device}:{inode}"), &ws));
            assert_refused("root-changed", &run(&format!("{device}:1{inode}"), &ws));
            // A link to the right directory, and a file with the right identity.
            for path in [&link, &file] {
                let (code, stdout, stderr) = run(&identity(path), path);
                assert_eq!((code, stdout.as_str()), (Some(125), ""), "{path}: {stderr}");
            }
        }
    }
}

#[test]
fn a_root_that_another_mount_hides_is_refused() {
    let world = World::own();
    let (ws, below) = (world.path("ws"), world.path("ws/below"));
    std::fs::create_dir(&below).expect("a directory");
    let (of_ws, of_below) = (identity(&ws), identity(&below));
    let run = |plan: &[&str]| {
        ended(&mut world.confined(&[MOUNTS_ALONE, plan].concat(), &["/bin/sh", "-c", "echo x > below/f; echo ran"]))
    };
    // Below a private directory a root is visible again; in its place it is not.
    let plan = ["--private", &ws, "--write", &of_below, &below, "--cwd", &below];
    let found = ended(&mut world.confined(&[MOUNTS_ALONE, &plan].concat(), &["/bin/sh", "-c", "echo x > g; ls .."]));
    assert_prints("below\n", &found);
    assert!(world.0.ws().join("below/g").exists());
    assert_refused("root-changed", &run(&["--private", &ws, "--write", &of_ws, &ws, "--cwd", "/"]));
    assert!(!world.0.ws().join("below/f").exists());
    // Where nothing of the host is left at the path, only the look before it tells that another directory was meant.
    assert_refused("root-changed", &run(&["--private", &ws, "--write", &of_ws, &below, "--cwd", "/"]));
    let link = world.path("ws/link");
    std::os::unix::fs::symlink(&below, &link).expect("a link");
    assert_refused("root-open", &run(&["--private", &ws, "--write", &of_below, &link, "--cwd", "/"]));
}

// The mount tree

/// What a mount of the tree lacks of what was promised. `writable` are the mount points that may be written.
fn faults(mountinfo: &str, writable: &[&str]) -> Vec<String> {
    let mut faults = Vec::new();
    for line in mountinfo.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (point, options) = (fields[4], fields[5].split(',').collect::<Vec<_>>());
        let device = point.starts_with("/dev") && point != "/dev/shm";
        let last = mountinfo.lines().rfind(|l| l.split(' ').nth(4) == Some(point)) == Some(line);
        let mut needed = vec!["nosuid"];
        if !device {
            needed.push("nodev");
        }
        // Of mounts over each other only the last can be reached.
        if !(last && writable.contains(&point)) {
            needed.push("ro");
        }
        let own = ["/proc", "/dev", "/dev/pts", "/dev/null", "/dev/tty"];
        if last && own.contains(&point) {
            needed.push("noexec");
        }
        let lacking: Vec<_> = needed.iter().filter(|option| !options.contains(option)).collect();
        // A mount that is shared with, or follows, one outside would show what is mounted there later.
        let follows = fields.iter().skip(6).take_while(|field| **field != "-").count() > 0;
        if !lacking.is_empty() || follows {
            faults.push(format!("{lacking:?}: {line}"));
        }
    }
    faults
}

#[test]
fn every_mount_is_as_closed_as_promised() {
    for uid in uids() {
        let world = World::new(uid);
        let (ws, private) = (world.path("ws"), world.path("temp/tmp"));
        let (below, sub) = (world.path("ws/sub"), world.path("out/sub"));
        for path in [&below, &sub] {
            std::fs::create_dir(path).expect("a directory");
            std::os::unix::fs::chown(path, Some(uid), Some(uid)).expect("given away");
        }
        let setup = format!(
            "mount --make-rshared / && mount -t tmpfs a {below} && mount -t tmpfs b {sub} && mount --make-shared {sub} && exec \"$@\""
        );
        let look = ["/bin/cat", "/proc/self/mountinfo"];
        let of_ws = identity(&ws);
        let plan = [MOUNTS_ALONE, &["--write", &of_ws, &ws, "--private", &private, "--shm"]].concat();
        let (code, confined, stderr) = world.in_own_mounts(&setup, Some(&plan), &look);
        assert_eq!(code, Some(0), "{stderr}");
        for point in [&ws, &below, &sub, &private, "/proc", "/dev", "/dev/null", "/dev/pts", "/dev/shm"] {
            assert!(confined.contains(&format!(" {point} ")), "{point} is no mount: {confined}");
        }
        let writable = [ws.as_str(), &below, &private, "/dev/shm", "/dev/pts"];
        assert_eq!(faults(&confined, &writable), Vec::<String>::new());
        let (code, control, stderr) = world.in_own_mounts(&setup, None, &look);
        assert_eq!(code, Some(0), "{stderr}");
        assert!(faults(&control, &writable).len() > 2, "{control}");
    }
}

#[test]
fn mounts_below_and_later_ones_are_closed_too() {
    for uid in uids() {
        let world = World::new(uid);
        let (ws, out) = (world.path("ws"), world.path("out"));
        let of_ws = identity(&ws);
        let plan = [MOUNTS_ALONE, &["--write", &of_ws, &ws]].concat();
        // What is mounted on the directory outside, before and after the walls stand, and below the workspace.
        let setup = format!(
            "mount -t tmpfs a {out} && mkdir {out}/late {ws}/sub && mount --make-shared {out} && mount -t tmpfs b {ws}/sub &&
             \"$@\" | {{ read -r word; mount -t tmpfs c {out}/late && touch {out}/flag; cat; }}
             for file in {out}/f {out}/late/f {ws}/sub/f; do test -e $file && echo $file; done; rmdir {ws}/sub 2>&-; :"
        );
        let inside = format!(
            "echo ready; while ! test -e {out}/flag; do sleep 0.02; done
             for file in {out}/f {out}/late/f {ws}/sub/f; do echo x 2>&- > $file; done"
        );
        let argv = ["/bin/sh", "-c", &inside];
        let (_, control, stderr) = world.in_own_mounts(&setup, None, &argv);
        assert_eq!(control, format!("{out}/f\n{out}/late/f\n{ws}/sub/f\n"), "{stderr}");
        std::fs::remove_dir(format!("{ws}/sub")).expect("it was made");
        let (_, confined, stderr) = world.in_own_mounts(&setup, Some(&plan), &argv);
        assert_eq!(confined, format!("{ws}/sub/f\n"), "{stderr}");
    }
}

#[test]
fn device_nodes_keep_their_mode() {
    let world = World::own();
    // To what it is: harmless where it works.
    let by_path = ["/bin/chmod", "0666", "/dev/null"];
    let by_stream = ["/usr/bin/python3", "-c", "import os; os.fchmod(0, 0o666)"];
    for argv in [&by_path[..], &by_stream] {
        let control = ended(&mut world.plain(argv));
        assert_eq!(control.0, Some(i32::from(own_uid() != 0)), "{control:?}");
        let (code, _, stderr) = ended(&mut world.confined(MOUNTS_ALONE, argv));
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("Read-only file system"), "{argv:?}: {stderr}");
    }
}

#[test]
fn private_directories_are_for_everybody_and_leave_nothing() {
    for uid in uids() {
        let world = World::new(uid);
        let (ws, private) = (world.path("ws"), world.path("temp/shm"));
        std::fs::write(world.path("temp/shm/before"), "").expect("a file");
        let script = format!(
            "stat -c %a {private} /dev/shm; ls {private}; echo x > {private}/new && echo x > /dev/shm/new && umask"
        );
        let plan = [MOUNTS_ALONE, &["--private", &private, "--shm", "--cwd", &ws]].concat();
        let mut command = world.confined(&plan, &["/bin/sh", "-c", &script]);
        assert_prints("1777\n1777\n0022\n", &ended(&mut command));
        assert!(!Path::new(&format!("{private}/new")).exists());
        let control = ended(&mut world.plain(&["/bin/ls", &private]));
        assert!(control.1.contains("before"), "the control sees it: {control:?}");
    }
}

// What the command is

/// Capability sets, `no_new_privs` and secure bits, as the command sees them.
const SHOW_PRIVILEGES: &str = "
import ctypes, re
text = open('/proc/self/status').read()
print(*[v.lstrip('0') or '0' for v in re.findall(r'^Cap\\w+:\\s*(\\w+)', text, re.M)],
      re.search(r'NoNewPrivs:\\s*(\\d)', text)[1], hex(ctypes.CDLL(None).prctl(27)))";

#[test]
fn privileges_are_gone_and_locked() {
    for uid in uids() {
        let world = World::new(uid);
        let argv = ["/usr/bin/python3", "-c", SHOW_PRIVILEGES];
        let control = ended(&mut world.plain(&argv));
        assert!(control.1.ends_with(" 0 0x0\n") && !control.1.starts_with("0 0 0 0 "), "{control:?}");
        for wall in [NAMESPACE, MOUNTS_ALONE] {
            assert_prints("0 0 0 0 0 1 0xef\n", &ended(&mut world.confined(wall, &argv)));
        }
        let alone = ended(&mut world.confined(LANDLOCK, &argv));
        if uid == 0 {
            assert_prints("0 0 0 0 0 1 0xef\n", &alone);
        } else {
            // The bounding set and the secure bits are root's to change; `no_new_privs` keeps both from counting.
            assert!(alone.1.starts_with("0 0 0 ") && alone.1.ends_with(" 0 1 0x0\n"), "{alone:?}");
        }
    }
    if own_uid() == 0 {
        // An ordinary user who was given capabilities that outlive an exec.
        let world = World::new(1000);
        let given = ["setpriv", "--reuid", "1000", "--clear-groups", "--inh-caps", "+chown,+setpcap"];
        let given = [&given[..], &["--ambient-caps", "+chown,+setpcap"]].concat();
        let argv = ["/usr/bin/python3", "-c", SHOW_PRIVILEGES];
        let run =
            |words: &[&str]| ended(Command::new(given[0]).args(&given[1..]).args(words).current_dir(world.0.ws()));
        let control = run(&argv);
        assert!(control.1.starts_with("101 101 101 ") && control.1.ends_with(" 101 0 0x0\n"), "{control:?}");
        let launcher = world.path("bin/pinfold-run");
        for wall in WALLS {
            let words = [&[launcher.as_str(), "--spec", "1"], wall, &["--"], &argv].concat();
            assert_prints("0 0 0 0 0 1 0xef\n", &run(&words));
        }
    }
}

#[test]
fn the_namespaces_are_its_own() {
    for uid in uids() {
        let world = World::new(uid);
        let script = "cd /proc/self/ns && readlink user mnt pid ipc uts";
        let run = |command: &mut Command| {
            let (code, stdout, stderr) = ended(command);
            assert_eq!(code, Some(0), "{stderr}");
            stdout.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let outside = run(&mut world.plain(&["/bin/sh", "-c", script]));
        let inside = run(&mut world.confined(NAMESPACE, &["/bin/sh", "-c", script]));
        let shared: Vec<_> = inside.iter().filter(|namespace| outside.contains(namespace)).collect();
        assert!(inside.len() == 5 && shared.is_empty(), "{shared:?}");
        assert_eq!(run(&mut world.confined(LANDLOCK, &["/bin/sh", "-c", script])), outside, "the control");
    }
}

/// The filter's tables by name, apart from the launcher's own, so that a call cannot fall out of one unseen.
const DENIED: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Makes calls whose arguments are all wrong and prints the errors. `c`: a call, `f`: a socket family, `i`: an ioctl on
/// standard input.
const CALLS: &str = "
import ctypes, errno, sys
call = ctypes.CDLL(None, use_errno=True).syscall
wrong = [ctypes.c_long(-1)] * 6
for word in sys.argv[1:]:
    number = ctypes.c_long(int(word[1:]))
    ctypes.set_errno(0)
    if word[0] == 'c': call(number, *wrong)
    if word[0] == 'f': call(41, number, 99, 99)
    if word[0] == 'i': call(16, 0, number, 0)
    print(word, errno.errorcode.get(ctypes.get_errno(), 'ok'))";

#[test]
fn every_call_of_the_filters_tables_is_answered() {
    let mut words: Vec<String> = DENIED.iter().map(|number| format!("c{number}")).collect();
    // AF_VSOCK among them: all families but unix, inet, inet6, netlink and packet.
    words.extend((0..46).filter(|family| ![1, 2, 10, 16, 17].contains(family)).map(|family| format!("f{family}")));
    // TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS
    words.extend([0x5412, 0x541c, 0x5423, 0x541d].map(|request| format!("i{request}")));
    // clone3, io_uring_setup, io_uring_enter, io_uring_register, open_tree_attr
    let absent = ["c435", "c425", "c426", "c427", "c467"].map(str::to_owned);
    let argv: Vec<&str> =
        ["/usr/bin/python3", "-c", CALLS].into_iter().chain(words.iter().chain(&absent).map(String::as_str)).collect();
    let expected: String = words
        .iter()
        .map(|word| format!("{word} EPERM\n"))
        .chain(absent.iter().map(|word| format!("{word} ENOSYS\n")))
        .collect();
    for uid in uids() {
        let world = World::new(uid);
        for wall in [NAMESPACE, LANDLOCK, &[LANDLOCK, &["--deny-metadata"]].concat()] {
            assert_prints(&expected, &ended(&mut world.confined(wall, &argv)));
        }
        if uid != 0 {
            // Root could do harm by some of them. Of the others, few are refused whoever asks.
            let (_, control, stderr) = ended(&mut world.plain(&argv));
            let refused: Vec<&str> = control.lines().filter(|line| line.ends_with(" EPERM")).collect();
            assert!(refused.len() < 35, "{} of {}: {refused:?} {stderr}", refused.len(), words.len());
            assert!(!control.contains("c467 ENOSYS") && !control.contains("c435 ENOSYS"), "{control}");
        }
    }
}

#[test]
fn the_process_group_is_its_own() {
    let world = World::own();
    let argv = ["/usr/bin/python3", "-c", "import os; print(os.getpgrp() == os.getpid())"];
    // The shell's child is in the shell's group.
    let script = "\"$@\"; :";
    let run = |words: &[&str]| ended(&mut world.plain(&[&["/bin/sh", "-c", script, "sh"], words].concat()));
    assert_prints("False\n", &run(&argv));
    for wall in WALLS {
        let launcher = world.path("bin/pinfold-run");
        assert_prints("True\n", &run(&[&[launcher.as_str(), "--spec", "1"], wall, &["--"], &argv].concat()));
    }
}

/// Runs its arguments as a session leader with a terminal, and says how they ended.
const ON_A_TERMINAL: &str = "
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
text = b''
while True:
    try: part = os.read(fd, 1000)
    except OSError: break
    if not part: break
    text += part
print(text.decode().strip(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))";

#[test]
fn the_terminal_is_left_also_by_the_leader_of_a_session() {
    for uid in uids() {
        let world = World::new(uid);
        let argv = ["/bin/sh", "-c", "(: < /dev/tty) 2>&- && echo has || echo lacks"];
        let run =
            |words: &[&str]| ended(&mut world.plain(&[&["/usr/bin/python3", "-c", ON_A_TERMINAL], words].concat()));
        assert_prints("has 0\n", &run(&argv));
        let launcher = world.path("bin/pinfold-run");
        let supervised = [LANDLOCK, &["--supervise"]].concat();
        for wall in [NAMESPACE, LANDLOCK, &supervised] {
            assert_prints("lacks 0\n", &run(&[&[launcher.as_str(), "--spec", "1"], wall, &["--"], &argv].concat()));
        }
    }
}

#[test]
fn the_limit_on_open_files_is_raised_for_roots_and_given_back() {
    let world = World::own();
    let mut plan: Vec<String> = MOUNTS_ALONE.iter().map(|word| (*word).to_owned()).collect();
    for index in 0..100 {
        let path = world.path(&format!("ws/{index}"));
        std::fs::create_dir(&path).expect("a directory");
        plan.extend(["--write".to_owned(), identity(&path), path]);
    }
    let launcher = world.path("bin/pinfold-run");
    let script = "ulimit -Sn 70 && ulimit -Hn $0 && exec \"$@\"";
    let run = |hard: &str| {
        let mut words = vec!["/bin/sh", "-c", script, hard, &launcher, "--spec", "1"];
        words.extend(plan.iter().map(String::as_str));
        words.extend(["--", "/bin/sh", "-c", "ulimit -Sn; ulimit -Hn; echo x > 99/f"]);
        ended(&mut world.plain(&words))
    };
    assert_prints("70\n1000\n", &run("1000"));
    assert!(world.0.ws().join("99/f").exists());
    assert_refused("descriptors", &run("120"));
}
