//! `pinfold exec`: one shell command as an agent runs it, and the text that a model reads.

use crate::arguments::Exec;
use crate::request::Request;
use crate::signals::Watch;
use crate::surroundings::Surroundings;
use crate::voice::{Form, complain, exit_status, hurry, one_line, print, say};
use pinfold_executor::render::render_finished;
use pinfold_executor::{Executor, ExecutorConfig, ExecutorError, Finished, ManagedVariables};
use pinfold_policy::{SandboxError, SandboxMode};
use pinfold_providers::{LocalProvider, ProviderConfig};
use std::ffi::OsString;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

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
        Ok(finished) => {
            let text = match form {
                Form::Json => one_line(&finished),
                Form::Text => render_finished(&finished, None),
            };
            let text = if text.ends_with('\n') { text } else { text + "\n" };
            match print(&text) {
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

fn run(arguments: &Exec, around: &Surroundings, watch: &Watch) -> Result<Finished, ExecutorError> {
    let command = the_command(&arguments.command)?;
    let mut options = arguments.policy.clone();
    let workdir = options.cwd.take().map(PathBuf::from);
    // A model reads what its commands print; `--env inherit` says otherwise.
    options.restrictions.env.get_or_insert_with(|| "scrub".to_owned());
    let request = Request::new(&options, &["bash".into(), "-c".into(), command.clone()], around)?;
    let (policy, call) = request.split();
    if policy.mode == SandboxMode::DangerFullAccess {
        say(&format!("warning: nothing is confined under {}", policy.mode));
    }
    let mut config = ExecutorConfig { call, ..ExecutorConfig::new(policy) };
    // A file with the whole output would go with this process, before anybody could read it.
    config.spill_places.clear();
    if let Some(bytes) = arguments.max_output_bytes {
        config.max_output_bytes = bytes;
    }
    let provider = LocalProvider::new(ProviderConfig { keep_verdicts: true, ..ProviderConfig::default() })?;
    let executor = Executor::new(Arc::new(provider), config, ManagedVariables::default())?;
    let mut request = pinfold_executor::Request::new(command);
    (request.workdir, request.timeout_ms) = (workdir, arguments.timeout_ms);
    let mut spec = executor.resolve(&request)?;
    if arguments.stdin {
        let mut input = Vec::new();
        std::io::stdin()
            .read_to_end(&mut input)
            .map_err(|error| ExecutorError::Host { what: "the command's input", reason: error.to_string() })?;
        spec.stdin = Some(input);
    }
    executor.run(&spec, &watch.cancel)
}

/// The one string that a command is.
fn the_command(words: &[OsString]) -> Result<OsString, ExecutorError> {
    match words {
        [command] => Ok(command.clone()),
        [] => Err(ExecutorError::InvalidCommand("")),
        _ => {
            let detail = "the command has to be one string: put quotes around it".to_owned();
            Err(SandboxError::InvalidPolicy { detail }.into())
        }
    }
}

/// Says why there is no result.
fn refused(error: &ExecutorError, form: Form) -> u8 {
    if form == Form::Json {
        // Whoever reads the result reads the refusal in the same place.
        let line = one_line(&error.body()) + "\n";
        return match (print(&line), error) {
            (Ok(()), ExecutorError::Sandbox(error)) => exit_status(error),
            (Ok(()), _) => 2,
            (Err(_), _) => 125,
        };
    }
    match error {
        ExecutorError::Sandbox(error) => {
            complain(error, form);
            exit_status(error)
        }
        other => {
            say(&format!("error[{}]: {other}", other.code()));
            say("hint: see the options and their words: pinfold exec --help");
            2
        }
    }
}
