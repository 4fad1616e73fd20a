//! No confinement. It is used only where a policy says `danger-full-access`, never as a fallback, and its report says
//! that nothing is enforced.

use pinfold_policy::{Guarantee, GuaranteeReport, Strength};

/// Every promise, none kept.
pub(crate) fn state() -> Vec<GuaranteeReport> {
    let line = |guarantee: &Guarantee| GuaranteeReport::new(*guarantee, Strength::None, &[], false);
    Guarantee::ALL.iter().map(line).collect()
}
