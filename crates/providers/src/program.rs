//! The program that a command's first word names: found before somebody is asked about the command, and held until it starts.
//!
//! A name is looked for in PATH when the program starts, and PATH may lead through directories that confined commands can write.
//! Under a wider mode, what they put there would run. So such directories are left out of PATH for the call, and the file that
//! was shown is the one that is started.

use crate::lookup::links_on;
use crate::runtime_dir;
use pinfold_policy::SandboxError;
use pinfold_policy::quote::quote;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, Stat, accessat, fstat, openat};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Where execvp(3) looks when there is no PATH.
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Says why there is no program, or no longer the one that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramProblem {
    /// Nothing that can be executed has this name.
    Missing(OsString),
    /// Only a directory of PATH that confined commands can write has it: the file there.
    OnlyWritable(PathBuf),
    /// The file is another one, or was written to.
    Changed(PathBuf),
}

impl From<ProgramProblem> for SandboxError {
    fn from(problem: ProgramProblem) -> Self {
        let detail = match problem {
            ProgramProblem::Missing(program) => return Self::CommandNotFound { program },
            ProgramProblem::OnlyWritable(path) => format!(
                "the program is found only where confined commands can write, and there PATH is not followed for a call that \
                 asks for more; to mean that file, name it by its path: {}",
                quote(&path)
            ),
            ProgramProblem::Changed(path) => format!(
                "the program {} is another file now, or was written to; the question was about the one before",
                quote(&path)
            ),
        };
        Self::InvalidPolicy { detail }
    }
}

/// Holds a program as it was when it was looked for.
#[derive(Debug)]
pub struct HeldProgram {
    path: PathBuf,
    open: OwnedFd,
    stamp: [u64; 5],
    writable: bool,
    left_out: Vec<PathBuf>,
    directory: PathBuf,
    places: Vec<PathBuf>,
}

impl HeldProgram {
    /// Looks for a command's first word as execvp(3) would from the absolute directory `from`, in those directories of `path`
    /// that do not lie, or lead through a link that lies, in one of `places`: those that confined commands can write, and our
    /// runtime directory, where their temp areas are.
    ///
    /// # Errors
    ///
    /// [`ProgramProblem::Missing`] and [`ProgramProblem::OnlyWritable`].
    pub fn find(word: &OsStr, from: &Path, path: Option<&OsStr>, places: &[&Path]) -> Result<Self, ProgramProblem> {
        let ours = runtime_dir::intended(None);
        let places = places.iter().copied().chain(ours.iter().map(PathBuf::as_path));
        let places: Vec<PathBuf> = places.map(crate::closed::physical).collect();
        let (searched, left_out) = partition(path.unwrap_or(OsStr::new(USUAL_PATH)), from, &places);
        let hold = |path: PathBuf| {
            let (open, stamp) = look(&path)?;
            let writable = lies_in(&path, &places);
            Some(Self {
                path,
                open,
                stamp,
                writable,
                left_out: left_out.clone(),
                directory: from.to_owned(),
                places: places.clone(),
            })
        };
        if word.as_bytes().contains(&b'/') {
            return hold(from.join(word)).ok_or_else(|| ProgramProblem::Missing(word.to_owned()));
        }
        if let Some(found) = searched.iter().find_map(|directory| hold(directory.join(word))) {
            return Ok(found);
        }
        let there = left_out.iter().map(|directory| directory.join(word)).find(|path| look(path).is_some());
        Err(there.map_or_else(|| ProgramProblem::Missing(word.to_owned()), ProgramProblem::OnlyWritable))
    }

    /// Returns the file's path: absolute, and with the links that lead to it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says whether confined commands can write the file, or a link that leads to it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns the directories of PATH that are left out.
    pub fn left_out(&self) -> &[PathBuf] {
        &self.left_out
    }

    /// Returns what tells the file from every other, and from itself after somebody has written to it.
    pub fn stamp(&self) -> [u64; 5] {
        self.stamp
    }

    /// Looks again whether the file is the same and has not been written to.
    ///
    /// # Errors
    ///
    /// [`ProgramProblem::Changed`].
    pub fn verify(&self) -> Result<(), ProgramProblem> {
        let held = fstat(&self.open).ok().map(|stat| stamp(&stat));
        let now = look(&self.path).map(|(_, stamp)| stamp);
        // RACE: a program that confined commands can write may be written to after this. Whoever said yes was told so.
        if held == Some(self.stamp) && now == held && (self.writable || !lies_in(&self.path, &self.places)) {
            Ok(())
        } else {
            Err(ProgramProblem::Changed(self.path.clone()))
        }
    }

    /// Returns a command that starts this file, takes out of its environment's PATH what is left out, and says so.
    pub(crate) fn named(
        &self,
        argv: &[OsString],
        environment: &mut [(OsString, OsString)],
        notes: &mut Vec<String>,
    ) -> Vec<OsString> {
        notes.extend(self.narrow(environment));
        let first = self.path.as_os_str().to_owned();
        std::iter::once(first).chain(argv.iter().skip(1).cloned()).collect()
    }

    /// Takes out of an environment's PATH what is left out, and returns a sentence about it.
    fn narrow(&self, environment: &mut [(OsString, OsString)]) -> Option<String> {
        let (_, path) = environment.iter_mut().find(|(name, _)| name == "PATH")?;
        let (kept, left_out) = partition(path, &self.directory, &self.places);
        if left_out.is_empty() {
            return None;
        }
        let kept: Vec<&OsStr> = kept.iter().map(|directory| directory.as_os_str()).collect();
        *path = kept.join(OsStr::new(":"));
        let names: Vec<_> = left_out.iter().map(quote).collect();
        Some(format!("Left out of PATH, because confined commands can write there: {}.", names.join(", ")))
    }
}

/// The directories of a PATH, absolute: those that are searched, and those that are left out.
fn partition(path: &OsStr, from: &Path, places: &[PathBuf]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    // An empty word means the working directory.
    let directories = std::env::split_paths(path).map(|directory| from.join(directory));
    directories.partition(|directory| !lies_in(directory, places))
}

/// Whether a path, a link on the way to it, or what it leads to lies in one of the places.
fn lies_in(path: &Path, places: &[PathBuf]) -> bool {
    let inside = |path: &Path| places.iter().any(|place| path.starts_with(place));
    // What does not exist can be made by whoever can write its nearest directory.
    let real = path.ancestors().find_map(|above| above.canonicalize().ok());
    // What cannot be resolved is not trusted.
    inside(path) || real.is_none_or(|real| inside(&real)) || links_on(path).iter().any(|link| inside(link))
}

/// Opens a file that can be executed.
fn look(path: &Path) -> Option<(OwnedFd, [u64; 5])> {
    let open = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let stat = fstat(&open).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let executable = accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    (is_file && executable).then(|| (open, stamp(&stat)))
}

/// The change time (inode(7)) cannot be set back by anybody without power over the clock.
fn stamp(stat: &Stat) -> [u64; 5] {
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    [stat.st_dev, stat.st_ino, size, stat.st_ctime.cast_unsigned(), stat.st_ctime_nsec]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn program(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_name_is_found_outside_of_what_can_be_written_and_a_path_is_marked() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (ws, bin) = (base.join("ws"), base.join("bin"));
        for path in [ws.join("bin/git"), ws.join("bin/only"), bin.join("git")] {
            program(&path);
        }
        std::fs::write(bin.join("plain"), "").unwrap();
        symlink(ws.join("bin"), base.join("link")).unwrap();
        symlink(&bin, ws.join("out")).unwrap();
        symlink(ws.join("bin/only"), bin.join("linked")).unwrap();
        let path = [ws.join("bin"), base.join("link"), ws.join("out"), PathBuf::new(), ws.join("later"), bin.clone()];
        let joined = std::env::join_paths(&path).unwrap();
        let find = |word: &str| HeldProgram::find(word.as_ref(), &ws, Some(&joined), &[&ws]);
        let git = find("git").unwrap();
        assert_eq!((git.path(), git.is_writable(), git.left_out().len()), (&*bin.join("git"), false, 5));
        assert_eq!(find("only").unwrap_err(), ProgramProblem::OnlyWritable(ws.join("bin/only")));
        assert_eq!(find("none").unwrap_err(), ProgramProblem::Missing("none".into()));
        assert_eq!(find("plain").unwrap_err(), ProgramProblem::Missing("plain".into()));
        for (word, path) in [("bin/git", ws.join("bin/git")), ("linked", bin.join("linked"))] {
            let found = find(word).unwrap();
            assert_eq!((found.path(), found.is_writable()), (&*path, true));
        }
        let mut environment = [("A".into(), "b".into()), ("PATH".into(), joined.clone())];
        assert!(git.narrow(&mut environment).unwrap().contains("ws/later"));
        assert_eq!(environment[1].1, bin);
        assert_eq!(git.narrow(&mut environment), None);
    }

    #[test]
    fn a_program_that_was_replaced_or_written_to_is_not_the_one_that_was_found() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let path = base.join("p");
        let find = || {
            program(&path);
            let found = HeldProgram::find("./p".as_ref(), &base, None, &[&base]).unwrap();
            found.verify().unwrap();
            found
        };
        let found = find();
        std::fs::write(&path, "#!/bin/sh\nexit\n").unwrap();
        assert_eq!(found.verify(), Err(ProgramProblem::Changed(path.clone())));
        let found = find();
        std::fs::rename(&path, base.join("was")).unwrap();
        assert!(found.verify().is_err());
        symlink("was", &path).unwrap();
        program(&base.join("other"));
        assert!(found.verify().is_err());
    }
}
