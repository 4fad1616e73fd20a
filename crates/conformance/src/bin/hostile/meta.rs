//! Effects on metadata, and what can be watched or read.

use crate::{Attempt, Target, attempt, uring};
use libc::{AT_EMPTY_PATH, AT_FDCWD, O_PATH, O_RDONLY};
use pinfold_conformance::errno::{Act, Errno};
use pinfold_conformance::sys;
use pinfold_conformance::sys::{Arg, Ended, call, open, read, write};
use std::ffi::CStr;

/// The time that the attempts set: 2001-09-09.
const TIMES: [[i64; 2]; 2] = [[1_000_000_000, 0]; 2];

pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("meta-chmod", "chmod a file", |t| chmod(&t.out("f"), 0o600)),
    attempt("meta-chmod-setuid", "give a file the set-uid bit", |t| chmod(&t.out("f"), 0o4755)),
    attempt("meta-chmod-dir", "chmod a directory", |t| chmod(&t.out("d"), 0o700)),
    attempt("meta-fchmod-rdonly", "fchmod on a descriptor open for reading", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        sys!(libc::SYS_fchmod, fd, 0o600).map(drop)
    }),
    attempt("meta-fchmodat2-opath", "fchmodat2 with an empty path on an O_PATH descriptor", |t| {
        let fd = open(&t.out("f"), O_PATH)?;
        sys!(SYS_FCHMODAT2, fd, c"", 0o600, AT_EMPTY_PATH).map(drop)
    }),
    attempt("meta-chown-self", "chown to the own uid and gid", |t| chown(&t.out("f"), own_uid(), own_gid())),
    attempt("meta-chown-other", "chown to another uid", |t| chown(&t.out("f"), 12345, 12345)),
    attempt("meta-fchown-rdonly", "fchown on a descriptor open for reading", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        sys!(libc::SYS_fchown, fd, own_uid(), own_gid()).map(drop)
    }),
    attempt("meta-utimensat", "set explicit times", |t| {
        sys!(libc::SYS_utimensat, AT_FDCWD, &t.out("f"), read(&TIMES), 0).map(drop)
    }),
    attempt("meta-utime-null", "set times to now", |t| {
        sys!(libc::SYS_utimensat, AT_FDCWD, &t.out("f"), 0, 0).map(drop)
    }),
    attempt("meta-futimens-rdonly", "futimens on a descriptor open for reading", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        sys!(libc::SYS_utimensat, fd, 0, read(&TIMES), 0).map(drop)
    }),
    attempt("meta-setxattr", "set an extended attribute", |t| setxattr(&t.out("f"), c"user.new", b"1")),
    attempt("meta-fsetxattr-rdonly", "fsetxattr on a descriptor open for reading", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        sys!(libc::SYS_fsetxattr, fd, c"user.new", &b"1"[..], 1usize, 0).map(drop)
    }),
    attempt("meta-setxattrat", "set an extended attribute with setxattrat (6.13)", |t| {
        let value = b"1";
        // struct xattr_args: value, size, flags
        let args = [value.as_ptr() as u64, 1u64];
        sys!(463, AT_FDCWD, &t.out("f"), 0, c"user.new", read(&args), 16usize).map(drop)
    }),
    attempt("meta-removexattr", "remove an extended attribute", |t| {
        sys!(libc::SYS_removexattr, &t.out("f"), c"user.pinfold").map(drop)
    }),
    attempt("meta-posix-acl", "set an access list", |t| {
        // version 2; owner rw, user 65534 rwx, group r, mask rwx, others r
        let mut bytes = vec![2u8, 0, 0, 0];
        for (tag, perm, id) in [(1u16, 6u16, !0u32), (2, 7, 65534), (4, 4, !0), (16, 7, !0), (32, 4, !0)] {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(perm.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        setxattr(&t.out("f"), c"system.posix_acl_access", &bytes)
    }),
    attempt("meta-setxattr-capability", "give a file capabilities", |t| {
        let mut bytes = 0x0200_0001u32.to_le_bytes().to_vec();
        bytes.extend([0xff; 4]);
        bytes.extend([0; 12]);
        setxattr(&t.out("f"), c"security.capability", &bytes)
    }),
    attempt("meta-uring-setxattr", "set an extended attribute by io_uring", |t| {
        let path = t.out("f");
        uring::submit(&uring::Entry {
            opcode: 42,
            path: Some(c"user.new"),
            second: Some(c"1"),
            third: Some(&path),
            len: 1,
            ..Default::default()
        })
    }),
    attempt("meta-setflags-nodump", "set the nodump flag", |t| setflags(t, 0x40)),
    attempt("meta-setflags-immutable", "set the immutable flag", |t| setflags(t, 0x10)),
    attempt("meta-fssetxattr", "set flags with FS_IOC_FSSETXATTR", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        let mut attributes = [0u32; 7];
        ioctl(fd, 0x801c_581f, write(&mut attributes))?;
        attributes[0] |= 0x80;
        ioctl(fd, 0x401c_5820, read(&attributes))
    }),
    attempt("meta-file-setattr", "set flags with file_setattr (6.17)", |t| {
        let mut attributes = [0u64; 3];
        let path = t.out("f");
        sys!(468, AT_FDCWD, &path, write(&mut attributes), 24usize, 0)?;
        attributes[0] |= 0x80;
        sys!(469, AT_FDCWD, &path, read(&attributes), 24usize, 0).map(drop)
    }),
    attempt("meta-setversion", "set the inode's version", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        ioctl(fd, 0x4008_7602, read(&4711u32))
    }),
    attempt("meta-setversion-ext4", "set the inode's version by ext4's own number", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        ioctl(fd, 0x4008_6604, read(&4711u32))
    }),
    attempt("meta-setflags-high-bits", "set the nodump flag by a request number with high bits", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        // Those that are set must stay: without its extents flag, ext4 would convert the file, and not always can.
        let mut flags = 0u64;
        ioctl(fd, 0x8008_6601, write(&mut flags))?;
        flags |= 0x40;
        // The kernel looks at 32 bits of it; a filter that looks at 64 sees another number.
        call(libc::SYS_ioctl, &[fd.into(), 0x1_4008_6602u64.into(), read(&flags)]).map(drop)
    }),
    attempt("meta-enable-verity", "enable fs-verity", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        let mut argument = [0u32; 32];
        argument[0] = 1;
        argument[1] = 1;
        argument[2] = 4096;
        ioctl(fd, 0x4080_6685, read(&argument))
    }),
    attempt("meta-atime-by-read", "move the access time by reading", |t| {
        let before = access_time(&t.out("f"))?;
        read_some(&t.out("f"))?;
        if access_time(&t.out("f"))? == before { Err(Errno(libc::EROFS)) } else { Ok(()) }
    }),
    attempt("meta-flock", "take an exclusive lock", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        sys!(libc::SYS_flock, fd, libc::LOCK_EX | libc::LOCK_NB).map(drop)
    }),
    attempt("meta-lease", "take a read lease", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        sys!(libc::SYS_fcntl, fd, libc::F_SETLEASE, libc::F_RDLCK).map(drop)
    }),
    attempt("meta-inotify", "watch a directory", |t| {
        let fd = sys!(libc::SYS_inotify_init1, libc::IN_CLOEXEC)?;
        sys!(libc::SYS_inotify_add_watch, fd, &t.out(""), libc::IN_ALL_EVENTS).map(drop)
    }),
    attempt("meta-fanotify-perm-mark", "mark a file for permission events", |t| {
        let fd = sys!(libc::SYS_fanotify_init, libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC, O_RDONLY)?;
        let mask = libc::FAN_ACCESS_PERM;
        sys!(libc::SYS_fanotify_mark, fd, libc::FAN_MARK_ADD, mask, AT_FDCWD, &t.out("f2")).map(drop)
    }),
    attempt("meta-read-outside", "read a file", |t| read_some(&t.out("f"))),
    attempt("meta-exec-outside", "execute a file", |t| succeeds(&t.out("prog"))),
    attempt("meta-chmod-via-old-hard-link", "chmod through a hard link made before the call", |t| {
        chmod(&t.ws("hard"), 0o600)
    }),
    attempt("meta-chmod-via-symlink", "chmod through a symbolic link in the workspace", |t| {
        chmod(&t.ws("link"), 0o600)
    }),
    // Each old call is a number of its own, which a filter by number can forget.
    attempt("meta-old-chmod", "chmod(2)", |t| old(90, &[(&t.out("f")).into(), 0o600.into()])),
    attempt("meta-old-chown", "chown(2)", |t| old(92, &[(&t.out("f")).into(), own_uid().into(), own_gid().into()])),
    attempt("meta-old-lchown", "lchown(2)", |t| old(94, &[(&t.out("f")).into(), own_uid().into(), own_gid().into()])),
    attempt("meta-old-utime", "utime(2)", |t| old(132, &[(&t.out("f")).into(), read(&TIMES[0])])),
    attempt("meta-old-utimes", "utimes(2)", |t| old(235, &[(&t.out("f")).into(), read(&TIMES)])),
    attempt("meta-old-futimesat", "futimesat(2)", |t| old(261, &[AT_FDCWD.into(), (&t.out("f")).into(), read(&TIMES)])),
    attempt("meta-lsetxattr", "lsetxattr", |t| {
        sys!(libc::SYS_lsetxattr, &t.out("f"), c"user.new", &b"1"[..], 1usize, 0).map(drop)
    }),
    attempt("meta-lremovexattr", "lremovexattr", |t| {
        sys!(libc::SYS_lremovexattr, &t.out("f"), c"user.pinfold").map(drop)
    }),
    attempt("meta-fremovexattr", "fremovexattr on a descriptor open for reading", |t| {
        let fd = open(&t.out("f"), O_RDONLY)?;
        sys!(libc::SYS_fremovexattr, fd, c"user.pinfold").map(drop)
    }),
    attempt("meta-removexattrat", "removexattrat (6.13)", |t| {
        sys!(466, AT_FDCWD, &t.out("f"), 0, c"user.pinfold").map(drop)
    }),
];

/// A call that only x86-64 still has, by its number there.
fn old(number: i64, args: &[Arg]) -> Act {
    if cfg!(target_arch = "x86_64") { call(number, args).map(drop) } else { Err(Errno(libc::ENOSYS)) }
}

/// The same number on every architecture.
const SYS_FCHMODAT2: i64 = 452;

pub(crate) fn chmod(path: &CStr, mode: u32) -> Act {
    sys!(libc::SYS_fchmodat, AT_FDCWD, path, mode).map(drop)
}

fn chown(path: &CStr, uid: i64, gid: i64) -> Act {
    sys!(libc::SYS_fchownat, AT_FDCWD, path, uid, gid, 0).map(drop)
}

pub(crate) fn own_uid() -> i64 {
    sys!(libc::SYS_geteuid).unwrap_or(0)
}

pub(crate) fn own_gid() -> i64 {
    sys!(libc::SYS_getegid).unwrap_or(0)
}

pub(crate) fn setxattr(path: &CStr, name: &CStr, value: &[u8]) -> Act {
    sys!(libc::SYS_setxattr, path, name, value, value.len(), 0).map(drop)
}

pub(crate) fn ioctl(fd: i32, request: u32, argument: Arg) -> Act {
    call(libc::SYS_ioctl, &[fd.into(), request.into(), argument]).map(drop)
}

fn setflags(t: &Target, flag: u32) -> Act {
    let fd = open(&t.out("f"), O_RDONLY)?;
    let mut flags = 0u64;
    ioctl(fd, 0x8008_6601, write(&mut flags))?;
    flags |= u64::from(flag);
    ioctl(fd, 0x4008_6602, read(&flags))
}

fn access_time(path: &CStr) -> Result<(i64, u32), Errno> {
    // SAFETY: statx is made of numbers, for which zero is a value.
    let mut s: libc::statx = unsafe { std::mem::zeroed() };
    sys!(libc::SYS_statx, AT_FDCWD, path, 0, libc::STATX_ATIME, write(&mut s))?;
    Ok((s.stx_atime.tv_sec, s.stx_atime.tv_nsec))
}

fn read_some(path: &CStr) -> Act {
    let fd = open(path, O_RDONLY)?;
    let mut bytes = [0u8; 16];
    sys!(libc::SYS_read, fd, &mut bytes[..], 16usize).map(drop)
}

/// Runs a program that says 0 when it could run.
pub(crate) fn succeeds(path: &CStr) -> Act {
    match sys::run(path, &[path])? {
        Ended::Code(0) => Ok(()),
        _ => Err(Errno(libc::ECHILD)),
    }
}
