//! The grammar of a configuration file: TOML (toml.io, version 1.1), no unknown keys, every value checked when the file
//! is read and not when a command fails.

use super::layer::{AllowRule, Layer, Origin, PresetDefinition, RuleScope, Source, Stated};
use crate::error::SessionError;
use crate::preset::CUSTOM;
use pinfold_policy::escalation::ApprovalPolicy;
use pinfold_policy::quote::quote;
use pinfold_policy::{Guarantee, Limits, Network, PathPattern, SandboxMode, Sockets, Variables};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// The version of the grammar.
const VERSION: u32 = 1;

/// Longer lists are no configuration: each entry is compared with the others.
const MOST_ENTRIES: usize = 1024;

/// The longest time that can be configured: some thirty years.
const LONGEST_SECONDS: f64 = 1e9;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Document {
    version: Option<Spanned<u32>>,
    mode: Option<Spanned<SandboxMode>>,
    workspace: Option<Spanned<String>>,
    writable: Option<Vec<Spanned<String>>>,
    network: Option<Spanned<Network>>,
    sockets: Option<Spanned<Sockets>>,
    allow_sockets: Option<Vec<Spanned<String>>>,
    deny_read: Vec<Spanned<String>>,
    protect: Vec<Spanned<String>>,
    allow_read: Option<Vec<Spanned<String>>>,
    deny_secrets: Option<Spanned<bool>>,
    env: Option<Spanned<Variables>>,
    keep_env: Option<Vec<Spanned<String>>>,
    require: Vec<Spanned<Guarantee>>,
    backend: Option<Spanned<String>>,
    timeout: Option<Spanned<f64>>,
    default_preset: Option<Spanned<String>>,
    approval: Approval,
    limits: Option<Spanned<Bounds>>,
    preset: BTreeMap<String, Spanned<Preset>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Approval {
    policy: Option<Spanned<ApprovalPolicy>>,
    timeout: Option<Spanned<f64>>,
    allow: Option<Vec<Spanned<Allow>>>,
}

/// Sizes are bytes, or text with a unit: `"2GiB"`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Bounds {
    max_processes: Option<u64>,
    max_memory: Option<Size>,
    max_process_memory: Option<Size>,
    max_cpu_seconds: Option<u64>,
    max_file_size: Option<Size>,
    max_open_files: Option<u64>,
    max_temp_size: Option<Size>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    const UNITS: [(&'static str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

    fn bytes(self) -> Result<u64, String> {
        let text = match self {
            Self::Bytes(bytes) => return Ok(bytes),
            Self::Text(text) => text,
        };
        let unit = Self::UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
        let number = unit.and_then(|(count, shift)| count.parse::<u64>().ok()?.checked_mul(1 << shift));
        number.ok_or_else(|| format!("{} is not a size such as \"2GiB\", \"512MiB\" or a number of bytes", quote(text)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Allow {
    command: Vec<String>,
    #[serde(default)]
    more_arguments: bool,
    mode: Option<SandboxMode>,
    write: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Preset {
    label: Option<String>,
    description: Option<String>,
    mode: SandboxMode,
    approval: ApprovalPolicy,
    #[serde(default)]
    writable: Vec<String>,
    network: Option<Network>,
    #[serde(default)]
    deny_read: Vec<String>,
    #[serde(default)]
    protect: Vec<String>,
    env: Option<Variables>,
}

/// Where relative paths and `~` lead.
pub(super) struct Base<'a> {
    pub(super) home: Option<&'a Path>,
    /// For a project file: the directory it lies in. Elsewhere a relative path is an error.
    pub(super) directory: Option<&'a Path>,
}

/// The parser's message on one line. It repeats what the file says, and a project's file may be a command's: nothing in it may
/// move a terminal's cursor or turn the direction of a line.
fn visible(message: &str) -> String {
    let shown = |letter: char| match letter {
        '\n' => "; ".to_owned(),
        ' '..='~' => letter.to_string(),
        _ if letter.is_alphanumeric() => letter.to_string(),
        _ => letter.escape_unicode().to_string(),
    };
    message.chars().map(shown).collect()
}

/// Reads a file's text.
pub(super) fn parse(origin: Origin, text: &str, base: &Base<'_>) -> Result<Layer, SessionError> {
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let reader = Reader { ends, origin: &origin, base };
    let document: Document =
        toml::from_str(text).map_err(|error| reader.refuse(error.span(), visible(error.message())))?;
    if let Some(version) = document.version.as_ref().filter(|version| *version.get_ref() != VERSION) {
        return Err(reader.refuse(Some(version.span()), format!("this pinfold reads version {VERSION} of the file")));
    }
    reader.refuse_long(&document)?;
    let approval = document.approval;
    Ok(Layer {
        mode: document.mode.map(|it| reader.stated(it)),
        workspace: document.workspace.map(|it| reader.path(it)).transpose()?,
        writable: document.writable.map(|it| reader.paths(it)).transpose()?,
        network: document.network.map(|it| reader.stated(it)),
        sockets: document.sockets.map(|it| reader.stated(it)),
        allowed_sockets: document.allow_sockets.map(|it| reader.paths(it)).transpose()?,
        denied_reads: document.deny_read.into_iter().map(|it| reader.pattern(it)).collect::<Result<_, _>>()?,
        protect: document.protect.into_iter().map(|it| reader.protected(it)).collect::<Result<_, _>>()?,
        allowed_reads: document.allow_read.map(|it| reader.paths(it)).transpose()?,
        deny_secrets: document.deny_secrets.map(|it| reader.stated(it)),
        variables: document.env.map(|it| reader.stated(it)),
        kept_variables: document
            .keep_env
            .map(|it| it.into_iter().map(|name| reader.variable(name)).collect())
            .transpose()?,
        require: document.require.into_iter().map(|it| reader.stated(it)).collect(),
        backend: document.backend.map(|it| reader.backend(it)).transpose()?,
        timeout: document.timeout.map(|it| reader.seconds(it)).transpose()?,
        approval: approval.policy.map(|it| reader.stated(it)),
        approval_timeout: approval.timeout.map(|it| reader.seconds(it)).transpose()?,
        limits_line: document.limits.as_ref().and_then(|it| reader.line(&it.span())),
        limits: document.limits.map(|it| reader.limits(it)).transpose()?.unwrap_or_default(),
        rules: approval.allow.map(|it| it.into_iter().map(|rule| reader.rule(rule)).collect()).transpose()?,
        presets: document.preset.into_iter().map(|(name, it)| reader.preset(name, it)).collect::<Result<_, _>>()?,
        default_preset: document.default_preset.map(|it| reader.stated(it)),
        origin,
    })
}

struct Reader<'a> {
    /// Where lines end.
    ends: Vec<usize>,
    origin: &'a Origin,
    base: &'a Base<'a>,
}

impl Reader<'_> {
    fn line(&self, span: &Range<usize>) -> Option<usize> {
        Some(1 + self.ends.partition_point(|end| *end < span.start))
    }

    /// Refuses a list that would take long.
    fn refuse_long(&self, document: &Document) -> Result<(), SessionError> {
        let count = |list: &Option<Vec<Spanned<String>>>| list.as_ref().map_or(0, Vec::len);
        let lists = [
            ("writable", count(&document.writable)),
            ("allow-sockets", count(&document.allow_sockets)),
            ("deny-read", document.deny_read.len()),
            ("protect", document.protect.len()),
            ("allow-read", count(&document.allow_read)),
            ("keep-env", count(&document.keep_env)),
            ("require", document.require.len()),
            ("approval.allow", document.approval.allow.as_ref().map_or(0, Vec::len)),
            ("preset", document.preset.len()),
        ];
        match lists.iter().find(|(_, count)| *count > MOST_ENTRIES) {
            None => Ok(()),
            Some((key, count)) => {
                Err(self.refuse(None, format!("{key}: {count} entries are too many; {MOST_ENTRIES} is the most")))
            }
        }
    }

    fn refuse(&self, span: Option<Range<usize>>, detail: String) -> SessionError {
        let line = span.and_then(|span| self.line(&span));
        SessionError::ConfigInvalid { at: Source { origin: self.origin.clone(), line }, detail }
    }

    fn stated<T>(&self, it: Spanned<T>) -> Stated<T> {
        let line = self.line(&it.span());
        Stated { value: it.into_inner(), line }
    }

    fn paths(&self, all: Vec<Spanned<String>>) -> Result<Vec<Stated<PathBuf>>, SessionError> {
        all.into_iter().map(|it| self.path(it)).collect()
    }

    fn path(&self, it: Spanned<String>) -> Result<Stated<PathBuf>, SessionError> {
        let span = it.span();
        let value = self.absolute(it.get_ref()).map_err(|detail| self.refuse(Some(span), detail))?;
        Ok(Stated { value, line: self.stated(it).line })
    }

    fn absolute(&self, text: &str) -> Result<PathBuf, String> {
        let path = if let Some(below) = text.strip_prefix("~/") {
            self.base.home.ok_or(format!("{} needs a home directory, and none is known", quote(text)))?.join(below)
        } else if Path::new(text).is_absolute() {
            PathBuf::from(text)
        } else if let Some(directory) = self.base.directory.filter(|_| !text.is_empty()) {
            directory.join(text)
        } else {
            return Err(format!("{} is not an absolute path and does not begin with ~/", quote(text)));
        };
        if text.contains('\0') || path.components().any(|part| part == Component::ParentDir) {
            return Err(format!("{} holds `..` or a NUL byte; name the path itself", quote(text)));
        }
        Ok(path)
    }

    /// A path or a pattern that is not to be read, as an absolute pattern.
    fn pattern(&self, it: Spanned<String>) -> Result<Stated<PathBuf>, SessionError> {
        let value = self.absolute_pattern(it.get_ref()).map_err(|detail| self.refuse(Some(it.span()), detail))?;
        Ok(Stated { value, line: self.line(&it.span()) })
    }

    fn absolute_pattern(&self, text: &str) -> Result<PathBuf, String> {
        let base = self.base.directory;
        if base.is_none() && !Path::new(text).is_absolute() && !text.starts_with("~/") {
            return Err(format!("{} is not an absolute path and does not begin with ~/", quote(text)));
        }
        let pattern = PathPattern::parse(text.as_ref(), base.unwrap_or(Path::new("/")), self.base.home);
        pattern.map(|pattern| pattern.absolute()).map_err(|error| error.to_string())
    }

    /// A name that stays as it is: a word, or a pattern.
    fn protected(&self, it: Spanned<String>) -> Result<Stated<String>, SessionError> {
        let value = self.protected_word(it.get_ref()).map_err(|detail| self.refuse(Some(it.span()), detail))?;
        Ok(Stated { value, line: self.line(&it.span()) })
    }

    fn protected_word(&self, text: &str) -> Result<String, String> {
        if text == "default" {
            return Ok(text.to_owned());
        }
        let absolute = self.absolute_pattern(text)?;
        absolute.into_os_string().into_string().map_err(|path| format!("{} is not UTF-8", quote(path)))
    }

    fn limits(&self, it: Spanned<Bounds>) -> Result<Limits, SessionError> {
        let span = it.span();
        let refuse = |detail: String| self.refuse(Some(span.clone()), format!("limits: {detail}"));
        let bounds = it.into_inner();
        let size = |size: Option<Size>| size.map(Size::bytes).transpose().map_err(refuse);
        let limits = Limits {
            max_processes: bounds.max_processes,
            max_memory_bytes: size(bounds.max_memory)?,
            max_process_memory_bytes: size(bounds.max_process_memory)?,
            max_cpu_seconds: bounds.max_cpu_seconds,
            max_file_bytes: size(bounds.max_file_size)?,
            max_open_files: bounds.max_open_files,
            max_temp_bytes: size(bounds.max_temp_size)?,
        };
        limits.validate().map_err(|error| refuse(error.to_string()))?;
        Ok(limits)
    }

    fn variable(&self, it: Spanned<String>) -> Result<Stated<String>, SessionError> {
        if it.get_ref().is_empty() || it.get_ref().contains(['=', '\0']) {
            let detail = format!("{} is not the name of a variable", quote(it.get_ref()));
            return Err(self.refuse(Some(it.span()), detail));
        }
        Ok(self.stated(it))
    }

    fn backend(&self, it: Spanned<String>) -> Result<Stated<String>, SessionError> {
        match it.get_ref().parse::<pinfold_providers::Backend>() {
            Ok(_) => Ok(self.stated(it)),
            Err(error) => Err(self.refuse(Some(it.span()), error.to_string())),
        }
    }

    fn seconds(&self, it: Spanned<f64>) -> Result<Stated<Duration>, SessionError> {
        let (span, seconds) = (it.span(), *it.get_ref());
        let limit = Some(seconds).filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST_SECONDS);
        let limit = limit.map(Duration::from_secs_f64).filter(|limit| !limit.is_zero());
        let value = limit.ok_or_else(|| {
            let detail = format!("{seconds} is not a number of seconds above 0 and up to {LONGEST_SECONDS}");
            self.refuse(Some(span.clone()), detail)
        })?;
        Ok(Stated { value, line: self.line(&span) })
    }

    fn rule(&self, it: Spanned<Allow>) -> Result<Stated<AllowRule>, SessionError> {
        let span = it.span();
        let refuse = |detail: &str| Err(self.refuse(Some(span.clone()), format!("approval.allow: {detail}")));
        let rule = it.into_inner();
        if rule.command.first().is_none_or(String::is_empty) {
            return refuse("`command` names no program");
        }
        let scope = match (rule.mode, rule.write) {
            (Some(SandboxMode::ReadOnly), None) => return refuse("`mode` must be wider than read-only"),
            (Some(mode), None) => RuleScope::Mode(mode),
            (None, Some(path)) => {
                RuleScope::Write(self.absolute(&path).map_err(|detail| self.refuse(Some(span.clone()), detail))?)
            }
            _ => return refuse("give one of `mode` and `write`"),
        };
        let value = AllowRule { command: rule.command, more_arguments: rule.more_arguments, scope };
        Ok(Stated { value, line: self.line(&span) })
    }

    fn preset(&self, name: String, it: Spanned<Preset>) -> Result<(String, Stated<PresetDefinition>), SessionError> {
        let span = it.span();
        let refuse = |detail: String| self.refuse(Some(span.clone()), detail);
        if name == CUSTOM {
            return Err(refuse(format!("`{CUSTOM}` is the name of every state that no preset describes")));
        }
        if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter)) {
            return Err(refuse(format!("preset {} is not a name of letters, digits, - and _", quote(&name))));
        }
        let row = it.into_inner();
        let paths = |paths: Vec<String>| {
            paths.iter().map(|path| self.absolute(path).map_err(&refuse)).collect::<Result<Vec<_>, _>>()
        };
        let value = PresetDefinition {
            label: row.label.unwrap_or_else(|| name.clone()),
            description: row.description.unwrap_or_default(),
            mode: row.mode,
            approval: row.approval,
            writable: paths(row.writable)?,
            network: row.network,
            denied_reads: paths(row.deny_read)?,
            protect: row
                .protect
                .iter()
                .map(|word| self.protected_word(word).map_err(&refuse))
                .collect::<Result<_, _>>()?,
            variables: row.env,
            name: name.clone(),
        };
        Ok((name, Stated { value, line: self.line(&span) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Result<Layer, SessionError> {
        let base = Base { home: Some(Path::new("/home/ann")), directory: None };
        parse(Origin::User("/c.toml".into()), text, &base)
    }

    fn refusal(text: &str) -> String {
        let error = user(text).unwrap_err();
        assert_eq!(error.code(), "CONFIG_INVALID");
        error.to_string()
    }

    #[test]
    fn every_key_is_read_with_its_line() {
        let layer = user(
            "version = 1\nmode = 'workspace-write'\nworkspace = '/w'\nwritable = [\n'~/.cache',\n]\nnetwork = 'off'\n\
             sockets = 'closed'\nallow-sockets = ['/run/s']\ndeny-read = ['/d']\ndeny-secrets = true\nenv = 'scrub'\n\
             keep-env = ['GH_TOKEN']\nrequire = ['network']\nbackend = 'namespace'\ntimeout = 1.5\n\
             default-preset = 'careful'\n[approval]\npolicy = 'ask'\ntimeout = 60\n[[approval.allow]]\n\
             command = ['cargo', 'fetch']\nwrite = '~/.cargo/registry'\n[preset.careful]\nmode = 'read-only'\napproval = 'ask'\n",
        )
        .unwrap();
        assert_eq!(layer.mode, Some(Stated { value: SandboxMode::WorkspaceWrite, line: Some(2) }));
        assert_eq!(layer.writable, Some(vec![Stated { value: "/home/ann/.cache".into(), line: Some(5) }]));
        assert_eq!(layer.timeout.unwrap().value, Duration::from_millis(1500));
        let rule = &layer.rules.unwrap()[0];
        assert_eq!(rule.value.scope, RuleScope::Write("/home/ann/.cargo/registry".into()));
        assert_eq!((rule.line, layer.presets["careful"].value.approval), (Some(21), ApprovalPolicy::Ask));
    }

    // A project's file may be a command's: it must not keep the next call waiting.
    #[test]
    fn a_list_that_is_too_long_is_refused_before_it_is_compared() {
        let list = |count: usize| format!("deny-read = [{}]", "'/a',".repeat(count));
        assert!(user(&list(MOST_ENTRIES)).is_ok());
        assert!(refusal(&list(50_000)).contains("deny-read: 50000 entries are too many"));
        let deep = format!("writable = {}", "[".repeat(100_000));
        assert!(refusal(&deep).starts_with("/c.toml:1: "));
    }

    // U243, W73, B126: what cannot be meant is refused when the file is read.
    #[test]
    fn unknown_keys_words_and_values_that_cannot_be_meant_are_refused_with_their_line() {
        for (text, words) in [
            ("mode = 'full'", "/c.toml:1: unknown sandbox mode \"full\""),
            ("\n\nnet = 'off'", "/c.toml:3: unknown field `net`"),
            ("mode = 'read-only'\nmode = 'read-only'", "/c.toml:2: duplicate key"),
            ("writable = ['x']", "is not an absolute path"),
            ("writable = ['/a/../b']", "holds `..`"),
            ("workspace = ''", "is not an absolute path"),
            ("deny-read = ['~ann/x']", "is not an absolute path"),
            ("deny-read = ['/a/[']", "/c.toml:1: "),
            ("[limits]\nmax-memory = '2G'", "/c.toml:1: limits: \"2G\" is not a size"),
            ("[limits]\nmax-processes = 0", "limits: "),
            ("[limits]\nmax-threads = 1", "/c.toml:2: unknown field"),
            ("timeout = 0", "is not a number of seconds"),
            ("timeout = -1", "is not a number of seconds"),
            ("timeout = 3e9", "is not a number of seconds"),
            ("timeout = nan", "is not a number of seconds"),
            ("keep-env = ['A=B']", "is not the name of a variable"),
            ("backend = 'docker'", "/c.toml:1: "),
            ("version = 2", "reads version 1"),
            ("[approval]\npolicy = 'always'", "/c.toml:2: unknown approval policy"),
            ("[[approval.allow]]\ncommand = []\nmode = 'workspace-write'", "names no program"),
            ("[[approval.allow]]\ncommand = ['x']", "give one of"),
            ("[[approval.allow]]\ncommand = ['x']\nmode = 'read-only'", "must be wider"),
            ("[[approval.allow]]\ncommand = ['x']\nmode = 'workspace-write'\nwrite = '/w'", "give one of"),
            // U549
            ("[preset.custom]\nmode = 'read-only'\napproval = 'ask'", "no preset describes"),
            ("[preset.'a b']\nmode = 'read-only'\napproval = 'ask'", "is not a name"),
            ("= nonsense", "/c.toml:1: "),
        ] {
            let said = refusal(text);
            assert!(said.contains(words), "{text:?}: {said}");
        }
    }

    #[test]
    fn relative_paths_of_a_project_lie_in_it() {
        let base = Base { home: None, directory: Some(Path::new("/w")) };
        let layer =
            parse(Origin::Project("/w/pinfold.toml".into()), "deny-read = ['keys', '/x', '**/*.pem']", &base).unwrap();
        let paths: Vec<_> = layer.denied_reads.iter().map(|it| it.value.clone()).collect();
        assert_eq!(paths, [PathBuf::from("/w/keys"), "/x".into(), "/w/**/*.pem".into()]);
        assert!(parse(Origin::Project("/w/pinfold.toml".into()), "allow-read = ['~/keys']", &base).is_err());
    }
}
