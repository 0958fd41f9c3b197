//! The view of an adversary with many copies of a disk: numbers about each block that changed from
//! one copy to the next, by which a classifier tries to learn which user's the disk is.

use crate::classifier::{UserExamples, claim_of_guesses};
use crate::report::{Claim, Statistic, Verdict};
use crate::snapshot::SNAPSHOT_BLOCK_LEN;
use std::collections::HashSet;

/// The greatest advantage over a coin that passes.
const ADVANTAGE_MAX: f64 = 0.02;

/// Blocks of each side to learn from, at most.
const TRAINING_MAX: usize = 4000;

/// Bytes of which one word is searched in all earlier copies.
const WORD_EVERY: usize = 16;

/// Values of a byte that are counted together.
const RANGES: usize = 8;

/// Bytes that are judged together, in the numbers about the least and the most even part.
const SECTOR: usize = 512;

/// Numbers that describe a changed block.
const FEATURES: usize = RANGES + 12;

/// Copies of one disk, taken in order. Keeps what changed, and the last copy.
pub struct Copies {
    last: Vec<u8>,
    /// For each block, the number of the copy in which it changed last.
    changed: Vec<u32>,
    /// The number of the last copy.
    newest: u32,
    /// Words of all copies.
    words: HashSet<u64>,
    /// [`FEATURES`] numbers for each block that changed.
    rows: Vec<f32>,
}

impl Copies {
    /// The first copy.
    pub fn new(first: Vec<u8>) -> Self {
        let words = words_of(&first).collect();
        let changed = vec![0; first.len().div_ceil(SNAPSHOT_BLOCK_LEN)];
        Self { last: first, changed, newest: 0, words, rows: vec![] }
    }

    /// The next copy, as long as the first.
    pub fn add(&mut self, next: Vec<u8>) {
        assert_eq!(next.len(), self.last.len(), "copies of one disk");
        self.newest += 1;
        let last = std::mem::replace(&mut self.last, next);
        let next = std::mem::take(&mut self.last);
        let blocks = last.chunks(SNAPSHOT_BLOCK_LEN).zip(next.chunks(SNAPSHOT_BLOCK_LEN));
        for (nth, (old, new)) in blocks.enumerate().filter(|(_, (old, new))| old != new) {
            self.note(nth, old, new);
        }
        self.last = next;
    }

    /// Blocks that changed, in all copies.
    pub fn changes(&self) -> usize {
        self.rows.len() / FEATURES
    }

    fn note(&mut self, nth: usize, old: &[u8], new: &[u8]) {
        let mut ranges = [0.0; RANGES];
        for &byte in new {
            ranges[usize::from(byte) * RANGES / 256] += 1.0;
        }
        self.rows.extend(ranges);
        let count = |is: fn(&(&u8, &u8)) -> bool| new.iter().zip(old).filter(is).count() as f32;
        let ones = new.iter().map(|byte| byte.count_ones()).sum::<u32>() as f32;
        let moved = new.iter().zip(old).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>() as f32;
        let pairs = new.windows(2).filter(|pair| pair[0] == pair[1]).count() as f32;
        let known = words_of(new).filter(|word| !self.words.insert(*word)).count() as f32;
        let sectors = || new.chunks(SECTOR).zip(old.chunks(SECTOR));
        let changed = sectors().filter(|(new, old)| new != old).count() as f32;
        let low = |(sector, _): (&[u8], &[u8])| sector.iter().filter(|b| **b < 2).count();
        let high = |(sector, _): (&[u8], &[u8])| sector.iter().filter(|b| **b > 127).count();
        self.rows.extend([
            count(|(new, _)| **new == 0),
            count(|(new, old)| new == old),
            ones,
            moved,
            pairs,
            known,
            changed,
            sectors().map(low).max().unwrap_or(0) as f32,
            sectors().map(high).min().unwrap_or(0) as f32,
            sectors().map(high).max().unwrap_or(0) as f32,
            (self.newest - self.changed[nth]) as f32,
            nth as f32 / self.changed.len() as f32,
        ]);
        self.changed[nth] = self.newest;
    }
}

/// The claim that a block that changes between two copies does not reveal which of two users it
/// belongs to, by more than 0.02 over a coin. Each user is there several times, with disks of
/// different contents; the first half is learned from, and the other half is guessed.
///
/// The second user has zeros in the place of random bytes now and then, and the classifier learns
/// it:
///
/// ```
/// use traceless_audit::{Copies, Verdict, copies_are_indistinguishable};
/// use traceless_core::rng::{Rng, SeededRng};
///
/// let user = |seed: u64, zeros: u64| {
///     let mut rng = SeededRng::new(seed);
///     let mut image = vec![0; 8 * 4096];
///     rng.fill(&mut image);
///     let mut copies = Copies::new(image.clone());
///     for _ in 0..60 {
///         rng.fill(&mut image);
///         if rng.below(100) < zeros {
///             image[512..600].fill(0);
///         }
///         copies.add(image.clone());
///     }
///     copies
/// };
/// let users = |seeds: std::ops::Range<u64>, zeros| {
///     seeds.map(|seed| user(seed, zeros)).collect::<Vec<_>>()
/// };
/// let random = users(0..6, 0);
/// let found = copies_are_indistinguishable(&random, &users(10..16, 50), "zeros");
/// assert_eq!(found.verdict, Verdict::Leak);
/// ```
pub fn copies_are_indistinguishable(a: &[Copies], b: &[Copies], what: &str) -> Claim {
    let name = format!("copies of two users' disks cannot be distinguished by learning: {what}");
    let halves = [a, b].map(|side| side.split_at(side.len() / 2));
    let training = halves.map(|(learned, _)| rows_of(learned, TRAINING_MAX));
    let tested = halves.map(|(_, guessed)| rows_of(guessed, usize::MAX));
    let examples = UserExamples { noun: "changed blocks", features: FEATURES, training, tested };
    let mut claim = claim_of_guesses(name, &examples);
    if matches!(claim.statistic, Statistic::Value(advantage) if advantage > ADVANTAGE_MAX) {
        claim.verdict = Verdict::Leak;
    }
    claim
}

/// Rows of all disks; at most `most`, at equal distances.
fn rows_of(disks: &[Copies], most: usize) -> Vec<f32> {
    let all: usize = disks.iter().map(Copies::changes).sum();
    let rows = disks.iter().flat_map(|disk| disk.rows.chunks_exact(FEATURES));
    rows.step_by(all.div_ceil(most).max(1)).flatten().copied().collect()
}

fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let words = bytes.chunks_exact(WORD_EVERY);
    words.map(|word| u64::from_le_bytes(word[..8].try_into().expect("eight bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixer::Mixer;

    /// Makes a block anew.
    type Change = fn(&mut Mixer, &mut [u8]);

    const BLOCKS: usize = 16;
    const COPIES: usize = 150;

    fn fill(rng: &mut Mixer, bytes: &mut [u8]) {
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&rng.below(u64::MAX).to_le_bytes());
        }
    }

    /// Disks of which half of the blocks change from copy to copy; `change` makes a block anew.
    fn disks(seed: u64, change: Change) -> Vec<Copies> {
        let disk = |nth| {
            let mut rng = Mixer((seed + nth) << 32);
            let mut image = vec![0; BLOCKS * SNAPSHOT_BLOCK_LEN];
            fill(&mut rng, &mut image);
            let mut copies = Copies::new(image.clone());
            for _ in 0..COPIES {
                for block in image.chunks_exact_mut(SNAPSHOT_BLOCK_LEN) {
                    if rng.below(2) == 0 {
                        change(&mut rng, block);
                    }
                }
                copies.add(image.clone());
            }
            copies
        };
        (0..8).map(disk).collect()
    }

    #[test]
    fn random_blocks_are_not_distinguished() {
        let claim = copies_are_indistinguishable(&disks(1, fill), &disks(50, fill), "random");
        assert_eq!(claim.verdict, Verdict::Pass, "{claim:?}");
        assert!(claim.p.unwrap() > 1e-4, "{claim:?}");
    }

    #[test]
    fn each_difference_is_learned() {
        let faults: [(&str, Change); 4] = [
            ("a sector of zeros", |rng, block| {
                fill(rng, block);
                block[1024..1024 + 512 * rng.below(2) as usize].fill(0);
            }),
            ("a part that stays", |rng, block| fill(rng, &mut block[512..])),
            ("a part that is there already", |rng, block| {
                let known: Vec<u8> = block[..512].to_vec();
                fill(rng, block);
                block[2048..2560].copy_from_slice(&known);
            }),
            ("a bit that is seldom set", |rng, block| {
                fill(rng, block);
                block.iter_mut().step_by(16).for_each(|byte| *byte &= 0x7f);
            }),
        ];
        let random = disks(1, fill);
        for (what, fault) in faults {
            let claim = copies_are_indistinguishable(&random, &disks(50, fault), what);
            assert_eq!(claim.verdict, Verdict::Leak, "{claim:?}");
        }
    }

    #[test]
    fn a_block_that_stays_makes_no_row() {
        let mut copies = Copies::new(vec![7; 2 * SNAPSHOT_BLOCK_LEN + 100]);
        copies.add(vec![7; 2 * SNAPSHOT_BLOCK_LEN + 100]);
        assert_eq!(copies.changes(), 0);
        let mut next = vec![7; 2 * SNAPSHOT_BLOCK_LEN + 100];
        next[2 * SNAPSHOT_BLOCK_LEN + 3] = 0;
        copies.add(next);
        assert_eq!(copies.changes(), 1);
    }
}
