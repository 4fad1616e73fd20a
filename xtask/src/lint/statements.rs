//! Statements about policies, requests, presets and approvals: each has a row with a test that cites it, or is a difference.

use super::Finding;
use crate::workspace::File;
use std::collections::BTreeSet;

/// Where the statements about policies, requests, presets and approvals stand, with their numbers.
pub(super) const STATEMENTS: &str = "docs/sessions.md";
const DIFFERENCES: &str = "docs/differences.md";
const NUMBERS: [std::ops::RangeInclusive<u16>; 4] = [243..=271, 272..=293, 548..=562, 563..=581];

/// Each statement has a row with a test that cites it, or stands among the differences.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let of = |path: &str| {
        let text = files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
        text.lines()
            .filter(|line| line.starts_with("| U"))
            .flat_map(|line| numbers(line.split('|').nth(1).unwrap_or_default()))
    };
    let (tested, different): (BTreeSet<u16>, BTreeSet<u16>) = (of(STATEMENTS).collect(), of(DIFFERENCES).collect());
    let is_of_tests = |file: &&File| file.path.ends_with(".rs") && file.path.starts_with("crates/");
    let comments = files.iter().filter(is_of_tests).flat_map(|file| file.text.lines());
    let cited: BTreeSet<u16> = comments.filter(|line| line.contains("//")).flat_map(numbers).collect();
    let mut findings = Vec::new();
    for number in NUMBERS.into_iter().flatten() {
        match (tested.contains(&number), different.contains(&number)) {
            (false, false) => {
                findings.push(Finding::new(STATEMENTS, 0, format!("U{number} has no test and is no difference")))
            }
            (true, _) if !cited.contains(&number) => {
                findings.push(Finding::new(STATEMENTS, 0, format!("no test cites U{number}")));
            }
            _ => {}
        }
    }
    findings
}

/// The numbers of statements in a text: `U243`, and all of `U253–U255`.
fn numbers(text: &str) -> Vec<u16> {
    let number = |word: &str| word.strip_prefix('U').filter(|digits| digits.len() == 3)?.parse::<u16>().ok();
    let pieces = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '–');
    let one = |piece: &str| match piece.split_once('–') {
        Some((first, last)) => {
            number(first).zip(number(last)).map_or(Vec::new(), |(first, last)| (first..=last).collect())
        }
        None => number(piece).into_iter().collect(),
    };
    pieces.flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{file, said};
    use super::*;

    #[test]
    fn a_statement_has_a_test_that_cites_it_or_is_a_difference() {
        assert_eq!(numbers("U253–U255, U7, xU258, U261 (U300)"), [253, 254, 255, 261, 300]);
        let all = |ranges: &[std::ops::RangeInclusive<u16>]| {
            ranges.iter().cloned().flatten().map(|number| format!("U{number} ")).collect::<String>()
        };
        let tested = file(STATEMENTS, &format!("| {} | `a` |\n| U271 | `a` |\n", all(&[243..=269, 272..=293])));
        let different = file(DIFFERENCES, &format!("| {} | x |\n", all(&[548..=581])));
        let cited = file("crates/cli/tests/a.rs", &format!("// {}\n", all(&[243..=270, 272..=293])));
        let found = said(check(&[tested, different, cited]));
        assert_eq!(found, ["0: U270 has no test and is no difference", "0: no test cites U271"]);
    }
}
