//! All blocks at once: each bucket of each tree is written once.

use super::PathOram;
use crate::error::Result;
use crate::posmap::{LABEL_LEN, swap_label};
use crate::tree::{Contents, Fill};
use crate::types::{Addr, Leaf};
use alloc::vec::Vec;

impl<T: Fill> PathOram<T> {
    /// Fills a new one with every block, each on a fresh random path. What is written depends on
    /// the trees alone; but in which order `contents` is asked for blocks tells their paths, and
    /// nobody must see it.
    pub fn fill(&mut self, contents: Contents<'_>) -> Result {
        let mut labels = self.draw_labels(0, self.blocks);
        self.engines[0].fill_all(&labels, contents)?;
        for tree in 1..self.engines.len() {
            let children = self.engines[tree].tree().body_len() / LABEL_LEN;
            let below = labels;
            labels = self.draw_labels(tree, (below.len() as u64).div_ceil(children as u64));
            self.engines[tree].fill_all(&labels, &mut |addr, body| {
                let first = addr.0 as usize * children;
                let group = &below[first..below.len().min(first + children)];
                for (bytes, &label) in body.chunks_exact_mut(LABEL_LEN).zip(group) {
                    swap_label(bytes, Leaf(label.into()));
                }
            })?;
        }
        for (addr, &label) in (0..).map(Addr).zip(&labels) {
            self.top.remap(addr, Leaf(label.into()));
        }
        Ok(())
    }

    fn draw_labels(&mut self, tree: usize, blocks: u64) -> Vec<u32> {
        let label = |_| u32::try_from(self.draw(tree).0).expect("below 2^32 - 1 leaves");
        (0..blocks).map(label).collect()
    }
}
