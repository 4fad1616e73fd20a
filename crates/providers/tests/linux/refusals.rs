//! What is refused, and before what.

use super::*;

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
        let result = world.provider.examine(ConfinedMode::ReadOnly, &CallOptions::default());
        assert!(result.iter().all(|finding| !finding.usable && finding.remedy.is_some()), "{result:#?}");
    }
    // A program that runs but is no launcher: it exits with 0 and confines nothing.
    let world = World::with(|base, config| {
        std::fs::copy("/bin/true", base.join("pinfold-run")).unwrap();
        config.launcher = Some(base.join("pinfold-run"));
    });
    let findings = world.provider.examine(ConfinedMode::ReadOnly, &CallOptions::default());
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
        let error = world.provider.run(&shell("pwd"), &policy, &options, &capture(), &Cancel::new()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidPolicy, "{backend}");
        assert!(error.to_string().contains("lies in a temp directory"), "{error}");
        // Control: nothing hides it where nothing may be written.
        let policy = world.policy(SandboxMode::ReadOnly);
        assert!(
            world.provider.run(&shell("pwd"), &policy, &options, &capture(), &Cancel::new()).unwrap().outcome.ran()
        );
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
fn a_working_directory_that_is_gone_is_refused_by_bubblewrap_too() {
    // The working directory belongs to the whole process: another process asks.
    let world = World::new();
    let gone = world.path("gone");
    std::fs::create_dir(&gone).unwrap();
    if std::env::var_os("PINFOLD_TEST_GONE").is_none() {
        let test = "refusals::a_working_directory_that_is_gone_is_refused_by_bubblewrap_too";
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
