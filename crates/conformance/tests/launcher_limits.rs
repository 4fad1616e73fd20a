//! `pinfold-run --limit`: what the command may use up. Each bound has its control without it. (W58, B069.)

use pinfold_conformance::start::uids;
use pinfold_conformance::world::{LANDLOCK, NAMESPACE, WALLS, World, assert_prints, assert_refused, ended, identity};

/// Starts processes that wait, `argv[1]` at most, and prints how many there were and why no more; then ends them.
const FORKS: &str = "
import errno, os, signal, sys
children, why = [], 'none'
for _ in range(int(sys.argv[1])):
    try:
        child = os.fork()
    except OSError as error:
        why = errno.errorcode[error.errno]
        break
    if child == 0:
        signal.pause()
    children.append(child)
print(len(children), why, flush=True)
for child in children:
    os.kill(child, signal.SIGKILL)
";

/// Whether this kernel has process numbers of a namespace's own.
fn has_own_numbers() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut parts = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (6, 14)
}

fn host_numbers() -> String {
    std::fs::read_to_string("/proc/sys/kernel/pid_max").expect("the host's")
}

#[test]
fn numbers_of_a_namespace_bound_the_processes_of_everybody_and_leave_the_host_alone() {
    let before = host_numbers();
    for uid in uids() {
        let world = World::new(uid);
        let forks = |plan: &[&str]| ended(&mut world.confined(plan, &["python3", "-c", FORKS, "150"]));
        assert_prints("150 none\n", &forks(NAMESPACE));
        let bounded = forks(&[NAMESPACE, &["--limit", "pids", "50"]].concat());
        if !has_own_numbers() {
            assert_refused("limit", &bounded);
            continue;
        }
        // The command itself is the fiftieth.
        assert_prints("49 EAGAIN\n", &bounded);
        // Numbers are used again, and there are never more.
        let again = format!("{FORKS}\nfor child in children: os.waitpid(child, 0)\n");
        let twice = format!("for _ in (1, 2):\n{}", again.replace('\n', "\n    "));
        let plan = [NAMESPACE, &["--limit", "pids", "50"]].concat();
        assert_prints("49 EAGAIN\n49 EAGAIN\n", &ended(&mut world.confined(&plan, &["python3", "-c", &twice, "150"])));
        // Nothing inside raises it.
        let raise = "echo 4000 > /proc/sys/kernel/pid_max && echo RAISED; mount -o remount,rw /proc && echo REMOUNTED; echo end";
        assert_prints("end\n", &strip(ended(&mut world.confined(&plan, &["sh", "-c", raise]))));
    }
    assert_eq!(host_numbers(), before);
}

fn strip((code, stdout, _): (Option<i32>, String, String)) -> (Option<i32>, String, String) {
    (code, stdout, String::new())
}

#[test]
fn a_limit_on_processes_counts_those_of_the_namespace_and_does_not_bind_root() {
    for uid in uids() {
        let world = World::new(uid);
        let plan = [NAMESPACE, &["--limit", "processes", "50"]].concat();
        let (code, stdout, stderr) = ended(&mut world.confined(&plan, &["python3", "-c", FORKS, "150"]));
        // PID 1 and the command are two of them.
        let expected = if uid == 0 { "150 none\n" } else { "48 EAGAIN\n" };
        assert_eq!((code, stdout.as_str()), (Some(0), expected), "{stderr}");
    }
}

#[test]
fn a_bound_of_one_process_is_set_soft_and_hard_and_never_raised() {
    const SHOW: &str = "ulimit -St; ulimit -Ht; ulimit -Sd; ulimit -Hd; ulimit -Sf; ulimit -Hf; ulimit -Sn; ulimit -Hn";
    for uid in uids() {
        let world = World::new(uid);
        for wall in WALLS {
            let limits = [
                ["--limit", "cpu", "7"],
                ["--limit", "data", "1073741824"],
                ["--limit", "file", "1048576"],
                ["--limit", "open-files", "64"],
            ];
            let plan = [wall, &limits.concat()].concat();
            let shown = ended(&mut world.confined(&plan, &["bash", "-c", SHOW]));
            assert_prints("7\n8\n1048576\n1048576\n1024\n1024\n64\n64\n", &shown);
            let high = [wall, &["--limit", "open-files", "4000000", "--limit", "open-files", "4000001"]].concat();
            let mut command = world.confined(&high, &["bash", "-c", "ulimit -Sn; ulimit -Hn"]);
            let (_, as_before, _) = ended(&mut world.plain(&["bash", "-c", "ulimit -Sn; ulimit -Hn"]));
            assert_prints(&as_before, &ended(&mut command));
            // The lowest counts, in whatever order.
            let two = [wall, &["--limit", "open-files", "32", "--limit", "open-files", "50"]].concat();
            assert_prints("32\n", &ended(&mut world.confined(&two, &["bash", "-c", "ulimit -Hn"])));
        }
    }
}

#[test]
fn bounds_end_what_goes_beyond_them() {
    for uid in uids() {
        let world = World::new(uid);
        let (ws, id) = (world.path("ws"), identity(world.path("ws")));
        for wall in WALLS {
            let writable = [wall, &["--write", &id, &ws]].concat();
            let status = |limit: &[&str], script: &str| {
                let run = world.confined(&[&writable, limit].concat(), &["bash", "-c", script]).status();
                std::os::unix::process::ExitStatusExt::signal(&run.expect("it runs"))
            };
            let spin = "end=$((SECONDS + 20)); while [ $SECONDS -lt $end ]; do [ -n \"$STOP\" ] && exit; done";
            let supervised = if wall == LANDLOCK { &["--supervise"][..] } else { &[] };
            assert_eq!(status(&[supervised, &["--limit", "cpu", "1"]].concat(), spin), Some(24), "SIGXCPU");
            let write = "exec head -c 200000 /dev/zero > big";
            assert_eq!(status(&[], write), None);
            assert_eq!(status(&["--limit", "file", "100000"], write), Some(25), "SIGXFSZ");
            assert_eq!(std::fs::metadata(world.path("ws/big")).expect("written").len(), 100_000);
            let allocate = "exec python3 -c 'b = bytearray(300 << 20)' 2>/dev/null";
            let code = |limit: &[&str]| {
                world
                    .confined(&[&writable, limit].concat(), &["bash", "-c", allocate])
                    .status()
                    .expect("it runs")
                    .code()
            };
            assert_eq!(code(&[]), Some(0));
            assert_eq!(code(&["--limit", "data", "209715200"]), Some(1), "MemoryError");
        }
    }
}

#[test]
fn private_directories_have_a_size() {
    for uid in uids() {
        let world = World::new(uid);
        let plan = [NAMESPACE, &["--private", "/tmp", "--shm"]].concat();
        let fill = "for place in /tmp /dev/shm; do head -c 3000000 /dev/zero 2>/dev/null > $place/x; stat -c %s $place/x; done";
        let run = |limit: &[&str]| strip(ended(&mut world.confined(&[&plan, limit].concat(), &["sh", "-c", fill])));
        assert_prints("3000000\n3000000\n", &run(&[]));
        assert_prints("1048576\n1048576\n", &run(&["--limit", "temp", "1048576"]));
    }
}

#[test]
fn a_bound_that_makes_no_sense_is_refused() {
    let world = World::own();
    for (wall, words) in [
        (NAMESPACE, &["--limit"][..]),
        (NAMESPACE, &["--limit", "cpu"]),
        (NAMESPACE, &["--limit", "cpu", "0"]),
        (NAMESPACE, &["--limit", "cpu", "-1"]),
        (NAMESPACE, &["--limit", "cpu", "1s"]),
        (NAMESPACE, &["--limit", "cpu", "4611686018427387905"]),
        (NAMESPACE, &["--limit", "nproc", "5"]),
        (LANDLOCK, &["--limit", "temp", "5"]),
        (LANDLOCK, &["--limit", "pids", "5"]),
    ] {
        assert_refused("usage", &ended(&mut world.confined(&[wall, words].concat(), &["true"])));
    }
    if has_own_numbers() {
        let plan = [NAMESPACE, &["--limit", "pids", "4611686018427387904"]].concat();
        assert_refused("limit", &ended(&mut world.confined(&plan, &["true"])));
    }
}

/// F22: an empty file takes none of the size, but memory of the kernel.
#[test]
fn a_bounded_temp_area_holds_a_bounded_number_of_empty_files() {
    let fill = "
import errno, os
os.makedirs('/tmp/many', exist_ok=True)
made = 0
try:
    while made < 5000:
        os.close(os.open(f'/tmp/many/{made}', os.O_CREAT | os.O_WRONLY)); made += 1
except OSError as e: print(errno.errorcode[e.errno], 1000 < made < 2000)
else: print('all')";
    for uid in uids() {
        let world = World::new(uid);
        let run = |more: &[&str]| {
            let plan = [NAMESPACE, &["--private", "/tmp"], more].concat();
            ended(&mut world.confined(&plan, &["python3", "-c", fill]))
        };
        assert_prints("all\n", &run(&[]));
        assert_prints("ENOSPC True\n", &run(&["--limit", "temp", "1048576"]));
    }
}

/// Prints the limit on cores, tries to change it by every call there is, and ends by a signal that makes a core.
const CRASHES: &str = "
import os, resource, signal, sys
core, most = resource.RLIMIT_CORE, resource.RLIM_INFINITY
said = [resource.getrlimit(core)]
for limit in ((0, 0), (0, 1), (most, most)):
    try: resource.setrlimit(core, limit)
    except ValueError: said.append('refused')
    said.append(resource.getrlimit(core))
for other in (0, os.getpid()):
    try: resource.prlimit(other, core, (0, 0))
    except PermissionError: said.append('EPERM')
said.append(resource.prlimit(0, core))
print(*said, flush=True)
child = os.fork()
if child == 0:
    os.chdir(sys.argv[1])
    os.kill(os.getpid(), signal.SIGQUIT)
print(os.WCOREDUMP(os.waitpid(child, 0)[1]), len(os.listdir(sys.argv[1])))";

/// Whether root has CAP_SYS_RESOURCE here, which containers take away.
fn raises_limits() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("our own");
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("a set");
    u64::from_str_radix(held.trim(), 16).expect("hexadecimal") & (1 << 24) != 0
}

/// What a crash starts outside, where `core_pattern` names a program, is tried on the old kernel (checks/60-crashes); this
/// host's pattern stays as it is.
#[test]
fn nobody_inside_makes_cores_whatever_limit_is_set() {
    let pattern = std::fs::read("/proc/sys/kernel/core_pattern").expect("a pattern");
    for uid in uids() {
        let world = World::new(uid);
        let cores = world.path("ws/cores");
        std::fs::create_dir(&cores).expect("a directory");
        std::os::unix::fs::chown(&cores, Some(uid), Some(uid)).expect("it is the user's");
        let (id, argv) = (identity(&cores), ["/usr/bin/python3", "-c", CRASHES, &cores]);
        for wall in WALLS {
            let plan = [wall, &["--write", &id, &cores]].concat();
            let one = "(1, 1)";
            let expected = format!("{one} {one} {one} {one} EPERM EPERM {one}\nFalse 0\n");
            assert_prints(&expected, &ended(&mut world.confined(&plan, &argv)));
            // A hard limit of 0 can only be raised by whoever has power over it outside.
            let launcher = world.path("bin/pinfold-run");
            let words =
                [&["/bin/bash", "-c", "ulimit -Hc 0; exec \"$@\"", "sh", &launcher, "--spec", "1"], wall].concat();
            let show = ["--", "/usr/bin/python3", "-c", "import resource; print(*resource.getrlimit(4))"];
            let expected = if uid == 0 && raises_limits() { "1 1\n" } else { "0 0\n" };
            assert_prints(expected, &ended(&mut world.plain(&[&words, &show[..]].concat())));
        }
        // Without walls the limit is what is set, and a core is made.
        let crash = "import os, resource, signal, sys
resource.setrlimit(4, (resource.getrlimit(4)[1],) * 2)
os.chdir(sys.argv[1])
os.kill(os.getpid(), signal.SIGQUIT)";
        let plain = world.plain(&["/usr/bin/python3", "-c", crash, &cores]).status().expect("it runs");
        let made = std::fs::read_dir(&cores).expect("it is there").count();
        if pattern.first().is_some_and(|first| !b"|@/".contains(first)) {
            assert!(std::os::unix::process::ExitStatusExt::core_dumped(&plain) && made == 1, "{plain} {made}");
        }
    }
}
