//! The probability that a count exceeds a limit, as a logarithm to base 2.

use core::f64::consts::{LN_2, PI};

/// log2 P[X > `limit`] for X Poisson with mean `mean`.
pub fn poisson_above(mean: f64, limit: usize) -> f64 {
    let k = limit as f64 + 1.0;
    let first = k * mean.ln() - mean - ln_factorial(k);
    above(first, k, |k| mean / (k + 1.0))
}

/// log2 P[X > `limit`] for X the number of successes among `trials` of probability `p`.
pub fn binomial_above(trials: u64, p: f64, limit: usize) -> f64 {
    let n = trials as f64;
    let k = limit as f64 + 1.0;
    if k > n {
        return f64::NEG_INFINITY;
    }
    let choose = ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
    let first = choose + k * p.ln() + (n - k) * (-p).ln_1p();
    above(first, k, |k| (n - k) / (k + 1.0) * p / (1.0 - p))
}

/// The logarithm of a sum of terms from index `k` on. `first` is the natural logarithm of the first
/// term, and each term is `ratio` times the previous one. If terms still grow, the limit is below
/// the mean, and the bound is 1.
fn above(first: f64, mut k: f64, ratio: impl Fn(f64) -> f64) -> f64 {
    let (mut sum, mut term) = (1.0_f64, 1.0_f64);
    while term > sum * 1e-12 {
        let step = ratio(k);
        if step >= 1.0 {
            return 0.0;
        }
        term *= step;
        sum += term;
        k += 1.0;
    }
    ((first + sum.ln()) / LN_2).min(0.0)
}

/// ln n!, by Stirling's series, or by multiplication where the series is too inexact.
fn ln_factorial(n: f64) -> f64 {
    if n < 32.0 {
        return (2..=n as u32).map(|i| f64::from(i).ln()).sum();
    }
    let series = 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3)) + 1.0 / (1260.0 * n.powi(5));
    n * n.ln() - n + 0.5 * (2.0 * PI * n).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_probabilities_are_exact() {
        // P[more than 2 of 4 coins] = 5/16; P[Poisson(1) > 0] = 1 - 1/e.
        assert!((binomial_above(4, 0.5, 2) - (5.0_f64 / 16.0).log2()).abs() < 1e-9);
        assert!((poisson_above(1.0, 0) - (1.0 - (-1.0_f64).exp()).log2()).abs() < 1e-9);
        assert!(binomial_above(4, 0.5, 4).is_infinite());
        assert!(poisson_above(500.0, 3) >= 0.0, "certain");
    }

    /// Figures of the reconstruction: binomial tails of leaves and of a round's stream.
    #[test]
    fn known_tail_probabilities_are_reproduced() {
        let near = |value: f64, want: f64| assert!((value - want).abs() < 1.0, "{value} {want}");
        let leaves = 1.0 / 4096.0;
        near(binomial_above(10 << 20, leaves, 2944), -44.0);
        near(binomial_above(10 << 20, leaves, 3072), -74.0);
        near(binomial_above(20 << 20, leaves, 5632), -40.0);
        for (rho, bits) in [(560, -81.0), (600, -55.0), (640, -35.0), (680, -20.0), (720, -10.0)] {
            near(binomial_above(8 * rho, 0.125, 800), bits);
        }
    }
}
