//! What a question about a command shows beside its words: the directory that it would run in and the program that would start,
//! held until the call begins.

use crate::error::SessionError;
use crate::log::event::AskedProgram;
use pinfold_policy::quote::{quote, readable};
use pinfold_policy::{ExecutionPolicy, RootProblem, SandboxError};
use pinfold_providers::{CallOptions, HeldDirectory, HeldProgram};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// A working directory and a program as they were when somebody was asked. Names can be given to others while the question
/// stands, also by what runs confined; under a wider mode the call would act there, or start that.
#[derive(Debug, Clone)]
pub struct Shown {
    place: Arc<HeldDirectory>,
    program: Arc<HeldProgram>,
}

impl Shown {
    /// Looks at an absolute directory without links, and for the program that a command starts from there with our PATH. What
    /// confined commands can write are the roots of the policy in force and the session's directory.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for a path that leads through a link, to no directory or to nothing, and for a name that only a
    /// directory of PATH has that confined commands can write. `SANDBOX_COMMAND_NOT_FOUND`.
    pub fn look(argv: &[OsString], cwd: &Path, policy: &ExecutionPolicy, session: &Path) -> Result<Self, SessionError> {
        let place = HeldDirectory::look(cwd).map_err(|problem| refuse(cwd, &problem, ""))?;
        if !place.exists() {
            return Err(refuse(cwd, &RootProblem::Missing, ""));
        }
        // Also where the mode in force is read-only: it may have been another one before.
        let mut writable = vec![session, &policy.workspace_root];
        writable.extend(policy.additional_writable_roots.iter().map(|root| root.as_path()));
        let word = argv.first().map(OsString::as_os_str).unwrap_or_default();
        let program = HeldProgram::find(word, cwd, std::env::var_os("PATH").as_deref(), &writable);
        Ok(Self { place: Arc::new(place), program: Arc::new(program.map_err(SandboxError::from)?) })
    }

    /// Looks again whether both are what was shown. To be called after the answer; [`Shown::hold`] does the rest.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` if one of them is another now, or a link leads to the directory, or the program was written to.
    pub fn still(&self) -> Result<(), SessionError> {
        let place = self.place.verify();
        place.map_err(|problem| refuse(self.place.path(), &problem, "; the question was about the one before"))?;
        Ok(self.program.verify().map_err(SandboxError::from)?)
    }

    /// Makes a call start this program, in this directory, or nothing.
    pub fn hold(&self, call: &mut CallOptions) {
        call.held.insert(0, Arc::clone(&self.place));
        call.program = Some(Arc::clone(&self.program));
    }

    /// What the log and whoever answers are told of the program.
    pub(crate) fn told(&self) -> AskedProgram {
        AskedProgram {
            path: readable(self.program.path()),
            writable: self.program.is_writable(),
            left_out: self.program.left_out().iter().map(readable).collect(),
        }
    }

    /// What a yes is bound to beside words.
    pub(crate) fn identity(&self) -> Vec<u8> {
        let (device, inode) = self.place.found().unwrap_or_default();
        [device, inode].into_iter().chain(self.program.stamp()).flat_map(u64::to_be_bytes).collect()
    }
}

fn refuse(path: &Path, problem: &RootProblem, why: &str) -> SessionError {
    SandboxError::InvalidPolicy { detail: format!("the working directory {} {problem}{why}", quote(path)) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinfold_policy::SandboxMode;

    #[test]
    fn a_directory_that_took_the_name_of_the_one_asked_about_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let place = base.join("a");
        let policy = ExecutionPolicy::new(SandboxMode::ReadOnly, base.clone());
        let look = |path: &Path| Shown::look(&["true".into()], path, &policy, &base);
        std::fs::create_dir(&place).unwrap();
        let asked = look(&place).unwrap();
        asked.still().unwrap();
        let before = asked.identity();
        std::fs::rename(&place, base.join("was")).unwrap();
        assert!(asked.still().is_err());
        std::fs::create_dir(&place).unwrap();
        assert!(asked.still().unwrap_err().to_string().contains("the question was about"));
        assert_ne!(look(&place).unwrap().identity(), before);
        std::fs::remove_dir(&place).unwrap();
        std::os::unix::fs::symlink(base.join("was"), &place).unwrap();
        assert!(asked.still().is_err());
        assert!(look(&place).is_err());
        assert!(look(&base.join("nothing")).is_err());
        assert_eq!(look(&base.join("was")).unwrap().identity(), before);
    }
}
