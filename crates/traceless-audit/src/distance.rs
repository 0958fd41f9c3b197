//! The distance of two distributions (Kolmogorov and Smirnov): of two samples, or of probabilities
//! from a uniform distribution.

/// The greatest distance of two distributions, and the probability of at least this distance if
/// both samples come from the same distribution. For samples with equal numbers the probability is
/// too large, which is the safe side.
///
/// ```
/// use traceless_audit::Distance;
///
/// let even: Vec<u64> = (0..500).collect();
/// let more_small: Vec<u64> = (0..500).map(|n| n * n / 500).collect();
/// assert_eq!(Distance::of_samples(&even, &even).greatest, 0.0);
/// let apart = Distance::of_samples(&even, &more_small);
/// assert!(apart.greatest > 0.2 && apart.p < 1e-7, "{apart:?}");
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Distance {
    /// The distance, from 0 to 1.
    pub greatest: f64,
    /// The probability.
    pub p: f64,
}

impl Distance {
    /// The distance of two samples of numbers.
    pub fn of_samples(a: &[u64], b: &[u64]) -> Self {
        let sorted = |sample: &[u64]| {
            let mut sorted = sample.to_vec();
            sorted.sort_unstable();
            sorted
        };
        let (a, b) = (sorted(a), sorted(b));
        let share = |sorted: &[u64], most: u64| {
            let below = sorted.partition_point(|number| *number <= most);
            below as f64 / sorted.len().max(1) as f64
        };
        let apart = |number: &u64| (share(&a, *number) - share(&b, *number)).abs();
        let greatest = a.iter().chain(&b).map(apart).fold(0.0, f64::max);
        let (n, m) = (a.len() as f64, b.len() as f64);
        Self::new(greatest, n * m / (n + m).max(1.0))
    }

    /// The distance of probabilities from a uniform distribution.
    pub fn from_uniform(p: &[f64]) -> Self {
        let mut sorted = p.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let steps = sorted.iter().enumerate();
        let apart = steps.map(|(i, p)| (p - i as f64 / n).max((i + 1) as f64 / n - p));
        Self::new(apart.fold(0.0, f64::max), n)
    }

    /// How much more often probabilities are below some limit than a uniform variable.
    pub fn below_uniform(p: &[f64]) -> Self {
        let mut sorted = p.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let steps = sorted.iter().enumerate();
        let greatest = steps.map(|(i, p)| (i + 1) as f64 / n - p).fold(0.0, f64::max);
        // Smirnov's bound for one side.
        Self { greatest, p: (-2.0 * n * greatest * greatest).exp().min(1.0) }
    }

    /// Stephens' approximation for samples that are worth `n` numbers.
    fn new(greatest: f64, n: f64) -> Self {
        // One sample is empty.
        if n < 0.5 {
            return Self { greatest, p: 1.0 };
        }
        let root = n.sqrt();
        Self { greatest, p: kolmogorov_tail((root + 0.12 + 0.11 / root) * greatest) }
    }
}

/// The probability that Kolmogorov's variable exceeds `x`.
fn kolmogorov_tail(x: f64) -> f64 {
    // For smaller `x` it is 1 to the last digit, and the series does not end.
    if x < 0.2 {
        return 1.0;
    }
    let term =
        |k: i32| 2.0 * f64::from(1 - 2 * ((k - 1) % 2)) * (-2.0 * (f64::from(k) * x).powi(2)).exp();
    (1..=100).map(term).sum::<f64>().clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixer::Mixer;

    #[test]
    fn tails_equal_published_tables() {
        for (x, p) in [(1.224, 0.10), (1.358, 0.05), (1.628, 0.01), (0.1, 1.0)] {
            assert!((kolmogorov_tail(x) - p).abs() < 5e-4, "{x}: {}", kolmogorov_tail(x));
        }
        // Half of the first sample lies below all of the second.
        let found = Distance::of_samples(&[1, 2, 3, 4], &[3, 4, 5, 6]);
        assert!((found.greatest - 0.5).abs() < 1e-12);
        let found = Distance::from_uniform(&[0.1, 0.2, 0.3]);
        assert!((found.greatest - 0.7).abs() < 1e-12);
    }

    #[test]
    fn distances_separate_equal_and_different_distributions() {
        let sample = |seed: u64, below: u64| -> Vec<u64> {
            let mut rng = Mixer(seed << 32);
            (0..2000).map(|_| rng.below(below)).collect()
        };
        let p: Vec<f64> = (0..200)
            .map(|i| Distance::of_samples(&sample(2 * i, 1 << 40), &sample(2 * i + 1, 1 << 40)).p)
            .collect();
        assert!(p.iter().all(|&p| p > 1e-4), "{p:?}");
        assert!(Distance::from_uniform(&p).p > 1e-3, "{:?}", Distance::from_uniform(&p));
        let other = Distance::of_samples(&sample(1, 1000), &sample(2, 1200));
        assert!(other.p < 1e-9 && other.greatest > 0.1, "{other:?}");
        let halved: Vec<f64> = p.iter().map(|p| p / 2.0).collect();
        assert!(Distance::from_uniform(&halved).p < 1e-6);
        assert!(Distance::below_uniform(&halved).p < 1e-6);
        assert!(Distance::below_uniform(&p).p > 1e-3);
        let large: Vec<f64> = p.iter().map(|p| 0.5 + p / 2.0).collect();
        assert!(Distance::below_uniform(&large).p > 0.9 && Distance::from_uniform(&large).p < 1e-6);
    }

    #[test]
    fn empty_samples_have_no_distance() {
        assert!(Distance::of_samples(&[], &[]).p >= 1.0);
        assert!(Distance::of_samples(&[1], &[]).p >= 0.9);
        assert!(Distance::from_uniform(&[]).p >= 1.0);
    }
}
