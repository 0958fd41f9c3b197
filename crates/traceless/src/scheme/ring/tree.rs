//! The trusted side's view of a tree with slots that are read one by one.

use super::params::Params;
use crate::tree::Shape;
use traceless_core::error::Result;
use traceless_core::types::Leaf;

/// A slot of the open path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotAt {
    /// The level of its bucket.
    pub level: usize,
    /// The slot within this bucket.
    pub slot: u8,
}

/// Buckets of slots that are read one by one, each with metadata that is read and written with
/// every path. Object-safe.
///
/// At any time one path is *open*. It is read in two round trips, first the metadata of its
/// buckets, then some of their slots, and written in one: its metadata, and the renewed buckets.
pub trait RingTree: Send {
    /// Sizes of its buckets.
    fn params(&self) -> Params;

    /// The levels. A slot of this shape stands for a bucket; in a tree below a
    /// [`RingTop`](super::RingTop) the uppermost levels have no slots.
    fn shape(&self) -> &Shape;

    /// Bytes of a block's body; 0 in a simulation.
    fn body_len(&self) -> usize;

    /// Opens a path: one round trip.
    fn open_path(&mut self, leaf: Leaf) -> Result;

    /// The metadata of a bucket of the open path; zeros if it was never written.
    fn metadata(&self, level: usize) -> &[u8];

    /// The metadata of a bucket of the open path, for changes.
    fn metadata_mut(&mut self, level: usize) -> &mut [u8];

    /// Reads slots of the open path, from the root down: one round trip. Every slot must verify,
    /// dummies too, so that damaging a slot does not reveal its kind. Slots of a bucket that was
    /// never renewed hold nothing.
    fn read_slots(&mut self, slots: &[SlotAt]) -> Result;

    /// The body in slot number `nth` of the last read.
    fn body(&self, nth: usize) -> &[u8];

    /// Starts a bucket afresh, with dummies in all slots. The bucket that was started before is now
    /// complete.
    fn renew(&mut self, level: usize);

    /// The body in a slot of the bucket that was started last.
    fn new_body(&mut self, level: usize, slot: u8) -> &mut [u8];

    /// Copies the body in slot number `nth` of the last read into a slot of the bucket that was
    /// started last.
    fn carry(&mut self, nth: usize, level: usize, slot: u8);

    /// Writes the open path, and the renewed buckets: one round trip.
    fn write_path(&mut self) -> Result;

    /// Makes every path that was written durable.
    fn sync(&mut self) -> Result;
}
