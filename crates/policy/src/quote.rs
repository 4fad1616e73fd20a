//! Paths and bytes made safe to print: what a terminal, a log or a model sees of a name that somebody else chose.
//!
//! Nothing here is reversible and nothing here may be used on the way to a system call: bytes stay bytes
//! until they are printed.

use std::ffi::OsStr;
use std::fmt::Write as _;

/// Quotes and escapes a path, argument or other text of the operating system for a message.
///
/// The result stands between double quotes. Newline, tab, carriage return, quote and backslash are written as
/// in a string literal; other control characters and bytes that are not UTF-8 as `\xHH`; characters that are
/// invisible or change the direction of text as `\u{H}`. Everything else stays as it is.
pub fn quote(text: impl AsRef<OsStr>) -> String {
    quote_bytes(text.as_ref().as_encoded_bytes())
}

/// Quotes and escapes raw bytes as [`quote`] does.
pub fn quote_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            push_escaped(&mut out, character);
        }
        push_hex(&mut out, chunk.invalid());
    }
    out.push('"');
    out
}

/// Writes text of the operating system without quotes, with only the bytes that are not UTF-8 escaped.
///
/// Used for reports, whose carrier (JSON) does its own escaping. A name that really contains a backslash, an
/// `x` and two digits looks the same as an escaped byte; a report is read by people, not turned into paths.
pub fn readable(text: impl AsRef<OsStr>) -> String {
    let bytes = text.as_ref().as_encoded_bytes();
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        push_hex(&mut out, chunk.invalid());
    }
    out
}

/// Returns a path bare when every character of it is harmless, and as [`quote`] writes it otherwise.
pub fn quote_if_needed(text: impl AsRef<OsStr>) -> String {
    let text = text.as_ref();
    match text.to_str() {
        Some(plain) if !plain.chars().any(is_hidden) => plain.to_owned(),
        _ => quote(text),
    }
}

fn push_escaped(out: &mut String, character: char) {
    match character {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        c if c.is_ascii_control() => {
            let _ = write!(out, "\\x{:02x}", c as u32); // writing to a String cannot fail
        }
        c if is_hidden(c) => {
            let _ = write!(out, "\\u{{{:x}}}", c as u32); // as above
        }
        c => out.push(c),
    }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "\\x{byte:02x}"); // writing to a String cannot fail
    }
}

// SECURITY: without this list a file name could reorder or hide parts of the sentence that names it, and a
// person would approve something else than what is asked.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{ffa0}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_are_only_quoted() {
        assert_eq!(quote("/home/ä b/x"), "\"/home/ä b/x\"");
    }

    #[test]
    fn control_characters_and_quotes_are_escaped() {
        assert_eq!(quote("a\n\t\r\"\\\u{1b}[2J\u{7f}"), r#""a\n\t\r\"\\\x1b[2J\x7f""#);
    }

    #[test]
    fn characters_that_reorder_text_are_escaped() {
        assert_eq!(quote("a\u{202e}b\u{200b}\u{9b}"), r#""a\u{202e}b\u{200b}\u{9b}""#);
    }

    #[test]
    fn letters_that_nobody_sees_are_escaped() {
        for letter in ['\u{34f}', '\u{115f}', '\u{1160}', '\u{2800}', '\u{3164}', '\u{ffa0}'] {
            assert_eq!(quote(format!("a{letter}b")), format!("\"a\\u{{{:x}}}b\"", letter as u32));
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_appear_as_hex() {
        assert_eq!(quote_bytes(b"a\xff\xc3b\0"), r#""a\xff\xc3b\x00""#);
    }

    #[test]
    fn a_harmless_path_stays_bare_and_a_harmful_one_is_quoted() {
        assert_eq!(quote_if_needed("C:\\x y"), "C:\\x y");
        assert_eq!(quote_if_needed("/x\ny"), "\"/x\\ny\"");
    }

    #[test]
    fn readable_text_keeps_what_is_utf8() {
        assert_eq!(readable("a\\b\n"), "a\\b\n");
    }

    proptest! {
        #[test]
        fn quoted_bytes_never_hold_a_control_character(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(!quote_bytes(&bytes).chars().any(is_hidden));
        }
    }
}
