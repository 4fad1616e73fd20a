//! Refused calls that wait for a person: one question after the other to whoever started us, over a socket of which the
//! command has no end.
//!
//! A call that waits holds no thread and no lock of ours; the command's other threads go on. What is permitted is one call,
//! at the place that was told: it is looked at again from what was read of it first, and what is not the same any more is
//! refused as if nobody had been asked. Anything but a clear yes to the question that is open is a no.
//!
//! The question is one packet, words with spaces between, escaped as in a status line:
//! `ask ID SECONDS OPERATION RULE PID PROCESS PATH =OTHER =DETAIL WHOLE =ARGUMENT...`. OTHER is the call's other path, empty if it
//! has none; DETAIL is where a link leads that is moved, or what metadata would become, or empty; WHOLE is 1 if these are all arguments of the process. The answer is `once ID` or `deny ID`. `closed ID` says that no
//! answer is wanted any more. IDs count up and are never used again.

use crate::caller::{Caller, Outcome, Refusal, Seen};
use crate::denials::{Denial, escaped};
use crate::protect::Refused;
use crate::serve::{Answer, Server, Worker, perform};
use crate::sys::{self, Call};
use crate::words::Asking;
use pinfold_policy::ProtectionRule;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many calls wait; others are refused at once.
const MOST_WAITING: usize = 8;
/// How many questions one command can cause.
const MOST_ASKED: u64 = 64;
/// How many questions one call can cause: both of its names, in both of their roles.
const MOST_FOR_ONE: usize = 4;
/// How often we look whether a caller still waits.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// An answer is two words.
const LONGEST_ANSWER: usize = 64;

/// What concerns questions.
#[derive(Debug)]
pub(crate) struct Asks {
    channel: OwnedFd,
    asking: Asking,
    queue: Mutex<Queue>,
    one_waits: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Parked>,
    /// Those in the queue and the one that is being asked about.
    open: usize,
    asked: u64,
    /// Whoever was asked is gone, or spoke nonsense.
    closed: bool,
}

/// A call that waits.
#[derive(Debug)]
struct Parked {
    call: Call,
    seen: Seen,
    permitted: Vec<Refused>,
    refused: Box<Refused>,
}

/// How a question ended.
enum Said {
    Once,
    Deny,
    /// Nobody waits for the call any more.
    Gone,
}

impl Asks {
    pub(crate) fn new(channel: OwnedFd, asking: Asking) -> Self {
        Self { channel, asking, queue: Mutex::default(), one_waits: Condvar::new() }
    }

    /// Whether a person may be asked: not about Pinfold itself, and not about what lies where nothing is ever permitted.
    pub(crate) fn may_ask(&self, denial: &Denial) -> bool {
        denial.rule != Some(ProtectionRule::OwnSettings)
            && denial.path.is_absolute()
            && !self.asking.never.iter().any(|never| denial.path.starts_with(never))
    }

    /// Puts a refused call aside until somebody has answered; gives it back if nobody will be asked.
    pub(crate) fn park(&self, caller: Caller<'_>, refused: Box<Refused>) -> Result<(), Box<Refused>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.pins.is_none() || queue.closed || queue.open >= MOST_WAITING || queue.asked >= MOST_ASKED {
            return Err(refused);
        }
        queue.open += 1;
        queue.asked += 1;
        let call = caller.call;
        let (seen, permitted) = caller.into_seen();
        queue.waiting.push_back(Parked { call, seen, permitted, refused });
        self.one_waits.notify_one();
        Ok(())
    }

    fn next(&self) -> Parked {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue =
            self.one_waits.wait_while(queue, |queue| queue.waiting.is_empty()).unwrap_or_else(PoisonError::into_inner);
        // The condition says that there is one.
        queue.waiting.pop_front().unwrap_or_else(|| unreachable!())
    }

    fn done(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).open -= 1;
    }

    /// Whether one more question may be put; counts it.
    fn one_more(&self) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.asked += 1;
        queue.asked <= MOST_ASKED
    }

    fn is_closed(&self) -> bool {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// From now on every call is refused at once.
    fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
    }

    fn send(&self, packet: &[u8]) -> bool {
        // A reader that does not read makes nobody wait here.
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::send(&self.channel, packet, flags) == Ok(packet.len())
    }

    /// Puts one question and waits for its answer.
    fn ask(&self, id: u64, caller: &Caller<'_>, refused: &Refused) -> Said {
        let deadline = Instant::now() + self.asking.patience;
        if self.is_closed() {
            return Said::Deny;
        }
        if !self.send(question(id, self.asking.patience, caller, refused).as_bytes()) {
            self.close();
            return Said::Deny;
        }
        let listener = caller.server.listener.as_fd();
        let withdraw = |said| {
            if !self.send(format!("closed {id}").as_bytes()) {
                self.close();
            }
            said
        };
        loop {
            if !sys::still_waits(listener, caller.call.id) {
                return withdraw(Said::Gone);
            }
            if Instant::now() >= deadline {
                return withdraw(Said::Deny);
            }
            let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_AGAIN.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&tick)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(_) => return Said::Deny,
            }
            let mut buffer = [0; LONGEST_ANSWER];
            // SECURITY: an answer that came late is to an earlier question, and one that makes no sense is nobody's we know.
            match rustix::net::recv(&self.channel, &mut buffer, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Ok((count, _)) => match buffer.get(..count).and_then(answer) {
                    Some((to, yes)) if to == id => return if yes { Said::Once } else { Said::Deny },
                    Some((to, _)) if to < id => {}
                    _ => {
                        self.close();
                        return Said::Deny;
                    }
                },
                Err(_) => {
                    self.close();
                    return Said::Deny;
                }
            }
        }
    }
}

/// Reads `once ID` or `deny ID`.
fn answer(packet: &[u8]) -> Option<(u64, bool)> {
    let (word, id) = std::str::from_utf8(packet).ok()?.split_once(' ')?;
    let yes = match word {
        "once" => true,
        "deny" => false,
        _ => return None,
    };
    Some((id.parse().ok()?, yes))
}

fn question(id: u64, patience: Duration, caller: &Caller<'_>, refused: &Refused) -> String {
    let (process, name) = caller.who();
    let (arguments, whole) = caller.command_line();
    let Denial { operation, path, rule, .. } = &refused.denial;
    let rule = rule.map_or("-", ProtectionRule::as_str);
    let other = refused.pins.as_ref().and_then(|pins| pins.other.as_ref());
    let other = other.map(|other| escaped(other.as_os_str().as_encoded_bytes())).unwrap_or_default();
    let detail = refused.pins.as_ref().and_then(|pins| pins.detail.as_deref()).map(escaped).unwrap_or_default();
    let (name, path) = (escaped(&name), escaped(path.as_os_str().as_encoded_bytes()));
    let mut text = format!(
        "ask {id} {} {operation} {rule} {process} {name} {path} ={other} ={detail} {}",
        patience.as_secs(),
        u8::from(whole)
    );
    for argument in arguments {
        text.push_str(" =");
        text.push_str(&if argument.is_empty() { String::new() } else { escaped(&argument) });
    }
    text
}

impl Server {
    /// Answers a call that is forbidden: now, or when somebody was asked.
    pub(crate) fn refuse_or_ask(&self, caller: Caller<'_>, refused: Box<Refused>) {
        let call = caller.call;
        let parked = match &self.asks {
            Some(asks) if refused.pins.is_some() => asks.park(caller, refused),
            _ => {
                self.refuse(&caller, &refused);
                return;
            }
        };
        if let Err(refused) = parked {
            self.refuse(&Caller::first(self, call), &refused);
        }
    }

    /// Notes a refusal, and tells it to the caller.
    fn refuse(&self, caller: &Caller<'_>, refused: &Refused) {
        self.denials.note(&refused.denial, || caller.who());
        let _ = sys::answer(self.listener.as_fd(), caller.call.id, Err(refused.denial.errno));
    }

    /// Puts one question after the other, for ever.
    pub(crate) fn be_asked(&self) {
        let Some(asks) = &self.asks else { return };
        let Some(mut worker) = Worker::new() else {
            asks.close();
            return;
        };
        let mut id = 0;
        loop {
            let parked = asks.next();
            self.settle(asks, parked, &mut worker, &mut id);
            asks.done();
        }
    }

    /// Asks until a call can be performed or is refused.
    fn settle(&self, asks: &Asks, parked: Parked, worker: &mut Worker, id: &mut u64) {
        let Parked { call, seen, permitted, mut refused } = parked;
        let mut caller = Caller::again(self, call, seen, permitted);
        loop {
            *id += 1;
            match asks.ask(*id, &caller, &refused) {
                Said::Gone => return,
                Said::Deny => return self.refuse(&caller, &refused),
                Said::Once if sys::still_waits(self.listener.as_fd(), call.id) => {}
                Said::Once => return,
            }
            let denial = refused.denial.clone();
            caller.permitted.push(*refused);
            let who = caller.who();
            let outcome = perform(&caller, worker);
            refused = match outcome {
                // Its other name is protected as well; or it leads elsewhere by now, and then nobody is asked again.
                Err(Refusal::Denied(next)) => next,
                outcome => {
                    // What leads elsewhere by now, where nothing is protected, did not need the yes.
                    if caller.met_all() {
                        self.denials.approved(&denial, who, errno_of(&outcome));
                    }
                    self.observe(&caller, &outcome);
                    return self.answer(&call, outcome);
                }
            };
            if !caller.met_all() || refused.pins.is_none() || caller.permitted.len() >= MOST_FOR_ONE || !asks.one_more()
            {
                return self.refuse(&caller, &refused);
            }
        }
    }
}

fn errno_of(outcome: &Outcome<Answer>) -> Option<Errno> {
    match outcome {
        Err(Refusal::Errno(errno)) => Some(*errno),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_words_are_an_answer() {
        assert_eq!(answer(b"once 7"), Some((7, true)));
        assert_eq!(answer(b"deny 7"), Some((7, false)));
        for text in
            [&b""[..], b"once", b"once ", b"once 7 ", b"once -7", b"yes 7", b"ONCE 7", b"once 7\n", b"once \xff"]
        {
            assert_eq!(answer(text), None, "{text:?}");
        }
    }
}
