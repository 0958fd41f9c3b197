//! System calls without the C library: this may be no thread of it.

use core::arch::asm;
use core::ffi::c_int;

/// A system call with six arguments. Returns the kernel's result, a negative one for an error.
///
/// # Safety
/// As of the system call.
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: isize;
    // SAFETY: the caller's promise; the kernel changes no other registers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number.cast_signed() => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// An argument of a system call that is a number of 32 bits.
pub fn int(argument: usize) -> c_int {
    (argument as u32).cast_signed()
}
