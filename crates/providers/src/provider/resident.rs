//! What stays between calls: the resident launcher, and the call that it has prepared ahead.

use super::LocalProvider;
use crate::run::{Ahead, Lasting};
use std::path::Path;

impl LocalProvider {
    /// Returns the resident launcher's process, if there is one, and how many calls began as processes that it or one before
    /// it made.
    pub fn resident(&self) -> (Option<u32>, u64) {
        self.resident.facts()
    }

    /// Returns the process that waits for the next call behind walls that stand, if there is one, and how many calls began as
    /// such.
    pub fn ahead(&self) -> (Option<u32>, u64) {
        self.resident.ahead()
    }
}

/// What a call needs of walls that stand already; `None` if it cannot have such: it enters a control group first, or nobody
/// can say where it starts.
pub(super) fn may_be_ahead(
    lasting: Option<Lasting>,
    grouped: bool,
    cwd: Option<&Path>,
    command: usize,
) -> Option<Ahead> {
    let lasting = lasting.filter(|_| !grouped)?;
    let cwd = cwd.map(Path::to_owned).or_else(|| std::env::current_dir().ok())?;
    Some(Ahead { lasting, cwd, command })
}
