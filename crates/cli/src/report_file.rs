//! The file that `run --report` leaves behind. It is prepared before the command starts, so that a bad place is
//! an argument error and not a lost report, and it appears by rename after everything has ended.

use pinfold_policy::SandboxError;
use pinfold_policy::quote::quote;
use pinfold_providers::links_on;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A prepared place for one report; dropped unwritten, it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct ReportFile {
    place: Place,
    shown: PathBuf,
}

#[derive(Debug)]
enum Place {
    /// Standard error.
    StandardError,
    /// A pipe, socket or device, written to as it is.
    Stream(File),
    /// A file that takes the place of another by rename.
    File { file: File, draft: Draft, target: PathBuf },
}

/// A file beside the target that goes away unless it became the target.
#[derive(Debug)]
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // after the rename there is nothing to remove
    }
}

impl ReportFile {
    /// Prepares a report at `path`, with `-` for standard error; `writable` are the places that the command may
    /// write to, and `roots` those of the policy, which an earlier command may have written to.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` if the place lies in a writable one, is a directory or a link, lies behind a link in one of the
    /// roots, or cannot be written.
    pub(crate) fn prepare(path: &Path, writable: &[&Path], roots: &[&Path]) -> Result<Self, SandboxError> {
        let refuse = |reason: String| SandboxError::InvalidPolicy {
            detail: format!("the report file {} {reason}", quote(path)),
        };
        if path == Path::new("-") {
            return Ok(Self { place: Place::StandardError, shown: path.to_owned() });
        }
        let by_link = planted_link(path, roots);
        if let Ok(found) = std::fs::metadata(path) {
            if found.is_dir() {
                return Err(refuse("is a directory".to_owned()));
            }
            if !found.is_file() {
                if let Some(why) = by_link {
                    return Err(refuse(why));
                }
                let stream = open_stream(path).map_err(|error| refuse(format!("cannot be opened: {error}")))?;
                return Ok(Self { place: Place::Stream(stream), shown: path.to_owned() });
            }
        }
        let (directory, name) = target_of(path).map_err(refuse)?;
        // SECURITY: whoever can write this directory can put a report of his own there, before or after ours.
        for root in writable {
            let root = crate::surroundings::physical(root);
            if directory.starts_with(&root) {
                return Err(refuse(format!(
                    "lies in {}, which the command can write, so the command could forge it; choose a place outside, \
                     or -",
                    quote(root)
                )));
            }
        }
        if let Some(why) = by_link {
            return Err(refuse(why));
        }
        let mut hidden = OsString::from(".");
        hidden.push(&name);
        hidden.push(format!(".{}.pinfold", std::process::id()));
        let draft = directory.join(hidden);
        let file = OpenOptions::new().write(true).create_new(true).open(&draft);
        let file = file.map_err(|error| refuse(format!("cannot be created: {error}")))?;
        let place = Place::File { file, draft: Draft(draft), target: directory.join(name) };
        Ok(Self { place, shown: path.to_owned() })
    }

    /// Says whether the report goes to standard error.
    pub(crate) fn is_standard_error(&self) -> bool {
        matches!(self.place, Place::StandardError)
    }

    /// Writes one line and, for a file, puts it in its place.
    ///
    /// # Errors
    ///
    /// A sentence with the failed act.
    pub(crate) fn write(self, line: &str) -> Result<(), String> {
        let text = format!("{line}\n");
        let outcome = match self.place {
            Place::StandardError => {
                std::io::stderr().write_all(format!("{}{text}", crate::voice::line_start()).as_bytes())
            }
            Place::Stream(mut stream) => stream.write_all(text.as_bytes()),
            Place::File { mut file, draft, target } => {
                file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&draft.0, target))
            }
        };
        outcome.map_err(|error| format!("the report could not be written to {}: {error}", quote(&self.shown)))
    }
}

/// Says why a path is not followed: it is a link, or leads through one where an earlier command could have put it.
///
/// SECURITY: such a link chooses the file that the report replaces. Those of the kernel (`/dev/stdout`) are nobody's.
fn planted_link(path: &Path, roots: &[&Path]) -> Option<String> {
    let absolute = std::path::absolute(path).ok()?;
    let last = absolute.parent().and_then(|parent| Some(parent.canonicalize().ok()?.join(absolute.file_name()?)));
    let kernels = |link: &Path| ["/dev", "/proc"].iter().any(|tree| link.starts_with(tree));
    let roots: Vec<PathBuf> = roots.iter().map(|root| crate::surroundings::physical(root)).collect();
    let links = links_on(&absolute).into_iter().filter(|link| !kernels(link));
    for link in links {
        if roots.iter().any(|root| link.starts_with(root)) {
            return Some(format!("is reached by the link {}, which a command could have put there", quote(&link)));
        }
        if last.as_ref() == Some(&link) {
            return Some("is a link; name the file that it leads to".to_owned());
        }
    }
    None
}

/// Opens what is no regular file. A pipe that nobody reads would keep us waiting before anything is started.
fn open_stream(path: &Path) -> std::io::Result<File> {
    let waits_not = rustix::fs::OFlags::NONBLOCK;
    let stream = OpenOptions::new().write(true).custom_flags(waits_not.bits() as i32).open(path)?;
    // A report longer than the pipe must still be written whole.
    rustix::fs::fcntl_setfl(&stream, rustix::fs::fcntl_getfl(&stream)? - waits_not)?;
    Ok(stream)
}

/// Returns the physical directory and the name of a file that exists or is to be made.
fn target_of(path: &Path) -> Result<(PathBuf, OsString), String> {
    let whole = match path.canonicalize() {
        Ok(physical) => physical,
        Err(_) => {
            let name = path.file_name().ok_or("names no file")?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let parent = parent.canonicalize().map_err(|error| format!("cannot be created: {error}"))?;
            parent.join(name)
        }
    };
    match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) => Ok((parent.to_owned(), name.to_owned())),
        _ => Err("names no file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<OsString> {
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn the_file_appears_only_when_it_is_complete() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("r.json");
        let report = ReportFile::prepare(&target, &[], &[]).unwrap();
        assert!(!target.exists());
        report.write("{}").unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "{}\n");
        assert_eq!(names(place.path()), ["r.json"]);
    }

    #[test]
    fn an_unwritten_report_leaves_nothing_behind() {
        let place = tempfile::tempdir().unwrap();
        drop(ReportFile::prepare(&place.path().join("r.json"), &[], &[]).unwrap());
        assert!(names(place.path()).is_empty());
    }

    #[test]
    fn a_place_that_the_command_can_write_is_refused_also_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let workspace = place.path().join("w");
        std::fs::create_dir_all(workspace.join("deep")).unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(workspace.join("deep"), &link).unwrap();
        std::os::unix::fs::symlink(workspace.join("deep/r.json"), place.path().join("r.json")).unwrap();
        std::fs::write(workspace.join("deep/r.json"), "old").unwrap();
        for path in [workspace.join("r"), link.join("new"), place.path().join("r.json"), workspace.join("deep/../x")] {
            let error = ReportFile::prepare(&path, &[&workspace], &[]).unwrap_err().to_string();
            assert!(error.contains("could forge it"), "{error}");
        }
        assert_eq!(std::fs::read_to_string(workspace.join("deep/r.json")).unwrap(), "old");
        assert!(ReportFile::prepare(&place.path().join("w.json"), &[&workspace], &[]).is_ok());
    }

    /// An earlier command put the link there; now the mode is read-only, or another file is named.
    #[test]
    fn a_link_that_a_command_could_have_put_there_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let workspace = place.path().join("w");
        let kept = place.path().join("out/kept");
        for directory in [&workspace, &place.path().join("out")] {
            std::fs::create_dir(directory).unwrap();
        }
        std::fs::write(&kept, "kept").unwrap();
        std::os::unix::fs::symlink(&kept, workspace.join("r.json")).unwrap();
        std::os::unix::fs::symlink("../out", workspace.join("reports")).unwrap();
        std::os::unix::fs::symlink("w/reports", place.path().join("way")).unwrap();
        std::os::unix::fs::symlink(&kept, place.path().join("last")).unwrap();
        std::os::unix::fs::symlink("/dev/null", place.path().join("stream")).unwrap();
        for (name, word) in [
            ("w/r.json", "could have put there"),
            ("w/reports/kept", "could have put there"),
            ("way/new", "could have put there"),
            ("last", "is a link"),
            ("stream", "is a link"),
        ] {
            let error = ReportFile::prepare(&place.path().join(name), &[], &[&workspace]).unwrap_err().to_string();
            assert!(error.contains(word), "{name}: {error}");
        }
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "kept");
        // Links elsewhere that lead to a directory, and what is no link, are as good as before.
        std::os::unix::fs::symlink("out", place.path().join("mine")).unwrap();
        for path in [place.path().join("mine/new"), workspace.join("plain"), "/dev/null".into()] {
            assert!(ReportFile::prepare(&path, &[], &[&workspace]).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_refused_and_one_that_is_read_is_written() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let error = ReportFile::prepare(&pipe, &[], &[]).unwrap_err().to_string();
        assert!(error.contains("cannot be opened"), "{error}");
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut reader = OpenOptions::new().read(true).custom_flags(flags).open(&pipe).unwrap();
        ReportFile::prepare(&pipe, &[], &[]).unwrap().write("{}").unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        assert_eq!(text, "{}\n");
    }

    #[test]
    fn directories_and_places_that_do_not_exist_are_refused() {
        let place = tempfile::tempdir().unwrap();
        for (path, word) in [
            (place.path().to_owned(), "is a directory"),
            (place.path().join("none/r"), "cannot be created"),
            ("/proc/r".into(), "cannot be created"),
            ("/".into(), "is a directory"),
        ] {
            let error = ReportFile::prepare(&path, &[], &[]).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
