//! System calls, and memory that the kernel gave: each wrapper takes and returns ordinary values.
//!
//! UNSAFETY: there is no C library to call; a system call is an instruction, and the kernel reads and writes
//! through the pointers that it is given. What is written here decides nothing: one function, one call.
//!
//! In every `SAFETY` comment below, *plain* means: the call reads or writes no memory of this process; *borrowed*
//! means: each pointer comes from a reference or slice (or a NUL-terminated `CStr`) that outlives the call, and the
//! length passed is its length.

use core::arch::{asm, naked_asm};
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;

use linux_raw_sys::{general as g, landlock as ll, prctl as p};

use crate::errno::Errno;

pub(crate) type Result<T> = core::result::Result<T, Errno>;

/// A pointer to a string that ends in NUL and lives as long as the process. Only `entry.rs` and this file make one.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn as_cstr(self) -> &'static CStr {
        // SAFETY: a `Text` points to a string of the initial stack, which the kernel ended by NUL, or was made from
        // a `&'static CStr`.
        unsafe { CStr::from_ptr(self.0) }
    }
}

impl From<&'static CStr> for Text {
    fn from(text: &'static CStr) -> Self {
        Self(text.as_ptr())
    }
}

/// Performs one system call.
///
/// # Safety
///
/// The arguments must be what call `number` expects; pointers among them must be valid for what it does with them.
unsafe fn call(number: u32, args: [usize; 6]) -> Result<usize> {
    let value: isize;
    // SAFETY: the instruction clobbers rcx, r11 and rax and nothing else; memory is as the caller promises.
    unsafe {
        asm!("syscall", inlateout("rax") number as usize => value,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            out("rcx") _, out("r11") _, options(nostack, preserves_flags));
    }
    if (-4095..0).contains(&value) { Err(Errno(-value as i32)) } else { Ok(value as usize) }
}

macro_rules! syscall {
    ($number:ident $(, $arg:expr)*) => {{
        #[allow(unused_mut, unused_assignments)]
        let mut args = [0_usize; 6];
        let mut _index = 0;
        $(args[_index] = $arg as usize; _index += 1;)*
        call(g::$number, args)
    }};
}

pub(crate) const CWD: i32 = g::AT_FDCWD;

// Processes

pub(crate) fn exit(status: i32) -> ! {
    loop {
        // SAFETY: plain; it does not return.
        let _ = unsafe { syscall!(__NR_exit_group, status) };
    }
}

/// Duplicates this process as fork(2) does, into new namespaces if `flags` has CLONE_NEW* bits. 0 in the child.
pub(crate) fn fork(flags: u32) -> Result<i32> {
    // SAFETY: without CLONE_VM the child has its own copy of memory and goes on with the same stack; the process
    // has one thread, so that no lock is held by another.
    unsafe { syscall!(__NR_clone, flags | g::SIGCHLD, 0, 0, 0, 0) }.map(|pid| pid as i32)
}

/// Runs `child(argument)` in a new process that shares our memory, on `stack`, while we are suspended until it
/// executes a program or exits (CLONE_VFORK): fork(2) without copying page tables.
pub(crate) fn vfork<T>(stack: &mut [u8], child: extern "C" fn(&T) -> !, argument: &T) -> Result<i32> {
    #[unsafe(naked)]
    unsafe extern "C" fn clone(flags: usize, stack: usize, child: usize, argument: usize) -> isize {
        naked_asm!(
            "mov r8, rdx", "mov r9, rcx", "xor edx, edx", "xor r10d, r10d", "mov eax, {number}", "syscall",
            "test eax, eax", "jnz 2f",
            "xor ebp, ebp", "mov rdi, r9", "call r8", "ud2",
            "2:", "movsxd rax, eax", "ret",
            number = const g::__NR_clone,
        )
    }
    let flags = (g::CLONE_VM | g::CLONE_VFORK | g::SIGCHLD) as usize;
    let top = (stack.as_mut_ptr_range().end as usize) & !15;
    // SAFETY: the child runs on a stack of its own and never returns into ours; we do not run while it borrows
    // `argument`; registers that a call preserves are preserved, because the parent only leaves through `ret`. The
    // kernel keeps r8 and r9 in both processes (SysV ABI, A.2.1).
    let pid = unsafe { clone(flags, top, child as usize, core::ptr::from_ref(argument) as usize) };
    if pid < 0 { Err(Errno(-pid as i32)) } else { Ok(pid as i32) }
}

/// Waits for a child (`pid`, or any with -1); returns its id and wait status. With `hang` false it may find none: 0.
pub(crate) fn wait(pid: i32, hang: bool) -> Result<(i32, i32)> {
    let mut status = 0_i32;
    let options = if hang { g::__WALL } else { g::__WALL | g::WNOHANG };
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_wait4, pid, &raw mut status, options, 0) }.map(|pid| (pid as i32, status))
}

pub(crate) fn getpid() -> i32 {
    // SAFETY: plain.
    unsafe { syscall!(__NR_getpid) }.map_or(0, |pid| pid as i32)
}

pub(crate) fn getppid() -> i32 {
    // SAFETY: plain.
    unsafe { syscall!(__NR_getppid) }.map_or(0, |pid| pid as i32)
}

pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: plain (both).
    unsafe { (syscall!(__NR_geteuid).map_or(0, |id| id as u32), syscall!(__NR_getegid).map_or(0, |id| id as u32)) }
}

pub(crate) fn setsid() -> Result<()> {
    // SAFETY: plain.
    unsafe { syscall!(__NR_setsid) }.map(drop)
}

/// Makes this process the leader of a new process group.
pub(crate) fn start_group() -> Result<()> {
    // SAFETY: plain.
    unsafe { syscall!(__NR_setpgid, 0, 0) }.map(drop)
}

pub(crate) fn process_group() -> i32 {
    // SAFETY: plain.
    unsafe { syscall!(__NR_getpgid, 0) }.map_or(0, |group| group as i32)
}

pub(crate) fn kill(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: plain.
    unsafe { syscall!(__NR_kill, pid, signal) }.map(drop)
}

const PTRACE_DETACH: u32 = 17;

/// Lets go of a process that we trace and that has stopped; it receives the signal, if that is not 0 (PTRACE_DETACH).
pub(crate) fn detach(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: plain.
    unsafe { syscall!(__NR_ptrace, PTRACE_DETACH, pid, 0, signal) }.map(drop)
}

pub(crate) fn pidfd_open(pid: i32) -> Result<i32> {
    // SAFETY: plain.
    unsafe { syscall!(__NR_pidfd_open, pid, 0) }.map(|fd| fd as i32)
}

pub(crate) fn pidfd_send_signal(process: i32, signal: u32) -> Result<()> {
    // SAFETY: plain: no details of the signal are given.
    unsafe { syscall!(__NR_pidfd_send_signal, process, signal, 0, 0) }.map(drop)
}

pub(crate) fn prctl(operation: u32, argument: usize) -> Result<usize> {
    debug_assert!(operation != p::PR_SET_SECCOMP, "takes a pointer");
    // SAFETY: plain: no operation that the launcher uses takes a pointer here.
    unsafe { syscall!(__NR_prctl, operation, argument, 0, 0, 0) }
}

/// Ends execution of this program and starts another (execve(2)); returns only the error.
pub(crate) fn execve(path: &CStr, arguments: &Vector, environment: &Vector) -> Errno {
    // SAFETY: borrowed; a `Vector` ends in a null pointer.
    let outcome = unsafe { syscall!(__NR_execve, path.as_ptr(), arguments.0, environment.0) };
    outcome.err().unwrap_or(Errno::INVAL)
}

/// A null-terminated array of strings, as execve(2) takes it.
pub(crate) struct Vector(*const Text);

impl Vector {
    /// The tail of a vector that the kernel put on the stack, or of [`Self::texts`]: it ends in a null pointer.
    pub(crate) fn of_stack(texts: &'static [Text]) -> Self {
        Self(texts.as_ptr())
    }

    /// Collects strings; they must be fewer than `limit`.
    pub(crate) fn collect(texts: impl Iterator<Item = Text>, limit: usize) -> Result<Self> {
        Self::texts(texts, limit).map(Self::of_stack)
    }

    /// The same, as the kernel would put them on the stack of a new process.
    pub(crate) fn texts(texts: impl Iterator<Item = Text>, limit: usize) -> Result<&'static [Text]> {
        let memory = allocate((limit + 1) * size_of::<Text>())?;
        let start = memory.as_mut_ptr().cast::<Text>();
        let mut count = 0;
        for (index, text) in texts.take(limit).enumerate() {
            // SAFETY: `index` is below `limit` and the memory is page-aligned, zeroed and holds `limit + 1` pointers;
            // the last one stays null.
            unsafe { start.add(index).write(text) };
            count = index + 1;
        }
        // SAFETY: so many were written, and the memory is never given back.
        Ok(unsafe { core::slice::from_raw_parts(start, count) })
    }
}

/// Returns zeroed memory that is never given back: the launcher allocates a handful of times.
pub(crate) fn allocate(size: usize) -> Result<&'static mut [u8]> {
    let protection = g::PROT_READ | g::PROT_WRITE;
    let flags = g::MAP_PRIVATE | g::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let address = unsafe { syscall!(__NR_mmap, 0, size, protection, flags, -1_isize, 0) }?;
    // SAFETY: the mapping is fresh, zeroed, `size` bytes long, and nobody else knows it.
    Ok(unsafe { core::slice::from_raw_parts_mut(address as *mut u8, size) })
}

/// Collects values that live as long as the process; they must be fewer than `limit`.
pub(crate) fn collect<T: Copy>(values: impl Iterator<Item = T>, limit: usize) -> Result<&'static [T]> {
    const { assert!(align_of::<T>() <= 4096) };
    let start = allocate((limit * size_of::<T>()).max(1))?.as_mut_ptr().cast::<T>();
    let mut count = 0;
    for value in values.take(limit) {
        // SAFETY: `count` is below `limit`, for which there is room, and a page is aligned for a `T`.
        unsafe { start.add(count).write(value) };
        count += 1;
    }
    // SAFETY: that many values were written, and nobody else knows the memory.
    Ok(unsafe { core::slice::from_raw_parts(start, count) })
}

/// Returns a copy of a string that lives as long as the process.
pub(crate) fn keep(text: &CStr) -> Result<&'static CStr> {
    let bytes = text.to_bytes_with_nul();
    let memory = allocate(bytes.len())?;
    memory.copy_from_slice(bytes);
    CStr::from_bytes_with_nul(memory).map_err(|_| Errno::INVAL)
}

/// Returns room for `count` values of `T` that are all zero bytes.
pub(crate) fn allocate_zeroed<T: Zeroed>(count: usize) -> Result<&'static mut [T]> {
    let memory = allocate((count * size_of::<T>()).max(1))?;
    // SAFETY: zero bytes are a valid `T` (the trait's promise), a page is aligned for it, and the length fits.
    Ok(unsafe { core::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), count) })
}

/// A type for which zero bytes are a value.
///
/// # Safety
///
/// That must be true, and the type must be aligned to at most a page.
pub(crate) unsafe trait Zeroed {}
// SAFETY: integers.
unsafe impl Zeroed for i32 {}

// Signals

/// A set of signals: bit n-1 stands for signal n.
#[derive(Clone, Copy)]
pub(crate) struct Signals(pub(crate) u64);

impl Signals {
    pub(crate) const ALL: Self = Self(u64::MAX);
    pub(crate) const NONE: Self = Self(0);
}

/// Sets the mask of blocked signals.
pub(crate) fn block(signals: Signals) -> Result<()> {
    // SAFETY: borrowed; the kernel's set has 8 bytes.
    unsafe { syscall!(__NR_rt_sigprocmask, g::SIG_SETMASK, &raw const signals.0, 0, 8) }.map(drop)
}

/// Gives a signal its default disposition.
pub(crate) fn default_disposition(signal: u32) -> Result<()> {
    dispose(signal, 0)
}

/// Has a signal ignored.
pub(crate) fn ignore(signal: u32) -> Result<()> {
    dispose(signal, 1)
}

/// Sets a disposition: 0 (SIG_DFL) or 1 (SIG_IGN).
fn dispose(signal: u32, how: u64) -> Result<()> {
    debug_assert!(how < 2, "a handler would be code of ours");
    // The kernel's struct sigaction: handler, flags, restorer, mask.
    let action = [how, 0, 0, 0];
    // SAFETY: borrowed; neither disposition runs code of ours.
    unsafe { syscall!(__NR_rt_sigaction, signal, action.as_ptr(), 0, 8) }.map(drop)
}

/// Returns a descriptor from which blocked signals of the set are read.
pub(crate) fn signal_descriptor(signals: Signals) -> Result<i32> {
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_signalfd4, -1_isize, &raw const signals.0, 8, g::O_CLOEXEC | g::O_NONBLOCK) }
        .map(|fd| fd as i32)
}

/// Waits for a blocked signal of the set; returns its number and the sender's process id (0: from outside our
/// PID namespace, or the kernel).
pub(crate) fn wait_signal(signals: Signals) -> Result<(u32, i32)> {
    let mut info = [0_i32; 32];
    // SAFETY: borrowed; siginfo_t is 128 bytes and starts with si_signo, si_errno, si_code, padding, si_pid.
    unsafe { syscall!(__NR_rt_sigtimedwait, &raw const signals.0, info.as_mut_ptr(), 0, 8) }
        .map(|signal| (signal as u32, info[4]))
}

/// Returns which of the events, or of those that poll(2) always tells, a descriptor has now.
pub(crate) fn events_now(fd: i32, events: u32) -> u32 {
    let mut entry = g::pollfd { fd, events: events as i16, revents: 0 };
    let now = [0_u64; 2];
    // SAFETY: borrowed; a time limit of zero, no mask.
    let _ = unsafe { syscall!(__NR_ppoll, &raw mut entry, 1, now.as_ptr(), 0, 8) };
    entry.revents as u32
}

/// Waits at most so many milliseconds for what poll(2) always tells of a descriptor: errors and hanging up.
pub(crate) fn wait_for_hangup(fd: i32, milliseconds: u64) {
    let mut entry = g::pollfd { fd, events: 0, revents: 0 };
    let limit = [0, milliseconds.min(999) * 1_000_000];
    // SAFETY: borrowed; a time limit, no mask.
    let _ = unsafe { syscall!(__NR_ppoll, &raw mut entry, 1, limit.as_ptr(), 0, 8) };
}

/// Waits until one of the descriptors is ready.
pub(crate) fn poll(descriptors: &mut [g::pollfd]) -> Result<usize> {
    // SAFETY: borrowed; no time limit, no mask.
    unsafe { syscall!(__NR_ppoll, descriptors.as_mut_ptr(), descriptors.len(), 0, 0, 8) }
}

// Descriptors and files

/// What stat(2) says of a file, as far as the launcher asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    pub(crate) owner: u32,
    pub(crate) special: u64,
    pub(crate) size: u64,
}

impl Stat {
    pub(crate) fn is(&self, kind: u32) -> bool {
        self.mode & g::S_IFMT == kind
    }
    pub(crate) fn same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

pub(crate) fn fstat(fd: i32) -> Result<Stat> {
    let mut stat = MaybeUninit::<g::stat>::zeroed();
    // SAFETY: borrowed; `stat` is the kernel's struct of this architecture.
    unsafe { syscall!(__NR_fstat, fd, stat.as_mut_ptr()) }?;
    // SAFETY: zero bytes are a valid `stat`, and the call has filled it.
    let stat = unsafe { stat.assume_init() };
    Ok(Stat {
        device: stat.st_dev,
        inode: stat.st_ino,
        mode: stat.st_mode,
        owner: stat.st_uid,
        special: stat.st_rdev,
        size: stat.st_size as u64,
    })
}

/// True if a mount begins at an open file (statx(2), STATX_ATTR_MOUNT_ROOT).
///
/// SINCE(Linux 5.8): the attribute.
pub(crate) fn begins_a_mount(fd: i32) -> Result<bool> {
    let mut statx = MaybeUninit::<g::statx>::zeroed();
    // SAFETY: borrowed; an empty path names the descriptor.
    unsafe { syscall!(__NR_statx, fd, c"".as_ptr(), g::AT_EMPTY_PATH, 0, statx.as_mut_ptr()) }?;
    // SAFETY: zero bytes are a valid `statx`, and the call has filled it.
    let statx = unsafe { statx.assume_init() };
    Ok(statx.stx_attributes & u64::from(g::STATX_ATTR_MOUNT_ROOT) != 0)
}

pub(crate) fn open(directory: i32, path: &CStr, flags: u32, mode: u32) -> Result<i32> {
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_openat, directory, path.as_ptr(), flags | g::O_CLOEXEC, mode) }.map(|fd| fd as i32)
}

pub(crate) fn close(fd: i32) {
    // SAFETY: plain. The error of close(2) tells nothing that could be acted on here.
    let _ = unsafe { syscall!(__NR_close, fd) };
}

pub(crate) fn close_range(first: u32, last: u32) -> Result<()> {
    // SAFETY: plain.
    unsafe { syscall!(__NR_close_range, first, last, 0) }.map(drop)
}

pub(crate) fn fcntl(fd: i32, operation: u32, argument: usize) -> Result<usize> {
    // SAFETY: plain: the operations that the launcher uses (F_DUPFD, F_GETFD, F_GETFL, F_SETFL) take no pointer.
    unsafe { syscall!(__NR_fcntl, fd, operation, argument) }
}

/// Makes `to` a copy of `from` that stays open across exec; also when both are the same number.
pub(crate) fn duplicate_onto(from: i32, to: i32) -> Result<()> {
    if from == to {
        // SAFETY: plain.
        return unsafe { syscall!(__NR_fcntl, to, g::F_SETFD, 0) }.map(drop);
    }
    // SAFETY: plain.
    unsafe { syscall!(__NR_dup3, from, to, 0) }.map(drop)
}

pub(crate) fn pipe() -> Result<(i32, i32)> {
    let mut ends = [0_i32; 2];
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_pipe2, ends.as_mut_ptr(), g::O_CLOEXEC) }.map(|_| (ends[0], ends[1]))
}

pub(crate) fn read(fd: i32, into: &mut [u8]) -> Result<usize> {
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_read, fd, into.as_mut_ptr(), into.len()) }
}

pub(crate) fn write(fd: i32, bytes: &[u8]) -> Result<usize> {
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_write, fd, bytes.as_ptr(), bytes.len()) }
}

pub(crate) fn seek_back(fd: i32, bytes: usize) -> Result<()> {
    // SAFETY: plain.
    unsafe { syscall!(__NR_lseek, fd, -(bytes as isize), g::SEEK_CUR) }.map(drop)
}

/// Returns how many bytes a pipe holds (ioctl_pipe: FIONREAD).
pub(crate) fn bytes_in_pipe(fd: i32) -> Result<usize> {
    let mut count = 0_i32;
    // SAFETY: borrowed; FIONREAD writes one int.
    unsafe { syscall!(__NR_ioctl, fd, linux_raw_sys::ioctl::FIONREAD, &raw mut count) }.map(|_| count.max(0) as usize)
}

pub(crate) fn is_terminal(fd: i32) -> bool {
    // struct termios has 36 bytes here.
    let mut settings = [0_u32; 16];
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_ioctl, fd, linux_raw_sys::ioctl::TCGETS, settings.as_mut_ptr()) }.is_ok()
}

/// True for a socket that reaches programs of this machine only (socket(7), SO_DOMAIN).
pub(crate) fn is_unix_socket(fd: i32) -> bool {
    use linux_raw_sys::net as n;
    let (mut family, mut length) = (0_u32, 4_u32);
    // SAFETY: borrowed; the option is an int.
    let found = unsafe { syscall!(__NR_getsockopt, fd, n::SOL_SOCKET, n::SO_DOMAIN, &raw mut family, &raw mut length) };
    found.is_ok() && family == n::AF_UNIX
}

/// Returns the magic number of the file system that a descriptor's file is on (statfs(2)).
pub(crate) fn file_system(fd: i32) -> Result<u64> {
    let mut statfs = [0_u64; 15];
    // SAFETY: borrowed; the kernel's struct statfs has 120 bytes on this architecture and starts with f_type.
    unsafe { syscall!(__NR_fstatfs, fd, statfs.as_mut_ptr()) }.map(|_| statfs[0])
}

/// Reads directory entries as getdents64(2) lays them out.
pub(crate) fn directory_entries(fd: i32, into: &mut [u8]) -> Result<usize> {
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_getdents64, fd, into.as_mut_ptr(), into.len()) }
}

pub(crate) fn make_directory(path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_mkdirat, CWD, path.as_ptr(), mode) }.map(drop)
}

pub(crate) fn make_symlink(target: &CStr, path: &CStr) -> Result<()> {
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_symlinkat, target.as_ptr(), CWD, path.as_ptr()) }.map(drop)
}

/// Reads where a symbolic link leads.
pub(crate) fn read_link<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a CStr> {
    let room = buffer.len().saturating_sub(1);
    // SAFETY: borrowed; one byte is left for the NUL that the call does not write.
    let length = unsafe { syscall!(__NR_readlinkat, CWD, path.as_ptr(), buffer.as_mut_ptr(), room) }?;
    *buffer.get_mut(length).ok_or(Errno::NAMETOOLONG)? = 0;
    CStr::from_bytes_until_nul(buffer).map_err(|_| Errno::NAMETOOLONG)
}

pub(crate) fn change_mode(path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_fchmodat, CWD, path.as_ptr(), mode) }.map(drop)
}

pub(crate) fn set_umask(mask: u32) -> u32 {
    // SAFETY: plain.
    unsafe { syscall!(__NR_umask, mask) }.map_or(0, |old| old as u32)
}

pub(crate) fn change_directory(path: &CStr) -> Result<()> {
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_chdir, path.as_ptr()) }.map(drop)
}

/// Makes the directory that a descriptor has open the working directory.
pub(crate) fn enter_directory(fd: i32) -> Result<()> {
    // SAFETY: plain.
    unsafe { syscall!(__NR_fchdir, fd) }.map(drop)
}

/// Returns the path of the working directory as the kernel knows it (getcwd(2)).
pub(crate) fn working_directory(buffer: &mut [u8]) -> Result<&CStr> {
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_getcwd, buffer.as_mut_ptr(), buffer.len()) }?;
    CStr::from_bytes_until_nul(buffer).map_err(|_| Errno::NAMETOOLONG)
}

/// Returns a limit of setrlimit(2): current and highest.
pub(crate) fn limit(resource: u32) -> Result<(u64, u64)> {
    let mut limit = [0_u64; 2];
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_prlimit64, 0, resource, 0, limit.as_mut_ptr()) }.map(|_| (limit[0], limit[1]))
}

pub(crate) fn set_limit(resource: u32, limit: (u64, u64)) -> Result<()> {
    let limit = [limit.0, limit.1];
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_prlimit64, 0, resource, limit.as_ptr(), 0) }.map(drop)
}

/// Brings the loopback device of this network namespace up (netdevice(7)).
pub(crate) fn raise_loopback() -> Result<()> {
    use linux_raw_sys::{ioctl as i, net as n};
    // struct ifreq: name (16 bytes), then a union that begins with the flags.
    let mut request = [0_u8; 40];
    request[..2].copy_from_slice(b"lo");
    // SAFETY: plain.
    let socket = unsafe { syscall!(__NR_socket, n::AF_INET, n::SOCK_DGRAM | g::O_CLOEXEC, 0) }?;
    // SAFETY: borrowed; struct ifreq has 40 bytes on this architecture.
    unsafe { syscall!(__NR_ioctl, socket, i::SIOCGIFFLAGS, request.as_mut_ptr()) }?;
    request[16] |= 1; // IFF_UP
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_ioctl, socket, i::SIOCSIFFLAGS, request.as_mut_ptr()) }?;
    close(socket as i32);
    Ok(())
}

// Mounts

pub(crate) fn mount(kind: &CStr, target: &CStr, flags: u32, options: &CStr) -> Result<()> {
    // SAFETY: borrowed; the name of the source is not used by these file systems and shows in mountinfo only.
    unsafe { syscall!(__NR_mount, kind.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr()) }.map(drop)
}

/// Clones the mount tree below a path (open_tree(2)): a detached copy, held by the returned descriptor.
pub(crate) fn clone_tree(directory: i32, path: &CStr, recursive: bool) -> Result<i32> {
    let recursive = if recursive { g::AT_RECURSIVE } else { 0 };
    let flags = OPEN_TREE_CLONE | g::O_CLOEXEC | g::AT_EMPTY_PATH | recursive;
    // SAFETY: borrowed.
    unsafe { syscall!(__NR_open_tree, directory, path.as_ptr(), flags) }.map(|fd| fd as i32)
}

/// Attaches a detached tree at a directory or file that `target` has open.
pub(crate) fn attach_tree(tree: i32, target: i32) -> Result<()> {
    let flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: borrowed (both paths are empty).
    unsafe { syscall!(__NR_move_mount, tree, c"".as_ptr(), target, c"".as_ptr(), flags) }.map(drop)
}

/// Sets mount attributes (and makes the mounts private), of one mount or of the whole tree below it.
pub(crate) fn restrict_mount(directory: i32, path: &CStr, recursive: bool, attributes: u32) -> Result<()> {
    let attributes =
        g::mount_attr { attr_set: attributes.into(), attr_clr: 0, propagation: g::MS_PRIVATE.into(), userns_fd: 0 };
    let recursive = if recursive { g::AT_RECURSIVE } else { 0 };
    // SAFETY: borrowed.
    unsafe {
        syscall!(
            __NR_mount_setattr,
            directory,
            path.as_ptr(),
            g::AT_EMPTY_PATH | recursive,
            &raw const attributes,
            size_of::<g::mount_attr>()
        )
    }
    .map(drop)
}

const OPEN_TREE_CLONE: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;
pub(crate) const MOUNT_ATTR_RDONLY: u32 = 1;
pub(crate) const MOUNT_ATTR_NOSUID: u32 = 2;
pub(crate) const MOUNT_ATTR_NODEV: u32 = 4;
pub(crate) const MOUNT_ATTR_NOEXEC: u32 = 8;

// Capabilities, Landlock, seccomp

/// The three capability sets of this process, as capget(2) gives them: 64 bits each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    pub(crate) effective: u64,
    pub(crate) permitted: u64,
    pub(crate) inheritable: u64,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

pub(crate) fn capabilities() -> Result<Capabilities> {
    let header = [CAPABILITY_VERSION_3, 0];
    let mut data = [0_u32; 6];
    // SAFETY: borrowed; version 3 writes two records of three words.
    unsafe { syscall!(__NR_capget, header.as_ptr(), data.as_mut_ptr()) }?;
    let wide = |low: u32, high: u32| u64::from(low) | (u64::from(high) << 32);
    Ok(Capabilities {
        effective: wide(data[0], data[3]),
        permitted: wide(data[1], data[4]),
        inheritable: wide(data[2], data[5]),
    })
}

pub(crate) fn drop_capabilities() -> Result<()> {
    let header = [CAPABILITY_VERSION_3, 0];
    let data = [0_u32; 6];
    // SAFETY: borrowed; version 3 reads two records of three words.
    unsafe { syscall!(__NR_capset, header.as_ptr(), data.as_ptr()) }.map(drop)
}

/// The first three members of struct landlock_ruleset_attr, of which the kernel reads as many as its ABI knows.
#[repr(C)]
pub(crate) struct LandlockRules {
    pub(crate) file_system: u64,
    pub(crate) network: u64,
    pub(crate) scoped: u64,
}

pub(crate) fn landlock_abi() -> Result<u32> {
    // SAFETY: plain: with this flag no attributes are read.
    unsafe { syscall!(__NR_landlock_create_ruleset, 0, 0, ll::LANDLOCK_CREATE_RULESET_VERSION) }
        .map(|version| version as u32)
}

/// Creates a ruleset; `members` (1 to 3) is how many of the attributes the running ABI knows.
pub(crate) fn landlock_ruleset(rules: &LandlockRules, members: usize) -> Result<i32> {
    // SAFETY: borrowed; the size never exceeds the struct.
    unsafe { syscall!(__NR_landlock_create_ruleset, core::ptr::from_ref(rules), members.min(3) * 8, 0) }
        .map(|fd| fd as i32)
}

pub(crate) fn landlock_allow(ruleset: i32, access: u64, beneath: i32) -> Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        access: u64,
        parent: i32,
    }
    let rule = PathBeneath { access, parent: beneath };
    // SAFETY: borrowed; the struct is packed as the kernel's landlock_path_beneath_attr is.
    unsafe { syscall!(__NR_landlock_add_rule, ruleset, 1, &raw const rule, 0) }.map(drop)
}

pub(crate) fn landlock_restrict(ruleset: i32, flags: u32) -> Result<()> {
    // SAFETY: plain.
    unsafe { syscall!(__NR_landlock_restrict_self, ruleset, flags) }.map(drop)
}

/// One instruction of a seccomp filter (struct sock_filter).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) if_true: u8,
    pub(crate) if_false: u8,
    pub(crate) value: u32,
}

/// Adds a filter to every later system call of this process and its descendants. With `listening`, returns a descriptor
/// on which calls arrive that the filter leaves to another process; they then end for fatal signals only.
pub(crate) fn seccomp_filter(program: &'static [Instruction], listening: bool) -> Result<i32> {
    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const Instruction,
    }
    let program = Program { length: program.len() as u16, instructions: program.as_ptr() };
    // SECCOMP_FILTER_FLAG_NEW_LISTENER and SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV.
    let flags = if listening { (1 << 3) | (1 << 5) } else { 0 };
    // SAFETY: borrowed; the kernel checks and copies the program. 1: SECCOMP_SET_MODE_FILTER.
    unsafe { syscall!(__NR_seccomp, 1, flags, &raw const program) }.map(|fd| fd as i32)
}

/// Sends two descriptors over a unix socket, with one byte (unix(7), SCM_RIGHTS).
pub(crate) fn send_descriptors(socket: i32, descriptors: [i32; 2]) -> Result<()> {
    #[repr(C)]
    struct Rights {
        length: usize,
        level: i32,
        kind: i32,
        descriptors: [i32; 2],
    }
    // 1: SOL_SOCKET and SCM_RIGHTS.
    let rights = Rights { length: size_of::<Rights>(), level: 1, kind: 1, descriptors };
    let byte = [0_u8];
    let part = [byte.as_ptr() as usize, 1];
    // struct msghdr: name and its length, parts and their number, control data and its length, flags.
    let message = [0, 0, part.as_ptr() as usize, 1, &raw const rights as usize, size_of::<Rights>(), 0];
    // SAFETY: borrowed; everything that the message points to lives until the call returns.
    unsafe { syscall!(__NR_sendmsg, socket, message.as_ptr(), linux_raw_sys::net::MSG_NOSIGNAL) }.map(drop)
}

/// The most descriptors that one message brings.
pub(crate) const MOST_DESCRIPTORS: usize = 16;

/// Receives one message of a unix socket that keeps messages apart: how many bytes, and the descriptors that came along,
/// close-on-exec. A message that is cut off is an error, and what came of it is closed. Nothing received: the other end is
/// closed.
pub(crate) fn receive(
    socket: i32,
    into: &mut [u8],
    descriptors: &mut [i32; MOST_DESCRIPTORS],
) -> Result<(usize, usize)> {
    use linux_raw_sys::net as n;
    #[repr(C)]
    struct Rights {
        length: usize,
        level: i32,
        kind: i32,
        descriptors: [i32; MOST_DESCRIPTORS],
    }
    let mut rights = Rights { length: 0, level: 0, kind: 0, descriptors: [-1; MOST_DESCRIPTORS] };
    let part = [into.as_mut_ptr() as usize, into.len()];
    // struct msghdr: name and its length, parts and their number, control data and its length, flags.
    let mut message = [0, 0, part.as_ptr() as usize, 1, &raw mut rights as usize, size_of::<Rights>(), 0];
    // SAFETY: borrowed; everything that the message points to lives until the call returns, and is read after it.
    let length = unsafe { syscall!(__NR_recvmsg, socket, message.as_mut_ptr(), n::MSG_CMSG_CLOEXEC) }?;
    let header = size_of::<Rights>() - size_of::<[i32; MOST_DESCRIPTORS]>();
    // 1 and 1: SOL_SOCKET and SCM_RIGHTS. Without control data its length is 0.
    let came = message[5] >= header && (rights.level, rights.kind) == (1, 1);
    let count = if came { (rights.length.saturating_sub(header) / size_of::<i32>()).min(MOST_DESCRIPTORS) } else { 0 };
    if message[6] as u32 & (n::MSG_TRUNC | n::MSG_CTRUNC) != 0 {
        rights.descriptors.iter().take(count).for_each(|fd| close(*fd));
        return Err(Errno::INVAL);
    }
    *descriptors = rights.descriptors;
    Ok((length, count))
}
