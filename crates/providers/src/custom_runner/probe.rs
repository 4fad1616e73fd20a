//! What an operator's runner really does, shown by the canary.

use crate::chain::{Attempt, Refusal, Trial, Usable, blank};
use pinfold_policy::quote::quote;
use std::path::Path;

pub(crate) fn not_configured() -> Refusal {
    Refusal::new("no runner is configured", "")
}

pub(crate) fn probe(trial: &Trial<'_>) -> Result<Usable, Refusal> {
    let Some((runner, _)) = &trial.host.custom else { return Err(not_configured()) };
    // It is not part of the runner, but it is what acts inside.
    trial.host.launcher()?;
    let program = Path::new(&runner.argv[0]);
    if !program.is_absolute() {
        let reason = format!("the runner {} is not an absolute path", quote(program));
        return Err(Refusal::new(reason, "name the runner by its absolute path"));
    }
    let usable = blank(program);
    let ended = match trial.attempt(&usable, trial.canary.by_name())? {
        Attempt::Lost(reason) => return Err(Refusal::new(reason, "")),
        Attempt::Done(ended, _) => ended,
    };
    trial.canary.judge_by_name(trial.request.mode, &ended).map_err(|reason| {
        let reason = format!("the runner {} does not confine: {reason}", quote(program));
        Refusal::new(reason, "correct the runner, or remove it from the configuration")
    })?;
    trial.conclude(usable)
}
