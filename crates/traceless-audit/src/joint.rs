//! Whether a known secret and what is seen belong together, by trying other ways to pair them.

use crate::table::Table;

/// Pairs that are tried, at most, and how often.
const PAIRS_MAX: usize = 50_000;
const PERMUTATIONS: usize = 99;

/// The share of permutations of the secrets that tell as much of the places as the secrets do, both
/// in classes: itself counted as one. A permutation hides what belonged together, and nothing else.
pub(crate) fn permuted(secrets: &[u8], places: &[u8], classes: usize) -> f64 {
    let pairs = secrets.len().min(places.len()).min(PAIRS_MAX);
    let (mut secrets, places) = (secrets[..pairs].to_vec(), &places[..pairs]);
    let told = |secrets: &[u8]| {
        let mut table = Table::new(256, classes);
        table.add_all(secrets.iter().zip(places));
        table.information()
    };
    let seen = told(&secrets);
    let mut mixer = Mixer(pairs as u64);
    let mut as_much = 1;
    for _ in 0..PERMUTATIONS {
        mixer.shuffle(&mut secrets);
        as_much += usize::from(told(&secrets) >= seen);
    }
    as_much as f64 / (PERMUTATIONS + 1) as f64
}

/// Numbers that look random (`SplitMix64`): enough to shuffle, and the same each time.
pub(crate) struct Mixer(pub u64);

impl Mixer {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Any number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Fisher and Yates.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for left in (1..items.len()).rev() {
            items.swap(left, self.below(left as u64 + 1) as usize);
        }
    }
}
