//! The process outside: listens, holds IPC objects and an open file, counts signals, and says what it saw.
//!
//! `pinfold-victim OUT TAG`: see `pinfold_conformance::victim`.

use pinfold_conformance::errno::Errno;
use pinfold_conformance::sys;
use pinfold_conformance::sys::{c, call, open, read, unix_address, write};
use pinfold_conformance::victim::{Facts, Hello};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io::{BufRead as _, Read as _};
use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

static SIGNALS: [AtomicU32; 65] = [const { AtomicU32::new(0) }; 65];

/// What attempts may scribble in from outside: read and written through raw addresses only.
static MEMORY: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];

type Received = Arc<Mutex<Vec<String>>>;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, out, tag] = args.as_slice() else {
        eprintln!("usage: pinfold-victim OUT TAG");
        std::process::exit(2);
    };
    if let Err(error) = serve(out, tag) {
        eprintln!("pinfold-victim: {error}");
        std::process::exit(1);
    }
}

extern "C" fn count(signal: i32) {
    if let Some(counter) = usize::try_from(signal).ok().and_then(|i| SIGNALS.get(i)) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn count_signals() {
    for signal in (1..=64).filter(|s| ![libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, 32, 33].contains(s))
    {
        // SAFETY: the handler only adds to an atomic number, which is allowed in a signal handler.
        unsafe { libc::signal(signal, count as extern "C" fn(i32) as libc::sighandler_t) };
    }
}

fn serve(out: &str, tag: &str) -> Result<(), Errno> {
    count_signals();
    let received: Received = Arc::default();
    let file = open(&c(format!("{out}/victim")), libc::O_RDWR | libc::O_CREAT | libc::O_APPEND)?;
    let tcp = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("127.0.0.1:0"))?;
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    let mut hello = Hello {
        pid: std::process::id() as i32,
        fd: file,
        memory: MEMORY.as_ptr() as u64,
        stream: format!("{out}/victim.stream").into(),
        dgram: format!("{out}/victim.dgram").into(),
        abstract_stream: format!("@{tag}.stream"),
        abstract_dgram: format!("@{tag}.dgram"),
        mq: tag.to_owned(),
        key: tag.to_owned(),
        tcp: tcp.local_addr()?.port(),
        udp: udp.local_addr()?.port(),
        ..Hello::default()
    };
    for name in [c(&hello.stream), c(&hello.abstract_stream)] {
        let socket = bound(&name, libc::SOCK_STREAM)?;
        sys!(libc::SYS_listen, socket, 128)?;
        accept_all(socket, &received);
    }
    for name in [c(&hello.dgram), c(&hello.abstract_dgram)] {
        receive_all(bound(&name, libc::SOCK_DGRAM)?, &received);
    }
    {
        let received = Arc::clone(&received);
        std::thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                // Each on its own thread: a connection that stays open must not hide the next one's message.
                let received = Arc::clone(&received);
                std::thread::spawn(move || {
                    let mut bytes = [0u8; 256];
                    while let Ok(n @ 1..) = stream.read(&mut bytes) {
                        keep(&received, &bytes[..n]);
                    }
                });
            }
        });
    }
    {
        let received = Arc::clone(&received);
        std::thread::spawn(move || {
            let mut bytes = [0u8; 256];
            while let Ok(n) = udp.recv(&mut bytes) {
                keep(&received, &bytes[..n]);
            }
        });
    }
    let objects = Objects::make(&mut hello)?;
    let line = serde_json::to_string(&hello).map_err(|_| Errno(libc::EIO))?;
    println!("{line}");
    for request in std::io::stdin().lock().lines() {
        request?;
        // What a sender wrote before it ended may still be on its way through a listener's thread.
        std::thread::sleep(Duration::from_millis(60));
        let facts = facts(&objects, file, &received)?;
        let line = serde_json::to_string(&facts).map_err(|_| Errno(libc::EIO))?;
        println!("{line}");
    }
    drop(objects);
    // RACE: nobody else makes these names; they are below our own directory.
    let _ = std::fs::remove_file(&hello.stream);
    let _ = std::fs::remove_file(&hello.dgram);
    Ok(())
}

fn keep(received: &Received, bytes: &[u8]) {
    if let Ok(mut received) = received.lock() {
        received.push(String::from_utf8_lossy(bytes).into_owned());
    }
}

fn bound(name: &CStr, kind: i32) -> Result<i32, Errno> {
    let socket = sys!(libc::SYS_socket, libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0)? as i32;
    let (address, length) = unix_address(name);
    sys!(libc::SYS_bind, socket, read(&address), length)?;
    Ok(socket)
}

fn accept_all(socket: i32, received: &Received) {
    let received = Arc::clone(received);
    std::thread::spawn(move || {
        while let Ok(peer) = sys!(libc::SYS_accept4, socket, 0, 0, libc::SOCK_CLOEXEC) {
            receive_all(peer as i32, &received);
        }
    });
}

fn receive_all(socket: i32, received: &Received) {
    let received = Arc::clone(received);
    std::thread::spawn(move || {
        let mut bytes = [0u8; 256];
        while let Ok(n @ 1..) = sys!(libc::SYS_recvfrom, socket, &mut bytes[..], 256usize, 0, 0, 0) {
            keep(&received, &bytes[..n as usize]);
        }
        sys::close(socket);
    });
}

/// IPC objects of the kernel that outlive a process unless they are removed.
struct Objects {
    shm: i32,
    shm_at: *mut u8,
    msg: i32,
    sem: i32,
    mq: i32,
    mq_name: String,
    key: i64,
}

const KEYCTL_UNLINK: i32 = 9;
const KEYCTL_SETPERM: i32 = 5;
const USER_KEYRING: i32 = -4;

impl Objects {
    fn make(hello: &mut Hello) -> Result<Objects, Errno> {
        hello.shm = sys!(libc::SYS_shmget, libc::IPC_PRIVATE, 4096usize, 0o600)? as i32;
        hello.msg = sys!(libc::SYS_msgget, libc::IPC_PRIVATE, 0o600)? as i32;
        hello.sem = sys!(libc::SYS_semget, libc::IPC_PRIVATE, 1, 0o600)? as i32;
        let shm_at = sys!(libc::SYS_shmat, hello.shm, 0, 0)? as usize as *mut u8;
        let name = c(&hello.mq);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_NONBLOCK;
        let mq = sys!(libc::SYS_mq_open, &name, flags, 0o600, 0)? as i32;
        let text = hello.key.as_bytes();
        let key = call(
            libc::SYS_add_key,
            &[c"user".into(), (&name).into(), text.into(), text.len().into(), USER_KEYRING.into()],
        )?;
        // Everything for the possessor and for processes of the same user: a command inside is one of these.
        sys!(libc::SYS_keyctl, KEYCTL_SETPERM, key, 0x3f3f_0000)?;
        Ok(Objects { shm: hello.shm, shm_at, msg: hello.msg, sem: hello.sem, mq, mq_name: hello.mq.clone(), key })
    }

    fn shm_text(&self) -> String {
        // SAFETY: the segment has 4096 bytes and stays attached until the process ends; others may write meanwhile,
        // hence volatile reads of single bytes.
        let bytes = (0..64).map(|i| unsafe { self.shm_at.add(i).read_volatile() });
        String::from_utf8_lossy(&bytes.take_while(|b| *b != 0).collect::<Vec<u8>>()).into_owned()
    }

    /// Takes the messages out of both queues.
    fn messages(&self) -> Vec<String> {
        let mut texts = Vec::new();
        let mut bytes = [0u8; 8 + 8192];
        while let Ok(n) = sys!(libc::SYS_msgrcv, self.msg, &mut bytes[..], 256usize, 0, libc::IPC_NOWAIT) {
            texts.push(String::from_utf8_lossy(&bytes[8..8 + n as usize]).into_owned());
        }
        while let Ok(n) = sys!(libc::SYS_mq_timedreceive, self.mq, &mut bytes[..], 8192usize, 0, 0) {
            texts.push(String::from_utf8_lossy(&bytes[..n as usize]).into_owned());
        }
        texts
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        // The process is about to end; what cannot be removed now, nobody can remove later either.
        let _ = sys!(libc::SYS_shmctl, self.shm, libc::IPC_RMID, 0);
        let _ = sys!(libc::SYS_msgctl, self.msg, libc::IPC_RMID, 0);
        let _ = sys!(libc::SYS_semctl, self.sem, 0, libc::IPC_RMID, 0);
        let _ = sys!(libc::SYS_mq_unlink, &c(&self.mq_name));
        let _ = sys!(libc::SYS_keyctl, KEYCTL_UNLINK, self.key, USER_KEYRING);
    }
}

fn facts(objects: &Objects, file: i32, received: &Received) -> Result<Facts, Errno> {
    for text in objects.messages() {
        keep(received, text.as_bytes());
    }
    let mut signals = BTreeMap::new();
    for (number, counter) in SIGNALS.iter().enumerate() {
        let count = counter.load(Ordering::Relaxed);
        if count != 0 {
            signals.insert(number as i32, count);
        }
    }
    let memory: Vec<u8> = MEMORY.iter().flat_map(|w| w.load(Ordering::Relaxed).to_ne_bytes()).collect();
    let memory: Vec<u8> = memory.into_iter().take_while(|b| *b != 0).collect();
    let mut bytes = vec![0u8; 4096];
    let n = sys!(libc::SYS_pread64, file, bytes.as_mut_slice(), 4096usize, 0)?;
    let mut affinity = [0u64; 16];
    sys!(libc::SYS_sched_getaffinity, 0, 128usize, write(&mut affinity))?;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    sys!(libc::SYS_prlimit64, 0, libc::RLIMIT_MSGQUEUE, 0, write(&mut limit))?;
    Ok(Facts {
        received: received.lock().map(|r| r.clone()).unwrap_or_default(),
        signals,
        shm: objects.shm_text(),
        sem: sys!(libc::SYS_semctl, objects.sem, 0, libc::GETVAL, 0)?,
        memory: String::from_utf8_lossy(&memory).into_owned(),
        file: String::from_utf8_lossy(&bytes[..n as usize]).into_owned(),
        priority: sys!(libc::SYS_getpriority, libc::PRIO_PROCESS, 0)?,
        affinity: affinity[0],
        limit: limit.rlim_cur,
        ioprio: sys!(libc::SYS_ioprio_get, 1, 0)?,
        policy: sys!(libc::SYS_sched_getscheduler, 0)?,
        oom: std::fs::read_to_string("/proc/self/oom_score_adj")?.trim().to_owned(),
    })
}
