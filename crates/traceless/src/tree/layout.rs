//! Where the buckets of a tree lie, in bytes.

use super::Shape;
use alloc::vec::Vec;
use traceless_core::store::DrawnPlaces;
use traceless_core::trace::{Event, Op};

/// Bytes of a slot's header.
pub const HEADER_LEN: usize = 8;

/// The place of each bucket. The buckets of a small subtree are neighbours, so that a path touches
/// few pages, or few rows of a DRAM (Ren et al., section 3.1.1).
#[derive(Clone, Debug)]
pub struct TreeLayout {
    levels: Vec<LevelLayout>,
    len: u64,
}

#[derive(Clone, Copy, Debug)]
struct LevelLayout {
    bucket_len: usize,
    /// First byte of the subtrees that the level belongs to.
    group: u64,
    subtree_len: u64,
    /// First byte of the level in each subtree.
    within: u64,
    /// Buckets of the level in a subtree.
    width: u64,
}

impl TreeLayout {
    /// A bucket takes `overhead(level)` bytes, and a header and a body of `body_len` bytes for each
    /// slot. A subtree has as many levels as fit `together` bytes, at least one.
    pub fn new(
        shape: &Shape,
        body_len: usize,
        overhead: impl Fn(usize) -> usize,
        together: usize,
    ) -> Self {
        let bucket_len = |level: usize| match shape.z(level) {
            0 => 0,
            z => overhead(level) + z * (HEADER_LEN + body_len),
        };
        let (mut levels, mut len): (Vec<LevelLayout>, u64) = (Vec::new(), 0);
        while levels.len() < shape.levels() {
            let first = levels.len();
            let (mut subtree_len, mut width, group) = (0, 1, len);
            let mut members = Vec::new();
            for level in first..shape.levels() {
                let bytes = width * bucket_len(level) as u64;
                if level > first && subtree_len + bytes > together as u64 {
                    break;
                }
                members.push((bucket_len(level), subtree_len, width));
                subtree_len += bytes;
                width *= u64::from(shape.arity());
            }
            levels.extend(members.into_iter().map(|(bucket_len, within, width)| LevelLayout {
                bucket_len,
                group,
                subtree_len,
                within,
                width,
            }));
            len += shape.buckets(first) * subtree_len;
        }
        Self { levels, len }
    }

    /// Bytes of the whole tree.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no level has slots.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of a bucket on a level.
    #[inline]
    pub fn bucket_len(&self, level: usize) -> usize {
        self.levels[level].bucket_len
    }

    /// First byte of bucket number `bucket` of a level.
    #[inline]
    pub fn bucket_at(&self, level: usize, bucket: u64) -> u64 {
        let l = &self.levels[level];
        let (subtree, nth) = if l.width.is_power_of_two() {
            (bucket >> l.width.trailing_zeros(), bucket & (l.width - 1))
        } else {
            (bucket / l.width, bucket % l.width)
        };
        l.group + subtree * l.subtree_len + l.within + nth * l.bucket_len as u64
    }

    /// Bytes of a bucket of the deepest level with slots.
    fn deepest_bucket_len(&self) -> Option<usize> {
        self.levels.iter().rev().map(|l| l.bucket_len).find(|len| *len > 0)
    }

    /// The bucket of the deepest level with slots that begins at byte `at` of the tree.
    pub fn deepest_bucket_at(&self, at: u64) -> Option<u64> {
        let l = self.levels.iter().rev().find(|l| l.bucket_len > 0)?;
        let within_group = at.checked_sub(l.group).filter(|_| at < self.len)?;
        let begins = (within_group % l.subtree_len).checked_sub(l.within)?;
        let nth = begins / l.bucket_len as u64;
        let is_one = begins.is_multiple_of(l.bucket_len as u64) && nth < l.width;
        is_one.then_some(within_group / l.subtree_len * l.width + nth)
    }

    /// Length of the bucket that begins at byte `at`; `None` if no bucket begins there.
    pub fn bucket_len_at(&self, at: u64) -> Option<usize> {
        let of_group = self.levels.iter().filter(|l| l.bucket_len > 0 && l.group <= at);
        let group = of_group.clone().next_back()?.group;
        let subtrees = of_group.filter(|l| l.group == group);
        subtrees.clone().find_map(|l| {
            let begins = ((at - group) % l.subtree_len).checked_sub(l.within)?;
            let len = l.bucket_len as u64;
            let is_one = begins < l.width * len && begins.is_multiple_of(len) && at < self.len;
            is_one.then_some(l.bucket_len)
        })
    }

    /// Bytes of the longest bucket.
    pub fn bucket_len_max(&self) -> usize {
        self.levels.iter().map(|l| l.bucket_len).max().unwrap_or(0)
    }

    /// Bytes of a path.
    pub fn path_len(&self) -> usize {
        self.levels.iter().map(|l| l.bucket_len).sum()
    }
}

/// The buckets of the deepest level of a tree in a store: each path that is read shows one.
pub struct DrawnLeaves {
    /// First byte of the tree.
    pub first: u64,
    /// Places of its buckets.
    pub layout: TreeLayout,
    /// Buckets of the deepest level with slots.
    pub leaves: u64,
}

impl DrawnLeaves {
    /// The leaves of a tree of this shape, which begins at byte `first` of its store.
    pub fn new(first: u64, shape: &Shape, layout: TreeLayout) -> Self {
        let deepest = (0..shape.levels()).rev().find(|&level| shape.z(level) > 0);
        Self { first, layout, leaves: deepest.map_or(0, |level| shape.buckets(level)) }
    }
}

impl DrawnPlaces for DrawnLeaves {
    fn places(&self) -> u64 {
        self.leaves
    }

    fn shown_by(&self) -> Op {
        Op::Read
    }

    /// The buckets of a subtree that are read together are one event, which ends with the deepest.
    fn drawn(&self, event: &Event) -> Option<u64> {
        let len = self.layout.deepest_bucket_len()?;
        let end = event.at.checked_sub(self.first)?.checked_add(event.len.into())?;
        let leaf = self.layout.deepest_bucket_at(end.checked_sub(len as u64)?)?;
        (event.len as usize >= len && leaf < self.leaves).then_some(leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use traceless_core::trace::Surface;

    #[test]
    fn buckets_fill_the_tree_and_do_not_overlap() {
        for (z, arity, together) in [
            (vec![4; 6], 2, 700),
            (vec![4, 2, 1, 3, 4], 2, 1 << 20),
            (vec![0, 0, 3, 3], 2, 0),
            (vec![2; 4], 3, 500),
        ] {
            let shape = Shape::new(z, arity).unwrap();
            let layout = TreeLayout::new(&shape, 24, |level| 16 - level, together);
            let mut used = vec![false; layout.len() as usize];
            for level in 0..shape.levels() {
                let len = layout.bucket_len(level);
                for bucket in 0..shape.buckets(level) {
                    let at = layout.bucket_at(level, bucket) as usize;
                    if len > 0 {
                        assert_eq!(layout.bucket_len_at(at as u64), Some(len));
                        assert_eq!(layout.bucket_len_at(at as u64 + 1), None);
                    }
                    for byte in &mut used[at..at + len] {
                        assert!(!core::mem::replace(byte, true));
                    }
                }
            }
            assert!(used.iter().all(|&used| used));
            let leaves = DrawnLeaves::new(0, &shape, layout.clone()).leaves;
            let deepest = (0..shape.levels()).rev().find(|&level| shape.z(level) > 0).unwrap();
            let found: Vec<_> = (0..layout.len())
                .filter_map(|at| Some((layout.deepest_bucket_at(at)?, at)))
                .filter(|(bucket, _)| *bucket < leaves)
                .collect();
            let wanted: Vec<_> =
                (0..leaves).map(|bucket| (bucket, layout.bucket_at(deepest, bucket))).collect();
            assert_eq!(found, wanted);
            assert_eq!(layout.bucket_len_at(layout.len()), None);
        }
    }

    #[test]
    fn a_path_shows_one_leaf_whether_its_buckets_are_read_together_or_not() {
        let shape = Shape::uniform(9, 4).unwrap();
        let layout = TreeLayout::new(&shape, 64, |_| 32, 3000);
        let leaves = DrawnLeaves::new(1000, &shape, layout.clone());
        assert_eq!((leaves.places(), leaves.shown_by()), (256, Op::Read));
        for leaf in 0..256 {
            let bucket = |level: usize| 1000 + layout.bucket_at(level, leaf >> (8 - level));
            let event =
                |at, len| Event { time: 0, surface: Surface::Storage, op: Op::Read, at, len };
            let apart: Vec<_> =
                (0..9).filter_map(|l| leaves.drawn(&event(bucket(l), 320))).collect();
            assert_eq!(apart, [leaf]);
            let end = bucket(8) + 320;
            assert_eq!(leaves.drawn(&event(bucket(6), (end - bucket(6)) as u32)), Some(leaf));
        }
        let before = Event { time: 0, surface: Surface::Storage, op: Op::Read, at: 9, len: 320 };
        assert_eq!(leaves.drawn(&before), None);
    }

    #[test]
    fn a_subtree_lies_together() {
        let shape = Shape::uniform(9, 4).unwrap();
        let layout = TreeLayout::new(&shape, 64, |_| 32, 3000);
        // Three levels of 320-byte buckets: 2,240 bytes a subtree.
        let root = layout.bucket_at(3, 5);
        assert_eq!(layout.bucket_at(4, 11), root + 2 * 320);
        assert_eq!(layout.bucket_at(5, 23), root + 6 * 320);
    }
}
