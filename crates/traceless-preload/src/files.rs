//! Programs may close all files that they did not open, as daemons do at their start. This library
//! makes the pager's files look closed to them: without these files no page could be brought in.

use crate::libc_functions::libc_function;
use crate::malloc::set_errno;
use crate::paged_memory::paged;
use core::ffi::{c_int, c_uint};
use traceless_pager::paging::own_files;

type Close = unsafe extern "C" fn(c_int) -> c_int;
type CloseRange = unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int;
type CloseFrom = unsafe extern "C" fn(c_int);
type Dup2 = unsafe extern "C" fn(c_int, c_int) -> c_int;
type Dup3 = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;

/// Whether a file is the pager's.
pub fn is_own(file: c_int) -> bool {
    own_files().any(|own| own == file)
}

fn refuse() -> c_int {
    set_errno(libc::EBADF);
    -1
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(file: c_int) -> c_int {
    if is_own(file) {
        return refuse();
    }
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(close, Close)(file) }
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(file: c_int, number: c_int) -> c_int {
    if is_own(number) {
        return refuse();
    }
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(dup2, Dup2)(file, number) }
}

/// As of Linux.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(file: c_int, number: c_int, flags: c_int) -> c_int {
    if is_own(number) {
        return refuse();
    }
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(dup3, Dup3)(file, number, flags) }
}

/// As of Linux.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller's promise; and the function has that type.
    let close_part =
        |first, last| unsafe { libc_function!(close_range, CloseRange)(first, last, flags) };
    if first > last {
        return close_part(first, last);
    }
    let mut from = Some(first);
    while let Some(first) = from {
        let next = own_files().map(c_int::cast_unsigned).filter(|own| (first..=last).contains(own));
        let next = next.min();
        let before = next.map_or(Some(last), |own| own.checked_sub(1));
        if let Some(before) = before.filter(|&before| before >= first)
            && close_part(first, before) != 0
        {
            return -1;
        }
        from = next.and_then(|own| own.checked_add(1)).filter(|&from| from <= last);
    }
    0
}

/// As of the C library.
///
/// # Safety
/// As of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let from = first.max(0).cast_unsigned();
    // SAFETY: the caller's promise.
    if paged().is_none() || unsafe { close_range(from, c_uint::MAX, 0) } != 0 {
        // SAFETY: the same; and the function has that type.
        unsafe { libc_function!(closefrom, CloseFrom)(first) };
    }
}
