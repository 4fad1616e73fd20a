//! Standard streams that the caller redirected to files outside: the redirection works, and gives nothing beyond it.
//!
//! Attempts are rows of the same table as the matrix, but each is a run of its own, with its own redirection.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::context::Report;
use pinfold_conformance::expect::{Row, rows};
use pinfold_conformance::fixture::{Fixture, owned};
use pinfold_conformance::judge::{Finished, output_within, wait_within};
use pinfold_conformance::snapshot::Snapshot;
use pinfold_conformance::start::{Backend, Mode, Run, confined_command, needed, uids};
use pinfold_conformance::sys::{c, open};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// Under which walls.
#[derive(Clone, Copy)]
struct Walls {
    backend: Backend,
    mode: Mode,
    uid: u32,
}

type Claim = (&'static str, fn(Walls) -> Result<(), Failed>);

/// What holds of redirections under every backend.
const CLAIMS: &[Claim] = &[
    ("directory-as-stdin-is-refused", directory_as_stdin_is_refused),
    ("path-descriptor-as-stdin-is-refused", path_descriptor_as_stdin_is_refused),
    ("files-carry-every-byte", files_carry_every_byte),
    ("shared-file-keeps-the-order", shared_file_keeps_the_order),
    ("named-fifo-is-carried", named_fifo_is_carried),
];

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
                let walls = Walls { backend, mode, uid };
                let prefix = format!("{}/{}/{uid}", backend.name(), mode.name());
                for row in rows().into_iter().filter(|r| r.id.starts_with("stream-")) {
                    trials.push(Trial::test(format!("{prefix}/{}", row.id), move || attempt(walls, &row)));
                }
                for (name, claim) in CLAIMS {
                    trials.push(Trial::test(format!("{prefix}/{name}"), move || claim(walls)));
                }
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

impl Walls {
    fn fixture(self, id: &str) -> Result<Fixture, Failed> {
        let mut fixture = Fixture::new(self.uid, needed(self.backend))?;
        fixture.prepare(&[id]).map_err(|e| e.to_string())?;
        Ok(fixture)
    }

    fn command(self, fixture: &Fixture, argv: &[&OsStr]) -> Command {
        let (ws, temp, bin) = (fixture.ws(), fixture.temp(), fixture.bin());
        let run =
            Run { backend: self.backend, mode: self.mode, uid: self.uid, ws: &ws, temp: &temp, mask: &[], bin: &bin };
        let mut command = confined_command(&run, argv);
        command.current_dir(ws).stdin(Stdio::null());
        command
    }
}

fn words<'a>(argv: &'a [&'a str]) -> Vec<&'a OsStr> {
    argv.iter().map(OsStr::new).collect()
}

/// One row of the table: standard input reads `f`, or standard error appends to it.
fn attempt(walls: Walls, row: &Row) -> Result<(), Failed> {
    let fixture = walls.fixture(row.id)?;
    let file = fixture.out().join(row.id).join("f");
    let context = fixture.write_context(&[row.id]).map_err(|e| e.to_string())?;
    let program = fixture.bin().join("pinfold-hostile");
    let argv = [program.as_os_str(), "run".as_ref(), row.id.as_ref(), "--context".as_ref(), context.as_ref()];
    let mut command = walls.command(&fixture, &argv);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    if row.id.starts_with("stream-stdin") {
        command.stdin(File::open(&file)?);
    } else {
        command.stderr(OpenOptions::new().append(true).open(&file)?);
    }
    let before = Snapshot::take(&fixture.out()).map_err(|e| e.to_string())?;
    let mut child = command.spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)?;
    }
    let status = wait_within(&mut child, LIMIT).map_err(|e| e.to_string())?;
    let after = Snapshot::take(&fixture.out()).map_err(|e| e.to_string())?;

    let text = std::fs::read_to_string(&file)?;
    let report = Report::parse(line.trim()).map_err(|_| format!("the run printed {line:?}, {status}; {text}"))?;
    let changes = before.changes(&after, Path::new("no access time counts"));
    let changes: Vec<String> = changes.into_iter().map(|(p, what)| format!("{}: {what}", p.display())).collect();
    row.expectation(walls.backend, walls.mode, walls.uid)?.verdict(&report, &changes)?;
    if row.id == "stream-stderr-append" && text != format!("outside\n{}\n", row.id) {
        return Err(format!("the file holds {text:?}").into());
    }
    Ok(())
}

fn expect_refusal(walls: Walls, finished: &Finished) -> Result<(), Failed> {
    let stderr = String::from_utf8_lossy(&finished.stderr).into_owned();
    if walls.backend == Backend::Unconfined {
        return expect(&finished.stdout == b"ran\n", "the control did not run");
    }
    expect(finished.status.code() == Some(125), &format!("{}: {stderr}", finished.status))?;
    expect(stderr.starts_with("pinfold") && stderr.lines().count() == 1, &stderr)?;
    expect(finished.stdout.is_empty(), "the command ran")
}

fn expect(condition: bool, otherwise: &str) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(otherwise.into()) }
}

fn directory_as_stdin_is_refused(walls: Walls) -> Result<(), Failed> {
    let fixture = walls.fixture("claim")?;
    let mut command = walls.command(&fixture, &words(&["/bin/echo", "ran"]));
    command.stdin(File::open(fixture.out())?);
    expect_refusal(walls, &output_within(&mut command, LIMIT).map_err(|e| e.to_string())?)
}

fn path_descriptor_as_stdin_is_refused(walls: Walls) -> Result<(), Failed> {
    let fixture = walls.fixture("claim")?;
    let mut command = walls.command(&fixture, &words(&["/bin/echo", "ran"]));
    let fd = open(&c(fixture.out().join("claim/f")), libc::O_PATH).map_err(|e| e.to_string())?;
    command.stdin(owned(fd));
    expect_refusal(walls, &output_within(&mut command, LIMIT).map_err(|e| e.to_string())?)
}

fn files_carry_every_byte(walls: Walls) -> Result<(), Failed> {
    let fixture = walls.fixture("claim")?;
    let bytes: Vec<u8> = (0u32..500_000).flat_map(u32::to_le_bytes).collect();
    let (from, to) = (fixture.base().join("from"), fixture.base().join("to"));
    std::fs::write(&from, &bytes)?;
    let mut command = walls.command(&fixture, &words(&["/bin/cat"]));
    command.stdin(File::open(&from)?).stdout(File::create(&to)?).stderr(Stdio::null());
    let status = wait_within(&mut command.spawn()?, LIMIT).map_err(|e| e.to_string())?;
    expect(status.success(), &status.to_string())?;
    expect(std::fs::read(&to)? == bytes, "the copy differs")
}

fn shared_file_keeps_the_order(walls: Walls) -> Result<(), Failed> {
    let fixture = walls.fixture("claim")?;
    let to = fixture.base().join("to");
    let script = "i=0; while [ $i -lt 200 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done";
    let mut command = walls.command(&fixture, &words(&["/bin/sh", "-c", script]));
    let file = File::create(&to)?;
    command.stdout(file.try_clone()?).stderr(file);
    let status = wait_within(&mut command.spawn()?, LIMIT).map_err(|e| e.to_string())?;
    let expected: String = (0..200).map(|i| format!("o{i}\ne{i}\n")).collect();
    let got = std::fs::read_to_string(&to)?;
    expect(status.success() && got == expected, &format!("{status}: {got}"))
}

/// A named FIFO can be opened again by its descriptor, so it is copied like a file; its end must still be seen.
fn named_fifo_is_carried(walls: Walls) -> Result<(), Failed> {
    let fixture = walls.fixture("claim")?;
    let fifo = fixture.base().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status()?;
    expect(made.success(), "mkfifo failed")?;
    let writer = {
        let fifo = fifo.clone();
        std::thread::spawn(move || std::fs::write(fifo, "through\n"))
    };
    let mut command = walls.command(&fixture, &words(&["/bin/cat"]));
    command.stdin(File::open(&fifo)?);
    let finished = output_within(&mut command, LIMIT).map_err(|e| e.to_string())?;
    writer.join().map_err(|_| "the writer panicked")??;
    expect(finished.status.success() && finished.stdout == b"through\n", &format!("{finished:?}"))
}
