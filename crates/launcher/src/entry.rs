//! The first instructions of a binary without a C library, and the memory functions that the compiler calls.
//!
//! UNSAFETY: the kernel hands a new process its arguments on the stack (System V ABI, x86-64 supplement, 3.4.1),
//! and compiled code calls `memcpy` and its kin by name; no safe code can run before somebody has provided both.

use crate::sys::Text;

/// Holds what the kernel put on the stack of the new process: arguments and environment.
#[derive(Clone, Copy)]
pub struct Start {
    pub(crate) arguments: &'static [Text],
    pub(crate) environment: &'static [Text],
    /// Who must be our parent, where somebody else made this process for it.
    pub(crate) caller: Option<i32>,
}

impl Start {
    /// Reads the initial stack.
    ///
    /// # Safety
    ///
    /// `stack` must be the stack pointer that the kernel gave this process at its entry point.
    #[must_use]
    pub unsafe fn from_stack(stack: *const usize) -> Self {
        // SAFETY: at the entry point `*stack` is argc, followed by argc pointers, a null pointer, the pointers of the
        // environment and another null pointer; strings and vectors stay valid for the life of the process
        // (execve(2)), and `Text` is a transparent pointer to such a string.
        unsafe {
            let count = *stack;
            let arguments = stack.add(1);
            let environment = arguments.add(count + 1);
            let mut variables = 0;
            while *environment.add(variables) != 0 {
                variables += 1;
            }
            Self {
                arguments: core::slice::from_raw_parts(arguments.cast(), count),
                environment: core::slice::from_raw_parts(environment.cast(), variables),
                caller: None,
            }
        }
    }
}

/// Makes `$main`, a `fn(Start) -> !`, the program: entry point, panic handler and memory functions.
///
/// The crate that uses it is `#![no_std]` and `#![no_main]`, and is linked as `build.rs` says.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[panic_handler]
        fn panicked(_: &core::panic::PanicInfo) -> ! {
            // Nothing in the launcher panics on purpose; if a bounds check ever fails, nothing is executed.
            $crate::run::die_of_panic()
        }

        // SAFETY: the name is the linker's default entry symbol; the body is written for the state in which the
        // kernel enters a process: it passes the stack pointer on and aligns the stack as the ABI of a call asks.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn _start() -> ! {
            core::arch::naked_asm!(
                "xor ebp, ebp",
                "mov rdi, rsp",
                "and rsp, -16",
                "call {enter}",
                "ud2",
                enter = sym enter,
            )
        }

        extern "C" fn enter(stack: *const usize) -> ! {
            // SAFETY: `_start` passes the untouched stack pointer of the entry point.
            $main(unsafe { $crate::entry::Start::from_stack(stack) })
        }

        // SAFETY: only unwinding calls it, and with `panic = "abort"` nothing unwinds; `core` names it all the same.
        #[unsafe(no_mangle)]
        extern "C" fn rust_eh_personality() {}

        // SAFETY (all five): these are the C functions of that name, with the contract that the compiler relies on.
        // They are written with string instructions because a loop would be compiled back into a call of itself.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
            // SAFETY: the caller passes two valid, disjoint ranges of `count` bytes; the direction flag is clear.
            unsafe {
                core::arch::asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _,
                    inout("rsi") from => _, options(nostack, preserves_flags));
            }
            to
        }

        // SAFETY: see `memcpy`.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
            if (to as usize).wrapping_sub(from as usize) >= count {
                // SAFETY: copying upwards never overwrites a byte that is still to be read.
                return unsafe { memcpy(to, from, count) };
            }
            // SAFETY: copying downwards from the last byte; the direction flag is restored.
            unsafe {
                core::arch::asm!("std", "rep movsb", "cld", inout("rcx") count => _,
                    inout("rdi") to.add(count).wrapping_sub(1) => _,
                    inout("rsi") from.add(count).wrapping_sub(1) => _, options(nostack));
            }
            to
        }

        // SAFETY: see `memcpy`.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
            // SAFETY: the caller passes a valid range of `count` bytes.
            unsafe {
                core::arch::asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _,
                    in("al") byte as u8, options(nostack, preserves_flags));
            }
            to
        }

        // SAFETY: see `memcpy`.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
            let mut index = 0;
            while index < count {
                // SAFETY: the caller passes two valid ranges of `count` bytes; volatile keeps this a loop.
                let (one, other) = unsafe {
                    (left.add(index).read_volatile(), right.add(index).read_volatile())
                };
                if one != other {
                    return i32::from(one) - i32::from(other);
                }
                index += 1;
            }
            0
        }

        // SAFETY: see `memcpy`.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
            // SAFETY: the same contract.
            unsafe { memcmp(left, right, count) }
        }

        // SAFETY: see `memcpy`.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn strlen(text: *const u8) -> usize {
            let mut length = 0;
            // SAFETY: the caller passes a string that ends in NUL; volatile keeps this a loop.
            while unsafe { text.add(length).read_volatile() } != 0 {
                length += 1;
            }
            length
        }
    };
}
