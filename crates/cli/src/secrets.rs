//! Which secrets of the list there are in a home directory.

use pinfold_policy::restrictions::SECRETS_IN_HOME;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// How much of a file of settings is looked at.
const MOST_BYTES: u64 = 256 << 10;

/// A secret that exists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The path, with the home directory before it; links are not resolved.
    pub(crate) place: PathBuf,
    /// What in it stays readable.
    pub(crate) except: Vec<PathBuf>,
}

/// Finds them, and what may be one.
///
/// SECURITY: what we cannot examine the command cannot either, unless it lies behind a directory of the command's own, which
/// an earlier one may have closed so that it is not found. The provider knows which directories these are.
pub(crate) fn there(home: &Path) -> Vec<Place> {
    let mut found = Vec::new();
    for secret in SECRETS_IN_HOME {
        let place = home.join(secret.place);
        let metadata = match place.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                found.push(Place { place, except: Vec::new() });
                continue;
            }
            Err(_) => continue,
        };
        let is_secret = secret.signs.is_empty() || metadata.is_file() && shown(&place, |text| secret.is_shown_by(text));
        if !is_secret {
            continue;
        }
        let mut except = Vec::new();
        if !secret.except.is_empty() {
            let names = std::fs::read_dir(&place).into_iter().flatten().flatten().map(|entry| entry.file_name());
            except.extend(names.filter(|name| name.to_str().is_some_and(|name| secret.excepts(name))));
            except.sort();
        }
        let except = except.iter().map(|name| place.join(name)).collect();
        found.push(Place { place, except });
    }
    found
}

/// Whether a file's content shows that it holds credentials; one that is too long to be looked at does.
fn shown(path: &Path, shows: impl Fn(&[u8]) -> bool) -> bool {
    let mut text = Vec::new();
    match std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut text)) {
        Ok(length) => length as u64 > MOST_BYTES || shows(&text),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_there_and_holds_something_is_listed() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        std::fs::create_dir_all(home.join(".ssh/config.d")).unwrap();
        for (name, text) in [
            (".ssh/id", ""),
            (".ssh/id.pub", ""),
            (".npmrc", "registry=x"),
            (".yarnrc.yml", "npmAuthToken: x"),
            (".netrc", ""),
        ] {
            std::fs::write(home.join(name), text).unwrap();
        }
        let found = there(home);
        let places: Vec<_> =
            found.iter().map(|found| found.place.strip_prefix(home).unwrap().to_str().unwrap()).collect();
        assert_eq!(places, [".ssh", ".netrc", ".yarnrc.yml"]);
        assert_eq!(found[0].except, [".ssh/config.d", ".ssh/id.pub"].map(|name| home.join(name)));
    }
}
