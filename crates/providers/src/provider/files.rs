//! What file tools in the caller's own process need to decide as the walls around a command would.

use super::LocalProvider;
use crate::call::CallOptions;
use crate::plan::{Request, temp_view};
use crate::{Backend, HardLinkScan};
use pinfold_policy::{ProtectedNames, SandboxError, SandboxPolicy, TempView};

/// Rules for file tools beside the policy and its restrictions.
#[derive(Debug, Clone)]
pub struct FileRules {
    /// The mechanism that would confine a command.
    pub backend: Backend,
    /// Names that no command may change, as they are found on this host now.
    pub protected: ProtectedNames,
    /// The temp area that the session's commands share; [`TempView::None`] without a session, because what one call
    /// finds no other does.
    pub temp: TempView,
}

impl LocalProvider {
    /// Finds the rules for file tools, for a mechanism or for the one that would be chosen. Of the options, the mechanism
    /// and the restrictions count. A session's temp directory is made if it is not there.
    ///
    /// # Errors
    ///
    /// Those of [`LocalProvider::confine`].
    pub fn file_rules(&self, policy: &SandboxPolicy, options: &CallOptions) -> Result<FileRules, SandboxError> {
        let options = CallOptions { hard_links: HardLinkScan::Skip, status_file: None, ..options.clone() };
        let call = self.resolve(policy, &options, 1, false)?;
        let runtime = self.runtime()?;
        let (mut causes, mut limit) = (Vec::new(), None);
        for backend in self.candidates(&options)? {
            let mut request =
                match self.verdict(backend, policy.mode).map(|usable| self.request(&call, backend, &usable)) {
                    Ok(Ok(request)) => request,
                    Ok(Err(error)) => {
                        limit.get_or_insert(error);
                        continue;
                    }
                    Err(refusal) => {
                        causes.push(refusal.of(backend));
                        continue;
                    }
                };
            let failed = |error: std::io::Error| SandboxError::PreparationFailed {
                backend: backend.provider_name().to_owned(),
                detail: format!("no temp directory: {error}"),
            };
            let temp = if policy.session_id.is_some() {
                // What is dropped here belongs to calls of no session.
                drop(self.give_temp(&call, backend, &mut request, &runtime).map_err(failed)?);
                lasting(&request)
            } else {
                TempView::None
            };
            let protected = request.closed.protected.as_ref().map(|protected| protected.names(&request.roots));
            return Ok(FileRules { backend, protected: protected.unwrap_or_default(), temp });
        }
        Err(limit.unwrap_or(SandboxError::Unavailable { mode: policy.mode, causes, runner_failure: None }))
    }
}

fn lasting(request: &Request) -> TempView {
    match &request.temp {
        Some(temp) => TempView::PrivateDirectory { path: temp.path.clone() },
        None if request.lasting().is_empty() => TempView::None,
        None => temp_view(request),
    }
}
