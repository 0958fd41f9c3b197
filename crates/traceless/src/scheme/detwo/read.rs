//! Reading: locate each block in closed form, fetch neighbours together, open what came.

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
    last: Vec<u64>,
    found: Vec<Location>,
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
        let ReadScratch { run, last, found } = scratch;
        last.clear();
        self.last_writes(tier, addrs.iter().map(|a| a.0), last)?;
        let refreshed = self.tiers[tier].refreshed;
        found.clear();
        found.extend(
            addrs.iter().zip(&*last).map(|(a, &last)| self.locate(tier, a.0, last, refreshed)),
        );
        run.clear();
        self.add_locations(tier, found, run);
        run.read(&*self.store)?;
        let len = self.tiers[tier].main.layout().body_len;
        let mut fetched = 0;
        for ((addr, &location), into) in addrs.iter().zip(&*found).zip(into.chunks_exact_mut(len)) {
            if location == Location::Nowhere {
                into.fill(0);
            } else {
                let (entry, body) = run.slot(fetched);
                self.open_slot(tier, addr.0, location, entry, body, into)?;
                fetched += 1;
            }
        }
        Ok(())
    }

    /// Adds the slots of `found` to `run` in order, neighbours as one; `Nowhere` has none.
    pub(super) fn add_locations(&self, tier: usize, found: &[Location], run: &mut Run) {
        let mut rest = found;
        while let [first, more @ ..] = rest {
            let mut count = 1;
            while more.get(count - 1).is_some_and(|&next| follows(*first, next, count as u64)) {
                count += 1;
            }
            let t = &self.tiers[tier];
            match *first {
                Location::Hold(w) => run.add(&t.hold, t.hold_slot(w), count as u64),
                Location::Main(r) => run.add(&t.main, t.main_slot(r), count as u64),
                Location::Nowhere => {}
            }
            rest = &rest[count..];
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

    /// Reads one slot by itself.
    pub(super) fn read_location(
        &self,
        tier: usize,
        block: u64,
        location: Location,
        into: &mut [u8],
    ) -> Result {
        if location == Location::Nowhere {
            into.fill(0);
            return Ok(());
        }
        let mut run = Run::default();
        self.add_locations(tier, &[location], &mut run);
        run.read(&*self.store)?;
        let (entry, body) = run.slot(0);
        self.open_slot(tier, block, location, entry, body, into)
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
