//! Libraries that the program loads while it runs. One that is bound deeply (`RTLD_DEEPBIND`, as
//! PHP binds its own) would free what others allocated by the C library's `free`, which knows
//! nothing of paged memory. So none is bound deeply.

use crate::theirs::{Function, address_of};
use core::ffi::{c_char, c_int, c_void};

/// As of POSIX. Where a library is looked for follows from who asks, which the C library takes from
/// the address that it returns to: so it is jumped to.
///
/// # Safety
/// As of POSIX.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "and esi, {others}",
        "push rdi",
        "push rsi",
        // The stack is aligned for calls again.
        "push rax",
        "call {theirs}",
        "pop rcx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        others = const !libc::RTLD_DEEPBIND,
        theirs = sym dlopen_of_theirs,
    )
}

/// The same.
///
/// # Safety
/// As of POSIX.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "and w1, w1, #{others}",
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "bl {theirs}",
        "mov x16, x0",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "br x16",
        others = const !libc::RTLD_DEEPBIND as u32,
        theirs = sym dlopen_of_theirs,
    )
}

extern "C" fn dlopen_of_theirs() -> *mut c_void {
    address_of(Function::dlopen)
}
