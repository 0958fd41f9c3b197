//! Opening after a close or a crash.
//!
//! The count is the first gap among the last writes, which may not have been synced. The journal
//! holds the blocks of the stash, and the slots that may not have reached their places: these slots
//! are copied there once more, byte for byte, after any crash. The last tier's map follows from the
//! entries on the store, the newest of each block, and must match the fingerprint of the last
//! write.

use super::entry::{ENTRY_LEN, Head, Note, RECORD_STRIPE, STASHED, entry_version};
use super::map::Spot;
use super::stash::{StashBlock, Waiting};
use super::{RandomSlots, Vacancy};
use crate::log::DUMMY;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::scheme::openings::SchemeState;
use traceless_core::store::{Cursor, Run};
use traceless_core::types::Slot;

/// Slots between two progress reports.
const REPORT_EVERY: u64 = 1 << 16;

/// Number of blocks with places looked up in one round trip.
const BLOCKS_PER_BATCH: u64 = 4096;

/// A complete record of the journal.
struct Record {
    head: Head,
    note: Note,
    entry: Vec<u8>,
    body: Vec<u8>,
}

/// The complete records of a tier, by version.
type Records = BTreeMap<u64, Record>;

impl<V: Vacancy> RandomSlots<V> {
    pub(super) fn recover(
        &mut self,
        state: &SchemeState,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result {
        let mut journals = vec![];
        for tier in 0..self.tiers.len() {
            journals.push(self.read_journal(tier)?);
        }
        self.count = self.find_count(&journals);
        let noted = journals.iter().flat_map(|j| j.values()).map(|r| r.note.synced).max();
        let expected = state.at_least.max(noted.unwrap_or(0));
        if self.count < expected {
            return Err(Error::RolledBack { expected, found: self.count });
        }
        let is_clean = state.clean && state.at_least == self.count;
        for (tier, records) in journals.iter_mut().enumerate() {
            // Records after the first gap count as not written.
            let end = self.count * self.tiers[tier].geometry.records;
            records.retain(|&version, _| version < end);
            self.restore_stash(tier, records);
            if !is_clean {
                self.restore_pending(tier, records);
            }
        }
        self.rebuild_top(journals.last().expect("the data is a tier"), progress)?;
        for (tier, records) in journals.iter().enumerate() {
            self.check_fingerprint(tier, records)?;
        }
        if V::KEEPS_RECORD {
            (0..self.tiers.len()).rev().try_for_each(|tier| self.fill_record(tier))?;
        }
        if !self.life.is_read_only() {
            // The data found may still be in a volatile cache only, and pending slots go to their
            // places.
            self.settle()?;
        }
        for t in &mut self.tiers {
            t.cursor = Cursor::load(&t.journal, t.journal_slot(self.count))?;
        }
        Ok(())
    }

    fn read_journal(&self, tier: usize) -> Result<Records> {
        let t = &self.tiers[tier];
        let slots = t.journal.slots();
        let mut plain = vec![0; t.journal.layout().body_len];
        let mut records = Records::new();
        let mut run = Run::default();
        for first in (0..slots).step_by(RECORD_STRIPE as usize) {
            let n = RECORD_STRIPE.min(slots - first);
            run.clear();
            run.add(&t.journal, Slot(first), n);
            run.read(&*self.store)?;
            for i in 0..n {
                let (record, body) = run.slot(i as usize);
                let version = entry_version(record);
                if version % slots == first + i
                    && let Some((head, note)) = self.open_record(tier, record, body, &mut plain)
                {
                    let (entry, body) = (record[..ENTRY_LEN].to_vec(), body.to_vec());
                    records.insert(version, Record { head, note, entry, body });
                }
            }
        }
        Ok(records)
    }

    fn open_record(
        &self,
        tier: usize,
        record: &[u8],
        body: &[u8],
        plain: &mut [u8],
    ) -> Option<(Head, Note)> {
        let keys = self.keys.at(tier, entry_version(record));
        let note = keys.open_note(record)?;
        let head = keys.open_head(note.slot, record)?;
        // The body of a block that was lost earlier opens under no key, and is kept as it is.
        let whole = keys.open_body(note.slot, head, record, body, plain)
            || self.is_lost(tier, record, body, plain);
        whole.then_some((head, note))
    }

    /// Whether a body is the filler of a lost block.
    fn is_lost(&self, tier: usize, entry: &[u8], body: &[u8], lost: &mut [u8]) -> bool {
        self.keys.fill_lost(tier, entry_version(entry), &mut [0; 16], lost);
        body == lost
    }

    /// The number of writes that are complete in every tier, without a gap.
    fn find_count(&self, journals: &[Records]) -> u64 {
        let newest = journals.iter().zip(&self.tiers).filter_map(|(records, t)| {
            records.last_key_value().map(|(version, _)| version / t.geometry.records + 1)
        });
        let newest = newest.max().unwrap_or(0);
        let is_whole = |count: u64| {
            journals.iter().zip(&self.tiers).all(|(records, t)| {
                let first = count * t.geometry.records;
                records.range(first..first + t.geometry.records).count() as u64
                    == t.geometry.records
            })
        };
        // A synced write is never missing, and at most `unsynced_max` writes are not synced.
        let mut count = newest.saturating_sub(self.geometry.unsynced_max);
        count = count.max(self.keys.openings().last().start);
        while count < newest && is_whole(count) {
            count += 1;
        }
        count
    }

    /// Restores the stash: a block is in the stash if its newest record says so.
    fn restore_stash(&mut self, tier: usize, records: &Records) {
        let mut newest = BTreeMap::new();
        for (&version, record) in records.iter().filter(|(_, r)| r.head.address != DUMMY) {
            newest.insert(record.head.address, version);
        }
        let mut stashed: Vec<u64> = newest.into_values().collect();
        stashed.retain(|version| records[version].note.slot == STASHED);
        stashed.sort_unstable();
        for version in stashed {
            let Record { head, entry, body, .. } = &records[&version];
            let mut plain = vec![0; body.len()];
            let keys = self.keys.at(tier, version);
            if keys.open_body(STASHED, *head, entry, body, &mut plain) {
                let (address, birth, recorded) = (head.address, head.birth, Some(version));
                self.tiers[tier].stash.push(StashBlock { address, birth, recorded, plain });
            }
        }
    }

    /// Restores the pending slots: slots of the last writes may not have reached their places.
    fn restore_pending(&mut self, tier: usize, records: &Records) {
        let late = self.count.saturating_sub(2 * self.geometry.unsynced_max);
        let t = &mut self.tiers[tier];
        for record in records.range(late * t.geometry.records..).map(|(_, record)| record) {
            if record.note.slot != STASHED {
                let (entry, body) = (record.entry.clone(), record.body.clone());
                t.pending.insert(record.note.slot, Waiting { entry, body });
            }
        }
    }

    /// Rebuilds the last tier's map from the newest version of each block, in slots and journal.
    fn rebuild_top(&mut self, records: &Records, progress: &mut dyn FnMut(u64, u64)) -> Result {
        let tier = self.tiers.len() - 1;
        let mut top = core::mem::take(&mut self.top);
        // One more than the version that set each entry.
        let mut newest = vec![0; top.len()];
        let mut note = |version: u64, head: Head, spot: Spot| {
            if let Some(known) = newest.get_mut(head.address as usize)
                && *known <= version
            {
                *known = version + 1;
                top[head.address as usize] = spot;
            }
        };
        for (&version, record) in records {
            let birth = record.head.birth;
            let spot = match record.note.slot {
                STASHED => Spot::stashed(birth),
                slot => Spot::at(slot, birth),
            };
            note(version, record.head, spot);
        }
        let area = &self.tiers[tier].slots;
        let layout = *area.layout();
        let mut header = vec![0; layout.header_len()];
        for first in (0..area.slots()).step_by(layout.stripe_slots as usize) {
            area.read_header(Slot(first), &mut header)?;
            for (slot, entry) in (first..area.slots()).zip(header.chunks_exact(ENTRY_LEN)) {
                let version = entry_version(entry);
                let Some(head) = self.keys.at(tier, version).open_head(slot, entry) else {
                    continue;
                };
                let count = version / self.tiers[tier].geometry.records;
                if count >= self.count {
                    // A slot is written in place only after its record is durable in the journal.
                    return Err(Error::RolledBack { expected: count + 1, found: self.count });
                }
                note(version, head, Spot::at(slot, head.birth));
            }
            if first % REPORT_EVERY == 0 {
                progress(first, area.slots());
            }
        }
        progress(area.slots(), area.slots());
        self.top = top;
        Ok(())
    }

    /// Checks that the rebuilt map and stash match the fingerprint of the last write.
    fn check_fingerprint(&mut self, tier: usize, records: &Records) -> Result {
        let t = &self.tiers[tier];
        let hash = |address, birth| self.keys.fingerprint(tier, address, birth);
        let found = if self.is_last_tier(tier) {
            let written = (0..).zip(&self.top).filter(|(_, spot)| spot.is_written());
            written.map(|(address, spot)| hash(address, spot.birth)).fold(0, u128::wrapping_add)
        } else {
            let stashed = t.stash.iter().map(|block| hash(block.address, block.birth));
            stashed.fold(0, u128::wrapping_add)
        };
        let last = (self.count * t.geometry.records).checked_sub(1);
        let expected = match last.map(|version| (version, records.get(&version))) {
            None => 0,
            Some((_, Some(record))) => record.note.fingerprint,
            Some((version, None)) => {
                let slot = version % t.journal.slots();
                let place = Place { area: t.journal.name(), slot, block: None };
                return Err(Error::Tampered { place });
            }
        };
        if found != expected {
            return Err(Error::WrongMap { area: t.slots.name() });
        }
        self.tiers[tier].fingerprint = found;
        Ok(())
    }

    /// Fills the record of free slots from the map.
    fn fill_record(&mut self, tier: usize) -> Result {
        let blocks = self.tiers[tier].geometry.blocks;
        let mut spots = vec![];
        for first in (0..blocks).step_by(BLOCKS_PER_BATCH as usize) {
            let range = first..(first + BLOCKS_PER_BATCH).min(blocks);
            spots.clear();
            match self.spots(tier, range.clone(), &mut spots) {
                // The places of these blocks are lost, so they cannot be recorded.
                Err(Error::Tampered { .. }) => continue,
                other => other?,
            }
            let t = &mut self.tiers[tier];
            for (block, spot) in range.zip(&spots) {
                if let Some(slot) = spot.slot().filter(|_| t.stash.get(block).is_none()) {
                    t.vacancy.fill(slot);
                }
            }
        }
        Ok(())
    }
}
