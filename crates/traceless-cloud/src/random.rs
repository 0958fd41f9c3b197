//! A fast random generator.
//!
//! A fair coin and a key:
//!
//! ```
//! use traceless_cloud::random::SystemStream;
//! use traceless_core::rng::Rng;
//!
//! let mut rng = SystemStream::drawn();
//! let coin = rng.below(2);
//! let (mut key, mut other) = ([0; 32], [0; 32]);
//! rng.fill(&mut key);
//! SystemStream::drawn().fill(&mut other);
//! assert!(coin < 2);
//! assert_ne!(key, other);
//! ```

use traceless_core::rng::{Rng, Salt, SeededRng, System};

/// A generator that is seeded from the operating system once. Each output is also mixed with a
/// fresh random number of the processor. So the output is as secret as the seed. If the process's
/// memory is copied and both copies continue, their outputs differ.
pub struct SystemStream(SeededRng);

impl SystemStream {
    /// A generator with a fresh seed.
    pub fn drawn() -> Self {
        Self(SeededRng::drawn(&mut System))
    }

    /// The state that a process and its copies share.
    #[cfg(test)]
    pub fn of_copy() -> Self {
        Self(SeededRng::new(1))
    }
}

impl Rng for SystemStream {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
        for word in out.chunks_mut(Salt::LEN) {
            let fresh = System.salt().to_bytes();
            word.iter_mut().zip(fresh).for_each(|(byte, fresh)| *byte ^= fresh);
        }
    }

    fn salt(&mut self) -> Salt {
        System.salt()
    }

    fn fork(&mut self) -> Box<dyn Rng> {
        Box::new(Self::drawn())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_copies_draw_different_numbers() {
        let mut copies = [(); 2].map(|()| SystemStream::of_copy());
        let drawn = copies.each_mut().map(|stream| (stream.next_u64(), stream.salt()));
        assert!(drawn[0].0 != drawn[1].0 && drawn[0].1 != drawn[1].1);
        let [mut one, mut other] = copies.each_mut().map(Rng::fork);
        assert_ne!(one.next_u64(), other.next_u64());
    }
}
