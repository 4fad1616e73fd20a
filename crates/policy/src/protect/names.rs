//! Names that are protected wherever a tool would look for them: directly in a project, or in the home directory. Which they
//! are stands in the table of [`crate::obeyed`].

use super::ProtectionRule;
use crate::obeyed::PROJECT;
use std::ffi::OsStr;

/// Returns the rule of a single name.
pub(super) fn rule_on_name(name: &OsStr) -> Option<ProtectionRule> {
    let bytes = name.as_encoded_bytes();
    // Most names have no dot in front, and are done with here.
    if bytes.first() != Some(&b'.') && !bytes.eq_ignore_ascii_case(b"pinfold.toml") {
        return None;
    }
    PROJECT.iter().find(|row| row.fits(name)).and_then(|row| row.rule)
}
