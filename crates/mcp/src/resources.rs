//! What a client may read beside the tools: the text about the policy, the latest report, the log.

use crate::core::{Core, locked};
use crate::tools::reply::Refusal;
use pinfold_session::Log;
use rmcp::model::{Resource, ResourceContents};
use serde_json::json;

/// The address of the policy's text.
pub(crate) const POLICY: &str = "pinfold://policy";
/// The address of the report.
pub(crate) const REPORT: &str = "pinfold://report";
/// The address of the log.
pub(crate) const LOG: &str = "pinfold://log";

/// So much of the end of a log is shown, in bytes.
const MOST_LOG: usize = 1 << 20;

/// Lists them.
pub(crate) fn list() -> Vec<Resource> {
    let resource = |address: &str, name: &str, kind: &str, description: &str| {
        Resource::new(address, name).with_description(description).with_mime_type(kind)
    };
    vec![
        resource(POLICY, "policy", "text/plain", "What commands and file tools may do now, as the model is told."),
        resource(
            REPORT,
            "report",
            "application/json",
            "The outcome of the latest command, with what was enforced by which mechanism and what was refused.",
        ),
        resource(
            LOG,
            "log",
            "application/jsonl",
            "The session's events, one line of JSON each; the latest part of a long log.",
        ),
    ]
}

/// Reads one; nothing for an address that is none. It blocks.
pub(crate) fn read(core: &Core, address: &str) -> Option<Result<ResourceContents, Refusal>> {
    let text = match address {
        POLICY => core.policy_text().map_err(Refusal::from),
        REPORT => Ok(report(core)),
        LOG => log(core),
        _ => return None,
    };
    let kind = match address {
        POLICY => "text/plain",
        REPORT => "application/json",
        _ => "application/jsonl",
    };
    Some(text.map(|text| ResourceContents::TextResourceContents {
        uri: address.to_owned(),
        mime_type: Some(kind.to_owned()),
        text,
        meta: None,
    }))
}

fn report(core: &Core) -> String {
    let latest = locked(&core.latest).clone();
    let session = core.session.id().as_str();
    let mode = core.mode().ok();
    let told = json!({"session": session, "mode": mode, "latest": latest.as_deref()});
    told.to_string()
}

fn log(core: &Core) -> Result<String, Refusal> {
    let mut lines = std::collections::VecDeque::new();
    let mut bytes = 0;
    Log::read_all(&core.directory, |record| {
        let line = json!({
            "seq": record.seq,
            "at": record.at,
            "type": record.event.kind(),
            "data": record.event.value(),
        });
        let line = line.to_string() + "\n";
        bytes += line.len();
        lines.push_back(line);
        while bytes > MOST_LOG && lines.len() > 1 {
            bytes -= lines.pop_front().map_or(0, |line| line.len());
        }
    })?;
    Ok(lines.into_iter().collect())
}
