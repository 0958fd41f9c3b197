//! A source of randomness without salts, so that tests show which properties hold without them.

use crate::rng::{Rng, Salt, SeededRng};
use alloc::boxed::Box;

/// Like its source, but each salt is zero. Seals of the same contents under the same version are
/// then equal.
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
