//! Rust source taken apart line by line: code without comments and without the contents of literals, comments, and what
//! belongs to tests. Enough for lints that look for words; not a parser.

/// One line of a source file.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// The code on it; the contents of strings and characters are blank.
    pub(crate) code: String,
    /// The comments on it, of any kind.
    pub(crate) comment: String,
    /// Whether it belongs to an item under `#[cfg(test)]`.
    pub(crate) of_test: bool,
}

impl Line {
    /// True if there is nothing to compile on it.
    pub(crate) fn is_empty(&self) -> bool {
        self.code.trim().is_empty()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    /// How deep it is nested.
    BlockComment(usize),
    /// Ends at an unescaped quote.
    Text,
    /// Ends at a quote and this many hashes.
    RawText(usize),
}

/// Takes a file apart.
pub(crate) fn lines(text: &str) -> Vec<Line> {
    let mut lines = split(text);
    mark_tests(&mut lines);
    lines
}

fn split(text: &str) -> Vec<Line> {
    let characters: Vec<char> = text.chars().collect();
    let at = |index: usize| characters.get(index).copied().unwrap_or('\0');
    let (mut lines, mut line, mut state, mut index) = (Vec::new(), Line::default(), State::Code, 0);
    while index < characters.len() {
        let (here, next) = (at(index), at(index + 1));
        if here == '\n' {
            if state == State::LineComment {
                state = State::Code;
            }
            lines.push(std::mem::take(&mut line));
            index += 1;
            continue;
        }
        let mut taken = 1;
        match state {
            State::Code => match (here, next) {
                ('/', '/') => state = State::LineComment,
                ('/', '*') => (state, taken) = (State::BlockComment(1), 2),
                ('"', _) => {
                    line.code.push('"');
                    state = State::Text;
                }
                ('\'', _) => {
                    // A character, or a lifetime.
                    taken = match (next, at(index + 2)) {
                        ('\\', _) => {
                            let end = (index + 3..characters.len()).find(|end| at(*end) == '\'');
                            end.map_or(1, |end| end + 1 - index)
                        }
                        (_, '\'') => 3,
                        _ => 1,
                    };
                    line.code.push_str(if taken == 1 { "'" } else { "' '" });
                }
                ('r', '"' | '#') if !ends_in_word(&line.code) => {
                    let hashes = (index + 1..).take_while(|hash| at(*hash) == '#').count();
                    line.code.push('r');
                    if at(index + 1 + hashes) == '"' {
                        line.code.push('"');
                        (state, taken) = (State::RawText(hashes), hashes + 2);
                    }
                }
                _ => line.code.push(here),
            },
            State::LineComment => line.comment.push(here),
            State::BlockComment(depth) => match (here, next) {
                ('*', '/') if depth == 1 => (state, taken) = (State::Code, 2),
                ('*', '/') => (state, taken) = (State::BlockComment(depth - 1), 2),
                ('/', '*') => (state, taken) = (State::BlockComment(depth + 1), 2),
                _ => line.comment.push(here),
            },
            State::Text => match here {
                '\\' if next != '\n' => taken = 2,
                '"' => {
                    line.code.push('"');
                    state = State::Code;
                }
                _ => {}
            },
            State::RawText(hashes) => {
                if here == '"' && (1..=hashes).all(|hash| at(index + hash) == '#') {
                    line.code.push('"');
                    (state, taken) = (State::Code, 1 + hashes);
                }
            }
        }
        index += taken;
    }
    lines.push(line);
    lines
}

/// Whether an `r` after this code would be part of a word; `b` and `c` before it belong to the literal.
fn ends_in_word(code: &str) -> bool {
    let before = code.strip_suffix(['b', 'c']).unwrap_or(code);
    before.ends_with(|last: char| last.is_alphanumeric() || last == '_')
}

/// Marks every item under `#[cfg(test)]`: up to the brace that closes it, or its semicolon.
fn mark_tests(lines: &mut [Line]) {
    let mut index = 0;
    while index < lines.len() {
        if !lines[index].code.trim_start().starts_with("#[cfg(test)]") {
            index += 1;
            continue;
        }
        let (mut depth, mut opened) = (0_i32, false);
        while let Some(line) = lines.get_mut(index) {
            line.of_test = true;
            index += 1;
            depth += line.code.matches('{').count() as i32 - line.code.matches('}').count() as i32;
            opened |= line.code.contains('{');
            if (opened && depth <= 0) || (!opened && line.code.trim_end().ends_with(';')) {
                break;
            }
        }
    }
}

/// The words of a line of code: identifiers, keywords and numbers.
pub(crate) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|it: char| !it.is_alphanumeric() && it != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        lines(text).iter().map(|line| line.code.as_str()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn comments_and_contents_of_literals_are_not_code() {
        assert_eq!(code("a // unsafe\nb /* x /* y */ z */ c"), "a \nb  c");
        assert_eq!(code(r#"f("unsafe \" still", b"x", 'u', '\'', '\u{7f}')"#), r#"f("", b"", ' ', ' ', ' ')"#);
        assert_eq!(code("r#\"a \" unsafe\"# + br\"\\\" + r#try"), "r\"\" + br\"\" + r#try");
        assert_eq!(code("fn f<'a>(x: &'a str) -> &'static str"), "fn f<'a>(x: &'a str) -> &'static str");
        assert_eq!(code("\"one\nunsafe\" end"), "\"\n\" end");
    }

    #[test]
    fn comments_are_kept_apart() {
        let lines = lines("x(); // SAFETY: plain.\n/* SECURITY: */ y();");
        assert_eq!(lines[0].comment, "/ SAFETY: plain.");
        assert_eq!(lines[1].comment, " SECURITY: ");
    }

    #[test]
    fn items_under_cfg_test_are_marked_to_their_end() {
        let text = "a\n#[cfg(test)]\nfn b() {\n  { }\n}\nc\n#[cfg(test)]\nuse d;\ne\n#[cfg(test)]\nmod t {\n}\n";
        let marked: Vec<bool> = lines(text).iter().map(|line| line.of_test).collect();
        assert_eq!(marked, [false, true, true, true, true, false, true, true, false, true, true, true, false].to_vec());
    }
}
