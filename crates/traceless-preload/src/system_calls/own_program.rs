//! The names by which the kernel knows this process's program, which to it is the dynamic loader.

use super::raw;
use crate::loader_command::own_process;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The whole path of the program's file.
static PROGRAM: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Notes the path of the program's file.
pub fn set_path(path: &'static CStr) {
    PROGRAM.store(path.as_ptr().cast_mut(), Relaxed);
}

/// The whole path of the program's file.
pub fn path() -> *const c_char {
    PROGRAM.load(Relaxed)
}

/// Serves the reading of a link: the kernel's link to the process's program leads to the dynamic
/// loader.
///
/// # Safety
/// As of the system call.
pub unsafe fn read_link(
    number: i64,
    path: usize,
    [into, room]: [usize; 2],
    arguments: [usize; 6],
) -> isize {
    // SAFETY: the caller's promise.
    if !unsafe { is_own_program(path as *const c_char) } || room == 0 {
        // SAFETY: the caller's promise.
        return unsafe { raw::call(number as usize, arguments) };
    }
    // SAFETY: the program's path, which stays.
    let text = unsafe { CStr::from_ptr(self::path()) }.to_bytes();
    let len = text.len().min(room);
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), into as *mut u8, len) };
    len.cast_signed()
}

/// Whether a path is the kernel's name for this process's program, and would lead to the dynamic
/// loader.
///
/// # Safety
/// A text.
pub unsafe fn is_own_program(path: *const c_char) -> bool {
    if self::path().is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let Some(process) = path.strip_prefix(b"/proc/").and_then(|path| path.strip_suffix(b"/exe"))
    else {
        return false;
    };
    let number = process.iter().try_fold(0_usize, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| usize::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    process == b"self" || !process.is_empty() && number == usize::try_from(own_process()).ok()
}
