//! Which crate may use which, and what the manifests must say.

use super::Finding;
use crate::workspace::{File, Package};

/// Our crates and the crates of ours that each may use. A new crate names its reason in `ARCHITECTURE.md` and a row here.
const EDGES: &[(&str, &[&str])] = &[
    ("pinfold-policy", &[]),
    ("pinfold-launcher", &[]),
    ("pinfold-broker", &["pinfold-policy"]),
    ("pinfold-providers", &["pinfold-policy"]),
    ("pinfold-executor", &["pinfold-policy", "pinfold-providers"]),
    ("pinfold-fence", &["pinfold-policy"]),
    ("pinfold-session", &["pinfold-policy", "pinfold-providers", "pinfold-executor", "pinfold-fence"]),
    ("pinfold-mcp", &["pinfold-policy", "pinfold-providers", "pinfold-executor", "pinfold-fence", "pinfold-session"]),
    (
        "pinfold-cli",
        &["pinfold-policy", "pinfold-providers", "pinfold-executor", "pinfold-fence", "pinfold-session", "pinfold-mcp"],
    ),
    (
        "pinfold-conformance",
        &["pinfold-policy", "pinfold-providers", "pinfold-executor", "pinfold-fence", "pinfold-session"],
    ),
    ("xtask", &[]),
];

/// The launcher is what everybody trusts: numbers and structs of the kernel, and nothing else.
const LAUNCHER: (&str, &[&str]) = ("pinfold-launcher", &["linux-raw-sys"]);

/// Crates with a lint table of their own, because `unsafe` may stand there.
const OWN_LINTS: [&str; 3] =
    ["crates/launcher/Cargo.toml", "crates/broker/Cargo.toml", "crates/conformance/Cargo.toml"];

pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_ours = |name: &str| EDGES.iter().any(|(known, _)| *known == name) || name.starts_with("pinfold-");
    for package in packages {
        let mut say = |text: String| findings.push(Finding::new(&package.manifest, 0, text));
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == package.name) else {
            say(format!("{} has no row in the table of edges (xtask/src/lint/edges.rs)", package.name));
            continue;
        };
        for used in package.dependencies.iter().chain(&package.test_dependencies) {
            if is_ours(used) && !allowed.contains(&used.as_str()) {
                say(format!("{} may not use {used}", package.name));
            }
        }
        if package.name == LAUNCHER.0 {
            for used in package.dependencies.iter().filter(|used| !LAUNCHER.1.contains(&used.as_str())) {
                say(format!("the launcher's dependencies are frozen; {used} is not one of them"));
            }
        }
    }
    findings
}

pub(super) fn check_manifests(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        if file.path == "Cargo.toml" {
            findings.extend(check_reasons(file));
            continue;
        }
        let mut lines = file.text.lines().map(str::trim);
        let inherits = lines.by_ref().any(|line| line == "[lints]") && lines.next() == Some("workspace = true");
        if !inherits && !OWN_LINTS.contains(&file.path.as_str()) {
            findings.push(Finding::new(
                &file.path,
                0,
                "does not take the lints of the workspace (`[lints] workspace = true`)",
            ));
        }
    }
    findings
}

/// Every dependency that is not ours says on its line why it is there.
fn check_reasons(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().enumerate();
    let table = lines.skip_while(|(_, line)| line.trim() != "[workspace.dependencies]").skip(1);
    let entries = table.take_while(|(_, line)| !line.starts_with('[')).filter(|(_, line)| line.contains('='));
    let bare = entries.filter(|(_, line)| !line.starts_with('#') && !line.contains("path =") && !line.contains(" # "));
    bare.map(|(index, _)| Finding::new(&file.path, index + 1, "a dependency without a reason on its line")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{file, said};
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies.iter().map(|it| (*it).to_owned()).collect();
        Package { name: name.to_owned(), dependencies, ..Package::default() }
    }

    #[test]
    fn an_edge_that_is_not_in_the_table_is_found() {
        let good = [package("pinfold-providers", &["pinfold-policy", "rustix"]), package("pinfold-policy", &["serde"])];
        assert!(check(&good).is_empty());
        assert_eq!(
            said(check(&[package("pinfold-providers", &["pinfold-launcher"])]))[0],
            "0: pinfold-providers may not use pinfold-launcher"
        );
        let mut for_tests = package("pinfold-policy", &[]);
        for_tests.test_dependencies = vec!["pinfold-conformance".to_owned()];
        assert_eq!(check(&[for_tests]).len(), 1);
    }

    #[test]
    fn a_new_crate_needs_a_row() {
        assert_eq!(check(&[package("pinfold-tools", &[])]).len(), 1);
    }

    #[test]
    fn the_launcher_uses_kernel_numbers_only() {
        assert!(check(&[package("pinfold-launcher", &["linux-raw-sys"])]).is_empty());
        assert_eq!(check(&[package("pinfold-launcher", &["linux-raw-sys", "rustix"])]).len(), 1);
        assert_eq!(check(&[package("pinfold-launcher", &["pinfold-policy"])]).len(), 2);
    }

    #[test]
    fn manifests_take_the_lints_and_give_reasons() {
        let good = file("crates/policy/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n");
        let own = file("crates/launcher/Cargo.toml", "[lints.rust]\n");
        assert!(check_manifests(&[good, own]).is_empty());
        assert_eq!(check_manifests(&[file("crates/cli/Cargo.toml", "[package]\n")]).len(), 1);
        let root =
            "[workspace.dependencies]\na = { path = \"a\" }\nb = \"1\" # for b\nc = \"1\"\n\n[profile.dev]\nd = 1\n";
        assert_eq!(
            said(check_manifests(&[file("Cargo.toml", root)])),
            ["4: a dependency without a reason on its line"]
        );
    }
}
