//! Accesses: planned, read, served and written, up to the next eviction in one round trip each.

use super::RingCore;
use super::chunk::{LevelSlot, RingAccess, RingChunk, SlotRead};
use super::entry::{LogHead, SlotBlock};
use super::map::{RingPlace, RingSpot};
use super::stash::RingStashBlock;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Place, Result};
use traceless_core::rng::Rng;
use traceless_core::seal::Nonce;
use traceless_core::types::{Addr, Slot};

/// Serves an access: its number in the request, and the contents of its block, for changes.
pub(super) type Serve<'a> = &'a mut dyn FnMut(usize, &mut [u8]);

impl RingCore {
    /// Accesses blocks in order. `overwrites` says that `serve` sets their whole contents.
    pub fn access(&mut self, addrs: &[Addr], overwrites: bool, serve: Serve<'_>) -> Result {
        let mut done = 0;
        while done < addrs.len() {
            let n = self.begin_chunk((addrs.len() - done) as u64)?;
            let blocks: Vec<_> = addrs[done..done + n].iter().map(|addr| Some(addr.0)).collect();
            self.access_chunk(&blocks, overwrites, &mut |nth, block| serve(done + nth, block))?;
            done += n;
        }
        Ok(())
    }

    /// Makes an access that changes nothing.
    pub fn access_dummy(&mut self) -> Result {
        self.begin_chunk(1)?;
        self.access_chunk(&[None], false, &mut |_, _| {})
    }

    /// Number of the `wanted` accesses that are made before the next eviction. Syncs first if too
    /// many would not be synced.
    pub fn begin_chunk(&mut self, wanted: u64) -> Result<usize> {
        self.life.writable()?;
        self.repeat_failed_read()?;
        let rate = u64::from(self.geometry.rate);
        let n = wanted.min(rate - self.count % rate);
        if self.count + n - self.life.synced() > self.geometry.unsynced_max() {
            self.sync()?;
        }
        let under_key = self.count - self.keys.openings().last().start + rate;
        let blocks = under_key as f64 * self.geometry.write_amplification();
        if blocks * self.geometry.block_len as f64 > self.key_bytes_max as f64 {
            self.sync()?;
            self.begin_opening()?;
        }
        Ok(n as usize)
    }

    /// Ends the chunk that failed to be read, as if its caller had only looked at the blocks.
    pub fn repeat_failed_read(&mut self) -> Result {
        let Some(chunk) = self.failed.take() else { return Ok(()) };
        self.life.writable()?;
        self.read_and_complete(chunk, false, &mut |_, _| {}).map(|_| ())
    }

    fn access_chunk(
        &mut self,
        blocks: &[Option<u64>],
        overwrites: bool,
        serve: Serve<'_>,
    ) -> Result {
        let chunk = self.plan(blocks);
        match self.read_and_complete(chunk, overwrites, serve)? {
            Some(place) => Err(Error::Tampered { place }),
            None => Ok(()),
        }
    }

    /// Reads what a chunk needs, and completes it. If the read fails, the same read is made again
    /// before any other. Returns a damaged place, if there is one: the chunk is complete without
    /// it.
    pub fn read_and_complete(
        &mut self,
        chunk: RingChunk,
        overwrites: bool,
        serve: Serve<'_>,
    ) -> Result<Option<Place>> {
        if let Err(error) = self.input.read(&*self.store) {
            self.failed = Some(chunk);
            return Err(error);
        }
        self.complete(&chunk, overwrites, serve).inspect_err(|_| self.life.poison())
    }

    /// Chooses the slots that accesses read, and adds them to the input.
    fn plan(&mut self, blocks: &[Option<u64>]) -> RingChunk {
        let mut chunk = RingChunk { is_requested: true, ..RingChunk::default() };
        // Buckets that are read whole: level, bucket, and the first of their slots in the input.
        let mut whole = vec![];
        self.input.clear();
        for (birth, &block) in (self.count..).zip(blocks) {
            let spot = block.map(|block| self.map.get(block));
            let known = spot.filter(|spot| spot.place != RingPlace::Never);
            let drawn = || self.draws.below(self.geometry.leaves());
            let leaf = known.map_or_else(drawn, |spot| spot.leaf.into());
            let mut found = None;
            for level in 0..self.levels.len() {
                let wanted = match spot.map(|spot| spot.place) {
                    Some(RingPlace::Level { level: of, slot }) if of == level => Some(slot),
                    _ => None,
                };
                let before = chunk.reads.len();
                self.plan_read(level, leaf, wanted.zip(block), &mut whole, &mut chunk.reads);
                if wanted.is_some() {
                    found = Some(before);
                }
            }
            if let Some(block) = block {
                self.move_to_stash(block, birth);
            }
            chunk.accesses.push(RingAccess { block, found });
        }
        let after = self.count + blocks.len() as u64;
        if after.is_multiple_of(self.geometry.rate.into()) {
            chunk.eviction = Some(self.plan_eviction(after));
        }
        chunk
    }

    /// Completes a chunk of a pass, which serves no request.
    pub fn complete_pass(&mut self, chunk: &RingChunk) -> Result {
        let completed = self.complete(chunk, false, &mut |_, _| {});
        completed.inspect_err(|_| self.life.poison()).map(|_| ())
    }

    /// Gives a block the leaf of record number `birth`, in the map.
    pub fn move_to_stash(&mut self, block: u64, birth: u64) {
        let leaf = self.keys.newest().label(birth, self.geometry.leaves());
        self.map.set(block, RingSpot::in_stash(leaf));
    }

    /// Chooses the slot to read of a bucket: the one `wanted`, with its block, or an unread dummy.
    fn plan_read(
        &mut self,
        level: usize,
        leaf: u64,
        wanted: Option<(u64, u64)>,
        whole: &mut Vec<(usize, u64, usize)>,
        reads: &mut Vec<SlotRead>,
    ) {
        let bucket = self.geometry.bucket(level, leaf);
        let evictions = self.geometry.evictions(self.count);
        let eviction = self.geometry.last_eviction(level, bucket, evictions);
        let first = self.geometry.bucket_slot(level, bucket, evictions);
        let of = self.geometry.levels[level];
        let block = wanted.map(|(_, block)| block);
        if self.marks.reads(level, bucket) < of.dummies {
            let slot = match wanted {
                Some((slot, _)) => {
                    self.marks.note_read(level, bucket);
                    slot
                }
                None => self.marks.draw(level, bucket, &mut self.draws),
            };
            let nth = self.input.slots();
            self.input.add(&self.levels[level], Slot(first + slot), 1);
            reads.push(SlotRead { level, eviction, slot, block, nth });
            return;
        }
        let known = whole.iter().find(|(l, b, _)| (*l, *b) == (level, bucket));
        let begin = known.map_or(self.input.slots(), |(_, _, begin)| *begin);
        if known.is_none() {
            self.input.add(&self.levels[level], Slot(first), of.slots());
            whole.push((level, bucket, begin));
        }
        if let Some((slot, _)) = wanted {
            reads.push(SlotRead { level, eviction, slot, block, nth: begin + slot as usize });
        }
    }

    /// Opens what was read, serves the accesses, and writes their records and the eviction.
    fn complete(
        &mut self,
        chunk: &RingChunk,
        overwrites: bool,
        serve: Serve<'_>,
    ) -> Result<Option<Place>> {
        // Dummies are verified as well: otherwise an error would show that a slot holds a block.
        let opened: Vec<_> = chunk.reads.iter().map(|read| self.open_read(read)).collect();
        let mut damage = opened.iter().zip(&chunk.reads).find_map(|(opened, read)| {
            let place = self.place_of(read.level, read.eviction?, read.slot, read.block);
            (!opened).then_some(place)
        });
        self.output.clear();
        let first = Slot(self.count % self.log.slots());
        let n = chunk.accesses.len();
        self.output.add_write(&self.log, first, n as u64, &self.log_cursor);
        let mut heads = Vec::with_capacity(n);
        for (nth, access) in chunk.accesses.iter().enumerate() {
            self.accesses += u64::from(chunk.is_requested);
            let found = access.found.map(|found| (&chunk.reads[found], opened[found]));
            let held = access.block.map(|block| {
                let mut held = self.take(block, found);
                held.birth = self.count + nth as u64;
                if overwrites || !held.is_lost {
                    held.is_lost = false;
                    serve(nth, &mut held.body);
                } else if chunk.is_requested && damage.is_none() {
                    let slot = (self.count + nth as u64) % self.log.slots();
                    damage = Some(Place { area: self.log.name(), slot, block: Some(block) });
                }
                self.output.slot_mut(nth).1.copy_from_slice(&held.body);
                let (leaf, is_lost) = (self.map.get(block).leaf, held.is_lost);
                self.stash.put(block, self.geometry.bucket(0, leaf.into()), held);
                SlotBlock { block, is_lost }
            });
            if held.is_none() {
                self.output.slot_mut(nth).1.fill(0);
            }
            heads.push(LogHead { held, accesses: self.accesses, synced: self.life.synced() });
        }
        let slots = match &chunk.eviction {
            Some(eviction) => self.evict(eviction)?,
            None => vec![],
        };
        self.seal_and_write(&heads, &slots)?;
        Ok(damage)
    }

    fn seal_and_write(&mut self, heads: &[LogHead], slots: &[LevelSlot]) -> Result {
        // All contents are fixed by now.
        let salt = self.life.rng.salt();
        let keys = self.keys.newest();
        for (nth, head) in heads.iter().enumerate() {
            let nonce = Nonce::new(self.count + nth as u64, salt);
            keys.log.seal(nonce, &head.to_bytes(), self.output.slot_mut(nth));
        }
        for (nth, slot) in slots.iter().enumerate() {
            let nonce = Nonce::new(slot.version, salt);
            let into = self.output.slot_mut(heads.len() + nth);
            keys.levels[slot.level].seal(nonce, &slot.head.to_bytes(), into);
        }
        self.output.write(&*self.store)?;
        self.output.advance(&mut self.log_cursor, heads.len() - 1);
        self.count += heads.len() as u64;
        Ok(())
    }

    /// The block of an access, from the stash, from a slot that was read, or zeros.
    fn take(&mut self, block: u64, found: Option<(&SlotRead, bool)>) -> RingStashBlock {
        if let Some(held) = self.stash.take(block) {
            return held;
        }
        let zeros = || vec![0; self.geometry.block_len].into_boxed_slice();
        let (body, is_lost) = match found {
            Some((read, true)) => (self.input.slot(read.nth).1.into(), false),
            Some((_, false)) => (zeros(), true),
            None => (zeros(), false),
        };
        RingStashBlock { birth: 0, is_lost, body }
    }

    /// Opens a slot that was read; returns whether it holds what it must.
    fn open_read(&mut self, read: &SlotRead) -> bool {
        let Some(eviction) = read.eviction else { return true };
        let version = self.geometry.version(read.level, eviction, read.slot);
        let keys = &self.keys.at(self.geometry.record_before(eviction)).levels[read.level];
        let (entry, body) = self.input.slot_mut(read.nth);
        let Some(head) = keys.open_slot(version, entry) else { return false };
        let is_sound = match (head.held, read.block) {
            (Some(found), Some(block)) => found.block == block && !found.is_lost,
            (None, None) => true,
            _ => false,
        };
        keys.open_body(version, entry, body) && is_sound
    }

    pub fn place_of(&self, level: usize, nth: u64, slot: u64, block: Option<u64>) -> Place {
        let slot = self.geometry.written_slot(level, nth) + slot;
        Place { area: self.levels[level].name(), slot, block }
    }
}
