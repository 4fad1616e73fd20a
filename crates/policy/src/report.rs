//! What was enforced for one call, promise by promise. The roll-up `full|partial` is computed here from the
//! promises and can be set by nobody, also not through JSON.

use crate::argv::Enforcement;
use crate::guarantee::{Guarantee, GuaranteeReport, Strength};
use crate::limits::Bound;
use crate::mode::SandboxMode;
use crate::wire::escaped;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Describes the temp area that the command finds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum TempView {
    /// Empty file systems of its own cover these absolute paths.
    PrivateTmpfs {
        /// The covered directories.
        #[serde(with = "escaped::paths")]
        paths: Vec<PathBuf>,
    },
    /// A directory of its own on the host's file system.
    PrivateDirectory {
        /// The absolute directory.
        #[serde(with = "escaped::path")]
        path: PathBuf,
    },
    /// Directories of the session on the host's file system, which its calls see at other paths.
    SessionDirectories {
        /// Each with the path at which it is seen.
        places: Vec<TempMount>,
    },
    /// No temp area is writable, or nothing is confined.
    None,
}

/// States where a session's temp directory is seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TempMount {
    /// The absolute path that a command uses.
    #[serde(with = "escaped::path")]
    pub at: PathBuf,
    /// The absolute directory of the host that is there.
    #[serde(with = "escaped::path")]
    pub directory: PathBuf,
}

/// States what a search of the writable roots for hard links to outside files found.
///
/// A file below a writable root that has another name outside can be written through, whatever wall stands
/// at the outer name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HardLinkFindings {
    /// Whether a search took place.
    pub scanned: bool,
    /// Whether it reached the end of every root within its limits.
    pub complete: bool,
    /// Some of the files with more links than names found below the writable roots.
    #[serde(with = "escaped::paths")]
    pub paths: Vec<PathBuf>,
    /// How many such files there are, also beyond those listed.
    pub total: u64,
}

/// Holds everything that a backend states for a report; [`EnforcementReport::new`] draws the conclusion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFacts {
    /// The provider's name, such as `linux_namespace`.
    pub backend: String,
    /// The mode the call ran under.
    pub mode: SandboxMode,
    /// The workspace root as it was enforced.
    pub workspace_root: PathBuf,
    /// Every root opened for writing, without the temp area.
    pub writable_roots: Vec<PathBuf>,
    /// The temp area.
    pub temp: TempView,
    /// The Landlock ABI in force; absent without Landlock.
    pub landlock_abi: Option<u32>,
    /// The promises, in any order.
    pub guarantees: Vec<GuaranteeReport>,
    /// Hard links found below the writable roots.
    pub hard_links: HardLinkFindings,
    /// Bounds on what the command uses up, as they hold.
    pub bounds: Vec<Bound>,
    /// Remarks on the call as a whole, each a sentence.
    pub notes: Vec<String>,
}

/// States what was enforced for one call.
///
/// Its JSON form is camelCase with the roll-up as `enforcement` (absent when nothing is confined). Bytes of paths
/// that are not UTF-8 appear as `\xHH`, so a report always serialises; paths read back are for display.
/// A roll-up that does not follow from the promises beside it is refused when read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WireReport", into = "WireReport")]
pub struct EnforcementReport {
    facts: ReportFacts,
    enforcement: Option<Enforcement>,
}

impl EnforcementReport {
    /// Draws up a report: every promise exactly once and in the order of the list, and the roll-up.
    ///
    /// A promise that is not stated counts as not kept. Of several statements about one promise the weakest
    /// strength counts, and it is verified only if all are. Hard links found under `workspace-write` weaken
    /// `write-via-links` to partial. The roll-up is `full` only if every file effect of the mode
    /// ([`Guarantee::is_file_effect`]) is enforced and verified; it is absent under `danger-full-access`.
    pub fn new(mut facts: ReportFacts) -> Self {
        let stated = std::mem::take(&mut facts.guarantees);
        facts.guarantees = Guarantee::ALL.iter().map(|guarantee| merged(*guarantee, &stated)).collect();
        if facts.mode == SandboxMode::WorkspaceWrite && facts.hard_links.total > 0 {
            weaken_by_hard_links(&mut facts.guarantees, facts.hard_links.total);
        }
        let enforcement = facts.mode.confined().map(|_| {
            let proved = |line: &GuaranteeReport| !line.guarantee.is_file_effect(facts.mode) || line.is_proved();
            if facts.guarantees.iter().all(proved) { Enforcement::Full } else { Enforcement::Partial }
        });
        Self { facts, enforcement }
    }

    /// Returns the roll-up; absent when nothing is confined.
    pub fn enforcement(&self) -> Option<Enforcement> {
        self.enforcement
    }

    /// Returns what the report states, the promises complete and in the order of the list.
    pub fn facts(&self) -> &ReportFacts {
        &self.facts
    }

    /// Returns the provider's name.
    pub fn backend(&self) -> &str {
        &self.facts.backend
    }

    /// Returns the workspace root, resolved.
    pub fn workspace_root(&self) -> &Path {
        &self.facts.workspace_root
    }

    /// Returns the mode the call ran under.
    pub fn mode(&self) -> SandboxMode {
        self.facts.mode
    }

    /// Returns every promise once, in the order of [`Guarantee::ALL`].
    pub fn guarantees(&self) -> &[GuaranteeReport] {
        &self.facts.guarantees
    }

    /// Returns the line of one promise; a report made by [`EnforcementReport::new`] has every line.
    pub fn lookup(&self, guarantee: Guarantee) -> Option<&GuaranteeReport> {
        self.facts.guarantees.iter().find(|line| line.guarantee == guarantee)
    }

    /// Returns how strongly one promise is kept.
    pub fn strength(&self, guarantee: Guarantee) -> Strength {
        self.lookup(guarantee).map_or(Strength::None, |line| line.strength)
    }

    /// Lists those of the required promises that are not kept without exception, each once, in the given order.
    ///
    /// Partial is not enough. Whether a promise was verified is not asked here; see
    /// [`GuaranteeReport::is_proved`].
    pub fn missing(&self, required: &[Guarantee]) -> Vec<Guarantee> {
        let mut missing = Vec::new();
        for guarantee in required {
            if self.strength(*guarantee) != Strength::Enforced && !missing.contains(guarantee) {
                missing.push(*guarantee);
            }
        }
        missing
    }
}

const NOT_STATED: &str = "The backend states nothing about this.";

fn merged(guarantee: Guarantee, stated: &[GuaranteeReport]) -> GuaranteeReport {
    let mut lines = stated.iter().filter(|line| line.guarantee == guarantee);
    let Some(mut merged) = lines.next().cloned() else {
        return GuaranteeReport::new(guarantee, Strength::None, &[], false).with_note(NOT_STATED);
    };
    for line in lines {
        merged.strength = merged.strength.weaker(line.strength);
        merged.verified &= line.verified;
        for layer in &line.layers {
            if !merged.layers.contains(layer) {
                merged.layers.push(*layer);
            }
        }
        for note in &line.notes {
            if !merged.notes.contains(note) {
                merged.notes.push(note.clone());
            }
        }
    }
    merged
}

// SECURITY: without this a workspace prepared with a hard link to a file outside would be reported as `full`
// although the command can write that file.
fn weaken_by_hard_links(lines: &mut [GuaranteeReport], total: u64) {
    for line in lines.iter_mut().filter(|line| line.guarantee == Guarantee::WriteViaLinks) {
        let note =
            format!("{total} hard-linked file(s) below the writable roots have other names that were not found there.");
        line.strength = line.strength.weaker(Strength::Partial);
        if !line.notes.contains(&note) {
            line.notes.push(note);
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WireReport {
    backend: String,
    mode: SandboxMode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enforcement: Option<Enforcement>,
    #[serde(with = "escaped::path")]
    workspace_root: PathBuf,
    #[serde(with = "escaped::paths")]
    writable_roots: Vec<PathBuf>,
    temp: TempView,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    landlock_abi: Option<u32>,
    guarantees: Vec<GuaranteeReport>,
    hard_links: HardLinkFindings,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bounds: Vec<Bound>,
    #[serde(default)]
    notes: Vec<String>,
}

impl From<EnforcementReport> for WireReport {
    fn from(report: EnforcementReport) -> Self {
        let facts = report.facts;
        Self {
            backend: facts.backend,
            mode: facts.mode,
            enforcement: report.enforcement,
            workspace_root: facts.workspace_root,
            writable_roots: facts.writable_roots,
            temp: facts.temp,
            landlock_abi: facts.landlock_abi,
            guarantees: facts.guarantees,
            hard_links: facts.hard_links,
            bounds: facts.bounds,
            notes: facts.notes,
        }
    }
}

impl TryFrom<WireReport> for EnforcementReport {
    type Error = String;

    fn try_from(wire: WireReport) -> Result<Self, Self::Error> {
        let claimed = wire.enforcement;
        let report = Self::new(ReportFacts {
            backend: wire.backend,
            mode: wire.mode,
            workspace_root: wire.workspace_root,
            writable_roots: wire.writable_roots,
            temp: wire.temp,
            landlock_abi: wire.landlock_abi,
            guarantees: wire.guarantees,
            hard_links: wire.hard_links,
            bounds: wire.bounds,
            notes: wire.notes,
        });
        if report.enforcement == claimed {
            return Ok(report);
        }
        let word = |value: Option<Enforcement>| value.map_or("absent", Enforcement::as_str);
        Err(format!("enforcement is {} but follows from the guarantees as {}", word(claimed), word(report.enforcement)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guarantee::Layer;
    use crate::limits::{BoundMeans, BoundScope, Resource};

    fn facts(mode: SandboxMode) -> ReportFacts {
        ReportFacts {
            backend: "linux_namespace".into(),
            mode,
            workspace_root: "/w".into(),
            writable_roots: vec!["/w".into()],
            temp: TempView::PrivateTmpfs { paths: vec!["/tmp".into()] },
            landlock_abi: Some(6),
            guarantees: Guarantee::ALL
                .iter()
                .map(|guarantee| GuaranteeReport::new(*guarantee, Strength::Enforced, &[Layer::MountTree], true))
                .collect(),
            hard_links: HardLinkFindings::default(),
            bounds: vec![],
            notes: vec![],
        }
    }

    fn set(facts: &mut ReportFacts, guarantee: Guarantee, strength: Strength, verified: bool) {
        for line in facts.guarantees.iter_mut().filter(|line| line.guarantee == guarantee) {
            line.strength = strength;
            line.verified = verified;
        }
    }

    #[test]
    fn full_needs_every_file_effect_enforced_and_verified() {
        assert_eq!(EnforcementReport::new(facts(SandboxMode::ReadOnly)).enforcement(), Some(Enforcement::Full));
        for guarantee in Guarantee::ALL {
            for (strength, verified) in [
                (Strength::Enforced, false),
                (Strength::Partial, true),
                (Strength::None, true),
                (Strength::NotAsked, true),
            ] {
                for mode in [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite] {
                    let mut facts = facts(mode);
                    set(&mut facts, *guarantee, strength, verified);
                    let expected =
                        if guarantee.is_file_effect(mode) { Enforcement::Partial } else { Enforcement::Full };
                    assert_eq!(EnforcementReport::new(facts).enforcement(), Some(expected), "{guarantee}");
                }
            }
        }
    }

    #[test]
    fn nothing_confined_has_no_roll_up() {
        assert_eq!(EnforcementReport::new(facts(SandboxMode::DangerFullAccess)).enforcement(), None);
    }

    #[test]
    fn a_promise_that_is_not_stated_is_not_kept() {
        let mut facts = facts(SandboxMode::ReadOnly);
        facts.guarantees.retain(|line| line.guarantee != Guarantee::WriteMetadata);
        facts.guarantees.reverse();
        let report = EnforcementReport::new(facts);
        assert_eq!(report.enforcement(), Some(Enforcement::Partial));
        assert_eq!(report.strength(Guarantee::WriteMetadata), Strength::None);
        let order: Vec<_> = report.guarantees().iter().map(|line| line.guarantee).collect();
        assert_eq!(order, Guarantee::ALL);
    }

    #[test]
    fn of_two_statements_the_weaker_counts() {
        let mut facts = facts(SandboxMode::ReadOnly);
        facts.guarantees.push(
            GuaranteeReport::new(Guarantee::WriteContent, Strength::Partial, &[Layer::Landlock], false).with_note("x"),
        );
        let report = EnforcementReport::new(facts);
        let line = report.lookup(Guarantee::WriteContent).unwrap();
        assert_eq!((line.strength, line.verified), (Strength::Partial, false));
        assert_eq!(line.layers, [Layer::MountTree, Layer::Landlock]);
        assert_eq!(line.notes, ["x"]);
    }

    #[test]
    fn hard_links_to_outside_weaken_workspace_write_only() {
        for (mode, expected) in
            [(SandboxMode::WorkspaceWrite, Enforcement::Partial), (SandboxMode::ReadOnly, Enforcement::Full)]
        {
            let mut facts = facts(mode);
            facts.hard_links = HardLinkFindings { scanned: true, complete: true, paths: vec!["/w/a".into()], total: 2 };
            assert_eq!(EnforcementReport::new(facts).enforcement(), Some(expected));
        }
    }

    #[test]
    fn a_required_promise_must_be_enforced() {
        let mut facts = facts(SandboxMode::ReadOnly);
        set(&mut facts, Guarantee::Network, Strength::Partial, true);
        set(&mut facts, Guarantee::Terminal, Strength::NotAsked, true);
        let report = EnforcementReport::new(facts);
        let required = [Guarantee::Terminal, Guarantee::WriteContent, Guarantee::Network, Guarantee::Terminal];
        assert_eq!(report.missing(&required), [Guarantee::Terminal, Guarantee::Network]);
        assert!(report.missing(&[]).is_empty());
    }

    #[test]
    fn reports_survive_json() {
        for mode in SandboxMode::ALL {
            let mut facts = facts(*mode);
            facts.guarantees.pop();
            facts.hard_links.total = 1;
            facts.notes.push("n".into());
            facts.bounds.push(Bound {
                resource: Resource::CpuTime,
                most: 3,
                scope: BoundScope::Process,
                means: BoundMeans::Rlimit,
            });
            let report = EnforcementReport::new(facts);
            let json = serde_json::to_string(&report).unwrap();
            assert_eq!(serde_json::from_str::<EnforcementReport>(&json).unwrap(), report, "{json}");
        }
    }

    #[test]
    fn a_forged_roll_up_is_refused() {
        let mut facts = facts(SandboxMode::ReadOnly);
        set(&mut facts, Guarantee::WriteContent, Strength::None, true);
        let json = serde_json::to_string(&EnforcementReport::new(facts)).unwrap();
        let forged = json.replace(r#""enforcement":"partial""#, r#""enforcement":"full""#);
        assert_ne!(json, forged);
        let error = serde_json::from_str::<EnforcementReport>(&forged).unwrap_err().to_string();
        assert!(error.contains("enforcement is full but follows from the guarantees as partial"), "{error}");
    }

    #[test]
    fn the_wire_form_is_camel_case() {
        let value = serde_json::to_value(EnforcementReport::new(facts(SandboxMode::ReadOnly))).unwrap();
        let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "backend",
                "enforcement",
                "guarantees",
                "hardLinks",
                "landlockAbi",
                "mode",
                "notes",
                "temp",
                "workspaceRoot",
                "writableRoots"
            ]
        );
        assert_eq!(value["temp"], serde_json::json!({"kind": "private-tmpfs", "paths": ["/tmp"]}));
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_utf8_is_escaped_not_refused() {
        use std::os::unix::ffi::OsStringExt as _;
        let mut facts = facts(SandboxMode::ReadOnly);
        facts.workspace_root = std::ffi::OsString::from_vec(b"/w\xff".to_vec()).into();
        let value = serde_json::to_value(EnforcementReport::new(facts)).unwrap();
        assert_eq!(value["workspaceRoot"], "/w\\xff");
    }
}
