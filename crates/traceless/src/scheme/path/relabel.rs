//! Every block onto another path, in an order that tells nothing.

use super::PathOram;
use super::fill::{NEVER, label_of};
use crate::error::Result;
use crate::tree::{BucketTree, Fill};
use crate::types::Leaf;
use alloc::vec;
use alloc::vec::Vec;

/// A pass over the leaves of the first tree, after which every block has another label.
///
/// A leaf is visited by reading its path, where all blocks with its label are, whatever the map
/// says. Leaves are visited in order, each once, and between them paths are drawn to bring the
/// blocks to their new places. So nobody sees which labels there were, nor how many blocks had one.
///
/// The maps are not read. When the pass has ended they are made anew of the new labels, which wait
/// in memory until then.
pub(super) struct Relabelling {
    leaf: Leaf,
    /// Path accesses of this leaf that were made.
    made: u64,
    /// Of each block its new label, or [`NEVER`] as long as it was not met.
    labels: Vec<u32>,
}

impl<T: BucketTree> PathOram<T> {
    /// Begins a pass.
    pub(super) fn begin_relabelling(&self) -> Relabelling {
        Relabelling { leaf: Leaf(0), made: 0, labels: vec![NEVER; self.blocks as usize] }
    }

    /// Makes one access, and tells whether the pass goes on. Between two of them everything may be
    /// saved: a pass that was cut short is begun anew, and meets every block again.
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
    /// Makes the maps of what a pass has found. What they held before is not looked at.
    pub(super) fn end_relabelling(&mut self, pass: Relabelling) -> Result {
        self.fill_maps(pass.labels)
    }
}

/// The visit, and one more drawn path than there are blocks with a label, on average.
fn accesses_per_leaf(blocks: u64, leaves: u64) -> u64 {
    blocks / leaves + 3
}
