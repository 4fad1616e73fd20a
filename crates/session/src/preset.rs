//! The table of permission presets: a mode, an approval policy and what goes with them, under one name. Which one a
//! session has is derived from what holds, not remembered.

use crate::config::{Deployment, Origin, PresetDefinition};
use crate::error::SessionError;
use pinfold_policy::SandboxMode;
use pinfold_policy::escalation::ApprovalPolicy;

/// The name that stands for a state that no preset describes (U549).
pub const CUSTOM: &str = "custom";

/// The rows that exist without any configuration (U548, U631).
pub(crate) fn built_in() -> Vec<PresetDefinition> {
    use SandboxMode::{DangerFullAccess, ReadOnly, WorkspaceWrite};
    let row = |mode: SandboxMode, approval, label: &str, description: &str| PresetDefinition {
        name: mode.as_str().to_owned(),
        label: label.to_owned(),
        description: description.to_owned(),
        mode,
        approval,
        writable: Vec::new(),
        network: None,
        denied_reads: Vec::new(),
        protect: Vec::new(),
        variables: None,
    };
    vec![
        row(ReadOnly, ApprovalPolicy::Ask, "Read only", "Nothing is written unless somebody allows it."),
        row(WorkspaceWrite, ApprovalPolicy::Ask, "Workspace", "The workspace may be written; more is asked for."),
        row(DangerFullAccess, ApprovalPolicy::Never, "Full access", "Nothing is confined and nobody is asked."),
    ]
}

/// What a session has of a preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knobs {
    /// The mode in force.
    pub mode: SandboxMode,
    /// The approval policy in force.
    pub approval: ApprovalPolicy,
}

impl Knobs {
    fn fit(self, row: &PresetDefinition) -> bool {
        self.mode == row.mode && self.approval == row.approval
    }
}

/// Returns the name of what holds: the last selected preset if it still fits, else the first row that fits, else
/// `custom`.
pub fn current<'a>(deployment: &'a Deployment, selected: Option<&str>, knobs: Knobs) -> &'a str {
    let rows = || deployment.presets.iter().map(|row| &row.value);
    let still = rows().find(|row| Some(row.name.as_str()) == selected).filter(|row| knobs.fit(row));
    // A row that opens or closes more than the two knobs cannot be told from them alone; it must have been selected.
    let plain = |row: &&PresetDefinition| {
        row.writable.is_empty()
            && row.network.is_none()
            && row.denied_reads.is_empty()
            && row.protect.is_empty()
            && row.variables.is_none()
    };
    still.or_else(|| rows().filter(plain).find(|row| knobs.fit(row))).map_or(CUSTOM, |row| row.name.as_str())
}

/// Finds a row by its name.
///
/// # Errors
///
/// `PRESET_UNKNOWN`, with the names that exist.
pub fn find<'a>(deployment: &'a Deployment, name: &str) -> Result<&'a PresetDefinition, SessionError> {
    let rows = || deployment.presets.iter().map(|row| &row.value);
    rows().find(|row| row.name == name).ok_or_else(|| SessionError::PresetUnknown {
        at: None,
        name: name.to_owned(),
        known: rows().map(|row| row.name.clone()).collect(),
    })
}

/// Lists the names to choose from, and `custom` last exactly while it is what holds.
pub fn options(deployment: &Deployment, current: &str) -> Vec<String> {
    let mut names: Vec<_> = deployment.presets.iter().map(|row| row.value.name.clone()).collect();
    if current == CUSTOM {
        names.push(CUSTOM.to_owned());
    }
    names
}

/// Returns the preset of a new session: the configured one, else the one that fits what is configured, else none.
///
/// # Errors
///
/// `PRESET_UNKNOWN` for a configured name that is not in the table (U557).
pub fn initial(deployment: &Deployment) -> Result<Option<&PresetDefinition>, SessionError> {
    if let Some(name) = &deployment.default_preset {
        // What stands in a file is told with its line.
        let known = |error| match error {
            SessionError::PresetUnknown { name: unknown, known, .. } if name.by.origin != Origin::BuiltIn => {
                SessionError::PresetUnknown { at: Some(Box::new(name.by.clone())), name: unknown, known }
            }
            error => error,
        };
        return find(deployment, &name.value).map(Some).map_err(known);
    }
    let knobs = Knobs { mode: deployment.mode.value, approval: deployment.approval.value };
    Ok(find(deployment, current(deployment, None, knobs)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use SandboxMode::{DangerFullAccess, ReadOnly, WorkspaceWrite};

    fn knobs(mode: SandboxMode, approval: ApprovalPolicy) -> Knobs {
        Knobs { mode, approval }
    }

    // U548, U631: three rows, each with a label and a sentence.
    #[test]
    fn the_table_has_a_row_for_each_mode() {
        let rows: Vec<_> = built_in().into_iter().map(|row| (row.name, row.mode, row.approval)).collect();
        let row = |mode: SandboxMode, approval| (mode.to_string(), mode, approval);
        let ask = ApprovalPolicy::Ask;
        assert_eq!(rows, [row(ReadOnly, ask), row(WorkspaceWrite, ask), row(DangerFullAccess, ApprovalPolicy::Never)]);
        assert!(built_in().iter().all(|row| !row.label.is_empty() && row.description.ends_with('.')));
    }

    // U552, U558
    #[test]
    fn what_holds_is_the_selected_row_if_it_fits_else_the_first_that_fits_else_custom() {
        let mut deployment = Deployment::default();
        let ask = knobs(ReadOnly, ApprovalPolicy::Ask);
        let mut twin = deployment.presets[0].clone();
        twin.value.name = "twin".to_owned();
        deployment.presets.push(twin);
        assert_eq!(current(&deployment, None, ask), "read-only");
        assert_eq!(current(&deployment, Some("twin"), ask), "twin");
        assert_eq!(current(&deployment, Some("twin"), knobs(WorkspaceWrite, ApprovalPolicy::Ask)), "workspace-write");
        assert_eq!(current(&deployment, Some("gone"), ask), "read-only");
        let drifted = current(&deployment, Some("twin"), knobs(DangerFullAccess, ApprovalPolicy::Ask));
        assert_eq!(drifted, CUSTOM);
        assert_eq!(options(&deployment, drifted).last().unwrap(), CUSTOM);
        assert!(!options(&deployment, "twin").contains(&CUSTOM.to_owned()));
    }

    // U554, U557
    #[test]
    fn a_name_that_is_not_in_the_table_is_refused_with_those_that_are() {
        let mut deployment = Deployment::default();
        let error = find(&deployment, "auto").unwrap_err();
        assert_eq!(
            error.to_string(),
            "permission: unknown preset \"auto\" (known: read-only, workspace-write, danger-full-access)"
        );
        let by = deployment.mode.by.clone();
        deployment.default_preset = Some(crate::config::Decided { value: "auto".to_owned(), by });
        assert!(initial(&deployment).is_err());
        deployment.default_preset = None;
        assert_eq!(initial(&deployment).unwrap().unwrap().name, "read-only");
        deployment.approval.value = ApprovalPolicy::AllowListed;
        assert_eq!(initial(&deployment).unwrap(), None);
    }
}
