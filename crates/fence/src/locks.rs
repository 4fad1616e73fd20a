//! Changes of one file come one after the other, in the order in which they were asked for. Only within this process:
//! others are not kept out, and a version is what tells them apart.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Who is served and who waits, per key.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    queues: Mutex<HashMap<Arc<Path>, Queue>>,
    moved: Condvar,
    ended: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    served: u64,
    next: u64,
}

/// A turn, until dropped.
pub(crate) struct Turn<'a> {
    locks: &'a Locks,
    key: Arc<Path>,
}

impl Locks {
    /// How many turns have ended: where it has not changed, nothing of ours has.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Waits for the turn of this call.
    pub(crate) fn wait(&self, key: &Path) -> Turn<'_> {
        let key: Arc<Path> = key.into();
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(Arc::clone(&key)).or_default();
        let ticket = queue.next;
        queue.next += 1;
        if queue.served != ticket {
            while queues.get(&key).is_some_and(|queue| queue.served != ticket) {
                queues = self.moved.wait(queues).unwrap_or_else(PoisonError::into_inner);
            }
        }
        drop(queues);
        Turn { locks: self, key }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queues = self.locks.queues.lock().unwrap_or_else(PoisonError::into_inner);
        self.locks.ended.fetch_add(1, Ordering::Release);
        let mut empty = false;
        if let Some(queue) = queues.get_mut(&self.key) {
            queue.served += 1;
            empty = queue.served == queue.next;
        }
        if empty {
            queues.remove(&self.key);
        }
        drop(queues);
        // Nobody waits for a key that is gone.
        if !empty {
            self.locks.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U462: first come, first served.
    #[test]
    fn turns_come_in_the_order_of_asking() {
        let locks = Locks::default();
        let served = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let first = locks.wait(Path::new("/a"));
            for number in 0..8 {
                let (locks, served) = (&locks, &served);
                scope.spawn(move || {
                    let _turn = locks.wait(Path::new("/a"));
                    served.lock().unwrap().push(number);
                });
                // The next one asks only once this one stands in the queue.
                while locks.queues.lock().unwrap()[Path::new("/a")].next != number + 2 {
                    std::thread::yield_now();
                }
            }
            drop(locks.wait(Path::new("/b")));
            drop(first);
        });
        assert_eq!(*served.lock().unwrap(), (0..8).collect::<Vec<u64>>());
        assert!(locks.queues.lock().unwrap().is_empty());
    }
}
