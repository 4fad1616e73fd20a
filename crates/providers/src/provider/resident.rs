//! What stays between calls: the resident launcher, and the call that it has prepared ahead.

use super::LocalProvider;
use crate::call::{CallOptions, RunOptions, RunResult};
use crate::cancel::Cancel;
use crate::run::{Ahead, Lasting, LastingPlan};
use pinfold_policy::{ExecutionPolicy, SandboxError};
use std::ffi::OsString;
use std::path::Path;

impl LocalProvider {
    /// Does what [`LocalProvider::run`] does and gives the result on as soon as nothing of the command is left; the launcher's
    /// own processes are waited for after that. The options, and with them the streams that were given, are gone before.
    pub fn run_then<T>(
        &self,
        argv: &[OsString],
        policy: &ExecutionPolicy,
        call: &CallOptions,
        run: RunOptions,
        cancel: &Cancel,
        then: impl FnOnce(Result<RunResult, SandboxError>) -> T,
    ) -> T {
        let result = self.run_once(argv, policy, call, &run, cancel);
        drop(run);
        let told = then(result);
        self.resident.see_off();
        told
    }

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

/// What a call needs of walls that stand already; `None` if nobody can say where it starts.
pub(super) fn may_be_ahead(plan: LastingPlan, cwd: Option<&Path>, command: usize) -> Option<Ahead> {
    let cwd = cwd.map(Path::to_owned).or_else(|| std::env::current_dir().ok())?;
    Some(Ahead { lasting: Lasting::look(plan), cwd, command })
}
