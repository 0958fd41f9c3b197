//! A position map in trusted memory.

use super::LABEL_LEN;
use alloc::vec::Vec;
use traceless_core::durable::{Durable, take_saved};
use traceless_core::error::Result;
use traceless_core::store::Pages;
use traceless_core::types::{Addr, Leaf};

/// Four bytes for each block: its leaf label plus one, or 0 for a block that was never accessed. So
/// a new map of zeros needs no initialisation.
pub struct Flat(Pages);

impl Flat {
    /// The map of `blocks` blocks, none of which was accessed yet.
    pub fn new(blocks: usize) -> Self {
        Self(Pages::zeroed(blocks * LABEL_LEN))
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.0.len()
    }

    /// The path that `addr` is on; `None` if it was never accessed.
    #[inline]
    pub fn label(&self, addr: Addr) -> Option<Leaf> {
        let entry = &self.0[addr.0 as usize * LABEL_LEN..][..LABEL_LEN];
        let entry = u32::from_le_bytes(entry.try_into().expect("a label's bytes"));
        entry.checked_sub(1).map(|label| Leaf(label.into()))
    }

    /// Puts `addr` onto the path of `new`. Returns its old path; `None` if it was never accessed.
    #[inline]
    pub fn remap(&mut self, addr: Addr, new: Leaf) -> Option<Leaf> {
        let entry = u32::try_from(new.0 + 1).expect("below 2^32 - 1 leaves");
        self.replace(addr, entry)
    }

    /// Takes `addr` off its path, as if it had never been accessed. Returns the path that it was
    /// on.
    #[inline]
    pub fn take(&mut self, addr: Addr) -> Option<Leaf> {
        self.replace(addr, 0)
    }

    #[inline]
    fn replace(&mut self, addr: Addr, entry: u32) -> Option<Leaf> {
        let old = self.label(addr);
        let at = addr.0 as usize * LABEL_LEN;
        self.0[at..at + LABEL_LEN].copy_from_slice(&entry.to_le_bytes());
        old
    }
}

impl Durable for Flat {
    fn save(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        let saved = take_saved(from, self.memory())?;
        self.0.copy_from_slice(saved);
        Ok(())
    }
}
