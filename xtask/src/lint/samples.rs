//! Small trees for the tests of lints.

use super::Source;
use crate::workspace::File;

pub(super) fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

pub(super) fn source(path: &str, text: &str) -> Source {
    Source::new(&file(path, text))
}

/// What a lint says about one file, as `line: text`.
pub(super) fn said(findings: Vec<super::Finding>) -> Vec<String> {
    findings.into_iter().map(|finding| format!("{}: {}", finding.line, finding.text)).collect()
}
