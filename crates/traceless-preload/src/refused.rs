//! What a paged program may not do. A copy of the process would find nothing where pages are away,
//! so it is refused; starting other programs, which needs no copy, is not.

use crate::begin::{paged, say};
use crate::heap::set_errno;
use core::ffi::{c_int, c_void};
use std::sync::Once;

fn refuse_copies() -> c_int {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        say("fork is refused: a copy of the process would have none of its pages");
    });
    set_errno(libc::EAGAIN);
    -1
}

/// As of POSIX, but it fails once memory is paged.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> c_int {
    if paged().is_some() {
        return refuse_copies();
    }
    // SAFETY: no thread of ours was started yet.
    unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as c_int }
}

/// As of POSIX, but it fails.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> c_int {
    // SAFETY: the same.
    unsafe { fork() }
}

/// As of Linux, but it fails: it would fork.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(_: c_int, _: c_int) -> c_int {
    refuse_copies()
}

/// As of Linux, but it fails: it would fork.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkpty(
    _: *mut c_int,
    _: *mut core::ffi::c_char,
    _: *const c_void,
    _: *const c_void,
) -> c_int {
    refuse_copies()
}
