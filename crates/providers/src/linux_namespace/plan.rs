//! The words for the launcher, and what they promise.

use crate::launcher::push;
use crate::plan::{CONTROL_PLANE, Lines, NO_TEMP, Proof, Request, Statement, temp_view};
use pinfold_policy::{Guarantee as G, Layer, Network, TempView};
use std::ffi::OsString;

pub(crate) fn plan(request: &Request) -> Vec<OsString> {
    let mut words = Vec::new();
    push(&mut words, &["--wall", "namespace", "--landlock", &request.landlock_abi.to_string()]);
    let covered = request.covered();
    for path in request.fresh() {
        push(&mut words, &["--private".as_ref(), path.as_os_str()]);
    }
    for (at, directory) in request.lasting() {
        push(&mut words, &["--place".into(), directory.identity(), directory.path.clone().into(), at.clone().into()]);
    }
    if request.writes() {
        push(&mut words, &["--shm"]);
    }
    if let Some(most) = request.bounds.temp {
        push(&mut words, &["--limit", "temp", &most.to_string()]);
    }
    request.push_roots(&mut words);
    push_closed(&mut words, request);
    request.push_rest(&mut words, covered.first().map(|path| path.as_path()));
    words
}

fn push_closed(words: &mut Vec<OsString>, request: &Request) {
    if request.closed.network != Network::Open {
        push(words, &["--network", request.closed.network.as_str()]);
    }
    for hollow in request.hollows() {
        push(words, &["--hollow".as_ref(), hollow.as_os_str()]);
    }
    for kept in request.keeps() {
        push(words, &["--keep".as_ref(), kept.as_os_str()]);
    }
    let in_root = |path: &std::path::Path| request.roots.iter().any(|root| path.starts_with(&root.path));
    let copied = |path: &std::path::Path| !request.out_of_sight(path) && !request.covers(path) && !in_root(path);
    for copied in request.own_copies.iter().filter(|path| copied(path)) {
        push(words, &["--own-copy".as_ref(), copied.as_os_str()]);
    }
    for cover in request.walls() {
        push(words, &["--cover".as_ref(), cover.path.as_os_str()]);
    }
}

pub(crate) fn state(request: &Request, proof: Proof) -> Statement {
    let abi = request.landlock_abi;
    let with_landlock = |layers: &[Layer], since: u32| {
        let mut layers = layers.to_vec();
        if abi >= since.max(1) {
            layers.push(Layer::Landlock);
        }
        layers
    };
    let mut lines = Lines::new(request, Layer::MountTree);
    if abi == 0 {
        let note = "Named FIFOs take what the user may write to them, although their file system is read-only: without \
                    Landlock nothing refuses it.";
        lines.partial(G::WriteContent, &[Layer::MountTree], note);
    } else {
        lines.shown(G::WriteContent, &with_landlock(&[Layer::MountTree], 3), proof.content);
    }
    lines
        .shown(G::WriteMetadata, &[Layer::MountTree], proof.metadata)
        .shown(G::WriteViaLinks, &with_landlock(&[Layer::MountTree], 1), proof.links)
        .brokered(request, proof)
        .shown(G::InheritedFds, &[Layer::Hygiene], proof.inherited)
        .checked(G::Privilege, &[Layer::Capabilities, Layer::Hygiene, Layer::Seccomp])
        .checked(G::KernelInterfaces, &with_landlock(&[Layer::MountTree, Layer::Capabilities], 1))
        .shown(G::ProcessVisibility, &[Layer::PidNamespace], proof.process_root)
        .signals(request.terminal, &with_landlock(&[Layer::PidNamespace], 6))
        .shown(G::PtraceOut, &with_landlock(&[Layer::PidNamespace], 1), proof.process_root)
        .sockets(request, Layer::MountTree)
        .terminal(request.terminal, &[Layer::Hygiene, Layer::MountTree, Layer::Seccomp])
        .checked(G::Descendants, &[Layer::PidNamespace])
        .checked(G::ControlPlane, &with_landlock(&[Layer::MountTree, Layer::PidNamespace], 1))
        .note(G::ControlPlane, CONTROL_PLANE);
    if request.is_brokered() {
        let note = "Calls that change names or open files for writing are performed by the broker: behind its decisions stand \
                    the mount tree and its own check of FIFOs, not Landlock.";
        lines.note(G::WriteContent, note);
    }
    let mut notes = Vec::new();
    let covered = request.covered();
    let temp = if !request.writes() {
        lines.not_asked(G::TempPrivate, NO_TEMP);
        notes.push(NO_TEMP.to_owned());
        TempView::None
    } else if covered.len() < request.shared_temps.len() || covered.is_empty() {
        let note = "A shared temp directory of the host is itself a writable root, or none exists.";
        lines.partial(G::TempPrivate, &[Layer::MountTree], note);
        temp_view(request)
    } else {
        lines.checked(G::TempPrivate, &[Layer::MountTree]);
        temp_view(request)
    };
    if abi == 0 {
        notes.push("This kernel offers no Landlock: the mount tree is the only wall around files.".to_owned());
    }
    Statement { temp, guarantees: lines.0, notes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::StatusTo;
    use crate::plan::golden::{self, check, root};
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
        let request = golden::request(ConfinedMode::ReadOnly);
        check("linux_namespace/golden/read-only.txt", &plan(&request), &state(&request, ALL));
        let mut request = golden::request(ConfinedMode::WorkspaceWrite);
        request.status = StatusTo::Descriptor(100);
        check("linux_namespace/golden/workspace-write.txt", &plan(&request), &state(&request, ALL));
        request.landlock_abi = 0;
        request.cwd = None;
        request.terminal = true;
        request.status = StatusTo::File("/run/s t".into());
        check("linux_namespace/golden/without-landlock.txt", &plan(&request), &state(&request, ALL));
        let mut brokered = golden::request(ConfinedMode::WorkspaceWrite);
        brokered.closed.protected = Some(golden::protected());
        check("linux_namespace/golden/protected.txt", &plan(&brokered), &state(&brokered, ALL));
        let request = golden::closed_request(ConfinedMode::WorkspaceWrite);
        check("linux_namespace/golden/closed.txt", &plan(&request), &state(&request, ALL));
    }

    /// W23, W45: in a session, `/tmp` is the session's own directory.
    #[test]
    fn a_session_s_temp_takes_the_place_of_an_empty_one() {
        let mut request = golden::request(ConfinedMode::WorkspaceWrite);
        request.session_temps = vec![("/tmp".into(), root("/run/p/temp/session-1/tmp", 31))];
        let cover = crate::closed::Cover { path: "/run/p/temp".into(), directory: true };
        request.other_temps = Some(cover);
        check("linux_namespace/golden/session.txt", &plan(&request), &state(&request, ALL));
    }

    #[test]
    fn a_shared_temp_directory_that_is_a_root_is_not_covered() {
        let mut request = golden::request(ConfinedMode::WorkspaceWrite);
        request.roots = vec![root("/tmp", 3)];
        let words = plan(&request);
        assert!(words.windows(2).any(|pair| pair[0] == "--private" && pair[1] == "/var/tmp"));
        assert!(!words.windows(2).any(|pair| pair[0] == "--private" && pair[1] == "/tmp"));
        assert!(words.contains(&"TMPDIR=/var/tmp".into()));
        request.roots = vec![root("/tmp/ws", 3)];
        assert!(request.hides(std::path::Path::new("/tmp/other")) && !request.hides(std::path::Path::new("/tmp/ws/x")));
    }
}
