//! Against others: a process that swaps directories, links and files under the fence's feet; a writer that is killed; a
//! disk that is full or becomes read-only (W03, B038, U460).
//!
//! The program is also the other process of each test: it starts itself with a word in front.
//! `PINFOLD_RACE_OPERATIONS=100000` and `PINFOLD_RACE_SECONDS=60` make long races. The same with a job that is confined:
//! `crates/conformance/tests/files.rs`.

mod scene;
mod swapper;

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_fence::search::SearchOptions;
use pinfold_fence::{Abort, Durability, Fence, FenceOptions, Intent, Replace, Resolver};
use pinfold_policy::{ExecutionPolicy, FileErrorCode as Code, Restrictions, SandboxMode};
use scene::{Scene, litter};
use std::io::BufRead as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// A test that is called as its function is.
macro_rules! trial {
    ($test:ident) => {
        Trial::test(stringify!($test), $test)
    };
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "swap", ws, out] => swapper::swap(Path::new(ws), Path::new(out)),
        [_, "rewrite", directory] => rewrite(Path::new(directory)),
        [_, "full", directory] => full(Path::new(directory)),
        [_, "read-only", directory] => read_only(Path::new(directory)),
        [_, "aliased", directory] => aliased(Path::new(directory)),
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
                on_mounts(trial!(a_denied_directory_is_closed_by_the_name_that_a_mount_gives_it), mounts),
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

fn a_denied_directory_is_closed_by_the_name_that_a_mount_gives_it() -> Result<(), Failed> {
    on_small_disk("aliased")
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

fn race(resolver: Resolver) -> Result<(), Failed> {
    let scene = Scene::new();
    swapper::lay_out(&scene.ws, &scene.out);
    let before = swapper::outside(&scene.out);
    let fence = swapper::fence(&scene.ws, &scene.out, resolver);
    let other = Other(myself(&["swap", scene.ws.to_str().unwrap(), scene.out.to_str().unwrap()]).spawn().unwrap());
    let seen = swapper::race(&fence, swapper::length(4000));
    drop(other);
    assert_eq!(swapper::outside(&scene.out), before, "something outside changed");
    assert_eq!(litter(&scene.ws), Vec::<std::path::PathBuf>::new());
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
    for number in 0_u64.. {
        let content = if number.is_multiple_of(2) { &one } else { &other };
        fence.write(Path::new("f"), content, &Intent::Any, &Abort::default()).unwrap();
        if number == 1 {
            println!("writing");
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
        let mut command = myself(&["rewrite", scene.ws.to_str().unwrap()]);
        let mut writer = Other(command.stdout(Stdio::piped()).spawn().unwrap());
        // It is killed in the middle of its work.
        let stdout = writer.0.stdout.take().unwrap();
        assert!(std::io::BufReader::new(stdout).lines().next().is_some_and(|line| line.is_ok()));
        std::thread::sleep(Duration::from_micros(round * 977 % 20_000));
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

/// A denied directory has a second name, by a mount in the workspace.
fn aliased(directory: &Path) {
    for name in ["keys/deep", "way/alias"] {
        std::fs::create_dir_all(directory.join(name)).unwrap();
    }
    std::fs::write(directory.join("keys/deep/k"), "secret").unwrap();
    let (keys, alias) = (directory.join("keys"), directory.join("way/alias"));
    let status = Command::new("mount").arg("--bind").arg(&keys).arg(&alias).status().unwrap();
    assert!(status.success());
    let policy = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, directory);
    let path = Path::new("way/alias/deep/k");
    for resolver in [Resolver::Openat2, Resolver::Walk] {
        let restrictions = Restrictions { denied_reads: vec![keys.clone()], ..Restrictions::default() };
        let options = FenceOptions { restrictions, resolver: Some(resolver), ..FenceOptions::default() };
        let fence = Fence::open(&policy, options).unwrap();
        let denied = |result: Result<(), pinfold_fence::FsError>| {
            assert_eq!(result.unwrap_err().code(), Code::SandboxDenied, "{resolver:?}");
        };
        denied(fence.read_text(path).map(drop));
        denied(fence.stat(path).map(drop));
        denied(fence.list(Path::new("way/alias/deep")).map(drop));
        denied(fence.write(path, b"x", &Intent::Any, &Abort::default()).map(drop));
        denied(fence.write(Path::new("way/alias/new/f"), b"x", &Intent::Any, &Abort::default()).map(drop));
        denied(fence.remove(Path::new("way"), true).map(drop));
        denied(fence.rename(Path::new("way"), Path::new("elsewhere"), Replace::Never).map(drop));
        let copied = fence.copy_tree(Path::new("way"), Path::new("copied"), Replace::Never).unwrap();
        assert_eq!((copied.files, copied.left_out), (0, vec!["alias".into()]));
        fence.remove(Path::new("copied"), true).unwrap();
        let found = fence.glob(Path::new("way"), "**", &SearchOptions::default()).unwrap();
        assert!(found.results.is_empty(), "{found:?}");
    }
    // Control.
    assert_eq!(small(directory).read_text(path).unwrap().0, "secret");
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
