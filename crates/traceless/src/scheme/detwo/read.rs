//! Reading: locate each block in closed form, fetch neighbours together, open what came.

use super::lead::Fetch;
use super::{DetWo, Location};
use crate::error::{Error, Place, Result};
use crate::seal::Sealer;
use crate::store::Run;
use crate::types::Addr;
use alloc::vec;
use alloc::vec::Vec;

/// Blocks fetched in one round trip, at most.
const BLOCKS_PER_TRIP: usize = 256;

/// Buffers of one reader.
#[derive(Default)]
pub(super) struct ReadScratch {
    run: Run,
    entries: Vec<u64>,
    fetches: Vec<Fetch>,
}

impl DetWo {
    /// Reads blocks of a tier as they are now.
    pub(super) fn read_tier(&self, tier: usize, addrs: &[Addr], into: &mut [u8]) -> Result {
        let len = self.tiers[tier].main.layout().body_len;
        self.readers.with(|scratch| {
            for (addrs, into) in
                addrs.chunks(BLOCKS_PER_TRIP).zip(into.chunks_mut(BLOCKS_PER_TRIP * len))
            {
                self.read_trip(tier, addrs, into, scratch)?;
            }
            Ok(())
        })
    }

    fn read_trip(
        &self,
        tier: usize,
        addrs: &[Addr],
        into: &mut [u8],
        scratch: &mut ReadScratch,
    ) -> Result {
        let ReadScratch { run, entries, fetches } = scratch;
        entries.clear();
        self.entries_of(tier, addrs.iter().map(|a| a.0), entries)?;
        let refreshed = self.tiers[tier].refreshed;
        let lead = |(a, &entry): (&Addr, &u64)| self.lead(tier, a.0, entry, refreshed, self.count);
        fetches.clear();
        fetches.extend(addrs.iter().zip(&*entries).map(lead).map(Fetch::new));
        run.clear();
        self.add_fetches(tier, fetches, run);
        run.read(&*self.store)?;
        let len = self.tiers[tier].main.layout().body_len;
        for ((addr, fetch), into) in addrs.iter().zip(&*fetches).zip(into.chunks_exact_mut(len)) {
            self.open_fetch(tier, addr.0, fetch, run, into)?;
        }
        Ok(())
    }

    /// Adds the slots at `places` to `run` in order, neighbours as one; `Nowhere` has none.
    pub(super) fn add_locations(
        &self,
        tier: usize,
        places: impl Iterator<Item = Location>,
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
                Location::Hold(w) => run.add(&t.hold, t.hold_slot(w), count),
                Location::Main(r) => run.add(&t.main, t.main_slot(r), count),
                Location::Nowhere => {}
            }
        }
    }

    /// Opens the slot at `location`, which must hold `block`.
    pub(super) fn open_slot(
        &self,
        tier: usize,
        block: u64,
        location: Location,
        entry: &[u8],
        sealed: &[u8],
        into: &mut [u8],
    ) -> Result {
        let t = &self.tiers[tier];
        let (opened, area, slot) = match location {
            Location::Hold(w) => {
                let (_, keys) = self.keys.at_hold(tier, w);
                (keys.hold.open_body(w, block, entry, sealed, into), &t.hold, t.hold_slot(w))
            }
            Location::Main(r) => {
                let (_, keys) = self.keys.at_main(tier, r);
                let opened = keys.main.open(r, &[], sealed, entry, into).is_ok();
                (opened, &t.main, t.main_slot(r))
            }
            Location::Nowhere => unreachable!("what is nowhere was not fetched"),
        };
        if opened {
            return Ok(());
        }
        let block = (tier == 0).then_some(block);
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
            let mut bytes = vec![0; BLOCKS_PER_TRIP * t.main.layout().body_len];
            let len = t.main.layout().body_len;
            for start in (0..t.geometry.blocks).step_by(BLOCKS_PER_TRIP) {
                let end = (start + BLOCKS_PER_TRIP as u64).min(t.geometry.blocks);
                let addrs: Vec<_> = (start..end).map(Addr).collect();
                let bytes = &mut bytes[..addrs.len() * len];
                match self.read_tier(tier, &addrs, bytes) {
                    // One of them is bad: which ones is told one by one.
                    Err(Error::Tampered { .. }) => {
                        for addr in addrs {
                            match self.read_tier(tier, &[addr], &mut bytes[..len]) {
                                Err(Error::Tampered { place }) => damaged(place),
                                other => other?,
                            }
                        }
                    }
                    other => other?,
                }
                done += end - start;
                progress(done, all);
            }
        }
        Ok(())
    }
}

fn follows(first: Location, next: Location, distance: u64) -> bool {
    match (first, next) {
        (Location::Hold(a), Location::Hold(b)) | (Location::Main(a), Location::Main(b)) => {
            b == a.wrapping_add(distance)
        }
        (Location::Nowhere, Location::Nowhere) => true,
        _ => false,
    }
}
