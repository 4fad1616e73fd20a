//! The question to a person, on the terminal that the process was started from.
//!
//! SECURITY: almost every word of a question was chosen by somebody else: the model, the command, whoever named a file. So
//! each foreign word is quoted, foreign lines are broken by us and stand behind a mark of ours, what does not fit is
//! counted and cannot be allowed by a single key, and what was typed before the question came is thrown away. The terminal
//! is opened by name and is not standard input, which belongs to the command.

use crate::approver::{Approver, Question};
use crate::grant::{Life, Scope};
use crate::log::event::Asked;
use crate::screen::{Size, USUAL, own_screen, size};
use crate::session::Verdict;
use pinfold_policy::quote::quote;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::termios::{QueueSelector, tcflush};
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Instant;

/// How many columns of a line are foreign text at most.
const COLUMNS: usize = 72;

/// How many lines of foreign text are shown of one thing.
const LINES: usize = 24;

/// How much is read as one answer.
const LONGEST_ANSWER: usize = 256;

/// How often a text that is no answer is answered by the question again.
const TRIES: u32 = 3;

/// Asks on a terminal.
#[derive(Debug, Clone)]
pub struct Terminal {
    path: PathBuf,
}

impl Default for Terminal {
    /// The terminal that controls this process (tty(4)).
    fn default() -> Self {
        Self { path: "/dev/tty".into() }
    }
}

impl Terminal {
    /// The terminal with this name.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Says whether there is a terminal to ask on.
    pub fn is_present(&self) -> bool {
        self.open().is_ok()
    }

    fn open(&self) -> rustix::io::Result<OwnedFd> {
        rustix::fs::open(&self.path, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
    }
}

impl Approver for Terminal {
    /// Asks once a line is typed; without a terminal the question is passed on.
    fn answer(&self, question: &Question<'_>) -> Option<Verdict> {
        let terminal = self.open().ok()?;
        let shown = render_with(question.session.as_str(), question.asked, size(&terminal), &word());
        for tries in 0..TRIES {
            // SECURITY: an earlier command may have left a region that scrolls, or letters that nobody sees.
            if tries == 0 {
                let _ = write_all(&terminal, &own_screen(size(&terminal)), question);
            }
            // SECURITY: what was typed before does not answer this.
            let _ = tcflush(&terminal, QueueSelector::IFlush);
            let text = if tries == 0 { shown.text.clone() } else { format!("not an answer.\n{}", shown.choices) };
            if write_all(&terminal, text.as_bytes(), question).is_none() {
                return Some(Verdict::Unavailable);
            }
            match read_line(&terminal, question) {
                Typed::Line(line) => match shown.meaning(&line) {
                    Some(verdict) => return Some(verdict),
                    None => continue,
                },
                Typed::End => return Some(Verdict::Cancelled),
                Typed::Withdrawn => {
                    // Whoever has stopped the terminal is not waited for.
                    if poll(&mut [PollFd::new(&terminal, PollFlags::OUT)], Some(&Timespec::default())) == Ok(1) {
                        let _ = rustix::io::write(&terminal, b"\nthe question was withdrawn\n");
                    }
                    return Some(if question.cancel.is_cancelled() {
                        Verdict::Cancelled
                    } else {
                        Verdict::Unavailable
                    });
                }
            }
        }
        Some(Verdict::Unavailable)
    }
}

/// A question as it is shown.
#[derive(Debug)]
struct Shown {
    text: String,
    choices: String,
    offers: usize,
    /// What must be typed behind the number: a word that a running command cannot know, and one that says that not
    /// everything could be shown.
    behind: Vec<String>,
}

impl Shown {
    fn meaning(&self, line: &str) -> Option<Verdict> {
        let mut words = line.split_whitespace();
        let first = words.next();
        let rest: Vec<&str> = words.collect();
        match first {
            None => Some(Verdict::Rejected),
            Some("n" | "no") if rest.is_empty() => Some(Verdict::Rejected),
            Some(number) if rest == self.behind => {
                let number = number.parse::<usize>().ok()?;
                (1..=self.offers).contains(&number).then(|| Verdict::Allowed(number - 1))
            }
            _ => None,
        }
    }
}

/// A word for one question.
///
/// SECURITY: a command that runs may write to the same terminal. It could paint a harmless question over ours; whoever
/// answers that one does not know this word, and the command cannot read it off the screen.
fn word() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    // The state is keyed by the host's random numbers.
    let mut number = RandomState::new().hash_one(Instant::now());
    let letters = b"bcdfghjkmnpqrstvwxz";
    let mut letter = || {
        let index = (number % letters.len() as u64) as usize;
        number /= letters.len() as u64;
        char::from(letters[index])
    };
    (0..4).map(|_| letter()).collect()
}

/// A question as text, for a form that has its own way of answering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuestionText {
    /// What would run, where, why, and what can be allowed. Every foreign word is quoted and stands behind a bar.
    pub text: String,
    /// Whether all of it is shown. If not, a yes has to say that it is meant all the same.
    pub whole: bool,
}

/// Makes the text of a question without the words that tell how to answer it.
pub fn question_text(session: &str, asked: &Asked) -> QuestionText {
    let (text, whole) = describe(session, asked, USUAL.columns);
    QuestionText { text, whole }
}

/// Makes the text of a question for a terminal of this size.
#[cfg(test)]
fn render(session: &str, asked: &Asked, size: Size) -> Shown {
    render_with(session, asked, size, "kmfq")
}

/// The same; `word` is to be typed if a command runs meanwhile.
fn render_with(session: &str, asked: &Asked, size: Size, word: &str) -> Shown {
    let (described, whole) = describe(session, asked, size.columns);
    let mut out = format!("\n{described}");
    let line = |out: &mut String, text: &str| ours(out, text, size.columns);
    let live = asked.offers.iter().any(|offer| matches!(offer.scope, Scope::Effect { .. }));
    let count = asked.offers.len();
    // SECURITY: a long reason would push the command off the screen.
    let whole = whole && out.lines().count() + 3 <= size.rows;
    if !whole {
        line(&mut out, "Not all of it is on the screen. To allow it all the same, type the word unseen as well.");
    }
    let mut behind: Vec<String> = Vec::new();
    behind.extend(live.then(|| word.to_owned()));
    behind.extend((!whole).then(|| "unseen".to_owned()));
    let number = if count == 1 && live { "1".to_owned() } else { format!("1 to {count}") };
    let words = behind.iter().map(|word| format!(" {word}")).collect::<String>();
    let mut choices = String::new();
    line(&mut choices, &format!("type {number}{words}, or n for no:"));
    // The answer stands behind it.
    choices.truncate(choices.trim_end().len());
    choices.push(' ');
    out.push_str(&choices);
    Shown { text: out, choices, offers: count, behind }
}

/// Says what would run, where, why, and what can be allowed; and whether all of it is said.
fn describe(session: &str, asked: &Asked, width: usize) -> (String, bool) {
    let mut out = String::new();
    let mut whole = true;
    let columns = COLUMNS.min(width - 5);
    let foreign = |out: &mut String, quoted: &str| foreign(out, quoted, columns);
    let line = |out: &mut String, text: &str| ours(out, text, width);
    line(&mut out, &format!("pinfold asks: session {}, question {}", plain(session), plain(&asked.id)));
    line(&mut out, &format!("  {} runs this {}:", quote(plain(&asked.tool_name)), asked.subject));
    whole &= foreign(&mut out, &asked.argv.iter().map(quote).collect::<Vec<_>>().join(" "));
    if asked.unseen_bytes > 0 {
        line(&mut out, &format!("  ~ and {} more bytes, which are not shown", asked.unseen_bytes));
        whole = false;
    }
    line(&mut out, "  in the directory:");
    whole &= foreign(&mut out, &quote(&asked.cwd));
    if let Some(program) = &asked.program {
        let writable = if program.writable { ", a file that confined commands can write" } else { "" };
        line(&mut out, &format!("  starting the program{writable}:"));
        whole &= foreign(&mut out, &quote(&program.path));
        if !program.left_out.is_empty() {
            line(&mut out, "  leaving out of PATH, because confined commands can write there:");
            whole &= foreign(&mut out, &program.left_out.iter().map(quote).collect::<Vec<_>>().join(" "));
        }
    }
    line(&mut out, &format!("  under mode {}. The reason it gives:", asked.mode));
    whole &= foreign(&mut out, &quote(&asked.reason));
    if !asked.denied.is_empty() {
        line(&mut out, "  refused before:");
        whole &= foreign(&mut out, &asked.denied.iter().map(quote).collect::<Vec<_>>().join(" "));
    }
    line(&mut out, "allow:");
    for (number, offer) in asked.offers.iter().enumerate() {
        let life = match offer.life {
            Life::Call => "for this one call",
            Life::Session => "for the rest of the session, until it is revoked",
        };
        match &offer.scope {
            Scope::Mode { mode } => line(&mut out, &format!("  {}) mode {mode}, {life}", number + 1)),
            Scope::Write { path } => {
                line(&mut out, &format!("  {}) writing below this directory, {life}:", number + 1));
                whole &= foreign(&mut out, &quote(path));
            }
            Scope::Effect { effect } => {
                line(
                    &mut out,
                    &format!("  {}) once, while the command waits: {} of", number + 1, plain(&effect.operation)),
                );
                whole &= foreign(&mut out, &quote(&effect.path));
                if let Some(other) = &effect.other {
                    line(&mut out, "     and:");
                    whole &= foreign(&mut out, &quote(other));
                }
                if let Some(detail) = &effect.detail {
                    line(&mut out, "     namely:");
                    whole &= foreign(&mut out, &quote(detail));
                }
                if effect.operation == "link" {
                    line(&mut out, "     (one file by two names then, and only one of them is protected)");
                }
                line(
                    &mut out,
                    &format!("     by process {} ({}), which calls itself:", effect.process, plain(&effect.name)),
                );
                whole &= foreign(&mut out, &effect.argv.iter().map(quote).collect::<Vec<_>>().join(" "));
                whole &= effect.argv_is_whole;
            }
        }
    }
    (out, whole)
}

/// Writes a sentence of ours, broken between words; what follows the first line is indented below it.
fn ours(out: &mut String, text: &str, width: usize) {
    let indent = text.len() - text.trim_start().len();
    let mut column = 0;
    for word in text.split_whitespace() {
        let size = word.chars().count();
        if column == 0 {
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if column + 1 + size >= width {
            let below = indent + 2;
            out.push('\n');
            out.push_str(&" ".repeat(below));
            column = below;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += size;
    }
    out.push('\n');
}

/// A name of ours that came through a log: letters, digits and a few signs, and not many.
fn plain(name: &str) -> String {
    let harmless = |letter: &char| letter.is_ascii_alphanumeric() || "-_./: ".contains(*letter);
    name.chars().map(|letter| if harmless(&letter) { letter } else { '?' }).take(64).collect()
}

/// Writes quoted foreign text in lines of our own making; returns whether all of it was written.
fn foreign(out: &mut String, quoted: &str, most: usize) -> bool {
    let mut lines = 0;
    let mut width = most;
    let mut left = quoted.chars();
    while let Some(letter) = left.next() {
        // A letter outside of ASCII may be two columns wide.
        let columns = if letter.is_ascii() { 1 } else { 2 };
        if width + columns > most {
            if lines == LINES {
                let rest = 1 + left.count();
                let _ = writeln!(out, "\n  ~ and {rest} more characters,\n  ~ which are not shown");
                return false;
            }
            out.push_str(if lines == 0 { "  | " } else { "\n  | " });
            (lines, width) = (lines + 1, 0);
        }
        out.push(letter);
        width += columns;
    }
    out.push('\n');
    true
}

/// Waits until the terminal is ready, the deadline has passed or the question was withdrawn.
fn ready(terminal: &OwnedFd, flags: PollFlags, question: &Question<'_>) -> bool {
    loop {
        if question.cancel.is_cancelled() || Instant::now() >= question.deadline {
            return false;
        }
        // Short, because the cancellation has no descriptor here.
        let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        match poll(&mut [PollFd::new(terminal, flags)], Some(&moment)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

fn write_all(terminal: &OwnedFd, mut bytes: &[u8], question: &Question<'_>) -> Option<()> {
    while !bytes.is_empty() {
        if !ready(terminal, PollFlags::OUT, question) {
            return None;
        }
        match rustix::io::write(terminal, bytes.get(..512).unwrap_or(bytes)) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => return None,
        }
    }
    Some(())
}

enum Typed {
    Line(String),
    End,
    Withdrawn,
}

/// Reads one line as the terminal hands it over (termios(3), canonical mode).
fn read_line(terminal: &OwnedFd, question: &Question<'_>) -> Typed {
    let mut line = Vec::new();
    loop {
        if !ready(terminal, PollFlags::IN, question) {
            return Typed::Withdrawn;
        }
        let mut buffer = [0; LONGEST_ANSWER];
        match rustix::io::read(terminal, &mut buffer) {
            Ok(0) => return Typed::End,
            Ok(count) => line.extend_from_slice(&buffer[..count]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => return Typed::End,
        }
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            line.truncate(end);
            return Typed::Line(String::from_utf8_lossy(&line).into_owned());
        }
        if line.len() > LONGEST_ANSWER {
            return Typed::Line("?".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::event::Offer;
    use pinfold_policy::SandboxMode;
    use pinfold_policy::escalation::Subject;
    use proptest::prelude::*;

    const TALL: Size = Size { columns: 80, rows: 1000 };

    fn asked(argv: &[&str], reason: &str) -> Asked {
        Asked {
            id: "a1".to_owned(),
            tool_name: "pinfold run".to_owned(),
            call_id: None,
            reason: reason.to_owned(),
            subject: Subject::Command,
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            unseen_bytes: 0,
            cwd: "/w".to_owned(),
            program: None,
            mode: SandboxMode::ReadOnly,
            denied: Vec::new(),
            offers: vec![
                Offer { scope: Scope::Write { path: "/w/out".into() }, life: Life::Call },
                Offer { scope: Scope::Mode { mode: SandboxMode::WorkspaceWrite }, life: Life::Call },
            ],
            digest: crate::digest::of_argv(&[]),
            until: 0,
            asker: None,
        }
    }

    // W31: argv, directory, mode and reason are shown.
    #[test]
    fn a_question_shows_what_would_run_where_and_why() {
        let shown = render("s1", &asked(&["touch", "a b"], "the build needs it"), TALL);
        for words in
            ["\"touch\" \"a b\"", "| \"/w\"", "mode read-only", "\"the build needs it\"", "2) mode workspace-write"]
        {
            assert!(shown.text.contains(words), "{words}: {}", shown.text);
        }
    }

    #[test]
    fn what_stands_there_by_its_digest_alone_takes_a_word_of_its_own() {
        let asked = Asked { unseen_bytes: 4321, ..asked(&["write", "/w/f", "the beginning"], "y") };
        let shown = render("s1", &asked, TALL);
        assert!(shown.text.contains("~ and 4321 more bytes, which are not shown"), "{}", shown.text);
        assert_eq!((shown.meaning("1"), shown.meaning("1 unseen")), (None, Some(Verdict::Allowed(0))));
        assert!(!question_text("s1", &asked).whole);
    }

    #[test]
    fn only_a_number_that_is_offered_allows() {
        let shown = render("s1", &asked(&["x"], "y"), TALL);
        for (line, meaning) in [
            ("1", Some(Verdict::Allowed(0))),
            (" 2 ", Some(Verdict::Allowed(1))),
            ("", Some(Verdict::Rejected)),
            ("n", Some(Verdict::Rejected)),
            ("no", Some(Verdict::Rejected)),
            ("0", None),
            ("3", None),
            ("y", None),
            ("yes", None),
            ("1 2", None),
            ("1 unseen", None),
            ("-1", None),
            ("99999999999999999999999", None),
        ] {
            assert_eq!(shown.meaning(line), meaning, "{line:?}");
        }
    }

    #[test]
    fn an_effect_is_allowed_by_its_number_and_the_word_of_this_question() {
        let mut asked = asked(&["make"], "y");
        let effect = crate::grant::LiveEffect {
            operation: "rename".to_owned(),
            path: "/w/.git/config".to_owned(),
            detail: None,
            other: Some("/w/x\u{1b}[2J".to_owned()),
            rule: Some("git-control".to_owned()),
            process: 7,
            name: "mv\n1)".to_owned(),
            argv: vec!["mv".to_owned(), "\rx".to_owned()],
            argv_is_whole: true,
        };
        asked.offers = vec![Offer { scope: Scope::Effect { effect: effect.clone() }, life: Life::Call }];
        let shown = render("s1", &asked, TALL);
        for words in
            ["rename of", "\"/w/.git/config\"", "\"/w/x\\x1b[2J\"", "process 7 (mv?1?)", "\"\\rx\"", "type 1 kmfq"]
        {
            assert!(shown.text.contains(words), "{words}: {}", shown.text);
        }
        assert!(!shown.text.chars().any(|letter| letter.is_control() && letter != '\n'), "{:?}", shown.text);
        for (line, meaning) in [
            ("1 kmfq", Some(Verdict::Allowed(0))),
            ("1", None),
            ("1 kmfx", None),
            ("2 kmfq", None),
            ("kmfq", None),
            ("1 kmfq unseen", None),
            ("n", Some(Verdict::Rejected)),
            ("", Some(Verdict::Rejected)),
        ] {
            assert_eq!(shown.meaning(line), meaning, "{line:?}");
        }
        asked.offers = vec![Offer {
            scope: Scope::Effect { effect: crate::grant::LiveEffect { argv_is_whole: false, ..effect } },
            life: Life::Call,
        }];
        let shown = render("s1", &asked, TALL);
        assert_eq!(shown.meaning("1 kmfq"), None);
        assert_eq!(shown.meaning("1 kmfq unseen"), Some(Verdict::Allowed(0)));
        assert_ne!(word(), word());
    }

    #[test]
    fn what_could_not_be_shown_is_not_allowed_by_a_number_alone() {
        let shown = render("s1", &asked(&["sh", "-c", &" ".repeat(100_000)], "y"), TALL);
        assert!(shown.text.contains("which are not shown") && shown.text.len() < 20_000);
        assert_eq!(shown.meaning("2"), None);
        assert_eq!(shown.meaning("2 unseen"), Some(Verdict::Allowed(1)));
    }

    // A terminal breaks a line that is too long where it likes, and what follows would stand without our mark.
    #[test]
    fn a_question_fits_a_narrow_terminal() {
        for width in [24, 40, 80, 200] {
            let shown = render(
                "20765956b2",
                &asked(&["make", &"x".repeat(300), "\u{4e2d}\u{6587}"], "a long reason, in many words, for all of it"),
                Size { columns: width, ..TALL },
            );
            let columns = |line: &str| line.chars().map(|letter| if letter.is_ascii() { 1 } else { 2 }).sum::<usize>();
            let wide = shown.text.lines().find(|line| columns(line) >= width);
            assert_eq!(wide, None, "{width}");
            let flat = shown.text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.ends_with("or n for no:") && shown.text.ends_with(' '), "{}", shown.text);
        }
    }

    // What has gone off the screen is not allowed by a single key either.
    #[test]
    fn a_question_that_is_taller_than_the_screen_says_so() {
        let long = asked(&["rm", "-rf", "/"], &"because ".repeat(150));
        let (small, tall) = (render("s1", &long, Size { columns: 80, rows: 24 }), render("s1", &long, TALL));
        assert_eq!((small.meaning("1"), tall.meaning("1")), (None, Some(Verdict::Allowed(0))));
        assert_eq!(small.meaning("1 unseen"), Some(Verdict::Allowed(0)));
        let short = asked(&["touch", "f"], "because");
        assert_eq!(render("s1", &short, Size { columns: 80, rows: 24 }).meaning("1"), Some(Verdict::Allowed(0)));
    }

    #[test]
    fn foreign_lines_stand_behind_our_mark() {
        let forged = "x\n  1) mode read-only\u{1b}[2J\u{202e}\r\u{9b}2K                                                                                 allow: 1) nothing";
        let shown = render("s1", &asked(&[forged], forged), TALL);
        let ours = [
            "",
            "pinfold asks:",
            "  \"pinfold run\" runs",
            "  in the directory",
            "  under mode",
            "allow:",
            "  1) writing",
            "  2) mode",
            "type 1",
        ];
        for line in shown.text.lines() {
            assert!(
                line.starts_with("  | ")
                    || ours.iter().any(|start| !start.is_empty() && line.starts_with(start))
                    || line.is_empty(),
                "{line:?}"
            );
        }
        assert!(!shown.text.chars().any(|letter| letter.is_control() && letter != '\n'), "{:?}", shown.text);
        assert!(!shown.text.contains('\u{202e}'));
    }

    proptest! {
        #[test]
        fn no_foreign_text_reaches_a_terminal_as_a_command(
            words in proptest::collection::vec(".*", 1..4),
            reason in ".*",
            width in 24_usize..120,
        ) {
            let argv: Vec<&str> = words.iter().map(String::as_str).collect();
            let shown = render(&reason, &asked(&argv, &reason), Size { columns: width, ..TALL });
            prop_assert!(!shown.text.chars().any(|letter| letter.is_control() && letter != '\n'));
            // A word of ours is never broken; the longest is a name that came through the log.
            let name = plain(&reason);
            let of_name = |line: &str| name.split_whitespace().any(|part| line.contains(part));
            let wide = shown.text.lines().find(|line| line.chars().count() > width && !of_name(line));
            prop_assert!(wide.is_none(), "{wide:?}");
        }
    }
}
