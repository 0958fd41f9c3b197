//! Tiers: the data is tier 0, and a map too large for memory lies in further tiers of the same
//! scheme, each of which holds the map of the one before.

use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::scheme::contract::MapPlace;
use traceless_core::types::Addr;

/// Tiers of a map that may lie on the store.
pub const MAP_TIERS_MAX: u8 = 3;

/// Tiers of a map on the store, if `fitting` tiers there keep the rest of the map within the budget
/// of memory. The user may fix the place of the `map`.
pub(super) fn placed(map: Option<MapPlace>, fitting: u8) -> u8 {
    match map {
        None => fitting,
        Some(MapPlace::Memory) => 0,
        Some(MapPlace::Disk) => fitting.max(1),
    }
}

/// The number of tiers in saved parameters.
pub(super) fn decode(tiers: u32) -> Result<u8> {
    u8::try_from(tiers).map_err(|_| Error::Geometry("more map tiers than 3"))
}

/// The layout of a map's entries in its blocks.
#[derive(Clone, Copy)]
pub(super) struct MapLayout {
    /// Entries in a block.
    pub fan: u64,
    /// Bytes of an entry.
    pub entry_len: usize,
}

impl MapLayout {
    /// Bytes of a map block.
    pub const fn block_len(&self) -> usize {
        self.fan as usize * self.entry_len
    }

    /// Blocks of tier `tier`, if the data has `blocks`.
    pub fn tier_blocks(&self, blocks: u64, tier: u8) -> u64 {
        (0..tier).fold(blocks, |n, _| n.div_ceil(self.fan))
    }

    /// Bytes of memory that the map of the last tier takes, if `tiers` of them lie on the store.
    pub fn memory(&self, blocks: u64, tiers: u8) -> u64 {
        self.tier_blocks(blocks, tiers).saturating_mul(self.entry_len as u64)
    }

    /// Number of tiers that keep the rest of the map within `budget` bytes of memory, if possible;
    /// at most [`MAP_TIERS_MAX`].
    pub fn tiers_for(&self, blocks: u64, budget: u64) -> u8 {
        let fits = |&tiers: &u8| self.memory(blocks, tiers) <= budget;
        (0..MAP_TIERS_MAX).find(fits).unwrap_or(MAP_TIERS_MAX)
    }

    /// The map block that holds the entry of `block`.
    pub fn home(&self, block: u64) -> u64 {
        block / self.fan
    }

    /// The entry of `block` in the map block that holds it.
    pub fn entry<'a>(&self, map_block: &'a [u8], block: u64) -> &'a [u8] {
        &map_block[self.entry_at(block)..][..self.entry_len]
    }

    /// Like [`MapLayout::entry`], for changes.
    pub fn entry_mut<'a>(&self, map_block: &'a mut [u8], block: u64) -> &'a mut [u8] {
        &mut map_block[self.entry_at(block)..][..self.entry_len]
    }

    fn entry_at(&self, block: u64) -> usize {
        (block % self.fan) as usize * self.entry_len
    }

    /// Looks up the entries of `blocks`, decodes each with `decode`, and appends the results to
    /// `out`. `read` reads the map blocks; neighbours in one map block cause one read.
    pub fn look_up<E>(
        &self,
        blocks: impl Iterator<Item = u64> + Clone,
        read: impl FnOnce(&[Addr], &mut [u8]) -> Result,
        decode: impl Fn(&[u8]) -> E,
        out: &mut Vec<E>,
    ) -> Result {
        let len = self.block_len();
        let mut homes: Vec<Addr> = blocks.clone().map(|b| Addr(self.home(b))).collect();
        homes.dedup();
        let mut bytes = vec![0; homes.len() * len];
        read(&homes, &mut bytes)?;
        let mut at = 0;
        for block in blocks {
            if homes[at].0 != self.home(block) {
                at += 1;
            }
            out.push(decode(self.entry(&bytes[at * len..][..len], block)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: MapLayout = MapLayout { fan: 4, entry_len: 2 };

    #[test]
    fn entries_are_found_in_their_blocks() {
        let mut block = [0; 8];
        MAP.entry_mut(&mut block, 6).copy_from_slice(&[1, 2]);
        assert_eq!(block, [0, 0, 0, 0, 1, 2, 0, 0]);
        assert_eq!(MAP.entry(&block, 2), [1, 2]);
        let mut found = vec![];
        let mut read_homes = vec![];
        let read = |homes: &[Addr], bytes: &mut [u8]| {
            read_homes.extend(homes.iter().map(|home| home.0));
            for (home, block) in homes.iter().zip(bytes.chunks_exact_mut(8)) {
                block.copy_from_slice(&[0, 1, 2, 3, 4, 5, 6, 7].map(|i| home.0 as u8 * 10 + i));
            }
            Ok(())
        };
        let blocks = [4, 5, 7, 0, 4];
        MAP.look_up(blocks.into_iter(), read, |entry| entry[1], &mut found).unwrap();
        assert_eq!(found, [11, 13, 17, 1, 11]);
        assert_eq!(read_homes, [1, 0, 1]);
    }

    #[test]
    fn as_many_tiers_as_the_memory_budget_needs() {
        for (budget, tiers) in [(2000, 0), (1999, 1), (500, 1), (499, 2), (126, 2), (0, 3)] {
            assert_eq!(MAP.tiers_for(1000, budget), tiers, "{budget}");
        }
        assert_eq!((MAP.tier_blocks(1000, 2), MAP.memory(1000, 2)), (63, 126));
    }
}
