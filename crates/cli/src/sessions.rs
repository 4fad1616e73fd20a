//! `pinfold session`: make, show and change sessions. Every change is one event in the session's log.

use crate::arguments::{PolicyOptions, Session as Command};
use crate::closing::Closing;
use crate::configuration::Configured;
use crate::session_arguments::{Grant, Named, New, Tell};
use crate::session_run::grantable;
use crate::surroundings::Surroundings;
use crate::voice::{Form, one_line, print_or_complain, speak_of_session};
use pinfold_policy::escalation::ApprovalPolicy;
use pinfold_policy::quote::{quote, quote_if_needed};
use pinfold_policy::{ExecutionPolicy, Restrictions, RootRole, SandboxError, SandboxMode, UnknownWord};
use pinfold_providers::{LocalProvider, ProviderConfig};
use pinfold_session::log::event::{By, Given, Record};
use pinfold_session::log::{now, state::State};
use pinfold_session::{
    Access, GrantId, Life, Log, NewSession, PolicyRequest, PolicyService, Session, SessionError, Store, preset, text,
};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Does one of the tasks and returns the exit status.
pub(crate) fn session(command: &Command, around: &Surroundings) -> u8 {
    let json = match command {
        Command::New(arguments) => arguments.json,
        Command::List(arguments) => arguments.json,
        Command::Show(arguments) | Command::Log(arguments) | Command::End(arguments) => arguments.json,
        _ => false,
    };
    print_or_complain(answer(command, around), Form::of(json))
}

fn answer(command: &Command, around: &Surroundings) -> Result<String, SessionError> {
    let store = Store::open(&Store::place(around.home.as_deref())?)?;
    let open = |id: &str| store.session(id, Access::Append).inspect(|session| speak_of_session(session.id().as_str()));
    match command {
        Command::New(arguments) => new(&store, arguments, around),
        Command::List(arguments) => list(&store, Form::of(arguments.json)),
        Command::Show(arguments) => show(&store, arguments, around),
        Command::Mode(arguments) => {
            open(&arguments.id)?.set_mode(word(&arguments.mode)?, By::User)?;
            Ok(String::new())
        }
        Command::Approval(arguments) => {
            open(&arguments.id)?.set_approval(word(&arguments.policy)?)?;
            Ok(String::new())
        }
        Command::Preset(arguments) => {
            let session = open(&arguments.id)?;
            let deployment = deployment(&session, around)?.deployment;
            match &arguments.name {
                Some(name) => session.select_preset(&deployment, name).map(|()| String::new()),
                None => {
                    let state = session.state()?;
                    let current = current_preset(&deployment, &state);
                    let options = preset::options(&deployment, current).join(", ");
                    Ok(format!("{current}\navailable: {options}\n"))
                }
            }
        }
        Command::Grant(arguments) => grant(&open(&arguments.id)?, arguments, around),
        Command::Revoke(arguments) => {
            open(&arguments.id)?.revoke(&GrantId::new(&arguments.grant))?;
            Ok(String::new())
        }
        Command::Log(arguments) => log(&store, arguments),
        Command::Tell(arguments) => tell(&open(&arguments.id)?, arguments, around),
        Command::End(arguments) => {
            let session = open(&arguments.id)?;
            session.end()?;
            // Its private temp directory goes with it.
            LocalProvider::new(ProviderConfig::default())?.end_session(session.id())?;
            Ok(String::new())
        }
    }
}

fn word<T: std::str::FromStr<Err = UnknownWord>>(word: &str) -> Result<T, SandboxError> {
    word.parse().map_err(|error: UnknownWord| SandboxError::InvalidPolicy { detail: error.to_string() })
}

/// The configuration that a session's calls start from.
fn deployment(session: &Session, around: &Surroundings) -> Result<Configured, SessionError> {
    let words = PolicyOptions::default();
    Configured::load(&words, SandboxMode::ReadOnly, Some(session.cwd()), session.project_at_start(), around)
}

/// Makes a session in a directory, with what words say of it and else what is configured.
pub(crate) fn make(
    store: &Store,
    cwd: PathBuf,
    (mode, preset, approval): (Option<&str>, Option<&str>, Option<&str>),
    around: &Surroundings,
) -> Result<Session, SessionError> {
    let mode: Option<SandboxMode> = mode.map(word).transpose()?;
    let approval: Option<ApprovalPolicy> = approval.map(word).transpose()?;
    let words = PolicyOptions::default();
    let configured = Configured::load(&words, SandboxMode::ReadOnly, Some(&cwd), None, around)?;
    let row = match preset {
        Some(name) => Some(preset::find(&configured.deployment, name)?),
        None if mode.is_none() => preset::initial(&configured.deployment)?,
        None => None,
    };
    // A preset that is only what is configured anyhow leaves the configuration in charge.
    let selected = row.filter(|_| preset.is_some() || configured.deployment.default_preset.is_some());
    store.create(&NewSession {
        cwd,
        mode: mode.map(|mode| (mode, By::User)).or(selected.map(|row| (row.mode, By::Preset))),
        approval: approval.or(selected.map(|row| row.approval)),
        preset: selected.map(|row| row.name.clone()),
    })
}

fn new(store: &Store, arguments: &New, around: &Surroundings) -> Result<String, SessionError> {
    let cwd = match &arguments.cwd {
        Some(dir) => around.absolute("--cwd", Path::new(dir))?,
        None => around.current_directory()?.to_owned(),
    };
    let words = (arguments.mode.as_deref(), arguments.preset.as_deref(), arguments.approval.as_deref());
    let session = make(store, cwd, words, around)?;
    #[derive(Serialize)]
    struct Made<'a> {
        session: &'a str,
    }
    let id = session.id().as_str();
    Ok(if arguments.json { one_line(&Made { session: id }) } else { id.to_owned() } + "\n")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    session: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    events: u64,
    open_questions: usize,
    ended: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn list(store: &Store, form: Form) -> Result<String, SessionError> {
    let mut out = String::new();
    let mut lines = Vec::new();
    for id in store.list()? {
        let line = match store.session(&id, Access::Read).and_then(|session| session.state()) {
            Ok(state) => Line {
                cwd: state.created().map(|created| created.cwd.clone()),
                events: state.events(),
                open_questions: open_questions(&state).len(),
                ended: state.has_ended(),
                error: None,
                session: id,
            },
            // One that cannot be read is listed all the same.
            Err(error) => Line {
                cwd: None,
                events: 0,
                open_questions: 0,
                ended: false,
                error: Some(error.to_string()),
                session: id,
            },
        };
        let told = match &line {
            Line { error: Some(error), .. } => format!("cannot be used: {error}"),
            Line { ended: true, .. } => "ended".to_owned(),
            Line { open_questions: 0, .. } => format!("{} events", line.events),
            Line { open_questions, .. } => format!("{} events, {open_questions} open questions", line.events),
        };
        let cwd = line.cwd.as_ref().map(quote_if_needed).unwrap_or_default();
        push(&mut out, &format!("{}  {cwd}  {told}", line.session));
        lines.push(line);
    }
    Ok(if form == Form::Json { one_line(&lines) + "\n" } else { out })
}

/// The questions that somebody still waits for.
fn open_questions(state: &State) -> Vec<&pinfold_session::log::event::Asked> {
    let at = now().max(state.latest());
    state.open_asks().filter(|asked| at < asked.until && !asked.is_orphaned()).collect()
}

fn current_preset<'a>(deployment: &'a pinfold_session::Deployment, state: &State) -> &'a str {
    let knobs = preset::Knobs {
        mode: state.mode().unwrap_or(deployment.mode.value),
        approval: state.approval().unwrap_or(deployment.approval.value),
    };
    preset::current(deployment, state.preset(), knobs)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    session: &'a str,
    cwd: String,
    /// Not known where the configuration decides and cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<SandboxMode>,
    mode_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<&'a str>,
    /// Why no call can be made, if none can.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    grants: Vec<&'a Given>,
    questions: Vec<&'a pinfold_session::log::event::Asked>,
    open_calls: Vec<&'a str>,
    ended: bool,
}

fn show(store: &Store, arguments: &Named, around: &Surroundings) -> Result<String, SessionError> {
    let session = store.session(&arguments.id, Access::Read)?;
    let state = session.state()?;
    speak_of_session(session.id().as_str());
    // What the log says is shown also where a file of somebody's keeps every call from being made.
    let configured = deployment(&session, around);
    let deployment = configured.as_ref().ok().map(|configured| &configured.deployment);
    let at = now().max(state.latest());
    let shown = Shown {
        session: session.id().as_str(),
        cwd: pinfold_policy::quote::readable(session.cwd()),
        mode: state.mode().or(deployment.map(|it| it.mode.value)),
        mode_by: match (state.mode(), deployment) {
            (Some(_), _) => "session".to_owned(),
            (None, Some(deployment)) => deployment.mode.by.to_string(),
            (None, None) => "the configuration, which cannot be read".to_owned(),
        },
        approval: state.approval().or(deployment.map(|it| it.approval.value)),
        preset: deployment.map(|deployment| current_preset(deployment, &state)),
        error: configured.as_ref().err().map(ToString::to_string),
        grants: state.grants().filter(|given| given.until.is_none_or(|until| at < until)).collect(),
        questions: open_questions(&state),
        open_calls: state.open_calls().collect(),
        ended: state.has_ended(),
    };
    if arguments.json {
        return Ok(one_line(&shown) + "\n");
    }
    let mut out = String::new();
    push(&mut out, &format!("session   {}{}", shown.session, if shown.ended { " (ended)" } else { "" }));
    push(&mut out, &format!("directory {}", quote_if_needed(session.cwd())));
    let mode = shown.mode.map_or("unknown".to_owned(), |mode| mode.to_string());
    push(&mut out, &format!("mode      {mode} ({})", shown.mode_by));
    push(&mut out, &format!("approval  {}", shown.approval.map_or("unknown".to_owned(), |it| it.to_string())));
    push(&mut out, &format!("preset    {}", shown.preset.unwrap_or("unknown")));
    if let Some(error) = &shown.error {
        push(&mut out, &format!("error     no call can be made: {error}"));
    }
    for given in &shown.grants {
        let life = match (given.life, given.until) {
            (Life::Call, _) => "for one call".to_owned(),
            (Life::Session, None) => "for the session".to_owned(),
            (Life::Session, Some(until)) => format!("for {} s more", (until - at).div_ceil(1000)),
        };
        push(&mut out, &format!("grant     {}: {}, {life}", given.id, given.scope.describe()));
    }
    for asked in &shown.questions {
        push(&mut out, &format!("question  {}: {}", asked.id, quote(&asked.reason)));
    }
    for call in &shown.open_calls {
        push(&mut out, &format!("call      {call} has no end: it runs, or its process was killed"));
    }
    Ok(out)
}

fn grant(session: &Session, arguments: &Grant, around: &Surroundings) -> Result<String, SessionError> {
    let held = grantable(&around.absolute("DIRECTORY", Path::new(&arguments.directory))?)?;
    let path = held.path();
    if let Ok(configured) = deployment(session, around) {
        let opened = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, path);
        configured.refuse_open(&opened).map_err(|error| match error {
            SandboxError::InvalidRoot { path, problem, .. } => {
                SandboxError::InvalidRoot { role: RootRole::Additional, path, problem }
            }
            other => other,
        })?;
    }
    let seconds = arguments.seconds.as_deref().map(crate::request::timeout).transpose()?;
    let until = seconds.map(|time| now().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)));
    Ok(format!("{}\n", session.grant_directory(path, until)?))
}

fn log(store: &Store, arguments: &Named) -> Result<String, SessionError> {
    let directory = store.directory(&arguments.id)?;
    let mut out = String::new();
    Log::read_all(&directory, |record| push(&mut out, &line(record, Form::of(arguments.json))))?;
    Ok(out)
}

fn line(record: &Record, form: Form) -> String {
    #[derive(Serialize)]
    struct Told<'a> {
        seq: u64,
        at: u64,
        #[serde(rename = "type")]
        kind: &'a str,
        data: serde_json::Value,
    }
    let kind = record.event.kind();
    let data = record.event.value();
    let told = Told { seq: record.seq, at: record.at, kind, data };
    match form {
        Form::Json => one_line(&told),
        Form::Text => {
            let seconds = record.at / 1000;
            let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
            format!(
                "{:>5} {hours:02}:{minutes:02}:{:02}Z {kind:<18} {}",
                record.seq,
                seconds % 60,
                one_line(&told.data)
            )
        }
    }
}

fn tell(session: &Session, arguments: &Tell, around: &Surroundings) -> Result<String, SessionError> {
    let configured = match deployment(session, around) {
        Ok(configured) => configured,
        // A model that is told nothing would try in vain.
        Err(error @ (SessionError::ConfigInvalid { .. } | SessionError::ConfigWidens { .. })) => {
            return tell_once(session, arguments, format!("No command can be run: {error}\n"));
        }
        Err(error) => return Err(error),
    };
    let approval = session.state()?.approval().unwrap_or(configured.deployment.approval.value);
    let service = PolicyService::new(configured.deployment, session.cwd(), around.home.as_deref())?;
    let mut resolved = service.resolve(PolicyRequest { session: Some(session), approved: None })?;
    // What `run` closes without being asked is told too.
    let words = &configured.options.restrictions;
    let closing = Closing::new(words, &resolved.policy, Some(session.cwd()), around)?;
    let more = |path: &std::path::PathBuf| !closing.restrictions.denied_reads.contains(path);
    let preset: Vec<_> = resolved.restrictions.denied_reads.iter().filter(|path| more(path)).cloned().collect();
    let network = resolved.restrictions.network.max(closing.restrictions.network);
    let variables = resolved.restrictions.variables.max(closing.restrictions.variables);
    resolved.restrictions = Restrictions { network, variables, ..closing.restrictions };
    resolved.restrictions.denied_reads.extend(preset);
    let told = text::render_policy(Some(&resolved)) + &text::render_approval(approval, resolved.mode);
    tell_once(session, arguments, told)
}

fn tell_once(session: &Session, arguments: &Tell, told: String) -> Result<String, SessionError> {
    if !arguments.once {
        return Ok(told);
    }
    Ok(session.announce(told)?.unwrap_or_default())
}

fn push(out: &mut String, line: &str) {
    let _ = writeln!(out, "{}", line.trim_end()); // writing to a String cannot fail
}
