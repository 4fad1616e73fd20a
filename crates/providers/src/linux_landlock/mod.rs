//! Our launcher with Landlock and seccomp alone, for hosts that allow no user namespaces. It loses what Landlock
//! has no right for, and says so.
//!
//! References: landlock(7), and "Landlock: unprivileged access control" of the kernel documentation for what each
//! ABI added.

pub(crate) mod plan;
pub(crate) mod probe;
