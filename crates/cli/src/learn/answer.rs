//! What is said at the end: the command line on standard output, and what a person should know on standard error; or one
//! object.

use super::Last;
use super::lesson::{NotLearnt, Reason};
use crate::run::effect;
use crate::voice::{Form, one_line, print, say, say_json};
use pinfold_policy::quote::quote;
use pinfold_policy::{Denial, Ending, ExecutionPolicy, Outcome, Restrictions};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How many lines tell of directories, and of what was not learnt.
const MOST_LINES: usize = 20;

/// What was learnt.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Answer {
    /// A line for a shell.
    command: String,
    policy: ExecutionPolicy,
    restrictions: Restrictions,
    learnt: Vec<Learnt>,
    not_learnt: Vec<NotLearnt>,
    /// Whether refusals are not known one by one.
    incomplete: bool,
    rounds: u32,
    /// Whether the last run had the policy that is printed.
    tried: bool,
    /// How it ended.
    ending: Ending,
}

/// A directory, and what it stands for.
#[derive(Debug, Serialize)]
struct Learnt {
    directory: String,
    denials: Vec<Denial>,
}

impl Answer {
    pub(super) fn new(
        command: String,
        policy: ExecutionPolicy,
        restrictions: Restrictions,
        learnt: Vec<(PathBuf, Denial)>,
        last: Last,
    ) -> Self {
        let mut directories: BTreeMap<PathBuf, Vec<Denial>> = BTreeMap::new();
        for (directory, denial) in learnt.into_iter().chain(last.lesson.learnt) {
            let denials = directories.entry(directory).or_default();
            let same = |known: &Denial| (&known.path, &known.operation) == (&denial.path, &denial.operation);
            if !denials.iter().any(same) {
                denials.push(denial);
            }
        }
        let readable = |(directory, denials)| Learnt { directory: pinfold_policy::quote::readable(directory), denials };
        let not_learnt = last.lesson.not_learnt;
        Self {
            command,
            policy,
            restrictions,
            learnt: directories.into_iter().map(readable).collect(),
            incomplete: not_learnt.iter().any(|not| not.reason == Reason::NoPath),
            not_learnt,
            rounds: last.number,
            tried: last.whole,
            ending: last.outcome.ending().clone(),
        }
    }

    /// Prints it, and returns the exit status.
    pub(super) fn print(&self, form: Form) -> u8 {
        let text = match form {
            Form::Json => one_line(self),
            Form::Text => {
                self.explain();
                self.command.clone()
            }
        };
        match print(&format!("{text}\n")) {
            Ok(()) => 0,
            Err(error) => {
                say(&format!("error: the answer cannot be printed: {error}"));
                125
            }
        }
    }

    fn explain(&self) {
        for Learnt { directory, denials } in self.learnt.iter().take(MOST_LINES) {
            let first = denials.first().map(effect).unwrap_or_default();
            let more = if denials.len() > 1 { format!(" and {} more", denials.len() - 1) } else { String::new() };
            say(&format!("learnt: {} for {first}{more}", quote(directory)));
        }
        for NotLearnt { detail, denial, .. } in self.not_learnt.iter().take(MOST_LINES) {
            say(&format!("not learnt: {}: {detail}", effect(denial)));
        }
        let hidden = self.learnt.len().saturating_sub(MOST_LINES) + self.not_learnt.len().saturating_sub(MOST_LINES);
        if hidden > 0 {
            say(&format!("and {hidden} more: see --json"));
        }
        if self.incomplete {
            say("not everything that was refused is known one by one: learn again with what is printed here");
        }
        let passed = self.ending == Ending::Exited { code: 0 };
        match (self.tried, passed) {
            (true, true) if self.learnt.is_empty() && self.not_learnt.is_empty() => {
                say("nothing was refused: the command needs no more");
            }
            (true, true) => say("tried: the command exits with 0 under this policy"),
            (true, false) => {
                say("tried: the command does not exit with 0 under this policy, and nothing more can be learnt")
            }
            (false, true) => {
                say("it exited with 0 although this was refused: what it can do without you may leave out")
            }
            (false, false) => say(
                "not tried: a command often stops at its first refusal, so more may follow; learn again with these options, or \
                 with --within DIR",
            ),
        }
    }
}

/// Says how a run ended.
pub(super) fn say_round(number: u32, mode: &str, outcome: &Outcome) {
    let ended = match outcome.ending() {
        Ending::Exited { code } => format!("exit status {code}"),
        Ending::Signaled { signal } => format!("ended by signal {}", signal.number()),
        Ending::TimedOut { after_ms, .. } => format!("ended after its limit of {after_ms} ms"),
        Ending::Cancelled { .. } | Ending::NotStarted { .. } => "withdrawn".to_owned(),
    };
    say(&format!("run {number}, {mode}: {ended}, refused: {}", outcome.denials().len()));
}

/// Says why nothing ran.
pub(super) fn did_not_run(outcome: &Outcome, form: Form) {
    match (form, outcome.ending()) {
        (Form::Json, _) => say_json(outcome),
        (Form::Text, Ending::NotStarted { code, detail }) => say(&format!("error[{code}]: {detail}")),
        (Form::Text, _) => say("error: the command did not run"),
    }
}
