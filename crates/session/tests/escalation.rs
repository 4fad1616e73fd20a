//! From a request to a grant (groups J and U of the reference's statements): every refusal in its turn and with its text,
//! every question with one answer, and nothing wider without a yes.

mod scene;

use pinfold_policy::escalation::{ApprovalOutcome, ApprovalPolicy};
use pinfold_policy::{ExecutionPolicy, Restrictions, SandboxMode};
use pinfold_providers::Cancel;
use pinfold_session::config::{AllowRule, Layer, Origin, RuleScope, Stated};
use pinfold_session::log::event::{By, Event};
use pinfold_session::{
    Approvals, Approved, Call, Deployment, Log, PolicyRequest, Question, Scope, Session, SessionError, Verdict, Wish,
};
use proptest::prelude::*;
use scene::{Scene, call, policy_of, service, words};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const WISH: Wish<'static> =
    Wish { sandbox_permissions: Some("workspace-write"), write: None, justification: Some("the build writes") };

struct Asking {
    scene: Scene,
    session: Session,
}

impl Asking {
    fn new() -> Self {
        let scene = Scene::new();
        let session = scene.session();
        Self { scene, session }
    }

    fn request(&self, approvals: Option<&Approvals>, wish: &Wish<'_>) -> Result<Option<Approved>, SessionError> {
        self.request_of(approvals, Some(&self.session), wish, &["touch", "f"], &Cancel::new())
    }

    fn request_of(
        &self,
        approvals: Option<&Approvals>,
        session: Option<&Session>,
        wish: &Wish<'_>,
        argv: &[&str],
        cancel: &Cancel,
    ) -> Result<Option<Approved>, SessionError> {
        let policy = policy_of(&service(SandboxMode::ReadOnly), &self.session);
        let (argv, cwd, closed) = (words(argv), self.scene.workspace(), Restrictions::default());
        Approvals::request(approvals, session, &call(&argv, &cwd, &policy, &closed), wish, cancel)
    }

    fn outcomes(&self) -> Vec<ApprovalOutcome> {
        let mut outcomes = Vec::new();
        let directory = self.scene.store.directory(self.session.id().as_str()).unwrap();
        Log::read_all(&directory, |record| {
            if let Event::Answered(answered) = &record.event {
                outcomes.push(answered.outcome.outcome());
            }
        })
        .unwrap();
        outcomes
    }
}

fn approvals() -> Approvals {
    Approvals::new(&Deployment::default())
}

fn always(verdict: Verdict) -> Approvals {
    approvals().with(move |_: &Question<'_>| Some(verdict))
}

// U274–U277, U280–U282, U288, U289: each check in its turn, and nobody is asked before the last.
#[test]
fn checks_come_in_their_order_and_ask_nobody() {
    let asking = Asking::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let all = approvals().with(move |_: &Question<'_>| {
        count.fetch_add(1, Ordering::SeqCst);
        Some(Verdict::Allowed(0))
    });
    let wish = |mode, reason| Wish { sandbox_permissions: mode, write: None, justification: reason };
    for (wish, text) in [
        (wish(Some("workspace-write"), None), "invalid escalation: sandbox_permissions requires a justification"),
        (wish(None, Some("x")), "invalid escalation: justification is only valid together with sandbox_permissions"),
        (wish(Some("workspace-write"), Some(" ")), "invalid justification: expected a non-empty sentence"),
        (
            wish(Some("full"), Some("x")),
            "invalid sandbox_permissions: unknown mode \"full\"; expected one of: workspace-write, danger-full-access",
        ),
    ] {
        assert_eq!(asking.request(Some(&all), &wish).unwrap_err().to_string(), text);
    }
    let none = asking.request(None, &WISH).unwrap_err().to_string();
    assert_eq!(
        none,
        "sandbox escalation to \"workspace-write\" requires approval, but no approval service is composed"
    );
    let agentless = asking.request_of(Some(&all), None, &WISH, &["x"], &Cancel::new()).unwrap_err().to_string();
    assert_eq!(
        agentless,
        "sandbox escalation to \"workspace-write\" requires approval, but the call has no agent to route it through"
    );
    // U289: what is in force already is no question.
    assert_eq!(asking.request(Some(&all), &wish(Some("read-only"), None)).unwrap(), None);
    assert_eq!(asking.request(Some(&all), &Wish::default()).unwrap(), None);
    assert_eq!((asked.load(Ordering::SeqCst), asking.scene.kinds(&asking.session).len()), (0, 1));
}

// U284–U287, U290, U563, U567: every question has one answer, and every answer but one its text.
#[test]
fn each_answer_has_its_text_and_stands_once_in_the_log() {
    for (verdict, text) in [
        (
            Verdict::Rejected,
            "the user rejected escalating this command to \"workspace-write\"; it stays denied, so stop and explain instead of working around it",
        ),
        (Verdict::Cancelled, "approval for escalating to \"workspace-write\" was cancelled"),
        (
            Verdict::Unavailable,
            "sandbox escalation to \"workspace-write\" requires approval, but no approval channel is available",
        ),
        // U293: an answer that names nothing that was offered
        (
            Verdict::Allowed(7),
            "sandbox escalation to \"workspace-write\" requires approval, but no approval channel is available",
        ),
    ] {
        let asking = Asking::new();
        assert_eq!(asking.request(Some(&always(verdict)), &WISH).unwrap_err().to_string(), text);
        assert_eq!(asking.scene.kinds(&asking.session)[1..], ["approval/asked", "approval/decided"]);
    }
    let asking = Asking::new();
    let approved = asking.request(Some(&always(Verdict::Allowed(0))), &WISH).unwrap().unwrap();
    assert_eq!(approved.scope(), &Scope::Mode { mode: SandboxMode::WorkspaceWrite });
    assert_eq!(
        asking.scene.kinds(&asking.session)[1..],
        ["approval/asked", "approval/decided", "grant/given", "grant/used"]
    );
    // U249, U284: exactly this mode, the session's root, and this call alone.
    let service = service(SandboxMode::ReadOnly);
    let resolved = service.resolve(PolicyRequest { session: Some(&asking.session), approved: Some(approved) }).unwrap();
    assert_eq!(
        (resolved.policy.mode, &resolved.policy.workspace_root),
        (SandboxMode::WorkspaceWrite, &asking.scene.workspace())
    );
    assert_eq!(asking.session.begin_call(&words(&["rm", "-rf", "."]), &resolved).unwrap_err().code(), "GRANT_UNUSABLE");
    assert!(asking.session.begin_call(&words(&["touch", "f"]), &resolved).is_ok());
    assert_eq!(policy_of(&service, &asking.session).mode, SandboxMode::ReadOnly);
}

// W31: the question holds the exact call; U283
#[test]
fn a_question_holds_argv_directory_mode_and_reason() {
    let asking = Asking::new();
    let seen = Arc::new(std::sync::Mutex::new(None));
    let keep = Arc::clone(&seen);
    let all = approvals().with(move |question: &Question<'_>| {
        *keep.lock().unwrap() = Some(question.asked.clone());
        Some(Verdict::Rejected)
    });
    asking.request(Some(&all), &WISH).unwrap_err();
    let asked = seen.lock().unwrap().take().unwrap();
    assert_eq!((asked.argv, asked.mode), (vec!["touch".to_owned(), "f".to_owned()], SandboxMode::ReadOnly));
    assert_eq!(asked.reason, "escalate sandbox to workspace-write: the build writes");
    assert_eq!(Path::new(&asked.cwd), asking.scene.workspace());
}

// U564, U565, U572: the session's policy decides before anybody is asked.
#[test]
fn never_refuses_before_any_approver() {
    let asking = Asking::new();
    asking.session.set_approval(ApprovalPolicy::Never).unwrap();
    let text = asking.request(Some(&always(Verdict::Allowed(0))), &WISH).unwrap_err().to_string();
    // No user was asked, so none is said to have rejected anything.
    assert!(text.starts_with("approval policy \"never\" refuses escalating this command"), "{text}");
    assert_eq!(asking.outcomes(), [ApprovalOutcome::Rejected]);
    asking.session.set_approval(ApprovalPolicy::Ask).unwrap();
    assert!(asking.request(Some(&always(Verdict::Allowed(0))), &WISH).unwrap().is_some());
}

// U568, U580
#[test]
fn a_cancelled_request_asks_nobody_and_a_late_answer_is_dropped() {
    let asking = Asking::new();
    let cancel = Cancel::new();
    cancel.cancel();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let counting = approvals().with(move |_: &Question<'_>| {
        count.fetch_add(1, Ordering::SeqCst);
        Some(Verdict::Allowed(0))
    });
    let session = Some(&asking.session);
    assert!(asking.request_of(Some(&counting), session, &WISH, &["x"], &cancel).is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let late = Cancel::new();
    let throw = late.clone();
    let slow = approvals().with(move |question: &Question<'_>| {
        throw.cancel();
        question.cancel.wait(Duration::from_secs(60));
        Some(Verdict::Allowed(0))
    });
    assert!(asking.request_of(Some(&slow), session, &WISH, &["x"], &late).is_err());
    assert_eq!(asking.outcomes(), [ApprovalOutcome::Cancelled, ApprovalOutcome::Cancelled]);
    assert_eq!(asking.session.state().unwrap().grants().count(), 0);
}

// U569, U570, U571, U579
#[test]
fn approvers_are_a_chain_and_one_that_fails_is_none() {
    let asking = Asking::new();
    let none = |approvals: Approvals| asking.request(Some(&approvals), &WISH).unwrap_err().to_string();
    assert!(none(approvals()).ends_with("no approval channel is available"));
    assert!(none(approvals().with(|_: &Question<'_>| None)).ends_with("no approval channel is available"));
    let panics = approvals().with(|_: &Question<'_>| -> Option<Verdict> { panic!("an approver that fails") });
    assert!(
        none(panics.with(|_: &Question<'_>| Some(Verdict::Allowed(0)))).ends_with("no approval channel is available")
    );
    let chain = approvals().with(|_: &Question<'_>| None).with(|_: &Question<'_>| Some(Verdict::Allowed(0)));
    assert!(asking.request(Some(&chain.with(|_: &Question<'_>| Some(Verdict::Rejected))), &WISH).unwrap().is_some());
    let other = asking.scene.session();
    let scoped = approvals().with_for(other.id(), |_: &Question<'_>| Some(Verdict::Allowed(0)));
    assert!(none(scoped).ends_with("no approval channel is available"));
}

// W37, B144: one directory, for one call or for the session, and what is open already is no question.
#[test]
fn a_directory_is_granted_for_a_call_or_for_the_session() {
    let asking = Asking::new();
    let wish = Wish { write: Some(Path::new("/srv/out")), justification: Some("result"), sandbox_permissions: None };
    let once = asking.request(Some(&always(Verdict::Allowed(0))), &wish).unwrap().unwrap();
    let service = service(SandboxMode::ReadOnly);
    let resolve =
        |approved| service.resolve(PolicyRequest { session: Some(&asking.session), approved }).unwrap().policy;
    assert_eq!(resolve(Some(once)).writable_roots(), [Path::new("/srv/out")]);
    assert!(resolve(None).writable_roots().is_empty());
    assert_eq!(asking.request(Some(&always(Verdict::Allowed(1))), &wish).unwrap(), None);
    assert_eq!(resolve(None).writable_roots(), [Path::new("/srv/out")]);
    assert_eq!(asking.request(Some(&always(Verdict::Rejected)), &wish).unwrap(), None);
    // The log tells one yes from the other.
    let mut decisions = Vec::new();
    let directory = asking.scene.store.directory(asking.session.id().as_str()).unwrap();
    Log::read_all(&directory, |record| {
        if record.event.kind() == "approval/decided" {
            decisions.push(record.event.value()["outcome"].as_str().unwrap().to_owned());
        }
    })
    .unwrap();
    assert_eq!(decisions, ["allowed-once", "allowed-for-session"]);
    for wrong in ["relative", "/a/../b"] {
        let wish = Wish { write: Some(Path::new(wrong)), ..wish };
        assert_eq!(
            asking.request(Some(&always(Verdict::Allowed(0))), &wish).unwrap_err().code(),
            "SANDBOX_INVALID_ROOT"
        );
    }
}

// A directory that is open does not make the mode another one: the workspace is asked for as before.
#[test]
fn a_granted_directory_leaves_the_mode_as_it_is() {
    let asking = Asking::new();
    asking.session.grant_directory(Path::new("/srv/out"), None).unwrap();
    let service = service(SandboxMode::ReadOnly);
    let resolved = service.resolve(PolicyRequest { session: Some(&asking.session), approved: None }).unwrap();
    assert_eq!((resolved.mode, resolved.policy.mode), (SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite));
    let (argv, cwd, closed) = (words(&["touch", "f"]), asking.scene.workspace(), Restrictions::default());
    let call = Call { mode: resolved.mode, ..call(&argv, &cwd, &resolved.policy, &closed) };
    let yes = always(Verdict::Allowed(0));
    let approved = Approvals::request(Some(&yes), Some(&asking.session), &call, &WISH, &Cancel::new()).unwrap();
    let wide = service.resolve(PolicyRequest { session: Some(&asking.session), approved }).unwrap();
    assert_eq!(wide.policy.writable_roots(), [asking.scene.workspace().as_path(), Path::new("/srv/out")]);
    asking.session.begin_call(&argv, &resolved).unwrap();
    let mut began = serde_json::Value::Null;
    let directory = asking.scene.store.directory(asking.session.id().as_str()).unwrap();
    Log::read_all(&directory, |record| {
        if record.event.kind() == "call/began" {
            began = record.event.value();
        }
    })
    .unwrap();
    assert_eq!((&began["mode"], began["grants"].as_array().unwrap().len()), (&"read-only".into(), 1), "{began}");
}

// A question that cannot be answered by a person says whose answer it got, also about a directory.
#[test]
fn a_refusal_names_who_refused() {
    let asking = Asking::new();
    let wish = Wish { write: Some(Path::new("/srv/out")), justification: Some("result"), sandbox_permissions: None };
    let text = |approvals: Approvals| asking.request(Some(&approvals), &wish).unwrap_err().to_string();
    assert!(text(always(Verdict::Rejected)).starts_with("the user rejected writing below \"/srv/out\""));
    assert_eq!(text(always(Verdict::Cancelled)), "approval for writing below \"/srv/out\" was cancelled");
    assert!(text(approvals()).starts_with("writing below \"/srv/out\" requires approval, but no approval channel"));
    asking.session.set_approval(ApprovalPolicy::AllowListed).unwrap();
    assert!(text(approvals()).starts_with("no rule allows writing below"));
    asking.session.set_approval(ApprovalPolicy::Never).unwrap();
    assert!(text(approvals()).starts_with("approval policy \"never\" refuses writing below"));
}

// B100: a rule is about a command, not about a line that contains it; and what it does not name is refused, without waiting.
#[test]
fn a_rule_allows_its_command_and_nothing_else() {
    let asking = Asking::new();
    let mut layer = Layer::new(Origin::User("/u".into()));
    layer.approval = Some(Stated::new(ApprovalPolicy::AllowListed));
    let rule = AllowRule {
        command: vec!["cargo".to_owned(), "fetch".to_owned()],
        more_arguments: false,
        scope: RuleScope::Mode(SandboxMode::WorkspaceWrite),
    };
    layer.rules = Some(vec![Stated::new(rule)]);
    let listed = Approvals::new(&Deployment::default().over(layer).unwrap()).answered_elsewhere();
    let of = |argv: &[&str], wish: &Wish<'_>| {
        asking.request_of(Some(&listed), Some(&asking.session), wish, argv, &Cancel::new())
    };
    assert!(of(&["cargo", "fetch"], &WISH).unwrap().is_some());
    let wider = Wish { sandbox_permissions: Some("danger-full-access"), ..WISH };
    assert!(of(&["cargo", "fetch"], &wider).is_err());
    for argv in [&["cargo", "fetch", "-v"][..], &["cargo"], &["sh", "-c", "cargo fetch"], &["/x/cargo", "fetch"]] {
        let refused = of(argv, &WISH).unwrap_err();
        assert_eq!(refused.code(), "ESCALATION_REFUSED");
        assert!(refused.to_string().starts_with("no rule allows escalating this command"), "{argv:?}: {refused}");
    }
}

// W76: another process answers; a yes for an asker that is gone waits for exactly its call.
#[test]
fn a_yes_waits_for_its_call_and_fits_no_other() {
    let asking = Asking::new();
    let policy = policy_of(&service(SandboxMode::ReadOnly), &asking.session);
    let (argv, cwd, closed) = (words(&["touch", "f"]), asking.scene.workspace(), Restrictions::default());
    let this = call(&argv, &cwd, &policy, &closed);
    let ask = || Approvals::question(&asking.session, &this, &WISH, 60_000).unwrap().unwrap();
    let other = asking.scene.again(&asking.session);
    other.answer(&ask().id, Verdict::Allowed(0), By::User).unwrap();
    let deaf = approvals();
    for (wish, argv) in [
        (Wish { justification: Some("another reason"), ..WISH }, &["touch", "f"][..]),
        (Wish { sandbox_permissions: Some("danger-full-access"), ..WISH }, &["touch", "f"]),
        (WISH, &["touch", "g"]),
        (WISH, &["touch"]),
    ] {
        assert!(asking.request_of(Some(&deaf), Some(&asking.session), &wish, argv, &Cancel::new()).is_err());
    }
    let mut moved = policy.clone();
    moved.additional_writable_roots.push("/x".into());
    let elsewhere = call(&argv, Path::new("/"), &policy, &closed);
    for altered in [elsewhere, call(&argv, &cwd, &moved, &closed)] {
        assert!(Approvals::request(Some(&deaf), Some(&asking.session), &altered, &WISH, &Cancel::new()).is_err());
    }
    assert!(Approvals::request(Some(&deaf), Some(&asking.session), &this, &WISH, &Cancel::new()).unwrap().is_some());
    // Replayed: the same call a second time.
    assert!(Approvals::request(Some(&deaf), Some(&asking.session), &this, &WISH, &Cancel::new()).is_err());
    // Of two answers the first counts, and one after its time is none.
    let asked = ask();
    other.answer(&asked.id, Verdict::Rejected, By::User).unwrap();
    assert_eq!(other.answer(&asked.id, Verdict::Allowed(0), By::User).unwrap_err().code(), "SESSION_EVENT_REFUSED");
    let late = Approvals::question(&asking.session, &this, &WISH, 0).unwrap().unwrap();
    assert_eq!(other.answer(&late.id, Verdict::Allowed(0), By::User).unwrap_err().code(), "SESSION_EVENT_REFUSED");
}

#[derive(Debug, Clone)]
enum Step {
    Mode(SandboxMode),
    Approval(ApprovalPolicy),
    Ask(SandboxMode, Verdict),
    Write(Verdict),
    Grant,
    RevokeAll,
}

fn step() -> impl Strategy<Value = Step> {
    let mode = || prop::sample::select(SandboxMode::ALL.to_vec());
    let verdict = || {
        prop::sample::select(vec![
            Verdict::Allowed(0),
            Verdict::Allowed(1),
            Verdict::Rejected,
            Verdict::Cancelled,
            Verdict::Unavailable,
        ])
    };
    prop_oneof![
        mode().prop_map(Step::Mode),
        prop::sample::select(ApprovalPolicy::ALL.to_vec()).prop_map(Step::Approval),
        (mode(), verdict()).prop_map(|(mode, verdict)| Step::Ask(mode, verdict)),
        verdict().prop_map(Step::Write),
        Just(Step::Grant),
        Just(Step::RevokeAll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    // No sequence of events, grants and questions yields more than the ladder and a yes.
    #[test]
    fn nothing_is_wider_than_what_somebody_chose(steps in prop::collection::vec(step(), 1..8)) {
        let asking = Asking::new();
        let service = service(SandboxMode::ReadOnly);
        let (mut mode, mut approval, mut granted) = (SandboxMode::ReadOnly, ApprovalPolicy::Ask, false);
        let fits = |policy: &ExecutionPolicy, mode: SandboxMode, granted: bool| {
            let roots = policy.writable_roots();
            match mode {
                SandboxMode::DangerFullAccess => policy.mode == mode,
                SandboxMode::WorkspaceWrite => policy.mode == mode && roots.len() == 1 + usize::from(granted),
                SandboxMode::ReadOnly if granted => roots == [Path::new("/srv/out")],
                SandboxMode::ReadOnly => policy.mode == mode,
            }
        };
        for step in steps {
            match step {
                Step::Mode(new) => {
                    asking.session.set_mode(new, By::User).unwrap();
                    mode = new;
                }
                Step::Approval(new) => {
                    asking.session.set_approval(new).unwrap();
                    approval = new;
                }
                Step::Grant => {
                    asking.session.grant_directory(Path::new("/srv/out"), None).unwrap();
                    granted = true;
                }
                Step::RevokeAll => {
                    let ids: Vec<_> = asking.session.state().unwrap().grants().map(|given| given.id.clone()).collect();
                    ids.iter().for_each(|id| asking.session.revoke(id).unwrap());
                    granted = false;
                }
                Step::Ask(wanted, verdict) => {
                    let before = policy_of(&service, &asking.session);
                    let wish = Wish { sandbox_permissions: Some(wanted.as_str()), ..WISH };
                    let (argv, cwd, closed) = (words(&["x"]), asking.scene.workspace(), Restrictions::default());
                    let this = call(&argv, &cwd, &before, &closed);
                    let all = always(verdict);
                    let answer = Approvals::request(Some(&all), Some(&asking.session), &this, &wish, &Cancel::new());
                    if let Ok(Some(approved)) = answer {
                        prop_assert!(approval == ApprovalPolicy::Ask && verdict == Verdict::Allowed(0));
                        let request = PolicyRequest { session: Some(&asking.session), approved: Some(approved) };
                        let resolved = service.resolve(request).unwrap();
                        prop_assert!(resolved.policy.mode == wanted && wanted > before.mode);
                    }
                }
                Step::Write(verdict) => {
                    let before = policy_of(&service, &asking.session);
                    let wish = Wish { write: Some(Path::new("/srv/out")), justification: Some("x"), sandbox_permissions: None };
                    let (argv, cwd, closed) = (words(&["x"]), asking.scene.workspace(), Restrictions::default());
                    let this = call(&argv, &cwd, &before, &closed);
                    let answer = Approvals::request(Some(&always(verdict)), Some(&asking.session), &this, &wish, &Cancel::new());
                    let open = granted || before.mode == SandboxMode::DangerFullAccess;
                    if answer.is_ok() && !open {
                        let yes = matches!(verdict, Verdict::Allowed(_));
                        prop_assert!(approval == ApprovalPolicy::Ask && yes);
                        granted |= verdict == Verdict::Allowed(1);
                    }
                }
            }
            prop_assert!(fits(&policy_of(&service, &asking.session), mode, granted));
        }
    }
}

fn effect_question(store: &Scene, session: Option<&Session>, approvals: &Approvals, withdrawn: &Cancel) -> bool {
    let effect = pinfold_providers::RefusedEffect {
        operation: "open".to_owned(),
        path: store.workspace().join(".git/config"),
        detail: None,
        other: None,
        rule: Some("git-control".to_owned()),
        process: pinfold_policy::DeniedProcess { pid: 7, name: "sh".to_owned() },
        argv: words(&["sh"]),
        argv_is_whole: true,
    };
    let patience = Duration::from_secs(1);
    let question = pinfold_providers::EffectQuestion { effect: &effect, patience, withdrawn };
    let running = pinfold_session::Running {
        argv: words(&["sh"]),
        cwd: store.workspace(),
        mode: SandboxMode::WorkspaceWrite,
        tool_name: "bash".to_owned(),
        call_id: None,
    };
    approvals.effect(session, &running, &question).unwrap()
}

/// A yes is used up before the effect, and answers one question alone; it is no policy for another call.
#[test]
fn an_effect_is_permitted_once_and_everything_else_refuses() {
    let scene = Scene::new();
    let session = scene.session_in(SandboxMode::WorkspaceWrite);
    let deployment = Deployment::built_in(SandboxMode::WorkspaceWrite);
    let go = Cancel::new();
    let saying = |verdict: Option<Verdict>| Approvals::new(&deployment).with(move |_: &Question<'_>| verdict);
    let yes = saying(Some(Verdict::Allowed(0)));
    assert!(effect_question(&scene, Some(&session), &yes, &go));
    assert_eq!(scene.kinds(&session)[2..], ["approval/asked", "approval/decided", "grant/given", "grant/used"]);
    assert_eq!(session.state().unwrap().grants().count(), 0);
    assert!(effect_question(&scene, None, &yes, &go));
    for verdict in [None, Some(Verdict::Rejected), Some(Verdict::Allowed(1)), Some(Verdict::Unavailable)] {
        assert!(!effect_question(&scene, Some(&session), &saying(verdict), &go), "{verdict:?}");
        assert!(!effect_question(&scene, None, &saying(verdict), &go), "{verdict:?}");
    }
    let panics =
        Approvals::new(&deployment).with(|_: &Question<'_>| -> Option<Verdict> { panic!("an approver fails") });
    assert!(!effect_question(&scene, Some(&session), &panics, &go));
    let late = Approvals::new(&deployment).with(|question: &Question<'_>| {
        question.cancel.wait(Duration::from_secs(20));
        Some(Verdict::Allowed(0))
    });
    assert!(!effect_question(&scene, Some(&session), &late, &go));
    assert!(!effect_question(&scene, None, &late, &go));
    let withdrawn = Cancel::new();
    withdrawn.cancel();
    assert!(!effect_question(&scene, Some(&session), &yes, &withdrawn));
    assert!(!effect_question(&scene, None, &yes, &withdrawn));
    session.set_approval(ApprovalPolicy::Never).unwrap();
    assert!(!effect_question(&scene, Some(&session), &yes, &go));
    assert_eq!(session.state().unwrap().open_asks().count(), 0);
}
