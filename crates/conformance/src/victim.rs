//! The process outside: what it offers to be attacked, what it saw, and the handle by which the judge asks it.
//!
//! The process itself is `src/bin/victim.rs`: it writes one [`Hello`] line, then one [`Facts`] line for each line it
//! reads, and cleans up when its input ends.

use crate::errno::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Where the process outside can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its process id, in the namespace outside.
    pub pid: i32,
    /// A descriptor of its own, open for reading and appending, of the file `victim` in the directory outside.
    pub fd: i32,
    /// The address of 64 writable bytes.
    pub memory: u64,
    /// A pathname stream socket.
    pub stream: PathBuf,
    /// A pathname datagram socket.
    pub dgram: PathBuf,
    /// An abstract stream socket; the name begins with `@`.
    pub abstract_stream: String,
    /// An abstract datagram socket; the name begins with `@`.
    pub abstract_dgram: String,
    /// A System V shared memory segment of 4096 bytes.
    pub shm: i32,
    /// A System V message queue.
    pub msg: i32,
    /// A System V semaphore.
    pub sem: i32,
    /// A POSIX message queue, without the leading slash.
    pub mq: String,
    /// The description of a key in the user keyring, whose payload is the same text.
    pub key: String,
    /// A TCP listener on all loopback addresses.
    pub tcp: u16,
    /// A UDP listener on 127.0.0.1.
    pub udp: u16,
}

/// What the process outside knows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Every message that came by a socket or a queue.
    pub received: Vec<String>,
    /// How often each signal came.
    pub signals: BTreeMap<i32, u32>,
    /// The text in the shared memory segment.
    pub shm: String,
    /// The semaphore's value.
    pub sem: i64,
    /// The text in its own memory.
    pub memory: String,
    /// The text in its open file.
    pub file: String,
    /// Its nice value as the kernel gives it (20 minus nice).
    pub priority: i64,
    /// Its first 64 processors.
    pub affinity: u64,
    /// Its soft limit for POSIX message queues.
    pub limit: u64,
    /// Its I/O priority.
    pub ioprio: i64,
    /// Its scheduling policy.
    pub policy: i64,
    /// Its `oom_score_adj`.
    pub oom: String,
}

/// Signals that attempts send, each its own, so that the judge knows whose it was.
pub const SIGNALS: [(i32, &str); 3] =
    [(libc::SIGUSR1, "proc-kill-signal"), (libc::SIGUSR2, "proc-pidfd-signal"), (40, "proc-setown")];

impl Facts {
    /// What happened since `before`: attempt and evidence. A message names its attempt in its text.
    #[must_use]
    pub fn effects(&self, before: &Facts) -> Vec<(String, String)> {
        let mut effects = Vec::new();
        let mut effect = |id: &str, evidence: String| effects.push((id.to_owned(), evidence));
        for text in &self.received[before.received.len().min(self.received.len())..] {
            effect(text.trim_end_matches('\0'), "the process outside received a message".to_owned());
        }
        for (signal, id) in SIGNALS {
            let count = |f: &Facts| f.signals.get(&signal).copied().unwrap_or(0);
            if count(self) != count(before) {
                effect(id, format!("the process outside received signal {signal}"));
            }
        }
        for text in [&self.memory, &self.file] {
            for line in text.lines().filter(|l| !l.is_empty()) {
                effect(line, "its text is in the memory or the open file of the process outside".to_owned());
            }
        }
        let mut changed = |id: &str, what: &str, same: bool| {
            if !same {
                effect(id, format!("{what} of the process outside changed"));
            }
        };
        changed("ipc-shm-write", "the shared memory", self.shm == before.shm);
        changed("ipc-semop", "the semaphore", self.sem == before.sem);
        changed("proc-setpriority", "the nice value", self.priority == before.priority);
        changed("proc-setaffinity", "the processor set", self.affinity == before.affinity);
        changed("proc-prlimit", "a limit", self.limit == before.limit);
        changed("proc-ioprio", "the I/O priority", self.ioprio == before.ioprio);
        changed("proc-sched-policy", "the scheduling policy", self.policy == before.policy);
        changed("proc-oom-score", "oom_score_adj", self.oom == before.oom);
        effects
    }
}

/// A running process outside; it ends, and removes what it made, when this is dropped.
pub struct Victim {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Where it can be reached.
    pub hello: Hello,
}

impl Victim {
    /// Starts the program as this uid, in `out`. `tag` makes its names its own.
    ///
    /// # Errors
    ///
    /// That of starting it; EBADMSG if it does not say hello.
    pub fn start(program: &Path, out: &Path, tag: &str, uid: u32, own_uid: u32) -> Result<Victim, Errno> {
        let mut command = Command::new(program);
        command.arg(out).arg(tag).current_dir(out).stdin(Stdio::piped()).stdout(Stdio::piped());
        if uid != own_uid {
            command.uid(uid).gid(uid);
        }
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().ok_or(Errno(libc::EPIPE))?);
        let hello = read_line(&mut output)?;
        Ok(Victim { child, input, output, hello })
    }

    /// Asks what it saw so far.
    ///
    /// # Errors
    ///
    /// EPIPE or EBADMSG if it is gone.
    pub fn facts(&mut self) -> Result<Facts, Errno> {
        self.input.as_mut().ok_or(Errno(libc::EPIPE))?.write_all(b"facts\n")?;
        read_line(&mut self.output)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.input.take());
        // It is our child and its input has ended; a failure to wait leaves nothing to do.
        let _ = self.child.wait();
    }
}

fn read_line<T: DeserializeOwned>(from: &mut BufReader<ChildStdout>) -> Result<T, Errno> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|_| Errno(libc::EBADMSG))
}
