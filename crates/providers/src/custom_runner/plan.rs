//! The reference system's bubblewrap arguments, and what the canary showed of the runner behind them.

use crate::launcher::push;
use crate::plan::{Lines, NO_TEMP, Proof, Request, Statement};
use pinfold_policy::{Guarantee as G, Layer, TempView};
use std::ffi::OsString;
use std::path::PathBuf;

/// The runner's arguments, up to and with `--`.
pub(crate) fn plan(request: &Request, visible: &[PathBuf]) -> Vec<OsString> {
    let mut words = Vec::new();
    push(&mut words, &["--ro-bind", "/", "/", "--dev", "/dev", "--unshare-pid", "--proc", "/proc"]);
    push(&mut words, &["--die-with-parent"]);
    if request.writes() {
        push(&mut words, &["--tmpfs", "/tmp"]);
        for root in &request.roots {
            push(&mut words, &["--bind".as_ref(), root.path.as_os_str(), root.path.as_os_str()]);
        }
        for path in visible.iter().filter(|path| path.starts_with("/tmp")) {
            push(&mut words, &["--ro-bind".as_ref(), path.as_os_str(), path.as_os_str()]);
        }
    }
    if let Some(cwd) = &request.cwd {
        push(&mut words, &["--chdir".as_ref(), cwd.as_os_str()]);
    }
    words.push("--".into());
    words
}

pub(crate) fn state(request: &Request, proof: Proof) -> Statement {
    const UNKNOWN: &str = "An operator's own runner: nothing showed this.";
    const BROKEN: &str = "The probe could do this through the operator's runner.";
    let mut lines = Lines::new(request, Layer::Runner);
    for (guarantee, shown) in [
        (G::WriteContent, proof.content),
        (G::WriteMetadata, proof.metadata),
        (G::WriteViaLinks, proof.links),
        (G::InheritedFds, proof.inherited),
        (G::PtraceOut, proof.process_root),
    ] {
        if shown {
            lines.shown(guarantee, &[Layer::Runner], true);
        } else {
            lines.none(guarantee, BROKEN);
        }
    }
    for guarantee in [
        G::Privilege,
        G::KernelInterfaces,
        G::ProcessVisibility,
        G::SignalsOut,
        G::SocketsUnix,
        G::Terminal,
        G::Descendants,
        G::ControlPlane,
    ] {
        lines.none(guarantee, UNKNOWN);
    }
    let mut notes = vec!["The command is confined by an operator's own runner, on the operator's word.".to_owned()];
    let temp = if request.writes() {
        lines.none(G::TempPrivate, UNKNOWN);
        TempView::PrivateTmpfs { paths: vec!["/tmp".into()] }
    } else {
        lines.not_asked(G::TempPrivate, NO_TEMP);
        notes.push(NO_TEMP.to_owned());
        TempView::None
    };
    Statement { temp, guarantees: lines.0, notes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::golden::{self, check};
    use pinfold_policy::ConfinedMode;

    #[test]
    fn plans_are_as_shown() {
        let shown = Proof { content: true, metadata: true, links: true, ..Proof::default() };
        let mut request = golden::request(ConfinedMode::ReadOnly);
        request.cwd = None;
        check("custom_runner/golden/read-only.txt", &plan(&request, &[]), &state(&request, shown));
        let request = golden::request(ConfinedMode::WorkspaceWrite);
        let visible = ["/tmp/p".into(), "/opt/p".into()];
        check("custom_runner/golden/workspace-write.txt", &plan(&request, &visible), &state(&request, shown));
    }
}
