//! Files: read, write, edit and list, by the fence, under the policy that a command of the same call would have.

use crate::ask::Asker;
use crate::core::{Act, Core, Ready, Widened, locked};
use crate::tools::Hold;
use crate::tools::arguments::{Arguments, Escalation};
use crate::tools::hint::Hint;
use crate::tools::reply::{Refusal, Reply, done};
use pinfold_fence::observation::{ContentHash, ObservationStore as _, Observations};
use pinfold_fence::tools::{Caller, EditArguments, FileTools, ReadArguments, ToolError, WriteArguments};
use pinfold_fence::{Fence, FenceOptions, Kind, LinesRequest, TempPlace};
use pinfold_policy::escalation::Subject;
use pinfold_policy::quote::{quote_if_needed, readable};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// So many names of a directory are shown.
const MOST_NAMES: usize = 2000;
/// How much of a text a question shows, in characters; its digest stands for all of it.
const MOST_SHOWN: usize = 1000;

/// Opens the fence that a command's policy would be. With `only`, one place alone may be changed.
pub(crate) fn fence(core: &Core, ready: &Ready, only: Option<PathBuf>) -> Result<Fence, Refusal> {
    let policy = &ready.resolved.policy;
    let restrictions = ready.resolved.restrictions.clone();
    let mut options = FenceOptions { restrictions, only, turns: core.turns.clone(), ..FenceOptions::default() };
    if let Some(confined) = policy.confined() {
        let rules = core.provider.file_rules(&confined, &ready.options)?;
        (options.temp, options.protected) = (TempPlace::of(&rules.temp), rules.protected);
    }
    let fence = Fence::open(policy, options)?;
    // RACE: it has opened its roots by their names; each must be the directory that was decided about.
    ready.resolved.verify()?;
    Ok(fence)
}

/// A relative path counts from the session's directory, whatever of it is writable.
pub(crate) fn place(core: &Core, path: &str) -> String {
    // The directory is text, because it stands in a log.
    core.session.cwd().join(path).to_string_lossy().into_owned()
}

/// Does something with what the session has seen, and keeps what it has seen then: beside its log, as its other tools do.
fn seeing(
    core: &Core,
    fence: &Fence,
    act: impl FnOnce(&mut FileTools<'_>) -> Result<String, ToolError>,
) -> Result<String, ToolError> {
    let kept = locked(&core.seen);
    // What cannot be read was not seen: then files have to be read again.
    let before = kept.load().ok().flatten().and_then(|text| Observations::from_json(&text).ok()).unwrap_or_default();
    let mut seen = before.clone();
    let result = FileTools::new(fence, Some(&mut seen), LinesRequest::default()).and_then(|mut tools| act(&mut tools));
    if seen != before && kept.save(&seen.to_json()).is_err() {
        return result.map(|text| format!("{text}\n(that this was seen could not be kept: read it again)"));
    }
    result
}

/// Reads lines of a file.
pub(crate) fn read(core: &Core, standing: &Ready, mut arguments: Arguments) -> Result<Reply, Refusal> {
    let file_path = arguments.required_text("file_path")?;
    let (offset, limit) = (arguments.whole("offset")?, arguments.whole("limit")?);
    arguments.finish()?;
    let fence = fence(core, standing, None)?;
    let file_path = place(core, &file_path);
    let arguments = ReadArguments { file_path: file_path.clone(), offset, limit };
    // It has no fields that ask for more, so it speaks of none.
    let text = seeing(core, &fence, |tools| tools.read(&arguments))
        .map_err(|error| Refusal::from(error).with_text(|text| Hint::Silent.of_file(text)))?;
    Ok(done(text, json!({"kind": "read", "path": file_path})))
}

/// Writes a file whole.
pub(crate) fn write(
    core: &Core,
    standing: Ready,
    mut arguments: Arguments,
    asker: &Asker,
    hold: &Hold,
) -> Result<Reply, Refusal> {
    let file_path = place(core, &arguments.required_text("file_path")?);
    let content = arguments.required_content("content")?;
    let escalation = arguments.escalation(core.confines()?, "filesystem")?;
    arguments.finish()?;
    let shown = Shown::of("write", &[&content], &[]);
    let arguments =
        WriteArguments { file_path: file_path.clone(), content, sandbox_permissions: None, justification: None };
    change(core, standing, &file_path, shown, &escalation, (asker, hold), |tools| {
        tools.write(&arguments, &mut Caller::default(), &hold.abort)
    })
}

/// Replaces text in a file.
pub(crate) fn edit(
    core: &Core,
    standing: Ready,
    mut arguments: Arguments,
    asker: &Asker,
    hold: &Hold,
) -> Result<Reply, Refusal> {
    let file_path = place(core, &arguments.required_text("file_path")?);
    let old_string = arguments.required_content("old_string")?;
    let new_string = arguments.required_content("new_string")?;
    let replace_all = arguments.flag("replace_all")?;
    let escalation = arguments.escalation(core.confines()?, "filesystem")?;
    arguments.finish()?;
    let all = if replace_all { "every place" } else { "one place" };
    let shown = Shown::of("edit", &[&old_string, &new_string], &[all]);
    let arguments = EditArguments {
        file_path: file_path.clone(),
        old_string,
        new_string,
        replace_all,
        sandbox_permissions: None,
        justification: None,
    };
    change(core, standing, &file_path, shown, &escalation, (asker, hold), |tools| {
        tools.edit(&arguments, &mut Caller::default(), &hold.abort)
    })
}

/// Changes a file: with permission, if more is wanted, and with a record in the log.
///
/// SECURITY: the fence is opened under exactly what was allowed, which may be one directory in place of the mode that was
/// asked for; the fence's own question, which knows modes only, is never used.
fn change(
    core: &Core,
    standing: Ready,
    file_path: &str,
    shown: Shown,
    escalation: &Escalation,
    (asker, hold): (&Asker, &Hold),
    act: impl FnOnce(&mut FileTools<'_>) -> Result<String, ToolError>,
) -> Result<Reply, Refusal> {
    let Shown { tool, words, unseen_bytes } = shown;
    let mut argv: Vec<OsString> = vec![tool.into(), file_path.into()];
    argv.extend(words.into_iter().map(OsString::from));
    let (ready, only) = if escalation.is_empty() {
        (standing, None)
    } else {
        let path = Path::new(file_path);
        let fence = fence(core, &standing, None)?;
        // SECURITY: a yes holds for where the path leads now. A command could put a link in the way before the answer comes.
        let place = fence.resolve(path)?.process_path().to_owned();
        if place != path {
            argv.extend(["leads to".into(), place.clone().into_os_string()]);
        }
        argv.insert(2, standing_there(&fence, path, tool).into());
        // It is our own look that found it refused, so it can be offered by itself.
        let denied =
            if fence.decide(pinfold_fence::Act::Write, path).is_err() { vec![place.clone()] } else { Vec::new() };
        let cwd = core.session.cwd();
        let question =
            Act { argv: &argv, unseen_bytes, cwd, shown: None, subject: Subject::Operation, tool, denied: &denied };
        match core.widen(standing, &question, &escalation.wish(), asker, &hold.cancel)? {
            Widened::Ready(ready) => (*ready, Some(place)),
            Widened::Ask(asked) => return Ok(Reply::Ask(asked)),
        }
    };
    let fence = fence(core, &ready, only)?;
    let call = core.session.begin_call(&argv, &ready.resolved)?;
    let result = seeing(core, &fence, act);
    let code = result.as_ref().err().map(|error| error.code.map_or("refused", |code| code.as_str()));
    if let Err(error) = core.session.end_operation(&call, code) {
        core.complain(&call, &error);
    }
    let hint = core.hint(asker)?;
    let text = result.map_err(|error| Refusal::from(error).with_text(|text| hint.of_file(text)))?;
    Ok(done(text, json!({"kind": "changed", "path": file_path})))
}

/// A change as it stands in the log and in a question: the beginning of long texts, and a digest of all of them.
struct Shown {
    tool: &'static str,
    words: Vec<String>,
    /// How much of the texts stands there by the digest alone.
    unseen_bytes: u64,
}

impl Shown {
    fn of(tool: &'static str, texts: &[&str], more: &[&str]) -> Self {
        let (mut words, mut unseen_bytes) = (Vec::new(), 0);
        for text in texts {
            let end = text.char_indices().nth(MOST_SHOWN).map_or(text.len(), |(end, _)| end);
            let mark = if end < text.len() { "…" } else { "" };
            words.extend([format!("{} bytes:", text.len()), format!("{}{mark}", &text[..end])]);
            unseen_bytes += (text.len() - end) as u64;
        }
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words.push(digest(texts));
        Self { tool, words, unseen_bytes }
    }
}

/// What a change meets in its place, for whoever is asked about it.
fn standing_there(fence: &Fence, path: &Path, tool: &str) -> String {
    match fence.stat(path) {
        Ok(None) => "a new file".to_owned(),
        Ok(Some(look)) if tool == "write" => format!("in place of {} bytes", look.size),
        Ok(Some(look)) => format!("a file of {} bytes", look.size),
        Err(error) => format!("which cannot be looked at: {error}"),
    }
}

/// What stands for texts of which a question shows the beginning.
fn digest(texts: &[&str]) -> String {
    let framed: String = texts.iter().map(|text| format!("{}:{text}", text.len())).collect();
    format!("sha256:{}", ContentHash::of(framed.as_bytes()).as_str())
}

/// Lists a directory.
pub(crate) fn list(core: &Core, standing: &Ready, mut arguments: Arguments) -> Result<Reply, Refusal> {
    let path = arguments.text("path")?.unwrap_or_default();
    arguments.finish()?;
    let fence = fence(core, standing, None)?;
    let listing = fence.list(Path::new(&place(core, &path)))?;
    let shown = &listing.entries[..listing.entries.len().min(MOST_NAMES)];
    let truncated = listing.truncated || listing.entries.len() > shown.len();
    let mut text = String::new();
    for entry in shown {
        let mark = match (entry.link, entry.kind) {
            (true, _) => "@",
            (false, Kind::Directory) => "/",
            _ => "",
        };
        text.push_str(&format!("{}{mark}\n", quote_if_needed(&entry.name)));
    }
    if shown.is_empty() {
        text.push_str("(empty)\n");
    }
    if truncated {
        text.push_str(&format!("[only the first {} names are listed]\n", shown.len()));
    }
    let entries = shown.iter().map(|entry| {
        let size = entry.look.as_ref().map(|look| look.size);
        json!({"name": readable(&entry.name), "type": entry.kind, "link": entry.link, "size": size})
    });
    let path = readable(listing.target.process_path());
    let entries: Vec<_> = entries.collect();
    Ok(done(text, json!({"kind": "listed", "path": path, "truncated": truncated, "entries": entries})))
}
