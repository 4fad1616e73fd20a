//! Changes of one file come one after the other, in the order in which they were asked for. Only within this process:
//! others are not kept out, and a version is what tells them apart.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};

/// Who is served and who waits, per key.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    queues: Mutex<HashMap<PathBuf, Queue>>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    served: u64,
    next: u64,
}

/// A turn, until dropped.
pub(crate) struct Turn<'a> {
    locks: &'a Locks,
    key: PathBuf,
}

impl Locks {
    /// Waits for the turn of this call.
    pub(crate) fn wait(&self, key: &Path) -> Turn<'_> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues.entry(key.to_owned()).or_default();
        let ticket = queue.next;
        queue.next += 1;
        while queues.get(key).is_some_and(|queue| queue.served != ticket) {
            queues = self.moved.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
        Turn { locks: self, key: key.to_owned() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queues = self.locks.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let mut empty = false;
        if let Some(queue) = queues.get_mut(&self.key) {
            queue.served += 1;
            empty = queue.served == queue.next;
        }
        if empty {
            queues.remove(&self.key);
        }
        drop(queues);
        self.locks.moved.notify_all();
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
