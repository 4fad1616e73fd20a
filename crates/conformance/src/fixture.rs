//! A world to attack: a workspace, a directory outside, a process outside, and descriptors left open. All of it is gone
//! when the fixture is dropped.

use crate::context::Context;
use crate::errno::Errno;
use crate::start::{failed, find_binary, own_uid};
use crate::sys;
use crate::sys::{c, open, read, write};
use crate::victim::Victim;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The first number at which a run finds the descriptors that were left open for it.
pub const FIRST_INHERITED: i32 = 700;

/// What is left open for an attempt.
#[derive(Clone, Copy)]
enum Left {
    /// `f`, for reading and writing.
    ReadWrite,
    /// `f`, for reading.
    ReadOnly,
    /// `f`, with `O_PATH`.
    Path,
    /// The attempt's directory outside.
    Directory,
    /// A socket on which a descriptor of `f`, open for writing, waits to be received.
    Socket,
    /// A TCP socket connected to the process outside.
    Tcp,
}

const LEFT_OPEN: &[(&str, Left)] = &[
    ("inherit-pwrite", Left::ReadWrite),
    ("inherit-ftruncate", Left::ReadWrite),
    ("inherit-punch-hole", Left::ReadWrite),
    ("inherit-mmap-shared", Left::ReadWrite),
    ("inherit-reopen-rdonly", Left::ReadOnly),
    ("inherit-reopen-opath", Left::Path),
    ("inherit-dir-create", Left::Directory),
    ("inherit-dir-write", Left::Directory),
    ("inherit-dir-unlink", Left::Directory),
    ("inherit-fchdir", Left::Directory),
    ("inherit-fchmod", Left::ReadOnly),
    ("inherit-futimens", Left::ReadOnly),
    ("inherit-fsetxattr", Left::ReadOnly),
    ("inherit-chmod-procfd", Left::Path),
    ("inherit-scm-rights", Left::Socket),
    ("inherit-tcp-send", Left::Tcp),
];

/// The attempt whose working directory the run starts in.
pub const CWD_ATTEMPT: &str = "inherit-cwd";

/// A world to attack.
pub struct Fixture {
    base: PathBuf,
    /// Who will run inside.
    pub uid: u32,
    /// Distinguishes this fixture's names from every other's.
    pub tag: String,
    /// Descriptors to leave open, and their numbers in the run.
    pub left_open: Vec<(OwnedFd, i32)>,
    inherited: BTreeMap<String, i32>,
    setuid: Option<(PathBuf, u32)>,
    /// A terminal outside, if there is one.
    pub terminal: PathBuf,
    /// Kept open for the length of the run.
    held: Vec<OwnedFd>,
    victim: Option<Victim>,
}

static COUNTER: AtomicU32 = AtomicU32::new(0);

impl Fixture {
    /// Makes the directories and copies our own programs, and those named, to where `uid` can execute them inside.
    ///
    /// # Errors
    ///
    /// In words: a missing binary, or a call that failed.
    pub fn new(uid: u32, programs: &[(&str, &str)]) -> Result<Fixture, String> {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let tag = format!("pinfold-test.{}.{number}", std::process::id());
        let base = parent()?.join(&tag);
        let io = |what: &'static str| move |e: std::io::Error| format!("the fixture could not {what}: {e}");
        std::fs::create_dir(&base).map_err(io("make its base"))?;
        let fixture = Fixture {
            base,
            uid,
            tag,
            left_open: Vec::new(),
            inherited: BTreeMap::new(),
            setuid: None,
            terminal: PathBuf::new(),
            held: Vec::new(),
            victim: None,
        };
        for (dir, mode) in [
            ("", 0o711),
            ("bin", 0o755),
            ("ws", 0o755),
            ("out", 0o755),
            ("temp", 0o711),
            ("temp/tmp", 0o1777),
            ("temp/shm", 0o1777),
        ] {
            let path = fixture.base.join(dir);
            if !dir.is_empty() {
                std::fs::create_dir(&path).map_err(io("make a directory"))?;
            }
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).map_err(io("set a mode"))?;
        }
        for dir in ["ws", "out"] {
            std::os::unix::fs::chown(fixture.base.join(dir), Some(uid), Some(uid))
                .map_err(io("give a directory away"))?;
        }
        let own = ["pinfold-hostile", "pinfold-victim", "pinfold-mask"].map(|name| (name, "pinfold-conformance"));
        for (program, package) in own.iter().chain(programs) {
            let to = fixture.bin().join(program);
            copy_program(&find_binary(program, package)?, &to).map_err(|e| failed("copy a program", e))?;
        }
        Ok(fixture)
    }

    /// The workspace.
    #[must_use]
    pub fn ws(&self) -> PathBuf {
        self.base.join("ws")
    }

    /// The directory outside.
    #[must_use]
    pub fn out(&self) -> PathBuf {
        self.base.join("out")
    }

    /// A directory with private directories for temporary files.
    #[must_use]
    pub fn temp(&self) -> PathBuf {
        self.base.join("temp")
    }

    /// The directory that holds everything.
    #[must_use]
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Where the programs are.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.base.join("bin")
    }

    /// Gives each attempt its own files outside and in the workspace: `f`, `f2`, where they are used `d/f`, `empty/` and
    /// `prog`, and in the workspace `link` (symbolic) and `hard`, which both lead to a file outside.
    ///
    /// # Errors
    ///
    /// That of the call that failed.
    pub fn prepare(&mut self, ids: &[&str]) -> Result<(), Errno> {
        for id in ids {
            let (out, ws) = (self.out().join(id), self.ws().join(id));
            for (dir, text) in [(&out, "outside\n"), (&ws, "workspace\n")] {
                std::fs::create_dir(dir)?;
                for file in ["f", "f2"] {
                    std::fs::write(dir.join(file), text)?;
                }
                // A directory costs a millisecond: only those groups that use them have them.
                if ["path-", "admin-", "ws-", "meta-chmod-dir"].iter().any(|p| id.starts_with(p)) {
                    std::fs::create_dir(dir.join("d"))?;
                    std::fs::create_dir(dir.join("empty"))?;
                    std::fs::write(dir.join("d/f"), text)?;
                }
                if id.ends_with("-exec") || id.contains("-exec-") {
                    copy_program(Path::new("/bin/true"), &dir.join("prog"))?;
                }
            }
            sys!(libc::SYS_setxattr, &c(out.join("f")), c"user.pinfold", &b"before"[..], 6usize, 0)?;
            // What "write through a hard link" aims at is the same file as `f2`, so that `f` keeps one link.
            std::fs::hard_link(out.join("f2"), ws.join("hard"))?;
            // Relative, and so short that the file system keeps it in the inode.
            std::os::unix::fs::symlink(format!("../../out/{id}/f"), ws.join("link"))?;
            // So old that a read moves the access time also under relatime.
            let times = [[1_500_000_000i64, 0], [0, libc::UTIME_OMIT]];
            sys!(libc::SYS_utimensat, libc::AT_FDCWD, &c(out.join("f")), read(&times), 0)?;
            if *id == "path-fifo-write" {
                let fifo = c(out.join("fifo"));
                sys!(libc::SYS_mknodat, libc::AT_FDCWD, &fifo, libc::S_IFIFO | 0o600, 0)?;
                // Somebody has to read, or it could not be opened for writing.
                self.held.push(owned(open(&fifo, libc::O_RDWR)?));
            }
            give(&out, self.uid)?;
            give(&ws, self.uid)?;
        }
        Ok(())
    }

    /// Starts the process outside.
    ///
    /// # Errors
    ///
    /// That of starting it.
    pub fn start_victim(&mut self) -> Result<&mut Victim, Errno> {
        let victim = Victim::start(&self.bin().join("pinfold-victim"), &self.out(), &self.tag, self.uid, own_uid())?;
        Ok(self.victim.insert(victim))
    }

    /// The process outside, if it was started.
    pub fn victim(&mut self) -> Option<&mut Victim> {
        self.victim.as_mut()
    }

    /// Opens what is left open for these attempts, after [`Fixture::prepare`] and [`Fixture::start_victim`].
    ///
    /// # Errors
    ///
    /// That of the call that failed.
    pub fn leave_open(&mut self, ids: &[&str]) -> Result<(), Errno> {
        for (id, left) in LEFT_OPEN.iter().filter(|(id, _)| ids.contains(id)) {
            let dir = self.out().join(id);
            let file = c(dir.join("f"));
            let fd: OwnedFd = match left {
                Left::ReadWrite => owned(open(&file, libc::O_RDWR)?),
                Left::ReadOnly => owned(open(&file, libc::O_RDONLY)?),
                Left::Path => owned(open(&file, libc::O_PATH)?),
                Left::Directory => owned(open(&c(&dir), libc::O_RDONLY | libc::O_DIRECTORY)?),
                Left::Socket => self.waiting_descriptor(&file)?,
                Left::Tcp => {
                    let port = self.victim.as_ref().map_or(0, |v| v.hello.tcp);
                    std::net::TcpStream::connect(("127.0.0.1", port))?.into()
                }
            };
            let number = FIRST_INHERITED + self.inherited.len() as i32;
            self.inherited.insert((*id).to_owned(), number);
            self.left_open.push((fd, number));
        }
        Ok(())
    }

    fn waiting_descriptor(&mut self, file: &CString) -> Result<OwnedFd, Errno> {
        let mut pair = [0i32; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        sys!(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, write(&mut pair))?;
        let (near, far) = (owned(pair[0]), owned(pair[1]));
        let gift = owned(open(file, libc::O_WRONLY)?);
        let mut byte = [0u8; 1];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        // struct cmsghdr: length 20, SOL_SOCKET, SCM_RIGHTS; then the descriptor.
        let control = [20u64, (libc::SOL_SOCKET as u64) | ((libc::SCM_RIGHTS as u64) << 32), gift.as_raw_fd() as u64];
        // SAFETY: msghdr is made of numbers and pointers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_ptr().cast_mut().cast();
        message.msg_controllen = 24;
        sys!(libc::SYS_sendmsg, near.as_raw_fd(), read(&message), 0)?;
        // The sending end must stay open until the run is over.
        self.held.push(near);
        Ok(far)
    }

    /// As root: makes a set-uid copy of the hostile program, owned by somebody other than `uid`.
    ///
    /// # Errors
    ///
    /// That of the call that failed.
    pub fn make_setuid(&mut self) -> Result<(), Errno> {
        if own_uid() != 0 {
            return Ok(());
        }
        let owner = if self.uid == 0 { 65534 } else { 0 };
        let program = self.bin().join("setuid");
        copy_program(&self.bin().join("pinfold-hostile"), &program)?;
        std::os::unix::fs::chown(&program, Some(owner), Some(owner))?;
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755))?;
        self.setuid = Some((program, owner));
        Ok(())
    }

    /// Writes the context for these attempts and gives its path.
    ///
    /// # Errors
    ///
    /// That of writing it.
    pub fn write_context(&self, only: &[&str]) -> Result<PathBuf, Errno> {
        let context = Context {
            ws: self.ws(),
            out: self.out(),
            only: only.iter().map(|id| (*id).to_owned()).collect(),
            inherited: self.inherited.clone(),
            setuid: self.setuid.clone(),
            terminal: self.terminal.clone(),
            tag: self.tag.clone(),
            victim: self.victim.as_ref().map(|v| v.hello.clone()).unwrap_or_default(),
        };
        let path = self.base.join("context.json");
        std::fs::write(&path, serde_json::to_string(&context).map_err(|_| Errno(libc::EIO))?)?;
        Ok(path)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.victim.take());
        if std::fs::remove_dir_all(&self.base).is_err() {
            crate::snapshot::unlock(&self.base);
            if let Err(error) = std::fs::remove_dir_all(&self.base) {
                eprintln!("the fixture could not remove {}: {error}", self.base.display());
            }
        }
    }
}

/// Copies a program to where everybody can execute it, by another process.
///
/// RACE: a descriptor open for writing here would be inherited by whatever another thread is just starting, and until that
/// has executed, executing the copy fails with ETXTBSY.
///
/// # Errors
///
/// That of the copying.
pub fn copy_program(from: &Path, to: &Path) -> Result<(), Errno> {
    let status = std::process::Command::new("install").args(["-m", "755"]).args([from, to]).status()?;
    if status.success() { Ok(()) } else { Err(Errno(libc::EIO)) }
}

/// Takes over a descriptor that was just opened.
#[must_use]
pub fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the callers pass a descriptor that a system call has just given to them and to nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Gives a tree to a user, links themselves and not what they lead to. The hard link's file outside goes along, as it
/// should.
fn give(path: &Path, uid: u32) -> Result<(), Errno> {
    if uid == own_uid() {
        return Ok(());
    }
    std::os::unix::fs::lchown(path, Some(uid), Some(uid))?;
    if path.symlink_metadata()?.is_dir() {
        for entry in std::fs::read_dir(path)? {
            give(&entry?.path(), uid)?;
        }
    }
    Ok(())
}

/// Where fixtures may be: never where backends put private temporary directories.
fn parent() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("PINFOLD_TEST_BASE") {
        return Ok(named.into());
    }
    let state = PathBuf::from("/var/lib");
    if own_uid() == 0 {
        return Ok(state);
    }
    let target = std::env::current_exe().ok().and_then(|p| p.parent().map(Path::to_path_buf));
    let private = ["/tmp", "/var/tmp", "/dev/shm"];
    match target {
        Some(dir) if !private.iter().any(|p| dir.starts_with(p)) => Ok(dir),
        _ => {
            Err("name a directory for test fixtures outside /tmp, /var/tmp and /dev/shm in PINFOLD_TEST_BASE"
                .to_owned())
        }
    }
}
