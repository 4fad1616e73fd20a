//! `pinfold-broker`: answers for those calls of a confined command that change names, or metadata where no mount tree
//! governs it; and, where unix sockets outside are closed, those that connect. It refuses what is protected and performs the rest itself, on descriptors that it resolved.
//!
//! The command's filter leaves such calls to this process (seccomp_unotify(2)). It never lets the kernel go on with a call
//! that names a path: the command could change the text behind the pointer in between. So it reads every argument once,
//! resolves it as the command would see it, decides on the directory and name that it holds open, performs the call
//! there, and gives the command the result. Whatever goes wrong here is a refusal.
//!
//! | file | what is in it |
//! |---|---|
//! | `launch` | starts the launcher as a child, waits for the listener, ends as the launcher ended |
//! | `words` | its own arguments |
//! | `domain` | the Landlock domain that it and the launcher wear where no mount tree stands |
//! | `serve` | takes calls, and gives answers |
//! | `caller` | what a waiting process is asked for: memory, directories, descriptors, umask |
//! | `resolve` | from a path of the command's to a directory and a name |
//! | `open`, `names`, `metadata`, `connect` | the calls themselves |
//! | `protect` | asks the policy about a place |
//! | `observe` | what a call was about to do, for when the walls refuse it |
//! | `asks` | refused calls that wait for a person |
//! | `denials` | what was refused, for the status channel |
//! | `sys` | one function, one system call; the only `unsafe` |
//!
//! What must not enter: deciding which names are protected (`pinfold_policy::protect`), and raising walls (the launcher).
//!
//! References: seccomp(2), seccomp_unotify(2), openat2(2), path_resolution(7), proc(5), landlock(7), unix(7).

#![deny(unsafe_code)]

mod asks;
mod caller;
mod connect;
mod denials;
mod domain;
mod launch;
mod metadata;
mod names;
mod observe;
mod open;
mod protect;
mod resolve;
mod serve;
mod sys;
mod words;

pub use launch::run;
