//! Position maps: which path each block is on.
//!
//! Files: `flat`: labels in memory; `labels`: labels as bytes of a map's block; `compressed`:
//! counters in place of labels; `plb`: blocks of the map that are at hand.

mod compressed;
mod flat;
mod labels;
mod plb;

pub use compressed::{COUNTER_BITS, COUNTER_BITS_MAX, Compressed, GROUP_REMAPS_MAX};
pub use flat::Flat;
pub use labels::{Draw, LABEL_LEN, Labels, Plain, swap_label};
pub use plb::{Lookaside, Plb};
