//! What of this host bubblewrap cannot keep from its command.

use crate::run::Ended;
use crate::status::Status;
use pinfold_policy::{Guarantee, GuaranteeReport, Strength};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The host's nodes that `--dev` binds.
const NODES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// States that their owner can change the device nodes that bubblewrap binds, if we are their owner. (That everybody can set
/// the times of some is in the plan's statement.)
///
/// QUIRK: they are mounts of the host's nodes and writable as such. `--remount-ro` on one of them also forbids to open it
/// (it adds `nodev`), and bubblewrap has no `--ro-dev-bind`. Root is the owner everywhere but in a container; of a
/// terminal, which becomes `/dev/console`, everybody who sits at it.
pub(crate) fn own_devices(terminal: bool) -> Option<GuaranteeReport> {
    let user = rustix::process::geteuid().as_raw();
    let owned = |path: &&str| user == 0 || std::fs::metadata(path).is_ok_and(|metadata| metadata.uid() == user);
    let note = if NODES.iter().any(owned) {
        "Modes, owners and times of the host's device nodes in /dev that belong to this user can be changed."
    } else if terminal {
        "Mode and times of a terminal that is passed on as a standard stream can be changed."
    } else {
        return None;
    };
    Some(GuaranteeReport::new(Guarantee::WriteMetadata, Strength::Partial, &[], false).with_note(note))
}

/// How many words marks are: ours, and that of the launcher's guard.
pub(crate) const MARK_WORDS: usize = 2 * 2;

/// A word of bubblewrap's that means nothing but tells the processes of one call from all others: a variable that does not
/// exist is unset.
#[derive(Debug)]
pub(crate) struct Mark(OsString);

impl Mark {
    pub(crate) fn new() -> Self {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self(format!("PINFOLD_CALL_{}_{number}_{time}", std::process::id()).into())
    }

    /// Puts it behind bubblewrap's name, which the launcher's words (`--outside`) stand before.
    pub(crate) fn put(&self, argv: &mut Vec<OsString>) {
        // The launcher stands before bubblewrap, and once more before itself where there are control groups to enter.
        let mut program = 0;
        while argv.get(program + 1).is_some_and(|word| word == "--outside") {
            let Some(dashes) = argv[program..].iter().position(|word| word == "--") else { break };
            program += dashes + 1;
        }
        argv.splice(program + 1..program + 1, ["--unsetenv".into(), self.0.clone()]);
    }

    /// Looks after a call. Whoever was told of the end knows that everything has ended.
    pub(crate) fn end_left_behind_by(&self, ended: &Ended) {
        if !Status::parse(&ended.status).is_final() {
            self.end_left_behind();
        }
    }

    /// Ends what bubblewrap left behind when it was itself ended while it began.
    ///
    /// QUIRK: bubblewrap asks to be told of its parent's death (`--die-with-parent`) some time after it has become two
    /// processes. If the first is killed in between, the second goes on, and the command runs with nobody who waits for it.
    /// The second one is the init of everything inside, so that killing it ends everything.
    fn end_left_behind(&self) {
        // What is found ends at once; nothing makes new ones, so that one more look finds nothing.
        for _ in 0..8 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for (process, number) in left {
                // RACE: the number may have become another's before it was opened; what is open stays the same.
                if self.marks(number) && pidfd_send_signal(&process, Signal::KILL).is_ok() {
                    let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
                    // It is readable when the process has ended, and an init ends after all others.
                    let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout));
                }
            }
        }
    }

    fn processes(&self) -> Vec<(OwnedFd, Pid)> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
        let ours = numbers.filter(|number| self.marks(*number));
        ours.filter_map(|number| Some((pidfd_open(number, PidfdFlags::empty()).ok()?, number))).collect()
    }

    fn marks(&self, process: Pid) -> bool {
        let words = std::fs::read(format!("/proc/{}/cmdline", process.as_raw_nonzero())).unwrap_or_default();
        // Behind the program, before or after the mark of the launcher's guard. A command that put it there would end itself.
        words.split(|byte| *byte == 0).take(6).any(|word| word == self.0.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_process_is_found_and_ended_and_no_other() {
        let start = |mark: &Mark| {
            // The same place: behind the program and one word. It reads a script that never comes.
            let mut command = std::process::Command::new("sh");
            command.args(["-s", mark.0.to_str().unwrap()]).stdin(std::process::Stdio::piped());
            let child = command.spawn().unwrap();
            // Its words are there a moment after it has executed.
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            while !mark.marks(pid) {
                std::thread::yield_now();
            }
            child
        };
        let (ours, other) = (Mark::new(), Mark::new());
        let (mut one, mut two) = (start(&ours), start(&other));
        ours.end_left_behind();
        assert!(!one.wait().unwrap().success());
        assert!(two.try_wait().unwrap().is_none());
        two.kill().unwrap();
        two.wait().unwrap();
        let mut argv = ["pinfold-run", "--outside", "--", "bwrap", "--", "c"].map(OsString::from).to_vec();
        ours.put(&mut argv);
        assert_eq!(argv[3..6], [OsString::from("bwrap"), "--unsetenv".into(), ours.0]);
        assert_eq!(argv.len(), 8);
    }

    #[test]
    fn device_nodes_of_our_own_and_a_terminal_are_reported() {
        let stated = |terminal| own_devices(terminal).map(|line| (line.guarantee, line.strength));
        let partial = Some((Guarantee::WriteMetadata, Strength::Partial));
        assert_eq!(stated(true), partial);
        assert_eq!(stated(false), partial.filter(|_| rustix::process::geteuid().is_root()));
    }
}
