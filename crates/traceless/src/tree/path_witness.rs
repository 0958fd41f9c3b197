//! A tree that reports which paths are accessed.

use super::{BucketTree, Fill, Header, Shape};
use traceless_core::error::Result;
use traceless_core::trace::Op;
use traceless_core::types::{Addr, Leaf};

/// Receives each path access before it is made.
pub trait PathWitness: Send {
    /// The path of `leaf` is about to be read or written.
    fn see_path(&mut self, op: Op, leaf: Leaf);
}

impl<F: FnMut(Op, Leaf) + Send> PathWitness for F {
    fn see_path(&mut self, op: Op, leaf: Leaf) {
        self(op, leaf);
    }
}

impl PathWitness for alloc::boxed::Box<dyn PathWitness> {
    fn see_path(&mut self, op: Op, leaf: Leaf) {
        (**self).see_path(op, leaf);
    }
}

/// A tree that reports its paths to a witness: all that an adversary observes where every path
/// access has the same events.
pub struct ObservedTree<T, W> {
    inner: T,
    witness: W,
    /// The open path.
    leaf: Leaf,
}

impl<T, W: PathWitness> ObservedTree<T, W> {
    /// Reports the accesses to `inner` to `witness`.
    pub fn new(inner: T, witness: W) -> Self {
        Self { inner, witness, leaf: Leaf(0) }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<T: BucketTree, W: PathWitness> BucketTree for ObservedTree<T, W> {
    fn shape(&self) -> &Shape {
        self.inner.shape()
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
    fn read_path(&mut self, leaf: Leaf, headers: &mut [Header]) -> Result {
        self.leaf = leaf;
        self.witness.see_path(Op::Read, leaf);
        self.inner.read_path(leaf, headers)
    }
    fn body(&self, slot: usize) -> &[u8] {
        self.inner.body(slot)
    }
    fn body_mut(&mut self, slot: usize) -> &mut [u8] {
        self.inner.body_mut(slot)
    }
    fn copy_body(&mut self, from: usize, to: usize) {
        self.inner.copy_body(from, to);
    }
    fn admit(&mut self, slot: usize, header: Header) -> bool {
        self.inner.admit(slot, header)
    }
    fn vacate(&mut self, slot: usize) {
        self.inner.vacate(slot);
    }
    fn find(&mut self, addr: Addr) -> Option<&mut [u8]> {
        self.inner.find(addr)
    }
    fn extract(&mut self, addr: Addr, body: &mut [u8]) -> Option<Header> {
        self.inner.extract(addr, body)
    }
    fn write_path(&mut self, headers: &[Header]) -> Result {
        self.witness.see_path(Op::Write, self.leaf);
        self.inner.write_path(headers)
    }
    fn sync(&mut self) -> Result {
        self.inner.sync()
    }
}

/// Reports no event: a tree is filled before its first access.
impl<T: Fill, W: PathWitness> Fill for ObservedTree<T, W> {
    fn fill_bucket(
        &mut self,
        level: usize,
        bucket: u64,
        headers: &[Header],
        bodies: &[u8],
    ) -> Result {
        self.inner.fill_bucket(level, bucket, headers, bodies)
    }
}
