//! The command itself: its working directory, its environment, and the exec.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering};

use linux_raw_sys::{general as g, prctl as p};

use crate::ahead;
use crate::capabilities;
use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::landlock;
use crate::outside::given_back;
use crate::seccomp;
use crate::spec::{Choice, Limit, Network, Plan, Wall};
use crate::status::{Line, Status};
use crate::streams::Pumps;
use crate::sys::{self, Signals, Stat, Text, Vector};

/// The working directory, by path and by identity.
#[derive(Clone, Copy)]
pub(crate) struct Directory {
    pub(crate) path: &'static CStr,
    pub(crate) identity: Stat,
}

/// What to execute, and where.
pub(crate) struct Called {
    pub(crate) command: &'static [Text],
    pub(crate) environment: &'static [Text],
    pub(crate) directory: Option<Directory>,
}

impl Directory {
    /// Looks at the directory outside, before any wall stands.
    pub(crate) fn find(plan: &Plan) -> Result<Option<Self>, Failure> {
        let path = match plan.directory {
            Some(path) => path,
            // It comes with the command; or the directory that we are in is the right one already, without a new mount tree.
            None if plan.awaits.is_some() || plan.wall == Wall::Landlock => return Ok(None),
            None => {
                let buffer = sys::allocate(g::PATH_MAX as usize).or_fail("cwd", "no memory")?;
                sys::working_directory(buffer).or_fail("cwd", "the working directory has no path (was it removed?)")?
            }
        };
        let fd = sys::open(sys::CWD, path, g::O_PATH | g::O_DIRECTORY, 0)
            .or_fail("cwd", "cannot open the working directory")
            .map_err(|failure| failure.of(path))?;
        let identity = sys::fstat(fd).or_fail("cwd", "cannot examine the working directory")?;
        sys::close(fd);
        Ok(Some(Self { path, identity }))
    }

    /// Enters it inside.
    ///
    /// SECURITY: the directory that we came from lies on the host's writable mount; staying in it would keep every
    /// relative path writable. And a path can mean another directory inside, such as an empty private one.
    fn enter(&self) -> Result<(), Failure> {
        sys::change_directory(self.path)
            .or_fail("cwd", "cannot enter the working directory inside the sandbox:")
            .map_err(|failure| failure.of(self.path))?;
        let here = sys::open(sys::CWD, c".", g::O_PATH | g::O_DIRECTORY, 0).and_then(sys::fstat);
        if here.or_fail("cwd", "cannot examine the working directory")?.same_file(&self.identity) {
            Ok(())
        } else {
            Err(Failure::new("cwd-changed", "inside the sandbox another directory has the path").of(self.path))
        }
    }
}

/// How far the process that becomes the command has come; its parent reads it.
#[derive(Default)]
pub(crate) struct Progress(AtomicU8);

impl Progress {
    const EXECUTING: u8 = 1;
    const FAILED: u8 = 2;

    /// True if the command was executed, to be asked after exec or exit.
    pub(crate) fn was_executed(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::EXECUTING
    }
}

/// Everything that the process needs that becomes the command.
pub(crate) struct Command {
    pub(crate) plan: Plan,
    pub(crate) status: Status,
    pub(crate) pumps: Pumps,
    pub(crate) directory: Option<Directory>,
    pub(crate) progress: Progress,
    /// Who must be our parent, if that is known.
    pub(crate) caller: Option<i32>,
    /// The process whose end is the command's end: the caller, or the launcher that supervises.
    pub(crate) follow: Option<i32>,
    /// Becomes readable when the process outside has ended that became another program and raised walls around us.
    pub(crate) outer: Option<i32>,
    /// The writable roots, as they were mounted.
    pub(crate) trees: &'static [i32],
    /// There is a controlling terminal to get rid of.
    pub(crate) has_terminal: bool,
    /// The limit on open files to restore, if it was raised.
    pub(crate) files_limit: Option<(u64, u64)>,
}

impl Command {
    /// Raises the walls around this process and executes the command; or executes nothing, says why, and exits.
    pub(crate) fn become_it(&self) -> ! {
        let refused = match self.confine() {
            Ok(called) => self.execute(called),
            Err(failure) => Refused::Setup(failure),
        };
        self.progress.0.store(Progress::FAILED, Ordering::Relaxed);
        match refused {
            Refused::Exec(name, errno) => self.exec_failed(name, errno),
            Refused::Setup(failure) => {
                self.status.setup_failed(&failure);
                sys::exit(125)
            }
        }
    }

    /// The walls of one process, in the order in which they stand.
    fn confine(&self) -> Result<Called, Failure> {
        let plan = &self.plan;
        // 1. No controlling terminal, and a process group or session of its own.
        self.leave_session()?;
        // 2. Standard streams.
        self.pumps.install()?;
        // 3. No privileges, ever again.
        capabilities::give_up()?;
        self.follow_parent()?;
        // 4. What may be changed.
        let abi = if plan.landlock > 0 { landlock::restrict(plan, self.trees)? } else { 0 };
        // 5. Which system calls there are.
        seccomp::restrict(plan)?;
        // 6. What it is, if that has to be waited for; and where it starts.
        let called = match plan.awaits {
            Some(socket) => ahead::wait(plan, socket)?,
            None => Called { command: plan.command, environment: plan.environment, directory: self.directory },
        };
        if let Some(directory) = &called.directory {
            directory.enter()?;
        }
        // 7. Every wall stands.
        let mut line = Line::new();
        line.text("confined landlock=").number(abi.into()).text(" namespaces=");
        line.text(match (plan.wall, plan.network) {
            (Wall::Landlock, _) => "none",
            (Wall::Namespace, Network::Open) => "user,mount,pid,ipc,uts",
            (Wall::Namespace, _) => "user,mount,pid,ipc,uts,net",
        });
        line.text(" seccomp=1");
        self.status.send(&mut line);
        Ok(called)
    }

    /// Without a PID namespace: ends with the process that must not be outlived.
    fn follow_parent(&self) -> Result<(), Failure> {
        let Some(parent) = self.follow else { return Ok(()) };
        sys::prctl(p::PR_SET_PDEATHSIG, g::SIGKILL as usize).or_fail("supervisor", "cannot follow the parent")?;
        // RACE: it may have ended before; then somebody else is our parent by now.
        if sys::getppid() == parent { Ok(()) } else { Err(Failure::new("supervisor", "the parent has ended")) }
    }

    /// Whether a process group of its own is not enough.
    ///
    /// A session is far dearer: each becomes a scheduling group of its own (sched(7), "The autogroup feature").
    ///
    /// SECURITY: a process can join every group of its session that it can name (setpgid(2)). In the caller's group the
    /// command could stop a process and end another, so that the group is orphaned; then the kernel itself sends SIGHUP to all
    /// that are in it, and no Landlock scope is asked.
    pub(crate) fn needs_session(&self) -> bool {
        self.has_terminal || self.plan.shows_outside()
    }

    /// Gives up the controlling terminal, and the session of the caller.
    fn leave_session(&self) -> Result<(), Failure> {
        if !self.needs_session() {
            // It fails for a session leader, which already is a group of its own.
            let _ = sys::start_group();
            return Ok(());
        }
        match sys::setsid() {
            Ok(()) => Ok(()),
            // The leader of a group cannot leave it. Only a launcher that was started in place can be one: it forks.
            Err(errno) => Err(errno).or_fail("supervisor", "cannot leave the session of the caller"),
        }
    }

    /// Executes the command; returns only if that was refused.
    fn execute(&self, called: Called) -> Refused {
        let prepare = || {
            let environment = environment(&self.plan, called.environment).or_fail("supervisor", "no memory")?;
            if let Some(limit) = self.files_limit {
                sys::set_limit(g::RLIMIT_NOFILE, limit)
                    .or_fail("supervisor", "cannot restore the limit on open files")?;
            }
            self.plan.limits().try_for_each(bound).or_fail("limit", "cannot set a limit")?;
            sys::block(Signals::NONE).or_fail("supervisor", "cannot unblock signals")?;
            Ok(environment)
        };
        match prepare() {
            Ok(environment) => {
                self.progress.0.store(Progress::EXECUTING, Ordering::Relaxed);
                let errno = execute_in_path(called.command, self.path(called.environment), &environment);
                Refused::Exec(called.command.first().map(|name| name.as_cstr()), errno)
            }
            Err(failure) => Refused::Setup(failure),
        }
    }

    /// The value of PATH as the command will see it.
    fn path(&self, environment: &'static [Text]) -> &'static [u8] {
        let mut value = environment_value(environment, b"PATH");
        for choice in self.plan.choices() {
            match choice {
                Choice::Set(text) => value = text.to_bytes().strip_prefix(b"PATH=").or(value),
                Choice::Unset(pattern) if matches(pattern.to_bytes(), b"PATH") => value = None,
                _ => {}
            }
        }
        value.unwrap_or(DEFAULT_PATH)
    }

    fn exec_failed(&self, name: Option<&CStr>, errno: Errno) -> ! {
        self.status.send(Line::new().text("exec-failed ").number(errno.0.into()));
        let mut line = Line::new();
        line.text("pinfold-run: cannot execute ");
        if let Some(name) = name {
            line.escaped(name);
        }
        // Standard error may be closed or full; there is nowhere else to say so.
        let _ = line.text(": ").text(errno.text()).send(2);
        sys::exit(if matches!(errno, Errno::NOENT | Errno::NOTDIR) { 127 } else { 126 })
    }
}

/// Bounds what one process uses up (setrlimit(2)); a limit that is lower already stays.
fn bound((kind, most): (Limit, u64)) -> Result<(), Errno> {
    let Limit::Resource(resource) = kind else { return Ok(()) };
    let (soft, hard) = sys::limit(resource)?;
    // At the hard limit on processor time the kernel kills; at the soft one it says why, by SIGXCPU.
    let hardest = if resource == g::RLIMIT_CPU { most + 1 } else { most };
    sys::set_limit(resource, (soft.min(most), hard.min(hardest)))
}

enum Refused {
    Setup(Failure),
    Exec(Option<&'static CStr>, Errno),
}

/// Where programs are looked for without PATH: what execvp(3) of the C libraries does, less the current directory.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/bin:/usr/bin";

/// The environment of the command: the caller's, with the plan's changes.
fn environment(plan: &Plan, callers: &'static [Text]) -> Result<Vector, Errno> {
    let changes = || plan.choices().filter(|choice| matches!(choice, Choice::Set(_) | Choice::Unset(_)));
    let count = changes().count();
    if count == 0 && !plan.restore {
        return Ok(Vector::of_stack(callers));
    }
    let replaced = |text: &CStr| {
        let name = text.to_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
        changes().any(|choice| match choice {
            Choice::Set(by) => by.to_bytes().strip_prefix(name).is_some_and(|rest| rest.starts_with(b"=")),
            Choice::Unset(pattern) => matches(pattern.to_bytes(), name),
            _ => false,
        })
    };
    let restored = |text| if plan.restore { given_back(text) } else { text };
    let kept = callers.iter().copied().map(restored).filter(|text| !replaced(text.as_cstr()));
    let set = changes().filter_map(|choice| if let Choice::Set(text) = choice { Some(Text::from(text)) } else { None });
    Vector::collect(kept.chain(set), callers.len() + count)
}

/// True if the whole name fits the pattern, in which `*` stands for any bytes. Letters fit in either case, because names of
/// variables that hold secrets come in both.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // After the last star that was met, one more byte of the name goes to it whenever the rest does not fit.
    let (mut at, mut in_name, mut star) = (0, 0, None);
    loop {
        match (pattern.get(at), name.get(in_name)) {
            (Some(b'*'), _) => {
                star = Some((at, in_name));
                at += 1;
            }
            (Some(want), Some(have)) if want.eq_ignore_ascii_case(have) => {
                at += 1;
                in_name += 1;
            }
            (None, None) => return true,
            _ => {
                let Some((star_at, taken)) = star.filter(|(_, taken)| *taken < name.len()) else { return false };
                star = Some((star_at, taken + 1));
                at = star_at + 1;
                in_name = taken + 1;
            }
        }
    }
}

/// Returns the value of an environment variable.
pub(crate) fn environment_value(environment: &'static [Text], name: &[u8]) -> Option<&'static [u8]> {
    environment.iter().find_map(|text| text.as_cstr().to_bytes().strip_prefix(name)?.strip_prefix(b"="))
}

/// Executes a command as execvp(3) does, but never hands a file without a known format to a shell; returns the error.
pub(crate) fn execute_in_path(command: &'static [Text], path: &[u8], environment: &Vector) -> Errno {
    let Some(name) = command.first().map(|name| name.as_cstr()) else { return Errno::NOENT };
    let arguments = Vector::of_stack(command);
    if name.is_empty() {
        return Errno::NOENT;
    }
    if name.to_bytes().contains(&b'/') {
        return sys::execve(name, &arguments, environment);
    }
    let mut result = Errno::NOENT;
    let mut buffer = [0_u8; g::PATH_MAX as usize];
    for directory in path.split(|byte| *byte == b':') {
        // An empty element means the working directory, as it always did.
        let directory = if directory.is_empty() { b"." } else { directory };
        let length = directory.len() + 1 + name.count_bytes();
        let Some(file) = buffer.get_mut(..=length) else {
            result = Errno::NAMETOOLONG;
            continue;
        };
        file[..directory.len()].copy_from_slice(directory);
        file[directory.len()] = b'/';
        file[directory.len() + 1..length].copy_from_slice(name.to_bytes());
        file[length] = 0;
        let Ok(file) = CStr::from_bytes_with_nul(file) else { continue };
        match sys::execve(file, &arguments, environment) {
            Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::STALE => {}
            // There is such a file, and another directory may have one that can be executed; or the directory itself
            // cannot be searched, and says nothing about the file.
            Errno::ACCES => {
                if let Ok(fd) = sys::open(sys::CWD, file, g::O_PATH, 0) {
                    sys::close(fd);
                    result = Errno::ACCES;
                }
            }
            errno => return errno,
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_bytes_and_letters_for_both_cases() {
        for (pattern, name) in [
            ("TOKEN", "TOKEN"),
            ("*TOKEN*", "GH_TOKEN"),
            ("*token*", "MY_TOKENS"),
            ("*_PAT", "A_PAT_PAT"),
            ("AWS_*", "AWS_"),
            ("*", ""),
            ("*A*B*", "xAyAzBw"),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("TOKEN", "TOKENS"), ("*_PAT", "PATH"), ("AWS_*", "XAWS_A"), ("", "A"), ("*A*B*", "BA")]
        {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }
}
