//! A flush: each level gets its next bucket, the last level its next window.

use super::Sq;
use super::geometry::SLOTS_PER_BATCH;
use super::keys::level_version;
use super::merge::{Merge, SortedRun};
use crate::log::{self, DUMMY, Stamp};
use alloc::vec::Vec;
use core::ops::Range;
use traceless_core::error::Result;
use traceless_core::store::Run;

/// Sources of the next merge into a level that a flush reads ahead, at most.
const SOURCES_READ_AHEAD: u64 = 8;

/// Buffers of a delivery.
#[derive(Default)]
pub(super) struct Delivery {
    output: Run,
    /// Old contents of the last level.
    old: Run,
    addresses: Vec<u64>,
    merged: Vec<u64>,
}

impl Sq {
    /// Flushes the full bucket.
    pub(super) fn flush(&mut self) -> Result {
        let flush = self.flushes;
        for level in (1..=self.schedule.last()).rev() {
            for bucket in self.schedule.deliveries(level, flush) {
                self.sync_between(level, bucket, flush)?;
                self.deliver(level, bucket, flush)?;
            }
            self.prepare_next_merge(level)?;
        }
        self.end_flush();
        self.discard_newly_dead();
        Ok(())
    }

    /// Reads the first chunks of some sources before the next merge into a level begins; otherwise
    /// its first flush would have to read all of them. An amortized level is between two merges
    /// after each flush, and none of them is near.
    fn prepare_next_merge(&mut self, level: usize) -> Result {
        let done = self.flushes + 1;
        let (width, delivered) = (self.schedule.width(level), self.schedule.delivered(level, done));
        let phase = delivered % width;
        let begins_in = (width - phase) * SOURCES_READ_AHEAD;
        if level == 1 || begins_in > u64::from(self.geometry.fanout) {
            return Ok(());
        }
        // The level before gets its bucket of this flush after this one.
        let there = self.schedule.delivered(level - 1, self.flushes);
        let whole = there / self.schedule.width(level - 1);
        let next = delivered.div_ceil(width);
        for _ in 0..SOURCES_READ_AHEAD {
            let sources = self.schedule.sources(next);
            let source = sources.start + self.ready[level - 1].len() as u64;
            if source < sources.end.min(whole) {
                let source = SortedRun::ready(self, level - 1, source)?;
                self.ready[level - 1].push(source);
            }
        }
        Ok(())
    }

    /// Updates the state in memory after everything of flush number `flushes` is written.
    pub(super) fn end_flush(&mut self) {
        for bucket in self.schedule.deliveries(self.schedule.last(), self.flushes) {
            self.forget_times(self.slots_of(self.schedule.last(), bucket));
        }
        self.flushes += 1;
        for level in &mut self.levels {
            level.forget_before(self.schedule.oldest(level.number, self.flushes));
        }
        self.recent.forget_before(self.schedule.oldest(0, self.flushes));
    }

    /// Forgets the times of blocks that `refreshes` have brought to the last level.
    fn forget_times(&mut self, refreshes: Range<u64>) {
        let (n, now) = (self.geometry.addresses(), self.now());
        for r in refreshes {
            let Some(nth) = self.time_index(r % n) else { continue };
            let time = self.times.get(nth, now);
            if time.is_some_and(|time| self.schedule.refresh_of(time, r % n) <= r) {
                self.times.set(nth, None);
            }
        }
    }

    /// Syncs from time to time among the many buckets that a flush delivers to an amortized level,
    /// so that they never exceed the slack.
    pub(super) fn sync_between(&self, level: usize, bucket: u64, flush: u64) -> Result {
        let nth = bucket - self.schedule.deliveries(level, flush).start;
        let unsynced_max = (self.geometry.unsynced_max / self.bucket()).max(1);
        // The writes of this flush count as synced only when the whole flush is done.
        if nth > 0 && nth.is_multiple_of(unsynced_max) { self.store.sync() } else { Ok(()) }
    }

    /// Writes bucket number `bucket` of a level, which is due in flush `flush`.
    pub(super) fn deliver(&mut self, level: usize, bucket: u64, flush: u64) -> Result {
        let mut merge = match self.merges[level - 1].take() {
            Some(merge) if !bucket.is_multiple_of(self.schedule.width(level)) => merge,
            _ => {
                let ready = core::mem::take(&mut self.ready[level - 1]);
                self.begin_merge(level, bucket, ready)?
            }
        };
        let mut delivery = core::mem::take(&mut self.writer.delivery);
        delivery.merged.clear();
        let slots = self.slots_of(level, bucket);
        let mut first = slots.start;
        let mut result = Ok(());
        while first < slots.end && result.is_ok() {
            let batch = first..slots.end.min(first + SLOTS_PER_BATCH);
            first = batch.end;
            result = if level < self.schedule.last() {
                self.deliver_slots(level, flush, batch, &mut merge, &mut delivery)
            } else {
                self.deliver_refreshes(flush, batch, &mut merge, &mut delivery)
            };
        }
        for &write in &delivery.merged {
            self.recent.release(write);
        }
        self.writer.delivery = delivery;
        self.merges[level - 1] = Some(merge);
        result
    }

    /// Numbers of the slots, or refreshes, of a bucket.
    pub(super) fn slots_of(&self, level: usize, bucket: u64) -> Range<u64> {
        if level < self.schedule.last() {
            bucket * self.bucket()..(bucket + 1) * self.bucket()
        } else {
            self.schedule.refreshes_before(bucket)..self.schedule.refreshes_before(bucket + 1)
        }
    }

    /// A merge that continues with bucket number `bucket` of a level, behind the newest address
    /// that is already in its generation.
    fn begin_merge(&self, level: usize, bucket: u64, ready: Vec<SortedRun>) -> Result<Merge> {
        let generation = bucket / self.schedule.width(level);
        let from = if bucket.is_multiple_of(self.schedule.width(level)) {
            0
        } else if level == self.schedule.last() {
            self.schedule.refreshes_before(bucket) % self.geometry.addresses()
        } else {
            self.generation(level, generation).newest().map_or(0, |newest| newest + 1)
        };
        // Ready sources start at their beginning.
        let ready = if from == 0 { ready } else { Vec::new() };
        Merge::start(self, level - 1, ready, self.schedule.sources(generation), from)
    }

    fn deliver_slots(
        &mut self,
        level: usize,
        flush: u64,
        slots: Range<u64>,
        merge: &mut Merge,
        d: &mut Delivery,
    ) -> Result {
        // The salt must be specific to this level: levels share the low halves of versions.
        let salt = self.life.rng.salt();
        let place = &self.levels[level - 1];
        let count = slots.end - slots.start;
        d.output.clear();
        d.addresses.clear();
        d.output.add_write(&place.area, place.slot(slots.start), count, &place.cursor);
        let (opening, keys) = self.keys.at_flush(flush);
        for (i, slot) in slots.clone().enumerate() {
            let (entry, body) = d.output.slot_mut(i);
            let address = merge.peek().unwrap_or(DUMMY);
            let whole = match address {
                DUMMY => {
                    body.fill(0);
                    true
                }
                _ => merge.take(self, body, &mut d.merged)?,
            };
            // A repeated delivery must seal the same bytes, so these entries have no sync count.
            let stamp = Stamp { count: level_version(level, slot), unsynced: 0, salt };
            if whole {
                keys.levels.seal_in_place(opening, stamp, address, (entry, body));
            } else {
                // The block was lost earlier. Everything else goes on, and reads of this block are
                // errors until it is written again.
                keys.levels.seal_address(opening, stamp, address, entry);
                let place = [level as u64, slot];
                self.keys.fill_lost(opening, &place, log::body_tag(entry), body);
            }
            d.addresses.push(address);
        }
        d.output.write(&*self.store)?;
        self.note_slots(level, slots.start, &d.addresses);
        d.output.advance(&mut self.levels[level - 1].cursor, count as usize - 1);
        Ok(())
    }

    /// Notes the addresses in the slots of a level from number `first` on.
    pub(super) fn note_slots(&mut self, level: usize, first: u64, addresses: &[u64]) {
        let place = &mut self.levels[level - 1];
        for (slot, &address) in (first..).zip(addresses) {
            let generation = slot / place.generation_len;
            let address =
                if place.is_lost(slot) { place.placeholder_address(generation) } else { address };
            place.push(generation, address);
        }
    }

    fn deliver_refreshes(
        &mut self,
        flush: u64,
        refreshes: Range<u64>,
        merge: &mut Merge,
        d: &mut Delivery,
    ) -> Result {
        let n = self.geometry.addresses();
        let count = refreshes.end - refreshes.start;
        let salt = self.life.rng.salt();
        d.output.clear();
        d.output.add_write(&self.main, self.main_slot(refreshes.start), count, &self.main_cursor);
        // Blocks that no refresh has written yet read as zeros.
        let first_old = (refreshes.start - n).max(n);
        let old_count = (refreshes.end - n).saturating_sub(first_old);
        d.old.clear();
        d.old.add(&self.main, self.main_slot(first_old), old_count);
        d.old.read(&*self.store)?;
        let (opening, keys) = self.keys.at_flush(flush);
        for (i, r) in refreshes.clone().enumerate() {
            let (entry, body) = d.output.slot_mut(i);
            let whole = if merge.peek() == Some(r % n) {
                merge.take(self, body, &mut d.merged)?
            } else if r - n >= n {
                let (old_entry, sealed) = d.old.slot((r - n - first_old) as usize);
                self.open_main(r - n, old_entry, sealed, body)
            } else {
                body.fill(0);
                true
            };
            if whole {
                keys.main.seal_in_place(r, salt, (entry, body));
            } else {
                self.keys.fill_lost_refresh(opening, r, (entry, body));
            }
        }
        d.output.write(&*self.store)?;
        d.output.advance(&mut self.main_cursor, count as usize - 1);
        Ok(())
    }
}
