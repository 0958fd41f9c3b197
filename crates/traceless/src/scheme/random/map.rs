//! The map: slot and birth of each block's newest contents, in memory or one tier further on the
//! store.
//!
//! Slots are kept plus one, so that a map block of zeros reads as "never written".

use super::entry::STASHED;
use super::geometry::MAP;
use super::{RandomSlots, Vacancy};
use crate::error::Result;
use alloc::vec::Vec;

/// Bytes of a map block.
pub(super) const MAP_BLOCK_LEN: usize = MAP.block_len();

/// Where a block's newest contents are, and which they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    /// One more than the slot; 0 if it was never written.
    slot_plus_one: u64,
    pub birth: u64,
}

impl Spot {
    /// Of a block that was never written.
    pub const NEVER: Self = Self { slot_plus_one: 0, birth: 0 };

    pub fn at(slot: u64, birth: u64) -> Self {
        Self { slot_plus_one: slot + 1, birth }
    }

    /// Of a block that is in the stash: for the last tier's map, which knows all births.
    pub fn stashed(birth: u64) -> Self {
        Self { slot_plus_one: STASHED, birth }
    }

    pub fn is_written(self) -> bool {
        self.slot_plus_one != 0
    }

    /// The slot, if the block is in one.
    pub fn slot(self) -> Option<u64> {
        if self.slot_plus_one == STASHED { None } else { self.slot_plus_one.checked_sub(1) }
    }
}

fn decode(entry: &[u8]) -> Spot {
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let (slot_plus_one, birth) = entry.split_at(8);
    Spot { slot_plus_one: word(slot_plus_one), birth: word(birth) }
}

pub(super) fn set_entry(map_block: &mut [u8], block: u64, spot: Spot) {
    let entry = MAP.entry_mut(map_block, block);
    entry[..8].copy_from_slice(&spot.slot_plus_one.to_le_bytes());
    entry[8..].copy_from_slice(&spot.birth.to_le_bytes());
}

impl<V: Vacancy> RandomSlots<V> {
    /// Where the map has `block`. Of a block in the stash of a tier that is not the last, it tells
    /// where older contents are.
    pub(super) fn spot(&self, tier: usize, block: u64) -> Result<Spot> {
        let mut found = Vec::with_capacity(1);
        self.spots(tier, core::iter::once(block), &mut found)?;
        Ok(found[0])
    }

    /// Appends where the map has each of `blocks`.
    pub(super) fn spots(
        &self,
        tier: usize,
        blocks: impl Iterator<Item = u64> + Clone,
        out: &mut Vec<Spot>,
    ) -> Result {
        if self.is_last_tier(tier) {
            out.extend(blocks.map(|b| self.top[b as usize]));
            return Ok(());
        }
        MAP.look_up(blocks, |homes, into| self.read_tier(tier + 1, homes, into), decode, out)
    }
}
