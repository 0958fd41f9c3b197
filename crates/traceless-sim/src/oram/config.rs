//! An oblivious memory, as files say it.

use super::bus::Bus;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use traceless::controller::Controller;
use traceless::posmap::{Plain, Plb};
use traceless::rng::Seeded;
use traceless::scheme::path::PathOram;
use traceless::scheme::unified::{Sizes, Unified};
use traceless::tree::ir_alloc::Preset;
use traceless::tree::{GhostTree, Treetop};

/// Bytes of a block: a line.
const BLOCK_LEN: usize = 64;

const BLOCKS_MAX: u64 = 1 << 40;
const TIME_MAX: u64 = 1 << 32;

/// What stands between the last cache and the memory.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The scheme.
    pub scheme: Scheme,
    /// Blocks that programs can use. Addresses past them begin again.
    pub blocks: u64,
    /// Levels of the tree.
    pub levels: usize,
    /// Slots of its buckets: `base`, 4 everywhere, or a preset of IR-Alloc.
    pub allocation: String,
    /// Levels that are in the processor.
    pub cached_levels: usize,
    /// Blocks that the stash holds.
    pub stash_blocks: usize,
    /// With more than these an access does nothing but empty it.
    pub drain_above: usize,
    /// Levels of the position map in the tree, and labels in one of their blocks.
    pub map_levels: u8,
    /// As above.
    pub map_fanout: u64,
    /// Bytes of the PLB.
    pub plb_bytes: usize,
    /// Blocks of one of its sets.
    pub plb_ways: usize,
    /// When path accesses begin.
    pub pace: Pace,
    /// Cycles from the last line of a path to the block in the processor.
    pub decrypt: u64,
    /// Write-backs that may wait for a path access.
    pub queue: usize,
    /// Bytes of a subtree that lies together, so that a path touches few rows.
    pub row_len: usize,
    /// Seed of all labels.
    pub seed: u64,
}

/// A scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Path ORAM whose whole position map is in the processor.
    Path,
    /// Blocks and position map in one tree, with a PLB.
    Unified,
}

/// When path accesses begin, in cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// When something is asked for. That tells when programs miss their caches.
    Asked,
    /// So long after the one before began, or when that ends, if it is later; dummies, too.
    StartToStart(u64),
    /// So long after the one before ended; dummies, too.
    AfterCompletion(u64),
}

/// The baseline of the IR-ORAM paper's Table I, with a PLB of four ways.
impl Default for Config {
    fn default() -> Self {
        Self {
            scheme: Scheme::Unified,
            blocks: 1 << 26,
            levels: 25,
            allocation: "base".to_owned(),
            cached_levels: 10,
            stash_blocks: 200,
            drain_above: 100,
            map_levels: 2,
            map_fanout: 16,
            plb_bytes: 64 << 10,
            plb_ways: 4,
            pace: Pace::AfterCompletion(1000),
            decrypt: 0,
            queue: 2000,
            row_len: 32 << 10,
            seed: 1,
        }
    }
}

impl Config {
    /// Refuses what no scheme would.
    pub fn check(&self) -> Result {
        if self.blocks == 0 || self.blocks > BLOCKS_MAX {
            return Err(Error::Oram("it has 1 to 2^40 blocks"));
        }
        let interval = match self.pace {
            Pace::Asked => 0,
            Pace::StartToStart(interval) | Pace::AfterCompletion(interval) => interval,
        };
        if interval.max(self.decrypt) > TIME_MAX {
            return Err(Error::Oram("a time is longer than 2^32 cycles"));
        }
        if self.queue == 0 || self.row_len < BLOCK_LEN {
            return Err(Error::Oram("its queue has room, and a row holds a line"));
        }
        Ok(())
    }

    /// The scheme over a tree that tells `bus` what it touches, and the bytes that it lies in.
    pub fn controller(&self, bus: &Bus) -> Result<(Box<dyn Controller>, u64)> {
        let preset = Preset::named(&self.allocation);
        let preset = preset.ok_or(Error::Oram("there is no such allocation"))?;
        let shape = preset.shape(self.levels)?;
        let cached = self.cached_levels.min(self.levels);
        let below = GhostTree::new(shape.only(|l| l >= cached), self.row_len, bus.tap(0));
        let len = below.len();
        let tree = Treetop::new(shape, cached, below)?;
        let rng = Box::new(Seeded::new(self.seed));
        Ok(match self.scheme {
            Scheme::Path => {
                let mut path = PathOram::new(self.blocks, vec![tree], self.stash_blocks, rng)?;
                path.drain_above(self.drain_above);
                (Box::new(path), len)
            }
            Scheme::Unified => {
                let Self { blocks, map_levels, stash_blocks, map_fanout, .. } = *self;
                let sizes = Sizes { blocks, map_levels, parts: 1, stash_blocks };
                let labels = || Plain::new(map_fanout);
                let plb = Plb::new(self.plb_bytes / BLOCK_LEN, self.plb_ways, 0)?;
                let mut unified = Unified::new(sizes, tree, labels()?, labels()?, plb, rng)?;
                unified.drain_above(self.drain_above);
                (Box::new(unified), len)
            }
        })
    }
}
