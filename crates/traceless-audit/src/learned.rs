//! A machine that learns to tell two users apart, for leaks that nobody thought of.
//!
//! Gradient-boosted trees look at windows of accesses: the first half of each run is learned from,
//! and the second half is guessed at. That guesses are no better than a coin's is a bound on this
//! machine, and no proof.

use crate::draws::Draws;
use crate::odds::{ALPHA, judged, proportion_bounds};
use crate::report::Claim;
use smartcore::linalg::basic::matrix::DenseMatrix;
use smartcore::xgboost::{XGRegressor, XGRegressorParameters};
use statrs::function::beta::beta_reg;

/// Accesses of which one guess is made.
const WINDOW: usize = 32;

/// Windows of each user that are learned from, at most.
const LEARNED_MAX: usize = 2000;

/// Windows of each user without which nothing can be learned.
const LEARNED_MIN: usize = 20;

/// How far back an access is looked for that drew the same place.
const LOOK_BACK: usize = 4096;

/// Ranges of places whose draws are counted.
const RANGES: usize = 8;

/// How sure the bound is that is told.
const BOUND: f64 = 1e-3;

/// The claim that nobody can tell from a window of accesses which of two users it is of.
pub fn cannot_be_told_apart(a: &Draws, b: &Draws, what: &str) -> Claim {
    let name = format!("{} of two users cannot be told apart by learning: {what}", a.noun);
    let sides = [features(a), features(b)];
    let windows = sides[0].len().min(sides[1].len());
    let learned = (windows / 2).min(LEARNED_MAX);
    let guessed = windows - windows / 2;
    if learned < LEARNED_MIN {
        let power = "nothing is learned from so few accesses".to_owned();
        return judged(name, 0.0, 1.0, power, &format!("{windows} windows of {WINDOW} accesses"));
    }
    let halves = |first: usize, rows: usize| {
        let of = |side: usize| sides[side][first..first + rows].iter().cloned();
        of(0).chain(of(1)).collect::<Vec<Vec<f64>>>()
    };
    let right = guess(&halves(0, learned), &halves(windows / 2, guessed));
    let all = 2 * guessed as u64;
    let advantage = |share: f64| 2.0 * share - 1.0;
    let (_, upper) = proportion_bounds(right, all, BOUND);
    let p = if right == 0 { 1.0 } else { beta_reg(right as f64, (all - right) as f64 + 1.0, 0.5) };
    let seen = advantage(right as f64 / all as f64);
    let evidence = format!(
        "{right} of {all} windows of {WINDOW} accesses guessed right, an advantage of {seen:.4}, \
         at most {:.4} with {} % confidence",
        advantage(upper).max(0.0),
        100.0 * (1.0 - BOUND)
    );
    let found = crate::odds::deviation_found(1) / (all as f64).sqrt();
    let power = format!("an advantage of {found:.3} is found, if it can be learned");
    const { assert!(ALPHA < BOUND, "a bound is told of what passes") }
    judged(name, seen, p, power, &evidence)
}

/// How many rows of `guessed` a machine that learned from `learned` puts on the right side; the
/// first half of each is of one user.
fn guess(learned: &[Vec<f64>], guessed: &[Vec<f64>]) -> u64 {
    let matrix = |rows: &[Vec<f64>]| {
        DenseMatrix::from_2d_vec(&rows.to_vec())
            .expect("rows are of one length, and there are some")
    };
    let sides: Vec<f64> = (0..learned.len()).map(|i| side(i, learned.len())).collect();
    let parameters = XGRegressorParameters::default()
        .with_n_estimators(30)
        .with_max_depth(3)
        .with_learning_rate(0.3)
        .with_min_child_weight(20);
    let machine = XGRegressor::fit(&matrix(learned), &sides, parameters).expect("valid parameters");
    let found: Vec<f64> = machine.predict(&matrix(guessed)).expect("it has learned");
    let is_right =
        |(row, found): &(usize, f64)| (*found > 0.5) == (side(*row, guessed.len()) > 0.5);
    found.into_iter().enumerate().filter(is_right).count() as u64
}

fn side(row: usize, rows: usize) -> f64 {
    if row < rows / 2 { 0.0 } else { 1.0 }
}

/// What is looked at in each window: how draws are spread, how they are to each other, and how soon
/// they come again.
fn features(draws: &Draws) -> Vec<Vec<f64>> {
    let scale = 1.0 / draws.places as f64;
    let at: Vec<f64> = (0..draws.accesses()).map(|i| draws.pick(i) as f64 * scale).collect();
    let ages = ages(draws);
    let windows = at.chunks_exact(WINDOW).enumerate();
    windows
        .map(|(nth, window)| {
            let first = nth * WINDOW;
            let mut row = vec![0.0; RANGES];
            for x in window {
                row[((x * RANGES as f64) as usize).min(RANGES - 1)] += 1.0;
            }
            let mean = window.iter().sum::<f64>() / WINDOW as f64;
            row.push(mean);
            row.push(window.iter().map(|x| (x - mean).powi(2)).sum());
            for lag in [1, 2, 3, 4, 8] {
                let steps = window.iter().zip(&window[lag..]).map(|(a, b)| (a - b).abs());
                row.push(steps.clone().sum());
                row.push(steps.fold(1.0, f64::min));
            }
            let places = (first..first + WINDOW).map(|i| draws.pick(i));
            row.push(places.clone().map(|place| (place & 1) as f64).sum());
            row.push(places.map(|place| f64::from(place.count_ones())).sum());
            for soon in [8, 64, 512, LOOK_BACK] {
                let ages = &ages[first..first + WINDOW];
                row.push(ages.iter().filter(|age| **age <= soon).count() as f64);
            }
            row
        })
        .collect()
}

/// How many accesses ago the place of each was last drawn; of those that never were, or long ago,
/// more than [`LOOK_BACK`].
fn ages(draws: &Draws) -> Vec<usize> {
    let mut last = std::collections::HashMap::new();
    let age = |i: usize| {
        let before = last.insert(draws.pick(i), i);
        before.map_or(LOOK_BACK + 1, |before| (i - before).min(LOOK_BACK + 1))
    };
    (0..draws.accesses()).map(age).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixer::Mixer;

    fn draws(seed: u64, mut draw: impl FnMut(&mut Mixer, u64) -> u64) -> Draws {
        let mut rng = Mixer(seed << 32);
        let mut last = 0;
        let drawn = (0..60_000).map(|_| {
            last = draw(&mut rng, last);
            last
        });
        let drawn = drawn.collect();
        Draws { noun: "leaves", places: 1024, each: 1, drawn, secrets: vec![] }
    }

    #[test]
    fn two_honest_users_cannot_be_told_apart() {
        let honest = |seed| draws(seed, |rng, _| rng.below(1024));
        let p: Vec<f64> = (0..10)
            .map(|seed| cannot_be_told_apart(&honest(seed), &honest(99 + seed), "").p.unwrap())
            .collect();
        assert!(p.iter().all(|&p| p > 1e-4), "{p:?}");
        assert!(p.iter().any(|&p| p < 0.5) && p.iter().any(|&p| p > 0.5), "{p:?}");
    }

    /// Each leaks in another way, of which the machine was not told.
    #[test]
    fn what_differs_is_learned() {
        let honest = draws(1, |rng, _| rng.below(1024));
        let leaks: [fn(&mut Mixer, u64) -> u64; 3] = [
            |rng, last| if rng.below(5) == 0 { last } else { rng.below(1024) },
            |rng, _| if rng.below(5) == 0 { rng.below(256) } else { rng.below(1024) },
            |rng, last| if rng.below(4) == 0 { (last + 8) % 1024 } else { rng.below(1024) },
        ];
        for (nth, leak) in leaks.into_iter().enumerate() {
            let claim = cannot_be_told_apart(&honest, &draws(2, leak), "");
            let crate::report::Statistic::Value(advantage) = claim.statistic else { panic!() };
            assert!(claim.p.unwrap() < ALPHA && advantage > 0.2, "{nth}: {}", claim.evidence);
        }
    }

    #[test]
    fn little_is_not_enough() {
        let mut few = draws(1, |rng, _| rng.below(1024));
        for accesses in [0, 1, 31, 32, 1000] {
            few.drawn.truncate(accesses);
            assert_eq!(cannot_be_told_apart(&few, &few, "").p, Some(1.0));
        }
    }
}
