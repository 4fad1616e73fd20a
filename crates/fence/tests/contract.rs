//! The file contract: group O of the reference's statements, W45 to W54.

mod scene;

use pinfold_fence::edit::Replacement;
use pinfold_fence::{Abort, Change, Fence, FenceOptions, FsError, Intent, Kind, Limits, LinesRequest, Lost};
use pinfold_fence::{Replace, Written};
use pinfold_policy::{FileErrorCode as Code, SandboxMode};
use scene::Scene;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

fn put(fence: &Fence, path: &str, content: &str, intent: &Intent) -> Result<Written, FsError> {
    fence.write(Path::new(path), content.as_bytes(), intent, &Abort::default())
}

fn edit(fence: &Fence, path: &str, old: &str, new: &str, intent: &Intent) -> Result<Written, FsError> {
    fence.edit(Path::new(path), &Replacement { old, new, all: false }, intent, &Abort::default())
}

fn code<T: std::fmt::Debug>(result: Result<T, FsError>) -> Code {
    result.unwrap_err().code()
}

fn at(written: &Written) -> Intent {
    Intent::ReplaceIf { version: written.version.clone(), content: None }
}

fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// U438, U439, U440, U441, U449, U471.
#[test]
fn a_path_has_one_key_before_and_after_it_exists() {
    let scene = Scene::new();
    scene.put("file", "x");
    for fence in scene.fences(SandboxMode::WorkspaceWrite) {
        let key = |path: &str| fence.resolve(Path::new(path)).unwrap().key().to_owned();
        let before = key("new/deep/f");
        put(&fence, "new/deep/f", "x", &Intent::Any).unwrap();
        assert_eq!(before, key("./new/../new/deep/f"));
        for blank in ["", "  "] {
            let error = fence.resolve(Path::new(blank)).unwrap_err();
            assert_eq!(error.to_string(), "file_path must be a non-empty string");
            assert_eq!(error.code(), Code::NotFound);
        }
        assert_eq!(code(fence.resolve(Path::new("a\0b"))), Code::NotFound);
        let error = fence.resolve(Path::new("file/x")).unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        assert!(error.to_string().contains("is not a directory"), "{error}");
        assert!(error.to_string().contains(&format!("{:?}", scene.ws.join("file"))), "{error}");
        fence.remove(Path::new("new"), true).unwrap();
    }
    scene.check();
}

/// U443.
#[test]
fn the_codes_are_those_of_the_list() {
    let mut codes: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    codes.sort_unstable();
    let list = "FS_ABORTED FS_AMBIGUOUS_EDIT FS_EDIT_NOT_FOUND FS_IO_ERROR FS_NOT_DIRECTORY FS_NOT_FOUND FS_NOT_OBSERVED \
                FS_NOT_REGULAR_FILE FS_NOT_TEXT FS_PERMISSION_DENIED FS_SANDBOX_DENIED FS_STALE_VERSION FS_TOO_LARGE";
    assert_eq!(codes, list.split_whitespace().collect::<Vec<_>>());
}

/// U442, U447, U448, U481.
#[test]
fn looks_and_listings_tell_what_is_there() {
    let scene = Scene::new();
    scene.put("d/b", "12");
    scene.put("d/a/x", "");
    scene.link("d/dangling", "none");
    scene.link("d/link", "b");
    let fence = scene.fence();
    let kind = |path: &str| fence.stat(Path::new(path)).unwrap().map(|look| look.kind);
    assert_eq!(kind("d/link"), Some(Kind::File));
    assert_eq!(fence.lstat(Path::new("d/link")).unwrap().unwrap().kind, Kind::Symlink);
    assert_eq!((kind("d"), kind("none")), (Some(Kind::Directory), None));
    let listing = fence.list(Path::new("d")).unwrap();
    let names: Vec<_> = listing.entries.iter().map(|it| (it.name.to_str().unwrap(), it.kind, it.link)).collect();
    assert_eq!(
        names,
        [
            ("a", Kind::Directory, false),
            ("b", Kind::File, false),
            ("dangling", Kind::Other, true),
            ("link", Kind::File, true)
        ]
    );
    assert_eq!(listing.entries[3].target.process_path(), scene.ws.join("d/b"));
    assert_eq!(listing.entries[1].look.as_ref().unwrap().size, 2);
    assert_eq!(code(fence.list(Path::new("none"))), Code::NotFound);
    assert_eq!(code(fence.list(Path::new("d/b"))), Code::NotDirectory);
}

/// U444, U445, U446, U469.
#[test]
fn reads_are_faithful_bounded_and_of_text_only() {
    let scene = Scene::new();
    let text = "\u{feff}a\r\nb\n\rc";
    scene.put("text", text);
    scene.put("late", [vec![b'a'; 8192], vec![0]].concat());
    scene.put("early", "a\0");
    scene.put("latin", b"\xe4\n");
    scene.put("cut", b"a\xc3");
    let fence = scene.fence();
    assert_eq!(fence.read_text(Path::new("text")).unwrap().0, text);
    assert!(fence.read_text(Path::new("late")).is_ok());
    let lines = |path: &str| fence.read_lines(Path::new(path), &LinesRequest::default());
    for bad in ["early", "latin", "cut"] {
        assert_eq!(code(fence.read_text(Path::new(bad))), Code::NotText, "{bad}");
        assert_eq!(code(lines(bad)), Code::NotText, "{bad}");
    }
    assert_eq!(code(fence.read_text(Path::new("none"))), Code::NotFound);
    assert_eq!(code(fence.read_text(Path::new("."))), Code::NotRegularFile);
    assert_eq!(fence.read_bytes(Path::new("cut"), 2).unwrap().bytes, b"a\xc3");
    assert_eq!(code(fence.read_bytes(Path::new("cut"), 1)), Code::TooLarge);
    assert_eq!(fence.read_range(Path::new("text"), 3, 2).unwrap(), b"a\r");
    assert_eq!(fence.read_range(Path::new("text"), 99, 2).unwrap(), b"");
    let large = "x\u{e4}\n".repeat(50_000);
    scene.put("large", &large);
    let read = fence.read_lines(Path::new("large"), &LinesRequest { offset: 49_999, ..Default::default() }).unwrap();
    assert_eq!((read.lines.len(), read.total), (2, 50_000));
    assert_eq!(read.hash, fence.read_bytes(Path::new("large"), 1 << 20).unwrap().hash());
}

/// U450, U451, U475, U476, U480, W51.
#[test]
fn intents_hold_and_versions_are_those_of_a_look() {
    let scene = Scene::new();
    for fence in scene.fences(SandboxMode::WorkspaceWrite) {
        let created = put(&fence, "f", "1", &Intent::CreateIfAbsent).unwrap();
        assert_eq!(created.change, Change::Create);
        let look = || fence.stat(Path::new("f")).unwrap().unwrap().version;
        assert_eq!(created.version, look());
        assert_eq!(code(put(&fence, "f", "2", &Intent::CreateIfAbsent)), Code::NotObserved);
        let updated = put(&fence, "f", "2", &at(&created)).unwrap();
        assert_eq!((updated.change, updated.version.clone()), (Change::Update, look()));
        assert_eq!(code(put(&fence, "f", "3", &at(&created))), Code::StaleVersion);
        assert_eq!(code(edit(&fence, "f", "2", "3", &at(&created))), Code::StaleVersion);
        assert_eq!(code(edit(&fence, "f", "nowhere", "3", &at(&created))), Code::StaleVersion, "before any matching");
        let known = Intent::ReplaceIf { version: created.version.clone(), content: Some(updated.hash()) };
        assert!(edit(&fence, "f", "2", "4", &known).is_ok(), "the same content in another state");
        // A rewrite of the same size with its time put back is another state.
        let before = look();
        let time = std::fs::metadata(scene.ws.join("f")).unwrap().modified().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::write(scene.ws.join("f"), "5").unwrap();
        std::fs::File::options().write(true).open(scene.ws.join("f")).unwrap().set_modified(time).unwrap();
        assert_ne!(before, look());
        std::fs::remove_file(scene.ws.join("f")).unwrap();
        assert_eq!(code(put(&fence, "f", "3", &at(&updated))), Code::StaleVersion);
        assert_eq!(code(edit(&fence, "f", "2", "3", &at(&updated))), Code::NotFound);
        assert_eq!(code(edit(&fence, "f", "2", "3", &Intent::Any)), Code::NotFound);
        assert!(put(&fence, "f", "3", &Intent::Any).is_ok());
        fence.remove(Path::new("f"), false).unwrap();
    }
    scene.check();
}

/// U462, U475, U477, U529: of several at one version, one wins; unconditional ones all succeed, one after the other.
#[test]
fn changes_of_one_file_come_one_after_the_other() {
    let scene = Scene::new();
    let fence = scene.fence();
    let first = put(&fence, "f", "0", &Intent::Any).unwrap();
    scene.link("l", "f");
    let results: Vec<_> = std::thread::scope(|scope| {
        let fence = &fence;
        let tasks: Vec<_> = (0..8)
            .map(|number: i32| {
                let path = if number % 2 == 0 { "f" } else { "l" };
                let intent = at(&first);
                scope.spawn(move || put(fence, path, &number.to_string(), &intent))
            })
            .collect();
        tasks.into_iter().map(|task| task.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|it| it.is_ok()).count(), 1);
    assert!(results.into_iter().filter_map(Result::err).all(|error| error.code() == Code::StaleVersion));
    put(&fence, "n", "", &Intent::Any).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let fence = &fence;
            scope.spawn(move || {
                let replacement = Replacement { old: "", new: "", all: false };
                assert_eq!(
                    code(fence.edit(Path::new("n"), &replacement, &Intent::Any, &Abort::default())),
                    Code::EditNotFound
                );
                put(fence, "n", &format!("{number}"), &Intent::Any).unwrap();
            });
        }
    });
    assert!(scene.ws.join("l").is_symlink());
    scene.check();
}

/// U452, U453, U454, U468.
#[test]
fn the_outcome_has_text_before_and_after_below_its_limit() {
    let scene = Scene::new();
    let limits = Limits { diff: 8, ..Limits::default() };
    let options = FenceOptions { limits, ..scene.options(pinfold_fence::Resolver::detect()) };
    let fence = Fence::open(&scene.policy(SandboxMode::WorkspaceWrite), options).unwrap();
    let first = put(&fence, "f", "a\r\nb", &Intent::Any).unwrap();
    assert_eq!((first.before, first.after.as_deref()), (None, Some("a\nb")));
    let second = edit(&fence, "f", "b", "c", &Intent::Any).unwrap();
    assert_eq!((second.before.as_deref(), second.after.as_deref()), (Some("a\nb"), Some("a\nc")));
    assert_eq!(scene.text("f"), "a\r\nc");
    let large = put(&fence, "f", "12345678", &Intent::Any).unwrap();
    assert_eq!((large.before, large.after), (None, None));
    let binary = put(&fence, "f", "x", &Intent::Any).unwrap();
    assert_eq!((binary.before, binary.after.as_deref()), (None, Some("x")));
    scene.put("b", b"\xff");
    assert_eq!(put(&fence, "b", "x", &Intent::Any).unwrap().before, None);
    assert_eq!(code(put(&fence, ".", "x", &Intent::Any)), Code::NotRegularFile);
}

/// U455, U457, U474, W50, W52: parents are made, names may be as long as they can be, nothing is left behind.
#[test]
fn writes_make_parents_take_the_longest_names_and_leave_nothing() {
    let scene = Scene::new();
    let long = "n".repeat(255);
    scene.link("dangling", "missing");
    for fence in scene.fences(SandboxMode::WorkspaceWrite) {
        let path = format!("{long}/{long}");
        assert!(put(&fence, &path, "x", &Intent::CreateIfAbsent).is_ok());
        assert!(put(&fence, &path, "y", &Intent::Any).is_ok());
        let error = put(&fence, &"n".repeat(256), "x", &Intent::Any).unwrap_err();
        assert_eq!(error.code(), Code::IoError);
        assert!(error.to_string().contains("255 bytes"), "{error}");
        assert_eq!(code(put(&fence, "dangling", "x", &Intent::CreateIfAbsent)), Code::NotRegularFile);
        assert!(scene.ws.join("dangling").is_symlink() && !scene.ws.join("missing").exists());
        assert_eq!(code(put(&fence, &long, "x", &Intent::CreateIfAbsent)), Code::NotRegularFile);
        fence.remove(Path::new(&long), true).unwrap();
        assert_eq!(std::fs::read_dir(&scene.ws).unwrap().count(), 1);
        scene.check();
    }
    // Unconditional: as a shell's redirection does.
    put(&scene.fence(), "dangling", "x", &Intent::Any).unwrap();
    assert_eq!(scene.text("missing"), "x");
    scene.check();
}

/// What a killed writer left is removed by the next one, a living writer's file and other people's are not.
#[test]
fn what_a_dead_writer_left_is_removed_later() {
    let scene = Scene::new();
    let name = |tail: &str| format!(".pinfold-0123456789abcde{tail}.new");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(120);
    let mut held = Vec::new();
    for (tail, is_old, is_locked) in [("0", true, false), ("1", false, false), ("2", true, true)] {
        let path = scene.put(&name(tail), "half");
        let file = std::fs::File::options().write(true).open(path).unwrap();
        if is_old {
            file.set_modified(old).unwrap();
        }
        if is_locked {
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
            held.push(file);
        }
    }
    std::fs::hard_link(scene.ws.join(name("1")), scene.ws.join(name("3"))).unwrap();
    put(&scene.fence(), "f", "x", &Intent::Any).unwrap();
    let left: Vec<bool> = ["0", "1", "2", "3"].iter().map(|tail| scene.ws.join(name(tail)).exists()).collect();
    assert_eq!(left, [false, true, true, true]);
}

/// U459, U478, W47, W48: mode, attributes and access lists stay; new files have the mode that the umask leaves.
#[test]
fn metadata_stays_and_what_is_lost_is_told() {
    let scene = Scene::new();
    let fence = scene.fence();
    put(&fence, "new", "x", &Intent::Any).unwrap();
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    let mode = |name: &str| std::fs::metadata(scene.ws.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("new"), 0o666 & !umask.bits());
    let path = scene.put("f", "x");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    let tagged = rustix::fs::setxattr(&path, c"user.tag", b"value", rustix::fs::XattrFlags::empty()).is_ok();
    // An access list: version 2; user::rwx, user:12345:r--, group::r-x, mask::r-x, other::--x (acl(5)).
    let entry =
        |tag: u16, perm: u16, id: u32| [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat();
    let none = u32::MAX;
    let entries = [(1, 7, none), (2, 4, 12345), (4, 5, none), (16, 5, none), (32, 1, none)];
    let list = [&2_u32.to_le_bytes()[..], &entries.map(|(tag, perm, id)| entry(tag, perm, id)).concat()].concat();
    let listed =
        rustix::fs::setxattr(&path, c"system.posix_acl_access", &list, rustix::fs::XattrFlags::empty()).is_ok();
    let written = put(&fence, "f", "y", &Intent::Any).unwrap();
    assert_eq!(written.lost, []);
    assert_eq!(mode("f"), 0o751);
    let attribute = |name: &std::ffi::CStr| {
        let mut value = vec![0; 128];
        let size = rustix::fs::getxattr(&path, name, &mut value[..]).unwrap();
        value.truncate(size);
        value
    };
    if tagged {
        assert_eq!(attribute(c"user.tag"), b"value");
    }
    if listed {
        assert_eq!(attribute(c"system.posix_acl_access"), list);
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(put(&fence, "f", "z", &Intent::Any).unwrap().lost, [Lost::SetId]);
    assert_eq!(mode("f"), 0o755);
    if root() {
        std::os::unix::fs::chown(&path, Some(1234), Some(5678)).unwrap();
        assert_eq!(put(&fence, "f", "0", &Intent::Any).unwrap().lost, []);
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.gid()), (1234, 5678));
    }
    scene.check();
}

/// W50: refusals by the host have codes of the list, and are no denials.
#[test]
fn a_file_that_may_not_be_written_is_not_replaced() {
    if root() {
        // Root may write everything; the other half of this test runs as an ordinary user.
        return;
    }
    let scene = Scene::new();
    let path = scene.put("f", "x");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let error = put(&scene.fence(), "f", "y", &Intent::Any).unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(code(scene.fence().read_text(Path::new("f"))), Code::PermissionDenied);
    std::fs::set_permissions(&scene.ws, std::fs::Permissions::from_mode(0o555)).unwrap();
    assert_eq!(code(put(&scene.fence(), "g", "y", &Intent::Any)), Code::PermissionDenied);
    std::fs::set_permissions(&scene.ws, std::fs::Permissions::from_mode(0o755)).unwrap();
    scene.check();
}

/// U469: what is withdrawn in time changes nothing.
#[test]
fn an_aborted_call_changes_nothing() {
    let scene = Scene::new();
    scene.put("f", "x");
    let abort = Abort::default();
    abort.abort();
    let fence = scene.fence();
    assert_eq!(code(fence.write(Path::new("d/f"), b"y", &Intent::Any, &abort)), Code::Aborted);
    let replacement = Replacement { old: "x", new: "y", all: false };
    assert_eq!(code(fence.edit(Path::new("f"), &replacement, &Intent::Any, &abort)), Code::Aborted);
    assert_eq!((scene.text("f").as_str(), scene.ws.join("d").exists()), ("x", false));
    scene.check();
}

/// W53: the other verbs.
#[test]
fn files_are_moved_copied_made_and_removed() {
    let scene = Scene::new();
    let fence = scene.fence();
    scene.put("f", "1");
    scene.put("g", "2");
    let mv = |from: &str, to: &str, replace| fence.rename(Path::new(from), Path::new(to), replace);
    assert_eq!(code(mv("f", "g", Replace::Never)), Code::NotObserved);
    mv("f", "g", Replace::Files).unwrap();
    mv("g", "deep/er/h", Replace::Never).unwrap();
    assert_eq!(scene.text("deep/er/h"), "1");
    assert_eq!(code(mv("none", "x", Replace::Never)), Code::NotFound);
    assert_eq!(code(mv("deep", "deep/er/in", Replace::Never)), Code::IoError);
    let cp = |from: &str, to: &str, replace| fence.copy(Path::new(from), Path::new(to), replace);
    assert_eq!(cp("deep/er/h", "c", Replace::Never).unwrap().bytes, 1);
    assert_eq!(code(cp("deep/er/h", "c", Replace::Never)), Code::NotObserved);
    assert!(cp("deep/er/h", "c", Replace::Files).is_ok());
    assert_eq!(code(cp("c", "c", Replace::Files)), Code::IoError);
    assert_eq!(code(cp("deep", "x", Replace::Never)), Code::NotRegularFile);
    // From outside, reading is open.
    assert!(fence.copy(&scene.out.join("f"), Path::new("from-out"), Replace::Never).is_ok());
    let mkdir = |path: &str, parents| fence.create_directory(Path::new(path), parents);
    assert_eq!(code(mkdir("p/q", false)), Code::NotFound);
    assert!(mkdir("p/q", true).is_ok() && mkdir("p/q", true).is_ok());
    assert_eq!(code(mkdir("p/q", false)), Code::IoError);
    assert_eq!(code(mkdir("c", true)), Code::NotDirectory);
    scene.link("p/link", &scene.out);
    assert_eq!(code(fence.remove(Path::new("p"), false)), Code::IoError);
    fence.remove(Path::new("p"), true).unwrap();
    assert_eq!(code(fence.remove(Path::new("p"), true)), Code::NotFound);
    scene.check();
}

/// U455: content and name are on the disk before the call returns.
#[test]
fn by_default_a_change_is_synchronised() {
    let scene = Scene::new();
    let fence = Fence::open(&scene.policy(SandboxMode::WorkspaceWrite), FenceOptions::default()).unwrap();
    assert!(put(&fence, "d/f", "x", &Intent::Any).unwrap().durable);
    assert!(!put(&scene.fence(), "d/f", "x", &Intent::Any).unwrap().durable);
}

/// Groups of files by pattern, lines by expression; `.gitignore` counts, hidden names do not.
#[test]
fn searches_find_what_is_asked_for() {
    let scene = Scene::new();
    for (name, content) in [
        ("src/a.rs", "fn one() {}\r\n// Two\n"),
        ("src/gen/b.rs", "fn two() {}\n"),
        (".hidden/c.rs", "two\n"),
        ("d.txt", "two\ntwo\n"),
        ("bin", "two\0"),
        (".gitignore", "gen/\n"),
    ] {
        scene.put(name, content);
    }
    scene.link("src/link.rs", &scene.out);
    let fence = scene.fence();
    let options = pinfold_fence::search::SearchOptions::default();
    let glob = |start: &str, pattern: &str| fence.glob(Path::new(start), pattern, &options).unwrap().results;
    assert_eq!(glob(".", "**/*.rs"), [Path::new("src/a.rs"), Path::new("src/link.rs")]);
    assert_eq!(glob("src", "*.rs"), [Path::new("a.rs"), Path::new("link.rs")]);
    assert_eq!(glob("src", "**/b.rs"), Vec::<std::path::PathBuf>::new());
    let all = pinfold_fence::search::SearchOptions { hidden: true, ignored: true, results: 100, ..Default::default() };
    assert_eq!(fence.glob(Path::new("."), "**/*.rs", &all).unwrap().results.len(), 4);
    let find = |text, any_case, files| {
        let pattern = pinfold_fence::search::LinePattern { text, literal: false, any_case, files };
        let found = fence.grep(Path::new("."), &pattern, &options).unwrap();
        found.results.into_iter().map(|it| format!("{}:{}:{}", it.path.display(), it.line, it.text)).collect::<Vec<_>>()
    };
    assert_eq!(find("^tw", false, None), ["d.txt:1:two", "d.txt:2:two"]);
    assert_eq!(find("tw[o]$", true, Some("**/*.rs")), ["src/a.rs:2:// Two"]);
    let few = pinfold_fence::search::SearchOptions { results: 1, ..options.clone() };
    let pattern = pinfold_fence::search::LinePattern { text: "two", literal: true, any_case: false, files: None };
    let found = fence.grep(Path::new("."), &pattern, &few).unwrap();
    assert!(found.truncated && found.results.len() == 1);
    assert_eq!(fence.grep(Path::new("d.txt"), &pattern, &options).unwrap().results.len(), 2);
    // As it was named, a result can be used where the search was.
    let first = |searched: &str| {
        let found = fence.grep(Path::new(searched), &pattern, &options).unwrap();
        let path = pinfold_fence::search::spelled(Path::new(searched), &found.results[0].path);
        (fence.read_text(&path).is_ok(), path)
    };
    for (searched, path) in [(".", "d.txt"), ("d.txt", "d.txt"), ("./d.txt", "./d.txt"), ("./", "./d.txt")] {
        assert_eq!(first(searched), (true, Path::new(path).to_owned()));
    }
    let broken = pinfold_fence::search::LinePattern { text: "(", literal: false, ..pattern };
    assert!(fence.grep(Path::new("."), &broken, &options).is_err());
}

/// Images are told by their bytes.
#[test]
fn images_are_known_by_their_first_bytes() {
    let scene = Scene::new();
    scene.put("picture", b"\x89PNG\r\n\x1a\n....");
    scene.put("fake.png", "text");
    let fence = scene.fence();
    assert_eq!(fence.read_image(Path::new("picture"), 100).unwrap().media_type, "image/png");
    assert_eq!(code(fence.read_image(Path::new("fake.png"), 100)), Code::NotRegularFile);
    assert_eq!(code(fence.read_image(Path::new("picture"), 5)), Code::TooLarge);
}
