//! `landlock-run`: the drop-in, with the grammar, exit status and lines of the launcher that it replaces.
//!
//! `landlock-run [--ro PATH]... [--rw PATH]... -- ARGV...` or `landlock-run --probe`. Reads no environment but PATH, as
//! execvp(3) does. It knows ABI 5: rights that came later are not requested, so that it refuses what its original refuses.

use core::ffi::CStr;

use linux_raw_sys::general as g;
use linux_raw_sys::{landlock as ll, prctl as p};

use crate::command::{environment_value, execute_in_path};
use crate::entry::Start;
use crate::errno::Errno;
use crate::landlock::{FILE_ONLY_RIGHTS, file_rights};
use crate::status::Line;
use crate::sys::{self, LandlockRules, Text, Vector};

const NEWEST_ABI: u32 = 5;

const READ_ONLY: u64 =
    (ll::LANDLOCK_ACCESS_FS_EXECUTE | ll::LANDLOCK_ACCESS_FS_READ_FILE | ll::LANDLOCK_ACCESS_FS_READ_DIR) as u64;

/// Why nothing was executed.
enum Refusal {
    Usage(&'static str, Option<&'static CStr>),
    Unsupported,
    Path(&'static CStr, Errno),
    Ruleset(Errno),
    Exec(Errno),
}

/// Runs the program.
pub fn main(start: Start) -> ! {
    let arguments = start.arguments.get(1..).unwrap_or_default();
    let outcome = match parse(arguments) {
        Ok(Request::Probe) => probe(),
        Ok(Request::Run { grants, command }) => run(grants, command, start.environment),
        Err(refusal) => Err(refusal),
    };
    let mut line = Line::new();
    line.text("landlock-run: ");
    match outcome {
        Ok(()) => sys::exit(0),
        Err(Refusal::Usage(text, argument)) => {
            line.text("usage error: ").text(text);
            argument.iter().for_each(|argument| _ = line.escaped(argument));
        }
        Err(Refusal::Unsupported) => {
            line.text("landlock is not enforced by this kernel (ABI unsupported or disabled)");
        }
        Err(Refusal::Path(path, errno)) => {
            line.text("cannot open rule path: ").escaped(path).text(": ").text(errno.text());
        }
        Err(Refusal::Ruleset(errno)) => _ = line.text("landlock ruleset error: ").text(errno.text()),
        Err(Refusal::Exec(errno)) => _ = line.text("exec failed: ").text(errno.text()),
    }
    let _ = line.send(2);
    sys::exit(125)
}

enum Request {
    Probe,
    Run { grants: &'static [Text], command: &'static [Text] },
}

fn parse(arguments: &'static [Text]) -> Result<Request, Refusal> {
    let text = |index: usize| arguments.get(index).map(|text| text.as_cstr());
    let mut index = 0;
    while let Some(argument) = text(index) {
        match argument.to_bytes() {
            b"--probe" if arguments.len() == 1 => return Ok(Request::Probe),
            b"--probe" => return Err(Refusal::Usage("--probe takes no other arguments", None)),
            b"--" => break,
            b"--ro" | b"--rw" if text(index + 1).is_some() => index += 2,
            b"--ro" => return Err(Refusal::Usage("--ro requires a path", None)),
            b"--rw" => return Err(Refusal::Usage("--rw requires a path", None)),
            _ => return Err(Refusal::Usage("unknown argument: ", Some(argument))),
        }
    }
    match arguments.split_at_checked(index) {
        Some((grants, [_, command @ ..])) if !command.is_empty() => Ok(Request::Run { grants, command }),
        _ => Err(Refusal::Usage("missing `-- <argv>...` command", None)),
    }
}

/// Restricts this process as a run would, and says how completely.
fn probe() -> Result<(), Refusal> {
    let (abi, ruleset) = create()?;
    grant(ruleset, c"/", READ_ONLY)?;
    restrict(ruleset)?;
    let full = abi >= NEWEST_ABI;
    let _ = Line::new()
        .text(if full { "landlock: fully enforced" } else { "landlock: partially enforced (older ABI)" })
        .send(1);
    Ok(())
}

fn run(grants: &'static [Text], command: &'static [Text], environment: &'static [Text]) -> Result<(), Refusal> {
    let (abi, ruleset) = create()?;
    for pair in grants.chunks_exact(2) {
        let rights = if pair[0].as_cstr() == c"--rw" { file_rights(abi.min(NEWEST_ABI)) } else { READ_ONLY };
        grant(ruleset, pair[1].as_cstr(), rights)?;
    }
    restrict(ruleset)?;
    if abi < NEWEST_ABI {
        let _ = Line::new().text("landlock-run: partial enforcement (older Landlock ABI)").send(2);
    }
    let path = environment_value(environment, b"PATH").unwrap_or(b"/usr/local/bin:/bin:/usr/bin");
    Err(Refusal::Exec(execute_in_path(command, path, &Vector::of_stack(environment))))
}

fn create() -> Result<(u32, i32), Refusal> {
    let abi = sys::landlock_abi().map_err(|_| Refusal::Unsupported)?;
    let rules = LandlockRules { file_system: file_rights(abi.min(NEWEST_ABI)), network: 0, scoped: 0 };
    let ruleset = sys::landlock_ruleset(&rules, 1).map_err(Refusal::Ruleset)?;
    Ok((abi, ruleset))
}

fn grant(ruleset: i32, path: &'static CStr, rights: u64) -> Result<(), Refusal> {
    let fd = sys::open(sys::CWD, path, g::O_PATH, 0).map_err(|errno| Refusal::Path(path, errno))?;
    let stat = sys::fstat(fd).map_err(|errno| Refusal::Path(path, errno))?;
    let rights = if stat.is(g::S_IFDIR) { rights } else { rights & FILE_ONLY_RIGHTS };
    sys::landlock_allow(ruleset, rights, fd).map_err(Refusal::Ruleset)?;
    sys::close(fd);
    Ok(())
}

fn restrict(ruleset: i32) -> Result<(), Refusal> {
    sys::prctl(p::PR_SET_NO_NEW_PRIVS, 1).map_err(Refusal::Ruleset)?;
    sys::landlock_restrict(ruleset, 0).map_err(Refusal::Ruleset)?;
    sys::close(ruleset);
    Ok(())
}
