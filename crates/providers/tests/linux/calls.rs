//! What calls do: files, endings, environments, many at once.

use super::*;

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
// Case W13.
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
// Cases W27, W28, B083.
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
// Cases B068, B075.
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
// Cases B050, W12.
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
