//! Writes all blocks in one pass: each bucket of each tree is written once.

use super::PathOram;
use crate::posmap::{Flat, LABEL_LEN, swap_label};
use crate::tree::{Contents, Fill};
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::types::{Addr, Leaf};

/// Stands in place of a label for a block that was never put onto a path.
pub(super) const NEVER: u32 = u32::MAX;

impl<T: Fill> PathOram<T> {
    /// Fills a new ORAM with every block, each on a fresh random path. The writes depend on the
    /// trees alone. The order of the calls of `contents` reveals the blocks' paths, so it must be
    /// hidden from the adversary.
    pub fn fill(&mut self, contents: Contents<'_>) -> Result {
        let labels = self.draw_labels(0, self.blocks);
        self.engines[0].fill_all(&labels, contents)?;
        self.fill_maps(labels)
    }

    /// Fills the maps with the labels of the first tree's blocks and discards their old contents.
    /// The blocks of the maps get fresh random paths.
    pub(super) fn fill_maps(&mut self, mut labels: Vec<u32>) -> Result {
        for tree in 1..self.engines.len() {
            let children = self.engines[tree].tree().body_len() / LABEL_LEN;
            let below = labels;
            labels = self.draw_labels(tree, (below.len() as u64).div_ceil(children as u64));
            self.engines[tree].fill_all(&labels, &mut |addr, body| {
                let first = addr.0 as usize * children;
                let group = &below[first..below.len().min(first + children)];
                body.fill(0);
                for (bytes, leaf) in body.chunks_exact_mut(LABEL_LEN).zip(group).filter_map(known) {
                    swap_label(bytes, leaf);
                }
            })?;
        }
        self.top = Flat::new(labels.len());
        for (addr, leaf) in (0..).map(Addr).zip(&labels).filter_map(known) {
            self.top.remap(addr, leaf);
        }
        Ok(())
    }

    fn draw_labels(&mut self, tree: usize, blocks: u64) -> Vec<u32> {
        (0..blocks).map(|_| label_of(self.draw(tree))).collect()
    }
}

pub(super) fn label_of(leaf: Leaf) -> u32 {
    u32::try_from(leaf.0).expect("below 2^32 - 1 leaves")
}

/// The leaf of a label, or `None` for a block that was never put onto a path.
fn known<P>((place, &label): (P, &u32)) -> Option<(P, Leaf)> {
    (label != NEVER).then(|| (place, Leaf(label.into())))
}
