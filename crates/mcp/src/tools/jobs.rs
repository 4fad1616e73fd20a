//! Commands in the background: each has a name, what it wrote can be read piece by piece, and its end is in the log.

use crate::core::{Core, locked};
use crate::tools::Hold;
use crate::tools::arguments::Arguments;
use crate::tools::hint::Hint;
use crate::tools::reply::{Refusal, Reply, done};
use pinfold_executor::render::render_read;
use pinfold_executor::{Process, ProcessRead, ProcessStatus};
use pinfold_policy::escalation::Subject;
use pinfold_policy::quote::quote;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many jobs that are over are remembered.
const MOST_OVER: usize = 64;
/// How long the end of a killed job is waited for.
const KILL_WAIT: Duration = Duration::from_secs(10);
/// How long one look may wait, in milliseconds.
const LONGEST_WAIT_MS: f64 = 60_000.0;
/// How often a waiting look sees whether it was withdrawn.
const LOOK: Duration = Duration::from_millis(50);

/// The background jobs of a session.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    table: Mutex<Table>,
    settled: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    jobs: BTreeMap<u64, Job>,
}

#[derive(Debug)]
struct Job {
    process: Process,
    command: String,
    /// Whether its end is still to be written down.
    open: bool,
}

fn id_of(number: u64) -> String {
    format!("job-{number}")
}

impl Jobs {
    /// Takes a command that runs; its end is written down when it comes.
    pub(crate) fn adopt(&self, core: &Arc<Core>, process: Process, call: String, command: &str) -> String {
        let number = {
            let mut table = locked(&self.table);
            table.next += 1;
            let number = table.next;
            table.jobs.insert(number, Job { process: process.clone(), command: command.to_owned(), open: true });
            let over: Vec<_> = table.jobs.iter().filter(|(_, job)| !job.open).map(|(number, _)| *number).collect();
            for number in over.iter().take(over.len().saturating_sub(MOST_OVER)) {
                table.jobs.remove(number);
            }
            number
        };
        let (core, thread) = (Arc::clone(core), std::thread::Builder::new().name(id_of(number)));
        let waiting = thread.spawn(move || {
            let finished = process.done();
            match &finished.error {
                Some(error) => core.end_call(&call, Err(error)),
                None => core.end_call(&call, Ok(&finished.outcome)),
            }
            core.jobs.close(number);
            let how = process.detail().unwrap_or_default();
            core.connections().iter().for_each(|it| it.say_later(&format!("{} is over: {how}", id_of(number))));
        });
        if waiting.is_err() {
            // Nobody can wait for it, so its end will not be in the log.
            self.close(number);
        }
        id_of(number)
    }

    fn close(&self, number: u64) {
        if let Some(job) = locked(&self.table).jobs.get_mut(&number) {
            job.open = false;
        }
        self.settled.notify_all();
    }

    /// Waits until the ends of all jobs that are over are written down.
    pub(crate) fn settled(&self) {
        let until = Instant::now() + KILL_WAIT;
        let mut table = locked(&self.table);
        while table.jobs.values().any(|job| job.open && job.process.finished().is_some()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            table = self.settled.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn find(&self, id: &str) -> Result<Process, Refusal> {
        let table = locked(&self.table);
        if let Some((_, job)) = table.jobs.iter().find(|(number, _)| id_of(**number) == id) {
            return Ok(job.process.clone());
        }
        let known = table.jobs.iter().map(|(number, job)| {
            let command: String = job.command.chars().take(60).collect();
            format!("{} ({}): {}", id_of(*number), if job.open { "running" } else { "over" }, quote(command))
        });
        let known: Vec<_> = known.collect();
        let known = if known.is_empty() { "there is none".to_owned() } else { known.join("; ") };
        Err(Refusal::arguments(format!("unknown job {}: {known}", quote(id))))
    }
}

/// Reads what is new of a job.
pub(crate) fn output(core: &Core, mut arguments: Arguments, hint: Hint, hold: &Hold) -> Result<Reply, Refusal> {
    let id = arguments.required_text("job_id")?;
    let wait = arguments.positive("wait_ms")?.map_or(0.0, |wait| wait.min(LONGEST_WAIT_MS));
    arguments.finish()?;
    let process = core.jobs.find(&id)?;
    let until = Instant::now() + Duration::from_secs_f64(wait / 1000.0);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if process.done_within(left.min(LOOK)).is_some() || left.is_zero() {
            break;
        }
        if hold.cancel.is_cancelled() {
            return Err(Refusal::aborted());
        }
    }
    Ok(answer(&id, &process, hint))
}

/// Ends a job.
pub(crate) fn kill(core: &Core, mut arguments: Arguments, hint: Hint) -> Result<Reply, Refusal> {
    let id = arguments.required_text("job_id")?;
    arguments.finish()?;
    let process = core.jobs.find(&id)?;
    process.kill();
    let _ = process.done_within(KILL_WAIT); // the status says how it stands
    Ok(answer(&id, &process, hint))
}

fn answer(id: &str, process: &Process, hint: Hint) -> Reply {
    let read = process.read_output();
    let mut text = render_read(&read, hint.subject(Subject::Command));
    if let Some(sandbox) = &read.settled {
        text = hint.behind_denial(text, sandbox.denied && !sandbox.runner_failed, sandbox.mode);
    }
    if text.is_empty() {
        text.push_str("(no new output)");
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    // What was read is of before the status; one that says "over" follows a read of the whole.
    let (word, detail) = match (&read.settled, process.status()) {
        (None, _) | (_, ProcessStatus::Running) => ("running", None),
        (_, ProcessStatus::Completed { .. }) => ("completed", process.detail()),
        (_, ProcessStatus::Killed { .. }) => ("killed", process.detail()),
        // Its note says why.
        (_, ProcessStatus::Failed { .. }) => ("failed", None),
    };
    text.push_str(&match detail {
        Some(detail) => format!("[{id} {word}: {detail}]"),
        None => format!("[{id} {word}]"),
    });
    let ProcessRead { stdout, stderr, lossy, spill_paths, settled, .. } = &read;
    let mut structured = json!({
        "kind": "job",
        "jobId": id,
        "status": process.status(),
        "stdout": stdout,
        "stderr": stderr,
        "lossy": lossy,
        "spillPaths": spill_paths,
    });
    if let Some(sandbox) = settled {
        structured["sandbox"] = json!(sandbox);
        structured["outcome"] = json!(process.finished().map(|finished| finished.outcome.clone()));
    }
    done(text, structured)
}
