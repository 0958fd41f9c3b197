//! Every block onto another path, in an order that tells nothing.

use super::{Next, PathOram};
use crate::error::Result;
use crate::posmap::LABEL_LEN;
use crate::tree::BucketTree;
use crate::types::{Addr, Leaf};
use alloc::vec;
use alloc::vec::Vec;

/// Visits of a leaf at which a block gets another label, if each needs accesses to the map: at
/// least so many, and six for each slot of a bucket. As many blocks have one label as a bucket has
/// slots, on average; there are more than visits less than once in 10^11 leaves.
const VISITS: usize = 24;

/// A pass over the leaves of one tree, after which every block of it has another label.
///
/// A leaf is visited by reading its path, where all blocks with its label are. Leaves are visited
/// in order, each equally often, and between them paths are drawn to bring the blocks to their new
/// places. So nobody sees which labels there were, nor how many blocks had one.
///
/// The map's tree is relabelled before: a new label is then noted by an access to the map like any
/// other, on paths that nobody saw.
pub(super) struct Relabelling {
    tree: usize,
    leaf: Leaf,
    /// Path accesses of this leaf that were made.
    made: usize,
    /// Of each block: whether it has its new label.
    done: Vec<bool>,
    /// Blocks with the label of this leaf.
    waiting: Vec<Addr>,
}

impl<T: BucketTree> PathOram<T> {
    /// Begins a pass over a tree.
    pub(super) fn begin_relabelling(&self, tree: usize) -> Relabelling {
        let maps = self.engines[1..=tree].iter().map(|map| labels_of(map.tree()));
        let blocks = maps.fold(self.blocks, u64::div_ceil);
        let done = vec![false; blocks as usize];
        Relabelling { tree, leaf: Leaf(0), made: 0, done, waiting: Vec::new() }
    }

    /// Makes one access, and tells whether the pass goes on. Between two of them everything may be
    /// saved.
    pub(super) fn relabel_some(&mut self, pass: &mut Relabelling) -> Result<bool> {
        let tree = pass.tree;
        let is_last = tree + 1 == self.engines.len();
        let z = self.engines[tree].shape().z(self.engines[tree].shape().levels() - 1);
        let visits = if is_last { 1 } else { 1 + VISITS.max(6 * z) };
        if pass.made == 0 {
            self.meet(pass, is_last)?;
        } else if pass.made < visits || !pass.waiting.is_empty() {
            self.relabel_one(pass)?;
        } else {
            // One more than there are blocks with a label, on average.
            let leaf = self.draw(tree);
            self.engines[tree].dummy(leaf)?;
        }
        pass.made += 1;
        let blocks_per_leaf = pass.done.len() as u64 / self.engines[tree].shape().leaves();
        if pass.made >= visits + blocks_per_leaf as usize + 2 && pass.waiting.is_empty() {
            (pass.leaf, pass.made) = (Leaf(pass.leaf.0 + 1), 0);
        }
        Ok(pass.leaf.0 < self.engines[tree].shape().leaves())
    }

    /// Finds the blocks with the label of a leaf. With their labels in trusted memory they get
    /// others at once.
    fn meet(&mut self, pass: &mut Relabelling, is_last: bool) -> Result {
        let tree = pass.tree;
        self.engines[tree].fetch(pass.leaf)?;
        let found = self.engines[tree].labelled().filter(|addr| !pass.done[addr.0 as usize]);
        pass.waiting.extend(found);
        if is_last {
            for block in pass.waiting.drain(..) {
                let new = Leaf(self.rng.below(self.engines[tree].shape().leaves()));
                self.top.remap(block, new);
                self.engines[tree].relabel(block, new)?;
                pass.done[block.0 as usize] = true;
            }
        }
        self.engines[tree].evict()
    }

    /// Notes another label of a block that waits, and gives it to the block. If none waits, it
    /// looks the same.
    fn relabel_one(&mut self, pass: &mut Relabelling) -> Result {
        let tree = pass.tree;
        let Some(block) = pass.waiting.pop() else {
            for map in (tree + 1..self.engines.len()).rev() {
                let leaf = self.draw(map);
                self.engines[map].dummy(leaf)?;
            }
            return self.engines[tree].dummy(pass.leaf);
        };
        let maps = self.engines[1..=tree].iter().map(|map| labels_of(map.tree()));
        let addr = Addr(maps.fold(block.0, |first, labels| first * labels));
        let mut next: Next = self.enter(addr, None);
        while next.tree > tree {
            self.visit(next, addr, |_| {})?;
            next = self.next.take().expect("a map leads to the tree before");
        }
        self.engines[tree].fetch(pass.leaf)?;
        self.engines[tree].relabel(block, next.new)?;
        pass.done[block.0 as usize] = true;
        self.engines[tree].evict()
    }
}

fn labels_of(map: &impl BucketTree) -> u64 {
    (map.body_len() / LABEL_LEN) as u64
}
