//! Where the launcher stopped before the command ran, what that means and what helps. The list is that of
//! `docs/launcher.md`; a stage is added there and here in one commit.

use crate::error::ErrorCode;

closed_words! {
    /// Names the step at which the launcher refused to go on.
    pub enum LauncherStage("launcher stage") {
        /// The command line could not be read.
        Usage => "usage",
        /// The plan could not be read or is malformed.
        Spec => "spec",
        /// The status report could not be opened.
        Status => "status",
        /// Standard input, output or error is unfit.
        Stdio => "stdio",
        /// Inherited descriptors could not be closed.
        Descriptors => "descriptors",
        /// A writable root could not be opened.
        RootOpen => "root-open",
        /// A writable root is not the directory it was.
        RootChanged => "root-changed",
        /// A process could not be made.
        Fork => "fork",
        /// User and group numbers could not be mapped.
        IdMap => "id-map",
        /// The tree could not be made read-only.
        MountReadOnly => "mount-read-only",
        /// A private file system could not be mounted.
        MountPrivate => "mount-private",
        /// A path could not be hidden.
        MountCover => "mount-cover",
        /// The network could not be closed off.
        Network => "network",
        /// The device tree could not be made.
        MountDev => "mount-dev",
        /// The process tree could not be mounted.
        MountProc => "mount-proc",
        /// The new root could not be entered.
        MountRoot => "mount-root",
        /// Namespaces could not be made.
        Namespaces => "namespaces",
        /// Capabilities could not be dropped.
        Capabilities => "capabilities",
        /// `no_new_privs` could not be set.
        NoNewPrivs => "no-new-privs",
        /// The kernel's Landlock is absent or too old.
        LandlockUnsupported => "landlock-unsupported",
        /// A Landlock rule could not be added.
        LandlockRule => "landlock-rule",
        /// Landlock could not be put in force.
        Landlock => "landlock",
        /// The system call filter could not be put in force.
        Seccomp => "seccomp",
        /// The broker could not be reached.
        Broker => "broker",
        /// The working directory could not be entered.
        Cwd => "cwd",
        /// The working directory inside is not the one outside.
        CwdChanged => "cwd-changed",
        /// The supervising process could not do its work.
        Supervisor => "supervisor",
        /// A bound on what the command may use up could not be set.
        Limit => "limit",
    }
}

impl LauncherStage {
    /// Says in one sentence what went wrong at this stage.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Usage => "The launcher was started with arguments it does not know.",
            Self::Spec => "The launcher could not read its plan.",
            Self::Status => "The launcher could not open the place where it reports.",
            Self::Stdio => "Standard input, output or error is something that cannot be given to a confined command.",
            Self::Descriptors => "The launcher could not close the files it inherited.",
            Self::RootOpen => "A writable root could not be opened.",
            Self::RootChanged => "A writable root was replaced after it had been checked.",
            Self::Fork => "The host did not allow another process.",
            Self::IdMap => "The kernel refused to map user and group numbers into a user namespace.",
            Self::MountReadOnly => "The file tree could not be made read-only.",
            Self::MountPrivate => "A private temp file system could not be mounted.",
            Self::MountCover => "A path that the policy hides could not be covered.",
            Self::Network => "The command's own loopback device could not be started.",
            Self::MountDev => "The command's own /dev could not be built.",
            Self::MountProc => "The command's own /proc could not be mounted.",
            Self::MountRoot => "The prepared file tree could not be entered.",
            Self::Namespaces => "The kernel refused to create namespaces.",
            Self::Capabilities => "Capabilities could not be dropped.",
            Self::NoNewPrivs => "The kernel refused to lock privileges.",
            Self::LandlockUnsupported => "The kernel's Landlock is switched off or older than required.",
            Self::LandlockRule => "A path could not be added to the Landlock rules.",
            Self::Landlock => "Landlock could not be put in force.",
            Self::Seccomp => "The system call filter could not be put in force.",
            Self::Broker => "The process that answers for protected names could not be reached.",
            Self::Cwd => "The working directory could not be entered inside the sandbox.",
            Self::CwdChanged => "The working directory inside the sandbox is another one than outside.",
            Self::Supervisor => "The process that watches the command failed.",
            Self::Limit => "A bound on what the command may use up could not be set.",
        }
    }

    /// Says in one sentence what to run or change.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Usage | Self::Spec => {
                "Install the launcher and the library from the same release; if they are, report this as a bug."
            }
            Self::Status => "Check that the runtime directory exists, has free space and belongs to this user.",
            Self::Stdio => "Connect standard streams to a pipe, a file or a terminal, not to a directory.",
            Self::Descriptors => "Run on Linux 5.9 or newer, or mount /proc.",
            Self::RootOpen => "Create the directory, or check that this user may enter it.",
            Self::RootChanged => "Run the command again, and find out who replaces the directory.",
            Self::Fork => "Raise the limit of processes (ulimit -u, or pids.max of the container).",
            Self::IdMap | Self::Namespaces => {
                "Allow unprivileged user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone \
                 and kernel.apparmor_restrict_unprivileged_userns), or start the container with them permitted."
            }
            Self::MountReadOnly | Self::MountRoot => {
                "Run on Linux 5.12 or newer, and start the container without a filter on mount calls."
            }
            Self::MountPrivate | Self::MountCover | Self::MountDev => {
                "Start the container without a filter on mount calls, and check the limit of memory."
            }
            Self::Network => "Start the container with network namespaces permitted, or leave the network open.",
            Self::MountProc => "Start the container with an unmasked /proc (systempaths=unconfined).",
            Self::Capabilities | Self::NoNewPrivs => {
                "Start the container without a filter on prctl and capset, or report this as a bug."
            }
            Self::LandlockUnsupported => {
                "Add landlock to the lsm= list on the kernel command line, or run a newer kernel."
            }
            Self::LandlockRule => "Check that the path exists and that this user may enter its parents.",
            Self::Landlock => "Start the container without a filter on the landlock calls.",
            Self::Seccomp => "Run a kernel with CONFIG_SECCOMP_FILTER, and allow the seccomp call in the container.",
            Self::Broker => "Run the command again; if it stays, report this as a bug.",
            Self::Cwd => "Create the working directory, or choose one that this user may enter.",
            Self::CwdChanged => "Choose a working directory that no private temp area covers.",
            Self::Supervisor => "Run the command again; if it stays, report this as a bug.",
            Self::Limit => {
                "Ask for another bound, or run a newer kernel (docs/kernel-features.md says which bound needs what)."
            }
        }
    }

    /// Returns the code under which a caller sees a failure at this stage.
    ///
    /// Roots are `SANDBOX_INVALID_ROOT`; a working directory, streams, processes and the report are the host's
    /// state, `SANDBOX_PREPARATION_FAILED`; a wall that does not stand is `SANDBOX_UNAVAILABLE`.
    pub const fn error_code(self) -> ErrorCode {
        match self {
            Self::RootOpen | Self::RootChanged => ErrorCode::InvalidRoot,
            Self::Status | Self::Stdio | Self::Fork | Self::Cwd | Self::CwdChanged => ErrorCode::PreparationFailed,
            _ => ErrorCode::Unavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_are_those_of_the_launchers_document() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/launcher.md");
        let text = std::fs::read_to_string(document).unwrap();
        let list = text.split_once("\nStages: ").unwrap().1.split_once(".\n").unwrap().0;
        let listed: Vec<_> = list.split_whitespace().map(|word| word.trim_matches('`')).collect();
        let ours: Vec<_> = LauncherStage::ALL.iter().map(|stage| stage.as_str()).collect();
        assert_eq!(listed, ours);
    }

    #[test]
    fn every_stage_says_what_it_means_and_what_helps() {
        for stage in LauncherStage::ALL {
            for text in [stage.meaning(), stage.remedy()] {
                assert!(text.ends_with('.') && text.len() > 20 && !text.contains("  "), "{stage}: {text}");
            }
        }
    }

    #[test]
    fn an_unknown_stage_is_refused() {
        assert!("mount".parse::<LauncherStage>().is_err());
    }
}
