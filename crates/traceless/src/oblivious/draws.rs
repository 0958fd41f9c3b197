//! Random words, drawn from the generator many at a time.

use super::labels::label_of;
use alloc::boxed::Box;
use traceless_core::rng::Rng;
use traceless_sys::ct::{self, secret::made_public};

/// Number of words that a refill draws.
const WORDS: usize = 128;

/// A supply of random words, each of which is used once.
pub struct Draws {
    rng: Box<dyn Rng>,
    words: [u64; WORDS],
    used: usize,
}

impl Draws {
    /// Draws words from `rng`.
    pub fn new(rng: Box<dyn Rng>) -> Self {
        Self { rng, words: [0; WORDS], used: WORDS }
    }

    /// Makes sure that `count` words are available.
    pub fn reserve(&mut self, count: usize) {
        assert!(count <= WORDS, "an access draws a few words");
        if self.used + count > WORDS {
            self.rng.fill(ct::bytes_of_mut(&mut self.words));
            self.used = 0;
        }
    }

    /// Draws labels, with the bits in `mask`.
    #[inline(always)]
    pub fn label(&mut self, mask: u32) -> AccessDraws {
        // Taken, not copied, so that memory keeps no copy of a label.
        let word = core::mem::take(&mut self.words[self.used]);
        self.used += 1;
        AccessDraws { fresh: word as u32 & mask, unused: (word >> 32) as u32 & mask }
    }
}

/// The random labels that an access needs for one tree.
#[derive(Clone, Copy)]
pub struct AccessDraws {
    /// The block's new label.
    pub fresh: u32,
    /// The block's old label, if it was never accessed.
    pub unused: u32,
}

impl AccessDraws {
    /// The block's old label, from its entry in a map. It becomes public.
    #[inline(always)]
    pub fn old(self, entry: u32) -> u32 {
        made_public(label_of(entry, self.unused))
    }
}
