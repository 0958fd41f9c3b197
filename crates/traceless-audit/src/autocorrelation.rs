//! Tests whether a place depends on one that was drawn long before.

use crate::draws::Draws;
use crate::report::Claim;
use crate::stats::{claim_from_p, many_tail, smallest_of};
use std::collections::HashMap;

/// The greatest distance of draws that are compared.
const LAG_MAX: usize = 1000;

/// The most draws that are compared: the first ones.
const COMPARED_MAX: usize = 1 << 16;

/// Pairs of draws are alike if they are the same place, or in the same one of 2^n parts of the
/// tree, for each n of these.
const PARTS_BITS: [u32; 2] = [8, 4];

/// When pairs count as alike, and how often they are by chance.
struct Similarity {
    /// Two places, scaled to 32 bits, are alike if their exclusive or is below this.
    below: u32,
    /// The share of all pairs that are alike, and the covariance of two pairs that share a draw.
    share: f64,
    tied: f64,
}

impl Draws {
    /// The claim that two draws are not more often of the same place, or of the same part of the
    /// tree, than in another order, at any of a thousand distances, nor at the distances of a range
    /// together.
    pub fn are_not_autocorrelated(&self, what: &str) -> Claim {
        let name = format!("{} do not depend on those long before: {what}", self.noun);
        let n = self.accesses().min(COMPARED_MAX);
        let lags = LAG_MAX.min(n / 4);
        let scale = (1u64 << 32) as f64 / self.places as f64;
        let at: Vec<u32> = (0..n).map(|i| (self.pick(i) as f64 * scale) as u32).collect();
        let parts = PARTS_BITS.iter().filter(|bits| self.places > 1 << **bits);
        let belows = core::iter::once(1).chain(parts.map(|bits| 1 << (32 - bits)));
        let similarities: Vec<Similarity> = if lags == 0 {
            vec![]
        } else {
            belows.map(|below| Similarity::of(&at, below)).collect()
        };
        let mut worst = (1.0, String::new());
        let mut tests = 0;
        let mut test = |count: u64, expected: f64, variance: f64, far: &str| {
            tests += 1;
            let p = many_tail(count, expected, variance);
            if p < worst.0 {
                worst = (p, format!("{count} pairs are alike {far} apart, {expected:.0} expected"));
            }
        };
        for similarity in &similarities {
            let (mut first, mut range_chance) = (1, [0.0; 2]);
            let mut range_count = 0;
            for lag in 1..=lags {
                let count = similarity.count(&at, lag);
                let (expected, variance) = similarity.chance(n - lag);
                test(count, expected, variance, &format!("{lag}"));
                range_count += count;
                range_chance = [range_chance[0] + expected, range_chance[1] + variance];
                if (lag + 1).is_power_of_two() || lag == lags {
                    let tied =
                        2.0 * ((lag + 1 - first) as f64).powi(2) * n as f64 * similarity.tied;
                    test(
                        range_count,
                        range_chance[0],
                        range_chance[1] + tied,
                        &format!("{first} to {lag}"),
                    );
                    (first, range_chance, range_count) = (lag + 1, [0.0; 2], 0);
                }
            }
        }
        let (p, count) = worst;
        let p = smallest_of(tests.max(1), p);
        let evidence = format!("{n} accesses, up to {lags} apart; the worst of {tests}: {count}");
        let found = similarities.first().map_or(100.0, |similarity| {
            let (expected, variance) = similarity.chance(n - lags);
            let deviations = crate::stats::deviation_found(tests.max(1));
            (deviations * variance.max(1.0).sqrt() + 20.0).min(expected.max(n as f64)) / n as f64
                * 100.0
        });
        let power = format!("{found:.2} % of places that are those of one access before are found");
        claim_from_p(name, p, p, power, &evidence)
    }
}

impl Similarity {
    /// The chances for other orders of the same draws.
    fn of(at: &[u32], below: u32) -> Self {
        let mut counts: HashMap<u32, u64> = HashMap::new();
        for place in at {
            *counts.entry(place / below).or_default() += 1;
        }
        let n = at.len() as f64;
        let (mut pairs, mut triples) = (0.0, 0.0);
        for count in counts.into_values().map(|count| count as f64) {
            pairs += count * (count - 1.0);
            triples += count * (count - 1.0) * (count - 2.0);
        }
        let share = pairs / (n * (n - 1.0)).max(1.0);
        let of_three = triples / (n * (n - 1.0) * (n - 2.0)).max(1.0);
        Self { below, share, tied: (of_three - share * share).max(0.0) }
    }

    /// The number of pairs at a distance that are alike.
    fn count(&self, at: &[u32], lag: usize) -> u64 {
        // Without checks for overflow, so that the compiler vectorises the loop: there are fewer
        // pairs.
        const { assert!(COMPARED_MAX <= u32::MAX as usize) };
        let pairs = at.iter().zip(&at[lag..]);
        let alike =
            |sum: u32, (a, b): (&u32, &u32)| sum.wrapping_add(u32::from((a ^ b) < self.below));
        u64::from(pairs.fold(0, alike))
    }

    /// The expected number of alike pairs at one distance, and its variance.
    fn chance(&self, pairs: usize) -> (f64, f64) {
        let pairs = pairs as f64;
        (pairs * self.share, pairs * (self.share * (1.0 - self.share) + 2.0 * self.tied))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::Distance;
    use crate::mixer::Mixer;
    use crate::stats::ALPHA;

    /// Draws of which one in `share` is the draw `back` before it, or near it.
    fn draws(seed: u64, places: u64, share: u64, back: usize, near: u64) -> Draws {
        let mut rng = Mixer(seed << 32);
        let mut drawn: Vec<u64> = vec![];
        for nth in 0..20_000 {
            let repeats = share > 0 && nth >= back && rng.below(share) == 0;
            let any = rng.below(places);
            drawn.push(if repeats { drawn[nth - back] / near * near + any % near } else { any });
        }
        Draws { noun: "leaves", places, drawn, ..Draws::default() }
    }

    fn p(draws: &Draws) -> f64 {
        draws.are_not_autocorrelated("").p.unwrap()
    }

    #[test]
    fn sound_draws_are_not_autocorrelated_for_any_number_of_places() {
        for places in [1, 2, 3, 100, 1024, 1 << 20, 1 << 40] {
            let all: Vec<f64> = (0..40).map(|seed| p(&draws(seed, places, 0, 0, 1))).collect();
            assert!(all.iter().all(|&p| p > 1e-4), "{places}: {all:?}");
            let small = Distance::below_uniform(&all);
            assert!(small.p > 1e-3, "{places}: {small:?}");
        }
    }

    #[test]
    fn autocorrelation_is_found_at_any_distance() {
        for back in [5, 17, 40, 333, 1000] {
            assert!(p(&draws(1, 1024, 100, back, 1)) < ALPHA, "{back}");
        }
        assert!(p(&draws(1, 1 << 20, 500, 700, 1)) < ALPHA);
        assert!(p(&draws(1, 1 << 20, 20, 60, 1 << 12)) < ALPHA, "it is near only");
        assert!(p(&draws(1, 1024, 100, 1500, 1)) > 1e-5, "beyond what is looked at");
    }

    /// Each repeated place comes back after another number of accesses.
    #[test]
    fn autocorrelation_over_a_range_of_distances_is_found() {
        let mut spread = draws(2, 4096, 0, 0, 1);
        let mut rng = Mixer(3);
        for nth in 600..spread.drawn.len() {
            if rng.below(25) == 0 {
                spread.drawn[nth] = spread.drawn[nth - 256 - rng.below(250) as usize];
            }
        }
        assert!(p(&spread) < ALPHA);
    }

    #[test]
    fn few_draws_raise_no_alarm() {
        for n in [0, 1, 3, 4, 9] {
            let mut few = draws(1, 16, 0, 0, 1);
            few.drawn.truncate(n);
            assert!(p(&few) > 1e-3, "{n}");
        }
    }
}
