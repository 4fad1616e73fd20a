//! Which directories are never opened for writing as a root, whatever a policy says. The same for commands and for
//! file tools.

use std::path::Path;

/// Directories that are never a root themselves; what lies below them may be one, if no entry of [`SYSTEM_TREES`]
/// covers it.
const NEVER_ROOTS: [&str; 7] = ["/", "/home", "/run", "/var", "/var/lib", "/mnt", "/media"];

/// Trees in which nothing is a root: what programs are, how the host is set up, and what the kernel shows.
const SYSTEM_TREES: [&str; 11] =
    ["/proc", "/sys", "/dev", "/etc", "/usr", "/boot", "/bin", "/sbin", "/lib", "/lib64", "/lib32"];

/// Exceptions within the trees above: shared memory, and where container images keep the sources they build.
const NOT_SYSTEM: [&str; 3] = ["/dev/shm", "/usr/src", "/usr/local/src"];

/// Says whether a physical path is a directory of the system that must not become writable as a root.
pub fn is_system_directory(path: &Path) -> bool {
    NEVER_ROOTS.iter().any(|never| path == Path::new(never))
        || (SYSTEM_TREES.iter().any(|tree| path.starts_with(tree))
            && !NOT_SYSTEM.iter().any(|tree| path.starts_with(tree)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_no_root_and_places_of_users_are() {
        for path in ["/", "/home", "/usr/bin", "/etc/x", "/proc/1", "/var/lib", "/dev"] {
            assert!(is_system_directory(Path::new(path)), "{path}");
        }
        for path in ["/home/u", "/root", "/srv/x", "/dev/shm/x", "/usr/src/app", "/var/tmp/x", "/data"] {
            assert!(!is_system_directory(Path::new(path)), "{path}");
        }
    }
}
