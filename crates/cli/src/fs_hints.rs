//! What to do about an operation of `pinfold fs` that did not happen: the option of this very operation, if one would help.

use crate::fs::policy_of;
use crate::fs_arguments::Verb;
use pinfold_fence::FsError;
use pinfold_policy::{ConfinedMode, FileErrorCode as Code};

/// Returns one sentence that ends in something to run, or in an option to add.
pub(crate) fn hint(error: &FsError, verb: &Verb) -> String {
    if let Some(denied) = error.denial() {
        return refused(&denied.rule, denied.mode, policy_of(verb).session.as_deref());
    }
    let text = error.to_string();
    let option = match (verb, error.code()) {
        (Verb::Rm(it), Code::IoError) if !it.recursive && text.contains("not empty") => {
            "remove it with everything in it: --recursive"
        }
        (Verb::Cp(it), Code::NotRegularFile) if !it.recursive => "copy a directory with everything in it: --recursive",
        (Verb::Mkdir(it), Code::NotFound) if !it.parents => "make the directories above it too: --parents",
        (Verb::Mkdir(it), Code::IoError) if !it.parents && text.contains("File exists") => {
            "take a directory that is there already: --parents"
        }
        (Verb::Write(it), Code::NotObserved) if it.if_absent => {
            "nothing has changed; to replace it, leave out --if-absent"
        }
        (Verb::Mv(it), Code::NotObserved) if !it.force => "nothing has changed; to replace it: --force",
        (Verb::Cp(it), Code::NotObserved) if !it.paths.force => "nothing has changed; to replace it: --force",
        (_, code) => general(code),
    };
    option.to_owned()
}

/// What would allow what the policy refuses.
fn refused(rule: &str, mode: ConfinedMode, session: Option<&str>) -> String {
    match session {
        _ if rule.starts_with("the denied path ") => {
            "see what is closed for reading: pinfold explain; leave a secret readable: --allow-read PATH".to_owned()
        }
        // The name is one of ours: it was found.
        Some(id) => format!("open a directory for the session: pinfold session grant {id} DIR"),
        None if mode == ConfinedMode::ReadOnly => "open the workspace: --mode workspace-write".to_owned(),
        None => general(Code::SandboxDenied).to_owned(),
    }
}

fn general(code: Code) -> &'static str {
    match code {
        Code::SandboxDenied => "see what the policy opens: pinfold explain PATH; open a directory: --writable DIR",
        Code::StaleVersion | Code::NotObserved => "see what is there now: pinfold fs stat PATH",
        Code::AmbiguousEdit => "give more of the text around, or replace every place: --all",
        Code::EditNotFound => "see what is there now: pinfold fs read PATH",
        Code::NotFound => "see what is there: pinfold fs ls DIR",
        Code::NotDirectory | Code::NotRegularFile => "see what it is: pinfold fs stat PATH",
        Code::NotText => "print its bytes: pinfold fs read PATH",
        Code::TooLarge => "read a part of it: pinfold fs read --offset 1 --limit 100 PATH",
        Code::PermissionDenied => "the host refuses it, not the policy: ls -ld PATH",
        Code::IoError | Code::Aborted => "look at the place and its file system: df PATH",
    }
}
