//! The two buckets of a key.

use super::MapShape;
use traceless_core::seal::{Prf, Secret};

/// A keyed hash of map keys, all of which have the same number of words.
pub struct KeyHash {
    prf: Prf,
    buckets: u32,
}

impl KeyHash {
    /// The hash under `secret`.
    pub fn new(shape: MapShape, secret: &Secret) -> Self {
        let buckets = u32::try_from(shape.buckets).expect("the capacity is limited");
        Self { prf: Prf::new(secret), buckets }
    }

    /// The buckets of `key`, which are always different.
    pub fn of(&self, key: &[u64]) -> [u32; 2] {
        // CBC-MAC: as good as AES, since all messages have one length.
        let mut state = 0;
        for pair in key.chunks(2) {
            let high = pair.get(1).copied().unwrap_or_default();
            state = self.prf.at(state ^ (u128::from(pair[0]) | u128::from(high) << 64));
        }
        let mask = self.buckets.wrapping_sub(1);
        let first = state as u32 & mask;
        // Another bucket: a step of at least one bucket and less than all.
        let word = u64::from((state >> 64) as u32);
        let step = (word.wrapping_mul(mask.into()) >> 32) as u32;
        [first, first.wrapping_add(step).wrapping_add(1) & mask]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_different_uniform_and_independent() {
        let shape = MapShape::new(32, 8, 8).unwrap();
        let places = KeyHash::new(shape, &Secret::from_bytes([3; 32]));
        let mut pairs = [[0_u32; 8]; 8];
        let keys = 56_000;
        for key in 0..keys {
            let [first, second] = places.of(&[1, key]);
            pairs[first as usize][second as usize] += 1;
        }
        for (first, row) in pairs.iter().enumerate() {
            for (second, &seen) in row.iter().enumerate() {
                let expected = if first == second { 0..1 } else { 850..1150 };
                assert!(expected.contains(&seen), "{first} {second}: {seen}");
            }
        }
    }

    #[test]
    fn every_word_matters() {
        let places =
            KeyHash::new(MapShape::new(1 << 30, 24, 8).unwrap(), &Secret::from_bytes([3; 32]));
        let key = [1, 2, 3, 4];
        for word in 0..key.len() {
            let mut other = key;
            other[word] ^= 1 << 63;
            assert_ne!(places.of(&key), places.of(&other));
        }
    }
}
