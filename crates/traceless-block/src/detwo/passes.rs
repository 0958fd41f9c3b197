//! Arithmetic of refreshes: when each block is refreshed, and so where its newest copy lies.

use super::Refresh;

/// A cyclic refresh of all blocks, K with each write. The first pass, one refresh per block, stands
/// for creation and stores nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passes {
    /// Blocks of a pass.
    pub blocks: u64,
    /// Refreshes for each write.
    pub refresh: Refresh,
}

/// The place of a block's newest copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DetWoLocation {
    /// In the holding area, by write number `.0`.
    Hold(u64),
    /// In the main area, by refresh number `.0`.
    Main(u64),
    /// Nowhere: not written or refreshed since creation.
    Nowhere,
}

impl Passes {
    /// Number of refreshes after `writes` writes, including the refreshes of creation.
    pub fn after(self, writes: u64) -> u64 {
        self.blocks + self.refresh.after(writes)
    }

    /// The block that refresh number `refresh` rewrites.
    pub fn block_of(self, refresh: u64) -> u64 {
        refresh % self.blocks
    }

    /// The next refresh of `block` after `refreshed` refreshes.
    pub fn next(self, block: u64, refreshed: u64) -> u64 {
        let n = self.blocks;
        refreshed + (block + n - refreshed % n) % n
    }

    /// The place of the newest copy of `block` after `refreshed` refreshes; `last` is one more than
    /// the count of its last write, or 0 if there was none.
    pub fn locate(self, block: u64, last: u64, refreshed: u64) -> DetWoLocation {
        if last > 0 {
            // The first refresh that can carry the last write.
            if self.next(block, self.after(last - 1)) >= refreshed {
                return DetWoLocation::Hold(last - 1);
            }
        }
        self.in_main(block, refreshed)
    }

    /// The place of the main copy of `block` after `refreshed` refreshes.
    pub fn in_main(self, block: u64, refreshed: u64) -> DetWoLocation {
        match refreshed - 1 - (refreshed - 1 - block) % self.blocks {
            r if r < self.blocks => DetWoLocation::Nowhere,
            r => DetWoLocation::Main(r),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Follows every copy of every block, and compares the computed place of the newest.
    #[test]
    fn the_newest_copy_is_where_it_is_said_to_be() {
        for (blocks, p, q) in [(7, 1, 1), (7, 3, 1), (12, 5, 2), (9, 1, 3), (5, 5, 1)] {
            let passes = Passes { blocks, refresh: Refresh::new(p, q).unwrap() };
            let mut last = vec![0; blocks as usize];
            let mut newest = vec![DetWoLocation::Nowhere; blocks as usize];
            let mut refreshed = blocks;
            for write in 0..200 {
                let block = (write * write + write / 3) % blocks;
                last[block as usize] = write + 1;
                newest[block as usize] = DetWoLocation::Hold(write);
                while refreshed < passes.after(write + 1) {
                    newest[passes.block_of(refreshed) as usize] = DetWoLocation::Main(refreshed);
                    refreshed += 1;
                }
                for block in 0..blocks {
                    let found = passes.locate(block, last[block as usize], refreshed);
                    assert_eq!(found, newest[block as usize], "{passes:?}, {write}, {block}");
                }
            }
        }
    }
}
