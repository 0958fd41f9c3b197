//! The state of the audit that runs beside a product: what was checked, and whether it leaks.

use serde::Serialize;
use traceless_core::activity::AuditReading;

/// Standard deviations by which draws may deviate from even ones. The audit is looked at all the
/// time, and by chance this is exceeded once in 10^12 looks.
const DEVIATION_MAX: f64 = 7.0;

/// Draws for each part, at least, before their numbers are judged.
const DRAWS_MIN: f64 = 8.0;

/// What the audit has found so far.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct AuditState {
    /// What it all comes to.
    pub verdict: LiveVerdict,
    /// Writes to slots that are written in turn, and how many of them were out of turn.
    pub in_turn: u64,
    pub out_of_turn: u64,
    /// First byte of the first write out of turn.
    pub first_out_of_turn: Option<u64>,
    /// Draws of leaves or slots.
    pub draws: u64,
    /// By how many standard deviations their numbers are less even than by chance; negative if
    /// they are more even. `None` as long as there are too few.
    pub deviation: Option<f64>,
}

/// What the checks come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveVerdict {
    /// This product has nothing that is checked while it runs, or nothing happened yet.
    NothingChecked,
    /// Every check holds so far.
    NothingFound,
    /// A write was out of turn, or draws are not even.
    Leak,
}

impl AuditState {
    /// The state after these counts.
    pub fn of(counts: &AuditReading) -> Self {
        let draws = counts.draws.iter().fold(0, |sum: u64, (draws, _)| sum.wrapping_add(*draws));
        let deviation = deviation(&counts.draws);
        let is_uneven = deviation.is_some_and(|deviation| deviation > DEVIATION_MAX);
        let verdict = if counts.out_of_turn > 0 || is_uneven {
            LiveVerdict::Leak
        } else if counts.in_turn > 0 || deviation.is_some() {
            LiveVerdict::NothingFound
        } else {
            LiveVerdict::NothingChecked
        };
        Self {
            verdict,
            in_turn: counts.in_turn,
            out_of_turn: counts.out_of_turn,
            first_out_of_turn: counts.first_out_of_turn,
            draws,
            deviation,
        }
    }
}

/// By how many standard deviations the chi-square of these draws, each number with that of the
/// places that it is of, exceeds the expected one (Wilson and Hilferty's approximation).
fn deviation(draws: &[(u64, u64)]) -> Option<f64> {
    let sum = |of: fn(&(u64, u64)) -> u64| draws.iter().map(|one| of(one) as f64).sum::<f64>();
    let (all, places) = (sum(|one| one.0), sum(|one| one.1));
    let parts = draws.len() as f64;
    if parts < 2.0 || all < DRAWS_MIN * parts {
        return None;
    }
    let chi_square: f64 = draws
        .iter()
        .map(|(draws, of)| {
            let expected = all * *of as f64 / places;
            (*draws as f64 - expected).powi(2) / expected
        })
        .sum();
    let freedom = parts - 1.0;
    let spread = 2.0 / (9.0 * freedom);
    Some(((chi_square / freedom).cbrt() - (1.0 - spread)) / spread.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceless_core::rng::{Rng, SeededRng};

    fn reading(in_turn: u64, out_of_turn: u64, draws: Vec<(u64, u64)>) -> AuditReading {
        AuditReading { in_turn, out_of_turn, first_out_of_turn: None, draws }
    }

    fn verdict(reading: &AuditReading) -> LiveVerdict {
        AuditState::of(reading).verdict
    }

    #[test]
    fn writes_out_of_turn_are_a_leak() {
        assert_eq!(verdict(&reading(0, 0, vec![])), LiveVerdict::NothingChecked);
        assert_eq!(verdict(&reading(9, 0, vec![])), LiveVerdict::NothingFound);
        assert_eq!(verdict(&reading(9, 1, vec![])), LiveVerdict::Leak);
    }

    /// Draws of 128 parts; `favour` of a thousand go to the first part instead.
    fn draws(rng: &mut SeededRng, all: u64, favour: u64) -> Vec<(u64, u64)> {
        let mut draws = vec![(0, 3); 128];
        for _ in 0..all {
            let part = if rng.below(1000) < favour { 0 } else { rng.below(128) };
            draws[part as usize].0 += 1;
        }
        draws
    }

    #[test]
    fn uneven_draws_are_a_leak_and_even_ones_are_not() {
        let mut rng = SeededRng::new(1);
        assert_eq!(verdict(&reading(0, 0, draws(&mut rng, 1000, 0))), LiveVerdict::NothingChecked);
        for all in [1024, 5000, 100_000] {
            for _ in 0..200 {
                let even = reading(0, 0, draws(&mut rng, all, 0));
                let state = AuditState::of(&even);
                assert_eq!(state.verdict, LiveVerdict::NothingFound);
                assert!(state.deviation.unwrap().abs() < 5.0, "{state:?}");
                assert_eq!(state.draws, all);
            }
        }
        assert_eq!(verdict(&reading(0, 0, draws(&mut rng, 100_000, 10))), LiveVerdict::Leak);
        assert_eq!(verdict(&reading(0, 0, draws(&mut rng, 5000, 50))), LiveVerdict::Leak);
    }

    #[test]
    fn any_counts_have_a_state() {
        for draws in [vec![(u64::MAX, u64::MAX); 128], vec![(5, 0), (u64::MAX, 1)], vec![(9, 1)]] {
            AuditState::of(&reading(u64::MAX, 0, draws));
        }
    }
}
