//! The words of Pinfold: what may be asked (modes, policies, guarantees), what is answered (argv, reports,
//! outcomes, errors with stable codes), and how both look as JSON and as text for a model.
//!
//! Everything here is a value or a pure function of values. What must not enter: a system call, a file, a
//! clock, an environment variable, a thread, `async`, a condition on the operating system, or the name of a
//! program that is to be started. A line that needs one of these belongs to `providers`, `launcher`, `fence`
//! or `session`.
//!
//! | module | idea |
//! |---|---|
//! | [`mode`] | how much a command may write |
//! | [`policy`] | a mode with its roots, carried by every call |
//! | [`argv`] | the command to start instead of the caller's, and its strict wire form |
//! | [`guarantee`] | the closed list of promises, and how strongly one is kept |
//! | [`report`] | what was enforced for one call, with a roll-up that nobody sets by hand |
//! | [`protect`] | names inside writable roots that stay as they are |
//! | [`obeyed`] | names that tools outside execute or obey |
//! | [`host_files`] | which of them a call created or changed |
//! | [`restrictions`] | what a call closes beyond its mode |
//! | [`limits`] | what a call may use up |
//! | [`outcome`] | whether the command ran, how it ended, what was refused and how we know |
//! | [`pattern`] | which paths a rule speaks of |
//! | [`root_rules`] | which directories are never a root |
//! | [`signal`] | signal numbers and names |
//! | [`error`] | every refusal, its code and its text |
//! | [`file_error`] | the codes of file operations |
//! | [`launcher_stage`] | where the launcher stopped, and what to do about it |
//! | [`classification`] | the in-band fallback: telling runner failure, denial and ordinary failure by text |
//! | [`dialect`] | each backend's texts for it |
//! | [`escalation`] | the ladder to a wider mode and the order of its checks |
//! | [`markers`] | the lines that a model reads around a command's output |
//! | [`quote`] | paths and bytes made safe for a terminal |
//!
//! Two of our own documents bind this crate: the interface facts that must be exact (`CONTRACT.md` of the
//! design material) and `docs/launcher.md` for the launcher's stages.
//!
//! Wire forms are of two kinds. What a consumer hands to a program ([`policy`], [`argv`]) is strict: unknown
//! fields are refused and text that is not UTF-8 is an error. What a person reads ([`report`], [`outcome`])
//! never fails to serialise: bytes that are not UTF-8 appear as `\xHH`.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[macro_use]
mod closed;
mod wire;

pub mod argv;
pub mod classification;
pub mod dialect;
pub mod error;
pub mod escalation;
pub mod file_error;
pub mod guarantee;
pub mod host_files;
pub mod launcher_stage;
pub mod limits;
pub mod markers;
pub mod mode;
pub mod obeyed;
pub mod outcome;
mod outcome_size;
pub mod pattern;
pub mod policy;
pub mod protect;
pub mod quote;
pub mod report;
pub mod restrictions;
pub mod root_rules;
pub mod signal;

pub use argv::{ConfinedArgv, Enforcement, RunnerFailureRule, validate_command};
pub use classification::{Classification, classify};
pub use closed::UnknownWord;
pub use dialect::Dialect;
pub use error::{BackendRefusal, CommandProblem, ErrorBody, ErrorCode, RootProblem, RootRole, SandboxError};
pub use file_error::FileErrorCode;
pub use guarantee::{Guarantee, GuaranteeReport, Layer, Strength};
pub use host_files::{HostChange, HostFile, HostFileType, HostFiles};
pub use launcher_stage::LauncherStage;
pub use limits::{Bound, BoundEvidence, BoundMeans, BoundMet, BoundScope, Limits, Resource};
pub use mode::{ConfinedMode, SandboxMode};
pub use obeyed::{Ground, Obeyed, ObeyedKind, Sight};
pub use outcome::{
    ApprovedEffect, Denial, DenialEvidence, DeniedProcess, Ending, Outcome, StatusEvidence, Stop, Verdict,
};
pub use pattern::{PathPattern, PatternError, PatternProblem, PatternShape};
pub use policy::{ExecutionPolicy, Policy, SandboxPolicy, SessionId};
pub use protect::{Effect, Moved, Protect, ProtectedNames, ProtectionRule, Surroundings};
pub use report::{EnforcementReport, HardLinkFindings, ReportFacts, TempMount, TempView};
pub use restrictions::{Network, Restrictions, Sockets, Variables};
pub use signal::Signal;
