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
    for number in MODES.iter().chain(brokered::METADATA) {
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
    let inside_another =
        [FILTER_OUTSIDE, FILTER_OUTSIDE_METADATA, FILTER_OUTSIDE_NETWORK, FILTER_OUTSIDE_METADATA_NETWORK];
    for filter in [inside_another, ALONE].concat() {
        let on = |number, first| verdict(filter, ARCHITECTURE, number, [first, 0, 0, 0, 0, 0]);
        assert_eq!(on(g::__NR_prlimit64, 0), ALLOW);
        assert_eq!(on(g::__NR_prlimit64, 4711), REFUSE);
        assert_eq!(on(g::__NR_mq_open, 0), REFUSE);
        assert_eq!(on(g::__NR_mq_unlink, 0), REFUSE);
    }
    assert_eq!(of(g::__NR_prlimit64, [4711, 0, 0, 0, 0, 0]), ALLOW);
    assert_eq!(of(g::__NR_mq_open, [0; 6]), ALLOW);
}

/// All filters for a command without an IPC namespace, but for those with a broker.
const ALONE: [&[Instruction]; 4] =
    [FILTER_ALONE, FILTER_ALONE_METADATA, FILTER_ALONE_NETWORK, FILTER_ALONE_METADATA_NETWORK];

#[test]
fn without_an_ipc_namespace_there_is_no_system_v_ipc() {
    for number in SYSTEM_V {
        for filter in ALONE.into_iter().chain([FILTER_ALONE_BROKER, FILTER_ALONE_BROKER_CONNECTIONS_NETWORK]) {
            assert_eq!(verdict(filter, ARCHITECTURE, *number, [0; 6]), REFUSE, "{number}");
        }
        for filter in [FILTER, FILTER_OUTSIDE, FILTER_OUTSIDE_METADATA, FILTER_BROKER] {
            assert_eq!(verdict(filter, ARCHITECTURE, *number, [0; 6]), ALLOW, "{number}");
        }
    }
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

/// All filters with a broker: those that leave connections to it last.
const BROKERED: [&[Instruction]; 8] = [
    FILTER_BROKER,
    FILTER_BROKER_NETWORK,
    FILTER_ALONE_BROKER,
    FILTER_ALONE_BROKER_NETWORK,
    FILTER_BROKER_CONNECTIONS,
    FILTER_BROKER_CONNECTIONS_NETWORK,
    FILTER_ALONE_BROKER_CONNECTIONS,
    FILTER_ALONE_BROKER_CONNECTIONS_NETWORK,
];

#[test]
fn connections_reach_the_broker_and_no_unix_socket_sends_to_a_path() {
    let unix = n::AF_UNIX;
    for (index, filter) in BROKERED.into_iter().enumerate() {
        let on = |number, arguments| verdict(filter, ARCHITECTURE, number, arguments);
        let (left, network) = (index >= 4, index % 2 == 0);
        assert_eq!(on(g::__NR_connect, [0; 6]), if left { NOTIFY } else { ALLOW });
        for number in [g::__NR_socket, g::__NR_socketpair] {
            for (family, kind, expected) in [
                (unix, 1, ALLOW),
                (unix, 5, ALLOW),
                // The kernel makes a datagram socket of a raw one (unix(7)).
                (unix, 2, if left { REFUSE } else { ALLOW }),
                (unix, 3, if left { REFUSE } else { ALLOW }),
                (n::AF_INET, 2, if network { ALLOW } else { REFUSE }),
                (n::AF_NETLINK, 3, if network { ALLOW } else { REFUSE }),
                (40, 1, REFUSE),
            ] {
                for flags in [0, 0o2_000_000, 0o4000, 7 << 32] {
                    let arguments = [u64::from(family), kind | flags, 0, 0, 0, 0];
                    assert_eq!(on(number, arguments), expected, "{index} {family} {kind}");
                }
            }
        }
    }
}

#[test]
fn of_netlink_only_what_talks_to_the_kernel_is_open() {
    for protocol in 0..32_u32 {
        let expected = if [0, 4, 15, 16].contains(&protocol) { ALLOW } else { REFUSE };
        for high in [0, 7 << 32] {
            let arguments = [u64::from(n::AF_NETLINK), 3, u64::from(protocol) | high, 0, 0, 0];
            assert_eq!(of(g::__NR_socket, arguments), expected, "{protocol}");
        }
        assert_eq!(of(g::__NR_socket, [n::AF_UNIX.into(), 2, protocol.into(), 0, 0, 0]), ALLOW);
    }
}

#[test]
fn of_the_internet_only_protocols_of_every_day_are_open() {
    let socket = |family: u32, protocol: u32| of(g::__NR_socket, [family.into(), 2, protocol.into(), 0, 0, 0]);
    for family in [n::AF_INET, n::AF_INET6] {
        for protocol in 0..300 {
            let expected = if [0, 1, 6, 17, 58, 136, 262].contains(&protocol) { ALLOW } else { REFUSE };
            assert_eq!(socket(family, protocol), expected, "{protocol}");
        }
    }
}

#[test]
fn the_limit_on_cores_is_read_and_seems_to_be_set() {
    let filters = [FILTER, FILTER_METADATA_NETWORK, FILTER_OUTSIDE, FILTER_BROKER, FILTER_ALONE, FILTER_ALONE_BROKER];
    let (core, other) = (u64::from(g::RLIMIT_CORE), u64::from(g::RLIMIT_NOFILE));
    for filter in filters {
        let on = |number, arguments| verdict(filter, ARCHITECTURE, number, arguments);
        let limit = |resource, new, old| on(g::__NR_prlimit64, [0, resource, new, old, 0, 0]);
        for pointer in [8, 8 << 32] {
            assert_eq!(limit(core, pointer, 0), PRETEND);
            assert_eq!(limit(core | (7 << 32), pointer, 0), PRETEND);
            assert_eq!(limit(core, pointer, pointer), REFUSE);
            assert_eq!(limit(core, 0, pointer), ALLOW);
            assert_eq!(limit(other, pointer, pointer), ALLOW);
        }
        assert_eq!(on(g::__NR_setrlimit, [core, 8, 0, 0, 0, 0]), PRETEND);
        assert_eq!(on(g::__NR_setrlimit, [other, 8, 0, 0, 0, 0]), ALLOW);
        assert_eq!(on(g::__NR_getrlimit, [core, 8, 0, 0, 0, 0]), ALLOW);
    }
}

#[test]
fn without_a_pid_namespace_nobody_elses_priority_changes() {
    let alone = ALONE.into_iter().chain([FILTER_ALONE_BROKER, FILTER_ALONE_BROKER_NETWORK]);
    for filter in alone {
        let on = |number, first, second| verdict(filter, ARCHITECTURE, number, [first, second, 0, 0, 0, 0]);
        // Which: a process, a group, a user. Who: oneself, another.
        for (number, first) in [(g::__NR_setpriority, 0), (g::__NR_ioprio_set, 1)] {
            for who in [0, 7 << 32] {
                assert_eq!(on(number, first, who), ALLOW);
                assert_eq!(on(number, first + 1, who), ALLOW);
                assert_eq!(on(number, first + 2, who), REFUSE);
            }
            for which in 0..4 {
                assert_eq!(on(number, which, 4711), REFUSE);
            }
        }
        for number in [g::__NR_sched_setparam, g::__NR_sched_setattr] {
            assert_eq!((on(number, 0, 8), on(number, 4711, 8)), (ALLOW, REFUSE));
        }
        // SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_OTHER with SCHED_RESET_ON_FORK.
        for (policy, others) in [(0, ALLOW), (3, REFUSE), (5, REFUSE), (0x4000_0000, REFUSE)] {
            assert_eq!(on(g::__NR_sched_setscheduler, 0, policy), ALLOW);
            assert_eq!(on(g::__NR_sched_setscheduler, 4711, policy), others, "{policy:#x}");
        }
    }
    for number in [g::__NR_setpriority, g::__NR_ioprio_set, g::__NR_sched_setscheduler, g::__NR_sched_setattr] {
        assert_eq!(of(number, [2, 4711, 0, 0, 0, 0]), ALLOW, "{number}");
        assert_eq!(verdict(FILTER_OUTSIDE, ARCHITECTURE, number, [2, 4711, 0, 0, 0, 0]), ALLOW, "{number}");
    }
}

#[test]
fn with_a_broker_only_calls_that_change_something_reach_it() {
    for filter in BROKERED {
        let on = |number, arguments| verdict(filter, ARCHITECTURE, number, arguments);
        let openat = |flags: u32| on(g::__NR_openat, [0, 0, flags.into(), 0, 0, 0]);
        for flags in [g::O_WRONLY, g::O_RDWR, g::O_CREAT, g::O_TRUNC, g::O_TMPFILE, g::O_RDWR | g::O_CLOEXEC, 3] {
            assert_eq!(openat(flags), NOTIFY, "{flags:#o}");
            assert_eq!(on(g::__NR_open, [0, flags.into(), 0, 0, 0, 0]), NOTIFY, "{flags:#o}");
        }
        for flags in [g::O_RDONLY, g::O_CLOEXEC, g::O_DIRECTORY | g::O_PATH, g::O_NOFOLLOW | g::O_NONBLOCK] {
            assert_eq!(openat(flags), ALLOW, "{flags:#o}");
        }
        for number in brokered::NAMES {
            assert_eq!(on(*number, [0; 6]), NOTIFY, "{number}");
        }
        assert_eq!(on(g::__NR_openat2, [0; 6]), MISSING);
        for number in [g::__NR_read, g::__NR_write, g::__NR_ftruncate, g::__NR_newfstatat, g::__NR_execve] {
            assert_eq!(on(number, [0; 6]), ALLOW, "{number}");
        }
        for number in DENIED {
            assert_eq!(on(*number, [0; 6]), REFUSE, "{number}");
        }
    }
}

#[test]
fn metadata_reaches_the_broker() {
    let request = |filter, number: u64| verdict(filter, ARCHITECTURE, g::__NR_ioctl, [0, number, 0, 0, 0, 0]);
    for filter in BROKERED {
        for number in MODES.iter().chain(brokered::METADATA) {
            assert_eq!(verdict(filter, ARCHITECTURE, *number, [0; 6]), NOTIFY, "{number}");
        }
        assert_eq!(request(filter, 0x4008_6602), NOTIFY);
        assert_eq!(request(filter, 0x5401), ALLOW);
        assert_eq!(request(filter, i::TIOCSTI.into()), REFUSE);
    }
}

/// Where metadata is open or governed by mounts, attributes can be set as well; what nobody knows is refused everywhere.
#[test]
fn requests_that_nobody_knows_are_refused_by_every_filter() {
    let request = |filter, number: u64| verdict(filter, ARCHITECTURE, g::__NR_ioctl, [0, number, 0, 0, 0, 0]);
    // BTRFS_IOC_SUBVOL_CREATE, SNAP_CREATE_V2, SNAP_DESTROY_V2, BALANCE; FS_IOC_ADD_ENCRYPTION_KEY; FS_IOC_ENABLE_VERITY,
    // EXT4_IOC_MIGRATE, EXT4_IOC_SETVERSION, FITRIM, FIFREEZE; KVM_CREATE_VM, LOOP_SET_FD, BLKROSET; the last possible type.
    let unknown = [
        0x5000_940e,
        0x5000_9417,
        0x5000_943f,
        0x5000_940c,
        0xc050_6617,
        0x4080_6685,
        0x6609,
        0x4008_6604,
        0xc018_5879,
        0xc004_5877,
        0xae01,
        0x4c00,
        0x125d,
        0xff00,
        0,
    ];
    let open = [FILTER, FILTER_NETWORK, FILTER_OUTSIDE, FILTER_OUTSIDE_NETWORK, FILTER_ALONE, FILTER_ALONE_NETWORK];
    for filter in open {
        for number in unknown {
            assert_eq!(request(filter, number), REFUSE, "{number:#x}");
            assert_eq!(request(filter, number | 7 << 32), REFUSE, "{number:#x}");
        }
        // FS_IOC_SETFLAGS, FS_IOC32_SETFLAGS, FS_IOC_FSSETXATTR; TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX, SIOCGIFCONF,
        // FICLONE.
        for number in
            [0x4008_6602, 0x4004_6602, 0x401c_5820, 0x5401, 0x5413, 0x541b, 0x5421, 0x5451, 0x8912, 0x4004_9409]
        {
            assert_eq!(request(filter, number), ALLOW, "{number:#x}");
        }
    }
    for number in unknown {
        assert_eq!(request(FILTER_METADATA, number), REFUSE, "{number:#x}");
        // It refuses what it does not know.
        assert_eq!(request(FILTER_BROKER, number), NOTIFY, "{number:#x}");
    }
}

/// Signals to the owner of a stream, whom the caller or the terminal has named.
#[test]
fn no_descriptor_is_made_to_send_signals() {
    let request = |operation: u32, argument: u64| of(g::__NR_fcntl, [0, operation.into(), argument, 0, 0, 0]);
    for flags in [g::FASYNC, g::FASYNC | g::O_NONBLOCK] {
        assert_eq!(request(g::F_SETFL, flags.into()), REFUSE);
        assert_eq!(request(g::F_GETFL, flags.into()), ALLOW);
    }
    assert_eq!(request(g::F_SETFL, (g::O_NONBLOCK | g::O_APPEND).into()), ALLOW);
    assert_eq!(request(g::F_SETSIG, 10), REFUSE);
    assert_eq!(of(g::__NR_fcntl, [0, u64::from(g::F_SETSIG) | (7 << 32), 10, 0, 0, 0]), REFUSE);
    // F_SET_RW_HINT, F_SET_FILE_RW_HINT; and those that read the hints.
    assert_eq!((request(1036, 0), request(1038, 0)), (REFUSE, REFUSE));
    assert_eq!((request(1035, 0), request(1037, 0)), (ALLOW, ALLOW));
    for operation in [g::F_DUPFD, g::F_GETFD, g::F_SETFD, g::F_SETLK, g::F_SETOWN, g::F_DUPFD_CLOEXEC] {
        assert_eq!(request(operation, u64::from(g::FASYNC)), ALLOW, "{operation}");
    }
}
