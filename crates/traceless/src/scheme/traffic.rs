//! Bytes that recursive and unified Path ORAM move per access, by calculation: unified-oram,
//! formula (1) and section 6.3.
//!
//! A unified ORAM at the paper's size moves fewer bytes than a recursive one, as long as its
//! requests take fewer paths on average than the crossover:
//!
//! ```
//! use traceless::scheme::traffic::{
//!     PAPER_BLOCK_LEN, PAPER_BUCKET, PAPER_LEVELS, Recursion, bytes_per_access, crossover,
//! };
//!
//! let path_len = PAPER_BUCKET.path_len(PAPER_LEVELS, PAPER_BLOCK_LEN);
//! let recursive = Recursion::of_the_paper();
//! // Of 100 requests, 61 take one path, and 39 take two.
//! let unified = bytes_per_access(path_len, &[0, 61, 39]);
//! assert!(unified < recursive.bytes_per_access());
//! assert!((2.5..2.6).contains(&crossover(path_len, &recursive)));
//! ```

use alloc::vec;
use alloc::vec::Vec;

/// Layout of a bucket in memory.
#[derive(Clone, Copy, Debug)]
pub struct BucketLayout {
    /// Slots of a bucket.
    pub z: u64,
    /// Bits of each slot for the address and the label of its block.
    pub header_bits: u64,
    /// Bits of each bucket for its encryption.
    pub counter_bits: u64,
}

/// The bucket of the paper, with 32 bits for an address and for a label.
pub const PAPER_BUCKET: BucketLayout = BucketLayout { z: 3, header_bits: 64, counter_bits: 8 };

/// User blocks in the paper: 4 GiB of 64 bytes each.
pub const PAPER_BLOCKS: u64 = 1 << 26;

/// Bytes of a user block, and of a block of a unified tree.
pub const PAPER_BLOCK_LEN: u64 = 64;

/// Bytes of a block of the position map in a recursive ORAM, where it has trees of its own.
pub const PAPER_MAP_BLOCK_LEN: u64 = 32;

/// Levels of the tree with the user's blocks: a leaf for each block.
pub const PAPER_LEVELS: u32 = 27;

/// Trees of the recursive ORAM that the paper compares with.
pub const PAPER_TREES: usize = 5;

impl BucketLayout {
    /// Bytes of a path (formula 1).
    pub fn path_len(&self, levels: u32, block_len: u64) -> u64 {
        let bucket = self.z * (8 * block_len + self.header_bits) + self.counter_bits;
        (u64::from(levels) * bucket).div_ceil(8)
    }
}

/// A recursive Path ORAM with labels of minimal width, and trees with at least one leaf per block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recursion {
    /// Levels of each tree; the first is the tree of the user's blocks.
    pub levels: Vec<u32>,
    /// Labels in a block of each tree but the first.
    pub fanouts: Vec<u64>,
    /// Bytes of a path in all trees together.
    pub path_len: u64,
    /// Bits of the labels in trusted memory.
    pub top_bits: u64,
}

impl Recursion {
    /// For `blocks` user blocks in the first of `trees` trees.
    pub fn new(
        bucket: &BucketLayout,
        blocks: u64,
        block_len: u64,
        map_len: u64,
        trees: usize,
    ) -> Self {
        let (mut blocks, mut levels) = (blocks, vec![levels_for(blocks)]);
        let (mut fanouts, mut path_len) = (Vec::new(), bucket.path_len(levels[0], block_len));
        for tree in 1..trees {
            let fanout = 8 * map_len / label_bits(levels[tree - 1]);
            assert!(fanout > 1, "a block of the map holds at least two labels");
            blocks = blocks.div_ceil(fanout);
            levels.push(levels_for(blocks));
            fanouts.push(fanout);
            path_len += bucket.path_len(levels[tree], map_len);
        }
        let top_bits = blocks * label_bits(levels[trees - 1]);
        Self { levels, fanouts, path_len, top_bits }
    }

    /// The recursion of the paper.
    pub fn of_the_paper() -> Self {
        Self::new(&PAPER_BUCKET, PAPER_BLOCKS, PAPER_BLOCK_LEN, PAPER_MAP_BLOCK_LEN, PAPER_TREES)
    }

    /// Bytes moved per access: a path of each tree is read and written.
    pub fn bytes_per_access(&self) -> f64 {
        (2 * self.path_len) as f64
    }
}

fn levels_for(blocks: u64) -> u32 {
    blocks.next_power_of_two().ilog2() + 1
}

fn label_bits(levels: u32) -> u64 {
    u64::from(levels - 1).max(1)
}

/// Bytes moved if `requests[i]` requests took i paths each. A path of `path_len` bytes is read and
/// written.
pub fn bytes_moved(path_len: u64, requests: &[u64]) -> u64 {
    let paths: u64 = (0..).zip(requests).map(|(i, n): (u64, _)| i * n).sum();
    2 * path_len * paths
}

/// Bytes moved per request, on average: `2 · path_len · Σ i·w_i`, where `w_i` is the share of the
/// requests that took i paths.
pub fn bytes_per_access(path_len: u64, requests: &[u64]) -> f64 {
    bytes_moved(path_len, requests) as f64 / requests.iter().sum::<u64>() as f64
}

/// Paths of `path_len` bytes per access above which unified ORAM moves more than recursive ORAM.
pub fn crossover(path_len: u64, recursion: &Recursion) -> f64 {
    recursion.path_len as f64 / path_len as f64
}

/// A row of the comparison in the paper's Table 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row {
    /// Name of the ORAM.
    pub name: &'static str,
    /// Cost of an access in paths of a 27-level tree.
    pub paths: f64,
    /// Bytes moved for an access.
    pub bytes: f64,
    /// Bytes moved per byte of the block.
    pub blocks: f64,
}

/// The paper's Table 1, with its averages of 1.39 and 1.27 paths per access; the first row's
/// `paths` is the crossover of recursive and unified ORAM.
pub fn table() -> [Row; 4] {
    let path_len = PAPER_BUCKET.path_len(PAPER_LEVELS, PAPER_BLOCK_LEN);
    let recursion = Recursion::of_the_paper();
    let row = |name, paths: f64| {
        let bytes = 2.0 * path_len as f64 * paths;
        Row { name, paths, bytes, blocks: bytes / PAPER_BLOCK_LEN as f64 }
    };
    [
        row("recursive, 5 trees", crossover(path_len, &recursion)),
        row("unified, plain labels", 1.39),
        row("unified, compressed labels", 1.27),
        row("unified, flat map", 1.0),
    ]
}

/// Overheads of the paper's Table 3: bits moved per bit of a block without help from a cache, with
/// every field as wide as in section 5.2, for 2^`log_blocks` blocks of `block_bits` bits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Overheads {
    /// Overhead of recursive ORAM; a map block holds four labels.
    pub recursive: f64,
    /// Overhead of unified ORAM with compressed labels; user blocks are cut into parts.
    pub unified: f64,
}

impl Overheads {
    /// The overheads for `log_blocks` from 2 to 60.
    pub fn new(log_blocks: u32, block_bits: u64) -> Self {
        let width = u64::from(log_blocks);
        let path_bits =
            |levels: u32, block: u64| u64::from(levels) * (3 * (block + 2 * width) + width);
        let of_block = |moved: u64| 2.0 * moved as f64 / block_bits as f64;

        let mut recursive = path_bits(log_blocks + 1, block_bits);
        let mut blocks = 1u64 << log_blocks;
        while blocks > LABELS {
            blocks = blocks.div_ceil(LABELS);
            recursive += path_bits(levels_for(blocks), LABELS * width);
        }

        let counter_bits = u64::from(width.next_power_of_two().ilog2());
        let fanout = (width / counter_bits).max(2);
        let map_block = width + fanout * counter_bits;
        let (mut blocks, mut map_levels) = (1u64 << log_blocks, 1);
        while blocks > fanout {
            blocks = blocks.div_ceil(fanout);
            map_levels += 1;
        }
        let paths = block_bits.div_ceil(map_block) + map_levels;
        let unified = paths * path_bits(log_blocks + 1, map_block);
        Self { recursive: of_block(recursive), unified: of_block(unified) }
    }
}

/// Labels in a map block of a recursive ORAM with blocks that grow with N.
const LABELS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_close(value: f64, want: f64, relative: f64) -> bool {
        (value / want - 1.0).abs() <= relative
    }

    /// Section 2.3.2: 217 and 121 bytes a bucket; 5.7 KB a path.
    #[test]
    fn paths_are_as_long_as_in_the_paper() {
        assert_eq!(PAPER_BUCKET.path_len(1, 64), 217);
        assert_eq!(PAPER_BUCKET.path_len(1, 32), 121);
        assert_eq!(PAPER_BUCKET.path_len(PAPER_LEVELS, 64), 5859);
        assert!(is_close(5859.0 / 1024.0, 5.7, 0.005));
    }

    /// 14.4 KB for five trees, 5 KB and 102 KB of labels in trusted memory. A single rule for all
    /// sizes comes this close (docs/papers.md).
    #[test]
    fn recursion_is_as_deep_as_in_the_paper() {
        let five = Recursion::of_the_paper();
        assert_eq!(five.levels, [27, 24, 21, 17, 13]);
        assert_eq!(five.fanouts, [9, 11, 12, 16]);
        assert_eq!(five.path_len, 27 * 217 + (24 + 21 + 17 + 13) * 121);
        assert!(is_close(five.bytes_per_access() / 2048.0, 14.4, 0.013));
        let kib = |bits: u64| bits as f64 / 8192.0;
        assert!(is_close(kib(five.top_bits), 5.0, 0.05));
        let four = Recursion::new(&PAPER_BUCKET, PAPER_BLOCKS, 64, 32, 4);
        assert!(is_close(kib(four.top_bits), 102.0, 0.09));
    }

    /// Table 1: 460, 254 and 232 times; section 6.3: 49 % less than recursive.
    #[test]
    fn the_table_is_that_of_the_paper() {
        let [recursive, plain, compressed, flat] = table();
        for (row, want) in [(recursive, 460.0), (plain, 254.0), (compressed, 232.0)] {
            assert!(is_close(row.blocks, want, 0.015), "{row:?}");
        }
        assert!(is_close(1.0 - compressed.bytes / recursive.bytes, 0.49, 0.03));
        assert!(is_close(recursive.paths, 2.55, 0.002), "the crossover");
        assert!(is_close(flat.bytes, bytes_per_access(5859, &[0, 1]), 1e-9));
        assert!(is_close(compressed.bytes, bytes_per_access(5859, &[0, 73, 27]), 1e-9));
    }

    /// Table 3: overheads stay within a constant of O(log N + log³N / B) and of O(log N + log³N /
    /// (B log log N)), so that unified ORAM gains on recursive ORAM as N grows. But it starts far
    /// behind: without a cache it is cheaper only from 2^47 blocks on, and if blocks are small.
    #[test]
    fn overheads_grow_as_in_the_paper() {
        for block_bits in [|log: u64| log, |log: u64| log * log] {
            let of = |log: u32| {
                let overheads = Overheads::new(log, block_bits(log.into()));
                let width = f64::from(log);
                let cube = width.powi(3) / block_bits(log.into()) as f64;
                let bounds = (width + cube, width + cube / width.log2());
                (overheads.recursive / bounds.0, overheads.unified / bounds.1, overheads)
            };
            let (recursive, unified, first) = of(16);
            for log in 17..=60 {
                let (r, u, _) = of(log);
                assert!((0.9..1.1).contains(&(r / recursive)), "recursive, 2^{log}: {r}");
                assert!(u / unified < 1.35, "unified, 2^{log}: {u}");
            }
            let gain = |o: &Overheads| o.recursive / o.unified;
            assert!(gain(&of(60).2) > 1.2 * gain(&first));
        }
        for log in 16..=60 {
            let Overheads { recursive, unified } = Overheads::new(log, log.into());
            assert_eq!(unified < recursive, log >= 47, "2^{log}: {unified} and {recursive}");
        }
    }
}
