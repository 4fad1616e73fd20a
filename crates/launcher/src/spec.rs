//! The plan: which walls to raise, as words (`docs/launcher.md` is the grammar). Parses; does nothing.

use core::ffi::CStr;

use linux_raw_sys::general as g;

use crate::entry::Start;
use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::sys::{self, Text};
use crate::words::{Words, number};

/// The largest plan that is read from a descriptor or a file, in bytes.
const MAX_PLAN_BYTES: usize = 16 << 20;

/// The largest bound: far more than there is of anything, and far from where sums overflow.
const MAX_LIMIT: u64 = 1 << 62;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wall {
    Namespace,
    Landlock,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    /// The host's.
    Open,
    /// A network namespace with a loopback device of its own.
    Private,
    /// No sockets but unix ones.
    Off,
}

/// A directory that stays writable, and the identity that it must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) path: &'static CStr,
}

/// What becomes of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// This directory is an empty private one.
    Private,
    /// Nothing below this path can be seen or opened.
    Cover,
    /// This directory appears empty, but for kept paths.
    Hollow,
    /// A copy that belongs to the user covers this file.
    OwnCopy,
    /// This path stays visible, read-only, below a hollow directory.
    Keep,
}

/// What is bounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limit {
    /// A limit of setrlimit(2).
    Resource(u32),
    /// The numbers that the PID namespace has for processes.
    Pids,
    /// The size of each private directory.
    Temp,
}

/// One word of the grammar with its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    Wall(Wall),
    Landlock(u32),
    Write(Root),
    /// A directory of the host that is seen, writable, at another path.
    Place(Root, &'static CStr),
    Path(Role, &'static CStr),
    Limit(Limit, u64),
    Network(Network),
    Shm,
    OwnIpc,
    /// Every place to be written to is a mount of its own, made by an outer wall.
    Mounted,
    DenyMetadata,
    Directory(&'static CStr),
    Set(&'static CStr),
    Unset(&'static CStr),
    Restore,
    Supervise,
    DieWithParent,
    Guarded,
    StatusDescriptor(i32),
    StatusFile(&'static CStr),
    /// A socket on which the broker waits for the filter's listener.
    Broker(i32),
    /// A socket on which the command comes once the walls stand.
    Await(i32),
    /// The broker answers for connections of sockets as well.
    BrokerConnections,
    FromDescriptor(i32),
    FromFile(&'static CStr),
    /// `--`: the command follows.
    End,
}

/// What to do, and what to execute.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) wall: Wall,
    /// The Landlock ABI that is required; 0 for none.
    pub(crate) landlock: u32,
    pub(crate) network: Network,
    pub(crate) shm: bool,
    /// Another program has made an IPC namespace around us.
    pub(crate) own_ipc: bool,
    /// An outer wall has made mounts, and a PID namespace, around this process.
    pub(crate) mounted: bool,
    pub(crate) deny_metadata: bool,
    pub(crate) directory: Option<&'static CStr>,
    /// Variables that were put aside outside are given back.
    pub(crate) restore: bool,
    pub(crate) supervise: bool,
    pub(crate) die_with_parent: bool,
    /// `--outside --guard` began this call.
    pub(crate) guarded: bool,
    pub(crate) status_descriptor: Option<i32>,
    pub(crate) status_file: Option<&'static CStr>,
    pub(crate) broker: Option<i32>,
    /// Where the command comes from, if it is not known yet.
    pub(crate) awaits: Option<i32>,
    pub(crate) broker_connections: bool,
    /// How many writable roots there are.
    pub(crate) roots: usize,
    /// The command and its arguments; empty if it is not known yet, and only then.
    pub(crate) command: &'static [Text],
    pub(crate) environment: &'static [Text],
    /// Read once: there may be thousands, and each is asked for by many.
    choices: &'static [Choice],
}

impl Plan {
    /// Whether the command can name processes outside.
    pub(crate) fn shows_outside(&self) -> bool {
        self.wall == Wall::Landlock && !self.mounted
    }

    /// The choices in the order in which they were written.
    pub(crate) fn choices(&self) -> impl Iterator<Item = Choice> + use<> {
        self.choices.iter().copied()
    }

    pub(crate) fn writable_roots(&self) -> impl Iterator<Item = Root> + use<> {
        self.choices().filter_map(|choice| if let Choice::Write(root) = choice { Some(root) } else { None })
    }

    /// Directories that are seen elsewhere, and where.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (Root, &'static CStr)> + use<> {
        self.choices().filter_map(|choice| if let Choice::Place(root, at) = choice { Some((root, at)) } else { None })
    }

    /// The paths of one role, in the order in which they were written.
    pub(crate) fn paths(&self, wanted: Role) -> impl Iterator<Item = &'static CStr> + use<> {
        self.choices().filter_map(move |choice| match choice {
            Choice::Path(role, path) if role == wanted => Some(path),
            _ => None,
        })
    }

    /// The bounds on what the command uses up.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (Limit, u64)> + use<> {
        self.choices()
            .filter_map(|choice| if let Choice::Limit(kind, most) = choice { Some((kind, most)) } else { None })
    }

    /// How many descriptors building the mount tree takes, with so many for each root.
    pub(crate) fn descriptors(&self, each: usize) -> u64 {
        let kept = self.paths(Role::Keep).count() + self.paths(Role::OwnCopy).count() + self.placed().count();
        (self.roots * each + kept) as u64 + 64
    }

    /// The smallest bound of one kind.
    pub(crate) fn limit(&self, wanted: Limit) -> Option<u64> {
        self.limits().filter(|(kind, _)| *kind == wanted).map(|(_, most)| most).min()
    }
}

fn usage(what: &'static str) -> Failure {
    Failure::new("usage", what)
}

/// Reads the plan of this process from its arguments, or from where they say.
pub(crate) fn read(start: Start) -> Result<Plan, Failure> {
    let mut words = Words::Arguments(start.arguments.get(1..).unwrap_or_default());
    if words.next() != Some(c"--spec") {
        return Err(usage("the first argument must be --spec (see docs/launcher.md)"));
    }
    match words.next() {
        Some(version) if version == c"1" => {}
        Some(version) => return Err(Failure::new("spec", "this launcher reads version 1, not").of(version)),
        None => return Err(usage("--spec needs a version")),
    }
    let mut options = words;
    let elsewhere = match next_choice(&mut words)? {
        Some(Choice::FromDescriptor(descriptor)) => Some(load(descriptor)?),
        Some(Choice::FromFile(path)) => {
            let fd = sys::open(sys::CWD, path, g::O_RDONLY | g::O_NOFOLLOW | g::O_NONBLOCK, 0)
                .or_fail("spec", "cannot open the plan")
                .map_err(|failure| failure.of(path))?;
            check_plan_file(fd).map_err(|failure| failure.of(path))?;
            Some(load(fd)?)
        }
        _ => None,
    };
    if let Some(block) = elsewhere {
        if next_choice(&mut words)? != Some(Choice::End) {
            return Err(usage("--from-fd and --from-file stand alone before --"));
        }
        options = Words::Block(block);
    } else {
        words = options;
        while !matches!(next_choice(&mut words)?, Some(Choice::End) | None) {}
    }
    let Words::Arguments(command) = words else { return Err(usage("no command")) };
    assemble(options, command, start.environment)
}

/// Collects the choices and checks that they make sense together.
fn assemble(words: Words, command: &'static [Text], environment: &'static [Text]) -> Result<Plan, Failure> {
    let mut wall = None;
    let mut landlock = None;
    let mut network = None;
    let mut plan = Plan {
        wall: Wall::Namespace,
        landlock: 0,
        network: Network::Open,
        shm: false,
        own_ipc: false,
        mounted: false,
        deny_metadata: false,
        directory: None,
        restore: false,
        supervise: false,
        die_with_parent: false,
        guarded: false,
        status_descriptor: None,
        status_file: None,
        broker: None,
        awaits: None,
        broker_connections: false,
        roots: 0,
        command,
        environment,
        choices: &[],
    };
    let mut rest = words;
    let mut count = 0;
    while let Some(choice) = next_choice(&mut rest)? {
        let twice = match choice {
            Choice::Wall(value) => wall.replace(value).is_some(),
            Choice::Landlock(value) => landlock.replace(value).is_some(),
            Choice::Write(_) => {
                plan.roots += 1;
                false
            }
            Choice::Shm => core::mem::replace(&mut plan.shm, true),
            Choice::OwnIpc => core::mem::replace(&mut plan.own_ipc, true),
            Choice::Mounted => core::mem::replace(&mut plan.mounted, true),
            Choice::DenyMetadata => core::mem::replace(&mut plan.deny_metadata, true),
            Choice::Directory(path) => plan.directory.replace(path).is_some(),
            Choice::Restore => core::mem::replace(&mut plan.restore, true),
            Choice::Supervise => core::mem::replace(&mut plan.supervise, true),
            Choice::DieWithParent => core::mem::replace(&mut plan.die_with_parent, true),
            Choice::Guarded => core::mem::replace(&mut plan.guarded, true),
            Choice::StatusDescriptor(fd) => plan.status_descriptor.replace(fd).is_some() || plan.status_file.is_some(),
            Choice::StatusFile(path) => plan.status_file.replace(path).is_some() || plan.status_descriptor.is_some(),
            Choice::Broker(fd) => plan.broker.replace(fd).is_some(),
            Choice::Await(fd) => plan.awaits.replace(fd).is_some(),
            Choice::BrokerConnections => core::mem::replace(&mut plan.broker_connections, true),
            Choice::Network(value) => network.replace(value).is_some(),
            Choice::Place(..) | Choice::Path(..) | Choice::Limit(..) | Choice::Set(_) | Choice::Unset(_) => false,
            Choice::FromDescriptor(_) | Choice::FromFile(_) => true,
            // SECURITY: in a block nothing may follow unread; walls could be among it.
            Choice::End if matches!(words, Words::Block(_)) => {
                return Err(usage("-- has no place in a plan that is read from elsewhere"));
            }
            Choice::End => break,
        };
        count += 1;
        if twice {
            return Err(usage("an option that may stand once stands twice, or two exclude each other"));
        }
    }
    rest = words;
    let valid = core::iter::from_fn(|| next_choice(&mut rest).ok().flatten());
    plan.choices = sys::collect(valid, count).or_fail("spec", "no memory")?;
    plan.wall = wall.ok_or(usage("--wall is required"))?;
    plan.landlock = landlock.ok_or(usage("--landlock is required"))?;
    if plan.wall == Wall::Landlock && plan.landlock == 0 {
        return Err(usage("--wall landlock needs --landlock 1 or more"));
    }
    plan.network = network.unwrap_or(Network::Open);
    if plan.wall == Wall::Landlock {
        if plan.choices().any(|choice| matches!(choice, Choice::Path(role, _) if role != Role::Private)) {
            return Err(usage("--cover, --hollow, --own-copy and --keep need --wall namespace"));
        }
        if plan.placed().next().is_some() {
            return Err(usage("--place needs --wall namespace"));
        }
        if plan.limits().any(|(kind, _)| !matches!(kind, Limit::Resource(_))) {
            return Err(usage("--limit pids and --limit temp need --wall namespace"));
        }
    }
    if plan.own_ipc && (plan.wall == Wall::Namespace || plan.broker.is_some()) {
        return Err(usage("--own-ipc is for --wall landlock without --broker-fd"));
    }
    if plan.guarded && (plan.wall == Wall::Namespace || !plan.supervise || plan.broker.is_some()) {
        return Err(usage("--guarded is for --wall landlock --supervise without --broker-fd"));
    }
    if plan.wall == Wall::Namespace && plan.mounted {
        return Err(usage("--mounted needs --wall landlock"));
    }
    if plan.broker.is_some() && plan.deny_metadata {
        return Err(usage("--broker-fd and --deny-metadata exclude each other"));
    }
    if plan.awaits.is_some() && (plan.wall == Wall::Landlock || plan.broker.is_some() || plan.directory.is_some()) {
        return Err(usage("--await-fd is for --wall namespace without --broker-fd and --cwd"));
    }
    if plan.broker_connections && plan.broker.is_none() {
        return Err(usage("--broker-connections needs --broker-fd"));
    }
    if command.is_empty() != plan.awaits.is_some() {
        return Err(usage("missing `-- COMMAND`, or one beside --await-fd"));
    }
    Ok(plan)
}

/// Takes the next option and its values; `None` at the end of the list.
fn next_choice(words: &mut Words) -> Result<Option<Choice>, Failure> {
    let Some(word) = words.next() else { return Ok(None) };
    let mut value = || words.next().ok_or(usage("an option lacks its value:").of(word));
    let absolute = |path: &'static CStr| {
        if path.to_bytes().starts_with(b"/") { Ok(path) } else { Err(usage("not an absolute path:").of(path)) }
    };
    let descriptor = |text: &'static CStr| {
        number(text.to_bytes())
            .and_then(|fd| i32::try_from(fd).ok())
            .filter(|fd| *fd > 2)
            .ok_or(usage("not a descriptor above 2:").of(text))
    };
    Ok(Some(match word.to_bytes() {
        b"--" => Choice::End,
        b"--wall" => match value()?.to_bytes() {
            b"namespace" => Choice::Wall(Wall::Namespace),
            b"landlock" => Choice::Wall(Wall::Landlock),
            _ => return Err(usage("--wall is namespace or landlock")),
        },
        b"--landlock" => {
            let text = value()?;
            let abi = number(text.to_bytes()).and_then(|abi| u32::try_from(abi).ok());
            Choice::Landlock(abi.ok_or(usage("not a Landlock ABI:").of(text))?)
        }
        b"--write" | b"--place" => {
            let identity = value()?;
            let (device, inode) =
                device_and_inode(identity.to_bytes()).ok_or(usage("not DEVICE:INODE:").of(identity))?;
            let root = Root { device, inode, path: absolute(value()?)? };
            if word == c"--write" { Choice::Write(root) } else { Choice::Place(root, absolute(value()?)?) }
        }
        b"--private" => Choice::Path(Role::Private, absolute(value()?)?),
        b"--cover" => Choice::Path(Role::Cover, absolute(value()?)?),
        b"--hollow" => Choice::Path(Role::Hollow, absolute(value()?)?),
        b"--own-copy" => Choice::Path(Role::OwnCopy, absolute(value()?)?),
        b"--keep" => Choice::Path(Role::Keep, absolute(value()?)?),
        b"--limit" => {
            let kind = match value()?.to_bytes() {
                b"cpu" => Limit::Resource(g::RLIMIT_CPU),
                b"data" => Limit::Resource(g::RLIMIT_DATA),
                b"file" => Limit::Resource(g::RLIMIT_FSIZE),
                b"open-files" => Limit::Resource(g::RLIMIT_NOFILE),
                b"processes" => Limit::Resource(g::RLIMIT_NPROC),
                b"pids" => Limit::Pids,
                b"temp" => Limit::Temp,
                _ => return Err(usage("--limit is cpu, data, file, open-files, processes, pids or temp")),
            };
            let text = value()?;
            // Nothing is bounded by 0: a file system of that size has no bound at all.
            let most = number(text.to_bytes()).filter(|most| (1..=MAX_LIMIT).contains(most));
            Choice::Limit(kind, most.ok_or(usage("not a number from 1 to 2^62:").of(text))?)
        }
        b"--network" => match value()?.to_bytes() {
            b"open" => Choice::Network(Network::Open),
            b"private" => Choice::Network(Network::Private),
            b"off" => Choice::Network(Network::Off),
            _ => return Err(usage("--network is open, private or off")),
        },
        b"--shm" => Choice::Shm,
        b"--own-ipc" => Choice::OwnIpc,
        b"--mounted" => Choice::Mounted,
        b"--deny-metadata" => Choice::DenyMetadata,
        b"--cwd" => Choice::Directory(absolute(value()?)?),
        b"--set" => {
            let text = value()?;
            match text.to_bytes().iter().position(|byte| *byte == b'=') {
                Some(1..) => Choice::Set(text),
                _ => return Err(usage("not NAME=VALUE:").of(text)),
            }
        }
        b"--unset" => Choice::Unset(value()?),
        b"--restore" => Choice::Restore,
        b"--supervise" => Choice::Supervise,
        b"--die-with-parent" => Choice::DieWithParent,
        b"--guarded" => Choice::Guarded,
        b"--status-fd" => Choice::StatusDescriptor(descriptor(value()?)?),
        b"--status-file" => Choice::StatusFile(absolute(value()?)?),
        b"--broker-fd" => Choice::Broker(descriptor(value()?)?),
        b"--await-fd" => Choice::Await(descriptor(value()?)?),
        b"--broker-connections" => Choice::BrokerConnections,
        b"--from-fd" => Choice::FromDescriptor(descriptor(value()?)?),
        b"--from-file" => Choice::FromFile(absolute(value()?)?),
        _ => return Err(usage("unknown argument:").of(word)),
    }))
}

fn device_and_inode(text: &[u8]) -> Option<(u64, u64)> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    Some((number(text.get(..colon)?)?, number(text.get(colon + 1..)?)?))
}

/// A plan decides what is writable: nobody but the caller and root may be able to have written it.
fn check_plan_file(fd: i32) -> Result<(), Failure> {
    let stat = sys::fstat(fd).or_fail("spec", "cannot examine the plan")?;
    let trusted = stat.owner == 0 || stat.owner == sys::effective_ids().0;
    if stat.is(g::S_IFREG) && trusted && stat.mode & 0o022 == 0 {
        Ok(())
    } else {
        Err(Failure::new("spec", "the plan must be a regular file of the caller's that nobody else can write"))
    }
}

/// Reads a plan, or what is laid out like one, to its end and closes the descriptor.
pub(crate) fn load(fd: i32) -> Result<&'static [u8], Failure> {
    let expected = sys::fstat(fd).or_fail("spec", "cannot examine the plan")?.size as usize;
    let mut memory = sys::allocate(expected.clamp(64 << 10, MAX_PLAN_BYTES) + 1).or_fail("spec", "no memory")?;
    let mut length = 0;
    loop {
        match sys::read(fd, &mut memory[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).or_fail("spec", "cannot read the plan"),
        }
        if length > MAX_PLAN_BYTES {
            return Err(Failure::new("spec", "the plan is larger than 16 MiB"));
        }
        if length == memory.len() {
            // A pipe does not say how much it will give.
            let larger = sys::allocate((length * 2).min(MAX_PLAN_BYTES + 1)).or_fail("spec", "no memory")?;
            larger[..length].copy_from_slice(memory);
            memory = larger;
        }
    }
    sys::close(fd);
    let plan = &memory[..length];
    if plan.last().is_some_and(|byte| *byte != 0) {
        return Err(Failure::new("spec", "the plan is cut off: its last word is not ended by NUL"));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan_of(block: &'static [u8]) -> Result<Plan, Failure> {
        assemble(Words::Block(block), Box::leak(Box::new([Text::from(c"true")])), &[])
    }

    fn refusal(block: &'static [u8]) -> &'static str {
        plan_of(block).err().expect("the plan is refused").what
    }

    #[test]
    fn a_plan_lists_its_roots_in_order() {
        let plan = plan_of(
            b"--wall\0namespace\0--landlock\x007\0--write\x001:2\0/a b\0--private\0/tmp\0--write\x003:4\0/-\n\0--shm\0",
        )
        .expect("valid");
        let mut roots = plan.writable_roots();
        assert_eq!(roots.next(), Some(Root { device: 1, inode: 2, path: c"/a b" }));
        assert_eq!(roots.next(), Some(Root { device: 3, inode: 4, path: c"/-\n" }));
        assert_eq!(roots.next(), None);
        assert_eq!(plan.paths(Role::Private).next(), Some(c"/tmp"));
        assert!(plan.shm && !plan.deny_metadata && plan.roots == 2 && plan.landlock == 7);
    }

    #[test]
    fn a_directory_is_seen_elsewhere_only_where_there_are_mounts() {
        let plan = plan_of(b"--wall\0namespace\0--landlock\x007\0--place\x001:2\0/a\0/tmp\0").expect("valid");
        let expected = (Root { device: 1, inode: 2, path: c"/a" }, c"/tmp");
        assert_eq!((plan.placed().next(), plan.roots), (Some(expected), 0));
        let landlock = b"--wall\0landlock\0--landlock\x007\0--place\x001:2\0/a\0/tmp\0";
        assert_eq!(refusal(landlock), "--place needs --wall namespace");
        assert!(plan_of(b"--wall\0namespace\0--landlock\x007\0--place\x001:2\0/a\0tmp\0").is_err());
    }

    #[test]
    fn a_plan_without_a_wall_or_with_none_is_refused() {
        assert_eq!(refusal(b"--landlock\x007\0"), "--wall is required");
        assert_eq!(refusal(b"--wall\0namespace\0"), "--landlock is required");
        assert_eq!(refusal(b"--wall\0landlock\0--landlock\x000\0"), "--wall landlock needs --landlock 1 or more");
        assert_eq!(refusal(b"--wall\0none\0"), "--wall is namespace or landlock");
    }

    #[test]
    fn malformed_values_are_refused() {
        for block in [
            &b"--write\x001:2\0relative\0"[..],
            b"--write\x001\0/a\0",
            b"--write\x00:\0/a\0",
            b"--write\x001:-2\0/a\0",
            b"--write\x001:2\0",
            b"--private\0tmp\0",
            b"--set\0=x\0",
            b"--set\0x\0",
            b"--status-fd\x002\0",
            b"--status-fd\x00-1\0",
            b"--status-fd\x0099999999999\0",
            b"--cwd\0.\0",
            b"--broker-fd\x001\0",
            b"--what\0",
            b"\0",
        ] {
            assert!(plan_of(block).is_err(), "{:?}", String::from_utf8_lossy(block));
        }
    }

    #[test]
    fn a_plan_in_a_block_cannot_name_another_source() {
        assert!(plan_of(b"--from-fd\x003\0").is_err());
        assert!(plan_of(b"--wall\0namespace\0--wall\0namespace\0").is_err());
    }

    #[test]
    fn a_broker_governs_what_would_otherwise_be_refused() {
        let with = |rest: &'static [u8]| plan_of(rest).map(|plan| plan.broker);
        assert_eq!(with(b"--wall\0landlock\0--landlock\x001\0--broker-fd\x007\0").ok(), Some(Some(7)));
        assert!(with(b"--wall\0landlock\0--landlock\x001\0--deny-metadata\0--broker-fd\x007\0").is_err());
        assert!(with(b"--wall\0landlock\0--landlock\x001\0--broker-fd\x007\0--broker-fd\x008\0").is_err());
        let connections = b"--wall\0landlock\0--landlock\x001\0--broker-fd\x007\0--broker-connections\0";
        assert!(plan_of(connections).is_ok_and(|plan| plan.broker_connections));
        assert!(with(b"--wall\0landlock\0--landlock\x001\0--broker-connections\0").is_err());
    }

    #[test]
    fn a_command_comes_with_the_plan_or_is_awaited() {
        assert!(plan_of(b"--wall\0namespace\0--landlock\x001\0--await-fd\x007\0").is_err());
        let words = Words::Block(b"--wall\0namespace\0--landlock\x001\0--await-fd\x007\0");
        assert_eq!(assemble(words, &[], &[]).map(|plan| plan.awaits).ok(), Some(Some(7)));
        assert!(assemble(Words::Block(b"--wall\0namespace\0--landlock\x001\0"), &[], &[]).is_err());
        for more in [&b"--broker-fd\x008\0"[..], b"--cwd\0/\0", b"--await-fd\x008\0"] {
            let block = [b"--wall\0namespace\0--landlock\x001\0--await-fd\x007\0", more].concat();
            assert!(assemble(Words::Block(block.leak()), &[], &[]).is_err());
        }
        assert!(assemble(Words::Block(b"--wall\0landlock\0--landlock\x001\0--await-fd\x007\0"), &[], &[]).is_err());
    }

    #[test]
    fn an_ipc_namespace_is_another_programs_or_none() {
        let with = |rest: &'static [u8]| plan_of(rest).map(|plan| plan.own_ipc);
        assert_eq!(with(b"--wall\0landlock\0--landlock\x001\0--own-ipc\0").ok(), Some(true));
        assert_eq!(with(b"--wall\0landlock\0--landlock\x001\0").ok(), Some(false));
        assert!(with(b"--wall\0namespace\0--landlock\x001\0--own-ipc\0").is_err());
        assert!(with(b"--wall\0landlock\0--landlock\x001\0--own-ipc\0--broker-fd\x007\0").is_err());
    }

    #[test]
    fn only_a_launcher_that_stays_can_relieve_a_guard() {
        assert!(plan_of(b"--wall\0landlock\0--landlock\x001\0--supervise\0--guarded\0").is_ok());
        assert!(plan_of(b"--wall\0landlock\0--landlock\x001\0--guarded\0").is_err());
        assert!(plan_of(b"--wall\0namespace\0--landlock\x001\0--supervise\0--guarded\0").is_err());
    }

    #[test]
    fn nothing_in_a_block_goes_unread() {
        assert!(plan_of(b"--wall\0landlock\0--landlock\x001\0--deny-metadata\0").is_ok());
        assert!(plan_of(b"--wall\0landlock\0--landlock\x001\0--\0--deny-metadata\0").is_err());
        assert!(plan_of(b"--wall\0landlock\0--landlock\x001\0--\0").is_err());
    }
}
