//! The storage of a scheme in the processor.

use super::config::{BLOCK_LEN, Config, LabelKind, MapTree, Scheme};
use crate::error::Result;
use serde::Serialize;

/// Bits of the counter that the labels of a group share, where labels are compressed.
const GROUP_COUNTER_BITS: u64 = 64;

/// Bytes in the processor, by their use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Storage {
    /// Room for the blocks in the stashes of all trees, with address and label.
    pub stash: u64,
    /// The part of the position map that no tree holds.
    pub map: u64,
    /// The PLB: blocks of the position map that are at hand.
    pub plb: u64,
    /// Cached levels of the tree of the user's blocks.
    pub top: u64,
}

impl Config {
    /// The storage of the scheme in the processor. For `rho` it leaves out the storage of the small
    /// tree; for `ring` and `dram` it is not known.
    pub fn storage(&self) -> Result<Option<Storage>> {
        let config = self.resolved();
        let blocks = config.blocks.expect("it is resolved");
        let block_len = BLOCK_LEN as u64;
        let slot_len = |block_len| block_len + config.bucket.slot_bits.div_ceil(8);
        let stash_of = |block_len| (config.stash_blocks as u64).saturating_mul(slot_len(block_len));
        let label_bits = |levels: usize| levels.saturating_sub(1) as u64;
        let (mut stash, mut plb) = (stash_of(block_len), 0);
        let (entries, bits) = match config.scheme {
            Scheme::Dram | Scheme::Ring => return Ok(None),
            Scheme::Path => (blocks, label_bits(config.levels)),
            Scheme::Recursive => {
                let (mut entries, mut levels) = (blocks, config.levels);
                for map in config.map_trees.iter().flatten() {
                    let MapTree { fanout, block_bytes, rate, .. } = *map;
                    stash += stash_of(block_bytes as u64);
                    plb += rate.map_or(0, |_| config.plb_bytes as u64);
                    (entries, levels) = (entries.div_ceil(fanout.max(1)), map.levels);
                }
                (entries, label_bits(levels))
            }
            _ => {
                plb = config.plb_bytes as u64;
                let fanout = config.map_fanout.expect("it is resolved").max(1);
                let level = |entries: u64, _| entries.div_ceil(fanout);
                let is_compressed = config.labels == Some(LabelKind::Compressed);
                let bits = if is_compressed {
                    u64::from(config.counter_bits.unwrap_or(0))
                        + GROUP_COUNTER_BITS.div_ceil(fanout)
                } else {
                    label_bits(config.levels)
                };
                let (bundle, levels) = config.bundle.zip(config.map_levels).expect("resolved");
                ((0..levels).fold(blocks / bundle.max(1), level), bits)
            }
        };
        let shape = config.shape()?;
        let cached = 0..config.cached_levels.min(shape.levels());
        let slots: u64 = cached.map(|level| shape.buckets(level) * shape.z(level) as u64).sum();
        Ok(Some(Storage { stash, map: (entries * bits).div_ceil(8), plb, top: slots * block_len }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_from_the_configuration() {
        let of = |scheme| {
            let config = Config { scheme, levels: 26, cached_levels: 3, z: 3, ..Config::default() };
            config.storage().unwrap()
        };
        let compressed = Storage { stash: 14_400, map: 1 << 17, plb: 64 << 10, top: 7 * 3 * 64 };
        assert_eq!(of(Scheme::Compressed), Some(compressed));
        // Two levels of 16 labels each are in the tree.
        let unified = of(Scheme::Unified).unwrap();
        assert_eq!(unified, Storage { map: (1 << 18) * 25 / 8, ..compressed });
        // Four trees, each a sixteenth of the size of the one before.
        let recursive = of(Scheme::Recursive).unwrap();
        assert_eq!((recursive.stash, recursive.plb), (4 * 14_400, 0));
        assert_eq!(recursive.map, (1 << 14) * 13 / 8);
        assert_eq!(of(Scheme::Path).unwrap().map, (1 << 26) * 25 / 8);
        assert_eq!((of(Scheme::Dram), of(Scheme::Ring)), (None, None));
        // As large as the paper's map, of which two levels are in the tree.
        let bundled = Config { scheme: Scheme::Bundled, ..Config::default() };
        assert_eq!(bundled.storage().unwrap().unwrap().map, 512 << 10);
    }
}
