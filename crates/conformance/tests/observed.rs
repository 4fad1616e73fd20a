//! Observing (`--observe`): every refused call that would have changed something is told, with operation, path and process, also
//! of a command that hides it; and it stays refused. Under every backend that can, in both modes, as root and as an ordinary user.
//!
//! Tests are called `BACKEND/MODE/UID/CLAIM`.

use libtest_mimic::{Arguments, Failed, Trial};
use pinfold_conformance::snapshot::Snapshot;
use pinfold_conformance::start::{Backend, Mode, uids};
use pinfold_conformance::walls::{Walls, expect, expect_equal, text, written, written_outcome};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

type Claim = fn(&Scene) -> Result<(), String>;

const CLAIMS: &[(&str, Claim)] = &[
    ("each-refused-effect-is-told-and-stays-refused", each_effect),
    ("a-program-that-swallows-the-error-is-told", swallowed),
    ("work-that-is-allowed-is-as-without-and-silent", allowed),
    ("observing-promises-no-more-than-without", promises),
    ("refusals-without-number-are-counted", flood),
    ("a-person-reads-a-line-for-each", lines),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for uid in uids() {
        for mode in Mode::ALL {
            for backend in [Backend::Namespace, Backend::Landlock] {
                for (name, claim) in CLAIMS {
                    let run = move || claim(&Scene::new(backend, mode, uid)?).map_err(Failed::from);
                    let name = format!("{}/{}/{uid}/{name}", backend.name(), mode.name());
                    trials.push(Trial::test(name, run));
                }
            }
            let refused = move || cannot(&Scene::new(Backend::Bwrap, mode, uid)?).map_err(Failed::from);
            let name = format!("bwrap/{}/{uid}/what-cannot-tell-is-not-used", mode.name());
            trials.push(Trial::test(name, refused));
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

struct Scene {
    walls: Walls,
    backend: Backend,
    mode: Mode,
}

/// Effects, each as a script that succeeds without walls; `$O` is outside. With what is told: operation and name.
const EFFECTS: &[(&str, &str, &str)] = &[
    (": > $O/new", "open", "new"),
    (": >> $O/file", "open", "file"),
    (": > $O/file", "open", "file"),
    ("truncate -c -s 9 $O/file", "open", "file"),
    ("perl -e 'truncate($ARGV[0], 1) or exit 1' $O/file", "truncate", "file"),
    ("cd $O && perl -e 'sysopen(F, \".\", 020200001) or exit 1'", "open", ""),
    ("mkdir $O/made", "mkdir", "made"),
    ("rmdir $O/empty", "rmdir", "empty"),
    ("rm $O/gone", "unlink", "gone"),
    ("mkfifo $O/fifo", "mknod", "fifo"),
    ("ln -s x $O/link", "symlink", "link"),
    ("ln $O/file $O/second", "link", "file"),
    ("perl -e 'rename($ARGV[0], $ARGV[1]) or exit 1' $O/file $O/moved", "rename", "file"),
    ("chmod 600 $O/file", "chmod", "file"),
    ("chown $UID $O/file", "chown", "file"),
    ("touch -d 2001-01-01 $O/file", "utime", "file"),
    ("python3 -c \"import os,sys; os.setxattr(sys.argv[1], 'user.x', b'x')\" $O/file", "setxattr", "file"),
];

impl Scene {
    fn new(backend: Backend, mode: Mode, uid: u32) -> Result<Self, String> {
        let scene = Self { walls: Walls::new(uid)?, backend, mode };
        scene.plainly(&format!("mkdir {}", text(&scene.out())))?;
        scene.lay_out()?;
        Ok(scene)
    }

    /// A directory outside of every writable place, which the user may write.
    fn out(&self) -> PathBuf {
        self.walls.home().join("o")
    }

    fn lay_out(&self) -> Result<(), String> {
        self.plainly("rm -rf $O/*; cd $O && echo data > file && echo data > gone && mkdir empty && chmod 644 file")
    }

    fn script(&self, script: &str) -> String {
        format!("O={}; {script}", text(&self.out()))
    }

    /// Runs a script without walls; it must succeed.
    fn plainly(&self, script: &str) -> Result<(), String> {
        let finished = Walls::finish(&mut self.walls.plain(&["/bin/bash", "-c", &self.script(script)]))?;
        expect(finished.status.success(), format!("{script}: {}", written(&finished.stderr)))
    }

    fn finish(&self, options: &[&str], argv: &[&str]) -> Result<pinfold_conformance::judge::Finished, String> {
        Walls::finish(&mut self.walls.with_options(self.backend, self.mode, options, argv))
    }

    fn outcome(&self, options: &[&str], argv: &[&str]) -> Result<Value, String> {
        written_outcome(&self.finish(&[options, &["--json"]].concat(), argv)?)
    }

    /// Runs a script that is observed: its exit status and what was refused.
    fn observed(&self, script: &str) -> Result<(Value, Vec<Value>), String> {
        let outcome = self.outcome(&["--observe"], &["/bin/bash", "-c", &self.script(script)])?;
        expect_equal(outcome["ran"].clone(), true.into())?;
        Ok((outcome["ending"]["code"].clone(), outcome["denials"].as_array().cloned().unwrap_or_default()))
    }
}

fn told(denials: &[Value]) -> Vec<(String, String)> {
    let word = |denial: &Value, key: &str| denial[key].as_str().unwrap_or_default().to_owned();
    denials.iter().map(|denial| (word(denial, "operation"), word(denial, "path"))).collect()
}

fn each_effect(scene: &Scene) -> Result<(), String> {
    for (script, operation, name) in EFFECTS {
        scene.lay_out()?;
        let before = Snapshot::take(&scene.out()).map_err(|error| error.to_string())?;
        let (code, denials) = scene.observed(&format!("({script}) 2> /dev/null; [ $? != 0 ]"))?;
        expect_equal((*script, code), (*script, 0.into()))?;
        let after = Snapshot::take(&scene.out()).map_err(|error| error.to_string())?;
        expect_equal(before.changes(&after, &scene.out()), Vec::new())?;
        let path = if name.is_empty() { text(&scene.out()) } else { text(&scene.out().join(name)) };
        let expected = ((*operation).to_owned(), path);
        let all = told(&denials);
        expect(all.contains(&expected), format!("{script}: {expected:?} is not in {denials:?}"))?;
        for denial in &denials {
            let graded = ["kernel", "broker"].map(Value::from).contains(&denial["evidence"]);
            let whole = ["path", "operation", "errno"].iter().all(|key| denial[key].is_string());
            expect(graded && whole && denial["process"]["pid"].is_u64(), format!("{script}: {denial}"))?;
        }
        // Without walls it succeeds.
        scene.plainly(script)?;
    }
    Ok(())
}

/// Exit status 0, no message, another language.
fn swallowed(scene: &Scene) -> Result<(), String> {
    let python =
        "import os, sys\nfor name in ('a', 'b'):\n  try: open(sys.argv[1] + '/' + name, 'w')\n  except OSError: pass\n";
    let out = text(&scene.out());
    let argv = ["python3", "-c", python, &out];
    let outcome = scene.outcome(&["--observe"], &argv)?;
    expect_equal(outcome["verdict"].clone(), "completed".into())?;
    let denials = outcome["denials"].as_array().cloned().unwrap_or_default();
    let expected = ["a", "b"].map(|name| ("open".to_owned(), format!("{out}/{name}")));
    expect_equal(told(&denials), expected.to_vec())?;
    expect_equal(denials[0]["process"]["name"].clone(), "python3".into())?;
    // Nobody would know of it otherwise.
    expect_equal(scene.outcome(&[], &argv)?["denials"].clone(), Value::Array(Vec::new()))?;
    scene.plainly("[ ! -e $O/a ] && [ ! -e $O/b ]")
}

fn allowed(scene: &Scene) -> Result<(), String> {
    let script = if scene.mode == Mode::ReadOnly {
        "cat $O/file; ls $O; echo > /dev/null; (exit 3)"
    } else {
        "set -e; cd \"$PWD\"; git init -q r; cd r; git config user.email a@b; git config user.name n; echo 1 > f; git add f; \
         git commit -qm m; git log --format=%s; cp -a ../r ../s; mv ../s ../t; ln ../t/f ../t/g; chmod 700 ../t; mkfifo p; rm p; \
         mktemp > /dev/null; cat $O/file; cd ..; rm -rf r t; (exit 3)"
    };
    let run = |options: &[&str]| scene.finish(options, &["/bin/bash", "-c", &scene.script(script)]);
    let (without, observed) = (run(&[])?, run(&["--observe"])?);
    expect_equal(observed.status.code(), Some(3))?;
    expect_equal(observed.status.code(), without.status.code())?;
    expect_equal(written(&observed.stdout), written(&without.stdout))?;
    let (_, denials) = scene.observed(script)?;
    expect_equal(denials, Vec::new())
}

fn promises(scene: &Scene) -> Result<(), String> {
    let strengths = |options: &[&str]| -> Result<BTreeMap<String, String>, String> {
        let outcome = scene.outcome(options, &["true"])?;
        let lines = outcome["report"]["guarantees"].as_array().cloned().unwrap_or_default();
        let word = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        Ok(lines.iter().map(|line| (word(line, "guarantee"), word(line, "strength"))).collect())
    };
    let (without, mut observed) = (strengths(&[])?, strengths(&["--observe"])?);
    expect_equal(without.len(), 17)?;
    if scene.backend == Backend::Landlock && scene.mode == Mode::WorkspaceWrite {
        // The broker governs what Landlock alone cannot, and shows it: here, that is what was looked for above.
        for guarantee in ["write-metadata", "control-plane"] {
            expect_equal(
                observed.insert(guarantee.to_owned(), without[guarantee].clone()),
                Some("enforced".to_owned()),
            )?;
        }
    }
    expect_equal(observed, without)
}

fn flood(scene: &Scene) -> Result<(), String> {
    let perl =
        "for my $n (1..300) { open(F, q(>), \"$ARGV[0]/$n\") } for (1..1000) { open(F, q(>), \"$ARGV[0]/1\") } exit 0";
    let (code, denials) = scene.observed(&format!("perl -e '{perl}' $O"))?;
    expect_equal(code, 0.into())?;
    let first = &denials[0];
    expect_equal(
        (first["path"].clone(), first["count"].clone()),
        (format!("{}/1", text(&scene.out())).into(), 1001.into()),
    )?;
    let count: u64 = denials.iter().map(|denial| denial["count"].as_u64().unwrap_or(1)).sum();
    expect_equal((denials.len(), count), (257, 1300))?;
    scene.plainly("[ ! -e $O/1 ]")
}

fn lines(scene: &Scene) -> Result<(), String> {
    let finished =
        scene.finish(&["--observe"], &["/bin/bash", "-c", &scene.script("(: > $O/x) 2> /dev/null; exit 0")])?;
    let stderr = written(&finished.stderr);
    let expected = format!("pinfold: refused: open \"{}/x\" (", text(&scene.out()));
    expect(finished.status.success() && stderr.starts_with(&expected), stderr)
}

fn cannot(scene: &Scene) -> Result<(), String> {
    let marker = scene.walls.fixture.ws().join("ran");
    let refused = |finished: pinfold_conformance::judge::Finished| {
        let stderr = written(&finished.stderr);
        let said = stderr.contains("SANDBOX_UNSUPPORTED_POLICY") && stderr.contains("observed")
            || stderr.contains("each refusal");
        expect(!finished.status.success() && said && !marker.exists(), stderr)
    };
    refused(scene.finish(&["--observe"], &["touch", &text(&marker)])?)?;
    let pinfold = text(&scene.walls.pinfold());
    let argv = [&pinfold, "run", "--mode", "danger-full-access", "--observe", "--", "touch", &text(&marker)];
    refused(Walls::finish(&mut scene.walls.plain(&argv))?)?;
    // Without the option it runs.
    let finished = scene.finish(&[], &["true"])?;
    expect(finished.status.success(), written(&finished.stderr))
}
