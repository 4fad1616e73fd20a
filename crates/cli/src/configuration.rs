//! Configuration files put under the words of the command line: what a word says outranks what a file says.

use crate::arguments::PolicyOptions;
use crate::surroundings::Surroundings;
use pinfold_policy::{ExecutionPolicy, SandboxError, SandboxMode};
use pinfold_session::config::{Decided, Layer, Origin, Stated};
use pinfold_session::{Deployment, Places, SessionError, Store, store};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The words of a command line with what the files add.
#[derive(Debug)]
pub(crate) struct Configured {
    /// The words.
    pub(crate) options: PolicyOptions,
    /// What every layer says, flags included, and which decided.
    pub(crate) deployment: Deployment,
    /// The time limit of the files.
    pub(crate) timeout: Option<Duration>,
    /// Files and directories that decide what is allowed.
    own: Vec<PathBuf>,
}

impl Configured {
    /// Reads the files and puts them under the words.
    ///
    /// `mode` is what holds where nobody says anything; `at_start` is the project's file as a session began.
    ///
    /// # Errors
    ///
    /// `CONFIG_INVALID`, `CONFIG_WIDENS`; `SANDBOX_INVALID_POLICY` for a workspace that cannot be named.
    pub(crate) fn load(
        options: &PolicyOptions,
        mode: SandboxMode,
        workspace: Option<&Path>,
        at_start: Option<&str>,
        around: &Surroundings,
    ) -> Result<Self, SessionError> {
        let places = Places::from_environment(around.home.as_deref());
        let named = options.workspace.as_ref().map(|dir| around.absolute("--workspace", Path::new(dir))).transpose()?;
        let fallback = match (workspace, &named) {
            (Some(_), _) | (_, Some(_)) => None,
            // Where the user's file names a workspace, its project counts.
            _ => places.load(mode, None, None)?.workspace.map(|it| it.value),
        };
        let project = workspace.or(named.as_deref()).or(fallback.as_deref()).or(around.current.as_deref().ok());
        let files = places.load(mode, project, at_start)?;
        let timeout = files.timeout.as_ref().map(|it| it.value);
        // SECURITY: a link on the way decides as much as the file it leads to.
        let named_home = around.named_home.as_deref();
        let mut own = places.own();
        own.extend(Places::from_environment(named_home).own());
        own.extend(Store::place(around.home.as_deref()).into_iter().chain(Store::place(named_home)));
        let mut own: Vec<PathBuf> = own.iter().flat_map(|path| store::decisive(path)).collect();
        own.sort();
        own.dedup();
        let words = flags(options, around);
        let all = under(options.clone(), &files);
        // A session's mode is not known here, and its directories are granted.
        if workspace.is_none() {
            refuse_what_has_no_use(options, all.mode.as_deref())?;
        }
        Ok(Self { options: all, deployment: files.over(words)?, timeout, own })
    }

    /// Refuses a policy under which the command could write what decides for the next one (W09).
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_ROOT`.
    pub(crate) fn refuse_open(&self, policy: &ExecutionPolicy) -> Result<(), SandboxError> {
        let own: Vec<&Path> = self.own.iter().map(PathBuf::as_path).collect();
        Store::refuse_open(policy, &own)
    }

    /// Returns the files and directories that decide what is allowed.
    pub(crate) fn own(&self) -> &[PathBuf] {
        &self.own
    }

    /// Returns sentences for the report.
    pub(crate) fn notes(&self) -> &[String] {
        &self.deployment.overridden
    }
}

/// Refuses words that open or bound what the mode does not have; a file may say them for calls under another mode.
fn refuse_what_has_no_use(words: &PolicyOptions, mode: Option<&str>) -> Result<(), SandboxError> {
    let useless = [
        ("--writable", !words.writable.is_empty(), "no directory can be written"),
        ("--max-temp-size", words.limits.max_temp_size.is_some(), "there is no private temp area"),
    ];
    match useless.iter().find(|(_, given, _)| *given && mode == Some(SandboxMode::ReadOnly.as_str())) {
        None => Ok(()),
        Some((option, _, why)) => Err(SandboxError::InvalidPolicy {
            detail: format!("{option} has no use here: {why} under read-only (--mode workspace-write)"),
        }),
    }
}

/// Fills in what no word says.
fn under(mut options: PolicyOptions, files: &Deployment) -> PolicyOptions {
    let decided = |origin: &Origin| *origin != Origin::BuiltIn;
    let said = |word: &mut Option<String>, value: String, origin: &Origin| {
        if word.is_none() && decided(origin) {
            *word = Some(value);
        }
    };
    options.mode.get_or_insert_with(|| files.mode.value.to_string());
    let paths = |words: &mut Vec<OsString>, paths: &[Decided<PathBuf>]| {
        words.extend(paths.iter().map(|it| it.value.clone().into_os_string()));
    };
    if options.workspace.is_none() {
        options.workspace = files.workspace.as_ref().map(|it| it.value.clone().into_os_string());
    }
    paths(&mut options.writable, &files.writable);
    if options.mode.as_deref() != Some(SandboxMode::DangerFullAccess.as_str()) && options.backend.is_none() {
        options.backend = files.backend.as_ref().map(|it| it.value.clone());
    }
    options.require.extend(files.require.iter().map(|it| it.value.to_string()));
    let closing = &mut options.restrictions;
    said(&mut closing.network, files.network.value.to_string(), &files.network.by.origin);
    if let Some(sockets) = files.sockets.value {
        said(&mut closing.sockets, sockets.to_string(), &files.sockets.by.origin);
    }
    said(&mut closing.env, files.variables.value.to_string(), &files.variables.by.origin);
    paths(&mut closing.deny_read, &files.denied_reads);
    paths(&mut closing.allow_read, &files.allowed_reads);
    if !closing.protect.iter().any(|word| word == "none") {
        closing.protect.extend(files.protect.iter().map(|it| OsString::from(&it.value)));
    }
    if !closing.deny_secrets && !closing.allow_secrets {
        closing.deny_secrets = files.deny_secrets.value == Some(true);
        closing.allow_secrets = files.deny_secrets.value == Some(false);
    }
    // A list has a use only beside its rule, which a word may have turned around.
    if closing.sockets.as_deref() != Some("open") {
        paths(&mut closing.allow_socket, &files.allowed_sockets);
    }
    if closing.env.as_deref() == Some("scrub") {
        closing.keep_env.extend(files.kept_variables.iter().map(|it| OsString::from(&it.value)));
    }
    let bound = |word: &mut Option<String>, bound: Option<u64>| {
        if word.is_none() {
            *word = bound.map(|bound| bound.to_string());
        }
    };
    let limits = &mut options.limits;
    bound(&mut limits.max_processes, files.limits.max_processes);
    bound(&mut limits.max_memory, files.limits.max_memory_bytes);
    bound(&mut limits.max_process_memory, files.limits.max_process_memory_bytes);
    bound(&mut limits.max_cpu_seconds, files.limits.max_cpu_seconds);
    bound(&mut limits.max_file_size, files.limits.max_file_bytes);
    bound(&mut limits.max_open_files, files.limits.max_open_files);
    bound(&mut limits.max_temp_size, files.limits.max_temp_bytes);
    options
}

/// The words as a layer, to say who decided. A word that means nothing is refused where it is used.
fn flags(options: &PolicyOptions, around: &Surroundings) -> Layer {
    fn word<T: std::str::FromStr>(word: &Option<String>) -> Option<Stated<T>> {
        word.as_deref().and_then(|word| word.parse().ok()).map(Stated::new)
    }
    let mut layer = Layer::new(Origin::Flags);
    let paths = |words: &[OsString]| {
        let absolute = |word: &OsString| around.absolute("path", Path::new(word)).ok().map(Stated::new);
        words.iter().filter_map(absolute).collect::<Vec<_>>()
    };
    layer.mode = word(&options.mode);
    layer.workspace =
        options.workspace.as_ref().and_then(|dir| around.absolute("", Path::new(dir)).ok()).map(Stated::new);
    layer.writable = Some(paths(&options.writable));
    layer.network = word(&options.restrictions.network);
    layer.sockets = word(&options.restrictions.sockets);
    layer.allowed_sockets = Some(paths(&options.restrictions.allow_socket));
    layer.denied_reads = paths(&options.restrictions.deny_read);
    layer.allowed_reads = Some(paths(&options.restrictions.allow_read));
    layer.variables = word(&options.restrictions.env);
    layer.require = options.require.iter().filter_map(|word| word.parse().ok()).map(Stated::new).collect();
    layer.backend = options.backend.clone().map(Stated::new);
    layer
}
