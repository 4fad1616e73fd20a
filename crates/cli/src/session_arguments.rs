//! The grammar of sessions: `pinfold session`, `pinfold approve`, and the words of `run` that speak of one.

use clap::{Args, Subcommand};
use std::ffi::OsString;

/// One of the tasks of `pinfold session`.
#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Make a session and print its name
    #[command(after_long_help = "Example:\n  pinfold session new --mode workspace-write")]
    New(New),
    /// List the sessions, the oldest first
    #[command(after_long_help = "Example:\n  pinfold session list --json")]
    List(List),
    /// Say what holds in a session: mode, approval policy, grants, open questions
    #[command(after_long_help = "Example:\n  pinfold session show ID")]
    Show(Named),
    /// Set the mode of future calls
    #[command(after_long_help = "Example:\n  pinfold session mode ID read-only")]
    Mode(SetMode),
    /// Set what becomes of requests for more: ask, never or allow-listed
    #[command(after_long_help = "Example:\n  pinfold session approval ID never")]
    Approval(SetApproval),
    /// Select a preset of the configuration: a mode, an approval policy and what goes with them
    #[command(after_long_help = "Example:\n  pinfold session preset ID workspace-write")]
    Preset(SetPreset),
    /// Open a directory for writing, for the rest of the session
    ///
    /// In workspace-write it is one more directory. In read-only it is opened alone: the
    /// workspace stays closed, and the command has a private temp area. It must be an existing
    /// directory, not a symbolic link, when a call is made.
    #[command(verbatim_doc_comment, after_long_help = "Example:\n  pinfold session grant ID ./out --for 3600")]
    Grant(Grant),
    /// Take a grant back; calls that run keep it
    #[command(after_long_help = "Example:\n  pinfold session revoke ID g5")]
    Revoke(Revoke),
    /// Print what happened, one event per line
    #[command(after_long_help = "Example:\n  pinfold session log ID --json")]
    Log(Named),
    /// Print what a model is told of the policy
    ///
    /// With --once only if it was not told the same before.
    #[command(verbatim_doc_comment, after_long_help = "Example:\n  pinfold session tell ID --once")]
    Tell(Tell),
    /// End a session: no call begins after it
    #[command(after_long_help = "Example:\n  pinfold session end ID")]
    End(Named),
}

/// Arguments of `pinfold session new`.
#[derive(Debug, Args)]
pub(crate) struct New {
    /// Working directory, the workspace for good [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<OsString>,
    /// Mode to begin with [default: read-only]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Preset to begin with
    #[arg(long, value_name = "NAME", conflicts_with = "mode")]
    pub(crate) preset: Option<String>,
    /// What becomes of requests: ask, never or allow-listed [default: ask]
    #[arg(long, value_name = "POLICY")]
    pub(crate) approval: Option<String>,
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `pinfold session list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of commands that speak of one session.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The session
    pub(crate) id: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `pinfold session mode`.
#[derive(Debug, Args)]
pub(crate) struct SetMode {
    /// The session
    pub(crate) id: String,
    /// The mode
    pub(crate) mode: String,
}

/// Arguments of `pinfold session approval`.
#[derive(Debug, Args)]
pub(crate) struct SetApproval {
    /// The session
    pub(crate) id: String,
    /// The policy
    pub(crate) policy: String,
}

/// Arguments of `pinfold session preset`.
#[derive(Debug, Args)]
pub(crate) struct SetPreset {
    /// The session
    pub(crate) id: String,
    /// The preset; without one, the current and the available ones are printed
    pub(crate) name: Option<String>,
}

/// Arguments of `pinfold session grant`.
#[derive(Debug, Args)]
pub(crate) struct Grant {
    /// The session
    pub(crate) id: String,
    /// The directory
    pub(crate) directory: OsString,
    /// For so many seconds [default: until it is revoked or the session ends]
    #[arg(long = "for", value_name = "SECONDS")]
    pub(crate) seconds: Option<String>,
}

/// Arguments of `pinfold session revoke`.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// The session
    pub(crate) id: String,
    /// The grant
    pub(crate) grant: String,
}

/// Arguments of `pinfold session tell`.
#[derive(Debug, Args)]
pub(crate) struct Tell {
    /// The session
    pub(crate) id: String,
    /// Print nothing if the same was told before
    #[arg(long)]
    pub(crate) once: bool,
}

/// Arguments of `pinfold approve`.
#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// Only the questions of this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Wait for questions, for so many seconds, until one was answered
    #[arg(long, value_name = "SECONDS")]
    pub(crate) wait: Option<String>,
}

/// What `pinfold run` and `pinfold exec` say of a session.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct SessionOptions {
    /// Run within a session and write the call into its log
    ///
    /// The policy is the session's. The working directory is too, unless another is named. --mode
    /// may only narrow; for more there are --escalate and --ask-write.
    #[arg(verbatim_doc_comment, long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Ask for a wider mode, for this one call
    ///
    /// Somebody must allow it: on this terminal, or elsewhere with `pinfold approve`, or by a
    /// rule of the configuration. Otherwise nothing runs.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "MODE", requires = "session")]
    pub(crate) escalate: Option<String>,
    /// Ask for writing below one directory, for this one call or for the session
    #[arg(long, hide_short_help = true, value_name = "DIR", requires = "session", conflicts_with = "escalate")]
    pub(crate) ask_write: Option<OsString>,
    /// Why more is needed: one sentence for whoever allows it
    #[arg(long, hide_short_help = true, value_name = "TEXT", requires = "session")]
    pub(crate) justification: Option<String>,
}

impl SessionOptions {
    /// Says whether more is asked for.
    pub(crate) fn asks(&self) -> bool {
        self.escalate.is_some() || self.ask_write.is_some()
    }
}
