//! Lines that are too long to be read. The transport drops them; whoever sent one waits for an answer, so its number is found
//! while it passes by, and nothing of it is kept.

use rmcp::model::NumberOrString;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc::UnboundedSender;

/// The longest number of a request that is looked for, in bytes.
const LONGEST_ID: usize = 256;

/// What is known of a line that was dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    /// The number of its request, if it has one.
    pub(crate) id: Option<NumberOrString>,
    /// How long it was, in bytes.
    pub(crate) bytes: usize,
}

/// An input that tells of lines that are longer than `most`, their end included.
pub(crate) struct Watched<R> {
    inner: R,
    most: usize,
    bytes: usize,
    scan: Scan,
    tell: UnboundedSender<TooLong>,
}

impl<R> Watched<R> {
    pub(crate) fn new(inner: R, most: usize, tell: UnboundedSender<TooLong>) -> Self {
        Self { inner, most, bytes: 0, scan: Scan::default(), tell }
    }

    fn pass(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.bytes += 1;
            if byte != b'\n' {
                self.scan.take(byte);
                continue;
            }
            let (scan, bytes) = (std::mem::take(&mut self.scan), std::mem::take(&mut self.bytes));
            if bytes > self.most {
                // If nobody listens any more, nobody waits either.
                let _ = self.tell.send(TooLong { id: scan.found(), bytes });
            }
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, into))?;
        self.pass(&into.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

/// Finds the member `id` of a request while its bytes pass by: of the outermost object, and of nothing within.
#[derive(Debug, Default)]
struct Scan {
    depth: usize,
    text: bool,
    escaped: bool,
    /// What stands at the outermost level since the last sign there.
    piece: Vec<u8>,
    /// Whether that is the value of the member.
    wanted: bool,
    id: Option<Vec<u8>>,
    /// Whether the object has a method, so that an answer is waited for.
    asks: bool,
}

impl Scan {
    fn take(&mut self, byte: u8) {
        let outermost = self.depth == 1;
        if self.text {
            (self.text, self.escaped) = (self.escaped || byte != b'"', !self.escaped && byte == b'\\');
        } else {
            match byte {
                b'"' => self.text = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if outermost && matches!(byte, b':' | b',' | b'}') {
                self.end_of_piece(byte);
                return;
            }
        }
        // Space between signs is no part of anything; within a text it is.
        if outermost && self.piece.len() <= LONGEST_ID && (self.text || !byte.is_ascii_whitespace()) {
            self.piece.push(byte);
        }
    }

    fn end_of_piece(&mut self, sign: u8) {
        let piece = std::mem::take(&mut self.piece);
        if sign == b':' {
            self.wanted = piece == br#""id""#;
            self.asks |= piece == br#""method""#;
        } else if std::mem::take(&mut self.wanted) {
            self.id = Some(piece).filter(|piece| piece.len() <= LONGEST_ID);
        }
    }

    fn found(self) -> Option<NumberOrString> {
        serde_json::from_slice(&self.id.filter(|_| self.asks)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn id_of(line: &str) -> Option<NumberOrString> {
        let mut scan = Scan::default();
        line.bytes().for_each(|byte| scan.take(byte));
        scan.found()
    }

    #[test]
    fn the_number_is_the_one_of_the_request() {
        let seven = Some(NumberOrString::Number(7));
        for line in [
            r#"{"jsonrpc":"2.0","id":7,"method":"x"}"#,
            r#"{"method":"x","params":{"id":8,"a":[{"id":9}]},"jsonrpc":"2.0","id":7}"#,
            r#" { "method" : "x" , "params" : "\"id\":8,{" , "id" : 7 } "#,
            r#"{"method":"x","params":["id",8],"id":7}"#,
            r#"{"method":"x","text":"\\","id":7}"#,
        ] {
            assert_eq!(id_of(line), seven, "{line}");
        }
        assert_eq!(id_of(r#"{"method":"x","id":"a, \"b"}"#), Some(NumberOrString::String("a, \"b".into())));
        for none in [
            r#"{"method":"x","params":{"id":8}}"#,
            r#"{"id":7,"result":{}}"#,
            r#"{"id":null,"method":"x"}"#,
            r#"{"id":{"id":7},"method":"x"}"#,
            r#"[{"id":7,"method":"x"}]"#,
            "not json",
            "}}}{",
        ] {
            assert_eq!(id_of(none), None, "{none}");
        }
        assert_eq!(id_of(&json!({"method": "x", "id": "y".repeat(300)}).to_string()), None);
    }

    proptest! {
        #[test]
        fn whatever_stands_around_it(id in any::<i64>(), text in ".{0,60}", key in ".{0,10}") {
            let mut message = json!({"method": text, "params": {"id": 1, "x": [text, {"id": 2}]}, "id": id});
            if key != "id" && key != "method" {
                message[key] = Value::from(text);
            }
            prop_assert_eq!(id_of(&message.to_string()), Some(NumberOrString::Number(id)));
        }
    }

    #[tokio::test]
    async fn only_what_is_too_long_is_told_and_everything_is_passed_on() {
        use tokio::io::AsyncReadExt as _;
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let lines = format!("{}\n{}\nshort\n", r#"{"id":1,"method":"x"}"#, json!({"id": 2, "method": "y".repeat(30)}));
        let mut read = String::new();
        Watched::new(lines.as_bytes(), 25, tell).read_to_string(&mut read).await.unwrap();
        assert_eq!(read, lines);
        let long = told.recv().await.unwrap();
        assert_eq!((long.id, told.recv().await), (Some(NumberOrString::Number(2)), None));
    }
}
