//! Tests whether the parity of any bits of a number depends on a bit that is known beside it.
//!
//! The numbers are counted in a table, for each label separately. A Walsh transform of the table
//! then gives, for every set of the number's bits, how often their parity is odd. So all sets are
//! tested at once.

use crate::labels::{LANES, Labels};
use crate::stats::smallest_of;

/// The most bits of a number: tables of this size stay in a cache.
pub(crate) const BITS_MAX: u32 = 10;

/// The strongest of many tests, and how many there were.
#[derive(Clone, Debug)]
pub(crate) struct Strongest {
    /// The exponent of a bound: the probability of the test is at most 2 exp(-`half_deviance`).
    pub half_deviance: f64,
    pub tests: usize,
    /// The name of the strongest test.
    pub name: String,
}

impl Default for Strongest {
    fn default() -> Self {
        Self { half_deviance: 0.0, tests: 0, name: "none".to_owned() }
    }
}

impl Strongest {
    /// Adds the strongest of `tests` tests, with its exponent.
    pub fn add(&mut self, half_deviance: f64, tests: usize, name: impl FnOnce() -> String) {
        self.tests += tests;
        if half_deviance > self.half_deviance {
            (self.half_deviance, self.name) = (half_deviance, name());
        }
    }

    /// The probability that the strongest of all tests is as strong as this.
    pub fn p(&self) -> f64 {
        smallest_of(self.tests.max(1), (2.0 * (-self.half_deviance).exp()).min(1.0))
    }
}

/// How the tested numbers were derived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Derivation {
    /// Each is one draw.
    OfOne,
    /// Each is made of two draws: numbers that share a draw may depend on each other.
    OfTwo,
}

/// Numbers beside labels: the first number belongs to the label that is `shift` from the first.
pub(crate) struct Numbers<'a> {
    pub values: &'a [u16],
    pub bits: u32,
    pub shift: usize,
    pub derivation: Derivation,
    /// Whether each number is as likely as any other, so that each parity is a fair coin.
    pub is_uniform: bool,
    /// A description of the numbers.
    pub name: &'a str,
}

/// Tests whether the parity of any set of the numbers' bits depends on a label.
pub(crate) fn test_parities(of: &Numbers<'_>, labels: &Labels, strongest: &mut Strongest) {
    assert!(of.bits <= BITS_MAX, "the table is too large");
    let sets = (1usize << of.bits) - 1;
    for (chunk, names) in labels.packed.iter().zip(labels.names.chunks(LANES - 1)) {
        let packed = chunk.get(of.shift..).unwrap_or_default();
        let n = of.values.len().min(packed.len());
        let table = table_of(&of.values[..n], of.bits, &packed[..n]);
        for (lane, label) in (1..).zip(names) {
            let all = [n as f64, f64::from(table[0][lane])];
            let mut best = (0.0, 0);
            for (set, row) in table.iter().enumerate().skip(1) {
                let even = [f64::from(row[0]), f64::from(row[lane])];
                let found = half_deviance(even, all, best.0, of.derivation);
                if found > best.0 {
                    best = (found, set);
                }
            }
            strongest.add(best.0, sets, || format!("{}, bits {:#b}: {label}", of.name, best.1));
        }
    }
    if of.is_uniform && !of.values.is_empty() {
        let table = table_of(of.values, of.bits, &vec![1; of.values.len()]);
        let uneven = |(set, row): (usize, &[i32; LANES])| (row[0].unsigned_abs(), set);
        let (most, set) = table.iter().enumerate().skip(1).map(uneven).max().unwrap_or_default();
        // Hoeffding's bound.
        let found = f64::from(most).powi(2) / (2.0 * of.values.len() as f64);
        strongest.add(found, sets, || format!("{}, bits {set:#b}, by themselves", of.name));
    }
}

/// Labels of a byte.
const HALF: usize = LANES / 2;

/// Numbers that are counted before the narrow counters are emptied: none of them overflows.
const COUNTED_MAX: usize = u16::MAX as usize;

/// For each set of bits, how many more numbers have an even parity of these bits than an odd one:
/// among all numbers, and among the numbers with each label.
fn table_of(numbers: &[u16], bits: u32, packed: &[u16]) -> Vec<[i32; LANES]> {
    let mut table = vec![[0i32; LANES]; 1 << bits];
    // The labels of a byte at a time.
    let of_byte = |byte: usize| core::array::from_fn(|lane| (byte >> lane & 1) as u16);
    let spread: Vec<[u16; HALF]> = (0..256).map(of_byte).collect();
    let mask = (1u16 << bits) - 1;
    // Counters of half the width: all of them fit into a processor's first cache.
    let mut counters = vec![[[0u16; HALF]; 2]; 1 << bits];
    for (numbers, packed) in numbers.chunks(COUNTED_MAX).zip(packed.chunks(COUNTED_MAX)) {
        for (number, labels) in numbers.iter().zip(packed) {
            let labels = usize::from(*labels);
            let [low, high] = &mut counters[usize::from(number & mask)];
            add(low, &spread[labels & 255]);
            add(high, &spread[labels >> 8]);
        }
        for (sums, counters) in table.iter_mut().zip(&mut counters) {
            for (sum, counter) in sums.iter_mut().zip(counters.as_flattened_mut()) {
                *sum = sum.wrapping_add(i32::from(core::mem::take(counter)));
            }
        }
    }
    transform(&mut table);
    table
}

/// Without checks for overflow, so that the compiler vectorises the loop.
fn add(sums: &mut [u16; HALF], ones: &[u16; HALF]) {
    sums.iter_mut().zip(ones).for_each(|(sum, one)| *sum = sum.wrapping_add(*one));
}

/// The Walsh transform.
fn transform(table: &mut [[i32; LANES]]) {
    let mut half = 1;
    while half < table.len() {
        for pair in table.chunks_exact_mut(2 * half) {
            let (first, second) = pair.split_at_mut(half);
            for (a, b) in first.iter_mut().zip(second) {
                for (a, b) in a.iter_mut().zip(b) {
                    (*a, *b) = (a.wrapping_add(*b), a.wrapping_sub(*b));
                }
            }
        }
        half *= 2;
    }
}

/// Half the deviance of a table of two parities and two labels from one with independent sides; 0
/// if that is less than the `strongest` value.
pub(crate) fn half_deviance(
    [even, even_labelled]: [f64; 2],
    [n, labelled]: [f64; 2],
    strongest: f64,
    derivation: Derivation,
) -> f64 {
    let odd = (n - even) / 2.0;
    let both = (labelled - even_labelled) / 2.0;
    let (not_odd, rest) = (n - odd, n - labelled);
    let product = odd * not_odd * labelled * rest;
    if product <= 0.0 {
        return 0.0;
    }
    // Numbers that share a draw depend on each other, as far as draws are uneven.
    let uneven = even.abs() / n;
    let shared = match derivation {
        Derivation::OfOne => 1.0,
        Derivation::OfTwo => 1.0 + 2.0 * uneven / (1.0 + uneven),
    };
    let off = n * both - odd * labelled;
    // The deviance is at most twice Pearson's statistic.
    if n * off * off / product <= strongest * shared {
        return 0.0;
    }
    let part = |observed: f64, expected: f64| {
        if observed > 0.0 { observed * (observed / expected).ln() } else { 0.0 }
    };
    let deviance = part(both, odd * labelled / n)
        + part(odd - both, odd * rest / n)
        + part(labelled - both, not_odd * labelled / n)
        + part(rest - odd + both, not_odd * rest / n);
    deviance / shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::Distance;
    use crate::mixer::Mixer;

    fn strongest_of(seed: u64, n: usize, share: u64, rare: u64) -> Strongest {
        let mut rng = Mixer(seed << 32);
        let numbers: Vec<u16> = (0..n).map(|_| rng.below(512) as u16).collect();
        let label = |number: &u16| {
            let leaks = share > 0 && rng.below(share) == 0;
            let parity = u64::from((number & 0b1_0010_1000).count_ones() & 1);
            let other = u64::from(rng.below(rare) == 0) << 40;
            other | if leaks { parity } else { rng.below(2) }
        };
        let words: Vec<u64> = numbers.iter().map(label).collect();
        let labels = Labels::of_numbers(&words, "label");
        let mut strongest = Strongest::default();
        let (bits, shift, derivation, name) = (9, 0, Derivation::OfOne, "numbers");
        let of = Numbers { values: &numbers, bits, shift, derivation, is_uniform: true, name };
        test_parities(&of, &labels, &mut strongest);
        strongest
    }

    #[test]
    fn a_dependent_parity_of_any_bits_is_found_and_named() {
        let found = strongest_of(1, 100_000, 20, 2);
        assert!(found.p() < 1e-20, "{found:?}");
        assert_eq!(found.name, "numbers, bits 0b100101000: label 0");
        assert_eq!(found.tests, 3 * 511);
    }

    #[test]
    fn independent_numbers_raise_no_alarm_even_for_rare_labels() {
        for (n, rare) in [(1000, 2), (1000, 300), (20_000, 2), (20_000, 5000), (20_000, 20_000)] {
            let p: Vec<f64> = (0..100).map(|seed| strongest_of(seed, n, 0, rare).p()).collect();
            let small = Distance::below_uniform(&p);
            assert!(small.p > 1e-3 && p.iter().all(|&p| p > 1e-5), "{rare}: {p:?}");
        }
    }
}
