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
#[serde(from = "String", into = "String")]
pub struct Version(State);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    /// As it was looked at; what it is as text is made when it is wanted.
    Seen { device: u64, inode: u64, size: i64, content: (i64, u64), entry: (i64, u64) },
    /// As it was kept, and in no form that we write.
    Other(String),
}

impl Version {
    pub(crate) fn of(stat: &Stat) -> Self {
        #[allow(clippy::unnecessary_cast)] // the types of the fields depend on the architecture
        Self(State::Seen {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: stat.st_size as i64,
            content: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            entry: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        })
    }

    /// Takes a version that was kept as text.
    pub fn from_text(text: impl Into<String>) -> Self {
        let text = text.into();
        match Self::read(&text) {
            // Only the one form that we write is ours: two texts that differ are two versions.
            Some(version) if version.to_string() == text => version,
            _ => Self(State::Other(text)),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let hexadecimal = |part: &str| u64::from_str_radix(part, 16).ok();
        let moment = |part: &str| {
            let (seconds, nanoseconds) = part.split_once('.')?;
            Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
        };
        let mut parts = text.split(':');
        let mut next = || parts.next();
        let (device, inode) = (hexadecimal(next()?)?, hexadecimal(next()?)?);
        let size = i64::from_str_radix(next()?, 16).ok()?;
        let (content, entry) = (moment(next()?)?, moment(next()?)?);
        next().is_none().then_some(Self(State::Seen { device, inode, size, content, entry }))
    }

    /// Returns whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(&self.0, State::Other(text) if text.is_empty())
    }
}

impl From<String> for Version {
    fn from(text: String) -> Self {
        Self::from_text(text)
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

/// The version as text; it is compared, never parsed by anybody else.
impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            State::Seen { device, inode, size, content, entry } => {
                let (content, entry) = (format_args!("{}.{:09}", content.0, content.1), (entry.0, entry.1));
                write!(f, "{device:x}:{inode:x}:{size:x}:{content}:{}.{:09}", entry.0, entry.1)
            }
            State::Other(text) => f.write_str(text),
        }
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

    /// U451.
    #[test]
    fn a_version_and_its_text_are_one() {
        let folder = tempfile::tempdir().unwrap();
        let version = Version::of(&rustix::fs::stat(folder.path()).unwrap());
        assert_eq!(Version::from_text(version.to_string()), version);
        assert_eq!(serde_json::to_string(&version).unwrap(), format!("\"{version}\""));
        for other in ["", "x", "0:0:0:0.0:0.0", "1:2:3:4.000000005:6.000000007:8", "01:2:3:4.000000005:6.000000007"] {
            assert_eq!(Version::from_text(other).to_string(), other);
        }
        assert_ne!(
            Version::from_text("01:2:3:4.000000005:6.000000007"),
            Version::from_text("1:2:3:4.000000005:6.000000007")
        );
    }

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
