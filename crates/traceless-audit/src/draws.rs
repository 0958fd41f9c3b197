//! Tests whether the places that accesses draw are uniform, fresh, and independent of everything
//! else.
//!
//! The tests complement each other, since each finds leaks that no other does: how often each place
//! is drawn, and each half of the tree at each level; whether a draw depends on earlier ones,
//! coarsely at sixteen distances, at every depth of a tree for its neighbours, or on several of
//! them together; whether a place is drawn again within a window, at full resolution, or at any
//! distance; whether a draw depends on a known secret, alone or together with earlier draws; and
//! whether two users draw alike. Each test gives the probability of its result, or of a worse one,
//! if the claim is true.

use crate::mixer::Mixer;
use crate::permutation::permutation_share;
use crate::report::Claim;
use crate::stats::{chi_square_tail, claim_from_p, distance_found, smallest_of};
use crate::table::{PAIR_CLASSES, Table};

/// Classes of places in tests of single draws.
const CLASSES: u64 = 256;

/// Distances at which pairs of draws are compared.
const LAGS: usize = 16;

/// Distances at which neighbours in a tree are counted.
const NEAR_LAGS: usize = 4;

/// Accesses after a secret's in which it may still show.
const SECRET_LAGS: usize = 4;

/// The fewest draws that a class must expect, for a chi-square to follow its distribution.
const EXPECTED_MIN: u64 = 5;

/// Places that are drawn anew by each access: leaves of a tree, or slots of an array.
///
/// A scheme that draws from half of its leaves only is found:
///
/// ```
/// use traceless_audit::{Draws, Verdict};
/// use traceless_core::rng::{Rng, SeededRng};
///
/// let user = |drawn_from| {
///     let mut rng = SeededRng::new(1);
///     let drawn = (0..5000).map(|_| rng.below(drawn_from)).collect();
///     Draws { noun: "leaves", places: 64, drawn, ..Draws::default() }
/// };
/// let all_pass =
///     |user: Draws| user.claims("A").iter().all(|claim| claim.verdict == Verdict::Pass);
/// assert!(all_pass(user(64)));
/// assert!(!all_pass(user(32)));
/// assert_eq!(user(32).are_uniform("A").verdict, Verdict::Leak);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draws {
    /// The name of the places, in the plural.
    pub noun: &'static str,
    /// The number of places.
    pub places: u64,
    /// Different places drawn by one access.
    pub each: usize,
    /// The places of all accesses, access by access.
    pub drawn: Vec<u64>,
    /// The secret of each access; empty if it is not known.
    pub secrets: Vec<u64>,
    /// Further bits of the secret of each access, for example an address and whether it is read or
    /// written; empty if `secrets` hold everything.
    pub request_bits: Vec<u64>,
    /// How places are drawn again.
    pub recurrence: Recurrence,
}

/// How places are drawn again in a sound scheme.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Recurrence {
    /// Each draw is from all places.
    #[default]
    ByChance,
    /// A place is not drawn again before something is written to it, so places come again less
    /// often than by chance, and never more often.
    Later,
}

impl Default for Draws {
    /// One place, and no draws.
    fn default() -> Self {
        Self {
            noun: "places",
            places: 1,
            each: 1,
            drawn: vec![],
            secrets: vec![],
            request_bits: vec![],
            recurrence: Recurrence::ByChance,
        }
    }
}

impl Draws {
    /// The number of accesses.
    pub fn accesses(&self) -> usize {
        self.drawn.len() / self.each
    }

    /// All claims about one user.
    pub fn claims(&self, what: &str) -> Vec<Claim> {
        let mut claims = vec![
            self.are_uniform(what),
            self.are_serially_independent(what),
            self.are_not_near_each_other(what),
            self.recur_by_chance(what),
            self.are_not_autocorrelated(what),
            self.recur_by_chance_at_any_distance(what),
            self.are_from_both_halves(what),
            self.are_from_both_halves_at_each_level(what),
            self.are_independent_of_several_before(what),
        ];
        if self.secrets.iter().any(|secret| *secret != self.secrets[0]) {
            claims.push(self.are_independent_of_secrets(what));
            claims.push(self.are_independent_of_secrets_given_earlier(what));
        }
        claims
    }

    /// The claim that every place is drawn equally often: by ranges of places, and by their lowest
    /// bits.
    pub fn are_uniform(&self, what: &str) -> Claim {
        let all = self.drawn.len() as u64;
        let classes = CLASSES.min(self.places).min(all / EXPECTED_MIN).max(1);
        let test = |class: Class| {
            let mut counts = vec![0u64; classes as usize];
            self.drawn.iter().for_each(|&place| counts[class.of(place) as usize] += 1);
            let share = |nth| class.places(nth) as f64 / self.places as f64;
            let expected = (0..classes).map(|nth| all as f64 * share(nth));
            fit(&counts, expected)
        };
        let tests: Vec<Test> = self.splits(classes).map(test).collect();
        let df = classes as f64 - 1.0;
        let evidence = format!("{all} draws from {} places", self.places);
        self.by_worst("are uniform", what, &tests, &evidence, distance_found(df, all))
    }

    /// The claim that a draw does not depend on the draws of any of the sixteen accesses before it.
    pub fn are_serially_independent(&self, what: &str) -> Claim {
        let classes = self.pair_classes(self.accesses() / 2);
        let mut tests = vec![];
        for class in self.splits(classes) {
            let of = self.classes(class);
            for lag in 1..=LAGS.min(of.len().saturating_sub(1)) {
                let mut table = Table::new(classes as usize, classes as usize);
                table.add_apart(&of, lag);
                tests.push(table.dependence());
            }
        }
        let evidence = format!("pairs of {} accesses, 1 to {LAGS} apart", self.accesses());
        let df = ((classes - 1) * (classes - 1)) as f64;
        let power = distance_found(df.max(1.0), self.accesses() as u64 / 2);
        self.by_worst("do not depend on earlier ones", what, &tests, &evidence, power)
    }

    /// The claim that successive accesses agree in the first levels of a binary tree as often as by
    /// chance, at every depth. Places are leaves from left to right.
    pub fn are_not_near_each_other(&self, what: &str) -> Claim {
        let accesses = self.accesses() as u64;
        // If leaves are no power of two, subtrees near the leaves are of different sizes; and if
        // places are not drawn again at once, neighbours near the leaves are rarer. These depths
        // are left out.
        let is_exact = self.places.is_power_of_two() && self.recurrence == Recurrence::ByChance;
        let exact = if is_exact { 0 } else { 6 };
        let levels = self.places.ilog2().saturating_sub(exact);
        let depths = levels.min((accesses / EXPECTED_MIN).max(1).ilog2()) as usize;
        let scale = (1u64 << 32) as f64 / self.places as f64;
        let at: Vec<u32> =
            (0..self.accesses()).map(|i| (self.pick(i) as f64 * scale) as u32).collect();
        let mut tests = vec![];
        for lag in 1..=NEAR_LAGS.min(at.len().saturating_sub(1)) {
            let mut counts = vec![0u64; depths + 1];
            for (a, b) in at.iter().zip(&at[lag..]) {
                counts[((a ^ b).leading_zeros() as usize).min(depths)] += 1;
            }
            let pairs = (at.len() - lag) as f64;
            let parts = (0..=depths).map(|d| (-((d + 1).min(depths) as f64)).exp2() * pairs);
            tests.push(fit(&counts, parts));
        }
        let evidence = format!("{accesses} accesses, {depths} depths, up to {NEAR_LAGS} apart");
        let power = distance_found(depths.max(1) as f64, accesses);
        self.by_worst("are not near those before", what, &tests, &evidence, power)
    }

    /// The claim that a draw does not depend on the secret of its access, nor on the secrets of the
    /// four accesses before, nor on that of the one after: an access may still be under way when
    /// the next request comes.
    pub fn are_independent_of_secrets(&self, what: &str) -> Claim {
        self.are_independent_of("secrets", true, what)
    }

    /// The same claim for something known when each access began, for example another place. It
    /// cannot depend on the access after.
    pub(crate) fn are_independent_of_earlier(&self, what: &str) -> Claim {
        self.are_independent_of("earlier ones", false, what)
    }

    fn are_independent_of(&self, noun: &str, may_lag: bool, what: &str) -> Claim {
        let classes = self.pair_classes(self.accesses());
        let secrets = secret_classes(&self.secrets);
        let places: Vec<_> = self.splits(classes).map(|class| self.classes(class)).collect();
        let mut pairings = vec![];
        for (secrets, places) in secrets.iter().flat_map(|s| places.iter().map(move |p| (s, p))) {
            for lag in 0..=SECRET_LAGS.min(places.len()) {
                pairings.push((&secrets[..], &places[lag..]));
            }
            if may_lag {
                pairings.push((&secrets[1.min(secrets.len())..], &places[..]));
            }
        }
        let table = |(secrets, places): &(&[u8], &[u8])| {
            let mut table = Table::new(PAIR_CLASSES as usize, classes as usize);
            table.add_all(secrets, places);
            table
        };
        let tests: Vec<_> = pairings.iter().map(|pair| table(pair).dependence()).collect();
        let strongest = &pairings[worst(&tests)];
        let share = permutation_share(strongest.0, strongest.1, classes as usize);
        let accesses = self.accesses() as u64;
        let evidence = format!(
            "{accesses} accesses, {:.2e} bits of mutual information, as much in {:.0} % of \
             permutations",
            table(strongest).information(),
            100.0 * share
        );
        let df = ((PAIR_CLASSES - 1) * (classes - 1)) as f64;
        let power = distance_found(df.max(1.0), accesses);
        self.by_worst(&format!("tell nothing of {noun}"), what, &tests, &evidence, power)
    }

    /// The claim that two users' draws have the same distribution.
    pub fn have_distribution_of(&self, other: &Self, what: &str) -> Claim {
        let fewer = self.drawn.len().min(other.drawn.len()) as u64;
        let classes = CLASSES.min(self.places).min(fewer / EXPECTED_MIN).max(1);
        let test = |class: Class| {
            let mut table = Table::new(2, classes as usize);
            for (side, draws) in [(0, self), (1, other)] {
                draws.drawn.iter().for_each(|&place| table.add(side, class.of(place) as usize));
            }
            table.dependence()
        };
        let tests: Vec<Test> = self.splits(classes).map(test).collect();
        let evidence = format!("{} and {} draws", self.drawn.len(), other.drawn.len());
        let power = distance_found(classes as f64, fewer / 2);
        self.by_worst("of two users are spread alike", what, &tests, &evidence, power)
    }

    fn by_worst(
        &self,
        claim: &str,
        what: &str,
        tests: &[Test],
        evidence: &str,
        power: String,
    ) -> Claim {
        let Some(&(statistic, df, p)) = tests.get(worst(tests)) else {
            let power = "nothing is found in so few accesses".to_owned();
            return claim_from_p(self.name(claim, what), 0.0, 1.0, power, evidence);
        };
        let of =
            if tests.len() > 1 { format!("the worst of {}: ", tests.len()) } else { String::new() };
        let evidence =
            format!("{evidence}; {of}chi-square {statistic:.1} of {df} degrees of freedom");
        let p = smallest_of(tests.len(), p);
        claim_from_p(self.name(claim, what), statistic, p, power, &evidence)
    }

    pub(crate) fn name(&self, claim: &str, what: &str) -> String {
        format!("{} {claim}: {what}", self.noun)
    }

    /// One place of an access, selected at random, because the places may be sorted.
    #[inline]
    pub(crate) fn pick(&self, access: usize) -> u64 {
        self.drawn[self.picked(access)]
    }

    /// The index of that place among all draws.
    #[inline]
    pub(crate) fn picked(&self, access: usize) -> usize {
        let nth = if self.each > 1 { Mixer(access as u64).below(self.each as u64) } else { 0 };
        access * self.each + nth as usize
    }

    /// The class of each access.
    fn classes(&self, class: Class) -> Vec<u8> {
        (0..self.accesses()).map(|i| class.of(self.pick(i)) as u8).collect()
    }

    /// The number of classes for which `pairs` pairs fill all pairs of classes.
    fn pair_classes(&self, pairs: usize) -> u64 {
        let filled = (pairs as u64 / EXPECTED_MIN).isqrt();
        PAIR_CLASSES.min(self.places).min(filled).max(1)
    }

    /// The ways to put places into `classes` classes: ranges of places, and every n-th place. Both
    /// are the same if each place is a class.
    fn splits(&self, classes: u64) -> impl Iterator<Item = Class> + use<> {
        let places = self.places;
        let high = Class { places, classes, scale: Some(classes as f64 / places as f64) };
        let low = (classes < places).then_some(Class { places, classes, scale: None });
        core::iter::once(high).chain(low)
    }
}

/// Statistic, degrees of freedom, and probability.
pub(crate) type Test = (f64, f64, f64);

/// The index of the test with the smallest probability.
pub(crate) fn worst(tests: &[Test]) -> usize {
    let numbered = tests.iter().enumerate();
    numbered.min_by(|(_, a), (_, b)| a.2.total_cmp(&b.2)).map_or(0, |(nth, _)| nth)
}

/// Compares counts with the counts expected by chance.
fn fit(counts: &[u64], expected: impl Iterator<Item = f64>) -> Test {
    let deviations = counts.iter().zip(expected).map(|(&c, e)| (c as f64 - e).powi(2) / e);
    let statistic: f64 = deviations.sum();
    let df = counts.len() as f64 - 1.0;
    (statistic, df, chi_square_tail(statistic, df))
}

/// Places in classes of equal size, to within one place: ranges of places, or every n-th place.
#[derive(Clone, Copy)]
struct Class {
    places: u64,
    classes: u64,
    /// Classes divided by places, if classes are ranges; nothing if a class is every n-th place.
    scale: Option<f64>,
}

impl Class {
    #[inline]
    fn of(self, place: u64) -> u64 {
        match self.scale {
            Some(scale) => ((place as f64 * scale) as u64).min(self.classes - 1),
            None => place % self.classes,
        }
    }

    /// The number of places in a class.
    fn places(self, class: u64) -> u64 {
        let whole = |first: u64| (first * self.places).div_ceil(self.classes);
        match self.scale {
            Some(_) => whole(class + 1) - whole(class),
            None => (self.places - class).div_ceil(self.classes),
        }
    }
}

/// Classes of secrets by their size, and by their remainder; only once, if each secret is a class.
pub(crate) fn secret_classes(secrets: &[u64]) -> Vec<Vec<u8>> {
    let most = secrets.iter().copied().max().unwrap_or(0);
    let low = secrets.iter().map(|secret| (secret % PAIR_CLASSES) as u8).collect();
    if most < PAIR_CLASSES {
        return vec![low];
    }
    let scale = PAIR_CLASSES as f64 / (most as f64 + 1.0);
    let high = |&secret: &u64| ((secret as f64 * scale) as u64).min(PAIR_CLASSES - 1) as u8;
    vec![low, secrets.iter().map(high).collect()]
}

#[cfg(test)]
#[path = "draws_tests.rs"]
mod tests;
