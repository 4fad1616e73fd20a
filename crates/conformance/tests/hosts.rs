//! Hosts of many shapes: Pinfold picks what works there, says what it lost, or refuses. Never unconfined (field cases B052,
//! B053, B077, B096, B103, B106 to B108, B114).
//!
//! Tests are called `HOST/UID/MODE`, and those of nesting `pinfold-in-BACKEND/UID/OUTER-MODE/INNER-MODE`. A host is what
//! stands between the caller and `pinfold`: a shell script that ends in `exec "$@"`. Sizes are `SIZE/UID/BACKEND`.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::judge::Finished;
use pinfold_conformance::promise::{Report, Strength};
use pinfold_conformance::start::{Backend, Mode, find_binary, uids};
use pinfold_conformance::walls::{CONFINED, Walls, expect, expect_equal, outcome, text, written};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// What stands between the caller and `pinfold`, and what can be used there.
#[derive(Clone, Copy)]
struct Host {
    name: &'static str,
    /// As root.
    root: &'static str,
    /// As an ordinary user.
    user: &'static str,
    /// The backends that are usable there: as root, and as an ordinary user.
    usable: [&'static [Backend]; 2],
    /// Whether a file in the workspace can be seen from outside of the host.
    is_seen: bool,
}

const ALL: [&[Backend]; 2] = [&CONFINED; 2];
const LANDLOCK: [&[Backend]; 2] = [&[Backend::Landlock]; 2];
const NAMESPACE: [&[Backend]; 2] = [&[Backend::Namespace]; 2];
const NONE: [&[Backend]; 2] = [&[]; 2];
/// Where an ordinary user has a user namespace, nothing belongs to root any more, so no bubblewrap can be trusted.
const UNTRUSTED: &[Backend] = &[Backend::Namespace, Backend::Landlock];
const ALL_FOR_ROOT: [&[Backend]; 2] = [&CONFINED, UNTRUSTED];

const fn host(name: &'static str, script: &'static str, usable: [&'static [Backend]; 2]) -> Host {
    Host { name, root: script, user: script, usable, is_seen: true }
}

/// A host with mounts of its own. Root keeps its user namespace; an ordinary user needs one.
macro_rules! in_mounts {
    ($name:literal, $mounts:literal, $usable:expr) => {
        Host {
            name: $name,
            root: concat!("exec unshare --mount sh -euc '", $mounts, "; exec \"$@\"' sh \"$@\""),
            user: concat!("exec unshare --map-root-user --mount sh -euc '", $mounts, "; exec \"$@\"' sh \"$@\""),
            usable: $usable,
            is_seen: true,
        }
    };
}

const HOSTS: &[Host] = &[
    host("plain", r#"exec "$@""#, ALL),
    Host {
        name: "first-process",
        root: r#"exec unshare --pid --fork --mount-proc "$@""#,
        user: r#"exec unshare --map-current-user --pid --fork --mount-proc "$@""#,
        usable: ALL_FOR_ROOT,
        is_seen: true,
    },
    // A domain forbids every change of mounts.
    host(
        "landlock-domain",
        r#"exec $BIN/landlock-run --ro / --rw $BASE --rw /dev --rw /proc --rw /tmp -- "$@""#,
        LANDLOCK,
    ),
    // Root's bubblewrap covers parts of /proc.
    host("bubblewrap", r#"exec bwrap --dev-bind / / --proc /proc "$@""#, [LANDLOCK[0], UNTRUSTED]),
    host(
        "bubblewrap-without-nested-namespaces",
        r#"exec bwrap --unshare-user --disable-userns --dev-bind / / --proc /proc "$@""#,
        LANDLOCK,
    ),
    // As container engines do; the kernel then refuses a new /proc to those who may not see all of the old one.
    in_mounts!("masked-proc", "mount -t tmpfs none /proc/fs", LANDLOCK),
    host("no-user-namespaces", r#"exec $BIN/pinfold-mask --userns -- "$@""#, LANDLOCK),
    in_mounts!(
        "container",
        "mount -t tmpfs none /proc/fs; set -- setpriv --bounding-set -sys_admin --inh-caps -sys_admin --no-new-privs -- \
         $BIN/pinfold-mask --userns -- \"$@\"",
        LANDLOCK
    ),
    // A container engine's own filter, without CAP_SYS_ADMIN: no mounts, no namespaces, no keys. Landlock is let through by
    // newer ones; where it is not, nothing is left.
    in_mounts!(
        "container-engine",
        "mount -t tmpfs none /proc/fs; set -- setpriv --bounding-set -sys_admin --inh-caps -sys_admin -- \
         $BIN/pinfold-mask --userns --errno EPERM mount umount2 pivot_root setns open_tree move_mount fsopen fsconfig \
         fsmount mount_setattr keyctl bpf -- \"$@\"",
        LANDLOCK
    ),
    in_mounts!(
        "older-container-engine",
        "mount -t tmpfs none /proc/fs; set -- setpriv --bounding-set -sys_admin --inh-caps -sys_admin -- \
         $BIN/pinfold-mask --userns --errno EPERM mount umount2 pivot_root setns open_tree move_mount fsopen fsconfig \
         fsmount mount_setattr keyctl bpf landlock_create_ruleset landlock_add_rule landlock_restrict_self -- \"$@\"",
        NONE
    ),
    // As AppArmor restricts user namespaces: they can be made, and give no power inside (B103).
    host(
        "user-namespaces-without-power",
        r#"exec $BIN/pinfold-mask --errno EPERM mount umount2 pivot_root open_tree move_mount fsopen fsmount mount_setattr -- "$@""#,
        LANDLOCK,
    ),
    host(
        "no-landlock",
        r#"exec $BIN/pinfold-mask landlock_create_ruleset landlock_add_rule landlock_restrict_self -- "$@""#,
        NAMESPACE,
    ),
    host(
        "landlock-off",
        r#"exec $BIN/pinfold-mask --errno EOPNOTSUPP landlock_create_ruleset landlock_add_rule landlock_restrict_self -- "$@""#,
        NAMESPACE,
    ),
    host(
        "no-new-mount-calls",
        r#"exec $BIN/pinfold-mask mount_setattr open_tree -- "$@""#,
        [&[Backend::Bwrap, Backend::Landlock]; 2],
    ),
    host(
        "neither-landlock-nor-namespaces",
        r#"exec $BIN/pinfold-mask --userns mount_setattr open_tree landlock_create_ruleset -- "$@""#,
        NONE,
    ),
    in_mounts!("read-only-root", "mount --bind $BASE $BASE; mount -o remount,bind,ro /; cd $WS", ALL_FOR_ROOT),
    Host { is_seen: false, ..in_mounts!("workspace-on-tmpfs", "mount -t tmpfs none $WS; cd $WS", ALL_FOR_ROOT) },
    Host {
        is_seen: false,
        ..in_mounts!(
            "workspace-on-overlay",
            "mount -t tmpfs none $BASE/temp; mkdir $BASE/temp/u $BASE/temp/w; mount -t overlay none -o \
             lowerdir=$WS,upperdir=$BASE/temp/u,workdir=$BASE/temp/w $WS; cd $WS",
            ALL_FOR_ROOT
        )
    },
];

type Claim = fn(&Walls, Backend) -> Result<(), String>;

const SIZES: &[(&str, Claim)] = &[
    ("thousand-writable-roots", thousand_roots),
    ("ten-thousand-words", ten_thousand_words),
    ("longest-argument", longest_argument),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for uid in uids() {
        for host in HOSTS {
            for mode in Mode::ALL {
                let name = format!("{}/{uid}/{}", host.name, mode.name());
                trials.push(Trial::test(name, move || Ok::<(), Failed>(check(host, uid, mode)?)));
            }
        }
        for outer in CONFINED {
            for outer_mode in Mode::ALL {
                for inner_mode in ["read-only", "workspace-write", "danger-full-access"] {
                    let name = format!("pinfold-in-{}/{uid}/{}/{inner_mode}", outer.name(), outer_mode.name());
                    let test = move || Ok::<(), Failed>(nest(uid, outer, outer_mode, inner_mode)?);
                    trials.push(Trial::test(name, test));
                }
            }
        }
    }
    for (name, claim) in SIZES {
        for uid in uids() {
            for backend in CONFINED {
                let test = move || Ok::<(), Failed>(claim(&Walls::new(uid)?, backend)?);
                trials.push(Trial::test(format!("{name}/{uid}/{}", backend.name()), test));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Tries to write inside, outside, and to change the mode of a file outside.
const ACT: &str =
    "echo x > $WS/in && echo inside; echo x > $OUT/escaped && echo outside; chmod 604 $OUT/kept && echo mode";

/// A host that is there, with somebody in it.
struct There {
    walls: Walls,
    host: &'static Host,
}

impl There {
    fn new(host: &'static Host, uid: u32) -> Result<There, String> {
        let there = There { walls: Walls::new(uid)?, host };
        let (from, to) = (find_binary("landlock-run", "pinfold-launcher")?, there.walls.fixture.bin());
        let copied = Command::new("install").args(["-m", "755"]).arg(from).arg(to).status();
        expect(copied.is_ok_and(|status| status.success()), "landlock-run could not be copied")?;
        there.reset()?;
        Ok(there)
    }

    /// The world before an act.
    fn reset(&self) -> Result<(), String> {
        let (ws, out) = (self.walls.fixture.ws(), self.walls.fixture.out());
        for file in [ws.join("in"), out.join("escaped")] {
            if file.exists() {
                std::fs::remove_file(&file).map_err(|e| e.to_string())?;
            }
        }
        let kept = out.join("kept");
        let made = std::fs::write(&kept, "x").and_then(|()| {
            std::fs::set_permissions(&kept, PermissionsExt::from_mode(0o640))?;
            std::os::unix::fs::chown(&kept, Some(self.walls.fixture.uid), None)
        });
        made.map_err(|e| e.to_string())
    }

    /// What the act changed: inside, outside, and the mode outside.
    fn changes(&self) -> (bool, bool, bool) {
        let (ws, out) = (self.walls.fixture.ws(), self.walls.fixture.out());
        let mode = std::fs::metadata(out.join("kept")).map_or(0, |m| m.permissions().mode() & 0o777);
        (ws.join("in").exists(), out.join("escaped").exists(), mode != 0o640)
    }

    /// Runs a command in this host.
    fn run(&self, argv: &[String]) -> Result<Finished, String> {
        let fixture = &self.walls.fixture;
        let script = if fixture.uid == 0 { self.host.root } else { self.host.user };
        let words: Vec<String> =
            ["/bin/sh", "-euc", script, "sh"].map(str::to_owned).into_iter().chain(argv.to_vec()).collect();
        let mut command = self.walls.plain(&words);
        command.env("BASE", fixture.base()).env("BIN", fixture.bin()).env("WS", fixture.ws()).env("OUT", fixture.out());
        Walls::finish(&mut command)
    }

    fn pinfold(&self, words: &[&str]) -> Result<Finished, String> {
        let program = text(&self.walls.pinfold());
        self.run(&[&[program.as_str()], words].concat().iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
    }

    /// The act under `pinfold run`.
    fn confined(&self, backend: Option<&str>, mode: Mode) -> Result<Finished, String> {
        self.reset()?;
        let ws = text(&self.walls.fixture.ws());
        let mut words = vec!["run", "--json", "--mode", mode.name(), "--workspace", &ws];
        words.extend(backend.iter().flat_map(|name| ["--backend", name]));
        self.pinfold(&[&words[..], &["--", "/bin/sh", "-c", ACT]].concat())
    }
}

/// One backend, as `pinfold doctor` sees it.
struct Seen {
    name: String,
    is_usable: bool,
}

/// What `pinfold doctor --json` says of this mode: the chosen one and all of them. A backend that cannot be used has a
/// reason, and a remedy where nothing else can be used.
fn doctor(there: &There, mode: Mode) -> Result<(Option<String>, Vec<Seen>), String> {
    let finished = there.pinfold(&["doctor", "--json", "--mode", mode.name()])?;
    let said: Value = serde_json::from_slice(&finished.stdout).map_err(|e| format!("{e}: {finished:?}"))?;
    let found = &said["modes"][0];
    let chosen = found["chosen"].as_str().map(str::to_owned);
    expect_equal(finished.status.code(), Some(i32::from(chosen.is_none())))?;
    let mut all = Vec::new();
    for backend in found["backends"].as_array().ok_or("no backends")? {
        let word = |key: &str| backend[key].as_str().unwrap_or_default().to_owned();
        let is_usable = backend["usable"] == true;
        expect(is_usable || word("reason").len() > 10, format!("no reason: {backend}"))?;
        expect(is_usable || chosen.is_some() || word("remedy").len() > 10, format!("no remedy: {backend}"))?;
        all.push(Seen { name: word("backend"), is_usable });
    }
    Ok((chosen, all))
}

fn check(host: &'static Host, uid: u32, mode: Mode) -> Result<(), String> {
    let there = There::new(host, uid)?;
    let control = there.run(&["/bin/sh".to_owned(), "-c".to_owned(), ACT.to_owned()])?;
    expect_equal(written(&control.stdout).as_str(), "inside\noutside\nmode\n")?;
    expect_equal(there.changes(), (host.is_seen, true, true))?;

    let (chosen, all) = doctor(&there, mode)?;
    let usable: Vec<&str> = all.iter().filter(|b| b.is_usable).map(|b| b.name.as_str()).collect();
    let expected: Vec<String> =
        host.usable[usize::from(uid != 0)].iter().map(|b| format!("linux_{}", b.name())).collect();
    let mut faults = Vec::new();
    if usable != expected {
        faults.push(format!("usable are {usable:?}, expected {expected:?}"));
    }
    // The doctor tells the truth: what it calls usable confines, and what it does not is refused.
    for backend in std::iter::once(None).chain(all.iter().map(Some)) {
        let name = backend.map(|b| b.name.as_str());
        let is_usable = backend.map_or(chosen.is_some(), |b| b.is_usable);
        let finished = there.confined(name, mode)?;
        let held = if is_usable {
            confines(&there, &finished, mode, name.or(chosen.as_deref()))
        } else {
            is_refused(&there, &finished)
        };
        if let Err(fault) = held {
            faults.push(format!("{}: {fault}", name.unwrap_or("by its own choice")));
        }
    }
    expect_equal(there.walls.litter(), Vec::new())?;
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

fn confines(there: &There, finished: &Finished, mode: Mode, backend: Option<&str>) -> Result<(), String> {
    let outcome = outcome(finished)?;
    let report = outcome.report.ok_or("no report")?;
    let writes = mode == Mode::WorkspaceWrite;
    let (inside, outside, changed) = there.changes();
    let stdout = written(&finished.stdout);
    expect(outcome.ran && backend == Some(&report.backend), format!("{} ran by {}", outcome.ran, report.backend))?;
    expect(!outside && !stdout.contains("outside"), "it wrote outside")?;
    expect(inside == (writes && there.host.is_seen), format!("inside: {inside}; {}", written(&finished.stderr)))?;
    expect(stdout.contains("inside") == writes, format!("{stdout} {}", written(&finished.stderr)))?;
    // Without Landlock nothing refuses to write to a FIFO on a read-only mount.
    let fifos_are_open = matches!(there.host.name, "no-landlock" | "landlock-off");
    let content = if fifos_are_open { Strength::Partial } else { Strength::Enforced };
    expect_equal(report.strength("write-content"), Some(content))?;
    let metadata = report.strength("write-metadata");
    // What bubblewrap leaves open of metadata are device nodes and later mounts, not the file that is tried here.
    let is_open = metadata != Some(Strength::Enforced) && report.backend != "linux_bwrap";
    expect(changed == is_open, "of metadata it says otherwise")?;
    names_its_losses(&report)
}

/// Whatever is not enforced has a sentence that says so.
fn names_its_losses(report: &Report) -> Result<(), String> {
    for line in report.guarantees.iter().filter(|l| matches!(l.strength, Strength::Partial | Strength::None)) {
        expect(!line.notes.is_empty(), format!("{} is {:?} without a word", line.guarantee, line.strength))?;
    }
    let is_full = report.enforcement.as_deref() == Some("full");
    expect(
        is_full || !(report.notes.is_empty() && report.guarantees.iter().all(|l| l.notes.is_empty())),
        "no loss is named",
    )
}

fn is_refused(there: &There, finished: &Finished) -> Result<(), String> {
    let stderr = written(&finished.stderr);
    expect_equal(there.changes(), (false, false, false))?;
    expect(
        finished.stdout.is_empty() && finished.status.code() == Some(125),
        format!("{}: {stderr}", finished.status),
    )?;
    expect(stderr.contains("SANDBOX_UNAVAILABLE"), stderr)
}

/// Pinfold in Pinfold: the inner one has a directory of the outer workspace as its own, and a runtime directory beside it.
fn nest(uid: u32, outer: Backend, outer_mode: Mode, inner_mode: &str) -> Result<(), String> {
    let walls = Walls::new(uid)?;
    let (ws, out) = (walls.fixture.ws(), walls.fixture.out());
    let (inner, runtime) = (ws.join("inner"), ws.join("runtime"));
    for (dir, mode) in [(&inner, 0o755), (&runtime, 0o700)] {
        let made = std::fs::create_dir(dir).and_then(|()| {
            std::fs::set_permissions(dir, PermissionsExt::from_mode(mode))?;
            std::os::unix::fs::chown(dir, Some(uid), Some(uid))
        });
        made.map_err(|e| e.to_string())?;
    }
    let act = format!(
        "echo x > {}/in && echo inside; echo x > {}/beside; echo x > {}/escaped; exit 0",
        inner.display(),
        ws.display(),
        out.display()
    );
    let changes = || [inner.join("in"), ws.join("beside"), out.join("escaped")].map(|path| path.exists());
    let control = Walls::finish(&mut walls.plain(&["/bin/sh", "-c", &act]))?;
    expect(control.status.success() && changes() == [true; 3], "the control did not write everywhere")?;
    for file in [inner.join("in"), ws.join("beside"), out.join("escaped")] {
        std::fs::remove_file(file).map_err(|e| e.to_string())?;
    }

    let (pinfold, runtime, inner_dir) = (text(&walls.pinfold()), text(&runtime), text(&inner));
    let set = format!("XDG_RUNTIME_DIR={runtime}");
    let argv = [
        "/usr/bin/env",
        &set,
        &pinfold,
        "run",
        "--json",
        "--mode",
        inner_mode,
        "--workspace",
        &inner_dir,
        "--cwd",
        &inner_dir,
        "--",
        "/bin/sh",
        "-c",
        &act,
    ];
    let finished = Walls::finish(&mut walls.confined(outer, outer_mode, &argv))?;
    let told = format!("{}: {}", finished.status, written(&finished.stderr));
    let [inside, beside, escaped] = changes();
    // The outer limits are kept, whatever the inner one does.
    expect(!escaped, format!("it wrote outside: {told}"))?;
    let outer_writes = outer_mode == Mode::WorkspaceWrite;
    expect(outer_writes || !inside && !beside, format!("it wrote in read-only: {told}"))?;
    let line = written(&finished.stderr);
    let inner_outcome = line.lines().find(|l| l.contains("\"verdict\""));
    let Some(inner_outcome) = inner_outcome else {
        // A refusal is allowed where there is no place for what Pinfold itself has to write.
        let refused = finished.status.code() == Some(125) && line.contains("\"code\":\"SANDBOX_");
        expect(refused && !inside && !beside, &told)?;
        return expect(!outer_writes, format!("nothing works: {told}"));
    };
    let report = pinfold_conformance::promise::Outcome::parse(inner_outcome)?.report.ok_or("no report")?;
    expect(inside == (outer_writes && inner_mode != "read-only"), format!("inside: {inside}: {told}"))?;
    expect(beside == (outer_writes && inner_mode == "danger-full-access"), format!("beside: {beside}: {told}"))?;
    let is_claimed = report.strength("write-content") == Some(Strength::Enforced);
    expect(is_claimed == (inner_mode != "danger-full-access"), &told)?;
    if is_claimed { names_its_losses(&report) } else { Ok(()) }
}

/// As many roots as a monorepo has (field case B095): the call starts in time, and the last root is as good as the first.
fn thousand_roots(walls: &Walls, backend: Backend) -> Result<(), String> {
    let many = walls.fixture.out().join("many");
    let mut words = walls.run_words(Some(backend), Mode::WorkspaceWrite);
    words.pop();
    for number in 0..1000 {
        let root = many.join(number.to_string());
        let made = std::fs::create_dir_all(&root)
            .and_then(|()| std::os::unix::fs::chown(&root, Some(walls.fixture.uid), Some(walls.fixture.uid)));
        made.map_err(|e| e.to_string())?;
        words.extend(["--writable".to_owned(), text(&root)]);
    }
    let act = "echo x > $OUT/many/999/last && echo last; echo x > $OUT/many/0/first && echo first; echo x > $OUT/escaped; exit 0";
    let run = |words: &[String]| Walls::finish(walls.plain(words).env("OUT", walls.fixture.out()));
    let control = run(&["/bin/sh", "-c", act].map(str::to_owned))?;
    let escaped = walls.fixture.out().join("escaped");
    expect(control.stdout == b"last\nfirst\n" && escaped.exists(), "the control did not write everywhere")?;
    std::fs::remove_file(&escaped).map_err(|e| e.to_string())?;
    words.extend(["--", "/bin/sh", "-c", act].map(str::to_owned));
    let begun = Instant::now();
    let finished = run(&words)?;
    let took = begun.elapsed();
    expect(finished.stdout == b"last\nfirst\n" && !escaped.exists(), written(&finished.stderr))?;
    // Milliseconds on a quiet machine, under bubblewrap a second: only what never ends is to be seen here.
    expect(took < Duration::from_secs(120), format!("it took {took:?}"))
}

fn ten_thousand_words(walls: &Walls, backend: Backend) -> Result<(), String> {
    let numbers: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    let mut argv = vec!["/bin/sh", "-c", "echo $# ${9999}", "sh"];
    argv.extend(numbers.iter().map(String::as_str));
    passes(walls, backend, &argv, "10000 9998\n")
}

/// The kernel's limit for one argument is 128 KiB with the byte that ends it.
fn longest_argument(walls: &Walls, backend: Backend) -> Result<(), String> {
    let long = "x".repeat(128 * 1024 - 1);
    passes(walls, backend, &["/bin/sh", "-c", "echo ${#1}", "sh", &long], "131071\n")
}

/// The command prints this with and without walls. Bubblewrap takes 9,000 words; with more it is refused, and nothing
/// that hides less is taken instead: sockets are closed by default.
fn passes(walls: &Walls, backend: Backend, argv: &[&str], expected: &str) -> Result<(), String> {
    let control = Walls::finish(&mut walls.plain(argv))?;
    expect_equal(written(&control.stdout).as_str(), expected)?;
    let finished = Walls::finish(&mut walls.confined(backend, Mode::WorkspaceWrite, argv))?;
    let stderr = written(&finished.stderr);
    if backend == Backend::Bwrap && argv.len() > 9000 {
        let is_refused =
            stderr.contains("error[SANDBOX_PREPARATION_FAILED]") && stderr.contains("bubblewrap takes 9000");
        return expect(is_refused && finished.status.code() == Some(125) && finished.stdout.is_empty(), stderr);
    }
    expect(
        written(&finished.stdout) == expected,
        format!("{}: {} {stderr}", finished.status, written(&finished.stdout)),
    )
}
