//! Levels of a tree, and slots per bucket on each level.

use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::types::Leaf;

/// Levels, at most.
pub const LEVELS_MAX: usize = 33;

/// Slots per bucket, at most.
pub const Z_MAX: u8 = 64;

/// Children of a bucket, at most.
pub const ARITY_MAX: u32 = 64;

/// The shape of a tree: levels from the root (0) down to the leaves, slots per bucket (Z) on each,
/// children per bucket. IR-Alloc is a shape; a level without slots is kept elsewhere, for example
/// in a [`Treetop`](super::Treetop).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    z: Vec<u8>,
    arity: u32,
    /// For each level, the number of leaves below one bucket.
    span: Vec<u64>,
    /// For each level, its first slot on a path; the last entry is the number of slots of a path.
    path_start: Vec<u32>,
}

impl Shape {
    /// A binary tree with `z` slots in each bucket.
    pub fn uniform(levels: usize, z: u8) -> Result<Self> {
        Self::new(vec![z; levels], 2)
    }

    /// A binary tree with `z[level]` slots in each bucket of a level.
    pub fn per_level(z: Vec<u8>) -> Result<Self> {
        Self::new(z, 2)
    }

    /// A tree with `arity` children per bucket.
    pub fn new(z: Vec<u8>, arity: u32) -> Result<Self> {
        if z.is_empty() || z.len() > LEVELS_MAX {
            return Err(Error::Geometry("a tree has 1 to 33 levels"));
        }
        if z.iter().any(|&z| z > Z_MAX) {
            return Err(Error::Geometry("a bucket has at most 64 slots"));
        }
        if !(2..=ARITY_MAX).contains(&arity) {
            return Err(Error::Geometry("a bucket has 2 to 64 children"));
        }
        let mut span = vec![1u64; z.len()];
        for level in (0..z.len() - 1).rev() {
            let wider = span[level + 1].checked_mul(u64::from(arity));
            span[level] = wider.filter(|&leaves| leaves <= 1 << 32).ok_or(TOO_MANY_LEAVES)?;
        }
        let mut path_start = vec![0];
        for &z in &z {
            path_start.push(path_start[path_start.len() - 1] + u32::from(z));
        }
        Ok(Self { z, arity, span, path_start })
    }

    /// The smallest binary tree with `z` slots per bucket and at least `slots_per_block` slots for
    /// each of `blocks` blocks.
    pub fn for_blocks(blocks: u64, z: u8, slots_per_block: f64) -> Result<Self> {
        let wanted = blocks as f64 * slots_per_block;
        let fits = |levels: &usize| ((1u64 << levels) - 1) as f64 * f64::from(z) >= wanted;
        Self::uniform((1..=LEVELS_MAX).find(fits).ok_or(TOO_MANY_LEAVES)?, z)
    }

    /// Number of levels; the leaves are the last.
    #[inline]
    pub fn levels(&self) -> usize {
        self.z.len()
    }

    /// Children per bucket.
    pub fn arity(&self) -> u32 {
        self.arity
    }

    /// Number of leaves, at most 2^32.
    #[inline]
    pub fn leaves(&self) -> u64 {
        self.span[0]
    }

    /// Slots per bucket on a level.
    #[inline]
    pub fn z(&self, level: usize) -> usize {
        usize::from(self.z[level])
    }

    /// Buckets on a level.
    pub fn buckets(&self, level: usize) -> u64 {
        self.leaves() / self.span[level]
    }

    /// Slots of the whole tree.
    pub fn slots(&self) -> u64 {
        (0..self.levels()).map(|l| self.buckets(l) * self.z(l) as u64).sum()
    }

    /// Slots of a path.
    #[inline]
    pub fn path_slots(&self) -> usize {
        self.path_start(self.levels())
    }

    /// The first slot of a level on a path, from the root down.
    #[inline]
    pub fn path_start(&self, level: usize) -> usize {
        self.path_start[level] as usize
    }

    /// The number of the bucket that the path of `leaf` crosses on a level.
    #[inline]
    pub fn bucket(&self, leaf: Leaf, level: usize) -> u64 {
        debug_assert!(leaf.0 < self.leaves(), "leaves are numbered from zero");
        if self.arity == 2 {
            leaf.0 >> (self.z.len() - 1 - level)
        } else {
            leaf.0 / self.span[level]
        }
    }

    /// The index, among its siblings, of the bucket that the path of `leaf` crosses on `level`,
    /// below the root.
    #[inline]
    pub fn branch(&self, leaf: Leaf, level: usize) -> usize {
        (self.bucket(leaf, level) % u64::from(self.arity)) as usize
    }

    /// The deepest level that two paths share.
    #[inline]
    pub fn meet(&self, a: Leaf, b: Leaf) -> usize {
        if self.arity == 2 {
            // The highest differing bit gives the level. A one is appended so that the logarithm
            // exists.
            let apart = ((a.0 ^ b.0) << 1 | 1).ilog2() as usize;
            return self.z.len() - 1 - apart;
        }
        let deepest = (0..self.levels()).rev();
        let mut shared = deepest.filter(|&level| self.bucket(a, level) == self.bucket(b, level));
        shared.next().expect("all paths share the root")
    }

    /// The tree of the first `levels` levels, at least one; its leaves are the buckets of the last.
    #[must_use]
    pub fn top(&self, levels: usize) -> Self {
        Self::new(self.z[..levels].to_vec(), self.arity).expect("not larger than this one")
    }

    /// This shape without slots on the levels for which `keep` is false.
    #[must_use]
    pub fn only(&self, keep: impl Fn(usize) -> bool) -> Self {
        let z = self.z.iter().enumerate().map(|(l, &z)| if keep(l) { z } else { 0 }).collect();
        Self::new(z, self.arity).expect("not larger than this one")
    }
}

const TOO_MANY_LEAVES: Error = Error::Geometry("a tree has at most 2^32 leaves");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_buckets() {
        let shape = Shape::per_level(vec![4, 2, 0, 3]).unwrap();
        assert_eq!((shape.levels(), shape.leaves(), shape.slots()), (4, 8, 4 + 4 + 24));
        assert_eq!((shape.path_slots(), shape.path_start(3)), (9, 6));
        assert_eq!(shape.bucket(Leaf(5), 1), 1);
        assert_eq!(shape.bucket(Leaf(5), 3), 5);
        assert_eq!((shape.branch(Leaf(5), 3), shape.branch(Leaf(5), 2)), (1, 0));
        assert_eq!(shape.only(|l| l > 1).path_slots(), 3);
        let top = shape.top(2);
        assert_eq!((top.leaves(), top.slots(), top.path_slots()), (2, 8, 6));
    }

    #[test]
    fn paths_meet_where_their_buckets_are_the_same() {
        for arity in [2, 3, 5] {
            let shape = Shape::new(vec![1; 4], arity).unwrap();
            for (a, b) in (0..shape.leaves()).flat_map(|a| (0..shape.leaves()).map(move |b| (a, b)))
            {
                let met = shape.meet(Leaf(a), Leaf(b));
                for level in 0..4 {
                    let same = shape.bucket(Leaf(a), level) == shape.bucket(Leaf(b), level);
                    assert_eq!(same, level <= met);
                }
            }
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        assert!(Shape::uniform(0, 4).is_err());
        assert!(Shape::uniform(33, 4).is_ok() && Shape::uniform(34, 4).is_err());
        assert!(Shape::uniform(5, 65).is_err());
        assert!(Shape::new(vec![1; 9], 64).is_err());
        assert!(Shape::new(vec![1; 2], 1).is_err());
    }

    #[test]
    fn the_smallest_tree_with_room() {
        for (blocks, slots_per_block, levels) in
            [(1, 2.0, 1), (2, 2.0, 1), (3, 2.0, 2), (1 << 20, 1.99, 19), (1 << 20, 2.0, 20)]
        {
            let shape = Shape::for_blocks(blocks, 4, slots_per_block).unwrap();
            assert_eq!(shape.levels(), levels);
        }
    }
}
