//! One look at the writable roots: which files there are that tools outside obey, and how they are.
//!
//! The tree is whatever a command made of it. So every step is relative to a descriptor and follows no link, nothing but
//! directories and small regular files is opened, and entries, files, bytes, depth and time are bounded. What tells most comes
//! first: what is obeyed before what is not, and upper directories before lower ones.
//!
//! RACE: whatever still runs may move things while we look. Then something is seen at neither or both of two places; it is
//! never looked for outside of the root.
//!
//! References: openat2(2), getdents(2), path_resolution(7).

use super::{HostFileBounds, Seen};
use crate::roots::PinnedRoot;
use pinfold_policy::quote::quote;
use pinfold_policy::{Ground, Obeyed, Sight};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::{CStr, OsStr, OsString};
use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A larger file is compared by size, identity and times only.
const MOST_CONTENT: usize = 128 << 10;
/// How much content one look reads.
const MOST_CONTENT_IN_ALL: usize = 8 << 20;
/// What cargo leaves in a directory of its output, which is not looked into.
const MARK_OF_CARGO: &str = ".rustc_info.json";

/// What one look found.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) seen: BTreeMap<PathBuf, Seen>,
    /// Directories of which not every entry was looked at, or none.
    pub(super) unseen: HashSet<PathBuf>,
    /// When it began, in seconds and nanoseconds of the host's clock.
    pub(super) began: (i64, i64),
    /// Why something was not looked at, in whole sentences.
    pub(super) reasons: Vec<String>,
}

impl Look {
    /// Whether whatever had this name would have been seen.
    pub(super) fn covers(&self, path: &Path) -> bool {
        self.unseen.is_empty() || !path.ancestors().skip(1).any(|above| self.unseen.contains(above))
    }
}

/// A file that is looked at because of where it is, whatever its name.
#[derive(Debug)]
pub(super) struct Target {
    /// Which root it lies in.
    pub(super) root: usize,
    /// Where in it.
    pub(super) below: PathBuf,
    pub(super) row: &'static Obeyed,
}

/// Looks at all roots. Content that a look before has read is not read again, if nothing says that it is another.
pub(super) fn look(
    roots: &[PinnedRoot],
    targets: &[Target],
    bounds: HostFileBounds,
    state: &RandomState,
    before: Option<&Look>,
) -> Look {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), i64::from(now.subsec_nanos()));
    let mut walk = Walk {
        bounds,
        begun: Instant::now(),
        state,
        before,
        entries: 0,
        content: 0,
        found: Look { began, ..Look::default() },
        open: VecDeque::new(),
        unreadable: None,
        full: false,
        deep: false,
        untold: false,
    };
    for (index, root) in roots.iter().enumerate() {
        // One that lies in another is looked at with it.
        if roots.iter().any(|outer| outer != root && root.path.starts_with(&outer.path)) {
            continue;
        }
        match open_root(root) {
            Ok(fd) => walk.root(root, &fd, targets.iter().filter(|target| target.root == index)),
            Err(why) => {
                walk.found.unseen.insert(root.path.clone());
                walk.found.reasons.push(why);
            }
        }
    }
    walk.end()
}

fn open_root(root: &PinnedRoot) -> Result<OwnedFd, String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, &root.path, flags, Mode::empty()).and_then(|fd| Ok((fstat(&fd)?, fd)));
    match opened {
        Ok((stat, fd)) if (stat.st_dev, stat.st_ino) == (root.device, root.inode) => Ok(fd),
        Ok(_) => Err(format!("{} is another directory now.", quote(&root.path))),
        Err(error) => Err(format!("{} cannot be opened: {error}.", quote(&root.path))),
    }
}

/// A part of a look, relative to the root.
enum Step {
    /// Look into a directory.
    Enter(PathBuf, Ground),
    /// Look at the modes of these of its entries; that takes longest, and is worth least.
    Modes(PathBuf, Vec<OsString>),
}

struct Walk<'a> {
    bounds: HostFileBounds,
    begun: Instant,
    state: &'a RandomState,
    before: Option<&'a Look>,
    entries: u64,
    content: usize,
    found: Look,
    /// What is to be done, relative to the root.
    open: VecDeque<Step>,
    /// The first directory that could not be read, why, and how many there are.
    unreadable: Option<(PathBuf, Errno, u64)>,
    full: bool,
    deep: bool,
    untold: bool,
}

impl Walk<'_> {
    fn root<'t>(&mut self, root: &PinnedRoot, fd: &OwnedFd, targets: impl Iterator<Item = &'t Target>) {
        self.open.push_back(Step::Enter(PathBuf::new(), Ground::Open));
        for target in targets {
            self.target(root, fd, target);
        }
        while let Some(step) = self.open.pop_front() {
            let (below, ground) = match step {
                Step::Enter(below, ground) => (below, ground),
                Step::Modes(below, names) => {
                    self.modes(root, fd, &below, &names);
                    continue;
                }
            };
            let at = root.path.join(&below);
            if self.is_over(ground) {
                self.full = true;
                self.found.unseen.insert(at);
                continue;
            }
            if below.components().count() > self.bounds.depth {
                self.deep = true;
                self.found.unseen.insert(at);
                continue;
            }
            let listed = open_below(fd, &below, OFlags::RDONLY | OFlags::DIRECTORY).and_then(|directory| {
                let names = self.list(&at, &directory)?;
                Ok((directory, names))
            });
            match listed {
                Ok((directory, names)) => self.directory(&at, &below, &directory, names, ground),
                // Gone since it was found, or replaced.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => {
                    self.found.unseen.insert(at.clone());
                    self.unreadable.get_or_insert((at, errno, 0)).2 += 1;
                }
            }
        }
    }

    /// Whether a bound is reached. What is obeyed has its own: a crowd beside it must not take its part.
    fn is_over(&self, ground: Ground) -> bool {
        let (entries, time) = if ground == Ground::Open { (1, 1) } else { (2, 10) };
        self.entries >= self.bounds.max_entries * entries
            || self.found.seen.len() >= self.bounds.files
            || self.begun.elapsed() >= self.bounds.max_time * time
    }

    /// Lists a directory. One with very many entries has its share, so that others are looked at as well; what is obeyed by a
    /// single name is then looked for by that name.
    fn list(&mut self, at: &Path, directory: &OwnedFd) -> Result<Vec<(OsString, FileType)>, Errno> {
        let share = (self.bounds.max_entries / 10).max(1);
        let mut names = Vec::new();
        let mut listing = Dir::read_from(directory)?;
        for count in 0_u64.. {
            let Some(entry) = listing.next() else { return Ok(names) };
            let entry = entry?;
            let late = count % 256 == 255 && self.begun.elapsed() >= self.bounds.max_time * 10;
            if count > share || late {
                break;
            }
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.entries += 1;
            names.push((os(name), entry.file_type()));
        }
        self.full = true;
        self.found.unseen.insert(at.to_owned());
        let known: HashSet<&OsStr> = names.iter().map(|(name, _)| name.as_os_str()).collect();
        let missed = Obeyed::single_names().filter(|name| !known.contains(OsStr::new(name))).filter_map(|name| {
            let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some((OsString::from(name), FileType::from_raw_mode(stat.st_mode)))
        });
        let missed: Vec<_> = missed.collect();
        names.extend(missed);
        Ok(names)
    }

    fn directory(
        &mut self,
        at: &Path,
        below: &Path,
        directory: &OwnedFd,
        names: Vec<(OsString, FileType)>,
        ground: Ground,
    ) {
        let ground = ground.with_entries(|name| names.iter().any(|(known, _)| known == name));
        let mut modes = Vec::new();
        for (name, kind) in names {
            let kind = match kind {
                FileType::Unknown => {
                    // Gone since it was listed.
                    let Ok(stat) = statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            let sight = ground.sight(at, &name);
            let inner = match sight {
                Sight::Nothing => continue,
                Sight::Obeyed(row) => {
                    self.record(at, directory, &name, row, None);
                    Ground::Below(row)
                }
                Sight::Entrance(row, inner) => {
                    self.record(at, directory, &name, row, None);
                    inner
                }
                Sight::Way(inner) => inner,
                Sight::IfExecutable(row) => {
                    if kind == FileType::Symlink {
                        self.record(at, directory, &name, row, None);
                    } else if kind == FileType::RegularFile {
                        self.executable(at, directory, &name, row);
                    }
                    Ground::Open
                }
            };
            match kind {
                FileType::Directory => {
                    let is_target = inner == Ground::Open && name == "target";
                    match if is_target { marked_by_cargo(directory, &name) } else { None } {
                        // Anybody can put the mark there; so that it came is told.
                        Some(target) => {
                            self.record(&at.join(name), &target, OsStr::new(MARK_OF_CARGO), Obeyed::left_out(), None);
                        }
                        None if inner == Ground::Open => self.open.push_back(Step::Enter(below.join(name), inner)),
                        None => self.open.push_front(Step::Enter(below.join(name), inner)),
                    }
                }
                FileType::RegularFile if matches!(sight, Sight::Way(_)) => modes.push(name),
                _ => {}
            }
        }
        if !modes.is_empty() {
            self.open.push_back(Step::Modes(below.to_owned(), modes));
        }
    }

    /// Looks for files that run as their owner or group.
    fn modes(&mut self, root: &PinnedRoot, fd: &OwnedFd, below: &Path, names: &[OsString]) {
        let at = root.path.join(below);
        let Ok(directory) = open_below(fd, below, OFlags::PATH | OFlags::DIRECTORY) else { return };
        for (index, name) in names.iter().enumerate() {
            if index % 64 == 0 && self.begun.elapsed() >= self.bounds.max_time {
                self.full = true;
                self.found.unseen.insert(at);
                return;
            }
            if let Ok(stat) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && stat.st_mode & 0o6000 != 0
            {
                self.record(&at, &directory, name, Obeyed::set_id(), Some(stat));
            }
        }
    }

    fn executable(&mut self, at: &Path, directory: &OwnedFd, name: &OsStr, row: &'static Obeyed) {
        if let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            && stat.st_mode & 0o6111 != 0
        {
            self.record(at, directory, name, row, Some(stat));
        }
    }

    /// Looks at what something obeyed leads to.
    fn target(&mut self, root: &PinnedRoot, fd: &OwnedFd, target: &Target) {
        let Target { below, row, .. } = target;
        let (Some(above), Some(name)) = (below.parent(), below.file_name()) else { return };
        let Ok(directory) = open_below(fd, above, OFlags::PATH | OFlags::DIRECTORY) else { return };
        let Ok(stat) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        self.record(&root.path.join(above), &directory, name, row, Some(stat));
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.open.push_front(Step::Enter(below.clone(), Ground::Below(row)));
        }
    }

    fn record(&mut self, at: &Path, directory: &OwnedFd, name: &OsStr, row: &'static Obeyed, stat: Option<Stat>) {
        // What is obeyed for a better reason stands already: a target may be met twice.
        let path = at.join(name);
        if self.found.seen.contains_key(&path) {
            return;
        }
        let Some(stat) = stat.or_else(|| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()) else { return };
        if self.found.seen.len() >= self.bounds.files {
            self.full = true;
            self.found.unseen.insert(at.to_owned());
            return;
        }
        let mut seen = Seen::of(row, &stat);
        let known = self.before.and_then(|look| Some((look.seen.get(&path)?, look.began)));
        let same = known.filter(|(before, began)| before.is_as(&seen) && !since(seen.changed, *began));
        let told = same.is_none() || seen.kind != FileType::RegularFile || tells_of_mapped_writes(directory);
        match same.filter(|_| told) {
            Some((before, _)) => seen.content = before.content,
            None => {
                let room = MOST_CONTENT_IN_ALL.saturating_sub(self.content);
                self.content += seen.read(directory.as_fd(), name, self.state, room);
                self.untold |= !told && seen.content.is_none();
            }
        }
        self.found.seen.insert(path, seen);
    }

    fn end(mut self) -> Look {
        let HostFileBounds { max_entries, max_time, files, depth } = self.bounds;
        if self.full {
            self.found.reasons.push(format!(
                "There is more than one look takes: {max_entries} entries, a tenth of them in one directory; {files} \
                 files to compare; {} ms.",
                max_time.as_millis()
            ));
        }
        if self.untold {
            let reason =
                "A long file lies where the times of a file do not tell of writes through a mapping (mmap(2)).";
            self.found.reasons.push(reason.to_owned());
        }
        if self.deep {
            self.found.reasons.push(format!("Directories deeper than {depth} were not looked into."));
        }
        if let Some((path, errno, count)) = &self.unreadable {
            let more = if *count > 1 { format!(", and {} more", count - 1) } else { String::new() };
            self.found.reasons.push(format!("{} cannot be read: {errno}{more}.", quote(path)));
        }
        self.found
    }
}

/// Opens a directory of cargo's output, if it is marked as one.
fn marked_by_cargo(directory: &OwnedFd, name: &OsStr) -> Option<OwnedFd> {
    let target = open_below(directory, Path::new(name), OFlags::PATH | OFlags::DIRECTORY).ok()?;
    statat(&target, MARK_OF_CARGO, AtFlags::SYMLINK_NOFOLLOW).is_ok().then_some(target)
}

impl Seen {
    /// Describes a file without its content.
    pub(super) fn of(row: &'static Obeyed, stat: &Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let set_id = kind == FileType::RegularFile && stat.st_mode & 0o6000 != 0;
        Self {
            row: if set_id { Obeyed::set_id() } else { row },
            kind,
            mode: stat.st_mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size,
            written: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
            content: None,
        }
    }

    /// Reads its content, if that fits into `room` bytes, and returns how much it is.
    pub(super) fn read(&mut self, directory: BorrowedFd<'_>, name: &OsStr, state: &RandomState, room: usize) -> usize {
        match self.kind {
            FileType::RegularFile => {
                let size = usize::try_from(self.size).ok().filter(|size| *size <= MOST_CONTENT.min(room));
                self.content = size.and_then(|size| digest(directory, name, size, state));
                size.filter(|_| self.content.is_some()).unwrap_or(0)
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new()).ok();
                self.content = target.map(|target| state.hash_one(target.as_bytes()));
                0
            }
            _ => 0,
        }
    }

    /// Whether nothing says that it is another file, or holds something else.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        let facts = |it: &Self| (it.kind, it.file, it.size, it.written, it.changed);
        facts(self) == facts(other)
    }
}

/// Whether a write through a shared mapping moves the times of a file there. It does where the file system is asked at the first
/// write to a page; on tmpfs a page that was read before is written without anybody's knowing (mmap(2) promises only that the
/// times are moved before msync(2)).
fn tells_of_mapped_writes(directory: &OwnedFd) -> bool {
    // statfs(2): ext4, XFS, btrfs, F2FS.
    const TELLING: [i64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
    rustix::fs::fstatfs(directory).is_ok_and(|stat| TELLING.contains(&stat.f_type))
}

/// What a file holds, as a number that nobody can aim at: the key is this process's.
fn digest(directory: BorrowedFd<'_>, name: &OsStr, size: usize, state: &RandomState) -> Option<u64> {
    // SECURITY: a FIFO that has come to be there must not make us wait, nor a terminal become ours.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty()).ok()?;
    let now = fstat(&file).ok()?;
    if FileType::from_raw_mode(now.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut content = vec![0; size + 1];
    let mut length = 0;
    while length < content.len() {
        match rustix::io::read(&file, &mut content[length..]).ok()? {
            0 => break,
            count => length += count,
        }
    }
    (length == size).then(|| state.hash_one(&content[..length]))
}

/// Opens something below a root, through no link.
pub(super) fn open_below(root: &OwnedFd, below: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(root, below, flags, Mode::empty(), resolve) {
        // SINCE(Linux 5.6): and where a container's filter refuses it.
        Err(Errno::NOSYS | Errno::PERM) => {}
        outcome => return outcome,
    }
    let names = below.components().filter(|name| matches!(name, Component::Normal(_)));
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = openat(root, ".", step, Mode::empty())?;
    for name in names {
        at = openat(&at, name.as_os_str(), step, Mode::empty())?;
    }
    openat(&at, ".", flags, Mode::empty())
}

fn os(name: &CStr) -> OsString {
    OsString::from_vec(name.to_bytes().to_vec())
}

/// How much earlier than the clock the time of a change may stand: file systems take the clock of the last tick.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// Whether something changed at or after a time, as far as the clock of file systems tells.
pub(super) fn since(changed: (i64, i64), began: (i64, i64)) -> bool {
    let tick = i64::from(TICK.subsec_nanos());
    let earliest =
        if began.1 >= tick { (began.0, began.1 - tick) } else { (began.0 - 1, began.1 + 1_000_000_000 - tick) };
    changed >= earliest
}
