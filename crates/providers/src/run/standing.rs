//! What a process that we start would have of ours: a launcher that was started earlier may stand in for one that is started
//! now only as long as all of it is the same.
//!
//! SECURITY: without this a program that gives up power after its first call, such as one that changes its user, would go on
//! making processes with the power that it had. What nobody can look at (a Landlock domain of the calling thread, taken up by a
//! process with CAP_SYS_ADMIN and without `no_new_privs`) is named in `RunOptions::resident`.

use rustix::process::{Resource, getpriority_process, getrlimit};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Lines of `/proc/thread-self/status` (proc_pid_status(5)) that a child inherits.
const INHERITED: [&str; 14] = [
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "Cpus_allowed",
    "Mems_allowed",
];

const NAMESPACES: [&str; 6] = ["user", "mnt", "pid_for_children", "net", "ipc", "cgroup"];

const LIMITS: [Resource; 16] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

/// What this thread passes on, and which program the launcher is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Standing {
    credentials: Vec<String>,
    groups: String,
    limits: Vec<(Option<u64>, Option<u64>)>,
    places: Vec<(u64, u64)>,
    program: (u64, u64, i64, i64),
    priority: i32,
}

impl Standing {
    /// Looks; `None` where there is no looking.
    pub(super) fn look(program: &Path) -> Option<Self> {
        let status = read("/proc/thread-self/status").ok()?;
        let inherited = |line: &&str| line.split(':').next().is_some_and(|name| INHERITED.contains(&name));
        let identity = |path: &str| std::fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
        let mut places = vec![identity("/")?];
        for name in NAMESPACES {
            // A kernel may be built without one.
            places.push(identity(&format!("/proc/thread-self/ns/{name}")).unwrap_or_default());
        }
        let program = std::fs::metadata(program).ok()?;
        Some(Self {
            credentials: status.lines().filter(inherited).map(str::to_owned).collect(),
            groups: read("/proc/thread-self/cgroup").unwrap_or_default(),
            limits: LIMITS
                .map(|limit| {
                    let it = getrlimit(limit);
                    (it.current, it.maximum)
                })
                .into(),
            places,
            program: (program.dev(), program.ino(), program.ctime(), program.ctime_nsec()),
            priority: getpriority_process(None).ok()?,
        })
    }
}

/// Reads a file of procfs, whose size nobody knows, in as few calls as that takes.
fn read(path: &str) -> io::Result<String> {
    let mut text = String::with_capacity(8 << 10);
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_inherits_is_seen_to_change() {
        let program = Path::new("/proc/self/exe");
        let look = || Standing::look(program).unwrap();
        let before = look();
        assert_eq!(before, look());
        assert!(before.credentials.len() >= 10, "{before:?}");
        // A thread of its own: its credentials are nobody else's.
        let changed = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            Standing::look(program).unwrap()
        });
        assert_ne!(before, changed.join().unwrap());
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_ne!(before, Standing::look(file.path()).unwrap());
        assert!(Standing::look(Path::new("/nowhere")).is_none());
    }
}
