//! Memory for random accesses.

use core::ops::{Deref, DerefMut};
use traceless_sys::Words;
use traceless_sys::ct::{bytes_of, bytes_of_mut};

/// Bytes, zero at first, in huge pages where the system has them: with small pages most random
/// accesses would miss the TLB. Bytes that are never touched take no memory.
pub struct Pages {
    words: Words,
    len: usize,
}

impl Pages {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        Self::try_zeroed(len).expect("the memory is there")
    }

    /// Like [`zeroed`](Self::zeroed), but `None` if there is not enough memory.
    pub fn try_zeroed(len: usize) -> Option<Self> {
        let words = Words::zeroed(len.div_ceil(size_of::<u64>()))?;
        Some(Self { words, len })
    }
}

impl Deref for Pages {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &bytes_of(&self.words)[..self.len]
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytes_of_mut(&mut self.words)[..self.len]
    }
}
