//! Regaining power: mounts, namespaces, kernel settings, devices, capabilities, the terminal.
//!
//! Everything here is harmless where it succeeds: mounts are changed in an own mount namespace where that can be had,
//! settings are written back as they were, devices are only opened.

use crate::meta::{chmod, ioctl, own_gid, own_uid};
use crate::{Attempt, Target, attempt, write_file};
use libc::{AT_FDCWD, CLONE_NEWNS, CLONE_NEWUSER, MS_BIND, MS_PRIVATE, MS_REC, MS_REMOUNT};
use libc::{O_CREAT, O_DIRECTORY, O_EXCL, O_NOCTTY, O_RDONLY, O_RDWR, O_WRONLY};
use pinfold_conformance::errno::{Act, Errno};
use pinfold_conformance::sys;
use pinfold_conformance::sys::{Ended, c, call, open, open_at, read, run, wait, write, write_all};
use std::ffi::CStr;

const MOUNT_ATTR_RDONLY: u64 = 1;
const MOUNT_ATTR_NOATIME: u64 = 0x10;
const OPEN_TREE_CLONE: i32 = 1;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("admin-fanotify-event-fd", "get a writable descriptor of a file outside from fanotify", |t| {
        let fd = fanotify(t, libc::FAN_OPEN, O_RDWR)?;
        sys::in_child(|| open(&t.out("f"), O_RDONLY).map(drop))?;
        // struct fanotify_event_metadata: length, version, reserved, metadata length, mask, fd, pid
        let mut event = [0u32; 6];
        sys!(libc::SYS_read, fd, write(&mut event), 24usize)?;
        write_all(event[4] as i32, b"changed\n")
    }),
    attempt("admin-fanotify-open-perm", "hold up every open of a file outside", |t| {
        fanotify(t, libc::FAN_OPEN_PERM, O_RDONLY).map(drop)
    }),
    attempt("admin-core-pattern", "write /proc/sys/kernel/core_pattern", |_| rewrite(c"/proc/sys/kernel/core_pattern")),
    attempt("admin-sysrq", "open /proc/sysrq-trigger for writing", |_| {
        open(c"/proc/sysrq-trigger", O_WRONLY).map(drop)
    }),
    attempt("admin-init-root-write", "write below /proc/1/root", |t| {
        write_file(&c(format!("/proc/1/root{}/{}/f", t.context.out.display(), t.id)), O_WRONLY)
    }),
    attempt("admin-rename-ws-root", "rename the workspace itself (and back)", |t| {
        let (from, to) = (c(&t.context.ws), c(t.context.ws.with_extension("moved")));
        crate::path::rename(&from, &to, 0)?;
        crate::path::rename(&to, &from, 0)
    }),
    attempt("admin-clone3-newuser", "clone3 with a new user namespace", |_| {
        let mut args = [0u64; 8];
        args[0] = CLONE_NEWUSER as u64;
        args[4] = libc::SIGCHLD as u64;
        let pid = sys!(libc::SYS_clone3, read(&args), 64usize)?;
        if pid == 0 {
            std::process::exit(0);
        }
        wait(pid as i32).map(drop)
    }),
    attempt("admin-clone-newuser", "clone with a new user namespace", |_| clone(CLONE_NEWUSER as u64)),
    attempt("admin-clone-newuser-high-bits", "the same, with a high bit in the flags", |_| {
        // The kernel looks at 32 bits of them; a filter that compares 64 sees another number.
        clone(CLONE_NEWUSER as u64 | 1 << 32)
    }),
    attempt("admin-landlock-layers", "add Landlock layers of its own", |_| landlock_layers(3)),
    attempt("admin-x32-abi", "a system call of the x32 ABI", |_| x32()),
    attempt("admin-i386-abi", "a system call by int 0x80", |_| i386()),
    attempt("admin-mount-tmpfs", "mount a tmpfs over a directory of the workspace", |t| {
        own_mounts();
        mount_tmpfs(&t.ws("d"))
    }),
    attempt("admin-remount-root", "remount / writable and write", |t| {
        own_mounts();
        mount(None, c"/", MS_REMOUNT | MS_BIND)?;
        write_file(&t.out("f"), O_WRONLY)
    }),
    attempt("admin-bind-self", "bind the directory outside over itself, remount it writable and write", |t| {
        own_mounts();
        let out = c(&t.context.out);
        mount(Some(&out), &out, MS_BIND)?;
        mount(None, &out, MS_REMOUNT | MS_BIND)?;
        write_file(&t.out("f"), O_WRONLY)
    }),
    attempt("admin-bind-out-on-ws", "bind the directory outside onto the workspace and write", |t| {
        own_mounts();
        mount(Some(&t.out("")), &t.ws("d"), MS_BIND)?;
        write_file(&t.ws("d/f"), O_WRONLY)
    }),
    attempt("admin-umount-proc", "unmount /proc", |_| {
        own_mounts();
        sys!(libc::SYS_umount2, c"/proc", libc::MNT_DETACH).map(drop)
    }),
    attempt("admin-pivot-root", "make a directory of the workspace the root", |t| {
        own_mounts();
        // It has to be a mount; if that is not allowed, the call itself shows what is.
        let _ = mount(Some(&t.ws("d")), &t.ws("d"), MS_BIND);
        sys!(libc::SYS_pivot_root, &t.ws("d"), &t.ws("d")).map(drop)
    }),
    attempt("admin-fspick", "pick the file system of / for a change", |_| {
        sys!(libc::SYS_fspick, AT_FDCWD, c"/", 0).map(drop)
    }),
    attempt("admin-chroot", "change the root to outside and write", |t| {
        sys!(libc::SYS_chroot, &t.out(""))?;
        write_file(c"/f", O_WRONLY)
    }),
    attempt("admin-mount-setattr-root", "clear the read-only flag of / and write", |t| {
        own_mounts();
        mount_setattr(c"/", 0, MOUNT_ATTR_RDONLY)?;
        write_file(&t.out("f"), O_WRONLY)
    }),
    attempt("admin-mount-setattr-flags", "change other flags of /", |_| {
        own_mounts();
        mount_setattr(c"/", MOUNT_ATTR_NOATIME, 0x70)
    }),
    attempt("admin-open-tree-write", "clone the mount outside and write in it", |t| {
        let tree = open_tree(&t.out(""))?;
        let fd = open_at(tree, c"f", O_WRONLY)?;
        write_all(fd, b"changed\n")
    }),
    attempt("admin-open-tree-read", "clone the mount outside and read in it", |t| {
        open_at(open_tree(&t.out(""))?, c"f", O_RDONLY).map(drop)
    }),
    attempt("admin-open-tree-attr", "clone the mount outside writable (6.15) and write", |t| {
        let attributes = [0u64, MOUNT_ATTR_RDONLY, 0, 0];
        let flags = OPEN_TREE_CLONE;
        let tree = sys!(467, AT_FDCWD, &t.out(""), flags, read(&attributes), 32usize)? as i32;
        let fd = open_at(tree, c"f", O_WRONLY)?;
        write_all(fd, b"changed\n")
    }),
    attempt("admin-fsopen", "make a tmpfs with fsopen and create in it", |_| {
        let context = sys!(libc::SYS_fsopen, c"tmpfs", 1)?;
        sys!(libc::SYS_fsconfig, context, 6 /* FSCONFIG_CMD_CREATE */, 0, 0, 0)?;
        let tree = sys!(libc::SYS_fsmount, context, 1, 0)? as i32;
        open_at(tree, c"new", O_WRONLY | O_CREAT).map(drop)
    }),
    attempt("admin-unshare-newuser", "unshare the user namespace", |_| {
        sys!(libc::SYS_unshare, CLONE_NEWUSER).map(drop)
    }),
    attempt("admin-userns-tmpfs", "new user namespace: mount a tmpfs", |t| {
        new_user_namespace()?;
        mount_tmpfs(&t.ws("d"))
    }),
    attempt("admin-userns-remount-root", "new user namespace: remount / writable and write", |t| {
        new_user_namespace()?;
        mount(None, c"/", MS_REMOUNT | MS_BIND)?;
        write_file(&t.out("f"), O_WRONLY)
    }),
    attempt("admin-userns-bind-out", "new user namespace: bind outside onto the workspace and write", |t| {
        new_user_namespace()?;
        mount(Some(&t.out("")), &t.ws("d"), MS_BIND)?;
        write_file(&t.ws("d/f"), O_WRONLY)
    }),
    attempt("admin-userns-chmod", "new user namespace: chmod outside", |t| {
        new_user_namespace()?;
        chmod(&t.out("f"), 0o600)
    }),
    attempt("admin-setns-mount", "enter the mount namespace of the process outside and write", |t| {
        let fd = open(&t.victim("ns/mnt"), O_RDONLY)?;
        sys!(libc::SYS_setns, fd, CLONE_NEWNS)?;
        write_file(&t.out("f"), O_WRONLY)
    }),
    attempt("admin-mknod-disk", "make the root disk's device in the workspace and open it", |t| {
        // SAFETY: statx is made of numbers, for which zero is a value.
        let mut s: libc::statx = unsafe { std::mem::zeroed() };
        sys!(libc::SYS_statx, AT_FDCWD, c"/", 0, 0, write(&mut s))?;
        let device = libc::makedev(s.stx_dev_major, s.stx_dev_minor);
        sys!(libc::SYS_mknodat, AT_FDCWD, &t.ws("disk"), libc::S_IFBLK | 0o600, device)?;
        open(&t.ws("disk"), O_WRONLY).map(drop)
    }),
    attempt("admin-open-device", "open a block device of the host for reading", |_| {
        use std::os::unix::fs::FileTypeExt as _;
        let nodes = std::fs::read_dir("/dev")?.flatten();
        let nodes = nodes.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_block_device()));
        let mut last = Err(Errno(libc::ENOENT));
        for node in nodes {
            last = open(&c(node.path().display().to_string()), O_RDONLY).map(drop);
            if last.is_ok() {
                break;
            }
        }
        last
    }),
    attempt("admin-open-disk", "open the root disk for writing", |_| {
        first(&[c"/dev/vda", c"/dev/sda", c"/dev/nvme0n1", c"/dev/ram0"], O_WRONLY)
    }),
    attempt("admin-sethostname", "set the host name (to what it is)", |_| {
        let name = std::fs::read("/proc/sys/kernel/hostname")?;
        let name = name.trim_ascii_end();
        sys!(libc::SYS_sethostname, name, name.len()).map(drop)
    }),
    attempt("admin-proc-sys", "write /proc/sys/kernel/panic", |_| rewrite(c"/proc/sys/kernel/panic")),
    attempt("admin-sys-file", "open a file in /sys for writing", |_| {
        first(
            &[c"/sys/kernel/mm/ksm/run", c"/sys/kernel/profiling", c"/sys/power/state", c"/sys/kernel/rcu_normal"],
            O_WRONLY,
        )
    }),
    attempt("admin-cgroup-procs", "open cgroup.procs for writing", |_| {
        first(&[c"/sys/fs/cgroup/cgroup.procs", c"/sys/fs/cgroup/memory/cgroup.procs"], O_WRONLY)
    }),
    attempt("admin-device-ioctl", "send a request to a device that was opened for reading", |_| {
        const TUNGETFEATURES: usize = 0x8004_54cf;
        let device = open(c"/dev/net/tun", O_RDONLY)?;
        let mut features = 0u32;
        sys!(libc::SYS_ioctl, device, TUNGETFEATURES, write(&mut features)).map(drop)
    }),
    attempt("admin-init-module", "load a kernel module (an empty one)", |_| {
        match sys!(libc::SYS_init_module, &b""[..], 0usize, c"") {
            // It got as far as looking at the module.
            Err(Errno(libc::ENOEXEC | libc::EINVAL)) => Ok(()),
            other => other.map(drop),
        }
    }),
    attempt("admin-bpf-load", "load a kprobe program", |_| {
        // mov r0, 0; exit
        let program: [u64; 2] = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095];
        let mut attributes = [0u64; 16];
        attributes[0] = 2 | (2 << 32);
        attributes[1] = program.as_ptr() as u64;
        attributes[2] = c"GPL".as_ptr() as u64;
        sys!(libc::SYS_bpf, 5 /* BPF_PROG_LOAD */, read(&attributes), 128usize).map(drop)
    }),
    attempt("admin-perf-cpu", "watch a processor with perf", |_| {
        // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK
        let mut attributes = [0u32; 32];
        attributes[0] = 1;
        attributes[1] = 128;
        sys!(libc::SYS_perf_event_open, read(&attributes), -1, 0, -1, 0).map(drop)
    }),
    attempt("admin-userfaultfd", "handle page faults of the kernel", |_| {
        sys!(libc::SYS_userfaultfd, libc::O_CLOEXEC).map(drop)
    }),
    attempt("admin-kmsg", "open /dev/kmsg for writing", |_| open(c"/dev/kmsg", O_WRONLY).map(drop)),
    attempt("admin-syslog", "read the kernel log", |_| {
        let mut bytes = [0u8; 256];
        sys!(libc::SYS_syslog, 3, &mut bytes[..], 256).map(drop)
    }),
    attempt("admin-dev-shm-file", "create a file in /dev/shm", |t| shared_file(t, "/dev/shm")),
    attempt("admin-tmp-file", "create a file in /tmp", |t| shared_file(t, "/tmp")),
    attempt("admin-var-tmp-file", "create a file in /var/tmp", |t| shared_file(t, "/var/tmp")),
    attempt("admin-tiocsti", "push a character into the controlling terminal's input", |_| {
        ioctl(0, libc::TIOCSTI as u32, read(&b'X'))
    }),
    attempt("admin-tiocsti-high-bits", "the same, by a request number with high bits", |_| {
        // The kernel looks at 32 bits of it; a filter that compares 64 sees another number.
        call(libc::SYS_ioctl, &[0.into(), ((1u64 << 32) | libc::TIOCSTI).into(), read(&b'X')]).map(drop)
    }),
    attempt("admin-tioclinux", "paste the console's selection", |_| ioctl(0, libc::TIOCLINUX as u32, read(&3u8))),
    attempt("admin-other-terminal", "write on a terminal outside", |t| {
        let fd = open(&c(&t.context.terminal), O_WRONLY | O_NOCTTY)?;
        write_all(fd, t.text())
    }),
    attempt("admin-tty-open", "open the controlling terminal and push a character into its input", |_| {
        let fd = open(c"/dev/tty", O_RDWR | O_NOCTTY)?;
        ioctl(fd, libc::TIOCSTI as u32, read(&b'X'))
    }),
    attempt("admin-setuid-exec", "gain a uid from a set-uid program", |t| {
        let Some((program, uid)) = t.context.setuid.as_ref() else {
            // Only root can prepare such a program; what decides is whether the bit would count.
            let status = std::fs::read_to_string("/proc/self/status")?;
            return if status.contains("NoNewPrivs:\t1") { Err(Errno(libc::EPERM)) } else { Ok(()) };
        };
        let program = c(program);
        let uid = c(uid.to_string());
        // It is this program, owned by that uid.
        match run(&program, &[c"hostile", c"shows-uid", &uid])? {
            Ended::Code(0) => Ok(()),
            _ => Err(Errno(libc::EPERM)),
        }
    }),
    attempt("admin-power", "keep a capability, or run without no_new_privs", |_| {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map_or("", str::trim);
        let powerless = |name: &str| field(name).bytes().all(|b| b == b'0');
        let none = ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"].into_iter().all(powerless);
        if none && field("NoNewPrivs:") == "1" { Err(Errno(libc::EPERM)) } else { Ok(()) }
    }),
];

/// `clone` like `fork`, with these flags too.
fn clone(flags: u64) -> Act {
    let pid = sys!(libc::SYS_clone, flags | libc::SIGCHLD as u64, 0, 0, 0, 0)?;
    if pid == 0 {
        std::process::exit(0);
    }
    wait(pid as i32).map(drop)
}

fn fanotify(t: &Target, mask: u64, flags: i32) -> Result<i32, Errno> {
    let fd = sys!(libc::SYS_fanotify_init, libc::FAN_CLASS_CONTENT | libc::FAN_CLOEXEC, flags)? as i32;
    sys!(libc::SYS_fanotify_mark, fd, libc::FAN_MARK_ADD, mask, AT_FDCWD, &t.out("f"))?;
    Ok(fd)
}

/// Writes into a setting what it contains.
fn rewrite(path: &CStr) -> Act {
    let value = std::fs::read(path.to_string_lossy().as_ref())?;
    let fd = open(path, O_WRONLY)?;
    write_all(fd, &value)
}

/// Opens the first of these that exists.
fn first(paths: &[&CStr], flags: i32) -> Act {
    let mut last = Errno(libc::ENOENT);
    for path in paths {
        match open(path, flags) {
            Ok(_) => return Ok(()),
            Err(Errno(libc::ENOENT)) => {}
            Err(e) => last = e,
        }
        if last.0 != libc::ENOENT {
            break;
        }
    }
    Err(last)
}

/// Where it is allowed, mounts are changed in a namespace of the attempt's own: the host of an unconfined run stays as it
/// is. Where it is not allowed, the attempt itself shows what is.
fn own_mounts() {
    if sys!(libc::SYS_unshare, CLONE_NEWNS).is_ok() {
        let _ = mount(None, c"/", MS_REC | MS_PRIVATE);
    }
}

fn mount(from: Option<&CStr>, to: &CStr, flags: u64) -> Act {
    match from {
        Some(from) => sys!(libc::SYS_mount, from, to, 0, flags, 0).map(drop),
        None => sys!(libc::SYS_mount, 0, to, 0, flags, 0).map(drop),
    }
}

fn mount_tmpfs(to: &CStr) -> Act {
    sys!(libc::SYS_mount, c"tmpfs", to, c"tmpfs", 0, 0).map(drop)
}

fn mount_setattr(path: &CStr, set: u64, clear: u64) -> Act {
    let attributes = [set, clear, 0, 0];
    sys!(libc::SYS_mount_setattr, AT_FDCWD, path, 0, read(&attributes), 32usize).map(drop)
}

fn open_tree(path: &CStr) -> Result<i32, Errno> {
    sys!(libc::SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE).map(|fd| fd as i32)
}

fn new_user_namespace() -> Act {
    let (uid, gid) = (own_uid(), own_gid());
    sys!(libc::SYS_unshare, CLONE_NEWUSER | CLONE_NEWNS)?;
    // Without a map there are still capabilities; a map that is refused shows in the attempt.
    let _ = std::fs::write("/proc/self/setgroups", "deny");
    let _ = std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"));
    let _ = std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"));
    let _ = mount(None, c"/", MS_REC | MS_PRIVATE);
    Ok(())
}

/// Creates a file in a directory that the whole host shares. The judge looks for the name, and removes it.
fn shared_file(t: &Target, dir: &str) -> Act {
    write_file(&c(format!("{dir}/{}.{}", t.context.tag, t.id)), O_WRONLY | O_CREAT | O_EXCL)
}

/// Adds Landlock layers that handle every file right and grant none, in a child.
pub(crate) fn landlock_layers(layers: u32) -> Act {
    sys::in_child(|| {
        sys!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
        for _ in 0..layers {
            let ruleset = sys!(libc::SYS_landlock_create_ruleset, read(&0x1fffu64), 8usize, 0)?;
            sys!(libc::SYS_landlock_restrict_self, ruleset, 0)?;
        }
        match open(c"/bin/true", O_RDONLY | O_DIRECTORY) {
            Err(Errno(libc::EACCES | libc::ENOTDIR)) => Ok(()),
            _ => Err(Errno(libc::EIO)),
        }
    })
}

#[cfg(target_arch = "x86_64")]
fn x32() -> Act {
    const X32_GETPID: i64 = 0x4000_0000 | 39;
    sys!(X32_GETPID).map(drop)
}

#[cfg(target_arch = "x86_64")]
fn i386() -> Act {
    let mut result: i64 = 20; // getpid
    // SAFETY: getpid of the i386 table has no arguments and touches no memory; the kernel clears r8 to r11.
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    if result > 0 { Ok(()) } else { Err(Errno(-result as i32)) }
}

#[cfg(not(target_arch = "x86_64"))]
fn x32() -> Act {
    Err(Errno(libc::ENOSYS))
}

#[cfg(not(target_arch = "x86_64"))]
fn i386() -> Act {
    Err(Errno(libc::ENOSYS))
}
