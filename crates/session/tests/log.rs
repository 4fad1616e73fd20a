//! The log: what is written is what is read, and what is not as it was written is believed by nobody.

mod scene;

use pinfold_policy::SandboxMode;
use pinfold_policy::escalation::ApprovalPolicy;
use pinfold_session::log::event::{By, Event};
use pinfold_session::log::state::State;
use pinfold_session::{Access, GrantId, Log, Session, SessionError};
use scene::Scene;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A session that was wide and is narrow again: whatever part of its log is missing may be the part that narrows.
fn narrowed(scene: &Scene) -> (Session, PathBuf) {
    let session = scene.session();
    session.set_mode(SandboxMode::DangerFullAccess, By::User).unwrap();
    let grant = session.grant_directory(Path::new("/srv/data"), None).unwrap();
    session.set_approval(ApprovalPolicy::AllowListed).unwrap();
    session.revoke(&grant).unwrap();
    session.set_approval(ApprovalPolicy::Never).unwrap();
    session.set_mode(SandboxMode::ReadOnly, By::User).unwrap();
    let directory = scene.store.directory(session.id().as_str()).unwrap();
    (session, directory)
}

fn is_narrow(state: &State) -> bool {
    state.mode() == Some(SandboxMode::ReadOnly)
        && state.approval() == Some(ApprovalPolicy::Never)
        && state.grants().count() == 0
}

// Corruption at every byte of either file: an error, or the state that was written.
#[test]
fn no_change_of_any_byte_widens() {
    let scene = Scene::new();
    let (_session, directory) = narrowed(&scene);
    for name in ["log.jsonl", "head"] {
        let path = directory.join(name);
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut changed: Vec<Vec<u8>> = [1_u8, 0x20]
                .iter()
                .map(|bit| {
                    let mut bytes = good.clone();
                    bytes[at] ^= bit;
                    bytes
                })
                .collect();
            changed.push(good[..at].to_vec());
            changed.push([&good[..at], &good[at + 1..]].concat());
            changed.push([&good[..at], b"\n", &good[at..]].concat());
            for bytes in changed {
                std::fs::write(&path, &bytes).unwrap();
                if let Ok(log) = Log::open(&directory, Access::Read) {
                    assert!(is_narrow(log.state()), "{name}, byte {at}: {:?}", log.state());
                }
            }
        }
        std::fs::write(&path, &good).unwrap();
    }
    // Control: unchanged, it is read.
    assert!(is_narrow(Log::open(&directory, Access::Read).unwrap().state()));
}

#[test]
fn whole_lines_that_are_missing_doubled_or_swapped_are_noticed() {
    let scene = Scene::new();
    let (_session, directory) = narrowed(&scene);
    let path = directory.join("log.jsonl");
    let good = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let mut others = Vec::new();
    for at in 0..lines.len() {
        let mut missing = lines.clone();
        missing.remove(at);
        others.push(missing);
        let mut doubled = lines.clone();
        doubled.insert(at, lines[at]);
        others.push(doubled);
        let mut swapped = lines.clone();
        swapped.swap(at, (at + 1) % lines.len());
        others.push(swapped);
    }
    for other in others {
        std::fs::write(&path, other.concat()).unwrap();
        match Log::open(&directory, Access::Append) {
            // A line behind the last one was promised to nobody.
            Ok(log) => assert!(is_narrow(log.state()), "{other:?}"),
            Err(error) => assert_eq!(error.code(), "SESSION_LOG_DAMAGED"),
        }
    }
}

#[test]
fn a_torn_last_line_is_cut_off_and_the_next_event_follows() {
    let scene = Scene::new();
    let (session, directory) = narrowed(&scene);
    let path = directory.join("log.jsonl");
    let good = std::fs::read(&path).unwrap();
    // What a process that is killed while it writes leaves: the beginning of a line that nobody was promised.
    for torn in [&b"{"[..], b"{\"sum\":\"", b"\0\0\0\0", b"{\"sum\":\"0000\"}\n"] {
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(torn).unwrap();
        assert!(is_narrow(&scene.again(&session).state().unwrap()));
        session.set_mode(SandboxMode::ReadOnly, By::User).unwrap();
        assert!(is_narrow(&scene.again(&session).state().unwrap()));
    }
    let now = std::fs::read(&path).unwrap();
    assert!(now.starts_with(&good) && now.iter().filter(|byte| **byte == b'\n').count() == 11);
}

// U252, U270, U271
#[test]
fn replay_is_the_state_and_sessions_do_not_see_each_other() {
    let scene = Scene::new();
    let (one, other) = (scene.session(), scene.session());
    one.set_mode(SandboxMode::WorkspaceWrite, By::User).unwrap();
    one.grant_directory(Path::new("/srv"), None).unwrap();
    let now = one.state().unwrap();
    assert_eq!(scene.again(&one).state().unwrap(), now);
    assert_eq!((now.mode(), now.events()), (Some(SandboxMode::WorkspaceWrite), 3));
    assert_eq!(other.state().unwrap().mode(), None);
}

// U271: whatever else happens, the mode is what was set last, or nothing.
#[test]
fn only_a_switch_changes_the_mode() {
    let scene = Scene::new();
    let session = scene.session();
    let directory = scene.store.directory(session.id().as_str()).unwrap();
    let preset = serde_json::from_str(r#"{"preset":"danger-full-access"}"#).unwrap();
    let unknown =
        Event::Unknown { kind: "sandbox/modes".to_owned(), data: r#"{"mode":"danger-full-access"}"#.to_owned() };
    let events = vec![Event::Preset(preset), unknown];
    Log::open(&directory, Access::Append).unwrap().transact(|_, _| Ok((events, ()))).unwrap();
    session.set_approval(pinfold_policy::escalation::ApprovalPolicy::Never).unwrap();
    session.grant_directory(Path::new("/srv"), None).unwrap();
    session.announce("a text".to_owned()).unwrap();
    assert_eq!((session.state().unwrap().mode(), session.state().unwrap().events()), (None, 6));
    session.set_mode(SandboxMode::WorkspaceWrite, By::User).unwrap();
    session.end().unwrap();
    assert_eq!(session.state().unwrap().mode(), Some(SandboxMode::WorkspaceWrite));
}

// U573: the same policy again is no event.
#[test]
fn a_policy_that_is_in_force_is_not_set_again() {
    use pinfold_policy::escalation::ApprovalPolicy;
    let scene = Scene::new();
    let session = scene.session();
    for policy in [ApprovalPolicy::Never, ApprovalPolicy::Never, ApprovalPolicy::Ask] {
        session.set_approval(policy).unwrap();
    }
    assert_eq!(scene.kinds(&session)[1..], ["approval/policy", "approval/policy"]);
}

// U253, U254, U255
#[test]
fn a_switch_is_one_event_with_its_source_and_an_unknown_mode_is_refused() {
    let scene = Scene::new();
    let session = scene.session();
    for _ in 0..2 {
        session.set_mode(SandboxMode::WorkspaceWrite, By::User).unwrap();
    }
    session.set_mode(SandboxMode::ReadOnly, By::Delegation).unwrap();
    let path = scene.store.directory(session.id().as_str()).unwrap().join("log.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(r#""type":"sandbox/mode","data":{"mode":"workspace-write"}}"#).count(), 2, "{text}");
    assert!(text.ends_with("\"data\":{\"mode\":\"read-only\",\"source\":\"delegation\"}}\n"), "{text}");
    assert!(serde_json::from_str::<pinfold_session::log::event::ModeSet>(r#"{"mode":"full"}"#).is_err());
}

#[test]
fn events_that_we_do_not_know_are_kept_and_a_newer_version_is_refused() {
    let scene = Scene::new();
    let session = scene.session();
    let directory = scene.store.directory(session.id().as_str()).unwrap();
    let unknown = Event::Unknown { kind: "later/thing".to_owned(), data: r#"{"x":[1,null]}"#.to_owned() };
    Log::open(&directory, Access::Append).unwrap().transact(|_, _| Ok((vec![unknown.clone()], ()))).unwrap();
    session.set_mode(SandboxMode::ReadOnly, By::User).unwrap();
    let mut seen = Vec::new();
    Log::read_all(&directory, |record| seen.push(record.event.clone())).unwrap();
    assert_eq!(seen[1], unknown);
    // A line of the next version, with its right sum, as a newer program would write it.
    let (path, head) = (directory.join("log.jsonl"), directory.join("head"));
    let text = std::fs::read_to_string(&path).unwrap();
    let rest = r#""v":2,"seq":3,"at":1,"type":"sandbox/mode","data":{"modes":[]}}"#;
    let last = text.lines().last().unwrap();
    let sum = newer_sum(&last[8..72], rest);
    let line = format!("{{\"sum\":\"{sum}\",{rest}\n");
    std::fs::write(&path, format!("{text}{line}")).unwrap();
    std::fs::write(&head, format!("{:020} {sum}\n", text.len() + line.len())).unwrap();
    let error = Log::open(&directory, Access::Append).unwrap_err();
    assert_eq!(error.code(), "SESSION_LOG_NEWER", "{error}");
    assert_eq!(session.set_mode(SandboxMode::ReadOnly, By::User).unwrap_err().code(), "SESSION_LOG_NEWER");
}

/// The sum as the documentation of the log gives it.
fn newer_sum(before: &str, rest: &str) -> String {
    let script =
        "import hashlib,sys; print(hashlib.sha256(bytes.fromhex(sys.argv[1])+sys.argv[2].encode()).hexdigest())";
    let output = std::process::Command::new("python3").args(["-c", script, before, rest]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn what_others_may_read_or_write_is_not_used() {
    let scene = Scene::new();
    let session = scene.session();
    let directory = scene.store.directory(session.id().as_str()).unwrap();
    for (path, good) in [("log.jsonl", 0o600), ("head", 0o600), ("lock", 0o200)] {
        let path = directory.join(path);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, good);
        for bad in [0o640, 0o602, 0o666] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bad)).unwrap();
            let error = scene.store.session(session.id().as_str(), Access::Append).unwrap_err();
            assert_eq!(error.code(), "SESSION_STATE_UNAVAILABLE", "{error}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(good)).unwrap();
    }
    let root = scene.store.root();
    assert_eq!(root.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!(pinfold_session::Store::open(root).unwrap_err().code(), "SESSION_STATE_UNAVAILABLE");
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(pinfold_session::Store::open(root).is_ok());
}

#[test]
fn a_log_behind_a_link_or_under_another_name_is_not_opened() {
    let scene = Scene::new();
    let (one, two) = (scene.session(), scene.session());
    let directory = |session: &Session| scene.store.directory(session.id().as_str()).unwrap();
    for name in ["log.jsonl", "head"] {
        std::fs::copy(directory(&one).join(name), directory(&two).join(name)).unwrap();
    }
    assert!(scene.store.session(two.id().as_str(), Access::Append).is_err());
    let log = directory(&one).join("log.jsonl");
    std::fs::rename(&log, scene.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(scene.path("elsewhere"), &log).unwrap();
    assert!(scene.store.session(one.id().as_str(), Access::Append).is_err());
    for id in ["", "..", "../..", "a/b", "A", "x\0"] {
        assert_eq!(scene.store.session(id, Access::Read).unwrap_err().code(), "SESSION_UNKNOWN");
    }
}

// U575
#[test]
fn events_that_contradict_the_log_are_refused_and_change_nothing() {
    let scene = Scene::new();
    let session = scene.session();
    let directory = scene.store.directory(session.id().as_str()).unwrap();
    let before = std::fs::read(directory.join("log.jsonl")).unwrap();
    let mut log = Log::open(&directory, Access::Append).unwrap();
    let given = |life: &str, scope: &str| {
        let text = format!(r#"{{"id":"g9","scope":{scope},"life":"{life}","by":"user"}}"#);
        Event::Given(serde_json::from_str(&text).unwrap())
    };
    let named = || serde_json::from_str(r#"{"id":"g9"}"#).unwrap();
    for event in [
        Event::Used(named()),
        Event::Revoked(named()),
        Event::Answered(serde_json::from_str(r#"{"id":"a9","outcome":"allowed-once","by":"user"}"#).unwrap()),
        // Nobody gives a whole mode unasked, or a directory for one call.
        given("session", r#"{"kind":"mode","mode":"danger-full-access"}"#),
        given("call", r#"{"kind":"write","path":"/x"}"#),
        given("session", r#"{"kind":"write","path":"x"}"#),
        given("session", r#"{"kind":"write","path":"/a/../b"}"#),
        Event::Created(serde_json::from_str(r#"{"id":"x","cwd":"/"}"#).unwrap()),
    ] {
        let error = log.transact(|_, _| Ok((vec![event.clone()], ()))).unwrap_err();
        assert_eq!(error.code(), "SESSION_EVENT_REFUSED", "{event:?}");
    }
    assert_eq!(std::fs::read(directory.join("log.jsonl")).unwrap(), before);
    assert!(session.revoke(&GrantId::new("g9")).is_err());
}

// A disk that takes nothing: an error, and the mode is what it was.
#[test]
fn a_disk_that_is_full_refuses_and_changes_nothing() {
    let scene = Scene::new();
    let (session, directory) = narrowed(&scene);
    let before = std::fs::read(directory.join("log.jsonl")).unwrap();
    // A limit on the size of files is met like a full disk: a part of the line may be written, then an error.
    let id = session.id().as_str();
    let program = std::env::current_exe().unwrap();
    let limit = before.len() / 512 + 1;
    let script = format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" --exact --nocapture widens_in_a_child");
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .arg(program)
        .env("PINFOLD_TEST_STATE", scene.store.root())
        .env("PINFOLD_TEST_SESSION", id)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("SESSION_LOG_UNWRITABLE"), "{said}");
    assert!(is_narrow(&session.state().unwrap()));
}

/// What the test above runs in another process; by itself it has nothing to do.
#[test]
fn widens_in_a_child() {
    let Some(state) = std::env::var_os("PINFOLD_TEST_STATE") else { return };
    let store = pinfold_session::Store::open(Path::new(&state)).unwrap();
    let session = store.session(&std::env::var("PINFOLD_TEST_SESSION").unwrap(), Access::Append).unwrap();
    for _ in 0..50 {
        if let Err(error) = session.grant_directory(&Path::new("/srv").join("x".repeat(200)), None) {
            println!("{}: {:?}", error.code(), session.state().unwrap().mode());
            return;
        }
    }
}

// A read-only disk: what can be read is read, and nothing is written.
#[test]
fn a_file_system_that_is_read_only_can_be_read_and_refuses_events() {
    let scene = Scene::new();
    let (session, directory) = narrowed(&scene);
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && exec \"$0\" --exact --nocapture widens_in_a_child";
    let run = |flags: &[&str]| {
        std::process::Command::new("unshare")
            .args(flags)
            .args(["sh", "-c", script])
            .arg(std::env::current_exe().unwrap())
            .arg(scene.store.root())
            .env("PINFOLD_TEST_STATE", scene.store.root())
            .env("PINFOLD_TEST_SESSION", session.id().as_str())
            .output()
            .unwrap()
    };
    let output = run(&["-rm"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("SESSION_LOG_UNWRITABLE") || said.contains("Read-only file system"), "{said}");
    assert!(is_narrow(Log::open(&directory, Access::Read).unwrap().state()));
}

#[test]
fn a_log_that_is_held_is_waited_for_and_time_never_runs_backwards() {
    let scene = Scene::new();
    let session = scene.session();
    let directory = scene.store.directory(session.id().as_str()).unwrap();
    // Whoever can only read the log, as a confined command can, holds nothing.
    let reader = std::fs::File::open(directory.join("log.jsonl")).unwrap();
    rustix::fs::flock(&reader, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let holder = std::fs::File::options().append(true).open(directory.join("lock")).unwrap();
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockShared).unwrap();
    let other = scene.again(&session);
    let waiting = std::thread::spawn(move || other.set_mode(SandboxMode::WorkspaceWrite, By::User));
    // Reading goes on meanwhile; the writer is let in when the lock is given back.
    assert_eq!(session.state().unwrap().mode(), None);
    drop(holder);
    waiting.join().unwrap().unwrap();
    assert_eq!(session.state().unwrap().mode(), Some(SandboxMode::WorkspaceWrite));
    let mut times = Vec::new();
    Log::read_all(&directory, |record| times.push(record.at)).unwrap();
    assert!(times.is_sorted());
}

#[test]
fn a_refusal_names_its_file() {
    let error = SessionError::Busy { path: "/s/a\nb".into() };
    assert_eq!(error.to_string(), "another process has held \"/s/a\\nb\" for 10 s");
}

// A holder that never gives it back, such as a stopped process: an end to the waiting, and nothing has happened.
#[test]
fn waiting_for_a_log_ends_with_an_error() {
    let scene = Scene::new();
    let session = scene.session();
    let directory = scene.store.directory(session.id().as_str()).unwrap();
    let holder = std::fs::File::options().append(true).open(directory.join("lock")).unwrap();
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let error = session.set_mode(SandboxMode::WorkspaceWrite, By::User).unwrap_err();
    assert_eq!(error.code(), "SESSION_BUSY");
    drop(holder);
    assert_eq!(session.state().unwrap().mode(), None);
    session.set_mode(SandboxMode::WorkspaceWrite, By::User).unwrap();
}
