//! mmap and its kin: anonymous private memory is paged, all else is the kernel's.

use crate::begin::{Paged, is_paged, paged, paged_at, say};
use crate::heap::{out_of_memory, set_errno};
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::copy_nonoverlapping;
use libc::{off_t, size_t};
use std::sync::Once;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::Pages;

const FAILED: *mut c_void = libc::MAP_FAILED;

/// What does not keep anonymous memory from being paged.
const HARMLESS: c_int = libc::MAP_NORESERVE | libc::MAP_POPULATE;

/// What a program may be told of pages that the kernel manages, without any effect on these.
const HARMLESS_ADVICE: [c_int; 16] = [
    libc::MADV_NORMAL,
    libc::MADV_RANDOM,
    libc::MADV_SEQUENTIAL,
    libc::MADV_WILLNEED,
    libc::MADV_DONTFORK,
    libc::MADV_DOFORK,
    libc::MADV_MERGEABLE,
    libc::MADV_UNMERGEABLE,
    libc::MADV_HUGEPAGE,
    libc::MADV_NOHUGEPAGE,
    libc::MADV_DONTDUMP,
    libc::MADV_DODUMP,
    libc::MADV_COLD,
    libc::MADV_PAGEOUT,
    libc::MADV_POPULATE_READ,
    libc::MADV_POPULATE_WRITE,
];

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

/// A mapping in the place of paged memory. Fresh memory is what zeros are; anything else would be
/// moved away as if it were a page of ours.
fn map_over(address: *mut c_void, len: usize, plain: bool) -> *mut c_void {
    if let Some((paged, at)) = paged_at(address as usize).filter(|_| plain) {
        let pages = pages_of(at, len);
        let is_mapped = paged.heap().is_mapped(pages);
        if is_mapped && at.is_multiple_of(PAGE_LEN) {
            paged.forget(pages);
            return address;
        }
    }
    say_that_nothing_takes_its_place();
    set_errno(libc::ENOMEM);
    FAILED
}

fn say_that_nothing_takes_its_place() {
    static SAID: Once = Once::new();
    SAID.call_once(|| say("nothing else can take the place of paged memory: mmap is refused"));
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

fn unmap(paged: &Paged, at: usize, len: usize) {
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
        static SAID: Once = Once::new();
        SAID.call_once(|| say("paged memory has its place: mremap to another is refused"));
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
    let gives_up =
        matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED);
    if !at.is_multiple_of(PAGE_LEN) || !(gives_up || HARMLESS_ADVICE.contains(&advice)) {
        return refuse(libc::EINVAL);
    }
    if !paged.reaches(at, len) {
        return refuse(libc::ENOMEM);
    }
    if gives_up && len > 0 {
        paged.forget(pages_of(at, len));
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
    say_that_it_cannot_be_protected();
    refuse(libc::ENOMEM)
}

fn say_that_it_cannot_be_protected() {
    static SAID: Once = Once::new();
    SAID.call_once(|| say("paged memory cannot be protected: mprotect is refused"));
}

/// As of POSIX. Paged memory is never swapped out, which is what locking is for.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock(address: *const c_void, len: size_t) -> c_int {
    if paged_at(address as usize).is_some() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mlock, address, len) as c_int }
}

/// As of Linux, in the same way.
///
/// # Safety
/// As of Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlock2(address: *const c_void, len: size_t, flags: c_uint) -> c_int {
    if paged_at(address as usize).is_some() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_mlock2, address, len, flags) as c_int }
}

/// As of POSIX. Paged memory is left out: what is locked does not leave. All else is locked when it
/// is touched, since to touch all of it now would bring every page, and take the pager's own.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    let Some(paged) = paged().filter(|_| flags != 0) else {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_mlockall, flags) as c_int };
    };
    paged.hold(|start, len| {
        // SAFETY: the caller's promise; the rest is memory of ours, which nobody has locked before.
        unsafe {
            let done = libc::syscall(libc::SYS_mlockall, flags | libc::MCL_ONFAULT) as c_int;
            if done == 0 { libc::syscall(libc::SYS_munlock, start, len) as c_int } else { done }
        }
    })
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munlock(address: *const c_void, len: size_t) -> c_int {
    if paged_at(address as usize).is_some() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_munlock, address, len) as c_int }
}
