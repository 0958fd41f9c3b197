//! Memory for keys.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use zeroize::Zeroize;

/// Bytes that are locked in memory, left out of core dumps and forks, and wiped when dropped.
///
/// ```
/// use traceless_sys::LockedBytes;
///
/// # fn main() -> std::io::Result<()> {
/// # use std::io::ErrorKind::{OutOfMemory, PermissionDenied};
/// # // The limit of locked memory may be below a page.
/// # let is_limit = |e: &std::io::Error| [OutOfMemory, PermissionDenied].contains(&e.kind());
/// # if LockedBytes::zeroed(32).is_err_and(|e| is_limit(&e)) { return Ok(()) }
/// let mut key = LockedBytes::zeroed(32)?;
/// key.copy_from_slice(&[7; 32]);
/// assert_eq!(*key, [7; 32]);
/// # Ok(())
/// # }
/// ```
pub struct LockedBytes {
    start: NonNull<u8>,
    len: usize,
    mapped: usize,
}

// SAFETY: the mapping belongs to this value alone, and is reached through `&self` and `&mut self`
// only, as the bytes of a `Box<[u8]>` would be.
unsafe impl Send for LockedBytes {}
// SAFETY: as above; `&LockedBytes` gives `&[u8]` only.
unsafe impl Sync for LockedBytes {}

impl LockedBytes {
    /// `len` zero bytes; `len` is not zero. Fails where the limit of locked memory is below a page.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        assert!(len > 0, "there is no empty mapping");
        let mapped = len.next_multiple_of(rustix::param::page_size());
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(start.cast::<u8>()).expect("the kernel maps nothing at zero");
        let bytes = Self { start, len, mapped };
        // SAFETY: exactly the mapping made above; advice and locking do not change its contents.
        unsafe {
            rustix::mm::madvise(start.as_ptr().cast(), mapped, Advice::LinuxDontDump)?;
            rustix::mm::madvise(start.as_ptr().cast(), mapped, Advice::LinuxDontFork)?;
            rustix::mm::mlock(start.as_ptr().cast(), mapped)?;
        }
        Ok(bytes)
    }
}

impl Deref for LockedBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes of the mapping, initialised to zero by the kernel, alive with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for LockedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for LockedBytes {
    fn drop(&mut self) {
        self.zeroize();
        // SAFETY: exactly the mapping made in `zeroed`; no reference to it outlives `self`.
        // A failure would leave wiped memory mapped: nothing to be done about it.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_bytes_keep_values_and_are_locked() {
        let mut key = LockedBytes::zeroed(32).expect("a page may be locked");
        assert_eq!(*key, [0; 32]);
        key.fill(7);
        assert_eq!(*key, [7; 32]);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let locked = status.lines().find(|l| l.starts_with("VmLck:")).unwrap();
        assert!(!locked.contains(" 0 kB"), "{locked}");
    }
}
