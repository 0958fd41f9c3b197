//! Memory that is jumped about in.

#[cfg(not(feature = "std"))]
use alloc::{vec, vec::Vec};
use core::ops::{Deref, DerefMut};

/// Bytes, zero at first, in huge pages where the system has them: with small pages each jump must
/// first find where the page lies. Bytes that are never touched take no memory.
pub struct Pages(Bytes);

#[cfg(feature = "std")]
type Bytes = memmap2::MmapMut;
#[cfg(not(feature = "std"))]
type Bytes = Vec<u8>;

impl Pages {
    /// `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        #[cfg(feature = "std")]
        {
            let bytes = memmap2::MmapMut::map_anon(len).expect("the memory is there");
            #[cfg(target_os = "linux")]
            // Only slower without.
            let _ = bytes.advise(memmap2::Advice::HugePage);
            Self(bytes)
        }
        #[cfg(not(feature = "std"))]
        Self(vec![0; len])
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
