//! Whether an act on a place is allowed: the mode, the roots, and what a call closes beyond its mode. The same answers
//! as the walls around a command give; where they cannot be the same, `docs/differences.md` says so.

use crate::error::{Denied, FsError};
use crate::resolve::{Mount, Place};
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
    identity: Option<(u64, u64)>,
}

/// What a fence decides by.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    mode: ConfinedMode,
    closed: Vec<Closed>,
}

impl Rules {
    pub(crate) fn new(mode: ConfinedMode, restrictions: &Restrictions) -> Result<Self, SandboxError> {
        restrictions.validate()?;
        let close = |path: &PathBuf| {
            let path = physical(path);
            let identity = rustix::fs::stat(&path).ok().map(|stat| (stat.st_dev, stat.st_ino));
            Closed { path, identity }
        };
        Ok(Self { mode, closed: restrictions.denied_reads.iter().map(close).collect() })
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
        if let Some(closed) = self.closes(&place.path, place.stat.as_ref()) {
            return refuse(format!("the denied path {} holds it", quote(closed)));
        }
        if act == Act::Read {
            return Ok(());
        }
        let Some(root) = place.root.and_then(|index| pinned.get(index)).filter(|mount| mount.writable) else {
            return refuse("it lies in no writable root".to_owned());
        };
        if !matches!(act, Act::Remove | Act::Rename) {
            return Ok(());
        }
        let is_pinned = |mount: &&Mount| place.stat.as_ref().is_some_and(|stat| mount.directory.is(stat));
        if place.object.is_some() && place.path == root.at || pinned.iter().any(|mount| is_pinned(&mount)) {
            return refuse("it is a writable root itself, which stays where it is".to_owned());
        }
        let leads = |inner: &Path| inner != place.path && inner.starts_with(&place.path);
        if pinned.iter().any(|mount| leads(&mount.at)) || self.closed.iter().any(|closed| leads(&closed.path)) {
            return refuse("it leads to another writable root or to a denied path, and stays where it is".to_owned());
        }
        Ok(())
    }

    /// Returns the denied path that holds a physical path, or that is another name of what was found there.
    pub(crate) fn closes(&self, path: &Path, stat: Option<&Stat>) -> Option<&Path> {
        let same = |closed: &Closed| stat.is_some_and(|stat| closed.identity == Some((stat.st_dev, stat.st_ino)));
        let found = self.closed.iter().find(|closed| path.starts_with(&closed.path) || same(closed));
        found.map(|closed| closed.path.as_path())
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
