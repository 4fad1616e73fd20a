//! Against others: a process that swaps directories, links and files under the fence's feet; a writer that is killed; a
//! disk that is full or becomes read-only (W03, B038, U460).
//!
//! The program is also the other process of each test: it starts itself with a word in front.
//! `PINFOLD_RACE_OPERATIONS=100000` is the long race.

mod scene;

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_fence::edit::Replacement;
use pinfold_fence::{Abort, Durability, Fence, FenceOptions, Intent, Replace, Resolver};
use pinfold_policy::{ExecutionPolicy, FileErrorCode as Code, Restrictions, SandboxMode};
use rustix::fs::{AtFlags, RenameFlags, renameat_with};
use scene::{Scene, litter};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A test that is called as its function is.
macro_rules! trial {
    ($test:ident) => {
        Trial::test(stringify!($test), $test)
    };
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "swap", ws, out] => swap(Path::new(ws), Path::new(out)),
        [_, "rewrite", directory] => rewrite(Path::new(directory)),
        [_, "full", directory] => full(Path::new(directory)),
        [_, "read-only", directory] => read_only(Path::new(directory)),
        _ => {
            let arguments = Arguments::from_args();
            let mounts = Command::new("unshare")
                .args(unshare())
                .args(["true"])
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success());
            let trials = vec![
                trial!(race_nothing_lands_outside_whatever_is_swapped_by_openat2),
                trial!(race_nothing_lands_outside_whatever_is_swapped_by_walking),
                trial!(a_killed_writer_leaves_old_or_new_and_never_half),
                on_mounts(trial!(a_full_disk_keeps_the_old_content), mounts),
                on_mounts(trial!(so_does_a_read_only_disk), mounts),
            ];
            return libtest_mimic::run(&arguments, trials).exit_code();
        }
    }
    ExitCode::SUCCESS
}

/// A trial that needs a mount namespace; where there is none, it is listed as not run.
fn on_mounts(trial: Trial, mounts: bool) -> Trial {
    if mounts { trial } else { trial.with_kind("no mount namespace").with_ignored_flag(true) }
}

fn race_nothing_lands_outside_whatever_is_swapped_by_openat2() -> Result<(), Failed> {
    race(Resolver::Openat2)
}

fn race_nothing_lands_outside_whatever_is_swapped_by_walking() -> Result<(), Failed> {
    race(Resolver::Walk)
}

fn a_full_disk_keeps_the_old_content() -> Result<(), Failed> {
    on_small_disk("full")
}

fn so_does_a_read_only_disk() -> Result<(), Failed> {
    on_small_disk("read-only")
}

fn unshare() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() { &["-m"] } else { &["-r", "-m"] }
}

fn myself(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(words).stdin(Stdio::null());
    command
}

/// Ends the other process, whatever becomes of the test.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Swaps names as fast as it can, by the two ways there are: at once, and step by step.
///
/// Like a confined job it cannot get outside itself: it works by descriptors of directories of the workspace.
fn swap(ws: &Path, out: &Path) {
    let open = |name: &str| std::fs::File::open(ws.join(name)).unwrap();
    let (top, d, deep) = (open("."), open("d"), open("deep"));
    let exchange = |one: (&File, &str), other: (&File, &str)| {
        // Refusals are expected: the fence moves and removes, too.
        let _ = renameat_with(one.0, one.1, other.0, other.1, RenameFlags::EXCHANGE);
    };
    let link = |to: &Path, at: &File, name: &str| {
        let _ = rustix::fs::symlinkat(to, at, name);
    };
    link(out, &top, "link");
    link(&out.join("f"), &top, "file-link");
    link(Path::new("../out"), &deep, "link");
    let parent = rustix::process::getppid();
    let mut round = 0_u32;
    while rustix::process::getppid() == parent {
        round = round.wrapping_add(1);
        exchange((&top, "d"), (&top, "link"));
        // Half of the time nothing but this, as fast as it goes: the window of a walk is small.
        if round / 256 % 2 == 1 {
            continue;
        }
        exchange((&deep, "x"), (&deep, "link"));
        if round.is_multiple_of(3) {
            exchange((&d, "f"), (&top, "file-link"));
        }
        if round.is_multiple_of(7) {
            let _ = rustix::fs::renameat(&top, "deep", &top, "moved");
            link(out, &top, "deep");
            let _ = rustix::fs::unlinkat(&top, "deep", AtFlags::empty());
            let _ = rustix::fs::renameat(&top, "moved", &top, "deep");
        }
        if round.is_multiple_of(31) {
            let _ = rustix::fs::mkdirat(&deep, "x", rustix::fs::Mode::RWXU);
            let _ = rustix::fs::unlinkat(&d, "made", AtFlags::empty());
            link(out, &d, "made");
        }
    }
}

fn race(resolver: Resolver) -> Result<(), Failed> {
    let operations: u32 =
        std::env::var("PINFOLD_RACE_OPERATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(8000);
    let scene = Scene::new();
    std::fs::create_dir_all(scene.ws.join("deep/x")).unwrap();
    scene.put("d/f", "inside");
    // Reading outside is denied here, so that a read that was led out would be seen.
    let restrictions = Restrictions { denied_reads: vec![scene.out.clone()], ..Restrictions::default() };
    let options = FenceOptions { restrictions, ..scene.options(resolver) };
    let fence = Fence::open(&scene.policy(SandboxMode::WorkspaceWrite), options).unwrap();
    let other = Other(myself(&["swap", scene.ws.to_str().unwrap(), scene.out.to_str().unwrap()]).spawn().unwrap());
    let begun = Instant::now();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let abort = Abort::default();
    for number in 0..operations {
        let result = match number % 9 {
            0 | 1 => fence.write(Path::new("d/f"), b"inside", &Intent::Any, &abort).map(drop),
            2 => fence.write(Path::new("deep/x/new"), b"inside", &Intent::CreateIfAbsent, &abort).map(drop),
            3 => fence.write(Path::new("d/made/by/us"), b"inside", &Intent::Any, &abort).map(drop),
            4 => {
                let replacement = Replacement { old: "inside", new: "inside", all: true };
                fence.edit(Path::new("d/f"), &replacement, &Intent::Any, &abort).map(drop)
            }
            5 => fence.remove(Path::new("d/made"), true).map(drop),
            6 => fence.rename(Path::new("deep/x/new"), Path::new("d/moved"), Replace::Files).map(drop),
            7 => fence.copy(Path::new("d/f"), Path::new("deep/x/copy"), Replace::Files).map(drop),
            _ => fence.read_text(Path::new("d/f")).map(|(text, _)| assert_eq!(text, "inside", "led out")),
        };
        let kind = result.err().map_or_else(|| "done".to_owned(), |error| error.code().to_string());
        *seen.entry(kind).or_default() += 1;
    }
    println!("{operations} operations in {:?}: {seen:?}", begun.elapsed());
    drop(other);
    scene.check();
    // The race took place: both answers came.
    if !seen.contains_key("done") || !seen.contains_key(Code::SandboxDenied.as_str()) {
        return Err(format!("the other process swapped nothing: {seen:?}").into());
    }
    Ok(())
}

/// Writes two contents in turn until it is killed.
fn rewrite(directory: &Path) {
    let policy = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, directory);
    let options = FenceOptions { durability: Durability::Unsynced, ..FenceOptions::default() };
    let fence = Fence::open(&policy, options).unwrap();
    let (one, other) = contents();
    loop {
        for content in [&one, &other] {
            fence.write(Path::new("f"), content, &Intent::Any, &Abort::default()).unwrap();
        }
    }
}

fn contents() -> (Vec<u8>, Vec<u8>) {
    (vec![b'a'; 1 << 20], vec![b'b'; 3 << 19])
}

fn a_killed_writer_leaves_old_or_new_and_never_half() -> Result<(), Failed> {
    let scene = Scene::new();
    let (one, other) = contents();
    scene.put("f", &one);
    let mut left = 0;
    for round in 0..40_u64 {
        let mut writer = Other(myself(&["rewrite", scene.ws.to_str().unwrap()]).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(5 + round * 7 % 40));
        writer.0.kill().unwrap();
        writer.0.wait().unwrap();
        let found = std::fs::read(scene.ws.join("f")).unwrap();
        if found != one && found != other {
            return Err(format!("round {round}: {} bytes, neither old nor new", found.len()).into());
        }
        left = left.max(litter(&scene.ws).len());
    }
    println!("at most {left} staging files at once after kills");
    // What they left goes with the next write, once it is old enough to be nobody's.
    let old = std::time::SystemTime::now() - Duration::from_secs(120);
    for path in litter(&scene.ws) {
        std::fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    }
    scene.fence().write(Path::new("g"), b"x", &Intent::Any, &Abort::default()).unwrap();
    scene.check();
    Ok(())
}

fn on_small_disk(word: &str) -> Result<(), Failed> {
    let scene = Scene::new();
    let script = r#"mount -t tmpfs -o size=1m,mode=755 tmpfs "$1" && exec "$2" "$3" "$1""#;
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(unshare()).args(["sh", "-ec", script, "sh"]).arg(&scene.ws).arg(program).arg(word);
    let output = command.output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned().into())
}

fn small(directory: &Path) -> Fence {
    let policy = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, directory);
    Fence::open(&policy, FenceOptions::default()).unwrap()
}

/// Writes until there is no room, and looks at what is left.
fn full(directory: &Path) {
    let fence = small(directory);
    let abort = Abort::default();
    fence.write(Path::new("f"), b"old", &Intent::Any, &abort).unwrap();
    for large in [vec![b'x'; 4 << 20], vec![b'y'; 1 << 20]] {
        for path in ["f", "new/g"] {
            let error = fence.write(Path::new(path), &large, &Intent::Any, &abort).unwrap_err();
            assert_eq!(error.code(), Code::IoError, "{error}");
            assert!(error.to_string().contains("no space is left"), "{error}");
        }
    }
    assert_eq!(std::fs::read(directory.join("f")).unwrap(), b"old");
    assert!(litter(directory).is_empty() && !directory.join("new").exists());
    fence.write(Path::new("f"), b"new", &Intent::Any, &abort).unwrap();
}

/// The same where the file system refuses.
fn read_only(directory: &Path) {
    let fence = small(directory);
    let abort = Abort::default();
    fence.write(Path::new("f"), b"old", &Intent::Any, &abort).unwrap();
    let status = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(directory).status().unwrap();
    assert!(status.success());
    for path in ["f", "new/g"] {
        let error = fence.write(Path::new(path), b"new", &Intent::Any, &abort).unwrap_err();
        assert_eq!(error.code(), Code::PermissionDenied, "{error}");
    }
    assert_eq!(fence.remove(Path::new("f"), false).unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(std::fs::read(directory.join("f")).unwrap(), b"old");
    assert!(litter(directory).is_empty());
}
