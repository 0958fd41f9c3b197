//! `SqORAM` schemes with one fault each, for the auditor to find.
//!
//! They are the paper's de-amortized construction (k = 2, maps in memory) over real sealed bytes,
//! corrected except for the planted fault. Without a fault it passes.

use std::marker::PhantomData;
use std::sync::Arc;
use traceless::error::{Error, Place};
use traceless::oram::Oram;
use traceless::oram::check_request;
use traceless::scheme::SchemeContext;
use traceless::seal::{Aead, Nonce, Sealer};
use traceless::store::{Area, Run, SlotLayout, Store};
use traceless::{Addr, Hides, Result, Slot};

/// A fault. The default of each constant is correct.
pub trait SqFault: Send + Sync {
    /// Of two copies of one block, a merge keeps the one from the older generation: the duplicate
    /// rule of the paper's Algorithm 2, lines 40 to 42. Reads are stale.
    const KEEPS_OLDER: bool = false;

    /// Slots that would hold a fake block are not written. So the writes show how many blocks were
    /// written twice.
    const SKIPS_FAKES: bool = false;
}

/// No fault.
pub struct SoundSq;

impl SqFault for SoundSq {}

/// The paper's rule for two copies of one block.
pub struct KeepsOlder;

impl SqFault for KeepsOlder {
    const KEEPS_OLDER: bool = true;
}

/// Writes no fake blocks.
pub struct SkipsFakes;

impl SqFault for SkipsFakes {
    const SKIPS_FAKES: bool = true;
}

/// Blocks of a bucket.
const BUCKET: u64 = 4;

/// Bytes of a tag.
const TAG_LEN: usize = 16;

/// One header of 64 entries is exactly 4096 bytes, so that only small areas have gaps.
const STRIPE_SLOTS: u64 = 64;

/// The sealed copy of a block: the block's number, its version, and its slot.
#[derive(Clone, Copy)]
struct SealedBlock {
    block: u64,
    version: u64,
    slot: u64,
}

/// The scheme with the fault `F`. It cannot be opened again.
pub struct SqMutant<F> {
    blocks: u64,
    block_len: usize,
    store: Arc<dyn Store>,
    sealer: Aead,
    /// Each level's four generations, then the last level.
    areas: Vec<Area>,
    /// Per level and generation of its ring, the blocks in it, sorted.
    rings: Vec<[Vec<SealedBlock>; 4]>,
    /// Version of each slot of the last level; 0 for a slot never written.
    last: Vec<u64>,
    /// Progress of the merge out of each level, in its two sources.
    cursors: Vec<[usize; 2]>,
    queue: Vec<(u64, Vec<u8>)>,
    /// The number of the flush that wrote each block.
    times: Vec<Option<u64>>,
    flushes: u64,
    version: u64,
    fault: PhantomData<F>,
}

fn levels(blocks: u64) -> u32 {
    blocks.div_ceil(BUCKET).next_power_of_two().ilog2().max(1)
}

/// The first flush that delivers to a level.
fn start(level: u32) -> u64 {
    (2 << level) - 2
}

fn layout(slots: u64, block_len: usize) -> SlotLayout {
    SlotLayout { slots, body_len: block_len, entry_len: 64, stripe_slots: STRIPE_SLOTS }
}

fn layouts(blocks: u64, block_len: usize) -> Vec<SlotLayout> {
    let last = levels(blocks);
    let ring = |level| layout(4 * (BUCKET << level), block_len);
    (0..last).map(ring).chain([layout(BUCKET << last, block_len)]).collect()
}

/// Bytes that a mutant takes on its store.
pub fn store_len(blocks: u64, block_len: usize) -> u64 {
    layouts(blocks, block_len).iter().map(SlotLayout::len).sum()
}

/// Areas that a mutant writes.
pub fn areas(blocks: u64) -> u64 {
    u64::from(levels(blocks)) + 1
}

/// Writes after which each level got its first bucket.
pub fn warm_up(blocks: u64) -> u64 {
    (start(levels(blocks)) + 1) * BUCKET
}

/// Blocks written for each block that the user writes.
pub fn write_amplification(blocks: u64) -> f64 {
    f64::from(levels(blocks)) + 1.0
}

impl<F: SqFault> SqMutant<F> {
    /// Makes a new mutant; every block reads as zeros.
    pub fn create(blocks: u64, block_len: usize, context: &SchemeContext) -> Self {
        let last = levels(blocks) as usize;
        let mut at = context.first;
        let areas = layouts(blocks, block_len)
            .into_iter()
            .map(|layout| {
                let area = Area::new(context.store.clone(), at, layout, "level");
                at += layout.len();
                area
            })
            .collect();
        Self {
            blocks,
            block_len,
            store: context.store.clone(),
            sealer: Aead::new(&context.key.derive(&[b"mutant"])),
            areas,
            rings: (0..last).map(|_| Default::default()).collect(),
            last: vec![0; (BUCKET as usize) << last],
            cursors: vec![[0; 2]; last],
            queue: vec![],
            times: vec![None; blocks as usize],
            flushes: 0,
            version: 0,
            fault: PhantomData,
        }
    }

    fn write_one(&mut self, block: u64, plain: &[u8]) -> Result {
        self.queue.push((block, plain.to_vec()));
        self.times[block as usize] = Some(self.flushes);
        if self.queue.len() as u64 == BUCKET { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result {
        for level in 0..levels(self.blocks) {
            self.step(level)?;
        }
        let mut queue = std::mem::take(&mut self.queue);
        // Sorted by block; of two writes to a block, the newer remains.
        queue.reverse();
        queue.sort_by_key(|(block, _)| *block);
        queue.dedup_by_key(|(block, _)| *block);
        let ring = self.flushes % 4;
        self.rings[0][ring as usize].clear();
        for (i, (block, plain)) in queue.iter().enumerate() {
            let sealed = self.seal(0, ring * BUCKET + i as u64, *block, plain)?;
            self.rings[0][ring as usize].push(sealed);
        }
        self.write_fakes(0, ring * BUCKET + queue.len() as u64, BUCKET - queue.len() as u64)?;
        self.flushes += 1;
        Ok(())
    }

    /// Writes one bucket of level `x + 1`, merged from two generations of level `x`.
    fn step(&mut self, x: u32) -> Result {
        let to = x + 1;
        let Some(t) = self.flushes.checked_sub(start(to)) else { return Ok(()) };
        let (group, phase) = (t >> to, t % (1 << to));
        let level = x as usize;
        let sources = [2 * group % 4, (2 * group + 1) % 4];
        if phase == 0 {
            self.cursors[level] = [0; 2];
        }
        let is_last = to == levels(self.blocks);
        let ring = if is_last { 0 } else { group % 4 };
        if phase == 0 && !is_last {
            self.rings[to as usize][ring as usize].clear();
        }
        let mut fakes = 0;
        let first = (ring * (1 << to) + phase) * BUCKET;
        for slot in first..first + BUCKET {
            let heads = [0, 1].map(|i| {
                let generation = &self.rings[level][sources[i] as usize];
                generation.get(self.cursors[level][i]).copied()
            });
            let [older, newer] = heads.map(|h| h.map_or(u64::MAX, |s| s.block));
            let least = older.min(newer);
            if is_last && least != slot || least == u64::MAX {
                fakes += u64::from(!is_last);
                if is_last {
                    self.renew(slot)?;
                }
                continue;
            }
            let tie = older == newer;
            let from = usize::from(if tie { !F::KEEPS_OLDER } else { newer < older });
            self.cursors[level][0] += usize::from(older == least);
            self.cursors[level][1] += usize::from(newer == least);
            let mut plain = vec![0; self.block_len];
            self.open(level, heads[from].expect("it is the least"), &mut plain)?;
            let sealed = self.seal(to as usize, slot, least, &plain)?;
            if is_last {
                self.last[slot as usize] = sealed.version;
            } else {
                self.rings[to as usize][ring as usize].push(sealed);
            }
        }
        self.write_fakes(to as usize, first + BUCKET - fakes, fakes)
    }

    /// Seals a slot of the last level anew.
    fn renew(&mut self, slot: u64) -> Result {
        let last = self.rings.len();
        let mut plain = vec![0; self.block_len];
        let version = self.last[slot as usize];
        if version > 0 {
            self.open(last, SealedBlock { block: slot, version, slot }, &mut plain)?;
        }
        self.last[slot as usize] = self.seal(last, slot, slot, &plain)?.version;
        Ok(())
    }

    fn write_fakes(&mut self, level: usize, first: u64, count: u64) -> Result {
        if F::SKIPS_FAKES {
            return Ok(());
        }
        let zeros = vec![0; self.block_len];
        (first..first + count).try_for_each(|slot| self.seal(level, slot, 0, &zeros).map(|_| ()))
    }

    fn seal(&mut self, level: usize, slot: u64, block: u64, plain: &[u8]) -> Result<SealedBlock> {
        self.version += 1;
        let mut run = Run::default();
        run.add(&self.areas[level], Slot(slot), 1);
        let (entry, body) = run.slot_mut(0);
        entry.fill(0);
        self.sealer.seal(
            Nonce::of_fresh_key(self.version),
            &[],
            plain,
            body,
            &mut entry[..TAG_LEN],
        );
        run.write(&*self.store)?;
        Ok(SealedBlock { block, version: self.version, slot })
    }

    fn open(&self, level: usize, sealed: SealedBlock, into: &mut [u8]) -> Result {
        let area = &self.areas[level];
        let mut run = Run::default();
        run.add(area, Slot(sealed.slot), 1);
        run.read(&*self.store)?;
        let (entry, body) = run.slot(0);
        let place = Place { area: area.name(), slot: sealed.slot, block: Some(sealed.block) };
        self.sealer
            .open(Nonce::of_fresh_key(sealed.version), &[], body, &entry[..TAG_LEN], into)
            .map_err(|_| Error::Tampered { place })
    }

    fn fetch(&self, block: u64, into: &mut [u8]) -> Result {
        if let Some((_, plain)) = self.queue.iter().rev().find(|(b, _)| *b == block) {
            into.copy_from_slice(plain);
            return Ok(());
        }
        if let Some(time) = self.times[block as usize] {
            let leaves = |i: u32| start(i + 1) + ((time >> (i + 1)) + 1) * (2 << i);
            if let Some(level) = (0..levels(self.blocks)).find(|&i| self.flushes < leaves(i)) {
                let generation = &self.rings[level as usize][((time >> level) % 4) as usize];
                let found = generation.binary_search_by_key(&block, |s| s.block);
                let place = Place { area: "level", slot: 0, block: Some(block) };
                let at = found.map_err(|_| Error::Tampered { place })?;
                return self.open(level as usize, generation[at], into);
            }
        }
        match self.last[block as usize] {
            0 => {
                into.fill(0);
                Ok(())
            }
            version => {
                self.open(self.rings.len(), SealedBlock { block, version, slot: block }, into)
            }
        }
    }
}

impl<F: SqFault> Oram for SqMutant<F> {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block_len(&self) -> usize {
        self.block_len
    }

    fn read_many(&mut self, addrs: &[Addr], into: &mut [u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, into.len())?;
        let mut blocks = addrs.iter().zip(into.chunks_exact_mut(self.block_len));
        blocks.try_for_each(|(addr, block)| self.fetch(addr.0, block))
    }

    fn write_many(&mut self, addrs: &[Addr], from: &[u8]) -> Result {
        check_request(self.blocks, self.block_len, addrs, from.len())?;
        let mut blocks = addrs.iter().zip(from.chunks_exact(self.block_len));
        blocks.try_for_each(|(addr, block)| self.write_one(addr.0, block))
    }

    fn sync(&mut self) -> Result {
        self.store.sync()
    }

    fn hides(&self) -> Hides {
        Hides::WritesOnly
    }

    fn close(&mut self) -> Result {
        self.sync()
    }
}
