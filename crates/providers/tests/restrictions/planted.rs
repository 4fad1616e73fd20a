//! What an earlier command leaves behind so that the next call closes less than it says.

use super::*;

fn cat(path: &Path) -> String {
    format!("cat '{}' 2>/dev/null || echo refused", path.display())
}

impl World {
    fn planted(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "secret").unwrap();
        path
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// A directory of the workspace that nobody may search hides what it holds from whoever puts up walls, root included, until
/// the command opens it again.
#[test]
fn a_directory_that_a_command_closed_is_closed_for_the_next_one() {
    let world = World::new();
    let key = world.planted("ws/d/e/key.pem");
    let pattern = Restrictions { denied_read_patterns: vec![world.path("ws/**/*.pem")], ..Restrictions::default() };
    let open = format!("chmod 700 d d/e 2>/dev/null; {}", cat(&key));
    for (closed, mode) in [("ws/d", 0), ("ws/d/e", 0), ("ws/d", 0o400), ("ws/d/e", 0o300)] {
        for denied in [denying(std::slice::from_ref(&key)), denying(&[world.path("ws/d/e")]), pattern.clone()] {
            for backend in WITH_MOUNTS {
                let again = || world.mode(closed, mode);
                again();
                assert_eq!(world.control(&open), "secret", "{closed}");
                again();
                assert_eq!(world.say(backend, &Restrictions::default(), &open), "secret", "{backend} {closed}");
                // A command can close it where a path in it is denied.
                let name = world.path(closed);
                let close = format!("chmod {mode:o} '{}' && echo done", name.display());
                if world.say(backend, &denied, &close) != "done" {
                    again();
                }
                assert_eq!(world.say(backend, &denied, &open), "refused", "{backend} {closed} {mode:o} {denied:?}");
                // Nor does a wish leave it open.
                let mut options = world.options(backend, &denied);
                options.reads = Insistence::WherePossible;
                let policy = world.policy(SandboxMode::WorkspaceWrite);
                let result = world.provider.run(&shell(&open), &policy, &options, &capture(), &Cancel::new()).unwrap();
                assert_eq!(text(&result.stdout.bytes), "refused", "{backend} {closed} {mode:o}");
                world.mode("ws/d", 0o700);
                world.mode("ws/d/e", 0o700);
            }
        }
    }
    // What the working directory lies in cannot be closed, so the call is refused, also for a wish.
    world.mode("ws/d", 0o600);
    let mut options = world.options(Backend::Namespace, &denying(std::slice::from_ref(&key)));
    options.reads = Insistence::WherePossible;
    options.cwd = Some(world.path("ws/d/e"));
    let policy = world.policy(SandboxMode::WorkspaceWrite);
    let error = world.provider.run(&shell("true"), &policy, &options, &capture(), &Cancel::new()).unwrap_err();
    world.mode("ws/d", 0o700);
    assert!(
        matches!(error.code(), ErrorCode::InvalidPolicy | ErrorCode::PreparationFailed),
        "an ordinary user cannot even enter it: {error}"
    );
}

/// A command replaces the link, and the next call denies what it finds there.
#[test]
fn what_is_denied_by_a_link_in_a_root_is_not_promised() {
    let world = World::new();
    world.planted("out/vault/key");
    symlink(world.path("out/vault"), world.path("ws/secrets")).unwrap();
    let by_link = denying(&[world.path("ws/secrets")]);
    let itself = denying(&[world.path("out/vault")]);
    for backend in WITH_MOUNTS {
        let report = |denied: &Restrictions| {
            let result = world.try_run(backend, denied, "true").unwrap();
            result.outcome.report().unwrap().lookup(Guarantee::ReadDeny).unwrap().clone()
        };
        assert_eq!(report(&itself).strength, Strength::Enforced, "{backend}");
        let line = report(&by_link);
        assert_eq!(line.strength, Strength::Partial, "{backend}: {line:?}");
        assert!(line.notes.iter().any(|note| note.contains("can replace") && note.contains("ws/secrets")), "{line:?}");
        // It is closed for this call all the same.
        let key = world.path("out/vault/key");
        assert_eq!(world.say(backend, &by_link, &cat(&key)), "refused", "{backend}");
        for (denied, kept) in [(&itself, true), (&by_link, false)] {
            let mut options = world.options(backend, denied);
            options.require = vec![Guarantee::ReadDeny];
            let policy = world.policy(SandboxMode::WorkspaceWrite);
            let result = world.provider.run(&shell("true"), &policy, &options, &capture(), &Cancel::new());
            assert_eq!(result.as_ref().err().map(SandboxError::code), (!kept).then_some(ErrorCode::GuaranteeUnmet));
        }
    }
}

/// A name that stays readable, planted as a link to what does not.
#[test]
fn a_kept_name_shows_no_more_than_what_is_kept() {
    let world = World::new();
    for name in ["key", "real.pub", "d.pub/x"] {
        world.planted(&format!("out/.ssh/{name}"));
    }
    for (target, name) in
        [("key", "x.pub"), ("real.pub", "y.pub"), ("..", "z.pub"), ("d.pub/x", "w.pub"), ("d.pub/../key", "v.pub")]
    {
        symlink(target, world.path(&format!("out/.ssh/{name}"))).unwrap();
    }
    let allowed = ["real.pub", "d.pub", "x.pub", "y.pub", "z.pub", "w.pub", "v.pub"];
    let restrictions = Restrictions {
        denied_reads: vec![world.path("out/.ssh")],
        allowed_reads: allowed.map(|name| world.path(&format!("out/.ssh/{name}"))).to_vec(),
        ..Restrictions::default()
    };
    for backend in WITH_MOUNTS {
        for (name, expected) in [
            ("key", "refused"),
            ("real.pub", "secret"),
            ("d.pub/x", "secret"),
            ("x.pub", "refused"),
            ("v.pub", "refused"),
            ("z.pub/.ssh/key", "refused"),
            ("y.pub", "secret"),
            ("w.pub", "secret"),
        ] {
            let path = world.path(&format!("out/.ssh/{name}"));
            assert_eq!(world.control(&cat(&path)), "secret", "{name}");
            assert_eq!(world.say(backend, &restrictions, &cat(&path)), expected, "{backend} {name}");
        }
    }
}

/// Names that stay readable without number: each is a mount and a descriptor, and a launcher that runs out of them must not
/// lead to a mechanism that hides nothing.
#[test]
fn thousands_of_names_do_not_open_what_is_closed() {
    let world = World::new();
    let key = world.planted("out/.ssh/key");
    let allowed: Vec<PathBuf> = (0..2000).map(|number| world.planted(&format!("out/.ssh/{number}.pub"))).collect();
    let restrictions = Restrictions {
        denied_reads: vec![world.path("out/.ssh")],
        allowed_reads: allowed.clone(),
        ..Restrictions::default()
    };
    assert_eq!(world.control(&cat(&key)), "secret");
    let policy = world.policy(SandboxMode::ReadOnly);
    for chain in [None, Some(Backend::Bwrap)] {
        let mut options = world.options(Backend::Namespace, &restrictions);
        (options.backend, options.reads) = (chain, Insistence::WherePossible);
        let result = world.provider.run(&shell(&cat(&key)), &policy, &options, &capture(), &Cancel::new()).unwrap();
        assert_eq!(text(&result.stdout.bytes), "refused", "{result:?}");
        let line = result.outcome.report().unwrap().lookup(Guarantee::ReadDeny).unwrap();
        assert!(line.notes.iter().any(|note| note.contains("although it was to stay readable")), "{line:?}");
    }
    // Paths without number are a refusal, whatever comes behind in the chain.
    let many = denying(&allowed);
    let mut options = world.options(Backend::Namespace, &many);
    (options.backend, options.reads) = (None, Insistence::WherePossible);
    let run =
        |options: &CallOptions| world.provider.run(&shell("echo ran"), &policy, options, &capture(), &Cancel::new());
    let error = run(&options).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PreparationFailed, "{error}");
    assert!(error.to_string().contains("2000 paths"), "{error}");
    options.restrictions = denying(&allowed[..900]);
    assert!(run(&options).unwrap().outcome.ran());
}

/// A socket in a writable root may be somebody else's.
#[test]
fn a_socket_in_a_root_that_was_bound_before_is_named() {
    let world = World::new();
    let socket = world.path("ws/outside.sock");
    let notes = |backend| {
        let result = world.try_run(backend, &closed(&[]), "true").unwrap();
        result.outcome.report().unwrap().lookup(Guarantee::SocketsUnix).unwrap().notes.join("\n")
    };
    for backend in WITH_MOUNTS {
        assert!(!notes(backend).contains("outside.sock"), "{backend}");
    }
    let _held = UnixListener::bind(&socket).unwrap();
    for backend in WITH_MOUNTS {
        let notes = notes(backend);
        assert!(notes.contains("Of a process outside") && notes.contains("outside.sock"), "{backend}: {notes}");
    }
}

/// A mechanism that hides what is denied works on this host and fails at this call. What comes behind it in the chain hides
/// nothing, and a wish is no reason to use it.
#[test]
fn a_failure_at_hiding_is_followed_by_nothing_that_hides_nothing() {
    let key = |world: &World| world.path("out/.ssh/key");
    let run = |chain: &[Backend], fails: bool| {
        let world = World::with_chain(Some(chain.to_vec()));
        world.planted("out/.ssh/key");
        let kept = world.planted("out/.ssh/config");
        let restrictions = Restrictions {
            denied_reads: vec![world.path("out/.ssh")],
            allowed_reads: vec![kept.clone()],
            ..Restrictions::default()
        };
        let options = CallOptions {
            cwd: Some(world.path("ws")),
            reads: Insistence::WherePossible,
            restrictions,
            ..CallOptions::default()
        };
        let mut how = capture();
        how.before_start = fails.then(|| -> pinfold_providers::BeforeStart {
            std::sync::Arc::new(move |_| {
                // What is to stay readable is gone when the launcher looks for it.
                let _ = std::fs::remove_file(&kept);
                true
            })
        });
        let policy = world.policy(SandboxMode::WorkspaceWrite);
        world.provider.run(&shell(&cat(&key(&world))), &policy, &options, &how, &Cancel::new()).unwrap()
    };
    assert_eq!(text(&run(&[Backend::Landlock], false).stdout.bytes), "secret", "nothing here can hide it");
    assert_eq!(text(&run(&[Backend::Namespace, Backend::Landlock], false).stdout.bytes), "refused");
    let result = run(&[Backend::Namespace, Backend::Landlock], true);
    assert!(!result.outcome.ran() && result.stdout.bytes.is_empty(), "{result:?}");
}
