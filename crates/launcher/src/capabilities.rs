//! Gives up every privilege of this process, for good, and checks that it is gone.

use linux_raw_sys::prctl as p;

use crate::errno::Errno;
use crate::failure::{Context, Failure};
use crate::sys::{self, Capabilities};

/// SECBIT_NOROOT, SECBIT_NO_SETUID_FIXUP, SECBIT_NO_CAP_AMBIENT_RAISE and the lock of each and of SECBIT_KEEP_CAPS.
const SECUREBITS: usize = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40 | 0x80;

/// CAP_SETPCAP, which locking the secure bits and emptying the bounding set take.
const SETPCAP: u64 = 1 << 8;

const NONE: Capabilities = Capabilities { effective: 0, permitted: 0, inheritable: 0 };

/// Empties all capability sets, locks the secure bits, and sets `no_new_privs` (capabilities(7), PR_SET_NO_NEW_PRIVS(2const)).
///
/// SECURITY: user id 0 without this gets its capabilities back at the next exec and remounts what was read-only.
pub(crate) fn give_up() -> Result<(), Failure> {
    let before = sys::capabilities().or_fail("capabilities", "cannot read capabilities")?;
    if before.effective & SETPCAP != 0 {
        sys::prctl(p::PR_SET_SECUREBITS, SECUREBITS).or_fail("capabilities", "cannot lock the secure bits")?;
        for capability in 0..64 {
            match sys::prctl(p::PR_CAPBSET_DROP, capability) {
                Ok(_) => {}
                // The kernel knows no capability of this number, nor a higher one.
                Err(Errno::INVAL) => break,
                Err(errno) => return Err(errno).or_fail("capabilities", "cannot empty the bounding set"),
            }
        }
    }
    // Without CAP_SETPCAP neither can be changed, but `no_new_privs` keeps exec from making use of that.
    sys::prctl(p::PR_CAP_AMBIENT, p::PR_CAP_AMBIENT_CLEAR_ALL as usize)
        .or_fail("capabilities", "cannot clear the ambient set")?;
    sys::drop_capabilities().or_fail("capabilities", "cannot drop capabilities")?;
    if sys::capabilities().or_fail("capabilities", "cannot read capabilities")? != NONE {
        return Err(Failure::new("capabilities", "capabilities are left after dropping them all"));
    }
    sys::prctl(p::PR_SET_NO_NEW_PRIVS, 1).or_fail("no-new-privs", "cannot set no_new_privs")?;
    if sys::prctl(p::PR_GET_NO_NEW_PRIVS, 0) != Ok(1) {
        return Err(Failure::new("no-new-privs", "no_new_privs did not stay set"));
    }
    Ok(())
}
