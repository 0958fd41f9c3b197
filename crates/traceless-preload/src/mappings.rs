//! mmap and its kin: anonymous private memory is paged, all else is the kernel's.

use crate::begin::{Paged, paged, paged_at, say};
use crate::heap::{out_of_memory, set_errno};
use core::ffi::{c_int, c_void};
use core::ptr::copy_nonoverlapping;
use libc::{off_t, size_t};
use std::sync::Once;
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::Pages;

const FAILED: *mut c_void = libc::MAP_FAILED;

/// What does not keep anonymous memory from being paged.
const HARMLESS: c_int = libc::MAP_NORESERVE | libc::MAP_POPULATE;

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
    let plain = flags & !HARMLESS == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
        && protection == libc::PROT_READ | libc::PROT_WRITE
        && address.is_null()
        && len > 0;
    if let Some(paged) = paged().filter(|_| plain) {
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
    if !at.is_multiple_of(PAGE_LEN) {
        return refuse(libc::EINVAL);
    }
    if matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE) && len > 0 {
        paged.forget(pages_of(at, len));
    }
    // All other advice is about pages that the kernel manages.
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
