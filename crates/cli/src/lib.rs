//! The command line of Pinfold. Flags, sentences, hints and exit statuses live here and nowhere else; what a
//! policy means is `policy`'s, and what is enforced is the providers'.
//!
//! Reading the command line changes nothing; then every word is checked; only then is anything prepared or started.
//! Standard output belongs to the command that is run, or to the one answer that was asked for. Everything else goes
//! to standard error behind one prefix.
//!
//! | module | idea |
//! |---|---|
//! | `arguments` | the grammar, and the manual in its doc comments |
//! | `usage` | a command line that fits no grammar |
//! | `surroundings` | where we stand, and what is no fit default workspace |
//! | `request` | words checked and made into a policy |
//! | `closing`, `secrets`, `socket_names` | what a call closes beyond its mode, and names for it |
//! | `run`, `exec` (`exec_terminal`), `confine`, `doctor`, `explain`, `version` | one command each |
//! | `learn`, `learn_arguments` | a command that is run to see what it needs |
//! | `fs`, `fs_arguments`, `fs_hints` | operations on files |
//! | `configuration` | files under the words of the command line |
//! | `session_arguments`, `sessions`, `session_run`, `approve` | sessions: their grammar, their acts, calls within one, answers |
//! | `mcp`, `mcp_arguments` | a session as a server of the Model Context Protocol |
//! | `report_file` | the file of `run --report` |
//! | `host_files` | files that tools outside obey: the option, and what is said |
//! | `signals` | signals that end a call |
//! | `host` | facts about the host |
//! | `voice` | the prefix, errors, hints |
//! | [`manual`] | `docs/cli.md` |

#![forbid(unsafe_code)]

mod approve;
mod arguments;
mod asking;
mod bounds;
mod closing;
mod configuration;
mod confine;
mod doctor;
mod exec;
mod exec_terminal;
mod explain;
mod fs;
mod fs_arguments;
mod fs_hints;
mod host;
mod host_files;
mod learn;
mod learn_arguments;
pub mod manual;
mod mcp;
mod mcp_arguments;
mod orphans;
mod report_file;
mod request;
mod run;
mod secrets;
mod session_arguments;
mod session_run;
mod sessions;
mod signals;
mod socket_names;
mod surroundings;
mod usage;
mod version;
mod voice;

use arguments::{Arguments, Command};
use clap::Parser as _;
use pinfold_providers::{LocalProvider, ProviderConfig};
use std::process::ExitCode;
use surroundings::Surroundings;
use voice::Form;

/// Does what the command line of this process says.
pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    ExitCode::from(match Arguments::try_parse_from(&words) {
        Ok(arguments) => act(&arguments.command),
        Err(error) => usage::answer(&error, &words),
    })
}

fn act(command: &Command) -> u8 {
    match command {
        Command::Run(arguments) => {
            orphans::adopt();
            let status = with_provider(arguments.json, |provider, around| run::run(arguments, provider, around));
            orphans::reap();
            status
        }
        Command::Exec(arguments) => {
            orphans::adopt();
            let status = exec::exec(arguments, &Surroundings::look());
            orphans::reap();
            status
        }
        Command::Learn(arguments) => {
            orphans::adopt();
            let status = with_provider(arguments.json, |provider, around| learn::learn(arguments, provider, around));
            orphans::reap();
            status
        }
        Command::Confine(arguments) => {
            with_provider(arguments.json, |provider, around| confine::confine(arguments, provider, around))
        }
        Command::Doctor(arguments) => {
            with_provider(arguments.json, |provider, around| doctor::doctor(arguments, provider, around))
        }
        Command::Explain(arguments) => {
            with_provider(arguments.json, |provider, around| explain::explain(arguments, provider, around))
        }
        Command::Fs(arguments) => fs::fs(arguments, &Surroundings::look()),
        Command::Session(command) => sessions::session(command, &Surroundings::look()),
        Command::Mcp(arguments) => mcp::mcp(arguments, Surroundings::look()),
        Command::Approve(arguments) => approve::approve(arguments, &Surroundings::look()),
        Command::Version(arguments) => version::version(arguments),
        Command::Manual => u8::from(voice::print(&manual::render_manual()).is_err()),
    }
}

fn with_provider(json: bool, task: impl FnOnce(&LocalProvider, &Surroundings) -> u8) -> u8 {
    match LocalProvider::new(ProviderConfig { keep_verdicts: true, ..ProviderConfig::default() }) {
        Ok(provider) => task(&provider, &Surroundings::look()),
        Err(error) => {
            voice::complain(&error, Form::of(json));
            voice::exit_status(&error)
        }
    }
}
