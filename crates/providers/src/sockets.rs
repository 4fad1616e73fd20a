//! Unix sockets by path that lead to processes outside: where they are on this host, and how they are hidden.
//!
//! Three sources: the kernel's list of bound sockets (of our network namespace), places where the services that
//! matter listen whatever their namespace is, and what variables point at. Directories in which such sockets come and
//! go are closed as a whole, so that one which appears later is hidden as well. What appears elsewhere after the
//! start is not, and reports say so; nor is a socket that no known name leads to, and reports count those.
//!
//! With the broker before a call they are hidden all the same, and it looks at each connection by path.
//!
//! References: unix(7), sock_diag(7), proc_net(5) (`/proc/net/unix`).

mod lines;
mod list;

use crate::closed::{Cover, outermost, physical};
use crate::lookup::reachable;
use crate::plan::Request;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// What hides the sockets of one call. Every path is physical.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SocketWalls {
    /// Single sockets, and directories of sockets.
    pub(crate) covers: Vec<Cover>,
    /// Directories that appear empty.
    pub(crate) hollows: Vec<PathBuf>,
    /// What stays visible in a directory that appears empty, or in one that a private temp directory covers.
    pub(crate) keeps: Vec<PathBuf>,
    /// What the caller allows; a directory stands for everything below it.
    pub(crate) allowed: Vec<PathBuf>,
    /// What the caller allows and does not exist.
    pub(crate) absent: Vec<PathBuf>,
    /// Sockets in a writable root that were bound when the call began, so not by the command.
    pub(crate) in_roots: Vec<PathBuf>,
    /// Hidden sockets that have a second name somewhere (a hard link).
    pub(crate) linked: Vec<PathBuf>,
    /// How many sockets are bound to a file whose name nobody found; none where the kernel does not say.
    pub(crate) lost: Option<usize>,
}

impl SocketWalls {
    /// Whether a wall stands at a path or above it.
    pub(crate) fn close(&self, path: &Path) -> bool {
        self.covers.iter().any(|cover| path.starts_with(&cover.path)) || self.hollowed(path)
    }

    /// Whether a path is out of sight in a directory that appears empty. The directory itself is there.
    pub(crate) fn hollowed(&self, path: &Path) -> bool {
        self.hollows.iter().any(|hollow| path != hollow && path.starts_with(hollow))
            && !self.keeps.iter().any(|kept| path.starts_with(kept))
    }

    pub(crate) fn allow(&self, path: &Path) -> bool {
        self.allowed.iter().any(|allowed| path.starts_with(allowed))
    }
}

/// Directories below `/run` that hold sockets of services with more power than a command.
const SERVICES: [&str; 12] = [
    "dbus",
    "docker",
    "containerd",
    "podman",
    "crio",
    "buildkit",
    "libvirt",
    "lxd",
    "incus",
    "screen",
    "screens",
    "tmux",
];

/// Sockets below `/run`, of services that may live in another network namespace.
const SERVICE_SOCKETS: [&str; 6] =
    ["docker.sock", "systemd/private", "systemd/notify", "snapd.socket", "snapd-snap.socket", "acpid.socket"];

/// Sockets below the home directory.
const HOME_SOCKETS: [&str; 7] = [
    ".docker/run/docker.sock",
    ".docker/desktop/docker.sock",
    ".colima/docker.sock",
    ".colima/default/docker.sock",
    ".rd/docker.sock",
    ".orbstack/run/docker.sock",
    ".1password/agent.sock",
];

/// Directories of sockets below the home directory: of ssh agents, editors and multiplexers.
const HOME_DIRECTORIES: [&str; 3] = [".ssh/agent", ".emacs.d/server", ".screen"];

/// How names begin of what holds sockets, or is one, in a shared temp directory.
const TEMP_NAMES: [&str; 11] = [
    "tmux-",
    "ssh-",
    ".X11-unix",
    ".ICE-unix",
    "screens",
    "uscreens",
    "emacs",
    "vscode-",
    "nvim.",
    "gpg-",
    "podman-run-",
];

/// A temp directory with more such names than this appears empty.
const MOST_NAMED: usize = 100;

/// Finds the walls of a call that closes sockets. `inside` is what must stay visible: the workspace, the working
/// directory.
pub(crate) fn walls(request: &Request, inside: &[PathBuf], allowed: &[PathBuf]) -> SocketWalls {
    let mut walls = allowed_alone(allowed);
    let view = View {
        request,
        roots: request.roots.iter().map(|root| root.path.as_path()).collect(),
        inside,
        home: std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute()).map(|home| physical(&home)),
    };
    for directory in view.runtime_directories() {
        view.close_directory(&mut walls, directory, false);
    }
    // SECURITY: anybody can make such names. Walls for thousands of them would use up what the launcher has.
    for temp in view.crowded_temps() {
        view.close_directory(&mut walls, temp, false);
    }
    for directory in view.socket_directories() {
        view.close_directory(&mut walls, directory, true);
    }
    let mut single = Vec::new();
    let listed = list::found();
    walls.lost = listed.lost;
    for socket in view.sockets(listed.names) {
        if view.roots.iter().any(|root| socket.starts_with(root)) && !walls.allow(&socket) {
            walls.in_roots.push(socket);
        } else if view.is_outside(&socket) && !walls.allow(&socket) {
            if socket.metadata().is_ok_and(|file| file.nlink() > 1) {
                walls.linked.push(socket.clone());
            }
            if !walls.close(&socket) {
                single.push(Cover { path: socket, directory: false });
            }
        }
    }
    walls.covers.append(&mut single);
    walls.covers = outermost(std::mem::take(&mut walls.covers));
    for path in walls.allowed.clone() {
        if request.hides(&path) {
            walls.keeps.push(path);
        }
    }
    walls.keeps.sort();
    walls.keeps.dedup();
    walls
}

/// The same without anything to hide: where nobody can, and the broker looks at each connection.
pub(crate) fn allowed_alone(allowed: &[PathBuf]) -> SocketWalls {
    let mut walls = SocketWalls::default();
    for path in allowed {
        match path.canonicalize() {
            Ok(path) => walls.allowed.push(path),
            Err(_) => walls.absent.push(physical(path)),
        }
    }
    walls
}

struct View<'a> {
    request: &'a Request,
    roots: HashSet<&'a Path>,
    inside: &'a [PathBuf],
    home: Option<PathBuf>,
}

impl View<'_> {
    /// Whether a path is visible inside and does not lie in a place of the command's own.
    fn is_outside(&self, path: &Path) -> bool {
        let made_anew = ["/dev", "/proc"].iter().any(|tree| path.starts_with(tree));
        let own = path.ancestors().any(|above| self.roots.contains(above));
        !made_anew && !own && !self.request.hides(path) && reachable(path)
    }

    /// Closes a directory as a whole, except for what must stay visible in it.
    fn close_directory(&self, walls: &mut SocketWalls, directory: PathBuf, cover: bool) {
        let taken = walls.close(&directory) || walls.hollows.contains(&directory);
        if taken || walls.allow(&directory) || !self.is_outside(&directory) || self.inside.contains(&directory) {
            return;
        }
        let roots = self.request.roots.iter().map(|root| &root.path);
        let mut kept: Vec<PathBuf> = roots.chain(self.inside).chain(&walls.allowed).cloned().collect();
        kept.retain(|path| path.starts_with(&directory) && path.exists());
        if kept.is_empty() && cover {
            walls.covers.push(Cover { path: directory, directory: true });
        } else {
            walls.hollows.push(directory);
            walls.keeps.append(&mut kept);
        }
    }

    /// The user's runtime directories: one user's sockets and little else.
    fn runtime_directories(&self) -> Vec<PathBuf> {
        let user = rustix::process::geteuid().as_raw();
        let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let usual = Some(PathBuf::from(format!("/run/user/{user}")));
        let mut found: Vec<PathBuf> = Vec::new();
        for path in [usual, named].into_iter().flatten() {
            let Ok(path) = path.canonicalize() else { continue };
            // A variable must not make the home directory, or half the system, disappear.
            let private = path.metadata().is_ok_and(|found| found.uid() == user && found.mode() & 0o077 == 0);
            let more = self.home.iter().chain(&self.request.shared_temps).any(|place| place.starts_with(&path));
            if private && !more && path.components().count() > 2 && !found.contains(&path) {
                found.push(path);
            }
        }
        found
    }

    /// Other directories that are closed as a whole.
    fn socket_directories(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for base in ["/run", "/var/run"] {
            found.extend(SERVICES.iter().map(|name| Path::new(base).join(name)));
        }
        found.extend(self.in_temps());
        found.extend(self.home.iter().flat_map(|home| HOME_DIRECTORIES.map(|name| home.join(name))));
        let mut found: Vec<_> = found.iter().filter_map(|path| path.canonicalize().ok()).collect();
        found.retain(|path| path.is_dir());
        found.sort();
        found.dedup();
        found
    }

    fn visible_temps(&self) -> impl Iterator<Item = &PathBuf> {
        self.request.shared_temps.iter().filter(|temp| !self.request.hides(temp))
    }

    fn in_temps(&self) -> Vec<PathBuf> {
        self.visible_temps().flat_map(|temp| named_in(temp)).collect()
    }

    /// Temp directories that appear empty as a whole, because too much in them has the name of a socket's place.
    fn crowded_temps(&self) -> Vec<PathBuf> {
        self.visible_temps().filter(|temp| named_in(temp).nth(MOST_NAMED).is_some()).cloned().collect()
    }

    /// Every socket that can be found, physical, once; `found` is what the kernel names.
    fn sockets(&self, mut found: Vec<PathBuf>) -> Vec<PathBuf> {
        for base in ["/run", "/var/run"] {
            found.extend(SERVICE_SOCKETS.iter().map(|name| Path::new(base).join(name)));
        }
        found.extend(self.in_temps());
        if let Some(home) = &self.home {
            found.extend(HOME_SOCKETS.iter().map(|name| home.join(name)));
            let agents = std::fs::read_dir(home.join(".gnupg")).into_iter().flatten().flatten();
            found.extend(agents.map(|entry| entry.path()));
        }
        found.extend(std::env::vars_os().filter_map(|(_, value)| named_by(&value)));
        // Only what can be examined can be reached: the command has no more rights than we.
        let mut found: Vec<_> = found.iter().filter_map(|path| path.canonicalize().ok()).collect();
        found.retain(|path| path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket()));
        found.sort();
        found.dedup();
        found
    }
}

/// What in a temp directory has the name of a socket's place.
fn named_in(temp: &Path) -> impl Iterator<Item = PathBuf> {
    let named = |name: &OsStr| TEMP_NAMES.iter().any(|start| name.as_bytes().starts_with(start.as_bytes()));
    let entries = std::fs::read_dir(temp).into_iter().flatten().flatten();
    entries.filter(move |entry| named(&entry.file_name())).map(|entry| entry.path())
}

/// The socket that the value of a variable names, such as `unix:path=/run/bus,guid=…`.
fn named_by(value: &OsStr) -> Option<PathBuf> {
    let value = value.as_bytes();
    let path = [&b"unix:path="[..], b"unix://"].iter().find_map(|start| value.strip_prefix(*start)).unwrap_or(value);
    let path = path.split(|byte| matches!(byte, b',' | b';')).next()?;
    path.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::golden;
    use pinfold_policy::ConfinedMode;
    use std::os::unix::net::UnixListener;

    #[test]
    fn variables_name_sockets_in_several_spellings() {
        let named = |value: &str| named_by(OsStr::new(value));
        assert_eq!(named("unix:path=/run/bus,guid=1"), Some("/run/bus".into()));
        assert_eq!(named("unix:///run/docker.sock"), Some("/run/docker.sock".into()));
        assert_eq!(named("/tmp/tmux-0/default,12,0"), Some("/tmp/tmux-0/default".into()));
        assert_eq!(named("tcp://x"), None);
    }

    #[test]
    fn a_socket_outside_is_hidden_and_those_inside_or_allowed_are_not() {
        let base = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("ws")).unwrap();
        let names = ["out", "allowed", "ws/own"];
        let _held: Vec<_> = names.map(|name| UnixListener::bind(base.join(name)).unwrap()).into();
        let mut request = golden::request(ConfinedMode::WorkspaceWrite);
        request.roots = vec![golden::root(base.join("ws").to_str().unwrap(), 1)];
        // The checkout may lie below a shared temp directory, where nothing needs hiding.
        request.shared_temps.clear();
        let found = walls(&request, &[base.join("ws")], &[base.join("allowed"), base.join("none")]);
        assert!(found.close(&base.join("out")));
        assert!(!found.close(&base.join("allowed")) && !found.close(&base.join("ws/own")));
        assert_eq!(found.absent, [base.join("none")]);
        assert_eq!(found.in_roots, [base.join("ws/own")]);
    }

    #[test]
    fn a_temp_directory_full_of_names_appears_empty_as_a_whole() {
        let base = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("tmp")).unwrap();
        let mut request = golden::request(ConfinedMode::ReadOnly);
        request.roots.clear();
        request.shared_temps = vec![base.join("tmp")];
        for number in 0..=MOST_NAMED {
            let found = walls(&request, &[base.join("tmp/ws")], &[]);
            assert_eq!(
                (found.hollows.contains(&base.join("tmp")), found.hollowed(&base.join("tmp/x"))),
                (false, false)
            );
            assert_eq!(found.covers.iter().filter(|cover| cover.path.starts_with(&base)).count(), number);
            std::fs::create_dir(base.join(format!("tmp/tmux-{number}"))).unwrap();
        }
        let found = walls(&request, &[base.join("tmp/ws")], &[]);
        assert!(found.hollows.contains(&base.join("tmp")) && found.close(&base.join("tmp/tmux-7")));
        assert!(!found.covers.iter().any(|cover| cover.path.starts_with(&base)));
    }
}
