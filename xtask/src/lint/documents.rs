//! Documents: links lead somewhere, tests that are named exist, and no host of a package registry is named.

use super::{Finding, Source};
use crate::source::words;
use crate::workspace::File;
use std::collections::BTreeSet;

pub(super) fn check(files: &[File], sources: &[Source]) -> Vec<Finding> {
    let mut findings = registry_hosts(files);
    findings.extend(links(files));
    findings.extend(named_tests(files, &claims(files, sources)));
    findings.extend(cited_cases(files));
    findings.extend(audited_statements(files));
    findings
}

/// Hosts that nothing of ours names, in halves, because this file is part of the tree.
const HOSTS: [(&str, &str); 7] = [
    ("crates", ".io"),
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("npmjs", ".org"),
    ("npmjs", ".com"),
    ("deb.debian", ".org"),
    ("proxy.golang", ".org"),
];

fn registry_hosts(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Cargo writes the name of its index into its lock file.
    for file in files.iter().filter(|file| !file.path.ends_with("Cargo.lock")) {
        for (index, line) in file.text.lines().enumerate() {
            if HOSTS.iter().any(|(name, end)| line.contains(&format!("{name}{end}"))) {
                findings.push(Finding::new(&file.path, index + 1, "names the host of a package registry"));
            }
        }
    }
    findings
}

/// Every relative link of a document names a file, and a heading of it where it says so.
fn links(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, target) in targets(&file.text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            let found = files.iter().find(|other| other.path == path);
            let is_folder =
                || files.iter().any(|other| other.path.starts_with(&format!("{}/", path.trim_end_matches('/'))));
            match found {
                None if !is_folder() => {
                    findings.push(Finding::new(&file.path, number, format!("no such file: {target}")))
                }
                Some(other) if !heading.is_empty() && !headings(&other.text).contains(heading) => {
                    findings.push(Finding::new(&file.path, number, format!("no such heading: {target}")));
                }
                _ => {}
            }
        }
    }
    findings
}

/// The targets of inline links outside code, with their lines.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut targets = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced || line.starts_with("    ") {
            continue;
        }
        // What stands between backquotes is code: every second piece.
        for piece in line.split('`').step_by(2) {
            for (at, _) in piece.match_indices("](") {
                let rest = &piece[at + 2..];
                targets.extend(rest.find(')').map(|end| (index + 1, &rest[..end])));
            }
        }
        // A link whose text is code: [`x`](target).
        for (at, _) in line.match_indices("`](") {
            let rest = &line[at + 3..];
            targets.extend(rest.find(')').map(|end| (index + 1, &rest[..end])));
        }
    }
    targets.sort_unstable();
    targets.dedup();
    targets
}

fn resolve(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The names under which headings can be linked to.
fn headings(text: &str) -> BTreeSet<String> {
    let titles = text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let slug = |title: &str| {
        let kept = title
            .to_lowercase()
            .chars()
            .filter(|it| it.is_alphanumeric() || matches!(it, ' ' | '-' | '_'))
            .collect::<String>();
        kept.replace(' ', "-")
    };
    titles.map(slug).collect()
}

/// Documents whose tables name tests, in a column with this title.
const WITH_TESTS: [&str; 5] =
    ["docs/past-escapes.md", "SECURITY.md", "docs/executor.md", AUDITED, super::statements::STATEMENTS];
const COLUMN: &str = "Test";

/// Everything that a document may call a test: functions, rows of the effects table, and names that the conformance tests
/// give to their trials.
fn claims(files: &[File], sources: &[Source]) -> BTreeSet<String> {
    let mut claims = BTreeSet::new();
    for source in sources {
        for line in &source.lines {
            let mut words = words(&line.code).skip_while(|word| *word != "fn").skip(1);
            claims.extend(words.next().map(str::to_owned));
        }
    }
    let table = files.iter().find(|file| file.path == "crates/conformance/src/expectations.txt");
    let rows = table.map_or("", |table| &table.text).lines().filter(|line| !line.starts_with('#'));
    claims.extend(rows.filter_map(|line| line.split(" | ").next()).map(|id| id.trim().to_owned()));
    for file in files.iter().filter(|file| file.path.starts_with("crates/conformance/tests/")) {
        // What stands between quotes: every second piece.
        for text in file.text.split('"').skip(1).step_by(2) {
            // A masked run is called after what it has to do without.
            claims.insert(format!("without-{text}"));
            claims.extend(text.rsplit('/').next().map(str::to_owned));
        }
    }
    claims
}

/// Each row of such a table names tests that exist, or says in words why there is none.
fn named_tests(files: &[File], claims: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| WITH_TESTS.contains(&file.path.as_str())) {
        let mut column = None;
        for (index, line) in file.text.lines().enumerate() {
            if !line.starts_with('|') {
                column = None;
                continue;
            }
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let Some(at) = column else {
                column = cells.iter().position(|cell| *cell == COLUMN);
                continue;
            };
            let cell = cells.get(at).copied().unwrap_or_default();
            if cell.starts_with("---") {
                continue;
            }
            let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            if cell.is_empty() || (named.is_empty() && !cell.starts_with("none: ")) {
                findings.push(Finding::new(&file.path, index + 1, "a row without a test, and without `none: REASON`"));
            }
            for name in named {
                if !claims.contains(name) && !claims.contains(&name.replace('-', "_")) {
                    findings.push(Finding::new(&file.path, index + 1, format!("no test is called `{name}`")));
                }
            }
        }
    }
    findings
}

/// Each case or weakness that a row with a test is about is cited where tests are, so that one leads to the other.
fn cited_cases(files: &[File]) -> Vec<Finding> {
    let is_of_tests = |file: &&File| {
        let parts: Vec<&str> = file.path.split('/').collect();
        parts.first() == Some(&"crates") && matches!(parts.get(2), Some(&"tests" | &"src"))
    };
    let cited: BTreeSet<&str> =
        files.iter().filter(is_of_tests).flat_map(|file| words(&file.text)).filter(|word| is_case(word)).collect();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path == WITH_TESTS[0]) {
        for (index, line) in file.text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            if cells.last().is_some_and(|test| test.starts_with("none: ")) {
                continue;
            }
            let ids = words(cells.first().copied().unwrap_or_default()).filter(|word| is_case(word));
            for id in ids.filter(|id| !cited.contains(id)) {
                findings.push(Finding::new(&file.path, index + 1, format!("no test cites {id}")));
            }
        }
    }
    findings
}

/// The document in which every statement about file tools has a row, and where it is said what differs.
const AUDITED: &str = "docs/files.md";
const DIFFERENCES: &str = "docs/differences.md";

/// The statements and weaknesses that it is about.
fn about_files() -> impl Iterator<Item = String> {
    let weak = [2, 3, 10, 23].into_iter().chain(45..=55);
    (438..=532).map(|number| format!("U{number}")).chain(weak.map(|number| format!("W{number:02}")))
}

/// Each of them has a row, and is cited where tests are, or stands among the differences.
fn audited_statements(files: &[File]) -> Vec<Finding> {
    let Some(audit) = files.iter().find(|file| file.path == AUDITED) else { return Vec::new() };
    let mut rows: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for (index, line) in
        audit.text.lines().enumerate().filter(|(_, line)| line.starts_with("| U") || line.starts_with("| W"))
    {
        rows.extend(ids(first_cell(line)).into_iter().map(|id| (id, index + 1)));
    }
    let is_of_tests = |file: &&File| {
        let parts: Vec<&str> = file.path.split('/').collect();
        parts.first() == Some(&"crates") && matches!(parts.get(2), Some(&"tests" | &"src"))
    };
    let tests: BTreeSet<&str> = files.iter().filter(is_of_tests).flat_map(|file| words(&file.text)).collect();
    let differ: BTreeSet<String> = files
        .iter()
        .filter(|file| file.path == DIFFERENCES)
        .flat_map(|file| file.text.lines().filter(|line| line.starts_with('|')).flat_map(|line| ids(first_cell(line))))
        .collect();
    let mut findings = Vec::new();
    for id in about_files() {
        match rows.get(&id) {
            None => findings.push(Finding::new(&audit.path, 0, format!("no row for {id}"))),
            Some(line) if !tests.contains(id.as_str()) && !differ.contains(&id) => {
                let text = format!("no test cites {id}, and it is not among the differences");
                findings.push(Finding::new(&audit.path, *line, text));
            }
            Some(_) => {}
        }
    }
    findings
}

fn first_cell(line: &str) -> &str {
    line.trim_matches('|').split('|').next().unwrap_or_default()
}

/// The identifiers in a cell; `U1–U3` stands for three.
fn ids(cell: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in cell.split(',').map(str::trim) {
        let (first, last) = part.split_once('–').unwrap_or((part, part));
        let number = |id: &str| id.get(1..).and_then(|digits| digits.parse::<u32>().ok());
        if let (Some(kind @ ("U" | "W")), Some(from), Some(to)) = (first.get(..1), number(first), number(last)) {
            let width = first.len() - 1;
            found.extend((from..=to).map(|number| format!("{kind}{number:0width$}")));
        }
    }
    found
}

/// `W` and two digits, or `B` and three.
fn is_case(word: &str) -> bool {
    let digits = |from: &str, count| from.len() == count && from.bytes().all(|byte| byte.is_ascii_digit());
    word.strip_prefix('W').is_some_and(|rest| digits(rest, 2))
        || word.strip_prefix('B').is_some_and(|rest| digits(rest, 3))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{file, said, source};
    use super::*;

    #[test]
    fn hosts_of_registries_are_found_but_in_the_lock_file() {
        let text = format!("see {}{}\n", "pypi", ".org");
        assert_eq!(said(registry_hosts(&[file("docs/a.md", &text)])), ["1: names the host of a package registry"]);
        assert!(registry_hosts(&[file("Cargo.lock", &text), file("b.md", "a registry")]).is_empty());
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let files = [
            file(
                "docs/a.md",
                "[x](b.md) [`y`](../c.md#Why-not) [z](#a-b)\n# A: B\n`[n](no.md)`\n[d](decisions) [w](https://x)\n",
            ),
            file("docs/b.md", ""),
            file("docs/decisions/x.md", ""),
            file("c.md", "## Why not\n"),
        ];
        assert_eq!(said(links(&files)), ["1: no such heading: ../c.md#Why-not"]);
        assert_eq!(said(links(&[file("a.md", "\n[x](b.md)")])), ["2: no such file: b.md"]);
    }

    #[test]
    fn a_named_test_exists_and_a_missing_one_has_a_reason() {
        let claims = claims(
            &[
                file("crates/conformance/src/expectations.txt", "# x\npath-create    | changed\n"),
                file("crates/conformance/tests/masked.rs", "mask(\"landlock\"), (\"{x}/changes-nothing\")"),
            ],
            &[source("crates/cli/tests/a.rs", "fn daemon_ends() {}\nfn f() {}")],
        );
        let table = "| Hole | Test |\n|---|---|\n| a | `path-create`, `daemon-ends`, `without-landlock`, `changes-nothing` |\n| b | none: cannot be |\n| c | |\n| d | `gone` |\n";
        assert_eq!(
            said(named_tests(&[file("SECURITY.md", table)], &claims)),
            ["5: a row without a test, and without `none: REASON`", "6: no test is called `gone`"]
        );
    }

    #[test]
    fn a_statement_about_files_has_a_row_and_a_test_or_a_difference() {
        assert_eq!(ids(" U499, U501–U503, W02, B1 "), ["U499", "U501", "U502", "U503", "W02"]);
        let rows = "| statements | Test |\n| U438–U530 | `a` |\n| U532, W02, W03, W10, W23, W45–W55 | `a` |\n";
        let differences = "| U439–U532, W03–W55 | x | y | z |\n";
        let files = [
            file(AUDITED, rows),
            file(DIFFERENCES, differences),
            file("crates/fence/tests/a.rs", "/// U531.\n"),
            file("docs/other.md", "U438 W02"),
        ];
        assert_eq!(
            said(audited_statements(&files)),
            [
                "2: no test cites U438, and it is not among the differences",
                "0: no row for U531",
                "3: no test cites W02, and it is not among the differences"
            ]
        );
    }

    #[test]
    fn a_case_with_a_test_is_cited_by_one() {
        let table = "| Hole | Test |\n| W01, B123: x | `a` |\n| B124: y | none: why |\n| B12: z | `a` |\n";
        let files = [file("docs/past-escapes.md", table), file("crates/cli/tests/a.rs", "// Case W01.\n")];
        assert_eq!(said(cited_cases(&files)), ["2: no test cites B123"]);
    }
}
