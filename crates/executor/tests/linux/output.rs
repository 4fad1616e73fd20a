//! What is kept of output, and where the whole of it is.

use super::*;
use pinfold_executor::output::HEAD_BYTES;
use pinfold_executor::render::render_finished;
use pinfold_providers::Output;
use std::os::unix::fs::MetadataExt as _;

fn small(backend: Backend) -> World {
    let hidden = tempfile::Builder::new().prefix("pinfold-test-").tempdir_in("/tmp").unwrap();
    let mut world = World::with(backend, |base, config| {
        config.max_output_bytes = 1000.0;
        // The first is out of sight where a private temp directory covers it, the second can be written.
        config.spill_places = vec![hidden.path().join("spill"), base.join("ws/spill"), base.join("spill")];
    });
    world.hidden = Some(hidden);
    world
}

/// W23, B022, U375, U615: the file that a result names can be read by the next command under that path, and not written
/// (U625); W57: it goes with its session.
#[test]
fn the_whole_output_can_be_read_inside_under_the_path_that_is_named() {
    for backend in CONFINED {
        let world = small(backend);
        let finished = world.run("seq 1 2000; seq 1 3000 >&2");
        assert!(finished.stdout.truncated && finished.stderr.truncated);
        for (output, last) in [(&finished.stdout, 2000), (&finished.stderr, 3000)] {
            let path = output.spill_path.as_ref().unwrap_or_else(|| panic!("{backend}: no file"));
            let whole: String = (1..=last).map(|number| format!("{number}\n")).collect();
            assert_eq!(std::fs::read_to_string(path).unwrap(), whole);
            assert_eq!(output.total_bytes, whole.len() as u64);
            assert!(whole.ends_with(&output.text) && output.text.len() == 1000);
            assert_eq!(output.head.as_deref(), Some(&whole[..HEAD_BYTES.min(whole.len())]));
            let metadata = std::fs::metadata(path).unwrap();
            assert_eq!(metadata.mode() & 0o777, 0o600);
            assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
            assert_eq!(world.printed(&format!("tail -1 {}", path.display())), format!("{last}\n"), "{backend}");
            let forged = world.run(&format!("echo x >> {}", path.display()));
            assert!(forged.sandbox.denied, "{backend}: {forged:?}");
            let marker = format!("[output truncated; full output: {}]", path.display());
            assert!(render_finished(&finished, None).contains(&marker));
        }
        let path = finished.stdout.spill_path.unwrap();
        world.executor.end_session(&SessionId::new("other")).unwrap();
        assert!(path.exists());
        world.executor.end_session(&SessionId::new("s")).unwrap();
        assert!(!path.exists(), "{backend}");
    }
}

/// U313, W57: a file that cannot hold all is none; and all files together have a limit.
#[test]
fn a_file_that_cannot_hold_all_is_not_named() {
    let world = World::with(Backend::Namespace, |_, config| {
        config.max_output_bytes = 1000.0;
        config.max_spill_bytes = 10_000.0;
        config.max_spill_bytes_in_all = 15_000.0;
    });
    let long = world.run("head -c 20000 /dev/zero");
    assert_eq!((long.stdout.total_bytes, long.stdout.spill_path.as_ref()), (20_000, None));
    assert!(render_finished(&long, None).ends_with("\n[output truncated; full output: (unavailable)]"));
    assert!(world.run("head -c 8000 /dev/zero").stdout.spill_path.is_some());
    assert!(world.run("head -c 8000 /dev/zero").stdout.spill_path.is_none(), "the limit of all files");
    let left = std::fs::read_dir(world.path("spill")).unwrap().flatten().find(|it| it.path().is_dir()).unwrap();
    assert_eq!(std::fs::read_dir(left.path()).unwrap().count(), 1);
}

/// B087: memory stays bounded and the command is not held up, whatever it prints. `PINFOLD_FLOOD_MIB` says how much.
#[test]
fn a_flood_without_a_line_break_is_bounded() {
    let mib: u64 = std::env::var("PINFOLD_FLOOD_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(96);
    for backend in EVERY {
        let world = World::new(backend);
        world.printed("true");
        let before = peak_memory();
        let finished = world.run(&format!("head -c {mib}M /dev/zero | tr '\\0' x; printf '\u{e4}end'"));
        assert_eq!(finished.exit_code(), Some(0), "{backend}: {finished:?}");
        assert_eq!(finished.stdout.total_bytes, (mib << 20) + 5, "{backend}");
        assert!(finished.stdout.text.ends_with("x\u{e4}end") && finished.stdout.text.len() == 64_000);
        assert!(finished.stdout.head.unwrap().starts_with("xxx"));
        // 64 MiB is what the file may hold; memory holds some hundred kB.
        assert_eq!(finished.stdout.spill_path, None);
        let grown = peak_memory().saturating_sub(before);
        assert!(grown < 32 << 10, "{backend}: {grown} KiB more memory");
    }
}

/// The most memory this process has had, in KiB (proc(5), VmHWM).
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// B079: a flood does not keep the clock from being looked at.
#[test]
fn a_flood_ends_on_time() {
    everywhere(|world| {
        world.printed("true");
        let begun = Instant::now();
        let request = Request { timeout_ms: Some(1500.0), ..Request::new("trap '' TERM; yes") };
        let finished = world.request(&request);
        assert!(finished.timed_out() && finished.stdout.truncated, "{}", world.backend);
        assert!(begun.elapsed() < Duration::from_secs(15), "{}", world.backend);
    });
}

/// U332: what was dropped before it was read makes a read lossy, and the file is named.
#[test]
fn a_late_read_is_lossy_and_names_the_file() {
    for backend in CONFINED {
        let world = small(backend);
        let process = world.start("seq 1 3000");
        process.done();
        let read = process.read_output();
        assert!(read.lossy && read.stdout.ends_with("2999\n3000\n"), "{backend}");
        assert_eq!(read.spill_paths.len(), 1, "{backend}");
        assert_eq!(std::fs::read_to_string(&read.spill_paths[0]).unwrap().lines().count(), 3000);
        assert!(!process.read_output().lossy);
        assert!(process.observe(Output::Stdout, 0).lossy);
    }
}

/// U311: no piece of a read ends within a character; bytes that are no text are marked.
#[test]
fn characters_arrive_whole() {
    everywhere(|world| {
        let process = world.start("printf '\\303'; until test -e go; do sleep 0.01; done; printf '\\244\\377'");
        wait_for("the first byte", || {
            // Half a character is not shown, and not lost.
            assert_eq!(process.read_output().stdout, "");
            process.observe(Output::Stdout, 0).next == 0 && process.pid().is_some()
        });
        std::fs::write(world.path("ws/go"), "").unwrap();
        let finished = process.done();
        assert!(finished.stdout.invalid_utf8, "{}", world.backend);
        assert_eq!(process.read_output().stdout, "\u{e4}\u{fffd}", "{}", world.backend);
    });
}

/// U298: a caller in the same program may keep more of standard output; standard error keeps its cap.
#[test]
fn a_request_may_keep_more() {
    let world = small(Backend::Namespace);
    let request = Request {
        stdout_max_bytes: Some(5000.0),
        ..Request::new("head -c 4000 /dev/zero; head -c 4000 /dev/zero >&2")
    };
    let finished = world.request(&request);
    assert_eq!((finished.stdout.truncated, finished.stderr.truncated), (false, true));
}
