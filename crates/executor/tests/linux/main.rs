//! The executor with the real launcher on this host, under every backend and without one.
//!
//! Needs `pinfold-run` beside the test programs (`cargo build -p pinfold-launcher`) or in `PINFOLD_BIN_DIR`, and bubblewrap in
//! its fixed place. Either missing is a failure, not a skip. Directories are made in `PINFOLD_TEST_DIR`, else `/var/lib`, else
//! the target directory: below `/tmp` a private temp directory would hide what a test looks for.

#![cfg(target_os = "linux")]

use ground::{directory, launcher};
use pinfold_executor::{
    Executor, ExecutorConfig, Finished, ManagedVariables, Process, ProcessStatus, Request, ShellFinished, ShellRequest,
};
use pinfold_policy::{Ending, ExecutionPolicy, SandboxMode, SessionId, Stop, Verdict};
use pinfold_providers::{Backend, Cancel, LocalProvider, ProviderConfig};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod ahead;
mod background;
mod foreground;
#[path = "../../../providers/tests/ground/mod.rs"]
mod ground;
mod output;
mod resident;
mod shell;
mod soak;
mod terminal;

/// The last one is the control: it confines nothing.
const EVERY: [Backend; 4] = [Backend::Namespace, Backend::Bwrap, Backend::Landlock, Backend::Unconfined];
const CONFINED: [Backend; 3] = [Backend::Namespace, Backend::Bwrap, Backend::Landlock];

/// A workspace, a directory outside it, and an executor over one backend.
struct World {
    /// Goes first: it removes what it has in the directory.
    executor: Executor,
    provider: Arc<LocalProvider>,
    backend: Backend,
    base: tempfile::TempDir,
    /// A directory in the shared temp directory, if a test has one.
    hidden: Option<tempfile::TempDir>,
}

impl World {
    fn new(backend: Backend) -> Self {
        Self::with(backend, |_, _| {})
    }

    fn with(backend: Backend, change: impl FnOnce(&Path, &mut ExecutorConfig)) -> Self {
        let base = directory();
        for name in ["ws", "out", "runtime"] {
            std::fs::create_dir(base.path().join(name)).unwrap();
        }
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(base.path().join("runtime"), private).unwrap();
        let provider = LocalProvider::new(ProviderConfig {
            launcher: Some(launcher()),
            runtime_dir: Some(base.path().join("runtime")),
            ..ProviderConfig::default()
        });
        let mode =
            if backend == Backend::Unconfined { SandboxMode::DangerFullAccess } else { SandboxMode::WorkspaceWrite };
        let mut config = ExecutorConfig::new(ExecutionPolicy::new(mode, base.path().join("ws")));
        config.policy.session_id = Some(SessionId::new("s"));
        config.call.backend = Some(backend).filter(|backend| *backend != Backend::Unconfined);
        config.grace_ms = 300.0;
        config.timeout_ms = 60_000.0;
        config.spill_places = vec![base.path().join("spill")];
        change(base.path(), &mut config);
        let provider = Arc::new(provider.unwrap());
        let executor = Executor::new(Arc::clone(&provider), config, ManagedVariables::default()).unwrap();
        Self { executor, provider, backend, base, hidden: None }
    }

    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.base.path().join(name.as_ref())
    }

    fn policy(&self, mode: SandboxMode) -> ExecutionPolicy {
        let mut policy = ExecutionPolicy::new(mode, self.path("ws"));
        policy.session_id = Some(SessionId::new("s"));
        policy
    }

    fn request(&self, request: &Request) -> Finished {
        let spec = self.executor.resolve(request).unwrap();
        self.executor.run(&spec, &Cancel::new()).unwrap_or_else(|error| panic!("{}: {error}", self.backend))
    }

    fn run(&self, command: &str) -> Finished {
        self.request(&Request::new(command))
    }

    /// Runs a command that must succeed and returns what it printed.
    fn printed(&self, command: &str) -> String {
        let finished = self.run(command);
        assert_eq!(finished.exit_code(), Some(0), "{}: {command}: {finished:?}", self.backend);
        finished.stdout.text
    }

    fn start(&self, command: &str) -> Process {
        let spec = self.executor.resolve(&Request::new(command)).unwrap();
        self.executor.start(&spec).unwrap()
    }

    fn shell(&self, command: &str) -> ShellFinished {
        self.shell_under(command, None, self.executor.sandbox_mode())
    }

    fn shell_under(&self, command: &str, timeout_ms: Option<f64>, mode: SandboxMode) -> ShellFinished {
        let request = ShellRequest {
            command: command.into(),
            timeout_ms,
            policy: Some(self.policy(mode)),
            ..ShellRequest::default()
        };
        self.executor.run_in_shell(&request, &Cancel::new()).unwrap_or_else(|error| panic!("{}: {error}", self.backend))
    }
}

/// Does something for a world of each backend.
fn everywhere(act: impl Fn(&World)) {
    for backend in EVERY {
        act(&World::new(backend));
    }
}

/// A number of seconds to sleep by which a process is found from outside.
fn marker() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    format!("8{:07}{:04}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// The processes that sleep so long.
fn sleeping(marker: &str) -> Vec<String> {
    let expected = format!("sleep\0{marker}\0");
    let is = |entry: &std::fs::DirEntry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == expected.as_bytes())
    };
    let name = |entry: std::fs::DirEntry| entry.file_name().into_string().unwrap();
    std::fs::read_dir("/proc").unwrap().flatten().filter(is).map(name).collect()
}

fn sleepers(marker: &str) -> usize {
    sleeping(marker).len()
}

/// Ends what a test without walls has left.
fn end_sleepers(marker: &str) {
    for pid in sleeping(marker) {
        let _ = std::process::Command::new("kill").arg(pid).status();
    }
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(20), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn exited(code: i32) -> Ending {
    Ending::Exited { code }
}
