//! How each mechanism holds the bounds of a call, on this kernel and for this user.

use crate::backend::Backend;
use crate::call::Insistence;
use crate::control_groups::{Controller, Places, REMEDY};
use pinfold_policy::{
    Bound, BoundEvidence, BoundMeans, BoundMet, BoundScope, Ending, Limits, Outcome, Resource, StatusEvidence,
};

/// The bounds of a call, as one mechanism holds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The launcher's `--limit` words.
    pub(crate) words: Vec<(&'static str, u64)>,
    /// The size of each private temp file system.
    pub(crate) temp: Option<u64>,
    /// What control groups of the call's own hold.
    pub(crate) groups: Vec<(Controller, u64)>,
    /// What a report states.
    pub(crate) stated: Vec<Bound>,
    /// What could not be bounded although it was asked for where possible.
    pub(crate) given_up: Option<String>,
}

/// What decides how processes can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kernel {
    version: (u32, u32),
    /// RLIMIT_NPROC may not bind this user.
    root: bool,
    /// The smallest `pid_max` that the kernel takes: it grows with the number of processors.
    least_numbers: u64,
}

/// What bounds can be held by, beside the backend itself.
#[derive(Debug, Clone)]
pub(crate) struct Means {
    pub(crate) kernel: Kernel,
    /// Where control groups can be made; none where somebody else starts the command, and would have to remove them.
    pub(crate) places: Places,
    /// Whether the command is started here.
    pub(crate) ours: bool,
}

/// Process numbers below this one are given out once only.
const FIRST_NUMBER: u64 = 300;

impl Kernel {
    pub(crate) fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let release = rustix::system::uname();
        // `0-127`, or a list of such.
        let possible = read("/sys/devices/system/cpu/possible");
        let last = possible.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u64>().ok()).unwrap_or(0);
        Self {
            version: version(&release.release().to_string_lossy()),
            root: rustix::process::geteuid().is_root() || !is_first_user_namespace(&read("/proc/self/uid_map")),
            least_numbers: (FIRST_NUMBER + 1).max(8 * (last + 1)),
        }
    }
}

/// Whether a map of users is that of the first user namespace (user_namespaces(7)).
///
/// SECURITY: in another one, whatever number we have may be user 0 of the host, whom RLIMIT_NPROC does not bind, and nothing
/// that can be read from inside says so.
pub(crate) fn is_first_user_namespace(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> (u32, u32) {
    let mut parts = release.split(|letter: char| !letter.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Half of the processes that this host can have, at most 16,384: what a call may have if nobody says otherwise, so that a
/// command that starts processes without end leaves some to the others.
pub fn default_processes() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let most = ["/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"].into_iter().filter_map(read).min();
    (most.unwrap_or(32768) / 2).clamp(64, 16384)
}

/// Says how a mechanism holds bounds; an error names one that it cannot hold.
pub(crate) fn bounds(
    limits: &Limits,
    processes: Insistence,
    backend: Backend,
    writes: bool,
    means: &Means,
) -> Result<Bounds, String> {
    let mut bounds = Bounds::default();
    for (resource, most) in limits.asked() {
        let optional = resource == Resource::Processes && processes == Insistence::WherePossible;
        if let Err(why) = bounds.hold(resource, most, backend, writes, means, optional) {
            if optional {
                let note = format!("Processes were to be bounded where possible; they are not: {why}.");
                bounds.given_up = Some(note);
            } else {
                return Err(why);
            }
        }
    }
    Ok(bounds)
}

impl Bounds {
    fn hold(
        &mut self,
        resource: Resource,
        most: u64,
        backend: Backend,
        writes: bool,
        means: &Means,
        optional: bool,
    ) -> Result<(), String> {
        if matches!(backend, Backend::Custom | Backend::Unconfined) {
            return Err(format!("it cannot bound {resource}"));
        }
        let (scope, means) = match resource {
            Resource::Processes => match processes(most, backend, means.kernel) {
                Ok((word, words_most, means)) => {
                    self.words.push((word, words_most));
                    (BoundScope::Call, means)
                }
                // Nothing is made on the host for what nobody asked for.
                Err(why) if optional => return Err(why),
                Err(why) => self
                    .group(Controller::Pids, most + supervisors(backend), means)
                    .map_err(|no_group| format!("{why}, and {no_group}"))?,
            },
            Resource::Memory => self.group(Controller::Memory, most, means).map_err(|no_group| {
                format!("maxMemoryBytes (--max-memory) cannot be held: {no_group}; each process can be bounded: maxProcessMemoryBytes, --max-process-memory")
            })?,
            // Nothing of it can be written.
            Resource::TempSize if !writes => return Ok(()),
            Resource::TempSize if backend == Backend::Landlock => {
                return Err(
                    "its temp area is a directory on the host's file system, which has no size of its own".to_owned()
                );
            }
            Resource::TempSize => {
                self.temp = Some(most);
                (BoundScope::FileSystem, BoundMeans::Tmpfs)
            }
            Resource::ProcessMemory => self.rlimit("data", most),
            Resource::CpuTime => self.rlimit("cpu", most),
            Resource::FileSize => self.rlimit("file", most),
            Resource::OpenFiles => self.rlimit("open-files", most),
        };
        self.stated.push(Bound { resource, most, scope, means });
        Ok(())
    }

    fn group(&mut self, controller: Controller, most: u64, means: &Means) -> Result<(BoundScope, BoundMeans), String> {
        if !means.ours {
            let why = "no control group is made where somebody else starts the command, for nobody would remove it";
            return Err(why.to_owned());
        }
        if !means.places.has(controller) {
            return Err(format!("the host lets this process make no control group that could hold it ({REMEDY})"));
        }
        self.groups.push((controller, most));
        Ok((BoundScope::Call, BoundMeans::Cgroup))
    }

    fn rlimit(&mut self, word: &'static str, most: u64) -> (BoundScope, BoundMeans) {
        self.words.push((word, most));
        (BoundScope::Process, BoundMeans::Rlimit)
    }
}

/// Processes of ours in a control group of the call: the launcher, PID 1 and bubblewrap.
fn supervisors(backend: Backend) -> u64 {
    match backend {
        Backend::Namespace => 2,
        Backend::Bwrap => 3,
        _ => 1,
    }
}

/// The word that bounds processes, its number, and what holds it.
fn processes(most: u64, backend: Backend, kernel: Kernel) -> Result<(&'static str, u64, BoundMeans), String> {
    // Processes of ours that are counted with those of the command: PID 1, and with bubblewrap the launcher as well.
    let ours = match backend {
        Backend::Namespace => 1,
        Backend::Bwrap => 2,
        _ => return Err("it has no namespace in which the processes of one call are counted".to_owned()),
    };
    // SINCE(Linux 5.14): counted for each user namespace; before, for all that the user has.
    if !kernel.root && kernel.version >= (5, 14) {
        return Ok(("processes", most + ours, BoundMeans::Rlimit));
    }
    if backend == Backend::Bwrap {
        return Err("inside bubblewrap nothing bounds the processes of user 0".to_owned());
    }
    // SINCE(Linux 6.14): each PID namespace has numbers of its own.
    if kernel.version < (6, 14) {
        return Err("before Linux 6.14 nothing bounds the processes of user 0 in a namespace".to_owned());
    }
    let least = kernel.least_numbers - FIRST_NUMBER;
    if most < least {
        return Err(format!("with so many processors this kernel bounds processes of user 0 at {least} or more"));
    }
    Ok(("pids", most, BoundMeans::PidNamespace))
}

/// What holds the bounds on a whole call under a mechanism, or why nothing does: for somebody who asks what works here.
pub(crate) fn facts(backend: Backend) -> Vec<(String, String)> {
    let means = Means { kernel: Kernel::look(), places: Places::look(), ours: true };
    let named = [
        ("max_processes", Limits { max_processes: Some(default_processes()), ..Limits::default() }),
        ("max_memory", Limits { max_memory_bytes: Some(1 << 30), ..Limits::default() }),
    ];
    named
        .into_iter()
        .map(|(name, limits)| {
            let held = bounds(&limits, Insistence::Required, backend, true, &means);
            let text = held.map_or_else(
                |why| format!("no: {why}"),
                |bounds| bounds.stated.first().map_or_else(String::new, |bound| format!("by {}", bound.means)),
            );
            (name.to_owned(), text)
        })
        .collect()
}

/// Adds to an outcome which bounds are known to have been met.
///
/// Most bounds show only in an error that the command receives and nobody else sees. Two send a signal; if that signal ended
/// the command itself, it is evidence, of the kind that a process can give itself.
///
/// What the kernel counts in a control group it counts out of the command's reach.
pub(crate) fn note_met(outcome: Outcome, counted: &[Controller]) -> Outcome {
    const SIGNALS: [(i32, Resource); 2] = [(24, Resource::CpuTime), (25, Resource::FileSize)];
    let mut all: Vec<BoundMet> = counted
        .iter()
        .map(|controller| BoundMet {
            resource: match controller {
                Controller::Pids => Resource::Processes,
                Controller::Memory => Resource::Memory,
            },
            evidence: BoundEvidence::Kernel,
        })
        .collect();
    let signal = match outcome.ending() {
        Ending::Signaled { signal } if outcome.status_evidence() == StatusEvidence::Channel => signal.number(),
        _ => return outcome.with_bounds_met(all),
    };
    let stated = outcome.report().map_or(&[][..], |report| report.facts().bounds.as_slice());
    let resource = SIGNALS.iter().find(|(number, _)| *number == signal).map(|(_, resource)| *resource);
    let met = resource.filter(|resource| stated.iter().any(|bound| bound.resource == *resource));
    all.extend(met.map(|resource| BoundMet { resource, evidence: BoundEvidence::Signal }));
    outcome.with_bounds_met(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Kernel = Kernel { version: (6, 1), root: false, least_numbers: 301 };
    const ROOT: Kernel = Kernel { version: (6, 18), root: true, least_numbers: 301 };

    fn of_processes(backend: Backend, kernel: Kernel) -> Result<Bounds, String> {
        let limits = Limits { max_processes: Some(50), ..Limits::default() };
        bounds(&limits, Insistence::Required, backend, true, &means(kernel))
    }

    fn means(kernel: Kernel) -> Means {
        Means { kernel, places: Places::default(), ours: true }
    }

    #[test]
    fn processes_are_bounded_where_the_kernel_counts_those_of_a_call() {
        let words = |backend, kernel| of_processes(backend, kernel).unwrap().words;
        assert_eq!(words(Backend::Namespace, USER), [("processes", 51)]);
        assert_eq!(words(Backend::Bwrap, USER), [("processes", 52)]);
        assert_eq!(words(Backend::Namespace, ROOT), [("pids", 50)]);
        for (backend, kernel) in [
            (Backend::Landlock, USER),
            (Backend::Custom, USER),
            (Backend::Bwrap, ROOT),
            (Backend::Namespace, Kernel { version: (6, 13), ..ROOT }),
            (Backend::Namespace, Kernel { version: (5, 13), ..USER }),
            (Backend::Namespace, Kernel { least_numbers: 1024, ..ROOT }),
        ] {
            assert!(of_processes(backend, kernel).is_err(), "{backend} {kernel:?}");
        }
    }

    #[test]
    fn only_processes_may_be_left_unbounded_and_only_if_that_was_said() {
        let limits = Limits { max_processes: Some(50), max_temp_bytes: Some(4096), ..Limits::default() };
        let given = |backend, processes| bounds(&limits, processes, backend, true, &means(ROOT));
        assert!(given(Backend::Bwrap, Insistence::Required).is_err());
        let bounds = given(Backend::Bwrap, Insistence::WherePossible).unwrap();
        assert!(bounds.given_up.is_some() && bounds.temp == Some(4096) && bounds.stated.len() == 1);
        assert!(given(Backend::Landlock, Insistence::WherePossible).unwrap_err().contains("temp area"));
    }

    #[test]
    fn in_a_further_user_namespace_nobody_counts_as_an_ordinary_user() {
        assert!(is_first_user_namespace("         0          0 4294967295\n"));
        for map in ["", "1000 0 1\n", "0 1000 1\n1 100000 65536\n", "0 0 4294967294\n", "0 0 4294967295\n1 1 1\n"] {
            assert!(!is_first_user_namespace(map), "{map}");
        }
    }

    #[test]
    fn the_version_is_the_first_two_numbers() {
        assert_eq!(version("6.18.44-fc-v657"), (6, 18));
        assert_eq!(version("5.15-rc1"), (5, 15));
        assert_eq!((version("7"), version("")), ((7, 0), (0, 0)));
    }
}
