//! Sizes of all areas that a saved Path ORAM puts on a store.

use super::LABEL_LEN;
use crate::scheme::keys::{Family, Keys};
use crate::scheme::saves::CopyLayout;
use crate::tree::{HEADER_LEN, STASH_BLOCKS, SealedTree, Shape, TREE_BLOCKS_MAX, TreeLayout};
use alloc::vec::Vec;
use traceless_core::error::{Error, Result};
use traceless_core::scheme::PlacedArea;

/// Slots of a bucket, by default.
pub const Z: u8 = 4;

/// Slots in the tree for each block: with fewer the stash grows.
const SLOTS_PER_BLOCK: f64 = 2.0;

/// Bytes of a block of the map.
pub const MAP_BLOCK_LEN: usize = 64;

/// Trees that hold maps, at most.
pub const MAP_TREES_MAX: u8 = 7;

/// Bytes of the map in memory, by default. Each sync writes them.
pub const MAP_MEMORY: u64 = 1 << 20;

/// Bytes of buckets that wait for a sync, unless a single access needs more.
pub const HELD_BYTES: u64 = 64 << 20;

/// Accesses between two syncs, by default.
pub const UNSYNCED: u32 = 1024;

/// Bytes of a block, at most.
pub const BLOCK_LEN_MAX: usize = 16 << 20;

/// Bytes of a path, or of the trusted state, at most, since no request to a store may be longer.
const REQUEST_MAX: u64 = 1 << 31;

/// Upper bound on the blocks with one label, for each slot of a bucket.
const LABELLED_ALIKE: u64 = 8;

const AREAS: [&str; 8] = ["tree", "map 1", "map 2", "map 3", "map 4", "map 5", "map 6", "map 7"];

/// The public parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathGeometry {
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_len: usize,
    /// Slots of a bucket.
    pub z: u8,
    /// Trees that hold the map; none if all of it lies in memory.
    pub map_trees: u8,
    /// Bytes of a block of the map.
    pub map_block_len: usize,
    /// Levels of each tree in memory, from the root on; the leaves never are.
    pub cached_levels: u8,
    /// Blocks that each stash holds at most.
    pub stash_blocks: u32,
    /// Accesses between two syncs, at most: the scheme then syncs by itself.
    pub unsynced_max: u32,
}

/// One tree of the scheme.
pub(super) struct PlacedTree {
    pub name: &'static str,
    /// First byte of the tree's area.
    pub at: u64,
    pub body_len: usize,
    pub shape: Shape,
    pub layout: TreeLayout,
    /// Uppermost levels in memory.
    pub cached: usize,
    /// Buckets that may wait for a sync, at most.
    pub held: u64,
    pub held_len: u64,
}

/// The key family of tree number `tree`.
pub(super) fn family(tree: u8) -> Family {
    let write_of = SealedTree::<Keys>::path_write_of;
    Family { purpose: b"path bucket", area: tree, write_of }
}

impl PlacedTree {
    /// The levels that lie in the store.
    pub fn below(&self) -> Shape {
        self.shape.only(|level| level >= self.cached)
    }

    /// Bytes of its trusted state, with its stash.
    fn saved_len(&self, stash_blocks: u32) -> u64 {
        let slot = (HEADER_LEN + self.body_len) as u64;
        let cached = self.shape.only(|level| level < self.cached).slots();
        8 + self.shape.buckets(self.cached) * 8 + (cached + u64::from(stash_blocks)) * slot
    }
}

impl PathGeometry {
    /// `blocks` blocks of `block_len` bytes, with defaults for the other parameters.
    pub fn new(blocks: u64, block_len: usize) -> Result<Self> {
        let geometry = Self {
            blocks,
            block_len,
            z: Z,
            map_trees: 0,
            map_block_len: MAP_BLOCK_LEN,
            cached_levels: 0,
            // At most `blocks` blocks can be in the stash.
            stash_blocks: blocks.clamp(1, STASH_BLOCKS as u64) as u32,
            unsynced_max: 1,
        };
        geometry.with_map_memory(MAP_MEMORY)
    }

    /// This geometry with at most `bytes` of the map in memory, or as little as the maximum number
    /// of trees allows.
    pub fn with_map_memory(mut self, bytes: u64) -> Result<Self> {
        self.map_trees = 0;
        self.check()?;
        while self.map_memory() > bytes && self.map_trees < MAP_TREES_MAX {
            self.map_trees += 1;
        }
        self.with_unsynced(UNSYNCED)
    }

    /// This geometry with a sync after at most `accesses`, or after fewer if they would hold back
    /// too many bytes.
    pub fn with_unsynced(mut self, accesses: u32) -> Result<Self> {
        self.check()?;
        let most = u32::try_from(HELD_BYTES / self.read_len()).unwrap_or(u32::MAX);
        self.unsynced_max = accesses.min(most).max(1);
        self.check()?;
        Ok(self)
    }

    /// Returns an error unless these parameters make a valid scheme.
    pub fn check(&self) -> Result {
        if self.blocks > TREE_BLOCKS_MAX {
            return Err(Error::Geometry("more blocks than a tree can name"));
        }
        if self.block_len == 0 || self.block_len > BLOCK_LEN_MAX {
            return Err(Error::Geometry("a block has 1 byte to 16 MiB"));
        }
        if self.z < 2 || self.z > 16 {
            return Err(Error::Geometry("a bucket has 2 to 16 slots"));
        }
        if self.map_trees > MAP_TREES_MAX {
            return Err(Error::Geometry("at most 7 trees hold the map"));
        }
        if !(2 * LABEL_LEN..=4096).contains(&self.map_block_len) {
            return Err(Error::Geometry("a block of the map has 8 to 4096 bytes"));
        }
        if self.stash_blocks == 0 || self.stash_blocks > 1 << 16 || self.unsynced_max == 0 {
            return Err(Error::Geometry("there is room for one block and one access at least"));
        }
        // An opening after a crash takes all blocks of one leaf into the stash.
        let met = LABELLED_ALIKE * u64::from(self.z);
        if u64::from(self.stash_blocks) < self.blocks.min(met) {
            return Err(Error::Geometry("the stash has room for eight buckets, or for all blocks"));
        }
        Shape::for_blocks(self.blocks, self.z, SLOTS_PER_BLOCK)?;
        let trees = self.trees();
        let path = |tree: &PlacedTree| tree.layout.path_len() as u64;
        let longest = trees.iter().map(|tree| path(tree).max(tree.held_len)).max();
        if longest.max(Some(self.copies(&trees).fixed)) > Some(REQUEST_MAX) {
            return Err(Error::Geometry("a path, a stash, or what waits for a sync, is too long"));
        }
        Ok(())
    }

    /// Bytes of the map that lie in memory.
    pub fn map_memory(&self) -> u64 {
        self.blocks_of(self.map_trees) * LABEL_LEN as u64
    }

    /// Bytes that its areas take on a store.
    pub fn store_len(&self) -> u64 {
        self.copies(&self.trees()).end()
    }

    /// Bytes that an access reads.
    pub fn read_len(&self) -> u64 {
        self.trees().iter().map(|tree| tree.layout.path_len() as u64).sum()
    }

    /// Bytes of the trusted state that each sync writes. Besides these it writes each bucket twice,
    /// with 8 more bytes.
    pub fn state_len(&self) -> u64 {
        self.copies(&self.trees()).state_len()
    }

    /// Bytes written per byte that the user writes, if no two accesses between two syncs share a
    /// bucket: each path once to the log and once in place, and the state with every sync.
    pub fn write_amplification(&self) -> f64 {
        let state = self.state_len() as f64 / f64::from(self.unsynced_max);
        (2.0 * self.read_len() as f64 + state) / self.block_len as f64
    }

    /// Whether there is more than one path to draw.
    pub fn draws_places(&self) -> bool {
        self.trees().iter().any(|tree| tree.shape.leaves() > 1)
    }

    /// This geometry with `blocks` blocks.
    pub fn resized(self, blocks: u64) -> Result<Self> {
        let resized = Self { blocks, ..self };
        resized.check()?;
        Ok(resized)
    }

    /// Name, first byte and length of each of its areas, in order.
    pub fn areas(&self) -> Vec<PlacedArea> {
        let trees = self.trees();
        let copies = self.copies(&trees);
        let mut areas: Vec<_> = trees.iter().map(|t| (t.name, t.at, t.layout.len())).collect();
        areas.push(("state 0", copies.at, copies.len));
        areas.push(("state 1", copies.at + copies.len, copies.len));
        areas
    }

    /// First byte, length, and tree and level of each bucket.
    #[cfg(feature = "suite")]
    pub fn buckets(&self) -> Vec<(u64, usize, (usize, usize))> {
        let mut all = Vec::new();
        for (nth, tree) in self.trees().iter().enumerate() {
            for level in tree.cached..tree.shape.levels() {
                let place = |bucket| {
                    let at = tree.at + tree.layout.bucket_at(level, bucket);
                    (at, tree.layout.bucket_len(level), (nth, level))
                };
                all.extend((0..tree.shape.buckets(level)).map(place));
            }
        }
        all
    }

    /// The trees; the first is the tree of the user's blocks.
    pub(super) fn trees(&self) -> Vec<PlacedTree> {
        let mut at = 0;
        let place = |nth: u8| {
            let body_len = if nth == 0 { self.block_len } else { self.map_block_len };
            let shape = Shape::for_blocks(self.blocks_of(nth), self.z, SLOTS_PER_BLOCK)
                .expect("no larger than the first");
            let cached = usize::from(self.cached_levels).min(shape.levels() - 1);
            let below = shape.only(|level| level >= cached);
            let layout = SealedTree::layout(&below, body_len, &Keys::none(family(nth)));
            let buckets: u64 = (cached..shape.levels()).map(|level| shape.buckets(level)).sum();
            let on_paths = u64::from(self.unsynced_max) * (shape.levels() - cached) as u64;
            let held = buckets.min(on_paths);
            let held_len = held * layout.bucket_len_max() as u64;
            let name = AREAS[usize::from(nth)];
            let tree = PlacedTree { name, at, body_len, shape, layout, cached, held, held_len };
            at += tree.layout.len();
            tree
        };
        (0..=self.map_trees).map(place).collect()
    }

    pub(super) fn copies(&self, trees: &[PlacedTree]) -> CopyLayout {
        let saved: u64 = trees.iter().map(|tree| tree.saved_len(self.stash_blocks)).sum();
        let held: Vec<_> = trees.iter().map(|tree| (tree.held, tree.held_len)).collect();
        let at = trees.iter().map(|tree| tree.layout.len()).sum();
        CopyLayout::new(at, saved + self.map_memory(), &held)
    }

    /// The encoding of all parameters, for the associated data of the sealed state.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let words = [
            self.blocks,
            self.block_len as u64,
            self.z.into(),
            self.map_trees.into(),
            self.map_block_len as u64,
            self.cached_levels.into(),
            self.stash_blocks.into(),
            self.unsynced_max.into(),
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Blocks of a tree; for the number after the last tree, labels in memory.
    fn blocks_of(&self, tree: u8) -> u64 {
        let labels = (self.map_block_len / LABEL_LEN) as u64;
        (0..tree).fold(self.blocks, |blocks, _| blocks.div_ceil(labels))
    }
}
