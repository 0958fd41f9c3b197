//! Buffers that a file opened without the page cache accepts.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Deref, DerefMut};

/// Largest alignment in bytes, of memory and of offsets, that direct I/O needs.
pub const ALIGN: usize = 4096;

/// A growable buffer that begins at a multiple of [`ALIGN`] in memory.
#[derive(Default)]
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let bytes = vec![0; len + ALIGN];
        // `align_offset` may give up in theory; then the buffer works, only not for direct I/O.
        let start = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self { bytes, start, len }
    }

    /// Grows the buffer to at least `len` bytes, and keeps its contents.
    pub fn grow(&mut self, len: usize) {
        if len > self.len {
            // Grow by at least a quarter, so that growing step by step copies little.
            let mut larger = Self::zeroed(len.max(self.len + self.len / 4));
            larger[..self.len].copy_from_slice(self);
            *self = larger;
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_on_a_boundary_however_it_grows() {
        let mut buf = AlignedBuf::zeroed(10);
        buf[9] = 7;
        for len in [1, 4096, 100_000, 3] {
            buf.grow(len);
            assert!(buf.len() >= len);
            assert_eq!(buf.as_ptr() as usize % ALIGN, 0);
            assert_eq!(buf[9], 7);
        }
    }

    #[test]
    fn it_grows_by_a_quarter_and_only_when_it_must() {
        let mut buf = AlignedBuf::zeroed(1000);
        let place = buf.as_ptr();
        buf.grow(1000);
        assert_eq!((buf.as_ptr(), buf.len()), (place, 1000));
        buf.grow(1001);
        assert_eq!(buf.len(), 1250);
        buf.grow(5000);
        assert_eq!(buf.len(), 5000);
    }
}
