//! Whether an act on a place is allowed: the mode, the roots, and what a call closes beyond its mode. The same answers
//! as the walls around a command give; where they cannot be the same, `docs/differences.md` says so.

use crate::error::{Denied, FsError};
use crate::resolve::{Identity, Mount, Place, identity};
use pinfold_policy::pattern::PathPattern;
use pinfold_policy::protect::{Effect, Moved, ProtectedNames, ProtectionRule};
use pinfold_policy::quote::quote;
use pinfold_policy::{ConfinedMode, Restrictions, SandboxError};
use rustix::fs::Stat;
use std::path::{Path, PathBuf};

/// Names what is done to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Look at it or read its content.
    Read,
    /// Change its content.
    Write,
    /// Make something there.
    Create,
    /// Remove it.
    Remove,
    /// Move it, or move something onto it.
    Rename,
}

/// A path that may be neither read nor changed, nor what lies below it.
#[derive(Debug, Clone)]
struct Closed {
    /// Where it led when the fence was made.
    path: PathBuf,
    /// What is there, if something is: it is recognised under another name, too.
    identity: Option<Identity>,
    /// What in it stays readable.
    kept: Vec<PathBuf>,
}

impl Closed {
    fn holds(&self, path: &Path, found: Option<Identity>) -> bool {
        if !self.kept.is_empty() && path.starts_with(&self.path) {
            let leads = |kept: &PathBuf| path.starts_with(kept) || kept.starts_with(path);
            return !self.kept.iter().any(leads);
        }
        path.starts_with(&self.path) || (found.is_some() && self.identity == found)
    }
}

/// A pattern of such paths, and where its literal beginning leads.
#[derive(Debug, Clone)]
struct ClosedPattern {
    pattern: PathPattern,
    physical: PathBuf,
}

impl ClosedPattern {
    fn holds(&self, path: &Path) -> bool {
        let literal = self.pattern.literal_prefix();
        self.pattern.covers(path)
            || (self.physical != literal
                && path.strip_prefix(&self.physical).is_ok_and(|below| self.pattern.covers(&literal.join(below))))
    }
}

/// What a fence decides by.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    mode: ConfinedMode,
    closed: Vec<Closed>,
    patterns: Vec<ClosedPattern>,
    protected: ProtectedNames,
}

impl Rules {
    pub(crate) fn new(
        mode: ConfinedMode,
        restrictions: &Restrictions,
        protected: ProtectedNames,
        pinned: &[Mount],
    ) -> Result<Self, SandboxError> {
        restrictions.validate()?;
        let close = |given: &PathBuf| {
            let path = physical(given);
            let identity = rustix::fs::stat(&path).ok().as_ref().map(identity);
            // As for commands: in a writable root the whole of it is closed.
            let inside = pinned.iter().any(|mount| path.starts_with(&mount.at));
            let kept = restrictions.allowed_reads.iter().filter(|kept| !inside && kept.starts_with(given));
            let kept = kept.filter(|kept| kept.symlink_metadata().is_ok()).map(|kept| physical(kept)).collect();
            Closed { path, identity, kept }
        };
        let patterns = restrictions.read_patterns()?.into_iter().map(|pattern| {
            let physical = physical(pattern.literal_prefix());
            ClosedPattern { pattern, physical }
        });
        let closed = restrictions.denied_reads.iter().map(close).collect();
        Ok(Self { mode, closed, patterns: patterns.collect(), protected })
    }

    /// Decides before anything is looked at, if the mode alone decides.
    pub(crate) fn at_once(&self, act: Act, verb: &'static str, path: &Path) -> Result<(), FsError> {
        if self.mode == ConfinedMode::ReadOnly && act != Act::Read {
            return Err(self.refuse(verb, path, path.to_owned(), "nothing is writable in this mode".to_owned()));
        }
        Ok(())
    }

    /// Decides about a place; `path` is what the caller said.
    pub(crate) fn decide(
        &self,
        act: Act,
        verb: &'static str,
        path: &Path,
        place: &Place,
        pinned: &[Mount],
    ) -> Result<(), FsError> {
        self.at_once(act, verb, path)?;
        let refuse = |rule: String| Err(self.refuse(verb, path, place.path.clone(), rule));
        if let Some(closed) = self.closes_place(place) {
            return refuse(format!("the denied path {} holds it", quote(closed)));
        }
        if act == Act::Read {
            return Ok(());
        }
        let Some(root) = place.root.and_then(|index| pinned.get(index)).filter(|mount| mount.writable) else {
            return refuse("it lies in no writable root".to_owned());
        };
        self.decide_on_names(act, verb, path, place)?;
        if !matches!(act, Act::Remove | Act::Rename) {
            return Ok(());
        }
        let is_pinned = |mount: &&Mount| place.stat.as_ref().is_some_and(|stat| mount.directory.is(stat));
        if place.object.is_some() && place.path == root.at || pinned.iter().any(|mount| is_pinned(&mount)) {
            return refuse("it is a writable root itself, which stays where it is".to_owned());
        }
        let leads = |inner: &Path| inner != place.path && inner.starts_with(&place.path);
        if pinned.iter().any(|mount| leads(&mount.at)) || self.leads_to_closed(&place.path) {
            return refuse("it leads to another writable root or to a denied path, and stays where it is".to_owned());
        }
        Ok(())
    }

    /// Whether a denied path lies below a directory. Patterns count from their literal beginning on, as they stand for
    /// names at any place behind it.
    fn leads_to_closed(&self, directory: &Path) -> bool {
        let below = |path: &Path| path != directory && path.starts_with(directory);
        self.closed.iter().any(|closed| below(&closed.path))
            || self.patterns.iter().any(|closed| below(&closed.physical))
    }

    /// Protected names: of what would be changed, and of every directory that would be made on the way.
    fn decide_on_names(&self, act: Act, verb: &'static str, path: &Path, place: &Place) -> Result<(), FsError> {
        if self.protected.is_empty() {
            return Ok(());
        }
        let effect = match (act, place.kind()) {
            (_, None) => Effect::Create,
            (Act::Create, Some(_)) => return Ok(()),
            (_, Some(_)) => Effect::Alter,
        };
        let made = place.path.ancestors().skip(1).take(place.missing.len());
        let every = std::iter::once((place.path.as_path(), effect)).chain(made.map(|made| (made, Effect::Create)));
        for (name, effect) in every {
            if let Some(rule) = self.protects(name, effect, None) {
                return Err(self.refuse_protected(verb, path, name, rule));
            }
        }
        Ok(())
    }

    /// Returns the denied path or pattern that holds a physical path, or whose object was found there.
    pub(crate) fn closes(&self, path: &Path, stat: Option<&Stat>) -> Option<PathBuf> {
        self.closes_identity(path, stat.map(identity))
    }

    /// The same for a place, and for every name that leads through a denied directory.
    fn closes_place(&self, place: &Place) -> Option<PathBuf> {
        let elsewhere = |closed: &&Closed| {
            place.watched.is_some() && closed.identity == place.watched && !place.path.starts_with(&closed.path)
        };
        let by_identity = || self.closed.iter().find(elsewhere).map(|closed| closed.path.clone());
        self.closes(&place.path, place.stat.as_ref()).or_else(by_identity)
    }

    /// The same for an object of which only the identity is known.
    pub(crate) fn closes_identity(&self, path: &Path, found: Option<Identity>) -> Option<PathBuf> {
        let found = self.closed.iter().find(|closed| closed.holds(path, found)).map(|closed| closed.path.clone());
        let by_pattern = || self.patterns.iter().find(|pattern| pattern.holds(path));
        found.or_else(|| by_pattern().map(|closed| closed.pattern.absolute()))
    }

    /// Returns the rule that protects a name from an effect.
    pub(crate) fn protects(
        &self,
        path: &Path,
        effect: Effect,
        moved: Option<(&Path, &Path)>,
    ) -> Option<ProtectionRule> {
        let now = |path: &Path| path.symlink_metadata().is_ok();
        match moved {
            Some((from, to)) => self.protected.rule_on(path, effect, &Moved { now: &now, from, to }),
            None => self.protected.rule_on(path, effect, &now),
        }
    }

    /// The objects of denied paths.
    pub(crate) fn watched(&self) -> Vec<Identity> {
        self.closed.iter().filter_map(|closed| closed.identity).collect()
    }

    /// Whether what lies in a directory that is moved, copied or removed has to be looked at.
    pub(crate) fn concern_contents(&self) -> bool {
        !self.protected.is_empty() || !self.closed.is_empty() || !self.patterns.is_empty()
    }

    /// Refuses an act on something that holds a denied path.
    pub(crate) fn refuse_closed(&self, verb: &'static str, path: &Path, resolved: &Path, closed: &Path) -> FsError {
        self.refuse(verb, path, resolved.to_owned(), format!("the denied path {} holds it", quote(closed)))
    }

    /// Refuses an act on a protected name.
    pub(crate) fn refuse_protected(
        &self,
        verb: &'static str,
        path: &Path,
        resolved: &Path,
        rule: ProtectionRule,
    ) -> FsError {
        self.refuse(verb, path, resolved.to_owned(), format!("it is a protected name (rule {rule})"))
    }

    fn refuse(&self, verb: &'static str, path: &Path, resolved: PathBuf, rule: String) -> FsError {
        FsError::denied(path, Denied { mode: self.mode, verb, resolved, rule })
    }
}

/// Resolves links as far as the path exists.
pub(crate) fn physical(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(resolved) = existing.canonicalize() {
            return missing.iter().rev().fold(resolved, |path, name: &&std::ffi::OsStr| path.join(name));
        }
        let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else { return path.to_owned() };
        missing.push(name);
        existing = parent;
    }
}
