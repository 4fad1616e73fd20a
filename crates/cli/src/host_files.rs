//! What a call did to files that tools outside execute or obey: the option, and the sentences for a person.

use crate::arguments::HostFileOptions;
use pinfold_policy::quote::{quote, quote_if_needed};
use pinfold_policy::{HostFile, HostFiles, Outcome, SandboxError};
use pinfold_providers::HostFileScan;
use std::path::Path;

/// How many files a line names.
const NAMED: usize = 3;

/// Reads the option.
pub(crate) fn scan(options: &HostFileOptions) -> Result<HostFileScan, SandboxError> {
    match options.host_files.as_deref() {
        None | Some("report") => Ok(HostFileScan::USUAL),
        Some("skip") => Ok(HostFileScan::Skip),
        Some(word) => {
            let detail = format!("unknown rule for host files {}; expected one of: report, skip", quote(word));
            Err(SandboxError::InvalidPolicy { detail })
        }
    }
}

/// Returns what a person should know.
pub(crate) fn remarks(outcome: &Outcome) -> Vec<String> {
    let Some(found) = outcome.host_files() else { return Vec::new() };
    let workspace = outcome.report().map(|report| report.workspace_root());
    let mut lines = Vec::new();
    if !found.changes.is_empty() {
        lines.push(changes(found, workspace));
    }
    if let Some(reason) = found.reasons.first() {
        lines.push(format!("not every file that tools outside obey was compared: {reason}"));
    }
    lines
}

fn changes(found: &HostFiles, workspace: Option<&Path>) -> String {
    let named = |file: &HostFile| {
        let path = workspace.and_then(|root| file.path.strip_prefix(root).ok()).unwrap_or(&file.path);
        let change = if file.change.as_str() == "mode" { "changed the mode of" } else { file.change.as_str() };
        format!("{change} {} ({})", quote_if_needed(path), file.obeyed_by)
    };
    let first: Vec<String> = found.changes.iter().take(NAMED).map(named).collect();
    let rest = (found.changes.len() - first.len()) as u64 + found.more;
    let rest = if rest == 0 { String::new() } else { format!(", and {rest} more") };
    format!("note: tools outside obey what is changed here: {}{rest}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinfold_policy::{Ending, HostChange, HostFileType, ObeyedKind, StatusEvidence};

    fn outcome(found: HostFiles) -> Outcome {
        Outcome::new(Ending::Exited { code: 0 }, vec![], StatusEvidence::Channel, None, 1).with_host_files(Some(found))
    }

    #[test]
    fn one_line_names_the_first_and_counts_the_rest() {
        let file = |path: &str, change| HostFile {
            path: path.into(),
            kind: ObeyedKind::Git,
            obeyed_by: "git".to_owned(),
            change,
            file: HostFileType::File,
            mode: None,
        };
        let changes = vec![
            file("/w/.git/hooks/a", HostChange::Created),
            file("/w/new\nline", HostChange::Mode),
            file("/w/.git/config", HostChange::Removed),
            file("/w/Makefile", HostChange::Changed),
        ];
        let found = HostFiles { changes, more: 2, ..HostFiles::default() };
        assert_eq!(
            remarks(&outcome(found)),
            ["note: tools outside obey what is changed here: created /w/.git/hooks/a (git), changed the mode of \
              \"/w/new\\nline\" (git), removed /w/.git/config (git), and 3 more"]
        );
    }

    #[test]
    fn silence_means_that_everything_was_compared() {
        assert!(remarks(&outcome(HostFiles::default())).is_empty());
        let found = HostFiles { incomplete: true, reasons: vec!["It is large.".to_owned()], ..HostFiles::default() };
        assert_eq!(remarks(&outcome(found)), ["not every file that tools outside obey was compared: It is large."]);
    }
}
