//! Names that are protected wherever a tool would look for them: directly in a project, or in the home directory.

use super::ProtectionRule::{self, AgentSettings, EditorSettings, OwnSettings, ShellStart};
use std::ffi::OsStr;

/// Single names, lower case; letters fit in either case, because on some file systems they do.
///
/// What is *not* here: text that a model reads as instructions (`AGENTS.md`, `CLAUDE.md`), which people have agents write,
/// and files of builds and of continuous integration, which are the work itself.
const NAMES: &[(&str, ProtectionRule)] = &[
    (".claude", AgentSettings),
    (".codex", AgentSettings),
    (".cursor", AgentSettings),
    (".gemini", AgentSettings),
    (".windsurf", AgentSettings),
    (".kiro", AgentSettings),
    (".opencode", AgentSettings),
    (".aider.conf.yml", AgentSettings),
    (".mcp.json", AgentSettings),
    (".vscode", EditorSettings),
    (".idea", EditorSettings),
    (".zed", EditorSettings),
    (".fleet", EditorSettings),
    (".devcontainer", EditorSettings),
    (".devcontainer.json", EditorSettings),
    (".exrc", EditorSettings),
    (".vimrc", EditorSettings),
    (".nvimrc", EditorSettings),
    (".nvim.lua", EditorSettings),
    (".dir-locals.el", EditorSettings),
    (".dir-locals-2.el", EditorSettings),
    (".husky", EditorSettings),
    (".envrc", ShellStart),
    (".profile", ShellStart),
    (".bashrc", ShellStart),
    (".bash_profile", ShellStart),
    (".bash_login", ShellStart),
    (".bash_logout", ShellStart),
    (".bash_aliases", ShellStart),
    (".zshrc", ShellStart),
    (".zshenv", ShellStart),
    (".zprofile", ShellStart),
    (".zlogin", ShellStart),
    (".zlogout", ShellStart),
    (".kshrc", ShellStart),
    (".cshrc", ShellStart),
    (".tcshrc", ShellStart),
    (".login", ShellStart),
    (".inputrc", ShellStart),
    (".xprofile", ShellStart),
    (".xinitrc", ShellStart),
    (".xsession", ShellStart),
    (".xsessionrc", ShellStart),
    (".pam_environment", ShellStart),
];

/// What is protected in the home directory beyond the names above, with everything below it.
pub const SETTINGS_IN_HOME: &[&str] = &[
    ".gitconfig",
    ".config/git",
    ".ssh",
    ".gnupg",
    ".tmux.conf",
    ".emacs",
    ".emacs.d",
    ".config/nvim",
    ".config/fish",
    ".config/pinfold",
    ".config/autostart",
    ".config/environment.d",
    ".config/systemd",
    ".config/Code/User",
    ".local/share/systemd",
    ".local/share/applications",
    ".local/bin",
];

/// Returns the rule of a single name.
pub(super) fn rule_on_name(name: &OsStr) -> Option<ProtectionRule> {
    let bytes = name.as_encoded_bytes();
    if bytes.eq_ignore_ascii_case(b"pinfold.toml") || starts_with(bytes, b".pinfold") {
        return Some(OwnSettings);
    }
    // Most names have no dot in front, and are done with here.
    if bytes.first() != Some(&b'.') {
        return None;
    }
    NAMES.iter().find(|(known, _)| bytes.eq_ignore_ascii_case(known.as_bytes())).map(|(_, rule)| *rule)
}

fn starts_with(bytes: &[u8], beginning: &[u8]) -> bool {
    bytes.get(..beginning.len()).is_some_and(|start| start.eq_ignore_ascii_case(beginning))
}
