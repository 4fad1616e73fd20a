//! Read, write and edit as an agent calls them: groups Q and R of the reference's statements, W51, W55.

mod scene;

use pinfold_fence::observation::{ObservationFile, ObservationStore as _, Observations};
use pinfold_fence::tools::{
    Approver, Caller, EditArguments, FileTools, OperationAsk, ReadArguments, ToolError, WriteArguments,
};
use pinfold_fence::{Abort, Fence, LinesRequest};
use pinfold_policy::escalation::ApprovalOutcome;
use pinfold_policy::{FileErrorCode as Code, SandboxMode};
use scene::Scene;

struct Session<'a> {
    fence: &'a Fence,
    seen: Option<Observations>,
}

impl<'a> Session<'a> {
    fn new(fence: &'a Fence) -> Self {
        Self { fence, seen: Some(Observations::default()) }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut FileTools<'_>) -> T) -> T {
        act(&mut FileTools::new(self.fence, self.seen.as_mut(), LinesRequest::default()).unwrap())
    }

    fn read(&mut self, json: &str) -> Result<String, ToolError> {
        let arguments: ReadArguments = serde_json::from_str(json).unwrap();
        self.with(|tools| tools.read(&arguments))
    }

    fn write(&mut self, path: &str, content: &str) -> Result<String, ToolError> {
        let json = serde_json::json!({"file_path": path, "content": content});
        self.write_as(&json, &mut Caller::default())
    }

    fn write_as(&mut self, json: &serde_json::Value, caller: &mut Caller<'_>) -> Result<String, ToolError> {
        let arguments: WriteArguments = serde_json::from_value(json.clone()).unwrap();
        self.with(|tools| tools.write(&arguments, caller, &Abort::default()))
    }

    fn edit(&mut self, path: &str, old: &str, new: &str) -> Result<String, ToolError> {
        let json = serde_json::json!({"file_path": path, "old_string": old, "new_string": new});
        let arguments: EditArguments = serde_json::from_value(json).unwrap();
        self.with(|tools| tools.edit(&arguments, &mut Caller::default(), &Abort::default()))
    }
}

fn code(result: Result<String, ToolError>) -> Option<Code> {
    result.unwrap_err().code
}

/// U508, U509, U511, U512, U513, U514.
#[test]
fn reading_numbers_lines_and_says_what_is_left() {
    let scene = Scene::new();
    scene.put("f", "one\r\ntwo\nthree");
    scene.put("empty", "");
    let fence = scene.fence();
    let mut session = Session::new(&fence);
    let whole = session.read(r#"{"file_path":"f"}"#).unwrap();
    let path = scene.ws.join("f");
    let (shown, end) = (path.display(), "(end of file, 3 lines)");
    assert_eq!(
        whole,
        format!("<path>{shown}</path>\n<type>file</type>\n<content>\n1: one\n2: two\n3: three\n{end}\n</content>")
    );
    let part = session.read(r#"{"file_path":"f","offset":2,"limit":1}"#).unwrap();
    assert!(part.contains("\n2: two\n(lines 2-2 of 3; continue with offset 3)\n"), "{part}");
    assert!(session.read(r#"{"file_path":"empty"}"#).unwrap().contains("(end of file, 0 lines)"));
    let error = session.read(r#"{"file_path":"f","offset":4}"#).unwrap_err();
    assert!(error.code == Some(Code::NotFound) && error.text.contains("it has 3 lines"), "{error}");
    for wrong in [r#"{"file_path":"f","offset":0}"#, r#"{"file_path":"f","limit":-1}"#] {
        let error = session.read(wrong).unwrap_err();
        assert!(error.code.is_none() && error.text.ends_with("must be a positive integer"), "{error}");
    }
    assert_eq!(session.read(r#"{"file_path":"f","limit":2001}"#).unwrap_err().text, "limit must be at most 2000");
    assert_eq!(code(session.read(r#"{"file_path":"."}"#)), Some(Code::NotRegularFile));
    assert_eq!(code(session.read(r#"{"file_path":"none"}"#)), Some(Code::NotFound));
    assert!(serde_json::from_str::<ReadArguments>(r#"{"file_path":"f","sandbox_permissions":"x"}"#).is_err(), "U517");
}

/// U510.
#[test]
fn caps_are_positive() {
    let scene = Scene::new();
    let fence = scene.fence();
    let caps = LinesRequest { limit: 0, ..LinesRequest::default() };
    let error = FileTools::new(&fence, None, caps).err().unwrap();
    assert_eq!(error.text, "tool-fs: limit must be a positive integer");
}

/// U500, U501, U504 (closed), U505, U506, U514, U522, U524, W51, W55.
#[test]
fn nothing_is_overwritten_that_was_not_read() {
    let scene = Scene::new();
    scene.put("f", "1\n2\n3\n");
    let fence = scene.fence();
    let mut session = Session::new(&fence);
    let error = session.write("f", "x").unwrap_err();
    assert_eq!(error.code, Some(Code::NotObserved));
    assert!(error.text.ends_with(" — read it and retry"), "{error}");
    let error = session.edit("f", "1", "x").unwrap_err();
    let shown = format!("edit requires reading {:?} first — read it and retry", scene.ws.join("f"));
    assert_eq!((error.code, error.text), (Some(Code::NotObserved), shown));
    session.read(r#"{"file_path":"f","limit":2}"#).unwrap();
    let error = session.write("f", "x").unwrap_err();
    assert!(error.code == Some(Code::NotObserved) && error.text.contains("only lines 1-2 were read"), "{error}");
    let answer = session.edit("f", "2", "two").unwrap();
    assert!(answer.contains("edited (1 place)") && answer.contains("-2\n+two\n"), "{answer}");
    assert!(session.edit("f", "3", "three").is_ok(), "no reading again after one's own change");
    assert_eq!(code(session.write("f", "x")), Some(Code::NotObserved), "parts stay parts");
    session.read(r#"{"file_path":"f"}"#).unwrap();
    // Somebody else changes it.
    std::fs::write(scene.ws.join("f"), "else").unwrap();
    let error = session.write("f", "x").unwrap_err();
    assert_eq!(error.code, Some(Code::StaleVersion));
    assert!(error.text.ends_with(" — read it again and retry"), "{error}");
    session.read(r#"{"file_path":"f"}"#).unwrap();
    // Touched, with the same content: what was seen is still what is there.
    std::fs::File::options().write(true).open(scene.ws.join("f")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert!(session.write("f", "y").unwrap().starts_with("updated: "));
    assert!(session.write("f", "z").is_ok());
    // Another session has seen nothing.
    assert_eq!(code(Session::new(&fence).edit("f", "z", "x")), Some(Code::NotObserved));
    // What was seen not to exist is created, and is not there to be edited.
    assert_eq!(code(session.read(r#"{"file_path":"new"}"#)), Some(Code::NotFound));
    assert_eq!(code(session.edit("new", "a", "b")), Some(Code::NotFound));
    assert!(session.write("new", "").unwrap().starts_with("created: "));
    scene.check();
}

/// U502: without a session, files are read and created, and none is changed.
#[test]
fn a_call_of_no_session_only_creates() {
    let scene = Scene::new();
    let fence = scene.fence();
    let mut nobody = Session { fence: &fence, seen: None };
    assert!(nobody.write("f", "x").is_ok());
    assert!(nobody.read(r#"{"file_path":"f"}"#).is_ok());
    assert_eq!(code(nobody.write("f", "y")), Some(Code::NotObserved));
    assert_eq!(code(nobody.edit("f", "x", "y")), Some(Code::NotObserved));
    scene.check();
}

/// U503 (closed), W55: a session that is taken up again knows what it has seen.
#[test]
fn what_was_seen_outlives_the_process() {
    let scene = Scene::new();
    scene.put("f", "x");
    let fence = scene.fence();
    let store = ObservationFile(scene.base.join("seen.json"));
    assert_eq!(store.load().unwrap(), None);
    let mut session = Session::new(&fence);
    session.read(r#"{"file_path":"f"}"#).unwrap();
    store.save(&session.seen.as_ref().unwrap().to_json()).unwrap();
    let seen = Observations::from_json(&store.load().unwrap().unwrap()).unwrap();
    let mut resumed = Session { fence: &fence, seen: Some(seen) };
    assert!(resumed.write("f", "y").is_ok());
    assert!(Observations::from_json("{\"files\":{}}").is_err() && Observations::from_json("x").is_err());
}

/// U515, U516, U464.
#[test]
fn edits_are_checked_before_anything_is_looked_at() {
    let scene = Scene::new();
    let fence = scene.fence();
    let mut session = Session::new(&fence);
    assert_eq!(session.edit("f", "", "x").unwrap_err().text, "old_string must be a non-empty string");
    assert_eq!(session.edit("f", "x", "x").unwrap_err().text, "new_string must differ from old_string");
    session.write("f", "a a").unwrap();
    assert_eq!(code(session.edit("f", "a", "b")), Some(Code::AmbiguousEdit));
    let json = r#"{"file_path":"f","old_string":"a","new_string":"b","replace_all":true}"#;
    let arguments: EditArguments = serde_json::from_str(json).unwrap();
    let answer = session.with(|tools| tools.edit(&arguments, &mut Caller::default(), &Abort::default())).unwrap();
    assert!(answer.starts_with("edited (2 places)"), "{answer}");
    assert_eq!(scene.text("f"), "b b");
}

struct Says(ApprovalOutcome, Vec<String>);

impl Approver for Says {
    fn ask(&mut self, ask: &OperationAsk<'_>) -> ApprovalOutcome {
        self.1.push(format!(
            "{} {} {}->{}: {}",
            ask.tool, ask.file_path, ask.effective, ask.requested, ask.justification
        ));
        assert_eq!(ask.digest.len(), 64);
        self.0
    }
}

/// U517, U520, U521, B144: a refusal carries the markers; a wider mode is asked for first, and holds for one call.
#[test]
fn a_wider_mode_is_for_one_call_and_asked_for_before_anything_is_looked_at() {
    let scene = Scene::new();
    let fence = scene.fence_by(SandboxMode::ReadOnly, pinfold_fence::Resolver::detect());
    let mut session = Session::new(&fence);
    let error = session.write("f", "x").unwrap_err();
    assert_eq!(error.code, Some(Code::SandboxDenied));
    assert_eq!(error.cause.as_ref().unwrap().code(), Code::SandboxDenied);
    let lines: Vec<&str> = error.text.lines().collect();
    assert_eq!(lines[1], "[sandbox: file access denied under read-only mode]");
    assert!(lines[2].starts_with("[sandbox: escalation available — retry this exact operation once with"));
    let asking = |mode: &str, path: &str| serde_json::json!({"file_path": path, "content": "x", "sandbox_permissions": mode, "justification": "because"});
    let mut answer = |json: &serde_json::Value, outcome: Option<ApprovalOutcome>| {
        let mut says = outcome.map(|outcome| Says(outcome, Vec::new()));
        let approver = says.as_mut().map(|it| it as &mut dyn Approver);
        let result = session.write_as(json, &mut Caller { approver, agent_present: true });
        (result, says.map(|it| it.1).unwrap_or_default())
    };
    let (result, asked) = answer(&asking("workspace-write", "f"), Some(ApprovalOutcome::Rejected));
    assert_eq!(asked, ["write f read-only->workspace-write: because"]);
    let text = result.unwrap_err().text;
    assert!(text.starts_with("the user rejected escalating this operation to \"workspace-write\""), "{text}");
    // Nothing is looked at before somebody agreed: the empty path is not even named.
    let (result, asked) = answer(&asking("workspace-write", ""), Some(ApprovalOutcome::Cancelled));
    assert!(asked.len() == 1 && result.unwrap_err().text.contains("was cancelled"));
    let (result, asked) = answer(&asking("workspace-write", "f"), None);
    assert!(asked.is_empty() && result.unwrap_err().text.contains("no approval service is composed"));
    let (result, asked) = answer(&asking("read-only", "f"), Some(ApprovalOutcome::AllowedOnce));
    assert!(
        asked.is_empty() && result.unwrap_err().code == Some(Code::SandboxDenied),
        "already in force: nobody asked"
    );
    assert!(!scene.ws.join("f").exists());
    let (result, asked) = answer(&asking("workspace-write", "f"), Some(ApprovalOutcome::AllowedOnce));
    assert!(asked.len() == 1 && result.is_ok());
    let outside = scene.out.join("g");
    let (result, _) = answer(&asking("workspace-write", outside.to_str().unwrap()), Some(ApprovalOutcome::AllowedOnce));
    let text = result.unwrap_err().text;
    assert!(text.contains("[sandbox: file access denied under workspace-write mode]"), "{text}");
    let (result, _) =
        answer(&asking("danger-full-access", outside.to_str().unwrap()), Some(ApprovalOutcome::AllowedOnce));
    assert!(result.is_ok());
    std::fs::remove_file(&outside).unwrap();
    assert_eq!(code(session.write("f", "y")), Some(Code::SandboxDenied), "only that call");
    scene.check();
}
