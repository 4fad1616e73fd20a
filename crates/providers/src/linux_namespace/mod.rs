//! Our launcher with user, mount, PID, IPC and UTS namespaces, Landlock and seccomp: the strongest wall, and the
//! only one that needs no other program.
//!
//! References: user_namespaces(7), mount_namespaces(7), pid_namespaces(7), landlock(7).

pub(crate) mod plan;
pub(crate) mod probe;
