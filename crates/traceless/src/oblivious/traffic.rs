//! The memory traffic of an access, by calculation: the same each time.

use super::circuit::levels_for;
use super::positions::{scanned_words, tree_blocks};
use super::tree::{PATHS, SLOTS};
use super::width::{Lines, Make, Width, fastest};
use super::{check_block, is_scanned};
use traceless_core::error::Result;

/// Paths and bytes of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Levels of the data tree; `None` if the blocks are scanned.
    pub levels: Option<usize>,
    /// Number of trees of the position map.
    pub maps: usize,
    /// Number of paths read and written, in all trees.
    pub paths: u64,
    /// Bytes of memory read and written, without the stashes.
    pub bytes: u64,
}

impl Traffic {
    /// Traffic of an access to the array that [`create`](super::create) makes.
    pub fn in_memory(blocks: u64, block_len: usize) -> Result<Self> {
        fastest(block_len, TrafficMeasure { blocks, block_len, scans: true })
    }

    /// Traffic of an access to the array that [`create_sealed`](super::create_sealed) makes, as if
    /// all of it lay in memory.
    pub fn on_store(blocks: u64, block_len: usize) -> Result<Self> {
        fastest(block_len, TrafficMeasure { blocks, block_len, scans: false })
    }
}

struct TrafficMeasure {
    blocks: u64,
    block_len: usize,
    /// Whether few blocks are scanned.
    scans: bool,
}

impl Make for TrafficMeasure {
    type Output = Result<Traffic>;

    fn make(self, width: impl Width + 'static) -> Self::Output {
        check_block(self.block_len, width)?;
        if self.scans && is_scanned(self.blocks, width) {
            let bytes = 2 * words_len(self.blocks * width.words() as u64);
            return Ok(Traffic { levels: None, maps: 0, paths: 0, bytes });
        }
        let levels = levels_for(self.blocks)?;
        let mut touched = path_words(levels, width.words());
        let mut maps = 0;
        for blocks in tree_blocks(self.blocks) {
            touched += path_words(levels_for(blocks)?, Lines::<1>.words());
            maps += 1;
        }
        let paths = (PATHS * (1 + maps)) as u64;
        let bytes = 2 * words_len(PATHS as u64 * touched + scanned_words(self.blocks) as u64);
        Ok(Traffic { levels: Some(levels as usize), maps, paths, bytes })
    }
}

/// Words of a path: headers and bodies.
fn path_words(levels: u32, words: usize) -> u64 {
    u64::from(levels) * (2 + SLOTS * words) as u64
}

fn words_len(words: u64) -> u64 {
    words * size_of::<u64>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 levels of two blocks of 64 bytes and their headers; 16 and 13 for the map, since small
    /// trees have one level more; and 4096 scanned labels of 4 bytes.
    #[test]
    fn bytes_are_the_bytes_of_all_paths() {
        let bucket = 2 * (64 + 8);
        let bytes = 2 * (2 * (20 + 16 + 13) * bucket + 4096 * 4);
        let want = Traffic { levels: Some(20), maps: 2, paths: 6, bytes };
        assert_eq!(Traffic::in_memory(1 << 20, 64).unwrap(), want);
        assert_eq!(Traffic::on_store(1 << 20, 64).unwrap(), want);

        let scan = Traffic { levels: None, maps: 0, paths: 0, bytes: 2 * 100 * 64 };
        assert_eq!(Traffic::in_memory(100, 64).unwrap(), scan);
        assert_eq!(Traffic::in_memory(100, 60).unwrap(), scan);
        assert_eq!(Traffic::on_store(100, 64).unwrap().paths, 2);
        assert!(Traffic::in_memory(100, 0).is_err());
    }
}
