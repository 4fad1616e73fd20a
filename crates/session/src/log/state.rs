//! Replay: what holds after an event, and which events may follow. The same checks stand before an event is written and
//! when it is read.

use super::event::{Asked, Created, Event, Given, Record};
use crate::asker::Asker;
use crate::digest::Digest;
use crate::grant::{GrantId, Life, Scope, problem_of};
use pinfold_policy::SandboxMode;
use pinfold_policy::escalation::{ApprovalPolicy, wider_modes};
use std::collections::BTreeMap;

/// What a log says holds now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    created: Option<Created>,
    mode: Option<SandboxMode>,
    approval: Option<ApprovalPolicy>,
    preset: Option<String>,
    asks: BTreeMap<String, Asked>,
    /// Questions that were answered with yes, and for how long, until the grant is given.
    allowed: BTreeMap<String, (Asked, Life)>,
    grants: BTreeMap<GrantId, Given>,
    calls: BTreeMap<String, u64>,
    told: Option<Digest>,
    ended: bool,
    events: u64,
    latest: u64,
}

impl State {
    /// Returns the first event of the log.
    pub fn created(&self) -> Option<&Created> {
        self.created.as_ref()
    }

    /// Returns the last mode that was set, without any default.
    pub fn mode(&self) -> Option<SandboxMode> {
        self.mode
    }

    /// Returns the last approval policy that was set.
    pub fn approval(&self) -> Option<ApprovalPolicy> {
        self.approval
    }

    /// Returns the preset that was selected last.
    pub fn preset(&self) -> Option<&str> {
        self.preset.as_deref()
    }

    /// Lists the questions that have no answer.
    pub fn open_asks(&self) -> impl Iterator<Item = &Asked> {
        self.asks.values()
    }

    /// Returns an unanswered question.
    pub fn open_ask(&self, id: &str) -> Option<&Asked> {
        self.asks.get(id)
    }

    /// Lists the grants that are neither used up nor revoked; some may be out of date.
    pub fn grants(&self) -> impl Iterator<Item = &Given> {
        self.grants.values()
    }

    /// Lists the directories that are granted for the session, at a moment in milliseconds of Unix time.
    ///
    /// A clock that was set back gives nothing its life back: no moment before the log's last event counts.
    pub fn granted_directories(&self, now: u64) -> impl Iterator<Item = &std::path::Path> {
        self.granted(now).filter_map(|given| match &given.scope {
            Scope::Write { path } => Some(path.as_path()),
            Scope::Mode { .. } | Scope::Effect { .. } => None,
        })
    }

    /// Lists the grants of directories for the session, the same.
    pub fn granted(&self, now: u64) -> impl Iterator<Item = &Given> {
        let now = now.max(self.latest);
        let of_session = |given: &&Given| given.life == Life::Session && matches!(given.scope, Scope::Write { .. });
        self.grants.values().filter(of_session).filter(move |given| given.until.is_none_or(|until| now < until))
    }

    /// Returns how many events there are.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the time of the last event.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Returns the digest of the text that a model was told last.
    pub fn told(&self) -> Option<Digest> {
        self.told
    }

    /// Says whether the session has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Lists the calls that began and have no end; their processes may have been killed.
    pub fn open_calls(&self) -> impl Iterator<Item = &str> {
        self.calls.keys().map(String::as_str)
    }

    /// Finds a grant that a call with this digest may use up.
    ///
    /// # Errors
    ///
    /// Why it may not, as the end of a sentence.
    pub(crate) fn usable(&self, id: &GrantId, digest: Digest, now: u64) -> Result<&Given, &'static str> {
        let given = self.grants.get(id).ok_or("it does not exist, or was used or revoked")?;
        let now = now.max(self.latest);
        if given.life != Life::Call {
            return Err("it holds for the session and is not used up");
        }
        if given.digest != Some(digest) {
            return Err("it is for another call: argv, working directory, mode, policy or reason differ");
        }
        if given.until.is_some_and(|until| now >= until) {
            return Err("its time has passed");
        }
        if given.asker.is_some() && given.asker != Asker::this() {
            return Err("it is for the process that asked");
        }
        Ok(given)
    }

    /// Finds a grant that was given for a call with this digest, that nobody waits for, and that was not used.
    pub(crate) fn waiting_for(&self, digest: Digest, now: u64) -> Option<&Given> {
        let left = |given: &&Given| given.asker.is_none() && self.usable(&given.id, digest, now).is_ok();
        self.grants.values().find(left)
    }

    /// Finds the grant that answers a question and was not used.
    pub(crate) fn grant_of(&self, ask: &str) -> Option<&Given> {
        self.grants.values().find(|given| given.ask.as_deref() == Some(ask))
    }

    /// Takes in the next event.
    ///
    /// # Errors
    ///
    /// How it contradicts what holds; nothing has changed then.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<(), String> {
        self.check(&record.event, record.at)?;
        match &record.event {
            Event::Created(created) => self.created = Some(created.clone()),
            Event::Ended(_) => self.ended = true,
            Event::Mode(set) => self.mode = Some(set.mode),
            Event::Approval(set) => self.approval = Some(set.policy),
            Event::Preset(set) => self.preset = Some(set.preset.clone()),
            Event::Asked(asked) => drop(self.asks.insert(asked.id.clone(), asked.clone())),
            Event::Answered(answered) => {
                if let Some(asked) = self.asks.remove(&answered.id)
                    && let Some(life) = answered.outcome.life()
                {
                    self.allowed.insert(asked.id.clone(), (asked, life));
                }
            }
            Event::Given(given) => {
                if let Some(ask) = &given.ask {
                    self.allowed.remove(ask);
                }
                self.grants.insert(given.id.clone(), given.clone());
            }
            Event::Used(named) | Event::Revoked(named) => drop(self.grants.remove(&named.id)),
            Event::Began(began) => drop(self.calls.insert(began.id.clone(), record.at)),
            Event::Finished(finished) => drop(self.calls.remove(&finished.id)),
            Event::Told(told) => self.told = Some(told.digest),
            Event::Unknown { .. } => {}
        }
        self.events += 1;
        self.latest = self.latest.max(record.at);
        Ok(())
    }

    fn check(&self, event: &Event, at: u64) -> Result<(), String> {
        match (event, &self.created) {
            (Event::Created(_), Some(_)) => return Err("the session was created before".to_owned()),
            (Event::Created(_), None) => return Ok(()),
            (_, None) => return Err("the log does not begin with session/created".to_owned()),
            _ => {}
        }
        if self.ended && !matches!(event, Event::Finished(_) | Event::Answered(_) | Event::Unknown { .. }) {
            return Err("the session has ended".to_owned());
        }
        match event {
            Event::Asked(asked) => self.check_asked(asked),
            Event::Answered(answered) => match self.asks.get(&answered.id) {
                None => Err(format!("{} is no open question", answered.id)),
                Some(asked) if answered.outcome.life().is_some() && at >= asked.until => {
                    Err(format!("the time for an answer to {} has passed", answered.id))
                }
                Some(_) => Ok(()),
            },
            Event::Given(given) => self.check_given(given),
            Event::Used(named) | Event::Revoked(named) if !self.grants.contains_key(&named.id) => {
                Err(format!("{} is no grant in force", named.id))
            }
            Event::Used(named) if self.grants.get(&named.id).is_some_and(|given| given.life != Life::Call) => {
                Err(format!("{} holds for the session and is not used up", named.id))
            }
            Event::Began(began) if self.calls.contains_key(&began.id) => {
                Err(format!("call {} has begun before", began.id))
            }
            Event::Finished(finished) if !self.calls.contains_key(&finished.id) => {
                Err(format!("call {} has not begun", finished.id))
            }
            _ => Ok(()),
        }
    }

    fn check_asked(&self, asked: &Asked) -> Result<(), String> {
        if asked.tool_name.is_empty() {
            return Err("a question must name its tool".to_owned());
        }
        if self.asks.contains_key(&asked.id) || self.allowed.contains_key(&asked.id) {
            return Err(format!("question {} exists already", asked.id));
        }
        if asked.offers.is_empty() {
            return Err("a question must offer something".to_owned());
        }
        asked.offers.iter().try_for_each(|offer| check_scope(&offer.scope, offer.life, asked.mode))
    }

    fn check_given(&self, given: &Given) -> Result<(), String> {
        if self.grants.contains_key(&given.id) {
            return Err(format!("grant {} exists already", given.id));
        }
        if (given.life == Life::Call) != given.digest.is_some() {
            return Err("a grant for one call is bound to its digest, and no other is".to_owned());
        }
        let Some(ask) = &given.ask else {
            // SECURITY: what nobody asked for can be a directory only; another mode is an event of its own.
            return match (&given.scope, given.life) {
                (Scope::Write { .. }, Life::Session) => check_scope(&given.scope, given.life, SandboxMode::ReadOnly),
                _ => Err("only a directory for the session is granted without a question".to_owned()),
            };
        };
        // SECURITY: without this line a log could hold permissions that nobody gave.
        let (asked, life) = self.allowed.get(ask).ok_or_else(|| format!("question {ask} was not answered with yes"))?;
        let offered = asked.offers.iter().any(|offer| offer.scope == given.scope && offer.life == given.life);
        let same = given.life == *life && given.asker == asked.asker.filter(|_| given.life == Life::Call);
        if !offered || !same || given.digest.is_some_and(|digest| digest != asked.digest) {
            return Err(format!("question {ask} did not offer this"));
        }
        Ok(())
    }
}

/// What can be granted at all, beside the mode in force.
fn check_scope(scope: &Scope, life: Life, mode: SandboxMode) -> Result<(), String> {
    match scope {
        Scope::Write { path } => match problem_of(path) {
            Some(problem) => Err(format!("{} {problem}", pinfold_policy::quote::quote(path))),
            None if mode == SandboxMode::DangerFullAccess => Err("everything may be written already".to_owned()),
            None => Ok(()),
        },
        Scope::Mode { .. } if life != Life::Call => Err("a whole mode is granted for one call only".to_owned()),
        Scope::Mode { mode: wanted } if !wider_modes(mode).contains(wanted) => {
            Err(format!("mode {wanted} is not wider than {mode}"))
        }
        Scope::Mode { .. } => Ok(()),
        Scope::Effect { .. } if life != Life::Call => Err("an effect is permitted once".to_owned()),
        Scope::Effect { effect } if effect.operation.is_empty() || !effect.path.starts_with('/') => {
            Err("an effect needs an operation and an absolute path".to_owned())
        }
        Scope::Effect { .. } => Ok(()),
    }
}
