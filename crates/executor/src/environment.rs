//! The layers of a command's environment: what we have ourselves, without credentials and without anything that is named like
//! ours; then what makes programs write for a reader without a terminal; then what the request says; then what is ours.

use crate::request::Program;
use pinfold_policy::Restrictions;
use std::ffi::{OsStr, OsString};

/// Names and values.
pub type Variables = Vec<(OsString, OsString)>;

/// Makes programs write plain text and never wait at a pager.
pub const TERMINAL_OVERRIDES: [(&str, &str); 4] =
    [("NO_COLOR", "1"), ("TERM", "dumb"), ("PAGER", "cat"), ("GIT_PAGER", "cat")];

/// What our own variables begin with.
pub const PREFIX: &str = "PINFOLD_";

/// Says whether a name is one of ours, in either case.
pub fn is_ours(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() >= PREFIX.len() && name[..PREFIX.len()].eq_ignore_ascii_case(PREFIX.as_bytes())
}

/// Lays the layers over each other; returns also what was removed, in sentences.
///
/// `changes` are a request's: a value sets, none removes. They are not looked at for credentials: whoever says a name means
/// it. What is `managed` comes last and cannot be changed by a request; directories of `path` come before those of PATH.
pub fn layer(
    ambient: Variables,
    restrictions: &Restrictions,
    program: &Program,
    changes: &[(OsString, Option<OsString>)],
    managed: &[(OsString, OsString)],
    path: &[OsString],
) -> (Variables, Vec<String>) {
    let ambient = ambient.into_iter().filter(|(name, _)| !is_ours(name)).collect();
    let (mut variables, notes) = pinfold_providers::scrub_environment(ambient, restrictions);
    for (name, value) in TERMINAL_OVERRIDES {
        // U410: PowerShell decides itself by TERM.
        if !(name == "TERM" && matches!(program, Program::PowerShell(_))) {
            set(&mut variables, name.into(), value.into());
        }
    }
    for (name, value) in changes {
        match value {
            Some(value) => set(&mut variables, name.clone(), value.clone()),
            None => variables.retain(|(known, _)| known != name),
        }
    }
    variables.retain(|(name, _)| !is_ours(name));
    if !path.is_empty() {
        let known = variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let joined = path.iter().cloned().chain(known).collect::<Vec<_>>().join(OsStr::new(":"));
        set(&mut variables, "PATH".into(), joined);
    }
    for (name, value) in managed {
        set(&mut variables, name.clone(), value.clone());
    }
    (variables, notes)
}

fn set(variables: &mut Variables, name: OsString, value: OsString) {
    variables.retain(|(known, _)| *known != name);
    variables.push((name, value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinfold_policy::Variables as Rule;

    fn all(variables: &[(&str, &str)]) -> Variables {
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn sorted(mut variables: Variables) -> Variables {
        variables.sort();
        variables
    }

    fn scrubbing() -> Restrictions {
        Restrictions { variables: Rule::Scrub, ..Restrictions::default() }
    }

    /// U303–U307, U585: every layer over the one before it.
    #[test]
    fn each_layer_covers_the_one_before() {
        let ambient = all(&[
            ("PATH", "/bin"),
            ("HOME", "/h"),
            ("GH_TOKEN", "t"),
            ("TERM", "xterm"),
            ("PINFOLD_SHELL", "forged"),
            ("pinfold_x", "forged"),
            ("GONE", "x"),
        ]);
        let changes = [
            ("PAGER".into(), Some("less".into())),
            ("MY_TOKEN".into(), Some("kept".into())),
            ("GONE".into(), None),
            ("PINFOLD_SESSION_ID".into(), Some("forged".into())),
            ("PINFOLD_NEW".into(), Some("forged".into())),
        ];
        let managed = all(&[("PINFOLD_SHELL", "1"), ("PINFOLD_SESSION_ID", "s")]);
        let (variables, notes) = layer(ambient, &scrubbing(), &Program::Bash, &changes, &managed, &["/tool".into()]);
        let expected = all(&[
            ("GIT_PAGER", "cat"),
            ("HOME", "/h"),
            ("MY_TOKEN", "kept"),
            ("NO_COLOR", "1"),
            ("PAGER", "less"),
            ("PATH", "/tool:/bin"),
            ("PINFOLD_SESSION_ID", "s"),
            ("PINFOLD_SHELL", "1"),
            ("TERM", "dumb"),
        ]);
        assert_eq!(sorted(variables), expected);
        assert_eq!(notes, ["Variables were removed for their names: \"GH_TOKEN\"."]);
    }

    #[test]
    fn credentials_stay_if_the_call_says_so() {
        let ambient = all(&[("GH_TOKEN", "t")]);
        let (variables, notes) = layer(ambient, &Restrictions::default(), &Program::Bash, &[], &[], &[]);
        assert!(variables.iter().any(|(name, _)| name == "GH_TOKEN") && notes.is_empty());
    }

    /// U410.
    #[test]
    fn powershell_keeps_its_term() {
        let program = Program::PowerShell("pwsh".into());
        let (variables, _) = layer(all(&[("TERM", "xterm")]), &scrubbing(), &program, &[], &[], &[]);
        assert!(variables.contains(&("TERM".into(), "xterm".into())));
    }
}
