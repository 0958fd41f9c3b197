//! Position maps: which path each block is on.

mod compressed;
mod flat;
mod labels;
mod plb;

pub use compressed::{COUNTER_BITS, COUNTER_BITS_MAX, Compressed, GROUP_REMAPS_MAX};
pub use flat::Flat;
pub use labels::{Draw, LABEL_LEN, Labels, Plain, swap_label};
pub use plb::{Lookaside, Plb};

use crate::types::{Addr, Leaf};

/// Who knows which path a block is on.
pub trait PosMap: Send {
    /// Puts `addr` onto the path of `new`. Tells the path that it was on, if it ever was on one.
    fn remap(&mut self, addr: Addr, new: Leaf) -> Option<Leaf>;
}
