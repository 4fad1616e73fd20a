//! A policy made ready for file operations: its roots opened, its rules read. One value for one policy; when the policy
//! changes, another is made.

use crate::error::FsError;
use crate::locks::Locks;
use crate::resolve::{Last, Mount, Place, Resolver, Tree, on_kernel_file_system, on_procfs};
use crate::roots::{self, DIRECTORY, Pinned};
use crate::rules::{Act, Rules};
use crate::staging::Swept;
use crate::target::{Look, Target};
use pinfold_policy::protect::ProtectedNames;
use pinfold_policy::quote::quote;
use pinfold_policy::{
    ConfinedMode, ExecutionPolicy, FileErrorCode as Code, Restrictions, SandboxError, SandboxMode, TempView,
};
use rustix::fs::Mode;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether a change is on the disk when the call returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Content and directory entry are synchronised: after a power cut either the old or the new content is there.
    #[default]
    Synced,
    /// Left to the kernel: a reader sees old or new, a power cut may lose the change.
    Unsynced,
}

/// Bounds of single operations, in bytes unless named otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The largest file that is read whole or edited; default 64 MiB.
    pub whole: u64,
    /// From this size on, the result of a change has no earlier or later text and no diff; default 10 MiB.
    pub diff: u64,
    /// The most that one windowed read looks through; default 1 GiB.
    pub scan: u64,
    /// The most names that a listing holds; default 20,000.
    pub entries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { whole: 64 << 20, diff: 10 << 20, scan: 1 << 30, entries: 20_000 }
    }
}

/// Where a session's commands have their temp area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TempPlace {
    /// A directory of the host, known by its own path (`TMPDIR`): where commands see the host's `/tmp`.
    Directory(PathBuf),
    /// Directories of the host that commands see at other paths, such as a session's own `/tmp`: pairs of the path
    /// inside and the directory.
    Mounted(Vec<(PathBuf, PathBuf)>),
}

impl TempPlace {
    /// Reads where a provider says that a session's commands have their temp area. One that each call has anew is
    /// nobody else's: none for file tools.
    pub fn of(view: &TempView) -> Option<Self> {
        match view {
            TempView::PrivateDirectory { path } => Some(Self::Directory(path.clone())),
            TempView::SessionDirectories { places } => {
                Some(Self::Mounted(places.iter().map(|place| (place.at.clone(), place.directory.clone())).collect()))
            }
            TempView::PrivateTmpfs { .. } | TempView::None => None,
        }
    }
}

/// What a fence is made of beside its policy.
#[derive(Debug, Clone, Default)]
pub struct FenceOptions {
    /// What is closed beyond the mode: of it, denied reads count.
    pub restrictions: Restrictions,
    /// Names that may not be changed although they lie in a root: the same set as for commands.
    pub protected: ProtectedNames,
    /// The temp area of the session's commands; without one, none is writable here.
    pub temp: Option<TempPlace>,
    /// Whether changes are synchronised.
    pub durability: Durability,
    /// Bounds.
    pub limits: Limits,
    /// How directories are reached; `None` for what the kernel offers.
    pub resolver: Option<Resolver>,
    /// The one physical path that may be changed, if only one was allowed: what leads elsewhere by now is refused.
    pub only: Option<PathBuf>,
    /// Fences that share this change one file one after the other.
    pub turns: Turns,
}

/// Whose turn it is, of the fences that share it; each has its own unless it is given another's.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    locks: Arc<Locks>,
    swept: Arc<Swept>,
}

/// Performs file operations under one policy.
#[derive(Debug)]
pub struct Fence {
    pub(crate) policy: ExecutionPolicy,
    pub(crate) options: FenceOptions,
    base: PathBuf,
    /// `None` under `danger-full-access`: nothing is fenced.
    guard: Option<Guard>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) swept: Arc<Swept>,
}

#[derive(Debug)]
struct Guard {
    tree: Tree,
    rules: Rules,
}

impl Fence {
    /// Opens the roots of a policy and reads its rules.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_ROOT` as for a command under the same policy; `SANDBOX_INVALID_POLICY` for restrictions that
    /// contradict themselves; `SANDBOX_PREPARATION_FAILED` if `/` or a temp directory cannot be opened.
    pub fn open(policy: &ExecutionPolicy, options: FenceOptions) -> Result<Self, SandboxError> {
        let (workspace, writable) = roots::open(policy)?;
        let base = workspace.path.clone();
        let guard = match policy.mode.confined() {
            Some(mode) => {
                let mut tree = tree(mode, &options, writable)?;
                let protected = options.protected.clone();
                let rules = Rules::new(mode, &options.restrictions, protected, &tree.pinned)?;
                tree.watched = rules.watched();
                Some(Guard { tree, rules })
            }
            None => None,
        };
        let Turns { locks, swept } = options.turns.clone();
        Ok(Self { policy: policy.clone(), options, base, guard, locks, swept })
    }

    /// Makes a fence for the same roots under another mode, for one approved call. Changes of both exclude each other.
    ///
    /// # Errors
    ///
    /// Those of [`Fence::open`].
    pub fn under(&self, mode: SandboxMode) -> Result<Self, SandboxError> {
        Self::open(&self.policy.clone().with_mode(mode), self.options.clone())
    }

    /// Returns the mode in force.
    pub fn mode(&self) -> SandboxMode {
        self.policy.mode
    }

    /// Returns the mode in force, if it confines.
    pub fn confined_mode(&self) -> Option<ConfinedMode> {
        self.policy.mode.confined()
    }

    /// Returns the directory that relative paths start from: the physical workspace.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Decides about an act on a path, without doing it: nothing is changed, and nothing read but what links say.
    ///
    /// # Errors
    ///
    /// `FS_SANDBOX_DENIED` as the act itself would give it; `FS_NOT_FOUND` and others if the path leads nowhere.
    pub fn decide(&self, act: Act, path: &Path) -> Result<Target, FsError> {
        let last = if matches!(act, Act::Remove | Act::Rename) { Last::Kept } else { Last::Followed };
        let (verb, path) = (verb(act), self.absolute(path)?);
        let place = self.place(act, verb, &path, last)?;
        Ok(Target::new(&place.path, &path))
    }

    /// Maps a path to its key: the same for every spelling, and before and after the file is made.
    ///
    /// # Errors
    ///
    /// `FS_NOT_FOUND` for an empty path or one through something that is no directory.
    pub fn resolve(&self, path: &Path) -> Result<Target, FsError> {
        let path = self.absolute(path)?;
        let place = self.look_up("resolve", &path, Last::Followed, true)?;
        Ok(Target::new(&place.path, &path))
    }

    /// Looks at a file, following links; `None` if nothing is there.
    ///
    /// # Errors
    ///
    /// `FS_SANDBOX_DENIED` for a denied path, host errors.
    pub fn stat(&self, path: &Path) -> Result<Option<Look>, FsError> {
        self.look(path, Last::Followed)
    }

    /// Looks at a file, not following a link at the end; `None` if nothing is there.
    ///
    /// # Errors
    ///
    /// As for [`Fence::stat`].
    pub fn lstat(&self, path: &Path) -> Result<Option<Look>, FsError> {
        self.look(path, Last::Kept)
    }

    fn look(&self, path: &Path, last: Last) -> Result<Option<Look>, FsError> {
        let path = self.absolute(path)?;
        let place = self.place(Act::Read, "look at", &path, last)?;
        Ok(place.stat.as_ref().map(Look::of))
    }

    /// Makes a path absolute. It stays as it is spelled.
    pub(crate) fn absolute(&self, path: &Path) -> Result<PathBuf, FsError> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Err(FsError::new(Code::NotFound, "file_path must be a non-empty string"));
        }
        if bytes.contains(&0) {
            return Err(FsError::new(Code::NotFound, format!("file_path {} holds a NUL byte", quote(path))));
        }
        Ok(self.base.join(path))
    }

    /// Finds a place and decides about an act on it.
    pub(crate) fn place(&self, act: Act, verb: &'static str, path: &Path, last: Last) -> Result<Place, FsError> {
        let Some(guard) = &self.guard else {
            let place = unfenced(verb, path, last)?;
            self.refuse_other(act, verb, path, &place)?;
            return Ok(place);
        };
        guard.rules.at_once(act, verb, path)?;
        let place = guard.tree.find(verb, path, last, act == Act::Read)?;
        guard.rules.decide(act, verb, path, &place, &guard.tree.pinned)?;
        match act {
            Act::Read => self.refuse_processes(verb, path, &place, guard)?,
            _ => self.refuse_kernel(verb, path, &place, guard)?,
        }
        self.refuse_other(act, verb, path, &place)?;
        Ok(place)
    }

    /// SECURITY: a person allowed one place; a link that was put in its way since then leads to another.
    fn refuse_other(&self, act: Act, verb: &str, path: &Path, place: &Place) -> Result<(), FsError> {
        match &self.options.only {
            Some(only) if act != Act::Read && *only != place.path => {
                let (path, leads, only) = (quote(path), quote(&place.path), quote(only));
                let text = format!("cannot {verb} {path}: it leads to {leads}, and {only} was allowed");
                Err(FsError::new(Code::SandboxDenied, text))
            }
            _ => Ok(()),
        }
    }

    /// Finds a place without deciding.
    pub(crate) fn look_up(&self, verb: &'static str, path: &Path, last: Last, any: bool) -> Result<Place, FsError> {
        match &self.guard {
            Some(guard) => guard.tree.find(verb, path, last, any),
            None => unfenced(verb, path, last),
        }
    }

    /// Decides about one more name in a directory that was reached already.
    pub(crate) fn decide_place(&self, act: Act, verb: &'static str, place: &Place) -> Result<(), FsError> {
        match &self.guard {
            Some(guard) => guard.rules.decide(act, verb, &place.path, place, &guard.tree.pinned),
            None => Ok(()),
        }
    }

    /// The rules, if anything is fenced.
    pub(crate) fn rules(&self) -> Option<&Rules> {
        self.guard.as_ref().map(|guard| &guard.rules)
    }

    /// Whether reading a path, or the file that was found there, is denied.
    pub(crate) fn closes(&self, path: &Path, stat: Option<&rustix::fs::Stat>) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.rules.closes(path, stat).is_some())
    }

    /// SECURITY: procfs shows a process to itself: read here, `/proc/self` would be ours, with our environment, and any
    /// other number a process that a command does not see.
    /// And what only privileged readers may read there (the memory of the kernel) would be read with our privileges.
    fn refuse_processes(&self, verb: &'static str, path: &Path, place: &Place, guard: &Guard) -> Result<(), FsError> {
        let root = place.root.and_then(|index| guard.tree.pinned.get(index));
        let device = place.directory_identity().map_err(crate::error::on(verb, path))?.0;
        if root.is_some_and(|root| root.directory.device == device) || !on_procfs(&*place.dir) {
            return Ok(());
        }
        let numbered = |part: &OsStr| !part.is_empty() && part.as_bytes().iter().all(u8::is_ascii_digit);
        let is_open = |stat: &rustix::fs::Stat| stat.st_mode & 0o004 != 0;
        let rule = if place.path.iter().any(numbered) {
            "it shows processes outside; ask a command for it"
        } else if !place.stat.as_ref().is_none_or(is_open) {
            "it shows the kernel to privileged readers only; ask a command for it"
        } else {
            return Ok(());
        };
        let (mode, resolved, rule) = (guard.tree.mode, place.path.clone(), rule.to_owned());
        Err(FsError::denied(path, crate::error::Denied { mode, verb, resolved, rule }))
    }

    /// What shows the kernel is no place for files, also if it is mounted in a root.
    fn refuse_kernel(&self, verb: &'static str, path: &Path, place: &Place, guard: &Guard) -> Result<(), FsError> {
        let root = place.root.and_then(|index| guard.tree.pinned.get(index));
        let device = place.directory_identity().map_err(crate::error::on(verb, path))?.0;
        if root.is_some_and(|root| root.directory.device == device) || !on_kernel_file_system(&*place.dir) {
            return Ok(());
        }
        let rule = "it lies on a file system that shows the kernel".to_owned();
        let (mode, resolved) = (guard.tree.mode, place.path.clone());
        Err(FsError::denied(path, crate::error::Denied { mode, verb, resolved, rule }))
    }
}

fn verb(act: Act) -> &'static str {
    match act {
        Act::Read => "read",
        Act::Write => "write",
        Act::Create => "create",
        Act::Remove => "remove",
        Act::Rename => "move",
    }
}

fn tree(mode: ConfinedMode, options: &FenceOptions, writable: Vec<Pinned>) -> Result<Tree, SandboxError> {
    let failed = |what: &Path, problem: String| SandboxError::PreparationFailed {
        backend: "fence".to_owned(),
        detail: format!("{} {problem}", quote(what)),
    };
    let top = rustix::fs::open("/", DIRECTORY, Mode::empty())
        .map_err(|errno| failed(Path::new("/"), format!("cannot be opened: {}", std::io::Error::from(errno))))?;
    let mut pinned: Vec<Mount> = writable
        .into_iter()
        .map(|directory| Mount { at: directory.path.clone(), directory, covers: false, writable: true })
        .collect();
    let temps = match &options.temp {
        Some(_) if mode == ConfinedMode::ReadOnly => Vec::new(),
        Some(TempPlace::Directory(path)) => vec![(path.clone(), path.clone(), false)],
        Some(TempPlace::Mounted(pairs)) => {
            pairs.iter().map(|(at, from)| (crate::rules::physical(at), from.clone(), true)).collect()
        }
        None => Vec::new(),
    };
    for (at, from, covers) in temps {
        // A shared temp directory that the policy opens itself is not covered, for commands neither.
        if covers && pinned.iter().any(|mount| at.starts_with(&mount.at)) {
            continue;
        }
        let directory = std::fs::canonicalize(&from)
            .map_err(|error| failed(&from, format!("cannot be resolved: {error}")))
            .and_then(|path| Pinned::open(&path).map_err(|problem| failed(&from, problem.to_string())))?;
        let at = if covers { at } else { directory.path.clone() };
        for root in pinned.iter().filter(|mount| covers && mount.at != at && mount.at.starts_with(&at)) {
            // Roots below it are seen in it, as for commands; the way to them lies in it.
            let below = root.at.strip_prefix(&at).unwrap_or(Path::new(""));
            lead(&directory, below).map_err(|errno| {
                failed(&from, format!("cannot lead to a root below it: {}", std::io::Error::from(errno)))
            })?;
        }
        pinned.push(Mount { at, directory, covers, writable: true });
    }
    // A parent sorts before what lies in it.
    pinned.sort_by(|one, other| one.at.cmp(&other.at));
    let resolver = options.resolver.unwrap_or_else(Resolver::detect);
    Ok(Tree { mode, resolver, top: Arc::new(top), pinned, watched: Vec::new() })
}

/// Makes directories below one, each in the one before: what lies there may be a command's, and a link would lead out.
fn lead(directory: &Pinned, below: &Path) -> rustix::io::Result<()> {
    let mut dir = Arc::clone(&directory.handle);
    for name in below {
        match rustix::fs::mkdirat(&*dir, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        dir = Arc::new(rustix::fs::openat(&*dir, name, DIRECTORY, Mode::empty())?);
    }
    Ok(())
}

/// Finds a place as the kernel does, with nothing between: for `danger-full-access`.
fn unfenced(verb: &'static str, path: &Path, last: Last) -> Result<Place, FsError> {
    const MOST_TRIES: u32 = 50;
    let mut tries = 0;
    loop {
        tries += 1;
        match unfenced_once(verb, path, last) {
            // RACE: a directory of the physical path became a link, or is gone.
            Err(Moved::Now) if tries < MOST_TRIES => {}
            Err(Moved::Now) => return Err(FsError::host(verb, path, rustix::io::Errno::LOOP)),
            Err(Moved::No(error)) => return Err(error),
            Ok(place) => return Ok(place),
        }
    }
}

enum Moved {
    Now,
    No(FsError),
}

impl From<FsError> for Moved {
    fn from(error: FsError) -> Self {
        Self::No(error)
    }
}

/// Opens a directory by its physical path, through no link.
fn open_physical(path: &Path) -> rustix::io::Result<OwnedFd> {
    let mut dir = rustix::fs::open("/", DIRECTORY, Mode::empty())?;
    for part in path.components() {
        if let std::path::Component::Normal(name) = part {
            dir = rustix::fs::openat(&dir, name, DIRECTORY, Mode::empty())?;
        }
    }
    Ok(dir)
}

fn unfenced_once(verb: &'static str, path: &Path, last: Last) -> Result<Place, Moved> {
    let host = |errno| FsError::host(verb, path, errno);
    let (mut physical, mut missing) = match std::fs::canonicalize(path) {
        Ok(found) if last == Last::Followed => (found, Vec::new()),
        _ => {
            let parent = path.parent().unwrap_or(Path::new("/"));
            let name = path.file_name().ok_or_else(|| host(rustix::io::Errno::NOENT))?;
            let mut existing = parent;
            let mut missing = Vec::new();
            let above = loop {
                match std::fs::canonicalize(existing) {
                    Ok(found) => break found,
                    Err(error) => match (error.kind(), existing.parent(), existing.file_name()) {
                        (std::io::ErrorKind::NotFound, Some(parent), Some(name)) => {
                            missing.push(name.to_owned());
                            existing = parent;
                        }
                        _ => return Err(host(crate::error::errno(&error)).into()),
                    },
                }
            };
            missing.reverse();
            (missing.iter().fold(above, |path, part| path.join(part)).join(name), missing)
        }
    };
    if physical == Path::new("/") {
        physical = "/.".into();
    }
    let above = physical.parent().unwrap_or(Path::new("/"));
    let existing = missing.iter().fold(above, |path, _| path.parent().unwrap_or(path));
    let dir = open_physical(existing).map_err(|errno| match errno {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR | rustix::io::Errno::NOENT => Moved::Now,
        errno => host(errno).into(),
    })?;
    let name = path_name(&physical);
    let mut place = Place {
        dir: Arc::new(dir),
        missing: std::mem::take(&mut missing),
        name,
        path: physical,
        root: None,
        stat: None,
        object: None,
        dangling: false,
        dir_is: None,
        watched: None,
    };
    if place.missing.is_empty() {
        place.stat = match rustix::fs::statat(&*place.dir, &place.name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(rustix::io::Errno::NOENT) => None,
            Err(errno) => return Err(host(errno).into()),
        };
        place.dangling = last == Last::Followed && place.kind() == Some(rustix::fs::FileType::Symlink);
    }
    Ok(place)
}

fn path_name(path: &Path) -> std::ffi::OsString {
    path.file_name().map_or_else(|| ".".into(), OsStr::to_owned)
}
