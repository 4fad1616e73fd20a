//! Read, write and edit as an agent calls them: arguments as JSON, text as answer, observations on the way, and the
//! question for a wider mode before anything is looked at.

use crate::difference::unified;
use crate::edit::Replacement;
use crate::error::FsError;
use crate::fence::Fence;
use crate::observation::{Observations, unread};
use crate::read::{Lines, LinesRequest};
use crate::write::{Abort, Change, Intent, Written};
use pinfold_policy::escalation::{
    ApprovalOutcome, EscalationError, EscalationFacts, EscalationStep, Subject, escalation_step,
    validate_arguments_under,
};
use pinfold_policy::markers::{denial_marker, hint_marker};
use pinfold_policy::quote::quote_if_needed;
use pinfold_policy::{FileErrorCode as Code, SandboxError, SandboxMode};
use serde::Deserialize;
use std::fmt::Write as _;
use std::path::Path;

/// Arguments of `read`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadArguments {
    /// The file; relative paths start at the workspace.
    pub file_path: String,
    /// The first line, from 1.
    #[serde(default)]
    pub offset: Option<i64>,
    /// The most lines.
    #[serde(default)]
    pub limit: Option<i64>,
}

/// Arguments of `write`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteArguments {
    /// The file; relative paths start at the workspace.
    pub file_path: String,
    /// Its whole content; may be empty.
    pub content: String,
    /// The mode to ask for.
    #[serde(default)]
    pub sandbox_permissions: Option<String>,
    /// Why.
    #[serde(default)]
    pub justification: Option<String>,
}

/// Arguments of `edit`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditArguments {
    /// The file; relative paths start at the workspace.
    pub file_path: String,
    /// The text to replace, literally.
    pub old_string: String,
    /// The text to put there.
    pub new_string: String,
    /// Whether every place is meant.
    #[serde(default)]
    pub replace_all: bool,
    /// The mode to ask for.
    #[serde(default)]
    pub sandbox_permissions: Option<String>,
    /// Why.
    #[serde(default)]
    pub justification: Option<String>,
}

/// Why a tool did nothing. The text is what the model reads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ToolError {
    /// The code of a file operation that did not happen; `None` for arguments and refused escalations.
    pub code: Option<Code>,
    /// What the model reads.
    pub text: String,
    /// The operation's own error.
    pub cause: Option<FsError>,
}

impl ToolError {
    fn arguments(text: impl Into<String>) -> Self {
        Self { code: None, text: text.into(), cause: None }
    }

    /// Makes the error of a call that was refused before any file was looked at.
    pub fn refused(why: &dyn std::error::Error) -> Self {
        Self::arguments(why.to_string())
    }
}

impl From<EscalationError> for ToolError {
    fn from(error: EscalationError) -> Self {
        Self::arguments(error.to_string())
    }
}

impl From<SandboxError> for ToolError {
    fn from(error: SandboxError) -> Self {
        Self::arguments(error.to_string())
    }
}

/// What an approver is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationAsk<'a> {
    /// The tool.
    pub tool: &'static str,
    /// The file as the model named it.
    pub file_path: &'a str,
    /// The mode in force.
    pub effective: SandboxMode,
    /// The mode asked for.
    pub requested: SandboxMode,
    /// The model's reason.
    pub justification: &'a str,
    /// What recognises this very call: a SHA-256 of the tool and its arguments.
    pub digest: &'a str,
}

/// Answers for a person.
pub trait Approver {
    /// Asks for one call.
    fn ask(&mut self, ask: &OperationAsk<'_>) -> ApprovalOutcome;
}

/// Who may be asked.
#[derive(Default)]
pub struct Caller<'a> {
    /// The approver, if there is one.
    pub approver: Option<&'a mut dyn Approver>,
    /// Whether the call belongs to an agent.
    pub agent_present: bool,
}

/// The three tools over one fence.
pub struct FileTools<'a> {
    fence: &'a Fence,
    /// `None` for a call of no session: it reads freely, creates, and overwrites nothing.
    observations: Option<&'a mut Observations>,
    caps: LinesRequest,
}

impl<'a> FileTools<'a> {
    /// Makes the tools; `caps` bounds reads.
    ///
    /// # Errors
    ///
    /// [`ToolError`] for a cap of zero.
    pub fn new(
        fence: &'a Fence,
        observations: Option<&'a mut Observations>,
        caps: LinesRequest,
    ) -> Result<Self, ToolError> {
        for (name, value) in [("limit", caps.limit), ("lineCharacters", caps.line_characters), ("bytes", caps.bytes)] {
            if value == 0 {
                return Err(ToolError::arguments(format!("tool-fs: {name} must be a positive integer")));
            }
        }
        Ok(Self { fence, observations, caps })
    }

    /// Reads lines of a file.
    ///
    /// # Errors
    ///
    /// [`ToolError`] for arguments out of range and for what [`Fence::read_lines`] refuses.
    pub fn read(&mut self, arguments: &ReadArguments) -> Result<String, ToolError> {
        let positive = |name: &str, value: Option<i64>, default: u64| match value {
            None => Ok(default),
            Some(value @ 1..) => Ok(value.unsigned_abs()),
            Some(_) => Err(ToolError::arguments(format!("{name} must be a positive integer"))),
        };
        let offset = positive("offset", arguments.offset, 1)?;
        let limit = positive("limit", arguments.limit, self.caps.limit as u64)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if limit > self.caps.limit {
            return Err(ToolError::arguments(format!("limit must be at most {}", self.caps.limit)));
        }
        let request = LinesRequest { offset, limit, ..self.caps.clone() };
        let path = Path::new(&arguments.file_path);
        match self.fence.read_lines(path, &request) {
            Ok(lines) => {
                if let Some(seen) = &mut self.observations {
                    seen.saw_lines(&lines);
                }
                Ok(render_lines(&lines))
            }
            Err(error) => {
                let absent = error.code() == Code::NotFound && self.fence.stat(path).is_ok_and(|look| look.is_none());
                if let (true, Some(seen), Ok(target)) = (absent, &mut self.observations, self.fence.resolve(path)) {
                    seen.saw_absent(&target);
                }
                Err(self.explain(error, self.fence))
            }
        }
    }

    /// Writes a file whole.
    ///
    /// # Errors
    ///
    /// [`ToolError`] for an escalation that is not granted, for a file that was not read (whole) before, and for what
    /// [`Fence::write`] refuses.
    pub fn write(
        &mut self,
        arguments: &WriteArguments,
        caller: &mut Caller<'_>,
        abort: &Abort,
    ) -> Result<String, ToolError> {
        let WriteArguments { file_path, content, sandbox_permissions, justification } = arguments;
        let asked = (sandbox_permissions.as_deref(), justification.as_deref());
        let digest = digest(&["write", file_path, content]);
        let mode = self.mode("write", file_path, asked, &digest, caller)?;
        self.within(mode, |tools, fence| {
            let path = Path::new(file_path);
            let intent = match &tools.observations {
                Some(seen) => seen.write_intent(&fence.resolve(path)?)?,
                None => Intent::CreateIfAbsent,
            };
            let written = fence.write(path, content.as_bytes(), &intent, abort)?;
            Ok(tools.note(&written))
        })
    }

    /// Replaces text in a file.
    ///
    /// # Errors
    ///
    /// [`ToolError`] as for [`FileTools::write`], for an empty text to replace, and for one that equals its replacement.
    pub fn edit(
        &mut self,
        arguments: &EditArguments,
        caller: &mut Caller<'_>,
        abort: &Abort,
    ) -> Result<String, ToolError> {
        let EditArguments { file_path, old_string, new_string, replace_all, sandbox_permissions, justification } =
            arguments;
        if old_string.is_empty() {
            return Err(ToolError::arguments("old_string must be a non-empty string"));
        }
        if old_string == new_string {
            return Err(ToolError::arguments("new_string must differ from old_string"));
        }
        let asked = (sandbox_permissions.as_deref(), justification.as_deref());
        let all = if *replace_all { "all" } else { "one" };
        let digest = digest(&["edit", file_path, old_string, new_string, all]);
        let mode = self.mode("edit", file_path, asked, &digest, caller)?;
        self.within(mode, |tools, fence| {
            let path = Path::new(file_path);
            // A refusal by policy comes before one for want of reading: reading would not help.
            fence.decide(crate::Act::Write, path)?;
            let target = fence.resolve(path)?;
            let intent = match &tools.observations {
                Some(seen) => seen.edit_intent(&target)?,
                None => return Err(unread(&target)),
            };
            let replacement = Replacement { old: old_string, new: new_string, all: *replace_all };
            let written = fence.edit(path, &replacement, &intent, abort)?;
            Ok(tools.note(&written))
        })
    }

    /// Settles the mode of one call before anything of it is looked at.
    fn mode(
        &self,
        tool: &'static str,
        file_path: &str,
        (permissions, justification): (Option<&str>, Option<&str>),
        digest: &str,
        caller: &mut Caller<'_>,
    ) -> Result<SandboxMode, ToolError> {
        let effective = self.fence.mode();
        let Some(request) = validate_arguments_under(effective, permissions, justification)? else {
            return Ok(effective);
        };
        let mut facts = EscalationFacts {
            effective,
            requested: request.mode,
            subject: Subject::Operation,
            approver_present: caller.approver.is_some(),
            agent_present: caller.agent_present,
            answer: None,
        };
        loop {
            match (escalation_step(&facts)?, &mut caller.approver) {
                (EscalationStep::Proceed(mode), _) => return Ok(mode),
                (EscalationStep::Ask, Some(approver)) => {
                    let (requested, justification) = (request.mode, request.justification);
                    let ask = OperationAsk { tool, file_path, effective, requested, justification, digest };
                    facts.answer = Some(approver.ask(&ask));
                }
                (EscalationStep::Ask, None) => {
                    return Err(EscalationError::NoApprover { requested: request.mode }.into());
                }
            }
        }
    }

    fn within(
        &mut self,
        mode: SandboxMode,
        act: impl FnOnce(&mut Self, &Fence) -> Result<String, FsError>,
    ) -> Result<String, ToolError> {
        let wider;
        let fence = if mode == self.fence.mode() {
            self.fence
        } else {
            wider = self.fence.under(mode)?;
            &wider
        };
        act(self, fence).map_err(|error| self.explain(error, fence))
    }

    fn note(&mut self, written: &Written) -> String {
        if let Some(seen) = &mut self.observations {
            seen.changed(written);
        }
        render_written(written)
    }

    /// Turns an error into what the model reads: the refusal's markers, or what to do about it.
    fn explain(&self, error: FsError, fence: &Fence) -> ToolError {
        let code = Some(error.code());
        let text = match (error.code(), fence.confined_mode()) {
            (Code::SandboxDenied, Some(mode)) => {
                format!("{error}\n{}\n{}", denial_marker(mode), hint_marker(Subject::Operation))
            }
            (Code::StaleVersion, _) => format!("{error} — read it again and retry"),
            (Code::NotObserved, _) => format!("{error} — read it and retry"),
            _ => error.to_string(),
        };
        ToolError { code, text, cause: Some(error) }
    }
}

fn digest(parts: &[&str]) -> String {
    // Each part with its length, so that no two calls give one text.
    let text: String = parts.iter().map(|part| format!("{}:{part}", part.len())).collect();
    crate::observation::ContentHash::of(text.as_bytes()).as_str().to_owned()
}

/// Renders lines for a model: numbered, with the path and what comes after.
pub fn render_lines(lines: &Lines) -> String {
    let path = quote_if_needed(lines.target.display());
    let mut out = format!("<path>{path}</path>\n<type>file</type>\n<content>\n");
    for (index, line) in lines.lines.iter().enumerate() {
        let _ = writeln!(out, "{}: {line}", lines.first + index as u64); // writing to a String cannot fail
    }
    let last = lines.first + lines.lines.len() as u64;
    let footer = match lines.next() {
        None => format!("(end of file, {} lines)", lines.total),
        Some(next) if lines.capped => {
            format!(
                "(output capped; lines {}-{} of {}; continue with offset {next})",
                lines.first,
                last - 1,
                lines.total
            )
        }
        Some(next) => format!("(lines {}-{} of {}; continue with offset {next})", lines.first, last - 1, lines.total),
    };
    out.push_str(&footer);
    out.push_str("\n</content>");
    out
}

/// Renders what a change did, with its diff if there is one.
pub fn render_written(written: &Written) -> String {
    let path = quote_if_needed(written.target.display());
    let what = match (written.change, written.replaced) {
        (Change::Create, _) => "created".to_owned(),
        (Change::Update, 0) => "updated".to_owned(),
        (Change::Update, 1) => "edited (1 place)".to_owned(),
        (Change::Update, count) => format!("edited ({count} places)"),
    };
    let mut out = format!("{what}: {path}");
    if !written.lost.is_empty() {
        let _ = write!(out, "\nnot kept: {}", lost(written)); // writing to a String cannot fail
    }
    if written.replaced > 0
        && let (Some(before), Some(after)) = (&written.before, &written.after)
    {
        let _ = write!(out, "\n{}", unified(written.target.display(), Some(before), after)); // as above
    }
    out
}

fn lost(written: &Written) -> String {
    use crate::metadata::Lost;
    let names = written.lost.iter().map(|lost| match lost {
        Lost::Owner(id) => format!("owner {id}"),
        Lost::Group(id) => format!("group {id}"),
        Lost::SetId => "set-id bits".to_owned(),
        Lost::Attribute(name) => format!("attribute {name}"),
        Lost::OtherNames(count) => format!("{count} other names, which keep the old content"),
        Lost::UnreadAttributes => "attributes, which could not be read".to_owned(),
        Lost::Flag(name) => format!("flag {name}"),
    });
    names.collect::<Vec<_>>().join(", ")
}
