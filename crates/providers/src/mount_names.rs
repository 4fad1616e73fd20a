//! Other names that mounts give to a path: the same file system, mounted elsewhere as well.
//!
//! Only what the table of mounts tells: what a file system shows of another (overlayfs, network file systems) is not in it.
//!
//! Reference: proc_pid_mountinfo(5).

use crate::mounts::{Mount, parse};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The mounts of this process, in the order of the table.
#[derive(Debug, Default)]
pub(crate) struct MountTable(Vec<Mount>);

impl MountTable {
    /// Reads the table; one that cannot be read is `None`.
    pub(crate) fn read() -> Option<Self> {
        Some(Self(parse(&std::fs::read("/proc/self/mountinfo").ok()?)))
    }

    /// Other physical paths at which a path, or a part of what lies below it, is there too.
    pub(crate) fn other_names(&self, path: &Path) -> Vec<PathBuf> {
        let Ok(known) = path.symlink_metadata() else { return Vec::new() };
        let same = |one: &Metadata, other: &Path| {
            other.symlink_metadata().is_ok_and(|other| (one.dev(), one.ino()) == (other.dev(), other.ino()))
        };
        let mut names = Vec::new();
        for (name, shown) in self.candidates(path) {
            // What is mounted over a name later hides it.
            let there = match &shown {
                None => same(&known, &name),
                Some(part) => path.join(part).symlink_metadata().is_ok_and(|part| same(&part, &name)),
            };
            if there && !name.starts_with(path) && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Each name, and which part of what lies below the path it shows; `None` is the path itself.
    fn candidates(&self, path: &Path) -> Vec<(PathBuf, Option<PathBuf>)> {
        let mut found = Vec::new();
        // The last of those mounted at the same point is the one that is seen.
        let home = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        let Some(home) = home.max_by_key(|mount| mount.point.components().count()) else { return found };
        let Ok(below) = path.strip_prefix(&home.point) else { return found };
        let inner = join(&home.inner, below);
        for mount in self.0.iter().filter(|mount| mount.device == home.device && !std::ptr::eq(*mount, home)) {
            if let Ok(rest) = inner.strip_prefix(&mount.inner) {
                found.push((join(&mount.point, rest), None));
            } else if let Ok(part) = mount.inner.strip_prefix(&inner) {
                found.push((mount.point.clone(), Some(part.to_owned())));
            }
        }
        found
    }
}

/// Joins without a separator at the end.
fn join(path: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() { path.to_owned() } else { path.join(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_name_for_each_mount_that_shows_it() {
        let table = MountTable(parse(
            b"22 1 8:1 / / rw - ext4 a rw\n\
              23 22 8:1 /home/u /alias rw - ext4 a rw\n\
              24 22 8:1 /home/u/.ssh/deep /part rw - ext4 a rw\n\
              25 22 8:2 /home/u /other rw - ext4 b rw\n\
              26 22 8:1 /homely /near rw - ext4 a rw\n\
              27 22 8:1 / /w\\040hole rw - ext4 a rw\n",
        ));
        let names = |path: &str| {
            let mut names: Vec<_> = table.candidates(Path::new(path)).into_iter().map(|(name, _)| name).collect();
            names.sort();
            names.into_iter().map(|name| name.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("/home/u/.ssh"), ["/alias/.ssh", "/part", "/w hole/home/u/.ssh"]);
        assert_eq!(names("/alias/.ssh/id"), ["/home/u/.ssh/id", "/w hole/home/u/.ssh/id"]);
        assert_eq!(names("/other/x"), [""; 0]);
        assert_eq!(names("/etc"), ["/w hole/etc"]);
    }
}
