//! Where sessions live: a private directory of the user's, out of reach of every confined command.
//!
//! ```text
//! <state>/sessions/<id>/log.jsonl, head, lock      directories 0700, files 0600, the lock 0200
//! ```

use crate::error::SessionError;
use crate::log::event::{ApprovalSet, By, Created, Event, ModeSet, PresetSet};
use crate::log::{Access, Log, sync_directory};
use crate::session::Session;
use pinfold_policy::escalation::ApprovalPolicy;
use pinfold_policy::quote::quote;
use pinfold_policy::{ExecutionPolicy, RootProblem, RootRole, SandboxError, SandboxMode, SessionId};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The directory of all sessions of one user.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// What a new session begins with.
#[derive(Debug, Clone, Default)]
pub struct NewSession {
    /// The working directory, absolute: the session's workspace for good.
    pub cwd: PathBuf,
    /// A mode of its own, and whose choice it is; without one, the configuration's counts.
    pub mode: Option<(SandboxMode, By)>,
    /// An approval policy of its own.
    pub approval: Option<ApprovalPolicy>,
    /// The preset it is made from.
    pub preset: Option<String>,
}

impl Store {
    /// Returns where sessions are: `pinfold` in `XDG_STATE_HOME`, else `~/.local/state/pinfold`.
    ///
    /// # Errors
    ///
    /// `SESSION_STATE_UNAVAILABLE` when neither is known.
    pub fn place(home: Option<&Path>) -> Result<PathBuf, SessionError> {
        let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|base| base.is_absolute());
        base.or_else(|| home.map(|home| home.join(".local/state"))).map(|base| base.join("pinfold")).ok_or_else(|| {
            SessionError::StateUnavailable {
                path: PathBuf::new(),
                detail: "neither XDG_STATE_HOME nor a home directory is known".to_owned(),
            }
        })
    }

    /// Opens the directory of sessions; it is made if there is none.
    ///
    /// # Errors
    ///
    /// `SESSION_STATE_UNAVAILABLE` for a directory that is not this user's alone, or lies in one that everybody may
    /// change.
    pub fn open(path: &Path) -> Result<Self, SessionError> {
        let refuse = |path: &Path, detail: String| SessionError::StateUnavailable { path: path.to_owned(), detail };
        if !path.is_absolute() {
            return Err(refuse(path, "is not an absolute path".to_owned()));
        }
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|error| refuse(parent, error.to_string()))?;
        }
        make_private(path).map_err(|error| refuse(path, error.to_string()))?;
        no_foreign_links(path).map_err(|detail| refuse(path, detail))?;
        let root = path.canonicalize().map_err(|error| refuse(path, error.to_string()))?;
        verify(path)?;
        for above in root.ancestors().skip(1) {
            let found = above.metadata().map_err(|error| refuse(above, error.to_string()))?;
            // SECURITY: in such a directory anybody may put another one in the place of ours.
            if found.mode() & 0o1002 == 0o002 {
                return Err(refuse(above, format!("has mode {:o}: everybody may change it", found.mode() & 0o7777)));
            }
        }
        let sessions = root.join("sessions");
        make_private(&sessions).map_err(|error| refuse(&sessions, error.to_string()))?;
        verify(&sessions)?;
        Ok(Self { root })
    }

    /// Returns the directory, physical.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a session.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_ROOT` for a working directory that is relative, holds a NUL byte, is not UTF-8 or is no
    /// directory, `CONFIG_INVALID` for a project file that cannot be read, and those of [`Log::create`].
    pub fn create(&self, new: &NewSession) -> Result<Session, SessionError> {
        ExecutionPolicy::new(SandboxMode::ReadOnly, &new.cwd).validate()?;
        let refuse = |problem| SandboxError::InvalidRoot { role: RootRole::Workspace, path: new.cwd.clone(), problem };
        let cwd = new.cwd.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => refuse(RootProblem::Missing),
            io::ErrorKind::NotADirectory => refuse(RootProblem::NotDirectory),
            _ => refuse(RootProblem::Unreadable(error.to_string())),
        })?;
        if !cwd.is_dir() {
            return Err(refuse(RootProblem::NotDirectory).into());
        }
        let no_text = || refuse(RootProblem::Refused("it is not UTF-8, so it cannot stand in a log".to_owned()));
        let text = cwd.to_str().ok_or_else(no_text)?.to_owned();
        let project = crate::config::project_text(&cwd)?;
        let (id, directory) = self.claim()?;
        let created = Event::Created(Created { id: id.clone(), cwd: text, project });
        let made = Log::create(&directory, created).and_then(|mut log| {
            let mut events = Vec::new();
            events.extend(new.preset.clone().map(|preset| Event::Preset(PresetSet { preset })));
            events.extend(
                new.mode.map(|(mode, by)| Event::Mode(ModeSet { mode, source: Some(by).filter(|by| *by != By::User) })),
            );
            events.extend(new.approval.map(|policy| Event::Approval(ApprovalSet { policy })));
            log.transact(|_, _| Ok((events, ())))?;
            Ok(log)
        });
        match made {
            Ok(log) => Session::from_log(SessionId::new(id), log),
            Err(error) => {
                // Half a session is none. If this fails too, it has no log that begins as one must.
                let _ = std::fs::remove_dir_all(&directory);
                Err(error)
            }
        }
    }

    /// Opens a session.
    ///
    /// # Errors
    ///
    /// `SESSION_UNKNOWN`, and those of [`Log::open`].
    pub fn session(&self, id: &str, access: Access) -> Result<Session, SessionError> {
        Session::from_log(SessionId::new(id), Log::open(&self.directory(id)?, access)?)
    }

    /// Returns the directory of a session that exists.
    ///
    /// # Errors
    ///
    /// `SESSION_UNKNOWN`; also for a text that is no name of a session, whatever it leads to.
    pub fn directory(&self, id: &str) -> Result<PathBuf, SessionError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let directory = self.root.join("sessions").join(id);
        let exists = !id.is_empty() && id.len() <= 64 && id.bytes().all(plain) && directory.is_dir();
        if exists { Ok(directory) } else { Err(SessionError::Unknown { id: id.to_owned() }) }
    }

    /// Lists the names of all sessions, sorted by age, the oldest first.
    ///
    /// # Errors
    ///
    /// `SESSION_STATE_UNAVAILABLE`.
    pub fn list(&self) -> Result<Vec<String>, SessionError> {
        let sessions = self.root.join("sessions");
        let refuse =
            |error: io::Error| SessionError::StateUnavailable { path: sessions.clone(), detail: error.to_string() };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&sessions).map_err(refuse)? {
            let entry = entry.map_err(refuse)?;
            let made = entry.path().join("head").metadata().and_then(|head| head.created().or(head.modified()));
            if let (Ok(name), Ok(made)) = (entry.file_name().into_string(), made) {
                found.push((made, name));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, name)| name).collect())
    }

    /// Refuses a policy that opens the state, or a configuration file, for writing.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_ROOT`.
    pub fn refuse_open(policy: &ExecutionPolicy, own: &[&Path]) -> Result<(), SandboxError> {
        for root in policy.writable_roots() {
            let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
            // SECURITY: a command that can write one of these gives itself what it wants (W09).
            if let Some(own) = own.iter().find(|own| own.starts_with(&real) || real.starts_with(own)) {
                let role = if root == policy.workspace_root { RootRole::Workspace } else { RootRole::Additional };
                let why = format!("{}, which decides what is allowed, would become writable with it", quote(own));
                return Err(SandboxError::InvalidRoot {
                    role,
                    path: root.to_owned(),
                    problem: RootProblem::Refused(why),
                });
            }
        }
        Ok(())
    }

    /// Makes a directory with a name that no session has.
    fn claim(&self) -> Result<(String, PathBuf), SessionError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let nanos =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
            let seed = crate::digest::Framed::new("pinfold session 1")
                .part(&nanos.to_be_bytes())
                .part(&std::process::id().to_be_bytes())
                .part(&count.to_be_bytes())
                .finish()
                .to_string();
            let id = seed[..10].to_owned();
            let directory = self.root.join("sessions").join(&id);
            match DirBuilder::new().mode(0o700).create(&directory) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let detail = error.to_string();
                    return Err(SessionError::Unwritable { act: "make", path: directory, detail });
                }
                Ok(()) => {
                    let synced = sync_directory(&self.root.join("sessions"));
                    synced.map_err(|error| SessionError::Unwritable {
                        act: "sync",
                        path: self.root.join("sessions"),
                        detail: error.to_string(),
                    })?;
                    return Ok((id, directory));
                }
            }
        }
    }
}

/// Returns everything whose change would change what an absolute path leads to: the physical path, as far as it exists,
/// and the links on the way.
pub fn decisive(path: &Path) -> Vec<PathBuf> {
    let mut all = pinfold_providers::links_on(path);
    all.push(physical(path));
    all
}

/// Refuses a path that leads through a link which somebody else can replace.
///
/// # Errors
///
/// The end of a sentence that says so.
pub(crate) fn no_foreign_links(path: &Path) -> Result<(), String> {
    let user = rustix::process::geteuid().as_raw();
    for link in pinfold_providers::links_on(path) {
        let examine = |path: &Path| path.symlink_metadata().map_err(|error| format!("{}: {error}", quote(path)));
        let (own, above) = (examine(&link)?, examine(link.parent().unwrap_or(&link))?);
        // In a sticky directory only who owns a link can replace it, and whoever put it there chose where it leads.
        let mine = own.uid() == user || own.uid() == 0;
        if above.mode() & 0o002 != 0 && !(mine && above.mode() & 0o1000 != 0) {
            return Err(format!("leads through the link {}, which others can replace", quote(&link)));
        }
    }
    Ok(())
}

/// Returns the physical spelling of a path as far as it exists, and the rest behind it.
pub fn physical(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let Ok(real) = above.canonicalize() {
            let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}

fn make_private(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // A read-only disk may hold what is needed.
        Err(_) if path.is_dir() => Ok(()),
        other => other,
    }
}

// SECURITY: in a directory that somebody else owns or may write, a log could be replaced between two calls.
fn verify(path: &Path) -> Result<(), SessionError> {
    let refuse = |detail: String| Err(SessionError::StateUnavailable { path: path.to_owned(), detail });
    match path.symlink_metadata() {
        Err(error) => refuse(error.to_string()),
        Ok(found) if !found.is_dir() => refuse("is not a directory".to_owned()),
        Ok(found) if found.uid() != rustix::process::geteuid().as_raw() => {
            refuse(format!("belongs to user {}", found.uid()))
        }
        Ok(found) if found.mode() & 0o077 != 0 => {
            refuse(format!("has mode {:o} instead of 700", found.mode() & 0o7777))
        }
        Ok(_) => Ok(()),
    }
}
