//! The mount wall: the whole tree read-only, and the few places that are not (mount_namespaces(7)).
//!
//! Runs as the first process of new user, mount and PID namespaces. The order matters: what stays writable is cloned
//! before the tree becomes read-only and attached after, so that no moment and no path leads around it.

use core::ffi::CStr;

use linux_raw_sys::general as g;

use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::spec::{Choice, Limit, Plan, Role, Root};
use crate::status::Line;
use crate::streams::TERMINAL_PLACES;
use crate::sys::{self, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};
use crate::words::number;

/// Nodes of `/dev` that the command has.
const DEVICES: [&CStr; 6] = [c"/dev/null", c"/dev/zero", c"/dev/full", c"/dev/random", c"/dev/urandom", c"/dev/tty"];

const DEVICE_LINKS: [(&CStr, &CStr); 5] = [
    (c"/proc/self/fd", c"/dev/fd"),
    (c"/proc/self/fd/0", c"/dev/stdin"),
    (c"/proc/self/fd/1", c"/dev/stdout"),
    (c"/proc/self/fd/2", c"/dev/stderr"),
    (c"pts/ptmx", c"/dev/ptmx"),
];

/// Maps our own user and group, and no other, to themselves (user_namespaces(7)).
pub(crate) fn map_ids(user: u32, group: u32) -> Result<(), Failure> {
    let directory = sys::open(sys::CWD, c"/proc/self", g::O_PATH | g::O_DIRECTORY, 0)
        .or_fail("id-map", "cannot open /proc/self")?;
    let write = |name: &'static CStr, line: &mut Line| {
        // A mount with a file open for writing cannot become read-only, so this one is closed at once.
        sys::open(directory, name, g::O_WRONLY, 0)
            .and_then(|fd| line.send(fd).map(|()| sys::close(fd)))
            .or_fail("id-map", "cannot write /proc/self/")
            .map_err(|failure| failure.of(name))
    };
    write(c"setgroups", Line::new().text("deny"))?;
    write(c"uid_map", Line::new().number(user.into()).text(" ").number(user.into()).text(" 1"))?;
    write(c"gid_map", Line::new().number(group.into()).text(" ").number(group.into()).text(" 1"))
}

/// Builds the tree. The process must be PID 1 of its namespace, with every capability in its user namespace.
///
/// Descriptors of trees are left open: the last close of a cloned tree takes the kernel's mount lock, and PID 1 closes all of
/// them anyway once the command runs, beside it. The command's copies are closed by its exec.
///
/// Returns the trees of the writable roots, in the plan's order.
pub(crate) fn build(plan: &Plan, terminals: [i32; 3]) -> Result<&'static [i32], Failure> {
    let mut devices = [0; DEVICES.len()];
    for (tree, path) in devices.iter_mut().zip(DEVICES) {
        *tree = sys::clone_tree(sys::CWD, path, false)
            .or_fail("mount-dev", "cannot clone")
            .map_err(|failure| failure.of(path))?;
    }

    // What is cloned from here on has these attributes, too: one call for all roots.
    sys::restrict_mount(sys::CWD, c"/", true, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
        .or_fail("mount-read-only", "cannot restrict the file system")?;
    let trees = sys::allocate_zeroed::<i32>(plan.roots).or_fail("root-open", "no memory")?;
    let places = sys::allocate_zeroed::<i32>(plan.roots).or_fail("root-open", "no memory")?;
    let mut hidden = Hidden::new(plan)?;
    for ((tree, place), root) in trees.iter_mut().zip(places.iter_mut()).zip(plan.writable_roots()) {
        (*tree, *place) = clone_root(&root).map_err(|failure| failure.of(root.path))?;
        if hidden.will_be(plan, root.path) {
            sys::close(*place);
            *place = -1;
        }
    }
    let placed = sys::allocate_zeroed::<i32>(plan.placed().count()).or_fail("root-open", "no memory")?;
    for (tree, (root, _)) in placed.iter_mut().zip(plan.placed()) {
        let (cloned, place) = clone_root(&root).map_err(|failure| failure.of(root.path))?;
        *tree = cloned;
        sys::close(place);
    }

    // SECURITY: from here on nothing in the tree is writable, also what the host mounts later: the mounts are private.
    let sealed = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    sys::restrict_mount(sys::CWD, c"/", true, sealed)
        .or_fail("mount-read-only", "cannot make the file system read-only")?;

    // What stays visible below a hollow directory is cloned as it is now: read-only.
    let kept = sys::allocate_zeroed::<i32>(plan.paths(Role::Keep).count()).or_fail("mount-cover", "no memory")?;
    for (tree, path) in kept.iter_mut().zip(plan.paths(Role::Keep)) {
        *tree = sys::clone_tree(sys::CWD, path, true)
            .or_fail("mount-cover", "cannot keep")
            .map_err(|failure| failure.of(path))?;
    }

    // Modes below are meant literally.
    let umask = sys::set_umask(0);
    for path in plan.paths(Role::Private) {
        sys::mount(c"tmpfs", path, g::MS_NOSUID | g::MS_NODEV, private_options(plan, &mut Line::new()))
            .or_fail("mount-private", "cannot mount a private directory over")
            .map_err(|failure| failure.of(path))?;
    }
    for (tree, (_, at)) in placed.iter().zip(plan.placed()) {
        sys::open(sys::CWD, at, g::O_PATH | g::O_DIRECTORY | g::O_NOFOLLOW, 0)
            .and_then(|target| sys::attach_tree(*tree, target))
            .or_fail("mount-private", "cannot mount a directory over")
            .map_err(|failure| failure.of(at))?;
    }
    let copies = sys::allocate_zeroed::<i32>(plan.paths(Role::OwnCopy).count()).or_fail("mount-cover", "no memory")?;
    let void = build_devices(plan, &devices, copies, terminals)?;
    // A read-only procfs has neither /proc/sys nor anything else that user id 0 could write; it shows our PID
    // namespace only. The kernel refuses it where the host's /proc is partly hidden.
    let proc = |flags| {
        let flags = flags | g::MS_NOSUID | g::MS_NODEV | g::MS_NOEXEC;
        sys::mount(c"proc", c"/proc", flags, c"").or_fail("mount-proc", "cannot mount /proc")
    };
    if let Some(most) = plan.limit(Limit::Pids) {
        proc(0)?;
        limit_numbers(most)?;
        proc(g::MS_REMOUNT | g::MS_RDONLY)?;
    } else {
        proc(g::MS_RDONLY)?;
    }
    sys::set_umask(0o022);
    for path in plan.paths(Role::Hollow) {
        sys::mount(c"tmpfs", path, g::MS_NOSUID | g::MS_NODEV | g::MS_NOEXEC, c"mode=700")
            .or_fail("mount-cover", "cannot hollow out")
            .map_err(|failure| failure.of(path))?;
    }
    for (tree, path) in kept.iter().zip(plan.paths(Role::Keep)) {
        keep(*tree, path).map_err(|failure| failure.of(path))?;
    }
    for path in plan.paths(Role::Hollow) {
        sys::restrict_mount(sys::CWD, path, false, MOUNT_ATTR_RDONLY)
            .or_fail("mount-cover", "cannot seal")
            .map_err(|failure| failure.of(path))?;
    }
    for ((tree, place), root) in trees.iter().zip(places.iter()).zip(plan.writable_roots()) {
        attach_root(*tree, *place, &root).map_err(|failure| failure.of(root.path))?;
    }
    for (copy, path) in copies.iter().zip(plan.paths(Role::OwnCopy)) {
        attach_copy(*copy, path).or_fail("mount-cover", "cannot cover").map_err(|failure| failure.of(path))?;
    }
    for path in plan.paths(Role::Cover) {
        void.cover(path).or_fail("mount-cover", "cannot cover").map_err(|failure| failure.of(path))?;
    }
    sys::set_umask(umask);
    Ok(trees)
}

/// Tells which roots will not be at their paths any more when they are attached, because something else is mounted over
/// what leads there.
struct Hidden {
    /// The last root that lies in no other, and the last one at all.
    outermost: Option<&'static CStr>,
    last: Option<&'static CStr>,
    /// The roots come in an order that tells which ones lie in others, and there are descriptors enough to keep their places.
    known: bool,
}

impl Hidden {
    fn new(plan: &Plan) -> Result<Self, Failure> {
        let (soft, _) = sys::limit(g::RLIMIT_NOFILE).or_fail("descriptors", "cannot read the limit on open files")?;
        Ok(Self { outermost: None, last: None, known: plan.descriptors(2) <= soft })
    }

    /// Asked for each root, in the plan's order.
    fn will_be(&mut self, plan: &Plan, path: &'static CStr) -> bool {
        self.known &= self.last.is_none_or(|last| order(last).le(order(path)));
        self.last = Some(path);
        if self.outermost.is_some_and(|root| lies_in(path, root)) {
            return true;
        }
        self.outermost = Some(path);
        let covers = plan.choices().filter_map(|choice| match choice {
            Choice::Path(Role::Private | Role::Hollow, at) | Choice::Place(_, at) => Some(at),
            _ => None,
        });
        !self.known || covers.chain([c"/dev", c"/proc"]).any(|at| lies_in(path, at))
    }
}

/// A path as it is ordered by its components: what lies in a directory follows it before anything else.
fn order(path: &CStr) -> impl Iterator<Item = u8> + use<'_> {
    path.to_bytes().iter().map(|byte| if *byte == b'/' { 0 } else { *byte })
}

fn lies_in(path: &CStr, directory: &CStr) -> bool {
    let rest = path.to_bytes().strip_prefix(directory.to_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || directory == c"/")
}

/// How a private directory is mounted.
fn private_options<'a>(plan: &Plan, line: &'a mut Line) -> &'a CStr {
    line.text("mode=1777");
    if let Some(most) = plan.limit(Limit::Temp) {
        // An empty file takes no room of the size, but memory of the kernel: one for each page, and some.
        line.text(",size=").number(most as i64).text(",nr_inodes=").number((most >> 12) as i64 + 1024);
    }
    line.as_cstr()
}

/// The first process number that is given out again once all have been used (pid_namespaces(7), "pid_max").
const FIRST_NUMBER: u64 = 300;

/// Leaves this PID namespace so many numbers for the processes and threads beside PID 1.
///
/// SINCE(Linux 6.14): each PID namespace has a pid_max of its own. It holds for everybody, also for root, whom
/// RLIMIT_NPROC does not bind.
fn limit_numbers(most: u64) -> Result<(), Failure> {
    let mut release = [0; 64];
    let length = sys::open(sys::CWD, c"/proc/sys/kernel/osrelease", g::O_RDONLY, 0)
        .and_then(|fd| sys::read(fd, &mut release).inspect(|_| sys::close(fd)))
        .or_fail("limit", "cannot tell the kernel's release")?;
    let mut parts = release[..length].split(|byte| !byte.is_ascii_digit()).map(|part| number(part).unwrap_or(0));
    // SECURITY: an older kernel has one number for all, and user 0 could change the host's from here.
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (6, 14) {
        return Err(Failure::new("limit", "Linux before 6.14 has no process numbers for one namespace"));
    }
    for (path, value) in [
        (c"/proc/sys/kernel/pid_max", FIRST_NUMBER.saturating_add(most)),
        // The numbers below would come on top, once.
        (c"/proc/sys/kernel/ns_last_pid", FIRST_NUMBER - 1),
    ] {
        sys::open(sys::CWD, path, g::O_WRONLY, 0)
            .and_then(|fd| Line::new().number(value as i64).send(fd).map(|()| sys::close(fd)))
            .or_fail("limit", "cannot write")
            .map_err(|failure| failure.of(path))?;
    }
    Ok(())
}

/// An empty directory and an empty file that nobody may open.
struct Void {
    directory: i32,
    file: i32,
}

impl Void {
    /// Makes both below `/dev/pts`, where the terminals' own file system hides them.
    fn make() -> Result<Self, Errno> {
        sys::make_directory(c"/dev/pts/void", 0)?;
        let directory = sys::open(sys::CWD, c"/dev/pts/void", g::O_PATH | g::O_DIRECTORY, 0)?;
        sys::close(sys::open(sys::CWD, c"/dev/pts/none", g::O_CREAT | g::O_EXCL | g::O_WRONLY, 0)?);
        let file = sys::open(sys::CWD, c"/dev/pts/none", g::O_PATH, 0)?;
        Ok(Self { directory, file })
    }

    /// Puts the one or the other over a path. What is not there inside (any more) needs no cover.
    fn cover(&self, path: &CStr) -> Result<(), Errno> {
        let target = match sys::open(sys::CWD, path, g::O_PATH | g::O_NOFOLLOW, 0) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            other => other?,
        };
        let empty = if sys::fstat(target)?.is(g::S_IFDIR) { self.directory } else { self.file };
        let tree = sys::clone_tree(empty, c"", false)?;
        sys::restrict_mount(tree, c"", false, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)?;
        sys::attach_tree(tree, target)?;
        // There may be more covers than descriptors.
        [tree, target].into_iter().for_each(sys::close);
        Ok(())
    }
}

/// The largest file that is copied, in bytes.
const MAX_COPY_BYTES: usize = 64 << 10;

/// Copies a file to a place that the terminals' own file system will hide; returns it as a detached tree. -1 if there is
/// no such file, or a larger one: then the original stays.
fn copy_file(path: &CStr, number: usize) -> Result<i32, Errno> {
    let mut place = *b"/dev/pts/aa\0";
    place[9] += (number / 26 % 26) as u8;
    place[10] += (number % 26) as u8;
    let place = CStr::from_bytes_with_nul(&place).map_err(|_| Errno::INVAL)?;
    let Ok(source) = sys::open(sys::CWD, path, g::O_RDONLY | g::O_NONBLOCK, 0) else { return Ok(-1) };
    let stat = sys::fstat(source)?;
    if !stat.is(g::S_IFREG) || stat.size as usize > MAX_COPY_BYTES {
        return Ok(-1);
    }
    let buffer = sys::allocate(MAX_COPY_BYTES)?;
    let length = sys::read(source, buffer)?;
    sys::close(source);
    let copy = sys::open(sys::CWD, place, g::O_CREAT | g::O_EXCL | g::O_WRONLY, stat.mode & 0o444)?;
    sys::write(copy, buffer.get(..length).unwrap_or_default())?;
    sys::close(copy);
    let tree = sys::clone_tree(sys::CWD, place, false)?;
    sys::restrict_mount(
        tree,
        c"",
        false,
        MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
    )?;
    Ok(tree)
}

/// Puts a copy over its original.
fn attach_copy(tree: i32, path: &CStr) -> Result<(), Errno> {
    if tree < 0 {
        return Ok(());
    }
    let target = sys::open(sys::CWD, path, g::O_PATH, 0)?;
    sys::attach_tree(tree, target)?;
    sys::close(target);
    Ok(())
}

/// Attaches a kept tree at its path, which is made inside the hollow directory.
fn keep(tree: i32, path: &'static CStr) -> Result<(), Failure> {
    let is_directory = sys::fstat(tree).or_fail("mount-cover", "cannot examine")?.is(g::S_IFDIR);
    make_path(path, is_directory)?;
    let target = sys::open(sys::CWD, path, g::O_PATH | g::O_NOFOLLOW, 0).or_fail("mount-cover", "cannot keep")?;
    sys::attach_tree(tree, target).or_fail("mount-cover", "cannot keep")?;
    sys::close(target);
    Ok(())
}

/// Opens a writable root, checks that it is the one that was meant, and clones it while it is writable. Returns the clone and
/// where it was.
fn clone_root(root: &Root) -> Result<(i32, i32), Failure> {
    // RACE: between the caller's look at the path and ours, confined code of an earlier call may have put a link or
    // another directory there; the identity decides, and what was opened is what gets mounted.
    let fd = sys::open(sys::CWD, root.path, g::O_PATH | g::O_DIRECTORY | g::O_NOFOLLOW, 0)
        .or_fail("root-open", "cannot open the writable root")?;
    check_identity(fd, root)?;
    let tree = sys::clone_tree(fd, c"", true).or_fail("root-open", "cannot clone the writable root")?;
    Ok((tree, fd))
}

fn check_identity(fd: i32, root: &Root) -> Result<(), Failure> {
    let stat = sys::fstat(fd).or_fail("root-open", "cannot examine the writable root")?;
    if (stat.device, stat.inode) == (root.device, root.inode) {
        Ok(())
    } else {
        Err(Failure::new("root-changed", "another directory is now at the path of the writable root"))
    }
}

/// Attaches a writable root at its own place, if it is still seen; else at its path, which below a private directory is made
/// first.
fn attach_root(tree: i32, place: i32, root: &Root) -> Result<(), Failure> {
    if place >= 0 {
        return sys::attach_tree(tree, place).or_fail("mount-root", "cannot mount the writable root");
    }
    let open = || sys::open(sys::CWD, root.path, g::O_PATH | g::O_DIRECTORY | g::O_NOFOLLOW, 0);
    let target = match open() {
        Ok(fd) => {
            check_identity(fd, root)?;
            fd
        }
        // The only writable places by now are the private directories and roots attached before.
        Err(Errno::NOENT) => {
            make_path(root.path, true)?;
            open().or_fail("mount-root", "cannot open the writable root inside")?
        }
        Err(errno) => return Err(errno).or_fail("mount-root", "cannot open the writable root inside"),
    };
    sys::attach_tree(tree, target).or_fail("mount-root", "cannot mount the writable root")?;
    sys::close(target);
    Ok(())
}

/// Makes a directory, or an empty file, and the directories above it.
fn make_path(path: &'static CStr, is_directory: bool) -> Result<(), Failure> {
    let mut buffer = [0_u8; g::PATH_MAX as usize];
    let bytes = path.to_bytes();
    if bytes.len() >= buffer.len() {
        return Err(Failure::new("mount-root", "the path is too long"));
    }
    for end in 1..=bytes.len() {
        if end < bytes.len() && bytes[end] != b'/' {
            continue;
        }
        buffer[..end].copy_from_slice(&bytes[..end]);
        buffer[end] = 0;
        let prefix = CStr::from_bytes_until_nul(&buffer).map_err(|_| Failure::new("mount-root", "not a path"))?;
        let made = if end < bytes.len() || is_directory {
            sys::make_directory(prefix, 0o755)
        } else {
            sys::open(sys::CWD, prefix, g::O_CREAT | g::O_RDONLY | g::O_NOFOLLOW, 0o444).map(sys::close)
        };
        match made {
            Ok(()) | Err(Errno::EXIST | Errno::ROFS) => {}
            Err(errno) => return Err(errno).or_fail("mount-root", "cannot make the way to it"),
        }
    }
    Ok(())
}

fn build_devices(
    plan: &Plan,
    devices: &[i32; DEVICES.len()],
    copies: &mut [i32],
    terminals: [i32; 3],
) -> Result<Void, Failure> {
    let mut build = || {
        sys::mount(c"tmpfs", c"/dev", g::MS_NOSUID | g::MS_NOEXEC, c"mode=755")?;
        for (tree, path) in devices.iter().zip(DEVICES) {
            let place = sys::open(sys::CWD, path, g::O_CREAT | g::O_EXCL | g::O_RDONLY | g::O_NOFOLLOW, 0o444)?;
            sys::attach_tree(*tree, place)?;
        }
        for (terminal, path) in terminals.iter().zip(TERMINAL_PLACES).filter(|(terminal, _)| **terminal >= 0) {
            let place = sys::open(sys::CWD, path, g::O_CREAT | g::O_EXCL | g::O_RDONLY, 0o444)?;
            sys::attach_tree(*terminal, place)?;
        }
        for (target, path) in DEVICE_LINKS {
            sys::make_symlink(target, path)?;
        }
        sys::make_directory(c"/dev/pts", 0o755)?;
        sys::make_directory(c"/dev/shm", 0o1777)?;
        let void =
            if plan.paths(Role::Cover).next().is_some() { Void::make()? } else { Void { directory: -1, file: -1 } };
        for (number, (copy, path)) in copies.iter_mut().zip(plan.paths(Role::OwnCopy)).enumerate() {
            *copy = copy_file(path, number)?;
        }
        // A device takes writes on a read-only mount, but its mode and owner do not change there.
        sys::restrict_mount(sys::CWD, c"/dev", true, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)?;
        sys::mount(c"devpts", c"/dev/pts", g::MS_NOSUID | g::MS_NOEXEC, c"newinstance,ptmxmode=0666,mode=620")?;
        if plan.shm {
            sys::mount(c"tmpfs", c"/dev/shm", g::MS_NOSUID | g::MS_NODEV, private_options(plan, &mut Line::new()))?;
        }
        Ok(void)
    };
    build().or_fail("mount-dev", "cannot build /dev")
}
