//! Randomness, always handed in, so that every run can be replayed from a seed.

use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// A source of random bytes.
pub trait Rng: Send + Sync {
    /// Fills `out` with random bytes.
    fn fill(&mut self, out: &mut [u8]);

    /// 64 random bits.
    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A number below `bound`, without bias. `bound` is not zero.
    fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing lies below zero");
        if bound.is_power_of_two() {
            // As below, without its divisions.
            return self.next_u64() & (bound - 1);
        }
        // Values from `whole` on would favour small remainders: draw again.
        let whole = u64::MAX - (u64::MAX % bound + 1) % bound;
        loop {
            let x = self.next_u64();
            if x <= whole {
                return x % bound;
            }
        }
    }
}

/// Replays the same bytes from the same seed.
pub struct Seeded(rand_chacha::ChaCha12Rng);

impl Seeded {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(rand_chacha::ChaCha12Rng::seed_from_u64(seed))
    }

    /// A stream of its own, as secret as `source`: for those who draw often, where each draw from
    /// the operating system would be a call.
    pub fn drawn(source: &mut dyn Rng) -> Self {
        let mut seed = [0; 32];
        source.fill(&mut seed);
        Self(rand_chacha::ChaCha12Rng::from_seed(seed))
    }
}

impl Rng for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }
}

/// The operating system's generator.
#[cfg(feature = "std")]
#[derive(Default)]
pub struct System;

#[cfg(feature = "std")]
impl Rng for System {
    fn fill(&mut self, out: &mut [u8]) {
        // A system without randomness cannot keep a secret: there is nothing to fall back to.
        getrandom::fill(out).expect("the operating system supplies randomness");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_is_in_range_and_reaches_both_ends() {
        let mut rng = Seeded::new(1);
        let mut seen = [0u32; 3];
        for _ in 0..3000 {
            seen[rng.below(3) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 800), "{seen:?}");
        assert_eq!(rng.below(1), 0);
        assert!(rng.below(u64::MAX) < u64::MAX);
    }

    #[test]
    fn a_seed_replays() {
        assert_eq!(Seeded::new(7).next_u64(), Seeded::new(7).next_u64());
        assert_ne!(Seeded::new(7).next_u64(), Seeded::new(8).next_u64());
    }
}
