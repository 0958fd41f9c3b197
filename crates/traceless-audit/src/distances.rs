//! Tests whether places are drawn again at some distance more often than by chance, for all
//! distances in a trace.

use crate::dense_index::numbered;
use crate::draws::Draws;
use crate::mixer::Mixer;
use crate::report::Claim;
use crate::stats::{claim_from_p, deviation_found, many_tail, smallest_of};

/// The approximate number of pairs of equal places that are counted. If a trace has more, only some
/// places are counted, over the whole trace: a hash selects them, at least `PLACES_MIN` on average.
const PAIRS_MAX: f64 = (1 << 23) as f64;
const PLACES_MIN: f64 = 6.0;

/// The most draws of one place that are counted: if a place has more, only the first accesses of
/// the trace are tested.
const DRAWS_MAX: u32 = 1 << 13;

/// Of each so many distances, the one with most pairs is tested.
const TESTED_OF: usize = 1024;

/// The accesses that drew each of some places.
struct Positions {
    /// The index in `at` of the first access of each place, and the end of the last.
    first: Vec<usize>,
    at: Vec<u32>,
}

impl Draws {
    /// The claim that two draws are not of the same place more often than in another order, at any
    /// distance from one access to the whole trace.
    pub fn recur_by_chance_at_any_distance(&self, what: &str) -> Claim {
        let name = format!("{} do not come again at any distance: {what}", self.noun);
        let numbers = numbered(&self.drawn, self.places);
        let all = self.accesses();
        let (positions, n) = Positions::of((0..all).map(|access| numbers[self.picked(access)]));
        let pairs_found = positions.pairs(n);
        let (share, tied) = positions.shares(n);
        let lags = n.saturating_sub(1);
        let chance = |lag: usize| {
            let pairs = (n - lag) as f64;
            (pairs * share, pairs * (share * (1.0 - share) + 2.0 * tied))
        };
        let tests = pairs_found.chunks(TESTED_OF).enumerate().filter_map(|(nth, lags)| {
            let most = lags.iter().enumerate().max_by_key(|(_, pairs_found)| **pairs_found);
            let (in_chunk, &pairs_found) = most?;
            let lag = nth * TESTED_OF + in_chunk + 1;
            let (expected, variance) = chance(lag);
            Some((
                many_tail(u64::from(pairs_found), expected, variance),
                pairs_found,
                expected,
                lag,
            ))
        });
        let worst = tests.min_by(|a, b| a.0.total_cmp(&b.0));
        let (p, pairs_found, expected, lag) = worst.unwrap_or((1.0, 0, 0.0, 0));
        let evidence = format!(
            "{n} accesses, up to {lags} apart; most: {pairs_found} pairs of one place {lag} apart, \
             {expected:.0} expected"
        );
        let (expected, variance) = chance(n / 2);
        let more = deviation_found(lags.max(1)) * variance.max(1.0).sqrt() + 20.0;
        let of_pairs = positions.at.len() as f64 / n.max(1) as f64 * (n - n / 2) as f64;
        let percent = 100.0 * (more.min(expected.max(of_pairs)) / of_pairs.max(1.0)).min(1.0);
        let power = format!(
            "{percent:.2} % of places that are those of one access, half a trace before, are found"
        );
        claim_from_p(name, p, smallest_of(lags.max(1), p), power, &evidence)
    }
}

impl Positions {
    /// Selects draws with a limited number of pairs. Returns also from how many accesses they are.
    fn of(draws: impl ExactSizeIterator<Item = u32> + Clone) -> (Self, usize) {
        let mut n = draws.len();
        let places = f64::from(draws.clone().max().unwrap_or(0)) + 1.0;
        let share = PAIRS_MAX / (0.5 * (n as f64).powi(2) / places);
        let share = share.max(PLACES_MIN / places).min(1.0);
        let picked = |share: f64, place: u32| {
            share >= 1.0 || Mixer(place.into()).next() <= (share * u64::MAX as f64) as u64
        };
        let draws = (0u32..).zip(draws).filter(|(_, place)| picked(share, *place));
        let mut draws: Vec<(u32, u32)> = draws.collect();
        let mut counts = counts_of(&draws);
        let pairs = |count: &u32| 0.5 * f64::from(*count).powi(2);
        let all: f64 = counts.iter().map(pairs).sum();
        let most = counts.iter().copied().max().unwrap_or(0);
        if all > 4.0 * PAIRS_MAX && most <= DRAWS_MAX {
            // Places are drawn less evenly than the first share assumes.
            let fewer = (share * PAIRS_MAX / all).max(PLACES_MIN / places).min(share);
            draws.retain(|(_, place)| picked(fewer, *place));
            counts = counts_of(&draws);
        } else if most > DRAWS_MAX {
            n = (n as f64 * f64::from(DRAWS_MAX) / f64::from(most)) as usize;
            draws.retain(|(access, _)| (*access as usize) < n);
            counts = counts_of(&draws);
        }
        let mut all = 0;
        let mut first: Vec<usize> = vec![0];
        first.extend(counts.iter().map(|count| {
            all += *count as usize;
            all
        }));
        let (mut at, mut next) = (vec![0; all], first.clone());
        for (access, place) in draws {
            let next = &mut next[place as usize];
            at[*next] = access;
            *next += 1;
        }
        (Self { first, at }, n)
    }

    fn of_each(&self) -> impl Iterator<Item = &[u32]> {
        self.first.windows(2).map(|two| &self.at[two[0]..two[1]])
    }

    /// For each distance from 1 on, the pairs of draws of one place at this distance.
    fn pairs(&self, accesses: usize) -> Vec<u32> {
        let mut pairs = vec![0u32; accesses.saturating_sub(1)];
        for at in self.of_each() {
            for (nth, &later) in at.iter().enumerate() {
                for &earlier in &at[..nth] {
                    let pairs = &mut pairs[(later - earlier) as usize - 1];
                    *pairs = pairs.wrapping_add(1);
                }
            }
        }
        pairs
    }

    /// The share of all pairs of draws that are of one place, and the covariance of two pairs that
    /// share a draw.
    fn shares(&self, accesses: usize) -> (f64, f64) {
        let n = accesses as f64;
        let (mut pairs, mut triples) = (0.0, 0.0);
        for count in self.of_each().map(|at| at.len() as f64) {
            pairs += count * (count - 1.0);
            triples += count * (count - 1.0) * (count - 2.0);
        }
        let share = pairs / (n * (n - 1.0)).max(1.0);
        let of_three = triples / (n * (n - 1.0) * (n - 2.0)).max(1.0);
        (share, (of_three - share * share).max(0.0))
    }
}

/// How often each place is drawn.
fn counts_of(draws: &[(u32, u32)]) -> Vec<u32> {
    let most = draws.iter().map(|(_, place)| *place as usize + 1).max().unwrap_or(0);
    let mut counts = vec![0; most];
    for (_, place) in draws {
        counts[*place as usize] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::Distance;
    use crate::stats::ALPHA;

    /// Draws of which one in `share` repeats the draw `back` before it.
    fn draws(seed: u64, n: usize, places: u64, share: u64, back: usize) -> Draws {
        let mut rng = Mixer(seed << 32);
        let mut drawn: Vec<u64> = vec![];
        for nth in 0..n {
            let repeats = share > 0 && nth >= back && rng.below(share) == 0;
            let any = rng.below(places);
            drawn.push(if repeats { drawn[nth - back] } else { any });
        }
        Draws { noun: "leaves", places, drawn, ..Draws::default() }
    }

    fn p(draws: &Draws) -> f64 {
        draws.recur_by_chance_at_any_distance("").p.unwrap()
    }

    #[test]
    fn sound_draws_recur_by_chance_at_all_distances() {
        for (n, places) in [(20_000, 1 << 40), (20_000, 512), (100_000, 16), (60_000, 2), (9000, 1)]
        {
            let all: Vec<f64> = (0..25).map(|seed| p(&draws(seed, n, places, 0, 0))).collect();
            let small = Distance::below_uniform(&all);
            assert!(small.p > 1e-3 && all.iter().all(|&p| p > 1e-5), "{places}: {all:?}");
        }
    }

    #[test]
    fn recurrence_is_found_at_any_distance() {
        for back in [1500, 40_000, 75_000] {
            for places in [256, 4096, 1 << 20] {
                assert!(p(&draws(1, 100_000, places, 50, back)) < ALPHA, "{back} {places}");
            }
        }
        assert!(p(&draws(2, 100_000, 16, 20, 40_000)) < ALPHA, "some of few places are counted");
        assert!(p(&draws(3, 1_000_000, 1024, 100, 500_000)) < ALPHA, "a long trace is counted");
    }

    #[test]
    fn few_draws_raise_no_alarm() {
        for n in [0, 1, 2, 3, 9] {
            assert!(p(&draws(1, n, 16, 0, 0)) > 1e-3, "{n}");
        }
    }
}
