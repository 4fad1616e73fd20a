//! What a call closes beyond its mode, and whether a mechanism can.

use super::*;
use crate::protected;

impl LocalProvider {
    /// Resolves denied reads, and refuses those without which no command could run.
    pub(super) fn denied(&self, options: &CallOptions, roots: &Roots, ours: bool) -> Result<Denied, SandboxError> {
        if !options.restrictions.denies_reads() {
            return Ok(Denied::default());
        }
        let cwd = options.cwd.clone().or_else(|| std::env::current_dir().ok().filter(|_| ours));
        let cwd = cwd.map(|cwd| closed::physical(&cwd));
        let mut needed = vec![("the workspace", roots.workspace.path.as_path())];
        needed.extend(cwd.as_deref().map(|cwd| ("the working directory", cwd)));
        needed.extend(roots.writable.iter().map(|root| ("a writable root", root.path.as_path())));
        if !roots.writable.is_empty() {
            let temps = self.host.shared_temps.iter();
            needed.extend(temps.map(|temp| ("a temp directory, which is private inside", temp.as_path())));
        }
        let writable: Vec<&Path> = roots.writable.iter().map(|root| root.path.as_path()).collect();
        closed::resolve(&options.restrictions, &needed, &writable, options.reads)
    }
}

/// Refuses a working directory that a private temp directory hides.
pub(super) fn visible_place(call: &Call<'_>, request: &Request) -> Result<(), SandboxError> {
    let place = request.cwd.clone().or_else(|| std::env::current_dir().ok().filter(|_| call.ours));
    let Some(place) = place.map(|place| closed::physical(&place)).filter(|place| request.hides(place)) else {
        return Ok(());
    };
    let detail = format!(
        "the working directory {} lies in a temp directory, in place of which the command has an empty one of its own; \
         make it a writable root, or choose another",
        quote(&place)
    );
    Err(SandboxError::InvalidPolicy { detail })
}

/// What a mechanism closes of what a call wants closed; an error names what it cannot close.
pub(super) fn closed_by(
    call: &Call<'_>,
    backend: Backend,
    request: &Request,
    broker: impl FnOnce() -> Result<(), String>,
) -> Result<Closed, SandboxError> {
    let restrictions = &call.options.restrictions;
    let refusal =
        |detail: String| SandboxError::UnsupportedPolicy { backend: backend.provider_name().to_owned(), detail };
    let unsupported = |detail: &str| Err(refusal(detail.to_owned()));
    let has_mounts = matches!(backend, Backend::Namespace | Backend::Bwrap);
    match restrictions.network {
        Network::Private if !has_mounts => return unsupported("it cannot give a network of its own"),
        Network::Off if !has_mounts && backend != Backend::Landlock => {
            return unsupported("it cannot close the network");
        }
        _ => {}
    }
    let mut closed = Closed { network: restrictions.network, ..Closed::default() };
    if restrictions.denies_reads() {
        if has_mounts {
            closed.denied = call.denied.clone();
        } else if call.options.reads == Insistence::Required {
            return unsupported("it cannot close paths for reading");
        }
    }
    if restrictions.sockets == Sockets::Closed {
        if has_mounts {
            let cwd = request.cwd.clone().or_else(|| std::env::current_dir().ok());
            let mut inside = vec![call.roots.workspace.path.clone()];
            inside.extend(cwd.map(|cwd| closed::physical(&cwd)));
            closed.sockets = Some(sockets::walls(request, &inside, &restrictions.allowed_sockets));
        } else if backend == Backend::Landlock && request.writes() && !restrictions.protect.is_empty() {
            closed.sockets = Some(sockets::allowed_alone(&restrictions.allowed_sockets));
        } else if call.options.sockets == Insistence::Required {
            return unsupported(if backend == Backend::Landlock {
                "it closes sockets by path only where it protects names (workspace-write with --protect)"
            } else {
                "it cannot close sockets by path"
            });
        }
    }
    let has_broker = matches!(backend, Backend::Namespace | Backend::Landlock);
    if request.observed && !has_broker {
        return unsupported("it cannot tell of each refusal");
    }
    let protects = !restrictions.protect.is_empty();
    if protects && request.writes() && !has_broker {
        return unsupported("it cannot protect names inside a writable root");
    }
    if request.observed || (protects && request.writes()) {
        broker().map_err(refusal)?;
    }
    if protects {
        closed.protected = Some(protected::find(&restrictions.protect, &call.roots.writable)?);
    }
    if !call.ours && restrictions.variables == Variables::Scrub {
        if backend == Backend::Custom {
            return unsupported("it removes no variables");
        }
        closed.unset = environment::patterns(restrictions).map_err(refusal)?;
    }
    Ok(closed)
}

/// More paths than this are not hidden one by one: each is a mount, and a descriptor while it is made.
const MOST_WALLS: usize = 1000;

/// Refuses a call that hides too much.
///
/// SECURITY: names that others make decide how much there is to hide. What would be too much for a mechanism must not lead
/// to the next one, which hides nothing.
pub(super) fn not_too_many(backend: Backend, request: &Request) -> Result<(), SandboxError> {
    let hidden = request.walls().len() + request.hollows().len() + request.keeps().len();
    if hidden <= MOST_WALLS {
        return Ok(());
    }
    let detail = format!(
        "{hidden} paths would have to be hidden or kept one by one, and {MOST_WALLS} can be; deny directories instead of \
         what is in them, or see which sockets there are (ss -xl)"
    );
    Err(SandboxError::PreparationFailed { backend: backend.provider_name().to_owned(), detail })
}

/// Whether a mechanism that hides nothing may take the place of one that failed although it works on this host.
///
/// SECURITY: a wish closes what can be closed here. What made the other one fail (descriptors, say) may be the doing of an
/// earlier command.
pub(super) fn may_follow(call: &Call<'_>, failed: Backend, next: Backend) -> bool {
    let hides = |backend| matches!(backend, Backend::Namespace | Backend::Bwrap);
    let closes = !call.denied.is_empty() || call.options.restrictions.sockets == Sockets::Closed;
    !closes || !hides(failed) || hides(next)
}
