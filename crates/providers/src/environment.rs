//! The environment of a command without credentials: by the names of variables, and by what their values look like.

use pinfold_policy::quote::quote;
use pinfold_policy::restrictions::SECRET_VARIABLES;
use pinfold_policy::{Restrictions, Variables};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

/// Names and values.
pub(crate) type Environment = Vec<(OsString, OsString)>;

/// Removes credentials if the call asks for it, and says which variables went. Values are never told.
///
/// Returns what is left, and a sentence for each reason that is meant for the report.
pub fn scrub(environment: Environment, restrictions: &Restrictions) -> (Environment, Vec<String>) {
    if restrictions.variables == Variables::Inherit {
        return (environment, Vec::new());
    }
    let (mut by_name, mut by_value) = (Vec::new(), Vec::new());
    let mut kept = Environment::with_capacity(environment.len());
    for (name, value) in environment {
        // No pattern and no kept name holds the character that stands for what is not UTF-8.
        let readable = name.to_string_lossy();
        let wanted = restrictions.kept_variables.iter().any(|kept| *kept == readable);
        if !restrictions.passes_variable(&readable) {
            by_name.push(quote(&name));
        } else if !wanted && looks_like_a_credential(value.as_bytes()) {
            by_value.push(quote(&name));
        } else {
            kept.push((name, value));
        }
    }
    let mut notes = Vec::new();
    for (names, why) in [(by_name, "for their names"), (by_value, "because their values look like credentials")] {
        if !names.is_empty() {
            notes.push(format!("Variables were removed {why}: {}.", names.join(", ")));
        }
    }
    (kept, notes)
}

/// The patterns that a launcher is given where somebody else starts the command; or the kept variable that keeps them
/// from being used.
///
/// A pattern cannot except a name, and what the environment will hold is not known yet. So a kept variable is
/// refused here rather than lost, or let through with everything that its pattern stands for.
pub(crate) fn patterns(restrictions: &Restrictions) -> Result<Vec<&'static str>, String> {
    if restrictions.variables == Variables::Inherit {
        return Ok(Vec::new());
    }
    let nothing_kept = Restrictions { kept_variables: Vec::new(), ..restrictions.clone() };
    match restrictions.kept_variables.iter().find(|name| !nothing_kept.passes_variable(name)) {
        Some(name) => Err(format!(
            "variable {} cannot be kept while others like it are removed where somebody else starts the command",
            quote(name)
        )),
        None => Ok(SECRET_VARIABLES.to_vec()),
    }
}

/// How credentials of well-known issuers begin, and how many of their characters follow at least.
const TOKENS: [(&str, usize); 19] = [
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("ghr_", 30),
    ("github_pat_", 22),
    ("glpat-", 20),
    ("sk-", 20),
    ("sk_live_", 20),
    ("xoxa-", 10),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxr-", 10),
    ("xoxs-", 10),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 35),
    ("npm_", 36),
    ("hf_", 30),
];

/// Whether a value is, or holds, what looks like a credential: a known prefix at the beginning of a word, a private
/// key, or a signed web token.
fn looks_like_a_credential(value: &[u8]) -> bool {
    let holds = |text: &[u8]| value.windows(text.len()).any(|window| window == text);
    if holds(b"-----BEGIN ") && holds(b"PRIVATE KEY") {
        return true;
    }
    let of_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    value.split(|byte| !of_word(*byte) && *byte != b'.').any(|word| {
        let token = TOKENS.iter().any(|(start, least)| {
            let Some(rest) = word.strip_prefix(start.as_bytes()) else { return false };
            let rest = rest.split(|byte| *byte == b'.').next().unwrap_or_default();
            // Names of packages and directories have hyphens, but hardly a digit and such a length.
            rest.len() >= *least && rest.iter().any(u8::is_ascii_digit)
        });
        let parts: Vec<_> = word.split(|byte| *byte == b'.').collect();
        let web_token = parts.len() == 3 && word.starts_with(b"eyJ") && parts.iter().all(|part| part.len() >= 10);
        token || web_token
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubbing(kept: &[&str]) -> Restrictions {
        let kept_variables = kept.iter().map(|name| (*name).to_owned()).collect();
        Restrictions { variables: Variables::Scrub, kept_variables, ..Restrictions::default() }
    }

    fn environment(variables: &[(&str, &str)]) -> Environment {
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn names_and_values_are_removed_and_named_and_kept_ones_stay() {
        let token = format!("ghp_{}1", "a".repeat(36));
        let all =
            environment(&[("PATH", "/bin"), ("GH_TOKEN", "x"), ("NPM_TOKEN", "x"), ("URL", &token), ("K", &token)]);
        let (left, notes) = scrub(all.clone(), &scrubbing(&["NPM_TOKEN", "K"]));
        assert_eq!(left, environment(&[("PATH", "/bin"), ("NPM_TOKEN", "x"), ("K", &token)]));
        assert_eq!(
            notes,
            [
                "Variables were removed for their names: \"GH_TOKEN\".",
                "Variables were removed because their values look like credentials: \"URL\"."
            ]
        );
        assert_eq!(scrub(all.clone(), &Restrictions::default()), (all, vec![]));
    }

    #[test]
    fn credentials_are_told_from_ordinary_values() {
        let a = |count| "a1".repeat(count);
        for value in [
            format!("ghp_{}", a(18)),
            format!("https://x:github_pat_{}@github.com", a(12)),
            format!("glpat-{}", a(10)),
            format!("sk-proj-{}", a(20)),
            format!("xoxb-{}", a(8)),
            "AKIAIOSFODNN7EXAMPLE".to_owned(),
            format!("AIza{}", a(18)),
            format!("npm_{}", a(18)),
            format!("hf_{}", a(17)),
            "-----BEGIN OPENSSH PRIVATE KEY-----\nx".to_owned(),
            format!("Bearer eyJ{}.{}.{}", a(8), a(8), a(8)),
        ] {
            assert!(looks_like_a_credential(value.as_bytes()), "{value}");
        }
        for value in [
            "/usr/bin:/bin",
            "en_US.UTF-8",
            "sk-learn-with-a-very-long-package-name",
            "npm_lifecycle_event",
            "/home/x/disk-0123456789012345678901234567",
            "xterm-256color",
            "eyJ.a.b",
        ] {
            assert!(!looks_like_a_credential(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn a_launcher_cannot_except_a_name_from_a_pattern() {
        assert_eq!(patterns(&Restrictions::default()), Ok(vec![]));
        assert_eq!(patterns(&scrubbing(&["EDITOR"])).unwrap().len(), SECRET_VARIABLES.len());
        assert!(patterns(&scrubbing(&["GH_TOKEN"])).unwrap_err().contains("\"GH_TOKEN\""));
    }
}
