//! The Landlock domain that the broker's threads wear where no mount tree stands: the same places that the command may
//! write. So a mistake in a decision here still meets the kernel, with the error that the command would have met.
//!
//! The launcher is started by a thread that wears it, and adds the command's own domain inside. The command's domain is then
//! nested in ours, and the kernel lets us read the command's memory and directories, which it would not for one beside.

use crate::words::Writable;
use landlock::{
    ABI, AccessFs, CompatLevel, Compatible as _, PathBeneath, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
    RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// As in the launcher: sinks and sources, and what a new terminal is made of.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
const TERMINALS: [&str; 2] = ["/dev/ptmx", "/dev/pts"];

/// Keeps the calling thread, and those that it starts, from sockets outside by abstract name, and from nothing else: the launcher
/// can still mount. For where a mount tree stands; in a domain that governs files the scope is part of [`wear`], because a
/// layer without rules for files forbids to move them between directories.
///
/// SECURITY: a connection that we make for the command passes our domain, not its own.
pub(crate) fn wear_scope() -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot wear a Landlock domain: {error}");
    // A kernel without scopes keeps the command from none either, and the report says so.
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::AbstractUnixSocket)
        .and_then(Ruleset::create)
        .and_then(|rules| rules.restrict_self())
        .map(drop)
        .map_err(|error| failed(&error))
}

/// Restricts the calling thread and those that it starts.
///
/// A kernel without scopes keeps the command from no abstract name either.
///
/// SECURITY: where a person is `asked`, no terminal can be opened for writing but those on standard streams: the command may be the
/// person's user, and could paint over the question. It makes no terminals of its own then either.
pub(crate) fn wear(writable: &[Writable], asked: bool) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot wear a Landlock domain: {error}");
    let rights = AccessFs::from_write(ABI::V5);
    let on_files = AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(rights)
        .and_then(|rules| rules.scope(Scope::AbstractUnixSocket))
        .and_then(Ruleset::create)
        .map_err(|error| failed(&error))?;
    for place in writable {
        let fd = open(&place.path)?;
        let stat = fstat(&fd).map_err(|error| failed(&error))?;
        if (stat.st_dev, stat.st_ino) != (place.device, place.inode) {
            return Err(format!("another file is now at the path of the writable root {}", place.path.display()));
        }
        rules = rules.add_rule(PathBeneath::new(fd, rights)).map_err(|error| failed(&error))?;
    }
    for device in DEVICES.into_iter().chain(TERMINALS.into_iter().filter(|_| !asked)) {
        // A host without this node does without it.
        if let Ok(fd) = open(Path::new(device)) {
            rules = rules.add_rule(PathBeneath::new(fd, on_files)).map_err(|error| failed(&error))?;
        }
    }
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    for stream in streams.iter().filter(|stream| rustix::termios::isatty(stream)) {
        rules = rules.add_rule(PathBeneath::new(stream.as_fd(), on_files)).map_err(|error| failed(&error))?;
    }
    let status = rules.restrict_self().map_err(|error| failed(&error))?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err("this kernel does not offer Landlock".to_owned());
    }
    Ok(())
}

fn open(path: &Path) -> Result<OwnedFd, String> {
    openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| format!("cannot open {}: {error}", path.display()))
}
