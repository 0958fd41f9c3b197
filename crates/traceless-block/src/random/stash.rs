//! Blocks that wait in memory for a free slot, and slots that wait to be written in place.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// A block in the stash.
pub(super) struct StashBlock {
    pub address: u64,
    pub birth: u64,
    /// Version of its newest record in the journal, if it has one.
    pub recorded: Option<u64>,
    pub plain: Vec<u8>,
}

/// The stash, ordered by newest record, the oldest first; blocks without a record come last.
#[derive(Default)]
pub(super) struct RandomStash {
    blocks: VecDeque<StashBlock>,
}

impl RandomStash {
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &StashBlock> {
        self.blocks.iter()
    }

    pub fn get(&self, address: u64) -> Option<&StashBlock> {
        self.blocks.iter().find(|b| b.address == address)
    }

    pub fn push(&mut self, block: StashBlock) {
        self.blocks.push_back(block);
    }

    /// Removes the block to be placed next.
    pub fn pop(&mut self) -> Option<StashBlock> {
        self.blocks.pop_front()
    }

    /// Removes the older contents of a block.
    pub fn remove(&mut self, address: u64) -> Option<StashBlock> {
        let at = self.blocks.iter().position(|b| b.address == address)?;
        self.blocks.remove(at)
    }

    /// Chooses the block to record as `version`: one without a record, or else the one with the
    /// oldest record, if that is from before version `since`. The block moves to the end.
    pub fn record(&mut self, version: u64, since: u64) -> Option<&StashBlock> {
        let new = self.blocks.iter().position(|b| b.recorded.is_none());
        let at = match new {
            Some(at) => at,
            None => self.blocks.iter().position(|b| b.recorded < Some(since))?,
        };
        let mut block = self.blocks.remove(at).expect("it was just found");
        block.recorded = Some(version);
        self.blocks.push_back(block);
        self.blocks.back()
    }

    /// The oldest of the blocks' newest record versions.
    pub fn oldest_record(&self) -> Option<u64> {
        self.blocks.iter().filter_map(|b| b.recorded).min()
    }
}

/// A slot that is in the journal but not yet in its place: entry and body, sealed.
pub(super) struct Waiting {
    pub entry: Vec<u8>,
    pub body: Vec<u8>,
}

/// The newest waiting version of each slot.
pub(super) type Pending = BTreeMap<u64, Waiting>;
