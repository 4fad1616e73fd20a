//! A session's policy, grants, approvals and audit trail, and the configuration that they start from.
//!
//! What must not enter: how something is enforced (that is `providers`), what a mode or a code means (`policy`), a
//! sentence for a terminal other than the question to a person (`cli`), and anything that widens a policy without an
//! event in the log.
//!
//! | module | idea |
//! |---|---|
//! | [`config`] | layers of configuration; a project file may only tighten |
//! | [`service`] | the policy of one call: approved mode, then the session's, then the configuration's |
//! | [`store`] | where sessions live, out of reach of every confined command |
//! | [`log`] | the append-only log, its events and what they lead to |
//! | [`session`] | the acts that change a session |
//! | [`grant`] | permissions, and for how long they hold |
//! | [`approval`] | from a request for more to a grant, or to a refusal with its text |
//! | [`files`] | read, write and edit under the session's policy, and what it has seen of which file |
//! | [`asker`] | which process waits for an answer |
//! | [`approver`] | who answers: callbacks, rules, another process |
//! | [`place`] | the working directory that a question is about |
//! | [`effects`] | single effects of a command that waits |
//! | [`terminal`] | the question to a person |
//! | [`preset`] | modes and approval policies under one name |
//! | [`text`] | what a model is told |
//! | [`digest`] | what grants are bound to |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod approval;
pub mod approver;
pub mod asker;
pub mod config;
pub mod digest;
pub mod effects;
pub mod error;
pub mod files;
pub mod grant;
pub mod log;
pub mod place;
pub mod preset;
mod screen;
pub mod service;
pub mod session;
pub mod store;
pub mod terminal;
pub mod text;

pub use approval::{Approvals, Call, Step, Wish};
pub use approver::{Approver, Question};
pub use asker::Asker;
pub use config::{Deployment, Layer, Origin, Places};
pub use digest::Digest;
pub use effects::Running;
pub use error::SessionError;
pub use files::SessionFiles;
pub use grant::{Approved, GrantId, Life, LiveEffect, Scope};
pub use log::{Access, Log};
pub use place::Shown;
pub use service::{PolicyRequest, PolicyService, Resolved, WritableRoot};
pub use session::{Session, Verdict};
pub use store::{NewSession, Store};
