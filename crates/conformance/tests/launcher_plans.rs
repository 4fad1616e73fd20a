//! `pinfold-run` by itself, as `docs/launcher.md` describes it: plans, working directory, status lines, environment, lookup.

use pinfold_conformance::judge::wait_within;
use pinfold_conformance::start::{own_uid, uids};
use pinfold_conformance::sys;
use pinfold_conformance::sys::c;
use pinfold_conformance::world::{
    Ended, LANDLOCK, LIMIT, MOUNTS_ALONE, NAMESPACE, WALLS, World, assert_prints, assert_refused, block, ended,
    identity,
};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::Stdio;

/// Runs `echo ran` with a plan that a pipe gives.
fn by_descriptor(world: &World, plan: &[u8]) -> Ended {
    let (from, mut to) = std::io::pipe().expect("a pipe");
    let mut command = world.launcher(&["--spec", "1", "--from-fd", "9", "--", "/bin/echo", "ran"]);
    let number = from.as_raw_fd();
    let body = move || {
        sys!(libc::SYS_dup3, number, 9, 0).map_err(|e| std::io::Error::from_raw_os_error(e.0))?;
        Ok(())
    };
    // SAFETY: between fork and exec the body makes one system call: no allocation, no lock.
    unsafe { command.pre_exec(body) };
    std::thread::scope(|scope| {
        // A launcher that refuses stops reading; then the rest cannot be written.
        scope.spawn(move || to.write_all(plan));
        let ended = ended(&mut command);
        drop(from);
        ended
    })
}

fn by_file(world: &World, path: &str) -> Ended {
    ended(&mut world.launcher(&["--spec", "1", "--from-file", path, "--", "/bin/echo", "ran"]))
}

// Plans

#[test]
fn a_plan_from_elsewhere_means_what_its_words_mean() {
    for uid in uids() {
        let world = World::new(uid);
        let (ws, out) = (world.0.ws().join("new"), world.0.out().join("new"));
        let script = format!("echo x > {}; echo x > {}; echo ran", ws.display(), out.display());
        let identity = identity(world.0.ws());
        let root = world.path("ws");
        for wall in WALLS {
            let words = [wall, &["--write", &identity, &root]].concat();
            let plan = world.path("plan");
            std::fs::write(&plan, block(&words)).expect("the plan is written");
            let found =
                ended(&mut world.launcher(&["--spec", "1", "--from-file", &plan, "--", "/bin/sh", "-c", &script]));
            assert_eq!((found.0, found.1.as_str()), (Some(0), "ran\n"), "{}", found.2);
            assert!(ws.exists() && !out.exists(), "{wall:?}");
            std::fs::remove_file(&ws).expect("it was made");
            assert_prints("ran\n", &by_descriptor(&world, &block(&words)));
        }
    }
}

#[test]
fn a_plan_that_somebody_else_could_have_written_is_refused() {
    for uid in uids() {
        let world = World::new(uid);
        let plan = world.path("plan");
        std::fs::write(&plan, block(NAMESPACE)).expect("the plan is written");
        let set = |mode| std::fs::set_permissions(&plan, PermissionsExt::from_mode(mode)).expect("a mode");
        for mode in [0o644, 0o755] {
            set(mode);
            assert_prints("ran\n", &by_file(&world, &plan));
        }
        for mode in [0o646, 0o664, 0o666] {
            set(mode);
            assert_refused("spec", &by_file(&world, &plan));
        }
        set(0o644);
        if own_uid() == 0 {
            let give = |owner| std::os::unix::fs::chown(&plan, Some(owner), Some(owner)).expect("root gives it away");
            give(uid);
            assert_prints("ran\n", &by_file(&world, &plan));
            give(4711);
            assert_refused("spec", &by_file(&world, &plan));
        }
    }
}

#[test]
fn a_plan_that_is_no_regular_file_is_refused_without_waiting() {
    let world = World::own();
    let (plan, link, fifo) = (world.path("plan"), world.path("link"), world.path("fifo"));
    std::fs::write(&plan, block(NAMESPACE)).expect("the plan is written");
    std::os::unix::fs::symlink(&plan, &link).expect("a link");
    sys!(libc::SYS_mknodat, libc::AT_FDCWD, &c(&fifo), libc::S_IFIFO | 0o600, 0).expect("a FIFO");
    assert_prints("ran\n", &by_file(&world, &plan));
    for path in [&link, &fifo, &world.path("ws"), "/dev/null"] {
        assert_refused("spec", &by_file(&world, path));
    }
}

#[test]
fn a_plan_that_is_cut_off_is_refused() {
    let world = World::own();
    let whole = block(&[NAMESPACE, &["--unset", "X"]].concat());
    let plan = world.path("plan");
    for length in [whole.len(), whole.len() - 1, whole.len() - 2] {
        std::fs::write(&plan, &whole[..length]).expect("the plan is written");
        let (by_file, by_descriptor) = (by_file(&world, &plan), by_descriptor(&world, &whole[..length]));
        match whole.len() - length {
            0 => [by_file, by_descriptor].iter().for_each(|ended| assert_prints("ran\n", ended)),
            1 => [by_file, by_descriptor].iter().for_each(|ended| assert_refused("spec", ended)),
            // The option's value is empty, and its word is ended: but the file ends before it.
            _ => [by_file, by_descriptor].iter().for_each(|ended| assert_refused("usage", ended)),
        }
    }
    assert_refused("usage", &by_descriptor(&world, b""));
}

#[test]
fn a_plan_has_at_most_its_size() {
    const MOST: usize = 16 << 20;
    let world = World::own();
    let mut plan = block(&[NAMESPACE, &["--unset"]].concat());
    plan.resize(MOST - 1, b'x');
    plan.push(0);
    let path = world.path("plan");
    std::fs::write(&path, &plan).expect("the plan is written");
    assert_prints("ran\n", &by_file(&world, &path));
    assert_prints("ran\n", &by_descriptor(&world, &plan));
    plan.insert(MOST - 1, b'x');
    std::fs::write(&path, &plan).expect("the plan is written");
    assert_refused("spec", &by_file(&world, &path));
    assert_refused("spec", &by_descriptor(&world, &plan));
}

#[test]
fn a_plan_of_another_version_or_with_contradictions_is_refused() {
    let world = World::own();
    let run = |words: &[&str]| ended(&mut world.launcher(words));
    let command = &["--", "/bin/echo", "ran"][..];
    assert_prints("ran\n", &run(&[&["--spec", "1"], NAMESPACE, command].concat()));
    for version in ["0", "2", "01", "1 ", ""] {
        assert_refused("spec", &run(&[&["--spec", version], NAMESPACE, command].concat()));
    }
    assert_refused("usage", &run(&[NAMESPACE, command].concat()));
    assert_refused("usage", &run(&[&["--spek", "1"], NAMESPACE, command].concat()));
    assert_refused("usage", &run(&[&["--spec", "1"], NAMESPACE, &["--"]].concat()));
    assert_refused("usage", &run(&[&["--spec", "1"], NAMESPACE].concat()));
    let plan = world.path("plan");
    std::fs::write(&plan, block(NAMESPACE)).expect("the plan is written");
    for more in [
        &["--wall", "landlock"][..],
        &["--landlock", "0"],
        &["--shm", "--shm"],
        &["--deny-metadata", "--deny-metadata"],
        &["--cwd", "/", "--cwd", "/etc"],
        &["--supervise", "--supervise"],
        &["--die-with-parent", "--die-with-parent"],
        &["--status-file", "/dev/null", "--status-file", "/dev/null"],
        &["--status-file", "/dev/null", "--status-fd", "3"],
        &["--from-file", &plan],
        &["--what"],
        &["--write", "1:2"],
    ] {
        let (before, after) = (
            [&["--spec", "1"], NAMESPACE, more, command].concat(),
            [&["--spec", "1"], more, NAMESPACE, command].concat(),
        );
        assert_refused("usage", &run(&before));
        assert_refused("usage", &run(&after));
    }
    // What stands beside a plan from elsewhere would be ignored, and it could be a wall.
    assert_refused("usage", &run(&[&["--spec", "1", "--from-file", &plan, "--deny-metadata"], command].concat()));
}

#[test]
fn an_abi_that_the_kernel_does_not_have_is_refused() {
    let world = World::own();
    for wall in ["namespace", "landlock"] {
        let run = |abi| ended(&mut world.confined(&["--wall", wall, "--landlock", abi], &["/bin/echo", "ran"]));
        assert_prints("ran\n", &run("1"));
        assert_refused("landlock-unsupported", &run("1000"));
    }
}

// Working directory

#[test]
fn the_working_directory_is_the_same_inside_or_nothing_runs() {
    for uid in uids() {
        let world = World::new(uid);
        let (ws, deep) = (world.path("ws"), world.path("ws/deep"));
        std::fs::create_dir(&deep).expect("a directory");
        let run = |plan: &[&str]| ended(&mut world.confined(plan, &["/bin/pwd", "-P"]));
        for wall in WALLS {
            assert_prints(&format!("{ws}\n"), &run(wall));
            assert_prints(&format!("{deep}\n"), &run(&[wall, &["--cwd", &deep]].concat()));
            assert_refused("cwd", &run(&[wall, &["--cwd", &world.path("missing")]].concat()));
        }
        // An empty private directory has the path, or hides it.
        assert_refused("cwd-changed", &run(&[NAMESPACE, &["--private", &ws]].concat()));
        assert_refused("cwd-changed", &run(&[NAMESPACE, &["--private", &ws, "--cwd", &ws]].concat()));
        assert_refused("cwd", &run(&[NAMESPACE, &["--private", &ws, "--cwd", &deep]].concat()));
    }
}

// Status

/// What a confined command reports on a status descriptor, and its exit status.
fn reports(world: &World, plan: &[&str], argv: &[&str]) -> (Option<i32>, String) {
    let path = PathBuf::from(world.path("status"));
    std::fs::write(&path, "").expect("a status file");
    std::os::unix::fs::chown(&path, Some(world.0.uid), None).expect("given away");
    let path = path.to_str().expect("UTF-8");
    let mut command = world.confined(&[plan, &["--status-file", path]].concat(), argv);
    let status = wait_within(
        &mut command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the launcher starts"),
        LIMIT,
    );
    let code = status.expect("it ends in time");
    (code.code().or(code.signal().map(|signal| -signal)), std::fs::read_to_string(path).expect("readable"))
}

#[test]
fn status_lines_tell_what_happened() {
    let abi = pinfold_conformance::start::landlock_abi().expect("Landlock");
    for uid in uids() {
        let world = World::new(uid);
        let inside = format!("confined landlock={abi} namespaces=user,mount,pid,ipc,uts seccomp=1\n");
        let mounts = "confined landlock=0 namespaces=user,mount,pid,ipc,uts seccomp=1\n";
        let alone = format!("confined landlock={abi} namespaces=none seccomp=1\n");
        let supervised = [LANDLOCK, &["--supervise"]].concat();
        for (plan, line) in [(NAMESPACE, inside.as_str()), (MOUNTS_ALONE, mounts), (&supervised, &alone)] {
            let run = |argv: &[&str]| reports(&world, plan, argv);
            assert_eq!(run(&["/bin/sh", "-c", "exit 3"]), (Some(3), format!("{line}started\nexited 3\n")));
            assert_eq!(run(&["/bin/sh", "-c", "kill -15 $$"]), (Some(-15), format!("{line}started\nsignaled 15\n")));
            assert_eq!(run(&["/no/such"]), (Some(127), format!("{line}exec-failed 2\n")));
            assert_eq!(run(&["/etc/passwd/no"]), (Some(127), format!("{line}exec-failed 20\n")));
            assert_eq!(run(&["/etc"]), (Some(126), format!("{line}exec-failed 13\n")));
        }
        assert_eq!(reports(&world, LANDLOCK, &["/bin/sh", "-c", "exit 3"]), (Some(3), alone.clone()));
        assert_eq!(reports(&world, LANDLOCK, &["/no/such"]), (Some(127), format!("{alone}exec-failed 2\n")));
        for wall in WALLS {
            let (code, text) = reports(&world, &[wall, &["--write", "1:2", "/etc"]].concat(), &["/bin/true"]);
            assert_eq!(code, Some(125));
            assert!(text.starts_with("setup-failed root-changed 0 ") && text.ends_with(" /etc\n"), "{text}");
        }
    }
}

#[test]
fn foreign_bytes_in_what_the_launcher_says_stay_on_their_line() {
    let world = World::own();
    let odd = "/no\n\\such\x1b[1mü";
    let escaped = "/no\\n\\\\such\\x1B[1m\\xC3\\xBC";
    for wall in WALLS {
        let plan = [wall, &["--write", "1:2", odd]].concat();
        let (_, text) = reports(&world, &plan, &["/bin/true"]);
        assert!(text.starts_with("setup-failed ") && text.contains(escaped) && text.lines().count() == 1, "{text}");
        let (_, _, stderr) = ended(&mut world.confined(&plan, &["/bin/true"]));
        assert!(stderr.contains(escaped) && stderr.lines().count() == 1, "{stderr}");
        let (code, _, stderr) = ended(&mut world.confined(wall, &[odd]));
        assert_eq!(code, Some(127));
        assert!(stderr.contains(escaped) && stderr.lines().count() == 1, "{stderr}");
    }
}

#[test]
fn the_status_channel_is_not_the_commands() {
    let world = World::own();
    let script = "exec 9>>status; exec \"$@\"";
    let look = ["/bin/ls", "/proc/self/fd"];
    let run = |words: &[&str]| ended(&mut world.plain(&[&["/bin/sh", "-c", script, "sh"], words].concat()));
    let control = run(&look);
    assert!(control.1.lines().any(|line| line == "9"), "{control:?}");
    let launcher = world.path("bin/pinfold-run");
    for wall in WALLS {
        let words = [&[launcher.as_str(), "--spec", "1"], wall, &["--status-fd", "9", "--"], &look].concat();
        assert_prints("0\n1\n2\n3\n", &run(&words));
        let words =
            [&[launcher.as_str(), "--spec", "1"], wall, &["--supervise", "--status-fd", "9", "--"], &look].concat();
        assert_prints("0\n1\n2\n3\n", &run(&words));
    }
    let text = std::fs::read_to_string(world.path("ws/status")).expect("the status file");
    assert_eq!(text.matches("confined ").count(), 4, "{text}");
    assert_eq!(text.matches("exited 0\n").count(), 3, "{text}");
}

#[test]
fn a_status_file_is_appended_to_and_never_a_link() {
    let world = World::own();
    let (file, link) = (world.path("status"), world.path("link"));
    std::fs::write(&file, "before\n").expect("a file");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    let run =
        |path: &str| ended(&mut world.confined(&[LANDLOCK, &["--status-file", path]].concat(), &["/bin/echo", "ran"]));
    assert_refused("status", &run(&link));
    assert_refused("status", &run(&world.path("missing")));
    assert_eq!(std::fs::read_to_string(&file).expect("readable"), "before\n");
    assert_prints("ran\n", &run(&file));
    assert!(std::fs::read_to_string(&file).expect("readable").starts_with("before\nconfined "));
}

// Environment and lookup

#[test]
fn the_environment_is_the_callers_with_the_plans_changes() {
    let world = World::own();
    for wall in WALLS {
        let run = |plan: &[&str]| {
            let mut command = world.confined(&[wall, plan].concat(), &["/usr/bin/env"]);
            let (code, stdout, stderr) =
                ended(command.env_clear().envs([("A", "1"), ("AB", "2"), ("B", "3"), ("C", "")]));
            assert_eq!(code, Some(0), "{stderr}");
            let mut lines: Vec<String> = stdout.lines().map(str::to_owned).collect();
            lines.sort();
            lines.join(" ")
        };
        assert_eq!(run(&[]), "A=1 AB=2 B=3 C=");
        assert_eq!(run(&["--set", "A=x=y"]), "A=x=y AB=2 B=3 C=");
        assert_eq!(run(&["--unset", "A", "--unset", "C", "--set", "N="]), "AB=2 B=3 N=");
        assert_eq!(run(&["--unset", "MISSING", "--set", "B=4"]), "A=1 AB=2 B=4 C=");
    }
}

#[test]
fn a_command_is_looked_up_as_execvp_does() {
    let world = World::own();
    let dirs: Vec<String> = ["one", "two", "three"].map(|name| world.path(name)).to_vec();
    let put = |dir: &str, name: &str, mode: u32| {
        let (path, text) = (format!("{dir}/{name}"), format!("#!/bin/sh\necho {dir}\n"));
        std::fs::write(&path, text).expect("a program");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("a mode");
    };
    dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("a directory"));
    let ws = world.path("ws");
    put(&dirs[0], "first", 0o755);
    put(&dirs[1], "first", 0o755);
    put(&dirs[0], "closed", 0o644);
    put(&dirs[1], "closed", 0o755);
    put(&dirs[0], "shut", 0o644);
    put(&ws, "here", 0o755);
    let path = dirs.join(":");
    let says = |dir: &str| format!("{dir}\n");
    for wall in WALLS {
        let run = |value: &str, plan: &[&str], name: &str| {
            ended(world.confined(&[wall, plan].concat(), &[name]).env("PATH", value))
        };
        assert_prints(&says(&dirs[0]), &run(&path, &[], "first"));
        assert_prints(&says(&dirs[1]), &run(&path, &[], "closed"));
        assert_eq!(run(&path, &[], "shut").0, Some(126));
        assert_eq!(run(&path, &[], "missing").0, Some(127));
        // Elements that are missing, files, or too long are passed over; an empty one is the working directory.
        let odd = format!("/missing:/etc/passwd:/{}:{}", "x".repeat(5000), dirs[1]);
        assert_prints(&says(&dirs[1]), &run(&odd, &[], "first"));
        assert_prints(&says(&ws), &run(&format!("{path}:"), &[], "here"));
        assert_eq!(run(&path, &[], "here").0, Some(127));
        // The plan's PATH counts, not the caller's.
        let set = format!("PATH={}", dirs[1]);
        assert_prints(&says(&dirs[1]), &run(&path, &["--set", &set], "first"));
        assert_eq!(run(&path, &["--unset", "PATH"], "first").0, Some(127));
        assert_prints("", &run(&path, &["--unset", "PATH"], "true"));
    }
}

#[test]
fn a_file_without_a_format_is_given_to_no_shell() {
    let world = World::own();
    let path = world.path("ws/script");
    std::fs::write(&path, "echo ran\n").expect("a file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a mode");
    assert_prints("ran\n", &ended(&mut world.plain(&["/bin/sh", "-c", "./script"])));
    for wall in WALLS {
        let (code, stdout, _) = ended(world.confined(wall, &["script"]).env("PATH", world.path("ws")));
        assert_eq!((code, stdout.as_str()), (Some(126), ""));
    }
}
