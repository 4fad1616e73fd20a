//! Which descriptors and signal settings this process starts from: nothing that the caller left behind.

use linux_raw_sys::general as g;

use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::spec::Plan;
use crate::status::Status;
use crate::sys::{self, Signals};

/// Makes sure that descriptors 0, 1 and 2 exist, so that nothing opened later takes their place.
pub(crate) fn occupy_standard_streams() -> Result<(), Failure> {
    for number in 0..3 {
        if sys::fcntl(number, g::F_GETFD, 0) == Err(Errno::BADF) {
            let fd = sys::open(sys::CWD, c"/dev/null", g::O_RDWR, 0).or_fail("stdio", "cannot open /dev/null")?;
            // The lowest free number is this one, as all below it are open.
            sys::duplicate_onto(fd, number).or_fail("stdio", "cannot fill a closed standard stream")?;
        }
    }
    Ok(())
}

/// Opens the status channel that the plan names.
pub(crate) fn open_status(plan: &Plan) -> Result<Status, Failure> {
    let fd = match (plan.status_descriptor, plan.status_file) {
        (Some(fd), _) => sys::fcntl(fd, g::F_DUPFD_CLOEXEC, 3).or_fail("status", "cannot use --status-fd")? as i32,
        (None, Some(path)) => sys::open(sys::CWD, path, g::O_WRONLY | g::O_APPEND | g::O_NOFOLLOW | g::O_NONBLOCK, 0)
            .or_fail("status", "cannot open the status file")
            .map_err(|failure| failure.of(path))?,
        (None, None) => return Ok(Status(None)),
    };
    Ok(Status(Some(fd)))
}

/// Closes every descriptor from `first` on, except those in `keep`.
///
/// SECURITY: a descriptor is a right that was checked when it was opened; neither mounts nor Landlock look at it
/// again.
pub(crate) fn close_all(first: i32, keep: [Option<i32>; 2]) -> Result<(), Failure> {
    let [one, other] = keep.map(|fd| fd.filter(|fd| *fd >= first));
    let (lower, upper) =
        if one.is_some_and(|one| other.is_none_or(|other| one > other)) { (other, one) } else { (one, other) };
    let mut next = first as u32;
    for kept in [lower, upper].into_iter().flatten() {
        let kept = kept as u32;
        if kept > next && !close_range(next, kept - 1)? {
            return close_listed(first, &keep);
        }
        next = kept + 1;
    }
    if close_range(next, u32::MAX)? { Ok(()) } else { close_listed(first, &keep) }
}

/// Closes a range; false if this kernel, or a filter of a container, does not offer it.
fn close_range(first: u32, last: u32) -> Result<bool, Failure> {
    match sys::close_range(first, last) {
        // SINCE(Linux 5.9): close_range(2); some container profiles also refuse it.
        Err(Errno::NOSYS | Errno::PERM) => Ok(false),
        other => other.or_fail("descriptors", "cannot close inherited descriptors").map(|()| true),
    }
}

/// Closes every descriptor but these.
pub(crate) fn close_all_but(keep: [i32; 3]) -> Result<(), Failure> {
    let mut next = 0;
    while let Some(kept) = keep.into_iter().filter(|fd| *fd >= next).min() {
        if kept > next && !close_range(next as u32, kept as u32 - 1)? {
            return close_listed(0, &keep.map(Some));
        }
        next = kept + 1;
    }
    if close_range(next as u32, u32::MAX)? { Ok(()) } else { close_listed(0, &keep.map(Some)) }
}

/// Closes what `/proc/self/fd` lists, until it lists nothing more.
fn close_listed(first: i32, keep: &[Option<i32>]) -> Result<(), Failure> {
    let failed = "cannot list inherited descriptors";
    loop {
        let directory =
            sys::open(sys::CWD, c"/proc/self/fd", g::O_RDONLY | g::O_DIRECTORY, 0).or_fail("descriptors", failed)?;
        let mut closed = 0;
        let listed = each_name(directory, |name| {
            let number = crate::words::number(name).and_then(|number| i32::try_from(number).ok());
            if let Some(fd) = number
                && fd >= first
                && fd != directory
                && !keep.contains(&Some(fd))
            {
                sys::close(fd);
                closed += 1;
            }
        });
        listed.or_fail("descriptors", failed)?;
        sys::close(directory);
        if closed == 0 {
            return Ok(());
        }
    }
}

/// Tells the names that a directory lists.
pub(crate) fn each_name(directory: i32, mut tell: impl FnMut(&[u8])) -> Result<(), Errno> {
    let mut buffer = [0_u8; 4096];
    loop {
        let length = sys::directory_entries(directory, &mut buffer)?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        if rest.is_empty() {
            return Ok(());
        }
        // struct linux_dirent64: inode (8 bytes), offset (8), length of the record (2), type (1), name.
        while let Some(record) = rest.get(16..18).map(|two| usize::from(u16::from_ne_bytes([two[0], two[1]]))) {
            let name = rest.get(19..record).unwrap_or_default();
            tell(name.split(|byte| *byte == 0).next().unwrap_or_default());
            rest = rest.get(record.max(19)..).unwrap_or_default();
        }
    }
}

/// Gives every signal its default disposition and blocks all of them: the command starts with none blocked, and in
/// between nothing interrupts.
pub(crate) fn reset_signals() {
    // The mask of the caller was its own business; ours is taken away again just before exec.
    let _ = sys::block(Signals::ALL);
    for signal in 1..=64 {
        // SIGKILL and SIGSTOP cannot be changed and say EINVAL.
        let _ = sys::default_disposition(signal);
    }
}
