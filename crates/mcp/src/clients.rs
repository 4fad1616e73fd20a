//! Configurations of usual clients, in the forms that their documentation describes.

use serde_json::{Value, json};

/// A client whose configuration is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Claude Code.
    ClaudeCode,
    /// Claude Desktop.
    ClaudeDesktop,
    /// Codex CLI.
    Codex,
    /// Visual Studio Code.
    VsCode,
    /// Cursor.
    Cursor,
    /// Gemini CLI.
    Gemini,
    /// opencode.
    OpenCode,
}

/// Longer than a command may take, so that the client does not give up first; in seconds.
const PATIENCE: u64 = 660;

impl Client {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::ClaudeCode, Self::ClaudeDesktop, Self::Codex, Self::VsCode, Self::Cursor, Self::Gemini, Self::OpenCode];

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Codex => "codex",
            Self::VsCode => "vscode",
            Self::Cursor => "cursor",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
        }
    }

    /// Finds a client by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.as_str() == name)
    }

    /// Says which file it is for.
    pub fn place(self) -> &'static str {
        match self {
            Self::ClaudeCode => ".mcp.json in the project",
            Self::ClaudeDesktop => "claude_desktop_config.json (Settings, Developer, Edit Config)",
            Self::Codex => "~/.codex/config.toml, or .codex/config.toml in a trusted project",
            Self::VsCode => ".vscode/mcp.json in the project",
            Self::Cursor => ".cursor/mcp.json in the project, or ~/.cursor/mcp.json",
            Self::Gemini => ".gemini/settings.json in the project, or ~/.gemini/settings.json",
            Self::OpenCode => "opencode.json in the project, or ~/.config/opencode/opencode.json",
        }
    }

    /// Whether it starts servers in a directory that is not the project's.
    pub fn starts_elsewhere(self) -> bool {
        matches!(self, Self::ClaudeDesktop)
    }

    /// Draws up its configuration for a program with its words, `mcp` included.
    pub fn configuration(self, program: &str, words: &[String]) -> String {
        let server = |more: Value| {
            let mut server = json!({"command": program, "args": words});
            for (key, value) in more.as_object().into_iter().flatten() {
                server[key] = value.clone();
            }
            server
        };
        let document = match self {
            Self::ClaudeCode | Self::Cursor => json!({"mcpServers": {"pinfold": server(json!({"type": "stdio"}))}}),
            Self::ClaudeDesktop => json!({"mcpServers": {"pinfold": server(json!({}))}}),
            Self::VsCode => json!({"servers": {"pinfold": server(json!({"type": "stdio"}))}}),
            // In milliseconds.
            Self::Gemini => json!({"mcpServers": {"pinfold": server(json!({"timeout": PATIENCE * 1000}))}}),
            Self::OpenCode => {
                let command: Vec<&str> = std::iter::once(program).chain(words.iter().map(String::as_str)).collect();
                json!({"mcp": {"servers": {"pinfold": {"type": "local", "command": command}}}})
            }
            Self::Codex => {
                // A string of JSON is one of TOML too, if nothing but quotes and backslashes is escaped.
                let words: Vec<_> = words.iter().map(|word| json!(word).to_string()).collect();
                return format!(
                    "[mcp_servers.pinfold]\ncommand = {}\nargs = [{}]\ntool_timeout_sec = {PATIENCE}\n",
                    json!(program),
                    words.join(", ")
                );
            }
        };
        // An object can always be written.
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_has_a_name_a_place_and_a_configuration_with_program_and_words() {
        let words = ["mcp".to_owned(), "--workspace".to_owned(), "/a \"b\"".to_owned()];
        for client in Client::ALL {
            assert_eq!(Client::named(client.as_str()), Some(client));
            assert!(!client.place().is_empty());
            let text = client.configuration("/usr/bin/pinfold", &words);
            for word in ["/usr/bin/pinfold", "--workspace", r#"/a \"b\""#] {
                assert!(text.contains(word), "{text}");
            }
            if client != Client::Codex {
                serde_json::from_str::<Value>(&text).unwrap();
            }
        }
        assert_eq!(Client::named("emacs"), None);
    }
}
