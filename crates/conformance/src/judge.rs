//! Runs attempts and looks, from outside, at what they changed.

use crate::context::{Listed, Report};
use crate::errno::Errno;
use crate::fixture::{CWD_ATTEMPT, Fixture, owned};
use crate::snapshot::Snapshot;
use crate::start::{Backend, Driver, Mode, Run, confined_command_by, failed, needed_by, outcome_file};
use crate::sys;
use crate::sys::{c, open, write};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a whole run may take.
const RUN_LIMIT: Duration = Duration::from_secs(180);

/// What a run came to.
#[derive(Debug, Default)]
pub struct Results {
    /// What the program said of each attempt.
    pub reports: BTreeMap<String, Report>,
    /// What changed outside because of each attempt.
    pub changes: BTreeMap<String, Vec<String>>,
    /// What changed outside and belongs to no attempt.
    pub stray: Vec<String>,
    /// How the run ended, and what it wrote on standard error.
    pub end: String,
    /// What `pinfold run` says of the run, if it started it: its JSON.
    pub outcome: Option<String>,
}

impl Results {
    fn change(&mut self, id: &str, evidence: String) {
        self.changes.entry(id.to_owned()).or_default().push(evidence);
    }
}

/// Makes these attempts in one run, as `uid`, and judges them.
///
/// # Errors
///
/// In words, if the harness itself or the start of the run failed.
pub fn run_all(driver: Driver, backend: Backend, mode: Mode, uid: u32, ids: &[&str]) -> Result<Results, String> {
    attempt_all(driver, &[], backend, mode, uid, ids)
}

/// The same by the launcher, with system calls hidden from it and the attempts: words for `pinfold-mask`.
///
/// # Errors
///
/// As [`run_all`].
pub fn run_masked(mask: &[&str], backend: Backend, mode: Mode, uid: u32, ids: &[&str]) -> Result<Results, String> {
    attempt_all(Driver::Launcher, mask, backend, mode, uid, ids)
}

fn attempt_all(
    driver: Driver,
    mask: &[&str],
    backend: Backend,
    mode: Mode,
    uid: u32,
    ids: &[&str],
) -> Result<Results, String> {
    let mut fixture = Fixture::new(uid, needed_by(driver, backend))?;
    fixture.prepare(ids).map_err(|e| failed("prepare the attempts' files", e))?;
    if !ids.contains(&CWD_ATTEMPT) {
        fixture.prepare(&[CWD_ATTEMPT]).map_err(|e| failed("prepare the working directory", e))?;
    }
    fixture.make_setuid().map_err(|e| failed("make a set-uid program", e))?;
    fixture.start_victim().map_err(|e| failed("start the process outside", e))?;
    fixture.leave_open(ids).map_err(|e| failed("leave descriptors open", e))?;
    let terminal = Terminal::open(uid).map_err(|e| failed("open a terminal", e))?;
    fixture.terminal.clone_from(&terminal.path);
    let context = fixture.write_context(ids).map_err(|e| failed("write the context", e))?;

    let before = World::look(&mut fixture, &terminal).map_err(|e| failed("look at the world before", e))?;
    let program = fixture.bin().join("pinfold-hostile");
    let argv: [&OsStr; 4] = [program.as_ref(), "run-all".as_ref(), "--context".as_ref(), context.as_ref()];
    let (ws, temp, bin) = (fixture.ws(), fixture.temp(), fixture.bin());
    let run = Run { backend, mode, uid, ws: &ws, temp: &temp, mask, bin: &bin };
    let mut command = confined_command_by(driver, &run, &argv);
    command.current_dir(fixture.out().join(CWD_ATTEMPT));
    command.stdin(terminal.slave.try_clone().map_err(|e| failed("copy the terminal", e.into()))?);
    leave_open(&mut command, &fixture);
    let finished = output_within(&mut command, RUN_LIMIT).map_err(|e| failed("start the run", e))?;
    let after = World::look(&mut fixture, &terminal).map_err(|e| failed("look at the world after", e))?;

    let mut results = Results {
        end: format!("{}, {}", finished.status, String::from_utf8_lossy(&finished.stderr).trim()),
        outcome: std::fs::read_to_string(outcome_file(&temp)).ok(),
        ..Results::default()
    };
    for line in String::from_utf8_lossy(&finished.stdout).lines() {
        let report = Report::parse(line).map_err(|_| format!("the run printed {line:?}"))?;
        results.reports.insert(report.id.clone(), report);
    }
    before.compare(&after, mode, &fixture, ids, &mut results);
    Ok(results)
}

/// Everything outside that attempts may change.
struct World {
    out: Snapshot,
    ws: Snapshot,
    facts: crate::victim::Facts,
    typed: i32,
    shown: Vec<u8>,
    hostname: Vec<u8>,
    settings: Vec<Vec<u8>>,
    mounts: Vec<u8>,
}

impl World {
    fn look(fixture: &mut Fixture, terminal: &Terminal) -> Result<World, Errno> {
        let facts = fixture.victim().ok_or(Errno(libc::ESRCH))?.facts()?;
        Ok(World {
            facts,
            out: Snapshot::take(&fixture.out())?,
            ws: Snapshot::take(&fixture.ws())?,
            typed: terminal.waiting()?,
            shown: terminal.shown()?,
            hostname: std::fs::read("/proc/sys/kernel/hostname")?,
            settings: vec![std::fs::read("/proc/sys/kernel/core_pattern")?, std::fs::read("/proc/sys/kernel/panic")?],
            mounts: std::fs::read("/proc/self/mountinfo")?,
        })
    }

    fn compare(&self, after: &World, mode: Mode, fixture: &Fixture, ids: &[&str], results: &mut Results) {
        let mut trees = vec![("out", &self.out, &after.out)];
        if mode == Mode::ReadOnly {
            trees.push(("ws", &self.ws, &after.ws));
        }
        for (tree, before, after) in trees {
            for (path, what) in before.changes(after, Path::new("meta-atime-by-read")) {
                let evidence = format!("{tree}/{}: {what}", path.display());
                match path.iter().next().and_then(OsStr::to_str) {
                    Some(id) if ids.contains(&id) => results.change(id, evidence),
                    // What is written to the open file of the process outside names its attempt; see its facts.
                    Some("victim") => {}
                    _ => results.stray.push(evidence),
                }
            }
        }
        for (id, evidence) in after.facts.effects(&self.facts) {
            if ids.contains(&id.as_str()) {
                results.change(&id, evidence);
            } else {
                results.stray.push(format!("{id:?}: {evidence}"));
            }
        }
        // Each pushes one character; only one that said it could is to blame.
        let typed = after.typed - self.typed;
        let pushers = ["admin-tiocsti", "admin-tiocsti-high-bits", "admin-tty-open"];
        if typed > 0 {
            for id in pushers {
                if results.reports.get(id).is_some_and(|r| r.result == "ok") {
                    results.change(id, "a character is in the terminal's input".to_owned());
                }
            }
            if !pushers.iter().any(|id| results.changes.contains_key(*id)) {
                results.stray.push(format!("{typed} characters in the terminal's input"));
            }
        }
        let shown = String::from_utf8_lossy(&after.shown);
        if shown == "admin-other-terminal" {
            results.change(&shown, "its text is on the terminal outside".to_owned());
        } else if !shown.is_empty() {
            results.stray.push(format!("{shown:?} is on the terminal outside"));
        }
        for dir in ["/tmp", "/var/tmp", "/dev/shm"] {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if let Some(id) = name.strip_prefix(&format!("{}.", fixture.tag)) {
                    results.change(id, format!("{dir}/{name} exists outside"));
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
        for (what, same) in [
            ("the host name", self.hostname == after.hostname),
            ("a kernel setting", self.settings == after.settings),
            ("the mounts outside", self.mounts == after.mounts),
        ] {
            if !same {
                results.stray.push(format!("{what} changed"));
            }
        }
    }
}

/// A pseudo-terminal whose slave is the run's standard input and controlling terminal.
struct Terminal {
    slave: OwnedFd,
    master: OwnedFd,
    path: PathBuf,
}

impl Terminal {
    fn open(uid: u32) -> Result<Terminal, Errno> {
        let master = owned(open(c"/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK)?);
        let (mut number, unlock) = (0u32, 0u32);
        sys!(libc::SYS_ioctl, master.as_raw_fd(), libc::TIOCSPTLCK, sys::read(&unlock))?;
        sys!(libc::SYS_ioctl, master.as_raw_fd(), libc::TIOCGPTN, write(&mut number))?;
        let path = PathBuf::from(format!("/dev/pts/{number}"));
        let slave = owned(open(&c(&path), libc::O_RDWR | libc::O_NOCTTY)?);
        sys!(libc::SYS_fchown, slave.as_raw_fd(), uid, -1)?;
        // Raw: what is pushed can be counted before a line is complete, and nothing is echoed.
        // SAFETY: termios is made of numbers, for which zero is a value.
        let mut mode: libc::termios = unsafe { std::mem::zeroed() };
        sys!(libc::SYS_ioctl, slave.as_raw_fd(), libc::TCGETS, write(&mut mode))?;
        mode.c_lflag &= !(libc::ICANON | libc::ECHO);
        sys!(libc::SYS_ioctl, slave.as_raw_fd(), libc::TCSETS, sys::read(&mode))?;
        Ok(Terminal { slave, master, path })
    }

    /// How many characters wait in its input.
    fn waiting(&self) -> Result<i32, Errno> {
        let mut n = 0i32;
        sys!(libc::SYS_ioctl, self.slave.as_raw_fd(), libc::FIONREAD, write(&mut n))?;
        Ok(n)
    }

    /// What was written on it since the last look.
    fn shown(&self) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0u8; 1024];
        let n = match sys!(libc::SYS_read, self.master.as_raw_fd(), bytes.as_mut_slice(), 1024usize) {
            Err(Errno(libc::EAGAIN)) => 0,
            other => other?,
        };
        bytes.truncate(n as usize);
        Ok(bytes)
    }
}

/// In the child: a session with standard input as terminal, and the descriptors of the fixture at their numbers.
fn leave_open(command: &mut Command, fixture: &Fixture) {
    let descriptors: Vec<(i32, i32)> = fixture.left_open.iter().map(|(fd, at)| (fd.as_raw_fd(), *at)).collect();
    let body = move || {
        let io = |e: Errno| std::io::Error::from_raw_os_error(e.0);
        sys!(libc::SYS_setsid).map_err(io)?;
        sys!(libc::SYS_ioctl, 0, libc::TIOCSCTTY, 0).map_err(io)?;
        for (fd, at) in &descriptors {
            sys!(libc::SYS_dup3, *fd, *at, 0).map_err(io)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the body makes system calls only: no allocation, no lock.
    unsafe { command.pre_exec(body) };
}

/// How a command ended and what it wrote.
#[derive(Debug)]
pub struct Finished {
    /// Its status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

/// Runs a command whose output is collected; one that takes longer is ended.
///
/// # Errors
///
/// That of starting it, or ETIMEDOUT.
pub fn output_within(command: &mut Command, limit: Duration) -> Result<Finished, Errno> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut streams = (child.stdout.take(), child.stderr.take());
    let stdout = std::thread::spawn(move || drain(&mut streams.0));
    let stderr = std::thread::spawn(move || drain(&mut streams.1));
    let status = wait_within(&mut child, limit)?;
    let collect = |t: std::thread::JoinHandle<Vec<u8>>| t.join().unwrap_or_default();
    Ok(Finished { status, stdout: collect(stdout), stderr: collect(stderr) })
}

/// Waits for a child; one that takes longer is ended.
///
/// # Errors
///
/// That of waiting, or ETIMEDOUT.
pub fn wait_within(child: &mut Child, limit: Duration) -> Result<ExitStatus, Errno> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Err(Errno(libc::ETIMEDOUT));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn drain(stream: &mut Option<impl std::io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What came before an error is kept.
        let _ = stream.read_to_end(&mut bytes);
    }
    bytes
}

/// The hostile program's own list.
///
/// # Errors
///
/// In words, if it cannot be had.
pub fn listed() -> Result<Vec<Listed>, String> {
    let program = crate::start::find_binary("pinfold-hostile", "pinfold-conformance")?;
    let output = Command::new(&program).arg("--list").output().map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|l| serde_json::from_str(l).map_err(|e| format!("{l:?}: {e}"))).collect()
}
