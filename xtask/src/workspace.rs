//! The workspace as Cargo and Git see it: packages, files, where builds go.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What Cargo says about the workspace.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Where Cargo builds to.
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One of our packages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its manifest, relative to the root of the workspace.
    pub(crate) manifest: String,
    /// What it names in any of its dependency tables, except those for tests.
    pub(crate) dependencies: Vec<String>,
    /// What it names for its tests.
    pub(crate) test_dependencies: Vec<String>,
}

/// A text file of the tree.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Workspace {
    /// Asks Cargo.
    pub(crate) fn find() -> Result<Self, String> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]);
        let json: Value =
            serde_json::from_str(&output(&mut cargo)?).map_err(|error| format!("cargo metadata: {error}"))?;
        let root = PathBuf::from(text(&json["workspace_root"]));
        let packages = json["packages"].as_array().into_iter().flatten().map(|package| read_package(package, &root));
        Ok(Self { packages: packages.collect(), target: PathBuf::from(text(&json["target_directory"])), root })
    }

    /// Where binaries of the dev profile are.
    pub(crate) fn debug(&self) -> PathBuf {
        self.target.join("debug")
    }

    /// Every text file that Git tracks or would track.
    pub(crate) fn files(&self) -> Result<Vec<File>, String> {
        let mut git = Command::new("git");
        // A checkout that belongs to somebody else is one all the same.
        git.args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&self.root);
        let names = output(&mut git)?;
        let read = |name: &str| {
            // A file that is deleted but not yet committed as such has no text, and neither has a binary one.
            let text = std::fs::read_to_string(self.root.join(name)).ok()?;
            Some(File { path: name.to_owned(), text })
        };
        Ok(names.split_terminator('\0').filter_map(read).collect())
    }
}

fn read_package(json: &Value, root: &Path) -> Package {
    let manifest = Path::new(text(&json["manifest_path"]));
    let named = |of_tests: bool| {
        let all = json["dependencies"].as_array().into_iter().flatten();
        all.filter(|it| (it["kind"].as_str() == Some("dev")) == of_tests)
            .map(|it| text(&it["name"]).to_owned())
            .collect()
    };
    Package {
        name: text(&json["name"]).to_owned(),
        manifest: manifest.strip_prefix(root).unwrap_or(manifest).display().to_string(),
        dependencies: named(false),
        test_dependencies: named(true),
    }
}

fn text(json: &Value) -> &str {
    json.as_str().unwrap_or_default()
}

/// What a program prints; it must succeed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot start {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{name} printed what is not UTF-8"))
}
