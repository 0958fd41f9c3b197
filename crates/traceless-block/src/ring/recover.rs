//! Opening after a close or a crash: the count of records, and the map.
//!
//! After a crash the count is the first gap among the last records, and no more than the last
//! eviction that is whole allows. What was acknowledged comes before both.

use super::RingCore;
use super::entry::{LevelHead, LogHead, entry_version};
use super::map::{RingPlace, RingSpot};
use super::stash::RingStashBlock;
use super::state::RingState;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::store::{Cursor, Run};
use traceless_core::types::Slot;

/// Records of the log that are read in one round trip.
const RECORDS_PER_BATCH: u64 = 128;

/// A record in the log that verifies.
struct LogRecord {
    number: u64,
    head: LogHead,
}

impl RingCore {
    /// Finds the count, and builds map and stash. `expected` accesses of the user must be there.
    /// Returns whether the marks are known: not after a crash, nor if they are damaged.
    pub fn recover(
        &mut self,
        state: &RingState,
        expected: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<bool> {
        let mut records = self.scan_log()?;
        let scheme = &state.scheme;
        self.count = if scheme.clean {
            scheme.at_least
        } else {
            self.find_count(scheme.at_least, &records)?
        };
        records.retain(|record| record.number < self.count);
        self.check_live(&records)?;
        let newest = records.iter().max_by_key(|record| record.number);
        self.accesses = newest.map_or(0, |record| record.head.accesses);
        let expected = expected.max(state.accesses);
        if self.accesses < expected {
            return Err(Error::RolledBack { expected, found: self.accesses });
        }
        let births = self.build_map(&records, progress)?;
        self.load_stash(&births)?;
        self.log_cursor = Cursor::load(&self.log, Slot(self.count % self.log.slots()))?;
        if !scheme.clean || self.life.is_read_only() {
            return Ok(false);
        }
        match self.marks.load(self.keys.newest(), &self.marks_area, &*self.store) {
            Err(Error::Tampered { .. }) => Ok(false),
            loaded => loaded.map(|()| true),
        }
    }

    /// All records of the log that verify, in their places.
    fn scan_log(&self) -> Result<Vec<LogRecord>> {
        let layout = *self.log.layout();
        let (mut header, mut records) = (vec![0; layout.header_len()], vec![]);
        for first in (0..layout.slots).step_by(layout.stripe_slots as usize) {
            self.log.read_header(Slot(first), &mut header)?;
            let entries = header.chunks_exact(layout.entry_len);
            for (slot, entry) in
                (first..layout.slots).zip(entries).take(layout.stripe_slots as usize)
            {
                let number = entry_version(entry);
                if number % layout.slots != slot {
                    continue;
                }
                if let Some(head) = self.keys.at(number).log.open_record(number, entry) {
                    records.push(LogRecord { number, head });
                }
            }
        }
        Ok(records)
    }

    /// The number of records without a gap, after a crash.
    fn find_count(&self, at_least: u64, records: &[LogRecord]) -> Result<u64> {
        let newest = records.iter().max_by_key(|record| record.number);
        let end = newest.map_or(0, |record| record.number + 1);
        // A record that was synced is never missing, and only so many were not synced.
        let synced = newest.map_or(0, |record| record.head.synced).max(at_least);
        if end < synced {
            return Err(Error::RolledBack { expected: synced, found: end });
        }
        // Damage to what was synced costs the blocks that are damaged, and not the end.
        let mut count = end.saturating_sub(self.geometry.unsynced_max()).max(synced);
        let first = self.geometry.evictions(count);
        while count < end && self.is_record_whole(count)? {
            count += 1;
        }
        for nth in first..self.geometry.evictions(count) {
            if !self.is_eviction_whole(nth)? {
                count = self.geometry.record_before(nth);
                break;
            }
        }
        Ok(count)
    }

    fn is_record_whole(&self, number: u64) -> Result<bool> {
        let mut run = Run::default();
        run.add(&self.log, Slot(number % self.log.slots()), 1);
        run.read(&*self.store)?;
        let keys = &self.keys.at(number).log;
        let (entry, body) = run.slot_mut(0);
        Ok(keys.open_record(number, entry).is_some() && keys.open_body(number, entry, body))
    }

    /// Whether an eviction wrote all that it should.
    fn is_eviction_whole(&self, nth: u64) -> Result<bool> {
        let keys = self.keys.at(self.geometry.record_before(nth));
        for (level, area) in self.levels.iter().enumerate() {
            let slots = self.geometry.levels[level].slots();
            let mut run = Run::default();
            run.add(area, Slot(self.geometry.written_slot(level, nth)), slots);
            run.read(&*self.store)?;
            for slot in 0..slots {
                let version = self.geometry.version(level, nth, slot);
                let (entry, body) = run.slot_mut(slot as usize);
                let keys = &keys.levels[level];
                let is_whole = keys.open_slot(version, entry).is_some();
                if !is_whole || !keys.open_body(version, entry, body) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Refuses a log without a record that may have a block's newest contents.
    fn check_live(&self, records: &[LogRecord]) -> Result {
        let oldest = self.count.saturating_sub(self.geometry.live_records());
        let mut numbers: Vec<_> =
            records.iter().map(|record| record.number).filter(|number| *number >= oldest).collect();
        numbers.sort_unstable();
        let gap =
            (oldest..self.count).zip(numbers.iter().map(Some).chain(core::iter::repeat(None)));
        match gap.into_iter().find(|(want, found)| *found != Some(want)) {
            Some((number, _)) => {
                let slot = number % self.log.slots();
                Err(Error::Tampered { place: Place { area: self.log.name(), slot, block: None } })
            }
            None => Ok(()),
        }
    }

    /// Builds the map from all live entries: of each block the newest copy counts, and of equal
    /// ones the deepest. Returns one more than the birth of each block; 0 if it was never written.
    fn build_map(
        &mut self,
        records: &[LogRecord],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<u64>> {
        let mut births = vec![0; self.geometry.blocks as usize];
        for record in records {
            let Some(held) = record.head.held else { continue };
            let place = self.log_place(record.number);
            let newest = births.get_mut(held.block as usize).ok_or(Error::Tampered { place })?;
            if record.number + 1 > *newest {
                *newest = record.number + 1;
                self.map.set(held.block, RingSpot::in_stash(0));
            }
        }
        let all: u64 = self.geometry.levels.iter().map(|level| level.buckets).sum();
        let mut done = 0;
        for level in 0..self.levels.len() {
            let evictions = self.geometry.evictions(self.count);
            for nth in evictions.saturating_sub(self.geometry.levels[level].buckets)..evictions {
                self.read_bucket_heads(level, nth, &mut births)?;
                done += 1;
                progress(done, all);
            }
        }
        progress(all, all);
        for (block, &birth) in births.iter().enumerate().filter(|(_, birth)| **birth > 0) {
            // Slots of levels say the leaf. The openings of records in the log are still known.
            if self.map.get(block as u64).place == RingPlace::Stash {
                let leaf = self.keys.at(birth - 1).label(birth - 1, self.geometry.leaves());
                self.map.set(block as u64, RingSpot::in_stash(leaf));
            }
        }
        Ok(births)
    }

    fn log_place(&self, number: u64) -> Place {
        Place { area: self.log.name(), slot: number % self.log.slots(), block: None }
    }

    /// Takes the blocks of a bucket that eviction number `nth` wrote into the map.
    fn read_bucket_heads(&mut self, level: usize, nth: u64, births: &mut [u64]) -> Result {
        let area = &self.levels[level];
        let layout = *area.layout();
        let mut header = vec![0; layout.header_len()];
        area.read_header(Slot(self.geometry.written_slot(level, nth)), &mut header)?;
        let keys = &self.keys.at(self.geometry.record_before(nth)).levels[level];
        let entries = header.chunks_exact(layout.entry_len).take(layout.stripe_slots as usize);
        for (slot, entry) in (0..).zip(entries) {
            let place = self.place_of(level, nth, slot, None);
            let opened = keys.open_slot(self.geometry.version(level, nth, slot), entry);
            let LevelHead { held, birth, leaf } = opened.ok_or(Error::Tampered { place })?;
            let Some(held) = held else { continue };
            let newest = births.get_mut(held.block as usize).ok_or(Error::Tampered { place })?;
            if birth + 1 >= *newest {
                *newest = birth + 1;
                let place = RingPlace::Level { level, slot };
                self.map.set(held.block, RingSpot { leaf, place, is_stale: false });
            }
        }
        Ok(())
    }

    /// Reads the blocks that are in the log alone. All records are read that may be live: which of
    /// them are depends on the accesses.
    fn load_stash(&mut self, births: &[u64]) -> Result {
        let in_stash = self.map.spots().zip(0..).filter(|(s, _)| s.place == RingPlace::Stash);
        let waiting: BTreeMap<u64, u64> =
            in_stash.map(|(_, block)| (births[block as usize] - 1, block)).collect();
        let oldest = self.count.saturating_sub(self.geometry.live_records());
        let mut run = Run::default();
        for first in (oldest..self.count).step_by(RECORDS_PER_BATCH as usize) {
            let count = RECORDS_PER_BATCH.min(self.count - first);
            run.clear();
            run.add(&self.log, Slot(first % self.log.slots()), count);
            run.read(&*self.store)?;
            for (&birth, &block) in waiting.range(first..first + count) {
                self.load_record(birth, block, run.slot_mut((birth - first) as usize));
            }
        }
        Ok(())
    }

    /// Puts a block into the stash, with the contents of its record.
    fn load_record(&mut self, birth: u64, block: u64, (entry, body): (&mut [u8], &mut [u8])) {
        let keys = &self.keys.at(birth).log;
        let held = keys.open_record(birth, entry).and_then(|head| head.held);
        let is_lost = !keys.open_body(birth, entry, body) || held.is_none_or(|held| held.is_lost);
        if is_lost {
            body.fill(0);
        }
        let bucket = self.geometry.bucket(0, self.map.get(block).leaf.into());
        self.stash.put(block, bucket, RingStashBlock { birth, is_lost, body: (&*body).into() });
    }
}
