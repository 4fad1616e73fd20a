//! The words for the launcher, and what they promise.

use crate::launcher::push;
use crate::plan::{CONTROL_PLANE, Lines, NO_TEMP, Proof, Request, Statement, named, paths, push_root};
use pinfold_policy::{Guarantee as G, Layer, Network, TempView};
use std::ffi::OsString;

pub(crate) fn plan(request: &Request) -> Vec<OsString> {
    let mut words = Vec::new();
    push(&mut words, &["--wall", "landlock", "--landlock", &request.landlock_abi.to_string()]);
    if !request.writes() && !request.is_brokered() {
        push(&mut words, &["--deny-metadata"]);
    }
    request.push_roots(&mut words);
    let temp = request.temp.as_ref().filter(|_| request.writes());
    if let Some(temp) = temp {
        push_root(&mut words, temp);
    }
    if request.closed.network == Network::Off {
        push(&mut words, &["--network", "off"]);
    }
    if request.supervise {
        push(&mut words, &["--supervise"]);
    }
    request.push_rest(&mut words, temp.map(|temp| temp.path.as_path()));
    words
}

pub(crate) fn state(request: &Request, proof: Proof) -> Statement {
    const LANDLOCK: &[Layer] = &[Layer::Landlock];
    let abi = request.landlock_abi;
    let mut lines = Lines::new(request, Layer::Landlock);
    if abi >= 3 {
        lines.shown(G::WriteContent, LANDLOCK, proof.content);
    } else {
        lines.partial(G::WriteContent, LANDLOCK, "Landlock before ABI 3 cannot keep files from being truncated.");
    }
    if request.is_brokered() {
        lines.shown(G::WriteMetadata, &[Layer::Broker], proof.governed);
        lines.note(G::WriteMetadata, "Reading a file may still update its access time.");
    } else if request.writes() {
        let note = "Landlock has no right for metadata: modes, owners, times and attributes can be changed wherever \
                    the user may.";
        lines.none(G::WriteMetadata, note);
    } else {
        lines.shown(G::WriteMetadata, &[Layer::Seccomp], proof.metadata);
        lines.note(G::WriteMetadata, "Reading a file may still update its access time.");
    }
    lines.brokered(request, proof).shown(G::WriteViaLinks, LANDLOCK, proof.links);
    if abi < 2 {
        let note = "Landlock before ABI 2 refuses to rename or link between directories, also inside a root.";
        lines.note(G::WriteViaLinks, note);
    }
    lines
        .shown(G::InheritedFds, &[Layer::Hygiene], proof.inherited)
        .checked(G::Privilege, &[Layer::Capabilities, Layer::Hygiene, Layer::Seccomp]);
    let kernel = [Layer::Landlock, Layer::Capabilities, Layer::Seccomp];
    let mut exceptions = Vec::new();
    if abi < 5 {
        exceptions.push("Landlock before ABI 5 does not govern ioctls of devices.".to_owned());
    }
    if !request.devices.is_empty() {
        let nodes = named(&paths(&request.devices));
        exceptions.push(format!("Can be opened for reading, and some drivers act on that: {nodes}."));
    }
    if exceptions.is_empty() {
        lines.checked(G::KernelInterfaces, &kernel);
    }
    for (number, exception) in exceptions.iter().enumerate() {
        if number == 0 {
            lines.partial(G::KernelInterfaces, &kernel, exception)
        } else {
            lines.note(G::KernelInterfaces, exception)
        };
    }
    lines.none(G::ProcessVisibility, "Processes outside are visible through /proc.");
    if abi >= 6 {
        let note = "No signal but those of terminals: terminals of the same user can be opened, their size sends SIGWINCH, and their \
                    settings decide for which key and which background output others are signalled.";
        lines.partial(G::SignalsOut, LANDLOCK, note);
    } else {
        lines.none(G::SignalsOut, "Landlock before ABI 6 does not keep signals inside.");
    }
    lines.shown(G::PtraceOut, LANDLOCK, proof.process_root).sockets(request, Layer::Landlock).partial(
        G::Terminal,
        &[Layer::Hygiene, Layer::Seccomp],
        "Input cannot be fed to a terminal, but terminals of the same user can be opened, read and written to.",
    );
    if request.supervise {
        let note =
            "The launcher ends whatever the command leaves behind; if the launcher itself is killed, nobody does.";
        lines.partial(G::Descendants, &[Layer::Hygiene], note);
    } else {
        lines.none(G::Descendants, "The launcher becomes the command; what it leaves behind lives on.");
    }
    if abi >= 6 && request.is_brokered() {
        lines.checked(G::ControlPlane, &[Layer::Landlock, Layer::Broker]).note(G::ControlPlane, CONTROL_PLANE);
    } else if abi >= 6 && !request.writes() {
        lines.checked(G::ControlPlane, &[Layer::Landlock, Layer::Seccomp]).note(G::ControlPlane, CONTROL_PLANE);
    } else {
        let note = "Our own files cannot be written, but their modes can be changed, or our process can be signalled.";
        lines.partial(G::ControlPlane, LANDLOCK, note).note(G::ControlPlane, CONTROL_PLANE);
    }
    let mut notes = Vec::new();
    let nested = request.roots.windows(2).any(|pair| pair[1].path.starts_with(&pair[0].path));
    if nested && !request.is_brokered() {
        let note = "A root inside another root can be renamed by the command; the next call then refuses it.";
        notes.push(note.to_owned());
    }
    let temp = match request.temp.as_ref().filter(|_| request.writes()) {
        Some(temp) => {
            let note = "The temp directory is ours alone to write, but other processes of the user can see it.";
            lines.partial(G::TempPrivate, LANDLOCK, note);
            TempView::PrivateDirectory { path: temp.path.clone() }
        }
        None => {
            lines.not_asked(G::TempPrivate, NO_TEMP);
            notes.push(NO_TEMP.to_owned());
            TempView::None
        }
    };
    Statement { temp, guarantees: lines.0, notes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::golden::{self, check};
    use pinfold_policy::ConfinedMode;

    const ALL: Proof = Proof {
        content: true,
        metadata: true,
        links: true,
        inherited: true,
        process_root: true,
        protected: true,
        governed: true,
    };

    #[test]
    fn plans_are_as_shown() {
        let mut request = golden::request(ConfinedMode::ReadOnly);
        request.supervise = true;
        check("linux_landlock/golden/read-only.txt", &plan(&request), &state(&request, ALL));
        request.observed = true;
        check("linux_landlock/golden/observed.txt", &plan(&request), &state(&request, ALL));
        let mut request = golden::request(ConfinedMode::WorkspaceWrite);
        request.temp = Some(golden::root("/run/pinfold/t", 21));
        request.supervise = true;
        check("linux_landlock/golden/workspace-write.txt", &plan(&request), &state(&request, ALL));
        let mut brokered = request.clone();
        brokered.closed.protected = Some(golden::protected());
        check("linux_landlock/golden/protected.txt", &plan(&brokered), &state(&brokered, ALL));
        brokered.closed.sockets = Some(crate::sockets::allowed_alone(&[]));
        check("linux_landlock/golden/connections.txt", &plan(&brokered), &state(&brokered, ALL));
        (request.landlock_abi, request.supervise) = (1, false);
        check("linux_landlock/golden/first-abi.txt", &plan(&request), &state(&request, ALL));
        let mut request = golden::request(ConfinedMode::ReadOnly);
        request.closed.network = Network::Off;
        request.devices = vec!["/dev/loop-control".into(), "/dev/tty2".into()];
        check("linux_landlock/golden/closed.txt", &plan(&request), &state(&request, ALL));
    }
}
