//! Direct I/O, where a page that leaves is not moved but copied: a disk that writes to the page
//! would not notice that it has left, and its data would be lost. So files are opened without
//! direct I/O. The same data then pass through the kernel's cache.

use crate::libc_functions::libc_function;
use crate::paged_memory::{PagedMemory, paged};
use crate::report::print;
use core::ffi::{c_char, c_int, c_long};
use std::sync::Once;

/// The flags, without direct I/O where that would lose data.
fn without_direct(flags: c_int) -> c_int {
    static REPORTED: Once = Once::new();
    let is_direct = flags & libc::O_DIRECT != 0;
    if !is_direct || !paged().is_some_and(PagedMemory::loses_pinned) {
        return flags;
    }
    REPORTED
        .call_once(|| print("direct I/O is done through the cache: paged memory cannot be pinned"));
    flags & !libc::O_DIRECT
}

type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
type Fcntl = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;

/// As of POSIX. The last argument is present only when a file is made.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(open, Open)(path, without_direct(flags), mode) }
}

/// As of Linux. The last argument is present only when a file is made.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(open64, Open)(path, without_direct(flags), mode) }
}

/// As of POSIX. The last argument is present only when a file is made.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> c_int {
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(openat, OpenAt)(folder, path, without_direct(flags), mode) }
}

/// As of Linux. The last argument is present only when a file is made.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> c_int {
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(openat64, OpenAt)(folder, path, without_direct(flags), mode) }
}

/// The argument of a file command, without direct I/O.
fn argument(order: c_int, argument: c_long) -> c_long {
    if order != libc::F_SETFL {
        return argument;
    }
    // Flags have the length of an int.
    c_long::from(without_direct(argument as c_int))
}

/// As of POSIX. The last argument is present only for commands that take one.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(file: c_int, order: c_int, with: c_long) -> c_int {
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(fcntl, Fcntl)(file, order, argument(order, with)) }
}

/// As of Linux. The last argument is present only for commands that take one.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(file: c_int, order: c_int, with: c_long) -> c_int {
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(fcntl64, Fcntl)(file, order, argument(order, with)) }
}
