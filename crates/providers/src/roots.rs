//! Resolving the roots of a policy on this host, pinning which directories they are, and refusing those that
//! must never be writable.
//!
//! The workspace root is resolved as the kernel does it (`link/..` is the parent of the link's target): an agent's
//! working directory may well be reached through a link. Extra roots must be given as what they are: a link
//! anywhere in their path is refused, because whoever can replace it would choose what becomes writable.
//!
//! A root is passed on as path, device and inode; the launcher opens the path without following a link and
//! refuses another directory. No descriptor is held here: an inode number that is used again belongs to a directory
//! that was made at this place, not to one that was writable to nobody before. Whoever decided about a directory before
//! the call holds it ([`HeldDirectory`]), and then it must be that one, the workspace too.

use crate::held::HeldDirectory;
use pinfold_policy::root_rules::is_system_directory;
use pinfold_policy::{ConfinedMode, RootProblem, RootRole, SandboxError, SandboxPolicy};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// A directory that exists, with its identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PinnedRoot {
    pub(crate) path: PathBuf,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl PinnedRoot {
    /// The identity as the launcher reads it.
    pub(crate) fn identity(&self) -> OsString {
        format!("{}:{}", self.device, self.inode).into()
    }
}

/// The roots of one call.
#[derive(Debug, Clone)]
pub(crate) struct Roots {
    pub(crate) workspace: PinnedRoot,
    /// Those that are writable, parents before children, each once; empty under `read-only`.
    pub(crate) writable: Vec<PinnedRoot>,
    /// Directories inside a writable root that lead to another, or to a denied path.
    pub(crate) between: Vec<PinnedRoot>,
}

/// What no writable root may be, contain, or lie in.
#[derive(Debug, Clone, Default)]
pub(crate) struct ControlPlane {
    pub(crate) launcher: Option<PathBuf>,
    pub(crate) broker: Option<PathBuf>,
    /// Where the runtime directory of this call or of a later one may be.
    pub(crate) runtime_dirs: Vec<PathBuf>,
}

/// Resolves and pins the roots of a policy. A root that is `held` must be what it was when it was looked at.
pub(crate) fn resolve(
    policy: &SandboxPolicy,
    control: &ControlPlane,
    held: &[Arc<HeldDirectory>],
) -> Result<Roots, SandboxError> {
    policy.validate()?;
    let pin = |role, path: &Path| match held.iter().find(|held| held.path() == path) {
        Some(held) => pin_held(role, held),
        None => pin(role, path),
    };
    let workspace = pin(RootRole::Workspace, &policy.workspace_root)?;
    let mut extra = Vec::with_capacity(policy.additional_writable_roots.len());
    for path in &policy.additional_writable_roots {
        extra.push(pin(RootRole::Additional, path)?);
    }
    // Not `policy.writable_roots()`, which compares every root with every other: there may be thousands.
    if policy.mode != ConfinedMode::WorkspaceWrite {
        return Ok(Roots { workspace, writable: Vec::new(), between: Vec::new() });
    }
    refuse_special(RootRole::Workspace, &workspace.path, control)?;
    extra.iter().try_for_each(|root| refuse_special(RootRole::Additional, &root.path, control))?;
    let mut writable = extra;
    writable.push(workspace.clone());
    // A parent sorts before what lies in it, so a root inside a root is mounted after it.
    writable.sort_by(|one, other| one.path.cmp(&other.path));
    writable.dedup_by(|one, other| one.path == other.path);
    Ok(Roots { workspace, writable, between: Vec::new() })
}

impl Roots {
    /// Pins what lies between the roots and the paths inside them that must stay where they are: other roots, and
    /// denied paths.
    ///
    /// SECURITY: a directory above such a path could otherwise be renamed by one command, so that the next one finds
    /// nothing to hide at the old name, or another root.
    pub(crate) fn pin_between(&mut self, denied: &[&Path]) -> Result<(), SandboxError> {
        let known: HashSet<&Path> = self.writable.iter().map(|root| root.path.as_path()).collect();
        let mut between = BTreeSet::new();
        for inner in self.writable.iter().map(|root| root.path.as_path()).chain(denied.iter().copied()) {
            let above = || inner.ancestors().skip(1);
            if above().any(|directory| known.contains(directory)) {
                between.extend(above().take_while(|directory| !known.contains(directory)).map(Path::to_owned));
            }
        }
        let pinned = |path: PathBuf| {
            let role = RootRole::Additional;
            pin_physical(&path).map_err(|problem| SandboxError::InvalidRoot { role, path, problem })
        };
        self.between = between.into_iter().map(pinned).collect::<Result<_, _>>()?;
        Ok(())
    }
}

/// SECURITY: nothing is resolved anew. A command that may write above a root can put a link in its place at any moment.
fn pin_held(role: RootRole, held: &HeldDirectory) -> Result<PinnedRoot, SandboxError> {
    let refuse = |problem| SandboxError::InvalidRoot { role, path: held.path().to_owned(), problem };
    let (device, inode) = held.identity().map_err(refuse)?;
    Ok(PinnedRoot { path: without_dots(held.path()), device, inode })
}

fn pin(role: RootRole, given: &Path) -> Result<PinnedRoot, SandboxError> {
    if role == RootRole::Additional
        && let Some(root) = pin_without_links(given)
    {
        return Ok(root);
    }
    let refuse = |problem| SandboxError::InvalidRoot { role, path: given.to_owned(), problem };
    let path = std::fs::canonicalize(given).map_err(|error| refuse(problem_of(&error)))?;
    if role == RootRole::Additional && path != without_dots(given) {
        return Err(refuse(RootProblem::Symlink));
    }
    pin_physical(&path).map_err(refuse)
}

/// Pins what is physical already, with one lookup: there may be thousands of roots, and finding the physical path
/// costs a call for each component. What fails here is looked at again, component by component, for the reason.
///
/// SINCE(Linux 5.6): openat2(2) with RESOLVE_NO_SYMLINKS; before it, every root goes the long way.
fn pin_without_links(given: &Path) -> Option<PinnedRoot> {
    // `..` is physical too where no link is, but then it is not the path that is granted.
    if !given.is_absolute() || given.components().any(|component| component == Component::ParentDir) {
        return None;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat2(CWD, given, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()?;
    let stat = rustix::fs::fstat(fd).ok()?;
    Some(PinnedRoot { path: without_dots(given), device: stat.st_dev, inode: stat.st_ino })
}

/// Returns the first root that is not what it was.
pub(crate) fn first_changed(roots: &[PinnedRoot]) -> Option<&PinnedRoot> {
    roots.iter().find(|root| pin_physical(&root.path).as_ref() != Ok(root))
}

/// Opens a directory by its physical path and notes which one it is.
pub(crate) fn pin_physical(path: &Path) -> Result<PinnedRoot, RootProblem> {
    // RACE: the path may change after it was resolved; then this open fails or the identity is that of what is
    // there now, and nothing but a directory at exactly this path is ever granted.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stat = rustix::fs::open(path, flags, Mode::empty())
        .and_then(rustix::fs::fstat)
        .map_err(|error| problem_of(&error.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(RootProblem::NotDirectory);
    }
    Ok(PinnedRoot { path: path.to_owned(), device: stat.st_dev, inode: stat.st_ino })
}

fn problem_of(error: &std::io::Error) -> RootProblem {
    match error.kind() {
        std::io::ErrorKind::NotFound => RootProblem::Missing,
        std::io::ErrorKind::NotADirectory => RootProblem::NotDirectory,
        _ => RootProblem::Unreadable(error.to_string()),
    }
}

/// The path with `.` and repeated or final separators removed, and nothing else.
fn without_dots(path: &Path) -> PathBuf {
    path.components().filter(|component| !matches!(component, Component::CurDir)).collect()
}

fn refuse_special(role: RootRole, path: &Path, control: &ControlPlane) -> Result<(), SandboxError> {
    let refuse = |why: String| {
        Err(SandboxError::InvalidRoot { role, path: path.to_owned(), problem: RootProblem::Refused(why) })
    };
    if is_system_directory(path) {
        return refuse("it is a system directory and is never opened for writing".to_owned());
    }
    let programs = [("the launcher", &control.launcher), ("the broker", &control.broker)];
    let programs = programs.into_iter().filter_map(|(what, place)| Some((what, place.as_ref()?)));
    let directories = control.runtime_dirs.iter().map(|place| ("the runtime directory", place));
    for (what, ours) in programs.chain(directories) {
        if ours.starts_with(path) || (what == "the runtime directory" && path.starts_with(ours)) {
            let place = pinfold_policy::quote::quote(ours);
            return refuse(format!("{what} of the sandbox, {place}, would become writable with it"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinfold_policy::ErrorCode;

    fn policy(root: &Path, extra: &[&Path]) -> SandboxPolicy {
        let mut policy = SandboxPolicy::new(ConfinedMode::WorkspaceWrite, root);
        policy.additional_writable_roots = extra.iter().map(PathBuf::from).collect();
        policy
    }

    fn refusal(root: &Path, extra: &[&Path]) -> String {
        let error = resolve(&policy(root, extra), &ControlPlane::default(), &[]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRoot);
        error.to_string()
    }

    #[test]
    fn roots_are_physical_sorted_and_once() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("b/inner")).unwrap();
        std::fs::create_dir(base.join("a")).unwrap();
        std::os::unix::fs::symlink(base.join("b/inner"), base.join("link")).unwrap();
        let roots = resolve(
            &policy(&base.join("link/.."), &[&base.join("b/inner/"), &base.join("a/."), &base.join("b")]),
            &ControlPlane::default(),
            &[],
        )
        .unwrap();
        let paths: Vec<_> = roots.writable.iter().map(|root| root.path.clone()).collect();
        assert_eq!(paths, [base.join("a"), base.join("b"), base.join("b/inner")]);
        assert_eq!(roots.workspace.path, base.join("b"));
    }

    // The look came first; what is put there afterwards is neither followed nor taken for it.
    #[test]
    fn a_held_root_is_the_directory_that_was_looked_at() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        for name in ["ws", "victim"] {
            std::fs::create_dir(base.join(name)).unwrap();
        }
        let held = [Arc::new(HeldDirectory::look(&base.join("ws")).unwrap())];
        let policy = policy(&base.join("ws"), &[]);
        let pinned = |held: &[Arc<HeldDirectory>]| {
            resolve(&policy, &ControlPlane::default(), held).map(|roots| roots.workspace.path)
        };
        assert_eq!(pinned(&held), Ok(base.join("ws")));
        std::fs::rename(base.join("ws"), base.join("moved")).unwrap();
        std::os::unix::fs::symlink("victim", base.join("ws")).unwrap();
        assert!(pinned(&held).unwrap_err().to_string().ends_with("is a symbolic link"));
        // The control: a workspace that nobody looked at may be reached through a link.
        assert_eq!(pinned(&[]), Ok(base.join("victim")));
        std::fs::remove_file(base.join("ws")).unwrap();
        std::fs::create_dir(base.join("ws")).unwrap();
        assert!(pinned(&held).is_err());
    }

    #[test]
    fn what_lies_between_roots_and_denied_paths_is_pinned() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        for path in ["ws/a/b/root", "ws/c/d", "out/e"] {
            std::fs::create_dir_all(base.join(path)).unwrap();
        }
        let mut roots =
            resolve(&policy(&base.join("ws"), &[&base.join("ws/a/b/root")]), &ControlPlane::default(), &[]).unwrap();
        let denied = [base.join("ws/c/d/key"), base.join("ws/key"), base.join("out/e/key")];
        roots.pin_between(&denied.each_ref().map(PathBuf::as_path)).unwrap();
        let paths: Vec<_> = roots.between.iter().map(|root| root.path.clone()).collect();
        assert_eq!(paths, ["ws/a", "ws/a/b", "ws/c", "ws/c/d"].map(|path| base.join(path)));
    }

    #[test]
    fn extra_roots_through_links_missing_ones_and_files_are_refused() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("real/x")).unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        std::fs::write(base.join("file"), "").unwrap();
        for (extra, end) in [
            ("link", "is a symbolic link"),
            ("link/x", "is a symbolic link"),
            ("real/../real", "is a symbolic link"),
            ("none", "does not exist"),
            ("file", "is not a directory"),
            ("file/x", "is not a directory"),
        ] {
            let text = refusal(&base.join("real"), &[&base.join(extra)]);
            assert!(text.starts_with("additional writable root") && text.ends_with(end), "{text}");
        }
        assert!(refusal(&base.join("none"), &[]).ends_with("does not exist"));
        assert!(refusal(&base.join("file"), &[]).ends_with("is not a directory"));
    }

    #[test]
    fn system_directories_are_no_writable_roots() {
        for root in ["/", "/proc", "/sys", "/dev", "/etc", "/usr", "/usr/bin", "/usr/lib", "/var", "/proc/self"] {
            assert!(refusal(Path::new(root), &[]).contains("system directory"), "{root}");
        }
        let policy = SandboxPolicy::new(ConfinedMode::ReadOnly, "/");
        assert!(resolve(&policy, &ControlPlane::default(), &[]).unwrap().writable.is_empty());
    }

    #[test]
    fn what_controls_the_sandbox_is_never_below_a_writable_root() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("bin")).unwrap();
        std::fs::create_dir_all(base.join("run/inner")).unwrap();
        let control = ControlPlane {
            launcher: Some(base.join("bin/pinfold-run")),
            broker: None,
            runtime_dirs: vec!["/nonexistent/pinfold".into(), base.join("run")],
        };
        for (root, refused) in [("", true), ("bin", true), ("run", true), ("run/inner", true), ("ws", false)] {
            let root = base.join(root);
            std::fs::create_dir_all(&root).unwrap();
            assert_eq!(resolve(&policy(&root, &[]), &control, &[]).is_err(), refused, "{root:?}");
        }
    }
}
