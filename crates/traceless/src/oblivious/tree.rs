//! Where the buckets of a tree lie.
//!
//! A label's lowest bit says where the path turns at the root, the next where it turns below it:
//! labels in counting order are then in reverse-lexicographic order as paths, and two labels part
//! at the lowest bit that they differ in.

use super::saved::{load_secret, save_secret};
use super::{LANES, LEVELS_MAX};
use crate::durable::Durable;
use crate::error::{Error, Result};
use alloc::vec::Vec;
use traceless_sys::{Words, ct};

/// Slots in a bucket.
pub const SLOTS: usize = 2;

/// Address and label of the two blocks in a bucket, as two words: both addresses, both labels.
/// Address 0 is that of an empty slot.
pub type Header = [u64; 2];

/// One of the two paths that an access opens.
pub const ACCESSED: usize = 0;
/// The other: that of the evictions.
pub const EVICTED: usize = 1;
/// Paths that are open at once.
pub const PATHS: usize = 2;

/// A tree of buckets, reached path by path. What is called, with which leaf and level, is what
/// whoever watches the memory sees.
///
/// Two paths may be open at once, 0 to access and 1 to evict along; the buckets that both have are
/// the same ones.
pub trait Memory: Send + Sync {
    /// Asks for a path that will be opened soon.
    fn prefetch(&self, leaf: u32);

    /// Opens the path to `leaf`.
    fn open(&mut self, path: usize, leaf: u32) -> Result;

    /// The header of the bucket at `level` of an open path.
    fn header(&self, path: usize, level: usize) -> Header;

    /// Changes that header.
    fn set_header(&mut self, path: usize, level: usize, header: Header);

    /// The bodies of that bucket, back to back.
    fn bodies(&mut self, path: usize, level: usize) -> &mut [u64];

    /// Puts both paths back.
    fn close(&mut self) -> Result;
}

/// A tree in memory that is watched, but not read or changed, by others.
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
    /// An empty tree whose blocks have `words` words.
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
    /// Bytes that such a tree saves.
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
        // Upper levels are never far. Two levels share a line; the root of an odd number does not.
        let far = NEAR_LEVELS.min(self.levels);
        for place in path.headers[..self.levels].iter().skip((self.levels & 1) + far).step_by(2) {
            ct::prefetch(&self.headers, 2 * *place as usize, 1);
        }
        // What follows in a long block the processor finds by itself.
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

/// Levels that each access touches so often that they stay in a processor's cache: an even number,
/// so that lines of headers are not cut in two.
const NEAR_LEVELS: usize = 6;

/// Bytes of a bucket that are asked for.
const PREFETCH_MAX: usize = 256;

/// Where the buckets of a path lie, level by level.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub struct BucketPath {
    /// Numbers of the buckets: those of upper levels first.
    pub buckets: [u32; LANES],
    /// Numbers of their headers.
    headers: [u32; LANES],
}

/// How a label leads to the places of its path: the same arithmetic for every level, so that it is
/// done for all of them at once.
///
/// Headers of a bucket and its two children share a cache line, so that a path touches half as many
/// lines; where the number of levels is odd, the root has its own.
#[repr(align(64))]
pub struct PathPlaces {
    levels: usize,
    /// Buckets above each level. It is also the mask of a label's bits that choose among those of
    /// the level.
    above: [u32; LANES],
    /// The first header of the level's lines, counted in headers.
    first: [u32; LANES],
    /// The mask of a label's bits that choose the line.
    line: [u32; LANES],
    /// The bit of a label that chooses between two children, and ones where there is such a bit.
    child: [u32; LANES],
    has_child: [u32; LANES],
}

impl PathPlaces {
    /// Those of a tree of `levels` levels.
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

    /// Cache lines that all headers take up.
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
