//! Protected names: what a command may not create, change, replace or remove although it lies in a writable root.
//!
//! Some names are obeyed by programs outside: git runs hooks and reads programs from its configuration, editors run tasks,
//! shells run start files, agents take orders from their settings. A command that may write the workspace could have
//! itself run outside through them. So such a name is protected whether something is there or not, and by whatever route
//! it would come to be: this room answers for one *resolved* path at a time, and the one who performs the change asks for
//! every path that it touches (both names of a rename, and everything below a directory that moves).
//!
//! Pure: what is around a path is asked through [`Surroundings`]. What must not enter: a system call, and how a refusal
//! looks to the command.
//!
//! References: gitrepository-layout(5), git-config(1) "include", "core.hooksPath", git-worktree(1) "Details".

pub(crate) mod git;
mod names;
mod vcs;

use crate::obeyed::Obeyed;
use crate::pattern::PathPattern;
use crate::{SandboxError, quote::quote, wire};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// Holds what a caller wants protected in the writable roots. By default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Protect {
    /// The names that tools outside obey: see [`ProtectedNames::with_default_names`].
    pub default_names: bool,
    /// Absolute patterns (see [`crate::pattern`]); what matches is protected with everything below it, present or absent.
    #[serde(with = "wire::strict::paths")]
    pub patterns: Vec<PathBuf>,
}

impl Protect {
    /// Returns whether nothing is to be protected.
    pub fn is_empty(&self) -> bool {
        !self.default_names && self.patterns.is_empty()
    }

    /// Returns the patterns, ready to be matched.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for the first that is relative, is not a pattern, or stands for the whole file tree.
    pub fn read_patterns(&self) -> Result<Vec<PathPattern>, SandboxError> {
        let read = |text: &PathBuf| {
            let refuse = |why: &str| {
                let detail = format!("protected pattern {} {why}", quote(text));
                SandboxError::InvalidPolicy { detail }
            };
            if !text.is_absolute() {
                return Err(refuse("is not absolute"));
            }
            let pattern = PathPattern::parse(text.as_os_str(), Path::new("/"), None)?;
            if pattern.matches(Path::new("/")) {
                return Err(refuse("is the whole file tree; use the mode read-only"));
            }
            Ok(pattern)
        };
        self.patterns.iter().map(read).collect()
    }
}

closed_words! {
    /// Names the reason for which a path is protected.
    pub enum ProtectionRule("protection rule") {
        /// `.git` itself: the directory, the file that points to one, or the link.
        GitName => "git-name",
        /// What git executes or obeys in a repository: hooks, configuration, attributes, pointers to other directories.
        GitControl => "git-control",
        /// A directory would become a repository that brings hooks or configuration along.
        GitRepository => "git-repository",
        /// A directory of hooks or a file of configuration that lies elsewhere and that a repository names.
        GitTarget => "git-target",
        /// What other version control systems obey, and their directory itself.
        VcsControl => "vcs-control",
        /// Settings of coding agents.
        AgentSettings => "agent-settings",
        /// Settings of editors, and of what they start.
        EditorSettings => "editor-settings",
        /// Files that a shell or session executes when it starts.
        ShellStart => "shell-start",
        /// Settings of other programs in the home directory.
        HomeSettings => "home-settings",
        /// Pinfold's own configuration.
        OwnSettings => "own-settings",
        /// A pattern of the caller's.
        Pattern => "pattern",
    }
}

/// Says what would happen at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// What is there is written, gets other metadata, is removed, or is moved away.
    Alter,
    /// A file or directory comes to be there, by creation, hard link or rename.
    Create,
    /// A symbolic link comes to be there: whatever lies behind it gets further names.
    CreateLink,
}

/// Tells what else is in the file system.
pub trait Surroundings {
    /// Says whether something has this name, be it a link that leads nowhere. The path is absolute and resolved.
    fn exists(&self, path: &Path) -> bool;
}

impl<F: Fn(&Path) -> bool> Surroundings for F {
    fn exists(&self, path: &Path) -> bool {
        self(path)
    }
}

/// The surroundings as they will be when a directory has moved.
#[derive(Debug)]
pub struct Moved<'a, S: ?Sized> {
    /// The surroundings as they are.
    pub now: &'a S,
    /// Where the directory is.
    pub from: &'a Path,
    /// Where it will be.
    pub to: &'a Path,
}

impl<S: Surroundings + ?Sized> Surroundings for Moved<'_, S> {
    fn exists(&self, path: &Path) -> bool {
        match path.strip_prefix(self.to) {
            Ok(below) if below.as_os_str().is_empty() => true,
            Ok(below) => self.now.exists(&self.from.join(below)),
            Err(_) => !path.starts_with(self.from) && self.now.exists(path),
        }
    }
}

/// Holds which names are protected, and where.
#[derive(Debug, Clone, Default)]
pub struct ProtectedNames {
    roots: Vec<PathBuf>,
    tops: Vec<PathBuf>,
    default_names: bool,
    further: Vec<(PathBuf, ProtectionRule)>,
    patterns: Vec<PathPattern>,
}

impl ProtectedNames {
    /// Makes a set that protects nothing yet below these roots: absolute, physical directories.
    pub fn below(roots: impl IntoIterator<Item = PathBuf>) -> Self {
        let roots: Vec<PathBuf> = roots.into_iter().collect();
        Self { tops: roots.clone(), roots, ..Self::default() }
    }

    /// Adds the default names: those of git at any depth; those of agents, editors and shells directly in a root, in the
    /// home directory, and wherever a directory has a `.git`; some more in the home directory.
    #[must_use]
    pub fn with_default_names(mut self, home: Option<&Path>) -> Self {
        self.default_names = true;
        if let Some(home) = home {
            self.tops.push(home.to_owned());
            let settings = Obeyed::in_home().map(|(name, _)| (home.join(name), ProtectionRule::HomeSettings));
            self.further.extend(settings);
        }
        self
    }

    /// Adds one path and everything below it.
    #[must_use]
    pub fn with_path(mut self, path: PathBuf, rule: ProtectionRule) -> Self {
        self.further.push((path, rule));
        self
    }

    /// Adds a pattern; what it matches is protected with everything below it.
    #[must_use]
    pub fn with_pattern(mut self, pattern: PathPattern) -> Self {
        self.patterns.push(pattern);
        self
    }

    /// Returns whether nothing is protected.
    pub fn is_empty(&self) -> bool {
        !self.default_names && self.further.is_empty() && self.patterns.is_empty()
    }

    /// Returns whether a path lies in or is a root, which is where names are protected.
    pub fn concerns(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
    }

    /// Returns the rule that forbids an effect at a path, if one does. The path is absolute and physical: no `.`, no `..`,
    /// and no link but perhaps its last name.
    pub fn rule_on(&self, path: &Path, effect: Effect, around: &dyn Surroundings) -> Option<ProtectionRule> {
        if self.is_empty() || !self.concerns(path) {
            return None;
        }
        if let Some((_, rule)) = self.further.iter().find(|(further, _)| path.starts_with(further)) {
            return Some(*rule);
        }
        if self.patterns.iter().any(|pattern| pattern.covers(path)) {
            return Some(ProtectionRule::Pattern);
        }
        if effect == Effect::CreateLink
            && let Some(rule) = self.leads_to_protected(path)
        {
            return Some(rule);
        }
        if self.default_names { self.default_rule(path, effect, around) } else { None }
    }

    /// Returns whether a root, or the home directory, is this path or lies below it: then it stays where it is.
    pub fn leads_to_top(&self, path: &Path) -> bool {
        self.tops.iter().any(|top| top.starts_with(path))
    }

    /// A link in place of a directory above a protected path would give that path to whatever lies behind the link.
    fn leads_to_protected(&self, path: &Path) -> Option<ProtectionRule> {
        if let Some((_, rule)) = self.further.iter().find(|(further, _)| further.starts_with(path)) {
            return Some(*rule);
        }
        if self.default_names && self.leads_to_top(path) {
            return Some(ProtectionRule::HomeSettings);
        }
        self.patterns.iter().any(|pattern| self.leads_to_match(pattern, path)).then_some(ProtectionRule::Pattern)
    }

    fn leads_to_match(&self, pattern: &PathPattern, path: &Path) -> bool {
        if pattern.literal_prefix().starts_with(path) {
            return true;
        }
        // A `**` that begins where every root begins, or above, matches wherever a link may lead, if one name stands behind
        // it: then what lies behind the link is protected at its own place. Behind several, the link could be one of them.
        let everywhere = self.roots.iter().all(|root| root.starts_with(pattern.literal_prefix()));
        match pattern.names_behind_any() {
            Some([_]) if everywhere => false,
            Some([names @ .., _]) if everywhere => {
                let last = path.components().count();
                (1..=names.len().min(last)).any(|count| {
                    let ends = path.components().skip(last - count);
                    ends.zip(names).all(|(end, name)| name.is_match(end.as_os_str()))
                })
            }
            _ => pattern.may_match_below(path),
        }
    }

    fn default_rule(&self, path: &Path, effect: Effect, around: &dyn Surroundings) -> Option<ProtectionRule> {
        let names: Vec<&OsStr> = path
            .components()
            .filter_map(|component| if let Component::Normal(name) = component { Some(name) } else { None })
            .collect();
        let above = |count: usize| {
            let mut above = PathBuf::from("/");
            above.extend(&names[..count]);
            above
        };
        for (index, name) in names.iter().enumerate() {
            if let Some(rule) = names::rule_on_name(name) {
                let top = above(index);
                if self.tops.contains(&top) || around.exists(&top.join(".git")) {
                    return Some(rule);
                }
            }
        }
        vcs::rule_on(&names, effect).or_else(|| git::rule_on(&names, &above, effect, around))
    }
}

#[cfg(test)]
mod tests;
