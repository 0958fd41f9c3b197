//! The known properties of each access, bit by bit.

use std::collections::HashMap;

/// Labels that are counted side by side: fifteen labels and a bit that is always set fill a number
/// of 16 bits.
pub(crate) const LANES: usize = 16;

/// The most labels: if there are more, the first ones.
const LABELS_MAX: usize = 60;

/// The numbers of accesses within which an earlier request of the same address sets a label.
const RECENT: [usize; 5] = [1, 4, 16, 64, 256];

/// One bit of each case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bits {
    pub words: Vec<u64>,
    pub len: usize,
}

impl Bits {
    pub fn of(bits: impl ExactSizeIterator<Item = bool>) -> Self {
        let len = bits.len();
        let mut words = vec![0; len.div_ceil(64)];
        for (nth, bit) in bits.enumerate() {
            words[nth / 64] |= u64::from(bit) << (nth % 64);
        }
        Self { words, len }
    }

    pub fn get(&self, nth: usize) -> bool {
        self.words[nth / 64] >> (nth % 64) & 1 == 1
    }

    pub fn ones(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the bits equal the other bits, or their complement, in every case.
    fn is_like(&self, other: &Self) -> bool {
        let differ = |nth: usize| self.words[nth] ^ other.words[nth];
        let all =
            |nth: usize| if nth < self.len / 64 { u64::MAX } else { (1 << (self.len % 64)) - 1 };
        let words = 0..self.words.len();
        words.clone().all(|nth| differ(nth) == 0)
            || words.clone().all(|nth| differ(nth) == all(nth))
    }
}

/// Named bits that are known of each access.
#[derive(Clone, Default, Debug)]
pub(crate) struct Labels {
    pub names: Vec<String>,
    pub bits: Vec<Bits>,
    /// Up to fifteen labels side by side, above a bit that is set.
    pub packed: Vec<Vec<u16>>,
}

impl Labels {
    /// The bits of `numbers` that vary.
    pub fn of_numbers(numbers: &[u64], name: &str) -> Self {
        let mut labels = Self::default();
        labels.add_bits(numbers, name);
        labels.packed()
    }

    /// The labels of secrets: their bits, the bits of `more` about them, the bits in which each
    /// differs from the one before, and how many accesses ago each came before.
    pub fn of_secrets(secrets: &[u64], more: &[u64]) -> Self {
        let mut labels = Self::default();
        labels.add_bits(more, "of what was asked for, bit");
        labels.add_bits(secrets, "of the secret's number, bit");
        let secret_bits = if more.is_empty() { secrets } else { more };
        let before = core::iter::once(secret_bits.first()).flatten().chain(secret_bits);
        let changes: Vec<u64> =
            secret_bits.iter().zip(before).map(|(now, before)| now ^ before).collect();
        labels.add_bits(&changes, "of what changed, bit");
        let ages = ages(secrets);
        for within in RECENT {
            let recent = Bits::of(ages.iter().map(|age| *age <= within));
            labels.add(format!("asked for again within {within}"), recent);
        }
        let first = Bits::of(ages.iter().map(|age| *age == usize::MAX));
        labels.add("asked for the first time".to_owned(), first);
        labels.packed()
    }

    /// The labels of some accesses, in this order.
    pub fn of_some(&self, accesses: &[usize]) -> Self {
        let bits = |bits: &Bits| Bits::of(accesses.iter().map(|&nth| bits.get(nth)));
        let (names, bits) = (self.names.clone(), self.bits.iter().map(bits).collect());
        Self { names, bits, packed: vec![] }.packed()
    }

    fn add_bits(&mut self, numbers: &[u64], name: &str) {
        let first = numbers.first().copied().unwrap_or(0);
        let varying = numbers.iter().fold(0, |varying, number| varying | (number ^ first));
        for bit in (0..u64::BITS).filter(|bit| varying >> bit & 1 == 1) {
            let bits = Bits::of(numbers.iter().map(|number| number >> bit & 1 == 1));
            self.add(format!("{name} {bit}"), bits);
        }
    }

    /// Adds a label, unless it is constant, or equals another one or its complement.
    fn add(&mut self, name: String, bits: Bits) {
        let varies = (1..bits.len).contains(&bits.ones());
        if varies && self.bits.len() < LABELS_MAX && !self.bits.iter().any(|l| l.is_like(&bits)) {
            self.names.push(name);
            self.bits.push(bits);
        }
    }

    fn packed(mut self) -> Self {
        let pack = |some: &[Bits]| {
            let mut packed = vec![1u16; some[0].len];
            for (lane, bits) in some.iter().enumerate() {
                for (nth, packed) in packed.iter_mut().enumerate() {
                    *packed |= u16::from(bits.get(nth)) << (lane + 1);
                }
            }
            packed
        };
        self.packed = self.bits.chunks(LANES - 1).map(pack).collect();
        self
    }
}

/// For each access, how many accesses ago its secret came before.
fn ages(secrets: &[u64]) -> Vec<usize> {
    let before = same_before(secrets);
    before.iter().enumerate().map(|(nth, before)| before.map_or(usize::MAX, |b| nth - b)).collect()
}

/// For each access, the last one before it with the same secret.
pub(crate) fn same_before(secrets: &[u64]) -> Vec<Option<usize>> {
    let mut last: HashMap<u64, usize> = HashMap::new();
    secrets.iter().enumerate().map(|(nth, &secret)| last.insert(secret, nth)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixer::Mixer;

    #[test]
    fn copies_and_constant_bits_are_no_labels() {
        let mut rng = Mixer(1);
        let numbers: Vec<u64> =
            (0..999).map(|_| rng.below(2)).map(|bit| 4 | bit | (1 - bit) << 7 | bit << 9).collect();
        let labels = Labels::of_numbers(&numbers, "bit");
        assert_eq!(labels.names, ["bit 0"]);
        let packed: Vec<u16> =
            numbers.iter().map(|number| 1 | ((number & 1) << 1) as u16).collect();
        assert_eq!(labels.packed, [packed]);
        assert!(Labels::of_numbers(&[], "bit").bits.is_empty());
    }

    #[test]
    fn labels_have_the_age_of_a_secret() {
        let secrets = [5, 6, 5, 5, 7, 6];
        assert_eq!(same_before(&secrets), [None, None, Some(0), Some(2), None, Some(1)]);
        let labels = Labels::of_secrets(&secrets, &[]);
        let again = labels.names.iter().position(|name| name.ends_with("within 1")).unwrap();
        let again: Vec<bool> = (0..6).map(|nth| labels.bits[again].get(nth)).collect();
        assert_eq!(again, [false, false, false, true, false, false]);
        assert_eq!(labels.of_some(&[3, 0]).bits[0].len, 2);
    }
}
