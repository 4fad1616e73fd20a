//! The host-execution report: what a call creates or changes that tools outside execute or obey is in its outcome, whatever
//! backend confines it, and without walls as well.
//!
//! Tests are called `BACKEND/UID/CLAIM`. Field cases B029, B030, B064, weakness W08.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::start::{Backend, Mode, uids};
use pinfold_conformance::walls::{CONFINED, Walls, expect, expect_equal, text, written, written_outcome};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

type Claim = fn(&Scene) -> Result<(), String>;

const CLAIMS: &[(&str, Claim)] = &[
    ("every-kind-of-file-is-told", every_kind),
    ("every-route-is-told", every_route),
    ("ordinary-work-is-silent", ordinary_work),
    ("a-crowded-directory-hides-nothing-known", crowd),
    ("a-line-says-so-unless-it-is-switched-off", line),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for backend in std::iter::once(Backend::Unconfined).chain(CONFINED) {
        for uid in uids() {
            for (name, claim) in CLAIMS {
                let run = move || {
                    let walls = Walls::new(uid)?;
                    claim(&Scene { walls, backend }).map_err(Failed::from)
                };
                trials.push(Trial::test(format!("{}/{uid}/{name}", backend.name()), run));
            }
        }
    }
    for backend in [Backend::Namespace, Backend::Landlock] {
        for uid in uids() {
            let run = move || {
                let walls = Walls::new(uid)?;
                what_was_refused(&Scene { walls, backend }).map_err(Failed::from)
            };
            trials.push(Trial::test(format!("{}/{uid}/what-was-refused-is-not-told", backend.name()), run));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

struct Scene {
    walls: Walls,
    backend: Backend,
}

/// What became of a file, and what kind of tool obeys it.
type Told = BTreeMap<String, (String, String)>;

impl Scene {
    fn command(&self, options: &[&str], script: &str) -> Command {
        let mut words = match self.backend {
            Backend::Unconfined => {
                let ws = text(&self.walls.fixture.ws());
                let mut words = vec![text(&self.walls.pinfold())];
                words.extend(["run", "--mode", "danger-full-access", "--workspace", &ws, "--"].map(str::to_owned));
                words
            }
            backend => self.walls.run_words(Some(backend), Mode::WorkspaceWrite),
        };
        let dashes = words.pop().unwrap_or_default();
        words.extend(options.iter().map(|word| (*word).to_owned()));
        words.extend([&dashes, "/bin/bash", "-euc", script].map(str::to_owned));
        self.walls.plain(&words)
    }

    fn run(&self, options: &[&str], script: &str) -> Result<Value, String> {
        let finished = Walls::finish(&mut self.command(&[options, &["--json"]].concat(), script))?;
        let outcome = written_outcome(&finished)?;
        expect(outcome["ending"]["code"] == 0, written(&finished.stderr))?;
        Ok(outcome)
    }

    /// What a script did to files that tools outside obey, relative to the workspace.
    fn told(&self, script: &str) -> Result<Told, String> {
        let outcome = self.run(&[], script)?;
        let found = &outcome["hostFiles"];
        expect_equal(&found["incomplete"], &Value::from(false)).map_err(|error| format!("{error}: {found}"))?;
        self.listed(found)
    }

    fn listed(&self, found: &Value) -> Result<Told, String> {
        let ws = text(&self.walls.fixture.ws()) + "/";
        let changes = found["changes"].as_array().ok_or_else(|| format!("no list: {found}"))?;
        let entry = |change: &Value| {
            let word = |name: &str| change[name].as_str().unwrap_or_default().to_owned();
            let path = word("path");
            let path = path.strip_prefix(&ws).ok_or_else(|| format!("outside: {path}"))?.to_owned();
            expect(!word("obeyedBy").is_empty(), format!("{path}: by nobody"))?;
            Ok((path, (word("change"), word("kind"))))
        };
        changes.iter().map(entry).collect()
    }
}

fn told(all: &[(&str, &str, &str)]) -> Told {
    let entry =
        |(path, change, kind): &(&str, &str, &str)| ((*path).to_owned(), ((*change).to_owned(), (*kind).to_owned()));
    all.iter().map(entry).collect()
}

const KINDS: &[(&str, &str)] = &[
    (".git/hooks/pre-commit", "git"),
    (".git/config", "git"),
    (".git/info/attributes", "git"),
    (".git/modules/a/config", "git"),
    (".git/worktrees/x/gitdir", "git"),
    (".git/rebase-merge/git-rebase-todo", "git"),
    ("sub/.GIT", "git"),
    (".gitattributes", "git"),
    (".vscode/tasks.json", "editor"),
    (".idea/workspace.xml", "editor"),
    (".editorconfig", "editor"),
    (".vim/plugin/x.vim", "editor"),
    (".bashrc", "shell"),
    (".envrc", "shell"),
    (".profile", "shell"),
    ("Makefile", "build"),
    ("package.json", "build"),
    ("build.rs", "build"),
    ("Cargo.toml", "build"),
    (".cargo/config.toml", "build"),
    ("setup.py", "build"),
    ("pyproject.toml", "build"),
    ("tests/conftest.py", "build"),
    ("CMakeLists.txt", "build"),
    ("build.gradle", "build"),
    ("justfile", "build"),
    ("env/bin/activate", "virtual-environment"),
    ("env/lib/python3/site-packages/x.pth", "virtual-environment"),
    ("sitecustomize.py", "virtual-environment"),
    (".github/workflows/ci.yml", "ci"),
    (".gitlab-ci.yml", "ci"),
    (".ci/run", "ci"),
    ("Jenkinsfile", "ci"),
    (".claude/settings.json", "agent"),
    (".codex/config.toml", "agent"),
    (".cursor/mcp.json", "agent"),
    (".gemini/settings.json", "agent"),
    (".mcp.json", "agent"),
    ("AGENTS.md", "agent"),
    ("CLAUDE.md", "agent"),
    ("bin/tool", "program"),
    ("node_modules/.bin/tool", "program"),
    ("src/setid", "set-id"),
];

fn every_kind(scene: &Scene) -> Result<(), String> {
    let paths: Vec<&str> = KINDS.iter().map(|(path, _)| *path).collect();
    let all = paths.join(" ");
    let make = format!(
        "for f in {all}; do mkdir -p $(dirname $f); echo one > $f; done; chmod 755 bin/tool node_modules/.bin/tool
         chmod 6755 src/setid; mkdir -p src; echo > src/main.rs; echo > README"
    );
    let made = scene.told(&make)?;
    for (path, kind) in KINDS {
        let expected = ("created".to_owned(), (*kind).to_owned());
        expect(made.get(*path) == Some(&expected), format!("{path}: {:?}", made.get(*path)))?;
    }
    expect(!made.contains_key("README") && !made.contains_key("src/main.rs"), "ordinary files are told")?;
    let same = |change: &str| {
        let entry = |(path, kind): &(&str, &str)| ((*path).to_owned(), (change.to_owned(), (*kind).to_owned()));
        KINDS.iter().map(entry).collect::<Told>()
    };
    // Root has no power inside to write what is executed by set-id without losing the bit: it is changed and plain then.
    let mut changed = same("changed");
    let now = scene.told(&format!("for f in {all}; do echo other > $f; done; chmod 6755 src/setid"))?;
    expect_equal(now, std::mem::take(&mut changed))?;
    let modes = scene.told(&format!("for f in {all}; do chmod o-rwx $f; done"))?;
    expect_equal(modes, same("mode"))?;
    let again = scene.told(&format!("for f in {all}; do cat $f > t; cat t > $f; done; rm t; chmod 6750 src/setid"))?;
    expect_equal(again, Told::new())?;
    let gone = scene.told(&format!("for f in {all}; do rm $f; done"))?;
    expect_equal(gone, same("removed"))
}

/// B029, B030: by rename, by a prepared parent, by link, by second name, with size and times set back.
fn every_route(scene: &Scene) -> Result<(), String> {
    scene.run(
        &[],
        "mkdir -p repo/.git/hooks node_modules/x/.git/hooks dir plain; echo x > repo/.git/config; echo y > prepared; echo x > Makefile
         echo x > node_modules/x/.git/hooks/pre-commit; touch -d @1600000000 Makefile; echo x > dir/tasks.json; ln -s dir .idea",
    )?;
    let now = scene.told(
        "mv prepared repo/.git/config; mv node_modules/x sub; ln -s dir .vscode; ln repo/.git/config justfile
         printf 'z\\n' > Makefile; touch -d @1600000000 Makefile; echo y > dir/tasks.json
         printf '[core]\\n' > plain/config; mv repo repo2; mkfifo .envrc; ln -s .. again; cp -r repo2 .git.d; mv .git.d/.git plain/.git",
    )?;
    let expected = [
        (".envrc", "created", "shell"),
        (".vscode", "created", "editor"),
        ("Makefile", "changed", "build"),
        ("dir/tasks.json", "changed", "settings"),
        ("justfile", "created", "build"),
        ("plain/.git", "created", "git"),
        ("plain/.git/config", "created", "git"),
        ("plain/.git/hooks", "created", "git"),
        ("repo/.git", "removed", "git"),
        ("repo/.git/config", "removed", "git"),
        ("repo/.git/hooks", "removed", "git"),
        ("repo2/.git", "created", "git"),
        ("repo2/.git/config", "created", "git"),
        ("repo2/.git/hooks", "created", "git"),
        ("sub/.git", "created", "git"),
        ("sub/.git/hooks", "created", "git"),
        ("sub/.git/hooks/pre-commit", "created", "git"),
    ];
    expect_equal(now, told(&expected))
}

fn ordinary_work(scene: &Scene) -> Result<(), String> {
    let identity = "git config user.name A; git config user.email a@b";
    scene.run(
        &[],
        &format!("git init -q .; {identity}; echo x > a; git add a; git commit -qm one; echo all: > Makefile"),
    )?;
    let now = scene.told(
        "echo y > a; git add a; git commit -qm two; git branch topic; git checkout -q topic; git checkout -q -; mkdir -p src/deep
         echo x > src/deep/file; rm -r src; mkdir -p node_modules/a/bin; echo {} > node_modules/a/package.json; make -n > log",
    )?;
    expect_equal(now, Told::new())
}

fn crowd(scene: &Scene) -> Result<(), String> {
    scene.run(&[], "mkdir .vscode; echo x > .vscode/tasks.json; echo x > Makefile")?;
    let script = "python3 -c 'for i in range(11000): open(f\"{i:x}\", \"w\").close()'
                  echo y > .vscode/tasks.json; echo y > .envrc; mkdir -p .git/hooks; echo y > .git/hooks/pre-commit";
    let outcome = scene.run(&[], script)?;
    let found = &outcome["hostFiles"];
    expect(found["incomplete"] == true && found["reasons"][0].is_string(), found.to_string())?;
    let now = scene.listed(found)?;
    for (path, change) in
        [(".vscode/tasks.json", "changed"), (".envrc", "created"), (".git/hooks/pre-commit", "created")]
    {
        expect(now.get(path).is_some_and(|told| told.0 == change), format!("{path}: {now:?}"))?;
    }
    expect(!now.contains_key("Makefile"), format!("{now:?}"))
}

fn line(scene: &Scene) -> Result<(), String> {
    let script =
        "mkdir -p .git/hooks; echo x >> .git/hooks/pre-commit; printf x > $'Make\\nfile'; printf x > $'\\e[2J.mk'";
    let finished = Walls::finish(&mut scene.command(&[], script))?;
    let stderr = written(&finished.stderr);
    let expected = "pinfold: note: tools outside obey what is changed here: created .git (git), created .git/hooks (git), \
                    created .git/hooks/pre-commit (git), and 1 more";
    expect(stderr.lines().any(|line| line == expected), &stderr)?;
    expect(!stderr.contains('\u{1b}'), &stderr)?;
    let finished = Walls::finish(&mut scene.command(&["--host-files", "skip"], script))?;
    expect(!written(&finished.stderr).contains("tools outside"), written(&finished.stderr))?;
    let outcome = scene.run(&["--host-files", "skip"], script)?;
    expect(outcome.get("hostFiles").is_none(), outcome.to_string())
}

/// With protected names the attempt is a denial and no change, and what is not protected is told.
fn what_was_refused(scene: &Scene) -> Result<(), String> {
    let setup = Walls::finish(&mut scene.walls.plain(&["/bin/sh", "-c", "git init -q .; echo all: > Makefile"]))?;
    expect(setup.status.success(), written(&setup.stderr))?;
    let script = "for f in .git/hooks/pre-commit .git/config .vscode .envrc Makefile; do { echo x > $f; } 2> /dev/null || :; done";
    let outcome = scene.run(&["--protect", "default"], script)?;
    expect_equal(scene.listed(&outcome["hostFiles"])?, told(&[("Makefile", "changed", "build")]))?;
    expect_equal(outcome["denials"].as_array().map(Vec::len), Some(4))?;
    // The control: without protection all of them are told.
    let now = scene.told(script)?;
    expect_equal(now.len(), 4)
}
