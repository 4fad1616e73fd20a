//! Device nodes of the host that a command without mounts of its own can open for reading.
//!
//! Landlock as we use it governs no reading, and some drivers act when a node is opened: a console is allocated, a tape
//! rewinds, a watchdog starts, a serial line resets what hangs on it. So the report names those that are in reach.

use rustix::fs::{Access, AtFlags, CWD, accessat, major, minor};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// As many names as are looked at; more than any host has, and nobody waits for a search.
const MOST: usize = 20_000;

/// Directories below `/dev` of what is no device, or a terminal: the promise about terminals speaks of those.
const OTHERS: [&str; 4] = ["pts", "shm", "mqueue", "hugepages"];

/// Character devices whose opening does nothing, by major and minor number: null, zero, full, random, urandom, kmsg; tty, ptmx;
/// autofs, fuse, kvm, tun. Their requests are refused.
const HARMLESS: [(u32, u32); 12] =
    [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (1, 11), (5, 0), (5, 2), (10, 235), (10, 229), (10, 232), (10, 200)];

/// Looks for them; sorted.
pub(crate) fn openable() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let (mut todo, mut left) = (vec![PathBuf::from("/dev")], MOST);
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            left = left.saturating_sub(1);
            let (path, kind) = (entry.path(), entry.file_type());
            match kind {
                _ if left == 0 => {}
                Ok(kind) if kind.is_dir() && !OTHERS.iter().any(|other| entry.file_name() == *other) => todo.push(path),
                Ok(kind) if (kind.is_char_device() || kind.is_block_device()) && acts(&path) => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn acts(node: &Path) -> bool {
    let Ok(file) = node.symlink_metadata() else { return false };
    let numbers = (major(file.rdev()), minor(file.rdev()));
    let harmless = file.file_type().is_char_device() && HARMLESS.contains(&numbers);
    !harmless && accessat(CWD, node, Access::READ_OK, AtFlags::EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_program_opens_is_not_among_them_and_root_has_some() {
        let found = openable();
        for name in ["null", "zero", "full", "random", "urandom", "tty", "ptmx"] {
            assert!(!found.contains(&Path::new("/dev").join(name)), "{name}");
        }
        for node in &found {
            let kind = node.symlink_metadata().unwrap().file_type();
            assert!(kind.is_char_device() || kind.is_block_device());
        }
    }
}
