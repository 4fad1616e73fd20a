//! What a call closes beyond its mode: the network, sockets of other processes, paths for reading, variables.
//!
//! A mode speaks of writing only, and its wire form is fixed; a consumer that wants more closed says so here, beside
//! it. The default closes nothing, as the modes promise.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::pattern::PathPattern;
use crate::protect::Protect;
use crate::quote::quote;
use crate::{SandboxError, wire};

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
    /// The same as absolute patterns (see [`crate::pattern`]).
    ///
    /// A pattern that is a path or a subtree is as good as the path. One with wildcards is matched when the call begins:
    /// what comes to match it later can be read, and reports say so.
    #[serde(with = "wire::strict::paths")]
    pub denied_read_patterns: Vec<PathBuf>,
    /// What stays readable, as it is at the start, in a directory that is denied: absolute paths below one of
    /// `denied_reads`. Those that do not exist count for nothing.
    #[serde(with = "wire::strict::paths")]
    pub allowed_reads: Vec<PathBuf>,
    /// Names inside the writable roots that stay as they are.
    pub protect: Protect,
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
            denied_read_patterns: Vec::new(),
            allowed_reads: Vec::new(),
            protect: Protect::default(),
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

/// A place in the home directory that holds secrets, and what in it is none and needed.
#[derive(Debug, Clone, Copy)]
pub struct Secret {
    /// The place, relative to the home directory.
    pub place: &'static str,
    /// Names in it that stay readable; one `*` may stand for any text.
    pub except: &'static [&'static str],
    /// For a file of settings in which credentials may stand: texts, in any case, one of which shows that they do.
    /// Without one the file is no secret, and a tool that does not find its settings may go to the wrong server.
    pub signs: &'static [&'static str],
}

const fn whole(place: &'static str) -> Secret {
    Secret { place, except: &[], signs: &[] }
}

const fn settings(place: &'static str, signs: &'static [&'static str]) -> Secret {
    Secret { place, except: &[], signs }
}

/// Secrets that are offered as denied reads: private keys, tokens, stores of passwords, browser profiles, and the
/// credentials of agents.
///
/// Not in the list, because git and cargo stop where they cannot read them: `.gitconfig`, `.config/git/config` and
/// `.cargo/config.toml`. A credential in them is open.
pub const SECRETS_IN_HOME: &[Secret] = &[
    // What ssh needs beside an agent: which host is meant, which key to ask the agent for, and whom to believe.
    Secret {
        place: ".ssh",
        except: &["config*", "*_config", "conf.d", "*.conf", "known_hosts*", "allowed_signers", "*.pub"],
        signs: &[],
    },
    // What checking a signature needs.
    Secret {
        place: ".gnupg",
        except: &["pubring.kbx", "pubring.gpg", "trustdb.gpg", "gpg.conf", "common.conf", "public-keys.d"],
        signs: &[],
    },
    whole(".aws"),
    whole(".azure"),
    whole(".config/gcloud"),
    whole(".config/gh"),
    whole(".config/glab-cli"),
    whole(".config/hub"),
    whole(".config/op"),
    whole(".config/doctl"),
    whole(".config/hcloud"),
    whole(".config/rclone"),
    whole(".config/sops"),
    whole(".config/age"),
    whole(".kube"),
    whole(".docker/config.json"),
    whole(".config/containers/auth.json"),
    whole(".oci"),
    whole(".bluemix"),
    whole(".fly"),
    whole(".config/netlify"),
    whole(".vercel"),
    whole(".terraform.d/credentials.tfrc.json"),
    settings(".terraformrc", &["token"]),
    whole(".pulumi/credentials.json"),
    whole(".vault-token"),
    whole(".netrc"),
    whole(".authinfo"),
    whole(".authinfo.gpg"),
    whole(".pgpass"),
    whole(".my.cnf"),
    whole(".mylogin.cnf"),
    whole(".s3cfg"),
    whole(".boto"),
    settings(".config/pip/pip.conf", &["@"]),
    settings(".pip/pip.conf", &["@"]),
    settings(".npmrc", &["_auth", "_password"]),
    settings(".yarnrc.yml", &["npmAuthToken", "npmAuthIdent"]),
    whole(".pypirc"),
    whole(".cargo/credentials.toml"),
    whole(".cargo/credentials"),
    whole(".gem/credentials"),
    settings(".m2/settings.xml", &["<password>", "<passphrase>"]),
    whole(".m2/settings-security.xml"),
    settings(".gradle/gradle.properties", &["password", "token", "secret", "apikey"]),
    whole(".composer/auth.json"),
    whole(".config/composer/auth.json"),
    settings(".nuget/NuGet/NuGet.Config", &["packageSourceCredentials", "apikeys"]),
    whole(".git-credentials"),
    whole(".config/git/credentials"),
    whole(".huggingface/token"),
    whole(".cache/huggingface/token"),
    whole(".kaggle"),
    whole(".password-store"),
    whole(".local/share/keyrings"),
    whole(".local/share/kwalletd"),
    whole(".local/share/pass"),
    whole(".config/keepassxc"),
    whole(".config/Bitwarden"),
    whole(".config/Bitwarden CLI"),
    whole(".config/1Password"),
    whole(".1password"),
    whole(".pki"),
    whole(".config/google-chrome"),
    whole(".config/google-chrome-beta"),
    whole(".config/chromium"),
    whole(".config/BraveSoftware"),
    whole(".config/microsoft-edge"),
    whole(".config/vivaldi"),
    whole(".config/opera"),
    whole(".mozilla"),
    whole(".thunderbird"),
    whole(".config/Signal"),
    whole(".config/Slack"),
    whole(".config/discord"),
    whole(".electrum"),
    whole(".bitcoin"),
    whole(".claude/.credentials.json"),
    whole(".claude.json"),
    whole(".codex/auth.json"),
    whole(".gemini/oauth_creds.json"),
    whole(".gemini/google_accounts.json"),
    whole(".config/github-copilot"),
    whole(".copilot"),
    whole(".local/share/opencode/auth.json"),
    whole(".config/goose/secrets.yaml"),
    settings(".aider.conf.yml", &["api-key"]),
    settings(".continue/config.yaml", &["apiKey"]),
    whole(".qwen/oauth_creds.json"),
    whole(".cursor/auth.json"),
    whole(".config/cursor/auth.json"),
];

impl Secret {
    /// Returns whether a name in the place stays readable.
    pub fn excepts(&self, name: &str) -> bool {
        self.except.iter().any(|except| match except.split_once('*') {
            Some((start, end)) => {
                name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
            }
            None => name == *except,
        })
    }

    /// Returns whether this content shows that the place holds credentials.
    pub fn is_shown_by(&self, content: &[u8]) -> bool {
        let holds = |sign: &&str| content.windows(sign.len()).any(|part| part.eq_ignore_ascii_case(sign.as_bytes()));
        self.signs.is_empty() || self.signs.iter().any(holds)
    }
}

impl Restrictions {
    /// Returns whether nothing is closed beyond the mode.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks what can be checked without a file system.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for a path that is relative, holds a NUL byte or `..`, or is `/` itself, for a pattern
    /// that cannot be read or is relative, for a list of sockets, reads or variables that its rule does not use, and for
    /// a variable name that is empty or holds `=` or NUL.
    pub fn validate(&self) -> Result<(), SandboxError> {
        let refuse = |detail: String| Err(SandboxError::InvalidPolicy { detail });
        for (what, paths) in [
            ("denied read", &self.denied_reads),
            ("allowed read", &self.allowed_reads),
            ("allowed socket", &self.allowed_sockets),
        ] {
            for path in paths {
                if let Some(problem) = problem_of(path) {
                    return refuse(format!("{what} {} {problem}", quote(path)));
                }
            }
        }
        self.read_patterns()?;
        self.protect.read_patterns()?;
        for path in &self.allowed_reads {
            if !self.denied_reads.iter().any(|denied| path.starts_with(denied) && path != denied) {
                return refuse(format!("allowed read {} lies below no denied read", quote(path)));
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

    /// Returns whether any path is denied for reading.
    pub fn denies_reads(&self) -> bool {
        !self.denied_reads.is_empty() || !self.denied_read_patterns.is_empty()
    }

    /// Returns the patterns of denied reads, ready to be matched.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for the first that cannot be read or is relative.
    pub fn read_patterns(&self) -> Result<Vec<PathPattern>, SandboxError> {
        let read = |text: &PathBuf| {
            if !text.is_absolute() {
                let detail = format!("denied read {} is not an absolute pattern", quote(text));
                return Err(SandboxError::InvalidPolicy { detail });
            }
            Ok(PathPattern::parse(text.as_os_str(), Path::new("/"), None)?)
        };
        self.denied_read_patterns.iter().map(read).collect()
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
    fn patterns_must_be_absolute_and_readable() {
        for (pattern, words) in [("*.pem", "not an absolute pattern"), ("/a/[b", "`[`")] {
            let restrictions = Restrictions { denied_read_patterns: vec![pattern.into()], ..Restrictions::default() };
            let error = restrictions.validate().unwrap_err().to_string();
            assert!(error.contains(words) && error.contains(pattern), "{error}");
        }
        let good = Restrictions { denied_read_patterns: vec!["/a/**/*.pem".into()], ..Restrictions::default() };
        assert!(good.validate().is_ok() && good.denies_reads() && !good.is_empty());
    }

    #[test]
    fn the_list_of_secrets_names_places_once_and_below_the_home_directory() {
        for (index, secret) in SECRETS_IN_HOME.iter().enumerate() {
            let place = Path::new(secret.place);
            assert!(place.components().all(|part| matches!(part, Component::Normal(_))), "{place:?}");
            let again = SECRETS_IN_HOME[..index].iter().any(|other| place.starts_with(other.place));
            assert!(!again, "{place:?} is listed twice");
            assert!(secret.except.iter().all(|name| name.matches('*').count() < 2 && !name.contains('/')), "{place:?}");
        }
    }

    #[test]
    fn settings_are_secrets_only_with_credentials_in_them() {
        let of = |place: &str| *SECRETS_IN_HOME.iter().find(|secret| secret.place == place).unwrap();
        assert!(of(".npmrc").is_shown_by(b"//r/:_AUTHTOKEN=x") && !of(".npmrc").is_shown_by(b"registry=https://r/"));
        assert!(of(".netrc").is_shown_by(b""));
        let ssh = of(".ssh");
        assert!(ssh.excepts("config") && ssh.excepts("id_ed25519.pub"));
        assert!(!ssh.excepts("id_ed25519") && !ssh.excepts("identity"));
    }

    #[test]
    fn a_list_that_no_rule_uses_is_refused() {
        let denied_reads = vec!["/a".into()];
        for (allowed, fine) in [("/a/b", true), ("/a", false), ("/ab", false)] {
            let allowed_reads = vec![allowed.into()];
            let reads = Restrictions { denied_reads: denied_reads.clone(), allowed_reads, ..Restrictions::default() };
            assert_eq!(reads.validate().is_ok(), fine, "{allowed}");
        }
        let sockets = Restrictions { allowed_sockets: vec!["/run/x".into()], ..Restrictions::default() };
        let variables = Restrictions { kept_variables: vec!["A".into()], ..Restrictions::default() };
        assert!(sockets.validate().is_err() && variables.validate().is_err());
    }
}
