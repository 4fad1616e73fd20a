//! Rules beyond the roots: patterns of denied reads, what stays readable in them, and protected names. They are those
//! of commands; here it is shown that every verb asks them.

mod scene;

use pinfold_fence::edit::Replacement;
use pinfold_fence::{Abort, Fence, FenceOptions, FsError, Intent, Permissions, Replace, Resolver};
use pinfold_policy::protect::ProtectedNames;
use pinfold_policy::{FileErrorCode as Code, Restrictions, SandboxMode};
use scene::Scene;
use std::path::{Path, PathBuf};

const BOTH: [Resolver; 2] = [Resolver::Openat2, Resolver::Walk];

fn write(fence: &Fence, path: impl AsRef<Path>) -> Result<(), FsError> {
    fence.write(path.as_ref(), b"new", &Intent::Any, &Abort::default()).map(drop)
}

fn rename(fence: &Fence, from: &str, to: &str) -> Result<(), FsError> {
    fence.rename(Path::new(from), Path::new(to), Replace::Files).map(drop)
}

fn denied<T: std::fmt::Debug>(what: &str, result: Result<T, FsError>) {
    let error = result.expect_err(what);
    assert_eq!(error.code(), Code::SandboxDenied, "{what}: {error}");
}

fn closing(scene: &Scene, restrictions: Restrictions, resolver: Resolver) -> Fence {
    let options = FenceOptions { restrictions, ..scene.options(resolver) };
    Fence::open(&scene.policy(SandboxMode::WorkspaceWrite), options).unwrap()
}

/// Patterns close whatever matches, also what comes later, through links in their literal beginning as well.
#[test]
fn patterns_close_what_matches_now_and_later() {
    let scene = Scene::new();
    scene.put("a/.env", "s");
    scene.put("a/x", "x");
    std::os::unix::fs::symlink(&scene.ws, scene.base.join("in")).unwrap();
    for resolver in BOTH {
        let denied_read_patterns: Vec<PathBuf> = vec![scene.base.join("in/**/.env"), scene.ws.join("*.pem")];
        let fence = closing(&scene, Restrictions { denied_read_patterns, ..Restrictions::default() }, resolver);
        denied("read", fence.read_text(Path::new("a/.env")));
        denied("write", write(&fence, "a/.env"));
        denied("create", write(&fence, "new/.env"));
        denied("create", write(&fence, "k.pem"));
        denied("move onto", rename(&fence, "a/x", "k.pem"));
        denied("read", fence.read_text(&scene.base.join("in/a/.env")));
        assert!(fence.read_text(Path::new("a/x")).is_ok());
        assert!(write(&fence, "a/k.pem").is_ok(), "a relative name is not any depth");
    }
    scene.check();
}

/// What a pattern closes stays where it is with the directory that holds it: elsewhere it would be open.
#[test]
fn what_matches_a_pattern_is_not_moved_or_removed_with_its_directory() {
    let scene = Scene::new();
    scene.put("keys/a.pem", "s");
    scene.put("way/to/.env", "s");
    scene.put("way/other", "o");
    for resolver in BOTH {
        let denied_read_patterns = vec![scene.ws.join("keys/*.pem"), scene.ws.join("way/**/.env")];
        let fence = closing(&scene, Restrictions { denied_read_patterns, ..Restrictions::default() }, resolver);
        for directory in ["keys", "way", "way/to"] {
            denied(directory, rename(&fence, directory, "elsewhere"));
            denied(directory, fence.remove(Path::new(directory), true));
        }
        assert!(rename(&fence, "way/other", "other").is_ok() && rename(&fence, "other", "way/other").is_ok());
    }
    // Control.
    assert!(rename(&scene.fence(), "keys", "elsewhere").is_ok() && rename(&scene.fence(), "way", "gone").is_ok());
    scene.check();
}

/// What stays readable in a denied directory outside of the roots does; the rest of it does not, and its name leads on.
#[test]
fn an_allowed_read_opens_itself_and_the_way_to_it() {
    let scene = Scene::new();
    let home = scene.base.join("home/.ssh");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("known_hosts"), "h").unwrap();
    std::fs::write(home.join("id"), "secret").unwrap();
    for resolver in BOTH {
        let restrictions = Restrictions {
            denied_reads: vec![home.clone()],
            allowed_reads: vec![home.join("known_hosts")],
            ..Restrictions::default()
        };
        let fence = closing(&scene, restrictions, resolver);
        assert_eq!(fence.read_text(&home.join("known_hosts")).unwrap().0, "h");
        denied("read", fence.read_text(&home.join("id")));
        denied("write", write(&fence, home.join("known_hosts")));
        let seen = fence.list(&home).unwrap().entries.iter().filter(|it| it.look.is_some()).count();
        assert_eq!(seen, 1);
    }
}

/// Names that programs outside obey are created, changed, moved and removed by no verb and no route.
#[test]
fn protected_names_hold_for_every_verb() {
    let scene = Scene::new();
    scene.put("repo/.git/config", "[core]\n");
    scene.put("repo/.git/objects/x", "x");
    scene.put("repo/src/main.rs", "fn main() {}\n");
    scene.put("plain/hooks/pre-commit", "#!/bin/sh\n");
    scene.put(".vscode/tasks.json", "{}");
    scene.put("f", "x");
    for resolver in BOTH {
        let protected = ProtectedNames::below([scene.ws.clone()]).with_default_names(None);
        let options = FenceOptions { protected, ..scene.options(resolver) };
        let fence = Fence::open(&scene.policy(SandboxMode::WorkspaceWrite), options).unwrap();
        let edit = |path: &str| {
            let replacement = Replacement { old: "core", new: "x", all: false };
            fence.edit(Path::new(path), &replacement, &Intent::Any, &Abort::default())
        };
        denied("config", write(&fence, "repo/.git/config"));
        denied("edit", edit("repo/.git/config"));
        denied("hook", write(&fence, "repo/.git/hooks/pre-commit"));
        denied("tasks", write(&fence, ".vscode/tasks.json"));
        denied("new settings", write(&fence, ".claude/settings.json"));
        denied("shell", write(&fence, ".envrc"));
        denied("bits", fence.set_permissions(Path::new("repo/.git/config"), Permissions::Executable));
        denied("times", fence.touch(Path::new(".vscode/tasks.json")));
        denied("empty", fence.touch(Path::new(".envrc")));
        denied("tree", fence.copy_tree(Path::new("plain"), Path::new("repo/.git"), Replace::Files));
        denied("remove", fence.remove(Path::new(".vscode"), true));
        denied("remove above", fence.remove(Path::new("repo"), true));
        denied("move away", rename(&fence, "repo/.git", "away"));
        denied("move above", rename(&fence, "repo", "away"));
        denied("move onto", rename(&fence, "plain/hooks", "repo/.git/hooks"));
        denied("make", fence.create_directory(Path::new(".idea/x"), true));
        denied("copy", fence.copy(Path::new("f"), Path::new(".bashrc"), Replace::Files));
        // Ordinary work goes on.
        assert!(write(&fence, "repo/src/main.rs").is_ok());
        assert!(rename(&fence, "plain", "other").is_ok() && rename(&fence, "other", "plain").is_ok());
        assert_eq!(fence.read_text(Path::new("repo/.git/config")).unwrap().0, "[core]\n");
    }
    // Control: without the rule each is possible.
    let fence = scene.fence();
    assert!(write(&fence, "repo/.git/hooks/pre-commit").is_ok() && rename(&fence, "repo", "away").is_ok());
    assert!(fence.remove(Path::new(".vscode"), true).is_ok());
    scene.check();
}
