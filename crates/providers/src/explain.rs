//! What would happen to a path, answered from the same grants as the plan.

use crate::backend::Backend;
use pinfold_policy::{Layer, SandboxPolicy};
use serde::Serialize;
use std::path::PathBuf;

/// Names what a command would do to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Change the content of what is there.
    Write,
    /// Create something there.
    Create,
    /// Remove what is there.
    Remove,
    /// Rename what is there, or something onto it.
    Rename,
    /// Change mode, owner, times, attributes or flags.
    ChangeMetadata,
    /// Read it.
    Read,
    /// Connect to a unix socket there.
    Connect,
}

/// Asks what would happen.
#[derive(Debug, Clone)]
pub struct Question {
    /// The absolute path.
    pub path: PathBuf,
    /// What is done to it.
    pub operation: Operation,
    /// The policy that would be in force.
    pub policy: SandboxPolicy,
}

/// Says what would happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ruling {
    /// The sandbox lets it through; the host's own permissions still apply.
    Allowed,
    /// The sandbox refuses it.
    Denied,
    /// No wall of this mechanism looks at it.
    NotGoverned,
}

/// Holds what would happen and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What would happen.
    pub ruling: Ruling,
    /// The mechanism that was asked.
    pub backend: Backend,
    /// The path with every link resolved, as far as it exists.
    pub resolved: PathBuf,
    /// The rule that decides, a sentence.
    pub rule: String,
    /// The walls that decide.
    pub layers: Vec<Layer>,
}
