//! Locks trusted memory, and keeps it out of core dumps: the pager's allocations, keys among them,
//! the levels of a tree that it keeps in memory, and the stacks of its threads. The pager itself
//! does the same for paged memory.

use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use traceless_pager::PAGE_LEN;
use traceless_pager::paging::{LargeMemoryHooks, lock, mapped_range, set_large_memory_hooks};

/// Number of mappings that can be locked again after the program unlocks all of its memory. There
/// are few: chunks of a megabyte, larger objects, and the stacks of the pager's threads.
const REGIONS_MAX: usize = 256;

static REGIONS: [(AtomicUsize, AtomicUsize); REGIONS_MAX] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; REGIONS_MAX];

/// Whether a mapping could not be locked.
static IS_UNLOCKED: AtomicBool = AtomicBool::new(false);

/// Marks a mapping as secret from now on. If the limit does not allow the lock, the mapping stays
/// unlocked; the limit is reported when paged memory is set up.
pub fn protect(start: usize, len: usize) {
    // By a system call: this library's `madvise` takes a lock, under which memory is allocated.
    // SAFETY: what the mapping holds is not changed.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, libc::MADV_DONTDUMP) };
    if lock(start, len).is_err() {
        IS_UNLOCKED.store(true, Relaxed);
    }
    let takes = |region: &&(AtomicUsize, AtomicUsize)| {
        region.0.compare_exchange(0, start, Relaxed, Relaxed).is_ok()
    };
    if let Some(region) = REGIONS.iter().find(takes) {
        region.1.store(len, Relaxed);
    }
}

/// From now on large memory that bypasses the allocator is protected, too.
pub fn protect_large_memory() {
    set_large_memory_hooks(LargeMemoryHooks { mapped: protect, unmapped: remove });
}

/// Whether all protected memory is locked.
pub fn is_locked() -> bool {
    !IS_UNLOCKED.load(Relaxed)
}

/// Removes a mapping that is being unmapped.
pub fn remove(start: usize) {
    if let Some(region) = REGIONS.iter().find(|region| region.0.load(Relaxed) == start) {
        region.0.store(0, Relaxed);
    }
}

/// Whether a protected mapping begins at an address.
pub fn is_protected(start: usize) -> bool {
    REGIONS.iter().any(|region| region.0.load(Relaxed) == start)
}

/// Locks all protected memory once more, after the program has unlocked all mappings, or after the
/// limit was too low.
pub fn lock_again() {
    let mut is_unlocked = false;
    for (start, len) in &REGIONS {
        let (start, len) = (start.load(Relaxed), len.load(Relaxed));
        is_unlocked |= start != 0 && lock(start, len).is_err();
    }
    IS_UNLOCKED.store(is_unlocked, Relaxed);
}

/// Protects this thread's stack. The thread must live as long as the program. It is looked up
/// without the C library, which would allocate: of a program with a `malloc` of its own, which may
/// be locked in a copy of the process until this library's handlers have returned.
pub fn protect_stack() {
    /// Bytes that the C library may have above the record of a thread, which is above its stack.
    const RECORD_LEN_MAX: usize = 2 * PAGE_LEN;
    // SAFETY: it has no conditions.
    let record = unsafe { libc::pthread_self() } as usize;
    let Ok(list) = std::fs::read_to_string("/proc/self/maps") else { return };
    let contains_record = |range: &Range<usize>| range.contains(&record);
    if let Some(range) = list.lines().filter_map(mapped_range).find(contains_record) {
        // The next mapping may have become one with it.
        let end = range.end.min((record + RECORD_LEN_MAX).next_multiple_of(PAGE_LEN));
        protect(range.start, end - range.start);
    }
}

/// Bytes of the first thread's stack that may hold keys after a scheme was built there, with slack.
const SCHEME_STACK_LEN: usize = 128 << 10;

/// Overwrites the part of the stack that returned calls have used.
#[inline(never)]
#[expect(clippy::large_stack_arrays, reason = "the stack is what it wipes")]
pub fn wipe_stack() {
    let mut used = [0xff_u8; SCHEME_STACK_LEN];
    used.fill(0);
    let range = core::hint::black_box(&mut used).as_mut_ptr_range();
    let start = range.start.addr().next_multiple_of(PAGE_LEN);
    let len = range.end.addr() / PAGE_LEN * PAGE_LEN - start;
    // The stack is as short as before again.
    // SAFETY: whole pages of zeros, which nothing uses any more.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, libc::MADV_DONTNEED) };
}
