//! What each attempt must come to. The table is `expectations.txt`; this module reads it and gives the verdict.

use crate::context::Report;
use crate::start::{Backend, Mode};

/// What one attempt must come to under one backend, mode and uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// It fails with one of these errors or signals, and nothing outside changes.
    Denied(Vec<String>),
    /// It succeeds, and nothing outside changes.
    Works,
    /// It succeeds, and the judge sees the change: a control.
    Changes,
    /// It succeeds and reaches outside: known and reported, for this reason.
    Open(&'static str),
    /// A control that this host does not allow, with the error that it gives. A denial of this attempt proves only that
    /// the wall does not open it.
    NotPossibleHere(Vec<String>),
}

/// Why something stays open: the key in the table, and the sentence.
pub const REASONS: &[(&str, &str)] = &[
    ("hard-link", "a hard link made before the call is a name inside the workspace for the same file"),
    (
        "landlock-metadata",
        "Landlock has no right for metadata; denying the calls to all of workspace-write breaks common commands",
    ),
    (
        "landlock-processes",
        "Landlock hides no process: processors and command line of a same-user process stay reachable",
    ),
    (
        "landlock-terminal",
        "programs need /dev/pts to have terminals of their own, and Landlock cannot tell the host's by name",
    ),
    ("landlock-devices", "Landlock governs no reading here, and some drivers act when their node is opened"),
    ("atime", "reading moves the access time where the mount is not read-only"),
    (
        "unix-path",
        "a unix socket by path is reached by reading its path; without mounts nothing hides it on this kernel",
    ),
    ("network", "no mode closes the network"),
    ("redirection", "the caller redirected this stream to that file"),
    (
        "no-scope-sockets",
        "Landlock before ABI 6 has no scope for abstract names, and without a network namespace they are shared",
    ),
    (
        "no-scope-signals",
        "Landlock before ABI 6 has no scope for signals, and without a PID namespace processes are in reach",
    ),
    (
        "no-scope-launcher",
        "Landlock before ABI 6 has no scope for signals, and the launcher lives among the command's processes",
    ),
    ("no-truncate", "Landlock before ABI 3 has no right for truncating"),
    ("no-ioctl", "Landlock before ABI 5 has no right for requests to devices"),
];

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The attempt.
    pub id: &'static str,
    cells: [&'static str; 4],
}

const TABLE: &str = include_str!("expectations.txt");

/// What differs on the older kernel of `old-kernel/`, which sets this variable.
const OLD_KERNEL_TABLE: &str = include_str!("expectations_old_kernel.txt");
const OLD_KERNEL: &str = "PINFOLD_TEST_OLD_KERNEL";

/// All rows, in the order of the table.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut rows = rows_of(TABLE);
    if std::env::var_os(OLD_KERNEL).is_some() {
        replace(&mut rows, rows_of(OLD_KERNEL_TABLE));
    }
    rows
}

fn replace(rows: &mut [Row], others: Vec<Row>) {
    for other in others {
        rows.iter_mut().filter(|row| row.id == other.id).for_each(|row| row.cells = other.cells);
    }
}

fn rows_of(table: &'static str) -> Vec<Row> {
    let lines = table.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            // `A|B` has no spaces around its bar, so columns are split at " | ".
            let columns: Vec<&'static str> = line.split(" | ").map(str::trim).collect();
            let cell = |i: usize| columns.get(i).copied().unwrap_or_default();
            Row { id: cell(0), cells: [cell(1), cell(2), cell(3), cell(4)] }
        })
        .collect()
}

impl Row {
    /// What this attempt must come to.
    ///
    /// # Errors
    ///
    /// What is wrong with the table's cell, in words.
    pub fn expectation(&self, backend: Backend, mode: Mode, uid: u32) -> Result<Expectation, String> {
        let cell = match backend {
            Backend::Unconfined => self.cells[0],
            Backend::Namespace => self.cells[1],
            Backend::Bwrap => self.cells[2],
            Backend::Landlock => self.cells[3],
        };
        let applies = |condition: &str| match condition {
            "rw" => Ok(mode == Mode::WorkspaceWrite),
            "ro" => Ok(mode == Mode::ReadOnly),
            "root" => Ok(uid == 0),
            "user" => Ok(uid != 0),
            other => Err(format!("{}: no condition is called {other:?}", self.id)),
        };
        for word in cell.split_whitespace() {
            match word.split_once('=') {
                None => {
                    return outcome(word, backend).ok_or_else(|| format!("{}: {word:?} is no outcome", self.id));
                }
                Some((condition, word)) if applies(condition)? => {
                    return outcome(word, backend).ok_or_else(|| format!("{}: {word:?} is no outcome", self.id));
                }
                Some(_) => {}
            }
        }
        Err(format!("{}: the cell {cell:?} says nothing for {} {} {uid}", self.id, backend.name(), mode.name()))
    }
}

fn outcome(word: &str, backend: Backend) -> Option<Expectation> {
    if let Some(key) = word.strip_prefix("open:") {
        return REASONS.iter().find(|(k, _)| *k == key).map(|(_, reason)| Expectation::Open(reason));
    }
    match word {
        "ok" => Some(Expectation::Works),
        "changed" => Some(Expectation::Changes),
        _ => {
            let words: Vec<String> = word.split('|').map(str::to_owned).collect();
            let known = |w: &String| w == "ok" || w == "SIGSYS" || crate::errno::Errno::named(w).is_some();
            let all_known = words.iter().all(known);
            let denied =
                if backend == Backend::Unconfined { Expectation::NotPossibleHere } else { Expectation::Denied };
            all_known.then(|| denied(words))
        }
    }
}

impl Expectation {
    /// Compares with what happened: what the program said, and what the judge saw change outside.
    ///
    /// # Errors
    ///
    /// What differs, in words.
    pub fn verdict(&self, report: &Report, changes: &[String]) -> Result<(), String> {
        let got = report.word();
        let succeeded = report.result == "ok";
        let (as_expected, unchanged) = match self {
            Expectation::Denied(words) | Expectation::NotPossibleHere(words) => (words.iter().any(|w| w == got), true),
            Expectation::Works => (succeeded, true),
            Expectation::Changes | Expectation::Open(_) => (succeeded, false),
        };
        let mut faults = Vec::new();
        if !as_expected {
            faults.push(format!("expected {self:?}, got {got}"));
        }
        if unchanged && !changes.is_empty() {
            faults.push(format!("it changed the world outside: {}", changes.join("; ")));
        }
        if *self == Expectation::Changes && changes.is_empty() {
            faults.push("the judge saw no change outside, so its silence proves nothing".to_owned());
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_says_something() {
        let rows = rows_of(TABLE);
        assert!(rows.len() > 220, "{} rows", rows.len());
        for row in rows.iter().chain(&rows_of(OLD_KERNEL_TABLE)) {
            assert!(rows.iter().any(|other| other.id == row.id), "{} is in no table of attempts", row.id);
            for backend in Backend::ALL {
                for mode in Mode::ALL {
                    for uid in [0, 1000] {
                        let expectation = row.expectation(backend, mode, uid);
                        assert!(expectation.is_ok(), "{expectation:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_denial_that_changed_something_is_a_fault() {
        let denied = Expectation::Denied(vec!["EROFS".into()]);
        let report = Report::of("x", Err(crate::errno::Errno(libc::EROFS)));
        assert!(denied.verdict(&report, &[]).is_ok());
        assert!(denied.verdict(&report, &["content".into()]).is_err());
        assert!(denied.verdict(&Report::of("x", Err(crate::errno::Errno(libc::EACCES))), &[]).is_err());
        assert!(denied.verdict(&Report::of("x", Ok(())), &[]).is_err());
    }

    #[test]
    fn a_control_that_nobody_saw_is_a_fault() {
        assert!(Expectation::Changes.verdict(&Report::of("x", Ok(())), &[]).is_err());
    }
}
