//! Directories that are opened once: from then on each is that directory, whatever its name comes to mean.

use pinfold_policy::root_rules::is_system_directory;
use pinfold_policy::{ExecutionPolicy, RootProblem, RootRole, SandboxError, SandboxMode};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// How a directory is opened that is only walked through.
pub(crate) const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory that was opened, with its name and identity.
#[derive(Debug, Clone)]
pub struct Pinned {
    pub(crate) path: PathBuf,
    pub(crate) handle: Arc<OwnedFd>,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Pinned {
    /// Opens a directory by its physical path.
    pub(crate) fn open(path: &Path) -> Result<Self, RootProblem> {
        // RACE: the path may have changed since it was resolved; then this fails or pins what is there now, which is a
        // directory at exactly this path.
        let handle = rustix::fs::open(path, DIRECTORY, Mode::empty()).map_err(problem)?;
        let stat = rustix::fs::fstat(&handle).map_err(problem)?;
        Ok(Self { path: path.to_owned(), handle: Arc::new(handle), device: stat.st_dev, inode: stat.st_ino })
    }

    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.device, self.inode)
    }

    /// Whether this is the directory that a look found.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        self.identity() == (stat.st_dev, stat.st_ino)
    }

    /// Whether the name still stands for the directory.
    pub(crate) fn is_in_place(&self) -> bool {
        rustix::fs::statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| self.is(&stat))
    }

    /// Returns the physical path that the directory had when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Resolves and opens the roots of a policy, by the same rules as for commands: the workspace may be reached through
/// links, an extra root may not; a directory of the system is no writable root.
pub(crate) fn open(policy: &ExecutionPolicy) -> Result<(Pinned, Vec<Pinned>), SandboxError> {
    policy.validate()?;
    let writes = policy.mode == SandboxMode::WorkspaceWrite;
    let workspace = pin(RootRole::Workspace, &policy.workspace_root, writes)?;
    let extra = policy.additional_writable_roots.iter().map(|path| pin(RootRole::Additional, path, writes));
    let extra: Vec<Pinned> = extra.collect::<Result<_, _>>()?;
    if !writes {
        return Ok((workspace, Vec::new()));
    }
    let mut writable = extra;
    writable.push(workspace.clone());
    writable.sort_by(|one, other| one.path.cmp(&other.path));
    writable.dedup_by(|one, other| one.path == other.path);
    Ok((workspace, writable))
}

fn pin(role: RootRole, given: &Path, writes: bool) -> Result<Pinned, SandboxError> {
    let refuse = |problem| SandboxError::InvalidRoot { role, path: given.to_owned(), problem };
    let path = std::fs::canonicalize(given).map_err(|error| refuse(problem(crate::error::errno(&error))))?;
    let plain: PathBuf = given.components().filter(|part| !matches!(part, Component::CurDir)).collect();
    if role == RootRole::Additional && path != plain {
        return Err(refuse(RootProblem::Symlink));
    }
    if writes && is_system_directory(&path) {
        let why = "it is a system directory and is never opened for writing".to_owned();
        return Err(refuse(RootProblem::Refused(why)));
    }
    Pinned::open(&path).map_err(refuse)
}

fn problem(errno: rustix::io::Errno) -> RootProblem {
    match errno {
        rustix::io::Errno::NOENT => RootProblem::Missing,
        rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => RootProblem::NotDirectory,
        other => RootProblem::Unreadable(std::io::Error::from(other).to_string()),
    }
}
