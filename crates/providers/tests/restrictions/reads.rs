//! Denied reads (weakness W33): patterns (case B061), what stays readable, what does not exist yet, and ways around.

use super::*;

fn matching(patterns: &[PathBuf]) -> Restrictions {
    Restrictions { denied_read_patterns: patterns.to_vec(), ..Restrictions::default() }
}

fn cat(path: &Path) -> String {
    format!("cat '{}' 2>/dev/null || echo refused", path.display())
}

impl World {
    fn file(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "secret").unwrap();
        path
    }

    /// What a report says of denied reads: how strongly, and every note.
    fn read_deny(&self, backend: Backend, restrictions: &Restrictions) -> (Strength, String) {
        let result = self.try_run(backend, restrictions, "true").unwrap();
        let line = result.outcome.report().unwrap().lookup(Guarantee::ReadDeny).unwrap().clone();
        (line.strength, line.notes.join("\n"))
    }
}

#[test]
fn a_pattern_closes_what_matches_and_a_subtree_what_comes_later() {
    let world = World::new();
    let (key, deep, other) = (world.file("out/a.pem"), world.file("ws/d/e/b.pem"), world.file("out/a.txt"));
    let kept = world.file("out/tree/x/y");
    let wild = matching(&[world.path("out/*.pem"), world.path("ws/**/*.pem")]);
    let tree = matching(&[world.path("out/tree/**")]);
    for backend in WITH_MOUNTS {
        for path in [&key, &deep, &other, &kept] {
            assert_eq!(world.say(backend, &Restrictions::default(), &cat(path)), "secret", "{backend}");
        }
        assert_eq!(world.say(backend, &wild, &cat(&key)), "refused", "{backend}");
        assert_eq!(world.say(backend, &wild, &cat(&deep)), "refused", "{backend}");
        assert_eq!(world.say(backend, &wild, &cat(&other)), "secret", "{backend}");
        // What leads to a match stays where it is, so that the next call finds it at the same name.
        for act in ["mv d f", "mv d/e d/f", "mv d/e/b.pem d/e/c", "ln d/e/b.pem d/c", "rm -rf d/e/b.pem"] {
            let script = format!("{act} 2>/dev/null && echo done || echo refused");
            assert_eq!(world.say(backend, &wild, &script), "refused", "{backend} {act}");
        }
        let (strength, notes) = world.read_deny(backend, &wild);
        assert_eq!(strength, Strength::Partial, "{backend}: {notes}");
        assert!(notes.contains("Matched at the start only") && notes.contains("*.pem"), "{notes}");

        assert_eq!(world.say(backend, &tree, &cat(&kept)), "refused", "{backend}");
        let (strength, notes) = world.read_deny(backend, &tree);
        assert_eq!(strength, Strength::Enforced, "{backend}: {notes}");
        // Nothing is left on the host where walls stood.
        assert_eq!(std::fs::read_to_string(&deep).unwrap(), "secret");
    }
    // The command can make a new match in its own place and read it; it holds nothing that was secret.
    let script = "echo x > ws.pem && cat ws.pem";
    assert_eq!(world.say(Backend::Namespace, &wild, script), "x");
}

#[test]
fn a_link_that_matches_a_pattern_hides_nothing_elsewhere() {
    let world = World::new();
    let elsewhere = world.file("out/tool");
    symlink(&elsewhere, world.path("ws/evil.pem")).unwrap();
    let wild = matching(&[world.path("ws/*.pem")]);
    for backend in WITH_MOUNTS {
        assert_eq!(world.say(backend, &wild, &cat(&elsewhere)), "secret", "{backend}");
        let (strength, notes) = world.read_deny(backend, &wild);
        assert_eq!(strength, Strength::Partial);
        assert!(notes.contains("leads elsewhere was not followed") && notes.contains("evil.pem"), "{notes}");
    }
}

#[test]
fn a_pattern_that_matches_what_a_command_needs_or_too_much_is_refused() {
    let world = World::new();
    let error = world.try_run(Backend::Namespace, &matching(&[world.path("w*")]), "true").unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidPolicy);
    assert!(error.to_string().contains("would hide the workspace"), "{error}");
    std::fs::create_dir(world.path("out/many")).unwrap();
    for number in 0..501 {
        std::fs::write(world.path(&format!("out/many/{number}")), "").unwrap();
    }
    let error = world.try_run(Backend::Namespace, &matching(&[world.path("out/many/*")]), "true").unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidPolicy);
    assert!(error.to_string().contains("matches more than 500 paths"), "{error}");
    assert!(world.try_run(Backend::Namespace, &matching(&[world.path("out/many/4*")]), "true").is_ok());
}

#[test]
fn what_is_allowed_in_a_denied_directory_stays_readable_and_nothing_else() {
    let world = World::new();
    for name in ["key", "config", "config.d/x", "hosts", "sub/deep/y"] {
        world.file(&format!("out/.ssh/{name}"));
    }
    let target = world.file("out/dotfiles/config");
    std::fs::remove_file(world.path("out/.ssh/config")).unwrap();
    symlink(&target, world.path("out/.ssh/config")).unwrap();
    let other = world.file("out/other-secret");
    symlink(&other, world.path("out/.ssh/trick")).unwrap();
    let allowed = ["config", "config.d", "trick", "none", "sub/deep/y"];
    let restrictions = Restrictions {
        denied_reads: vec![world.path("out/.ssh"), other],
        allowed_reads: allowed.iter().map(|name| world.path(&format!("out/.ssh/{name}"))).collect(),
        ..Restrictions::default()
    };
    for backend in WITH_MOUNTS {
        for (name, expected) in [
            ("key", "refused"),
            ("hosts", "refused"),
            ("config", "secret"),
            ("config.d/x", "secret"),
            ("sub/deep/y", "secret"),
            // It leads to something that is denied on its own.
            ("trick", "refused"),
        ] {
            let path = world.path(&format!("out/.ssh/{name}"));
            assert_eq!(world.control(&cat(&path)), "secret", "{name}");
            assert_eq!(world.say(backend, &restrictions, &cat(&path)), expected, "{backend} {name}");
        }
        let listed = world.say(backend, &restrictions, "ls -A ../out/.ssh");
        assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), ["config", "config.d", "sub"], "{backend}");
        let write = "echo x >> ../out/.ssh/config; echo x > ../out/.ssh/new";
        assert_eq!(world.say(backend, &restrictions, &format!("({write}) 2>/dev/null || echo refused")), "refused");
        let (_, notes) = world.read_deny(backend, &restrictions);
        assert!(notes.contains("Readable in them all the same"), "{notes}");
    }
    // Below a writable root the whole directory is closed, and the report says so.
    world.file("ws/.ssh/key");
    let inside = world.file("ws/.ssh/config");
    let restrictions = Restrictions {
        denied_reads: vec![world.path("ws/.ssh")],
        allowed_reads: vec![inside.clone()],
        ..Restrictions::default()
    };
    for backend in WITH_MOUNTS {
        assert_eq!(world.say(backend, &restrictions, &cat(&inside)), "refused", "{backend}");
        let (_, notes) = world.read_deny(backend, &restrictions);
        assert!(notes.contains("although it was to stay readable"), "{notes}");
    }
}

/// Case B117: no empty file or directory is left where nothing was.
#[test]
fn a_denied_path_that_does_not_exist_is_told_by_who_could_make_it() {
    let world = World::new();
    let denied = denying(&[world.path("out/none"), world.path("ws/none/key")]);
    for backend in WITH_MOUNTS {
        let (strength, notes) = world.read_deny(backend, &denied);
        assert_eq!(strength, Strength::Partial, "{backend}");
        assert!(notes.contains("the command itself can make it: ") && notes.contains("ws/none/key"), "{notes}");
        assert!(notes.contains("Can be read once it exists: "), "{notes}");
        assert!(!world.path("out/none").exists() && !world.path("ws/none").exists(), "{backend}: litter");
    }
}

#[test]
fn another_name_of_a_file_in_a_denied_directory_is_found() {
    let world = World::new();
    let key = world.file("out/dir/deep/key");
    let denied = denying(&[world.path("out/dir")]);
    assert_eq!(world.read_deny(Backend::Namespace, &denied).0, Strength::Enforced);
    std::fs::hard_link(&key, world.path("out/alias")).unwrap();
    for backend in WITH_MOUNTS {
        let (strength, notes) = world.read_deny(backend, &denied);
        assert_eq!(strength, Strength::Partial, "{backend}");
        assert!(notes.contains("a hard link") && notes.contains("dir/deep/key"), "{notes}");
    }
}

/// Ways that do not open the path by its plain name: a descriptor that only names it, its directory's descriptor, and the
/// root of this process.
#[test]
fn descriptors_that_only_name_a_denied_path_open_nothing() {
    let world = World::new();
    let key = world.file("out/key");
    let inner = world.file("out/dir/key");
    for (path, denied) in [(&key, &key), (&inner, &inner.parent().unwrap().to_owned())] {
        let script = format!(
            "python3 -c \"\nimport os\np = '{path}'\n\
             def named():\n  f = os.open(p, os.O_PATH)\n  return open('/proc/self/fd/%d' % f).read()\n\
             def beside():\n  d = os.open(os.path.dirname(p), os.O_PATH)\n  return os.fdopen(os.open(os.path.basename(p), \
             os.O_RDONLY, dir_fd=d)).read()\n\
             def rooted():\n  return open('/proc/self/root' + p).read()\n\
             for act in (named, beside, rooted):\n  try:\n    print(act())\n  except OSError as error:\n    \
             print(type(error).__name__)\n\"",
            path = path.display()
        );
        assert_eq!(world.control(&script), "secret\nsecret\nsecret");
        for backend in WITH_MOUNTS {
            let said = world.say(backend, &denying(std::slice::from_ref(denied)), &script);
            assert!(!said.contains("secret"), "{backend}: {said}");
            assert_eq!(said.matches("Error").count(), 3, "{backend}: {said}");
        }
    }
}

#[test]
fn landlock_leaves_reads_open_only_if_nobody_insists() {
    let world = World::new();
    let key = world.file("out/key");
    let restrictions = denying(std::slice::from_ref(&key));
    let mut options = world.options(Backend::Landlock, &restrictions);
    let policy = world.policy(SandboxMode::WorkspaceWrite);
    let run =
        |options: &CallOptions| world.provider.run(&shell(&cat(&key)), &policy, options, &capture(), &Cancel::new());
    assert_eq!(run(&options).unwrap_err().code(), ErrorCode::UnsupportedPolicy);
    options.reads = Insistence::WherePossible;
    let result = run(&options).unwrap();
    assert_eq!(text(&result.stdout.bytes), "secret");
    let report = result.outcome.report().unwrap();
    assert_eq!(report.strength(Guarantee::ReadDeny), Strength::None);
    assert!(report.facts().notes.iter().any(|note| note.contains("closed for reading where possible")), "{report:?}");
}
