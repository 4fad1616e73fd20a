//! Bubblewrap, hardened, with our launcher stacked inside: namespaces for hosts where only bubblewrap may make them
//! (it is set-user-id, or a security module knows it by name).
//!
//! References: bwrap(1), and bubblewrap's `bubblewrap.c` for the limit on arguments.

pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod start;
