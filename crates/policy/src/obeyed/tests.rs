use super::*;
use crate::protect::{Effect, ProtectedNames};
use std::path::PathBuf;

/// Walks along a path as a walk through directories does; what it ends on.
fn along(path: &str) -> Sight {
    let (mut ground, mut at) = (Ground::Open, PathBuf::new());
    let mut sight = Sight::Nothing;
    for name in path.split('/') {
        sight = ground.sight(&at, OsStr::new(name));
        at.push(name);
        ground = match sight {
            Sight::Nothing => return Sight::Nothing,
            Sight::Obeyed(row) => Ground::Below(row),
            Sight::Entrance(_, ground) | Sight::Way(ground) => ground,
            Sight::IfExecutable(_) => Ground::Open,
        };
    }
    sight
}

#[track_caller]
fn kind(path: &str) -> Option<ObeyedKind> {
    match along(path) {
        Sight::Obeyed(row) | Sight::Entrance(row, _) | Sight::IfExecutable(row) => Some(row.kind),
        Sight::Nothing | Sight::Way(_) => None,
    }
}

#[test]
fn what_tools_obey_is_known_by_its_kind() {
    use ObeyedKind::*;
    for (path, expected) in [
        (".git", Git),
        ("a/.git/hooks/pre-commit", Git),
        (".GIT/Config", Git),
        (".git/config.worktree", Git),
        (".git/info/attributes", Git),
        (".git/worktrees/x/gitdir", Git),
        (".git/worktrees/x/hooks/y", Git),
        (".git/modules/a/b/config", Git),
        (".git/modules/a/modules/b/hooks/x", Git),
        (".git/modules/a/worktrees/b/commondir", Git),
        (".git/rebase-merge/git-rebase-todo", Git),
        ("a/.gitattributes", Git),
        (".husky/pre-push", Git),
        ("a/.vscode/tasks.json", Editor),
        (".idea", Editor),
        ("x.code-workspace", Editor),
        (".vim/plugin/x.vim", Editor),
        (".envrc", Shell),
        (".env.local", Shell),
        (".bashrc", Shell),
        ("Makefile", Build),
        ("a/b/GNUmakefile", Build),
        ("rules.mk", Build),
        ("package.json", Build),
        ("build.rs", Build),
        ("Cargo.toml", Build),
        (".cargo/config.toml", Build),
        ("setup.py", Build),
        ("pyproject.toml", Build),
        ("tests/conftest.py", Build),
        ("CMakeLists.txt", Build),
        ("app/build.gradle.kts", Build),
        ("gradle/wrapper/gradle-wrapper.jar", Build),
        ("justfile", Build),
        ("vite.config.ts", Build),
        ("env/bin/activate", Environment),
        ("env/lib/python3/site-packages/x.pth", Environment),
        ("env/lib/python3/site-packages/sitecustomize.py", Environment),
        ("sitecustomize.py", Environment),
        ("env/bin/pip", Program),
        ("node_modules/.bin/tsc", Program),
        ("bin/run", Program),
        (".github/workflows/ci.yml", Ci),
        (".gitlab-ci.yml", Ci),
        (".ci/run", Ci),
        ("Jenkinsfile", Ci),
        (".claude/settings.json", Agent),
        (".codex", Agent),
        (".cursor/rules/x", Agent),
        (".gemini/settings.json", Agent),
        (".mcp.json", Agent),
        ("a/AGENTS.md", Agent),
        ("CLAUDE.md", Agent),
        ("pinfold.toml", Agent),
    ] {
        assert_eq!(kind(path), Some(expected), "{path}");
    }
}

#[test]
fn what_is_only_read_or_only_installed_is_not() {
    for path in [
        ".git/index",
        ".git/HEAD",
        ".git/objects/ab/config",
        ".git/refs/heads/config",
        ".git/logs/hooks",
        ".git/modules/a/objects/config",
        "src/main.rs",
        "activate",
        "config.toml",
        "workflows/ci.yml",
        "node_modules/a/package.json",
        "node_modules/a/bin/x",
        "env/lib/python3/site-packages/a/setup.py",
        "xmakefile",
        ".mk",
        "readme.md",
    ] {
        assert_eq!(kind(path), None, "{path}");
    }
}

#[test]
fn a_directory_is_a_repository_by_what_it_holds() {
    let with = |names: &[&str]| Ground::Open.with_entries(|name| names.contains(&name));
    assert_eq!(with(&["objects", "refs", "HEAD"]), Ground::Repository);
    assert_eq!(with(&["commondir", "HEAD"]), Ground::Repository);
    assert_eq!(with(&["objects"]), Ground::Open);
    assert_eq!(Ground::Modules.with_entries(|_| true), Ground::Modules);
}

/// Whatever is protected by default is reported, with a kind: the names come from one table, and git's from one place.
#[test]
fn everything_protected_is_obeyed() {
    let names = ProtectedNames::below([PathBuf::from("/w")]).with_default_names(Some(Path::new("/w")));
    let exists = |path: &Path| path == Path::new("/w/sub/.git");
    let mut paths: Vec<String> = PROJECT.iter().map(|row| row.name.replace('*', "x")).collect();
    paths.extend(PROJECT.iter().map(|row| format!("sub/{}/x", row.name.replace('*', "x"))));
    paths.extend(VERSION_CONTROL.iter().map(|row| format!("sub/deep/{}", row.name)));
    let git = [
        "remotes/x",
        "branches/x",
        "hooks",
        "hooks/x",
        "config",
        "config.worktree",
        "commondir",
        "gitdir",
        "info/attributes",
    ];
    for above in [".git", "a/.git", ".git/worktrees/x", ".git/modules/a/b"] {
        paths.extend(git.iter().map(|name| format!("{above}/{name}")));
    }
    for path in paths {
        assert!(
            names.rule_on(&Path::new("/w").join(&path), Effect::Alter, &exists).is_some(),
            "{path} is not protected"
        );
        assert!(kind(&path).is_some(), "{path} is not reported");
    }
    let home: Vec<_> = Obeyed::in_home().map(|(name, _)| name).collect();
    assert!(home.len() > 10 && home.iter().all(|name| name.is_relative()));
}

#[test]
fn rows_are_written_as_they_are_looked_up() {
    for row in PROJECT.iter().chain(HOME).chain(VERSION_CONTROL).chain(table::REPORTED) {
        assert!(!row.by.is_empty());
        let middle = row.name.trim_matches('*');
        assert!(!middle.contains('*') && !row.name.starts_with('/') && !row.name.ends_with('/'), "{}", row.name);
        if !HOME.contains(row) {
            assert_eq!(row.name, row.name.to_ascii_lowercase());
            assert!(!row.name.contains('*') || !row.name.contains('/'), "{}", row.name);
        }
    }
}
