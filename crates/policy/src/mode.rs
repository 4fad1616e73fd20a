//! How much a command may write. Only file effects: the network, visibility of processes and reading are
//! no part of a mode.

use crate::UnknownWord;

closed_words! {
    /// Names how much of the file system a command may change.
    ///
    /// The order of the variants is from narrow to wide.
    pub enum SandboxMode("sandbox mode") {
        /// No file is written but sinks that shells need, such as `/dev/null`.
        ReadOnly => "read-only",
        /// The workspace root, explicit extra roots and the backend's temp area are writable too.
        WorkspaceWrite => "workspace-write",
        /// Nothing is confined: the consumer starts the caller's own argv and asks no provider.
        DangerFullAccess => "danger-full-access",
    }
}

closed_words! {
    /// Names a mode that a provider can be asked to enforce.
    pub enum ConfinedMode("confined sandbox mode") {
        /// See [`SandboxMode::ReadOnly`].
        ReadOnly => "read-only",
        /// See [`SandboxMode::WorkspaceWrite`].
        WorkspaceWrite => "workspace-write",
    }
}

impl SandboxMode {
    /// Returns the same mode as one that a provider enforces, or nothing for `danger-full-access`.
    pub const fn confined(self) -> Option<ConfinedMode> {
        match self {
            Self::ReadOnly => Some(ConfinedMode::ReadOnly),
            Self::WorkspaceWrite => Some(ConfinedMode::WorkspaceWrite),
            Self::DangerFullAccess => None,
        }
    }
}

impl From<ConfinedMode> for SandboxMode {
    fn from(mode: ConfinedMode) -> Self {
        match mode {
            ConfinedMode::ReadOnly => Self::ReadOnly,
            ConfinedMode::WorkspaceWrite => Self::WorkspaceWrite,
        }
    }
}

impl TryFrom<SandboxMode> for ConfinedMode {
    type Error = UnknownWord;

    /// Narrows a mode to the confined ones; `danger-full-access` is refused by name.
    fn try_from(mode: SandboxMode) -> Result<Self, Self::Error> {
        mode.confined().ok_or_else(|| UnknownWord::new("confined sandbox mode", mode.as_str(), Self::WORDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vocabulary_is_closed() {
        for text in ["", "Read-Only", "read_only", "workspace-write ", "full", "none"] {
            let error = text.parse::<SandboxMode>().unwrap_err().to_string();
            assert!(error.ends_with("expected one of: read-only, workspace-write, danger-full-access"), "{error}");
        }
    }

    #[test]
    fn full_access_is_no_confined_mode() {
        let error = ConfinedMode::try_from(SandboxMode::DangerFullAccess).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown confined sandbox mode \"danger-full-access\"; expected one of: read-only, workspace-write"
        );
        assert!("danger-full-access".parse::<ConfinedMode>().is_err());
        assert_eq!(SandboxMode::DangerFullAccess.confined(), None);
    }

    #[test]
    fn a_confined_mode_keeps_its_word_in_both_vocabularies() {
        for mode in ConfinedMode::ALL {
            let wide = SandboxMode::from(*mode);
            assert_eq!(wide.as_str(), mode.as_str());
            assert_eq!(ConfinedMode::try_from(wide), Ok(*mode));
        }
    }
}
