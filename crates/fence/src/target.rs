//! What a path stands for: a key that all spellings share, and what a look at it tells.

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Identifies a file whatever name led to it, also one that does not exist yet.
///
/// The key is opaque: it is compared and stored, never parsed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    key: Vec<u8>,
    display: PathBuf,
}

impl Target {
    pub(crate) fn new(physical: &Path, display: &Path) -> Self {
        Self { key: physical.as_os_str().as_bytes().to_owned(), display: display.to_owned() }
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the path as the caller spelled it, absolute.
    pub fn display(&self) -> &Path {
        &self.display
    }

    /// Returns the path with every link resolved.
    pub fn process_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.key))
    }

    /// Returns whether a path lies in this directory or is it, by their physical spelling.
    pub fn contains(&self, other: &Target) -> bool {
        other.process_path().starts_with(self.process_path())
    }

    /// Returns the `file:` address of the physical path, with every byte but unreserved ones and `/` encoded.
    pub fn file_url(&self) -> String {
        let mut url = String::from("file://");
        for byte in &self.key {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    url.push(char::from(*byte))
                }
                other => url.push_str(&format!("%{other:02X}")),
            }
        }
        url
    }
}

/// Stands for one state of one file: device, inode, size, and the times of its content and of its entry.
///
/// The times are those of the kernel, whose clock moves in steps: two changes of equal size within one step (some
/// milliseconds before Linux 6.13) may give one version if the file was changed in place. What this crate writes is a new
/// inode each time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(String);

impl Version {
    pub(crate) fn of(stat: &Stat) -> Self {
        let (content, entry) = ((stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec));
        Self(format!(
            "{:x}:{:x}:{:x}:{}.{:09}:{}.{:09}",
            stat.st_dev, stat.st_ino, stat.st_size, content.0, content.1, entry.0, entry.1
        ))
    }

    /// Takes a version that was kept as text.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the version as text; it is compared, never parsed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// Names what kind of thing is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; only where links are not followed.
    Symlink,
    /// A socket, a pipe, a device, or a link that leads nowhere.
    Other,
}

impl Kind {
    pub(crate) fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            _ => Self::Other,
        }
    }
}

/// Tells what a look at a file found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Look {
    /// Its state.
    pub version: Version,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// Its permission bits (07777).
    pub mode: u32,
    /// How many names it has.
    pub links: u64,
    /// When its content was changed last, in milliseconds of Unix time.
    pub modified: i64,
}

impl Look {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            version: Version::of(stat),
            kind: Kind::of(stat),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            links: links(stat),
            modified: stat
                .st_mtime
                .saturating_mul(1000)
                .saturating_add(i64::try_from(stat.st_mtime_nsec).unwrap_or(0) / 1_000_000),
        }
    }
}

/// How many names a file has.
pub(crate) fn links(stat: &Stat) -> u64 {
    #[allow(clippy::unnecessary_cast)] // the type of the field depends on the architecture
    let links = stat.st_nlink as u64;
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_encodes_what_is_not_plain() {
        let target = Target::new(Path::new("/a b/\u{e4}%"), Path::new("x"));
        assert_eq!(target.file_url(), "file:///a%20b/%C3%A4%25");
    }

    #[test]
    fn a_directory_contains_itself_and_not_its_sibling() {
        let of = |path: &str| Target::new(Path::new(path), Path::new(path));
        assert!(of("/ws").contains(&of("/ws")) && of("/ws").contains(&of("/ws/x")) && of("/").contains(&of("/x")));
        assert!(!of("/ws").contains(&of("/ws2")));
    }
}
