//! A call within a session: the session's policy as words, questions for more, and the record in the log.

use crate::arguments::{PolicyOptions, Run};
use crate::configuration::Configured;
use crate::request::Request;
use crate::surroundings::Surroundings;
use crate::voice::say;
use pinfold_policy::escalation::{ApprovalPolicy, EscalationError, Subject};
use pinfold_policy::{Network, Outcome, RootProblem, RootRole, SandboxError, SandboxMode, Variables};
use pinfold_providers::Cancel;
use pinfold_session::terminal::Terminal;
use pinfold_session::{
    Access, Approvals, Call, PolicyRequest, PolicyService, Resolved, Session, SessionError, Store, Wish,
};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A session that a call is made in.
#[derive(Debug)]
pub(crate) struct Held {
    session: Session,
    service: PolicyService,
    state: PathBuf,
    resolved: Resolved,
}

impl Held {
    /// Opens the session, and turns its policy into the words of a command line.
    ///
    /// # Errors
    ///
    /// Those of the session, and `SANDBOX_INVALID_POLICY` for words that have no place beside one.
    pub(crate) fn open(id: &str, arguments: &Run, around: &Surroundings) -> Result<(Self, Configured), SessionError> {
        let store = Store::open(&Store::place(around.home.as_deref())?)?;
        let session = store.session(id, Access::Append)?;
        for (option, given) in [
            ("--workspace", arguments.policy.workspace.is_some()),
            ("--writable", !arguments.policy.writable.is_empty()),
        ] {
            if given {
                let detail = format!("{option} has no place beside --session; see: pinfold session grant --help");
                return Err(SandboxError::InvalidPolicy { detail }.into());
            }
        }
        let asks = arguments.session.escalate.is_some() || arguments.session.ask_write.is_some();
        if arguments.policy.mode.is_some() && asks {
            let detail = "--mode makes one call narrower; it has no place beside --escalate and --ask-write".to_owned();
            return Err(SandboxError::InvalidPolicy { detail }.into());
        }
        let mut words = arguments.policy.clone();
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
            if mode > resolved.policy.mode {
                return Err(EscalationError::NoApprover { requested: mode }.into());
            }
            resolved.policy.mode = mode;
        }
        let held = Self { session, service, state: store.root().to_owned(), resolved };
        configured.options = held.words(&configured.options);
        Ok((held, configured))
    }

    /// The policy as words.
    fn words(&self, options: &PolicyOptions) -> PolicyOptions {
        let policy = &self.resolved.policy;
        let mut words = options.clone();
        words.mode = Some(policy.mode.to_string());
        words.workspace = Some(policy.workspace_root.clone().into_os_string());
        words.writable = policy.additional_writable_roots.iter().map(|path| path.clone().into_os_string()).collect();
        words.cwd.get_or_insert_with(|| self.session.cwd().as_os_str().to_owned());
        if policy.mode == SandboxMode::DangerFullAccess {
            words.backend = None;
        }
        // What a preset closes is closed here too.
        let restrictions = &self.resolved.restrictions;
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

    /// Completes a request: it belongs to the session, and the state of all sessions is out of reach.
    pub(crate) fn complete(&self, request: &mut Request) {
        request.policy.session_id = Some(self.session.id().clone());
        if request.policy.mode != SandboxMode::DangerFullAccess {
            request.closing.restrictions.denied_reads.push(self.state.clone());
        }
    }

    /// Asks for more, if more is wanted, and returns the request under what was granted.
    ///
    /// # Errors
    ///
    /// Every refusal: then nothing may run.
    pub(crate) fn ask(
        &mut self,
        arguments: &Run,
        configured: &Configured,
        request: Request,
        around: &Surroundings,
        cancel: &Cancel,
    ) -> Result<Request, SessionError> {
        let asked = &arguments.session;
        let write = asked.ask_write.as_ref().map(|dir| around.absolute("--ask-write", Path::new(dir))).transpose()?;
        if let Some(path) = &write {
            // Nobody can judge a link: asked is about what is opened.
            let real = path.canonicalize().ok();
            if real.as_ref().is_some_and(|real| *real != path.components().collect::<PathBuf>()) {
                let (role, problem) = (RootRole::Additional, RootProblem::Symlink);
                return Err(SandboxError::InvalidRoot { role, path: path.clone(), problem }.into());
            }
        }
        let wish = Wish {
            sandbox_permissions: asked.escalate.as_deref(),
            write: write.as_deref(),
            justification: asked.justification.as_deref(),
        };
        let wanted = wish.sandbox_permissions.is_some() || wish.write.is_some();
        let cwd = request.cwd.clone().unwrap_or_else(|| self.session.cwd().to_owned());
        let denied = self.session.denied_before(&arguments.argv)?;
        let call = Call {
            argv: &arguments.argv,
            cwd: &cwd,
            subject: Subject::Command,
            tool_name: "pinfold run",
            call_id: None,
            policy: &request.policy,
            restrictions: &request.closing.restrictions,
            denied: &denied,
        };
        let deployment = self.service.deployment();
        let terminal = Terminal::default();
        let policy = self.session.state()?.approval().unwrap_or(deployment.approval.value);
        if policy == ApprovalPolicy::Ask && !terminal.is_present() && wanted {
            let seconds = deployment.approval_timeout.value.as_secs();
            say(&format!(
                "waiting for an answer, at most {seconds} s: pinfold approve --session {}",
                self.session.id()
            ));
        }
        let approvals = Approvals::new(deployment).with(terminal).answered_elsewhere();
        let approved = Approvals::request(Some(&approvals), Some(&self.session), &call, &wish, cancel)?;
        let narrowed = request.policy.mode;
        let resolved = self.service.resolve(PolicyRequest { session: Some(&self.session), approved })?;
        self.resolved = resolved;
        if !wanted {
            // What --mode has narrowed stays narrow.
            self.resolved.policy.mode = narrowed.min(self.resolved.policy.mode);
        }
        let words = self.words(&configured.options);
        let mut request = Request::new(&words, &arguments.argv, around)?;
        configured.refuse_open(&request.policy)?;
        self.complete(&mut request);
        Ok(request)
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

    /// Returns the session's name.
    pub(crate) fn id(&self) -> &str {
        self.session.id().as_str()
    }
}
