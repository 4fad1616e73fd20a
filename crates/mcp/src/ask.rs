//! A question to the client's person: by a request of ours where the protocol has them, by an answer that asks to be called
//! again where it has not (revision 2026-07-28).
//!
//! SECURITY: the question's text is the session's, in which every foreign word is quoted; what the client hands back is a
//! number of an offer or nothing. Whatever else it says is no answer.

use pinfold_session::log::event::Asked;
use pinfold_session::terminal::question_text;
use pinfold_session::{Approvals, Approver, Life, Question, Verdict};
use rmcp::model::{
    ClientCapabilities, ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, ProtocolVersion, ServerRequest,
};
use rmcp::service::PeerRequestOptions;
use rmcp::{Peer, RoleServer};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

/// How often a waiting call looks whether its question was withdrawn.
const LOOK: Duration = Duration::from_millis(50);

/// The name of the form's answer.
const DECISION: &str = "decision";
/// The name of the form's second answer, where not all could be shown.
const UNSEEN: &str = "unseen";

/// A question on its way to the client.
pub(crate) struct Outgoing {
    params: ElicitRequestParams,
    asked: Asked,
    whole: bool,
    reply: mpsc::Sender<Verdict>,
    withdrawn: CancellationToken,
    nonsense: Arc<AtomicBool>,
}

/// How one call can ask.
pub(crate) struct Asker {
    call_id: String,
    session: String,
    way: Way,
    /// Whether a person's answer was none of those that were offered.
    nonsense: Arc<AtomicBool>,
}

enum Way {
    /// The client's person cannot be asked.
    None,
    /// By a request of ours.
    Request { questions: UnboundedSender<Outgoing>, titled: bool },
    /// By an answer; and what came back of the last one.
    Again { answer: Option<(String, Verdict)> },
}

impl Asker {
    pub(crate) fn new(
        call_id: String,
        session: &str,
        capabilities: Option<&ClientCapabilities>,
        version: Option<&ProtocolVersion>,
        questions: UnboundedSender<Outgoing>,
        answer: Option<(String, Verdict)>,
        nonsense: bool,
    ) -> Self {
        let nonsense = Arc::new(AtomicBool::new(nonsense));
        let way = match version {
            _ if !elicits(capabilities) => Way::None,
            Some(version) if calls_again(version) => Way::Again { answer },
            version => {
                let titled = version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2025_11_25.as_str());
                Way::Request { questions, titled }
            }
        };
        Self { call_id, session: session.to_owned(), way, nonsense }
    }

    pub(crate) fn call_id(&self) -> Option<&str> {
        Some(&self.call_id)
    }

    /// Whether the client's person can be asked.
    pub(crate) fn can_ask(&self) -> bool {
        !matches!(self.way, Way::None)
    }

    /// Whether what was answered was none of the answers.
    pub(crate) fn heard_nonsense(&self) -> bool {
        self.nonsense.load(Ordering::Relaxed)
    }

    /// Whether the client is asked by an answer, and calls again.
    pub(crate) fn asks_again(&self) -> bool {
        matches!(self.way, Way::Again { .. })
    }

    pub(crate) fn answer(&self) -> Option<(&str, Verdict)> {
        match &self.way {
            Way::Again { answer: Some((ask, verdict)) } => Some((ask, *verdict)),
            _ => None,
        }
    }

    /// Adds whoever can answer to a service of approvals.
    pub(crate) fn approvals(&self, approvals: Approvals, wait_elsewhere: bool) -> Approvals {
        match &self.way {
            Way::Request { questions, titled } => {
                let elicitor = Elicitor {
                    questions: questions.clone(),
                    session: self.session.clone(),
                    titled: *titled,
                    nonsense: Arc::clone(&self.nonsense),
                };
                // Whoever answers first, here or in another process, has answered.
                approvals.with(elicitor).answered_elsewhere()
            }
            _ if wait_elsewhere => approvals.answered_elsewhere(),
            _ => approvals.with(|_: &Question<'_>| Some(Verdict::Unavailable)),
        }
    }
}

/// Whether a revision knows no request of a server's.
pub(crate) fn calls_again(version: &ProtocolVersion) -> bool {
    version.as_str() >= ProtocolVersion::V_2026_07_28.as_str()
}

/// Whether a client shows forms to a person. One that names no kind of elicitation means forms.
fn elicits(capabilities: Option<&ClientCapabilities>) -> bool {
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation.as_ref());
    elicitation.is_some_and(|it| it.form.is_some() || it.url.is_none())
}

/// Asks through the client.
struct Elicitor {
    questions: UnboundedSender<Outgoing>,
    session: String,
    titled: bool,
    nonsense: Arc<AtomicBool>,
}

impl Approver for Elicitor {
    fn answer(&self, question: &Question<'_>) -> Option<Verdict> {
        let (params, whole) = form(&self.session, question.asked, self.titled)?;
        let (reply, replied) = mpsc::channel();
        let withdrawn = CancellationToken::new();
        let asked = question.asked.clone();
        let outgoing = Outgoing {
            params,
            asked,
            whole,
            reply,
            withdrawn: withdrawn.clone(),
            nonsense: Arc::clone(&self.nonsense),
        };
        if self.questions.send(outgoing).is_err() {
            return Some(Verdict::Cancelled);
        }
        loop {
            match replied.recv_timeout(LOOK) {
                Ok(verdict) => return Some(verdict),
                Err(mpsc::RecvTimeoutError::Disconnected) => return Some(Verdict::Unavailable),
                Err(mpsc::RecvTimeoutError::Timeout)
                    if question.cancel.is_cancelled() || Instant::now() >= question.deadline =>
                {
                    withdrawn.cancel();
                    return Some(if question.cancel.is_cancelled() {
                        Verdict::Cancelled
                    } else {
                        Verdict::Unavailable
                    });
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Sends a question and hands the answer on; withdraws it when it is withdrawn.
pub(crate) async fn elicit(peer: Peer<RoleServer>, outgoing: Outgoing) {
    let Outgoing { params, asked, whole, reply, withdrawn, nonsense } = outgoing;
    let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
    let Ok(mut handle) = peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await else {
        // Nobody listens any more if it is late.
        let _ = reply.send(Verdict::Unavailable);
        return;
    };
    let answered = tokio::select! {
        answered = &mut handle.rx => answered,
        () = withdrawn.cancelled() => {
            // A client that has gone needs no word of it.
            let _ = handle.cancel(Some("the question was answered elsewhere or withdrawn".to_owned())).await;
            return;
        }
    };
    let verdict = match answered {
        Ok(Ok(answer)) => {
            let verdict = match answer {
                ClientResult::ElicitResult(result) => verdict(&asked, whole, &result),
                _ => Verdict::Unavailable,
            };
            // Relaxed: the channel hands it over.
            nonsense.store(verdict == Verdict::Unavailable, Ordering::Relaxed);
            verdict
        }
        _ => Verdict::Unavailable,
    };
    let _ = reply.send(verdict); // as above
}

/// Draws up the form of a question, and says whether all of it is shown.
pub(crate) fn form(session: &str, asked: &Asked, titled: bool) -> Option<(ElicitRequestParams, bool)> {
    let shown = question_text(session, asked);
    let mut values: Vec<String> = (1..=asked.offers.len()).map(|number| number.to_string()).collect();
    let mut titles: Vec<String> = asked
        .offers
        .iter()
        .map(|offer| {
            let life = match offer.life {
                Life::Call => "for this one call",
                Life::Session => "for the rest of the session",
            };
            format!("Allow {}, {life}", offer.scope.describe())
        })
        .collect();
    values.push("no".to_owned());
    titles.push("No".to_owned());
    let mut decision = json!({"type": "string", "title": "Decision"});
    if titled {
        let choices = values.iter().zip(&titles).map(|(value, title)| json!({"const": value, "title": title}));
        decision["oneOf"] = choices.collect();
    } else {
        decision["enum"] = json!(values);
        decision["enumNames"] = json!(titles);
    }
    let mut schema = json!({"type": "object", "properties": {DECISION: decision}, "required": [DECISION]});
    if !shown.whole {
        let title = "Allow it although not all of it is shown";
        schema["properties"][UNSEEN] = json!({"type": "boolean", "title": title, "default": false});
    }
    let schema = schema.as_object().cloned()?;
    let requested_schema = ElicitationSchema::from_json_schema(schema).ok()?;
    let params = ElicitRequestParams::FormElicitationParams { meta: None, message: shown.text, requested_schema };
    Some((params, shown.whole))
}

/// Reads an answer. Only the number of an offer allows, and only together with a word of its own where not all was shown.
pub(crate) fn verdict(asked: &Asked, whole: bool, result: &ElicitResult) -> Verdict {
    match result.action {
        ElicitationAction::Decline => return Verdict::Rejected,
        ElicitationAction::Cancel => return Verdict::Cancelled,
        ElicitationAction::Accept => {}
        #[allow(unreachable_patterns, reason = "the SDK may know more actions one day")]
        _ => return Verdict::Unavailable,
    }
    let content = result.content.as_ref();
    let seen = whole || content.is_some_and(|content| content[UNSEEN] == json!(true));
    match content.and_then(|content| content[DECISION].as_str()) {
        Some("no") => Verdict::Rejected,
        Some(number) if seen => {
            let offers = (0..asked.offers.len()).find(|offer| (offer + 1).to_string() == number);
            offers.map_or(Verdict::Unavailable, Verdict::Allowed)
        }
        _ => Verdict::Unavailable,
    }
}
