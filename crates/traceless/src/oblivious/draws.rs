//! Random words, drawn from the generator many at a time.

use super::labels::label_of;
use crate::rng::Rng;
use alloc::boxed::Box;
use traceless_sys::ct::{self, secret::made_public};

/// Words that a refill brings.
const WORDS: usize = 128;

/// A supply of random words, none of which is given twice.
pub struct Draws {
    rng: Box<dyn Rng>,
    words: [u64; WORDS],
    used: usize,
}

impl Draws {
    /// Words of `rng`.
    pub fn new(rng: Box<dyn Rng>) -> Self {
        Self { rng, words: [0; WORDS], used: WORDS }
    }

    /// Makes sure that `count` words are there.
    pub fn reserve(&mut self, count: usize) {
        assert!(count <= WORDS, "an access draws a few words");
        if self.used + count > WORDS {
            self.rng.fill(ct::bytes_of_mut(&mut self.words));
            self.used = 0;
        }
    }

    /// Labels made of the bits in `mask`.
    #[inline(always)]
    pub fn label(&mut self, mask: u32) -> AccessDraws {
        // Taken, not copied: a label that was given away is found nowhere afterwards.
        let word = core::mem::take(&mut self.words[self.used]);
        self.used += 1;
        AccessDraws { fresh: word as u32 & mask, unused: (word >> 32) as u32 & mask }
    }
}

/// What an access draws for one tree.
#[derive(Clone, Copy)]
pub struct AccessDraws {
    /// The label that the block gets.
    pub fresh: u32,
    /// The label that it had, if it was never accessed.
    pub unused: u32,
}

impl AccessDraws {
    /// The label that the block had, by its entry in a map. It becomes public.
    #[inline(always)]
    pub fn old(self, entry: u32) -> u32 {
        made_public(label_of(entry, self.unused))
    }
}
