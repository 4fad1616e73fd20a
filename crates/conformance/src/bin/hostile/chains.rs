//! Chains of forks: as long as a chain is, its last process makes one more when the first has ended. Whoever ends one process
//! after the other never comes to an end.

use pinfold_conformance::sys;
use pinfold_conformance::sys::fork;
use std::time::{Duration, Instant};

/// How often the last one looks for the first.
const LOOK: Duration = Duration::from_micros(20);

/// Starts chains and leaves them behind. They end by themselves after so many seconds.
pub(crate) fn leave(chains: u32, depth: usize, seconds: u64) -> Result<(), String> {
    let until = Instant::now() + Duration::from_secs(seconds);
    for _ in 0..chains {
        let begin = || {
            for stream in 0..3 {
                let _ = sys!(libc::SYS_close, stream);
            }
            // In a group of their own, out of reach of a signal to the command's.
            let _ = sys!(libc::SYS_setpgid, 0, 0);
            go_on(&mut Vec::new(), depth, until)
        };
        fork(begin).map_err(|errno| format!("fork: {errno:?}"))?;
    }
    // Time to become as long as they are to be.
    std::thread::sleep(Duration::from_millis(300));
    Ok(())
}

/// The last process of a chain, until there is another; `line` are those before it.
fn go_on(line: &mut Vec<i32>, depth: usize, until: Instant) -> i32 {
    line.push(sys!(libc::SYS_getpid).map_or(0, |pid| pid as i32));
    let first = line.len().checked_sub(depth + 1).map(|place| line[place]);
    let mut follows = false;
    while !follows && Instant::now() < until {
        if first.is_some_and(|first| sys!(libc::SYS_kill, first, 0).is_ok()) {
            std::thread::sleep(LOOK);
        } else {
            follows = fork(|| go_on(line, depth, until)).is_ok();
        }
    }
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    0
}
