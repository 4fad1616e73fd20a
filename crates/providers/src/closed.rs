//! What a call closes beyond its mode, as it is found on this host: values that plans are made from.
//!
//! A path that is to be hidden is resolved here, once; the walls are put over what it really is.

use crate::call::Insistence;
use crate::lookup::Lookup;
use crate::mount_names::MountTable;
use crate::protected::Protected;
use crate::read_walk::{BOUNDS, Walk};
use crate::sockets::SocketWalls;
use pinfold_policy::quote::quote;
use pinfold_policy::{Network, PatternShape, Restrictions, SandboxError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    /// Names inside the writable roots that stay as they are; `None`: nobody asked.
    pub(crate) protected: Option<Protected>,
    /// Patterns of variables that the launcher removes; empty if we do it ourselves.
    pub(crate) unset: Vec<&'static str>,
}

impl Default for Closed {
    fn default() -> Self {
        Self { network: Network::Open, denied: Denied::default(), sockets: None, protected: None, unset: Vec::new() }
    }
}

/// Paths that are closed for reading, physical.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Denied {
    /// Those that need a wall: outermost first, none inside another.
    pub(crate) covers: Vec<Cover>,
    /// Directories that appear empty but for `keeps`; none lies in a writable root.
    pub(crate) hollows: Vec<PathBuf>,
    /// What stays readable in a hollow directory.
    pub(crate) keeps: Vec<PathBuf>,
    /// What was to stay readable and is closed with its directory, because that lies in a writable root.
    pub(crate) not_kept: Vec<PathBuf>,
    /// Those to which the permissions of a directory above lead no command of this user; no command can change these.
    pub(crate) unreachable: Vec<PathBuf>,
    /// Links in a writable root by way of which something is denied.
    pub(crate) by_link: Vec<PathBuf>,
    /// Those at which nothing is now, and above which nothing is covered.
    pub(crate) absent: Vec<PathBuf>,
    /// The same below a writable root, where the command itself can make them.
    pub(crate) absent_inside: Vec<PathBuf>,
    /// Files among them that have other names.
    pub(crate) linked: Vec<PathBuf>,
    /// Directories among them that hold too much to look for files with other names.
    pub(crate) unsearched: Vec<PathBuf>,
    /// Patterns whose matches were looked for when the call began.
    pub(crate) snapshots: Vec<PathBuf>,
    /// Links that match a pattern and lead elsewhere.
    pub(crate) leads_out: Vec<PathBuf>,
    /// Directories in which nobody could look for matches.
    pub(crate) unseen: Vec<PathBuf>,
    /// Those that a command needs or that cannot be examined, if nobody insists.
    pub(crate) skipped: Vec<PathBuf>,
    /// Nobody could look for the names that mounts give to what is closed.
    pub(crate) mounts_unknown: bool,
}

impl Denied {
    pub(crate) fn is_empty(&self) -> bool {
        let asked =
            [&self.hollows, &self.unreachable, &self.absent, &self.absent_inside, &self.snapshots, &self.skipped];
        self.covers.is_empty() && asked.iter().all(|paths| paths.is_empty())
    }

    /// The denied path that a path lies at or below, if a wall stands there.
    pub(crate) fn closes(&self, path: &Path) -> Option<&Path> {
        let walls = self.covers.iter().map(|cover| &cover.path).chain(&self.unreachable);
        walls.map(PathBuf::as_path).find(|wall| path.starts_with(wall)).or_else(|| self.hollowed(path))
    }

    /// The hollow directory in which a path is out of sight. The directory itself is there, and so is what leads to a kept path.
    pub(crate) fn hollowed(&self, path: &Path) -> Option<&Path> {
        let hollow = self.hollows.iter().find(|hollow| path != *hollow && path.starts_with(hollow))?;
        let kept = self.keeps.iter().any(|kept| path.starts_with(kept));
        (!kept).then_some(hollow.as_path())
    }

    /// The absent denied path that a path lies at or below.
    pub(crate) fn awaits(&self, path: &Path) -> Option<&Path> {
        let absent = self.absent.iter().chain(&self.absent_inside).map(PathBuf::as_path);
        absent.into_iter().find(|absent| path.starts_with(absent))
    }
}

/// What a command cannot do without: each with the words for it. A denied read may neither be nor contain one.
pub(crate) type Needed<'a> = [(&'static str, &'a Path)];

/// Directories that every command needs; what lies below them may be denied.
const SYSTEM: [&str; 8] = ["/", "/usr", "/bin", "/lib", "/lib64", "/etc", "/proc", "/dev"];

/// Trees that a command finds made anew.
const MADE_ANEW: [&str; 2] = ["/proc", "/dev"];

/// Resolves denied reads. `writable` are the roots of the call. What cannot be closed is an error, or, if nobody insists,
/// left open and noted.
pub(crate) fn resolve(
    restrictions: &Restrictions,
    needed: &Needed<'_>,
    writable: &[&Path],
    insistence: Insistence,
) -> Result<Denied, SandboxError> {
    let mut search = Search {
        needed,
        writable,
        mounts: MountTable::read(),
        system: SYSTEM.iter().map(|path| physical(Path::new(path))).collect(),
        insistence,
        cornered: false,
        found: Vec::new(),
        denied: Denied::default(),
    };
    for path in &restrictions.denied_reads {
        match search.close(path) {
            Err(_) if insistence == Insistence::WherePossible && !search.cornered => {
                search.denied.skipped.push(path.clone());
            }
            done => done?,
        }
    }
    let patterns = restrictions.read_patterns()?;
    let (wild, plain): (Vec<_>, Vec<_>) =
        patterns.iter().partition(|pattern| pattern.shape() == PatternShape::Wildcard);
    for pattern in plain {
        search.close(pattern.literal_prefix())?;
    }
    let mut walk = Walk::new(BOUNDS);
    for pattern in wild {
        search.denied.snapshots.push(pattern.text().into());
        walk.look(pattern, |path| search.found.iter().any(|cover: &Cover| path.starts_with(&cover.path)))?;
    }
    search.denied.mounts_unknown = search.mounts.is_none();
    let matches = walk.end();
    for path in &matches.paths {
        search.close(path)?;
    }
    for directory in matches.unseen {
        // SECURITY: an earlier command may have closed it so that nobody finds what is in it, and the next one opens it.
        if search.is_writable(&directory) {
            search.close(&directory)?;
        } else {
            search.denied.unseen.push(directory);
        }
    }
    search.denied.leads_out = matches.leads_out;
    Ok(search.end(&restrictions.allowed_reads))
}

/// Collects what is closed.
struct Search<'a> {
    needed: &'a Needed<'a>,
    writable: &'a [&'a Path],
    mounts: Option<MountTable>,
    system: Vec<PathBuf>,
    insistence: Insistence,
    /// What could not be closed is in the power of a command: not even a wish may leave it open.
    cornered: bool,
    found: Vec<Cover>,
    denied: Denied,
}

impl Search<'_> {
    fn close(&mut self, path: &Path) -> Result<(), SandboxError> {
        let refuse = |why: String| {
            let detail = format!("denied read {} {why}", quote(path));
            Err(SandboxError::InvalidPolicy { detail })
        };
        let lookup = Lookup::of(path);
        if let Some(barrier) = lookup.barrier.as_ref().filter(|barrier| self.is_writable(barrier)) {
            return self.close_barrier(path, barrier);
        }
        let (real, metadata) = match path.canonicalize().and_then(|real| Ok((real.clone(), real.metadata()?))) {
            Ok((real, metadata)) => (real, Some(metadata)),
            Err(error) if absent(&error) => (physical(path), None),
            // A command of this user has no more rights, and none of its places lies in the way.
            Err(_) if lookup.barrier.is_some() && self.insistence == Insistence::WherePossible => {
                self.denied.unreachable.push(path.to_owned());
                return Ok(());
            }
            Err(error) => return refuse(format!("cannot be examined: {error}")),
        };
        if let Some((what, place)) = self.needed.iter().find(|(_, place)| place.starts_with(&real)) {
            return refuse(format!("would hide {what}, {}", quote(place)));
        }
        if let Some(place) = self.system.iter().find(|place| place.starts_with(&real)) {
            return refuse(format!("would hide {}, which every command needs", quote(place)));
        }
        if let Some(tree) = MADE_ANEW.iter().find(|tree| real.starts_with(tree)) {
            return refuse(format!("lies in {tree}, which is another one inside"));
        }
        let replaceable = lookup.links.into_iter().filter(|link| self.is_writable(link)).collect::<Vec<_>>();
        self.denied.by_link.extend(replaceable);
        match metadata {
            None if self.is_writable(&real) => self.denied.absent_inside.push(real),
            None => self.denied.absent.push(real),
            Some(_) if lookup.barrier.is_some() => self.denied.unreachable.push(real),
            Some(metadata) => {
                if self.found.iter().any(|cover| cover.path == real) {
                    return Ok(());
                }
                let others = self.mounts.as_ref().map(|mounts| mounts.other_names(&real)).unwrap_or_default();
                self.found.push(Cover { path: real, directory: metadata.is_dir() });
                // By a mount of the same file system elsewhere it is there as well.
                let made_anew = |name: &PathBuf| MADE_ANEW.iter().any(|tree| name.starts_with(tree));
                for name in others.iter().filter(|name| !made_anew(name)) {
                    self.close(name)?;
                }
            }
        }
        Ok(())
    }

    /// Closes the directory that keeps a command from a path, because it lies in a writable root.
    ///
    /// SECURITY: nobody gets to the path now, not even we to put a wall there. But the next command may open the directory
    /// again (chmod(2)), and may be the one that closed it.
    fn close_barrier(&mut self, path: &Path, barrier: &Path) -> Result<(), SandboxError> {
        let closed = self.close(barrier);
        self.cornered |= closed.is_err();
        closed.map_err(|_| SandboxError::InvalidPolicy {
            detail: format!(
                "denied read {} lies in {}, which is closed to everybody and which the command can open; open it (chmod \
                 u+rwx), or leave it out of the writable roots",
                quote(path),
                quote(barrier)
            ),
        })
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|root| path.starts_with(root))
    }

    /// Puts the walls together; `allowed` stays readable where that can be.
    fn end(mut self, allowed: &[PathBuf]) -> Denied {
        let every = outermost(std::mem::take(&mut self.found));
        let mut denied = std::mem::take(&mut self.denied);
        // The name itself must lie in the directory, wherever a link at its end leads.
        let spelled = |path: &PathBuf| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        let allowed: Vec<PathBuf> = allowed.iter().filter_map(spelled).filter(|path| path.exists()).collect();
        for cover in every {
            let inside = |path: &&PathBuf| cover.directory && **path != cover.path && path.starts_with(&cover.path);
            let kept: Vec<PathBuf> = allowed.iter().filter(inside).cloned().collect();
            if kept.is_empty() {
                denied.covers.push(cover);
            } else if self.is_writable(&cover.path) || kept.len() > MOST_KEPT {
                // A writable root is put over hollow directories, so one in it would come back. And each kept name is a
                // mount, and a descriptor of the launcher's.
                denied.not_kept.extend(kept);
                denied.covers.push(cover);
            } else {
                denied.keeps.extend(kept);
                denied.hollows.push(cover.path);
            }
        }
        // SECURITY: what is kept is seen as it was before anything was covered; it must not be, hold or lead to something
        // that is denied on its own.
        let lone: Vec<&Path> = denied.covers.iter().map(|cover| cover.path.as_path()).collect();
        let hollows = &denied.hollows;
        let themselves = |path: &&PathBuf| path.canonicalize().is_ok_and(|real| real == **path);
        let shown: Vec<PathBuf> = denied.keeps.iter().filter(themselves).cloned().collect();
        let is_closed = |path: &PathBuf| {
            path.canonicalize().map_or(true, |real| {
                // A link counts as what it leads to: `x.pub` that leads to the key beside it is the key.
                let hidden = hollows.iter().any(|hollow| real.starts_with(hollow) || hollow.starts_with(&real));
                (hidden && !shown.iter().any(|kept| real.starts_with(kept)))
                    || lone.iter().any(|denied| real.starts_with(denied) || denied.starts_with(&real))
            })
        };
        denied.keeps.retain(|path| !is_closed(path));
        let covered = |path: &PathBuf| {
            denied.covers.iter().any(|cover| cover.directory && path.starts_with(&cover.path))
                || denied.hollows.iter().any(|hollow| path.starts_with(hollow))
        };
        denied.absent.retain(|path| !covered(path));
        denied.absent_inside.retain(|path| !covered(path));
        denied.by_link.sort();
        denied.by_link.dedup();
        find_other_names(&mut denied);
        denied
    }
}

/// More names than this are not kept in one directory.
const MOST_KEPT: usize = 256;

/// How many entries of denied directories are looked at for other names, and how long.
const NAMES_BOUND: (u64, Duration) = (4096, Duration::from_millis(100));

/// Notes files with other names, which the walls do not reach: the files that are denied, and those in directories that are.
fn find_other_names(denied: &mut Denied) {
    let (mut entries, begun) = (0, Instant::now());
    for cover in &denied.covers {
        if !cover.directory {
            let several = cover.path.symlink_metadata().is_ok_and(|found| found.is_file() && found.nlink() > 1);
            denied.linked.extend(several.then(|| cover.path.clone()));
        }
    }
    let directories = denied.covers.iter().filter(|cover| cover.directory).map(|cover| &cover.path);
    for place in directories.chain(&denied.hollows) {
        let mut open = vec![place.clone()];
        'place: while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
                entries += 1;
                if entries > NAMES_BOUND.0 || begun.elapsed() > NAMES_BOUND.1 {
                    denied.unsearched.push(place.clone());
                    break 'place;
                }
                let Ok(found) = entry.metadata() else { continue };
                if found.is_dir() {
                    open.push(entry.path());
                } else if found.is_file() && found.nlink() > 1 {
                    denied.linked.push(entry.path());
                }
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(paths: &[&Path], needed: &Needed<'_>) -> Result<Denied, String> {
        let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
        let restrictions = Restrictions { denied_reads: paths, ..Restrictions::default() };
        resolve(&restrictions, needed, &[], Insistence::Required).map_err(|error| error.to_string())
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
        // If nobody insists, it stays open and is noted.
        let restrictions = Restrictions { denied_reads: vec![workspace.clone()], ..Restrictions::default() };
        let found = resolve(&restrictions, &needed, &[], Insistence::WherePossible).unwrap();
        assert!(found.covers.is_empty() && !found.is_empty());
        assert_eq!(found.skipped, [workspace]);
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
