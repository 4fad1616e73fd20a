//! `pinfold confine`: print the argv that another program starts.

use crate::arguments::Confine;
use crate::configuration::Configured;
use crate::request::Request;
use crate::surroundings::Surroundings;
use crate::voice::{Form, print_or_complain, say};
use pinfold_policy::{Guarantee, Layer, SandboxError, SandboxMode, Sockets};
use pinfold_providers::{Backend, CallOptions, Cancel, Insistence, LocalProvider};
use pinfold_session::SessionError;
use std::path::Path;

/// Prints the object and returns the exit status.
pub(crate) fn confine(arguments: &Confine, provider: &LocalProvider, around: &Surroundings) -> u8 {
    print_or_complain(object(arguments, provider, around), Form::of(arguments.json))
}

fn object(arguments: &Confine, provider: &LocalProvider, around: &Surroundings) -> Result<String, SessionError> {
    let configured = Configured::load(&arguments.policy, SandboxMode::WorkspaceWrite, None, None, around)?;
    let request = Request::new(&configured.options, &arguments.argv, around)?;
    configured.refuse_open(&request.policy)?;
    // SECURITY: the object promises confinement; the caller's own argv in it would be run in good faith.
    let (policy, call) = request.split();
    let policy = policy.confined().ok_or_else(|| SandboxError::InvalidPolicy {
        detail: format!("{} confines nothing, so there is nothing to print: start the command itself", policy.mode),
    })?;
    let status_file = arguments.status_file.as_ref();
    let call = CallOptions {
        unsupervised: arguments.unsupervised,
        status_file: status_file.map(|file| around.absolute("--status-file", Path::new(file))).transpose()?,
        ..call
    };
    let confinement = provider.confine(&arguments.argv, &policy, &call, &Cancel::new())?;
    let line = serde_json::to_string(&confinement.confined).map_err(|error| SandboxError::InvalidPolicy {
        detail: format!("the confined argv cannot be printed as JSON: {error}; `pinfold run` takes any bytes"),
    })?;
    // The report is not printed, and this is something that nobody asked for.
    let mut lines = confinement.report.guarantees().iter();
    let by_broker = lines.any(|line| line.guarantee == Guarantee::SocketsUnix && line.layers.contains(&Layer::Broker));
    let open = call.restrictions.sockets == Sockets::Closed && confinement.backend == Backend::Landlock && !by_broker;
    if open && call.sockets == Insistence::WherePossible {
        say(
            "note: backend linux_landlock closes unix sockets only beside --protect, so they are open; to insist: --sockets closed",
        );
    }
    if call.restrictions.denies_reads()
        && confinement.backend == Backend::Landlock
        && call.reads == Insistence::WherePossible
    {
        say("note: backend linux_landlock cannot close secrets, so they can be read; to insist: --deny-secrets");
    }
    confinement.keep();
    Ok(line + "\n")
}
