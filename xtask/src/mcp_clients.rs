//! The official clients of the Model Context Protocol, by their ordinary package managers, below the target directory; and the
//! scripts that drive our server with them.

use crate::step::{self, Tally};
use crate::workspace::Workspace;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The official Python client, for Python 3.10 or newer.
const PYTHON_CLIENT: &str = "mcp==2.3.0";
/// The official inspector. It asks for Node 22; its command line runs on 20 as well, which this host has.
const INSPECTOR: &str = "@modelcontextprotocol/inspector@2.12.0";

const MINUTE: Duration = Duration::from_secs(60);

/// Drives the server with both clients.
pub(crate) fn drive(workspace: &Workspace) -> (Tally, Result<(), String>) {
    let folder = workspace.target.join("mcp-clients");
    let pinfold = workspace.debug().join("pinfold");
    let scripts = workspace.root.join("crates/mcp/clients");
    let mut tally = Tally::default();
    let outcome = (|| {
        let python = python(&folder)?;
        let inspector = inspector(&folder)?;
        let mut first = Command::new(&python);
        first.arg(scripts.join("drive_python.py")).arg(&pinfold);
        let mut second = Command::new(&python);
        second.arg(scripts.join("drive_inspector.py")).arg(&pinfold).arg("node").arg(&inspector);
        let mut outcome = Ok(());
        for command in [&mut first, &mut second] {
            let (counted, result) = step::execute(command, 10 * MINUTE);
            tally.add(counted);
            outcome =
                outcome.and(result).and(if counted == Tally::default() { Err("no test".to_owned()) } else { Ok(()) });
        }
        outcome
    })();
    (tally, outcome)
}

/// A Python with the client.
fn python(folder: &Path) -> Result<std::path::PathBuf, String> {
    let environment = folder.join("python");
    let python = environment.join("bin/python");
    if !python.is_file() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    let mut pip = Command::new(&python);
    run(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYTHON_CLIENT]))?;
    Ok(python)
}

/// The inspector's program.
fn inspector(folder: &Path) -> Result<std::path::PathBuf, String> {
    let place = folder.join("node");
    let program = place.join("node_modules/.bin/mcp-inspector");
    std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(&place).arg(INSPECTOR);
    run(&mut npm)?;
    Ok(program)
}

fn run(command: &mut Command) -> Result<(), String> {
    step::execute(command, 10 * MINUTE).1
}
