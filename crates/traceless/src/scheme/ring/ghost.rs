//! A Ring ORAM tree without bodies, for simulations: it records which lines of memory are read and
//! written.

use super::bucket::Bucket;
use super::params::Params;
use super::tree::{RingTree, SlotAt};
use super::{buckets_above, cached_levels};
use crate::tree::{BareTree, BucketTree, Header, Shape};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::clock::Clock;
use traceless_core::error::Result;
use traceless_core::trace::{Event, Op, Surface, Witness};
use traceless_core::types::Leaf;

/// Bytes of a line of memory. Each slot is one.
pub const LINE_LEN: usize = 64;

/// Metadata in memory, and slots that hold nothing: only accesses to them are recorded. A bucket is
/// contiguous, with its metadata first; buckets lie level by level.
pub struct GhostRing<W, C = ()> {
    params: Params,
    metadata: BareTree,
    leaf: Leaf,
    renewed: Vec<usize>,
    unnamed: Vec<Header>,
    witness: W,
    clock: C,
}

impl<W: Witness> GhostRing<W> {
    /// An empty tree; events carry no time.
    pub fn new(params: Params, shape: Shape, witness: W) -> Result<Self> {
        Self::with_clock(params, shape, witness, ())
    }
}

impl<W: Witness, C: Clock> GhostRing<W, C> {
    /// An empty tree; events carry the time of `clock`.
    pub fn with_clock(params: Params, shape: Shape, witness: W, clock: C) -> Result<Self> {
        params.check_shape(&shape, cached_levels(&shape))?;
        let unnamed = vec![Header::EMPTY; shape.path_slots()];
        let metadata = BareTree::new(shape, Bucket::len(params.z));
        let renewed = vec![];
        Ok(Self { params, metadata, leaf: Leaf(0), renewed, unnamed, witness, clock })
    }

    /// Lines that the metadata of a bucket takes.
    pub fn metadata_lines(params: Params) -> usize {
        Bucket::len(params.z).div_ceil(LINE_LEN)
    }

    /// Reports accesses to some lines of a bucket of the open path.
    fn record(&mut self, op: Op, level: usize, lines: core::ops::Range<usize>) {
        let shape = self.metadata.shape();
        let bucket = buckets_above(shape, level) + shape.bucket(self.leaf, level);
        let all = (Self::metadata_lines(self.params) + self.params.slots()) as u64;
        for line in lines {
            let at = (bucket * all + line as u64) * LINE_LEN as u64;
            let (time, len) = (self.clock.now(), LINE_LEN as u32);
            self.witness.record(Event { time, surface: Surface::Dram, op, at, len });
        }
    }
}

impl<W: Witness, C: Clock + Send> RingTree for GhostRing<W, C> {
    fn params(&self) -> Params {
        self.params
    }

    fn shape(&self) -> &Shape {
        self.metadata.shape()
    }

    fn body_len(&self) -> usize {
        0
    }

    fn open_path(&mut self, leaf: Leaf) -> Result {
        self.leaf = leaf;
        self.renewed.clear();
        for level in cached_levels(self.shape())..self.shape().levels() {
            self.record(Op::Read, level, 0..Self::metadata_lines(self.params));
        }
        self.metadata.read_path(leaf, &mut self.unnamed)
    }

    fn metadata(&self, level: usize) -> &[u8] {
        self.metadata.body(self.shape().path_start(level))
    }

    fn metadata_mut(&mut self, level: usize) -> &mut [u8] {
        let slot = self.shape().path_start(level);
        self.metadata.body_mut(slot)
    }

    fn read_slots(&mut self, slots: &[SlotAt]) -> Result {
        for at in slots {
            let line = Self::metadata_lines(self.params) + usize::from(at.slot);
            self.record(Op::Read, at.level, line..line + 1);
        }
        Ok(())
    }

    fn body(&self, _: usize) -> &[u8] {
        &[]
    }

    fn renew(&mut self, level: usize) {
        self.renewed.push(level);
    }

    fn new_body(&mut self, _: usize, _: u8) -> &mut [u8] {
        &mut []
    }

    fn carry(&mut self, _: usize, _: usize, _: u8) {}

    fn write_path(&mut self) -> Result {
        let lines = Self::metadata_lines(self.params);
        for level in cached_levels(self.shape())..self.shape().levels() {
            let is_renewed = self.renewed.contains(&level);
            let end = if is_renewed { lines + self.params.slots() } else { lines };
            self.record(Op::Write, level, 0..end);
        }
        Ok(())
    }

    fn sync(&mut self) -> Result {
        Ok(())
    }
}
