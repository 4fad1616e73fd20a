//! `pinfold-run --outside`: what has to happen before another program raises walls. This process, which nothing can steer
//! by variables, enters control groups, starts a guard, puts aside the variables that steer dynamic loaders, and becomes that program; the
//! launcher inside gives them back to the command (`--restore`).

use core::ffi::CStr;

use linux_raw_sys::general as g;

use crate::entry::Start;
use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::guard;
use crate::status::Status;
use crate::sys::{self, Text, Vector};

/// What stands before the name of a variable that was put aside.
const ASIDE: &[u8] = b"PINFOLD_INSIDE_";

/// Does it, or says why not.
pub(crate) fn act(start: Start) -> ! {
    if let Err(failure) = become_it(start) {
        Status(None).setup_failed(&failure);
    }
    sys::exit(125)
}

/// Returns only if it failed.
fn become_it(start: Start) -> Result<(), Failure> {
    let mut words = start.arguments.get(2..).unwrap_or_default();
    let mut guarded = false;
    loop {
        words = match words {
            [option, group, rest @ ..] if option.as_cstr() == c"--join" => {
                let group = group.as_cstr();
                join(group).or_fail("limit", "cannot enter").map_err(|failure| failure.of(group))?;
                rest
            }
            [option, rest @ ..] if option.as_cstr() == c"--guard" => {
                guarded = true;
                rest
            }
            [dashes, command @ ..] if dashes.as_cstr() == c"--" && !command.is_empty() => {
                let environment = start.environment.iter().map(|text| put_aside(*text));
                let environment =
                    Vector::collect(environment, start.environment.len()).or_fail("supervisor", "no memory")?;
                let program = command[0].as_cstr();
                let mut arguments = Vector::of_stack(command);
                if guarded {
                    let mark = guard::start()?;
                    let marked = command[..1].iter().chain(&mark).chain(&command[1..]).copied();
                    arguments =
                        Vector::collect(marked, command.len() + mark.len()).or_fail("supervisor", "no memory")?;
                }
                let errno = sys::execve(program, &arguments, &environment);
                return Err(errno).or_fail("supervisor", "cannot execute").map_err(|failure| failure.of(program));
            }
            _ => {
                return Err(Failure::new(
                    "usage",
                    "--outside takes --join GROUP and --guard, and then -- and a command",
                ));
            }
        };
    }
}

/// Enters a control group (cgroups(7)); `0` is whoever writes.
fn join(group: &CStr) -> Result<(), Errno> {
    let directory = sys::open(sys::CWD, group, g::O_PATH | g::O_DIRECTORY, 0)?;
    let file = sys::open(directory, c"cgroup.procs", g::O_WRONLY, 0)?;
    sys::write(file, b"0").map(drop)
}

/// Renames a variable that makes a dynamic loader or a C library load something (ld.so(8)).
fn put_aside(text: Text) -> Text {
    let bytes = text.as_cstr().to_bytes_with_nul();
    let name = bytes.split(|byte| matches!(byte, b'=' | 0)).next().unwrap_or_default();
    let steers =
        name.starts_with(b"LD_") || [&b"GLIBC_TUNABLES"[..], b"GCONV_PATH", b"LOCPATH", b"NLSPATH"].contains(&name);
    if !steers {
        return text;
    }
    let Ok(copy) = sys::allocate(ASIDE.len() + bytes.len()) else { sys::exit(125) };
    copy[..ASIDE.len()].copy_from_slice(ASIDE);
    copy[ASIDE.len()..][..bytes.len()].copy_from_slice(bytes);
    CStr::from_bytes_until_nul(copy).map_or(text, Text::from)
}

/// A variable as it was before it was put aside.
pub(crate) fn given_back(text: Text) -> Text {
    let original = text.as_cstr().to_bytes_with_nul().strip_prefix(ASIDE);
    original.and_then(|bytes| CStr::from_bytes_with_nul(bytes).ok()).map_or(text, Text::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_loader_is_put_aside_and_given_back() {
        for (variable, aside) in [
            (c"LD_PRELOAD=/x", c"PINFOLD_INSIDE_LD_PRELOAD=/x"),
            (c"LD_LIBRARY_PATH=", c"PINFOLD_INSIDE_LD_LIBRARY_PATH="),
            (c"GCONV_PATH=a=b", c"PINFOLD_INSIDE_GCONV_PATH=a=b"),
            (c"LD_NOTHING", c"PINFOLD_INSIDE_LD_NOTHING"),
        ] {
            let text = put_aside(Text::from(variable));
            assert_eq!(text.as_cstr(), aside);
            assert_eq!(given_back(text).as_cstr(), variable);
        }
        for variable in [c"PATH=/bin", c"LDFLAGS=-x", c"GCONV_PATHS=x", c"", c"LD=ld"] {
            assert_eq!(put_aside(Text::from(variable)).as_cstr(), variable);
            assert_eq!(given_back(Text::from(variable)).as_cstr(), variable);
        }
    }
}
