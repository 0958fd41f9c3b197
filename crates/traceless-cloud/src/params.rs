//! The tree for so many blocks, and how likely it is to fail.
//!
//! Of our tree the gateway keeps the root: what waits there is the paper's ring and what would lie
//! in a root, and a round takes on all of it that goes to one of the root's children. So the host
//! makes a node less anew in each round, and reads a slot less a query.
//!
//! Each bound is the tail of a Poisson or binomial count at the end of a node's epoch, when it is
//! fullest or most read. None of them loses data or shows anything: a node that is full leaves
//! blocks further up, and at last at the gateway; a node that was read too often is made anew,
//! which depends on how often it was read, and that is public.

use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::kernel::Choice;
use crate::tail::{binomial_above, poisson_above};

/// Rounds' worth of blocks in a leaf on average, at most. It decides how many layers a tree has.
/// One layer more would make as many slots anew in a round.
const LEAF_ROUNDS_MAX: f64 = 8.0;
/// Children of a node, as in the paper.
const ARITY: u32 = 8;
/// Rounds' worth of blocks that may wait at the gateway beside those of a root. Two are there as
/// a rule.
const WAITING_ROUNDS_MAX: usize = 6;
/// Rounds in the life of a store, for the union bound.
const LIFETIME_ROUNDS_LOG2: f64 = 20.0;
/// Bits of path, layer and slot together, as the gateway keeps them.
const INDEX_BITS_MAX: u32 = 31;
/// Blocks that a number of 32 bits can name.
const BLOCKS_MAX: u64 = (1 << 32) - 2;

/// What a tree is made for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Params {
    /// Blocks.
    pub blocks: u64,
    /// Bits of the failure bound of each event.
    pub lambda: u32,
    /// The shape that follows.
    pub geometry: Geometry,
    /// Real blocks that a round brings in at most: a round is due after as many queries.
    pub round_blocks: usize,
    /// Real blocks in a node that is no leaf, at most.
    pub inner_blocks: usize,
    /// Real blocks in a leaf, at most.
    pub leaf_blocks: usize,
}

/// The logarithm, to base 2, of how likely it is that a limit is met once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// More blocks want to go down to one child than a round has slots.
    pub round: f64,
    /// A node that is no leaf is full.
    pub inner: f64,
    /// A leaf is full.
    pub leaf: f64,
    /// A leaf is read more often in an epoch than it has dummies: it is made anew early.
    pub leaf_reads: f64,
    /// The same of a node that is no leaf.
    pub inner_reads: f64,
    /// The first three in a lifetime of 2^20 rounds: blocks wait further up.
    pub lifetime: f64,
}

impl Params {
    /// Our tree for `blocks` blocks of `block_len` bytes, each of whose limits is met with
    /// probability 2^-`lambda`.
    pub fn new(blocks: u64, block_len: usize, lambda: u32) -> Result<Self> {
        Self::with_roots(ARITY, blocks, block_len, lambda)
    }

    /// The paper's, whose root the host has, too.
    pub fn printed(blocks: u64, block_len: usize, lambda: u32) -> Result<Self> {
        Self::with_roots(1, blocks, block_len, lambda)
    }

    /// The tree that goes with a kernel: the paper's with the paper's.
    pub fn for_kernel(choice: Choice, blocks: u64, block_len: usize, lambda: u32) -> Result<Self> {
        match choice {
            Choice::Benes => Self::new(blocks, block_len, lambda),
            Choice::Paper => Self::printed(blocks, block_len, lambda),
        }
    }

    /// The paper's choices: 25·lambda slots a round, 8 children.
    fn with_roots(roots: u32, blocks: u64, block_len: usize, lambda: u32) -> Result<Self> {
        if !(1..=BLOCKS_MAX).contains(&blocks) {
            return Err(Error::Parameters("there are 1 to 2^32 - 2 blocks"));
        }
        if !(2..=128).contains(&lambda) {
            return Err(Error::Parameters("lambda is 2 to 128"));
        }
        let round_slots = 25 * lambda as usize;
        let round_blocks = 20 * lambda as usize;
        let leaf_mean_max = LEAF_ROUNDS_MAX * round_blocks as f64;
        let (mut layers, mut leaves) = (1, roots);
        while leaves < ARITY || blocks as f64 / f64::from(leaves) > leaf_mean_max {
            (layers, leaves) = (layers + 1, leaves * ARITY);
        }
        let bits = -f64::from(lambda);
        let inner_blocks = least(|n| poisson_above(inner_mean(round_blocks), n) <= bits);
        let share = 1.0 / f64::from(leaves);
        let leaf_blocks = least(|n| binomial_above(blocks, share, n) <= bits);
        let reads = |width| least(|n| poisson_above(reads_mean(round_blocks, width), n) <= bits);
        // Of a single root it is known how often it is read.
        let inner_reads = if roots == 1 { 2 * round_blocks } else { reads(roots) };
        let geometry = Geometry {
            roots,
            arity: ARITY,
            layers,
            round_slots,
            inner_slots: inner_blocks + inner_reads,
            leaf_slots: leaf_blocks + reads(leaves),
            block_len,
        };
        geometry.check()?;
        if index_bits(&geometry) > INDEX_BITS_MAX {
            return Err(Error::Parameters("more blocks than a place of 31 bits can tell apart"));
        }
        Ok(Self { blocks, lambda, geometry, round_blocks, inner_blocks, leaf_blocks })
    }

    /// Real blocks in a node of a layer, at most.
    pub fn capacity(&self, layer: usize) -> usize {
        if layer + 1 == self.geometry.layers { self.leaf_blocks } else { self.inner_blocks }
    }

    /// Reads of a node of a layer after which it is made anew: as many dummies as it always has.
    pub fn reads_max(&self, layer: usize) -> usize {
        self.geometry.slots(layer) - self.capacity(layer)
    }

    /// Queries after which a round that was begun is sent to the host, where there is a constant
    /// beat: it is made ready meanwhile.
    pub fn stage_after(&self) -> usize {
        self.round_blocks / 4
    }

    /// Queries after which it is committed.
    pub fn commit_after(&self) -> usize {
        self.round_blocks - self.round_blocks / 8
    }

    /// Blocks that may be at the gateway. With several roots those of each wait until a round comes
    /// by it, on average half as many rounds as there are roots.
    pub fn waiting_max(&self) -> usize {
        let rounds = self.geometry.roots as usize / 2 + WAITING_ROUNDS_MAX;
        rounds * self.round_blocks
    }

    /// How likely each limit is met.
    pub fn bounds(&self) -> Bounds {
        let g = &self.geometry;
        let (arity, leaves) = (g.arity, f64::from(g.leaves()));
        let visits = u64::from(arity) * self.round_blocks as u64;
        let round = binomial_above(visits, 1.0 / f64::from(arity), g.round_slots);
        let inner = poisson_above(inner_mean(self.round_blocks), self.inner_blocks);
        let leaf = binomial_above(self.blocks, 1.0 / leaves, self.leaf_blocks);
        let reads = |layer: usize| {
            poisson_above(reads_mean(self.round_blocks, g.width(layer)), self.reads_max(layer))
        };
        let leaf_reads = reads(g.layers - 1);
        let inner_reads = match (g.roots, g.layers) {
            // A single root has dummies for as many as there can be.
            (1, _) => reads(1.min(g.layers - 1)),
            (_, 1) => f64::NEG_INFINITY,
            _ => reads(0),
        };
        let each_round = (g.layers - 1) as f64 * (round.exp2() + inner.exp2()) + leaf.exp2();
        let lifetime = (each_round.log2() + LIFETIME_ROUNDS_LOG2).min(0.0);
        Bounds { round, inner, leaf, leaf_reads, inner_reads, lifetime }
    }

    /// Bytes at the host for each byte of data, without the spare places of a round.
    pub fn space(&self) -> f64 {
        let g = &self.geometry;
        let data = self.blocks as f64 * g.block_len as f64;
        g.slots_in_all() as f64 * g.slot_len() as f64 / data
    }
}

fn index_bits(g: &Geometry) -> u32 {
    let bits = |count: usize| (count - 1).checked_ilog2().map_or(0, |log| log + 1);
    let slots = g.inner_slots.max(g.leaf_slots);
    bits(g.leaves() as usize) + bits(g.layers) + bits(slots)
}

/// Real blocks in a node that is no leaf, on average, just after its eviction: what came in 1 to
/// m - 1 visits for each child but the one that was just served.
fn inner_mean(round_blocks: usize) -> f64 {
    round_blocks as f64 * f64::from(ARITY - 1) / 2.0
}

/// Reads of a node between two of its evictions, on average, in a layer of so many: if the second
/// comes a round late.
fn reads_mean(round_blocks: usize, width: u32) -> f64 {
    round_blocks as f64 * (1.0 + 1.0 / f64::from(width))
}

/// The least number for which `holds`, which holds for all larger ones.
fn least(holds: impl Fn(usize) -> bool) -> usize {
    let mut above = 1;
    while !holds(above) {
        above *= 2;
    }
    let mut below = above / 2;
    while below + 1 < above {
        let middle = usize::midpoint(below, above);
        if holds(middle) { above = middle } else { below = middle }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_sizes() {
        // Blocks, layers, most slots of a leaf (notes: with 1600 dummies), space.
        let cases = [
            (1 << 20, 4, 3955, 2.2),
            (1 << 21, 4, 6310, 1.8),
            (10 << 20, 5, 4544, 2.1),
            (20 << 20, 5, 7232, 1.6),
        ];
        for (blocks, layers, leaf_slots, space) in cases {
            let p = Params::printed(blocks, 1024, 32).unwrap();
            let g = p.geometry;
            assert_eq!((g.arity, g.round_slots, p.round_blocks, g.layers), (8, 800, 640, layers));
            assert!(g.leaf_slots <= leaf_slots && p.space() <= space, "{p:?} {}", p.space());
            // The paper's kernel can name no more.
            assert!(g.leaf_slots.max(g.inner_slots) + g.round_slots <= 8192);
            // Without its root the same tree, with fewer dummies.
            let ours = Params::new(blocks, 1024, 32).unwrap();
            let rootless = Geometry { roots: 8, layers: layers - 1, ..g };
            assert_eq!(Geometry { inner_slots: g.inner_slots, ..ours.geometry }, rootless);
            let saved = g.inner_slots - ours.geometry.inner_slots;
            assert!((300..500).contains(&saved), "{saved}");
        }
    }

    #[test]
    fn few_blocks_make_few_layers() {
        let layers = |blocks| Params::new(blocks, 1024, 32).unwrap().geometry.layers;
        assert_eq!([1, 40_000, 41_000, 300_000, 400_000].map(layers), [1, 1, 2, 2, 3]);
    }

    #[test]
    fn bounds_are_as_asked_for_and_limits_the_least() {
        for (blocks, lambda) in [(1000, 2), (1 << 20, 32), (10 << 20, 32), (10 << 20, 64)] {
            let p = Params::new(blocks, 1024, lambda).unwrap();
            let bits = -f64::from(lambda);
            let b = p.bounds();
            assert!(b.inner <= bits && b.leaf <= bits, "{b:?}");
            assert!(b.leaf_reads <= bits && b.inner_reads <= bits, "{b:?}");
            let less = Params { inner_blocks: p.inner_blocks - 1, ..p };
            assert!(less.bounds().inner > bits);
            let less = Params { leaf_blocks: p.leaf_blocks - 1, ..p };
            assert!(less.bounds().leaf > bits);
        }
        let b = Params::new(10 << 20, 1024, 32).unwrap().bounds();
        assert!((-36.0..-34.0).contains(&b.round), "{b:?}");
        assert!((-14.0..-8.0).contains(&b.lifetime), "{b:?}");
    }

    #[test]
    fn impossible_wishes_are_refused() {
        for (blocks, block_len, lambda) in [
            (0, 1024, 32),
            (1 << 32, 1024, 32),
            (1 << 31, 1024, 32),
            (9, 1000, 32),
            (9, 1024, 1),
            (9, 1024, 200),
        ] {
            assert!(Params::new(blocks, block_len, lambda).is_err());
        }
    }
}
