//! The grammar of `pinfold learn`.

use crate::arguments::PolicyOptions;
use clap::Args;
use std::ffi::OsString;

pub(crate) const MANUAL: &str = "\
Learn which policy a command needs, and print it

Runs the command under the given policy, read-only if no mode is given, observes what is
refused, and prints the narrowest policy that opens it, as a command line of `pinfold run`
on standard output (what the command prints goes to standard error). Nothing is opened
while it learns, unless --within says where.

A command often stops at its first refusal, so more may follow: learn again with what was
printed, or with --within DIR, which runs the command again and again with what was learnt
in DIR so far. Each run is a real one: what it changes in DIR stays changed.

Proposed is the directory of each refused effect, since a policy opens directories. Never
proposed are /, the home directory, directories of the system and our own. Secrets,
protected names, and effects that no directory would allow are listed with the reason.";

pub(crate) const AFTER: &str = "\
Exit status:
  0 when the command ran and there is an answer, whatever it is; 2, 125, 126 and 127 as for
  `pinfold run`; 128+n when pinfold received signal n.

Example:
  pinfold learn -- make";

const MODE: &str = "\
Mode under which it learns [default: read-only]

read-only or workspace-write, as for `pinfold run`. With workspace-write the workspace is
open, and what is learnt lies outside of it.";

/// Arguments of `pinfold learn`.
#[derive(Debug, Args)]
#[command(mut_arg("mode", |arg| arg.help("Mode under which it learns [default: read-only]").long_help(MODE)))]
pub(crate) struct Learn {
    /// What the command may touch while it learns.
    #[command(flatten)]
    pub(crate) policy: PolicyOptions,
    /// Open what is learnt in this directory, and run again
    ///
    /// Only directories in and below DIR that would be proposed are opened, each after it was
    /// refused; nothing else is. DIR must not be / or a directory of the system.
    #[arg(verbatim_doc_comment, long, value_name = "DIR")]
    pub(crate) within: Option<OsString>,
    /// Run at most so often [default: 10 with --within]
    ///
    /// More than 1 needs --within; at most 100. It ends earlier when nothing new is learnt.
    #[arg(verbatim_doc_comment, long, value_name = "N")]
    pub(crate) rounds: Option<String>,
    /// End each run after so many seconds
    ///
    /// Fractions are allowed: 0.5.
    #[arg(verbatim_doc_comment, long, value_name = "SECONDS")]
    pub(crate) timeout: Option<String>,
    /// Print the answer as one line of JSON
    ///
    /// It has the policy and what is closed beside it as objects, each directory with the
    /// refusals that it stands for, and what was not learnt.
    #[arg(verbatim_doc_comment, long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "ARGV")]
    pub(crate) argv: Vec<OsString>,
}
