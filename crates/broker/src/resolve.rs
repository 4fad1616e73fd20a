//! From a path as the command wrote it to a directory that we hold open and a name in it (path_resolution(7)).
//!
//! The kernel resolves for us where it comes to what the command would come to: an absolute path below the command's root
//! directory, or a relative one without links. Everything else is walked name by name: links in relative paths, `/proc/self`,
//! which must mean the caller, and errors, which must be exactly the kernel's.
//!
//! SECURITY: `/proc` has links that lead into other processes. We could follow those of processes that the command may not
//! look into, so we follow none but the caller's own.

use crate::caller::{Caller, Outcome, Refusal};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, openat, openat2, readlinkat, statat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// A symbolic link may lead to another this often.
const MOST_LINKS: u32 = 40;
const PROC: i64 = rustix::fs::PROC_SUPER_MAGIC;

/// A name in a directory that is open; the name is never followed.
#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) parent: OwnedFd,
    /// `.` and `..` are possible; no slash.
    pub(crate) name: Vec<u8>,
    /// A slash stood behind it: it has to be a directory.
    pub(crate) slash: bool,
}

impl Name {
    /// The name with its slash, as a call takes it relative to the directory.
    pub(crate) fn spelled(&self) -> Vec<u8> {
        let mut name = self.name.clone();
        if self.slash {
            name.push(b'/');
        }
        name
    }
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) struct Found {
    /// Where it is; none for what a descriptor of the caller's has open.
    pub(crate) name: Option<Name>,
    /// What it is; none if nothing is there.
    pub(crate) object: Option<Object>,
}

/// A file of any type, as a handle.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) handle: OwnedFd,
    pub(crate) stat: Stat,
}

impl Object {
    pub(crate) fn of(handle: OwnedFd) -> Outcome<Self> {
        let stat = fstat(&handle)?;
        Ok(Self { handle, stat })
    }

    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    pub(crate) fn is_device(&self) -> bool {
        matches!(self.kind(), FileType::CharacterDevice | FileType::BlockDevice)
    }
}

/// A directory, or a place in the caller's own part of `/proc`.
#[derive(Debug)]
enum Place {
    Directory(OwnedFd),
    OwnProcess,
    OwnTasks,
    OwnDescriptors,
}

impl Caller<'_> {
    /// Resolves all but the last name of a path.
    pub(crate) fn name(&self, directory: i32, path: &[u8]) -> Outcome<Name> {
        let mut links = 0;
        let (place, name, slash) = self.last_name(self.start(directory, path)?, path, &mut links)?;
        match place {
            Place::Directory(parent) => Ok(Name { parent, name, slash }),
            // Nothing can be made, moved or removed there.
            _ => Err(Errno::ACCESS.into()),
        }
    }

    /// Resolves a path; a link at its end is followed unless `follow` is false and no slash stands behind it.
    pub(crate) fn find(&self, directory: i32, path: &[u8], follow: bool) -> Outcome<Found> {
        let mut links = 0;
        let mut path = path.to_vec();
        let mut start = self.start(directory, &path)?;
        loop {
            let (place, name, slash) = self.last_name(start, &path, &mut links)?;
            let parent = match place {
                Place::Directory(parent) => parent,
                place => {
                    let object = Object::of(self.own_link(&place, &name, follow)?)?;
                    if slash && object.kind() != FileType::Directory {
                        return Err(Errno::NOTDIR.into());
                    }
                    return Ok(Found { name: None, object: Some(object) });
                }
            };
            let handle = match open_handle(parent.as_fd(), &name) {
                Ok(handle) => handle,
                Err(Errno::NOENT) => {
                    return Ok(Found { name: Some(Name { parent, name, slash }), object: None });
                }
                Err(errno) => return Err(errno.into()),
            };
            let object = Object::of(handle)?;
            match object.kind() {
                FileType::Symlink if follow || slash => {
                    links += 1;
                    let target = self.link_target(&parent, &name, links)?;
                    start = if target.first() == Some(&b'/') { self.root()? } else { parent };
                    path = target;
                    if slash {
                        path.push(b'/');
                    }
                }
                kind if slash && kind != FileType::Directory => return Err(Errno::NOTDIR.into()),
                _ => return Ok(Found { name: Some(Name { parent, name, slash }), object: Some(object) }),
            }
        }
    }

    /// What must be there.
    pub(crate) fn object(&self, directory: i32, path: &[u8], follow: bool) -> Outcome<Object> {
        self.find(directory, path, follow)?.object.ok_or(Errno::NOENT.into())
    }

    fn root(&self) -> Outcome<OwnedFd> {
        Ok(self.server.root.try_clone().map_err(|_| Errno::NFILE)?)
    }

    /// Where a path starts.
    fn start(&self, directory: i32, path: &[u8]) -> Outcome<OwnedFd> {
        match path.first() {
            None => Err(Errno::NOENT.into()),
            Some(b'/') => self.root(),
            Some(_) if directory == libc::AT_FDCWD => self.working_directory(),
            Some(_) => self.descriptor(directory),
        }
    }

    fn last_name(&self, start: OwnedFd, path: &[u8], links: &mut u32) -> Outcome<(Place, Vec<u8>, bool)> {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let slash = end < path.len();
        let before = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let name = if end == 0 { b".".to_vec() } else { path[before..end].to_vec() };
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG.into());
        }
        let above = if end == 0 { path } else { &path[..before] };
        Ok((self.walk_to(start, above, links)?, name, slash))
    }

    /// Resolves a whole path to a directory.
    fn walk_to(&self, start: OwnedFd, path: &[u8], links: &mut u32) -> Outcome<Place> {
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let found = if path.is_empty() {
            // A descriptor that is no directory is found out here.
            if FileType::from_raw_mode(fstat(&start)?.st_mode) != FileType::Directory {
                return Err(Errno::NOTDIR.into());
            }
            return if on_proc(&start)? { self.walk(start, b".", links) } else { Ok(Place::Directory(start)) };
        } else if path[0] == b'/' {
            let below = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            openat2(&self.server.root, path, directory, Mode::empty(), below)
        } else {
            openat2(&start, path, directory, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        };
        match found {
            Ok(found) if !on_proc(&found)? => Ok(Place::Directory(found)),
            _ => self.walk(start, path, links),
        }
    }

    /// The same, name by name.
    fn walk(&self, start: OwnedFd, path: &[u8], links: &mut u32) -> Outcome<Place> {
        let mut rest: Vec<Vec<u8>> = names(path).rev().collect();
        let mut place = Place::Directory(start);
        while let Some(name) = rest.pop() {
            place = match place {
                Place::OwnProcess => match name.as_slice() {
                    b"." => Place::OwnProcess,
                    b"fd" => Place::OwnDescriptors,
                    b"task" => Place::OwnTasks,
                    _ => Place::Directory(self.own_link(&Place::OwnProcess, &name, true)?),
                },
                Place::OwnTasks => match name.as_slice() {
                    b"." => Place::OwnTasks,
                    name if name.iter().all(u8::is_ascii_digit) || name == b".." => Place::OwnProcess,
                    _ => return Err(Errno::NOENT.into()),
                },
                Place::OwnDescriptors => match name.as_slice() {
                    b"." => Place::OwnDescriptors,
                    b".." => Place::OwnProcess,
                    _ => Place::Directory(self.own_link(&Place::OwnDescriptors, &name, true)?),
                },
                Place::Directory(at) => self.step(at, &name, &mut rest, links)?,
            };
        }
        Ok(place)
    }

    fn step(&self, at: OwnedFd, name: &[u8], rest: &mut Vec<Vec<u8>>, links: &mut u32) -> Outcome<Place> {
        match name {
            b"." => return Ok(Place::Directory(at)),
            b".." => {
                let here = fstat(&at)?;
                let root = fstat(&self.server.root)?;
                if (here.st_dev, here.st_ino) == (root.st_dev, root.st_ino) {
                    return Ok(Place::Directory(at));
                }
                return Ok(Place::Directory(open_handle(at.as_fd(), b"..")?));
            }
            _ => {}
        }
        let in_proc = on_proc(&at)?;
        let top_of_proc = in_proc && fstat(&at)?.st_ino == 1;
        if top_of_proc && (name == b"self" || name == b"thread-self" || self.own_number()?.as_bytes() == name) {
            return Ok(Place::OwnProcess);
        }
        let next = open_handle(at.as_fd(), name)?;
        match FileType::from_raw_mode(fstat(&next)?.st_mode) {
            FileType::Directory => Ok(Place::Directory(next)),
            FileType::Symlink if in_proc && !top_of_proc => Err(Errno::ACCESS.into()),
            FileType::Symlink => {
                *links += 1;
                let target = self.link_target(&at, name, *links)?;
                rest.extend(names(&target).rev());
                Ok(Place::Directory(if target.first() == Some(&b'/') { self.root()? } else { at }))
            }
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    fn link_target(&self, parent: &OwnedFd, name: &[u8], links: u32) -> Outcome<Vec<u8>> {
        if links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        if on_proc(parent)? && fstat(parent)?.st_ino != 1 {
            return Err(Errno::ACCESS.into());
        }
        let target = readlinkat(parent, name, Vec::new())?.into_bytes();
        if target.is_empty() { Err(Errno::NOENT.into()) } else { Ok(target) }
    }

    /// A link of the caller's own part of `/proc`: what it leads to.
    fn own_link(&self, place: &Place, name: &[u8], follow: bool) -> Outcome<OwnedFd> {
        let text = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let found = match (place, text) {
            (Place::OwnDescriptors, number) => {
                let number = number.parse().map_err(|_| Errno::NOENT)?;
                self.descriptor(number).map_err(|refusal| match refusal {
                    Refusal::Errno(Errno::BADF) => Errno::NOENT.into(),
                    other => other,
                })?
            }
            (Place::OwnProcess, "cwd") => self.working_directory()?,
            (Place::OwnProcess, "root") => self.root()?,
            (Place::OwnProcess, "exe") => self.executable()?,
            // Everything else of one's own is read-only or refused by the walls.
            _ => return Err(Errno::ACCESS.into()),
        };
        if follow { Ok(found) } else { Err(Errno::LOOP.into()) }
    }

    /// Whether something has this absolute name, which has been resolved.
    pub(crate) fn exists(&self, path: &std::path::Path) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let below = path.as_os_str().as_bytes();
        let below = below.strip_prefix(b"/").unwrap_or(below);
        // What cannot be looked at might be there.
        !matches!(statat(&self.server.root, below, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT | Errno::NOTDIR))
    }
}

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec)
}

fn open_handle(at: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

pub(crate) fn on_proc(directory: &OwnedFd) -> Result<bool, Errno> {
    Ok(fstatfs(directory)?.f_type == PROC)
}
