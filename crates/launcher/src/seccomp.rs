//! The seccomp wall: system calls that could raise the power of the command again, or that no other wall governs.
//!
//! The filter is assembled when the launcher is compiled, from the tables below. A call of a foreign ABI ends the
//! process: its numbers mean other calls (seccomp(2), "Caveats"). A number that this file does not know is answered
//! with ENOSYS, as an older kernel would, so that no future call is open by default.

use linux_raw_sys::{general as g, ioctl as i, net as n};

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

/// Calls that change metadata: refused with EPERM where no mount tree governs them and nothing is writable.
const METADATA: &[u32] = &[
    g::__NR_chmod,
    g::__NR_fchmod,
    g::__NR_fchmodat,
    g::__NR_fchmodat2,
    g::__NR_chown,
    g::__NR_fchown,
    g::__NR_lchown,
    g::__NR_fchownat,
    g::__NR_utime,
    g::__NR_utimes,
    g::__NR_futimesat,
    g::__NR_utimensat,
    g::__NR_setxattr,
    g::__NR_lsetxattr,
    g::__NR_fsetxattr,
    g::__NR_setxattrat,
    g::__NR_removexattr,
    g::__NR_lremovexattr,
    g::__NR_fremovexattr,
    g::__NR_removexattrat,
    g::__NR_file_setattr,
];

/// Requests of ioctl(2) that push input into a terminal, or change what stands behind one (EPERM).
const DENIED_IOCTLS: &[u32] = &[i::TIOCSTI, i::TIOCLINUX, i::TIOCSETD, i::TIOCCONS];

/// Types of ioctl(2) requests (bits 8 to 15) that stay open where metadata is refused: terminals, sockets, seccomp listeners.
/// Every file system has requests of its own that change files through a descriptor opened for reading, so the rest is
/// closed.
const OPEN_IOCTL_TYPES: &[u32] = &[0x5400, 0x8900, 0x2100];

/// Single requests that stay open there: they read, or concern the descriptor.
const OPEN_IOCTLS: &[u32] = &[
    0x0000_0002, // FIGETBSZ
    0x8008_6601,
    0x8004_6601, // FS_IOC_GETFLAGS, FS_IOC32_GETFLAGS
    0x8008_7601,
    0x8004_7601, // FS_IOC_GETVERSION, FS_IOC32_GETVERSION
    0x801c_581f, // FS_IOC_FSGETXATTR
    0x8100_9431, // FS_IOC_GETFSLABEL
    0xc020_660b, // FS_IOC_FIEMAP
    0x8004_5200, // RNDGETENTCNT
];

/// Address families of socket(2) that stay open; every other is refused with EPERM.
const FAMILIES: &[u32] = &[n::AF_UNIX, n::AF_INET, n::AF_INET6, n::AF_NETLINK, n::AF_PACKET];

/// Those that stay open where the network is off.
const LOCAL_FAMILIES: &[u32] = &[n::AF_UNIX];

/// Refused with EPERM where no PID and IPC namespaces keep them inside: message queues are files that Landlock's rights
/// do not govern.
const DENIED_WITHOUT_NAMESPACES: &[u32] = &[g::__NR_mq_open, g::__NR_mq_unlink];

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
const MISSING: u32 = answer(linux_raw_sys::errno::ENOSYS);

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
}

/// What is done with a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Give(u32),
    /// EPERM if the argument has any of the bits, else allowed.
    RefuseBits {
        argument: u32,
        bits: u32,
    },
    /// EPERM if the argument is anything but 0, else allowed.
    RefuseNonzero {
        argument: u32,
    },
    /// The requests of ioctl(2) where metadata is refused.
    Requests,
    /// One answer if the argument is listed, another if not.
    Decide {
        argument: u32,
        listed: List,
        then: u32,
        otherwise: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Ioctls,
    Families,
    LocalFamilies,
}

impl List {
    const fn items(self) -> &'static [u32] {
        match self {
            Self::Ioctls => DENIED_IOCTLS,
            Self::Families => FAMILIES,
            Self::LocalFamilies => LOCAL_FAMILIES,
        }
    }
}

/// The verdict on one call number.
const fn verdict_on(number: u32, refused: Refused) -> Verdict {
    let metadata = refused.metadata;
    match number {
        g::__NR_ioctl if metadata => Verdict::Requests,
        g::__NR_ioctl => Verdict::Decide { argument: 1, listed: List::Ioctls, then: REFUSE, otherwise: ALLOW },
        g::__NR_socket | g::__NR_socketpair => {
            let listed = if refused.network { List::LocalFamilies } else { List::Families };
            Verdict::Decide { argument: 0, listed, then: ALLOW, otherwise: REFUSE }
        }
        g::__NR_clone => Verdict::RefuseBits { argument: 0, bits: NEW_NAMESPACES },
        g::__NR_unshare => Verdict::RefuseBits { argument: 0, bits: NEW_NAMESPACES | NEW_TIME },
        // SECURITY: a limit on processor time that has passed makes the kernel kill whichever process has it.
        g::__NR_prlimit64 if refused.outside => Verdict::RefuseNonzero { argument: 0 },
        FOREIGN_NUMBERS.. => Verdict::Give(KILL),
        _ if number > NEWEST || contains(ABSENT, number) => Verdict::Give(MISSING),
        _ if contains(DENIED, number) => Verdict::Give(REFUSE),
        _ if metadata && contains(METADATA, number) => Verdict::Give(REFUSE),
        _ if refused.outside && contains(DENIED_WITHOUT_NAMESPACES, number) => Verdict::Give(REFUSE),
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

    /// Returns the place of an answer, which is among the first four that were put.
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
            Verdict::RefuseBits { argument, bits } => {
                let (refuse, allow) = (self.answer(REFUSE), self.answer(ALLOW));
                self.put(JUMP_BITS, bits, refuse, allow);
                self.put_straight(LOAD, offset_of(argument))
            }
            Verdict::RefuseNonzero { argument } => {
                let (allow, refuse) = (self.answer(ALLOW), self.answer(REFUSE));
                self.put(JUMP_EQUAL, 0, allow, refuse);
                self.put_straight(LOAD, offset_of(argument))
            }
            Verdict::Requests => {
                let (allow, refuse) = (self.answer(ALLOW), self.answer(REFUSE));
                self.any_of(OPEN_IOCTL_TYPES, allow, refuse);
                let by_type = self.put_straight(KEEP_BITS, 0xff00);
                let by_number = self.any_of(OPEN_IOCTLS, allow, by_type);
                self.any_of(DENIED_IOCTLS, refuse, by_number);
                self.put_straight(LOAD, offset_of(1))
            }
            Verdict::Decide { argument, listed, then, otherwise } => {
                self.any_of(listed.items(), self.answer(then), self.answer(otherwise));
                self.put_straight(LOAD, offset_of(argument))
            }
        }
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
    ($name:ident, $metadata:literal, $network:literal, $outside:literal) => {
        static $name: &[Instruction] = {
            const REFUSED: Refused = Refused { metadata: $metadata, network: $network, outside: $outside };
            const LENGTH: usize = assemble::<1024>(REFUSED).length;
            &reverse(assemble::<LENGTH>(REFUSED))
        };
    };
}

filter!(FILTER, false, false, false);
filter!(FILTER_METADATA, true, false, false);
filter!(FILTER_NETWORK, false, true, false);
filter!(FILTER_METADATA_NETWORK, true, true, false);
filter!(FILTER_OUTSIDE, false, false, true);
filter!(FILTER_OUTSIDE_METADATA, true, false, true);
filter!(FILTER_OUTSIDE_NETWORK, false, true, true);
filter!(FILTER_OUTSIDE_METADATA_NETWORK, true, true, true);

/// Installs the filter. `no_new_privs` must be set.
pub(crate) fn restrict(plan: &Plan) -> Result<(), Failure> {
    let program = match (plan.wall, plan.deny_metadata, plan.network == Network::Off) {
        (Wall::Namespace, false, false) => FILTER,
        (Wall::Namespace, true, false) => FILTER_METADATA,
        (Wall::Namespace, false, true) => FILTER_NETWORK,
        (Wall::Namespace, true, true) => FILTER_METADATA_NETWORK,
        (Wall::Landlock, false, false) => FILTER_OUTSIDE,
        (Wall::Landlock, true, false) => FILTER_OUTSIDE_METADATA,
        (Wall::Landlock, false, true) => FILTER_OUTSIDE_NETWORK,
        (Wall::Landlock, true, true) => FILTER_OUTSIDE_METADATA_NETWORK,
    };
    sys::seccomp_filter(program).or_fail("seccomp", "cannot install the system call filter")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel would, on one call.
    fn verdict(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER => number,
            ARCH => architecture,
            _ => {
                let argument = arguments[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
        };
        let (mut at, mut loaded) = (0, 0);
        loop {
            let instruction = program[at];
            at += 1;
            let holds = match instruction.code {
                LOAD => {
                    loaded = word(instruction.value);
                    continue;
                }
                KEEP_BITS => {
                    loaded &= instruction.value;
                    continue;
                }
                RETURN => return instruction.value,
                JUMP_EQUAL => loaded == instruction.value,
                JUMP_NOT_BELOW => loaded >= instruction.value,
                JUMP_BITS => loaded & instruction.value != 0,
                other => panic!("unknown instruction {other:#x}"),
            };
            at += usize::from(if holds { instruction.if_true } else { instruction.if_false });
        }
    }

    fn of(number: u32, arguments: [u64; 6]) -> u32 {
        let verdict_of = verdict(FILTER, ARCHITECTURE, number, arguments);
        assert_eq!(verdict_of, verdict(FILTER_METADATA, ARCHITECTURE, number, arguments));
        verdict_of
    }

    #[test]
    fn every_listed_call_is_answered_as_its_table_says() {
        for number in DENIED {
            assert_eq!(of(*number, [0; 6]), REFUSE, "{number}");
        }
        for number in ABSENT {
            assert_eq!(of(*number, [0; 6]), MISSING, "{number}");
        }
        for number in METADATA {
            assert_eq!(verdict(FILTER, ARCHITECTURE, *number, [0; 6]), ALLOW, "{number}");
            assert_eq!(verdict(FILTER_METADATA, ARCHITECTURE, *number, [0; 6]), REFUSE, "{number}");
        }
    }

    #[test]
    fn ordinary_calls_are_allowed() {
        for number in
            [g::__NR_read, g::__NR_openat, g::__NR_execve, g::__NR_ptrace, g::__NR_kill, g::__NR_landlock_restrict_self]
        {
            assert_eq!(of(number, [0; 6]), ALLOW, "{number}");
        }
    }

    #[test]
    fn foreign_abis_end_the_process() {
        assert_eq!(verdict(FILTER, 0x4000_0003, g::__NR_read, [0; 6]), KILL);
        assert_eq!(verdict(FILTER, ARCHITECTURE, FOREIGN_NUMBERS | g::__NR_read, [0; 6]), KILL);
    }

    #[test]
    fn calls_newer_than_the_table_do_not_exist() {
        assert_eq!(verdict(FILTER, ARCHITECTURE, NEWEST, [0; 6]), ALLOW);
        assert_eq!(of(NEWEST + 1, [0; 6]), MISSING);
        assert_eq!(of(900, [0; 6]), MISSING);
    }

    #[test]
    fn new_namespaces_are_refused_and_threads_are_not() {
        for flag in [g::CLONE_NEWUSER, g::CLONE_NEWNS, g::CLONE_NEWPID, g::CLONE_NEWNET, g::CLONE_NEWCGROUP] {
            assert_eq!(of(g::__NR_clone, [u64::from(flag | g::SIGCHLD), 0, 0, 0, 0, 0]), REFUSE);
            assert_eq!(of(g::__NR_unshare, [flag.into(), 0, 0, 0, 0, 0]), REFUSE);
        }
        let thread = g::CLONE_VM | g::CLONE_FS | g::CLONE_FILES | g::CLONE_SIGHAND | g::CLONE_THREAD;
        assert_eq!(of(g::__NR_clone, [thread.into(), 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(of(g::__NR_unshare, [g::CLONE_FILES.into(), 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(of(g::__NR_unshare, [g::CLONE_NEWTIME.into(), 0, 0, 0, 0, 0]), REFUSE);
    }

    #[test]
    fn terminal_input_is_refused_whatever_the_upper_half_of_the_argument_holds() {
        for request in DENIED_IOCTLS {
            assert_eq!(of(g::__NR_ioctl, [0, (*request).into(), 0, 0, 0, 0]), REFUSE);
            assert_eq!(of(g::__NR_ioctl, [0, u64::from(*request) | (7 << 32), 0, 0, 0, 0]), REFUSE);
        }
        assert_eq!(of(g::__NR_ioctl, [0, i::TCGETS.into(), 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn without_namespaces_limits_and_queues_of_others_are_out_of_reach() {
        for filter in [FILTER_OUTSIDE, FILTER_OUTSIDE_METADATA, FILTER_OUTSIDE_NETWORK, FILTER_OUTSIDE_METADATA_NETWORK]
        {
            let on = |number, first| verdict(filter, ARCHITECTURE, number, [first, 0, 0, 0, 0, 0]);
            assert_eq!(on(g::__NR_prlimit64, 0), ALLOW);
            assert_eq!(on(g::__NR_prlimit64, 4711), REFUSE);
            assert_eq!(on(g::__NR_mq_open, 0), REFUSE);
            assert_eq!(on(g::__NR_mq_unlink, 0), REFUSE);
        }
        assert_eq!(of(g::__NR_prlimit64, [4711, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(of(g::__NR_mq_open, [0; 6]), ALLOW);
    }

    #[test]
    fn with_the_network_off_only_unix_sockets_are_open() {
        for filter in [FILTER_NETWORK, FILTER_METADATA_NETWORK] {
            for family in [n::AF_INET, n::AF_INET6, n::AF_NETLINK, n::AF_PACKET, 40] {
                assert_eq!(verdict(filter, ARCHITECTURE, g::__NR_socket, [family.into(), 1, 0, 0, 0, 0]), REFUSE);
            }
            assert_eq!(verdict(filter, ARCHITECTURE, g::__NR_socketpair, [n::AF_UNIX.into(), 1, 0, 0, 0, 0]), ALLOW);
        }
    }

    #[test]
    fn where_metadata_is_refused_only_requests_that_read_are_open() {
        let request = |number: u64| verdict(FILTER_METADATA, ARCHITECTURE, g::__NR_ioctl, [0, number, 0, 0, 0, 0]);
        // FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, EXT4_IOC_SETVERSION, BTRFS_IOC_SUBVOL_CREATE, FS_IOC_ENABLE_VERITY
        for number in [0x4008_6602, 0x401c_5820, 0x4008_6604, 0x5000_940e, 0x4080_6685, 0] {
            assert_eq!(request(number), REFUSE, "{number:#x}");
        }
        // TCGETS, TIOCGPTN, FIONREAD, FIOCLEX, SIOCGIFCONF, FS_IOC_GETFLAGS
        for number in [0x5401, 0x8004_5430, 0x541b, 0x5451, 0x8912, 0x8008_6601] {
            assert_eq!(request(number), ALLOW, "{number:#x}");
        }
        assert_eq!(request(i::TIOCSTI.into()), REFUSE);
    }

    #[test]
    fn only_listed_socket_families_are_open() {
        assert_eq!(of(g::__NR_socket, [u64::from(n::AF_INET6), 1, 0, 0, 0, 0]), ALLOW);
        assert_eq!(of(g::__NR_socketpair, [u64::from(n::AF_UNIX), 1, 0, 0, 0, 0]), ALLOW);
        for family in [38, 40, 44] {
            assert_eq!(of(g::__NR_socket, [family, 1, 0, 0, 0, 0]), REFUSE);
        }
    }
}
