//! The policy of one call (groups I and T of the reference's statements), and that no layer and no event widens it.

mod scene;

use pinfold_policy::escalation::ApprovalPolicy;
use pinfold_policy::{ConfinedMode, Network, SandboxMode, Sockets, Variables};
use pinfold_session::config::{Layer, Origin, Stated};
use pinfold_session::log::event::By;
use pinfold_session::{Deployment, NewSession, Places, PolicyRequest, PolicyService, Session};
use proptest::prelude::*;
use scene::{Scene, policy_of, service};
use std::path::{Path, PathBuf};

// U243, U246, U247, U248, U251
#[test]
fn the_session_s_mode_outranks_the_configuration_s_and_its_directory_is_the_workspace() {
    let scene = Scene::new();
    let service = service(Deployment::default().mode.value);
    let session = scene.session();
    let policy = policy_of(&service, &session);
    assert_eq!((policy.mode, &policy.workspace_root), (SandboxMode::ReadOnly, &scene.workspace()));
    assert_eq!(policy.session_id.as_ref(), Some(session.id()));
    assert_eq!(service.override_of(&session).unwrap(), None);
    session.set_mode(SandboxMode::WorkspaceWrite, By::User).unwrap();
    assert_eq!(policy_of(&service, &session).mode, SandboxMode::WorkspaceWrite);
    assert_eq!(service.override_of(&session).unwrap(), Some(SandboxMode::WorkspaceWrite));
    let alone = service.resolve(PolicyRequest::default()).unwrap().policy;
    assert_eq!(
        (alone.mode, alone.workspace_root.as_path(), alone.session_id),
        (SandboxMode::ReadOnly, Path::new("/"), None)
    );
}

// U244, U245, U023
#[test]
fn roots_must_be_absolute_and_a_recorded_directory_too() {
    let scene = Scene::new();
    let refused = PolicyService::new(Deployment::default(), Path::new("relative"), None).unwrap_err();
    assert_eq!(refused.code(), "SANDBOX_INVALID_ROOT");
    for cwd in ["relative", "", "/a\0b"] {
        let new = NewSession { cwd: cwd.into(), ..NewSession::default() };
        assert_eq!(scene.store.create(&new).unwrap_err().code(), "SANDBOX_INVALID_ROOT", "{cwd:?}");
    }
    let new = NewSession { cwd: scene.path("none"), ..NewSession::default() };
    assert_eq!(scene.store.create(&new).unwrap_err().code(), "SANDBOX_INVALID_ROOT");
    assert!(scene.store.list().unwrap().is_empty());
}

// U250, U263, U264, U265, W12
#[test]
fn a_registered_directory_is_one_session_s_until_its_own_handle_is_dropped() {
    let scene = Scene::new();
    let service = service(SandboxMode::WorkspaceWrite);
    let (one, other) = (scene.session(), scene.session());
    let extra = |session: &Session| policy_of(&service, session).additional_writable_roots;
    for wrong in ["relative", "/a\0b"] {
        let refused = service.register_writable_root(&one, Path::new(wrong)).unwrap_err();
        assert_eq!(refused.code().as_str(), "SANDBOX_INVALID_ROOT");
    }
    let first = service.register_writable_root(&one, Path::new("/srv/a")).unwrap();
    let same = service.register_writable_root(&one, Path::new("/srv/a")).unwrap();
    let before = policy_of(&service, &one);
    assert_eq!(extra(&one), [PathBuf::from("/srv/a")]);
    assert!(extra(&other).is_empty());
    assert!(service.resolve(PolicyRequest::default()).unwrap().policy.additional_writable_roots.is_empty());
    drop(first);
    assert_eq!(extra(&one), [PathBuf::from("/srv/a")]);
    drop(same);
    assert!(extra(&one).is_empty());
    // What was resolved before keeps what it had; another service, as after a restart, knows nothing of it.
    assert_eq!(before.additional_writable_roots, [PathBuf::from("/srv/a")]);
}

// U031, U263: nothing but what was granted, in the mode that opens it.
#[test]
fn a_granted_directory_opens_itself_alone() {
    let scene = Scene::new();
    let session = scene.session();
    let grant = session.grant_directory(Path::new("/srv/a"), None).unwrap();
    let narrow = policy_of(&service(SandboxMode::ReadOnly), &session);
    assert_eq!(narrow.writable_roots(), [Path::new("/srv/a")]);
    let wide = policy_of(&service(SandboxMode::WorkspaceWrite), &session);
    assert_eq!(wide.writable_roots(), [scene.workspace().as_path(), Path::new("/srv/a")]);
    session.revoke(&grant).unwrap();
    assert_eq!(policy_of(&service(SandboxMode::ReadOnly), &session).confined().unwrap().mode, ConfinedMode::ReadOnly);
    // One whose time has passed is none.
    session.grant_directory(Path::new("/srv/b"), Some(1)).unwrap();
    assert!(policy_of(&service(SandboxMode::ReadOnly), &session).writable_roots().is_empty());
}

// U250: what was taken back between the look and the start does not count; what was given meanwhile does not matter.
#[test]
fn no_call_begins_with_what_was_taken_back() {
    let scene = Scene::new();
    let (service, argv) = (service(SandboxMode::ReadOnly), scene::words(&["true"]));
    let session = scene.session();
    let other = scene.again(&session);
    let resolve = || service.resolve(PolicyRequest { session: Some(&session), approved: None }).unwrap();
    let grant = other.grant_directory(Path::new("/srv/a"), None).unwrap();
    let before = resolve();
    other.grant_directory(Path::new("/srv/b"), None).unwrap();
    // The control.
    assert!(session.begin_call(&argv, &before).is_ok());
    other.revoke(&grant).unwrap();
    assert_eq!(session.begin_call(&argv, &before).unwrap_err().code(), "SESSION_CHANGED");
    let before = resolve();
    other.set_mode(SandboxMode::ReadOnly, By::User).unwrap();
    assert_eq!(session.begin_call(&argv, &before).unwrap_err().code(), "SESSION_CHANGED");
    let before = resolve();
    other.select_preset(&Deployment::default(), "workspace-write").unwrap();
    assert_eq!(session.begin_call(&argv, &before).unwrap_err().code(), "SESSION_CHANGED");
    // One whose time passes meanwhile.
    let soon = pinfold_session::log::now() + 500;
    other.grant_directory(Path::new("/srv/c"), Some(soon)).unwrap();
    let before = resolve();
    assert!(before.policy.additional_writable_roots.contains(&"/srv/c".into()));
    while pinfold_session::log::now() <= soon {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(session.begin_call(&argv, &before).unwrap_err().code(), "SESSION_CHANGED");
    other.end().unwrap();
    assert_eq!(session.begin_call(&argv, &before).unwrap_err().code(), "SESSION_ENDED");
}

// The same as a race: in the log's order, nothing that begins after the revocation has the directory.
#[test]
fn race_a_revoked_grant_is_in_no_call_that_begins_after_it() {
    let scene = Scene::new();
    let (service, argv) = (service(SandboxMode::ReadOnly), scene::words(&["true"]));
    let session = scene.session();
    for round in 0..100 {
        let grant = session.grant_directory(Path::new("/srv/a"), None).unwrap();
        let (one, other) = (scene.again(&session), scene.again(&session));
        let revoking = std::thread::spawn(move || {
            (0..round % 5).for_each(|_| std::thread::yield_now());
            other.revoke(&grant).unwrap();
        });
        let resolved = service.resolve(PolicyRequest { session: Some(&one), approved: None }).unwrap();
        let began = one.begin_call(&argv, &resolved);
        revoking.join().unwrap();
        assert!(began.is_ok() || began.unwrap_err().code() == "SESSION_CHANGED");
    }
    let directory = scene.store.directory(session.id().as_str()).unwrap();
    let (mut revoked, mut begun) = (std::collections::BTreeSet::new(), 0);
    pinfold_session::Log::read_all(&directory, |record| match record.event.kind() {
        "grant/revoked" => drop(revoked.insert(record.event.value()["id"].to_string())),
        "call/began" => {
            begun += 1;
            for grant in record.event.value()["grants"].as_array().into_iter().flatten() {
                assert!(!revoked.contains(&grant.to_string()), "{grant}");
            }
        }
        _ => {}
    })
    .unwrap();
    assert!(revoked.len() == 100 && begun > 0, "{begun}");
}

// What decides lies in no root of a session, whoever holds it.
#[test]
fn a_grant_that_holds_the_log_is_refused() {
    let scene = Scene::new();
    let session = scene.session();
    session.grant_directory(&scene.path("."), None).unwrap();
    let refused = service(SandboxMode::ReadOnly).resolve(PolicyRequest { session: Some(&session), approved: None });
    assert_eq!(refused.unwrap_err().code(), "SANDBOX_INVALID_ROOT");
}

// U553, U556, U561
#[test]
fn selecting_a_preset_records_it_and_only_what_changes() {
    let scene = Scene::new();
    let (session, deployment) = (scene.session(), Deployment::default());
    session.select_preset(&deployment, "workspace-write").unwrap();
    assert_eq!(scene.kinds(&session), ["session/created", "permission/preset", "sandbox/mode"]);
    session.select_preset(&deployment, "workspace-write").unwrap();
    assert_eq!(scene.kinds(&session).len(), 3);
    session.set_mode(SandboxMode::ReadOnly, By::User).unwrap();
    session.select_preset(&deployment, "workspace-write").unwrap();
    assert_eq!(scene.kinds(&session)[4..], ["permission/preset", "sandbox/mode"]);
    session.select_preset(&deployment, "danger-full-access").unwrap();
    assert_eq!(scene.kinds(&session)[6..], ["permission/preset", "sandbox/mode", "approval/policy"]);
    assert_eq!(session.select_preset(&deployment, "auto").unwrap_err().code(), "PRESET_UNKNOWN");
    assert_eq!(scene.kinds(&session).len(), 9);
}

// W24, U573: a change is told once, whoever tells it.
#[test]
fn a_text_is_announced_once_until_it_changes() {
    let scene = Scene::new();
    let session = scene.session();
    assert!(session.announce("a".to_owned()).unwrap().is_some());
    assert!(scene.again(&session).announce("a".to_owned()).unwrap().is_none());
    assert!(session.announce("b".to_owned()).unwrap().is_some());
    assert!(session.announce("a".to_owned()).unwrap().is_some());
}

// W09, B131
#[test]
fn what_decides_is_never_inside_a_writable_root() {
    let scene = Scene::new();
    let state = scene.store.root();
    let mut policy = pinfold_policy::ExecutionPolicy::new(SandboxMode::WorkspaceWrite, scene.workspace());
    assert!(pinfold_session::Store::refuse_open(&policy, &[state]).is_ok());
    for root in [state.to_owned(), state.parent().unwrap().to_owned(), state.join("sessions")] {
        policy.additional_writable_roots = vec![root];
        let refused = pinfold_session::Store::refuse_open(&policy, &[state]).unwrap_err();
        assert_eq!(refused.code().as_str(), "SANDBOX_INVALID_ROOT");
    }
}

/// Places with a user's file, written for the test.
fn places(scene: &Scene, user: &str) -> Places {
    let config_home = scene.path("config");
    std::fs::create_dir_all(config_home.join("pinfold")).unwrap();
    std::fs::write(config_home.join("pinfold/config.toml"), user).unwrap();
    Places { named: None, config_home: Some(config_home), home: Some(scene.path("home")) }
}

// B126, W65: who decided is known, and a project that would widen is an error with its line.
#[test]
fn a_project_tightens_and_an_error_names_file_key_and_line() {
    let scene = Scene::new();
    let places =
        places(&scene, "mode = 'workspace-write'\nwritable = ['/srv/a', '/srv/b']\n[limits]\nmax-processes = 9\n");
    let project = scene.workspace().join("pinfold.toml");
    let load = |text: &str| {
        std::fs::write(&project, text).unwrap();
        places.load(SandboxMode::ReadOnly, Some(&scene.workspace()), None)
    };
    let tight =
        load("mode = 'read-only'\nwritable = ['/srv/b']\nnetwork = 'off'\n[limits]\nmax-processes = 5\n").unwrap();
    assert_eq!((tight.mode.value, tight.network.value), (SandboxMode::ReadOnly, Network::Off));
    assert_eq!(tight.mode.by.to_string(), format!("{}:1", project.display()));
    assert_eq!(tight.writable.len(), 1);
    assert_eq!(tight.limits.max_processes, Some(5));
    for (line, text) in [
        (1, "mode = 'danger-full-access'"),
        (2, "\nwritable = ['/srv/c']"),
        (3, "\n\nbackend = 'landlock'"),
        (1, "allow-sockets = ['/run/s']"),
        (1, "keep-env = ['GH_TOKEN']"),
        (1, "allow-read = ['/x']"),
        (1, "deny-secrets = false"),
        (1, "sockets = 'open'"),
        (1, "workspace = '/'"),
        (2, "[approval]\npolicy = 'allow-listed'"),
        (2, "[approval]\ntimeout = 301"),
        (1, "[[approval.allow]]\ncommand = ['x']\nmode = 'danger-full-access'"),
        (1, "[limits]\nmax-processes = 10"),
        (1, "default-preset = 'danger-full-access'"),
        (1, "[preset.x]\nmode = 'read-only'\napproval = 'ask'"),
    ] {
        let error = load(text).unwrap_err();
        assert_eq!(error.code(), "CONFIG_WIDENS", "{text}: {error}");
        assert!(error.to_string().starts_with(&format!("{}:{line}: key `", project.display())), "{text}: {error}");
    }
}

// W09: what a command does to the project's file later cannot loosen a session that began with it.
#[test]
fn a_session_keeps_the_project_file_that_it_began_with() {
    let scene = Scene::new();
    let places = places(&scene, "mode = 'workspace-write'\n");
    let project = scene.workspace().join("pinfold.toml");
    std::fs::write(&project, "mode = 'read-only'\n").unwrap();
    let session = scene.session();
    std::fs::remove_file(&project).unwrap();
    let load = |at_start| places.load(SandboxMode::ReadOnly, Some(&scene.workspace()), at_start).unwrap().mode.value;
    assert_eq!(load(session.project_at_start()), SandboxMode::ReadOnly);
    assert_eq!(load(None), SandboxMode::WorkspaceWrite);
    std::os::unix::fs::symlink("/etc/passwd", &project).unwrap();
    let error = places.load(SandboxMode::ReadOnly, Some(&scene.workspace()), None).unwrap_err();
    assert!(error.to_string().contains("is a symbolic link"), "{error}");
}

// A link decides as much as the file it leads to.
#[test]
fn a_link_that_others_can_replace_leads_to_no_configuration_and_no_state() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let scene = Scene::new();
    let mut places = places(&scene, "mode = 'workspace-write'\n");
    let open = scene.path("open");
    std::fs::create_dir(&open).unwrap();
    symlink(scene.path("config/pinfold/config.toml"), open.join("link")).unwrap();
    symlink(scene.path(""), open.join("up")).unwrap();
    places.named = Some(open.join("link"));
    for (mode, good) in [(0o755, true), (0o777, false), (0o1777, true)] {
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(mode)).unwrap();
        let loaded = places.load(SandboxMode::ReadOnly, None, None);
        assert_eq!(loaded.is_ok(), good, "{mode:o}: {loaded:?}");
        assert_eq!(pinfold_session::Store::open(&open.join("up/state")).is_ok(), good, "{mode:o}");
    }
}

#[test]
fn a_user_s_file_that_others_can_write_is_refused_and_a_link_to_a_good_one_is_fine() {
    use std::os::unix::fs::PermissionsExt as _;
    let scene = Scene::new();
    let mut places = places(&scene, "mode = 'workspace-write'\n");
    let file = scene.path("config/pinfold/config.toml");
    for (mode, good) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false)] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(places.load(SandboxMode::ReadOnly, None, None).is_ok(), good, "{mode:o}");
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&file, scene.path("link")).unwrap();
    places.named = Some(scene.path("link"));
    assert!(places.load(SandboxMode::ReadOnly, None, None).is_ok());
    for named in ["none", "."] {
        places.named = Some(scene.path(named));
        assert_eq!(places.load(SandboxMode::ReadOnly, None, None).unwrap_err().code(), "CONFIG_INVALID");
    }
    places.named = Some("relative".into());
    assert!(places.load(SandboxMode::ReadOnly, None, None).is_err());
}

fn stated<T: std::fmt::Debug + Clone + 'static>(all: Vec<T>) -> impl Strategy<Value = Option<Stated<T>>> {
    prop::option::of(prop::sample::select(all).prop_map(Stated::new))
}

fn some_paths() -> impl Strategy<Value = Option<Vec<Stated<PathBuf>>>> {
    let path = prop::sample::select(vec!["/a", "/b", "/c"]).prop_map(|path| Stated::new(PathBuf::from(path)));
    prop::option::of(prop::collection::vec(path, 0..3))
}

fn layer(origin: Origin) -> impl Strategy<Value = Layer> {
    let modes = vec![SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite, SandboxMode::DangerFullAccess];
    let approvals = vec![ApprovalPolicy::Never, ApprovalPolicy::AllowListed, ApprovalPolicy::Ask];
    let times = vec![std::time::Duration::from_secs(1), std::time::Duration::from_secs(1000)];
    let scalars = (
        stated(modes),
        stated(vec![Network::Open, Network::Private, Network::Off]),
        stated(vec![Sockets::Open, Sockets::Closed]),
        stated(vec![Variables::Inherit, Variables::Scrub]),
        stated(approvals),
        stated(times.clone()),
        stated(times),
        stated(vec![true, false]),
    );
    let lists = (some_paths(), some_paths(), some_paths(), some_paths());
    (scalars, lists, prop::option::of(1_u64..4)).prop_map(move |(scalars, lists, processes)| {
        let mut layer = Layer::new(origin.clone());
        (layer.mode, layer.network, layer.sockets, layer.variables) = (scalars.0, scalars.1, scalars.2, scalars.3);
        (layer.approval, layer.timeout, layer.approval_timeout, layer.deny_secrets) =
            (scalars.4, scalars.5, scalars.6, scalars.7);
        (layer.writable, layer.allowed_sockets, layer.allowed_reads) = (lists.0, lists.1, lists.2);
        layer.denied_reads = lists.3.unwrap_or_default();
        layer.limits.max_processes = processes;
        layer
    })
}

fn values<T: Clone>(decided: &[pinfold_session::config::Decided<T>]) -> Vec<T> {
    decided.iter().map(|it| it.value.clone()).collect()
}

proptest! {
    // A project file never widens: it is refused, or every key is as tight as before or tighter.
    #[test]
    fn no_project_file_widens(
        user in layer(Origin::User("/u".into())),
        project in layer(Origin::Project("/p".into())),
        base in prop::sample::select(vec![SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite]),
    ) {
        let before = Deployment::built_in(base).over(user).unwrap();
        let Ok(after) = before.clone().over(project) else { return Ok(()) };
        prop_assert!(after.mode.value <= before.mode.value);
        prop_assert!(after.network.value >= before.network.value);
        prop_assert!(after.variables.value >= before.variables.value);
        prop_assert!(before.sockets.value != Some(Sockets::Closed) || after.sockets.value == Some(Sockets::Closed));
        prop_assert!(after.sockets.value != Some(Sockets::Open) || before.sockets.value == Some(Sockets::Open));
        prop_assert!(before.deny_secrets.value != Some(true) || after.deny_secrets.value == Some(true));
        prop_assert!(after.deny_secrets.value != Some(false) || before.deny_secrets.value == Some(false));
        for (new, old) in [
            (values(&after.writable), values(&before.writable)),
            (values(&after.allowed_sockets), values(&before.allowed_sockets)),
            (values(&after.allowed_reads), values(&before.allowed_reads)),
            (values(&before.denied_reads), values(&after.denied_reads)),
        ] {
            prop_assert!(new.iter().all(|path| old.contains(path)));
        }
        prop_assert!(after.approval.value == before.approval.value || after.approval.value == ApprovalPolicy::Never);
        prop_assert!(after.approval_timeout.value <= before.approval_timeout.value);
        let time = |it: &Deployment| it.timeout.as_ref().map_or(std::time::Duration::MAX, |it| it.value);
        prop_assert!(time(&after) <= time(&before));
        let processes = |it: &Deployment| it.limits.max_processes.unwrap_or(u64::MAX);
        prop_assert!(processes(&after) <= processes(&before));
    }
}
