//! The guide works as it is typed: every line of docs/guide.md goes through a terminal, as a person would type it.

mod scene;

use scene::Scene;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Much longer than anything takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of the walk-through.
fn lines() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, walk) = text.split_once("<!-- walk-through").expect("the guide has a walk-through");
    let mut lines = Vec::new();
    let mut shell = false;
    for line in walk.lines() {
        match line {
            "```sh" => shell = true,
            "```" => shell = false,
            _ if shell => lines.push(line.to_owned()),
            _ => {}
        }
    }
    lines
}

/// A shell on a terminal of its own.
struct Terminal {
    child: Child,
    said: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    fn open(scene: &Scene) -> Self {
        let mut command = Command::new("script");
        command.args(["-qec", "sh", "/dev/null"]).current_dir(scene.path("home"));
        let path = format!("{}:/usr/bin:/bin", scene::program().parent().unwrap().display());
        command.env("HOME", scene.path("home")).env("PATH", path).env("PS1", "$ ").env_remove("XDG_STATE_HOME");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let (tell, said) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                if tell.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, said, text: String::new() }
    }

    fn type_line(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// Waits until a text appears behind what was waited for before, and returns what came up to it.
    fn wait_for(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.text.find(text) {
                let rest = self.text.split_off(at + text.len());
                return std::mem::replace(&mut self.text, rest);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("{text:?} does not appear in {:?}", self.text),
            }
        }
    }

    /// Types a line, answers the question that it leads to, if it does, and returns what it said and its status.
    fn act(&mut self, line: &str) -> (String, String) {
        self.type_line(line);
        if line.contains("--escalate") {
            self.wait_for("type 1 to 1, or n for no: ");
            self.type_line("1");
        } else if line.contains("--ask-write") {
            self.wait_for("type 1 to 2, or n for no: ");
            self.type_line("2");
        }
        // Spelled so that the echo of what is typed is not taken for the answer.
        self.type_line("echo stat\"us:\"$?:");
        let said = self.wait_for("status:");
        let status = self.wait_for(":");
        (said, status.trim_end_matches(':').to_owned())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_guide_works_as_it_is_typed() {
    let scene = Scene::new();
    let mut terminal = Terminal::open(&scene);
    let lines = lines();
    assert!(lines.len() >= 10, "{lines:?}");
    let mut denied = Vec::new();
    for line in &lines {
        let (said, status) = terminal.act(line);
        if said.contains("Read-only file system") {
            assert_ne!(status, "0", "{line}: {said}");
            denied.push(line.split(" touch ").nth(1).unwrap_or_default().to_owned());
        } else {
            assert_eq!(status, "0", "{line}: {said}");
        }
    }
    // Denied are the first call, and the one after the grant was taken back; nothing else.
    assert_eq!(denied, ["notes", "~/demo/out/last"]);
    for (name, exists) in [("project/notes", true), ("out/result", true), ("out/more", true), ("out/last", false)] {
        assert_eq!(scene.path("home/demo").join(name).exists(), exists, "{name}");
    }
    let (log, _) = terminal.act("pinfold session log $S");
    for kind in ["approval/asked", "approval/decided", "grant/given", "grant/used", "grant/revoked", "call/ended"] {
        assert!(log.contains(kind), "{kind}: {log}");
    }
}
