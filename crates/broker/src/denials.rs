//! What was refused, as lines on the status channel. The command has no descriptor of it.
//!
//! Bounded: each refusal is told once when it happens and once more, with its number, at the end; beyond
//! [`MOST_DISTINCT`] different ones only their number is told.

use pinfold_policy::ProtectionRule;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// How many different refusals are told.
const MOST_DISTINCT: usize = 256;
/// A line stays below this many bytes; a pipe takes up to PIPE_BUF at once (pipe(7)).
const MOST_BYTES: usize = 1500;

/// What was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Denial {
    pub(crate) operation: &'static str,
    pub(crate) path: PathBuf,
    /// Why; none for metadata outside of what may be written.
    pub(crate) rule: Option<ProtectionRule>,
}

/// Who was refused, first.
#[derive(Debug, Clone)]
struct First {
    process: u32,
    name: Vec<u8>,
    count: u64,
}

/// Collects refusals.
#[derive(Debug)]
pub(crate) struct Denials {
    status: Option<OwnedFd>,
    known: Mutex<(HashMap<Denial, First>, u64)>,
}

impl Denials {
    pub(crate) fn new(status: Option<OwnedFd>) -> Self {
        Self { status, known: Mutex::default() }
    }

    /// Notes one refusal; number and name of the process are asked for once for each different one.
    pub(crate) fn note(&self, denial: Denial, who: impl FnOnce() -> (u32, Vec<u8>)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = known.0.get_mut(&denial) {
            first.count += 1;
            return;
        }
        if known.0.len() >= MOST_DISTINCT {
            known.1 += 1;
            return;
        }
        let (process, name) = who();
        let first = First { process, name, count: 1 };
        self.say(&line(&denial, &first));
        known.0.insert(denial, first);
    }

    /// Tells how often each happened, if more than once.
    pub(crate) fn finish(&self) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (denial, first) in known.0.iter().filter(|(_, first)| first.count > 1) {
            self.say(&line(denial, first));
        }
        if known.1 > 0 {
            self.say(&format!("denied-more {}\n", known.1));
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

/// `denied OPERATION ERRNO RULE PID COUNT PROCESS PATH`; the path is the rest of the line, or `-` if it is too long.
fn line(denial: &Denial, first: &First) -> String {
    let rule = denial.rule.map_or("-", ProtectionRule::as_str);
    let (process, count) = (first.process, first.count);
    let name = escaped(&first.name);
    let path = escaped(path_bytes(&denial.path));
    let path = if path.len() > MOST_BYTES - 200 { "-" } else { &path };
    format!("denied {} EPERM {rule} {process} {count} {name} {path}\n", denial.operation)
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

/// As the launcher escapes; a space is escaped as well, so that each word is one.
fn escaped(bytes: &[u8]) -> String {
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
    fn each_refusal_is_told_once_and_counted_and_the_rest_only_counted() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let denials = Denials::new(Some(writer.into()));
        let denial =
            |path: &str| Denial { operation: "open", path: path.into(), rule: Some(ProtectionRule::GitControl) };
        for index in 0..MOST_DISTINCT + 10 {
            denials.note(denial(&format!("/w/{index}")), || (7, b"a b".to_vec()));
        }
        for _ in 0..1000 {
            denials.note(denial("/w/0"), || unreachable!());
        }
        denials.finish();
        drop(denials);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), MOST_DISTINCT + 2);
        assert_eq!(lines[0], "denied open EPERM git-control 7 1 a\\x20b /w/0");
        assert_eq!(lines[MOST_DISTINCT], "denied open EPERM git-control 7 1001 a\\x20b /w/0");
        assert_eq!(lines[MOST_DISTINCT + 1], "denied-more 10");
    }

    #[test]
    fn foreign_bytes_stay_in_their_word_and_a_long_path_is_left_out() {
        assert_eq!(escaped(b"a\nb\\ \x1b\xff"), "a\\nb\\\\\\x20\\x1B\\xFF");
        let denial = Denial { operation: "open", path: "/".repeat(4000).into(), rule: None };
        let line = line(&denial, &First { process: 1, name: Vec::new(), count: 1 });
        assert_eq!(line, "denied open EPERM - 1 1 - -\n");
    }
}
