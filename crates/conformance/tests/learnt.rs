//! Learning (`pinfold learn`): what it prints lets the command pass, and anything narrower does not; it opens nothing but what
//! `--within` names, and never proposes what nobody should open. Under every backend that can observe, as root and as an
//! ordinary user.
//!
//! Tests are called `BACKEND/UID/CLAIM`.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::judge::Finished;
use pinfold_conformance::snapshot::Snapshot;
use pinfold_conformance::start::{Backend, uids};
use pinfold_conformance::walls::{Walls, expect, expect_equal, text, written};
use serde_json::Value;
use std::path::PathBuf;

type Claim = fn(&Scene) -> Result<(), String>;

const CLAIMS: &[(&str, Claim)] = &[
    ("what-is-printed-suffices-and-nothing-narrower-does", round_trips),
    ("learning-opens-nothing", opens_nothing),
    ("only-what-lies-within-is-opened", within_only),
    ("what-nobody-should-open-is-listed-and-not-proposed", never_proposed),
    ("a-command-that-coped-is-told-and-a-cut-list-is-said", coped_and_cut),
    ("words-that-make-no-sense-are-refused", nonsense),
];

/// A command, what is there before, and the directories that it needs, below the directory outside.
struct Case {
    setup: &'static str,
    script: &'static str,
    needs: &'static [&'static str],
    /// The same under Landlock alone, if it differs: there two directories of one file system are one for renaming.
    landlock: Option<&'static [&'static str]>,
    /// Holds afterwards.
    check: &'static str,
}

const fn case(setup: &'static str, script: &'static str, needs: &'static [&'static str], check: &'static str) -> Case {
    Case { setup, script, needs, landlock: None, check }
}

const CASES: &[Case] = &[
    case("mkdir a", "touch $O/a/x", &["a"], "[ -e $O/a/x ]"),
    case("mkdir a", "touch $O/a/x 2> /dev/null; true", &["a"], "[ -e $O/a/x ]"),
    case("mkdir p", "mkdir -p $O/p/a/b/c && touch $O/p/a/b/c/f", &["p"], "[ -e $O/p/a/b/c/f ]"),
    case("mkdir a b c", "touch $O/a/x && touch $O/b/x && ls $O/c", &["a", "b"], "true"),
    case("mkdir -p a/b", "touch $O/a/b/x && touch $O/a/x", &["a"], "[ -e $O/a/b/x ]"),
    case("mkdir a && touch a/x && chmod 644 a/x", "chmod 600 $O/a/x && touch -d 2001-01-01 $O/a/x", &["a"], "true"),
    case("mkdir 'a b'", "touch \"$O/a b/it's\"", &["a b"], "[ -e \"$O/a b/it's\" ]"),
    case(
        "git init -q r && cd r && git config user.email a@b && git config user.name n && echo 1 > f && git add f",
        "git -C $O/r commit -qm m",
        &["r/.git"],
        "git -C $O/r rev-parse -q HEAD",
    ),
    case("mkdir db", "sqlite3 $O/db/x 'create table t(a); insert into t values(1)'", &["db"], "[ -s $O/db/x ]"),
    case(
        "mkdir cache p && cd p && echo '{\"name\":\"x\",\"version\":\"1.0.0\"}' > package.json && npm pack -s && rm -rf ~/.npm",
        "env npm_config_cache=$O/cache npm_config_update_notifier=false npm cache add $O/p/x-1.0.0.tgz",
        &["cache"],
        "[ -d $O/cache/_cacache ]",
    ),
    Case {
        setup: "mkdir -p m/a m/b && touch m/a/f",
        script: "perl -e 'rename($ARGV[0], $ARGV[1]) or die $!' $O/m/a/f $O/m/b/f",
        needs: &["m"],
        landlock: Some(&["m/a", "m/b"]),
        check: "[ -e $O/m/b/f ]",
    },
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for uid in uids() {
        for backend in [Backend::Namespace, Backend::Landlock] {
            for (name, claim) in CLAIMS {
                let run = move || claim(&Scene::new(backend, uid)?).map_err(Failed::from);
                trials.push(Trial::test(format!("{}/{uid}/{name}", backend.name()), run));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

struct Scene {
    walls: Walls,
    backend: Backend,
}

impl Scene {
    fn new(backend: Backend, uid: u32) -> Result<Self, String> {
        let scene = Self { walls: Walls::new(uid)?, backend };
        scene.plainly(&format!("mkdir {}", text(&scene.out())))?;
        Ok(scene)
    }

    fn out(&self) -> PathBuf {
        self.walls.home().join("o")
    }

    fn script(&self, script: &str) -> String {
        format!("export O={}; {script}", text(&self.out()))
    }

    /// Runs a script without walls; it must succeed.
    fn plainly(&self, script: &str) -> Result<(), String> {
        let finished = Walls::finish(&mut self.walls.plain(&["/bin/bash", "-c", &self.script(script)]))?;
        expect(finished.status.success(), format!("{script}: {}", written(&finished.stderr)))
    }

    fn set_up(&self, setup: &str) -> Result<(), String> {
        self.plainly(&format!("rm -rf $O/*; cd $O && {setup}"))
    }

    fn pinfold(&self, words: &[&str], argv: &[&str]) -> Result<Finished, String> {
        let program = text(&self.walls.pinfold());
        let all = [&[program.as_str()], words, &["--backend", self.backend.name(), "--"], argv].concat();
        Walls::finish(&mut self.walls.plain(&all))
    }

    /// Learns from a script; the answer.
    fn learn(&self, options: &[&str], script: &str) -> Result<Value, String> {
        let script = self.script(script);
        let finished = self.pinfold(&[&["learn", "--json"], options].concat(), &["/bin/bash", "-c", &script])?;
        let stdout = written(&finished.stdout);
        expect(finished.status.success(), format!("{script}: {stdout} {}", written(&finished.stderr)))?;
        expect_equal(stdout.lines().count(), 1)?;
        serde_json::from_str(&stdout).map_err(|error| format!("{error}: {stdout}"))
    }

    /// Runs a script with these roots alone, observed: whether it passed, and how often something was refused.
    fn with_roots(&self, roots: &[String], script: &str) -> Result<(bool, usize), String> {
        let mut words = vec!["run", "--observe", "--json", "--protect", "default"];
        match roots {
            [] => words.extend(["--mode", "read-only"]),
            [first, rest @ ..] => {
                words.extend(["--mode", "workspace-write", "--workspace", first]);
                rest.iter().for_each(|root| words.extend(["--writable", root]));
            }
        }
        let finished = self.pinfold(&words, &["/bin/bash", "-c", &self.script(script)])?;
        let stderr = written(&finished.stderr);
        let outcome: Value = serde_json::from_str(stderr.lines().last().unwrap_or_default())
            .map_err(|error| format!("{error}: {stderr}"))?;
        expect_equal(outcome["ran"].clone(), true.into())?;
        Ok((finished.status.success(), outcome["denials"].as_array().map_or(0, Vec::len)))
    }
}

/// What a policy opens, below a directory; `.` for the directory itself.
fn roots(answer: &Value) -> Vec<String> {
    let policy = &answer["policy"];
    if policy["mode"] == "read-only" {
        return Vec::new();
    }
    let further = policy["additionalWritableRoots"].as_array().cloned().unwrap_or_default();
    let all = std::iter::once(policy["workspaceRoot"].clone()).chain(further);
    let mut all: Vec<String> = all.filter_map(|root| root.as_str().map(str::to_owned)).collect();
    all.sort();
    all
}

fn round_trips(scene: &Scene) -> Result<(), String> {
    let out = text(&scene.out());
    for Case { setup, script, needs, landlock, check } in CASES {
        let told = |error: String| format!("{script}: {error}");
        scene.set_up(setup)?;
        let answer = scene.learn(&["--within", &out], script).map_err(told)?;
        expect_equal((answer["tried"].clone(), answer["ending"]["code"].clone()), (true.into(), 0.into()))
            .map_err(|error| format!("{script}: {error}: {answer}"))?;
        let needs = landlock.filter(|_| scene.backend == Backend::Landlock).unwrap_or(needs);
        let expected: Vec<String> = needs.iter().map(|name| format!("{out}/{name}")).collect();
        let open = roots(&answer);
        expect_equal(&open, &expected).map_err(told)?;
        // What is printed, given to a shell.
        scene.set_up(setup)?;
        let command = answer["command"].as_str().unwrap_or_default();
        let path = format!("PATH={}:$PATH; {command}", text(&scene.walls.fixture.bin()));
        scene.plainly(&path)?;
        scene.plainly(check).map_err(told)?;
        // The control, and anything narrower.
        scene.set_up(setup)?;
        expect_equal(scene.with_roots(&open, script)?, (true, 0)).map_err(told)?;
        for left_out in &open {
            scene.set_up(setup)?;
            let fewer: Vec<String> = open.iter().filter(|root| *root != left_out).cloned().collect();
            let (_, refused) = scene.with_roots(&fewer, script)?;
            expect(refused > 0, format!("{script}: nothing is refused without {left_out}"))?;
        }
    }
    Ok(())
}

fn opens_nothing(scene: &Scene) -> Result<(), String> {
    for Case { setup, script, .. } in CASES {
        scene.set_up(setup)?;
        let look = |path: &PathBuf| Snapshot::take(path).map_err(|error| error.to_string());
        let (out, ws) = (scene.out(), scene.walls.fixture.ws());
        let before = (look(&out)?, look(&ws)?);
        let answer = scene.learn(&[], script)?;
        let after = (look(&out)?, look(&ws)?);
        expect_equal(before.0.changes(&after.0, &ws), Vec::new()).map_err(|error| format!("{script}: {error}"))?;
        expect_equal(before.1.changes(&after.1, &out), Vec::new())?;
        expect_equal((answer["rounds"].clone(), answer["tried"].clone()), (1.into(), false.into()))?;
        expect(!roots(&answer).is_empty(), format!("{script}: {answer}"))?;
        scene.plainly(script)?;
    }
    Ok(())
}

fn within_only(scene: &Scene) -> Result<(), String> {
    let out = text(&scene.out());
    scene.set_up("mkdir a b")?;
    let script = "touch $O/a/x; touch $O/b/x; touch $O/x; true";
    let answer = scene.learn(&["--within", &format!("{out}/a")], script)?;
    scene.plainly("[ -e $O/a/x ] && [ ! -e $O/b/x ] && [ ! -e $O/x ]")?;
    // All of it is proposed, and said not to have been tried.
    expect_equal((roots(&answer), answer["tried"].clone()), (vec![out.clone()], false.into()))?;
    // Where links lead counts, not where they stand.
    scene.set_up("mkdir a b && ln -s ../b a/link")?;
    let answer = scene.learn(&["--within", &format!("{out}/a")], "touch $O/a/link/x; true")?;
    scene.plainly("[ ! -e $O/b/x ]")?;
    expect_equal(roots(&answer), vec![format!("{out}/b")])
}

fn never_proposed(scene: &Scene) -> Result<(), String> {
    let home = text(&scene.walls.home());
    scene.set_up("mkdir p r && git init -q r && cd ~ && mkdir -p .config/gh")?;
    let out = text(&scene.out());
    for (path, reason) in [
        (format!("{home}/x"), "unfit"),
        (format!("{home}/.ssh"), "secret"),
        (format!("{home}/.netrc"), "secret"),
        (format!("{home}/.config/x"), "secret"),
        (format!("{out}/p/.envrc"), "protected"),
        (format!("{out}/p/.git"), "protected"),
        (format!("{out}/r/.git/config"), "protected"),
        (format!("{out}/r/.git/hooks/pre-commit"), "protected"),
        ("/etc/x".to_owned(), "unfit"),
        ("/usr/lib/x".to_owned(), "unfit"),
        ("/x".to_owned(), "unfit"),
        ("/tmp/x".to_owned(), "temp"),
        (format!("{}/pinfold/x", text(&scene.walls.runtime())), "unfit"),
    ] {
        for options in [&[][..], &["--within", &home]] {
            let answer = scene.learn(options, &format!("echo >> {path}; true"))?;
            expect_equal(roots(&answer), Vec::new()).map_err(|error| format!("{path}: {error}"))?;
            let not: Vec<_> = answer["notLearnt"].as_array().cloned().unwrap_or_default();
            let got: Vec<_> = not.iter().map(|not| not["reason"].as_str().unwrap_or_default()).collect();
            expect_equal(got, vec![reason]).map_err(|error| format!("{path}: {error}: {answer}"))?;
        }
    }
    Ok(())
}

fn coped_and_cut(scene: &Scene) -> Result<(), String> {
    scene.set_up("mkdir a")?;
    let script = "perl -e 'for my $n (1..300) { open(F, q(>), \"$ARGV[0]/$n\") } exit 0' $O/a";
    let answer = scene.learn(&[], script)?;
    expect_equal((answer["incomplete"].clone(), answer["ending"]["code"].clone()), (true.into(), 0.into()))?;
    let finished = scene.pinfold(&["learn"], &["/bin/bash", "-c", &scene.script(script)])?;
    let (stdout, stderr) = (written(&finished.stdout), written(&finished.stderr));
    expect(stdout.starts_with("pinfold run --mode workspace-write --workspace "), &stdout)?;
    expect(stderr.contains("not everything that was refused is known") && stderr.contains("exited with 0"), &stderr)?;
    // A command that needs nothing.
    let answer = scene.learn(&[], "cat /etc/passwd; echo > /dev/null")?;
    let expected = (Value::from(true), Value::from("read-only"));
    expect_equal((answer["tried"].clone(), answer["policy"]["mode"].clone()), expected)
}

fn nonsense(scene: &Scene) -> Result<(), String> {
    let out = text(&scene.out());
    for (words, said) in [
        (&["learn", "--within", "/"][..], "root of the file tree"),
        (&["learn", "--within", "/etc"], "directory of the system"),
        (&["learn", "--within", "/none"], "is not a directory"),
        (&["learn", "--rounds", "2"], "--within"),
        (&["learn", "--rounds", "0", "--within", &out], "--rounds"),
        (&["learn", "--mode", "danger-full-access"], "nothing can be learnt"),
    ] {
        let finished = scene.pinfold(words, &["touch", &format!("{out}/ran")])?;
        let stderr = written(&finished.stderr);
        expect_equal((words, finished.status.code()), (words, Some(2)))?;
        expect(stderr.contains(said) && finished.stdout.is_empty(), format!("{words:?}: {stderr}"))?;
    }
    scene.plainly("[ ! -e $O/ran ]")?;
    let finished = scene.pinfold(&["learn"], &["no-such-program"])?;
    expect_equal(finished.status.code(), Some(127))
}
