//! Reading all of a ring, in the order of its places: this reveals nothing, and moves nothing.

use super::RingCore;
use super::entry::SlotBlock;
use super::map::RingPlace;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::store::Run;
use traceless_core::types::{Addr, Slot};

/// Gets a block, and its contents or the place of its damage.
type Visit<'a> = &'a mut dyn FnMut(u64, core::result::Result<&[u8], Place>);

impl RingCore {
    /// Reads blocks by reading everything.
    pub fn read_all_for(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        let len = self.geometry.block_len;
        let mut wanted: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (nth, addr) in addrs.iter().enumerate() {
            wanted.entry(addr.0).or_default().push(nth);
        }
        into.fill(0);
        let mut damage = None;
        self.scan(&mut |_, _| {}, &mut |block, contents| {
            let Some(numbers) = wanted.get(&block) else { return };
            match contents {
                Ok(contents) => {
                    for nth in numbers {
                        into[nth * len..(nth + 1) * len].copy_from_slice(contents);
                    }
                }
                Err(place) => damage = Some(place),
            }
        })?;
        damage.map_or(Ok(()), |place| Err(Error::Tampered { place }))
    }

    /// Opens every block, wherever it is.
    pub fn verify(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        damaged: &mut dyn FnMut(Place),
    ) -> Result {
        self.scan(progress, &mut |_, contents| {
            if let Err(place) = contents {
                damaged(place);
            }
        })
    }

    /// Calls `visit` with every block that was written: its contents, or the place of its damage.
    fn scan(&self, progress: &mut dyn FnMut(u64, u64), visit: Visit<'_>) -> Result {
        let all: u64 = self.geometry.levels.iter().map(|level| level.buckets).sum();
        let mut done = 0;
        for (block, held) in self.stash.iter() {
            let slot = held.birth % self.log.slots();
            let place = Place { area: self.log.name(), slot, block: Some(block) };
            visit(block, if held.is_lost { Err(place) } else { Ok(&held.body) });
        }
        let (evictions, mut run) = (self.geometry.evictions(self.count), Run::default());
        for level in 0..self.levels.len() {
            for nth in evictions.saturating_sub(self.geometry.levels[level].buckets)..evictions {
                self.scan_bucket(level, nth, &mut run, visit)?;
                done += 1;
                progress(done, all);
            }
        }
        progress(all, all);
        Ok(())
    }

    fn scan_bucket(&self, level: usize, nth: u64, run: &mut Run, visit: Visit<'_>) -> Result {
        let slots = self.geometry.levels[level].slots();
        let bucket = self.geometry.bucket(level, self.geometry.evicted_leaf(nth));
        run.clear();
        run.add(&self.levels[level], Slot(self.geometry.written_slot(level, nth)), slots);
        run.read(&*self.store)?;
        let keys = &self.keys.at(self.geometry.record_before(nth)).levels[level];
        for slot in 0..slots {
            let version = self.geometry.version(level, nth, slot);
            let (entry, body) = run.slot_mut(slot as usize);
            let Some(head) = keys.open_slot(version, entry) else {
                return Err(Error::Tampered { place: self.place_of(level, nth, slot, None) });
            };
            let Some(SlotBlock { block, is_lost }) = head.held else { continue };
            let spot = self.map.get(block);
            let is_here = spot.place == RingPlace::Level { level, slot }
                && self.geometry.bucket(level, spot.leaf.into()) == bucket;
            if is_here {
                let is_whole = keys.open_body(version, entry, body) && !is_lost;
                let place = self.place_of(level, nth, slot, Some(block));
                visit(block, if is_whole { Ok(body) } else { Err(place) });
            }
        }
        Ok(())
    }
}
