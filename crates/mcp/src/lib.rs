//! A session as a server of the Model Context Protocol: a shell and file tools for agents, under the session's policy.
//!
//! The protocol is the official SDK's (`rmcp`); here is what its requests mean for a session. Commands are the executor's,
//! files the fence's, permissions and the log the session's; nothing is decided twice. What blocks runs in threads, because
//! executor, fence and log are synchronous; the protocol runs on tokio.
//!
//! What must not enter: an opinion on what a mode means (`policy`), a mechanism (`providers`), a sentence for a terminal
//! (`cli`), and anything on standard output that is not a message of the protocol.
//!
//! | module | idea |
//! |---|---|
//! | [`setup`] | what the server is made of, and what it must be told about the host |
//! | [`mod@serve`] | standard streams, shutdown, signals from outside |
//! | `stdio` | the streams of the protocol, out of every child's reach |
//! | `long_lines` | lines that are too long to be read, and are answered |
//! | [`http`] | the same on loopback, with a token |
//! | `server` | requests of the protocol |
//! | `core` | one session's calls: policy, permission, record |
//! | `call` | one call of a tool: threads, progress, withdrawal |
//! | `ask` | a question to the client's person |
//! | `roots` | directories that the client names |
//! | `resources` | the policy's text, the report, the log |
//! | `tools` | schemas, arguments and results |
//! | [`clients`] | configurations of usual clients |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod clients;
pub mod http;
pub mod serve;
pub mod setup;

mod ask;
mod call;
mod core;
mod long_lines;
mod resources;
mod roots;
mod server;
mod stdio;
mod tools;

pub use serve::{Ended, Failure, Notice, Way, serve};
pub use setup::{Ground, Settings, Setup};
