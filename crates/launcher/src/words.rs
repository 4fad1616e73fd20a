//! Lists of words: the arguments of the process, or the same words in a block of memory, each ended by NUL.

use core::ffi::CStr;

use crate::sys::Text;

/// A list of words that is read from front to back, as often as needed.
#[derive(Clone, Copy)]
pub(crate) enum Words {
    /// Arguments as the kernel handed them over.
    Arguments(&'static [Text]),
    /// A plan from a descriptor or a file.
    Block(&'static [u8]),
}

impl Iterator for Words {
    type Item = &'static CStr;

    fn next(&mut self) -> Option<&'static CStr> {
        match self {
            Self::Arguments(texts) => {
                let (first, rest) = texts.split_first()?;
                *texts = rest;
                Some(first.as_cstr())
            }
            Self::Block(bytes) => {
                let word = CStr::from_bytes_until_nul(bytes).ok()?;
                *bytes = bytes.get(word.count_bytes() + 1..)?;
                Some(word)
            }
        }
    }
}

/// Reads a decimal number without sign, spaces or overflow.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        if !digit.is_ascii_digit() {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_gives_the_words_between_its_nul_bytes() {
        let mut words = Words::Block(b"one\0\0--three\0");
        assert_eq!(words.next(), Some(c"one"));
        assert_eq!(words.next(), Some(c""));
        assert_eq!(words.next(), Some(c"--three"));
        assert_eq!(words.next(), None);
    }

    #[test]
    fn numbers_are_plain_decimals() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [&b""[..], b"-1", b"+1", b" 1", b"1 ", b"0x1", b"18446744073709551616"] {
            assert_eq!(number(wrong), None, "{wrong:?}");
        }
    }
}
