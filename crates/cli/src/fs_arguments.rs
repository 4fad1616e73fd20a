//! The grammar of `pinfold fs`, and its manual.

use crate::arguments::RestrictionOptions;
use clap::{Args, Subcommand};
use std::ffi::OsString;

/// Arguments of `pinfold fs`.
#[derive(Debug, Args)]
pub(crate) struct Fs {
    /// What is done.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// One operation on files.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Print a file, or lines of it
    ///
    /// Every byte is printed as it is, or those of a part. With --offset or --limit, lines are
    /// printed with their numbers, and the file must be UTF-8 text.
    #[command(verbatim_doc_comment, after_long_help = "Example:\n  pinfold fs read --offset 1 --limit 20 Cargo.toml")]
    Read(Read),
    /// Write a file whole, from standard input
    ///
    /// The content replaces the old one at once: a reader sees either, also after a crash.
    /// Missing directories are made. Prints the new version, which --if-version takes.
    #[command(
        verbatim_doc_comment,
        after_long_help = "Example:\n  echo text | pinfold fs write --if-absent notes/new.txt"
    )]
    Write(Write),
    /// Replace literal text in a file
    ///
    /// The text must stand in the file exactly once, unless --all is given. CRLF and LF count as
    /// one; every byte outside of the change stays. Prints the unified diff.
    #[command(
        verbatim_doc_comment,
        after_long_help = "Example:\n  pinfold fs edit --old 'foo(1)' --new 'foo(2)' src/main.rs"
    )]
    Edit(Edit),
    /// List a directory
    ///
    /// Names are sorted by their bytes; / stands behind directories, @ behind links.
    #[command(verbatim_doc_comment, after_long_help = "Example:\n  pinfold fs ls --long src")]
    Ls(Ls),
    /// Say what is at a path
    #[command(after_long_help = "Example:\n  pinfold fs stat --json Cargo.toml")]
    Stat(Stat),
    /// Remove a file, a link or an empty directory
    #[command(after_long_help = "Example:\n  pinfold fs rm --recursive target/old")]
    Rm(Rm),
    /// Move a file, link or directory
    ///
    /// Nothing is replaced unless --force is given. Within one file system only.
    #[command(verbatim_doc_comment, after_long_help = "Example:\n  pinfold fs mv draft.md docs/final.md")]
    Mv(TwoPaths),
    /// Copy a regular file, or a directory with everything in it
    ///
    /// Nothing is replaced unless --force is given. Links in a directory are copied as links; what
    /// is denied, and what is no file, is left out and named, and the exit status is 1 then.
    #[command(verbatim_doc_comment, after_long_help = "Example:\n  pinfold fs cp --recursive templates/new docs")]
    Cp(Cp),
    /// Change the permission bits of a file or directory
    ///
    /// MODE is octal, at most 777, or +x (whoever may read may execute), or -x. A file with other
    /// names is refused: they may lie outside.
    #[command(verbatim_doc_comment, after_long_help = "Example:\n  pinfold fs chmod +x scripts/build.sh")]
    Chmod(Chmod),
    /// Make an empty file, or set the times of what is there to now
    #[command(after_long_help = "Example:\n  pinfold fs touch notes/new.txt")]
    Touch(NamedPath),
    /// Make a directory
    #[command(after_long_help = "Example:\n  pinfold fs mkdir --parents docs/decisions")]
    Mkdir(Mkdir),
    /// Print lines that match a regular expression
    ///
    /// Looks into the text files below PATH, or into PATH. Hidden files and what .gitignore
    /// leaves out are passed over. Exits with 1 and says nothing if no line matches.
    #[command(verbatim_doc_comment, after_long_help = "Example:\n  pinfold fs grep 'fn main' src")]
    Grep(Grep),
    /// Print paths that match a pattern
    ///
    /// The pattern is relative to the directory: * and ? stay within a name, ** is any number of
    /// directories. Exits with 1 and says nothing if no path matches.
    #[command(verbatim_doc_comment, after_long_help = "Example:\n  pinfold fs glob '**/*.rs' crates")]
    Glob(Glob),
}

/// The policy of one operation.
#[derive(Debug, Default, Args)]
pub(crate) struct FencePolicy {
    /// How much may be written [default: workspace-write]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Workspace directory [default: the current one]
    ///
    /// Relative paths start from it.
    #[arg(verbatim_doc_comment, long, value_name = "DIR")]
    pub(crate) workspace: Option<OsString>,
    /// Further directory that workspace-write opens
    #[arg(long, value_name = "DIR")]
    pub(crate) writable: Vec<OsString>,
    /// Path or pattern that is neither read nor changed
    #[arg(long, value_name = "PATTERN")]
    pub(crate) deny_read: Vec<OsString>,
    /// Leave keys and credentials in the home directory readable
    #[arg(long)]
    pub(crate) allow_secrets: bool,
    /// Secret that stays readable
    #[arg(long, value_name = "PATH")]
    pub(crate) allow_read: Vec<OsString>,
    /// Name that may not be changed although it lies in the workspace
    ///
    /// As for `pinfold run`: default, none, or a pattern.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "PATTERN")]
    pub(crate) protect: Vec<OsString>,
    /// Work in a session: under its mode, in its directory, with what is granted there
    ///
    /// Its temp area is /tmp here, as it is for the session's commands; without a session no temp
    /// area can be written, because each command has one of its own. --mode may only narrow.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Use the rules of this backend [default: the one that `run` would use]
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl FencePolicy {
    /// What is closed, as for a command.
    pub(crate) fn restrictions(&self) -> RestrictionOptions {
        RestrictionOptions {
            deny_read: self.deny_read.clone(),
            allow_secrets: self.allow_secrets,
            allow_read: self.allow_read.clone(),
            protect: self.protect.clone(),
            ..RestrictionOptions::default()
        }
    }
}

/// Arguments of `pinfold fs read`.
#[derive(Debug, Args)]
pub(crate) struct Read {
    /// The file
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
    /// First line, from 1
    #[arg(long, value_name = "N")]
    pub(crate) offset: Option<u64>,
    /// Most lines [default: 2000]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// First byte, from 0
    #[arg(long, value_name = "N", conflicts_with_all = ["offset", "limit"])]
    pub(crate) byte_offset: Option<u64>,
    /// Most bytes
    #[arg(long, value_name = "N", conflicts_with_all = ["offset", "limit"])]
    pub(crate) byte_limit: Option<u64>,
    /// Refuse a larger file [default: no bound; with --json 67108864]
    #[arg(long, value_name = "N")]
    pub(crate) max_bytes: Option<u64>,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// Arguments of `pinfold fs write`.
#[derive(Debug, Args)]
pub(crate) struct Write {
    /// The file
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
    /// Content, instead of standard input
    #[arg(long, value_name = "TEXT")]
    pub(crate) content: Option<OsString>,
    /// Only if nothing is there
    #[arg(long, conflicts_with = "if_version")]
    pub(crate) if_absent: bool,
    /// Only if the file is in this state, as `stat` and `write` print it
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<String>,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// Arguments of `pinfold fs edit`.
#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// The file
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
    /// Text to replace, literally
    #[arg(long, value_name = "TEXT")]
    pub(crate) old: String,
    /// Text to put there
    #[arg(long, value_name = "TEXT")]
    pub(crate) new: String,
    /// Replace every place
    #[arg(long)]
    pub(crate) all: bool,
    /// Only if the file is in this state
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<String>,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// Arguments of `pinfold fs ls`.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// The directory [default: the workspace]
    #[arg(value_name = "PATH", default_value = ".", hide_default_value = true)]
    pub(crate) path: OsString,
    /// Print mode, names, size and time of change as well
    #[arg(long, short)]
    pub(crate) long: bool,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// Arguments of `pinfold fs chmod`.
#[derive(Debug, Args)]
pub(crate) struct Chmod {
    /// The permission bits
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    pub(crate) bits: String,
    /// The file or directory
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// Arguments of an operation on one path.
#[derive(Debug, Args)]
pub(crate) struct NamedPath {
    /// The path
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// Arguments of `pinfold fs stat`.
#[derive(Debug, Args)]
pub(crate) struct Stat {
    /// The path
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
    /// Look at a link itself
    #[arg(long)]
    pub(crate) no_follow: bool,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// Arguments of `pinfold fs rm`.
#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// The path
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
    /// Remove a directory with everything in it
    #[arg(long, short)]
    pub(crate) recursive: bool,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// Arguments of `pinfold fs cp`.
#[derive(Debug, Args)]
pub(crate) struct Cp {
    /// What is copied, where to, and the policy.
    #[command(flatten)]
    pub(crate) paths: TwoPaths,
    /// Copy a directory with what is in it; with --force into one that exists
    #[arg(long, short)]
    pub(crate) recursive: bool,
}

/// Arguments of `pinfold fs mv`, and most of those of `pinfold fs cp`.
#[derive(Debug, Args)]
pub(crate) struct TwoPaths {
    /// What is there
    #[arg(value_name = "FROM")]
    pub(crate) from: OsString,
    /// Where it comes to be: the new name, not the directory for it
    #[arg(value_name = "TO")]
    pub(crate) to: OsString,
    /// Replace a file at TO
    #[arg(long, short)]
    pub(crate) force: bool,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// Arguments of `pinfold fs mkdir`.
#[derive(Debug, Args)]
pub(crate) struct Mkdir {
    /// The directory
    #[arg(value_name = "PATH")]
    pub(crate) path: OsString,
    /// Make those above it, too; one that exists is fine
    #[arg(long, short)]
    pub(crate) parents: bool,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// What a search looks at.
#[derive(Debug, Default, Args)]
pub(crate) struct SearchArguments {
    /// Look at names with a leading dot
    #[arg(long)]
    pub(crate) hidden: bool,
    /// Look at what .gitignore and .ignore leave out
    #[arg(long)]
    pub(crate) no_ignore: bool,
    /// Most results [default: 1000]
    #[arg(long, value_name = "N")]
    pub(crate) max_results: Option<usize>,
}

/// Arguments of `pinfold fs grep`.
#[derive(Debug, Args)]
pub(crate) struct Grep {
    /// The regular expression
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: String,
    /// Directory or file [default: the workspace]
    #[arg(value_name = "PATH", default_value = ".", hide_default_value = true)]
    pub(crate) path: OsString,
    /// The pattern is literal text
    #[arg(long)]
    pub(crate) literal: bool,
    /// Upper and lower case are one
    #[arg(long)]
    pub(crate) ignore_case: bool,
    /// Only files whose paths match, such as '**/*.rs'
    #[arg(long, value_name = "PATTERN")]
    pub(crate) files: Option<String>,
    /// What is looked at.
    #[command(flatten)]
    pub(crate) search: SearchArguments,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}

/// Arguments of `pinfold fs glob`.
#[derive(Debug, Args)]
pub(crate) struct Glob {
    /// The pattern
    #[arg(value_name = "PATTERN")]
    pub(crate) pattern: String,
    /// Directory [default: the workspace]
    #[arg(value_name = "PATH", default_value = ".", hide_default_value = true)]
    pub(crate) path: OsString,
    /// What is looked at.
    #[command(flatten)]
    pub(crate) search: SearchArguments,
    /// The policy.
    #[command(flatten)]
    pub(crate) policy: FencePolicy,
}
