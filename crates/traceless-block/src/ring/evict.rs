//! Evictions: the path's buckets are written anew, with all blocks that may lie there.

use super::RingCore;
use super::chunk::{EvictedBucket, Eviction, LevelSlot};
use super::entry::{LevelHead, SlotBlock};
use super::map::{RingPlace, RingSpot};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::rng::Rng;
use traceless_core::store::Cursor;
use traceless_core::types::Slot;

/// A block that an eviction may place.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub block: u64,
    pub birth: u64,
    pub leaf: u64,
    /// Where it is: the level and the slot, or the stash.
    pub from: Option<(usize, u64)>,
    is_lost: bool,
}

impl RingCore {
    /// The eviction that is due after `after` records. Adds its buckets to the input.
    pub fn plan_eviction(&mut self, after: u64) -> Eviction {
        let nth = self.geometry.evictions(after) - 1;
        let leaf = self.geometry.evicted_leaf(nth);
        let mut buckets = vec![];
        for (level, area) in self.levels.iter().enumerate() {
            let bucket = self.geometry.bucket(level, leaf);
            let last = self.geometry.last_eviction(level, bucket, nth);
            let begin = self.input.slots();
            if let Some(last) = last {
                let first = self.geometry.written_slot(level, last);
                self.input.add(area, Slot(first), self.geometry.levels[level].slots());
            }
            buckets.push(EvictedBucket { bucket, last, begin });
        }
        Eviction { nth, leaf, buckets }
    }

    /// The blocks in the buckets of an eviction that was read, and the blocks of the stash that
    /// wait for it. The deepest level comes first, then what waits longest.
    pub fn candidates(&mut self, eviction: &Eviction) -> Result<Vec<Candidate>> {
        let mut list = vec![];
        for (level, read) in eviction.buckets.iter().enumerate().rev() {
            let (Some(written), before) = (read.last, list.len()) else { continue };
            let keys = &self.keys.at(self.geometry.record_before(written)).levels[level];
            for slot in 0..self.geometry.levels[level].slots() {
                let version = self.geometry.version(level, written, slot);
                let entry = self.input.slot(read.begin + slot as usize).0;
                let Some(head) = keys.open_slot(version, entry) else {
                    let place = self.place_of(level, written, slot, None);
                    return Err(Error::Tampered { place });
                };
                let Some(SlotBlock { block, is_lost }) = head.held else { continue };
                let spot = self.map.get(block);
                let leaf = spot.leaf.into();
                let is_here = spot.place == RingPlace::Level { level, slot };
                if is_here && self.geometry.bucket(level, leaf) == read.bucket {
                    let from = Some((level, slot));
                    list.push(Candidate { block, birth: head.birth, leaf, from, is_lost });
                }
            }
            list[before..].sort_unstable_by_key(|candidate| candidate.birth);
        }
        for (block, birth) in self.stash.waiting_for(eviction.buckets[0].bucket) {
            let leaf = self.map.get(block).leaf.into();
            let is_lost = self.stash.get(block).is_some_and(|held| held.is_lost);
            list.push(Candidate { block, birth, leaf, from: None, is_lost });
        }
        Ok(list)
    }

    /// Adds the new buckets to the output, with each block as deep as it may lie. Returns what is
    /// to be sealed.
    pub fn evict(&mut self, eviction: &Eviction) -> Result<Vec<LevelSlot>> {
        let mut rest = self.candidates(eviction)?;
        let mut chosen = vec![vec![]; self.levels.len()];
        for (level, chosen) in chosen.iter_mut().enumerate().rev() {
            let (bucket, room) =
                (eviction.buckets[level].bucket, self.geometry.levels[level].blocks as usize);
            let geometry = &self.geometry;
            rest.retain(|candidate| {
                let fits = chosen.len() < room && geometry.bucket(level, candidate.leaf) == bucket;
                if fits {
                    chosen.push(*candidate);
                }
                !fits
            });
        }
        self.check_stash(eviction, &rest)?;
        let mut slots = vec![];
        for (level, chosen) in chosen.iter().enumerate() {
            self.fill(eviction, level, chosen, &mut slots);
        }
        Ok(slots)
    }

    /// Refuses to keep blocks in the stash that would lose their records in the log.
    fn check_stash(&self, eviction: &Eviction, rest: &[Candidate]) -> Result {
        assert!(rest.iter().all(|c| c.from.is_none()), "a bucket has room for what was in it");
        let turn = self.geometry.levels[0].buckets;
        let next = self.geometry.record_before(eviction.nth + turn) + 1;
        let needed = next.saturating_sub(self.geometry.live_records());
        if rest.iter().any(|candidate| candidate.birth < needed) {
            let (blocks, limit) = (self.stash.len() as u64, self.geometry.live_records());
            return Err(Error::StashOverflow { blocks, limit });
        }
        Ok(())
    }

    /// Adds the new bucket of a level to the output, with blocks at random places.
    fn fill(
        &mut self,
        eviction: &Eviction,
        level: usize,
        chosen: &[Candidate],
        sealed: &mut Vec<LevelSlot>,
    ) {
        let bucket = eviction.buckets[level].bucket;
        let slots = self.geometry.levels[level].slots();
        let output = self.output.slots();
        let area = &self.levels[level];
        let first = Slot(self.geometry.written_slot(level, eviction.nth));
        self.output.add_write(area, first, slots, &Cursor::at_start(area.layout()));
        let mut free: Vec<u64> = (0..slots).collect();
        self.marks.renew(level, bucket, slots);
        let begun = sealed.len();
        sealed.extend((0..slots).map(|slot| LevelSlot {
            level,
            version: self.geometry.version(level, eviction.nth, slot),
            head: LevelHead::DUMMY,
        }));
        for candidate in chosen {
            let slot = free.swap_remove(self.draws.below(free.len() as u64) as usize);
            let is_whole = self.bring(eviction, candidate, output + slot as usize);
            let Candidate { block, birth, leaf, .. } = *candidate;
            let held = SlotBlock { block, is_lost: candidate.is_lost || !is_whole };
            let leaf = leaf as u32;
            sealed[begun + slot as usize].head = LevelHead { held: Some(held), birth, leaf };
            self.marks.fill(level, bucket, slot);
            let is_stale = self.map.get(block).is_stale;
            let place = RingPlace::Level { level, slot };
            self.map.set(block, RingSpot { leaf, place, is_stale });
        }
        for slot in free {
            self.output.slot_mut(output + slot as usize).1.fill(0);
        }
    }

    /// Copies a block's contents to a slot of the output. Returns whether they verified.
    fn bring(&mut self, eviction: &Eviction, candidate: &Candidate, to: usize) -> bool {
        let into = self.output.slot_mut(to).1;
        let Some((level, slot)) = candidate.from else {
            let held = self.stash.take(candidate.block).expect("it waited there");
            into.copy_from_slice(&held.body);
            return true;
        };
        let read = &eviction.buckets[level];
        let last = read.last.expect("the bucket was written");
        let keys = &self.keys.at(self.geometry.record_before(last)).levels[level];
        let (entry, body) = self.input.slot_mut(read.begin + slot as usize);
        let is_whole = keys.open_body(self.geometry.version(level, last, slot), entry, body);
        if is_whole {
            into.copy_from_slice(body);
        } else {
            into.fill(0);
        }
        is_whole
    }
}
