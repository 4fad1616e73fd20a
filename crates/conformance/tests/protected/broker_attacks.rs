//! What an attacker found in the broker: mounts and roots that it moved, FIFOs and processes that it opened, other names of the
//! workspace, and looks that failed. Field cases B019, B028, B030; weaknesses W08, W10, W18.

use super::{Scene, denials};
use pinfold_conformance::start::{Backend, Mode};
use pinfold_conformance::walls::{Walls, expect, expect_equal, text, written};
use std::path::Path;

/// Runs a script that says `did NAME` for each attempt that succeeds; none may.
fn nothing_done(scene: &Scene, options: &[&str], script: &str) -> Result<(), String> {
    let (said, _) = scene.with(options, &["/bin/bash", "-c", script])?;
    expect(said.contains("the end") && !said.contains("did "), said)
}

/// The kernel asks about mounts in the tree of whoever calls: the broker's is another than the command's.
pub(super) fn mounts_stay(scene: &Scene) -> Result<(), String> {
    let ws = text(&scene.ws());
    scene.outside(&[
        "/bin/sh",
        "-c",
        "cd $0; mkdir -p a/inner d; echo secret > .secret; echo secret > d/.secret",
        &ws,
    ])?;
    let inner = format!("{ws}/a/inner");
    let moves = "
        mv a/inner a/old && echo did move; mv a b && echo did move above; rmdir a/inner && echo did remove
        python3 -c 'import ctypes,sys; sys.exit(ctypes.CDLL(None).renameat2(-100, b\"a/inner\", -100, b\"plain\", 2) == 0)' || echo did exchange
        mv -T plain a/inner && echo did move over; cd a/inner; mv ../inner ../other && echo did move from inside; echo the end";
    nothing_done(scene, &["--protect", "default", "--writable", &inner], moves)?;
    expect(scene.ws().join("a/inner").is_dir(), "it is there")?;
    if scene.backend == Backend::Namespace {
        let covers = "
            mv .secret x && echo did move; echo n > n; mv n .secret && echo did move over; rm -f .secret && echo did remove
            mv d e && echo did move above; ln n .secret && echo did link; echo the end";
        nothing_done(scene, &["--protect", "default", "--deny-read", ".secret", "--deny-read", "d/.secret"], covers)?;
        expect(scene.ws().join(".secret").exists() && scene.ws().join("d/.secret").exists(), "they are there")?;
    }
    // Where nothing is mounted and no root lies, all of it can be done.
    let (said, _) =
        scene.protected(&["/bin/bash", "-c", "mv a/inner a/old; mv .secret x; mv d e; rmdir a/old; echo $?"])?;
    expect(said.starts_with("0\n"), said)
}

/// The directories that lead to a root there are the command's own.
pub(super) fn temp_root(scene: &Scene) -> Result<(), String> {
    let place = scene.outside(&["mktemp", "-d", "/var/tmp/pinfold-XXXXXX"])?;
    let place = place.trim();
    let ws = format!("{place}/x/ws");
    scene.outside(&["mkdir", "-p", &format!("{ws}/.git/hooks")])?;
    let script = format!(
        "mv {place}/x {place}/z && echo did move; mv {place} /var/tmp/q && echo did move; mv {ws} {place}/q && echo did move
         for place in {place}/z/ws /var/tmp/q/x/ws {ws} {place}/q; do echo x > $place/.git/hooks/post-commit; mkdir $place/.idea; done
         echo the end"
    );
    let done = nothing_done(scene, &["--protect", "default", "--writable", &ws], &script);
    let hook = Path::new(&ws).join(".git/hooks/post-commit").exists();
    let settings = Path::new(&ws).join(".idea").exists();
    std::fs::remove_dir_all(place).map_err(|error| error.to_string())?;
    done?;
    expect(!hook && !settings, "nothing came to be")
}

/// A second wall behind the broker's decisions: what a mount tree does not hold, and what only the broker may look at.
pub(super) fn fifos_and_proc(scene: &Scene) -> Result<(), String> {
    let fifo = text(&scene.walls.home().join("broker-fifo"));
    scene.outside(&["mkfifo", &fifo])?;
    let control = format!("exec 3<>{fifo}; echo through");
    expect_equal(scene.outside(&["/bin/bash", "-c", &control])?, "through\n".to_owned())?;
    let script = format!(
        "(exec 3<>{fifo}) && echo did open; (echo x 1<>{fifo} >&0) && echo did write
         cat > look.py <<'end'
import os
for pid in filter(str.isdigit, os.listdir('/proc')):
    for name in ('environ', 'maps', 'mem', 'auxv', 'pagemap'):
        if int(pid) in (os.getpid(), os.getppid()): continue
        try: os.open(f'/proc/{{pid}}/{{name}}', os.O_RDONLY | os.O_CREAT); print('did open', pid, name)
        except PermissionError: pass
        except (FileNotFoundError, ProcessLookupError): pass
end
         python3 look.py; mkfifo in; (cat in & echo well > in; wait); echo the end"
    );
    let done = nothing_done(scene, &["--protect", "default"], &script);
    std::fs::remove_file(&fifo).map_err(|error| error.to_string())?;
    done
}

/// The same directory, mounted elsewhere as well. Landlock knows directories, not paths.
pub(super) fn other_name(scene: &Scene) -> Result<(), String> {
    let alias = text(&scene.walls.home().join("alias"));
    let ws = text(&scene.ws());
    // In a mount namespace of the caller's own, which leaves nothing on the host; an ordinary user makes one by user id.
    let before = scene.guarded();
    let script = format!(
        "mkdir -p {alias} && mount --bind {ws} {alias} || exit 9
         \"$@\" /bin/bash -c 'echo x > {alias}/.git/hooks/post-commit && echo did hook; mkdir {alias}/.idea && echo did make
         mv {alias}/.git/config {alias}/c && echo did move; ln {alias}/.git/config l && echo did link
         truncate -s 0 {alias}/.git/config && echo did truncate; chmod 777 {alias}/.git/config && echo did change
         echo well > here && echo the end'"
    );
    let mut run = scene.walls.run_words(Some(scene.backend), Mode::WorkspaceWrite);
    let dashes = run.pop().unwrap_or_default();
    run.extend(["--protect".to_owned(), "default".to_owned(), dashes]);
    let mut words: Vec<String> = ["unshare", "--mount"].map(str::to_owned).to_vec();
    if scene.walls.fixture.uid != 0 {
        words.push("--map-current-user".to_owned());
        words.push("--keep-caps".to_owned());
    }
    words.extend(["/bin/bash", "-c", &script, "sh"].map(str::to_owned));
    words.extend(run);
    let finished = Walls::finish(&mut scene.walls.plain(&words))?;
    let said = format!("{}{}", written(&finished.stdout), written(&finished.stderr));
    let _ = std::fs::remove_dir(&alias);
    expect(said.contains("the end") && !said.contains("did "), said)?;
    scene.unchanged(&before, "another name")
}

/// Writers that wait for readers hold descriptors of the broker's, as many as it may have.
pub(super) fn without_descriptors(scene: &Scene) -> Result<(), String> {
    let script = "
        for i in $(seq 120); do mkfifo f$i || break; done
        for i in $(seq 120); do (echo x > f$i) & mv .git/hooks stolen; rm -f .git/config; done
        kill $(jobs -p); echo the end";
    let before = scene.guarded();
    let mut words = scene.walls.run_words(Some(scene.backend), Mode::WorkspaceWrite);
    let dashes = words.pop().unwrap_or_default();
    words.extend(["--protect".to_owned(), "default".to_owned(), dashes]);
    words.splice(0..0, ["prlimit", "--nofile=128:128"].map(str::to_owned));
    words.extend(["/bin/bash", "-c", script].map(str::to_owned));
    let finished = Walls::finish(&mut scene.walls.plain(&words))?;
    let said = format!("{}{}", written(&finished.stdout), written(&finished.stderr));
    expect(said.contains("the end") && said.contains("Too many open files"), said)?;
    scene.unchanged(&before, "without descriptors")
}

pub(super) fn bounds_and_sizes(scene: &Scene) -> Result<(), String> {
    let script = "
        set -e; mkdir big; (cd big; seq 1500 | xargs mkdir); ulimit -Sn 64; mv big large; test -d large/1500; echo moved
        python3 -c 'import os, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN); open(\"f\", \"w\").close()
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY)); os.truncate(\"f\", 4096)
try: os.truncate(\"f\", 1 << 30)
except OSError as error: print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
import subprocess
for round in range(200):
    file = os.open(\"program\", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o755); os.write(file, open(\"/bin/true\", \"rb\").read())
    os.close(file); subprocess.run([\"./program\"], check=True)
print(\"executed\")'";
    for options in [&["--protect", "default"][..], &[]] {
        scene.lay_out()?;
        let (said, _) = scene.with(options, &["/bin/bash", "-c", script])?;
        expect(said.starts_with("moved\nFile too large\nexecuted\n"), said)?;
    }
    Ok(())
}

/// A process whose memory the broker may not read is refused what it asks for, and that is told, without a path.
pub(super) fn hidden(scene: &Scene) -> Result<(), String> {
    let script = "import ctypes, os, sys
if sys.argv[1] == 'hides': ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
try: os.mkdir('made-' + sys.argv[1]); print('done')
except PermissionError: print('refused')";
    // The control: one that does not hide does it.
    let (said, outcome) = scene.protected(&["/usr/bin/python3", "-c", script, "shows"])?;
    expect(said.starts_with("done\n") && denials(&outcome).is_empty(), format!("{said} {outcome}"))?;
    let (said, outcome) = scene.protected(&["/usr/bin/python3", "-c", script, "hides"])?;
    let (refused, told) = (said.starts_with("refused\n"), denials(&outcome));
    expect_equal((scene.ws().join("made-hides").exists(), told.len()), (!refused, usize::from(refused)))?;
    expect(
        refused || scene.backend != Backend::Landlock,
        "the broker reads what hides; SECURITY.md says that it does not",
    )?;
    let what = told.first().map(|told| (told["operation"].clone(), told["path"].clone()));
    expect(!refused || what == Some(("mkdir".into(), serde_json::Value::Null)), outcome.to_string())
}
