//! Unified diffs of text, for people and for models.

use similar::{Algorithm, TextDiff};
use std::time::Duration;

/// Lines of context around a change.
const CONTEXT: usize = 3;

/// How long lines are compared before the rest counts as replaced; the diff is right in either case.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns the unified diff of two texts, with three lines of context; empty if they are equal.
///
/// Without an earlier text, the whole content is added. `name` stands in both header lines, escaped where needed.
pub fn unified(name: &std::path::Path, before: Option<&str>, after: &str) -> String {
    let shown = pinfold_policy::quote::quote_if_needed(name);
    let from = if before.is_some() { shown.as_str() } else { "/dev/null" };
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Patience)
        .timeout(PATIENCE)
        .diff_lines(before.unwrap_or_default(), after);
    diff.unified_diff().context_radius(CONTEXT).header(from, &shown).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// U526.
    #[test]
    fn a_change_has_three_lines_around_it_and_a_creation_shows_everything() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let diff = unified(Path::new("/f"), Some(before), &before.replace('5', "x"));
        assert_eq!(diff, "--- /f\n+++ /f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n");
        assert_eq!(unified(Path::new("/f"), None, "a\nb\n"), "--- /dev/null\n+++ /f\n@@ -0,0 +1,2 @@\n+a\n+b\n");
        assert_eq!(unified(Path::new("/f"), Some("a"), "a"), "");
    }
}
