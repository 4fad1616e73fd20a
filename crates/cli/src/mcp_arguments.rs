//! The grammar of `pinfold mcp`.

use crate::arguments::PolicyOptions;
use clap::Args;
use std::ffi::OsString;

/// Arguments of `pinfold mcp`.
#[derive(Debug, Args)]
#[command(
    mut_arg("mode", |arg| arg.help("Mode of the new session [default: read-only]").long_help(MODE)),
    mut_arg("cwd", |arg| arg.hide(true)),
    mut_arg("protect", |arg| arg.help("Names in writable directories that stay as they are [default: default, where possible]").long_help(PROTECT)),
    mut_arg("env", |arg| arg.help("Environment of commands [default: scrub]").long_help(ENVIRONMENT))
)]
pub(crate) struct Mcp {
    /// What commands may touch.
    #[command(flatten)]
    pub(crate) policy: PolicyOptions,
    /// Serve this session, and leave it open at the end
    ///
    /// Its policy is its own: --mode, --preset, --approval, --workspace and --writable have no place beside it.
    #[arg(verbatim_doc_comment, long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Preset of the new session
    #[arg(long, hide_short_help = true, value_name = "NAME", conflicts_with_all = ["mode", "session"])]
    pub(crate) preset: Option<String>,
    /// Answer to requests for more: ask, never, allow-listed [default: ask]
    #[arg(long, value_name = "POLICY", conflicts_with = "session")]
    pub(crate) approval: Option<String>,
    /// Accept roots of the client in and below this directory
    ///
    /// May be given more than once. Without it no root of a client is accepted. An accepted
    /// root is writable like a --writable directory, where the session's mode is workspace-write.
    /// Never accepted are /, the home directory, directories of the system and our own.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "DIR")]
    pub(crate) roots_below: Vec<OsString>,
    /// Wait for `pinfold approve` where the client cannot ask
    ///
    /// Otherwise what such a client asks for is refused at once.
    #[arg(verbatim_doc_comment, long, hide_short_help = true)]
    pub(crate) wait_for_approval: bool,
    /// Run commands in one shell that keeps directory and variables
    #[arg(long, hide_short_help = true)]
    pub(crate) persistent_shell: bool,
    /// Do not run commands in the background; end those whose time is up
    #[arg(long, hide_short_help = true)]
    pub(crate) no_background: bool,
    /// End commands whose time is up, instead of letting them go on as background jobs
    #[arg(long, hide_short_help = true)]
    pub(crate) end_at_timeout: bool,
    /// Serve HTTP on this port of loopback instead of standard input and output; 0: a free one
    ///
    /// A client has to show the token that is in a file of the session; address and file are
    /// printed on standard error. Has no place beside --roots-below: clients share the session,
    /// and what one of them names would be open to the others.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "PORT", conflicts_with_all = ["print_config", "roots_below"])]
    pub(crate) http: Option<u16>,
    /// Print how a client is set up with these options, and exit
    ///
    /// claude-code, claude-desktop, codex, vscode, cursor, gemini or opencode.
    #[arg(verbatim_doc_comment, long, value_name = "CLIENT")]
    pub(crate) print_config: Option<String>,
}

const MODE: &str = "\
Mode of the new session [default: read-only]

read-only: no file but sinks such as /dev/null. workspace-write: also the workspace, every
--writable directory and a temp area of its own. danger-full-access: nothing is confined.
A configuration file may name another default (docs/configuration.md).";

const PROTECT: &str = "\
Names in writable directories that stay as they are [default: default, where possible]

default: what tools outside obey: .git and in it hooks and configuration; settings of
agents, editors and shells. PATTERN: a path or pattern. none: nothing. May be given more
than once.";

const ENVIRONMENT: &str = "\
Environment of commands [default: scrub]

scrub: without variables that are named like credentials (GH_TOKEN, AWS_SECRET_ACCESS_KEY,
SSH_AUTH_SOCK and so on) or whose value looks like one. inherit: the server's.";
