//! Where a crash inside is felt outside although the launcher forbids cores.
//!
//! References: core(5), setrlimit(2).

use crate::backend::Backend;
use crate::limits::is_first_user_namespace;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// What a report has to say of crashes on this host, if there is anything.
pub(crate) fn note(backend: Backend) -> Option<&'static str> {
    let pattern = std::fs::read("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let forbidden = match backend {
        Backend::Custom | Backend::Unconfined => false,
        // The launcher inside it has no power over the host's limits.
        Backend::Bwrap => getrlimit(Resource::Core).maximum != Some(0),
        _ => getrlimit(Resource::Core).maximum != Some(0) || raises_limits(),
    };
    of(&pattern, forbidden)
}

/// Whether a hard limit is no limit for this process.
fn raises_limits() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let held = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
    held && is_first_user_namespace(&map)
}

/// `forbidden`: the limit on cores is 1 inside, with which the kernel starts no program.
fn of(pattern: &[u8], forbidden: bool) -> Option<&'static str> {
    match pattern.first() {
        Some(b'@') => Some(
            "A process that crashes is announced to the program outside that collects crashes (core_pattern names its \
             socket), which may store the process's memory.",
        ),
        Some(b'|') if !forbidden => Some(
            "A process that crashes has the kernel start the program outside that core_pattern names, which may store the \
             process's memory: the hard limit on cores (ulimit -Hc) is 0 here, or the runner sets none; with 1 or more \
             nothing would be started.",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_always_told_a_program_where_it_is_started_and_a_file_never() {
        let told = |pattern: &str, forbidden| of(pattern.as_bytes(), forbidden).is_some();
        assert!(told("@/run/coredump.socket", true) && told("@@/run/coredump.socket", false));
        assert!(told("|/usr/share/apport/apport -p%p", false));
        assert!(!told("|/usr/share/apport/apport -p%p", true));
        assert!(!told("core", false) && !told("/var/crash/%p", true) && !told("", false));
    }
}
