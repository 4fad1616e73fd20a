//! Report equals outcome: which promise each attempt would break, and whether what a run's report says of its promises is
//! what happened in that run.

use crate::expect::{Expectation, Row};
use crate::judge::Results;
use crate::start::{Backend, Mode};
use serde::Deserialize;
use std::collections::BTreeMap;

/// How strongly a promise is kept, as far as this check knows the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strength {
    /// Without exception.
    Enforced,
    /// With exceptions.
    Partial,
    /// Not.
    None,
    /// Nobody asked.
    NotAsked,
}

/// One line of a report.
#[derive(Clone, Debug, Deserialize)]
pub struct Line {
    /// The promise.
    pub guarantee: String,
    /// How strongly it is kept.
    pub strength: Strength,
    /// What the report adds, each a sentence.
    pub notes: Vec<String>,
}

/// What a report says, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// `full` or `partial`; absent where nothing is confined.
    #[serde(default)]
    pub enforcement: Option<String>,
    /// The backend's name.
    pub backend: String,
    /// All promises.
    pub guarantees: Vec<Line>,
    /// What else is to be said.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What a call's outcome says, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
pub struct Outcome {
    /// Whether the command ran.
    pub ran: bool,
    /// How it ended.
    pub ending: serde_json::Value,
    /// What was enforced; absent if nothing ran.
    #[serde(default)]
    pub report: Option<Report>,
}

impl Outcome {
    /// Reads the JSON of `--json` or `--report`.
    ///
    /// # Errors
    ///
    /// In words, if it is none.
    pub fn parse(text: &str) -> Result<Outcome, String> {
        serde_json::from_str(text.trim()).map_err(|e| format!("{text:?} is no outcome: {e}"))
    }
}

impl Report {
    /// How strongly this promise is kept.
    #[must_use]
    pub fn strength(&self, guarantee: &str) -> Option<Strength> {
        self.guarantees.iter().find(|line| line.guarantee == guarantee).map(|line| line.strength)
    }
}

/// Promises whose exceptions no attempt of the matrix can show; `tests/report.rs` has an act for each.
pub const SHOWN_ELSEWHERE: &[&str] = &["temp-private", "sockets-unix", "terminal", "descendants", "control-plane"];

/// The promises for which `full` stands. Written down here a second time on purpose.
const FILE_EFFECTS: &[&str] = &[
    "write-content",
    "write-metadata",
    "write-via-links",
    "inherited-fds",
    "privilege",
    "kernel-interfaces",
    "ptrace-out",
];

/// Beginnings of attempts' names and the promise that they would break. The longest counts; an empty one: none.
const PROMISES: &[(&str, &str)] = &[
    ("path-", "write-content"),
    ("path-link-", "write-via-links"),
    ("path-rename-", "write-via-links"),
    ("path-write-via-", "write-via-links"),
    ("path-tmpfile-ws-linkat-out", "write-via-links"),
    ("path-handle-", "privilege"),
    ("path-acct", "privilege"),
    ("meta-", "write-metadata"),
    ("meta-flock", ""),
    ("meta-lease", ""),
    ("meta-inotify", ""),
    ("meta-fanotify-", "privilege"),
    ("meta-read-outside", "read-deny"),
    // That a file's access time follows its reading is part of reading, which every mode leaves open.
    ("meta-atime-by-read", "read-deny"),
    ("meta-exec-outside", ""),
    ("meta-chmod-via-old-hard-link", "write-via-links"),
    ("inherit-", "inherited-fds"),
    ("inherit-cwd", "write-content"),
    ("admin-", "privilege"),
    ("admin-core-pattern", "kernel-interfaces"),
    ("admin-sysrq", "kernel-interfaces"),
    ("admin-proc-sys", "kernel-interfaces"),
    ("admin-sys-file", "kernel-interfaces"),
    ("admin-cgroup-procs", "kernel-interfaces"),
    ("admin-open-disk", "kernel-interfaces"),
    ("admin-open-device", "kernel-interfaces"),
    ("admin-device-ioctl", "kernel-interfaces"),
    ("admin-kmsg", "kernel-interfaces"),
    ("admin-init-root-write", "ptrace-out"),
    ("admin-rename-ws-root", "write-content"),
    ("admin-dev-shm-file", "write-content"),
    ("admin-tmp-file", "write-content"),
    ("admin-var-tmp-file", "write-content"),
    ("admin-tiocsti", "terminal"),
    ("admin-tioclinux", "terminal"),
    ("admin-other-terminal", "terminal"),
    ("admin-tty-open", "terminal"),
    ("proc-", "ptrace-out"),
    ("proc-kill-", "signals-out"),
    ("proc-pidfd-signal", "signals-out"),
    ("proc-setown", "signals-out"),
    ("proc-cmdline", "process-visibility"),
    ("proc-prlimit", "process-visibility"),
    ("proc-setpriority", "process-visibility"),
    ("proc-setaffinity", "process-visibility"),
    ("proc-ioprio", "process-visibility"),
    ("proc-sched-policy", "process-visibility"),
    ("proc-oom-score", "process-visibility"),
    ("proc-launcher-", "control-plane"),
    ("ipc-unix-", "sockets-unix"),
    ("ipc-abstract-", "sockets-unix"),
    // System V IPC and POSIX queues have no line of their own in the closed list; they are a way to other processes.
    ("ipc-shm-write", "process-visibility"),
    ("ipc-msgsnd", "process-visibility"),
    ("ipc-semop", "process-visibility"),
    ("ipc-mq-send", "process-visibility"),
    ("ipc-memfd-", ""),
    ("ipc-", "privilege"),
    ("net-", "network"),
    ("ws-", ""),
    ("stream-", "inherited-fds"),
];

/// The promise that this attempt would break, if any.
#[must_use]
pub fn promise_of(id: &str) -> Option<&'static str> {
    let fitting = PROMISES.iter().filter(|(start, _)| id.starts_with(start));
    fitting.max_by_key(|(start, _)| start.len()).map(|(_, promise)| *promise).filter(|promise| !promise.is_empty())
}

/// The attempts that reached outside, by the promise that they broke, and those that broke none.
fn broken<'a>(
    rows: &'a [Row],
    backend: Backend,
    mode: Mode,
    uid: u32,
    results: &Results,
) -> Result<BTreeMap<Option<&'static str>, Vec<&'a str>>, String> {
    let mut broken: BTreeMap<Option<&'static str>, Vec<&str>> = BTreeMap::new();
    for row in rows {
        let may_work = row.expectation(backend, mode, uid)? == Expectation::Works;
        let worked = results.reports.get(row.id).is_some_and(|report| report.result == "ok");
        let is_outside = results.changes.contains_key(row.id);
        if is_outside || worked && !may_work {
            broken.entry(promise_of(row.id)).or_default().push(row.id);
        }
    }
    Ok(broken)
}

/// Compares what the run's report claims with what its attempts came to, and says what differs.
///
/// # Errors
///
/// In words, if there is no report or it cannot be read.
pub fn compare(rows: &[Row], backend: Backend, mode: Mode, uid: u32, results: &Results) -> Result<Vec<String>, String> {
    let text = results.outcome.as_deref().ok_or_else(|| format!("there is no outcome: {}", results.end))?;
    let report = Outcome::parse(text)?.report.ok_or("the outcome has no report")?;
    let broken = broken(rows, backend, mode, uid, results)?;
    let mut faults = Vec::new();
    for line in &report.guarantees {
        // The nodes of bubblewrap's /dev are the host's own, and mounts come from the host: no attempt touches either.
        if backend == Backend::Bwrap && line.guarantee == "write-metadata" && line.strength == Strength::Partial {
            continue;
        }
        // Programs need to resize the terminals that they make; that the caller's follows too, no attempt shows: the
        // fixture's terminal is not the foreground one of anybody who would be told.
        if line.guarantee == "signals-out" && line.notes.iter().any(|note| note.contains("SIGWINCH")) {
            continue;
        }
        let through = broken.iter().find(|(promise, _)| **promise == Some(&line.guarantee)).map(|(_, ids)| ids);
        match (line.strength, through) {
            (Strength::Enforced, Some(ids)) => {
                faults.push(format!("{} is called enforced, but {ids:?} reached outside", line.guarantee));
            }
            (Strength::Partial | Strength::None, None) if !SHOWN_ELSEWHERE.contains(&line.guarantee.as_str()) => {
                faults.push(format!("{} is called {:?}, but nothing broke it", line.guarantee, line.strength));
            }
            (Strength::Partial | Strength::None, _) if line.notes.is_empty() => {
                faults.push(format!("{} is called {:?} without a note", line.guarantee, line.strength));
            }
            _ => {}
        }
    }
    if let Some(ids) = broken.get(&None) {
        faults.push(format!("{ids:?} reached outside, and no line of the report speaks of it"));
    }
    if report.enforcement.as_deref() == Some("full") {
        for effect in FILE_EFFECTS {
            if report.strength(effect) != Some(Strength::Enforced) {
                faults.push(format!("the report says full, but {effect} is {:?}", report.strength(effect)));
            }
            if let Some(ids) = broken.get(&Some(*effect)) {
                faults.push(format!("the report says full, but {ids:?} changed files"));
            }
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_beginning_decides() {
        assert_eq!(promise_of("path-create"), Some("write-content"));
        assert_eq!(promise_of("path-rename-exchange"), Some("write-via-links"));
        assert_eq!(promise_of("ws-create"), None);
        assert_eq!(promise_of("ipc-add-key"), Some("privilege"));
    }

    #[test]
    fn claim_that_an_attempt_breaks_is_a_fault() {
        let rows: Vec<Row> = crate::expect::rows().into_iter().filter(|r| r.id == "path-create").collect();
        let claim = |strength: &str| {
            let mut results = Results::default();
            results.changes.insert("path-create".to_owned(), vec!["created".to_owned()]);
            results.outcome = Some(format!(
                r#"{{"ran":true,"ending":{{}},"report":{{"enforcement":"partial","backend":"x","guarantees":
                [{{"guarantee":"write-content","strength":"{strength}","notes":["why"]}}]}}}}"#
            ));
            compare(&rows, Backend::Landlock, Mode::ReadOnly, 0, &results).map(|faults| faults.len())
        };
        assert_eq!((claim("enforced"), claim("none")), (Ok(1), Ok(0)));
    }
}
