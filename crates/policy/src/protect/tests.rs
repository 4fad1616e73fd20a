use super::*;
use ProtectionRule::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const NOTHING: fn(&Path) -> bool = |_| false;

fn names() -> ProtectedNames {
    ProtectedNames::below(["/w".into(), "/home/u/x".into()]).with_default_names(Some(Path::new("/home/u")))
}

fn rule(path: &str) -> Option<ProtectionRule> {
    names().rule_on(Path::new(path), Effect::Create, &NOTHING)
}

#[track_caller]
fn on(files: &[&str], path: &str, effect: Effect) -> Option<ProtectionRule> {
    let files: BTreeSet<PathBuf> =
        files.iter().flat_map(|file| Path::new(file).ancestors().map(Path::to_owned)).collect();
    names().rule_on(Path::new(path), effect, &|path: &Path| files.contains(path))
}

#[test]
fn git_itself_its_hooks_and_its_configuration_are_protected_at_any_depth() {
    for path in ["/w/.git", "/w/a/b/.git", "/w/.GIT", "/w/.git/x/.git", "/home/u/x/.git"] {
        assert_eq!(rule(path), Some(GitName), "{path}");
    }
    for path in [
        "/w/.git/hooks",
        "/w/.git/hooks/pre-commit",
        "/w/a/.git/config",
        "/w/.git/Config",
        "/w/.git/config.worktree",
        "/w/.git/commondir",
        "/w/.git/info/attributes",
        "/w/.git/worktrees/x/gitdir",
        "/w/.git/worktrees/x/commondir",
        "/w/.git/worktrees/x/config.worktree",
        "/w/.git/modules/sub/config",
        "/w/.git/modules/a/b/hooks/post-checkout",
        "/w/.git/modules/a/modules/b/hooks",
    ] {
        assert_eq!(rule(path), Some(GitControl), "{path}");
    }
}

#[test]
fn what_commits_and_rebases_write_is_open() {
    for path in [
        "/w/.git/index",
        "/w/.git/index.lock",
        "/w/.git/HEAD",
        "/w/.git/objects/ab/cdef",
        "/w/.git/refs/heads/config",
        "/w/.git/refs/heads/hooks/x",
        "/w/.git/logs/refs/heads/config",
        "/w/.git/info",
        "/w/.git/info/exclude",
        "/w/.git/config.lock",
        "/w/.git/rebase-merge/git-rebase-todo",
        "/w/.git/worktrees/x/index",
        "/w/.git/worktrees/x/HEAD",
        "/w/.git/modules/sub/refs/heads/config",
        "/w/.git/modules/sub/index",
        "/w/.gitignore",
        "/w/.gitattributes",
        "/w/.github/workflows/ci.yml",
        "/w/config",
        "/w/hooks/x",
        "/w/objects",
    ] {
        assert_eq!(rule(path), None, "{path}");
    }
}

#[test]
fn a_repository_without_the_name_is_one_by_what_it_holds() {
    let bare = ["/w/b/objects", "/w/b/refs", "/w/b/HEAD"];
    for path in ["/w/b/config", "/w/b/hooks/update", "/w/b/info/attributes", "/w/b/worktrees/x/gitdir"] {
        assert_eq!(on(&bare, path, Effect::Alter), Some(GitControl), "{path}");
    }
    for path in ["/w/b/HEAD", "/w/b/refs/heads/config", "/w/b/description", "/w/c/config"] {
        assert_eq!(on(&bare, path, Effect::Create), None, "{path}");
    }
}

#[test]
fn the_last_piece_of_a_repository_with_hooks_or_configuration_is_refused() {
    assert_eq!(on(&["/w/b/objects", "/w/b/config"], "/w/b/refs", Effect::Create), Some(GitRepository));
    assert_eq!(on(&["/w/b/refs", "/w/b/hooks/x"], "/w/b/objects", Effect::CreateLink), Some(GitRepository));
    assert_eq!(on(&["/w/b/refs", "/w/b/info/attributes"], "/w/b/objects", Effect::Create), Some(GitRepository));
    assert_eq!(on(&["/w/b/HEAD", "/w/b/config.worktree"], "/w/b/commondir", Effect::Create), Some(GitRepository));
    // Also in the data of another, where nobody looks; but not what holds the hooks of the other itself.
    assert_eq!(
        on(&["/w/.git/lfs/x/objects", "/w/.git/lfs/x/config"], "/w/.git/lfs/x/refs", Effect::Create),
        Some(GitRepository)
    );
    assert_eq!(
        on(&["/w/.git/lfs/objects", "/w/.git/lfs/refs"], "/w/.git/lfs/config", Effect::Create),
        Some(GitControl)
    );
    assert_eq!(on(&["/w/.git/objects", "/w/.git/config"], "/w/.git/refs", Effect::Create), None);
    // Without anything to obey it is harmless, and then nothing to obey can be added.
    assert_eq!(on(&["/w/b/objects"], "/w/b/refs", Effect::Create), None);
    assert_eq!(on(&["/w/b/objects", "/w/b/refs"], "/w/b/config", Effect::Create), Some(GitControl));
    assert_eq!(on(&["/w/src/config"], "/w/src/refs", Effect::Create), None);
}

#[test]
fn settings_of_tools_are_protected_where_a_tool_looks_for_them() {
    assert_eq!(rule("/w/.vscode/tasks.json"), Some(EditorSettings));
    assert_eq!(rule("/w/.claude"), Some(AgentSettings));
    assert_eq!(rule("/w/.envrc"), Some(ShellStart));
    assert_eq!(rule("/w/pinfold.toml"), Some(OwnSettings));
    assert_eq!(rule("/w/.pinfold/x"), Some(OwnSettings));
    // In a package among others, nobody does.
    assert_eq!(rule("/w/node_modules/p/.vscode/settings.json"), None);
    assert_eq!(on(&["/w/nested/.git"], "/w/nested/.vscode/settings.json", Effect::Create), Some(EditorSettings));
    for path in ["/w/AGENTS.md", "/w/CLAUDE.md", "/w/.npmrc", "/w/.env", "/w/pinfold"] {
        assert_eq!(rule(path), None, "{path}");
    }
}

#[test]
fn the_home_directory_is_protected_as_far_as_it_is_writable() {
    let names = ProtectedNames::below(["/home/u".into()]).with_default_names(Some(Path::new("/home/u")));
    let on = |path: &str, effect| names.rule_on(Path::new(path), effect, &NOTHING);
    assert_eq!(on("/home/u/.config/git/config", Effect::Create), Some(HomeSettings));
    assert_eq!(on("/home/u/.ssh", Effect::Create), Some(HomeSettings));
    assert_eq!(on("/home/u/.bashrc", Effect::Alter), Some(ShellStart));
    assert_eq!(on("/home/u/.config", Effect::Create), None);
    assert_eq!(on("/home/u/.config", Effect::CreateLink), Some(HomeSettings));
    assert_eq!(rule("/home/u/.ssh"), None, "outside the roots other walls stand");
}

#[test]
fn patterns_hold_present_or_absent_and_against_links_above_them() {
    let root = Path::new("/w");
    let pattern = |text: &str| PathPattern::parse(OsStr::new(text), root, None).unwrap();
    let names = ProtectedNames::below([root.into()])
        .with_pattern(pattern("ci/deploy.sh"))
        .with_pattern(pattern("src/*/keep"))
        .with_pattern(pattern("**/*.lock"));
    let on = |path: &str, effect| names.rule_on(Path::new(path), effect, &NOTHING);
    for path in ["/w/ci/deploy.sh", "/w/ci/deploy.sh/x", "/w/src/a/keep", "/w/a/b/c.lock"] {
        assert_eq!(on(path, Effect::Create), Some(Pattern), "{path}");
    }
    for path in ["/w/ci", "/w/src/a", "/w/src"] {
        assert_eq!(on(path, Effect::Create), None, "{path}");
        assert_eq!(on(path, Effect::CreateLink), Some(Pattern), "{path}");
    }
    assert_eq!(on("/w/other", Effect::CreateLink), None);
    assert_eq!(on("/w/.git", Effect::Create), None, "default names were not asked for");
}

#[test]
fn patterns_are_absolute_and_never_the_whole_tree() {
    let of = |text: &str| Protect { default_names: false, patterns: vec![text.into()] }.read_patterns();
    assert!(of("/w/*.x").is_ok() && of("/abs/y").is_ok());
    for text in ["/**", "/", "", "a", "/a/../b", "/[", "~/z"] {
        assert!(of(text).is_err(), "{text}");
    }
    let json: Protect = serde_json::from_str(r#"{"defaultNames":true,"patterns":["/w/x"]}"#).unwrap();
    assert!(json.default_names && json.patterns.len() == 1 && Protect::default().is_empty());
    assert!(serde_json::from_str::<Protect>(r#"{"names":[]}"#).is_err());
}

#[test]
fn a_moved_directory_is_looked_at_where_it_will_be() {
    let files: BTreeSet<PathBuf> = ["/t/r/objects", "/t/r/refs", "/t/r/config"].map(PathBuf::from).into();
    let now = |path: &Path| files.contains(path);
    let moved = Moved { now: &now, from: Path::new("/t/r"), to: Path::new("/w/z") };
    assert!(moved.exists(Path::new("/w/z/refs")) && moved.exists(Path::new("/w/z")));
    assert!(!moved.exists(Path::new("/t/r/refs")));
    assert_eq!(names().rule_on(Path::new("/w/z/config"), Effect::Create, &moved), Some(GitControl));
    assert_eq!(names().rule_on(Path::new("/w/z/config"), Effect::Create, &now), None);
}

proptest! {
    /// Whatever is protected stays protected with more names behind it, whoever asks in whichever case.
    #[test]
    fn what_lies_below_a_protected_path_is_protected(
        parts in prop::collection::vec(
            prop::sample::select(vec![".git", "hooks", "config", "a", ".vscode", "modules", "info", "attributes", "refs"]),
            1..6,
        ),
        more in "[a-z]{1,4}",
        upper in any::<bool>(),
    ) {
        let path = format!("/w/{}", parts.join("/"));
        if let Some(found) = rule(&path) {
            // Below `.git` only some names are protected.
            let below = rule(&format!("{path}/{more}"));
            prop_assert!(below.is_some() || (found == GitName && path.ends_with("/.git")), "{path}/{more}");
            let spelled = if upper { path.replace("/w/", "/W/").to_uppercase().replacen("/W/", "/w/", 1) } else { path };
            prop_assert_eq!(rule(&spelled), Some(found));
        }
    }
}
