//! Sizes of a deniable store: the public volume's areas, and the lane behind them.

use super::entry;
use crate::detwo::{DetWoGeometry, Refresh};
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::scheme::PlacedArea;
use traceless_core::store::SlotLayout;

/// Hidden volumes of one store, at most.
pub const HIDDEN_MAX: usize = 15;

/// Name of the lane in messages and in docs/format.md.
pub(super) const LANE: &str = "lane";

/// Writes after an opening for each write that may then wait for a sync: so all crashes of one lap
/// together lose fewer copies than a [`MARGIN_PART`]th of the lane.
pub(super) const RAMP: u64 = 16;

/// The part of the lane that is kept free of live slots ahead of the writer, besides what may wait
/// for a sync.
const MARGIN_PART: u64 = RAMP;

/// Slots that a request of the writer, the header of a stripe, and the end of a session take at
/// most.
const MARGIN_SLACK: u64 = 256;

/// Blocks that are enough for a geometry.
const BLOCKS_FEW: u64 = 4096;

/// Bytes of memory for the map of the public volume, at most, before it lies on the store. It is
/// fixed, since all sizes follow from the number of blocks.
const MAP_MEMORY: u64 = 1 << 30;

/// The parameters of a deniable store. All of them are public.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeniableGeometry {
    /// The public volume.
    pub public: DetWoGeometry,
    /// Slots of the lane.
    pub lane_slots: u64,
}

impl DeniableGeometry {
    /// A public volume of `blocks` blocks, and a lane that has room for half as many hidden ones.
    /// Everything follows from the number and the length of blocks. There must be about 1700 at
    /// least.
    pub fn new(blocks: u64, block_len: usize) -> Result<Self> {
        let tiers = DetWoGeometry::map_tiers_for(blocks, MAP_MEMORY);
        let public = DetWoGeometry::new(blocks, block_len, Refresh::ONE, tiers)?;
        Self { public, lane_slots: blocks }.checked()
    }

    /// The largest geometry with areas of at most `len` bytes.
    pub fn fitting(len: u64, block_len: usize) -> Option<Self> {
        let fits = |blocks| Self::new(blocks, block_len).ok().filter(|g| g.store_len() <= len);
        // Each block takes more than three blocks of the store.
        let (mut least, mut most) = (0, len / block_len as u64 + 1);
        let mut found = None;
        while most - least > 1 {
            let blocks = least + (most - least) / 2;
            match fits(blocks) {
                Some(geometry) => (least, found) = (blocks, Some(geometry)),
                // Few blocks make no geometry.
                None if Self::new(blocks, block_len).is_err() && blocks < BLOCKS_FEW => {
                    least = blocks;
                }
                None => most = blocks,
            }
        }
        found
    }

    pub(super) fn checked(self) -> Result<Self> {
        self.public.check()?;
        if self.public.discards {
            return Err(Error::Geometry("discards beside hidden volumes"));
        }
        if self.lane_slots < 4 * self.margin() {
            return Err(Error::Geometry("fewer blocks than hidden volumes need beside them"));
        }
        // Openings are remembered for as long as a write lies in the holding area.
        if self.lane_slots > self.public.refresh.writes_for(self.public.blocks) {
            return Err(Error::Geometry("a lane that is longer than the holding area"));
        }
        Ok(self)
    }

    /// Slots ahead of the writer that hold nothing live, as long as all hidden volumes are open.
    pub(super) fn margin(&self) -> u64 {
        self.lane_slots / MARGIN_PART + self.public.unsynced_max + MARGIN_SLACK
    }

    /// Blocks that all hidden volumes together may have, each with one for its record.
    pub fn hidden_blocks(&self) -> u64 {
        self.lane_slots / 2
    }

    /// Total bytes of all areas.
    pub fn store_len(&self) -> u64 {
        self.public.store_len() + self.lane().len()
    }

    /// The layout of the lane.
    pub(super) fn lane(&self) -> SlotLayout {
        entry::layout(self.lane_slots, self.public.block_len)
    }

    /// Name, first byte and length of the lane.
    pub(super) fn lane_area(&self) -> PlacedArea {
        (LANE, self.public.store_len(), self.lane().len())
    }

    /// First byte and layout of the areas with headers that need a veil to look random: the
    /// areas of the public volume.
    pub fn veiled(&self) -> Vec<(u64, SlotLayout)> {
        use traceless_core::scheme::contract::BlockScheme;
        self.public.slots_in_turn()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_gives_the_sizes_back() {
        for blocks in [1700, 2000, 5000, 1 << 18, (1 << 27) + 5] {
            let geometry = DeniableGeometry::new(blocks, 4096).unwrap();
            let len = geometry.store_len();
            assert_eq!(DeniableGeometry::fitting(len, 4096), Some(geometry), "{blocks}");
            assert_eq!(DeniableGeometry::fitting(len + 4095, 4096), Some(geometry), "{blocks}");
            let fewer = DeniableGeometry::fitting(len - 1, 4096).unwrap();
            assert_eq!(fewer.public.blocks, blocks - 1);
        }
    }

    #[test]
    fn a_gibibyte_takes_three_and_holds_one_and_a_half() {
        let geometry = DeniableGeometry::new(1 << 18, 4096).unwrap();
        let held = ((1 << 18) + geometry.hidden_blocks()) * 4096;
        let factor = geometry.store_len() as f64 / held as f64;
        assert!(factor < 2.2, "{factor}");
        assert!(geometry.margin() < geometry.lane_slots / 8);
    }

    #[test]
    fn lanes_that_cannot_work_are_refused() {
        let geometry = DeniableGeometry::new(2000, 512).unwrap();
        assert!(DeniableGeometry { lane_slots: 100, ..geometry }.checked().is_err());
        assert!(DeniableGeometry { lane_slots: 2001, ..geometry }.checked().is_err());
        assert!(DeniableGeometry::new(1000, 512).is_err());
        assert!(DeniableGeometry::fitting(5000, 512).is_none());
        let public = geometry.public.with_discards().unwrap();
        assert!(DeniableGeometry { public, ..geometry }.checked().is_err());
    }
}
