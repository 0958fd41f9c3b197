//! Where each block is: its leaf, and its slot on the path to that.

use super::geometry::RingGeometry;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};

/// The place of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RingPlace {
    /// It was never written, and reads as zeros.
    Never,
    Stash,
    /// In a slot of the bucket that its path has in a level.
    Level {
        level: usize,
        slot: u64,
    },
}

/// What the map has about a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RingSpot {
    pub leaf: u32,
    pub place: RingPlace,
    /// Whether an access from before a crash may have shown the leaf.
    pub is_stale: bool,
}

impl RingSpot {
    pub fn in_stash(leaf: u32) -> Self {
        Self { leaf, place: RingPlace::Stash, is_stale: false }
    }
}

/// The map, 8 bytes a block: leaf, slot, one more than the level (0 in the stash), and two flags.
pub(super) struct RingMap(Vec<u64>);

const SLOT_BITS: u32 = 16;
const SLOT_AT: u32 = 32;
const LEVEL_AT: u32 = SLOT_AT + SLOT_BITS;
const LEVEL_BITS: u32 = 4;
const STALE: u64 = 1 << 62;
const WRITTEN: u64 = 1 << 63;

impl RingMap {
    pub fn new(geometry: &RingGeometry) -> Result<Self> {
        let blocks = usize::try_from(geometry.blocks).map_err(|_| Error::Geometry("map"))?;
        Ok(Self(vec![0; blocks]))
    }

    pub fn get(&self, block: u64) -> RingSpot {
        let word = self.0[block as usize];
        let level = (word >> LEVEL_AT & ((1 << LEVEL_BITS) - 1)) as usize;
        let place = match level.checked_sub(1) {
            _ if word & WRITTEN == 0 => RingPlace::Never,
            None => RingPlace::Stash,
            Some(level) => {
                RingPlace::Level { level, slot: word >> SLOT_AT & ((1 << SLOT_BITS) - 1) }
            }
        };
        RingSpot { leaf: word as u32, place, is_stale: word & STALE != 0 }
    }

    pub fn set(&mut self, block: u64, spot: RingSpot) {
        let place = match spot.place {
            RingPlace::Never => 0,
            RingPlace::Stash => WRITTEN,
            RingPlace::Level { level, slot } => {
                WRITTEN | (level as u64 + 1) << LEVEL_AT | slot << SLOT_AT
            }
        };
        let stale = if spot.is_stale { STALE } else { 0 };
        self.0[block as usize] = u64::from(spot.leaf) | place | stale;
    }

    /// The spots of all blocks, in order.
    pub fn spots(&self) -> impl Iterator<Item = RingSpot> {
        (0..self.0.len() as u64).map(|block| self.get(block))
    }

    /// Marks every block that was written as stale. Returns their number.
    pub fn mark_stale(&mut self) -> u64 {
        let written = self.0.iter_mut().filter(|word| **word & WRITTEN != 0);
        written.map(|word| *word |= STALE).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spots_come_back() {
        let ring = RingGeometry::with_buckets(500, 64, 4, &[2, 8]).unwrap();
        let mut map = RingMap::new(&ring).unwrap();
        assert_eq!(map.get(7).place, RingPlace::Never);
        let places =
            [RingPlace::Stash, RingPlace::Level { level: 3, slot: 16383 }, RingPlace::Never];
        for (block, place) in (5..).zip(places) {
            for is_stale in [false, true] {
                let spot = RingSpot { leaf: u32::MAX - 1, place, is_stale };
                map.set(block, spot);
                assert_eq!(map.get(block), spot);
            }
        }
        assert_eq!(map.mark_stale(), 2);
        assert_eq!(map.spots().filter(|spot| spot.is_stale).count(), 3);
    }
}
