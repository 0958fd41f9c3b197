//! Sizes of a Ring ORAM.

use crate::tree::{Shape, TREE_BLOCKS_MAX};
use traceless_core::error::{Error, Result};

/// Slots per bucket, at most: one bit per slot records whether it was read.
pub const SLOTS_MAX: usize = 128;

/// Blocks and dummies per bucket, and how often paths are evicted.
///
/// Larger buckets move fewer blocks per access and take less space; with small ones an eviction
/// moves fewer bytes at once. Measured with 2^13 leaves, uniform requests; Path ORAM with Z = 4
/// moves 112 blocks and has 2 slots a block:
///
/// | | early reshuffles an access | blocks moved an access | slots a block |
/// |---|---|---|---|
/// | `Z4` | 0.121 | 80.9 | 13.3 |
/// | `Z8` | 0.091 | 65.5 | 10.0 |
/// | `Z16` | 0.030 | 57.0 | 8.6 |
/// | `Z32` | 0.009 | 52.2 | 7.8 |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Blocks that a bucket holds at most (Z).
    pub z: u8,
    /// Further reads that the bucket answers before it must be rewritten (S).
    pub dummies: u8,
    /// Accesses for each path that is evicted (A).
    pub rate: u8,
    /// Blocks that the stash holds at most between two steps, including the blocks that wait for
    /// the next eviction: the probability of more is below 2^-80 (Ren et al., USENIX Security'15,
    /// by the table of their appendix).
    pub stash_blocks: u16,
}

impl Params {
    /// The smallest buckets.
    pub const Z4: Self = Self { z: 4, dummies: 6, rate: 3, stash_blocks: 32 };
    /// Eight blocks a bucket.
    pub const Z8: Self = Self { z: 8, dummies: 12, rate: 8, stash_blocks: 41 };
    /// The recommended default.
    pub const Z16: Self = Self { z: 16, dummies: 27, rate: 20, stash_blocks: 65 };
    /// The fewest bytes per access on average.
    pub const Z32: Self = Self { z: 32, dummies: 58, rate: 46, stash_blocks: 113 };

    /// Slots of a bucket.
    pub fn slots(self) -> usize {
        usize::from(self.z) + usize::from(self.dummies)
    }

    /// Refuses sizes that are not valid.
    pub fn check(self) -> Result {
        if self.z == 0 || self.dummies == 0 || self.slots() > SLOTS_MAX {
            return Err(Error::Geometry("a bucket has blocks and dummies, 128 at most"));
        }
        if self.rate == 0 || self.stash_blocks < self.rate.into() {
            return Err(Error::Geometry("blocks wait in the stash for the next eviction"));
        }
        Ok(())
    }

    /// Refuses a shape unless it has one slot per bucket. Its first `cached` levels may have no
    /// slots, since they are cached.
    pub(super) fn check_shape(self, shape: &Shape, cached: usize) -> Result {
        self.check()?;
        let stands_for_bucket = |level| shape.z(level) == usize::from(level >= cached);
        if !(0..shape.levels()).all(stands_for_bucket) {
            return Err(Error::Geometry("a shape for Ring ORAM has a slot for each bucket"));
        }
        Ok(())
    }

    /// Whether evictions keep up with `blocks` blocks in a tree of this shape: N ≤ A · 2^(L - 1),
    /// where L is the deepest level.
    pub fn keeps_up(self, shape: &Shape, blocks: u64) -> bool {
        blocks <= u64::from(self.rate) * shape.leaves() / 2
    }

    /// The smallest tree in which evictions keep up. One slot of the shape stands for a bucket.
    pub fn shape_for(self, blocks: u64) -> Result<Shape> {
        self.check()?;
        if blocks > TREE_BLOCKS_MAX {
            return Err(Error::Geometry("more blocks than a tree has numbers for"));
        }
        let leaves = (2 * blocks.max(1)).div_ceil(self.rate.into()).next_power_of_two().max(2);
        Shape::uniform(leaves.ilog2() as usize + 1, 1)
    }
}
