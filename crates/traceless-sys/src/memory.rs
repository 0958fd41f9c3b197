//! Large memory for trees.

use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// Largest object that Rust allows, less the loss by rounding.
const BYTES_MAX: usize = isize::MAX as usize - (4 << 20);

/// Zeroed words that begin on a page, in huge pages where the system has them: accesses to a tree
/// are random, and with small pages most would miss the TLB.
///
/// ```
/// use traceless_sys::Words;
///
/// let mut tree = Words::zeroed(1 << 16).expect("512 KiB of memory");
/// tree[1000] = 42;
/// assert_eq!(tree.iter().sum::<u64>(), 42);
/// assert_eq!(tree.as_ptr().addr() % 4096, 0);
/// ```
pub struct Words {
    start: NonNull<u64>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, and is reached through `&self` and `&mut self`
// only, as the words of a `Box<[u64]>` would be.
unsafe impl Send for Words {}
// SAFETY: as above; `&Words` gives `&[u64]` only.
unsafe impl Sync for Words {}

impl Words {
    /// `len` words of zeros, or `None` where there is not enough memory.
    pub fn zeroed(len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<u64>()).filter(|&bytes| bytes <= BYTES_MAX)?;
        if bytes == 0 {
            return Some(Self { start: NonNull::dangling(), len: 0 });
        }
        imp::zeroed(bytes).map(|start| Self { start: start.cast(), len })
    }
}

impl Deref for Words {
    type Target = [u64];
    #[inline]
    fn deref(&self) -> &[u64] {
        // SAFETY: `len` words, zeroed when they were made, alive with `self`; or none at all.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `deref`, and `&mut self` makes it the only reference.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: made by `imp::zeroed` of as many bytes; no reference to it outlives `self`.
            unsafe { imp::free(self.start.cast(), self.len * size_of::<u64>()) };
        }
    }
}

#[cfg(all(feature = "std", target_os = "linux"))]
pub use imp::{LargeMemoryHooks, set_large_memory_hooks};

#[cfg(all(feature = "std", target_os = "linux"))]
mod imp {
    use core::ptr::NonNull;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::sync::OnceLock;

    /// Functions to call for large memory, which bypasses every allocator.
    #[derive(Clone, Copy, Debug)]
    pub struct LargeMemoryHooks {
        /// Called after memory was mapped, with its start and its length in bytes.
        pub mapped: fn(usize, usize),
        /// Called with its start before memory is unmapped.
        pub unmapped: fn(usize),
    }

    static HOOKS: OnceLock<LargeMemoryHooks> = OnceLock::new();

    /// From now on `hooks` are called for all large memory of the process. Only the first ones
    /// count.
    pub fn set_large_memory_hooks(hooks: LargeMemoryHooks) {
        let _ = HOOKS.set(hooks);
    }

    const HUGE: usize = 2 << 20;

    pub fn zeroed(bytes: usize) -> Option<NonNull<u8>> {
        // The kernel itself aligns a long mapping to huge pages.
        let bytes = rounded(bytes);
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses.
        let start = unsafe {
            mmap_anonymous(
                core::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let start = NonNull::new(start.ok()?.cast::<u8>())?;
        // SAFETY: exactly the mapping made above; advice does not change its contents. Without
        // huge pages everything works, only slower.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        if let Some(hooks) = HOOKS.get() {
            (hooks.mapped)(start.as_ptr() as usize, bytes);
        }
        Some(start)
    }

    /// # Safety
    /// `start` is from `zeroed(bytes)`, and the memory is not used any more.
    pub unsafe fn free(start: NonNull<u8>, bytes: usize) {
        if let Some(hooks) = HOOKS.get() {
            (hooks.unmapped)(start.as_ptr() as usize);
        }
        // SAFETY: exactly the mapping made in `zeroed`.
        let _ = unsafe { munmap(start.as_ptr().cast(), rounded(bytes)) };
    }

    /// Rounds up to whole huge pages; the kernel rounds shorter lengths to pages.
    fn rounded(bytes: usize) -> usize {
        if bytes < HUGE { bytes } else { bytes.next_multiple_of(HUGE) }
    }
}

#[cfg(not(all(feature = "std", target_os = "linux")))]
mod imp {
    use core::alloc::Layout;
    use core::ptr::NonNull;

    const PAGE: usize = 4096;

    pub fn zeroed(bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, PAGE).ok()?;
        // SAFETY: the layout is not empty; the caller checked.
        NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) })
    }

    /// # Safety
    /// `start` is from `zeroed(bytes)`, and the memory is not used any more.
    pub unsafe fn free(start: NonNull<u8>, bytes: usize) {
        let layout = Layout::from_size_align(bytes, PAGE).expect("it was made with this layout");
        // SAFETY: made in `zeroed` with the same layout.
        unsafe { alloc::alloc::dealloc(start.as_ptr(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::Words;

    #[test]
    fn fresh_words_are_zero_and_keep_values() {
        for len in [0, 1, 511, 513, (2 << 20) / 8 + 1] {
            let mut words = Words::zeroed(len).expect("there is memory");
            assert_eq!(words.len(), len);
            assert!(words.iter().all(|&word| word == 0));
            assert_eq!(words.as_ptr() as usize % if len == 0 { 8 } else { 4096 }, 0);
            if let Some(last) = words.last_mut() {
                *last = 7;
                assert_eq!(words[len - 1], 7);
            }
        }
        assert!(Words::zeroed(usize::MAX / 8).is_none());
        assert!(Words::zeroed(usize::MAX).is_none());
    }

    #[test]
    #[cfg(all(feature = "std", target_os = "linux"))]
    fn hooks_are_called_for_all_large_memory() {
        use std::sync::Mutex;
        static MAPPED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
        let mapping_at =
            |start: usize| MAPPED.lock().unwrap().iter().find(|one| one.0 == start).copied();
        super::set_large_memory_hooks(super::LargeMemoryHooks {
            mapped: |start, len| MAPPED.lock().unwrap().push((start, len)),
            unmapped: |start| MAPPED.lock().unwrap().retain(|one| one.0 != start),
        });
        let words = Words::zeroed(513).expect("there is memory");
        let start = words.as_ptr() as usize;
        assert_eq!(mapping_at(start), Some((start, 513 * 8)));
        // Another test may map memory of another length there.
        drop(words);
        assert_ne!(mapping_at(start), Some((start, 513 * 8)));
    }
}
