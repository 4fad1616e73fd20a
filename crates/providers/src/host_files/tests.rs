use super::*;
use crate::roots::pin_physical;
use HostChange::{Changed, Created, Mode, Removed};
use pinfold_policy::ObeyedKind;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Instant;

const LONG: HostFileScan = HostFileScan::Compare { max_entries: 100_000, max_time: Duration::from_secs(60) };

/// A directory with a root in it.
struct Place {
    _held: tempfile::TempDir,
    ws: PathBuf,
}

impl Place {
    fn new() -> Self {
        let held = tempfile::tempdir().unwrap();
        let ws = held.path().canonicalize().unwrap().join("ws");
        fs::create_dir(&ws).unwrap();
        Self { _held: held, ws }
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.ws.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.ws.join(path), Permissions::from_mode(mode)).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.ws.join(from), self.ws.join(to)).unwrap();
    }

    fn within(&self, scan: HostFileScan, act: impl FnOnce()) -> HostFiles {
        let before = Before::look(&[pin_physical(&self.ws).unwrap()], scan).unwrap();
        act();
        before.compare()
    }

    /// What an act changes, relative to the root.
    fn told(&self, act: impl FnOnce()) -> Vec<(String, HostChange)> {
        let found = self.within(LONG, act);
        assert!(!found.incomplete, "{:?}", found.reasons);
        self.relative(&found)
    }

    fn relative(&self, found: &HostFiles) -> Vec<(String, HostChange)> {
        let name = |file: &HostFile| file.path.strip_prefix(&self.ws).unwrap().to_str().unwrap().to_owned();
        found.changes.iter().map(|file| (name(file), file.change)).collect()
    }
}

/// There a page that was read before is written without the file's times moving.
#[test]
fn a_write_through_a_mapping_on_tmpfs_is_told() {
    let held = tempfile::tempdir_in("/dev/shm").unwrap();
    let place = Place { ws: held.path().canonicalize().unwrap(), _held: held };
    place.put("Makefile", "all: one\n");
    place.put("big.mk", &"x".repeat(200 << 10));
    let write = |name: &str| {
        let script = "import mmap,sys; f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0); m[0]; m[5:8]=b'two'";
        let ended =
            std::process::Command::new("python3").args(["-c", script]).arg(place.ws.join(name)).status().unwrap();
        assert!(ended.success());
    };
    // So that the files are older than the look.
    std::thread::sleep(Duration::from_millis(100));
    let found = place.within(LONG, || write("Makefile"));
    assert_eq!(place.relative(&found), list(&[("Makefile", Changed)]));
    assert!(found.incomplete && found.reasons.iter().any(|reason| reason.contains("mmap")), "{:?}", found.reasons);
}

fn list(all: &[(&str, HostChange)]) -> Vec<(String, HostChange)> {
    all.iter().map(|(path, change)| ((*path).to_owned(), *change)).collect()
}

// Case W08, B029, B030.
#[test]
fn what_is_created_changed_and_removed_is_told_with_its_kind() {
    use ObeyedKind::{Agent, Build, Ci, Editor, Environment, Git, Program, Shell};
    let place = Place::new();
    for (path, kind) in [
        (".git/hooks/pre-commit", Git),
        (".git/config", Git),
        (".git/info/attributes", Git),
        (".git/modules/a/config", Git),
        (".git/worktrees/x/gitdir", Git),
        (".git/rebase-merge/git-rebase-todo", Git),
        ("sub/.git", Git),
        (".vscode/tasks.json", Editor),
        (".envrc", Shell),
        ("Makefile", Build),
        ("sub/package.json", Build),
        ("env/bin/activate", Environment),
        ("env/lib/python3/site-packages/x.pth", Environment),
        (".github/workflows/ci.yml", Ci),
        (".claude/settings.json", Agent),
        ("AGENTS.md", Agent),
    ] {
        place.put(&format!("{path}.not/README"), "");
        let found = place.within(LONG, || place.put(path, "one"));
        let last =
            found.changes.iter().find(|file| file.path.ends_with(path)).unwrap_or_else(|| panic!("{path}: {found:?}"));
        assert_eq!((last.change, last.kind, last.mode.is_some()), (Created, kind, true), "{path}");
        assert!(!last.obeyed_by.is_empty() && !found.incomplete);
        let only = |change| list(&[(path, change)]);
        assert_eq!(place.told(|| place.put(path, "two")), only(Changed), "{path}");
        assert_eq!(place.told(|| place.mode(path, 0o755)), only(Mode), "{path}");
        assert_eq!(place.told(|| place.put(path, "two")), [], "{path}: the same content");
        assert_eq!(place.told(|| fs::remove_file(place.ws.join(path)).unwrap()), only(Removed), "{path}");
    }
    // Only what can be executed is a program.
    place.put("tool/bin/run", "x");
    assert_eq!(place.told(|| place.mode("tool/bin/run", 0o755)), list(&[("tool/bin/run", Created)]));
    let found = place.within(LONG, || place.mode("tool/bin/run", 0o644));
    assert_eq!((found.changes[0].change, found.changes[0].kind), (Mode, Program));
}

#[test]
fn what_git_does_all_day_is_not_told() {
    let place = Place::new();
    place.put(".git/config", "x");
    place.put(".git/HEAD", "x");
    let act = || {
        for path in
            [".git/index", ".git/HEAD", ".git/objects/ab/cd", ".git/refs/heads/config", ".git/logs/HEAD", "src/a.rs"]
        {
            place.put(path, "y");
        }
    };
    assert_eq!(place.told(act), []);
}

#[test]
fn a_file_with_the_size_and_times_that_it_had_is_told() {
    let place = Place::new();
    place.put("Makefile", "one");
    let path = place.ws.join("Makefile");
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    // At once: the clock of the file system may not have gone on.
    let act = || {
        fs::write(&path, "two").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    };
    assert_eq!(place.told(act), list(&[("Makefile", Changed)]));
    // Too long for its content to be compared.
    fs::write(&path, vec![b'a'; 1 << 20]).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    let act = || {
        fs::write(&path, vec![b'b'; 1 << 20]).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    };
    assert_eq!(place.told(act), list(&[("Makefile", Changed)]));
    assert_eq!(place.told(|| ()), []);
}

#[test]
fn what_arrives_or_leaves_with_a_directory_is_told() {
    let place = Place::new();
    place.put("node_modules/evil/.git/hooks/pre-commit", "x");
    place.put("plain/.vscode/tasks.json", "x");
    // What was prepared where nobody looks becomes visible by one rename.
    let arrived = place.told(|| place.rename("node_modules/evil", "sub"));
    assert_eq!(
        arrived,
        list(&[("sub/.git", Created), ("sub/.git/hooks", Created), ("sub/.git/hooks/pre-commit", Created)])
    );
    let moved = place.told(|| place.rename("plain", "other"));
    let all = ["other/.vscode", "other/.vscode/tasks.json", "plain/.vscode", "plain/.vscode/tasks.json"];
    assert_eq!(moved, list(&[(all[0], Created), (all[1], Created), (all[2], Removed), (all[3], Removed)]));
    // A directory is put in the place of another.
    place.put("new/.vscode/tasks.json", "y");
    let act = || {
        place.rename("other", "away");
        place.rename("new", "other");
    };
    assert!(place.told(act).contains(&("other/.vscode/tasks.json".to_owned(), Changed)));
}

#[test]
fn links_and_second_names_are_told() {
    let place = Place::new();
    place.put("prepared", "x");
    place.put("dir/tasks.json", "x");
    let act = || {
        fs::hard_link(place.ws.join("prepared"), place.ws.join("Makefile")).unwrap();
        symlink("dir", place.ws.join(".vscode")).unwrap();
        symlink("/etc", place.ws.join(".git")).unwrap();
    };
    assert_eq!(place.told(act), list(&[(".git", Created), (".vscode", Created), ("Makefile", Created)]));
    // Through another name of the file, and where a link leads.
    let act = || {
        place.put("prepared", "other");
        place.put("dir/tasks.json", "other");
    };
    assert_eq!(place.told(act), list(&[("dir/tasks.json", Changed), ("Makefile", Changed)]));
    let act = || {
        fs::remove_file(place.ws.join(".git")).unwrap();
        symlink("/usr", place.ws.join(".git")).unwrap();
    };
    assert_eq!(place.told(act), list(&[(".git", Changed)]));
}

#[test]
fn what_the_configuration_of_git_names_is_told() {
    let place = Place::new();
    place.put(".git/config", "[core]\nhooksPath = tools/hooks\n");
    place.put("tools/hooks/post-checkout", "x");
    let act = || {
        place.put("tools/hooks/post-checkout", "y");
        place.put("tools/hooks/pre-commit", "y");
        place.put("tools/other", "y");
    };
    let hooks = [("tools/hooks/post-checkout", Changed), ("tools/hooks/pre-commit", Created)];
    assert_eq!(place.told(act), list(&hooks));
}

#[test]
fn a_bare_repository_and_set_id_files_are_told() {
    let place = Place::new();
    let act = || {
        for name in ["objects/x", "refs/x", "HEAD", "hooks/post-update"] {
            place.put(&format!("deep/bare/{name}"), "x");
        }
        place.put("src/tool", "x");
        place.mode("src/tool", 0o4755);
    };
    let found = place.within(LONG, act);
    assert_eq!(found.changes[0].kind, ObeyedKind::SetId);
    assert_eq!(found.changes[0].mode.as_deref(), Some("4755"));
    let all = [("src/tool", Created), ("deep/bare/hooks", Created), ("deep/bare/hooks/post-update", Created)];
    assert_eq!(place.relative(&found), list(&all));
}

#[test]
fn packages_that_were_installed_are_not_looked_into_but_for_what_starts() {
    let place = Place::new();
    let act = || {
        place.put("node_modules/a/package.json", "x");
        place.put("node_modules/a/cli.js", "x");
        fs::create_dir(place.ws.join("node_modules/.bin")).unwrap();
        symlink("../a/cli.js", place.ws.join("node_modules/.bin/a")).unwrap();
        place.put("env/lib/python3/site-packages/a/setup.py", "x");
        place.put("target/.rustc_info.json", "x");
        place.put("target/debug/Makefile", "x");
    };
    // That the mark came is told, because anybody can put it there.
    assert_eq!(place.told(act), list(&[("node_modules/.bin/a", Created), ("target/.rustc_info.json", Created)]));
    // Only what cargo has marked is its output.
    assert_eq!(place.told(|| place.put("maven/target/Makefile", "x")), list(&[("maven/target/Makefile", Created)]));
}

#[test]
fn a_hostile_tree_costs_a_bounded_look_and_is_called_incomplete() {
    let place = Place::new();
    place.put(".vscode/tasks.json", "x");
    let few = HostFileScan::Compare { max_entries: 400, max_time: Duration::from_secs(60) };
    let act = || {
        for number in 0..3000 {
            place.put(&format!("{number}"), "");
        }
        place.put(".envrc", "evil");
        place.put("Makefile", "evil");
        place.put(".vscode/tasks.json", "evil");
        rustix::fs::mkfifoat(rustix::fs::CWD, place.ws.join("package.json"), 0o644.into()).unwrap();
    };
    let found = place.within(few, act);
    assert!(found.incomplete && found.reasons[0].contains("400 entries"), "{found:?}");
    let told = place.relative(&found);
    // By their names, and by what was known; nothing that was seen is called gone.
    for expected in
        [(".envrc", Created), ("Makefile", Created), (".vscode/tasks.json", Changed), ("package.json", Created)]
    {
        assert!(told.contains(&(expected.0.to_owned(), expected.1)), "{expected:?}: {told:?}");
    }
    assert!(!told.iter().any(|(_, change)| *change == Removed));
    // The next call begins with it, and tells what it changes and not what was there.
    let found = place.within(few, || place.put("Makefile", "worse"));
    assert_eq!((place.relative(&found), found.incomplete), (list(&[("Makefile", Changed)]), true));
}

#[test]
fn depth_cycles_fifos_and_odd_names_do_not_stop_a_look() {
    let place = Place::new();
    let deep: String = "d/".repeat(100);
    let act = || {
        place.put(&format!("{deep}Makefile"), "x");
        symlink(".", place.ws.join("again")).unwrap();
        symlink("..", place.ws.join(".idea")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, place.ws.join(".envrc"), 0o644.into()).unwrap();
        place.put("new\nline\u{1b}[2J/Makefile", "x");
    };
    let begun = Instant::now();
    let found = place.within(LONG, act);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(found.incomplete && found.reasons == ["Directories deeper than 64 were not looked into."], "{found:?}");
    let expected = [(".envrc", Created), (".idea", Created), ("new\nline\u{1b}[2J/Makefile", Created)];
    assert_eq!(place.relative(&found), list(&expected));
}

#[test]
fn what_cannot_be_read_and_another_directory_at_the_root_are_told() {
    let place = Place::new();
    place.put("closed/Makefile", "x");
    place.mode("closed", 0);
    let all = rustix::process::geteuid().is_root();
    let found = place.within(LONG, || ());
    assert_eq!(found.incomplete, !all, "{found:?}");
    assert!(all || found.reasons[0].contains("closed\" cannot be read"), "{found:?}");
    place.mode("closed", 0o755);
    let found = place.within(LONG, || {
        place.rename("", "../old");
        fs::create_dir(&place.ws).unwrap();
    });
    assert!(found.incomplete && found.reasons[0].contains("another directory"), "{found:?}");
}

#[test]
fn nothing_is_looked_at_unless_it_is_asked_and_roots_in_roots_are_looked_at_once() {
    assert!(Before::look(&[], HostFileScan::Skip).is_none());
    assert_eq!(Before::look(&[], LONG).unwrap().compare(), HostFiles::default());
    let place = Place::new();
    place.put("in/x", "");
    let roots = [pin_physical(&place.ws).unwrap(), pin_physical(&place.ws.join("in")).unwrap()];
    let before = Before::look(&roots, LONG).unwrap();
    place.put("in/Makefile", "x");
    assert_eq!(place.relative(&before.compare()), list(&[("in/Makefile", Created)]));
}

#[test]
fn the_list_is_bounded_and_what_tells_most_comes_first() {
    let place = Place::new();
    let act = || {
        for number in 0..300 {
            place.put(&format!("{number:03}/Makefile"), "x");
        }
        place.put("z/.git", "gitdir: /x");
    };
    let found = place.within(LONG, act);
    assert_eq!((found.changes.len(), found.more), (HostFiles::MOST_LISTED, 101));
    assert_eq!(found.changes[0].path, place.ws.join("z/.git"));
}
