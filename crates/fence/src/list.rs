//! The names in a directory.

use crate::error::{FsError, on};
use crate::fence::Fence;
use crate::resolve::{Last, Place};
use crate::rules::Act;
use crate::target::{Kind, Look, Target};
use pinfold_policy::FileErrorCode as Code;
use pinfold_policy::quote::quote;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: OsString,
    /// The file that it leads to.
    pub target: Target,
    /// What that is; a link that leads nowhere, or to what is denied, is [`Kind::Other`].
    pub kind: Kind,
    /// Whether the name is a link.
    pub link: bool,
    /// What a look at it finds; `None` if nothing is there or it may not be looked at.
    pub look: Option<Look>,
}

/// Holds the names in a directory, sorted by their bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The directory.
    pub target: Target,
    /// Its names.
    pub entries: Vec<Entry>,
    /// Whether there are more than the limit.
    pub truncated: bool,
}

/// A directory, open for reading its names.
pub(crate) struct Directory {
    pub(crate) place: Place,
    pub(crate) handle: Arc<OwnedFd>,
}

impl Directory {
    /// Returns the names, sorted by bytes, at most so many; and whether there are more.
    pub(crate) fn names(&self, most: usize) -> rustix::io::Result<(Vec<OsString>, bool)> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = rustix::fs::Dir::new(rustix::fs::openat(&*self.handle, ".", flags, Mode::empty())?)?;
        let (mut names, mut truncated) = (Vec::new(), false);
        for entry in listed {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if names.len() == most {
                truncated = true;
                break;
            }
            names.push(name.to_owned());
        }
        names.sort_unstable();
        Ok((names, truncated))
    }

    pub(crate) fn stat(&self, name: &OsStr) -> rustix::io::Result<Stat> {
        rustix::fs::statat(&*self.handle, name, AtFlags::SYMLINK_NOFOLLOW)
    }
}

impl Fence {
    /// Lists a directory; contents are not read.
    ///
    /// # Errors
    ///
    /// `FS_NOT_FOUND`, `FS_NOT_DIRECTORY`, `FS_PERMISSION_DENIED`, `FS_SANDBOX_DENIED` for a denied path, else
    /// `FS_IO_ERROR`.
    pub fn list(&self, path: &Path) -> Result<Listing, FsError> {
        let absolute = self.absolute(path)?;
        let directory = self.open_directory("list", &absolute)?;
        let (names, truncated) = directory.names(self.options.limits.entries).map_err(on("list", &absolute))?;
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            // RACE: what is gone by now is not in the directory any more.
            let Ok(stat) = directory.stat(&name) else { continue };
            entries.push(self.entry(&directory.place.path, &absolute, name, &stat));
        }
        Ok(Listing { target: Target::new(&directory.place.path, &absolute), entries, truncated })
    }

    fn entry(&self, directory: &Path, display: &Path, name: OsString, stat: &Stat) -> Entry {
        let (physical, shown) = (directory.join(&name), display.join(&name));
        let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if !link {
            let look = (!self.closes(&physical, Some(stat))).then(|| Look::of(stat));
            return Entry { name, target: Target::new(&physical, &shown), kind: Kind::of(stat), link, look };
        }
        let found = self.place(Act::Read, "look at", &physical, Last::Followed);
        let (target, look) = match &found {
            Ok(place) => (Target::new(&place.path, &shown), place.stat.as_ref().map(Look::of)),
            Err(_) => (Target::new(&physical, &shown), None),
        };
        let kind = look.as_ref().map_or(Kind::Other, |look| look.kind);
        Entry { name, target, kind, link, look }
    }

    pub(crate) fn open_directory(&self, verb: &'static str, absolute: &Path) -> Result<Directory, FsError> {
        let place = self.place(Act::Read, verb, absolute, Last::Followed)?;
        match place.kind() {
            None => return Err(FsError::host(verb, absolute, Errno::NOENT)),
            Some(FileType::Directory) => {}
            Some(_) => {
                let text = format!("cannot {verb} {}: it is not a directory", quote(absolute));
                return Err(FsError::new(Code::NotDirectory, text));
            }
        }
        let handle = place.open_directory().map_err(on(verb, absolute))?;
        // SECURITY: the directory that was opened is the one that was decided about.
        let stat = rustix::fs::fstat(&*handle).map_err(on(verb, absolute))?;
        if self.closes(&place.path, Some(&stat)) {
            return Err(FsError::host(verb, absolute, Errno::NOENT));
        }
        Ok(Directory { place, handle })
    }
}
