//! Counts of a scheme's path accesses and requests.

use serde::Serialize;
use traceless::controller::StepKind;

/// Levels of a position map that are counted separately; deeper ones count as the last.
pub const MAP_LEVELS: usize = 8;

/// Levels of a tree that are counted separately; deeper ones count as the last.
pub const FOUND_LEVELS: usize = 32;

/// Path accesses, by their purpose, and their results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Counts {
    /// Path accesses for a block of a program.
    pub data: u64,
    /// Path accesses for a block of the position map.
    pub map: u64,
    /// Path accesses for the position map, level by level, from the first on.
    pub map_levels: [u64; MAP_LEVELS],
    /// Dummy accesses.
    pub dummy: u64,
    /// Path accesses that only emptied a stash.
    pub eviction: u64,
    /// Path accesses in place of dummies: for lines that were written back early, and for their
    /// labels.
    pub early: u64,
    /// Lines that were written back early.
    pub early_lines: u64,
    /// Path accesses of any purpose in trees other than that of the user's blocks.
    pub other_trees: u64,
    /// Requests that took no path access.
    pub at_hand: u64,
    /// Requests for a block for which a request already waited, for another line of it.
    pub joined: u64,
    /// Lines that came back with their labels, so that they took no path access.
    pub returned: u64,
    /// Requests of the last cache.
    pub requests: u64,
    /// Cycles of all path accesses, each from its begin to its end.
    pub busy: u64,
    /// Lines read and written. A memory that only counts bytes counts a path as its lines.
    pub lines: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Blocks in the stash between two accesses, at most.
    pub stash_peak: usize,
    /// For each level, how often a path access found its block there, and not in the stash.
    pub found: [u64; FOUND_LEVELS],
    /// Slots looked at in paths drawn at random, on each level of the first tree.
    pub looked_at: [u64; FOUND_LEVELS],
    /// Slots looked at that held a block.
    pub full: [u64; FOUND_LEVELS],
    /// Slots of all trees.
    pub slots: u64,
    /// Bits of the table that says where in a sub-stash the blocks of a cached bucket are.
    pub pointer_bits: u64,
}

/// The costs of the position map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct MapCounts {
    /// Bits of the labels in a block of the map; only in unified ORAMs and Rho.
    pub block_bits: u64,
    /// Groups of compressed labels that were replaced as a whole because a counter was full, with
    /// an access for each sibling.
    pub group_remaps: u64,
    /// Bytes moved for the map: for accesses to its blocks, or, if it has trees of its own, for all
    /// accesses to these trees.
    pub bytes: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            data: 0,
            map: 0,
            map_levels: [0; MAP_LEVELS],
            dummy: 0,
            eviction: 0,
            early: 0,
            early_lines: 0,
            other_trees: 0,
            at_hand: 0,
            joined: 0,
            returned: 0,
            requests: 0,
            busy: 0,
            lines: 0,
            bytes: 0,
            stash_peak: 0,
            found: [0; FOUND_LEVELS],
            looked_at: [0; FOUND_LEVELS],
            full: [0; FOUND_LEVELS],
            slots: 0,
            pointer_bits: 0,
        }
    }
}

impl Counts {
    /// All path accesses.
    pub fn paths(&self) -> u64 {
        self.data + self.map + self.dummy + self.eviction + self.early
    }

    /// The PLB's hit rate for blocks of a level of the map, from level 1 on. Each miss took a path
    /// access, and so did the block of the sought label.
    pub fn plb_hits(&self, level: usize) -> f64 {
        let missed = |level: usize| self.map_levels[level - 1];
        let sought = if level == 1 { self.data } else { missed(level - 1) };
        1.0 - missed(level) as f64 / sought.max(1) as f64
    }

    pub(super) fn count(&mut self, kind: StepKind, is_early: bool) {
        match kind {
            StepKind::Dummy => self.dummy += 1,
            StepKind::Eviction => self.eviction += 1,
            _ if is_early => self.early += 1,
            StepKind::Data => self.data += 1,
            StepKind::PosMap(level) => {
                self.map += 1;
                self.map_levels[usize::from(level).clamp(1, MAP_LEVELS) - 1] += 1;
            }
        }
    }
}
