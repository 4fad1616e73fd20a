//! `pinfold-run` by itself, as `docs/launcher.md` describes it: plans, roots, mounts, status lines, environment, lookup.
//!
//! The matrix asks what a command can do; here each promise is looked at where a second wall would hide that the first
//! one is missing. Each denial has its control: the same thing without the launcher, or with the right plan.

use pinfold_conformance::fixture::{Fixture, owned};
use pinfold_conformance::judge::{output_within, wait_within};
use pinfold_conformance::sleeper::Sleeper;
use pinfold_conformance::start::{own_uid, uids};
use pinfold_conformance::sys;
use pinfold_conformance::sys::{c, open};
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

const NAMESPACE: &[&str] = &["--wall", "namespace", "--landlock", "1"];
/// Without Landlock, so that it does not hide what the mounts leave open.
const MOUNTS_ALONE: &[&str] = &["--wall", "namespace", "--landlock", "0"];
const LANDLOCK: &[&str] = &["--wall", "landlock", "--landlock", "1"];
const WALLS: [&[&str]; 2] = [NAMESPACE, LANDLOCK];

/// A fixture, and how to run things in it.
struct World(Fixture);

/// How a command ended and what it wrote, as text.
type Ended = (Option<i32>, String, String);

impl World {
    fn new(uid: u32) -> World {
        World(Fixture::new(uid, &[("pinfold-run", "pinfold-launcher")]).expect("a fixture"))
    }

    fn own() -> World {
        World::new(own_uid())
    }

    /// A path in the directory that holds everything; only root and the test itself write there.
    fn path(&self, name: &str) -> String {
        self.0.base().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// `pinfold-run` with these words, as the fixture's user.
    fn launcher<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = self.plain(&[self.0.bin().join("pinfold-run")]);
        command.args(words);
        command
    }

    /// `pinfold-run` with a plan and a command.
    fn confined(&self, plan: &[&str], argv: &[&str]) -> Command {
        self.launcher(&[&["--spec", "1"], plan, &["--"], argv].concat())
    }

    /// The command itself, as the fixture's user.
    fn plain<S: AsRef<OsStr>>(&self, argv: &[S]) -> Command {
        let mut command = Command::new(argv.first().expect("a program"));
        command.args(&argv[1..]).current_dir(self.0.ws()).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C");
        if self.0.uid != own_uid() {
            command.uid(self.0.uid).gid(self.0.uid);
        }
        command
    }

    /// The shell script, with the confined command as its arguments, in a mount namespace of its own. The script's user
    /// has every capability there.
    fn in_own_mounts(&self, script: &str, plan: Option<&[&str]>, argv: &[&str]) -> Ended {
        let mut words =
            ["unshare", "-Urm", "--propagation", "private", "/bin/sh", "-c", script, "sh"].map(str::to_owned).to_vec();
        if let Some(plan) = plan {
            words.push(self.path("bin/pinfold-run"));
            words.extend([&["--spec", "1"], plan, &["--"]].concat().iter().map(|w| (*w).to_owned()));
        }
        words.extend(argv.iter().map(|w| (*w).to_owned()));
        ended(&mut self.plain(&words))
    }
}

fn ended(command: &mut Command) -> Ended {
    let finished = output_within(command, LIMIT).expect("it ends in time");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (finished.status.code(), text(&finished.stdout), text(&finished.stderr))
}

/// The launcher refused: nothing ran, and one line says at which stage.
#[track_caller]
fn assert_refused(stage: &str, (code, stdout, stderr): &Ended) {
    assert_eq!((*code, stdout.as_str()), (Some(125), ""), "{stderr}");
    assert!(stderr.starts_with(&format!("pinfold-run: {stage}: ")), "{stderr}");
    assert_eq!(stderr.matches('\n').count(), 1, "{stderr:?}");
}

#[track_caller]
fn assert_prints(text: &str, (code, stdout, stderr): &Ended) {
    assert_eq!((*code, stdout.as_str()), (Some(0), text), "{stderr}");
}

/// `DEVICE:INODE` of what a path leads to.
fn identity(path: impl AsRef<Path>) -> String {
    let stat = std::fs::metadata(path).expect("it exists");
    format!("{}:{}", stat.dev(), stat.ino())
}

/// Words as a plan in a file or a pipe has them.
fn block(words: &[&str]) -> Vec<u8> {
    words.iter().flat_map(|word| word.bytes().chain([0])).collect()
}

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
fn a_terminal_on_a_stream_can_be_opened_by_its_path_and_another_device_cannot() {
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
    // A device that is no terminal: only root has one.
    let Ok(tun) = open(c"/dev/net/tun", libc::O_RDONLY).map(owned) else { return };
    let argv = ["/usr/bin/python3", "-c", "open('/proc/self/fd/0', 'r+b', buffering=0); print('opened')"];
    let run = |mut command: Command| ended(command.stdin(tun.try_clone().expect("a copy")));
    assert_prints("opened\n", &run(world.plain(&argv)));
    let (code, _, stderr) = run(world.confined(LANDLOCK, &argv));
    assert!(code == Some(1) && stderr.contains("PermissionError: [Errno 13]"), "{stderr}");
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
