//! Another leaf for every block, after a crash.

use super::RingCore;
use super::chunk::{RingAccess, RingChunk, SlotRead};
use traceless_core::error::Result;

impl RingCore {
    /// Gives every block another leaf, in a pass of evictions in their usual order: of the blocks
    /// of each leaf that is evicted, as many as accesses would have been made are moved to the
    /// stash, each with a record. No slot is read alone. The evictions are as many for all data; a
    /// pass that was interrupted begins anew.
    pub fn relabel(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result {
        let mut stale = self.map.mark_stale();
        let (leaves, rate) = (self.geometry.leaves(), u64::from(self.geometry.rate));
        let room = self.geometry.levels.last().expect("there is a level").blocks;
        // Each round takes up to `rate` blocks from each leaf, the first round perhaps fewer.
        let pass = leaves * (room.div_ceil(rate) + 1);
        let mut done = 0;
        while done < pass || stale > 0 {
            let n = self.begin_chunk(rate)? as u64;
            self.input.clear();
            let eviction = Some(self.plan_eviction(self.count + n));
            let mut chunk = RingChunk { eviction, ..RingChunk::default() };
            self.input.read(&*self.store)?;
            stale -= self.choose_stale(&mut chunk, n)?;
            self.complete_pass(&chunk)?;
            done += 1;
            progress(done.min(pass), pass);
        }
        self.sync()
    }

    /// Makes a chunk of `n` accesses: of blocks of the evicted leaf that have their old one, as far
    /// as there are any. Returns their number.
    fn choose_stale(&mut self, chunk: &mut RingChunk, n: u64) -> Result<u64> {
        let eviction = chunk.eviction.as_ref().expect("the pass makes evictions");
        let mut candidates = self.candidates(eviction)?;
        candidates.retain(|c| c.leaf == eviction.leaf && self.map.get(c.block).is_stale);
        candidates.truncate(n as usize);
        for (birth, candidate) in (self.count..).zip(&candidates) {
            let found = candidate.from.map(|(level, slot)| {
                let read = &eviction.buckets[level];
                let nth = read.begin + slot as usize;
                let block = Some(candidate.block);
                chunk.reads.push(SlotRead { level, eviction: read.last, slot, block, nth });
                chunk.reads.len() - 1
            });
            self.move_to_stash(candidate.block, birth);
            chunk.accesses.push(RingAccess { block: Some(candidate.block), found });
        }
        chunk.accesses.resize(n as usize, RingAccess { block: None, found: None });
        Ok(candidates.len() as u64)
    }
}
