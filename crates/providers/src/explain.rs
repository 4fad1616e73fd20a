//! What would happen to a path, answered from the same grants as the plan.

use crate::backend::Backend;
use crate::closed::physical;
use crate::plan::Request;
use crate::sockets::SocketWalls;
use pinfold_policy::quote::quote;
use pinfold_policy::{Effect, Layer, SandboxPolicy};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Names what a command would do to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Change the content of what is there.
    Write,
    /// Create something there.
    Create,
    /// Remove what is there.
    Remove,
    /// Rename what is there, or something onto it.
    Rename,
    /// Change mode, owner, times, attributes or flags.
    ChangeMetadata,
    /// Read it.
    Read,
    /// Connect to a unix socket there.
    Connect,
}

/// Asks what would happen.
#[derive(Debug, Clone)]
pub struct Question {
    /// The absolute path.
    pub path: PathBuf,
    /// What is done to it.
    pub operation: Operation,
    /// The policy that would be in force.
    pub policy: SandboxPolicy,
}

/// Says what would happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ruling {
    /// The sandbox lets it through; the host's own permissions still apply.
    Allowed,
    /// The sandbox refuses it.
    Denied,
    /// No wall of this mechanism looks at it.
    NotGoverned,
}

/// Holds what would happen and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// What would happen.
    pub ruling: Ruling,
    /// The mechanism that was asked.
    pub backend: Backend,
    /// The path with every link resolved, as far as it exists.
    pub resolved: PathBuf,
    /// The rule that decides, a sentence.
    pub rule: String,
    /// The walls that decide.
    pub layers: Vec<Layer>,
}

/// Devices that every mode may write to; those of the launcher's Landlock rules.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];

/// Answers for one mechanism; looks at the disk only to resolve links.
pub(crate) fn answer(question: &Question, backend: Backend, request: &Request) -> Answer {
    let resolved = resolve(&question.path, question.operation);
    let (ruling, rule, layers) = rule(question.operation, backend, request, &resolved);
    Answer { ruling, backend, resolved, rule, layers }
}

fn rule(operation: Operation, backend: Backend, request: &Request, path: &Path) -> (Ruling, String, Vec<Layer>) {
    let walls: &[Layer] = match backend {
        Backend::Namespace if request.landlock_abi > 0 => &[Layer::MountTree, Layer::Landlock],
        Backend::Namespace => &[Layer::MountTree],
        Backend::Bwrap => &[Layer::Bubblewrap, Layer::Landlock],
        Backend::Landlock => &[Layer::Landlock],
        Backend::Custom => &[Layer::Runner],
        Backend::Unconfined => &[],
    };
    // Landlock alone cannot hide a path; the runner's dialect covers /tmp only.
    let hidden = match backend {
        Backend::Namespace | Backend::Bwrap => request.hides(path),
        Backend::Custom => request.hides(path) && path.starts_with("/tmp"),
        Backend::Landlock | Backend::Unconfined => false,
    };
    let answer = |ruling, rule: String, layers: &[Layer]| (ruling, rule, layers.to_vec());
    if backend == Backend::Unconfined {
        return answer(Ruling::NotGoverned, "Nothing is confined.".to_owned(), &[]);
    }
    if hidden {
        let lasting = request.lasting().iter().any(|(at, _)| path.starts_with(at));
        let rule = if lasting {
            "The session's own temp directory covers this path: inside, what its calls and file tools put there is here."
        } else {
            "A private temp directory covers this path: inside, another and at first empty directory is here."
        };
        let ruling = match operation {
            Operation::Read | Operation::Connect if !lasting => Ruling::Denied,
            _ => Ruling::Allowed,
        };
        return answer(ruling, rule.to_owned(), walls);
    }
    let walls_of_paths = &walls[..1];
    if let Some(denied) = request.closed.denied.closes(path) {
        return answer(Ruling::Denied, format!("The denied path {} hides it.", quote(denied)), walls_of_paths);
    }
    if let Some(absent) = request.closed.denied.awaits(path) {
        let rule = format!("The denied path {} does not exist, so nothing can be put over it.", quote(absent));
        return answer(Ruling::NotGoverned, rule, &[]);
    }
    if let Some(sockets) = &request.closed.sockets {
        if sockets.close(path) && !request.roots.iter().any(|root| path.starts_with(&root.path)) {
            let rule = "It is a socket of processes outside, or lies among such sockets, and is hidden.";
            return answer(Ruling::Denied, rule.to_owned(), walls_of_paths);
        }
        if operation == Operation::Connect && request.connects_by_broker() {
            let (ruling, rule) = brokered_connection(backend, request, sockets, path);
            return answer(ruling, rule.to_owned(), &[Layer::Broker]);
        }
        if operation == Operation::Connect {
            let rule = if sockets.allow(path) {
                "This socket is allowed."
            } else if request.roots.iter().any(|root| path.starts_with(&root.path)) {
                "Sockets in a writable root are the command's own."
            } else {
                "No socket of a process outside is known here; one that appears later can be connected to."
            };
            let ruling = if rule.starts_with("No ") { Ruling::NotGoverned } else { Ruling::Allowed };
            return answer(ruling, rule.to_owned(), &[]);
        }
    }
    match operation {
        Operation::Read => {
            return answer(Ruling::NotGoverned, "Reading is open wherever the user may read.".to_owned(), &[]);
        }
        Operation::Connect => {
            return answer(Ruling::NotGoverned, "Sockets by path can be connected to.".to_owned(), &[]);
        }
        _ => {}
    }
    if operation == Operation::Write && DEVICES.iter().any(|device| path == Path::new(device)) {
        return answer(Ruling::Allowed, "This device may be written to in every mode.".to_owned(), walls);
    }
    let pinned = request.between.iter().any(|pinned| pinned.path == path);
    if pinned && matches!(operation, Operation::Remove | Operation::Rename) {
        let rule = "It leads to another writable root or to a denied path, and stays where it is.";
        return answer(Ruling::Denied, rule.to_owned(), walls_of_paths);
    }
    if let Some(protected) = request.closed.protected.as_ref().filter(|_| request.is_brokered()) {
        let effect = if operation == Operation::Create { Effect::Create } else { Effect::Alter };
        let exists = |path: &Path| path.symlink_metadata().is_ok();
        if let Some(rule) = protected.names(&request.roots).rule_on(path, effect, &exists) {
            return answer(Ruling::Denied, format!("It is a protected name ({rule})."), &[Layer::Broker]);
        }
    }
    let inner = request.roots.iter().rev().find(|root| path.starts_with(&root.path));
    if let Some(root) = inner {
        let names_itself = path == root.path && matches!(operation, Operation::Remove | Operation::Rename);
        if !names_itself {
            let rule = format!("It lies in the writable root {}.", quote(&root.path));
            return answer(Ruling::Allowed, rule, walls);
        }
        let rule = format!("It is the writable root {} itself, which stays where it is.", quote(&root.path));
        return answer(Ruling::Denied, rule, walls);
    }
    if request.writes() && path.starts_with("/dev/shm") && matches!(backend, Backend::Namespace | Backend::Bwrap) {
        return answer(Ruling::Allowed, "Shared memory is private to the call.".to_owned(), walls);
    }
    if operation == Operation::ChangeMetadata && backend == Backend::Landlock {
        return if request.is_brokered() {
            let rule = format!("It lies in no writable root under {} mode.", request.mode);
            answer(Ruling::Denied, rule, &[Layer::Broker])
        } else if request.writes() {
            let rule = "Landlock has no right for metadata, and in this mode nothing else looks at it.";
            answer(Ruling::NotGoverned, rule.to_owned(), &[])
        } else {
            answer(Ruling::Denied, "Every call that changes metadata is refused.".to_owned(), &[Layer::Seccomp])
        };
    }
    let rule = if request.writes() {
        format!("It lies in no writable root under {} mode.", request.mode)
    } else {
        format!("Nothing is writable under {} mode.", request.mode)
    };
    answer(Ruling::Denied, rule, walls)
}

/// What the broker would say about a connection by path.
fn brokered_connection(
    backend: Backend,
    request: &Request,
    sockets: &SocketWalls,
    path: &Path,
) -> (Ruling, &'static str) {
    let own_temps = request.own_temps(backend != Backend::Landlock);
    let moved_into = backend == Backend::Landlock && own_temps.iter().any(|temp| path.starts_with(temp));
    if sockets.allow(path) || sockets.absent.iter().any(|allowed| path.starts_with(allowed)) {
        (Ruling::Allowed, "This socket is allowed.")
    } else if moved_into || request.roots.iter().any(|root| path.starts_with(&root.path)) {
        if path.exists() {
            (Ruling::Denied, "It was there before the command, so it is not the command's own.")
        } else {
            (Ruling::Allowed, "Sockets that are bound in a writable place after the start are the command's own.")
        }
    } else if own_temps.iter().any(|temp| path.starts_with(temp)) {
        (Ruling::Allowed, "Sockets in the temp area are the command's own.")
    } else {
        (Ruling::Denied, "It lies neither in a writable root nor in the temp area.")
    }
}

/// Resolves links as far as the path exists. Removing and renaming are about the name itself: its last link stays.
fn resolve(path: &Path, operation: Operation) -> PathBuf {
    if matches!(operation, Operation::Remove | Operation::Rename)
        && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
    {
        return physical(parent).join(name);
    }
    physical(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::golden;
    use pinfold_policy::ConfinedMode;

    fn ruling(mode: ConfinedMode, backend: Backend, operation: Operation, path: &str) -> Ruling {
        let question = Question { path: path.into(), operation, policy: SandboxPolicy::new(mode, "/data/a b") };
        answer(&question, backend, &golden::request(mode)).ruling
    }

    #[test]
    fn roots_sinks_temp_and_the_rest_are_told_apart() {
        use ConfinedMode::{ReadOnly, WorkspaceWrite};
        use Operation as O;
        for backend in [Backend::Namespace, Backend::Bwrap, Backend::Landlock] {
            assert_eq!(ruling(WorkspaceWrite, backend, O::Write, "/data/a b/x/y"), Ruling::Allowed);
            assert_eq!(ruling(ReadOnly, backend, O::Write, "/data/a b/x/y"), Ruling::Denied);
            assert_eq!(ruling(WorkspaceWrite, backend, O::Remove, "/data/a b"), Ruling::Denied);
            assert_eq!(ruling(WorkspaceWrite, backend, O::Create, "/data/a bc"), Ruling::Denied);
            assert_eq!(ruling(ReadOnly, backend, O::Write, "/dev/null"), Ruling::Allowed);
            assert_eq!(ruling(ReadOnly, backend, O::ChangeMetadata, "/dev/null"), Ruling::Denied);
            assert_eq!(ruling(ReadOnly, backend, O::Read, "/etc/passwd"), Ruling::NotGoverned);
        }
        assert_eq!(ruling(WorkspaceWrite, Backend::Namespace, O::Create, "/tmp/x"), Ruling::Allowed);
        assert_eq!(ruling(WorkspaceWrite, Backend::Landlock, O::Create, "/tmp/x"), Ruling::Denied);
        assert_eq!(ruling(WorkspaceWrite, Backend::Namespace, O::ChangeMetadata, "/etc/passwd"), Ruling::Denied);
        assert_eq!(ruling(WorkspaceWrite, Backend::Landlock, O::ChangeMetadata, "/etc/passwd"), Ruling::NotGoverned);
        assert_eq!(ruling(WorkspaceWrite, Backend::Unconfined, O::Write, "/etc/passwd"), Ruling::NotGoverned);
    }

    #[test]
    fn what_is_closed_beyond_the_mode_is_refused_with_its_rule() {
        let request = golden::closed_request(ConfinedMode::WorkspaceWrite);
        for (path, operation, expected) in [
            ("/home/u/.ssh/id", Operation::Read, Ruling::Denied),
            ("/home/u/.ssh", Operation::Read, Ruling::Denied),
            ("/home/u/.sshd", Operation::Read, Ruling::NotGoverned),
            ("/home/u/.netrc", Operation::Read, Ruling::NotGoverned),
            ("/data/a b/in/k e y", Operation::Write, Ruling::Denied),
            ("/data/a b/in", Operation::Rename, Ruling::Denied),
            ("/data/a b/other", Operation::Rename, Ruling::Allowed),
            ("/run/docker.sock", Operation::Connect, Ruling::Denied),
            ("/run/user/1000/bus", Operation::Connect, Ruling::Denied),
            ("/run/user/1000/agent", Operation::Connect, Ruling::Allowed),
            ("/data/a b/s", Operation::Connect, Ruling::Allowed),
            ("/srv/s", Operation::Connect, Ruling::NotGoverned),
        ] {
            let (ruling, rule, _) = rule(operation, Backend::Namespace, &request, Path::new(path));
            assert_eq!(ruling, expected, "{path}: {rule}");
        }
    }

    #[test]
    fn with_the_broker_only_own_and_allowed_sockets_are_open() {
        let mut request = golden::closed_request(ConfinedMode::WorkspaceWrite);
        request.closed.protected = Some(golden::protected());
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        request.roots.push(golden::root(place.to_str().unwrap(), 13));
        let _held = std::os::unix::net::UnixListener::bind(place.join("old")).unwrap();
        let (old, new) = (place.join("old"), place.join("new"));
        for (path, expected) in [
            (Path::new("/srv/s"), Ruling::Denied),
            (Path::new("/data/a b/s"), Ruling::Allowed),
            (Path::new("/run/user/1000/agent"), Ruling::Allowed),
            (&old, Ruling::Denied),
            (&new, Ruling::Allowed),
        ] {
            let (ruling, rule, _) = rule(Operation::Connect, Backend::Landlock, &request, path);
            assert_eq!(ruling, expected, "{path:?}: {rule}");
        }
    }

    #[test]
    fn a_link_is_followed_for_writing_and_not_for_removing() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc", base.join("link")).unwrap();
        assert_eq!(resolve(&base.join("link/none/x"), Operation::Write), Path::new("/etc/none/x"));
        assert_eq!(resolve(&base.join("link"), Operation::Remove), base.join("link"));
    }
}
