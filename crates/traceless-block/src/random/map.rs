//! The map: slot and birth of each block's newest contents, in memory or in the next tier on the
//! store.
//!
//! Slots are stored plus one, so that a map block of zeros means "never written".

use super::entry::STASHED;
use super::geometry::MAP;
use super::{RandomSlots, Vacancy};
use alloc::vec::Vec;
use traceless_core::error::Result;

/// Bytes of a map block.
pub(super) const MAP_BLOCK_LEN: usize = MAP.block_len();

/// The place and the birth of a block's newest contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    /// One more than the slot; 0 if the block was never written.
    slot_plus_one: u64,
    pub birth: u64,
}

impl Spot {
    /// The spot of a block that was never written.
    pub const NEVER: Self = Self { slot_plus_one: 0, birth: 0 };

    pub fn at(slot: u64, birth: u64) -> Self {
        Self { slot_plus_one: slot + 1, birth }
    }

    /// The spot of a block in the stash: only for the last tier's map, which holds all births.
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
    /// The map's spot of `block`. For a block in the stash of a tier that is not the last, this is
    /// the place of older contents.
    pub(super) fn spot(&self, tier: usize, block: u64) -> Result<Spot> {
        let mut found = Vec::with_capacity(1);
        self.spots(tier, core::iter::once(block), &mut found)?;
        Ok(found[0])
    }

    /// Appends the map's spot of each of `blocks`.
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
