//! What is protected inside the writable roots of one call, as it is found on this host.
//!
//! The names themselves are the policy's (`pinfold_policy::protect`). Found here is what they lead to at the start of a call:
//! links in place of protected names, and the directories of hooks and files of configuration that a repository of the
//! roots, or the user's own configuration of git, names.

use crate::closed::physical;
use crate::launcher::push;
use crate::roots::PinnedRoot;
use pinfold_policy::quote::quote;
use pinfold_policy::{Effect, PathPattern, Protect, ProtectedNames, ProtectionRule, SandboxError};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Files that include each other are followed this often; git follows them ten times.
const MOST_INCLUDES: u32 = 10;
/// How many entries of a root are looked through for repositories inside.
const MOST_ENTRIES: usize = 4000;
/// A longer configuration is not read to its end.
const MOST_CONFIGURATION: u64 = 1 << 20;

/// Everything that is protected in one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Protected {
    pub(crate) default_names: bool,
    pub(crate) home: Option<PathBuf>,
    /// Absolute patterns, of physical paths.
    pub(crate) patterns: Vec<PathBuf>,
    /// What was found at the start, physical.
    pub(crate) found: Vec<(PathBuf, ProtectionRule)>,
    /// Whether a root has more entries than were looked through.
    pub(crate) has_more: bool,
}

impl Protected {
    /// One path and nothing else.
    pub(crate) fn path(path: PathBuf) -> Self {
        Self { found: vec![(path, ProtectionRule::Pattern)], ..Self::default() }
    }

    /// The broker's words.
    pub(crate) fn push(&self, words: &mut Vec<OsString>) {
        if self.default_names {
            push(words, &["--protect-default"]);
        }
        if let Some(home) = &self.home {
            push(words, &["--home".as_ref(), home.as_os_str()]);
        }
        for pattern in &self.patterns {
            push(words, &["--protect".as_ref(), pattern.as_os_str()]);
        }
        for (path, rule) in &self.found {
            push(words, &["--protect-path".as_ref(), OsStr::new(rule.as_str()), path.as_os_str()]);
        }
    }

    /// Sentences for the report.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.default_names {
            let note = "Protected: .git and what git obeys in it, at any depth; settings of agents, editors and shells \
                        directly in a root, in the home directory and beside a .git.";
            notes.push(note.to_owned());
        }
        if !self.patterns.is_empty() {
            let all: Vec<String> = self.patterns.iter().take(20).map(quote).collect();
            notes.push(format!("Protected patterns: {}.", all.join(", ")));
        }
        if !self.found.is_empty() {
            let all: Vec<String> = self.found.iter().take(20).map(|(path, _)| quote(path)).collect();
            notes.push(format!("Protected because something leads there: {}.", all.join(", ")));
        }
        if self.has_more {
            let note = format!(
                "Repositories beyond the first {MOST_ENTRIES} entries of a root were not looked for: what their configurations \
                 name elsewhere is not protected."
            );
            notes.push(note);
        }
        let note = "Content can be changed through a hard link that was made before; a socket can be bound at a protected \
                    name that is free.";
        notes.push(note.to_owned());
        notes
    }

    /// The same as values, for questions that are answered without the broker.
    pub(crate) fn names(&self, roots: &[PinnedRoot]) -> ProtectedNames {
        let mut names = ProtectedNames::below(roots.iter().map(|root| root.path.clone()));
        if self.default_names {
            names = names.with_default_names(self.home.as_deref());
        }
        let read = |text: &PathBuf| PathPattern::parse(text.as_os_str(), Path::new("/"), None).ok();
        names = self.patterns.iter().filter_map(read).fold(names, ProtectedNames::with_pattern);
        self.found.iter().cloned().fold(names, |names, (path, rule)| names.with_path(path, rule))
    }
}

/// Finds what is protected below these roots.
pub(crate) fn find(asked: &Protect, roots: &[PinnedRoot]) -> Result<Protected, SandboxError> {
    let mut protected = Protected { default_names: asked.default_names, ..Protected::default() };
    for (pattern, text) in asked.read_patterns()?.iter().zip(&asked.patterns) {
        protected.patterns.push(text.clone());
        protected.patterns.extend(physically(pattern));
    }
    if asked.default_names {
        protected.home = std::env::home_dir().filter(|home| home.is_absolute()).map(|home| physical(&home));
        let names = protected.names(roots);
        for root in roots {
            links(&root.path, &names, &mut protected.found);
            // A root may lie inside a repository, whose configuration names what is in the root.
            root.path.ancestors().for_each(|top| git_targets(top, &mut protected.found));
            protected.has_more |= nested_targets(&root.path, &mut protected.found);
        }
        if let Some(home) = &protected.home {
            for file in [home.join(".gitconfig"), home.join(".config/git/config")] {
                for root in roots {
                    targets_in(&file, &root.path, MOST_INCLUDES, &mut protected.found);
                }
            }
        }
    }
    // Outside of the roots other walls stand, and what is protected by its name needs no second reason.
    let names = Protected { found: Vec::new(), ..protected.clone() }.names(roots);
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    protected.found.retain(|(path, _)| {
        let inside = roots.iter().any(|root| path.starts_with(&root.path) && *path != root.path);
        inside && names.rule_on(path, Effect::Create, &exists).is_none()
    });
    protected.found.sort();
    protected.found.dedup();
    Ok(protected)
}

/// A pattern whose beginning leads through links, with what they lead to.
fn physically(pattern: &PathPattern) -> Option<PathBuf> {
    let base = pattern.literal_prefix();
    let real = physical(base);
    if real == base {
        return None;
    }
    let whole = pattern.absolute();
    let rest: PathBuf = whole.components().skip(base.components().count()).collect();
    PathPattern::parse(rest.as_os_str(), &real, None).map_or(Some(real), |pattern| Some(pattern.absolute()))
}

/// Protected names directly in a root that are links: what they lead to is obeyed as well.
fn links(root: &Path, names: &ProtectedNames, found: &mut Vec<(PathBuf, ProtectionRule)>) {
    let exists = |path: &Path| path.symlink_metadata().is_ok();
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let inner = [".git/hooks", ".git/config", ".git/info/attributes"].map(|name| root.join(name));
    for path in entries.map(|entry| entry.path()).chain(inner) {
        let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        if is_link && let Some(rule) = names.rule_on(&path, Effect::Alter, &exists) {
            found.push((physical(&path), rule));
        }
    }
}

/// What the configuration of a repository at a root names.
fn git_targets(root: &Path, found: &mut Vec<(PathBuf, ProtectionRule)>) {
    let mut directory = root.join(".git");
    if directory.is_file()
        && let Some(text) = read(&directory)
        && let Some(target) = text.strip_prefix(b"gitdir: ")
    {
        directory = root.join(OsStr::from_bytes(target.trim_ascii_end()));
    }
    let mut common = directory.clone();
    if let Some(text) = read(&directory.join("commondir")) {
        common = directory.join(OsStr::from_bytes(text.trim_ascii_end()));
    }
    for control in ["hooks", "config", "info/attributes"] {
        found.push((physical(&common.join(control)), ProtectionRule::GitTarget));
    }
    for file in [common.join("config"), directory.join("config.worktree")] {
        targets_in(&file, root, MOST_INCLUDES, found);
    }
}

/// What the configurations of repositories below a root name; the nearest first. Returns whether there is more to look through.
fn nested_targets(root: &Path, found: &mut Vec<(PathBuf, ProtectionRule)>) -> bool {
    let mut left = MOST_ENTRIES;
    let mut pending = VecDeque::from([root.to_owned()]);
    while let Some(directory) = pending.pop_front() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Some(less) = left.checked_sub(1) else { return true };
            left = less;
            if entry.file_name() == ".git" {
                git_targets(&directory, found);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push_back(entry.path());
            }
        }
    }
    false
}

/// Paths that a file of git's configuration names: `core.hooksPath`, and files that it includes (git-config(1)).
fn targets_in(file: &Path, root: &Path, includes: u32, found: &mut Vec<(PathBuf, ProtectionRule)>) {
    let Some(text) = read(file) else { return };
    let mut section = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut line = line.trim_ascii();
        if line.first() == Some(&b'[') {
            let end = line.iter().position(|byte| *byte == b']').unwrap_or(line.len());
            let name =
                line.get(1..end).unwrap_or_default().split(|byte| byte.is_ascii_whitespace() || *byte == b'"').next();
            section = name.unwrap_or_default().to_ascii_lowercase();
            line = line.get(end + 1..).unwrap_or_default().trim_ascii();
        }
        let Some(equals) = line.iter().position(|byte| *byte == b'=') else { continue };
        let key = line[..equals].trim_ascii().to_ascii_lowercase();
        let base = match (section.as_slice(), key.as_slice()) {
            (b"core", b"hookspath" | b"attributesfile") => root,
            (b"include" | b"includeif", b"path") => file.parent().unwrap_or(root),
            _ => continue,
        };
        let value = line[equals + 1..].trim_ascii();
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        let path = match (value.strip_prefix(b"~/"), std::env::home_dir()) {
            (Some(below), Some(home)) => home.join(OsStr::from_bytes(below)),
            _ => base.join(OsStr::from_bytes(value)),
        };
        let target = (physical(&path), ProtectionRule::GitTarget);
        // Each file once, or files that include each other would be read over and over.
        if found.contains(&target) {
            continue;
        }
        found.push(target);
        if includes > 0 && key == b"path" {
            targets_in(&path, root, includes - 1, found);
        }
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let metadata = path.metadata().ok()?;
    if !metadata.is_file() || metadata.len() > MOST_CONFIGURATION {
        return None;
    }
    std::fs::read(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn what_a_repository_above_names_and_what_an_include_includes_is_found() {
        let base = tempfile::tempdir().unwrap();
        let top = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(top.join(".git")).unwrap();
        std::fs::create_dir_all(top.join("sub/more")).unwrap();
        std::fs::write(top.join(".git/config"), "[core]\nhooksPath = sub/hk\n[include]\npath = ../sub/one\n").unwrap();
        std::fs::write(top.join("sub/one"), "[include]\npath = more/two\n[include]\npath = one\n").unwrap();
        std::fs::write(top.join("sub/more/two"), "[core]\nattributesFile = sub/attributes\n").unwrap();
        let root = top.join("sub");
        let metadata = root.metadata().unwrap();
        let pinned = PinnedRoot { path: root.clone(), device: metadata.dev(), inode: metadata.ino() };
        let found = find(&Protect { default_names: true, patterns: Vec::new() }, &[pinned]).unwrap();
        let paths: Vec<_> = found.found.iter().map(|(path, _)| path.strip_prefix(&root).unwrap().to_owned()).collect();
        assert_eq!(paths, ["attributes", "hk", "more/two", "one"].map(PathBuf::from));
    }

    #[test]
    fn what_a_repository_names_is_found_and_only_inside_the_roots() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join(".git")).unwrap();
        std::fs::create_dir_all(root.join("settings")).unwrap();
        std::fs::create_dir_all(root.join("plain")).unwrap();
        std::os::unix::fs::symlink("settings", root.join(".vscode")).unwrap();
        std::os::unix::fs::symlink("plain", root.join("link")).unwrap();
        let config = "[Core]\n\tbare = false\n\thooksPath = \"my hooks\"\n[include] path = ../shared/gitconfig\n\
                      [includeIf \"gitdir:/x/\"]\n path=/elsewhere/x\n[alias]\n\tpath = no\n";
        std::fs::write(root.join(".git/config"), config).unwrap();
        let metadata = root.metadata().unwrap();
        let pinned = PinnedRoot { path: root.clone(), device: metadata.dev(), inode: metadata.ino() };
        let asked = Protect { default_names: true, patterns: vec![root.join("link/*.x")] };
        let found = find(&asked, std::slice::from_ref(&pinned)).unwrap();
        let paths: Vec<_> = found.found.iter().map(|(path, _)| path.strip_prefix(&root).unwrap().to_owned()).collect();
        for path in ["my hooks", "shared/gitconfig", "settings"] {
            assert!(paths.contains(&path.into()), "{path}: {paths:?}");
        }
        assert!(!paths.iter().any(|path| path.ends_with("no")
            || path.ends_with("hooks") && path.starts_with(".git")
            || path.starts_with("/elsewhere")));
        assert_eq!(found.patterns, [root.join("link/*.x"), root.join("plain/*.x")]);
        let names = found.names(&[pinned]);
        let rule = |path: &str| names.rule_on(&root.join(path), Effect::Create, &|_: &Path| false);
        assert_eq!(rule("my hooks/pre-commit"), Some(ProtectionRule::GitTarget));
        assert_eq!(rule("settings/tasks.json"), Some(ProtectionRule::EditorSettings));
        assert_eq!(rule("plain/a.x"), Some(ProtectionRule::Pattern));
        assert_eq!(rule("src/a.x"), None);
    }
}
