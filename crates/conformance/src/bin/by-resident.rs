//! Stands for a program that runs many commands: three calls of one provider whose processes the resident launcher makes. The
//! first two do nothing; the third is what the command line says, with the streams of this process. Under `linux_namespace`, if
//! these are pipes or `/dev/null`, its walls stand before it begins (a call prepared ahead).
//!
//! `pinfold-by-resident run --backend B --mode M [--workspace DIR] [--writable DIR]... [--cwd DIR] [--report FILE] -- COMMAND…`,
//! which are words of `pinfold run`. It passes signals on and ends as the command did. 99: a call was made without the resident
//! launcher, and proves nothing.

use pinfold_conformance::sys;
use pinfold_conformance::sys::{read, write};
use pinfold_policy::{Ending, ExecutionPolicy, SandboxError, SandboxMode, Sockets, Stop};
use pinfold_providers::{
    Backend, CallOptions, Cancel, Insistence, LocalProvider, ProviderConfig, RunOptions, RunResult, Stream,
};
use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Signals that are passed on to the command.
const PASSED: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGCONT,
];

const NOT_RESIDENT: u8 = 99;

fn main() -> ExitCode {
    match act() {
        Ok(code) => code,
        Err(why) => {
            eprintln!("pinfold-by-resident: {why}");
            ExitCode::from(125)
        }
    }
}

fn act() -> Result<ExitCode, String> {
    let asked = Asked::read(std::env::args_os().skip(1))?;
    let backend: Backend = asked.backend.parse().map_err(|_| format!("no backend {:?}", asked.backend))?;
    // Whoever looks at the end of a caller kills our parent, and we are the caller of the launcher.
    sys!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).map_err(|e| e.to_string())?;
    // Before there is a thread, so that all of them leave these signals to one.
    let blocked = PASSED.iter().fold(0_u64, |set, signal| set | 1 << (signal - 1));
    sys!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, read(&blocked), 0usize, 8usize).map_err(|e| e.to_string())?;
    let config = ProviderConfig { keep_verdicts: true, ..ProviderConfig::default() };
    let provider = LocalProvider::new(config).map_err(|error| error.to_string())?;
    let mut policy = ExecutionPolicy::new(asked.mode, asked.workspace.clone());
    policy.additional_writable_roots.clone_from(&asked.writable);
    let mut call = CallOptions { backend: Some(backend), cwd: asked.cwd.clone(), ..CallOptions::default() };
    // As `pinfold run` asks for it.
    (call.restrictions.sockets, call.sockets) = (Sockets::Closed, Insistence::WherePossible);

    let first = RunOptions { stdin: Stream::Null, stdout: Stream::Null, stderr: Stream::Null, ..resident() };
    // Two of a kind: the third is prepared ahead where it can be.
    for _ in 0..2 {
        match provider.run(&["/bin/true".into()], &policy, &call, &first, &Cancel::new()) {
            // What is refused here is refused again below, and said then.
            Ok(_) | Err(_) => {}
        }
    }
    let before = provider.resident().1;

    let child = Arc::new(AtomicU32::new(0));
    pass_signals_on(&child, blocked);
    let own = [std::io::stdin().as_fd().try_clone_to_owned(), own(&std::io::stdout()), own(&std::io::stderr())];
    let run = RunOptions {
        // A stream that is closed stays so: the launcher makes it /dev/null.
        given: own.map(|fd| fd.ok().map(Arc::new)),
        on_spawn: Some(Arc::new(move |pid| child.store(pid, Ordering::SeqCst))),
        ..first
    };
    let result = provider.run(&asked.argv, &policy, &call, &run, &Cancel::new());
    if let Some(file) = &asked.report
        && let Ok(result) = &result
    {
        let text = serde_json::to_string(&result.outcome).map_err(|error| error.to_string())?;
        std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    // A refusal before anything was started is no call.
    if result.is_ok() && (before, provider.resident().1) != (2, 3) {
        eprintln!("pinfold-by-resident: {before} and {} calls by the resident launcher", provider.resident().1);
        return Ok(ExitCode::from(NOT_RESIDENT));
    }
    end_as(result)
}

fn own(stream: &impl std::os::fd::AsFd) -> std::io::Result<std::os::fd::OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

fn resident() -> RunOptions {
    RunOptions { resident: true, ..RunOptions::default() }
}

fn end_as(result: Result<RunResult, SandboxError>) -> Result<ExitCode, String> {
    let outcome = match result {
        Ok(result) => result.outcome,
        Err(error) => return Err(format!("error[{}]: {error}", error.code())),
    };
    let stop = outcome.ending().stop();
    if let (Ending::Signaled { .. }, Some(Stop::Signaled { signal })) = (outcome.ending(), stop) {
        // As the launcher does; a core of ours would say nothing.
        let none = [0_u64; 2];
        sys!(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, read(&none), 0usize).map_err(|e| e.to_string())?;
        let nothing = 0_u64;
        sys!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, read(&nothing), 0usize, 8usize).map_err(|e| e.to_string())?;
        sys!(libc::SYS_kill, std::process::id(), signal.number()).map_err(|e| e.to_string())?;
    }
    Ok(ExitCode::from(u8::try_from(outcome.exit_status()).unwrap_or(125)))
}

/// Takes the signals that all threads block, and gives them to the process of the call.
fn pass_signals_on(child: &Arc<AtomicU32>, blocked: u64) {
    let child = Arc::clone(child);
    std::thread::spawn(move || {
        loop {
            let mut information = [0_i32; 32];
            let taken = sys!(libc::SYS_rt_sigtimedwait, read(&blocked), write(&mut information), 0usize, 8usize);
            let Ok(signal) = taken else { continue };
            // The command may be there before we have heard of it.
            let pid = loop {
                match child.load(Ordering::SeqCst) {
                    0 => std::thread::sleep(Duration::from_millis(1)),
                    pid => break pid,
                }
            };
            // It may have ended; its number is its own until we have seen that.
            let _ = sys!(libc::SYS_kill, pid, signal);
        }
    });
}

/// What the command line says.
struct Asked {
    backend: String,
    mode: SandboxMode,
    workspace: PathBuf,
    writable: Vec<PathBuf>,
    cwd: Option<PathBuf>,
    report: Option<PathBuf>,
    argv: Vec<OsString>,
}

impl Asked {
    fn read(mut words: impl Iterator<Item = OsString>) -> Result<Self, String> {
        let mut asked = Self {
            backend: String::new(),
            mode: SandboxMode::WorkspaceWrite,
            workspace: std::env::current_dir().map_err(|error| error.to_string())?,
            writable: Vec::new(),
            cwd: None,
            report: None,
            argv: Vec::new(),
        };
        if words.next().as_deref() != Some("run".as_ref()) {
            return Err("the first word is run".to_owned());
        }
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word:?} lacks its value"));
            match word.to_str().unwrap_or_default() {
                "--" => {
                    asked.argv = words.collect();
                    return Ok(asked);
                }
                "--backend" => asked.backend = value()?.to_string_lossy().into_owned(),
                "--mode" => {
                    let name = value()?;
                    let known = [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite];
                    let mode = known.into_iter().find(|mode| name == mode.as_str());
                    asked.mode = mode.ok_or(format!("no mode {name:?}"))?;
                }
                "--workspace" => asked.workspace = value()?.into(),
                "--writable" => asked.writable.push(value()?.into()),
                "--cwd" => asked.cwd = Some(value()?.into()),
                "--report" => asked.report = Some(value()?.into()),
                _ => return Err(format!("unknown word {word:?}")),
            }
        }
        Err("no command".to_owned())
    }
}
