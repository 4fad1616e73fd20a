//! System calls as they are, without the C library's own behaviour in between: what the hostile program and the
//! harness are made of.
//!
//! UNSAFETY: a hostile program must be able to ask the kernel for anything. The wrappers keep pointers alive for the
//! length of the call, which is enough for every call made here: none of them unmaps or replaces memory of ours.

use crate::errno::{Act, Errno};
use std::ffi::{CStr, CString};
use std::marker::PhantomData;

/// One argument of a system call, which borrows what it points to.
#[derive(Clone, Copy)]
pub struct Arg<'a>(usize, PhantomData<&'a ()>);

macro_rules! arg_from_number {
    ($($t:ty)*) => {$(
        impl From<$t> for Arg<'_> {
            fn from(value: $t) -> Self {
                // Sign extension is wanted: AT_FDCWD is -100 in all 64 bits.
                Arg(value as usize, PhantomData)
            }
        }
    )*};
}
arg_from_number!(i32 u32 i64 u64 usize);

impl<'a> From<&'a CStr> for Arg<'a> {
    fn from(value: &'a CStr) -> Self {
        Arg(value.as_ptr() as usize, PhantomData)
    }
}

impl<'a> From<&'a CString> for Arg<'a> {
    fn from(value: &'a CString) -> Self {
        Arg(value.as_ptr() as usize, PhantomData)
    }
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(value: &'a [u8]) -> Self {
        Arg(value.as_ptr() as usize, PhantomData)
    }
}

impl<'a> From<&'a mut [u8]> for Arg<'a> {
    fn from(value: &'a mut [u8]) -> Self {
        Arg(value.as_mut_ptr() as usize, PhantomData)
    }
}

/// A structure that the kernel reads.
pub fn read<T>(value: &T) -> Arg<'_> {
    Arg(std::ptr::from_ref(value) as usize, PhantomData)
}

/// A structure that the kernel writes.
pub fn write<T>(value: &mut T) -> Arg<'_> {
    Arg(std::ptr::from_mut(value) as usize, PhantomData)
}

/// Makes a system call.
///
/// # Errors
///
/// The error number that the kernel gave.
pub fn call(number: libc::c_long, args: &[Arg<'_>]) -> Result<i64, Errno> {
    let arg = |i: usize| args.get(i).map_or(0, |a| a.0);
    // SAFETY: every pointer among the arguments is a borrow that `args` keeps alive, of the size that the caller's
    // number and arguments name; no caller passes a number that changes this process's mappings.
    let result = unsafe { libc::syscall(number, arg(0), arg(1), arg(2), arg(3), arg(4), arg(5)) };
    if result == -1 { Err(Errno::last()) } else { Ok(result) }
}

/// `sys!(SYS_name, argument...)`: a system call whose arguments are numbers, C strings, byte slices, or structures in
/// [`read`] and [`write()`].
#[macro_export]
macro_rules! sys {
    ($number:expr $(, $arg:expr)* $(,)?) => {
        $crate::sys::call($number as libc::c_long, &[$($crate::sys::Arg::from($arg)),*])
    };
}

/// A path or name as the kernel takes it. Bytes after a NUL are lost, which no test uses.
#[must_use]
pub fn c(path: impl AsRef<std::ffi::OsStr>) -> CString {
    use std::os::unix::ffi::OsStrExt as _;
    let bytes: Vec<u8> = path.as_ref().as_bytes().iter().copied().take_while(|b| *b != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

/// Opens a file relative to the working directory; what is created has mode 0644.
///
/// # Errors
///
/// That of `openat`.
pub fn open(path: &CStr, flags: i32) -> Result<i32, Errno> {
    open_at(libc::AT_FDCWD, path, flags)
}

/// Opens a file relative to an open directory; what is created has mode 0644.
///
/// # Errors
///
/// That of `openat`.
pub fn open_at(dir: i32, path: &CStr, flags: i32) -> Result<i32, Errno> {
    sys!(libc::SYS_openat, dir, path, flags | libc::O_CLOEXEC, 0o644).map(|fd| fd as i32)
}

/// Writes all bytes with one call.
///
/// # Errors
///
/// That of `write`, or EIO if the call was short.
pub fn write_all(fd: i32, bytes: &[u8]) -> Act {
    let n = sys!(libc::SYS_write, fd, bytes, bytes.len())?;
    if n as usize == bytes.len() { Ok(()) } else { Err(Errno(libc::EIO)) }
}

/// Closes a descriptor; a failure cannot matter to a caller that is done with it.
pub fn close(fd: i32) {
    let _ = sys!(libc::SYS_close, fd);
}

/// Maps a file shared and writable, for good.
///
/// # Errors
///
/// That of `mmap`.
pub fn map_shared(fd: i32, bytes: usize, offset: i64) -> Result<*mut u8, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: address 0 without MAP_FIXED: the kernel chooses unused addresses, so no mapping of ours is replaced.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, offset) };
    if p == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(p.cast()) }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With this status.
    Code(i32),
    /// By this signal; `core` if it left a core dump.
    Signal {
        /// The signal's number.
        signal: i32,
        /// Whether a core was written.
        core: bool,
    },
}

/// Starts a child that runs `body` and exits with its result. The child has one thread.
///
/// # Errors
///
/// That of `fork`.
pub fn fork(body: impl FnOnce() -> i32) -> Result<i32, Errno> {
    // SAFETY: the programs that fork have one thread (hostile, victim before its listeners, mask), so the child's copy
    // of the C library's locks is consistent.
    match unsafe { libc::fork() } {
        -1 => Err(Errno::last()),
        0 => {
            let code = body();
            // SAFETY: _exit ends the process and has no condition.
            unsafe { libc::_exit(code) }
        }
        pid => Ok(pid),
    }
}

/// Waits for a child.
///
/// # Errors
///
/// That of `wait4`.
pub fn wait(pid: i32) -> Result<Ended, Errno> {
    let mut status: i32 = 0;
    loop {
        match sys!(libc::SYS_wait4, pid, write(&mut status), 0, 0) {
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
            Ok(_) if libc::WIFSIGNALED(status) => {
                return Ok(Ended::Signal { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) });
            }
            Ok(_) => return Ok(Ended::Code(libc::WEXITSTATUS(status))),
        }
    }
}

/// Runs an act in a child, so that its changes of process state stay there. The exit status carries the error number;
/// a signal that ends the child ends this process too.
///
/// # Errors
///
/// The act's own.
pub fn in_child(act: impl FnOnce() -> Act) -> Act {
    let pid = fork(|| act().err().map_or(0, |e| e.0))?;
    match wait(pid)? {
        Ended::Code(0) => Ok(()),
        Ended::Code(n) => Err(Errno(n)),
        Ended::Signal { signal, .. } => {
            let me = sys!(libc::SYS_getpid)?;
            sys!(libc::SYS_kill, me, signal)?;
            Err(Errno(libc::EINTR))
        }
    }
}

/// Executes a program with these arguments; comes back only with an error.
///
/// # Errors
///
/// That of `execve`.
pub fn exec(path: &CStr, args: &[&CStr]) -> Act {
    exec_at(libc::AT_FDCWD, path, args, 0)
}

/// Executes a program relative to a descriptor; comes back only with an error.
///
/// # Errors
///
/// That of `execveat`.
pub fn exec_at(dir: i32, path: &CStr, args: &[&CStr], flags: i32) -> Act {
    let mut argv: Vec<*const libc::c_char> = args.iter().map(|a| a.as_ptr()).collect();
    argv.push(std::ptr::null());
    let environment: [*const libc::c_char; 1] = [std::ptr::null()];
    let argv = argv.as_slice();
    sys!(libc::SYS_execveat, dir, path, read(&argv[0]), read(&environment), flags).map(|_| ())
}

/// Runs a program in a child and gives how it ended; a failed exec gives its error.
///
/// # Errors
///
/// That of `execve`, as seen by the child, or that of `fork`.
pub fn run(path: &CStr, args: &[&CStr]) -> Result<Ended, Errno> {
    let mut pipe = [0i32; 2];
    sys!(libc::SYS_pipe2, write(&mut pipe), libc::O_CLOEXEC)?;
    let pid = fork(|| {
        let error = exec(path, args).err().unwrap_or(Errno(libc::EIO));
        let _ = write_all(pipe[1], &error.0.to_ne_bytes());
        127
    })?;
    close(pipe[1]);
    let mut bytes = [0u8; 4];
    let failed = sys!(libc::SYS_read, pipe[0], &mut bytes[..], 4usize)?;
    close(pipe[0]);
    let ended = wait(pid)?;
    if failed == 4 { Err(Errno(i32::from_ne_bytes(bytes))) } else { Ok(ended) }
}

/// The address of a unix socket: a path, or an abstract name if it begins with `@`. Gives its length too.
#[must_use]
pub fn unix_address(name: &CStr) -> (libc::sockaddr_un, usize) {
    // SAFETY: sockaddr_un is made of numbers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = name.to_bytes();
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let is_abstract = bytes.first() == Some(&b'@');
    if is_abstract {
        address.sun_path[0] = 0;
    }
    (address, 2 + bytes.len() + usize::from(!is_abstract))
}
