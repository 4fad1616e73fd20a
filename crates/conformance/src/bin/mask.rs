//! Hides system calls from a command, so that it believes to be on an older or stricter kernel.
//!
//! `pinfold-mask [--errno NAME] [--userns] SYSCALL... -- COMMAND [ARGUMENT...]`
//!
//! Each SYSCALL is a name from the list below or a number; it fails with NAME (ENOSYS unless said otherwise). `--userns`:
//! `clone` and `unshare` with a new user namespace fail with EPERM, and `clone3` with ENOSYS, as on hosts that forbid user
//! namespaces. A seccomp filter, so it holds for all descendants; it replaces no file and changes nothing else.

use pinfold_conformance::errno::{Act, Errno};
use pinfold_conformance::sys;
use pinfold_conformance::sys::read;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

macro_rules! numbers {
    ($($name:ident = $constant:expr),* $(,)?) => { const NUMBERS: &[(&str, i64)] = &[$((stringify!($name), $constant)),*]; };
}

numbers! {
    bpf = libc::SYS_bpf,
    clone = libc::SYS_clone,
    clone3 = libc::SYS_clone3,
    close_range = libc::SYS_close_range,
    execveat = libc::SYS_execveat,
    faccessat2 = libc::SYS_faccessat2,
    fchmodat2 = 452,
    fsconfig = libc::SYS_fsconfig,
    fsmount = libc::SYS_fsmount,
    fsopen = libc::SYS_fsopen,
    io_uring_setup = libc::SYS_io_uring_setup,
    keyctl = libc::SYS_keyctl,
    landlock_add_rule = libc::SYS_landlock_add_rule,
    landlock_create_ruleset = libc::SYS_landlock_create_ruleset,
    landlock_restrict_self = libc::SYS_landlock_restrict_self,
    memfd_create = libc::SYS_memfd_create,
    mount = libc::SYS_mount,
    mount_setattr = libc::SYS_mount_setattr,
    move_mount = libc::SYS_move_mount,
    name_to_handle_at = libc::SYS_name_to_handle_at,
    open_tree = libc::SYS_open_tree,
    openat2 = libc::SYS_openat2,
    pidfd_getfd = libc::SYS_pidfd_getfd,
    pidfd_open = libc::SYS_pidfd_open,
    pidfd_send_signal = libc::SYS_pidfd_send_signal,
    pivot_root = libc::SYS_pivot_root,
    prctl = libc::SYS_prctl,
    ptrace = libc::SYS_ptrace,
    seccomp = libc::SYS_seccomp,
    setns = libc::SYS_setns,
    statx = libc::SYS_statx,
    umount2 = libc::SYS_umount2,
    unshare = libc::SYS_unshare,
    waitid = libc::SYS_waitid,
}

struct Asked {
    errno: Errno,
    userns: bool,
    calls: Vec<i64>,
    command: Vec<std::ffi::OsString>,
}

fn main() {
    let asked = parse(std::env::args_os().skip(1)).unwrap_or_else(|text| {
        eprintln!("pinfold-mask: {text}");
        std::process::exit(125);
    });
    if let Err(error) = install(&program(&asked)) {
        eprintln!("pinfold-mask: the filter was refused: {error}");
        std::process::exit(125);
    }
    let Some((program, arguments)) = asked.command.split_first() else { std::process::exit(125) };
    let error = Command::new(program).args(arguments).exec();
    eprintln!("pinfold-mask: {}: {error}", program.to_string_lossy());
    std::process::exit(127);
}

fn parse(words: impl Iterator<Item = std::ffi::OsString>) -> Result<Asked, String> {
    let mut asked = Asked { errno: Errno(libc::ENOSYS), userns: false, calls: Vec::new(), command: Vec::new() };
    let mut words = words;
    loop {
        let Some(word) = words.next() else { return Err("`-- COMMAND` is missing".to_owned()) };
        let word = word.into_string().map_err(|w| format!("{w:?} is not a word"))?;
        match word.as_str() {
            "--" => break,
            "--userns" => asked.userns = true,
            "--errno" => {
                let name = words.next().and_then(|w| w.into_string().ok()).unwrap_or_default();
                asked.errno = Errno::named(&name).ok_or_else(|| format!("no error is called {name:?}"))?;
            }
            name => {
                let known = NUMBERS.iter().find(|(n, _)| *n == name).map(|(_, number)| *number);
                let number =
                    known.or_else(|| name.parse().ok()).ok_or_else(|| format!("unknown system call: {name}"))?;
                asked.calls.push(number);
            }
        }
    }
    asked.command = words.collect();
    if asked.command.is_empty() {
        return Err("the command is missing".to_owned());
    }
    Ok(asked)
}

/// `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
/// The low half of the first argument.
const FIRST_ARGUMENT: u32 = if cfg!(target_endian = "little") { 16 } else { 20 };

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;

fn program(asked: &Asked) -> Vec<Instruction> {
    let plain = |code, value| Instruction { code, if_true: 0, if_false: 0, value };
    // Runs the next instruction only if the loaded value is this one.
    let only_if = |value| Instruction { code: JUMP_IF_EQUAL, if_true: 0, if_false: 1, value };
    let allow = plain(RETURN, libc::SECCOMP_RET_ALLOW);
    let fail = |errno: i32| plain(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32);

    // Another ABI's numbers mean other calls: leave them alone.
    let foreign = Instruction { code: JUMP_IF_EQUAL, if_true: 1, if_false: 0, value: NATIVE };
    let mut filter = vec![plain(LOAD, ARCHITECTURE), foreign, allow, plain(LOAD, NUMBER)];
    for number in &asked.calls {
        filter.extend([only_if(*number as u32), fail(asked.errno.0)]);
    }
    if asked.userns {
        filter.extend([only_if(libc::SYS_clone3 as u32), fail(libc::ENOSYS)]);
        for number in [libc::SYS_clone, libc::SYS_unshare] {
            let skip_four = Instruction { code: JUMP_IF_EQUAL, if_true: 0, if_false: 4, value: number as u32 };
            let has_flag =
                Instruction { code: JUMP_IF_ANY_BIT, if_true: 0, if_false: 1, value: libc::CLONE_NEWUSER as u32 };
            filter.extend([skip_four, plain(LOAD, FIRST_ARGUMENT), has_flag, fail(libc::EPERM), allow]);
        }
    }
    filter.push(allow);
    filter
}

fn install(filter: &[Instruction]) -> Act {
    const SECCOMP_SET_MODE_FILTER: i32 = 1;
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const Instruction,
    }
    let program = Program { length: filter.len() as u16, filter: filter.as_ptr() };
    let set = || sys!(libc::SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, read(&program)).map(drop);
    match set() {
        // Without CAP_SYS_ADMIN a filter needs no_new_privs; with it, set-uid programs keep working below us.
        Err(Errno(libc::EACCES)) => {
            sys!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
            set()
        }
        other => other,
    }
}
