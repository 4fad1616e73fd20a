//! `exec --tty`: what a person sees at a terminal.

mod scene;

use scene::{Answer, Scene, program};
use std::process::Command;

/// Plays a person: starts `pinfold exec --tty` on a terminal of 30 by 90, types when a word appears, and says what came of it.
const PERSON: &str = r#"
import fcntl, os, pty, select, signal, struct, sys, termios, time
program, command, steps = sys.argv[1], sys.argv[2], sys.argv[3:]
ours, theirs = pty.openpty()
fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
before = termios.tcgetattr(theirs)
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    for n in range(3): os.dup2(theirs, n)
    os.execv(program, [program, "exec", "--tty", "--", command])
text, raw, end = b"", False, time.time() + 60
def read_until(word):
    global text, raw
    while word not in text and time.time() < end:
        if select.select([ours], [], [], 0.05)[0]:
            text += os.read(ours, 4096)
        raw = raw or not termios.tcgetattr(theirs)[3] & termios.ICANON
for step in steps:
    word, act = step.split("=", 1)
    read_until(word.encode())
    if act == "resize":
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 5, 60, 0, 0))
    elif act.startswith("signal"):
        os.kill(child, int(act[6:]))
    else:
        os.write(ours, act.encode().decode("unicode_escape").encode())
while time.time() < end:
    pid, status = os.waitpid(child, os.WNOHANG)
    if select.select([ours], [], [], 0.02)[0]: text += os.read(ours, 4096)
    elif pid: break
else:
    os.kill(child, 9)
sys.stdout.buffer.write(text)
print("\nstatus", os.waitstatus_to_exitcode(status), "raw", raw, "restored", termios.tcgetattr(theirs) == before)
"#;

fn person(scene: &Scene, command: &str, steps: &[&str]) -> Answer {
    // So that the first call's probe is over.
    scene.run(["exec", "--", "true"]);
    let mut python = Command::new("python3");
    python.args(["-c", PERSON]).arg(program()).arg(command).args(steps);
    Answer::of(python.current_dir(scene.workspace()).env("HOME", scene.path("home")))
}

#[test]
fn keys_output_and_size_pass_and_the_terminal_is_as_before() {
    let scene = Scene::new();
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size; trap 'echo now $(stty size)' WINCH; echo ready; \
                  read line; echo \"got $line\"; while :; do sleep 0.02; read -t 0.1 last && break; done; \
                  echo \"end $last\"; touch ../outside/x; exit 7";
    let answer = person(&scene, script, &["ready=some words\\r", "got some words=resize", "now 5 60=bye\\r"]);
    for part in ["30 90", "got some words", "now 5 60", "end bye", "status 7 raw True restored True"] {
        assert!(answer.out.contains(part), "{part}: {answer:?}");
    }
    assert!(!scene.path("outside/x").exists());
}

#[test]
fn an_interrupt_key_reaches_the_command_and_a_signal_ends_the_call() {
    let scene = Scene::new();
    let script = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.02; done";
    let answer = person(&scene, script, &["ready=\\x03"]);
    assert!(answer.out.contains("interrupted") && answer.out.contains("status 5 raw True restored True"), "{answer:?}");
    let answer = person(&scene, "echo ready; exec sleep 60", &["ready=signal15"]);
    assert!(answer.out.contains("status 143 raw True restored True"), "{answer:?}");
}

#[test]
fn without_a_terminal_nothing_runs() {
    let scene = Scene::new();
    let answer = scene.run(["exec", "--tty", "--", "touch ran"]);
    assert!(answer.status == Some(2) && answer.err.contains("have to be one with --tty"), "{answer:?}");
    assert!(!scene.workspace().join("ran").exists());
}
