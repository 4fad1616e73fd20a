//! Usual clients start the server as their documentation describes, from the configuration that we print.

use crate::Claim;
use crate::wire::{Wire, text};
use pinfold_conformance::walls::{Walls, expect, expect_equal, printed};
use serde_json::{Value, json};

pub(crate) const CLAIMS: &[Claim] = &[
    ("every-printed-configuration-starts-a-server-in-the-workspace", every_client),
    ("a-configuration-is-absolute-and-what-the-server-refuses-is-not-printed", checked),
];

/// The command line that a client reads from its configuration.
fn command_line(client: &str, configuration: &str) -> Option<Vec<String>> {
    let words = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
    };
    if client == "codex" {
        // TOML, as far as it is needed: strings and arrays of strings are those of JSON.
        let field = |name: &str| {
            let line = configuration.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")))?;
            serde_json::from_str::<Value>(line).ok()
        };
        let known = configuration.starts_with("[mcp_servers.pinfold]\n") && field("tool_timeout_sec")?.is_u64();
        let line = [vec![field("command")?.as_str()?.to_owned()], words(&field("args")?)?].concat();
        return known.then_some(line);
    }
    let document: Value = serde_json::from_str(configuration).ok()?;
    let server = match client {
        "vscode" => &document["servers"]["pinfold"],
        "opencode" => &document["mcp"]["servers"]["pinfold"],
        _ => &document["mcpServers"]["pinfold"],
    };
    match client {
        "opencode" => words(&server["command"]).filter(|_| server["type"] == "local"),
        _ => Some([vec![server["command"].as_str()?.to_owned()], words(&server["args"])?].concat()),
    }
}

fn every_client(walls: &Walls) -> Result<(), String> {
    let pinfold = walls.pinfold();
    for client in ["claude-code", "claude-desktop", "codex", "vscode", "cursor", "gemini", "opencode"] {
        let options = ["mcp", "--mode", "workspace-write", "--print-config", client];
        let mut command = walls.plain(&[pinfold.as_os_str()]);
        let configuration = printed(&Walls::finish(command.args(options))?)?;
        let line = command_line(client, &configuration).ok_or_else(|| format!("{client}: {configuration}"))?;
        expect_equal(line[0].as_str(), &*pinfold.to_string_lossy())?;
        expect(!line.iter().any(|word| word.contains("print-config")), format!("{line:?}"))?;
        let words: Vec<&str> = line[2..].iter().map(String::as_str).collect();
        // Claude Desktop starts servers where no project is, so its configuration names one.
        expect_equal(words.contains(&"--workspace"), client == "claude-desktop")?;
        let mut wire = Wire::open(walls, &words, &json!({}))?;
        let result = wire.call("bash", json!({"command": "pwd; touch f && echo ok", "description": "d"}))?;
        expect_equal(text(&result), format!("{}\nok\n", walls.fixture.ws().display()))?;
    }
    let mut unknown = walls.plain(&[pinfold.as_os_str()]);
    let unknown = Walls::finish(unknown.args(["mcp", "--print-config", "emacs"]))?;
    expect_equal(unknown.status.code(), Some(2))
}

fn checked(walls: &Walls) -> Result<(), String> {
    let pinfold = walls.pinfold();
    let print = |words: &[&str]| {
        let mut command = walls.plain(&[pinfold.as_os_str()]);
        Walls::finish(command.args(["mcp", "--print-config", "codex"]).args(words))
    };
    let ws = walls.fixture.ws();
    std::fs::create_dir(ws.join("rel")).map_err(|e| e.to_string())?;
    let configuration = printed(&print(&["--mode", "workspace-write", "--workspace", ".", "--writable=rel"])?)?;
    let line = command_line("codex", &configuration).ok_or(configuration)?;
    let rel = format!("--writable={}", ws.join("rel").display());
    expect_equal(&line[4..], &["--workspace".to_owned(), ws.display().to_string(), rel])?;
    for words in [
        &["--mode", "bogus"][..],
        &["--approval", "bogus"],
        &["--preset", "bogus"],
        &["--workspace", "nodir"],
        &["--session", "nope"],
        &["--http", "0"],
    ] {
        let refused = print(words)?;
        expect_equal((words, refused.status.code()), (words, Some(2)))?;
        expect(refused.stdout.is_empty(), format!("{words:?} was printed"))?;
    }
    Ok(())
}
