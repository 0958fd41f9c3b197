//! DataLair-style: a write-only ORAM that writes random slots and keeps a record of free ones.
//!
//! *DataLair-style*, not `DataLair`: the body of the paper was not at hand. What is taken from it
//! is the explicit record of free blocks, which tells in O(1) whether a slot drawn is free. What is
//! not: choosing slots by it. **The k slots of a write are drawn before the record is looked at**,
//! uniformly among all sets of k slots, by randomness that depends on nothing else; the record
//! only decides what they are filled with, which ciphertext hides. So the slots written are uniform
//! and independent of what is free, of addresses and of history. A scheme that draws one of the k
//! among the free slots instead writes these more often than others, and shows which they are: the
//! auditor has it as a mutant.
//!
//! Since any k slots may all be taken (1 time in 8 when the volume is full), the short stash
//! remains. What the record saves: a free slot is not read before it is written, and no map on the
//! store is asked for what lies in the slots drawn.
//!
//! The record is a bit a slot, in memory only, so that nothing about it is ever written; an opening
//! fills it by the map.
//!
//! Work: A. Chakraborti, C. Chen, R. Sion: `DataLair`: Efficient Block Storage with Plausible
//! Deniability against Multi-Snapshot Adversaries, `PoPETs` 2017; arXiv 1706.10276v2 corrects it.
//! The machinery, crash safety and freshness are those of [`random`](super::random).

use super::contract::SchemeKind;
use super::random::{RandomScheme, RandomSlots, Vacancy};
use alloc::vec;
use alloc::vec::Vec;

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
