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

/// Calls at once, with processes of all kinds killed from outside: each outcome is one of those that it may be, nothing is left,
/// and nothing has grown.
fn storm(backend: Backend) {
    let world = World::new(backend);
    let marker = marker();
    let next = AtomicUsize::new(0);
    let round = |most: usize| {
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
        world.printed("true");
    };
    // What is made once is made by then.
    round(32);
    let before = settled(&world, None);
    round(32 + calls(128));
    assert_eq!(settled(&world, Some(before)), before, "{backend}: descriptors, threads, children, mounts, files");
    assert!(world.executor.running(&SessionId::new("s")).is_empty());
    assert_eq!(zombies(), 0, "{backend}");
    let groups = walk_groups(Path::new("/sys/fs/cgroup"));
    assert!(groups.is_empty(), "{backend}: {groups:?}");
}

/// What there is when it does not change any more, or has become what is wanted.
fn settled(world: &World, wanted: Option<[usize; 5]>) -> [usize; 5] {
    let begun = Instant::now();
    let mut before = holdings(world);
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = holdings(world);
        if wanted == Some(now) || (wanted.is_none() && now == before) || begun.elapsed() > Duration::from_secs(20) {
            return now;
        }
        before = now;
    }
}

/// Children of ours that have ended and that nobody waits for.
fn zombies() -> usize {
    let ours = std::process::id().to_string();
    let is = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
        fields.first() == Some(&"Z") && fields.get(1) == Some(&ours.as_str())
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(is).count()
}

/// Control groups of calls of this process.
fn walk_groups(path: &Path) -> Vec<PathBuf> {
    let ours = format!("-{}-", std::process::id());
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let of = |entry: std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is = name.starts_with("pinfold") && name.contains(&ours);
        walk_groups(&entry.path()).into_iter().chain(is.then(|| entry.path()))
    };
    directories.flat_map(of).collect()
}

/// Sends a signal to the resident launcher, if there is one and its number is still its own.
fn strike_resident(world: &World, signal: &str) {
    let Some(pid) = world.provider.resident().0 else { return };
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let parent = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if line.windows(7).any(|word| word == b"--serve") && parent.contains(&format!("PPid:\t{}\n", std::process::id())) {
        let _ = std::process::Command::new("kill")
            .args([signal, &pid.to_string()])
            .stderr(std::process::Stdio::null())
            .status();
    }
}

fn storm_call(world: &World, number: usize, marker: &str) {
    let backend = world.backend;
    match number % 6 {
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
        2 => {
            let process = world.start(&format!("setsid sleep {marker} & sleep {marker}"));
            process.kill();
            assert!(process.done().aborted(), "{backend}");
        }
        3 => {
            // Most are killed, some are stopped; calls of other threads are on their way through it.
            strike_resident(world, if number % 64 == 3 { "-STOP" } else { "-KILL" });
            let count = format!("count{number}");
            assert_eq!(world.printed(&format!("echo x >> {count}; cat {count}; rm {count}")), "x\n", "{backend}");
        }
        4 => {
            // The command is killed from outside.
            let own = format!("{marker}{number:06}");
            let process = world.start(&format!("exec sleep {own}"));
            wait_for("the command", || sleepers(&own) == 1 || process.finished().is_some());
            for pid in sleeping(&own) {
                let _ = std::process::Command::new("kill").args(["-KILL", &pid]).status();
            }
            let finished = process.done();
            assert_eq!(finished.signal().map(|signal| signal.number()), Some(9), "{backend}: {finished:?}");
        }
        _ => {
            let request =
                Request { timeout_ms: Some(30.0), ..Request::new(format!("setsid sleep {marker} & sleep {marker}")) };
            assert!(world.request(&request).timed_out(), "{backend}");
        }
    }
}

/// Callers that are killed while their calls run: nothing of them is left.
fn callers(backend: Backend) {
    let marker = marker();
    let next = AtomicUsize::new(0);
    let most = calls(128) / 8;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= most {
                        return;
                    }
                    let place = directory();
                    let mut caller = std::process::Command::new(std::env::current_exe().unwrap())
                        .args(["--exact", "soak::soak_alone", "--test-threads=1"])
                        .env("PINFOLD_SOAK", format!("caller {marker}/{backend}"))
                        .env("PINFOLD_TEST_DIR", place.path())
                        .stdout(std::process::Stdio::null())
                        .spawn()
                        .unwrap();
                    // Somewhere between its first probe and its last call.
                    std::thread::sleep(Duration::from_millis(20 + (number as u64 * 37) % 700));
                    caller.kill().unwrap();
                    caller.wait().unwrap();
                }
            });
        }
    });
    wait_for("the end of all calls", || sleepers(&marker) == 0);
}

/// One of them: calls without end.
fn caller(backend: Backend, marker: &str) {
    let world = World::new(backend);
    loop {
        let running: Vec<_> = (0..4).map(|_| world.start(&format!("sleep {marker} & sleep {marker}"))).collect();
        world.printed("true");
        for process in &running {
            process.kill();
        }
        running.iter().for_each(|process| drop(process.done()));
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
        "storm" => storm(backend),
        "callers" => callers(backend),
        _ => caller(backend, what.strip_prefix("caller ").unwrap()),
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

#[test]
fn a_killed_caller_leaves_nothing() {
    alone("callers");
}
