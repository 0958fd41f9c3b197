//! Writing, a chunk at a time: draw, fetch the slots, seal, write to the journal once.
//!
//! The writes of a chunk are made one after the other in memory, so that after a crash which keeps
//! a prefix of them each is as if it had been made alone.

use super::entry::{ENTRY_LEN, Head, Note, STASHED, entry_version};
use super::geometry::{DRAWS, MAP, RandomGeometry, stash_age_max};
use super::map::{MAP_BLOCK_LEN, Spot, set_entry};
use super::stash::{StashBlock, Waiting};
use super::{RandomSlots, Vacancy};
use crate::log::DUMMY;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::oram::BlockOram;
use traceless_core::rng::Rng;
use traceless_core::store::Run;
use traceless_core::types::{Addr, Slot};

/// Writes made in one round trip, at most.
const WRITES_PER_BATCH: u64 = 32;

/// Slots written in place in one round trip, at most.
const SLOTS_PER_BATCH: usize = 128;

/// The way in which a write chooses its slots in each tier.
#[derive(Clone, Copy)]
pub(super) enum SlotDraw {
    /// Random distinct slots.
    Random,
    /// Consecutive slots from this one on, modulo the area's size.
    InOrder(u64),
}

/// Buffers of the writer.
#[derive(Default)]
pub(super) struct RandomWriteScratch {
    /// The slots drawn, for each write and each tier.
    draws: Vec<u64>,
    input: Run,
    /// The slots fetched: maps tier and slot to the index in `input`.
    fetched: BTreeMap<(usize, u64), usize>,
    output: Run,
}

/// New contents for a tier's stash.
struct Arrival {
    address: u64,
    plain: Vec<u8>,
}

/// A block that was put into a slot.
struct Placement {
    address: u64,
    spot: Spot,
}

impl<V: Vacancy> RandomSlots<V> {
    pub(super) fn write_in_chunks(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        let len = self.geometry.block_len;
        let (mut addrs, mut from) = (addrs, from);
        while !addrs.is_empty() {
            let n = self.chunk_len(addrs.len() as u64)?;
            let homes: Vec<u64> = addrs[..n].iter().map(|a| a.0).collect();
            self.write_chunk(&homes, &from[..n * len], SlotDraw::Random)?;
            (addrs, from) = (&addrs[n..], &from[n * len..]);
        }
        Ok(())
    }

    /// A dummy write.
    pub(super) fn write_dummy_at(&mut self, draw: SlotDraw) -> Result {
        self.chunk_len(1)?;
        self.write_chunk(&[DUMMY], &[], draw)
    }

    /// Number of the `wanted` writes that fit in one chunk now; syncs first if there is no room.
    fn chunk_len(&mut self, wanted: u64) -> Result<usize> {
        self.life.writable()?;
        self.write_in_place()?;
        let unsynced = self.count - self.life.synced();
        let mut room = self.geometry.unsynced_max - unsynced;
        if room == 0 {
            self.sync_shared()?;
            self.write_in_place()?;
            room = self.geometry.unsynced_max;
        }
        let under_key = self.count - self.keys.openings().last().start + WRITES_PER_BATCH;
        let sealed = under_key * RandomGeometry::records(0) * self.geometry.block_len as u64;
        if sealed > self.key_bytes_max {
            self.sync_shared()?;
            self.write_in_place()?;
            self.begin_opening()?;
        }
        Ok(wanted.min(room).min(WRITES_PER_BATCH) as usize)
    }

    /// Writes the pending slots to their places, if all of them are durable in the journal. Each
    /// slot is written once, in order.
    pub(super) fn write_in_place(&mut self) -> Result {
        if self.life.synced() < self.count {
            return Ok(());
        }
        let mut run = core::mem::take(&mut self.writer.output);
        let mut written = Ok(());
        for t in &mut self.tiers {
            let waiting: Vec<_> = t.pending.iter().collect();
            for part in waiting.chunks(SLOTS_PER_BATCH) {
                run.clear();
                for (nth, &(&slot, waiting)) in part.iter().enumerate() {
                    run.add_in_place(&t.slots, Slot(slot), 1);
                    let (entry, body) = run.slot_mut(nth);
                    entry.copy_from_slice(&waiting.entry);
                    body.copy_from_slice(&waiting.body);
                }
                written = written.and_then(|()| run.write(&*self.store));
            }
            if written.is_ok() {
                t.pending.clear();
            }
        }
        self.writer.output = run;
        written.inspect_err(|_| self.life.poison())
    }

    fn write_chunk(&mut self, homes: &[u64], data: &[u8], draw: SlotDraw) -> Result {
        let mut scratch = core::mem::take(&mut self.writer);
        self.draw(homes.len(), draw, &mut scratch.draws);
        let result = self.fetch(&mut scratch).and_then(|()| {
            let written = self.write_fetched(homes, data, &mut scratch);
            // The versions of this chunk have sealed something and must not be used again.
            written.inspect_err(|_| self.life.poison())
        });
        self.writer = scratch;
        result
    }

    /// Draws the slots of `writes` writes. The values and the number of draws depend on the
    /// generator alone.
    fn draw(&mut self, writes: usize, how: SlotDraw, into: &mut Vec<u64>) {
        into.clear();
        for _ in 0..writes {
            for t in &self.tiers {
                let n = t.slots.slots();
                match how {
                    SlotDraw::Random => into.extend(distinct(&mut *self.life.rng, n)),
                    SlotDraw::InOrder(first) => into.extend((first..first + DRAWS).map(|s| s % n)),
                }
            }
        }
    }

    /// Reads every drawn slot that may be live and is not in memory. Nothing is sealed yet, so
    /// after a failure the same write may be retried.
    fn fetch(&self, s: &mut RandomWriteScratch) -> Result {
        s.input.clear();
        s.fetched.clear();
        for (i, slots) in s.draws.chunks_exact(DRAWS as usize).enumerate() {
            let tier = i % self.tiers.len();
            let t = &self.tiers[tier];
            for &slot in slots {
                let needed = t.vacancy.is_free(slot) != Some(true);
                let known = t.pending.contains_key(&slot) || s.fetched.contains_key(&(tier, slot));
                if needed && !known {
                    s.fetched.insert((tier, slot), s.input.slots());
                    s.input.add(&t.slots, Slot(slot), 1);
                }
            }
        }
        s.input.read(&*self.store)
    }

    fn write_fetched(&mut self, homes: &[u64], data: &[u8], s: &mut RandomWriteScratch) -> Result {
        s.output.clear();
        let mut begins = Vec::with_capacity(self.tiers.len());
        for t in &self.tiers {
            begins.push(s.output.slots());
            let (first, count) = (t.journal_slot(self.count), homes.len() as u64);
            s.output.add_write(&t.journal, first, count * t.geometry.records, &t.cursor);
        }
        for (i, &address) in homes.iter().enumerate() {
            let len = self.geometry.block_len;
            let mut arrivals = vec![];
            if address != DUMMY {
                arrivals.push(Arrival { address, plain: data[i * len..(i + 1) * len].to_vec() });
            }
            for (tier, &begin) in begins.iter().enumerate() {
                let nth = begin + i * RandomGeometry::records(tier) as usize;
                let drawn = (i * self.tiers.len() + tier) * DRAWS as usize;
                let placed = self.commit(tier, self.count + i as u64, arrivals, s, (drawn, nth))?;
                arrivals = self.enter(tier, &placed)?;
            }
        }
        s.output.write(&*self.store)?;
        for (t, begin) in self.tiers.iter_mut().zip(begins) {
            let last = begin + homes.len() * t.geometry.records as usize - 1;
            s.output.advance(&mut t.cursor, last);
        }
        self.count += homes.len() as u64;
        Ok(())
    }

    /// Makes write `count` in one tier: its drawn slots begin at index `drawn`, its records at
    /// index `nth` of the output.
    fn commit(
        &mut self,
        tier: usize,
        count: u64,
        arrivals: Vec<Arrival>,
        s: &mut RandomWriteScratch,
        (drawn, nth): (usize, usize),
    ) -> Result<Vec<Placement>> {
        self.take_in(tier, count, arrivals)?;
        let records = RandomGeometry::records(tier);
        let first = count * records;
        let mut placed = vec![];
        for i in 0..DRAWS as usize {
            let (slot, version) = (s.draws[drawn + i], first + i as u64);
            let found = s.fetched.get(&(tier, slot)).map(|&nth| s.input.slot(nth));
            let (record, body) = s.output.slot_mut(nth + i);
            self.write_slot(tier, version, slot, found, &mut placed, (record, body))?;
        }
        for i in DRAWS as usize..records as usize {
            let (record, body) = s.output.slot_mut(nth + i);
            self.record_stash(tier, first + i as u64, first, record, body);
        }
        let t = &self.tiers[tier];
        let (blocks, limit) = (t.stash.len() as u64, t.geometry.stash_max);
        let oldest = count.saturating_sub(stash_age_max(limit)) * records;
        if blocks > limit || t.stash.oldest_record().is_some_and(|v| v < oldest) {
            return Err(Error::StashOverflow { blocks, limit });
        }
        Ok(placed)
    }

    /// Takes new contents into the stash. Older contents of the same blocks are obsolete from now
    /// on.
    fn take_in(&mut self, tier: usize, count: u64, arrivals: Vec<Arrival>) -> Result {
        let births = RandomGeometry::records(tier) - DRAWS;
        for (i, Arrival { address, plain }) in arrivals.into_iter().enumerate() {
            let birth = count * births + i as u64;
            let waited = self.tiers[tier].stash.remove(address);
            if V::KEEPS_RECORD
                && waited.is_none()
                && let Some(slot) = self.spot(tier, address)?.slot()
            {
                self.tiers[tier].vacancy.release(slot);
            }
            let mut counted = waited.map(|block| block.birth);
            if self.is_last_tier(tier) {
                let spot =
                    core::mem::replace(&mut self.top[address as usize], Spot::stashed(birth));
                counted = spot.is_written().then_some(spot.birth);
            }
            let hash = |birth| self.keys.fingerprint(tier, address, birth);
            let change = hash(birth).wrapping_sub(counted.map_or(0, hash));
            let t = &mut self.tiers[tier];
            t.fingerprint = t.fingerprint.wrapping_add(change);
            t.stash.push(StashBlock { address, birth, recorded: None, plain });
        }
        Ok(())
    }

    /// Rewrites one drawn slot, and makes its record: with its live block, with a block of the
    /// stash, or with a dummy.
    fn write_slot(
        &mut self,
        tier: usize,
        version: u64,
        slot: u64,
        found: Option<(&[u8], &[u8])>,
        placed: &mut Vec<Placement>,
        (record, body): (&mut [u8], &mut [u8]),
    ) -> Result {
        let live = self.live(tier, slot, found, placed, body)?;
        let mut whole = true;
        let head = if let Some((head, opened)) = live {
            whole = opened;
            head
        } else if let Some(block) = self.tiers[tier].stash.pop() {
            let (address, birth) = (block.address, block.birth);
            if !self.is_last_tier(tier) {
                let hash = self.keys.fingerprint(tier, address, birth);
                let t = &mut self.tiers[tier];
                t.fingerprint = t.fingerprint.wrapping_sub(hash);
            }
            self.tiers[tier].vacancy.fill(slot);
            placed.push(Placement { address, spot: Spot::at(slot, birth) });
            body.copy_from_slice(&block.plain);
            Head { address, birth }
        } else {
            body.fill(0);
            Head::DUMMY
        };
        let stamp = (version, self.life.rng.salt());
        let keys = self.keys.at(tier, version);
        if whole {
            keys.seal(stamp, slot, head, record, body);
        } else {
            // The block was lost earlier. The rest goes on, and reads of this block are errors
            // until it is written again.
            let tag = keys.seal_head(stamp, slot, head, record);
            self.keys.fill_lost(tier, version, tag, body);
        }
        keys.seal_note(self.note(tier, slot), record);
        let waiting = Waiting { entry: record[..ENTRY_LEN].to_vec(), body: body.to_vec() };
        self.tiers[tier].pending.insert(slot, waiting);
        Ok(())
    }

    /// The live block in a slot, opened into `into`, and whether it opened. `None` if the slot is
    /// free.
    fn live(
        &self,
        tier: usize,
        slot: u64,
        found: Option<(&[u8], &[u8])>,
        placed: &[Placement],
        into: &mut [u8],
    ) -> Result<Option<(Head, bool)>> {
        let t = &self.tiers[tier];
        let recorded = t.vacancy.is_free(slot);
        if recorded == Some(true) {
            return Ok(None);
        }
        // The record says taken but the slot's entry disagrees: its block is lost.
        let nobody = recorded.map(|_| (Head::DUMMY, false));
        let waiting = t.pending.get(&slot).map(|w| (&*w.entry, &*w.body));
        let (entry, sealed) = waiting.or(found).expect("what may be live was fetched");
        let keys = self.keys.at(tier, entry_version(entry));
        let Some(head) = keys.open_head(slot, entry) else { return Ok(nobody) };
        // With a record, no lookup in a map on the store is needed.
        let looks_up = recorded.is_none() || self.is_last_tier(tier);
        if looks_up && !self.is_newest(tier, slot, head, placed)? {
            return Ok(nobody);
        }
        Ok(Some((head, keys.open_body(slot, head, entry, sealed, into))))
    }

    /// Whether a slot's entry belongs to its block's newest contents.
    fn is_newest(&self, tier: usize, slot: u64, head: Head, placed: &[Placement]) -> Result<bool> {
        let moved = self.tiers[tier].stash.get(head.address).is_some()
            || placed.iter().any(|p| p.address == head.address);
        if head.address == DUMMY || moved {
            return Ok(false);
        }
        match self.spot(tier, head.address) {
            Ok(known) => Ok(known == Spot::at(slot, head.birth)),
            // The map entry is lost, so the slot counts as live and its contents are kept.
            Err(Error::Tampered { .. }) => Ok(true),
            Err(other) => Err(other),
        }
    }

    /// Makes a record of the stash block that most needs one, or a dummy record.
    fn record_stash(
        &mut self,
        tier: usize,
        version: u64,
        first: u64,
        record: &mut [u8],
        body: &mut [u8],
    ) {
        let mut head = Head::DUMMY;
        body.fill(0);
        if let Some(block) = self.tiers[tier].stash.record(version, first) {
            body.copy_from_slice(&block.plain);
            head = Head { address: block.address, birth: block.birth };
        }
        let stamp = (version, self.life.rng.salt());
        let keys = self.keys.at(tier, version);
        keys.seal(stamp, STASHED, head, record, body);
        keys.seal_note(self.note(tier, STASHED), record);
    }

    fn note(&self, tier: usize, slot: u64) -> Note {
        let synced = self.life.synced();
        Note { slot, synced, fingerprint: self.tiers[tier].fingerprint }
    }

    /// Enters new places into the map. Returns the map blocks that change, for the next tier.
    fn enter(&mut self, tier: usize, placed: &[Placement]) -> Result<Vec<Arrival>> {
        if self.is_last_tier(tier) {
            for p in placed {
                self.top[p.address as usize] = p.spot;
            }
            return Ok(vec![]);
        }
        let mut changed: Vec<Arrival> = vec![];
        for p in placed {
            let address = MAP.home(p.address);
            let at = if let Some(at) = changed.iter().position(|c| c.address == address) {
                at
            } else {
                let mut plain = vec![0; MAP_BLOCK_LEN];
                self.read_tier(tier + 1, &[Addr(address)], &mut plain)?;
                changed.push(Arrival { address, plain });
                changed.len() - 1
            };
            set_entry(&mut changed[at].plain, p.address, p.spot);
        }
        Ok(changed)
    }
}

impl<V> super::RandomTier<V> {
    /// The slot of the first record of write `count`.
    pub(super) fn journal_slot(&self, count: u64) -> Slot {
        Slot(count * self.geometry.records % self.journal.slots())
    }
}

/// Draws distinct slots below `n`; all sets are equally likely.
fn distinct(rng: &mut dyn Rng, n: u64) -> [u64; DRAWS as usize] {
    let mut slots = [0; DRAWS as usize];
    for i in 0..slots.len() {
        slots[i] = loop {
            let slot = rng.below(n);
            if !slots[..i].contains(&slot) {
                break slot;
            }
        };
    }
    slots
}
