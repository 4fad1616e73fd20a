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

/// The name of a submodule may hold a directory of data's; only the configuration, which git outside made, tells.
#[test]
fn submodules_of_any_name_are_protected_also_those_of_a_worktree() {
    for path in [
        "/w/.git/modules/lib/lfs/config",
        "/w/.git/modules/vendor/logs/hooks/post-checkout",
        "/w/.git/modules/deps/refs/heads/config",
        "/w/.git/worktrees/x/modules/sub/config",
        "/w/.git/worktrees/x/modules/a/b/hooks/post-checkout",
    ] {
        assert_eq!(rule(path), Some(GitControl), "{path}");
        // What a command may make does not turn it into data.
        let pretended = ["/w/.git/modules/lib/HEAD", "/w/.git/modules/lib/objects", "/w/.git/modules/deps/HEAD"];
        assert_eq!(on(&pretended, path, Effect::Create), Some(GitControl), "{path}");
    }
    let made = ["/w/.git/modules/sub/config"];
    assert_eq!(on(&made, "/w/.git/modules/sub/refs/heads/config", Effect::Create), None);
    assert_eq!(on(&made, "/w/.git/modules/sub/logs/refs/heads/hooks/x", Effect::Create), None);
    for path in ["/w/.git/worktrees/x", "/w/.git/worktrees/x/modules/sub/index"] {
        assert_eq!(rule(path), None, "{path}");
    }
}

/// What lies behind a link has the names below the link as well.
#[test]
fn no_link_stands_above_a_name_that_git_obeys() {
    for path in [
        "/w/.git/info",
        "/w/.git/modules",
        "/w/.git/modules/sub",
        "/w/.git/worktrees",
        "/w/.git/worktrees/x/modules",
        "/w/.git/zz",
        "/w/.git/objects",
    ] {
        assert_eq!(rule(path), None, "{path}");
        assert_eq!(on(&[], path, Effect::CreateLink), Some(GitControl), "{path}");
    }
    assert_eq!(on(&[], "/w/.git/annex/x", Effect::CreateLink), None);
    assert_eq!(on(&[], "/w/src/info", Effect::CreateLink), None);
    let bare = ["/w/b/objects", "/w/b/refs"];
    for path in ["/w/b/info", "/w/b/worktrees", "/w/b/modules", "/w/b/modules/sub"] {
        assert_eq!(on(&bare, path, Effect::CreateLink), Some(GitControl), "{path}");
    }
    // A link that waits for the repository; behind it, something to obey can come later.
    assert_eq!(on(&["/w/b/objects", "/w/b/info"], "/w/b/refs", Effect::Create), Some(GitRepository));
}

#[test]
fn no_link_stands_in_place_of_a_root_or_above_one() {
    let names =
        ProtectedNames::below(["/w".into(), "/w/a/inner".into()]).with_default_names(Some(Path::new("/w/home")));
    let on = |path: &str| names.rule_on(Path::new(path), Effect::CreateLink, &NOTHING);
    for path in ["/w/a/inner", "/w/a", "/w/home"] {
        assert!(on(path).is_some() && names.leads_to_top(Path::new(path)), "{path}");
    }
    assert!(on("/w/b").is_none() && on("/w/a/inner/x").is_none() && !names.leads_to_top(Path::new("/w/a/inner/x")));
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
    // A pointer to another directory needs nothing beside it, and a repository may lie below `.git`.
    assert_eq!(on(&["/w/s/HEAD"], "/w/s/commondir", Effect::Create), Some(GitRepository));
    assert_eq!(on(&["/w/s/commondir"], "/w/s/HEAD", Effect::CreateLink), Some(GitRepository));
    assert_eq!(on(&[], "/w/s/commondir", Effect::Create), None);
    let below = ["/w/.git/zz/objects", "/w/.git/zz/refs"];
    assert_eq!(on(&below, "/w/.git/zz/config", Effect::Create), Some(GitControl));
    assert_eq!(
        on(&["/w/.git/zz/objects", "/w/.git/zz/config"], "/w/.git/zz/refs", Effect::Create),
        Some(GitRepository)
    );
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
fn a_link_stands_for_no_name_behind_any_directories() {
    let pattern = |text: &str| PathPattern::parse(OsStr::new(text), Path::new("/w"), None).unwrap();
    let link = |roots: &[&str], text: &str, path: &str| {
        let names = ProtectedNames::below(roots.iter().map(PathBuf::from)).with_pattern(pattern(text));
        names.rule_on(Path::new(path), Effect::CreateLink, &NOTHING).is_some()
    };
    let workflows = "**/.github/workflows/*.yml";
    for path in ["/w/.github", "/w/a/.github", "/w/a/.github/workflows"] {
        assert!(link(&["/w"], workflows, path), "{path}");
    }
    for path in ["/w/a", "/w/node_modules/.bin/x", "/w/workflows"] {
        assert!(!link(&["/w"], workflows, path), "{path}");
    }
    assert!(!link(&["/w"], "**/*.lock", "/w/a"));
    // Where the pattern does not reach everywhere, a link may lead to where it does not.
    assert!(link(&["/w"], "src/**/*.lock", "/w/src/a"));
    assert!(link(&["/w", "/v"], "**/*.lock", "/w/a"));
    assert!(link(&["/w"], "**/a/**/b", "/w/x"));
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
