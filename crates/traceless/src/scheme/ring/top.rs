//! The uppermost levels of a Ring ORAM tree, cached in trusted memory.

use super::bucket::Bucket;
use super::params::Params;
use super::tree::{RingTree, SlotAt};
use crate::tree::Shape;
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::types::Leaf;

/// A tree with its uppermost levels unsealed in trusted memory, and the other levels in `inner`. An
/// observer sees only the levels in `inner`: an access reads fewer slots, and the buckets near the
/// root, which every path crosses, cause no traffic.
pub struct RingTop<T> {
    shape: Shape,
    /// The levels that are cached.
    cached: usize,
    /// The cached buckets, level by level: metadata, then a body for each slot.
    buckets: Vec<u8>,
    inner: T,
    leaf: Leaf,
    /// Bodies of the cached slots that were read last.
    read: Vec<u8>,
    /// The slots of the last read that are not cached.
    below: Vec<SlotAt>,
}

impl<T: RingTree> RingTop<T> {
    /// The tree of `shape`. Its first `cached` levels are cached and have no slots in `inner`.
    pub fn new(shape: Shape, cached: usize, inner: T) -> Result<Self> {
        if cached >= shape.levels() || shape.only(|l| l >= cached) != *inner.shape() {
            return Err(Error::Geometry("cached and other levels are not those of one tree"));
        }
        let buckets: u64 = (0..cached).map(|level| shape.buckets(level)).sum();
        let len = Self::bucket_len(inner.params(), inner.body_len());
        Ok(Self {
            buckets: vec![0; buckets as usize * len],
            shape,
            cached,
            leaf: Leaf(0),
            read: Vec::with_capacity(cached * usize::from(inner.params().z) * inner.body_len()),
            below: vec![],
            inner,
        })
    }

    /// Bytes of trusted memory that the cached levels take.
    pub fn memory(&self) -> usize {
        self.buckets.len()
    }

    fn bucket_len(params: Params, body_len: usize) -> usize {
        Bucket::len(params.z) + params.slots() * body_len
    }

    /// First byte of a cached bucket of the open path.
    fn bucket_at(&self, level: usize) -> usize {
        let above: u64 = (0..level).map(|level| self.shape.buckets(level)).sum();
        let bucket = above + self.shape.bucket(self.leaf, level);
        bucket as usize * Self::bucket_len(self.params(), self.body_len())
    }

    /// First byte of the body in a slot of a cached bucket.
    fn body_at(&self, at: SlotAt) -> usize {
        let bodies = self.bucket_at(at.level) + Bucket::len(self.params().z);
        bodies + usize::from(at.slot) * self.body_len()
    }

    /// Number of cached slots in the last read; they come first.
    fn split(&self) -> usize {
        self.read.len().checked_div(self.body_len()).unwrap_or(0)
    }
}

impl<T: RingTree> RingTree for RingTop<T> {
    fn params(&self) -> Params {
        self.inner.params()
    }

    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn body_len(&self) -> usize {
        self.inner.body_len()
    }

    fn open_path(&mut self, leaf: Leaf) -> Result {
        self.leaf = leaf;
        self.inner.open_path(leaf)
    }

    fn metadata(&self, level: usize) -> &[u8] {
        if level >= self.cached {
            return self.inner.metadata(level);
        }
        &self.buckets[self.bucket_at(level)..][..Bucket::len(self.params().z)]
    }

    fn metadata_mut(&mut self, level: usize) -> &mut [u8] {
        if level >= self.cached {
            return self.inner.metadata_mut(level);
        }
        let (at, len) = (self.bucket_at(level), Bucket::len(self.params().z));
        &mut self.buckets[at..at + len]
    }

    fn read_slots(&mut self, slots: &[SlotAt]) -> Result {
        let split = slots.partition_point(|at| at.level < self.cached);
        self.read.clear();
        for &at in &slots[..split] {
            let body = self.body_at(at);
            self.read.extend_from_slice(&self.buckets[body..body + self.inner.body_len()]);
        }
        self.below.clear();
        self.below.extend_from_slice(&slots[split..]);
        self.inner.read_slots(&self.below)
    }

    fn body(&self, nth: usize) -> &[u8] {
        match nth.checked_sub(self.split()) {
            None => &self.read[nth * self.body_len()..][..self.body_len()],
            Some(below) => self.inner.body(below),
        }
    }

    fn renew(&mut self, level: usize) {
        // Bodies in slots without a block need not be cleared in trusted memory.
        if level >= self.cached {
            self.inner.renew(level);
        }
    }

    fn new_body(&mut self, level: usize, slot: u8) -> &mut [u8] {
        if level >= self.cached {
            return self.inner.new_body(level, slot);
        }
        let (at, len) = (self.body_at(SlotAt { level, slot }), self.body_len());
        &mut self.buckets[at..at + len]
    }

    fn carry(&mut self, nth: usize, level: usize, slot: u8) {
        let (split, len) = (self.split(), self.body_len());
        match nth.checked_sub(split) {
            Some(below) if level >= self.cached => self.inner.carry(below, level, slot),
            None if level >= self.cached => {
                let body = &self.read[nth * len..][..len];
                self.inner.new_body(level, slot).copy_from_slice(body);
            }
            None => {
                let to = self.body_at(SlotAt { level, slot });
                self.buckets[to..to + len].copy_from_slice(&self.read[nth * len..][..len]);
            }
            Some(below) => {
                let to = self.body_at(SlotAt { level, slot });
                self.buckets[to..to + len].copy_from_slice(self.inner.body(below));
            }
        }
    }

    fn write_path(&mut self) -> Result {
        self.inner.write_path()
    }

    fn sync(&mut self) -> Result {
        self.inner.sync()
    }
}
