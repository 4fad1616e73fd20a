//! What to do about an operation of `pinfold fs` that did not happen: the option of this very operation, if one would help.

use crate::fs::policy_of;
use crate::fs_arguments::{Cp, Verb};
use crate::voice::shell_word;
use pinfold_fence::FsError;
use pinfold_policy::{ConfinedMode, FileErrorCode as Code};
use std::ffi::OsStr;
use std::path::Path;

/// Returns one sentence that ends in something to run, or in an option to add.
pub(crate) fn hint(error: &FsError, verb: &Verb) -> String {
    if let Some(denied) = error.denial() {
        return refused(&denied.rule, denied.mode, policy_of(verb).session.as_deref(), path_of(verb, error.code()));
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
        (_, code) => return general(code, path_of(verb, error.code())),
    };
    option.to_owned()
}

/// Which of the operation's paths an error is most likely about.
fn path_of(verb: &Verb, code: Code) -> &OsStr {
    match verb {
        Verb::Read(it) => &it.path,
        Verb::Write(it) => &it.path,
        Verb::Edit(it) => &it.path,
        Verb::Ls(it) => &it.path,
        Verb::Stat(it) => &it.path,
        Verb::Rm(it) => &it.path,
        Verb::Mv(it) | Verb::Cp(Cp { paths: it, .. }) if code == Code::NotFound => &it.from,
        Verb::Mv(it) | Verb::Cp(Cp { paths: it, .. }) => &it.to,
        Verb::Chmod(it) => &it.path,
        Verb::Touch(it) => &it.path,
        Verb::Mkdir(it) => &it.path,
        Verb::Grep(it) => &it.path,
        Verb::Glob(it) => &it.path,
    }
}

/// What would allow what the policy refuses.
fn refused(rule: &str, mode: ConfinedMode, session: Option<&str>, path: &OsStr) -> String {
    let (word, above) = (shell_word(path), shell_word(directory_of(path)));
    match session {
        _ if rule.starts_with("the denied path ") => {
            format!("see what is closed for reading: pinfold explain; leave a secret readable: --allow-read {word}")
        }
        // The name is one of ours: it was found. A relative path counts from the session's directory, and here from ours.
        Some(id) if Path::new(path).is_relative() => {
            format!("open a directory for the session: pinfold session grant {id} DIR")
        }
        Some(id) => format!("open its directory for the session: pinfold session grant {id} {above}"),
        None if mode == ConfinedMode::ReadOnly => "open the workspace: --mode workspace-write".to_owned(),
        None => general(Code::SandboxDenied, path),
    }
}

/// The directory in which a path lies, as far as its spelling tells.
fn directory_of(path: &OsStr) -> &OsStr {
    let above = Path::new(path).parent().filter(|above| !above.as_os_str().is_empty());
    above.map_or(OsStr::new("."), Path::as_os_str)
}

fn general(code: Code, path: &OsStr) -> String {
    let (word, above) = (shell_word(path), shell_word(directory_of(path)));
    match code {
        Code::SandboxDenied => {
            format!("see what the policy opens: pinfold explain {word}; open its directory: --writable {above}")
        }
        Code::StaleVersion | Code::NotObserved => format!("see what is there now: pinfold fs stat {word}"),
        Code::AmbiguousEdit => "give more of the text around, or replace every place: --all".to_owned(),
        Code::EditNotFound => format!("see what is there now: pinfold fs read {word}"),
        Code::NotFound => format!("see what is there: pinfold fs ls {above}"),
        Code::NotDirectory | Code::NotRegularFile => format!("see what it is: pinfold fs stat {word}"),
        Code::NotText => format!("print its bytes: pinfold fs read {word}"),
        Code::TooLarge => format!("read a part of it: pinfold fs read --offset 1 --limit 100 {word}"),
        Code::PermissionDenied => format!("the host refuses it, not the policy: ls -ld {word}"),
        Code::IoError | Code::Aborted => format!("look at the place and its file system: df {above}"),
    }
}
