//! What is promised, and what an argv holds.

use super::*;

#[test]
// Case W17.
fn what_is_called_full_is_full() {
    use std::os::unix::fs::FileTypeExt as _;
    let world = World::new();
    // Root can open disks for reading, and nobody closes that without mounts.
    let is_disk = |node: std::fs::DirEntry| node.file_type().is_ok_and(|kind| kind.is_block_device());
    let disks = rustix::process::geteuid().is_root() && std::fs::read_dir("/dev").unwrap().flatten().any(is_disk);
    let alone = if disks { Enforcement::Partial } else { Enforcement::Full };
    for (backend, mode, expected) in [
        (Backend::Namespace, ConfinedMode::ReadOnly, Enforcement::Full),
        (Backend::Namespace, ConfinedMode::WorkspaceWrite, Enforcement::Full),
        (Backend::Bwrap, ConfinedMode::ReadOnly, Enforcement::Full),
        // Whether a terminal becomes /dev/console inside is up to the caller.
        (Backend::Bwrap, ConfinedMode::WorkspaceWrite, Enforcement::Partial),
        (Backend::Landlock, ConfinedMode::ReadOnly, alone),
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
        let findings = world.provider.examine(mode, &CallOptions::default());
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
// Case W29.
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
