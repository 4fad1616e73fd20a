//! One call of a tool: what blocks runs in a thread, and meanwhile progress is told, questions are asked, and a withdrawal is
//! passed on.

use crate::ask::{self, Asker, Outgoing};
use crate::core::locked;
use crate::server::Server;
use crate::tools::arguments::Arguments;
use crate::tools::reply::{Refusal, Reply};
use crate::tools::{Hold, Name};
use pinfold_fence::Abort;
use pinfold_providers::Output;
use pinfold_session::Verdict;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ElicitRequest, ElicitResult, ErrorData, InputRequest, InputRequests,
    InputRequiredResult, ProgressNotificationParam,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;

/// How often progress is told, if the client wants it.
const BEAT: Duration = Duration::from_secs(1);

/// So much of a command's last line is told, in characters.
const MOST_TOLD: usize = 200;

/// The key of a question in an answer that asks to be called again.
const APPROVAL: &str = "approval";

/// Makes a call and answers it.
pub(crate) async fn call(
    server: &Server,
    name: Name,
    params: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let core = Arc::clone(server.core());
    if let Some(wanted) = crate::server::roots_wanted(server, &params, &context).await {
        return Ok(wanted.into());
    }
    let hold = Hold { cancel: core.closing.follower(), abort: Abort::default(), process: Arc::default() };
    let (questions, mut asked) = unbounded_channel::<Outgoing>();
    let (answer, nonsense) = match answer_of(server, &params) {
        Some((ask, verdict, nonsense)) => (Some((ask, verdict)), nonsense),
        None => (None, false),
    };
    let asker = Asker::new(
        context.id.to_string(),
        core.session.id().as_str(),
        context.client_capabilities().as_ref(),
        context.protocol_version().as_ref(),
        questions,
        answer,
        nonsense,
    );
    let token = context.meta.get_progress_token();
    let arguments = Arguments::new(params.arguments);
    let (thread_core, thread_hold) = (Arc::clone(&core), hold.clone());
    let mut work =
        tokio::task::spawn_blocking(move || crate::tools::call(&thread_core, name, arguments, &asker, &thread_hold));
    let begun = Instant::now();
    let mut beat = tokio::time::interval_at(tokio::time::Instant::now() + BEAT, BEAT);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut told = 0_u64;
    let mut seen = [0_u64; 2];
    let mut asking: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
    let mut withdrawn = false;
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            () = async { context.ct.cancelled().await }, if !withdrawn => {
                withdrawn = true;
                hold.withdraw();
            }
            () = server.ending().cancelled(), if !withdrawn => {
                withdrawn = true;
                hold.withdraw();
            }
            Some(outgoing) = asked.recv() => asking = Some(Box::pin(ask::elicit(context.peer.clone(), outgoing))),
            () = async { match asking.as_mut() { Some(asking) => asking.await, None => std::future::pending().await } } => {
                asking = None;
            }
            _ = beat.tick(), if token.is_some() => {
                if let Some(token) = token.clone() {
                    // It has to grow each time.
                    told = (told + 1).max(begun.elapsed().as_secs());
                    let message = progress_of(name, &hold, begun, &mut seen);
                    tell(&context.peer, ProgressNotificationParam::new(token, told as f64).with_message(message));
                }
            }
        }
    };
    if let Some(asking) = asking {
        // A question that was withdrawn with its call is taken back before the call is answered.
        let _ = tokio::time::timeout(Duration::from_secs(1), asking).await;
    }
    match result {
        Ok(Ok(Reply::Done(result))) => Ok((*result).into()),
        Ok(Ok(Reply::Ask(question))) => {
            let word = core
                .keep_question(&question.id)
                .map_err(|error| ErrorData::internal_error(format!("no random word can be had: {error}"), None))?;
            let Some((params, _)) = ask::form(core.session.id().as_str(), &question, true) else {
                return Ok(Refusal::new("ESCALATION_REFUSED", "the question cannot be shown").into_result().into());
            };
            let request = InputRequest::Elicitation(ElicitRequest::new(params));
            let requests = InputRequests::from([(APPROVAL.to_owned(), request)]);
            Ok(InputRequiredResult::new(Some(requests), Some(word)).into())
        }
        Ok(Err(refusal)) => Ok(refusal.into_result().into()),
        Err(error) => Err(ErrorData::internal_error(format!("the call has failed: {error}"), None)),
    }
}

/// Reads what a client hands back of a question: which one it was, what its person decided, and whether that is none of the
/// answers.
fn answer_of(server: &Server, params: &CallToolRequestParams) -> Option<(String, Verdict, bool)> {
    let ask = server.core().question_of(params.request_state.as_deref()?)?;
    let given = params.input_responses.as_ref()?.get(APPROVAL)?;
    let session = &server.core().session;
    let verdict = match serde_json::from_value::<ElicitResult>(given.clone()) {
        Err(_) => return Some((ask, Verdict::Unavailable, true)),
        Ok(result) => match session.state().ok()?.open_ask(&ask) {
            Some(asked) => {
                let whole = pinfold_session::terminal::question_text(session.id().as_str(), asked).whole;
                let verdict = ask::verdict(asked, whole, &result);
                let nonsense = verdict == Verdict::Unavailable;
                return Some((ask, verdict, nonsense));
            }
            // It was answered elsewhere, and that counts.
            None => Verdict::Unavailable,
        },
    };
    Some((ask, verdict, false))
}

/// Sends progress without waiting for a client that does not read.
fn tell(peer: &Peer<RoleServer>, progress: ProgressNotificationParam) {
    let peer = peer.clone();
    tokio::spawn(async move {
        // A client that has gone needs no word of it.
        let _ = tokio::time::timeout(BEAT, peer.notify_progress(progress)).await;
    });
}

/// What there is to tell of a call: the last line that its command wrote, or how long it takes.
fn progress_of(name: Name, hold: &Hold, begun: Instant, seen: &mut [u64; 2]) -> String {
    let process = locked(&hold.process).clone();
    let mut last = None;
    if let Some(process) = process {
        for (index, output) in [Output::Stdout, Output::Stderr].into_iter().enumerate() {
            let observed = process.observe(output, seen[index]);
            seen[index] = observed.next;
            last = observed.text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned).or(last);
        }
    }
    let seconds = begun.elapsed().as_secs();
    match last {
        Some(line) => {
            let plain = line.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
            format!("{seconds} s: {}", plain.take(MOST_TOLD).collect::<String>().trim())
        }
        None => format!("{seconds} s: {} is at work", name.as_str()),
    }
}
