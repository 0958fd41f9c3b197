//! A hidden volume of an open store. Its requests cause no write of their own.

use super::entry::RECORD;
use super::geometry::{DeniableGeometry, HIDDEN_MAX};
use super::lane::{Lane, LaneBlock, LaneVolume};
use crate::batches::verify_all;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use std::sync::{Condvar, Mutex, MutexGuard};
use traceless_core::error::{Error, Place, Result};
use traceless_core::oram::check_request;
use traceless_core::seal::Secret;
use traceless_core::store::Store;
use traceless_core::types::Addr;

/// The lane, as the public volume and the hidden ones share it.
pub(super) struct SharedLane {
    lane: Mutex<Lane>,
    /// Signalled when blocks got their slots or became durable, and at the end.
    moved: Condvar,
    pub store: Arc<dyn Store>,
}

impl SharedLane {
    pub fn new(lane: Lane, store: Arc<dyn Store>) -> Self {
        Self { lane: Mutex::new(lane), moved: Condvar::new(), store }
    }

    pub fn lock(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock().expect("nothing panics under this lock")
    }

    /// Ends all writing, and wakes all that wait.
    pub fn end(&self) {
        self.lock().end();
        self.moved.notify_all();
    }

    pub fn notify(&self) {
        self.moved.notify_all();
    }

    fn wait<'a>(&self, lane: MutexGuard<'a, Lane>) -> MutexGuard<'a, Lane> {
        self.moved.wait(lane).expect("nothing panics under this lock")
    }
}

/// The hidden volumes that are open beside a public one. They are numbered in the order in which
/// they were opened or added.
#[derive(Clone)]
pub struct HiddenLane {
    pub(super) lane: Arc<SharedLane>,
    pub(super) geometry: DeniableGeometry,
    pub(super) read_only: bool,
}

impl HiddenLane {
    /// The open hidden volume of this number.
    pub fn volume(&self, number: usize) -> Option<HiddenVolume> {
        let blocks = self.lane.lock().volume(number)?.blocks;
        let (block_len, read_only) = (self.geometry.public.block_len, self.read_only);
        Some(HiddenVolume { lane: self.lane.clone(), number, blocks, block_len, read_only })
    }

    /// Blocks that a further hidden volume can have.
    pub fn room(&self) -> u64 {
        let taken = self.lane.lock().hidden_blocks() + 1;
        self.geometry.hidden_blocks().saturating_sub(taken)
    }

    /// Adds a hidden volume beside the open ones. `record`, of one block, is what
    /// [`find_records`](super::Deniable::find_records) returns for its key from then on. Like all
    /// that is hidden it waits for the next public writes.
    pub fn add(&self, secret: &Secret, blocks: u64, record: &[u8]) -> Result<HiddenVolume> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        if blocks == 0 || blocks > self.room() {
            return Err(Error::Geometry("hidden volumes have half of the lane together"));
        }
        let number = {
            let mut lane = self.lane.lock();
            if lane.volumes() == HIDDEN_MAX {
                return Err(Error::Geometry("there are 15 hidden volumes already"));
            }
            lane.add(LaneVolume::new(secret, blocks, self.geometry.lane_slots)?)
        };
        self.write_record(number, record)?;
        Ok(self.volume(number).expect("it was just added"))
    }

    /// Replaces the record of an open hidden volume.
    pub fn write_record(&self, number: usize, record: &[u8]) -> Result {
        let want = self.geometry.public.block_len;
        if record.len() != want {
            return Err(Error::WrongLength { want, got: record.len() });
        }
        let hidden = self.volume(number).ok_or(Error::Geometry("no such hidden volume"))?;
        hidden.enqueue(LaneBlock { volume: number, address: RECORD }, record)
    }

    /// The record of an open hidden volume, zeros if it has none any more.
    pub fn record(&self, number: usize) -> Result<Vec<u8>> {
        let mut record = vec![0; self.geometry.public.block_len];
        let block = LaneBlock { volume: number, address: RECORD };
        let blocks = core::iter::once(block);
        self.lane.lock().read(&*self.lane.store, blocks, &mut record)?;
        Ok(record)
    }

    /// Closes a hidden volume and gives up its blocks: they are overwritten in turn.
    pub fn forget(&self, number: usize) {
        self.lane.lock().forget(number);
        self.lane.notify();
    }

    /// Ends hidden requests that wait for public writes, with an error, as no more will come.
    pub fn stop_waiting(&self) {
        self.lane.lock().leave();
        self.lane.notify();
    }

    /// Whether hidden blocks wait for their slots.
    pub fn has_waiting(&self) -> bool {
        self.lane.lock().waits() > 0
    }

    /// Opens every live block and record, and passes each damaged place to `damaged`.
    pub(super) fn verify(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        damaged: &mut dyn FnMut(Place),
    ) -> Result {
        for volume in (0..HIDDEN_MAX).filter_map(|number| self.volume(number)) {
            let read = |addrs: &[Addr], into: &mut [u8]| volume.read(addrs, into);
            let done = |done| progress(done, volume.blocks);
            verify_all(volume.blocks, volume.block_len, read, damaged, done)?;
            match self.record(volume.number) {
                Err(Error::Tampered { place }) => damaged(Place { block: None, ..place }),
                record => drop(record?),
            }
        }
        Ok(())
    }
}

/// An open hidden volume. Its writes wait in memory for slots of the lane, which only the public
/// volume fills: see [`Deniable`](super::Deniable).
#[derive(Clone)]
pub struct HiddenVolume {
    pub(super) lane: Arc<SharedLane>,
    pub(super) number: usize,
    pub(super) blocks: u64,
    pub(super) block_len: usize,
    pub(super) read_only: bool,
}

impl HiddenVolume {
    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes in a block.
    pub fn block_len(&self) -> usize {
        self.block_len
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Reads the blocks `addrs` into `into`, which holds exactly `addrs.len()` blocks.
    pub fn read(&self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, into.len())?;
        let blocks = addrs.iter().map(|addr| self.block(*addr));
        self.lane.lock().read(&*self.lane.store, blocks, into)
    }

    /// Writes `from`, which holds exactly `addrs.len()` blocks, in order. Waits while too many
    /// blocks have no slot yet.
    pub fn write(&self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, from.len())?;
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        for (addr, plain) in addrs.iter().zip(from.chunks_exact(self.block_len)) {
            self.enqueue(self.block(*addr), plain)?;
        }
        Ok(())
    }

    /// Whether every write that has returned is durable.
    pub fn is_flushed(&self) -> bool {
        let lane = self.lane.lock();
        lane.is_durable(lane.tickets())
    }

    /// Waits until every write that has returned is durable: until the public volume's writes have
    /// filled enough slots, and were synced.
    pub fn flush(&self) -> Result {
        if self.read_only {
            return Ok(());
        }
        let mut lane = self.lane.lock();
        let tickets = lane.tickets();
        while !lane.is_durable(tickets) {
            if !lane.is_attended() {
                return Err(Error::Poisoned);
            }
            lane = self.lane.wait(lane);
        }
        Ok(())
    }

    pub(super) fn enqueue(&self, block: LaneBlock, plain: &[u8]) -> Result {
        let mut lane = self.lane.lock();
        loop {
            if !lane.is_attended() || lane.volume(block.volume).is_none() {
                return Err(Error::Poisoned);
            }
            if lane.has_room(block) {
                lane.enqueue(block, plain);
                return Ok(());
            }
            lane = self.lane.wait(lane);
        }
    }

    fn block(&self, addr: Addr) -> LaneBlock {
        LaneBlock { volume: self.number, address: addr.0 }
    }
}
