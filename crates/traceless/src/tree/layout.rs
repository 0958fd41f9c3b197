//! Where the buckets of a tree lie, in bytes.

use super::Shape;
use alloc::vec::Vec;

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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

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
            assert_eq!(layout.bucket_len_at(layout.len()), None);
        }
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
