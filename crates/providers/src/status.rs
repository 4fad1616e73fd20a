//! What the launcher reports, line by line (`docs/launcher.md`, "Status lines").

use pinfold_policy::{ApprovedEffect, Denial, DenialEvidence, DeniedProcess, LauncherStage};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;

/// A wall that could not be raised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetupFailure {
    /// The stage as it was spelled; an unknown one comes from another release.
    pub(crate) stage: String,
    pub(crate) errno: i32,
    pub(crate) detail: String,
}

impl SetupFailure {
    pub(crate) fn known_stage(&self) -> Option<LauncherStage> {
        self.stage.parse().ok()
    }

    /// The failure as one fragment, beginning with `launcher/<stage>`.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("launcher/{}: {}", self.stage, self.detail);
        // The launcher has the error's text in its detail for the common ones.
        let error = io::Error::from_raw_os_error(self.errno).to_string();
        let plain = error.split(" (os error").next().unwrap_or_default();
        if self.errno != 0 && !text.contains(plain) {
            text.push_str(&format!(": {error}"));
        }
        text
    }
}

/// Everything that was reported about one start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) setup_failed: Option<SetupFailure>,
    /// Set once every wall stands: the Landlock ABI in use.
    pub(crate) confined: Option<u32>,
    pub(crate) started: bool,
    pub(crate) exec_failed: Option<i32>,
    pub(crate) exited: Option<i32>,
    pub(crate) signaled: Option<i32>,
    /// What the broker refused, each once, as it was told last.
    pub(crate) denials: Vec<Denial>,
    /// What the broker would have refused and a person permitted.
    pub(crate) approved: Vec<ApprovedEffect>,
}

impl Status {
    /// Reads a whole report. Lines that this release does not know, and a cut-off last one, say nothing.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut status = Self::default();
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
        for line in complete.split(|byte| *byte == b'\n') {
            // The launcher escapes everything that is not printable ASCII.
            let Ok(line) = std::str::from_utf8(line) else { continue };
            status.take(line);
        }
        status.count_denials();
        status
    }

    fn take(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "setup-failed" => {
                let mut parts = rest.splitn(3, ' ');
                let stage = parts.next().unwrap_or_default().to_owned();
                let errno = parts.next().and_then(|errno| errno.parse().ok()).unwrap_or(0);
                let detail = parts.next().unwrap_or_default().to_owned();
                // The first failure is the cause of any other.
                self.setup_failed.get_or_insert(SetupFailure { stage, errno, detail });
            }
            "confined" => {
                let abi = rest.split(' ').find_map(|fact| fact.strip_prefix("landlock=")?.parse().ok());
                self.confined = Some(abi.unwrap_or(0));
            }
            "started" => self.started = true,
            "exec-failed" => self.exec_failed = rest.parse().ok().or(Some(0)),
            "exited" => self.exited = rest.parse().ok(),
            "signaled" => self.signaled = rest.parse().ok(),
            "approved" => self.approved.extend(approved(rest)),
            "denied" | "refused" => self.denials.extend(denial(line)),
            "denied-more" => {
                let count = rest.parse().unwrap_or(1);
                let text = Some("further refusals, which are only counted".to_owned());
                self.denials.push(Denial { count, text, ..Denial::known(DenialEvidence::Broker) });
            }
            _ => {}
        }
    }

    /// A refusal is told when it happens first and once more, with its number, at the end.
    fn count_denials(&mut self) {
        let mut told: Vec<Denial> = Vec::with_capacity(self.denials.len());
        for denial in self.denials.drain(..) {
            let same = |known: &&mut Denial| {
                (&known.operation, &known.path, &known.rule) == (&denial.operation, &denial.path, &denial.rule)
                    && (&known.errno, &known.text) == (&denial.errno, &denial.text)
            };
            match told.iter_mut().find(same) {
                Some(known) => known.count = denial.count,
                None => told.push(denial),
            }
        }
        self.denials = told;
    }

    /// Whether the launcher has said how it ended.
    pub(crate) fn is_final(&self) -> bool {
        self.exited.is_some() || self.signaled.is_some() || self.exec_failed.is_some() || self.setup_failed.is_some()
    }

    /// Whether the command ran. The launcher says `confined` before it executes anything, so silence is an answer.
    pub(crate) fn command_ran(&self) -> bool {
        self.confined.is_some() && self.setup_failed.is_none() && self.exec_failed.is_none()
    }
}

/// The refusals in whole lines, in their order and with the numbers that they have there.
pub(crate) fn denials_in(lines: &[u8]) -> impl Iterator<Item = Denial> {
    let lines = lines.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(denial)
}

/// `denied OPERATION ERRNO RULE PID COUNT PROCESS PATH`, as the broker writes it of what it refuses itself; the same with `refused`
/// of what the walls refuse.
fn denial(line: &str) -> Option<Denial> {
    let (word, rest) = line.split_once(' ')?;
    let evidence = match word {
        "denied" => DenialEvidence::Broker,
        "refused" => DenialEvidence::Kernel,
        _ => return None,
    };
    effect(rest, evidence)
}

fn effect(rest: &str, evidence: DenialEvidence) -> Option<Denial> {
    let mut words = rest.split(' ');
    let mut word = || words.next();
    let operation = word()?.to_owned();
    let errno = word()?.to_owned();
    let rule = Some(word()?.to_owned()).filter(|rule| rule != "-");
    let (pid, count) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let name = word()?.to_owned();
    let path = Some(word()?).filter(|path| *path != "-").map(|path| OsString::from_vec(unescaped(path)).into());
    Some(Denial {
        path,
        operation: Some(operation),
        errno: Some(errno),
        rule,
        process: Some(DeniedProcess { pid, name }),
        count,
        ..Denial::known(evidence)
    })
}

/// The same words; an error is the one with which the effect failed all the same.
fn approved(rest: &str) -> Option<ApprovedEffect> {
    let Denial { path, operation, errno, rule, process, .. } = effect(rest, DenialEvidence::Broker)?;
    Some(ApprovedEffect { path, operation: operation?, errno: errno.filter(|errno| errno != "-"), rule, process })
}

/// Undoes `\n`, `\\` and `\xHH`.
pub(crate) fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        let escape = if *first == b'\\' { more.first() } else { None };
        match escape {
            None => bytes.push(*first),
            Some(b'x') => {
                let digits = more.get(1..3).and_then(|digits| std::str::from_utf8(digits).ok());
                bytes.extend(digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()));
                rest = more.get(3..).unwrap_or_default();
            }
            Some(letter) => {
                bytes.push(if *letter == b'n' { b'\n' } else { *letter });
                rest = &more[1..];
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_run_is_read() {
        let status =
            Status::parse(b"confined landlock=7 namespaces=user,mount,pid,ipc,uts seccomp=1\nstarted\nexited 3\n");
        assert_eq!((status.confined, status.started, status.exited), (Some(7), true, Some(3)));
        assert!(status.command_ran());
    }

    #[test]
    fn a_failed_setup_keeps_its_stage_and_words() {
        let status = Status::parse(b"setup-failed root-changed 0 another directory is at \"/a\\nb\"\n");
        let failure = status.setup_failed.clone().unwrap();
        assert_eq!(failure.known_stage(), Some(LauncherStage::RootChanged));
        assert_eq!(failure.describe(), "launcher/root-changed: another directory is at \"/a\\nb\"");
        assert!(!status.command_ran());
        let failure = Status::parse(b"setup-failed mount-proc 1 cannot mount /proc\n").setup_failed.unwrap();
        assert!(failure.describe().starts_with("launcher/mount-proc: cannot mount /proc: "));
        let once = SetupFailure { detail: "x: Operation not permitted".to_owned(), ..failure };
        assert_eq!(once.describe(), "launcher/mount-proc: x: Operation not permitted");
    }

    #[test]
    fn refusals_are_read_and_counted_once() {
        let status = Status::parse(
            b"confined landlock=7\ndenied open EPERM git-control 7 1 a\\x20b /w/\\xFF\\n\\\\x\n\
              denied rename EPERM - 9 1 mv -\nexited 0\ndenied open EPERM git-control 7 12 a\\x20b /w/\\xFF\\n\\\\x\n\
              denied-more 3\ndenied x\napproved open - git-control 7 1 a /w/a\napproved open ENOENT - 7 1 a -\napproved\n",
        );
        let [first, second] = status.approved.as_slice() else { panic!("{:?}", status.approved) };
        assert_eq!((first.path.clone(), first.errno.clone()), (Some("/w/a".into()), None));
        assert_eq!((second.path.clone(), second.errno.as_deref()), (None, Some("ENOENT")));
        let [first, second, more] = status.denials.as_slice() else { panic!("{:?}", status.denials) };
        assert_eq!(first.path.as_ref().unwrap().as_os_str().as_encoded_bytes(), b"/w/\xff\n\\x");
        assert_eq!(
            (first.count, first.rule.as_deref(), first.errno.as_deref()),
            (12, Some("git-control"), Some("EPERM"))
        );
        assert_eq!(first.process, Some(DeniedProcess { pid: 7, name: "a\\x20b".to_owned() }));
        assert_eq!((second.path.as_ref(), second.rule.as_ref(), second.count), (None, None, 1));
        assert_eq!((more.count, more.evidence), (3, DenialEvidence::Broker));
        assert_eq!(status.exited, Some(0));
    }

    #[test]
    fn silence_and_noise_do_not_count_as_a_start() {
        for bytes in [&b""[..], b"confined landlock=7", b"\xff\n\n", b"setup-failed\n", b"exec-failed\n"] {
            assert!(!Status::parse(bytes).command_ran(), "{bytes:?}");
        }
        assert!(!Status::parse(b"confined landlock=7\nexec-failed 2\n").command_ran());
    }
}
