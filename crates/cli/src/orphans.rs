//! Processes that a sandbox program leaves to whoever adopts orphans. Bubblewrap leaves one per call; an agent that runs as
//! PID 1 of a container, or as a subreaper, would collect them as zombies.

use std::time::{Duration, Instant};

/// How long is waited for orphans that are about to end.
const PATIENCE: Duration = Duration::from_millis(200);

/// Makes this process the one that adopts them.
pub(crate) fn adopt() {
    // A kernel before 3.4 does not know this; then orphans go where they always went.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Takes the status of those that have ended.
pub(crate) fn reap() {
    let begun = Instant::now();
    loop {
        match rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
            // One of them was taken; there may be more.
            Ok(Some(_)) => {}
            Ok(None) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            // None is left, or they take their time: they go to the next in line.
            Ok(None) | Err(_) => return,
        }
    }
}
