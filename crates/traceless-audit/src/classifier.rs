//! A classifier that learns to distinguish two users, to find leaks that no other test covers.
//!
//! Gradient-boosted trees classify windows of accesses. They learn from the first half of each run,
//! or as much of it as they can use, and guess the user of the other windows. Guesses no better
//! than a coin's are a bound on this classifier, and no proof.

use crate::boosting::BoostedTrees;
use crate::dense_index::numbered;
use crate::draws::Draws;
use crate::recurrence::gaps;
use crate::report::Claim;
use crate::stats::{ALPHA, claim_from_p, proportion_bounds};
use core::ops::Range;
use statrs::function::beta::beta_reg;

/// Accesses of a window, for which one guess is made.
const WINDOW: usize = 32;

/// The most windows of each user to learn from.
const TRAINING_MAX: usize = 2000;

/// The most windows of each user to guess: with so many, an advantage is bounded to less than 0.02,
/// and exceeds that by chance in one of twenty thousand pairs.
const TESTED_MAX: usize = 64_000;

/// With fewer windows of each user there is nothing to learn from.
const TRAINING_MIN: usize = 20;

/// The most accesses before an access in which its place is searched.
const LOOK_BACK: usize = 4096;

/// Ranges of places in which draws are counted.
const RANGES: usize = 8;

/// Distances at which the places of accesses in a window are compared.
const STEPS: [usize; 5] = [1, 2, 3, 4, 8];

/// Numbers of accesses within which repeated places are counted.
const SOON: [usize; 4] = [8, 64, 512, LOOK_BACK];

/// Numbers that describe a window.
const FEATURES: usize = RANGES + 2 + 2 * STEPS.len() + 2 + SOON.len();

/// The probability that the advantage exceeds the bound in the evidence.
const BOUND: f64 = 1e-3;

/// The claim that a window of accesses does not reveal which of two users made it.
///
/// The second user draws a leaf again more often than by chance, and the classifier learns it:
///
/// ```
/// use traceless_audit::{Draws, Verdict, are_indistinguishable};
/// use traceless_core::rng::{Rng, SeededRng};
///
/// let user = |seed, again: u64| {
///     let (mut rng, mut leaf) = (SeededRng::new(seed), 0);
///     let mut next = || {
///         if rng.below(100) >= again {
///             leaf = rng.below(256);
///         }
///         leaf
///     };
///     let drawn = (0..4000).map(|_| next()).collect();
///     Draws { noun: "leaves", places: 256, drawn, ..Draws::default() }
/// };
/// let sound = are_indistinguishable(&user(1, 0), &user(2, 0), "two sound users");
/// let broken = are_indistinguishable(&user(1, 0), &user(2, 40), "a leaf comes again");
/// assert_eq!((sound.verdict, broken.verdict), (Verdict::Pass, Verdict::Leak));
/// ```
pub fn are_indistinguishable(a: &Draws, b: &Draws, what: &str) -> Claim {
    let name = format!("{} of two users cannot be distinguished by learning: {what}", a.noun);
    let windows = a.accesses().min(b.accesses()) / WINDOW;
    let (training, tested) = sampled_windows(windows);
    if training.len() < TRAINING_MIN {
        let power = "nothing is learned from so few accesses".to_owned();
        return claim_from_p(
            name,
            0.0,
            1.0,
            power,
            &format!("{windows} windows of {WINDOW} accesses"),
        );
    }
    let (learned, sampled_windows) = (training.len(), training.chain(tested).collect::<Vec<_>>());
    let sides = [features(a, &sampled_windows), features(b, &sampled_windows)];
    let halves = sides.each_ref().map(|side| side.split_at(learned * FEATURES));
    claim_of_guesses(
        name,
        &UserExamples {
            noun: &format!("windows of {WINDOW} accesses"),
            features: FEATURES,
            training: halves.map(|(learned, _)| learned.to_vec()),
            tested: halves.map(|(_, guessed)| guessed.to_vec()),
        },
    )
}

/// Examples of two users: rows of features, one after the other.
pub(crate) struct UserExamples<'a> {
    /// What a row is about, in the plural.
    pub noun: &'a str,
    /// Numbers of a row.
    pub features: usize,
    /// What is learned from, of each user.
    pub training: [Vec<f32>; 2],
    /// What is guessed, of each user.
    pub tested: [Vec<f32>; 2],
}

/// The claim `name`: after it has learned from examples of two users, a classifier does no better
/// than a coin with further ones. If one user has more of these, the rest is left out.
pub(crate) fn claim_of_guesses(name: String, examples: &UserExamples<'_>) -> Claim {
    let UserExamples { noun, features, training, tested } = examples;
    let rows = |of: &[f32]| of.len() / features;
    if training.iter().chain(tested).any(|side| rows(side) < TRAINING_MIN) {
        let power = "nothing is learned from so few examples".to_owned();
        return claim_from_p(name, 0.0, 1.0, power, &format!("too few {noun}"));
    }
    let each = rows(&tested[0]).min(rows(&tested[1]));
    let classifier = learn(&training[0], &training[1], *features);
    let second = |side: usize| guesses(&classifier, &tested[side][..each * features]);
    let right = (each - second(0) + second(1)) as u64;
    let all = 2 * each as u64;
    let advantage = |share: f64| 2.0 * share - 1.0;
    let (_, upper) = proportion_bounds(right, all, BOUND);
    let p = if right == 0 { 1.0 } else { beta_reg(right as f64, (all - right) as f64 + 1.0, 0.5) };
    let observed = advantage(right as f64 / all as f64);
    let evidence = format!(
        "{right} of {all} {noun} guessed right, an advantage of {observed:.4}, at most {:.4} with \
         {} % confidence",
        advantage(upper).max(0.0),
        100.0 * (1.0 - BOUND)
    );
    let found = crate::stats::deviation_found(1) / (all as f64).sqrt();
    let power = format!("an advantage of {found:.3} is found, if it can be learned");
    const { assert!(ALPHA < BOUND, "what passes has a bound") }
    claim_from_p(name, observed, p, power, &evidence)
}

/// The windows to learn from, and the windows to guess: if there are more than needed, windows at
/// equal distances.
fn sampled_windows(windows: usize) -> (Range<usize>, impl ExactSizeIterator<Item = usize>) {
    let training = (windows / 2).min(TRAINING_MAX);
    let rest = windows - training;
    let tested = rest.min(TESTED_MAX);
    (0..training, (0..tested).map(move |nth| training + nth * rest / tested))
}

/// Learns from rows of two users.
fn learn(a: &[f32], b: &[f32], features: usize) -> BoostedTrees {
    let rows = |side: &[f32]| side.len() / features;
    let mut sides = vec![0.0; rows(a)];
    sides.resize(rows(a) + rows(b), 1.0);
    BoostedTrees::fit(&[a, b].concat(), features, &sides)
}

/// How many rows the classifier attributes to the second user.
fn guesses(classifier: &BoostedTrees, rows: &[f32]) -> usize {
    classifier.guess(rows).filter(|side| *side > 0.5).count()
}

/// [`FEATURES`] numbers for each of `windows`: the distribution of its draws, their differences,
/// and how soon places come again.
fn features(draws: &Draws, windows: &[usize]) -> Vec<f32> {
    let scale = 1.0 / draws.places as f64;
    let ages = ages(draws);
    let mut rows = Vec::with_capacity(windows.len() * FEATURES);
    for first in windows.iter().map(|window| window * WINDOW) {
        let places: [u64; WINDOW] = core::array::from_fn(|i| draws.pick(first + i));
        let ages = &ages[first..][..WINDOW];
        let at: [f32; WINDOW] = core::array::from_fn(|i| (places[i] as f64 * scale) as f32);
        let mut ranges = [0.0; RANGES];
        for x in at {
            ranges[((x * RANGES as f32) as usize).min(RANGES - 1)] += 1.0;
        }
        rows.extend(ranges);
        let mean = at.iter().sum::<f32>() / WINDOW as f32;
        rows.push(mean);
        rows.push(at.iter().map(|x| (x - mean).powi(2)).sum());
        for lag in STEPS {
            let steps = at.iter().zip(&at[lag..]).map(|(a, b)| (a - b).abs());
            rows.push(steps.clone().sum());
            rows.push(steps.fold(1.0, f32::min));
        }
        rows.push(places.iter().map(|place| (place & 1) as f32).sum());
        rows.push(places.iter().map(|place| place.count_ones() as f32).sum());
        rows.extend(
            SOON.map(|soon| ages.iter().filter(|age| usize::from(**age) <= soon).count() as f32),
        );
    }
    rows
}

/// For each access, how many accesses ago its place was last drawn; more than [`LOOK_BACK`] if it
/// never was, or longer ago.
fn ages(draws: &Draws) -> Vec<u16> {
    let places = numbered(&draws.drawn, draws.places);
    let picked: Vec<u32> = (0..draws.accesses()).map(|i| places[draws.picked(i)]).collect();
    let age = |gap: u32| gap.min(LOOK_BACK as u32 + 1) as u16;
    gaps(&picked, 1).into_iter().map(age).collect()
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
        Draws { noun: "leaves", places: 1024, drawn, ..Draws::default() }
    }

    #[test]
    fn the_classifier_does_not_distinguish_sound_users() {
        let honest = |seed| draws(seed, |rng, _| rng.below(1024));
        let p: Vec<f64> = (0..10)
            .map(|seed| are_indistinguishable(&honest(seed), &honest(99 + seed), "").p.unwrap())
            .collect();
        assert!(p.iter().all(|&p| p > 1e-4), "{p:?}");
        assert!(p.iter().any(|&p| p < 0.5) && p.iter().any(|&p| p > 0.5), "{p:?}");
    }

    /// Each user leaks in another way, for which the classifier has no special feature.
    #[test]
    fn the_classifier_learns_differences() {
        let honest = draws(1, |rng, _| rng.below(1024));
        let leaks: [fn(&mut Mixer, u64) -> u64; 3] = [
            |rng, last| if rng.below(5) == 0 { last } else { rng.below(1024) },
            |rng, _| if rng.below(5) == 0 { rng.below(256) } else { rng.below(1024) },
            |rng, last| if rng.below(4) == 0 { (last + 8) % 1024 } else { rng.below(1024) },
        ];
        for (nth, leak) in leaks.into_iter().enumerate() {
            let claim = are_indistinguishable(&honest, &draws(2, leak), "");
            let crate::report::Statistic::Value(advantage) = claim.statistic else { panic!() };
            assert!(claim.p.unwrap() < ALPHA && advantage > 0.2, "{nth}: {}", claim.evidence);
        }
    }

    #[test]
    fn tested_windows_follow_the_training_windows_at_equal_distances() {
        let of = |windows| {
            let (training, tested) = sampled_windows(windows);
            (training, tested.collect::<Vec<_>>())
        };
        assert_eq!(of(0), (0..0, vec![]));
        assert_eq!(of(1), (0..0, vec![0]));
        assert_eq!(of(7), (0..3, vec![3, 4, 5, 6]));
        let most = TRAINING_MAX + TESTED_MAX;
        for windows in [2 * TRAINING_MAX, most - 1, most] {
            assert_eq!(of(windows), (0..TRAINING_MAX, (TRAINING_MAX..windows).collect()));
        }
        for windows in [most + 1, 2 * most, 10 * most + 7] {
            let (training, tested) = of(windows);
            assert_eq!((training.len(), tested.len()), (TRAINING_MAX, TESTED_MAX));
            assert_eq!(tested[0], TRAINING_MAX, "nothing is guessed at that was learned from");
            let apart = (windows - TRAINING_MAX) / TESTED_MAX;
            let steps = tested.windows(2).map(|two| two[1] - two[0]);
            assert!(steps.into_iter().all(|step| step == apart || step == apart + 1), "{windows}");
            assert!((windows - apart - 1..windows).contains(&tested[TESTED_MAX - 1]));
        }
    }

    #[test]
    fn the_classifier_needs_enough_windows() {
        let mut few = draws(1, |rng, _| rng.below(1024));
        for accesses in [0, 1, 31, 32, 1000] {
            few.drawn.truncate(accesses);
            assert_eq!(are_indistinguishable(&few, &few, "").p, Some(1.0));
        }
    }
}
