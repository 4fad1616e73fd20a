//! What nobody is asked about, and the words for the broker.

use super::*;
use crate::asks::{self, AskWords, Carried};
use crate::run::Ended;
use crate::status::Status;
use pinfold_policy::ApprovedEffect;
use std::os::fd::OwnedFd;

impl LocalProvider {
    /// Opens a channel if somebody is to be asked and the broker can ask: our end, and the broker's.
    pub(super) fn channel_for_asking(
        &self,
        call: &Call<'_>,
        backend: Backend,
        request: &mut Request,
        runtime: &Path,
    ) -> Result<(Option<OwnedFd>, Option<OwnedFd>), SandboxError> {
        let Some(asks) = call.asks.filter(|_| request.is_brokered()) else { return Ok((None, None)) };
        let (ours, theirs) = asks::channel_for_broker().map_err(|error| could_not_ask(backend, &error))?;
        request.asks = Some(self.ask_words(call, asks, crate::run::number(&theirs), runtime));
        Ok((Some(ours), Some(theirs)))
    }

    /// SECURITY: a person can be talked into anything. What would open the sandbox itself, or what the policy denies even for
    /// reading, is refused without a question.
    fn ask_words(&self, call: &Call<'_>, asks: &Asks, descriptor: i32, runtime: &Path) -> AskWords {
        let denied = &call.denied;
        let mut never: Vec<PathBuf> = asks.never.clone();
        never.extend(self.host.launcher.iter().chain(&self.host.broker).cloned());
        never.extend(std::env::current_exe());
        never.extend(runtime_dir::intended(self.configured_runtime.as_deref()));
        never.push(runtime.to_owned());
        never.extend(denied.covers.iter().map(|cover| cover.path.clone()));
        for paths in [&denied.hollows, &denied.unreachable, &denied.absent, &denied.absent_inside, &denied.skipped] {
            never.extend(paths.iter().cloned());
        }
        let mut never: Vec<PathBuf> = never.iter().map(|path| closed::physical(path)).collect();
        never.sort();
        never.dedup();
        AskWords { descriptor, seconds: asks.patience.as_secs().max(1), never }
    }
}

/// Begins to carry questions to whoever answers.
pub(super) fn begin_asking(
    backend: Backend,
    channel: Option<OwnedFd>,
    asks: Option<&Asks>,
    hold: &Hold,
) -> Result<Option<Carried>, SandboxError> {
    let carry = |(channel, asks)| asks::carry(channel, asks, hold).map_err(|error| could_not_ask(backend, &error));
    channel.zip(asks).map(carry).transpose()
}

/// Ends the asking, and returns what was permitted while the command ran.
pub(super) fn approved(asking: Option<Carried>, ended: &std::io::Result<Ended>) -> Vec<ApprovedEffect> {
    match (asking, ended) {
        (Some(_), Ok(ended)) => Status::parse(&ended.status).approved,
        _ => Vec::new(),
    }
}

/// No channel: then nothing runs, because whoever wants to be asked would not be.
fn could_not_ask(backend: Backend, error: &std::io::Error) -> SandboxError {
    let detail = format!("no channel for questions: {error}");
    SandboxError::PreparationFailed { backend: backend.provider_name().to_owned(), detail }
}
