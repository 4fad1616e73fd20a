//! An operator's own runner that speaks bubblewrap's dialect. Nothing is believed of it but what the canary shows.

pub(crate) mod plan;
pub(crate) mod probe;
