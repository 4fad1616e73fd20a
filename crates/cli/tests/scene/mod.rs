//! A workspace, a place outside of it, and the real program. Every test owns its folders.

#![allow(dead_code, unreachable_pub)] // each test program uses a part

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Folders of one test, all below `home`.
pub struct Scene {
    base: TempDir,
}

/// Where scenes are laid out: `PINFOLD_TEST_BASE`, else `/var/lib`, else the target directory. Not below `/tmp`: a private temp
/// area would hide what is to be refused.
fn ground() -> PathBuf {
    let named = std::env::var_os("PINFOLD_TEST_BASE").map(PathBuf::from);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).to_path_buf();
    let writable = |place: &PathBuf| tempfile::tempdir_in(place).is_ok();
    let place = named.into_iter().chain(["/var/lib".into(), target]).find(writable).expect("a place for test folders");
    place.canonicalize().unwrap()
}

impl Scene {
    pub fn new() -> Self {
        assert!(launcher().is_file(), "{} is missing: run cargo build first", launcher().display());
        let base = tempfile::Builder::new().prefix("pinfold-cli-").tempdir_in(ground()).unwrap();
        for part in ["home", "workspace", "outside"] {
            std::fs::create_dir(base.path().join(part)).unwrap();
        }
        Self { base }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base.path().join(name)
    }

    pub fn workspace(&self) -> PathBuf {
        self.path("workspace")
    }

    /// Makes a folder and returns its path.
    pub fn folder(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// The program in the workspace, with a home of its own and nothing on standard input.
    pub fn pinfold(&self) -> Command {
        let mut command = Command::new(program());
        command.current_dir(self.workspace()).env("HOME", self.path("home")).stdin(Stdio::null());
        command
    }

    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Answer {
        Answer::of(self.pinfold().args(arguments))
    }

    /// Runs a shell script confined, with options before it.
    pub fn script(&self, options: &[&str], script: &str) -> Answer {
        Answer::of(self.pinfold().arg("run").args(options).args(["--", "sh", "-c", script]))
    }
}

pub fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_pinfold"))
}

pub fn launcher() -> PathBuf {
    program().with_file_name("pinfold-run")
}

/// What a finished program left.
#[derive(Debug)]
pub struct Answer {
    pub status: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Answer {
    pub fn of(command: &mut Command) -> Self {
        Self::from(command.output().unwrap())
    }

    /// The object on the last line of standard error.
    pub fn last_json(&self) -> Value {
        let line = self.err.lines().last().unwrap_or_else(|| panic!("nothing on standard error: {self:?}"));
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts a refusal before anything ran: status, code, words of the sentence, and one hint.
    #[track_caller]
    pub fn assert_refused(&self, status: i32, code: &str, words: &str) {
        assert_eq!(self.status, Some(status), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        let lines: Vec<_> = self.err.lines().collect();
        assert_eq!(lines.len(), 2, "{self:?}");
        assert!(lines[0].starts_with(&format!("pinfold: error[{code}]: ")), "{self:?}");
        assert!(lines[0].contains(words), "{self:?}");
        assert!(lines[1].starts_with("pinfold: hint: "), "{self:?}");
    }

    #[track_caller]
    pub fn assert_silent_success(&self, out: &str) {
        assert_eq!((self.status, self.out.as_str(), self.err.as_str()), (Some(0), out, ""));
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { status: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}
