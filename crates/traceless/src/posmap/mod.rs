//! Position maps: the path that each block is on.
//!
//! Files: `flat`: labels in memory; `labels`: labels as bytes of a map's block; `compressed`:
//! counters in place of labels; `plb`: a cache of map blocks.

mod compressed;
mod flat;
mod labels;
mod plb;

pub use compressed::{COUNTER_BITS, COUNTER_BITS_MAX, CompressedLabels, GROUP_REMAPS_MAX};
pub use flat::Flat;
pub use labels::{LABEL_LEN, Labels, LeafDraw, PlainLabels, swap_label};
pub use plb::Plb;
#[cfg(test)]
pub(crate) use plb::PlbFault;
