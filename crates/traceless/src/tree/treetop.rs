//! The top of a tree in trusted memory.

use super::{BareTree, BucketTree, Fill, Header, Shape};
use alloc::vec::Vec;
use traceless_core::durable::Durable;
use traceless_core::error::{Error, Result};
use traceless_core::types::{Addr, Leaf};

/// A tree with its uppermost levels unsealed in trusted memory, and its other levels in `inner`
/// (Phantom; Ren et al., section 3.1.2). An adversary observes only accesses to `inner`.
pub struct Treetop<T> {
    shape: Shape,
    top: BareTree,
    inner: T,
    /// Slots of a path that are in the top.
    split: usize,
}

impl<T: BucketTree> Treetop<T> {
    /// The tree of `shape`, with its first `cached` levels in memory. In `inner` these levels have
    /// no slots.
    pub fn new(shape: Shape, cached: usize, inner: T) -> Result<Self> {
        if cached > shape.levels() || shape.only(|l| l >= cached) != *inner.shape() {
            return Err(Error::Geometry("cached and other levels are not those of one tree"));
        }
        let top = BareTree::new(shape.only(|l| l < cached), inner.body_len());
        Ok(Self { split: shape.path_start(cached), shape, top, inner })
    }

    /// The tree of the lower levels.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// The tree of the lower levels, mutable.
    pub fn inner_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Bytes of trusted memory that the cached levels take.
    pub fn memory(&self) -> usize {
        self.top.memory()
    }
}

impl<T: BucketTree> BucketTree for Treetop<T> {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn body_len(&self) -> usize {
        self.inner.body_len()
    }

    fn prefetch(&mut self, leaf: Leaf) {
        self.inner.prefetch(leaf);
    }

    fn expect(&mut self, leaf: Leaf) {
        self.inner.expect(leaf);
    }

    #[inline]
    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        let (top, below) = headers.split_at_mut(self.split);
        // The lower levels are fetched while the top is read.
        self.inner.prefetch(leaf);
        self.top.read_path(leaf, top)?;
        self.inner.read_path(leaf, below)
    }

    #[inline]
    fn body(&self, slot: usize) -> &[u8] {
        match slot.checked_sub(self.split) {
            None => self.top.body(slot),
            Some(below) => self.inner.body(below),
        }
    }

    #[inline]
    fn body_mut(&mut self, slot: usize) -> &mut [u8] {
        match slot.checked_sub(self.split) {
            None => self.top.body_mut(slot),
            Some(below) => self.inner.body_mut(below),
        }
    }

    #[inline]
    fn copy_body(&mut self, from: usize, to: usize) {
        match (from.checked_sub(self.split), to.checked_sub(self.split)) {
            (None, None) => self.top.copy_body(from, to),
            (Some(from), Some(to)) => self.inner.copy_body(from, to),
            (None, Some(to)) => self.inner.body_mut(to).copy_from_slice(self.top.body(from)),
            (Some(from), None) => self.top.body_mut(to).copy_from_slice(self.inner.body(from)),
        }
    }

    #[inline]
    fn admit(&mut self, slot: usize, header: Header) -> bool {
        slot.checked_sub(self.split).is_none_or(|below| self.inner.admit(below, header))
    }

    #[inline]
    fn vacate(&mut self, slot: usize) {
        if let Some(below) = slot.checked_sub(self.split) {
            self.inner.vacate(below);
        }
    }

    fn find(&mut self, addr: Addr) -> Option<&mut [u8]> {
        self.inner.find(addr)
    }

    fn extract(&mut self, addr: Addr, body: &mut [u8]) -> Option<Header> {
        self.inner.extract(addr, body)
    }

    #[inline]
    fn write_path(&mut self, headers: &[Header]) -> Result {
        let (top, below) = headers.split_at(self.split);
        self.inner.write_path(below)?;
        self.top.write_path(top)
    }

    fn sync(&mut self) -> Result {
        self.inner.sync()
    }
}

impl<T: Fill> Fill for Treetop<T> {
    fn fill_bucket(
        &mut self,
        level: usize,
        bucket: u64,
        headers: &[Header],
        bodies: &[u8],
    ) -> Result {
        if self.shape.path_start(level) < self.split {
            self.top.fill_bucket(level, bucket, headers, bodies)
        } else {
            self.inner.fill_bucket(level, bucket, headers, bodies)
        }
    }
}

impl<T: Durable> Durable for Treetop<T> {
    fn save(&self, out: &mut Vec<u8>) {
        self.inner.save(out);
        self.top.save(out);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        self.inner.load(from)?;
        self.top.load(from)
    }
}
