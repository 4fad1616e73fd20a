//! What a lookup of a path meets on its way, as a command of this user would: links, and the first directory that it may not
//! search.
//!
//! Root looks past permissions out here and, without capabilities, does not inside. So root asks the kernel in a thread that
//! has put these capabilities aside: it knows access lists (acl(5)) and whatever else decides.
//!
//! References: path_resolution(7), capabilities(7).

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// What lies on the way to a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lookup {
    /// Where the links lie, physical.
    pub(crate) links: Vec<PathBuf>,
    /// The first directory that may not be searched, physical.
    pub(crate) barrier: Option<PathBuf>,
}

impl Lookup {
    /// Looks for an absolute path, as far as it exists.
    pub(crate) fn of(path: &Path) -> Self {
        if rustix::process::geteuid().is_root() { without_power(|| walk(path)) } else { walk(path) }
    }
}

/// Returns where the links lie that an absolute path leads through: their physical paths, in order.
pub fn links_on(path: &Path) -> Vec<PathBuf> {
    walk(path).links
}

/// Whether a command of this user gets to a physical path.
pub(crate) fn reachable(path: &Path) -> bool {
    // Nobody else has powers that a command has not.
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    // An access list does not change what the owner may do.
    let plain =
        |directory: &Path| directory.metadata().is_ok_and(|found| found.uid() == 0 && found.mode() & 0o100 != 0);
    path.ancestors().skip(1).all(plain) || Lookup::of(path).barrier.is_none()
}

fn walk(path: &Path) -> Lookup {
    let mut lookup = Lookup::default();
    let mut at = PathBuf::from("/");
    let mut left = names(path);
    while let Some(name) = left.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        match next.read_link() {
            Ok(target) => {
                lookup.links.push(next);
                if lookup.links.len() >= MOST_LINKS {
                    return lookup;
                }
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                left.extend(names(&target));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                lookup.barrier = Some(at);
                return lookup;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return lookup,
            Err(_) => at = next,
        }
    }
    lookup
}

/// The steps of a path, last first.
fn names(path: &Path) -> Vec<OsString> {
    let steps = path.components().filter(|step| matches!(step, Component::Normal(_) | Component::ParentDir));
    steps.rev().map(|step| step.as_os_str().to_owned()).collect()
}

/// Does something in a thread without the capabilities that look past permissions.
fn without_power<T: Send>(act: impl Fn() -> T + Sync) -> T {
    let powerless = || {
        // Where that fails everything seems open: a wall is then tried where none may be needed, and one that cannot be put
        // up is a refusal.
        let _ = capabilities(None).and_then(|mut sets| {
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets)
        });
        act()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("lookup".to_owned()).spawn_scoped(scope, powerless);
        thread.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(&act)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn links_and_the_first_closed_directory_are_found() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("d/e/f")).unwrap();
        std::fs::write(base.join("d/e/f/key"), "").unwrap();
        symlink("d/e", base.join("one")).unwrap();
        symlink(base.join("one/f"), base.join("d/two")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        let lookup = |name: &str| Lookup::of(&base.join(name));
        let links = |names: &[&str]| names.iter().map(|name| base.join(name)).collect::<Vec<_>>();
        assert_eq!(lookup("d/e/f/key"), Lookup::default());
        assert_eq!(lookup("d/two/key"), Lookup { links: links(&["d/two", "one"]), barrier: None });
        assert_eq!(lookup("one/../../one/f"), Lookup { links: links(&["one", "one"]), barrier: None });
        assert_eq!(lookup("none/key"), Lookup::default());
        assert_eq!(lookup("loop").links.len(), MOST_LINKS);
        let mode = |mode| std::fs::set_permissions(base.join("d/e"), std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0);
        let closed = lookup("d/two/key");
        assert!(reachable(&base.join("d/e")));
        assert!(!rustix::process::geteuid().is_root() || !reachable(&base.join("d/e/f/key")));
        mode(0o700);
        assert_eq!(closed.barrier, Some(base.join("d/e")));
        assert!(reachable(&base.join("d/e/f/key")));
    }

    /// An access list opens a directory of another user to root, or closes it to a group of root's.
    #[test]
    fn access_lists_count() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let directory = base.join("theirs");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("key"), "").unwrap();
        if std::os::unix::fs::chown(&directory, Some(4321), None).is_err() {
            // Only root has powers to be put aside.
            return;
        }
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!reachable(&directory.join("key")));
        // u::rwx, u:0:r-x, g::---, m::r-x, o::--- (linux/posix_acl_xattr.h).
        let entries: [(u16, u16, u32); 5] =
            [(1, 7, u32::MAX), (2, 5, 0), (4, 0, u32::MAX), (0x10, 5, u32::MAX), (0x20, 0, u32::MAX)];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            list.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain(id.to_le_bytes()));
        }
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(&directory, "system.posix_acl_access", &list, flags) {
            Err(rustix::io::Errno::OPNOTSUPP) => return, // this file system has none
            set => set.unwrap(),
        }
        assert!(reachable(&directory.join("key")));
    }
}
