//! What was refused, as lines on the status channel. The command has no descriptor of it.
//!
//! Bounded: each refusal is told when it happens, and once more, with its number, at the end. One that happens again and again
//! is told each time at first and then at most every [`PAUSE`], up to [`MOST_AGAIN_BYTES`] in all; beyond [`MOST_DISTINCT`]
//! different ones only their number is told.

use pinfold_policy::ProtectionRule;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many different refusals are told.
const MOST_DISTINCT: usize = 256;
/// How often each is told as it happens, at least.
const EACH_TIME: u64 = 16;
/// How long one that has happened so often is then only counted.
const PAUSE: Duration = Duration::from_millis(100);
/// How many bytes of lines tell what was told before; a reader may keep no more than a megabyte in all.
const MOST_AGAIN_BYTES: usize = 256 << 10;
/// A line stays below this many bytes; a pipe takes up to PIPE_BUF at once (pipe(7)).
const MOST_BYTES: usize = 1500;

/// What was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Denial {
    pub(crate) operation: &'static str,
    pub(crate) path: PathBuf,
    /// Why; none for what lies outside of what may be written.
    pub(crate) rule: Option<ProtectionRule>,
    pub(crate) errno: Errno,
    pub(crate) by: By,
}

/// Who refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum By {
    /// We did, and nothing was tried.
    Us,
    /// The walls did, when we tried.
    Kernel,
}

impl Denial {
    /// What we refuse ourselves.
    pub(crate) fn ours(operation: &'static str, path: PathBuf, rule: Option<ProtectionRule>) -> Self {
        Self { operation, path, rule, errno: Errno::PERM, by: By::Us }
    }

    /// The word that begins its line.
    fn word(&self) -> &'static str {
        match self.by {
            By::Us => "denied",
            By::Kernel => "refused",
        }
    }
}

/// Who was refused, first.
#[derive(Debug, Clone)]
struct First {
    process: u32,
    name: Vec<u8>,
    count: u64,
    told: Instant,
}

/// Collects refusals.
#[derive(Debug)]
pub(crate) struct Denials {
    status: Option<OwnedFd>,
    known: Mutex<(HashMap<Denial, First>, u64)>,
    /// What may still be told again.
    again: Mutex<usize>,
}

impl Denials {
    pub(crate) fn new(status: Option<OwnedFd>) -> Self {
        Self { status, known: Mutex::default(), again: Mutex::new(MOST_AGAIN_BYTES) }
    }

    /// Notes one refusal; number and name of the process are asked for once for each different one.
    pub(crate) fn note(&self, denial: &Denial, who: impl FnOnce() -> (u32, Vec<u8>)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = known.0.get_mut(denial) {
            first.count += 1;
            if first.count <= EACH_TIME || first.told.elapsed() >= PAUSE {
                first.told = Instant::now();
                self.say_again(&line(denial.word(), &name_of(denial.errno), denial, first));
            }
            return;
        }
        if known.0.len() >= MOST_DISTINCT {
            known.1 += 1;
            return;
        }
        let (process, name) = who();
        let first = First { process, name, count: 1, told: Instant::now() };
        self.say(&line(denial.word(), &name_of(denial.errno), denial, &first));
        known.0.insert(denial.clone(), first);
    }

    /// Tells of one effect that a person permitted, and of the error with which it failed all the same.
    pub(crate) fn approved(&self, denial: &Denial, (process, name): (u32, Vec<u8>), failed: Option<Errno>) {
        let failed = failed.map_or("-".to_owned(), name_of);
        self.say(&line("approved", &failed, denial, &First { process, name, count: 1, told: Instant::now() }));
    }

    /// Tells how often each happened, if more than once.
    pub(crate) fn finish(&self) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (denial, first) in known.0.iter().filter(|(_, first)| first.count > 1) {
            self.say(&line(denial.word(), &name_of(denial.errno), denial, first));
        }
        if known.1 > 0 {
            self.say(&format!("denied-more {}\n", known.1));
        }
    }

    fn say_again(&self, line: &str) {
        let mut left = self.again.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(less) = left.checked_sub(line.len()) {
            *left = less;
            self.say(line);
        }
    }

    /// A reader that does not read makes nobody wait here.
    fn say(&self, line: &str) {
        let Some(status) = &self.status else { return };
        let mut ready = [PollFd::new(status, PollFlags::OUT)];
        if poll(&mut ready, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })) == Ok(1) {
            let _ = rustix::io::write(status, line.as_bytes());
        }
    }
}

/// `denied OPERATION ERRNO RULE PID COUNT PROCESS PATH` for what we refuse, `refused` for what the walls do, `approved` for what a
/// person permitted; the path is the rest of the line, or `-` if it is too long.
fn line(what: &str, errno: &str, denial: &Denial, first: &First) -> String {
    let rule = denial.rule.map_or("-", ProtectionRule::as_str);
    let (process, count) = (first.process, first.count);
    let name = escaped(&first.name);
    let path = escaped(path_bytes(&denial.path));
    let path = if path.len() > MOST_BYTES - 200 { "-" } else { &path };
    format!("{what} {} {errno} {rule} {process} {count} {name} {path}\n", denial.operation)
}

/// An error by its name (errno(3)); a rare one by its number.
fn name_of(errno: Errno) -> String {
    let name = match errno {
        Errno::ACCESS => "EACCES",
        Errno::BUSY => "EBUSY",
        Errno::DQUOT => "EDQUOT",
        Errno::EXIST => "EEXIST",
        Errno::INVAL => "EINVAL",
        Errno::ISDIR => "EISDIR",
        Errno::LOOP => "ELOOP",
        Errno::NOENT => "ENOENT",
        Errno::NOSPC => "ENOSPC",
        Errno::NOTDIR => "ENOTDIR",
        Errno::NOTEMPTY => "ENOTEMPTY",
        Errno::PERM => "EPERM",
        Errno::ROFS => "EROFS",
        Errno::TXTBSY => "ETXTBSY",
        Errno::XDEV => "EXDEV",
        other => return other.raw_os_error().to_string(),
    };
    name.to_owned()
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// As the launcher escapes; a space is escaped as well, so that each word is one.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            0x21..0x7f => text.push(char::from(*byte)),
            _ => _ = write!(text, "\\x{byte:02X}"),
        }
    }
    if text.is_empty() { "-".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn each_refusal_is_told_and_counted_and_the_rest_only_counted() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let denials = Denials::new(Some(writer.into()));
        let denial = |path: &str| Denial::ours("open", path.into(), Some(ProtectionRule::GitControl));
        for index in 0..MOST_DISTINCT + 10 {
            denials.note(&denial(&format!("/w/{index}")), || (7, b"a b".to_vec()));
        }
        for _ in 0..1000 {
            denials.note(&denial("/w/0"), || unreachable!());
        }
        denials.finish();
        drop(denials);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "denied open EPERM git-control 7 1 a\\x20b /w/0");
        // Fifteen times more as they happened, and a few if that took long.
        assert_eq!(lines[MOST_DISTINCT], "denied open EPERM git-control 7 2 a\\x20b /w/0");
        assert_eq!(lines[MOST_DISTINCT + 14], "denied open EPERM git-control 7 16 a\\x20b /w/0");
        assert!((MOST_DISTINCT + 17..MOST_DISTINCT + 100).contains(&lines.len()), "{}", lines.len());
        let [.., last, more] = lines.as_slice() else { panic!() };
        assert_eq!((*last, *more), ("denied open EPERM git-control 7 1001 a\\x20b /w/0", "denied-more 10"));
    }

    #[test]
    fn what_is_told_again_is_bounded() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let denials = Denials::new(Some(writer.into()));
        let thread = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes.len())
        });
        for turn in 0..EACH_TIME {
            for index in 0..MOST_DISTINCT {
                let path = format!("/w/{}{index}", "x".repeat(1000)).into();
                denials.note(&Denial::ours("open", path, None), || (turn as u32, Vec::new()));
            }
        }
        drop(denials);
        let first = MOST_DISTINCT * 1100;
        assert!((MOST_AGAIN_BYTES..first + MOST_AGAIN_BYTES).contains(&thread.join().unwrap().unwrap()));
    }

    #[test]
    fn foreign_bytes_stay_in_their_word_and_a_long_path_is_left_out() {
        assert_eq!(escaped(b"a\nb\\ \x1b\xff"), "a\\nb\\\\\\x20\\x1B\\xFF");
        let denial = Denial::ours("open", "/".repeat(4000).into(), None);
        let line =
            line("denied", "EPERM", &denial, &First { process: 1, name: Vec::new(), count: 1, told: Instant::now() });
        assert_eq!(line, "denied open EPERM - 1 1 - -\n");
    }
}
