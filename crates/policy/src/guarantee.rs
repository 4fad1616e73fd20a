//! The closed list of promises, the same on every operating system, and how strongly one is kept.
//!
//! How a promise is kept is a provider's business; here are only its name, its meaning and the names of the
//! layers that may keep it.

use crate::mode::SandboxMode;
use serde::{Deserialize, Serialize};

closed_words! {
    /// Names one promise about a confined command.
    pub enum Guarantee("guarantee") {
        /// Bytes of files outside the writable roots.
        WriteContent => "write-content",
        /// Modes, owners, times, extended attributes and flags of files outside the writable roots.
        WriteMetadata => "write-metadata",
        /// Ways around by name: symbolic link, hard link, rename.
        WriteViaLinks => "write-via-links",
        /// Names inside a writable root that stay as they are: present, absent, or replaced by rename.
        ProtectedPaths => "protected-paths",
        /// Paths that cannot be read.
        ReadDeny => "read-deny",
        /// A temp area that nobody else sees.
        TempPrivate => "temp-private",
        /// Descriptors that were open before.
        InheritedFds => "inherited-fds",
        /// Capabilities, set-user-id programs and new namespaces.
        Privilege => "privilege",
        /// `/proc/sys`, `/sys` and devices.
        KernelInterfaces => "kernel-interfaces",
        /// Processes outside are not visible.
        ProcessVisibility => "process-visibility",
        /// No signal reaches a process outside.
        SignalsOut => "signals-out",
        /// No process outside can be traced or have its memory written.
        PtraceOut => "ptrace-out",
        /// Unix sockets by path and by abstract name.
        SocketsUnix => "sockets-unix",
        /// Everything that leaves by a network.
        Network => "network",
        /// The terminal cannot be fed or reprogrammed.
        Terminal => "terminal",
        /// Nothing outlives the call unasked.
        Descendants => "descendants",
        /// What can widen the mode cannot be reached, named or impersonated.
        ControlPlane => "control-plane",
    }
}

impl Guarantee {
    /// Describes the promise in one sentence, for a report or a doctor.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::WriteContent => {
                "The command cannot create, change, truncate or remove files outside its writable places."
            }
            Self::WriteMetadata => {
                "The command cannot change modes, owners, times, attributes or flags of files outside its writable places."
            }
            Self::WriteViaLinks => "No symbolic link, hard link or rename carries a write out of the writable places.",
            Self::ProtectedPaths => {
                "Protected names inside a writable root cannot be created, changed, removed or replaced by a rename."
            }
            Self::ReadDeny => "Paths that the policy closes for reading cannot be opened or listed.",
            Self::TempPrivate => {
                "The temp area belongs to this session alone and other processes do not see its files."
            }
            Self::InheritedFds => {
                "The command receives no open file of its parent through which it could write past its policy."
            }
            Self::Privilege => {
                "The command holds no capability and cannot gain one by set-user-id programs or new namespaces."
            }
            Self::KernelInterfaces => {
                "Kernel settings, device nodes and other writable kernel interfaces are out of reach."
            }
            Self::ProcessVisibility => "Processes outside the call are not visible to the command.",
            Self::SignalsOut => "The command cannot send a signal to a process outside the call.",
            Self::PtraceOut => {
                "The command cannot trace a process outside the call, write its memory or enter its root."
            }
            Self::SocketsUnix => "The command reaches no unix socket outside, neither by path nor by abstract name.",
            Self::Network => "The command reaches no network.",
            Self::Terminal => "The command cannot put input into the user's terminal or change its settings.",
            Self::Descendants => "No process that the command starts outlives the call unless that was asked for.",
            Self::ControlPlane => "The command cannot reach, name or impersonate whatever is able to widen its mode.",
        }
    }

    /// Says whether the promise is one of the file effects that `full` stands for under a mode.
    ///
    /// Both confined modes promise the same: no file changes except in the writable places. Besides the three
    /// kinds of write this needs the ways in which a write can be had without naming a path: descriptors that were
    /// open before, kernel interfaces (each setting is a file), regained privilege (which undoes the walls),
    /// and the memory or root directory of a process outside that still may write.
    ///
    /// Not counted: a private temp area and protected names (they concern places that the mode does open),
    /// reading, visibility, signals, the terminal and descendants (no file effect), and sockets: asking another
    /// program to write is that program's deed, and modes leave communication open. `danger-full-access`
    /// promises nothing.
    pub const fn is_file_effect(self, mode: SandboxMode) -> bool {
        match mode {
            SandboxMode::DangerFullAccess => false,
            SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite => matches!(
                self,
                Self::WriteContent
                    | Self::WriteMetadata
                    | Self::WriteViaLinks
                    | Self::InheritedFds
                    | Self::Privilege
                    | Self::KernelInterfaces
                    | Self::PtraceOut
            ),
        }
    }
}

closed_words! {
    /// Says how strongly a promise is kept for one call.
    pub enum Strength("strength") {
        /// Kept without a known exception.
        Enforced => "enforced",
        /// Kept with exceptions that the notes name.
        Partial => "partial",
        /// Not kept.
        None => "none",
        /// The policy did not ask for it.
        NotAsked => "not-asked",
    }
}

impl Strength {
    /// Returns the weaker of two claims about the same promise.
    pub const fn weaker(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::NotAsked, _) | (_, Self::NotAsked) => Self::NotAsked,
            (Self::Partial, _) | (_, Self::Partial) => Self::Partial,
            (Self::Enforced, Self::Enforced) => Self::Enforced,
        }
    }
}

closed_words! {
    /// Names a wall by which a promise is kept.
    pub enum Layer("layer") {
        /// Descriptors, signals, `no_new_privs`, session and working directory put in order before anything else.
        Hygiene => "hygiene",
        /// User, IPC, UTS or network namespace.
        Namespace => "namespace",
        /// A mount tree of its own, read-only but for the writable places.
        MountTree => "mount-tree",
        /// A PID namespace with an init of its own.
        PidNamespace => "pid-namespace",
        /// Landlock rules and scopes.
        Landlock => "landlock",
        /// A system call filter.
        Seccomp => "seccomp",
        /// Dropped capabilities and locked securebits.
        Capabilities => "capabilities",
        /// A broker that performs single calls for the command.
        Broker => "broker",
        /// Bubblewrap's own walls.
        Bubblewrap => "bubblewrap",
        /// An operator's own runner, on the operator's word.
        Runner => "runner",
        /// A macOS Seatbelt profile.
        Seatbelt => "seatbelt",
        /// A Windows restricted token with access control lists.
        RestrictedToken => "restricted-token",
        /// A Windows job object.
        JobObject => "job-object",
        /// The in-process file fence.
        Fence => "fence",
        /// A provider on another host, on that host's word.
        Remote => "remote",
    }
}

/// States how one promise is kept for one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GuaranteeReport {
    /// The promise.
    pub guarantee: Guarantee,
    /// How strongly it is kept.
    pub strength: Strength,
    /// The walls that keep it, each able to do so alone unless a note says otherwise.
    #[serde(default)]
    pub layers: Vec<Layer>,
    /// Whether a real act on this host showed it; a claim without proof is not verified.
    pub verified: bool,
    /// Exceptions and remarks, each a sentence.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl GuaranteeReport {
    /// Makes a line without notes.
    pub fn new(guarantee: Guarantee, strength: Strength, layers: &[Layer], verified: bool) -> Self {
        Self { guarantee, strength, layers: layers.to_vec(), verified, notes: Vec::new() }
    }

    /// Adds a sentence to the notes.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Says whether the promise is kept without exception and was shown on this host.
    pub fn is_proved(&self) -> bool {
        self.strength == Strength::Enforced && self.verified
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_seventeen_names() {
        assert_eq!(Guarantee::ALL.len(), 17);
        assert_eq!(Guarantee::ALL[0].as_str(), "write-content");
        assert_eq!(Guarantee::ALL[16].as_str(), "control-plane");
    }

    #[test]
    fn an_unknown_guarantee_is_answered_with_the_list() {
        let error = "writes".parse::<Guarantee>().unwrap_err().to_string();
        assert!(error.starts_with("unknown guarantee \"writes\"; expected one of: write-content, "), "{error}");
    }

    #[test]
    fn every_description_is_one_sentence_of_its_own() {
        let mut seen = std::collections::BTreeSet::new();
        for guarantee in Guarantee::ALL {
            let text = guarantee.describe();
            assert!(text.ends_with('.') && text.matches(". ").count() == 0, "{text}");
            assert!(seen.insert(text), "{text}");
        }
    }

    #[test]
    fn full_stands_for_the_same_effects_in_both_confined_modes_and_none_without() {
        for guarantee in Guarantee::ALL {
            let read_only = guarantee.is_file_effect(SandboxMode::ReadOnly);
            assert_eq!(read_only, guarantee.is_file_effect(SandboxMode::WorkspaceWrite));
            assert!(!guarantee.is_file_effect(SandboxMode::DangerFullAccess));
        }
        assert!(Guarantee::PtraceOut.is_file_effect(SandboxMode::ReadOnly));
        assert!(!Guarantee::Network.is_file_effect(SandboxMode::ReadOnly));
    }

    #[test]
    fn the_weaker_claim_wins_whatever_the_order() {
        for a in Strength::ALL {
            assert_eq!(a.weaker(*a), *a);
            for b in Strength::ALL {
                assert_eq!(a.weaker(*b), b.weaker(*a));
            }
        }
        assert_eq!(Strength::Enforced.weaker(Strength::Partial), Strength::Partial);
        assert_eq!(Strength::NotAsked.weaker(Strength::None), Strength::None);
    }
}
