//! `docs/cli.md`, made from the definitions of the command line so that the two cannot differ.

use crate::arguments::Arguments;
use clap::CommandFactory as _;
use std::fmt::Write as _;

const HEAD: &str = "\
# The command line: `pinfold`

<!-- Made by `pinfold manual` from crates/cli/src/arguments.rs. CI compares; do not edit. -->

This is what `--help` prints, command by command. Errors look like this, with one hint that ends in something
to run:

    pinfold: error[CODE]: what is wrong
    pinfold: hint: what helps: something to run

With `--json` the error is one object, `{code, message, causes?, guarantees?}`. The codes are those of
`crates/policy/src/error.rs` and `crates/session/src/error.rs`, and `USAGE` for a command line that cannot be read.
";

/// Renders `docs/cli.md`.
pub fn render_manual() -> String {
    let mut root = Arguments::command();
    root.build();
    let mut out = HEAD.to_owned();
    section(&mut out, "pinfold", root.clone());
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        let title = format!("pinfold {}", command.get_name());
        section(&mut out, &title, command.clone());
        for inner in command.get_subcommands() {
            section(&mut out, &format!("{title} {}", inner.get_name()), inner.clone());
        }
    }
    out
}

fn section(out: &mut String, title: &str, mut command: clap::Command) {
    let _ = write!(out, "\n## `{title}`\n\n```text\n"); // writing to a String cannot fail
    for line in command.render_long_help().to_string().trim_end().lines() {
        let _ = writeln!(out, "{}", line.trim_end()); // as above
    }
    out.push_str("```\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_the_one_that_the_definitions_make() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        let document = std::fs::read_to_string(path).unwrap();
        assert!(document == render_manual(), "docs/cli.md is stale: cargo run -q --bin pinfold manual > docs/cli.md");
    }

    /// Every page that is shown.
    fn pages(root: &clap::Command) -> Vec<clap::Command> {
        let shown: Vec<_> = root.get_subcommands().filter(|page| !page.is_hide_set()).collect();
        let inner = shown.iter().flat_map(|page| page.get_subcommands());
        std::iter::once(root).chain(shown.iter().copied()).chain(inner).cloned().collect()
    }

    #[test]
    fn short_help_fits_a_screen() {
        let mut root = Arguments::command();
        root.build();
        for mut page in pages(&root) {
            let text = page.render_help().to_string();
            assert!(text.lines().count() <= 24, "{}: {}\n{text}", page.get_name(), text.lines().count());
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
    }

    #[test]
    fn first_help_lines_are_imperative_without_a_stop_and_every_manual_has_one_example() {
        let mut root = Arguments::command();
        root.build();
        for mut page in pages(&root) {
            let long = page.render_long_help().to_string();
            let first = long.lines().next().unwrap();
            assert!(!first.ends_with('.'), "{first}");
            assert_eq!(long.matches("Example:\n").count(), 1, "{long}");
        }
    }
}
