//! Words that may stand in some rooms only: `unsafe`, conditions on the operating system, calls of it, panics.

use super::{Finding, Source};
use crate::source::words;

pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let lints: [fn(&Source) -> Vec<Finding>; 8] = [
        unsafe_in_its_rooms,
        unsafe_with_its_condition,
        roots_that_forbid_unsafe,
        conditions_on_modules,
        policy_without_system,
        launcher_without_panics,
        names_that_say_nothing,
        tests_that_are_claims,
    ];
    sources.iter().flat_map(|source| lints.into_iter().flat_map(|lint| lint(source))).collect()
}

fn may_be_unsafe(path: &str) -> bool {
    let launcher = path.strip_prefix("crates/launcher/src/");
    launcher.is_some_and(|file| file == "sys.rs" || file == "entry.rs" || file.starts_with("bin/"))
        || path == "crates/broker/src/sys.rs"
        || path.starts_with("crates/conformance/")
}

fn unsafe_in_its_rooms(source: &Source) -> Vec<Finding> {
    if may_be_unsafe(&source.path) {
        return Vec::new();
    }
    let with = source.numbered().filter(|(_, line)| words(&line.code).any(|word| word == "unsafe"));
    with.map(|(number, _)| {
        Finding::new(
            &source.path,
            number,
            "`unsafe` stands in the launcher's sys.rs and entry.rs and the broker's sys.rs only",
        )
    })
    .collect()
}

/// Every block and implementation says which condition it keeps: beside it or above its statement.
fn unsafe_with_its_condition(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in source.lines.iter().enumerate() {
        let opens = |what: &str| {
            line.code
                .match_indices("unsafe")
                .any(|(at, word)| line.code[at + word.len()..].trim_start().starts_with(what))
        };
        if (opens("{") || opens("impl")) && !has_condition(source, index) {
            findings.push(Finding::new(&source.path, index + 1, "an unsafe block without a SAFETY comment"));
        }
    }
    findings
}

fn has_condition(source: &Source, index: usize) -> bool {
    let says = |index: usize| source.lines[index].comment.contains("SAFETY");
    if says(index) {
        return true;
    }
    for above in (0..index).rev() {
        let line = &source.lines[above];
        if says(above) {
            return true;
        }
        let code = line.code.trim();
        // The end of the statement before; but one comment may stand above several blocks of one statement.
        let is_other =
            !code.is_empty() && !code.starts_with("#[") && code.ends_with([';', '}', '{']) && !code.contains("unsafe");
        if is_other || (line.is_empty() && line.comment.is_empty()) {
            return false;
        }
    }
    false
}

/// The workspace denies `unsafe`, which a line can allow again; a crate root that forbids it takes no exception.
fn roots_that_forbid_unsafe(source: &Source) -> Vec<Finding> {
    let exempt = ["crates/launcher/", "crates/broker/src/lib.rs", "crates/conformance/"]
        .iter()
        .any(|path| source.path.starts_with(path));
    let is_root = source.path.ends_with("/src/lib.rs") || source.path.ends_with("/src/main.rs");
    let forbids = || source.lines.iter().any(|line| line.code.contains("#![forbid(unsafe_code)]"));
    if exempt || !is_root || forbids() {
        return Vec::new();
    }
    vec![Finding::new(&source.path, 0, "a crate root without `#![forbid(unsafe_code)]`")]
}

const CONDITIONS: [&str; 8] = [
    "target_os",
    "target_arch",
    "target_family",
    "target_env",
    "target_vendor",
    "target_pointer_width",
    "unix",
    "windows",
];

/// The function that lists the built-in providers, where conditions may stand.
const LISTING: (&str, &str) = ("crates/providers/src/", "fn built_in");

fn conditions_on_modules(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Tests of one system's behaviour, and programs that speak to one kernel, have nothing to share between systems.
    if source.is_test() || source.path.starts_with("crates/conformance/") {
        return findings;
    }
    let mut listing_depth = None;
    let mut depth = 0_i32;
    for (index, line) in source.lines.iter().enumerate() {
        if source.path.starts_with(LISTING.0) && line.code.contains(LISTING.1) {
            listing_depth = Some(depth);
        }
        depth += line.code.matches('{').count() as i32 - line.code.matches('}').count() as i32;
        let code = line.code.trim();
        let is_condition = ["cfg(", "cfg!(", "cfg_attr("].iter().any(|it| code.contains(it))
            && words(code).any(|word| CONDITIONS.contains(&word));
        if is_condition
            && !line.of_test
            && listing_depth.is_none()
            && !code.starts_with("#![cfg(")
            && !is_on_module(source, index)
        {
            findings.push(Finding::new(
                &source.path,
                index + 1,
                "conditions on the system stand on `mod` lines and in the function that lists the providers",
            ));
        }
        if listing_depth.is_some_and(|outside| depth <= outside) && code.ends_with('}') {
            listing_depth = None;
        }
    }
    findings
}

/// Whether the attribute at `index` is one of a module, or of the refusal to compile at all.
fn is_on_module(source: &Source, index: usize) -> bool {
    if !source.lines[index].code.trim().starts_with("#[cfg(") {
        return false;
    }
    let below = source.lines.iter().skip(index + 1).map(|line| line.code.trim());
    let item = below.filter(|code| !code.is_empty()).find(|code| !code.starts_with("#["));
    let item = item.unwrap_or_default();
    item.starts_with("compile_error!")
        || words(item).find(|word| !matches!(*word, "pub" | "crate" | "super")) == Some("mod")
}

/// What a crate of pure values has no use for.
const SYSTEM: [&str; 12] = [
    "std::fs",
    "std::process",
    "std::env",
    "std::net",
    "std::io",
    "std::thread",
    "std::time::SystemTime",
    "std::time::Instant",
    "std::os",
    "rustix",
    "libc",
    "tokio",
];

fn policy_without_system(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with("crates/policy/src/") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in source.shipped() {
        let used = SYSTEM.iter().find(|name| match name.contains("::") {
            true => line.code.contains(**name),
            false => words(&line.code).any(|word| word == **name),
        });
        if let Some(name) = used {
            findings.push(Finding::new(&source.path, number, format!("policy is words, and {name} is not one")));
        }
    }
    findings
}

const PANICS: [&str; 6] = [".unwrap()", ".expect(", "panic!(", "todo!(", "unreachable!(", "unimplemented!("];

fn launcher_without_panics(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with("crates/launcher/src/") {
        return Vec::new();
    }
    let panics = source.shipped().filter_map(|(number, line)| {
        let what = PANICS.iter().find(|what| line.code.contains(**what))?;
        Some(Finding::new(&source.path, number, format!("the launcher reports and exits; it does not `{what}`")))
    });
    panics.collect()
}

const EMPTY_NAMES: [&str; 8] = ["util", "utils", "common", "helper", "helpers", "misc", "manager", "managers"];

fn names_that_say_nothing(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let parts = source.path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    for part in parts.filter(|part| EMPTY_NAMES.contains(part)) {
        findings.push(Finding::new(&source.path, 0, format!("`{part}` names nothing")));
    }
    for (number, line) in source.numbered() {
        let mut words = words(&line.code).skip_while(|word| *word != "mod").skip(1);
        if let Some(name) = words.next().filter(|name| EMPTY_NAMES.contains(name)) {
            findings.push(Finding::new(&source.path, number, format!("`{name}` names nothing")));
        }
    }
    findings
}

/// A test's name is the claim that it makes, and an ignored test says why.
fn tests_that_are_claims(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut awaited = false;
    for (number, line) in source.numbered() {
        let code = line.code.trim();
        if code.starts_with("#[ignore]") {
            findings.push(Finding::new(&source.path, number, "an ignored test without a reason"));
        }
        awaited |= code == "#[test]" || code.ends_with("::test]");
        if !awaited {
            continue;
        }
        let mut words = words(code).skip_while(|word| *word != "fn").skip(1);
        if let Some(name) = words.next() {
            awaited = false;
            if name.starts_with("test_") || is_numbered(name) {
                findings.push(Finding::new(&source.path, number, format!("`{name}` is no claim")));
            }
        }
    }
    findings
}

/// Whether a name tells itself from another by a number only: `escape_2`. A status or a width is part of a claim.
fn is_numbered(name: &str) -> bool {
    let last = name.rsplit('_').next().unwrap_or_default();
    (1..=2).contains(&last.len()) && last.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::samples::{said, source};
    use super::*;

    fn of(lint: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> usize {
        lint(&source(path, text)).len()
    }

    #[test]
    fn unsafe_elsewhere_is_found_and_its_mention_is_not() {
        let lint = unsafe_in_its_rooms;
        assert_eq!(of(lint, "crates/launcher/src/mounts.rs", "fn f() { unsafe { g() } }"), 1);
        assert_eq!(of(lint, "crates/cli/src/main.rs", "// unsafe\n\"unsafe\" unsafe_code"), 0);
        for path in ["crates/launcher/src/sys.rs", "crates/launcher/src/bin/x.rs", "crates/conformance/src/sys.rs"] {
            assert_eq!(of(lint, path, "unsafe {}"), 0);
        }
    }

    #[test]
    fn an_unsafe_block_needs_its_condition() {
        let lint = unsafe_with_its_condition;
        let path = "crates/launcher/src/sys.rs";
        assert_eq!(of(lint, path, "fn f() {\n    // SAFETY: plain.\n    let x =\n        unsafe { g() };\n}"), 0);
        assert_eq!(of(lint, path, "fn f() {\n    let x = unsafe { g() }; // SAFETY: plain.\n}"), 0);
        assert_eq!(of(lint, path, "fn f() {\n    let y = unsafe { g() };\n}"), 1);
        assert_eq!(of(lint, path, "// SAFETY: another's\nfn f() {\n    h();\n    unsafe { g() }\n}"), 1);
        assert_eq!(of(lint, path, "unsafe impl Send for X {}"), 1);
        assert_eq!(of(lint, path, "unsafe fn f() {}\n"), 0);
    }

    #[test]
    fn a_crate_root_forbids_unsafe() {
        assert_eq!(of(roots_that_forbid_unsafe, "crates/cli/src/main.rs", "fn main() {}"), 1);
        assert_eq!(of(roots_that_forbid_unsafe, "crates/cli/src/main.rs", "#![forbid(unsafe_code)]"), 0);
        assert_eq!(of(roots_that_forbid_unsafe, "crates/launcher/src/lib.rs", ""), 0);
        assert_eq!(of(roots_that_forbid_unsafe, "crates/cli/src/sentences.rs", ""), 0);
    }

    #[test]
    fn conditions_stand_on_modules_and_in_the_listing() {
        let lint = conditions_on_modules;
        let path = "crates/providers/src/lib.rs";
        assert_eq!(of(lint, path, "#[cfg(target_os = \"linux\")]\npub(crate) mod start;"), 0);
        assert_eq!(of(lint, path, "#[cfg(target_os = \"linux\")]\nfn f() {}"), 1);
        assert_eq!(of(lint, path, "fn f() {\n    if cfg!(windows) {}\n}"), 1);
        assert_eq!(of(lint, path, "pub fn built_in() {\n    #[cfg(unix)]\n    f();\n}\n#[cfg(unix)]\nfn g() {}"), 1);
        assert_eq!(of(lint, path, "#![cfg(target_os = \"linux\")]\nuse std::os::unix::x;"), 0);
        assert_eq!(of(lint, path, "#[cfg(not(target_os = \"linux\"))]\ncompile_error!(\"\");"), 0);
    }

    #[test]
    fn policy_calls_no_system() {
        let lint = policy_without_system;
        assert_eq!(of(lint, "crates/policy/src/mode.rs", "use std::fs::File;\nrustix::x();"), 2);
        assert_eq!(
            of(lint, "crates/policy/src/mode.rs", "use std::path::Path;\n#[cfg(test)]\nmod t {\nuse std::fs;\n}"),
            0
        );
        assert_eq!(of(lint, "crates/providers/src/lib.rs", "use std::fs::File;"), 0);
    }

    #[test]
    fn the_launcher_does_not_panic() {
        let lint = launcher_without_panics;
        assert_eq!(of(lint, "crates/launcher/src/run.rs", "x.unwrap();\ny.expect(\"\");\npanic!();"), 3);
        assert_eq!(of(lint, "crates/launcher/src/run.rs", "x.unwrap_or(1);\n#[cfg(test)]\nmod t {\nx.unwrap();\n}"), 0);
    }

    #[test]
    fn names_say_something() {
        assert_eq!(of(names_that_say_nothing, "crates/cli/src/util.rs", ""), 1);
        assert_eq!(of(names_that_say_nothing, "crates/cli/src/common/x.rs", "pub mod helpers;"), 2);
        assert_eq!(of(names_that_say_nothing, "crates/cli/src/utility.rs", "mod manage; let common = 1;"), 0);
    }

    #[test]
    fn names_of_tests_are_claims() {
        assert!(is_numbered("escape_2") && !is_numbered("missing_is_127") && !is_numbered("keeps_utf8"));
        let text = "#[test]\nfn test_x() {}\n#[test]\n#[ignore]\nfn x_2() {}\n#[test]\nfn x_is_y() {}\nfn test_y() {}";
        assert_eq!(
            said(tests_that_are_claims(&source("crates/cli/src/x.rs", text))),
            ["2: `test_x` is no claim", "4: an ignored test without a reason", "5: `x_2` is no claim"]
        );
        assert_eq!(of(tests_that_are_claims, "x.rs", "#[ignore = \"#12: why\"]\n#[test]\nfn x_is_y() {}"), 0);
    }
}
