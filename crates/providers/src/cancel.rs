//! Withdrawing a call, from any thread, at any time.

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Withdraws calls: cheap to clone, every clone is the same switch, and it is never switched back.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    cancelled: bool,
    waiting: Vec<Weak<OwnedFd>>,
    /// Switches that are thrown along.
    followers: Vec<Weak<Inner>>,
}

impl Cancel {
    /// Makes a switch that is not thrown.
    pub fn new() -> Self {
        Self::default()
    }

    /// Withdraws every call that was given this switch.
    pub fn cancel(&self) {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.cancelled = true;
        for fd in state.waiting.drain(..).filter_map(|fd| fd.upgrade()) {
            // The counter can only be full if it was written before, and then the waiter is awake already.
            let _ = rustix::io::write(&fd, &1_u64.to_ne_bytes());
        }
        let followers = std::mem::take(&mut state.followers);
        drop(state);
        self.0.changed.notify_all();
        followers.into_iter().filter_map(|follower| follower.upgrade()).for_each(|follower| Self(follower).cancel());
    }

    /// Makes a switch that is thrown along with this one, and can be thrown without it.
    pub fn follower(&self) -> Self {
        let follower = Self::new();
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.cancelled {
            drop(state);
            follower.cancel();
        } else {
            state.followers.retain(|other| other.strong_count() > 0);
            state.followers.push(Arc::downgrade(&follower.0));
        }
        follower
    }

    /// Says whether the switch is thrown.
    pub fn is_cancelled(&self) -> bool {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).cancelled
    }

    /// Waits until the switch is thrown, at most as long as given; returns whether it is.
    pub fn wait(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.cancelled {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return false;
            };
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Returns a descriptor that becomes readable when the switch is thrown, for poll(2).
    ///
    /// # Errors
    ///
    /// The host's, when no descriptor can be made.
    pub fn descriptor(&self) -> std::io::Result<Arc<OwnedFd>> {
        let fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.retain(|other| other.strong_count() > 0);
        state.waiting.push(Arc::downgrade(&fd));
        if state.cancelled {
            rustix::io::write(&fd, &1_u64.to_ne_bytes())?;
        }
        Ok(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_is_the_same_switch() {
        let cancel = Cancel::new();
        let other = cancel.clone();
        assert!(!cancel.wait(Duration::ZERO));
        other.cancel();
        assert!(cancel.is_cancelled() && cancel.wait(Duration::from_secs(60)));
    }

    #[test]
    fn a_follower_is_thrown_along_and_not_the_other_way() {
        let cancel = Cancel::new();
        let (one, two) = (cancel.follower(), cancel.follower());
        one.cancel();
        assert!(one.is_cancelled() && !two.is_cancelled() && !cancel.is_cancelled());
        cancel.cancel();
        assert!(two.is_cancelled() && cancel.follower().is_cancelled());
    }

    #[test]
    fn a_descriptor_is_readable_once_the_switch_is_thrown() {
        let cancel = Cancel::new();
        let before = cancel.descriptor().unwrap();
        let mut buffer = [0; 8];
        assert!(rustix::io::read(&before, &mut buffer).is_err());
        cancel.cancel();
        let after = cancel.descriptor().unwrap();
        assert_eq!(rustix::io::read(&before, &mut buffer), Ok(8));
        assert_eq!(rustix::io::read(&after, &mut buffer), Ok(8));
    }
}
