//! The temp area of a call: made anew by a mount tree, a directory of the call's own, or the session's, which all its
//! calls share under every mechanism.

use super::{Call, LocalProvider};
use crate::backend::Backend;
use crate::closed::Cover;
use crate::outcome;
use crate::plan::Request;
use crate::roots::{PinnedRoot, pin_physical};
use crate::runtime_dir::RuntimeDir;
use pinfold_policy::SandboxError;
use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};

/// What in a session's directory is seen at `/tmp`, and is `TMPDIR` where nothing can be seen elsewhere.
const MAIN: &str = "tmp";

impl LocalProvider {
    /// Returns the runtime directory, which is made when it is needed first.
    pub(super) fn runtime(&self) -> Result<Arc<RuntimeDir>, SandboxError> {
        let mut known = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*known {
            return Ok(Arc::clone(runtime));
        }
        let opened =
            RuntimeDir::open(self.configured_runtime.as_deref()).map_err(|detail| SandboxError::PreparationFailed {
                backend: "local".to_owned(),
                detail: format!("no runtime directory: {detail}"),
            })?;
        Ok(Arc::clone(known.insert(Arc::new(opened))))
    }

    /// Whether it has been made already.
    pub(super) fn has_runtime(&self) -> bool {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Finds or makes the temp directory that a call needs; the second kind is removed when dropped.
    pub(super) fn give_temp(
        &self,
        call: &Call<'_>,
        backend: Backend,
        request: &mut Request,
        runtime: &RuntimeDir,
    ) -> io::Result<Option<tempfile::TempDir>> {
        if !request.writes() {
            return Ok(None);
        }
        let session =
            call.policy.session_id.as_ref().map(|session| runtime.kept_temp(&outcome::owner_of_session(session)));
        match (backend, session.transpose()?) {
            (Backend::Namespace | Backend::Bwrap, Some(owner)) => {
                for (number, at) in request.covered().into_iter().enumerate() {
                    // The first is what TMPDIR names.
                    let name = if number == 0 { MAIN.to_owned() } else { format!("{MAIN}-{number}") };
                    let directory = pin(&runtime.kept_part(&owner, &name)?)?;
                    request.session_temps.push((at, directory));
                }
                request.other_temps = Some(Cover { path: runtime.temps(), directory: true });
                Ok(None)
            }
            (Backend::Landlock, Some(owner)) => {
                request.temp = Some(pin(&runtime.kept_part(&owner, MAIN)?)?);
                Ok(None)
            }
            (Backend::Landlock, None) if call.ours => {
                let directory = runtime.call_directory()?;
                request.temp = Some(pin(directory.path())?);
                Ok(Some(directory))
            }
            (Backend::Landlock, None) => {
                let workspace = &call.roots.workspace;
                let owner = format!("workspace-{:x}-{:x}", workspace.device, workspace.inode);
                request.temp = Some(pin(&runtime.kept_temp(&owner)?)?);
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}

pub(super) fn pin(path: &Path) -> io::Result<PinnedRoot> {
    pin_physical(&path.canonicalize()?).map_err(|problem| io::Error::other(problem.to_string()))
}
