//! A person is asked while the command waits (`--ask`): once is once, and everything else is a refusal. Weaknesses W05, W08,
//! W10, W31.

use super::{Scene, denials, wait_for};
use pinfold_conformance::start::{Backend, Mode};
use pinfold_conformance::walls::{Walls, expect, expect_equal, text, written};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// What came of a command about which questions were answered.
struct Asked {
    /// What the terminal showed.
    shown: String,
    /// What the command wrote, and pinfold.
    said: String,
    outcome: Value,
}

impl Asked {
    fn questions(&self) -> usize {
        self.shown.matches("pinfold asks:").count()
    }

    fn approved(&self) -> Vec<String> {
        let all = self.outcome["approved"].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|one| one["path"].as_str().map(str::to_owned)).collect()
    }
}

fn run_words(scene: &Scene, options: &[&str], script: &str) -> Vec<String> {
    let mut words = scene.walls.run_words(Some(scene.backend), Mode::WorkspaceWrite);
    let dashes = words.pop().unwrap_or_default();
    words.extend(["--protect", "default", "--ask", "--json"].map(str::to_owned));
    words.extend(options.iter().map(|word| (*word).to_owned()));
    words.extend([dashes, "/bin/bash".to_owned(), "-c".to_owned(), script.to_owned()]);
    words
}

fn start(scene: &Scene, answers: &str, words: &[String]) -> (Command, PathBuf) {
    let output = scene.walls.home().join(format!("said-{}", std::process::id()));
    let _ = std::fs::remove_file(&output);
    let driver = include_str!("answers.py");
    let mut all: Vec<String> = ["python3", "-c", driver, &text(&output), answers].map(str::to_owned).to_vec();
    all.extend(words.iter().cloned());
    (scene.walls.plain(&all), output)
}

fn asked(scene: &Scene, answers: &str, options: &[&str], script: &str) -> Result<Asked, String> {
    let (mut command, output) = start(scene, answers, &run_words(scene, options, script));
    let finished = Walls::finish(&mut command)?;
    let said = std::fs::read_to_string(&output).map_err(|error| format!("{error}: {}", written(&finished.stderr)))?;
    let line = said.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
    let outcome = serde_json::from_str(line).map_err(|error| format!("{error}: {said}"))?;
    Ok(Asked { shown: written(&finished.stdout), said, outcome })
}

fn read(scene: &Scene, name: &str) -> String {
    std::fs::read_to_string(scene.ws().join(name)).unwrap_or_default()
}

/// Every kind of call, each with a yes, and the same again with a no.
pub(super) fn once_is_once(scene: &Scene) -> Result<(), String> {
    let ws = text(&scene.ws());
    let acts = [
        ("echo evil > .git/hooks/post-commit", format!("open of\n  | \"{ws}/.git/hooks/post-commit\"")),
        ("mkdir .idea2 && mkdir .cursor", format!("mkdir of\n  | \"{ws}/.cursor\"")),
        ("rm .git/config", format!("unlink of\n  | \"{ws}/.git/config\"")),
        (
            "echo prepared > p; mv p .git/config",
            format!("rename of\n  | \"{ws}/.git/config\"\n     and:\n  | \"{ws}/p\""),
        ),
        ("ln -s /bin/true .envrc", format!("symlink of\n  | \"{ws}/.envrc\"\n     and:\n  | \"/bin/true\"")),
        ("ln .git/config second", format!("link of\n  | \"{ws}/.git/config\"\n     and:\n  | \"{ws}/second\"")),
        (
            "ln -s /bin/true l; mv -T l .git/config",
            format!(
                "rename of\n  | \"{ws}/.git/config\"\n     and:\n  | \"{ws}/l\"\n     namely:\n  | \"a link to /bin/true\""
            ),
        ),
        ("chmod 600 .git/config", format!("chmod of\n  | \"{ws}/.git/config\"\n     namely:\n  | \"mode 0600\"")),
        ("truncate -s 0 .git/config", format!("open of\n  | \"{ws}/.git/config\"")),
    ];
    for (act, shown) in acts {
        for (answers, done) in
            [("no,no", false), ("guess,guess,guess,guess", false), ("bare,bare,bare", false), ("yes", true)]
        {
            scene.lay_out()?;
            let before = scene.guarded();
            let result = asked(scene, answers, &[], &format!("rm -f second; {act} && echo did it; true"))?;
            let what = format!("{act}, {answers}: {} {}", result.shown, result.said);
            // A long path goes on in the next line.
            let unfolded = |text: &str| text.replace("\n  | ", "");
            expect(unfolded(&result.shown).contains(&unfolded(&shown)), format!("{shown}: {what}"))?;
            expect_equal(result.said.contains("did it"), done).map_err(|error| error + &what)?;
            expect_equal(result.approved().len(), usize::from(done)).map_err(|error| error + &what)?;
            expect_equal(denials(&result.outcome).is_empty(), done).map_err(|error| error + &what)?;
            if !done {
                scene.unchanged(&before, &what)?;
            }
        }
    }
    // The second time is another effect, and so is the same one by another process.
    scene.lay_out()?;
    let script = "echo one > .git/config; echo two > .git/config; (echo three > .git/config); true";
    let result = asked(scene, "yes,no,no", &[], script)?;
    expect_equal((read(scene, ".git/config").as_str(), result.questions()), ("one\n", 3))?;
    expect(result.shown.contains("by process") && result.shown.contains("\"/bin/bash\" \"-c\""), &*result.shown)?;
    expect_equal(denials(&result.outcome)[0]["count"].as_u64(), Some(2))
}

/// While a question stands on the terminal, nothing that the command writes comes there: it has no terminal of its own, and what
/// it writes by way of us waits.
pub(super) fn nothing_is_painted(scene: &Scene) -> Result<(), String> {
    scene.lay_out()?;
    // By its name it cannot be written either, where names of terminals lead to those outside.
    let script = "test -t 0 -o -t 1 -o -t 2 && echo HAS${none}-TERMINAL
        for name in /dev/pts/[0-9]* /dev/tty; do (: > $name) 2>/dev/null && echo OPENS${none}-$name; done
        for place in 1 2; do
        (while :; do echo PA${none}INT >&$place; sleep 0.01; done) & done
        sleep 0.3; echo asked > .git/config && echo did it; sleep 0.3; kill $(jobs -p); true";
    let mut words = run_words(scene, &[], script);
    words.retain(|word| word != "--json");
    let mut all: Vec<String> = ["python3", "-c", include_str!("answers.py"), "-", "late"].map(str::to_owned).to_vec();
    all.extend(words);
    let shown = written(&Walls::finish(scene.walls.plain(&all).env("TERM", "xterm"))?.stdout);
    let (before, after) = shown.split_once("or n for no: ").ok_or_else(|| format!("nobody was asked: {shown}"))?;
    // The answer is shown where it is typed; in the second before it, and within the question, nothing came.
    let question = before.rsplit_once("pinfold asks:").map_or("", |(_, question)| question);
    expect(after.starts_with("1 ") && !question.contains("PAINT"), format!("painted: {shown}"))?;
    // The control: the command painted before, and what it wrote meanwhile came afterwards.
    expect(before.contains("PAINT") && after.contains("PAINT") && after.contains("did it"), &*shown)?;
    // What a command may have set on the terminal is undone first: a region that scrolls, hidden letters.
    expect(before.contains("\u{1b}[!p") && !shown.contains("HAS-TERMINAL") && !shown.contains("OPENS-"), &*shown)?;
    expect_equal(read(scene, ".git/config").as_str(), "asked\n")
}

/// What nobody is asked about: Pinfold's own settings, what is denied, trees, and what other walls refuse.
pub(super) fn never_asked(scene: &Scene) -> Result<(), String> {
    let outside = text(&scene.walls.home());
    scene.outside(&[
        "/bin/sh",
        "-c",
        &format!("mkdir -p {outside}/.ssh {outside}/.config/pinfold; echo x > {outside}/.ssh/id_rsa"),
    ])?;
    scene.outside(&[
        "/bin/sh",
        "-c",
        &format!("echo > {outside}/.config/pinfold/config.toml; echo > {outside}/plain"),
    ])?;
    let script = format!(
        "echo x > pinfold.toml; mkdir .pinfold; mv .git moved; mv sub/.git moved; echo x > {outside}/new; rm {outside}/plain
         chmod 777 {outside}/.ssh/id_rsa; chmod 777 {outside}/.config/pinfold/config.toml; chmod 777 {}; echo the end",
        text(&scene.walls.pinfold())
    );
    let result = asked(scene, "yes,yes,yes,yes", &[], &script)?;
    // Moving `.git` itself is asked about; that it takes hooks along is not, so it stays.
    expect(
        result.said.contains("the end") && result.approved().is_empty(),
        format!("{} {}", result.shown, result.said),
    )?;
    let stays = |name: &str| scene.ws().join(name).exists();
    expect(stays(".git") && stays("sub/.git") && !stays("pinfold.toml") && !stays(".pinfold"), "nothing happened")?;
    for path in ["pinfold.toml", ".pinfold", "id_rsa", "config.toml", "/new", "plain", "bin/pinfold"] {
        let asked =
            result.shown.lines().any(|line| line.starts_with("  | \"/") && line.ends_with(&format!("{path}\"")));
        expect(!asked, format!("asked about {path}: {}", result.shown))?;
    }
    if scene.backend == Backend::Landlock {
        let script = format!("chmod 604 {outside}/plain; stat -c %a {outside}/plain");
        let result = asked(scene, "yes", &[], &script)?;
        expect(result.said.contains("604\n") && result.questions() == 1, format!("{} {}", result.shown, result.said))?;
    }
    Ok(())
}

/// Time passes: it is refused; the other processes of the command go on meanwhile.
pub(super) fn times_out(scene: &Scene) -> Result<(), String> {
    let config = scene.walls.home().join(".config/pinfold");
    scene.outside(&["mkdir", "-p", &text(&config)])?;
    let file = text(&config.join("config.toml"));
    scene.outside(&["/bin/sh", "-c", &format!("printf '[approval]\\ntimeout = 1\\n' > {file}; chmod 600 {file}")])?;
    let before = scene.guarded();
    let script = "(echo evil > .git/config; echo refused > waited) & n=0
        until test -e waited; do echo x > work; n=$((n+1)); done; wait; test $n -gt 10 && echo went on; sleep 1";
    let result = asked(scene, "none", &[], script)?;
    std::fs::remove_file(&file).map_err(|error| error.to_string())?;
    expect(
        result.said.contains("went on") && result.shown.contains("withdrawn"),
        format!("{} {}", result.shown, result.said),
    )?;
    expect_equal((result.approved().len(), denials(&result.outcome).len()), (0, 1))?;
    scene.unchanged(&before, "a timeout")
}

/// Whoever would answer dies: with pinfold the command ends.
pub(super) fn asker_killed(scene: &Scene) -> Result<(), String> {
    let before = scene.guarded();
    let script = "echo evil > .git/config && echo did it; while :; do echo x >> count; sleep 0.05; done";
    let (mut command, output) = start(scene, "kill", &run_words(scene, &[], script));
    Walls::finish(&mut command)?;
    let said = std::fs::read_to_string(&output).unwrap_or_default();
    expect(!said.contains("did it"), said)?;
    let count = || scene.ws().join("count").metadata().map_or(0, |metadata| metadata.len());
    wait_for(|| {
        let then = count();
        std::thread::sleep(std::time::Duration::from_millis(300));
        count() == then
    })?;
    scene.unchanged(&before, "a killed asker")
}

/// The process that waits is killed: a yes that comes then does nothing.
pub(super) fn waiter_killed(scene: &Scene) -> Result<(), String> {
    let before = scene.guarded();
    let script = "(echo $BASHPID > pid; echo evil > .git/config) & until test -s pid; do sleep 0.02; done; sleep 0.5
        kill -9 $(cat pid); wait; sleep 0.5; echo > killed; sleep 1; echo the end";
    let after = format!("after:{}:yes", text(&scene.ws().join("killed")));
    let result = asked(scene, &after, &[], script)?;
    expect(result.said.contains("the end") && result.questions() == 1, format!("{} {}", result.shown, result.said))?;
    expect(result.shown.contains("withdrawn") && result.approved().is_empty(), &*result.shown)?;
    scene.unchanged(&before, "a killed process")
}

/// While a person reads, the command changes memory, links, directories and descriptors; a yes then goes nowhere else.
pub(super) fn swapped_meanwhile(scene: &Scene) -> Result<(), String> {
    let go = text(&scene.ws().join("go"));
    let program = "
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
what = sys.argv[1]
def swap(act):
    # The question has been put by now, or the swap comes too early and the question shows it.
    time.sleep(1.0); act(); open('go', 'w').close()
def call(act):
    try: act(); print('done')
    except OSError as error: print('refused', error.errno)
if what == 'memory':
    path = ctypes.create_string_buffer(b'.git/hooks/a\\0', 64)
    threading.Thread(target=swap, args=(lambda: ctypes.memmove(path, b'.git/hooks/b\\0', 13),)).start()
    fd = libc.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    print('done' if fd >= 0 else 'refused'); os.write(fd, b'well') if fd >= 0 else None
elif what == 'link':
    os.symlink('.git/hooks', 'l')
    def act(): os.unlink('l'); os.symlink('sub/.git/hooks', 'l')
    threading.Thread(target=swap, args=(act,)).start()
    call(lambda: open('l/a', 'w').write('evil'))
elif what == 'directory':
    os.mkdir('d'); os.mkdir('e')
    def act(): os.rename('d', 'old'); os.rename('e', 'd')
    threading.Thread(target=swap, args=(act,)).start()
    call(lambda: open('d/keep', 'w').write('evil'))
elif what == 'descriptor':
    fd = os.open('.git/hooks', os.O_PATH)
    def act(): other = os.open('sub/.git', os.O_PATH); os.dup2(other, fd)
    threading.Thread(target=swap, args=(act,)).start()
    call(lambda: os.close(os.open('a', os.O_WRONLY | os.O_CREAT, dir_fd=fd)))
elif what == 'source':
    open('p', 'w').write('prepared')
    def act(): open('q', 'w').write('evil'); os.rename('q', 'p')
    threading.Thread(target=swap, args=(act,)).start()
    call(lambda: os.rename('p', '.git/config'))
time.sleep(0.2)
";
    std::fs::write(scene.ws().join("swap.py"), program).map_err(|error| error.to_string())?;
    let program = std::fs::read_to_string(scene.ws().join("swap.py")).unwrap_or_default();
    for (what, done, path) in [
        ("memory", true, ".git/hooks/a"),
        ("link", false, ".git/hooks/a"),
        ("directory", false, "d/keep"),
        ("descriptor", true, ".git/hooks/a"),
        ("source", false, ".git/config"),
    ] {
        scene.lay_out()?;
        std::fs::write(scene.ws().join("swap.py"), &program).map_err(|error| error.to_string())?;
        let before = scene.guarded();
        let keep = format!("{}/*/keep", text(&scene.ws()));
        let script = format!("exec python3 swap.py {what}");
        let options = if what == "directory" { &["--protect", &*keep][..] } else { &[] };
        let result = asked(scene, &format!("after:{go}:yes,no"), options, &script)?;
        let told = format!("{what}: {} {}", result.shown, result.said);
        expect_equal(result.said.starts_with("done"), done).map_err(|error| error + &told)?;
        // One question, about the place as it was: a second one would be about another.
        expect_equal(result.questions(), 1).map_err(|error| error + &told)?;
        let absolute = text(&scene.ws().join(path));
        expect(result.shown.contains(&format!("\"{absolute}\"")), &*told)?;
        expect_equal(result.approved(), if done { vec![absolute] } else { Vec::new() })
            .map_err(|error| error + &told)?;
        let exists = |name: &str| scene.ws().join(name).exists();
        expect(
            !exists(".git/hooks/b")
                && !exists("d/keep")
                && !exists("old/keep")
                && !exists("sub/.git/a")
                && !exists("sub/.git/hooks/a"),
            &*told,
        )?;
        if !done {
            scene.unchanged(&before, &told)?;
        }
    }
    // Without walls the swapped path is written: the plan works.
    scene.lay_out()?;
    std::fs::write(scene.ws().join("swap.py"), &program).map_err(|error| error.to_string())?;
    scene.outside(&["python3", "swap.py", "directory"])?;
    expect(scene.ws().join("old/keep").exists() || scene.ws().join("d/keep").exists(), "without walls it is written")
}

/// From inside, nothing reaches the channel: neither descriptors, nor the broker, nor pinfold, nor the session's log.
pub(super) fn forged(scene: &Scene) -> Result<(), String> {
    let program = "
import glob, os, socket, sys, threading, time
def forge():
    time.sleep(0.7)
    for text in [b'once 1', b'once 2', b'1\\n', b'1 yes\\n']:
        for place in glob.glob('/proc/[0-9]*/fd/*') + glob.glob('/dev/pts/*'):
            try:
                fd = os.open(place, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK); os.write(fd, text); os.close(fd)
            except OSError: pass
        for fd in range(3, 200):
            try: os.write(fd, text); print('did write', fd)
            except OSError: pass
    for pid in [int(name) for name in os.listdir('/proc') if name.isdigit()]:
        if pid == os.getpid() or open(f'/proc/{pid}/comm').read().strip() not in ('pinfold', 'pinfold-broker'): continue
        try:
            pidfd = os.pidfd_open(pid)
            import ctypes
            libc = ctypes.CDLL(None)
            for fd in range(200):
                if libc.syscall(438, pidfd, fd, 0) >= 0: print('did take', pid, fd)
        except OSError: pass
    open('go', 'w').close()
threading.Thread(target=forge).start()
try: open('.git/config', 'w').write('evil'); print('did it')
except OSError as error: print('refused', error.errno)
";
    std::fs::write(scene.ws().join("forge.py"), program).map_err(|error| error.to_string())?;
    let before = scene.guarded();
    let go = text(&scene.ws().join("go"));
    let result = asked(scene, &format!("after:{go}:no"), &[], "exec python3 forge.py")?;
    expect(
        result.said.contains("refused 1") && !result.said.contains("did "),
        format!("{} {}", result.shown, result.said),
    )?;
    expect_equal((result.approved().len(), result.questions()), (0, 1))?;
    scene.unchanged(&before, "forged answers")
}

/// More calls than can wait: the rest is refused as ever, and nothing of it holds up the command.
pub(super) fn flood_of_questions(scene: &Scene) -> Result<(), String> {
    let program = "
import threading
refused, lock = [], threading.Lock()
def attempt(number):
    try: open(f'.git/hooks/h{number}', 'w').close(); result = 'did it'
    except PermissionError: result = 'refused'
    with lock:
        refused.append(result)
        # 8 can wait.
        if len(refused) == 32: open('go', 'w').close()
threads = [threading.Thread(target=attempt, args=(number,)) for number in range(40)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(refused.count('did it'), refused.count('refused'))
for number in range(100):
    try: open('.git/hooks/more', 'w').close(); print('did more')
    except PermissionError: pass
print('the end')
";
    std::fs::write(scene.ws().join("flood.py"), program).map_err(|error| error.to_string())?;
    let go = text(&scene.ws().join("go"));
    let mut answers = vec![format!("after:{go}:no"), "yes".to_owned()];
    answers.extend(vec!["no".to_owned(); 100]);
    let result = asked(scene, &answers.join(","), &[], "exec python3 flood.py")?;
    let told = format!("{} {}", result.shown.len(), result.said);
    expect(result.said.starts_with("1 39\nthe end"), &*told)?;
    // No command puts more than 64 questions.
    expect_equal((result.questions(), result.approved().len()), (64, 1)).map_err(|error| error + &told)
}

/// Another process answers, through the session's log; one that is killed has not answered.
pub(super) fn answered_elsewhere(scene: &Scene) -> Result<(), String> {
    let config = scene.walls.home().join(".config/pinfold");
    scene.outside(&["mkdir", "-p", &text(&config)])?;
    let file = text(&config.join("config.toml"));
    scene.outside(&["/bin/sh", "-c", &format!("printf '[approval]\\ntimeout = 6\\n' > {file}; chmod 600 {file}")])?;
    let pinfold = text(&scene.walls.pinfold());
    let ws = text(&scene.ws());
    let id = scene.outside(&[&pinfold, "session", "new", "--cwd", &ws, "--mode", "workspace-write"])?;
    let id = id.trim().to_owned();
    for (answer, written_text, approved) in [("kill", "[core]\n", 0), ("no", "[core]\n", 0), ("yes", "well\n", 1)] {
        scene.lay_out()?;
        scene.outside(&["/bin/sh", "-c", "echo '[core]' > .git/config"])?;
        let script = "echo well > .git/config; true";
        let words = [
            &pinfold,
            "run",
            "--session",
            &id,
            "--backend",
            scene.backend.name(),
            "--protect",
            "default",
            "--ask",
            "--json",
            "--",
            "/bin/bash",
            "-c",
            script,
        ];
        // No terminal at all: nobody can be asked here.
        let mut run = vec!["setsid", "--wait"];
        run.extend(words);
        let mut command = scene.walls.plain(&run);
        let running = std::thread::scope(|scope| {
            let running = scope.spawn(|| Walls::finish(&mut command));
            let approve = [&pinfold, "approve", "--session", &id, "--wait", "20"].map(str::to_owned);
            let (mut approve, _) = start(scene, answer, &approve);
            let shown = Walls::finish(&mut approve).map(|finished| written(&finished.stdout));
            let finished = running.join().map_err(|_| "a thread failed".to_owned())?;
            Ok::<_, String>((finished?, shown?))
        });
        let (finished, shown) = running?;
        let stderr = written(&finished.stderr);
        let outcome: Value = serde_json::from_str(stderr.lines().last().unwrap_or_default())
            .map_err(|error| format!("{error}: {stderr}"))?;
        let told = format!("{answer}: {shown} {stderr}");
        expect(shown.contains("open of") && shown.contains(".git/config"), &*told)?;
        expect_equal(read(scene, ".git/config").as_str(), written_text).map_err(|error| error + &told)?;
        let list = outcome["approved"].as_array().map_or(0, Vec::len);
        expect_equal(list, approved).map_err(|error| error + &told)?;
        let log = scene.outside(&[&pinfold, "session", "log", &id])?;
        expect(log.contains("approval/asked") && log.contains("approval/decided"), &*log)?;
        expect_equal(log.matches("grant/used").count(), approved).map_err(|error| error + &log)?;
    }
    // A session that never asks, and a call that nobody can be asked about.
    scene.outside(&[&pinfold, "session", "approval", &id, "never"])?;
    let before = scene.guarded();
    let never =
        [&pinfold, "run", "--session", &id, "--backend", scene.backend.name(), "--protect", "default", "--ask", "--"];
    let argv = [&never[..], &["/bin/bash", "-c", "echo evil > .git/config && echo did it; true"]].concat();
    let finished = Walls::finish(&mut scene.walls.plain(&[&["setsid", "--wait"], argv.as_slice()].concat()))?;
    expect(
        written(&finished.stderr).contains("nobody is asked") && finished.stdout.is_empty(),
        written(&finished.stderr),
    )?;
    let words = run_words(scene, &[], "echo evil > .git/config && echo did it; true");
    let mut headless = vec!["setsid".to_owned(), "--wait".to_owned()];
    headless.extend(words);
    let finished = Walls::finish(&mut scene.walls.plain(&headless))?;
    expect(
        written(&finished.stderr).contains("nobody can be asked") && finished.stdout.is_empty(),
        written(&finished.stderr),
    )?;
    std::fs::remove_file(&file).map_err(|error| error.to_string())?;
    scene.unchanged(&before, "nobody is asked")
}
