//! `pinfold fs`: file operations under a policy, for people and scripts. Standard output is the answer and nothing else.

use crate::arguments::PolicyOptions;
use crate::closing::Closing;
use crate::configuration::Configured;
use crate::fs_arguments::{
    Chmod, Cp, Edit, FencePolicy, Fs, Glob, Grep, Ls, Read, SearchArguments, TwoPaths, Verb, Write,
};
use crate::request::{backend, execution_mode, policy};
use crate::session_run::Held;
use crate::surroundings::Surroundings;
use crate::voice::{Form, complain_session, one_line, say, say_json, session_status};
use pinfold_fence::edit::Replacement;
use pinfold_fence::observation::ContentHash;
use pinfold_fence::search::{Found, LinePattern, SearchOptions, spelled};
use pinfold_fence::tools::render_written;
use pinfold_fence::{
    Abort, Fence, FenceOptions, FsError, Intent, Kind, LinesRequest, Look, Permissions, Replace, TempPlace, Version,
    Written,
};
use pinfold_policy::quote::{quote, quote_if_needed, readable};
use pinfold_policy::{FileErrorCode as Code, SandboxError, SandboxMode};
use pinfold_providers::{CallOptions, LocalProvider, ProviderConfig};
use pinfold_session::SessionError;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The exit statuses of `pinfold fs`.
const DENIED: u8 = 3;
const CONDITION: u8 = 4;

/// So much of a file stands in one line of JSON at most.
const JSON_BYTES: usize = 64 << 20;

/// What there is to print, and the exit status.
struct Answer {
    bytes: Vec<u8>,
    status: u8,
}

/// A fence, and where relative paths start from if that is not the fence's own workspace: a session's directory, whatever is
/// open in it.
struct Opened {
    fence: Fence,
    base: Option<PathBuf>,
}

impl Opened {
    fn at(&self, path: &OsStr) -> PathBuf {
        match &self.base {
            // An empty path stays one, and is refused as such.
            Some(base) if !path.is_empty() => base.join(path),
            _ => PathBuf::from(path),
        }
    }
}

impl std::ops::Deref for Opened {
    type Target = Fence;

    fn deref(&self) -> &Fence {
        &self.fence
    }
}

/// Why there is nothing to print.
enum Failure {
    Policy(SessionError),
    File(FsError),
    Input(String),
    Output(String),
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        Self::Policy(error.into())
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        Self::Policy(error)
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::File(error)
    }
}

/// Does one operation and returns the exit status.
pub(crate) fn fs(arguments: &Fs, around: &Surroundings) -> u8 {
    let form = Form::of(policy_of(&arguments.verb).json);
    match act(&arguments.verb, around) {
        Ok(answer) => print(&answer),
        Err(Failure::Policy(error)) => {
            complain_session(&error, form);
            session_status(&error)
        }
        Err(Failure::File(error)) => refuse(&error, &arguments.verb, form),
        Err(Failure::Input(why)) => {
            say(&format!("error: standard input: {why}"));
            125
        }
        Err(Failure::Output(why)) => {
            say(&format!("error: standard output: {why}"));
            125
        }
    }
}

pub(crate) fn policy_of(verb: &Verb) -> &FencePolicy {
    match verb {
        Verb::Read(it) => &it.policy,
        Verb::Write(it) => &it.policy,
        Verb::Edit(it) => &it.policy,
        Verb::Ls(it) => &it.policy,
        Verb::Stat(it) => &it.policy,
        Verb::Rm(it) => &it.policy,
        Verb::Mv(it) => &it.policy,
        Verb::Cp(it) => &it.paths.policy,
        Verb::Chmod(it) => &it.policy,
        Verb::Touch(it) => &it.policy,
        Verb::Mkdir(it) => &it.policy,
        Verb::Grep(it) => &it.policy,
        Verb::Glob(it) => &it.policy,
    }
}

fn act(verb: &Verb, around: &Surroundings) -> Result<Answer, Failure> {
    let options = policy_of(verb);
    let fence = open(options, around)?;
    let json = options.json;
    match verb {
        Verb::Read(it) => read(&fence, it),
        Verb::Write(it) => write(&fence, it),
        Verb::Edit(it) => edit(&fence, it),
        Verb::Ls(it) => list(&fence, it),
        Verb::Stat(it) => {
            let path = &fence.at(&it.path);
            let look = if it.no_follow { fence.lstat(path)? } else { fence.stat(path)? };
            let look = look.ok_or_else(|| FsError::nothing_there(path))?;
            Ok(shown(json, &look_json(path, &look), || look_line(&look)))
        }
        Verb::Rm(it) => {
            let target = fence.remove(&fence.at(&it.path), it.recursive)?;
            Ok(shown(json, &json!({"removed": readable(target.process_path())}), String::new))
        }
        Verb::Mv(it) => {
            let moved = fence.rename(&fence.at(&it.from), &fence.at(&it.to), replace(it))?;
            let (from, to) = (moved.from.process_path(), moved.to.process_path());
            Ok(shown(json, &json!({"from": readable(from), "to": readable(to)}), String::new))
        }
        Verb::Cp(it) => copy(&fence, it),
        Verb::Chmod(it) => {
            let path = &fence.at(&it.path);
            let look = fence.set_permissions(path, permissions(it)?)?;
            Ok(shown(json, &look_json(path, &look), String::new))
        }
        Verb::Touch(it) => {
            let (target, change) = fence.touch(&fence.at(&it.path))?;
            Ok(shown(json, &json!({"path": readable(target.process_path()), "change": change}), String::new))
        }
        Verb::Mkdir(it) => {
            let target = fence.create_directory(&fence.at(&it.path), it.parents)?;
            Ok(shown(json, &json!({"path": readable(target.process_path())}), String::new))
        }
        Verb::Grep(it) => grep(&fence, it),
        Verb::Glob(it) => glob(&fence, it),
    }
}

/// Opens the fence that a command's policy with the same words would be.
fn open(options: &FencePolicy, around: &Surroundings) -> Result<Opened, SessionError> {
    execution_mode(options.mode.as_deref())?;
    let words = PolicyOptions {
        mode: options.mode.clone(),
        workspace: options.workspace.clone(),
        writable: options.writable.clone(),
        backend: options.backend.clone(),
        restrictions: options.restrictions(),
        ..PolicyOptions::default()
    };
    let (held, configured) = match &options.session {
        Some(id) => {
            let (held, configured) = Held::open(id, &words, false, around)?;
            (Some(held), configured)
        }
        None => (None, Configured::load(&words, SandboxMode::WorkspaceWrite, None, None, around)?),
    };
    let words = &configured.options;
    let mode = execution_mode(words.mode.as_deref())?;
    let mut policy = policy(mode, words.workspace.as_ref(), &words.writable, around)?;
    configured.refuse_open(&policy)?;
    let backend = words.backend.as_deref().map(backend).transpose()?;
    let mut closing = Closing::new(&words.restrictions, &policy, None, around)?;
    let mut looked = Vec::new();
    if let Some(held) = &held {
        policy.session_id = held.resolved().policy.session_id.clone();
        let denied = &mut closing.restrictions.denied_reads;
        if !denied.iter().any(|path| path == held.state()) {
            denied.push(held.state().to_owned());
        }
        looked.clone_from(&held.resolved().held);
    }
    let mut fence = FenceOptions { restrictions: closing.restrictions.clone(), ..FenceOptions::default() };
    // A mechanism is looked for only where its rules count: files can be worked on where no command can be confined.
    let asked = policy.session_id.is_some() || options.backend.is_some() || !closing.restrictions.protect.is_empty();
    if let Some(confined) = policy.confined().filter(|_| asked) {
        let provider = LocalProvider::new(ProviderConfig { keep_verdicts: true, ..ProviderConfig::default() })?;
        let rules =
            provider.file_rules(&confined, &CallOptions { backend, held: looked.clone(), ..closing.options() })?;
        (fence.temp, fence.protected) = (TempPlace::of(&rules.temp), rules.protected);
    }
    let fence = Fence::open(&policy, fence)?;
    // RACE: the fence has opened its roots by their names; each must be the directory that was decided about.
    if let Some(held) = &held {
        held.resolved().verify()?;
    }
    Ok(Opened { fence, base: held.map(|held| held.cwd().to_owned()) })
}

fn read(fence: &Opened, it: &Read) -> Result<Answer, Failure> {
    let path = &fence.at(&it.path);
    if it.byte_offset.is_some() || it.byte_limit.is_some() || !(it.policy.json || it.max_bytes.is_some()) {
        if it.offset.is_none() && it.limit.is_none() {
            return stream(fence, it);
        }
    } else if it.offset.is_none() && it.limit.is_none() {
        let whole = fence.read_bytes(path, it.max_bytes.unwrap_or(64 << 20))?;
        if !it.policy.json {
            return Ok(Answer { bytes: whole.bytes, status: 0 });
        }
        let text = std::str::from_utf8(&whole.bytes).ok();
        let answer = json!({
            "path": readable(whole.target.process_path()),
            "version": whole.version,
            "sha256": whole.hash(),
            "size": whole.bytes.len(),
            "text": text,
        });
        return Ok(line(&answer));
    }
    let defaults = LinesRequest::default();
    let (offset, limit) = (it.offset.unwrap_or(1), it.limit.unwrap_or(defaults.limit));
    if offset == 0 || limit == 0 {
        let detail = "--offset and --limit are counted from 1".to_owned();
        return Err(SandboxError::InvalidPolicy { detail }.into());
    }
    let lines = fence.read_lines(path, &LinesRequest { offset, limit, ..defaults })?;
    let answer = json!({
        "path": readable(lines.target.process_path()),
        "version": lines.version,
        "sha256": lines.hash,
        "first": lines.first,
        "total": lines.total,
        "next": lines.next(),
        "lines": lines.lines,
    });
    let numbered = || {
        let numbered = lines.lines.iter().enumerate();
        numbered.map(|(index, line)| format!("{}: {line}\n", lines.first + index as u64)).collect()
    };
    Ok(shown(it.policy.json, &answer, numbered))
}

/// Prints bytes as they come: a file of any size, or a part of one.
fn stream(fence: &Opened, it: &Read) -> Result<Answer, Failure> {
    let path = &fence.at(&it.path);
    let part = (it.byte_offset.unwrap_or(0), it.byte_limit.unwrap_or(u64::MAX));
    if it.policy.json {
        let length = usize::try_from(part.1).unwrap_or(usize::MAX).min(JSON_BYTES);
        let bytes = fence.read_range(path, part.0, length)?;
        let text = std::str::from_utf8(&bytes).ok();
        return Ok(line(
            &json!({"offset": part.0, "length": bytes.len(), "text": text, "sha256": ContentHash::of(&bytes)}),
        ));
    }
    let mut out = std::io::stdout().lock();
    let mut failed = None;
    fence.stream(path, part, &mut |bytes| match out.write_all(bytes) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    match failed.map_or_else(|| out.flush(), Err) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Output(error.to_string())),
        _ => Ok(Answer { bytes: Vec::new(), status: 0 }),
    }
}

fn write(fence: &Opened, it: &Write) -> Result<Answer, Failure> {
    let intent = match &it.if_version {
        Some(version) => Intent::ReplaceIf { version: Version::from_text(version), content: None },
        None if it.if_absent => Intent::CreateIfAbsent,
        None => Intent::Any,
    };
    let path = &fence.at(&it.path);
    // A refusal by policy comes before anybody waits for input.
    fence.decide(pinfold_fence::Act::Write, path)?;
    let content = match &it.content {
        Some(content) => content.as_bytes().to_vec(),
        None => {
            let mut content = Vec::new();
            std::io::stdin().read_to_end(&mut content).map_err(|error| Failure::Input(error.to_string()))?;
            content
        }
    };
    let written = fence.write(path, &content, &intent, &Abort::default())?;
    Ok(shown(it.policy.json, &written_json(&written), || format!("{}\n", written.version)))
}

fn edit(fence: &Opened, it: &Edit) -> Result<Answer, Failure> {
    let intent = match &it.if_version {
        Some(version) => Intent::ReplaceIf { version: Version::from_text(version), content: None },
        None => Intent::Any,
    };
    if it.old.is_empty() || it.old == it.new {
        let detail = "--old must not be empty, and --new must differ from it".to_owned();
        return Err(SandboxError::InvalidPolicy { detail }.into());
    }
    let replacement = Replacement { old: &it.old, new: &it.new, all: it.all };
    let written = fence.edit(&fence.at(&it.path), &replacement, &intent, &Abort::default())?;
    let diff = || match (&written.before, &written.after) {
        (Some(before), Some(after)) => {
            pinfold_fence::difference::unified(written.target.process_path(), Some(before), after)
        }
        _ => String::new(),
    };
    let mut answer = written_json(&written);
    answer["diff"] = diff().into();
    if !written.lost.is_empty() && !it.policy.json {
        render_written(&written).lines().filter(|line| line.starts_with("not kept")).for_each(say);
    }
    Ok(shown(it.policy.json, &answer, diff))
}

fn copy(fence: &Opened, it: &Cp) -> Result<Answer, Failure> {
    let (from, to, how) = (&fence.at(&it.paths.from), &fence.at(&it.paths.to), replace(&it.paths));
    let json = it.paths.policy.json;
    if !it.recursive {
        let copied = fence.copy(from, to, how)?;
        let path = readable(copied.target.process_path());
        let answer = json!({"path": path, "version": copied.version, "bytes": copied.bytes, "lost": copied.lost});
        return Ok(shown(json, &answer, String::new));
    }
    let copied = fence.copy_tree(from, to, how)?;
    let left_out: Vec<_> = copied.left_out.iter().map(readable).collect();
    let path = readable(copied.target.process_path());
    let answer = json!({"path": path, "files": copied.files, "bytes": copied.bytes, "leftOut": left_out});
    if !json {
        copied.left_out.iter().for_each(|path| say(&format!("note: not copied: {}", quote_if_needed(path))));
    }
    let mut answer = shown(json, &answer, String::new);
    answer.status = u8::from(!copied.left_out.is_empty());
    Ok(answer)
}

fn permissions(it: &Chmod) -> Result<Permissions, SandboxError> {
    match it.bits.as_str() {
        "+x" => Ok(Permissions::Executable),
        "-x" => Ok(Permissions::NotExecutable),
        octal => match u32::from_str_radix(octal, 8) {
            Ok(bits) if bits <= 0o777 && !octal.starts_with('+') => Ok(Permissions::Exactly(bits)),
            _ => {
                let detail = format!("mode {} is neither octal, at most 777, nor +x or -x", quote(octal));
                Err(SandboxError::InvalidPolicy { detail })
            }
        },
    }
}

fn list(fence: &Opened, it: &Ls) -> Result<Answer, Failure> {
    let json = it.policy.json;
    let listing = fence.list(&fence.at(&it.path))?;
    if listing.truncated {
        say("note: there are more names than are listed");
    }
    let entries = listing.entries.iter().map(|entry| {
        let look = entry.look.as_ref();
        let (size, version) = (look.map(|it| it.size), look.map(|it| &it.version));
        json!({
            "mode": look.map(|it| format!("{:04o}", it.mode)),
            "modified": look.map(|it| it.modified),
            "name": readable(&entry.name),
            "type": entry.kind,
            "link": entry.link,
            "size": size,
            "version": version,
            "resolved": readable(entry.target.process_path()),
        })
    });
    let path = readable(listing.target.process_path());
    let answer = json!({"path": path, "truncated": listing.truncated, "entries": entries.collect::<Vec<_>>()});
    let names = || {
        let marked = listing.entries.iter().map(|entry| {
            let mark = match (entry.link, entry.kind) {
                (true, _) => "@",
                (false, Kind::Directory) => "/",
                _ => "",
            };
            let name = quote_if_needed(&entry.name);
            if !it.long {
                return format!("{name}{mark}\n");
            }
            let leads = match entry.link {
                true => format!(" -> {}", quote_if_needed(entry.target.process_path())),
                false => String::new(),
            };
            let look = entry.look.as_ref().map_or_else(
                || format!("{:>5} {:>4} {:>12} {:20}", "?", "?", "?", "?"),
                |look| format!(" {:04o} {:>4} {:>12} {}", look.mode, look.links, look.size, moment(look.modified)),
            );
            format!("{look} {name}{mark}{leads}\n")
        });
        marked.collect()
    };
    Ok(shown(json, &answer, names))
}

fn grep(fence: &Opened, it: &Grep) -> Result<Answer, Failure> {
    let files = it.files.as_deref();
    let pattern = LinePattern { text: &it.pattern, literal: it.literal, any_case: it.ignore_case, files };
    let found = fence.grep(&fence.at(&it.path), &pattern, &search(&it.search))?;
    let path = |found: &Path| spelled(Path::new(&it.path), found);
    let each = found.results.iter();
    let matches = each.map(|it| json!({"path": readable(path(&it.path)), "line": it.line, "text": it.text}));
    let answer =
        json!({"truncated": found.truncated, "skipped": found.skipped, "matches": matches.collect::<Vec<_>>()});
    let lines = || {
        let each = found.results.iter();
        each.map(|it| format!("{}:{}:{}\n", quote_if_needed(path(&it.path)), it.line, it.text)).collect()
    };
    Ok(counted(shown(it.policy.json, &answer, lines), &found))
}

fn glob(fence: &Opened, it: &Glob) -> Result<Answer, Failure> {
    let found = fence.glob(&fence.at(&it.path), &it.pattern, &search(&it.search))?;
    let named: Vec<_> = found.results.iter().map(|path| spelled(Path::new(&it.path), path)).collect();
    let paths: Vec<_> = named.iter().map(readable).collect();
    let answer = json!({"truncated": found.truncated, "paths": paths});
    let lines = || named.iter().map(|path| format!("{}\n", quote_if_needed(path))).collect();
    Ok(counted(shown(it.policy.json, &answer, lines), &found))
}

fn search(arguments: &SearchArguments) -> SearchOptions {
    let results = arguments.max_results.unwrap_or(SearchOptions::default().results);
    SearchOptions { hidden: arguments.hidden, ignored: arguments.no_ignore, results, ..SearchOptions::default() }
}

/// Nothing found is an answer of its own, as with grep(1).
fn counted<T>(mut answer: Answer, found: &Found<T>) -> Answer {
    if found.truncated {
        say("note: there is more than is printed; see --max-results");
    }
    if found.results.is_empty() {
        answer.status = 1;
    }
    answer
}

fn replace(it: &TwoPaths) -> Replace {
    if it.force { Replace::Files } else { Replace::Never }
}

fn look_json(path: &Path, look: &Look) -> Value {
    json!({
        "path": readable(path),
        "type": look.kind,
        "size": look.size,
        "mode": format!("{:04o}", look.mode),
        "links": look.links,
        "modified": look.modified,
        "version": look.version,
    })
}

/// A moment in milliseconds of Unix time as `YYYY-MM-DDTHH:MM:SSZ`.
fn moment(milliseconds: i64) -> String {
    let seconds = milliseconds.div_euclid(1000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01, in eras of 400 years, so that the day that is left out comes last in a year.
    let since = days + 719_468;
    let (era, day) = (since.div_euclid(146_097), since.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (month, day) = ((shifted + 2) % 12 + 1, day_of_year - (153 * shifted + 2) / 5 + 1);
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn look_line(look: &Look) -> String {
    let kind = match look.kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Other => "other",
    };
    format!("{kind} size={} mode={:04o} links={} version={}\n", look.size, look.mode, look.links, look.version)
}

fn written_json(written: &Written) -> Value {
    json!({
        "path": readable(written.target.process_path()),
        "change": written.change,
        "version": written.version,
        "sha256": written.hash(),
        "lost": written.lost,
        "durable": written.durable,
        "replaced": written.replaced,
    })
}

fn line(answer: &Value) -> Answer {
    Answer { bytes: (one_line(answer) + "\n").into_bytes(), status: 0 }
}

fn shown(json: bool, answer: &Value, text: impl FnOnce() -> String) -> Answer {
    if json { line(answer) } else { Answer { bytes: text().into_bytes(), status: 0 } }
}

fn print(answer: &Answer) -> u8 {
    let mut out = std::io::stdout().lock();
    match out.write_all(&answer.bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            say(&format!("error: standard output: {error}"));
            125
        }
        _ => answer.status,
    }
}

/// Says why an operation did not happen, and returns the exit status.
fn refuse(error: &FsError, verb: &Verb, form: Form) -> u8 {
    let denial = error.denial();
    // Nothing was read before on a command line; what counts is that it is there.
    let message = error.to_string().replace("it exists and has not been read", "it already exists");
    if form == Form::Json {
        let mut body = json!({"code": error.code(), "message": message});
        if let Some(denied) = denial {
            body["mode"] = json!(denied.mode);
            body["resolved"] = readable(&denied.resolved).into();
            body["rule"] = denied.rule.clone().into();
        }
        say_json(&body);
    } else {
        say(&format!("error[{}]: {message}", error.code()));
        say(&format!("hint: {}", crate::fs_hints::hint(error, verb)));
    }
    match error.code() {
        Code::SandboxDenied => DENIED,
        Code::StaleVersion | Code::NotObserved | Code::AmbiguousEdit | Code::EditNotFound => CONDITION,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::moment;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (milliseconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_709_251_200_000, "2024-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (253_402_300_799_000, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(moment(milliseconds), text);
        }
    }
}
