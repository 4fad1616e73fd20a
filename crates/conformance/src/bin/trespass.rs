//! Goes for protected names inside a writable directory, in every way there is; the other hostile program goes for what
//! lies outside.
//!
//! `setup DIR...` lays workspaces out. `list` names the attempts. `attempt NAME` makes one in the current directory and
//! prints `ok` or the error's name. `random SEED THREADS OPERATIONS` plays operations at random. `swap ROUNDS` changes a path
//! under the kernel's eyes, and the directory behind it.

use pinfold_conformance::errno::Errno;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

type Act = fn() -> io::Result<()>;

fn c(path: &str) -> CString {
    CString::new(path).expect("no NUL")
}

fn check(value: impl Into<i64>) -> io::Result<i64> {
    let value = value.into();
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn open(at: i32, path: &str, flags: i32) -> io::Result<i32> {
    // SAFETY: the path lives for the length of the call.
    check(unsafe { libc::openat(at, c(path).as_ptr(), flags | libc::O_CLOEXEC, 0o755) }).map(|fd| fd as i32)
}

/// Opens for writing and writes.
fn write(path: &str, flags: i32) -> io::Result<()> {
    write_at(libc::AT_FDCWD, path, flags)
}

fn write_at(at: i32, path: &str, flags: i32) -> io::Result<()> {
    let fd = open(at, path, flags)?;
    // SAFETY: four bytes of ours.
    check(unsafe { libc::write(fd, b"evil".as_ptr().cast(), 4) } as i64)?;
    // SAFETY: plain.
    unsafe { libc::close(fd) };
    Ok(())
}

fn rename2(from: &str, to: &str, flags: u32) -> io::Result<()> {
    let (from, to) = (c(from), c(to));
    // SAFETY: both paths live for the length of the call.
    let done = unsafe {
        libc::syscall(libc::SYS_renameat2, libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)
    };
    check(done).map(drop)
}

fn linkat(at: i32, from: &str, to: &str, flags: i32) -> io::Result<()> {
    let (from, to) = (c(from), c(to));
    // SAFETY: both paths live for the length of the call.
    check(unsafe { libc::linkat(at, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) }).map(drop)
}

fn mode_by(number: i64, descriptor: i32, flags: i32) -> io::Result<()> {
    // SAFETY: an empty path that lives for ever.
    check(unsafe { libc::syscall(number, descriptor, c"".as_ptr(), 0o777, flags) }).map(drop)
}

fn set_attribute(path: &str, name: &std::ffi::CStr, value: &[u8]) -> io::Result<()> {
    let path = c(path);
    // SAFETY: all three live for the length of the call, and the length is the slice's.
    check(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) }).map(drop)
}

const CREATE: i32 = libc::O_WRONLY | libc::O_CREAT;

const ATTEMPTS: &[(&str, Act)] = &[
    // Content, by every kind of name.
    ("write", || write(".git/config", libc::O_WRONLY)),
    ("write-and-read", || write(".git/config", libc::O_RDWR)),
    ("truncate-by-open", || open(libc::AT_FDCWD, ".git/config", libc::O_RDONLY | libc::O_TRUNC).map(drop)),
    ("append", || write(".git/config", libc::O_WRONLY | libc::O_APPEND)),
    ("truncate", || {
        // SAFETY: the path lives for ever.
        check(unsafe { libc::truncate(c".git/config".as_ptr(), 0) }).map(drop)
    }),
    ("creat", || {
        // SAFETY: the path lives for ever.
        check(unsafe { libc::creat(c".git/hooks/post-commit".as_ptr(), 0o755) }).map(drop)
    }),
    ("create-exclusive", || write(".git/hooks/post-commit", CREATE | libc::O_EXCL)),
    ("by-dots", || write("plain/../.git/./config", libc::O_WRONLY)),
    ("by-slashes", || write(".git///config", libc::O_WRONLY)),
    ("by-absolute-path", || {
        let path = std::env::current_dir()?.join(".git/config");
        write(path.to_str().unwrap_or_default(), libc::O_WRONLY)
    }),
    ("by-directory-descriptor", || {
        write_at(open(libc::AT_FDCWD, ".git", libc::O_DIRECTORY)?, "config", libc::O_WRONLY)
    }),
    ("by-path-descriptor", || {
        let directory = open(libc::AT_FDCWD, ".git/hooks", libc::O_DIRECTORY | libc::O_PATH)?;
        write_at(directory, "post-commit", CREATE)
    }),
    ("by-working-directory", || {
        std::env::set_current_dir(".git/hooks")?;
        write("post-commit", CREATE)
    }),
    ("by-proc-cwd", || write("/proc/self/cwd/.git/config", libc::O_WRONLY)),
    ("by-proc-thread-cwd", || write("/proc/thread-self/cwd/.git/config", libc::O_WRONLY)),
    ("by-proc-number", || write(&format!("/proc/{}/cwd/.git/config", std::process::id()), libc::O_WRONLY)),
    ("by-proc-root", || {
        let path = std::env::current_dir()?.join(".git/config");
        write(&format!("/proc/self/root{}", path.display()), libc::O_WRONLY)
    }),
    ("by-proc-directory-descriptor", || {
        let directory = open(libc::AT_FDCWD, ".git", libc::O_DIRECTORY)?;
        write(&format!("/proc/self/fd/{directory}/config"), libc::O_WRONLY)
    }),
    ("reopen", || {
        let file = open(libc::AT_FDCWD, ".git/config", libc::O_RDONLY)?;
        write(&format!("/proc/self/fd/{file}"), libc::O_WRONLY)
    }),
    ("reopen-by-dev-fd", || {
        let file = open(libc::AT_FDCWD, ".git/config", libc::O_PATH)?;
        write(&format!("/dev/fd/{file}"), libc::O_WRONLY)
    }),
    ("truncate-reopened", || {
        let file = open(libc::AT_FDCWD, ".git/config", libc::O_RDONLY)?;
        let path = c(&format!("/proc/self/fd/{file}"));
        // SAFETY: the path lives for the length of the call.
        check(unsafe { libc::truncate(path.as_ptr(), 0) }).map(drop)
    }),
    ("through-a-link", || {
        std::os::unix::fs::symlink(".git", "alias")?;
        write("alias/config", libc::O_WRONLY)
    }),
    ("through-a-last-link", || {
        std::os::unix::fs::symlink(".git/hooks/post-commit", "alias")?;
        write("alias", CREATE)
    }),
    ("through-links-of-links", || {
        std::os::unix::fs::symlink(std::env::current_dir()?.join("two"), "one")?;
        std::os::unix::fs::symlink(".git/config", "two")?;
        write("one", libc::O_WRONLY)
    }),
    // New names.
    ("make-directory", || fs::create_dir("fresh/.git")),
    ("make-file", || write("fresh/.git", CREATE)),
    ("make-link", || std::os::unix::fs::symlink("../prepared", "fresh/.git")),
    ("make-in-other-letters", || fs::create_dir("fresh/.GIT")),
    ("make-settings", || fs::create_dir(".idea")),
    ("make-settings-beside-a-repository", || fs::create_dir("sub/.vscode")),
    ("make-fifo", || {
        // SAFETY: the path lives for ever.
        check(unsafe { libc::mkfifo(c".envrc".as_ptr(), 0o600) }).map(drop)
    }),
    ("make-attributes", || write(".git/info/attributes", CREATE)),
    ("make-common-directory", || write(".git/commondir", CREATE)),
    ("make-worktree-pointer", || write(".git/worktrees/w/gitdir", CREATE)),
    ("make-submodule-hook", || write(".git/modules/m/hooks/post-checkout", CREATE)),
    ("make-hook-link", || std::os::unix::fs::symlink("../../plain/f", ".git/hooks/post-commit")),
    // Moves.
    ("move-over", || fs::rename("plain/f", ".git/config")),
    ("move-in", || fs::rename("plain/f", ".git/hooks/post-commit")),
    ("move-away", || fs::rename(".git/config", "plain/config")),
    ("move-repository", || fs::rename(".git", "elsewhere")),
    ("move-hooks", || fs::rename(".git/hooks", "elsewhere")),
    ("move-prepared-directory", || fs::rename("prepared", "fresh/.git")),
    ("move-prepared-settings", || {
        fs::create_dir_all("plain/.vscode")?;
        fs::rename("plain/.vscode", ".idea")
    }),
    ("move-parent-of-a-repository", || fs::rename("sub", "elsewhere")),
    ("move-tree-around-a-repository", || fs::rename("deep", "elsewhere")),
    ("exchange-file", || rename2("plain/f", ".git/config", libc::RENAME_EXCHANGE)),
    ("exchange-repository", || rename2(".git", "prepared", libc::RENAME_EXCHANGE)),
    ("exchange-parent", || rename2("plain", "sub", libc::RENAME_EXCHANGE)),
    ("move-without-replacing", || rename2("plain/f", ".git/hooks/post-commit", libc::RENAME_NOREPLACE)),
    // Second names.
    ("link-away", || fs::hard_link(".git/config", "plain/config")),
    ("link-in", || fs::hard_link("plain/f", ".git/hooks/post-commit")),
    ("link-by-descriptor", || {
        let file = open(libc::AT_FDCWD, ".git/config", libc::O_RDONLY)?;
        linkat(libc::AT_FDCWD, &format!("/proc/self/fd/{file}"), "plain/config", libc::AT_SYMLINK_FOLLOW)
    }),
    ("link-unnamed-file", || {
        let file = open(libc::AT_FDCWD, ".", libc::O_TMPFILE | libc::O_WRONLY)?;
        linkat(libc::AT_FDCWD, &format!("/proc/self/fd/{file}"), ".envrc", libc::AT_SYMLINK_FOLLOW)
    }),
    ("link-unnamed-file-by-descriptor", || {
        let file = open(libc::AT_FDCWD, ".", libc::O_TMPFILE | libc::O_WRONLY)?;
        linkat(file, "", ".git/hooks/post-commit", libc::AT_EMPTY_PATH)
    }),
    // Removals.
    ("remove", || fs::remove_file(".git/config")),
    ("remove-hook", || fs::remove_file(".git/hooks/pre-commit")),
    ("remove-directory", || fs::remove_dir("hollow/.git")),
    // Modes.
    ("mode", || fs::set_permissions(".git/hooks/pre-commit", std::os::unix::fs::PermissionsExt::from_mode(0o755))),
    ("mode-by-descriptor", || {
        let file = fs::File::open(".git/hooks/pre-commit")?;
        // SAFETY: plain.
        check(unsafe { libc::fchmod(file.as_raw_fd(), 0o755) }).map(drop)
    }),
    ("mode-by-path-descriptor", || {
        let file = open(libc::AT_FDCWD, ".git/hooks/pre-commit", libc::O_PATH)?;
        mode_by(452, file, libc::AT_EMPTY_PATH)
    }),
    ("mode-by-acl", || {
        // acl(5): version 2, then tag, permissions and id of owner, group and others.
        let entry =
            |tag: u16, permissions: u16| [tag.to_le_bytes(), permissions.to_le_bytes(), [255; 2], [255; 2]].concat();
        let acl = [2_u32.to_le_bytes().to_vec(), entry(1, 7), entry(4, 5), entry(0x20, 5)].concat();
        set_attribute(".git/hooks/pre-commit", c"system.posix_acl_access", &acl)
    }),
    ("attribute", || set_attribute(".git/config", c"user.x", b"evil")),
    ("times", || {
        let file = open(libc::AT_FDCWD, ".git/config", libc::O_RDONLY)?;
        // SAFETY: without times, the kernel takes its own.
        check(unsafe { libc::futimens(file, std::ptr::null()) }).map(drop)
    }),
    // Links above what git obeys, and submodules whose names mislead.
    ("link-for-information", || {
        fs::rename(".git/info", ".git/old")?;
        std::os::unix::fs::symlink("../plain", ".git/info")
    }),
    ("link-for-a-submodule", || std::os::unix::fs::symlink("../../plain", ".git/modules/new")),
    ("link-for-submodules-of-a-worktree", || std::os::unix::fs::symlink("../../../plain", ".git/worktrees/w/modules")),
    ("link-moved-in", || {
        std::os::unix::fs::symlink("../../plain", "alias")?;
        fs::rename("alias", ".git/modules/new")
    }),
    ("link-in-a-bare-repository", || {
        fs::rename("bare/info", "bare/old")?;
        std::os::unix::fs::symlink("../plain", "bare/info")
    }),
    ("submodule-named-as-data", || {
        fs::create_dir_all(".git/modules/lib/lfs")?;
        write(".git/modules/lib/lfs/config", CREATE)
    }),
    ("submodule-of-a-worktree", || {
        fs::create_dir_all(".git/worktrees/w/modules/s")?;
        write(".git/worktrees/w/modules/s/config", CREATE)
    }),
    // Repositories without the name.
    ("bare-config", || write("bare/config", libc::O_WRONLY)),
    ("bare-hook", || write("bare/hooks/update", CREATE)),
    ("bare-completed", || fs::create_dir("almost/refs")),
    ("bare-completed-by-a-move", || fs::rename("plain", "almost/refs")),
    ("bare-completed-by-a-link", || std::os::unix::fs::symlink("../plain", "almost/refs")),
];

fn repository(directory: &str) -> io::Result<()> {
    for inner in ["hooks", "objects", "refs/heads", "info", "worktrees/w", "modules/m/hooks"] {
        fs::create_dir_all(format!("{directory}/{inner}"))?;
    }
    fs::write(format!("{directory}/HEAD"), "ref: refs/heads/main\n")?;
    fs::write(format!("{directory}/config"), "[core]\n")?;
    fs::write(format!("{directory}/hooks/pre-commit"), "#!/bin/sh\n")
}

fn setup(directory: &str) -> io::Result<()> {
    std::env::set_current_dir(directory)?;
    for path in [".git", "sub/.git", "deep/er/.git", "bare"] {
        repository(path)?;
    }
    for path in ["plain", "fresh", "hollow/.git", "almost/objects", ".vscode"] {
        fs::create_dir_all(path)?;
    }
    repository("prepared")?;
    // Prepared elsewhere it would be a repository by what it holds, and could not be touched at all.
    fs::remove_dir("prepared/objects")?;
    fs::write("almost/config", "[core]\n")?;
    fs::write(".vscode/tasks.json", "{}")?;
    fs::write("plain/f", "plain\n")
}

/// A generator that gives the same numbers for the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }
}

/// Names that meet often, so that trees are built, moved into each other and linked.
const PARTS: [&str; 14] = [
    "a",
    "b",
    "plain",
    "sub",
    ".git",
    "hooks",
    "config",
    "objects",
    "refs",
    ".vscode",
    "fresh",
    "info",
    "attributes",
    "..",
];

fn random(seed: u64, threads: u64, operations: u64) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut dice = Dice((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((thread + 1) << 32));
                for _ in 0..operations {
                    let mut path = || {
                        let parts: Vec<_> = (0..=dice.throw(4)).map(|_| PARTS[dice.throw(PARTS.len())]).collect();
                        // Not above the workspace.
                        let path = parts.join("/");
                        if path.starts_with("..") { path.replacen("..", "a", 1) } else { path }
                    };
                    let (one, other) = (path(), path());
                    let _ = match dice.throw(14) {
                        0 | 1 => fs::create_dir(&one),
                        2 | 3 => fs::rename(&one, &other),
                        4 => write(&one, CREATE),
                        5 => write(&one, libc::O_WRONLY | libc::O_TRUNC),
                        6 => fs::hard_link(&one, &other),
                        7 => std::os::unix::fs::symlink(&one, &other),
                        8 => fs::remove_file(&one),
                        9 => fs::remove_dir(&one),
                        10 => rename2(&one, &other, libc::RENAME_EXCHANGE),
                        11 => open(libc::AT_FDCWD, &one, libc::O_TMPFILE | libc::O_RDWR).and_then(|file| {
                            let linked = linkat(
                                libc::AT_FDCWD,
                                &format!("/proc/self/fd/{file}"),
                                &other,
                                libc::AT_SYMLINK_FOLLOW,
                            );
                            // SAFETY: plain.
                            unsafe { libc::close(file) };
                            linked
                        }),
                        12 => fs::set_permissions(&one, std::os::unix::fs::PermissionsExt::from_mode(0o755)),
                        _ => open(libc::AT_FDCWD, &one, libc::O_DIRECTORY | libc::O_PATH).and_then(|directory| {
                            let made = write_at(directory, PARTS[dice.throw(PARTS.len() - 1)], CREATE);
                            // SAFETY: plain.
                            unsafe { libc::close(directory) };
                            made
                        }),
                    };
                }
            });
        }
    });
}

/// One thread opens a path for writing; others change the text of the path, and what its directory is.
fn swap(rounds: u64) -> io::Result<()> {
    const PLAIN: &[u8] = b"race/place/config\0";
    const GUARDED: &[u8] = b"sub/.git/./config\0";
    fs::create_dir_all("race/real")?;
    std::os::unix::fs::symlink("real", "race/place")?;
    std::os::unix::fs::symlink("../sub/.git", "race/other")?;
    let mut text = [0_u8; PLAIN.len()];
    text.copy_from_slice(PLAIN);
    let place = text.as_mut_ptr() as usize;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                for path in [GUARDED, PLAIN] {
                    // SAFETY: the buffer outlives the scope; that others read it meanwhile is the point.
                    unsafe { std::ptr::copy_nonoverlapping(path.as_ptr(), place as *mut u8, path.len()) };
                }
            }
        });
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let _ = rename2("race/place", "race/other", libc::RENAME_EXCHANGE);
            }
        });
        for _ in 0..rounds {
            // SAFETY: the buffer always holds a NUL.
            let fd = unsafe {
                libc::open(place as *const libc::c_char, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, 0o644)
            };
            if fd >= 0 {
                // SAFETY: four bytes of ours; plain.
                unsafe {
                    libc::write(fd, b"evil".as_ptr().cast(), 4);
                    libc::close(fd);
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    Ok(())
}

fn main() {
    // SAFETY: plain.
    unsafe { libc::umask(0o022) };
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse().expect("a number");
    match words.as_slice() {
        ["setup", directories @ ..] => directories.iter().for_each(|directory| setup(directory).expect("a workspace")),
        ["list"] => ATTEMPTS.iter().for_each(|(name, _)| println!("{name}")),
        ["attempt", name] => {
            let (_, act) = ATTEMPTS.iter().find(|(known, _)| known == name).expect("a known attempt");
            match act() {
                Ok(()) => println!("ok"),
                Err(error) => println!("{}", Errno(error.raw_os_error().unwrap_or(0))),
            }
        }
        ["random", seed, threads, operations] => random(number(seed), number(threads), number(operations)),
        ["swap", rounds] => swap(number(rounds)).expect("room for the race"),
        ["flood", path, threads, times] => flood(Path::new(path), number(threads), number(times)),
        _ => panic!("see the head of this file"),
    }
}

/// Has the same thing refused again and again.
fn flood(path: &Path, threads: u64, times: u64) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..times {
                    assert!(fs::write(path, "evil").is_err());
                }
            });
        }
    });
}
