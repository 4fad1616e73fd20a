//! The seccomp wall: system calls that could raise the power of the command again, or that no other wall governs.
//!
//! The filter is assembled when the launcher is compiled, from the tables below. A call of a foreign ABI ends the
//! process: its numbers mean other calls (seccomp(2), "Caveats"). A number that this file does not know is answered
//! with ENOSYS, as an older kernel would, so that no future call is open by default.

use linux_raw_sys::{general as g, ioctl as i, net as n, netlink as k};

use crate::brokered;
use crate::failure::{Context, Failure};
use crate::spec::{Network, Plan, Wall};
use crate::sys::{self, Instruction};

/// Refused with EPERM whatever the arguments.
const DENIED: &[u32] = &[
    // The mount tree.
    g::__NR_mount,
    g::__NR_umount2,
    g::__NR_pivot_root,
    g::__NR_chroot,
    g::__NR_open_tree,
    g::__NR_move_mount,
    g::__NR_fsopen,
    g::__NR_fsconfig,
    g::__NR_fsmount,
    g::__NR_fspick,
    g::__NR_mount_setattr,
    // Namespaces of others.
    g::__NR_setns,
    // Files by handle, watches that can block others, kernel-side writers.
    g::__NR_open_by_handle_at,
    g::__NR_fanotify_init,
    g::__NR_fanotify_mark,
    g::__NR_acct,
    g::__NR_quotactl,
    g::__NR_quotactl_fd,
    g::__NR_swapon,
    g::__NR_swapoff,
    // Keys outlive and cross the walls.
    g::__NR_add_key,
    g::__NR_request_key,
    g::__NR_keyctl,
    // Kernel code and its observation.
    g::__NR_bpf,
    g::__NR_perf_event_open,
    g::__NR_userfaultfd,
    g::__NR_init_module,
    g::__NR_finit_module,
    g::__NR_delete_module,
    g::__NR_kexec_load,
    g::__NR_kexec_file_load,
    g::__NR_reboot,
    g::__NR_iopl,
    g::__NR_ioperm,
    g::__NR_syslog,
    g::__NR_vhangup,
    g::__NR_lookup_dcookie,
    // Clock and names of the machine.
    g::__NR_settimeofday,
    g::__NR_clock_settime,
    g::__NR_sethostname,
    g::__NR_setdomainname,
];

/// Answered with ENOSYS: programs then use a call that a filter can look into, or do without.
const ABSENT: &[u32] = &[
    g::__NR_clone3,
    g::__NR_io_uring_setup,
    g::__NR_io_uring_enter,
    g::__NR_io_uring_register,
    g::__NR_open_tree_attr,
];

/// Calls that change a mode. They and [`brokered::METADATA`] are refused with EPERM where no mount tree governs metadata and
/// nothing is writable.
const MODES: &[u32] = &[g::__NR_chmod, g::__NR_fchmod, g::__NR_fchmodat, g::__NR_fchmodat2];

/// Requests of ioctl(2) that are refused with EPERM although their type is open.
const DENIED_IOCTLS: &[u32] = &[
    // They push input into a terminal, or change what stands behind one.
    i::TIOCSTI,
    i::TIOCLINUX,
    i::TIOCSETD,
    i::TIOCCONS,
    // They stop a terminal's output, or close it to others, beyond the end of the command.
    i::TCXONC,
    i::TIOCEXCL,
    // Signals to whom the caller, or the kernel for a terminal, named as the owner of a stream.
    i::FIOASYNC,
];

/// Types of ioctl(2) requests (bits 8 to 15) that are open: terminals and all descriptors, sockets, seccomp listeners.
///
/// SECURITY: every file system has requests of its own that change files, trees, keys or itself through a descriptor that is
/// open for reading, some of them also on a read-only mount; so has every driver. What is listed neither here nor below is
/// refused, so that the next file system's requests are, too.
const OPEN_IOCTL_TYPES: &[u32] = &[0x5400, 0x8900, 0x2100];

/// Single requests that are open: they read, or change content through a descriptor that is open for writing.
const OPEN_IOCTLS: &[u32] = &[
    0x0000_0002, // FIGETBSZ
    0x8008_6601,
    0x8004_6601, // FS_IOC_GETFLAGS, FS_IOC32_GETFLAGS
    0x8008_7601,
    0x8004_7601, // FS_IOC_GETVERSION, FS_IOC32_GETVERSION
    0x801c_581f, // FS_IOC_FSGETXATTR
    0x8100_9431, // FS_IOC_GETFSLABEL
    0xc020_660b, // FS_IOC_FIEMAP
    0x4004_9409,
    0x4020_940d, // FICLONE, FICLONERANGE
    0x8004_5200, // RNDGETENTCNT
];

/// Requests that change attributes of a file, as chattr(1) does: open where the mount tree governs metadata, or nothing does;
/// else they are refused, or the broker's.
const ATTRIBUTE_IOCTLS: &[u32] = &[
    0x4008_6602,
    0x4004_6602, // FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS
    0x401c_5820, // FS_IOC_FSSETXATTR
];

/// Address families of socket(2) that stay open beside AF_UNIX, unless the network is off: with any protocol, and with those
/// below. Every other is refused with EPERM.
const FAMILIES: &[u32] = &[n::AF_PACKET];
const INET_FAMILIES: &[u32] = &[n::AF_INET, n::AF_INET6];

/// Protocols of AF_INET and AF_INET6 that stay open: whatever fits, ICMP, TCP, UDP, ICMP for version 6, UDP-Lite, MPTCP.
///
/// SECURITY: for others the kernel loads the module that has them, as root, and few of those are looked at.
const INET: &[u32] = &[0, 1, 6, 17, 58, 136, 262];

/// Protocols of AF_NETLINK that stay open: addresses and routes, lists of sockets, events of devices, and generic ones.
///
/// SECURITY: by NETLINK_USERSOCK, and by whatever else takes messages of ordinary users, processes talk to each other.
const NETLINK: &[u32] = &[k::NETLINK_ROUTE, k::NETLINK_SOCK_DIAG, k::NETLINK_KOBJECT_UEVENT, k::NETLINK_GENERIC];

/// Types of unix sockets that stay open where the broker answers for connections.
///
/// SECURITY: every other one, also one of a pair, sends to whatever path a call names, and in sendmsg(2) no filter sees whether
/// one is named.
const CONNECTED_TYPES: &[u32] = &[n::SOCK_STREAM, n::SOCK_SEQPACKET];
/// SOCK_TYPE_MASK: what is above it are flags.
const TYPE_BITS: u32 = 0xf;

/// Refused with EPERM where no PID and IPC namespaces keep them inside: message queues are files that Landlock's rights
/// do not govern.
const DENIED_WITHOUT_NAMESPACES: &[u32] = &[g::__NR_mq_open, g::__NR_mq_unlink];

/// Refused with EPERM where no IPC namespace stands around the command: what others of the user have can be used by its
/// number, and what the command makes outlives it.
const SYSTEM_V: &[u32] = &[
    g::__NR_shmget,
    g::__NR_shmat,
    g::__NR_shmctl,
    g::__NR_semget,
    g::__NR_semop,
    g::__NR_semtimedop,
    g::__NR_semctl,
    g::__NR_msgget,
    g::__NR_msgsnd,
    g::__NR_msgrcv,
    g::__NR_msgctl,
];

/// Flags of clone(2) and unshare(2) that make a new namespace.
const NEW_NAMESPACES: u32 = g::CLONE_NEWNS
    | g::CLONE_NEWCGROUP
    | g::CLONE_NEWUTS
    | g::CLONE_NEWIPC
    | g::CLONE_NEWUSER
    | g::CLONE_NEWPID
    | g::CLONE_NEWNET;

/// CLONE_NEWTIME: in the flags of clone(2) these bits are part of the exit signal, so only unshare(2) takes it.
const NEW_TIME: u32 = g::CLONE_NEWTIME;

/// All processes of a user, in ioprio_set(2).
const IOPRIO_WHO_USER: u32 = 3;

/// The newest call that this file was written with.
const NEWEST: u32 = g::__NR_file_setattr;

const ARCHITECTURE: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64
const FOREIGN_NUMBERS: u32 = 0x4000_0000; // __X32_SYSCALL_BIT

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000; // SECCOMP_RET_KILL_PROCESS
const fn answer(errno: u32) -> u32 {
    0x0005_0000 | errno
}
const REFUSE: u32 = answer(linux_raw_sys::errno::EPERM);
const PRETEND: u32 = answer(0); // success, although nothing was done
const MISSING: u32 = answer(linux_raw_sys::errno::ENOSYS);
const NOTIFY: u32 = 0x7fc0_0000; // SECCOMP_RET_USER_NOTIF: the broker answers

// Offsets in struct seccomp_data; a 64-bit argument is two words, the low one first. The kernel looks at the low word
// of the arguments that are checked here (int or unsigned int in the signature of the call), and so does the filter.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const fn offset_of(argument: u32) -> u32 {
    16 + 8 * argument
}

// Classic BPF.
const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_NOT_BELOW: u16 = 0x35;
const JUMP_BITS: u16 = 0x45;
const KEEP_BITS: u16 = 0x54; // AND
const RETURN: u16 = 0x06;

/// What a plan refuses beyond the tables that always hold.
#[derive(Clone, Copy)]
struct Refused {
    metadata: bool,
    network: bool,
    /// No PID and IPC namespaces stand between the command and the processes outside.
    outside: bool,
    /// Not even an IPC and a PID namespace of another program's.
    alone: bool,
    /// A broker answers for names and metadata; nothing is refused here that it governs.
    broker: bool,
    /// It answers for connections as well.
    connections: bool,
}

/// What is done with a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Give(u32),
    /// One answer if the argument has any of the bits, else allowed.
    IfBits {
        argument: u32,
        bits: u32,
        then: u32,
    },
    /// EPERM if the first argument, a process, is anything but 0, the caller itself; else allowed.
    Oneself,
    /// setpriority(2), ioprio_set(2): EPERM for others than the caller itself and its group.
    Priority {
        everybody: u32,
    },
    /// sched_setscheduler(2): EPERM for others, but for the ordinary policy, which threads are given by their number.
    Policy,
    /// socket(2): EPERM for families and protocols that are not listed.
    Sockets {
        network: bool,
        unconnected: bool,
    },
    /// prlimit64(2): EPERM for other processes if `others` are out of reach; nobody changes the limit on cores.
    Limits {
        others: u32,
    },
    /// fcntl(2): EPERM for what makes the kernel send signals to the owner of a descriptor, or other ones than SIGIO; and for
    /// hints about a file's lifetime, which its owner can give through a descriptor that is open for reading.
    Operations,
    /// ioctl(2): one answer for requests that set attributes of files, one for those that nobody knows.
    Requests {
        attributes: u32,
        otherwise: u32,
    },
    /// One answer if the argument is this, else allowed.
    IfEqual {
        argument: u32,
        value: u32,
        then: u32,
    },
}

/// The verdict on one call number.
const fn verdict_on(number: u32, refused: Refused) -> Verdict {
    let metadata = refused.metadata;
    match number {
        g::__NR_ioctl if metadata => Verdict::Requests { attributes: REFUSE, otherwise: REFUSE },
        g::__NR_ioctl if refused.broker => Verdict::Requests { attributes: NOTIFY, otherwise: NOTIFY },
        g::__NR_ioctl => Verdict::Requests { attributes: ALLOW, otherwise: REFUSE },
        g::__NR_fcntl => Verdict::Operations,
        g::__NR_socket | g::__NR_socketpair => {
            Verdict::Sockets { network: !refused.network, unconnected: !refused.connections }
        }
        g::__NR_connect if refused.connections => Verdict::Give(NOTIFY),
        g::__NR_clone => Verdict::IfBits { argument: 0, bits: NEW_NAMESPACES, then: REFUSE },
        g::__NR_unshare => Verdict::IfBits { argument: 0, bits: NEW_NAMESPACES | NEW_TIME, then: REFUSE },
        // SECURITY: a limit on processor time that has passed makes the kernel kill whichever process has it.
        g::__NR_prlimit64 => Verdict::Limits { others: if refused.outside { REFUSE } else { ALLOW } },
        // SECURITY: with any limit but ours a crash starts a program outside (command.rs). Programs set it in passing.
        g::__NR_setrlimit => Verdict::IfEqual { argument: 0, value: g::RLIMIT_CORE, then: PRETEND },
        // SECURITY: whoever has the lowest priority comes too late, and our time limit is kept by a process of the same user.
        g::__NR_setpriority if refused.alone => Verdict::Priority { everybody: g::PRIO_USER },
        g::__NR_ioprio_set if refused.alone => Verdict::Priority { everybody: IOPRIO_WHO_USER },
        g::__NR_sched_setscheduler if refused.alone => Verdict::Policy,
        g::__NR_sched_setparam | g::__NR_sched_setattr if refused.alone => Verdict::Oneself,
        g::__NR_open if refused.broker => Verdict::IfBits { argument: 1, bits: brokered::OPEN_CHANGES, then: NOTIFY },
        g::__NR_openat if refused.broker => Verdict::IfBits { argument: 2, bits: brokered::OPEN_CHANGES, then: NOTIFY },
        // Its flags lie in memory, where no filter can look; programs then use openat(2).
        g::__NR_openat2 if refused.broker => Verdict::Give(MISSING),
        _ if refused.broker && contains(brokered::NAMES, number) => Verdict::Give(NOTIFY),
        _ if refused.broker && contains(brokered::METADATA, number) => Verdict::Give(NOTIFY),
        FOREIGN_NUMBERS.. => Verdict::Give(KILL),
        _ if number > NEWEST || contains(ABSENT, number) => Verdict::Give(MISSING),
        _ if contains(DENIED, number) => Verdict::Give(REFUSE),
        _ if metadata && (contains(MODES, number) || contains(brokered::METADATA, number)) => Verdict::Give(REFUSE),
        _ if refused.outside && contains(DENIED_WITHOUT_NAMESPACES, number) => Verdict::Give(REFUSE),
        _ if refused.alone && contains(SYSTEM_V, number) => Verdict::Give(REFUSE),
        _ => Verdict::Give(ALLOW),
    }
}

const fn contains(list: &[u32], number: u32) -> bool {
    let mut index = 0;
    while index < list.len() {
        if list[index] == number {
            return true;
        }
        index += 1;
    }
    false
}

/// The verdicts on all call numbers: each holds from its number up to the next one's.
struct Table {
    ranges: [(u32, Verdict); 256],
    length: usize,
}

impl Table {
    const fn new(refused: Refused) -> Self {
        let mut table = Self { ranges: [(0, Verdict::Give(ALLOW)); 256], length: 0 };
        let mut number = 0;
        while number <= NEWEST + 1 {
            table = table.from(number, verdict_on(number, refused));
            number += 1;
        }
        table.from(FOREIGN_NUMBERS, verdict_on(FOREIGN_NUMBERS, refused))
    }

    const fn from(mut self, number: u32, verdict: Verdict) -> Self {
        if let Verdict::Give(answer) = verdict
            && self.length > 0
            && let Verdict::Give(before) = self.ranges[self.length - 1].1
            && answer == before
        {
            return self;
        }
        self.ranges[self.length] = (number, verdict);
        self.length += 1;
        self
    }
}

/// A program under construction, from its end to its start: a jump leads forward only, so its target is known by then.
/// Instructions are counted from the end.
///
/// The kernel compiles the program at each installation, and that takes most of the time of installing it: so answers
/// stand once, at the end, and call numbers are searched by halving, one instruction a step.
struct Assembler<const N: usize> {
    reversed: [Instruction; N],
    length: usize,
}

impl<const N: usize> Assembler<N> {
    /// Puts an instruction before all others; it goes on at one of two places.
    const fn put(&mut self, code: u16, value: u32, if_true: usize, if_false: usize) -> usize {
        let (if_true, if_false) = (self.distance(if_true), self.distance(if_false));
        self.reversed[self.length] = Instruction { code, if_true, if_false, value };
        self.length += 1;
        self.length - 1
    }

    const fn distance(&self, target: usize) -> u8 {
        let distance = self.length - 1 - target;
        assert!(distance < 256, "a jump leads too far");
        distance as u8
    }

    /// Puts an instruction that goes on at the one after it.
    const fn put_straight(&mut self, code: u16, value: u32) -> usize {
        self.reversed[self.length] = Instruction { code, if_true: 0, if_false: 0, value };
        self.length += 1;
        self.length - 1
    }

    /// Returns the place of an answer, which is among the first six that were put.
    const fn answer(&self, answer: u32) -> usize {
        let mut place = 0;
        while self.reversed[place].value != answer {
            place += 1;
        }
        place
    }

    const fn verdict(&mut self, verdict: Verdict) -> usize {
        match verdict {
            Verdict::Give(answer) => self.answer(answer),
            Verdict::IfBits { argument, bits, then } => {
                let (then, allow) = (self.answer(then), self.answer(ALLOW));
                self.put(JUMP_BITS, bits, then, allow);
                self.put_straight(LOAD, offset_of(argument))
            }
            Verdict::Oneself => self.zero(0, self.answer(ALLOW), self.answer(REFUSE)),
            Verdict::Priority { everybody } => {
                let one = self.zero(1, self.answer(ALLOW), self.answer(REFUSE));
                self.put(JUMP_EQUAL, everybody, self.answer(REFUSE), one);
                self.put_straight(LOAD, offset_of(0))
            }
            Verdict::Policy => {
                let others = self.zero(1, self.answer(ALLOW), self.answer(REFUSE));
                self.zero(0, self.answer(ALLOW), others)
            }
            Verdict::Sockets { network, unconnected } => {
                let (allow, refuse) = (self.answer(ALLOW), self.answer(REFUSE));
                let (mut unix, mut other) = (allow, refuse);
                if !unconnected {
                    self.any_of(CONNECTED_TYPES, allow, refuse);
                    self.put_straight(KEEP_BITS, TYPE_BITS);
                    unix = self.put_straight(LOAD, offset_of(1));
                }
                if network {
                    self.any_of(NETLINK, allow, refuse);
                    let netlink = self.put_straight(LOAD, offset_of(2));
                    self.any_of(INET, allow, refuse);
                    let inet = self.put_straight(LOAD, offset_of(2));
                    let family = self.any_of(FAMILIES, allow, refuse);
                    let family = self.any_of(INET_FAMILIES, inet, family);
                    other = self.put(JUMP_EQUAL, n::AF_NETLINK, netlink, family);
                }
                self.put(JUMP_EQUAL, n::AF_UNIX, unix, other);
                self.put_straight(LOAD, offset_of(0))
            }
            Verdict::Limits { others } => {
                // Who asks what the limit was has to be told, and here nobody could.
                let asked = self.null(3, self.answer(PRETEND), self.answer(REFUSE));
                let core = self.null(2, self.answer(ALLOW), asked);
                self.put(JUMP_EQUAL, g::RLIMIT_CORE, core, self.answer(ALLOW));
                let limit = self.put_straight(LOAD, offset_of(1));
                self.zero(0, limit, if others == ALLOW { limit } else { self.answer(others) })
            }
            Verdict::Operations => {
                let (allow, refuse) = (self.answer(ALLOW), self.answer(REFUSE));
                self.put(JUMP_BITS, g::FASYNC, refuse, allow);
                let flags = self.put_straight(LOAD, offset_of(2));
                let other = self.any_of(&[g::F_SETSIG, g::F_SET_RW_HINT, g::F_SET_FILE_RW_HINT], refuse, allow);
                self.put(JUMP_EQUAL, g::F_SETFL, flags, other);
                self.put_straight(LOAD, offset_of(1))
            }
            Verdict::Requests { attributes, otherwise } => {
                let (allow, refuse) = (self.answer(ALLOW), self.answer(REFUSE));
                self.any_of(OPEN_IOCTL_TYPES, allow, self.answer(otherwise));
                let by_type = self.put_straight(KEEP_BITS, 0xff00);
                let by_number = self.any_of(OPEN_IOCTLS, allow, by_type);
                let by_number = self.any_of(ATTRIBUTE_IOCTLS, self.answer(attributes), by_number);
                self.any_of(DENIED_IOCTLS, refuse, by_number);
                self.put_straight(LOAD, offset_of(1))
            }
            Verdict::IfEqual { argument, value, then } => {
                self.put(JUMP_EQUAL, value, self.answer(then), self.answer(ALLOW));
                self.put_straight(LOAD, offset_of(argument))
            }
        }
    }

    /// Goes on at `then` if an argument of 32 bits is 0.
    const fn zero(&mut self, argument: u32, then: usize, otherwise: usize) -> usize {
        self.put(JUMP_EQUAL, 0, then, otherwise);
        self.put_straight(LOAD, offset_of(argument))
    }

    /// Goes on at `then` if a pointer is null.
    const fn null(&mut self, argument: u32, then: usize, otherwise: usize) -> usize {
        self.put(JUMP_EQUAL, 0, then, otherwise);
        let upper = self.put_straight(LOAD, offset_of(argument) + 4);
        self.put(JUMP_EQUAL, 0, upper, otherwise);
        self.put_straight(LOAD, offset_of(argument))
    }

    /// Goes on at `then` if the loaded word is one of `items`.
    const fn any_of(&mut self, items: &[u32], then: usize, otherwise: usize) -> usize {
        let mut next = otherwise;
        let mut index = items.len();
        while index > 0 {
            index -= 1;
            next = self.put(JUMP_EQUAL, items[index], then, next);
        }
        next
    }

    /// Finds the range of the loaded number among `first` up to `end` of the table.
    const fn search(&mut self, table: &Table, first: usize, end: usize) -> usize {
        if end - first == 1 {
            return self.verdict(table.ranges[first].1);
        }
        let middle = first + (end - first) / 2;
        let upper = self.search(table, middle, end);
        let lower = self.search(table, first, middle);
        self.put(JUMP_NOT_BELOW, table.ranges[middle].0, upper, lower)
    }
}

const fn assemble<const N: usize>(refused: Refused) -> Assembler<N> {
    let table = Table::new(refused);
    let nothing = Instruction { code: 0, if_true: 0, if_false: 0, value: 0 };
    let mut program = Assembler { reversed: [nothing; N], length: 0 };
    let kill = program.put_straight(RETURN, KILL);
    program.put_straight(RETURN, MISSING);
    program.put_straight(RETURN, REFUSE);
    program.put_straight(RETURN, ALLOW);
    program.put_straight(RETURN, NOTIFY);
    program.put_straight(RETURN, PRETEND);
    program.search(&table, 0, table.length);
    let search = program.put_straight(LOAD, NUMBER);
    program.put(JUMP_EQUAL, ARCHITECTURE, search, kill);
    program.put_straight(LOAD, ARCH);
    program
}

const fn reverse<const N: usize>(program: Assembler<N>) -> [Instruction; N] {
    let mut code = program.reversed;
    let mut index = 0;
    while index < N {
        code[index] = program.reversed[N - 1 - index];
        index += 1;
    }
    code
}

macro_rules! filter {
    ($name:ident, $($what:ident)*) => {
        static $name: &[Instruction] = {
            const REFUSED: Refused = Refused { $($what: true,)* ..NOTHING };
            const LENGTH: usize = assemble::<1024>(REFUSED).length;
            &reverse(assemble::<LENGTH>(REFUSED))
        };
    };
}

const NOTHING: Refused =
    Refused { metadata: false, network: false, outside: false, alone: false, broker: false, connections: false };

filter!(FILTER,);
filter!(FILTER_METADATA, metadata);
filter!(FILTER_NETWORK, network);
filter!(FILTER_METADATA_NETWORK, metadata network);
filter!(FILTER_OUTSIDE, outside);
filter!(FILTER_OUTSIDE_METADATA, outside metadata);
filter!(FILTER_OUTSIDE_NETWORK, outside network);
filter!(FILTER_OUTSIDE_METADATA_NETWORK, outside metadata network);
filter!(FILTER_ALONE, outside alone);
filter!(FILTER_ALONE_METADATA, outside alone metadata);
filter!(FILTER_ALONE_NETWORK, outside alone network);
filter!(FILTER_ALONE_METADATA_NETWORK, outside alone metadata network);
filter!(FILTER_BROKER, broker);
filter!(FILTER_BROKER_NETWORK, broker network);
filter!(FILTER_ALONE_BROKER, outside alone broker);
filter!(FILTER_ALONE_BROKER_NETWORK, outside alone broker network);
filter!(FILTER_BROKER_CONNECTIONS, broker connections);
filter!(FILTER_BROKER_CONNECTIONS_NETWORK, broker connections network);
filter!(FILTER_ALONE_BROKER_CONNECTIONS, outside alone broker connections);
filter!(FILTER_ALONE_BROKER_CONNECTIONS_NETWORK, outside alone broker connections network);

/// Installs the filter. `no_new_privs` must be set.
pub(crate) fn restrict(plan: &Plan) -> Result<(), Failure> {
    let refused = (plan.wall, plan.deny_metadata, plan.network == Network::Off);
    if let Some(broker) = plan.broker {
        let program = match (plan.wall, plan.network == Network::Off, plan.broker_connections) {
            (Wall::Namespace, false, false) => FILTER_BROKER,
            (Wall::Namespace, true, false) => FILTER_BROKER_NETWORK,
            (Wall::Landlock, false, false) => FILTER_ALONE_BROKER,
            (Wall::Landlock, true, false) => FILTER_ALONE_BROKER_NETWORK,
            (Wall::Namespace, false, true) => FILTER_BROKER_CONNECTIONS,
            (Wall::Namespace, true, true) => FILTER_BROKER_CONNECTIONS_NETWORK,
            (Wall::Landlock, false, true) => FILTER_ALONE_BROKER_CONNECTIONS,
            (Wall::Landlock, true, true) => FILTER_ALONE_BROKER_CONNECTIONS_NETWORK,
        };
        let listener = sys::seccomp_filter(program, true)
            .or_fail("seccomp", "cannot install the system call filter with a listener (Linux 5.19)")?;
        return brokered::hand_over(broker, listener);
    }
    let program = match (refused, plan.own_ipc) {
        ((Wall::Namespace, false, false), _) => FILTER,
        ((Wall::Namespace, true, false), _) => FILTER_METADATA,
        ((Wall::Namespace, false, true), _) => FILTER_NETWORK,
        ((Wall::Namespace, true, true), _) => FILTER_METADATA_NETWORK,
        ((Wall::Landlock, false, false), true) => FILTER_OUTSIDE,
        ((Wall::Landlock, true, false), true) => FILTER_OUTSIDE_METADATA,
        ((Wall::Landlock, false, true), true) => FILTER_OUTSIDE_NETWORK,
        ((Wall::Landlock, true, true), true) => FILTER_OUTSIDE_METADATA_NETWORK,
        ((Wall::Landlock, false, false), false) => FILTER_ALONE,
        ((Wall::Landlock, true, false), false) => FILTER_ALONE_METADATA,
        ((Wall::Landlock, false, true), false) => FILTER_ALONE_NETWORK,
        ((Wall::Landlock, true, true), false) => FILTER_ALONE_METADATA_NETWORK,
    };
    sys::seccomp_filter(program, false).or_fail("seccomp", "cannot install the system call filter").map(drop)
}

#[cfg(test)]
mod tests;
