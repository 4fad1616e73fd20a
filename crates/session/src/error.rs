//! Every way in which a session refuses, with a stable code. A refusal never leaves a wider mode behind.

use crate::config::Source;
use pinfold_policy::quote::quote;
use pinfold_policy::{SandboxError, escalation::EscalationError};
use std::path::PathBuf;

/// Says why a session, its log or its configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// A root, a policy or a call is refused; the code is the inner one.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// A wider mode or a path was not granted; nothing has run.
    #[error(transparent)]
    Escalation(#[from] EscalationError),
    /// `ESCALATION_REFUSED`: the same, where the answer was not a person's or the question not about a mode.
    #[error("{detail}")]
    Declined {
        /// What was refused, and by whom.
        detail: String,
    },
    /// `CONFIG_INVALID`: a configuration cannot be read as one.
    #[error("{at}: {detail}")]
    ConfigInvalid {
        /// Which file, and where in it.
        at: Source,
        /// What is wrong.
        detail: String,
    },
    /// `CONFIG_WIDENS`: a project file would open what the user's own configuration keeps closed.
    #[error("{at}: key `{key}` would widen: {detail}; a project file may only tighten")]
    ConfigWidens {
        /// Which file, and where in it.
        at: Source,
        /// The key.
        key: &'static str,
        /// From what to what.
        detail: String,
    },
    /// `SESSION_STATE_UNAVAILABLE`: the directory of sessions cannot be used.
    #[error("the state directory {} cannot be used: {detail}", quote(path))]
    StateUnavailable {
        /// The directory, or the part of it that is in the way.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// `SESSION_UNKNOWN`: there is no such session.
    #[error("there is no session {}", quote(id))]
    Unknown {
        /// The name that was given.
        id: String,
    },
    /// `SESSION_ENDED`: the session takes no more calls.
    #[error("session {id} has ended")]
    Ended {
        /// Its name.
        id: String,
    },
    /// `SESSION_CHANGED`: what a call's policy rests on was taken back before the call began.
    #[error("session {id} was changed while the call was prepared, so nothing ran")]
    Changed {
        /// Its name.
        id: String,
    },
    /// `SESSION_LOG_DAMAGED`: the log is not what was written; nothing of it is believed.
    #[error("the log {} is damaged at byte {offset}: {detail}", quote(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        detail: String,
    },
    /// `SESSION_LOG_NEWER`: a newer Pinfold wrote something that must be understood.
    #[error("the log {} was written by a newer pinfold (version {version} of the log, at byte {offset})", quote(path))]
    Newer {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// The version found.
        version: u32,
    },
    /// `SESSION_LOG_UNWRITABLE`: an event could not be written; it did not happen.
    #[error("cannot {act} {}: {detail}", quote(path))]
    Unwritable {
        /// What was tried.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        detail: String,
    },
    /// `SESSION_BUSY`: another process holds the log.
    #[error("another process has held {} for {} s", quote(path), crate::log::PATIENCE.as_secs())]
    Busy {
        /// The lock beside the log.
        path: PathBuf,
    },
    /// `SESSION_EVENT_REFUSED`: an event contradicts the log.
    #[error("{detail}")]
    Refused {
        /// What contradicts what.
        detail: String,
    },
    /// `GRANT_UNUSABLE`: a grant does not fit this call.
    #[error("grant {id} cannot be used: {detail}")]
    GrantUnusable {
        /// The grant.
        id: String,
        /// Why.
        detail: String,
    },
    /// `PRESET_UNKNOWN`.
    #[error("{}permission: unknown preset {} (known: {})", place(at.as_deref()), quote(name), known.join(", "))]
    PresetUnknown {
        /// Which file names it, and where in it.
        at: Option<Box<Source>>,
        /// The name that was given.
        name: String,
        /// Those that exist.
        known: Vec<String>,
    },
}

/// Where something stands, in front of what is wrong with it.
fn place(at: Option<&Source>) -> String {
    at.map(|at| format!("{at}: ")).unwrap_or_default()
}

impl SessionError {
    /// Returns the stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Sandbox(error) => error.code().as_str(),
            Self::Escalation(_) | Self::Declined { .. } => "ESCALATION_REFUSED",
            Self::ConfigInvalid { .. } => "CONFIG_INVALID",
            Self::ConfigWidens { .. } => "CONFIG_WIDENS",
            Self::StateUnavailable { .. } => "SESSION_STATE_UNAVAILABLE",
            Self::Unknown { .. } => "SESSION_UNKNOWN",
            Self::Ended { .. } => "SESSION_ENDED",
            Self::Changed { .. } => "SESSION_CHANGED",
            Self::Damaged { .. } => "SESSION_LOG_DAMAGED",
            Self::Newer { .. } => "SESSION_LOG_NEWER",
            Self::Unwritable { .. } => "SESSION_LOG_UNWRITABLE",
            Self::Busy { .. } => "SESSION_BUSY",
            Self::Refused { .. } => "SESSION_EVENT_REFUSED",
            Self::GrantUnusable { .. } => "GRANT_UNUSABLE",
            Self::PresetUnknown { .. } => "PRESET_UNKNOWN",
        }
    }

    pub(crate) fn refused(detail: impl Into<String>) -> Self {
        Self::Refused { detail: detail.into() }
    }
}
