//! Where configuration files are, and which of them are trusted.

use super::file::{Base, parse};
use super::layer::{Layer, Origin, Source};
use super::merge::Deployment;
use crate::error::SessionError;
use pinfold_policy::SandboxMode;
use rustix::fs::{Mode, OFlags};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The name of a project's file, in its workspace.
pub const PROJECT_FILE: &str = "pinfold.toml";

/// Longer files are no configuration.
const MOST_BYTES: u64 = 256 << 10;

/// Holds where files are looked for; taken from the environment once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// The file that `PINFOLD_CONFIG` names.
    pub named: Option<PathBuf>,
    /// The directory of configurations: `XDG_CONFIG_HOME`, or `~/.config`.
    pub config_home: Option<PathBuf>,
    /// The home directory, for `~`.
    pub home: Option<PathBuf>,
}

/// One file that was read.
#[derive(Debug)]
struct Text {
    /// The physical path.
    path: PathBuf,
    text: String,
}

impl Places {
    /// Looks at the environment. Relative directories in `XDG_CONFIG_HOME` are ignored, as its specification wants it.
    pub fn from_environment(home: Option<&Path>) -> Self {
        let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|base| base.is_absolute());
        Self {
            named: std::env::var_os("PINFOLD_CONFIG").map(PathBuf::from),
            config_home: base.or_else(|| home.map(|home| home.join(".config"))),
            home: home.map(Path::to_owned),
        }
    }

    /// Reads the user's file and the project's, and puts them over what is built in.
    ///
    /// `at_start` is the project file's text as the session began, if there is a session: what a command has done to the
    /// file since cannot loosen anything.
    ///
    /// # Errors
    ///
    /// `CONFIG_INVALID` for a file that cannot be read as one, is named and does not exist, or lies where others may
    /// write; `CONFIG_WIDENS` for a project file that would open something.
    pub fn load(
        &self,
        mode: SandboxMode,
        workspace: Option<&Path>,
        at_start: Option<&str>,
    ) -> Result<Deployment, SessionError> {
        let mut deployment = Deployment::built_in(mode);
        if let Some(user) = self.user_file()? {
            let base = Base { home: self.home.as_deref(), directory: None };
            deployment = deployment.over(parse(Origin::User(user.path), &user.text, &base)?)?;
        }
        let Some(workspace) = workspace else { return Ok(deployment) };
        let now = project_text(workspace)?;
        let path = workspace.join(PROJECT_FILE);
        let unchanged = at_start.is_some() && at_start == now.as_deref();
        if let Some(text) = at_start.filter(|_| !unchanged) {
            deployment = deployment.over(self.project(Origin::ProjectAtStart(path.clone()), text, workspace)?)?;
        }
        if let Some(text) = &now {
            deployment = deployment.over(self.project(Origin::Project(path), text, workspace)?)?;
        }
        Ok(deployment)
    }

    /// Lists what must not be writable for a command, whether it exists or not: whoever can put a file there decides about
    /// the next call.
    pub fn own(&self) -> Vec<PathBuf> {
        let mut own: Vec<PathBuf> = self.config_home.iter().map(|base| base.join("pinfold")).collect();
        // A file may be reached through a link: the name and what it leads to both count (B131).
        let usual = self.config_home.iter().map(|base| base.join("pinfold/config.toml"));
        own.extend(usual.filter(|path| path.exists()).chain(self.named.clone()));
        own
    }

    fn project(&self, origin: Origin, text: &str, workspace: &Path) -> Result<Layer, SessionError> {
        parse(origin, text, &Base { home: self.home.as_deref(), directory: Some(workspace) })
    }

    fn user_file(&self) -> Result<Option<Text>, SessionError> {
        if let Some(named) = &self.named {
            if !named.is_absolute() {
                return Err(unfit(named, "PINFOLD_CONFIG is not an absolute path"));
            }
            return read_trusted(named).map(Some);
        }
        let Some(path) = self.config_home.as_ref().map(|base| base.join("pinfold/config.toml")) else {
            return Ok(None);
        };
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            // HOME of another user, as many containers have it: what this user may not look for is not this user's.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && is_of_another(&path) => Ok(None),
            _ => read_trusted(&path).map(Some),
        }
    }
}

/// Returns whether the first directory above a path that can be examined belongs to another user: then a file below it was
/// not put there by this one. The effects matrix runs so, as uid 1000 with the home directory of root.
///
/// SECURITY: a directory of one's own that is closed is a fault and not an absence: what it holds may close something.
fn is_of_another(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    path.ancestors().skip(1).find_map(|directory| directory.metadata().ok()).is_some_and(|found| found.uid() != user)
}

fn unfit(path: &Path, detail: impl Into<String>) -> SessionError {
    SessionError::ConfigInvalid { at: Source::whole(Origin::User(path.to_owned())), detail: detail.into() }
}

/// Reads the project's file as it is now; there need not be one.
///
/// # Errors
///
/// `CONFIG_INVALID` for something that is no regular file, too long or not UTF-8.
pub(crate) fn project_text(workspace: &Path) -> Result<Option<String>, SessionError> {
    let path = workspace.join(PROJECT_FILE);
    let refuse =
        |detail: String| SessionError::ConfigInvalid { at: Source::whole(Origin::Project(path.clone())), detail };
    // SECURITY: through a link, messages about a file would tell a command of one that it may not read; and opening a
    // FIFO would wait for whoever made it.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(&path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
        Err(rustix::io::Errno::LOOP) => Err(refuse("is a symbolic link; put the file itself there".to_owned())),
        Err(error) => Err(refuse(format!("cannot be opened: {error}"))),
        Ok(file) => read(file.into()).map(Some).map_err(refuse),
    }
}

/// Reads a file that may open things, so that nobody else may have written it, or chosen which it is (B131: a link of the
/// user's own to it is fine).
fn read_trusted(path: &Path) -> Result<Text, SessionError> {
    let real = path.canonicalize().map_err(|error| unfit(path, format!("cannot be found: {error}")))?;
    crate::store::no_foreign_links(path).map_err(|detail| unfit(path, detail))?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(&real, flags, Mode::empty());
    let file = std::fs::File::from(file.map_err(|error| unfit(path, format!("cannot be opened: {error}")))?);
    let found = file.metadata().map_err(|error| unfit(path, format!("cannot be examined: {error}")))?;
    let user = rustix::process::geteuid().as_raw();
    // SECURITY: whoever can write this file can open everything at the next call.
    if found.uid() != user && found.uid() != 0 {
        return Err(unfit(path, format!("belongs to user {}; it must be yours or root's", found.uid())));
    }
    if found.mode() & 0o022 != 0 {
        let detail = format!("has mode {:o}, so others can write it; chmod go-w it", found.mode() & 0o7777);
        return Err(unfit(path, detail));
    }
    let text = read(file).map_err(|detail| unfit(path, detail))?;
    Ok(Text { path: real, text })
}

fn read(file: std::fs::File) -> Result<String, String> {
    let found = file.metadata().map_err(|error| format!("cannot be examined: {error}"))?;
    if !found.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| format!("cannot be read: {error}"))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("is longer than {MOST_BYTES} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}
