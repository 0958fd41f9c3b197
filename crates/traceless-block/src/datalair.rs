//! DataLair-style: a write-only ORAM that writes random slots and keeps a record of free ones.
//!
//! *DataLair-style*, not `DataLair`: the body of the paper was not at hand. This scheme takes from
//! the paper the explicit record of free blocks, which decides in O(1) whether a drawn slot is
//! free. It does not choose slots by that record. **The k slots of a write are drawn before the
//! record is read**, uniformly among all sets of k slots, by randomness that depends on nothing
//! else; the record decides only the contents of these slots, which the encryption hides. So the
//! slots written are uniform and independent of the free slots, of addresses and of history. A
//! scheme that draws one of the k among the free slots instead writes free slots more often than
//! live ones and so reveals them: the auditor has that scheme as a mutant.
//!
//! Since all k slots may be taken (1 time in 8 when the volume is full), the short stash remains.
//! The record saves reads: a free slot is not read before it is written, and the blocks in the
//! drawn slots need no lookup in a map on the store.
//!
//! The record is one bit per slot and lies in memory only, so no trace of it is ever written; an
//! opening rebuilds it from the map.
//!
//! Work: A. Chakraborti, C. Chen, R. Sion: `DataLair`: Efficient Block Storage with Plausible
//! Deniability against Multi-Snapshot Adversaries, `PoPETs` 2017; arXiv 1706.10276v2 corrects it.
//! The machinery, crash safety and freshness come from [`random`](super::random).
//!
//! ```
//! use traceless_block::datalair::DataLairScheme;
//! use traceless_block::random::RandomGeometry;
//! use traceless_core::Addr;
//! use traceless_core::rng::System;
//! use traceless_core::scheme::contract::Scheme;
//!
//! # fn main() -> traceless_core::Result {
//! let scheme = DataLairScheme::new(RandomGeometry::new(1000, 4096, 0)?);
//! assert!(scheme.draws_places(), "two runs write other slots");
//! let mut oram = scheme.create_in_memory(Box::new(System))?;
//! oram.write(Addr(7), &[1; 4096])?;
//! let mut block = [0; 4096];
//! oram.read(Addr(7), &mut block)?;
//! assert_eq!(block, [1; 4096]);
//! # Ok(())
//! # }
//! ```

use super::random::{RandomScheme, RandomSlots, Vacancy};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::scheme::contract::SchemeKind;

/// The scheme. See the [module](self).
pub type DataLair = RandomSlots<FreeRecord>;

/// The scheme with its parameters.
pub type DataLairScheme = RandomScheme<FreeRecord>;

/// Random slots, with a record of the free ones.
pub static DATALAIR: SchemeKind = SchemeKind {
    name: "datalair",
    about: "DataLair-style: random slots, with a record of free ones. For comparison",
    code: 5,
    options: &[],
    choose: DataLairScheme::choose,
    decode: DataLairScheme::decode,
    samples: DataLairScheme::samples,
};

/// A bit for each slot: whether it is taken.
pub struct FreeRecord {
    taken: Vec<u64>,
}

impl Vacancy for FreeRecord {
    const KIND: &'static SchemeKind = &DATALAIR;
    const KEEPS_RECORD: bool = true;

    fn new(slots: u64) -> Self {
        Self { taken: vec![0; slots.div_ceil(64) as usize] }
    }

    fn is_free(&self, slot: u64) -> Option<bool> {
        Some(self.taken[(slot / 64) as usize] >> (slot % 64) & 1 == 0)
    }

    fn fill(&mut self, slot: u64) {
        self.taken[(slot / 64) as usize] |= 1 << (slot % 64);
    }

    fn release(&mut self, slot: u64) {
        self.taken[(slot / 64) as usize] &= !(1 << (slot % 64));
    }
}
