//! What a user starts: `pinfold` in a fixture with a runtime directory of its own, for the suites that look at the product
//! from outside.

use crate::fixture::Fixture;
use crate::judge::{Finished, output_within};
use crate::promise::Outcome;
use crate::start::{Backend, Driver, Mode, needed_by, own_uid};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a command may take if nothing else is said.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The backends that confine.
pub const CONFINED: [Backend; 3] = [Backend::Namespace, Backend::Bwrap, Backend::Landlock];

/// A fixture, and `pinfold` in it.
pub struct Walls {
    /// The directories.
    pub fixture: Fixture,
}

impl Walls {
    /// Makes a fixture for this user.
    ///
    /// # Errors
    ///
    /// That of the fixture, or of making the runtime directory.
    pub fn new(uid: u32) -> Result<Walls, String> {
        let fixture = Fixture::new(uid, needed_by(Driver::Cli, Backend::Namespace))?;
        let walls = Walls { fixture };
        for dir in [walls.runtime(), walls.home()] {
            std::fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
            std::os::unix::fs::chown(&dir, Some(uid), Some(uid)).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        Ok(walls)
    }

    /// `$XDG_RUNTIME_DIR`.
    #[must_use]
    pub fn runtime(&self) -> PathBuf {
        self.fixture.base().join("runtime")
    }

    /// `$HOME`.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.fixture.base().join("home")
    }

    /// The program.
    #[must_use]
    pub fn pinfold(&self) -> PathBuf {
        self.fixture.bin().join("pinfold")
    }

    /// A command as the fixture's user, in the workspace, with an environment of its own and no input.
    #[must_use]
    pub fn plain<S: AsRef<OsStr>>(&self, argv: &[S]) -> Command {
        let mut words = argv.iter().map(AsRef::as_ref);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(self.fixture.ws()).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin").env("LC_ALL", "C.UTF-8");
        // Nothing may touch the developer's home or runtime directory.
        command.env("HOME", self.home()).env("XDG_RUNTIME_DIR", self.runtime());
        if self.fixture.uid != own_uid() {
            command.uid(self.fixture.uid).gid(self.fixture.uid);
        }
        command
    }

    /// The words of `pinfold run` for this backend (none: its own choice) and mode, up to and with `--`.
    #[must_use]
    pub fn run_words(&self, backend: Option<Backend>, mode: Mode) -> Vec<String> {
        let mut words = vec![text(&self.pinfold()), "run".to_owned()];
        words.extend(backend.iter().flat_map(|b| ["--backend".to_owned(), b.name().to_owned()]));
        words.extend(["--mode", mode.name(), "--workspace"].map(str::to_owned));
        words.extend([text(&self.fixture.ws()), "--".to_owned()]);
        words
    }

    /// `pinfold run` in the workspace with further options.
    #[must_use]
    pub fn with_options(&self, backend: Backend, mode: Mode, options: &[&str], argv: &[&str]) -> Command {
        let mut words = self.run_words(Some(backend), mode);
        let dashes = words.pop().unwrap_or_default();
        words.extend(options.iter().map(|word| (*word).to_owned()));
        words.push(dashes);
        words.extend(argv.iter().map(|word| (*word).to_owned()));
        self.plain(&words)
    }

    /// `pinfold run` in the workspace; without any walls for [`Backend::Unconfined`].
    #[must_use]
    pub fn confined(&self, backend: Backend, mode: Mode, argv: &[&str]) -> Command {
        let mut words = if backend == Backend::Unconfined { vec![] } else { self.run_words(Some(backend), mode) };
        words.extend(argv.iter().map(|w| (*w).to_owned()));
        self.plain(&words)
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    ///
    /// That of starting it, or that it took too long.
    pub fn finish(command: &mut Command) -> Result<Finished, String> {
        output_within(command, LIMIT).map_err(|e| format!("{command:?}: {e}"))
    }

    /// Everything below the runtime directory, but for directories that stay.
    #[must_use]
    pub fn litter(&self) -> Vec<PathBuf> {
        let (mut found, mut todo) = (Vec::new(), vec![self.runtime()]);
        let stays = ["", "pinfold", "pinfold/plans", "pinfold/temp"].map(|name| self.runtime().join(name));
        while let Some(dir) = todo.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                // What a probe found is kept for the next call.
                if entry.path() == self.runtime().join("pinfold/verdicts") {
                    continue;
                }
                if stays.contains(&entry.path()) {
                    todo.push(entry.path());
                } else {
                    found.push(entry.path());
                }
            }
        }
        found
    }
}

/// A path of ours as text; ours are UTF-8.
#[must_use]
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// What a finished command wrote, as text.
#[must_use]
pub fn written(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command printed; it must have succeeded.
///
/// # Errors
///
/// How it ended instead, and what it wrote.
pub fn printed(finished: &Finished) -> Result<String, String> {
    let (stdout, stderr) = (written(&finished.stdout), written(&finished.stderr));
    if finished.status.success() { Ok(stdout) } else { Err(format!("{}: {stdout} {stderr}", finished.status)) }
}

/// The outcome in the last line of standard error of `pinfold run --json`.
///
/// # Errors
///
/// What stands there instead.
pub fn outcome(finished: &Finished) -> Result<Outcome, String> {
    let stderr = written(&finished.stderr);
    Outcome::parse(stderr.lines().last().unwrap_or_default()).map_err(|e| format!("{}: {e}; {stderr}", finished.status))
}

/// The same outcome as it was written, with all that a release may not know.
///
/// # Errors
///
/// What stands there instead.
pub fn written_outcome(finished: &Finished) -> Result<Value, String> {
    let stderr = written(&finished.stderr);
    serde_json::from_str(stderr.lines().last().unwrap_or_default()).map_err(|error| format!("{error}: {stderr}"))
}

/// A claim that must hold.
///
/// # Errors
///
/// `otherwise`, if it does not.
pub fn expect(condition: bool, otherwise: impl Into<String>) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise.into()) }
}

/// Two things that must be the same.
///
/// # Errors
///
/// Both, if they are not.
pub fn expect_equal<T: PartialEq + std::fmt::Debug>(got: T, expected: T) -> Result<(), String> {
    expect(got == expected, format!("expected {expected:?}, got {got:?}"))
}
