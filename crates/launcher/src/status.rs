//! What the launcher says: facts to the status channel, one line to standard error when nothing was executed.

use core::ffi::CStr;

use crate::errno::Errno;
use crate::failure::Failure;
use crate::sys;

/// A line that is put together without allocation and written with one call, so that lines of several processes
/// never mix (they stay below PIPE_BUF, pipe(7)). What does not fit is cut off; the newline is not.
pub(crate) struct Line {
    bytes: [u8; 2048],
    length: usize,
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; 2048], length: 0 }
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        text.bytes().for_each(|byte| self.byte(byte));
        self
    }

    pub(crate) fn number(&mut self, number: i64) -> &mut Self {
        if number < 0 {
            self.byte(b'-');
        }
        let mut digits = [0_u8; 20];
        let mut rest = number.unsigned_abs();
        let mut count = 0;
        for digit in &mut digits {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        digits[..count].iter().rev().for_each(|digit| self.byte(*digit));
        self
    }

    /// Adds foreign bytes so that they stay on this line and cannot drive a terminal.
    pub(crate) fn escaped(&mut self, text: &CStr) -> &mut Self {
        for byte in text.to_bytes() {
            match byte {
                b'\\' => _ = self.text("\\\\"),
                b'\n' => _ = self.text("\\n"),
                0x20..0x7f => self.byte(*byte),
                _ => {
                    let hexadecimal = b"0123456789ABCDEF";
                    self.text("\\x");
                    self.byte(hexadecimal[usize::from(byte >> 4)]);
                    self.byte(hexadecimal[usize::from(byte & 15)]);
                }
            }
        }
        self
    }

    /// What it holds, as a string of C; nothing of it is NUL.
    pub(crate) fn as_cstr(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    fn byte(&mut self, byte: u8) {
        if self.length < self.bytes.len() - 1 {
            self.bytes[self.length] = byte;
            self.length += 1;
        }
    }

    /// Writes the line and its newline.
    pub(crate) fn send(&mut self, fd: i32) -> Result<(), Errno> {
        self.bytes[self.length] = b'\n';
        loop {
            match sys::write(fd, &self.bytes[..=self.length]) {
                Err(Errno::INTR) => {}
                other => return other.map(drop),
            }
        }
    }

    #[cfg(test)]
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).expect("ASCII")
    }
}

/// The status channel of this run, if there is one. The descriptor is closed on exec.
#[derive(Clone, Copy)]
pub(crate) struct Status(pub(crate) Option<i32>);

impl Status {
    /// Sends one line. A reader that went away changes nothing about the walls, so its error is not an error.
    pub(crate) fn send(self, line: &mut Line) {
        if let Some(fd) = self.0 {
            let _ = line.send(fd);
        }
    }

    /// Says why nothing was executed, on the channel and on standard error.
    pub(crate) fn setup_failed(self, failure: &Failure) {
        let mut line = Line::new();
        line.text("setup-failed ").text(failure.stage.0).text(" ");
        line.number(failure.errno.map_or(0, |errno| errno.0.into())).text(" ");
        self.send(describe(failure, &mut line));
        let mut line = Line::new();
        line.text("pinfold-run: ").text(failure.stage.0).text(": ");
        // Standard error may be closed or full; there is nowhere else to say so.
        let _ = describe(failure, &mut line).send(2);
    }
}

fn describe<'a>(failure: &Failure, line: &'a mut Line) -> &'a mut Line {
    line.text(failure.what);
    if let Some(object) = failure.object {
        line.text(" ").escaped(object);
    }
    if let Some(errno) = failure.errno {
        line.text(": ").text(errno.text());
        if errno.text() == "Unexpected error" {
            line.text(" ").number(errno.0.into());
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_bytes_stay_on_their_line() {
        let mut line = Line::new();
        line.escaped(c"a\nb\\c\x1b[1m\xff");
        assert_eq!(line.as_str(), "a\\nb\\\\c\\x1B[1m\\xFF");
    }

    #[test]
    fn numbers_are_written_in_full() {
        let mut line = Line::new();
        line.number(0).text(" ").number(-13).text(" ").number(i64::MAX).text(" ").number(i64::MIN);
        assert_eq!(line.as_str(), "0 -13 9223372036854775807 -9223372036854775808");
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_but_not_overrun() {
        let mut line = Line::new();
        for _ in 0..100 {
            line.text("0123456789012345678901234567890123456789");
        }
        assert_eq!(line.as_str().len(), 2047);
    }
}
