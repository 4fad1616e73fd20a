//! One layer over another: a later one decides, a project file only tightens.
//!
//! | key | tighter is |
//! |---|---|
//! | `mode` | narrower |
//! | `network` | `off`, then `private`, then `open` |
//! | `sockets` | `closed`, then unsaid, then `open` |
//! | `env` | `scrub`, then `inherit` |
//! | `writable`, `allow-sockets`, `allow-read`, `keep-env`, `approval.allow` | fewer of those that are listed before |
//! | `deny-read`, `protect`, `require` | more: every layer adds |
//! | `deny-secrets` | `true`, then unsaid, then `false` |
//! | `timeout`, `approval.timeout`, `limits` | shorter, smaller; none is the largest |
//! | `approval.policy` | `never`; of the other two neither is tighter than the other |
//! | `workspace`, `backend`, `preset`, `default-preset` | nothing: a project file may not speak of them |

use super::layer::{AllowRule, Layer, Origin, PresetDefinition, Source, Stated};
use crate::error::SessionError;
use crate::preset;
use pinfold_policy::escalation::ApprovalPolicy;
use pinfold_policy::quote::quote_if_needed;
use pinfold_policy::restrictions::SECRETS_IN_HOME;
use pinfold_policy::{
    Guarantee, Limits, Network, PathPattern, PatternShape, Restrictions, SandboxError, SandboxMode, Sockets, Variables,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an answer is waited for, unless something else is configured.
const ANSWER_TIME: Duration = Duration::from_secs(300);

/// A value with who decided it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided<T> {
    /// The value.
    pub value: T,
    /// Who.
    pub by: Source,
}

impl<T> Decided<T> {
    fn built_in(value: T) -> Self {
        Self { value, by: Source::whole(Origin::BuiltIn) }
    }
}

/// Holds what every layer together says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// How much may be written.
    pub mode: Decided<SandboxMode>,
    /// The workspace of calls that belong to no session, if one is configured.
    pub workspace: Option<Decided<PathBuf>>,
    /// Further writable directories.
    pub writable: Vec<Decided<PathBuf>>,
    /// The network.
    pub network: Decided<Network>,
    /// Sockets by path; unsaid, whoever makes the call decides.
    pub sockets: Decided<Option<Sockets>>,
    /// Sockets that stay reachable.
    pub allowed_sockets: Vec<Decided<PathBuf>>,
    /// Paths that cannot be read.
    pub denied_reads: Vec<Decided<PathBuf>>,
    /// Names in writable directories that stay as they are: `default`, or absolute patterns.
    pub protect: Vec<Decided<String>>,
    /// Secrets of the list that stay readable.
    pub allowed_reads: Vec<Decided<PathBuf>>,
    /// Whether the listed secrets in the home directory cannot be read; unsaid, whoever makes the call decides.
    pub deny_secrets: Decided<Option<bool>>,
    /// What a call may use up.
    pub limits: Limits,
    /// Who decided each bound of `limits`, by its key such as `limits.max-processes`.
    pub limits_by: BTreeMap<&'static str, Source>,
    /// The environment.
    pub variables: Decided<Variables>,
    /// Variables that stay.
    pub kept_variables: Vec<Decided<String>>,
    /// Promises without which nothing runs.
    pub require: Vec<Decided<Guarantee>>,
    /// The mechanism, if one is configured.
    pub backend: Option<Decided<String>>,
    /// How long a command may take, if that is limited.
    pub timeout: Option<Decided<Duration>>,
    /// What becomes of requests.
    pub approval: Decided<ApprovalPolicy>,
    /// How long an answer is waited for.
    pub approval_timeout: Decided<Duration>,
    /// Rules that answer in place of a person.
    pub rules: Vec<Decided<AllowRule>>,
    /// The table of presets, in its order.
    pub presets: Vec<Decided<PresetDefinition>>,
    /// The preset of new sessions, if one is configured.
    pub default_preset: Option<Decided<String>>,
    /// Where a later layer opened what a project file had closed: sentences for a report.
    pub overridden: Vec<String>,
}

impl Default for Deployment {
    fn default() -> Self {
        Self::built_in(SandboxMode::ReadOnly)
    }
}

impl Deployment {
    /// What holds where nobody says anything, with the mode that the program which asks is made for.
    pub fn built_in(mode: SandboxMode) -> Self {
        Self {
            mode: Decided::built_in(mode),
            workspace: None,
            writable: Vec::new(),
            network: Decided::built_in(Network::Open),
            sockets: Decided::built_in(None),
            allowed_sockets: Vec::new(),
            denied_reads: Vec::new(),
            protect: Vec::new(),
            allowed_reads: Vec::new(),
            deny_secrets: Decided::built_in(None),
            limits: Limits::default(),
            limits_by: BTreeMap::new(),
            variables: Decided::built_in(Variables::Inherit),
            kept_variables: Vec::new(),
            require: Vec::new(),
            backend: None,
            timeout: None,
            approval: Decided::built_in(ApprovalPolicy::Ask),
            approval_timeout: Decided::built_in(ANSWER_TIME),
            rules: Vec::new(),
            presets: preset::built_in().into_iter().map(Decided::built_in).collect(),
            default_preset: None,
            overridden: Vec::new(),
        }
    }

    /// Puts a layer over this one.
    ///
    /// # Errors
    ///
    /// `CONFIG_WIDENS` for the first key with which a layer that may only tighten would open something.
    pub fn over(mut self, layer: Layer) -> Result<Self, SessionError> {
        let mut by = Over { layer: &layer, notes: Vec::new() };
        by.scalar("mode", &mut self.mode, layer.mode.clone(), narrowness)?;
        by.scalar("network", &mut self.network, layer.network.clone(), |network| *network as u8)?;
        let sockets = layer.sockets.clone().map(|it| Stated { value: Some(it.value), line: it.line });
        by.scalar("sockets", &mut self.sockets, sockets, |sockets| match sockets {
            Some(Sockets::Open) => 0,
            None => 1,
            Some(Sockets::Closed) => 2,
        })?;
        let secrets = layer.deny_secrets.clone().map(|it| Stated { value: Some(it.value), line: it.line });
        by.scalar("deny-secrets", &mut self.deny_secrets, secrets, |deny| deny.map_or(1, |deny| 2 * u8::from(deny)))?;
        by.opening("allow-read", &mut self.allowed_reads, &layer.allowed_reads)?;
        by.limits(&mut self.limits, &mut self.limits_by)?;
        by.scalar("env", &mut self.variables, layer.variables.clone(), |variables| *variables as u8)?;
        by.opening("writable", &mut self.writable, &layer.writable)?;
        by.opening("allow-sockets", &mut self.allowed_sockets, &layer.allowed_sockets)?;
        by.opening("keep-env", &mut self.kept_variables, &layer.kept_variables)?;
        by.opening("approval.allow", &mut self.rules, &layer.rules)?;
        by.closing(&mut self.denied_reads, &layer.denied_reads);
        by.closing(&mut self.protect, &layer.protect);
        by.closing(&mut self.require, &layer.require);
        by.limit("timeout", &mut self.timeout, layer.timeout.clone())?;
        let mut answer = Some(self.approval_timeout);
        by.limit("approval.timeout", &mut answer, layer.approval_timeout.clone())?;
        self.approval_timeout = answer.unwrap_or_else(|| Decided::built_in(ANSWER_TIME));
        by.approval(&mut self.approval, layer.approval.clone())?;
        by.owned("workspace", &mut self.workspace, layer.workspace.clone())?;
        by.owned("backend", &mut self.backend, layer.backend.clone())?;
        by.owned("default-preset", &mut self.default_preset, layer.default_preset.clone())?;
        for row in layer.presets.values() {
            by.preset(&mut self.presets, row)?;
        }
        self.overridden.extend(by.notes);
        Ok(self)
    }

    /// Returns what is closed beyond the mode, as far as it is said: what is unsaid is open.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_POLICY` for restrictions that contradict each other, and for `deny-secrets` without a home
    /// directory.
    pub fn restrictions(&self, home: Option<&Path>) -> Result<Restrictions, SandboxError> {
        let paths = |paths: &[Decided<PathBuf>]| paths.iter().map(|it| it.value.clone()).collect::<Vec<_>>();
        let mut restrictions = Restrictions {
            network: self.network.value,
            sockets: self.sockets.value.unwrap_or(Sockets::Open),
            allowed_sockets: paths(&self.allowed_sockets),
            variables: self.variables.value,
            kept_variables: self.kept_variables.iter().map(|it| it.value.clone()).collect(),
            ..Restrictions::default()
        };
        for denied in &self.denied_reads {
            let pattern = PathPattern::parse(denied.value.as_os_str(), Path::new("/"), None)?;
            match pattern.shape() {
                PatternShape::Wildcard => restrictions.denied_read_patterns.push(denied.value.clone()),
                _ => restrictions.denied_reads.push(pattern.literal_prefix().to_owned()),
            }
        }
        protect(&mut restrictions, self.protect.iter().map(|it| it.value.as_str()));
        if self.deny_secrets.value == Some(true) {
            let home = home.ok_or_else(|| SandboxError::InvalidPolicy {
                detail: "deny-secrets needs a home directory, and none is known".to_owned(),
            })?;
            deny_secrets(&mut restrictions, home, &paths(&self.allowed_reads));
        }
        restrictions.validate()?;
        Ok(restrictions)
    }

    /// Lists every key with its value and who decided it, in a fixed order.
    pub fn explain(&self) -> Vec<(&'static str, String, Source)> {
        let mut lines = vec![("mode", self.mode.value.to_string(), self.mode.by.clone())];
        let path = |it: &Decided<PathBuf>| (quote_if_needed(&it.value), it.by.clone());
        let seconds = |it: &Decided<Duration>| (format!("{} s", it.value.as_secs_f64()), it.by.clone());
        let mut push = |key, (value, by): (String, Source)| lines.push((key, value, by));
        self.workspace.iter().for_each(|it| push("workspace", path(it)));
        self.writable.iter().for_each(|it| push("writable", path(it)));
        push("network", (self.network.value.to_string(), self.network.by.clone()));
        let sockets = self.sockets.value.map_or("unsaid".to_owned(), |it| it.to_string());
        push("sockets", (sockets, self.sockets.by.clone()));
        self.allowed_sockets.iter().for_each(|it| push("allow-sockets", path(it)));
        self.denied_reads.iter().for_each(|it| push("deny-read", path(it)));
        self.protect.iter().for_each(|it| push("protect", (quote_if_needed(&it.value), it.by.clone())));
        self.allowed_reads.iter().for_each(|it| push("allow-read", path(it)));
        let secrets = self.deny_secrets.value.map_or("unsaid".to_owned(), |deny| deny.to_string());
        push("deny-secrets", (secrets, self.deny_secrets.by.clone()));
        push("env", (self.variables.value.to_string(), self.variables.by.clone()));
        self.kept_variables.iter().for_each(|it| push("keep-env", (it.value.clone(), it.by.clone())));
        self.require.iter().for_each(|it| push("require", (it.value.to_string(), it.by.clone())));
        self.backend.iter().for_each(|it| push("backend", (it.value.clone(), it.by.clone())));
        self.timeout.iter().for_each(|it| push("timeout", seconds(it)));
        let of = &self.limits;
        for (key, bound) in [
            ("limits.max-processes", of.max_processes),
            ("limits.max-memory", of.max_memory_bytes),
            ("limits.max-process-memory", of.max_process_memory_bytes),
            ("limits.max-cpu-seconds", of.max_cpu_seconds),
            ("limits.max-file-size", of.max_file_bytes),
            ("limits.max-open-files", of.max_open_files),
            ("limits.max-temp-size", of.max_temp_bytes),
        ] {
            if let (Some(bound), Some(by)) = (bound, self.limits_by.get(key)) {
                push(key, (bound.to_string(), by.clone()));
            }
        }
        push("approval.policy", (self.approval.value.to_string(), self.approval.by.clone()));
        push("approval.timeout", seconds(&self.approval_timeout));
        for rule in &self.rules {
            push("approval.allow", (quote_if_needed(rule.value.command.join(" ")), rule.by.clone()));
        }
        lines
    }
}

/// Adds names that stay as they are.
pub(crate) fn protect<'a>(restrictions: &mut Restrictions, words: impl Iterator<Item = &'a str>) {
    for word in words {
        match word {
            "default" => restrictions.protect.default_names = true,
            pattern => restrictions.protect.patterns.push(pattern.into()),
        }
    }
}

/// Closes the secrets of the list that exist. Files of settings count without a look at what is in them.
fn deny_secrets(restrictions: &mut Restrictions, home: &Path, allowed: &[PathBuf]) {
    for secret in SECRETS_IN_HOME {
        let place = home.join(secret.place);
        if place.symlink_metadata().is_err() || allowed.iter().any(|path| place.starts_with(path)) {
            continue;
        }
        if !secret.except.is_empty() {
            let names = std::fs::read_dir(&place).into_iter().flatten().flatten().map(|entry| entry.file_name());
            let kept = names.filter(|name| name.to_str().is_some_and(|name| secret.excepts(name)));
            restrictions.allowed_reads.extend(kept.map(|name| place.join(name)));
        }
        restrictions.allowed_reads.extend(allowed.iter().filter(|path| path.starts_with(&place)).cloned());
        restrictions.denied_reads.push(place);
    }
}

/// The breadth of a mode, turned around: more is tighter.
fn narrowness(mode: &SandboxMode) -> u8 {
    match mode {
        SandboxMode::DangerFullAccess => 0,
        SandboxMode::WorkspaceWrite => 1,
        SandboxMode::ReadOnly => 2,
    }
}

/// One layer on its way over the others.
struct Over<'a> {
    layer: &'a Layer,
    notes: Vec<String>,
}

impl Over<'_> {
    fn tightens(&self) -> bool {
        self.layer.origin.only_tightens()
    }

    fn decide<T>(&self, stated: Stated<T>) -> Decided<T> {
        Decided { by: self.layer.source(stated.line), value: stated.value }
    }

    fn widens(&self, key: &'static str, line: Option<usize>, detail: String) -> SessionError {
        SessionError::ConfigWidens { at: self.layer.source(line), key, detail }
    }

    fn note(&mut self, key: &str, was: &Source) {
        if was.origin.only_tightens() {
            self.notes.push(format!("{}: `{key}` opens what {was} closes.", self.layer.origin));
        }
    }

    fn scalar<T: Shown>(
        &mut self,
        key: &'static str,
        current: &mut Decided<T>,
        stated: Option<Stated<T>>,
        tightness: impl Fn(&T) -> u8,
    ) -> Result<(), SessionError> {
        let Some(stated) = stated else { return Ok(()) };
        match tightness(&stated.value).cmp(&tightness(&current.value)) {
            std::cmp::Ordering::Less if self.tightens() => {
                return Err(self.widens(key, stated.line, format!("{} holds {}", current.by, current.value.shown())));
            }
            std::cmp::Ordering::Less => self.note(key, &current.by),
            // Who first decided something is who decided it.
            std::cmp::Ordering::Equal if self.tightens() => return Ok(()),
            _ => {}
        }
        *current = self.decide(stated);
        Ok(())
    }

    /// A list of what is opened: every layer adds, and a layer that only tightens chooses among what is there.
    fn opening<T: PartialEq + Clone + Shown>(
        &mut self,
        key: &'static str,
        current: &mut Vec<Decided<T>>,
        stated: &Option<Vec<Stated<T>>>,
    ) -> Result<(), SessionError> {
        let Some(stated) = stated else { return Ok(()) };
        if self.tightens() {
            if let Some(new) = stated.iter().find(|new| !current.iter().any(|have| have.value == new.value)) {
                return Err(self.widens(key, new.line, format!("{} is not open already", new.value.shown())));
            }
            current.retain(|have| stated.iter().any(|new| have.value == new.value));
            return Ok(());
        }
        for new in stated {
            if !current.iter().any(|have| have.value == new.value) {
                current.push(self.decide(new.clone()));
            }
        }
        Ok(())
    }

    /// A list of what is closed: every layer adds.
    fn closing<T: PartialEq + Clone>(&mut self, current: &mut Vec<Decided<T>>, stated: &[Stated<T>]) {
        for new in stated {
            if !current.iter().any(|have| have.value == new.value) {
                current.push(self.decide(new.clone()));
            }
        }
    }

    /// A time, of which none is the longest.
    fn limit(
        &mut self,
        key: &'static str,
        current: &mut Option<Decided<Duration>>,
        stated: Option<Stated<Duration>>,
    ) -> Result<(), SessionError> {
        let Some(stated) = stated else { return Ok(()) };
        if let Some(have) = current.as_ref().filter(|have| stated.value > have.value) {
            if self.tightens() {
                let detail = format!("{} holds {} s", have.by, have.value.as_secs_f64());
                return Err(self.widens(key, stated.line, detail));
            }
            let by = have.by.clone();
            self.note(key, &by);
        }
        *current = Some(self.decide(stated));
        Ok(())
    }

    /// Bounds, of which none is the largest. A bound that is not stated stays.
    fn limits(
        &mut self,
        current: &mut Limits,
        deciders: &mut BTreeMap<&'static str, Source>,
    ) -> Result<(), SessionError> {
        let source = self.layer.source(self.layer.limits_line);
        let stated = self.layer.limits;
        let tightens = self.tightens();
        let mut wider = None;
        let mut one = |name: &'static str, current: &mut Option<u64>, stated: Option<u64>| {
            let Some(stated) = stated else { return };
            if tightens && current.is_some_and(|current| stated > current) {
                wider = wider.or(Some((name, stated)));
            } else {
                // Who first decided something is who decided it.
                if !(tightens && *current == Some(stated)) {
                    deciders.insert(name, source.clone());
                }
                *current = Some(stated);
            }
        };
        one("limits.max-processes", &mut current.max_processes, stated.max_processes);
        one("limits.max-memory", &mut current.max_memory_bytes, stated.max_memory_bytes);
        one("limits.max-process-memory", &mut current.max_process_memory_bytes, stated.max_process_memory_bytes);
        one("limits.max-cpu-seconds", &mut current.max_cpu_seconds, stated.max_cpu_seconds);
        one("limits.max-file-size", &mut current.max_file_bytes, stated.max_file_bytes);
        one("limits.max-open-files", &mut current.max_open_files, stated.max_open_files);
        one("limits.max-temp-size", &mut current.max_temp_bytes, stated.max_temp_bytes);
        match wider {
            None => Ok(()),
            Some((name, stated)) => {
                let name = name.trim_start_matches("limits.");
                let detail = format!("{name} {stated} is more than what holds");
                Err(self.widens("limits", self.layer.limits_line, detail))
            }
        }
    }

    fn approval(
        &mut self,
        current: &mut Decided<ApprovalPolicy>,
        stated: Option<Stated<ApprovalPolicy>>,
    ) -> Result<(), SessionError> {
        let Some(stated) = stated else { return Ok(()) };
        if stated.value == current.value && self.tightens() {
            return Ok(());
        }
        if self.tightens() && stated.value != ApprovalPolicy::Never {
            let detail = format!("{} holds {}, and {} is not tighter", current.by, current.value, stated.value);
            return Err(self.widens("approval.policy", stated.line, detail));
        }
        if current.value == ApprovalPolicy::Never && stated.value != ApprovalPolicy::Never {
            self.note("approval.policy", &current.by.clone());
        }
        *current = self.decide(stated);
        Ok(())
    }

    /// A key of which a project file may not speak.
    fn owned<T: PartialEq + Shown>(
        &mut self,
        key: &'static str,
        current: &mut Option<Decided<T>>,
        stated: Option<Stated<T>>,
    ) -> Result<(), SessionError> {
        let Some(stated) = stated else { return Ok(()) };
        if self.tightens() {
            if current.as_ref().is_some_and(|have| have.value == stated.value) {
                return Ok(());
            }
            return Err(self.widens(key, stated.line, format!("{} is not its to choose", stated.value.shown())));
        }
        *current = Some(self.decide(stated));
        Ok(())
    }

    fn preset(
        &mut self,
        current: &mut Vec<Decided<PresetDefinition>>,
        row: &Stated<PresetDefinition>,
    ) -> Result<(), SessionError> {
        if self.tightens() {
            return Err(self.widens("preset", row.line, format!("{} is not its to define", row.value.name)));
        }
        let row = self.decide(row.clone());
        match current.iter_mut().find(|have| have.value.name == row.value.name) {
            Some(have) => *have = row,
            None => current.push(row),
        }
        Ok(())
    }
}

/// A value as a message shows it.
trait Shown {
    fn shown(&self) -> String;
}

macro_rules! shown_as_words {
    ($($name:ty),+) => {
        $(impl Shown for $name {
            fn shown(&self) -> String {
                self.to_string()
            }
        })+
    };
}

shown_as_words!(SandboxMode, Network, Variables);

impl Shown for Option<Sockets> {
    fn shown(&self) -> String {
        self.map_or("nothing".to_owned(), |it| it.to_string())
    }
}

impl Shown for Option<bool> {
    fn shown(&self) -> String {
        self.map_or("nothing".to_owned(), |it| it.to_string())
    }
}

impl Shown for PathBuf {
    fn shown(&self) -> String {
        quote_if_needed(self)
    }
}

impl Shown for String {
    fn shown(&self) -> String {
        quote_if_needed(self)
    }
}

impl Shown for AllowRule {
    fn shown(&self) -> String {
        quote_if_needed(self.command.join(" "))
    }
}
