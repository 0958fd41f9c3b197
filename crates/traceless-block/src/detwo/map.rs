//! The map: an entry for each block, in memory or in the next tier on the store.
//!
//! An entry is the count of the block's last write, or the authors' pointer to it. Counts are
//! stored plus one, so that zeros mean "never written".

use super::geometry::MAP;
use super::pointer::Pointer;
use super::{DetWo, DetWoLocation, MapEntries};
use crate::log::DUMMY;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::types::Addr;

/// Bytes of a map block.
pub(super) const MAP_BLOCK_LEN: usize = MAP.block_len();

/// Number of blocks read per batch, both copies of each, when counts are turned into pointers.
const BLOCKS_PER_BATCH: usize = 128;

fn decode(entry: &[u8]) -> u64 {
    u64::from_le_bytes(entry.try_into().expect("8 bytes"))
}

pub(super) fn set_entry(map_block: &mut [u8], block: u64, entry: u64) {
    MAP.entry_mut(map_block, block).copy_from_slice(&entry.to_le_bytes());
}

/// The distinct blocks written, in the order of their first writes.
pub(super) fn distinct(homes: &[u64]) -> Vec<Addr> {
    let mut distinct: Vec<Addr> = Vec::new();
    for &home in homes.iter().filter(|&&h| h != DUMMY) {
        if !distinct.contains(&Addr(home)) {
            distinct.push(Addr(home));
        }
    }
    distinct
}

impl DetWo {
    pub(super) fn is_last_tier(&self, tier: usize) -> bool {
        tier + 1 == self.tiers.len()
    }

    /// Appends the current entries of `blocks`.
    pub(super) fn entries_of(
        &self,
        tier: usize,
        blocks: impl Iterator<Item = u64> + Clone,
        out: &mut Vec<u64>,
    ) -> Result {
        if self.is_last_tier(tier) {
            out.extend(blocks.map(|b| self.top[b as usize]));
            return Ok(());
        }
        MAP.look_up(blocks, |homes, into| self.read_tier(tier + 1, homes, into), decode, out)
    }

    /// The entry of `block` before write `count`, after all refreshes up to that write in each
    /// tier: for recovery, which replays writes one by one.
    pub(super) fn entry_at(&self, tier: usize, block: u64, count: u64) -> Result<u64> {
        if self.is_last_tier(tier) {
            return Ok(self.top[block as usize]);
        }
        let mut home = vec![0; MAP_BLOCK_LEN];
        self.read_at(tier + 1, MAP.home(block), count, &mut home)?;
        Ok(decode(MAP.entry(&home, block)))
    }

    /// Reads the copy of `block` that was the newest before write `count`.
    fn read_at(&self, tier: usize, block: u64, count: u64, into: &mut [u8]) -> Result {
        let entry = self.entry_at(tier, block, count)?;
        let lookup = self.lookup(tier, block, entry, self.refreshed_after(tier, count), count);
        self.read_lookup(tier, block, lookup, into).map(|_| ())
    }

    /// Computes the map entries for the next writes: write number i is to block `homes[i]`, and
    /// `data` has the contents. The entries for dummies have no meaning.
    pub(super) fn new_entries(
        &self,
        tier: usize,
        homes: &[u64],
        data: &[u8],
        out: &mut Vec<u64>,
    ) -> Result {
        out.clear();
        if self.geometry.map_entries == MapEntries::Counts {
            out.extend((1..=homes.len() as u64).map(|i| self.count + i));
            return Ok(());
        }
        let t = &self.tiers[tier];
        let len = t.main.layout().body_len;
        let contents = |i: usize| &data[i * len..(i + 1) * len];
        let refreshed_before = |i: usize| self.refreshed_after(tier, self.count + i as u64);
        let written = distinct(homes);
        let main = |a: &Addr| (a.0, t.main_location(a.0, t.refreshed));
        let mains = self.copies(tier, &written.iter().map(main).collect::<Vec<_>>())?;
        let mut older = vec![0; len];
        for (i, &home) in homes.iter().enumerate() {
            let Some(nth) = written.iter().position(|a| a.0 == home) else {
                out.push(0);
                continue;
            };
            let refresh = t.passes.next(home, t.refreshed);
            // A refresh caused by an earlier write of this chunk may have renewed the main copy.
            // Then that copy has the contents that were the newest at the refresh.
            let main = if refresh >= refreshed_before(i) {
                mains.get(nth)
            } else if let Some(j) =
                (0..i).rfind(|&j| homes[j] == home && refreshed_before(j) <= refresh)
            {
                Some(contents(j))
            } else {
                match self.read_tier(tier, &[Addr(home)], &mut older) {
                    Err(Error::Tampered { .. }) => None,
                    other => other.map(|()| Some(&older[..]))?,
                }
            };
            let slot = t.hold_slot(self.count + i as u64).0;
            out.push(Pointer::new(slot, contents(i), main).encode(len));
        }
        Ok(())
    }

    /// The entries that given writes (block, count) made, computed with the main copies after
    /// `refreshed` refreshes.
    pub(super) fn entries_at(
        &self,
        tier: usize,
        writes: &[(u64, u64)],
        refreshed: u64,
    ) -> Result<Vec<u64>> {
        if self.geometry.map_entries == MapEntries::Counts {
            return Ok(writes.iter().map(|&(_, count)| count + 1).collect());
        }
        let t = &self.tiers[tier];
        let len = t.main.layout().body_len;
        let main = |&(block, _): &(u64, u64)| (block, t.main_location(block, refreshed));
        let mains = self.copies(tier, &writes.iter().map(main).collect::<Vec<_>>())?;
        let write = |&(block, count): &(u64, u64)| (block, DetWoLocation::Hold(count));
        let written = self.copies(tier, &writes.iter().map(write).collect::<Vec<_>>())?;
        let entry = |(i, &(_, count)): (usize, &(u64, u64))| {
            let slot = t.hold_slot(count).0;
            // A pointer to a damaged write is kept: reading its block must fail, not return an
            // older copy.
            let pointer = match written.get(i) {
                Some(new) => Pointer::new(slot, new, mains.get(i)),
                None => Pointer::new(slot, &[], None),
            };
            pointer.encode(len)
        };
        Ok(writes.iter().enumerate().map(entry).collect())
    }

    /// Turns the last write counts that recovery has put into the map in memory into entries, as of
    /// before write `count`. Only writes that no refresh has carried to the main area get pointers.
    pub(super) fn entries_from_counts(&mut self, count: u64) -> Result {
        if self.geometry.map_entries == MapEntries::Counts {
            return Ok(());
        }
        let tier = self.tiers.len() - 1;
        let refreshed = self.refreshed_after(tier, count);
        let mut writes = vec![];
        for block in 0..self.tiers[tier].geometry.blocks {
            let last = core::mem::take(&mut self.top[block as usize]);
            let place = self.tiers[tier].locate(block, last, refreshed);
            if let DetWoLocation::Hold(held) = place {
                writes.push((block, held));
            }
        }
        for writes in writes.chunks(BLOCKS_PER_BATCH) {
            let entries = self.entries_at(tier, writes, refreshed)?;
            for (&(block, _), entry) in writes.iter().zip(entries) {
                self.top[block as usize] = entry;
            }
        }
        Ok(())
    }
}
