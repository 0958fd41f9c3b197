//! Probabilities of observations if nothing is wrong, and the sizes of leaks that tests find.

use crate::report::{Claim, Statistic, Verdict};
use statrs::function::beta::{beta_reg, inv_beta_reg};
use statrs::function::erf::{erfc, erfc_inv};
use statrs::function::gamma::{gamma_lr, gamma_ur};

/// A claim with a smaller probability than this does not hold. With a thousand claims in an audit,
/// one audit of ten thousand raises a false alarm.
pub const ALPHA: f64 = 1e-7;

/// How often a leak of the size that is stated as a test's power is found.
const POWER: f64 = 0.99;

/// The probability that a standard normal variable exceeds `z`.
pub(crate) fn normal_tail(z: f64) -> f64 {
    0.5 * erfc(z / core::f64::consts::SQRT_2)
}

/// The value that a standard normal variable exceeds with probability `p`.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    core::f64::consts::SQRT_2 * erfc_inv(2.0 * p)
}

/// The probability of a chi-square of at least this size.
pub(crate) fn chi_square_tail(statistic: f64, df: f64) -> f64 {
    if statistic <= 0.0 || df <= 0.0 { 1.0 } else { gamma_ur(df / 2.0, statistic / 2.0) }
}

/// The two-sided probability of Student's `t` with `df` degrees of freedom.
pub(crate) fn t_tail(t: f64, df: f64) -> f64 {
    beta_reg(df / 2.0, 0.5, df / (df + t * t))
}

/// From this variance on, the skew of a count no longer shows in its tails.
const NORMAL_MIN: f64 = 5000.0;

/// The probability of at least `seen` events if `expected` events are expected, with this
/// `variance`.
pub(crate) fn many_tail(seen: u64, expected: f64, variance: f64) -> f64 {
    if seen == 0 || expected <= 0.0 {
        return if seen == 0 { 1.0 } else { 0.0 };
    }
    if variance >= NORMAL_MIN {
        return normal_tail((seen as f64 - expected) / variance.sqrt());
    }
    // If the variance exceeds that of rare events, treats events as coming in groups.
    let group = (variance / expected).max(1.0);
    gamma_lr(seen as f64 / group, expected / group)
}

/// The two-sided probability of `seen` events if `expected` are expected, with this `variance`.
pub(crate) fn count_tail(seen: u64, expected: f64, variance: f64) -> f64 {
    if expected <= 0.0 {
        return if seen == 0 { 1.0 } else { 0.0 };
    }
    if variance >= NORMAL_MIN {
        return 2.0 * normal_tail((seen as f64 - expected).abs() / variance.sqrt());
    }
    // Exact for rare events; for other events the probability is too large.
    let many = if seen == 0 { 1.0 } else { gamma_lr(seen as f64, expected) };
    let few = gamma_ur(seen as f64 + 1.0, expected);
    (2.0 * many.min(few)).min(1.0)
}

/// The two-sided probability of `seen` of `all` draws in a half that has this `share` of all
/// places.
pub(crate) fn half_tail(seen: u64, all: u64, share: f64) -> f64 {
    if all == 0 || share <= 0.0 || share >= 1.0 {
        return 1.0;
    }
    let (n, k) = (all as f64, seen as f64);
    let variance = n * share * (1.0 - share);
    if variance >= NORMAL_MIN {
        return 2.0 * normal_tail((k - n * share).abs() / variance.sqrt());
    }
    let many = if seen == 0 { 1.0 } else { beta_reg(k, n - k + 1.0, share) };
    let few = if seen == all { 1.0 } else { beta_reg(n - k, k + 1.0, 1.0 - share) };
    (2.0 * many.min(few)).min(1.0)
}

/// The probability that the smallest of `tests` independent probabilities is as small as `p`
/// (Šidák). If they depend on each other it is too large, which is the safe side.
pub(crate) fn smallest_of(tests: usize, p: f64) -> f64 {
    -(tests as f64 * (-p.min(1.0)).ln_1p()).exp_m1()
}

/// Bounds of a probability, each exceeded with probability `alpha`, after `hits` of `all` trials
/// (Clopper and Pearson).
pub(crate) fn proportion_bounds(hits: u64, all: u64, alpha: f64) -> (f64, f64) {
    let (hits, missed) = (hits as f64, (all - hits) as f64);
    let lower = if hits == 0.0 { 0.0 } else { inv_beta_reg(hits, missed + 1.0, alpha) };
    let upper = if missed == 0.0 { 1.0 } else { inv_beta_reg(hits + 1.0, missed, 1.0 - alpha) };
    (lower, upper)
}

/// The claim `name`, judged by the probability `p` of its observation.
pub(crate) fn claim_from_p(
    name: String,
    statistic: f64,
    p: f64,
    power: String,
    evidence: &str,
) -> Claim {
    let verdict = if p < ALPHA { Verdict::Leak } else { Verdict::Pass };
    let evidence = format!("{evidence}, p = {p:.2e}");
    Claim { name, verdict, statistic: Statistic::Value(statistic), p: Some(p), power, evidence }
}

/// One claim in place of several of the same kind: the worst of them, judged by their number.
/// Nothing if there are none.
///
/// ```
/// use traceless_audit::{Draws, Verdict, worst_of};
///
/// // Draws in turns: uniform, but each depends on the one before.
/// let drawn = (0..4000).map(|n| n % 16).collect();
/// let draws = Draws { places: 16, drawn, ..Draws::default() };
/// let claims = vec![draws.are_uniform("A"), draws.are_serially_independent("A")];
/// let worst = worst_of("places are drawn at random".to_owned(), claims).expect("two claims");
/// assert_eq!(worst.verdict, Verdict::Leak);
/// assert!(worst.evidence.starts_with("the worst of 2"));
/// assert!(worst_of("nothing".to_owned(), vec![]).is_none());
/// ```
pub fn worst_of(name: String, claims: Vec<Claim>) -> Option<Claim> {
    let tests = claims.len();
    let least = |claim: &Claim| claim.p.unwrap_or(1.0);
    let worst = claims.into_iter().min_by(|a, b| least(a).total_cmp(&least(b)))?;
    let p = smallest_of(tests, least(&worst));
    let verdict = if p < ALPHA { Verdict::Leak } else { Verdict::Pass };
    let of = worst.name.rsplit(": ").next().unwrap_or_default();
    let evidence = format!("the worst of {tests}, p = {p:.2e}: {of}: {}", worst.evidence);
    Some(Claim { name, verdict, p: Some(p), evidence, ..worst })
}

/// The smallest distance that a chi-square test on `n` samples finds, in words.
pub(crate) fn distance_found(df: f64, n: u64) -> String {
    let spread = 2.0 / (9.0 * df);
    let z = normal_quantile(ALPHA);
    let critical = df * (1.0 - spread + z * spread.sqrt()).powi(3);
    // Patnaik's normal approximation of a chi-square with its centre off by `shift`.
    let missed = |shift: f64| (df + shift - critical) / (2.0 * (df + 2.0 * shift)).sqrt();
    let enough = normal_quantile(1.0 - POWER);
    let (mut low, mut high) = (0.0, 1.0);
    while missed(high) < enough {
        high *= 2.0;
    }
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        *if missed(middle) < enough { &mut low } else { &mut high } = middle;
    }
    let distance = (high / (4.0 * n.max(1) as f64)).sqrt().min(1.0);
    let percent = 100.0 * POWER;
    format!(
        "a total variation distance of {:.2} % is found, {percent} times of 100",
        100.0 * distance
    )
}

/// The deviation that a test by a normal variable finds, in standard deviations.
pub(crate) fn deviation_found(tests: usize) -> f64 {
    normal_quantile(ALPHA / (2.0 * tests as f64)) - normal_quantile(POWER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_equal_published_tables() {
        for (z, p) in [(0.0, 0.5), (1.644_854, 0.05), (4.753_424, 1e-6), (-1.644_854, 0.95)] {
            assert!((normal_tail(z) / p - 1.0).abs() < 1e-5, "{z}: {}", normal_tail(z));
            assert!((normal_quantile(p) - z).abs() < 1e-4, "{p}: {}", normal_quantile(p));
        }
        assert!((chi_square_tail(18.307, 10.0) / 0.05 - 1.0).abs() < 1e-4);
        assert!((chi_square_tail(377.2, 255.0) / 1e-6 - 1.0).abs() < 0.1);
        assert!(chi_square_tail(0.0, 3.0) >= 1.0);
        let far = chi_square_tail(2000.0, 255.0);
        assert!(far > 0.0 && far < 1e-200, "{far}");
    }

    #[test]
    fn tails_of_rare_events_follow_the_poisson_distribution() {
        // At least three if one is expected, and none if five are: tables of the distribution.
        assert!((count_tail(3, 1.0, 1.0) / (2.0 * 0.080_301) - 1.0).abs() < 1e-4);
        assert!((count_tail(0, 5.0, 5.0) / (2.0 * 0.006_738) - 1.0).abs() < 1e-3);
        assert!(count_tail(0, 0.0, 0.0) >= 1.0);
        assert!(count_tail(1, 0.0, 0.0) <= 0.0);
        // At the limit of both methods, they agree.
        let poisson = count_tail(5100, 4990.0, 4990.0);
        let normal = count_tail(5100, 4990.0, 5000.0);
        assert!((poisson / normal - 1.0).abs() < 0.05, "{poisson} {normal}");
    }

    #[test]
    fn half_tails_equal_published_tables() {
        // Fair coins: none or all of ten, two or fewer, or eight or more.
        assert!((half_tail(10, 10, 0.5) / (2.0 / 1024.0) - 1.0).abs() < 1e-9);
        assert!((half_tail(2, 10, 0.5) / (112.0 / 1024.0) - 1.0).abs() < 1e-9);
        assert!(half_tail(5, 10, 0.5) >= 1.0 && half_tail(0, 0, 0.5) >= 1.0);
        let (exact, normal) = (half_tail(10_400, 19_999, 0.5), half_tail(10_400, 20_000, 0.5));
        assert!((exact / normal).ln().abs() < 0.2, "{exact} {normal}");
    }

    #[test]
    fn tails_of_students_t_equal_published_tables() {
        for (t, df, p) in [(2.228, 10.0, 0.05), (3.496, 50.0, 0.001), (0.0, 5.0, 1.0)] {
            assert!((t_tail(t, df) / p - 1.0).abs() < 2e-3, "{t}: {}", t_tail(t, df));
        }
        assert!(t_tail(9.0, 49.0) < 1e-10 && t_tail(-9.0, 49.0) > 0.0);
    }

    #[test]
    fn many_tail_is_one_side_of_count_tail() {
        assert!((many_tail(3, 1.0, 1.0) / 0.080_301 - 1.0).abs() < 1e-4);
        assert!(many_tail(0, 5.0, 5.0) >= 1.0 && many_tail(0, 0.0, 0.0) >= 1.0);
        assert!(many_tail(1, 0.0, 0.0) <= 0.0);
        let (rare, grouped) = (many_tail(40, 20.0, 20.0), many_tail(40, 20.0, 60.0));
        assert!(rare < 1e-4 && grouped > 1e-3, "{rare} {grouped}");
        assert!(
            (many_tail(5100, 4990.0, 5000.0) / normal_tail(110.0 / 5000f64.sqrt()) - 1.0).abs()
                < 1e-9
        );
    }

    #[test]
    fn proportion_bounds_equal_published_tables() {
        let (low, high) = proportion_bounds(5, 10, 0.025);
        assert!((low - 0.1871).abs() < 1e-3 && (high - 0.8129).abs() < 1e-3, "{low} {high}");
        // The rule of three, and its equivalent for 99.9 %.
        let (low, high) = proportion_bounds(0, 1000, 0.05);
        assert!(low == 0.0 && (high - 0.003).abs() < 1e-4, "{high}");
        assert!((proportion_bounds(1000, 1000, 0.001).0 - 0.9931).abs() < 1e-3);
    }

    #[test]
    fn detectable_distances_equal_published_sample_sizes() {
        // A distance of 1 % with 256 bins takes half a million samples at 1e-6, a few more at 1e-7.
        let words = distance_found(255.0, 560_000);
        assert!(words.contains(" 1.00 %") || words.contains(" 0.99 %"), "{words}");
        assert!((deviation_found(1) - (5.327 + 2.326)).abs() < 0.01);
    }

    #[test]
    fn the_smallest_p_is_corrected_by_the_number_of_tests() {
        assert!((smallest_of(1, 0.3) - 0.3).abs() < 1e-12);
        assert!((smallest_of(10, 1e-9) / 1e-8 - 1.0).abs() < 1e-6);
        assert!((smallest_of(2, 0.5) - 0.75).abs() < 1e-12);
    }
}
