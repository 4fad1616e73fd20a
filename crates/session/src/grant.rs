//! Permissions: what can be allowed, and for how long.

use pinfold_policy::SandboxMode;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path, PathBuf};

/// Identifies a grant within its session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GrantId(pub(crate) String);

impl GrantId {
    /// Wraps a name as a person spells it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for GrantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// What a grant allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Scope {
    /// Writing below one directory.
    Write {
        /// The directory.
        path: PathBuf,
    },
    /// A whole mode.
    Mode {
        /// The mode.
        mode: SandboxMode,
    },
    /// One effect of a command that runs and waits for the answer.
    Effect {
        /// The effect.
        effect: LiveEffect,
    },
}

/// What is told of one effect. Bytes that are not UTF-8 appear as `\xHH`; what happens is decided by descriptors, and not by
/// this text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LiveEffect {
    /// The call, such as `open` or `rename`.
    pub operation: String,
    /// The path.
    pub path: String,
    /// The call's other path, or the target of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    /// Where a link leads that is moved, or what metadata would become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The rule that forbids it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Number of the process that waits, as the host counts.
    pub process: u32,
    /// Its name, as it gave it itself.
    pub name: String,
    /// Its command line, as it shows it itself.
    pub argv: Vec<String>,
    /// Whether these are all of its arguments.
    pub argv_is_whole: bool,
}

impl Scope {
    /// Returns the mode that a call needs for it: a directory is writable in no mode below `workspace-write`.
    pub fn mode(&self) -> SandboxMode {
        match self {
            Self::Write { .. } | Self::Effect { .. } => SandboxMode::WorkspaceWrite,
            Self::Mode { mode } => *mode,
        }
    }

    /// Says in a few words what is allowed, safe for a terminal.
    pub fn describe(&self) -> String {
        match self {
            Self::Write { path } => format!("write below {}", pinfold_policy::quote::quote(path)),
            Self::Mode { mode } => format!("mode {mode}"),
            Self::Effect { effect } => {
                let (operation, path) = (pinfold_policy::quote::quote(&effect.operation), &effect.path);
                format!("once: {operation} of {}", pinfold_policy::quote::quote(path))
            }
        }
    }
}

/// For how long a grant holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Life {
    /// For the one call to which it is bound.
    Call,
    /// Until it is revoked or out of date, or the session ends. For directories only.
    Session,
}

/// Says what is wrong with a directory that is to be granted, as far as that can be known without looking.
pub(crate) fn problem_of(path: &Path) -> Option<&'static str> {
    let text = path.to_str().map(|text| text.contains('\0'));
    if text.is_none() {
        return Some("is not UTF-8, so it cannot stand in a log");
    }
    if text == Some(true) {
        return Some("holds a NUL byte");
    }
    if !path.is_absolute() {
        return Some("is not an absolute path");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Some("holds `..`; name the directory itself");
    }
    None
}

/// Permission to make one call under a wider policy than the session's.
///
/// It comes out of the log alone: [`crate::Session`] makes it when a grant is used up, under the log's lock. It cannot be
/// cloned, and resolving a policy takes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Approved {
    pub(crate) session: String,
    pub(crate) grant: GrantId,
    pub(crate) scope: Scope,
    pub(crate) digest: crate::Digest,
    pub(crate) argv: crate::Digest,
}

impl Approved {
    /// Returns the grant that was used.
    pub fn grant(&self) -> &GrantId {
        &self.grant
    }

    /// Returns what is allowed.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the digest of the call that is allowed.
    pub fn digest(&self) -> crate::Digest {
        self.digest
    }
}
