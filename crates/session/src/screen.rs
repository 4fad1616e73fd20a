//! The screen of a terminal: how much is seen at once, and how it is made ours.

use rustix::termios::tcgetwinsize;
use std::os::fd::OwnedFd;

/// How large a terminal is taken to be that does not say it, and the narrowest that is written for.
pub(crate) const USUAL: Size = Size { columns: 80, rows: 24 };
const NARROWEST: usize = 24;

/// What is seen at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

pub(crate) fn size(terminal: &OwnedFd) -> Size {
    let Ok(found) = tcgetwinsize(terminal) else { return USUAL };
    let (columns, rows) = (usize::from(found.ws_col), usize::from(found.ws_row));
    Size {
        columns: if columns == 0 { USUAL.columns } else { columns.max(NARROWEST) },
        rows: if rows == 0 { USUAL.rows } else { rows },
    }
}

/// What makes the screen ours again: ends what a command may have begun (a string, another encoding, printing, an alternate screen, a region that
/// scrolls, hidden or other letters), and moves what it wrote off the screen, not away.
///
/// References: ECMA-48; DECSTR, DECSTBM and the rest as xterm's control sequences have them.
pub(crate) fn own_screen(size: Size) -> Vec<u8> {
    if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
        return Vec::new();
    }
    let mut bytes = b"\x18\x1b\\\x1b%G\x1b[4i\x1b[?1049l\x1b[!p\x1b[r\x1b[0m\x1b(B\x0f\x1b[?25h\x1b[999;1H".to_vec();
    bytes.extend(std::iter::repeat_n(b'\n', size.rows.min(200)));
    bytes
}
