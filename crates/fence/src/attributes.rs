//! What a file is beside its content: permission bits and times. Changed in place, and so only where no other name of the
//! file can lie outside.

use crate::error::{Denied, FsError, on};
use crate::fence::Fence;
use crate::resolve::{Last, Place, identity};
use crate::rules::Act;
use crate::target::{Look, Target, links};
use crate::write::{Abort, Change, Intent};
use pinfold_policy::FileErrorCode as Code;
use pinfold_policy::quote::quote;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Says which permission bits a file gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permissions {
    /// These, of 0777.
    Exactly(u32),
    /// Those it has, and execution for whoever may read it.
    Executable,
    /// Those it has, without execution.
    NotExecutable,
}

/// How often a file that changes under our feet is looked at again.
const MOST_TRIES: u32 = 50;

impl Fence {
    /// Changes the permission bits of a file or directory; of a directory, set-id and sticky bits stay.
    ///
    /// # Errors
    ///
    /// `FS_SANDBOX_DENIED` by policy, also for a file with other names, because they may lie outside; `FS_NOT_FOUND`;
    /// `FS_NOT_REGULAR_FILE` for anything else; `FS_IO_ERROR` for bits beyond 0777; host errors.
    pub fn set_permissions(&self, path: &Path, permissions: Permissions) -> Result<Look, FsError> {
        const VERB: &str = "change the mode of";
        let absolute = self.absolute(path)?;
        if let Permissions::Exactly(bits) = permissions
            && bits & !0o777 != 0
        {
            let text =
                format!("cannot {VERB} {}: mode {bits:o} has more than permission bits (0777)", quote(&absolute));
            return Err(FsError::new(Code::IoError, text));
        }
        let (file, stat, _) = self.pinned_object(VERB, &absolute)?.ok_or_else(|| on(VERB, &absolute)(Errno::NOENT))?;
        let has = stat.st_mode & 0o777;
        let bits = match permissions {
            Permissions::Exactly(bits) => bits,
            Permissions::Executable => has | (has & 0o444) >> 2,
            Permissions::NotExecutable => has & !0o111,
        };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let kept = if is_directory { stat.st_mode & 0o7000 } else { 0 };
        rustix::fs::chmodat(CWD, by_descriptor(&file), Mode::from_raw_mode(bits | kept), AtFlags::empty())
            .map_err(on(VERB, &absolute))?;
        Ok(Look::of(&rustix::fs::fstat(&*file).map_err(on(VERB, &absolute))?))
    }

    /// Sets the times of a file or directory to now; makes an empty file where nothing is.
    ///
    /// # Errors
    ///
    /// As for [`Fence::set_permissions`] and [`Fence::write`].
    pub fn touch(&self, path: &Path) -> Result<(Target, Change), FsError> {
        let absolute = self.absolute(path)?;
        let Some((file, _, place)) = self.pinned_object("touch", &absolute)? else {
            let written = self.write(path, b"", &Intent::CreateIfAbsent, &Abort::default())?;
            return Ok((written.target, Change::Create));
        };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        rustix::fs::utimensat(CWD, by_descriptor(&file), &times, AtFlags::empty()).map_err(on("touch", &absolute))?;
        Ok((Target::new(&place.path, &absolute), Change::Update))
    }

    /// Finds a file or directory whose attributes may be changed, and holds it.
    fn pinned_object(&self, verb: &'static str, path: &Path) -> Result<Option<(Arc<OwnedFd>, Stat, Place)>, FsError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let place = self.place(Act::Write, verb, path, Last::Followed)?;
            let Some(seen) = place.stat else { return Ok(None) };
            if !matches!(FileType::from_raw_mode(seen.st_mode), FileType::RegularFile | FileType::Directory) {
                let text = format!("cannot {verb} {}: it is neither a file nor a directory", quote(path));
                return Err(FsError::new(Code::NotRegularFile, text));
            }
            // Nothing is done to the object by opening it so.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = match &place.object {
                Some(object) => Ok(Arc::clone(object)),
                None => rustix::fs::openat(&*place.dir, &place.name, flags, Mode::empty()).map(Arc::new),
            };
            let file = match opened {
                Ok(file) => file,
                Err(Errno::NOENT) if tries < MOST_TRIES => continue,
                Err(errno) => return Err(FsError::host(verb, path, errno)),
            };
            let stat = rustix::fs::fstat(&*file).map_err(on(verb, path))?;
            // SECURITY: what was decided about is what is changed, or the decision is made again.
            if identity(&stat) != identity(&seen) {
                if tries < MOST_TRIES {
                    continue;
                }
                let text = format!("cannot {verb} {}: it keeps changing", quote(path));
                return Err(FsError::new(Code::IoError, text));
            }
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            // SECURITY: a change in place would reach every name of the file.
            if let Some(mode) = self.confined_mode().filter(|_| is_file && stat.st_nlink > 1) {
                let rule = format!("it has {} other names, which may lie outside", links(&stat) - 1);
                let resolved = place.path.clone();
                return Err(FsError::denied(path, Denied { mode, verb, resolved, rule }));
            }
            return Ok(Some((file, stat, place)));
        }
    }
}

/// A name of an object that is held, for calls that take none by descriptor. It is the kernel's own name of our
/// descriptor, and leads to nothing else.
fn by_descriptor(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
