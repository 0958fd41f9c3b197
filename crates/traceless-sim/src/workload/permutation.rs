//! Permutations that look random, without a table.

use traceless::rng::Rng;

const ROUNDS: usize = 4;

/// A permutation of the numbers below a length: a Feistel network over the next power of four. A
/// result that is too large is sent through the network again.
pub struct Permutation {
    len: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    /// A permutation of the numbers below `len`, which is not zero.
    pub fn new(len: u64, rng: &mut dyn Rng) -> Self {
        assert!(len > 0, "something to put in order");
        let bits = u64::BITS - (len - 1).leading_zeros();
        Self { len, half_bits: bits.div_ceil(2), keys: [(); ROUNDS].map(|()| rng.next_u64()) }
    }

    /// The number at place `nth`, which is below the length.
    #[inline]
    pub fn at(&self, nth: u64) -> u64 {
        assert!(nth < self.len, "a place in the order");
        let mut number = nth;
        loop {
            number = self.once(number);
            if number < self.len {
                return number;
            }
        }
    }

    #[inline]
    fn once(&self, number: u64) -> u64 {
        let low = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & low);
        for key in self.keys {
            let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (left, right) = (right, left ^ ((mixed ^ mixed >> 29) >> 7 & low));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless::rng::SeededRng;

    #[test]
    fn every_number_comes_once_and_none_after_its_neighbour() {
        for len in [1, 2, 3, 100, 4096, 5000] {
            let order = Permutation::new(len, &mut SeededRng::new(1));
            let numbers: Vec<_> = (0..len).map(|nth| order.at(nth)).collect();
            let follow = numbers.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
            assert!(len < 100 || follow < 5, "{follow} of {len} follow each other");
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..len), "{len}");
        }
    }

    #[test]
    fn another_seed_gives_another_order() {
        let order = |seed| {
            let order = Permutation::new(1000, &mut SeededRng::new(seed));
            (0..1000).map(|nth| order.at(nth)).collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }
}
