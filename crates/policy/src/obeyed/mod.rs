//! Which files tools outside later execute or obey, by their names: the words and the table, and what a walk through a
//! directory has to look at.
//!
//! Pure: a walk tells what it meets, one name at a time, and is told what to do with it. What must not enter: a system call,
//! and deciding what may be changed (that is [`crate::protect`], which reads the same table).

mod table;

use crate::protect::{ProtectionRule, git};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

pub(crate) use table::{HOME, PROJECT, VERSION_CONTROL};

closed_words! {
    /// Names what kind of tool obeys a file. The order is that of reports.
    pub enum ObeyedKind("kind of obeyed file") {
        /// It runs with the rights of its owner or group, whoever starts it.
        SetId => "set-id",
        /// Git runs or reads it.
        Git => "git",
        /// A shell, or what sets up its environment.
        Shell => "shell",
        /// A coding agent.
        Agent => "agent",
        /// An editor, or what it starts.
        Editor => "editor",
        /// Programs and services of the user.
        Settings => "settings",
        /// Python, or whoever enters a virtual environment.
        Environment => "virtual-environment",
        /// Whoever starts programs by their names.
        Program => "program",
        /// Continuous integration.
        Ci => "ci",
        /// A build.
        Build => "build",
    }
}

/// Describes a name that tools outside obey.
#[derive(Debug, PartialEq, Eq)]
pub struct Obeyed {
    /// See the table.
    pub(crate) name: &'static str,
    /// The rule by which it is protected, if it is by default.
    pub(crate) rule: Option<ProtectionRule>,
    /// What kind of tool obeys it.
    pub kind: ObeyedKind,
    /// Which one, in a few words.
    pub by: &'static str,
}

impl Obeyed {
    /// Whether a single name fits. Rows of several names fit none.
    pub(crate) fn fits(&self, name: &OsStr) -> bool {
        let name = name.as_encoded_bytes();
        let starts = |text: &str| name.get(..text.len()).is_some_and(|it| it.eq_ignore_ascii_case(text.as_bytes()));
        if let Some(beginning) = self.name.strip_suffix('*') {
            return starts(beginning);
        }
        match self.name.strip_prefix('*') {
            Some(end) => name.len() > end.len() && name[name.len() - end.len()..].eq_ignore_ascii_case(end.as_bytes()),
            None => name.eq_ignore_ascii_case(self.name.as_bytes()),
        }
    }

    /// A file that runs as its owner or group.
    pub fn set_id() -> &'static Self {
        &table::SET_ID
    }

    /// A mark by which a directory is left out of the report.
    pub fn left_out() -> &'static Self {
        &table::LEFT_OUT
    }

    /// What something that is protected by a rule leads to: a link in its place, or a path in git's configuration.
    pub fn target(rule: ProtectionRule) -> &'static Self {
        match rule {
            ProtectionRule::GitTarget | ProtectionRule::GitControl | ProtectionRule::GitName => &table::GIT_TARGET,
            _ => &table::SETTINGS_TARGET,
        }
    }

    /// What is obeyed in the home directory, relative to it, with everything below.
    pub fn in_home() -> impl Iterator<Item = (&'static Path, &'static Self)> {
        HOME.iter().map(|row| (Path::new(row.name), row))
    }

    /// Every single name that is obeyed wherever it is, as it is usually spelled: for a directory with too many entries.
    pub fn single_names() -> impl Iterator<Item = &'static str> {
        const SPELLED: &[&str] = &[".git", "Makefile", "GNUmakefile", "Dockerfile", "Containerfile", "Jenkinsfile"];
        const MORE: &[&str] = &["AGENTS.md", "CLAUDE.md", "GEMINI.md", "Cargo.toml", "CMakeLists.txt", "Justfile"];
        let rows = PROJECT.iter().chain(VERSION_CONTROL).chain(table::REPORTED).map(|row| row.name);
        SPELLED.iter().chain(MORE).copied().chain(rows.filter(|name| !name.contains(['*', '/'])))
    }
}

/// Says what kind of directory a walk is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// Any.
    Open,
    /// A repository, such as `.git`.
    Repository,
    /// `info` of a repository.
    Info,
    /// The administrative directories of a repository's worktrees.
    Worktrees,
    /// The repositories of submodules, whose names may have slashes.
    Modules,
    /// A directory where PATH may lead.
    Programs,
    /// Packages that were installed for node.
    NodePackages,
    /// Packages that were installed for Python.
    PythonPackages,
    /// Below something that is obeyed.
    Below(&'static Obeyed),
}

/// Says what a walk has to do with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It is not obeyed, and nothing below it is looked at.
    Nothing,
    /// It is obeyed, with everything below it.
    Obeyed(&'static Obeyed),
    /// It is obeyed itself; what is below lies on this ground.
    Entrance(&'static Obeyed, Ground),
    /// It is obeyed if it is a link, or can be executed.
    IfExecutable(&'static Obeyed),
    /// It is not obeyed; what is below, if it is a directory, lies on this ground.
    Way(Ground),
}

/// Rows by their last name, and those that have a wildcard.
struct Index {
    exact: HashMap<&'static [u8], Vec<&'static Obeyed>>,
    wild: Vec<&'static Obeyed>,
    /// Which lengths exact names have, as bits: most names are done with by theirs.
    lengths: u64,
}

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index { exact: HashMap::new(), wild: Vec::new(), lengths: 0 };
    for row in PROJECT.iter().chain(VERSION_CONTROL).chain(table::REPORTED) {
        let last = row.name.rsplit('/').next().unwrap_or_default();
        if last.contains('*') {
            index.wild.push(row);
        } else {
            index.lengths |= 1 << last.len().min(63);
            index.exact.entry(last.as_bytes()).or_default().push(row);
        }
    }
    index
});

/// Finds the row of a name that is obeyed wherever it is.
fn row_of(directory: &Path, name: &OsStr) -> Option<&'static Obeyed> {
    let bytes = name.as_encoded_bytes();
    if INDEX.lengths & (1 << bytes.len().min(63)) != 0
        && let Some(rows) = INDEX.exact.get(bytes.to_ascii_lowercase().as_slice())
    {
        let fits = |row: &&&Obeyed| {
            let above = row.name.rsplit('/').skip(1);
            let mut names = directory.components().rev();
            above.into_iter().all(|name| names.next().is_some_and(|it| git::is(it.as_os_str(), name)))
        };
        if let Some(row) = rows.iter().find(fits) {
            return Some(row);
        }
    }
    INDEX.wild.iter().find(|row| row.fits(name)).copied()
}

impl Ground {
    /// Says what a directory is by what it holds: one without a telling name may be a repository.
    #[must_use]
    pub fn with_entries(self, has: impl Fn(&str) -> bool) -> Self {
        match self {
            Self::Open if git::holds_repository(&has) => Self::Repository,
            other => other,
        }
    }

    /// Says what is to be done with an entry of a directory (its path, relative or absolute) on this ground.
    pub fn sight(self, directory: &Path, name: &OsStr) -> Sight {
        let is = |word: &str| git::is(name, word);
        match self {
            Self::Below(row) => Sight::Obeyed(row),
            Self::Open | Self::Programs => open(self, directory, name),
            Self::NodePackages if is(".bin") => Sight::Way(Self::Programs),
            Self::NodePackages => Sight::Nothing,
            // Packages lie below; what Python executes by itself lies here.
            Self::PythonPackages => row_of(directory, name)
                .filter(|row| row.kind == ObeyedKind::Environment)
                .map_or(Sight::Nothing, Sight::Obeyed),
            Self::Info if is("attributes") => Sight::Obeyed(&table::IN_REPOSITORY),
            Self::Info => Sight::Nothing,
            Self::Worktrees => Sight::Way(Self::Repository),
            Self::Repository | Self::Modules => {
                if git::is_control(&[name]) {
                    Sight::Obeyed(&table::IN_REPOSITORY)
                } else if is("info") {
                    Sight::Way(Self::Info)
                } else if is("worktrees") {
                    Sight::Way(Self::Worktrees)
                } else if is("modules") {
                    Sight::Way(Self::Modules)
                } else if git::is_any(name, &["rebase-merge", "rebase-apply", "sequencer"]) {
                    Sight::Obeyed(&table::UNFINISHED)
                } else if self == Self::Modules && !git::is_any(name, &git::DATA) {
                    Sight::Way(Self::Modules)
                } else {
                    Sight::Nothing
                }
            }
        }
    }
}

fn open(ground: Ground, directory: &Path, name: &OsStr) -> Sight {
    let is = |word: &str| git::is(name, word);
    if is(".git") {
        return Sight::Entrance(&table::IN_REPOSITORY, Ground::Repository);
    }
    if let Some(row) = row_of(directory, name) {
        return Sight::Obeyed(row);
    }
    if is("node_modules") {
        return Sight::Way(Ground::NodePackages);
    }
    if is("site-packages") || is("dist-packages") {
        return Sight::Way(Ground::PythonPackages);
    }
    if is("__pycache__") {
        return Sight::Nothing;
    }
    if git::is_any(name, &["bin", "sbin", ".bin"]) {
        return Sight::Way(Ground::Programs);
    }
    if ground == Ground::Programs { Sight::IfExecutable(&table::PROGRAMS) } else { Sight::Way(Ground::Open) }
}

#[cfg(test)]
mod tests;
