//! What a call closes beyond its mode, as it is found on this host: values that plans are made from.
//!
//! A path that is to be hidden is resolved here, once; the walls are put over what it really is.

use crate::sockets::SocketWalls;
use pinfold_policy::quote::quote;
use pinfold_policy::{Network, SandboxError};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A path over which an empty file or directory is put.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cover {
    pub(crate) path: PathBuf,
    pub(crate) directory: bool,
}

/// Everything that one call closes beyond its mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) network: Network,
    pub(crate) denied: Denied,
    /// `None`: sockets are open.
    pub(crate) sockets: Option<SocketWalls>,
    /// Patterns of variables that the launcher removes; empty if we do it ourselves.
    pub(crate) unset: Vec<&'static str>,
}

impl Default for Closed {
    fn default() -> Self {
        Self { network: Network::Open, denied: Denied::default(), sockets: None, unset: Vec::new() }
    }
}

/// Paths that are closed for reading, physical.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Denied {
    /// Those that need a wall: outermost first, none inside another.
    pub(crate) covers: Vec<Cover>,
    /// Those to which the permissions of a directory above lead no command of this user.
    pub(crate) unreachable: Vec<PathBuf>,
    /// Those at which nothing is now, and above which nothing is covered.
    pub(crate) absent: Vec<PathBuf>,
    /// Files among them that have other names.
    pub(crate) linked: Vec<PathBuf>,
}

impl Denied {
    pub(crate) fn is_empty(&self) -> bool {
        self.covers.is_empty() && self.unreachable.is_empty() && self.absent.is_empty()
    }

    /// The denied path that a path lies at or below, if a wall stands there.
    pub(crate) fn closes(&self, path: &Path) -> Option<&Path> {
        let walls = self.covers.iter().map(|cover| &cover.path).chain(&self.unreachable);
        walls.map(PathBuf::as_path).find(|wall| path.starts_with(wall))
    }
}

/// What a command cannot do without: each with the words for it. A denied read may neither be nor contain one.
pub(crate) type Needed<'a> = [(&'static str, &'a Path)];

/// Directories that every command needs; what lies below them may be denied.
const SYSTEM: [&str; 8] = ["/", "/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", "/dev"];

/// Trees that a command finds made anew.
const MADE_ANEW: [&str; 2] = ["/proc", "/dev"];

/// Resolves denied reads.
pub(crate) fn resolve(given: &[PathBuf], needed: &Needed<'_>) -> Result<Denied, SandboxError> {
    let system: Vec<PathBuf> = SYSTEM.iter().map(|path| physical(Path::new(path))).collect();
    let mut found = Vec::new();
    let mut denied = Denied::default();
    for path in given {
        let refuse = |why: String| {
            let detail = format!("denied read {} {why}", quote(path));
            Err(SandboxError::InvalidPolicy { detail })
        };
        let (real, metadata) = match path.canonicalize().and_then(|real| Ok((real.clone(), real.metadata()?))) {
            Ok((real, metadata)) => (real, Some(metadata)),
            Err(error) if absent(&error) => (physical(path), None),
            // SECURITY: what cannot be examined cannot be covered, and a command in whose workspace it lies could open
            // the way to it.
            Err(error) => return refuse(format!("cannot be examined: {error}")),
        };
        if let Some((what, place)) = needed.iter().find(|(_, place)| place.starts_with(&real)) {
            return refuse(format!("would hide {what}, {}", quote(place)));
        }
        if let Some(place) = system.iter().find(|place| place.starts_with(&real)) {
            return refuse(format!("would hide {}, which every command needs", quote(place)));
        }
        if let Some(tree) = MADE_ANEW.iter().find(|tree| real.starts_with(tree)) {
            return refuse(format!("lies in {tree}, which is another one inside"));
        }
        match metadata {
            None => denied.absent.push(real),
            Some(_) if !reachable(&real) => denied.unreachable.push(real),
            Some(metadata) => {
                if metadata.is_file() && metadata.nlink() > 1 {
                    denied.linked.push(real.clone());
                }
                found.push(Cover { path: real, directory: metadata.is_dir() });
            }
        }
    }
    denied.covers = outermost(found);
    let covered = |path: &PathBuf| denied.covers.iter().any(|cover| cover.directory && path.starts_with(&cover.path));
    denied.absent.retain(|path| !covered(path));
    Ok(denied)
}

fn absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Sorts, and drops what lies inside another.
pub(crate) fn outermost(mut covers: Vec<Cover>) -> Vec<Cover> {
    covers.sort();
    let mut kept: Vec<Cover> = Vec::with_capacity(covers.len());
    for cover in covers {
        // The last one kept is the only candidate: a path sorts right behind what contains it.
        if kept.last().is_none_or(|last| !cover.path.starts_with(&last.path)) {
            kept.push(cover);
        }
    }
    kept
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

/// Says whether the permissions of the directories above let a command of this user get to a path.
///
/// Only user id 0 needs to ask: it looks past permissions out here, and inside, without capabilities, it does not.
/// The launcher does not either once it is in namespaces of its own, so it could not put a wall there.
pub(crate) fn reachable(path: &Path) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    let mut groups: Vec<u32> = rustix::process::getgroups().unwrap_or_default().iter().map(|id| id.as_raw()).collect();
    groups.push(rustix::process::getegid().as_raw());
    let searchable = |metadata: Metadata| match metadata.uid() {
        0 => metadata.mode() & 0o100 != 0,
        _ if groups.contains(&metadata.gid()) => metadata.mode() & 0o010 != 0,
        _ => metadata.mode() & 0o001 != 0,
    };
    path.ancestors().skip(1).all(|directory| directory.metadata().is_ok_and(searchable))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(paths: &[&Path], needed: &Needed<'_>) -> Result<Denied, String> {
        let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
        resolve(&paths, needed).map_err(|error| error.to_string())
    }

    #[test]
    fn links_are_resolved_inner_paths_dropped_and_absent_ones_kept_apart() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("d/inner")).unwrap();
        std::fs::write(base.join("d.file"), "").unwrap();
        std::os::unix::fs::symlink("d.file", base.join("link")).unwrap();
        let paths = ["d/inner", "link", "d", "d.file", "d/none", "none/x"].map(|name| base.join(name));
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let found = denied(&paths, &[]).unwrap();
        let cover = |name: &str, directory| Cover { path: base.join(name), directory };
        assert_eq!(found.covers, [cover("d", true), cover("d.file", false)]);
        assert_eq!(found.absent, [base.join("none/x")]);
        assert_eq!(found.closes(&base.join("d/none")), Some(base.join("d").as_path()));
        assert_eq!(found.closes(&base.join("none/x")), None);
    }

    #[test]
    fn what_a_command_needs_cannot_be_denied() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let workspace = base.join("a/ws");
        std::fs::create_dir_all(workspace.join("below")).unwrap();
        let needed = [("the workspace", workspace.as_path())];
        for path in [&base, &base.join("a"), &workspace] {
            assert!(denied(&[path], &needed).unwrap_err().contains("would hide the workspace"), "{path:?}");
        }
        assert!(denied(&[&workspace.join("below")], &needed).is_ok());
        for path in ["/usr", "/etc", "/lib", "/proc", "/dev", "/dev/null", "/proc/self"] {
            assert!(denied(&[Path::new(path)], &[]).is_err(), "{path}");
        }
        assert!(denied(&[Path::new("/etc/shadow")], &[]).is_ok());
    }

    #[test]
    fn a_file_with_two_names_is_noted() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::write(base.join("one"), "").unwrap();
        assert!(denied(&[&base.join("one")], &[]).unwrap().linked.is_empty());
        std::fs::hard_link(base.join("one"), base.join("two")).unwrap();
        assert_eq!(denied(&[&base.join("one")], &[]).unwrap().linked, [base.join("one")]);
    }
}
