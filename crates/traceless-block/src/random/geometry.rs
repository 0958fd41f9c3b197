//! Sizes of all areas that a scheme of random slots keeps on its store.

use super::entry::{ENTRY_LEN, RECORD_LEN, RECORD_STRIPE, STRIPE};
use crate::tiers::{MAP_TIERS_MAX, MapLayout};
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::scheme::place_areas;
use traceless_core::store::SlotLayout;

/// Slots drawn and rewritten at each write, k.
pub const DRAWS: u64 = 3;

/// Slots for each logical block. With half of them free, a write finds 1.5 free ones on average and
/// needs one, so the stash stays small.
pub const SLOTS_PER_BLOCK: u64 = 2;

/// Places in one map block; its length is sixteen times that.
pub const MAP_FAN: u64 = 32;

/// Bytes of an entry of the map: a slot and a birth.
const SPOT_LEN: usize = 16;

/// The layout of the map's entries in its blocks.
pub(super) const MAP: MapLayout = MapLayout { fan: MAP_FAN, entry_len: SPOT_LEN };

/// Writes between two syncs, at most: their journal records are kept in memory.
pub const UNSYNCED_MAX: u64 = 1024;

/// Logical blocks, at most.
pub const BLOCKS_MAX: u64 = 1 << 46;

/// Names of each tier's two areas.
pub(super) const AREA_NAMES: [[&str; 2]; MAP_TIERS_MAX as usize + 1] = [
    ["slots", "journal"],
    ["map 1 slots", "map 1 journal"],
    ["map 2 slots", "map 2 journal"],
    ["map 3 slots", "map 3 journal"],
];

/// The parameters of the scheme. All of them are public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RandomGeometry {
    /// Logical blocks, N.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: usize,
    /// Tiers of the map on the store; 0 keeps the whole map in memory, 16 bytes a block.
    pub map_tiers: u8,
    /// Writes between two syncs at most, S.
    pub unsynced_max: u64,
}

impl RandomGeometry {
    /// A geometry with an interval between syncs of a 32nd of the blocks, at most
    /// [`UNSYNCED_MAX`].
    pub fn new(blocks: u64, block_len: usize, map_tiers: u8) -> Result<Self> {
        let unsynced_max = (blocks / 32).clamp(1, UNSYNCED_MAX);
        let geometry = Self { blocks, block_len, map_tiers, unsynced_max };
        geometry.check()?;
        Ok(geometry)
    }

    /// This geometry for another number of blocks. A map on the store gets enough tiers that the
    /// rest of it takes no more memory than before, if possible.
    pub fn resized(&self, blocks: u64) -> Result<Self> {
        let tiers = match self.map_tiers {
            0 => 0,
            tiers => Self::map_tiers_for(blocks, self.map_memory()).max(tiers),
        };
        Self::new(blocks, self.block_len, tiers)
    }

    /// Refuses invalid parameters, so that code which reads saved parameters can rely on them.
    pub fn check(&self) -> Result {
        if self.blocks == 0 || self.blocks > BLOCKS_MAX {
            return Err(Error::Geometry("there must be 1 to 2^46 blocks"));
        }
        if !(64..=1 << 20).contains(&self.block_len) || !self.block_len.is_power_of_two() {
            return Err(Error::Geometry("a block has 64 bytes to 1 MiB, a power of two"));
        }
        let slot_len = self.block_len as u128 + 512;
        let journal = u128::from(4 * UNSYNCED_MAX * 2 * DRAWS) * slot_len;
        if u128::from(self.blocks * SLOTS_PER_BLOCK) * slot_len * 2 + journal > 1 << 62 {
            return Err(Error::Geometry("the image would be larger than 4 EiB"));
        }
        if self.map_tiers > MAP_TIERS_MAX {
            return Err(Error::Geometry("more map tiers than 3"));
        }
        if self.unsynced_max == 0 || self.unsynced_max > UNSYNCED_MAX {
            return Err(Error::Geometry("writes between two syncs must be 1 to 1024"));
        }
        Ok(())
    }

    /// Total bytes of all areas.
    pub fn store_len(&self) -> u64 {
        self.areas().iter().map(|(_, _, len)| len).sum()
    }

    /// Name, first byte and length of each area, in order. Public.
    pub fn areas(&self) -> Vec<(&'static str, u64, u64)> {
        let named = |(t, [slots, journal]): (RandomTierGeometry, [_; 2])| {
            [(slots, t.slots), (journal, t.journal)]
        };
        place_areas(self.tiers().into_iter().zip(AREA_NAMES).flat_map(named))
    }

    /// The layout of the slots of the user's blocks; their area is the first.
    pub fn slots(&self) -> SlotLayout {
        RandomTierGeometry::new(self, 0).slots
    }

    /// Bytes written to the store per byte written by the user, without headers: each slot goes to
    /// the journal, then to its place.
    pub fn write_amplification(&self) -> f64 {
        let written = |t: &RandomTierGeometry| (t.records + DRAWS) as f64 * t.slots.body_len as f64;
        self.tiers().iter().map(written).sum::<f64>() / self.block_len as f64
    }

    /// Bytes of memory that the map takes while the volume is open.
    pub fn map_memory(&self) -> u64 {
        MAP.memory(self.blocks, self.map_tiers)
    }

    /// Map tiers that keep the rest of the map within `budget` bytes of memory.
    pub fn map_tiers_for(blocks: u64, budget: u64) -> u8 {
        MAP.tiers_for(blocks, budget)
    }

    /// Blocks of tier `tier`: tier 0 is the data, each other tier holds the map of the one before.
    pub(super) fn tier_blocks(&self, tier: u8) -> u64 {
        MAP.tier_blocks(self.blocks, tier)
    }

    pub(super) fn tiers(&self) -> Vec<RandomTierGeometry> {
        (0..=self.map_tiers).map(|t| RandomTierGeometry::new(self, t)).collect()
    }

    /// Records of one write in the journal of tier `tier`: one for each drawn slot, and one for
    /// each block that may come into the stash.
    pub(super) fn records(tier: usize) -> u64 {
        // Each block placed in the tier before changes one map block.
        DRAWS + if tier == 0 { 1 } else { DRAWS }
    }
}

/// Sizes of one tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct RandomTierGeometry {
    /// Blocks of this tier.
    pub blocks: u64,
    /// Blocks that its stash may hold.
    pub stash_max: u64,
    /// Records of one write in its journal.
    pub records: u64,
    /// The journal always holds the records of this number of writes.
    pub journal_writes: u64,
    /// The slots.
    pub slots: SlotLayout,
    /// The journal.
    pub journal: SlotLayout,
}

impl RandomTierGeometry {
    fn new(whole: &RandomGeometry, tier: u8) -> Self {
        let blocks = whole.tier_blocks(tier);
        let body_len = if tier == 0 { whole.block_len } else { MAP.block_len() };
        let stash_max = 60 + u64::from(blocks.ilog2()) + 1;
        let records = RandomGeometry::records(tier.into());
        // Writes that are not synced yet, writes that are synced but perhaps not in place yet, and
        // the time in which each block of the stash is recorded again.
        let journal_writes = 2 * whole.unsynced_max + stash_age_max(stash_max);
        // A header is written whole, which overwrites the records behind it, so there is a stripe
        // of slack.
        let journal_slots = journal_writes * records + RECORD_STRIPE;
        let slots = (blocks * SLOTS_PER_BLOCK).max(2 * DRAWS);
        Self {
            blocks,
            stash_max,
            records,
            journal_writes,
            slots: SlotLayout { slots, body_len, entry_len: ENTRY_LEN, stripe_slots: STRIPE },
            journal: SlotLayout {
                slots: journal_slots,
                body_len,
                entry_len: RECORD_LEN,
                stripe_slots: RECORD_STRIPE,
            },
        }
    }
}

/// Number of writes within which a block of the stash must be placed or recorded again. Each write
/// that finds a free slot takes the block with the oldest record first, so this takes about as many
/// writes as the stash has blocks; four times that number is ample.
pub(super) fn stash_age_max(stash_max: u64) -> u64 {
    4 * stash_max
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gibibyte_costs_what_it_should() {
        let g = RandomGeometry::new(1 << 18, 4096, 0).unwrap();
        let factor = g.store_len() as f64 / (1u64 << 30) as f64;
        assert!((2.03..2.1).contains(&factor), "{factor}");
        assert!((g.write_amplification() - 7.0).abs() < 1e-9);
        assert_eq!(g.map_memory(), 16 << 18);
    }

    #[test]
    fn a_map_on_the_store_is_small() {
        let blocks = (1u64 << 40) / 4096;
        assert_eq!(RandomGeometry::map_tiers_for(blocks, 30 << 20), 2);
        let g = RandomGeometry::new(blocks, 4096, 2).unwrap();
        assert!(g.map_memory() < 5 << 20);
        assert!(g.write_amplification() < 9.5, "{}", g.write_amplification());
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(RandomGeometry::new(0, 4096, 0).is_err());
        assert!(RandomGeometry::new(1, 4096, 0).is_ok());
        assert!(RandomGeometry::new(BLOCKS_MAX + 1, 4096, 0).is_err());
        assert!(RandomGeometry::new(BLOCKS_MAX, 1 << 20, 0).is_err());
        assert!(RandomGeometry::new(64, 100, 0).is_err());
        assert!(RandomGeometry::new(64, 4096, 4).is_err());
        let long =
            RandomGeometry { unsynced_max: 1025, ..RandomGeometry::new(64, 4096, 0).unwrap() };
        assert!(long.check().is_err());
    }
}
