//! How a confined run is started. [`confined_command_by`] is the one place that knows the product's command line.

use crate::errno::Errno;
use crate::sys;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What raises the walls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// Nothing: the control of every denial.
    Unconfined,
    /// Namespaces, and Landlock and seccomp inside.
    Namespace,
    /// Bubblewrap, hardened, with our launcher inside.
    Bwrap,
    /// Landlock and seccomp alone.
    Landlock,
}

impl Backend {
    /// All of them, the control first.
    pub const ALL: [Backend; 4] = [Backend::Unconfined, Backend::Namespace, Backend::Bwrap, Backend::Landlock];

    /// Its name in test names and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Backend::Unconfined => "unconfined",
            Backend::Namespace => "namespace",
            Backend::Bwrap => "bwrap",
            Backend::Landlock => "landlock",
        }
    }
}

/// What may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Nothing.
    ReadOnly,
    /// The workspace and private temporary directories.
    WorkspaceWrite,
}

impl Mode {
    /// Both.
    pub const ALL: [Mode; 2] = [Mode::ReadOnly, Mode::WorkspaceWrite];

    /// Its name in test names and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mode::ReadOnly => "read-only",
            Mode::WorkspaceWrite => "workspace-write",
        }
    }
}

/// What starts confined runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `pinfold run`, which is what a user starts. It leaves its outcome in [`outcome_file`].
    Cli,
    /// `pinfold-run` with a plan made here, the same as the CLI's: for what the CLI would hide from the launcher.
    Launcher,
    /// A program that makes three calls by a resident launcher (`pinfold-by-resident`); this is the third one. Where the
    /// mechanism has none (bubblewrap), as [`Driver::Launcher`]. It leaves its outcome in the same place.
    Resident,
}

/// What [`confined_command`] uses: the suites that ask the launcher for its own promises. The matrix names its drivers.
/// `PINFOLD_TEST_DRIVER=cli|launcher|resident` overrules it.
const DEFAULT_DRIVER: Driver = Driver::Launcher;

/// One confined run: which walls, for whom, around what.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// What raises the walls.
    pub backend: Backend,
    /// What may be written.
    pub mode: Mode,
    /// Who runs it.
    pub uid: u32,
    /// The workspace.
    pub ws: &'a Path,
    /// A private directory for temporary files of this run, outside the workspace. The CLI makes its own.
    pub temp: &'a Path,
    /// System calls to hide from the launcher and the command: words for `pinfold-mask`; empty for none.
    pub mask: &'a [&'a str],
    /// Where our binaries are, readable for `uid` and visible inside.
    pub bin: &'a Path,
}

/// The command that runs `argv` confined. The caller adds the working directory, streams and descriptors.
#[must_use]
pub fn confined_command(run: &Run, argv: &[&OsStr]) -> Command {
    confined_command_by(driver(), run, argv)
}

/// The same, by a driver of the caller's choice.
#[must_use]
pub fn confined_command_by(driver: Driver, run: &Run, argv: &[&OsStr]) -> Command {
    let mut words: Vec<OsString> = Vec::new();
    if !run.mask.is_empty() {
        words.push(run.bin.join("pinfold-mask").into());
        words.extend(run.mask.iter().map(OsString::from));
        words.push("--".into());
    }
    words.extend(match (run.backend, driver) {
        (Backend::Unconfined, _) => Vec::new(),
        (_, Driver::Cli) => by_cli(run, "pinfold"),
        (Backend::Namespace | Backend::Landlock, Driver::Resident) => by_cli(run, BY_RESIDENT),
        (_, Driver::Launcher) | (Backend::Bwrap, Driver::Resident) => by_launcher(run),
    });
    words.extend(argv.iter().map(|w| (*w).to_owned()));
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    if run.uid != own_uid() {
        use std::os::unix::process::CommandExt as _;
        // As root this also clears the supplementary groups.
        command.uid(run.uid).gid(run.uid);
    }
    command
}

fn driver() -> Driver {
    match std::env::var("PINFOLD_TEST_DRIVER").as_deref() {
        Ok("cli") => Driver::Cli,
        Ok("launcher") => Driver::Launcher,
        Ok("resident") => Driver::Resident,
        _ => DEFAULT_DRIVER,
    }
}

/// The binaries that a confined run needs: program and package that builds it.
#[must_use]
pub fn needed(backend: Backend) -> &'static [(&'static str, &'static str)] {
    needed_by(driver(), backend)
}

/// The same, for a driver of the caller's choice.
#[must_use]
pub fn needed_by(driver: Driver, backend: Backend) -> &'static [(&'static str, &'static str)] {
    match (backend, driver) {
        (Backend::Unconfined, _) => &[],
        (_, Driver::Cli) => {
            &[("pinfold", "pinfold-cli"), ("pinfold-run", "pinfold-launcher"), ("pinfold-broker", "pinfold-broker")]
        }
        (_, Driver::Resident) => &[
            ("pinfold", "pinfold-cli"),
            ("pinfold-run", "pinfold-launcher"),
            ("pinfold-broker", "pinfold-broker"),
            (BY_RESIDENT, "pinfold-conformance"),
        ],
        (_, Driver::Launcher) => &[("pinfold-run", "pinfold-launcher")],
    }
}

/// Where a run by the CLI leaves its outcome: outside every writable root, but where its user may write.
#[must_use]
pub fn outcome_file(temp: &Path) -> PathBuf {
    temp.join("shm/outcome.json")
}

/// The program that takes words of `pinfold run` and uses a resident launcher.
pub const BY_RESIDENT: &str = "pinfold-by-resident";

fn by_cli(run: &Run, program: &str) -> Vec<OsString> {
    let mut words: Words = Words(vec![run.bin.join(program).into()]);
    words.add(["run", "--backend", run.backend.name(), "--mode", run.mode.name(), "--report"]);
    words.add([outcome_file(run.temp)]);
    words.add(["--workspace".as_ref(), run.ws]);
    words.add(["--"]);
    words.0
}

struct Words(Vec<OsString>);

impl Words {
    fn add<T: AsRef<OsStr>>(&mut self, words: impl IntoIterator<Item = T>) {
        self.0.extend(words.into_iter().map(|w| w.as_ref().to_owned()));
    }

    fn grant(&mut self, path: &Path) {
        let (device, inode) = std::fs::metadata(path).map_or((0, 0), |m| (m.dev(), m.ino()));
        self.add(["--write".to_owned(), format!("{device}:{inode}")]);
        self.add([path]);
    }
}

fn by_launcher(run: &Run) -> Vec<OsString> {
    let writable = run.mode == Mode::WorkspaceWrite;
    let temp = run.temp.join("tmp");
    let mut words = Words(Vec::new());
    if run.backend == Backend::Bwrap {
        // Trusted absolute path; own user namespace also for root; nothing that a call does not need.
        words.add([
            "/usr/bin/bwrap",
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--unshare-uts",
            "--unshare-cgroup-try",
        ]);
        words.add(["--disable-userns", "--cap-drop", "ALL", "--new-session", "--die-with-parent"]);
        words.add(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]);
        if writable {
            for place in ["/tmp", "/var/tmp", "/dev/shm"] {
                words.add(["--perms", "1777", "--tmpfs", place]);
            }
        }
        words.add(["--remount-ro", "/dev"]);
        if writable {
            words.add(["--bind".as_ref(), run.ws, run.ws]);
        }
        words.add(["--"]);
    }
    words.add([run.bin.join("pinfold-run")]);
    let abi = landlock_abi().unwrap_or(1).to_string();
    let wall = if run.backend == Backend::Namespace { "namespace" } else { "landlock" };
    words.add(["--spec", "1", "--wall", wall, "--landlock", &abi]);
    match (run.backend, writable) {
        (Backend::Namespace, true) => {
            words.grant(run.ws);
            words.add(["--private", "/tmp", "--private", "/var/tmp", "--shm", "--set", "TMPDIR=/tmp"]);
        }
        (Backend::Bwrap, true) => {
            words.grant(run.ws);
            words.add(["--private", "/tmp", "--private", "/var/tmp", "--shm", "--set", "TMPDIR=/tmp", "--supervise"]);
            words.add(["--own-ipc", "--mounted"]);
        }
        (Backend::Landlock, true) => {
            words.grant(run.ws);
            words.grant(&temp);
            words.add([
                "--set".into(),
                OsString::from_iter([OsStr::new("TMPDIR="), temp.as_os_str()]),
                "--supervise".into(),
            ]);
        }
        (Backend::Bwrap, false) => words.add(["--deny-metadata", "--supervise", "--own-ipc", "--mounted"]),
        (Backend::Landlock, false) => words.add(["--deny-metadata", "--supervise"]),
        (Backend::Namespace | Backend::Unconfined, _) => {}
    }
    words.add(["--"]);
    words.0
}

/// The running kernel's Landlock ABI; none without Landlock.
#[must_use]
pub fn landlock_abi() -> Option<i64> {
    sys!(libc::SYS_landlock_create_ruleset, 0, 0usize, 1 /* LANDLOCK_CREATE_RULESET_VERSION */).ok()
}

/// Our uid.
#[must_use]
pub fn own_uid() -> u32 {
    sys!(libc::SYS_geteuid).unwrap_or(0) as u32
}

/// Where a binary of ours is: in `PINFOLD_BIN_DIR`, or where Cargo builds to.
///
/// # Errors
///
/// What to build, in words: a missing binary is never a skip.
pub fn find_binary(name: &str, package: &str) -> Result<PathBuf, String> {
    let mut places = Vec::new();
    if let Some(dir) = std::env::var_os("PINFOLD_BIN_DIR") {
        places.push(PathBuf::from(dir));
    } else if let Ok(own) = std::env::current_exe() {
        // target/debug/deps/matrix-… is ours.
        places.extend(own.ancestors().skip(1).take(2).map(Path::to_path_buf));
    }
    match places.iter().map(|p| p.join(name)).find(|p| p.is_file()) {
        Some(path) => Ok(path),
        None => Err(format!(
            "{name} is not in {places:?}: build it with `cargo build -p {package}`, or name its directory in PINFOLD_BIN_DIR"
        )),
    }
}

/// Runs both as root and as uid 1000 if we are root, else as whoever we are.
#[must_use]
pub fn uids() -> Vec<u32> {
    match own_uid() {
        0 => vec![0, 1000],
        uid => vec![uid],
    }
}

/// What a harness says when its own call failed.
#[must_use]
pub fn failed(what: &str, error: Errno) -> String {
    format!("the harness could not {what}: {error}")
}
