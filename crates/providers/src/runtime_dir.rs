//! Where our own files live: plans, private temp directories, canaries. Mode 0700, ours, and never below a
//! directory that a command may write.
//!
//! ```text
//! <runtime>/plans/…            plans that are too long for an argv; swept after a day
//! <runtime>/temp/session-…     private temp directories of sessions, until the session ends
//! <runtime>/temp/workspace-…   the same for calls that somebody else starts; swept a day after their last use
//! <runtime>/process-….lock     locked as long as the process lives that the directory beside it belongs to
//! <runtime>/process-…/…        what one process needs for single calls
//! ```

use pinfold_policy::quote::quote;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{DirBuilder, DirEntry, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A plan that nobody removed is useless after this long, and so is a temp directory of no session.
const LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// A verified directory and this process's part of it.
#[derive(Debug)]
pub(crate) struct RuntimeDir {
    root: PathBuf,
    process: ProcessDirectory,
}

/// Holds a directory that belongs to this process, mode 0700, and goes with it.
///
/// It is removed with everything in it when dropped. What a process leaves that could not, because it was killed, is
/// removed by the next one that opens a directory in the same place: a lock beside it tells the dead from the living.
#[derive(Debug)]
pub struct ProcessDirectory {
    path: PathBuf,
    /// Locked; the lock ends with the process, however it ends.
    _lock: File,
}

impl ProcessDirectory {
    /// Makes a directory in a place of ours, which is made if it does not exist (its parent has to), and sweeps there.
    ///
    /// # Errors
    ///
    /// A sentence if the place is a relative path, no directory, not ours, open to others, or cannot be written.
    pub fn open(place: &Path) -> Result<Self, String> {
        let place = prepare(place)?;
        sweep(&place);
        Self::claim(&place).map_err(|error| failed("make a process directory in", &place, &error))
    }

    /// Returns its physical path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn claim(root: &Path) -> io::Result<Self> {
        let (path, lock) = claim(root)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for ProcessDirectory {
    fn drop(&mut self) {
        // What stays is swept by the next process, which knows it by the lock.
        if remove_all(&self.path).is_ok() {
            let _ = std::fs::remove_file(lock_path(&self.path));
        }
    }
}

impl RuntimeDir {
    /// Finds, makes and verifies the directory; sweeps what dead processes left.
    pub(crate) fn open(configured: Option<&Path>) -> Result<Self, String> {
        let root = match configured {
            Some(path) => prepare(path)?,
            None => default_root()?,
        };
        for part in ["plans", "temp"] {
            private_part(&root, part)?;
        }
        sweep(&root);
        let process =
            ProcessDirectory::claim(&root).map_err(|error| failed("make a process directory in", &root, &error))?;
        Ok(Self { root, process })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a directory for one call; it is removed when dropped.
    pub(crate) fn call_directory(&self) -> io::Result<tempfile::TempDir> {
        tempfile::Builder::new().prefix("call-").permissions(private()).tempdir_in(&self.process.path)
    }

    /// Makes a private temp directory that stays for later calls of the same owner.
    pub(crate) fn kept_temp(&self, owner: &str) -> io::Result<PathBuf> {
        let path = self.root.join("temp").join(owner);
        make_private(&path)?;
        let metadata = std::fs::symlink_metadata(&path)?;
        verify(&path, &metadata).map_err(io::Error::other)?;
        open_to_us(&path, &metadata);
        // Its age is that of its last use.
        File::open(&path)?.set_modified(SystemTime::now())?;
        Ok(path)
    }

    /// The directory in which owners have theirs.
    pub(crate) fn temps(&self) -> PathBuf {
        self.root.join("temp")
    }

    /// Makes a directory below an owner's, to be seen in place of a shared one: as such a one looks.
    pub(crate) fn kept_part(&self, owner: &Path, name: &str) -> io::Result<PathBuf> {
        let path = owner.join(name);
        match std::fs::create_dir(&path) {
            Ok(()) => std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o1777))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let found = std::fs::symlink_metadata(&path)?;
        if found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() {
            return Ok(path);
        }
        Err(io::Error::other(format!("{} is not a directory of ours", path.display())))
    }

    /// Removes the private temp directory of an owner.
    pub(crate) fn remove_kept_temp(&self, owner: &str) -> io::Result<()> {
        remove_all(&self.root.join("temp").join(owner))
    }

    /// Writes a plan into a file that is removed when dropped.
    pub(crate) fn plan_file(&self, block: &[u8]) -> io::Result<tempfile::TempPath> {
        use std::io::Write as _;
        let mut file = tempfile::Builder::new().prefix("plan-").tempfile_in(self.root.join("plans"))?;
        file.write_all(block)?;
        Ok(file.into_temp_path())
    }
}

fn private() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o700)
}

fn failed(act: &str, path: &Path, error: &io::Error) -> String {
    format!("cannot {act} {}: {error}", quote(path))
}

/// The usual places, best first.
///
/// None of them is below a place that a plan makes writable, but a policy may open one (`/tmp`, a home): that
/// policy is refused where roots are resolved.
fn candidates() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let mut candidates = Vec::new();
    // It only names a place for files of ours, never a program, and what is there is verified.
    if let Some(base) = std::env::var_os("XDG_RUNTIME_DIR").filter(|base| Path::new(base).is_absolute()) {
        candidates.push(PathBuf::from(base).join("pinfold"));
    }
    candidates.push(PathBuf::from(format!("/run/user/{user}/pinfold")));
    if user == 0 {
        candidates.push(PathBuf::from("/run/pinfold"));
    }
    candidates.push(PathBuf::from(format!("/tmp/pinfold-{user}")));
    candidates
}

/// Takes the first place that can be had.
fn default_root() -> Result<PathBuf, String> {
    let mut reasons = Vec::new();
    for candidate in candidates() {
        match prepare(&candidate) {
            Ok(path) => return Ok(path),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(reasons.join("; "))
}

/// Everywhere that the directory of this call or of a later one may be, physical, before anything is made.
///
/// SECURITY: a later call may have other variables, and believes what it finds in the place that it takes. So no call may
/// write to any of them.
pub(crate) fn intended(configured: Option<&Path>) -> Vec<PathBuf> {
    let places = configured.map(Path::to_owned).into_iter().chain(candidates());
    let mut places: Vec<_> = places.map(|place| crate::closed::physical(&place)).collect();
    places.dedup();
    places
}

fn prepare(path: &Path) -> Result<PathBuf, String> {
    if !path.is_absolute() {
        return Err(format!("runtime directory {} is not an absolute path", quote(path)));
    }
    make_private(path).map_err(|error| failed("make", path, &error))?;
    let metadata = std::fs::symlink_metadata(path).map_err(|error| failed("examine", path, &error))?;
    verify(path, &metadata)?;
    open_to_us(path, &metadata);
    std::fs::canonicalize(path).map_err(|error| failed("resolve", path, &error))
}

fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

// SECURITY: in a directory that somebody else owns or may write, plans could be replaced before they are read.
fn verify(path: &Path, metadata: &Metadata) -> Result<(), String> {
    let place = quote(path);
    if !metadata.is_dir() {
        return Err(format!("{place} is not a directory"));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("{place} belongs to user {}", metadata.uid()));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(format!("{place} has mode {:o} instead of 700", metadata.mode() & 0o7777));
    }
    Ok(())
}

/// Opens a verified directory to ourselves, if a command has closed it (`chmod 0`, where nothing governs modes): nobody could start
/// anything any more. Where that fails, opening it says why.
fn open_to_us(path: &Path, metadata: &Metadata) {
    if metadata.mode() & 0o700 == 0o700 {
        return;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()) else { return };
    // RACE: what is changed is what was verified, or it is left alone.
    if rustix::fs::fstat(&directory).is_ok_and(|now| (now.st_dev, now.st_ino) == (metadata.dev(), metadata.ino())) {
        let _ = rustix::fs::chmod(descriptor_path(&directory), Mode::from_raw_mode(0o700));
    }
}

/// Opens a directory and verifies what was opened; a link at its place is not followed.
fn open_verified(at: impl AsFd, name: &Path, shown: &Path) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut opened = rustix::fs::openat(&at, name, flags, Mode::empty());
    if matches!(opened, Err(Errno::ACCESS)) && reopened_to_us(&at, name) {
        opened = rustix::fs::openat(&at, name, flags, Mode::empty());
    }
    let opened = match opened {
        Err(Errno::LOOP | Errno::NOTDIR) => return Err(format!("{} is not a directory", quote(shown))),
        opened => opened.map_err(|error| failed("open", shown, &error.into()))?,
    };
    let file = File::from(opened);
    let metadata = file.metadata().map_err(|error| failed("examine", shown, &error))?;
    verify(shown, &metadata)?;
    if metadata.mode() & 0o700 != 0o700 {
        file.set_permissions(private()).map_err(|error| failed("open to its owner", shown, &error))?;
    }
    Ok(file.into())
}

/// Gives a directory of ours its mode back that is closed to everybody, and so to us: a command under Landlock alone, which
/// may change modes, has closed it. One that was open to others is not repaired but refused. True if it was done.
fn reopened_to_us(at: impl AsFd, name: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::openat(at, name, flags, Mode::empty()).map(File::from) else { return false };
    let ours = directory.metadata().is_ok_and(|metadata| {
        metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0
    });
    // By way of what is open: the name may mean something else by now.
    ours && std::fs::set_permissions(
        format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory)),
        std::fs::Permissions::from_mode(0o700),
    )
    .is_ok()
}

/// Makes a directory of ours in a verified one, and verifies that what is there is one.
///
/// SECURITY: a verdict or a plan in it is believed, and what is old in it is removed: it must be no link to elsewhere.
pub(crate) fn private_part(root: &Path, name: &str) -> Result<PathBuf, String> {
    let part = root.join(name);
    let within = open_verified(CWD, root, root)?;
    match rustix::fs::mkdirat(&within, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failed("make", &part, &error.into())),
    }
    let metadata = std::fs::symlink_metadata(&part).map_err(|error| failed("examine", &part, &error))?;
    verify(&part, &metadata)?;
    open_to_us(&part, &metadata);
    open_verified(&within, Path::new(name), &part)?;
    Ok(part)
}

fn lock_path(process: &Path) -> PathBuf {
    process.with_extension("lock")
}

/// Makes this process's directory, with a locked file beside it.
fn claim(root: &Path) -> io::Result<(PathBuf, File)> {
    let lock_file = |path: &Path| {
        File::options().write(true).create_new(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
    };
    loop {
        let named = tempfile::Builder::new()
            .prefix(&format!("process-{}-", std::process::id()))
            .suffix(".lock")
            .make_in(root, lock_file)?;
        let (file, path) = named.keep()?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        // RACE: a sweep may have removed the file between its making and its locking.
        if std::fs::symlink_metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino())) {
            let process = path.with_extension("");
            make_private(&process)?;
            return Ok((process, file));
        }
    }
}

/// Removes what dead processes left. Failing is harmless: the next sweep tries again.
///
/// SECURITY: by descriptors, so that a link in the place of a directory leads to no other one.
fn sweep(root: &Path) {
    let Ok(within) = open_verified(CWD, root, root) else { return };
    for path in entries(&within).map(|entry| PathBuf::from(entry.file_name())) {
        if path.extension().is_none_or(|extension| extension != "lock") {
            continue;
        }
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(&within, &path, flags, Mode::empty()) else { continue };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && remove_all(&descriptor_path(&within).join(path.with_extension(""))).is_ok()
        {
            let _ = rustix::fs::unlinkat(&within, &path, AtFlags::empty());
        }
    }
    let old = |entry: &DirEntry| {
        let age = entry.metadata().and_then(|metadata| metadata.modified()).map(|time| time.elapsed());
        matches!(age, Ok(Ok(age)) if age > LIFE)
    };
    if let Ok(plans) = open_verified(&within, Path::new("plans"), &root.join("plans")) {
        for plan in entries(&plans).filter(old) {
            let _ = rustix::fs::unlinkat(&plans, plan.file_name(), AtFlags::empty());
        }
    }
    // RACE: a call may take one up again just now; then it has no temp directory, and its launcher refuses to start.
    let of_no_session = |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"workspace-");
    if let Ok(temps) = open_verified(&within, Path::new("temp"), &root.join("temp")) {
        for temp in entries(&temps).filter(of_no_session).filter(old) {
            let _ = remove_all(&descriptor_path(&temps).join(temp.file_name()));
        }
    }
}

/// What lies in an open directory.
fn entries(directory: &OwnedFd) -> impl Iterator<Item = DirEntry> {
    std::fs::read_dir(descriptor_path(directory)).into_iter().flatten().flatten()
}

/// Removes a directory with all that is in it, also where a command has closed directories to their owner or nested them
/// deeper than there are descriptors. That there is none is no error.
fn remove_all(path: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => empty_out(path).and_then(|()| std::fs::remove_dir(path)),
        result => result,
    }
}

/// Opens every directory of a tree to its owner and removes what is in it.
///
/// RACE: a process that a command left behind may put a link where a directory was: so every directory is opened from the
/// one above it without following, and what is changed is what was opened.
fn empty_out(path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut names: Vec<Vec<std::ffi::CString>> = Vec::new();
    let mut current = rustix::fs::open(path, flags, Mode::empty())?;
    // Down into the first directory that is left, up when there is none: one descriptor however deep it is.
    let mut identities = Vec::new();
    let mut entered = true;
    let mut inside = Vec::new();
    loop {
        let stat = rustix::fs::fstat(&current)?;
        if std::mem::take(&mut entered) {
            if stat.st_mode & 0o700 != 0o700 && stat.st_uid == rustix::process::geteuid().as_raw() {
                // A descriptor of this kind takes no fchmod(2); its name below /proc is the directory itself.
                rustix::fs::chmod(descriptor_path(&current), Mode::from_raw_mode(0o700))?;
            }
            names.push(without_files(&current)?);
            identities.push((stat.st_dev, stat.st_ino));
        }
        match names.last_mut().and_then(Vec::pop) {
            Some(name) => match rustix::fs::openat(&current, &name, flags, Mode::empty()) {
                Ok(inner) => {
                    (current, entered) = (inner, true);
                    inside.push(name);
                }
                // Gone, or no directory any more.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {}
                Err(error) => return Err(error.into()),
            },
            None => {
                names.pop();
                identities.pop();
                let Some(expected) = identities.last() else { return Ok(()) };
                current = rustix::fs::openat(&current, "..", flags, Mode::empty())?;
                let stat = rustix::fs::fstat(&current)?;
                if (stat.st_dev, stat.st_ino) != *expected {
                    return Err(io::Error::other("a directory was moved while it was removed"));
                }
                if let Some(name) = inside.pop() {
                    rustix::fs::unlinkat(&current, &name, rustix::fs::AtFlags::REMOVEDIR)?;
                }
            }
        }
    }
}

fn descriptor_path(fd: &rustix::fd::OwnedFd) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

/// Removes everything else and returns the names of the directories in a directory.
fn without_files(directory: &rustix::fd::OwnedFd) -> io::Result<Vec<std::ffi::CString>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(descriptor_path(directory))? {
        let entry = entry?;
        let name = std::ffi::CString::new(std::os::unix::ffi::OsStringExt::into_vec(entry.file_name()))?;
        if entry.file_type()?.is_dir() {
            names.push(name);
        } else {
            rustix::fs::unlinkat(directory, &name, rustix::fs::AtFlags::empty())?;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests;
