//! Handles of commands in the background.

use super::*;
use pinfold_executor::render::render_read;
use pinfold_policy::escalation::Subject;
use pinfold_providers::Output;

/// U327, U331, B080: reads consume, go on after the end, and the end stays what it was.
#[test]
fn output_is_read_piece_by_piece_and_the_end_stays() {
    everywhere(|world| {
        let process = world.start("echo a; echo e >&2; until test -e go; do sleep 0.01; done; echo b; exit 3");
        let mut text = String::new();
        wait_for("the first words", || {
            text.push_str(&process.read_output().text());
            text.contains("a\n") && text.contains("e\n")
        });
        assert_eq!(process.status(), ProcessStatus::Running);
        assert!(process.finished().is_none() && process.pid().is_some());
        std::fs::write(world.path("ws/go"), "").unwrap();
        let finished = process.done();
        assert_eq!(finished.exit_code(), Some(3), "{}", world.backend);
        let last = process.read_output();
        assert_eq!((last.text().as_str(), last.settled.as_ref()), ("b\n", Some(&finished.sandbox)));
        for _ in 0..2 {
            assert_eq!(process.status(), ProcessStatus::Completed { exit_code: 3 });
            assert_eq!(process.read_output().text(), "");
        }
        assert_eq!(process.detail().as_deref(), Some("exit code: 3"));
        assert!(!process.kill(), "there is nothing to end any more");
        assert_eq!(process.pid(), None);
    });
}

/// U344: observers take nothing away.
#[test]
fn observers_see_the_same() {
    everywhere(|world| {
        let process = world.start("printf 'one\\ntwo\\n'; printf err >&2");
        process.done();
        for _ in 0..2 {
            let seen = process.observe(Output::Stdout, 4);
            assert_eq!(
                (seen.text.as_str(), seen.from, seen.next, seen.lossy, seen.ended),
                ("two\n", 4, 8, false, true)
            );
            assert_eq!(process.observe(Output::Stderr, 0).text, "err");
        }
        assert_eq!(process.read_output().text(), "one\ntwo\n[stderr]\nerr");
        assert_eq!(process.observe(Output::Stdout, 99).text, "");
    });
}

/// U328, U333, B083: killed at once, ended soon, with all that came with it.
#[test]
fn a_kill_ends_everything() {
    for backend in CONFINED {
        let world = World::new(backend);
        let marker = marker();
        let process = world.start(&format!("setsid sleep {marker} & trap '' TERM; echo up; sleep {marker}"));
        wait_for("a start", || sleepers(&marker) == 2);
        assert!(process.kill());
        assert_eq!(process.status(), ProcessStatus::Killed { signal: None });
        let finished = process.done();
        assert!(finished.aborted(), "{backend}: {finished:?}");
        assert_eq!((sleepers(&marker), process.kill()), (0, false), "{backend}");
        assert!(matches!(process.status(), ProcessStatus::Killed { .. }));
        assert_eq!(process.read_output().stdout, "up\n");
    }
}

/// U328: a signal of its own counts as killed too, and is named (U385).
#[test]
fn a_signal_of_its_own_is_a_kill() {
    everywhere(|world| {
        let process = world.start("kill -USR1 $$");
        process.done();
        let signal = pinfold_policy::Signal::from_number(10);
        assert_eq!(process.status(), ProcessStatus::Killed { signal }, "{}", world.backend);
        assert_eq!(process.detail().as_deref(), Some("signal: SIGUSR1"));
    });
}

/// U329, U330, W28: what cannot be started has ended, has failed, and says so in one read.
#[test]
fn a_failed_start_is_a_result_of_its_own() {
    everywhere(|world| {
        let request = Request { workdir: Some("none".into()), ..Request::new("true") };
        let process = world.executor.start(&world.executor.resolve(&request).unwrap()).unwrap();
        let finished = process.done();
        assert!(finished.error.is_some() && finished.exit_code().is_none());
        assert!(matches!(process.status(), ProcessStatus::Failed { .. }), "{}", world.backend);
        let first = process.read_output();
        let note = first.note.as_deref().unwrap();
        assert!(note.starts_with("subprocess failed before reporting an outcome: ") && note.contains("none"), "{note}");
        assert_eq!(process.read_output().note, None);
        // U344: observers see it whenever they look.
        assert_eq!(process.observe(Output::Stderr, 0).note.as_deref(), Some(note));
    });
}

/// U337, U382, W26: a refusal is stamped before the end is seen.
#[test]
fn a_refusal_is_stamped_before_done() {
    for backend in CONFINED {
        let world = World::new(backend);
        let process = world.start(&format!("touch {}", world.path("out/x").display()));
        let finished = process.done();
        assert!(finished.sandbox.denied, "{backend}");
        let text = render_read(&process.read_output(), Some(Subject::Command));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "[stderr]");
        assert_eq!(lines[lines.len() - 2], "[sandbox: file access denied under workspace-write mode]");
        assert!(lines[lines.len() - 1].starts_with("[sandbox: escalation available"));
    }
}

/// U345: a withdrawal in the middle of the preparation starts nothing.
#[test]
fn a_kill_during_the_preparation_starts_nothing() {
    for backend in CONFINED {
        let world = World::new(backend);
        // The first call probes; that takes longer than this.
        let process = world.start("touch ran");
        process.kill();
        let finished = process.done();
        assert!(finished.aborted(), "{backend}: {finished:?}");
        if !finished.outcome.ran() {
            assert!(!world.path("ws/ran").exists());
        }
        assert_eq!(process.read_output().note, None, "what its owner withdrew has not failed");
    }
}

/// U334: the executor takes its commands along. B082: and has a limit.
#[test]
fn an_executor_that_goes_takes_its_commands_along() {
    for backend in CONFINED {
        let world = World::with(backend, |_, config| config.max_processes = 3);
        let marker = marker();
        let processes = [(); 3].map(|()| world.start(&format!("sleep {marker}")));
        wait_for("a start", || sleepers(&marker) == 3);
        let spec = world.executor.resolve(&Request::new("true")).unwrap();
        let refused = world.executor.start(&spec).unwrap_err();
        assert!(refused.to_string().starts_with("3 commands are running already"), "{refused}");
        drop(world);
        assert!(processes.iter().all(|process| process.finished().is_some()), "{backend}");
        assert_eq!(sleepers(&marker), 0, "{backend}");
    }
}

/// A session's end ends what is its own and nothing else.
#[test]
fn a_session_s_end_ends_its_own_commands() {
    let world = World::new(Backend::Namespace);
    let marker = marker();
    let ours = world.start(&format!("sleep {marker}"));
    let mut policy = world.policy(SandboxMode::WorkspaceWrite);
    policy.session_id = Some(SessionId::new("other"));
    let request = Request { policy: Some(policy), ..Request::new("until test -e go; do sleep 0.01; done") };
    let other = world.executor.start(&world.executor.resolve(&request).unwrap()).unwrap();
    wait_for("a start", || sleepers(&marker) == 1);
    world.executor.end_session(&SessionId::new("s")).unwrap();
    assert!(ours.finished().is_some() && other.finished().is_none());
    std::fs::write(world.path("ws/go"), "").unwrap();
    assert_eq!(other.done().exit_code(), Some(0));
}
