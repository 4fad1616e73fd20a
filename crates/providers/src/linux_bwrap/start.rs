//! What of this host bubblewrap cannot keep from its command.

use pinfold_policy::{Guarantee, GuaranteeReport, Strength};
use std::os::unix::fs::MetadataExt as _;

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
}
