//! Reading: from the stash, then from the slots that wait to be written in place, then from the
//! store.

use super::map::Spot;
use super::{RandomSlots, Vacancy};
use crate::batches::{BLOCKS_PER_BATCH, batches};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::store::Run;
use traceless_core::types::{Addr, Slot};

/// Buffers of one reader.
#[derive(Default)]
pub(super) struct RandomReadScratch {
    run: Run,
    spots: Vec<Spot>,
}

impl<V: Vacancy> RandomSlots<V> {
    /// Reads blocks of a tier in their current state.
    pub(super) fn read_tier(&self, tier: usize, addrs: &[Addr], into: &mut [u8]) -> Result {
        let len = self.tiers[tier].slots.layout().body_len;
        self.readers.with(|scratch| {
            batches(addrs, into, len)
                .try_for_each(|(addrs, into)| self.read_batch(tier, addrs, into, scratch))
        })
    }

    fn read_batch(
        &self,
        tier: usize,
        addrs: &[Addr],
        into: &mut [u8],
        scratch: &mut RandomReadScratch,
    ) -> Result {
        let RandomReadScratch { run, spots } = scratch;
        spots.clear();
        self.spots(tier, addrs.iter().map(|a| a.0), spots)?;
        let t = &self.tiers[tier];
        let len = t.slots.layout().body_len;
        run.clear();
        for (addr, spot) in addrs.iter().zip(&*spots) {
            if let Some(slot) = self.slot_to_fetch(tier, addr.0, *spot) {
                run.add(&t.slots, Slot(slot), 1);
            }
        }
        run.read(&*self.store)?;
        let mut fetched = 0;
        for ((addr, &spot), into) in addrs.iter().zip(&*spots).zip(into.chunks_exact_mut(len)) {
            if self.slot_to_fetch(tier, addr.0, spot).is_some() {
                self.open_slot(tier, addr.0, spot, run.slot(fetched), into)?;
                fetched += 1;
            } else if let Some(block) = t.stash.get(addr.0) {
                into.copy_from_slice(&block.plain);
            } else if let Some(waiting) = spot.slot().and_then(|slot| t.pending.get(&slot)) {
                self.open_slot(tier, addr.0, spot, (&waiting.entry, &waiting.body), into)?;
            } else {
                into.fill(0);
            }
        }
        Ok(())
    }

    /// The slot to read for a block that is not in memory.
    fn slot_to_fetch(&self, tier: usize, block: u64, known: Spot) -> Option<u64> {
        let t = &self.tiers[tier];
        let slot = known.slot()?;
        let in_memory = t.pending.contains_key(&slot) || t.stash.get(block).is_some();
        (!in_memory).then_some(slot)
    }

    /// Opens a slot, which must hold the contents of `block` that the map records.
    fn open_slot(
        &self,
        tier: usize,
        block: u64,
        known: Spot,
        (entry, sealed): (&[u8], &[u8]),
        into: &mut [u8],
    ) -> Result {
        let slot = known.slot().expect("a slot was fetched");
        let keys = self.keys.at(tier, super::entry::entry_version(entry));
        let head = keys.open_head(slot, entry);
        if let Some(head) = head.filter(|h| h.address == block && h.birth == known.birth)
            && keys.open_body(slot, head, entry, sealed, into)
        {
            return Ok(());
        }
        let block = (tier == 0).then_some(block);
        Err(Error::Tampered { place: Place { area: self.tiers[tier].slots.name(), slot, block } })
    }

    /// Opens every block of every tier.
    pub(super) fn verify_tiers(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        damaged: &mut dyn FnMut(Place),
    ) -> Result {
        let all: u64 = self.tiers.iter().map(|t| t.geometry.blocks).sum();
        let mut done = 0;
        for (tier, t) in self.tiers.iter().enumerate().rev() {
            let mut bytes = vec![0; t.slots.layout().body_len];
            for block in 0..t.geometry.blocks {
                match self.read_tier(tier, &[Addr(block)], &mut bytes) {
                    Err(Error::Tampered { place }) => damaged(place),
                    other => other?,
                }
                done += 1;
                if done % BLOCKS_PER_BATCH as u64 == 0 || done == all {
                    progress(done, all);
                }
            }
        }
        Ok(())
    }
}
