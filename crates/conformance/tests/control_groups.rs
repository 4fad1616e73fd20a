//! Bounds on a whole call by control groups (cgroups(7)), as a user starts it: memory, and processes where nothing else counts
//! them. Each has its control without the bound. (W58)
//!
//! As root the test makes a group and gives it to the user, as a service manager would (systemd's `Delegate=yes`). Where no
//! group can be made, what is asked for must be refused.

use pinfold_conformance::judge::Finished;
use pinfold_conformance::start::{Backend, own_uid, uids};
use pinfold_conformance::walls::{CONFINED, Walls, text, written};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A group for a user, with a place inside for the process that starts calls. Removed at the end.
struct Delegated {
    groups: Vec<PathBuf>,
    entered: Vec<PathBuf>,
}

impl Delegated {
    /// In version 2 if it has the controllers, else in version 1; nothing if neither lets us.
    fn to(uid: u32) -> Option<Self> {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("test-of-pinfold-{}-{number}", std::process::id());
        let top = Path::new("/sys/fs/cgroup");
        let has = |file: &str| std::fs::read_to_string(top.join(file)).unwrap_or_default();
        if has("cgroup.controllers").contains("memory") {
            let enable = |group: &Path| std::fs::write(group.join("cgroup.subtree_control"), "+pids +memory").ok();
            let (group, inside) = (top.join(&name), top.join(&name).join("inside"));
            enable(top)?;
            std::fs::create_dir(&group).ok()?;
            let made = Self { groups: vec![inside.clone(), group.clone()], entered: vec![inside.clone()] };
            enable(&group)?;
            std::fs::create_dir(&inside).ok()?;
            for path in [group.clone(), group.join("cgroup.procs"), group.join("cgroup.subtree_control"), inside] {
                std::os::unix::fs::chown(path, Some(uid), Some(uid)).ok()?;
            }
            return Some(made);
        }
        let groups: Vec<_> = ["pids", "memory"].map(|controller| top.join(controller).join(&name)).into();
        let made = Self { groups: groups.clone(), entered: groups.clone() };
        for group in &groups {
            std::fs::create_dir(group).ok()?;
            std::os::unix::fs::chown(group, Some(uid), Some(uid)).ok()?;
        }
        Some(made)
    }

    /// Groups that calls have made and not removed.
    fn left(&self) -> Vec<PathBuf> {
        let entries = self.groups.iter().flat_map(|group| std::fs::read_dir(group).into_iter().flatten().flatten());
        let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("pinfold-"));
        ours.map(|entry| entry.path()).collect()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for group in self.left().iter().chain(&self.groups) {
            // What a failed test leaves in it, somebody else must look at.
            let _ = std::fs::remove_dir(group);
        }
    }
}

/// `pinfold run` as the user, in its group.
fn command(walls: &Walls, group: Option<&Delegated>, backend: Backend, options: &[&str], argv: &[&str]) -> Command {
    let id = walls.fixture.uid.to_string();
    let enter: String = group
        .iter()
        .flat_map(|group| &group.entered)
        .map(|path| format!("echo $$ > {}/cgroup.procs || exit 99\n", path.display()))
        .collect();
    let own = own_uid() == walls.fixture.uid;
    let user = format!("setpriv --reuid {id} --regid {id} --clear-groups");
    let script = format!("{enter}exec {} \"$@\"", if own { "" } else { user.as_str() });
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script, "sh", &text(&walls.pinfold()), "run", "--json", "--backend", backend.name()]);
    command.args(options).arg("--").args(argv).current_dir(walls.fixture.ws()).stdin(Stdio::null());
    command.env("XDG_RUNTIME_DIR", walls.runtime()).env("HOME", walls.home());
    command
}

fn outcome(finished: &Finished) -> serde_json::Value {
    let said = written(&finished.stderr);
    serde_json::from_str(said.lines().last().unwrap_or_default()).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Two processes that have 60 MiB each at the same time; the child waits until its parent has had its memory.
const TWO: &str = "
import os
to_child, to_parent = os.pipe(), os.pipe()
child = os.fork()
memory = bytearray(60 << 20)
for at in range(0, len(memory), 4096): memory[at] = 1
if child == 0:
    os.close(to_child[1]); os.close(to_parent[0])
    os.write(to_parent[1], b'x')
    os.read(to_child[0], 1)
    os._exit(0)
os.close(to_child[0]); os.close(to_parent[1])
there = os.read(to_parent[0], 1)
os.close(to_child[1])
_, status = os.waitpid(child, 0)
print('both' if there and status == 0 else 'one')
";

const FORKS: &str = "
import errno, os, signal
children, why = [], 0
for _ in range(150):
    try:
        child = os.fork()
    except OSError as error:
        why = errno.errorcode[error.errno]
        break
    if child == 0:
        signal.pause()
    children.append(child)
print(len(children), why, flush=True)
for child in children:
    os.kill(child, signal.SIGKILL)
";

#[test]
fn the_memory_of_all_processes_of_a_call_is_bounded_and_the_kernel_says_so() {
    for uid in uids() {
        let walls = Walls::new(uid).expect("a fixture");
        let group = Delegated::to(uid);
        for backend in CONFINED {
            let run = |bound: &[&str]| {
                let mut command = command(&walls, group.as_ref(), backend, bound, &["python3", "-c", TWO]);
                Walls::finish(&mut command).expect("it ends")
            };
            assert_eq!(written(&run(&[]).stdout), "both\n", "{backend:?} {uid}");
            let bounded = run(&["--max-memory", "100MiB"]);
            if group.is_none() {
                assert_eq!(
                    (outcome(&bounded)["code"].as_str(), written(&bounded.stdout)),
                    (Some("SANDBOX_UNSUPPORTED_POLICY"), String::new())
                );
                continue;
            }
            assert_ne!(written(&bounded.stdout), "both\n", "{backend:?} {uid}");
            let met = serde_json::json!([{"resource": "memory", "evidence": "kernel"}]);
            assert_eq!(outcome(&bounded)["boundsMet"], met, "{backend:?} {uid}: {bounded:?}");
            assert_eq!(written(&run(&["--max-memory", "400MiB"]).stdout), "both\n");
        }
        assert_eq!(group.as_ref().map(Delegated::left).unwrap_or_default(), Vec::<PathBuf>::new());
    }
}

#[test]
fn processes_are_counted_by_a_group_where_no_namespace_counts_them() {
    for uid in uids() {
        let walls = Walls::new(uid).expect("a fixture");
        let Some(group) = Delegated::to(uid) else { continue };
        for backend in CONFINED {
            let run = |bound: &[&str]| {
                let mut command = command(&walls, Some(&group), backend, bound, &["python3", "-c", FORKS]);
                let finished = Walls::finish(&mut command).expect("it ends");
                (written(&finished.stdout), outcome(&finished)["boundsMet"].clone())
            };
            assert_eq!(run(&["--max-processes", "none"]).0, "150 0\n");
            let (said, met) = run(&["--max-processes", "50"]);
            assert_eq!(said, "49 EAGAIN\n", "{backend:?} {uid}");
            if backend == Backend::Landlock {
                assert_eq!(met, serde_json::json!([{"resource": "processes", "evidence": "kernel"}]));
            }
        }
        assert_eq!(group.left(), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_group_whose_caller_was_killed_is_removed_by_the_next_call() {
    for uid in uids() {
        let walls = Walls::new(uid).expect("a fixture");
        let Some(group) = Delegated::to(uid) else { continue };
        for backend in CONFINED {
            let bound = ["--max-memory", "100MiB"];
            let mut killed = command(&walls, Some(&group), backend, &bound, &["sh", "-c", "echo here; exec sleep 600"]);
            let mut child = killed.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
            let mut said = [0; 5];
            std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut said).expect("it runs");
            let one_each = group.left();
            assert!(!one_each.is_empty());
            // A living call's group is not touched by another one.
            let other = Walls::finish(&mut command(&walls, Some(&group), backend, &bound, &["true"])).expect("it ends");
            assert_eq!((other.status.code(), group.left()), (Some(0), one_each.clone()), "{other:?}");
            // The child is setpriv's and the shell's successor: pinfold itself.
            child.kill().expect("ours");
            child.wait().expect("ours");
            let begun = Instant::now();
            while one_each
                .iter()
                .any(|path| std::fs::read(path.join("cgroup.procs")).is_ok_and(|list| !list.is_empty()))
                && begun.elapsed() < Duration::from_secs(20)
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            let next = Walls::finish(&mut command(&walls, Some(&group), backend, &bound, &["true"])).expect("it ends");
            assert_eq!((next.status.code(), group.left()), (Some(0), Vec::new()), "{next:?}");
        }
    }
}

#[test]
fn an_argv_for_others_makes_no_group() {
    let walls = Walls::new(own_uid()).expect("a fixture");
    let words = [text(&walls.pinfold()), "confine".into(), "--json".into(), "--max-memory".into(), "1GiB".into()];
    let mut argv: Vec<String> = words.into();
    argv.extend(["--".to_owned(), "true".to_owned()]);
    let finished = Walls::finish(&mut walls.plain(&argv)).expect("it ends");
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert!(written(&finished.stderr).contains("nobody would remove it"), "{finished:?}");
}
