//! One step of CI: a program that is given time, whose tests are counted, and whose good news is left out.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How many tests there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Reads a closing line of a test program: `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn of_line(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("test result: ")?;
        let counts = rest.split_once(". ")?.1;
        let mut tally = Self::default();
        for part in counts.split(';') {
            let Some((number, word)) = part.trim().split_once(' ') else { continue };
            let place = match word {
                "passed" => &mut tally.passed,
                "failed" => &mut tally.failed,
                "ignored" => &mut tally.ignored,
                _ => continue,
            };
            *place = number.parse().ok()?;
        }
        Some(tally)
    }
}

/// How long output may stay open after the program has ended.
const GRACE: Duration = Duration::from_secs(10);

/// Runs a program to its end; prints what it prints, without the tests that passed.
///
/// # Errors
///
/// It could not be started, failed, took longer than `limit` (then its process group is killed), or left somebody behind
/// that keeps its output open. The tally holds in every case.
pub(crate) fn execute(command: &mut Command, limit: Duration) -> (Tally, Result<(), String>) {
    let mut tally = Tally::default();
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return (tally, Err(format!("cannot start {name}: {error}"))),
    };
    let group = format!("-{}", child.id());
    let (sender, lines) = channel();
    follow(child.stdout.take(), &sender);
    follow(child.stderr.take(), &sender);
    drop(sender);
    let deadline = Instant::now() + limit;
    let mut ended: Option<(Instant, Result<(), String>)> = None;
    loop {
        let is_open = show(&lines, &mut tally);
        let now = Instant::now();
        match &ended {
            Some((_, outcome)) if !is_open => return (tally, outcome.clone()),
            Some((at, _)) if now > *at + GRACE => {
                kill(&group);
                return (tally, Err(format!("{name} left a process behind that keeps its output open")));
            }
            Some(_) => {}
            None => match child.try_wait() {
                Ok(Some(status)) if status.success() => ended = Some((now, Ok(()))),
                Ok(Some(status)) => ended = Some((now, Err(format!("{name}: {status}")))),
                Ok(None) if now < deadline => {}
                Ok(None) => {
                    kill(&group);
                    ended = Some((now, Err(format!("{name} took longer than {} s", limit.as_secs()))));
                }
                Err(error) => return (tally, Err(format!("cannot wait for {name}: {error}"))),
            },
        }
    }
}

/// Sends every line of a stream, in a thread of its own.
fn follow(stream: Option<impl Read + Send + 'static>, lines: &Sender<String>) {
    let Some(stream) = stream else { return };
    let lines = lines.clone();
    thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            if lines.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
}

/// Prints what has come for a moment; false once both streams have ended.
fn show(lines: &Receiver<String>, tally: &mut Tally) -> bool {
    let until = Instant::now() + Duration::from_millis(100);
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(more) = Tally::of_line(&line) {
                    tally.add(more);
                }
                if !is_good_news(&line) {
                    println!("{line}");
                }
            }
            Err(RecvTimeoutError::Timeout) => return true,
            Err(RecvTimeoutError::Disconnected) => {
                // The program may need a moment more to be seen as ended.
                thread::sleep(until.saturating_duration_since(Instant::now()));
                return false;
            }
        }
    }
}

fn is_good_news(line: &str) -> bool {
    (line.starts_with("test ") && line.ends_with("ok")) || line.trim().is_empty() || line == "running 0 tests"
}

fn kill(group: &str) {
    // A group that is gone is what we want.
    let _ = Command::new("kill").args(["-KILL", "--", group]).stderr(Stdio::null()).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit_ms: u64) -> (Tally, Result<(), String>) {
        execute(Command::new("sh").args(["-c", script]), Duration::from_millis(limit_ms))
    }

    #[test]
    fn tests_are_counted_over_all_closing_lines() {
        let script = "echo 'test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s';\
            echo 'test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out' ; exit 1";
        let (tally, outcome) = shell(script, 20_000);
        assert_eq!(tally, Tally { passed: 4, failed: 2, ignored: 1 });
        assert!(outcome.is_err_and(|why| why.contains("exit status: 1")));
        assert_eq!(Tally::of_line("result: ok. 3 passed"), None);
    }

    #[test]
    fn a_program_that_takes_too_long_is_ended_with_its_children() {
        let begun = Instant::now();
        let (_, outcome) = shell("sleep 600 & sleep 600", 300);
        assert!(outcome.is_err_and(|why| why.contains("took longer")));
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn good_news_is_left_out() {
        assert!(is_good_news("test a::b ... ok") && is_good_news("") && is_good_news("test lifecycle/x ... ok"));
        assert!(!is_good_news("test a ... FAILED") && !is_good_news("test result: ok. 1 passed; 0 failed"));
    }
}
