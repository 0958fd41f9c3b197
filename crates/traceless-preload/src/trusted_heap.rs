//! Memory that is never paged: the pager's own, and objects that the program allocated before
//! paging began. It is locked, and left out of core dumps.
//!
//! Each object has a header before it. Free objects are kept by size, powers of two, in linked
//! lists through the objects.

use crate::own_threads::is_own_thread;
use crate::protected;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::sync::{Mutex, MutexGuard};

/// Marks the header of each object; memory without it was not allocated here.
const MARK: usize = 0x7472_6163_656c_6573;
const CHUNK: usize = 1 << 20;
/// Larger objects are mapped one by one.
const LISTED_MAX: usize = 1 << 16;
const SIZE_MIN: usize = 64;
const LISTS_COUNT: usize = LISTED_MAX.ilog2() as usize + 1;

#[derive(Clone, Copy)]
struct Header {
    /// Start and length of the memory that contains the object.
    start: usize,
    len: usize,
    /// Bytes from the object to the end of that memory.
    room: usize,
    mark: usize,
}

/// The lists, and the rest of the current chunk.
pub struct Lists {
    free: [usize; LISTS_COUNT],
    chunk: usize,
    left: usize,
}

/// The lists for the program's threads. The pager's have their own: a thread of the program may be
/// interrupted, or wait for a page, while it holds the lock, and the pager must not wait for that.
static LISTS: Mutex<Lists> = Mutex::new(Lists::NONE);
static OWN_LISTS: Mutex<Lists> = Mutex::new(Lists::NONE);
/// In a copy of the process, the lists of its pager's threads: the ones above may be locked by a
/// thread that the copy does not have.
static OWN_LISTS_OF_COPY: AtomicPtr<Mutex<Lists>> = AtomicPtr::new(null_mut());

/// The lists for this kind of thread, locked: meanwhile no other thread of this kind can allocate
/// or free.
fn lists() -> MutexGuard<'static, Lists> {
    if !is_own_thread() {
        return program_lists();
    }
    // SAFETY: null, or memory that is never freed.
    let of_copy = unsafe { OWN_LISTS_OF_COPY.load(Acquire).as_ref() };
    locked(of_copy.unwrap_or(&OWN_LISTS))
}

/// The lists for the program's threads, locked.
pub fn program_lists() -> MutexGuard<'static, Lists> {
    locked(&LISTS)
}

fn locked(lists: &'static Mutex<Lists>) -> MutexGuard<'static, Lists> {
    // Code that holds the lists does not panic; if it did, they would still be consistent.
    lists.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// In a copy of the process: gives the pager's threads lists of their own. What the other process's
/// threads have freed is not used again.
pub fn renew_own_lists() {
    let at = map(4096) as *mut Mutex<Lists>;
    if !at.is_null() {
        // SAFETY: fresh memory that is long enough, and never freed.
        unsafe { at.write(Mutex::new(Lists::NONE)) };
        OWN_LISTS_OF_COPY.store(at, Release);
    }
}

/// Room for `size` bytes at a multiple of `align`, or null.
pub fn allocate(size: usize, align: usize) -> *mut u8 {
    let align = align.max(align_of::<Header>()).max(16);
    let wanted = size.checked_add(size_of::<Header>() + align - 16);
    let Some(wanted) = wanted.filter(|&wanted| isize::try_from(wanted).is_ok()) else {
        return null_mut();
    };
    let len = if wanted <= LISTED_MAX {
        wanted.next_power_of_two().max(SIZE_MIN)
    } else {
        wanted.next_multiple_of(4096)
    };
    let start = if len <= LISTED_MAX { lists().take(len) } else { map(len) };
    if start == 0 {
        return null_mut();
    }
    let object = (start + size_of::<Header>()).next_multiple_of(align);
    let header = Header { start, len, room: start + len - object, mark: MARK };
    // SAFETY: the object lies in `len` bytes of ours with a header's room before it, both aligned.
    unsafe {
        header_at(object as *mut u8).write(header);
    }
    object as *mut u8
}

/// Frees an object from `allocate`. Any other memory is left alone.
///
/// # Safety
/// A header's length before `object` can be read, and `object` is not used any more.
pub unsafe fn free(object: *mut u8) {
    // SAFETY: the caller's promise.
    let Some(header) = (unsafe { header_of(object) }) else { return };
    // SAFETY: the header is ours, and so is the memory that it names.
    unsafe {
        header_at(object).write(Header { mark: 0, ..header });
        if header.len <= LISTED_MAX {
            lists().give(header.start, header.len);
        } else {
            protected::remove(header.start);
            let _ = munmap(header.start as *mut _, header.len);
        }
    }
}

/// Bytes that an object has room for.
///
/// # Safety
/// As for [`free`], but the object may still be used.
pub unsafe fn size_of_object(object: *mut u8) -> usize {
    // SAFETY: the caller's promise.
    unsafe { header_of(object) }.map_or(0, |header| header.room)
}

/// Where the header of an object is.
fn header_at(object: *mut u8) -> *mut Header {
    (object as usize - size_of::<Header>()) as *mut Header
}

unsafe fn header_of(object: *mut u8) -> Option<Header> {
    // SAFETY: the caller's promise.
    let header = unsafe { header_at(object).read_unaligned() };
    (header.mark == MARK).then_some(header)
}

impl Lists {
    const NONE: Self = Self { free: [0; LISTS_COUNT], chunk: 0, left: 0 };

    /// Takes `len` bytes, a power of two; 0 if there is no memory.
    fn take(&mut self, len: usize) -> usize {
        let list = len.ilog2() as usize;
        let first = self.free[list];
        if first != 0 {
            // SAFETY: free memory of ours begins with where the next one is.
            self.free[list] = unsafe { (first as *const usize).read() };
            return first;
        }
        if self.left < len {
            // The rest of the old chunk is dropped: it is smaller than the object.
            self.chunk = map(CHUNK);
            self.left = if self.chunk == 0 { 0 } else { CHUNK };
        }
        if self.left < len {
            return 0;
        }
        self.left -= len;
        self.chunk + self.left
    }

    /// # Safety
    /// The bytes are not used any more.
    unsafe fn give(&mut self, start: usize, len: usize) {
        let list = len.ilog2() as usize;
        // SAFETY: memory of ours that is not used any more.
        unsafe { (start as *mut usize).write(self.free[list]) };
        self.free[list] = start;
    }
}

/// Fresh, protected, zeroed memory from the kernel; or 0.
fn map(len: usize) -> usize {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address that the kernel chooses.
    let mapped = unsafe { mmap_anonymous(null_mut(), len, protection, MapFlags::PRIVATE) };
    let start = mapped.map_or(0, |start| start as usize);
    if start != 0 {
        protected::protect(start, len);
    }
    start
}

/// The allocator of all Rust code in this library.
pub struct TrustedAllocator;

// SAFETY: objects are as large and as aligned as requested, and belong to no other object.
unsafe impl GlobalAlloc for TrustedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate(layout.size(), layout.align())
    }

    unsafe fn dealloc(&self, object: *mut u8, _: Layout) {
        // SAFETY: it came from `alloc`.
        unsafe { free(object) };
    }
}
