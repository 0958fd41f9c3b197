//! Finding the entries of hidden volumes on the lane.

use super::entry::{BEACON, LaneHead, LaneKeys, RECORD, STRIPE};
use super::lane::LaneVolume;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::scheme::openings::Opening;
use traceless_core::store::{Area, Run, Store};
use traceless_core::types::Slot;

/// Slots between two progress reports.
const REPORT_EVERY: u64 = 1 << 14;

/// An entry of a volume, of write `p`.
struct FoundEntry {
    p: u64,
    head: LaneHead,
}

impl FoundEntry {
    /// Lane writes that were synced when it was made.
    fn synced(&self) -> u64 {
        self.p.saturating_sub(u64::from(self.head.lag))
    }
}

/// Calls `visit` with the slot and the head of each entry that opens under one of `keys`.
fn scan(
    area: &Area,
    keys: &[&LaneKeys],
    progress: &mut dyn FnMut(u64, u64),
    mut visit: impl FnMut(usize, u64, LaneHead),
) -> Result {
    let layout = *area.layout();
    let mut header = vec![0; layout.header_len()];
    for first in (0..area.slots()).step_by(STRIPE as usize) {
        area.read_header(Slot(first), &mut header)?;
        for (slot, entry) in (first..area.slots()).zip(header.chunks_exact(layout.entry_len)) {
            let opens = |keys: &&LaneKeys| keys.open_head(slot, entry);
            let found = keys.iter().enumerate().find_map(|(nth, keys)| Some((nth, opens(keys)?)));
            if let Some((nth, head)) = found {
                visit(nth, slot, head);
            }
        }
        if first % REPORT_EVERY == 0 {
            progress(first, area.slots());
        }
    }
    progress(area.slots(), area.slots());
    Ok(())
}

/// The contents of all copies of a volume's record on the lane, the newest first. Nothing else
/// about the store need be known; whether the newest is the right one is proved by
/// [`load_volumes`].
pub(super) fn find_records(
    area: &Area,
    store: &dyn Store,
    keys: &LaneKeys,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Vec<u8>>> {
    let mut found = vec![];
    scan(area, &[keys], progress, |_, slot, head| {
        if head.address == RECORD {
            found.push((u64::from(head.lap) * area.slots() + slot, slot));
        }
    })?;
    found.sort_unstable_by(|a, b| b.cmp(a));
    let (mut records, mut run) = (vec![], Run::default());
    for (p, slot) in found {
        run.clear();
        run.add(area, Slot(slot), 1);
        run.read(store)?;
        let mut plain = vec![0; area.layout().body_len];
        if keys.open_body((slot, p), RECORD, run.slot(0), &mut plain) {
            records.push(plain);
        }
    }
    Ok(records)
}

/// How an opening treats a hidden volume that does not add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LanePolicy {
    /// The opening fails.
    Refuse,
    /// Blocks that were overwritten or put back read as they were earlier, or as zeros.
    Accept,
}

/// Loads the maps of hidden volumes when `next` writes were made. Without a word of one of them on
/// the lane its map is empty.
pub(super) fn load_volumes(
    area: &Area,
    store: &dyn Store,
    (next, openings): (u64, &[Opening]),
    (volumes, policy): (&mut [LaneVolume], LanePolicy),
    progress: &mut dyn FnMut(u64, u64),
) -> Result {
    let mut found: Vec<Vec<FoundEntry>> = volumes.iter().map(|_| vec![]).collect();
    let keys: Vec<&LaneKeys> = volumes.iter().map(|volume| &volume.keys).collect();
    let slots = area.slots();
    scan(area, &keys, progress, |nth, slot, head| {
        let p = u64::from(head.lap) * slots + slot;
        // The newest write to this slot; what a crash cut off is of another opening.
        let is_newest = p < next && next - p <= slots;
        if is_newest && is_of_opening(p, head.opening, openings) {
            found[nth].push(FoundEntry { p, head });
        }
    })?;
    for (volume, mut entries) in volumes.iter_mut().zip(found) {
        entries.sort_unstable_by_key(|entry| entry.p);
        forget_torn(area, store, &volume.keys, &mut entries)?;
        let is_sound = load_volume(volume, &entries);
        if !is_sound && policy == LanePolicy::Refuse {
            return Err(Error::WrongMap { area: area.name() });
        }
    }
    Ok(())
}

/// Removes entries without their bodies that a crash may have torn: of the writes of an opening
/// that no entry of it says were synced. A later opening knows from the openings of the entries
/// that the crash was there, and removes the same.
fn forget_torn(
    area: &Area,
    store: &dyn Store,
    keys: &LaneKeys,
    entries: &mut Vec<FoundEntry>,
) -> Result {
    let mut torn = vec![];
    let mut run = Run::default();
    let mut plain = vec![0; area.layout().body_len];
    for session in entries.chunk_by(|a, b| a.head.opening == b.head.opening) {
        let synced = session.iter().map(FoundEntry::synced).max().unwrap_or(0);
        let at_risk = session.iter().filter(|entry| entry.p >= synced);
        for entry in at_risk.filter(|entry| entry.head.address != BEACON) {
            run.clear();
            let slot = entry.p % area.slots();
            run.add(area, Slot(slot), 1);
            run.read(store)?;
            if !keys.open_body((slot, entry.p), entry.head.address, run.slot(0), &mut plain) {
                torn.push(entry.p);
            }
        }
    }
    entries.retain(|entry| torn.binary_search(&entry.p).is_err());
    Ok(())
}

/// Loads one map from the volume's entries, in the order of their writes. Returns whether they add
/// up to what the newest one says about all before the sync that it knows.
fn load_volume(volume: &mut LaneVolume, entries: &[FoundEntry]) -> bool {
    let Some(newest) = entries.last() else { return true };
    let (before, after) = entries.split_at(entries.partition_point(|e| e.p < newest.synced()));
    for entry in before.iter().filter(|entry| entry.head.address != BEACON) {
        volume.note(entry.head.address, entry.p);
    }
    let is_sound = volume.sum() == newest.head.sum;
    for entry in after.iter().filter(|entry| entry.head.address != BEACON) {
        volume.note(entry.head.address, entry.p);
    }
    is_sound
}

/// Whether write `p` was made in the opening with a number that ends in `number`. Openings of the
/// last lap are not forgotten: the lane is no longer than the public holding area.
fn is_of_opening(p: u64, number: u16, openings: &[Opening]) -> bool {
    let opening = openings.iter().rev().find(|opening| opening.start <= p);
    opening.is_some_and(|opening| opening.number as u16 == number)
}
