//! `cargo xtask gen`: documents, or parts of them, that are made from the code, so that they cannot say something else.
//!
//! A part stands between `<!-- generated: NAME -->` and `<!-- end -->`. The command line's document is made by the program itself.

use crate::workspace::{File, Workspace, output};
use std::path::Path;
use std::process::Command;

/// What to do with a document that differs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Write,
    Compare,
}

pub(crate) fn run(act: Act) -> Result<(), String> {
    let workspace = Workspace::find()?;
    let files = workspace.files()?;
    let mut differing = Vec::new();
    let manual = manual(&workspace)?;
    settle(&workspace.root, MANUAL, read(&files, MANUAL).unwrap_or_default(), &manual, act, &mut differing)?;
    let guarantees = read(&files, GUARANTEES)?;
    let wanted = with_part(guarantees, "open", &open_effects(read(&files, TABLE)?, read(&files, REASONS)?))?;
    let wanted = with_part(&wanted, "strengths", &strengths(&files)?)?;
    settle(&workspace.root, GUARANTEES, guarantees, &wanted, act, &mut differing)?;
    if differing.is_empty() {
        Ok(())
    } else {
        Err(format!("{} out of date; run `cargo xtask gen`", differing.join(", ")))
    }
}

/// What the program says about its own command line. Built with the whole workspace, so that CI does not build it anew.
fn manual(workspace: &Workspace) -> Result<String, String> {
    let mut cargo = Command::new(env!("CARGO"));
    output(cargo.args(["build", "--quiet", "--workspace", "--bin", "pinfold"]).current_dir(&workspace.root))?;
    output(Command::new(workspace.debug().join("pinfold")).arg("manual"))
}

const MANUAL: &str = "docs/cli.md";
const GUARANTEES: &str = "docs/guarantees.md";
const TABLE: &str = "crates/conformance/src/expectations.txt";
const REASONS: &str = "crates/conformance/src/expect.rs";

fn read<'a>(files: &'a [File], path: &str) -> Result<&'a str, String> {
    files.iter().find(|file| file.path == path).map(|file| file.text.as_str()).ok_or(format!("{path} is missing"))
}

fn settle(
    root: &Path,
    path: &str,
    is: &str,
    wanted: &str,
    act: Act,
    differing: &mut Vec<String>,
) -> Result<(), String> {
    if is == wanted {
        return Ok(());
    }
    match act {
        Act::Compare => differing.push(path.to_owned()),
        Act::Write => {
            std::fs::write(root.join(path), wanted).map_err(|error| format!("cannot write {path}: {error}"))?;
            println!("wrote {path}");
        }
    }
    Ok(())
}

/// Replaces the generated part of a document.
fn with_part(text: &str, name: &str, part: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
    let (before, rest) = text.split_once(&begin).ok_or(format!("no generated part is called {name}"))?;
    let (_, after) = rest.split_once(end).ok_or(format!("the generated part {name} has no end"))?;
    Ok(format!("{before}{begin}{part}{end}{after}"))
}

/// The mechanisms and modes of which a golden file shows what is stated.
const SHOWN: [(&str, &str); 6] = [
    ("linux_namespace", "workspace-write"),
    ("linux_namespace", "read-only"),
    ("linux_bwrap", "workspace-write"),
    ("linux_bwrap", "read-only"),
    ("linux_landlock", "workspace-write"),
    ("linux_landlock", "read-only"),
];

/// Every promise with its strength and layers, from lines such as `network: not-asked unverified []`.
fn strengths(files: &[File]) -> Result<String, String> {
    let mut text = String::from("| guarantee |");
    for (mechanism, mode) in SHOWN {
        text.push_str(&format!(" {mechanism}, {mode} |"));
    }
    text.push_str(&format!("\n|---|{}\n", "---|".repeat(SHOWN.len())));
    let mut columns = Vec::new();
    for (mechanism, mode) in SHOWN {
        columns.push(read(files, &format!("crates/providers/src/{mechanism}/golden/{mode}.txt"))?);
    }
    for (guarantee, _) in columns.iter().take(1).flat_map(|first| stated(first)) {
        text.push_str(&format!("| {guarantee} |"));
        for column in &columns {
            let cell = stated(column).find(|(name, _)| *name == guarantee).map_or("", |(_, cell)| cell);
            let (strength, layers) = cell.split_once(" [").unwrap_or((cell, ""));
            let strength = strength.split(' ').next().unwrap_or_default();
            match layers.trim_end_matches(']') {
                "" => text.push_str(&format!(" {strength} |")),
                layers => text.push_str(&format!(" {strength}: {} |", layers.replace(' ', ", "))),
            }
        }
        text.push('\n');
    }
    Ok(text)
}

fn stated(golden: &str) -> impl Iterator<Item = (&str, &str)> {
    golden
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(_, cell)| cell.ends_with(']') && cell.contains(" ["))
}

/// Every attempt that the effects table leaves open, with where and why; those that are alike in one row.
fn open_effects(table: &str, reasons: &str) -> String {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for line in table.lines().filter(|line| !line.starts_with('#') && line.contains("open:")) {
        let cells: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [id, _, confined @ ..] = &cells[..] else { continue };
        let keys = confined.iter().flat_map(|cell| cell.split(' ')).filter_map(|word| word.split_once("open:"));
        let mut why: Vec<&str> = keys.map(|(_, key)| reason(reasons, key)).collect();
        why.dedup();
        let shown: Vec<String> = confined.iter().map(|cell| open_in(cell)).collect();
        let row = format!("{} | {}", shown.join(" | "), why.join("; "));
        match rows.iter_mut().find(|(known, _)| *known == row) {
            Some((_, ids)) => ids.push(id),
            None => rows.push((row, vec![id])),
        }
    }
    let mut text = String::from("| attempts | namespace | bwrap | landlock | why |\n|---|---|---|---|---|\n");
    for (row, ids) in rows {
        text.push_str(&format!("| `{}` | {row} |\n", ids.join("` `")));
    }
    text
}

/// Under which condition a cell is open.
fn open_in(cell: &str) -> String {
    let open = cell.split(' ').filter_map(|word| word.split_once("open:")).map(|(condition, _)| match condition {
        "" => "open",
        "rw=" => "workspace-write",
        "ro=" => "read-only",
        "root=" => "root",
        "user=" => "ordinary user",
        other => other,
    });
    let open: Vec<&str> = open.collect();
    if open.is_empty() { "closed".to_owned() } else { open.join(", ") }
}

/// The sentence of a reason, from the list in the harness's source.
fn reason<'a>(source: &'a str, key: &'a str) -> &'a str {
    let Some((_, rest)) = source.split_once(&format!("\"{key}\",")) else { return key };
    rest.split('"').nth(1).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_replaced_and_the_rest_stays() {
        let text = "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n";
        assert_eq!(with_part(text, "x", "new\n").unwrap(), "a\n<!-- generated: x -->\nnew\n<!-- end -->\nb\n");
        assert!(with_part(text, "y", "").is_err());
    }

    #[test]
    fn strengths_come_from_golden_files() {
        let golden =
            "--wall\n\ntemp: None\nnetwork: not-asked unverified []\nprivilege: enforced verified [hygiene seccomp]\n";
        let files = SHOWN.map(|(mechanism, mode)| File {
            path: format!("crates/providers/src/{mechanism}/golden/{mode}.txt"),
            text: golden.to_owned(),
        });
        let text = strengths(&files).unwrap();
        let cells = " enforced: hygiene, seccomp |".repeat(SHOWN.len());
        assert_eq!(text.lines().nth(3), Some(format!("| privilege |{cells}").as_str()));
        assert_eq!(text.lines().count(), 4);
        assert!(strengths(&files[1..]).is_err());
    }

    #[test]
    fn open_cells_are_listed_with_their_reason() {
        let table = "# c\na-b   | changed | EROFS | rw=open:link ro=EROFS | open:link\nc | ok | ok | ok | ok\n\
                     d | changed | ENOENT | rw=open:link ro=EROFS | open:link\n";
        let listed = open_effects(table, "(\n \"link\",\n \"a second name\"),");
        assert_eq!(listed.lines().nth(2), Some("| `a-b` `d` | closed | workspace-write | open | a second name |"));
        assert_eq!(listed.lines().count(), 3);
    }
}
