//! Which process waits for an answer, so that no yes outlives it.

use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt as _;

/// A process that waits for the answer to its question.
///
/// References: proc_pid_stat(5) (`starttime`), pid_namespaces(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asker {
    /// Its number.
    pid: u32,
    /// When it was started, in clock ticks after the boot of the host: a number that is used again tells of another process.
    started: u64,
    /// In which PID namespace the number counts.
    namespace: u64,
}

impl Asker {
    /// Returns this process; nothing where `/proc` does not tell of it.
    pub(crate) fn this() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { pid, started: started(pid).ok()??, namespace: namespace()? })
    }

    /// Says whether the process has ended. Of one in another PID namespace that cannot be known: it counts as alive.
    pub fn is_gone(&self) -> bool {
        if namespace() != Some(self.namespace) {
            return false;
        }
        match started(self.pid) {
            Ok(found) => found != Some(self.started),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }
}

fn namespace() -> Option<u64> {
    std::fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

/// When a process was started; nothing for one that has ended and was not waited for yet.
fn started(pid: u32) -> std::io::Result<Option<u64>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name is in parentheses and may hold any letters, parentheses too.
    let Some((_, rest)) = stat.rsplit_once(')') else { return Ok(None) };
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next(), Some("Z" | "X")) {
        return Ok(None);
    }
    // The state is field 3, the start is field 22.
    Ok(fields.nth(18).and_then(|ticks| ticks.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_gone_when_it_has_ended_and_not_before() {
        let this = Asker::this().unwrap();
        assert!(!this.is_gone());
        assert!(Asker { started: this.started + 1, ..this }.is_gone());
        assert!(!Asker { started: this.started + 1, namespace: this.namespace + 1, ..this }.is_gone());
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let asker = Asker { pid: child.id(), started: started(child.id()).unwrap().unwrap(), ..this };
        assert!(!asker.is_gone());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(asker.is_gone());
    }
}
