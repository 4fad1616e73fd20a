//! Calls prepared ahead: the third call of a kind finds walls that stand. It is the same call as without, and whatever has changed
//! since they were raised, it does not run behind walls with holes.

use super::resident::{exists, signal, status_of};
use super::*;

/// A world in which the next call is prepared, and the process that waits.
fn prepared(change: impl FnOnce(&Path, &mut ExecutorConfig)) -> (World, u32) {
    let world = World::with(Backend::Namespace, change);
    world.printed("true");
    assert_eq!(world.provider.ahead(), (None, 0), "one call says nothing about the next");
    world.printed("true");
    let waiting = world.provider.ahead().0.expect("a second call like the first has the third prepared");
    (world, waiting)
}

fn waiting(world: &World) -> u32 {
    world.provider.ahead().0.expect("a launcher that waits")
}

#[test]
fn a_call_that_was_prepared_is_a_call_like_any_other() {
    let (world, _) = prepared(|_, _| {});
    std::fs::create_dir(world.path("ws/sub")).unwrap();
    for number in 1..=5 {
        let request = Request {
            env: vec![("NUMBER".into(), Some(number.to_string().into()))],
            workdir: Some(world.path("ws/sub").into_os_string().into_string().unwrap().into()),
            ..Request::new("echo $NUMBER $$; pwd; echo error >&2; cat; echo x >> ../file; exit 7")
        };
        let finished = world.request(&request);
        assert_eq!(finished.exit_code(), Some(7), "{finished:?}");
        // Bash is the first process of a namespace of its own, beside PID 1.
        let expected = format!("{number} 2\n{}\n", world.path("ws/sub").display());
        assert_eq!((finished.stdout.text, finished.stderr.text.as_str()), (expected, "error\n"));
        assert_eq!(world.provider.ahead().1, number);
    }
    assert_eq!(std::fs::read_to_string(world.path("ws/file")).unwrap(), "x\n".repeat(5));
    let pid = waiting(&world);
    assert_eq!(status_of(pid, "PPid"), std::process::id().to_string());
    drop(world);
    assert!(!exists(pid), "it ends with its provider");
}

/// The same refusals, the same report, the same kinds of ends.
#[test]
fn it_is_confined_and_reported_as_others_are() {
    let (world, _) = prepared(|_, _| {});
    let fresh = World::with(Backend::Namespace, |_, config| config.resident = false);
    let outside = |world: &World| {
        let out = world.path("out/file");
        let finished = world.run(&format!("echo x > {0}; touch /tmp/mine; ls /tmp; ls -d /proc/[0-9]*", out.display()));
        assert!(!out.exists(), "{finished:?}");
        (finished.exit_code(), finished.stdout.text)
    };
    // The control: without walls it is written.
    let open = World::new(Backend::Unconfined);
    open.printed(&format!("echo x > {}", open.path("out/file").display()));
    assert!(open.path("out/file").exists());
    let before = world.provider.ahead().1;
    assert_eq!(outside(&world), outside(&fresh));
    assert_eq!((world.provider.ahead().1, fresh.provider.ahead().1), (before + 1, 0));
    let reports = [&world, &fresh].map(|world| serde_json::to_value(world.run("true").sandbox).unwrap().to_string());
    let blank = |report: &str, world: &World| report.replace(&world.base.path().display().to_string(), "BASE");
    let [one, other] = [blank(&reports[0], &world), blank(&reports[1], &fresh)];
    let without_time = |text: &str| {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        strike(&mut value, "durationMs");
        value
    };
    assert_eq!(without_time(&one), without_time(&other));
    for command in ["kill -TERM $$", "kill -KILL $$", "exit 3", "exec /nowhere/x", "sleep 100 & exit 4", "cd /; true"] {
        let ends = [&world, &fresh].map(|world| format!("{:?}", world.run(command).outcome.ending()));
        assert_eq!(ends[0], ends[1], "{command}");
    }
    assert_eq!(world.provider.ahead().1, before + 8);
}

fn strike(value: &mut serde_json::Value, name: &str) {
    match value {
        serde_json::Value::Object(map) => {
            map.remove(name);
            map.values_mut().for_each(|value| strike(value, name));
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(|value| strike(value, name)),
        _ => {}
    }
}

/// A denied file that is replaced between two calls takes the mount with it that covered it: the next call is begun anew.
#[test]
fn a_wall_that_was_taken_away_is_raised_again() {
    let (world, first) = prepared(|base, config| {
        std::fs::write(base.join("out/secret"), "old").unwrap();
        config.call.restrictions.denied_reads = vec![base.join("out/secret")];
    });
    let secret = world.path("out/secret");
    let show = format!("cat {}", secret.display());
    // If the one that waits has not come to its cover yet, it covers the new file, and all is well: then once more.
    let mut waited = first;
    let served = (0..20).find_map(|_| {
        std::thread::sleep(Duration::from_millis(50));
        let before = world.provider.ahead().1;
        std::fs::write(world.path("out/new"), "new").unwrap();
        std::fs::rename(world.path("out/new"), &secret).unwrap();
        let finished = world.run(&show);
        assert!(finished.exit_code() != Some(0) && !finished.stdout.text.contains("new"), "{finished:?}");
        let now = world.provider.ahead().1;
        let gone = std::mem::replace(&mut waited, waiting(&world));
        (now == before).then(|| assert!(!exists(gone))).map(|()| now)
    });
    let served = served.expect("a call that did not take the one that waited");
    assert_eq!(World::new(Backend::Unconfined).printed(&show), "new", "the control");
    // The one that waits now has the cover in place.
    let finished = world.run(&show);
    assert!(finished.exit_code() != Some(0) && finished.stdout.text.is_empty(), "{finished:?}");
    assert_eq!(world.provider.ahead().1, served + 1);
}

/// A workspace that is another directory by now is none that walls were raised for.
#[test]
fn a_workspace_that_was_replaced_is_another() {
    let (world, _) = prepared(|_, _| {});
    std::fs::rename(world.path("ws"), world.path("old")).unwrap();
    std::fs::create_dir(world.path("ws")).unwrap();
    assert_eq!(world.printed("echo x > file; ls"), "file\n");
    assert!(world.path("ws/file").exists() && !world.path("old/file").exists());
    assert_eq!(world.provider.ahead().1, 0);
    // Moved away and back, it is the same one.
    world.printed("true");
    std::fs::rename(world.path("ws"), world.path("away")).unwrap();
    std::fs::rename(world.path("away"), world.path("ws")).unwrap();
    assert_eq!(world.printed("echo y > file; cat file"), "y\n");
}

/// What somebody mounts is seen by the next call, as if nothing had been prepared.
#[test]
fn a_mount_that_came_later_is_seen() {
    if !rustix::process::geteuid().is_root() {
        // Nobody else can mount where it sees it.
        return;
    }
    let place = directory();
    let output = std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "ahead::a_caller_with_mounts_of_its_own", "--nocapture"])
        .env("PINFOLD_MOUNTER", "1")
        .env("PINFOLD_TEST_DIR", place.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The caller of the test above, in a process of its own.
#[test]
fn a_caller_with_mounts_of_its_own() {
    if std::env::var_os("PINFOLD_MOUNTER").is_none() {
        return;
    }
    let (world, first) = prepared(|_, _| {});
    let out = world.path("out");
    let mount = |words: &[&str]| {
        let status = std::process::Command::new(words[0]).args(&words[1..]).arg(&out).status().unwrap();
        assert!(status.success(), "{words:?}");
    };
    mount(&["mount", "-t", "tmpfs", "none"]);
    std::fs::write(out.join("mounted"), "").unwrap();
    assert_eq!(world.printed(&format!("ls {}", out.display())), "mounted\n");
    assert_eq!(world.provider.ahead().1, 0);
    assert!(!exists(first));
    // One that waits keeps no mount of ours from being taken away; and what it saw is not what the next call sees.
    mount(&["umount"]);
    assert_eq!(world.printed(&format!("ls {}", out.display())), "");
    assert_eq!(world.provider.ahead().1, 0);
}

/// Killed while it waits: the next call begins as if there had been none.
#[test]
fn the_end_of_one_that_waits_is_no_end_of_a_call() {
    let (world, first) = prepared(|_, _| {});
    signal("KILL", first);
    wait_for("its end", || !exists(first));
    assert_eq!(world.printed("echo once >> count; cat count"), "once\n");
    assert_eq!(world.provider.ahead().1, 0);
    assert_ne!(waiting(&world), first);
    assert!(!exists(first));
}

/// What a call has to be given before its walls stand makes a launcher of its own for it; the one that waits goes on waiting.
#[test]
fn input_is_not_for_walls_that_stand() {
    let (world, first) = prepared(|_, _| {});
    let finished = world.request(&Request { stdin: Some(b"input".to_vec()), ..Request::new("cat") });
    assert_eq!(finished.stdout.text, "input");
    assert_eq!(world.provider.ahead(), (Some(first), 0));
    assert_eq!(world.printed("echo x"), "x\n");
    assert_eq!(world.provider.ahead().1, 1);
}

#[test]
fn time_limits_and_withdrawal_end_it_with_all_it_started() {
    let (world, _) = prepared(|_, _| {});
    let marker = marker();
    let request =
        Request { timeout_ms: Some(300.0), ..Request::new(format!("trap '' TERM; sleep {marker} & sleep {marker}")) };
    let finished = world.request(&request);
    assert!(finished.timed_out(), "{finished:?}");
    assert_eq!((sleepers(&marker), world.provider.ahead().1), (0, 1));
    let process = world.start(&format!("setsid sleep {marker} & sleep {marker}"));
    wait_for("a start", || sleepers(&marker) == 2);
    process.kill();
    assert!(process.done().aborted());
    assert_eq!((sleepers(&marker), world.provider.ahead().1), (0, 2));
}

/// Calls in turns under two policies, and many at once: each right, nothing grows.
#[test]
fn many_calls_leave_nothing() {
    let (world, _) = prepared(|_, _| {});
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for number in 0..40 {
        let mode = if number % 4 < 2 { SandboxMode::WorkspaceWrite } else { SandboxMode::ReadOnly };
        let request = Request { policy: Some(world.policy(mode)), ..Request::new("echo x > file && echo written") };
        let written = if mode == SandboxMode::ReadOnly { "" } else { "written\n" };
        assert_eq!(world.request(&request).stdout.text, written);
    }
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                (0..10).for_each(|number| assert_eq!(world.printed(&format!("echo {number}")), format!("{number}\n")))
            });
        }
    });
    assert!(world.provider.ahead().1 > 20, "{:?}", world.provider.ahead());
    wait_for("descriptors to be closed", || open() <= before + 4);
    let children = std::fs::read_to_string("/proc/self/task/self/children").unwrap_or_default();
    assert!(children.split_ascii_whitespace().count() <= 8, "{children}");
}
