//! Libraries that the program loads while it runs. A library that is bound deeply (`RTLD_DEEPBIND`,
//! as PHP binds its own) would pass objects of this allocator to the C library's `free`, which
//! knows nothing of paged memory. So the flag is removed.

use crate::libc_functions::{Function, address_of};
use core::ffi::{c_char, c_int, c_void};

/// As of POSIX. The C library derives the search path from its return address, so this function
/// jumps to it in place of a call.
///
/// # Safety
/// As of POSIX.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "x86_64")]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "and esi, {allowed}",
        "push rdi",
        "push rsi",
        // This push aligns the stack for the call again.
        "push rax",
        "call {libc_dlopen}",
        "pop rcx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        allowed = const !libc::RTLD_DEEPBIND,
        libc_dlopen = sym libc_dlopen,
    )
}

/// As of POSIX, with a jump as on x86-64.
///
/// # Safety
/// As of POSIX.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[cfg(target_arch = "aarch64")]
pub unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    core::arch::naked_asm!(
        "and w1, w1, #{allowed}",
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "bl {libc_dlopen}",
        "mov x16, x0",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "br x16",
        allowed = const !libc::RTLD_DEEPBIND as u32,
        libc_dlopen = sym libc_dlopen,
    )
}

extern "C" fn libc_dlopen() -> *mut c_void {
    address_of(Function::dlopen)
}
