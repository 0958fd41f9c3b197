//! Tests whether a known secret and an observation depend on each other, by permutations of the
//! pairs.

use crate::mixer::Mixer;
use crate::table::{PAIR_CLASSES, Table};

/// The most pairs that are permuted, and the number of permutations.
const PAIRS_MAX: usize = 50_000;
const PERMUTATIONS: usize = 99;

/// The share of permutations of the secrets that have as much mutual information with the places as
/// the secrets do, both in classes, with the original order counted as one. A permutation destroys
/// the dependence of pairs, and nothing else.
pub(crate) fn permutation_share(secrets: &[u8], places: &[u8], classes: usize) -> f64 {
    let pairs = secrets.len().min(places.len()).min(PAIRS_MAX);
    let (mut secrets, places) = (secrets[..pairs].to_vec(), &places[..pairs]);
    let information = |secrets: &[u8]| {
        let mut table = Table::new(PAIR_CLASSES as usize, classes);
        table.add_all(secrets, places);
        table.information()
    };
    let observed = information(&secrets);
    let mut mixer = Mixer(pairs as u64);
    let mut as_much = 1;
    for _ in 0..PERMUTATIONS {
        mixer.shuffle(&mut secrets);
        as_much += usize::from(information(&secrets) >= observed);
    }
    as_much as f64 / (PERMUTATIONS + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random classes, with every `n`-th secret equal to its place.
    fn share_with_equal(n: usize) -> f64 {
        let mut mixer = Mixer(n as u64);
        let places: Vec<u8> = (0..4000).map(|_| mixer.below(16) as u8).collect();
        let secret = |(i, &place): (usize, &u8)| {
            if i.is_multiple_of(n) { place } else { mixer.below(16) as u8 }
        };
        let secrets: Vec<u8> = places.iter().enumerate().map(secret).collect();
        permutation_share(&secrets, &places, 16)
    }

    #[test]
    fn no_permutation_has_the_information_of_dependent_secrets() {
        assert!((share_with_equal(5) - 0.01).abs() < 1e-9, "{}", share_with_equal(5));
    }

    #[test]
    fn many_permutations_have_the_information_of_independent_secrets() {
        // Each is a whole number of hundredths, spread evenly.
        let all: Vec<f64> = (5000..5020).map(share_with_equal).collect();
        assert!(all.iter().any(|&p| p < 0.5) && all.iter().any(|&p| p > 0.5), "{all:?}");
        assert!(all.iter().all(|&p| (0.01..=1.0).contains(&p)), "{all:?}");
    }

    #[test]
    fn empty_samples_have_a_share_of_one() {
        assert!(permutation_share(&[], &[], 4) >= 1.0);
    }
}
