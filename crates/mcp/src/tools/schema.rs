//! What tools are called, what they take and what they say of themselves.

use crate::setup::Settings;
use crate::tools::Name;
use pinfold_policy::SandboxMode;
use pinfold_policy::escalation::ESCALATION_TARGETS;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::sync::Arc;

const FRESH: &str = "Each call runs in a fresh shell: directory, variables and functions do not last. Use workdir in place of \
cd, and absolute paths for everything outside of the workspace.";
const PERSISTENT: &str = "Calls run in one shell that stays: directory, variables and functions last from call to call, until \
the shell ends or is restarted, which the result says. A call that was allowed more runs in a shell of its own.";
const RESULT: &str = "A status other than 0 is a result and ends in [exit code: n] or [killed by signal: SIG]: look at the last \
line of every result. A line [sandbox: file access denied under … mode] is a refusal by policy, not a fault of the command. Of \
long output the end is kept, and the file that a marker names holds all of it. The command finds variables that begin with \
PINFOLD_, reads nothing from standard input, and no terminal.";
const CARE: &str = "Before something is deleted or moved, make sure what the path names; write ${VAR:?} for a variable that \
must not be empty.";
const ESCALATION: &str = "Try without more first. If a call is denied by the sandbox and is needed, repeat exactly that call \
once in the same turn with sandbox_permissions, the narrowest mode that suffices, and a justification of one sentence; the \
prompt asks the user, so do not ask in the conversation. Never ask ahead of a denial. A rejection is final for that call. If \
prompts are disabled, do not ask at all.";

/// Lists the tools of a session in this mode.
pub(crate) fn tools(mode: SandboxMode, settings: &Settings) -> Vec<Tool> {
    let names =
        Name::ALL.into_iter().filter(|name| has_jobs(settings) || !matches!(name, Name::JobOutput | Name::JobKill));
    names.map(|name| tool(name, mode, settings)).collect()
}

/// Whether there can be background jobs at all.
fn has_jobs(settings: &Settings) -> bool {
    settings.background || settings.promote_on_timeout
}

/// What a tool may be given under any settings.
pub(crate) fn keys(name: Name) -> &'static [&'static str] {
    match name {
        Name::Bash => &[
            "command",
            "description",
            "timeoutMs",
            "workdir",
            "run_in_background",
            "sandbox_permissions",
            "justification",
        ],
        Name::JobOutput => &["job_id", "wait_ms"],
        Name::JobKill => &["job_id"],
        Name::Read => &["file_path", "offset", "limit"],
        Name::Write => &["file_path", "content", "sandbox_permissions", "justification"],
        Name::Edit => &["file_path", "old_string", "new_string", "replace_all", "sandbox_permissions", "justification"],
        Name::List => &["path"],
        Name::Search => &["pattern", "glob", "path", "literal", "ignore_case", "hidden", "no_ignore", "max_results"],
    }
}

/// Describes one tool.
pub(crate) fn tool(name: Name, mode: SandboxMode, settings: &Settings) -> Tool {
    let confines = mode != SandboxMode::DangerFullAccess;
    let (title, description, mut properties, required): (_, String, Value, &[&str]) = match name {
        Name::Bash => bash(confines, settings),
        Name::JobOutput => (
            "Output of a background job",
            "Returns what a background job has written since the last look, and how it stands. Once the job is over, the text \
             ends with what is to be said of it."
                .to_owned(),
            json!({
                "job_id": {"type": "string", "description": "The job, as the start of it said."},
                "wait_ms": {"type": "number", "exclusiveMinimum": 0, "description": "Wait so many milliseconds for its end before looking; at most 60000."},
            }),
            &["job_id"],
        ),
        Name::JobKill => (
            "End a background job",
            "Ends a background job with everything that it started.".to_owned(),
            json!({"job_id": {"type": "string", "description": "The job, as the start of it said."}}),
            &["job_id"],
        ),
        Name::Read => (
            "Read a file",
            "Reads lines of a text file, numbered. Use it in place of cat, head and tail. A file has to be read before it is \
             overwritten or edited."
                .to_owned(),
            json!({
                "file_path": {"type": "string", "description": "The file; a relative path counts from the workspace."},
                "offset": {"type": "integer", "minimum": 1, "description": "The first line, from 1."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 2000, "description": "The most lines."},
            }),
            &["file_path"],
        ),
        Name::Write => (
            "Write a file",
            "Writes a file whole, in place of what it holds; directories are made if need be. Prefer edit for changes.".to_owned(),
            json!({
                "file_path": {"type": "string", "description": "The file; a relative path counts from the workspace."},
                "content": {"type": "string", "description": "Its whole content; may be empty."},
            }),
            &["file_path", "content"],
        ),
        Name::Edit => (
            "Edit a file",
            "Replaces text in a file, literally. The text must occur exactly once, unless replace_all is set.".to_owned(),
            json!({
                "file_path": {"type": "string", "description": "The file; a relative path counts from the workspace."},
                "old_string": {"type": "string", "minLength": 1, "description": "The text to replace."},
                "new_string": {"type": "string", "description": "The text to put there; must differ."},
                "replace_all": {"type": "boolean", "default": false, "description": "Replace every place."},
            }),
            &["file_path", "old_string", "new_string"],
        ),
        Name::List => (
            "List a directory",
            "Lists the names in a directory: a directory ends in /, a link in @.".to_owned(),
            json!({"path": {"type": "string", "description": "The directory; the workspace if none is given."}}),
            &[],
        ),
        Name::Search => (
            "Search files",
            "Finds lines by a regular expression, or files by a pattern of their paths, below a directory. What .gitignore \
             leaves out is left out. Use it in place of grep and find."
                .to_owned(),
            json!({
                "pattern": {"type": "string", "minLength": 1, "description": "A regular expression for lines. Without it, paths are listed."},
                "glob": {"type": "string", "minLength": 1, "description": "Only paths that match, relative to the directory, such as **/*.rs."},
                "path": {"type": "string", "description": "A directory or file; the workspace if none is given."},
                "literal": {"type": "boolean", "default": false, "description": "The pattern is plain text."},
                "ignore_case": {"type": "boolean", "default": false, "description": "Upper and lower case are one."},
                "hidden": {"type": "boolean", "default": false, "description": "Look at names that begin with a dot."},
                "no_ignore": {"type": "boolean", "default": false, "description": "Look at what .gitignore leaves out."},
                "max_results": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 200, "description": "The most results."},
            }),
            &[],
        ),
    };
    let mut description = description;
    if confines && let Some(subject) = subject(name) {
        if name != Name::Bash {
            description = format!("{description} {ESCALATION}");
        }
        properties["sandbox_permissions"] = json!({
            "type": "string",
            "enum": ESCALATION_TARGETS.map(SandboxMode::as_str),
            "description": format!(
                "Only to repeat this exact {subject} after the sandbox denied it: the narrowest wider mode that suffices. The user is asked."
            ),
        });
        properties["justification"] = json!({
            "type": "string",
            "description": "Only together with sandbox_permissions: one sentence that tells the user why, in the language of their request.",
        });
    }
    let input = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let mut tool = Tool::new(name.as_str(), description, object(input)).with_title(title);
    tool.output_schema = output(name).map(object);
    tool.with_annotations(annotations(name, title))
}

/// What a repeated call is called, for tools that can ask for more.
fn subject(name: Name) -> Option<&'static str> {
    match name {
        Name::Bash => Some("command"),
        Name::Write | Name::Edit => Some("operation"),
        _ => None,
    }
}

fn bash(confines: bool, settings: &Settings) -> (&'static str, String, Value, &'static [&'static str]) {
    let mut parts =
        vec!["Runs a command with bash.", if settings.persistent_shell { PERSISTENT } else { FRESH }, RESULT];
    let mut properties = json!({
        "description": {"type": "string", "minLength": 1, "description": "What the command does, in a few words."},
        "command": {"type": "string", "minLength": 1, "description": "The text for bash."},
        "timeoutMs": {"type": "number", "exclusiveMinimum": 0, "description": "How long it may take, in milliseconds; 120000 if not given, at most 600000."},
    });
    if !settings.persistent_shell {
        properties["workdir"] = json!({"type": "string", "description": "Where it runs; a relative path counts from the workspace, which is the default."});
    }
    let time = match (settings.promote_on_timeout && !settings.persistent_shell, settings.background) {
        (true, _) => {
            "A command whose time is up goes on as a background job, which job_output reads and job_kill ends."
        }
        (false, _) => "A command whose time is up is ended.",
    };
    parts.push(time);
    if settings.background {
        parts.push(
            "With run_in_background the call returns at once with the name of a job; use it for servers and long builds, and \
             not for what is needed at once.",
        );
        properties["run_in_background"] =
            json!({"type": "boolean", "default": false, "description": "Start it and return at once."});
    }
    parts.push(CARE);
    if confines {
        parts.push(ESCALATION);
    }
    ("Run a command", parts.join(" "), properties, &["command", "description"])
}

fn annotations(name: Name, title: &str) -> ToolAnnotations {
    let base = ToolAnnotations::with_title(title).open_world(false);
    match name {
        Name::Bash => base.read_only(false).destructive(true).open_world(true),
        Name::JobOutput | Name::Read | Name::List | Name::Search => base.read_only(true),
        Name::JobKill => base.read_only(false).destructive(true).idempotent(true),
        Name::Write | Name::Edit => base.read_only(false).destructive(true).idempotent(false),
    }
}

/// The object beside the text, for tools that run commands. A refusal has this form too.
fn output(name: Name) -> Option<Value> {
    let refusal = json!({
        "code": {"type": "string", "description": "Why nothing was done."},
        "message": {"type": "string"},
    });
    let (kinds, mut properties) = match name {
        Name::Bash => {
            let stream = json!({
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "truncated": {"type": "boolean"},
                    "totalBytes": {"type": "integer"},
                    "spillPath": {"type": "string"},
                },
                "required": ["text"],
            });
            let properties = json!({
                "exitCode": {"type": ["integer", "null"]},
                "signal": {"type": ["string", "null"]},
                "timedOut": {"type": "boolean"},
                "aborted": {"type": "boolean"},
                "timeoutMs": {"type": "integer"},
                "stdout": stream,
                "stderr": stream,
                "sandbox": {"type": "object", "description": "mode, denied, enforcement, runnerFailed, backend"},
                "outcome": {"type": "object", "description": "How the call ended, what was refused on what evidence, and the report."},
                "jobId": {"type": "string"},
            });
            (json!(["foreground", "background", "promoted", "refused"]), properties)
        }
        Name::JobOutput | Name::JobKill => {
            let properties = json!({
                "jobId": {"type": "string"},
                "status": {"type": "object", "description": "kind: running, completed, killed or failed"},
                "stdout": {"type": "string"},
                "stderr": {"type": "string"},
                "lossy": {"type": "boolean"},
                "sandbox": {"type": "object"},
                "outcome": {"type": "object"},
            });
            (json!(["job", "refused"]), properties)
        }
        _ => return None,
    };
    properties["kind"] = json!({"type": "string", "enum": kinds});
    for (field, schema) in refusal.as_object().into_iter().flatten() {
        properties[field] = schema.clone();
    }
    Some(json!({"type": "object", "properties": properties, "required": ["kind"]}))
}

fn object(value: Value) -> Arc<JsonObject> {
    Arc::new(value.as_object().cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: Name, mode: SandboxMode) -> Vec<String> {
        let tool = tool(name, mode, &Settings::default());
        tool.input_schema["properties"].as_object().unwrap().keys().cloned().collect()
    }

    // U358–U360, U517: the fields are there exactly where something confines.
    #[test]
    fn escalation_is_advertised_exactly_where_something_confines() {
        for name in Name::ALL {
            for mode in [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite, SandboxMode::DangerFullAccess] {
                let has = |field: &str| fields(name, mode).contains(&field.to_owned());
                let expected = mode != SandboxMode::DangerFullAccess && subject(name).is_some();
                assert_eq!((has("sandbox_permissions"), has("justification")), (expected, expected), "{name:?} {mode}");
            }
        }
        let bash = tool(Name::Bash, SandboxMode::ReadOnly, &Settings::default());
        assert_eq!(
            bash.input_schema["properties"]["sandbox_permissions"]["enum"],
            json!(["workspace-write", "danger-full-access"])
        );
        assert_eq!(bash.input_schema["required"], json!(["command", "description"]));
        assert!(fields(Name::Bash, SandboxMode::DangerFullAccess).contains(&"run_in_background".to_owned()));
    }

    #[test]
    fn the_keys_of_a_tool_are_those_of_its_schema() {
        for name in Name::ALL {
            let mut known = keys(name).to_vec();
            known.sort_unstable();
            let mut fields = fields(name, SandboxMode::ReadOnly);
            fields.sort_unstable();
            assert_eq!(fields, known, "{name:?}");
        }
    }

    // U359
    #[test]
    fn what_is_switched_off_is_not_spoken_of() {
        let settings = Settings { background: false, promote_on_timeout: false, ..Settings::default() };
        let tools = tools(SandboxMode::ReadOnly, &settings);
        assert!(tools.iter().all(|tool| !tool.name.starts_with("job_")));
        let bash = serde_json::to_string(&tools[0]).unwrap();
        assert!(!bash.contains("run_in_background") && !bash.contains("job_"), "{bash}");
    }

    /// Whatever schema a tool has, it is one of an object, as the protocol asks, and takes nothing else.
    #[test]
    fn every_schema_is_of_an_object() {
        for tool in tools(SandboxMode::ReadOnly, &Settings::default()) {
            assert_eq!(tool.input_schema["type"], "object");
            assert_eq!(tool.input_schema["additionalProperties"], false);
            for name in tool.input_schema["required"].as_array().unwrap() {
                assert!(tool.input_schema["properties"].get(name.as_str().unwrap()).is_some());
            }
            if let Some(output) = &tool.output_schema {
                assert_eq!(output["type"], "object");
            }
            assert!(tool.description.is_some_and(|text| text.len() > 20));
        }
    }
}
