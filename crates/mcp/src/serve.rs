//! From the first message to an ordered end.
//!
//! At the end of the input, or when told to stop, every call is withdrawn, every command of the session is ended and waited
//! for, and what is still to be answered is answered as long as somebody reads.

use crate::core::Core;
use crate::http::{self, TokenFile};
use crate::server::Servers;
use crate::setup::Setup;
use crate::stdio;
use pinfold_executor::ExecutorError;
use pinfold_providers::Cancel;
use pinfold_session::SessionError;
use rmcp::service::serve_server_with_ct;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often is looked whether another process has changed the session.
const WATCH: Duration = Duration::from_secs(2);
/// How long answers may still be written after everything has ended.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// More than calls and streams need at once.
const THREADS: usize = 600;

/// Where clients are heard.
#[derive(Debug)]
pub enum Way {
    /// Standard input and output.
    Stdio,
    /// HTTP on loopback, at this port or with 0 at a free one.
    Http(u16),
}

/// Why a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client has closed its end.
    Input,
    /// It was told to stop.
    Stopped,
}

/// Why nothing was served.
#[derive(Debug)]
pub enum Failure {
    /// Session, configuration or sandbox refuse.
    Session(SessionError),
    /// Settings of commands cannot be served.
    Executor(ExecutorError),
    /// The host lacks something.
    Host(&'static str, io::Error),
    /// The token would not be out of reach.
    Exposed(String),
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        Self::Session(error)
    }
}

impl From<ExecutorError> for Failure {
    fn from(error: ExecutorError) -> Self {
        Self::Executor(error)
    }
}

/// What there is to say while a server runs.
#[derive(Debug)]
pub enum Notice<'a> {
    /// HTTP is served at this address, for who shows what this file holds.
    Listening {
        /// The address.
        url: &'a str,
        /// The file of the token.
        token: &'a std::path::Path,
    },
    /// Something went wrong at the end.
    Wrong(&'a str),
}

/// Serves one session until its client goes or `stop` is thrown.
///
/// # Errors
///
/// [`Failure`]; then nothing was served. The session is ended if it is the server's own.
pub fn serve(setup: Setup, way: &Way, stop: &Cancel, say: &dyn Fn(&Notice<'_>)) -> Result<Ended, Failure> {
    // The streams are taken before anything else can write to them.
    let streams = match way {
        Way::Stdio => Some(stdio::take().map_err(|error| Failure::Host("the standard streams", error))?),
        Way::Http(_) => None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::Host("threads", error))?;
    let core = Arc::new(Core::new(setup)?);
    let result = runtime.block_on(async {
        let result = converse(&core, way, streams, stop, say).await;
        let last = Arc::clone(&core);
        if let Ok(wrong) = tokio::task::spawn_blocking(move || last.shut_down()).await {
            wrong.iter().for_each(|wrong| say(&Notice::Wrong(wrong)));
        }
        result
    });
    // A thread that reads from a client which neither speaks nor goes is not waited for.
    runtime.shutdown_background();
    result
}

async fn converse(
    core: &Arc<Core>,
    way: &Way,
    streams: Option<(tokio::fs::File, tokio::fs::File)>,
    stop: &Cancel,
    say: &dyn Fn(&Notice<'_>),
) -> Result<Ended, Failure> {
    let stopped = follow(stop).map_err(|error| Failure::Host("a thread", error))?;
    let ending = CancellationToken::new();
    let first = Arc::clone(core);
    let instructions = tokio::task::spawn_blocking(move || {
        let text = first.policy_text()?;
        first.announce(text.clone());
        Ok::<_, SessionError>(text)
    });
    let instructions = instructions.await.map_err(|error| Failure::Host("a thread", io::Error::other(error)))??;
    let servers = Servers::new(Arc::clone(core), ending.clone(), instructions);
    let watcher = tokio::spawn(watch(Arc::clone(core)));
    let ended = match (way, streams) {
        (Way::Stdio, Some(streams)) => over_streams(core, &servers, streams, &stopped, &ending).await,
        (Way::Http(port), _) => over_http(core, servers, *port, &stopped, &ending, say).await?,
        (Way::Stdio, None) => Ended::Input,
    };
    watcher.abort();
    Ok(ended)
}

/// A token that is thrown along with a switch of threads.
fn follow(stop: &Cancel) -> io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let (stop, thrown) = (stop.clone(), token.clone());
    std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
        while !stop.wait(Duration::from_secs(3600)) {}
        thrown.cancel();
    })?;
    Ok(token)
}

async fn over_streams(
    core: &Arc<Core>,
    servers: &Servers,
    streams: (tokio::fs::File, tokio::fs::File),
    stopped: &CancellationToken,
    ending: &CancellationToken,
) -> Ended {
    let service_ct = CancellationToken::new();
    let input_ended = CancellationToken::new();
    let transport = stdio::transport(streams, input_ended.clone());
    let (server, ct, over) = (servers.connect(), service_ct.clone(), input_ended.clone());
    let serving = tokio::spawn(async move {
        if let Ok(running) = serve_server_with_ct(server, transport, ct).await {
            let _ = running.waiting().await; // how it ended is known
        }
        // Also if the conversation could not be opened, nobody is heard any more.
        over.cancel();
    });
    let ended = tokio::select! {
        () = input_ended.cancelled() => Ended::Input,
        () = stopped.cancelled() => Ended::Stopped,
    };
    ending.cancel();
    // Calls are withdrawn, and meanwhile the SDK writes what they answer.
    let last = Arc::clone(core);
    let _ = tokio::task::spawn_blocking(move || last.end_commands()).await; // a failed thread is no reason to stay
    let last_words = async {
        if ended == Ended::Stopped {
            service_ct.cancel();
        }
        let _ = serving.await; // as above
    };
    let _ = tokio::time::timeout(LAST_WORDS, last_words).await; // a client that does not read is not waited for
    ended
}

async fn over_http(
    core: &Arc<Core>,
    servers: Servers,
    port: u16,
    stopped: &CancellationToken,
    ending: &CancellationToken,
    say: &dyn Fn(&Notice<'_>),
) -> Result<Ended, Failure> {
    let file = TokenFile::make(&core.directory).map_err(|error| Failure::Host("a file for the token", error))?;
    if let Some(why) = http::within_reach(core, &file)? {
        return Err(Failure::Exposed(why));
    }
    let listener = http::listen(port).await.map_err(|error| Failure::Host("a port on loopback", error))?;
    let address = listener.local_addr().map_err(|error| Failure::Host("a port on loopback", error))?;
    say(&Notice::Listening { url: &format!("http://{address}/mcp"), token: file.path() });
    let closed = CancellationToken::new();
    let serving = http::serve(listener, servers, &file, closed.clone());
    let ends = async {
        stopped.cancelled().await;
        ending.cancel();
        let last = Arc::clone(core);
        let _ = tokio::task::spawn_blocking(move || last.end_commands()).await; // as above
        // What was withdrawn is answered before connections close.
        tokio::time::sleep(Duration::from_millis(200)).await;
        closed.cancel();
    };
    tokio::join!(serving, ends);
    Ok(Ended::Stopped)
}

/// Tells clients when another process has changed what holds in the session.
async fn watch(core: Arc<Core>) {
    let mut known: Option<(u64, String, bool)> = None;
    loop {
        let (core_now, before) = (Arc::clone(&core), known.as_ref().map(|(events, ..)| *events));
        let look = tokio::task::spawn_blocking(move || {
            let events = core_now.session.state()?.events();
            if before == Some(events) {
                return Ok(None);
            }
            Ok::<_, SessionError>(Some((events, core_now.policy_text()?, core_now.confines()?)))
        });
        if let Ok(Ok(Some(now))) = look.await {
            if let Some((_, text, confines)) = &known
                && (*text != now.1 || *confines != now.2)
            {
                for connection in core.connections() {
                    connection.policy_changed(*confines != now.2).await;
                }
            }
            known = Some(now);
        }
        tokio::time::sleep(WATCH).await;
    }
}
