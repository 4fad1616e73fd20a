//! The tools: a shell with its background jobs, and files.

pub(crate) mod arguments;
pub(crate) mod bash;
pub(crate) mod files;
pub(crate) mod hint;
pub(crate) mod jobs;
pub(crate) mod reply;
pub(crate) mod schema;
pub(crate) mod search;

use crate::ask::Asker;
use crate::core::Core;
use arguments::Arguments;
use pinfold_executor::Process;
use pinfold_fence::Abort;
use pinfold_providers::Cancel;
use reply::{Refusal, Reply};
use rmcp::model::ContentBlock;
use std::sync::{Arc, Mutex};

/// Names a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Bash,
    JobOutput,
    JobKill,
    Read,
    Write,
    Edit,
    List,
    Search,
}

impl Name {
    pub(crate) const ALL: [Self; 8] =
        [Self::Bash, Self::JobOutput, Self::JobKill, Self::Read, Self::Write, Self::Edit, Self::List, Self::Search];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::JobOutput => "job_output",
            Self::JobKill => "job_kill",
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::List => "list",
            Self::Search => "search",
        }
    }

    pub(crate) fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }
}

/// How one call is withdrawn and watched.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) cancel: Cancel,
    pub(crate) abort: Abort,
    /// The command that runs, if one does.
    pub(crate) process: Arc<Mutex<Option<Process>>>,
}

impl Hold {
    pub(crate) fn withdraw(&self) {
        self.cancel.cancel();
        self.abort.abort();
    }
}

/// Makes one call. It blocks.
pub(crate) fn call(
    core: &Arc<Core>,
    name: Name,
    arguments: Arguments,
    asker: &Asker,
    hold: &Hold,
) -> Result<Reply, Refusal> {
    if hold.cancel.is_cancelled() {
        return Err(Refusal::aborted());
    }
    arguments.refuse_unknown(schema::keys(name))?;
    let standing = core.standing()?;
    let text = core.text_of(&standing.resolved)?;
    let reply = match name {
        Name::Bash => bash::bash(core, standing, arguments, asker, hold),
        Name::JobOutput => jobs::output(core, arguments, core.hint(asker)?, hold),
        Name::JobKill => jobs::kill(core, arguments, core.hint(asker)?),
        Name::Read => files::read(core, &standing, arguments),
        Name::Write => files::write(core, standing, arguments, asker, hold),
        Name::Edit => files::edit(core, standing, arguments, asker, hold),
        Name::List => files::list(core, &standing, arguments),
        Name::Search => search::search(core, &standing, arguments, hold),
    };
    let (mut result, refused) = match reply {
        Ok(Reply::Ask(asked)) => return Ok(Reply::Ask(asked)),
        Ok(Reply::Done(result)) => (result, false),
        Err(refusal) => (Box::new(refusal.into_result()), true),
    };
    // What changed since the model was told is said once, behind the result and apart from it.
    if !refused && let Some(news) = core.announce(text) {
        result.content.push(ContentBlock::text(format!("[policy changed]\n{news}")));
    }
    Ok(Reply::Done(result))
}
