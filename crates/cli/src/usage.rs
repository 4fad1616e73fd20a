//! What is said when the command line cannot be read at all.

use crate::voice::{Form, say, say_json};
use clap::error::ErrorKind;
use serde::Serialize;
use std::ffi::OsString;

/// The error of a command line that fits no grammar; these are no errors of a sandbox and have a code of their own.
#[derive(Serialize)]
struct UsageBody {
    code: &'static str,
    message: String,
}

/// Prints help where help was asked for, and otherwise what could not be read; returns the exit status.
pub(crate) fn answer(error: &clap::Error, words: &[OsString]) -> u8 {
    if !error.use_stderr() {
        return match crate::voice::print(&error.render().to_string()) {
            Ok(()) => 0,
            Err(_) => 1,
        };
    }
    let message = message(error);
    match form(words) {
        Form::Json => say_json(&UsageBody { code: "USAGE", message }),
        Form::Text => {
            say(&format!("error[USAGE]: {message}"));
            say(&format!("hint: {}", hint(error.kind(), words)));
        }
    }
    2
}

/// Returns the parser's sentence as one line.
fn message(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command is missing".to_owned();
    }
    let text = error.render().to_string();
    let told =
        text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim).filter(|line| !line.is_empty());
    // What the parser advises for a misspelled option would make a word of the command of it.
    let told = told.filter(|line| !line.starts_with("tip: to pass "));
    let told = told.collect::<Vec<_>>().join(" ");
    told.strip_prefix("error: ").unwrap_or(&told).to_owned()
}

/// The command that this process was asked for; `run` if it was none.
pub(crate) fn command() -> String {
    let word = std::env::args_os().nth(1).and_then(|word| word.into_string().ok());
    let is_name =
        |word: &String| word.starts_with(char::is_alphabetic) && word.bytes().all(|byte| byte.is_ascii_lowercase());
    word.filter(is_name).unwrap_or_else(|| "run".to_owned())
}

fn form(words: &[OsString]) -> Form {
    Form::of(words.iter().take_while(|word| *word != "--").any(|word| word == "--json"))
}

fn hint(kind: ErrorKind, words: &[OsString]) -> String {
    let command = words.get(1).and_then(|word| word.to_str());
    match command {
        Some(name @ ("run" | "confine" | "learn")) if kind == ErrorKind::UnknownArgument => {
            format!("options come first, the command after two dashes: pinfold {name} -- COMMAND ARGUMENT...")
        }
        Some(
            name @ ("run" | "confine" | "doctor" | "explain" | "fs" | "version" | "session" | "approve" | "exec"
            | "mcp" | "learn"),
        ) => {
            format!("see the options: pinfold {name} --help")
        }
        _ => "see the commands: pinfold --help".to_owned(),
    }
}
