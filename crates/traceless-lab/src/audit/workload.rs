//! Pairs of workloads that an adversary tries to distinguish.
//!
//! Both of a pair make the same number of requests of the same lengths, with syncs, closes and
//! crashes at the same places. That much is public. They differ in what must stay hidden:
//! addresses, contents, and for write-only schemes all reads.

use traceless::Hides;
use traceless::rng::{Rng, SeededRng};

/// The address of each write, of `n` blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Always the same block.
    Same,
    /// In order, from the first block to the last, again and again.
    Sequential,
    /// From the last block to the first.
    Reverse,
    /// Uniformly random.
    Random,
    /// Nine writes of ten go to a few hot blocks.
    Hot,
    /// The block that was not written for the longest time; neighbours in time are far apart.
    Cold,
    /// Each block twice in a row.
    Twice,
}

impl Pattern {
    pub fn address(self, i: u64, n: u64, seed: u64) -> u64 {
        let random = |salt: u64, below: u64| mix(seed ^ salt, i) % below;
        match self {
            Self::Same => 7 % n,
            Self::Sequential => i % n,
            Self::Reverse => n - 1 - i % n,
            Self::Random => random(1, n),
            Self::Hot if random(2, 10) > 0 => random(3, n.div_ceil(16)),
            Self::Hot => random(4, n),
            // A step without a common divisor with n reaches every block.
            Self::Cold => i % n * step(n) % n,
            Self::Twice => i / 2 % n,
        }
    }
}

/// The bytes that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    Zeros,
    /// Never the same bytes twice.
    Fresh,
    /// The bytes that the block has already, once it has been written.
    Unchanged,
}

impl Contents {
    /// Fills `block` for write number `i`, which goes to `address`.
    pub fn fill(self, block: &mut [u8], i: u64, address: u64, seed: u64) {
        match self {
            Self::Zeros => block.fill(0),
            Self::Fresh => SeededRng::new(mix(seed ^ 5, i)).fill(block),
            Self::Unchanged => SeededRng::new(mix(seed ^ 6, address)).fill(block),
        }
    }
}

/// What one user does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserWorkload {
    pub writes: Pattern,
    pub contents: Contents,
    /// After each batch as many blocks are read as the batch has; their addresses.
    pub reads: Option<Pattern>,
    /// The addresses of the first `n` writes of `n` blocks, if they differ.
    pub first_pass: Option<Pattern>,
    /// Whether batches of one block are dummy writes.
    pub dummies: bool,
    /// The first blocks of discards, which take the place of the batches of three blocks.
    pub discards: Option<Pattern>,
}

/// Writes of fresh contents, and nothing else.
pub const fn writes(writes: Pattern) -> UserWorkload {
    let contents = Contents::Fresh;
    UserWorkload { writes, contents, reads: None, first_pass: None, dummies: false, discards: None }
}

/// What interrupts a run several times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interruption {
    /// Nothing.
    Nothing,
    /// A close, then the volume is opened again.
    Close,
    /// The volume is opened again without a close; no write is lost.
    Crash,
    /// A crash in the middle of a write, and sometimes in the middle of the recovery.
    CutWrite,
}

/// Two users, and the public part that they share.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadPair {
    pub name: &'static str,
    pub a: UserWorkload,
    pub b: UserWorkload,
    /// Lengths of batches, in a cycle.
    pub batches: &'static [u64],
    pub interruption: Interruption,
}

const MIXED: &[u64] = &[1, 1, 8, 3, 1, 32, 2, 1, 16];
const DISCARDS: &[u64] = &[1, 3, 3, 8, 3, 2, 16, 3];
const ALIGNED: &[u64] = &[8, 16, 8, 32];

const fn pair(name: &'static str, a: UserWorkload, b: UserWorkload) -> WorkloadPair {
    WorkloadPair { name, a, b, batches: MIXED, interruption: Interruption::Nothing }
}

/// The pairs for a scheme that hides `hides`. The control is audited for the claim of a volume.
pub fn pairs(hides: Hides) -> Vec<WorkloadPair> {
    let same = writes(Pattern::Same);
    let random = writes(Pattern::Random);
    let sequential = writes(Pattern::Sequential);
    let mut list = vec![
        pair("one address, random addresses", same, random),
        pair("forwards, backwards", sequential, writes(Pattern::Reverse)),
        pair("a few hot blocks, the coldest block", writes(Pattern::Hot), writes(Pattern::Cold)),
        pair(
            "zeros, random data",
            UserWorkload { contents: Contents::Zeros, ..sequential },
            sequential,
        ),
        pair(
            "new data, what is there already",
            sequential,
            UserWorkload { contents: Contents::Unchanged, ..sequential },
        ),
        pair(
            "a nearly empty volume, a full one",
            UserWorkload { first_pass: Some(Pattern::Same), ..random },
            UserWorkload { first_pass: Some(Pattern::Sequential), ..random },
        ),
        WorkloadPair {
            batches: ALIGNED,
            ..pair("duplicates in each batch, none", writes(Pattern::Twice), sequential)
        },
        reads(hides, random),
    ];
    for (name, interruption) in [
        ("one address, random addresses, through closes", Interruption::Close),
        ("one address, random addresses, through crashes", Interruption::Crash),
        ("one address, random addresses, through writes cut short", Interruption::CutWrite),
    ] {
        list.push(WorkloadPair { interruption, ..pair(name, same, random) });
    }
    if hides != Hides::ReadsAndWrites {
        let dummies = UserWorkload { dummies: true, ..random };
        list.push(pair("dummy writes, real ones", dummies, random));
        // One user discards the same blocks again and again, the other one blocks in use.
        let discards = |pattern| UserWorkload { discards: Some(pattern), ..sequential };
        let discards = WorkloadPair {
            batches: DISCARDS,
            ..pair(
                "discards of empty blocks, of ones in use",
                discards(Pattern::Same),
                discards(Pattern::Random),
            )
        };
        list.push(discards);
        list.push(WorkloadPair {
            name: "discards of empty blocks, of ones in use, through writes cut short",
            interruption: Interruption::CutWrite,
            ..discards
        });
    }
    list
}

/// The pair for reads. Where reads are hidden too, their number is public, and their addresses are
/// not.
fn reads(hides: Hides, of: UserWorkload) -> WorkloadPair {
    let at = |pattern| UserWorkload { reads: Some(pattern), ..of };
    if hides == Hides::ReadsAndWrites {
        pair("reads of one address, of random ones", at(Pattern::Same), at(Pattern::Random))
    } else {
        pair("reads in between, none", at(Pattern::Random), of)
    }
}

/// A pseudorandom number that depends on both arguments.
pub fn mix(seed: u64, i: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i);
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// About the golden section of `n`, without a common divisor.
fn step(n: u64) -> u64 {
    let mut step = (n * 5 / 8).max(1);
    while gcd(step, n) > 1 {
        step += 1;
    }
    step
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn addresses(pattern: Pattern, count: u64, n: u64) -> BTreeSet<u64> {
        (0..count).map(|i| pattern.address(i, n, 3)).collect()
    }

    #[test]
    fn patterns_stay_in_range_and_visit_the_blocks_they_name() {
        for n in [1, 2, 15, 16, 1000] {
            use Pattern::{Cold, Hot, Random, Reverse, Same, Sequential, Twice};
            for pattern in [Same, Sequential, Reverse, Random, Hot, Cold, Twice] {
                assert!(addresses(pattern, 3 * n, n).iter().all(|&a| a < n), "{pattern:?} {n}");
            }
            for pattern in [Sequential, Reverse, Cold] {
                assert_eq!(addresses(pattern, n, n).len() as u64, n, "{pattern:?} {n}");
            }
            assert_eq!(addresses(Same, n, n).len(), 1);
            assert_eq!(addresses(Twice, n, n).len() as u64, n.div_ceil(2));
        }
        let hot = (0..10_000).filter(|&i| Pattern::Hot.address(i, 1600, 3) < 100).count();
        assert!((8900..9300).contains(&hot), "{hot}");
    }

    #[test]
    fn only_unchanged_contents_repeat() {
        let fill = |contents: Contents, i, address| {
            let mut block = [1; 64];
            contents.fill(&mut block, i, address, 9);
            block
        };
        assert_eq!(fill(Contents::Zeros, 1, 1), [0; 64]);
        assert_ne!(fill(Contents::Fresh, 1, 1), fill(Contents::Fresh, 2, 1));
        assert_eq!(fill(Contents::Fresh, 1, 1), fill(Contents::Fresh, 1, 2));
        assert_eq!(fill(Contents::Unchanged, 1, 1), fill(Contents::Unchanged, 2, 1));
        assert_ne!(fill(Contents::Unchanged, 1, 1), fill(Contents::Unchanged, 1, 2));
    }
}
