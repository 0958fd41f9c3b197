//! Prefetching memory.

/// Prefetches `len` bytes from the element `at` of `values` on. An adversary that watches the
/// memory observes the addresses, as of a read.
#[inline(always)]
pub fn prefetch<T>(values: &[T], at: usize, len: usize) {
    const LINE: usize = 64;
    let start = values.as_ptr().wrapping_add(at).cast::<u8>();
    // Start at a line boundary: unaligned bytes may touch one line more than their length suggests.
    let before = start.addr() % LINE;
    for line in 0..(before + len).div_ceil(LINE) {
        prefetch_line(start.wrapping_sub(before).wrapping_add(line * LINE));
    }
}

#[inline(always)]
fn prefetch_line(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program could see, and never faults.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch reads nothing that the program could see, and never faults.
    unsafe {
        core::arch::asm!(
            "prfm pldl1keep, [{0}]",
            in(reg) at,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}
