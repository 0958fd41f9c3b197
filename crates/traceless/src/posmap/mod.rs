//! Position maps: which path each block is on.

mod flat;

pub use flat::Flat;

use crate::types::{Addr, Leaf};

/// Who knows which path a block is on.
pub trait PosMap: Send {
    /// Puts `addr` onto the path of `new`. Tells the path that it was on, if it ever was on one.
    fn remap(&mut self, addr: Addr, new: Leaf) -> Option<Leaf>;
}
