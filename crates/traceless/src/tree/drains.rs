//! When an access only empties a stash.

/// Accesses in a row that only empty a stash, at most. In a tiny tree the labels in use may leave
/// no room for the stash's blocks; then only a request helps, since it changes a label.
pub const DRAINS_IN_A_ROW: u32 = 100;

/// Decides which accesses only empty a crowded stash (background eviction: Ren et al., section
/// 3.1.1). Their number depends on earlier accesses.
pub struct Drains {
    above: usize,
    in_a_row: u32,
}

impl Drains {
    /// Stashes that hold more than `blocks` blocks are crowded.
    pub fn above(blocks: usize) -> Self {
        Self { above: blocks, in_a_row: 0 }
    }

    /// Whether a stash that holds `blocks` blocks is crowded.
    pub fn is_crowded(&self, blocks: usize) -> bool {
        blocks > self.above
    }

    /// Whether the next access must be spent on emptying a stash that holds `blocks` blocks.
    pub fn is_due(&mut self, blocks: usize) -> bool {
        let due = self.is_crowded(blocks) && self.in_a_row < DRAINS_IN_A_ROW;
        self.in_a_row = if due { self.in_a_row + 1 } else { 0 };
        due
    }
}
