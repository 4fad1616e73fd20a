//! `pinfold-run` by itself in a fixture: plans, walls and ways to run things, for the tests of the launcher.

use crate::fixture::Fixture;
use crate::judge::output_within;
use crate::start::own_uid;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long anything may take.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Namespaces, and Landlock inside.
pub const NAMESPACE: &[&str] = &["--wall", "namespace", "--landlock", "1"];
/// Without Landlock, so that it does not hide what the mounts leave open.
pub const MOUNTS_ALONE: &[&str] = &["--wall", "namespace", "--landlock", "0"];
/// Landlock alone.
pub const LANDLOCK: &[&str] = &["--wall", "landlock", "--landlock", "1"];
/// Both walls.
pub const WALLS: [&[&str]; 2] = [NAMESPACE, LANDLOCK];

/// A fixture, and how to run things in it.
pub struct World(pub Fixture);

/// How a command ended and what it wrote, as text.
pub type Ended = (Option<i32>, String, String);

impl World {
    /// For a user.
    #[must_use]
    pub fn new(uid: u32) -> World {
        World(Fixture::new(uid, &[("pinfold-run", "pinfold-launcher")]).expect("a fixture"))
    }

    /// For the user that runs the test.
    #[must_use]
    pub fn own() -> World {
        World::new(own_uid())
    }

    /// A path in the directory that holds everything; only root and the test itself write there.
    pub fn path(&self, name: &str) -> String {
        self.0.base().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// `pinfold-run` with these words, as the fixture's user.
    pub fn launcher<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = self.plain(&[self.0.bin().join("pinfold-run")]);
        command.args(words);
        command
    }

    /// `pinfold-run` with a plan and a command.
    pub fn confined(&self, plan: &[&str], argv: &[&str]) -> Command {
        self.launcher(&[&["--spec", "1"], plan, &["--"], argv].concat())
    }

    /// The command itself, as the fixture's user.
    pub fn plain<S: AsRef<OsStr>>(&self, argv: &[S]) -> Command {
        let mut command = Command::new(argv.first().expect("a program"));
        command.args(&argv[1..]).current_dir(self.0.ws()).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C");
        if self.0.uid != own_uid() {
            command.uid(self.0.uid).gid(self.0.uid);
        }
        command
    }

    /// The shell script, with the confined command as its arguments, in a mount namespace of its own. The script's user
    /// has every capability there.
    pub fn in_own_mounts(&self, script: &str, plan: Option<&[&str]>, argv: &[&str]) -> Ended {
        let mut words =
            ["unshare", "-Urm", "--propagation", "private", "/bin/sh", "-c", script, "sh"].map(str::to_owned).to_vec();
        if let Some(plan) = plan {
            words.push(self.path("bin/pinfold-run"));
            words.extend([&["--spec", "1"], plan, &["--"]].concat().iter().map(|w| (*w).to_owned()));
        }
        words.extend(argv.iter().map(|w| (*w).to_owned()));
        ended(&mut self.plain(&words))
    }
}

/// Runs a command to its end.
pub fn ended(command: &mut Command) -> Ended {
    let finished = output_within(command, LIMIT).expect("it ends in time");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (finished.status.code(), text(&finished.stdout), text(&finished.stderr))
}

/// The launcher refused: nothing ran, and one line says at which stage.
#[track_caller]
pub fn assert_refused(stage: &str, (code, stdout, stderr): &Ended) {
    assert_eq!((*code, stdout.as_str()), (Some(125), ""), "{stderr}");
    assert!(stderr.starts_with(&format!("pinfold-run: {stage}: ")), "{stderr}");
    assert_eq!(stderr.matches('\n').count(), 1, "{stderr:?}");
}

/// The command ended well and printed this.
#[track_caller]
pub fn assert_prints(text: &str, (code, stdout, stderr): &Ended) {
    assert_eq!((*code, stdout.as_str()), (Some(0), text), "{stderr}");
}

/// `DEVICE:INODE` of what a path leads to.
pub fn identity(path: impl AsRef<Path>) -> String {
    let stat = std::fs::metadata(path).expect("it exists");
    format!("{}:{}", stat.dev(), stat.ino())
}

/// Words as a plan in a file or a pipe has them.
pub fn block(words: &[&str]) -> Vec<u8> {
    words.iter().flat_map(|word| word.bytes().chain([0])).collect()
}
