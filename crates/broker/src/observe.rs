//! Observing: what a call was about to do, so that a refusal of the walls can be told with its path.
//!
//! Nothing is decided here. A call is performed as ever, and what the walls answer goes to the command as it is.

use crate::caller::{Caller, Outcome, Refusal};
use crate::denials::{By, Denial};
use crate::protect::is_read_only;
use crate::resolve::{Name, Object};
use crate::serve::{Answer, Server};
use rustix::fs::fstat;
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// One side of a call, as it is noted before it is performed.
#[derive(Debug)]
pub(crate) struct Attempt {
    operation: &'static str,
    path: PathBuf,
    /// Whether the walls leave this place open.
    writable: bool,
    device: u64,
}

impl Caller<'_> {
    /// Notes what the call is about to do. What cannot be looked at is not told; whether it is refused does not depend on it.
    pub(crate) fn about_to(&self, operation: &'static str, path: &Path, place: impl AsFd) {
        if !self.server.observes {
            return;
        }
        let Ok(stat) = fstat(&place) else { return };
        let writable = if self.server.governs_metadata {
            self.server.writable.iter().any(|root| path.starts_with(root))
        } else {
            !is_read_only(&place).unwrap_or(false)
        };
        let attempt = Attempt { operation, path: path.to_owned(), writable, device: stat.st_dev };
        let mut attempts = self.attempts.borrow_mut();
        // An exchange is two moves between the same names.
        if !attempts.iter().any(|known| known.path == attempt.path) {
            attempts.push(attempt);
        }
    }

    /// The same for a name at which nothing is: the walls refuse before they look.
    pub(crate) fn about_to_name(&self, operation: &'static str, name: &Name) -> Outcome<()> {
        if self.server.observes
            && let Some(path) = self.path_of_name(name)?
        {
            self.about_to(operation, &path, &name.parent);
        }
        Ok(())
    }

    /// The same for what is changed without a name of its own.
    pub(crate) fn about_to_object(&self, operation: &'static str, object: &Object) -> Outcome<()> {
        if self.server.observes {
            self.about_to(operation, &self.path_of(&object.handle)?, &object.handle);
        }
        Ok(())
    }

    /// What is refused because no wall but ours knows a place by its name; told if refusals outside are.
    pub(crate) fn out_of_reach(&self, operation: &'static str, path: &Path) -> Refusal {
        if !self.server.observes {
            return Errno::ACCESS.into();
        }
        self.deny_as(Denial { errno: Errno::ACCESS, ..Denial::ours(operation, path.to_owned(), None) })
    }
}

impl Server {
    /// Tells of what the walls refused, if they did.
    pub(crate) fn observe(&self, caller: &Caller<'_>, outcome: &Outcome<Answer>) {
        let Err(Refusal::Errno(errno)) = outcome else { return };
        let attempts = caller.attempts.take();
        // Two writable places of one file system are two for renaming, because of us.
        let parted = attempts.iter().all(|attempt| attempt.writable)
            && attempts.windows(2).any(|pair| pair[0].device == pair[1].device);
        for attempt in &attempts {
            if self.is_ours(attempt, *errno, parted) {
                let Attempt { operation, path, .. } = attempt;
                let denial = Denial { operation, path: path.clone(), rule: None, errno: *errno, by: By::Kernel };
                self.denials.note(&denial, || caller.who());
            }
        }
    }

    /// Whether an error comes from the walls rather than from the file: where they leave a place open, its permissions are the
    /// user's own, unless root has lost what overrides them.
    fn is_ours(&self, attempt: &Attempt, errno: Errno, parted: bool) -> bool {
        match errno {
            // Also of what covers a file in a place that is open.
            Errno::ROFS => true,
            Errno::ACCESS | Errno::PERM => !attempt.writable || self.of_root,
            Errno::XDEV => !attempt.writable || parted,
            _ => false,
        }
    }
}
