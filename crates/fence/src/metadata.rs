//! What a file keeps when its content is replaced by another inode's: owner, group, mode, access list, attributes; and
//! what it loses. As with a write in place, the kernel's marks of trust (set-id bits, file capabilities) do not outlive a
//! change of content.
//!
//! References: chown(2), chmod(2), xattr(7), acl(5), write(2) (clearing of set-id bits).

use rustix::fs::{Gid, IFlags, Mode, Stat, Uid, XattrFlags};
use rustix::io::Errno;
use serde::Serialize;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

/// Names something that a file had before its content was replaced and has no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "what", content = "detail")]
pub enum Lost {
    /// The owner: the file belongs to this process's user now.
    Owner(u32),
    /// The group; the permissions of the group were narrowed to those of everybody.
    Group(u32),
    /// Set-user-ID or set-group-ID bits.
    SetId,
    /// An attribute, by name; an access list is `system.posix_acl_access`.
    Attribute(String),
    /// So many other names: they keep the old content.
    OtherNames(u64),
    /// What attributes there were could not be read.
    UnreadAttributes,
    /// A flag of the file system, by name (ioctl_iflags(2)).
    Flag(String),
}

/// Flags that a file keeps, as far as its file system has them. Those against change (immutable, append-only) are not
/// among them: a file that has one is not replaced at all.
const FLAGS: [(IFlags, &str); 6] = [
    (IFlags::NODUMP, "no-dump"),
    (IFlags::NOATIME, "no-atime"),
    (IFlags::NOCOW, "no-copy-on-write"),
    (IFlags::COMPRESSED, "compressed"),
    (IFlags::SYNC, "synchronous"),
    (IFlags::JOURNALING, "journaled-data"),
];

/// Gives a new file, still empty, the flags of the old one, and tells what could not be given.
pub(crate) fn carry_flags(old: &OwnedFd, new: &OwnedFd) -> Vec<Lost> {
    // A file system without flags has none to lose.
    let Ok(had) = rustix::fs::ioctl_getflags(old) else { return Vec::new() };
    let wanted = FLAGS.iter().filter(|(flag, _)| had.contains(*flag));
    let mut lost = Vec::new();
    for (flag, name) in wanted {
        let has = rustix::fs::ioctl_getflags(new).unwrap_or(IFlags::empty());
        let kept = has.contains(*flag) || rustix::fs::ioctl_setflags(new, has | *flag).is_ok();
        if !kept {
            lost.push(Lost::Flag((*name).to_owned()));
        }
    }
    lost
}

/// An access list, as xattr(7) names it.
const ACCESS_LIST: &CStr = c"system.posix_acl_access";

/// Rights that a program has by its file; worthless once the content is another.
const CAPABILITY: &CStr = c"security.capability";

/// Gives a new file what the old one has, and tells what could not be given.
pub(crate) fn carry(old: Option<&OwnedFd>, was: &Stat, new: &OwnedFd) -> rustix::io::Result<Vec<Lost>> {
    let mut lost = Vec::new();
    let is = rustix::fs::fstat(new)?;
    let mut mode = was.st_mode & 0o1777;
    if was.st_mode & 0o6000 != 0 {
        lost.push(Lost::SetId);
    }
    if is.st_uid != was.st_uid && rustix::fs::fchown(new, Some(Uid::from_raw(was.st_uid)), None).is_err() {
        lost.push(Lost::Owner(was.st_uid));
    }
    let mut group_lost = false;
    if is.st_gid != was.st_gid && rustix::fs::fchown(new, None, Some(Gid::from_raw(was.st_gid))).is_err() {
        lost.push(Lost::Group(was.st_gid));
        group_lost = true;
        // SECURITY: the rights of one group must not become those of another.
        mode &= !0o070 | ((mode & 0o007) << 3);
    }
    rustix::fs::fchmod(new, Mode::from_raw_mode(mode))?;
    match old {
        Some(old) => attributes(old, new, group_lost, &mut lost)?,
        None => lost.push(Lost::UnreadAttributes),
    }
    if was.st_nlink > 1 {
        lost.push(Lost::OtherNames(crate::target::links(was) - 1));
    }
    Ok(lost)
}

fn attributes(old: &OwnedFd, new: &OwnedFd, group_lost: bool, lost: &mut Vec<Lost>) -> rustix::io::Result<()> {
    let names = match names(old) {
        Ok(names) => names,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(_) => {
            lost.push(Lost::UnreadAttributes);
            return Ok(());
        }
    };
    let has_list = names.iter().any(|name| name.as_c_str() == ACCESS_LIST);
    // What the directory gives new files by default is not what this file had.
    if !has_list && self::names(new).is_ok_and(|names| names.iter().any(|name| name.as_c_str() == ACCESS_LIST)) {
        rustix::fs::fremovexattr(new, ACCESS_LIST)?;
    }
    for name in names {
        let is_list = name.as_c_str() == ACCESS_LIST;
        let kept = name.as_c_str() != CAPABILITY && !(is_list && group_lost) && copy(old, new, &name).is_ok();
        if !kept {
            lost.push(Lost::Attribute(name.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}

fn names(file: &OwnedFd) -> rustix::io::Result<Vec<CString>> {
    let size = rustix::fs::flistxattr_query(file)?;
    if size == 0 {
        return Ok(Vec::new());
    }
    // RACE: the list may grow meanwhile; then this fails, and the attributes count as lost.
    let mut buffer = vec![0; size];
    let size = rustix::fs::flistxattr(file, &mut buffer[..])?;
    buffer.truncate(size);
    Ok(buffer.split(|byte| *byte == 0).filter(|name| !name.is_empty()).filter_map(|it| CString::new(it).ok()).collect())
}

fn copy(old: &OwnedFd, new: &OwnedFd, name: &CStr) -> rustix::io::Result<()> {
    let size = rustix::fs::fgetxattr_query(old, name)?;
    let mut value = vec![0; size];
    let size = if size == 0 { 0 } else { rustix::fs::fgetxattr(old, name, &mut value[..])? };
    match rustix::fs::fsetxattr(new, name, &value[..size], XattrFlags::empty()) {
        Err(_) if rustix::fs::fgetxattr(new, name, &mut vec![0; size.max(1)][..]).is_ok_and(|has| has == size) => {
            // A label that the system gave by itself may be the same; only if it is not, something is lost.
            let mut given = vec![0; size];
            rustix::fs::fgetxattr(new, name, &mut given[..])?;
            if given == value { Ok(()) } else { Err(Errno::PERM) }
        }
        other => other,
    }
}
