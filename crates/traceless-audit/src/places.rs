//! Are the places that a randomised scheme writes uniform, and independent of everything?
//!
//! Three tests that complement each other: how often each place is written, whether a write's
//! places depend on those before (coarsely, and as a repetition within a window at full
//! resolution), and whether they depend on the address that is written. Each gives the probability
//! of such a result, or a worse one, if the claim is true.

use crate::report::{Claim, Statistic, Verdict};

/// A claim with a smaller probability than this does not hold. With a hundred such claims, one
/// audit of ten thousand raises a false alarm.
pub const ALPHA: f64 = 1e-6;

/// Classes of places, and of addresses, in the coarse tests.
const CLASSES: u64 = 16;

/// What was seen of some writes: the places of each, in order, and the address that was meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// How many places there are.
    pub slots: u64,
    /// Of each write.
    pub writes: Vec<Vec<u64>>,
    /// The secret of each write.
    pub addresses: Vec<u64>,
}

impl Places {
    /// That every place is written equally often.
    pub fn are_uniform(&self, what: &str) -> Claim {
        let mut counts = vec![0; self.slots as usize];
        let mut all = 0u64;
        for &slot in self.writes.iter().flatten() {
            counts[slot as usize] += 1;
            all += 1;
        }
        let expected = all as f64 / self.slots as f64;
        let statistic: f64 = counts.iter().map(|&c: &u64| square(c as f64, expected)).sum();
        let df = self.slots as f64 - 1.0;
        let evidence = format!("{all} places in {} slots", self.slots);
        let power = detectable(df, all);
        judged(format!("written slots are uniform: {what}"), statistic, df, power, &evidence)
    }

    /// That a write's places do not depend on those of the write `lag` before.
    pub fn are_serially_independent(&self, what: &str, lag: usize) -> Claim {
        let pick = |i: usize| self.writes[i][i % self.writes[i].len()];
        // Pairs that do not share a write.
        let starts = (0..self.writes.len() - lag).filter(|i| (i / lag).is_multiple_of(2));
        let pairs = starts.map(|i| (pick(i), pick(i + lag)));
        contingency(&format!("written slots do not depend on earlier ones: {what}"), pairs)
    }

    /// That a write's places do not depend on its address.
    pub fn are_independent_of_addresses(&self, what: &str) -> Claim {
        let writes = self.addresses.iter().zip(&self.writes).enumerate();
        let pairs = writes.map(|(i, (&address, places))| (address, places[i % places.len()]));
        contingency(&format!("written slots do not depend on addresses: {what}"), pairs)
    }

    /// That a place comes again within a window as often as chance has it, at full resolution.
    pub fn do_not_come_again(&self, what: &str) -> Claim {
        let per_write = self.writes.first().map_or(1, Vec::len) as f64;
        let window = (self.slots as f64 / 4.0 / per_write).max(1.0) as usize;
        let mut last = vec![None; self.slots as usize];
        let (mut hits, mut all) = (0u64, 0u64);
        for (i, places) in self.writes.iter().enumerate() {
            for &slot in places {
                let seen = last[slot as usize].replace(i);
                // Before the first full window there is less to meet.
                if i >= window {
                    all += 1;
                    hits += u64::from(seen.is_some_and(|before| i - before <= window));
                }
            }
        }
        let missed = (1.0 - per_write / self.slots as f64).powf(window as f64);
        let (n, p) = (all as f64, 1.0 - missed);
        let z = (hits as f64 - n * p) / (n * p * (1.0 - p)).sqrt();
        let name = format!("written slots do not come again: {what}");
        // Of two-sided probability ALPHA, and of .99.
        let share = (4.892 + 2.326) * (p / (1.0 - p) / n).sqrt();
        let power = format!("{:.1} % of places that come again are found", 100.0 * share);
        let evidence = format!("{hits} of {all} came again within {window} writes, z = {z:.2}");
        claim(name, z, 2.0 * upper_tail(z.abs()), power, &evidence)
    }

    /// That two users' places are spread alike.
    pub fn are_spread_as(&self, other: &Self, what: &str) -> Claim {
        let mut counts = vec![[0u64; 2]; self.slots as usize];
        for (side, places) in [self, other].into_iter().enumerate() {
            places.writes.iter().flatten().for_each(|&slot| counts[slot as usize][side] += 1);
        }
        let sums = [0, 1].map(|side| counts.iter().map(|c| c[side]).sum::<u64>() as f64);
        let all = sums[0] + sums[1];
        let used = counts.iter().filter(|c| c[0] + c[1] > 0);
        let mut df = -1.0;
        let mut statistic = 0.0;
        for pair in used {
            let both = (pair[0] + pair[1]) as f64;
            df += 1.0;
            for side in 0..2 {
                statistic += square(pair[side] as f64, both * sums[side] / all);
            }
        }
        let name = format!("written slots of two users are spread alike: {what}");
        let evidence = format!("{} and {} places", sums[0], sums[1]);
        judged(name, statistic, df, detectable(df, (all / 2.0) as u64), &evidence)
    }
}

/// The claim that both numbers of each pair are independent, by their classes.
fn contingency(name: &str, pairs: impl Iterator<Item = (u64, u64)>) -> Claim {
    let k = CLASSES as usize;
    let mut counts = vec![vec![0u64; k]; k];
    pairs.for_each(|(a, b)| counts[(a % CLASSES) as usize][(b % CLASSES) as usize] += 1);
    let rows: Vec<u64> = counts.iter().map(|row| row.iter().sum()).collect();
    let columns: Vec<u64> = (0..k).map(|c| counts.iter().map(|row| row[c]).sum()).collect();
    let all: u64 = rows.iter().sum();
    let mut statistic = 0.0;
    for (row, counts) in rows.iter().zip(&counts) {
        for (column, &count) in columns.iter().zip(counts) {
            let expected = *row as f64 * *column as f64 / all as f64;
            if expected > 0.0 {
                statistic += square(count as f64, expected);
            }
        }
    }
    let used = |sums: &[u64]| sums.iter().filter(|&&n| n > 0).count() as f64 - 1.0;
    // One class only leaves nothing to depend on.
    let df = (used(&rows) * used(&columns)).max(1.0);
    judged(name.to_owned(), statistic, df, detectable(df, all), &format!("{all} pairs"))
}

fn square(seen: f64, expected: f64) -> f64 {
    (seen - expected).powi(2) / expected
}

fn judged(name: String, statistic: f64, df: f64, power: String, evidence: &str) -> Claim {
    let p = chi_square_tail(statistic, df);
    let evidence = format!("{evidence}, chi-square {statistic:.1} of {df} degrees of freedom");
    claim(name, statistic, p, power, &evidence)
}

fn claim(name: String, statistic: f64, p: f64, power: String, evidence: &str) -> Claim {
    let verdict = if p < ALPHA { Verdict::Leak } else { Verdict::Pass };
    let evidence = format!("{evidence}, p = {p:.2e}");
    Claim { name, verdict, statistic: Statistic::Value(statistic), p: Some(p), power, evidence }
}

/// The smallest distance that a chi-square test on `n` samples finds, in words.
fn detectable(df: f64, n: u64) -> String {
    // Of one-sided probability ALPHA, and of .99.
    let (z_alpha, z_power) = (4.753, 2.326);
    let spread = 2.0 / (9.0 * df);
    let critical = df * (1.0 - spread + z_alpha * spread.sqrt()).powi(3);
    let mut shift = 0.0;
    while (df + shift - critical) / (2.0 * (df + 2.0 * shift)).sqrt() < z_power {
        shift += 0.5;
    }
    let distance = (shift / (4.0 * n as f64)).sqrt();
    format!("a total variation distance of {:.1} % is found, 99 times of 100", 100.0 * distance)
}

/// The probability of such a chi-square or a larger one (Wilson and Hilferty).
fn chi_square_tail(statistic: f64, df: f64) -> f64 {
    let spread = 2.0 / (9.0 * df);
    upper_tail(((statistic / df).cbrt() - 1.0 + spread) / spread.sqrt())
}

/// Chebyshev fit of erfc, from the smallest power on.
const FIT: [f64; 10] = [
    -1.265_512_23,
    1.000_023_68,
    0.374_091_96,
    0.096_784_18,
    -0.186_288_06,
    0.278_868_07,
    -1.135_203_98,
    1.488_515_87,
    -0.822_152_23,
    0.170_872_77,
];

/// The probability that a standard normal exceeds `z`; the relative error is below 2e-7.
fn upper_tail(z: f64) -> f64 {
    let x = z.abs() / core::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let sum = FIT.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let tail = 0.5 * t * (sum - x * x).exp();
    if z >= 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random: `SplitMix64`.
    struct Mix(u64);

    impl Mix {
        fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (x ^ (x >> 31)) % n
        }
    }

    fn places(seed: u64, mut draw: impl FnMut(&mut Mix, u64, u64) -> u64) -> Places {
        let mut rng = Mix(seed << 32);
        let mut found = Places { slots: 512, writes: vec![], addresses: vec![] };
        for i in 0..8000 {
            let address = rng.below(256);
            let mut slots: Vec<u64> = vec![];
            while slots.len() < 3 {
                let slot = draw(&mut rng, i, address);
                if !slots.contains(&slot) {
                    slots.push(slot);
                }
            }
            slots.sort_unstable();
            found.writes.push(slots);
            found.addresses.push(address);
        }
        found
    }

    fn p_values(found: &Places, other: &Places) -> Vec<f64> {
        let claims = [
            found.are_uniform(""),
            found.are_serially_independent("", 1),
            found.do_not_come_again(""),
            found.are_independent_of_addresses(""),
            found.are_spread_as(other, ""),
        ];
        claims.iter().map(|claim| claim.p.unwrap()).collect()
    }

    #[test]
    fn tails_are_those_of_the_tables() {
        for (z, p) in [(0.0, 0.5), (1.644_854, 0.05), (4.753_424, 1e-6), (-1.644_854, 0.95)] {
            assert!((upper_tail(z) / p - 1.0).abs() < 1e-5, "{z}: {}", upper_tail(z));
        }
        assert!((chi_square_tail(18.307, 10.0) / 0.05 - 1.0).abs() < 0.01);
        assert!((chi_square_tail(377.2, 255.0) / 1e-6 - 1.0).abs() < 0.1);
    }

    #[test]
    fn clean_places_raise_no_alarm_and_their_p_values_are_spread() {
        let mut small = 0;
        for seed in 0..40 {
            let one = places(2 * seed, |rng, _, _| rng.below(512));
            let other = places(2 * seed + 1, |rng, _, _| rng.below(512));
            let p = p_values(&one, &other);
            assert!(p.iter().all(|&p| p > 1e-5), "seed {seed}: {p:?}");
            small += p.iter().filter(|&&p| p < 0.25).count();
        }
        // A quarter of two hundred, give or take four standard deviations.
        assert!((26..75).contains(&small), "{small} of 200 below a quarter");
    }

    #[test]
    fn each_planted_leak_is_found_by_the_test_that_is_for_it() {
        let clean = places(99, |rng, _, _| rng.below(512));
        let biased = places(1, |rng, _, _| if rng.below(8) == 0 { 0 } else { rng.below(512) });
        let p = p_values(&biased, &clean);
        assert!(p[0] < ALPHA && p[4] < ALPHA, "{p:?}");
        let own = places(2, |rng, _, a| if rng.below(3) == 0 { a * 2 } else { rng.below(512) });
        assert!(p_values(&own, &clean)[3] < ALPHA);
        let mut before = 0;
        let again = places(3, |rng, _, _| {
            before = if rng.below(4) == 0 { before } else { rng.below(512) };
            before
        });
        assert!(p_values(&again, &clean)[2] < ALPHA);
        let drifts = places(4, |rng, i, _| {
            rng.below(32) * 16 + if rng.below(2) == 0 { i % 16 } else { rng.below(16) }
        });
        assert!(p_values(&drifts, &clean)[1] < ALPHA);
    }
}
