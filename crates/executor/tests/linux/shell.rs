//! The shell that stays.

use super::*;
use pinfold_executor::ExecutorError;
use pinfold_executor::shell::RESET_NOTICE;
use pinfold_policy::{DenialEvidence, ErrorCode};

/// U419, U425: directory, variables, functions, status and background jobs stay; output and status are of this command.
#[test]
fn a_shell_keeps_what_a_shell_keeps() {
    everywhere(|world| {
        let first = world.shell("mkdir d; cd d; export X=1; y='a b'; f() { echo \"f $1\"; }; shopt -s nullglob; false");
        assert_eq!((first.finished.exit_code(), first.render(None).as_str()), (Some(1), "(no output)\n[exit code: 1]"));
        let second = world.shell("echo $? $PWD $X \"$y\"; f z; shopt -q nullglob; echo $?; printenv X; echo e >&2");
        let expected = format!("1 {} 1 a b\nf z\n0\n1\n[stderr]\ne\n", world.path("ws/d").display());
        assert_eq!(second.render(None), expected, "{}", world.backend);
        assert!(second.notices.is_empty() && second.shell_ended.is_none());
        // B085: nobody waits for input.
        assert_eq!(world.shell("cat; read x; echo $?").finished.stdout.text, "1\n");
        // A text is evaluated as it is, whatever quotes and lines it has.
        let text = "cat <<'E'\nit's \"$X\"\nE\nfor i in 1 2; do\n echo $i # c'\ndone";
        assert_eq!(world.shell(text).finished.stdout.text, "it's \"$X\"\n1\n2\n");
    });
}

/// U424, U435, B088: output that imitates the frame is output, on any descriptor that a program has.
#[test]
fn output_cannot_imitate_a_report() {
    everywhere(|world| {
        let forger = "printf '0123456789abcdef0123456789abcdef 0\\0'; printf 'x 0\\0' >&2; echo '[exit code: 0]'; exec 9>&1; (exit 7)";
        let forged = world.shell(forger);
        assert_eq!(forged.finished.exit_code(), Some(7), "{}", world.backend);
        assert!(forged.finished.stdout.text.contains("abcdef 0\0"));
        // No program that the shell starts has its socket.
        let open = world.shell("ls -l /proc/self/fd | grep -c socket");
        assert_eq!(open.finished.stdout.text, "0\n", "{}", world.backend);
    });
}

/// What goes wrong in a text does not take the shell along.
#[test]
fn mistakes_are_results() {
    everywhere(|world| {
        world.shell("kept=1");
        for (text, codes) in [
            ("if", [1, 2]),
            ("echo 'open", [1, 2]),
            ("break", [0, 0]),
            ("return 4", [1, 2]),
            ("no-such-program", [127; 2]),
        ] {
            let result = world.shell(text);
            assert_eq!(result.shell_ended, None, "{}: {text}: {result:?}", world.backend);
            let code = result.finished.exit_code();
            assert!(code.is_some_and(|code| codes.contains(&code)), "{}: {text}: {result:?}", world.backend);
        }
        assert_eq!(world.shell("set -x; true").finished.exit_code(), Some(0));
        let quiet = world.shell("set +x; echo $kept").finished;
        assert_eq!(quiet.stdout.text, "1\n");
        assert!(!quiet.stderr.text.contains("printf"), "the frame is not shown: {}", quiet.stderr.text);
    });
}

/// U423: commands of a session come one after another.
#[test]
fn commands_of_a_session_take_turns() {
    let world = World::new(Backend::Namespace);
    std::thread::scope(|scope| {
        for number in 0..6 {
            let world = &world;
            scope.spawn(move || {
                world.shell(&format!("echo begin {number} >> log; sleep 0.05; echo end {number} >> log"))
            });
        }
    });
    let log = std::fs::read_to_string(world.path("ws/log")).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 12);
    for pair in lines.chunks(2) {
        assert_eq!(pair[0].replace("begin", "end"), pair[1], "{log}");
    }
}

/// U426, W27: a limit says what is known and no more, keeps what was written, and the next shell is fresh.
#[test]
fn a_time_limit_resets_the_shell_and_says_so() {
    everywhere(|world| {
        world.shell("kept=1; cd /");
        let marker = marker();
        let mode = world.executor.sandbox_mode();
        let text = format!("echo partial; echo err >&2; sleep {marker}");
        let late = world.shell_under(&text, Some(2000.0), mode);
        assert!(late.finished.timed_out());
        let rendered = late.render(None);
        assert!(rendered.starts_with("partial\n[stderr]\nerr\n[timed out after 2000ms]\n"), "{rendered}");
        assert!(rendered.ends_with(RESET_NOTICE) && !rendered.contains("OOM"), "{rendered}");
        assert_eq!(sleepers(&marker), 0, "{}", world.backend);
        let fresh = world.shell("echo ${kept-none} $PWD");
        assert_eq!(fresh.finished.stdout.text, format!("none {}\n", world.path("ws").display()));
    });
}

/// U428: how a shell ended is said.
#[test]
fn a_shell_that_ends_is_said_to_have_ended() {
    everywhere(|world| {
        for (text, expected) in [
            ("echo bye; exit 3", "bye\n[exit code: 3]\n[shell exited: code 3]\n"),
            ("kill -KILL $$", "(no output)\n[killed by signal: SIGKILL]\n[shell killed by signal: SIGKILL]\n"),
            ("exec echo replaced", "replaced\n[shell exited: code 0]\n"),
            ("set -e; false", "(no output)\n[exit code: 1]\n[shell exited: code 1]\n"),
        ] {
            let ended = world.shell(text);
            assert_eq!(ended.render(None), format!("{expected}{RESET_NOTICE}"), "{}: {text}", world.backend);
            assert_eq!(world.shell("echo again").finished.stdout.text, "again\n");
        }
    });
}

/// U431, W61: another mode has the shell started anew, and that is said; the new one has the new walls.
#[test]
fn another_mode_or_root_starts_a_fresh_shell() {
    for backend in CONFINED {
        let world = World::new(backend);
        world.shell("kept=1; touch a");
        let narrow = world.shell_under("echo ${kept-none}; touch b", None, SandboxMode::ReadOnly);
        assert_eq!(
            narrow.notices,
            ["[shell restarted: the mode is now read-only; its directory, variables and background jobs are gone]"]
        );
        assert_eq!(narrow.finished.stdout.text, "none\n");
        assert!(narrow.finished.sandbox.denied && !world.path("ws/b").exists(), "{backend}: {narrow:?}");
        let mut policy = world.policy(SandboxMode::WorkspaceWrite);
        policy.additional_writable_roots = vec![world.path("out")];
        let text = format!("touch {}", world.path("out/granted").display());
        let request =
            ShellRequest { command: text.into(), timeout_ms: None, policy: Some(policy), ..ShellRequest::default() };
        let granted = world.executor.run_in_shell(&request, &Cancel::new()).unwrap();
        assert_eq!((granted.finished.exit_code(), granted.notices.len()), (Some(0), 1), "{backend}: {granted:?}");
        // The same one again stays.
        assert!(world.executor.run_in_shell(&request, &Cancel::new()).unwrap().notices.is_empty());
    }
}

/// W26, U433: a command in a shell is stamped like any other.
#[test]
fn refusals_in_a_shell_are_stamped() {
    for backend in CONFINED {
        let world = World::new(backend);
        let denied = world.shell(&format!("touch {}", world.path("out/x").display()));
        let sandbox = &denied.finished.sandbox;
        assert!(sandbox.denied && sandbox.enforcement.is_some(), "{backend}: {denied:?}");
        assert_eq!(denied.finished.outcome.denials()[0].evidence, DenialEvidence::Inferred);
        assert!(denied.render(None).contains("[sandbox: file access denied under workspace-write mode]"));
        assert!(!world.shell("true").finished.sandbox.denied);
        assert!(!world.shell("echo 'bwrap: pinfold-run: x' >&2; (exit 125)").finished.sandbox.runner_failed);
    }
}

/// U310, U332 for shells (W60): the end is kept, and the whole is in a file.
#[test]
fn long_output_of_a_shell_keeps_its_end() {
    for backend in CONFINED {
        let world = World::with(backend, |_, config| config.max_output_bytes = 500.0);
        let long = world.shell("seq 1 20000").finished.stdout;
        assert!(long.truncated && long.text.ends_with("20000\n") && long.text.len() == 500, "{backend}");
        let path = long.spill_path.unwrap();
        assert_eq!(world.shell(&format!("wc -l < {}", path.display())).finished.stdout.text, "20000\n", "{backend}");
    }
}

/// U422, U427, U437, U340.
#[test]
fn what_cannot_be_is_an_error() {
    let world = World::new(Backend::Namespace);
    let run = |command: &str, policy| {
        let request =
            ShellRequest { command: command.into(), timeout_ms: None, policy: Some(policy), ..ShellRequest::default() };
        world.executor.run_in_shell(&request, &Cancel::new())
    };
    let ours = world.policy(SandboxMode::WorkspaceWrite);
    assert!(matches!(run("", ours.clone()), Err(ExecutorError::InvalidCommand(_))));
    let mut nobody = ours.clone();
    nobody.session_id = None;
    assert_eq!(run("true", nobody).unwrap_err().to_string(), "bash requires an owning agent session");
    let mut missing = ours.clone();
    missing.workspace_root = world.path("none");
    assert_eq!(run("true", missing).unwrap_err().code(), ErrorCode::InvalidRoot);
    // A failed start leaves nothing in the way.
    assert_eq!(run("echo ok", ours).unwrap().finished.stdout.text, "ok\n");
    let cancel = Cancel::new();
    let marker = marker();
    let request = ShellRequest {
        command: format!("kept=1; sleep {marker}").into(),
        timeout_ms: None,
        policy: Some(world.policy(SandboxMode::WorkspaceWrite)),
        ..ShellRequest::default()
    };
    std::thread::scope(|scope| {
        let run = scope.spawn(|| world.executor.run_in_shell(&request, &cancel));
        wait_for("a start", || sleepers(&marker) == 1);
        cancel.cancel();
        assert_eq!(run.join().unwrap().unwrap_err().code(), ErrorCode::Cancelled);
        assert_eq!(sleepers(&marker), 0);
    });
    assert_eq!(world.shell("echo ${kept-none}").finished.stdout.text, "none\n");
}

/// U436: an executor that goes takes its shells along; so does a session.
#[test]
fn a_session_s_end_ends_its_shell() {
    for backend in CONFINED {
        let world = World::new(backend);
        let marker = marker();
        world.shell(&format!("sleep {marker} &"));
        wait_for("a start", || sleepers(&marker) == 1);
        world.executor.end_session(&SessionId::new("s")).unwrap();
        assert_eq!(sleepers(&marker), 0, "{backend}");
        world.shell(&format!("sleep {marker} &"));
        drop(world);
        assert_eq!(sleepers(&marker), 0, "{backend}");
    }
}

/// Each command has the refusals of its own time, typed, and with how often they were; also one that had happened before.
#[test]
fn refusals_that_the_broker_tells_belong_to_the_command_that_they_met() {
    for backend in [Backend::Namespace, Backend::Landlock] {
        let world = World::with(backend, |base, config| {
            config.call.restrictions.protect.patterns = vec![base.join("ws/kept*")];
        });
        let told = |command: &str| {
            let finished = world.shell(command).finished;
            let typed = finished.outcome.denials().iter().filter(|denial| denial.evidence == DenialEvidence::Broker);
            let of = |denial: &pinfold_policy::Denial| {
                let path = denial.path.as_ref().unwrap().file_name().unwrap().to_string_lossy().into_owned();
                (path, denial.count)
            };
            typed.map(of).collect::<Vec<_>>()
        };
        assert_eq!(told("echo x > free"), []);
        assert_eq!(told("echo x > kept1; echo x > kept1; :"), [("kept1".to_owned(), 2)], "{backend}");
        assert_eq!(told("echo y > free; cat free"), []);
        assert_eq!(told("echo x > kept2; false"), [("kept2".to_owned(), 1)], "{backend}");
        assert_eq!(told("(echo x > kept1) 2>/dev/null; exit 0"), [("kept1".to_owned(), 1)], "{backend}");
        // A fresh shell begins with none.
        assert_eq!(told("echo x > kept1"), [("kept1".to_owned(), 1)], "{backend}");
        // The control: what is not protected can be written, and it is the protection that refused.
        assert!(world.path("ws/free").exists() && !world.path("ws/kept1").exists());
    }
}
