//! Memory of a process that must not wait for the system's.

use rustix::param::page_size;

/// Takes memory from the system that stays with this process, so that later allocations of up to
/// `bytes` in all take none. For a process that the system needs to free memory.
///
/// Must come before the first thread starts. Returns whether it is so: an allocator other than
/// glibc's keeps no promise.
///
/// ```
/// // Where glibc is missing, nothing is promised.
/// let _is_kept = traceless_sys::reserve_heap(1 << 20);
/// let buffer = vec![1u8; 1 << 19];
/// assert_eq!(buffer.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 1 << 19);
/// ```
pub fn reserve_heap(bytes: usize) -> bool {
    let is_kept = keep_all();
    let mut heap = Vec::<u8>::with_capacity(bytes);
    // Each page is touched once; the pages stay when the vector is dropped.
    for page in heap.spare_capacity_mut().chunks_mut(page_size()) {
        page[0].write(1);
    }
    std::hint::black_box(&heap);
    is_kept
}

/// One heap for all threads, which grows and never shrinks.
#[cfg(target_env = "gnu")]
fn keep_all() -> bool {
    let settings =
        [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_MAX, 0), (libc::M_TRIM_THRESHOLD, i32::MAX)];
    settings.into_iter().all(|(parameter, value)| {
        // SAFETY: `mallopt` changes settings of the allocator under its own lock; each parameter
        // is one that it has, and allocations from before stay valid.
        unsafe { libc::mallopt(parameter, value) == 1 }
    })
}

#[cfg(not(target_env = "gnu"))]
fn keep_all() -> bool {
    false
}
