//! What differs for PowerShell. Pure: the facts of a host come in as values.

use std::ffi::{OsStr, OsString};

/// Makes console and pipeline write UTF-8. It ends without a line break, so the command's first line stays line 1.
pub const ENCODING_PREAMBLE: &str =
    "[Console]::OutputEncoding = $OutputEncoding = [System.Text.UTF8Encoding]::new($false); ";

/// Returns the argv that runs a command's text: one element holds all of the text.
pub fn argv(program: &OsStr, command: &OsStr) -> Vec<OsString> {
    let mut text = OsString::from(ENCODING_PREAMBLE);
    text.push(command);
    let mut argv = vec![program.to_owned()];
    argv.extend(["-NoLogo", "-NoProfile", "-NonInteractive", "-Command"].map(OsString::from));
    argv.push(text);
    argv
}

/// Says whether a script begins with a word that must be the first of a script, and so cannot follow the preamble:
/// `param`, `using` or `#requires`.
pub fn needs_a_file(script: &str) -> bool {
    let script = script.trim_start().to_ascii_lowercase();
    let word = |word: &str| {
        let rest = script.strip_prefix(word);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || matches!(next, '_' | '-')))
    };
    word("param") || word("using") || word("#requires")
}

/// Holds the facts of a host by which a PowerShell is found.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    /// Whether it is Windows.
    pub windows: bool,
    /// What an operator configured; taken as it is.
    pub configured: Option<OsString>,
    /// `%ProgramFiles%`.
    pub program_files: Option<String>,
    /// `%SystemRoot%`.
    pub system_root: Option<String>,
    /// `%PATH%`.
    pub path: Option<String>,
}

/// Finds the executable. `is_file` looks at a path without following a link of the file system, so that the aliases of the
/// Windows store count; it must not be true for a directory.
pub fn resolve(facts: &HostFacts, is_file: impl Fn(&str) -> bool) -> OsString {
    if let Some(configured) = &facts.configured {
        return configured.clone();
    }
    candidates(facts).into_iter().find(|candidate| is_file(candidate)).map_or_else(|| "pwsh".into(), OsString::from)
}

/// The places on Windows, in order: PowerShell 7 where it is installed, PATH, Windows PowerShell 5.1.
pub fn candidates(facts: &HostFacts) -> Vec<String> {
    if !facts.windows {
        return Vec::new();
    }
    let installed = facts.program_files.as_deref().map(|base| join(base, r"PowerShell\7\pwsh.exe"));
    let path = facts.path.as_deref().unwrap_or_default().split(';');
    let path = path.map(|entry| entry.trim().trim_matches('"')).filter(|entry| !entry.is_empty());
    let shipped =
        facts.system_root.as_deref().map(|base| join(base, r"System32\WindowsPowerShell\v1.0\powershell.exe"));
    installed.into_iter().chain(path.map(|entry| join(entry, "pwsh.exe"))).chain(shipped).collect()
}

fn join(base: &str, rest: &str) -> String {
    format!(r"{}\{rest}", base.trim_end_matches(['\\', '/']))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U406, U407, U412: golden.
    #[test]
    fn the_argv_is_one_text_with_the_preamble_on_its_first_line() {
        assert_eq!(
            argv("pwsh".as_ref(), "Get-Item x\nthrow 'y'".as_ref()),
            [
                "pwsh",
                "-NoLogo",
                "-NoProfile",
                "-NonInteractive",
                "-Command",
                "[Console]::OutputEncoding = $OutputEncoding = [System.Text.UTF8Encoding]::new($false); \
                 Get-Item x\nthrow 'y'"
            ]
            .map(OsString::from)
        );
        assert!(!ENCODING_PREAMBLE.contains('\n'));
    }

    /// U407.
    #[test]
    fn scripts_that_must_begin_themselves_are_known() {
        for script in ["param($x)", " \n Using namespace System", "#Requires -Version 7"] {
            assert!(needs_a_file(script), "{script}");
        }
        for script in ["parameters", "using-thing", "# requires", "echo param"] {
            assert!(!needs_a_file(script), "{script}");
        }
    }

    fn windows() -> HostFacts {
        HostFacts {
            windows: true,
            configured: None,
            program_files: Some(r"C:\Program Files\".to_owned()),
            system_root: Some(r"C:\Windows".to_owned()),
            path: Some(r#"C:\a;"C:\b c";;D:\"#.to_owned()),
        }
    }

    /// U408, U409: golden.
    #[test]
    fn places_come_in_order() {
        assert_eq!(
            candidates(&windows()),
            [
                r"C:\Program Files\PowerShell\7\pwsh.exe",
                r"C:\a\pwsh.exe",
                r"C:\b c\pwsh.exe",
                r"D:\pwsh.exe",
                r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe",
            ]
        );
        assert_eq!(resolve(&windows(), |path| path.starts_with(r"C:\b c")), r"C:\b c\pwsh.exe");
        assert_eq!(resolve(&windows(), |_| false), "pwsh");
        assert_eq!(resolve(&HostFacts::default(), |_| true), "pwsh");
        let configured = HostFacts { configured: Some("own".into()), ..windows() };
        assert_eq!(resolve(&configured, |_| true), "own");
    }
}
