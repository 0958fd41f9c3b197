//! The processors on which threads of the program run, which the program chooses. The pager may pin
//! a thread that faults often to a processor. It is released before the program reads or changes
//! its affinity, and before it starts a thread or process that would inherit it (`spawners`).

use crate::libc_functions::libc_function;
use crate::own_threads::current_pthread;
use crate::paged_memory::paged;
use core::ffi::c_int;
use libc::{cpu_set_t, pid_t, pthread_t, size_t};

/// Releases a thread from its processor: for some faults, or for good.
pub fn unpin_thread(thread: u32, for_good: bool) {
    if let Some(paged) = paged() {
        paged.unpin_thread(thread, for_good);
    }
}

pub fn own_number() -> u32 {
    // SAFETY: it has no conditions.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// The thread that an argument of `sched_setaffinity` and its kin names.
fn number(thread: pid_t) -> u32 {
    if thread == 0 { own_number() } else { thread as u32 }
}

/// The number of a thread from its `pthread_t`. The system's id for the clock of a thread holds it:
/// its complement, above three bits.
///
/// # Safety
/// The thread has not been joined.
unsafe fn number_of(thread: pthread_t) -> u32 {
    if thread as usize == current_pthread() {
        return own_number();
    }
    let mut clock = 0;
    // SAFETY: the caller's promise.
    match unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) } {
        0 => !(clock >> 3) as u32,
        // The thread has ended, and is not pinned.
        _ => 0,
    }
}

type OfThread<Set> = unsafe extern "C" fn(pid_t, size_t, Set) -> c_int;
type OfPthread<Set> = unsafe extern "C" fn(pthread_t, size_t, Set) -> c_int;

/// As of Linux.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_getaffinity(
    thread: pid_t,
    size: size_t,
    set: *mut cpu_set_t,
) -> c_int {
    unpin_thread(number(thread), false);
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(sched_getaffinity, OfThread<*mut cpu_set_t>)(thread, size, set) }
}

/// As of Linux.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sched_setaffinity(
    thread: pid_t,
    size: size_t,
    set: *const cpu_set_t,
) -> c_int {
    unpin_thread(number(thread), true);
    // SAFETY: the caller's promise; and the function has that type.
    unsafe { libc_function!(sched_setaffinity, OfThread<*const cpu_set_t>)(thread, size, set) }
}

/// As of the C library.
///
/// # Safety
/// As of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getaffinity_np(
    thread: pthread_t,
    size: size_t,
    set: *mut cpu_set_t,
) -> c_int {
    // SAFETY: the caller's promise; and the function has that type.
    unsafe {
        unpin_thread(number_of(thread), false);
        libc_function!(pthread_getaffinity_np, OfPthread<*mut cpu_set_t>)(thread, size, set)
    }
}

/// As of the C library.
///
/// # Safety
/// As of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setaffinity_np(
    thread: pthread_t,
    size: size_t,
    set: *const cpu_set_t,
) -> c_int {
    // SAFETY: the caller's promise; and the function has that type.
    unsafe {
        unpin_thread(number_of(thread), true);
        libc_function!(pthread_setaffinity_np, OfPthread<*const cpu_set_t>)(thread, size, set)
    }
}
