//! A call within a session: the session's policy as words, questions for more, and the record in the log.

use crate::arguments::{PolicyOptions, SessionOptions};
use crate::configuration::Configured;
use crate::request::Request;
use crate::surroundings::Surroundings;
use crate::voice::{say, speak_of_session};
use pinfold_policy::escalation::{EscalationError, Subject};
use pinfold_policy::root_rules::is_system_directory;
use pinfold_policy::{
    ExecutionPolicy, Network, Outcome, RootProblem, RootRole, SandboxError, SandboxMode, SessionId, Variables,
};
use pinfold_providers::{Cancel, HeldDirectory, LocalProvider, ProviderConfig};
use pinfold_session::terminal::Terminal;
use pinfold_session::{
    Access, Approvals, Call, PolicyRequest, PolicyService, Question, Resolved, Session, SessionError, Shown, Store,
    Wish,
};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A session that a call is made in.
#[derive(Debug)]
pub(crate) struct Held {
    session: Session,
    service: PolicyService,
    state: PathBuf,
    resolved: Resolved,
}

/// The call that is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    /// The command.
    pub(crate) argv: &'a [OsString],
    /// Which of our commands makes it.
    pub(crate) tool: &'static str,
    /// What more it asks for.
    pub(crate) session: &'a SessionOptions,
}

impl Held {
    /// Opens the session, and turns its policy into the words of a command line.
    ///
    /// # Errors
    ///
    /// Those of the session, and `SANDBOX_INVALID_POLICY` for words that have no place beside one.
    pub(crate) fn open(
        id: &str,
        words: &PolicyOptions,
        asks: bool,
        around: &Surroundings,
    ) -> Result<(Self, Configured), SessionError> {
        let store = Store::open(&Store::place(around.home.as_deref())?)?;
        let session = store.session(id, Access::Append)?;
        speak_of_session(session.id().as_str());
        for (option, given) in [("--workspace", words.workspace.is_some()), ("--writable", !words.writable.is_empty())]
        {
            if given {
                let detail = format!("{option} has no place beside --session; see: pinfold session grant --help");
                return Err(SandboxError::InvalidPolicy { detail }.into());
            }
        }
        if words.mode.is_some() && asks {
            let detail = "--mode makes one call narrower; it has no place beside --escalate and --ask-write".to_owned();
            return Err(SandboxError::InvalidPolicy { detail }.into());
        }
        let mut words = words.clone();
        // A question is about the directory that this names now, not about what a link names when it is answered.
        if let Some(cwd) = words.cwd.as_mut()
            && let Ok(real) = around.absolute("--cwd", Path::new(cwd))?.canonicalize()
        {
            *cwd = real.into_os_string();
        }
        let narrower = words.mode.take();
        let project = session.project_at_start().map(str::to_owned);
        let cwd = session.cwd().to_owned();
        let mut configured = Configured::load(&words, SandboxMode::ReadOnly, Some(&cwd), project.as_deref(), around)?;
        let service = PolicyService::new(configured.deployment.clone(), &cwd, around.home.as_deref())?;
        let mut resolved = service.resolve(PolicyRequest { session: Some(&session), approved: None })?;
        if let Some(word) = narrower {
            let mode: SandboxMode = word.parse().map_err(|error: pinfold_policy::UnknownWord| {
                SandboxError::InvalidPolicy { detail: error.to_string() }
            })?;
            // Where nothing but granted directories is open, the mode in force is the narrower one.
            if mode > resolved.mode {
                return Err(EscalationError::NoApprover { requested: mode }.into());
            }
            if mode < resolved.mode || mode == SandboxMode::ReadOnly {
                (resolved.mode, resolved.policy.mode) = (mode, mode);
            }
        }
        let held = Self { session, service, state: store.root().to_owned(), resolved };
        configured.options =
            policy_words(&held.resolved, &held.resolved.policy, held.session.cwd(), &configured.options);
        Ok((held, configured))
    }

    /// Completes a request: it belongs to the session.
    pub(crate) fn complete(&self, request: &mut Request) {
        complete(request, &self.resolved, self.session.id(), &self.state);
    }

    /// Asks for more, if more is wanted, and returns the request under what was granted.
    ///
    /// # Errors
    ///
    /// Every refusal: then nothing may run.
    pub(crate) fn ask(
        &mut self,
        wanted: Wanted<'_>,
        configured: &Configured,
        request: Request,
        around: &Surroundings,
        cancel: &Cancel,
    ) -> Result<Request, SessionError> {
        let asked = wanted.session;
        let wish = Wish {
            sandbox_permissions: asked.escalate.as_deref(),
            write: None,
            justification: asked.justification.as_deref(),
        };
        let why = wish.justification.map(str::trim);
        let problem = match (asked.asks(), why) {
            (false, None) => return Ok(request),
            (false, Some(_)) => {
                "--justification has no use here: nothing is asked for (--escalate MODE, --ask-write DIR)"
            }
            (true, None | Some("")) => "whoever allows more wants to know why: --justification TEXT, one sentence",
            (true, Some(_)) => "",
        };
        if !problem.is_empty() {
            return Err(SandboxError::InvalidPolicy { detail: problem.to_owned() }.into());
        }
        let write = asked.ask_write.as_ref().map(|dir| around.absolute("--ask-write", Path::new(dir))).transpose()?;
        let write = write.map(|path| grantable(&path)).transpose()?.map(Arc::new);
        let wish = Wish { write: write.as_ref().map(|held| held.path()), ..wish };
        self.refuse_what_cannot_run(wanted, &wish, configured, around)?;
        let cwd = request.cwd.clone().unwrap_or_else(|| self.session.cwd().to_owned());
        // RACE: whoever answers means the directory and the program that are there now. Held, so that no others can pass for them.
        let cwd: PathBuf = cwd.components().collect();
        let shown = Shown::look(wanted.argv, &cwd, &self.resolved.policy, self.session.cwd())?;
        let denied = self.session.denied_before(wanted.argv)?;
        let call = Call {
            argv: wanted.argv,
            unseen_bytes: 0,
            cwd: &cwd,
            shown: Some(&shown),
            subject: Subject::Command,
            tool_name: wanted.tool,
            call_id: None,
            mode: self.resolved.mode,
            policy: &request.policy,
            restrictions: &request.closing.restrictions,
            denied: &denied,
        };
        let deployment = self.service.deployment();
        let seconds = deployment.approval_timeout.value.as_secs();
        // Behind the terminal: it hears of a question only where there is none.
        let tell = move |question: &Question<'_>| {
            let id = question.session;
            say(&format!("waiting for an answer, at most {seconds} s: pinfold approve --session {id}"));
            None
        };
        let approvals = Approvals::new(deployment).with(Terminal::default()).with(tell).answered_elsewhere();
        let approved = Approvals::request(Some(&approvals), Some(&self.session), &call, &wish, cancel)?;
        shown.still()?;
        let seen = std::mem::take(&mut self.resolved.held);
        self.resolved = self.service.resolve(PolicyRequest { session: Some(&self.session), approved })?;
        // RACE: whoever answered meant the directories that were there when the question was put; of two looks the first counts.
        self.resolved.held.splice(..0, seen.into_iter().chain(write));
        let words = policy_words(&self.resolved, &self.resolved.policy, self.session.cwd(), &configured.options);
        let mut request = Request::new(&words, wanted.argv, around)?;
        configured.refuse_open(&request.policy)?;
        self.complete(&mut request);
        request.shown = Some(shown);
        Ok(request)
    }

    /// Refuses what could not run if it were allowed: nobody is asked in vain.
    fn refuse_what_cannot_run(
        &self,
        wanted: Wanted<'_>,
        wish: &Wish<'_>,
        configured: &Configured,
        around: &Surroundings,
    ) -> Result<(), SessionError> {
        let mut policy = self.resolved.policy.clone();
        match (wish.sandbox_permissions.and_then(|word| word.parse::<SandboxMode>().ok()), wish.write) {
            (Some(mode), _) if mode > self.resolved.mode => {
                policy.mode = mode;
                policy.workspace_root = self.session.cwd().to_owned();
            }
            (None, Some(path)) if policy.mode != SandboxMode::DangerFullAccess => {
                policy.mode = SandboxMode::WorkspaceWrite;
                policy.workspace_root = path.to_owned();
            }
            _ => return Ok(()),
        }
        let mut request = Request::new(
            &policy_words(&self.resolved, &policy, self.session.cwd(), &configured.options),
            wanted.argv,
            around,
        )?;
        configured.refuse_open(&request.policy)?;
        request.policy.session_id = Some(self.session.id().clone());
        let (policy, call) = request.split();
        // What no mechanism can do is refused here with its own words: a working directory that would be hidden, and so on.
        if let Some(policy) = policy.confined() {
            let provider = LocalProvider::new(ProviderConfig { keep_verdicts: true, ..ProviderConfig::default() })?;
            // A plan that is dropped: nothing is started, and its file goes.
            drop(provider.confine(wanted.argv, &policy, &call, &Cancel::new())?);
        }
        Ok(())
    }

    /// Writes down that the command is about to be started.
    ///
    /// # Errors
    ///
    /// Those of the log: then nothing may run.
    pub(crate) fn begin(&mut self, argv: &[OsString], request: &Request) -> Result<String, SessionError> {
        self.resolved.policy = request.policy.clone();
        self.resolved.restrictions = request.closing.restrictions.clone();
        self.session.begin_call(argv, &self.resolved)
    }

    /// Writes down how it ended. The command has run: if this fails, it is said and nothing else changes.
    pub(crate) fn end(&self, call: &str, result: Result<&Outcome, &SandboxError>) {
        if let Err(error) = self.session.end_call(call, result) {
            say(&format!("error[{}]: the end of call {call} is not in the log: {error}", error.code()));
        }
    }

    /// Opens the same session once more, for another thread.
    ///
    /// # Errors
    ///
    /// Those of opening its log.
    pub(crate) fn again(&self) -> Result<Session, SessionError> {
        Store::open(&self.state)?.session(self.session.id().as_str(), Access::Append)
    }

    /// Returns the session's directory.
    pub(crate) fn cwd(&self) -> &Path {
        self.session.cwd()
    }

    /// Returns the mode in force.
    pub(crate) fn mode(&self) -> SandboxMode {
        self.resolved.mode
    }

    /// Returns what is resolved for a call as it is.
    pub(crate) fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// Returns the directory of all sessions.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }
}

/// Looks at a directory that is to be opened. Nobody can judge a link, and what is not there yet is nothing to judge.
///
/// # Errors
///
/// `SANDBOX_INVALID_ROOT`.
pub(crate) fn grantable(path: &Path) -> Result<HeldDirectory, SandboxError> {
    let path: PathBuf = path.components().collect();
    let refuse = |problem| SandboxError::InvalidRoot { role: RootRole::Additional, path: path.clone(), problem };
    let held = HeldDirectory::look(&path).map_err(refuse)?;
    if !held.exists() {
        return Err(refuse(RootProblem::Missing));
    }
    if is_system_directory(&path) {
        let why = "it is a system directory and is never opened for writing".to_owned();
        return Err(refuse(RootProblem::Refused(why)));
    }
    Ok(held)
}

/// A policy of a session as words of a command line, with what the configuration adds.
pub(crate) fn policy_words(
    resolved: &Resolved,
    policy: &ExecutionPolicy,
    cwd: &Path,
    options: &PolicyOptions,
) -> PolicyOptions {
    let mut words = options.clone();
    words.mode = Some(policy.mode.to_string());
    words.workspace = Some(policy.workspace_root.clone().into_os_string());
    words.writable = policy.additional_writable_roots.iter().map(|path| path.clone().into_os_string()).collect();
    words.cwd.get_or_insert_with(|| cwd.as_os_str().to_owned());
    if policy.mode == SandboxMode::DangerFullAccess {
        words.backend = None;
    }
    // What a preset closes is closed here too.
    let restrictions = &resolved.restrictions;
    if restrictions.network != Network::Open {
        words.restrictions.network = Some(restrictions.network.to_string());
    }
    if restrictions.variables != Variables::Inherit {
        words.restrictions.env = Some(restrictions.variables.to_string());
    }
    let mut protect: Vec<OsString> = restrictions.protect.patterns.iter().map(OsString::from).collect();
    protect.extend(restrictions.protect.default_names.then(|| "default".into()));
    protect.retain(|word| !words.restrictions.protect.contains(word));
    if !words.restrictions.protect.iter().any(|word| word == "none") {
        words.restrictions.protect.extend(protect);
    }
    let denied = restrictions.denied_reads.iter().map(|path| path.clone().into_os_string());
    let new: Vec<_> = denied.filter(|path| !words.restrictions.deny_read.contains(path)).collect();
    words.restrictions.deny_read.extend(new);
    words
}

/// Completes a request: it belongs to a session, its directories are those that were decided about, and the state of all
/// sessions is out of reach.
pub(crate) fn complete(request: &mut Request, resolved: &Resolved, session: &SessionId, state: &Path) {
    request.policy.session_id = Some(session.clone());
    request.held = resolved.held.clone();
    if request.policy.mode != SandboxMode::DangerFullAccess {
        let denied = &mut request.closing.restrictions.denied_reads;
        if !denied.iter().any(|path| path == state) {
            denied.push(state.to_owned());
        }
    }
    if resolved.mode != request.policy.mode {
        let note = format!(
            "The session's mode is {}; beside it, directories that were granted are open, and a temp area.",
            resolved.mode
        );
        request.closing.notes.push(note);
    }
}
