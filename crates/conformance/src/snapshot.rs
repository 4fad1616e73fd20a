//! What a directory tree looks like from outside: everything that a file effect can change, except access times.

use crate::errno::Errno;
use crate::sys;
use crate::sys::{c, close, open, read, write};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Everything below one directory, the directory itself included, by path relative to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<PathBuf, Entry>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    inode: u64,
    kind_and_mode: u32,
    uid: u32,
    gid: u32,
    links: u64,
    device: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// Only compared where the caller asks.
    accessed: (i64, i64),
    content: Vec<u8>,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    flags: u64,
    version: u32,
}

impl Snapshot {
    /// Looks at a tree without moving any access time of a file.
    ///
    /// # Errors
    ///
    /// That of a call that reads what is there; a name that goes away meanwhile is left out.
    pub fn take(root: &Path) -> Result<Snapshot, Errno> {
        let mut snapshot = Snapshot::default();
        let mut todo = vec![PathBuf::new()];
        while let Some(relative) = todo.pop() {
            let path = if relative.as_os_str().is_empty() { root.to_path_buf() } else { root.join(&relative) };
            let Some(entry) = look(&path)? else { continue };
            if entry.kind_and_mode & libc::S_IFMT == libc::S_IFDIR {
                for child in std::fs::read_dir(&path)? {
                    todo.push(relative.join(child?.file_name()));
                }
            }
            snapshot.0.insert(relative, entry);
        }
        Ok(snapshot)
    }

    /// What differs, by path relative to the root, in words. Access times count only below `accessed`.
    #[must_use]
    pub fn changes(&self, after: &Snapshot, accessed: &Path) -> Vec<(PathBuf, String)> {
        let mut changes = Vec::new();
        for (path, entry) in &self.0 {
            match after.0.get(path) {
                None => changes.push((path.clone(), "removed".to_owned())),
                Some(now) => {
                    let count_access =
                        path.starts_with(accessed) && entry.kind_and_mode & libc::S_IFMT == libc::S_IFREG;
                    let words = entry.difference(now, count_access);
                    if !words.is_empty() {
                        changes.push((path.clone(), words));
                    }
                }
            }
        }
        for path in after.0.keys().filter(|p| !self.0.contains_key(*p)) {
            changes.push((path.clone(), "created".to_owned()));
        }
        changes
    }
}

impl Entry {
    fn difference(&self, now: &Entry, count_access: bool) -> String {
        let mut words = String::new();
        let mut note = |name: &str, same: bool| {
            if !same {
                // Writing to a String cannot fail.
                let _ = write!(words, "{}{name}", if words.is_empty() { "" } else { ", " });
            }
        };
        note("inode", self.inode == now.inode);
        note("mode", self.kind_and_mode == now.kind_and_mode);
        note("owner", (self.uid, self.gid) == (now.uid, now.gid));
        note("links", self.links == now.links);
        note("device", self.device == now.device);
        note("content", self.content == now.content && self.size == now.size);
        note("attributes", self.attributes == now.attributes);
        note("flags", self.flags == now.flags);
        note("version", self.version == now.version);
        note("mtime", self.modified == now.modified);
        note("ctime", self.changed == now.changed);
        note("atime", !count_access || self.accessed == now.accessed);
        words
    }
}

fn look(path: &Path) -> Result<Option<Entry>, Errno> {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(m) = std::fs::symlink_metadata(path) else {
        return Ok(None);
    };
    let mut entry = Entry {
        inode: m.ino(),
        kind_and_mode: m.mode(),
        uid: m.uid(),
        gid: m.gid(),
        links: m.nlink(),
        device: m.rdev(),
        size: m.size(),
        modified: (m.mtime(), m.mtime_nsec()),
        changed: (m.ctime(), m.ctime_nsec()),
        accessed: (m.atime(), m.atime_nsec()),
        attributes: attributes(path)?,
        ..Entry::default()
    };
    if m.is_symlink() {
        use std::os::unix::ffi::OsStrExt as _;
        entry.content = std::fs::read_link(path)?.as_os_str().as_bytes().to_vec();
    }
    if m.is_dir() {
        // How large a directory is on disk is not an effect by itself; its entries are.
        entry.size = 0;
    }
    if m.is_file() || m.is_dir() {
        let fd = open(&c(path), libc::O_RDONLY | libc::O_NOATIME | libc::O_NOFOLLOW)?;
        // File systems without flags or versions refuse; then there is nothing to compare.
        let _ = sys!(libc::SYS_ioctl, fd, 0x8008_6601u32, write(&mut entry.flags));
        let _ = sys!(libc::SYS_ioctl, fd, 0x8008_7601u32, write(&mut entry.version));
        if m.is_file() {
            entry.content = vec![0; m.size() as usize];
            let size = entry.content.len();
            let n = sys!(libc::SYS_pread64, fd, entry.content.as_mut_slice(), size, 0)?;
            entry.content.truncate(n as usize);
        }
        close(fd);
    }
    Ok(Some(entry))
}

fn attributes(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
    let path = c(path);
    let mut names = vec![0u8; 4096];
    let mut all = BTreeMap::new();
    let n = match sys!(libc::SYS_llistxattr, &path, names.as_mut_slice(), 4096usize) {
        Ok(n) => n as usize,
        Err(Errno(libc::EOPNOTSUPP)) => 0,
        Err(e) => return Err(e),
    };
    for name in names[..n].split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0u8; 4096];
        let length = {
            use std::os::unix::ffi::OsStrExt as _;
            let name = c(std::ffi::OsStr::from_bytes(name));
            sys!(libc::SYS_lgetxattr, &path, &name, value.as_mut_slice(), 4096usize)?
        };
        value.truncate(length as usize);
        all.insert(name.to_vec(), value);
    }
    Ok(all)
}

/// Takes away what would keep a tree from being removed: immutable and append-only flags.
pub fn unlock(path: &Path) {
    let Ok(entries) = std::fs::read_dir(path) else {
        return;
    };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            unlock(&entry.path());
        } else if kind.is_file()
            && let Ok(fd) = open(&c(entry.path()), libc::O_RDONLY | libc::O_NOFOLLOW)
        {
            let mut flags = 0u64;
            if sys!(libc::SYS_ioctl, fd, 0x8008_6601u32, write(&mut flags)).is_ok() && flags & 0x30 != 0 {
                flags &= !0x30;
                // Whoever could set the flag can clear it; if not, removing the tree fails and says so.
                let _ = sys!(libc::SYS_ioctl, fd, 0x4008_6602u32, read(&flags));
            }
            close(fd);
        }
    }
}
