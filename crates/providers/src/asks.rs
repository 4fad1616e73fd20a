//! Single effects that the broker refuses and about which somebody is asked while the command waits.
//!
//! The broker decides what is asked, performs what is permitted, and looks at everything anew before it does; here its
//! questions are carried to whoever answers. The channel is a socket pair: one end is ours, the other the broker's, and the
//! command has neither. Whatever goes wrong is a no.

use crate::cancel::Cancel;
use crate::run::{Hold, passable};
use crate::status::unescaped;
use pinfold_policy::DeniedProcess;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A question has at most four paths (one is where a link leads) and 8 KiB of arguments, each byte of which may be escaped to four.
const LONGEST_QUESTION: usize = 128 << 10;
/// How long an answerer has to come back when its question was withdrawn because the command ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// Describes one effect that was refused and can be permitted, as somebody who is asked sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedEffect {
    /// The call, such as `open` or `rename`.
    pub operation: String,
    /// The path that is protected, as it was resolved: absolute, and without links.
    pub path: PathBuf,
    /// The call's other path, or the target of a link.
    pub other: Option<PathBuf>,
    /// Where a link leads that is moved, or what metadata would become, as a person reads it.
    pub detail: Option<OsString>,
    /// The rule that forbids it; none for metadata outside of the writable places.
    pub rule: Option<String>,
    /// The process that waits.
    pub process: DeniedProcess,
    /// Its command line, as it shows it itself.
    pub argv: Vec<OsString>,
    /// Whether these are all of its arguments.
    pub argv_is_whole: bool,
}

/// Holds a question for whoever answers.
#[derive(Debug)]
pub struct EffectQuestion<'a> {
    /// The effect.
    pub effect: &'a RefusedEffect,
    /// How long an answer counts, from now on.
    pub patience: Duration,
    /// Thrown when no answer counts any more: the process was killed, time passed, or the command ended.
    pub withdrawn: &'a Cancel,
}

/// Answers a question: true permits exactly this effect once. It is called in a thread of its own, for one question after the
/// other, and has to return soon when the question is withdrawn. A panic is a no.
pub type OnRefusal = Arc<dyn Fn(&EffectQuestion<'_>) -> bool + Send + Sync>;

/// Holds who is asked about refused effects. Without protected names in the call nobody is.
#[derive(Clone)]
pub struct Asks {
    /// How long the command waits for each answer; whole seconds, at least one.
    pub patience: Duration,
    /// Nothing is asked about these paths and what lies below; physical. Pinfold's programs and runtime directory, its own
    /// settings, and what is denied for reading are never asked about anyway.
    pub never: Vec<PathBuf>,
    /// Who answers.
    pub answer: OnRefusal,
}

impl std::fmt::Debug for Asks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asks").field("patience", &self.patience).field("never", &self.never).finish_non_exhaustive()
    }
}

/// What the broker is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskWords {
    pub(crate) descriptor: i32,
    pub(crate) seconds: u64,
    pub(crate) never: Vec<PathBuf>,
}

/// Makes the channel: our end, and the one to pass on.
pub(crate) fn channel_for_broker() -> io::Result<(OwnedFd, OwnedFd)> {
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    Ok((ours, passable(&theirs)?))
}

/// Questions that are carried as long as this lives.
pub(crate) struct Carried {
    channel: Arc<OwnedFd>,
    ended: Receiver<()>,
}

impl Drop for Carried {
    fn drop(&mut self) {
        // What is still open is withdrawn: whoever shows a question or has written it down should see it end.
        let _ = rustix::net::shutdown(&*self.channel, Shutdown::Both);
        let _ = self.ended.recv_timeout(FAREWELL);
    }
}

/// Begins to carry questions and answers. What the command writes is held while a question stands.
pub(crate) fn carry(channel: OwnedFd, asks: &Asks, hold: &Hold) -> io::Result<Carried> {
    let channel = Arc::new(channel);
    let (tell, ended) = self::channel();
    let (ours, asks, hold) = (Arc::clone(&channel), asks.clone(), Arc::clone(hold));
    std::thread::Builder::new().name("asks".to_owned()).spawn(move || {
        read_questions(&ours, &asks, &hold, tell);
    })?;
    Ok(Carried { channel, ended })
}

/// Reads until the other end is gone. `tell` is dropped when nobody answers any more.
fn read_questions(channel: &Arc<OwnedFd>, asks: &Asks, hold: &Hold, tell: std::sync::mpsc::Sender<()>) {
    let mut open: Option<(u64, Cancel)> = None;
    let mut buffer = vec![0; LONGEST_QUESTION];
    loop {
        let packet = match rustix::net::recv(&**channel, &mut buffer[..], RecvFlags::TRUNC) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) | Ok((0, _)) => break,
            Ok((_, count)) => buffer.get(..count),
        };
        match packet.and_then(|packet| std::str::from_utf8(packet).ok()).and_then(Heard::read) {
            Some(Heard::Question { id, patience, effect }) => {
                withdraw(&mut open);
                let withdrawn = Cancel::new();
                open = Some((id, withdrawn.clone()));
                let (ours, answer, tell) = (Arc::clone(channel), Arc::clone(&asks.answer), tell.clone());
                let hold = Arc::clone(hold);
                let thread = std::thread::Builder::new().name("answer".to_owned()).spawn(move || {
                    let _tell = tell;
                    // Nobody panics while he has it, so it cannot be poisoned.
                    let held = hold.lock();
                    let question = EffectQuestion { effect: &effect, patience, withdrawn: &withdrawn };
                    let asked = std::panic::AssertUnwindSafe(|| answer(&question));
                    let yes = std::panic::catch_unwind(asked).unwrap_or(false);
                    drop(held);
                    say(&ours, id, yes && !withdrawn.is_cancelled());
                });
                if thread.is_err() {
                    say(channel, id, false);
                }
            }
            Some(Heard::Closed(id)) if open.as_ref().is_some_and(|(known, _)| *known == id) => withdraw(&mut open),
            Some(Heard::Closed(_)) => {}
            // The broker is ours; what it would say that we cannot read is not to be answered.
            None => break,
        }
    }
    let _ = rustix::net::shutdown(&**channel, Shutdown::Both);
    withdraw(&mut open);
}

fn withdraw(open: &mut Option<(u64, Cancel)>) {
    if let Some((_, withdrawn)) = open.take() {
        withdrawn.cancel();
    }
}

fn say(channel: &OwnedFd, id: u64, yes: bool) {
    let text = format!("{} {id}", if yes { "once" } else { "deny" });
    // Without an answer the broker refuses.
    let _ = rustix::net::send(channel, text.as_bytes(), SendFlags::NOSIGNAL);
}

/// What the broker says.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Question { id: u64, patience: Duration, effect: RefusedEffect },
    Closed(u64),
}

impl Heard {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        match (words.next()?, words.next()?.parse().ok()?) {
            ("closed", id) => Some(Self::Closed(id)),
            ("ask", id) => {
                let patience = Duration::from_secs(words.next()?.parse().ok()?);
                let operation = words.next()?.to_owned();
                let rule = Some(words.next()?.to_owned()).filter(|rule| rule != "-");
                let process = DeniedProcess { pid: words.next()?.parse().ok()?, name: words.next()?.to_owned() };
                let bytes = |word: &str| OsString::from_vec(unescaped(word));
                let path = PathBuf::from(bytes(words.next()?));
                let other = words.next()?.strip_prefix('=')?;
                let other = (!other.is_empty()).then(|| bytes(other).into());
                let detail = words.next()?.strip_prefix('=')?;
                let detail = (!detail.is_empty()).then(|| bytes(detail));
                let argv_is_whole = words.next()? == "1";
                let argv = words.map(|word| word.strip_prefix('=').map(bytes)).collect::<Option<_>>()?;
                let effect = RefusedEffect { operation, path, other, detail, rule, process, argv, argv_is_whole };
                Some(Self::Question { id, patience, effect })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const QUESTION: &[u8] = b"ask 3 9 rename git-control 7 m\\x20v /w/.git/config =/w/a\\x20b =a\\x20link 1 =mv = =-";

    fn receive(broker: &OwnedFd) -> String {
        let mut buffer = [0; 64];
        let (_, count) = rustix::net::recv(broker, &mut buffer[..], RecvFlags::TRUNC).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    fn with(answer: OnRefusal) -> (OwnedFd, Carried) {
        let (ours, theirs) = channel_for_broker().unwrap();
        let asks = Asks { patience: Duration::from_secs(1), never: Vec::new(), answer };
        (theirs, carry(ours, &asks, &Hold::default()).unwrap())
    }

    #[test]
    fn a_question_arrives_as_it_was_put_and_its_answer_goes_back() {
        let (tell, told) = mpsc::channel();
        let (broker, _carried) = with(Arc::new(move |question: &EffectQuestion<'_>| {
            tell.send((question.effect.clone(), question.patience)).unwrap();
            question.effect.operation == "rename"
        }));
        rustix::net::send(&broker, QUESTION, SendFlags::empty()).unwrap();
        assert_eq!(receive(&broker), "once 3");
        let (effect, patience) = told.recv().unwrap();
        assert_eq!((patience, effect.process.name.as_str()), (Duration::from_secs(9), "m\\x20v"));
        assert_eq!((effect.path.to_str(), effect.other), (Some("/w/.git/config"), Some("/w/a b".into())));
        assert_eq!(effect.detail, Some("a link".into()));
        assert_eq!((effect.argv, effect.argv_is_whole), (["mv", "", "-"].map(OsString::from).to_vec(), true));
        rustix::net::send(&broker, b"ask 4 9 open - 7 x /w/x = = 0", SendFlags::empty()).unwrap();
        assert_eq!(receive(&broker), "deny 4");
    }

    #[test]
    fn a_panic_is_a_no_and_a_yes_after_the_withdrawal_as_well() {
        let (broker, _carried) = with(Arc::new(|_: &EffectQuestion<'_>| panic!("an approver fails")));
        rustix::net::send(&broker, QUESTION, SendFlags::empty()).unwrap();
        assert_eq!(receive(&broker), "deny 3");
        let (broker, _carried) =
            with(Arc::new(|question: &EffectQuestion<'_>| question.withdrawn.wait(Duration::from_secs(60))));
        rustix::net::send(&broker, QUESTION, SendFlags::empty()).unwrap();
        rustix::net::send(&broker, b"closed 2", SendFlags::empty()).unwrap();
        rustix::net::send(&broker, b"closed 3", SendFlags::empty()).unwrap();
        assert_eq!(receive(&broker), "deny 3");
    }

    #[test]
    fn the_end_of_the_call_withdraws_what_is_open_and_nonsense_ends_the_channel() {
        let (tell, told) = mpsc::channel();
        let (broker, carried) = with(Arc::new(move |question: &EffectQuestion<'_>| {
            tell.send(()).unwrap();
            let withdrawn = question.withdrawn.wait(Duration::from_secs(60));
            tell.send(()).unwrap();
            withdrawn
        }));
        rustix::net::send(&broker, QUESTION, SendFlags::empty()).unwrap();
        told.recv().unwrap();
        drop(carried);
        told.recv().unwrap();
        let (broker, _carried) = with(Arc::new(|_: &EffectQuestion<'_>| true));
        rustix::net::send(&broker, b"ask 1 2 open", SendFlags::empty()).unwrap();
        assert_eq!(receive(&broker), "");
    }
}
