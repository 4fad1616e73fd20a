//! File operations of our own process that cannot leave the roots of a policy, whatever a confined job does to
//! directories, links and files meanwhile. It guards our code against tricks, not the host against hostile code: that
//! is what the providers are for.
//!
//! Every step is relative to a descriptor: a root is opened once and is a directory from then on, not a name; what lies
//! below it is reached by `openat2` without links, or step by step. A change happens in the directory that was decided
//! about, because the decision and the change use the same descriptor.
//!
//! What must not enter: `unsafe`, a process that is started, a question to a person (an approver is a trait here), a
//! sentence for a terminal, a second opinion on what a policy means (that is `policy`).
//!
//! | module | idea |
//! |---|---|
//! | [`fence`] | [`Fence`]: a policy, pinned, with the verbs of files |
//! | [`roots`] | directories opened once, with their identity |
//! | `resolve` | from a path to a directory's descriptor and a name |
//! | [`rules`] | whether an act on a place is allowed, and why not |
//! | [`error`] | codes and texts |
//! | [`target`] | keys, versions, what a look at a file tells |
//! | `read`, `write`, `change`, `copy`, `attributes`, `list` | the verbs |
//! | `staging`, `metadata` | how content takes the place of other content |
//! | [`edit`] | replacing text in text |
//! | [`difference`] | unified diffs |
//! | [`search`] | names and lines that match |
//! | [`observation`] | what a session has seen of which file |
//! | [`tools`] | read, write and edit as an agent calls them |
//!
//! References: openat2(2), open(2), rename(2), link(2), path_resolution(7), proc(5).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(not(target_os = "linux"))]
compile_error!("the fence speaks to Linux; other systems need a twin of `resolve` and `staging`");

pub mod difference;
pub mod edit;
pub mod error;
pub mod fence;
pub mod observation;
pub mod roots;
pub mod rules;
pub mod search;
pub mod target;
pub mod tools;

mod attributes;
mod change;
mod copy;
mod list;
mod locks;
mod metadata;
mod read;
mod resolve;
mod staging;
mod write;

pub use attributes::Permissions;
pub use change::{Moved, Replace};
pub use copy::{Copied, CopiedTree};
pub use error::{Denied, FsError};
pub use fence::{Durability, Fence, FenceOptions, Limits, TempPlace, Turns};
pub use list::{Entry, Listing};
pub use metadata::Lost;
pub use read::{Image, Lines, LinesRequest, Whole};
pub use resolve::Resolver;
pub use rules::Act;
pub use target::{Kind, Look, Target, Version};
pub use write::{Abort, Change, Intent, Written};
