//! Report equals outcome, for those promises that no attempt of the matrix can break: what the report calls enforced holds,
//! and what it does not, is broken by the act here (`promise::SHOWN_ELSEWHERE`).
//!
//! Tests are called `BACKEND/MODE/UID/PROMISE`. Without walls every act must succeed.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::judge::wait_within;
use pinfold_conformance::promise::{SHOWN_ELSEWHERE, Strength};
use pinfold_conformance::sleeper::Sleeper;
use pinfold_conformance::start::{Backend, Mode, uids};
use pinfold_conformance::sys;
use pinfold_conformance::walls::{LIMIT, Walls, expect, printed, text};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for backend in Backend::ALL {
        for mode in Mode::ALL {
            // Nothing tells the modes apart where nothing is confined.
            if backend == Backend::Unconfined && mode == Mode::ReadOnly {
                continue;
            }
            for uid in uids() {
                for promise in SHOWN_ELSEWHERE {
                    let name = format!("{}/{}/{uid}/{promise}", backend.name(), mode.name());
                    let test = move || Ok::<(), Failed>(check(backend, mode, uid, promise)?);
                    trials.push(Trial::test(name, test));
                }
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

struct Call {
    walls: Walls,
    backend: Backend,
    mode: Mode,
}

fn check(backend: Backend, mode: Mode, uid: u32, promise: &str) -> Result<(), String> {
    let call = Call { walls: Walls::new(uid)?, backend, mode };
    let is_broken = match promise {
        "temp-private" => call.temp_is_seen()?,
        "sockets-unix" => call.later_socket_is_reached()?,
        "terminal" => call.terminal_is_changed()?,
        "descendants" => call.descendant_is_left()?,
        "control-plane" => call.own_files_are_changed()?,
        other => return Err(format!("no act for {other}")),
    };
    if backend == Backend::Unconfined {
        return expect(is_broken, "the control did not succeed");
    }
    let strength = call.strength(promise)?;
    match strength {
        Strength::NotAsked => Ok(()),
        Strength::Enforced => expect(!is_broken, "it is called enforced, but the act broke it"),
        Strength::Partial | Strength::None => expect(is_broken, format!("it is called {strength:?}, but it holds")),
    }
}

impl Call {
    fn command(&self, argv: &[&str]) -> Command {
        self.walls.confined(self.backend, self.mode, argv)
    }

    /// What the report says of the promise, in a call that has a terminal where the act has one.
    fn strength(&self, promise: &str) -> Result<Strength, String> {
        let mut words = self.walls.run_words(Some(self.backend), self.mode);
        let file = self.walls.home().join("report.json");
        words.splice(2..2, ["--report".to_owned(), text(&file)]);
        words.push("/bin/true".to_owned());
        let mut command =
            if promise == "terminal" { self.in_terminal(&words.join(" ")) } else { self.walls.plain(&words) };
        Walls::finish(&mut command)?;
        let said = std::fs::read_to_string(&file).map_err(|e| format!("no report: {e}"))?;
        let report = pinfold_conformance::promise::Outcome::parse(&said)?.report.ok_or("no report")?;
        report.strength(promise).ok_or_else(|| format!("the report does not speak of {promise}"))
    }

    fn in_terminal(&self, line: &str) -> Command {
        self.walls.plain(&["/usr/bin/script", "-qec", line, "/dev/null"])
    }

    /// Whether another process of the same user sees a temporary file of the call.
    fn temp_is_seen(&self) -> Result<bool, String> {
        let name = format!("{}.seen", self.walls.fixture.tag);
        let script = format!("f=${{TMPDIR:-/tmp}}/{name}; echo x > $f; echo $f; read line; rm -f $f");
        let mut command = self.command(&["/bin/sh", "-c", &script]);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = started.map_err(|e| e.to_string())?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(|e| e.to_string())?;
        }
        let is_seen = PathBuf::from(line.trim()).exists();
        drop(child.stdin.take());
        wait_within(&mut child, LIMIT).map_err(|e| e.to_string())?;
        expect(line.contains(&name), "the command did not say where its file is")?;
        Ok(is_seen)
    }

    /// Whether the command reaches a socket that somebody outside made after the call began, where nothing hides it.
    fn later_socket_is_reached(&self) -> Result<bool, String> {
        let path = self.walls.fixture.out().join("later");
        let program = "
import socket, sys
print('ready', flush=True)
sys.stdin.readline()
socket.socket(socket.AF_UNIX).connect(sys.argv[1])";
        let mut command = self.command(&["/usr/bin/python3", "-c", program, &text(&path)]);
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = started.map_err(|e| e.to_string())?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(|e| e.to_string())?;
        }
        let listener = std::os::unix::net::UnixListener::bind(&path).map_err(|e| e.to_string())?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).map_err(|e| e.to_string())?;
        drop(child.stdin.take());
        let status = wait_within(&mut child, LIMIT).map_err(|e| e.to_string())?;
        drop(listener);
        expect(line == "ready\n", "the command did not begin")?;
        Ok(status.success())
    }

    /// Whether the terminal that the call was given has another size afterwards.
    fn terminal_is_changed(&self) -> Result<bool, String> {
        let command = self.command(&["/bin/stty", "rows", "41"]);
        let words: Vec<String> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let size = self.walls.home().join("size");
        let line = format!("stty rows 7; {}; stty size > {}", words.join(" "), size.display());
        Walls::finish(&mut self.in_terminal(&line))?;
        let size = std::fs::read_to_string(size).map_err(|e| format!("no size: {e}"))?;
        expect(size.starts_with("41 ") || size.starts_with("7 "), format!("the size is {size:?}"))?;
        Ok(size.starts_with("41 "))
    }

    /// Whether a daemon is left when the process that raised the walls is killed.
    fn descendant_is_left(&self) -> Result<bool, String> {
        let sleeper = Sleeper::new();
        let number = sleeper.seconds();
        let script = format!("setsid sh -c 'setsid sleep {number} & exit' <&- >&- 2>&-; sleep {number}");
        let mut child = self.command(&["/bin/sh", "-c", &script]).spawn().map_err(|e| e.to_string())?;
        let has_started = sleeper.wait_until(|n| n == 2, LIMIT);
        // What `pinfold` started; without walls, the command itself.
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
        // Among them may be what bubblewrap left behind in a probe and nobody has collected yet.
        let is_alive =
            |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        let runner = children.split_whitespace().find(is_alive).and_then(|pid| pid.parse().ok());
        let target =
            if self.backend == Backend::Unconfined { child.id() } else { runner.unwrap_or_else(|| child.id()) };
        sys!(libc::SYS_kill, target, libc::SIGKILL).map_err(|e| e.to_string())?;
        wait_within(&mut child, LIMIT).map_err(|e| e.to_string())?;
        expect(has_started, "the sleepers did not start")?;
        Ok(!sleeper.wait_until(|n| n == 0, Duration::from_secs(2)))
    }

    /// Whether the command changes the mode of the directory that holds Pinfold's own files.
    fn own_files_are_changed(&self) -> Result<bool, String> {
        // So that there is one to be changed.
        printed(&Walls::finish(&mut self.walls.confined(Backend::Namespace, self.mode, &["/bin/true"]))?)?;
        let plans = self.walls.runtime().join("pinfold/plans");
        Walls::finish(&mut self.command(&["/bin/chmod", "711", &text(&plans)]))?;
        let mode = std::fs::metadata(&plans).map_err(|e| format!("{}: {e}", plans.display()))?.permissions().mode();
        // Later calls refuse a directory that others may enter.
        std::fs::set_permissions(&plans, PermissionsExt::from_mode(0o700)).map_err(|e| e.to_string())?;
        Ok(mode & 0o777 == 0o711)
    }
}
