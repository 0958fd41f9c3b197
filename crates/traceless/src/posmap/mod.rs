//! Position maps: the path that each block is on.
//!
//! Files: `flat`: labels in memory; `labels`: labels as bytes of a map's block; `compressed`:
//! counters in place of labels; `plb`: a cache of map blocks.
//!
//! Each access gives a new label to its block, and reads the path of the old one:
//!
//! ```
//! use traceless::Addr;
//! use traceless::posmap::{Flat, LeafDraw};
//! use traceless::rng::System;
//!
//! let mut map = Flat::new(1000);
//! let mut draw = LeafDraw::new(Box::new(System), 512);
//! assert_eq!(map.label(Addr(7)), None, "it was never accessed");
//!
//! let first = draw.leaf();
//! map.remap(Addr(7), first);
//! let second = draw.leaf();
//! assert_eq!(map.remap(Addr(7), second), Some(first));
//! assert_eq!(map.label(Addr(7)), Some(second));
//! ```

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
