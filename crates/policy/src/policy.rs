//! What one call may touch: a mode with the roots it speaks of. A policy travels with each call and is
//! remembered by nobody here. Resolving, canonicalising and opening roots is done where the files are.

use crate::error::{RootProblem, RootRole, SandboxError};
use crate::mode::{ConfinedMode, SandboxMode};
use crate::wire::strict;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Identifies the session a call belongs to.
///
/// The text is opaque: it is compared and passed on, never parsed. Only backends with state of their own per
/// session (a private temp directory) look at it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    /// Wraps an identity as its owner spells it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the identity as its owner spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// Holds what one call may touch; used through [`ExecutionPolicy`] and [`SandboxPolicy`].
///
/// Its JSON form is `{mode, workspaceRoot, additionalWritableRoots?, sessionId?}`. Unknown fields and `null` are
/// refused; the optional fields are left out when empty. A path that is not UTF-8 has no JSON form and makes
/// serialisation fail with an error that names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy<M> {
    /// How much may be written.
    pub mode: M,
    /// The absolute directory that `workspace-write` opens for writing; present in every mode.
    #[serde(with = "strict::path")]
    pub workspace_root: PathBuf,
    /// Further absolute physical directories that `workspace-write` opens; they grant nothing in another mode.
    ///
    /// The enforcing host refuses one that is missing, no directory or a symbolic link, on every call.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "strict::paths")]
    pub additional_writable_roots: Vec<PathBuf>,
    /// The calling session; without one, a backend keeps its state for this call only.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    pub session_id: Option<SessionId>,
}

/// A policy as a consumer resolves it: any mode, also the one that confines nothing.
pub type ExecutionPolicy = Policy<SandboxMode>;

/// A policy as a provider receives it: confined modes only.
pub type SandboxPolicy = Policy<ConfinedMode>;

impl<M> Policy<M> {
    /// Makes a policy for a workspace, without extra roots and without a session.
    pub fn new(mode: M, workspace_root: impl Into<PathBuf>) -> Self {
        Self { mode, workspace_root: workspace_root.into(), additional_writable_roots: Vec::new(), session_id: None }
    }

    /// Returns the same roots and session under another mode, as an approved retry needs it.
    pub fn with_mode<N>(self, mode: N) -> Policy<N> {
        Policy {
            mode,
            workspace_root: self.workspace_root,
            additional_writable_roots: self.additional_writable_roots,
            session_id: self.session_id,
        }
    }

    /// Checks what can be known of the roots without looking at a file system.
    ///
    /// "Absolute" is meant as on the host that runs this code; a remote host checks again by its own rules.
    ///
    /// # Errors
    ///
    /// `SANDBOX_INVALID_ROOT` for the first root that is relative (also: empty) or holds a NUL byte. Extra
    /// roots are checked in every mode, also where they grant nothing.
    pub fn validate(&self) -> Result<(), SandboxError> {
        check_root(RootRole::Workspace, &self.workspace_root)?;
        self.additional_writable_roots.iter().try_for_each(|root| check_root(RootRole::Additional, root))
    }
}

impl<M: Copy + Into<SandboxMode>> Policy<M> {
    /// Lists the roots that the mode opens for writing: the workspace, then the extra ones, each once.
    ///
    /// Empty unless the mode is `workspace-write`. Two spellings count as one root only if they differ in
    /// nothing but `.` and repeated or final separators; links are resolved by the enforcing host. The temp
    /// area is not in the list: where it lies and who sees it is each backend's decision, shown in its report.
    pub fn writable_roots(&self) -> Vec<&Path> {
        if self.mode.into() != SandboxMode::WorkspaceWrite {
            return Vec::new();
        }
        let mut known = HashSet::with_capacity(1 + self.additional_writable_roots.len());
        let every = std::iter::once(&self.workspace_root).chain(&self.additional_writable_roots);
        every.map(PathBuf::as_path).filter(|root| known.insert(*root)).collect()
    }
}

impl ExecutionPolicy {
    /// Returns the policy to hand to a provider, or nothing when the mode confines nothing.
    pub fn confined(&self) -> Option<SandboxPolicy> {
        self.mode.confined().map(|mode| self.clone().with_mode(mode))
    }
}

impl From<SandboxPolicy> for ExecutionPolicy {
    fn from(policy: SandboxPolicy) -> Self {
        let mode = policy.mode.into();
        policy.with_mode(mode)
    }
}

fn check_root(role: RootRole, path: &Path) -> Result<(), SandboxError> {
    let problem = if path.as_os_str().as_encoded_bytes().contains(&0) {
        RootProblem::NulByte
    } else if !path.is_absolute() {
        RootProblem::Relative
    } else {
        return Ok(());
    };
    Err(SandboxError::InvalidRoot { role, path: path.to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;
    use proptest::prelude::*;

    #[test]
    fn the_wire_form_leaves_empty_fields_out() {
        let policy = SandboxPolicy::new(ConfinedMode::ReadOnly, "/w");
        assert_eq!(serde_json::to_string(&policy).unwrap(), r#"{"mode":"read-only","workspaceRoot":"/w"}"#);
    }

    #[test]
    fn the_wire_form_is_camel_case() {
        let mut policy = ExecutionPolicy::new(SandboxMode::DangerFullAccess, "/w");
        policy.additional_writable_roots = vec!["/x".into()];
        policy.session_id = Some(SessionId::new("s 1"));
        assert_eq!(
            serde_json::to_string(&policy).unwrap(),
            r#"{"mode":"danger-full-access","workspaceRoot":"/w","additionalWritableRoots":["/x"],"sessionId":"s 1"}"#
        );
    }

    #[test]
    fn unknown_fields_words_and_nulls_are_refused() {
        for json in [
            r#"{"mode":"read-only","workspaceRoot":"/w","extraWritableRoots":[]}"#,
            r#"{"mode":"read-only","workspaceRoot":"/w","sessionId":null}"#,
            r#"{"mode":"read-only","workspaceRoot":"/w","additionalWritableRoots":null}"#,
            r#"{"mode":"read-only","workspaceRoot":null}"#,
            r#"{"mode":"danger-full-access","workspaceRoot":"/w"}"#,
            r#"{"mode":"read-only"}"#,
            r#"{"workspaceRoot":"/w"}"#,
            r#"{"mode":"read-only","mode":"read-only","workspaceRoot":"/w"}"#,
        ] {
            assert!(serde_json::from_str::<SandboxPolicy>(json).is_err(), "{json}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_not_utf8_is_named_by_the_serialisation_error() {
        use std::os::unix::ffi::OsStringExt as _;
        let bad = PathBuf::from(std::ffi::OsString::from_vec(b"/w\xff".to_vec()));
        let mut policy = SandboxPolicy::new(ConfinedMode::ReadOnly, bad.clone());
        let error = serde_json::to_string(&policy).unwrap_err().to_string();
        assert_eq!(error, r#"path "/w\xff" is not valid UTF-8 and has no JSON form"#);
        policy.workspace_root = "/w".into();
        policy.additional_writable_roots = vec![bad];
        assert!(serde_json::to_string(&policy).is_err());
    }

    #[test]
    fn roots_are_listed_once_and_the_workspace_first() {
        let mut policy = SandboxPolicy::new(ConfinedMode::WorkspaceWrite, "/w");
        policy.additional_writable_roots = vec!["/b".into(), "/w/".into(), "/a".into(), "/b/.".into()];
        assert_eq!(policy.writable_roots(), [Path::new("/w"), Path::new("/b"), Path::new("/a")]);
    }

    #[test]
    fn only_workspace_write_opens_roots() {
        for mode in [SandboxMode::ReadOnly, SandboxMode::DangerFullAccess] {
            let mut policy = ExecutionPolicy::new(mode, "/w");
            policy.additional_writable_roots = vec!["/b".into()];
            assert!(policy.writable_roots().is_empty());
        }
    }

    #[test]
    fn full_access_is_never_handed_to_a_provider() {
        let policy = ExecutionPolicy::new(SandboxMode::DangerFullAccess, "/w");
        assert_eq!(policy.confined(), None);
        let confined = policy.with_mode(SandboxMode::WorkspaceWrite).confined().unwrap();
        assert_eq!(confined, SandboxPolicy::new(ConfinedMode::WorkspaceWrite, "/w"));
    }

    #[cfg(unix)]
    #[test]
    fn relative_empty_and_nul_roots_are_invalid() {
        for (root, text) in [
            ("w", r#"workspace root "w" is not an absolute path"#),
            ("", r#"workspace root "" is not an absolute path"#),
            ("/w\0x", r#"workspace root "/w\x00x" holds a NUL byte"#),
        ] {
            let error = SandboxPolicy::new(ConfinedMode::ReadOnly, root).validate().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRoot);
            assert_eq!(error.to_string(), text);
        }
        let mut policy = SandboxPolicy::new(ConfinedMode::ReadOnly, "/w");
        assert_eq!(policy.validate(), Ok(()));
        policy.additional_writable_roots = vec!["/ok".into(), "x".into()];
        assert_eq!(
            policy.validate().unwrap_err().to_string(),
            r#"additional writable root "x" is not an absolute path"#
        );
    }

    proptest! {
        #[test]
        fn policies_survive_json(
            mode in prop::sample::select(SandboxMode::ALL),
            root in any::<String>(),
            extra in prop::collection::vec(any::<String>(), 0..4),
            session in any::<Option<String>>(),
        ) {
            let policy = ExecutionPolicy {
                mode,
                workspace_root: root.into(),
                additional_writable_roots: extra.into_iter().map(PathBuf::from).collect(),
                session_id: session.map(SessionId::new),
            };
            let json = serde_json::to_string(&policy).unwrap();
            prop_assert_eq!(&serde_json::from_str::<ExecutionPolicy>(&json).unwrap(), &policy);
            let _ = policy.validate(); // must not panic, whatever it says
            let roots = policy.writable_roots().len();
            prop_assert!(roots <= 1 + policy.additional_writable_roots.len());
        }
    }
}
