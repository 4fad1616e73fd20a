//! Sleeping processes that can be found from outside, whatever their process id or parent are.

use crate::sys;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A number of seconds to sleep that no other process on this host sleeps: finds the sleeper from outside.
pub struct Sleeper(String);

impl Sleeper {
    /// A number that was never given before.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "two are never equal")]
    pub fn new() -> Sleeper {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        Sleeper(format!("7{:07}{number:04}", std::process::id()))
    }

    /// The argument of `sleep`.
    #[must_use]
    pub fn seconds(&self) -> &str {
        &self.0
    }

    /// The processes that execute `sleep` with this number.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        let expected = format!("sleep\0{}\0", self.0);
        pids.filter(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == expected.as_bytes()))
            .collect()
    }

    /// Waits until their number is as wanted; false if it does not become so.
    #[must_use]
    pub fn wait_until(&self, condition: impl Fn(usize) -> bool, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if condition(self.processes().len()) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        for pid in self.processes() {
            // RACE: it may end meanwhile; its number is not given to another process so soon.
            let _ = sys!(libc::SYS_kill, pid, libc::SIGKILL);
        }
    }
}
