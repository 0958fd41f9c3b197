//! The map: the count of each block's last write, in memory or one tier further on the store.
//!
//! Counts are kept plus one, so that a block of zeros reads as "never written".

use super::geometry::MAP_FAN;
use super::{DetWo, Location};
use crate::error::Result;
use crate::types::Addr;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes of a map block.
pub(super) const MAP_BLOCK_LEN: usize = MAP_FAN as usize * 8;

/// The entry of block `block` in the map block that holds it.
pub(super) fn entry(map_block: &[u8], block: u64) -> u64 {
    let at = (block % MAP_FAN) as usize * 8;
    u64::from_le_bytes(map_block[at..at + 8].try_into().expect("8 bytes"))
}

pub(super) fn set_entry(map_block: &mut [u8], block: u64, last: u64) {
    let at = (block % MAP_FAN) as usize * 8;
    map_block[at..at + 8].copy_from_slice(&last.to_le_bytes());
}

impl DetWo {
    pub(super) fn is_last_tier(&self, tier: usize) -> bool {
        tier + 1 == self.tiers.len()
    }

    /// Appends the last write of each of `blocks`, now.
    pub(super) fn last_writes(
        &self,
        tier: usize,
        blocks: impl Iterator<Item = u64> + Clone,
        out: &mut Vec<u64>,
    ) -> Result {
        if self.is_last_tier(tier) {
            out.extend(blocks.map(|b| self.top[b as usize]));
            return Ok(());
        }
        let mut homes: Vec<Addr> = blocks.clone().map(|b| Addr(b / MAP_FAN)).collect();
        homes.dedup();
        let mut bytes = vec![0; homes.len() * MAP_BLOCK_LEN];
        self.read_tier(tier + 1, &homes, &mut bytes)?;
        let mut at = 0;
        for block in blocks {
            if homes[at].0 != block / MAP_FAN {
                at += 1;
            }
            out.push(entry(&bytes[at * MAP_BLOCK_LEN..][..MAP_BLOCK_LEN], block));
        }
        Ok(())
    }

    /// The last write of `block` before write `count`, when each tier's refreshes of that time are
    /// done: for recovery, which replays writes one by one.
    pub(super) fn last_write_at(&self, tier: usize, block: u64, count: u64) -> Result<u64> {
        if self.is_last_tier(tier) {
            return Ok(self.top[block as usize]);
        }
        let mut home = vec![0; MAP_BLOCK_LEN];
        self.read_at(tier + 1, block / MAP_FAN, count, &mut home)?;
        Ok(entry(&home, block))
    }

    /// Reads the copy of `block` that was the newest before write `count`.
    pub(super) fn read_at(&self, tier: usize, block: u64, count: u64, into: &mut [u8]) -> Result {
        let last = self.last_write_at(tier, block, count)?;
        let refreshed = self.refreshed_after(tier, count);
        self.read_location(tier, block, self.locate(tier, block, last, refreshed), into)
    }

    pub(super) fn locate(&self, tier: usize, block: u64, last: u64, refreshed: u64) -> Location {
        self.tiers[tier].locate(self.geometry.refresh, block, last, refreshed)
    }
}
