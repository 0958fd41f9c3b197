//! Gives every block another path, in an order that reveals nothing.

use super::PathOram;
use super::fill::{NEVER, label_of};
use crate::tree::{BucketTree, Fill};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::types::Leaf;

/// A pass over the leaves of the first tree, after which every block has another label.
///
/// The pass visits a leaf by reading its path, which holds all blocks with this label. The map is
/// not used. It visits the leaves in order, each once, and accesses drawn paths between two visits,
/// which moves the blocks to their new places. So an observer does not learn which labels were in
/// use, nor how many blocks had the same label.
///
/// The pass does not read the maps. At its end the maps are rebuilt from the new labels, which stay
/// in memory until then.
pub(super) struct Relabelling {
    leaf: Leaf,
    /// Path accesses made so far for this leaf.
    made: u64,
    /// The new label of each block, or [`NEVER`] until the pass finds the block.
    labels: Vec<u32>,
}

impl<T: BucketTree> PathOram<T> {
    /// Begins a pass.
    pub(super) fn begin_relabelling(&self) -> Relabelling {
        Relabelling { leaf: Leaf(0), made: 0, labels: vec![NEVER; self.blocks as usize] }
    }

    /// Makes one access and returns whether the pass goes on. The state may be saved between two
    /// accesses: a pass that was interrupted starts again from the first leaf and finds every
    /// block.
    pub(super) fn relabel_some(&mut self, pass: &mut Relabelling) -> Result<bool> {
        if pass.made == 0 {
            self.meet(pass)?;
        } else {
            let leaf = self.draw(0);
            self.engines[0].dummy(leaf)?;
        }
        pass.made += 1;
        let leaves = self.engines[0].shape().leaves();
        if pass.made == accesses_per_leaf(self.blocks, leaves) {
            (pass.leaf, pass.made) = (Leaf(pass.leaf.0 + 1), 0);
        }
        Ok(pass.leaf.0 < leaves)
    }

    /// Gives another label to the blocks with the label of a leaf.
    fn meet(&mut self, pass: &mut Relabelling) -> Result {
        self.engines[0].fetch(pass.leaf)?;
        let labels = &pass.labels;
        let met = self.engines[0].labelled().filter(|addr| labels[addr.0 as usize] == NEVER);
        for block in met.collect::<Vec<_>>() {
            let new = self.draw(0);
            self.engines[0].relabel(block, new)?;
            pass.labels[block.0 as usize] = label_of(new);
        }
        self.engines[0].evict()
    }
}

impl<T: Fill> PathOram<T> {
    /// Rebuilds the maps from the labels of a pass. Their old contents are not read.
    pub(super) fn end_relabelling(&mut self, pass: Relabelling) -> Result {
        self.fill_maps(pass.labels)
    }
}

/// One visit, and at least one drawn path more than the average number of blocks with one label.
fn accesses_per_leaf(blocks: u64, leaves: u64) -> u64 {
    blocks / leaves + 3
}
