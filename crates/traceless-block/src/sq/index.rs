//! The sorted addresses of a generation, in about nine bits each.
//!
//! Elias-Fano coding: an address is cut into low bits, which are stored as they are, and high bits,
//! which are stored in unary, so that all addresses with the same high bits are found by counting
//! zeros. Sampled positions keep the count short.

use alloc::vec;
use alloc::vec::Vec;

/// Addresses of one index, at most. Samples are positions in 4 bytes, and there are at most three
/// positions per address: its own, and two values of the high bits.
pub(super) const INDEXED_MAX: u64 = u32::MAX as u64 / 3;

/// Zeros between two samples.
const SAMPLE: u64 = 128;

/// A growing sequence of ascending addresses that can be searched.
pub(super) struct AddressIndex {
    low_bits: u32,
    low: Vec<u64>,
    high: Vec<u64>,
    /// For every `SAMPLE`-th value of the high bits, the position where its addresses begin.
    samples: Vec<u32>,
    len: u64,
    newest: Option<u64>,
}

/// A position in the sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    /// Number of addresses before it.
    pub rank: u64,
    bit: u64,
}

impl AddressIndex {
    /// An empty index with room for `most` addresses below `universe`.
    pub fn new(most: u64, universe: u64) -> Self {
        assert!(most <= INDEXED_MAX, "geometries were checked");
        let low_bits = (universe / most.max(1)).max(1).ilog2();
        let high_bits = most + (universe >> low_bits) + 1;
        // A word more, so that low bits that straddle two words need no case of their own.
        let low = vec![0; (most * u64::from(low_bits)).div_ceil(64) as usize + 1];
        let high = vec![0; high_bits.div_ceil(64) as usize];
        Self { low_bits, low, high, samples: Vec::new(), len: 0, newest: None }
    }

    /// The largest address in the index.
    pub fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Bytes that the index takes.
    pub fn memory(&self) -> usize {
        (self.low.len() + self.high.len()) * 8 + self.samples.capacity() * 4
    }

    /// Appends `address`, which must be larger than all earlier ones.
    pub fn push(&mut self, address: u64) {
        assert!(self.newest.is_none_or(|newest| newest < address), "addresses ascend");
        let high = address >> self.low_bits;
        while self.samples.len() as u64 * SAMPLE <= high {
            let begins = self.samples.len() as u64 * SAMPLE + self.len;
            self.samples.push(u32::try_from(begins).expect("at most INDEXED_MAX"));
        }
        let bit = high + self.len;
        self.high[(bit / 64) as usize] |= 1 << (bit % 64);
        let (word, shift) = self.low_place(self.len);
        let low = u128::from(address & self.low_mask()) << shift;
        self.low[word] |= low as u64;
        if let Some(next) = self.low.get_mut(word + 1) {
            *next |= (low >> 64) as u64;
        }
        self.len += 1;
        self.newest = Some(address);
    }

    /// The rank of `address`, if it is in the sequence.
    pub fn find(&self, address: u64) -> Option<u64> {
        let at = self.seek(address);
        (self.get(at)? == address).then_some(at.rank)
    }

    /// The position of the first address that is not below `address`.
    pub fn seek(&self, address: u64) -> At {
        let high = address >> self.low_bits;
        let Some(&begins) = self.samples.get((high / SAMPLE) as usize) else {
            // No bit is looked at behind the last address.
            return At { rank: self.len, bit: 0 };
        };
        let bit = self.skip_zeros(u64::from(begins), high % SAMPLE);
        let mut at = self.settle(At { rank: bit - high, bit });
        while self.get(at).is_some_and(|found| found < address) {
            at = self.next(at);
        }
        at
    }

    /// The address at a position from `seek` or `next`; `None` at the end.
    pub fn get(&self, at: At) -> Option<u64> {
        if at.rank >= self.len {
            return None;
        }
        Some(((at.bit - at.rank) << self.low_bits) + self.low(at.rank))
    }

    /// The position behind `at`.
    pub fn next(&self, at: At) -> At {
        self.settle(At { rank: at.rank + 1, bit: at.bit + 1 })
    }

    /// Moves on to the next set bit, which marks an address.
    fn settle(&self, mut at: At) -> At {
        if at.rank >= self.len {
            return at;
        }
        let mut word = (at.bit / 64) as usize;
        let mut bits = self.high[word] & (u64::MAX << (at.bit % 64));
        while bits == 0 {
            word += 1;
            bits = self.high[word];
        }
        at.bit = word as u64 * 64 + u64::from(bits.trailing_zeros());
        at
    }

    /// The position behind the next `zeros` zeros from `bit` on.
    fn skip_zeros(&self, mut bit: u64, mut zeros: u64) -> u64 {
        while zeros > 0 {
            let in_word = 64 - bit % 64;
            let gaps = !self.high[(bit / 64) as usize] >> (bit % 64);
            let there = u64::from(gaps.count_ones());
            if there < zeros {
                zeros -= there;
                bit += in_word;
                continue;
            }
            let mut gaps = gaps;
            for _ in 1..zeros {
                gaps &= gaps - 1;
            }
            return bit + u64::from(gaps.trailing_zeros()) + 1;
        }
        bit
    }

    fn low(&self, rank: u64) -> u64 {
        if self.low_bits == 0 {
            return 0;
        }
        let (word, shift) = self.low_place(rank);
        let pair = u128::from(self.low[word]) + (u128::from(self.low[word + 1]) << 64);
        (pair >> shift) as u64 & self.low_mask()
    }

    fn low_place(&self, rank: u64) -> (usize, u32) {
        let bit = rank * u64::from(self.low_bits);
        ((bit / 64) as usize, (bit % 64) as u32)
    }

    fn low_mask(&self) -> u64 {
        (1 << self.low_bits) - 1
    }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use traceless_core::rng::{Rng, SeededRng};

    #[test]
    fn finds_what_is_there_and_nothing_else() {
        let mut rng = SeededRng::new(1);
        for (most, universe) in [(1, 1), (1, 1000), (7, 7), (50, 64), (300, 1 << 40), (2000, 9000)]
        {
            for _ in 0..20 {
                let mut wanted = BTreeSet::new();
                for _ in 0..rng.below(most + 1) {
                    wanted.insert(rng.below(universe));
                }
                let mut index = AddressIndex::new(most, universe);
                for (rank, &address) in wanted.iter().enumerate() {
                    assert_eq!(index.find(address), None);
                    index.push(address);
                    assert_eq!(index.find(address), Some(rank as u64));
                }
                let mut at = index.seek(0);
                for &address in &wanted {
                    assert_eq!(index.get(at), Some(address));
                    at = index.next(at);
                }
                assert_eq!(index.get(at), None);
                for _ in 0..200 {
                    let address = rng.below(universe);
                    let below = wanted.range(..address).count() as u64;
                    assert_eq!(index.seek(address).rank, below);
                    assert_eq!(index.find(address), wanted.contains(&address).then_some(below));
                }
                assert_eq!(index.newest(), wanted.last().copied());
            }
        }
    }

    #[test]
    fn takes_little_more_than_a_byte_an_address() {
        // A generation of the level before the last, at 40 GiB.
        let (most, universe) = (26 * 26 * 256, 10 << 20);
        let mut index = AddressIndex::new(most, universe);
        for i in 0..most {
            index.push(i * (universe / most));
        }
        let bytes = index.memory() as f64 / most as f64;
        assert!(bytes <= 1.2, "{bytes}");
    }

    #[test]
    fn its_memory_is_that_of_its_words_and_samples() {
        // Four low bits each: 8 words and one more. High bits: 128 and 128 and one, in 5 words.
        let mut index = AddressIndex::new(128, 16 * 128);
        assert_eq!(index.memory(), 14 * 8);
        index.push(7);
        assert!(index.samples.capacity() > 1);
        assert_eq!(index.memory(), 14 * 8 + index.samples.capacity() * 4);
    }
}
