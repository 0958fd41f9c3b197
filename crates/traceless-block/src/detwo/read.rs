//! Reading: locate each block in closed form, fetch neighbours together, open the slots.

use super::lookup::Fetch;
use super::{DetWo, DetWoLocation};
use crate::batches::{batches, verify_all};
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::store::Run;
use traceless_core::types::Addr;

/// Buffers of one reader.
#[derive(Default)]
pub(super) struct DetWoReadScratch {
    run: Run,
    entries: Vec<u64>,
    fetches: Vec<Fetch>,
}

impl DetWo {
    /// Reads blocks of a tier in their current state.
    pub(super) fn read_tier(&self, tier: usize, addrs: &[Addr], into: &mut [u8]) -> Result {
        let len = self.tiers[tier].main.layout().body_len;
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
        scratch: &mut DetWoReadScratch,
    ) -> Result {
        let DetWoReadScratch { run, entries, fetches } = scratch;
        entries.clear();
        self.entries_of(tier, addrs.iter().map(|a| a.0), entries)?;
        let refreshed = self.tiers[tier].refreshed;
        let lookup =
            |(a, &entry): (&Addr, &u64)| self.lookup(tier, a.0, entry, refreshed, self.count);
        fetches.clear();
        fetches.extend(addrs.iter().zip(&*entries).map(lookup).map(Fetch::new));
        run.clear();
        self.add_fetches(tier, fetches, run);
        run.read(&*self.store)?;
        let len = self.tiers[tier].main.layout().body_len;
        for ((addr, fetch), into) in addrs.iter().zip(&*fetches).zip(into.chunks_exact_mut(len)) {
            self.open_fetch(tier, addr.0, fetch, run, into)?;
        }
        // Discarded blocks are read from the store, too, so that reads reveal addresses only.
        if let (0, Some(map)) = (tier, &self.discards) {
            let blocks = addrs.iter().zip(&*entries).zip(into.chunks_exact_mut(len));
            for ((addr, &last), into) in blocks {
                if map.is_discarded(addr.0, last) {
                    into.fill(0);
                }
            }
        }
        Ok(())
    }

    /// Adds the slots at `places` to `run` in order, neighbours as one extent; skips `Nowhere`.
    pub(super) fn add_locations(
        &self,
        tier: usize,
        places: impl Iterator<Item = DetWoLocation>,
        run: &mut Run,
    ) {
        let mut places = places.peekable();
        while let Some(first) = places.next() {
            let mut count = 1;
            while places.next_if(|&next| follows(first, next, count)).is_some() {
                count += 1;
            }
            let t = &self.tiers[tier];
            match first {
                DetWoLocation::Hold(w) => run.add(&t.hold, t.hold_slot(w), count),
                DetWoLocation::Main(r) => run.add(&t.main, t.main_slot(r), count),
                DetWoLocation::Nowhere => {}
            }
        }
    }

    /// Opens the slot at `location`, which must hold `block`.
    pub(super) fn open_slot(
        &self,
        tier: usize,
        block: u64,
        location: DetWoLocation,
        entry: &[u8],
        sealed: &[u8],
        into: &mut [u8],
    ) -> Result {
        let t = &self.tiers[tier];
        let (opened, area, slot) = match location {
            DetWoLocation::Hold(w) => {
                let (_, keys) = self.keys.at_hold(tier, w);
                (keys.hold.open_body(w, block, entry, sealed, into), &t.hold, t.hold_slot(w))
            }
            DetWoLocation::Main(r) => {
                let (_, keys) = self.keys.at_main(tier, r);
                let opened = keys.main.open(r, entry, sealed, into);
                (opened, &t.main, t.main_slot(r))
            }
            DetWoLocation::Nowhere => unreachable!("what is nowhere was not fetched"),
        };
        if opened {
            return Ok(());
        }
        let block = (tier == 0 && block < self.geometry.blocks).then_some(block);
        Err(Error::Tampered { place: Place { area: area.name(), slot: slot.0, block } })
    }

    /// Opens every live slot of every tier.
    pub(super) fn verify_tiers(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        damaged: &mut dyn FnMut(Place),
    ) -> Result {
        let all: u64 = self.tiers.iter().map(|t| t.geometry.blocks).sum();
        let mut done = 0;
        for (tier, t) in self.tiers.iter().enumerate().rev() {
            let len = t.main.layout().body_len;
            let read = |addrs: &[Addr], into: &mut [u8]| self.read_tier(tier, addrs, into);
            let report = |now| progress(done + now, all);
            verify_all(t.geometry.blocks, len, read, damaged, report)?;
            done += t.geometry.blocks;
        }
        Ok(())
    }
}

fn follows(first: DetWoLocation, next: DetWoLocation, distance: u64) -> bool {
    match (first, next) {
        (DetWoLocation::Hold(a), DetWoLocation::Hold(b))
        | (DetWoLocation::Main(a), DetWoLocation::Main(b)) => b == a.wrapping_add(distance),
        (DetWoLocation::Nowhere, DetWoLocation::Nowhere) => true,
        _ => false,
    }
}
