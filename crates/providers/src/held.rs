//! Directories that somebody looked at before a call: which ones they were, held until the call starts.
//!
//! A root that is only named can be another directory by the time it is opened. Whoever decided about a directory (a person
//! who granted it, the session that belongs to it) decided about what the name meant then, and meant no link.

use pinfold_policy::RootProblem;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// A directory that is held open, so that its inode number cannot become another's, or the absence of one.
#[derive(Debug)]
pub struct HeldDirectory {
    path: PathBuf,
    found: Option<(OwnedFd, u64, u64)>,
}

impl HeldDirectory {
    /// Looks at an absolute path, going through no link. That nothing is there is an answer too: a call for which it is a
    /// root is refused then, whatever appears meanwhile.
    ///
    /// # Errors
    ///
    /// [`RootProblem::Symlink`] for a path that is or leads through a link or holds `..`, [`RootProblem::NotDirectory`],
    /// [`RootProblem::Relative`], [`RootProblem::Unreadable`].
    pub fn look(path: &Path) -> Result<Self, RootProblem> {
        let found = match walk(path) {
            Ok((open, stat)) => Some((open, stat.st_dev, stat.st_ino)),
            Err(RootProblem::Missing) => None,
            Err(problem) => return Err(problem),
        };
        Ok(Self { path: path.to_owned(), found })
    }

    /// Returns the path that was looked at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says whether a directory was there.
    pub fn exists(&self) -> bool {
        self.found.is_some()
    }

    /// Returns a path by which this process, and one that it starts until that executes something, comes to this directory
    /// whatever has its name.
    pub(crate) fn by_descriptor(&self) -> Option<PathBuf> {
        let (open, ..) = self.found.as_ref()?;
        Some(PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())))
    }

    /// Returns device and inode of what was there.
    pub fn found(&self) -> Option<(u64, u64)> {
        self.found.as_ref().map(|(_, device, inode)| (*device, *inode))
    }

    /// Looks again whether it is still the same directory, and whether no link leads to it.
    ///
    /// # Errors
    ///
    /// [`RootProblem::Changed`] for another directory, and those of [`HeldDirectory::look`].
    pub fn verify(&self) -> Result<(), RootProblem> {
        self.identity().map(|_| ())
    }

    /// Looks again, and returns the identity if it is still the same directory and no link leads to it.
    pub(crate) fn identity(&self) -> Result<(u64, u64), RootProblem> {
        let Some((_, device, inode)) = self.found else { return Err(RootProblem::Missing) };
        let (_, now) = walk(&self.path)?;
        if (now.st_dev, now.st_ino) == (device, inode) { Ok((device, inode)) } else { Err(RootProblem::Changed) }
    }
}

/// Opens one component after the other, so that no kernel follows a link for us.
fn walk(path: &Path) -> Result<(OwnedFd, Stat), RootProblem> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let problem = |error: Errno| match error {
        Errno::NOENT => RootProblem::Missing,
        Errno::NOTDIR => RootProblem::NotDirectory,
        other => RootProblem::Unreadable(std::io::Error::from(other).to_string()),
    };
    let mut parts = path.components();
    if parts.next() != Some(Component::RootDir) {
        return Err(RootProblem::Relative);
    }
    let mut open = rustix::fs::openat(CWD, "/", flags | OFlags::DIRECTORY, Mode::empty()).map_err(problem)?;
    let mut stat = rustix::fs::fstat(&open).map_err(problem)?;
    for part in parts {
        match part {
            Component::Normal(name) => {
                // O_PATH with O_NOFOLLOW opens a link itself (open(2)).
                open = rustix::fs::openat(&open, name, flags, Mode::empty()).map_err(problem)?;
                stat = rustix::fs::fstat(&open).map_err(problem)?;
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::Directory => {}
                    FileType::Symlink => return Err(RootProblem::Symlink),
                    _ => return Err(RootProblem::NotDirectory),
                }
            }
            Component::CurDir => {}
            // `..` is no link, but then the path is not that of the directory.
            _ => return Err(RootProblem::Symlink),
        }
    }
    Ok((open, stat))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_goes_through_no_link_and_knows_the_directory_again() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", base.join("link")).unwrap();
        std::fs::write(base.join("file"), "").unwrap();
        let look = |name: &str| HeldDirectory::look(&base.join(name)).map(|_| ());
        assert_eq!(look("a/b"), Ok(()));
        assert_eq!(look("a/./b/"), Ok(()));
        assert_eq!(look("link"), Err(RootProblem::Symlink));
        assert_eq!(look("link/b"), Err(RootProblem::Symlink));
        assert_eq!(look("a/b/.."), Err(RootProblem::Symlink));
        assert_eq!(look("file"), Err(RootProblem::NotDirectory));
        assert_eq!(look("file/x"), Err(RootProblem::NotDirectory));
        assert_eq!(HeldDirectory::look(Path::new("a")).map(|_| ()), Err(RootProblem::Relative));
        let (held, none) =
            (HeldDirectory::look(&base.join("a/b")).unwrap(), HeldDirectory::look(&base.join("c")).unwrap());
        assert!(held.identity().is_ok());
        assert_eq!(none.identity(), Err(RootProblem::Missing));
        std::os::unix::fs::symlink("a", base.join("c")).unwrap();
        assert_eq!(none.identity(), Err(RootProblem::Missing));
        std::fs::rename(base.join("a"), base.join("d")).unwrap();
        assert_eq!(held.identity(), Err(RootProblem::Missing));
        std::os::unix::fs::symlink("d", base.join("a")).unwrap();
        assert_eq!(held.identity(), Err(RootProblem::Symlink));
        std::fs::remove_file(base.join("a")).unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        assert_eq!(held.identity(), Err(RootProblem::Changed));
    }
}
