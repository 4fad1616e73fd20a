//! `pinfold learn`: run a command, see what it is refused, and print the narrowest policy that opens it.
//!
//! Nothing is opened while it learns but what `--within` names, and there only what was refused before. Directories are
//! judged as `run` would judge them, and more strictly: nobody has named them.

mod answer;
mod lesson;
mod words;

use crate::arguments::PolicyOptions;
use crate::configuration::Configured;
use crate::learn_arguments::Learn;
use crate::request::{Request, execution_mode};
use crate::signals::Watch;
use crate::surroundings::{Surroundings, physical};
use crate::voice::{Form, complain, complain_session, exit_status, hurry, session_status};
use answer::Answer;
use lesson::{Lesson, Teacher, outermost};
use pinfold_policy::quote::quote;
use pinfold_policy::{
    ConfinedMode, Denial, ExecutionPolicy, Outcome, Restrictions, SandboxError, SandboxMode, SandboxPolicy,
    validate_command,
};
use pinfold_providers::{CallOptions, HostFileScan, LocalProvider, Operation, Question, RunOptions};
use pinfold_session::SessionError;
use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often a command runs if only `--within` is given, and at most.
const USUAL_ROUNDS: u32 = 10;
const MOST_ROUNDS: u32 = 100;

/// Learns, and returns the exit status.
pub(crate) fn learn(arguments: &Learn, provider: &LocalProvider, around: &Surroundings) -> u8 {
    let form = Form::of(arguments.json);
    let learnt = Learner::new(arguments, provider, around).and_then(|mut learner| {
        let status = learner.learn(form)?;
        Ok((status, learner))
    });
    match learnt {
        Ok((Some(status), _)) => status,
        Ok((None, learner)) => match learner.answer() {
            Ok(answer) => answer.print(form),
            Err(error) => failed(&error, form),
        },
        Err(error) => failed(&error, form),
    }
}

fn failed(error: &SessionError, form: Form) -> u8 {
    complain_session(error, form);
    session_status(error)
}

/// A command that is run until nothing new is learnt.
struct Learner<'a> {
    arguments: &'a Learn,
    provider: &'a LocalProvider,
    around: &'a Surroundings,
    /// The policy of the next run.
    words: PolicyOptions,
    /// Whether the mode that was asked for opens nothing.
    from_nothing: bool,
    within: Option<PathBuf>,
    rounds: u32,
    timeout: Option<Duration>,
    /// What was proposed so far, whether opened since or not.
    learnt: Vec<(PathBuf, Denial)>,
    last: Option<Last>,
    watch: Watch,
}

/// The last run.
struct Last {
    number: u32,
    outcome: Outcome,
    lesson: Lesson,
    /// Whether it had the policy that is printed.
    whole: bool,
}

impl<'a> Learner<'a> {
    fn new(arguments: &'a Learn, provider: &'a LocalProvider, around: &'a Surroundings) -> Result<Self, SessionError> {
        validate_command(&arguments.argv)?;
        let mode = match &arguments.policy.mode {
            Some(word) => execution_mode(Some(word))?,
            None => SandboxMode::ReadOnly,
        };
        if mode == SandboxMode::DangerFullAccess {
            return Err(invalid(format!("nothing is refused under {mode}, and nothing can be learnt")));
        }
        let within = arguments.within.as_ref().map(|dir| within(Path::new(dir), around)).transpose()?;
        let rounds = rounds(arguments.rounds.as_deref(), within.is_some())?;
        let timeout = arguments.timeout.as_deref().map(crate::request::timeout).transpose()?;
        let given = PolicyOptions { mode: Some(mode.to_string()), ..arguments.policy.clone() };
        // What files say becomes part of what is printed: another workspace has another project's file.
        let configured = Configured::load(&given, SandboxMode::ReadOnly, None, None, around)?;
        let watch = Watch::begin().map_err(|error| invalid(format!("signals cannot be watched: {error}")))?;
        Ok(Self {
            arguments,
            provider,
            around,
            timeout: timeout.or(configured.timeout),
            words: configured.options,
            from_nothing: mode == SandboxMode::ReadOnly,
            within,
            rounds,
            learnt: Vec::new(),
            last: None,
            watch,
        })
    }

    /// Runs the command; an exit status if there is no answer.
    fn learn(&mut self, form: Form) -> Result<Option<u8>, SessionError> {
        for number in 1..=self.rounds {
            let (outcome, lesson) = match self.run()? {
                Ok(run) => run,
                Err(error) => {
                    complain(&error, form);
                    return Ok(Some(exit_status(&error)));
                }
            };
            if let Some(status) = self.watch.exit_status() {
                hurry();
                return Ok(Some(status));
            }
            if !outcome.ran() {
                answer::did_not_run(&outcome, form);
                return Ok(Some(u8::try_from(outcome.exit_status()).unwrap_or(125)));
            }
            if form == Form::Text {
                answer::say_round(number, self.words.mode.as_deref().unwrap_or_default(), &outcome);
            }
            let news: Vec<_> = lesson.learnt.iter().filter(|(dir, _)| !self.is_known(dir)).cloned().collect();
            let may_open = |dir: &Path| self.within.as_ref().is_some_and(|within| dir.starts_with(within));
            let opens: Vec<PathBuf> = news.iter().map(|(dir, _)| dir.clone()).filter(|dir| may_open(dir)).collect();
            self.learnt.extend(news);
            let again = number < self.rounds && !opens.is_empty();
            if again {
                self.words = self.opened(opens);
            }
            let whole = self.proposed() == words::options(&self.words);
            self.last = Some(Last { number, outcome, lesson, whole: whole && !again });
            if !again {
                break;
            }
        }
        Ok(None)
    }

    fn is_known(&self, directory: &Path) -> bool {
        self.learnt.iter().any(|(known, _)| known == directory)
    }

    /// The policy with further directories open.
    fn opened(&self, directories: Vec<PathBuf>) -> PolicyOptions {
        let mut words = self.words.clone();
        let read_only = words.mode.as_deref() == Some(SandboxMode::ReadOnly.as_str());
        let mut open: Vec<PathBuf> = words.writable.iter().map(PathBuf::from).chain(directories).collect();
        if !read_only {
            open.retain(|dir| !self.workspace(&words).is_some_and(|workspace| dir.starts_with(workspace)));
        } else if open.is_empty() {
            return words;
        }
        // What the user has named stays as it was named.
        let mut open = outermost(open);
        if read_only || self.from_nothing {
            open.extend(words.workspace.take().filter(|_| !read_only).map(PathBuf::from));
            open = outermost(open);
            let here = self.around.current.as_deref().unwrap_or(Path::new("/"));
            let first = open.iter().position(|dir| here.starts_with(dir)).unwrap_or(0);
            words.workspace = Some(open.remove(first).into());
            if words.restrictions.protect.is_empty() {
                words.restrictions.protect.push("default".into());
            }
        }
        words.mode = Some(SandboxMode::WorkspaceWrite.to_string());
        words.writable = open.into_iter().map(OsString::from).collect();
        words
    }

    fn workspace(&self, words: &PolicyOptions) -> Option<PathBuf> {
        let named = words.workspace.as_ref().map(|dir| self.around.absolute("--workspace", Path::new(dir)));
        named.map_or(self.around.current.clone().ok(), Result::ok).map(|dir| physical(&dir))
    }

    /// The options that are printed.
    fn proposed(&self) -> Vec<OsString> {
        words::options(&self.proposal())
    }

    fn proposal(&self) -> PolicyOptions {
        let all: Vec<PathBuf> = self.learnt.iter().map(|(dir, _)| dir.clone()).collect();
        if all.is_empty() { self.words.clone() } else { self.opened(all) }
    }

    /// Runs the command once. The inner error is one of the call.
    fn run(&self) -> Result<Result<(Outcome, Lesson), SandboxError>, SessionError> {
        let Checked { configured, policy, call } = self.checked(&self.words)?;
        let denied = call.restrictions.denied_reads.clone();
        // Standard output is for the answer.
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().ok().map(Arc::new);
        let stderr = stderr.ok_or_else(|| invalid("standard error cannot be passed on".to_owned()))?;
        let run = RunOptions {
            timeout: self.timeout,
            given: [None, Some(stderr), None],
            on_spawn: Some(self.watch.on_spawn()),
            ..RunOptions::default()
        };
        let result = self.provider.run(&self.arguments.argv, &policy, &call, &run, &self.watch.cancel);
        self.watch.ended();
        let outcome = match result {
            Ok(result) => result.outcome,
            Err(error) => return Ok(Err(error)),
        };
        let refused = |directory: &Path| self.refused(directory, &call, &configured);
        let teacher = Teacher {
            around: self.around,
            roots: policy.writable_roots().into_iter().map(physical).collect(),
            denied: &denied,
            protects: !self.words.restrictions.protect.iter().any(|word| word == "none"),
            refused: &refused,
        };
        let lesson = teacher.lesson(outcome.denials());
        Ok(Ok((outcome, lesson)))
    }

    fn checked(&self, words: &PolicyOptions) -> Result<Checked, SessionError> {
        let configured = Configured::load(words, SandboxMode::ReadOnly, None, None, self.around)?;
        let request = Request::new(&configured.options, &self.arguments.argv, self.around)?;
        configured.refuse_open(&request.policy)?;
        let (policy, mut call) = request.split();
        call.notes.extend(configured.notes().iter().cloned());
        (call.observe_denials, call.host_files) = (true, HostFileScan::Skip);
        Ok(Checked { configured, policy, call })
    }

    /// Says why a directory would be refused as a root.
    fn refused(&self, directory: &Path, call: &CallOptions, configured: &Configured) -> Option<String> {
        let alone = ExecutionPolicy::new(SandboxMode::WorkspaceWrite, directory);
        if let Err(error) = configured.refuse_open(&alone) {
            return Some(error.to_string());
        }
        let policy = SandboxPolicy::new(ConfinedMode::WorkspaceWrite, directory);
        let question = Question { path: directory.to_owned(), operation: Operation::Create, policy };
        let options = CallOptions { backend: call.backend, ..CallOptions::default() };
        self.provider.explain(&question, &options).err().map(|error| error.to_string())
    }

    fn answer(self) -> Result<Answer, SessionError> {
        let proposal = self.proposal();
        let options = words::options(&proposal);
        let Checked { policy, call, .. } = self.checked(&proposal)?;
        let restrictions: Restrictions = call.restrictions;
        let argv = self.arguments.argv.iter();
        let all = ["pinfold", "run"].map(OsString::from).into_iter().chain(options).chain(["--".into()]);
        let all: Vec<OsString> = all.chain(argv.cloned()).collect();
        let command = words::line(all.iter().map(OsString::as_os_str));
        let Some(last) = self.last else { return Err(invalid("nothing was run".to_owned())) };
        Ok(Answer::new(command, policy, restrictions, self.learnt, last))
    }
}

/// Words that were read and checked.
struct Checked {
    configured: Configured,
    policy: ExecutionPolicy,
    call: CallOptions,
}

/// Reads `--within`.
fn within(path: &Path, around: &Surroundings) -> Result<PathBuf, SessionError> {
    let path = around.absolute("--within", path)?;
    let found = path.canonicalize().ok().filter(|found| found.is_dir());
    let found = found.ok_or_else(|| invalid(format!("--within {} is not a directory", quote(&path))))?;
    match around.unfit(&found).filter(|_| around.home.as_ref() != Some(&found)) {
        Some(why) => Err(invalid(format!("--within {} {why}: nothing in it is opened", quote(&found)))),
        None => Ok(found),
    }
}

fn rounds(text: Option<&str>, within: bool) -> Result<u32, SessionError> {
    let Some(text) = text else { return Ok(if within { USUAL_ROUNDS } else { 1 }) };
    let number = text.parse().ok().filter(|number| (1..=MOST_ROUNDS).contains(number));
    let number =
        number.ok_or_else(|| invalid(format!("--rounds {} is not a number from 1 to {MOST_ROUNDS}", quote(text))))?;
    if number > 1 && !within {
        return Err(invalid(
            "--rounds needs --within DIR: another run learns more only where something is opened".to_owned(),
        ));
    }
    Ok(number)
}

fn invalid(detail: String) -> SessionError {
    SandboxError::InvalidPolicy { detail }.into()
}
