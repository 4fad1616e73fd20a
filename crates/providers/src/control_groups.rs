//! Control groups of a call's own (cgroups(7)): what bounds the memory and the processes of everything that a call starts.
//!
//! A group is made beside or below our own, where the host lets this user make one: version 2 where it has the controllers,
//! else version 1. It is locked while it is in use; what nobody has locked belongs to a process that has died, and goes.

use pinfold_policy::quote::quote;
use rustix::fs::{Access, FlockOperation, access, flock};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How the names of our groups begin.
const PREFIX: &str = "pinfold-";

/// What to do where no group can be made.
pub(crate) const REMEDY: &str = "start it in a scope of its own: systemd-run --user --scope -p Delegate=yes";

/// What a group bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Controller {
    Pids,
    Memory,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Self::Pids => "pids",
            Self::Memory => "memory",
        }
    }
}

/// Where a group can be made for a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    parent: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where groups can be made on this host, by this user, from here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places {
    pids: Option<Place>,
    memory: Option<Place>,
}

impl Places {
    /// Looks; makes nothing.
    pub(crate) fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (own, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
        let find = |controller: Controller| {
            let two = directory(&own, &mounts, None).and_then(|(own, top)| of_version_two(&own, &top, controller));
            let one = || {
                let (parent, _) = directory(&own, &mounts, Some(controller.name()))?;
                writable(&parent).then_some(Place { parent, version: Version::One })
            };
            two.or_else(one)
        };
        Self { pids: find(Controller::Pids), memory: find(Controller::Memory) }
    }

    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.of(controller).is_some()
    }

    fn of(&self, controller: Controller) -> Option<&Place> {
        match controller {
            Controller::Pids => self.pids.as_ref(),
            Controller::Memory => self.memory.as_ref(),
        }
    }

    /// Removes groups whose processes have died.
    pub(crate) fn sweep(&self) {
        for place in self.pids.iter().chain(&self.memory) {
            let entries = std::fs::read_dir(&place.parent).into_iter().flatten().flatten();
            for entry in entries.filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes())) {
                let Ok(lock) = File::open(entry.path()) else { continue };
                if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    clear(&entry.path(), place.version);
                }
            }
        }
    }
}

/// Our own group in a hierarchy, and the top of what can be seen of it: for a controller of version 1, or in version 2.
fn directory(own: &str, mounts: &str, controller: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let of_controller = |list: &str| controller.is_some_and(|name| list.split(',').any(|known| known == name));
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let fits = if controller.is_some() { of_controller(controllers) } else { controllers.is_empty() };
        fits.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut back = back.split(' ');
        let (kind, options) = (back.next()?, back.nth(1)?);
        let fits = if controller.is_some() { kind == "cgroup" && of_controller(options) } else { kind == "cgroup2" };
        let mut front = front.split(' ').skip(3);
        let (root, top) = (front.next()?, front.next()?);
        // Names with spaces are written with escapes; nobody mounts control groups there.
        let below = Path::new(path).strip_prefix(root).ok().filter(|_| fits && !top.contains('\\'))?;
        let within = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        within.then(|| (Path::new(top).join(below), PathBuf::from(top)))
    })
}

fn writable(directory: &Path) -> bool {
    access(directory, Access::WRITE_OK).is_ok()
}

/// The nearest group at or above our own in which one with this controller can be made.
fn of_version_two(own: &Path, top: &Path, controller: Controller) -> Option<Place> {
    let lists = |directory: &Path, file: &str| {
        let text = std::fs::read_to_string(directory.join(file)).unwrap_or_default();
        text.split_whitespace().any(|name| name == controller.name())
    };
    // A group that hands controllers on has no processes of its own, but for the first of all.
    let hands_on = |directory: &Path| {
        let empty = std::fs::read(directory.join("cgroup.procs")).is_ok_and(|list| list.is_empty());
        let first = !directory.join("cgroup.type").exists();
        lists(directory, "cgroup.subtree_control") || (lists(directory, "cgroup.controllers") && (empty || first))
    };
    let mut above = own.ancestors().take_while(|directory| directory.starts_with(top));
    // To move a process one must be able to write in the group that holds both the old and the new one.
    let parent = above
        .find(|directory| writable(directory) && writable(&directory.join("cgroup.procs")) && hands_on(directory))?;
    Some(Place { parent: parent.to_owned(), version: Version::Two })
}

/// Control groups of one call; they end with this value, and everything in them does.
#[derive(Debug)]
pub(crate) struct CallGroup {
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    path: PathBuf,
    version: Version,
    controllers: Vec<Controller>,
    _lock: File,
}

impl CallGroup {
    /// Makes groups that hold these bounds.
    pub(crate) fn make(places: &Places, bounds: &[(Controller, u64)]) -> Result<Self, String> {
        places.sweep();
        let mut call = Self { groups: Vec::new() };
        for (controller, most) in bounds {
            let place = places.of(*controller).ok_or("the host lets us make no control group")?;
            let known = call.groups.iter().position(|group| group.path.parent() == Some(place.parent.as_path()));
            let index = match known {
                Some(index) => index,
                None => {
                    call.groups.push(Group::make(place, *controller)?);
                    call.groups.len() - 1
                }
            };
            let group = &mut call.groups[index];
            group.controllers.push(*controller);
            group.bound(*controller, *most)?;
        }
        Ok(call)
    }

    /// The directories that a process enters.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.groups.iter().map(|group| group.path.as_path())
    }

    /// The bounds that the kernel counted as met.
    pub(crate) fn met(&self) -> Vec<Controller> {
        let groups = self.groups.iter().flat_map(|group| group.controllers.iter().map(move |known| (group, *known)));
        groups.filter(|(group, controller)| group.events(*controller) > 0).map(|(_, controller)| controller).collect()
    }
}

impl Group {
    fn make(place: &Place, controller: Controller) -> Result<Self, String> {
        if place.version == Version::Two {
            hand_on(&place.parent, controller)?;
        }
        for _ in 0..8 {
            let name = tempfile::Builder::new()
                .prefix(PREFIX)
                .rand_bytes(12)
                .make_in(&place.parent, |path| std::fs::create_dir(path));
            // The value would remove a file; this is a directory, and ours to remove.
            let path = name.map_err(|error| said("make a control group in", &place.parent, &error))?.into_temp_path();
            let path = path.keep().map_err(|error| said("keep", &place.parent, &error.error))?;
            // RACE: somebody who sweeps may have locked it first, and removes it; then there is another.
            let Ok(lock) = File::open(&path) else { continue };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() && path.is_dir() {
                return Ok(Self { path, version: place.version, controllers: Vec::new(), _lock: lock });
            }
        }
        Err(format!("every control group that was made in {} was removed", quote(&place.parent)))
    }

    fn bound(&self, controller: Controller, most: u64) -> Result<(), String> {
        let files: &[&str] = match (controller, self.version) {
            (Controller::Pids, _) => &["pids.max"],
            (Controller::Memory, Version::Two) => &["memory.max"],
            (Controller::Memory, Version::One) => &["memory.limit_in_bytes"],
        };
        let set = |file: &str, value: u64| {
            let path = self.path.join(file);
            std::fs::write(&path, value.to_string()).map_err(|error| said("write", &path, &error))
        };
        files.iter().try_for_each(|file| set(file, most))?;
        // Without swap a bound would be one on what is in memory, and the rest would go to the disk. A kernel without
        // these files counts no swap, and a host without swap has none.
        let swap: &[(&str, u64)] = match (controller, self.version) {
            (Controller::Pids, _) => &[],
            (Controller::Memory, Version::Two) => &[("memory.swap.max", 0)],
            (Controller::Memory, Version::One) => &[("memory.memsw.limit_in_bytes", most)],
        };
        let there = swap.iter().filter(|(file, _)| self.path.join(file).exists());
        there.copied().try_for_each(|(file, value)| set(file, value))
    }

    /// How often the kernel refused or killed because of a bound.
    fn events(&self, controller: Controller) -> u64 {
        let (file, key) = match (controller, self.version) {
            (Controller::Pids, _) => ("pids.events", "max"),
            (Controller::Memory, Version::Two) => ("memory.events", "oom_kill"),
            (Controller::Memory, Version::One) => ("memory.oom_control", "oom_kill"),
        };
        let text = std::fs::read_to_string(self.path.join(file)).unwrap_or_default();
        counted(&text, key)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        clear(&self.path, self.version);
    }
}

/// The number that stands after a key on a line of its own.
fn counted(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok());
    value.unwrap_or(0)
}

/// Has a group of version 2 give a controller to those below it.
fn hand_on(parent: &Path, controller: Controller) -> Result<(), String> {
    let file = parent.join("cgroup.subtree_control");
    let given = std::fs::read_to_string(&file).unwrap_or_default();
    if given.split_whitespace().any(|name| name == controller.name()) {
        return Ok(());
    }
    std::fs::write(&file, format!("+{}", controller.name())).map_err(|error| said("write", &file, &error))
}

/// Ends everything in a group and removes it.
fn clear(path: &Path, version: Version) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let begun = Instant::now();
    loop {
        // Usually the call has ended and so has everything in it. rmdir(2) refuses a group that has processes.
        match std::fs::remove_dir(path) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy && begun.elapsed() < PATIENCE => {}
            _ => return,
        }
        // SINCE(Linux 5.14): cgroup.kill. Without it, or in version 1, one after the other, and again for those that were
        // started meanwhile.
        if version == Version::One || std::fs::write(path.join("cgroup.kill"), "1").is_err() {
            let list = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
            for process in list.lines().filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?)) {
                // It may have ended by itself.
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn said(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}; {REMEDY}", quote(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 29 0:26 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
31 29 0:27 / /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu,cpuacct
32 29 0:28 /box /sys/fs/cgroup/unified rw - cgroup2 none rw,nsdelegate\n";

    #[test]
    fn our_own_group_is_found_in_each_hierarchy() {
        let own = "8:pids:/a/b\n2:cpu,cpuacct:/\n0::/box/in\n";
        let of = |own: &str, controller| directory(own, HYBRID, controller).map(|(own, _)| own);
        assert_eq!(of(own, Some("pids")), Some("/sys/fs/cgroup/pids/a/b".into()));
        assert_eq!(of(own, Some("cpuacct")), Some("/sys/fs/cgroup/cpu".into()));
        assert_eq!(of(own, None), Some("/sys/fs/cgroup/unified/in".into()));
        assert_eq!(of(own, Some("memory")), None);
        // Outside of what is mounted here, or above it.
        assert_eq!(of("0::/other\n", None), None);
        assert_eq!(of("0::/box/../x\n", None), None);
    }

    #[test]
    fn a_place_of_version_two_has_the_controller_and_no_processes() {
        let base = tempfile::tempdir().unwrap();
        let top = base.path().join("top");
        let own = top.join("slice/scope");
        std::fs::create_dir_all(&own).unwrap();
        let set = |directory: &Path, controllers: &str, given: &str, processes: &str| {
            for (file, text) in [
                ("cgroup.controllers", controllers),
                ("cgroup.subtree_control", given),
                ("cgroup.procs", processes),
                ("cgroup.type", "domain\n"),
            ] {
                std::fs::write(directory.join(file), text).unwrap();
            }
        };
        let place = |controller| of_version_two(&own, &top, controller).map(|place| place.parent);
        set(&top, "cpu memory pids", "", "1\n");
        set(&top.join("slice"), "memory pids", "pids", "");
        set(&own, "pids", "", "7\n");
        assert_eq!(place(Controller::Pids), Some(top.join("slice")));
        // It can be handed on, because nothing is in it.
        assert_eq!(place(Controller::Memory), Some(top.join("slice")));
        set(&top.join("slice"), "memory pids", "", "9\n");
        assert_eq!(place(Controller::Memory), None);
        set(&own, "pids memory", "", "");
        assert_eq!(place(Controller::Memory), Some(own.clone()));
    }

    #[test]
    fn events_are_counted_by_their_key_alone() {
        let text = "low 0\noom 3\noom_kill 2\noom_group_kill 7\n";
        assert_eq!((counted(text, "oom_kill"), counted(text, "max"), counted("", "max")), (2, 0, 0));
    }
}
