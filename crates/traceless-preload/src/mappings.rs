//! mmap and its kin: anonymous private memory is paged, all other mappings are the kernel's.

use crate::malloc::{out_of_memory, set_errno};
use crate::paged_memory::{PagedMemory, is_paged, paged, paged_at};
use crate::report::print;
use core::ffi::{c_int, c_void};
use core::ptr::copy_nonoverlapping;
use libc::{off_t, size_t};
use std::sync::Once;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::Pages;

const FAILED: *mut c_void = libc::MAP_FAILED;

/// Flags with which anonymous memory can still be paged.
const HARMLESS: c_int = libc::MAP_NORESERVE | libc::MAP_POPULATE;

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

fn refuse(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// The pages that a range touches.
fn pages_of(at: usize, len: usize) -> Pages {
    let end = at.saturating_add(len).div_ceil(PAGE_LEN);
    Pages { first: at / PAGE_LEN, count: end - at / PAGE_LEN }
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    let placed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) == libc::MAP_FIXED;
    let plain = flags & !(HARMLESS | libc::MAP_FIXED) == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
        && protection == libc::PROT_READ | libc::PROT_WRITE;
    if placed && is_paged(address as usize, len) {
        return map_over(address, len, plain);
    }
    let anywhere = plain && !placed && address.is_null() && len > 0;
    if let Some(paged) = paged().filter(|_| anywhere) {
        let mapped = paged.heap().map(len);
        return mapped.map_or_else(
            || {
                out_of_memory();
                FAILED
            },
            |at| paged.address(at).cast(),
        );
    }
    // SAFETY: the caller's promise.
    unsafe {
        libc::syscall(libc::SYS_mmap, address, len, protection, flags, file, offset) as *mut c_void
    }
}

/// Maps memory in the place of paged memory. Fresh memory is implemented by zeroing; the pager
/// would page any other mapping out as if it were one of its pages.
fn map_over(address: *mut c_void, len: usize, plain: bool) -> *mut c_void {
    if let Some((paged, at)) = paged_at(address as usize).filter(|_| plain) {
        let pages = pages_of(at, len);
        let is_mapped = paged.heap().is_mapped(pages);
        if is_mapped && at.is_multiple_of(PAGE_LEN) {
            paged.discard(pages);
            return address;
        }
    }
    report_refused_mapping();
    set_errno(libc::ENOMEM);
    FAILED
}

fn report_refused_mapping() {
    static REPORTED: Once = Once::new();
    REPORTED
        .call_once(|| print("nothing else can take the place of paged memory: mmap is refused"));
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise; offsets are as long here.
    unsafe { mmap(address, len, protection, flags, file, offset) }
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(address: *mut c_void, len: size_t) -> c_int {
    let Some((paged, at)) = paged_at(address as usize) else {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_munmap, address, len) as c_int };
    };
    if !at.is_multiple_of(PAGE_LEN) || len == 0 {
        return refuse(libc::EINVAL);
    }
    unmap(paged, at, len);
    0
}

fn unmap(paged: &PagedMemory, at: usize, len: usize) {
    let gone = paged.heap().unmap(pages_of(at, len));
    for pages in gone {
        paged.release(pages);
    }
}

/// As of Linux. The last argument is there only with `MREMAP_FIXED`, which paged memory refuses.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    address: *mut c_void,
    len: size_t,
    new_len: size_t,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    let placed = flags & libc::MREMAP_FIXED != 0;
    let ranges = [(address, len), (new_address, if placed { new_len } else { 0 })];
    if placed && ranges.iter().any(|&(start, len)| is_paged(start as usize, len)) {
        static REPORTED: Once = Once::new();
        REPORTED.call_once(|| print("paged memory has its place: mremap to another is refused"));
        set_errno(libc::EINVAL);
        return FAILED;
    }
    let Some((paged, at)) = paged_at(address as usize) else {
        // SAFETY: the caller's promise.
        return unsafe {
            libc::syscall(libc::SYS_mremap, address, len, new_len, flags, new_address)
                as *mut c_void
        };
    };
    if flags & !libc::MREMAP_MAYMOVE != 0
        || !at.is_multiple_of(PAGE_LEN)
        || new_len == 0
        || len == 0
    {
        set_errno(libc::EINVAL);
        return FAILED;
    }
    let (there, wanted) = (pages_of(at, len).count, pages_of(at, new_len).count);
    if wanted <= there {
        unmap(paged, at + wanted * PAGE_LEN, (there - wanted) * PAGE_LEN);
        return address;
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        set_errno(libc::ENOMEM);
        return FAILED;
    }
    let mapped = paged.heap().map(new_len);
    let Some(new) = mapped else {
        out_of_memory();
        return FAILED;
    };
    // SAFETY: the old mapping and a new, longer one.
    unsafe { copy_nonoverlapping(address.cast::<u8>(), paged.address(new), len) };
    unmap(paged, at, len);
    paged.address(new).cast()
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let Some((paged, at)) = paged_at(address as usize) else {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_madvise, address, len, advice) as c_int };
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

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    if paged_at(address as usize).is_none() {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_mprotect, address, len, protection) as c_int };
    }
    if protection == libc::PROT_READ | libc::PROT_WRITE {
        return 0;
    }
    report_refused_protection();
    refuse(libc::ENOMEM)
}

fn report_refused_protection() {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| print("paged memory cannot be protected: mprotect is refused"));
}
