//! Names and texts of error numbers, for one line on standard error.

use linux_raw_sys::errno as n;

/// An error number of a system call (errno(3)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) i32);

macro_rules! errnos {
    ($($name:ident = $number:ident, $text:literal;)*) => {
        impl Errno {
            $(pub(crate) const $name: Self = Self(n::$number as i32);)*

            /// Returns the text of strerror(3), or a fixed text for a number that the launcher does not expect.
            pub(crate) fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                    _ => "Unexpected error",
                }
            }
        }
    };
}

errnos! {
    PERM = EPERM, "Operation not permitted";
    NOENT = ENOENT, "No such file or directory";
    SRCH = ESRCH, "No such process";
    INTR = EINTR, "Interrupted system call";
    IO = EIO, "Input/output error";
    NXIO = ENXIO, "No such device or address";
    TOO_BIG = E2BIG, "Argument list too long";
    NOEXEC = ENOEXEC, "Exec format error";
    BADF = EBADF, "Bad file descriptor";
    AGAIN = EAGAIN, "Resource temporarily unavailable";
    NOMEM = ENOMEM, "Cannot allocate memory";
    ACCES = EACCES, "Permission denied";
    BUSY = EBUSY, "Device or resource busy";
    EXIST = EEXIST, "File exists";
    NODEV = ENODEV, "No such device";
    NOTDIR = ENOTDIR, "Not a directory";
    ISDIR = EISDIR, "Is a directory";
    INVAL = EINVAL, "Invalid argument";
    NFILE = ENFILE, "Too many open files in system";
    MFILE = EMFILE, "Too many open files";
    TXTBSY = ETXTBSY, "Text file busy";
    FBIG = EFBIG, "File too large";
    NOSPC = ENOSPC, "No space left on device";
    ROFS = EROFS, "Read-only file system";
    PIPE = EPIPE, "Broken pipe";
    NAMETOOLONG = ENAMETOOLONG, "File name too long";
    NOSYS = ENOSYS, "Function not implemented";
    LOOP = ELOOP, "Too many levels of symbolic links";
    OPNOTSUPP = EOPNOTSUPP, "Operation not supported";
    USERS = EUSERS, "Too many users";
    STALE = ESTALE, "Stale file handle";
    DQUOT = EDQUOT, "Disk quota exceeded";
}
