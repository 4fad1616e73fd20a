//! The Landlock wall: what may be changed below which path, and nothing else (landlock(7)).
//!
//! Handled is every right whose use changes something, and every scope. Reading and executing are not handled: no
//! plan forbids them, and a handled right is paid for at each open. What Landlock has no right for (metadata, pathname
//! sockets before ABI 9) is another wall's business, or nobody's, and the provider says so.

use core::ffi::CStr;

use linux_raw_sys::{general as g, landlock as ll, prctl as p};

use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::spec::{Plan, Role, Wall};
use crate::sys::{self, LandlockRules};

const SCOPES: u64 = (ll::LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | ll::LANDLOCK_SCOPE_SIGNAL) as u64;

/// All file rights that ABI `abi` knows.
pub(crate) const fn file_rights(abi: u32) -> u64 {
    let mut rights = (ll::LANDLOCK_ACCESS_FS_REFER - 1) as u64;
    if abi >= 2 {
        rights |= ll::LANDLOCK_ACCESS_FS_REFER as u64;
    }
    if abi >= 3 {
        rights |= ll::LANDLOCK_ACCESS_FS_TRUNCATE as u64;
    }
    if abi >= 5 {
        rights |= ll::LANDLOCK_ACCESS_FS_IOCTL_DEV as u64;
    }
    rights
}

/// The rights that a plan handles: those whose use changes something.
///
/// Truncation is looked for at every open, also for reading, with a walk up the whole path, because the file remembers it.
/// A mount tree of ours is read-only for truncate(2) and O_TRUNC as for everything else, and nothing arrives in it later; so
/// only where there is none is that price paid.
const fn handled_rights(abi: u32, wall: Wall) -> u64 {
    let rights = file_rights(abi) & !READ_RIGHTS;
    match wall {
        Wall::Namespace => rights & !(ll::LANDLOCK_ACCESS_FS_TRUNCATE as u64),
        Wall::Landlock => rights,
    }
}

pub(crate) const READ_RIGHTS: u64 =
    (ll::LANDLOCK_ACCESS_FS_EXECUTE | ll::LANDLOCK_ACCESS_FS_READ_FILE | ll::LANDLOCK_ACCESS_FS_READ_DIR) as u64;

/// The rights that make sense on something that is not a directory; the kernel refuses others there.
pub(crate) const FILE_ONLY_RIGHTS: u64 = (ll::LANDLOCK_ACCESS_FS_EXECUTE
    | ll::LANDLOCK_ACCESS_FS_READ_FILE
    | ll::LANDLOCK_ACCESS_FS_WRITE_FILE
    | ll::LANDLOCK_ACCESS_FS_TRUNCATE
    | ll::LANDLOCK_ACCESS_FS_IOCTL_DEV) as u64;

/// Device nodes that every mode may write to: sinks, sources, and what a new terminal is made of.
const DEVICES: [&CStr; 7] =
    [c"/dev/null", c"/dev/zero", c"/dev/full", c"/dev/random", c"/dev/urandom", c"/dev/tty", c"/dev/ptmx"];

/// Returns the ABI of the running kernel if it is at least the required one.
pub(crate) fn check(required: u32) -> Result<u32, Failure> {
    let abi = sys::landlock_abi().or_fail("landlock-unsupported", "this kernel does not offer Landlock")?;
    if abi < required {
        return Err(Failure::new("landlock-unsupported", "this kernel's Landlock is older than the plan asks for"));
    }
    Ok(abi)
}

/// Builds the ruleset, applies it to this process, and returns the ABI that was used. `trees` are the writable roots as they
/// were mounted, in the plan's order; none without a mount tree.
pub(crate) fn restrict(plan: &Plan, trees: &[i32]) -> Result<u32, Failure> {
    let abi = check(plan.landlock)?;
    let handled = handled_rights(abi, plan.wall);
    let scoped = if abi >= 6 { SCOPES } else { 0 };
    let rules = LandlockRules { file_system: handled, network: 0, scoped };
    let members = match abi {
        ..4 => 1,
        4..6 => 2,
        6.. => 3,
    };
    let ruleset = sys::landlock_ruleset(&rules, members).or_fail("landlock", "cannot create the ruleset")?;
    for (tree, root) in trees.iter().zip(plan.writable_roots()) {
        sys::landlock_allow(ruleset, handled, *tree)
            .or_fail("landlock-rule", "cannot allow writing below")
            .map_err(|failure| failure.of(root.path))?;
    }
    for root in plan.writable_roots().skip(trees.len()) {
        let fd = open_rule(root.path)?;
        check_root(fd, &root, plan.mounted)?;
        allow(ruleset, fd, handled, root.path)?;
    }
    for path in plan.paths(Role::Private).chain(plan.placed().map(|(_, at)| at)) {
        allow(ruleset, open_rule(path)?, handled, path)?;
    }
    if plan.shm {
        allow(ruleset, open_rule(c"/dev/shm")?, handled, c"/dev/shm")?;
    }
    for path in DEVICES {
        match sys::open(sys::CWD, path, g::O_PATH, 0) {
            Ok(fd) => allow(ruleset, fd, handled & FILE_ONLY_RIGHTS, path)?,
            // A host without this node does without it inside, too.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno).or_fail("landlock-rule", "cannot open").map_err(|it| it.of(path)),
        }
    }
    let terminals = handled & FILE_ONLY_RIGHTS;
    if let Ok(fd) = sys::open(sys::CWD, c"/dev/pts", g::O_PATH | g::O_DIRECTORY, 0) {
        allow(ruleset, fd, terminals, c"/dev/pts")?;
    }
    for stream in 0..3 {
        // `echo > /dev/stderr` opens a terminal that was passed on by its path.
        if sys::is_terminal(stream) {
            sys::landlock_allow(ruleset, terminals, stream)
                .or_fail("landlock-rule", "cannot allow a standard stream")?;
        }
    }
    sys::landlock_restrict(ruleset, 0).or_fail("landlock", "cannot apply the ruleset")?;
    sys::close(ruleset);
    Ok(abi)
}

/// Puts the launcher itself into a domain out of which no signal leads, so that it can end all that it has started, and
/// nobody else, with one call. False where the kernel has no such scope.
pub(crate) fn keep_signals_inside(plan: &Plan) -> Result<bool, Failure> {
    let abi = check(plan.landlock)?;
    if abi < 6 {
        return Ok(false);
    }
    sys::prctl(p::PR_SET_NO_NEW_PRIVS, 1).or_fail("no-new-privs", "cannot set no_new_privs")?;
    // QUIRK: every domain forbids renames and links between directories, also one that does not say so (landlock(7), "REFER").
    let refer = ll::LANDLOCK_ACCESS_FS_REFER.into();
    let rules = LandlockRules { file_system: refer, network: 0, scoped: ll::LANDLOCK_SCOPE_SIGNAL.into() };
    let ruleset = sys::landlock_ruleset(&rules, 3).or_fail("landlock", "cannot create the ruleset")?;
    allow(ruleset, open_rule(c"/")?, refer, c"/")?;
    // Whom the scope spares is no incident that belongs into the system's log.
    let flags = if abi >= 7 { ll::LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF } else { 0 };
    sys::landlock_restrict(ruleset, flags).or_fail("landlock", "cannot apply the ruleset")?;
    sys::close(ruleset);
    Ok(true)
}

/// A root is granted by identity: what lies at the path now must be what the provider saw.
pub(crate) fn check_root(fd: i32, root: &crate::spec::Root, mounted: bool) -> Result<(), Failure> {
    let stat = sys::fstat(fd).or_fail("root-open", "cannot examine the writable root")?;
    if !stat.is(g::S_IFDIR) || (stat.device, stat.inode) != (root.device, root.inode) {
        return Err(Failure::new("root-changed", "another file is now at the path of the writable root").of(root.path));
    }
    // SECURITY: an outer wall that mounts by path may have met a link, which is gone by now. Then the mount that should be here
    // is elsewhere, and what is elsewhere takes changes of metadata.
    if mounted && !sys::begins_a_mount(fd).or_fail("root-open", "cannot examine the writable root")? {
        return Err(Failure::new("root-changed", "no mount begins at the path of the writable root").of(root.path));
    }
    Ok(())
}

fn open_rule(path: &'static CStr) -> Result<i32, Failure> {
    sys::open(sys::CWD, path, g::O_PATH | g::O_NOFOLLOW, 0)
        .or_fail("landlock-rule", "cannot open")
        .map_err(|failure| failure.of(path))
}

fn allow(ruleset: i32, fd: i32, rights: u64, path: &'static CStr) -> Result<(), Failure> {
    sys::landlock_allow(ruleset, rights, fd)
        .or_fail("landlock-rule", "cannot allow writing below")
        .map_err(|failure| failure.of(path))?;
    sys::close(fd);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_abi_adds_its_rights() {
        assert_eq!(file_rights(1), 0x1fff);
        assert_eq!(file_rights(2), 0x3fff);
        assert_eq!(file_rights(3), 0x7fff);
        assert_eq!(file_rights(4), 0x7fff);
        assert_eq!(file_rights(5), 0xffff);
        assert_eq!(file_rights(7), 0xffff);
    }

    #[test]
    fn every_right_that_writes_is_handled() {
        assert_eq!(handled_rights(5, Wall::Landlock), 0xffff & !0b1101);
    }

    #[test]
    fn behind_a_mount_tree_an_open_for_reading_asks_for_nothing() {
        for abi in 1..9 {
            let truncation = ll::LANDLOCK_ACCESS_FS_TRUNCATE as u64;
            let without = handled_rights(abi, Wall::Namespace);
            assert_eq!(without & (truncation | READ_RIGHTS), 0);
            assert_eq!(
                without | (handled_rights(abi, Wall::Landlock) & truncation),
                handled_rights(abi, Wall::Landlock)
            );
        }
    }
}
