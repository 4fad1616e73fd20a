//! The file tools of a session: its policy, its temp area, what it has seen, and a wider mode for one operation
//! (groups Q and R of the reference's statements, W23, W55).
//!
//! Needs `pinfold-run` beside the test programs (`cargo build -p pinfold-launcher`) or in `PINFOLD_BIN_DIR`.

use pinfold_fence::tools::{EditArguments, ReadArguments, ToolError, WriteArguments};
use pinfold_policy::{FileErrorCode as Code, SandboxMode};
use pinfold_providers::{Backend, CallOptions, Cancel, LocalProvider, ProviderConfig};
use pinfold_session::log::event::{Asked, By, Event};
use pinfold_session::{
    Access, Approvals, Deployment, Log, NewSession, PolicyService, Question, Scope, Session, SessionFiles, Store,
    Verdict,
};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[path = "../../providers/tests/ground/mod.rs"]
mod ground;

struct World {
    base: tempfile::TempDir,
    store: Store,
    provider: LocalProvider,
    service: PolicyService,
    session: Session,
    backend: Backend,
}

impl World {
    fn new(mode: SandboxMode, backend: Backend) -> Self {
        let base = ground::directory();
        for name in ["ws", "out", "runtime", "bystander"] {
            std::fs::create_dir(base.path().join(name)).unwrap();
            std::fs::set_permissions(base.path().join(name), PermissionsExt::from_mode(0o700)).unwrap();
        }
        let config = ProviderConfig {
            launcher: Some(ground::launcher()),
            runtime_dir: Some(base.path().join("runtime")),
            ..ProviderConfig::default()
        };
        let provider = LocalProvider::new(config).unwrap();
        let store = Store::open(&base.path().canonicalize().unwrap().join("state")).unwrap();
        let service = PolicyService::new(Deployment::built_in(SandboxMode::ReadOnly), Path::new("/"), None).unwrap();
        let cwd = base.path().canonicalize().unwrap().join("ws");
        let session = store.create(&NewSession { cwd, mode: Some((mode, By::User)), ..NewSession::default() }).unwrap();
        Self { base, store, provider, service, session, backend }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.path().canonicalize().unwrap().join(name)
    }

    fn files<'a>(&'a self, session: &'a Session, approvals: Option<&'a Approvals>) -> SessionFiles<'a> {
        let call = CallOptions { backend: Some(self.backend), ..CallOptions::default() };
        SessionFiles::new(&self.store, session, &self.service, &self.provider, approvals, call).unwrap()
    }

    fn again(&self) -> Session {
        self.store.session(self.session.id().as_str(), Access::Append).unwrap()
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let directory = self.store.directory(self.session.id().as_str()).unwrap();
        Log::read_all(&directory, |record| events.push(record.event.clone())).unwrap();
        events
    }

    fn kinds(&self) -> Vec<String> {
        self.events().iter().map(|event| event.kind().to_owned()).collect()
    }
}

fn read(files: &SessionFiles<'_>, path: &str) -> Result<String, ToolError> {
    files.read(&ReadArguments { file_path: path.into(), offset: None, limit: None })
}

fn write(files: &SessionFiles<'_>, path: &str, asked: Option<&str>) -> Result<String, ToolError> {
    let (sandbox_permissions, justification) = (asked.map(str::to_owned), asked.map(|_| "because".to_owned()));
    let arguments =
        WriteArguments { file_path: path.into(), content: "new".into(), sandbox_permissions, justification };
    files.write(&arguments, &Cancel::new())
}

fn edit(files: &SessionFiles<'_>, path: &str, old: &str, new: &str) -> Result<String, ToolError> {
    let (old_string, new_string) = (old.to_owned(), new.to_owned());
    let arguments = EditArguments {
        file_path: path.into(),
        old_string,
        new_string,
        replace_all: false,
        sandbox_permissions: None,
        justification: None,
    };
    files.edit(&arguments, &Cancel::new())
}

fn code(result: Result<String, ToolError>) -> Option<Code> {
    result.unwrap_err().code
}

/// An approver that keeps what it was asked, and answers.
fn asking(verdict: Verdict) -> (Approvals, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    let approver = move |question: &Question<'_>| {
        kept.lock().unwrap().push(question.asked.clone());
        Some(verdict)
    };
    (Approvals::new(&Deployment::default()).with(approver), asked)
}

/// U503 (closed), W55, U524: what was seen is known to whoever takes the session up again, and to no other session.
#[test]
fn what_a_session_has_seen_outlives_the_process() {
    let world = World::new(SandboxMode::WorkspaceWrite, Backend::Namespace);
    std::fs::write(world.path("ws/f"), "one\ntwo\n").unwrap();
    let files = world.files(&world.session, None);
    assert_eq!(code(write(&files, "f", None)), Some(Code::NotObserved));
    assert!(read(&files, "f").unwrap().contains("2: two"));
    drop(files);
    let resumed = world.again();
    let files = world.files(&resumed, None);
    assert!(edit(&files, "f", "two", "2").unwrap().contains("+2"));
    assert!(write(&files, "f", None).unwrap().starts_with("updated: "));
    let mode = Some((SandboxMode::WorkspaceWrite, By::User));
    let other = world.store.create(&NewSession { cwd: world.path("ws"), mode, ..NewSession::default() }).unwrap();
    assert_eq!(code(edit(&world.files(&other, None), "f", "new", "x")), Some(Code::NotObserved));
    // What was kept and is no more what we wrote was not seen.
    let seen = world.store.directory(resumed.id().as_str()).unwrap().join("seen.json");
    assert!(seen.is_file());
    std::fs::write(&seen, "{\"files\":1}").unwrap();
    assert_eq!(code(write(&files, "f", None)), Some(Code::NotObserved));
    // Each change stands in the log, and reading does not.
    let calls = world.kinds().iter().filter(|kind| *kind == "call/began").count();
    assert_eq!((calls, world.kinds().iter().filter(|kind| *kind == "call/ended").count()), (4, 4));
}

/// U520, U521, U283, U284, B144: an operation is asked for as a command is, with the subject `operation`; the yes is used up.
#[test]
fn a_wider_mode_is_granted_for_one_operation_and_used_up() {
    let world = World::new(SandboxMode::ReadOnly, Backend::Namespace);
    let refusal = write(&world.files(&world.session, None), "f", None).unwrap_err();
    assert_eq!(refusal.code, Some(Code::SandboxDenied));
    assert!(refusal.text.contains("retry this exact operation once"), "{}", refusal.text);
    let error = write(&world.files(&world.session, None), "f", Some("workspace-write")).unwrap_err();
    assert!(error.text.contains("no approval service is composed"), "{error}");
    let (never, _) = asking(Verdict::Rejected);
    let error = write(&world.files(&world.session, Some(&never)), "f", Some("workspace-write")).unwrap_err();
    assert!(error.text.starts_with("the user rejected escalating this operation to \"workspace-write\""), "{error}");
    assert!(!world.path("ws/f").exists());
    // The last offer is the mode itself; the narrower ones before it are a directory, for the call or the session.
    let (always, asked) = asking(Verdict::Allowed(2));
    let files = world.files(&world.session, Some(&always));
    assert!(write(&files, "f", Some("workspace-write")).unwrap().starts_with("created: "));
    let question = asked.lock().unwrap()[0].clone();
    assert_eq!(question.subject.as_str(), "operation");
    assert_eq!(question.argv, ["write", world.path("ws/f").to_str().unwrap(), "new"]);
    assert_eq!(
        (question.tool_name.as_str(), question.reason.as_str()),
        ("write", "escalate sandbox to workspace-write: because")
    );
    let offers: Vec<_> = question.offers.iter().map(|offer| offer.scope.clone()).collect();
    let directory = Scope::Write { path: world.path("ws") };
    assert_eq!(offers, [directory.clone(), directory, Scope::Mode { mode: SandboxMode::WorkspaceWrite }]);
    let kinds = world.kinds();
    let tail: Vec<&str> = kinds.iter().rev().take(6).rev().map(String::as_str).collect();
    assert_eq!(tail, ["approval/asked", "approval/decided", "grant/given", "grant/used", "call/began", "call/ended"]);
    // Only that one: the next is refused, and asking for it is another question.
    assert_eq!(code(write(&files, "f", None)), Some(Code::SandboxDenied));
    assert!(write(&files, "f", Some("workspace-write")).is_ok());
    assert_eq!(asked.lock().unwrap().len(), 2);
    // What is in force already is no question.
    assert_eq!(code(write(&files, "f", Some("read-only"))), Some(Code::SandboxDenied));
    assert_eq!(asked.lock().unwrap().len(), 2);
}

/// W37, U523: somebody allows the one directory; nothing else opens with it, and the path still starts at the session's workspace.
#[test]
fn a_directory_is_granted_instead_of_a_mode() {
    let world = World::new(SandboxMode::ReadOnly, Backend::Namespace);
    std::fs::create_dir(world.path("ws/sub")).unwrap();
    let (narrow, _) = asking(Verdict::Allowed(0));
    let files = world.files(&world.session, Some(&narrow));
    assert!(write(&files, "sub/f", Some("workspace-write")).is_ok());
    assert!(world.path("ws/sub/f").is_file());
    assert_eq!(code(write(&files, "sub/g", None)), Some(Code::SandboxDenied));
    let (lasting, asked) = asking(Verdict::Allowed(1));
    let files = world.files(&world.session, Some(&lasting));
    assert!(write(&files, "sub/g", Some("workspace-write")).is_ok());
    assert!(write(&files, world.path("ws/sub/h").to_str().unwrap(), None).is_ok(), "for the session");
    assert_eq!(code(write(&files, world.path("ws/h").to_str().unwrap(), None)), Some(Code::SandboxDenied));
    assert_eq!(asked.lock().unwrap().len(), 1);
}

/// A link that is put in the way between question and answer leads no allowed operation elsewhere; the question says where
/// the path leads.
#[test]
fn what_was_allowed_for_one_place_is_done_in_no_other() {
    let world = World::new(SandboxMode::WorkspaceWrite, Backend::Namespace);
    std::fs::create_dir(world.path("out/d")).unwrap();
    std::fs::write(world.path("bystander/f"), "theirs").unwrap();
    symlink(world.path("out"), world.path("ws/link")).unwrap();
    for swapped in [false, true] {
        let (ws, elsewhere) = (world.path("ws"), world.path("bystander"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        let approvals = Approvals::new(&Deployment::default()).with(move |question: &Question<'_>| {
            kept.lock().unwrap().push(question.asked.clone());
            if swapped {
                std::fs::remove_file(ws.join("link")).unwrap();
                symlink(&elsewhere, ws.join("link")).unwrap();
            }
            Some(Verdict::Allowed(question.asked.offers.len() - 1))
        });
        let files = world.files(&world.session, Some(&approvals));
        let result = write(&files, "link/f", Some("danger-full-access"));
        let leads = asked.lock().unwrap()[0].argv.last().cloned();
        assert_eq!(leads.as_deref(), world.path("out/f").to_str());
        if swapped {
            let error = result.unwrap_err();
            assert_eq!(error.code, Some(Code::SandboxDenied));
            assert!(error.text.contains("was allowed"), "{error}");
        } else {
            assert!(result.is_ok());
            assert_eq!(std::fs::read_to_string(world.path("out/f")).unwrap(), "new");
        }
    }
    assert_eq!(std::fs::read_to_string(world.path("bystander/f")).unwrap(), "theirs");
}

/// W23, W45: the tools have the temp area of the session's commands until it ends, under every backend.
#[test]
fn the_temp_area_is_the_sessions_until_it_ends() {
    for backend in [Backend::Namespace, Backend::Bwrap, Backend::Landlock] {
        let world = World::new(SandboxMode::WorkspaceWrite, backend);
        let temp = world.path("runtime/temp");
        let files = world.files(&world.session, None);
        assert!(write(&files, "f", None).is_ok(), "{backend:?}");
        let own: Vec<_> = std::fs::read_dir(&temp).unwrap().collect();
        assert_eq!(own.len(), 1, "{backend:?}");
        if backend != Backend::Landlock {
            let name = format!("/tmp/pinfold-session-files-{}", std::process::id());
            assert!(write(&files, &name, None).is_ok());
            assert!(read(&files, &name).unwrap().contains("1: new") && !Path::new(&name).exists());
        }
        // The sessions themselves are out of reach.
        let log = world.store.directory(world.session.id().as_str()).unwrap().join("log.jsonl");
        assert_eq!(code(read(&files, log.to_str().unwrap())), Some(Code::SandboxDenied));
        world.session.end_with(&world.provider).unwrap();
        assert_eq!(std::fs::read_dir(&temp).unwrap().count(), 0, "{backend:?}");
        let error = write(&files, "g", None).unwrap_err();
        assert!(error.text.contains("has ended"), "{error}");
        assert!(!world.path("ws/g").exists());
    }
}
