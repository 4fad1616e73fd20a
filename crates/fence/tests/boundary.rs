//! Where the fence stands: groups P of the reference's statements, W02, W03, W10, and the field cases about paths.

mod scene;

use pinfold_fence::{Abort, Act, Fence, FenceOptions, FsError, Intent, Kind, Replace, Resolver};
use pinfold_policy::{ExecutionPolicy, FileErrorCode as Code, SandboxMode};
use scene::Scene;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use SandboxMode::{DangerFullAccess, ReadOnly, WorkspaceWrite};

fn write(fence: &Fence, path: impl AsRef<Path>) -> Result<PathBuf, FsError> {
    let written = fence.write(path.as_ref(), b"new", &Intent::Any, &Abort::default())?;
    Ok(written.target.process_path().to_owned())
}

fn code<T: std::fmt::Debug>(result: Result<T, FsError>) -> Code {
    result.unwrap_err().code()
}

/// U482, U483, U499, B037: reading passes in every mode; read-only refuses every change and touches nothing.
#[test]
fn read_only_reads_everything_and_changes_nothing() {
    let scene = Scene::new();
    scene.put("f", "old");
    for fence in scene.fences(ReadOnly) {
        assert_eq!(fence.read_text(Path::new("f")).unwrap().0, "old");
        assert_eq!(fence.read_text(&scene.out.join("f")).unwrap().0, "outside");
        let error = write(&fence, "f").unwrap_err();
        assert_eq!(error.code(), Code::SandboxDenied);
        let shown = format!("cannot write {:?}: file access denied under read-only mode", scene.ws.join("f"));
        assert!(error.to_string().starts_with(&shown), "{error}");
        assert_eq!(code(write(&fence, "new/deep/f")), Code::SandboxDenied);
        assert_eq!(code(fence.remove(Path::new("f"), false)), Code::SandboxDenied);
        assert_eq!(code(fence.create_directory(Path::new("d"), true)), Code::SandboxDenied);
        assert_eq!(code(fence.rename(Path::new("f"), Path::new("g"), Replace::Never)), Code::SandboxDenied);
        assert_eq!(code(fence.copy(Path::new("f"), Path::new("g"), Replace::Never)), Code::SandboxDenied);
    }
    assert_eq!(std::fs::read_dir(&scene.ws).unwrap().count(), 1);
    assert_eq!(scene.text("f"), "old");
    // Control: the same change is possible.
    assert!(write(&scene.fence(), "f").is_ok());
    scene.check();
}

/// U484, U486, U495, U499, B036, B055: links out of the roots are refused, with the name of where they lead.
#[test]
fn links_that_lead_out_are_refused_and_name_where_they_lead() {
    let scene = Scene::new();
    scene.link("leaf", scene.out.join("f"));
    scene.link("relative", "../out/f");
    scene.link("first", "second");
    scene.link("second", "leaf");
    scene.link("dir", &scene.out);
    scene.link("dangling", scene.out.join("none"));
    scene.link("up", "..");
    for fence in scene.fences(WorkspaceWrite) {
        for (path, leads) in [
            ("leaf", "f"),
            ("relative", "f"),
            ("first", "f"),
            ("dir/f", "f"),
            ("dir/new", "new"),
            ("dir/new/deep/er", "new/deep/er"),
            ("dangling", "none"),
            ("up/out/f", "f"),
            ("../out/f", "f"),
            ("./x/../../out/f", "f"),
        ] {
            let path = Path::new(path);
            let error = match write(&fence, path) {
                Err(error) if error.code() == Code::NotFound => continue, // `x` does not exist
                other => other.unwrap_err(),
            };
            assert_eq!(error.code(), Code::SandboxDenied, "{path:?}: {error}");
            assert_eq!(error.denial().unwrap().resolved, scene.out.join(leads), "{path:?}");
            assert!(error.to_string().contains(&format!("it leads to {:?}", scene.out.join(leads))), "{error}");
            assert_eq!(code(fence.copy(&scene.out.join("f"), path, Replace::Files)), Code::SandboxDenied);
        }
        for path in ["dir/x", "../x"] {
            assert_eq!(code(fence.create_directory(Path::new(path), true)), Code::SandboxDenied);
            assert_eq!(code(fence.rename(Path::new("leaf"), Path::new(path), Replace::Files)), Code::SandboxDenied);
        }
        assert_eq!(code(fence.remove(Path::new("dir/f"), false)), Code::SandboxDenied);
        assert_eq!(code(fence.remove(&scene.out, true)), Code::SandboxDenied);
        scene.check();
    }
    // Control: without the fence each of these would write outside.
    std::fs::write(scene.ws.join("dir/f"), "outside").unwrap();
    // Removing the link itself is a change inside.
    scene.fence().remove(Path::new("dir"), true).unwrap();
    scene.check();
}

/// U458, U477, U486, B120, B123: links that stay inside, or lead in, work; each key is one.
#[test]
fn links_that_stay_inside_work_in_every_spelling() {
    let scene = Scene::new();
    std::fs::create_dir(scene.ws.join("real")).unwrap();
    scene.link("relative", "real");
    scene.link("absolute", scene.ws.join("real"));
    scene.link("file", "real/n");
    symlink(&scene.ws, scene.base.join("in")).unwrap();
    let through = ExecutionPolicy::new(WorkspaceWrite, scene.base.join("in"));
    for resolver in [Resolver::Openat2, Resolver::Walk] {
        let physical = scene.fence_by(WorkspaceWrite, resolver);
        let linked = Fence::open(&through, scene.options(resolver)).unwrap();
        for fence in [physical, linked] {
            let here = scene.base.join("in/real/n");
            let there = scene.ws.join("real/../real/n");
            let paths: [&Path; 7] = [
                "real/n".as_ref(),
                "relative/n".as_ref(),
                "absolute/n".as_ref(),
                "file".as_ref(),
                "relative/../real/./n".as_ref(),
                &here,
                &there,
            ];
            for path in paths {
                let before = fence.resolve(path).unwrap();
                assert_eq!(write(&fence, path).unwrap(), scene.ws.join("real/n"), "{path:?}");
                assert_eq!(fence.resolve(path).unwrap().key(), before.key(), "{path:?}");
                std::fs::remove_file(scene.ws.join("real/n")).unwrap();
            }
            assert_eq!(write(&fence, "relative/a/b/c").unwrap(), scene.ws.join("real/a/b/c"));
            fence.remove(Path::new("real/a"), true).unwrap();
        }
    }
    assert!(scene.ws.join("file").is_symlink(), "the link stays");
    scene.check();
}

/// U489, U490, U496: a root is a directory, not a beginning of names; and it is no file.
#[test]
fn a_sibling_with_the_root_s_name_as_beginning_is_outside() {
    let scene = Scene::new();
    std::fs::create_dir(scene.base.join("ws2")).unwrap();
    for fence in scene.fences(WorkspaceWrite) {
        assert_eq!(code(write(&fence, scene.base.join("ws2/f"))), Code::SandboxDenied);
        assert_eq!(code(write(&fence, &scene.ws)), Code::NotRegularFile);
        assert_eq!(code(fence.remove(&scene.ws, true)), Code::SandboxDenied);
        assert_eq!(code(fence.rename(&scene.ws, Path::new("x"), Replace::Never)), Code::SandboxDenied);
        assert_eq!(code(write(&fence, "/")), Code::SandboxDenied);
    }
    scene.check();
}

/// U487, U488, U493, U470, U498: a fence has one policy and says its mode; under full access nothing is fenced, and a wider
/// mode is for one call's fence only.
#[test]
fn full_access_is_unfenced_and_ends_with_its_fence() {
    let scene = Scene::new();
    scene.link("leaf", scene.out.join("g"));
    let fence = scene.fence();
    let wide = fence.under(DangerFullAccess).unwrap();
    assert_eq!((fence.mode(), wide.mode(), wide.confined_mode()), (WorkspaceWrite, DangerFullAccess, None));
    assert_eq!(write(&wide, scene.out.join("new/g")).unwrap(), scene.out.join("new/g"));
    assert_eq!(code(write(&fence, scene.out.join("new/g"))), Code::SandboxDenied);
    wide.remove(&scene.out.join("new"), true).unwrap();
    assert!(!wide.read_text(Path::new("/proc/self/comm")).unwrap().0.is_empty());
    scene.check();
}

/// U497, W11: a root of the system is refused, as for commands.
#[test]
fn directories_of_the_system_are_no_roots() {
    for root in ["/", "/etc", "/usr", "/proc/self", "/dev"] {
        let policy = ExecutionPolicy::new(WorkspaceWrite, root);
        let error = Fence::open(&policy, FenceOptions::default()).unwrap_err();
        assert_eq!(error.code().as_str(), "SANDBOX_INVALID_ROOT", "{root}");
        assert!(Fence::open(&ExecutionPolicy::new(ReadOnly, root), FenceOptions::default()).is_ok());
    }
    let scene = Scene::new();
    scene.link("root", &scene.out);
    let mut policy = scene.policy(WorkspaceWrite);
    policy.additional_writable_roots = vec![scene.ws.join("root")];
    assert!(Fence::open(&policy, FenceOptions::default()).is_err(), "an extra root through a link");
}

/// U484, U485: what a path led to before does not count.
#[test]
fn every_call_looks_anew_at_where_a_path_leads() {
    let scene = Scene::new();
    scene.put("a/f", "");
    scene.put("b/f", "");
    scene.link("link", "a");
    for fence in scene.fences(WorkspaceWrite) {
        let before = fence.resolve(Path::new("link/f")).unwrap();
        assert_eq!(write(&fence, "link/f").unwrap(), before.process_path());
        std::fs::remove_file(scene.ws.join("link")).unwrap();
        scene.link("link", "b");
        assert_eq!(write(&fence, before.display()).unwrap(), scene.ws.join("b/f"));
        std::fs::remove_file(scene.ws.join("link")).unwrap();
        scene.link("link", &scene.out);
        assert_eq!(code(write(&fence, before.display())), Code::SandboxDenied);
        std::fs::remove_file(scene.ws.join("link")).unwrap();
        scene.link("link", "a");
    }
    scene.check();
}

/// W02, U491: a root is the directory that was opened; when its name comes to mean another, or nothing, nothing is written
/// there.
#[test]
fn a_root_that_was_moved_away_is_not_followed_and_its_successor_is_no_root() {
    for resolver in [Resolver::Openat2, Resolver::Walk] {
        let scene = Scene::new();
        let fence = scene.fence_by(WorkspaceWrite, resolver);
        assert!(write(&fence, "f").is_ok());
        std::fs::rename(&scene.ws, scene.base.join("moved")).unwrap();
        symlink(&scene.out, &scene.ws).unwrap();
        assert_eq!(code(write(&fence, "f")), Code::SandboxDenied);
        std::fs::remove_file(&scene.ws).unwrap();
        std::fs::create_dir(&scene.ws).unwrap();
        assert_eq!(code(write(&fence, "f")), Code::SandboxDenied);
        // By its own name it still is the root.
        assert!(write(&fence, scene.base.join("moved/f")).is_ok());
        std::fs::remove_dir_all(&scene.ws).unwrap();
        assert_eq!(code(write(&fence, "f")), Code::SandboxDenied);
        std::fs::create_dir(&scene.ws).unwrap();
        scene.check();
    }
}

/// W10, B039, U459: a file with another name outside is replaced and not written through.
#[test]
fn a_hard_link_to_the_outside_is_broken_and_not_written_through() {
    let scene = Scene::new();
    for fence in scene.fences(WorkspaceWrite) {
        let _ = std::fs::remove_file(scene.ws.join("h"));
        std::fs::hard_link(scene.out.join("f"), scene.ws.join("h")).unwrap();
        let written = fence.write(Path::new("h"), b"new", &Intent::Any, &Abort::default()).unwrap();
        assert_eq!(written.lost, [pinfold_fence::Lost::OtherNames(1)]);
        assert_eq!((scene.text("h").as_str(), std::fs::metadata(scene.out.join("f")).unwrap().nlink()), ("new", 1));
    }
    scene.check();
}

/// U481, and the issue: pipes never make anybody wait; sockets and devices are no files.
#[test]
fn what_is_no_file_is_neither_read_nor_written_and_nobody_waits() {
    let scene = Scene::new();
    assert!(Command::new("mkfifo").arg(scene.ws.join("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(scene.ws.join("socket")).unwrap();
    scene.link("null", "/dev/null");
    for fence in scene.fences(WorkspaceWrite) {
        for name in ["pipe", "socket"] {
            let path = Path::new(name);
            assert_eq!(fence.stat(path).unwrap().unwrap().kind, Kind::Other);
            assert_eq!(code(fence.read_text(path)), Code::NotRegularFile);
            assert_eq!(code(write(&fence, path)), Code::NotRegularFile);
            assert_eq!(code(fence.copy(path, Path::new("c"), Replace::Never)), Code::NotRegularFile);
        }
        assert_eq!(code(fence.read_bytes(Path::new("/dev/zero"), 10)), Code::NotRegularFile);
        assert_eq!(code(fence.read_text(Path::new("null"))), Code::NotRegularFile);
        assert_eq!(code(write(&fence, "null")), Code::SandboxDenied);
        assert!(fence.grep(Path::new("."), &any_line(), &Default::default()).unwrap().results.is_empty());
    }
    for name in ["pipe", "socket"] {
        scene.fence().remove(Path::new(name), false).unwrap();
    }
    scene.check();
}

fn any_line() -> pinfold_fence::search::LinePattern<'static> {
    pinfold_fence::search::LinePattern { text: "", literal: false, any_case: false, files: None }
}

/// The issue: procfs shows this process instead of a command's; its links stand for no paths.
#[test]
fn procfs_is_no_way_around() {
    let scene = Scene::new();
    let out = scene.out.display();
    scene.link("root", format!("/proc/self/root{out}"));
    let held = std::fs::File::open(&scene.out).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&held);
    for fence in scene.fences(WorkspaceWrite) {
        for path in [
            "/proc/self/environ",
            "/proc/1/environ",
            "/proc/thread-self/comm",
            &format!("/proc/{}/environ", std::process::id()),
            &format!("/proc/self/fd/{number}/f"),
            &format!("/proc/self/root{out}/f"),
        ] {
            assert_eq!(code(fence.read_text(Path::new(path))), Code::SandboxDenied, "{path}");
            assert_eq!(code(write(&fence, path)), Code::SandboxDenied, "{path}");
        }
        assert_eq!(code(write(&fence, "root/f")), Code::SandboxDenied);
        assert!(fence.read_text(Path::new("/proc/sys/kernel/ostype")).is_ok());
        // The kernel's memory and its log are for privileged readers, and a command is none.
        for path in
            ["/proc/kcore", "/proc/kmsg", "/proc/kpagecount"].map(Path::new).into_iter().filter(|it| it.exists())
        {
            assert_eq!(code(fence.read_range(path, 0, 1)), Code::SandboxDenied, "{path:?}");
        }
        assert_eq!(code(fence.grep(Path::new("/proc"), &any_line(), &Default::default())), Code::IoError);
        assert_eq!(code(write(&fence, "/proc/sys/kernel/ostype")), Code::SandboxDenied);
    }
    scene.check();
}

/// The shell's denied reads are the fence's: not read, not changed, not moved, by no name.
#[test]
fn denied_paths_are_closed_by_every_name() {
    let scene = Scene::new();
    let secret = scene.put("keys/secret", "s");
    scene.put("keys/open", "o");
    let other = scene.put("other/deep/key", "k");
    scene.link("way", "keys/secret");
    std::fs::hard_link(&secret, scene.ws.join("alias")).unwrap();
    for resolver in [Resolver::Openat2, Resolver::Walk] {
        let fence = scene.denying(&[&secret, &scene.ws.join("other"), &scene.ws.join("later")], resolver);
        for path in ["keys/secret", "way", "alias", "other", "other/deep/key", "later", "later/x"] {
            let path = Path::new(path);
            assert_eq!(code(fence.stat(path)), Code::SandboxDenied, "{path:?}");
            assert_eq!(code(fence.read_text(path)), Code::SandboxDenied, "{path:?}");
            assert_eq!(code(write(&fence, path)), Code::SandboxDenied, "{path:?}");
        }
        for path in ["keys", "other", "keys/secret", "alias"] {
            let (path, to) = (Path::new(path), Path::new("elsewhere"));
            assert_eq!(code(fence.rename(path, to, Replace::Never)), Code::SandboxDenied, "{path:?}");
            assert_eq!(code(fence.remove(path, true)), Code::SandboxDenied, "{path:?}");
        }
        assert_eq!(code(fence.list(Path::new("other"))), Code::SandboxDenied);
        assert_eq!(fence.read_text(Path::new("keys/open")).unwrap().0, "o");
        let all = pinfold_fence::search::SearchOptions::default();
        assert_eq!(fence.glob(Path::new("."), "**", &all).unwrap().results, [Path::new("keys/open"), Path::new("way")]);
        assert_eq!(fence.grep(Path::new("."), &any_line(), &all).unwrap().results.len(), 1);
        let listing = fence.list(Path::new("keys")).unwrap();
        let seen: Vec<_> = listing.entries.iter().map(|it| (it.name.to_str().unwrap(), it.look.is_some())).collect();
        assert_eq!(seen, [("open", true), ("secret", false)]);
    }
    // Control: without the rule all of it is open.
    let fence = scene.fence();
    assert_eq!(fence.read_text(Path::new("alias")).unwrap().0, "s");
    assert!(fence.rename(Path::new("keys"), Path::new("moved"), Replace::Never).is_ok());
    assert_eq!(std::fs::read_to_string(other).unwrap(), "k");
    scene.check();
}

/// A root inside a root stays where it is, and so do the directories on the way to it.
#[test]
fn what_leads_to_another_root_stays_where_it_is() {
    let scene = Scene::new();
    std::fs::create_dir_all(scene.ws.join("a/b/inner")).unwrap();
    let mut policy = scene.policy(WorkspaceWrite);
    policy.additional_writable_roots = vec![scene.ws.join("a/b/inner")];
    for resolver in [Resolver::Openat2, Resolver::Walk] {
        let fence = Fence::open(&policy, scene.options(resolver)).unwrap();
        for path in ["a", "a/b", "a/b/inner"] {
            let to = Path::new("elsewhere");
            assert_eq!(code(fence.rename(Path::new(path), to, Replace::Never)), Code::SandboxDenied, "{path}");
            assert_eq!(code(fence.remove(Path::new(path), true)), Code::SandboxDenied, "{path}");
        }
        assert!(write(&fence, "a/b/inner/f").is_ok() && write(&fence, "a/f").is_ok());
    }
    scene.check();
}

/// Both ways to resolve give one answer, also where `openat2` gives none itself.
#[test]
fn both_ways_to_resolve_decide_alike() {
    let scene = Scene::new();
    scene.put("d/f", "x");
    scene.link("in", "d");
    scene.link("out", "../out");
    scene.link("loop", "loop");
    scene.link("dots", "d/../d/./f");
    let fences = scene.fences(WorkspaceWrite);
    let parts = ["d", "f", "in", "out", "loop", "dots", "..", ".", "none", "ws"];
    let mut checked = 0;
    for first in parts {
        for second in parts {
            for third in parts {
                let path = PathBuf::from(format!("{first}/{second}/{third}"));
                for act in [Act::Read, Act::Write, Act::Create, Act::Remove, Act::Rename] {
                    let answer = |fence: &Fence| match fence.decide(act, &path) {
                        Ok(target) => Ok(target.process_path().to_owned()),
                        Err(error) => Err((error.code(), error.denial().map(|it| it.resolved.clone()))),
                    };
                    assert_eq!(answer(&fences[0]), answer(&fences[1]), "{act:?} {path:?}");
                    checked += 1;
                }
            }
        }
    }
    assert_eq!(checked, 5000);
    scene.check();
}
