//! What unfinished writes leave.

use std::path::{Path, PathBuf};

/// Staging files below a directory.
pub(crate) fn litter(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(litter(&entry.path()));
        } else if entry.file_name().to_string_lossy().starts_with(".pinfold-") {
            found.push(entry.path());
        }
    }
    found
}
