//! Writing, a chunk at a time: plan, fetch the contents for the refreshes, seal, write once.
//!
//! Every refresh carries the copy that was the newest at the write that causes it, also within a
//! chunk, so that after a crash which keeps a prefix of the writes the refresh can be redone. The
//! salt of a chunk is drawn after all its contents have been fetched.

use super::DetWo;
use super::geometry::MAP;
use super::lookup::Fetch;
use super::map::{MAP_BLOCK_LEN, distinct, set_entry};
use crate::log::{DUMMY, Stamp};
use alloc::vec;
use alloc::vec::Vec;
use traceless_core::error::Result;
use traceless_core::oram::BlockOram;
use traceless_core::seal::Salt;
use traceless_core::store::Run;
use traceless_core::types::Addr;

/// Approximate number of blocks written in one round trip, holding and main together.
const BLOCKS_PER_BATCH: u64 = 128;

/// Buffers of the writer.
#[derive(Default)]
pub(super) struct DetWoWriteScratch {
    plans: Vec<ChunkPlan>,
    input: Run,
    output: Run,
    entries: Vec<u64>,
}

/// The work of one tier in a chunk.
#[derive(Default)]
struct ChunkPlan {
    /// The block that each write changes, or `DUMMY`.
    homes: Vec<u64>,
    /// New contents of the blocks in `homes`, for map tiers.
    contents: Vec<u8>,
    /// The new map entry of each write's block.
    entries: Vec<u64>,
    /// The source of each refresh's contents.
    sources: Vec<CopySource>,
    /// For each block of the refresh window, one more than the index of the chunk's newest write to
    /// it so far.
    in_chunk: Vec<usize>,
    /// Copies that refreshes carry and that the chunk does not write itself.
    fetches: Vec<Fetch>,
}

#[derive(Clone, Copy)]
enum CopySource {
    /// Write number `.0` of the chunk.
    Chunk(usize),
    /// Number `.0` of the plan's fetches.
    Fetched(usize),
}

impl DetWo {
    pub(super) fn write_in_chunks(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        let len = self.geometry.block_len;
        let (mut addrs, mut from) = (addrs, from);
        while !addrs.is_empty() {
            let n = self.begin_chunk(addrs.len() as u64)?;
            let homes: Vec<u64> = addrs[..n].iter().map(|a| a.0).collect();
            self.write_chunk(&homes, &from[..n * len])?;
            (addrs, from) = (&addrs[n..], &from[n * len..]);
        }
        Ok(())
    }

    pub(super) fn write_one_dummy(&mut self) -> Result {
        self.begin_chunk(1)?;
        let zeros = vec![0; self.geometry.block_len];
        self.write_chunk(&[DUMMY], &zeros)
    }

    /// Makes a write that is due on schedule. Returns the number of the `wanted` writes that fit in
    /// one chunk then.
    pub(crate) fn begin_chunk(&mut self, wanted: u64) -> Result<usize> {
        self.write_due_part()?;
        let until_due = self.discards.as_ref().map_or(u64::MAX, |map| map.until_due(self.count));
        self.chunk_len(wanted.min(until_due))
    }

    /// Number of the `wanted` writes that fit in one chunk now; syncs first if there is no room.
    pub(super) fn chunk_len(&mut self, wanted: u64) -> Result<usize> {
        self.life.writable()?;
        let unsynced = self.count - self.life.synced();
        let mut room = self.geometry.unsynced_max - unsynced;
        if room == 0 {
            self.sync_shared()?;
            room = self.geometry.unsynced_max;
        }
        let k = self.geometry.refresh;
        let per_write = 1 + k.at_most(1);
        let under_key =
            (self.count - self.keys.openings().last().start + BLOCKS_PER_BATCH) * per_write;
        if under_key * self.geometry.block_len as u64 > self.key_bytes_max {
            self.sync_shared()?;
            self.begin_opening()?;
        }
        Ok(wanted.min(room).min((BLOCKS_PER_BATCH / per_write).max(1)) as usize)
    }

    pub(super) fn write_chunk(&mut self, homes: &[u64], data: &[u8]) -> Result {
        let mut scratch = core::mem::take(&mut self.writer);
        let result = self.plan(homes, data, &mut scratch).and_then(|()| {
            let written = self.write_planned(homes, data, &mut scratch);
            // The counts of this chunk have sealed something and must not be used again.
            written.inspect_err(|_| self.life.poison())
        });
        self.writer = scratch;
        result
    }

    /// Plans the chunk and fetches the data it needs. Nothing is sealed yet, so after a failure the
    /// same write may be retried.
    fn plan(&self, homes: &[u64], data: &[u8], s: &mut DetWoWriteScratch) -> Result {
        s.plans.resize_with(self.tiers.len(), ChunkPlan::default);
        s.input.clear();
        s.output.clear();
        self.plan_homes(homes, data, s)?;
        for tier in 0..self.tiers.len() {
            self.plan_refreshes(tier, homes.len() as u64, s)?;
        }
        s.input.read(&*self.store)
    }

    fn write_planned(&mut self, homes: &[u64], data: &[u8], s: &mut DetWoWriteScratch) -> Result {
        let mut nth = 0;
        let salt = self.life.rng.salt();
        for (tier, t) in self.tiers.iter().enumerate() {
            let plan = &s.plans[tier];
            let (writes, refreshes) = (homes.len() as u64, plan.sources.len() as u64);
            s.output.add_write(&t.hold, t.hold_slot(self.count), writes, &t.hold_cursor);
            s.output.add_write(&t.main, t.main_slot(t.refreshed), refreshes, &t.main_cursor);
            let contents = if tier == 0 { data } else { &plan.contents };
            self.seal_writes(tier, plan, contents, salt, &mut s.output, nth);
            nth += homes.len();
            self.seal_refreshes(tier, plan, (contents, &s.input), salt, &mut s.output, nth);
            nth += plan.sources.len();
        }
        s.output.write(&*self.store)?;
        self.commit(homes, s);
        Ok(())
    }

    /// Finds the block that each write changes in each tier, and the map blocks' new contents.
    fn plan_homes(&self, homes: &[u64], data: &[u8], s: &mut DetWoWriteScratch) -> Result {
        let plan = &mut s.plans[0];
        plan.homes.clear();
        plan.homes.extend_from_slice(homes);
        self.new_entries(0, homes, data, &mut plan.entries)?;
        for tier in 1..self.tiers.len() {
            let (before, plan) = s.plans.split_at_mut(tier);
            let (below, plan) = (&before[tier - 1], &mut plan[0]);
            plan.homes.clear();
            let home_of = |&b: &u64| if b == DUMMY { b } else { MAP.home(b) };
            plan.homes.extend(below.homes.iter().map(home_of));
            let distinct = distinct(&plan.homes);
            let mut newest = vec![0; distinct.len() * MAP_BLOCK_LEN];
            self.read_tier(tier, &distinct, &mut newest)?;
            plan.contents.clear();
            for (i, &home) in plan.homes.iter().enumerate() {
                let Some(at) = distinct.iter().position(|d| d.0 == home) else {
                    plan.contents.extend_from_slice(&[0; MAP_BLOCK_LEN]);
                    continue;
                };
                let map_block = &mut newest[at * MAP_BLOCK_LEN..][..MAP_BLOCK_LEN];
                set_entry(map_block, below.homes[i], below.entries[i]);
                plan.contents.extend_from_slice(map_block);
            }
            self.new_entries(tier, &plan.homes, &plan.contents, &mut plan.entries)?;
        }
        Ok(())
    }

    /// Finds the source of each refresh in the chunk, and adds the slots to fetch.
    fn plan_refreshes(&self, tier: usize, writes: u64, s: &mut DetWoWriteScratch) -> Result {
        let (n, begin) = (self.tiers[tier].geometry.blocks, self.tiers[tier].refreshed);
        let end = self.refreshed_after(tier, self.count + writes);
        let window = (end - begin) as usize;
        s.entries.clear();
        self.entries_of(tier, (begin..end).map(|r| r % n), &mut s.entries)?;
        let plan = &mut s.plans[tier];
        plan.in_chunk.clear();
        plan.in_chunk.resize(window, 0);
        plan.sources.clear();
        plan.fetches.clear();
        for (i, &home) in plan.homes.iter().enumerate() {
            if home != DUMMY {
                let ahead = (home + n - begin % n) % n;
                if let Some(newest) = plan.in_chunk.get_mut(ahead as usize) {
                    *newest = i + 1;
                }
            }
            let until = self.refreshed_after(tier, self.count + i as u64 + 1);
            while begin + (plan.sources.len() as u64) < until {
                let j = plan.sources.len();
                let r = begin + j as u64;
                let source = match plan.in_chunk[j] {
                    0 => {
                        let lookup = self.lookup(tier, r % n, s.entries[j], r, self.count);
                        plan.fetches.push(Fetch::new(lookup));
                        CopySource::Fetched(plan.fetches.len() - 1)
                    }
                    newest => CopySource::Chunk(newest - 1),
                };
                plan.sources.push(source);
            }
        }
        self.add_fetches(tier, &mut plan.fetches, &mut s.input);
        Ok(())
    }

    fn seal_writes(
        &self,
        tier: usize,
        plan: &ChunkPlan,
        data: &[u8],
        salt: Salt,
        out: &mut Run,
        nth: usize,
    ) {
        let (opening, keys) = self.keys.at_hold(tier, self.count);
        let contents = data.chunks_exact(self.tiers[tier].hold.layout().body_len);
        let synced = self.life.synced();
        for (i, (&home, plain)) in plan.homes.iter().zip(contents).enumerate() {
            let count = self.count + i as u64;
            let stamp = Stamp { count, unsynced: count - synced, salt };
            keys.hold.seal(opening, stamp, home, plain, out.slot_mut(nth + i));
        }
    }

    fn seal_refreshes(
        &self,
        tier: usize,
        plan: &ChunkPlan,
        (data, input): (&[u8], &Run),
        salt: Salt,
        out: &mut Run,
        nth: usize,
    ) {
        let t = &self.tiers[tier];
        let len = t.main.layout().body_len;
        let (_, keys) = self.keys.at_main(tier, t.refreshed);
        for (j, source) in plan.sources.iter().enumerate() {
            let r = t.refreshed + j as u64;
            let (entry, body) = out.slot_mut(nth + j);
            match *source {
                CopySource::Chunk(i) => body.copy_from_slice(&data[i * len..(i + 1) * len]),
                CopySource::Fetched(nth) => {
                    let block = r % t.geometry.blocks;
                    if self.open_fetch(tier, block, &plan.fetches[nth], input, body).is_err() {
                        // The block was lost earlier. The rest of the volume goes on, and reads of
                        // this block are errors until it is written again.
                        self.keys.fill_lost(tier, r, (entry, body));
                        continue;
                    }
                }
            }
            keys.main.seal_in_place(r, salt, (entry, body));
        }
    }

    /// Updates the state in memory after everything is written.
    fn commit(&mut self, homes: &[u64], s: &DetWoWriteScratch) {
        let mut nth = 0;
        for (tier, t) in self.tiers.iter_mut().enumerate() {
            nth += homes.len();
            s.output.advance(&mut t.hold_cursor, nth - 1);
            let refreshes = s.plans[tier].sources.len();
            if refreshes > 0 {
                nth += refreshes;
                s.output.advance(&mut t.main_cursor, nth - 1);
                t.refreshed += refreshes as u64;
            }
        }
        let last_tier = s.plans.last().expect("the data is a tier");
        for (i, &home) in last_tier.homes.iter().enumerate() {
            if home != DUMMY {
                self.top[home as usize] = last_tier.entries[i];
            }
        }
        if let Some(map) = &mut self.discards {
            for &home in homes {
                map.note_write(home);
            }
        }
        self.count += homes.len() as u64;
    }
}
