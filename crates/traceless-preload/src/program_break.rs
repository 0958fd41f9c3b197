//! The heap of old, behind the program (`brk`), which ends where the program wants. What it gains
//! is paged.

use crate::libc_functions::libc_function;
use crate::mappings::page;
use crate::paged_memory::paged;
use crate::report::fail;
use core::ffi::{c_int, c_void};
use libc::intptr_t;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::without_signals;

type Brk = unsafe extern "C" fn(*mut c_void) -> c_int;
type Sbrk = unsafe extern "C" fn(intptr_t) -> *mut c_void;

/// Where the heap ends now; pages end there, or behind it.
fn end() -> usize {
    // SAFETY: it changes nothing.
    let end = unsafe { libc_function!(sbrk, Sbrk)(0) };
    (end as usize).next_multiple_of(PAGE_LEN)
}

/// Runs `change`, which moves the end, and pages what the heap gained.
fn change_end<T>(change: impl FnOnce() -> T) -> T {
    let Some((memory, pager)) = paged().and_then(|memory| Some((memory, memory.own_pager()?)))
    else {
        return change();
    };
    without_signals(|| {
        let mut elsewhere = memory.elsewhere();
        let before = end();
        let result = change();
        let after = end();
        if after < before {
            memory.wipe_range_in_copies(after..before, false);
            elsewhere.remove(after..before);
            // What is gone is unmapped already, and comes back as zeros.
            pager.replace(&(after..before), || true).unwrap_or_else(|e| fail(&e));
        } else if after > before && page(memory, &(before..after)) {
            elsewhere.add(before..after);
        }
        result
    })
}

/// As of Linux.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(to: *mut c_void) -> c_int {
    // SAFETY: the caller's promise; and the function has that type.
    change_end(|| unsafe { libc_function!(brk, Brk)(to) })
}

/// As of Linux.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(by: intptr_t) -> *mut c_void {
    // SAFETY: the caller's promise; and the function has that type.
    change_end(|| unsafe { libc_function!(sbrk, Sbrk)(by) })
}
