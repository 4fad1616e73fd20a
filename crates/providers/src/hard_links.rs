//! Files below a writable root that have names elsewhere. Such a file can be written through its name inside,
//! whatever wall stands at the name outside; nothing stops it, so it is looked for and reported.

use crate::call::HardLinkScan;
use crate::roots::PinnedRoot;
use pinfold_policy::HardLinkFindings;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many files a report names.
const NAMED: usize = 20;
/// How long a finding is used again for the same roots.
const CACHE_LIFE: Duration = Duration::from_secs(30);
/// How many sets of roots are remembered.
const CACHE_SIZE: usize = 64;

/// Remembers findings for a short time.
#[derive(Debug, Default)]
pub(crate) struct HardLinkCache(Mutex<HashMap<Vec<PinnedRoot>, (Instant, HardLinkFindings)>>);

impl HardLinkCache {
    pub(crate) fn search(&self, roots: &[PinnedRoot], scan: HardLinkScan) -> HardLinkFindings {
        let HardLinkScan::Scan { max_entries, max_time } = scan else { return HardLinkFindings::default() };
        if roots.is_empty() {
            return HardLinkFindings::default();
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (when, _)| when.elapsed() < CACHE_LIFE);
        if let Some((_, findings)) = known.get(roots) {
            return findings.clone();
        }
        drop(known);
        let findings = search(roots, max_entries, max_time);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < CACHE_SIZE {
            known.insert(roots.to_vec(), (Instant::now(), findings.clone()));
        }
        findings
    }
}

fn search(roots: &[PinnedRoot], max_entries: u64, max_time: Duration) -> HardLinkFindings {
    let deadline = Instant::now() + max_time;
    let mut findings = HardLinkFindings { scanned: true, complete: true, ..HardLinkFindings::default() };
    // Roots are sorted: one that lies in another comes right after it or after others in it, and is searched with it.
    let mut open: Vec<PathBuf> = Vec::new();
    for root in roots {
        if !open.last().is_some_and(|outer| root.path.starts_with(outer)) {
            open.push(root.path.clone());
        }
    }
    // By identity: how many names there are, how many were found, and one of them.
    let mut files: HashMap<(u64, u64), (u64, u64, PathBuf)> = HashMap::new();
    let mut entries = 0;
    'search: while let Some(directory) = open.pop() {
        let Ok(listing) = std::fs::read_dir(&directory) else {
            // What we cannot list may hold anything.
            findings.complete = false;
            continue;
        };
        for entry in listing {
            entries += 1;
            if entries > max_entries || (entries % 64 == 0 && Instant::now() >= deadline) {
                findings.complete = false;
                break 'search;
            }
            let (Ok(entry), path) = (&entry, entry.as_ref().map(|entry| entry.path()).unwrap_or_default()) else {
                findings.complete = false;
                continue;
            };
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Gone since it was listed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                // What we cannot examine may have names elsewhere.
                Err(_) => {
                    findings.complete = false;
                    continue;
                }
            };
            if metadata.is_dir() {
                open.push(path);
            } else if metadata.nlink() > 1 && !metadata.is_symlink() {
                let names = files.entry((metadata.dev(), metadata.ino())).or_insert((metadata.nlink(), 0, path));
                names.1 += 1;
            }
        }
    }
    let mut outside: Vec<PathBuf> =
        files.into_values().filter(|(names, found, _)| names > found).map(|(_, _, path)| path).collect();
    outside.sort();
    findings.total = outside.len() as u64;
    outside.truncate(NAMED);
    findings.paths = outside;
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::pin_physical;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn only_files_with_names_outside_are_found() {
        let base = tempfile::tempdir().unwrap();
        let (inside, outside) = (base.path().join("in"), base.path().join("out"));
        std::fs::create_dir_all(inside.join("deep")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(inside.join("pair"), "").unwrap();
        std::fs::hard_link(inside.join("pair"), inside.join("deep/pair")).unwrap();
        std::fs::write(outside.join("secret"), "").unwrap();
        std::fs::hard_link(outside.join("secret"), inside.join("deep/alias")).unwrap();
        let root = pin_physical(&inside).unwrap();
        let findings = search(std::slice::from_ref(&root), 1000, LONG);
        assert!(findings.scanned && findings.complete);
        assert_eq!((findings.total, findings.paths), (1, vec![inside.join("deep/alias")]));
        let both = [root, pin_physical(&outside).unwrap()];
        assert_eq!(search(&both, 1000, LONG).total, 0);
    }

    #[test]
    fn a_limit_makes_the_search_incomplete() {
        let base = tempfile::tempdir().unwrap();
        for number in 0..10 {
            std::fs::write(base.path().join(number.to_string()), "").unwrap();
        }
        let root = [pin_physical(&base.path().canonicalize().unwrap()).unwrap()];
        assert!(!search(&root, 5, LONG).complete);
        assert!(search(&root, 10, LONG).complete);
    }

    #[test]
    fn what_cannot_be_examined_makes_the_search_incomplete() {
        use std::os::unix::fs::PermissionsExt as _;
        let base = tempfile::tempdir().unwrap();
        let inner = base.path().join("d");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("alias"), "").unwrap();
        let root = [pin_physical(&base.path().canonicalize().unwrap()).unwrap()];
        let mode = |mode| std::fs::set_permissions(&inner, std::fs::Permissions::from_mode(mode)).unwrap();
        // Listed but not examined, then not even listed; root may do both.
        let all = rustix::process::geteuid().is_root();
        for closed in [0o444, 0] {
            mode(closed);
            assert_eq!(search(&root, 10, LONG).complete, all, "{closed:o}");
        }
        mode(0o755);
        assert!(search(&root, 10, LONG).complete);
    }

    #[test]
    fn a_skipped_search_says_so() {
        let findings = HardLinkCache::default().search(&[], HardLinkScan::Skip);
        assert!(!findings.scanned && !findings.complete);
    }
}
