//! What a caller asks beside the policy, and what it receives.

use crate::asks::Asks;
use crate::backend::Backend;
use crate::held::HeldDirectory;
use crate::program::HeldProgram;
use crate::refusals::RefusalFeed;
use pinfold_policy::{ConfinedArgv, Dialect, EnforcementReport, Guarantee, Limits, Outcome, Restrictions};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Holds an operator's own runner and the texts by which its failure is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomRunner {
    /// The program, an absolute path, and its first arguments; bubblewrap's arguments follow them.
    pub argv: Vec<OsString>,
    /// Texts of which one stands in a line of error output when the runner itself failed; at least one.
    pub failure_signatures: Vec<String>,
}

/// Holds the settings of a provider.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// Where `pinfold-run` is; without it, beside the current executable.
    pub launcher: Option<PathBuf>,
    /// Which mechanisms are tried, in order; without it, what this operating system has, or the custom runner
    /// alone if there is one.
    pub chain: Option<Vec<Backend>>,
    /// An operator's own runner.
    pub custom_runner: Option<CustomRunner>,
    /// How long one probe may take; more than zero. The default is 5 s.
    pub probe_timeout: Duration,
    /// Whether what a probe found is kept for the next process, in the runtime directory: for programs that run one
    /// command and exit. It counts for an hour, while kernel, user, settings and programs are the same.
    pub keep_verdicts: bool,
    /// Where our own files live; without it, a directory of this user that no command can write.
    pub runtime_dir: Option<PathBuf>,
    /// Where bubblewrap is looked for; absolute paths, the first that exists counts.
    pub bwrap_candidates: Vec<PathBuf>,
}

impl Default for ProviderConfig {
    fn default() -> Self {
        Self {
            launcher: None,
            chain: None,
            custom_runner: None,
            probe_timeout: Duration::from_secs(5),
            keep_verdicts: false,
            runtime_dir: None,
            bwrap_candidates: ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"].map(PathBuf::from).into(),
        }
    }
}

/// Says how far writable roots are searched for hard links to files outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardLinkScan {
    /// The search ends at either limit and is then reported as incomplete.
    Scan {
        /// How many directory entries are looked at.
        max_entries: u64,
        /// How long it takes.
        max_time: Duration,
    },
    /// Nothing is searched, and the report says so.
    Skip,
}

impl Default for HardLinkScan {
    fn default() -> Self {
        Self::Scan { max_entries: 200_000, max_time: Duration::from_millis(500) }
    }
}

/// Says whether a call's outcome lists the files that tools outside execute or obey and that the call created or changed
/// ([`pinfold_policy::HostFiles`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HostFileScan {
    /// The writable roots are looked through before and after the call. A look ends at either limit and is then reported as
    /// incomplete.
    Compare {
        /// How many directory entries one look takes.
        max_entries: u64,
        /// How long one look takes; ten times as long, at most, for what lies in directories that are obeyed.
        max_time: Duration,
    },
    /// Nothing is looked at, and the outcome has no list.
    #[default]
    Skip,
}

impl HostFileScan {
    /// Limits that usual workspaces do not meet: 100,000 entries and 150 ms for each of the two looks.
    pub const USUAL: Self = Self::Compare { max_entries: 100_000, max_time: Duration::from_millis(150) };
}

/// Says what becomes of a restriction that a mechanism cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Insistence {
    /// The mechanism is not used.
    #[default]
    Required,
    /// The restriction is left out, and the report says so.
    WherePossible,
}

/// Holds what a caller asks for one call beside its policy.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    /// Promises without which nothing may run.
    pub require: Vec<Guarantee>,
    /// The mechanism to use; no other is tried then.
    pub backend: Option<Backend>,
    /// The working directory, absolute; without it, the one of whoever starts the command.
    pub cwd: Option<PathBuf>,
    /// Where the launcher reports, for callers that start the command themselves; absolute, and not below a
    /// writable root. It is created if it does not exist.
    pub status_file: Option<PathBuf>,
    /// For callers that start the command themselves: where the mechanism does not need the launcher beside the command
    /// (Landlock alone), it becomes the command, and what the command leaves behind lives on. Cheaper by one process, for
    /// callers that end descendants themselves.
    pub unsupervised: bool,
    /// The search for hard links.
    pub hard_links: HardLinkScan,
    /// The report of files that tools outside execute or obey. For [`crate::LocalProvider::run`] only.
    pub host_files: HostFileScan,
    /// Whether every refusal of a call that would have changed something is told with path, operation and process, also of a
    /// command that hides it. The broker performs such calls then, in every confined mode. A mechanism without it is not used.
    pub observe_denials: bool,
    /// What is closed beyond the mode. A mechanism that cannot hold one of them is not used.
    pub restrictions: Restrictions,
    /// Whether closing sockets may be given up where the mechanism cannot do it.
    pub sockets: Insistence,
    /// What the call may use up. A mechanism that cannot hold a bound is not used.
    pub limits: Limits,
    /// Whether the bound on processes may be given up where the mechanism cannot hold it.
    pub processes: Insistence,
    /// Whether denying reads may be given up where the mechanism cannot do it.
    pub reads: Insistence,
    /// Directories that were looked at before. A root of the policy that has one's path must still be that directory, and
    /// no link may lead to it; then the workspace, too, is reached through none.
    pub held: Vec<Arc<HeldDirectory>>,
    /// The program that was shown to whoever allowed the call: it is started by its path in place of the command's first word,
    /// if it is still the same, and PATH lacks what confined commands can write. For [`crate::LocalProvider::run`] only.
    pub program: Option<Arc<HeldProgram>>,
    /// Sentences that are added to the report as they are.
    pub notes: Vec<String>,
}

/// Says what a standard stream of the command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stream {
    /// Ours.
    #[default]
    Inherit,
    /// `/dev/null`.
    Null,
    /// Collected. Not for standard input, where it means the same as `Null`.
    Capture {
        /// How many bytes are kept: the last ones.
        limit: usize,
    },
    /// Copied on to our own stream of the same number as it comes, and the end is kept. Not for standard input,
    /// where it means the same as `Null`.
    Tee {
        /// How many bytes are kept: the last ones.
        keep: usize,
    },
}

/// Changes one environment variable of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvChange {
    /// Sets it.
    Set(OsString, OsString),
    /// Removes it.
    Remove(OsString),
    /// Removes every variable, also those set by an earlier change.
    Clear,
}

/// Receives the process id of what was started, once per attempt.
pub type OnSpawn = Arc<dyn Fn(u32) + Send + Sync>;

/// Names an output stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Receives what comes out of a collected stream, as it comes and in order. It is called by the thread that waits for the
/// command and has to be quick: the command waits when its pipe is full.
pub type Observer = Arc<dyn Fn(Output, &[u8]) + Send + Sync>;

/// Describes what is about to be started.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// The mechanism.
    pub backend: Backend,
    /// What is enforced.
    pub report: &'a EnforcementReport,
    /// The texts by which its refusals and failures are recognised.
    pub dialect: &'a Dialect,
}

/// Is asked once per attempt, with everything prepared and nothing started, and says whether it may start. If not, the
/// call ends as a cancelled one.
pub type BeforeStart = Arc<dyn Fn(&Attempt<'_>) -> bool + Send + Sync>;

/// Holds how a command is started and for how long.
#[derive(Clone)]
pub struct RunOptions {
    /// Standard input.
    pub stdin: Stream,
    /// Standard output.
    pub stdout: Stream,
    /// Standard error.
    pub stderr: Stream,
    /// Changes of the environment, in order; the temp variables of the sandbox are set after them.
    pub env: Vec<EnvChange>,
    /// How long the command may take, from the request on.
    pub timeout: Option<Duration>,
    /// How long it has to end after SIGTERM, on a timeout or a cancellation, before SIGKILL. The default is 2 s.
    pub grace: Duration,
    /// Is told the process to which signals for the command can be sent.
    pub on_spawn: Option<OnSpawn>,
    /// Descriptors that are handed over as standard input, output and error, in place of what is said above: a pipe, a
    /// terminal, a file without a name. Nothing is collected from them.
    pub given: [Option<Arc<OwnedFd>>; 3],
    /// Is told what comes out of the streams that are collected.
    pub observe: Option<Observer>,
    /// Is asked before each attempt.
    pub before_start: Option<BeforeStart>,
    /// Is told what is refused to the command while it runs, where the broker tells.
    pub refusals: Option<Arc<RefusalFeed>>,
    /// Whether a launcher that stays (one for each provider) may make the process of the call, in place of a launcher that is
    /// executed for it: for programs that run many commands. The same walls stand and the same is reported. It is a child of
    /// ours without a terminal; the command is so as well. Streams that are inherited, bubblewrap and an operator's own runner
    /// do without it, and so does every call while it cannot be had.
    ///
    /// After two calls with the same plan under `linux_namespace`, the walls of the next one are raised while one runs
    /// (`docs/decisions/0049`): a process waits for it up to a minute, as a child of ours.
    ///
    /// It is started anew when what a child would inherit has changed: users, groups, capabilities, limits, namespaces, control
    /// group, umask, priority, seccomp filters. What cannot be looked at does not count: a Landlock domain that a process with
    /// CAP_SYS_ADMIN takes up without `no_new_privs` after its first call does not reach its later ones.
    pub resident: bool,
    /// Is asked about single effects that the broker refuses, while the command waits. What streams that are copied on
    /// ([`Stream::Tee`]) bring is held back meanwhile.
    pub asks: Option<Asks>,
}

impl RunOptions {
    pub(crate) fn given(&self) -> [Option<&OwnedFd>; 3] {
        self.given.each_ref().map(|given| given.as_deref())
    }
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            stdin: Stream::Inherit,
            stdout: Stream::Inherit,
            stderr: Stream::Inherit,
            env: Vec::new(),
            timeout: None,
            grace: Duration::from_secs(2),
            on_spawn: None,
            given: [None, None, None],
            observe: None,
            before_start: None,
            refusals: None,
            resident: false,
            asks: None,
        }
    }
}

impl std::fmt::Debug for RunOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions")
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .field("env", &self.env)
            .field("timeout", &self.timeout)
            .field("grace", &self.grace)
            .field("given", &self.given)
            .field("asks", &self.asks)
            .finish_non_exhaustive()
    }
}

/// Holds what was collected of one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The last bytes, as many as were to be kept.
    pub bytes: Vec<u8>,
    /// How many bytes came in all.
    pub total: u64,
}

impl Captured {
    /// Says whether bytes were dropped.
    pub fn is_truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }
}

/// Holds how a call ended and what was collected of its output.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// How it ended.
    pub outcome: Outcome,
    /// Standard output; empty unless it was collected.
    pub stdout: Captured,
    /// Standard error; empty unless it was collected.
    pub stderr: Captured,
}

/// Holds a command wrapped in its confinement, for callers that start it themselves.
///
/// It owns the files that the wrapped command needs: they are removed when it is dropped. See
/// [`Confinement::keep`].
#[derive(Debug)]
pub struct Confinement {
    /// What to start.
    pub confined: ConfinedArgv,
    /// What is enforced.
    pub report: EnforcementReport,
    /// The mechanism.
    pub backend: Backend,
    /// The texts by which its refusals and failures are recognised.
    pub dialect: Dialect,
    pub(crate) plan_file: Option<tempfile::TempPath>,
}

impl Confinement {
    /// Gives up ownership of the files that the wrapped command needs, and returns the parts.
    ///
    /// For a caller that ends before the command starts, such as a program that prints the argv. The files lie in
    /// the runtime directory and are swept by a later provider after a day.
    pub fn keep(self) -> (ConfinedArgv, EnforcementReport) {
        if let Some(path) = self.plan_file {
            // Failing means that the file is removed now, and that the launcher then refuses to start.
            let _ = path.keep();
        }
        (self.confined, self.report)
    }
}

/// States whether one mechanism works on this host in one mode, and why not.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The mechanism.
    pub backend: Backend,
    /// Whether its probe passed.
    pub usable: bool,
    /// What it met, if it is not usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What to run or change, if anything helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// What it enforces around a command that has a canary directory as its workspace, if it is usable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<EnforcementReport>,
    /// Facts about the host that bear on it, by name.
    pub facts: BTreeMap<String, String>,
}
