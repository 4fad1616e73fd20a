//! One command to its end: what it finds, how it ends, what is left.

use super::*;
use pinfold_executor::ExecutorError;
use pinfold_executor::render::render_finished;
use pinfold_policy::escalation::Subject;
use pinfold_policy::{Enforcement, ErrorCode, SandboxError};

/// U294, U304, U309 (B085), U336, U582: what a command finds.
#[test]
fn a_command_finds_a_quiet_world() {
    everywhere(|world| {
        let script = "printf '%s|' \"$NO_COLOR\" \"$TERM\" \"$PAGER\" \"$GIT_PAGER\" \"$PINFOLD_SHELL\" \"$PINFOLD_SESSION_ID\"; \
                      cat; shopt -q login_shell; echo $?; pwd";
        let expected = format!("1|dumb|cat|cat|1|s|1\n{}\n", world.path("ws").display());
        let finished = world.run(script);
        assert_eq!(finished.stdout.text, expected, "{}", world.backend);
        assert_eq!((finished.exit_code(), finished.signal()), (Some(0), None));
        let confined = world.backend != Backend::Unconfined;
        assert_eq!(finished.sandbox.enforcement.is_some(), confined);
        assert_eq!(finished.sandbox.backend.as_deref(), Some(world.backend.provider_name()));
        assert!(!finished.sandbox.denied);
    });
}

/// U306, U307 and that what is given to read is read, once (U309); U352: what does not read it is not harmed.
#[test]
fn a_request_s_own_variables_and_input_arrive() {
    everywhere(|world| {
        let mut request = Request::new("read line; echo \"$line $MY_TOKEN ${HOME-none}\"; cat | wc -c");
        request.stdin = Some(b"first\nsecond\n".to_vec());
        request.env = vec![("MY_TOKEN".into(), Some("t".into())), ("HOME".into(), None)];
        assert_eq!(world.request(&request).stdout.text, "first t none\n7\n", "{}", world.backend);
        request.command = "exit 4".into();
        request.stdin = Some(vec![b'x'; 3 << 20]);
        assert_eq!(world.request(&request).exit_code(), Some(4), "{}", world.backend);
    });
}

/// U323, U325, B083, W21: exit, signal, time limit and withdrawal are four facts, the same under every backend.
#[test]
fn ends_are_told_apart_and_equal_everywhere() {
    everywhere(|world| {
        for (script, ending) in [
            ("exit 0", exited(0)),
            ("exit 137", exited(137)),
            ("exit 125", exited(125)),
            ("exit 126", exited(126)),
            ("exit 127", exited(127)),
            ("kill -KILL $$", signaled(9)),
            ("kill -TERM $$", signaled(15)),
            ("kill -SEGV $$", signaled(11)),
            ("no-such-program-at-all", exited(127)),
        ] {
            let finished = world.run(script);
            assert_eq!(finished.outcome.ending(), &ending, "{}: {script}", world.backend);
            assert!(!finished.sandbox.runner_failed && !finished.sandbox.denied, "{}: {script}", world.backend);
        }
        let late =
            world.request(&Request { timeout_ms: Some(2000.0), ..Request::new("echo l1; echo l2 >&2; exec sleep 60") });
        let stop = pinfold_policy::Signal::from_number(15).map(|signal| Stop::Signaled { signal });
        assert_eq!(late.outcome.ending(), &Ending::TimedOut { after_ms: 2000, then: stop }, "{}", world.backend);
        // B090: both streams are there.
        assert_eq!((late.stdout.text.as_str(), late.stderr.text.as_str()), ("l1\n", "l2\n"), "{}", world.backend);
        assert_eq!(
            render_finished(&late, None),
            "l1\n[stderr]\nl2\n[timed out after 2000ms]\n[killed by signal: SIGTERM]"
        );
        // U326: it has timed out whatever it does then.
        let request = Request::new("trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done");
        let trapped = world.request(&Request { timeout_ms: Some(2000.0), ..request });
        assert_eq!(
            trapped.outcome.ending(),
            &Ending::TimedOut { after_ms: 2000, then: Some(Stop::Exited { code: 5 }) },
            "{}",
            world.backend
        );
    });
}

fn signaled(number: i32) -> Ending {
    Ending::Signaled { signal: pinfold_policy::Signal::from_number(number).unwrap() }
}

/// U318, U321, B068, B069, B079: a limit ends whatever there is, and says so in time.
#[test]
fn nothing_survives_a_time_limit() {
    for backend in CONFINED {
        let world = World::new(backend);
        // The first call probes, which a busy machine takes its time for.
        world.printed("true");
        let marker = marker();
        for script in [
            format!(
                "trap '' TERM; sleep {marker} & setsid sleep {marker} & (setsid sh -c 'sleep {marker} & exit' &); wait; sleep 60"
            ),
            format!(
                "sleep {marker} | cat & kill -STOP $!; sleep {marker} & kill -STOP $!; while :; do echo flood; done"
            ),
        ] {
            let begun = Instant::now();
            let finished = world.request(&Request { timeout_ms: Some(2500.0), ..Request::new(&script) });
            assert!(finished.timed_out(), "{backend}: {script}: {finished:?}");
            assert!(begun.elapsed() < Duration::from_secs(20));
            assert_eq!(sleepers(&marker), 0, "{backend}: {script}");
        }
    }
}

/// The control: without walls a daemon lives on, which is why somebody has to end it; its group does not (U317).
#[test]
fn without_walls_only_the_group_ends() {
    let world = World::new(Backend::Unconfined);
    let (daemon, member) = (marker(), marker());
    let script = format!("setsid sleep {daemon} & (trap '' TERM; sleep {member}) & sleep 60");
    assert!(world.request(&Request { timeout_ms: Some(2000.0), ..Request::new(script) }).timed_out());
    assert_eq!((sleepers(&daemon), sleepers(&member)), (1, 0));
    end_sleepers(&daemon);
}

/// U320, B066: who holds the pipe delays the result by no more than the grace.
#[test]
fn a_held_pipe_does_not_hold_the_result() {
    everywhere(|world| {
        let marker = marker();
        let begun = Instant::now();
        let finished = world.run(&format!("echo done; sleep {marker} & disown; (nohup sleep {marker} | cat) & exit 3"));
        assert_eq!((finished.exit_code(), finished.stdout.text.as_str()), (Some(3), "done\n"), "{}", world.backend);
        assert!(begun.elapsed() < Duration::from_secs(15), "{}", world.backend);
        // U619, B072: with walls, what a call leaves behind ends with it.
        assert!(world.backend == Backend::Unconfined || sleepers(&marker) == 0, "{}", world.backend);
        end_sleepers(&marker);
    });
}

/// What goes through a process of the command's own arrives.
#[test]
fn output_through_a_substituted_process_is_not_lost() {
    everywhere(|world| {
        let finished = world.run("exec > >(sed s/a/b/); echo a; exec >&-; wait");
        assert_eq!(finished.stdout.text, "b\n", "{}", world.backend);
    });
}

/// U232, U322, U324, B075: a withdrawal before, and one in the middle; our own process is not touched.
#[test]
fn a_withdrawal_ends_the_command_and_nothing_else() {
    everywhere(|world| {
        let spec = world.executor.resolve(&Request::new("echo begun; exec sleep 60")).unwrap();
        let cancel = Cancel::new();
        cancel.cancel();
        let refused = world.executor.run(&spec, &cancel).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Cancelled);
        let (cancel, other) = (Cancel::new(), Cancel::new());
        std::thread::scope(|scope| {
            let run = scope.spawn(|| world.executor.run(&spec, &cancel).unwrap());
            wait_for("a start", || {
                world
                    .executor
                    .running(&SessionId::new("s"))
                    .iter()
                    .any(|it| it.observe(pinfold_providers::Output::Stdout, 0).next == 6)
            });
            cancel.cancel();
            let finished = run.join().unwrap();
            assert!(finished.aborted() && !finished.timed_out(), "{}", world.backend);
            assert_eq!(finished.stdout.text, "begun\n");
        });
        assert!(!other.is_cancelled());
    });
}

/// U343: a limit that passes before the start starts nothing. The probes alone take longer than this.
#[test]
fn a_limit_that_passes_during_the_preparation_starts_nothing() {
    for backend in CONFINED {
        let world = World::new(backend);
        let begun = Instant::now();
        let finished = world.request(&Request { timeout_ms: Some(1.0), ..Request::new("touch ran") });
        assert_eq!(finished.outcome.ending(), &Ending::TimedOut { after_ms: 1, then: None }, "{backend}");
        assert_eq!((finished.exit_code(), finished.sandbox.denied), (None, false));
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(world.printed("ls"), "", "{backend}: nothing may have run");
    }
}

/// U217, U218, U226, U376, and that a refusal is read from what the command itself says.
#[test]
fn a_refusal_is_told_and_rendered() {
    for backend in CONFINED {
        let world = World::new(backend);
        let target = world.path("out/x");
        let denied = world.run(&format!("echo before; touch {}", target.display()));
        assert!(denied.sandbox.denied && !target.exists(), "{backend}: {denied:?}");
        assert_eq!(denied.outcome.verdict(), Verdict::Denied);
        let text = render_finished(&denied, Some(Subject::Command));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..2], ["before", "[stderr]"]);
        assert_eq!(lines[lines.len() - 3], "[sandbox: file access denied under workspace-write mode]");
        assert_eq!(lines[lines.len() - 1], "[exit code: 1]");
        // U218: a command that coped has not failed.
        assert!(!world.run(&format!("touch {} || true", target.display())).sandbox.denied);
        // W19: words of the runner's, printed by a command, are words.
        let forged = world.run("echo 'pinfold-run: bwrap: failed' >&2; exit 125");
        assert!(!forged.sandbox.runner_failed && forged.exit_code() == Some(125), "{backend}");
    }
    // The control: without walls the same act succeeds.
    let world = World::new(Backend::Unconfined);
    assert_eq!(world.run(&format!("touch {}", world.path("out/x").display())).exit_code(), Some(0));
    assert!(world.path("out/x").exists());
}

/// U004, U336, U346: full access is said, and asks no provider for walls.
#[test]
fn full_access_says_so() {
    let world = World::new(Backend::Namespace);
    let request = Request { policy: Some(world.policy(SandboxMode::DangerFullAccess)), ..Request::new("echo $0") };
    let spec = world.executor.resolve(&request).unwrap();
    assert_eq!(spec.argv, ["bash", "-c", "echo $0"].map(std::ffi::OsString::from));
    // The world's call asks for a mechanism, which has no meaning there: the provider's refusal passes through.
    let refused = world.executor.run(&spec, &Cancel::new()).unwrap_err();
    assert!(matches!(refused, ExecutorError::Sandbox(SandboxError::UnsupportedPolicy { .. })), "{refused}");
    let world = World::new(Backend::Unconfined);
    let finished = world.run("echo $0");
    assert_eq!(finished.sandbox.mode, SandboxMode::DangerFullAccess);
    assert_eq!((finished.sandbox.enforcement, finished.sandbox.denied), (None, false));
    let notes = &finished.outcome.report().unwrap().facts().notes;
    assert!(notes.iter().any(|note| note.contains("Nothing is confined")), "{notes:?}");
}

/// U340, U357, W20: what the provider refuses passes through, and a bad directory is a bad directory.
#[test]
fn refusals_of_the_provider_pass_through_unchanged() {
    everywhere(|world| {
        let missing = Request { workdir: Some("no/such".into()), ..Request::new("true") };
        let spec = world.executor.resolve(&missing).unwrap();
        let error = world.executor.run(&spec, &Cancel::new()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::PreparationFailed, "{}: {error}", world.backend);
        assert!(error.to_string().contains("no/such"), "{error}");
        // W20: and a missing program is a missing program.
        let mut request = Request::new("true");
        request.env = vec![("PATH".into(), Some("/nonexistent".into()))];
        let finished = world.request(&request);
        assert!(!finished.sandbox.runner_failed);
        let Ending::NotStarted { code, .. } = finished.outcome.ending() else {
            panic!("{}: {finished:?}", world.backend)
        };
        assert_eq!(*code, ErrorCode::CommandNotFound, "{}", world.backend);
    });
    let world = World::with(Backend::Namespace, |base, config| config.policy.workspace_root = base.join("none"));
    let spec = world.executor.resolve(&Request::new("true")).unwrap();
    let error = world.executor.run(&spec, &Cancel::new()).unwrap_err();
    assert!(matches!(error, ExecutorError::Sandbox(SandboxError::InvalidRoot { .. })), "{error}");
}

/// U370, W22: `link/..` is the parent of what the link leads to.
#[test]
fn a_working_directory_is_what_the_file_system_says() {
    everywhere(|world| {
        std::fs::create_dir_all(world.path("ws/real/deep")).unwrap();
        std::os::unix::fs::symlink("real/deep", world.path("ws/link")).unwrap();
        let finished = world.request(&Request { workdir: Some("link/..".into()), ..Request::new("pwd -P") });
        assert_eq!(finished.stdout.text.trim_end(), world.path("ws/real").to_str().unwrap(), "{}", world.backend);
    });
}

/// U250, U338, U347–U349: two calls at once under different policies; each has its own facts.
#[test]
fn calls_at_once_do_not_mix() {
    for backend in CONFINED {
        let world = World::new(backend);
        std::thread::scope(|scope| {
            let calls: Vec<_> = [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite]
                .into_iter()
                .cycle()
                .take(6)
                .enumerate()
                .map(|(number, mode)| {
                    let request =
                        Request { policy: Some(world.policy(mode)), ..Request::new(format!("touch f{number}")) };
                    (
                        mode,
                        scope.spawn({
                            let world = &world;
                            move || world.request(&request)
                        }),
                    )
                })
                .collect();
            for (mode, call) in calls {
                let finished = call.join().unwrap();
                assert_eq!(finished.sandbox.mode, mode);
                assert_eq!(finished.sandbox.denied, mode == SandboxMode::ReadOnly, "{backend}: {finished:?}");
            }
        });
    }
}

/// B086: signals are default inside, whatever our runtime has made of them.
#[test]
fn a_broken_pipe_ends_a_writer() {
    everywhere(|world| {
        let text =
            world.printed("yes | head -1; echo ${PIPESTATUS[*]}; grep -E 'SigIgn|SigBlk' /proc/self/status | cut -f2");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..2], ["y", "141 0"], "{}", world.backend);
        // Without walls only SIGPIPE is ours to put right: the rest is as whoever started us left it.
        let of_us = if world.backend == Backend::Unconfined { 1 << 12 } else { u64::MAX };
        assert_eq!(lines.len(), 4);
        for set in &lines[2..] {
            assert_eq!(u64::from_str_radix(set, 16).unwrap() & of_us, 0, "{}: {text}", world.backend);
        }
    });
}

/// U356: a text is one argument, byte for byte.
#[test]
fn a_text_arrives_as_it_is() {
    everywhere(|world| {
        assert_eq!(
            world.printed("printf '%s' \"it's \\\"x\\\" $((1+1)) \u{e4}\n\ttab\""),
            "it's \"x\" 2 \u{e4}\n\ttab"
        );
    });
}

/// The report says that the enforcement is as good as the backend.
#[test]
fn enforcement_is_stamped() {
    let world = World::new(Backend::Namespace);
    assert_ne!(world.run("true").sandbox.enforcement, None::<Enforcement>);
}
