//! The provider with the real launcher on this host: every mechanism in every mode, and what must be refused.
//!
//! Needs `pinfold-run` beside the test programs (`cargo build -p pinfold-launcher`) or in `PINFOLD_BIN_DIR`, and
//! bubblewrap in its fixed place. Either missing is a failure, not a skip. Directories are made in
//! `PINFOLD_TEST_DIR`, else `/var/lib`, else the target directory: below `/tmp` a private temp directory would hide
//! what a test looks for.

#![cfg(target_os = "linux")]

use ground::{directory, launcher};
use pinfold_policy::{
    ConfinedMode, Ending, Enforcement, ErrorCode, ExecutionPolicy, Guarantee, SandboxError, SandboxMode, SandboxPolicy,
    SessionId, StatusEvidence, Stop, Strength, Verdict,
};
use pinfold_providers::{
    Backend, CallOptions, Cancel, CustomRunner, EnvChange, HardLinkScan, LocalProvider, ProviderConfig, RunOptions,
    RunResult, Stream,
};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

mod calls;
#[path = "../ground/mod.rs"]
mod ground;
mod refusals;
mod reports;

const CONFINED: [Backend; 3] = [Backend::Namespace, Backend::Bwrap, Backend::Landlock];

/// A workspace, a directory outside it, and a provider with a runtime directory of its own.
struct World {
    base: tempfile::TempDir,
    provider: LocalProvider,
}

impl World {
    fn new() -> Self {
        Self::with(|_, _| {})
    }

    fn with(change: impl FnOnce(&Path, &mut ProviderConfig)) -> Self {
        let base = directory();
        for name in ["ws", "out", "runtime"] {
            std::fs::create_dir(base.path().join(name)).unwrap();
        }
        std::fs::set_permissions(base.path().join("runtime"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut config = ProviderConfig {
            launcher: Some(launcher()),
            runtime_dir: Some(base.path().join("runtime")),
            ..ProviderConfig::default()
        };
        change(base.path(), &mut config);
        Self { provider: LocalProvider::new(config).unwrap(), base }
    }

    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.base.path().join(name.as_ref())
    }

    fn policy(&self, mode: SandboxMode) -> ExecutionPolicy {
        ExecutionPolicy::new(mode, self.path("ws"))
    }

    fn confined_policy(&self, mode: ConfinedMode) -> SandboxPolicy {
        SandboxPolicy::new(mode, self.path("ws"))
    }

    fn run_with(&self, backend: Backend, mode: SandboxMode, argv: &[OsString], run: &RunOptions) -> RunResult {
        self.provider.run(argv, &self.policy(mode), &self.on(backend), run, &Cancel::new()).unwrap()
    }

    fn run(&self, backend: Backend, mode: SandboxMode, script: &str) -> RunResult {
        self.run_with(backend, mode, &shell(script), &capture())
    }

    fn on(&self, backend: Backend) -> CallOptions {
        CallOptions { backend: Some(backend), cwd: Some(self.path("ws")), ..CallOptions::default() }
    }
}

fn shell(script: &str) -> Vec<OsString> {
    ["/bin/sh", "-c", script].map(OsString::from).into()
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn capture() -> RunOptions {
    let capture = Stream::Capture { limit: 1 << 20 };
    RunOptions {
        stdin: Stream::Null,
        stdout: capture,
        stderr: capture,
        timeout: Some(Duration::from_secs(30)),
        ..RunOptions::default()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How many processes have arguments that hold a text.
fn processes_with(text: &str) -> usize {
    let holds = |entry: &std::fs::DirEntry| {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).replace('\0', " ").contains(text)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(holds).count()
}

fn assert_gone(marker: &str) {
    let begun = Instant::now();
    while processes_with(marker) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(3), "processes with {marker} are left");
        std::thread::sleep(Duration::from_millis(10));
    }
}
