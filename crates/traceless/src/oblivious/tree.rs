//! Where the buckets of a tree lie.
//!
//! A label's lowest bit says where the path turns at the root, the next where it turns below it:
//! labels in counting order are then in reverse-lexicographic order as paths, and two labels part
//! at the lowest bit that they differ in.

use super::LEVELS_MAX;
use crate::error::{Error, Result};
use traceless_sys::{Words, ct};

/// Slots in a bucket.
pub const SLOTS: usize = 2;

/// Address and label of the two blocks in a bucket, as two words: both addresses, both labels.
/// Address 0 is that of an empty slot.
pub type Header = [u64; 2];

/// A tree of buckets, reached path by path. What is called, with which level and leaf, is what
/// whoever watches the memory sees.
pub trait Memory: Send + Sync {
    /// Asks for a path that will be opened soon.
    fn prefetch(&self, leaf: u32);

    /// Makes the buckets on the path to `leaf` readable.
    fn open(&mut self, leaf: u32) -> Result;

    /// The header of the bucket at `level` on the open path.
    fn header(&self, level: u32, leaf: u32) -> Header;

    /// Changes that header.
    fn set_header(&mut self, level: u32, leaf: u32, header: Header);

    /// The bodies of that bucket, back to back.
    fn bodies(&mut self, level: u32, leaf: u32) -> &mut [u64];

    /// Puts the open path back.
    fn close(&mut self, leaf: u32) -> Result;
}

/// A tree in memory that is watched, but not read or changed, by others.
pub struct Ram {
    levels: u32,
    words: usize,
    headers: Words,
    bodies: Words,
}

impl Ram {
    /// An empty tree whose blocks have `words` words.
    pub fn new(levels: u32, words: usize) -> Result<Self> {
        assert!((1..=LEVELS_MAX as u32).contains(&levels), "levels are counted from one");
        let none = || Error::Geometry("there is not enough memory for the tree");
        let buckets = usize::try_from((1_u64 << levels) - 1).map_err(|_| none())?;
        let bodies = buckets.checked_mul(SLOTS).and_then(|slots| slots.checked_mul(words));
        Ok(Self {
            levels,
            words,
            headers: Words::zeroed(header_lines(levels) * LINE).ok_or_else(none)?,
            bodies: bodies.and_then(Words::zeroed).ok_or_else(none)?,
        })
    }

    #[inline(always)]
    fn bodies_at(&self, level: u32, leaf: u32) -> core::ops::Range<usize> {
        let len = SLOTS * self.words;
        let start = bucket(level, leaf) * len;
        start..start + len
    }
}

impl Memory for Ram {
    #[inline(always)]
    fn prefetch(&self, leaf: u32) {
        for level in 0..self.levels {
            let at = header_word(self.levels, level, leaf);
            ct::prefetch(&self.headers[at..=at]);
        }
        for level in 0..self.levels {
            let bodies = &self.bodies[self.bodies_at(level, leaf)];
            // What follows in a long block the processor finds by itself.
            ct::prefetch(&bodies[..bodies.len().min(PREFETCH_WORDS)]);
        }
    }

    #[inline(always)]
    fn open(&mut self, _: u32) -> Result {
        Ok(())
    }

    #[inline(always)]
    fn header(&self, level: u32, leaf: u32) -> Header {
        let at = header_word(self.levels, level, leaf);
        [self.headers[at], self.headers[at + 1]]
    }

    #[inline(always)]
    fn set_header(&mut self, level: u32, leaf: u32, header: Header) {
        let at = header_word(self.levels, level, leaf);
        self.headers[at..at + 2].copy_from_slice(&header);
    }

    #[inline(always)]
    fn bodies(&mut self, level: u32, leaf: u32) -> &mut [u64] {
        let range = self.bodies_at(level, leaf);
        &mut self.bodies[range]
    }

    #[inline(always)]
    fn close(&mut self, _: u32) -> Result {
        Ok(())
    }
}

/// Words in a cache line.
const LINE: usize = 8;

const PREFETCH_WORDS: usize = 4 * LINE;

/// The bucket's number, level by level.
#[inline(always)]
pub fn bucket(level: u32, leaf: u32) -> usize {
    let first = (1_usize << level) - 1;
    first + (leaf as usize & first)
}

/// The word where a bucket's header begins. A bucket and its two children share a cache line, so
/// that a path touches half as many; where the number of levels is odd, the root has its own.
#[inline(always)]
fn header_word(levels: u32, level: u32, leaf: u32) -> usize {
    let above = level + (levels & 1);
    let upper = above & !1;
    let (first, width) = lines_above(levels, upper);
    let line = first + (leaf as usize & (width - 1));
    let place = match level {
        _ if above == upper => 0,
        0 => 1,
        _ => 1 + (leaf >> (level - 1) & 1),
    };
    line * LINE + place as usize * 2
}

/// Lines of all pairs of levels above the pair that begins at `upper`, and lines of that pair.
/// Levels are counted from one more where their number is odd.
#[inline(always)]
fn lines_above(levels: u32, upper: u32) -> (usize, usize) {
    if levels & 1 == 0 {
        let width = 1_usize << upper;
        ((width - 1) / 3, width)
    } else if upper == 0 {
        (0, 1)
    } else {
        let width = 1_usize << (upper - 1);
        (1 + (width - 2) / 3, width)
    }
}

fn header_lines(levels: u32) -> usize {
    let (above, width) = lines_above(levels, (levels - 1 + (levels & 1)) & !1);
    above + width
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec;

    #[test]
    fn headers_do_not_overlap_and_buckets_share_them_not() {
        for levels in 1..=9 {
            let mut owner = vec![None; header_lines(levels) * LINE / 2];
            let mut lines = BTreeMap::new();
            for leaf in 0..1 << (levels - 1) {
                for level in 0..levels {
                    let (at, own) = (header_word(levels, level, leaf), bucket(level, leaf));
                    assert_eq!(*owner[at / 2].get_or_insert(own), own);
                    assert_eq!(at % 2, 0);
                    lines.entry(leaf).or_insert_with(vec::Vec::new).push(at / LINE);
                }
            }
            assert_eq!(owner.iter().flatten().count(), (1 << levels) - 1);
            for line in lines.values_mut() {
                line.dedup();
                assert_eq!(line.len() as u32, levels.div_ceil(2));
            }
        }
    }
}
