//! The provider with the real launcher on this host: every mechanism in every mode, and what must be refused.
//!
//! Needs `pinfold-run` beside the test programs (`cargo build -p pinfold-launcher`) or in `PINFOLD_BIN_DIR`, and
//! bubblewrap in its fixed place. Either missing is a failure, not a skip. Directories are made in
//! `PINFOLD_TEST_DIR`, else `/var/lib`, else the target directory: below `/tmp` a private temp directory would hide
//! what a test looks for.

#![cfg(target_os = "linux")]

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

const CONFINED: [Backend; 3] = [Backend::Namespace, Backend::Bwrap, Backend::Landlock];

fn launcher() -> PathBuf {
    let directory = std::env::var_os("PINFOLD_BIN_DIR").map_or_else(
        || std::env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().to_owned(),
        PathBuf::from,
    );
    let path = directory.join("pinfold-run");
    assert!(path.is_file(), "{path:?} is missing: run `cargo build -p pinfold-launcher` first");
    path
}

fn directory() -> tempfile::TempDir {
    let configured = std::env::var_os("PINFOLD_TEST_DIR").map(PathBuf::from);
    let places = configured.into_iter().chain(["/var/lib".into(), env!("CARGO_TARGET_TMPDIR").into()]);
    let make = |place: PathBuf| tempfile::Builder::new().prefix("pinfold-test-").tempdir_in(place).ok();
    places.filter_map(make).next().expect("a directory for tests")
}

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

#[test]
fn a_workspace_is_written_and_nothing_beside_it() {
    let world = World::new();
    for backend in CONFINED {
        let _ = std::fs::remove_file(world.path("ws/in"));
        let out = world.path("out/x");
        let script = format!("echo a > in && echo b > '{}'", out.display());
        // The control: without a sandbox the same script works.
        let free = world.run(Backend::Unconfined, SandboxMode::DangerFullAccess, &script);
        assert_eq!(free.outcome.verdict(), Verdict::Completed);
        assert_eq!(free.outcome.report().unwrap().enforcement(), None);
        std::fs::remove_file(&out).unwrap();
        let _ = std::fs::remove_file(world.path("ws/in"));

        let result = world.run(backend, SandboxMode::WorkspaceWrite, &script);
        assert_eq!(result.outcome.verdict(), Verdict::Denied, "{backend}: {result:?}");
        assert_eq!(result.outcome.status_evidence(), StatusEvidence::Channel);
        assert!(world.path("ws/in").exists() && !out.exists(), "{backend}");
        assert_eq!(result.outcome.report().unwrap().backend(), backend.provider_name());

        std::fs::remove_file(world.path("ws/in")).unwrap();
        let result = world.run(backend, SandboxMode::ReadOnly, "echo a > /dev/null && echo a > in");
        assert_eq!(result.outcome.verdict(), Verdict::Denied, "{backend}: {result:?}");
        assert!(!world.path("ws/in").exists(), "{backend}");
    }
}

#[test]
fn what_is_called_full_is_full() {
    let world = World::new();
    for (backend, mode, expected) in [
        (Backend::Namespace, ConfinedMode::ReadOnly, Enforcement::Full),
        (Backend::Namespace, ConfinedMode::WorkspaceWrite, Enforcement::Full),
        (Backend::Bwrap, ConfinedMode::ReadOnly, Enforcement::Full),
        // Whether a terminal becomes /dev/console inside is up to the caller.
        (Backend::Bwrap, ConfinedMode::WorkspaceWrite, Enforcement::Partial),
        (Backend::Landlock, ConfinedMode::ReadOnly, Enforcement::Full),
        (Backend::Landlock, ConfinedMode::WorkspaceWrite, Enforcement::Partial),
    ] {
        let confinement = world
            .provider
            .confine(&shell("true"), &world.confined_policy(mode), &world.on(backend), &Cancel::new())
            .unwrap();
        assert_eq!(confinement.confined.enforcement, expected, "{backend} {mode}: {:#?}", confinement.report);
        assert_eq!(confinement.report.guarantees().len(), Guarantee::ALL.len());
    }
}

#[test]
fn every_backend_is_examined_also_behind_a_usable_one() {
    let world = World::new();
    for mode in [ConfinedMode::ReadOnly, ConfinedMode::WorkspaceWrite] {
        let findings = world.provider.examine(mode);
        let usable: Vec<_> = findings.iter().map(|finding| (finding.backend, finding.usable)).collect();
        assert_eq!(usable, CONFINED.map(|backend| (backend, true)), "{findings:#?}");
        assert!(findings.iter().all(|finding| finding.report.is_some() && finding.reason.is_none()));
        assert!(findings[1].facts["bwrap_version"].starts_with("bubblewrap "), "{:?}", findings[1].facts);
    }
}

#[test]
fn the_wrapped_argv_ends_in_the_callers_own_byte_for_byte() {
    let world = World::new();
    let strange: Vec<OsString> =
        vec!["/bin/echo".into(), OsString::from_vec(b"\xff\xfe \n'\"".to_vec()), "--".into(), "".into(), "-x".into()];
    for backend in CONFINED {
        let confinement = world
            .provider
            .confine(&strange, &world.confined_policy(ConfinedMode::ReadOnly), &world.on(backend), &Cancel::new())
            .unwrap();
        let argv = &confinement.confined.argv;
        let (wrapper, own) = argv.split_at(argv.len() - strange.len());
        assert_eq!(own, strange);
        assert_eq!(wrapper.last().unwrap(), "--");
        let output = Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
        assert_eq!(output.stdout, b"\xff\xfe \n'\" --  -x\n", "{backend}: {output:?}");
    }
}

#[test]
fn strange_paths_are_roots_like_others() {
    let world = World::new();
    let names: [&[u8]; 5] = [b"a b", b"-rf", b"quo'te\"s", b"new\nline", b"\xff\x80"];
    let mut policy = world.policy(SandboxMode::WorkspaceWrite);
    for name in names {
        let path = world.path(OsString::from_vec(name.to_vec()));
        std::fs::create_dir(&path).unwrap();
        policy.additional_writable_roots.push(path);
    }
    for backend in CONFINED {
        for root in &policy.additional_writable_roots {
            let argv = [OsString::from("/bin/sh"), "-c".into(), "echo x > \"$0/made\"".into(), root.clone().into()];
            let result = world.provider.run(&argv, &policy, &world.on(backend), &capture(), &Cancel::new()).unwrap();
            assert_eq!(result.outcome.verdict(), Verdict::Completed, "{backend} {root:?}: {result:?}");
            std::fs::remove_file(root.join("made")).unwrap();
        }
    }
}

#[test]
fn a_workspace_below_the_shared_temp_directory_works() {
    let base = tempfile::tempdir_in("/tmp").unwrap();
    let world = World::new();
    let policy = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, base.path());
    for backend in CONFINED {
        let options = CallOptions { backend: Some(backend), cwd: Some(base.path().into()), ..CallOptions::default() };
        let script = "echo x > made && mktemp && ls /tmp | wc -l";
        let result = world.provider.run(&shell(script), &policy, &options, &capture(), &Cancel::new()).unwrap();
        assert_eq!(result.outcome.verdict(), Verdict::Completed, "{backend}: {result:?}");
        std::fs::remove_file(base.path().join("made")).unwrap();
    }
}

/// Case B004: `TMPDIR` inside names a directory that exists and is writable, whatever it was outside.
#[test]
fn the_temp_directory_is_private_and_usable() {
    let world = World::new();
    for backend in CONFINED {
        let mut run = capture();
        run.env.push(EnvChange::Set("TMPDIR".into(), "/nowhere".into()));
        let script = "set -e; f=$(mktemp); test -w \"$f\"; touch \"$TMPDIR/pinfold-private-marker\"; echo $TMPDIR";
        let result = world.run_with(backend, SandboxMode::WorkspaceWrite, &shell(script), &run);
        assert_eq!(result.outcome.verdict(), Verdict::Completed, "{backend}: {result:?}");
        assert!(!Path::new("/tmp/pinfold-private-marker").exists());
        // A call of no session leaves nothing behind.
        let left: Vec<_> = std::fs::read_dir(world.path("runtime/temp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_session_keeps_its_temp_directory_under_landlock() {
    let world = World::new();
    let mut policy = world.policy(SandboxMode::WorkspaceWrite);
    policy.session_id = Some(SessionId::new("../s"));
    let backend = Backend::Landlock;
    let run = |script: &str| {
        world.provider.run(&shell(script), &policy, &world.on(backend), &capture(), &Cancel::new()).unwrap()
    };
    assert_eq!(run("echo x > $TMPDIR/kept").outcome.verdict(), Verdict::Completed);
    assert_eq!(run("cat $TMPDIR/kept").stdout.bytes, b"x\n", "{backend}");
    world.provider.end_session(&SessionId::new("../s")).unwrap();
    assert_eq!(run("cat $TMPDIR/kept").outcome.verdict(), Verdict::Failed, "{backend}");
    world.provider.end_session(&SessionId::new("../s")).unwrap();
}

#[test]
fn endings_are_told_apart() {
    let world = World::new();
    for backend in CONFINED {
        let ending = |argv: &[OsString]| {
            let result = world.run_with(backend, SandboxMode::ReadOnly, argv, &capture());
            assert_eq!(result.outcome.status_evidence(), StatusEvidence::Channel, "{backend} {argv:?}");
            result.outcome.ending().clone()
        };
        assert_eq!(ending(&shell("exit 125")), Ending::Exited { code: 125 }, "{backend}");
        let Ending::Signaled { signal } = ending(&shell("kill -USR1 $$; sleep 5")) else { panic!("{backend}") };
        assert_eq!(signal.number(), 10);
        let Ending::NotStarted { code, .. } = ending(&words(&["no-such-program"])) else { panic!("{backend}") };
        assert_eq!(code, ErrorCode::CommandNotFound);
        let Ending::NotStarted { code, .. } = ending(&words(&["/etc/passwd"])) else { panic!("{backend}") };
        assert_eq!(code, ErrorCode::CommandNotExecutable);
        // Weakness W19: the runner's words in the command's mouth.
        let forged = "echo 'pinfold-run: nothing was executed' >&2; echo 'bwrap: no' >&2; exit 125";
        assert_eq!(ending(&shell(forged)), Ending::Exited { code: 125 }, "{backend}");
    }
}

#[test]
fn a_timeout_and_a_cancellation_leave_no_process() {
    let world = World::new();
    for (backend, tag) in [(Backend::Namespace, "71"), (Backend::Bwrap, "72"), (Backend::Landlock, "73")] {
        let marker = format!("sleep 9{tag}.{}", std::process::id());
        // Ignores SIGTERM, and has a child in a session of its own.
        let script = format!("trap '' TERM; setsid {marker} & {marker}; {marker}");
        let mut run = capture();
        (run.timeout, run.grace) = (Some(Duration::from_millis(400)), Duration::from_millis(100));
        let begun = Instant::now();
        let result = world.run_with(backend, SandboxMode::ReadOnly, &shell(&script), &run);
        let Ending::TimedOut { after_ms: 400, then: Some(Stop::Signaled { signal }) } = result.outcome.ending() else {
            panic!("{backend}: {result:?}")
        };
        assert_eq!(signal.number(), 9, "{backend}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{backend}");
        assert_gone(&marker);

        let cancel = Cancel::new();
        let other = cancel.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            other.cancel();
        });
        run.timeout = None;
        let policy = world.policy(SandboxMode::ReadOnly);
        let script = format!("{marker} & {marker}");
        let result = world.provider.run(&shell(&script), &policy, &world.on(backend), &run, &cancel).unwrap();
        thread.join().unwrap();
        assert_eq!(result.outcome.verdict(), Verdict::Cancelled, "{backend}: {result:?}");
        assert!(result.outcome.ran());
        assert_gone(&marker);
    }
}

#[test]
fn an_already_cancelled_call_touches_nothing() {
    let world = World::new();
    let cancel = Cancel::new();
    cancel.cancel();
    let policy = SandboxPolicy::new(ConfinedMode::ReadOnly, "/does/not/exist");
    let error = world.provider.confine(&shell("true"), &policy, &CallOptions::default(), &cancel).unwrap_err();
    assert_eq!(error, SandboxError::Cancelled);
    assert_eq!(std::fs::read_dir(world.path("runtime")).unwrap().count(), 0);
}

#[test]
fn commands_that_cannot_be_executed_are_refused_before_anything_else() {
    let world = World::new();
    let policy = SandboxPolicy::new(ConfinedMode::ReadOnly, "/does/not/exist");
    for argv in [vec![], words(&[""]), words(&["a", "b\0"])] {
        let error = world.provider.confine(&argv, &policy, &CallOptions::default(), &Cancel::new()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidCommand);
    }
}

/// Weakness W02: the root is the directory that was checked, not whatever has its name later.
#[test]
fn a_root_that_was_replaced_by_a_link_is_refused() {
    let world = World::new();
    for backend in CONFINED {
        let mut options = world.on(backend);
        options.cwd = Some("/".into());
        let status = world.path("status");
        options.status_file = Some(status.clone());
        let argv = [OsString::from("/bin/touch"), world.path("ws/x").into()];
        let policy = world.confined_policy(ConfinedMode::WorkspaceWrite);
        let confinement = world.provider.confine(&argv, &policy, &options, &Cancel::new()).unwrap();
        std::fs::rename(world.path("ws"), world.path("moved")).unwrap();
        symlink(world.path("out"), world.path("ws")).unwrap();
        let argv = &confinement.confined.argv;
        let output = Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
        assert!(!output.status.success(), "{backend}");
        assert!(!world.path("out/x").exists(), "{backend}");
        let said = std::fs::read_to_string(&status).unwrap();
        // Bubblewrap stumbles over the link before the launcher inside can look at it.
        let refused = said.starts_with("setup-failed root-") || (backend == Backend::Bwrap && said.is_empty());
        assert!(refused, "{backend}: {said:?} {output:?}");
        std::fs::remove_file(world.path("ws")).unwrap();
        // Another directory in its place is not the root either.
        std::fs::create_dir(world.path("ws")).unwrap();
        std::fs::write(&status, "").unwrap();
        let output = Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
        assert!(!output.status.success() && !world.path("ws/x").exists(), "{backend}");
        assert!(std::fs::read_to_string(&status).unwrap().starts_with("setup-failed root-changed"), "{backend}");
        std::fs::remove_dir(world.path("ws")).unwrap();
        std::fs::rename(world.path("moved"), world.path("ws")).unwrap();
        std::fs::remove_file(&status).unwrap();
    }
}

/// Case B095: neither many roots nor a long argument keep a command from starting.
#[test]
fn ten_thousand_roots_and_a_long_argument_start() {
    let world = World::new();
    let mut policy = world.policy(SandboxMode::WorkspaceWrite);
    for number in 0..10_000 {
        let path = world.path(format!("r{number}"));
        std::fs::create_dir(&path).unwrap();
        policy.additional_writable_roots.push(path);
    }
    let long = "x".repeat((128 << 10) - 1);
    let last = world.path("r9999/made");
    let argv = [OsString::from("/bin/sh"), "-c".into(), "echo ${#1} > \"$0\"".into(), last.clone().into(), long.into()];
    let mut run = capture();
    run.timeout = Some(Duration::from_secs(60));
    for backend in [Backend::Namespace, Backend::Landlock] {
        let result = world.provider.run(&argv, &policy, &world.on(backend), &run, &Cancel::new()).unwrap();
        assert_eq!(result.outcome.verdict(), Verdict::Completed, "{backend}: {:?}", result.outcome.ending());
        assert_eq!(std::fs::read_to_string(&last).unwrap(), "131071\n");
        std::fs::remove_file(&last).unwrap();
        let confined = policy.confined().unwrap();
        let confinement = world.provider.confine(&argv, &confined, &world.on(backend), &Cancel::new()).unwrap();
        let wrapped = &confinement.confined.argv;
        assert!(Command::new(&wrapped[0]).args(&wrapped[1..]).status().unwrap().success(), "{backend}");
        assert_eq!(std::fs::read_to_string(&last).unwrap(), "131071\n");
        std::fs::remove_file(&last).unwrap();
        drop(confinement);
        assert_eq!(std::fs::read_dir(world.path("runtime/plans")).unwrap().count(), 0);
    }
    let error = world.provider.run(&argv, &policy, &world.on(Backend::Bwrap), &run, &Cancel::new()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::UnsupportedPolicy, "{error}");
}

#[test]
fn an_argument_that_no_process_can_take_is_the_commands_own_fault() {
    let world = World::new();
    let argv = [OsString::from("/bin/true"), "x".repeat(128 << 10).into()];
    let result = world.run_with(Backend::Namespace, SandboxMode::ReadOnly, &argv, &capture());
    let Ending::NotStarted { code, .. } = result.outcome.ending() else { panic!("{result:?}") };
    assert_eq!(*code, ErrorCode::CommandNotExecutable);
}

/// Weakness W01, case B047: no search path chooses the program that confines.
#[test]
fn a_planted_runner_on_the_search_path_is_never_started() {
    let world = World::new();
    let planted = world.path("ws/bin");
    std::fs::create_dir(&planted).unwrap();
    for name in ["bwrap", "pinfold-run"] {
        let script = format!("#!/bin/sh\ntouch '{}'\n", world.path("out/planted").display());
        std::fs::write(planted.join(name), script).unwrap();
        std::fs::set_permissions(planted.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for backend in CONFINED {
        let mut run = capture();
        run.env.push(EnvChange::Set("PATH".into(), format!("{}:/usr/bin:/bin", planted.display()).into()));
        let result = world.run_with(backend, SandboxMode::ReadOnly, &words(&["true"]), &run);
        assert_eq!(result.outcome.verdict(), Verdict::Completed, "{backend}: {result:?}");
        assert!(!world.path("out/planted").exists(), "{backend}");
    }
}

/// Weakness W16: a runner that only passes the command on starts well and confines nothing.
#[test]
fn a_runner_that_passes_the_command_on_is_rejected() {
    for (argv, accepted) in [
        (vec!["/bin/sh", "-c", "while [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"", "runner"], false),
        (vec!["/bin/false"], false),
        (vec!["/usr/bin/bwrap"], true),
        (vec!["bwrap"], false),
    ] {
        let world = World::with(|_, config| {
            config.custom_runner =
                Some(CustomRunner { argv: words(&argv), failure_signatures: vec!["bwrap: ".to_owned()] });
        });
        for mode in [ConfinedMode::ReadOnly, ConfinedMode::WorkspaceWrite] {
            let options = CallOptions { cwd: Some("/".into()), ..CallOptions::default() };
            let policy = world.confined_policy(mode);
            let result = world.provider.confine(&shell("true"), &policy, &options, &Cancel::new());
            match result {
                Ok(confinement) => {
                    assert!(accepted, "{argv:?}");
                    assert_eq!(confinement.confined.enforcement, Enforcement::Partial);
                    // Bubblewrap by itself hands every open file on.
                    assert_eq!(confinement.report.strength(Guarantee::InheritedFds), Strength::None);
                    assert_eq!(confinement.report.strength(Guarantee::WriteContent), Strength::Enforced);
                }
                Err(error) => {
                    assert!(!accepted, "{error}");
                    assert_eq!(error.code(), ErrorCode::Unavailable);
                    assert!(error.to_string().contains("refusing to run the command unconfined"));
                }
            }
        }
    }
}

/// Case B107: a launcher that is missing or unfit is named, and nothing runs.
#[test]
fn a_missing_or_unfit_launcher_is_named() {
    type Spoil = fn(&Path);
    let spoils: [(Spoil, &str); 4] = [
        (|_| {}, "does not exist"),
        (|path| std::fs::write(path, "").unwrap(), "is empty"),
        (|path| drop(std::fs::copy("/bin/true", path).map(|_| make_executable(path, 0o644))), "is not executable"),
        (|path| drop(std::fs::copy("/bin/true", path).map(|_| make_executable(path, 0o777))), "others can write"),
    ];
    for (spoil, reason) in spoils {
        let world = World::with(|base, config| {
            let path = base.join("pinfold-run");
            spoil(&path);
            config.launcher = Some(path);
        });
        // Root may execute what has any execute bit; a file without one is not executable for root either.
        let error = world
            .provider
            .confine(
                &shell("true"),
                &world.confined_policy(ConfinedMode::ReadOnly),
                &CallOptions::default(),
                &Cancel::new(),
            )
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unavailable);
        let place = world.path("pinfold-run");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(error.to_string().contains(&place.display().to_string()), "{error}");
        let result = world.provider.examine(ConfinedMode::ReadOnly);
        assert!(result.iter().all(|finding| !finding.usable && finding.remedy.is_some()), "{result:#?}");
    }
    // A program that runs but is no launcher: it exits with 0 and confines nothing.
    let world = World::with(|base, config| {
        std::fs::copy("/bin/true", base.join("pinfold-run")).unwrap();
        config.launcher = Some(base.join("pinfold-run"));
    });
    let findings = world.provider.examine(ConfinedMode::ReadOnly);
    assert!(findings.iter().all(|finding| !finding.usable), "{findings:#?}");
}

fn make_executable(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_runtime_directory_inside_the_workspace_is_refused() {
    let world = World::with(|base, config| config.runtime_dir = Some(base.join("ws/pinfold")));
    let error = world
        .provider
        .confine(
            &shell("true"),
            &world.confined_policy(ConfinedMode::WorkspaceWrite),
            &CallOptions::default(),
            &Cancel::new(),
        )
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidRoot, "{error}");
    assert!(!world.path("ws/pinfold").exists());
}

#[test]
fn a_required_promise_is_kept_or_refused() {
    let world = World::new();
    let require = |backend, guarantee| CallOptions {
        backend,
        require: vec![guarantee],
        cwd: Some("/".into()),
        ..CallOptions::default()
    };
    let confine = |world: &World, options: &CallOptions| {
        let policy = world.confined_policy(ConfinedMode::WorkspaceWrite);
        world.provider.confine(&shell("true"), &policy, options, &Cancel::new())
    };
    let error = confine(&world, &require(Some(Backend::Landlock), Guarantee::WriteMetadata)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::GuaranteeUnmet);
    assert_eq!(error.body().guarantees, [Guarantee::WriteMetadata]);
    // Without a requested backend the chain goes on to one that keeps it.
    let world = World::with(|_, config| config.chain = Some(vec![Backend::Landlock, Backend::Namespace]));
    let confinement = confine(&world, &require(None, Guarantee::WriteMetadata)).unwrap();
    assert_eq!(confinement.backend, Backend::Namespace);
    assert!(confinement.report.facts().notes.iter().any(|note| note.contains("linux_landlock was passed over")));
    let error = confine(&world, &require(None, Guarantee::ReadDeny)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::GuaranteeUnmet, "{error}");
}

/// Weakness W10.
#[test]
fn a_hard_link_to_a_file_outside_is_reported() {
    let world = World::new();
    std::fs::write(world.path("out/secret"), "").unwrap();
    std::fs::hard_link(world.path("out/secret"), world.path("ws/alias")).unwrap();
    let policy = world.confined_policy(ConfinedMode::WorkspaceWrite);
    let confine = |options: &CallOptions| {
        world.provider.confine(&shell("true"), &policy, options, &Cancel::new()).unwrap().report
    };
    let report = confine(&world.on(Backend::Namespace));
    assert_eq!(report.facts().hard_links.paths, [world.path("ws/alias").canonicalize().unwrap()]);
    assert_eq!(report.strength(Guarantee::WriteViaLinks), Strength::Partial);
    assert_eq!(report.enforcement(), Some(Enforcement::Partial));
    let mut options = world.on(Backend::Namespace);
    options.hard_links = HardLinkScan::Skip;
    assert_eq!(confine(&options).strength(Guarantee::WriteViaLinks), Strength::Partial);
}

#[test]
fn full_access_is_never_given_to_a_confining_backend_nor_the_other_way_round() {
    let world = World::new();
    let policy = world.policy(SandboxMode::DangerFullAccess);
    let argv = shell("true");
    let run = |policy: &ExecutionPolicy, options: &CallOptions| {
        world.provider.run(&argv, policy, options, &capture(), &Cancel::new())
    };
    assert_eq!(run(&policy, &world.on(Backend::Namespace)).unwrap_err().code(), ErrorCode::UnsupportedPolicy);
    let confined = world.policy(SandboxMode::ReadOnly);
    assert_eq!(run(&confined, &world.on(Backend::Unconfined)).unwrap_err().code(), ErrorCode::UnsupportedPolicy);
    let options = CallOptions { require: vec![Guarantee::WriteContent], ..CallOptions::default() };
    assert_eq!(run(&policy, &options).unwrap_err().code(), ErrorCode::GuaranteeUnmet);
    let Err(error) =
        LocalProvider::new(ProviderConfig { chain: Some(vec![Backend::Unconfined]), ..ProviderConfig::default() })
    else {
        panic!("a chain with it is refused")
    };
    assert_eq!(error.code(), ErrorCode::InvalidPolicy);
}

/// Weakness W22: a working directory is the one that was meant, or nothing runs.
#[test]
fn a_hidden_working_directory_is_refused() {
    let world = World::new();
    let hidden = tempfile::tempdir_in("/tmp").unwrap();
    for backend in [Backend::Namespace, Backend::Bwrap] {
        let mut options = world.on(backend);
        options.cwd = Some(hidden.path().into());
        let policy = world.policy(SandboxMode::WorkspaceWrite);
        let code = match world.provider.run(&shell("pwd"), &policy, &options, &capture(), &Cancel::new()) {
            Err(error) => error.code(),
            Ok(result) => match result.outcome.ending() {
                Ending::NotStarted { code, .. } => *code,
                other => panic!("{backend}: {other:?}"),
            },
        };
        assert_eq!(code, ErrorCode::PreparationFailed, "{backend}");
    }
}

#[test]
fn what_is_open_in_the_provider_is_not_open_in_the_command() {
    let world = World::new();
    for backend in CONFINED {
        let result = world.run(backend, SandboxMode::ReadOnly, "ls /proc/self/fd");
        // The last one is that of ls itself, reading the list.
        assert_eq!(text(&result.stdout.bytes).lines().collect::<Vec<_>>(), ["0", "1", "2", "3"], "{backend}");
    }
}

#[test]
fn a_status_file_below_a_writable_root_is_refused() {
    let world = World::new();
    let mut options = world.on(Backend::Namespace);
    options.status_file = Some(world.path("ws/status"));
    let policy = world.confined_policy(ConfinedMode::WorkspaceWrite);
    let error = world.provider.confine(&shell("true"), &policy, &options, &Cancel::new()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidPolicy);
    assert!(!world.path("ws/status").exists());
}

#[test]
fn the_loader_variables_reach_the_command_and_not_bubblewrap() {
    let world = World::new();
    let mut run = capture();
    run.env.push(EnvChange::Set("LD_PRELOAD".into(), "/nowhere/evil.so".into()));
    let result = world.run_with(Backend::Bwrap, SandboxMode::ReadOnly, &words(&["/usr/bin/env"]), &run);
    assert!(text(&result.stdout.bytes).contains("LD_PRELOAD=/nowhere/evil.so"), "{result:?}");
    // The loader complains once, for the command; bubblewrap's own complaint would be a second one.
    assert_eq!(text(&result.stderr.bytes).matches("evil.so").count(), 1, "{result:?}");
}

#[test]
fn many_calls_at_once_with_different_policies_do_not_meet() {
    let world = World::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let world = &world;
            scope.spawn(move || {
                let root = world.path(format!("w{number}"));
                std::fs::create_dir(&root).unwrap();
                let mode = if number % 2 == 0 { SandboxMode::WorkspaceWrite } else { SandboxMode::ReadOnly };
                let policy = ExecutionPolicy::new(mode, &root);
                let options = CallOptions { cwd: Some(root.clone()), ..CallOptions::default() };
                let argv = shell("echo x > made");
                let result = world.provider.run(&argv, &policy, &options, &capture(), &Cancel::new()).unwrap();
                assert_eq!(root.join("made").exists(), number % 2 == 0, "{result:?}");
            });
        }
    });
}

#[test]
fn nothing_is_left_open_or_on_disk() {
    let world = World::new();
    for backend in CONFINED {
        world.run(backend, SandboxMode::WorkspaceWrite, "true");
    }
    drop(world.provider);
    let mut left: Vec<_> =
        std::fs::read_dir(world.base.path().join("runtime")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["plans", "temp"]);
    assert_eq!(std::fs::read_dir(world.base.path().join("runtime/temp")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(world.base.path().join("ws")).unwrap().count(), 0);
}

/// A launcher that is replaced after its probe confines nothing, and so nothing runs.
#[test]
fn a_launcher_that_stops_working_runs_nothing() {
    let world = World::with(|base, config| {
        std::fs::copy(launcher(), base.join("pinfold-run")).unwrap();
        config.launcher = Some(base.join("pinfold-run"));
    });
    let script = format!("echo x > '{}'", world.path("ws/x").display());
    let run = || {
        let options = CallOptions { cwd: Some(world.path("ws")), ..CallOptions::default() };
        let policy = world.policy(SandboxMode::WorkspaceWrite);
        world.provider.run(&shell(&script), &policy, &options, &capture(), &Cancel::new())
    };
    assert_eq!(run().unwrap().outcome.verdict(), Verdict::Completed);
    std::fs::remove_file(world.path("ws/x")).unwrap();
    std::fs::remove_file(world.path("pinfold-run")).unwrap();
    std::fs::copy("/bin/true", world.path("pinfold-run")).unwrap();
    let text = match run() {
        Ok(result) => {
            let Ending::NotStarted { code, detail } = result.outcome.ending() else { panic!("{result:?}") };
            assert_eq!(*code, ErrorCode::Unavailable);
            detail.clone()
        }
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::Unavailable);
            error.to_string()
        }
    };
    assert!(text.contains("the launcher did not report that the walls stand"), "{text}");
    assert!(!world.path("ws/x").exists());
}

/// Weakness W38: a runner that fails at run time is passed over in the same call, and the report says so.
#[test]
fn a_runner_that_fails_at_run_time_is_passed_over() {
    let world = World::with(|base, config| {
        let script = format!(
            "if [ -e '{}/broken' ]; then echo 'runner: broken' >&2; exit 9; fi; exec /usr/bin/bwrap \"$@\"",
            base.display()
        );
        let argv = vec!["/bin/sh".into(), "-c".into(), script.into(), "runner".into()];
        config.custom_runner = Some(CustomRunner { argv, failure_signatures: vec!["runner: ".to_owned()] });
        config.chain = Some(vec![Backend::Custom, Backend::Landlock]);
    });
    let run = || {
        let options = CallOptions { cwd: Some("/".into()), ..CallOptions::default() };
        let policy = world.policy(SandboxMode::ReadOnly);
        world.provider.run(&shell("echo ran"), &policy, &options, &capture(), &Cancel::new()).unwrap()
    };
    assert_eq!(run().outcome.report().unwrap().backend(), "custom_runner");
    std::fs::write(world.path("broken"), "").unwrap();
    for _ in 0..2 {
        let result = run();
        assert_eq!((result.outcome.verdict(), text(&result.stdout.bytes)), (Verdict::Completed, "ran\n".to_owned()));
        let report = result.outcome.report().unwrap();
        assert_eq!(report.backend(), "linux_landlock");
        assert!(report.facts().notes.iter().any(|note| note.contains("custom_runner was passed over")), "{report:?}");
    }
}

#[test]
fn a_mount_below_a_root_is_reported_and_a_kernel_one_refused() {
    let world = World::new();
    std::fs::create_dir_all(world.path("ws/m")).unwrap();
    // Root mounts here; another user in a namespace would need the provider inside it.
    let mount = |from: &Path| {
        let done = Command::new("mount").arg("--bind").arg(from).arg(world.path("ws/m")).output();
        done.is_ok_and(|output| output.status.success())
    };
    if !mount(&world.path("out")) {
        return;
    }
    let results = CONFINED.map(|backend| world.run(backend, SandboxMode::WorkspaceWrite, "true"));
    let unmount = || Command::new("umount").arg(world.path("ws/m")).status().unwrap();
    unmount();
    for result in results {
        let report = result.outcome.report().unwrap();
        for guarantee in [Guarantee::WriteContent, Guarantee::WriteMetadata, Guarantee::WriteViaLinks] {
            assert_ne!(report.strength(guarantee), Strength::Enforced, "{} {guarantee}", report.backend());
        }
        assert_eq!(report.enforcement(), Some(Enforcement::Partial));
        assert!(report.lookup(Guarantee::WriteContent).unwrap().notes.iter().any(|note| note.contains("ws/m")));
    }
    assert!(mount(Path::new("/proc/sys/kernel")));
    let policy = world.policy(SandboxMode::WorkspaceWrite);
    let results = CONFINED
        .map(|backend| world.provider.run(&shell("true"), &policy, &world.on(backend), &capture(), &Cancel::new()));
    unmount();
    for result in results {
        let error = result.unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidRoot);
        assert!(error.to_string().contains("kernel file system"), "{error}");
    }
}

#[test]
fn a_wrapped_argv_is_supervised_unless_the_caller_does_it() {
    let world = World::new();
    let wrapped = |unsupervised| {
        let options = CallOptions { unsupervised, ..world.on(Backend::Landlock) };
        let policy = world.confined_policy(ConfinedMode::WorkspaceWrite);
        world.provider.confine(&shell("true"), &policy, &options, &Cancel::new()).unwrap()
    };
    for unsupervised in [false, true] {
        let confinement = wrapped(unsupervised);
        let supervises = confinement.confined.argv.iter().any(|word| word == "--supervise");
        assert_eq!(supervises, !unsupervised);
        let expected = if unsupervised { Strength::None } else { Strength::Partial };
        assert_eq!(confinement.report.strength(Guarantee::Descendants), expected);
    }
}

#[test]
fn a_working_directory_that_is_gone_is_refused_by_bubblewrap_too() {
    // The working directory belongs to the whole process: another process asks.
    let world = World::new();
    let gone = world.path("gone");
    std::fs::create_dir(&gone).unwrap();
    if std::env::var_os("PINFOLD_TEST_GONE").is_none() {
        let test = "a_working_directory_that_is_gone_is_refused_by_bubblewrap_too";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env("PINFOLD_TEST_GONE", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stdout));
        return;
    }
    std::env::set_current_dir(&gone).unwrap();
    std::fs::remove_dir(&gone).unwrap();
    for backend in [Backend::Namespace, Backend::Bwrap] {
        let options = CallOptions { backend: Some(backend), ..CallOptions::default() };
        let policy = world.policy(SandboxMode::ReadOnly);
        let result = world.provider.run(&words(&["true"]), &policy, &options, &capture(), &Cancel::new());
        assert!(!result.is_ok_and(|result| result.outcome.ran()), "{backend}");
    }
}
