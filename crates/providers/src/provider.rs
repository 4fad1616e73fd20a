//! The one entry: a provider with its settings and its cached probes.

use crate::backend::Backend;
use crate::call::{CallOptions, Confinement, Finding, ProviderConfig, RunOptions, RunResult};
use crate::cancel::Cancel;
use crate::explain::{Answer, Question};
use pinfold_policy::{ConfinedMode, ExecutionPolicy, SandboxError, SandboxPolicy};
use std::ffi::OsString;

/// Confines commands on this host.
#[derive(Debug)]
pub struct LocalProvider {
    _config: ProviderConfig,
}

impl LocalProvider {
    /// Makes a provider; starts and probes nothing.
    pub fn new(config: ProviderConfig) -> Result<Self, SandboxError> {
        Ok(Self { _config: config })
    }

    /// Wraps a command.
    pub fn confine(
        &self,
        _argv: &[OsString],
        policy: &SandboxPolicy,
        _options: &CallOptions,
        _cancel: &Cancel,
    ) -> Result<Confinement, SandboxError> {
        Err(SandboxError::Unavailable { mode: policy.mode, causes: Vec::new(), runner_failure: None })
    }

    /// Runs a command to its end.
    pub fn run(
        &self,
        _argv: &[OsString],
        _policy: &ExecutionPolicy,
        _call: &CallOptions,
        _run: &RunOptions,
        _cancel: &Cancel,
    ) -> Result<RunResult, SandboxError> {
        Err(SandboxError::Cancelled)
    }

    /// Probes every mechanism.
    pub fn examine(&self, _mode: ConfinedMode) -> Vec<Finding> {
        Vec::new()
    }

    /// Says what would happen to a path.
    pub fn explain(&self, question: &Question, _backend: Option<Backend>) -> Result<Answer, SandboxError> {
        Err(SandboxError::Unavailable { mode: question.policy.mode, causes: Vec::new(), runner_failure: None })
    }
}
