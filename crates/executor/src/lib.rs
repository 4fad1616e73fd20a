//! Shell commands under the policy, as an agent runs them: one at a time, in the background, in a shell that stays, on a
//! terminal.
//!
//! A request (words of a model) becomes a spec (everything decided), the spec a process, the process a result with its
//! facts, and the result a text with markers. Confinement is the providers'; here is what stands around it: time, output,
//! environment, handles, rendering.
//!
//! What must not enter: a decision about what a mode means (that is `policy`), a mechanism (that is `providers`), an approval
//! or a log of a session (that is `session`), a sentence for a terminal (that is `cli`).
//!
//! | module | idea |
//! |---|---|
//! | [`request`] | settings, requests and what they resolve to |
//! | [`environment`] | the layers of a command's environment |
//! | [`managed`] | variables of our own, and who may contribute to them |
//! | [`executor`] | [`Executor`]: run, start, end |
//! | [`process`] | [`Process`]: the handle of a running command |
//! | [`output`] | what is kept of a stream: its end, its beginning, its count |
//! | [`result`] | how a command ended, with its facts |
//! | [`render`] | the text that a model reads |
//! | [`shell`] | [`Shell`]: one shell that keeps directory and variables between commands |
//! | [`terminal`] | a command on a terminal of ours |
//! | [`powershell`] | what differs for PowerShell |
//! | `spill` | files that hold the whole of a long output |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod environment;
pub mod executor;
pub mod managed;
pub mod output;
pub mod powershell;
pub mod process;
pub mod render;
pub mod request;
pub mod result;
pub mod shell;
pub mod terminal;

mod spill;

pub use executor::Executor;
pub use managed::ManagedVariables;
pub use output::StreamOutput;
pub use process::{Observed, Process, ProcessRead, ProcessStatus};
pub use request::{ExecutorConfig, ExecutorError, OnExpiry, Program, Request, Spec};
pub use result::{Finished, SandboxFacts};
pub use shell::{Shell, ShellFinished, ShellRequest};
pub use terminal::{RawMode, Size, Terminal};
