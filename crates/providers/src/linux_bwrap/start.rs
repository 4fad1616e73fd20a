//! What must not reach bubblewrap itself, which is dynamically linked and runs before there is a wall; and what of this
//! host it cannot keep from its command.

use pinfold_policy::{Guarantee, GuaranteeReport, Strength};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

/// Whether a variable makes the dynamic loader or the C library load something (ld.so(8)).
pub(crate) fn steers_the_loader(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b"LD_") || matches!(name, b"GLIBC_TUNABLES" | b"GCONV_PATH" | b"LOCPATH" | b"NLSPATH")
}

/// Names and values.
type Environment = Vec<(OsString, OsString)>;

/// Splits an environment into what bubblewrap may see and what only the command inside gets.
pub(crate) fn split(environment: Environment) -> (Environment, Environment) {
    environment.into_iter().partition(|(name, _)| !steers_the_loader(name))
}

/// The host's nodes that `--dev` binds.
const NODES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// States that their owner can change the device nodes that bubblewrap binds, if we are their owner.
///
/// QUIRK: they are mounts of the host's nodes and writable as such. `--remount-ro` on one of them also forbids to open it
/// (it adds `nodev`), and bubblewrap has no `--ro-dev-bind`. Root is the owner everywhere but in a container; of a
/// terminal, which becomes `/dev/console`, everybody who sits at it.
pub(crate) fn own_devices(terminal: bool) -> Option<GuaranteeReport> {
    let user = rustix::process::geteuid().as_raw();
    let owned = |path: &&str| user == 0 || std::fs::metadata(path).is_ok_and(|metadata| metadata.uid() == user);
    let note = if NODES.iter().any(owned) {
        "Modes, owners and times of the host's device nodes in /dev that belong to this user can be changed."
    } else if terminal {
        "Mode and times of a terminal that is passed on as a standard stream can be changed."
    } else {
        return None;
    };
    Some(GuaranteeReport::new(Guarantee::WriteMetadata, Strength::Partial, &[], false).with_note(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_nodes_of_our_own_and_a_terminal_are_reported() {
        let stated = |terminal| own_devices(terminal).map(|line| (line.guarantee, line.strength));
        let partial = Some((Guarantee::WriteMetadata, Strength::Partial));
        assert_eq!(stated(true), partial);
        assert_eq!(stated(false), partial.filter(|_| rustix::process::geteuid().is_root()));
    }

    #[test]
    fn the_loader_of_bubblewrap_is_not_steered() {
        let variable = |name: &str| (OsString::from(name), OsString::from("x"));
        let (outer, inner) = split(["PATH", "LD_PRELOAD", "LD", "GCONV_PATH"].map(variable).into());
        assert_eq!(outer, [variable("PATH"), variable("LD")]);
        assert_eq!(inner, [variable("LD_PRELOAD"), variable("GCONV_PATH")]);
    }
}
