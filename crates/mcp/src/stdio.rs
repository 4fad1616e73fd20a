//! The streams of the protocol. They are moved away from where a child or a careless line would find them: what anybody
//! writes to standard output from here on goes to standard error.

use crate::long_lines::{TooLong, Watched};
use rmcp::RoleServer;
use rmcp::model::{ClientRequest, ErrorData, GetMeta as _, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;

/// So many messages may wait to be written before nothing more is read: a client that does not read is not served.
const MOST_UNSENT: usize = 64;
/// The longest message, in bytes, the end of its line included.
const MOST_MESSAGE: usize = 16 << 20;

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

/// Messages as lines of these streams; `ended` is thrown at the end of the input.
pub(crate) fn transport(
    (input, output): (tokio::fs::File, tokio::fs::File),
    ended: CancellationToken,
) -> impl Transport<RoleServer> {
    let (tell, too_long) = unbounded_channel();
    let input = Watched::new(input, MOST_MESSAGE, tell);
    let inner = AsyncRwTransport::new(input, output).with_max_line_length(MOST_MESSAGE);
    Gated { inner, too_long, unsent: Arc::default(), ended, opened: false }
}

/// A transport that stops reading while too much waits to be written, says when its input has ended, answers what is too long
/// to be read, and passes no stray message on before the client has opened the conversation.
struct Gated<T> {
    inner: T,
    too_long: UnboundedReceiver<TooLong>,
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
            let received = tokio::select! {
                received = self.inner.receive() => received,
                Some(dropped) = self.too_long.recv() => {
                    // It counts as every other answer does, and is not waited for: this may be dropped at any time.
                    tokio::spawn(self.send(answer_to(dropped)));
                    continue;
                }
            };
            let Some(message) = received else {
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

fn answer_to(dropped: TooLong) -> TxJsonRpcMessage<RoleServer> {
    let TooLong { id, bytes } = dropped;
    let text = format!("a message may have {MOST_MESSAGE} bytes, and this one has {bytes}: it was not read");
    JsonRpcMessage::error(ErrorData::invalid_request(text, None), id)
}
