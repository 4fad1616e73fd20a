//! Confines this process or its child and then executes the command: the library behind `pinfold-run` and
//! `landlock-run`.
//!
//! Here belongs whatever changes what a process may do, at its place in time (`run.rs` is the list). Policies,
//! modes, JSON and decisions must not enter: a provider decided before, and handed over a list of words. The
//! crate allocates nothing, needs no C library and reads no environment but `PATH`, so that its code is safe to run
//! between fork and exec, and starts in microseconds.
//!
//! All `unsafe` stands in `sys.rs` (system calls, memory that the kernel handed over) and `entry.rs` (the first
//! instructions of a process).
//!
//! References: user_namespaces(7), mount_namespaces(7), pid_namespaces(7), capabilities(7), landlock(7),
//! seccomp(2), mount_setattr(2), `Documentation/userspace-api/landlock.rst`.

#![cfg_attr(not(test), no_std)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("pinfold-launcher: only x86_64 Linux has its system calls and first instructions written down");

mod ahead;
mod brokered;
mod canary;
mod capabilities;
mod command;
mod descriptors;
pub mod entry;
mod errno;
mod failure;
mod guard;
mod landlock;
pub mod landlock_run;
mod mounts;
mod outside;
pub mod run;
mod seccomp;
mod serve;
mod spec;
mod status;
mod streams;
mod supervise;
mod sys;
mod words;
