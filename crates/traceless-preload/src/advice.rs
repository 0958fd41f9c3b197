//! Advice on paged memory, and its protection.

use crate::malloc::errno;
use crate::mappings::{change_elsewhere, may_protect, pages_of, prepare_executable, range_of};
use crate::mappings::{readable, refuse};
use crate::paged_memory::{PagedMemory, paged, paged_at};
use crate::report::print;
use core::ffi::{c_int, c_long, c_void};
use libc::size_t;
use std::sync::Once;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{Pager, without_signals};

/// The effect of an advice on paged memory.
#[derive(Clone, Copy)]
enum Advice {
    /// Pages become zeros at once. `MADV_FREE` is allowed to do so later.
    Zeros,
    /// Pages will be zeros in copies of the process. This includes `MADV_DONTFORK`, with which a
    /// copy natively lacks these pages.
    WipedInCopies,
    /// Pages will be copied to copies of the process.
    KeptInCopies,
    /// The advice changes nothing: no paged memory is in a core dump, resident pages are locked and
    /// small, none is shared with other processes (`MADV_MERGEABLE`), and page moves follow from
    /// faults alone. `MADV_DODUMP` does not put pages back into core dumps.
    NoEffect,
}

/// The effect of an advice. `None` for advice that is refused, as by a kernel that does not know
/// it: for files or for tests of broken memory, guards, and advice of newer kernels.
fn advice_of(number: c_int) -> Option<Advice> {
    Some(match number {
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED => Advice::Zeros,
        libc::MADV_DONTFORK | libc::MADV_WIPEONFORK => Advice::WipedInCopies,
        libc::MADV_DOFORK | libc::MADV_KEEPONFORK => Advice::KeptInCopies,
        libc::MADV_DONTDUMP
        | libc::MADV_DODUMP
        | libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_WILLNEED
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_COLD
        | libc::MADV_PAGEOUT
        | libc::MADV_POPULATE_READ
        | libc::MADV_POPULATE_WRITE => Advice::NoEffect,
        _ => return None,
    })
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let Some((paged, at)) = paged_at(address as usize) else {
        return advise_elsewhere(address, len, advice);
    };
    let Some(advice) = advice_of(advice).filter(|_| at.is_multiple_of(PAGE_LEN)) else {
        return refuse(libc::EINVAL);
    };
    if !paged.contains(at, len) {
        return refuse(libc::ENOMEM);
    }
    if len > 0 {
        match advice {
            Advice::Zeros => paged.discard(pages_of(at, len)),
            Advice::WipedInCopies => paged.wipe_in_copies(pages_of(at, len), true),
            Advice::KeptInCopies => paged.wipe_in_copies(pages_of(at, len), false),
            Advice::NoEffect => {}
        }
    }
    0
}

/// Advice on memory that is not the heap's. What is paged there gets the advice that paged memory
/// takes, and the rest all of it.
fn advise_elsewhere(address: *mut c_void, len: size_t, number: c_int) -> c_int {
    let all = || call(libc::SYS_madvise, address as usize, len, number);
    let (range, effect) = (range_of(address, len), advice_of(number));
    if let Some(Advice::Zeros) = effect {
        let zeroes = || call(libc::SYS_madvise, address as usize, len, zeroing(number));
        // Beside a hole all that is there becomes zeros.
        let has_changed = |result| result == 0 || errno() == libc::ENOMEM;
        return change_elsewhere(&range, zeroes, has_changed, |_, _| {}).unwrap_or_else(all);
    }
    let Some(paged) = paged().filter(|_| (address as usize).is_multiple_of(PAGE_LEN)) else {
        return all();
    };
    without_signals(|| {
        let elsewhere = paged.elsewhere();
        if !elsewhere.overlaps(&range) {
            drop(elsewhere);
            return all();
        }
        match effect {
            Some(Advice::WipedInCopies) => paged.wipe_range_in_copies(range.clone(), true),
            Some(Advice::KeptInCopies) => paged.wipe_range_in_copies(range.clone(), false),
            Some(Advice::Zeros | Advice::NoEffect) => {}
            None => return refuse(libc::EINVAL),
        }
        let advise =
            |gap: core::ops::Range<usize>| call(libc::SYS_madvise, gap.start, gap.len(), number);
        elsewhere.gaps(range.clone()).map(advise).fold(0, core::cmp::min)
    })
}

/// The advice that makes pages zeros at once, if they are locked by the pager, too.
fn zeroing(number: c_int) -> c_int {
    let is_locked = paged().and_then(PagedMemory::own_pager).is_some_and(Pager::is_locked);
    if is_locked || number == libc::MADV_DONTNEED_LOCKED {
        libc::MADV_DONTNEED_LOCKED
    } else {
        libc::MADV_DONTNEED
    }
}

/// A system call on a range of addresses.
fn call(number: c_long, start: usize, len: size_t, argument: c_int) -> c_int {
    // SAFETY: the promise of the caller of the function that the program calls.
    unsafe { libc::syscall(number, start, len, argument) as c_int }
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    static REPORTED: Once = Once::new();
    if protection & libc::PROT_WRITE != 0 && protection & libc::PROT_EXEC != 0 {
        prepare_executable();
    }
    let Some((paged, at)) = paged_at(address as usize) else {
        return call(libc::SYS_mprotect, address as usize, len, readable(protection));
    };
    if !at.is_multiple_of(PAGE_LEN) {
        return refuse(libc::EINVAL);
    }
    if !paged.contains(at, len) {
        return refuse(libc::ENOMEM);
    }
    if may_protect() {
        return if paged.protect(at, len, readable(protection)) { 0 } else { -1 };
    }
    if protection == libc::PROT_READ | libc::PROT_WRITE {
        return 0;
    }
    REPORTED.call_once(|| print("paged memory cannot be protected: mprotect is refused"));
    refuse(libc::ENOMEM)
}
