//! The trusted side's view of a tree whose slots are read one by one.

use super::params::Params;
use crate::error::Result;
use crate::tree::Shape;
use crate::types::Leaf;

/// A slot of the open path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotAt {
    /// The level of its bucket.
    pub level: usize,
    /// Which one of it.
    pub slot: u8,
}

/// Buckets of slots that are read one by one, each with metadata that is read and written with
/// every path. Object-safe.
///
/// At any time one path is *open*. It is read in two round trips, first what is known of its
/// buckets, then some of their slots, and written in one: its metadata, and the buckets that are
/// renewed.
pub trait RingTree: Send {
    /// Sizes of its buckets.
    fn params(&self) -> Params;

    /// Its levels. A slot of this shape stands for a bucket; the uppermost levels of a tree below a
    /// [`RingTop`](super::RingTop) are without.
    fn shape(&self) -> &Shape;

    /// Bytes of a block's body; 0 in a simulation.
    fn body_len(&self) -> usize;

    /// Opens a path: one round trip.
    fn open_path(&mut self, leaf: Leaf) -> Result;

    /// The metadata of a bucket of the open path; zeros if it was never written.
    fn metadata(&self, level: usize) -> &[u8];

    /// The same, to be changed.
    fn metadata_mut(&mut self, level: usize) -> &mut [u8];

    /// Reads slots of the open path, from the root down: one round trip. Nothing is read that does
    /// not verify, also of dummies, so that nobody learns by damaging a slot which kind it is.
    /// Slots of a bucket that was never renewed hold nothing.
    fn read_slots(&mut self, slots: &[SlotAt]) -> Result;

    /// The body in slot number `nth` of those read last.
    fn body(&self, nth: usize) -> &[u8];

    /// Begins a bucket anew, with dummies in all slots. The one begun before is as it will be
    /// written.
    fn renew(&mut self, level: usize);

    /// The body in a slot of the bucket that was begun last.
    fn new_body(&mut self, level: usize, slot: u8) -> &mut [u8];

    /// Puts the body in slot number `nth` of those read last into such a slot.
    fn carry(&mut self, nth: usize, level: usize, slot: u8);

    /// Writes the open path, and the buckets begun anew: one round trip.
    fn write_path(&mut self) -> Result;

    /// Makes every path that was written durable.
    fn sync(&mut self) -> Result;
}
