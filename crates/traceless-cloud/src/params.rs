//! The tree for a number of blocks, and its failure probabilities.
//!
//! With [`Params::new`] the gateway keeps the tree's root: the blocks that wait there belong to the
//! paper's ring and root, and a round takes all of them that belong under one of the root's
//! children. So the host renews one node less in each round, and reads one slot less in each query.
//!
//! Each bound is the tail of a Poisson or binomial count at the end of a node's epoch, when the
//! node is fullest or most read. Exceeding a bound loses no data and reveals nothing: a full node
//! leaves blocks further up, at last at the gateway; a node that was read too often is renewed,
//! which depends only on the public number of reads.
//!
//! The tree for a million blocks of 1 KiB:
//!
//! ```
//! use traceless_cloud::params::Params;
//!
//! # fn main() -> traceless_cloud::Result {
//! let params = Params::new(1 << 20, 1024, 32)?;
//! println!("{} layers, {:.1} times the space", params.geometry.layers, params.space());
//! // Each limit is exceeded with probability 2^-32, at most.
//! let bounds = params.bounds();
//! assert!(bounds.inner <= -32.0 && bounds.leaf <= -32.0);
//! assert!(bounds.inner_reads <= -32.0 && bounds.leaf_reads <= -32.0);
//! # Ok(())
//! # }
//! ```

use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::kernel::Choice;
use crate::tail_probability::{binomial_above, poisson_above};

/// Blocks of a leaf, in rounds' worth, on average at most. This decides the number of layers. One
/// more layer would renew as many more slots in a round.
const LEAF_ROUNDS_MAX: f64 = 8.0;
/// Children of a node, as in the paper.
pub const ARITY: u32 = 8;
/// The most children of a node: beyond it a node has more slots than the enclave permutes.
const ARITY_MAX: u32 = 64;
/// Blocks, in rounds' worth, that may wait at the gateway besides a root's worth. Normally about
/// two rounds' worth wait.
const STASH_ROUNDS_MAX: usize = 6;
/// Rounds in the life of a store, for the union bound.
const LIFETIME_ROUNDS_LOG2: f64 = 20.0;
/// Bits of leaf, layer and slot together in the gateway's map.
const INDEX_BITS_MAX: u32 = 31;
/// How many blocks a number of 32 bits can name.
const BLOCKS_MAX: u64 = (1 << 32) - 2;

/// The parameters of a tree.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Params {
    /// How many blocks the tree has.
    pub blocks: u64,
    /// Each failure has a probability of at most 2^-`lambda`.
    pub lambda: u32,
    /// The shape of the tree, derived from the other parameters.
    pub geometry: Geometry,
    /// Real blocks that a round brings in at most. A round is due after as many queries.
    pub round_blocks: usize,
    /// Real blocks in an inner node, at most.
    pub inner_blocks: usize,
    /// Real blocks in a leaf, at most.
    pub leaf_blocks: usize,
}

/// The logarithm, to base 2, of the probability that a limit is exceeded once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bounds {
    /// More blocks go down to one child than a round has slots.
    pub round: f64,
    /// An inner node is full.
    pub inner: f64,
    /// A leaf is full.
    pub leaf: f64,
    /// A leaf is read more often in an epoch than it has dummies, so it is renewed early.
    pub leaf_reads: f64,
    /// An inner node is read more often in an epoch than it has dummies.
    pub inner_reads: f64,
    /// One of the first three in a lifetime of 2^20 rounds: blocks wait further up.
    pub lifetime: f64,
}

impl Params {
    /// The tree with its root at the gateway, for `blocks` blocks of `block_len` bytes. Each limit
    /// is exceeded with probability 2^-`lambda`.
    pub fn new(blocks: u64, block_len: usize, lambda: u32) -> Result<Self> {
        Self::with_arity(ARITY, blocks, block_len, lambda)
    }

    /// The same with another number of children of a node. With more of them the tree has fewer
    /// layers, so that a query reads fewer slots, and a round writes larger nodes.
    pub fn with_arity(arity: u32, blocks: u64, block_len: usize, lambda: u32) -> Result<Self> {
        Self::with_shape(ARITY, arity, blocks, block_len, lambda)
    }

    /// The paper's tree, with its root at the host.
    pub fn printed(blocks: u64, block_len: usize, lambda: u32) -> Result<Self> {
        Self::with_shape(1, ARITY, blocks, block_len, lambda)
    }

    /// The tree that belongs to a kernel: the paper's tree for the paper's kernel.
    pub fn for_kernel(
        choice: Choice,
        arity: u32,
        blocks: u64,
        block_len: usize,
        lambda: u32,
    ) -> Result<Self> {
        match choice {
            Choice::Benes => Self::with_arity(arity, blocks, block_len, lambda),
            Choice::Paper if arity == ARITY => Self::printed(blocks, block_len, lambda),
            Choice::Paper => Err(Error::Parameters("nodes of the paper's kernel have 8 children")),
        }
    }

    /// The paper's choices: 25·lambda slots a round.
    fn with_shape(
        roots: u32,
        arity: u32,
        blocks: u64,
        block_len: usize,
        lambda: u32,
    ) -> Result<Self> {
        if !(1..=BLOCKS_MAX).contains(&blocks) {
            return Err(Error::Parameters("there are 1 to 2^32 - 2 blocks"));
        }
        if !(2..=128).contains(&lambda) {
            return Err(Error::Parameters("lambda is 2 to 128"));
        }
        if !(2..=ARITY_MAX).contains(&arity) {
            return Err(Error::Parameters("a node has 2 to 64 children"));
        }
        let round_slots = 25 * lambda as usize;
        let round_blocks = 20 * lambda as usize;
        let leaf_mean_max = LEAF_ROUNDS_MAX * round_blocks as f64;
        let (mut layers, mut leaves) = (1, roots);
        while leaves < ARITY || blocks as f64 / f64::from(leaves) > leaf_mean_max {
            (layers, leaves) = (layers + 1, leaves.saturating_mul(arity));
        }
        let bits = -f64::from(lambda);
        let inner_blocks = smallest(|n| poisson_above(inner_mean(round_blocks, arity), n) <= bits);
        let share = 1.0 / f64::from(leaves);
        let leaf_blocks = smallest(|n| binomial_above(blocks, share, n) <= bits);
        let reads = |width| smallest(|n| poisson_above(reads_mean(round_blocks, width), n) <= bits);
        // The number of reads of a single root is known exactly.
        let inner_reads = if roots == 1 { 2 * round_blocks } else { reads(roots) };
        let geometry = Geometry {
            roots,
            arity,
            layers,
            round_slots,
            inner_slots: inner_blocks + inner_reads,
            leaf_slots: leaf_blocks + reads(leaves),
            block_len,
            partition: 0,
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

    /// How many reads of a node cause its renewal: as many as it always has dummies.
    pub fn reads_max(&self, layer: usize) -> usize {
        self.geometry.slots(layer) - self.capacity(layer)
    }

    /// At a constant rate: how many queries after its beginning a round is sent to the host. It is
    /// prepared meanwhile.
    pub fn stage_after(&self) -> usize {
        self.round_blocks / 4
    }

    /// At a constant rate: how many queries after its beginning a round is committed.
    pub fn commit_after(&self) -> usize {
        self.round_blocks - self.round_blocks / 8
    }

    /// How many blocks may wait at the gateway. With several roots, the blocks of each wait until a
    /// round comes to it, on average for half as many rounds as there are roots.
    pub fn stash_max(&self) -> usize {
        let rounds = self.geometry.roots as usize / 2 + STASH_ROUNDS_MAX;
        rounds * self.round_blocks
    }

    /// The probabilities of exceeding each limit.
    pub fn bounds(&self) -> Bounds {
        let g = &self.geometry;
        let (arity, leaves) = (g.arity, f64::from(g.leaves()));
        let visits = u64::from(arity) * self.round_blocks as u64;
        let round = binomial_above(visits, 1.0 / f64::from(arity), g.round_slots);
        let inner = poisson_above(inner_mean(self.round_blocks, arity), self.inner_blocks);
        let leaf = binomial_above(self.blocks, 1.0 / leaves, self.leaf_blocks);
        let reads = |layer: usize| {
            poisson_above(reads_mean(self.round_blocks, g.width(layer)), self.reads_max(layer))
        };
        let leaf_reads = reads(g.layers - 1);
        let inner_reads = match (g.roots, g.layers) {
            // A single root has dummies for the maximum number of reads.
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

/// Real blocks in an inner node, on average, just after its eviction: from 1 to m - 1 visits
/// for each of the m children except the one just served.
fn inner_mean(round_blocks: usize, arity: u32) -> f64 {
    round_blocks as f64 * f64::from(arity - 1) / 2.0
}

/// Reads of a node between two of its evictions, on average, in a layer of `width` nodes, if the
/// second eviction comes a round late.
fn reads_mean(round_blocks: usize, width: u32) -> f64 {
    round_blocks as f64 * (1.0 + 1.0 / f64::from(width))
}

/// The least number for which `is_enough` is true, where it is true for all larger ones, too.
fn smallest(is_enough: impl Fn(usize) -> bool) -> usize {
    let mut above = 1;
    while !is_enough(above) {
        above *= 2;
    }
    let mut below = above / 2;
    while below + 1 < above {
        let middle = usize::midpoint(below, above);
        if is_enough(middle) { above = middle } else { below = middle }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_tree_has_the_papers_sizes() {
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
            // The paper's kernel has room for no more rows.
            assert!(g.leaf_slots.max(g.inner_slots) + g.round_slots <= 8192);
            // The same tree without its root has fewer dummies.
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
    fn bounds_meet_lambda_with_the_smallest_limits() {
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

    /// A store in which requests cost more than bytes: ten million blocks, with the layer that 64
    /// MiB of memory hold.
    #[test]
    fn more_children_make_fewer_layers() {
        let cached = |p: &Params| {
            let g = &p.geometry;
            let nodes = |layer| u64::from(g.width(layer)) + 2;
            (0..g.layers)
                .take_while(|&layer| nodes(layer) * g.node_len(layer) as u64 <= 64 << 20)
                .count()
        };
        let tree = |arity| Params::with_arity(arity, 10_000_000, 1024, 32).unwrap();
        let (narrow, wide) = (tree(8), tree(16));
        assert_eq!((narrow.geometry.layers, cached(&narrow)), (4, 1));
        assert_eq!((wide.geometry.layers, cached(&wide)), (3, 1));
        assert!(wide.space() < 1.1 * narrow.space(), "{} {}", wide.space(), narrow.space());
        let bounds = wide.bounds();
        assert!(bounds.inner <= -32.0 && bounds.leaf <= -32.0 && bounds.round <= -32.0);
        assert!(bounds.inner_reads <= -32.0 && bounds.leaf_reads <= -32.0);
        let refused = |arity| Params::with_arity(arity, 10_000_000, 1024, 32).is_err();
        assert_eq!([0, 1, 65, u32::MAX].map(refused), [true; 4]);
        assert!(Params::for_kernel(Choice::Paper, 16, 1000, 64, 8).is_err());
    }

    #[test]
    fn impossible_parameters_are_refused() {
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
