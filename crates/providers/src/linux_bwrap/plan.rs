//! Bubblewrap's arguments, the words for the launcher inside, and what both promise.

use crate::launcher::push;
use crate::plan::{CONTROL_PLANE, Lines, NO_TEMP, Proof, Request, Statement, StatusTo, temp_view};
use pinfold_policy::{Guarantee as G, Layer, Network, TempView};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// More arguments than this in all, the command's included, and bubblewrap refuses to start.
///
/// QUIRK: undocumented; `MAX_ARGS` in bubblewrap.c, and the field case B095.
pub(crate) const MAX_ARGUMENTS: usize = 9000;

/// Which of the hardening arguments this host's bubblewrap takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Features {
    /// `--disable-userns`.
    pub(crate) disable_userns: bool,
    /// `--remount-ro /proc`; without it, `/proc/sys` alone is bound read-only.
    pub(crate) remount_proc: bool,
}

/// Every combination, the strongest first.
pub(crate) const LADDER: [Features; 4] = [
    Features { disable_userns: true, remount_proc: true },
    Features { disable_userns: true, remount_proc: false },
    Features { disable_userns: false, remount_proc: true },
    Features { disable_userns: false, remount_proc: false },
];

/// Bubblewrap's own arguments, without the program and up to but without `--`. `visible` are files of ours that must be
/// seen inside although a private temp directory may cover them; of `reporting` the same holds, and it is written.
pub(crate) fn outer(
    request: &Request,
    features: Features,
    visible: &[PathBuf],
    reporting: Option<&Path>,
) -> Vec<OsString> {
    let mut words = Vec::new();
    push(&mut words, &["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
    push(&mut words, &["--cap-drop", "ALL", "--new-session", "--die-with-parent"]);
    if features.disable_userns {
        push(&mut words, &["--disable-userns"]);
    }
    if request.closed.network != Network::Open {
        push(&mut words, &["--unshare-net"]);
    }
    push(&mut words, &["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    if features.remount_proc {
        push(&mut words, &["--remount-ro", "/proc"]);
    } else {
        push(&mut words, &["--ro-bind", "/proc/sys", "/proc/sys"]);
    }
    let bind = |words: &mut Vec<OsString>, how: &str, from: &Path, to: &Path| {
        push(words, &[how.as_ref(), from.as_os_str(), to.as_os_str()]);
    };
    if request.writes() {
        for place in request.fresh().iter().map(|path| path.as_path()).chain([Path::new("/dev/shm")]) {
            if let Some(most) = request.bounds.temp {
                push(&mut words, &["--size", &most.to_string()]);
            }
            push(&mut words, &["--perms".as_ref(), "1777".as_ref(), "--tmpfs".as_ref(), place.as_os_str()]);
        }
        for (at, directory) in request.lasting() {
            bind(&mut words, "--bind", &directory.path, at);
        }
    }
    // Not before shared memory has its place in it.
    push(&mut words, &["--remount-ro", "/dev"]);
    let hollows = request.hollows();
    for hollow in &hollows {
        push(&mut words, &["--perms".as_ref(), "0700".as_ref(), "--tmpfs".as_ref(), hollow.as_os_str()]);
    }
    for kept in request.keeps() {
        bind(&mut words, "--ro-bind", kept, kept);
    }
    for root in request.attached() {
        bind(&mut words, "--bind", &root.path, &root.path);
    }
    for path in visible.iter().filter(|path| request.out_of_sight(path)) {
        bind(&mut words, "--ro-bind", path, path);
    }
    if let Some(path) = reporting {
        bind(&mut words, "--bind", path, path);
    }
    for cover in request.walls() {
        if cover.directory {
            push(&mut words, &["--perms".as_ref(), "0000".as_ref(), "--tmpfs".as_ref(), cover.path.as_os_str()]);
            push(&mut words, &["--remount-ro".as_ref(), cover.path.as_os_str()]);
        } else {
            // Bound without devices, so that it cannot even be opened.
            bind(&mut words, "--ro-bind", Path::new("/dev/null"), &cover.path);
        }
    }
    for hollow in hollows {
        push(&mut words, &["--remount-ro".as_ref(), hollow.as_os_str()]);
    }
    if let Some(cwd) = &request.cwd {
        push(&mut words, &["--chdir".as_ref(), cwd.as_os_str()]);
    }
    words
}

/// The words for the launcher inside.
pub(crate) fn inner(request: &Request) -> Vec<OsString> {
    let mut words = Vec::new();
    push(
        &mut words,
        &[
            "--wall",
            "landlock",
            "--landlock",
            &request.landlock_abi.to_string(),
            "--supervise",
            "--restore",
            "--own-ipc",
            "--mounted",
            "--guarded",
        ],
    );
    if !request.writes() {
        push(&mut words, &["--deny-metadata"]);
    }
    request.push_roots(&mut words);
    let covered = request.covered();
    for path in &covered {
        push(&mut words, &["--private".as_ref(), path.as_os_str()]);
    }
    if request.writes() {
        push(&mut words, &["--shm"]);
    }
    if request.closed.network != Network::Open {
        push(&mut words, &["--network", request.closed.network.as_str()]);
    }
    request.push_rest(&mut words, covered.first().map(|path| path.as_path()));
    // QUIRK: bubblewrap sets PWD to the path as it was written, and bash takes `link/..` there for the directory that holds
    // the link (variables.c of bash, `set_pwd`), although it stands elsewhere.
    if request.cwd.as_ref().is_some_and(|cwd| cwd.components().any(|part| part == Component::ParentDir)) {
        push(&mut words, &["--unset", "PWD"]);
    }
    words
}

pub(crate) fn state(request: &Request, features: Features, proof: Proof) -> Statement {
    const BOTH: &[Layer] = &[Layer::Bubblewrap, Layer::Landlock];
    let abi = request.landlock_abi;
    let mut lines = Lines::new(request, Layer::Bubblewrap);
    lines
        .shown(G::WriteContent, BOTH, proof.content)
        .shown(G::WriteViaLinks, BOTH, proof.links)
        .shown(G::InheritedFds, &[Layer::Hygiene], proof.inherited)
        .checked(G::Privilege, &[Layer::Capabilities, Layer::Hygiene, Layer::Seccomp])
        .checked(G::KernelInterfaces, BOTH)
        .shown(G::ProcessVisibility, &[Layer::Bubblewrap], proof.process_root)
        .signals(request.terminal, if abi >= 6 { BOTH } else { &[Layer::Bubblewrap] })
        .shown(G::PtraceOut, BOTH, proof.process_root)
        .sockets(request, Layer::Bubblewrap)
        .terminal(request.terminal, &[Layer::Hygiene, Layer::Bubblewrap, Layer::Seccomp])
        .checked(G::Descendants, &[Layer::Bubblewrap]);
    // SECURITY: bubblewrap's is the PID namespace's first process; our launcher is one among the command's.
    if abi >= 6 {
        lines.checked(G::ControlPlane, BOTH);
    } else {
        let note = "Landlock before ABI 6 does not keep signals inside: the command can end the launcher beside it, and with \
                    it the call; how the call ended is then not told.";
        lines.partial(G::ControlPlane, BOTH, note);
    }
    lines.note(G::ControlPlane, CONTROL_PLANE);
    if !request.writes() {
        lines.shown(G::WriteMetadata, &[Layer::Bubblewrap], proof.metadata);
    } else {
        // QUIRK: they are mounts of the host's nodes and writable as such; see `start::own_devices`. In read-only the filter
        // refuses the calls.
        let note = "Times of the host's device nodes that everybody may write to (/dev/null, /dev/zero, ...) can be set to now.";
        lines.partial(G::WriteMetadata, &[Layer::Bubblewrap], note);
    }
    if !features.disable_userns {
        lines.note(G::Privilege, "Bubblewrap could not disable nested user namespaces; the call filter refuses them.");
    }
    if matches!(request.status, StatusTo::File(_)) && request.writes() {
        let note =
            "The status file's content cannot be forged unseen, but its mode and times can be changed from inside.";
        lines.partial(G::ControlPlane, BOTH, note).partial(G::WriteMetadata, &[Layer::Bubblewrap], note);
    }
    let mut notes = Vec::new();
    let covered = request.covered();
    let temp = if !request.writes() {
        lines.not_asked(G::TempPrivate, NO_TEMP);
        notes.push(NO_TEMP.to_owned());
        TempView::None
    } else {
        if covered.is_empty() || covered.len() < request.shared_temps.len() {
            let note = "A shared temp directory of the host is itself a writable root, or none exists.";
            lines.partial(G::TempPrivate, &[Layer::Bubblewrap], note);
        } else {
            lines.checked(G::TempPrivate, &[Layer::Bubblewrap]);
        }
        temp_view(request)
    };
    if request.cwd.is_none() {
        let note = "The call names no working directory: where the caller's does not exist inside, bubblewrap starts the \
                    command elsewhere.";
        notes.push(note.to_owned());
    }
    Statement { temp, guarantees: lines.0, notes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launcher::prefix;
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

    fn whole(request: &Request, features: Features) -> Vec<OsString> {
        let launcher = Path::new("/tmp/b/pinfold-run");
        let mut words = outer(request, features, &[launcher.into()], None);
        words.push("--".into());
        words.extend(prefix(launcher, inner(request)));
        words
    }

    #[test]
    fn plans_are_as_shown() {
        let request = golden::request(ConfinedMode::ReadOnly);
        let words = whole(&request, LADDER[0]);
        check("linux_bwrap/golden/read-only.txt", &words, &state(&request, LADDER[0], ALL));
        let request = golden::request(ConfinedMode::WorkspaceWrite);
        let words = whole(&request, LADDER[3]);
        check("linux_bwrap/golden/workspace-write.txt", &words, &state(&request, LADDER[3], ALL));
        let request = Request { landlock_abi: 2, ..request };
        let words = whole(&request, LADDER[0]);
        check("linux_bwrap/golden/second-abi.txt", &words, &state(&request, LADDER[0], ALL));
        let request = golden::closed_request(ConfinedMode::WorkspaceWrite);
        let words = whole(&request, LADDER[0]);
        check("linux_bwrap/golden/closed.txt", &words, &state(&request, LADDER[0], ALL));
    }

    #[test]
    fn a_session_s_temp_takes_the_place_of_an_empty_one() {
        let mut request = golden::request(ConfinedMode::WorkspaceWrite);
        request.session_temps = vec![("/tmp".into(), root("/run/p/temp/session-1/tmp", 31))];
        request.other_temps = Some(crate::closed::Cover { path: "/run/p/temp".into(), directory: true });
        let words = whole(&request, LADDER[0]);
        check("linux_bwrap/golden/session.txt", &words, &state(&request, LADDER[0], ALL));
    }

    #[test]
    fn the_launcher_stays_visible_below_a_covered_directory() {
        let mut request = golden::request(ConfinedMode::WorkspaceWrite);
        request.roots = vec![root("/tmp/w", 1)];
        let count = |visible: &str| {
            let words = outer(&request, LADDER[0], &[visible.into()], None);
            words.iter().filter(|word| *word == visible).count()
        };
        assert_eq!((count("/tmp/b/x"), count("/opt/x"), count("/tmp/w/x")), (2, 0, 0));
    }
}
