//! A position map in trusted memory.

use crate::durable::{Durable, take_saved};
use crate::error::Result;
use crate::types::{Addr, Leaf};
use alloc::vec;
use alloc::vec::Vec;

/// Four bytes for each block: its leaf label plus one, or 0 for a block that was never accessed. So
/// a new map takes no pass over it.
pub struct Flat(Vec<u32>);

impl Flat {
    /// The map of `blocks` blocks, none of which was accessed yet.
    pub fn new(blocks: usize) -> Self {
        Self(vec![0; blocks])
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        size_of_val(&self.0[..])
    }

    /// The path that `addr` is on, if it ever was on one.
    #[inline]
    pub fn label(&self, addr: Addr) -> Option<Leaf> {
        self.0[addr.0 as usize].checked_sub(1).map(|label| Leaf(label.into()))
    }

    /// Puts `addr` onto the path of `new`. Tells the path that it was on, if it ever was on one.
    #[inline]
    pub fn remap(&mut self, addr: Addr, new: Leaf) -> Option<Leaf> {
        let entry = u32::try_from(new.0 + 1).expect("below 2^32 - 1 leaves");
        let old = core::mem::replace(&mut self.0[addr.0 as usize], entry);
        old.checked_sub(1).map(|old| Leaf(old.into()))
    }
}

impl Durable for Flat {
    fn save(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|entry| out.extend_from_slice(&entry.to_le_bytes()));
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        let saved = take_saved(from, self.memory())?;
        for (entry, bytes) in self.0.iter_mut().zip(saved.chunks_exact(4)) {
            *entry = u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        }
        Ok(())
    }
}
