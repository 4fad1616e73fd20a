//! Names for sockets that people allow: where each is on this host.

use crate::surroundings::Surroundings;
use pinfold_policy::SandboxError;
use pinfold_policy::quote::quote;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Each name, and where its socket can be: `$NAME` for what a variable says, `~/` below the home directory, `@/` below the
/// runtime directory of the user.
const NAMES: [(&str, &[&str]); 10] = [
    ("ssh-agent", &["$SSH_AUTH_SOCK"]),
    ("gpg-agent", &["@/gnupg", "~/.gnupg/S.gpg-agent", "~/.gnupg/S.keyboxd"]),
    ("docker", &["$DOCKER_HOST", "/run/docker.sock", "@/docker.sock", "~/.docker/run/docker.sock"]),
    ("podman", &["$CONTAINER_HOST", "@/podman", "/run/podman"]),
    ("session-bus", &["$DBUS_SESSION_BUS_ADDRESS", "@/bus"]),
    ("system-bus", &["/run/dbus"]),
    ("wayland", &["@/$WAYLAND_DISPLAY"]),
    ("x11", &["/tmp/.X11-unix"]),
    ("tmux", &["$TMUX"]),
    ("editor", &["$VSCODE_IPC_HOOK_CLI", "$NVIM", "$EMACS_SOCKET_NAME"]),
];

/// Reads one word of `--allow-socket`: a name without a slash, or a path. A file of that name here is a path.
///
/// # Errors
///
/// `SANDBOX_INVALID_POLICY` for an unknown name, and for one whose socket cannot be found.
pub(crate) fn read(word: &OsStr, around: &Surroundings) -> Result<Vec<PathBuf>, SandboxError> {
    let path = around.absolute("--allow-socket", Path::new(word))?;
    if word.as_bytes().contains(&b'/') || path.symlink_metadata().is_ok() {
        return Ok(vec![path]);
    }
    let Some((name, places)) = NAMES.iter().find(|(name, _)| word == *name) else {
        let names = NAMES.map(|(name, _)| name).join(", ");
        let detail = format!("--allow-socket {} is neither a path nor one of: {names}", quote(word));
        return Err(SandboxError::InvalidPolicy { detail });
    };
    let found: Vec<PathBuf> = places.iter().filter_map(|place| find(place, around)).collect();
    if found.is_empty() {
        let detail = format!("--allow-socket {name}: none is found; looked at {}", places.join(", "));
        return Err(SandboxError::InvalidPolicy { detail });
    }
    Ok(found)
}

fn find(place: &str, around: &Surroundings) -> Option<PathBuf> {
    let path = if let Some(name) = place.strip_prefix('$') {
        named_by(&std::env::var_os(name)?)?
    } else if let Some(below) = place.strip_prefix("~/") {
        around.home.as_ref()?.join(below)
    } else if let Some(below) = place.strip_prefix("@/") {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let runtime =
            runtime.or_else(|| Some(format!("/run/user/{}", Path::new("/proc/self").metadata().ok()?.uid()).into()));
        match below.strip_prefix('$') {
            Some(name) => runtime?.join(std::env::var_os(name)?),
            None => runtime?.join(below),
        }
    } else {
        PathBuf::from(place)
    };
    path.exists().then_some(path)
}

/// The path in `unix:path=/run/bus,guid=…`, `unix:///run/docker.sock` or `/tmp/tmux-0/default,12,0`.
fn named_by(value: &OsString) -> Option<PathBuf> {
    let value = value.as_bytes();
    let path = [&b"unix:path="[..], b"unix://"].iter().find_map(|start| value.strip_prefix(*start)).unwrap_or(value);
    let path = path.split(|byte| matches!(byte, b',' | b';')).next()?;
    path.starts_with(b"/").then(|| OsStr::from_bytes(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around() -> Surroundings {
        Surroundings {
            current: Ok("/nowhere".into()),
            home: Some("/nowhere/home".into()),
            named_home: None,
            own: vec![],
        }
    }

    #[test]
    fn a_name_is_looked_up_and_a_path_is_taken() {
        assert_eq!(read("x/s".as_ref(), &around()).unwrap(), [Path::new("/nowhere/x/s")]);
        let error = read("agent".as_ref(), &around()).unwrap_err().to_string();
        assert!(error.contains("neither a path nor one of: ssh-agent, gpg-agent, docker"), "{error}");
        let value = |text: &str| named_by(&text.into());
        assert_eq!(value("unix:path=/run/bus,guid=1"), Some("/run/bus".into()));
        assert_eq!(value("tcp://127.0.0.1:1"), None);
    }
}
