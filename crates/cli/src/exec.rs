//! `pinfold exec`: one shell command as an agent runs it, and the text that a model reads.

use crate::arguments::Exec;
use crate::configuration::Configured;
use crate::request::Request;
use crate::session_run::{Held, Wanted};
use crate::signals::Watch;
use crate::surroundings::Surroundings;
use crate::voice::{Body, Form, complain_session, hurry, one_line, print, say, session_status};
use pinfold_executor::render::render_finished;
use pinfold_executor::{Executor, ExecutorConfig, ExecutorError, Finished, ManagedVariables};
use pinfold_policy::{ExecutionPolicy, SandboxError, SandboxMode};
use pinfold_providers::{CallOptions, LocalProvider, ProviderConfig};
use pinfold_session::SessionError;
use std::ffi::OsString;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

/// Why there is no result.
enum Refusal {
    /// A word of the request.
    Executor(ExecutorError),
    /// The configuration, or the sandbox.
    Session(SessionError),
}

impl From<ExecutorError> for Refusal {
    fn from(error: ExecutorError) -> Self {
        match error {
            ExecutorError::Sandbox(error) => Self::Session(error.into()),
            other => Self::Executor(other),
        }
    }
}

impl From<SandboxError> for Refusal {
    fn from(error: SandboxError) -> Self {
        Self::Session(error.into())
    }
}

impl From<SessionError> for Refusal {
    fn from(error: SessionError) -> Self {
        Self::Session(error)
    }
}

/// Runs a command, prints its result and returns the exit status.
pub(crate) fn exec(arguments: &Exec, around: &Surroundings) -> u8 {
    let form = Form::of(arguments.json);
    let watch = match Watch::begin() {
        Ok(watch) => watch,
        Err(error) => {
            say(&format!("error: signals cannot be watched: {error}"));
            return 125;
        }
    };
    let result = run(arguments, around, &watch);
    let received = watch.exit_status();
    if received.is_some() || result.as_ref().is_ok_and(Finished::timed_out) {
        hurry();
    }
    let status = match result {
        // It has been shown as it came.
        Ok(finished) if arguments.tty => {
            finished.failure().iter().for_each(|reason| say(&format!("error: {reason}")));
            u8::try_from(finished.outcome.exit_status()).unwrap_or(125)
        }
        Ok(finished) => {
            let text = match form {
                Form::Json => one_line(&finished),
                Form::Text => render_finished(&finished, None),
            };
            let text = if text.ends_with('\n') { text } else { text + "\n" };
            let printed = print(&text);
            if form == Form::Text {
                crate::host_files::remarks(&finished.outcome).iter().for_each(|line| say(line));
            }
            match printed {
                Ok(()) => u8::try_from(finished.outcome.exit_status()).unwrap_or(125),
                Err(error) => {
                    say(&format!("error: standard output: {error}"));
                    125
                }
            }
        }
        Err(error) => refused(&error, form),
    };
    received.unwrap_or(status)
}

fn run(arguments: &Exec, around: &Surroundings, watch: &Watch) -> Result<Finished, Refusal> {
    let command = the_command(&arguments.command)?;
    let mut options = arguments.policy.clone();
    let mut workdir = options.cwd.take().map(PathBuf::from);
    crate::request::execution_mode(options.mode.as_deref())?;
    let host_files = crate::host_files::scan(&arguments.host)?;
    let asks = &arguments.session;
    let (mut held, mut configured) = match &asks.session {
        Some(id) => {
            let (held, configured) = Held::open(id, &options, asks.asks(), around)?;
            // From the session's directory, whatever is open.
            let named = workdir.map_or_else(|| held.cwd().to_owned(), |dir| held.cwd().join(dir));
            // A question is about the directory that this names now, and so is the command.
            workdir = Some(named.canonicalize().unwrap_or(named));
            (Some(held), configured)
        }
        None => (None, Configured::load(&options, SandboxMode::WorkspaceWrite, None, None, around)?),
    };
    // A model reads what its commands print; `--env inherit` says otherwise.
    configured.options.restrictions.env.get_or_insert_with(|| "scrub".to_owned());
    configured.options.cwd = workdir.as_ref().filter(|_| held.is_some()).map(|dir| dir.clone().into_os_string());
    let argv = ["bash".into(), "-c".into(), command.clone()];
    let mut request = Request::new(&configured.options, &argv, around)?;
    configured.refuse_open(&request.policy)?;
    if let (None, Some(dir)) = (&held, &workdir) {
        // The executor joins it the same way; here a word that cannot be right is an error of the caller.
        crate::request::working_directory("--workdir", &request.policy.workspace_root.join(dir), around)?;
    }
    if let Some(held) = &mut held {
        held.complete(&mut request);
        let wanted = Wanted { argv: &argv, tool: "pinfold exec", session: asks };
        request = held.ask(wanted, &configured, request, around, &watch.cancel)?;
    }
    let recorded = held.as_mut().map(|held| held.begin(&argv, &request)).transpose()?;
    let (policy, mut call) = request.split();
    call.notes.extend(configured.notes().iter().cloned());
    call.host_files = host_files;
    let configured_ms = configured.timeout.map(|timeout| timeout.as_secs_f64() * 1000.0);
    let mut wish = pinfold_executor::Request::new(command);
    (wish.workdir, wish.timeout_ms) = (workdir, arguments.timeout_ms.or(configured_ms));
    let result = execute(arguments, policy, call, &wish, watch);
    if let (Some(held), Some(recorded)) = (&held, &recorded) {
        match &result {
            Ok(finished) => held.end(recorded, Ok(&finished.outcome)),
            Err(Refusal::Session(SessionError::Sandbox(error))) => held.end(recorded, Err(error)),
            // What the executor refuses is a word of the request.
            Err(_) => held.end(recorded, Err(&SandboxError::InvalidPolicy { detail: String::new() })),
        }
    }
    result
}

fn execute(
    arguments: &Exec,
    policy: ExecutionPolicy,
    call: CallOptions,
    wish: &pinfold_executor::Request,
    watch: &Watch,
) -> Result<Finished, Refusal> {
    if policy.mode == SandboxMode::DangerFullAccess {
        say(&format!("warning: nothing is confined under {}", policy.mode));
    }
    let mut config = ExecutorConfig { call, ..ExecutorConfig::new(policy) };
    // A file with the whole output would go with this process, before anybody could read it.
    config.spill_places.clear();
    // One command: a launcher that stays would be one process more.
    config.resident = false;
    if let Some(bytes) = arguments.max_output_bytes {
        config.max_output_bytes = bytes;
    }
    let provider = LocalProvider::new(ProviderConfig { keep_verdicts: true, ..ProviderConfig::default() })?;
    let executor = Executor::new(Arc::new(provider), config, ManagedVariables::default())?;
    let mut spec = executor.resolve(wish)?;
    if arguments.tty {
        return Ok(crate::exec_terminal::run(&executor, &spec, watch)?);
    }
    if arguments.stdin {
        let mut input = Vec::new();
        std::io::stdin()
            .read_to_end(&mut input)
            .map_err(|error| ExecutorError::Host { what: "the command's input", reason: error.to_string() })?;
        spec.stdin = Some(input);
    }
    Ok(executor.run(&spec, &watch.cancel)?)
}

/// The one string that a command is.
fn the_command(words: &[OsString]) -> Result<OsString, Refusal> {
    match words {
        [command] => Ok(command.clone()),
        [] => Err(ExecutorError::InvalidCommand("").into()),
        _ => {
            let detail = "the command has to be one string: put quotes around it".to_owned();
            Err(SandboxError::InvalidPolicy { detail }.into())
        }
    }
}

/// Says why there is no result. Whoever reads a result as JSON reads the refusal in the same place.
fn refused(refusal: &Refusal, form: Form) -> u8 {
    let (line, status) = match refusal {
        Refusal::Session(SessionError::Sandbox(error)) => (one_line(&error.body()), crate::voice::exit_status(error)),
        Refusal::Session(error) => {
            (one_line(&Body { code: error.code(), message: error.to_string() }), session_status(error))
        }
        Refusal::Executor(error) => (one_line(&error.body()), 2),
    };
    match (form, refusal) {
        (Form::Json, _) if print(&(line + "\n")).is_err() => return 125,
        (Form::Json, _) => {}
        (Form::Text, Refusal::Session(error)) => complain_session(error, form),
        (Form::Text, Refusal::Executor(error)) => {
            say(&format!("error[{}]: {error}", error.code()));
            say("hint: see the options and their words: pinfold exec --help");
        }
    }
    status
}
