//! Writing: slots are appended to the log, and each full bucket causes a flush.
//!
//! Slots are held back in memory until a sync or until their bucket is full. So a bucket is one
//! request to the store, and its header is written once, even if its writes come one by one.

use super::flush::Delivery;
use super::geometry::SLOTS_PER_BATCH;
use super::{Cadence, FLUSHES_MAX, MapPlace, Sq};
use crate::log::{DUMMY, Stamp};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::oram::Oram;
use traceless_core::store::Run;
use traceless_core::types::Addr;

/// Leaves of the map that one chunk of writes may change, at most.
const LEAVES_PER_CHUNK: usize = 32;

/// Buffers of the writer.
#[derive(Default)]
pub(super) struct SqWriteScratch {
    output: Run,
    /// Address and contents of the slots that are held back, oldest first.
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
        self.make_room_for_leaves(1)?;
        self.room()?;
        for _ in 0..self.geometry.slots_per_write() {
            self.append(DUMMY, None);
        }
        self.end_append()?;
        self.flush_if_only_leaves_fit()
    }

    /// Writes a leaf of the map that is rebuilt from the levels. If each write has a slot for a
    /// block, that slot is a dummy.
    pub(super) fn write_leaf_anew(&mut self, leaf: u64) -> Result {
        self.make_room_for_leaves(1)?;
        self.room()?;
        let mut contents = vec![0; self.geometry.block_len];
        self.remake_leaf(leaf, &mut contents)?;
        self.leaves.insert(leaf, contents);
        for _ in 1..self.geometry.slots_per_write() {
            self.append(DUMMY, None);
        }
        self.append_leaf(leaf);
        self.end_append()?;
        self.flush_if_only_leaves_fit()
    }

    /// Writes as many blocks as fit one batch, and returns their number.
    fn write_data(&mut self, addrs: &[Addr], from: &[u8]) -> Result<usize> {
        let n = self.room()?.min(addrs.len() as u64) as usize;
        for (addr, block) in addrs[..n].iter().zip(from.chunks_exact(self.geometry.block_len)) {
            self.append(addr.0, Some(block));
        }
        self.end_append()?;
        Ok(n)
    }

    /// Like [`Sq::write_data`], with the map on the disk: each block is followed by the leaf with
    /// its time, regardless of earlier writes.
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
        let now = self.now();
        for (addr, block) in addrs[..n].iter().zip(from.chunks_exact(self.geometry.block_len)) {
            self.append(addr.0, Some(block));
            let (leaf, nth) = self.leaf_of(addr.0);
            self.leaves.set(leaf, nth, now);
            self.append_leaf(leaf);
        }
        self.end_append()?;
        Ok(n)
    }

    /// Writes one block in the paper's cadence: leaves shared by blocks of a bucket are written
    /// once, at the end of the bucket.
    fn write_sharing_leaves(&mut self, address: u64, block: &[u8]) -> Result {
        let (leaf, nth) = self.leaf_of(address);
        self.room()?;
        self.fetch_leaf(leaf)?;
        self.make_room_for_leaves(1 + u64::from(!self.leaves.is_dirty(leaf)))?;
        self.room()?;
        let now = self.now();
        self.append(address, Some(block));
        self.leaves.set(leaf, nth, now);
        self.end_append()?;
        self.flush_if_only_leaves_fit()
    }

    /// Pads and flushes the bucket if `slots` more, together with its dirty leaves, do not fit. In
    /// the strict cadence there are no dirty leaves.
    fn make_room_for_leaves(&mut self, slots: u64) -> Result {
        if self.recent.filled() as u64 + self.leaves.dirty().count() as u64 + slots > self.bucket()
        {
            self.write_dirty_leaves()?;
            while self.recent.filled() > 0 {
                self.room()?;
                self.append(DUMMY, None);
                self.end_append()?;
            }
        }
        Ok(())
    }

    /// In the paper's cadence: writes the dirty leaves if they exactly fill the rest of the bucket.
    fn flush_if_only_leaves_fit(&mut self) -> Result {
        let dirty = self.leaves.dirty().count() as u64;
        if self.recent.filled() as u64 + dirty == self.bucket() {
            self.write_dirty_leaves()?;
        }
        Ok(())
    }

    fn write_dirty_leaves(&mut self) -> Result {
        loop {
            let room = self.room()? as usize;
            let dirty: Vec<u64> = self.leaves.dirty().take(room).collect();
            for &leaf in &dirty {
                self.append_leaf(leaf);
            }
            self.end_append()?;
            if self.leaves.dirty().next().is_none() {
                return Ok(());
            }
        }
    }

    /// Number of slots that may be appended now, at least enough for one write; syncs first if
    /// there is no room for that.
    fn room(&mut self) -> Result<u64> {
        self.life.writable()?;
        let unsynced = self.count - self.life.synced();
        let mut room = self.geometry.unsynced_max - unsynced;
        if room < self.geometry.slots_per_write() {
            self.sync()?;
            room = self.geometry.unsynced_max;
        }
        if self.now() >= FLUSHES_MAX {
            return Err(Error::Geometry(
                "its life is over: 2^32 buckets were written; make a new one",
            ));
        }
        // Only at the beginning of a bucket: within one, the number of calls depends on the leaves
        // that the writes share.
        if self.recent.filled() == 0 && self.keys_are_worn() {
            self.sync()?;
            self.begin_opening()?;
        }
        Ok(room.min(self.bucket() - self.recent.filled() as u64))
    }

    /// Whether the current keys may not seal another bucket.
    fn keys_are_worn(&self) -> bool {
        let started = self.keys.openings().last().start;
        let per_slot = u64::from(self.geometry.levels) + self.geometry.refresh() as u64 + 2;
        let under_key = (self.count - started + self.bucket()) * per_slot;
        under_key * self.geometry.block_len as u64 > self.key_bytes_max
    }

    /// Appends a slot; a dummy has no contents. There must be room, and [`Sq::end_append`] must
    /// follow.
    fn append(&mut self, address: u64, contents: Option<&[u8]>) {
        let held = &mut self.writer;
        held.addresses.push(address);
        let begin = held.contents.len();
        match contents {
            Some(contents) => held.contents.extend_from_slice(contents),
            None => held.contents.resize(begin + self.geometry.block_len, 0),
        }
        self.recent.push(address, Some(&held.contents[begin..]));
        self.note_time(address, self.now());
        self.count += 1;
    }

    /// Appends a leaf of the map in its newest state.
    fn append_leaf(&mut self, leaf: u64) {
        let contents = self.leaves.written(leaf);
        self.append(self.geometry.blocks + leaf, Some(&contents));
    }

    /// Flushes the bucket if it is full.
    fn end_append(&mut self) -> Result {
        if (self.flushes + 1) * self.bucket() > self.count {
            return Ok(());
        }
        self.write_pending()?;
        // The counts of this flush have sealed something and must not be used again.
        self.flush().inspect_err(|_| self.life.poison())
    }

    /// Number of slots written to the store.
    pub(super) fn written(&self) -> u64 {
        self.count - self.writer.addresses.len() as u64
    }

    /// The contents of a write that is held back.
    pub(super) fn held(&self, write: u64) -> Option<&[u8]> {
        let nth = usize::try_from(write.checked_sub(self.written())?).ok()?;
        self.writer.contents.chunks_exact(self.geometry.block_len).nth(nth)
    }

    /// Writes the held-back slots to the store.
    pub(super) fn write_pending(&mut self) -> Result {
        let mut held = core::mem::take(&mut self.writer);
        let result = self.write_slots(&mut held);
        self.writer = held;
        // The counts of these slots have sealed something and must not be used again.
        result.inspect_err(|_| self.life.poison())?;
        self.writer.addresses.clear();
        self.writer.contents.clear();
        Ok(())
    }

    fn write_slots(&mut self, held: &mut SqWriteScratch) -> Result {
        let len = self.geometry.block_len;
        let mut count = self.count - held.addresses.len() as u64;
        let synced = self.life.synced();
        let batches = held.addresses.chunks(SLOTS_PER_BATCH as usize);
        for (addresses, contents) in
            batches.zip(held.contents.chunks(SLOTS_PER_BATCH as usize * len))
        {
            let n = addresses.len();
            held.output.clear();
            held.output.add_write(&self.log, self.log_slot(count), n as u64, &self.log_cursor);
            let salt = self.life.rng.salt();
            let (opening, keys) = self.keys.at_write(count);
            for (i, (&address, plain)) in
                addresses.iter().zip(contents.chunks_exact(len)).enumerate()
            {
                let count = count + i as u64;
                let stamp = Stamp { count, unsynced: count - synced, salt };
                keys.log.seal(opening, stamp, address, plain, held.output.slot_mut(i));
            }
            held.output.write(&*self.store)?;
            held.output.advance(&mut self.log_cursor, n - 1);
            count += n as u64;
        }
        Ok(())
    }
}
