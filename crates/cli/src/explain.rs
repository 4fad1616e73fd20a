//! `pinfold explain`: what would happen to a path, or what a mode means here. Both come from the provider's own
//! plan; nothing is modelled a second time.

use crate::arguments::{Explain, LimitOptions, PolicyOptions};
use crate::configuration::Configured;
use crate::request::{Request, execution_mode};
use crate::surroundings::Surroundings;
use crate::voice::{Form, one_line, print_or_complain};
use pinfold_policy::quote::quote_if_needed;
use pinfold_policy::{
    EnforcementReport, ExecutionPolicy, Guarantee, SandboxError, SandboxMode, SandboxPolicy, Strength, TempView,
};
use pinfold_providers::{Answer, Backend, CallOptions, Cancel, LocalProvider, Operation, Question, Ruling};
use pinfold_session::config::{Origin, Source};
use pinfold_session::{Deployment, SessionError};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;

const OPERATIONS: [(&str, Operation); 7] = [
    ("write", Operation::Write),
    ("create", Operation::Create),
    ("remove", Operation::Remove),
    ("rename", Operation::Rename),
    ("change-metadata", Operation::ChangeMetadata),
    ("read", Operation::Read),
    ("connect", Operation::Connect),
];

/// Prints the answer and returns the exit status.
pub(crate) fn explain(arguments: &Explain, provider: &LocalProvider, around: &Surroundings) -> u8 {
    print_or_complain(answer(arguments, provider, around), Form::of(arguments.json))
}

fn answer(arguments: &Explain, provider: &LocalProvider, around: &Surroundings) -> Result<String, SessionError> {
    let words = PolicyOptions {
        mode: arguments.mode.clone(),
        workspace: arguments.workspace.clone(),
        writable: arguments.writable.clone(),
        backend: arguments.backend.clone(),
        require: arguments.require.clone(),
        cwd: arguments.cwd.clone(),
        restrictions: arguments.restrictions.clone(),
        limits: arguments.limits.clone(),
    };
    // A word that means nothing is refused before a file is read.
    execution_mode(arguments.mode.as_deref())?;
    let configured = Configured::load(&words, SandboxMode::WorkspaceWrite, None, None, around)?;
    let words = &configured.options;
    let operation = arguments.operation.as_deref().map_or(Ok(Operation::Write), operation)?;
    let request = Request::new(words, &["true".into()], around)?;
    configured.refuse_open(&request.policy)?;
    let (policy, call) = request.split();
    let mode = policy.mode;
    let decided = Keys { deployment: &configured.deployment, bounds: &arguments.limits };
    let form = Form::of(arguments.json);
    match (&arguments.path, policy.confined()) {
        (Some(path), Some(policy)) => {
            let path = around.absolute("PATH", Path::new(path))?;
            let question = Question { path, operation, policy };
            let (answer, unmet) = or_unmet(call, |call| provider.explain(&question, call))?;
            Ok(render_answer(&answer, question.policy.mode.into(), operation, form, &decided, unmet.as_ref()))
        }
        (Some(path), None) => {
            let path = around.absolute("PATH", Path::new(path))?;
            Ok(render_answer(&unconfined(&path), mode, operation, form, &decided, None))
        }
        (None, Some(policy)) => Ok(explain_mode(provider, policy, call, form, &decided)?),
        (None, None) => Ok(render_unconfined(&policy, form, &decided)),
    }
}

/// Answers although a required guarantee is not kept, and says so: whoever asks wants to know why.
fn or_unmet<T>(
    mut call: CallOptions,
    ask: impl Fn(&CallOptions) -> Result<T, SandboxError>,
) -> Result<(T, Option<SandboxError>), SandboxError> {
    match ask(&call) {
        Err(unmet @ SandboxError::GuaranteeUnmet { .. }) => {
            call.require.clear();
            Ok((ask(&call)?, Some(unmet)))
        }
        answer => Ok((answer?, None)),
    }
}

fn operation(word: &str) -> Result<Operation, SandboxError> {
    let found = OPERATIONS.iter().find(|(name, _)| *name == word).map(|(_, operation)| *operation);
    found.ok_or_else(|| {
        let names = OPERATIONS.map(|(name, _)| name).join(", ");
        let word = pinfold_policy::quote::quote(word);
        SandboxError::InvalidPolicy { detail: format!("unknown operation {word}; expected one of: {names}") }
    })
}

fn operation_name(operation: Operation) -> &'static str {
    OPERATIONS.iter().find(|(_, other)| *other == operation).map_or("write", |(name, _)| name)
}

fn unconfined(path: &Path) -> Answer {
    Answer {
        ruling: Ruling::NotGoverned,
        backend: Backend::Unconfined,
        resolved: crate::surroundings::physical(path),
        rule: "Nothing is confined under danger-full-access.".to_owned(),
        layers: Vec::new(),
    }
}

/// An answer about a path with what was asked beside it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PathAnswer<'a> {
    mode: SandboxMode,
    operation: &'static str,
    ruling: Ruling,
    backend: Backend,
    resolved: String,
    rule: &'a str,
    layers: &'a [pinfold_policy::Layer],
    configuration: Vec<Key>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unmet: Option<String>,
}

/// One key of the configuration, with who decided it.
#[derive(Serialize)]
struct Key {
    key: &'static str,
    value: String,
    by: String,
}

/// Who decided what: files and words, of which those about bounds outrank what a file says.
struct Keys<'a> {
    deployment: &'a Deployment,
    bounds: &'a LimitOptions,
}

impl Keys<'_> {
    fn list(&self) -> Vec<Key> {
        let of = self.bounds;
        let words = [
            ("limits.max-processes", &of.max_processes),
            ("limits.max-memory", &of.max_memory),
            ("limits.max-process-memory", &of.max_process_memory),
            ("limits.max-cpu-seconds", &of.max_cpu_seconds),
            ("limits.max-file-size", &of.max_file_size),
            ("limits.max-open-files", &of.max_open_files),
            ("limits.max-temp-size", &of.max_temp_size),
        ];
        let said = |key: &str| words.iter().any(|(other, word)| *other == key && word.is_some());
        let files = self.deployment.explain().into_iter().filter(|(key, ..)| !said(key));
        let mut keys: Vec<Key> = files.map(|(key, value, by)| Key { key, value, by: by.to_string() }).collect();
        let flags = Source::whole(Origin::Flags).to_string();
        keys.extend(
            words.into_iter().filter_map(|(key, word)| Some(Key { key, value: word.clone()?, by: flags.clone() })),
        );
        keys
    }
}

fn push_keys(out: &mut String, keys: &Keys<'_>) {
    push(out, "decided by:");
    for Key { key, value, by } in keys.list() {
        push(out, &format!("  {key:<16} {value}  ({by})"));
    }
    for note in &keys.deployment.overridden {
        push(out, &format!("note: {note}"));
    }
}

fn render_answer(
    answer: &Answer,
    mode: SandboxMode,
    operation: Operation,
    form: Form,
    keys: &Keys<'_>,
    unmet: Option<&SandboxError>,
) -> String {
    let operation = operation_name(operation);
    if form == Form::Json {
        let answer = PathAnswer {
            mode,
            operation,
            ruling: answer.ruling,
            backend: answer.backend,
            resolved: pinfold_policy::quote::readable(&answer.resolved),
            rule: &answer.rule,
            layers: &answer.layers,
            configuration: keys.list(),
            unmet: unmet.map(ToString::to_string),
        };
        return one_line(&answer) + "\n";
    }
    let ruling = match answer.ruling {
        Ruling::Allowed => "allowed",
        Ruling::Denied => "refused",
        Ruling::NotGoverned => "not governed",
    };
    let path = quote_if_needed(&answer.resolved);
    let mut out = format!("{ruling}: {operation} {path} under {mode} (backend {})\n", answer.backend.provider_name());
    push(&mut out, &format!("  rule: {}", answer.rule));
    if !answer.layers.is_empty() {
        let layers = answer.layers.iter().map(|layer| layer.as_str()).collect::<Vec<_>>().join(", ");
        push(&mut out, &format!("  by: {layers}"));
    }
    match answer.ruling {
        Ruling::Allowed => push(&mut out, "  the host's own permissions still apply"),
        Ruling::NotGoverned => push(&mut out, "  no wall looks at this; only the host's own permissions apply"),
        Ruling::Denied => {}
    }
    push(&mut out, &format!("  mode decided by: {}", keys.deployment.mode.by));
    push_unmet(&mut out, unmet);
    out
}

/// What a mode means for one policy; its JSON form is this object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ModeAnswer<'a> {
    mode: SandboxMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<&'a EnforcementReport>,
    configuration: Vec<Key>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unmet: Option<String>,
}

fn push_unmet(out: &mut String, unmet: Option<&SandboxError>) {
    if let Some(unmet) = unmet {
        push(out, &format!("note: `run` would refuse this: {unmet}"));
    }
}

fn explain_mode(
    provider: &LocalProvider,
    policy: SandboxPolicy,
    call: CallOptions,
    form: Form,
    keys: &Keys<'_>,
) -> Result<String, SandboxError> {
    // A plan for a command that is never started states what holds for this very policy.
    let plan = |call: &CallOptions| provider.confine(&["true".into()], &policy, call, &Cancel::new());
    let (confinement, unmet) = or_unmet(call, plan)?;
    let report = &confinement.report;
    if form == Form::Json {
        return Ok(one_line(&ModeAnswer {
            mode: policy.mode.into(),
            report: Some(report),
            configuration: keys.list(),
            unmet: unmet.as_ref().map(ToString::to_string),
        }) + "\n");
    }
    let mut out = render_mode(report);
    push_keys(&mut out, keys);
    push_unmet(&mut out, unmet.as_ref());
    Ok(out)
}

fn render_mode(report: &EnforcementReport) -> String {
    let facts = report.facts();
    let enforcement = report.enforcement().map_or("none", |enforcement| enforcement.as_str());
    let mut out = format!("{} by {} (enforcement: {enforcement})\n", report.mode(), report.backend());
    push(&mut out, "may write:");
    for root in &facts.writable_roots {
        push(&mut out, &format!("  {} and everything below it", quote_if_needed(root)));
    }
    match &facts.temp {
        TempView::PrivateTmpfs { paths } => {
            let places = paths.iter().map(quote_if_needed).collect::<Vec<_>>().join(", ");
            push(&mut out, &format!("  a temp area of its own at {places}, gone after the call"));
        }
        TempView::SessionDirectories { places } => {
            let places = places.iter().map(|place| quote_if_needed(&place.at)).collect::<Vec<_>>().join(", ");
            push(&mut out, &format!("  the session's temp area at {places}, which its other calls share"));
        }
        TempView::PrivateDirectory { path } => {
            push(&mut out, &format!("  a temp directory of its own, {}", quote_if_needed(path)));
        }
        TempView::None => {}
    }
    push(&mut out, "  sinks such as /dev/null");
    push(&mut out, "may not write: anything else");
    push(&mut out, "promises:");
    for line in report.guarantees() {
        let kept = match line.strength {
            Strength::Enforced => line.guarantee.describe(),
            Strength::Partial => "kept in part:",
            Strength::None => "NOT kept:",
            Strength::NotAsked => "not asked for:",
        };
        let shown = line.guarantee == Guarantee::ReadDeny || line.strength != Strength::Enforced;
        let told = if shown { &line.notes.join(" ") } else { "" };
        push(&mut out, &format!("  {:<19} {kept} {told}", line.guarantee.as_str()));
    }
    for note in &facts.notes {
        push(&mut out, &format!("note: {note}"));
    }
    out
}

fn render_unconfined(policy: &ExecutionPolicy, form: Form, keys: &Keys<'_>) -> String {
    if form == Form::Json {
        let answer = ModeAnswer { mode: policy.mode, report: None, configuration: keys.list(), unmet: None };
        return one_line(&answer) + "\n";
    }
    let mut out = format!("{}: nothing is confined; the command can do whatever you can do\n", policy.mode);
    push_keys(&mut out, keys);
    out
}

fn push(out: &mut String, line: &str) {
    let _ = writeln!(out, "{}", line.trim_end()); // writing to a String cannot fail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_spelled_as_in_json() {
        for (name, operation) in OPERATIONS {
            assert_eq!(serde_json::to_value(operation).unwrap(), name);
        }
    }

    #[test]
    fn an_unknown_operation_is_refused_with_the_list() {
        let error = super::operation("chmod").unwrap_err().to_string();
        assert!(error.ends_with("expected one of: write, create, remove, rename, change-metadata, read, connect"));
    }
}
