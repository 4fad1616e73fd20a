//! The least that is needed to make one request by io_uring and wait for it.

use pinfold_conformance::errno::{Act, Errno};
use pinfold_conformance::sys;
use pinfold_conformance::sys::{map_shared, write};
use std::ffi::CStr;

/// One request; the names are those of `struct io_uring_sqe`, by meaning.
#[derive(Default)]
pub(crate) struct Entry<'a> {
    pub(crate) opcode: u8,
    pub(crate) fd: i32,
    /// `addr`.
    pub(crate) path: Option<&'a CStr>,
    /// `addr2`, as a name.
    pub(crate) second: Option<&'a CStr>,
    /// `addr3`.
    pub(crate) third: Option<&'a CStr>,
    /// `addr`, as bytes.
    pub(crate) bytes: Option<&'a [u8]>,
    /// `off`, as a number.
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) flags: u32,
}

pub(crate) fn nop() -> Act {
    submit(&Entry::default())
}

/// Makes the request and waits for its result.
pub(crate) fn submit(entry: &Entry) -> Act {
    let mut p = [0u32; 30];
    let ring = sys!(libc::SYS_io_uring_setup, 4, write(&mut p))? as i32;
    let (sq_entries, cq_entries) = (p[0], p[1]);
    let (sq_tail, sq_array) = (p[11] as usize, p[16] as usize);
    let (cq_head, cqes) = (p[20] as usize, p[25] as usize);
    let sq_bytes = sq_array + sq_entries as usize * 4;
    let cq_bytes = cqes + cq_entries as usize * 16;
    // IORING_FEAT_SINGLE_MMAP (5.4): both rings are in one mapping.
    let rings = map_shared(ring, sq_bytes.max(cq_bytes), 0)?;
    let entries = map_shared(ring, sq_entries as usize * 64, 0x1000_0000)?;

    let address = |s: Option<&CStr>| s.map_or(0, |s| s.as_ptr() as u64);
    let mut sqe = [0u8; 64];
    sqe[0] = entry.opcode;
    sqe[4..8].copy_from_slice(&entry.fd.to_ne_bytes());
    let second = entry.second.map_or(entry.offset, |s| s.as_ptr() as u64);
    sqe[8..16].copy_from_slice(&second.to_ne_bytes());
    let first = entry.bytes.map_or(address(entry.path), |b| b.as_ptr() as u64);
    sqe[16..24].copy_from_slice(&first.to_ne_bytes());
    sqe[24..28].copy_from_slice(&entry.len.to_ne_bytes());
    sqe[28..32].copy_from_slice(&entry.flags.to_ne_bytes());
    sqe[48..56].copy_from_slice(&address(entry.third).to_ne_bytes());

    // SAFETY: all offsets come from the kernel for mappings of at least that size; the ring is new, so slot 0 is free and
    // nobody else touches it until io_uring_enter.
    unsafe {
        entries.cast::<[u8; 64]>().write_volatile(sqe);
        rings.add(sq_array).cast::<u32>().write_volatile(0);
        rings.add(sq_tail).cast::<u32>().write_volatile(1);
    }
    sys!(libc::SYS_io_uring_enter, ring, 1, 1, 1 /* IORING_ENTER_GETEVENTS */, 0, 0)?;
    // SAFETY: as above; io_uring_enter returned after one completion, so the entry at the head is written.
    let result = unsafe {
        let head = rings.add(cq_head).cast::<u32>().read_volatile() & (cq_entries - 1);
        rings.add(cqes + head as usize * 16 + 8).cast::<i32>().read_volatile()
    };
    if result < 0 { Err(Errno(-result)) } else { Ok(()) }
}
