//! Mechanisms that enforce a policy around one command: for each a probe, a plan and a start; and the chain that
//! chooses among them.
//!
//! Everything here may read the host and start the launcher. What must not enter: `unsafe`, a decision about
//! what a mode means (that is `policy`), state that outlives a provider, a sentence for a terminal (that is
//! `cli`), and any environment variable that chooses the program that confines.
//!
//! | module | idea |
//! |---|---|
//! | [`backend`] | the names of the mechanisms |
//! | [`cancel`] | withdrawing a call |
//! | [`call`] | what a caller asks beside the policy, and what it receives |
//! | [`provider`] | [`LocalProvider`]: the one entry |
//! | [`explain`] | what would happen to a path, from the same grants as the plan |
//! | `chain` | which mechanisms, in which order, and why one was passed over |
//! | [`held`] | which directories somebody looked at before the call |
//! | `roots` | resolving roots and pinning their identity |
//! | `launcher` | finding and trusting `pinfold-run`, and handing it a plan |
//! | `runtime_dir` | where our own files live |
//! | `status` | what the launcher reports |
//! | `run` | starting, waiting, ending |
//! | `outcome` | from what was reported to how a call ended |
//! | `plan` | what every mechanism's plan is made from |
//! | `canary` | what every probe does |
//! | `closed` | what a call closes beyond its mode, found on this host |
//! | `control_groups` | control groups of a call's own |
//! | `limits` | how each mechanism holds bounds |
//! | `sockets` | sockets that lead to processes outside |
//! | `own_copies` | files of root's that ssh refuses where they seem to be nobody's |
//! | `environment` | variables without credentials |
//! | `hard_links` | files below a root that have names elsewhere |
//! | `host_files` | files that tools outside execute or obey, before and after a call |
//! | `mounts` | mounts below a root, and mounts that the host shares |
//! | `linux_namespace` … | one folder per mechanism: `probe`, `plan`, `start` where it differs, `golden/` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod asks;
pub mod backend;
pub mod call;
pub mod cancel;
pub mod explain;
pub mod held;
pub mod provider;

mod broker;
mod canary;
mod chain;
mod closed;
mod control_groups;
mod crashes;
mod custom_runner;
mod devices;
mod environment;
mod hard_links;
mod host_files;
mod launcher;
mod limits;
mod linux_bwrap;
mod linux_landlock;
mod linux_namespace;
mod lookup;
mod mount_names;
mod mounts;
mod outcome;
mod own_copies;
mod plan;
mod program;
mod protected;
mod read_walk;
mod refusals;
mod roots;
mod run;
mod runtime_dir;
mod sockets;
mod status;
mod unconfined;
mod verdict_file;

pub use asks::{Asks, EffectQuestion, OnRefusal, RefusedEffect};
pub use backend::{Backend, UnknownBackend};
pub use call::{
    Attempt, BeforeStart, CallOptions, Captured, Confinement, CustomRunner, EnvChange, Finding, HardLinkScan,
    HostFileScan, Insistence, Observer, OnSpawn, Output, ProviderConfig, RunOptions, RunResult, Stream,
};
pub use cancel::Cancel;
pub use environment::scrub as scrub_environment;
pub use explain::{Answer, Operation, Question, Ruling};
pub use held::HeldDirectory;
pub use host_files::{HostFileLook, HostFilePlaces};
pub use limits::default_processes;
pub use lookup::links_on;
pub use program::{HeldProgram, ProgramProblem};
pub use provider::{FileRules, LocalProvider};
pub use refusals::RefusalFeed;
pub use run::plan_descriptor as unnamed_file;
pub use runtime_dir::ProcessDirectory;
