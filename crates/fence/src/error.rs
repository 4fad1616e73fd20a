//! Codes and texts of file operations that did not happen. Every error of the host is mapped; none escapes raw.

use pinfold_policy::quote::quote;
use pinfold_policy::{ConfinedMode, FileErrorCode as Code};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Holds why a file operation did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FsError {
    code: Code,
    message: String,
    denied: Option<Box<Denied>>,
}

/// Holds what the policy refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The mode in force.
    pub mode: ConfinedMode,
    /// What was tried, a verb such as `write`.
    pub verb: &'static str,
    /// Where the path leads, links resolved as far as anything exists.
    pub resolved: PathBuf,
    /// The rule, a fragment without final stop.
    pub rule: String,
}

impl FsError {
    /// Makes an error; the text is a fragment without final stop.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), denied: None }
    }

    /// Makes the refusal of an act by policy. The text names where the path leads, if that is not what it says.
    pub(crate) fn denied(path: &Path, denied: Denied) -> Self {
        let (verb, mode, rule) = (denied.verb, denied.mode, &denied.rule);
        let what = if denied.resolved == path {
            rule.clone()
        } else {
            format!("it leads to {}: {rule}", quote(&denied.resolved))
        };
        let message = format!("cannot {verb} {}: file access denied under {mode} mode ({what})", quote(path));
        Self { code: Code::SandboxDenied, message, denied: Some(Box::new(denied)) }
    }

    /// Makes the error of a host call that failed on a path.
    pub(crate) fn host(verb: &str, path: &Path, errno: Errno) -> Self {
        let code = match errno {
            Errno::NOENT | Errno::NOTDIR => Code::NotFound,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Code::PermissionDenied,
            Errno::ISDIR => Code::NotRegularFile,
            _ => Code::IoError,
        };
        let why = match errno {
            Errno::NOENT => "nothing is there".to_owned(),
            Errno::NOTDIR => "a parent segment is not a directory".to_owned(),
            Errno::NAMETOOLONG => "a name in it is longer than the file system takes (255 bytes)".to_owned(),
            Errno::NOSPC => "no space is left on the device".to_owned(),
            Errno::DQUOT => "the disk quota is used up".to_owned(),
            Errno::ROFS => "the file system is read-only".to_owned(),
            Errno::AGAIN => "another program holds a lease on it (fcntl(2)); it ends soon".to_owned(),
            Errno::OPNOTSUPP => "the file system cannot do it".to_owned(),
            Errno::XDEV => "the two places lie on different file systems".to_owned(),
            other => std::io::Error::from(other).to_string(),
        };
        Self::new(code, format!("cannot {verb} {}: {why}", quote(path)))
    }

    /// Makes the error of a look at a path where nothing is.
    pub fn nothing_there(path: &Path) -> Self {
        Self::host("look at", path, Errno::NOENT)
    }

    /// Returns the stable code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns what the policy refused, if it did.
    pub fn denial(&self) -> Option<&Denied> {
        self.denied.as_deref()
    }
}

/// Maps host errors of one verb on one path.
pub(crate) fn on<'a>(verb: &'a str, path: &'a Path) -> impl Fn(Errno) -> FsError + 'a {
    move |errno| FsError::host(verb, path, errno)
}

/// Reads the number of a host error from the standard library's type.
pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_where_the_path_leads() {
        let denied = |resolved: &str| {
            let mode = ConfinedMode::WorkspaceWrite;
            let rule = "it lies in no writable root".to_owned();
            FsError::denied(Path::new("/w/l"), Denied { mode, verb: "write", resolved: resolved.into(), rule })
        };
        assert_eq!(
            denied("/w/l").to_string(),
            r#"cannot write "/w/l": file access denied under workspace-write mode (it lies in no writable root)"#
        );
        assert!(denied("/out/f").to_string().contains(r#"(it leads to "/out/f": it lies"#));
    }

    #[test]
    fn every_host_error_has_a_code_of_the_list() {
        for raw in 1..134 {
            let error = FsError::host("write", Path::new("/x"), Errno::from_raw_os_error(raw));
            assert_ne!(error.code(), Code::SandboxDenied, "{raw}: a host refusal is no denial by policy");
        }
        let code = |errno| FsError::host("write", Path::new("/x"), errno).code();
        assert_eq!(code(Errno::ACCESS), Code::PermissionDenied);
        assert_eq!(code(Errno::NOSPC), Code::IoError);
        assert_eq!(code(Errno::NAMETOOLONG), Code::IoError);
    }
}
