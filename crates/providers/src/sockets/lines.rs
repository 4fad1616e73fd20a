//! What a report says about unix sockets. Pure.

use super::SocketWalls;
use crate::plan::{Lines, Request, named, paths};
use pinfold_policy::{Guarantee, GuaranteeReport, Layer, Network, Strength};

impl Lines {
    /// Unix sockets: what hides them, and what Landlock's scope gives.
    pub(crate) fn sockets(&mut self, request: &Request, wall: Layer) -> &mut Self {
        let abi = request.landlock_abi;
        if let Some(walls) = request.closed.sockets.as_ref().filter(|_| request.connects_by_broker()) {
            self.brokered_sockets(request, walls, wall)
        } else if let Some(walls) = &request.closed.sockets {
            let layers = if abi >= 6 { vec![wall, Layer::Landlock] } else { vec![wall] };
            let note = "Sockets of processes outside are hidden as they are found at the start. One that appears later in \
                        another place can be connected to.";
            self.partial(Guarantee::SocketsUnix, &layers, note);
            // In a network namespace of its own a command has abstract names of its own as well.
            if abi < 6 && request.closed.network == Network::Open {
                self.note(Guarantee::SocketsUnix, "Sockets by abstract name can be connected to.");
            }
            for (allowed, what) in [
                (&walls.allowed, "Allowed:"),
                (&walls.absent, "Allowed, but not there now:"),
                (&walls.in_roots, "Of a process outside, in a writable root, and not hidden:"),
                (&walls.linked, "Hidden, but with a second name (a hard link) that is not:"),
            ] {
                if !allowed.is_empty() {
                    self.note(Guarantee::SocketsUnix, &format!("{what} {}.", named(&paths(allowed))));
                }
            }
            match walls.lost {
                None => self.note(
                    Guarantee::SocketsUnix,
                    "The kernel did not say which files are sockets: those that were bound by a relative name, or moved since, are \
                     not hidden.",
                ),
                Some(0) => self,
                Some(lost) => self.note(
                    Guarantee::SocketsUnix,
                    &format!(
                        "Bound at the start and not found by the name that they were given, so not hidden: {lost}. Those that were \
                         removed are out of reach; those that were moved or renamed can be connected to."
                    ),
                ),
            };
            self
        } else if abi >= 6 {
            let note = "Sockets by abstract name are out of reach; sockets by path can be connected to.";
            self.partial(Guarantee::SocketsUnix, &[Layer::Landlock], note)
        } else {
            self.none(Guarantee::SocketsUnix, "Sockets can be connected to, by path and by abstract name.")
        }
    }

    /// The broker looks at each connection by path; a scope, or a network namespace, keeps abstract names inside.
    fn brokered_sockets(&mut self, request: &Request, walls: &SocketWalls, wall: Layer) -> &mut Self {
        let mut layers = vec![Layer::Broker, Layer::Seccomp];
        layers.extend((wall != Layer::Landlock).then_some(wall));
        layers.extend((request.landlock_abi >= 6).then_some(Layer::Landlock));
        let names_inside =
            request.landlock_abi >= 6 || request.closed.network != Network::Open && wall != Layer::Landlock;
        let strength = if names_inside { Strength::Enforced } else { Strength::Partial };
        self.0.push(GuaranteeReport::new(Guarantee::SocketsUnix, strength, &layers, false));
        if !names_inside {
            self.note(Guarantee::SocketsUnix, "Sockets by abstract name can be connected to.");
        }
        let note = "Open by path are sockets that are bound in a writable root or the temp area after the start, whoever binds \
                    them; datagram sockets cannot be made.";
        self.note(Guarantee::SocketsUnix, note);
        for (allowed, what) in [(&walls.allowed, "Allowed:"), (&walls.absent, "Allowed, but not there now:")] {
            if !allowed.is_empty() {
                self.note(Guarantee::SocketsUnix, &format!("{what} {}.", named(&paths(allowed))));
            }
        }
        self
    }
}
