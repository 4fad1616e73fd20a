//! Error numbers and signals with their names, as they stand in expectations and reports.

use std::fmt;

/// The error number of a failed system call.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// The result of one attempt: it succeeded, or the call that mattered failed.
pub type Act = Result<(), Errno>;

macro_rules! names {
    ($($name:ident)*) => {
        const ERRNO_NAMES: &[(i32, &str)] = &[$((libc::$name, stringify!($name))),*];
    };
}

names!(EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST
    EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE
    EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENOMSG EIDRM ENODATA ETIME EPROTO EBADMSG EOVERFLOW EBADFD EUSERS
    ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT
    EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN
    ESHUTDOWN ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EDQUOT ECANCELED ENOKEY EKEYEXPIRED
    EKEYREVOKED EKEYREJECTED);

const SIGNAL_NAMES: &[(i32, &str)] = &[
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGTRAP, "SIGTRAP"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGSYS, "SIGSYS"),
];

impl Errno {
    /// The error number that the last failed call left behind.
    #[must_use]
    pub fn last() -> Errno {
        Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }

    /// The number with this name, such as `EROFS`.
    #[must_use]
    pub fn named(name: &str) -> Option<Errno> {
        ERRNO_NAMES.iter().find(|(_, n)| *n == name).map(|(e, _)| Errno(*e))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ERRNO_NAMES.iter().find(|(e, _)| *e == self.0) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// The name of a signal, such as `SIGSYS`; of others the number.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    match SIGNAL_NAMES.iter().find(|(s, _)| *s == signal) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_inverse() {
        for (number, name) in ERRNO_NAMES {
            assert_eq!(Errno::named(name), Some(Errno(*number)));
        }
        assert_eq!(Errno(libc::EROFS).to_string(), "EROFS");
    }
}
