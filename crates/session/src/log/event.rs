//! What happens in a session, and how it stands in a log.
//!
//! One event is one line of JSON:
//! `{"sum":HEX,"v":1,"seq":N,"at":MS,"type":TYPE,"data":{…}}`. `sum` is the SHA-256 of the sum before and of everything
//! behind its own comma. `at` is in milliseconds of Unix time. A reader keeps and ignores a `type` that it does not know,
//! and refuses a `v` that it does not know: whatever must be understood gets a new version.

use crate::asker::Asker;
use crate::digest::Digest;
use crate::grant::{GrantId, Life, Scope};
use pinfold_policy::escalation::{ApprovalOutcome, ApprovalPolicy, Subject};
use pinfold_policy::{Enforcement, Outcome, SandboxMode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The version of the log.
pub const LOG_VERSION: u32 = 1;

/// Who changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A person, or the program that holds the session in a person's name.
    User,
    /// The session that this one was made by, when it was made.
    Delegation,
    /// The selection of a preset.
    Preset,
    /// A rule of the configuration.
    Rule,
    /// The approval policy of the session.
    Policy,
    /// Nobody: time passed, or nobody could be asked.
    Nobody,
}

/// The first event of every log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Created {
    /// The session's name.
    pub id: String,
    /// Its working directory, which is its workspace for good.
    pub cwd: String,
    /// The project's configuration file, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
}

/// A question, as whoever answers it sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Asked {
    /// Identifies the question in this log.
    pub id: String,
    /// Which tool asks; never empty.
    pub tool_name: String,
    /// That tool's own name of its call, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Why, as the log and whoever answers receive it.
    pub reason: String,
    /// What is to be retried.
    pub subject: Subject,
    /// The command, word by word; bytes that are not UTF-8 appear as `\xHH`.
    pub argv: Vec<String>,
    /// How many bytes of what would be done stand there by their digest alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unseen_bytes: u64,
    /// Where it would run, the same.
    pub cwd: String,
    /// The program that would be started, of a command that has not begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<AskedProgram>,
    /// The mode in force.
    pub mode: SandboxMode,
    /// What was refused before, as far as it is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<String>,
    /// What can be allowed, the narrowest first.
    pub offers: Vec<Offer>,
    /// The digest of the whole call, to which a grant is bound.
    pub digest: Digest,
    /// When the question is closed without an answer, in milliseconds of Unix time.
    pub until: u64,
    /// The process that waits for the answer; without one, the question was left for later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asker: Option<Asker>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Asked {
    /// Says whether whoever asked has ended: then an answer is for nobody.
    pub fn is_orphaned(&self) -> bool {
        self.asker.is_some_and(|asker| asker.is_gone())
    }
}

/// The program that a command would start, as it was found before the question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AskedProgram {
    /// Its path; bytes that are not UTF-8 appear as `\xHH`.
    pub path: String,
    /// Whether confined commands can write it, or a link that leads to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writable: bool,
    /// Directories that the call's PATH lacks because confined commands can write them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// One thing that can be allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Offer {
    /// What.
    pub scope: Scope,
    /// For how long.
    pub life: Life,
}

/// How a question was answered, as the log has it: an outcome, and of a yes also for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Yes, for the one call.
    AllowedOnce,
    /// Yes, for the rest of the session.
    AllowedForSession,
    /// No.
    Rejected,
    /// The question was withdrawn.
    Cancelled,
    /// Nobody could be asked.
    Unavailable,
}

impl Decision {
    /// A yes for so long.
    pub(crate) fn allowed(life: Life) -> Self {
        match life {
            Life::Call => Self::AllowedOnce,
            Life::Session => Self::AllowedForSession,
        }
    }

    /// Returns for how long something is allowed, if it is.
    pub fn life(self) -> Option<Life> {
        match self {
            Self::AllowedOnce => Some(Life::Call),
            Self::AllowedForSession => Some(Life::Session),
            Self::Rejected | Self::Cancelled | Self::Unavailable => None,
        }
    }

    /// Returns the outcome of the request (U563): a yes for the session is one for this call, too.
    pub fn outcome(self) -> ApprovalOutcome {
        match self {
            Self::AllowedOnce | Self::AllowedForSession => ApprovalOutcome::AllowedOnce,
            Self::Rejected => ApprovalOutcome::Rejected,
            Self::Cancelled => ApprovalOutcome::Cancelled,
            Self::Unavailable => ApprovalOutcome::Unavailable,
        }
    }
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Answered {
    /// The question.
    pub id: String,
    /// The answer.
    pub outcome: Decision,
    /// Whose it is.
    pub by: By,
}

/// A permission, from the moment it is given until it is used, revoked, or out of date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Given {
    /// Identifies it in this log.
    pub id: GrantId,
    /// What it allows.
    pub scope: Scope,
    /// For how long.
    pub life: Life,
    /// The call it is for, if it is for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// When it ends, in milliseconds of Unix time, if it does by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// The question it answers; without one, a person gave it unasked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// The process that asked and waited: nobody else may use it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asker: Option<Asker>,
    /// Whose it is.
    pub by: By,
}

/// A call that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Began {
    /// Identifies the call in this log.
    pub id: String,
    /// The digest of the argv.
    pub argv: Digest,
    /// The digest of policy and restrictions.
    pub policy: Digest,
    /// The mode in force.
    pub mode: SandboxMode,
    /// The directories that are open beside it: grants that hold for the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<GrantId>,
    /// The grant it uses up, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantId>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finished {
    /// The call.
    pub id: String,
    /// What was enforced, in one word, if it came that far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
    /// The outcome without its report: it is in full where the caller asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The code of the error, if there is no outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

macro_rules! events {
    ($( $(#[$meta:meta])* $variant:ident($data:ty) => $kind:literal, )+) => {
        /// Holds one event.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Event {
            $( $(#[$meta])* $variant($data), )+
            /// One that a newer Pinfold wrote and that changes nothing for us.
            Unknown {
                /// Its type.
                kind: String,
                /// What it says, as it stands.
                data: String,
            },
        }

        impl Event {
            /// Returns the event's type, as it stands in the log.
            pub fn kind(&self) -> &str {
                match self {
                    $( Self::$variant(_) => $kind, )+
                    Self::Unknown { kind, .. } => kind,
                }
            }

            /// Returns what the event says, as JSON.
            pub fn value(&self) -> serde_json::Value {
                self.data().ok().and_then(|data| serde_json::from_str(data.get()).ok()).unwrap_or_default()
            }

            pub(crate) fn data(&self) -> serde_json::Result<Box<RawValue>> {
                match self {
                    $( Self::$variant(data) => serde_json::value::to_raw_value(data), )+
                    Self::Unknown { data, .. } => RawValue::from_string(data.clone()),
                }
            }

            fn read(kind: &str, data: &RawValue) -> Result<Self, String> {
                let text = data.get();
                Ok(match kind {
                    $( $kind => Self::$variant(serde_json::from_str(text).map_err(|error| format!("{kind}: {error}"))?), )+
                    _ => Self::Unknown { kind: kind.to_owned(), data: text.to_owned() },
                })
            }
        }
    };
}

events! {
    /// The session exists.
    Created(Created) => "session/created",
    /// The session takes no more calls.
    Ended(Nothing) => "session/ended",
    /// Another mode is in force.
    Mode(ModeSet) => "sandbox/mode",
    /// Another approval policy is in force.
    Approval(ApprovalSet) => "approval/policy",
    /// A preset was selected.
    Preset(PresetSet) => "permission/preset",
    /// Somebody is asked.
    Asked(Asked) => "approval/asked",
    /// There is an answer.
    Answered(Answered) => "approval/decided",
    /// A permission is given.
    Given(Given) => "grant/given",
    /// A permission is used up.
    Used(GrantNamed) => "grant/used",
    /// A permission is taken back.
    Revoked(GrantNamed) => "grant/revoked",
    /// A command is about to be started.
    Began(Began) => "call/began",
    /// A command has ended.
    Finished(Finished) => "call/ended",
    /// The model was told this policy.
    Told(Told) => "policy/told",
}

/// An event that says no more than its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// `{mode, source?}`; the source is left out where a person chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeSet {
    /// The mode in force from here on.
    pub mode: SandboxMode,
    /// Who chose it, if no person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<By>,
}

/// `{policy}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalSet {
    /// The approval policy in force from here on.
    pub policy: ApprovalPolicy,
}

/// `{preset}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetSet {
    /// The name of the row.
    pub preset: String,
}

/// `{id, call?}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantNamed {
    /// The grant.
    pub id: GrantId,
}

/// `{digest}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// The digest of the text.
    pub digest: Digest,
}

impl Event {
    /// Says whether the event is on the disk before whoever wrote it goes on. The record of a call is not waited for: it
    /// survives the end of every process, but not of the host.
    pub(crate) fn is_promised(&self) -> bool {
        !matches!(self, Self::Began(_) | Self::Finished(_) | Self::Told(_))
    }
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its number, from 0.
    pub seq: u64,
    /// When it was written, in milliseconds of Unix time.
    pub at: u64,
    /// What happened.
    pub event: Event,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    v: u32,
    seq: u64,
    at: u64,
    #[serde(rename = "type")]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    data: std::borrow::Cow<'a, RawValue>,
}

const BEFORE_SUM: &[u8] = b"{\"sum\":\"";
const AFTER_SUM: &[u8] = b"\",";

/// What one line holds.
pub(crate) enum Line {
    Record(Box<Record>, Digest),
    Newer(u32),
    /// It is not what was written.
    Bad(String),
}

/// Reads a line without its end; `before` is the sum of the line above.
pub(crate) fn read_line(line: &[u8], before: Digest, seq: u64) -> Line {
    let bad = |why: &str| Line::Bad(why.to_owned());
    let Some((sum, rest)) = line.strip_prefix(BEFORE_SUM).and_then(|rest| rest.split_at_checked(64)) else {
        return bad("not a line of a log");
    };
    let Some(rest) = rest.strip_prefix(AFTER_SUM) else { return bad("not a line of a log") };
    let expected = before.chain(rest);
    if sum != expected.to_hex() {
        return bad("the line is not the one that was written, or one before it is missing");
    }
    // What follows is as it was written, so it is what some Pinfold wrote.
    let mut json = Vec::with_capacity(rest.len() + 1);
    json.push(b'{');
    json.extend_from_slice(rest);
    let envelope: Envelope<'_> = match serde_json::from_slice(&json) {
        Ok(envelope) => envelope,
        Err(error) => {
            return match serde_json::from_slice::<Version>(&json) {
                Ok(version) if version.v > LOG_VERSION => Line::Newer(version.v),
                _ => Line::Bad(error.to_string()),
            };
        }
    };
    if envelope.v != LOG_VERSION {
        return Line::Newer(envelope.v);
    }
    if envelope.seq != seq {
        return Line::Bad(format!("event {} stands where event {seq} is expected", envelope.seq));
    }
    match Event::read(&envelope.kind, &envelope.data) {
        Ok(event) => Line::Record(Box::new(Record { seq, at: envelope.at, event }), expected),
        Err(why) => Line::Bad(why),
    }
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// Writes a line with its end, and returns its sum.
pub(crate) fn write_line(record: &Record, before: Digest, out: &mut Vec<u8>) -> serde_json::Result<Digest> {
    let data = record.event.data()?;
    let envelope = Envelope {
        v: LOG_VERSION,
        seq: record.seq,
        at: record.at,
        kind: record.event.kind().into(),
        data: std::borrow::Cow::Owned(data),
    };
    let json = serde_json::to_vec(&envelope)?;
    let rest = json.get(1..).unwrap_or_default();
    let sum = before.chain(rest);
    out.extend_from_slice(BEFORE_SUM);
    out.extend_from_slice(&sum.to_hex());
    out.extend_from_slice(AFTER_SUM);
    out.extend_from_slice(rest);
    out.push(b'\n');
    Ok(sum)
}
