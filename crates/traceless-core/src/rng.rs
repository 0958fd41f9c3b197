//! Randomness, passed in by the caller, so that every run can be replayed from a seed.
//!
//! Programs use [`System`]; tests and simulations use a seed, which replays the same numbers:
//!
//! ```
//! use traceless_core::rng::{Rng, SeededRng, System};
//!
//! fn dice(rng: &mut dyn Rng) -> Vec<u64> {
//!     (0..20).map(|_| 1 + rng.below(6)).collect()
//! }
//!
//! assert!(dice(&mut System).iter().all(|eyes| (1..=6).contains(eyes)));
//! assert_eq!(dice(&mut SeededRng::new(7)), dice(&mut SeededRng::new(7)));
//! assert_ne!(dice(&mut SeededRng::new(7)), dice(&mut SeededRng::new(8)));
//! ```

use alloc::boxed::Box;
use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};

/// Makes the nonces of one batch of seals differ from the nonces of every other process, even of a
/// copy of this process with the same keys and counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Salt(pub u64);

impl Salt {
    /// Bytes of a salt in the store.
    pub const LEN: usize = size_of::<u64>();

    /// The salt as it is stored.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        self.0.to_le_bytes()
    }

    /// The salt that was stored as `bytes`.
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}

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

    /// A salt for the next batch of seals. A copy of this process draws a different salt, wherever
    /// its memory was copied. Salts need not be secret. The plaintexts must be fixed before the
    /// salt is drawn: then two copies that seal under one salt seal the same plaintexts.
    fn salt(&mut self) -> Salt {
        Salt(self.next_u64())
    }

    /// A separate source of the same kind. A source without state, which draws anew at each call,
    /// should override this and return another source without state: the default's generator has a
    /// state that a copy of the process shares, and so do its salts.
    fn fork(&mut self) -> Box<dyn Rng> {
        let mut seed = [0; 32];
        self.fill(&mut seed);
        Box::new(SeededRng(ChaCha12Rng::from_seed(seed)))
    }

    /// A uniform number below `bound`, without bias. `bound` must not be zero.
    fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing lies below zero");
        if bound.is_power_of_two() {
            // The general case without its divisions.
            return self.next_u64() & (bound - 1);
        }
        // Values above `whole` would favour small remainders: draw again.
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
pub struct SeededRng(ChaCha12Rng);

impl SeededRng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha12Rng::seed_from_u64(seed))
    }

    /// A separate stream, as secret as `source`: for frequent draws, where each draw from the
    /// operating system would be a system call.
    pub fn drawn(source: &mut dyn Rng) -> Self {
        let mut seed = [0; 32];
        source.fill(&mut seed);
        Self(ChaCha12Rng::from_seed(seed))
    }
}

impl Rng for SeededRng {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }
}

/// The operating system's generator, combined by XOR with the processor's: each covers for the
/// other. The operating system's repeats itself in machines that are resumed from one snapshot,
/// until their kernel learns of it.
#[cfg(feature = "std")]
#[derive(Default)]
pub struct System;

/// Spreads neighbouring tick counts over all bits: 2^64 over the golden ratio, odd.
#[cfg(feature = "std")]
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(feature = "std")]
impl Rng for System {
    fn fill(&mut self, out: &mut [u8]) {
        // A system without randomness cannot keep a secret, so there is no fallback.
        getrandom::fill(out).expect("the operating system supplies randomness");
        for word in out.chunks_mut(size_of::<u64>()) {
            let Some(drawn) = traceless_sys::hardware_random() else { break };
            word.iter_mut().zip(drawn.to_le_bytes()).for_each(|(byte, more)| *byte ^= more);
        }
    }

    fn fork(&mut self) -> Box<dyn Rng> {
        Box::new(Self)
    }

    /// Makes no system call where the processor has a random instruction.
    fn salt(&mut self) -> Salt {
        let drawn = traceless_sys::hardware_random().unwrap_or_else(|| {
            let mut bytes = [0; size_of::<u64>()];
            getrandom::fill(&mut bytes).expect("the operating system supplies randomness");
            u64::from_le_bytes(bytes)
        });
        Salt(drawn ^ traceless_sys::processor_ticks().wrapping_mul(SPREAD))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "std")]
    use alloc::vec::Vec;

    #[test]
    fn below_is_in_range_and_reaches_both_ends() {
        let mut rng = SeededRng::new(1);
        let mut seen = [0u32; 3];
        for _ in 0..3000 {
            seen[rng.below(3) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| n > 800), "{seen:?}");
        assert_eq!(rng.below(1), 0);
        assert!(rng.below(u64::MAX) < u64::MAX);
    }

    #[test]
    fn a_seed_has_the_same_numbers_in_every_version() {
        assert_eq!(SeededRng::new(7).next_u64(), 0x07c2_e0e9_6aa8_fbbe);
    }

    #[cfg(feature = "std")]
    #[test]
    fn no_two_salts_are_equal() {
        let mut salts: Vec<u64> = (0..100_000).map(|_| System.salt().0).collect();
        salts.sort_unstable();
        salts.dedup();
        assert_eq!(salts.len(), 100_000);
        assert_eq!(Salt::from_bytes(Salt(7).to_bytes()), Salt(7));
    }

    #[test]
    fn a_seed_replays() {
        assert_eq!(SeededRng::new(7).next_u64(), SeededRng::new(7).next_u64());
        assert_ne!(SeededRng::new(7).next_u64(), SeededRng::new(8).next_u64());
    }
}
