//! Finding `pinfold-run`, deciding whether it can be trusted, and handing it a plan.
//!
//! The launcher is the current executable's neighbour or an explicit path of the configuration. No environment
//! variable and no search path has a say.
//!
//! Whose hands it may come from: root, us (the effective user), and the owner of our own executable, who could have
//! replaced us as well; a container that runs as root in a checkout of another user needs the last. These may let
//! a group write (user-private groups with umask 002, `/usr/local` of group `staff`); what *everybody* can write is
//! refused, but for directories with the sticky bit. Inside a user namespace, an owner that is not mapped is somebody
//! outside whom nobody inside can be; that is as good as root. Whether it lies below a writable root is asked in `roots`.

use pinfold_policy::quote::{quote, quote_if_needed};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The file name of the launcher.
const NAME: &str = "pinfold-run";

/// A plan up to this many bytes stands in the argv; the kernel's limit for all arguments and variables is at least
/// 128 KiB, and usually 2 MiB (execve(2)).
const MAX_INLINE_BYTES: usize = 64 << 10;

/// What to do where there is no launcher.
pub(crate) const INSTALL: &str = "install pinfold-run beside the program that uses it";

/// Returns where the launcher ought to be, as a physical path if it is there.
pub(crate) fn expected_path(configured: Option<&Path>) -> Result<PathBuf, String> {
    let path = match configured {
        Some(path) if path.is_absolute() => path.to_owned(),
        Some(path) => return Err(format!("launcher path {} is not absolute", quote(path))),
        None => {
            let executable =
                std::env::current_exe().map_err(|error| format!("cannot tell the current executable: {error}"))?;
            executable.with_file_name(NAME)
        }
    };
    Ok(path.canonicalize().unwrap_or(path))
}

/// Checks that a launcher is a program for this machine that comes from hands that are trusted.
pub(crate) fn verify(path: &Path) -> Result<(), String> {
    let place = quote(path);
    let metadata = trusted(path, "launcher")?;
    if metadata.len() == 0 {
        return Err(format!("launcher {place} is empty"));
    }
    if rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_err() {
        return Err(format!("launcher {place} is not executable"));
    }
    let theirs = machine(path).ok_or_else(|| format!("launcher {place} is no program (not an ELF file)"))?;
    if machine(Path::new("/proc/self/exe")).is_some_and(|ours| ours != theirs) {
        return Err(format!("launcher {place} is a program for another machine"));
    }
    Ok(())
}

/// Checks that a file is regular, that it and every directory above it belongs to root, to us or to the owner of our
/// executable, and that not everybody can replace it.
///
/// SECURITY: whoever can write this file or a directory above it decides what "confined" means. Who is in the group of
/// an owner that we trust is that owner's decision; it is not examined.
pub(crate) fn trusted(path: &Path, what: &str) -> Result<Metadata, String> {
    let examine = |path: &Path| {
        std::fs::symlink_metadata(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("{what} {} does not exist", quote(path)),
            _ => format!("cannot examine {what} {}: {error}", quote(path)),
        })
    };
    let metadata = examine(path)?;
    if !metadata.is_file() {
        return Err(format!("{what} {} is not a regular file", quote(path)));
    }
    let ours = std::fs::metadata("/proc/self/exe").map(|metadata| metadata.uid());
    let trusted = [Some(0), Some(rustix::process::geteuid().as_raw()), ours.ok()];
    let owned = |path: &Path, metadata: &Metadata| {
        if trusted.contains(&Some(metadata.uid())) || outside_our_namespace(metadata.uid()) {
            return Ok(());
        }
        Err(format!("{what} cannot be trusted: {} belongs to user {}", quote(path), metadata.uid()))
    };
    let others_write = |path: &Path| Err(format!("{what} cannot be trusted: others can write {}", quote(path)));
    owned(path, &metadata)?;
    if metadata.mode() & 0o002 != 0 {
        return others_write(path);
    }
    for directory in path.ancestors().skip(1) {
        let metadata = examine(directory)?;
        if !metadata.is_dir() {
            return Err(format!("{what}: {} is not a directory", quote(directory)));
        }
        owned(directory, &metadata)?;
        let sticky = metadata.mode() & 0o1000 != 0;
        if metadata.mode() & 0o002 != 0 && !sticky {
            return others_write(directory);
        }
    }
    Ok(metadata)
}

/// Says what to do about a program that [`verify`] refused; `install` is for one that is not there, or is no program.
pub(crate) fn remedy(path: &Path, install: &str) -> String {
    let open = |path: &&Path| {
        std::fs::symlink_metadata(path).is_ok_and(|found| {
            found.mode() & 0o002 != 0 && !found.is_symlink() && !(found.is_dir() && found.mode() & 0o1000 != 0)
        })
    };
    match path.ancestors().find(open) {
        Some(open) => format!("let nobody else write it: chmod go-w {}", quote_if_needed(open)),
        None => install.to_owned(),
    }
}

/// Whether a user id stands for everybody who is not mapped into our user namespace.
fn outside_our_namespace(user: u32) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let overflow = read("/proc/sys/kernel/overflowuid").and_then(|text| text.trim().parse().ok()).unwrap_or(65534);
    user == overflow && read("/proc/self/uid_map").is_some_and(|map| !is_mapped(&map, user))
}

/// Whether a table of ids (`inside outside count`, user_namespaces(7)) holds one; a table that makes no sense holds all.
fn is_mapped(map: &str, user: u32) -> bool {
    let holds = |line: &str| {
        let numbers: Option<Vec<u64>> = line.split_whitespace().map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some([inside, _, count]) => (*inside..inside.saturating_add(*count)).contains(&u64::from(user)),
            _ => true,
        }
    };
    map.trim().is_empty() || map.lines().any(holds)
}

/// What an ELF file is for: class, byte order and machine.
fn machine(path: &Path) -> Option<[u8; 4]> {
    let mut header = [0; 20];
    std::fs::File::open(path).ok()?.read_exact(&mut header).ok()?;
    header.starts_with(b"\x7fELF").then(|| [header[4], header[5], header[18], header[19]])
}

/// Whether a plan is short enough to stand in an argv.
pub(crate) fn fits_inline(words: &[OsString]) -> bool {
    words.iter().map(|word| word.len() + 1).sum::<usize>() <= MAX_INLINE_BYTES
}

/// A plan as the launcher reads it from a file or descriptor: each word ended by NUL.
pub(crate) fn block(words: &[OsString]) -> Vec<u8> {
    let mut block = Vec::with_capacity(words.iter().map(|word| word.len() + 1).sum());
    for word in words {
        block.extend_from_slice(word.as_bytes());
        block.push(0);
    }
    block
}

/// The start of every launcher argv, up to and with `--`.
pub(crate) fn prefix(launcher: &Path, words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut argv: Vec<OsString> = vec![launcher.into(), "--spec".into(), "1".into()];
    argv.extend(words);
    argv.push("--".into());
    argv
}

/// An argv that begins with the launcher, which enters control groups and keeps variables from the program it becomes.
pub(crate) fn outside<'a>(
    launcher: &Path,
    groups: impl IntoIterator<Item = &'a Path>,
    argv: Vec<OsString>,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![launcher.into(), "--outside".into()];
    for group in groups {
        push(&mut words, &["--join".as_ref(), group.as_os_str()]);
    }
    words.push("--".into());
    words.extend(argv);
    words
}

/// The same around bubblewrap, with a guard that ends what is left if it is killed while it begins.
pub(crate) fn guarded(launcher: &Path, argv: Vec<OsString>) -> Vec<OsString> {
    let mut words = outside(launcher, [], argv);
    words.insert(2, "--guard".into());
    words
}

/// Adds an option and its values to a list of words.
pub(crate) fn push<W: AsRef<OsStr>>(words: &mut Vec<OsString>, option: &[W]) {
    words.extend(option.iter().map(|word| word.as_ref().to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_missing_empty_or_foreign_launcher_is_named() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("pinfold-run");
        let place = quote(&path);
        assert_eq!(verify(&path).unwrap_err(), format!("launcher {place} does not exist"));
        std::fs::write(&path, "").unwrap();
        assert_eq!(verify(&path).unwrap_err(), format!("launcher {place} is empty"));
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert_eq!(verify(&path).unwrap_err(), format!("launcher {place} is not executable"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(verify(&path).unwrap_err(), format!("launcher {place} is no program (not an ELF file)"));
        let mut header = std::fs::read("/proc/self/exe").unwrap()[..64].to_vec();
        header[18] ^= 0xff;
        std::fs::write(&path, header).unwrap();
        assert_eq!(verify(&path).unwrap_err(), format!("launcher {place} is a program for another machine"));
        std::fs::copy("/proc/self/exe", &path).unwrap();
        assert_eq!(verify(&path), Ok(()));
        // Umask 002 with a group of the user's own.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o775)).unwrap();
        assert_eq!(verify(&path), Ok(()));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o757)).unwrap();
        assert_eq!(verify(&path).unwrap_err(), format!("launcher cannot be trusted: others can write {place}"));
    }

    #[test]
    fn a_launcher_in_a_directory_that_others_write_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("pinfold-run");
        std::fs::copy("/proc/self/exe", &path).unwrap();
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(verify(&path).unwrap_err().contains("others can write"));
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(verify(&path), Ok(()));
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(verify(&link).unwrap_err().contains("not a regular file"));
    }

    #[test]
    fn the_owner_of_our_own_executable_is_trusted_and_a_stranger_is_not() {
        let ours = std::fs::metadata("/proc/self/exe").unwrap().uid();
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("pinfold-run");
        std::fs::copy("/proc/self/exe", &path).unwrap();
        std::os::unix::fs::chown(&path, Some(ours), None).unwrap();
        assert_eq!(verify(&path), Ok(()));
        if std::os::unix::fs::chown(&path, Some(ours + 4321), None).is_ok() {
            assert!(verify(&path).unwrap_err().contains("belongs to user"));
        }
    }

    #[test]
    fn only_an_id_that_is_not_mapped_stands_for_somebody_outside() {
        assert!(is_mapped("         0          0 4294967295\n", 65534));
        assert!(!is_mapped("      1000       1000          1\n", 65534));
        assert!(is_mapped("0 1000 1\n1 100000 65535\n", 65534) && !is_mapped("0 1000 1\n1 100000 65533\n", 65534));
        assert!(is_mapped("", 65534) && is_mapped("x y z", 65534));
        assert!(!outside_our_namespace(1));
    }

    #[test]
    fn a_block_ends_each_word() {
        assert_eq!(block(&["a b".into(), "".into(), "\n".into()]), b"a b\0\0\n\0");
        assert!(fits_inline(&["x".repeat(65535).into()]));
        assert!(!fits_inline(&["x".repeat(65535).into(), "".into()]));
    }
}
