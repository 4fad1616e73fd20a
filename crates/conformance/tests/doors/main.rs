//! Every door from the command to whoever called Pinfold, and to what Pinfold itself lives by: each closed, or open as the
//! report says (weaknesses W07, W09, W11, W16; field cases B028, B044, B045, B048).
//!
//! Tests are called `BACKEND/MODE/UID/DOOR`. One run tries all doors; `attack.py` does so from inside, `caller.py` stands for
//! the caller and says what reached it. Without walls every door must be open, and what has an effect must be felt.
//! `BACKEND/UID/CLAIM`: roots that would contain what Pinfold lives by are refused.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::start::{Backend, Mode, uids};
use pinfold_conformance::walls::{CONFINED, Walls, expect, expect_equal, text, written};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A door, and what knocking comes to under `linux_namespace`, `linux_bwrap` and `linux_landlock` in read-only and in
/// workspace-write. `A|B`: one of these.
type Door = (&'static str, [&'static str; 4]);

const NOT_THERE: [&str; 4] = ["ENOENT", "ENOENT", "EACCES", "EACCES"];
const NOBODY: [&str; 4] = ["ESRCH", "ESRCH", "EPERM", "EPERM"];
const READ_ONLY: [&str; 4] = ["EROFS", "EROFS", "EACCES", "EACCES"];

const DOORS: &[Door] = &[
    // The caller's process.
    ("memory-read", NOT_THERE),
    ("memory-write", NOT_THERE),
    ("environment", NOT_THERE),
    ("maps", NOT_THERE),
    ("program", NOT_THERE),
    ("descriptor", NOT_THERE),
    ("descriptor-link", NOT_THERE),
    ("root", NOT_THERE),
    ("working-directory", NOT_THERE),
    ("signal", NOBODY),
    ("process-descriptor", NOBODY),
    ("descriptor-theft", NOBODY),
    ("trace", NOBODY),
    // What it shares. Landlock alone governs no sockets by path: sockets-unix says so.
    ("socket", ["EACCES", "ECONNREFUSED", "open", "open"]),
    ("abstract-socket", ["EPERM"; 4]),
    ("shared-memory", ["EINVAL", "EINVAL", "EPERM", "EPERM"]),
    ("posix-shared-memory", NOT_THERE),
    ("inherited", ["EBADF"; 4]),
    // Pinfold's files. A program that runs is busy before it is refused.
    ("configuration", READ_ONLY),
    ("report-file", READ_ONLY),
    ("report-file-replace", READ_ONLY),
    ("verdict-write", READ_ONLY),
    ("runtime-create", READ_ONLY),
    ("runtime-rename", READ_ONLY),
    // Metadata: under Landlock alone the owner's, in workspace-write; write-metadata and control-plane say so.
    ("runtime-mode", ["EROFS", "EROFS|EPERM", "EPERM", "open"]),
    ("launcher-write", ["EROFS|ETXTBSY", "EROFS|ETXTBSY", "EACCES|ETXTBSY", "EACCES|ETXTBSY"]),
    ("launcher-replace", READ_ONLY),
    ("launcher-remove", READ_ONLY),
];

/// Doors whose opening the caller must feel, or its silence about a closed one proves nothing.
const FELT: [&str; 10] = [
    "signal",
    "socket",
    "abstract-socket",
    "shared-memory",
    "memory-write",
    "descriptor",
    "inherited",
    "root",
    "working-directory",
    "posix-shared-memory",
];

type Claim = (&'static str, fn(Backend, u32) -> Result<(), String>);

const CLAIMS: &[Claim] = &[
    ("what-controls-the-sandbox-is-no-root", what_controls_is_no_root),
    ("the-system-is-no-root", the_system_is_no_root),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for backend in Backend::ALL {
        for mode in Mode::ALL {
            // Nothing tells the modes apart where nothing is confined.
            if backend == Backend::Unconfined && mode == Mode::ReadOnly {
                continue;
            }
            for uid in uids() {
                let shared = Arc::new(OnceLock::new());
                for (door, outcomes) in DOORS {
                    let shared: Arc<OnceLock<Result<Knocked, String>>> = Arc::clone(&shared);
                    let test = move || {
                        let knocked =
                            shared.get_or_init(|| knock(backend, mode, uid)).as_ref().map_err(String::clone)?;
                        Ok::<(), Failed>(judge(door, expected(outcomes, backend, mode), knocked)?)
                    };
                    trials.push(Trial::test(format!("{}/{}/{uid}/{door}", backend.name(), mode.name()), test));
                }
            }
        }
    }
    for (name, claim) in CLAIMS {
        for backend in CONFINED {
            for uid in uids() {
                let test = move || Ok::<(), Failed>(claim(backend, uid)?);
                trials.push(Trial::test(format!("{}/{uid}/{name}", backend.name()), test));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn expected(outcomes: &[&'static str; 4], backend: Backend, mode: Mode) -> &'static str {
    match (backend, mode) {
        (Backend::Unconfined, _) => "open",
        (Backend::Namespace, _) => outcomes[0],
        (Backend::Bwrap, _) => outcomes[1],
        (Backend::Landlock, Mode::ReadOnly) => outcomes[2],
        (Backend::Landlock, Mode::WorkspaceWrite) => outcomes[3],
    }
}

/// What a run came to: what each door answered, and what the caller felt.
struct Knocked {
    answers: BTreeMap<String, String>,
    reached: Vec<String>,
    told: String,
}

fn knock(backend: Backend, mode: Mode, uid: u32) -> Result<Knocked, String> {
    let walls = Walls::new(uid)?;
    let (out, home, bin) = (walls.fixture.out(), walls.home(), walls.fixture.bin());
    // So that the control may do to Pinfold's programs what the owner may.
    for path in [bin.clone(), bin.join("pinfold"), bin.join("pinfold-run")] {
        give(&path, uid)?;
    }
    let configuration = home.join(".config/pinfold");
    std::fs::create_dir_all(&configuration).map_err(|e| e.to_string())?;
    for path in [home.join(".config"), configuration] {
        give(&path, uid)?;
    }
    for name in ["prepared-report", "prepared-launcher"] {
        std::fs::write(out.join(name), "prepared").map_err(|e| e.to_string())?;
        give(&out.join(name), uid)?;
    }
    let report = home.join("report.json");
    // So that the runtime directory and what a probe found are there, and a report that could be changed.
    let mut first = walls.run_words(Some(Backend::Namespace), Mode::ReadOnly);
    first.splice(2..2, ["--report".to_owned(), text(&report)]);
    first.push("/bin/true".to_owned());
    let first = Walls::finish(&mut walls.plain(&first))?;
    expect(first.status.success(), written(&first.stderr))?;

    let facts = json!({
        "out": text(&out), "ws": text(&walls.fixture.ws()), "home": text(&home), "bin": text(&bin),
        "runtime": text(&walls.runtime()), "report": text(&report), "tag": walls.fixture.tag,
    });
    let mut words = ["/usr/bin/python3", "-c", include_str!("caller.py")].map(str::to_owned).to_vec();
    words.push(facts.to_string());
    if backend != Backend::Unconfined {
        let mut run = walls.run_words(Some(backend), mode);
        run.splice(2..2, ["--report".to_owned(), text(&report)]);
        words.extend(run);
    }
    words.extend(["/usr/bin/python3", "-c", include_str!("attack.py")].map(str::to_owned));
    let finished = Walls::finish(&mut walls.plain(&words))?;
    let told = format!("{}: {}{}", finished.status, written(&finished.stdout), written(&finished.stderr));
    let stdout = written(&finished.stdout);
    let (felt, answers): (Vec<&str>, Vec<&str>) = stdout.lines().partition(|line| line.starts_with('{'));
    let felt: Value = serde_json::from_str(felt.first().ok_or(&told)?).map_err(|e| format!("{e}: {told}"))?;
    expect_equal(&felt["status"], &json!(0)).map_err(|e| format!("{e}: {told}"))?;
    let answers = answers.iter().filter_map(|line| line.split_once(' '));
    Ok(Knocked {
        answers: answers.map(|(door, answer)| (door.to_owned(), answer.to_owned())).collect(),
        reached: felt["reached"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|d| d.as_str().map(str::to_owned))
            .collect(),
        told,
    })
}

fn give(path: &Path, uid: u32) -> Result<(), String> {
    std::os::unix::fs::chown(path, Some(uid), Some(uid)).map_err(|e| format!("{}: {e}", path.display()))
}

fn judge(door: &str, expected: &str, knocked: &Knocked) -> Result<(), String> {
    let answer = knocked.answers.get(door).ok_or_else(|| format!("nobody knocked: {}", knocked.told))?;
    expect(expected.split('|').any(|it| it == answer), format!("expected {expected}, got {answer}"))?;
    let is_felt = knocked.reached.iter().any(|it| it == door);
    let must_be_felt = expected == "open" && FELT.contains(&door);
    expect(is_felt == must_be_felt, format!("the caller says: {:?}", knocked.reached))
}

/// Nothing that Pinfold lives by may lie at or below a writable root, whatever is called the workspace (W09, W11).
fn what_controls_is_no_root(backend: Backend, uid: u32) -> Result<(), String> {
    let walls = Walls::new(uid)?;
    let base = walls.fixture.base().to_owned();
    // The base must be one that its user may open, so that only its contents speak against it.
    give(&base, uid)?;
    let deeper = walls.runtime().join("pinfold/plans");
    let first = Walls::finish(&mut walls.confined(backend, Mode::WorkspaceWrite, &["/bin/true"]))?;
    expect(first.status.success() && deeper.is_dir(), written(&first.stderr))?;
    for root in [walls.fixture.bin(), walls.runtime(), walls.runtime().join("pinfold"), deeper, base] {
        refused(&walls, backend, &root, "SANDBOX_")?;
    }
    Ok(())
}

/// Nor a directory of the system, nor `/` (W11, B048).
fn the_system_is_no_root(backend: Backend, uid: u32) -> Result<(), String> {
    let walls = Walls::new(uid)?;
    ["/", "/etc", "/usr", "/usr/lib", "/proc", "/proc/self", "/sys", "/dev", "/run", "/var", "/boot"]
        .iter()
        .filter(|root| Path::new(root).is_dir())
        .try_for_each(|root| refused(&walls, backend, Path::new(root), "SANDBOX_"))
}

/// As the workspace and as a further root: a typed refusal, and nothing runs.
fn refused(walls: &Walls, backend: Backend, root: &Path, code: &str) -> Result<(), String> {
    let (ws, mark) = (text(&walls.fixture.ws()), walls.fixture.ws().join("ran"));
    let root = text(root);
    let act = format!("echo x > {}", mark.display());
    for roots in [&["--workspace", &root][..], &["--workspace", &ws, "--writable", &root]] {
        let mut words = vec![text(&walls.pinfold()), "run".to_owned(), "--json".to_owned()];
        words.extend(["--backend", backend.name(), "--mode", "workspace-write"].map(str::to_owned));
        words.extend(roots.iter().map(|word| (*word).to_owned()));
        words.extend(["--", "/bin/sh", "-c", &act].map(str::to_owned));
        let finished = Walls::finish(&mut walls.plain(&words))?;
        let told = format!("{roots:?}: {} {}", finished.status, written(&finished.stderr));
        expect(finished.status.code() != Some(0) && !mark.exists(), &told)?;
        expect(written(&finished.stderr).contains(code), &told)?;
    }
    // The control: with a root that may be one, the same command runs.
    let control = Walls::finish(&mut walls.confined(backend, Mode::WorkspaceWrite, &["/bin/sh", "-c", &act]))?;
    expect(control.status.success() && mark.exists(), written(&control.stderr))?;
    std::fs::remove_file(PathBuf::from(&mark)).map_err(|e| e.to_string())
}
