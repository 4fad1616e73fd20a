//! The working directory that a question is about: which one it was, held until the call begins.

use crate::error::SessionError;
use pinfold_policy::quote::quote;
use pinfold_policy::{RootProblem, SandboxError};
use pinfold_providers::HeldDirectory;
use std::path::Path;

/// A working directory as it was when somebody was asked. A name can be given to another directory while the question stands,
/// also by what runs confined; under a wider mode the call would act there.
#[derive(Debug)]
pub struct AskedPlace(HeldDirectory);

impl AskedPlace {
    /// Looks at an absolute path without links, and holds the directory that is there.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for a path that leads through a link, to no directory or to nothing.
    pub fn look(path: &Path) -> Result<Self, SessionError> {
        let held = HeldDirectory::look(path).map_err(|problem| refuse(path, &problem, ""))?;
        if held.exists() { Ok(Self(held)) } else { Err(refuse(path, &RootProblem::Missing, "")) }
    }

    /// Returns the path that was looked at.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Looks again. To be called after the answer, right before the call begins: what remains is the time between.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` if it is another directory now, or a link leads to it.
    pub fn still(&self) -> Result<(), SessionError> {
        self.0.verify().map_err(|problem| refuse(self.path(), &problem, "; the question was about the one before"))
    }
}

fn refuse(path: &Path, problem: &RootProblem, why: &str) -> SessionError {
    SandboxError::InvalidPolicy { detail: format!("the working directory {} {problem}{why}", quote(path)) }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_took_the_name_of_the_one_asked_about_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let place = base.join("a");
        std::fs::create_dir(&place).unwrap();
        let asked = AskedPlace::look(&place).unwrap();
        asked.still().unwrap();
        std::fs::rename(&place, base.join("was")).unwrap();
        assert!(asked.still().is_err());
        std::fs::create_dir(&place).unwrap();
        assert!(asked.still().unwrap_err().to_string().contains("the question was about"));
        std::fs::remove_dir(&place).unwrap();
        std::os::unix::fs::symlink(base.join("was"), &place).unwrap();
        assert!(asked.still().is_err());
        assert!(AskedPlace::look(&place).is_err());
        assert!(AskedPlace::look(&base.join("nothing")).is_err());
    }
}
