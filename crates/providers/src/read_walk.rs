//! Looks for the paths that a pattern with wildcards matches, when a call begins.
//!
//! Bounded in entries, matches and time: what is not found cannot be closed, so a walk that does not reach its end is a
//! refusal and not a shorter list. Links are not followed, and file systems of the kernel are not entered; they hold no
//! secrets of a user, and some have no end.
//!
//! References: openat(2) (`O_NOFOLLOW`), statfs(2) for what is mounted.

use pinfold_policy::quote::quote;
use pinfold_policy::{PathPattern, SandboxError};
use std::fs::FileType;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How far a walk may go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) entries: u64,
    pub(crate) matches: usize,
    pub(crate) time: Duration,
}

/// A million entries, five hundred matches, five seconds, for all patterns of a call together. Each match is a mount, and
/// bubblewrap takes 9000 arguments.
pub(crate) const BOUNDS: Bounds = Bounds { entries: 1_000_000, matches: 500, time: Duration::from_secs(5) };

/// Trees of the kernel.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// What one walk found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Files and directories that match, and what links that match lead to, if it lies below the same beginning.
    pub(crate) paths: Vec<PathBuf>,
    /// Links that match and lead elsewhere.
    pub(crate) leads_out: Vec<PathBuf>,
    /// Directories that could not be looked into.
    pub(crate) unseen: Vec<PathBuf>,
}

/// Walks for all patterns of a call.
pub(crate) struct Walk {
    bounds: Bounds,
    begun: Instant,
    entries: u64,
    found: Found,
}

impl Walk {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, begun: Instant::now(), entries: 0, found: Found::default() }
    }

    /// Looks for what one pattern matches; `skip` says which directories are closed anyway.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` if a bound is reached.
    pub(crate) fn look(&mut self, pattern: &PathPattern, skip: impl Fn(&Path) -> bool) -> Result<(), SandboxError> {
        let Ok(beginning) = pattern.literal_prefix().canonicalize() else { return Ok(()) };
        let spelled = |path: &Path| match path.strip_prefix(&beginning) {
            Ok(below) => pattern.literal_prefix().join(below),
            Err(_) => path.to_owned(),
        };
        let mut open = vec![beginning.clone()];
        while let Some(directory) = open.pop() {
            if KERNEL.iter().any(|tree| directory.starts_with(tree)) || skip(&directory) {
                continue;
            }
            let listing = match std::fs::read_dir(&directory) {
                Ok(listing) => listing,
                // Gone since it was found, or the beginning is a file.
                Err(error) if is_absence(&error) => continue,
                Err(_) => {
                    self.found.unseen.push(directory);
                    continue;
                }
            };
            for entry in listing {
                self.entries += 1;
                let late = self.entries.is_multiple_of(64) && self.begun.elapsed() >= self.bounds.time;
                if late || self.entries > self.bounds.entries {
                    return Err(self.too_far(pattern, &directory));
                }
                let (path, kind) = match entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) {
                    Ok(known) => known,
                    Err(error) if is_absence(&error) => continue,
                    Err(_) => {
                        self.found.unseen.push(directory.clone());
                        continue;
                    }
                };
                let name = spelled(&path);
                if pattern.matches(&name) {
                    self.note(&beginning, path, kind);
                    if self.found.paths.len() > self.bounds.matches {
                        return Err(self.too_many(pattern));
                    }
                } else if kind.is_dir() && pattern.may_match_below(&name) {
                    open.push(path);
                }
            }
        }
        Ok(())
    }

    /// Notes a match. What lies in a directory that matches is closed with it.
    fn note(&mut self, beginning: &Path, path: PathBuf, kind: FileType) {
        if !kind.is_symlink() {
            return self.found.paths.push(path);
        }
        match path.canonicalize() {
            Ok(target) if target.starts_with(beginning) && target != beginning && !beginning.starts_with(&target) => {
                self.found.paths.push(target);
            }
            // SECURITY: an earlier command could have put the link there, and have any file of the host hidden from the
            // next one.
            Ok(_) => self.found.leads_out.push(path),
            Err(_) => {}
        }
    }

    pub(crate) fn end(self) -> Found {
        self.found
    }

    fn too_far(&self, pattern: &PathPattern, directory: &Path) -> SandboxError {
        let Bounds { entries, time, .. } = self.bounds;
        refusal(
            pattern,
            &format!(
                "needs a look at more than {entries} entries or {} seconds, and the search stopped in {}; begin the pattern \
                 with a narrower directory, or deny a directory",
                time.as_secs(),
                quote(directory)
            ),
        )
    }

    fn too_many(&self, pattern: &PathPattern) -> SandboxError {
        let most = self.bounds.matches;
        refusal(pattern, &format!("matches more than {most} paths, and each needs a wall of its own; deny a directory"))
    }
}

fn refusal(pattern: &PathPattern, why: &str) -> SandboxError {
    SandboxError::InvalidPolicy { detail: format!("denied read {} {why}", quote(pattern.text())) }
}

fn is_absence(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const LONG: Bounds = Bounds { entries: 1000, matches: 10, time: Duration::from_secs(60) };

    fn walk(base: &Path, pattern: &str, bounds: Bounds) -> Result<Found, String> {
        let pattern = PathPattern::parse(pattern.as_ref(), base, None).unwrap();
        let mut walk = Walk::new(bounds);
        walk.look(&pattern, |path| path.ends_with("closed")).map_err(|error| error.to_string())?;
        let mut found = walk.end();
        found.paths.sort();
        Ok(found)
    }

    fn tree() -> (tempfile::TempDir, PathBuf) {
        let base = tempfile::tempdir().unwrap();
        let real = base.path().canonicalize().unwrap();
        for directory in ["a/b/c", "keys.pem", "closed", "elsewhere"] {
            std::fs::create_dir_all(real.join(directory)).unwrap();
        }
        for file in ["x.pem", "a/y.pem", "a/b/c/z.pem", "keys.pem/inner.pem", "closed/w.pem", "a/other"] {
            std::fs::write(real.join(file), "").unwrap();
        }
        (base, real)
    }

    #[test]
    fn matches_are_found_and_what_lies_in_one_is_not_listed_again() {
        let (_held, base) = tree();
        let found = walk(&base, "**/*.pem", LONG).unwrap();
        let expected = ["a/b/c/z.pem", "a/y.pem", "keys.pem", "x.pem"].map(|name| base.join(name));
        assert_eq!((found.paths, found.leads_out), (expected.to_vec(), vec![]));
        assert_eq!(walk(&base, "*.pem", LONG).unwrap().paths, ["keys.pem", "x.pem"].map(|name| base.join(name)));
        assert_eq!(walk(&base, "none/*.pem", LONG).unwrap(), Found::default());
        assert_eq!(walk(&base, "x.pem/*", LONG).unwrap(), Found::default());
    }

    #[test]
    fn links_are_not_followed_out() {
        let (_held, base) = tree();
        symlink("/etc", base.join("a/out.pem")).unwrap();
        symlink("/etc", base.join("a/way")).unwrap();
        symlink("b/c", base.join("a/in.pem")).unwrap();
        symlink(".", base.join("a/up.pem")).unwrap();
        let found = walk(&base.join("a"), "**/*.pem", LONG).unwrap();
        let mut out = found.leads_out;
        out.sort();
        assert_eq!(out, [base.join("a/out.pem"), base.join("a/up.pem")]);
        assert!(found.paths.contains(&base.join("a/b/c")), "{:?}", found.paths);
        // The beginning itself may be a link.
        symlink("a", base.join("link")).unwrap();
        assert!(walk(&base, "link/*.pem", LONG).unwrap().paths.contains(&base.join("a/y.pem")));
    }

    #[test]
    fn a_walk_that_goes_too_far_is_a_refusal() {
        let (_held, base) = tree();
        let few = |entries, matches| Bounds { entries, matches, ..LONG };
        let error = walk(&base, "**/*.pem", few(3, 10)).unwrap_err();
        assert!(error.contains("more than 3 entries") && error.contains("**/*.pem"), "{error}");
        let error = walk(&base, "**/*.pem", few(1000, 2)).unwrap_err();
        assert!(error.contains("more than 2 paths"), "{error}");
        // A walk enters only what may match, so a narrow pattern does not count the rest.
        assert!(walk(&base, "a/*.pem", few(5, 10)).is_ok());
    }

    #[test]
    fn the_trees_of_the_kernel_are_not_entered() {
        assert_eq!(walk(Path::new("/proc"), "self/*", LONG).unwrap(), Found::default());
    }
}
