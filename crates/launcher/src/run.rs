//! `pinfold-run`, from its first instruction to the exec, in order of time. The numbers are those of `docs/launcher.md`.

use linux_raw_sys::general as g;

use crate::canary;
use crate::command::{Command, Directory, Progress};
use crate::descriptors;
use crate::entry::Start;
use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::guard;
use crate::outside;
use crate::serve;
use crate::spec::{self, Plan, Wall};
use crate::status::{Line, Status};
use crate::streams::Pumps;
use crate::supervise;
use crate::sys;

/// Runs the program.
pub fn main(start: Start) -> ! {
    let start = match start.arguments {
        // Comes back in a new process with the arguments of its call, once for each.
        [_, option, socket] if option.as_cstr() == c"--serve" => serve::wait_for_call(socket.as_cstr()),
        _ => start,
    };
    if let [_, option] = start.arguments
        && option.as_cstr() == c"--version"
    {
        let _ = Line::new().text("pinfold-run ").text(env!("CARGO_PKG_VERSION")).text(" (spec 1)").send(1);
        sys::exit(0);
    }
    if let [_, option, granted, denied] = start.arguments
        && option.as_cstr() == c"--canary"
    {
        canary::act(granted.as_cstr(), denied.as_cstr());
    }
    if let [_, option, ..] = start.arguments
        && option.as_cstr() == c"--outside"
    {
        outside::act(start);
    }
    let mut status = Status(None);
    match prepare(start, &mut status) {
        // 9. Either we become the command, or we stay beside it.
        Ok(command) if needs_supervision(&command) => supervise::run(command),
        Ok(command) => command.become_it(),
        Err(failure) => {
            status.setup_failed(&failure);
            sys::exit(125)
        }
    }
}

fn prepare(start: Start, status: &mut Status) -> Result<Command, Failure> {
    // 1. Descriptors 0, 1, 2 exist, so that nothing below takes their place.
    descriptors::occupy_standard_streams()?;
    // 2. The plan, and where to report.
    let plan = spec::read(start)?;
    *status = descriptors::open_status(&plan)?;
    // 3. Nothing else that the caller had open.
    let outer = if plan.guarded { Some(guard::relieve()?) } else { None };
    descriptors::close_all(3, [status.0, plan.broker.or(plan.awaits).or(outer)])?;
    // 4. No signal setting of the caller's.
    descriptors::reset_signals();
    // 5. Standard streams mean their redirection and nothing beyond it.
    let pumps = Pumps::prepare(plan.network)?;
    // 6. The working directory, by identity.
    let directory = Directory::find(&plan)?;
    // 7. Is there a terminal to get rid of? ENXIO says no; where /dev/tty is missing, nothing can say so.
    let terminal = sys::open(sys::CWD, c"/dev/tty", g::O_RDONLY | g::O_NOCTTY | g::O_NONBLOCK, 0);
    let has_terminal = terminal != Err(Errno::NXIO);
    terminal.into_iter().for_each(sys::close);
    // 8. No core of anybody in here, and room for one descriptor per root.
    forbid_cores()?;
    let files_limit = raise_files_limit(&plan)?;
    let follow = plan.die_with_parent.then(sys::getppid);
    let progress = Progress::default();
    let caller = start.caller;
    Ok(Command {
        plan,
        status: *status,
        pumps,
        directory,
        progress,
        caller,
        follow,
        outer,
        trees: &[],
        has_terminal,
        files_limit,
    })
}

fn needs_supervision(command: &Command) -> bool {
    // A process that leads a group, as each job of an interactive shell does, cannot leave its session; its child can.
    let cannot_leave = command.needs_session() && sys::process_group() == sys::getpid();
    command.plan.wall == Wall::Namespace || command.plan.supervise || !command.pumps.is_idle() || cannot_leave
}

/// Keeps the kernel from making cores of this process and of what it starts.
///
/// SECURITY: where `core_pattern` names a program, the kernel starts it outside of every wall when a process inside crashes,
/// also with a limit of 0; but not with 1, which its own programs have so that no crash of theirs starts another one
/// (core(5)). A file takes more than one byte, so none is written either. The filter keeps the limit where it is.
fn forbid_cores() -> Result<(), Failure> {
    match sys::set_limit(g::RLIMIT_CORE, (1, 1)) {
        // The hard limit is 0 already, and we may not raise it; the provider knows and says so.
        Err(Errno::PERM) if sys::limit(g::RLIMIT_CORE) == Ok((0, 0)) => Ok(()),
        outcome => outcome.or_fail("limit", "cannot set the limit on cores"),
    }
}

/// Raises the limit on open files if roots and kept paths need it; returns what to restore before the command runs.
fn raise_files_limit(plan: &Plan) -> Result<Option<(u64, u64)>, Failure> {
    let (needed, wanted) = (plan.descriptors(1), plan.descriptors(2));
    let (soft, hard) = sys::limit(g::RLIMIT_NOFILE).or_fail("descriptors", "cannot read the limit on open files")?;
    if plan.wall == Wall::Landlock || wanted <= soft {
        return Ok(None);
    }
    if needed > hard {
        return Err(Failure::new(
            "descriptors",
            "more writable roots and kept paths than the limit on open files (ulimit -Hn) allows",
        ));
    }
    sys::set_limit(g::RLIMIT_NOFILE, (wanted.min(hard), hard))
        .or_fail("descriptors", "cannot raise the limit on open files")?;
    Ok(Some((soft, hard)))
}

/// Ends a launcher that met its own mistake.
#[doc(hidden)]
pub fn die_of_panic() -> ! {
    let _ = Line::new().text("pinfold-run: internal error; nothing was executed").send(2);
    sys::exit(125)
}
