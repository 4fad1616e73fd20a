//! Streamable HTTP on loopback. It is off unless somebody asks for it, and nobody is served without the token.
//!
//! SECURITY: a confined command may reach loopback and knows the port; what it cannot have is the token, which lies in a
//! private file that is closed for reading inside. Where that cannot be held, nothing is served.

use crate::core::{Core, locked};
use crate::server::Servers;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONNECTION, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use pinfold_policy::quote::quote;
use pinfold_providers::{Operation, Question, Ruling};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// So many connections of clients are open at once; a further one is told to come again.
const MOST_CLIENTS: usize = 64;
/// So many connections that have shown no token are open at once; the oldest gives way to a further one.
const MOST_STRANGERS: usize = 64;
/// The largest request, in bytes; as on standard input.
const MOST_BODY: usize = 16 << 20;
/// How long a client has to send the headers of a request; so long may a connection be idle, too.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// The file of the token, in the session's directory.
const TOKEN_FILE: &str = "mcp-token";

/// What a client has to show.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Whether the header of a request shows it. The time that this takes does not tell how much of it is right.
    fn is_shown_by(&self, header: Option<&HeaderValue>) -> bool {
        let shown = header.and_then(|header| header.as_bytes().split_at_checked("Bearer ".len()));
        shown.is_some_and(|(scheme, shown)| {
            scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(shown.ct_eq(self.0.as_bytes()))
        })
    }
}

/// The file of a token; it goes with the server.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    token: Token,
}

impl TokenFile {
    /// Makes a new token and writes it down for this user alone.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn make(directory: &Path) -> io::Result<Self> {
        let path = directory.join(TOKEN_FILE);
        let token = crate::core::nonce()?;
        // One that a killed server left is replaced, not written into.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(token.as_bytes())?;
        Ok(Self { path, token: Token(token.into()) })
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        // Without the server it opens nothing.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens the port: a given one, or with 0 a free one. On loopback only.
pub(crate) async fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
}

/// Says why a token would not be out of reach of the session's commands.
pub(crate) fn within_reach(core: &Core, file: &TokenFile) -> Result<Option<String>, pinfold_session::SessionError> {
    let standing = core.standing()?;
    // Where nothing confines, every command has everything anyway.
    let Some(policy) = standing.resolved.policy.confined() else { return Ok(None) };
    let question = Question { path: file.path.clone(), operation: Operation::Read, policy };
    let answer = core.provider.explain(&question, &standing.options)?;
    let why = "no usable backend can close it for reading; see: pinfold doctor";
    Ok((answer.ruling != Ruling::Denied).then(|| format!("{} is within reach of commands: {why}", quote(&file.path))))
}

/// Serves until it is stopped.
pub(crate) async fn serve(listener: TcpListener, servers: Servers, token: &TokenFile, stop: CancellationToken) {
    let config = StreamableHttpServerConfig::default()
        .enforce_origin_validation()
        .with_max_request_body_bytes(MOST_BODY)
        .with_cancellation_token(stop.child_token());
    let service =
        StreamableHttpService::new(move || Ok(servers.connect()), Arc::new(LocalSessionManager::default()), config);
    let doors = Doors { strangers: Arc::default(), clients: Arc::new(Semaphore::new(MOST_CLIENTS)) };
    loop {
        let (stream, _) = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(_) => {
                    // No descriptor is left, or the client has gone: the next one may do better.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let visitor = doors.visitor();
        let (service, token, stop) = (service.clone(), token.token.clone(), stop.clone());
        tokio::spawn(async move {
            let at_the_door = &visitor;
            let answer = hyper::service::service_fn(move |request: Request<Incoming>| {
                let (service, shown) = (service.clone(), token.is_shown_by(request.headers().get(AUTHORIZATION)));
                async move {
                    Ok::<_, Infallible>(match shown {
                        true if at_the_door.enter() => service.handle(request).await,
                        true => {
                            refusal(StatusCode::SERVICE_UNAVAILABLE, "too many connections\n").map(|body| body.boxed())
                        }
                        false => refusal(StatusCode::UNAUTHORIZED, "a token is needed\n").map(|body| body.boxed()),
                    })
                }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            let connection = builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_WITHIN)
                .serve_connection(TokioIo::new(stream), answer);
            tokio::select! {
                // How it ended concerns the client.
                _ = connection => {}
                () = visitor.sent_away() => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// How many are let in, and who waits at the door.
///
/// SECURITY: a command that is confined can connect as often as it likes, but has no token. What it holds open never counts
/// against a client: whoever has not shown a token yet gives way to whoever comes next.
struct Doors {
    strangers: Arc<Mutex<VecDeque<Arc<CancellationToken>>>>,
    clients: Arc<Semaphore>,
}

impl Doors {
    /// Takes somebody to the door; who has waited there the longest goes, if too many do.
    fn visitor(&self) -> Visitor {
        let away = Arc::new(CancellationToken::new());
        let mut strangers = locked(&self.strangers);
        strangers.push_back(Arc::clone(&away));
        if strangers.len() > MOST_STRANGERS
            && let Some(longest) = strangers.pop_front()
        {
            longest.cancel();
        }
        let (strangers, clients) = (Arc::clone(&self.strangers), Arc::clone(&self.clients));
        Visitor { strangers, clients, away, place: OnceLock::new() }
    }
}

/// One connection.
struct Visitor {
    strangers: Arc<Mutex<VecDeque<Arc<CancellationToken>>>>,
    clients: Arc<Semaphore>,
    away: Arc<CancellationToken>,
    /// A client's place, from its token on.
    place: OnceLock<OwnedSemaphorePermit>,
}

impl Visitor {
    /// Lets in who has shown the token, if there is room.
    fn enter(&self) -> bool {
        if self.place.get().is_none() {
            let Ok(place) = Arc::clone(&self.clients).try_acquire_owned() else { return false };
            // Requests of one connection come one after the other.
            let _ = self.place.set(place);
            self.leave_the_door();
        }
        true
    }

    fn leave_the_door(&self) {
        locked(&self.strangers).retain(|stranger| !Arc::ptr_eq(stranger, &self.away));
    }

    /// Comes true for who had to give way, or has shown no token in time.
    async fn sent_away(&self) {
        tokio::select! {
            () = self.away.cancelled() => {}
            () = tokio::time::sleep(HEADERS_WITHIN) => {}
        }
        if self.place.get().is_some() {
            std::future::pending().await
        }
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.leave_the_door();
    }
}

/// An answer after which the connection is closed, whatever else was sent.
fn refusal(status: StatusCode, why: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(why.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_token_is_shown_whole_or_not_at_all() {
        let token = Token("abcdef".into());
        let shown = |header: &str| token.is_shown_by(Some(&HeaderValue::from_str(header).unwrap()));
        assert!(shown("Bearer abcdef") && shown("bearer abcdef"));
        for wrong in
            ["", "Bearer", "Bearer ", "Bearer abcde", "Bearer abcdefg", "Bearer  abcdef", "Basic abcdef", "abcdef"]
        {
            assert!(!shown(wrong), "{wrong}");
        }
        assert!(!token.is_shown_by(None));
    }

    #[test]
    fn a_token_s_file_is_private_new_each_time_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        let file = TokenFile::make(directory.path()).unwrap();
        let first = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(first.len(), 64);
        assert_eq!(std::fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        std::mem::forget(file);
        let again = TokenFile::make(directory.path()).unwrap();
        assert_ne!(std::fs::read_to_string(again.path()).unwrap(), first);
        let path = again.path().to_owned();
        drop(again);
        assert!(!path.exists());
    }
}
