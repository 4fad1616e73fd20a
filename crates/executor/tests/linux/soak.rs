//! Many calls: nothing of ours grows, nothing is left, every outcome is right.
//!
//! `PINFOLD_SOAK_CALLS` says how many; the default keeps CI short.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

fn calls(default: usize) -> usize {
    std::env::var("PINFOLD_SOAK_CALLS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What this process has: descriptors, threads, children, mounts, and what lies in the directories of the test.
fn holdings(world: &World) -> [usize; 5] {
    let count = |path: &str| std::fs::read_dir(path).unwrap().count();
    let children =
        std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id())).unwrap_or_default();
    let files = walk(&world.path("runtime")) + walk(&world.path("spill"));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
    [count("/proc/self/fd"), count("/proc/self/task"), children.split_whitespace().count(), mounts, files]
}

fn walk(path: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries.flatten().map(|entry| 1 + if entry.path().is_dir() { walk(&entry.path()) } else { 0 }).sum()
}

/// B077 in part, W59: a thousand calls leave what one leaves. The tests of this file run in a process of their own, because
/// threads of other tests would count (`soak_alone` below).
fn nothing_grows(backend: Backend) {
    let world = World::new(backend);
    for _ in 0..5 {
        world.printed("true");
    }
    let mut before = holdings(&world);
    wait_for("two equal looks", || {
        std::thread::sleep(Duration::from_millis(200));
        let earlier = std::mem::replace(&mut before, holdings(&world));
        earlier == before
    });
    for number in 0..calls(60) {
        let finished = match number % 4 {
            0 => world.run("exit 3"),
            1 => world.run("seq 1 50 >&2; kill -KILL $$"),
            2 => world.request(&Request { timeout_ms: Some(30.0), ..Request::new("exec sleep 60") }),
            _ => (*world.start("sleep 60 & echo x").done()).clone(),
        };
        let right = match number % 4 {
            0 => finished.exit_code() == Some(3),
            1 => finished.signal().is_some_and(|signal| signal.number() == 9) && finished.stderr.total_bytes == 141,
            2 => finished.timed_out(),
            _ => finished.exit_code() == Some(0) && finished.stdout.text == "x\n",
        };
        assert!(right, "{backend}: call {number}: {finished:?}");
    }
    // What has ended may take a moment to be gone; what has grown stays.
    let begun = Instant::now();
    while holdings(&world) != before && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(holdings(&world), before, "{backend}: descriptors, threads, children, mounts, files");
}

/// Calls at once, some of whose processes are killed from outside: each outcome is one of those that it may be.
fn storm(backend: Backend) {
    let world = World::new(backend);
    world.printed("true");
    let marker = marker();
    let next = AtomicUsize::new(0);
    let most = calls(96);
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= most {
                        return;
                    }
                    storm_call(&world, number, &marker);
                }
            });
        }
    });
    wait_for("the last of them", || sleepers(&marker) == 0);
    assert!(world.executor.running(&SessionId::new("s")).is_empty());
}

fn storm_call(world: &World, number: usize, marker: &str) {
    let backend = world.backend;
    match number % 3 {
        0 => assert_eq!(world.printed(&format!("echo {number}")), format!("{number}\n"), "{backend}"),
        1 => {
            // The launcher, or bubblewrap, is killed from outside: whatever is said, it is no success, and nothing is left.
            // Under Landlock nobody is left then who could find a daemon; what the kernel ends is the command itself.
            let script = match backend {
                Backend::Landlock => format!("exec sleep {marker}"),
                _ => format!("sleep {marker} & setsid sleep {marker} & sleep {marker}"),
            };
            let process = world.start(&script);
            wait_for("a start", || process.pid().is_some() || process.finished().is_some());
            if let Some(pid) = process.pid() {
                let _ = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            }
            let finished = process.done();
            assert_ne!(finished.exit_code(), Some(0), "{backend}: {finished:?}");
        }
        _ => {
            let process = world.start(&format!("setsid sleep {marker} & sleep {marker}"));
            process.kill();
            assert!(process.done().aborted(), "{backend}");
        }
    }
}

/// Runs one of the above in a process of its own: `PINFOLD_SOAK` names it.
#[test]
fn soak_alone() {
    let Some(asked) = std::env::var_os("PINFOLD_SOAK").and_then(|asked| asked.into_string().ok()) else { return };
    let (what, name) = asked.split_once('/').unwrap();
    let backend = EVERY.into_iter().find(|backend| backend.to_string() == name).unwrap();
    match what {
        "grows" => nothing_grows(backend),
        _ => storm(backend),
    }
}

fn alone(what: &str) {
    for backend in CONFINED {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "soak::soak_alone", "--test-threads=1"])
            .env("PINFOLD_SOAK", format!("{what}/{backend}"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{backend}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn nothing_grows_over_many_calls() {
    alone("grows");
}

#[test]
fn every_outcome_is_right_in_a_storm() {
    alone("storm");
}
