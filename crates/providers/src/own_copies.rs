//! Files of root's that ssh refuses to read where they seem to be nobody's, as in the user namespace of an ordinary user:
//! everything that its configuration includes (ssh_config(5), "Include"). The launcher covers them with copies that belong
//! to the user.

use pinfold_policy::PathPattern;
use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// More files than this are left as they are.
const MOST_FILES: usize = 64;
/// More names than this are not looked at for the patterns of one call.
const MOST_NAMES: usize = 4096;
/// Configuration files are short; what is longer is not read.
const MOST_BYTES: u64 = 64 << 10;

/// Where ssh begins, and where it looks for what is included by a relative path.
struct Beginning {
    file: PathBuf,
    relative_to: PathBuf,
}

/// Finds the files: physical paths, each once.
pub(crate) fn of_ssh(home: Option<&Path>) -> Vec<PathBuf> {
    let mut beginnings = vec![Beginning { file: "/etc/ssh/ssh_config".into(), relative_to: "/etc/ssh".into() }];
    if let Some(home) = home.filter(|home| home.is_absolute()) {
        beginnings.push(Beginning { file: home.join(".ssh/config"), relative_to: home.join(".ssh") });
    }
    let mut found = Vec::new();
    for beginning in beginnings {
        let files = reached(beginning.file, &beginning.relative_to, home);
        // ssh does not ask whose the first file is; the user's own is the user's.
        found.extend(files.into_iter().skip(1).filter_map(|file| trusted(&file)));
    }
    found.sort();
    found.dedup();
    found.truncate(MOST_FILES);
    found
}

/// A file and what it includes, directly or not; no more than [`MOST_FILES`] behind the first.
///
/// SECURITY: an earlier command may have written these files, so there is a bound on everything that they can ask for.
fn reached(first: PathBuf, relative_to: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let (mut seen, mut next, mut names) = (vec![first], 0, MOST_NAMES);
    while let Some(file) = seen.get(next).cloned() {
        for file in included(&file, relative_to, home, &mut names) {
            if seen.len() > MOST_FILES {
                return seen;
            }
            if !seen.contains(&file) {
                seen.push(file);
            }
        }
        next += 1;
    }
    seen
}

/// The physical path of a file that ssh would read outside, and that belongs to root.
///
/// SECURITY: a copy belongs to the user, so ssh trusts it. A file of anybody else, or one that others can write, must
/// stay refused.
fn trusted(file: &Path) -> Option<PathBuf> {
    let physical = file.canonicalize().ok()?;
    let metadata = physical.metadata().ok()?;
    let fit = metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o022 == 0 && metadata.len() <= MOST_BYTES;
    (fit && access(&physical, Access::READ_OK).is_ok()).then_some(physical)
}

/// What a file includes; `names` is how many names may still be looked at.
fn included(file: &Path, relative_to: &Path, home: Option<&Path>, names: &mut usize) -> Vec<PathBuf> {
    let readable = |file: &Path| file.metadata().is_ok_and(|known| known.is_file() && known.len() <= MOST_BYTES);
    let text = if readable(file) { std::fs::read(file).unwrap_or_default() } else { Vec::new() };
    let mut files = Vec::new();
    for pattern in text.split(|byte| *byte == b'\n').flat_map(patterns) {
        if *names == 0 || files.len() > MOST_FILES {
            break;
        }
        *names -= 1;
        let pattern = Path::new(&pattern);
        let pattern = match (pattern.strip_prefix("~"), home) {
            (Ok(rest), Some(home)) => home.join(rest),
            _ => relative_to.join(pattern),
        };
        files.extend(matching(&pattern, names));
    }
    files
}

/// The patterns of one line, if it is an `Include`.
fn patterns(line: &[u8]) -> Vec<OsString> {
    let line = line.trim_ascii();
    let end = line.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'=').unwrap_or(line.len());
    let (keyword, rest) = line.split_at(end);
    if !keyword.eq_ignore_ascii_case(b"include") {
        return Vec::new();
    }
    let rest = rest.trim_ascii();
    let rest = rest.strip_prefix(b"=").unwrap_or(rest);
    // Words in double quotes may hold spaces: every second piece.
    let mut words = Vec::new();
    for (number, piece) in rest.split(|byte| *byte == b'"').enumerate() {
        if number % 2 == 1 {
            words.push(OsStr::from_bytes(piece).to_owned());
        } else {
            let plain = piece.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            words.extend(plain.map(|word| OsStr::from_bytes(word).to_owned()));
        }
    }
    words
}

/// The files that fit a pattern, which may have special characters in its last part (glob(7)).
fn matching(pattern: &Path, names: &mut usize) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name()) else { return Vec::new() };
    let is_pattern = |text: &OsStr| text.as_bytes().iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
    if !is_pattern(name) {
        return vec![pattern.to_owned()];
    }
    // Our own patterns take a time that grows with a name's length only. They know braces, which ssh does not: what they
    // match beside is copied in vain.
    let Ok(fits) = PathPattern::parse(name, Path::new("/"), None) else { return Vec::new() };
    let mut files = Vec::new();
    for found in std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name()) {
        if *names == 0 || files.len() > MOST_FILES {
            break;
        }
        *names -= 1;
        let shown = !found.as_bytes().starts_with(b".") || name.as_bytes().starts_with(b".");
        if shown && fits.matches(&Path::new("/").join(&found)) {
            files.push(directory.join(found));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_read_as_ssh_reads_them() {
        let read = |line: &str| patterns(line.as_bytes());
        assert_eq!(read("  Include /a/*.conf b"), ["/a/*.conf", "b"]);
        assert_eq!(read("include=\"/a b/c\" d"), ["/a b/c", "d"]);
        assert_eq!(read("INCLUDE = ~/x\r"), ["~/x"]);
        for line in ["# Include /a", "IncludeX /a", "Host include", ""] {
            assert_eq!(read(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn included_files_are_followed_and_found_by_pattern() {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        std::fs::create_dir(path("d")).unwrap();
        std::fs::write(path("config"), "Host x\n  Include d/*.conf ~/own\n").unwrap();
        for name in ["d/1.conf", "d/2.conf", "d/.hidden.conf", "d/other"] {
            std::fs::write(path(name), "").unwrap();
        }
        let mut files = included(&path("config"), base.path(), Some(Path::new("/home/u")), &mut MOST_NAMES.clone());
        files.sort();
        assert_eq!(files, [PathBuf::from("/home/u/own"), path("d/1.conf"), path("d/2.conf")]);
    }

    /// What a command left in the configuration of ssh: a pattern that takes for ever, files without end, and a circle.
    #[test]
    fn what_is_included_has_bounds() {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name);
        let reached = || reached(path("config"), base.path(), None);
        let long = "a".repeat(200);
        std::fs::create_dir(path("d")).unwrap();
        std::fs::write(path("d").join(&long), "").unwrap();
        std::fs::write(path("config"), format!("Include d/{}b\nInclude d/{}\n", "*a".repeat(60), "*a".repeat(60)))
            .unwrap();
        assert_eq!(reached(), [path("config"), path("d").join(&long)]);
        for number in 0..5000 {
            std::fs::write(path(&format!("d/{number}")), "Include ../config config d/*\n").unwrap();
        }
        std::fs::write(path("config"), "Include d/*\n".repeat(1000)).unwrap();
        assert!(reached().len() <= MOST_FILES + 1);
        std::fs::write(path("config"), "Include n/*\n".repeat(5000)).unwrap();
        let mut names = MOST_NAMES;
        assert!(included(&path("config"), base.path(), None, &mut names).is_empty());
        assert_eq!(names, 0);
    }

    #[test]
    fn only_files_of_root_that_nobody_else_writes_are_copied() {
        assert_eq!(trusted(Path::new("/etc/passwd")), Some("/etc/passwd".into()));
        assert_eq!(trusted(Path::new("/etc")), None);
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("theirs");
        std::fs::write(&path, "").unwrap();
        if std::os::unix::fs::chown(&path, Some(4321), None).is_ok() {
            assert_eq!(trusted(&path), None);
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
            assert_eq!(trusted(&path), Some(path.canonicalize().unwrap()));
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o664);
            std::fs::set_permissions(&path, open).unwrap();
        }
        assert_eq!(trusted(&path), None);
    }
}
