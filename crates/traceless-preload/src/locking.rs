//! Memory that the program locks. The pager locks all resident pages, and seals pages before they
//! leave: so no plaintext of paged memory reaches a swap device. A lock that the pager cannot
//! provide fails with the kernel's error.

use crate::malloc::set_errno;
use crate::mappings::range_of;
use crate::paged_memory::{PagedMemory, paged, paged_at};
use crate::protected;
use crate::report::print;
use core::ffi::{c_int, c_uint, c_void};
use libc::size_t;
use std::sync::Once;
use traceless_pager::paging::{self, Pager, without_signals};

fn refuse(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// Locks a range of paged memory, as of `mlock`.
fn lock_paged(paged: &PagedMemory, at: usize, len: usize) -> c_int {
    if !paged.contains(at, len) {
        return refuse(libc::ENOMEM);
    }
    if paged.is_locked() {
        return 0;
    }
    match paged.lock() {
        Ok(()) => 0,
        Err(e) => {
            static REPORTED: Once = Once::new();
            REPORTED.call_once(|| {
                print(
                    "mlock is refused: to lock paged memory takes CAP_IPC_LOCK, or a limit of \
                     locked memory (ulimit -l) above --memory",
                );
            });
            refuse(e.raw_os_error())
        }
    }
}

/// Locks a range that is not the heap's, as of `mlock2`. If any of it is paged, all resident pages
/// are locked: the kernel moves no page between memory that is locked and memory that is not.
fn lock_range(address: *const c_void, len: size_t, mut flags: c_uint) -> c_int {
    if let Some(paged) = paged().filter(|_| is_elsewhere(address, len)) {
        let refused = lock_paged(paged, 0, 0);
        if refused != 0 {
            return refused;
        }
        // Pages are locked when they come.
        flags |= libc::MLOCK_ONFAULT;
    }
    // SAFETY: the promise of the caller of the function that the program calls. A program that
    // forbids itself other system calls knows the older one.
    unsafe {
        match flags {
            0 => libc::syscall(libc::SYS_mlock, address, len) as c_int,
            flags => libc::syscall(libc::SYS_mlock2, address, len, flags) as c_int,
        }
    }
}

/// Whether any of a range is paged beside the heap.
fn is_elsewhere(address: *const c_void, len: size_t) -> bool {
    let range = range_of(address, len);
    paged().is_some_and(|paged| without_signals(|| paged.elsewhere().overlaps(&range)))
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(address: *const c_void, len: size_t) -> c_int {
    if let Some((paged, at)) = paged_at(address as usize) {
        return lock_paged(paged, at, len);
    }
    lock_range(address, len, 0)
}

/// As of Linux, in the same way.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(address: *const c_void, len: size_t, flags: c_uint) -> c_int {
    if let Some((paged, at)) = paged_at(address as usize) {
        if flags & !libc::MLOCK_ONFAULT != 0 {
            return refuse(libc::EINVAL);
        }
        return lock_paged(paged, at, len);
    }
    lock_range(address, len, flags)
}

/// As of POSIX. Pages are locked when they are touched, since touching all of them now would bring
/// in every page.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    let Some(paged) = paged().filter(|_| flags != 0) else {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_mlockall, flags) as c_int };
    };
    let refused = lock_paged(paged, 0, 0);
    if refused != 0 {
        return refused;
    }
    // SAFETY: the caller's promise; the rest is memory of ours.
    unsafe { libc::syscall(libc::SYS_mlockall, flags | libc::MCL_ONFAULT) as c_int }
}

/// As of POSIX. Resident pages stay locked.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlock(address: *const c_void, len: size_t) -> c_int {
    if let Some((paged, at)) = paged_at(address as usize) {
        return if paged.contains(at, len) { 0 } else { refuse(libc::ENOMEM) };
    }
    let is_locked = paged().and_then(PagedMemory::own_pager).is_some_and(Pager::is_locked);
    if is_locked && is_elsewhere(address, len) {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_munlock, address, len) as c_int }
}

/// As of POSIX. The pager's memory is locked again at once, before any page moves.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlockall() -> c_int {
    // SAFETY: the caller's promise.
    let unlock = || unsafe { libc::syscall(libc::SYS_munlockall) as c_int };
    let Some(paged) = paged() else { return unlock() };
    without_signals(|| {
        let elsewhere = paged.elsewhere();
        paged.while_paused(|start, len| {
            let done = unlock();
            protected::lock_again();
            if paged.is_locked() {
                // These locks were allowed before, so they should not fail now.
                let again = elsewhere.iter().chain(core::iter::once(start..start + len));
                again.for_each(|range| {
                    let _ = paging::lock(range.start, range.len());
                });
            }
            done
        })
    })
}
