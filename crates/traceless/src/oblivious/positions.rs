//! The position map: the label of each block.
//!
//! Labels lie 16 to a block in a tree, the labels of its blocks in the next tree, and so on, until
//! there are few enough to scan.

use super::STASH_MAX;
use super::circuit::{CircuitTree, EvictionKind, levels_for};
use super::draws::{AccessDraws, Draws};
use super::labels::{self, FAN_OUT, FAN_OUT_BITS};
use super::secret_words::{load_secret, save_secret};
use super::tree::Ram;
use super::width::{LINE, Lines, Width as _};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::durable::Durable;
use traceless_core::error::Result;
use traceless_sys::ct::{self, Kernel, Vector};

/// Number of labels that are scanned rather than kept in a tree, at most.
const SCANNED_MAX: u64 = 4096;

/// Number of trees that the labels of 2^31 blocks need.
const TREES_MAX: usize = 5;

type Tree = CircuitTree<Lines<1>, Ram>;

/// A label for each address; a label is drawn at its block's first access.
pub struct Positions {
    /// Trees of labels. The first holds the labels of the data blocks, and is the largest.
    trees: Vec<Tree>,
    /// The labels of the last tree's blocks, two to a word.
    scanned: Vec<u64>,
    /// Buffer for one block of labels.
    block: Vec<u64>,
}

impl Positions {
    /// A map for `blocks` addresses.
    pub fn new(blocks: u64, eviction: EvictionKind) -> Result<Self> {
        let mut trees = vec![];
        for blocks in tree_blocks(blocks) {
            let (levels, memory) = (levels_for(blocks)?, Ram::new(levels_for(blocks)?, LINE)?);
            trees.push(CircuitTree::new(Lines, levels, memory, STASH_MAX, eviction)?);
        }
        assert!(trees.len() <= TREES_MAX, "the number of blocks is limited");
        let scanned = vec![0; scanned_words(blocks)];
        Ok(Self { trees, scanned, block: Lines::<1>.buffer() })
    }

    /// Number of trees; an access draws one label for each.
    pub fn trees(&self) -> usize {
        self.trees.len()
    }

    /// Gives the block `addr` the label `new`. `found` gets the old entry as soon as it is known,
    /// before the map has finished its own accesses; returns the result of `found`.
    #[inline]
    pub fn exchange(
        &mut self,
        addr: u32,
        new: u32,
        draws: &mut Draws,
        found: &dyn Fn(u32) -> u32,
    ) -> Result<u32> {
        ct::dispatch(Exchange { map: self, addr, new, draws, found })
    }

    /// As [`CircuitTree::check`], for every tree.
    pub fn check_stashes(&self) -> Result {
        self.trees.iter().try_for_each(CircuitTree::check)
    }

    /// Number of blocks in each stash, for statistics.
    pub fn stash_blocks(&self) -> impl Iterator<Item = usize> {
        self.trees.iter().map(CircuitTree::stash_blocks)
    }
}

impl Positions {
    /// Bytes that a map for `blocks` addresses saves.
    pub fn saved_len(blocks: u64) -> Result<u64> {
        let mut len = (scanned_words(blocks) * size_of::<u64>()) as u64;
        for blocks in tree_blocks(blocks) {
            len += Ram::saved_len(levels_for(blocks)?, LINE) + Tree::saved_len(Lines);
        }
        Ok(len)
    }

    /// Gives a new map's addresses the labels that `label` returns, which are secret: one access
    /// for each block of labels, in order.
    pub fn fill(&mut self, blocks: u64, label: &dyn Fn(u32) -> u32, draws: &mut Draws) -> Result {
        let Self { trees, scanned, block } = self;
        let mut entries: Vec<u32> =
            (0..blocks as u32).map(|addr| labels::entry_of(label(addr))).collect();
        let mut body = Lines::<1>.buffer();
        for tree in trees {
            let mut above = Vec::with_capacity(entries.len().div_ceil(FAN_OUT));
            for (addr, group) in (0..).zip(entries.chunks(FAN_OUT)) {
                draws.reserve(1);
                let new = draws.label(tree.label_mask());
                labels::pack(group, &mut body);
                tree.insert(addr, new.fresh, &body, new.old(0), block)?;
                above.push(labels::entry_of(new.fresh));
            }
            tree.check()?;
            entries = above;
        }
        labels::pack(&entries, scanned);
        Ok(())
    }
}

impl Durable for Positions {
    fn save(&self, out: &mut Vec<u8>) {
        self.trees.iter().for_each(|tree| tree.save(out));
        save_secret(&self.scanned, out);
    }

    fn load(&mut self, from: &mut &[u8]) -> Result {
        self.trees.iter_mut().try_for_each(|tree| tree.load(from))?;
        load_secret(&mut self.scanned, from)
    }
}

/// Number of blocks of each tree that a map for `blocks` addresses needs, the largest first.
pub fn tree_blocks(blocks: u64) -> impl Iterator<Item = u64> {
    let fewer = |labels: &u64| (*labels > SCANNED_MAX).then(|| labels.div_ceil(FAN_OUT as u64));
    core::iter::successors(fewer(&blocks), fewer)
}

/// Words of the scanned labels: of the last tree's blocks, or of all addresses if there is no tree.
pub fn scanned_words(blocks: u64) -> usize {
    let labels = tree_blocks(blocks).last().unwrap_or(blocks);
    (labels as usize).div_ceil(FAN_OUT) * LINE
}

struct Exchange<'a> {
    map: &'a mut Positions,
    addr: u32,
    new: u32,
    draws: &'a mut Draws,
    found: &'a dyn Fn(u32) -> u32,
}

impl Kernel for Exchange<'_> {
    type Output = Result<u32>;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Result<u32> {
        let Positions { trees, scanned, block } = self.map;
        // The block of each tree, and the labels drawn for it; index 0 is the data block.
        let digits = |depth: usize| self.addr.wrapping_shr(FAN_OUT_BITS * depth as u32);
        let mut drawn = [AccessDraws { fresh: self.new, unused: 0 }; TREES_MAX + 1];
        for (drawn, tree) in drawn[1..].iter_mut().zip(&*trees) {
            *drawn = self.draws.label(tree.label_mask());
        }
        // Prefetches the path of the next tree while the current tree evicts.
        let reveal = |trees: &[Tree], depth: usize, entry: u32| {
            if depth == 0 {
                return (self.found)(entry);
            }
            let old = drawn[depth].old(entry);
            trees[depth - 1].prefetch(old);
            old
        };
        let mut depth = trees.len();
        let entry =
            labels::exchange(v, scanned, digits(depth), labels::entry_of(drawn[depth].fresh));
        let mut old = reveal(trees, depth, entry);
        while depth > 0 {
            let (index, fresh) = (digits(depth), drawn[depth].fresh);
            trees[depth - 1].fetch(v, index, old, block)?;
            let place = digits(depth - 1) & (FAN_OUT as u32 - 1);
            let new = labels::entry_of(drawn[depth - 1].fresh);
            let entry = labels::exchange(v, block, place, new);
            let next = reveal(trees, depth - 1, entry);
            trees[depth - 1].put(v, index, fresh, block, old)?;
            (depth, old) = (depth - 1, next);
        }
        Ok(old)
    }
}
