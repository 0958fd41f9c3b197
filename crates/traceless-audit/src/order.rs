//! Tests the order of accesses of several kinds: it is public, or accesses come by chance.
//!
//! Ring ORAM evicts after a fixed number of accesses, and reshuffles a bucket when enough of the
//! drawn paths have met it. Accesses that come by chance must come as often, and as far apart, for
//! every user.

use crate::report::{Claim, Verdict};
use crate::stats::{chi_square_tail, claim_from_p, distance_found, t_tail, worst_of};
use crate::table::Table;

/// Parts of a trace in which accesses that come by chance are counted.
const BLOCKS: usize = 50;

/// If accesses of a kind are at one distance in this share of cases, they must always be.
const REGULAR: f64 = 0.75;

/// The fewest distances that show whether a kind comes regularly.
const DISTANCES_MIN: usize = 20;

/// Classes of distances, and the draws that each must expect.
const CLASSES: usize = 16;
const EXPECTED_MIN: usize = 10;

/// The order in which accesses come.
pub(crate) struct Order {
    /// For each kind, whether its accesses come in a public order; else they come by chance.
    pub is_regular: Vec<bool>,
    /// Claims about the order. None fails in a sound scheme.
    pub claims: Vec<Claim>,
}

/// The order of the accesses of two traces, given as kinds below `kinds`.
pub(crate) fn order(a: &[usize], b: &[usize], kinds: usize) -> Order {
    let is_regular = is_regular(a, b, kinds);
    let both = a.len().min(b.len()) as u64;
    let name = "accesses of both come in the same order: A and B";
    if is_regular.iter().all(|is_regular| *is_regular) {
        let evidence = format!("{both} accesses of {kinds} kinds");
        let power = "one access of another kind is found";
        return Order {
            is_regular,
            claims: vec![Claim::exact(name, Verdict::Pass, both, power, evidence)],
        };
    }
    let (mut claims, mut by_chance) = (vec![], vec![]);
    for kind in (0..kinds).filter(|kind| !is_regular[*kind]) {
        let [of_a, of_b] = [a, b].map(|user| TurnTimes::of(user, kind, &is_regular));
        claims.extend(breaks_a_rule(kind, [&of_a, &of_b]));
        by_chance.push(come_as_often(kind, &of_a, &of_b));
        by_chance.push(come_as_far_apart(kind, &of_a, &of_b));
    }
    let name = "accesses that come by chance come alike for both users";
    claims.extend(worst_of(name.to_owned(), by_chance));
    Order { is_regular, claims }
}

/// The kinds of accesses that come in the same order in both traces, once all other kinds are left
/// out.
fn is_regular(a: &[usize], b: &[usize], kinds: usize) -> Vec<bool> {
    let mut number = vec![0usize; kinds];
    a.iter().chain(b).for_each(|&kind| number[kind] += 1);
    let mut common: Vec<usize> = (0..kinds).collect();
    common.sort_by_key(|&kind| core::cmp::Reverse(number[kind]));
    let mut is_regular = vec![false; kinds];
    for kind in common {
        is_regular[kind] = true;
        let mut of_b = b.iter().filter(|kind| is_regular[**kind]);
        let mut of_a = a.iter().filter(|kind| is_regular[**kind]);
        is_regular[kind] = of_a.by_ref().zip(of_b.by_ref()).all(|(a, b)| a == b);
    }
    is_regular
}

/// The times of a kind's accesses, counted in accesses that come in turn.
struct TurnTimes {
    at: Vec<usize>,
    /// All accesses that come in turn.
    all: usize,
}

impl TurnTimes {
    fn of(kinds: &[usize], kind: usize, is_regular: &[bool]) -> Self {
        let (mut at, mut all) = (vec![], 0);
        for &other in kinds {
            all += usize::from(is_regular[other]);
            if other == kind {
                at.push(all);
            }
        }
        Self { at, all }
    }

    fn distances(&self) -> Vec<usize> {
        self.at.windows(2).map(|two| two[1] - two[0]).collect()
    }
}

/// The claim that accesses that are nearly always at one distance always are.
fn breaks_a_rule(kind: usize, users: [&TurnTimes; 2]) -> Option<Claim> {
    let most_common = |distances: &[usize]| {
        let mut sorted = distances.to_vec();
        sorted.sort_unstable();
        let runs = sorted.chunk_by(|a, b| a == b).map(|run| (run.len(), run[0]));
        runs.max().unwrap_or_default()
    };
    let broken = users.into_iter().zip(["A", "B"]).find_map(|(user, what)| {
        let distances = user.distances();
        let (times, distance) = most_common(&distances);
        let all = distances.len();
        let share = times as f64 / all.max(1) as f64;
        let breaks = all >= DISTANCES_MIN && share >= REGULAR;
        breaks.then(|| {
            format!("{what}: in {times} of {all} cases {distance} accesses after the one before")
        })
    })?;
    let name = format!("kind {} comes regularly, or by chance: A and B", kind + 1);
    Some(Claim::exact(name, Verdict::Leak, 0, "one case is found", broken))
}

/// The claim that each part of both traces has equally many accesses of a kind.
fn come_as_often(kind: usize, a: &TurnTimes, b: &TurnTimes) -> Claim {
    let part = a.all.min(b.all) / BLOCKS;
    let name = format!("accesses come as often: kind {}", kind + 1);
    if part == 0 {
        return claim_from_p(
            name,
            0.0,
            1.0,
            "nothing is found in so few accesses".to_owned(),
            "few",
        );
    }
    let counts = |times: &TurnTimes| {
        let mut counts = [0f64; BLOCKS];
        for at in times.at.iter().map(|at| at.saturating_sub(1) / part).filter(|at| *at < BLOCKS) {
            counts[at] += 1.0;
        }
        counts
    };
    let (of_a, of_b) = (counts(a), counts(b));
    let differences: Vec<f64> = of_a.iter().zip(of_b).map(|(a, b)| a - b).collect();
    let n = BLOCKS as f64;
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // With fewer than one access in a part, the differences are too uneven for Student's
    // distribution.
    let t = mean / (variance.max(1.0 / n) / n).sqrt();
    let (a, b) = (of_a.iter().sum::<f64>(), of_b.iter().sum::<f64>());
    let evidence = format!("{a} and {b} in {BLOCKS} parts of {part} accesses, t = {t:.2}");
    let found = crate::stats::deviation_found(1) * (variance / n).sqrt();
    let power = format!("{found:.2} more in a part are found");
    claim_from_p(name, t, t_tail(t, n - 1.0), power, &evidence)
}

/// The claim that accesses of a kind are equally far apart in both traces.
fn come_as_far_apart(kind: usize, a: &TurnTimes, b: &TurnTimes) -> Claim {
    let sides = [a.distances(), b.distances()];
    let mut sorted = sides.concat();
    sorted.sort_unstable();
    let fewer = sides[0].len().min(sides[1].len());
    let classes = CLASSES.min(fewer / EXPECTED_MIN).max(1);
    let mut limits: Vec<usize> =
        (1..classes).map(|nth| sorted[nth * sorted.len() / classes]).collect();
    limits.dedup();
    let mut table = Table::new(2, limits.len() + 1);
    for (side, distances) in sides.iter().enumerate() {
        for distance in distances {
            table.add(side, limits.partition_point(|limit| limit <= distance));
        }
    }
    let (statistic, df, p) = table.dependence();
    let name = format!("accesses are as far apart: kind {}", kind + 1);
    let (of_a, of_b) = (sides[0].len(), sides[1].len());
    let evidence = format!(
        "{of_a} and {of_b} distances; chi-square {statistic:.1} of {df} degrees of freedom"
    );
    claim_from_p(name, statistic, p, distance_found(df.max(1.0), fewer as u64 / 2), &evidence)
}

/// The probability that `labels` depend on the `secrets` at the same place only as much as on
/// secrets at other places: both may follow schedules of their own.
pub(crate) fn dependence_beyond_shifts(secrets: &[u8], labels: &[u8], classes: [usize; 2]) -> f64 {
    /// The number of other places that are tried.
    const SHIFTS: usize = 100;
    let n = secrets.len().min(labels.len());
    let dependence = |shift: usize| {
        let mut table = Table::new(classes[0], classes[1]);
        table.add_all(&secrets[shift..n], labels);
        table.add_all(&secrets[..shift], &labels[n - shift..]);
        table.dependence()
    };
    let (statistic, df, _) = dependence(0);
    if n < 2 * SHIFTS || df < 1.0 {
        return 1.0;
    }
    let shifts = (1..=SHIFTS).map(|nth| nth * n / (SHIFTS + 1));
    let usual = shifts.map(|shift| dependence(shift).0).sum::<f64>() / SHIFTS as f64;
    chi_square_tail(statistic * df / usual.max(df), df)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::Distance;
    use crate::mixer::Mixer;

    /// Accesses of kind 0, one of kind 1 after each three, and accesses of kind 2 if `comes` says
    /// so.
    fn kinds(seed: u64, mut comes: impl FnMut(&mut Mixer, u64) -> bool) -> Vec<usize> {
        let mut rng = Mixer(seed << 32);
        let mut kinds = vec![];
        for nth in 0..6000 {
            kinds.push(0);
            if nth % 3 == 2 {
                kinds.push(1);
            }
            if comes(&mut rng, nth) {
                kinds.push(2);
            }
        }
        kinds
    }

    fn by_chance(seed: u64) -> Vec<usize> {
        kinds(seed, |rng, _| rng.below(5) == 0)
    }

    fn leaks(order: &Order) -> bool {
        order.claims.iter().any(|claim| claim.verdict != Verdict::Pass)
    }

    #[test]
    fn regular_kinds_are_distinguished_from_kinds_by_chance() {
        let found = order(&by_chance(1), &by_chance(2), 3);
        assert_eq!(found.is_regular, [true, true, false]);
        assert!(!leaks(&found), "{:?}", found.claims);
        let same = order(&by_chance(1), &by_chance(1)[..4000], 3);
        assert_eq!(same.is_regular, [true; 3]);
        let p: Vec<f64> = (0..200)
            .map(|seed| {
                order(&by_chance(2 * seed), &by_chance(2 * seed + 1), 3).claims[0].p.unwrap()
            })
            .collect();
        assert!(Distance::from_uniform(&p).p > 1e-3 && p.iter().all(|&p| p > 1e-5), "{p:?}");
    }

    #[test]
    fn different_rates_and_distances_are_found() {
        let more = kinds(2, |rng, _| rng.below(3) == 0);
        assert!(leaks(&order(&by_chance(1), &more, 3)));
        let evenly = kinds(2, |rng, nth| nth % 5 == 0 || (nth % 5 == 1 && rng.below(100) == 0));
        assert!(leaks(&order(&by_chance(1), &evenly, 3)));
    }

    /// One eviction of five hundred comes too soon.
    #[test]
    fn kinds_that_are_nearly_always_regular_are_found() {
        let mut soon = kinds(1, |_, _| false);
        let nths: Vec<usize> = (0..soon.len()).filter(|&nth| soon[nth] == 1).collect();
        for nth in nths.into_iter().step_by(500).skip(1) {
            soon.swap(nth, nth - 1);
        }
        assert!(leaks(&order(&kinds(2, |_, _| false), &soon, 3)));
    }

    #[test]
    fn two_schedules_are_not_dependent_and_a_leaked_secret_is() {
        let mut rng = Mixer(1);
        let scan: Vec<u8> = (0..6000).map(|nth| (nth % 16) as u8).collect();
        let by_turn: Vec<u8> = (0..6000).map(|nth| u8::from(nth % 8 == 0)).collect();
        assert!(dependence_beyond_shifts(&scan, &by_turn, [16, 2]) > 1e-3);
        let drawn: Vec<u8> = (0..6000).map(|_| rng.below(16) as u8).collect();
        let labels: Vec<u8> =
            drawn.iter().map(|&s| u8::from(s == 3 && rng.below(2) == 0)).collect();
        assert!(dependence_beyond_shifts(&drawn, &labels, [16, 2]) < 1e-7);
        let p: Vec<f64> = (0..100)
            .map(|_| {
                let labels: Vec<u8> = (0..2000).map(|_| u8::from(rng.below(5) == 0)).collect();
                dependence_beyond_shifts(&drawn, &labels, [16, 2])
            })
            .collect();
        assert!(Distance::below_uniform(&p).p > 1e-3, "{p:?}");
    }
}
