//! Protected names inside a writable root (`--protect default`), under every backend that can have them, as root and as an
//! ordinary user: field cases B001, B019, B028 to B030, B032, B035, B064, B117, B118; weaknesses W05, W08, W10, W18, W32.
//!
//! Tests are called `BACKEND/UID/CLAIM`. Attempts are those of the program `pinfold-trespass`; each one succeeds without walls.
//! What is protected is looked at from outside, by rules of this file's own.

#[path = "protected/asked.rs"]
mod asked;
#[path = "protected/broker_attacks.rs"]
mod broker_attacks;

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::start::{Backend, Mode, find_binary, uids};
use pinfold_conformance::walls::{Walls, expect, expect_equal, text, written, written_outcome};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BACKENDS: [Backend; 2] = [Backend::Namespace, Backend::Landlock];

type Claim = fn(&Scene) -> Result<(), String>;

const CLAIMS: &[(&str, Claim)] = &[
    ("every-route-to-a-protected-name-is-refused-and-told", every_route),
    ("ordinary-work-goes-on", ordinary_work),
    ("git-works-but-for-what-a-later-git-would-obey", git_works),
    ("absent-names-stay-absent-without-a-trace", absent_names),
    ("a-name-that-the-host-replaces-stays-protected", replaced_by_the_host),
    ("what-a-link-or-setting-leads-to-is-protected", led_to),
    ("patterns-of-the-caller-hold", patterns),
    ("metadata-outside-stays-and-that-inside-can-be-changed", metadata),
    ("race_random-operations-of-many-threads-change-nothing-protected", random_operations),
    ("race_swapped-paths-and-directories-lead-nowhere", swaps),
    ("a-command-that-loses-its-broker-is-ended", broker_killed),
    ("a-stopped-broker-frees-nothing", broker_stopped),
    ("a-flood-of-refusals-is-counted", flood),
    ("descriptors-umask-fifos-and-terminals-are-as-without", same_as_without),
    ("what-is-mounted-or-leads-to-a-root-stays-in-place", broker_attacks::mounts_stay),
    ("a-root-below-a-shared-temp-directory-stays-in-place", broker_attacks::temp_root),
    ("fifos-outside-and-other-processes-entries-are-closed", broker_attacks::fifos_and_proc),
    ("another-name-of-the-workspace-protects-as-well", broker_attacks::other_name),
    ("a-broker-without-descriptors-refuses", broker_attacks::without_descriptors),
    ("asked-once-is-done-once", asked::once_is_once),
    ("nothing-is-painted-over-a-question", asked::nothing_is_painted),
    ("a-process-that-hides-is-refused-and-that-is-told", broker_attacks::hidden),
    ("nobody-is-asked-about-pinfold-itself-or-what-other-walls-refuse", asked::never_asked),
    ("a-question-that-nobody-answers-is-a-refusal", asked::times_out),
    ("an-asker-that-is-killed-permits-nothing", asked::asker_killed),
    ("a-yes-to-a-process-that-was-killed-does-nothing", asked::waiter_killed),
    ("race_what-is-swapped-while-a-person-reads-leads-nowhere-else", asked::swapped_meanwhile),
    ("answers-cannot-be-forged-from-inside", asked::forged),
    ("a-flood-of-questions-is-bounded", asked::flood_of_questions),
    ("another-process-answers-and-everything-is-in-the-log", asked::answered_elsewhere),
    ("bounds-and-large-directories-are-as-without", broker_attacks::bounds_and_sizes),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for backend in BACKENDS {
        for uid in uids() {
            for (name, claim) in CLAIMS {
                let run = move || {
                    let scene = Scene::new(backend, uid)?;
                    claim(&scene).map_err(Failed::from)
                };
                trials.push(Trial::test(format!("{}/{uid}/{name}", backend.name()), run));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A workspace with repositories in it.
struct Scene {
    walls: Walls,
    backend: Backend,
    trespass: String,
}

type Guarded = BTreeMap<PathBuf, (u32, Vec<u8>)>;

impl Scene {
    fn new(backend: Backend, uid: u32) -> Result<Self, String> {
        let walls = Walls::new(uid)?;
        let place = walls.fixture.bin().join("pinfold-trespass");
        let binary = find_binary("pinfold-trespass", "pinfold-conformance")?;
        // Not by this process: whatever another thread starts meanwhile would hold the file open for writing (ETXTBSY).
        let copied = Command::new("cp").arg(&binary).arg(&place).status().map_err(|error| format!("cp: {error}"))?;
        expect(copied.success(), format!("cp {} {}: {copied}", binary.display(), place.display()))?;
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
        let scene = Self { trespass: text(&place), walls, backend };
        scene.lay_out()?;
        Ok(scene)
    }

    fn ws(&self) -> PathBuf {
        self.walls.fixture.ws()
    }

    fn empty(&self) -> Result<(), String> {
        for entry in std::fs::read_dir(self.ws()).map_err(|error| error.to_string())?.flatten() {
            let path = entry.path();
            let directory = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
            let removed = if directory { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// Empties the workspace and lays it out anew.
    fn lay_out(&self) -> Result<(), String> {
        self.empty()?;
        self.outside(&[&self.trespass, "setup", &text(&self.ws())]).map(drop)
    }

    /// Runs a command without walls; it must succeed.
    fn outside(&self, argv: &[&str]) -> Result<String, String> {
        let finished = Walls::finish(&mut self.walls.plain(argv))?;
        expect(finished.status.success(), format!("{argv:?}: {}", written(&finished.stderr)))?;
        Ok(written(&finished.stdout))
    }

    fn command(&self, options: &[&str], argv: &[&str]) -> Command {
        self.walls.with_options(self.backend, Mode::WorkspaceWrite, options, argv)
    }

    /// Runs a command with protected names: what it printed, and its outcome.
    fn protected(&self, argv: &[&str]) -> Result<(String, Value), String> {
        self.with(&["--protect", "default"], argv)
    }

    fn with(&self, options: &[&str], argv: &[&str]) -> Result<(String, Value), String> {
        let finished = Walls::finish(&mut self.command(&[options, &["--json"]].concat(), argv))?;
        let said = format!("{}{}", written(&finished.stdout), written(&finished.stderr));
        Ok((said, written_outcome(&finished)?))
    }

    fn guarded(&self) -> Guarded {
        let mut found = Guarded::new();
        look(&self.ws(), Path::new(""), true, &mut found);
        found
    }

    fn unchanged(&self, before: &Guarded, after_what: &str) -> Result<(), String> {
        let after = self.guarded();
        let differs: Vec<_> =
            before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path)).collect();
        expect(differs.is_empty(), format!("{after_what}: {differs:?}"))
    }
}

/// What a tool outside would obey, with mode and content: the oracle's own rules.
fn look(root: &Path, below: &Path, top: bool, found: &mut Guarded) {
    let Ok(entries) = std::fs::read_dir(root.join(below)) else { return };
    let top = top || root.join(below).join(".git").symlink_metadata().is_ok();
    let has = |name: &str| root.join(below).join(name).symlink_metadata().is_ok();
    let repository = below.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"))
        || (has("objects") && has("refs") && (has("config") || has("hooks")));
    for entry in entries.flatten() {
        let path = below.join(entry.file_name());
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let obeyed = name == ".git"
            || (top && [".vscode", ".idea", ".envrc"].contains(&name.as_str()))
            || (repository && ["hooks", "config", "commondir", "gitdir", "config.worktree"].contains(&name.as_str()))
            || below
                .components()
                .any(|part| [".vscode", ".idea"].contains(&&*part.as_os_str().to_string_lossy()) && top)
            || (name == "attributes" && below.ends_with(".git/info"))
            || below.file_name().is_some_and(|name| name == "hooks") && found.contains_key(below);
        let Ok(metadata) = root.join(&path).symlink_metadata() else { continue };
        if obeyed {
            let content = if metadata.is_symlink() {
                std::fs::read_link(root.join(&path)).map(|target| target.as_os_str().as_bytes().to_vec())
            } else if metadata.is_file() {
                std::fs::read(root.join(&path))
            } else {
                Ok(Vec::new())
            };
            found.insert(path.clone(), (metadata.mode(), content.unwrap_or_default()));
        }
        if metadata.is_dir() {
            look(root, &path, false, found);
        }
    }
}

fn denials(outcome: &Value) -> Vec<&Value> {
    outcome["denials"].as_array().map(|all| all.iter().collect()).unwrap_or_default()
}

/// B019, B028, B029, B030, B064, W08, W18, W32: a refusal has its path, operation, error and process, although the command
/// exits with 0.
fn every_route(scene: &Scene) -> Result<(), String> {
    let names = scene.outside(&[&scene.trespass, "list"])?;
    let names: Vec<&str> = names.lines().collect();
    expect(names.len() > 50, "attempts are listed")?;
    // Each in a workspace of its own, all of them in one root.
    let lay_out = || -> Result<(), String> {
        scene.empty()?;
        let places: Vec<String> = names.iter().map(|name| text(&scene.ws().join(name))).collect();
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
        scene.outside(&[&["mkdir"], places.as_slice()].concat())?;
        scene.outside(&[&[&*scene.trespass, "setup"], places.as_slice()].concat()).map(drop)
    };
    let script = "for name in $(\"$0\" list); do cd $name; \"$0\" attempt $name; cd ..; done; true";
    let argv = ["/bin/sh", "-c", script, &scene.trespass];
    lay_out()?;
    let said = scene.outside(&argv)?;
    let failed: Vec<_> = names.iter().zip(said.lines()).filter(|(_, result)| *result != "ok").collect();
    expect(failed.is_empty(), format!("without walls: {failed:?}"))?;
    lay_out()?;
    let before = scene.guarded();
    let (said, outcome) = scene.protected(&argv)?;
    let open: Vec<_> = names.iter().zip(said.lines()).filter(|(_, result)| *result != "EPERM").collect();
    expect(open.is_empty(), format!("{open:?}"))?;
    scene.unchanged(&before, "attempts")?;
    expect_equal(&outcome["verdict"], &Value::from("completed"))?;
    let told = denials(&outcome);
    for name in names {
        let place = text(&scene.ws().join(name)) + "/";
        let denial = told.iter().find(|denial| denial["path"].as_str().is_some_and(|path| path.starts_with(&place)));
        let denial = denial.ok_or_else(|| format!("{name}: no refusal is told"))?;
        expect_equal(&denial["evidence"], &Value::from("broker"))?;
        expect_equal(&denial["errno"], &Value::from("EPERM"))?;
        expect_equal(&denial["process"]["name"], &Value::from("pinfold-trespas"))?;
        expect(denial["operation"].is_string() && denial["rule"].is_string(), format!("{name}: {denial}"))?;
    }
    Ok(())
}

fn ordinary_work(scene: &Scene) -> Result<(), String> {
    let script = "
        set -eu
        mkdir -p x/y; echo one > x/y/f; echo two >> x/y/f; cp -a x z; mv z/y z/w; ln z/w/f hard; ln -s z/w/f soft
        test \"$(cat soft)\" = \"$(printf 'one\\ntwo')\"; truncate -s 3 hard; chmod 640 hard; touch -d 2020-01-01 hard
        test \"$(stat -c '%a %Y' z/w/f)\" = '640 1577836800'; rm -r x z hard soft
        tar cf t.tar plain; mkdir out; tar xf t.tar -C out; rm -r out t.tar; mkfifo p; rm p
        mkdir -p src/config/hooks node_modules/p/.vscode; echo x > src/config/hooks/f; echo x > node_modules/p/.vscode/s
        mv node_modules/p node_modules/q; rm -r src node_modules; echo in > $TMPDIR/t; mv $TMPDIR/t t; rm t
        cd $TMPDIR; git init -q r; git -C r config a.b c; rm -rf r";
    let (said, outcome) = scene.protected(&["/bin/bash", "-c", script])?;
    expect(outcome["ending"]["code"] == 0 && denials(&outcome).is_empty(), format!("{said} {outcome}"))
}

/// B001: git stays useful; B035: `git init` is refused.
fn git_works(scene: &Scene) -> Result<(), String> {
    let ws = text(&scene.ws());
    std::fs::remove_dir_all(scene.ws().join(".git")).map_err(|error| error.to_string())?;
    scene.outside(&["git", "-C", &ws, "init", "-q", "-b", "main"])?;
    let before = scene.guarded();
    let script = "
        set -eu; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        echo 1 > f; git add f; git commit -qm one; git status --short > /dev/null; echo 2 >> f; git stash -q; git stash pop -q
        git commit -qam two; git checkout -qb config; echo 3 > g; git add g; git commit -qm three; git checkout -q main
        echo 4 > h; git add h; git commit -qm four; git merge -qm merged config; git checkout -q config; git rebase -q main
        git branch hooks; git tag t; git gc -q; git log --oneline | wc -l";
    let (said, outcome) = scene.protected(&["/bin/bash", "-c", script])?;
    expect(outcome["ending"]["code"] == 0 && said.starts_with("5\n"), format!("{said} {outcome}"))?;
    scene.unchanged(&before, "git")?;
    for refused in ["git config user.name x", "git init -q new", "git worktree add -q linked", "git clone -q . copy"] {
        let (said, outcome) = scene.protected(&["/bin/bash", "-c", refused])?;
        expect(outcome["ending"]["code"] != 0 && !denials(&outcome).is_empty(), format!("{refused}: {said}"))?;
        expect(said.contains("Operation not permitted"), format!("{refused}: {said}"))?;
        expect_equal(&outcome["verdict"], &Value::from("denied"))?;
        scene.unchanged(&before, refused)?;
    }
    Ok(())
}

/// B035, B117: what is not there cannot be made, and protecting it leaves nothing.
fn absent_names(scene: &Scene) -> Result<(), String> {
    for name in [".git", ".vscode", "sub", "deep", "bare", "hollow"] {
        std::fs::remove_dir_all(scene.ws().join(name)).map_err(|error| format!("{name}: {error}"))?;
    }
    let list = || scene.outside(&["find", &text(&scene.ws()), "-printf", "%p %m %y\\n"]);
    let before = list()?;
    let script = "for name in .git .claude .codex .cursor .gemini .vscode .idea .husky; do mkdir $name; done
        for name in .mcp.json .envrc .bashrc .zshenv pinfold.toml .pinfold; do echo x > $name; done; true";
    let (_, outcome) = scene.protected(&["/bin/bash", "-c", script])?;
    expect_equal(denials(&outcome).len(), 14)?;
    expect_equal(list()?, before)
}

/// B032: the name is protected, not the file that was there at the start.
fn replaced_by_the_host(scene: &Scene) -> Result<(), String> {
    let script = "echo ready > ready; until test -e go; do sleep 0.02; done; echo evil > .git/config";
    let mut command = scene.command(&["--protect", "default"], &["/bin/sh", "-c", script]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    wait_for(|| scene.ws().join("ready").exists())?;
    let config = scene.ws().join(".git/config");
    std::fs::write(scene.ws().join(".git/new"), "[new]\n").map_err(|error| error.to_string())?;
    std::fs::set_permissions(scene.ws().join(".git/new"), std::fs::Permissions::from_mode(0o666))
        .and_then(|()| std::fs::rename(scene.ws().join(".git/new"), &config))
        .and_then(|()| std::fs::write(scene.ws().join("go"), ""))
        .map_err(|error| error.to_string())?;
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    expect(written(&output.stderr).contains("Operation not permitted"), written(&output.stderr))?;
    expect_equal(std::fs::read_to_string(config).unwrap_or_default(), "[new]\n".to_owned())
}

fn wait_for(what: impl Fn() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !what() {
        expect(begun.elapsed() < Duration::from_secs(30), "it takes too long")?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// B118, and `core.hooksPath`.
fn led_to(scene: &Scene) -> Result<(), String> {
    let ws = text(&scene.ws());
    let script = "cd $0; mkdir -p myhooks elsewhere; printf '[core]\\nhooksPath = myhooks\\n' > .git/config; \
                  rm -r .vscode; ln -s elsewhere .vscode; printf '[include]\\npath = ../extra\\n' >> .git/config; \
                  mkdir -p a/deep/.git a/deep/hk; printf '[core]\\nhooksPath = hk\\n' > a/deep/.git/config; mkdir -p a/.hg/store";
    scene.outside(&["/bin/sh", "-c", script, &ws])?;
    let script = "echo x > myhooks/pre-commit; echo x > elsewhere/tasks.json; mv elsewhere gone; echo x > extra; rm .vscode
        echo x > a/deep/hk/pre-commit; echo x > a/.hg/hgrc; mv a/.hg a/moved; mkdir a/.jj; mkdir .git/remotes; echo x > a/.hg/store/f";
    let (_, outcome) = scene.protected(&["/bin/sh", "-c", script])?;
    expect_equal(denials(&outcome).len(), 10)?;
    let there = |name: &&str| scene.ws().join(name).exists();
    let made = ["myhooks/pre-commit", "elsewhere/tasks.json", "gone", "extra", "a/deep/hk/pre-commit", "a/.hg/hgrc"];
    expect_equal(made.iter().find(|name| there(name)), None)?;
    let made = ["a/moved", "a/.jj", ".git/remotes"];
    expect_equal(made.iter().find(|name| there(name)), None)?;
    expect(there(&"a/.hg/store/f"), "data of a repository is writable")?;
    expect(scene.ws().join(".vscode").is_symlink(), "the link is there")
}

/// W05: by path, descriptor, O_PATH, `/proc/self/fd` and link, as the report of such a call says; inside it works.
fn metadata(scene: &Scene) -> Result<(), String> {
    let outside = scene.walls.fixture.out().join("kept");
    std::fs::write(&outside, "").map_err(|error| error.to_string())?;
    let uid = scene.walls.fixture.uid;
    std::os::unix::fs::chown(&outside, Some(uid), Some(uid)).map_err(|error| error.to_string())?;
    std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o600)).map_err(|error| error.to_string())?;
    let state = || outside.metadata().map(|it| (it.mode(), it.mtime(), it.ctime(), it.ctime_nsec())).ok();
    let script = "import os, sys, fcntl, struct
path = sys.argv[1]; held = os.open(path, os.O_RDONLY); handle = os.open(path, os.O_PATH); os.symlink(path, 'to')
def flags(fd):
    # Beside those that it has: without the one for extents, ext4 would have to lay the file out anew.
    now = fcntl.ioctl(fd, 0x80086601, struct.pack('i', 0))
    fcntl.ioctl(fd, 0x40086602, struct.pack('i', struct.unpack('i', now)[0] | 0x40))
for act in [lambda: os.chmod(path, 0o644), lambda: os.fchmod(held, 0o644), lambda: os.chmod('to', 0o644),
            lambda: os.chmod('/proc/self/fd/%d' % held, 0o644), lambda: os.chmod('/proc/self/fd/%d' % handle, 0o644),
            lambda: os.chown(path, os.getuid(), -1), lambda: os.fchown(held, -1, os.getgid()), lambda: os.lchown(path, os.getuid(), -1),
            lambda: os.utime(path, (1, 1)), lambda: os.utime(held, (1, 1)), lambda: os.utime(path), lambda: os.utime('to', (1, 1)),
            lambda: os.setxattr(path, 'user.a', b'b'), lambda: os.setxattr(held, 'user.a', b'b'),
            lambda: os.removexattr(path, 'user.a'), lambda: flags(held)]:
    try: act(); print('ok')
    except OSError as error: print(os.strerror(error.errno) if error.errno != 61 else 'ok')
os.unlink('to')";
    let inside = scene.ws().join("plain/f");
    let (said, outcome) = scene.protected(&["/usr/bin/python3", "-c", script, &text(&inside)])?;
    let results: Vec<_> = said.lines().take(16).collect();
    expect(results.iter().all(|result| *result == "ok"), format!("inside: {results:?}"))?;
    expect(denials(&outcome).is_empty(), outcome.to_string())?;
    let before = state();
    let (said, outcome) = scene.protected(&["/usr/bin/python3", "-c", script, &text(&outside)])?;
    let wanted = if scene.backend == Backend::Landlock { "Operation not permitted" } else { "Read-only file system" };
    let results: Vec<_> = said.lines().take(16).collect();
    expect(results.len() == 16 && results.iter().all(|result| *result == wanted), format!("outside: {results:?}"))?;
    expect_equal(state(), before)?;
    // Without a mount tree the device nodes that root can open are a matter of another promise.
    let whole = if scene.backend == Backend::Landlock && scene.walls.fixture.uid == 0 { "partial" } else { "full" };
    expect_equal(&outcome["report"]["enforcement"], &Value::from(whole))?;
    let told = denials(&outcome).len();
    expect(told >= 4 || scene.backend == Backend::Namespace, format!("{told} refusals are told"))?;
    // Without walls each of them works.
    let said = scene.outside(&["/usr/bin/python3", "-c", script, &text(&outside)])?;
    expect(said.lines().take(16).all(|result| result == "ok") && state() != before, said)
}

fn patterns(scene: &Scene) -> Result<(), String> {
    let script = "mkdir -p ci src/a; echo x > ci/deploy.sh; echo x > src/a/keep; echo x > ci/other; mkdir z; echo x > z/deploy.sh; \
                  mv z ci2; rm -r ci; ln -s ci2 ci; mv ci2 ci; echo x > .envrc; true";
    let ws = text(&scene.ws());
    let options = ["--protect", &format!("{ws}/ci/deploy.sh"), "--protect", &format!("{ws}/src/*/keep")];
    let (said, outcome) = scene.with(&options, &["/bin/sh", "-c", script])?;
    let paths = denials(&outcome).into_iter().filter_map(|denial| denial["path"].as_str().map(str::to_owned));
    let paths: Vec<String> = paths.collect();
    let expected = ["ci/deploy.sh", "src/a/keep", "ci", "ci/deploy.sh"].map(|path| format!("{ws}/{path}"));
    expect_equal(paths.as_slice(), &expected).map_err(|error| error + &said)?;
    // The directory that was to be moved in holds the name, and was refused with that path.
    let exists = |name: &str| scene.ws().join(name).symlink_metadata().is_ok();
    expect(exists("ci2/deploy.sh") && exists(".envrc") && !exists("ci") && !exists("src/a/keep"), said)
}

fn random_operations(scene: &Scene) -> Result<(), String> {
    let rounds = from_environment("PINFOLD_RANDOM_PLANS", 6);
    for seed in 0..rounds {
        scene.lay_out()?;
        let before = scene.guarded();
        let (said, outcome) = scene.protected(&[&scene.trespass, "random", &seed.to_string(), "4", "1500"])?;
        expect(outcome["ending"]["code"] == 0 && !denials(&outcome).is_empty(), format!("{seed}: {said}"))?;
        scene.unchanged(&before, &format!("seed {seed}"))?;
    }
    // Without walls the same plan changes something.
    scene.lay_out()?;
    let before = scene.guarded();
    scene.outside(&[&scene.trespass, "random", "0", "4", "1500"])?;
    expect(scene.unchanged(&before, "").is_err(), "without walls the plan does harm")
}

fn swaps(scene: &Scene) -> Result<(), String> {
    let rounds = from_environment("PINFOLD_SWAPS", 2000).to_string();
    let before = scene.guarded();
    let (said, outcome) = scene.protected(&[&scene.trespass, "swap", &rounds])?;
    expect(outcome["ending"]["code"] == 0, said)?;
    scene.unchanged(&before, "swaps")?;
    expect(scene.ws().join("race/real/config").exists(), "the race wrote where it may")
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Starts a command that writes to a protected and a plain name for ever; returns it and its broker's number.
fn start_writer(scene: &Scene) -> Result<(std::process::Child, i32), String> {
    let script = "while :; do echo evil > .git/config; echo x >> count; done 2> /dev/null";
    let mut command = scene.command(&["--protect", "default"], &["/bin/sh", "-c", script]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    wait_for(|| scene.ws().join("count").exists())?;
    let children = |of: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        lists.collect::<String>()
    };
    let broker = children(child.id()).split_whitespace().next().and_then(|pid| pid.parse().ok());
    let broker: i32 = broker.ok_or("no broker is seen")?;
    let name = std::fs::read_to_string(format!("/proc/{broker}/comm")).unwrap_or_default();
    expect_equal(name.trim(), "pinfold-broker")?;
    Ok((child, broker))
}

fn count(scene: &Scene) -> u64 {
    scene.ws().join("count").metadata().map_or(0, |metadata| metadata.len())
}

fn broker_killed(scene: &Scene) -> Result<(), String> {
    let before = scene.guarded();
    let (mut child, broker) = start_writer(scene)?;
    // SAFETY: plain.
    unsafe { libc::kill(broker, libc::SIGKILL) };
    let status = child.wait().map_err(|error| error.to_string())?;
    expect(!status.success(), "the call failed")?;
    // The launcher sees its caller's end and ends everything; nothing writes any more.
    let mut last = count(scene);
    let begun = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let now = count(scene);
        if now == last {
            break;
        }
        last = now;
        expect(begun.elapsed() < Duration::from_secs(20), "the command goes on")?;
    }
    scene.unchanged(&before, "a killed broker")
}

fn broker_stopped(scene: &Scene) -> Result<(), String> {
    let before = scene.guarded();
    let (mut child, broker) = start_writer(scene)?;
    // SAFETY: plain.
    unsafe { libc::kill(broker, libc::SIGSTOP) };
    wait_for(|| std::fs::read_to_string(format!("/proc/{broker}/stat")).is_ok_and(|stat| stat.contains(") T ")))?;
    // One thread of it may still have been at work on the other processor.
    std::thread::sleep(Duration::from_millis(300));
    let then = count(scene);
    std::thread::sleep(Duration::from_millis(300));
    expect_equal(count(scene), then)?;
    // SAFETY: plain.
    unsafe { libc::kill(broker, libc::SIGCONT) };
    wait_for(|| count(scene) > then)?;
    // SAFETY: plain.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    child.wait().map_err(|error| error.to_string())?;
    scene.unchanged(&before, "a stopped broker")
}

fn flood(scene: &Scene) -> Result<(), String> {
    let times = from_environment("PINFOLD_FLOOD", 64 * 100) / 64;
    let (said, outcome) = scene.protected(&[&scene.trespass, "flood", ".git/config", "64", &times.to_string()])?;
    let told = denials(&outcome);
    expect(outcome["ending"]["code"] == 0 && told.len() == 1, format!("{said} {outcome}"))?;
    expect_equal(told[0]["count"].as_u64(), Some(64 * times))
}

fn same_as_without(scene: &Scene) -> Result<(), String> {
    let script = "
        umask 027; echo x > u; mkdir v; umask 077; echo x > w; stat -c '%a %U' u v w
        exec 5> five; echo five >&5; exec 5>&-; cat five; mkfifo p; (sleep 0.1; cat p) & echo through > p; wait
        echo out > /dev/stdout; echo x > /dev/null; test -w /dev/full && echo full > /dev/full 2> /dev/null || echo nospace
        echo a > /dev/tty; ln -s loop loop; echo x > loop; mkdir v; rmdir v/; echo x > u/; rm v; mv absent v; cd v; echo > ../n/x
        echo x > $(printf 'y%.0s' $(seq 300)); : > u; true";
    let strip = |text: String| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('{')).map(str::to_owned).collect()
    };
    let without = Walls::finish(&mut scene.command(&[], &["/bin/bash", "-c", script]))?;
    let without = strip(format!("{}{}", written(&without.stdout), written(&without.stderr)));
    scene.lay_out()?;
    let (with, outcome) = scene.protected(&["/bin/bash", "-c", script])?;
    expect(denials(&outcome).is_empty(), outcome.to_string())?;
    expect_equal(strip(with), without)
}
