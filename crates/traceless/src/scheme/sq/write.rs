//! Writing: slots are appended to the log, and each full bucket is a flush.

use super::flush::Delivery;
use super::{Cadence, FLUSHES_MAX, MapPlace, Sq};
use crate::error::{Error, Result};
use crate::oram::BlockOram;
use crate::scheme::log::DUMMY;
use crate::scheme::openings::KEY_BYTES_MAX;
use crate::store::Run;
use crate::types::Addr;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

/// Slots appended in one round trip, at most.
const SLOTS_PER_TRIP: u64 = 128;

/// Leaves of the map that one chunk of writes may touch.
const LEAVES_PER_CHUNK: usize = 32;

/// Buffers of the writer.
#[derive(Default)]
pub(super) struct WriteScratch {
    output: Run,
    /// Address and contents of the slots to be appended.
    addresses: Vec<u64>,
    contents: Vec<u8>,
    pub delivery: Delivery,
}

impl Sq {
    pub(super) fn write_blocks(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        let len = self.geometry.block_len;
        let (mut addrs, mut from) = (addrs, from);
        while !addrs.is_empty() {
            let n = match (self.geometry.map, self.geometry.cadence) {
                (MapPlace::Memory, _) => self.write_data(addrs, from)?,
                (MapPlace::Disk, Cadence::Strict) => self.write_with_leaves(addrs, from)?,
                (MapPlace::Disk, Cadence::Paper) => {
                    self.write_sharing_leaves(addrs[0].0, &from[..len])?;
                    1
                }
            };
            (addrs, from) = (&addrs[n..], &from[n * len..]);
        }
        Ok(())
    }

    pub(super) fn write_one_dummy(&mut self) -> Result {
        if self.geometry.cadence == Cadence::Paper {
            self.make_room_for_leaves(1)?;
        }
        self.room()?;
        let mut scratch = self.begin_slots();
        for _ in 0..self.geometry.slots_per_write() {
            self.add_slot(&mut scratch, DUMMY, None);
        }
        self.append(scratch)?;
        self.flush_if_only_leaves_fit()
    }

    /// Writes as many blocks as fit one trip, and returns how many those were.
    fn write_data(&mut self, addrs: &[Addr], from: &[u8]) -> Result<usize> {
        let n = self.room()?.min(addrs.len() as u64) as usize;
        let mut scratch = self.begin_slots();
        for (addr, block) in addrs[..n].iter().zip(from.chunks_exact(self.geometry.block_len)) {
            self.add_slot(&mut scratch, addr.0, Some(block));
        }
        self.append(scratch)?;
        Ok(n)
    }

    /// As [`Sq::write_data`], with the map on the disk: each block is followed by the leaf that
    /// holds its time, whatever was written before.
    fn write_with_leaves(&mut self, addrs: &[Addr], from: &[u8]) -> Result<usize> {
        let room = (self.room()? / 2).min(addrs.len() as u64) as usize;
        let mut leaves: Vec<u64> = Vec::new();
        let mut n = 0;
        for addr in &addrs[..room] {
            let (leaf, _) = self.leaf_of(addr.0);
            if !leaves.contains(&leaf) {
                if leaves.len() == LEAVES_PER_CHUNK {
                    break;
                }
                self.fetch_leaf(leaf)?;
                leaves.push(leaf);
            }
            n += 1;
        }
        let time = self.time_now();
        let mut scratch = self.begin_slots();
        for (addr, block) in addrs[..n].iter().zip(from.chunks_exact(self.geometry.block_len)) {
            self.add_slot(&mut scratch, addr.0, Some(block));
            let (leaf, nth) = self.leaf_of(addr.0);
            scratch.addresses.push(self.geometry.blocks + leaf);
            scratch.contents.extend_from_slice(self.leaves.set(leaf, nth, time));
            self.leaves.written(leaf);
        }
        self.append(scratch)?;
        Ok(n)
    }

    /// Writes one block in the paper's cadence: leaves that the blocks of a bucket share are
    /// written once, at its end.
    fn write_sharing_leaves(&mut self, address: u64, block: &[u8]) -> Result {
        let (leaf, nth) = self.leaf_of(address);
        self.room()?;
        self.fetch_leaf(leaf)?;
        self.make_room_for_leaves(1 + u64::from(!self.leaves.is_dirty(leaf)))?;
        self.room()?;
        let mut scratch = self.begin_slots();
        self.add_slot(&mut scratch, address, Some(block));
        let time = self.time_now();
        self.leaves.set(leaf, nth, time);
        self.append(scratch)?;
        self.flush_if_only_leaves_fit()
    }

    /// Fills the bucket up and flushes it if `slots` more, and the leaves that it still has to
    /// carry, do not fit.
    fn make_room_for_leaves(&mut self, slots: u64) -> Result {
        if self.recent.filled() as u64 + self.leaves.dirty().count() as u64 + slots > self.bucket()
        {
            self.write_dirty_leaves()?;
            while self.recent.filled() > 0 {
                self.room()?;
                let mut scratch = self.begin_slots();
                self.add_slot(&mut scratch, DUMMY, None);
                self.append(scratch)?;
            }
        }
        Ok(())
    }

    /// In the paper's cadence: if the leaves that were changed fill the rest of the bucket, they
    /// are written.
    fn flush_if_only_leaves_fit(&mut self) -> Result {
        let dirty = self.leaves.dirty().count() as u64;
        if dirty > 0 && self.recent.filled() as u64 + dirty == self.bucket() {
            self.write_dirty_leaves()?;
        }
        Ok(())
    }

    fn write_dirty_leaves(&mut self) -> Result {
        loop {
            let room = self.room()? as usize;
            let mut scratch = self.begin_slots();
            for (leaf, contents) in self.leaves.dirty().take(room) {
                scratch.addresses.push(self.geometry.blocks + leaf);
                scratch.contents.extend_from_slice(contents);
            }
            let leaves: Vec<u64> = scratch.addresses.clone();
            self.append(scratch)?;
            for address in &leaves {
                self.leaves.written(address - self.geometry.blocks);
            }
            if leaves.len() < room || self.leaves.dirty().next().is_none() {
                return Ok(());
            }
        }
    }

    /// The time of what is written next, as it stands in the map.
    pub(super) fn time_now(&self) -> u32 {
        (self.count / self.bucket()) as u32 + 1
    }

    /// Slots that may be appended in one trip now, at least enough for one write; syncs first if
    /// there is no room for that.
    fn room(&mut self) -> Result<u64> {
        self.writable()?;
        let least = self.geometry.slots_per_write();
        let unsynced = self.count - self.synced.load(Ordering::Acquire);
        let mut room = self.geometry.unsynced_max - unsynced;
        if room < least {
            self.sync_shared()?;
            room = self.geometry.unsynced_max;
        }
        if self.count / self.bucket() >= FLUSHES_MAX {
            return Err(Error::Geometry(
                "its life is over: 2^32 buckets were written; make a new one",
            ));
        }
        let started = self.keys.openings().last().start;
        let per_slot = u64::from(self.geometry.levels) + self.geometry.refresh() as u64 + 2;
        let under_key = (self.count - started + self.bucket()) * per_slot;
        if under_key * self.geometry.block_len as u64 > self.key_bytes_max.min(KEY_BYTES_MAX) {
            self.sync_shared()?;
            self.begin_opening()?;
        }
        let in_bucket = self.bucket() - self.recent.filled() as u64;
        Ok(room.min(in_bucket).min(SLOTS_PER_TRIP))
    }

    fn begin_slots(&mut self) -> WriteScratch {
        let mut scratch = core::mem::take(&mut self.writer);
        scratch.output.clear();
        scratch.addresses.clear();
        scratch.contents.clear();
        scratch
    }

    /// Adds a slot to those to be appended; a dummy has no contents.
    fn add_slot(&self, scratch: &mut WriteScratch, address: u64, contents: Option<&[u8]>) {
        scratch.addresses.push(address);
        match contents {
            Some(contents) => scratch.contents.extend_from_slice(contents),
            None => {
                scratch.contents.resize(scratch.contents.len() + self.geometry.block_len, 0);
            }
        }
    }

    /// Appends the slots in `scratch` to the log; they end in one bucket. Flushes it if it is full.
    fn append(&mut self, mut scratch: WriteScratch) -> Result {
        let result = self.append_slots(&mut scratch);
        self.writer = scratch;
        // The counts of these slots have sealed something: they are not used again.
        result.and_then(|()| self.flush_full()).inspect_err(|_| {
            self.failed.store(true, Ordering::Release);
        })
    }

    fn append_slots(&mut self, s: &mut WriteScratch) -> Result {
        let n = s.addresses.len();
        if n == 0 {
            return Ok(());
        }
        let len = self.geometry.block_len;
        s.output.add_write(&self.log, self.log_slot(self.count), n as u64, &self.log_cursor);
        let (opening, keys) = self.keys.at_write(self.count);
        let synced = self.synced.load(Ordering::Acquire);
        for (i, (&address, plain)) in
            s.addresses.iter().zip(s.contents.chunks_exact(len)).enumerate()
        {
            let count = self.count + i as u64;
            keys.log.seal(opening, (count, synced), address, plain, s.output.slot_mut(i));
        }
        s.output.write(&*self.store)?;
        s.output.advance(&mut self.log_cursor, n - 1);
        let flush = self.count / self.bucket();
        for (&address, plain) in s.addresses.iter().zip(s.contents.chunks_exact(len)) {
            self.recent.push(address, Some(plain));
            self.note_time(address, flush);
        }
        self.count += n as u64;
        Ok(())
    }

    fn flush_full(&mut self) -> Result {
        while (self.flushes + 1) * self.bucket() <= self.count {
            self.flush()?;
        }
        Ok(())
    }
}
