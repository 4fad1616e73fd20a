//! `pinfold mcp`: a session as a server of the Model Context Protocol. Here is what only a command line knows: the host, the
//! configuration, and what is closed without being asked for.

use crate::arguments::{Mcp, PolicyOptions, RestrictionOptions};
use crate::configuration::Configured;
use crate::request::Request;
use crate::session_run::{complete, policy_words};
use crate::signals::Watch;
use crate::surroundings::Surroundings;
use crate::voice::{Form, complain_session, print, say, session_status};
use pinfold_executor::ExecutorConfig;
use pinfold_mcp::clients::Client;
use pinfold_mcp::{Ended, Failure, Ground, Notice, Settings, Setup, Way, serve};
use pinfold_policy::escalation::ApprovalPolicy;
use pinfold_policy::quote::quote;
use pinfold_policy::{ExecutionPolicy, RootProblem, RootRole, SandboxError, SandboxMode, SessionId, UnknownWord};
use pinfold_providers::{CallOptions, HostFileScan, LocalProvider, ProviderConfig};
use pinfold_session::{Access, PolicyService, Resolved, Session, SessionError, Store, preset};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Serves, or prints a configuration; returns the exit status.
pub(crate) fn mcp(arguments: &Mcp, around: Surroundings) -> u8 {
    if let Some(name) = &arguments.print_config {
        return print_config(name, arguments, &around);
    }
    let watch = match Watch::begin() {
        Ok(watch) => watch,
        Err(error) => {
            say(&format!("error: signals cannot be watched: {error}"));
            return 125;
        }
    };
    let way = arguments.http.map_or(Way::Stdio, Way::Http);
    let notice = |notice: &Notice<'_>| match notice {
        Notice::Listening { url, token } => say(&format!("serving {url}; the token is in {}", quote(token))),
        Notice::Wrong(why) => say(&format!("error: {why}")),
    };
    let served = setup(arguments, around).and_then(|setup| serve(setup, &way, &watch.cancel, &notice));
    match served {
        Ok(Ended::Input) => 0,
        Ok(_) => watch.exit_status().unwrap_or(0),
        Err(failure) => refuse(failure),
    }
}

fn refuse(failure: Failure) -> u8 {
    match failure {
        Failure::Session(error) => {
            complain_session(&error, Form::Text);
            session_status(&error)
        }
        Failure::Executor(error) => {
            say(&format!("error[{}]: {error}", error.code()));
            2
        }
        Failure::Host(what, error) => {
            say(&format!("error: cannot have {what}: {error}"));
            125
        }
        Failure::Exposed(why) => {
            say(&format!("error: the token would not be safe: {why}"));
            125
        }
    }
}

fn setup(arguments: &Mcp, around: Surroundings) -> Result<Setup, Failure> {
    let store = Store::open(&Store::place(around.home.as_deref())?)?;
    let invalid = |detail: String| SessionError::from(SandboxError::InvalidPolicy { detail });
    if arguments.policy.cwd.is_some() {
        return Err(invalid("--cwd has no place here: each call names its own directory".to_owned()).into());
    }
    let mut options = arguments.policy.clone();
    let session = match &arguments.session {
        Some(id) => held(&store, id, &options)?,
        None => made(&store, arguments, &around)?,
    };
    // What the session was made with is in its log.
    (options.workspace, options.mode) = (None, None);
    let cwd = session.cwd().to_owned();
    let mut configured =
        Configured::load(&options, SandboxMode::ReadOnly, Some(&cwd), session.project_at_start(), &around)?;
    // A model reads what its commands print.
    configured.options.restrictions.env.get_or_insert_with(|| "scrub".to_owned());
    let service = PolicyService::new(configured.deployment.clone(), &cwd, around.home.as_deref())?;
    let config = ProviderConfig { keep_verdicts: true, ..ProviderConfig::default() };
    let provider = Arc::new(LocalProvider::new(config).map_err(SessionError::from)?);
    let roots_below = arguments.roots_below.iter().map(|dir| roots_below(dir, &around)).collect::<Result<_, _>>()?;
    let mut host = Host { configured, around, state: store.root().to_owned(), session: session.id().clone(), cwd };
    host.protect_where_possible(&provider);
    let executor = ExecutorConfig::new(ExecutionPolicy::new(SandboxMode::ReadOnly, session.cwd()));
    let settings = Settings {
        persistent_shell: arguments.persistent_shell,
        // Where nothing may go on in the background, a command whose time is up is ended.
        promote_on_timeout: !arguments.end_at_timeout && !arguments.no_background,
        background: !arguments.no_background,
        roots_below,
        wait_elsewhere: arguments.wait_for_approval,
        ends_session: arguments.session.is_none(),
    };
    let directory = store.directory(session.id().as_str())?;
    Ok(Setup { session, directory, service, provider, executor, ground: Box::new(host), settings })
}

/// Opens a session whose policy is its own.
fn held(store: &Store, id: &str, options: &PolicyOptions) -> Result<Session, SessionError> {
    for (option, given) in [
        ("--mode", options.mode.is_some()),
        ("--workspace", options.workspace.is_some()),
        ("--writable", !options.writable.is_empty()),
    ] {
        if given {
            let detail = format!("{option} has no place beside --session; see: pinfold session --help");
            return Err(SandboxError::InvalidPolicy { detail }.into());
        }
    }
    store.session(id, Access::Append)
}

fn made(store: &Store, arguments: &Mcp, around: &Surroundings) -> Result<Session, SessionError> {
    let configured = Configured::load(&arguments.policy, SandboxMode::ReadOnly, None, None, around)?;
    let workspace = match &configured.options.workspace {
        Some(dir) => around.absolute("--workspace", Path::new(dir))?,
        // SECURITY: clients start servers in / or in the home directory. Whatever the mode is now, the workspace is what a yes
        // to workspace-write opens.
        None => around.default_workspace()?,
    };
    let words = (arguments.policy.mode.as_deref(), arguments.preset.as_deref(), arguments.approval.as_deref());
    crate::sessions::make(store, workspace, words, around)
}

/// Reads a directory below which a client's roots may lie.
fn roots_below(dir: &OsString, around: &Surroundings) -> Result<PathBuf, SessionError> {
    let path = around.absolute("--roots-below", Path::new(dir))?;
    let refused = |why: String| SandboxError::InvalidRoot {
        role: RootRole::Additional,
        path: path.clone(),
        problem: RootProblem::Refused(why),
    };
    let real = path.canonicalize().map_err(|error| refused(error.to_string()))?;
    if real.is_dir() { Ok(real) } else { Err(refused("it is not a directory".to_owned()).into()) }
}

/// The host under a session, with the configuration.
struct Host {
    configured: Configured,
    around: Surroundings,
    state: PathBuf,
    session: SessionId,
    cwd: PathBuf,
}

impl Host {
    /// Protects what tools outside obey, unless something else was said, and where a mechanism can do it.
    fn protect_where_possible(&mut self, provider: &LocalProvider) {
        if !self.configured.options.restrictions.protect.is_empty() {
            return;
        }
        self.configured.options.restrictions.protect.push("default".into());
        let mut policy = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, &self.cwd);
        policy.session_id = Some(self.session.clone());
        let usable = |host: &Self| {
            host.request(&host.configured.options, &policy).and_then(|request| {
                let (policy, call) = request.split();
                let confined = policy.confined();
                Ok(confined.map(|policy| provider.file_rules(&policy, &call)).transpose()?)
            })
        };
        let Err(error) = usable(self) else { return };
        let protect = std::mem::take(&mut self.configured.options.restrictions.protect);
        if let Err(other) = usable(self) {
            // SECURITY: what is wrong is wrong without protection too, such as a root that is not there. It may be mended while
            // the server runs, and then commands must not run unprotected.
            self.configured.options.restrictions.protect = protect;
            say(&format!("note: with these words commands that may write are refused: {other}"));
        } else {
            say(&format!("note: names that tools outside obey are not protected here: {error}"));
        }
    }

    fn request(&self, options: &PolicyOptions, policy: &ExecutionPolicy) -> Result<Request, SessionError> {
        let words = PolicyOptions {
            mode: Some(policy.mode.to_string()),
            workspace: Some(policy.workspace_root.clone().into_os_string()),
            ..options.clone()
        };
        let argv: [OsString; 1] = ["bash".into()];
        let mut request = Request::new(&words, &argv, &self.around)?;
        request.policy.session_id = Some(self.session.clone());
        Ok(request)
    }
}

impl Ground for Host {
    fn prepare(&self, resolved: &mut Resolved) -> Result<CallOptions, SessionError> {
        let mut words = policy_words(resolved, &resolved.policy, &self.cwd, &self.configured.options);
        words.cwd = None;
        if resolved.policy.mode == SandboxMode::DangerFullAccess {
            // Nothing is confined, so nothing can be closed; what is removed from the environment stays removed.
            let RestrictionOptions { env, keep_env, .. } = words.restrictions;
            words.restrictions = RestrictionOptions { env, keep_env, ..RestrictionOptions::default() };
        }
        let argv: [OsString; 1] = ["bash".into()];
        let mut request = Request::new(&words, &argv, &self.around)?;
        self.configured.refuse_open(&request.policy)?;
        complete(&mut request, resolved, &self.session, &self.state);
        (resolved.policy, resolved.restrictions) = (request.policy.clone(), request.closing.restrictions.clone());
        let (_, mut call) = request.split();
        call.notes.extend(self.configured.notes().iter().cloned());
        call.host_files = HostFileScan::USUAL;
        Ok(call)
    }

    fn unfit_root(&self, directory: &Path) -> Option<String> {
        if let Some(why) = self.around.unfit(directory) {
            return Some(format!("it {why}"));
        }
        let policy = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, directory);
        self.configured.refuse_open(&policy).err().map(|error| error.to_string())
    }
}

fn print_config(name: &str, arguments: &Mcp, around: &Surroundings) -> u8 {
    let Some(client) = Client::named(name) else {
        let known: Vec<_> = Client::ALL.iter().map(|client| client.as_str()).collect();
        say(&format!("error: --print-config {} is none of {}", quote(name), known.join(", ")));
        return 2;
    };
    if let Err(error) = check(arguments, around) {
        complain_session(&error, Form::Text);
        return 2;
    }
    let program = std::env::current_exe().ok().and_then(|exe| exe.to_str().map(str::to_owned));
    let words: Option<Vec<String>> = std::env::args_os().skip(1).map(|word| word.into_string().ok()).collect();
    let (Some(program), Some(words)) = (program, words) else {
        say("error: a word that is not UTF-8 has no place in a configuration");
        return 2;
    };
    let absolute = |option: &str, path: &str| around.absolute(option, Path::new(path));
    let mut words = match with_absolute_paths(without_print_config(words), absolute) {
        Ok(words) => words,
        Err(error) => {
            complain_session(&error.into(), Form::Text);
            return 2;
        }
    };
    let names_place = arguments.policy.workspace.is_some() || arguments.session.is_some();
    if client.starts_elsewhere() && !names_place {
        match around.default_workspace().map(|dir| dir.to_str().map(str::to_owned)) {
            Ok(Some(dir)) => words.extend(["--workspace".to_owned(), dir]),
            Ok(None) => say("note: the current directory is not UTF-8; name a --workspace"),
            Err(error) => {
                complain_session(&error.into(), Form::Text);
                return 2;
            }
        }
    }
    say(&format!("for {}", client.place()));
    match print(&client.configuration(&program, &words)) {
        Ok(()) => 0,
        Err(error) => {
            say(&format!("error: standard output: {error}"));
            125
        }
    }
}

/// Refuses what the server would refuse at its start, and makes no session.
fn check(arguments: &Mcp, around: &Surroundings) -> Result<(), SessionError> {
    let invalid = |detail: String| SessionError::from(SandboxError::InvalidPolicy { detail });
    if arguments.policy.cwd.is_some() {
        return Err(invalid("--cwd has no place here: each call names its own directory".to_owned()));
    }
    let mut options = arguments.policy.clone();
    if let Some(id) = &arguments.session {
        let store = Store::open(&Store::place(around.home.as_deref())?)?;
        let session = held(&store, id, &options)?;
        options.workspace = Some(session.cwd().as_os_str().to_owned());
    }
    let configured = Configured::load(&options, SandboxMode::ReadOnly, None, None, around)?;
    if let Some(word) = &arguments.approval {
        word.parse::<ApprovalPolicy>().map_err(|error: UnknownWord| invalid(error.to_string()))?;
    }
    if let Some(name) = &arguments.preset {
        preset::find(&configured.deployment, name)?;
    }
    if let Some(dir) = &options.workspace {
        let path = around.absolute("--workspace", Path::new(dir))?;
        let problem = match path.canonicalize() {
            Ok(real) if real.is_dir() => None,
            Ok(_) => Some("it is not a directory".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = problem {
            let problem = RootProblem::Refused(why);
            return Err(SandboxError::InvalidRoot { role: RootRole::Workspace, path, problem }.into());
        }
    }
    for dir in &arguments.roots_below {
        roots_below(dir, around)?;
    }
    let mode = match &options.mode {
        Some(word) => word.parse().map_err(|error: UnknownWord| invalid(error.to_string()))?,
        None => SandboxMode::WorkspaceWrite,
    };
    if mode == SandboxMode::DangerFullAccess {
        // As in `prepare`: nothing is confined, so nothing can be closed.
        options.restrictions = RestrictionOptions::default();
    }
    options.mode = Some(mode.to_string());
    // The client may start the server in another directory than this one.
    if options.workspace.is_some() || around.default_workspace().is_ok() {
        let argv: [OsString; 1] = ["bash".into()];
        Request::new(&options, &argv, around)?;
    }
    Ok(())
}

/// Makes the paths of options absolute: a client may start the server in another directory.
fn with_absolute_paths(
    words: Vec<String>,
    absolute: impl Fn(&str, &str) -> Result<PathBuf, SandboxError>,
) -> Result<Vec<String>, SandboxError> {
    const OF_PATHS: [&str; 5] = ["--workspace", "--writable", "--roots-below", "--allow-read", "--allow-socket"];
    const OF_PATTERNS: [&str; 2] = ["--deny-read", "--protect"];
    let takes = |option: &str| OF_PATHS.contains(&option) || OF_PATTERNS.contains(&option);
    let path = |option: &str, word: &str| -> Result<String, SandboxError> {
        let pattern = OF_PATTERNS.contains(&option);
        if pattern && (word.starts_with(['/', '~']) || (option == "--protect" && ["default", "none"].contains(&word))) {
            return Ok(word.to_owned());
        }
        let path = absolute(option, word)?;
        // Both parts are text.
        let path = path.to_str().map_or_else(|| word.to_owned(), str::to_owned);
        let before = path.strip_suffix(word).unwrap_or(&path);
        if pattern && before.contains(['*', '?', '[', ']', '{', '}', '\\']) {
            let detail =
                format!("{option} {} lies in a directory whose name would be a pattern: write it whole", quote(word));
            return Err(SandboxError::InvalidPolicy { detail });
        }
        Ok(path)
    };
    let mut made = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let joined = word.split_once('=').filter(|(option, _)| takes(option));
        if let Some((option, value)) = joined {
            made.push(format!("{option}={}", path(option, value)?));
        } else if takes(&word) {
            let value = words.next().map(|value| path(&word, &value)).transpose()?;
            made.push(word);
            made.extend(value);
        } else {
            made.push(word);
        }
    }
    Ok(made)
}

/// The words of the command line but for the option that asked for the configuration.
fn without_print_config(words: Vec<String>) -> Vec<String> {
    let mut left = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--print-config" {
            words.next();
        } else if !word.starts_with("--print-config=") {
            left.push(word);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_configuration_is_absolute() {
        let words = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            with_absolute_paths(words, |_, path| Ok(Path::new("/at").join(path))).unwrap()
        };
        assert_eq!(
            words(&["mcp", "--workspace", "a", "--writable=b"]),
            ["mcp", "--workspace", "/at/a", "--writable=/at/b"]
        );
        assert_eq!(
            words(&["mcp", "--roots-below", "/c", "--mode", "x"]),
            ["mcp", "--roots-below", "/c", "--mode", "x"]
        );
        assert_eq!(
            words(&["mcp", "--deny-read", "**/*.pem", "--deny-read=~/x", "--protect", "default", "--protect=a"]),
            ["mcp", "--deny-read", "/at/**/*.pem", "--deny-read=~/x", "--protect", "default", "--protect=/at/a"]
        );
        let within = |directory: &'static str| {
            with_absolute_paths(vec!["--deny-read=x*".to_owned()], |_, path| Ok(Path::new(directory).join(path)))
        };
        assert_eq!(within("/at").unwrap(), ["--deny-read=/at/x*"]);
        assert!(within("/a[t]").unwrap_err().to_string().contains("write it whole"));
    }

    #[test]
    fn a_configuration_has_every_word_but_the_one_that_asked_for_it() {
        let words = |words: &[&str]| without_print_config(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(words(&["mcp", "--print-config", "codex", "--mode", "x"]), ["mcp", "--mode", "x"]);
        assert_eq!(words(&["mcp", "--print-config=codex"]), ["mcp"]);
    }
}
