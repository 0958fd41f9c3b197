//! Tests whether both halves of a tree are drawn equally often, and both halves of its subtrees at
//! each level.
//!
//! A chi-square of many classes spreads a deviation over all of them: a half that is drawn a little
//! too often is found only by a test with one degree of freedom.

use crate::draws::Draws;
use crate::report::Claim;
use crate::stats::{claim_from_p, deviation_found, half_tail, smallest_of};

/// Levels of ranges that are tested if places are no power of two.
const UNEVEN_LEVELS: u32 = 10;

/// Draws that are counted at a time: they stay in a cache.
const AT_ONCE: usize = 4096;

/// A division of places in two halves.
#[derive(Clone, Copy)]
enum LevelSplit {
    /// By one bit of the place's number.
    Bit(u32),
    /// By the range of the place, of 2^n ranges of equal size: odd ranges or even ones.
    Range(u32),
}

/// How many of all draws are in the second half, and its share of the places.
#[derive(Clone, Copy, Default)]
struct Half {
    count: u64,
    all: u64,
    share: f64,
}

impl Draws {
    /// The claim that the left and the right half of all places are drawn equally often.
    pub fn are_from_both_halves(&self, what: &str) -> Claim {
        self.of_halves(&[self], what)
    }

    /// The same claim for the draws of two users together, in which a smaller deviation is found.
    pub fn are_from_both_halves_with(&self, other: &Self, what: &str) -> Claim {
        self.of_halves(&[self, other], what)
    }

    fn of_halves(&self, users: &[&Self], what: &str) -> Claim {
        let first = if self.places > 1 { vec![LevelSplit::Range(1)] } else { vec![] };
        self.by_worst_half("are from both halves equally often", users, &first, what)
    }

    /// The claim that at each level below the root the left and the right subtrees are drawn
    /// equally often, all nodes of a level together. If places are no power of two: even and odd
    /// ranges of them, and the bits of their numbers.
    pub fn are_from_both_halves_at_each_level(&self, what: &str) -> Claim {
        let bits = if self.places > 1 { (self.places - 1).ilog2() + 1 } else { 0 };
        let mut levels: Vec<LevelSplit> = vec![];
        if self.places.is_power_of_two() {
            levels.extend((0..bits.saturating_sub(1)).rev().map(LevelSplit::Bit));
        } else {
            levels.extend((2..bits.min(UNEVEN_LEVELS)).map(LevelSplit::Range));
            levels.extend((0..bits.saturating_sub(1)).map(LevelSplit::Bit));
        }
        self.by_worst_half("are from both halves at each level", &[self], &levels, what)
    }

    fn by_worst_half(
        &self,
        claim: &str,
        users: &[&Self],
        splits: &[LevelSplit],
        what: &str,
    ) -> Claim {
        let name = format!("{} {claim}: {what}", self.noun);
        let mut halves = vec![Half::default(); splits.len()];
        for user in users {
            user.count_halves(splits, &mut halves);
        }
        let tested = halves.iter().map(|half| (half_tail(half.count, half.all, half.share), half));
        let Some((p, half)) = tested.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            let power = "nothing is found in one place".to_owned();
            return claim_from_p(name, 0.0, 1.0, power, "there is one place");
        };
        let percent = |share: f64| 100.0 * share;
        let of_all = half.count as f64 / half.all.max(1) as f64;
        let evidence = format!(
            "{:.3} % of {} draws are in the second half, {:.3} % expected; the worst of {}",
            percent(of_all),
            half.all,
            percent(half.share),
            splits.len()
        );
        let deviation = deviation_found(splits.len()) * (half.share * (1.0 - half.share)).sqrt();
        let found = deviation / (half.all.max(1) as f64).sqrt();
        let power =
            format!("a half drawn in {:.2} % of cases is found", percent((0.5 + found).min(1.0)));
        claim_from_p(name, of_all, smallest_of(splits.len(), p), power, &evidence)
    }

    fn count_halves(&self, splits: &[LevelSplit], halves: &mut [Half]) {
        let places = self.places;
        for (half, split) in halves.iter_mut().zip(splits) {
            half.share = split.second_half(places) as f64 / places as f64;
            half.all += self.drawn.len() as u64;
        }
        for draws in self.drawn.chunks(AT_ONCE) {
            for (half, split) in halves.iter_mut().zip(splits) {
                half.count += match *split {
                    // Without checks for overflow, so that the compiler vectorises the loop.
                    LevelSplit::Bit(bit) => {
                        draws.iter().fold(0, |sum: u64, place| sum.wrapping_add(place >> bit & 1))
                    }
                    LevelSplit::Range(_) => {
                        draws.iter().map(|&place| split.side(place, places)).sum()
                    }
                };
            }
        }
    }
}

impl LevelSplit {
    /// 1 for a place in the second half, else 0.
    fn side(self, place: u64, places: u64) -> u64 {
        match self {
            Self::Bit(bit) => place >> bit & 1,
            Self::Range(level) => ((u128::from(place) << level) / u128::from(places)) as u64 & 1,
        }
    }

    /// The number of places in the second half.
    fn second_half(self, places: u64) -> u64 {
        match self {
            Self::Bit(bit) => {
                let (whole, rest) = (places >> (bit + 1), places & ((2 << bit) - 1));
                (whole << bit) + rest.saturating_sub(1 << bit)
            }
            Self::Range(level) => {
                let ranges = 1u128 << level;
                let before = |range: u128| (range * u128::from(places)).div_ceil(ranges) as u64;
                (0..ranges / 2).map(|nth| before(2 * nth + 2) - before(2 * nth + 1)).sum()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::Distance;
    use crate::mixer::Mixer;
    use crate::stats::ALPHA;

    fn draws(seed: u64, places: u64, mut draw: impl FnMut(&mut Mixer) -> u64) -> Draws {
        let mut rng = Mixer(seed << 32);
        let drawn = (0..100_000).map(|_| draw(&mut rng)).collect();
        Draws { noun: "leaves", places, drawn, ..Draws::default() }
    }

    #[test]
    fn the_size_of_the_second_half_is_exact() {
        for places in [2, 3, 5, 7, 8, 100, 535] {
            for split in (0..9).map(LevelSplit::Bit).chain((1..9).map(LevelSplit::Range)) {
                let counted: u64 = (0..places).map(|place| split.side(place, places)).sum();
                assert_eq!(split.second_half(places), counted, "{places}");
            }
        }
    }

    #[test]
    fn sound_draws_are_from_both_halves_for_any_number_of_places() {
        for places in [2, 3, 535, 1024, 1 << 20] {
            let of = |seed| draws(seed, places, |rng| rng.below(places));
            let p: Vec<[f64; 2]> = (0..60)
                .map(|seed| {
                    let of = of(seed);
                    [of.are_from_both_halves(""), of.are_from_both_halves_at_each_level("")]
                        .map(|claim| claim.p.unwrap())
                })
                .collect();
            for nth in 0..2 {
                let p: Vec<f64> = p.iter().map(|p| p[nth]).collect();
                let small = Distance::below_uniform(&p);
                assert!(small.p > 1e-3 && p.iter().all(|&p| p > 1e-6), "{places}: {p:?}");
            }
        }
    }

    /// One user's trace shows a share of 51.3 %; two users' traces show 51.1 %.
    #[test]
    fn a_slightly_preferred_half_is_found_at_its_level() {
        let prefers = |seed, level: u32, of_1000: u64| {
            draws(seed, 1 << 14, |rng| {
                let leaf = rng.below(1 << 14);
                let bit = u64::from(rng.below(1000) >= of_1000) << (14 - level);
                leaf & !(1 << (14 - level)) | bit
            })
        };
        for seed in 0..5 {
            let left = prefers(seed, 1, 513);
            assert!(left.are_from_both_halves("").p.unwrap() < ALPHA);
            assert!(left.are_from_both_halves_at_each_level("").p.unwrap() > ALPHA);
            let [a, b] = [prefers(seed, 1, 511), prefers(seed + 100, 1, 511)];
            let both = a.are_from_both_halves_with(&b, "");
            assert!(both.p.unwrap() < ALPHA, "{seed}: {}", both.evidence);
            for level in [2, 7, 14] {
                let deep = prefers(seed, level, 516);
                assert!(deep.are_from_both_halves_at_each_level("").p.unwrap() < ALPHA);
                assert!(deep.are_from_both_halves("").p.unwrap() > ALPHA);
            }
        }
    }
}
