//! Directories that the client names as its roots. They open nothing unless the operator has said where they may lie, and then
//! only where workspace-write is in force.

use crate::core::locked;
use crate::setup::Ground;
use pinfold_policy::quote::quote;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// So many roots of a client are looked at.
const MOST_ROOTS: usize = 32;

/// The roots that a client has named and that were accepted.
#[derive(Debug, Default)]
pub(crate) struct Roots(Mutex<Named>);

#[derive(Debug, Default)]
struct Named {
    asked: bool,
    accepted: Vec<PathBuf>,
}

/// What became of a client's roots.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Whether others are in force than before.
    pub(crate) changed: bool,
    /// Those in force now.
    pub(crate) accepted: Vec<PathBuf>,
    /// Why others are not, in sentences.
    pub(crate) refused: Vec<String>,
}

impl Roots {
    /// Whether the client has answered.
    pub(crate) fn is_known(&self) -> bool {
        locked(&self.0).asked
    }

    /// Takes what a client names in place of what it named before.
    pub(crate) fn take(&self, addresses: &[String], below: &[PathBuf], ground: &dyn Ground) -> Taken {
        let (mut accepted, mut refused) = (Vec::new(), Vec::new());
        for address in addresses.iter().take(MOST_ROOTS) {
            match accept(address, below, ground) {
                Ok(root) if accepted.contains(&root) => {}
                Ok(root) => accepted.push(root),
                Err(why) => refused.push(format!("root {} is not accepted: {why}", quote(address))),
            }
        }
        if addresses.len() > MOST_ROOTS {
            refused.push(format!("only the first {MOST_ROOTS} roots are looked at"));
        }
        let mut named = locked(&self.0);
        let changed = named.accepted != accepted;
        named.asked = true;
        named.accepted.clone_from(&accepted);
        Taken { changed, accepted, refused }
    }

    /// Those that are still the directories that were accepted.
    pub(crate) fn standing(&self, ground: &dyn Ground) -> Vec<PathBuf> {
        let accepted = locked(&self.0).accepted.clone();
        // RACE: what is put in such a place between this look and the start is refused by whoever opens the root.
        let stands = |root: &PathBuf| root.canonicalize().is_ok_and(|real| real == *root) && root.is_dir();
        accepted.into_iter().filter(|root| stands(root) && ground.unfit_root(root).is_none()).collect()
    }
}

/// Reads one root.
fn accept(address: &str, below: &[PathBuf], ground: &dyn Ground) -> Result<PathBuf, String> {
    let path = path_of(address)?;
    let real = path.canonicalize().map_err(|error| error.to_string())?;
    if !real.is_dir() {
        return Err("it is not a directory".to_owned());
    }
    // SECURITY: where a link leads decides, and from here on the place itself is meant.
    if !below.iter().any(|allowed| real.starts_with(allowed)) {
        return Err(match real == path {
            true => "the operator has not allowed roots there".to_owned(),
            false => format!("it leads to {}, where the operator has not allowed roots", quote(&real)),
        });
    }
    match ground.unfit_root(&real) {
        Some(why) => Err(why),
        None => Ok(real),
    }
}

/// Reads a `file:` address (RFC 8089).
fn path_of(address: &str) -> Result<PathBuf, String> {
    let rest = address.strip_prefix("file://").ok_or("it is no file: address")?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    if !rest.starts_with('/') {
        return Err("it names another host, or no absolute path".to_owned());
    }
    let mut bytes = Vec::with_capacity(rest.len());
    let mut left = rest.bytes();
    while let Some(byte) = left.next() {
        match byte {
            b'%' => {
                let digits = [left.next(), left.next()].map(|digit| digit.and_then(|it| char::from(it).to_digit(16)));
                let [Some(high), Some(low)] = digits else { return Err("it is not encoded properly".to_owned()) };
                bytes.push(u8::try_from(high * 16 + low).unwrap_or(0));
            }
            b'?' | b'#' => return Err("it has a query or a fragment".to_owned()),
            other => bytes.push(other),
        }
    }
    if bytes.contains(&0) {
        return Err("it holds a NUL byte".to_owned());
    }
    Ok(Path::new(&OsString::from_vec(bytes)).components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinfold_providers::CallOptions;
    use pinfold_session::{Resolved, SessionError};

    struct Anywhere(Option<PathBuf>);

    impl Ground for Anywhere {
        fn prepare(&self, _: &mut Resolved) -> Result<CallOptions, SessionError> {
            Ok(CallOptions::default())
        }

        fn unfit_root(&self, directory: &Path) -> Option<String> {
            (self.0.as_deref() == Some(directory)).then(|| "it is ours".to_owned())
        }
    }

    #[test]
    fn addresses_are_read_or_refused() {
        assert_eq!(path_of("file:///a%20b/c"), Ok("/a b/c".into()));
        assert_eq!(path_of("file://localhost/a"), Ok("/a".into()));
        assert_eq!(path_of("file:///a/%2e%2e/b"), Ok("/a/../b".into()));
        for wrong in [
            "/a",
            "http://x/a",
            "file://host/a",
            "file:a",
            "file:///a%0",
            "file:///a%zz",
            "file:///%00",
            "file:///a?b",
            "",
            "file://",
        ] {
            assert!(path_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn roots_are_taken_only_where_the_operator_allows_them() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let allowed = base.join("allowed");
        for directory in ["allowed/a", "allowed/b", "other"] {
            std::fs::create_dir_all(base.join(directory)).unwrap();
        }
        std::fs::write(allowed.join("file"), "").unwrap();
        std::os::unix::fs::symlink(base.join("other"), allowed.join("out")).unwrap();
        std::os::unix::fs::symlink(allowed.join("a"), base.join("in")).unwrap();
        let ground = Anywhere(Some(allowed.join("b")));
        let take = |names: &[&str]| {
            let addresses: Vec<_> = names.iter().map(|name| format!("file://{}", base.join(name).display())).collect();
            Roots::default().take(&addresses, std::slice::from_ref(&allowed), &ground)
        };
        assert_eq!(take(&["allowed/a", "allowed/a/."]).accepted, [allowed.join("a")]);
        // A link counts by where it leads.
        assert_eq!(take(&["in"]).accepted, [allowed.join("a")]);
        for refused in
            ["other", "allowed/out", "allowed/a/../../other", "allowed/b", "allowed/file", "allowed/none", "", "/"]
        {
            let taken = take(&[refused]);
            assert!(taken.accepted.is_empty() && taken.refused.len() == 1, "{refused}: {taken:?}");
        }
        let none = Roots::default().take(&[format!("file://{}", allowed.display())], &[], &ground);
        assert!(none.accepted.is_empty());
    }

    #[test]
    fn a_root_that_became_a_link_is_none_any_more() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let root = base.join("root");
        std::fs::create_dir(&root).unwrap();
        let roots = Roots::default();
        let ground = Anywhere(None);
        assert!(roots.take(&[format!("file://{}", root.display())], std::slice::from_ref(&base), &ground).changed);
        assert_eq!(roots.standing(&ground), std::slice::from_ref(&root));
        std::fs::remove_dir(&root).unwrap();
        std::os::unix::fs::symlink("/etc", &root).unwrap();
        assert!(roots.standing(&ground).is_empty());
    }
}
