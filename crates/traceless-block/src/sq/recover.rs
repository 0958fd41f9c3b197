//! Opening after a close or a crash.
//!
//! The count is the first gap among the last slots of the log, which may not have been synced. The
//! maps follow from the entries of all needed generations. Then the last flushes, which may not
//! have been synced either, are checked one by one: an incomplete bucket is merged again from its
//! sources, byte for byte as it was, under the same keys.

use super::Sq;
use super::geometry::SLOTS_PER_BATCH;
use super::keys::level_version;
use super::salvage::LostEntries;
use crate::log::{DUMMY, DamagePolicy, STRIPE, entry_count, entry_synced};
use crate::refreshed;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::oram::BlockOram;
use traceless_core::scheme::openings::SchemeState;
use traceless_core::store::{Cursor, Run};
use traceless_core::types::Slot;

impl Sq {
    /// Recovers the scheme. Returns the damaged entries that were accepted.
    pub(super) fn recover(
        &mut self,
        state: &SchemeState,
        policy: DamagePolicy,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<LostEntries> {
        let (newest, synced) = self.find_newest()?;
        let expected = state.at_least.max(synced);
        let must = if policy == DamagePolicy::Accept { expected } else { 0 };
        // A write counts only with all of its slots.
        let count = self.find_count(newest, must)?;
        self.count = count - count % self.geometry.slots_per_write();
        if self.count < expected {
            return Err(Error::RolledBack { expected, found: self.count });
        }
        let lost = if policy == DamagePolicy::Accept {
            self.accept_damage()?
        } else {
            self.refuse_lost_tail(self.count / self.bucket())?;
            LostEntries::default()
        };
        let flushes = self.count / self.bucket();
        let late = self.count.saturating_sub(self.geometry.unsynced_max) / self.bucket();
        self.flushes = late;
        self.rebuild_levels(progress)?;
        self.rebuild_log(&lost)?;
        for flush in late..flushes {
            if !self.redo_flush(flush)? {
                // For reading only: the scheme stays at the state before this flush.
                break;
            }
        }
        // The data found may still be in a volatile cache only.
        self.sync_shared()?;
        self.rebuild_dirty_leaves()?;
        self.load_cursors()?;
        Ok(lost)
    }

    /// One more than the newest log slot in any entry, and the number of slots synced when that
    /// entry was made.
    fn find_newest(&self) -> Result<(u64, u64)> {
        let (mut newest, mut synced) = (0, 0);
        let layout = *self.log.layout();
        let mut header = vec![0; layout.header_len()];
        for first in (0..layout.slots).step_by(layout.stripe_slots as usize) {
            self.log.read_header(Slot(first), &mut header)?;
            for (slot, entry) in (first..layout.slots).zip(header.chunks_exact(layout.entry_len)) {
                let count = entry_count(entry);
                if count >= newest && count % layout.slots == slot && self.open_log(entry).is_some()
                {
                    (newest, synced) = (count + 1, entry_synced(entry));
                }
            }
        }
        Ok((newest, synced))
    }

    /// The address in an entry of the log, if the entry verifies.
    fn open_log(&self, entry: &[u8]) -> Option<u64> {
        let (opening, keys) = self.keys.at_write(entry_count(entry));
        keys.log.open_entry(opening, entry).map(|(_, address)| address)
    }

    /// The address in the entry of write number `write`, if the entry verifies as that write.
    pub(super) fn logged_address(&self, write: u64, entry: &[u8]) -> Option<u64> {
        self.open_log(entry).filter(|_| entry_count(entry) == write)
    }

    /// The number of complete slots of the log, without a gap behind the first `must`.
    fn find_count(&self, newest: u64, must: u64) -> Result<u64> {
        // A synced slot is never missing, and at most `unsynced_max` slots are not synced.
        let mut count = newest.saturating_sub(self.geometry.unsynced_max);
        count = count.max(self.keys.openings().last().start);
        let mut run = Run::default();
        let mut plain = vec![0; self.geometry.block_len];
        let end = newest.max(must);
        while count < end {
            let n = STRIPE.min(end - count);
            run.clear();
            run.add(&self.log, self.log_slot(count), n);
            // A slot that cannot be read does not count as a gap: it may have been synced.
            run.read(&*self.store)?;
            for i in 0..n as usize {
                let (entry, sealed) = run.slot(i);
                let (_, keys) = self.keys.at_write(count);
                let whole = self
                    .logged_address(count, entry)
                    .is_some_and(|a| keys.log.open_body(count, a, entry, sealed, &mut plain));
                if !whole && count >= must {
                    return Ok(count);
                }
                count += 1;
            }
        }
        Ok(count)
    }

    /// Refuses a store from which more than `unsynced_max` slots are gone, which a crash cannot
    /// cause. A bucket of a later flush shows that.
    fn refuse_lost_tail(&self, flushes: u64) -> Result {
        let furthest = flushes + self.geometry.slack_buckets();
        for level in &self.levels {
            let first = self.schedule.delivered(level.number, furthest) * self.bucket();
            let mut addresses = Vec::new();
            let context = (&self.keys, &self.schedule);
            level.read_addresses(context, first, self.bucket().min(STRIPE), &mut addresses)?;
            if addresses.iter().any(Option::is_some) {
                let expected = (furthest + 1) * self.bucket();
                return Err(Error::RolledBack { expected, found: self.count });
            }
        }
        let begin = self.schedule.refreshed(furthest);
        let opens = |r, entry: &[u8], sealed: &[u8], into: &mut [u8]| {
            self.open_main(r, entry, sealed, into)
        };
        if refreshed::holds_after(&self.main, &*self.store, begin, opens)? {
            let expected = (furthest + 1) * self.bucket();
            return Err(Error::RolledBack { expected, found: self.count });
        }
        Ok(())
    }

    /// Rebuilds the maps of the levels from 1 on as they were after `flushes` flushes.
    fn rebuild_levels(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result {
        let needed: Vec<_> = (1..self.schedule.last())
            .map(|level| {
                let width = self.schedule.width(level);
                let oldest = self.schedule.oldest(level, self.flushes);
                let slots = self.schedule.delivered(level, self.flushes) * self.bucket();
                (level, oldest, (oldest * width * self.bucket()).min(slots)..slots)
            })
            .collect();
        let all: u64 = needed.iter().map(|(_, _, slots)| slots.end - slots.start).sum();
        let mut done = 0;
        let mut found = Vec::new();
        let mut addresses = Vec::new();
        for (level, oldest, slots) in needed {
            self.levels[level - 1].begin_at(oldest);
            let mut first = slots.start;
            while first < slots.end {
                let place = &self.levels[level - 1];
                let n = SLOTS_PER_BATCH.min(slots.end - first);
                place.read_addresses((&self.keys, &self.schedule), first, n, &mut found)?;
                addresses.clear();
                for (slot, address) in (first..).zip(&found) {
                    match address {
                        Some(address) => addresses.push(*address),
                        None if place.is_lost(slot) => addresses.push(DUMMY),
                        None => return Err(place.tampered(slot, None)),
                    }
                }
                self.note_slots(level, first, &addresses);
                for (slot, &address) in (first..).zip(&addresses) {
                    // Any flush number of this generation locates the block, so the first one is
                    // used.
                    let flush = slot / self.bucket() / self.schedule.width(level);
                    self.note_newer_time(address, flush * self.schedule.width(level));
                }
                first += n;
                done += n;
                progress(done, all);
            }
        }
        Ok(())
    }

    fn note_newer_time(&mut self, address: u64, flush: u64) {
        // A block that has reached the last level needs no time, and must not keep an old one.
        if let Some(nth) = self.time_index(address)
            && self.schedule.refresh_of(flush, address) >= self.schedule.refreshed(self.flushes)
        {
            let known = self.times.get(nth, self.now());
            self.times.set(nth, known.max(Some(flush)));
        }
    }

    /// Reads the addresses in the log, and the contents of writes that are not merged yet.
    fn rebuild_log(&mut self, lost: &LostEntries) -> Result {
        let oldest = self.schedule.oldest(0, self.flushes);
        // A repeated flush reads its own sources, so only contents for later merges are loaded
        // here.
        let in_progress = self.schedule.delivered(1, self.now()) / self.schedule.width(1);
        let unmerged = self.schedule.sources(in_progress).start * self.bucket();
        self.recent.begin_at(oldest);
        let mut write = oldest * self.bucket();
        let mut run = Run::default();
        let mut plain = vec![0; self.geometry.block_len];
        while write < self.count {
            let n = STRIPE.min(self.count - write);
            run.clear();
            run.add(&self.log, self.log_slot(write), n);
            run.read(&*self.store)?;
            for i in 0..n as usize {
                let (entry, sealed) = run.slot(i);
                let address = match self.logged_address(write, entry) {
                    Some(address) => address,
                    None if lost.writes.contains(&write) => DUMMY,
                    None => return Err(Error::Tampered { place: self.log_place(write) }),
                };
                let (_, keys) = self.keys.at_write(write);
                let keep = write >= unmerged
                    && !self.life.is_read_only()
                    && keys.log.open_body(write, address, entry, sealed, &mut plain);
                self.recent.push(address, keep.then_some(&plain[..]));
                self.note_time(address, write / self.bucket());
                write += 1;
            }
        }
        Ok(())
    }

    /// Makes sure that all buckets of flush number `flush` are complete. Returns false if one is
    /// not and the scheme is read-only.
    fn redo_flush(&mut self, flush: u64) -> Result<bool> {
        let due: Vec<_> = (1..=self.schedule.last())
            .rev()
            .flat_map(|level| self.schedule.deliveries(level, flush).map(move |b| (level, b)))
            .collect();
        if self.life.is_read_only() {
            for &(level, bucket) in &due {
                if self.find_bucket(level, bucket)?.is_none() {
                    return Ok(false);
                }
            }
        }
        for (level, bucket) in due {
            // Redoing a bucket overwrites the entries behind it, so each bucket is checked only in
            // its turn.
            let Some(addresses) = self.find_bucket(level, bucket)? else {
                self.sync_between(level, bucket, flush)?;
                self.redo_bucket(level, bucket, flush)?;
                continue;
            };
            if level < self.schedule.last() {
                self.note_slots(level, self.slots_of(level, bucket).start, &addresses);
            }
            self.merges[level - 1] = None;
        }
        self.end_flush();
        Ok(true)
    }

    fn redo_bucket(&mut self, level: usize, bucket: u64, flush: u64) -> Result {
        let slots = self.slots_of(level, bucket);
        if level < self.schedule.last() {
            let place = &mut self.levels[level - 1];
            let slot = place.slot(slots.start);
            place.cursor = Cursor::load(&place.area, slot)?;
        } else {
            self.main_cursor = Cursor::load(&self.main, self.main_slot(slots.start))?;
        }
        self.deliver(level, bucket, flush)
    }

    /// The addresses of a bucket if all of it is complete; an empty list for the last level.
    pub(super) fn find_bucket(&self, level: usize, bucket: u64) -> Result<Option<Vec<u64>>> {
        let slots = self.slots_of(level, bucket);
        let mut addresses = Vec::new();
        let mut run = Run::default();
        let mut plain = vec![0; self.geometry.block_len];
        let mut first = slots.start;
        while first < slots.end {
            let n = SLOTS_PER_BATCH.min(slots.end - first);
            run.clear();
            if level == self.schedule.last() {
                run.add(&self.main, self.main_slot(first), n);
            } else {
                let place = &self.levels[level - 1];
                run.add(&place.area, place.slot(first), n);
            }
            run.read(&*self.store)?;
            for (i, slot) in (first..first + n).enumerate() {
                let (entry, sealed) = run.slot(i);
                if level == self.schedule.last() {
                    if !self.open_main(slot, entry, sealed, &mut plain) {
                        return Ok(None);
                    }
                    continue;
                }
                let place = &self.levels[level - 1];
                let address = place.open_entry((&self.keys, &self.schedule), slot, entry);
                let whole = address.filter(|&address| {
                    let (_, keys) = self.keys.at_slot(&self.schedule, level, slot);
                    let version = level_version(level, slot);
                    keys.levels.open_body(version, address, entry, sealed, &mut plain)
                });
                match whole {
                    Some(address) => addresses.push(address),
                    None => return Ok(None),
                }
            }
            first += n;
        }
        Ok(Some(addresses))
    }

    /// Rebuilds the leaves of the current bucket, which the paper's cadence keeps in memory only.
    fn rebuild_dirty_leaves(&mut self) -> Result {
        if self.geometry.cadence == super::Cadence::Strict {
            return Ok(());
        }
        let current = self.recent.current().to_vec();
        let now = self.now();
        for (i, &address) in current.iter().enumerate() {
            // Leaves and dummies have no leaf.
            if address >= self.geometry.blocks {
                continue;
            }
            let (leaf, nth) = self.leaf_of(address);
            let leaf_address = self.geometry.blocks + leaf;
            // The leaf was written after this block, so it has the block's time.
            if current[i..].contains(&leaf_address) {
                continue;
            }
            self.fetch_leaf(leaf)?;
            self.leaves.set(leaf, nth, now);
        }
        Ok(())
    }

    fn load_cursors(&mut self) -> Result {
        self.log_cursor = Cursor::load(&self.log, self.log_slot(self.count))?;
        for i in 0..self.levels.len() {
            let slot = self.schedule.delivered(i + 1, self.flushes) * self.bucket();
            let level = &mut self.levels[i];
            level.cursor = Cursor::load(&level.area, level.slot(slot))?;
        }
        self.main_cursor =
            Cursor::load(&self.main, self.main_slot(self.schedule.refreshed(self.flushes)))?;
        Ok(())
    }
}
