//! Who answers a question. An approver that does not know passes it on; one that fails has given no answer.

use crate::config::{AllowRule, Decided, RuleScope};
use crate::grant::{Life, Scope};
use crate::log::event::Asked;
use crate::session::Verdict;
use pinfold_policy::SessionId;
use pinfold_providers::Cancel;
use std::ffi::OsString;
use std::time::Instant;

/// What an approver is asked.
#[derive(Debug)]
pub struct Question<'a> {
    /// The session.
    pub session: &'a SessionId,
    /// The question, as it stands in the log.
    pub asked: &'a Asked,
    /// Until when an answer counts.
    pub deadline: Instant,
    /// Thrown when no answer counts any more.
    pub cancel: &'a Cancel,
}

/// Answers questions.
///
/// Implementations must return soon after the deadline or the cancellation; an answer that comes later is dropped.
pub trait Approver: Send + Sync {
    /// Answers, or passes the question on.
    fn answer(&self, question: &Question<'_>) -> Option<Verdict>;
}

/// Any function is an approver.
impl<F: Fn(&Question<'_>) -> Option<Verdict> + Send + Sync> Approver for F {
    fn answer(&self, question: &Question<'_>) -> Option<Verdict> {
        self(question)
    }
}

/// Answers from the rules of a configuration: the first offer that a rule allows, the narrowest first.
///
/// The rules are asked with the command itself, not with its text in the log.
pub(crate) fn by_rule(rules: &[Decided<AllowRule>], argv: &[OsString], asked: &Asked) -> Verdict {
    let fitting = || rules.iter().map(|rule| &rule.value).filter(|rule| rule.fits(argv));
    let allowed = asked.offers.iter().position(|offer| {
        offer.life == Life::Call
            && fitting().any(|rule| match (&rule.scope, &offer.scope) {
                (RuleScope::Mode(allowed), Scope::Mode { mode }) => allowed == mode,
                (RuleScope::Write(allowed), Scope::Write { path }) => path.starts_with(allowed),
                // What may write the whole workspace is not what may write a directory elsewhere.
                _ => false,
            })
    });
    allowed.map_or(Verdict::Rejected, Verdict::Allowed)
}
