//! What one source says, key by key, and on which line.

use pinfold_policy::escalation::ApprovalPolicy;
use pinfold_policy::quote::quote_if_needed;
use pinfold_policy::{Guarantee, Limits, Network, SandboxMode, Sockets, Variables};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Names who decided a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody: the value is built in.
    BuiltIn,
    /// The user's configuration file.
    User(PathBuf),
    /// The project's file in the workspace.
    Project(PathBuf),
    /// The project's file as it was when the session began.
    ProjectAtStart(PathBuf),
    /// The command line, or the program that holds the session.
    Flags,
    /// A preset of the permission table.
    Preset(String),
}

impl Origin {
    /// Says whether the source lies where confined commands may write, so that it may only tighten.
    pub fn only_tightens(&self) -> bool {
        matches!(self, Self::Project(_) | Self::ProjectAtStart(_))
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::User(path) | Self::Project(path) => f.write_str(&quote_if_needed(path)),
            Self::ProjectAtStart(path) => write!(f, "{} (as the session began)", quote_if_needed(path)),
            Self::Flags => f.write_str("command line"),
            Self::Preset(name) => write!(f, "preset {name}"),
        }
    }
}

/// Names who decided a key, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Who.
    pub origin: Origin,
    /// On which line, counted from 1, for files.
    pub line: Option<usize>,
}

impl Source {
    /// A source without lines.
    pub fn whole(origin: Origin) -> Self {
        Self { origin, line: None }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.origin),
            None => self.origin.fmt(f),
        }
    }
}

/// A value with the line it stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stated<T> {
    /// The value.
    pub value: T,
    /// The line, counted from 1, for files.
    pub line: Option<usize>,
}

impl<T> Stated<T> {
    /// A value of a source without lines.
    pub fn new(value: T) -> Self {
        Self { value, line: None }
    }
}

/// Says what a rule allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleScope {
    /// This mode, once per call.
    Mode(SandboxMode),
    /// Writing below this directory, once per call.
    Write(PathBuf),
}

/// A rule that answers in place of a person, where the approval policy is `allow-listed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowRule {
    /// The words of the command, from the first; compared as they are.
    pub command: Vec<String>,
    /// Whether further words may follow.
    pub more_arguments: bool,
    /// What is allowed.
    pub scope: RuleScope,
}

impl AllowRule {
    /// Says whether the rule speaks of this command. A shell line that contains the command is another command.
    pub fn fits(&self, argv: &[OsString]) -> bool {
        let count = self.command.len();
        (argv.len() == count || self.more_arguments && argv.len() > count)
            && self.command.iter().zip(argv).all(|(word, argument)| argument == word.as_str())
    }
}

/// A row of the table of permission presets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresetDefinition {
    /// The name that selects it.
    pub name: String,
    /// What a person sees.
    pub label: String,
    /// One sentence.
    pub description: String,
    /// The mode it sets.
    pub mode: SandboxMode,
    /// The approval policy it sets.
    pub approval: ApprovalPolicy,
    /// Directories it opens beside the workspace.
    pub writable: Vec<PathBuf>,
    /// The network it leaves, if it closes more than the configuration.
    pub network: Option<Network>,
    /// Paths it closes for reading.
    pub denied_reads: Vec<PathBuf>,
    /// Names that it keeps as they are: `default`, or absolute patterns.
    pub protect: Vec<String>,
    /// The environment it leaves, if it closes more than the configuration.
    pub variables: Option<Variables>,
}

/// Holds what one source says; what it does not speak of stays as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Who speaks.
    pub origin: Origin,
    /// How much may be written.
    pub mode: Option<Stated<SandboxMode>>,
    /// The workspace of calls that belong to no session.
    pub workspace: Option<Stated<PathBuf>>,
    /// Further writable directories.
    pub writable: Option<Vec<Stated<PathBuf>>>,
    /// The network.
    pub network: Option<Stated<Network>>,
    /// Sockets by path.
    pub sockets: Option<Stated<Sockets>>,
    /// Sockets that stay reachable.
    pub allowed_sockets: Option<Vec<Stated<PathBuf>>>,
    /// Paths and patterns that cannot be read, as absolute patterns.
    pub denied_reads: Vec<Stated<PathBuf>>,
    /// Names in writable directories that stay as they are: `default`, or absolute patterns.
    pub protect: Vec<Stated<String>>,
    /// Secrets of the list that stay readable.
    pub allowed_reads: Option<Vec<Stated<PathBuf>>>,
    /// Whether the listed secrets in the home directory cannot be read.
    pub deny_secrets: Option<Stated<bool>>,
    /// The environment.
    pub variables: Option<Stated<Variables>>,
    /// Variables that stay.
    pub kept_variables: Option<Vec<Stated<String>>>,
    /// Promises without which nothing runs.
    pub require: Vec<Stated<Guarantee>>,
    /// The mechanism.
    pub backend: Option<Stated<String>>,
    /// How long a command may take.
    pub timeout: Option<Stated<Duration>>,
    /// What becomes of requests.
    pub approval: Option<Stated<ApprovalPolicy>>,
    /// How long an answer is waited for.
    pub approval_timeout: Option<Stated<Duration>>,
    /// Rules that answer in place of a person.
    pub rules: Option<Vec<Stated<AllowRule>>>,
    /// What a call may use up; a bound that is not stated is none.
    pub limits: Limits,
    /// On which line `limits` begins.
    pub limits_line: Option<usize>,
    /// Rows of the table of presets, by name.
    pub presets: BTreeMap<String, Stated<PresetDefinition>>,
    /// The preset of new sessions.
    pub default_preset: Option<Stated<String>>,
}

impl Layer {
    /// A source that says nothing.
    pub fn new(origin: Origin) -> Self {
        Self {
            origin,
            mode: None,
            workspace: None,
            writable: None,
            network: None,
            sockets: None,
            allowed_sockets: None,
            denied_reads: Vec::new(),
            protect: Vec::new(),
            allowed_reads: None,
            deny_secrets: None,
            variables: None,
            kept_variables: None,
            require: Vec::new(),
            backend: None,
            timeout: None,
            approval: None,
            approval_timeout: None,
            rules: None,
            limits: Limits::default(),
            limits_line: None,
            presets: BTreeMap::new(),
            default_preset: None,
        }
    }

    pub(super) fn source(&self, line: Option<usize>) -> Source {
        Source { origin: self.origin.clone(), line }
    }
}
