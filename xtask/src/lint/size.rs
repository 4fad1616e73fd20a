//! How long files are, and how much there is to trust.

use super::{Finding, Source};
use crate::workspace::File;

/// Longest file without a reason, in lines.
const FILE_LINES: usize = 600;

/// Files that are longer, and why they stay one.
const LONG_FILES: &[(&str, &str)] =
    &[("crates/launcher/src/sys.rs", "one function, one system call; `unsafe` should not stand in one more file")];

/// Most lines of code that the launcher may have; tests, comments and blank lines do not count. The number and what it
/// holds: `docs/decisions/0010-size-of-the-launcher.md`.
pub(super) const LAUNCHER_LINES: usize = 3790;

pub(super) fn check(files: &[File]) -> Vec<Finding> {
    check_against(files, LONG_FILES)
}

fn check_against(files: &[File], reasons: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let lines = file.text.lines().count();
        let has_reason = reasons.iter().any(|(path, _)| *path == file.path);
        if lines > FILE_LINES && !has_reason {
            findings.push(Finding::new(
                &file.path,
                0,
                format!("{lines} lines; more than {FILE_LINES} need a reason in xtask/src/lint/size.rs"),
            ));
        }
        if lines <= FILE_LINES && has_reason {
            findings.push(Finding::new(&file.path, 0, "is short now; take its reason out of xtask/src/lint/size.rs"));
        }
    }
    findings
}

/// The launcher's size.
pub(super) struct Budget {
    pub(super) lines: usize,
    /// Expressions that can panic because they index; a number to keep small, not a rule.
    pub(super) indexing: usize,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn launcher(sources: &[Source]) -> Budget {
    let ours = sources.iter().filter(|source| source.path.starts_with("crates/launcher/src/"));
    let mut budget = Budget { lines: 0, indexing: 0, findings: Vec::new() };
    for (_, line) in ours.flat_map(Source::shipped).filter(|(_, line)| !line.is_empty()) {
        budget.lines += 1;
        budget.indexing += indexing(&line.code);
    }
    if budget.lines > LAUNCHER_LINES {
        let text = format!("{} lines of code; the budget is {LAUNCHER_LINES}", budget.lines);
        budget.findings.push(Finding::new("crates/launcher", 0, text));
    }
    budget
}

/// Counts brackets that follow a value.
fn indexing(code: &str) -> usize {
    let follows =
        |at: usize| code[..at].ends_with(|last: char| last.is_alphanumeric() || matches!(last, '_' | ')' | ']'));
    code.match_indices('[').filter(|(at, _)| follows(*at)).count()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{file, source};
    use super::*;

    #[test]
    fn a_long_file_needs_a_reason_and_a_short_one_needs_none() {
        let (long, short) = (file("a.rs", &"x\n".repeat(FILE_LINES + 1)), file("b.rs", "x\n"));
        assert_eq!(check_against(std::slice::from_ref(&long), &[]).len(), 1);
        assert!(check_against(&[long], &[("a.rs", "a table")]).is_empty());
        assert_eq!(check_against(&[short], &[("b.rs", "a table")]).len(), 1);
    }

    #[test]
    fn tests_comments_and_blank_lines_cost_nothing() {
        let text = "//! words\n\nfn f() {\n    // why\n    x[1] = a[..2][0]; // here\n}\n#[cfg(test)]\nmod t {\n}\n";
        let budget = launcher(&[source("crates/launcher/src/a.rs", text), source("crates/cli/src/a.rs", "x")]);
        assert_eq!((budget.lines, budget.indexing), (3, 3));
        assert!(budget.findings.is_empty());
    }

    #[test]
    fn a_launcher_beyond_its_budget_is_found() {
        let long = source("crates/launcher/src/a.rs", &"x;\n".repeat(LAUNCHER_LINES + 1));
        assert_eq!(launcher(&[long]).findings.len(), 1);
    }
}
