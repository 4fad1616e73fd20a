//! What a probe runs inside the walls: writes that must land and writes that must not. The provider judges by the disk.

use core::ffi::CStr;

use linux_raw_sys::general as g;

use crate::errno::Errno;
use crate::sys;

const CREATE: u32 = g::O_WRONLY | g::O_CREAT | g::O_EXCL;

/// Tries everything, says nothing; see `docs/launcher.md`.
pub(crate) fn act(granted: &CStr, denied: &CStr) -> ! {
    // Each result is on the disk, or is not: that is what the provider looks at.
    let _ = put(granted, b"/granted", CREATE);
    let _ = put(denied, b"/denied", CREATE);
    let _ = at(denied, b"/meta", |path| sys::change_mode(path, 0o777));
    if let Ok(child) = sys::fork(0) {
        if child == 0 {
            let _ = put(granted, b"/descendant", CREATE);
            let _ = put(denied, b"/descendant", CREATE);
            sys::exit(0);
        }
        let _ = sys::wait(child, true);
    }
    let sink = put(c"/dev", b"/null", g::O_WRONLY);
    sys::exit(i32::from(sink.is_err()))
}

fn put(directory: &CStr, name: &[u8], flags: u32) -> Result<(), Errno> {
    at(directory, name, |path| {
        let fd = sys::open(sys::CWD, path, flags, 0o600)?;
        let written = sys::write(fd, b"x");
        sys::close(fd);
        written.map(drop)
    })
}

/// Calls `action` with the path of a file in a directory.
fn at(directory: &CStr, name: &[u8], action: impl FnOnce(&CStr) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut buffer = [0_u8; g::PATH_MAX as usize];
    let length = directory.count_bytes() + name.len();
    let path = buffer.get_mut(..=length).ok_or(Errno::NAMETOOLONG)?;
    path[..directory.count_bytes()].copy_from_slice(directory.to_bytes());
    path[directory.count_bytes()..length].copy_from_slice(name);
    action(CStr::from_bytes_with_nul(path).map_err(|_| Errno::INVAL)?)
}
