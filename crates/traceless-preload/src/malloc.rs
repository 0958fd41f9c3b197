//! malloc and its kin, in paged memory.

use crate::own_threads::is_starting;
use crate::paged_memory::{paged, paged_at};
use crate::report::print;
use crate::trusted_heap;
use core::ffi::{c_int, c_void};
use core::ptr::{copy_nonoverlapping, null_mut, write_bytes};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Once;
use traceless_pager::PAGE_LEN;

/// Every object begins at a multiple of this.
const ALIGN: usize = 16;

/// Whether this library's functions have allocated since [`find_user`] began to look.
static IS_USED: AtomicBool = AtomicBool::new(false);
static IS_LIBRARYS: AtomicBool = AtomicBool::new(false);

/// Finds out whether the C library allocates by these functions. Called before memory is paged.
pub fn find_user() {
    IS_USED.store(false, Relaxed);
    // SAFETY: a text; its copy is freed at once.
    unsafe { libc::free(libc::strdup(c"text".as_ptr()).cast()) };
    IS_LIBRARYS.store(IS_USED.load(Relaxed), Relaxed);
}

/// Whether the C library allocates by these functions, not by a `malloc` of the
/// program's own. In a copy of the process that would give records of the pager's threads
/// memory that is paged, and may be locked.
pub fn is_librarys() -> bool {
    IS_LIBRARYS.load(Relaxed)
}

/// Allocates an object. Also returns whether it holds zeros already.
fn allocate(size: usize, align: usize) -> (*mut u8, bool) {
    let Some(paged) = paged() else {
        IS_USED.store(true, Relaxed);
        return (trusted_heap::allocate(size, align), false);
    };
    let found = paged.allocate(size, align);
    let Some((at, zeros)) = found else {
        out_of_memory();
        return (null_mut(), false);
    };
    (paged.address(at), zeros)
}

/// Reports once that paged memory is used up.
pub fn out_of_memory() {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| print("out of paged memory: run it with a larger --memory"));
    set_errno(libc::ENOMEM);
}

pub fn errno() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(errno: c_int) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// # Safety
/// As of C's `free`, but not of null.
unsafe fn release(object: *mut u8) {
    let Some((memory, at)) = paged_at(object as usize) else {
        // SAFETY: the caller's promise; what is not paged came from there, or from the loader.
        return unsafe { trusted_heap::free(object) };
    };
    if is_starting() {
        // A table of a thread that this copy does not have: no pager could take its pages yet.
        return;
    }
    let freed = memory.heap().free(at);
    match freed {
        Some(None) => {}
        Some(Some(pages)) => memory.free(pages),
        None => {
            print("free(): there is no such object");
            std::process::abort();
        }
    }
}

/// # Safety
/// As of C's `malloc_usable_size`, but not of null.
unsafe fn size_of(object: *mut u8) -> usize {
    match paged_at(object as usize) {
        Some((paged, at)) => paged.heap().size_of(at).unwrap_or(0),
        // SAFETY: the caller's promise.
        None => unsafe { trusted_heap::size_of_object(object) },
    }
}

/// As of C.
///
/// # Safety
/// As of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    allocate(size, ALIGN).0.cast()
}

/// As of C.
///
/// # Safety
/// As of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(object: *mut c_void) {
    if !object.is_null() {
        // SAFETY: the caller's promise.
        unsafe { release(object.cast()) };
    }
}

/// As of C.
///
/// # Safety
/// As of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let Some(len) = count.checked_mul(size) else {
        set_errno(libc::ENOMEM);
        return null_mut();
    };
    let (object, zeros) = allocate(len, ALIGN);
    if !object.is_null() && !zeros {
        // SAFETY: an object of that length.
        unsafe { write_bytes(object, 0, len) };
    }
    object.cast()
}

/// As of C.
///
/// # Safety
/// As of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(object: *mut c_void, size: usize) -> *mut c_void {
    if object.is_null() {
        return allocate(size, ALIGN).0.cast();
    }
    // SAFETY: the caller's promise, here and below.
    unsafe {
        if size == 0 {
            release(object.cast());
            return null_mut();
        }
        let room = size_of(object.cast());
        if size <= room && size >= room / 2 {
            return object;
        }
        if let Some((paged, at)) = paged_at(object as usize)
            && paged.heap().resize(at, size)
        {
            return object;
        }
        let (new, _) = allocate(size, ALIGN);
        if !new.is_null() {
            copy_nonoverlapping(object.cast::<u8>(), new, room.min(size));
            release(object.cast());
        }
        new.cast()
    }
}

/// As of C.
///
/// # Safety
/// As of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    object: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    let Some(len) = count.checked_mul(size) else {
        set_errno(libc::ENOMEM);
        return null_mut();
    };
    // SAFETY: the caller's promise.
    unsafe { realloc(object, len) }
}

/// As of C.
///
/// # Safety
/// As of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    allocate(size, align).0.cast()
}

/// As of C.
///
/// # Safety
/// As of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: the same.
    unsafe { memalign(align, size) }
}

/// As of POSIX.
///
/// # Safety
/// As of POSIX.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    into: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    if !align.is_power_of_two() || align < size_of_pointer() {
        return libc::EINVAL;
    }
    let (object, _) = allocate(size, align);
    if object.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { into.write(object.cast()) };
    0
}

const fn size_of_pointer() -> usize {
    core::mem::size_of::<*mut c_void>()
}

/// As of C.
///
/// # Safety
/// As of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    allocate(size, PAGE_LEN).0.cast()
}

/// As of C.
///
/// # Safety
/// As of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    allocate(size.saturating_add(PAGE_LEN - 1) & !(PAGE_LEN - 1), PAGE_LEN).0.cast()
}

/// As of C.
///
/// # Safety
/// As of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(object: *mut c_void) -> usize {
    if object.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { size_of(object.cast()) }
}
