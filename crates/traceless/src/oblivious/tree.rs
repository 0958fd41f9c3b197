//! Where the buckets of a tree lie.
//!
//! A label's lowest bit is the path's turn at the root, the next bit the turn below it: labels in
//! counting order are then paths in reverse-lexicographic order, and two paths part at the lowest
//! differing bit of their labels.

use super::secret_words::{load_secret, save_secret};
use super::{LANES, LEVELS_MAX};
use alloc::vec::Vec;
use traceless_core::durable::Durable;
use traceless_core::error::{Error, Result};
use traceless_sys::{Words, ct};

/// Slots in a bucket.
pub const SLOTS: usize = 2;

/// Address and label of the two blocks in a bucket, as two words: both addresses, both labels.
/// Address 0 is an empty slot.
pub type Header = [u64; 2];

/// The path of the accessed block, one of two that an access opens.
pub const ACCESSED: usize = 0;
/// The path of the evictions.
pub const EVICTED: usize = 1;
/// Paths that are open at once.
pub const PATHS: usize = 2;

/// A tree of buckets, accessed path by path. An adversary that watches the memory observes which
/// method is called, and with which leaf and level.
///
/// Two paths may be open at once, 0 to access and 1 to evict along; both share the buckets that
/// they have in common.
pub trait Memory: Send + Sync {
    /// Prefetches a path that will be opened soon.
    fn prefetch(&self, leaf: u32);

    /// Opens the path to `leaf`.
    fn open(&mut self, path: usize, leaf: u32) -> Result;

    /// The header of the bucket at `level` of an open path.
    fn header(&self, path: usize, level: usize) -> Header;

    /// Changes the header of the bucket at `level` of an open path.
    fn set_header(&mut self, path: usize, level: usize, header: Header);

    /// The bodies of the bucket at `level` of an open path, back to back.
    fn bodies(&mut self, path: usize, level: usize) -> &mut [u64];

    /// Closes both paths.
    fn close(&mut self) -> Result;
}

/// A tree in memory that an adversary may watch, but not read or change.
pub struct Ram {
    levels: usize,
    /// Words of the bodies in a bucket.
    bucket_words: usize,
    places: PathPlaces,
    headers: Words,
    bodies: Words,
    open: [BucketPath; PATHS],
}

impl Ram {
    /// An empty tree of blocks with `words` words.
    pub fn new(levels: u32, words: usize) -> Result<Self> {
        assert!((1..=LEVELS_MAX as u32).contains(&levels), "levels are counted from one");
        let none = || Error::Geometry("there is not enough memory for the tree");
        let places = PathPlaces::new(levels);
        let buckets = usize::try_from((1_u64 << levels) - 1).map_err(|_| none())?;
        let bodies = buckets.checked_mul(SLOTS).and_then(|slots| slots.checked_mul(words));
        Ok(Self {
            levels: levels as usize,
            bucket_words: SLOTS * words,
            headers: Words::zeroed(places.header_lines() * LINE).ok_or_else(none)?,
            places,
            bodies: bodies.and_then(Words::zeroed).ok_or_else(none)?,
            open: [BucketPath::default(); PATHS],
        })
    }
}

impl Ram {
    /// Saved bytes of a tree with this geometry.
    pub fn saved_len(levels: u32, words: usize) -> u64 {
        let headers = PathPlaces::new(levels).header_lines() * LINE;
        let bodies = ((1_u64 << levels) - 1) * (SLOTS * words) as u64;
        (headers as u64 + bodies) * size_of::<u64>() as u64
    }
}

impl Durable for Ram {
    fn save(&self, out: &mut Vec<u8>) {
        save_secret(&self.headers, out);
        save_secret(&self.bodies, out);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        load_secret(&mut self.headers, from)?;
        load_secret(&mut self.bodies, from)
    }
}

impl Memory for Ram {
    #[inline(always)]
    fn prefetch(&self, leaf: u32) {
        let path = self.places.path(leaf);
        // Upper levels stay in the cache. Two levels share a line; the root of an odd number does
        // not.
        let far = NEAR_LEVELS.min(self.levels);
        for place in path.headers[..self.levels].iter().skip((self.levels & 1) + far).step_by(2) {
            ct::prefetch(&self.headers, 2 * *place as usize, 1);
        }
        // The processor prefetches the rest of a long block by itself.
        let near = (size_of::<u64>() * self.bucket_words).min(PREFETCH_MAX);
        for bucket in &path.buckets[far..self.levels] {
            ct::prefetch(&self.bodies, (*bucket as usize).wrapping_mul(self.bucket_words), near);
        }
    }

    #[inline(always)]
    fn open(&mut self, path: usize, leaf: u32) -> Result {
        self.open[path] = self.places.path(leaf);
        Ok(())
    }

    #[inline(always)]
    fn header(&self, path: usize, level: usize) -> Header {
        self.headers.as_chunks().0[self.open[path].headers[level] as usize]
    }

    #[inline(always)]
    fn set_header(&mut self, path: usize, level: usize, header: Header) {
        self.headers.as_chunks_mut().0[self.open[path].headers[level] as usize] = header;
    }

    #[inline(always)]
    fn bodies(&mut self, path: usize, level: usize) -> &mut [u64] {
        let bucket = self.open[path].buckets[level] as usize;
        &mut self.bodies[bucket.wrapping_mul(self.bucket_words)..][..self.bucket_words]
    }

    #[inline(always)]
    fn close(&mut self) -> Result {
        Ok(())
    }
}

/// Words in a cache line.
const LINE: usize = 8;

/// Number of levels that stay in a processor's cache because each access touches them: an even
/// number, so that a line of headers is whole.
const NEAR_LEVELS: usize = 6;

/// Prefetched bytes of a bucket, at most.
const PREFETCH_MAX: usize = 256;

/// The places of the buckets of a path, level by level.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub struct BucketPath {
    /// Bucket numbers; buckets of upper levels come first.
    pub buckets: [u32; LANES],
    /// Indices of the buckets' headers.
    headers: [u32; LANES],
}

/// Maps a label to the places of its path: the same arithmetic for every level, so that vector
/// instructions do all of them at once.
///
/// Headers of a bucket and its two children share a cache line, so that a path touches half as many
/// lines; where the number of levels is odd, the root has its own.
#[repr(align(64))]
pub struct PathPlaces {
    levels: usize,
    /// Number of buckets above each level. It is also the mask of the label bits that choose a
    /// bucket of the level.
    above: [u32; LANES],
    /// Index of the first header in the level's lines.
    first: [u32; LANES],
    /// The mask of the label bits that choose the line.
    line: [u32; LANES],
    /// Position of the label bit that chooses between two children in a line. `has_child` is 1 if
    /// there is one, else 0.
    child: [u32; LANES],
    has_child: [u32; LANES],
}

impl PathPlaces {
    /// The places for a tree of `levels` levels.
    pub fn new(levels: u32) -> Self {
        let none = [0; LANES];
        let mut places = Self {
            levels: levels as usize,
            above: none,
            first: none,
            line: none,
            child: none,
            has_child: none,
        };
        let odd = levels & 1;
        let mut lines = 0;
        for level in 0..levels {
            let at = level as usize;
            places.above[at] = (1 << level) - 1;
            if (level + odd) & 1 == 0 {
                places.line[at] = (1 << level) - 1;
                places.first[at] = lines * HEADERS;
                lines += 1 << level;
            } else {
                // The root of an odd number of levels begins a line, too.
                let upper = at.saturating_sub(1);
                places.line[at] = places.line[upper];
                places.first[at] = places.first[upper] + 1;
                places.child[at] = upper as u32;
                places.has_child[at] = u32::from(level > 0);
                lines = lines.max(1);
            }
        }
        places
    }

    /// Number of cache lines for all headers.
    pub fn header_lines(&self) -> usize {
        let last = self.levels - 1;
        (self.first[last] / HEADERS + self.line[last] + 1) as usize
    }

    /// The path to `leaf`.
    #[inline(always)]
    pub fn path(&self, leaf: u32) -> BucketPath {
        let mut path = BucketPath::default();
        for level in 0..LANES {
            let above = self.above[level];
            path.buckets[level] = above.wrapping_add(leaf & above);
            let child = leaf.wrapping_shr(self.child[level]) & self.has_child[level];
            let line = (leaf & self.line[level]).wrapping_mul(HEADERS);
            path.headers[level] = self.first[level].wrapping_add(line).wrapping_add(child);
        }
        path
    }
}

/// Headers in a cache line. One place in four stays unused.
const HEADERS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn headers_do_not_overlap_and_a_path_touches_half_as_many_lines() {
        for levels in 1..=9 {
            let places = PathPlaces::new(levels);
            let mut owner = vec![None; places.header_lines() * HEADERS as usize];
            for leaf in 0..1 << (levels - 1) {
                let path = places.path(leaf);
                let mut lines = vec![];
                for level in 0..levels as usize {
                    let (at, own) = (path.headers[level], path.buckets[level]);
                    assert_eq!(*owner[at as usize].get_or_insert(own), own);
                    lines.push(at / HEADERS);
                }
                lines.dedup();
                assert_eq!(lines.len() as u32, levels.div_ceil(2));
            }
            assert_eq!(owner.iter().flatten().count(), (1 << levels) - 1);
            assert!(owner.iter().rev().take(HEADERS as usize).any(Option::is_some));
        }
    }
}
