//! The host-execution report: which files that tools outside will later execute or obey a call has created or changed.
//!
//! It comes from two looks at the writable roots, one before the call and one after it, and not from what the command did. So
//! it does not see what was changed and changed back, nor which process changed something: whatever somebody else changed in
//! the meantime is in it as well. Which names are looked for: [`crate::obeyed`].

use crate::obeyed::ObeyedKind;
use crate::wire::escaped;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

closed_words! {
    /// Says what became of a file between two looks.
    pub enum HostChange("change of a file") {
        /// Nothing had this name before. It may have been moved here.
        Created => "created",
        /// It is another file, has another type, or other content: or it was written and its content could not be compared.
        Changed => "changed",
        /// Mode, owner or group are others.
        Mode => "mode",
        /// Nothing has this name any more.
        Removed => "removed",
    }
}

closed_words! {
    /// Names the type of a file.
    pub enum HostFileType("type of file") {
        /// A regular file.
        File => "file",
        /// A directory.
        Directory => "directory",
        /// A symbolic link; what it leads to is not looked at.
        Link => "link",
        /// A FIFO, socket or device.
        Other => "other",
    }
}

/// Describes one file that a tool outside would execute or obey. Bytes of the path that are not UTF-8 appear as `\xHH` in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostFile {
    /// Where it is, absolute.
    #[serde(with = "escaped::path")]
    pub path: PathBuf,
    /// What kind of tool obeys it.
    pub kind: ObeyedKind,
    /// Which tool, in a few words.
    pub obeyed_by: String,
    /// What became of it.
    pub change: HostChange,
    /// What it is now; for a removed one, what it was.
    pub file: HostFileType,
    /// Its permission bits now, with set-id bits, octal; for a removed one, those that it had. Links have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// Holds what two looks found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostFiles {
    /// What is created or changed, by kind and then by path.
    pub changes: Vec<HostFile>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
    /// Whether something was not looked at: then a file that is not listed may have been changed.
    pub incomplete: bool,
    /// Why, each a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl HostFiles {
    /// How many files are listed at most.
    pub const MOST_LISTED: usize = 200;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_is_exact() {
        let file = HostFile {
            path: "/w/.git/hooks/pre-commit".into(),
            kind: ObeyedKind::Git,
            obeyed_by: "git".to_owned(),
            change: HostChange::Created,
            file: HostFileType::File,
            mode: Some("0755".to_owned()),
        };
        let found =
            HostFiles { changes: vec![file], more: 3, incomplete: true, reasons: vec!["It is large.".to_owned()] };
        let text = concat!(
            r#"{"changes":[{"path":"/w/.git/hooks/pre-commit","kind":"git","obeyedBy":"git","change":"created","#,
            r#""file":"file","mode":"0755"}],"more":3,"incomplete":true,"reasons":["It is large."]}"#
        );
        assert_eq!(serde_json::to_string(&found).unwrap(), text);
        assert_eq!(serde_json::from_str::<HostFiles>(text).unwrap(), found);
        assert_eq!(serde_json::to_string(&HostFiles::default()).unwrap(), r#"{"changes":[],"incomplete":false}"#);
    }
}
