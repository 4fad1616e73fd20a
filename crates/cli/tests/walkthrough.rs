//! The guide works as it is typed: every line of docs/guide.md goes into a terminal multiplexer, as a person would type it, at
//! two widths; and what the screens show is what the guide says.

mod scene;

use scene::Scene;
use std::process::Command;
use std::time::{Duration, Instant};

/// Much longer than anything takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn guide() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide.md");
    let text = std::fs::read_to_string(path).unwrap();
    text.split_once("<!-- walk-through").expect("the guide has a walk-through").1.to_owned()
}

/// The lines of the walk-through, and whether they are for the second terminal.
fn lines(guide: &str) -> Vec<(bool, String)> {
    let mut lines = Vec::new();
    let mut shell = None;
    for line in guide.lines() {
        match (line, shell) {
            ("```sh", _) => shell = Some(false),
            ("```sh second", _) => shell = Some(true),
            ("```", _) => shell = None,
            (_, Some(second)) => lines.push((second, line.to_owned())),
            _ => {}
        }
    }
    lines
}

/// A server of our own with two terminals, one above the other.
struct Screens<'a> {
    scene: &'a Scene,
    width: usize,
    /// How many lines each was asked about.
    typed: [u32; 2],
}

impl<'a> Screens<'a> {
    fn open(scene: &'a Scene, width: usize) -> Self {
        let screens = Self { scene, width, typed: [0; 2] };
        screens.tmux(&["new-session", "-d", "-s", "s", "-x", &width.to_string(), "-y", "80", "sh"]);
        screens.tmux(&["split-window", "-d", "-v", "-t", "s", "sh"]);
        screens
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let path = format!("{}:/usr/bin:/bin", scene::program().parent().unwrap().display());
        command.args(["-L", "guide", "-f", "/dev/null"]).args(words).current_dir(self.scene.path("home"));
        command.env("TMUX_TMPDIR", self.scene.path("outside")).env("HOME", self.scene.path("home")).env("PATH", path);
        command.env("PS1", "$ ").env("LC_ALL", "C.UTF-8").env_remove("XDG_STATE_HOME").env_remove("TMUX");
        let output = command.output().expect("tmux is installed");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn type_line(&self, pane: usize, line: &str) {
        let target = format!("s.{pane}");
        self.tmux(&["send-keys", "-t", &target, "-l", line]);
        self.tmux(&["send-keys", "-t", &target, "Enter"]);
    }

    /// Everything that a terminal has shown; with `joined`, lines that it broke are one.
    fn shown(&self, pane: usize, joined: bool) -> String {
        let target = format!("s.{pane}");
        let mut words = vec!["capture-pane", "-p", "-S", "-", "-t", &target];
        words.extend(joined.then_some("-J"));
        self.tmux(&words)
    }

    /// Waits until a text appears so many times.
    fn wait_for(&self, pane: usize, text: &str, times: usize) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let shown = self.shown(pane, true);
            if shown.matches(text).count() >= times {
                return shown;
            }
            assert!(Instant::now() < deadline, "{text:?} does not appear {times} times in {shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks for the status of the last line and returns what the line said, and the status.
    fn finish(&mut self, pane: usize) -> (String, String) {
        self.typed[pane] += 1;
        let typed = self.typed[pane];
        // Spelled so that the echo of what is typed is not taken for the answer.
        self.type_line(pane, &format!("echo stat\"us{typed}:\"$?:end"));
        let mark = format!("status{typed}:");
        let shown = self.wait_for(pane, &mark, 1);
        let (before, after) = shown.rsplit_once(&mark).unwrap();
        let earlier = before.rsplit_once(&format!("status{}:", typed - 1)).map_or(before, |(_, said)| said);
        (earlier.to_owned(), after.split(':').next().unwrap().to_owned())
    }

    /// The question on a screen, from its first line on: none of its lines was broken by the terminal, so each begins with
    /// what is ours.
    fn question(&self, pane: usize) -> Vec<String> {
        let shown = self.shown(pane, false);
        let at = shown.rfind("pinfold asks:").expect("a question is shown");
        let lines: Vec<_> = shown[at..].lines().map(|line| line.trim_end().to_owned()).collect();
        let end = lines.iter().position(|line| line.ends_with("or n for no:")).expect("it ends in what can be typed");
        for line in &lines[..=end] {
            assert!(line.chars().count() < self.width, "{line:?}");
            let ours = ["pinfold asks:", "  ", "allow:", "type "].iter().any(|start| line.starts_with(start));
            assert!(ours, "{line:?} in {lines:#?}");
        }
        lines[..=end].to_vec()
    }
}

impl Drop for Screens<'_> {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        let _ = command.args(["-L", "guide", "kill-server"]).env("TMUX_TMPDIR", self.scene.path("outside")).output();
    }
}

fn walk(width: usize) {
    let scene = Scene::new();
    let guide = guide();
    let lines = lines(&guide);
    assert!(lines.len() >= 10 && lines.iter().any(|(second, _)| *second), "{lines:?}");
    let mut screens = Screens::open(&scene, width);
    let (mut denied, mut pending) = (Vec::new(), false);
    for (second, line) in &lines {
        let pane = usize::from(*second);
        screens.type_line(pane, line);
        if line.starts_with("setsid") {
            // It waits, and says where it can be answered.
            screens.wait_for(0, "pinfold: waiting for an answer", 1);
            pending = true;
            continue;
        }
        if line.contains("--escalate") {
            screens.wait_for(0, "or n for no:", 1);
            let question = screens.question(0);
            // What the guide shows, but for names.
            let text = guide.split_once("```text\n").unwrap().1.split_once("\n```").unwrap().0;
            let home = scene.path("home").display().to_string();
            let like = text.replace("/home/ann", &home);
            if width == 80 {
                for (shown, like) in question.iter().zip(like.lines()).skip(1) {
                    if !like.contains(&home) {
                        assert_eq!(shown, like.trim_end());
                    }
                }
            }
            screens.type_line(0, "1");
        }
        if *second {
            screens.wait_for(1, "or n for no:", 1);
            assert!(screens.question(1).iter().any(|line| line.starts_with("  | \"touch\"")));
            screens.type_line(1, "2");
            let (said, status) = screens.finish(1);
            assert!(said.contains("pinfold: allowed") && status == "0", "{said}");
        }
        if *second && !std::mem::take(&mut pending) {
            continue;
        }
        let (said, status) = screens.finish(0);
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
    screens.type_line(0, "clear; pinfold session log $S");
    let (log, _) = screens.finish(0);
    for kind in ["approval/asked", "approval/decided", "grant/given", "grant/used", "grant/revoked", "call/ended"] {
        assert!(log.contains(kind), "{kind}: {log}");
    }
    assert!(log.contains("allowed-once") && log.contains("allowed-for-session"), "{log}");
}

#[test]
fn the_guide_works_as_it_is_typed() {
    walk(80);
}

// A narrow terminal shows the same, in lines of our own making.
#[test]
fn the_guide_works_on_forty_columns() {
    walk(40);
}
