//! Finding `pinfold-broker`, and its words. It is started in the launcher's place and starts the launcher.

use crate::backend::Backend;
use crate::launcher::push;
use crate::plan::{Request, StatusTo, push_root};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The file name of the broker, which lies beside the launcher.
const NAME: &str = "pinfold-broker";
pub(crate) const REMEDY: &str = "install pinfold-broker beside pinfold-run";
/// Descriptors under which the launcher finds what the broker passes on: its socket, and a status file.
pub(crate) const SOCKET: &str = "98";
const STATUS: i32 = 97;

/// Returns where the broker ought to be.
pub(crate) fn expected_path(launcher: &Result<PathBuf, String>) -> Result<PathBuf, String> {
    launcher.as_ref().map(|launcher| launcher.with_file_name(NAME)).map_err(Clone::clone)
}

/// The request as the launcher sees it behind the broker, which opens a status file itself: where Landlock alone stands,
/// nobody behind it could.
pub(crate) fn passed_on(request: &Request) -> Request {
    let mut request = request.clone();
    if matches!(request.status, StatusTo::File(_)) {
        request.status = StatusTo::Descriptor(STATUS);
    }
    request
}

/// The start of a brokered argv, up to and with the `--` before the launcher.
pub(crate) fn prefix(broker: &Path, backend: Backend, request: &Request) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![broker.into()];
    let wall = if backend == Backend::Landlock { "landlock" } else { "namespace" };
    push(&mut words, &["--spec", "1", "--wall", wall]);
    for root in &request.roots {
        push(&mut words, &["--root".as_ref(), root.path.as_os_str()]);
    }
    if backend == Backend::Landlock {
        request.attached().into_iter().chain(&request.temp).for_each(|root| push_root(&mut words, root));
    }
    if let Some(protected) = &request.closed.protected {
        protected.push(&mut words);
    }
    if let Some(sockets) = request.closed.sockets.as_ref().filter(|_| request.connects_by_broker()) {
        push(&mut words, &["--connections"]);
        for path in sockets.allowed.iter().chain(&sockets.absent) {
            push(&mut words, &["--connect".as_ref(), path.as_os_str()]);
        }
        // SECURITY: without a mount tree the temp area may lie on a root's file system, and what somebody outside has bound
        // there can be moved or linked into it.
        let temp = if backend == Backend::Landlock { "--connect-new" } else { "--connect-temp" };
        for path in request.own_temps(backend != Backend::Landlock) {
            push(&mut words, &[temp.as_ref(), path.as_os_str()]);
        }
        for root in &request.roots {
            push(&mut words, &["--connect-new".as_ref(), root.path.as_os_str()]);
        }
    }
    if let Some(asks) = &request.asks {
        let (number, seconds) = (asks.descriptor.to_string(), asks.seconds.to_string());
        push(&mut words, &["--ask-fd", &number, "--ask-seconds", &seconds]);
        for path in &asks.never {
            push(&mut words, &["--never-ask".as_ref(), path.as_os_str()]);
        }
    }
    if request.observed {
        push(&mut words, &["--observe"]);
    }
    match &request.status {
        StatusTo::Nowhere => {}
        StatusTo::Descriptor(number) => push(&mut words, &["--status-fd", &number.to_string()]),
        StatusTo::File(path) => push(&mut words, &["--status-file".as_ref(), path.as_os_str()]),
    }
    words.push("--".into());
    words
}
