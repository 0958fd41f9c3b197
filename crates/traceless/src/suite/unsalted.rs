//! A source of randomness without salts, so that tests see what holds without them.

use crate::rng::{Rng, Salt, SeededRng};
use alloc::boxed::Box;

/// As its source, but each salt is zero: whatever is sealed twice under one version is then seen to
/// be the same, or not.
pub struct UnsaltedRng(pub SeededRng);

impl Rng for UnsaltedRng {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }

    fn salt(&mut self) -> Salt {
        Salt(0)
    }

    fn fork(&mut self) -> Box<dyn Rng> {
        Box::new(Self(SeededRng::drawn(&mut self.0)))
    }
}
