//! `pinfold approve`: answer, on this terminal, what calls of other processes ask for.

use crate::arguments::Approve;
use crate::signals::Watch;
use crate::surroundings::Surroundings;
use crate::voice::{Form, complain_session, say, session_status};
use pinfold_providers::Cancel;
use pinfold_session::log::event::{Asked, By};
use pinfold_session::log::now;
use pinfold_session::terminal::Terminal;
use pinfold_session::{Access, Approver as _, Question, Session, SessionError, Store, Verdict};
use std::time::{Duration, Instant};

/// How often is looked for questions while waiting.
const LOOK: Duration = Duration::from_millis(200);

/// Asks for every open question and returns the exit status.
pub(crate) fn approve(arguments: &Approve, around: &Surroundings) -> u8 {
    match answer_all(arguments, around) {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) => {
            complain_session(&error, Form::Text);
            session_status(&error)
        }
    }
}

/// Returns whether nothing is left open.
fn answer_all(arguments: &Approve, around: &Surroundings) -> Result<bool, SessionError> {
    let wait = arguments.wait.as_deref().map(crate::request::timeout).transpose()?;
    let store = Store::open(&Store::place(around.home.as_deref())?)?;
    let terminal = Terminal::default();
    if !terminal.is_present() {
        let detail = "there is no terminal to ask on; nothing was answered".to_owned();
        return Err(SessionError::Refused { detail });
    }
    let watch = Watch::begin().map_err(|error| SessionError::Refused { detail: format!("signals: {error}") })?;
    let deadline = wait.and_then(|wait| Instant::now().checked_add(wait));
    loop {
        let open = open_questions(&store, arguments.session.as_deref())?;
        let none = open.is_empty();
        let mut left = false;
        for (session, asked) in open {
            left |= !ask(&store, &terminal, &session, &asked, &watch)?;
        }
        if !none {
            return Ok(!left);
        }
        if deadline.is_none_or(|deadline| Instant::now() >= deadline) || watch.cancel.wait(LOOK) {
            say("no question is open");
            return Ok(true);
        }
    }
}

fn open_questions(store: &Store, only: Option<&str>) -> Result<Vec<(Session, Asked)>, SessionError> {
    let mut open = Vec::new();
    let ids = match only {
        Some(id) => vec![id.to_owned()],
        None => store.list()?,
    };
    for id in ids {
        let session = match store.session(&id, Access::Append) {
            Ok(session) => session,
            Err(error) if only.is_some() => return Err(error),
            // A session that cannot be used asks for nothing.
            Err(_) => continue,
        };
        let state = match session.state() {
            Ok(state) => state,
            Err(error) if only.is_some() => return Err(error),
            Err(_) => continue,
        };
        // An answer to somebody who has ended is for nobody.
        let is_open = |asked: &&Asked| now() < asked.until && !asked.is_orphaned();
        let asked: Vec<_> = state.open_asks().filter(is_open).cloned().collect();
        let mut asked = asked.into_iter();
        if let Some(first) = asked.next() {
            open.push((session, first));
            for more in asked {
                open.push((store.session(&id, Access::Append)?, more));
            }
        }
    }
    Ok(open)
}

/// Asks one question; returns whether it has an answer.
fn ask(
    store: &Store,
    terminal: &Terminal,
    session: &Session,
    asked: &Asked,
    watch: &Watch,
) -> Result<bool, SessionError> {
    let over = Cancel::new();
    let looking = store.session(session.id().as_str(), Access::Read)?;
    let (until, cancel, id) = (over.clone(), watch.cancel.clone(), asked.id.clone());
    // The question goes from the screen when somebody else has answered it, or whoever asked has ended. The thread ends
    // with it, or with us.
    let spawned = std::thread::Builder::new().name("question".to_owned()).spawn(move || {
        let is_open =
            || looking.state().is_ok_and(|state| state.open_ask(&id).is_some_and(|asked| !asked.is_orphaned()));
        while !until.is_cancelled() && !cancel.wait(LOOK) && is_open() {}
        until.cancel();
    });
    spawned.map_err(|error| SessionError::Refused { detail: format!("no thread: {error}") })?;
    let answered = show(terminal, session, asked, &over);
    over.cancel();
    // Nothing is left open where nobody waits any more.
    Ok(answered? || session.state()?.open_ask(&asked.id).is_none_or(Asked::is_orphaned))
}

/// Shows one question and takes the answer; returns whether it has one.
fn show(terminal: &Terminal, session: &Session, asked: &Asked, over: &Cancel) -> Result<bool, SessionError> {
    let left = Duration::from_millis(asked.until.saturating_sub(now()));
    let now = Instant::now();
    let question = Question {
        session: session.id(),
        asked,
        deadline: now.checked_add(left).unwrap_or(now + Duration::from_secs(86_400)),
        cancel: over,
    };
    let verdict = match terminal.answer(&question) {
        // Whoever asks on this terminal has not answered; somebody else still may.
        None | Some(Verdict::Cancelled | Verdict::Unavailable) => return Ok(false),
        Some(verdict) => verdict,
    };
    match session.answer(&asked.id, verdict, By::User) {
        Ok(()) => {
            say(if verdict == Verdict::Rejected { "rejected" } else { "allowed" });
            Ok(true)
        }
        Err(SessionError::Refused { detail }) => {
            say(&format!("too late: {detail}"));
            Ok(true)
        }
        Err(error) => Err(error),
    }
}
