//! The file tools of a session: under the policy of its commands at that moment, in its temp area, by its protected names;
//! what it has seen of which file is kept beside its log, and a wider mode is asked for as for commands.
//!
//! A question names where the path leads when it is asked, and a yes holds for that place alone: a command of the session
//! could put a link in the way before the answer comes.

use crate::approval::{Approvals, Call, Wish};
use crate::error::SessionError;
use crate::service::{PolicyRequest, PolicyService, Resolved};
use crate::session::Session;
use crate::store::Store;
use pinfold_fence::observation::{ContentHash, ObservationFile, ObservationStore as _, Observations};
use pinfold_fence::tools::{Caller, EditArguments, FileTools, ReadArguments, ToolError, WriteArguments};
use pinfold_fence::{Abort, Act, Fence, FenceOptions, FsError, Limits, LinesRequest, TempPlace, Turns};
use pinfold_policy::escalation::Subject;
use pinfold_policy::{FileErrorCode as Code, Restrictions, SandboxMode};
use pinfold_providers::{CallOptions, Cancel, LocalProvider};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The file, beside a session's log, that holds what the session has seen.
pub const SEEN: &str = "seen.json";

/// What an argument that is too long for a question is named by.
const LONGEST_WORD: usize = 4096;

/// Read, write and edit for one session.
///
/// Every call resolves the session's policy anew, as a command does. Calls of this value that change files come one after
/// the other; of other processes, versions tell.
#[derive(Debug)]
pub struct SessionFiles<'a> {
    session: &'a Session,
    service: &'a PolicyService,
    provider: &'a LocalProvider,
    /// Who may be asked for more; without anybody, every such request is refused.
    approvals: Option<&'a Approvals>,
    call: CallOptions,
    caps: LinesRequest,
    limits: Limits,
    state: PathBuf,
    kept: ObservationFile,
    turns: Turns,
    /// One call that has seen or changed something after the other.
    turn: Mutex<()>,
}

/// What a call may ask for.
type Asked<'a> = (Option<&'a str>, Option<&'a str>);

impl<'a> SessionFiles<'a> {
    /// Makes the tools. Of `call`, the mechanism and what is closed beside the session's own rules count.
    ///
    /// # Errors
    ///
    /// `SESSION_UNKNOWN` for a session of another store.
    pub fn new(
        store: &Store,
        session: &'a Session,
        service: &'a PolicyService,
        provider: &'a LocalProvider,
        approvals: Option<&'a Approvals>,
        call: CallOptions,
    ) -> Result<Self, SessionError> {
        let kept = ObservationFile(store.directory(session.id().as_str())?.join(SEEN));
        Ok(Self {
            session,
            service,
            provider,
            approvals,
            call,
            caps: LinesRequest::default(),
            limits: Limits::default(),
            state: store.root().to_owned(),
            kept,
            turns: Turns::default(),
            turn: Mutex::default(),
        })
    }

    /// Sets the bounds of reads and of single operations.
    #[must_use]
    pub fn bounded(self, caps: LinesRequest, limits: Limits) -> Self {
        Self { caps, limits, ..self }
    }

    /// Reads lines of a file.
    ///
    /// # Errors
    ///
    /// [`ToolError`] as for [`FileTools::read`], and for a session or a policy that cannot be used.
    pub fn read(&self, arguments: &ReadArguments) -> Result<String, ToolError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let resolved = self.resolve(None).map_err(|error| ToolError::refused(&error))?;
        let fence = self.fence(&resolved, None).map_err(|error| ToolError::refused(&error))?;
        let path = self.session.cwd().join(&arguments.file_path).into_os_string().into_string();
        let mut arguments = arguments.clone();
        if let Some(path) = path.ok().filter(|_| !arguments.file_path.trim().is_empty()) {
            arguments.file_path = path;
        }
        self.seeing(&fence, |tools| tools.read(&arguments))
    }

    /// Writes a file whole.
    ///
    /// # Errors
    ///
    /// [`ToolError`] as for [`FileTools::write`], and for a session, a policy or a grant that cannot be used.
    pub fn write(&self, arguments: &WriteArguments, cancel: &Cancel) -> Result<String, ToolError> {
        let WriteArguments { file_path, content, sandbox_permissions, justification } = arguments;
        let asked = (sandbox_permissions.as_deref(), justification.as_deref());
        self.change("write", file_path, &[content], asked, cancel, |tools, path, abort| {
            let plain = WriteArguments {
                file_path: path,
                content: content.clone(),
                sandbox_permissions: None,
                justification: None,
            };
            tools.write(&plain, &mut Caller::default(), abort)
        })
    }

    /// Replaces text in a file.
    ///
    /// # Errors
    ///
    /// [`ToolError`] as for [`FileTools::edit`], and for a session, a policy or a grant that cannot be used.
    pub fn edit(&self, arguments: &EditArguments, cancel: &Cancel) -> Result<String, ToolError> {
        let EditArguments { file_path, old_string, new_string, replace_all, sandbox_permissions, justification } =
            arguments;
        let asked = (sandbox_permissions.as_deref(), justification.as_deref());
        let all = if *replace_all { "all" } else { "one" };
        self.change("edit", file_path, &[old_string, new_string, all], asked, cancel, |tools, path, abort| {
            let plain = EditArguments {
                file_path: path,
                old_string: old_string.clone(),
                new_string: new_string.clone(),
                replace_all: *replace_all,
                sandbox_permissions: None,
                justification: None,
            };
            tools.edit(&plain, &mut Caller::default(), abort)
        })
    }

    /// One change: what is in force, more if it was asked for and allowed, the record, the change, and what is known then.
    fn change(
        &self,
        tool: &'static str,
        file_path: &str,
        operands: &[&str],
        asked: Asked<'_>,
        cancel: &Cancel,
        act: impl FnOnce(&mut FileTools<'_>, String, &Abort) -> Result<String, ToolError>,
    ) -> Result<String, ToolError> {
        let refuse = |error: SessionError| ToolError::refused(&error);
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut resolved = self.resolve(None).map_err(refuse)?;
        let mut fence = self.fence(&resolved, None).map_err(refuse)?;
        // From the session's directory, whatever is open in it.
        let path = self.session.cwd().join(file_path);
        let Some(spelled) = path.to_str().filter(|_| !file_path.trim().is_empty()).map(str::to_owned) else {
            let code = Some(Code::NotFound);
            let text = "file_path must be a non-empty string".to_owned();
            return Err(ToolError { code, text, cause: None });
        };
        let mut argv: Vec<OsString> = vec![tool.into(), spelled.clone().into()];
        argv.extend(operands.iter().map(|operand| word(operand)));
        if asked != (None, None) {
            let wish = Wish { sandbox_permissions: asked.0, write: None, justification: asked.1 };
            let place = self.place(&fence, &path).map_err(|error| file_error(&error))?;
            if place != path {
                argv.extend(["leads to".into(), place.clone().into_os_string()]);
            }
            let denied = if fence.decide(Act::Write, &path).is_err() { vec![place.clone()] } else { Vec::new() };
            let unseen = operands.iter().filter(|operand| operand.len() > LONGEST_WORD);
            let call = Call {
                argv: &argv,
                unseen_bytes: unseen.map(|operand| operand.len() as u64).sum(),
                cwd: self.session.cwd(),
                shown: None,
                subject: Subject::Operation,
                tool_name: tool,
                call_id: None,
                mode: resolved.mode,
                policy: &resolved.policy,
                restrictions: &resolved.restrictions,
                denied: &denied,
            };
            let approved =
                Approvals::request(self.approvals, Some(self.session), &call, &wish, cancel).map_err(refuse)?;
            resolved = self.resolve(approved).map_err(refuse)?;
            fence = self.fence(&resolved, Some(place)).map_err(refuse)?;
        }
        let id = self.session.begin_call(&argv, &resolved).map_err(refuse)?;
        let abort = Abort::default();
        if cancel.is_cancelled() {
            abort.abort();
        }
        let result = self.seeing(&fence, |tools| act(tools, spelled, &abort));
        let code = result.as_ref().err().map(|error| error.code.map_or("refused", |code| code.as_str()));
        // The change has happened or has not, whatever becomes of its record.
        let recorded = self.session.end_operation(&id, code);
        match (result, recorded) {
            (Ok(text), Err(error)) => Ok(format!("{text}\n(the end of call {id} is not in the log: {error})")),
            (result, _) => result,
        }
    }

    /// Where a path leads now.
    fn place(&self, fence: &Fence, path: &Path) -> Result<PathBuf, FsError> {
        Ok(fence.resolve(path)?.process_path().to_owned())
    }

    /// The policy in force, with the state of all sessions out of reach.
    fn resolve(&self, approved: Option<crate::Approved>) -> Result<Resolved, SessionError> {
        let mut resolved = self.service.resolve(PolicyRequest { session: Some(self.session), approved })?;
        if resolved.policy.mode != SandboxMode::DangerFullAccess {
            resolved.restrictions.denied_reads.push(self.state.clone());
        }
        Store::refuse_open(&resolved.policy, &[&self.state])?;
        Ok(resolved)
    }

    fn fence(&self, resolved: &Resolved, only: Option<PathBuf>) -> Result<Fence, SessionError> {
        let mut restrictions = resolved.restrictions.clone();
        let beside = &self.call.restrictions;
        restrictions.denied_reads.extend(beside.denied_reads.iter().cloned());
        restrictions.denied_read_patterns.extend(beside.denied_read_patterns.iter().cloned());
        restrictions.allowed_reads.extend(beside.allowed_reads.iter().cloned());
        let mut options =
            FenceOptions { only, turns: self.turns.clone(), limits: self.limits.clone(), ..FenceOptions::default() };
        if let Some(confined) = resolved.policy.confined() {
            // What is closed for reading is held here, also where the mechanism could not.
            let protect = Restrictions { protect: restrictions.protect.clone(), ..Restrictions::default() };
            let call = CallOptions { restrictions: protect, held: resolved.held.clone(), ..self.call.clone() };
            let rules = self.provider.file_rules(&confined, &call)?;
            (options.temp, options.protected) = (TempPlace::of(&rules.temp), rules.protected);
        }
        let fence = Fence::open(&resolved.policy, FenceOptions { restrictions, ..options })?;
        // RACE: the fence has opened its roots by their names; each must be the directory that was decided about.
        resolved.verify()?;
        Ok(fence)
    }

    /// Does something with what the session has seen, and keeps what it has seen then.
    fn seeing(
        &self,
        fence: &Fence,
        act: impl FnOnce(&mut FileTools<'_>) -> Result<String, ToolError>,
    ) -> Result<String, ToolError> {
        // What cannot be read was not seen: then files have to be read again.
        let before = self.kept.load().ok().flatten().and_then(|text| Observations::from_json(&text).ok());
        let before = before.unwrap_or_default();
        let mut seen = before.clone();
        let result = FileTools::new(fence, Some(&mut seen), self.caps.clone()).and_then(|mut tools| act(&mut tools));
        if seen != before && self.kept.save(&seen.to_json()).is_err() {
            // The same here: what could not be kept is not known to the next call.
            return result.map(|text| format!("{text}\n(that this was seen could not be kept: read it again)"));
        }
        result
    }
}

/// An operand as it stands in a question: itself, or what recognises it.
fn word(operand: &str) -> OsString {
    if operand.len() <= LONGEST_WORD {
        return operand.into();
    }
    let hash = ContentHash::of(operand.as_bytes());
    format!("({} bytes, SHA-256 {})", operand.len(), hash.as_str()).into()
}

fn file_error(error: &FsError) -> ToolError {
    ToolError { code: Some(error.code()), text: error.to_string(), cause: Some(error.clone()) }
}
