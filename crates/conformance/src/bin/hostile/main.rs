//! A hostile program: tries, one attempt at a time, to change something outside what it was given.
//!
//! `pinfold-hostile --list`: one JSON line per attempt.
//! `pinfold-hostile run ID --context FILE`: one attempt in this process, one JSON line on standard output.
//! `pinfold-hostile run-all --context FILE`: every attempt of the context's list, each in a child.
//! `pinfold-hostile fork-chains CHAINS DEPTH SECONDS NAME`: leaves processes behind that are hard to end.
//!
//! It says only whether the kernel let it; whether something changed outside is judged outside (`judge`).

mod admin;
mod chains;
mod inherit;
mod ipc;
mod meta;
mod net;
mod path;
mod proc;
mod stream;
mod uring;
mod ws;

use pinfold_conformance::context::{Context, Listed, Report};
use pinfold_conformance::errno::{Act, Errno};
use pinfold_conformance::sys;
use pinfold_conformance::sys::{Ended, c, fork, open, wait, write_all};
use std::ffi::{CStr, CString};
use std::io::Write as _;

/// How long one attempt may take before it counts as hung.
const ATTEMPT_SECONDS: u32 = 15;

/// One way to try.
struct Attempt {
    id: &'static str,
    about: &'static str,
    act: fn(&Target) -> Act,
}

/// Shorthand for the tables of the modules.
const fn attempt(id: &'static str, about: &'static str, act: fn(&Target) -> Act) -> Attempt {
    Attempt { id, about, act }
}

const GROUPS: &[(&str, &[Attempt])] = &[
    ("path", path::ATTEMPTS),
    ("meta", meta::ATTEMPTS),
    ("inherit", inherit::ATTEMPTS),
    ("stream", stream::ATTEMPTS),
    ("admin", admin::ATTEMPTS),
    ("proc", proc::ATTEMPTS),
    ("ipc", ipc::ATTEMPTS),
    ("net", net::ATTEMPTS),
    ("ws", ws::ATTEMPTS),
];

/// What an attempt aims at: the context, and the directories that are its own.
struct Target<'a> {
    id: &'static str,
    context: &'a Context,
}

impl Target<'_> {
    /// A path in this attempt's directory outside.
    fn out(&self, name: &str) -> CString {
        c(self.context.out.join(self.id).join(name))
    }

    /// A path in this attempt's directory in the workspace.
    fn ws(&self, name: &str) -> CString {
        c(self.context.ws.join(self.id).join(name))
    }

    /// A path of the process outside, below `/proc`.
    fn victim(&self, name: &str) -> CString {
        c(format!("/proc/{}/{name}", self.context.victim.pid))
    }

    /// This attempt's name: what it sends and writes, so that the judge knows whose it was.
    fn text(&self) -> &[u8] {
        self.id.as_bytes()
    }

    /// The descriptor that was open for this attempt when the run began.
    fn inherited(&self) -> Result<i32, Errno> {
        self.context.inherited.get(self.id).copied().ok_or(Errno(libc::ENODATA))
    }

    /// A process may be hurt only if there is one: the number 0 would mean ourselves.
    fn pid(&self) -> Result<i32, Errno> {
        if self.context.victim.pid > 1 { Ok(self.context.victim.pid) } else { Err(Errno(libc::ENODATA)) }
    }
}

/// Opens and writes; the simplest effect.
fn write_file(path: &CStr, flags: i32) -> Act {
    let fd = open(path, flags)?;
    write_all(fd, b"changed\n")
}

fn find(id: &str) -> Option<(&'static str, &'static Attempt)> {
    GROUPS.iter().flat_map(|(g, list)| list.iter().map(move |a| (*g, a))).find(|(_, a)| a.id == id)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["--list"] => list(),
        ["run", id, "--context", file] => run_one(id, file),
        ["run-all", "--context", file] => run_all(file),
        // The last word only names what is left behind.
        ["fork-chains", chains, depth, seconds, _] => match (chains.parse(), depth.parse(), seconds.parse()) {
            (Ok(chains), Ok(depth), Ok(seconds)) => chains::leave(chains, depth, seconds),
            _ => Err("fork-chains CHAINS DEPTH SECONDS NAME".to_owned()),
        },
        // What the set-uid copy is asked: does the bit count?
        ["shows-uid", uid] => std::process::exit(i32::from(uid.parse() != Ok(meta::own_uid()))),
        _ => Err("usage: pinfold-hostile --list | run ID --context FILE | run-all --context FILE".to_owned()),
    };
    if let Err(text) = done {
        eprintln!("pinfold-hostile: {text}");
        std::process::exit(2);
    }
}

fn list() -> Result<(), String> {
    for (group, attempts) in GROUPS {
        for a in *attempts {
            let line = Listed { id: a.id.into(), group: (*group).into(), description: a.about.into() };
            say(&line)?;
        }
    }
    Ok(())
}

/// One JSON line, written at once: a pipe may be all that is left of the world.
fn say(line: &impl serde::Serialize) -> Result<(), String> {
    let mut text = serde_json::to_string(line).map_err(|e| e.to_string())?;
    text.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| e.to_string())
}

fn load(file: &str) -> Result<Context, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{file}: {e}"))
}

fn run_one(id: &str, file: &str) -> Result<(), String> {
    let context = load(file)?;
    let (_, found) = find(id).ok_or_else(|| format!("no attempt {id}"))?;
    say(&Report::of(id, (found.act)(&Target { id: found.id, context: &context })))
}

fn run_all(file: &str) -> Result<(), String> {
    let context = load(file)?;
    let chosen: Vec<&Attempt> = if context.only.is_empty() {
        GROUPS.iter().filter(|(g, _)| *g != "stream").flat_map(|(_, list)| list.iter()).collect()
    } else {
        let pick = |id: &String| find(id).map(|(_, a)| a).ok_or_else(|| format!("no attempt {id}"));
        context.only.iter().map(pick).collect::<Result<_, String>>()?
    };
    for a in chosen {
        let target = Target { id: a.id, context: &context };
        let pid = fork(|| {
            let _ = sys!(libc::SYS_alarm, ATTEMPT_SECONDS);
            (a.act)(&target).err().map_or(0, |e| e.0)
        })
        .map_err(|e| format!("fork: {e}"))?;
        say(&match wait(pid).map_err(|e| format!("wait: {e}"))? {
            Ended::Code(0) => Report::of(a.id, Ok(())),
            Ended::Code(n) => Report::of(a.id, Err(Errno(n))),
            Ended::Signal { signal, .. } => Report::killed(a.id, signal),
        })?;
    }
    Ok(())
}
