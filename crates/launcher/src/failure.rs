//! Why nothing was executed: a stage, an error number, and the thing it happened to.

use core::ffi::CStr;

use crate::errno::Errno;

/// The step at which setting up failed; the names are listed in `docs/launcher.md` and never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stage(pub(crate) &'static str);

/// A failure before the command ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    /// Where it happened.
    pub(crate) stage: Stage,
    /// What was tried, as a phrase for people: "cannot open writable root".
    pub(crate) what: &'static str,
    /// The thing it was tried on.
    pub(crate) object: Option<&'static CStr>,
    /// The error of the failed call, if a call failed.
    pub(crate) errno: Option<Errno>,
}

impl Failure {
    /// A failure that is not the error of a system call.
    pub(crate) const fn new(stage: &'static str, what: &'static str) -> Self {
        Self { stage: Stage(stage), what, object: None, errno: None }
    }

    /// The same failure, naming the thing it happened to.
    pub(crate) const fn of(self, object: &'static CStr) -> Self {
        Self { object: Some(object), ..self }
    }
}

/// Turns the error of a system call into a failure that says where and what.
pub(crate) trait Context<T> {
    /// Names the stage and what was tried.
    fn or_fail(self, stage: &'static str, what: &'static str) -> Result<T, Failure>;
}

impl<T> Context<T> for Result<T, Errno> {
    fn or_fail(self, stage: &'static str, what: &'static str) -> Result<T, Failure> {
        self.map_err(|errno| Failure { errno: Some(errno), ..Failure::new(stage, what) })
    }
}
