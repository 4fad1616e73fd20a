//! What a call may use up, as a mechanism holds it.

use super::*;

/// Where control groups can be made, if the call may need one. The default bound on processes makes none, and nobody would
/// remove one where somebody else starts the command.
pub(super) fn places_for(options: &CallOptions, ours: bool) -> Places {
    let named = options.limits.max_processes.is_some() && options.processes == Insistence::Required;
    let grouped = ours && (named || options.limits.max_memory_bytes.is_some());
    if grouped { Places::look() } else { Places::default() }
}

/// What a mechanism holds of the bounds of a call; an error names what it cannot hold.
pub(super) fn bounded_by(call: &Call<'_>, backend: Backend, writes: bool) -> Result<Bounds, SandboxError> {
    let CallOptions { limits, processes, .. } = call.options;
    let means = Means { kernel: Kernel::look(), places: call.places.clone(), ours: call.ours };
    limits::bounds(limits, *processes, backend, writes, &means)
        .map_err(|detail| SandboxError::UnsupportedPolicy { backend: backend.provider_name().to_owned(), detail })
}
