//! What a tool answers: a text for the model, and the same as an object; or a refusal, which is an answer too.

use pinfold_executor::ExecutorError;
use pinfold_fence::tools::ToolError;
use pinfold_fence::{Denied, FsError};
use pinfold_policy::SandboxError;
use pinfold_policy::escalation::EscalationError;
use pinfold_policy::quote::readable;
use pinfold_session::SessionError;
use pinfold_session::log::event::Asked;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

/// What a call of a tool comes to.
#[derive(Debug)]
pub(crate) enum Reply {
    /// An answer.
    Done(Box<CallToolResult>),
    /// The client has to ask its person, and call again.
    Ask(Box<Asked>),
}

/// Draws up an answer.
pub(crate) fn done(text: impl Into<String>, structured: Value) -> Reply {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(structured);
    Reply::Done(Box::new(result))
}

/// Says why nothing was done. The text is what the model reads.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: String,
    text: String,
    denied: Option<Denied>,
}

impl Refusal {
    pub(crate) fn new(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.to_owned(), text: text.into(), denied: None }
    }

    /// Words of a request that mean nothing.
    pub(crate) fn arguments(text: impl Into<String>) -> Self {
        Self::new("INVALID_ARGUMENTS", text)
    }

    /// The call was withdrawn (U378).
    pub(crate) fn aborted() -> Self {
        Self::new("TOOL_ABORTED", "tool call aborted")
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        let mut structured = json!({"kind": "refused", "code": self.code, "message": self.text});
        if let Some(denied) = &self.denied {
            structured["denied"] = json!({
                "mode": denied.mode,
                "operation": denied.verb,
                "path": readable(&denied.resolved),
                "rule": denied.rule,
            });
        }
        let mut result = CallToolResult::error(vec![ContentBlock::text(self.text)]);
        result.structured_content = Some(structured);
        result
    }
}

impl From<SessionError> for Refusal {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Sandbox(SandboxError::Cancelled) => Self::aborted(),
            // A call whose fields do not fit together asked for nothing.
            SessionError::Escalation(
                error @ (EscalationError::JustificationMissing
                | EscalationError::JustificationUnpaired
                | EscalationError::JustificationBlank
                | EscalationError::TargetUnknown(_)),
            ) => Self::arguments(error.to_string()),
            SessionError::Escalation(error @ EscalationError::Unavailable { .. }) => {
                Self::new("unavailable", error.to_string())
            }
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

impl From<SandboxError> for Refusal {
    fn from(error: SandboxError) -> Self {
        SessionError::from(error).into()
    }
}

impl From<ExecutorError> for Refusal {
    fn from(error: ExecutorError) -> Self {
        match error {
            ExecutorError::Sandbox(error) => error.into(),
            error => Self::new(error.code().as_str(), error.to_string()),
        }
    }
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Self {
        let denied = error.denial().cloned();
        Self { denied, ..Self::new(error.code().as_str(), error.to_string()) }
    }
}

impl Refusal {
    /// Changes the text and leaves the code.
    pub(crate) fn with_text(self, change: impl FnOnce(String) -> String) -> Self {
        Self { text: change(self.text), ..self }
    }
}

impl From<ToolError> for Refusal {
    fn from(error: ToolError) -> Self {
        let code = error.code.map_or("INVALID_ARGUMENTS", |code| code.as_str());
        let denied = error.cause.as_ref().and_then(FsError::denial).cloned();
        Self { denied, ..Self::new(code, error.text) }
    }
}
