//! Our own lints: what neither the compiler nor clippy can know about this workspace.
//!
//! Each room below looks at values only (packages, texts), so that its tests need no disk.

mod code;
mod documents;
mod edges;
#[cfg(test)]
mod samples;
mod size;
mod statements;

use crate::source::{self, Line};
use crate::workspace::{File, Workspace};
use std::fmt;

/// Something that breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// 0 if it concerns the file as a whole.
    line: usize,
    text: String,
}

impl Finding {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

/// A Rust file, taken apart.
pub(crate) struct Source {
    path: String,
    lines: Vec<Line>,
}

impl Source {
    fn new(file: &File) -> Self {
        let mut lines = source::lines(&file.text);
        if file.path.ends_with("/tests.rs") {
            // A module of tests in a file of its own: the `#[cfg(test)]` stands where it is declared.
            lines.iter_mut().for_each(|line| line.of_test = true);
        }
        Self { path: file.path.clone(), lines }
    }

    /// Whether every line of it is a test's.
    fn is_test(&self) -> bool {
        self.path.split('/').any(|part| matches!(part, "tests" | "benches"))
    }

    /// The lines that ship, with their numbers.
    fn shipped(&self) -> impl Iterator<Item = (usize, &Line)> {
        let of_test = self.is_test();
        self.numbered().filter(move |(_, line)| !of_test && !line.of_test)
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// Runs every lint and prints what it finds.
pub(crate) fn run() -> Result<(), String> {
    let workspace = Workspace::find()?;
    let files = workspace.files()?;
    let sources: Vec<Source> = files.iter().filter(|file| file.path.ends_with(".rs")).map(Source::new).collect();
    let mut findings = edges::check(&workspace.packages);
    findings.extend(edges::check_manifests(&files));
    findings.extend(code::check(&sources));
    findings.extend(size::check(&files));
    let budget = size::launcher(&sources);
    findings.extend(budget.findings);
    findings.extend(documents::check(&files, &sources));
    findings.extend(statements::check(&files));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    println!(
        "launcher: {} of {} lines of code, {} index expressions; lint: {} files, {} findings",
        budget.lines,
        size::LAUNCHER_LINES,
        budget.indexing,
        files.len(),
        findings.len()
    );
    if findings.is_empty() { Ok(()) } else { Err(format!("{} findings", findings.len())) }
}
