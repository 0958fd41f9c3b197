//! Sizes of all areas of a `DetWo` on its store, derived from a few parameters.

use super::Refresh;
use super::pointer::Pointer;
use crate::tiers::{MAP_TIERS_MAX, MapLayout};
use crate::{log, refreshed};
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::scheme::contract::check_size;
use traceless_core::scheme::place_areas;
use traceless_core::store::SlotLayout;

/// Last writes in one map block; its length is eight times that.
pub const MAP_FAN: u64 = 64;

/// The layout of the map's entries in its blocks.
pub(super) const MAP: MapLayout = MapLayout { fan: MAP_FAN, entry_len: 8 };

/// Bytes of memory for a map with tiers on the store, at most, before it gets a further tier.
const MAP_MEMORY_MAX: u64 = 1 << 30;

/// Blocks that may be written between two syncs, at most.
pub const UNSYNCED_MAX: u64 = 1 << 16;

/// Names of each tier's holding and main area.
pub(super) const AREA_NAMES: [[&str; 2]; MAP_TIERS_MAX as usize + 1] = [
    ["holding", "main"],
    ["map 1 holding", "map 1 main"],
    ["map 2 holding", "map 2 main"],
    ["map 3 holding", "map 3 main"],
];

/// The kind of map entry for each block, 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapEntries {
    /// The count of the block's last write, which gives place and version in closed form.
    Counts,
    /// The authors' self-invalidating pointer, for comparison: the holding slot of the last write,
    /// and a bit that shows whether the main copy is as new. A read opens the main copy, too.
    Pointers,
}

impl MapEntries {
    /// Name on the command line and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Pointers => "pointers",
        }
    }
}

/// The parameters of a `DetWo`. All of them are public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DetWoGeometry {
    /// Logical blocks, N.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: usize,
    /// Main blocks refreshed per write, K.
    pub refresh: Refresh,
    /// Tiers of the map on the store; 0 keeps the whole map in memory, 8 bytes a block.
    pub map_tiers: u8,
    /// The kind of map entry.
    pub map_entries: MapEntries,
    /// Writes between two syncs at most, S.
    pub unsynced_max: u64,
    /// Whether a map of discarded blocks lies behind the blocks.
    pub discards: bool,
}

impl DetWoGeometry {
    /// A geometry with the largest interval between syncs that costs little space: a 32nd of the
    /// blocks, at most [`UNSYNCED_MAX`].
    pub fn new(blocks: u64, block_len: usize, refresh: Refresh, map_tiers: u8) -> Result<Self> {
        let map_entries = MapEntries::Counts;
        let (unsynced_max, discards) = (1, false);
        let mut geometry =
            Self { blocks, block_len, refresh, map_tiers, map_entries, unsynced_max, discards };
        geometry.check()?;
        let smallest = geometry.tier_blocks(map_tiers);
        // One pass over the smallest tier must be longer than the unsynced part: S K < N.
        let (p, q) = (u64::from(refresh.p()), u64::from(refresh.q()));
        let longest = (smallest - 1) * q / p;
        geometry.unsynced_max = (blocks / 32).clamp(1, UNSYNCED_MAX).min(longest);
        geometry.check()?;
        Ok(geometry)
    }

    /// This geometry with another kind of map.
    pub fn with_map_entries(self, map_entries: MapEntries) -> Result<Self> {
        let geometry = Self { map_entries, ..self };
        geometry.check()?;
        Ok(geometry)
    }

    /// This geometry with a discard map, which needs a map of counts.
    pub fn with_discards(self) -> Result<Self> {
        let geometry = Self { discards: true, ..self };
        geometry.check()?;
        Ok(geometry)
    }

    /// This geometry for another number of blocks. A map on the store gets at least as many tiers
    /// as before, and more if the rest of the map would exceed a gibibyte and its former size.
    pub fn resized(&self, blocks: u64) -> Result<Self> {
        let tiers = match self.map_tiers {
            0 => 0,
            tiers => Self::map_tiers_for(blocks, self.map_memory().max(MAP_MEMORY_MAX)).max(tiers),
        };
        let resized = Self::new(blocks, self.block_len, self.refresh, tiers)?;
        let resized = resized.with_map_entries(self.map_entries)?;
        if self.discards { resized.with_discards() } else { Ok(resized) }
    }

    /// Refuses invalid parameters, so that code which reads saved parameters can rely on them.
    pub fn check(&self) -> Result {
        check_size(self.blocks, self.block_len)?;
        // A generous bound, so that no later product overflows: N (1 + 1/K) slots and some slack,
        // each with its entry, and the map's tiers.
        let (p, q) = (u128::from(self.refresh.p()), u128::from(self.refresh.q()));
        let slack = 2 * u128::from(UNSYNCED_MAX) * p;
        let slots = u128::from(self.stored_blocks()) * (p + q).div_ceil(p) + slack;
        if slots * (self.block_len as u128 + 512) * 2 > 1 << 62 {
            return Err(Error::Geometry("the image would be larger than 4 EiB"));
        }
        if self.map_tiers > MAP_TIERS_MAX {
            return Err(Error::Geometry("more map tiers than 3"));
        }
        if self.unsynced_max == 0 || self.unsynced_max > UNSYNCED_MAX {
            return Err(Error::Geometry("writes between two syncs must be 1 to 65536"));
        }
        let smallest = self.tier_blocks(self.map_tiers);
        if self.refresh.at_most(self.unsynced_max) >= smallest {
            return Err(Error::Geometry(
                "too few blocks for this ratio and map: more blocks, or the map in memory",
            ));
        }
        let fits = |t: &DetWoTierGeometry| Pointer::fits(t.hold.slots, t.hold.body_len);
        if self.map_entries == MapEntries::Pointers && !self.tiers().iter().all(fits) {
            return Err(Error::Geometry("too many blocks for pointers of 8 bytes"));
        }
        if self.discards && self.map_entries != MapEntries::Counts {
            return Err(Error::Geometry("discards need a map of counts"));
        }
        if self.discards && self.discard_period() < 2 {
            return Err(Error::Geometry("blocks too short for discards at this refresh ratio"));
        }
        Ok(())
    }

    /// Total bytes of all areas.
    pub fn store_len(&self) -> u64 {
        self.areas().iter().map(|(_, _, len)| len).sum()
    }

    /// Name, first byte and length of each area, in order. Public.
    pub fn areas(&self) -> Vec<(&'static str, u64, u64)> {
        let named =
            |(t, [hold, main]): (DetWoTierGeometry, [_; 2])| [(hold, t.hold), (main, t.main)];
        place_areas(self.tiers().into_iter().zip(AREA_NAMES).flat_map(named))
    }

    /// Bytes written to the store per byte written by the user, entries and map included, for
    /// writes of many blocks at once. Single writes cost more, since headers are written in whole
    /// sectors.
    pub fn write_amplification(&self) -> f64 {
        let k = f64::from(self.refresh.p()) / f64::from(self.refresh.q());
        let slot = |layout: &SlotLayout| (layout.entry_len + layout.body_len) as f64;
        let bytes = self.tiers().iter().map(|t| slot(&t.hold) + k * slot(&t.main)).sum::<f64>();
        let on_schedule =
            if self.discards { 1.0 / (self.discard_period() - 1) as f64 } else { 0.0 };
        bytes / self.block_len as f64 * (1.0 + on_schedule)
    }

    /// Bytes of memory that the map takes while the volume is open.
    pub fn map_memory(&self) -> u64 {
        MAP.memory(self.stored_blocks(), self.map_tiers)
    }

    /// Bytes of memory that the discard map takes at most.
    pub fn discard_memory(&self) -> u64 {
        self.discard_blocks() * self.block_len as u64
    }

    /// Blocks of the discard map.
    pub fn discard_blocks(&self) -> u64 {
        if self.discards { self.blocks.div_ceil(self.discard_covers()) } else { 0 }
    }

    /// Blocks that one block of the discard map covers.
    pub fn discard_covers(&self) -> u64 {
        8 * self.block_len as u64
    }

    /// The writes of which the last is to a block of the discard map, of each in turn: so many that
    /// in one pass each has its turn. 0 if these are more than a pass.
    pub fn discard_period(&self) -> u64 {
        self.refresh.writes_for(self.stored_blocks()) / self.discard_blocks().max(1)
    }

    /// Blocks in all, with the discard map.
    pub(super) fn stored_blocks(&self) -> u64 {
        self.blocks + self.discard_blocks()
    }

    /// Map tiers that keep the rest of the map within `budget` bytes of memory.
    pub fn map_tiers_for(blocks: u64, budget: u64) -> u8 {
        MAP.tiers_for(blocks, budget)
    }

    /// Blocks of tier `tier`: tier 0 is the data, each other tier holds the map of the one before.
    pub(super) fn tier_blocks(&self, tier: u8) -> u64 {
        MAP.tier_blocks(self.stored_blocks(), tier)
    }

    pub(super) fn tiers(&self) -> Vec<DetWoTierGeometry> {
        (0..=self.map_tiers).map(|t| DetWoTierGeometry::new(self, t)).collect()
    }
}

/// Sizes of one tier. All counts are in slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct DetWoTierGeometry {
    /// Blocks of this tier.
    pub blocks: u64,
    /// Number of writes after which a holding slot is no longer live: M.
    pub live_writes: u64,
    /// The holding area.
    pub hold: SlotLayout,
    /// The main area.
    pub main: SlotLayout,
}

impl DetWoTierGeometry {
    fn new(whole: &DetWoGeometry, tier: u8) -> Self {
        let blocks = whole.tier_blocks(tier);
        let body_len = if tier == 0 { whole.block_len } else { MAP.block_len() };
        let live_writes = whole.refresh.writes_for(blocks);
        // A header is written whole, which overwrites entries behind the cursor, so the slack is
        // one stripe more than the writes between two syncs need.
        let hold_slots = live_writes + whole.unsynced_max + log::STRIPE;
        let main_slots = blocks + whole.refresh.at_most(whole.unsynced_max + 1) + refreshed::STRIPE;
        Self {
            blocks,
            live_writes,
            hold: log::layout(hold_slots, body_len),
            main: refreshed::layout(main_slots, body_len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::scheme::contract::BLOCKS_MAX;

    #[test]
    fn a_gibibyte_costs_what_it_should() {
        let g = DetWoGeometry::new(1 << 18, 4096, Refresh::ONE, 0).unwrap();
        assert_eq!(g.unsynced_max, 1 << 13);
        let factor = g.store_len() as f64 / (1u64 << 30) as f64;
        assert!((2.0..2.1).contains(&factor), "{factor}");
        let entries = (64.0 + 32.0) / 4096.0;
        assert!((g.write_amplification() - 2.0 - entries).abs() < 1e-9);
    }

    #[test]
    fn writes_are_amplified_by_the_refreshes_of_each() {
        for (refresh, times) in [("1/3", 1.0 / 3.0), ("5/2", 2.5), ("3", 3.0)] {
            let refresh = Refresh::parse(refresh).unwrap();
            let g = DetWoGeometry::new(1 << 18, 4096, refresh, 0).unwrap();
            let bytes = (4096.0 + 64.0) + times * (4096.0 + 32.0);
            assert!((g.write_amplification() - bytes / 4096.0).abs() < 1e-9, "{refresh}");
        }
    }

    #[test]
    fn kinds_of_maps_have_names() {
        assert_eq!(MapEntries::Counts.name(), "counts");
        assert_eq!(MapEntries::Pointers.name(), "pointers");
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let new = |blocks, k| DetWoGeometry::new(blocks, 4096, Refresh::parse(k).unwrap(), 0);
        assert!(new(0, "1").is_err());
        assert!(new(1, "1").is_err());
        assert!(new(2, "1").is_ok());
        assert!(new(15, "15").is_err());
        assert!(new(16, "15").is_ok());
        assert!(new(1, "1/3").is_err(), "a refresh may still hit the only block while unsynced");
        assert!(new(BLOCKS_MAX + 1, "1").is_err());
        assert!(new(BLOCKS_MAX, "1").is_err());
        assert!(new(1 << 46, "1").is_ok());
        assert!(DetWoGeometry::new(64, 100, Refresh::ONE, 0).is_err());
        assert!(DetWoGeometry::new(64, 4096, Refresh::ONE, 4).is_err());
        let large = DetWoGeometry::new(1 << 39, 1 << 20, Refresh::ONE, 0).unwrap();
        assert!(large.with_map_entries(MapEntries::Pointers).is_err());
        let large = DetWoGeometry::new(1 << 38, 1 << 20, Refresh::ONE, 0).unwrap();
        assert!(large.with_map_entries(MapEntries::Pointers).is_ok());
    }

    #[test]
    fn ten_tebibytes_keep_a_small_map() {
        let blocks = (10u64 << 40) / 4096;
        assert_eq!(DetWoGeometry::map_tiers_for(blocks, 1 << 30), 1);
        assert_eq!(DetWoGeometry::map_tiers_for(1 << 20, 1 << 30), 0);
        let g = DetWoGeometry::new(blocks, 4096, Refresh::new(3, 1).unwrap(), 1).unwrap();
        assert!(g.store_len() < 16 << 40);
    }
}
