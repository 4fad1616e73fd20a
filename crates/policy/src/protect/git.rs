//! What git executes or obeys, as gitrepository-layout(5) lays it out.
//!
//! Everything else in a repository stays writable: objects, refs, index, logs, the states of a merge or rebase. So commits,
//! branches and rebases work, while `git config`, `git init`, `git clone` and `git worktree add` (into a root) do not: each
//! would write what a later git outside obeys.
//!
//! A directory is a repository by what it holds, not only by the name `.git`: git takes the current directory for one if
//! it has `objects`, `refs` and `HEAD`. A command could put one together piece by piece, so the piece that would complete it
//! is refused if hooks or configuration are there already.

use super::ProtectionRule::{self, GitControl, GitName, GitRepository};
use super::{Effect, Surroundings};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub(crate) fn is(name: &OsStr, word: &str) -> bool {
    name.as_encoded_bytes().eq_ignore_ascii_case(word.as_bytes())
}

pub(crate) fn is_any(name: &OsStr, words: &[&str]) -> bool {
    words.iter().any(|word| is(name, word))
}

/// Names directly in a repository by which it can have programs run or other directories obeyed.
/// `remotes` and `branches` are remotes as git laid them out long ago, and still reads them.
const CONTROL: [&str; 7] = ["hooks", "config", "config.worktree", "commondir", "gitdir", "remotes", "branches"];

/// Directories in a repository above names of control.
const WAYS: [&str; 3] = ["info", "worktrees", "modules"];

/// Directories in a repository of which git obeys nothing, and in which branches may have any name.
pub(crate) const DATA: [&str; 5] = ["objects", "refs", "logs", "lfs", "annex"];

/// Returns the rule on a path, given as its names. `above(n)` is the directory of the first `n` of them.
pub(super) fn rule_on(
    names: &[&OsStr],
    above: &dyn Fn(usize) -> PathBuf,
    effect: Effect,
    around: &dyn Surroundings,
) -> Option<ProtectionRule> {
    let mut named = names.iter().enumerate().filter(|(_, name)| is(name, ".git")).map(|(index, _)| index);
    let deepest = named.clone().next_back();
    let rule = named.find_map(|index| {
        let inner = |count: usize| above(index + 1 + count);
        let rest = &names[index + 1..];
        inside(rest, &inner, around).or_else(|| (effect == Effect::CreateLink).then(|| link_inside(rest))?)
    });
    if rule.is_some() {
        return rule;
    }
    // Where no name says so, a directory is a repository by what it holds; also one in the data of another.
    let first = deepest.map_or(0, |index| index + 2);
    for index in first..names.len() {
        // A link above a name of control gives that name to whatever lies behind the link.
        let leads = effect == Effect::CreateLink && is_any(names[index], &WAYS);
        if (leads || is_control(&names[index..])) && is_repository(&above(index), around) {
            return Some(GitControl);
        }
    }
    let last = names.last()?;
    if effect != Effect::Alter && names.len() > first && is_any(last, &["objects", "refs", "HEAD", "commondir"]) {
        return completes(last, &above(names.len() - 1), around).then_some(GitRepository);
    }
    None
}

/// The rule on a path inside a directory named `.git`. `above(n)` is the directory of the first `n` names.
fn inside(rest: &[&OsStr], above: &dyn Fn(usize) -> PathBuf, around: &dyn Surroundings) -> Option<ProtectionRule> {
    let Some(first) = rest.first() else { return Some(GitName) };
    if is_control(rest) {
        return Some(GitControl);
    }
    if is(first, "worktrees") && rest.len() > 2 {
        // worktrees/NAME/…; there are also the submodules of that worktree.
        let inner = |count: usize| above(2 + count);
        return inside(&rest[2..], &inner, around);
    }
    if is(first, "modules") {
        // modules/NAME/…, where NAME may have slashes, and submodules submodules of their own.
        for index in 2..rest.len() {
            if is_control(&rest[index..]) {
                return Some(GitControl);
            }
            // A name may look like a directory of data. What has a configuration, which no command can have made there, is
            // a repository, and this its data.
            if is_any(rest[index], &DATA) && around.exists(&above(index).join("config")) {
                return None;
            }
        }
    }
    None
}

/// The rule on a new symbolic link inside a directory named `.git`: what it leads to would lie there as well, and most
/// directories are above a place of control, or may come to be. Git makes none but in its data.
fn link_inside(rest: &[&OsStr]) -> Option<ProtectionRule> {
    let in_data = rest.len() > 1 && is_any(rest[0], &DATA);
    (!in_data).then_some(GitControl)
}

/// Whether the first names of a path inside a repository lead to what git obeys.
pub(crate) fn is_control(rest: &[&OsStr]) -> bool {
    match rest {
        [first, second, ..] if is(first, "info") => is(second, "attributes"),
        [first, ..] => is_any(first, &CONTROL),
        [] => false,
    }
}

/// Whether a directory that has these entries is a repository, or one's administrative directory.
pub(crate) fn holds_repository(has: &dyn Fn(&str) -> bool) -> bool {
    (has("objects") && has("refs")) || (has("commondir") && has("HEAD"))
}

/// Whether a directory is a repository by what it holds, or the administrative directory of one's worktree.
fn is_repository(directory: &Path, around: &dyn Surroundings) -> bool {
    let has = |name: &str| around.exists(&directory.join(name));
    if holds_repository(&has) {
        return true;
    }
    let parent = directory.parent().filter(|parent| parent.file_name().is_some_and(|name| is(name, "worktrees")));
    parent.and_then(Path::parent).is_some_and(|main| {
        let has = |name: &str| around.exists(&main.join(name));
        has("objects") && has("refs")
    })
}

/// Whether a new name makes a directory a repository in which something to obey waits already.
fn completes(name: &OsStr, directory: &Path, around: &dyn Surroundings) -> bool {
    let has = |name: &str| around.exists(&directory.join(name));
    // Another directory's configuration is obeyed, whatever is there.
    if (is(name, "commondir") && has("HEAD")) || (is(name, "HEAD") && has("commondir")) {
        return true;
    }
    let other = [("objects", "refs"), ("refs", "objects")];
    let completed = other.iter().any(|(new, other)| is(name, new) && has(other));
    completed && CONTROL.iter().chain(&WAYS).any(|waits| has(waits))
}
