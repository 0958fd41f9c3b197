//! Tests whether the time of an operation depends on which of two users requested it.
//!
//! Times come in pairs, one of each user, and a coin has decided which of the two was measured
//! first. If times are independent of the user, exchanging the two of a pair changes nothing: so
//! the sign of a difference is that of a coin, no matter what else a machine does meanwhile, and
//! however times depend on each other. The tests are exact about this coin, and need no other
//! property of times.
//!
//! They cannot find a difference below the clock's resolution, and say nothing about other
//! machines.

use crate::report::Claim;
use crate::stats::{claim_from_p, deviation_found, normal_tail, smallest_of};

/// With fewer pairs, no result reaches the bound.
const PAIRS_MIN: usize = 50;

/// Shares of the differences, from the smallest on, that are tested in turn: outliers hide small
/// differences.
const TRIM_SHARES: [f64; 5] = [0.5, 0.7, 0.9, 0.97, 1.0];

/// Times of two users, in nanoseconds, pair by pair.
///
/// The operations of the second user take 3 ns more, of about 100:
///
/// ```
/// use traceless_audit::{Times, Verdict};
/// use traceless_core::rng::{Rng, SeededRng};
///
/// let mut rng = SeededRng::new(1);
/// let mut measure = |more: u64| (0..1000).map(|_| 100 + more + rng.below(10)).collect();
/// let sound = Times { a: measure(0), b: measure(0) };
/// let leaky = Times { a: measure(0), b: measure(3) };
/// let passes = |times: &Times| times.claims("read").iter().all(|c| c.verdict == Verdict::Pass);
/// assert!(passes(&sound));
/// assert!(!passes(&leaky));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Times {
    /// The times of the first user.
    pub a: Vec<u64>,
    /// The times of the second user, equally many.
    pub b: Vec<u64>,
}

impl Times {
    /// All claims: that neither user's times are longer, nor longer without outliers, nor spread
    /// more.
    ///
    /// # Panics
    /// If the users have different numbers of times.
    pub fn claims(&self, what: &str) -> Vec<Claim> {
        assert_eq!(self.a.len(), self.b.len(), "times come in pairs");
        vec![self.have_equal_ranks(what), self.are_as_long(what), self.have_equal_spreads(what)]
    }

    /// Wilcoxon's test: the signs of differences, weighted by the rank of their size.
    fn have_equal_ranks(&self, what: &str) -> Claim {
        let differences = self.differences();
        let z = signed_ranks(&differences);
        self.by(&differences, format!("times of two users rank alike: {what}"), &[z])
    }

    /// The mean difference without the largest ones, as in dudect, but in pairs.
    fn are_as_long(&self, what: &str) -> Claim {
        let differences = self.differences();
        let mut sorted = differences.clone();
        sorted.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
        let mean = |share: f64| {
            let smallest = &sorted[..(share * sorted.len() as f64) as usize];
            let squares: f64 = smallest.iter().map(|d| d * d).sum();
            smallest.iter().sum::<f64>() / squares.sqrt().max(1e-9)
        };
        let name = format!("times of two users are as long without outliers: {what}");
        self.by(&differences, name, &TRIM_SHARES.map(mean))
    }

    /// Wilcoxon's test of the distances of times from the median of all.
    fn have_equal_spreads(&self, what: &str) -> Claim {
        let middle = median(self.a.iter().chain(&self.b).map(|&t| t as f64).collect());
        let far = |&t: &u64| (t as f64 - middle).abs();
        let pairs = self.a.iter().zip(&self.b);
        let differences: Vec<f64> = pairs.map(|(a, b)| far(a) - far(b)).collect();
        let z = signed_ranks(&differences);
        self.by(&differences, format!("times of two users are spread alike: {what}"), &[z])
    }

    fn differences(&self) -> Vec<f64> {
        self.a.iter().zip(&self.b).map(|(&a, &b)| a as f64 - b as f64).collect()
    }

    fn by(&self, differences: &[f64], name: String, tests: &[f64]) -> Claim {
        let pairs = differences.len();
        if pairs < PAIRS_MIN {
            let power = "nothing is found in so few pairs".to_owned();
            return claim_from_p(name, 0.0, 1.0, power, &format!("{pairs} pairs"));
        }
        let z = tests.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0);
        let p = smallest_of(tests.len(), 2.0 * normal_tail(z.abs()));
        let ns = |times: &[u64]| median(times.iter().map(|&t| t as f64).collect());
        let jitter = spread(differences);
        let evidence = format!(
            "{pairs} pairs, medians {:.0} and {:.0} ns, differences of {jitter:.0} ns but for \
             outliers, z = {z:.2}",
            ns(&self.a),
            ns(&self.b)
        );
        let found = deviation_found(tests.len()) * jitter / (pairs as f64).sqrt();
        claim_from_p(name, z, p, format!("a difference of {found:.1} ns is found"), &evidence)
    }
}

/// Wilcoxon's signed ranks, in standard deviations; equal sizes share a rank, and zero differences
/// have none.
fn signed_ranks(differences: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    sorted.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
    let (mut sum, mut squares, mut below) = (0.0, 0.0, 0.0);
    for tied in sorted.chunk_by(|a, b| a.abs().total_cmp(&b.abs()).is_eq()) {
        let rank = below + f64::midpoint(tied.len() as f64, 1.0);
        below += tied.len() as f64;
        sum += rank * tied.iter().map(|d| d.signum()).sum::<f64>();
        squares += rank * rank * tied.len() as f64;
    }
    sum / squares.sqrt().max(1e-9)
}

/// The root of the mean square of all but the largest differences.
fn spread(differences: &[f64]) -> f64 {
    let mut squares: Vec<f64> = differences.iter().map(|d| d * d).collect();
    squares.sort_unstable_by(f64::total_cmp);
    let smallest = &squares[..squares.len() * 97 / 100];
    (smallest.iter().sum::<f64>() / smallest.len().max(1) as f64).sqrt()
}

fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixer::Mixer;
    use crate::stats::ALPHA;

    /// Times with a long tail on a machine with changing speed; `more` is added for the first user.
    fn times(seed: u64, mut more: impl FnMut(&mut Mixer) -> u64) -> Times {
        let mut rng = Mixer(seed << 32);
        let mut pace = 1000;
        let mut time = |rng: &mut Mixer| {
            if rng.below(50) == 0 {
                pace = 800 + rng.below(400);
            }
            let tail = if rng.below(100) == 0 { rng.below(100_000) } else { 0 };
            pace + rng.below(100) + tail
        };
        let mut times = Times { a: vec![], b: vec![] };
        for _ in 0..20_000 {
            if rng.below(2) == 0 {
                times.a.push(time(&mut rng) + more(&mut rng));
                times.b.push(time(&mut rng));
            } else {
                times.b.push(time(&mut rng));
                times.a.push(time(&mut rng) + more(&mut rng));
            }
        }
        times
    }

    fn alarms(times: &Times) -> Vec<usize> {
        let claims = times.claims("").into_iter().enumerate();
        claims.filter(|(_, claim)| claim.p.unwrap() < ALPHA).map(|(nth, _)| nth).collect()
    }

    #[test]
    fn equal_users_raise_no_alarm_despite_noise() {
        let mut all = vec![vec![]; 3];
        for seed in 0..100 {
            let claims = times(seed, |_| 0).claims("");
            all.iter_mut().zip(claims).for_each(|(all, claim)| all.push(claim.p.unwrap()));
        }
        for (nth, p) in all.iter().enumerate() {
            assert!(p.iter().all(|&p| p > 1e-5), "{nth}: {p:?}");
            let small = p.iter().filter(|&&p| p < 0.5).count();
            assert!((25..=75).contains(&small), "{nth}: {small} of 100 below a half");
        }
    }

    #[test]
    fn longer_times_are_found() {
        assert_eq!(alarms(&times(1, |_| 8)), [0, 1]);
        // Only now and then.
        assert!(alarms(&times(2, |rng| if rng.below(20) == 0 { 300 } else { 0 })).contains(&0));
    }

    /// The times have the same median, but each is shorter or longer.
    #[test]
    fn times_that_vary_more_are_found() {
        let mut times = times(3, |_| 0);
        let mut rng = Mixer(4);
        let vary = |t: &u64| if rng.below(2) == 0 { t + 150 } else { t - 150 };
        times.a = times.a.iter().map(vary).collect();
        assert_eq!(alarms(&times), [2]);
    }

    #[test]
    fn few_or_equal_times_raise_no_alarm() {
        for pairs in [0, 1, 49, 50, 1000] {
            let times = Times { a: vec![5; pairs], b: vec![5; pairs] };
            assert!(times.claims("").iter().all(|claim| claim.p.unwrap() > 0.99), "{pairs}");
        }
    }

    /// A hand-computed case: ranks 1, 2.5, 2.5 and 4, the second of them negative.
    #[test]
    fn signed_ranks_equal_published_examples() {
        let z = signed_ranks(&[1.0, -2.0, 0.0, 2.0, 5.0]);
        let squares: f64 = 1.0 + 2.0 * 2.5 * 2.5 + 16.0;
        assert!((z - 5.0 / squares.sqrt()).abs() < 1e-12, "{z}");
    }
}
