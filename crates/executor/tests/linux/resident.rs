//! The resident launcher: it makes the processes of calls, nobody inside reaches it, and whatever happens to it, each call is made
//! once, confined, and ends as it should.

use super::*;
use std::os::unix::fs::MetadataExt as _;

const SERVED: [Backend; 2] = [Backend::Namespace, Backend::Landlock];

fn resident(world: &World) -> u32 {
    world.provider.resident().0.expect("a resident launcher")
}

pub(super) fn signal(name: &str, pid: u32) {
    let status = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

pub(super) fn exists(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X']) && !rest.is_empty())
}

pub(super) fn status_of(pid: u32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    line.trim().to_owned()
}

#[test]
fn calls_begin_as_processes_that_it_makes() {
    for backend in SERVED {
        let world = World::new(backend);
        for number in 1..=5 {
            assert_eq!(
                world.printed(&format!("echo {number}; pwd")),
                format!("{number}\n{}\n", world.path("ws").display())
            );
            assert_eq!(world.provider.resident().1, number, "{backend}");
        }
        let pid = resident(&world);
        let process = world.start("exec sleep 60");
        wait_for("a start", || process.pid().is_some());
        // Its parent is this process, not the resident launcher.
        assert_eq!(status_of(process.pid().unwrap(), "PPid"), std::process::id().to_string());
        process.kill();
        assert!(process.done().aborted());
        drop((process, world));
        wait_for("its end with its provider", || !exists(pid));
    }
    // Bubblewrap is executed as ever.
    let world = World::new(Backend::Bwrap);
    world.printed("true");
    assert_eq!(world.provider.resident(), (None, 0));
}

#[test]
fn an_executor_that_is_told_so_does_without() {
    for backend in SERVED {
        let world = World::with(backend, |_, config| config.resident = false);
        world.printed("true");
        assert_eq!(world.provider.resident(), (None, 0));
    }
}

/// What it holds that somebody could use: nothing.
#[test]
fn it_holds_nothing_and_nobody_steers_it() {
    for backend in SERVED {
        let world = World::new(backend);
        // A word of a call that nobody must find in another process.
        let secret = format!("secret{}", marker());
        let request =
            Request { env: vec![("SECRET".into(), Some(secret.clone().into()))], ..Request::new("echo $SECRET") };
        assert_eq!(world.request(&request).stdout.text, format!("{secret}\n"));
        let pid = resident(&world);
        assert_eq!(status_of(pid, "NoNewPrivs"), "1");
        assert_eq!(status_of(pid, "Threads"), "1");
        assert!(status_of(pid, "SigBlk").starts_with("fffffff"), "{}", status_of(pid, "SigBlk"));
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
        // State, parent, group, session, terminal (proc_pid_stat(5)).
        assert_eq!((fields[1], fields[4]), (std::process::id().to_string().as_str(), "0"), "{stat}");
        assert_eq!((fields[2], fields[3]), (pid.to_string().as_str(), pid.to_string().as_str()), "{stat}");
        // Not dumpable: its files in /proc are root's (proc_pid(5)).
        assert_eq!(std::fs::metadata(format!("/proc/{pid}/status")).unwrap().uid(), 0);
        if rustix::process::geteuid().is_root() {
            let mut open: Vec<_> = std::fs::read_dir(format!("/proc/{pid}/fd"))
                .unwrap()
                .map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap().display().to_string())
                .collect();
            open.sort();
            assert_eq!(open[..3], ["/dev/null"; 3], "{open:?}");
            assert!(open.len() == 4 && open[3].starts_with("socket:"), "{open:?}");
            assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
            assert!(!memory_has(pid, secret.as_bytes()), "{backend}: the environment of a call is in its memory");
            // The control: in the memory of who sent it, it is.
            assert!(memory_has(std::process::id(), secret.as_bytes()));
        }
    }
}

fn memory_has(pid: u32, wanted: &[u8]) -> bool {
    use std::io::{Read as _, Seek as _};
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|number| u64::from_str_radix(number, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap().min(64 << 20)];
        memory.seek(std::io::SeekFrom::Start(from)).unwrap();
        // Some mappings cannot be read.
        memory.read_exact(&mut bytes).is_ok() && bytes.windows(wanted.len()).any(|window| window == wanted)
    })
}

/// Doors from a command to it: each closed, and open for a command without walls, of the same user.
#[test]
fn no_command_reaches_it() {
    let doors = |pid: u32| {
        format!(
            "kill -0 {pid} 2>/dev/null && echo signal; kill -STOP {pid} 2>/dev/null && kill -CONT {pid} && echo stop; \
             readlink /proc/{pid}/fd/0 >/dev/null 2>&1 && echo descriptors; \
             head -c 1 /proc/{pid}/mem >/dev/null 2>&1; cat /proc/{pid}/environ >/dev/null 2>&1 && echo environment; \
             ls /proc/{pid}/root/ >/dev/null 2>&1 && echo root; \
             python3 -c 'import os,signal; f=os.pidfd_open({pid}); signal.pidfd_send_signal(f, 0)' 2>/dev/null && echo handle; \
             exit 0"
        )
    };
    for backend in SERVED {
        for mode in [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite] {
            let world = World::new(backend);
            world.printed("true");
            let pid = resident(&world);
            let request = Request { policy: Some(world.policy(mode)), ..Request::new(doors(pid)) };
            let finished = world.request(&request);
            assert_eq!((finished.exit_code(), finished.stdout.text.as_str()), (Some(0), ""), "{backend} {mode}");
            // What unix sockets are there by name, it is none of them; and it is alive.
            let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
            let link = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            for entry in link.filter_map(|entry| std::fs::read_link(entry.path()).ok()) {
                let inode = entry.display().to_string().replace("socket:[", "").replace(']', "");
                let line = sockets.lines().find(|line| line.split_ascii_whitespace().nth(6) == Some(&inode));
                assert!(line.is_none_or(|line| line.split_ascii_whitespace().count() == 7), "{line:?}");
            }
            assert_eq!(world.provider.resident(), (Some(pid), 2));
            // The control: without walls the same user can signal it; the rest belongs to root, because it is not dumpable.
            let open = World::new(Backend::Unconfined).run(&doors(pid));
            assert!(open.stdout.text.contains("signal") && open.stdout.text.contains("handle"), "{open:?}");
            let is_root = rustix::process::geteuid().is_root();
            assert_eq!(open.stdout.text.contains("descriptors"), is_root, "{open:?}");
        }
    }
}

/// Killed while calls run: they go on, the next call is served by another one.
#[test]
fn its_end_ends_no_call() {
    for backend in SERVED {
        let world = World::new(backend);
        let marker = marker();
        let running = world.start(&format!("sleep {marker} & echo begun; sleep 60"));
        wait_for("output", || running.observe(pinfold_providers::Output::Stdout, 0).text.contains("begun"));
        let first = resident(&world);
        signal("KILL", first);
        wait_for("its end", || !exists(first));
        assert_eq!(world.printed("echo next"), "next\n");
        assert_eq!(world.printed("echo more"), "more\n");
        let second = resident(&world);
        assert_ne!(first, second, "{backend}");
        assert_eq!(sleepers(&marker), 1);
        assert_eq!(running.status(), ProcessStatus::Running);
        running.kill();
        running.done();
        assert_eq!(sleepers(&marker), 0, "{backend}");
    }
}

/// Stopped: the next call does not wait for it for long, and runs once.
#[test]
fn a_stopped_one_is_replaced() {
    for backend in SERVED {
        let world = World::new(backend);
        world.printed("true");
        let first = resident(&world);
        signal("STOP", first);
        assert_eq!(world.printed("echo once >> count; cat count"), "once\n", "{backend}");
        wait_for("its end", || !exists(first));
        assert_eq!(world.printed("cat count"), "once\n", "{backend}");
        assert_ne!(resident(&world), first);
    }
}

/// What a child would inherit now, and not what it would have inherited then.
#[test]
fn a_change_of_what_is_inherited_is_followed() {
    for backend in SERVED {
        let world = World::new(backend);
        world.printed("true");
        let first = resident(&world);
        // Credentials are those of a thread; those of this test's own threads do not change.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rustix::thread::set_no_new_privs(true).unwrap();
                assert_eq!(world.printed("echo x"), "x\n");
            });
        });
        let second = resident(&world);
        assert_ne!(first, second, "{backend}");
        wait_for("its end", || !exists(first));
    }
}

/// A caller that is killed takes the resident launcher and all calls along; also while the launcher is stopped.
#[test]
fn the_end_of_the_caller_ends_it_and_its_calls() {
    for backend in SERVED {
        for stopped in ["", "stopped"] {
            let (marker, place) = (marker(), directory());
            let mut caller = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "resident::caller_alone", "--test-threads=1", "--nocapture"])
                .env("PINFOLD_CALLER", format!("{backend}/{marker}/{stopped}"))
                .env("PINFOLD_TEST_DIR", place.path())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = std::io::BufRead::lines(std::io::BufReader::new(caller.stdout.take().unwrap()));
            let pid: u32 = lines.find_map(|line| line.unwrap().strip_prefix("resident ")?.parse().ok()).unwrap();
            assert!(exists(pid) && sleepers(&marker) == 2, "{backend}");
            caller.kill().unwrap();
            caller.wait().unwrap();
            wait_for("the end of its calls", || sleepers(&marker) == 0);
            wait_for("the end of the resident launcher", || !exists(pid));
        }
    }
}

/// The caller of the test above, in a process of its own.
#[test]
fn caller_alone() {
    let Some(asked) = std::env::var_os("PINFOLD_CALLER").and_then(|asked| asked.into_string().ok()) else { return };
    let words: Vec<_> = asked.split('/').collect();
    let [name, marker, stopped] = words.as_slice() else { panic!("{asked}") };
    let backend = SERVED.into_iter().find(|backend| backend.to_string() == *name).unwrap();
    let world = World::new(backend);
    let process = world.start(&format!("sleep {marker} & sleep {marker}"));
    wait_for("a start", || sleepers(marker) == 2);
    if *stopped == "stopped" {
        signal("STOP", resident(&world));
    }
    println!("\nresident {}", resident(&world));
    // It is killed here; its directory is left to whoever started it.
    process.done();
}
