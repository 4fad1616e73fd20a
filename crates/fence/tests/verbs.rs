//! The other verbs (W53, W54): copying trees, permission bits, times, parts of files; and what each of them refuses.

mod scene;

use pinfold_fence::edit::Replacement;
use pinfold_fence::{
    Abort, Change, Durability, Fence, FenceOptions, FsError, Intent, Limits, Permissions, Replace, Resolver,
};
use pinfold_policy::protect::ProtectedNames;
use pinfold_policy::{FileErrorCode as Code, Restrictions, SandboxMode};
use scene::Scene;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

fn code<T: std::fmt::Debug>(result: Result<T, FsError>) -> Code {
    result.unwrap_err().code()
}

fn mode(path: impl AsRef<Path>) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn copy(fence: &Fence, from: &str, to: &str, replace: Replace) -> Result<pinfold_fence::CopiedTree, FsError> {
    fence.copy_tree(Path::new(from), Path::new(to), replace)
}

#[test]
fn a_directory_is_copied_with_what_lies_in_it() {
    let scene = Scene::new();
    let fence = scene.fence();
    scene.put("d/a", "1");
    scene.put("d/sub/b", "22");
    std::fs::create_dir(scene.ws.join("d/empty")).unwrap();
    std::fs::set_permissions(scene.ws.join("d/a"), PermissionsExt::from_mode(0o750)).unwrap();
    scene.link("d/link", &scene.out);
    scene.link("d/dangling", "none");
    assert!(Command::new("mkfifo").arg(scene.ws.join("d/pipe")).status().unwrap().success());
    let copied = copy(&fence, "d", "new/place", Replace::Never).unwrap();
    assert_eq!((copied.files, copied.bytes, copied.left_out), (4, 3, vec![PathBuf::from("pipe")]));
    assert_eq!((scene.text("new/place/a").as_str(), scene.text("new/place/sub/b").as_str()), ("1", "22"));
    assert_eq!(mode(scene.ws.join("new/place/a")), 0o750);
    assert!(scene.ws.join("new/place/empty").is_dir());
    assert_eq!(std::fs::read_link(scene.ws.join("new/place/link")).unwrap(), scene.out);
    // What is there is kept unless asked for, and replaced by name if asked for.
    assert_eq!(code(copy(&fence, "d", "new/place", Replace::Never)), Code::IoError);
    scene.put("new/place/a", "old");
    scene.put("new/place/kept", "k");
    assert!(copy(&fence, "d", "new/place", Replace::Files).is_ok());
    assert_eq!((scene.text("new/place/a").as_str(), scene.text("new/place/kept").as_str()), ("1", "k"));
    assert_eq!(code(copy(&fence, "d", "d/sub/again", Replace::Never)), Code::IoError);
    assert_eq!(code(copy(&fence, "d", "new/place/a", Replace::Files)), Code::NotDirectory);
    assert_eq!(copy(&fence, "d/a", "one", Replace::Never).unwrap().files, 1);
    assert_eq!(code(copy(&fence, "none", "x", Replace::Never)), Code::NotFound);
    // From outside, reading is open; to outside, nothing is.
    let out = scene.out.to_str().unwrap();
    assert_eq!(copy(&fence, out, "from-out", Replace::Never).unwrap().files, 1);
    assert_eq!(code(copy(&fence, "d", &format!("{out}/d"), Replace::Never)), Code::SandboxDenied);
    assert_eq!(code(copy(&fence, "d", "from-out/../d/link/d", Replace::Never)), Code::SandboxDenied);
    scene.check();
}

/// The same rules as for each file: what is denied does not come along, and nothing comes to lie under a protected name.
#[test]
fn a_copied_tree_leaves_out_what_is_denied_and_makes_nothing_that_is_protected() {
    let scene = Scene::new();
    scene.put("d/open", "o");
    scene.put("d/secret/key", "s");
    scene.put("d/a.pem", "s");
    scene.put("plain/hooks/pre-commit", "#!/bin/sh\n");
    let restrictions = Restrictions {
        denied_reads: vec![scene.ws.join("d/secret")],
        denied_read_patterns: vec![scene.ws.join("**/*.pem")],
        ..Restrictions::default()
    };
    let protected = ProtectedNames::below([scene.ws.clone()]).with_default_names(None);
    let options = FenceOptions { restrictions, protected, ..scene.options(Resolver::detect()) };
    let fence = Fence::open(&scene.policy(SandboxMode::WorkspaceWrite), options).unwrap();
    let copied = copy(&fence, "d", "e", Replace::Never).unwrap();
    let mut left_out = copied.left_out;
    left_out.sort();
    assert_eq!((copied.files, left_out), (1, vec![PathBuf::from("a.pem"), PathBuf::from("secret")]));
    assert!(!scene.ws.join("e/secret").exists() && !scene.ws.join("e/a.pem").exists());
    assert_eq!(code(copy(&fence, "plain", ".git", Replace::Never)), Code::SandboxDenied);
    assert!(!scene.ws.join(".git").exists(), "nothing of it was made");
    // Control.
    assert_eq!(copy(&scene.fence(), "d", "all", Replace::Never).unwrap().files, 3);
    assert!(copy(&scene.fence(), "plain", ".git", Replace::Never).is_ok());
    scene.check();
}

/// A file that says it is large, and is not, takes no room; a copy has the holes of its source.
#[test]
fn holes_stay_holes() {
    let scene = Scene::new();
    let file = std::fs::File::create(scene.ws.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"middle", 8 << 30).unwrap();
    file.set_len(16 << 30).unwrap();
    let fence = scene.fence();
    let copied = fence.copy(Path::new("sparse"), Path::new("copy"), Replace::Never).unwrap();
    assert_eq!(copied.bytes, 16 << 30);
    let found = std::fs::metadata(scene.ws.join("copy")).unwrap();
    assert!(found.len() == 16 << 30 && found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
    assert_eq!(fence.read_range(Path::new("copy"), 8 << 30, 6).unwrap(), b"middle");
    // What does not know its size is read to its end.
    assert!(fence.copy(Path::new("/proc/cpuinfo"), Path::new("cpu"), Replace::Never).unwrap().bytes > 0);
    scene.check();
}

/// A file that may not be written is not replaced by a copy either.
#[test]
fn a_copy_does_not_replace_what_may_not_be_written() {
    let scene = Scene::new();
    scene.put("f", "new");
    let path = scene.put("g", "old");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    let result = scene.fence().copy(Path::new("f"), Path::new("g"), Replace::Files);
    // Root may write everything.
    if rustix::process::geteuid().is_root() {
        assert!(result.is_ok());
    } else {
        assert_eq!((code(result), scene.text("g").as_str()), (Code::PermissionDenied, "old"));
    }
    scene.check();
}

#[test]
fn permission_bits_and_times_change_in_place_and_only_inside() {
    let scene = Scene::new();
    let file = scene.put("d/f", "x");
    scene.link("link", "d/f");
    scene.link("out", scene.out.join("f"));
    std::fs::set_permissions(scene.out.join("f"), PermissionsExt::from_mode(0o644)).unwrap();
    let outside = std::fs::metadata(scene.out.join("f")).unwrap();
    for fence in scene.fences(SandboxMode::WorkspaceWrite) {
        let set = |path: &str, permissions| fence.set_permissions(Path::new(path), permissions);
        let inode = std::fs::metadata(&file).unwrap().ino();
        assert_eq!(set("d/f", Permissions::Exactly(0o640)).unwrap().mode, 0o640);
        assert_eq!(set("link", Permissions::Executable).unwrap().mode, 0o750);
        assert_eq!(set("d/f", Permissions::NotExecutable).unwrap().mode, 0o640);
        assert_eq!(std::fs::metadata(&file).unwrap().ino(), inode);
        std::fs::set_permissions(scene.ws.join("d"), PermissionsExt::from_mode(0o1755)).unwrap();
        assert_eq!(set("d", Permissions::Exactly(0o700)).unwrap().mode, 0o1700);
        assert_eq!(code(set("d/f", Permissions::Exactly(0o4755))), Code::IoError);
        assert_eq!(code(set("none", Permissions::Executable)), Code::NotFound);
        assert_eq!(code(set("out", Permissions::Executable)), Code::SandboxDenied);
        assert_eq!(code(fence.touch(Path::new("out"))), Code::SandboxDenied);
        // W10: another name may lie outside, and a change in place would reach it.
        std::fs::hard_link(scene.out.join("f"), scene.ws.join("alias")).unwrap();
        assert_eq!(code(set("alias", Permissions::Executable)), Code::SandboxDenied);
        assert_eq!(code(fence.touch(Path::new("alias"))), Code::SandboxDenied);
        std::fs::remove_file(scene.ws.join("alias")).unwrap();
        std::fs::File::open(&file).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(fence.touch(Path::new("d/f")).unwrap().1, Change::Update);
        assert!(std::fs::metadata(&file).unwrap().mtime() > 1_000_000_000);
        assert_eq!(fence.touch(Path::new("new/f")).unwrap().1, Change::Create);
        assert_eq!(scene.text("new/f"), "");
        fence.remove(Path::new("new"), true).unwrap();
    }
    let now = std::fs::metadata(scene.out.join("f")).unwrap();
    assert_eq!((now.mode(), now.mtime_nsec()), (outside.mode(), outside.mtime_nsec()));
    let narrow = scene.fence_by(SandboxMode::ReadOnly, Resolver::detect());
    assert_eq!(code(narrow.set_permissions(Path::new("d/f"), Permissions::Executable)), Code::SandboxDenied);
    assert_eq!(code(narrow.touch(Path::new("d/f"))), Code::SandboxDenied);
    // Control: unfenced, the same reaches outside.
    let wide = scene.fence().under(SandboxMode::DangerFullAccess).unwrap();
    assert_eq!(wide.set_permissions(Path::new("out"), Permissions::Exactly(0o600)).unwrap().mode, 0o600);
    scene.check();
}

/// U446: parts and wholes of any size pass through without being held; text is checked on the way.
#[test]
fn files_are_handed_on_piece_by_piece() {
    let scene = Scene::new();
    let text = "x\u{e4}\n".repeat(200_000);
    scene.put("large", &text);
    scene.put("wrong", [b"a".repeat(200_000), b"\xff".to_vec()].concat());
    let fence = scene.fence();
    let stream = |path: &str, part| {
        let mut bytes = Vec::new();
        let answer = fence.stream(Path::new(path), part, &mut |piece| {
            assert!(piece.len() <= 128 << 10);
            bytes.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
        answer.map(|(_, count)| (count, bytes))
    };
    assert_eq!(stream("large", (0, u64::MAX)).unwrap(), (text.len() as u64, text.clone().into_bytes()));
    assert_eq!(stream("large", (4, 3)).unwrap(), (3, "x\u{e4}".into()));
    assert_eq!(stream("large", (1 << 40, 3)).unwrap(), (0, Vec::new()));
    assert_eq!(code(stream(".", (0, 1))), Code::NotRegularFile);
    let mut pieces = Vec::new();
    fence
        .stream_text(Path::new("large"), &mut |piece| {
            pieces.push(piece.to_owned());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(pieces.len() > 5 && pieces.concat() == text);
    let mut count = 0;
    fence
        .stream_text(Path::new("large"), &mut |_| {
            count += 1;
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(count, 1);
    assert_eq!(code(fence.stream_text(Path::new("wrong"), &mut |_| ControlFlow::Continue(()))), Code::NotText);
}

/// W54: what is too large to be edited is refused with the bound, and untouched.
#[test]
fn a_file_beyond_the_bound_is_not_edited_and_the_bound_is_named() {
    let scene = Scene::new();
    scene.put("f", "0123456789abcdef!");
    let limits = Limits { whole: 16, ..Limits::default() };
    let options = FenceOptions { limits, ..scene.options(Resolver::detect()) };
    let fence = Fence::open(&scene.policy(SandboxMode::WorkspaceWrite), options).unwrap();
    let replacement = Replacement { old: "!", new: "?", all: false };
    let edit = |path: &str| fence.edit(Path::new(path), &replacement, &Intent::Any, &Abort::default());
    let error = edit("f").unwrap_err();
    assert_eq!(error.code(), Code::TooLarge);
    assert!(error.to_string().contains("larger than the limit of 16 bytes"), "{error}");
    assert_eq!(scene.text("f"), "0123456789abcdef!");
    scene.put("g", "0123456789abcde!");
    assert!(edit("g").is_ok());
    scene.check();
}

/// W47: flags of the file system stay (ext4, btrfs, tmpfs); where it has none there is none to lose.
#[test]
fn flags_of_the_file_system_stay() {
    let scene = Scene::new();
    let path = scene.put("f", "x");
    let flags = || String::from_utf8(Command::new("lsattr").arg(&path).output().unwrap().stdout).unwrap();
    let has = Command::new("chattr").arg("+d").arg(&path).output().is_ok_and(|it| it.status.success());
    let written = scene.fence().write(Path::new("f"), b"y", &Intent::Any, &Abort::default()).unwrap();
    assert_eq!(written.lost, []);
    if has {
        assert!(flags().split(' ').next().unwrap().contains('d'), "{}", flags());
    }
    scene.check();
}

/// One place was allowed, and a link leads elsewhere by now: nothing is changed, also where nothing else is fenced.
#[test]
fn what_was_allowed_for_one_place_changes_no_other() {
    let scene = Scene::new();
    scene.put("d/f", "old");
    for mode in [SandboxMode::WorkspaceWrite, SandboxMode::DangerFullAccess] {
        let options = FenceOptions { only: Some(scene.ws.join("d/f")), ..scene.options(Resolver::detect()) };
        let fence = Fence::open(&scene.policy(mode), options).unwrap();
        let write = |path: &Path| fence.write(path, b"new", &Intent::Any, &Abort::default());
        assert!(write(Path::new("d/f")).is_ok());
        std::fs::rename(scene.ws.join("d"), scene.ws.join("moved")).unwrap();
        scene.link("d", &scene.out);
        let error = write(Path::new("d/f")).unwrap_err();
        assert_eq!(error.code(), Code::SandboxDenied);
        assert!(error.to_string().contains("was allowed") || error.denial().is_some(), "{error}");
        assert_eq!(code(write(Path::new("other"))), Code::SandboxDenied);
        std::fs::remove_file(scene.ws.join("d")).unwrap();
        std::fs::rename(scene.ws.join("moved"), scene.ws.join("d")).unwrap();
    }
    scene.check();
    // Control.
    let wide = scene.fence().under(SandboxMode::DangerFullAccess).unwrap();
    assert!(wide.write(&scene.out.join("f"), b"outside", &Intent::Any, &Abort::default()).is_ok());
}

/// With synchronisation, every verb does its work too.
#[test]
fn everything_works_synchronised() {
    let scene = Scene::new();
    let options = FenceOptions { durability: Durability::Synced, ..scene.options(Resolver::detect()) };
    let fence = Fence::open(&scene.policy(SandboxMode::WorkspaceWrite), options).unwrap();
    scene.put("d/f", "x");
    assert!(copy(&fence, "d", "e", Replace::Never).is_ok());
    assert!(fence.copy(Path::new("d/f"), Path::new("g"), Replace::Never).is_ok());
    assert!(fence.rename(Path::new("e"), Path::new("h"), Replace::Never).is_ok());
    assert!(fence.remove(Path::new("h"), true).is_ok());
    scene.check();
}
