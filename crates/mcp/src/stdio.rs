//! The streams of the protocol. They are moved away from where a child or a careless line would find them: what anybody
//! writes to standard output from here on goes to standard error.

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, GetMeta as _, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// So many messages may wait to be written before nothing more is read: a client that does not read is not served.
const MOST_UNSENT: usize = 64;

/// Takes standard input and output away, for good.
///
/// # Errors
///
/// The host's.
pub(crate) fn take() -> io::Result<(tokio::fs::File, tokio::fs::File)> {
    let input = own(io::stdin())?;
    let output = own(io::stdout())?;
    let nothing = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(nothing)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok((file(input), file(output)))
}

/// A descriptor of ours for the same stream, which no program that is started inherits.
fn own(stream: impl AsFd) -> io::Result<OwnedFd> {
    let own = rustix::io::fcntl_dupfd_cloexec(stream, 3)?;
    // Reads and writes wait in threads; a stream that was set otherwise would answer with errors.
    let flags = rustix::fs::fcntl_getfl(&own)?;
    if flags.contains(OFlags::NONBLOCK) {
        rustix::fs::fcntl_setfl(&own, flags - OFlags::NONBLOCK)?;
    }
    Ok(own)
}

fn file(descriptor: OwnedFd) -> tokio::fs::File {
    tokio::fs::File::from_std(descriptor.into())
}

/// A transport that stops reading while too much waits to be written, says when its input has ended, and passes no stray
/// message on before the client has opened the conversation.
pub(crate) struct Gated<T> {
    inner: T,
    unsent: Arc<Unsent>,
    ended: CancellationToken,
    opened: bool,
}

#[derive(Default)]
struct Unsent {
    count: AtomicUsize,
    fewer: Notify,
}

/// One message that waits to be written.
struct One(Arc<Unsent>);

impl Drop for One {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.fewer.notify_waiters();
    }
}

impl<T> Gated<T> {
    /// Wraps a transport; `ended` is thrown at the end of its input.
    pub(crate) fn new(inner: T, ended: CancellationToken) -> Self {
        Self { inner, unsent: Arc::default(), ended, opened: false }
    }

    /// Whether a message may open the conversation, or comes after one that did.
    fn is_due(&mut self, message: &RxJsonRpcMessage<RoleServer>) -> bool {
        if let JsonRpcMessage::Request(request) = message {
            let opens = matches!(request.request, ClientRequest::InitializeRequest(_))
                || request.request.get_meta().protocol_version().is_some();
            self.opened |= opens && !matches!(request.request, ClientRequest::DiscoverRequest(_));
            return true;
        }
        self.opened
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Gated<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.unsent.count.fetch_add(1, Ordering::SeqCst);
        let one = One(Arc::clone(&self.unsent));
        let sending = self.inner.send(item);
        async move {
            let sent = sending.await;
            drop(one);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            loop {
                // It listens before the count is looked at, so that no message is missed.
                let mut fewer = std::pin::pin!(self.unsent.fewer.notified());
                fewer.as_mut().enable();
                if self.unsent.count.load(Ordering::SeqCst) < MOST_UNSENT {
                    break;
                }
                fewer.await;
            }
            let Some(message) = self.inner.receive().await else {
                self.ended.cancel();
                return None;
            };
            if self.is_due(&message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
