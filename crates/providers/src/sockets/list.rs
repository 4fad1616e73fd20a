//! The kernel's list of unix sockets that are bound to a file, and which of them a path leads to.
//!
//! The list (sock_diag(7)) has the name as it was given to bind(2), which may be relative, and the file that was made. So a
//! name that leads to that file is found, and a file that no name is known for is counted. Without sock_diag there is
//! `/proc/net/unix`: absolute names, no files, and nobody knows what is missing.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// What is known of the bound sockets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Names of those that may be found by them, absolute.
    pub(super) names: Vec<PathBuf>,
    /// How many are bound to a file that no name leads to; none where the kernel does not say.
    pub(super) lost: Option<usize>,
}

/// One socket of the list.
#[derive(Debug, PartialEq, Eq)]
struct Bound {
    name: PathBuf,
    device: (u32, u32),
    /// The lower 32 bits: the kernel gives no more.
    inode: u32,
}

/// Looks at the kernel's list.
pub(super) fn found() -> Found {
    let Some(all) = listed() else {
        return Found { names: named(&std::fs::read("/proc/net/unix").unwrap_or_default()), lost: None };
    };
    let mut directories = None;
    let (mut names, mut lost) = (Vec::new(), 0);
    for bound in all {
        if bound.name.is_absolute() {
            match bound.is_at(&bound.name) {
                // Nobody who has no more rights than we reaches it by this name.
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
                Ok(true) => {}
                _ => lost += 1,
            }
            names.push(bound.name);
            continue;
        }
        // Whoever has bound it stood in the directory then, and mostly does so now; looked at only if there is such a name.
        let directories = directories.get_or_insert_with(working_directories);
        let place = directories.iter().map(|directory| directory.join(&bound.name));
        match place.into_iter().find(|path| bound.is_at(path).unwrap_or(false)) {
            Some(path) => names.push(path),
            None => lost += 1,
        }
    }
    Found { names, lost: Some(lost) }
}

impl Bound {
    fn is_at(&self, path: &Path) -> std::io::Result<bool> {
        let file = path.metadata()?;
        let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        // A file system that is put together from others (overlayfs) says another device than the list does.
        let same = file.ino() as u32 == self.inode && (device == self.device || path == self.name);
        Ok(file.file_type().is_socket() && same)
    }
}

/// The working directories of all processes that we may ask, each once.
fn working_directories() -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = processes.filter(|entry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit));
    let mut found: Vec<_> = numbered.filter_map(|entry| std::fs::read_link(entry.path().join("cwd")).ok()).collect();
    found.sort();
    found.dedup();
    found
}

const HEADER: usize = 16;
const DONE: u16 = 3; // NLMSG_DONE
const ERROR: u16 = 2; // NLMSG_ERROR

/// Asks the kernel; `None` if it has no such list, or gives it to nobody here.
fn listed() -> Option<Vec<Bound>> {
    const BY_FAMILY: u16 = 20; // SOCK_DIAG_BY_FAMILY
    const REQUEST_DUMP: u16 = 0x301; // NLM_F_REQUEST | NLM_F_DUMP
    const NAME_AND_FILE: u32 = 3; // UDIAG_SHOW_NAME | UDIAG_SHOW_VFS
    let family = AddressFamily::NETLINK;
    let socket = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG)).ok()?;
    let mut request = Vec::with_capacity(HEADER + 24);
    request.extend(40_u32.to_ne_bytes());
    request.extend(BY_FAMILY.to_ne_bytes());
    request.extend(REQUEST_DUMP.to_ne_bytes());
    request.extend([0; 8]);
    // struct unix_diag_req: family, protocol, all states, any inode, what to show, any cookie.
    request.extend([AddressFamily::UNIX.as_raw() as u8, 0, 0, 0]);
    request.extend(u32::MAX.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes());
    request.extend(NAME_AND_FILE.to_ne_bytes());
    request.extend([0; 8]);
    send(&socket, &request, SendFlags::empty()).ok()?;
    let mut all = Vec::new();
    // The kernel fills at most 32 KiB at a time.
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        let (length, whole) = recv(&socket, &mut buffer[..], RecvFlags::empty()).ok()?;
        if whole > length || take(buffer.get(..length)?, &mut all)? {
            return if whole > length { None } else { Some(all) };
        }
    }
}

/// Reads one answer; true at the end of the list, `None` if it makes no sense or is an error.
fn take(mut answer: &[u8], all: &mut Vec<Bound>) -> Option<bool> {
    while answer.len() >= HEADER {
        let length = number(answer)? as usize;
        match u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?) {
            // With the error that ended it, if one did.
            DONE => return (number(answer.get(HEADER..)?)? as i32 >= 0).then_some(true),
            ERROR => return None,
            // struct unix_diag_msg has 16 bytes.
            _ => all.extend(bound(answer.get(HEADER + 16..length)?)),
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(false)
}

/// A socket of the list from its attributes, if it is bound to a file.
fn bound(mut attributes: &[u8]) -> Option<Bound> {
    let (mut name, mut file) = (None, None);
    while attributes.len() >= 4 {
        let length = u16::from_ne_bytes(attributes[..2].try_into().ok()?) as usize;
        let value = attributes.get(4..length)?;
        match u16::from_ne_bytes(attributes[2..4].try_into().ok()?) {
            // UNIX_DIAG_NAME: the name may be followed by NUL; that of an abstract socket begins with it.
            0 => name = value.split(|byte| *byte == 0).next().filter(|name| !name.is_empty()),
            // UNIX_DIAG_VFS: inode and device, as the kernel itself packs it.
            1 => file = Some((number(value)?, number(value.get(4..)?)?)),
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    let ((inode, device), name) = (file?, name?);
    let device = (device >> 20, device & 0xf_ffff);
    Some(Bound { name: PathBuf::from(OsStr::from_bytes(name)), device, inode })
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// The absolute paths of `/proc/net/unix`; one with a line break in it cannot be told.
fn named(table: &[u8]) -> Vec<PathBuf> {
    let path = |line: &[u8]| {
        let mut rest = line;
        for _ in 0..7 {
            let start = rest.iter().position(|byte| *byte != b' ')?;
            let end = start + rest[start..].iter().position(|byte| *byte == b' ')?;
            rest = &rest[end..];
        }
        let path = rest.strip_prefix(b" ").filter(|path| path.starts_with(b"/"))?;
        Some(PathBuf::from(OsStr::from_bytes(path)))
    };
    table.split(|byte| *byte == b'\n').filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_kernels_table_is_read_with_spaces_and_without_what_has_no_path() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/a b  c\n\
            0000000000000000: 00000003 00000000 00000000 0001 03   568\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 9 @/tmp/abstract\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 9 relative\n";
        assert_eq!(named(table), [Path::new("/run/a b  c")]);
    }

    #[test]
    fn the_list_has_the_file_of_each_socket_and_knows_when_its_name_has_gone() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().canonicalize().unwrap().join("line\nbreak");
        let _held = UnixListener::bind(&path).unwrap();
        let of = |path: &Path| listed().expect("this kernel has the list").into_iter().find(|bound| bound.name == path);
        let bound = of(&path).expect("it is in the list");
        assert!(bound.is_at(&path).unwrap() && found().names.contains(&path));
        std::fs::rename(&path, base.path().join("moved")).unwrap();
        assert!(bound.is_at(&path).is_err() && found().lost.is_some_and(|lost| lost > 0));
        let _other = UnixListener::bind(&path).unwrap();
        assert!(!bound.is_at(&path).unwrap());
        assert!(bound.is_at(&base.path().join("moved")).unwrap());
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_none() {
        let mut all = Vec::new();
        assert_eq!(take(&[], &mut all), Some(false));
        let message = |kind: u16, length: u32, rest: &[u8]| {
            [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], rest].concat()
        };
        assert_eq!(take(&message(DONE, 20, &[0; 4]), &mut all), Some(true));
        assert_eq!(take(&message(DONE, 20, &(-2_i32).to_ne_bytes()), &mut all), None);
        assert_eq!(take(&message(ERROR, 20, &[0; 4]), &mut all), None);
        assert_eq!(take(&message(20, 4096, &[0; 16]), &mut all), None);
        assert_eq!(take(&message(20, 3, &[0; 16]), &mut all), None);
        // An attribute that is longer than its message, and one without a length.
        for attribute in [[64, 0, 1, 0], [0, 0, 1, 0]] {
            assert_eq!(bound(&attribute), None);
        }
        assert!(all.is_empty());
    }
}
