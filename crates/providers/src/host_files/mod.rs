//! Which files that tools outside execute or obey a call has created or changed: two looks at its writable roots, compared.
//!
//! It works for every mechanism alike, because it asks none. What it cannot see: what was changed and changed back, who
//! changed something, what lies behind links (but for a protected name in a root that is one), what cannot be read, and
//! whatever is beyond the bounds; the last two it says.
//!
//! | file | what is in it |
//! |---|---|
//! | `walk` | one look |
//! | this one | what is looked at, and what became of it |

mod walk;

use crate::call::HostFileScan;
use crate::protected;
use crate::roots::{PinnedRoot, pin_physical};
use pinfold_policy::{ExecutionPolicy, HostChange, HostFile, HostFileType, HostFiles, Obeyed, Protect, SandboxMode};
use rustix::fs::{AtFlags, FileType, OFlags, statat};
use std::hash::RandomState;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use walk::{Look, Target, look, open_below, since};

/// How far one look goes.
#[derive(Debug, Clone, Copy)]
struct HostFileBounds {
    max_entries: u64,
    max_time: Duration,
    /// How many files are compared.
    files: usize,
    depth: usize,
}

/// How a file was when it was seen.
#[derive(Debug, Clone, Copy)]
struct Seen {
    row: &'static Obeyed,
    kind: FileType,
    mode: u32,
    owner: (u32, u32),
    file: (u64, u64),
    size: i64,
    written: (i64, i64),
    changed: (i64, i64),
    /// A digest of its content, or of what it leads to; none if it is too long.
    content: Option<u64>,
}

/// The writable places of a policy, as they are when a program begins that makes calls of its own: a shell that stays.
#[derive(Debug)]
pub struct HostFilePlaces(Vec<PinnedRoot>);

impl HostFilePlaces {
    /// Finds them. What cannot be pinned is not looked at.
    pub fn of(policy: &ExecutionPolicy) -> Self {
        let writable = match policy.mode {
            SandboxMode::DangerFullAccess => {
                let further = policy.additional_writable_roots.iter();
                std::iter::once(&policy.workspace_root).chain(further).map(PathBuf::as_path).collect()
            }
            _ => policy.writable_roots(),
        };
        let mut roots: Vec<PinnedRoot> =
            writable.into_iter().filter_map(|root| pin_physical(&root.canonicalize().ok()?).ok()).collect();
        roots.sort_by(|one, other| one.path.cmp(&other.path));
        roots.dedup();
        Self(roots)
    }

    /// Looks before something runs, if that is asked.
    pub fn look(&self, scan: HostFileScan) -> Option<HostFileLook> {
        Before::look(&self.0, scan).map(HostFileLook)
    }
}

/// One look at such places.
#[derive(Debug)]
pub struct HostFileLook(Before);

impl HostFileLook {
    /// Looks again, and tells what has changed.
    pub fn compare(self) -> HostFiles {
        self.0.compare()
    }
}

/// The first look, and what the second one needs.
#[derive(Debug)]
pub(crate) struct Before {
    roots: Vec<PinnedRoot>,
    targets: Vec<Target>,
    bounds: HostFileBounds,
    state: RandomState,
    look: Look,
}

impl Before {
    /// Looks for the first time, if that is asked.
    pub(crate) fn look(roots: &[PinnedRoot], scan: HostFileScan) -> Option<Self> {
        let HostFileScan::Compare { max_entries, max_time } = scan else { return None };
        let bounds = HostFileBounds { max_entries, max_time, files: 10_000, depth: 64 };
        let (state, roots) = (RandomState::new(), roots.to_vec());
        let targets = targets(&roots);
        let look = look(&roots, &targets, bounds, &state, None);
        Some(Self { roots, targets, bounds, state, look })
    }

    /// Looks again, and compares.
    pub(crate) fn compare(self) -> HostFiles {
        let mut after = look(&self.roots, &self.targets, self.bounds, &self.state, Some(&self.look));
        self.look_again(&mut after);
        let mut changes: Vec<(&Obeyed, HostFile)> = Vec::new();
        for (path, now) in &after.seen {
            let change = match self.look.seen.get(path) {
                Some(before) => change(before, now),
                // Where the first look did not get to, time has to tell.
                None if !self.look.covers(path) => since(now.changed, self.look.began).then_some(HostChange::Changed),
                None => Some(HostChange::Created),
            };
            changes.extend(change.map(|change| (now.row, now.told(path, change))));
        }
        for (path, before) in &self.look.seen {
            if !after.seen.contains_key(path) {
                changes.push((before.row, before.told(path, HostChange::Removed)));
            }
        }
        changes.sort_by(|(_, one), (_, other)| (one.kind, &one.path).cmp(&(other.kind, &other.path)));
        let more = changes.len().saturating_sub(HostFiles::MOST_LISTED) as u64;
        changes.truncate(HostFiles::MOST_LISTED);
        let mut reasons = self.look.reasons;
        after.reasons.retain(|reason| !reasons.contains(reason));
        reasons.append(&mut after.reasons);
        let changes = changes.into_iter().map(|(_, change)| change).collect();
        HostFiles { changes, more, incomplete: !reasons.is_empty(), reasons }
    }

    /// Looks at what was seen the first time and not met the second time, by its name: it may lie where the second look did not
    /// get to, or not be executable any more.
    fn look_again(&self, after: &mut Look) {
        for (path, before) in &self.look.seen {
            if !after.seen.contains_key(path)
                && let Some(now) = self.seen_at(path, before.row)
            {
                after.seen.insert(path.clone(), now);
            }
        }
    }

    fn seen_at(&self, path: &Path, row: &'static Obeyed) -> Option<Seen> {
        let root = self.roots.iter().find(|root| path.starts_with(&root.path))?;
        let below = path.strip_prefix(&root.path).ok()?;
        let (above, name) = (below.parent()?, below.file_name()?);
        let directory = open_root_directory(root, above)?;
        let stat = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let mut seen = Seen::of(row, &stat);
        seen.read(directory.as_fd(), name, &self.state, usize::MAX);
        Some(seen)
    }
}

/// What became of a file that both looks have seen.
fn change(before: &Seen, now: &Seen) -> Option<HostChange> {
    if before.kind != now.kind {
        return Some(HostChange::Changed);
    }
    let other_rights = (before.mode, before.owner) != (now.mode, now.owner);
    let mode = (other_rights && now.kind != FileType::Symlink).then_some(HostChange::Mode);
    match now.kind {
        // What is in it is told by itself.
        FileType::Directory => return mode,
        FileType::RegularFile | FileType::Symlink => {}
        _ => return (before.changed != now.changed || before.file != now.file).then_some(HostChange::Changed),
    }
    // A file that had just changed may change again without showing it in its times: its content tells.
    match (before.content, now.content) {
        (Some(one), Some(other)) => (one != other || before.size != now.size).then_some(HostChange::Changed).or(mode),
        _ => (!before.is_as(now)).then_some(HostChange::Changed).or(mode),
    }
}

fn open_root_directory(root: &PinnedRoot, above: &Path) -> Option<std::os::fd::OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(rustix::fs::CWD, &root.path, flags, rustix::fs::Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    if (stat.st_dev, stat.st_ino) != (root.device, root.inode) {
        return None;
    }
    open_below(&fd, above, OFlags::PATH | OFlags::DIRECTORY).ok()
}

impl Seen {
    fn told(&self, path: &Path, change: HostChange) -> HostFile {
        let file = match self.kind {
            FileType::RegularFile => HostFileType::File,
            FileType::Directory => HostFileType::Directory,
            FileType::Symlink => HostFileType::Link,
            _ => HostFileType::Other,
        };
        HostFile {
            path: path.to_owned(),
            kind: self.row.kind,
            obeyed_by: self.row.by.to_owned(),
            change,
            file,
            mode: (file != HostFileType::Link).then(|| format!("{:04o}", self.mode)),
        }
    }
}

/// What protected names in the roots lead to, and what the configuration of their repositories names; and what is obeyed in
/// the home directory, if that is writable.
fn targets(roots: &[PinnedRoot]) -> Vec<Target> {
    // SECURITY: nothing is granted by these, so that one cannot be found only leaves it out.
    let found = protected::find(&Protect { default_names: true, patterns: Vec::new() }, roots).unwrap_or_default();
    let home = found.home.iter().flat_map(|home| Obeyed::in_home().map(|(name, row)| (home.join(name), row)));
    let all = found.found.iter().map(|(path, rule)| (path.clone(), Obeyed::target(*rule))).chain(home);
    let below = |(path, row): (PathBuf, &'static Obeyed)| {
        // Of roots in roots the outermost comes first, and is the one that is looked through.
        let root = roots.iter().position(|root| path.starts_with(&root.path) && path != root.path)?;
        let below = path.strip_prefix(&roots[root].path).ok()?.to_owned();
        Some(Target { root, below, row })
    };
    all.filter_map(below).collect()
}

#[cfg(test)]
mod tests;
