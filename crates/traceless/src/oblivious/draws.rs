//! Random words, drawn from the generator many at a time.

use crate::rng::Rng;
use alloc::boxed::Box;
use traceless_sys::ct;

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

    /// 32 random bits, twice.
    #[inline(always)]
    pub fn pair(&mut self) -> (u32, u32) {
        // Taken, not copied: a label that was given away is found nowhere afterwards.
        let word = core::mem::take(&mut self.words[self.used]);
        self.used += 1;
        (word as u32, (word >> 32) as u32)
    }
}
