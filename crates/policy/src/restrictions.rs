//! What a call closes beyond its mode: the network, sockets of other processes, paths for reading, variables.
//!
//! A mode speaks of writing only, and its wire form is fixed; a consumer that wants more closed says so here, beside
//! it. The default closes nothing, as the modes promise.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::SandboxError;
use crate::quote::quote;
use crate::wire;

closed_words! {
    /// Names which network a command finds.
    pub enum Network("network") {
        /// The host's.
        Open => "open",
        /// One of its own, with a loopback device: servers that it starts itself can be reached, nothing else.
        Private => "private",
        /// None: no sockets but unix ones.
        Off => "off",
    }
}

closed_words! {
    /// Names whether unix sockets of processes outside can be reached by path.
    pub enum Sockets("socket rule") {
        /// Whatever the file permissions allow.
        Open => "open",
        /// None but those that are listed; sockets below writable roots and in the private temp stay usable.
        Closed => "closed",
    }
}

closed_words! {
    /// Names which environment a command receives.
    pub enum Variables("environment rule") {
        /// The caller's.
        Inherit => "inherit",
        /// The caller's, without variables whose names are those of credentials and of their agents.
        Scrub => "scrub",
    }
}

/// Holds what a call closes beyond its mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Restrictions {
    /// The network.
    pub network: Network,
    /// Unix sockets by path.
    pub sockets: Sockets,
    /// Sockets that stay reachable although `sockets` is closed: absolute paths.
    #[serde(with = "wire::strict::paths")]
    pub allowed_sockets: Vec<PathBuf>,
    /// Files and directories that cannot be read, absolute paths; a directory stands for everything below it.
    #[serde(with = "wire::strict::paths")]
    pub denied_reads: Vec<PathBuf>,
    /// The environment.
    pub variables: Variables,
    /// Names of variables that stay although `variables` is scrubbed.
    pub kept_variables: Vec<String>,
}

impl Default for Restrictions {
    fn default() -> Self {
        Self {
            network: Network::Open,
            sockets: Sockets::Open,
            allowed_sockets: Vec::new(),
            denied_reads: Vec::new(),
            variables: Variables::Inherit,
            kept_variables: Vec::new(),
        }
    }
}

/// Patterns of the names that `scrub` removes: `*` stands for any text, letters fit in either case.
///
/// Names end in these words rather than contain them, so that `TOKENIZERS_PARALLELISM` and `KEYMAP` stay.
pub const SECRET_VARIABLES: &[&str] = &[
    "*TOKEN",
    "*_TOKEN_*",
    "*_KEY",
    "*APIKEY",
    "*_KEY_ID",
    "*SECRET",
    "*_SECRET_*",
    "*PASSWORD",
    "*PASSWD",
    "*_PASS",
    "*PASSPHRASE",
    "*_PAT",
    "*_COOKIE",
    "*CREDENTIAL",
    "*CREDENTIALS",
    "*_DSN",
    "DATABASE_URL",
    "*_DATABASE_URL",
    "PGPASSFILE",
    "NETRC",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "CONTAINER_HOST",
];

/// Secrets that are offered as denied reads, relative to the home directory.
pub const SECRETS_IN_HOME: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/op",
    ".config/doctl",
    ".config/rclone",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".mozilla",
    ".docker/config.json",
    ".kube",
    ".netrc",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".git-credentials",
    ".config/git/credentials",
    ".password-store",
    ".local/share/keyrings",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".config/github-copilot",
];

impl Restrictions {
    /// Returns whether nothing is closed beyond the mode.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks what can be checked without a file system.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for a path that is relative, holds a NUL byte or `..`, or is `/` itself, for a list of
    /// sockets or variables that its rule does not use, and for a variable name that is empty or holds `=` or NUL.
    pub fn validate(&self) -> Result<(), SandboxError> {
        let refuse = |detail: String| Err(SandboxError::InvalidPolicy { detail });
        for (what, paths) in [("denied read", &self.denied_reads), ("allowed socket", &self.allowed_sockets)] {
            for path in paths {
                if let Some(problem) = problem_of(path) {
                    return refuse(format!("{what} {} {problem}", quote(path)));
                }
            }
        }
        if self.sockets == Sockets::Open && !self.allowed_sockets.is_empty() {
            return refuse("sockets are listed as allowed, but no socket is closed (sockets: closed)".to_owned());
        }
        if self.variables == Variables::Inherit && !self.kept_variables.is_empty() {
            return refuse("variables are listed as kept, but none is removed (variables: scrub)".to_owned());
        }
        for name in &self.kept_variables {
            if name.is_empty() || name.contains(['=', '\0']) {
                return refuse(format!("{} is not the name of a variable", quote(name)));
            }
        }
        Ok(())
    }

    /// Returns whether a variable of this name reaches the command.
    pub fn passes_variable(&self, name: &str) -> bool {
        self.variables == Variables::Inherit
            || self.kept_variables.iter().any(|kept| kept == name)
            || !SECRET_VARIABLES.iter().any(|pattern| fits(pattern.as_bytes(), name.as_bytes()))
    }
}

fn problem_of(path: &Path) -> Option<&'static str> {
    if !path.is_absolute() {
        return Some("is not an absolute path");
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Some("holds a NUL byte");
    }
    if path.components().any(|component| component == Component::ParentDir) {
        return Some("holds `..`; name the path itself");
    }
    if path.components().count() < 2 {
        return Some("is the whole file tree");
    }
    None
}

/// True if the whole name fits the pattern; the same rule as the launcher's `--unset`.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|skip| fits(rest, &name[skip..])),
        Some((want, rest)) => {
            name.split_first().is_some_and(|(have, name)| want.eq_ignore_ascii_case(have) && fits(rest, name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_nothing_is_closed() {
        let nothing: Restrictions = serde_json::from_str("{}").unwrap();
        assert!(nothing.is_empty() && nothing.validate().is_ok());
        assert!(nothing.passes_variable("GH_TOKEN"));
    }

    #[test]
    fn unknown_fields_and_words_are_refused() {
        for text in [r#"{"net":"off"}"#, r#"{"network":"none"}"#, r#"{"sockets":true}"#] {
            assert!(serde_json::from_str::<Restrictions>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_credentials_are_scrubbed_and_ordinary_names_stay() {
        let scrub = Restrictions { variables: Variables::Scrub, ..Restrictions::default() };
        for name in [
            "GH_TOKEN",
            "OPENAI_API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_ACCESS_KEY_ID",
            "PGPASSWORD",
            "gitlab_pat",
            "DATABASE_URL",
            "SSH_AUTH_SOCK",
            "NPM_TOKEN",
            "CI_JOB_TOKEN_X",
        ] {
            assert!(!scrub.passes_variable(name), "{name}");
        }
        for name in
            ["PATH", "HOME", "TOKENIZERS_PARALLELISM", "KEYMAP", "MONKEY", "XKB_DEFAULT_LAYOUT", "PATTERN", "LANG"]
        {
            assert!(scrub.passes_variable(name), "{name}");
        }
        let kept = Restrictions { kept_variables: vec!["GH_TOKEN".into()], ..scrub };
        assert!(kept.passes_variable("GH_TOKEN") && !kept.passes_variable("NPM_TOKEN"));
    }

    #[test]
    fn paths_must_say_what_they_mean() {
        for path in ["relative", "/", "/a/../b", "/a\0b"] {
            let restrictions = Restrictions { denied_reads: vec![path.into()], ..Restrictions::default() };
            let refusal = restrictions.validate().unwrap_err();
            assert_eq!(refusal.code().as_str(), "SANDBOX_INVALID_POLICY", "{path:?}");
        }
    }

    #[test]
    fn a_list_that_no_rule_uses_is_refused() {
        let sockets = Restrictions { allowed_sockets: vec!["/run/x".into()], ..Restrictions::default() };
        let variables = Restrictions { kept_variables: vec!["A".into()], ..Restrictions::default() };
        assert!(sockets.validate().is_err() && variables.validate().is_err());
    }
}
