//! Trusted memory, kept off swap devices and out of core dumps: what is allocated for the pager,
//! keys among it, levels of a tree that it keeps in memory, and the stacks of its threads. Paged
//! memory is kept so by the pager itself.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use traceless_pager::paging::{Keeper, keep_large_memory, lock};

/// Mappings that are locked again when the program unlocks all of its memory, at most. There are
/// few: a megabyte each, larger objects, and the stacks of the pager's threads.
const REGIONS_MAX: usize = 256;

static REGIONS: [(AtomicUsize, AtomicUsize); REGIONS_MAX] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; REGIONS_MAX];

/// A mapping could not be locked.
static IS_UNLOCKED: AtomicBool = AtomicBool::new(false);

/// A mapping holds secrets from now on. Where it may not be locked it is not: the program is told
/// of the limit when its pages are.
pub fn keep(start: usize, len: usize) {
    // SAFETY: what the mapping holds is not changed.
    unsafe { libc::madvise(start as *mut _, len, libc::MADV_DONTDUMP) };
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

/// From now on memory that is mapped past the allocator is kept, too.
pub fn keep_large() {
    keep_large_memory(Keeper { keep, forget });
}

/// Whether all of it is locked.
pub fn is_locked() -> bool {
    !IS_UNLOCKED.load(Relaxed)
}

/// It is unmapped.
pub fn forget(start: usize) {
    if let Some(region) = REGIONS.iter().find(|region| region.0.load(Relaxed) == start) {
        region.0.store(0, Relaxed);
    }
}

/// Locks all of it once more: the program has unlocked whatever is mapped, or locking it was not
/// allowed before.
pub fn lock_again() {
    let mut is_unlocked = false;
    for (start, len) in &REGIONS {
        let (start, len) = (start.load(Relaxed), len.load(Relaxed));
        is_unlocked |= start != 0 && lock(start, len).is_err();
    }
    IS_UNLOCKED.store(is_unlocked, Relaxed);
}

/// This thread's stack, which stays as long as the program.
pub fn keep_stack() {
    let (mut start, mut len) = (null_mut(), 0);
    // SAFETY: this thread's own attributes, in a record of ours, which is given back.
    unsafe {
        let mut attributes = core::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) != 0 {
            return;
        }
        let known =
            libc::pthread_attr_getstack(&raw const attributes, &raw mut start, &raw mut len);
        libc::pthread_attr_destroy(&raw mut attributes);
        if known != 0 {
            return;
        }
    }
    keep(start as usize, len);
}

/// Bytes of the first thread's stack that building a scheme takes, keys among them, with room.
const BUILDING_LEN: usize = 128 << 10;

/// Leaves zeros where the stack was used by calls that have returned.
#[inline(never)]
#[expect(clippy::large_stack_arrays, reason = "the stack is what it wipes")]
pub fn wipe_stack() {
    let mut used = [0xff_u8; BUILDING_LEN];
    used.fill(0);
    core::hint::black_box(&mut used);
}
