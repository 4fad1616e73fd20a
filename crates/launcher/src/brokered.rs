//! What a broker outside answers for: the calls that reach it, and how it gets to hear of them.
//!
//! The filter sends a call to whoever holds its listener (seccomp_unotify(2)). Without a holder such calls are answered
//! with ENOSYS, so a broker that ends frees nothing.

use linux_raw_sys::general as g;

use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::sys;

/// Flags of open(2) with which it may change something; one bit of O_TMPFILE, as the other is O_DIRECTORY.
pub(crate) const OPEN_CHANGES: u32 =
    g::O_WRONLY | g::O_RDWR | g::O_CREAT | g::O_TRUNC | (g::O_TMPFILE & !g::O_DIRECTORY);

/// Calls that change names, or a file by its name; and modes.
pub(crate) const NAMES: &[u32] = &[
    g::__NR_creat,
    g::__NR_truncate,
    g::__NR_rename,
    g::__NR_renameat,
    g::__NR_renameat2,
    g::__NR_link,
    g::__NR_linkat,
    g::__NR_symlink,
    g::__NR_symlinkat,
    g::__NR_unlink,
    g::__NR_unlinkat,
    g::__NR_mkdir,
    g::__NR_mkdirat,
    g::__NR_rmdir,
    g::__NR_mknod,
    g::__NR_mknodat,
    g::__NR_chmod,
    g::__NR_fchmod,
    g::__NR_fchmodat,
    g::__NR_fchmodat2,
    // So that it knows whose files are made with which; the kernel performs it.
    g::__NR_umask,
];

/// All other calls that change metadata. A name that is executed is worth its mode, and an attribute (acl(5)) can change it.
pub(crate) const METADATA: &[u32] = &[
    g::__NR_chown,
    g::__NR_fchown,
    g::__NR_lchown,
    g::__NR_fchownat,
    g::__NR_utime,
    g::__NR_utimes,
    g::__NR_futimesat,
    g::__NR_utimensat,
    g::__NR_setxattr,
    g::__NR_lsetxattr,
    g::__NR_fsetxattr,
    g::__NR_setxattrat,
    g::__NR_removexattr,
    g::__NR_lremovexattr,
    g::__NR_fremovexattr,
    g::__NR_removexattrat,
    g::__NR_file_setattr,
];

/// Gives the broker the filter's listener and the root directory that the command sees, and waits until it answers.
///
/// SECURITY: the listener must not stay with the command, which could answer its own calls: it is closed here, and its
/// descriptor is closed on exec anyway.
pub(crate) fn hand_over(broker: i32, listener: i32) -> Result<(), Failure> {
    let root = sys::open(sys::CWD, c"/", g::O_PATH | g::O_DIRECTORY, 0).or_fail("broker", "cannot open the root")?;
    sys::send_descriptors(broker, [listener, root]).or_fail("broker", "cannot reach the broker")?;
    [listener, root].into_iter().for_each(sys::close);
    let mut answer = [0];
    loop {
        match sys::read(broker, &mut answer) {
            Err(Errno::INTR) => {}
            Ok(1) => break,
            _ => return Err(Failure::new("broker", "the broker has ended or does not answer")),
        }
    }
    sys::close(broker);
    Ok(())
}
