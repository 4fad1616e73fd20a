//! The grammar of the command line. Reading it changes nothing and looks at nothing: words are checked in
//! [`crate::request`], files by whoever uses them. The help texts here are the manual; `docs/cli.md` is made
//! from them.

use crate::fs_arguments::Fs;
use crate::learn_arguments::{self, Learn};
pub(crate) use crate::mcp_arguments::Mcp;
pub(crate) use crate::session_arguments::{Approve, Session, SessionOptions};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;

const EXIT_STATUS: &str = "\
Exit status:
  The command's own; 128+n when signal n ended it, or when pinfold received signal n.
  2     the arguments are wrong: nothing was prepared, nothing ran
  124   --timeout passed
  125   pinfold could not start the command
  126   the command was found but cannot be executed
  127   the command was not found
A command may exit with any of these itself. The outcome (--json, --report) tells them apart.";

const EXEC_EXIT_STATUS: &str = "\
Exit status:
  The command's own; 128+n when signal n ended it, or when pinfold received signal n.
  2     the arguments are wrong: nothing was prepared, nothing ran
  124   --timeout-ms, or the limit that holds without it, passed
  125   pinfold could not start the command
  126   the shell found the command but cannot execute it
  127   the shell did not find the command
A command may exit with any of these itself. The result (--json) tells them apart.";

/// Run one command under a file policy and tell the truth about it
///
/// Pinfold starts a command so that it can write only where the policy allows, and then
/// says what was enforced, what was refused and how that is known. A command that should
/// be confined is confined or does not run.
#[derive(Debug, Parser)]
#[command(
    verbatim_doc_comment,
    name = "pinfold",
    version,
    propagate_version = false,
    disable_help_subcommand = true,
    after_long_help = "Example:\n  pinfold run --mode read-only -- ls -l"
)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// One of the tasks of `pinfold`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command under a file policy
    ///
    /// Standard input and output belong to the command: input is inherited, so pipes work,
    /// and output is not touched. Whatever pinfold has to say goes to standard error, in
    /// lines that begin with `pinfold: `.
    ///
    /// Standard error is copied through as it comes, and read on the way: that is how a
    /// refusal becomes known where the kernel does not report it. A terminal is handed to the
    /// command untouched and not read. So is a file or pipe that standard output leads to as
    /// well (2>&1), because a copy would change the order of the two; with --json or --report
    /// it is copied all the same. The outcome says when nothing was read.
    ///
    /// A command that waits for input nobody sends waits for ever, as it would without
    /// pinfold. Give it </dev/null, or a --timeout.
    ///
    /// Interrupt, terminate and hang-up end the command and everything it started. Interrupt
    /// and hang-up are passed on first; two seconds later, or at a second signal, the command
    /// is told to terminate, and two seconds after that it is killed. Signals that were
    /// ignored when pinfold started (nohup) stay ignored. The command has no controlling
    /// terminal, so job control does not reach it.
    #[command(verbatim_doc_comment, override_usage = "pinfold run [OPTIONS] -- ARGV...", after_long_help = format!("{EXIT_STATUS}\n\nExample:\n  pinfold run --mode read-only -- ls -l"))]
    Run(Run),
    /// Run a shell command as an agent does, and print what a model reads
    ///
    /// COMMAND is one string for `bash -c`. It reads nothing, unless --stdin is given; its output
    /// is collected and printed on standard output at its end, followed by lines that say
    /// what is to be said: a refusal, a passed time limit, a signal, an exit status other than 0.
    /// Of a long stream the end is printed. With --json all of it is one line of JSON on
    /// standard output, in which the command's words cannot be taken for facts.
    ///
    /// The environment says NO_COLOR=1, TERM=dumb, PAGER=cat, GIT_PAGER=cat and PINFOLD_SHELL=1, and
    /// unlike `run` it is without variables that hold credentials, unless --env inherit is
    /// given. The time limit is 120 s if none is given, and never more than 600 s. Interrupt,
    /// terminate and hang-up end the command and everything it started.
    #[command(verbatim_doc_comment, override_usage = "pinfold exec [OPTIONS] -- COMMAND", after_long_help = format!("{EXEC_EXIT_STATUS}\n\nExample:\n  pinfold exec --mode read-only -- 'ls | wc -l'"))]
    Exec(Box<Exec>),
    /// Print the argv that runs a command confined
    ///
    /// Prints one line of JSON on standard output: {argv, enforcement, denialSignatures,
    /// runnerFailureRules}. Start that argv in place of your own, from any language. An
    /// argument that is not UTF-8 has no JSON form and is an error.
    ///
    /// The argv is for one start, soon, on this host: its plan is a file of ours that is
    /// removed after a day. Roots are pinned as they are now; if one is replaced before the
    /// start, the launcher refuses to run. Without --cwd the command runs where it is
    /// started.
    #[command(
        verbatim_doc_comment,
        override_usage = "pinfold confine [OPTIONS] -- ARGV...",
        after_long_help = "\
Exit status:
  0 when the object was printed; 2 and 125 as for `pinfold run`. The argv itself exits with
  the command's own status, 125, 126 or 127, or ends by the signal that ended the command.

Example:
  pinfold confine --json --mode read-only -- ls -l"
    )]
    Confine(Confine),
    /// Say what this host can enforce, what is missing, and what to do
    ///
    /// Tries every backend with a real refused and a real allowed write. Nothing is left
    /// behind.
    #[command(
        verbatim_doc_comment,
        after_long_help = "\
Exit status:
  0 when every confined mode that was asked about has a usable backend; 1 when one has none.

Example:
  pinfold doctor --mode workspace-write"
    )]
    Doctor(Doctor),
    /// Say whether an operation on a path would be allowed
    ///
    /// With a PATH, answers for that path. Without one, says what the mode means on this
    /// host. Nothing is written. Where an answer depends on something that a look cannot
    /// settle, the answer says so.
    #[command(
        verbatim_doc_comment,
        after_long_help = "\
Exit status:
  0 when there is an answer, whatever it is; 2 and 125 as for `pinfold run`.

Example:
  pinfold explain /etc/hosts --operation write --mode read-only"
    )]
    Explain(Explain),
    /// Read and change files under the same policy, in this process
    ///
    /// Nothing is started: pinfold does the operation itself, and refuses what a command under
    /// the same options could not do. Standard output is the answer, as data; with --json it is
    /// one line of JSON. Directories, links and files that somebody swaps meanwhile change
    /// nothing about where a change happens.
    ///
    /// Relative paths start from the workspace. A link is followed where it stays inside; what
    /// leaves is refused, and the refusal names where it leads.
    #[command(
        verbatim_doc_comment,
        after_long_help = "\
Exit status:
  0     done
  1     not done: nothing is there, it is of another kind, the host refuses it; or nothing
        was found by grep and glob
  2     the arguments are wrong
  3     the policy refuses it (FS_SANDBOX_DENIED)
  4     a condition does not hold: another version, not read before, no or more than one place
  125   standard input or output failed

Example:
  pinfold fs grep TODO src"
    )]
    Fs(Fs),
    /// Keep sessions: their mode, their grants, and a log of what ran
    ///
    /// A session belongs to a working directory for good. It begins with the mode of the
    /// configuration (read-only, unless a file says otherwise), and whatever is changed,
    /// asked, granted or run is an event in its log, in $XDG_STATE_HOME/pinfold or
    /// ~/.local/state/pinfold. No confined command can write there. None can read there either,
    /// unless Landlock alone confines it, or it belongs to no session and has --allow-secrets.
    #[command(
        verbatim_doc_comment,
        subcommand,
        disable_help_subcommand = true,
        after_long_help = "Example:\n  pinfold session new --mode workspace-write"
    )]
    Session(Session),
    /// Answer the questions of sessions, on this terminal
    ///
    /// Shows each open question with the command that would run, and waits for a number or n.
    /// Text that was chosen by somebody else stands quoted behind a bar. Nothing is read from
    /// standard input.
    #[command(
        verbatim_doc_comment,
        after_long_help = "\
Exit status:
  0 when nothing is left open; 1 when a question is; 2 and 125 as for `pinfold run`.

Example:
  pinfold approve --wait 60"
    )]
    Approve(Approve),
    /// Serve a session to an agent over the Model Context Protocol
    ///
    /// Speaks the protocol on standard input and output, for clients that start it: a shell with
    /// background jobs, tools for files, and as resources the policy, the latest report and the
    /// log. Everything is done under the session's policy; more is asked of the person at the
    /// client, or of `pinfold approve --session ID` in another terminal, whoever answers first.
    ///
    /// Without --session a session is made, in the workspace, and ends with the server.
    /// docs/mcp.md shows how usual clients are set up.
    #[command(
        verbatim_doc_comment,
        after_long_help = "\
Exit status:
  0     the client has closed its end
  2     the arguments are wrong: nothing was served
  125   pinfold cannot serve
  128+n signal n ended the server

Example:
  pinfold mcp --print-config claude-code"
    )]
    Mcp(Box<Mcp>),
    /// Learn which policy a command needs, and print it
    #[command(long_about = learn_arguments::MANUAL, override_usage = "pinfold learn [OPTIONS] -- ARGV...", after_long_help = learn_arguments::AFTER)]
    Learn(Box<Learn>),
    /// Print the version
    #[command(after_long_help = "Example:\n  pinfold version --json")]
    Version(Version),
    /// Print docs/cli.md
    #[command(hide = true)]
    Manual,
}

/// What the command may touch; shared by `run` and `confine`.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct PolicyOptions {
    /// How much may be written [default: workspace-write]
    ///
    /// read-only: no file but sinks such as /dev/null. workspace-write: also the workspace,
    /// every --writable directory and a temp area of its own. danger-full-access: nothing is
    /// confined; not for `confine`. Reading and the network stay open in every mode unless
    /// other options close them. A configuration file may name another default (docs/configuration.md),
    /// and a session has its own.
    #[arg(verbatim_doc_comment, long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Workspace directory [default: the current one]
    ///
    /// May be relative. The current directory is refused as a default if it is /, a directory
    /// of the system, the home directory or one that holds it, or holds pinfold itself.
    /// Naming the home directory here is allowed if configuration and sessions lie elsewhere
    /// (XDG_CONFIG_HOME, XDG_STATE_HOME).
    #[arg(verbatim_doc_comment, long, value_name = "DIR")]
    pub(crate) workspace: Option<OsString>,
    /// Further directory that workspace-write opens
    ///
    /// May be given more than once. Must be an existing directory, not a symbolic link. A
    /// name that begins with a dash is written --writable=-name.
    #[arg(verbatim_doc_comment, long, value_name = "DIR")]
    pub(crate) writable: Vec<OsString>,
    /// Use this backend and no other
    ///
    /// linux_namespace, linux_bwrap or linux_landlock; `linux_` may be left out. Without it, the
    /// strongest usable one is taken; `pinfold doctor` lists them.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Refuse to run unless this guarantee is enforced
    ///
    /// May be given more than once. `pinfold doctor` lists the guarantees and which are
    /// enforced here.
    #[arg(verbatim_doc_comment, long, value_name = "GUARANTEE")]
    pub(crate) require: Vec<String>,
    /// Working directory of the command [default: the current one]
    ///
    /// Opens nothing for writing: only --workspace and --writable do.
    #[arg(verbatim_doc_comment, long, value_name = "DIR")]
    pub(crate) cwd: Option<OsString>,
    /// What is closed beyond the mode.
    #[command(flatten)]
    pub(crate) restrictions: RestrictionOptions,
    /// What it may use up.
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
}

/// What the command may use up; shared by `run` and `confine`.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct LimitOptions {
    /// Processes and threads of the whole call [default: many]
    ///
    /// The default is half of what the host can have, at most 16384. It holds where the
    /// backend can hold it, and the report says where it cannot. A number that is given here
    /// holds, or nothing runs. none: no bound of ours.
    #[arg(verbatim_doc_comment, long, value_name = "N")]
    pub(crate) max_processes: Option<String>,
    /// Memory of the whole call, without swap
    ///
    /// A size is a whole number of bytes, or of KiB, MiB, GiB or TiB: 2GiB. Files in the
    /// private temp area count. Needs a control group of the call's own.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "SIZE")]
    pub(crate) max_memory: Option<String>,
    /// Private writable memory of each process
    ///
    /// Address space that is only reserved does not count. For programs that a bound on the
    /// address space would break: Java, Node, Go.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "SIZE")]
    pub(crate) max_process_memory: Option<String>,
    /// Processor time of each process
    ///
    /// The process receives SIGXCPU then, and is killed a second later.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "SECONDS")]
    pub(crate) max_cpu_seconds: Option<String>,
    /// Size of each file that the command writes
    ///
    /// Not of a file that standard output or error is redirected to.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "SIZE")]
    pub(crate) max_file_size: Option<String>,
    /// Open files of each process, 8 or more
    #[arg(long, hide_short_help = true, value_name = "N")]
    pub(crate) max_open_files: Option<String>,
    /// Size of each private temp file system: /tmp, /var/tmp and /dev/shm
    #[arg(long, hide_short_help = true, value_name = "SIZE")]
    pub(crate) max_temp_size: Option<String>,
}

/// What is closed beyond the mode; shared by `run`, `confine` and `explain`.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct RestrictionOptions {
    /// Network of the command [default: open]
    ///
    /// open: the host's. private: one of its own with a loopback device, so that test servers
    /// can be run and nobody else's be reached. off: no sockets but unix ones. A backend that
    /// cannot do it is not used.
    #[arg(verbatim_doc_comment, long, value_name = "NETWORK")]
    pub(crate) network: Option<String>,
    /// Names in writable directories that stay as they are [default: none]
    ///
    /// default: what tools outside obey: .git and in it hooks and configuration; settings of
    /// agents, editors and shells. Git still commits, branches, merges and rebases; it makes
    /// no repository, clone or worktree in a writable directory, and writes no configuration.
    /// PATTERN: a path or pattern, as for --deny-read, present or absent, with what lies
    /// below. none: nothing. May be given more than once. Not with the backend bwrap.
    #[arg(verbatim_doc_comment, long, value_name = "default|none|PATTERN", hide_short_help = true)]
    pub(crate) protect: Vec<OsString>,
    /// Path or pattern that the command cannot read
    ///
    /// May be given more than once; a directory stands for everything below it. Where it
    /// leads through links, what it leads to is closed. A directory closes better than a file:
    /// a file that somebody replaces while the command runs can be read again.
    /// A pattern has * ? [...] {a,b} within a name and ** for any directories, such as
    /// '**/*.pem'; it closes what it matches when the command starts. ~/ is the home directory.
    #[arg(verbatim_doc_comment, long, value_name = "PATTERN")]
    pub(crate) deny_read: Vec<OsString>,
    /// Insist on closing keys and credentials in the home directory
    ///
    /// They are closed by default where the backend can: those of a list that exist, such as
    /// .ssh (but for config, known_hosts and public keys), .gnupg, .aws, .netrc, browser
    /// profiles and credentials of other agents. With this option nothing runs where they
    /// cannot be closed. `pinfold explain` shows them.
    #[arg(verbatim_doc_comment, long, hide_short_help = true)]
    pub(crate) deny_secrets: bool,
    /// Leave keys and credentials in the home directory readable
    #[arg(long)]
    pub(crate) allow_secrets: bool,
    /// Secret that stays readable
    ///
    /// May be given more than once: one of the list, such as ~/.git-credentials, or a path in
    /// a denied directory. Opens nothing that would not be readable without pinfold.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "PATH")]
    pub(crate) allow_read: Vec<OsString>,
    /// Unix sockets of processes outside [default: closed where possible]
    ///
    /// closed: docker, the session bus, ssh and gpg agents, tmux, editors and every other
    /// socket that is found cannot be reached by its path. Sockets of the command's own, in
    /// the workspace or $TMPDIR, work. Without this option the sockets of name services stay
    /// reachable, and all of them do, with a note in the report, if only a backend is usable
    /// that cannot close them. With --protect also those that nobody finds are closed, and
    /// unix datagram sockets cannot be made. open: whatever the file permissions allow.
    #[arg(verbatim_doc_comment, long, value_name = "RULE")]
    pub(crate) sockets: Option<String>,
    /// Socket that stays reachable, by path or name
    ///
    /// May be given more than once. Names: ssh-agent, gpg-agent, docker, podman, session-bus,
    /// system-bus, wayland, x11, tmux, editor. To push by ssh: --allow-socket ssh-agent.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "PATH")]
    pub(crate) allow_socket: Vec<OsString>,
    /// Environment of the command [default: inherit]
    ///
    /// inherit: the caller's. scrub: without variables that are named like credentials
    /// (GH_TOKEN, AWS_SECRET_ACCESS_KEY, SSH_AUTH_SOCK and so on); `run` also removes those whose
    /// value looks like one. The report names what was removed.
    #[arg(verbatim_doc_comment, long, value_name = "RULE")]
    pub(crate) env: Option<String>,
    /// Variable that stays although the environment is scrubbed
    ///
    /// May be given more than once. Only for `run` if the variable would have been removed.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "NAME")]
    pub(crate) keep_env: Vec<OsString>,
}

/// Whether files that tools outside obey are compared; shared by `run` and `exec`.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct HostFileOptions {
    /// Files that tools outside execute or obey [default: report]
    ///
    /// report: writable directories are looked through before and after the command, and the
    /// outcome lists which of these files it created, changed or removed: hooks and
    /// configuration of git, settings of editors and agents, start files of shells, build
    /// files, virtual environments, continuous integration, programs where PATH may lead,
    /// set-id files. A line says so. What was changed and changed back is not seen. skip:
    /// nothing is looked at.
    #[arg(verbatim_doc_comment, long, hide_short_help = true, value_name = "RULE")]
    pub(crate) host_files: Option<String>,
}

/// Arguments of `pinfold run`.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// What the command may touch.
    #[command(flatten)]
    pub(crate) policy: PolicyOptions,
    /// What it is run for.
    #[command(flatten)]
    pub(crate) session: SessionOptions,
    /// What is compared.
    #[command(flatten)]
    pub(crate) host: HostFileOptions,
    /// Ask about each protected name that the command would change, while it waits
    ///
    /// Needs --protect. Who is asked sees the call, the path and the process, on this terminal
    /// or, with --session, elsewhere with `pinfold approve`; yes permits exactly this one
    /// effect. The command has no terminal where the question is put: its output waits while the
    /// question stands. Without an answer in time (approval.timeout of the configuration), and where
    /// nobody can be asked, it is refused as ever. Never asked is about Pinfold's own files and
    /// settings, about what is denied for reading, and about what mounts or Landlock refuse.
    #[arg(verbatim_doc_comment, long, hide_short_help = true)]
    pub(crate) ask: bool,
    /// Tell of every refused change, also of a command that hides it
    ///
    /// Calls that would change something are performed by the broker, which tells what the walls
    /// refuse: operation, path, error and process, in the outcome and at the end, whatever the
    /// command says and however it exits. It opens nothing. Plain reads are not touched. Not with
    /// the backend bwrap.
    #[arg(verbatim_doc_comment, long, hide_short_help = true)]
    pub(crate) observe: bool,
    /// End the command after so many seconds
    ///
    /// Fractions are allowed: 0.5.
    #[arg(verbatim_doc_comment, long, value_name = "SECONDS")]
    pub(crate) timeout: Option<String>,
    /// Write the outcome as JSON to FILE at the end (-: standard error)
    ///
    /// FILE appears complete, by rename, after the command and everything it started have
    /// ended. It must not lie in a place that the command can write, or the command could
    /// forge it. A pipe such as /dev/fd/3 is written to directly.
    #[arg(verbatim_doc_comment, long, value_name = "FILE")]
    pub(crate) report: Option<OsString>,
    /// Print the outcome or error as the last line of standard error, in JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "ARGV")]
    pub(crate) argv: Vec<OsString>,
}

/// Arguments of `pinfold exec`.
#[derive(Debug, Args)]
// The same option under the name that agents use; where it counts from differs.
#[command(mut_arg("cwd", |arg| arg.long("workdir").help("Working directory of the command [default: the workspace]").long_help(WORKDIR)))]
#[command(mut_arg("env", |arg| arg.help("Environment of the command [default: scrub]").long_help(ENVIRONMENT)))]
pub(crate) struct Exec {
    /// What the command may touch.
    #[command(flatten)]
    pub(crate) policy: PolicyOptions,
    /// What it is run for.
    #[command(flatten)]
    pub(crate) session: SessionOptions,
    /// What is compared.
    #[command(flatten)]
    pub(crate) host: HostFileOptions,
    /// End the command after so many milliseconds [default: 120000]
    ///
    /// More than 600000 counts as 600000.
    #[arg(verbatim_doc_comment, long, value_name = "NUMBER")]
    pub(crate) timeout_ms: Option<f64>,
    /// Keep so many bytes of the end of each stream [default: 64000]
    #[arg(long, hide_short_help = true, value_name = "NUMBER")]
    pub(crate) max_output_bytes: Option<f64>,
    /// Hand all of our standard input to the command
    #[arg(long, hide_short_help = true)]
    pub(crate) stdin: bool,
    /// Run the command on a terminal of its own, shown on ours
    ///
    /// Standard input and output have to be a terminal. Keys, output and size pass; Ctrl-C and
    /// Ctrl-\ signal the command. TERM is xterm then. Nothing is collected, and no time limit applies.
    #[arg(verbatim_doc_comment, long, hide_short_help = true,
        conflicts_with_all = ["stdin", "json", "max_output_bytes", "timeout_ms"])]
    pub(crate) tty: bool,
    /// Print the result or error as one line of JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// The text for the shell
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const WORKDIR: &str = "\
Working directory of the command [default: the workspace]

A relative one counts from the workspace. Opens nothing for writing: only --workspace and
--writable do.";

const ENVIRONMENT: &str = "\
Environment of the command [default: scrub]

scrub: without variables that are named like credentials (GH_TOKEN, AWS_SECRET_ACCESS_KEY,
SSH_AUTH_SOCK and so on) or whose value looks like one; the result names what was removed.
inherit: the caller's.";

/// Arguments of `pinfold confine`.
#[derive(Debug, Args)]
pub(crate) struct Confine {
    /// What the command may touch.
    #[command(flatten)]
    pub(crate) policy: PolicyOptions,
    /// Let the launcher report what really happened to FILE
    ///
    /// FILE is made if it does not exist and must lie where the command cannot write.
    /// docs/launcher.md describes its lines.
    #[arg(verbatim_doc_comment, long, value_name = "FILE")]
    pub(crate) status_file: Option<OsString>,
    /// Let the launcher become the command where the backend allows it (Landlock alone)
    ///
    /// One process less, but what the command leaves behind lives on: for callers that end
    /// descendants themselves.
    #[arg(verbatim_doc_comment, long, hide_short_help = true)]
    pub(crate) unsupervised: bool,
    /// Print errors as JSON too (the object itself always is)
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, value_name = "ARGV")]
    pub(crate) argv: Vec<OsString>,
}

/// Arguments of `pinfold doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Ask about this mode only [default: every confined mode]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `pinfold explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The path in question; may be relative, need not exist
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<OsString>,
    /// What would be done with it [default: write]
    #[arg(long, value_name = "OPERATION")]
    pub(crate) operation: Option<String>,
    /// The mode it would be done under [default: workspace-write]
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<String>,
    /// Workspace directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<OsString>,
    /// Further directory that workspace-write opens
    #[arg(long, value_name = "DIR")]
    pub(crate) writable: Vec<OsString>,
    /// Answer for this backend [default: the one that `run` would use]
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Say also whether this guarantee is enforced, without which nothing would run
    #[arg(long, hide_short_help = true, value_name = "GUARANTEE")]
    pub(crate) require: Vec<String>,
    /// Working directory of the command [default: the current one]
    #[arg(long, hide_short_help = true, value_name = "DIR")]
    pub(crate) cwd: Option<OsString>,
    /// What it may use up.
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    /// What is closed beyond the mode.
    #[command(flatten)]
    pub(crate) restrictions: RestrictionOptions,
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `pinfold version`.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}
