//! What a model is told of the policy that it works under: one text per policy, the same bytes whenever the policy is the
//! same, and no more than is true.

use crate::service::Resolved;
use pinfold_policy::escalation::{ApprovalPolicy, ESCALATION_TARGETS, Subject};
use pinfold_policy::markers::{denial_marker, hint_marker};
use pinfold_policy::{Network, Protect, Restrictions, SandboxMode, Sockets, Variables};
use std::fmt::Write as _;
use std::path::Path;

/// The name and the place of the block about the policy (U256).
pub const POLICY_BLOCK: (&str, u32) = ("sandbox:policy", 110);

/// The name and the place of the block about approvals (U574).
pub const APPROVAL_BLOCK: (&str, u32) = ("approval:policy", 115);

/// Renders the policy of a session's calls. Without a session there is nobody to tell (U260).
pub fn render_policy(resolved: Option<&Resolved>) -> String {
    let Some(resolved) = resolved else { return String::new() };
    let policy = &resolved.policy;
    let mut out = format!("Commands run under sandbox mode {}.\n", resolved.mode);
    let mut say = |line: &str| {
        let _ = writeln!(out, "{line}"); // writing to a String cannot fail
    };
    match policy.mode {
        SandboxMode::ReadOnly => {
            say("No file can be written but sinks such as /dev/null; there is no temp area.");
            say("Do not refuse a needed change for this reason: try it, and follow what is said when it is denied.");
        }
        SandboxMode::WorkspaceWrite => {
            let roots: Vec<_> = policy.writable_roots().into_iter().map(json).collect();
            if resolved.mode == SandboxMode::ReadOnly {
                say("Beside it, directories were granted.");
            }
            let but = match excepted(&resolved.restrictions) {
                true => ", but for what is named below",
                false => "",
            };
            say(&format!(
                "Writable are {} and everything below it{but}, and a temp area that $TMPDIR names.",
                roots.join(", ")
            ));
            say("Nothing else can be written, created, renamed, removed or have its metadata changed.");
            protected(&resolved.restrictions.protect).iter().for_each(|line| say(line));
        }
        SandboxMode::DangerFullAccess => {
            say("The file sandbox does not restrict available operations. Nothing is confined.");
            return out;
        }
    }
    let restrictions = &resolved.restrictions;
    say(match restrictions.network {
        Network::Open => "The network is not restricted.",
        Network::Private => "There is no network but a loopback device of the command's own.",
        Network::Off => "There is no network.",
    });
    let denied = restrictions.denied_reads.iter().chain(&restrictions.denied_read_patterns);
    let denied: Vec<_> = denied.map(|path| json(path)).collect();
    match denied.is_empty() {
        true => say("Reading is not restricted."),
        false => say(&format!(
            "Cannot be read, as far as the host can close it: {}. Other reading is not restricted.",
            denied.join(", ")
        )),
    }
    if restrictions.sockets == Sockets::Closed {
        say("Unix sockets of processes outside cannot be reached, as far as the host can close them.");
    }
    if restrictions.variables == Variables::Scrub {
        say("Variables that hold credentials are removed.");
    }
    say("Processes that a command leaves behind end with it.");
    if let Some(mode) = resolved.mode.confined() {
        say(&format!("A denied file access is reported as: {}", denial_marker(mode)));
    }
    out
}

/// Whether something in a writable directory is not open.
fn excepted(restrictions: &Restrictions) -> bool {
    !restrictions.protect.is_empty() || restrictions.denies_reads()
}

/// Names that stay as they are although their directory is writable.
fn protected(protect: &Protect) -> Option<String> {
    let ours = "what tools outside obey (.git/hooks, .git/config and a new .git, and settings of agents, editors and shells such \
                as .claude, .vscode, .bashrc)";
    let names: Vec<_> = protect
        .default_names
        .then(|| ours.to_owned())
        .into_iter()
        .chain(protect.patterns.iter().map(|pattern| json(pattern)))
        .collect();
    (!names.is_empty()).then(|| format!("Not writable there, present or absent: {}.", names.join(", ")))
}

/// Renders what becomes of requests for more.
pub fn render_approval(approval: ApprovalPolicy, mode: SandboxMode) -> String {
    let targets: Vec<_> = ESCALATION_TARGETS.iter().filter(|target| **target > mode).map(|it| it.as_str()).collect();
    match approval {
        ApprovalPolicy::Never => {
            "Approval policy: never. Do not request sandbox_permissions; every request is rejected.\n".to_owned()
        }
        _ if targets.is_empty() => format!("Approval policy: {approval}. There is nothing wider to request.\n"),
        ApprovalPolicy::AllowListed => format!(
            "Approval policy: allow-listed. Rules decide requests for {}, command by command; nobody is asked. A shell \
             line is one command, whatever it contains.\n",
            targets.join(" or ")
        ),
        ApprovalPolicy::Ask => {
            format!(
                "Approval policy: ask. After a denial: {}\nWider modes: {}.\n",
                hint_marker(Subject::Command),
                targets.join(", ")
            )
        }
    }
}

/// A path as a JSON string, with everything escaped that is not plain.
fn json(path: &Path) -> String {
    let text = pinfold_policy::quote::readable(path);
    let quoted = serde_json::to_string(&text).unwrap_or_default();
    let mut out = String::with_capacity(quoted.len());
    for letter in quoted.chars() {
        if letter.is_ascii_graphic() || letter == ' ' || letter.is_alphanumeric() {
            out.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}"); // writing to a String cannot fail
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Deployment;
    use crate::service::{PolicyRequest, PolicyService};

    fn told(mode: SandboxMode, change: impl FnOnce(&mut Deployment)) -> String {
        let mut deployment = Deployment::built_in(mode);
        change(&mut deployment);
        let service = PolicyService::new(deployment, Path::new("/home/a \"b\"\u{202e}"), None).unwrap();
        render_policy(Some(&service.resolve(PolicyRequest::default()).unwrap()))
    }

    // U256–U260, W24
    #[test]
    fn each_mode_has_its_text_and_a_workspace_stands_as_json() {
        let text = told(SandboxMode::ReadOnly, |_| ());
        assert!(text.contains("mode read-only") && text.contains("Do not refuse a needed change"), "{text}");
        assert!(text.contains("The network is not restricted.") && text.contains("Reading is not restricted."));
        let text = told(SandboxMode::WorkspaceWrite, |_| ());
        assert!(text.contains(r#""/home/a \"b\"\u202e""#) && text.contains("$TMPDIR"), "{text}");
        assert!(!text.contains("/tmp") && text.contains("[sandbox: file access denied under workspace-write mode]"));
        let text = told(SandboxMode::DangerFullAccess, |_| ());
        assert!(text.contains("does not restrict available operations"), "{text}");
        assert_eq!(render_policy(None), "");
    }

    #[test]
    fn what_is_closed_beyond_the_mode_is_said() {
        let text = told(SandboxMode::ReadOnly, |deployment| {
            deployment.network.value = Network::Off;
            deployment.variables.value = Variables::Scrub;
        });
        assert!(text.contains("There is no network.") && text.contains("credentials are removed"), "{text}");
        assert_eq!(
            text,
            told(SandboxMode::ReadOnly, |deployment| {
                deployment.network.value = Network::Off;
                deployment.variables.value = Variables::Scrub;
            })
        );
    }

    // U574
    #[test]
    fn under_never_a_model_is_told_not_to_ask() {
        let text = render_approval(ApprovalPolicy::Never, SandboxMode::ReadOnly);
        assert!(text.contains("Do not request"), "{text}");
        let text = render_approval(ApprovalPolicy::Ask, SandboxMode::WorkspaceWrite);
        assert!(
            text.contains("Wider modes: danger-full-access.") && text.contains("retry this exact command"),
            "{text}"
        );
        assert!(render_approval(ApprovalPolicy::Ask, SandboxMode::DangerFullAccess).contains("nothing wider"));
    }
}
