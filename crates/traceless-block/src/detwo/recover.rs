//! Opening after a close or a crash.
//!
//! The count is the first gap among the last writes, which may not have been synced. The map
//! follows from the holding entries. Then these last writes are replayed one by one with the map of
//! that time, and missing refreshes are redone byte for byte: same opening, same contents, so a
//! nonce still covers only one content, at the same places as the lost writes.

use super::{DetWo, DetWoLocation};
use crate::log::{DUMMY, DamagePolicy, entry_count, entry_synced};
use crate::refreshed;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::BlockOram;
use traceless_core::scheme::openings::SchemeState;
use traceless_core::store::{Cursor, Run};
use traceless_core::types::Slot;

/// Counts between two progress reports.
const REPORT_EVERY: u64 = 1 << 16;

/// Main slots verified in one round trip.
const SLOTS_PER_BATCH: u64 = 256;

impl DetWo {
    /// Recovers the scheme. Returns the damaged places that were accepted.
    pub(super) fn recover(
        &mut self,
        state: &SchemeState,
        policy: DamagePolicy,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<Place>> {
        let (newest, synced) = self.find_newest(progress)?;
        let expected = state.at_least.max(synced);
        if policy == DamagePolicy::Accept {
            self.count = newest.max(expected);
        } else {
            self.count = self.find_count(newest)?;
            if self.count < expected {
                return Err(Error::RolledBack { expected, found: self.count });
            }
            self.refuse_lost_tail()?;
        }
        let late = self.count.saturating_sub(self.geometry.unsynced_max);
        let late = late.max(self.keys.openings().last().start.min(self.count));
        let (homes, lost) = self.rebuild_map(late, progress)?;
        if let (Some(&place), DamagePolicy::Refuse) = (lost.first(), policy) {
            return Err(Error::Tampered { place });
        }
        self.entries_from_counts(late)?;
        let missing = self.find_missing(late)?;
        for (count, home) in (late..self.count).zip(homes) {
            self.note_write(count, home)?;
            self.redo_refreshes(count, &missing, policy)?;
        }
        for tier in 0..self.tiers.len() {
            self.tiers[tier].refreshed = self.refreshed_after(tier, self.count);
        }
        // The data found may still be in a volatile cache only.
        self.sync_shared()?;
        self.load_cursors()?;
        Ok(lost)
    }

    /// One more than the newest write in any entry of the last tier, and the number of writes that
    /// were synced when that entry was made.
    fn find_newest(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<(u64, u64)> {
        let (mut newest, mut synced) = (0, 0);
        self.scan_entries(progress, |this, tier, entry| {
            if entry_count(entry) >= newest
                && let Some((count, _)) = this.open_entry(tier, entry)
            {
                (newest, synced) = (count + 1, entry_synced(entry));
            }
        })?;
        Ok((newest, synced))
    }

    /// Calls `visit` with each holding entry of the last tier that is in the right slot for its
    /// count.
    fn scan_entries(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        mut visit: impl FnMut(&Self, usize, &[u8]),
    ) -> Result {
        let tier = self.tiers.len() - 1;
        let area = &self.tiers[tier].hold;
        let layout = *area.layout();
        let mut header = vec![0; layout.header_len()];
        for first in (0..area.slots()).step_by(layout.stripe_slots as usize) {
            area.read_header(Slot(first), &mut header)?;
            for (slot, entry) in (first..area.slots()).zip(header.chunks_exact(layout.entry_len)) {
                if entry_count(entry) % area.slots() == slot {
                    visit(self, tier, entry);
                }
            }
            if first % REPORT_EVERY == 0 {
                progress(first, area.slots());
            }
        }
        progress(area.slots(), area.slots());
        Ok(())
    }

    /// Restores the map as it was before write `late`. Returns the blocks of the later writes, and
    /// the places of missing entries that may still be live.
    fn rebuild_map(
        &mut self,
        late: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Vec<u64>, Vec<Place>)> {
        let t = self.tiers.last().expect("the data is a tier");
        let oldest = self.count.saturating_sub(t.geometry.live_writes);
        let mut live_entries = 0;
        let mut homes = vec![DUMMY; (self.count - late) as usize];
        let mut top = core::mem::take(&mut self.top);
        let scanned = self.scan_entries(progress, |this, tier, entry| {
            let count = entry_count(entry);
            if count >= this.count {
                return;
            }
            let Some((_, home)) = this.open_entry(tier, entry) else { return };
            live_entries += u64::from(count >= oldest);
            if count >= late {
                homes[(count - late) as usize] = home;
            } else if let Some(last) = usize::try_from(home).ok().and_then(|h| top.get_mut(h)) {
                *last = (*last).max(count + 1);
            }
        });
        self.top = top;
        scanned?;
        let lost =
            if live_entries == self.count - oldest { vec![] } else { self.lost_entries(oldest)? };
        Ok((homes, lost))
    }

    /// The places of missing entries of the last tier, from write `oldest` on.
    fn lost_entries(&self, oldest: u64) -> Result<Vec<Place>> {
        let mut is_found = vec![false; (self.count - oldest) as usize];
        self.scan_entries(&mut |_, _| {}, |this, tier, entry| {
            let known = this.open_entry(tier, entry).map(|(count, _)| count);
            let at = known.and_then(|count| usize::try_from(count.checked_sub(oldest)?).ok());
            if let Some(is_found) = at.and_then(|at| is_found.get_mut(at)) {
                *is_found = true;
            }
        })?;
        let t = self.tiers.last().expect("the data is a tier");
        let lost = (oldest..self.count).zip(is_found).filter(|(_, is_found)| !is_found);
        Ok(lost
            .map(|(count, _)| Place {
                area: t.hold.name(),
                slot: t.hold_slot(count).0,
                block: None,
            })
            .collect())
    }

    fn note_write(&mut self, count: u64, home: u64) -> Result {
        let tier = self.tiers.len() - 1;
        if home < self.tiers[tier].geometry.blocks {
            let refreshed = self.refreshed_after(tier, count);
            self.top[home as usize] = self.entries_at(tier, &[(home, count)], refreshed)?[0];
        }
        Ok(())
    }

    /// The number of writes that are complete in every tier, without a gap.
    fn find_count(&self, newest: u64) -> Result<u64> {
        // A synced write is never missing, and at most `unsynced_max` writes are not synced.
        let mut count = newest.saturating_sub(self.geometry.unsynced_max);
        count = count.max(self.keys.openings().last().start);
        while count < newest {
            for tier in 0..self.tiers.len() {
                if !self.is_whole(tier, count)? {
                    return Ok(count);
                }
            }
            count += 1;
        }
        Ok(count)
    }

    /// The count and the block of a holding entry, if it verifies.
    pub(super) fn open_entry(&self, tier: usize, entry: &[u8]) -> Option<(u64, u64)> {
        let (opening, keys) = self.keys.at_hold(tier, entry_count(entry));
        keys.hold.open_entry(opening, entry)
    }

    /// Refuses a store from which more than `unsynced_max` writes are gone, which a crash cannot
    /// cause. A refresh that a later write caused shows that.
    fn refuse_lost_tail(&self) -> Result {
        let furthest = self.count + self.geometry.unsynced_max;
        for tier in 0..self.tiers.len() {
            let begin = self.refreshed_after(tier, furthest);
            let opens = |r, entry: &[u8], sealed: &[u8], into: &mut [u8]| {
                self.keys.at_main(tier, r).1.main.open(r, entry, sealed, into)
            };
            if refreshed::holds_after(&self.tiers[tier].main, &*self.store, begin, opens)? {
                return Err(Error::RolledBack { expected: furthest + 1, found: self.count });
            }
        }
        Ok(())
    }

    /// Whether write `count` is present with its body.
    fn is_whole(&self, tier: usize, count: u64) -> Result<bool> {
        let t = &self.tiers[tier];
        let mut run = Run::default();
        run.add(&t.hold, t.hold_slot(count), 1);
        // A slot that cannot be read does not count as a gap: it may have been synced.
        run.read(&*self.store)?;
        let (entry, body) = run.slot(0);
        let mut plain = vec![0; body.len()];
        Ok(match self.open_entry(tier, entry) {
            Some((c, home)) if c == count => self
                .open_slot(tier, home, DetWoLocation::Hold(count), entry, body, &mut plain)
                .is_ok(),
            _ => false,
        })
    }

    /// For each tier, the refreshes by writes from `late` on that are missing in their slots.
    fn find_missing(&self, late: u64) -> Result<Vec<Vec<u64>>> {
        (0..self.tiers.len())
            .map(|tier| {
                let (begin, end) =
                    (self.refreshed_after(tier, late), self.refreshed_after(tier, self.count));
                self.missing_refreshes(tier, begin, end)
            })
            .collect()
    }

    /// Redoes the missing refreshes of write `count`. Later tiers come first, since they hold the
    /// map of the earlier ones.
    fn redo_refreshes(&mut self, count: u64, missing: &[Vec<u64>], policy: DamagePolicy) -> Result {
        for tier in (0..self.tiers.len()).rev() {
            for r in self.refreshed_after(tier, count)..self.refreshed_after(tier, count + 1) {
                if missing[tier].binary_search(&r).is_ok() {
                    self.redo_refresh(tier, r, count, policy)?;
                }
            }
        }
        Ok(())
    }

    /// The refreshes in `begin..end` that are missing in their slots.
    fn missing_refreshes(&self, tier: usize, begin: u64, end: u64) -> Result<Vec<u64>> {
        let t = &self.tiers[tier];
        let mut missing = Vec::new();
        let mut run = Run::default();
        let mut plain = vec![0; t.main.layout().body_len];
        let mut r = begin;
        while r < end {
            let n = SLOTS_PER_BATCH.min(end - r).min(t.main.slots());
            run.clear();
            run.add(&t.main, t.main_slot(r), n);
            run.read(&*self.store)?;
            for i in 0..n {
                let (entry, sealed) = run.slot(i as usize);
                let (_, keys) = self.keys.at_main(tier, r + i);
                if !keys.main.open(r + i, entry, sealed, &mut plain) {
                    missing.push(r + i);
                }
            }
            r += n;
        }
        Ok(missing)
    }

    /// Redoes refresh `r`, caused by write `count`, with the copy that was the newest at that
    /// write. If the scheme is read-only, notes the place of that copy instead.
    fn redo_refresh(&mut self, tier: usize, r: u64, count: u64, policy: DamagePolicy) -> Result {
        let block = r % self.tiers[tier].geometry.blocks;
        let entry = self.entry_at(tier, block, count + 1)?;
        let mut plain = vec![0; self.tiers[tier].main.layout().body_len];
        let lookup = self.lookup(tier, block, entry, r, count + 1);
        // If writes are unknown, the refresh's contents are unknown too, and a nonce must not cover
        // other contents.
        let found = match self.read_lookup(tier, block, lookup, &mut plain) {
            Ok(_) if policy == DamagePolicy::Accept => None,
            Err(Error::Tampered { .. }) => None,
            other => Some(other?),
        };
        if self.life.is_read_only() {
            self.tiers[tier].substitutes.extend(found.map(|place| (r, place)));
            return Ok(());
        }
        let salt = self.life.rng.salt();
        let t = &self.tiers[tier];
        let slot = t.main_slot(r);
        let cursor = Cursor::load(&t.main, slot)?;
        let mut run = Run::default();
        run.add_rewrite(&t.main, slot, &cursor);
        let (_, keys) = self.keys.at_main(tier, r);
        let (entry, body) = run.slot_mut(0);
        if found.is_some() {
            body.copy_from_slice(&plain);
            keys.main.seal_in_place(r, salt, (entry, body));
        } else {
            self.keys.fill_lost(tier, r, (entry, body));
        }
        run.write(&*self.store)
    }

    fn load_cursors(&mut self) -> Result {
        for t in &mut self.tiers {
            let hold = t.hold_slot(self.count);
            t.hold_cursor = Cursor::load(&t.hold, hold)?;
            let main = t.main_slot(t.refreshed);
            t.main_cursor = Cursor::load(&t.main, main)?;
        }
        Ok(())
    }
}
