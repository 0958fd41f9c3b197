//! Places with small numbers, to count them in arrays.

use crate::mixer::Mixer;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Up to this number of places, each has its own number, whether it is drawn or not.
const FEW: u64 = 1 << 22;

/// The places drawn, of `places`, numbered without gaps if there are many.
pub(crate) fn numbered(drawn: &[u64], places: u64) -> Vec<u32> {
    if places <= FEW {
        return drawn.iter().map(|&place| place as u32).collect();
    }
    let mut numbers: HashMap<u64, u32, BuildHasherDefault<MixHasher>> =
        HashMap::with_capacity_and_hasher(drawn.len(), BuildHasherDefault::default());
    let number = |&place: &u64| {
        let next = numbers.len() as u32;
        *numbers.entry(place).or_insert(next)
    };
    drawn.iter().map(number).collect()
}

/// A fast hasher. It need not resist attacks: the author of a trace gains nothing by slowing the
/// audit down.
#[derive(Default)]
struct MixHasher(u64);

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, place: u64) {
        self.0 = Mixer(self.0 ^ place).next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_places_have_equal_numbers() {
        let drawn = [7, 1 << 40, 7, 3, 1 << 40, u64::MAX];
        assert_eq!(numbered(&drawn, u64::MAX), [0, 1, 0, 2, 1, 3]);
        assert_eq!(numbered(&[5, 0, 5], 6), [5, 0, 5]);
        assert!(numbered(&[], 1 << 30).is_empty());
    }
}
