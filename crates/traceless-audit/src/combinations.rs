//! Tests whether places depend on a secret only together with earlier places: by the exclusive or
//! of two of them, by their difference, or by their sum.

use crate::draws::{Draws, Recurrence, secret_classes};
use crate::labels::{Bits, Labels, same_before};
use crate::linear::{Columns, cases, is_even, rows_for, sum_by_chance};
use crate::parity::{BITS_MAX, Derivation, Numbers, Strongest, half_deviance, test_parities};
use crate::report::Claim;
use crate::stats::{claim_from_p, deviation_found, many_tail, smallest_of};
use crate::table::{PAIR_CLASSES, Table};

/// The most accesses that are tested beside secrets: the first ones.
const WITH_SECRETS_MAX: usize = 100 << 10;

/// The most accesses that are tested without secrets.
const ALONE_MAX: usize = 1 << 16;

/// The farthest place before a place that it is combined with; and the most accesses from a
/// secret's request to a place that depends on it.
const BACK: usize = 16;

/// `BACK` for tests of many columns or kinds.
const BACK_FEW: usize = 2;

/// The farthest place before a place that is added to it.
const SUMS: usize = 4;

/// Distances at which any bit of one place is combined with any of the other, and the number of
/// bits that are combined.
const CROSSED: usize = 4;
const CROSSED_BITS: u32 = 20;

/// Secrets that count as known when a place is drawn: so many before, and one after.
const SECRETS_BEFORE: usize = 4;

/// Shares of a trace by which secrets are shifted for comparison.
const DELAYS: [f64; 4] = [0.19, 0.37, 0.53, 0.71];

/// How two places make one number.
#[derive(Clone, Copy, Debug)]
enum Combine {
    Xor,
    Difference,
    Sum,
}

/// How much is tested: the number of places before, and whether parities must be even by
/// themselves.
#[derive(Clone, Copy)]
struct Depth {
    back: usize,
    is_even: bool,
}

const ALL: [Combine; 3] = [Combine::Xor, Combine::Difference, Combine::Sum];

impl Combine {
    /// Combines pairs of places.
    fn of(self, a: &[u64], b: &[u64], places: u64) -> Vec<u64> {
        let pairs = a.iter().zip(b);
        // Without checks for overflow, so that the compiler vectorises the loop.
        match self {
            Self::Xor => pairs.map(|(a, b)| a ^ b).collect(),
            Self::Difference => pairs
                .map(|(a, b)| a.wrapping_sub(*b).wrapping_add(if a < b { places } else { 0 }))
                .collect(),
            Self::Sum => pairs
                .map(|(a, b)| {
                    let left = places.wrapping_sub(*b);
                    a.wrapping_sub(left).wrapping_add(if *a < left { places } else { 0 })
                })
                .collect(),
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Xor => "exclusive or",
            Self::Difference => "difference",
            Self::Sum => "sum",
        }
    }
}

/// The places of accesses, and the windows of bits of them that are tested at a time.
struct Places {
    at: Vec<u64>,
    count: u64,
    bits: u32,
    windows: Vec<(u32, u32)>,
    /// Whether each bit is a fair coin, and draws are independent.
    is_even: bool,
}

impl Draws {
    /// The claim that a place is independent of the secret: alone, together with one of the `BACK`
    /// places before it, and together with the place of the last access with the same secret.
    /// Tested are any parity of bits of the place, or of the exclusive or, the difference or the
    /// sum of both; classes; any two bits; and any sum of bits of all of these modulo 2. Each bit
    /// of a secret, each bit that changed, and how soon the secret came again count as secret.
    pub fn are_independent_of_secrets_given_earlier(&self, what: &str) -> Claim {
        let is_even = self.places.is_power_of_two() && self.recurrence == Recurrence::ByChance;
        let how = Depth { back: BACK, is_even };
        self.are_independent_given_earlier("tell nothing of secrets beside earlier ones", how, what)
    }

    /// The same claim, for places that are not drawn equally often.
    pub(crate) fn uneven_are_independent_given_earlier(&self, what: &str) -> Claim {
        let how = Depth { back: BACK, is_even: false };
        self.are_independent_given_earlier("tell nothing of secrets beside earlier ones", how, what)
    }

    /// The same claim, with fewer places before.
    pub(crate) fn are_independent_of_secrets_given_last(&self, what: &str) -> Claim {
        let claim = "tell nothing of secrets beside the last ones";
        let how = Depth { back: BACK_FEW, is_even: false };
        self.are_independent_given_earlier(claim, how, what)
    }

    fn are_independent_given_earlier(&self, claim: &str, how: Depth, what: &str) -> Claim {
        let Depth { back, is_even } = how;
        let name = format!("{} {claim}: {what}", self.noun);
        let mut places = Places { is_even, ..Places::of(self, WITH_SECRETS_MAX) };
        places.at.truncate(self.secrets.len());
        let n = places.at.len();
        let secrets = &self.secrets[..n];
        let more = &self.request_bits[..n.min(self.request_bits.len())];
        let labels = Labels::of_secrets(secrets, more);
        let mut strongest = strongest_dependence(&places, secrets, &labels, back);
        if self.recurrence == Recurrence::Later && strongest.p() < 1e-3 {
            // Places that are drawn again later follow a schedule, and secrets may follow one, too:
            // both then depend on time. Shifted secrets show how much of the result is due to that.
            let by_time = DELAYS.map(|share| {
                let off = (share * n as f64) as usize;
                let delayed = |of: &[u64]| {
                    let mut of = of.to_vec();
                    let by = off.min(of.len());
                    of.rotate_left(by);
                    of
                };
                let (secrets, more) = (delayed(secrets), delayed(more));
                strongest_dependence(&places, &secrets, &Labels::of_secrets(&secrets, &more), back)
                    .half_deviance
            });
            let usual = (2.0 * strongest.tests as f64).ln();
            strongest.half_deviance /= (by_time.into_iter().fold(0.0, f64::max) / usual).max(1.0);
        }
        let (by_sums, sums) = places.sums(&labels, secrets, back);
        let p = smallest_of(2, strongest.p().min(by_sums));
        let evidence = format!(
            "{n} accesses, {} labels; {sums}; the worst of {} others: {}",
            labels.bits.len(),
            strongest.tests,
            strongest.name
        );
        let found = deviation_found(2 * strongest.tests.max(1)) + 0.5;
        let share = 100.0 * (found / (n.max(1) as f64).sqrt()).min(1.0);
        let power = format!("a bit that is a secret's in {share:.1} % more of cases is found");
        claim_from_p(name, strongest.half_deviance, p, power, &evidence)
    }

    /// The claim that a place does not follow from several before it: from the exclusive or of two
    /// of them, from their difference, their sum, or any sum of bits modulo 2 of the sixteen
    /// before; and that no parity of the bits of two places is uneven, up to sixteen accesses
    /// apart.
    pub fn are_independent_of_several_before(&self, what: &str) -> Claim {
        let name = format!("{} do not depend on several earlier ones: {what}", self.noun);
        let places = Places::of(self, ALONE_MAX);
        let n = places.at.len();
        let labels = Labels::of_numbers(&places.at, "the place, bit");
        let mut strongest = Strongest::default();
        for lag in 1..=BACK.min(n.saturating_sub(1)) {
            for combine in [Combine::Xor, Combine::Difference] {
                let title = format!("{} of two, {lag} apart", combine.noun());
                let numbers = places.combined(combine, 0, lag);
                places.test(
                    &numbers,
                    (0, Derivation::OfTwo),
                    &title,
                    &Labels::default(),
                    &mut strongest,
                );
            }
        }
        let pairs = (2..=8).map(|far| (1, far)).chain([(2, 3), (2, 4), (4, 8), (8, 16)]);
        for (near, far) in pairs.filter(|(_, far)| *far < n) {
            for combine in ALL {
                let title = format!("{} of those {near} and {far} before", combine.noun());
                let numbers = places.combined(combine, near, far);
                // The loop above tests the numbers themselves.
                let labels_of = (far, Derivation::OfOne);
                places.test_labels(&numbers, labels_of, &title, &labels, &mut strongest);
            }
        }
        let (by_sums, sums) = places.sums(&Labels::default(), &[], BACK);
        let p = smallest_of(2, strongest.p().min(by_sums));
        let (tests, title) = (strongest.tests, &strongest.name);
        let evidence = format!("{n} accesses; {sums}; the worst of {tests} others: {title}");
        let found = deviation_found(2 * tests.max(1)) + 0.5;
        let share = 100.0 * (found / (n.max(1) as f64).sqrt()).min(1.0);
        let power = format!("a bit that follows in {share:.1} % more of cases is found");
        claim_from_p(name, strongest.half_deviance, p, power, &evidence)
    }
}

/// The strongest dependence of labels on places, alone and beside other places.
fn strongest_dependence(
    places: &Places,
    secrets: &[u64],
    labels: &Labels,
    back: usize,
) -> Strongest {
    let mut strongest = Strongest::default();
    let n = places.at.len().min(secrets.len());
    if labels.bits.is_empty() || n < 2 * BACK {
        return strongest;
    }
    let classes = secret_classes(secrets);
    for before in 0..=back {
        let title = format!("the place {before} after");
        let later = &places.at[before..];
        places.test_labels(later, (0, Derivation::OfOne), &title, labels, &mut strongest);
        places.test_classes(later, 0, &title, &classes, &mut strongest);
    }
    let title = "the place one before";
    places.test_labels(&places.at, (1, Derivation::OfOne), title, labels, &mut strongest);
    for lag in 1..=back {
        let combines = if lag <= SUMS { &ALL[..] } else { &[Combine::Xor, Combine::Difference] };
        for &combine in combines {
            let title = format!("{} with the place {lag} before", combine.noun());
            let numbers = places.combined(combine, 0, lag);
            places.test_labels(&numbers, (lag, Derivation::OfTwo), &title, labels, &mut strongest);
            if matches!(combine, Combine::Difference) {
                places.test_classes(&numbers, lag, &title, &classes, &mut strongest);
            }
        }
    }
    beside_the_same_secret(places, secrets, labels, &mut strongest);
    crossed(places, labels, &mut strongest);
    strongest
}

/// Tests places beside the place of the last access with the same secret.
fn beside_the_same_secret(
    places: &Places,
    secrets: &[u64],
    labels: &Labels,
    strongest: &mut Strongest,
) {
    let before = same_before(secrets);
    let repeated: Vec<(usize, usize)> =
        before.iter().enumerate().filter_map(|(nth, before)| Some((nth, (*before)?))).collect();
    if repeated.is_empty() {
        return;
    }
    let nths: Vec<usize> = repeated.iter().map(|(nth, _)| *nth).collect();
    let later: Vec<u64> = nths.iter().map(|nth| places.at[*nth]).collect();
    let earlier: Vec<u64> = repeated.iter().map(|(_, before)| places.at[*before]).collect();
    let of_some = labels.of_some(&nths);
    for combine in ALL {
        let title = format!("{} with the last of the same secret", combine.noun());
        let numbers = combine.of(&later, &earlier, places.count);
        places.test(&numbers, (0, Derivation::OfTwo), &title, &of_some, strongest);
    }
    // Each place is in one pair at most.
    let mut is_used = vec![false; places.at.len()];
    let mut apart = repeated;
    apart.retain(|&(nth, before)| {
        let is_free = !is_used[before];
        is_used[nth] |= is_free;
        is_free
    });
    let [now, then] = [0, 1].map(|side| -> Vec<u64> {
        apart.iter().map(|&(nth, before)| places.at[if side == 0 { nth } else { before }]).collect()
    });
    let classes = secret_classes(&then);
    places.test_classes(
        &now,
        0,
        "the place beside the last of the same secret",
        &classes,
        strongest,
    );
    let equal = now.iter().zip(&then).filter(|(now, then)| now == then).count() as u64;
    let expected = now.len() as f64 * places.share_of_equal();
    let p = many_tail(equal, expected, expected);
    let title = || format!("{equal} places are those of the last of the same secret");
    strongest.add((2.0 / p.max(f64::MIN_POSITIVE)).ln(), 1, title);
}

/// Tests any bit of a place beside any other bit of a place before.
fn crossed(places: &Places, labels: &Labels, strongest: &mut Strongest) {
    let n = places.at.len();
    let bits = places.bits.min(CROSSED_BITS);
    let column = |bit: u32| Bits::of(places.at.iter().map(|place| place >> bit & 1 == 1));
    let columns: Vec<Bits> = (0..bits).map(column).collect();
    for lag in 1..=CROSSED {
        let after: Vec<Vec<u64>> =
            labels.bits.iter().map(|label| from(&label.words, lag)).collect();
        let ones =
            |words: &[u64]| words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        let labelled: Vec<f64> = after.iter().map(|label| ones(label) as f64).collect();
        let all = (n - lag) as f64;
        for (a, later) in columns.iter().enumerate() {
            let later = from(&later.words, lag);
            for (b, earlier) in columns.iter().enumerate().filter(|(b, _)| *b != a) {
                let earlier = delayed(&earlier.words, lag);
                let mut odd: Vec<u64> = later.iter().zip(&earlier).map(|(a, b)| a ^ b).collect();
                odd = from(&odd, lag);
                if let Some(last) = odd.last_mut().filter(|_| !n.is_multiple_of(64)) {
                    *last &= (1 << (n % 64)) - 1;
                }
                let even = all - 2.0 * ones(&odd) as f64;
                for (nth, label) in after.iter().enumerate() {
                    let both = odd.iter().zip(label).map(|(a, b)| u64::from((a & b).count_ones()));
                    let even_labelled = labelled[nth] - 2.0 * both.sum::<u64>() as f64;
                    let found_before = strongest.half_deviance;
                    let sides = [even, even_labelled];
                    let found =
                        half_deviance(sides, [all, labelled[nth]], found_before, Derivation::OfTwo);
                    strongest.add(found, 1, || {
                        format!("bit {a} beside bit {b} of {lag} before: {}", labels.names[nth])
                    });
                }
            }
        }
    }
}

/// `words` without the bits of the first `first` cases.
fn from(words: &[u64], first: usize) -> Vec<u64> {
    let mut words = words.to_vec();
    if let Some(word) = words.first_mut() {
        *word &= u64::MAX << first;
    }
    words
}

/// Shifts each case's bit to `cases` cases later; fewer than 64.
fn delayed(words: &[u64], cases: usize) -> Vec<u64> {
    let before = core::iter::once(&0).chain(words);
    words.iter().zip(before).map(|(word, before)| word << cases | before >> (64 - cases)).collect()
}

impl Places {
    fn of(draws: &Draws, accesses_max: usize) -> Self {
        let at = (0..draws.accesses().min(accesses_max)).map(|nth| draws.pick(nth)).collect();
        let places = draws.places.max(1);
        let bits = if places > 1 { (places - 1).ilog2() + 1 } else { 0 };
        let mut windows = vec![(0, bits.min(BITS_MAX))];
        while let Some(&(first, of)) = windows.last().filter(|(first, of)| first + of < bits) {
            let next = (first + of).min(bits - BITS_MAX);
            windows.push((next, BITS_MAX));
        }
        let is_even = places.is_power_of_two() && draws.recurrence == Recurrence::ByChance;
        Self { at, count: places, bits, windows, is_even }
    }

    /// Combines, for each access from `far` on, the place `near` accesses before it with the place
    /// `far` accesses before it.
    fn combined(&self, by: Combine, near: usize, far: usize) -> Vec<u64> {
        let all = self.at.len();
        by.of(&self.at[far - near..all - near], &self.at[..all - far], self.count)
    }

    /// Tests whether labels depend on the numbers, and whether the numbers' parities are even.
    fn test(
        &self,
        numbers: &[u64],
        (shift, derivation): (usize, Derivation),
        name: &str,
        labels: &Labels,
        strongest: &mut Strongest,
    ) {
        for &(first, bits) in &self.windows {
            let mask = (1u64 << bits) - 1;
            let part = |number: &u64| (number >> first & mask) as u16;
            let numbers: Vec<u16> = numbers.iter().map(part).collect();
            let name =
                if first > 0 { format!("{name}, from bit {first}") } else { name.to_owned() };
            let is_uniform = self.is_even && derivation == Derivation::OfTwo;
            let of = Numbers { values: &numbers, bits, shift, derivation, is_uniform, name: &name };
            test_parities(&of, labels, strongest);
        }
    }

    /// Tests whether labels depend on the numbers.
    fn test_labels(
        &self,
        numbers: &[u64],
        (shift, derivation): (usize, Derivation),
        name: &str,
        labels: &Labels,
        strongest: &mut Strongest,
    ) {
        let alone = Self { is_even: false, at: vec![], windows: self.windows.clone(), ..*self };
        alone.test(numbers, (shift, derivation), name, labels, strongest);
    }

    /// Tests whether classes of the numbers depend on classes of secrets.
    fn test_classes(
        &self,
        numbers: &[u64],
        shift: usize,
        name: &str,
        secrets: &[Vec<u8>],
        strongest: &mut Strongest,
    ) {
        let classes = PAIR_CLASSES.min(self.count);
        let scale = classes as f64 / self.count as f64;
        let high = |n: &u64| ((*n as f64 * scale) as u64).min(classes - 1) as u8;
        let low = |n: &u64| (n % classes) as u8;
        let ways: [Vec<u8>; 2] =
            [numbers.iter().map(high).collect(), numbers.iter().map(low).collect()];
        // With fewer numbers, the statistic does not follow its distribution.
        if numbers.len() < 5 * (PAIR_CLASSES * PAIR_CLASSES) as usize {
            return;
        }
        for (secrets, numbers) in secrets.iter().flat_map(|s| ways.iter().map(move |n| (s, n))) {
            let mut table = Table::new(PAIR_CLASSES as usize, classes as usize);
            table.add_all(secrets.get(shift..).unwrap_or_default(), numbers);
            let p = table.dependence().2;
            strongest.add((2.0 / p.max(f64::MIN_POSITIVE)).ln(), 1, || format!("{name}, classes"));
        }
    }

    /// The share of all pairs of places that are equal.
    fn share_of_equal(&self) -> f64 {
        let mut counts = std::collections::HashMap::new();
        self.at.iter().for_each(|place| *counts.entry(place).or_insert(0u64) += 1);
        let n = self.at.len() as f64;
        let squares: f64 = counts.into_values().map(|count| (count as f64).powi(2)).sum();
        squares / (n * n).max(1.0)
    }

    /// Tests whether a bit of a place is a sum, modulo 2, of bits of the number of its access, of
    /// labels, and of the places before, in all tested cases. Returns the probability, and the
    /// evidence.
    fn sums(&self, labels: &Labels, secrets: &[u64], back: usize) -> (f64, String) {
        let n = self.at.len();
        let before = same_before(secrets);
        let label_bits = labels.bits.len() * (SECRETS_BEFORE + 2);
        let chained = usize::from(!secrets.is_empty());
        let number = n.max(1).ilog2() as usize + 1;
        for back in [back, back.min(4), 1] {
            let columns = 1 + number + label_bits + (back + chained + 1) * self.bits as usize;
            let first = back.max(SECRETS_BEFORE);
            let Some(rows) = cases(first, n.saturating_sub(1), rows_for(columns)) else { continue };
            let mut all = Columns::new(rows.len());
            all.is_sum(rows.iter().map(|_| true));
            (0..number).for_each(|bit| _ = all.is_sum(rows.iter().map(|row| row >> bit & 1 == 1)));
            for label in &labels.bits {
                for ago in 0..SECRETS_BEFORE + 2 {
                    all.is_sum(rows.iter().map(|row| label.get(row + 1 - ago)));
                }
            }
            let bit_of = |row: usize, bit: u32| self.at[row] >> bit & 1 == 1;
            for bit in 0..self.bits {
                for ago in 1..=back {
                    all.is_sum(rows.iter().map(|row| bit_of(row - ago, bit)));
                }
                if chained > 0 {
                    let last = |row: &usize| before[*row].is_some_and(|last| bit_of(last, bit));
                    all.is_sum(rows.iter().map(last));
                }
            }
            let independent = all.rank();
            for bit in 0..self.bits {
                let ones = rows.iter().filter(|row| bit_of(**row, bit)).count();
                let is_sum = all.is_sum(rows.iter().map(|row| bit_of(*row, bit)));
                if is_sum && is_even(ones, rows.len()) {
                    let p = sum_by_chance(rows.len(), columns, self.bits as usize);
                    return (p, format!("bit {bit} is a sum of {independent} others, modulo 2"));
                }
            }
            return (1.0, format!("no bit is a sum of {independent} others, modulo 2"));
        }
        (1.0, "too few for sums".to_owned())
    }
}
