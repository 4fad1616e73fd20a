//! Commands and file tools in one world: one temp area for a session, and one answer for a path (W23, W45, W46, B062, B140).

mod scene;

use pinfold_fence::{Abort, Act, Fence, FenceOptions, Intent, TempPlace};
use pinfold_policy::{
    ConfinedMode, ExecutionPolicy, FileErrorCode as Code, Protect, Restrictions, SandboxPolicy, SessionId,
};
use pinfold_providers::{
    Backend, CallOptions, Cancel, HardLinkScan, LocalProvider, Operation, ProviderConfig, Question, Ruling, RunOptions,
    RunResult, Stream,
};
use scene::Scene;
use std::ffi::OsString;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

const BACKENDS: [Backend; 3] = [Backend::Namespace, Backend::Bwrap, Backend::Landlock];

struct World {
    scene: Scene,
    provider: LocalProvider,
}

impl World {
    fn new() -> Self {
        let scene = Scene::new();
        let runtime = scene.folder("runtime");
        std::fs::set_permissions(&runtime, std::fs::Permissions::from_mode(0o700)).unwrap();
        let config = ProviderConfig {
            launcher: Some(scene::launcher()),
            runtime_dir: Some(runtime),
            ..ProviderConfig::default()
        };
        Self { provider: LocalProvider::new(config).unwrap(), scene }
    }

    fn policy(&self, session: Option<&str>) -> SandboxPolicy {
        let mut policy = SandboxPolicy::new(ConfinedMode::WorkspaceWrite, self.scene.workspace());
        policy.session_id = session.map(SessionId::new);
        policy
    }

    fn options(&self, backend: Backend) -> CallOptions {
        let cwd = Some(self.scene.workspace());
        CallOptions { backend: Some(backend), cwd, hard_links: HardLinkScan::Skip, ..CallOptions::default() }
    }

    fn shell(&self, policy: &SandboxPolicy, options: &CallOptions, script: &str, words: &[&Path]) -> RunResult {
        let mut argv: Vec<OsString> = ["/bin/sh", "-c", script, "sh"].map(OsString::from).into();
        argv.extend(words.iter().map(|word| word.as_os_str().to_owned()));
        let capture = Stream::Capture { limit: 1 << 20 };
        let run = RunOptions { stdin: Stream::Null, stdout: capture, stderr: capture, ..RunOptions::default() };
        let policy = ExecutionPolicy::from(policy.clone());
        self.provider.run(&argv, &policy, options, &run, &Cancel::new()).unwrap()
    }

    fn fence(&self, policy: &SandboxPolicy, options: &CallOptions) -> Fence {
        let rules = self.provider.file_rules(policy, options).unwrap();
        let restrictions = options.restrictions.clone();
        let (temp, protected) = (TempPlace::of(&rules.temp), rules.protected);
        let options = FenceOptions { restrictions, temp, protected, ..FenceOptions::default() };
        Fence::open(&ExecutionPolicy::from(policy.clone()), options).unwrap()
    }
}

fn said(result: &RunResult) -> String {
    let bytes = |stream: &pinfold_providers::Captured| String::from_utf8_lossy(&stream.bytes).into_owned();
    format!("{}{}", bytes(&result.stdout), bytes(&result.stderr))
}

#[test]
fn a_session_has_one_temp_area_for_commands_and_file_tools() {
    for backend in BACKENDS {
        let world = World::new();
        let (policy, options) = (world.policy(Some("one")), world.options(backend));
        let fence = world.fence(&policy, &options);
        let said = |script: &str| said(&world.shell(&policy, &options, script, &[]));
        let temp = match backend {
            Backend::Landlock => PathBuf::from(said("printf %s \"$TMPDIR\"")),
            _ => "/tmp".into(),
        };
        let unique = format!("pinfold-one-world-{}", std::process::id());
        assert_eq!(said(&format!("echo shell > \"$TMPDIR/{unique}\"")), "", "{backend:?}");
        assert_eq!(fence.read_text(&temp.join(&unique)).unwrap().0, "shell\n", "{backend:?}");
        let abort = Abort::default();
        fence.write(&temp.join("d/from-tool"), b"tool", &Intent::CreateIfAbsent, &abort).unwrap();
        assert_eq!(said("cat \"$TMPDIR/d/from-tool\""), "tool", "{backend:?}");
        assert!(!Path::new("/tmp").join(&unique).exists(), "the host's own is another one");
        // A link that a command leaves there leads no tool out.
        let outside = world.scene.path("outside");
        world.shell(&policy, &options, "ln -s \"$1\" \"$TMPDIR/out\"", &[&outside]);
        let error = fence.write(&temp.join("out/x"), b"", &Intent::Any, &abort).unwrap_err();
        assert_eq!(error.code(), Code::SandboxDenied, "{backend:?}: {error}");
        // Another session has another one, and a mount tree hides the first.
        let other = world.policy(Some("two"));
        let found = world.shell(&other, &options, "ls \"$TMPDIR\"", &[]);
        assert_eq!(self::said(&found), "", "{backend:?}");
        if backend != Backend::Landlock {
            let runtime = world.scene.path("runtime/temp");
            let found = world.shell(&other, &options, "ls -R \"$1\"", &[&runtime]);
            assert!(!self::said(&found).contains("session-one"), "{backend:?}");
            assert!(runtime.join("session-one").is_dir(), "control");
        } else {
            // The host's own stays closed to both.
            let error = fence.write(&Path::new("/tmp").join(&unique), b"", &Intent::Any, &abort).unwrap_err();
            assert_eq!(error.code(), Code::SandboxDenied);
            assert!(said(&format!("echo > /tmp/{unique}")).contains("denied"));
        }
        world.provider.end_session(&SessionId::new("one")).unwrap();
        assert!(
            std::fs::read_dir(world.scene.path("runtime/temp")).unwrap().count() == 1,
            "{backend:?}: only the other's"
        );
    }
}

/// Without a session each call has its own, so a tool has none.
#[test]
fn a_call_of_no_session_leaves_nothing_and_a_tool_has_no_temp() {
    for backend in BACKENDS {
        let world = World::new();
        let (policy, options) = (world.policy(None), world.options(backend));
        world.shell(&policy, &options, "echo x > \"$TMPDIR/f\"", &[]);
        assert_eq!(said(&world.shell(&policy, &options, "ls \"$TMPDIR\"", &[])), "", "{backend:?}");
        let fence = world.fence(&policy, &options);
        let error = fence.write(Path::new("/tmp/x"), b"", &Intent::Any, &Abort::default()).unwrap_err();
        assert_eq!(error.code(), Code::SandboxDenied, "{backend:?}");
    }
}

/// B062, B140: the fence, `explain` and a real command give one answer, path by path.
#[test]
fn fence_explain_and_command_answer_alike() {
    let operations = [
        (Operation::Read, Act::Read),
        (Operation::Write, Act::Write),
        (Operation::Create, Act::Create),
        (Operation::Remove, Act::Remove),
        (Operation::Rename, Act::Rename),
    ];
    let world = World::new();
    let (ws, outside) = (world.scene.workspace(), world.scene.path("outside"));
    for folder in ["workspace/a/b", "workspace/keys", "workspace/way/to/inner", "outside/d"] {
        world.scene.folder(folder);
    }
    for file in
        ["workspace/f", "workspace/a/f", "workspace/keys/k", "outside/f", "outside/d/f", "workspace/way/to/inner/f"]
    {
        std::fs::write(world.scene.path(file), "x").unwrap();
    }
    for (name, to) in
        [("in", "a"), ("out", "../outside"), ("leaf", "../outside/f"), ("gone", "none"), ("secret", "keys/k")]
    {
        symlink(to, ws.join(name)).unwrap();
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    for name in
        ["", "f", "a", "a/f", "a/new", "a/new/deep", "in", "in/f", "in/new", "out", "out/f", "out/new", "leaf", "gone"]
    {
        paths.push(ws.join(name));
    }
    for name in
        ["secret", "keys", "keys/k", "keys/new", "way", "way/to", "way/to/inner", "way/to/inner/f", "way/f", "a/../f"]
    {
        paths.push(ws.join(name));
    }
    paths.extend(["", "f", "d", "d/f", "new"].map(|name| outside.join(name)));
    paths.extend(["/etc/passwd", "/usr", "/new"].map(PathBuf::from));
    let restrictions =
        Restrictions { denied_reads: vec![ws.join("keys"), outside.join("d")], ..Restrictions::default() };
    let mut compared = 0;
    for backend in [Backend::Namespace, Backend::Bwrap] {
        let mut policy = world.policy(None);
        policy.additional_writable_roots = vec![ws.join("way/to/inner")];
        let options = CallOptions { restrictions: restrictions.clone(), ..world.options(backend) };
        let fence = world.fence(&policy, &options);
        for path in &paths {
            for (operation, act) in operations {
                let question = Question { path: path.clone(), operation, policy: policy.clone() };
                let answer = world.provider.explain(&question, &options).unwrap();
                let decision = fence.decide(act, path);
                let refused = decision.as_ref().is_err_and(|error| error.code() == Code::SandboxDenied);
                assert_eq!(refused, answer.ruling == Ruling::Denied, "{act:?} {path:?}: {decision:?}, {answer:?}");
                compared += 1;
            }
        }
        // The same by real commands, where one can be opened for reading or appending.
        let files: Vec<&Path> = paths.iter().map(PathBuf::as_path).filter(|path| path.is_file()).collect();
        let script = "for path in \"$@\"; do (exec 3<\"$path\") 2>/dev/null && echo yes || echo no; \
                      (exec 3>>\"$path\") 2>/dev/null && echo yes || echo no; done";
        let said = said(&world.shell(&policy, &options, script, &files));
        let answers: Vec<&str> = said.lines().collect();
        assert_eq!(answers.len(), 2 * files.len(), "{said}");
        for (path, answers) in files.iter().zip(answers.chunks(2)) {
            for (act, answer) in [Act::Read, Act::Write].iter().zip(answers) {
                assert_eq!(fence.decide(*act, path).is_ok(), *answer == "yes", "{act:?} {path:?} under {backend:?}");
                compared += 1;
            }
        }
        policy.mode = ConfinedMode::ReadOnly;
        let narrow = Fence::open(&ExecutionPolicy::from(policy.clone()), FenceOptions::default()).unwrap();
        let refused =
            |path: &PathBuf| narrow.decide(Act::Write, path).is_err_and(|it| it.code() == Code::SandboxDenied);
        assert!(paths.iter().all(refused));
    }
    assert!(compared > 300, "{compared}");
}

/// The same with protected names, and under Landlock alone, where nothing can be denied for reading: each act is really
/// tried by a command, and undone.
#[test]
fn with_protected_names_each_act_is_allowed_to_both_or_to_none() {
    const SCRIPT: &str = r#"
        say() { if [ "$1" = 0 ]; then echo yes; else echo no; fi; }
        for path in "$@"; do
            if [ -f "$path" ]; then
                (exec 3<"$path") 2>/dev/null; say $?
                (exec 3>>"$path") 2>/dev/null; say $?
                mv "$path" "$path.moved" 2>/dev/null; say $?
                if [ -e "$path.moved" ]; then mv "$path.moved" "$path"; fi
                rm -f "$path" 2>/dev/null; say $?
                if [ ! -e "$path" ]; then echo x > "$path"; fi
            else
                (set -C; : > "$path") 2>/dev/null; say $?
                rm -f "$path" 2>/dev/null
            fi
        done"#;
    for backend in [Backend::Namespace, Backend::Landlock] {
        let world = World::new();
        let (ws, outside) = (world.scene.workspace(), world.scene.path("outside"));
        for folder in ["workspace/.git/hooks", "workspace/.vscode", "workspace/a/.git", "workspace/locked", "outside/d"]
        {
            world.scene.folder(folder);
        }
        let files = [
            "workspace/f",
            "workspace/a/f",
            "workspace/.git/config",
            "workspace/.git/description",
            "workspace/.git/hooks/pre-commit",
            "workspace/a/.git/HEAD",
            "workspace/.vscode/tasks.json",
            "workspace/locked/x",
            "outside/f",
            "outside/d/f",
        ];
        for file in files {
            std::fs::write(world.scene.path(file), "x").unwrap();
        }
        symlink("../outside", ws.join("out")).unwrap();
        symlink(".git", ws.join("git")).unwrap();
        let mut paths: Vec<PathBuf> = files.iter().map(|file| world.scene.path(file)).collect();
        for name in [
            "new",
            "a/new",
            ".git/new",
            ".git/hooks/new",
            "git/hooks/new",
            "git/config",
            ".envrc",
            "a/.bashrc",
            "out/new",
        ] {
            paths.push(ws.join(name));
        }
        paths.extend([".vscode/settings.json", "locked/new", ".mcp.json", "a/.git/config"].map(|name| ws.join(name)));
        paths.extend(["out/f", "out/d/f"].map(|name| ws.join(name)));
        paths.push(outside.join("new"));
        let policy = world.policy(None);
        let protect = Protect { default_names: true, patterns: vec![ws.join("locked/**")] };
        let restrictions = Restrictions { protect, ..Restrictions::default() };
        let options = CallOptions { restrictions, ..world.options(backend) };
        let words: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        let answers = said(&world.shell(&policy, &options, SCRIPT, &words));
        let mut answers = answers.lines();
        let fence = world.fence(&policy, &options);
        let (mut compared, mut refused) = (0, 0);
        for path in &paths {
            let acts: &[(Operation, Act)] = if path.is_file() {
                &[
                    (Operation::Read, Act::Read),
                    (Operation::Write, Act::Write),
                    (Operation::Rename, Act::Rename),
                    (Operation::Remove, Act::Remove),
                ]
            } else {
                &[(Operation::Create, Act::Create)]
            };
            for (operation, act) in acts {
                let by_command = answers.next().unwrap_or("nothing");
                let decision = fence.decide(*act, path);
                let by_fence = if decision.is_ok() { "yes" } else { "no" };
                let question = Question { path: path.clone(), operation: *operation, policy: policy.clone() };
                let told = world.provider.explain(&question, &options).unwrap();
                let by_explain = if told.ruling == Ruling::Denied { "no" } else { "yes" };
                assert_eq!(
                    (by_fence, by_explain),
                    (by_command, by_command),
                    "{act:?} {path:?} under {backend:?}: {decision:?}, {told:?}"
                );
                compared += 1;
                refused += u32::from(by_command == "no");
            }
        }
        assert_eq!(answers.next(), None);
        assert!(compared > 50 && refused > 20, "{compared} compared, {refused} refused");
        assert!(files.iter().all(|file| world.scene.path(file).is_file()), "all as before");
    }
}

/// What Landlock alone cannot hide it is not used for; a tool that is told to follow its rules is refused as well.
#[test]
fn denied_reads_under_landlock_alone_are_refused_to_both() {
    let world = World::new();
    let denied_reads = vec![world.scene.path("outside")];
    let restrictions = Restrictions { denied_reads, ..Restrictions::default() };
    let options = CallOptions { restrictions, ..world.options(Backend::Landlock) };
    let policy = world.policy(None);
    let refusal = world.provider.file_rules(&policy, &options).unwrap_err();
    let argv = ["/bin/true".into()];
    let run = RunOptions::default();
    let command = world.provider.run(&argv, &ExecutionPolicy::from(policy.clone()), &options, &run, &Cancel::new());
    assert_eq!(command.unwrap_err().code(), refusal.code());
    // Control.
    assert!(world.provider.file_rules(&policy, &world.options(Backend::Landlock)).is_ok());
}
